//! A drive that runs out of room makes some, and never sleeps on a request that waits for it.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Time, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{BlockTarget, Config, Durability, Handle, Request, Target, chunks_per_pu};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Keeps a drive of `capacity` blocks full under random writes, `batch` requests between two polls.
fn overwrite(profile: &str, capacity: u64, over_provisioning: u64, batch: u64, seed: u64) {
    let name = format!("{profile}, {capacity} blocks, {over_provisioning} %, {batch} a batch, seed {seed}");
    let profile = Profile::builtin(profile).unwrap();
    let config = Config {
        capacity_blocks: capacity,
        over_provisioning: Share::percent(over_provisioning as u32),
        payload: FrameForm::Stamp,
        host_frames: 2_000,
        ..Config::default()
    };
    let shape = profile.geometry(profile.chunks_per_pu).unwrap();
    let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
    let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Instant, seed).unwrap();
    let mut ftl = BlockFtl::format(device, config, &mut VirtualClock::default()).unwrap();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut done = Vec::new();
    let (mut submitted, mut ended, mut flushes) = (0, 0, 0);
    // Now and then everything comes to rest.
    let writes_between_flushes = [10, 100, 1_000, 10_000][(seed / 7 % 4) as usize];
    let mut poll = |ftl: &mut BlockFtl<EmulatedDevice>| {
        ftl.poll(Time::ZERO, &mut done);
        done.drain(..).filter(|done| done.result.is_ok()).count() as u64
    };
    while submitted < 6 * capacity {
        let Some(frame) = ftl.frames_mut().acquire(FrameForm::Stamp) else {
            ended += poll(&mut ftl);
            let frames = ftl.frames_mut().available(FrameForm::Stamp);
            assert!(
                frames > 0 || ftl.next_due().is_some(),
                "{name}: asleep with no frame left after {submitted} writes"
            );
            continue;
        };
        let first = chance.next_u64() % capacity;
        ftl.submit(
            Time::ZERO,
            0,
            Request::Write { first, frames: &[frame], durability: Durability::Volatile, handle: Handle::NONE },
        )
        .unwrap();
        submitted += 1;
        if submitted % batch == 0 {
            ended += poll(&mut ftl);
        }
        if chance.next_u64() % writes_between_flushes == 0 {
            ftl.submit(Time::ZERO, 1, Request::Flush).unwrap();
            flushes += 1;
            while ended < submitted + flushes {
                assert!(ftl.next_due().is_some(), "{name}: asleep with a flush waiting");
                ended += poll(&mut ftl);
            }
        }
    }
    ftl.submit(Time::ZERO, 1, Request::Flush).unwrap();
    while ended < submitted + flushes + 1 {
        assert!(ftl.next_due().is_some(), "{name}: asleep with a flush waiting");
        ended += poll(&mut ftl);
    }
}

#[test]
fn a_drive_that_runs_full_never_goes_to_sleep() {
    for batch in [1, 2, 3, 7, 32] {
        for seed in 0..4 {
            overwrite("tiny", 700 + 100 * seed, 7, batch, 7 * seed);
            overwrite("tiny", 2_000, 5, batch, seed);
        }
        overwrite("cosmos", 20_000, 5, batch, 1);
    }
    overwrite("cosmos", 65_536, 10, 32, 21);
}
