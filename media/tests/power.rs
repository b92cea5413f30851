//! What a power cut leaves, and what it never takes.

use crate::common::Host;
use openftl_core::{Payload, PayloadMut, PuId, Stamp, Time};
use openftl_media::{
    BlockMask, Blocks, ChunkState, Command, DieFate, EmulatedDevice, EraseFate, Media, PowerLoss, Profile, ProgramFate,
    SilentFault, Status, Timing,
};
use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

const UNIT: u32 = 4;
/// Of the tiny profile: the time at which the first unit written at time zero is programmed, and each one after it
/// (lower, lower, upper, upper).
const FIRST: u64 = 4 * 1_285 + 4 * 10_280 + 400_000;
const LOWER: u64 = 4 * 10_280 + 400_000;
const UPPER: u64 = 4 * 10_280 + 1_200_000;

fn tiny(protected: bool) -> Profile {
    let mut profile = Profile::builtin("tiny").unwrap();
    profile.cache.power_loss_protection = protected;
    profile
}

/// A host that has submitted the writes of one whole chunk at time zero.
fn writing(protected: bool) -> Host {
    let mut host = Host::new(&tiny(protected), 4);
    let chunk = host.chunk(0, 0, 0);
    for unit in 0..8 {
        host.write(Time::ZERO, u64::from(unit), chunk, unit * UNIT, UNIT, false);
    }
    host
}

#[test]
fn what_was_not_programmed_is_gone_and_the_chunk_goes_on_there() {
    let mut host = writing(false);
    let chunk = host.chunk(0, 0, 0);
    let cut = Time(FIRST + 2 * LOWER + 1);
    host.poll(cut);
    assert_eq!(host.completions.len(), 4, "two were programmed and made room, two are in the cache");
    let loss = host.device.power_cut(cut, false).unwrap();
    assert_eq!(loss, PowerLoss { programs_lost: 6, ..PowerLoss::default() });
    assert_eq!(host.device.next_due(), None, "commands under way never complete");
    let found = host.descriptor(chunk);
    assert_eq!((found.state, found.write_pointer), (ChunkState::Open, 2 * UNIT));
    for unit in 2..8 {
        host.write(cut, 0, chunk, unit * UNIT, UNIT, false);
    }
    host.completions.clear();
    assert!(host.finish().iter().all(|completion| completion.status == Status::Success));
    for block in 0..32 {
        assert_eq!(host.status(Time(1 << 40), chunk, block), Status::Success);
    }
}

#[test]
fn a_torn_upper_page_takes_its_lower_page_with_it() {
    let mut host = writing(false);
    let chunk = host.chunk(0, 0, 0);
    // Units 0 and 1 are lower pages, 2 and 3 their upper ones. The cut falls into the programming of unit 3.
    let cut = Time(FIRST + LOWER + UPPER + UPPER / 2);
    let loss = host.device.power_cut(cut, true).unwrap();
    assert_eq!(loss, PowerLoss { programs_lost: 4, programs_torn: 1, erases_cut_short: 0 });
    let found = host.descriptor(chunk);
    assert_eq!((found.state, found.write_pointer), (ChunkState::Open, 4 * UNIT), "the torn unit is used up");
    for unit in 4..8 {
        host.write(cut, 0, chunk, unit * UNIT, UNIT, false);
    }
    host.finish();
    for block in 0..32 {
        let lost = [1, 3].contains(&(block / UNIT));
        let expected = if lost { Status::UnrecoveredRead } else { Status::Success };
        assert_eq!(host.status(Time(1 << 40), chunk, block), expected, "block {block}");
    }
}

#[test]
fn a_protected_cache_keeps_all_that_was_acknowledged_and_nothing_else() {
    let mut host = writing(true);
    let chunk = host.chunk(0, 0, 0);
    let cut = Time(FIRST + LOWER / 2);
    host.poll(cut);
    assert_eq!(host.completions.len(), 3);
    host.device.power_cut(cut, true).unwrap();
    let found = host.descriptor(chunk);
    assert_eq!((found.state, found.write_pointer), (ChunkState::Open, 3 * UNIT));
}

#[test]
fn an_interrupted_erase_leaves_nothing_to_read_until_the_next_one() {
    for protected in [true, false] {
        let mut host = Host::new(&tiny(protected), 4);
        let chunk = host.chunk(0, 0, 0);
        let start = host.fill(&[chunk]);
        host.reset(start, 0, chunk);
        let cut = Time(start.0 + 1_000_000);
        let loss = host.device.power_cut(cut, false).unwrap();
        assert_eq!(loss, PowerLoss { erases_cut_short: 1, ..PowerLoss::default() });
        let found = host.descriptor(chunk);
        assert_eq!((found.state, found.write_pointer), (ChunkState::Closed, 32));
        for block in 0..32 {
            assert_eq!(host.status(cut, chunk, block), Status::UnrecoveredRead);
        }
        host.reset(cut, 0, chunk);
        assert_eq!(host.finish()[0].status, Status::Success);
        host.fill(&[chunk]);
        assert_eq!(host.status(Time(1 << 40), chunk, 31), Status::Success);
        assert_eq!(host.device.wear().next(), Some((chunk, 2)));
    }
}

#[test]
fn each_die_stops_at_a_moment_of_its_own_and_not_before_the_power_goes() {
    let mut host = Host::new(&tiny(false), 4);
    let (here, there) = (host.chunk(0, 0, 0), host.chunk(1, 0, 0));
    for unit in 0..4 {
        host.write(Time::ZERO, u64::from(unit), here, unit * UNIT, UNIT, false);
        host.write(Time::ZERO, u64::from(unit), there, unit * UNIT, UNIT, false);
    }
    let (cut, pu) = (Time(FIRST + 1), host.device.geometry().format().pu_of(there));
    let fate = |other: PuId| {
        let until = if other == pu { Time(FIRST + LOWER + 1) } else { Time::ZERO };
        DieFate { until, program: ProgramFate::Unwritten, erase: EraseFate::Lost }
    };
    host.device.power_cut_by_die(cut, fate).unwrap();
    assert_eq!(host.descriptor(here).write_pointer, UNIT, "what was done when the power went is there");
    assert_eq!(host.descriptor(there).write_pointer, 2 * UNIT, "and this die came further");
}

#[test]
fn a_torn_unit_can_be_read_in_part_or_for_a_while() {
    let cut = Time(FIRST + LOWER / 2);
    let fate = |program| move |_| DieFate { until: cut, program, erase: EraseFate::Lost };
    let mut host = writing(false);
    let chunk = host.chunk(0, 0, 0);
    let remains = host.device.power_cut_by_die(cut, fate(ProgramFate::Partly(BlockMask(0b0101_0000)))).unwrap();
    assert_eq!((remains.loss.programs_torn, remains.programs_partly, remains.programs_fading), (1, 1, 0));
    close(&mut host, cut, 2 * UNIT);
    let status = |host: &mut Host, block| host.status(Time(1 << 40), chunk, block);
    assert_eq!([4, 5, 6, 7].map(|block| status(&mut host, block) == Status::Success), [true, false, true, false]);
    let mut host = writing(false);
    let remains = host.device.power_cut_by_die(cut, fate(ProgramFate::Fading { reads: 2 })).unwrap();
    assert_eq!((remains.loss.programs_torn, remains.programs_partly, remains.programs_fading), (1, 0, 1));
    close(&mut host, cut, 2 * UNIT);
    let found = [0, 1, 2, 3].map(|_| status(&mut host, 5));
    assert_eq!(found, [Status::Success, Status::Success, Status::UnrecoveredRead, Status::UnrecoveredRead]);
}

#[test]
fn what_a_cut_undid_is_not_uncovered_by_a_lost_program_where_an_erase_was_lost() {
    let mut host = Host::new(&tiny(false), 4);
    let chunk = host.chunk(0, 0, 0);
    let start = host.fill(&[chunk]);
    host.device.inject_silent_fault(chunk, SilentFault::LostErase);
    host.reset(start, 0, chunk);
    host.finish();
    // Its data would be those of another chunk.
    let start = Time(start.0 + 1_000_000_000);
    let undone = host.ppas(chunk, 0, UNIT);
    for frame in &host.list[..UNIT as usize] {
        if let PayloadMut::Stamp(stamp) = host.frames.payload_mut(*frame) {
            *stamp = Stamp(u64::MAX);
        }
    }
    let command = Command::Write { blocks: Blocks::Vector(&undone), frames: &host.list[..UNIT as usize], fua: false };
    host.device.submit(start, &mut host.frames, 0, command).unwrap();
    host.device.power_cut(start, false).unwrap();
    assert_eq!((host.descriptor(chunk).state, host.descriptor(chunk).write_pointer), (ChunkState::Free, 0));

    host.device.inject_silent_fault(chunk, SilentFault::LostProgram);
    close(&mut host, start, 0);
    assert_eq!(host.device.take_missing().len(), UNIT as usize, "the first unit is not there");
    for block in 0..UNIT {
        host.read(Time(1 << 40), 0, chunk, block, 1);
        assert_eq!(host.finish()[0].status, Status::Success);
        assert_eq!(host.frames.payload(host.list[0]), Payload::Stamp(Stamp(0)), "block {block} is an erased page");
    }
    assert_eq!(host.status(Time(1 << 40), chunk, UNIT), Status::Success);
}

/// Writes the rest of the first chunk, so that all of it can be read.
fn close(host: &mut Host, now: Time, from: u32) {
    let chunk = host.chunk(0, 0, 0);
    for block in (from..32).step_by(UNIT as usize) {
        host.write(now, 0, chunk, block, UNIT, false);
    }
    host.finish();
}

#[test]
fn an_interrupted_erase_leaves_nothing_a_part_or_everything() {
    for (erase, readable) in [(EraseFate::Lost, 0), (EraseFate::Partly(BlockMask(0xF)), 4), (EraseFate::Kept, 32)] {
        let mut host = Host::new(&tiny(true), 4);
        let chunk = host.chunk(0, 0, 0);
        let start = host.fill(&[chunk]);
        host.reset(start, 0, chunk);
        let cut = Time(start.0 + 1_000_000);
        let fate = DieFate { until: cut, program: ProgramFate::Unwritten, erase };
        let remains = host.device.power_cut_by_die(cut, |_| fate).unwrap();
        assert_eq!(remains.loss, PowerLoss { erases_cut_short: 1, ..PowerLoss::default() });
        let found = host.descriptor(chunk);
        assert_eq!((found.state, found.write_pointer), (ChunkState::Closed, 32));
        let is_readable = |block: &u32| host.status(cut, chunk, *block) == Status::Success;
        assert_eq!((0..32).filter(is_readable).count(), readable, "{erase:?}");
        host.reset(cut, 0, chunk);
        host.finish();
        assert_eq!(host.device.wear().next(), Some((chunk, 2)), "both erases wear it");
    }
}

#[test]
fn a_reset_that_the_die_never_began_leaves_the_old_data() {
    let mut host = Host::new(&tiny(false), 4);
    let (chunk, other) = (host.chunk(0, 0, 0), host.chunk(0, 0, 1));
    let start = host.fill(&[chunk, other]);
    host.reset(start, 0, other);
    host.reset(start, 1, chunk);
    assert_eq!(host.descriptor(chunk).state, ChunkState::Free);
    host.device.power_cut(Time(start.0 + 1_000_000), false).unwrap();
    assert_eq!(host.descriptor(chunk).state, ChunkState::Closed);
    assert_eq!(host.device.wear().next(), Some((chunk, 0)));
    for block in 0..32 {
        assert_eq!(host.status(Time(1 << 40), chunk, block), Status::Success);
        assert_eq!(host.status(Time(1 << 40), other, block), Status::UnrecoveredRead);
    }
}

#[test]
fn a_cut_that_finds_nothing_under_way_changes_nothing() {
    let mut host = Host::new(&tiny(false), 4);
    let chunk = host.chunk(0, 0, 0);
    let quiet = host.fill(&[chunk]);
    assert_eq!(host.device.power_cut(quiet, true).unwrap(), PowerLoss::default());
    for block in 0..32 {
        assert_eq!(host.status(quiet, chunk, block), Status::Success);
    }
}

#[test]
fn what_a_cut_left_is_what_the_drive_file_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    let mut host = Host::with(EmulatedDevice::create(&path, &tiny(false), 4, Timing::Modelled, 1).unwrap());
    let (torn, erased) = (host.chunk(0, 0, 0), host.chunk(1, 0, 0));
    let start = host.fill(&[erased]);
    for unit in 0..8 {
        host.write(start, 0, torn, unit * UNIT, UNIT, false);
    }
    host.reset(start, 0, erased);
    host.device.power_cut(Time(start.0 + FIRST + LOWER + UPPER / 2), true).unwrap();
    let chunks = host.chunks.clone();
    let before: Vec<_> = chunks.iter().map(|chunk| host.descriptor(*chunk)).collect();
    drop(host);
    let mut host = Host::with(EmulatedDevice::open(&path, Timing::Modelled).unwrap());
    let after: Vec<_> = chunks.iter().map(|chunk| host.descriptor(*chunk)).collect();
    assert_eq!(before, after);
    assert_eq!(host.descriptor(torn).write_pointer, 3 * UNIT);
    assert_eq!(host.status(Time::ZERO, erased, 0), Status::UnrecoveredRead);
    // Unit 2, the upper page, was torn, and took unit 0 with it; unit 1 is fine.
    for unit in 3..8 {
        host.write(Time::ZERO, 0, torn, unit * UNIT, UNIT, false);
    }
    host.finish();
    for (unit, status) in [(0, Status::UnrecoveredRead), (1, Status::Success), (2, Status::UnrecoveredRead)] {
        assert_eq!(host.status(Time(1 << 40), torn, unit * UNIT), status, "unit {unit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random writes and resets on all dies, the power cut at a random moment, several times on one device. What the
    /// contract calls durable is there; everything else is there, unreadable or never written, but never wrong.
    #[test]
    fn a_durable_write_survives_every_cut(
        protected in any::<bool>(),
        rounds in proptest::collection::vec(
            (proptest::collection::vec((0..8_usize, 1..4_u32, 0..400_000_u64, any::<bool>()), 1..60), 0..8_000_000_u64, any::<bool>()),
            1..4,
        ),
    ) {
        let mut host = Host::new(&tiny(protected), 2);
        let hidden = host.device.geometry().mw_cunits;
        let mut now = 0;
        // Blocks torn in an earlier round, or hidden then.
        let mut lost = FxHashSet::default();
        for (steps, late, torn) in rounds {
            // What each tag wrote, and the write pointer of each chunk that is sure to survive.
            let mut writes = FxHashMap::default();
            let mut resets = Vec::new();
            for (tag, (chunk, units, passes, fua)) in (0..).zip(steps) {
                now += passes;
                let chunk = host.chunks[chunk];
                let found = host.descriptor(chunk);
                match found.state {
                    ChunkState::Closed => {
                        resets.push(chunk);
                        host.reset(Time(now), tag, chunk);
                    }
                    ChunkState::Open | ChunkState::Free => {
                        let blocks = (units * UNIT).min(found.blocks - found.write_pointer);
                        writes.insert(tag, (chunk, found.write_pointer + blocks, fua));
                        host.write(Time(now), tag, chunk, found.write_pointer, blocks, fua);
                    }
                    ChunkState::Offline => unreachable!("nothing fails on this device"),
                }
            }
            now += late;
            host.completions.clear();
            host.poll(Time(now));
            let acknowledged = std::mem::take(&mut host.completions);
            host.device.power_cut(Time(now), torn).unwrap();
            for completion in acknowledged {
                prop_assert_eq!(completion.status, Status::Success);
                let Some((chunk, end, fua)) = writes.get(&completion.tag) else { continue };
                if resets.contains(chunk) || !(protected || *fua) {
                    continue;
                }
                let found = host.descriptor(*chunk);
                prop_assert!(found.write_pointer >= *end, "{:?} after a durable write up to {}", found, end);
                let safe = if protected || *end == found.blocks { *end } else { end.saturating_sub(hidden) };
                for block in 0..safe {
                    let hidden_now = found.state == ChunkState::Open && block + hidden >= found.write_pointer;
                    let status = host.status(Time(now), *chunk, block);
                    let expected = if hidden_now { Status::DeallocatedOrUnwritten } else { Status::Success };
                    let was_lost = status == Status::UnrecoveredRead && lost.contains(&(*chunk, block));
                    prop_assert!(status == expected || was_lost, "block {} of {:?}: {:?}", block, found, status);
                }
            }
            lost.clear();
            for chunk in host.chunks.clone() {
                let found = host.descriptor(chunk);
                for block in 0..found.blocks {
                    // What is read well is what was written: `status` looks.
                    let status = host.status(Time(now), chunk, block);
                    prop_assert!(block < found.write_pointer || status == Status::DeallocatedOrUnwritten);
                    prop_assert!(!protected || status != Status::UnrecoveredRead || found.state == ChunkState::Closed);
                    let hidden_now = found.state == ChunkState::Open && block + hidden >= found.write_pointer;
                    if status == Status::UnrecoveredRead || (hidden_now && block < found.write_pointer) {
                        // Whether a hidden one is lost shows later.
                        lost.insert((chunk, block));
                    }
                }
            }
            now += 100_000_000;
        }
    }
}
