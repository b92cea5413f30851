//! What a zone has that the medium does not have, or not for good, is brought into memory when a drive is opened.

use crate::area::{lost, unreadable};
use crate::window::Window;
use crate::writer::{UnitState, Writer, ZoneUnit};
use crate::writing::oob;
use crate::zones::Zones;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_blocks::reading::BlockPlace;
use openftl_core::{ChunkId, Clock, Frame, Ppa};
use openftl_parts::map::Place;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{BlockTarget, IoError, Request};

/// A column as the device has it.
pub(crate) struct FoundColumn {
    pub(crate) chunk: ChunkId,
    pub(crate) is_open: bool,
    pub(crate) write_pointer: u32,
    /// Blocks that are good.
    pub(crate) good: u32,
    /// Those of them that the medium has for good and can be read as it is. The others are in `rescued`, or in the tail.
    pub(crate) readable: u32,
    pub(crate) rescued: Vec<Frame>,
}

impl FoundColumn {
    /// The frame of block `at`, if it was read while that was possible.
    pub(crate) fn rescued(&self, at: u32) -> Option<Frame> {
        self.rescued.get(at.checked_sub(self.good - self.rescued.len() as u32)? as usize).copied()
    }
}

/// Brings units into memory that the medium does not have, or not for good.
pub(crate) fn load_units(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    writer: &mut Writer,
    columns: &[Option<FoundColumn>],
    needed: &[u32],
    written: u32,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let layout = zones.layout;
    let unit_blocks = layout.unit_blocks;
    writer.begin_with(needed.first().map_or(written / unit_blocks, |block| block / unit_blocks));
    if needed.is_empty() && written.is_multiple_of(unit_blocks) {
        return Ok(());
    }
    for unit in writer.first_unit..written.div_ceil(unit_blocks) {
        let (column, first) = layout.place_of_unit(unit);
        let blocks = (written - unit * unit_blocks).min(unit_blocks);
        let of_unit = unit * unit_blocks..unit * unit_blocks + blocks;
        let begin = needed.partition_point(|block| *block < of_unit.start);
        let end = needed.partition_point(|block| *block < of_unit.end);
        let loaded = &needed[begin..end];
        let mut frames = Vec::new();
        if !ftl.flash.frames.acquire_many(zones.payload, loaded.len(), &mut frames) {
            return Err(lost(format!(
                "zone {} has more in its tail than the drive has frames for: open it with as many active zones as before",
                writer.zone
            )));
        }
        let submitted = writer.columns[column as usize].new.map_or(0, |new| new.submitted);
        let state = match blocks == unit_blocks {
            _ if loaded.is_empty() && blocks == unit_blocks => UnitState::Readable,
            true if submitted >= first + unit_blocks => UnitState::Kept,
            true => UnitState::Waiting,
            false => UnitState::Filling,
        };
        load_blocks(ftl, zones, writer, columns, loaded, &frames, clock)?;
        // What is on media of a unit that is not: its first blocks.
        let skip = blocks - loaded.len() as u32;
        writer.may_keep |= state == UnitState::Kept;
        writer.units.push_back(ZoneUnit { state, skip, frames });
    }
    writer.forget_readable(&mut zones.spare);
    Ok(())
}

/// Brings what the area has of a window into memory.
pub(crate) fn load_window(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    writer: &mut Writer,
    columns: &[Option<FoundColumn>],
    in_window: &[u32],
    written: u32,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let mut frames = Vec::new();
    if !ftl.flash.frames.acquire_many(zones.payload, in_window.len(), &mut frames) {
        return Err(lost(format!(
            "zone {} has more in its random write area than the drive has frames for: open it with as many open zones as before",
            writer.zone
        )));
    }
    load_blocks(ftl, zones, writer, columns, in_window, &frames, clock)?;
    // The medium may have had a newer version than the tail.
    let layout = zones.layout;
    if let Some(saved) = &writer.saved {
        writer.stale.extend((saved.end..written).filter(|block| saved.has(*block, &layout)));
    }
    if !in_window.is_empty() {
        let mut window = Window::new(written, layout.window_blocks);
        for (block, frame) in in_window.iter().zip(frames) {
            let before = window.put(*block, frame);
            debug_assert!(before.is_none(), "each block comes once");
        }
        window.all_stale();
        writer.window = Some(window);
    }
    Ok(())
}

/// Where a block of a zone is read that is brought into memory.
#[derive(Clone, Copy)]
enum Source {
    Column(Ppa),
    /// A block of the area.
    Area(u64),
}

impl Source {
    /// Begins to read `block` of the zone with this number.
    fn read(
        self,
        ftl: &mut BlockFtl,
        number: u64,
        block: u32,
        frame: Frame,
        clock: &mut dyn Clock,
    ) -> Result<(), IoError> {
        match self {
            Source::Column(ppa) => {
                ftl.read_elsewhere(block.into(), number, block, &[frame], |_, _| BlockPlace::Media(ppa));
                Ok(())
            }
            Source::Area(first) => ftl.submit(clock.now(), first, Request::Read { first, frames: &[frame] }),
        }
    }
}

fn load_blocks(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    writer: &Writer,
    columns: &[Option<FoundColumn>],
    blocks: &[u32],
    frames: &[Frame],
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let layout = zones.layout;
    let tail = writer.saved.as_ref();
    let mut sources = Vec::new();
    for (block, frame) in blocks.iter().zip(frames) {
        let (column, at) = layout.place(*block);
        let found = columns[column as usize].as_ref();
        if let Some(rescued) = found.and_then(|found| found.rescued(at)) {
            ftl.flash.frames.copy(rescued, *frame);
            continue;
        }
        let source = match (found.filter(|found| found.readable > at), tail) {
            (Some(found), _) => Source::Column(ftl.flash.format.ppa(found.chunk, at)),
            (None, Some(saved)) if saved.has(*block, &layout) => Source::Area(layout.tail_place(saved.tail, *block)),
            _ => return Err(lost(format!("block {block} of zone {} is nowhere", writer.zone))),
        };
        sources.push((*block, source, *frame));
    }
    for (block, source, frame) in &sources {
        source.read(ftl, writer.number, *block, *frame, clock).map_err(|error| unreadable(&error))?;
    }
    if ftl.wait_for_reads(clock, zones)?.is_err() {
        // One by one: what the first copy of the area has lost is in the second.
        for (block, source, frame) in sources {
            let mut read_one = |ftl: &mut BlockFtl, zones: &mut Zones, source: Source| match source.read(
                ftl,
                writer.number,
                block,
                frame,
                clock,
            ) {
                Ok(()) => ftl.wait_for_reads(clock, zones),
                Err(error) => Ok(Err(error)),
            };
            match (read_one(ftl, zones, source)?, source) {
                (Ok(()), _) => {}
                (Err(error), Source::Area(first)) => {
                    let second = layout.second_copy(first);
                    let is_written = ftl.place(second) != Some(Place::Unmapped);
                    let read = if is_written { read_one(ftl, zones, Source::Area(second))? } else { Err(error) };
                    read.map_err(|error| unreadable(&error))?;
                }
                (Err(error), Source::Column(_)) => return Err(unreadable(&error)),
            }
        }
    }
    for (block, frame) in blocks.iter().zip(frames) {
        oob(*block, writer.number).seal(&mut ftl.flash.frames, *frame);
    }
    Ok(())
}
