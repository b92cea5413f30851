//! What zones are to be like, as drive descriptions say it, and what they need of a device.

use crate::failure::Failure;
use crate::settings::BlockSettings;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, FrameForm, Geometry};
use openftl_drive::description::FtlSection;
use openftl_media::Profile;
use openftl_parts::{Config, OpenError};
use openftl_zones::sizing::{chunks_per_pu, zones_holding};
use openftl_zones::{AskedLimits, Limits, ZoneConfig};

/// Zones that can be open or closed at a time where nothing is said: as many as zoned drives for servers have.
const ACTIVE_DEFAULT: u32 = 14;

/// An FTL for zones.
#[derive(Clone, PartialEq, Debug)]
pub struct ZoneSettings {
    /// What they hold, at least.
    pub capacity: ByteSize,
    /// Parallel units of each; `None`: those of a group.
    pub width: Option<u32>,
    /// What of the limits was asked for.
    pub limits: AskedLimits,
    /// The block FTL beside them, whose size follows from theirs.
    pub area: BlockSettings,
}

impl ZoneSettings {
    /// What a section says, and where it says nothing that of all.
    pub fn of(section: &FtlSection, all: &FtlSection, capacity: ByteSize, area: &BlockSettings) -> ZoneSettings {
        ZoneSettings {
            capacity,
            width: section.zone_width.or(all.zone_width),
            limits: AskedLimits {
                max_open: section.max_open_zones.or(all.max_open_zones),
                max_active: section.max_active_zones.or(all.max_active_zones),
            },
            area: BlockSettings {
                checkpoint_log_blocks: section.checkpoint_log_blocks.or(area.checkpoint_log_blocks),
                checkpoint_interval: section.checkpoint_interval.or(area.checkpoint_interval),
                ..area.clone()
            },
        }
    }

    /// What a new drive on a device of this shape is to be.
    pub fn zoned(&self, geometry: &Geometry) -> ZoneConfig {
        let width = self.width.unwrap_or(geometry.pus_per_group);
        let max_active = self.limits.max_active.or(self.limits.max_open).unwrap_or(ACTIVE_DEFAULT);
        let max_open = self.limits.max_open.unwrap_or(max_active);
        let zones = zones_holding(geometry, width, self.capacity.0.div_ceil(BLOCK_BYTES as u64));
        ZoneConfig { width, limits: Limits { max_open, max_active }, zones: Some(zones) }
    }

    /// The configuration of the block FTL beside them.
    pub fn config(&self, drive_id: u64) -> Config {
        self.area.config(FrameForm::Bytes, drive_id)
    }

    /// Bytes that the zones hold in fact, on a device of this shape.
    pub fn capacity_on(&self, geometry: &Geometry) -> u64 {
        let ZoneConfig { width, zones, .. } = self.zoned(geometry);
        let blocks = u64::from(width) * u64::from(geometry.blocks_per_chunk);
        u64::from(zones.expect("it was just computed")) * blocks * BLOCK_BYTES as u64
    }

    /// Chunks per parallel unit that a device of this shape needs for them.
    pub fn chunks_per_pu(&self, geometry: &Geometry, profile: &Profile) -> Result<u32, Failure> {
        chunks_per_pu(geometry, &self.config(0), &self.zoned(geometry), profile.spare()).map_err(zones_failure)
    }
}

/// Zones that cannot be.
fn zones_failure(error: OpenError) -> Failure {
    let failure = Failure::bad_input(&error);
    match error {
        OpenError::Tenant { text, .. } if text.starts_with("max_active_zones") => {
            failure.fix("choose fewer max_active_zones, or a smaller zone_width")
        }
        OpenError::Tenant { text, .. } if text.starts_with("zone_width") => {
            failure.fix("choose a zone_width in between")
        }
        _ => failure
            .fix("ask for less capacity, a smaller zone_width or fewer max_active_zones, or choose another profile"),
    }
}
