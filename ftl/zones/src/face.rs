//! What hosts call zones: those, or segments. Settings and messages follow.

use crate::board::Limits;
use openftl_parts::open_error::OpenError;

/// How hosts see zones, unless they say otherwise. Nothing else of a drive depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Face {
    /// As zones.
    #[default]
    Zones,
    /// As segments of an address space without gaps.
    Segments,
}

impl Face {
    /// What hosts call them.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Face::Zones => "zones",
            Face::Segments => "segments",
        }
    }

    /// What settings call the width of one.
    #[must_use]
    pub fn width_field(self) -> &'static str {
        match self {
            Face::Zones => "zone_width",
            Face::Segments => "segment_width",
        }
    }

    /// What settings call the most that may be active.
    #[must_use]
    pub fn limit_field(self) -> &'static str {
        match self {
            Face::Zones => "max_active_zones",
            Face::Segments => "max_open_segments",
        }
    }

    /// Whether these limits go together.
    pub(crate) fn expect_usable(self, Limits { max_open, max_active }: Limits) -> Result<(), OpenError> {
        if (1..=max_active).contains(&max_open) {
            return Ok(());
        }
        Err(OpenError::Limits(match self {
            Face::Zones => format!(
                "max_open_zones = {max_open}, max_active_zones = {max_active}: at least one zone can be open, and no more than are active"
            ),
            Face::Segments => format!("max_open_segments = {max_active}: at least one segment can be written"),
        }))
    }
}
