//! What the FTL adds to a 4 KiB read and write over the device alone, on instant media in RAM, on one thread.
//!
//! LightNVM measured + 0.16 µs for a read and + 0.23 µs for a write over the bare device path; this is the same question.
//! Device and FTL are measured in turn, slice by slice, each slice touching the same number of blocks, and the medians of
//! the slices are compared, so that a noisy machine disturbs both alike. The time is the CPU time of the thread. A read begins when
//! the one before has ended, as at queue depth 1: without the fence the processor would fetch the device's next block ahead of
//! time, whose address the loop knows, and not the FTL's, whose address is in the map. The store shares pages with the frames, so
//! neither loop would touch the payload of its own accord: both fill each block before they write it, and load every cache line of
//! a block that they have read, as a socket does.
//!
//! A third figure is that of a full drive with 10 % over-provisioning, where each write relocates some blocks.
//!
//! ```text
//! cargo run --release -p openftl-blocks --example software_cost [-- --json | --collecting [--device-copy]]
//! ```
//!
//! `--collecting` measures the third figure alone, `--collecting=SLICES` so many slices of it: for a profiler. With `--device-copy`
//! the device copies what is relocated.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{ChunkId, Frame, FrameForm, Frames, Ppa, Time};
use openftl_media::{Blocks, Command, EmulatedDevice, Media, Profile, Store, Timing};
use openftl_parts::{BlockTarget, Config, Done, Durability, Handle, RelocateBy, Request, Target, chunks_per_pu};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{Ordering, fence};

/// Slices of each kind.
const SLICES: usize = 41;
/// Blocks of a slice.
const SLICE_BLOCKS: usize = 4096;
const CACHE_LINE_BYTES: usize = 64;
/// The drive: large enough that its map and payload are in no cache.
const CAPACITY_BLOCKS: u64 = 1 << 18;
/// The drive that collects garbage.
const COLLECTING_BLOCKS: u64 = 1 << 17;
/// Random writes of it, in drive writes, before it is measured: by then its write amplification is steady.
const WARM_UP_DRIVE_WRITES: u64 = 3;

/// A device alone, filled block by block.
struct Device {
    device: EmulatedDevice,
    frames: Frames,
    written: Vec<Ppa>,
    chunks: Vec<ChunkId>,
    open: usize,
    next: u32,
}

impl Device {
    fn new(profile: &Profile, chunks: u32) -> Device {
        let device = EmulatedDevice::new(profile.clone(), chunks, Store::Ram, Timing::Instant, 1).unwrap();
        let chunks = device.geometry().chunk_ids().collect();
        let frames = Frames::new(1024, 0, device.geometry().oob_bytes as usize);
        let mut new = Device { device, frames, written: Vec::new(), chunks, open: 0, next: 0 };
        new.settle_memory();
        new
    }

    /// Writes all of the device and resets it, so that what is measured later is not the system handing out memory.
    fn settle_memory(&mut self) {
        let mut completions = Vec::new();
        let geometry = *self.device.geometry();
        self.write(geometry.blocks() as usize, geometry.ws_min, &mut completions);
        for chunk in &self.chunks {
            let blocks = [geometry.format().ppa(*chunk, 0)];
            let command = Command::Reset { blocks: Blocks::Vector(&blocks) };
            self.device.submit(Time::ZERO, &mut self.frames, 0, command).unwrap();
            self.device.poll(Time::ZERO, &mut self.frames, &mut completions);
            completions.clear();
        }
        self.written.clear();
        (self.open, self.next) = (0, 0);
    }

    /// Writes `blocks` blocks in units of `unit`, from the frames in turn.
    fn write(&mut self, blocks: usize, unit: u32, completions: &mut Vec<openftl_media::Completion>) {
        let geometry = *self.device.geometry();
        let mut frame = 0;
        for _ in 0..blocks / unit as usize {
            let chunk = self.chunks[self.open];
            let first = geometry.format().ppa(chunk, self.next);
            let ppas: [Ppa; 64] = std::array::from_fn(|index| Ppa(first.0 + index as u64));
            let from: [Frame; 64] = std::array::from_fn(|index| Frame((frame + index as u32) % 1024));
            from[..unit as usize].iter().for_each(|frame| fill(&mut self.frames, *frame));
            let command = Command::Write {
                blocks: Blocks::Vector(&ppas[..unit as usize]),
                frames: &from[..unit as usize],
                fua: false,
            };
            self.device.submit(Time::ZERO, &mut self.frames, 0, command).unwrap();
            self.device.poll(Time::ZERO, &mut self.frames, completions);
            completions.clear();
            self.written.extend(&ppas[..unit as usize]);
            frame = (frame + unit) % 1024;
            self.next += unit;
            if self.next == geometry.blocks_per_chunk {
                self.next = 0;
                self.open += 1;
            }
        }
    }

    fn read(&mut self, ppa: Ppa, frame: Frame, completions: &mut Vec<openftl_media::Completion>) {
        let command = Command::Read { blocks: Blocks::Vector(&[ppa]), frames: &[frame] };
        self.device.submit(Time::ZERO, &mut self.frames, 0, command).unwrap();
        self.device.poll(Time::ZERO, &mut self.frames, completions);
        assert!(completions.pop().is_some_and(|completion| completion.status.data_is_good()));
    }
}

/// The host has another block for `frame`.
fn fill(frames: &mut Frames, frame: Frame) {
    frames.bytes_mut(frame).fill(frame.0 as u8);
}

/// The host looks at a block that it has read.
fn consume(frames: &Frames, frame: Frame) {
    let lines = frames.bytes(frame).chunks_exact(CACHE_LINE_BYTES);
    std::hint::black_box(lines.fold(0, |sum, line| sum ^ line[0]));
}

fn median(mut nanos: Vec<f64>) -> f64 {
    nanos.sort_by(f64::total_cmp);
    nanos[nanos.len() / 2]
}

fn per_block(began: f64) -> f64 {
    (cpu_time() - began) / SLICE_BLOCKS as f64
}

/// Nanoseconds that this thread has run: others that share its processor are left out.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of CPU time of a random write to a full drive with 10 % over-provisioning, and its write amplification.
fn collecting(slices: usize) -> (f64, f64) {
    let profile = Profile::builtin("cosmos").unwrap();
    let config = Config {
        capacity_blocks: COLLECTING_BLOCKS,
        over_provisioning: Share::percent(10),
        host_frames: 1024,
        relocate_by: if std::env::args().any(|argument| argument == "--device-copy") {
            RelocateBy::DeviceCopy
        } else {
            RelocateBy::ReadAndWrite
        },
        ..Config::default()
    };
    let shape = profile.geometry(profile.chunks_per_pu).unwrap();
    let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
    let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, 1).unwrap();
    let mut clock = openftl_core::VirtualClock::default();
    let mut ftl = BlockFtl::format(device, config, &mut clock).unwrap();
    let mut done: Vec<Done> = Vec::new();
    let mut write = |ftl: &mut BlockFtl<EmulatedDevice>, block: u64| {
        let frame = loop {
            match ftl.frames_mut().acquire(FrameForm::Bytes) {
                Some(frame) => break frame,
                None => ftl.poll(Time::ZERO, &mut done),
            }
        };
        fill(ftl.frames_mut(), frame);
        let request =
            Request::Write { first: block, frames: &[frame], durability: Durability::Volatile, handle: Handle::NONE };
        ftl.submit(Time::ZERO, 0, request).unwrap();
        ftl.poll(Time::ZERO, &mut done);
        done.clear();
    };
    (0..COLLECTING_BLOCKS).for_each(|block| write(&mut ftl, block));
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(2);
    for _ in 0..WARM_UP_DRIVE_WRITES * COLLECTING_BLOCKS {
        write(&mut ftl, chance.next_u64() % COLLECTING_BLOCKS);
    }
    ftl.reset_statistics();
    let began = cpu_time();
    for _ in 0..slices * SLICE_BLOCKS {
        write(&mut ftl, chance.next_u64() % COLLECTING_BLOCKS);
    }
    let nanos = (cpu_time() - began) / (slices * SLICE_BLOCKS) as f64;
    (nanos, ftl.statistics().waf())
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    if let Some(slices) = std::env::args().find_map(|argument| {
        let rest = argument.strip_prefix("--collecting")?;
        Some(rest.strip_prefix('=').map_or(SLICES, |slices| slices.parse().expect("a number of slices")))
    }) {
        let (nanos, amplification) = collecting(slices);
        return println!("write to a full drive with 10 % over-provisioning: {nanos:.0} ns, WAF {amplification:.2}");
    }
    let profile = Profile::builtin("znand").unwrap();
    let config = Config {
        capacity_blocks: CAPACITY_BLOCKS,
        over_provisioning: Share::percent(120),
        host_frames: 1024,
        verify_reads: !std::env::args().any(|argument| argument == "--unverified"),
        ..Config::default()
    };
    let shape = profile.geometry(profile.chunks_per_pu).unwrap();
    let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
    let mut device = Device::new(&profile, chunks);
    let mut clock = openftl_core::VirtualClock::default();
    let under = Device::new(&profile, chunks).device;
    let mut ftl = BlockFtl::format(under, config, &mut clock).unwrap();
    let unit = shape.ws_opt.min(64);

    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut completions = Vec::new();
    let mut done: Vec<Done> = Vec::new();
    let mut times: [Vec<f64>; 4] = Default::default();
    let write = |ftl: &mut BlockFtl<EmulatedDevice>, done: &mut Vec<Done>, block: u64| {
        let frame = ftl.frames_mut().acquire(FrameForm::Bytes).expect("instant media give frames back at once");
        fill(ftl.frames_mut(), frame);
        let request =
            Request::Write { first: block, frames: &[frame], durability: Durability::Volatile, handle: Handle::NONE };
        ftl.submit(Time::ZERO, 0, request).unwrap();
        ftl.poll(Time::ZERO, done);
        done.clear();
    };
    // Every block is written once, so that reads find something, in an order that leaves no run together.
    for index in 0..CAPACITY_BLOCKS {
        write(&mut ftl, &mut done, index.wrapping_mul(0x9E37_79B1) % CAPACITY_BLOCKS);
    }
    let fill = CAPACITY_BLOCKS as usize / unit as usize * unit as usize;
    device.write(fill, unit, &mut completions);
    for _ in 0..SLICES {
        let began = cpu_time();
        device.write(SLICE_BLOCKS, unit, &mut completions);
        times[0].push(per_block(began));
        let blocks: Vec<u64> = (0..SLICE_BLOCKS).map(|_| chance.next_u64() % CAPACITY_BLOCKS).collect();
        let began = cpu_time();
        for block in &blocks {
            write(&mut ftl, &mut done, *block);
        }
        times[1].push(per_block(began));
        assert_eq!(ftl.statistics().relocation_reads, 0, "the drive is large enough to be measured without collection");
    }
    for _ in 0..SLICES {
        let places: Vec<Ppa> =
            (0..SLICE_BLOCKS).map(|_| device.written[chance.next_u64() as usize % device.written.len()]).collect();
        let began = cpu_time();
        for (index, ppa) in places.iter().enumerate() {
            fence(Ordering::SeqCst);
            let frame = Frame(index as u32 % 64);
            device.read(*ppa, frame, &mut completions);
            consume(&device.frames, frame);
        }
        times[2].push(per_block(began));
        let blocks: Vec<u64> = (0..SLICE_BLOCKS).map(|_| chance.next_u64() % CAPACITY_BLOCKS).collect();
        let mut frames = Vec::new();
        assert!(ftl.frames_mut().acquire_many(FrameForm::Bytes, 64, &mut frames));
        let began = cpu_time();
        for (index, block) in blocks.iter().enumerate() {
            fence(Ordering::SeqCst);
            let request = Request::Read { first: *block, frames: &frames[index % 64..index % 64 + 1] };
            ftl.submit(Time::ZERO, 0, request).unwrap();
            ftl.poll(Time::ZERO, &mut done);
            assert!(done.pop().is_some_and(|done| done.result.is_ok()));
            consume(ftl.frames(), frames[index % 64]);
        }
        times[3].push(per_block(began));
        for frame in frames {
            ftl.frames_mut().release(frame);
        }
    }
    let [device_write, ftl_write, device_read, ftl_read] = times.map(median);
    let (read_added, write_added) = (ftl_read - device_read, ftl_write - device_write);
    drop((ftl, device));
    let (collecting_write, amplification) = collecting(SLICES);
    if json {
        println!(
            "{{\"device_read_ns\":{device_read:.1},\"ftl_read_ns\":{ftl_read:.1},\"read_added_ns\":{read_added:.1},\
             \"device_write_ns\":{device_write:.1},\"ftl_write_ns\":{ftl_write:.1},\"write_added_ns\":{write_added:.1},\
             \"collecting_write_ns\":{collecting_write:.1},\"collecting_waf\":{amplification:.3},\
             \"read_added_goal_ns\":160,\"write_added_goal_ns\":230}}"
        );
    } else {
        println!("4 KiB on instant RAM, one thread: median of {SLICES} slices of {SLICE_BLOCKS} blocks");
        println!("          device alone   through the FTL   added   goal");
        println!("read      {device_read:9.0} ns      {ftl_read:9.0} ns {read_added:5.0} ns  160 ns");
        println!("write     {device_write:9.0} ns      {ftl_write:9.0} ns {write_added:5.0} ns  230 ns");
        println!("write to a full drive with 10 % over-provisioning: {collecting_write:.0} ns, WAF {amplification:.2}");
    }
}
