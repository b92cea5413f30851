//! The example that Application-Managed Flash was presented with (slides 13 to 21): a log-structured file system cleans its log on a page
//! FTL that cleans, too, and on segments, which do not. Blocks of the example are `PAGE` of ours, and its flash blocks have two of them.
//!
//! ```text
//!   written    A B │ C CP │ D CP │ IM E │ B F │ G CP │ IM         the file system writes B, checkpoint (CP) and inode map (IM) again
//!   page FTL     x      x      x   x                              four blocks with one page of use: 4 copies, 4 erases
//!   its host   A, C and D move, data segment 0 is trimmed         3 copies
//!   segments   the same of the host, and two blocks are erased    3 copies, 2 erases
//! ```
//!
//! The slides show what is where, and not in which order it was written; the order is ours.

use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::Share;
use openftl_core::{Clock, FrameForm, Nanos, VirtualClock};
use openftl_media::Media;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::Config;
use openftl_parts::map::Place;
use openftl_parts::target::{BlockTarget, Durability, Request};
use openftl_parts::words::Handle;
use openftl_segments::SegmentFtl;
use openftl_zones::{Face, Limits, ZoneConfig};

/// Blocks of a page of the example.
const PAGE: u64 = 64;

/// Pages of a segment of the file system.
const SEGMENT: u64 = 4;

/// Where the file system keeps what: segments of its own.
const CHECKPOINT: u64 = 0;
const INODE_MAP: u64 = SEGMENT;
const DATA: u64 = 2 * SEGMENT;

fn device(dies: u32, chunks: u32) -> EmulatedDevice {
    let mut profile = Profile::builtin("tiny").unwrap();
    (profile.groups, profile.pus_per_group) = (1, dies);
    profile.chip = Profile::builtin("bluedbm").unwrap().chip;
    profile.chip.blocks_per_chunk = 2 * PAGE as u32;
    EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, 1).unwrap()
}

fn run(drive: &mut impl BlockTarget, clock: &mut VirtualClock, request: Request<'_>) {
    drive.submit(clock.now(), 1, request).unwrap();
    let mut done = Vec::new();
    loop {
        drive.poll(clock.now(), &mut done);
        if let Some(done) = done.pop() {
            return done.result.unwrap();
        }
        clock.wait_until(drive.next_due().expect("a request ends"));
    }
}

/// Writes a page.
fn write(drive: &mut impl BlockTarget, clock: &mut VirtualClock, page: u64) {
    write_blocks(drive, clock, page * PAGE, PAGE);
}

fn write_blocks(drive: &mut impl BlockTarget, clock: &mut VirtualClock, first: u64, blocks: u64) {
    let mut frames = Vec::new();
    let form = drive.payload_form();
    while !drive.frames_mut().acquire_many(form, blocks as usize, &mut frames) {
        clock.wait_until(drive.next_due().expect("frames come back"));
        drive.poll(clock.now(), &mut Vec::new());
    }
    let (durability, handle) = (Durability::Volatile, Handle::NONE);
    run(drive, clock, Request::Write { first, frames: &frames, durability, handle });
}

/// Lets the drive do what it does while its host is silent.
fn rest(drive: &mut impl BlockTarget, clock: &mut VirtualClock) {
    let until = clock.now() + Nanos::from_millis(2_000);
    let mut done = Vec::new();
    loop {
        drive.poll(clock.now(), &mut done);
        match drive.next_due().filter(|due| *due < until) {
            Some(due) => _ = clock.wait_until(due),
            None => break,
        }
    }
    clock.wait_until(until);
    drive.poll(clock.now(), &mut done);
}

/// A to G, where they are written first: A to D in the first data segment, the others in the second, with B again.
const A: u64 = DATA;
const B: u64 = DATA + 1;
const C: u64 = DATA + 2;
const D: u64 = DATA + 3;
const E: u64 = DATA + 4;
const B_AGAIN: u64 = DATA + 5;
const F: u64 = DATA + 6;
const G: u64 = DATA + 7;

/// What the cleaner of the file system moves out of the first data segment, to the third.
const CLEANED: [u64; 3] = [DATA + 8, DATA + 9, DATA + 10];

/// Data that rest beside the example, and are overwritten in part until the page FTL is short of room.
const OTHERS: u64 = 100;

#[test]
fn a_log_on_a_page_ftl_copies_seven_pages_and_erases_four_blocks() {
    let mut clock = VirtualClock::default();
    let others = DATA + 3 * SEGMENT;
    let config = Config {
        payload: FrameForm::Bytes,
        capacity_blocks: (others + OTHERS) * PAGE,
        over_provisioning: Share::percent(4),
        checkpoint_log_blocks: Some(24),
        ..Config::default()
    };
    let drive = &mut BlockFtl::format(device(1, 96), config, &mut clock).unwrap();
    let clock = &mut clock;
    (others..others + OTHERS).for_each(|page| write(drive, clock, page));
    [1, 2, 3].into_iter().for_each(|page| write(drive, clock, CHECKPOINT + page));
    [1, 2, 3].into_iter().for_each(|page| write(drive, clock, INODE_MAP + page));
    // A quarter of each: the blocks of the example have less of use in them.
    (others..others + 96).for_each(|page| write_blocks(drive, clock, page * PAGE, PAGE / 4));
    let written = drive.statistics().host_blocks_written;

    for page in [A, B, C, CHECKPOINT, D, CHECKPOINT, INODE_MAP, E, B_AGAIN, F, G, CHECKPOINT, INODE_MAP] {
        write(drive, clock, page);
        if page == B_AGAIN {
            let (first, durability) = (B * PAGE, Durability::Volatile);
            run(drive, clock, Request::Trim { first, blocks: PAGE, durability });
        }
        if page == C {
            let [collected] = drive.statistics().groups[..] else { panic!("there is one group") };
            assert_eq!(collected.victims, 0, "nothing was collected before");
        }
    }
    run(drive, clock, Request::Flush);
    rest(drive, clock);
    let [collected] = drive.statistics().groups[..] else { panic!("there is one group") };
    assert_eq!((collected.relocated, collected.victims), (4 * PAGE, 4));
    assert_eq!(drive.statistics().resets, 4);
    let format = drive.media().geometry().format();
    let chunk_of = |page: u64| match drive.place(page * PAGE) {
        Some(Place::Media(ppa)) => format.chunk_of(ppa),
        other => panic!("page {page} is {other:?}"),
    };
    assert_eq!((chunk_of(A), chunk_of(D)), (chunk_of(C), chunk_of(E)), "they have moved, side by side");

    let before = drive.statistics().host_blocks_written;
    CLEANED.into_iter().for_each(|page| write(drive, clock, page));
    let (first, durability) = (A * PAGE, Durability::Volatile);
    run(drive, clock, Request::Trim { first, blocks: SEGMENT * PAGE, durability });
    let by_host = drive.statistics().host_blocks_written - before;
    assert_eq!((before - written, by_host), (13 * PAGE, 3 * PAGE));
    assert_eq!((collected.relocated + by_host) / PAGE, 7, "copies of both");
}

#[test]
fn a_log_on_segments_copies_three_pages_and_erases_two_blocks() {
    let mut clock = VirtualClock::default();
    let config = Config { checkpoint_log_blocks: Some(24), ..Config::default() };
    let limits = Limits { max_open: 5, max_active: 5 };
    let segments =
        ZoneConfig { face: Face::Segments, width: 2, limits, zones: Some(5), extension_bytes: 0, window_blocks: 0 };
    let drive = &mut SegmentFtl::format(device(2, 60), config, segments, &mut clock).unwrap();
    let clock = &mut clock;
    assert_eq!(drive.segment_blocks(), Some(SEGMENT * PAGE), "two blocks of two pages");
    // Checkpoints and inode maps are appended, too.
    let [c0, c1, c2] = [CHECKPOINT, CHECKPOINT + 1, CHECKPOINT + 2];
    for page in [A, B, C, c0, D, c1, INODE_MAP, E, B_AGAIN, F, G, c2, INODE_MAP + 1] {
        write(drive, clock, page);
    }
    run(drive, clock, Request::Flush);
    rest(drive, clock);
    assert_eq!(drive.zones().statistics().0.resets, 0);

    let before = drive.zones().statistics().0.host_blocks_written;
    CLEANED.into_iter().for_each(|page| write(drive, clock, page));
    let (first, durability) = (A * PAGE, Durability::Volatile);
    run(drive, clock, Request::Trim { first, blocks: SEGMENT * PAGE, durability });
    run(drive, clock, Request::Flush);
    rest(drive, clock);
    let (statistics, of_segments) = drive.zones().statistics();
    assert_eq!(statistics.host_blocks_written - before, 3 * PAGE, "copies of the host");
    assert_eq!((statistics.relocation_reads, statistics.relocation_copies, of_segments.blocks_moved), (0, 0, 0));
    assert_eq!(statistics.resets, 2);
}
