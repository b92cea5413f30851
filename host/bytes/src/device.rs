//! Commands of a host to an Open-Channel device, whose blocks travel with their out-of-band bytes behind them.
//!
//! ```text
//!   bytes   ┌──────────────┬─────┬──────────────┬─────┬ …
//!           │   4 KiB      │ oob │   4 KiB      │ oob │
//!           └──────────────┴─────┴──────────────┴─────┴ …
//!   frames  └─── first ────┘     └─── second ───┘          each with room for its out-of-band bytes
//! ```
//!
//! As with a drive, a command takes its frames when it is admitted, or it is not admitted. The device sees commands in the
//! order in which they are started, also when its queue was full for a while.

use std::collections::VecDeque;

use openftl_core::{BLOCK_BYTES, FrameForm, Frames, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Blocks, Command, Completion, Media, Status};

use crate::RequestId;
use crate::places::Places;

/// What a host wants of a device: a command whose data have no frames yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceRequest<'a> {
    /// As [`Command::Read`].
    Read(Blocks<'a>),
    /// As [`Command::Write`].
    Write {
        /// Where to write.
        blocks: Blocks<'a>,
        /// Force unit access.
        fua: bool,
    },
    /// As [`Command::Reset`].
    Reset(Blocks<'a>),
    /// As [`Command::Copy`].
    Copy {
        /// Sources.
        from: &'a [Ppa],
        /// Destinations.
        to: &'a [Ppa],
        /// Force unit access.
        fua: bool,
    },
    /// As [`Command::Flush`].
    Flush,
}

impl DeviceRequest<'_> {
    /// How many frames the command holds from admission on.
    #[must_use]
    pub fn frames_needed(&self) -> usize {
        match self {
            DeviceRequest::Read(blocks) | DeviceRequest::Write { blocks, .. } => blocks.len(),
            DeviceRequest::Reset(_) | DeviceRequest::Copy { .. } | DeviceRequest::Flush => 0,
        }
    }
}

/// A command has ended; the host releases it when it has looked at its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceFinished<K> {
    /// The command.
    pub id: RequestId,
    /// The host's ticket.
    pub ticket: K,
    /// How.
    pub completion: Completion,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Read,
    Write { fua: bool },
    Reset,
    Copy { fua: bool },
    Flush,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Free,
    Admitted,
    /// Started.
    Running,
    Finished,
}

struct Op<K> {
    ticket: K,
    stage: Stage,
    action: Action,
    /// Where a scalar command begins; the others have lists.
    scalar: Option<Ppa>,
    count: usize,
    at: [Ppa; VECTOR_BLOCKS_MAX],
    to: [Ppa; VECTOR_BLOCKS_MAX],
    frames: Vec<openftl_core::Frame>,
}

impl<K> Op<K> {
    fn command(&self) -> Command<'_> {
        let list = &self.at[..self.count.min(VECTOR_BLOCKS_MAX)];
        let blocks = match self.scalar {
            Some(first) => Blocks::Scalar { first, count: self.count as u32 },
            None => Blocks::Vector(list),
        };
        match self.action {
            Action::Read => Command::Read { blocks, frames: &self.frames },
            Action::Write { fua } => Command::Write { blocks, frames: &self.frames, fua },
            Action::Reset => Command::Reset { blocks },
            Action::Copy { fua } => Command::Copy { from: list, to: &self.to[..list.len()], fua },
            Action::Flush => Command::Flush,
        }
    }
}

/// The commands under way on one device. Each carries a ticket of the host's, which comes back when it has finished.
pub struct DeviceRequests<K> {
    ops: Places<Op<K>>,
    /// What the device had no room for.
    backlog: VecDeque<u32>,
    completions: Vec<Completion>,
}

impl<K: Copy> DeviceRequests<K> {
    /// Room for `requests_max` commands.
    #[must_use]
    pub fn new(requests_max: usize) -> DeviceRequests<K> {
        DeviceRequests { ops: Places::new(requests_max), backlog: VecDeque::new(), completions: Vec::new() }
    }

    /// Commands admitted and not released.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether no command is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives `request` a place and its frames, or `None` while there are not enough of either.
    ///
    /// # Panics
    /// If a list is longer than a vector may be.
    pub fn admit(&mut self, frames: &mut Frames, ticket: K, request: DeviceRequest<'_>) -> Option<RequestId> {
        let none = Blocks::Vector(&[]);
        let (action, blocks, to) = match request {
            DeviceRequest::Read(blocks) => (Action::Read, blocks, &[][..]),
            DeviceRequest::Write { blocks, fua } => (Action::Write { fua }, blocks, &[][..]),
            DeviceRequest::Reset(blocks) => (Action::Reset, blocks, &[][..]),
            DeviceRequest::Copy { from, to, fua } => (Action::Copy { fua }, Blocks::Vector(from), to),
            DeviceRequest::Flush => (Action::Flush, none, &[][..]),
        };
        let needed = request.frames_needed();
        if self.ops.is_full() || frames.available(FrameForm::Bytes) < needed {
            return None;
        }
        let index = self.ops.take(|| Op {
            ticket,
            stage: Stage::Free,
            action,
            scalar: None,
            count: 0,
            at: [Ppa(0); VECTOR_BLOCKS_MAX],
            to: [Ppa(0); VECTOR_BLOCKS_MAX],
            frames: Vec::new(),
        });
        let op = &mut self.ops[index];
        assert_eq!(op.stage, Stage::Free, "a free place holds no command");
        (op.ticket, op.stage, op.action, op.count) = (ticket, Stage::Admitted, action, blocks.len());
        op.scalar = match blocks {
            Blocks::Scalar { first, .. } => Some(first),
            Blocks::Vector(list) => {
                op.at[..list.len()].copy_from_slice(list);
                None
            }
        };
        op.to[..to.len()].copy_from_slice(to);
        assert!(frames.acquire_many(FrameForm::Bytes, needed, &mut op.frames), "the frames were counted before");
        Some(RequestId(index))
    }

    /// Bytes of data of an admitted command.
    #[must_use]
    pub fn length(&self, frames: &Frames, id: RequestId) -> u64 {
        let op = &self.ops[id.0];
        op.frames.first().map_or(0, |frame| (op.frames.len() * (BLOCK_BYTES + frames.oob(*frame).len())) as u64)
    }

    /// The bytes of a finished read from byte `from` on, up to the end of a block or of its out-of-band bytes.
    #[must_use]
    pub fn slice<'a>(&self, frames: &'a Frames, id: RequestId, from: u64) -> &'a [u8] {
        let (frame, within) = self.place(frames, id, from);
        if within < BLOCK_BYTES { &frames.bytes(frame)[within..] } else { &frames.oob(frame)[within - BLOCK_BYTES..] }
    }

    /// Where the bytes of an admitted write go from byte `from` on, up to the end of a block or of its out-of-band bytes.
    #[must_use]
    pub fn slice_mut<'a>(&self, frames: &'a mut Frames, id: RequestId, from: u64) -> &'a mut [u8] {
        let (frame, within) = self.place(frames, id, from);
        if within < BLOCK_BYTES {
            &mut frames.bytes_mut(frame)[within..]
        } else {
            &mut frames.oob_mut(frame)[within - BLOCK_BYTES..]
        }
    }

    fn place(&self, frames: &Frames, id: RequestId, from: u64) -> (openftl_core::Frame, usize) {
        let op = &self.ops[id.0];
        let whole = BLOCK_BYTES + frames.oob(op.frames[0]).len();
        (op.frames[from as usize / whole], from as usize % whole)
    }

    /// Starts an admitted command, a write with all its bytes filled.
    pub fn start<M: Media>(&mut self, now: Time, device: &mut M, frames: &mut Frames, id: RequestId) {
        let op = &mut self.ops[id.0];
        assert_eq!(op.stage, Stage::Admitted, "a command starts once");
        op.stage = Stage::Running;
        let is_in_order = self.backlog.is_empty();
        if !is_in_order || device.submit(now, frames, u64::from(id.0), op.command()).is_err() {
            self.backlog.push_back(id.0);
        }
    }

    /// Gives up an admitted command that was not started. Nothing has happened.
    pub fn abandon(&mut self, frames: &mut Frames, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Admitted, "only a command that was not started is abandoned");
        self.vacate(frames, id);
    }

    /// Gives back the place and the frames of a finished command.
    pub fn release(&mut self, frames: &mut Frames, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Finished, "only a finished command is released");
        self.vacate(frames, id);
    }

    /// Lets the device work and appends the commands that have finished.
    pub fn poll<M: Media>(
        &mut self,
        now: Time,
        device: &mut M,
        frames: &mut Frames,
        finished: &mut Vec<DeviceFinished<K>>,
    ) {
        device.poll(now, frames, &mut self.completions);
        for completion in self.completions.drain(..) {
            let index = completion.tag as u32;
            let op = &mut self.ops[index];
            assert_eq!(op.stage, Stage::Running, "the device ends what was started, once");
            op.stage = Stage::Finished;
            if op.action == Action::Read {
                // What other hosts left in the frames of blocks that could not be read is not this host's to see.
                let is_lost = |block: usize| match completion.status {
                    Status::Success | Status::HighEcc => false,
                    _ => op.scalar.is_some() || completion.failed == 0 || completion.failed >> block & 1 != 0,
                };
                for (_, frame) in op.frames.iter().enumerate().filter(|(block, _)| is_lost(*block)) {
                    frames.zero(*frame);
                    frames.oob_mut(*frame).fill(0);
                }
            }
            finished.push(DeviceFinished { id: RequestId(index), ticket: op.ticket, completion });
        }
        while let Some(index) = self.backlog.front().copied() {
            let command = self.ops[index].command();
            if device.submit(now, frames, u64::from(index), command).is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn vacate(&mut self, frames: &mut Frames, id: RequestId) {
        let op = &mut self.ops[id.0];
        op.frames.drain(..).for_each(|frame| frames.release(frame));
        op.stage = Stage::Free;
        self.ops.give_back(id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Geometry;
    use openftl_media::{EmulatedDevice, Profile, Store, Timing};

    fn bench() -> (EmulatedDevice, Frames, DeviceRequests<u8>, Geometry) {
        let profile = Profile::builtin("tiny").unwrap();
        let device = EmulatedDevice::new(profile, 1, Store::Ram, Timing::Instant, 1).unwrap();
        let geometry = *device.geometry();
        let frames = Frames::new(32, 0, geometry.oob_bytes as usize);
        (device, frames, DeviceRequests::new(4), geometry)
    }

    #[test]
    fn blocks_travel_with_their_out_of_band_bytes() {
        let (mut device, mut frames, mut requests, geometry) = bench();
        let chunk = geometry.chunk_ids().next().unwrap();
        let blocks = Blocks::Scalar { first: geometry.format().ppa(chunk, 0), count: geometry.blocks_per_chunk };
        let id = requests.admit(&mut frames, 1, DeviceRequest::Write { blocks, fua: false }).unwrap();
        let length = requests.length(&frames, id);
        assert_eq!(length, u64::from(geometry.blocks_per_chunk * (4096 + geometry.oob_bytes)));
        let mut from = 0;
        while from < length {
            let room = requests.slice_mut(&mut frames, id, from);
            room.iter_mut().zip(from..).for_each(|(byte, at)| *byte = (at % 251) as u8);
            from += room.len() as u64;
        }
        requests.start(Time::ZERO, &mut device, &mut frames, id);
        let mut finished = Vec::new();
        requests.poll(Time::NEVER, &mut device, &mut frames, &mut finished);
        assert_eq!(finished[0].completion.status, Status::Success);
        requests.release(&mut frames, id);

        let id = requests.admit(&mut frames, 2, DeviceRequest::Read(blocks)).unwrap();
        requests.start(Time::ZERO, &mut device, &mut frames, id);
        finished.clear();
        requests.poll(Time::NEVER, &mut device, &mut frames, &mut finished);
        assert_eq!((finished[0].ticket, finished[0].completion.status), (2, Status::Success));
        let mut from = 0;
        while from < length {
            let slice = requests.slice(&frames, id, from);
            assert!(slice.iter().zip(from..).all(|(byte, at)| *byte == (at % 251) as u8), "from {from} on");
            from += slice.len() as u64;
        }
        requests.release(&mut frames, id);
        assert_eq!((requests.len(), frames.available(FrameForm::Bytes)), (0, 32));
    }

    #[test]
    fn what_could_not_be_read_shows_nothing_of_others() {
        let (mut device, mut frames, mut requests, geometry) = bench();
        let mut all = Vec::new();
        assert!(frames.acquire_many(FrameForm::Bytes, 32, &mut all));
        for frame in all {
            frames.bytes_mut(frame).fill(0xEE);
            frames.oob_mut(frame).fill(0xEE);
            frames.release(frame);
        }
        device.set_dulbe(true);
        let chunk = geometry.chunk_ids().next().unwrap();
        let ppas = [geometry.format().ppa(chunk, 0), geometry.format().ppa(chunk, 1)];
        let id = requests.admit(&mut frames, 1, DeviceRequest::Read(Blocks::Vector(&ppas))).unwrap();
        requests.start(Time::ZERO, &mut device, &mut frames, id);
        let mut finished = Vec::new();
        requests.poll(Time::NEVER, &mut device, &mut frames, &mut finished);
        assert_eq!(finished[0].completion.status, Status::DeallocatedOrUnwritten);
        let mut from = 0;
        while from < requests.length(&frames, id) {
            let slice = requests.slice(&frames, id, from);
            assert!(slice.iter().all(|byte| *byte == 0));
            from += slice.len() as u64;
        }
    }

    #[test]
    fn without_frames_or_a_place_nothing_is_admitted() {
        let (_, mut frames, mut requests, geometry) = bench();
        let first = geometry.format().ppa(geometry.chunk_ids().next().unwrap(), 0);
        let read = |count| DeviceRequest::Read(Blocks::Scalar { first, count });
        assert!(requests.admit(&mut frames, 0, read(33)).is_none());
        let id = requests.admit(&mut frames, 0, read(32)).unwrap();
        assert!(requests.admit(&mut frames, 0, read(1)).is_none());
        assert!(requests.admit(&mut frames, 0, DeviceRequest::Flush).is_some());
        requests.abandon(&mut frames, id);
        for _ in 0..3 {
            assert!(requests.admit(&mut frames, 0, DeviceRequest::Flush).is_some());
        }
        assert!(requests.admit(&mut frames, 0, DeviceRequest::Flush).is_none(), "room for four");
    }
}
