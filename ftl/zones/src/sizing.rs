//! How many zones there is room for on a device, and how large a device has to be for so many.

use crate::board::{ACTIVE_MAX, Limits};
use crate::face::Face;
use crate::layout::{EXTENSION_UNIT_BYTES, Layout, WINDOW_BLOCKS_MAX};
use crate::tenancy::note;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Geometry};
use openftl_parts::config::Config;
use openftl_parts::flash::plan::Plan;
use openftl_parts::flash::shares::shares;
use openftl_parts::open_error::OpenError;

/// What a zoned drive is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneConfig {
    /// How hosts see them. Kept on media.
    pub face: Face,
    /// Parallel units of a zone. Fixed when the drive is formatted.
    pub width: u32,
    /// How many zones may be written at a time; at a later opening no more active ones than it was formatted for.
    pub limits: Limits,
    /// Zones that the drive has; `None`: as many as there is room for. Fixed when it is formatted.
    pub zones: Option<u32>,
    /// Bytes of the zone descriptor extension of each; 0: they have none. A multiple of [`EXTENSION_UNIT_BYTES`], and at most
    /// [`Layout::extension_bytes_max`]: a zone has one record, which is written as a whole, so that extension and state change
    /// together. Fixed when the drive is formatted.
    pub extension_bytes: u32,
    /// Blocks of the window of each; 0: they have none. A power of two, and at most [`WINDOW_BLOCKS_MAX`] and what a zone holds. Fixed when
    /// the drive is formatted.
    pub window_blocks: u32,
}

/// What settings call the bytes of an extension.
pub const EXTENSION_FIELD: &str = "zone_descriptor_extension";

/// What settings call the bytes of a window.
pub const WINDOW_FIELD: &str = "zrwa";

/// Bits of the address of a block, at most.
const ADDRESS_BITS: u32 = 31;

fn refuse(text: String) -> OpenError {
    OpenError::Tenant { text, is_lost: false }
}

/// Whether zones can be like this on a device of this shape, whatever its size.
fn expect_possible(geometry: &Geometry, zoned: &ZoneConfig) -> Result<(), OpenError> {
    let ZoneConfig { face, width, limits, extension_bytes, window_blocks, .. } = *zoned;
    if width == 0 || width > geometry.pus() {
        return Err(refuse(format!(
            "{} = {width}: it is 1 to {} parallel units on this device",
            face.width_field(),
            geometry.pus()
        )));
    }
    face.expect_usable(limits)?;
    let most = WINDOW_BLOCKS_MAX.min(1 << (width * geometry.blocks_per_chunk).ilog2());
    if window_blocks > most
        || (window_blocks > 0 && !window_blocks.is_power_of_two())
        || face == Face::Segments && window_blocks > 0
    {
        return Err(refuse(match face {
            Face::Zones => format!(
                "{WINDOW_FIELD} = {}: it is a power of two, and {} is the most with {} = {width}",
                ByteSize(u64::from(window_blocks) * BLOCK_BYTES as u64),
                ByteSize(u64::from(most) * BLOCK_BYTES as u64),
                face.width_field()
            ),
            Face::Segments => format!("{WINDOW_FIELD}: segments are written in order"),
        }));
    }
    let wide = Layout::new(geometry, width, 1, 1).with_windows(window_blocks);
    if wide.records_per_block == 0 {
        let bytes = wide.record_bytes();
        return Err(refuse(format!(
            "{} = {width}: its record would have {bytes} bytes, and {BLOCK_BYTES} is the most",
            face.width_field()
        )));
    }
    let most = wide.extension_bytes_max();
    if extension_bytes > most || !extension_bytes.is_multiple_of(EXTENSION_UNIT_BYTES) {
        return Err(refuse(format!(
            "{EXTENSION_FIELD} = {extension_bytes}: it is a multiple of {EXTENSION_UNIT_BYTES} bytes, and {most} is the most with {} = {width}",
            face.width_field()
        )));
    }
    if limits.max_active > ACTIVE_MAX {
        return Err(refuse(format!("{} = {}: {ACTIVE_MAX} is the most", face.limit_field(), limits.max_active)));
    }
    Ok(())
}

/// How many zones of `width` parallel units there is room for on a device with so many good chunks in each group.
///
/// # Errors
/// If there is none, or not even room for the drive's own.
pub(crate) fn zones_for(
    geometry: &Geometry,
    good: &[u32],
    config: &Config,
    zoned: &ZoneConfig,
) -> Result<(Layout, Config), OpenError> {
    expect_possible(geometry, zoned)?;
    let ZoneConfig { face, width, limits, zones, extension_bytes, window_blocks } = *zoned;
    let noun = face.noun();
    // The area grows with the zones, and takes their chunks.
    let mut count = zones.unwrap_or(u32::MAX).min(geometry.chunks() as u32 / width);
    loop {
        let layout = Layout::new(geometry, width, count, limits.max_active)
            .with_extension(extension_bytes)
            .with_windows(window_blocks);
        let config =
            config.clone().with_two_copies().beside(note(&layout, limits.max_open, zoned.face), layout.area_blocks());
        let plan = Plan::new(geometry, &config)?;
        let share = shares(good, &plan).iter().sum::<u32>();
        // Columns that move take another chunk before they give theirs back: those of active zones when the host writes on, those
        // of zones that end one after the other.
        let kept = width * (limits.max_active + 1);
        let room = share.saturating_sub(kept) / width;
        if room >= count && count > 0 && zones.is_none_or(|zones| zones == count) {
            let open = width * (limits.max_active + 1);
            if plan.open_tenant_chunks < open {
                let limit = plan.open_tenant_chunks / width;
                return Err(refuse(format!(
                    "{} = {}: the device lets {noun} have {} chunks open, so {} {noun} of {width} can be active",
                    face.limit_field(),
                    limits.max_active,
                    plan.open_tenant_chunks,
                    limit.saturating_sub(1)
                )));
            }
            return Ok((layout, config));
        }
        if let (Some(zones), true) = (zones, count > 0) {
            let chunks = plan.chunks() + u64::from(kept);
            return Err(refuse(format!(
                "{zones} {noun} of {width} chunks do not fit: the device has {} good chunks, and {chunks} are for the drive itself; \
                 there is room for {room}",
                good.iter().sum::<u32>()
            )));
        }
        if room == 0 || count == 0 {
            return Err(refuse(format!(
                "there is no room for {noun} of {width} chunks: the device has {} good ones, {} are for the drive itself, and {kept} for \
                 {noun} that move; take a larger device, a smaller {} or fewer {}",
                good.iter().sum::<u32>(),
                plan.chunks(),
                face.width_field(),
                face.limit_field()
            )));
        }
        count = room.min(count - 1);
    }
}

/// How many zones hold `blocks` blocks.
#[must_use]
pub fn zones_holding(geometry: &Geometry, width: u32, blocks: u64) -> u32 {
    let capacity = u64::from(width.max(1)) * u64::from(geometry.blocks_per_chunk);
    u32::try_from(blocks.div_ceil(capacity).max(1)).unwrap_or(u32::MAX)
}

/// Bytes of memory for where zones of `width` parallel units are that hold `blocks` blocks, on a device of this shape that is large
/// enough.
#[must_use]
pub fn map_bytes_for(geometry: &Geometry, width: u32, blocks: u64) -> u64 {
    let zones = zones_holding(geometry, width, blocks);
    let chunks = (u64::from(zones) * u64::from(width)).div_ceil(geometry.pus().into());
    // A quarter more for what the drive has for itself, for chunks that are bad, and for spare ones.
    let chunks_per_pu = u32::try_from(chunks + chunks / 4 + 1).unwrap_or(u32::MAX);
    Layout::new(&Geometry { chunks_per_pu, ..*geometry }, width, zones, 1).map_bytes()
}

/// Chunks per parallel unit that a device of this shape needs for the zones of `zoned`, with `spare` of the whole added for chunks
/// that are bad or go bad.
///
/// # Errors
/// If no number of chunks would do, or `zoned` does not say how many zones.
pub fn chunks_per_pu(geometry: &Geometry, config: &Config, zoned: &ZoneConfig, spare: Share) -> Result<u32, OpenError> {
    let Some(zones) = zoned.zones else { return Err(refuse("the number of zones is missing".to_owned())) };
    expect_possible(geometry, zoned)?;
    let fits = |chunks: u32| {
        let scaled = Geometry { chunks_per_pu: chunks, ..*geometry };
        let good = vec![chunks * geometry.pus_per_group; geometry.groups as usize];
        zones_for(&scaled, &good, config, zoned).map(|_| ())
    };
    let one = Geometry { chunks_per_pu: 1, ..*geometry }.format().bits();
    let most = 1 << ADDRESS_BITS.saturating_sub(one).min(31);
    let chunks = u64::from(zones) * u64::from(zoned.width);
    let fewest = u32::try_from(chunks.div_ceil(geometry.pus().into())).ok().filter(|fewest| *fewest <= most);
    let Some(mut enough) = fewest else {
        let noun = zoned.face.noun();
        return Err(refuse(format!("{zones} {noun} of {} chunks: no device of this kind has so many", zoned.width)));
    };
    // From below: what a drive keeps of its chunks grows with them.
    let mut too_few = enough - 1;
    while let Err(error) = fits(enough) {
        if enough == most {
            return Err(error);
        }
        (too_few, enough) = (enough, enough.saturating_mul(2).min(most));
    }
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if fits(middle).is_ok() { enough = middle } else { too_few = middle }
    }
    Ok((enough + spare.of(enough.into()) as u32).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_as_large_as_its_zones_need_and_no_larger() {
        let geometry = Geometry::tiny();
        let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
        for (width, zones) in [(1, 1), (1, 40), (2, 7), (4, 30)] {
            let limits = Limits { max_open: 2, max_active: 3 };
            let zoned = ZoneConfig {
                face: Face::Zones,
                width,
                limits,
                zones: Some(zones),
                extension_bytes: 0,
                window_blocks: 0,
            };
            let chunks = chunks_per_pu(&geometry, &config, &zoned, Share::percent(0)).unwrap();
            let fits = |chunks: u32| {
                let scaled = Geometry { chunks_per_pu: chunks, ..geometry };
                zones_for(&scaled, &vec![chunks * geometry.pus_per_group; geometry.groups as usize], &config, &zoned)
            };
            assert_eq!(fits(chunks).unwrap().0.zones, zones);
            assert!(fits(chunks - 1).is_err(), "{width} × {zones}");
        }
    }

    #[test]
    fn zones_that_no_device_can_have_are_refused_with_the_field() {
        let geometry = Geometry::tiny();
        let check = |width, max_open, max_active, zones, expected: &str| {
            let limits = Limits { max_open, max_active };
            let zoned = ZoneConfig {
                face: Face::Zones,
                width,
                limits,
                zones: Some(zones),
                extension_bytes: 0,
                window_blocks: 0,
            };
            let refused = chunks_per_pu(&geometry, &Config::default(), &zoned, Share::percent(1)).unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
        };
        check(0, 1, 1, 1, "zone_width = 0");
        check(99, 1, 1, 1, "zone_width = 99");
        check(1, 0, 1, 1, "max_open_zones = 0");
        check(1, 3, 2, 1, "max_open_zones = 3, max_active_zones = 2");
        check(1, 1, 1025, 1, "max_active_zones = 1025");
        check(1, 1, 1, u32::MAX, "no device of this kind has so many");
    }
}
