//! Requests of a host to a zoned drive, whose blocks it names as they are.
//!
//! A request takes its frames when it is admitted, or it is not admitted. The drive checks a request, and moves write pointers, when it is
//! started: those that change zones are accepted in the order in which they are started.

use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, Time};
use openftl_parts::target::{Durability, Target};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_zones::{Action, ZoneDone, ZoneError, ZoneFtl, ZoneRequest};

use crate::RequestId;
use crate::places::Places;

/// What a host wants of a zoned drive: a request whose data have no frames yet. Addresses and lengths are in logical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAsk {
    /// As [`ZoneRequest::Read`].
    Read {
        /// First logical block.
        first: u64,
        /// How many.
        blocks: u32,
    },
    /// As [`ZoneRequest::Write`].
    Write {
        /// First logical block.
        first: u64,
        /// How many.
        blocks: u32,
        /// When to acknowledge.
        durability: Durability,
    },
    /// As [`ZoneRequest::Append`].
    Append {
        /// The first logical block of the zone.
        zone: u64,
        /// How many.
        blocks: u32,
        /// When to acknowledge.
        durability: Durability,
    },
    /// As [`ZoneRequest::Act`].
    Act {
        /// The first logical block of the zone.
        zone: u64,
        /// What is to become of it.
        action: Action,
    },
    /// As [`ZoneRequest::ActOnAll`].
    ActOnAll {
        /// What is to become of them.
        action: Action,
    },
    /// As [`ZoneRequest::OpenWithWindow`].
    OpenWithWindow {
        /// The first logical block of the zone.
        zone: u64,
    },
    /// As [`ZoneRequest::Commit`].
    Commit {
        /// The last logical block.
        last: u64,
    },
    /// As [`ZoneRequest::Extend`].
    Extend {
        /// The first logical block of the zone.
        zone: u64,
        /// Bytes of the extension.
        bytes: u32,
    },
    /// As [`ZoneRequest::Flush`].
    Flush,
}

impl ZoneAsk {
    /// How many frames the request holds from admission on.
    #[must_use]
    pub fn frames_needed(&self) -> usize {
        match self {
            ZoneAsk::Read { blocks, .. } | ZoneAsk::Write { blocks, .. } | ZoneAsk::Append { blocks, .. } => {
                *blocks as usize
            }
            ZoneAsk::Extend { .. } => 1,
            ZoneAsk::Act { .. }
            | ZoneAsk::ActOnAll { .. }
            | ZoneAsk::OpenWithWindow { .. }
            | ZoneAsk::Commit { .. }
            | ZoneAsk::Flush => 0,
        }
    }

    /// Bytes of its data.
    fn length(&self) -> u64 {
        match self {
            ZoneAsk::Extend { bytes, .. } => u64::from(*bytes),
            _ => (self.frames_needed() * BLOCK_BYTES) as u64,
        }
    }

    /// Whether its frames are the drive's once it has accepted it.
    fn gives_frames(&self) -> bool {
        matches!(self, ZoneAsk::Write { .. } | ZoneAsk::Append { .. })
    }

    /// Whether it matters in which order it comes with others.
    #[must_use]
    pub fn changes_zones(&self) -> bool {
        !matches!(self, ZoneAsk::Read { .. } | ZoneAsk::Flush)
    }

    fn request<'a>(&self, frames: &'a [Frame]) -> ZoneRequest<'a> {
        match *self {
            ZoneAsk::Read { first, .. } => ZoneRequest::Read { first, frames },
            ZoneAsk::Write { first, durability, .. } => ZoneRequest::Write { first, frames, durability },
            ZoneAsk::Append { zone, durability, .. } => ZoneRequest::Append { zone, frames, durability },
            ZoneAsk::Act { zone, action } => ZoneRequest::Act { zone, action },
            ZoneAsk::ActOnAll { action } => ZoneRequest::ActOnAll { action },
            ZoneAsk::OpenWithWindow { zone } => ZoneRequest::OpenWithWindow { zone },
            ZoneAsk::Commit { last } => ZoneRequest::Commit { last },
            ZoneAsk::Extend { zone, .. } => ZoneRequest::Extend { zone, frame: frames[0] },
            ZoneAsk::Flush => ZoneRequest::Flush,
        }
    }
}

/// A request has ended; the host releases it when it has looked at its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneFinished<K> {
    /// The request.
    pub id: RequestId,
    /// The host's ticket.
    pub ticket: K,
    /// How.
    pub result: Result<(), ZoneError>,
    /// Where an append is.
    pub address: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Free,
    Admitted,
    Running,
    Finished,
}

struct Op<K> {
    ticket: K,
    stage: Stage,
    ask: ZoneAsk,
    /// Those of a write are the drive's once it has accepted it.
    frames: Vec<Frame>,
}

/// The requests under way on one zoned drive. Each carries a ticket of the host's, which comes back when it has finished.
pub struct ZoneRequests<K> {
    ops: Places<Op<K>>,
    /// What the drive has refused at once.
    finished: Vec<ZoneFinished<K>>,
    /// Requests that the drive has.
    under_way: usize,
    done: Vec<ZoneDone>,
}

impl<K: Copy> ZoneRequests<K> {
    /// Room for `requests_max` requests.
    #[must_use]
    pub fn new(requests_max: usize) -> ZoneRequests<K> {
        ZoneRequests { ops: Places::new(requests_max), finished: Vec::new(), under_way: 0, done: Vec::new() }
    }

    /// Requests admitted and not released.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether no request is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives `ask` a place and its frames, or `None` while there are not enough of either.
    pub fn admit(&mut self, frames: &mut Frames, ticket: K, ask: ZoneAsk) -> Option<RequestId> {
        let needed = ask.frames_needed();
        if self.ops.is_full() || frames.available(FrameForm::Bytes) < needed {
            return None;
        }
        let index = self.ops.take(|| Op { ticket, stage: Stage::Free, ask, frames: Vec::new() });
        let op = &mut self.ops[index];
        assert_eq!(op.stage, Stage::Free, "a free place holds no request");
        (op.ticket, op.stage, op.ask) = (ticket, Stage::Admitted, ask);
        assert!(frames.acquire_many(FrameForm::Bytes, needed, &mut op.frames), "the frames were counted before");
        Some(RequestId(index))
    }

    /// Bytes of data of an admitted request.
    #[must_use]
    pub fn length(&self, id: RequestId) -> u64 {
        self.ops[id.0].ask.length()
    }

    /// The frame that byte `from` of the request's data lies in, and where there.
    #[must_use]
    pub fn place(&self, id: RequestId, from: u64) -> (Frame, std::ops::Range<usize>) {
        let (block, within) = (from as usize / BLOCK_BYTES, from as usize % BLOCK_BYTES);
        (self.ops[id.0].frames[block], within..BLOCK_BYTES)
    }

    /// The bytes of a finished read from byte `from` on, up to the end of a block.
    #[must_use]
    pub fn slice<'a>(&self, frames: &'a Frames, id: RequestId, from: u64) -> &'a [u8] {
        let (frame, range) = self.place(id, from);
        &frames.bytes(frame)[range]
    }

    /// Where the bytes of an admitted write go from byte `from` on, up to the end of a block.
    #[must_use]
    pub fn slice_mut<'a>(&self, frames: &'a mut Frames, id: RequestId, from: u64) -> &'a mut [u8] {
        let (frame, range) = self.place(id, from);
        &mut frames.bytes_mut(frame)[range]
    }

    /// What was admitted.
    #[must_use]
    pub fn ask(&self, id: RequestId) -> ZoneAsk {
        self.ops[id.0].ask
    }

    /// Starts an admitted request, a write with all its bytes filled. Returns whether the drive has accepted it.
    pub fn start(&mut self, now: Time, drive: &mut ZoneFtl, id: RequestId) -> bool {
        let op = &mut self.ops[id.0];
        assert_eq!(op.stage, Stage::Admitted, "a request starts once");
        op.stage = Stage::Running;
        match drive.submit(now, u64::from(id.0), op.ask.request(&op.frames)) {
            Ok(()) => {
                self.under_way += 1;
                if op.ask.gives_frames() {
                    op.frames.clear();
                }
                true
            }
            Err(error) => {
                op.stage = Stage::Finished;
                self.finished.push(ZoneFinished { id, ticket: op.ticket, result: Err(error), address: None });
                false
            }
        }
    }

    /// Gives up an admitted request that was not started. Nothing has happened.
    pub fn abandon(&mut self, frames: &mut Frames, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Admitted, "only a request that was not started is abandoned");
        self.vacate(frames, id);
    }

    /// Gives back the place and the frames of a finished request.
    pub fn release(&mut self, frames: &mut Frames, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Finished, "only a finished request is released");
        self.vacate(frames, id);
    }

    /// Lets the drive work and appends the requests that have finished.
    pub fn poll(&mut self, now: Time, drive: &mut ZoneFtl, finished: &mut Vec<ZoneFinished<K>>) {
        finished.append(&mut self.finished);
        drive.poll(now, &mut self.done);
        self.under_way -= self.done.len();
        for ZoneDone { tag, result, address, .. } in self.done.drain(..) {
            let index = tag as u32;
            let op = &mut self.ops[index];
            assert_eq!(op.stage, Stage::Running, "the drive ends what was started, once");
            op.stage = Stage::Finished;
            if result.is_err() {
                // What others left in the frames is not this host's to see.
                op.frames.iter().for_each(|frame| drive.frames_mut().zero(*frame));
            }
            finished.push(ZoneFinished { id: RequestId(index), ticket: op.ticket, result, address });
        }
    }

    /// Whether the drive has something to end.
    #[must_use]
    pub fn waits_for_drive(&self) -> bool {
        self.under_way > 0
    }

    /// Whether a call of [`ZoneRequests::poll`] would bring something whatever the drive does.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    fn vacate(&mut self, frames: &mut Frames, id: RequestId) {
        let op = &mut self.ops[id.0];
        op.frames.drain(..).for_each(|frame| frames.release(frame));
        op.frames.shrink_to(TRANSACTION_BLOCKS_MAX);
        op.stage = Stage::Free;
        self.ops.give_back(id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::{Clock, VirtualClock};
    use openftl_media::{EmulatedDevice, Profile, Store, Timing};
    use openftl_parts::Config;
    use openftl_zones::Ftl;
    use openftl_zones::{Face, Limits, ZoneConfig, ZoneState};

    fn bench_with(extension_bytes: u32) -> (ZoneFtl<EmulatedDevice>, ZoneRequests<u8>, VirtualClock) {
        let mut clock = VirtualClock::default();
        let profile = Profile::builtin("tiny").unwrap();
        let device = EmulatedDevice::new(profile, 48, Store::Ram, Timing::Instant, 1).unwrap();
        let limits = Limits { max_open: 2, max_active: 3 };
        let zoned = ZoneConfig { face: Face::Zones, width: 2, limits, zones: None, extension_bytes, window_blocks: 0 };
        let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
        let drive = ZoneFtl::format(device, config, zoned, &mut clock).unwrap();
        (drive, ZoneRequests::new(4), clock)
    }

    fn bench() -> (ZoneFtl<EmulatedDevice>, ZoneRequests<u8>, VirtualClock) {
        bench_with(0)
    }

    fn run(
        (drive, requests, clock): &mut (ZoneFtl<EmulatedDevice>, ZoneRequests<u8>, VirtualClock),
        id: RequestId,
    ) -> ZoneFinished<u8> {
        requests.start(clock.now(), drive, id);
        let mut finished = Vec::new();
        loop {
            requests.poll(clock.now(), drive, &mut finished);
            if let Some(ended) = finished.pop() {
                return ended;
            }
            clock.wait_until(drive.next_due().expect("a request ends"));
        }
    }

    #[test]
    fn what_is_appended_is_read_where_the_drive_says_that_it_is() {
        let mut bench = bench();
        let size = bench.0.layout().size;
        for round in 0..2 {
            let ask = ZoneAsk::Append { zone: size, blocks: 3, durability: Durability::Durable };
            let id = bench.1.admit(bench.0.frames_mut(), 1, ask).unwrap();
            assert_eq!(bench.1.length(id), 3 * 4096);
            for block in 0..3 {
                bench.1.slice_mut(bench.0.frames_mut(), id, block * 4096).fill(block as u8 + 7);
            }
            let ended = run(&mut bench, id);
            assert_eq!((ended.result, ended.address), (Ok(()), Some(size + 3 * round)));
            bench.1.release(bench.0.frames_mut(), id);
        }
        let ask = ZoneAsk::Read { first: size + 3, blocks: 4 };
        let id = bench.1.admit(bench.0.frames_mut(), 2, ask).unwrap();
        let ended = run(&mut bench, id);
        assert_eq!((ended.ticket, ended.result), (2, Ok(())));
        for (block, byte) in [7, 8, 9, 0].into_iter().enumerate() {
            let slice = bench.1.slice(bench.0.frames(), id, block as u64 * 4096 + 100);
            assert_eq!((slice.len(), slice[0]), (3996, byte));
        }
        bench.1.release(bench.0.frames_mut(), id);
        let id = bench.1.admit(bench.0.frames_mut(), 3, ZoneAsk::Act { zone: size, action: Action::Reset }).unwrap();
        assert_eq!(run(&mut bench, id).result, Ok(()));
        bench.1.release(bench.0.frames_mut(), id);
        assert_eq!(bench.0.board().zone(1).state, ZoneState::Empty);
        assert!(bench.1.is_empty());
    }

    #[test]
    fn an_extension_is_as_long_as_it_is_and_its_frame_comes_back() {
        let mut bench = bench_with(128);
        let size = bench.0.layout().size;
        let free = bench.0.frames().available(FrameForm::Bytes);
        for expected in [Ok(()), Err(ZoneError::NotEmpty { zone: 1, state: ZoneState::Closed })] {
            let id = bench.1.admit(bench.0.frames_mut(), 1, ZoneAsk::Extend { zone: size, bytes: 128 }).unwrap();
            assert_eq!(bench.1.length(id), 128);
            bench.1.slice_mut(bench.0.frames_mut(), id, 0)[..128].fill(5);
            assert_eq!(run(&mut bench, id).result, expected);
            bench.1.release(bench.0.frames_mut(), id);
        }
        assert_eq!(bench.0.extension(1), [5; 128]);
        assert_eq!(bench.0.frames().available(FrameForm::Bytes), free);
    }

    #[test]
    fn a_refused_write_gives_its_frames_back_and_ends_at_once() {
        let mut bench = bench();
        let free = bench.0.frames().available(FrameForm::Bytes);
        let ask = ZoneAsk::Write { first: 5, blocks: 2, durability: Durability::Volatile };
        let id = bench.1.admit(bench.0.frames_mut(), 1, ask).unwrap();
        let ended = run(&mut bench, id);
        assert_eq!(ended.result, Err(ZoneError::InvalidWrite { zone: 0, at: 5, expected: 0 }));
        assert!(!bench.1.waits_for_drive());
        bench.1.release(bench.0.frames_mut(), id);
        assert_eq!(bench.0.frames().available(FrameForm::Bytes), free);
    }
}
