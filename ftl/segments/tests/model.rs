//! A drive of segments does what a model of AMF I/O says, after clean stops and crashes, too.

use openftl_blocks::Ftl;
use openftl_core::{Clock, FrameForm, Time, VirtualClock};
use openftl_media::{DieFate, EmulatedDevice, EraseFate, Profile, ProgramFailure, ProgramFate, Store, Timing};
use openftl_parts::target::{AppendError, BlockTarget, Durability, IoError, Request, Target};
use openftl_parts::words::{Access, Handle};
use openftl_parts::{Config, OpenError};
use openftl_segments::SegmentFtl;
use openftl_zones::{AskedLimits, Face, Limits, ZoneConfig, ZoneFtl};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

type Drive = SegmentFtl<Box<ZoneFtl<EmulatedDevice>>>;

/// A block as the model knows it: what was written last to it, and 0 where nothing is.
#[derive(Clone, Default)]
struct Segment {
    blocks: Vec<u64>,
    /// How many of them a power cut leaves.
    durable: usize,
    trimmed: Vec<bool>,
}

struct World {
    drive: Option<Drive>,
    clock: VirtualClock,
    segments: Vec<Segment>,
    capacity: usize,
    next: u64,
}

const LIMITS: Limits = Limits { max_open: 3, max_active: 3 };

fn config() -> Config {
    Config { host_frames: 600, checkpoint_log_blocks: Some(24), ..Config::default() }
}

impl World {
    fn new(width: u32) -> World {
        World::on(Profile::builtin("tiny").unwrap(), width)
    }

    fn on(profile: Profile, width: u32) -> World {
        let mut clock = VirtualClock::default();
        let device = EmulatedDevice::new(profile, 40, Store::Ram, Timing::Modelled, 1).unwrap();
        let segments = ZoneConfig {
            face: Face::Zones,
            width,
            limits: LIMITS,
            zones: Some(6),
            extension_bytes: 0,
            window_blocks: 0,
        };
        let drive = SegmentFtl::format(device, config(), segments, &mut clock).unwrap();
        assert_eq!(drive.zones().face(), Face::Segments, "a drive that is made so is kept so");
        let capacity = drive.segment_blocks().unwrap() as usize;
        assert_eq!(BlockTarget::blocks(&drive), 6 * capacity as u64);
        let segment = Segment { trimmed: vec![false; capacity], ..Segment::default() };
        World { drive: Some(drive), clock, segments: vec![segment; 6], capacity, next: 1 }
    }

    fn drive(&mut self) -> &mut Drive {
        self.drive.as_mut().unwrap()
    }

    fn run(&mut self, request: Request<'_>) -> Result<(), IoError> {
        let World { drive, clock, .. } = self;
        let drive = drive.as_mut().unwrap();
        drive.submit(clock.now(), 7, request)?;
        let mut done = Vec::new();
        loop {
            drive.poll(clock.now(), &mut done);
            if let Some(done) = done.pop() {
                assert_eq!(done.tag, 7);
                return done.result;
            }
            clock.wait_until(drive.next_due().expect("a request ends"));
        }
    }

    fn write(&mut self, first: u64, blocks: usize, durability: Durability) -> Result<(), IoError> {
        let mut frames = Vec::new();
        assert!(self.drive().frames_mut().acquire_many(FrameForm::Bytes, blocks, &mut frames));
        for (index, frame) in frames.iter().enumerate() {
            let value = self.next + index as u64;
            self.drive().frames_mut().bytes_mut(*frame)[..8].copy_from_slice(&value.to_le_bytes());
        }
        let result = self.run(Request::Write { first, frames: &frames, durability, handle: Handle::NONE });
        if result.is_ok() {
            let (next, segment) = (self.next, &mut self.segments[first as usize / self.capacity]);
            segment.blocks.extend(next..next + blocks as u64);
            self.next += blocks as u64;
            if durability == Durability::Durable {
                self.all_durable();
            }
        } else {
            frames.iter().for_each(|frame| self.drive().frames_mut().release(*frame));
        }
        result
    }

    fn all_durable(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.durable = segment.blocks.len());
    }

    fn read(&mut self, first: u64, blocks: usize) -> Result<Vec<u64>, IoError> {
        let mut frames = Vec::new();
        assert!(self.drive().frames_mut().acquire_many(FrameForm::Bytes, blocks, &mut frames));
        frames.iter().for_each(|frame| self.drive().frames_mut().bytes_mut(*frame).fill(0xee));
        let result = self.run(Request::Read { first, frames: &frames });
        let value = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let read = frames.iter().map(|frame| value(self.drive().frames().bytes(*frame))).collect();
        frames.iter().for_each(|frame| self.drive().frames_mut().release(*frame));
        result.map(|()| read)
    }

    /// What the model says that a write of so many blocks is refused with.
    fn refusal(&self, first: u64, blocks: usize) -> Option<IoError> {
        let (segment, at) = (first as usize / self.capacity, first as usize % self.capacity);
        let begins = (segment * self.capacity) as u64;
        let written = self.segments[segment].blocks.len();
        let (expected, boundary) = (begins + written as u64, begins + self.capacity as u64);
        let end = first + blocks as u64;
        let open = self.segments.iter().filter(|one| (1..self.capacity).contains(&one.blocks.len())).count();
        let crosses = AppendError::Crossing { first, end, boundary };
        let refusal = match () {
            () if written == self.capacity && end > boundary => crosses,
            () if at < written => AppendError::Overwrite { first, expected },
            () if at > written => AppendError::Gap { first, expected },
            () if end > boundary => crosses,
            () if written == 0 && open >= LIMITS.max_active as usize => {
                AppendError::TooManyOpen { limit: LIMITS.max_active }
            }
            () => return None,
        };
        Some(refusal.into())
    }

    fn trim(&mut self, first: u64, blocks: usize) {
        self.run(Request::Trim { first, blocks: blocks as u64, durability: Durability::Volatile }).unwrap();
        let (first, end) = (first as usize, first as usize + blocks);
        for (number, segment) in self.segments.iter_mut().enumerate() {
            let begins = number * self.capacity;
            let (from, to) = (first.max(begins), end.min(begins + self.capacity));
            if from >= to {
                continue;
            }
            let written = segment.blocks.len();
            for block in from - begins..(to - begins).min(written) {
                segment.trimmed[block] = true;
            }
            let reaches_end = written == self.capacity || to - begins == self.capacity;
            if reaches_end && segment.trimmed[..written].iter().all(|trimmed| *trimmed) {
                segment.blocks.clear();
                segment.trimmed.fill(false);
            }
        }
    }

    fn verify(&mut self) {
        let mut all = Vec::new();
        for segment in &self.segments {
            all.extend(segment.blocks.iter().copied().chain(std::iter::repeat(0)).take(self.capacity));
        }
        // Odd pieces, so that many of them are of several segments.
        let mut at = 0;
        while at < all.len() {
            let blocks = 201.min(all.len() - at);
            assert_eq!(self.read(at as u64, blocks).unwrap(), all[at..at + blocks], "from block {at} on");
            at += blocks;
        }
    }

    fn reopen(&mut self, is_clean: bool) -> Result<(), OpenError> {
        let drive = self.drive.take().unwrap();
        let media = match is_clean {
            true => drive.into_zones().close(&mut self.clock)?,
            false => drive.into_zones().crash(),
        };
        let opened =
            SegmentFtl::open_with(media, config(), AskedLimits::default(), Access::ReadWrite, &mut self.clock)?;
        assert_eq!(opened.zones().face(), Face::Segments);
        for segment in &mut self.segments {
            segment.trimmed.fill(false);
            if is_clean {
                segment.durable = segment.blocks.len();
            }
        }
        self.drive = Some(opened);
        Ok(())
    }
}

/// What a crash of the FTL leaves is found, and becomes the model's.
fn adopt(world: &mut World) {
    for number in 0..world.segments.len() {
        let written = world.drive().zones().board().zone(number as u32).written as usize;
        let begins = (number * world.capacity) as u64;
        let found = if written == 0 { Vec::new() } else { world.read_all(begins, written) };
        let segment = &mut world.segments[number];
        // A trim that was not flushed is undone or done; then what was there before is there, or nothing.
        let is_prefix = found.len() <= segment.blocks.len() && segment.blocks.starts_with(&found);
        assert!(is_prefix && found.len() >= segment.durable, "segment {number}: {} found", found.len());
        segment.blocks = found;
        segment.durable = segment.blocks.len();
    }
}

impl World {
    fn read_all(&mut self, first: u64, blocks: usize) -> Vec<u64> {
        let mut all = Vec::new();
        while all.len() < blocks {
            let count = (blocks - all.len()).min(200);
            all.extend(self.read(first + all.len() as u64, count).unwrap());
        }
        all
    }
}

#[test]
fn a_drive_does_what_the_model_of_amf_io_says() {
    let mut refused = 0;
    for seed in 0..24 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut below = |limit: usize| (chance.next_u64() % limit as u64) as usize;
        let mut world = World::new(1 + below(4) as u32);
        let all = 6 * world.capacity;
        for _ in 0..400 {
            match below(100) {
                0..70 => {
                    let segment = below(6);
                    let written = world.segments[segment].blocks.len();
                    let at = match below(8) {
                        0 => below(world.capacity),
                        _ => written.min(world.capacity - 1),
                    };
                    let first = segment * world.capacity + at;
                    let blocks = (1 + below(40)).min(all - first);
                    let durability = if below(6) == 0 { Durability::Durable } else { Durability::Volatile };
                    let expected = world.refusal(first as u64, blocks);
                    refused += u32::from(expected.is_some());
                    let states = format!("{:?}", world.drive().zones().board().zones());
                    assert_eq!(world.write(first as u64, blocks, durability).err(), expected, "seed {seed}: {states}");
                }
                70..80 => {
                    let first = below(all);
                    world.trim(first as u64, 1 + below(all - first));
                    world.run(Request::Flush).unwrap();
                    world.all_durable();
                }
                80..88 => {
                    let segment = below(6);
                    world.trim((segment * world.capacity) as u64, world.capacity);
                    world.run(Request::Flush).unwrap();
                    world.all_durable();
                }
                88..92 => {
                    world.run(Request::Flush).unwrap();
                    world.all_durable();
                }
                92..96 => world.verify(),
                96..98 => world.reopen(true).unwrap(),
                _ => {
                    world.reopen(false).unwrap();
                    adopt(&mut world);
                }
            }
        }
        world.verify();
    }
    assert!(refused > 100, "{refused} writes were refused");
}

#[test]
fn requests_that_segments_do_not_know_are_refused_and_nothing_changes() {
    let mut world = World::new(2);
    world.write(0, 5, Durability::Durable).unwrap();
    let mut frames = Vec::new();
    assert!(world.drive().frames_mut().acquire_many(FrameForm::Bytes, 1, &mut frames));
    let marks = Request::WriteUncorrectable { first: 5, frames: &frames, durability: Durability::Volatile };
    assert_eq!(world.run(marks), Err(AppendError::NoSuchRequest.into()));
    let object = Request::FlashAlloc { extents: &[] };
    assert_eq!(world.run(object), Err(AppendError::NoSuchRequest.into()));
    let all = BlockTarget::blocks(world.drive());
    for (first, blocks) in [(all, 1), (all - 1, 2), (0, 0), (u64::MAX, 1)] {
        let refused = IoError::OutOfRange { first, blocks, capacity: all };
        assert_eq!(world.run(Request::Trim { first, blocks, durability: Durability::Volatile }), Err(refused));
    }
    assert!(matches!(world.read(all - 1, 2), Err(IoError::OutOfRange { .. })));
    world.drive().frames_mut().release(frames[0]);
    world.verify();
}

#[test]
fn the_same_drive_is_one_of_zones_and_one_of_segments() {
    // Three chunks of 32 blocks: the address space of zones has gaps, and that of segments has none.
    let mut world = World::new(3);
    world.write(96, 50, Durability::Volatile).unwrap();
    assert_eq!(world.read(95, 3).unwrap(), [0, 1, 2]);
    let mut zones = world.drive.take().unwrap().into_zones();
    let layout = *zones.layout();
    assert_eq!((layout.capacity, layout.size, zones.board().zone(1).written), (96, 128, 50));
    zones.set_face(Face::Zones);
    let opened = ZoneFtl::open_with(
        zones.close(&mut world.clock).unwrap(),
        config(),
        AskedLimits::default(),
        Access::ReadWrite,
        &mut world.clock,
    );
    assert_eq!(opened.unwrap().face(), Face::Segments, "how it was seen for a while is not kept");
}

#[test]
fn a_trimmed_segment_is_written_again_before_and_after_a_stop() {
    let mut world = World::new(2);
    let capacity = world.capacity;
    world.write(0, capacity, Durability::Volatile).unwrap();
    assert!(matches!(world.write(0, 1, Durability::Volatile), Err(IoError::Append(AppendError::Overwrite { .. }))));
    // Block by block, backwards.
    for block in (0..capacity).rev() {
        assert_eq!(world.segments[0].blocks.len(), capacity, "it is full until its last block is trimmed");
        world.trim(block as u64, 1);
    }
    assert!(world.segments[0].blocks.is_empty());
    world.write(0, 9, Durability::Durable).unwrap();
    world.reopen(true).unwrap();
    world.verify();
    assert_eq!(world.drive().trims().partly(), 0);
}

/// A device that keeps what it has completed, and holds nothing back.
fn one_shot() -> Profile {
    let changes = [
        ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
        ("program_us = [400, 1200]", "program_us = [1200]"),
    ];
    let text = Profile::builtin_text("tiny").unwrap().to_owned();
    let changed = changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    Profile::parse(&changed).unwrap()
}

#[test]
fn a_block_that_is_lost_takes_nothing_with_it_that_was_flushed_when_the_power_goes() {
    for (width, lost) in [1_u32, 2, 4].into_iter().flat_map(|width| [5_u32, 23].map(|lost| (width, lost))) {
        let mut world = World::on(one_shot(), width);
        for first in (0..24).step_by(8) {
            world.write(first, 8, Durability::Volatile).unwrap();
            world.run(Request::Flush).unwrap();
        }
        let place = world.drive().zones().place_on_media(0, lost).unwrap();
        world.drive().zones_mut().media_mut().inject_read_failure(place).unwrap();
        for is_clean in [false, false, true] {
            world.reopen(is_clean).unwrap();
            let name = format!("width {width}, block {lost}");
            assert_eq!(world.drive().zones().board().zone(0).written, 24, "{name}");
            for block in 0..24 {
                let read = world.read(block, 1);
                match block == u64::from(lost) {
                    true => assert_eq!(read, Err(IoError::Unrecovered { block }), "{name}"),
                    false => assert_eq!(read.unwrap(), [block + 1], "{name}"),
                }
            }
        }
        world.write(24, 4, Durability::Durable).unwrap();
        assert_eq!(world.read(24, 4).unwrap(), (25..=28).collect::<Vec<_>>());
    }
}

#[test]
fn a_program_that_fails_when_the_power_goes_takes_nothing_with_it_that_was_flushed() {
    for width in [1, 2, 4] {
        let mut world = World::on(one_shot(), width);
        // Each column has a chunk, and the first has a unit in part.
        let unit = world.drive().zones().layout().unit_blocks as usize;
        let flushed = unit * width as usize + 2;
        world.write(0, flushed, Durability::Volatile).unwrap();
        world.run(Request::Flush).unwrap();
        // The flushed blocks are in a tail. The unit that they are the beginning of fails, and the FTL does not hear of it.
        world.drive().zones_mut().media_mut().inject_next_program_failure(ProgramFailure::NextUnit);
        let mut frames = Vec::new();
        assert!(world.drive().frames_mut().acquire_many(FrameForm::Bytes, unit, &mut frames));
        let write = Request::Write {
            first: flushed as u64,
            frames: &frames,
            durability: Durability::Volatile,
            handle: Handle::NONE,
        };
        let now = world.clock.now();
        world.drive().submit(now, 7, write).unwrap();
        world.drive().poll(now, &mut Vec::new());
        assert_eq!(world.drive().zones_mut().media_mut().statistics().program_failures, 1, "width {width}");
        for is_clean in [false, false, true] {
            world.reopen(is_clean).unwrap();
            let expected: Vec<u64> = (1..=flushed as u64).collect();
            assert_eq!(world.read(0, flushed).unwrap(), expected, "width {width}");
        }
        let written = world.drive().zones().board().zone(0).written;
        world.segments[0].blocks = vec![0; written as usize];
        world.next = 100;
        world.write(u64::from(written), 4, Durability::Durable).unwrap();
        assert_eq!(world.read(u64::from(written), 4).unwrap(), [100, 101, 102, 103], "width {width}");
    }
}

/// Found by the explorer. What a flush had saved of the unit was given up, because the unit was there, and it was gone when it was read again.
#[test]
fn a_unit_that_can_be_read_a_few_times_after_a_power_cut_takes_nothing_with_it_that_was_flushed() {
    for (width, reads) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let mut profile = one_shot();
        (profile.cache.blocks_per_pu, profile.cache.power_loss_protection) = (0, false);
        let mut world = World::on(profile, width);
        let unit = world.drive().zones().layout().unit_blocks as usize;
        // Each column has a chunk, and the first two blocks of the next unit are saved by the flush.
        let flushed = unit * width as usize + 2;
        world.write(0, flushed, Durability::Volatile).unwrap();
        world.run(Request::Flush).unwrap();
        let mut frames = Vec::new();
        assert!(world.drive().frames_mut().acquire_many(FrameForm::Bytes, unit, &mut frames));
        let write = Request::Write {
            first: flushed as u64,
            frames: &frames,
            durability: Durability::Volatile,
            handle: Handle::NONE,
        };
        let now = world.clock.now();
        world.drive().submit(now, 7, write).unwrap();
        world.drive().poll(now, &mut Vec::new());
        // The power goes while the unit is being programmed.
        let device = world.drive.take().unwrap().into_zones().crash();
        let cut_at = |until: Time| {
            let mut device = device.fork().expect("memory").expect("a store in memory");
            let fate = DieFate { until, program: ProgramFate::Fading { reads }, erase: EraseFate::Kept };
            let remains = device.power_cut_by_die(until, |_| fate).unwrap();
            (remains.programs_fading > 0).then_some((device, until))
        };
        let instants = device.instants();
        let (device, until) = instants.iter().rev().find_map(|instant| cut_at(Time(instant.0 - 1))).expect("a program");
        world.clock = VirtualClock(until);
        let opened =
            SegmentFtl::open_with(device, config(), AskedLimits::default(), Access::ReadWrite, &mut world.clock);
        world.drive = Some(opened.unwrap());
        let expected: Vec<u64> = (1..=flushed as u64).collect();
        for is_clean in [false, true, false] {
            for _ in 0..3 {
                assert_eq!(world.read(0, flushed).unwrap(), expected, "width {width}, {reads} reads");
            }
            world.reopen(is_clean).unwrap();
        }
    }
}
