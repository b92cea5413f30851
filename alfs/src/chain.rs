//! The records of an anchor, one behind the other, and which of them counts.
//!
//! ```text
//!   anchor   [ whole record 7 ][ 8 ][ 9 ][ 10 ]            counts: the last of which all that it needs is there
//!                                          └ its patches are read back, because nothing says that it was flushed
//! ```
//!
//! A record is begun when the one before it is durable. So of the newest alone it is open whether it is all there: the write pointers of its segments say
//! so, and its blocks of patches have to be what they should. One that cannot be read may have been durable, and is an error of its nodes; one that reads as
//! something else was never written. A record of which it is known that the next one was begun was durable.
//!
//! A block that cannot be read ends a chain. If records behind it, or in the other anchor, say that a newer one than those that can be read was durable, there is no
//! volume: an older state is never taken for the newest. Where nothing says so, the block was of a record that was not over when the power was cut.

use crate::block::{Bytes, Kind, NotIt, look};
use crate::mounting::{MountError, shape_of};
use crate::record::{NoRecord, Record};
use crate::requests::{read_again, read_each, read_scattered};
use crate::segments::{ANCHORS, Segment, Shape, State};
use openftl_core::Clock;
use openftl_parts::target::SegmentTarget;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Blocks of an anchor that are read at a time, and are in memory beside the records.
const WINDOW: u32 = 64;

/// The records of an anchor.
pub(crate) struct Chain {
    pub anchor: u32,
    pub volume: u64,
    pub records: Vec<Record>,
}

/// Blocks of an anchor, as they are needed. What cannot be read is `None`.
struct Window<'a, T> {
    target: &'a mut T,
    clock: &'a mut dyn Clock,
    /// The next block to be read, and the end of those that are written.
    at: u32,
    end: u32,
    blocks: VecDeque<Option<Box<Bytes>>>,
}

impl<T: SegmentTarget> Window<'_, T> {
    /// Blocks that were not taken.
    fn left(&self) -> u32 {
        self.end - self.at + self.blocks.len() as u32
    }

    /// Has so many blocks in memory, of those that are left.
    fn fill(&mut self, count: u32) -> Result<(), MountError> {
        while (self.blocks.len() as u32) < count {
            let now = WINDOW.min(self.end - self.at);
            let blocks = &mut self.blocks;
            read_each(self.target, self.clock, self.at, now, &mut |_, block| {
                blocks.push_back(block.copied().map(Box::new));
            })?;
            self.at += now;
        }
        Ok(())
    }

    /// The next block, which stays.
    fn first(&mut self) -> Result<Option<&Bytes>, MountError> {
        self.fill(1)?;
        Ok(self.blocks.front().and_then(Option::as_deref))
    }

    /// Takes so many blocks. `None`: one of them cannot be read.
    fn take(&mut self, count: u32) -> Result<Option<Vec<Box<Bytes>>>, MountError> {
        self.fill(count)?;
        Ok(self.blocks.drain(..count as usize).collect())
    }
}

/// What the blocks of an anchor tell that are behind its last record.
#[derive(Default)]
struct Rest {
    /// Numbers of records, with the volumes.
    seen: Vec<(u64, u64)>,
    /// Blocks that cannot be read.
    unreadable: u32,
}

impl Rest {
    /// Looks at the blocks that are left.
    fn look<T: SegmentTarget>(&mut self, window: &mut Window<'_, T>) -> Result<(), MountError> {
        while window.left() > 0 {
            match window.take(1)? {
                None => self.unreadable += 1,
                Some(blocks) => self.seen.extend(
                    look(&blocks[0])
                        .ok()
                        .filter(|seen| seen.kind == Kind::Record)
                        .map(|seen| (seen.volume, seen.sequence)),
                ),
            }
        }
        Ok(())
    }

    /// The last record of a volume of which these say that it was durable. `first` is the number of the whole record of the anchor, if that can be read.
    fn durable(&self, volume: u64, first: Option<u64>) -> Option<u64> {
        let mine = || self.seen.iter().filter(|(of, _)| *of == volume).map(|(_, sequence)| *sequence);
        let first = first.or_else(|| mine().min())?;
        // The others of an anchor are numbered one by one, and each was begun when the one before was durable. Before a whole one a mount leaves out a number.
        mine().map(|sequence| sequence - if sequence > first { 1 } else { sequence.min(2) }).max()
    }
}

/// Reads the records of an anchor, and what is behind them. `Err(None)`: it is empty; what is no record is the end of the others.
fn read_chain(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    shape: Shape,
    anchor: u32,
) -> Result<(Result<Chain, Option<NoRecord>>, Rest), MountError> {
    let (at, written) = (shape.first_of(anchor), target.segment(anchor).written);
    let mut window = Window { target, clock, at, end: at + written, blocks: VecDeque::new() };
    let mut chain: Option<Chain> = None;
    let mut rest = Rest::default();
    let why = loop {
        if window.left() == 0 {
            break None;
        }
        let known = chain.as_ref().map(|chain| chain.volume);
        let Some(first) = window.first()? else { break Some(NoRecord::Impossible("first block")) };
        let (blocks, sequence, volume) = match Record::length(first, known) {
            Ok(found) => found,
            Err(why) => break Some(why),
        };
        if blocks > window.left() {
            break Some(NoRecord::Impossible("length"));
        }
        let Some(blocks) = window.take(blocks)? else {
            rest.unreadable += 1;
            break Some(NoRecord::Impossible("blocks cannot be read"));
        };
        let record = match Record::read(&blocks, volume) {
            Ok(record) => record,
            Err(why) => break Some(why),
        };
        match &mut chain {
            None if record.is_whole => chain = Some(Chain { anchor, volume, records: vec![record] }),
            Some(chain)
                if !record.is_whole
                    && record.shape == chain.records[0].shape
                    && sequence == chain.records[chain.records.len() - 1].sequence + 1 =>
            {
                chain.records.push(record);
            }
            _ => break Some(NoRecord::Impossible("sequence")),
        }
    };
    rest.look(&mut window)?;
    Ok((chain.ok_or(why), rest))
}

impl Chain {
    /// What the first `count` records say of segments.
    fn segments(&self, count: usize) -> BTreeMap<u32, Segment> {
        self.records[..count].iter().flat_map(|record| record.segments.iter().copied()).collect()
    }

    /// Whether the drive has all that the first `count` records need, as far as the write pointers say it.
    fn counts(&self, target: &impl SegmentTarget, count: usize) -> bool {
        let shape = self.records[0].shape;
        let heads = self.records[count - 1].heads.iter().flatten();
        let heads: BTreeMap<u32, u32> = heads.map(|head| (head.segment, head.written)).collect();
        self.segments(count).iter().all(|(index, segment)| {
            let needed = match segment.state {
                State::Open => heads.get(index).copied().unwrap_or(0),
                State::Full if segment.valid > 0 => shape.segment_blocks,
                _ => 0,
            };
            target.segment(*index).written >= needed
        })
    }

    /// How many records count.
    fn counting(&self, target: &impl SegmentTarget) -> usize {
        (1..=self.records.len()).rev().find(|count| self.counts(target, *count)).unwrap_or(0)
    }

    /// Where the newest patch of each node is, after the first `count` records. `None`: there are more than a volume has.
    pub fn patches(&self, count: usize) -> Option<BTreeMap<u32, u32>> {
        let most = self.records[0].shape.patches_max() as usize;
        let mut patches = BTreeMap::new();
        for record in &self.records[..count] {
            record.nodes.iter().for_each(|(node, _)| _ = patches.remove(node));
            patches.extend(record.patches.iter().copied());
            if patches.len() > most {
                return None;
            }
        }
        Some(patches)
    }

    /// The first `count` of the records.
    fn up_to(mut self, count: usize) -> Chain {
        self.records.truncate(count);
        self
    }

    /// The number of the last of the first `count` records.
    fn sequence(&self, count: usize) -> u64 {
        self.records[count - 1].sequence
    }
}

/// A chain, and how many of its records may count.
type Candidate<'a> = (&'a Chain, usize);

/// Whether the blocks of patches of the newest record are there, that the one before it does not have.
fn has_its_patches(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    newest: Candidate<'_>,
    before: Candidate<'_>,
) -> Result<bool, MountError> {
    let addresses = |(chain, count): Candidate<'_>| -> Option<BTreeSet<u32>> {
        Some(chain.patches(count)?.into_values().collect())
    };
    // What is impossible is said later.
    let (Some(new), Some(old)) = (addresses(newest), addresses(before)) else { return Ok(true) };
    let new: Vec<u32> = new.difference(&old).copied().collect();
    let blocks = read_scattered(target, clock, &new)?;
    Ok(blocks
        .iter()
        .flatten()
        .all(|block| look(block).is_ok_and(|seen| seen.kind == Kind::Patches && seen.volume == newest.0.volume)))
}

/// Whether everything that is of use for `before` was of use for `newest`, too: nothing of it was given up, even if `newest` was durable.
fn has_what_was_before(newest: Candidate<'_>, before: Candidate<'_>) -> bool {
    let now = newest.0.segments(newest.1);
    before.0.segments(before.1).iter().all(|(index, segment)| {
        segment.valid == 0 || now.get(index).is_some_and(|now| now.valid > 0 && now.state != State::Free)
    })
}

/// The newest records that count.
pub(crate) fn read_volume(target: &mut impl SegmentTarget, clock: &mut dyn Clock) -> Result<Chain, MountError> {
    let shape = shape_of(target)?;
    let was_read_only = target.is_read_only();
    let mut chains = Vec::new();
    let mut rests = Vec::new();
    let mut whys = Vec::new();
    for anchor in 0..ANCHORS {
        let (found, rest) = read_chain(target, clock, shape, anchor)?;
        rests.push((rest, found.as_ref().ok().map(|chain| chain.records[0].sequence)));
        match found {
            Ok(chain) => chains.push(chain),
            Err(why) => whys.extend(why),
        }
    }
    if rests.iter().any(|(rest, _)| rest.unreadable > 0) && target.is_read_only() && !was_read_only {
        return Err(MountError::DriveFailed);
    }
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.records[0].sequence));
    if let Some(made) = chains.first().map(|chain| chain.records[0].shape).filter(|made| *made != shape) {
        let Shape { segments: has, segment_blocks: has_of } = shape;
        return Err(MountError::OtherShape { made: made.segments, of: made.segment_blocks, has, has_of });
    }
    chains.retain(|chain| chain.records[0].shape == shape);
    let mut counting = Vec::new();
    for (index, chain) in chains.iter().enumerate() {
        match chain.counting(target) {
            0 => whys.insert(0, NoRecord::Impossible("segments are not as it says")),
            count => {
                counting.push((index, count));
                // Of a record that another one follows, here or in the other anchor, it is known that it was durable.
                let follows = |newer: &Chain| {
                    newer.volume == chain.volume && newer.records[0].sequence == chain.sequence(count) + 1
                };
                let is_followed = count < chain.records.len() || chains[..index].iter().any(follows);
                if !is_followed && count > 1 && chain.counts(target, count - 1) {
                    counting.push((index, count - 1));
                }
            }
        }
    }
    let Some(newest) = counting.first().copied() else { return Err(no_volume(target, clock, shape, &whys)?) };
    let candidate = |(index, count): (usize, usize)| (&chains[index], count);
    let before = counting.get(1).copied().filter(|before| {
        let (newest, before) = (candidate(newest), candidate(*before));
        let is_before =
            before.0.volume == newest.0.volume && before.0.sequence(before.1) + 1 == newest.0.sequence(newest.1);
        is_before && has_what_was_before(newest, before)
    });
    let (index, count) = match before {
        Some(before) if !has_its_patches(target, clock, candidate(newest), candidate(before))? => before,
        _ => newest,
    };
    let (volume, found) = (chains[index].volume, chains[index].sequence(count));
    let durable = rests.iter().filter_map(|(rest, first)| rest.durable(volume, *first)).max();
    if let Some(durable) = durable.filter(|durable| *durable > found) {
        return Err(MountError::RecordLost { durable, found });
    }
    Ok(chains.swap_remove(index).up_to(count))
}

/// Why there is no record that counts.
fn no_volume(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    shape: Shape,
    whys: &[NoRecord],
) -> Result<MountError, MountError> {
    let other_version = whys.iter().find_map(|why| match why {
        NoRecord::Block { why: NotIt::Version(version), .. } => Some(*version),
        _ => None,
    });
    if let Some(version) = other_version {
        return Ok(MountError::OtherVersion(version));
    }
    let is_foreign = |why: &&NoRecord| matches!(why, NoRecord::Block { why: NotIt::NoMagic, .. });
    if let Some(why) = whys.iter().find(|why| !is_foreign(why)) {
        return Ok(MountError::NoRecord(*why));
    }
    Ok(match logs(target, clock, shape)? {
        Logs::Ours => MountError::RecordsGone,
        Logs::OfVersion(version) => MountError::OtherVersion(version),
        Logs::None => MountError::NoVolume,
    })
}

/// A volume of another version says so, in its records or in its logs, if they can be read.
pub(crate) fn expect_version(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    shape: Shape,
) -> Result<(), MountError> {
    for anchor in (0..ANCHORS).filter(|anchor| target.segment(*anchor).written > 0).collect::<Vec<_>>() {
        if let Err(NotIt::Version(version)) = look_at_first(target, clock, shape, anchor)? {
            return Err(MountError::OtherVersion(version));
        }
    }
    match logs(target, clock, shape)? {
        Logs::OfVersion(version) => Err(MountError::OtherVersion(version)),
        Logs::Ours | Logs::None => Ok(()),
    }
}

/// What segments begin with.
enum Logs {
    /// At least one with a block of a file system, as those with nodes do.
    Ours,
    /// Some with such a block of another version, and none with one of ours.
    OfVersion(u8),
    /// None with either.
    None,
}

fn logs(target: &mut impl SegmentTarget, clock: &mut dyn Clock, shape: Shape) -> Result<Logs, MountError> {
    let mut found = Logs::None;
    for segment in (ANCHORS..shape.segments).filter(|segment| target.segment(*segment).written > 0).collect::<Vec<_>>()
    {
        match look_at_first(target, clock, shape, segment)? {
            Ok(()) => return Ok(Logs::Ours),
            Err(NotIt::Version(version)) => found = Logs::OfVersion(version),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// Whether the first block of a segment is one of a file system. One that cannot be read is none.
fn look_at_first(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    shape: Shape,
    segment: u32,
) -> Result<Result<(), NotIt>, MountError> {
    let block = read_again(target, clock, shape.first_of(segment))?;
    Ok(block.map_or(Err(NotIt::NoMagic), |block| look(&block).map(drop)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::LOGS;

    #[test]
    fn records_that_name_more_patches_together_than_a_volume_has_are_refused() {
        let shape = Shape { segments: 64, segment_blocks: 16 };
        let most = shape.patches_max();
        let record = |sequence: u64, first: u32| Record {
            is_whole: sequence == 1,
            sequence,
            shape,
            next_generation: 1,
            files: 1,
            map_blocks: 4,
            heads: [None; LOGS],
            map: Vec::new(),
            nodes: vec![(first, 0)],
            patches: (first..first + most / 2).map(|node| (node, 40)).collect(),
            segments: Vec::new(),
            owners: Vec::new(),
            doomed: Vec::new(),
            orphans: Vec::new(),
        };
        let chain = |firsts: &[u32]| {
            let records = (1..).zip(firsts).map(|(sequence, first)| record(sequence, *first)).collect();
            Chain { anchor: 0, volume: 1, records }
        };
        assert_eq!(chain(&[1, 1000]).patches(2).map(|patches| patches.len() as u32), Some(most / 2 * 2));
        assert_eq!(chain(&[1, 1000, 1]).patches(3).map(|patches| patches.len() as u32), Some(most / 2 * 2));
        assert!(chain(&[1, 1000, 2000]).patches(3).is_none());
    }
}
