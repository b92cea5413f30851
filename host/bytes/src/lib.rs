//! Requests in bytes on a drive of 4 KiB blocks; those to an Open-Channel device are in [`device`], those to a zoned drive in
//! [`zones`], those to a drive of objects of any size in [`objects`].
//!
//! ```text
//!            offset                                            offset + length
//!              ▼                                                     ▼
//!   ┌──────────┬──┬──────────────┬──────────────┬──────────────┬─────┬───────┐
//!   │   head   │▒▒│    whole     │    whole     │    whole     │▒▒▒▒▒│ tail  │   ▒ asked for   │ block boundary
//!   └──────────┴──┴──────────────┴──────────────┴──────────────┴─────┴───────┘
//! ```
//!
//! - **Read**: all blocks are read into frames; the host sends the bytes it wants out of them.
//! - **Write**: the host fills frames in place; the missing bytes of head and tail are read from the drive first.
//! - **Exchange**: all blocks are read into frames, the host looks and fills in other bytes, and the same frames are written.
//! - **Zero**: whole blocks are trimmed; head and tail are read, zeroed in part and written.
//! - **Trim**: whole blocks are trimmed; head and tail are left alone.
//! - **FlashAlloc**: goes to the drive as it is; its extents are whole blocks.
//! - **Write uncorrectable**: whole blocks only. What has to read such a block first, a write or zero in part, fails.
//!
//! Requests longer than a transaction go to the drive as several.
//!
//! A trim of any length is one request to the drive, and of trims only [`TRIMS_UNDER_WAY_MAX`] are the drive's at a time:
//! however many there are, other requests never stand in line behind them.
//!
//! # Order
//! Two writes in flight to the same bytes may end either way, as on any drive; but two writes to *different* bytes of
//! one block must both be there. So a write that reads first (it has an *edge*) and any other change of blocks it covers
//! take turns, in order of arrival. Aligned writes, the common case, never wait and never look for others.
//!
//! # Frames
//! A request takes every frame it will need when it is admitted, or it is not admitted. So a request that has begun can
//! always end, and a dry pool cannot deadlock.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod device;
pub mod objects;
mod operation;
mod places;
mod request;
mod span;
pub mod zones;

use openftl_parts::words::{Handle, TRANSACTION_BLOCKS_MAX};
use std::collections::VecDeque;

use openftl_core::{Frame, FrameForm, Frames, Time};
use openftl_parts::target::{AppendError, BlockTarget, Done, Extent, IoError, Request};

use operation::{Changing, Op, Part, Stage, merge_edges};
use places::Places;
pub use request::{ByteRequest, Finished, RequestId};
use span::EDGES_MAX;

/// Trims that the drive has at a time; more wait in the order in which they came.
pub const TRIMS_UNDER_WAY_MAX: usize = 64;

/// The byte requests under way on one drive. Each carries a ticket of the host's, which comes back when it has finished.
pub struct ByteRequests<K> {
    ops: Places<Op<K>>,
    /// Requests that are started, not finished, and change blocks: all that another may have to take turns with.
    changing: Vec<Changing>,
    arrivals: u64,
    /// Started and unfinished requests that read first.
    edged: usize,
    /// What the drive had no room for.
    backlog: VecDeque<(u32, Part)>,
    /// Requests whose trim waits for others to end.
    trims: VecDeque<u32>,
    trims_under_way: usize,
    /// Commands that the drive has.
    under_way: usize,
    /// Requests whose turn has come.
    runnable: Vec<u32>,
    finished: Vec<Finished<K>>,
    done: Vec<Done>,
}

impl<K: Copy> ByteRequests<K> {
    /// Room for `requests_max` requests.
    #[must_use]
    pub fn new(requests_max: usize) -> ByteRequests<K> {
        ByteRequests {
            ops: Places::new(requests_max),
            changing: Vec::new(),
            arrivals: 0,
            edged: 0,
            backlog: VecDeque::new(),
            trims: VecDeque::new(),
            trims_under_way: 0,
            under_way: 0,
            runnable: Vec::new(),
            finished: Vec::new(),
            done: Vec::new(),
        }
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

    /// Gives `request` a place and its frames, or `None` while there are not enough of either.
    pub fn admit(&mut self, frames: &mut Frames, ticket: K, request: ByteRequest) -> Option<RequestId> {
        if self.ops.is_full() || frames.available(FrameForm::Bytes) < request.frames_needed() {
            return None;
        }
        let index = self.ops.take(|| Op {
            request,
            ticket,
            span: request.span(),
            stage: Stage::Free,
            arrival: 0,
            turns_before: 0,
            changing: 0,
            parts_left: 0,
            handed_over: false,
            result: Ok(()),
            frames: Vec::new(),
            extents: Vec::new(),
            edge_frames: [None; EDGES_MAX],
        });
        let op = &mut self.ops[index];
        assert_eq!(op.stage, Stage::Free, "a free place holds no request");
        op.request = request;
        op.ticket = ticket;
        op.span = request.span();
        op.stage = Stage::Admitted;
        op.turns_before = 0;
        op.handed_over = false;
        op.result = Ok(());
        if let ByteRequest::WriteUncorrectable { .. } = request {
            assert!(op.span.edges().next().is_none(), "{request:?} is of whole blocks");
        }
        if matches!(request, ByteRequest::Read { .. }) || request.is_write() {
            let taken = frames.acquire_many(FrameForm::Bytes, op.span.blocks() as usize, &mut op.frames);
            assert!(taken, "the frames were counted before");
        }
        if op.has_edges() {
            for slot in op.edge_frames.iter_mut().take(op.span.edges().count()) {
                *slot = frames.acquire(FrameForm::Bytes);
                assert!(slot.is_some(), "the frames were counted before");
            }
        }
        Some(RequestId(index))
    }

    /// The first byte that an admitted request is about.
    #[must_use]
    pub fn offset(&self, id: RequestId) -> u64 {
        self.ops[id.0].span.offset
    }

    /// What was admitted.
    #[must_use]
    pub fn request(&self, id: RequestId) -> ByteRequest {
        self.ops[id.0].request
    }

    /// How many bytes an admitted request is about.
    #[must_use]
    pub fn length(&self, id: RequestId) -> u64 {
        self.ops[id.0].span.length
    }

    /// The frame that byte `from` of the request's bytes lies in, and the request's bytes within that frame from there
    /// on.
    #[must_use]
    pub fn place(&self, id: RequestId, from: u64) -> (Frame, std::ops::Range<usize>) {
        let op = &self.ops[id.0];
        let (block, range) = op.span.place(from);
        (op.frames[block], range)
    }

    /// The bytes of a finished read from byte `from` on, up to the end of a frame.
    #[must_use]
    pub fn slice<'a>(&self, frames: &'a Frames, id: RequestId, from: u64) -> &'a [u8] {
        let (frame, range) = self.place(id, from);
        &frames.bytes(frame)[range]
    }

    /// Where the bytes of an admitted write go from byte `from` on, up to the end of a frame.
    #[must_use]
    pub fn slice_mut<'a>(&self, frames: &'a mut Frames, id: RequestId, from: u64) -> &'a mut [u8] {
        let (frame, range) = self.place(id, from);
        &mut frames.bytes_mut(frame)[range]
    }

    /// Says which blocks are the object of an admitted [`ByteRequest::FlashAlloc`].
    pub fn set_extents(&mut self, id: RequestId, extents: &[Extent]) {
        let op = &mut self.ops[id.0];
        assert!(op.request == ByteRequest::FlashAlloc && op.stage == Stage::Admitted, "an object is said once");
        op.extents.extend_from_slice(extents);
    }

    /// Starts an admitted request, a write with all its bytes filled.
    pub fn start<T: BlockTarget>(&mut self, now: Time, target: &mut T, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Admitted, "a request starts once");
        self.arrivals += 1;
        let op = &mut self.ops[id.0];
        let reads_first = op.reads_first();
        let mut turns_before = 0;
        if op.request.changes_blocks() {
            let changing = Changing { op: id.0, span: op.span, reads_first };
            if reads_first || self.edged > 0 {
                turns_before = self.changing.iter().filter(|other| changing.takes_turns_with(other)).count();
            }
            op.changing = self.changing.len() as u32;
            self.changing.push(changing);
        }
        self.edged += usize::from(reads_first);
        op.arrival = self.arrivals;
        op.turns_before = turns_before as u32;
        op.stage = Stage::Waiting;
        if turns_before == 0 {
            self.runnable.push(id.0);
            self.run(now, target);
        }
    }

    /// Gives up an admitted request that was not started. Nothing has happened.
    pub fn abandon(&mut self, frames: &mut Frames, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Admitted, "only a request that was not started is abandoned");
        self.vacate(frames, id);
    }

    /// Gives back the place and the frames of a finished request.
    pub fn release(&mut self, frames: &mut Frames, id: RequestId) {
        let stage = self.ops[id.0].stage;
        assert!(matches!(stage, Stage::Finished | Stage::Shown), "only a finished request is released");
        if stage == Stage::Shown {
            self.ops[id.0].stage = Stage::Finished;
            self.end_turn(id.0);
        }
        self.vacate(frames, id);
    }

    /// Whether an exchange has been read, and not written.
    #[must_use]
    pub fn is_shown(&self, id: RequestId) -> bool {
        self.ops[id.0].stage == Stage::Shown
    }

    /// Writes what the host has made of an exchange that it was shown.
    pub fn write<T: BlockTarget>(&mut self, now: Time, target: &mut T, id: RequestId) {
        let op = &mut self.ops[id.0];
        assert_eq!(op.stage, Stage::Shown, "an exchange is written when it was read");
        op.stage = Stage::Edges;
        self.runnable.push(id.0);
        self.run(now, target);
    }

    /// Lets the drive work and appends the requests that have finished.
    pub fn poll<T: BlockTarget>(&mut self, now: Time, target: &mut T, finished: &mut Vec<Finished<K>>) {
        let mut done = std::mem::take(&mut self.done);
        target.poll(now, &mut done);
        self.under_way -= done.len();
        for Done { tag, result, .. } in done.drain(..) {
            let op = tag as u32;
            self.trims_under_way -= usize::from(self.ops[op].is_trim(tag));
            if let Err(error) = result {
                self.fail(op, error);
            }
            self.part_ended(target, op);
        }
        self.done = done;
        while let Some(&(op, part)) = self.backlog.front() {
            if !self.submit(now, target, op, part) {
                break;
            }
            self.backlog.pop_front();
        }
        self.submit_trims(now, target);
        self.run(now, target);
        finished.append(&mut self.finished);
    }

    /// Whether the drive has something to end, or to take.
    #[must_use]
    pub fn waits_for_drive(&self) -> bool {
        self.under_way > 0 || !self.backlog.is_empty() || !self.trims.is_empty()
    }

    /// Whether a call of [`ByteRequests::poll`] would bring something whatever the drive does.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Carries on with every request whose turn has come.
    fn run<T: BlockTarget>(&mut self, now: Time, target: &mut T) {
        while let Some(index) = self.runnable.pop() {
            let op = &mut self.ops[index];
            let has_edges = op.has_edges();
            match op.stage {
                Stage::Waiting if op.is_exchange() => {
                    let body = op.body_parts();
                    (op.stage, op.parts_left) = (Stage::Edges, body);
                    (0..body).for_each(|number| self.submit_or_queue(now, target, index, Part::Body(number)));
                }
                Stage::Waiting if has_edges => {
                    let edges = op.span.edges().count() as u8;
                    op.stage = Stage::Edges;
                    op.parts_left = u32::from(edges);
                    (0..edges).for_each(|edge| self.submit_or_queue(now, target, index, Part::EdgeRead(edge)));
                }
                Stage::Waiting | Stage::Edges => {
                    let edge_writes = if has_edges && matches!(op.request, ByteRequest::Zero { .. }) {
                        op.span.edges().count()
                    } else {
                        0
                    };
                    let body = op.body_parts();
                    op.stage = Stage::Body;
                    op.handed_over = true;
                    op.parts_left = body + edge_writes as u32;
                    if op.parts_left == 0 {
                        self.finish(index);
                        continue;
                    }
                    (0..edge_writes)
                        .for_each(|edge| self.submit_or_queue(now, target, index, Part::EdgeWrite(edge as u8)));
                    (0..body).for_each(|number| self.submit_or_queue(now, target, index, Part::Body(number)));
                }
                stage => unreachable!("a request in stage {stage:?} is not runnable"),
            }
        }
    }

    /// Hands trims to the drive, as far as it may have more.
    fn submit_trims<T: BlockTarget>(&mut self, now: Time, target: &mut T) {
        while self.trims_under_way < TRIMS_UNDER_WAY_MAX
            && let Some(index) = self.trims.front().copied()
        {
            // Counted first: a trim that is refused ends at once.
            self.trims_under_way += 1;
            if !self.submit(now, target, index, Part::Body(0)) {
                self.trims_under_way -= 1;
                break;
            }
            self.trims.pop_front();
        }
    }

    fn submit_or_queue<T: BlockTarget>(&mut self, now: Time, target: &mut T, index: u32, part: Part) {
        if self.ops[index].is_trim(part.tag(index)) {
            self.trims.push_back(index);
            self.submit_trims(now, target);
            return;
        }
        // Commands that wait go first.
        if !self.backlog.is_empty() || !self.submit(now, target, index, part) {
            self.backlog.push_back((index, part));
        }
    }

    /// Hands one command to the drive; false when the drive has no room.
    fn submit<T: BlockTarget>(&mut self, now: Time, target: &mut T, index: u32, part: Part) -> bool {
        let op = &self.ops[index];
        let durability = op.durability();
        let edge_frame;
        let request = match part {
            Part::EdgeRead(edge) | Part::EdgeWrite(edge) => {
                let block = op.span.edges().nth(edge as usize).expect("the part names an edge").block;
                edge_frame = [op.edge_frames[edge as usize].expect("an edge has its frame until it is written")];
                match part {
                    Part::EdgeWrite(_) => {
                        Request::Write { first: block, frames: &edge_frame, durability, handle: Handle::NONE }
                    }
                    _ => Request::Read { first: block, frames: &edge_frame },
                }
            }
            Part::Body(number) => {
                let range = op.transaction(number);
                let first = op.span.first_block() + range.start as u64;
                match op.request {
                    ByteRequest::Read { .. } => Request::Read { first, frames: &op.frames[range] },
                    ByteRequest::Exchange { .. } if op.stage == Stage::Edges => {
                        Request::Read { first, frames: &op.frames[range] }
                    }
                    ByteRequest::Write { handle, .. } | ByteRequest::Exchange { handle, .. } => {
                        Request::Write { first, frames: &op.frames[range], durability, handle }
                    }
                    ByteRequest::WriteUncorrectable { .. } => {
                        Request::WriteUncorrectable { first, frames: &op.frames[range], durability }
                    }
                    ByteRequest::Zero { .. } | ByteRequest::Trim { .. } => {
                        let whole = op.span.whole_blocks();
                        Request::Trim { first: whole.start, blocks: whole.end - whole.start, durability }
                    }
                    ByteRequest::Flush => Request::Flush,
                    ByteRequest::FlashAlloc => Request::FlashAlloc { extents: &op.extents },
                }
            }
        };
        // A trim of a part of a segment makes no zeroes.
        let makes_zeroes = matches!(op.request, ByteRequest::Zero { .. });
        let begun = match makes_zeroes && target.segment_blocks().is_some() {
            true => Err(AppendError::NoSuchRequest.into()),
            false => target.submit(now, part.tag(index), request),
        };
        match begun {
            Err(IoError::QueueFull) => return false,
            Ok(()) => {
                self.under_way += 1;
                if let Part::EdgeWrite(edge) = part {
                    self.ops[index].edge_frames[edge as usize] = None;
                }
            }
            Err(error) => {
                // The frames of a refused write stay ours, and its op no longer knows which.
                if let (Part::Body(number), true) = (part, op.request.is_write() && op.stage == Stage::Body) {
                    op.frames[op.transaction(number)].iter().for_each(|frame| target.frames_mut().release(*frame));
                }
                self.trims_under_way -= usize::from(self.ops[index].is_trim(part.tag(index)));
                self.fail(index, error);
                self.part_ended(target, index);
            }
        }
        true
    }

    fn fail(&mut self, index: u32, error: IoError) {
        let op = &mut self.ops[index];
        op.result = Err(op.result.err().map_or(error, |other| other.or_earlier(error)));
    }

    fn part_ended<T: BlockTarget>(&mut self, target: &mut T, index: u32) {
        let op = &mut self.ops[index];
        assert!(op.parts_left > 0, "the drive answers each command once");
        op.parts_left -= 1;
        if op.parts_left > 0 {
            return;
        }
        if op.stage == Stage::Edges && op.result.is_ok() && op.is_exchange() {
            op.stage = Stage::Shown;
            self.finished.push(Finished { id: RequestId(index), ticket: op.ticket, result: Ok(()) });
        } else if op.stage == Stage::Edges && op.result.is_ok() {
            merge_edges(op, target.frames_mut());
            self.runnable.push(index);
        } else {
            self.finish(index);
        }
    }

    fn finish(&mut self, index: u32) {
        let op = &mut self.ops[index];
        op.stage = Stage::Finished;
        self.finished.push(Finished { id: RequestId(index), ticket: op.ticket, result: op.result });
        self.end_turn(index);
    }

    /// Whoever waits for this request to have ended may go on.
    fn end_turn(&mut self, index: u32) {
        let op = &self.ops[index];
        if op.request.changes_blocks() {
            let (place, arrival) = (op.changing as usize, op.arrival);
            let ended = self.changing.swap_remove(place);
            if let Some(moved) = self.changing.get(place) {
                self.ops[moved.op].changing = place as u32;
            }
            if self.edged > 0 {
                self.edged -= usize::from(ended.reads_first);
                self.let_others_have_their_turn(&ended, arrival);
            }
        }
    }

    fn let_others_have_their_turn(&mut self, ended: &Changing, arrival: u64) {
        for changing in self.changing.iter().filter(|changing| changing.takes_turns_with(ended)) {
            let op = &mut self.ops[changing.op];
            if op.stage == Stage::Waiting && op.arrival > arrival && op.turns_before > 0 {
                op.turns_before -= 1;
                if op.turns_before == 0 {
                    self.runnable.push(changing.op);
                }
            }
        }
    }

    fn vacate(&mut self, frames: &mut Frames, id: RequestId) {
        let op = &mut self.ops[id.0];
        let drives = op.handed_over && op.request.is_write();
        if !drives {
            op.frames.iter().for_each(|frame| frames.release(*frame));
        }
        op.frames.clear();
        op.extents.clear();
        op.edge_frames.iter_mut().filter_map(Option::take).for_each(|frame| frames.release(frame));
        op.stage = Stage::Free;
        // One long request does not make its place large for ever.
        op.frames.shrink_to(TRANSACTION_BLOCKS_MAX);
        self.ops.give_back(id.0);
    }
}

#[cfg(test)]
mod tests;
