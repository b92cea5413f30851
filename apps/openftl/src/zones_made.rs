//! What zones or segments a drive is made of, for people and scripts.

use crate::zone_settings::ZoneSettings;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Geometry};
use openftl_zones::{Face, ZoneConfig};
use serde::Serialize;

/// What zones or segments a drive has.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum ZonesMade {
    Zones {
        zones: u32,
        zone_width: u32,
        zone_capacity_bytes: u64,
        max_open_zones: u32,
        max_active_zones: u32,
        zone_descriptor_extension: u32,
        /// Bytes of the random write area that a zone can be opened with; 0: there is none.
        zrwa: u64,
    },
    Segments {
        segments: u32,
        segment_width: u32,
        segment_bytes: u64,
        max_open_segments: u32,
    },
}

impl ZonesMade {
    pub fn of(settings: &ZoneSettings, geometry: &Geometry) -> ZonesMade {
        let ZoneConfig { face, width, limits, zones, extension_bytes, window_blocks } = settings.zoned(geometry);
        let count = zones.expect("it is computed");
        let bytes = u64::from(width * geometry.blocks_per_chunk) * BLOCK_BYTES as u64;
        match face {
            Face::Zones => ZonesMade::Zones {
                zones: count,
                zone_width: width,
                zone_capacity_bytes: bytes,
                max_open_zones: limits.max_open,
                max_active_zones: limits.max_active,
                zone_descriptor_extension: extension_bytes,
                zrwa: u64::from(window_blocks) * BLOCK_BYTES as u64,
            },
            Face::Segments => ZonesMade::Segments {
                segments: count,
                segment_width: width,
                segment_bytes: bytes,
                max_open_segments: limits.max_active,
            },
        }
    }

    /// For people.
    pub fn line(&self) -> String {
        match self {
            ZonesMade::Zones {
                zones,
                zone_width,
                zone_capacity_bytes,
                max_open_zones,
                max_active_zones,
                zone_descriptor_extension,
                zrwa,
            } => {
                let extension = match zone_descriptor_extension {
                    0 => String::new(),
                    bytes => format!("; each has a descriptor extension of {bytes} bytes"),
                };
                let window = match zrwa {
                    0 => String::new(),
                    bytes => format!("; a zone can be opened with a random write area of {}", ByteSize(*bytes)),
                };
                format!(
                    "{zones} zones of {}, each on {zone_width} dies; {max_active_zones} of them may be active and {max_open_zones} open{extension}{window}",
                    ByteSize(*zone_capacity_bytes)
                )
            }
            ZonesMade::Segments { segments, segment_width, segment_bytes, max_open_segments } => format!(
                "{segments} segments of {}, each on {segment_width} dies; {max_open_segments} of them may be written in part",
                ByteSize(*segment_bytes)
            ),
        }
    }
}
