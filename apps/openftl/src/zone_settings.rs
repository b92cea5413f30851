//! What zones or segments are to be like, as drive descriptions say it, and what they need of a device.

use crate::failure::Failure;
use crate::settings::BlockSettings;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, FrameForm, Geometry};
use openftl_drive::description::{FtlSection, Interface, RandomWriteArea};
use openftl_media::Profile;
use openftl_parts::{Config, OpenError};
use openftl_zones::sizing::{EXTENSION_FIELD, WINDOW_FIELD, chunks_per_pu, zones_holding};
use openftl_zones::{AskedLimits, Face, Limits, ZoneConfig};

/// Zones that can be open or closed at a time where nothing is said: as many as zoned drives for servers have.
const ACTIVE_DEFAULT: u32 = 14;

/// Blocks of a random write area where no more is said than that there is one: 1 MiB, as zoned drives for servers have.
const WINDOW_BLOCKS_DEFAULT: u32 = 256;

/// The same of segments: those of a log-structured file system, and its checkpoints.
const OPEN_SEGMENTS_DEFAULT: u32 = 8;

/// An FTL for zones, or for segments.
#[derive(Clone, PartialEq, Debug)]
pub struct ZoneSettings {
    /// Which of the two.
    pub face: Face,
    /// How hosts see them while the drive is open; `None`: as what they are.
    pub interface: Option<Face>,
    /// What they hold, at least.
    pub capacity: ByteSize,
    /// Parallel units of each; `None`: those of a group, and for segments all.
    pub width: Option<u32>,
    /// What of the limits was asked for.
    pub limits: AskedLimits,
    /// Bytes of the descriptor extension of each.
    pub extension_bytes: u32,
    /// The random write area of each.
    pub window: Option<RandomWriteArea>,
    /// The block FTL beside them, whose size follows from theirs.
    pub area: BlockSettings,
}

impl ZoneSettings {
    /// What a section says, and where it says nothing that of all.
    pub fn of(section: &FtlSection, all: &FtlSection, capacity: ByteSize, area: &BlockSettings) -> ZoneSettings {
        ZoneSettings {
            face: Face::Zones,
            interface: None,
            capacity,
            width: section.zone_width.or(all.zone_width),
            limits: AskedLimits {
                max_open: section.max_open_zones.or(all.max_open_zones),
                max_active: section.max_active_zones.or(all.max_active_zones),
            },
            window: section.zrwa.or(all.zrwa),
            extension_bytes: section.zone_descriptor_extension.or(all.zone_descriptor_extension).unwrap_or(0),
            area: BlockSettings {
                checkpoint_log_blocks: section.checkpoint_log_blocks.or(area.checkpoint_log_blocks),
                checkpoint_interval: section.checkpoint_interval.or(area.checkpoint_interval),
                // Hosts do not see the blocks of this area.
                map_pins: Vec::new(),
                map_block: None,
                ..area.clone()
            },
        }
    }

    /// The same of segments.
    pub fn of_segments(section: &FtlSection, capacity: ByteSize, area: &BlockSettings) -> ZoneSettings {
        let limit = section.max_open_segments;
        ZoneSettings {
            face: Face::Segments,
            interface: section.interface.map(|interface| match interface {
                Interface::Blocks => Face::Segments,
                Interface::Zones => Face::Zones,
            }),
            width: section.segment_width,
            limits: AskedLimits { max_open: limit, max_active: limit },
            ..ZoneSettings::of(section, section, capacity, area)
        }
    }

    /// What a new drive on a device of this shape is to be.
    pub fn zoned(&self, geometry: &Geometry) -> ZoneConfig {
        let (width, limit) = match self.face {
            Face::Zones => (geometry.pus_per_group, ACTIVE_DEFAULT),
            Face::Segments => (geometry.pus(), OPEN_SEGMENTS_DEFAULT),
        };
        let width = self.width.unwrap_or(width);
        let zones = zones_holding(geometry, width, self.capacity.0.div_ceil(BLOCK_BYTES as u64));
        let max_active = self.limits.max_active.or(self.limits.max_open).unwrap_or(limit.min(zones));
        let max_open = self.limits.max_open.unwrap_or(max_active);
        ZoneConfig {
            face: self.face,
            width,
            limits: Limits { max_open, max_active },
            zones: Some(zones),
            extension_bytes: self.extension_bytes,
            window_blocks: self.window_blocks(u64::from(width) * u64::from(geometry.blocks_per_chunk)),
        }
    }

    /// Blocks of the random write area of a zone that holds so many. What is no whole number of them is refused as what it is in blocks.
    fn window_blocks(&self, capacity: u64) -> u32 {
        match self.window {
            None | Some(RandomWriteArea::Has(false)) => 0,
            Some(RandomWriteArea::Has(true)) => WINDOW_BLOCKS_DEFAULT.min(1 << capacity.max(1).ilog2()),
            Some(RandomWriteArea::Bytes(ByteSize(bytes))) => {
                u32::try_from(bytes.div_ceil(BLOCK_BYTES as u64)).unwrap_or(u32::MAX).max(1)
            }
        }
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
        let zoned = self.zoned(geometry);
        if let Some(zones) = zoned.zones.filter(|zones| *zones < zoned.limits.max_active) {
            let noun = self.face.noun();
            let (field, asked) = (self.face.limit_field(), zoned.limits.max_active);
            return Err(Failure::bad_input(format_args!("{field} = {asked}: {zones} {noun} hold what is asked for"))
                .fix(format_args!("choose 1 to {zones}, or ask for more capacity")));
        }
        chunks_per_pu(geometry, &self.config(0), &zoned, profile.spare())
            .map_err(|error| zones_failure(self.face, error))
    }
}

/// Zones that cannot be.
fn zones_failure(face: Face, error: OpenError) -> Failure {
    let (width, limit) = (face.width_field(), face.limit_field());
    let failure = Failure::bad_input(&error);
    match error {
        OpenError::Tenant { text, .. } if text.starts_with(limit) => {
            failure.fix(format_args!("choose fewer {limit}, or a smaller {width}"))
        }
        OpenError::Tenant { text, .. } if text.starts_with(EXTENSION_FIELD) => {
            failure.fix(format_args!("choose such a {EXTENSION_FIELD}, or leave it away"))
        }
        OpenError::Tenant { text, .. } if text.starts_with(WINDOW_FIELD) => {
            failure.fix(format_args!("choose such a {WINDOW_FIELD}, true, or leave it away"))
        }
        OpenError::Limits(_) => failure.fix("choose a limit from 1 on, or leave it away"),
        OpenError::Tenant { text, .. } if text.starts_with(width) => {
            failure.fix(format_args!("choose a {width} in between"))
        }
        _ => failure
            .fix(format_args!("ask for less capacity, a smaller {width} or fewer {limit}, or choose another profile")),
    }
}
