//! Records: what a volume is at one moment, or what has changed of that since the record before.
//!
//! ```text
//!   anchor 0   [ whole ][ change ][ change ][ whole, in anchor 1 ] …
//!                 12       13        14
//! ```
//!
//! A *whole* record is the first of an anchor; *changes* follow it, each with the next sequence. A record counts if all of its blocks are there,
//! every record before it counts, and the device has all that was written for it: [`Record::segments`] says how far each segment has to be. So what
//! is synced and its record are made durable by one flush, in whatever order the device writes them.

use crate::block::{Bytes, HEADER_BYTES, Kind, NotIt, seal, verify, zeroes};
use crate::segments::{LOGS, Owner, Segment, Shape, State};
use openftl_core::BLOCK_BYTES;

/// Bytes of a record in each of its blocks.
const PAYLOAD_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

/// Sequences from here on are no record's: a volume does not live so long.
pub const SEQUENCE_END: u64 = 1 << 62;

/// A segment that a log writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadPlace {
    /// Which one.
    pub segment: u32,
    /// Its blocks so far.
    pub written: u32,
}

/// Owners of blocks of a segment that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOwners {
    /// The segment.
    pub segment: u32,
    /// The block of the first of them.
    pub first: u32,
    /// Whose the blocks are.
    pub owners: Vec<Owner>,
}

/// A block of the map of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MapBlock {
    /// Where it is; 0: nothing of it was written, all of its nodes are free but for later changes.
    pub address: u32,
    /// How many of its nodes are free, roughly: no fewer than this after a crash.
    pub free: u16,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whether everything is in it.
    pub is_whole: bool,
    /// Its number.
    pub sequence: u64,
    /// How the volume is divided.
    pub shape: Shape,
    /// The next new file gets this.
    pub next_generation: u32,
    /// Files.
    pub files: u32,
    /// Blocks of the map of nodes.
    pub map_blocks: u32,
    /// Where each log goes on.
    pub heads: [Option<HeadPlace>; LOGS],
    /// The map of nodes; only in a whole record.
    pub map: Vec<MapBlock>,
    /// Nodes, and where they are, otherwise than the map says: in a whole record all of them, in another one those that have changed.
    pub nodes: Vec<(u32, u32)>,
    /// Nodes, and where their newest patches are: in a whole record all that have one, in another one those that were patched since. A node of
    /// [`Record::nodes`] has none but this.
    pub patches: Vec<(u32, u32)>,
    /// Segments: all, or those that have changed.
    pub segments: Vec<(u32, Segment)>,
    /// Owners of blocks in open segments: of all, or of those since the record before.
    pub owners: Vec<NewOwners>,
    /// Nodes that nobody needs, with all below them.
    pub doomed: Vec<u32>,
    /// Files without a name that somebody had open.
    pub orphans: Vec<u32>,
}

/// Why there is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoRecord {
    /// A block of it is not there, or damaged.
    #[error("block {block} of the record is missing or damaged: {why}")]
    Block {
        /// Counted from the first of the record.
        block: u32,
        /// What it is instead.
        why: NotIt,
    },
    /// Its blocks are fine and contradict each other, or the volume.
    #[error("the record is not possible: its {0}")]
    Impossible(&'static str),
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn count(&mut self, items: usize) {
        self.number(u32::try_from(items).expect("fewer items than blocks of a volume"));
    }

    fn numbers(&mut self, numbers: &[u32]) {
        self.count(numbers.len());
        numbers.iter().for_each(|number| self.number(*number));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// So many items of at least `bytes` bytes each as the next number says.
    fn items<I>(&mut self, bytes: usize, mut item: impl FnMut(&mut Self) -> Option<I>) -> Option<Vec<I>> {
        let count = self.number()? as usize;
        if count > self.0.len() / bytes {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }
}

impl Record {
    /// The blocks of the record, sealed.
    #[must_use]
    pub fn blocks(&self, volume: u64) -> Vec<Box<Bytes>> {
        let bytes = self.bytes();
        let blocks = bytes.chunks(PAYLOAD_BYTES);
        let sealed = blocks.zip(0..).map(|(piece, index)| {
            let mut block = zeroes();
            block[HEADER_BYTES..HEADER_BYTES + piece.len()].copy_from_slice(piece);
            seal(&mut block, Kind::Record, index, self.sequence, volume);
            block
        });
        sealed.collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut to = Writer(vec![0; 4]);
        to.0.extend_from_slice(&self.sequence.to_le_bytes());
        to.number(u32::from(self.is_whole));
        for number in
            [self.shape.segments, self.shape.segment_blocks, self.next_generation, self.files, self.map_blocks]
        {
            to.number(number);
        }
        for head in self.heads {
            to.number(head.map_or(0, |head| head.segment));
            to.number(head.map_or(0, |head| head.written));
        }
        to.count(self.map.len());
        for block in &self.map {
            to.number(block.address);
            to.number(block.free.into());
        }
        to.count(self.nodes.len());
        for (node, address) in &self.nodes {
            to.number(*node);
            to.number(*address);
        }
        to.count(self.patches.len());
        for (node, address) in &self.patches {
            to.number(*node);
            to.number(*address);
        }
        to.count(self.segments.len());
        for (index, segment) in &self.segments {
            to.number(*index);
            to.number(segment.valid);
            to.number(segment.age);
            to.number(segment.state as u32);
        }
        to.count(self.owners.len());
        for new in &self.owners {
            to.number(new.segment);
            to.number(new.first);
            to.count(new.owners.len());
            for owner in &new.owners {
                to.number(owner.node);
                to.number(owner.slot);
            }
        }
        to.numbers(&self.doomed);
        to.numbers(&self.orphans);
        let mut bytes = to.0;
        let length = u32::try_from(bytes.len()).expect("a record is shorter than a segment");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Blocks of the record that begins with this one, if one does, and its number.
    ///
    /// # Errors
    /// If none begins with it.
    pub fn length(first: &Bytes, volume: Option<u64>) -> Result<(u32, u64, u64), NoRecord> {
        let failed = |why| NoRecord::Block { block: 0, why };
        let volume = match volume {
            Some(volume) => volume,
            None => crate::block::look(first).map_err(failed)?.volume,
        };
        let seen = verify(first, Kind::Record, 0, volume).map_err(failed)?;
        let bytes = crate::block::number_at(first, HEADER_BYTES);
        Ok((bytes.div_ceil(PAYLOAD_BYTES as u32).max(1), seen.sequence, volume))
    }

    /// The record in these blocks.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(blocks: &[Box<Bytes>], volume: u64) -> Result<Record, NoRecord> {
        let mut bytes = Vec::with_capacity(blocks.len() * PAYLOAD_BYTES);
        let mut sequence = None;
        for (block, index) in blocks.iter().zip(0..) {
            let failed = |why| NoRecord::Block { block: index, why };
            let seen = verify(block, Kind::Record, index, volume).map_err(failed)?;
            if *sequence.get_or_insert(seen.sequence) != seen.sequence {
                return Err(NoRecord::Impossible("blocks are of several records"));
            }
            bytes.extend_from_slice(&block[HEADER_BYTES..]);
        }
        let length = crate::block::number_at(blocks.first().ok_or(NoRecord::Impossible("length"))?, HEADER_BYTES);
        let within = bytes.get(4..length as usize).ok_or(NoRecord::Impossible("length"))?;
        let record = Record::parse(within).ok_or(NoRecord::Impossible("contents end too early"))?;
        if Some(record.sequence) != sequence {
            return Err(NoRecord::Impossible("number"));
        }
        record.is_possible().map(|()| record)
    }

    fn parse(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let sequence = u64::from_le_bytes(from.bytes()?);
        let is_whole = from.number()? != 0;
        let shape = Shape { segments: from.number()?, segment_blocks: from.number()? };
        let (next_generation, files, map_blocks) = (from.number()?, from.number()?, from.number()?);
        let mut heads = [None; LOGS];
        for head in &mut heads {
            let (segment, written) = (from.number()?, from.number()?);
            *head = (segment != 0).then_some(HeadPlace { segment, written });
        }
        let map = from.items(8, |from| {
            let (address, free) = (from.number()?, from.number()?);
            Some(MapBlock { address, free: free.try_into().ok()? })
        })?;
        let nodes = from.items(8, |from| Some((from.number()?, from.number()?)))?;
        let patches = from.items(8, |from| Some((from.number()?, from.number()?)))?;
        let segments = from.items(16, |from| {
            let (index, valid, age, word) = (from.number()?, from.number()?, from.number()?, from.number()?);
            let state = State::from_number(word.try_into().ok()?)?;
            Some((index, Segment { valid, age, state, reading: 0 }))
        })?;
        let owners = from.items(12, |from| {
            let (segment, first) = (from.number()?, from.number()?);
            let owners = from.items(8, |from| Some(Owner { node: from.number()?, slot: from.number()? }))?;
            Some(NewOwners { segment, first, owners })
        })?;
        let doomed = from.items(4, Reader::number)?;
        let orphans = from.items(4, Reader::number)?;
        Some(Record {
            is_whole,
            sequence,
            shape,
            next_generation,
            files,
            map_blocks,
            heads,
            map,
            nodes,
            patches,
            segments,
            owners,
            doomed,
            orphans,
        })
    }

    /// Whether no part of it contradicts another one. Only the program that writes records can make one that does.
    fn is_possible(&self) -> Result<(), NoRecord> {
        use crate::segments::{ANCHORS, SEGMENT_BLOCKS_MIN, SEGMENTS_MIN};
        let Shape { segments, segment_blocks } = self.shape;
        let fine = |is: bool, what| if is { Ok(()) } else { Err(NoRecord::Impossible(what)) };
        let blocks = u64::from(segments) * u64::from(segment_blocks);
        let is_shape = segments >= SEGMENTS_MIN && segment_blocks >= SEGMENT_BLOCKS_MIN && blocks <= 1 << 32;
        fine(is_shape, "division into segments")?;
        let is_segment = |index: u32| (ANCHORS..segments).contains(&index);
        let is_address = |address: u32| address == 0 || is_segment(self.shape.segment_of(address));
        let data_blocks = self.shape.data_blocks();
        let head_is_fine = |head: &HeadPlace| is_segment(head.segment) && head.written <= data_blocks;
        fine(self.heads.iter().flatten().all(head_is_fine), "heads of logs")?;
        let map_fits = !self.is_whole || self.map.len() == self.map_blocks as usize;
        fine(map_fits && self.map.iter().all(|block| is_address(block.address)), "map")?;
        fine(self.sequence < SEQUENCE_END, "number")?;
        fine(self.map_blocks <= self.shape.map_blocks_max(), "map")?;
        let nodes = self.map_blocks.saturating_mul(crate::node_map::NODES_PER_BLOCK);
        let is_node = |node: u32| node > 0 && node < nodes;
        fine(self.nodes.iter().all(|(node, address)| is_node(*node) && is_address(*address)), "nodes")?;
        let is_patch = |(node, address): &(u32, u32)| is_node(*node) && *address != 0 && is_address(*address);
        let patches_fit = self.patches.len() <= self.shape.patches_max() as usize;
        fine(patches_fit && self.patches.iter().all(is_patch), "patches")?;
        let valid_fits = |(index, segment): &(u32, Segment)| {
            let most = match segment.state {
                State::Free => 0,
                State::Open | State::Full | State::Failed => data_blocks,
                // It is never said.
                State::Trimmed => return false,
            };
            is_segment(*index) && segment.valid <= most
        };
        let all_there = !self.is_whole || self.segments.len() == (segments - ANCHORS) as usize;
        fine(all_there && self.segments.iter().all(valid_fits), "segments")?;
        let owners_fit =
            |new: &NewOwners| is_segment(new.segment) && new.first as usize + new.owners.len() <= data_blocks as usize;
        fine(self.owners.iter().all(owners_fit), "owners")?;
        let mut gone: Vec<u32> = self.doomed.iter().chain(&self.orphans).copied().collect();
        gone.sort_unstable();
        let is_each_once = gone.windows(2).all(|pair| pair[0] != pair[1]);
        fine(is_each_once && gone.into_iter().all(is_node), "doomed nodes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let shape = Shape { segments: 64, segment_blocks: 32 };
        let segment = |index| (index, Segment { valid: index % 30, age: 7, state: State::Full, ..Segment::default() });
        let mut heads = [None; LOGS];
        heads[2] = Some(HeadPlace { segment: 9, written: 5 });
        Record {
            is_whole: true,
            sequence: 12,
            shape,
            next_generation: 5,
            files: 3,
            map_blocks: 2,
            heads,
            map: vec![MapBlock { address: 70, free: 3 }, MapBlock::default()],
            nodes: (1..900).map(|node| (node, 64 + node)).collect(),
            patches: vec![(4, 77), (9, 77)],
            segments: (2..64).map(segment).collect(),
            owners: vec![NewOwners { segment: 9, first: 0, owners: vec![Owner { node: 4, slot: 2 }; 5] }],
            doomed: vec![6, 7],
            orphans: vec![8],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let blocks = record().blocks(5);
        assert_eq!(Record::length(&blocks[0], None), Ok((blocks.len() as u32, 12, 5)));
        assert!(blocks.len() > 1);
        assert_eq!(Record::read(&blocks, 5), Ok(record()));
        assert!(Record::read(&blocks[1..], 5).is_err());
        assert!(Record::read(&blocks[..1], 5).is_err());
    }

    #[test]
    fn an_impossible_record_is_refused() {
        let wrong = |change: fn(&mut Record)| {
            let mut record = record();
            change(&mut record);
            Record::read(&record.blocks(5), 5).unwrap_err()
        };
        assert_eq!(wrong(|record| record.nodes[0].1 = 3), NoRecord::Impossible("nodes"));
        assert_eq!(wrong(|record| record.patches[0].1 = 0), NoRecord::Impossible("patches"));
        assert_eq!(wrong(|record| record.patches = vec![(4, 77); 1000]), NoRecord::Impossible("patches"));
        assert_eq!(wrong(|record| record.segments[0].1.valid = 32), NoRecord::Impossible("segments"));
        assert_eq!(wrong(|record| record.doomed[0] = 0), NoRecord::Impossible("doomed nodes"));
        assert_eq!(wrong(|record| record.shape.segments = 63), NoRecord::Impossible("division into segments"));
        assert_eq!(wrong(|record| record.map_blocks = 1), NoRecord::Impossible("map"));
    }
}
