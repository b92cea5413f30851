//! `openftl check --repair` on drives whose metadata was damaged: what it makes good, what it says of the rest, and
//! its exit codes.

use crate::drive::{Drive, run_openftl};
use crate::program::Ended;
use openftl_blocks::BlockFtl;
use openftl_core::{ChunkId, Ppa, VirtualClock};
use openftl_media::{EmulatedDevice, Media, Timing};
use openftl_parts::{Access, Config, Superblock};

/// A drive with something in it, stopped cleanly.
fn written() -> Drive {
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    for number in 0..64u8 {
        client.write(u64::from(number) * 65_536, &[number; 65_536]).unwrap();
    }
    server.stop();
    drive
}

/// Turns a bit in each of the blocks that `places` chooses.
fn damage(drive: &Drive, places: impl FnOnce(&BlockFtl<EmulatedDevice>) -> Vec<Ppa>) {
    let device = EmulatedDevice::open(drive.file().as_ref(), Timing::Instant).unwrap();
    let mut clock = VirtualClock::default();
    let mut ftl = BlockFtl::open_with(device, Config::default(), Access::Inspect, &mut clock).unwrap();
    for ppa in places(&ftl) {
        ftl.media_mut().corrupt(ppa).unwrap();
    }
}

/// The first block of a copy of the checkpoint.
fn checkpoint_block(ftl: &BlockFtl<EmulatedDevice>, copy: usize) -> Ppa {
    let Superblock { checkpoint, .. } = ftl.superblock();
    let extent = checkpoint.copies[copy][0];
    ftl.media().geometry().format().ppa(ChunkId(extent.chunk), extent.first)
}

fn check(drive: &Drive, flags: &[&str]) -> Ended {
    run_openftl([&["check", drive.file()], flags].concat())
}

fn expect_data(drive: &Drive) {
    let server = drive.serve();
    let mut client = server.client();
    for number in 0..64u8 {
        assert_eq!(client.read(u64::from(number) * 65_536, 65_536).unwrap(), [number; 65_536], "write {number}");
    }
    server.stop();
}

#[test]
fn a_sound_drive_has_nothing_to_repair() {
    let drive = written();
    check(&drive, &["--repair"]).succeeded().printing(&["nothing to repair", "sound"]);
    expect_data(&drive);
}

#[test]
fn a_copy_that_is_lost_is_found_by_check_and_written_again_by_repair() {
    let drive = written();
    damage(&drive, |ftl| vec![checkpoint_block(ftl, 1)]);
    check(&drive, &[]).failed().saying(&["check", "--repair"]);
    check(&drive, &["--repair"]).succeeded().printing(&["copy 1 lacks 1 of", "written anew"]);
    check(&drive, &[]).succeeded();
    expect_data(&drive);
}

#[test]
fn a_lost_checkpoint_is_refused_and_rebuilt() {
    let drive = written();
    damage(&drive, |ftl| vec![checkpoint_block(ftl, 0), checkpoint_block(ftl, 1)]);
    drive.refuses_to_serve(&[]).saying(&["checkpoint", "both copies", "--repair"]);
    check(&drive, &[]).failed().saying(&["--repair"]);
    let repaired = check(&drive, &["--repair", "--json"]).succeeded();
    let report: serde_json::Value = serde_json::from_str(&repaired.stdout).unwrap();
    assert_eq!(report["sound"], true, "{report}");
    assert_eq!(report["rebuilt"]["blocks_rebuilt"], 64 * 16, "{report}");
    assert_eq!(report["rebuilt"]["blocks_lost"], 0, "{report}");
    check(&drive, &[]).succeeded();
    expect_data(&drive);
}

#[test]
fn lost_data_are_named_and_the_exit_code_says_so() {
    let drive = written();
    damage(&drive, |ftl| {
        vec![checkpoint_block(ftl, 0), checkpoint_block(ftl, 1), ftl.place_on_media(33).expect("it is written")]
    });
    let ended = check(&drive, &["--repair"]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    ended.saying(&["unsound", "overwritten or trimmed"]).printing(&["logical block 33", "1 are lost"]);
    let server = drive.serve();
    let mut client = server.client();
    assert!(client.read(33 * 4096, 4096).is_err());
    client.write(33 * 4096, &[2; 4096]).unwrap();
    server.stop();
    check(&drive, &[]).succeeded();
    expect_data(&drive);
}
