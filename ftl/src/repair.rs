//! Rebuilding the map from what the blocks say of themselves.
use crate::found_checkpoint::FoundCheckpoint;
use crate::found_log::FoundLog;
use crate::mapping::Mapping;
use crate::recovery::OpenError;
use crate::scan::Scan;
use crate::superblock::Superblock;
use crate::survey::Chunks;
use openftl_core::Clock;
use openftl_media::Media;

/// What was rebuilt.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct RepairReport {
    /// Why.
    pub damage: String,
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn rebuild(
    _media: &mut impl Media,
    _clock: &mut impl Clock,
    _scan: &mut Scan,
    _chunks: &Chunks,
    _superblock: &Superblock,
    _found: (&FoundCheckpoint, &FoundLog),
    damage: OpenError,
    _mapping: &mut Mapping,
) -> RepairReport {
    RepairReport { damage: damage.to_string() }
}
