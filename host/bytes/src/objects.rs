//! Requests of a host to a drive whose objects have any number of bytes, as pages of a store do.
//!
//! ```text
//!   host ── bytes ──▶ frames of the requests ──(the drive's only copy)──▶ frames of the drive ──▶ medium
//!   host ◀── bytes ── frames of the drive ◀──────────────────────────────────────────────────────── medium
//! ```
//!
//! An object begins anywhere in a block, so the drive copies what a host sends; until then that lies in a pool of its own, and never in frames that
//! the drive needs to go on: one of the requests, or one that the drive keeps what waits in ([`ObjectAsk::staging`]). What a host reads lies in
//! frames of the drive, of which as many stay free as the drive needs.
//!
//! What a request is, and what the drive is to do for it, an [`ObjectAsk`] knows: pages are one kind, and values under keys are another. A request
//! for which the drive has no room waits, and those behind it that have an order with it; if nothing will make room, it is given up.

use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, OOB_BYTES_MIN, Time};
use openftl_parts::target::Target;
use std::collections::VecDeque;
use std::ops::Range;

use crate::RequestId;
use crate::places::Places;

/// Tags of these requests are below this. What else is asked of the drive has others, and its ends are handed on.
pub const TAGS: u64 = 1 << 32;

/// What a host wants of a drive: a request whose data have no memory yet.
pub trait ObjectAsk: Copy {
    /// The drive.
    type Drive: Target + ?Sized;
    /// What the host interface keeps beside the drive.
    type Context;
    /// How a request ends.
    type Outcome: Copy;

    /// Bytes that the host sends.
    fn bytes_sent(&self) -> u32;

    /// Bytes that the host wants, at most.
    fn bytes_wanted(&self) -> u32;

    /// Whether it matters in which order it comes with others.
    fn is_ordered(&self) -> bool;

    /// Begins, or goes on where it had to wait. `sent` is what the host sent, and `room` where its answer goes.
    fn begin(
        &mut self,
        now: Time,
        tag: u64,
        drive: &mut Self::Drive,
        context: &mut Self::Context,
        sent: Sent<'_>,
        room: &[Frame],
    ) -> Begun<Self::Outcome>;

    /// Gives up one that has to wait.
    fn give_up(&mut self, now: Time, drive: &mut Self::Drive, context: &mut Self::Context) -> Self::Outcome;

    /// Whether the drive waits for another request of the host before it goes on with it.
    fn waits_for_host(&self, drive: &Self::Drive) -> bool;

    /// The frames of what hosts send: those of the requests, or those of a drive that goes on with them.
    fn staging<'p>(_drive: &'p Self::Drive, requests: &'p Frames) -> &'p Frames {
        requests
    }

    /// The same, to take and fill them.
    fn staging_mut<'p>(_drive: &'p mut Self::Drive, requests: &'p mut Frames) -> &'p mut Frames {
        requests
    }

    /// Whether nothing that the drive does by itself makes room.
    fn is_at_rest(drive: &Self::Drive) -> bool;

    /// Frames of the drive that are not for answers.
    fn frames_kept(drive: &Self::Drive) -> usize;

    /// Which request the drive has ended, and how.
    fn outcome_of(done: &<Self::Drive as Target>::Done) -> (u64, Self::Outcome);

    /// It has ended. Returns the bytes of its answer.
    fn end(&mut self, outcome: &Self::Outcome, context: &mut Self::Context) -> u32;
}

/// What became of a request that was to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun<O> {
    /// The drive has it, and ends it. What the host sent is needed no more.
    Taken,
    /// The same, and the drive has the frames of what the host sent, which are of its staging, and gives them back there.
    Kept,
    /// There is no room for the rest of it right now.
    Waits,
    /// It has ended.
    Ended(O),
}

/// What a host has sent, in frames.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    pool: &'a Frames,
    frames: &'a [Frame],
}

impl<'a> Sent<'a> {
    /// The frames, of the staging.
    #[must_use]
    pub fn frames(self) -> &'a [Frame] {
        self.frames
    }

    /// The bytes from `from` on, as many as `out` has.
    pub fn read(self, from: u32, out: &mut [u8]) {
        let (mut from, mut out) = (from as usize, out);
        while !out.is_empty() {
            let there = &self.pool.bytes(self.frames[from / BLOCK_BYTES])[from % BLOCK_BYTES..];
            let count = there.len().min(out.len());
            let (now, rest) = out.split_at_mut(count);
            now.copy_from_slice(&there[..count]);
            (from, out) = (from + count, rest);
        }
    }

    /// The bytes from `from` on, as pieces of frames. Returns those that were used of `pieces`.
    pub fn pieces<'p>(self, from: u32, bytes: u32, pieces: &'p mut [&'a [u8]]) -> &'p [&'a [u8]] {
        let (mut from, end) = (from as usize, (from + bytes) as usize);
        let mut count = 0;
        while from < end {
            let there = &self.pool.bytes(self.frames[from / BLOCK_BYTES])[from % BLOCK_BYTES..];
            let there = &there[..there.len().min(end - from)];
            pieces[count] = there;
            (from, count) = (from + there.len(), count + 1);
        }
        &pieces[..count]
    }
}

/// A request has ended; the host releases it when it has looked at its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectFinished<K, O> {
    /// The request.
    pub id: RequestId,
    /// The host's ticket.
    pub ticket: K,
    /// How.
    pub outcome: O,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Free,
    Admitted,
    Waiting,
    Running,
    Finished,
}

struct Op<K, A> {
    ticket: K,
    stage: Stage,
    ask: A,
    /// Bytes of its data: what is sent, then what is there of the answer.
    length: u32,
    /// Frames of the requests, for what is sent.
    sent: Vec<Frame>,
    /// Frames of the drive, for the answer.
    room: Vec<Frame>,
}

/// The requests under way on one drive. Each carries a ticket of the host's, which comes back when it has finished.
pub struct ObjectRequests<K, A: ObjectAsk> {
    ops: Places<Op<K, A>>,
    pool: Frames,
    /// Those for which there is no room, and those behind them, in their order.
    waiting: VecDeque<u32>,
    /// The first of those found the drive at rest: it tries once more, since asking may have set the drive to work.
    is_last_try: bool,
    finished: Vec<ObjectFinished<K, A::Outcome>>,
    /// Requests that the drive has; and of those, the ordered ones, which may wait for their host.
    under_way: usize,
    ordered: Vec<u32>,
    done: Vec<<A::Drive as Target>::Done>,
}

impl<K: Copy, A: ObjectAsk> ObjectRequests<K, A> {
    /// Room for `requests_max` requests, and for so many blocks of what is sent.
    #[must_use]
    pub fn new(requests_max: usize, blocks: usize) -> ObjectRequests<K, A> {
        ObjectRequests {
            ops: Places::new(requests_max),
            pool: Frames::new(blocks, 0, OOB_BYTES_MIN),
            waiting: VecDeque::new(),
            is_last_try: false,
            finished: Vec::new(),
            under_way: 0,
            ordered: Vec::new(),
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

    /// The frames of what hosts send.
    #[must_use]
    pub fn pool<'p>(&'p self, drive: &'p A::Drive) -> &'p Frames {
        A::staging(drive, &self.pool)
    }

    /// Frames that `ask` holds from admission on.
    #[must_use]
    pub fn frames_needed(ask: &A) -> usize {
        (ask.bytes_sent().max(ask.bytes_wanted()) as usize).div_ceil(BLOCK_BYTES)
    }

    /// Frames that are free for a request like this.
    #[must_use]
    pub fn available(&self, drive: &A::Drive, ask: &A) -> usize {
        if ask.bytes_wanted() > 0 {
            drive.frames().available(FrameForm::Bytes).saturating_sub(A::frames_kept(drive))
        } else {
            self.pool(drive).available(FrameForm::Bytes)
        }
    }

    /// Gives `ask` a place and its frames, or `None` while there are not enough of either.
    pub fn admit(&mut self, drive: &mut A::Drive, ticket: K, ask: A) -> Option<RequestId> {
        let needed = Self::frames_needed(&ask);
        if self.ops.is_full() || self.available(drive, &ask) < needed {
            return None;
        }
        let make = || Op { ticket, stage: Stage::Free, ask, length: 0, sent: Vec::new(), room: Vec::new() };
        let index = self.ops.take(make);
        let op = &mut self.ops[index];
        assert_eq!(op.stage, Stage::Free, "a free place holds no request");
        (op.ticket, op.stage, op.ask) = (ticket, Stage::Admitted, ask);
        op.length = ask.bytes_sent().max(ask.bytes_wanted());
        let (frames, taken) = match ask.bytes_wanted() > 0 {
            true => (drive.frames_mut(), &mut op.room),
            false => (A::staging_mut(drive, &mut self.pool), &mut op.sent),
        };
        assert!(frames.acquire_many(FrameForm::Bytes, needed, taken), "the frames were counted before");
        Some(RequestId(index))
    }

    /// Bytes of data of a request: those that are sent, or those of its answer.
    #[must_use]
    pub fn length(&self, id: RequestId) -> u64 {
        self.ops[id.0].length.into()
    }

    /// The bytes of a request from byte `from` on, up to the end of a frame: of a finished read, or what was filled of a write.
    #[must_use]
    pub fn slice<'a>(&'a self, drive: &'a A::Drive, id: RequestId, from: u64) -> &'a [u8] {
        let (frames, frame, part) = self.frame(drive, id, from);
        &frames.bytes(frame)[part]
    }

    /// The frame that they lie in, one of these, and where there.
    #[must_use]
    pub fn frame<'a>(&'a self, drive: &'a A::Drive, id: RequestId, from: u64) -> (&'a Frames, Frame, Range<usize>) {
        let (op, from) = (&self.ops[id.0], from as usize);
        let within = from % BLOCK_BYTES;
        let end = BLOCK_BYTES.min(within + op.length as usize - from);
        match op.sent.get(from / BLOCK_BYTES) {
            Some(frame) => (self.pool(drive), *frame, within..end),
            None => (drive.frames(), op.room[from / BLOCK_BYTES], within..end),
        }
    }

    /// Where the bytes of an admitted write go from byte `from` on, up to the end of a frame.
    #[must_use]
    pub fn slice_mut<'a>(&'a mut self, drive: &'a mut A::Drive, id: RequestId, from: u64) -> &'a mut [u8] {
        let (frame, range) = self.place(id, from);
        &mut A::staging_mut(drive, &mut self.pool).bytes_mut(frame)[range]
    }

    /// The frame that byte `from` of what is sent goes to, and where there.
    fn place(&self, id: RequestId, from: u64) -> (Frame, Range<usize>) {
        (self.ops[id.0].sent[from as usize / BLOCK_BYTES], from as usize % BLOCK_BYTES..BLOCK_BYTES)
    }

    /// The frames of what hosts send, and where in them each byte of an admitted write goes.
    pub fn pool_and_place<'a>(
        &'a mut self,
        drive: &'a mut A::Drive,
        id: RequestId,
    ) -> (&'a mut Frames, impl Fn(u64) -> (Frame, Range<usize>)) {
        let sent = &self.ops[id.0].sent;
        let place = |from: u64| (sent[from as usize / BLOCK_BYTES], from as usize % BLOCK_BYTES..BLOCK_BYTES);
        (A::staging_mut(drive, &mut self.pool), place)
    }

    /// Starts an admitted request, a write with all its bytes filled.
    pub fn start(&mut self, now: Time, drive: &mut A::Drive, context: &mut A::Context, id: RequestId) {
        let op = &mut self.ops[id.0];
        assert_eq!(op.stage, Stage::Admitted, "a request starts once");
        let has_turn = self.waiting.is_empty() || !op.ask.is_ordered();
        if !has_turn || !self.begin(now, drive, context, id.0) {
            self.ops[id.0].stage = Stage::Waiting;
            self.waiting.push_back(id.0);
        }
    }

    /// False if there is no room.
    fn begin(&mut self, now: Time, drive: &mut A::Drive, context: &mut A::Context, index: u32) -> bool {
        let op = &mut self.ops[index];
        let sent = Sent { pool: &self.pool, frames: &op.sent };
        match op.ask.begin(now, index.into(), drive, context, sent, &op.room) {
            Begun::Waits => return false,
            begun @ (Begun::Taken | Begun::Kept) => {
                if matches!(begun, Begun::Kept) {
                    op.sent.clear();
                }
                op.stage = Stage::Running;
                self.under_way += 1;
                if op.ask.is_ordered() {
                    self.ordered.push(index);
                }
            }
            Begun::Ended(outcome) => self.finish(context, index, outcome),
        }
        let staging = A::staging_mut(drive, &mut self.pool);
        self.ops[index].sent.drain(..).for_each(|frame| staging.release(frame));
        true
    }

    fn finish(&mut self, context: &mut A::Context, index: u32, outcome: A::Outcome) {
        let op = &mut self.ops[index];
        op.stage = Stage::Finished;
        op.length = op.ask.end(&outcome, context);
        self.finished.push(ObjectFinished { id: RequestId(index), ticket: op.ticket, outcome });
    }

    /// Lets the drive work and appends the requests that have finished, and the ends of what others have asked of it.
    pub fn poll(
        &mut self,
        now: Time,
        drive: &mut A::Drive,
        context: &mut A::Context,
        finished: &mut Vec<ObjectFinished<K, A::Outcome>>,
        of_others: &mut Vec<<A::Drive as Target>::Done>,
    ) {
        let mut done = std::mem::take(&mut self.done);
        drive.poll(now, &mut done);
        for one in done.drain(..) {
            let (tag, outcome) = A::outcome_of(&one);
            if tag >= TAGS {
                of_others.push(one);
                continue;
            }
            let index = tag as u32;
            assert_eq!(self.ops[index].stage, Stage::Running, "the drive ends what was started, once");
            self.under_way -= 1;
            if let Some(at) = self.ordered.iter().position(|other| *other == index) {
                self.ordered.swap_remove(at);
            }
            self.finish(context, index, outcome);
        }
        self.done = done;
        while let Some(index) = self.waiting.front().copied() {
            if !self.begin(now, drive, context, index) {
                let (is_at_rest, was_last_try) = (A::is_at_rest(drive), self.is_last_try);
                self.is_last_try = is_at_rest && !was_last_try;
                if !is_at_rest || !was_last_try {
                    break;
                }
                let outcome = self.ops[index].ask.give_up(now, drive, context);
                self.finish(context, index, outcome);
            }
            self.is_last_try = false;
            self.waiting.pop_front();
        }
        finished.append(&mut self.finished);
    }

    /// Gives up an admitted request that was not started. Nothing has happened.
    pub fn abandon(&mut self, drive: &mut A::Drive, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Admitted, "only a request that was not started is abandoned");
        self.vacate(drive, id);
    }

    /// Gives back the place and the frames of a finished request.
    pub fn release(&mut self, drive: &mut A::Drive, id: RequestId) {
        assert_eq!(self.ops[id.0].stage, Stage::Finished, "only a finished request is released");
        self.vacate(drive, id);
    }

    /// Whether the drive has something to end.
    #[must_use]
    pub fn waits_for_drive(&self, drive: &A::Drive) -> bool {
        let waits_for_host = |index: &&u32| self.ops[**index].ask.waits_for_host(drive);
        !self.waiting.is_empty() || self.under_way > self.ordered.iter().filter(waits_for_host).count()
    }

    /// Whether a call of [`ObjectRequests::poll`] would bring something whatever the drive does.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty() || self.is_last_try
    }

    fn vacate(&mut self, drive: &mut A::Drive, id: RequestId) {
        let op = &mut self.ops[id.0];
        let staging = A::staging_mut(drive, &mut self.pool);
        op.sent.drain(..).for_each(|frame| staging.release(frame));
        op.room.drain(..).for_each(|frame| drive.frames_mut().release(frame));
        op.stage = Stage::Free;
        self.ops.give_back(id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that has room for so many bytes, keeps what it was given, and works while it is told to.
    struct Shelf {
        frames: Frames,
        room: usize,
        is_at_work: bool,
        kept: Vec<Vec<u8>>,
        done: Vec<u64>,
    }

    impl Target for Shelf {
        type Done = u64;

        fn frames(&self) -> &Frames {
            &self.frames
        }

        fn frames_mut(&mut self) -> &mut Frames {
            &mut self.frames
        }

        fn poll(&mut self, _: Time, done: &mut Vec<u64>) {
            done.append(&mut self.done);
        }

        fn next_due(&self) -> Option<Time> {
            None
        }

        fn is_read_only(&self) -> bool {
            false
        }
    }

    #[derive(Clone, Copy)]
    enum Ask {
        Put { bytes: u32 },
        Get { index: usize, bytes: u32 },
    }

    impl ObjectAsk for Ask {
        type Drive = Shelf;
        type Context = ();
        type Outcome = Option<u32>;

        fn bytes_sent(&self) -> u32 {
            if let Ask::Put { bytes } = self { *bytes } else { 0 }
        }

        fn bytes_wanted(&self) -> u32 {
            if let Ask::Get { bytes, .. } = self { *bytes } else { 0 }
        }

        fn is_ordered(&self) -> bool {
            matches!(self, Ask::Put { .. })
        }

        fn begin(
            &mut self,
            _: Time,
            tag: u64,
            drive: &mut Shelf,
            (): &mut (),
            sent: Sent<'_>,
            room: &[Frame],
        ) -> Begun<Option<u32>> {
            match *self {
                Ask::Put { bytes } if bytes as usize > drive.room => Begun::Waits,
                Ask::Put { bytes } => {
                    let mut pieces = [&[][..]; 8];
                    drive.room -= bytes as usize;
                    drive.kept.push(sent.pieces(0, bytes, &mut pieces).concat());
                    drive.done.push(tag);
                    Begun::Taken
                }
                Ask::Get { index, bytes } => {
                    let Some(kept) = drive.kept.get(index) else { return Begun::Ended(None) };
                    let there = &kept[..kept.len().min(bytes as usize)];
                    for (frame, part) in room.iter().zip(there.chunks(BLOCK_BYTES)) {
                        drive.frames.bytes_mut(*frame)[..part.len()].copy_from_slice(part);
                    }
                    Begun::Ended(Some(there.len() as u32))
                }
            }
        }

        fn give_up(&mut self, _: Time, _: &mut Shelf, (): &mut ()) -> Option<u32> {
            None
        }

        fn waits_for_host(&self, _: &Shelf) -> bool {
            false
        }

        fn is_at_rest(drive: &Shelf) -> bool {
            !drive.is_at_work
        }

        fn frames_kept(_: &Shelf) -> usize {
            2
        }

        fn outcome_of(tag: &u64) -> (u64, Option<u32>) {
            (*tag, Some(0))
        }

        fn end(&mut self, outcome: &Option<u32>, (): &mut ()) -> u32 {
            outcome.unwrap_or(0)
        }
    }

    fn bench(room: usize) -> (Shelf, ObjectRequests<u8, Ask>) {
        let frames = Frames::new(4, 0, OOB_BYTES_MIN);
        let shelf = Shelf { frames, room, is_at_work: false, kept: Vec::new(), done: Vec::new() };
        (shelf, ObjectRequests::new(5, 4))
    }

    fn put(requests: &mut ObjectRequests<u8, Ask>, shelf: &mut Shelf, ticket: u8, bytes: u32) -> RequestId {
        let id = requests.admit(shelf, ticket, Ask::Put { bytes }).expect("there is room");
        let mut from = 0;
        while from < u64::from(bytes) {
            let room = requests.slice_mut(shelf, id, from);
            room.fill(ticket);
            from += room.len() as u64;
        }
        id
    }

    fn ended(requests: &mut ObjectRequests<u8, Ask>, shelf: &mut Shelf) -> Vec<(u8, Option<u32>)> {
        let mut finished = Vec::new();
        requests.poll(Time::ZERO, shelf, &mut (), &mut finished, &mut Vec::new());
        let ended = finished.iter().map(|one| (one.ticket, one.outcome)).collect();
        finished.into_iter().for_each(|one| requests.release(shelf, one.id));
        ended
    }

    #[test]
    fn bytes_come_back_as_they_were_sent_and_no_more_of_them_than_there_are() {
        let (mut shelf, mut requests) = bench(100_000);
        let id = put(&mut requests, &mut shelf, 7, 5000);
        requests.start(Time::ZERO, &mut shelf, &mut (), id);
        assert_eq!(requests.pool(&shelf).available(FrameForm::Bytes), 4, "what was copied needs no frames");
        assert_eq!(ended(&mut requests, &mut shelf), [(7, Some(0))]);
        let id = requests.admit(&mut shelf, 8, Ask::Get { index: 0, bytes: 8192 }).unwrap();
        requests.start(Time::ZERO, &mut shelf, &mut (), id);
        let mut finished = Vec::new();
        requests.poll(Time::ZERO, &mut shelf, &mut (), &mut finished, &mut Vec::new());
        assert_eq!((finished[0].outcome, requests.length(id)), (Some(5000), 5000));
        let lengths = [0, 4096, 4999].map(|from| requests.slice(&shelf, id, from).len());
        assert_eq!(lengths, [4096, 904, 1]);
        assert!(requests.slice(&shelf, id, 4096).iter().all(|byte| *byte == 7));
        requests.release(&mut shelf, id);
        assert!(requests.is_empty() && shelf.frames.available(FrameForm::Bytes) == 4);
    }

    #[test]
    fn frames_that_the_drive_needs_are_not_given_to_answers() {
        let (mut shelf, mut requests) = bench(0);
        assert!(requests.admit(&mut shelf, 1, Ask::Get { index: 0, bytes: 8193 }).is_none());
        let id = requests.admit(&mut shelf, 1, Ask::Get { index: 0, bytes: 8192 }).unwrap();
        assert!(requests.admit(&mut shelf, 2, Ask::Get { index: 0, bytes: 1 }).is_none());
        let other = requests.admit(&mut shelf, 3, Ask::Put { bytes: 4 * 4096 }).expect("what is sent lies elsewhere");
        assert!(requests.admit(&mut shelf, 4, Ask::Put { bytes: 1 }).is_none());
        requests.abandon(&mut shelf, other);
        requests.abandon(&mut shelf, id);
        assert_eq!(shelf.frames.available(FrameForm::Bytes) + requests.pool(&shelf).available(FrameForm::Bytes), 8);
    }

    #[test]
    fn what_has_no_room_waits_in_order_and_is_given_up_when_the_drive_rests() {
        let (mut shelf, mut requests) = bench(100);
        shelf.is_at_work = true;
        for (ticket, bytes) in [(1, 200), (2, 50), (3, 300)] {
            let id = put(&mut requests, &mut shelf, ticket, bytes);
            requests.start(Time::ZERO, &mut shelf, &mut (), id);
        }
        // The second one has room, and does not pass the first.
        assert_eq!(ended(&mut requests, &mut shelf), []);
        assert!(requests.waits_for_drive(&shelf) && shelf.kept.is_empty());
        // One without an order passes them.
        let id = requests.admit(&mut shelf, 9, Ask::Get { index: 0, bytes: 1 }).unwrap();
        requests.start(Time::ZERO, &mut shelf, &mut (), id);
        assert_eq!(ended(&mut requests, &mut shelf), [(9, None)]);
        shelf.room = 300;
        assert_eq!(ended(&mut requests, &mut shelf), []);
        assert_eq!(ended(&mut requests, &mut shelf), [(1, Some(0)), (2, Some(0))]);
        assert_eq!(shelf.kept, [vec![1; 200], vec![2; 50]]);
        // The third finds no room; when nothing will make any, it is tried once more and given up.
        shelf.is_at_work = false;
        assert_eq!(ended(&mut requests, &mut shelf), []);
        assert!(requests.has_finished(), "it is to be looked at again at once");
        assert_eq!(ended(&mut requests, &mut shelf), [(3, None)]);
        assert!(requests.is_empty() && !requests.waits_for_drive(&shelf) && !requests.has_finished());
    }

    #[test]
    fn the_ends_of_what_others_ask_of_the_drive_are_handed_on() {
        let (mut shelf, mut requests) = bench(100);
        let id = put(&mut requests, &mut shelf, 1, 50);
        requests.start(Time::ZERO, &mut shelf, &mut (), id);
        shelf.done.insert(0, TAGS + 7);
        let (mut finished, mut of_others) = (Vec::new(), Vec::new());
        requests.poll(Time::ZERO, &mut shelf, &mut (), &mut finished, &mut of_others);
        assert_eq!((finished.len(), of_others), (1, vec![TAGS + 7]));
    }
}
