//! The area of a zoned drive when that is opened: records are read, from the second copy what cannot be read in the first.

use crate::record::Record;
use crate::zones::Zones;
use openftl_blocks::area::AreaBlock;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{Clock, Frame};
use openftl_parts::map::Place;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::IoError;
use openftl_parts::words::Access;

/// Blocks of the area that are read at a time.
const READ_BLOCKS: u32 = 64;

pub(crate) fn lost(text: String) -> OpenError {
    OpenError::Tenant { text, is_lost: true }
}

pub(crate) fn unreadable(error: &IoError) -> OpenError {
    lost(format!("the area with the records of zones cannot be read: {error}"))
}

/// Reads blocks of the area: from the second copy what cannot be read in the first. Returns whether there was any such.
fn read_area(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    blocks: &[u64],
    clock: &mut dyn Clock,
) -> Result<(Vec<Frame>, bool), OpenError> {
    if let Ok(frames) = ftl.read_blocks(blocks, clock, zones)? {
        return Ok((frames, false));
    }
    let (mut frames, mut is_damaged) = (Vec::new(), false);
    for block in blocks {
        let read = match ftl.read_blocks(&[*block], clock, zones)? {
            Ok(read) => read,
            Err(error) => {
                is_damaged = true;
                let second = zones.layout.second_copy(*block);
                // What was never written there would be read as zeroes.
                if ftl.place(second) == Some(Place::Unmapped) {
                    return Err(unreadable(&error));
                }
                ftl.read_blocks(&[second], clock, zones)?.map_err(|_| unreadable(&error))?
            }
        };
        frames.extend(read);
    }
    Ok((frames, is_damaged))
}

/// Every record that was ever written, with its zone. After anything but a clean stop, and for a repair, adds what the second copies have to
/// become to `behind`.
pub(crate) fn read_records(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    access: Access,
    behind: &mut Vec<AreaBlock>,
    clock: &mut dyn Clock,
) -> Result<Vec<(u32, Record)>, OpenError> {
    let layout = zones.layout;
    let may_differ = !ftl.recovery_report().clean || access == Access::Repair;
    let mut records = Vec::new();
    let count = READ_BLOCKS.min(layout.record_blocks);
    for first in (0..layout.record_blocks).step_by(count as usize) {
        let blocks = first..(first + count).min(layout.record_blocks);
        let wanted: Vec<u64> =
            blocks.map(u64::from).filter(|block| ftl.place(*block) != Some(Place::Unmapped)).collect();
        let (frames, is_damaged) = read_area(ftl, zones, &wanted, clock)?;
        if is_damaged {
            // Both copies are written anew.
            zones.dirty.extend(wanted.iter().map(|block| *block as u32));
        }
        if may_differ {
            let second = wanted.iter().map(|block| layout.second_copy(*block));
            let first: Vec<(Frame, u64)> = frames.iter().copied().zip(second).collect();
            behind.extend(ftl.behind(&first, clock, zones)?);
        }
        for (block, frame) in wanted.iter().zip(&frames) {
            let zone = *block as u32 * layout.records_per_block;
            let bytes = ftl.flash.frames.bytes(*frame).chunks_exact(layout.record_bytes());
            for (zone, bytes) in (zone..layout.zones).zip(bytes) {
                let record = Record::read(bytes, &layout)
                    .ok_or_else(|| lost(format!("the record of zone {zone}, in block {block} of the area, is none")))?;
                records.push((zone, record));
            }
        }
        frames.into_iter().for_each(|frame| ftl.flash.frames.release(frame));
    }
    Ok(records)
}
