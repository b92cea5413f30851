//! Chance: as often as the profile says, and always the same for a seed.

use crate::common::Host;
use openftl_core::Time;
use openftl_media::{ChunkState, EmulatedDevice, Profile, ProgramFailure, Status, Store, Timing};

fn device(profile: &Profile, chunks_per_pu: u32, seed: u64) -> EmulatedDevice {
    EmulatedDevice::new(profile.clone(), chunks_per_pu, Store::Stamps, Timing::Instant, seed).unwrap()
}

fn tiny() -> Profile {
    Profile::builtin("tiny").unwrap()
}

fn offline(host: &mut Host) -> Vec<u32> {
    let chunks = host.chunks.clone();
    chunks
        .into_iter()
        .filter(|chunk| host.descriptor(*chunk).state == ChunkState::Offline)
        .map(|chunk| chunk.0)
        .collect()
}

#[test]
fn as_many_chunks_are_bad_from_the_factory_as_the_profile_says() {
    let mut profile = tiny();
    profile.faults.factory_bad = "5%".parse().unwrap();
    let mut first = Host::with(device(&profile, 100, 1));
    let bad = offline(&mut first);
    assert_eq!(bad.len(), 20);
    assert_eq!(offline(&mut Host::with(device(&profile, 100, 1))), bad, "the same seed, the same chunks");
    assert_ne!(offline(&mut Host::with(device(&profile, 100, 2))), bad);
}

/// Fills all chunks; how many units failed, and how many chunks were closed early.
fn failures(profile: &Profile, resets: u32, seed: u64) -> (u64, usize) {
    let mut host = Host::with(device(profile, 250, seed));
    for chunk in host.chunks.clone() {
        host.device.set_wear(chunk, resets).unwrap();
        loop {
            let found = host.descriptor(chunk);
            if found.state == ChunkState::Closed {
                break;
            }
            host.write(Time::ZERO, 0, chunk, found.write_pointer, 4, false);
        }
        host.finish();
    }
    let early = host.chunks.clone().into_iter().filter(|chunk| host.descriptor(*chunk).write_pointer < 32).count();
    (host.device.statistics().program_failures, early)
}

#[test]
fn programs_fail_as_often_as_the_profile_says_and_more_often_with_wear() {
    let mut profile = tiny();
    profile.faults.program_fail = 0.01;
    profile.faults.wear_factor = 10.0;
    // 8000 units: 80 failures expected, and not quite 800 at the end of life because chunks are closed early.
    let (new, early) = failures(&profile, 0, 3);
    assert!((50..110).contains(&new), "{new}");
    assert!((new / 4..new).contains(&(early as u64)), "{early} of {new} closed their chunk");
    let (worn, _) = failures(&profile, profile.chip.endurance, 3);
    assert!((450..850).contains(&worn), "{worn}");
    assert_eq!(failures(&profile, 0, 3), (new, early), "the same seed, the same failures");
    assert_eq!(failures(&tiny(), 0, 3), (0, 0));
}

#[test]
fn a_lost_block_stays_lost_until_its_chunk_is_reset() {
    let mut profile = tiny();
    profile.faults.read_fail = 0.05;
    let mut host = Host::with(device(&profile, 8, 9));
    let chunk = host.chunk(0, 0, 0);
    host.fill(&[chunk]);
    let lost: Vec<u32> =
        (0..32).filter(|block| host.status(Time::ZERO, chunk, *block) == Status::UnrecoveredRead).collect();
    assert!(!lost.is_empty() && lost.len() < 10, "{lost:?}");
    for block in &lost {
        assert_eq!(host.status(Time::ZERO, chunk, *block), Status::UnrecoveredRead);
    }
    assert_eq!(host.device.statistics().read_failures, 2 * lost.len() as u64);
}

#[test]
fn a_read_that_is_to_be_tried_again_fails_once_as_often_as_the_profile_says() {
    let mut profile = tiny();
    profile.faults.read_retry = 0.05;
    let mut host = Host::with(device(&profile, 60, 9));
    let mut failed = 0;
    for chunk in host.chunks.clone() {
        host.fill(&[chunk]);
        for block in 0..32 {
            if host.status(Time::ZERO, chunk, block) == Status::UnrecoveredRead {
                failed += 1;
                assert_eq!(host.status(Time::ZERO, chunk, block), Status::Success, "block {block} of {chunk:?}");
            }
        }
    }
    // 7680 blocks: 384 expected.
    assert!((300..470).contains(&failed), "{failed}");
    assert_eq!(host.device.statistics().read_failures, failed);
}

#[test]
fn a_failed_erase_takes_the_chunk_offline() {
    let mut profile = tiny();
    profile.faults.erase_fail = 1.0;
    let mut host = Host::with(device(&profile, 8, 9));
    let chunk = host.chunk(0, 0, 0);
    host.fill(&[chunk]);
    host.reset(Time::ZERO, 0, chunk);
    assert_eq!(host.finish()[0].status, Status::OfflineChunk);
    assert_eq!(host.descriptor(chunk).state, ChunkState::Offline);
    assert_eq!(host.device.statistics().erase_failures, 1);
}

#[test]
fn a_corrupted_block_is_read_without_complaint() {
    let mut host = Host::with(device(&tiny(), 8, 9));
    let chunk = host.chunk(0, 0, 0);
    host.fill(&[chunk]);
    let ppa = host.ppas(chunk, 5, 1)[0];
    host.device.corrupt(ppa).unwrap();
    host.read(Time::ZERO, 0, chunk, 5, 1);
    assert_eq!(host.finish()[0].status, Status::Success);
    let found = host.frames.payload(host.list[0]);
    assert_eq!(found, openftl_core::Payload::Stamp(openftl_core::Stamp((ppa.0 + 1) ^ 1)));
}

#[test]
fn a_reset_heals_a_chunk_of_any_number_for_good() {
    let mut host = Host::with(device(&tiny(), 8, 9));
    for number in 0..3 {
        let chunk = host.chunk(0, 0, number);
        host.fill(&[chunk]);
        let ppas = host.ppas(chunk, 0, 32);
        host.device.inject_read_failure(ppas[3]).unwrap();
        host.reset(Time::ZERO, 0, chunk);
        host.finish();
        host.fill(&[chunk]);
        host.device.inject_read_failure(ppas[5]).unwrap();
        assert_eq!(host.status(Time::ZERO, chunk, 3), Status::Success);
        assert_eq!(host.status(Time::ZERO, chunk, 5), Status::UnrecoveredRead);
    }
}

#[test]
fn the_next_program_on_the_device_fails_once_wherever_it_is() {
    let mut host = Host::with(device(&tiny(), 4, 1));
    let (first, second) = (host.chunk(1, 0, 2), host.chunk(0, 1, 0));
    host.device.inject_next_program_failure(ProgramFailure::ChunkClosed);
    host.write(Time::ZERO, 0, first, 0, 8, false);
    host.write(Time::ZERO, 1, second, 0, 8, false);
    let statuses: Vec<Status> = host.finish().iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::WriteFailedChunkClosedEarly, Status::Success]);
    assert_eq!((host.descriptor(first).state, host.descriptor(first).write_pointer), (ChunkState::Closed, 0));
}
