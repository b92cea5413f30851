//! A drive of segments in memory: the rules of AMF I/O without flash, for those who test a host of segments, or want to change what is written.
//!
//! Requests end at once. Its faults are those that a drive of segments on flash shows its host:
//!
//! | fault | what the host sees |
//! |---|---|
//! | [`MemorySegments::lose`] | reads of the block fail |
//! | [`MemorySegments::lose_for`] | so many reads of the block fail, and no later ones |
//! | [`MemorySegments::fail`] | the segment takes no more writes; flushes fail as long as it has something that was not flushed before. A trim takes it offline |
//! | [`MemorySegments::power_cut`] | what was not flushed is gone |

use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, OOB_BYTES_MIN, Time};
use openftl_parts::target::{
    AppendError, BlockTarget, Done, Durability, IoError, REQUESTS_MAX, Request, SegmentFacts, SegmentTarget, Target,
};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The bytes of a block, which forks of a drive share.
type Block = Rc<[u8; BLOCK_BYTES]>;

#[derive(Clone, Default, Debug)]
struct Segment {
    blocks: Vec<Block>,
    /// So many of them would survive a power cut.
    durable: usize,
    has_failed: bool,
    is_offline: bool,
}

/// See the module.
pub struct MemorySegments {
    frames: Frames,
    segment_blocks: usize,
    segments: Vec<Segment>,
    lost: BTreeSet<u64>,
    /// Of blocks: so many reads of it fail.
    lost_for: BTreeMap<u64, u32>,
    done: Vec<Done>,
    /// Writes so far.
    writes: u64,
    /// The first write from this number on, to this segment or a later one, finds its segment failed.
    failing_writes: Vec<(u64, u32)>,
    is_worn_out: bool,
    /// Requests that end with one poll, at most.
    requests_max: usize,
}

impl MemorySegments {
    /// An empty drive.
    #[must_use]
    pub fn new(segments: u32, segment_blocks: u32, frames: usize) -> MemorySegments {
        MemorySegments {
            frames: Frames::new(frames, 0, OOB_BYTES_MIN),
            segment_blocks: segment_blocks as usize,
            segments: vec![Segment::default(); segments as usize],
            lost: BTreeSet::new(),
            lost_for: BTreeMap::new(),
            done: Vec::new(),
            writes: 0,
            failing_writes: Vec::new(),
            is_worn_out: false,
            requests_max: REQUESTS_MAX,
        }
    }

    /// Another drive with the same contents, and nothing under way.
    #[must_use]
    pub fn fork(&self) -> MemorySegments {
        MemorySegments {
            frames: Frames::new(self.frames.len(), 0, OOB_BYTES_MIN),
            segments: self.segments.clone(),
            lost: self.lost.clone(),
            lost_for: self.lost_for.clone(),
            done: Vec::new(),
            failing_writes: self.failing_writes.clone(),
            ..*self
        }
    }

    fn place(&self, block: u64) -> (usize, usize) {
        let block = usize::try_from(block).expect("a drive in memory is smaller than memory");
        (block / self.segment_blocks, block % self.segment_blocks)
    }

    /// The bytes of a block, if it is written.
    #[must_use]
    pub fn block(&self, block: u64) -> Option<&[u8; BLOCK_BYTES]> {
        let (segment, within) = self.place(block);
        self.segments.get(segment)?.blocks.get(within).map(|block| &**block)
    }

    /// The same, to be changed.
    pub fn block_mut(&mut self, block: u64) -> Option<&mut [u8; BLOCK_BYTES]> {
        let (segment, within) = self.place(block);
        self.segments.get_mut(segment)?.blocks.get_mut(within).map(Rc::make_mut)
    }

    /// Blocks that are written, of all segments.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        let first = (0..).step_by(self.segment_blocks);
        first.zip(&self.segments).flat_map(|(first, segment)| first..first + segment.blocks.len() as u64)
    }

    /// Reads of a block fail from now on, until its segment is trimmed.
    pub fn lose(&mut self, block: u64) {
        self.lost.insert(block);
    }

    /// So many reads of a block fail, and no later ones.
    pub fn lose_for(&mut self, block: u64, reads: u32) {
        self.lost_for.insert(block, reads);
    }

    /// Whether a read of a block fails.
    fn is_lost(&mut self, block: u64) -> bool {
        let left = self.lost_for.get_mut(&block).filter(|left| **left > 0);
        let fails = left.map(|left| *left -= 1).is_some();
        fails || self.lost.contains(&block)
    }

    /// The medium of a segment fails.
    pub fn fail(&mut self, segment: u32) {
        self.segments[segment as usize].has_failed = true;
    }

    /// The medium of a segment fails, of `from` or a later one: that which is written to next when `writes` more writes have been.
    pub fn fail_at_write(&mut self, writes: u64, from: u32) {
        self.failing_writes.push((self.writes + writes, from));
    }

    /// The drive takes no more writes, trims and flushes.
    pub fn wear_out(&mut self) {
        self.is_worn_out = true;
    }

    /// The drive takes so many requests at a time.
    pub fn take_at_most(&mut self, requests: usize) {
        self.requests_max = requests;
    }

    /// Writes so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Segments that have failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.segments.iter().filter(|segment| segment.has_failed).count()
    }

    /// The power is cut, and is back.
    pub fn power_cut(&mut self) {
        self.done.clear();
        self.failing_writes.clear();
        self.frames = Frames::new(self.frames.len(), 0, OOB_BYTES_MIN);
        self.segments.iter_mut().for_each(|segment| segment.blocks.truncate(segment.durable));
    }

    fn read(&mut self, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        let mut result = Ok(());
        for (block, frame) in (first..).zip(frames) {
            let is_lost = self.is_lost(block);
            let (segment, within) = self.place(block);
            let segment = &self.segments[segment];
            match segment.blocks.get(within) {
                _ if segment.is_offline || is_lost => {
                    result = result.and(Err(IoError::Unrecovered { block }));
                }
                Some(bytes) => self.frames.bytes_mut(*frame).copy_from_slice(&bytes[..]),
                None => self.frames.bytes_mut(*frame).fill(0),
            }
        }
        result
    }

    fn write(&mut self, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        let (index, within) = self.place(first);
        let segment_blocks = self.segment_blocks;
        let begins = (index * segment_blocks) as u64;
        let boundary = begins + segment_blocks as u64;
        let hits = |(number, from): &(u64, u32)| *number <= self.writes && index >= *from as usize;
        if let Some(at) = self.failing_writes.iter().position(hits) {
            self.failing_writes.swap_remove(at);
            self.segments[index].has_failed = true;
        }
        self.writes += 1;
        let in_part = self.in_part();
        let segment = &mut self.segments[index];
        let expected = begins + segment.blocks.len() as u64;
        if segment.has_failed {
            return Err(AppendError::SegmentReadOnly { boundary }.into());
        }
        if within < segment.blocks.len() {
            return Err(AppendError::Overwrite { first, expected }.into());
        }
        if within > segment.blocks.len() {
            return Err(AppendError::Gap { first, expected }.into());
        }
        if within + frames.len() > segment_blocks {
            return Err(AppendError::Crossing { first, end: first + frames.len() as u64, boundary }.into());
        }
        if within == 0 && in_part >= IN_PART_MAX as usize {
            return Err(AppendError::TooManyOpen { limit: IN_PART_MAX }.into());
        }
        for frame in frames {
            segment.blocks.push(Rc::new(*self.frames.bytes(*frame)));
            self.frames.release(*frame);
        }
        Ok(())
    }

    /// Segments that are written in part, and may be written on.
    fn in_part(&self) -> usize {
        let is_in_part =
            |segment: &&Segment| !segment.has_failed && (1..self.segment_blocks).contains(&segment.blocks.len());
        self.segments.iter().filter(is_in_part).count()
    }

    /// Only whole segments: hosts that trim in part are for the drive on flash.
    fn trim(&mut self, first: u64, blocks: u64) -> Result<(), IoError> {
        let (begin, end) = (self.place(first), self.place(first + blocks));
        if begin.1 != 0 || end.1 != 0 {
            return Err(AppendError::NoSuchRequest.into());
        }
        self.lost.retain(|block| !(first..first + blocks).contains(block));
        for segment in &mut self.segments[begin.0..end.0] {
            let has_failed = segment.has_failed;
            *segment = Segment { has_failed, is_offline: has_failed, ..Segment::default() };
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let mut result = Ok(());
        for (index, segment) in self.segments.iter_mut().enumerate() {
            if segment.has_failed && segment.durable < segment.blocks.len() {
                let boundary = ((index + 1) * self.segment_blocks) as u64;
                result = result.and(Err(AppendError::SegmentReadOnly { boundary }.into()));
            } else {
                segment.durable = segment.blocks.len();
            }
        }
        result
    }
}

/// Segments that may be written in part at a time.
const IN_PART_MAX: u32 = 8;

impl Target for MemorySegments {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    fn poll(&mut self, _now: Time, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        (!self.done.is_empty()).then_some(Time::ZERO)
    }

    fn is_read_only(&self) -> bool {
        self.is_worn_out
    }
}

impl BlockTarget for MemorySegments {
    fn blocks(&self) -> u64 {
        (self.segments.len() * self.segment_blocks) as u64
    }

    fn payload_form(&self) -> FrameForm {
        FrameForm::Bytes
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        let (first, blocks) = match request {
            Request::Read { first, frames } | Request::Write { first, frames, .. } => (first, frames.len() as u64),
            Request::Trim { first, blocks, .. } => (first, blocks),
            Request::Flush => (0, 1),
            Request::WriteUncorrectable { .. } | Request::FlashAlloc { .. } => {
                return Err(AppendError::NoSuchRequest.into());
            }
        };
        let is_too_long = !matches!(request, Request::Trim { .. }) && blocks > TRANSACTION_BLOCKS_MAX as u64;
        let capacity = self.blocks();
        if self.done.len() >= self.requests_max {
            return Err(IoError::QueueFull);
        }
        if self.is_worn_out && !matches!(request, Request::Read { .. }) {
            return Err(IoError::ReadOnly);
        }
        if blocks == 0 || is_too_long || first.checked_add(blocks).is_none_or(|end| end > capacity) {
            return Err(IoError::OutOfRange { first, blocks, capacity });
        }
        let result = match request {
            Request::Read { first, frames } => self.read(first, frames),
            Request::Write { first, frames, durability, .. } => {
                self.write(first, frames)?;
                if durability == Durability::Durable { self.flush() } else { Ok(()) }
            }
            Request::Trim { first, blocks, .. } => self.trim(first, blocks),
            _ => self.flush(),
        };
        self.done.push(Done { tag, result, at: now });
        Ok(())
    }

    fn segment_blocks(&self) -> Option<u64> {
        Some(self.segment_blocks as u64)
    }
}

impl SegmentTarget for MemorySegments {
    fn segment(&self, segment: u32) -> SegmentFacts {
        let Segment { blocks, has_failed, .. } = &self.segments[segment as usize];
        SegmentFacts { written: blocks.len() as u32, is_writable: !has_failed }
    }

    fn segments_in_part_max(&self) -> u32 {
        IN_PART_MAX
    }
}
