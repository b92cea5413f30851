//! The driver against a drive in memory that can be told to lie.

use super::*;
use crate::load::Hint;
use crate::trace::{Trace, TraceConfig};
use crate::workload::{Pattern, Workload, WorkloadConfig};
use openftl_core::units::Share;
use openftl_core::{Frames, Nanos, VirtualClock};
use openftl_parts::{ObjectError, Target};

/// How the drive in memory misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    None,
    /// A read returns the block next to the one asked for.
    Neighbour,
    /// Every 1000th write is acknowledged and forgotten.
    LostWrite,
    /// A request is never completed.
    Hang,
    /// After 500 writes the drive takes no more.
    WornOut,
    /// Every 100th trim is acknowledged and forgotten.
    LostTrim,
}

struct Memory {
    stored: Vec<Stamp>,
    frames: Frames,
    form: FrameForm,
    under_way: Vec<Done>,
    latency: Nanos,
    requests_max: usize,
    writes: u64,
    trims: u64,
    /// Objects that it keeps apart, at most.
    objects_max: u64,
    objects: u64,
    /// Where the last one is.
    announced: Vec<Extent>,
    handles: Vec<u64>,
    lie: Lie,
}

impl Memory {
    fn new(form: FrameForm, lie: Lie) -> Memory {
        let pages = if form == FrameForm::Bytes { 64 } else { 0 };
        Memory {
            stored: vec![Stamp::ZERO; 100],
            frames: Frames::new(pages, 64 - pages, 16),
            form,
            under_way: Vec::new(),
            latency: Nanos::from_micros(50),
            requests_max: 6,
            writes: 0,
            trims: 0,
            objects_max: 0,
            objects: 0,
            announced: Vec::new(),
            handles: vec![0; 256],
            lie,
        }
    }
}

impl Target for Memory {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        if self.lie != Lie::Hang {
            done.extend(self.under_way.extract_if(.., |request| request.at <= now));
        }
    }

    fn next_due(&self) -> Option<Time> {
        match self.lie {
            Lie::Hang => None,
            _ => self.under_way.iter().map(|request| request.at).min(),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl BlockTarget for Memory {
    fn blocks(&self) -> u64 {
        self.stored.len() as u64
    }

    fn payload_form(&self) -> FrameForm {
        self.form
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        if self.under_way.len() == self.requests_max {
            return Err(IoError::QueueFull);
        }
        let mut at = now + self.latency;
        match request {
            Request::Read { first, frames } => {
                at += self.latency;
                for (index, &frame) in frames.iter().enumerate() {
                    let lie = usize::from(self.lie == Lie::Neighbour);
                    let stamp = self.stored[(first as usize + index + lie) % self.stored.len()];
                    match self.frames.payload_mut(frame) {
                        PayloadMut::Stamp(payload) => *payload = stamp,
                        PayloadMut::Bytes(payload) => stamp.expand(payload),
                    }
                }
            }
            Request::Write { first, frames, handle, .. } => {
                self.writes += 1;
                self.handles[usize::from(handle.0)] += 1;
                if self.lie == Lie::WornOut && self.writes > 500 {
                    return Err(IoError::ReadOnly);
                }
                for (index, &frame) in frames.iter().enumerate() {
                    let stamp = match self.frames.payload(frame) {
                        Payload::Stamp(stamp) => stamp,
                        Payload::Bytes(bytes) => Stamp::recognise(bytes).unwrap(),
                    };
                    if self.lie != Lie::LostWrite || !self.writes.is_multiple_of(1000) {
                        self.stored[first as usize + index] = stamp;
                    }
                    self.frames.release(frame);
                }
            }
            Request::WriteUncorrectable { .. } => unreachable!("no workload has it"),
            Request::Trim { first, blocks, .. } => {
                self.trims += 1;
                if self.lie != Lie::LostTrim || !self.trims.is_multiple_of(100) {
                    self.stored[first as usize..][..blocks as usize].fill(Stamp::ZERO);
                }
            }
            Request::FlashAlloc { extents } => {
                assert!(extents.iter().all(|extent| extent.blocks > 0));
                if self.objects == self.objects_max {
                    return Err(ObjectError::NotKept.into());
                }
                self.objects += 1;
                self.announced = extents.to_vec();
            }
            Request::Flush => {}
        }
        self.under_way.push(Done { tag, result: Ok(()), at });
        Ok(())
    }
}

fn run(form: FrameForm, lie: Lie, limit: Limit) -> Result<Outcome, RunError> {
    let mut memory = Memory::new(form, lie);
    let mut driver = Driver::new(memory.blocks(), 8, 3);
    let mut workload = Workload::new(&WorkloadConfig {
        pattern: Pattern::Uniform,
        read_share: Share::percent(50),
        access_blocks: 3,
        drive_blocks: memory.blocks(),
        seed: 3,
    });
    let mut clock = VirtualClock::default();
    let outcome = driver.run(&mut memory, &mut clock, &mut workload, limit, |_| ControlFlow::Continue(()));
    if outcome.is_ok() {
        assert_eq!(memory.frames.available(form), memory.frames.len(), "the driver gives back every frame");
    }
    outcome
}

#[test]
fn an_honest_drive_passes_in_both_forms_with_the_same_trace() {
    let bytes = run(FrameForm::Bytes, Lie::None, Limit::Requests(10_000)).unwrap();
    let stamps = run(FrameForm::Stamp, Lie::None, Limit::Requests(10_000)).unwrap();
    assert_eq!(bytes.trace_hash, stamps.trace_hash);
    assert_eq!(bytes.requests(), 10_000);
    assert!(bytes.reads.requests > 4_000 && bytes.writes.requests > 4_000);
    // The drive holds six requests and the queue is eight deep: the time that two of them wait outside counts.
    assert_eq!((bytes.writes.slowest, bytes.reads.slowest), (Nanos::from_micros(150), Nanos::from_micros(200)));
    assert!(bytes.writes.latency.min().abs_diff(50_000) < 50, "within the histogram's three digits");
}

#[test]
fn the_block_next_door_is_found_out() {
    let error = run(FrameForm::Bytes, Lie::Neighbour, Limit::Requests(10_000)).unwrap_err();
    assert!(matches!(error, RunError::WrongData { .. }), "{error}");
}

#[test]
fn a_lost_write_is_found_out() {
    let error = run(FrameForm::Stamp, Lie::LostWrite, Limit::Requests(100_000)).unwrap_err();
    let RunError::WrongData { expected, found, .. } = &error else { panic!("{error}") };
    assert!(expected.contains("version") && found.contains("version"), "{error}");
}

#[test]
fn a_drive_that_never_answers_is_found_out() {
    let error = run(FrameForm::Stamp, Lie::Hang, Limit::Requests(10)).unwrap_err();
    assert_eq!(error, RunError::Stalled { in_flight: 6, at: Time::ZERO });
}

#[test]
fn a_worn_out_drive_ends_the_run_without_an_error() {
    let outcome = run(FrameForm::Stamp, Lie::WornOut, Limit::Requests(10_000)).unwrap();
    assert!(outcome.turned_read_only);
    assert_eq!(outcome.writes.requests, 500);
}

#[test]
fn a_paced_host_asks_no_sooner_whatever_the_drive_has_to_do_meanwhile() {
    let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
    let mut driver = Driver::new(memory.blocks(), 8, 3);
    driver.set_pace(Nanos::from_micros(120));
    let config = WorkloadConfig {
        pattern: Pattern::Uniform,
        read_share: Share::percent(0),
        access_blocks: 3,
        drive_blocks: memory.blocks(),
        seed: 3,
    };
    let (mut workload, mut clock) = (Workload::new(&config), VirtualClock::default());
    let limit = Limit::Requests(1000);
    let outcome = driver.run(&mut memory, &mut clock, &mut workload, limit, |_| ControlFlow::Continue(())).unwrap();
    // The last of them comes after 999 intervals, and takes 50 µs.
    assert_eq!(outcome.ended, Time(999 * 120_000 + 50_000));
    assert_eq!(outcome.writes.slowest, Nanos::from_micros(50));
}

/// A trace of writes of a block at these microseconds, played on `memory` so many at a time.
fn play(memory: &mut Memory, micros: &[u64], pace: &str, queue_depth: usize, limit: Limit) -> Outcome {
    let lines: String = micros.iter().zip(0..).map(|(at, block)| format!("1,W,{},4096,{at}\n", block * 4096)).collect();
    let drive_blocks = memory.blocks();
    let config = TraceConfig { drive_blocks, pace: Some(pace.parse().unwrap()), ..TraceConfig::default() };
    let mut trace = Trace::new(config, lines.as_bytes());
    let mut clock = VirtualClock::default();
    clock.wait_until(Time(1_000_000_000));
    let mut driver = Driver::new(drive_blocks, queue_depth, 64);
    driver.run(memory, &mut clock, &mut trace, limit, |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn requests_of_a_trace_come_at_their_times_and_wait_where_the_queue_is_full() {
    let all = Limit::Requests(u64::MAX);
    // Alone on the drive each takes 50 µs, when it is its time.
    let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
    let alone = play(&mut memory, &[700, 900, 1300], "trace", 8, all);
    assert_eq!((alone.started, alone.ended), (Time(1_000_000_000), Time(1_000_650_000)));
    assert_eq!(alone.writes.slowest, Nanos::from_micros(50));
    // Ten times as fast, in a queue of one: the second is wanted at 20 µs and begins at 50, the third at 60 and at 100.
    let queued = play(&mut Memory::new(FrameForm::Stamp, Lie::None), &[700, 900, 1300], "10x", 1, all);
    assert_eq!(queued.ended, Time(1_000_150_000));
    let latencies: Vec<u64> =
        queued.writes.latency.iter_recorded().map(|value| value.value_iterated_to() / 1000).collect();
    assert_eq!(latencies, [50, 80, 90]);
    assert_eq!(queued.writes.slowest, Nanos::from_micros(90));
}

#[test]
fn a_phase_that_ends_before_the_next_request_of_a_trace_does_not_wait_for_it() {
    let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
    let outcome = play(&mut memory, &[0, 100, 5_000_000], "trace", 8, Limit::Until(Time(1_002_000_000)));
    assert_eq!((outcome.writes.requests, outcome.ended), (2, Time(1_000_150_000)));
}

#[test]
fn a_phase_ends_at_its_limit() {
    let outcome = run(FrameForm::Stamp, Lie::None, Limit::BlocksWritten(999)).unwrap();
    assert!((999..1002).contains(&outcome.writes.blocks), "{}", outcome.writes.blocks);
    let outcome = run(FrameForm::Stamp, Lie::None, Limit::BlocksMoved(999)).unwrap();
    let moved = outcome.writes.blocks + outcome.reads.blocks;
    assert!((999..1002).contains(&moved) && outcome.reads.blocks > 0, "{moved}");
    let outcome = run(FrameForm::Stamp, Lie::None, Limit::Until(Time(1_000_000))).unwrap();
    assert!((Time(1_000_000)..Time(1_200_000)).contains(&outcome.ended), "{:?}", outcome.ended);
}

#[test]
fn a_read_beside_an_unacknowledged_write_may_return_old_or_new_but_not_older() {
    let mut driver = Driver::new(10, 4, 1);
    let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
    driver.blocks[5] = Block(7);
    let request =
        |operation| Waiting { access: Access::plain(operation, 5, 1), extents: Vec::new(), since: Time::ZERO };
    let (write, read) = (request(Operation::Write), request(Operation::Read));
    assert!(matches!(driver.submit(&mut memory, FrameForm::Stamp, Time::ZERO, &write), Ok(Admission::Accepted)));
    assert!(matches!(driver.submit(&mut memory, FrameForm::Stamp, Time::ZERO, &read), Ok(Admission::Accepted)));
    let (block, oldest) = (driver.blocks[5], driver.oldest[1]);
    assert_eq!((oldest, block.version()), (7, 8));
    assert!(check(Payload::Stamp(stamp(5, 6)), 5, block, oldest).is_err());
    assert!(check(Payload::Stamp(stamp(5, 7)), 5, block, oldest).is_ok());
    assert!(check(Payload::Stamp(stamp(5, 8)), 5, block, oldest).is_ok());
    assert!(check(Payload::Stamp(stamp(6, 7)), 5, block, oldest).is_err());
    assert!(check(Payload::Stamp(Stamp::ZERO), 5, block, oldest).is_err());
}

/// Writes to `memory` until the power is cut at `cut`, and loses what was under way if `lose`.
fn write_until_cut(memory: &mut Memory, cut: Time, lose: bool) -> (Driver, Outcome) {
    let mut driver = Driver::new(memory.blocks(), 8, 3);
    driver.set_durability(Durability::Durable);
    let config = WorkloadConfig {
        pattern: Pattern::Uniform,
        read_share: Share::percent(0),
        access_blocks: 3,
        drive_blocks: memory.blocks(),
        seed: 3,
    };
    let mut workload = Workload::new(&config).of_any_length();
    let mut clock = VirtualClock::default();
    let limit = Limit::Cut(cut);
    let before = memory.stored.clone();
    let outcome = driver.run(memory, &mut clock, &mut workload, limit, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((clock.0, outcome.ended), (cut, cut), "the power is cut at its moment, not when a request ends");
    assert!(!memory.under_way.is_empty(), "something was under way");
    if lose {
        memory.stored = before;
    }
    memory.under_way.clear();
    driver.after_cut();
    (driver, outcome)
}

fn read_all(memory: &mut Memory, driver: &mut Driver) -> Result<Outcome, RunError> {
    let mut workload = Workload::new(&WorkloadConfig {
        pattern: Pattern::Sequential,
        read_share: Share::percent(100),
        access_blocks: 3,
        drive_blocks: memory.blocks(),
        seed: 0,
    });
    let limit = Limit::Requests(workload.slots());
    driver.run(memory, &mut VirtualClock::default(), &mut workload, limit, |_| ControlFlow::Continue(()))
}

#[test]
fn what_was_under_way_when_the_power_was_cut_may_be_there_or_not() {
    // Nothing is acknowledged yet.
    for lose in [false, true] {
        let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
        let (mut driver, outcome) = write_until_cut(&mut memory, Time(20_000), lose);
        assert_eq!(outcome.requests(), 0);
        assert_eq!(read_all(&mut memory, &mut driver).unwrap().reads.blocks, memory.blocks());
    }
}

#[test]
fn what_was_acknowledged_before_the_power_was_cut_must_be_there() {
    for lose in [false, true] {
        let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
        let (mut driver, outcome) = write_until_cut(&mut memory, Time(1_020_000), lose);
        assert!(outcome.writes.requests > 100);
        assert_eq!(read_all(&mut memory, &mut driver).is_err(), lose);
    }
}

/// Chance decides everything, trims among it, and now and then an object.
struct Anything {
    rng: rand_xoshiro::Xoshiro256PlusPlus,
    blocks: u64,
    left: u64,
}

impl Load for Anything {
    fn step(&mut self) -> Option<Access> {
        use crate::workload::below;
        use rand_core::Rng;
        self.left = self.left.checked_sub(1)?;
        let mut draw = |count| below(self.rng.next_u64(), count);
        let operations =
            [Operation::Read, Operation::Read, Operation::Write, Operation::Write, Operation::Trim, Operation::Flush];
        let operation = match draw(50) {
            0 => Operation::Allocate,
            _ => operations[draw(6) as usize],
        };
        if operation == Operation::Flush {
            return Some(Access::FLUSH);
        }
        // Few blocks, so that requests for the same ones meet.
        let first = draw(12);
        let hint = Hint { kind: draw(5) as u8, object: draw(9) as u32 };
        Some(Access { operation, first, blocks: 1 + draw((self.blocks - first).min(3)) as u32, hint })
    }

    fn fill_step(&mut self) -> Option<Access> {
        None
    }

    fn kinds(&self) -> Vec<String> {
        (0..5).map(|kind| kind.to_string()).collect()
    }

    fn live_blocks_max(&self) -> u64 {
        self.blocks
    }

    fn access_blocks_max(&self) -> u32 {
        3
    }
}

fn anything(seed: u64, left: u64) -> Anything {
    use rand_core::SeedableRng;
    Anything { rng: rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed), blocks: 100, left }
}

fn run_anything(memory: &mut Memory, binding: Binding) -> Result<Outcome, RunError> {
    let mut driver = Driver::new(memory.blocks(), 8, 3);
    driver.set_binding(binding);
    let limit = Limit::Requests(u64::MAX);
    let mut load = anything(1, 20_000);
    driver.run(memory, &mut VirtualClock::default(), &mut load, limit, |_| ControlFlow::Continue(()))
}

#[test]
fn trimmed_blocks_read_as_zeroes_and_a_load_that_ends_ends_the_phase() {
    for form in [FrameForm::Bytes, FrameForm::Stamp] {
        let mut memory = Memory::new(form, Lie::None);
        let outcome = run_anything(&mut memory, Binding::None).unwrap();
        let requests = outcome.requests() + outcome.trims.requests + outcome.flushes.requests;
        assert!(outcome.trims.requests > 2000 && outcome.flushes.requests > 2000 && requests > 19_000);
        assert_eq!((outcome.objects_kept, outcome.objects_refused), (0, 0), "nobody told the drive of objects");
        assert_eq!(memory.frames.available(form), memory.frames.len(), "the driver gives back every frame");
    }
}

#[test]
fn a_lost_trim_is_found_out() {
    let error = run_anything(&mut Memory::new(FrameForm::Stamp, Lie::LostTrim), Binding::None).unwrap_err();
    let RunError::WrongData { expected, .. } = &error else { panic!("{error}") };
    assert_eq!(expected, "zeroes", "{error}");
}

#[test]
fn objects_are_kept_or_refused_and_the_host_goes_on_either_way() {
    for objects_max in [0, 7, u64::MAX] {
        let mut memory = Memory { objects_max, ..Memory::new(FrameForm::Stamp, Lie::None) };
        let outcome = run_anything(&mut memory, Binding::Allocate).unwrap();
        let (kept, refused) = (outcome.objects_kept, outcome.objects_refused);
        assert!(kept + refused > 300 && kept == memory.objects && (refused > 0) == (objects_max < 8));
        assert!(memory.handles[1..].iter().all(|writes| *writes == 0), "objects need no handles");
    }
}

/// One object in two extents.
struct Fragments {
    has_stepped: bool,
}

impl Fragments {
    const EXTENTS: [Extent; 2] = [Extent { first: 7, blocks: 2 }, Extent { first: 3, blocks: 1 }];
}

impl Load for Fragments {
    fn step(&mut self) -> Option<Access> {
        let hint = Hint { kind: 0, object: 1 };
        let allocate = Access { operation: Operation::Allocate, first: 7, blocks: 3, hint };
        (!std::mem::replace(&mut self.has_stepped, true)).then_some(allocate)
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.step()
    }

    fn extents(&self) -> Vec<Extent> {
        Fragments::EXTENTS.to_vec()
    }

    fn kinds(&self) -> Vec<String> {
        vec!["file".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        3
    }

    fn access_blocks_max(&self) -> u32 {
        1
    }
}

#[test]
fn an_object_in_fragments_is_announced_as_one_also_by_a_tenant_and_while_the_drive_is_filled() {
    let tenants = || {
        let tenant = |name: &str| (name.to_owned(), Box::new(Fragments { has_stepped: false }) as Box<dyn Load>);
        crate::loads::Tenants::new(vec![tenant("only")], 50, 1)
    };
    for (fill, mut load) in [
        (false, Box::new(Fragments { has_stepped: false }) as Box<dyn Load>),
        (true, Box::new(Fragments { has_stepped: false })),
        (true, Box::new(tenants())),
    ] {
        let mut memory = Memory { objects_max: 1, ..Memory::new(FrameForm::Stamp, Lie::None) };
        let mut driver = Driver::new(memory.blocks(), 8, 3);
        driver.set_binding(Binding::Allocate);
        let mut clock = VirtualClock::default();
        let go_on = |_: Progress<'_, Memory>| ControlFlow::Continue(());
        let outcome = match fill {
            true => driver.fill(&mut memory, &mut clock, &mut load, go_on),
            false => driver.run(&mut memory, &mut clock, &mut load, Limit::Requests(9), go_on),
        };
        assert_eq!(outcome.unwrap().objects_kept, 1);
        assert_eq!(memory.announced, Fragments::EXTENTS);
    }
}

#[test]
fn a_binding_changes_what_the_drive_is_told_and_nothing_else() {
    let run = |binding: &str| {
        let mut memory = Memory::new(FrameForm::Stamp, Lie::None);
        let outcome = run_anything(&mut memory, binding.parse().unwrap()).unwrap();
        (outcome.trace_hash, memory.handles)
    };
    let (none, by_kind, by_object) = (run("none"), run("by-kind:3"), run("by-object:2"));
    assert_eq!((none.0, none.0), (by_kind.0, by_object.0));
    let used = |handles: &[u64]| handles.iter().map(|writes| *writes > 0).rposition(|used| used);
    assert_eq!((used(&none.1), used(&by_kind.1), used(&by_object.1)), (Some(0), Some(3), Some(2)));
    assert_eq!(by_kind.1[0], 0, "every kind has a handle");
    assert!(by_object.1[0] > 0, "what is no object has none");
}

#[test]
fn a_version_is_remembered_as_write_or_trim_until_eight_others_came() {
    let mut block = Block::NEW;
    assert!(block.may_be(3, 0, Stamp::ZERO) && !block.may_be(3, 0, stamp(3, 0)));
    for operation in [Operation::Write, Operation::Trim, Operation::Write] {
        block = block.after(operation);
    }
    assert!(block.may_be(3, 0, stamp(3, 3)) && !block.may_be(3, 0, Stamp::ZERO));
    assert!(block.may_be(3, 1, Stamp::ZERO) && !block.may_be(3, 1, stamp(3, 2)));
    assert!(block.may_be(3, 2, stamp(3, 1)) && !block.may_be(3, 2, Stamp::ZERO));
    assert_eq!(block.after(Operation::Trim).before(), Block(block.0 | 1 << 31));
    for _ in 0..8 {
        block = block.after(Operation::Write);
    }
    assert!(block.may_be(3, 8, stamp(3, 3)) && block.may_be(3, 8, Stamp::ZERO) && !block.may_be(3, 8, stamp(3, 2)));
}

/// A real drive, small enough that garbage collection works.
fn real(load: &str, binding: &str) -> Outcome {
    use openftl_blocks::BlockFtl;
    use openftl_media::{EmulatedDevice, Profile, Store, Timing};
    use openftl_parts::{Config, chunks_per_pu};
    let profile = Profile::builtin("tiny").unwrap();
    let config = Config {
        capacity_blocks: 16_384,
        over_provisioning: Share::percent(20),
        payload: FrameForm::Stamp,
        host_frames: 4096,
        ..Config::default()
    };
    let shape = profile.geometry(profile.chunks_per_pu).unwrap();
    let chunks = chunks_per_pu(&shape, &config, Share::percent(1)).unwrap();
    let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, 1).unwrap();
    let mut clock = VirtualClock::default();
    let mut drive = BlockFtl::format(device, config, &mut clock).unwrap();
    let spec: crate::LoadSpec = load.parse().unwrap();
    let mut none = |_: &str| Err(std::io::Error::other("no trace"));
    let mut load = spec.build(drive.blocks(), None, 1, &mut none).unwrap();
    let mut driver = Driver::new(drive.blocks(), 32, load.access_blocks_max() as usize);
    driver.set_binding(binding.parse().unwrap());
    let watch = |_: Progress<'_, _>| ControlFlow::Continue(());
    let fill = driver.fill(&mut drive, &mut clock, &mut load, watch).unwrap();
    assert!(fill.writes.blocks > 16_384 / 5, "{spec}: {} blocks filled", fill.writes.blocks);
    let outcome = driver.run(&mut drive, &mut clock, &mut load, Limit::BlocksWritten(2 * 16_384), watch).unwrap();
    let mut reads = Workload::new(&WorkloadConfig {
        pattern: Pattern::Sequential,
        read_share: Share::percent(100),
        access_blocks: 1,
        drive_blocks: drive.blocks(),
        seed: 0,
    });
    let all = Limit::Requests(reads.slots());
    let read = driver.run(&mut drive, &mut clock, &mut reads, all, watch).unwrap();
    assert_eq!(read.reads.blocks, drive.blocks(), "{spec}: every block is as it was written or trimmed");
    outcome
}

#[test]
fn every_load_runs_on_a_real_drive_under_every_binding_with_the_same_writes() {
    for load in ["writers:4", "lsm:2", "log-structured-fs", "double-write", "tenants:writers:2+uniform", "zipf"] {
        let written = |binding: &str| real(load, binding).writes.blocks;
        let plain = written("none");
        for binding in ["by-kind:4", "by-object:4", "allocate"] {
            assert!(written(binding).abs_diff(plain) <= 64, "{load} with {binding}");
        }
    }
}
