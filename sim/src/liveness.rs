//! What a drive owes its host besides the truth: an answer, whatever became of it before.
//!
//! No request, no opening, no closing and no check may take longer than the drive's [`Patience`], in virtual time and in the number of
//! times that it was polled. After a power cut [`probe`] has the recovered drive do some of everything, close, and open
//! once more. What takes longer, and a drive that has nothing due while a request waits, is a panic that says what the
//! drive is doing.

use crate::stage::Stage;
use crate::step::Moment;
use openftl_blocks::Ftl;
use openftl_core::{Clock, Geometry, Nanos, Time, VirtualClock};
use openftl_media::profile::Faults;
use openftl_media::{EmulatedDevice, Media};
use openftl_parts::{Access, Durability, Target};

/// A drive may read, program and erase the whole of its slowest die so many times before it answers. Collection
/// on a drive that is full moves each block several times; a drive that hangs exceeds any number.
const PASSES: u64 = 16;

/// Polls for each block of the device, and for each block of the smallest: each program and each read is one or two.
const POLLS_PER_BLOCK: u64 = 64;
const BLOCKS_MIN: u64 = 1_024;

/// How long a host waits for anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// In virtual time.
    pub time: Nanos,
    /// In polls.
    pub polls: u64,
}

impl Patience {
    /// With a drive on this device.
    #[must_use]
    pub fn with(device: &EmulatedDevice) -> Patience {
        let geometry: &Geometry = device.geometry();
        let blocks_on_pu = u64::from(geometry.chunks_per_pu) * u64::from(geometry.blocks_per_chunk);
        let programs = blocks_on_pu / u64::from(geometry.ws_min);
        let pass = geometry.read.max * blocks_on_pu
            + geometry.write.max * programs
            + geometry.reset.max * u64::from(geometry.chunks_per_pu);
        Patience { time: pass * PASSES, polls: POLLS_PER_BLOCK * geometry.blocks().max(BLOCKS_MIN) }
    }
}

/// How long a host has waited.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    patience: Patience,
    since: Time,
    polls: u64,
}

impl Waiting {
    /// Since `now`.
    #[must_use]
    pub fn new(patience: Patience, now: Time) -> Waiting {
        Waiting { patience, since: now, polls: 0 }
    }

    /// Something has ended, or nothing was waited for.
    pub fn begin_anew(&mut self, now: Time) {
        (self.since, self.polls) = (now, 0);
    }

    /// Since when.
    #[must_use]
    pub fn since(&self) -> Time {
        self.since
    }

    /// The drive was polled once more.
    ///
    /// # Errors
    /// How long it has taken, if that is too long.
    pub fn poll(&mut self, now: Time) -> Result<(), String> {
        self.polls += 1;
        let waited = now.since(self.since);
        if waited <= self.patience.time && self.polls <= self.patience.polls {
            return Ok(());
        }
        let Patience { time, polls } = self.patience;
        Err(format!("no end after {waited} and {} polls (the bound is {time} and {polls} polls)", self.polls))
    }
}

/// A clock for what waits by itself (opening, closing, checking), and must come to an end.
pub struct Deadline<'a> {
    clock: &'a mut VirtualClock,
    waiting: Waiting,
    /// What is done, and the state of the drive before that.
    deed: String,
}

impl<'a> Deadline<'a> {
    /// `deed` begins now.
    pub fn new(clock: &'a mut VirtualClock, patience: Patience, deed: String) -> Deadline<'a> {
        let waiting = Waiting::new(patience, clock.0);
        Deadline { clock, waiting, deed }
    }
}

impl Clock for Deadline<'_> {
    fn now(&mut self) -> Time {
        if let Err(waited) = self.waiting.poll(self.clock.0) {
            panic!("{}: {waited}", self.deed);
        }
        self.clock.now()
    }

    fn wait_until(&mut self, due: Time) -> Time {
        self.clock.wait_until(due)
    }
}

/// Blocks of a probe's write, at most.
const WRITE_BLOCKS: u64 = 32;

/// Chunks that a probe writes: it needs new ones, and reaches what the recovery has left.
const CHUNKS_WRITTEN: u64 = 2;

/// Opens a drive after a power cut, compares it with the model, and has it [work and close](prove).
///
/// # Panics
/// If something contradicts the model, or does not end in time.
pub fn probe(mut stage: impl Stage) {
    if let Err(contradiction) = stage.recover() {
        panic!("{contradiction}");
    }
    expect_twice(&mut stage);
    prove(&mut stage, true);
}

/// Virtual time in which a drive that was just opened makes good what is there once.
const REST: Nanos = Nanos::from_millis(500);

/// A drive that was opened, and on which nothing goes wrong, has all its metadata twice: what it found once was written again, or soon
/// is.
fn expect_twice(stage: &mut impl Stage) {
    let world = stage.block_world();
    let is_sound = world.device().profile().faults == Faults::default() && !world.is_hurt;
    // A cut that leaves units fading or readable in part is no such drive either: they are found out later.
    if !is_sound || world.is_disturbed || world.ftl().is_read_only() || there_once(stage).is_empty() {
        return;
    }
    stage.idle(REST);
    let once = there_once(stage);
    let is_read_only = stage.block_world().ftl().is_read_only();
    assert!(once.is_empty() || is_read_only, "a recovered drive at rest has metadata only once: {once:?}");
}

/// What whoever only looks at the drive finds there once, if the power goes when all that is under way is done.
fn there_once(stage: &impl Stage) -> Vec<String> {
    let mut twin = stage.fork();
    let last = twin.block_world().device().instants().len() as u32 - 1;
    twin.power_cut_at(Moment { later: last, ..Moment::NOW });
    let world = twin.block_world();
    let may_want_padding = world.wire.geometry().mw_cunits > 0;
    match world.open(Access::Inspect) {
        Ok(()) => {}
        // Until the last blocks of the log are padded, which looking does not do, the map is older than the chunks are.
        Err(error) if may_want_padding && error.is_of_lost_blocks() => return Vec::new(),
        Err(error) => panic!("a recovered drive cannot be looked at: {error}"),
    }
    world.ftl().block().recovery_report().single_copies.clone()
}

/// Has an open drive do some of everything, and close; with `reopen` it is then opened again and compared.
///
/// # Panics
/// If something contradicts the model, or does not end in time.
pub fn prove(stage: &mut impl Stage, reopen: bool) {
    let world = stage.block_world();
    let blocks = world.blocks();
    let to_write = (CHUNKS_WRITTEN * u64::from(world.wire.geometry().blocks_per_chunk)).min(blocks);
    let mut written = 0;
    while written < to_write {
        // From both ends of the drive, so that it is no run.
        let count = WRITE_BLOCKS.min(to_write - written);
        let first = if written.is_multiple_of(2 * WRITE_BLOCKS) { written } else { blocks - count };
        world.submit_write(first, count, Durability::Volatile);
        written += count;
    }
    world.submit_flush();
    world.submit_trim(blocks / 2, 1.max(blocks / 16), Durability::Durable);
    world.submit_write(blocks / 3, 1, Durability::Durable);
    stage.settle();
    let world = stage.block_world();
    world.submit_read(0, WRITE_BLOCKS.min(blocks));
    world.submit_read(blocks / 2, 1);
    world.submit_flush();
    stage.settle();
    if !reopen {
        stage.block_world().close();
        return;
    }
    stage.clean_restart();
    let world = stage.block_world();
    world.submit_read(0, WRITE_BLOCKS.min(blocks));
    world.submit_read(blocks / 3, 1);
    stage.settle();
}
