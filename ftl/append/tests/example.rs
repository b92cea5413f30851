//! A log as its host sees it.

use openftl_append::LogFtl;
use openftl_blocks::Ftl;
use openftl_core::{Clock, Frame, FrameForm, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Access, Config, OpenError, Target};

type Device = EmulatedDevice;

fn device(chunks: u32) -> Device {
    let mut profile = Profile::builtin("tiny").expect("a builtin profile");
    // What it holds back is written again at each opening.
    profile.cache.blocks_per_pu = profile.program_blocks() * 4;
    EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, 1).unwrap()
}

fn config() -> Config {
    Config { checkpoint_log_blocks: Some(8), ..Config::default() }
}

/// Waits until as many requests have ended, all of them well.
fn wait(log: &mut LogFtl<Device>, clock: &mut VirtualClock, count: usize) {
    let mut done = Vec::new();
    log.poll(clock.now(), &mut done);
    while done.len() < count {
        clock.wait_until(log.next_due().expect("something is under way"));
        log.poll(clock.now(), &mut done);
    }
    assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
}

fn frame(log: &mut LogFtl<Device>, text: &str) -> Frame {
    let frame = log.frames_mut().acquire(FrameForm::Bytes).unwrap();
    log.frames_mut().zero(frame);
    log.frames_mut().bytes_mut(frame)[..text.len()].copy_from_slice(text.as_bytes());
    frame
}

#[test]
fn what_is_appended_is_read_and_what_is_flushed_stays() {
    let mut clock = VirtualClock::default();
    let mut log = LogFtl::format(device(24), config(), (), &mut clock).unwrap();
    for number in 0..100 {
        let block = frame(&mut log, &format!("block {number}"));
        assert_eq!(log.append(&[block]).unwrap(), number);
    }
    log.flush(1);
    wait(&mut log, &mut clock, 1);
    let after = frame(&mut log, "never flushed");
    assert_eq!(log.append(&[after]).unwrap(), 100);

    // Whatever was not flushed is gone with the power.
    let media = log.crash();
    let mut log = LogFtl::open_with(media, config(), (), Access::ReadWrite, &mut clock).unwrap();
    let frames = vec![frame(&mut log, ""), frame(&mut log, "")];
    log.read(2, 98, &frames).unwrap();
    wait(&mut log, &mut clock, 1);
    assert!(log.frames_mut().bytes(frames[1]).starts_with(b"block 99"));
    let refused = log.read(3, 99, &frames).unwrap_err();
    assert_eq!(refused.to_string(), "blocks 99..101 are not on this drive of 100 blocks");

    // After a stop all is there, and other FTLs leave the drive alone.
    let media = log.close(&mut clock).unwrap();
    let Err(OpenError::OtherKind { found: "newer", wanted: "block" }) =
        openftl_blocks::BlockFtl::open(media, config(), &mut clock).map(drop)
    else {
        panic!("it is no block drive");
    };
}

/// The second has more chunks than an index names.
#[test]
fn a_full_log_says_so_and_can_be_read() {
    for chunks in [24, 300] {
        fill(chunks);
    }
}

fn fill(chunks: u32) {
    let mut clock = VirtualClock::default();
    let mut log = LogFtl::format(device(chunks), config(), (), &mut clock).unwrap();
    let mut appended = 0;
    let refused = loop {
        let Some(block) = log.frames_mut().acquire(FrameForm::Bytes) else {
            wait(&mut log, &mut clock, 0);
            clock.wait_until(log.next_due().expect("units are under way"));
            continue;
        };
        log.frames_mut().zero(block);
        match log.append(&[block]) {
            Ok(number) => appended = number + 1,
            Err(error) => break error,
        }
        log.poll(clock.now(), &mut Vec::new());
    };
    assert_eq!(
        refused.to_string(),
        format!("blocks {appended}..{} are not on this drive of {appended} blocks", appended + 1)
    );
    assert!(appended > 100);
    log.flush(1);
    wait(&mut log, &mut clock, 1);
    let media = log.close(&mut clock).unwrap();
    // What is pending is written again at each opening.
    let mut media = media;
    for _ in 0..3 {
        let mut log = LogFtl::open_with(media, config(), (), Access::ReadWrite, &mut clock).unwrap();
        let block = frame(&mut log, "");
        log.read(2, appended - 1, &[block]).unwrap();
        wait(&mut log, &mut clock, 1);
        log.frames_mut().release(block);
        media = log.close(&mut clock).unwrap();
    }
}
