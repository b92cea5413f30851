//! How long things take: dies, channels and cache of the emulated device.

use crate::common::Host;
use openftl_core::Time;
use openftl_media::{Blocks, Command, EmulatedDevice, Media, Profile, Store, Timing};
use proptest::prelude::*;

/// Of the tiny profile: 4112 bytes at 400 MB/s, and at the cache's 3200 MB/s.
const BLOCK: u64 = 10_280;
const BLOCK_IN_CACHE: u64 = 1_285;
const LOWER_READ: u64 = 40_000;
const UPPER_READ: u64 = 60_000;
const LOWER_PROGRAM: u64 = 400_000;
const UPPER_PROGRAM: u64 = 1_200_000;
const ERASE: u64 = 3_000_000;
const UNIT: u32 = 4;

fn tiny() -> Profile {
    Profile::builtin("tiny").unwrap()
}

#[test]
fn a_read_senses_each_page_once_and_moves_each_block() {
    let mut host = Host::new(&tiny(), 2);
    let chunk = host.chunk(0, 0, 0);
    let start = host.fill(&[chunk]);
    // Pages of four blocks: two lower ones, two upper ones, and so on. Commands follow each other on one die.
    host.read(start, 0, chunk, 0, 1);
    host.read(start, 1, chunk, 0, 4);
    host.read(start, 2, chunk, 8, 1);
    host.read(start, 3, chunk, 6, 4);
    let durations = [
        LOWER_READ + BLOCK,
        LOWER_READ + 4 * BLOCK,
        UPPER_READ + BLOCK,
        LOWER_READ + 2 * BLOCK + UPPER_READ + 2 * BLOCK,
    ];
    let mut expected = start.0;
    for (at, duration) in host.finish_times().into_iter().zip(durations) {
        expected += duration;
        assert_eq!(at, expected);
    }
    assert_eq!(host.device.statistics().senses, 5);
}

#[test]
fn dies_of_a_group_sense_together_and_share_the_channel() {
    let mut host = Host::new(&tiny(), 2);
    let chunks = [host.chunk(0, 0, 0), host.chunk(0, 1, 0), host.chunk(1, 0, 0)];
    let start = host.fill(&chunks);
    for (tag, chunk) in (0..).zip(chunks) {
        host.read(start, tag, chunk, 0, 4);
    }
    let first = start.0 + LOWER_READ + 4 * BLOCK;
    assert_eq!(host.finish_times(), [first, first + 4 * BLOCK, first], "the other group has a channel of its own");
}

#[test]
fn a_read_behind_a_program_waits_for_the_die() {
    let mut host = Host::new(&tiny(), 2);
    let (full, open) = (host.chunk(0, 0, 0), host.chunk(0, 0, 1));
    let start = host.fill(&[full]);
    host.write(start, 0, open, 0, UNIT, false);
    host.read(start, 1, full, 0, 1);
    let acknowledged = start.0 + 4 * BLOCK_IN_CACHE;
    let programmed = acknowledged + 4 * BLOCK + LOWER_PROGRAM;
    assert_eq!(host.finish_times(), [acknowledged, programmed + LOWER_READ + BLOCK]);
}

#[test]
fn a_write_is_acknowledged_by_the_cache_until_that_is_full() {
    let mut host = Host::new(&tiny(), 2);
    let chunk = host.chunk(0, 0, 0);
    for unit in 0..4 {
        host.write(Time::ZERO, u64::from(unit), chunk, unit * UNIT, UNIT, false);
    }
    // The cache holds two units. The third one waits until the first is programmed, the fourth for the second.
    let fill = 4 * BLOCK_IN_CACHE;
    let first = fill + 4 * BLOCK + LOWER_PROGRAM;
    let second = first + 4 * BLOCK + LOWER_PROGRAM;
    assert_eq!(host.finish_times(), [fill, fill, first + fill, second + fill]);
}

#[test]
fn each_page_of_a_word_line_is_programmed_in_its_own_time() {
    let mut profile = tiny();
    profile.cache.blocks_per_pu = 0;
    let mut host = Host::new(&profile, 2);
    let chunk = host.chunk(0, 0, 0);
    for unit in 0..8 {
        host.write(Time::ZERO, u64::from(unit), chunk, unit * UNIT, UNIT, false);
    }
    let mut expected = 4 * BLOCK_IN_CACHE;
    let programs = [LOWER_PROGRAM, LOWER_PROGRAM, UPPER_PROGRAM, UPPER_PROGRAM];
    for (at, program) in host.finish_times().into_iter().zip(programs.into_iter().cycle()) {
        expected += 4 * BLOCK + program;
        assert_eq!(at, expected, "without a cache a write is acknowledged when it is programmed");
    }
}

#[test]
fn a_forced_write_waits_for_the_program_only_where_the_cache_is_not_protected() {
    for protected in [true, false] {
        let mut profile = tiny();
        profile.cache.power_loss_protection = protected;
        let mut host = Host::new(&profile, 2);
        assert_eq!(host.device.geometry().volatile_cache, !protected);
        let chunk = host.chunk(0, 0, 0);
        host.write(Time::ZERO, 0, chunk, 0, UNIT, true);
        host.device.submit(Time::ZERO, &mut host.frames, 1, Command::Flush).unwrap();
        let expected = 4 * BLOCK_IN_CACHE + if protected { 0 } else { 4 * BLOCK + LOWER_PROGRAM };
        assert_eq!(host.finish_times(), [expected, expected], "protected: {protected}");
    }
}

#[test]
fn a_block_still_in_the_cache_is_read_from_there() {
    let profile = Profile::builtin("znand").unwrap();
    let mut host = Host::new(&profile, 2);
    let chunk = host.chunk(0, 0, 0);
    host.write(Time::ZERO, 0, chunk, 0, 4, false);
    let acknowledged = host.finish()[0].at;
    host.read(acknowledged, 0, chunk, 2, 1);
    let cached = host.finish()[0].at.0 - acknowledged.0;
    assert_eq!(cached, (4112 * 1000_u64).div_ceil(6400));
    let later = Time(acknowledged.0 + 1_000_000);
    host.read(later, 0, chunk, 2, 1);
    let sensed = host.finish()[0].at.0 - later.0;
    assert_eq!(sensed, 3_000 + (4112 * 1000_u64).div_ceil(1200));
    assert_eq!(host.device.statistics().senses, 1);
}

#[test]
fn a_reset_takes_the_die_for_the_time_of_an_erase() {
    let mut host = Host::new(&tiny(), 2);
    let (chunk, other) = (host.chunk(0, 0, 0), host.chunk(0, 0, 1));
    let start = host.fill(&[chunk, other]);
    let busy = host.device.pu_busy();
    host.reset(start, 0, chunk);
    host.read(start, 1, other, 0, 1);
    assert_eq!(host.finish_times(), [start.0 + ERASE, start.0 + ERASE + LOWER_READ + BLOCK]);
    let now = host.device.pu_busy();
    assert_eq!(now[0].0 - busy[0].0, ERASE + LOWER_READ + BLOCK);
    assert_eq!(now[1..], busy[1..], "the other dies did nothing");
}

#[test]
fn a_copy_is_read_and_programmed() {
    let mut host = Host::new(&tiny(), 2);
    let (from, to) = (host.chunk(0, 0, 0), host.chunk(1, 0, 0));
    let start = host.fill(&[from]);
    let (from, to) = (host.ppas(from, 0, 4), host.ppas(to, 0, 4));
    let command = Command::Copy { from: &from, to: &to, fua: false };
    host.device.submit(start, &mut host.frames, 0, command).unwrap();
    assert_eq!(host.finish_times(), [start.0 + LOWER_READ + 4 * BLOCK + 4 * BLOCK_IN_CACHE]);
    assert_eq!(host.device.statistics().blocks_copied, 4);
}

#[test]
fn of_a_copy_the_first_unit_is_programmed_while_the_next_is_read() {
    let mut host = Host::new(&tiny(), 2);
    let (from, to, worn) = (host.chunk(0, 0, 0), host.chunk(1, 0, 0), host.chunk(1, 0, 1));
    let start = host.fill(&[from, worn]);
    let (from, to) = (host.ppas(from, 0, 8), host.ppas(to, 0, 8));
    let command = Command::Copy { from: &from, to: &to, fua: false };
    host.device.submit(start, &mut host.frames, 0, command).unwrap();
    // The die that it goes to erases when it has programmed both units.
    host.reset(start, 1, worn);
    let (read, accepted, programmed) = (LOWER_READ + 4 * BLOCK, 4 * BLOCK_IN_CACHE, 4 * BLOCK + LOWER_PROGRAM);
    let expected = [2 * read + accepted, read + accepted + 2 * programmed + ERASE];
    assert_eq!(host.finish_times(), expected.map(|span| start.0 + span));
    assert_eq!(host.device.statistics().blocks_copied, 8);
}

#[test]
fn instant_media_take_no_time() {
    let device = EmulatedDevice::new(tiny(), 2, Store::Stamps, Timing::Instant, 1).unwrap();
    let mut host = Host::with(device);
    let chunk = host.chunk(0, 0, 0);
    for unit in 0..8 {
        host.write(Time(5), u64::from(unit), chunk, unit * UNIT, UNIT, true);
    }
    host.read(Time(5), 8, chunk, 0, 32);
    host.reset(Time(5), 9, chunk);
    assert_eq!(host.finish_times(), [5; 10]);
    assert!(host.device.pu_busy().iter().all(|busy| busy.0 == 0));
}

#[test]
fn westlake_is_as_fast_as_it_was_measured() {
    let mut host = Host::new(&Profile::builtin("westlake").unwrap(), 1);
    let chunk = host.chunk(3, 5, 0);
    let start = host.fill(&[chunk]);
    let blocks = 4096_u32;
    let rate = |from: Time, to: Time, bytes: u64| bytes as f64 * 1000.0 / (to.0 - from.0) as f64;
    let mut now = start;
    for block in 0..blocks {
        host.read(now, 0, chunk, block, 1);
        now = host.finish()[0].at;
    }
    let small = rate(start, now, u64::from(blocks) * 4096);
    let start = now;
    for first in (0..blocks).step_by(16) {
        host.read(now, 0, chunk, first, 16);
        now = host.finish()[0].at;
    }
    let large = rate(start, now, u64::from(blocks) * 4096);
    host.reset(now, 0, chunk);
    let start = host.finish()[0].at;
    for first in (0..blocks).step_by(16) {
        host.write(start, 0, chunk, first, 16, true);
    }
    let end = host.finish().last().unwrap().at;
    let write = rate(start, end, u64::from(blocks) * 4096);
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.03;
    assert!(near(small, 105.0), "4 KiB reads: {small} MB/s");
    assert!(near(large, 280.0), "64 KiB reads: {large} MB/s");
    assert!(near(write, 47.0), "writes: {write} MB/s");
}

/// What a random host does next, on one of the groups.
#[derive(Clone, Copy, Debug)]
struct Step {
    group: u32,
    pu: u32,
    passes: u64,
    kind: u8,
    block: u32,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..2_u32, 0..2_u32, 0..200_000_u64, 0..10_u8, 0..32_u32);
    let step = step.prop_map(|(group, pu, passes, kind, block)| Step { group, pu, passes, kind, block });
    proptest::collection::vec(step, 1..200)
}

/// Completions of the steps in `groups`, as (step, time, status).
fn completions(profile: &Profile, steps: &[Step], groups: &[u32]) -> Vec<(u64, u64, u16)> {
    let mut host = Host::new(profile, 4);
    let mut now = 0;
    for (tag, step) in (0..).zip(steps) {
        now += step.passes;
        if !groups.contains(&step.group) {
            continue;
        }
        let (full, open) = (host.chunk(step.group, step.pu, 0), host.chunk(step.group, step.pu, 1));
        match step.kind {
            0..4 => host.read(Time(now), tag, full, step.block, 1),
            4 => host.read(Time(now), tag, full, 0, 32),
            5..9 => {
                let found = host.descriptor(open);
                if found.write_pointer == found.blocks {
                    host.reset(Time(now), tag, open);
                } else {
                    host.write(Time(now), tag, open, found.write_pointer, UNIT, step.block % 2 == 0);
                }
            }
            _ => host.write(Time(now), tag, full, 0, UNIT, false),
        }
    }
    let all = host.finish();
    assert!(all.is_sorted_by_key(|completion| completion.at));
    all.iter().map(|completion| (completion.tag, completion.at.0, completion.status as u16)).collect()
}

proptest! {
    #[test]
    fn load_in_one_group_changes_no_completion_in_another(steps in steps()) {
        let mut profile = tiny();
        profile.faults.program_fail = 0.05;
        profile.faults.read_fail = 0.05;
        profile.faults.erase_fail = 0.05;
        let both = completions(&profile, &steps, &[0, 1]);
        for group in [0, 1] {
            let of_group: Vec<_> =
                both.iter().copied().filter(|(tag, ..)| steps[*tag as usize].group == group).collect();
            prop_assert_eq!(of_group, completions(&profile, &steps, &[group]));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run_to_the_nanosecond(steps in steps()) {
        let mut profile = tiny();
        profile.faults.program_fail = 0.1;
        profile.faults.high_ecc = 0.1;
        prop_assert_eq!(completions(&profile, &steps, &[0, 1]), completions(&profile, &steps, &[0, 1]));
    }
}

#[test]
fn an_overwritten_frame_does_not_change_what_was_submitted() {
    let mut host = Host::new(&tiny(), 2);
    let chunk = host.chunk(0, 0, 0);
    for unit in 0..8 {
        // The next write fills the same frames again before this one completes.
        host.write(Time::ZERO, 0, chunk, unit * UNIT, UNIT, false);
    }
    let later = host.finish().last().unwrap().at;
    for block in 0..32 {
        assert!(host.status(later, chunk, block).data_is_good());
    }
    let ppas = host.ppas(chunk, 0, 32);
    let command = Command::Read { blocks: Blocks::Vector(&ppas), frames: &host.list[..32] };
    host.device.submit(later, &mut host.frames, 0, command).unwrap();
    assert_eq!(host.finish().len(), 1);
}

#[test]
fn a_device_may_be_owned_by_any_thread() {
    fn check<T: Send>() {}
    check::<EmulatedDevice>();
}
