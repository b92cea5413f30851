//! What a simulator asks of a device: copies that go their own ways, and the moments between which a power cut leaves the
//! same.

use crate::common::Host;
use openftl_core::{FrameForm, Frames, Time};
use openftl_media::{EmulatedDevice, Media, Profile, Status, Store, Timing};

const UNIT: u32 = 4;

fn tiny(protected: bool) -> Profile {
    let mut profile = Profile::builtin("tiny").unwrap();
    profile.cache.power_loss_protection = protected;
    profile
}

/// A device in the middle of its work: two dies program, one is about to erase.
fn at_work(protected: bool) -> Host {
    let mut host = Host::new(&tiny(protected), 4);
    let (one, two, old) = (host.chunk(0, 0, 0), host.chunk(1, 0, 0), host.chunk(0, 1, 0));
    let start = host.fill(&[old]);
    host.reset(start, 0, old);
    for unit in 0..6 {
        host.write(start, u64::from(unit), one, unit * UNIT, UNIT, false);
        host.write(start, u64::from(unit), two, unit * UNIT, UNIT, false);
    }
    host
}

fn fork(host: &Host) -> EmulatedDevice {
    host.device.fork().unwrap().expect("a store in memory")
}

#[test]
fn a_fork_and_its_original_go_their_own_ways() {
    for store in [Store::Ram, Store::Stamps] {
        let profile = Profile::builtin("tiny").unwrap();
        let mut host = Host::with(EmulatedDevice::new(profile, 4, store, Timing::Modelled, 1).unwrap());
        let (chunk, other) = (host.chunk(0, 0, 0), host.chunk(0, 0, 1));
        let quiet = host.fill(&[chunk]);
        let fingerprint = host.device.fingerprint();
        let copy = fork(&host);
        assert_eq!(copy.fingerprint(), fingerprint);
        // The original loses the chunk and writes another one; the copy knows nothing of it.
        host.reset(quiet, 0, chunk);
        let later = host.fill(&[chunk, other]);
        assert_ne!(host.device.fingerprint(), fingerprint);
        let mut copied = Host::with(copy);
        assert_eq!(copied.device.fingerprint(), fingerprint);
        for block in 0..32 {
            assert_eq!(copied.status(quiet, chunk, block), Status::Success, "{block}");
            assert_eq!(host.status(later, other, block), Status::Success, "{block}");
        }
    }
}

#[test]
fn between_two_instants_a_power_cut_always_leaves_the_same() {
    for protected in [false, true] {
        let host = at_work(protected);
        let instants = host.device.instants();
        assert!(instants.len() > 15 && instants.is_sorted(), "{instants:?}");
        let left = |at: Time, torn: bool| {
            let mut device = fork(&host);
            device.power_cut(at, torn).unwrap();
            device.fingerprint()
        };
        let (mut differ, mut tear) = (0, 0);
        for pair in instants.windows(2) {
            for torn in [false, true] {
                let expected = left(pair[0], torn);
                for part in 1..4 {
                    let at = Time(pair[0].0 + (pair[1].0 - 1 - pair[0].0) * part / 3);
                    assert_eq!(left(at, torn), expected, "from {} to {}, torn {torn}", pair[0].0, pair[1].0);
                }
            }
            differ += usize::from(left(pair[0], false) != left(pair[1], false));
            let tears = left(pair[0], true) != left(pair[0], false);
            assert!(host.device.would_tear(pair[0]) || !tears, "at {}", pair[0].0);
            tear += usize::from(tears);
        }
        assert!(differ > 5, "instants make a difference: {differ} of {}", instants.len());
        assert_eq!(tear > 5, !protected, "{tear}");
    }
}

#[test]
fn after_the_last_instant_nothing_is_lost() {
    let host = at_work(false);
    let last = *host.device.instants().last().unwrap();
    let mut device = fork(&host);
    device.power_cut(last, true).unwrap();
    let mut host = Host::with(device);
    let chunk = host.chunk(0, 0, 0);
    assert_eq!(host.descriptor(chunk).write_pointer, 6 * UNIT);
    assert_eq!(host.device.instants(), [last]);
}

#[test]
fn a_look_finds_what_is_stored_also_where_nothing_may_be_read_yet() {
    let mut host = at_work(false);
    let chunk = host.chunk(0, 0, 0);
    let format = host.device.geometry().format();
    let mut frames = Frames::new(1, 0, host.device.geometry().oob_bytes as usize);
    let frame = frames.acquire(FrameForm::Bytes).unwrap();
    assert!(host.device.look(format.ppa(chunk, 23), &mut frames, frame), "written, and behind the readable blocks");
    assert!(!host.device.look(format.ppa(chunk, 24), &mut frames, frame), "not written");
    host.device.inject_read_failure(format.ppa(chunk, 3)).unwrap();
    assert!(!host.device.look(format.ppa(chunk, 3), &mut frames, frame), "lost");
}
