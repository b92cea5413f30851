//! A drive that runs out of room makes some, and never sleeps on a request that waits for it.

use openftl_core::units::Share;
use openftl_core::{FrameForm, Time, VirtualClock};
use openftl_ftl::block::BlockFtl;
use openftl_ftl::{BlockTarget, Config, Durability, Request, chunks_per_pu};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Requests by the batch, everything polled for in between: the drive may not go to sleep on any.
#[test]
fn a_drive_that_runs_full_under_batches_of_requests_never_goes_to_sleep() {
    let profile = Profile::builtin("cosmos").unwrap();
    let capacity = 65_536;
    let config =
        Config { capacity_blocks: capacity, payload: FrameForm::Stamp, host_frames: 2_000, ..Config::default() };
    let shape = profile.geometry(profile.chunks_per_pu).unwrap();
    let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
    let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Instant, 1).unwrap();
    let mut ftl = BlockFtl::format(device, config, &mut VirtualClock::default()).unwrap();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut done = Vec::new();
    let (mut submitted, mut ended) = (0, 0);
    while submitted < 10 * capacity {
        let Some(frame) = ftl.frames().acquire(FrameForm::Stamp) else {
            ftl.poll(Time::ZERO, &mut done);
            ended += done.drain(..).filter(|done| done.result.is_ok()).count() as u64;
            let frames = ftl.frames().available(FrameForm::Stamp);
            assert!(frames > 0 || ftl.next_due().is_some(), "asleep with no frame left after {submitted} writes");
            continue;
        };
        let first = chance.next_u64() % capacity;
        ftl.submit(Time::ZERO, 0, Request::Write { first, frames: &[frame], durability: Durability::Volatile })
            .unwrap();
        submitted += 1;
        if submitted % 32 == 0 {
            ftl.poll(Time::ZERO, &mut done);
            ended += done.drain(..).filter(|done| done.result.is_ok()).count() as u64;
        }
    }
    ftl.submit(Time::ZERO, 1, Request::Flush).unwrap();
    while !done.iter().any(|done| done.tag == 1) {
        ended += done.drain(..).filter(|done| done.result.is_ok()).count() as u64;
        assert!(ftl.next_due().is_some(), "asleep with a flush waiting");
        ftl.poll(Time::ZERO, &mut done);
    }
    ended += done.iter().filter(|done| done.tag == 0 && done.result.is_ok()).count() as u64;
    assert_eq!(ended, submitted);
}
