//! What zones cost and save, in virtual time: writes of several zones side by side, beside a block FTL on the same flash; what a flush
//! costs; and how long a drive takes to open after a power cut.
//!
//! ```text
//!   cargo run --release -p openftl-lab --example zones -- cosmos 1 2      profile, zone_width, GiB
//! ```

use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Frames, Nanos, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::accounts::statistics::Statistics;
use openftl_parts::{Access, BlockTarget, Config, Done, Durability, Handle, Request, Target, chunks_per_pu};
use openftl_zones::{Face, Limits, ZoneConfig, ZoneDone, ZoneFtl, ZoneRequest};

/// Zones, or places of a block drive, that are written side by side.
const STREAMS: u64 = 8;

/// Blocks of a write.
const WRITE_BLOCKS: u32 = 64;

type Zones = ZoneFtl<EmulatedDevice>;

fn fill(frames: &mut Frames, taken: &[Frame], first: u64) {
    for (frame, block) in taken.iter().zip(first..) {
        openftl_core::Stamp(1 << 40 | block).expand(frames.bytes_mut(*frame));
    }
}

fn wait(drive: &mut Zones, clock: &mut VirtualClock, done: &mut Vec<ZoneDone>) {
    if let Some(due) = drive.next_due() {
        clock.wait_until(due);
    }
    drive.poll(clock.now(), done);
    for ended in done.drain(..) {
        ended.result.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Writes so many blocks to each of the first zones, all at once, with a flush after so many of each.
fn write_zones(drive: &mut Zones, clock: &mut VirtualClock, blocks: u32, flush_after: Option<u32>) {
    let (size, mut done, mut tag) = (drive.layout().size, Vec::new(), 0);
    let step = flush_after.unwrap_or(WRITE_BLOCKS).min(WRITE_BLOCKS);
    for written in (0..blocks).step_by(step as usize) {
        for zone in 0..STREAMS {
            let count = step.min(blocks - written) as usize;
            let mut frames = Vec::new();
            while !drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
                wait(drive, clock, &mut done);
            }
            let first = zone * size + u64::from(written);
            fill(drive.frames_mut(), &frames, first);
            tag += 1;
            let write = ZoneRequest::Write { first, frames: &frames, durability: Durability::Volatile };
            drive.submit(clock.now(), tag, write).unwrap_or_else(|error| panic!("{error}"));
        }
        let is_due = flush_after.is_some_and(|after| (written + step).is_multiple_of(after));
        if is_due {
            flush(drive, clock);
        }
    }
    flush(drive, clock);
}

fn flush(drive: &mut Zones, clock: &mut VirtualClock) {
    let mut done = Vec::new();
    drive.submit(clock.now(), 1 << 40, ZoneRequest::Flush).unwrap_or_else(|error| panic!("{error}"));
    loop {
        drive.poll(clock.now(), &mut done);
        if done.drain(..).any(|ended| ended.tag == 1 << 40) {
            return;
        }
        let due = drive.next_due().expect("a flush ends");
        clock.wait_until(due);
    }
}

fn write_blocks(drive: &mut BlockFtl<EmulatedDevice>, clock: &mut VirtualClock, stream_blocks: u64) {
    let (mut done, mut tag): (Vec<Done>, u64) = (Vec::new(), 0);
    let mut wait = |drive: &mut BlockFtl<EmulatedDevice>, clock: &mut VirtualClock| {
        if let Some(due) = drive.next_due() {
            clock.wait_until(due);
        }
        drive.poll(clock.now(), &mut done);
        done.drain(..).any(|ended| ended.tag == u64::MAX)
    };
    for written in (0..stream_blocks).step_by(WRITE_BLOCKS as usize) {
        for stream in 0..STREAMS {
            let count = u64::from(WRITE_BLOCKS).min(stream_blocks - written) as usize;
            let mut frames = Vec::new();
            while !drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
                wait(drive, clock);
            }
            let first = stream * stream_blocks + written;
            fill(drive.frames_mut(), &frames, first);
            tag += 1;
            let (durability, handle) = (Durability::Volatile, Handle::NONE);
            let write = Request::Write { first, frames: &frames, durability, handle };
            while drive.submit(clock.now(), tag, write).is_err() {
                wait(drive, clock);
            }
        }
    }
    drive.submit(clock.now(), u64::MAX, Request::Flush).expect("it is taken");
    while !wait(drive, clock) {}
}

fn speed(blocks: u64, time: Nanos) -> f64 {
    blocks as f64 * BLOCK_BYTES as f64 / (1 << 20) as f64 / time.as_secs_f64()
}

/// Blocks programmed for each block of the host.
fn amplification(statistics: &Statistics) -> f64 {
    statistics.programmed.iter().sum::<u64>() as f64 / statistics.host_blocks_written as f64
}

fn new_zones(profile: &Profile, width: u32, chunks: u32, clock: &mut VirtualClock) -> Zones {
    let device = EmulatedDevice::new(profile.clone(), chunks, Store::Stamps, Timing::Modelled, 1).expect("memory");
    let limits = Limits { max_open: STREAMS as u32, max_active: STREAMS as u32 };
    let zoned = ZoneConfig { face: Face::Zones, width, limits, zones: None, extension_bytes: 0, window_blocks: 0 };
    ZoneFtl::format(device, Config::default(), zoned, clock).unwrap_or_else(|error| panic!("{error}"))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, usual: &str| arguments.get(index).cloned().unwrap_or_else(|| usual.to_owned());
    let profile = Profile::builtin(&argument(0, "cosmos")).expect("a builtin profile");
    let width = argument(1, "1").parse::<u32>().expect("parallel units of a zone");
    let gib = argument(2, "2").parse::<u64>().expect("GiB");
    let config = Config { capacity_blocks: gib << 18, over_provisioning: Share::percent(10), ..Config::default() };
    let shape = profile.geometry(profile.chunks_per_pu).expect("it is valid");
    let chunks = chunks_per_pu(&shape, &config, Share::percent(1)).expect("such a drive can be");

    let mut clock = VirtualClock::default();
    let mut drive = new_zones(&profile, width, chunks, &mut clock);
    let layout = *drive.layout();
    println!(
        "{} zones of {} MiB ({} parallel units), {} bytes of memory for where they are",
        layout.zones,
        f64::from(layout.capacity) * BLOCK_BYTES as f64 / (1 << 20) as f64,
        layout.width,
        drive.map_bytes()
    );
    let began = clock.now();
    write_zones(&mut drive, &mut clock, layout.capacity, None);
    let time = clock.now().since(began);
    let blocks = STREAMS * u64::from(layout.capacity);
    let factor = amplification(drive.statistics().0);
    println!(
        "{STREAMS} zones side by side      {:>8.1} MiB/s, {factor:.4} blocks programmed a block",
        speed(blocks, time)
    );

    let device = EmulatedDevice::new(profile.clone(), chunks, Store::Stamps, Timing::Modelled, 1).expect("memory");
    let mut block_drive = BlockFtl::format(device, config, &mut clock).unwrap_or_else(|error| panic!("{error}"));
    let began = clock.now();
    write_blocks(&mut block_drive, &mut clock, u64::from(layout.capacity));
    let time = clock.now().since(began);
    let factor = amplification(block_drive.statistics());
    println!("the same to a block FTL   {:>8.1} MiB/s, {factor:.4} blocks programmed a block", speed(blocks, time));

    for after in [1, 4, 16, 64, 256] {
        let mut drive = new_zones(&profile, width, chunks, &mut clock);
        let began = clock.now();
        let blocks = layout.capacity.min(1024);
        write_zones(&mut drive, &mut clock, blocks, Some(after));
        let time = clock.now().since(began);
        let factor = amplification(drive.statistics().0);
        let speed = speed(STREAMS * u64::from(blocks), time);
        println!("a flush each {:>5} KiB     {speed:>8.1} MiB/s, {factor:.4} blocks programmed a block", after * 4);
    }

    reset_zones(&mut drive, &mut clock);
    write_zones(&mut drive, &mut clock, 100, Some(7));
    let mut media = drive.crash();
    let at = clock.now();
    media.power_cut(at, false).expect("a store in memory");
    let limits = Limits { max_open: STREAMS as u32, max_active: STREAMS as u32 };
    let began = clock.now();
    let opened = ZoneFtl::open_with(media, Config::default(), limits.into(), Access::ReadWrite, &mut clock);
    let opened = opened.unwrap_or_else(|error| panic!("{error}"));
    println!("opened after a power cut in {}, of which the block FTL below:", clock.now().since(began));
    for step in &opened.block().recovery_report().steps {
        println!("  {:<22} {:>12}, {}", step.name, step.time.to_string(), step.found);
    }
}

/// Resets the zones that were written.
fn reset_zones(drive: &mut Zones, clock: &mut VirtualClock) {
    for zone in 0..STREAMS {
        let address = zone * drive.layout().size;
        let reset = ZoneRequest::Act { zone: address, action: openftl_zones::Action::Reset };
        drive.submit(clock.now(), zone, reset).unwrap_or_else(|error| panic!("{error}"));
    }
    flush(drive, clock);
}
