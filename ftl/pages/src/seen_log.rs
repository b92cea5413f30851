//! What is seen of the log besides groups that follow each other: what stands behind a group that is missing says whether that was on media for good.
//!
//! ```text
//!   chunk   [ ▓5 ▓6 ▓7 ]  [ ?? ▓9 ▓10 ── ]        ▓7 is the last one that follows; nothing of ▓8 can be read
//! ```
//!
//! | behind the missing group | then that group |
//! |---|---|
//! | another one in another chunk, before which all can be read there | was there for good: a group goes to another chunk when all before it is |
//! | another one, and a block between them that is farther from it than a program which is cut off can damage | the same |
//! | nothing, but the anchor counts it among those that were there for good | the same |
//! | another one that is nearer | may never have been there for good |
//! | nothing | the same |
//!
//! The log has one copy. What a power cut has torn and what the medium has lost look alike where nothing was written behind: that is taken for torn,
//! unless it is more than some power cuts can tear ([`SeenLog::doubt`]).

use crate::place::{GRAIN_BYTES, GRAINS_PER_BLOCK, Header, Kind, Place};
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId, Geometry};
use std::collections::BTreeMap;

/// A block of a chunk of the store.
pub(crate) struct FoundBlock {
    /// `None`: it cannot be read.
    pub bytes: Option<Box<[u8; BLOCK_BYTES]>>,
    /// When it was written.
    pub sequence: u64,
    /// In which grain the first page or group begins.
    pub head: Option<u32>,
}

/// A group.
pub(crate) struct FoundGroup {
    pub number: u64,
    pub version: u64,
    /// When it was written: later than `version` says if it was written again.
    pub sequence: u64,
    pub place: Place,
    pub records: Vec<u8>,
}

/// Power cuts, one in the recovery from the other, whose torn blocks at the end of the log are what power cuts leave.
const CUTS: u32 = 4;

/// Numbers of groups that a repair skips: what cannot be read may have had greater ones than all that can. A log lacks no group there.
pub(crate) const GROUPS_SKIPPED: u64 = 1 << 20;

/// A group that is there, or at least its header.
struct Seen {
    number: u64,
    version: u64,
    sequence: u64,
    chunk: ChunkId,
    block: u32,
}

/// The last group that follows those before it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Last {
    pub version: u64,
    pub sequence: u64,
    /// Its chunk, and the block behind it. `None`: there is none.
    pub end: Option<(ChunkId, u32)>,
}

impl Last {
    pub(crate) fn of(format: AddressFormat, group: &FoundGroup) -> Last {
        let end = Some((group.place.chunk(format), group.place.blocks(format).end));
        Last { version: group.version, sequence: group.sequence, end }
    }
}

/// See the module.
pub(crate) struct SeenLog {
    seen: Vec<Seen>,
    /// Of each chunk of the log: blocks that cannot be read.
    unreadable: BTreeMap<ChunkId, Vec<u32>>,
    unit_blocks: u32,
    /// Blocks before one that can be read of which a program that is cut off may have damaged one.
    reach: u32,
}

/// Blocks that a program which is cut off may damage: the unit that is torn, and those on the same word lines, which is all that has not
/// MW_CUNITS blocks written behind it.
fn reach_of(geometry: &Geometry) -> u32 {
    2 * geometry.ws_min + geometry.mw_cunits
}

fn is_far(unit_blocks: u32, reach: u32, lost: u32, seen: u32) -> bool {
    lost / unit_blocks * unit_blocks + reach <= seen
}

/// Whether a group in block `seen` of a chunk shows, if block `lost` of it cannot be read, that this one was there for good.
pub(crate) fn is_beyond_reach(geometry: &Geometry, lost: u32, seen: u32) -> bool {
    is_far(geometry.ws_min, reach_of(geometry), lost, seen)
}

impl SeenLog {
    /// Nothing yet, on a device like this.
    pub(crate) fn new(geometry: &Geometry) -> SeenLog {
        let (unit_blocks, reach) = (geometry.ws_min, reach_of(geometry));
        SeenLog { seen: Vec::new(), unreadable: BTreeMap::new(), unit_blocks, reach }
    }

    /// Adds a chunk of the log, with its blocks and the groups that are whole.
    pub(crate) fn add(&mut self, format: AddressFormat, chunk: ChunkId, blocks: &[FoundBlock], groups: &[FoundGroup]) {
        let whole = groups.iter().map(|group| Seen {
            number: group.number,
            version: group.version,
            sequence: group.sequence,
            chunk,
            block: group.place.grain(format) / GRAINS_PER_BLOCK,
        });
        self.seen.extend(whole);
        for (block, known) in (0..).zip(blocks) {
            let head = known.bytes.as_ref().zip(known.head);
            let header = head.and_then(|(bytes, grain)| Header::read(&bytes[grain as usize * GRAIN_BYTES..]));
            if let Some(Header { lpid: number, version, .. }) = header.filter(|header| header.kind == Kind::Group) {
                self.seen.push(Seen { number, version, sequence: known.sequence, chunk, block });
            }
        }
        let lost = (0..).zip(blocks).filter(|(_, known)| known.bytes.is_none()).map(|(block, _)| block);
        self.unreadable.insert(chunk, lost.collect());
    }

    /// A group behind the missing one that shows that this was on media for good; `last` is the one before that.
    pub(crate) fn shows(&self, missing: u64, last: Last) -> Option<u64> {
        let is_behind = |seen: &&Seen| {
            // A repair that skips numbers goes on so far behind the last one: nothing is missing there.
            (missing + 1..(missing - 1).saturating_add(GROUPS_SKIPPED)).contains(&seen.number)
                && seen.version >= last.version
                && seen.sequence >= last.sequence
        };
        let behind = self.seen.iter().filter(is_behind).filter(|seen| {
            let in_chunk = self.seen.iter().filter(|other| other.chunk == seen.chunk && other.number < missing);
            let older = in_chunk.map(|other| other.block).filter(|block| *block < seen.block).max();
            let begin = last.end.filter(|(chunk, _)| *chunk == seen.chunk).map(|(_, end)| end).max(older).unwrap_or(0);
            if seen.block < begin {
                // It was there before all that is needed.
                return false;
            }
            let mut between =
                self.unreadable[&seen.chunk].iter().filter(|block| (begin..seen.block).contains(*block)).peekable();
            let is_far = |block: &u32| is_far(self.unit_blocks, self.reach, *block, seen.block);
            between.peek().is_none() || between.any(is_far)
        });
        behind.map(|seen| seen.number).min()
    }

    /// Whether a group can be read behind which something in its chunk cannot: a power cut has torn the end, and what follows there would seem to
    /// show that something before it was lost.
    pub(crate) fn is_torn(&self, chunk: ChunkId) -> bool {
        let last = self.seen.iter().filter(|seen| seen.chunk == chunk).map(|seen| seen.block).max();
        last.is_none_or(|block| self.unreadable_from((chunk, block)) > 0)
    }

    /// Blocks of a chunk from `end` on that cannot be read.
    pub(crate) fn unreadable_from(&self, (chunk, end): (ChunkId, u32)) -> u32 {
        self.unreadable.get(&chunk).map_or(0, |blocks| blocks.iter().filter(|block| **block >= end).count() as u32)
    }

    /// Blocks that cannot be read where group `next` and what follows it would be, if they are more than some power cuts have torn: behind
    /// the last group, and in chunks of which nothing is known.
    pub(crate) fn doubt(&self, next: u64, last: Last) -> Option<u32> {
        let before = self.seen.iter().filter(|seen| seen.number < next).max_by_key(|seen| (seen.number, seen.sequence));
        let end = last.end.or(before.map(|seen| (seen.chunk, seen.block)));
        let unknown = self.unknown_chunks().map(|chunk| self.unreadable_from((chunk, 0)));
        let blocks = end.map_or(0, |end| self.unreadable_from(end)) + unknown.sum::<u32>();
        (blocks > CUTS * self.reach).then_some(blocks)
    }

    /// The chunks that were added.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.unreadable.keys().copied()
    }

    fn unknown_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.unreadable.keys().copied().filter(|chunk| self.seen.iter().all(|seen| seen.chunk != *chunk))
    }

    /// Whether a chunk of the log has blocks that cannot be read, and no group that anything is known of.
    pub(crate) fn has_unknown_chunk(&self) -> bool {
        self.unknown_chunks().any(|chunk| self.unreadable_from((chunk, 0)) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u32 = 4;
    const REACH: u32 = 2 * UNIT + 8;

    /// Chunks 1 and 2, of which some blocks cannot be read, with these groups: number, chunk, block.
    fn seen_log(unreadable: [&[u32]; 2], groups: &[(u64, u32, u32)]) -> SeenLog {
        let seen = |(number, chunk, block): &(u64, u32, u32)| Seen {
            number: *number,
            version: 10 * number,
            sequence: 10 * number,
            chunk: ChunkId(*chunk),
            block: *block,
        };
        SeenLog {
            seen: groups.iter().map(seen).collect(),
            unreadable: BTreeMap::from([1, 2].map(|at| (ChunkId(at), unreadable[at as usize - 1].to_vec()))),
            unit_blocks: UNIT,
            reach: REACH,
        }
    }

    /// Row by row of the module's table: 7 is the last group, and ends before block 12 of chunk 1.
    #[test]
    fn what_stands_behind_a_missing_group_says_whether_it_was_there() {
        let last = Last { version: 70, sequence: 70, end: Some((ChunkId(1), 12)) };
        let shows = |unreadable, groups: &[(u64, u32, u32)]| seen_log(unreadable, groups).shows(8, last);
        // In the next chunk, with nothing before it, and behind blocks that can be read.
        assert_eq!(shows([&[12, 13], &[]], &[(7, 1, 8), (9, 2, 0)]), Some(9));
        assert_eq!(shows([&[12, 13], &[]], &[(7, 1, 8), (10, 2, 4), (9, 2, 0)]), Some(9));
        // In either chunk, behind a block that cannot be read and is out of reach.
        assert_eq!(shows([&[12], &[]], &[(7, 1, 8), (9, 1, 12 + REACH)]), Some(9));
        assert_eq!(shows([&[], &[0]], &[(7, 1, 8), (9, 2, REACH)]), Some(9));
        // Within reach.
        assert_eq!(shows([&[12], &[]], &[(7, 1, 8), (9, 1, 11 + REACH)]), None);
        assert_eq!(shows([&[], &[0]], &[(7, 1, 8), (9, 2, REACH - 1)]), None);
        // What was left by an earlier cut has a smaller version, or was written before the last one was written again.
        assert_eq!(seen_log([&[], &[]], &[(9, 2, 0)]).shows(8, Last { version: 91, ..last }), None);
        assert_eq!(seen_log([&[], &[]], &[(9, 2, 0)]).shows(8, Last { sequence: 91, ..last }), None);
        assert_eq!(shows([&[12], &[]], &[(7, 1, 8)]), None);
        // If there is no last one, whatever cannot be read may have been it.
        assert_eq!(seen_log([&[3], &[]], &[(9, 1, 20)]).shows(8, Last::default()), Some(9));
        assert_eq!(seen_log([&[3], &[]], &[(9, 1, 10)]).shows(8, Last::default()), None);
    }

    #[test]
    fn more_than_power_cuts_tear_is_in_doubt() {
        let blocks: Vec<u32> = (12..100).collect();
        let most = CUTS * REACH;
        let lost = |count: u32| &blocks[..count as usize];
        let last = |block| Last { end: Some((ChunkId(1), block)), ..Last::default() };
        let doubt = |lost: [&[u32]; 2], last| seen_log(lost, &[(7, 1, 8)]).doubt(8, last);
        assert_eq!((doubt([lost(most), &[]], last(12)), doubt([lost(most + 1), &[]], last(13))), (None, None));
        assert_eq!(doubt([lost(most + 1), &[]], last(12)), Some(most + 1));
        // If no group is found that is needed, behind the one before, and in a chunk of which nothing is known.
        assert_eq!(doubt([lost(most + 1), &[]], Last::default()), Some(most + 1));
        assert_eq!(doubt([lost(1), lost(most)], last(12)), Some(most + 1));
        assert_eq!(seen_log([lost(most + 1), &[]], &[(7, 1, 8), (8, 2, 0)]).doubt(9, Last::default()), None);
        assert!(!seen_log([lost(1), &[]], &[(7, 1, 8)]).has_unknown_chunk());
        assert!(seen_log([&[], &[5]], &[(7, 1, 8)]).has_unknown_chunk());
    }
}
