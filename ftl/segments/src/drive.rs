//! The drive: append-only segments as a [`BlockTarget`].
//!
//! A read may reach over segments, and then is several reads of zones; everything else is one request of one zone, whose tag it keeps.

use crate::trims::Trims;
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::{Clock, Frame, FrameForm, Frames, Time};
use openftl_media::Media;
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{
    AppendError, BlockTarget, Done, Durability, IoError, Request, SegmentFacts, SegmentTarget, Target, Vitals,
};
use openftl_parts::words::{Access, TRANSACTION_BLOCKS_MAX};
use openftl_zones::{AskedLimits, Face, ZoneConfig, ZoneDone, ZoneError, ZoneFtl, ZoneRequest, ZoneState};
use std::collections::BTreeMap;
use std::ops::DerefMut;

/// Marks the tags of parts of reads: the rest is the number of the read, and which part it is.
const OF_PART: u64 = 1 << 60;

/// Bits for the latter: no read has as many parts.
const PART_BITS: u32 = 9;

const _: () = assert!(TRANSACTION_BLOCKS_MAX < 1 << PART_BITS, "each block of a read may be of a segment of its own");

/// Tags of the host are below this.
pub const TAGS: u64 = OF_PART;

/// A read of several segments.
#[derive(Debug)]
struct Joined {
    tag: u64,
    parts: u32,
    result: Result<(), IoError>,
}

/// A drive of append-only segments: the zones that `Z` has, a box or a reference. See the module.
pub struct SegmentFtl<Z> {
    trims: Trims,
    /// Reads of several segments, by the number in the tags of their parts.
    joined: BTreeMap<u64, Joined>,
    next_joined: u64,
    /// What ended at once.
    done: Vec<Done>,
    ended: Vec<ZoneDone>,
    zones: Z,
}

impl<Z: DerefMut<Target: DerefMut<Target = ZoneFtl>>> SegmentFtl<Z> {
    /// The segments that the zones of a drive are.
    #[must_use]
    pub fn of(zones: Z) -> SegmentFtl<Z> {
        let trims = Trims::new(zones.layout().capacity);
        SegmentFtl { trims, joined: BTreeMap::new(), next_joined: 0, done: Vec::new(), ended: Vec::new(), zones }
    }

    /// What has the zones, again.
    #[must_use]
    pub fn into_zones(self) -> Z {
        self.zones
    }

    /// The same drive as zones: states, statistics, the block FTL beside them.
    #[must_use]
    pub fn zones(&self) -> &Z::Target {
        &self.zones
    }

    /// The same, for what does not end in a request: requests to the zones themselves would end here.
    pub fn zones_mut(&mut self) -> &mut Z::Target {
        &mut self.zones
    }

    /// What is trimmed in part.
    #[must_use]
    pub fn trims(&self) -> &Trims {
        &self.trims
    }

    /// Blocks of a segment.
    fn capacity(&self) -> u64 {
        u64::from(self.zones.layout().capacity)
    }

    /// The first block of the segment that `block` is in, and what zones call `block`.
    fn place_of(&self, block: u64) -> (u64, u64) {
        let capacity = self.capacity();
        let (segment, within) = (block / capacity, block % capacity);
        (block - within, segment * self.zones.layout().size + within)
    }

    /// Whether `blocks` blocks from `first` on are there.
    fn expect_inside(&self, first: u64, blocks: u64) -> Result<(), IoError> {
        let capacity = BlockTarget::blocks(self);
        if blocks == 0 || first.checked_add(blocks).is_none_or(|end| end > capacity) {
            return Err(IoError::OutOfRange { first, blocks, capacity });
        }
        Ok(())
    }

    fn read(&mut self, now: Time, tag: u64, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        let blocks = frames.len() as u64;
        self.expect_inside(first, blocks)?;
        if frames.len() > TRANSACTION_BLOCKS_MAX {
            return Err(IoError::OutOfRange { first, blocks, capacity: BlockTarget::blocks(self) });
        }
        let (begins, place) = self.place_of(first);
        let here = self.capacity() - (first - begins);
        if blocks <= here {
            let begun = self.zones.submit(now, tag, ZoneRequest::Read { first: place, frames });
            return begun.map_err(|error| self.explain(first, blocks, error));
        }
        let number = self.next_joined;
        self.next_joined += 1;
        let mut joined = Joined { tag, parts: 0, result: Ok(()) };
        let (mut at, mut rest) = (first, frames);
        while !rest.is_empty() {
            let (begins, place) = self.place_of(at);
            let here = (self.capacity() - (at - begins)).min(rest.len() as u64);
            let (frames, behind) = rest.split_at(here as usize);
            let part = OF_PART | number << PART_BITS | u64::from(joined.parts);
            match self.zones.submit(now, part, ZoneRequest::Read { first: place, frames }) {
                Ok(()) => joined.parts += 1,
                Err(error) => {
                    let error = self.explain(at, here, error);
                    joined.result = Err(joined.result.err().map_or(error, |other| other.or_earlier(error)));
                }
            }
            (at, rest) = (at + here, behind);
        }
        match (joined.parts, joined.result) {
            (0, Err(error)) => Err(error),
            _ => {
                self.joined.insert(number, joined);
                Ok(())
            }
        }
    }

    fn write(
        &mut self,
        now: Time,
        tag: u64,
        first: u64,
        frames: &[Frame],
        durability: Durability,
    ) -> Result<(), IoError> {
        let blocks = frames.len() as u64;
        self.expect_inside(first, blocks)?;
        let (_, place) = self.place_of(first);
        let begun = self.zones.submit(now, tag, ZoneRequest::Write { first: place, frames, durability });
        begun.map_err(|error| self.explain(first, blocks, error))
    }

    fn trim(&mut self, now: Time, tag: u64, first: u64, blocks: u64, durability: Durability) -> Result<(), IoError> {
        self.expect_inside(first, blocks)?;
        if self.zones.is_read_only() {
            return Err(IoError::ReadOnly);
        }
        let (capacity, end) = (self.capacity(), first + blocks);
        for segment in first / capacity..=(end - 1) / capacity {
            let begins = segment * capacity;
            let (from, to) = (first.max(begins) - begins, end.min(begins + capacity) - begins);
            let zone = segment as u32;
            let shown = self.zones.board().zone(zone);
            let is_there = !matches!(shown.state, ZoneState::Empty | ZoneState::Offline);
            if is_there && self.trims.trim(zone, from as u32, to as u32, shown.written) {
                // A segment whose medium has failed is never written again: its chunks and what is in memory of it are given back.
                let act = if shown.state == ZoneState::ReadOnly { ZoneFtl::take_offline } else { ZoneFtl::reset };
                act(&mut self.zones, now, zone).expect("a segment that is written can be emptied");
                self.trims.forget(zone);
            }
        }
        match durability {
            Durability::Volatile => self.done.push(Done { tag, result: Ok(()), at: now }),
            Durability::Durable => self.flush(now, tag)?,
        }
        Ok(())
    }

    fn flush(&mut self, now: Time, tag: u64) -> Result<(), IoError> {
        self.zones.submit(now, tag, ZoneRequest::Flush).map_err(|error| self.explain(0, 0, error))
    }

    /// What a zone has refused of a request for these blocks, in the words of segments.
    fn explain(&self, first: u64, blocks: u64, error: ZoneError) -> IoError {
        let begins = u64::from(error.zone().unwrap_or(0)) * self.capacity();
        let boundary = begins + self.capacity();
        match error {
            ZoneError::Boundary { .. } => AppendError::Crossing { first, end: first + blocks, boundary }.into(),
            ZoneError::Full { .. } if first + blocks > boundary => {
                AppendError::Crossing { first, end: first + blocks, boundary }.into()
            }
            ZoneError::Full { .. } => AppendError::Overwrite { first, expected: boundary }.into(),
            ZoneError::InvalidWrite { at, expected, .. } if at < expected => {
                AppendError::Overwrite { first, expected: begins + u64::from(expected) }.into()
            }
            ZoneError::InvalidWrite { expected, .. } => {
                AppendError::Gap { first, expected: begins + u64::from(expected) }.into()
            }
            ZoneError::TooManyActive { limit } | ZoneError::TooManyOpen { limit } => {
                AppendError::TooManyOpen { limit }.into()
            }
            // Of the latter none is for blocks: they are refused to hosts that see zones.
            ZoneError::ReadOnly { .. }
            | ZoneError::InvalidTransition { .. }
            | ZoneError::NotEmpty { .. }
            | ZoneError::TooManyWindows { .. }
            | ZoneError::WindowOfWritten { .. }
            | ZoneError::NoWindows
            | ZoneError::NoWindow { .. }
            | ZoneError::AppendToWindow { .. }
            | ZoneError::OutsideWindow { .. }
            | ZoneError::NoExtension => AppendError::SegmentReadOnly { boundary }.into(),
            ZoneError::Offline { .. } => IoError::Unrecovered { block: first },
            ZoneError::DriveReadOnly(_) => IoError::ReadOnly,
            ZoneError::OutOfRange { .. } | ZoneError::Length { .. } | ZoneError::NotAZone { .. } => {
                IoError::OutOfRange { first, blocks, capacity: BlockTarget::blocks(self) }
            }
            ZoneError::Io(error) => error.renamed(|place| {
                let size = self.zones.layout().size;
                place / size * self.capacity() + place % size
            }),
        }
    }

    /// A read of several segments loses one of its parts. Returns how it ended, if that was the last one.
    fn join(&mut self, number: u64, result: Result<(), IoError>, at: Time) -> Option<Done> {
        let joined = self.joined.get_mut(&number).expect("a part is of a read under way");
        if let Err(error) = result {
            joined.result = Err(joined.result.err().map_or(error, |other| other.or_earlier(error)));
        }
        joined.parts -= 1;
        if joined.parts > 0 {
            return None;
        }
        let Joined { tag, result, .. } = self.joined.remove(&number)?;
        Some(Done { tag, result, at })
    }
}

impl<Z: DerefMut<Target: DerefMut<Target = ZoneFtl>>> Target for SegmentFtl<Z> {
    type Done = Done;

    fn frames(&self) -> &Frames {
        self.zones.frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        self.zones.frames_mut()
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        done.append(&mut self.done);
        let mut ended = std::mem::take(&mut self.ended);
        self.zones.poll(now, &mut ended);
        for ZoneDone { tag, result, at, .. } in ended.drain(..) {
            let result = result.map_err(|error| self.explain(0, 0, error));
            if tag & OF_PART == 0 {
                done.push(Done { tag, result, at });
            } else {
                done.extend(self.join((tag & !OF_PART) >> PART_BITS, result, at));
            }
        }
        self.ended = ended;
    }

    fn next_due(&self) -> Option<Time> {
        if self.done.is_empty() { self.zones.next_due() } else { Some(Time::ZERO) }
    }

    fn is_read_only(&self) -> bool {
        self.zones.is_read_only()
    }

    fn vitals(&self) -> Option<Vitals> {
        self.zones.vitals()
    }

    fn give_up(&mut self, now: Time) -> String {
        self.zones.give_up(now)
    }
}

impl<Z: DerefMut<Target: DerefMut<Target = ZoneFtl>>> BlockTarget for SegmentFtl<Z> {
    fn blocks(&self) -> u64 {
        u64::from(self.zones.layout().zones) * self.capacity()
    }

    fn payload_form(&self) -> FrameForm {
        self.zones.payload_form()
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        assert!(tag < TAGS, "tags from {TAGS:#x} on are the drive's own");
        match request {
            Request::Read { first, frames } => self.read(now, tag, first, frames),
            Request::Write { first, frames, durability, .. } => self.write(now, tag, first, frames, durability),
            Request::Trim { first, blocks, durability } => self.trim(now, tag, first, blocks, durability),
            Request::Flush => self.flush(now, tag),
            Request::WriteUncorrectable { .. } | Request::FlashAlloc { .. } => Err(AppendError::NoSuchRequest.into()),
        }
    }

    fn segment_blocks(&self) -> Option<u64> {
        Some(self.capacity())
    }
}

impl<Z: DerefMut<Target: DerefMut<Target = ZoneFtl>>> SegmentTarget for SegmentFtl<Z> {
    fn segment(&self, segment: u32) -> SegmentFacts {
        let zone = self.zones.board().zone(segment);
        let is_writable = !matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
        SegmentFacts { written: zone.written, is_writable }
    }

    fn segments_in_part_max(&self) -> u32 {
        self.zones.board().limits().max_active
    }
}

impl<M: Media> Ftl for SegmentFtl<Box<ZoneFtl<M>>> {
    type Media = M;
    type Shape = ZoneConfig;
    type Asked = AskedLimits;

    fn format(media: M, config: Config, segments: ZoneConfig, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let segments = ZoneConfig { face: Face::Segments, ..segments };
        ZoneFtl::format(media, config, segments, clock).map(Box::new).map(SegmentFtl::of)
    }

    fn open_with(
        media: M,
        config: Config,
        limits: AskedLimits,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        ZoneFtl::open_with(media, config, limits, access, clock).map(Box::new).map(SegmentFtl::of)
    }

    fn block(&self) -> &BlockFtl<M> {
        self.zones.block()
    }

    fn reset_statistics(&mut self) {
        self.zones.reset_statistics();
    }

    fn map_memory_bytes(&self) -> u64 {
        self.zones.map_memory_bytes()
    }

    fn over_provisioning(&self) -> f64 {
        self.zones.over_provisioning()
    }

    fn describe(&self) -> String {
        self.zones.describe()
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        self.zones.check(clock, progress)
    }

    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        self.zones.close(clock)
    }

    fn crash(self) -> M {
        self.zones.crash()
    }
}
