//! What is found of zones when a drive is opened.
//!
//! A record says which chunks a zone has, and is older than the zone. Zones that are full are as their record says. Of one that was being
//! written each column has what its chunk has, and beyond that what the tail has; the zone ends where the first block is missing. After a
//! clean stop the device says how much a chunk has. After anything else its end is looked for by reading, because the last unit may be there in
//! part or for one more read, and padding may follow; what could be read there is kept in memory, and saved before the drive is open.
//!
//! ```text
//!   column 0   [ unit 0 ][ unit 3 ][ un│                     tail   [ unit 4 · unit 5 · un│
//!   column 1   [ unit 1 ][ unit 4 ]                          the zone: units 0 to 4, where column 2 ends, and then
//!   column 2   [ unit 2 ]                                    units 4 to 6 as far as the tail has them
//! ```
//!
//! A column that has something behind what counts moves before it is written again (`writer.rs`). A zone that was open comes back closed.

use crate::area::{lost, read_records};
use crate::layout::Layout;
use crate::loading::{FoundColumn, load_units, load_window};
use crate::record::{NamedChunk, Record, RecordState, SavedTail};
use crate::state::ZoneState;
use crate::writer::{NewChunk, OldChunk, Stage, UnitState, Writer};
use crate::writing::UNITS_UNDER_WAY_MAX;
use crate::zones::Zones;
use openftl_blocks::area::AreaBlock;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_blocks::reading::BlockPlace;
use openftl_core::{ChunkId, Clock, Frame};
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::shares::FoundChunk;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{Done, IoError};
use openftl_parts::words::Access;

/// Blocks of a column that are read at a time.
const READ_BLOCKS: u32 = 64;

/// Takes over every zone that a record describes. Adds second copies of records that are behind the first to `behind`.
pub(crate) fn adopt(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    access: Access,
    behind: &mut Vec<AreaBlock>,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    for (zone, record) in read_records(ftl, zones, access, behind, clock)? {
        zones.next_number = zones.next_number.max(record.number + 1);
        zones.numbers[zone as usize] = record.number;
        match record.state {
            RecordState::Empty => {}
            RecordState::Offline => zones.board.put(zone, ZoneState::Offline, 0),
            RecordState::Full if record.saved.is_none() => adopt_whole(ftl, zones, zone, &record)?,
            _ => adopt_unfinished(ftl, zones, zone, &record, access, clock)?,
        }
        if let Some(extension) = &record.extension {
            zones.restore_extension(zone, extension);
        }
    }
    zones.is_stirred = true;
    keep_what_was_named(ftl, zones, clock)
}

/// While what the newest records say is in doubt, chunks that those before them name may be needed again.
fn keep_what_was_named(ftl: &mut BlockFtl, zones: &mut Zones, clock: &mut dyn Clock) -> Result<(), OpenError> {
    let layout = zones.layout;
    let is_record = |block: u32| layout.in_copy(block) < layout.record_blocks;
    let Some(left) = ftl.read_left(is_record, clock, zones)? else { return Ok(()) };
    let mut named = Vec::new();
    for (block, frame) in left {
        let first = layout.in_copy(block) * layout.records_per_block;
        let bytes = ftl.flash.frames.bytes(frame).chunks_exact(layout.record_bytes());
        let records = (first..layout.zones).zip(bytes).filter_map(|(_, bytes)| Record::read(bytes, &layout));
        named.extend(records.flat_map(|record| record.chunks).flatten().map(|named| named.chunk));
        ftl.flash.frames.release(frame);
    }
    ftl.flash.resets.keep_of_tenant(named);
    Ok(())
}

/// The chunk of a column, which is the zone's from now on. `None`: the medium has lost it, or never had anything of it.
fn take_found(
    flash: &mut Flash,
    zones: &mut Zones,
    zone: u32,
    chunk: ChunkId,
) -> Result<Option<FoundChunk>, OpenError> {
    if !flash.geometry.has_chunk(chunk) {
        return Err(lost(format!("the record of zone {zone} names a chunk that the device does not have: {chunk:?}")));
    }
    if let Some(found) = zones.coming_and_going.take(flash, chunk) {
        return Ok(Some(found));
    }
    match flash.chunks.usage(chunk) {
        ChunkUse::Retired => Ok(None),
        _ => {
            let address = flash.format.unpack_chunk(chunk);
            Err(lost(format!("the record of zone {zone} names the chunk of {address}, which is of something else")))
        }
    }
}

/// A zone of which everything is on media.
fn adopt_whole(ftl: &mut BlockFtl, zones: &mut Zones, zone: u32, record: &Record) -> Result<(), OpenError> {
    let mut is_lost = false;
    for (column, named) in (0..).zip(&record.chunks) {
        let Some(NamedChunk { chunk, .. }) = *named else {
            is_lost |= zones.layout.blocks_in_column(column, record.written) > 0;
            continue;
        };
        match take_found(&mut ftl.flash, zones, zone, chunk)? {
            Some(FoundChunk { write_pointer, is_open: true }) => {
                let open = ftl.flash.units.open(chunk, write_pointer);
                zones.half_full.insert(chunk, open);
            }
            Some(_) => {}
            None => is_lost = true,
        }
        zones.set_chunk(zone, column, Some(chunk));
    }
    zones.board.put(zone, if is_lost { ZoneState::ReadOnly } else { ZoneState::Full }, record.written);
    Ok(())
}

/// A zone that was being written.
fn adopt_unfinished(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    zone: u32,
    record: &Record,
    access: Access,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let (layout, geometry) = (zones.layout, ftl.flash.geometry);
    let is_clean = ftl.recovery_report().clean;
    let mut columns: Vec<Option<FoundColumn>> = Vec::new();
    for (at, named) in (0..).zip(&record.chunks) {
        let found = match named {
            Some(named) => take_found(&mut ftl.flash, zones, zone, named.chunk)?.map(|found| (*named, found)),
            None => None,
        };
        columns.push(found.map(|(NamedChunk { chunk, good }, FoundChunk { write_pointer, is_open })| {
            let end = if is_clean { left_in_column(&layout, record, at, write_pointer) } else { write_pointer };
            let good = good.unwrap_or(end).min(write_pointer);
            FoundColumn { chunk, is_open, write_pointer, good, readable: good, rescued: Vec::new() }
        }));
    }
    // Unless the drive was stopped, the last unit may be there in part, or for a while, and a recovery may have padded what was open.
    if !is_clean {
        let doubtful = |(at, named): (usize, &Option<NamedChunk>)| {
            named.is_some_and(|named| named.good.is_none() && columns[at].is_some()).then_some(at)
        };
        let doubtful: Vec<usize> = record.chunks.iter().enumerate().filter_map(doubtful).collect();
        let known: Vec<u32> = (0..layout.width).map(|at| known_in_column(&layout, record, at)).collect();
        if zones.write_pointers_tell(&ftl.flash) {
            find_padding(ftl, zones, record, &mut columns, (&doubtful, &known), clock)?;
        } else {
            verify_ends(ftl, zones, record.number, &mut columns, (&doubtful, &known), clock)?;
        }
    }
    // What the medium has lost is an error where it is read, and the rest of the zone is there.
    let longest = columns.iter().flatten().map(|found| found.write_pointer).max().unwrap_or(0);
    let mut is_lost = false;
    for (column, named) in columns.iter_mut().zip(&record.chunks) {
        if let (None, Some(NamedChunk { chunk, .. })) = (&column, *named) {
            is_lost = true;
            let (write_pointer, good, readable) = (longest, longest, longest);
            let rescued = Vec::new();
            *column = Some(FoundColumn { chunk, is_open: false, write_pointer, good, readable, rescued });
        }
    }
    let tail = record.saved.as_ref();
    // Also of a zone that is read-only: what it was said to have may have been in memory alone. What was not durable of one stays away, or
    // a zone that nobody writes to might grow.
    let most = if record.state == RecordState::ReadOnly { record.written } else { layout.capacity };
    let written = end_of(zones, &columns, tail).min(most);
    let mut writer = Writer::new(zone, record.number, layout.width);
    // What was only found now is durable with the first flush, unless it was before: then the record may be behind.
    let is_durable = is_clean || zones.write_pointers_tell(&ftl.flash);
    writer.durable = if is_durable { written } else { record.written.min(written) };
    writer.recorded = record.written;
    writer.saved = record.saved.clone();
    if let Some(SavedTail { tail, .. }) = tail {
        let whose = zones.tail_of.get_mut(*tail as usize);
        *whose.ok_or_else(|| lost(format!("the record of zone {zone} names tail {tail}, which is none")))? = zone;
    }
    let in_window: Vec<u32> = match tail.filter(|_| record.has_window) {
        Some(tail) => {
            let end = (written + layout.window_blocks).min(layout.capacity);
            (written..end).filter(|block| tail.has(*block, &layout)).collect()
        }
        None => Vec::new(),
    };
    let unreadable = |found: &FoundColumn| if is_clean && found.is_open { geometry.mw_cunits } else { 0 };
    for (at, found) in (0..).zip(&mut columns) {
        let Some(found) = found else { continue };
        let owed = layout.blocks_in_column(at, written);
        found.readable = found.readable.min(owed).min(found.write_pointer.saturating_sub(unreadable(found)));
    }
    is_lost = is_lost || !is_begun_unit_there(ftl, zones, record.number, &columns, clock)?;
    // Blocks that need frames: those of the tail that are not on media, and, of columns that move, those of a unit that began.
    let mut needed: Vec<u32> = Vec::new();
    for (at, column) in (0..).zip(&mut columns) {
        let owed = layout.blocks_in_column(at, written);
        let Some(found) = column else {
            needed.extend((0..owed).map(|block| layout.block_at(at, block)));
            continue;
        };
        let (good, behind) = (found.good.min(owed), found.write_pointer);
        let unreadable = unreadable(found);
        let is_in_tail =
            (found.readable..owed).all(|block| tail.is_some_and(|tail| tail.has(layout.block_at(at, block), &layout)));
        // What is there and cannot be read yet is in the tail, too: it goes on where it is.
        let is_kept = is_clean && found.good == behind && behind <= owed && is_in_tail;
        let open = found.is_open.then(|| ftl.flash.units.open(found.chunk, behind));
        let is_padded = unreadable > 0 && !is_kept && found.readable < good && access != Access::Inspect;
        if let Some(open) = open.filter(|_| is_padded) {
            let room = ftl.flash.units.room(open);
            ftl.flash.pad_by(open, geometry.mw_cunits.next_multiple_of(geometry.ws_min).min(room));
            found.readable = good;
        }
        let goes_on = behind <= owed && !is_padded && (is_kept || found.readable == behind);
        let has_room = found.is_open || behind == geometry.blocks_per_chunk;
        let adopted = &mut writer.columns[at as usize];
        if goes_on && has_room {
            let (chunk, readable) = (found.chunk, found.readable);
            adopted.stage = Stage::Ready;
            adopted.new = Some(NewChunk { chunk, open, submitted: behind, programmed: behind, readable });
        } else {
            let blocks =
                if is_lost { found.readable } else { found.readable / layout.unit_blocks * layout.unit_blocks };
            adopted.old = Some(OldChunk { chunk: found.chunk, open, blocks, good: found.readable });
        }
        needed.extend((adopted.good_blocks()..owed).map(|block| layout.block_at(at, block)));
    }
    ftl.hand_over();
    ftl.run(clock, zones, |ftl| ftl.flash.units.under_way() == 0)?;
    needed.sort_unstable();
    load_units(ftl, zones, &mut writer, &columns, &needed, written, clock)?;
    load_window(ftl, zones, &mut writer, &columns, &in_window, written, clock)?;
    columns.into_iter().flatten().flat_map(|found| found.rescued).for_each(|frame| ftl.flash.frames.release(frame));
    let state = match record.state {
        _ if is_lost => ZoneState::ReadOnly,
        RecordState::ReadOnly => ZoneState::ReadOnly,
        RecordState::Full => ZoneState::Full,
        _ if written == layout.capacity => ZoneState::Full,
        _ if written == 0 && record.extension.is_none() && in_window.is_empty() => ZoneState::Empty,
        _ => ZoneState::Closed,
    };
    let is_unwritten = written == 0 && in_window.is_empty() && matches!(state, ZoneState::Empty | ZoneState::Closed);
    writer.is_ending = state == ZoneState::Full;
    if let Some(last) = writer.units.back_mut()
        && writer.is_ending
        && last.state == UnitState::Filling
    {
        last.state = UnitState::Waiting;
    }
    zones.board.put(zone, state, written);
    if record.has_window && matches!(state, ZoneState::Closed | ZoneState::ReadOnly) && !is_unwritten {
        zones.board.restore_window(zone);
    }
    zones.mark_dirty(zone);
    // A chunk of which nothing counts is no chunk of the zone.
    for column in &mut writer.columns {
        if let Some(OldChunk { chunk, open, .. }) = column.old.take_if(|old| old.blocks == 0) {
            zones.doom(zone, chunk, open);
        }
    }
    if is_unwritten {
        zones.leave_tail(zone, writer.saved);
        for NewChunk { chunk, open, .. } in writer.columns.iter().filter_map(|column| column.new) {
            zones.doom(zone, chunk, open);
        }
    } else {
        zones.add_writer(writer);
    }
    Ok(())
}

/// Blocks of a zone in a column of a drive that was stopped. The record says where the zone ends. Where the write pointer is beyond that, a
/// recovery that was cut has written padding, and the tail has what the medium held back; so it may be in a zone that is read only, whose
/// last units were never written.
fn left_in_column(layout: &Layout, record: &Record, column: u32, write_pointer: u32) -> u32 {
    let whole = record.written / layout.unit_blocks * layout.unit_blocks;
    let is_padded = write_pointer > layout.blocks_in_column(column, whole) || record.state == RecordState::ReadOnly;
    let Some(tail) = record.saved.as_ref().filter(|_| is_padded) else {
        return write_pointer.min(layout.blocks_in_column(column, whole));
    };
    let mut units = (0..write_pointer).step_by(layout.unit_blocks as usize);
    let first_saved = units.find(|at| tail.has(layout.block_at(column, *at), layout));
    first_saved.unwrap_or(write_pointer).min(layout.blocks_in_column(column, whole))
}

/// Blocks of a zone at the beginning of a column that are on media for good, as its record says: one of them that cannot be read is lost, and
/// the zone goes on behind it.
fn known_in_column(layout: &Layout, record: &Record, column: u32) -> u32 {
    let durable = layout.blocks_in_column(column, record.written);
    let in_tail =
        |at: &u32| record.saved.as_ref().is_some_and(|tail| tail.has_committed(layout.block_at(column, *at), layout));
    (0..durable).step_by(layout.unit_blocks as usize).find(in_tail).unwrap_or(durable)
}

/// Finds out where in each of the `doubtful` columns the blocks of the zone end, which have those that are `known`: padding is behind them,
/// and where a power cut may have damaged pages, what it has damaged.
fn verify_ends(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    number: u64,
    columns: &mut [Option<FoundColumn>],
    (doubtful, known): (&[usize], &[u32]),
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let found_of = |columns: &[Option<FoundColumn>], at: usize| {
        let found = columns[at].as_ref().expect("only what was found is doubtful");
        (found.chunk, found.write_pointer)
    };
    let range = |at: &usize| {
        let end = found_of(columns, *at).1;
        (*at, known[*at].min(end), end)
    };
    let mut ranges: Vec<(usize, u32, u32)> = doubtful.iter().map(range).collect();
    // All columns at once, half of what is left of each at a time.
    while ranges.iter().any(|(_, good, end)| good < end) {
        let open = ranges.iter().filter(|(_, good, end)| good < end);
        let asked: Vec<(usize, u32)> = open.map(|(at, good, end)| (*at, good + (end - good) / 2)).collect();
        let chunks = asked.iter().map(|(at, block)| (*at, found_of(columns, *at).0, *block));
        let verified = verify(ftl, zones, number, &chunks.collect::<Vec<_>>(), clock)?;
        for ((at, block), frame) in asked.into_iter().zip(verified) {
            let (_, good, end) = ranges.iter_mut().find(|range| range.0 == at).expect("it was asked for it");
            match frame {
                Ok(frame) => {
                    ftl.flash.frames.release(frame);
                    *good = block + 1;
                }
                Err(_) => *end = block,
            }
        }
    }
    // The unit that was being written, and what its pages may have damaged. Before those a unit may be missing that failed while others
    // were on their way behind it: of each program one block tells.
    let geometry = ftl.flash.geometry;
    let damaged = if geometry.volatile_cache { geometry.mw_cunits } else { 0 } + zones.layout.unit_blocks;
    let behind = UNITS_UNDER_WAY_MAX * zones.layout.unit_blocks;
    for (at, end, _) in ranges {
        let first = end.saturating_sub(damaged).max(known[at]);
        let chunk = found_of(columns, at).0;
        let programs =
            (first.saturating_sub(behind).max(known[at])..first).filter(|block| block.is_multiple_of(geometry.ws_min));
        let asked: Vec<_> = programs.chain(first..end).map(|block| (at, chunk, block)).collect();
        let mut rescued = Vec::new();
        let mut good = None;
        for (frame, (.., block)) in verify(ftl, zones, number, &asked, clock)?.into_iter().zip(&asked) {
            match frame {
                Ok(frame) if good.is_none() && *block >= first => rescued.push(frame),
                Ok(frame) => ftl.flash.frames.release(frame),
                Err(_) => _ = good.get_or_insert(*block),
            }
        }
        let good = good.unwrap_or(end);
        let found = columns[at].as_mut().expect("only what was found is doubtful");
        (found.good, found.readable, found.rescued) = (good, first.min(good), rescued);
    }
    Ok(())
}

/// Whether all blocks can be read of units that began, in columns that may have to move: there each unit is written as a whole. A zone of which one
/// is lost stays where it is.
fn is_begun_unit_there(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    number: u64,
    columns: &[Option<FoundColumn>],
    clock: &mut dyn Clock,
) -> Result<bool, OpenError> {
    let mut asked = Vec::new();
    for (at, found) in columns.iter().enumerate() {
        let Some(found) = found.as_ref().filter(|found| found.readable < found.write_pointer || !found.is_open) else {
            continue;
        };
        let begun = found.readable / zones.layout.unit_blocks * zones.layout.unit_blocks..found.readable;
        asked.extend(begun.filter(|block| found.rescued(*block).is_none()).map(|block| (at, found.chunk, block)));
    }
    let frames = verify(ftl, zones, number, &asked, clock)?;
    let are_all_there = frames.iter().all(Result::is_ok);
    frames.into_iter().flatten().for_each(|frame| ftl.flash.frames.release(frame));
    Ok(are_all_there)
}

/// What [`verify_ends`] does where write pointers tell what is durable, and the record may be behind: a column ends where padding begins, or where
/// the tail has what the medium lacks. Any other block that is missing is an error where it is read, and the zone goes on behind it: it was durable,
/// or is of a program that failed under a power cut, of which the host never heard that it was. The last unit is read once, and is kept for another chunk
/// if all of it is there: the power may have gone while it was being written, and then it can be read only for a while. A column ends before it if nothing
/// of it is there.
fn find_padding(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    record: &Record,
    columns: &mut [Option<FoundColumn>],
    (doubtful, known): (&[usize], &[u32]),
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let layout = zones.layout;
    for &at in doubtful {
        let found = columns[at].as_ref().expect("only what was found is doubtful");
        let (chunk, end) = (found.chunk, found.write_pointer);
        let in_tail = |block: u32| {
            let of_zone = layout.block_at(at as u32, block);
            record.saved.as_ref().is_some_and(|tail| tail.has_committed(of_zone, &layout))
        };
        let (mut good, mut is_over) = (known[at].min(end), false);
        let last = (end.saturating_sub(1) / layout.unit_blocks * layout.unit_blocks).max(good);
        let mut rescued = Vec::new();
        while good < end && !is_over {
            let stop = if good < last { last.min(good + READ_BLOCKS) } else { end };
            let asked: Vec<_> = (good..stop).map(|block| (at, chunk, block)).collect();
            let reads = verify(ftl, zones, record.number, &asked, clock)?;
            let is_last = good >= last;
            if is_last && reads.iter().all(Result::is_ok) {
                rescued = reads.into_iter().flatten().collect();
                good = end;
                break;
            }
            is_over = is_last && reads.iter().all(Result::is_err);
            for read in reads {
                is_over = is_over || read == Err(Missing::Padding) || read.is_err() && in_tail(good);
                good += u32::from(!is_over);
                if let Ok(frame) = read {
                    ftl.flash.frames.release(frame);
                }
            }
        }
        let found = columns[at].as_mut().expect("as above");
        (found.good, found.readable) = (good, good - rescued.len() as u32);
        found.rescued = rescued;
    }
    Ok(())
}

/// Why a block of a column is not what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    /// It is padding.
    Padding,
    /// The medium has lost it, or has something else.
    Lost,
}

/// Reads blocks of columns: each by itself, with what is in it if that is what it should be, or why it is not.
fn verify(
    ftl: &mut BlockFtl,
    zones: &mut Zones,
    number: u64,
    asked: &[(usize, ChunkId, u32)],
    clock: &mut dyn Clock,
) -> Result<Vec<Result<Frame, Missing>>, OpenError> {
    let mut frames = Vec::new();
    if !ftl.flash.frames.acquire_many(zones.payload, asked.len(), &mut frames) {
        return Err(lost(format!("{} blocks are to be read, and there are fewer frames", asked.len())));
    }
    for (index, ((at, chunk, block), frame)) in asked.iter().zip(&frames).enumerate() {
        let ppa = ftl.flash.format.ppa(*chunk, *block);
        let of_zone = zones.layout.block_at(*at as u32, *block);
        ftl.read_elsewhere(index as u64, number, of_zone, &[*frame], |_, _| BlockPlace::Media(ppa));
    }
    ftl.run(clock, zones, |ftl| !ftl.is_reading())?;
    let mut done = Vec::new();
    ftl.poll_beside(clock.now(), &mut done, zones);
    let mut verified: Vec<Result<Frame, Missing>> = frames.into_iter().map(Ok).collect();
    for Done { tag, result, .. } in done {
        if let Err(error) = result
            && let Ok(frame) = verified[tag as usize]
        {
            // What was read is there only if it could be.
            let is_read = matches!(error, IoError::WrongBlock { .. });
            let is_padding = |oob: Oob| oob.kind == BlockKind::Padding;
            let is_padding = is_read && Oob::peek(&ftl.flash.frames, frame).is_ok_and(is_padding);
            verified[tag as usize] = Err(if is_padding { Missing::Padding } else { Missing::Lost });
            ftl.flash.frames.release(frame);
        }
    }
    Ok(verified)
}

/// Where a zone ends whose columns and tail have this.
fn end_of(zones: &Zones, columns: &[Option<FoundColumn>], tail: Option<&SavedTail>) -> u32 {
    let layout = &zones.layout;
    let good = |column: u32| columns[column as usize].as_ref().map_or(0, |found| found.good);
    let mut block = 0;
    while block < layout.capacity {
        let (column, at) = layout.place(block);
        let left = layout.unit_blocks - block % layout.unit_blocks;
        if good(column) > at {
            block += left.min(good(column) - at);
        } else if let Some(tail) = tail.filter(|tail| tail.has_committed(block, layout)) {
            block += left.min(tail.end - block);
        } else {
            break;
        }
    }
    block
}
