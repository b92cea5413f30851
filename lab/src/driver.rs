//! Keeps a drive busy at a queue depth and checks every block that comes back.
//!
//! Every block written carries a stamp that names its address and its version: how often the driver has written it.
//! The driver remembers the version of each block, and which of the last ones were trims. That is the whole reference
//! model:
//!
//! ```text
//!   63           24 23        0                                       31     24 23        0
//!   ┌──────────────┬───────────┐                                      ┌────────┬───────────┐
//!   │ block + 1    │ version   │  what is in the block                │ trims  │ version   │  what is remembered of it
//!   └──────────────┴───────────┘                                      └────────┴───────────┘
//! ```
//!
//! A trim makes a version too, which reads as zeroes; so does a block never written. The lowest bit of the trims is the
//! newest version's.
//!
//! The host always has as many requests at the drive as the queue is deep. What the drive has no room for waits, and that
//! time belongs to its latency. Where the load says when its requests are wanted, they come at their times, and wait where
//! the queue is full: that belongs to their latency too.
//!
//! A read may return any version from the last one acknowledged when it was submitted to the last one submitted when it
//! ended. Writes to one block take effect in the order of submission, and so do trims. Anything else is wrong data and
//! ends the run.
//!
//! What a drive is told of the lifetime of what is written is up to the [`Binding`]. A drive may refuse to keep an object
//! apart; the host goes on without.

use crate::binding::Binding;
use crate::load::{Access, Filling, Flushing, Load, Operation};
use crate::outcome::Outcome;
use crate::trace::TraceError;
use openftl_core::{Clock, Frame, FrameForm, Nanos, Payload, PayloadMut, Stamp, Time};
use openftl_parts::target::Extent;
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_parts::{BlockTarget, Done, Durability, IoError, Request};
use std::collections::VecDeque;
use std::ops::ControlFlow;

const VERSION_BITS: u32 = 24;
const VERSION_MASK: u32 = (1 << VERSION_BITS) - 1;
/// As many of a block's versions are known to be a write or a trim.
const KNOWN_VERSIONS: u32 = u32::BITS - VERSION_BITS;

/// Requests between two looks at limits and progress.
const WATCH_REQUESTS: u64 = 1024;

/// Polls in a row in which nothing ends, after which the drive is said to hang.
const FRUITLESS_POLLS_MAX: u32 = 1_000_000;

/// When a phase ends. Requests under way are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// After this many requests.
    Requests(u64),
    /// When this many blocks have been written.
    BlocksWritten(u64),
    /// When this many blocks have been read or written.
    BlocksMoved(u64),
    /// When the drive's clock shows this time.
    Until(Time),
    /// At this time, without waiting for anything: the drive is about to lose its power. See [`Driver::after_cut`].
    Cut(Time),
}

/// Why a run failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The drive returned something else than what was written.
    #[error("block {block} came back as {found}, but {expected} was written: the drive returned wrong data")]
    WrongData {
        /// The logical block.
        block: u64,
        /// What was written.
        expected: String,
        /// What came back.
        found: String,
    },
    /// A request failed.
    #[error("{operation:?} of {blocks} blocks from block {first} on failed: {error}")]
    Failed {
        /// What was asked.
        operation: Operation,
        /// First logical block.
        first: u64,
        /// How many.
        blocks: u32,
        /// What the drive said.
        error: IoError,
    },
    /// Requests are under way, and the drive says that it has nothing to do.
    #[error("the drive hangs: {in_flight} requests are under way at {} s, and it gets nowhere", at.as_secs_f64())]
    Stalled {
        /// Requests under way.
        in_flight: usize,
        /// When.
        at: Time,
    },
    /// The load could not go on.
    #[error(transparent)]
    Load(#[from] TraceError),
}

/// What is known of a block: its version, and which of the last ones were trims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block(u32);

impl Block {
    /// Nothing is there, and nothing ever was.
    const NEW: Block = Block(!VERSION_MASK);

    fn version(self) -> u32 {
        self.0 & VERSION_MASK
    }

    /// After one more write or trim.
    #[inline]
    fn after(self, operation: Operation) -> Block {
        let trims = (self.0 & !VERSION_MASK) << 1 | u32::from(operation == Operation::Trim) << VERSION_BITS;
        Block(trims | (self.0 + 1) & VERSION_MASK)
    }

    /// Before the last write or trim, which did not take place. What has left the memory counts as a trim.
    fn before(self) -> Block {
        let trims = (self.0 & !VERSION_MASK) >> 1 & !VERSION_MASK | 1 << (u32::BITS - 1);
        Block(trims | self.version().wrapping_sub(1) & VERSION_MASK)
    }

    /// Whether the version `age` versions before the newest one may be `stamp` for the block numbered `number`.
    #[inline]
    fn may_be(self, number: u64, age: u32, found: Stamp) -> bool {
        let version = self.version().wrapping_sub(age) & VERSION_MASK;
        let trimmed = self.0 >> VERSION_BITS >> age.min(KNOWN_VERSIONS - 1) & 1 == 1;
        let written = found == stamp(number, version);
        match age < KNOWN_VERSIONS {
            true if trimmed => found == Stamp::ZERO,
            true => written,
            false => written || found == Stamp::ZERO,
        }
    }
}

#[derive(Clone, Copy)]
struct Slot {
    /// No longer meant once the request has ended.
    under_way: bool,
    access: Access,
    /// When the host wanted it: before it was submitted, if the drive had no room.
    since: Time,
}

/// A request that is not submitted yet.
struct Waiting {
    access: Access,
    /// Where an object is that is announced.
    extents: Vec<Extent>,
    /// When the host wanted it.
    since: Time,
}

/// What can be seen of a phase while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a, T> {
    /// The drive.
    pub target: &'a T,
    /// Measured so far.
    pub outcome: &'a Outcome,
    /// On the drive's clock.
    pub now: Time,
}

/// A drive of any type, with whoever watches it.
trait Watched {
    fn target(&mut self) -> &mut dyn BlockTarget;

    fn watch(&mut self, outcome: &Outcome, now: Time) -> ControlFlow<()>;
}

struct Observed<'a, T, W> {
    target: &'a mut T,
    watch: W,
}

impl<T: BlockTarget, W: FnMut(Progress<'_, T>) -> ControlFlow<()>> Watched for Observed<'_, T, W> {
    fn target(&mut self) -> &mut dyn BlockTarget {
        self.target
    }

    fn watch(&mut self, outcome: &Outcome, now: Time) -> ControlFlow<()> {
        (self.watch)(Progress { target: self.target, outcome, now })
    }
}

/// Drives one drive: phase after phase, as it remembers what the drive holds.
pub struct Driver {
    blocks: Vec<Block>,
    queue_depth: usize,
    access_blocks_max: usize,
    slots: Vec<Slot>,
    /// Requests that the drive has no room for yet, in order.
    waiting: VecDeque<Waiting>,
    /// Slots without a request under way.
    idle: Vec<u32>,
    /// Frames of the reads under way, `access_blocks_max` a slot.
    frames: Vec<Frame>,
    /// For each block of a read under way, the oldest version that it may return.
    oldest: Vec<u32>,
    write_frames: Vec<Frame>,
    done: Vec<Done>,
    durability: Durability,
    binding: Binding,
    /// The least time from one request to the next.
    pace: Nanos,
    /// When the next request may come.
    next_at: Time,
    /// Writes and trims under way when the power was cut: they took place or did not.
    in_doubt: Vec<Access>,
}

impl Driver {
    /// A driver for a new drive of `blocks` blocks, with at most `queue_depth` requests under way, none longer than
    /// `access_blocks_max` blocks.
    ///
    /// # Panics
    /// If the queue depth is zero, or an access is longer than a transaction or empty.
    #[must_use]
    pub fn new(blocks: u64, queue_depth: usize, access_blocks_max: usize) -> Driver {
        assert!(queue_depth > 0, "a driver needs a queue depth of at least 1");
        assert!(
            (1..=TRANSACTION_BLOCKS_MAX).contains(&access_blocks_max),
            "an access has 1 to {TRANSACTION_BLOCKS_MAX} blocks"
        );
        let nothing = Slot { under_way: false, access: Access::FLUSH, since: Time::ZERO };
        Driver {
            blocks: vec![Block::NEW; blocks as usize],
            queue_depth,
            access_blocks_max,
            waiting: VecDeque::with_capacity(queue_depth),
            slots: vec![nothing; queue_depth],
            idle: (0..queue_depth as u32).rev().collect(),
            frames: vec![Frame(0); queue_depth * access_blocks_max],
            oldest: vec![0; queue_depth * access_blocks_max],
            write_frames: Vec::with_capacity(access_blocks_max),
            done: Vec::with_capacity(queue_depth),
            durability: Durability::Volatile,
            binding: Binding::None,
            pace: Nanos::ZERO,
            next_at: Time::ZERO,
            in_doubt: Vec::new(),
        }
    }

    /// From here on, requests come at least `pace` apart, so that drives of different speed get the same load.
    pub fn set_pace(&mut self, pace: Nanos) {
        self.pace = pace;
    }

    /// The drive lost its power after [`Limit::Cut`] and is back. What was under way took place or did not; all that
    /// was acknowledged must be there, so writes must have been durable.
    ///
    /// # Panics
    /// If writes were not durable: then the driver does not know what may be lost.
    pub fn after_cut(&mut self) {
        assert_eq!(self.durability, Durability::Durable, "only of durable writes is known what survives");
        self.waiting.clear();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if std::mem::take(&mut slot.under_way) {
                if slot.access.operation.changes_blocks() {
                    self.in_doubt.push(slot.access);
                }
                self.idle.push(index as u32);
            }
        }
    }

    /// From here on, the drive is told of lifetimes what `binding` says.
    pub fn set_binding(&mut self, binding: Binding) {
        self.binding = binding;
    }

    /// From here on, writes and trims are acknowledged when `durability` says.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Lets `load` fill the drive for the first time. `watch` as in [`Driver::run`].
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn fill<T: BlockTarget>(
        &mut self,
        target: &mut T,
        clock: &mut dyn Clock,
        load: &mut dyn Load,
        watch: impl FnMut(Progress<'_, T>) -> ControlFlow<()>,
    ) -> Result<Outcome, RunError> {
        self.run(target, clock, &mut Filling(load), Limit::Requests(u64::MAX), watch)
    }

    /// Lets the drive make durable all that was written so far, and waits for it.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn flush<T: BlockTarget>(&mut self, target: &mut T, clock: &mut dyn Clock) -> Result<Outcome, RunError> {
        self.run(target, clock, &mut Flushing, Limit::Requests(1), |_| ControlFlow::Continue(()))
    }

    /// Runs one phase: until the limit, or until the load has come to its end. `watch` is called every thousand requests
    /// or so and may end the phase.
    ///
    /// # Errors
    /// [`RunError`] if the drive is at fault, or the load cannot go on. A drive that turns read-only is not: see [`Outcome::turned_read_only`].
    pub fn run<T: BlockTarget>(
        &mut self,
        target: &mut T,
        clock: &mut dyn Clock,
        load: &mut dyn Load,
        limit: Limit,
        watch: impl FnMut(Progress<'_, T>) -> ControlFlow<()>,
    ) -> Result<Outcome, RunError> {
        self.run_watched(&mut Observed { target, watch }, clock, load, limit)
    }

    /// For drives of all types: compiled once, and as fast as this crate is, whoever calls it.
    fn run_watched(
        &mut self,
        drive: &mut dyn Watched,
        clock: &mut dyn Clock,
        load: &mut dyn Load,
        limit: Limit,
    ) -> Result<Outcome, RunError> {
        let mut target = drive.target();
        let form = target.payload_form();
        let mut now = clock.now();
        let mut outcome = Outcome::new(now);
        let mut issued = Issued::default();
        let mut watched = 0;
        let mut more = true;
        let mut fruitless = 0;
        // When the first request came that has a time, and its time.
        let mut origin = None;
        let cut = if let Limit::Cut(cut) = limit { cut } else { Time::NEVER };
        loop {
            if now >= cut {
                outcome.ended = now;
                return Ok(outcome);
            }
            while more && self.waiting.len() < self.idle.len() && now >= self.next_at {
                more = match limit {
                    Limit::Requests(requests) => issued.requests < requests,
                    Limit::BlocksWritten(blocks) => issued.blocks_written < blocks,
                    Limit::BlocksMoved(blocks) => issued.blocks_written + issued.blocks_read < blocks,
                    Limit::Until(end) | Limit::Cut(end) => now < end,
                };
                if more {
                    let Some(access) = self.next_request(load) else {
                        more = false;
                        break;
                    };
                    now = clock.now();
                    let since = load.due().map_or(now, |due| {
                        let (began, first) = *origin.get_or_insert((now, due));
                        began + due.since(first)
                    });
                    if matches!(limit, Limit::Until(end) | Limit::Cut(end) if since >= end) {
                        more = false;
                        break;
                    }
                    self.next_at = since.max(now + self.pace);
                    issued.count(access);
                    let extents = if access.operation == Operation::Allocate { load.extents() } else { Vec::new() };
                    self.waiting.push_back(Waiting { access, extents, since });
                }
            }
            while let Some(request) = self.waiting.pop_front() {
                // On a real clock time goes on between any two requests.
                now = clock.now();
                if request.since > now {
                    self.waiting.push_front(request);
                    break;
                }
                match self.submit(target, form, now, &request)? {
                    Admission::Accepted => {}
                    Admission::Refused => {
                        self.waiting.push_front(request);
                        break;
                    }
                    Admission::NoObject => outcome.objects_refused += 1,
                    Admission::ReadOnly => {
                        outcome.turned_read_only = true;
                        more = false;
                    }
                }
            }
            now = clock.now();
            target.poll(now, &mut self.done);
            let progressed = !self.done.is_empty();
            let told = clock.now();
            let mut done = std::mem::take(&mut self.done);
            for done in done.drain(..) {
                if told > done.at {
                    outcome.lateness.saturating_record(told.since(done.at).0);
                }
                more &= self.complete(target, &mut outcome, done)?;
            }
            self.done = done;
            if outcome.requests() >= watched + WATCH_REQUESTS {
                watched = outcome.requests();
                if drive.watch(&outcome, now).is_break() {
                    outcome.stopped = true;
                    more = false;
                }
                target = drive.target();
            }
            let in_flight = self.queue_depth - self.idle.len();
            if !more && in_flight == 0 && self.waiting.is_empty() {
                return match load.failure() {
                    Some(error) => Err(RunError::Load(error.clone())),
                    None => Ok(outcome),
                };
            }
            // The host's own next step, where the drive's is later.
            let asks = more && self.waiting.len() < self.idle.len();
            let next = if asks { self.next_at.min(cut) } else { cut };
            let next =
                self.waiting.front().filter(|front| front.since > now).map_or(next, |front| next.min(front.since));
            now = match target.next_due() {
                // As long as requests end there may be more to submit at the same moment.
                _ if progressed => clock.now(),
                Some(due) if due <= now => clock.now(),
                Some(due) => clock.wait_until(due.min(next)),
                None if next != Time::NEVER => clock.wait_until(next),
                None => return Err(RunError::Stalled { in_flight, at: now }),
            };
            fruitless = if progressed { 0 } else { fruitless + 1 };
            if fruitless > FRUITLESS_POLLS_MAX {
                return Err(RunError::Stalled { in_flight, at: now });
            }
        }
    }

    /// The load's next step that is a request: objects are announced only where the binding says so.
    #[inline]
    fn next_request(&self, load: &mut dyn Load) -> Option<Access> {
        loop {
            let access = load.step()?;
            if access.operation != Operation::Allocate || self.binding == Binding::Allocate {
                return Some(access);
            }
        }
    }

    #[inline]
    fn submit(
        &mut self,
        target: &mut dyn BlockTarget,
        form: FrameForm,
        now: Time,
        request: &Waiting,
    ) -> Result<Admission, RunError> {
        let &Waiting { access, since, ref extents } = request;
        let slot = *self.idle.last().expect("the caller made sure that a slot is idle");
        let Access { operation, first, hint, .. } = access;
        self.write_frames.clear();
        if matches!(operation, Operation::Read | Operation::Write)
            && !self.acquire(target, form, access.blocks as usize)
        {
            return Ok(Admission::Refused);
        }
        let extent = [Extent { first, blocks: u64::from(access.blocks) }];
        let extents = if extents.is_empty() { extent.as_slice() } else { extents };
        let request = match operation {
            Operation::Read => {
                self.remember_oldest(slot, access);
                let blocks = self.write_frames.len();
                self.frames[slot as usize * self.access_blocks_max..][..blocks].copy_from_slice(&self.write_frames);
                Request::Read { first, frames: &self.write_frames }
            }
            Operation::Write => {
                let frames = target.frames_mut();
                for (index, &frame) in self.write_frames.iter().enumerate() {
                    let block = first + index as u64;
                    let stamp = stamp(block, self.blocks[block as usize].after(operation).version());
                    match frames.payload_mut(frame) {
                        PayloadMut::Stamp(payload) => *payload = stamp,
                        PayloadMut::Bytes(payload) => stamp.expand(payload),
                    }
                }
                let handle = self.binding.handle(hint);
                Request::Write { first, frames: &self.write_frames, durability: self.durability, handle }
            }
            Operation::Trim => Request::Trim { first, blocks: extent[0].blocks, durability: self.durability },
            Operation::Flush => Request::Flush,
            Operation::Allocate => Request::FlashAlloc { extents },
        };
        match target.submit(now, u64::from(slot), request) {
            Ok(()) => {
                self.idle.pop();
                self.slots[slot as usize] = Slot { under_way: true, access, since };
                if operation.changes_blocks() {
                    for block in &mut self.blocks[first as usize..][..access.blocks as usize] {
                        *block = block.after(operation);
                    }
                }
                Ok(Admission::Accepted)
            }
            Err(error) => {
                for &frame in &self.write_frames {
                    target.frames_mut().release(frame);
                }
                match error {
                    IoError::QueueFull => Ok(Admission::Refused),
                    IoError::Object(_) if operation == Operation::Allocate => Ok(Admission::NoObject),
                    IoError::ReadOnly if operation != Operation::Read => Ok(Admission::ReadOnly),
                    error => Err(failed(access, error)),
                }
            }
        }
    }

    /// Takes as many frames as a read or write has blocks; false if there are too few.
    #[inline]
    fn acquire(&mut self, target: &mut dyn BlockTarget, form: FrameForm, blocks: usize) -> bool {
        assert!(
            blocks <= self.access_blocks_max,
            "an access of {blocks} blocks on a driver for {}",
            self.access_blocks_max
        );
        target.frames_mut().acquire_many(form, blocks, &mut self.write_frames)
    }

    /// Before a read is submitted: the versions that are acknowledged by now.
    fn remember_oldest(&mut self, slot: u32, access: Access) {
        let blocks = access.blocks as usize;
        let oldest = &mut self.oldest[slot as usize * self.access_blocks_max..][..blocks];
        for (oldest, block) in oldest.iter_mut().zip(&self.blocks[access.first as usize..]) {
            *oldest = block.version();
        }
        if self.idle.len() == self.queue_depth && self.in_doubt.is_empty() {
            return;
        }
        let under_way = self.slots.iter().filter(|slot| slot.under_way).map(|slot| &slot.access);
        for other in under_way.chain(&self.in_doubt).filter(|other| other.operation.changes_blocks()) {
            let end = (other.first + u64::from(other.blocks)).min(access.first + blocks as u64);
            for block in other.first.max(access.first)..end {
                let oldest = &mut oldest[(block - access.first) as usize];
                *oldest = oldest.wrapping_sub(1) & VERSION_MASK;
            }
        }
    }

    /// Ends a request; false if no more should be submitted.
    #[inline]
    fn complete(&mut self, target: &mut dyn BlockTarget, outcome: &mut Outcome, done: Done) -> Result<bool, RunError> {
        let slot = done.tag as usize;
        let Slot { access, since, .. } = self.slots[slot];
        self.slots[slot].under_way = false;
        self.idle.push(slot as u32);
        outcome.ended = outcome.ended.max(done.at);
        let hash = &mut outcome.trace_hash;
        hash.add(traced(access));
        hash.add(done.at.0);
        hash.add(u64::from(access.blocks) << 1 | u64::from(done.result.is_ok()));
        let latency = done.at.since(since);
        match (access.operation, done.result) {
            (Operation::Read, Ok(())) => {
                outcome.reads.count(access.blocks, latency);
                self.check_read(target, slot, access)?;
            }
            (Operation::Write, Ok(())) => outcome.writes.count(access.blocks, latency),
            (Operation::Trim, Ok(())) => outcome.trims.count(access.blocks, latency),
            (Operation::Flush, Ok(())) => outcome.flushes.count(0, latency),
            (Operation::Allocate, Ok(())) => outcome.objects_kept += 1,
            (Operation::Allocate, Err(IoError::Object(_))) => outcome.objects_refused += 1,
            (Operation::Read, Err(error)) => return Err(failed(access, error)),
            (operation, Err(IoError::ReadOnly)) => {
                if operation.changes_blocks() {
                    // Nothing of it is there, nor of any later one.
                    for block in &mut self.blocks[access.first as usize..][..access.blocks as usize] {
                        *block = block.before();
                    }
                }
                outcome.turned_read_only = true;
                return Ok(false);
            }
            (_, Err(error)) => return Err(failed(access, error)),
        }
        Ok(true)
    }

    /// Compares what a read returned, and gives its frames back.
    #[inline]
    fn check_read(&mut self, target: &mut dyn BlockTarget, slot: usize, access: Access) -> Result<(), RunError> {
        for index in 0..access.blocks as usize {
            let block = access.first + index as u64;
            let place = slot * self.access_blocks_max + index;
            let frames = target.frames_mut();
            check(frames.payload(self.frames[place]), block, self.blocks[block as usize], self.oldest[place])?;
            frames.release(self.frames[place]);
        }
        Ok(())
    }
}

/// What of an access goes into the trace hash.
fn traced(access: Access) -> u64 {
    match access.operation {
        Operation::Read => access.first << 1,
        Operation::Write => access.first << 1 | 1,
        Operation::Trim => access.first << 1 | 1 << 63,
        Operation::Flush => 1 << 62,
        Operation::Allocate => access.first << 1 | 3 << 62,
    }
}

#[derive(Clone, Copy, Default)]
struct Issued {
    requests: u64,
    blocks_written: u64,
    blocks_read: u64,
}

impl Issued {
    #[inline]
    fn count(&mut self, access: Access) {
        self.requests += 1;
        match access.operation {
            Operation::Read => self.blocks_read += u64::from(access.blocks),
            Operation::Write => self.blocks_written += u64::from(access.blocks),
            Operation::Trim | Operation::Flush | Operation::Allocate => {}
        }
    }
}

enum Admission {
    Accepted,
    /// Ask again after a poll.
    Refused,
    /// The drive does not keep this object apart.
    NoObject,
    ReadOnly,
}

fn failed(access: Access, error: IoError) -> RunError {
    RunError::Failed { operation: access.operation, first: access.first, blocks: access.blocks, error }
}

/// What `block` holds after the write that made its version `version`.
#[inline]
fn stamp(block: u64, version: u32) -> Stamp {
    Stamp((block + 1) << VERSION_BITS | u64::from(version))
}

/// Checks what a read of the block numbered `number` returned: any version from `oldest` to the newest may be there.
#[inline]
fn check(payload: Payload<'_>, number: u64, block: Block, oldest: u32) -> Result<(), RunError> {
    let found = match payload {
        Payload::Stamp(stamp) => Some(stamp),
        Payload::Bytes(bytes) => Stamp::recognise(bytes),
    };
    let span = block.version().wrapping_sub(oldest) & VERSION_MASK;
    if found.is_some_and(|found| (0..=span).any(|age| block.may_be(number, age, found))) {
        return Ok(());
    }
    let newest = stamp(number, block.version());
    let expected = if block.may_be(number, 0, newest) { newest } else { Stamp::ZERO };
    Err(RunError::WrongData { block: number, expected: describe(Some(expected)), found: describe(found) })
}

fn describe(stamp: Option<Stamp>) -> String {
    match stamp {
        None => "bytes that were never written".to_owned(),
        Some(Stamp::ZERO) => "zeroes".to_owned(),
        Some(Stamp(word)) => match word >> VERSION_BITS {
            0 => format!("the unknown stamp {word:#x}"),
            block => format!("block {} version {}", block - 1, word as u32 & VERSION_MASK),
        },
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
