//! The log as it is found when a drive is opened: its groups are looked for in chunks that the anchor names, and done again from the anchor on.
//!
//! ```text
//!   chunks that the anchor names ──▶ those that begin with a group ──▶ groups, by number ──▶ from the anchor's to the first that is missing
//! ```
//!
//! Of chunks that the anchor names some may be something else by now: those that the log did not need any more.
//!
//! A group that was on media for good, and is not found, is an error as far as it is noticed ([`crate::seen_log`]); the rest of this is about others.
//! What a power cut has torn is no group, for its CRC32C does not agree. One behind it may be whole, on a device whose pages damage each other: it was
//! never durable, and does not count. Neither does it later: what is written from then on has greater versions than all that was found, and versions
//! only grow from group to group.

use crate::area::{LiveGrains, READ_BLOCKS, expect_place, hold, lost};
use crate::layout::{Anchor, LOG_SPARES};
use crate::log::Placed;
use crate::open_chunk::{OpenChunk, Stream};
use crate::pages::{PageChunk, Pages};
use crate::place::{GRAIN_BYTES, GRAINS_PER_BLOCK, HEADER_BYTES, Header, Kind, Place, grains_of, possible};
use crate::placing::is_of;
use crate::reading::OF_LOG;
use crate::reads::Carried;
use crate::record::{Put, Record, read_records};
use crate::request::SessionId;
use crate::seen_log::{FoundBlock, FoundGroup, Last, SeenLog};
use crate::victim::Window;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::checksum::crc32c;
use openftl_core::{AddressFormat, ChunkId, Clock, Frame};
use openftl_media::Completion;
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::Oob;
use openftl_parts::flash::reads::ReadId;
use openftl_parts::flash::shares::FoundChunk;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::Access;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// What the log has said.
#[derive(Default)]
struct Replayed {
    carried: BTreeMap<u64, Carried>,
    /// Changes of batches of which the end has not come, by session, number and digest: after a power cut another batch may have the number.
    parts: BTreeMap<(SessionId, u64, u32), Vec<(u64, Put)>>,
}

/// The log, as it was found.
pub(crate) struct FoundLog {
    /// Pages that it has with their bytes.
    pub carried: BTreeMap<u64, Carried>,
    placed: VecDeque<Placed>,
    /// Number, version and records of each group.
    groups: VecDeque<(u64, u64, Vec<u8>)>,
    /// The chunk that it may go on in.
    open: Option<ChunkId>,
    next_group: u64,
    /// What counts if the next recovery does not find all of it.
    needed: Needed,
}

/// What the next recovery needs if it cannot read the end of the log, which may be readable this one time. All before a group is there for good if the
/// group says so, or if it is the first in its chunk.
#[derive(Default)]
struct Needed {
    /// Groups from this one on can be missing then.
    from: u64,
    /// Chunks in which pages were before these groups.
    of_pages: BTreeSet<ChunkId>,
    /// Those with the oldest copies of these groups. Newer ones are of recoveries that were cut off, and as uncertain.
    of_log: BTreeSet<ChunkId>,
}

impl FoundLog {
    /// Whether a group of it is in a chunk.
    pub(crate) fn has(&self, format: AddressFormat, chunk: ChunkId) -> bool {
        self.open == Some(chunk) || self.placed.iter().any(|placed| placed.place.chunk(format) == chunk)
    }

    /// Chunks that the next recovery may need, whatever this one finds in them.
    pub(crate) fn needed(&self) -> BTreeSet<ChunkId> {
        self.needed.of_pages.union(&self.needed.of_log).copied().collect()
    }
}

impl Pages {
    /// A command has ended that reads the log.
    pub(crate) fn log_read_ended(&mut self, flash: &mut Flash, id: ReadId, completion: Completion) {
        let Some(lost) = self.lost_blocks(flash, id, completion) else { return };
        let window = self.log_window.as_mut().expect("it is read");
        window.commands -= 1;
        for block in lost {
            window.lost[(block - window.first) as usize] = true;
        }
    }
}

/// Reads `count` blocks of a chunk from `first` on. Gives their frames, and which of them cannot be read or do not verify.
pub(crate) fn read_window(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    chunk: ChunkId,
    (first, count): (u32, u32),
    clock: &mut dyn Clock,
) -> Result<(Vec<Frame>, Vec<bool>), OpenError> {
    let frames = pages.take_frames(&mut ftl.flash, count as usize, true);
    let frames = frames.ok_or_else(|| OpenError::Tenant {
        text: format!(
            "{count} blocks of the store are to be read, and there are fewer frames: give it more memory (host_frames)"
        ),
        is_lost: false,
    })?;
    // What a block that cannot be read leaves there is not to be taken for it.
    frames.iter().for_each(|frame| ftl.flash.frames.oob_mut(*frame).fill(0));
    let blocks: Vec<(u32, Frame)> = (first..).zip(frames.iter().copied()).collect();
    let commands = pages.fetch(&mut ftl.flash, chunk, &blocks, OF_LOG);
    let lost = vec![false; frames.len()];
    pages.log_window = Some(Window { first, frames, lost, commands });
    ftl.hand_over();
    ftl.run(clock, pages, |ftl| !ftl.has_reads())?;
    let Window { frames, lost, .. } = pages.log_window.take().expect("it was read");
    Ok((frames, lost))
}

/// Reads blocks of a chunk. `None`: the chunk is not the log's.
pub(crate) fn read_chunk(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    chunk: ChunkId,
    end: u32,
    clock: &mut dyn Clock,
) -> Result<Option<Vec<FoundBlock>>, OpenError> {
    let (mut found, mut first, mut count) = (Vec::new(), 0, 1.min(end));
    while first < end {
        let (frames, lost) = read_window(ftl, pages, chunk, (first, count), clock)?;
        for ((block, frame), is_lost) in (first..).zip(&frames).zip(lost) {
            let oob = Oob::peek(&ftl.flash.frames, *frame).ok();
            let is_log = oob.and_then(|oob| is_of(oob, block));
            let sequence = oob.map_or(0, |oob| possible(oob.sequence));
            let head = if is_log == Some(true) && !is_lost { Pages::head_of(&ftl.flash, *frame) } else { None };
            let bytes = (!is_lost).then(|| Box::new(*ftl.flash.frames.bytes(*frame)));
            found.push((is_log, FoundBlock { bytes, sequence, head }));
        }
        frames.into_iter().for_each(|frame| ftl.flash.frames.release(frame));
        pages.keep_frames(&mut ftl.flash);
        // The first block says whose the chunk is. If it is lost, any other does.
        if !found.iter().any(|(is_log, _)| *is_log == Some(true)) && found.iter().any(|(is_log, _)| is_log.is_some()) {
            return Ok(None);
        }
        first += count;
        count = (READ_BLOCKS as u32).min(end - first);
    }
    let is_log = found.iter().any(|(is_log, _)| *is_log == Some(true));
    Ok(is_log.then(|| found.into_iter().map(|(_, block)| block).collect()))
}

/// Shows `take` all that has a header of this kind in the blocks of a chunk, with its first grain and its bytes, in its order. What does not verify
/// is left out.
pub(crate) fn for_each_in(blocks: &[FoundBlock], kind: Kind, mut take: impl FnMut(Header, u32, &[u8])) {
    let next_head = |from: u32| {
        let heads = (from..).zip(blocks.get(from as usize..).unwrap_or_default());
        heads.filter_map(|(block, known)| Some(block * GRAINS_PER_BLOCK + known.head?)).next()
    };
    let mut next = next_head(0);
    let mut bytes = Vec::new();
    while let Some(grain) = next {
        let (block, within) = (grain / GRAINS_PER_BLOCK, (grain % GRAINS_PER_BLOCK) as usize * GRAIN_BYTES);
        next = next_head(block + 1);
        let known = blocks.get(block as usize).and_then(|known| known.bytes.as_ref());
        let header = known.and_then(|bytes| Header::read(&bytes[within..]));
        let Some(header) = header.filter(|header| header.kind == kind) else { continue };
        let end = grain + grains_of(header.bytes);
        let of_it = blocks.get(block as usize..end.div_ceil(GRAINS_PER_BLOCK) as usize).unwrap_or_default();
        bytes.clear();
        of_it.iter().filter_map(|known| known.bytes.as_ref()).for_each(|block| bytes.extend_from_slice(&block[..]));
        let begin = within + HEADER_BYTES;
        let is_whole = of_it.iter().all(|known| known.bytes.is_some());
        let own = bytes.get(begin..begin + header.bytes as usize).filter(|own| is_whole && crc32c(own) == header.crc);
        let Some(own) = own else { continue };
        take(header, grain, own);
        // Another one may follow in the same block.
        let is_inside = !end.is_multiple_of(GRAINS_PER_BLOCK) && blocks.len() as u32 > end / GRAINS_PER_BLOCK;
        let follows = is_inside.then(|| (end % GRAINS_PER_BLOCK) as usize * GRAIN_BYTES).and_then(|within| {
            let bytes = blocks[(end / GRAINS_PER_BLOCK) as usize].bytes.as_ref()?;
            Header::read(&bytes[within..])
        });
        next = if follows.is_some() { Some(end) } else { next_head(end.div_ceil(GRAINS_PER_BLOCK)) };
    }
}

/// The groups of a chunk.
pub(crate) fn groups_in(flash: &Flash, chunk: ChunkId, blocks: &[FoundBlock]) -> Vec<FoundGroup> {
    let mut found = Vec::new();
    for_each_in(blocks, Kind::Group, |Header { lpid, version, bytes, .. }, grain, records| {
        let place = Place::new(flash.format, chunk, grain, bytes);
        let sequence = blocks[(grain / GRAINS_PER_BLOCK) as usize].sequence;
        found.push(FoundGroup { number: lpid, version, sequence, place, records: records.to_vec() });
    });
    found
}

/// Reads the log, which may be in these chunks, and takes over what it says.
pub(crate) fn read(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    anchor: Anchor,
    named: &[ChunkId],
    live: &mut LiveGrains,
    clock: &mut dyn Clock,
) -> Result<FoundLog, OpenError> {
    let found: Vec<(ChunkId, FoundChunk)> =
        pages.coming_and_going.found().filter(|(chunk, _)| named.contains(chunk)).collect();
    let format = ftl.flash.format;
    let mut seen = SeenLog::new(&ftl.flash.geometry);
    let mut groups: BTreeMap<u64, Vec<FoundGroup>> = BTreeMap::new();
    // Of chunks that can be written on, the one that was written last.
    let mut open: Option<((u64, u64), ChunkId)> = None;
    for (chunk, found) in found {
        let Some(blocks) = read_chunk(ftl, pages, chunk, found.write_pointer, clock)? else { continue };
        let of_chunk = groups_in(&ftl.flash, chunk, &blocks);
        seen.add(format, chunk, &blocks, &of_chunk);
        let last = of_chunk.last().map(|group| (group.version, group.number));
        open = open.max(last.filter(|_| found.is_open).map(|last| (last, chunk)));
        for group in of_chunk {
            pages.next_version = pages.next_version.max(group.version.max(group.sequence) + 1);
            if group.number >= anchor.group {
                groups.entry(group.number).or_default().push(group);
            }
        }
    }
    let mut replayed = Replayed::default();
    let (mut placed, mut versions) = (VecDeque::new(), VecDeque::new());
    // What is needed was written after the anchor was made up.
    let (mut number, mut last) = (anchor.group, Last { version: anchor.version, ..Last::default() });
    let mut needed = Needed::default();
    while let Some(mut found) = groups.remove(&number) {
        found.retain(|group| group.version >= last.version);
        found.sort_by_key(|group| (group.version, group.sequence));
        let Some(group) = found.pop() else { break };
        last = Last::of(format, &group);
        let FoundGroup { place, records: bytes, version: of_group, .. } = group;
        let records = read_records(&bytes);
        let records =
            records.ok_or_else(|| lost(format!("group {number} of the log has something else than records")))?;
        if place.grain(format) == 0 || records.first() == Some(&Record::Begins { is_secure: true }) {
            needed = Needed { from: number, ..Needed::default() };
        }
        let oldest = found.iter().find(|other| other.version == of_group);
        needed.of_log.extend(oldest.map(|oldest| oldest.place.chunk(format)));
        hold(ftl, pages, records.iter().flat_map(named_by), clock)?;
        for record in records {
            take_record(ftl, pages, &mut replayed, record, (&mut needed.of_pages, live), clock)?;
        }
        pages.index.release();
        placed.push_back(Placed { number, last: 0, place, is_programmed: true });
        versions.push_back((number, of_group, bytes));
        number += 1;
    }
    if let Some(behind) = seen.shows(number, last) {
        return Err(lost(format!("group {number} of the log is lost, and group {behind} is there")));
    }
    if number < anchor.durable {
        return Err(lost(format!(
            "group {number} of the log is lost, and the anchor counts all before {}",
            anchor.durable
        )));
    }
    if let Some(blocks) = seen.doubt(number, last) {
        let text = "blocks behind the end of the log cannot be read, more than power cuts tear: batches that were durable may be missing";
        *ftl.doubt_mut() = Some(format!("{blocks} {text}"));
        // Whoever opens the drive is to hear of it, if not this time.
        needed.of_log.extend(seen.chunks());
    }
    // The log goes on there if nothing in it is needed, and never behind what a power cut has torn.
    let has_groups = |chunk: &ChunkId| placed.iter().any(|placed: &Placed| placed.place.chunk(format) == *chunk);
    let may_go_on = |chunk: &ChunkId| !seen.is_torn(*chunk) && !needed.of_log.contains(chunk);
    let open = open.map(|(_, chunk)| chunk).filter(|chunk| has_groups(chunk) || may_go_on(chunk));
    Ok(FoundLog { carried: replayed.carried, placed, groups: versions, open, next_group: number, needed })
}

/// Takes over the log, and those of the chunks that the anchor names which nothing was written to yet. Gives pages that it has with their bytes.
pub(crate) fn take(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    found: FoundLog,
    named: &[ChunkId],
    access: Access,
) -> BTreeMap<u64, Carried> {
    let FoundLog { carried, placed, groups, open, next_group, needed } = found;
    take_log(ftl, pages, &placed, open, access);
    if access != Access::Inspect {
        pages.log.again = groups.into_iter().filter(|(number, ..)| *number >= needed.from).collect();
        pages.log.older = needed.of_log.into_iter().collect();
    }
    pages.log.found(placed, next_group);
    for chunk in named {
        let resets = if ftl.flash.geometry.has_chunk(*chunk) { ftl.flash.chunks.resets(*chunk) } else { continue };
        let lacks = pages.log.spares.len() < LOG_SPARES && ftl.flash.chunks.usage(*chunk) == ChunkUse::Free;
        if lacks && ftl.flash.provisioning.take_for_tenant(*chunk, resets) {
            ftl.flash.chunks.set_usage(*chunk, ChunkUse::Tenant);
            pages.log_chunks += 1;
            pages.log.spares.push_back(*chunk);
        }
    }
    carried
}

/// Gives back chunks that hold nothing, whatever the next recovery finds of the log: each recovery takes some, and if that was cut off again and again
/// there would be none. The others follow when the end of the log is there for good ([`Pages::release_in_doubt`]).
pub(crate) fn release_found(ftl: &mut BlockFtl, pages: &mut Pages, needed: &BTreeSet<ChunkId>) {
    for (chunk, found) in pages.coming_and_going.take_rest(&mut ftl.flash) {
        if needed.contains(&chunk) {
            pages.in_doubt.insert(chunk, found);
        } else {
            pages.release_found_chunk(&mut ftl.flash, chunk, found);
        }
    }
    pages.note_doomed(&mut ftl.flash);
}

/// The chunks of the log are taken over. Those with groups that are needed are written no more.
fn take_log(ftl: &mut BlockFtl, pages: &mut Pages, placed: &VecDeque<Placed>, open: Option<ChunkId>, access: Access) {
    let (format, chunk_blocks) = (ftl.flash.format, ftl.flash.geometry.blocks_per_chunk);
    let mut blocks_of: BTreeMap<ChunkId, Range<u32>> = BTreeMap::new();
    let mut live: BTreeMap<ChunkId, u32> = open.into_iter().map(|chunk| (chunk, 0)).collect();
    for Placed { place, .. } in placed {
        let (chunk, blocks) = (place.chunk(format), place.blocks(format));
        *live.entry(chunk).or_default() += place.grains();
        let known = blocks_of.entry(chunk).or_insert(blocks.start..blocks.end);
        *known = known.start.min(blocks.start)..known.end.max(blocks.end);
    }
    pages.log.found_to_take(blocks_of.values().map(|blocks| u64::from(blocks.end - blocks.start)).sum());
    for (chunk, live) in live {
        let Some(found) = pages.coming_and_going.take(&mut ftl.flash, chunk) else { continue };
        pages.log_chunks += 1;
        pages.chunks.insert(chunk, PageChunk { live, is_log: true, ..PageChunk::default() });
        if !found.is_open || access == Access::Inspect {
            continue;
        }
        let handle = ftl.flash.units.open(chunk, found.write_pointer);
        let slot = pages.add_open(OpenChunk::new(chunk, handle, Stream::Log, found.write_pointer));
        if live == 0 {
            // It goes on there.
            pages.logs.slots[0] = Some(slot);
            pages.log.go_on_in(0, chunk, found.write_pointer, chunk_blocks);
        } else {
            pages.fill_up(&mut ftl.flash, slot);
        }
    }
}

/// Pages that a record names. A batch may be of several records, and counts when the last one is there.
fn named_by(record: &Record) -> Vec<u64> {
    match record {
        Record::Changes { puts, .. } => puts.iter().map(|(lpid, _)| *lpid).collect(),
        Record::Moved { lpid, .. } | Record::Lost { lpid, .. } => vec![*lpid],
        Record::Forgotten(_) | Record::Opened { .. } | Record::Begins { .. } => Vec::new(),
    }
}

/// Does again what a record says. Adds chunks in which pages were before to `before`, and has `live` say where they are.
fn take_record(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    replayed: &mut Replayed,
    record: Record,
    (before, live): (&mut BTreeSet<ChunkId>, &mut LiveGrains),
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let (format, geometry) = (ftl.flash.format, ftl.flash.geometry);
    let mut set = |pages: &mut Pages, lpid: u64, place: Option<Place>| {
        let old = pages.index.set(lpid, place);
        before.extend(old.filter(|old| *old != Place::LOST).map(|old| old.chunk(format)));
        live.add(format, place);
        live.take(format, old);
    };
    match record {
        Record::Changes { session, wsn, digest, is_last, puts } => {
            replayed.parts.entry((session, wsn, digest)).or_default().extend(puts);
            if !is_last {
                return Ok(());
            }
            let puts = replayed.parts.remove(&(session, wsn, digest)).expect("it was just added to");
            hold(ftl, pages, puts.iter().map(|(lpid, _)| *lpid), clock)?;
            for (lpid, put) in puts {
                replayed.carried.remove(&lpid);
                match put {
                    Put::At(place) => {
                        expect_place(&geometry, lpid, place)?;
                        set(pages, lpid, Some(place));
                    }
                    Put::Deleted => set(pages, lpid, None),
                    Put::Carried { version, bytes } => {
                        pages.next_version = pages.next_version.max(version + 1);
                        set(pages, lpid, None);
                        replayed.carried.insert(lpid, Carried { version, bytes });
                    }
                }
            }
            let number = pages.sessions.find(session).map_err(|error| lost(error.to_string()))?;
            let state = pages.sessions.get_mut(number).expect("it was just found");
            if wsn > state.last {
                state.committed(wsn, digest);
                state.durable = wsn;
            }
        }
        Record::Moved { lpid, from, to } => {
            if pages.index.get(lpid) == Some(from) {
                expect_place(&geometry, lpid, to)?;
                set(pages, lpid, Some(to));
            }
        }
        Record::Lost { lpid, from } => {
            if pages.index.get(lpid) == Some(from) {
                set(pages, lpid, Some(Place::LOST));
            }
        }
        Record::Forgotten(session) => pages.sessions.forget(session),
        Record::Opened { chunk, seal } => {
            // Something else may have it by now.
            if pages.coming_and_going.is_found(chunk) {
                ftl.flash.seals.restore(chunk, seal);
            }
        }
        Record::Begins { .. } => {}
    }
    Ok(())
}
