//! `openftl check --repair` on drives whose metadata was damaged: what it makes good, what it says of the rest, and
//! its exit codes.

use crate::drive::{Drive, run_openftl};
use crate::program::Ended;
use openftl_blocks::BlockFtl;
use openftl_core::{ChunkId, Ppa, VirtualClock};
use openftl_media::{EmulatedDevice, Media, Timing};
use openftl_pages::{Ftl, PageFtl};
use openftl_parts::{Access, Config, Superblock};
use openftl_values::ValueFtl;
use std::path::Path;

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

/// A drive in `folder`, of this kind, with its description.
fn described(folder: &Path, kind: &str) -> String {
    let disk = folder.join("drive.oftl").to_str().unwrap().to_owned();
    let description = folder.join("drive.toml");
    let text = format!(
        "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\nstore = \"file\"\npath = \"drive.oftl\"\ntiming = \"instant\"\n[ftl]\nkind = \"{kind}\"\n"
    );
    std::fs::write(&description, text).unwrap();
    run_openftl(["create", &disk, "--drive", description.to_str().unwrap()]).succeeded();
    disk
}

/// Turns a bit in the anchor of a store of pages, whatever it is for.
fn lose_anchor<F: Ftl<Media = EmulatedDevice>>(disk: &str) {
    let device = EmulatedDevice::open(disk.as_ref(), Timing::Instant).unwrap();
    let config = Config { host_frames: 4096, ..Config::default() };
    let ftl = F::open_with(device, config, F::Asked::default(), Access::Inspect, &mut VirtualClock::default()).unwrap();
    let anchor = ftl.block().place_on_media(0).expect("a store has an anchor");
    ftl.crash().corrupt(anchor).unwrap();
}

#[test]
fn an_index_of_pages_that_is_lost_is_named_by_check_and_rebuilt_from_headers() {
    let folder = tempfile::tempdir().unwrap();
    let disk = described(folder.path(), "pages");
    for lpid in ["7", "8", "9"] {
        let bytes = folder.path().join(lpid);
        std::fs::write(&bytes, lpid.repeat(1000)).unwrap();
        let page = format!("{lpid}={}", bytes.display());
        run_openftl(["pages", "put", "--drive", &disk, &page]).succeeded();
    }
    lose_anchor::<PageFtl<EmulatedDevice>>(&disk);
    run_openftl(["pages", "list", "--drive", &disk]).failed().saying(&["area of the store", "check --repair"]);
    run_openftl(["check", &disk]).failed().saying(&["area of the store", "check --repair"]);
    let printed = ["The index of pages was rebuilt: ", " 0 are lost", "✓ sound", "3 pages that were read and verified"];
    run_openftl(["check", &disk, "--repair"]).succeeded().printing(&printed);
    run_openftl(["check", &disk]).succeeded();
    let page = run_openftl(["pages", "get", "--drive", &disk, "8"]).succeeded();
    assert_eq!(page.stdout, "8".repeat(1000));
    let inspected = run_openftl(["inspect", &disk]).succeeded();
    inspected.printing(&["3 pages", "their headers 96 B", "slack "]);
}

#[test]
fn keys_of_a_drive_whose_index_is_lost_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = described(folder.path(), "values");
    for key in ["one", "two", "three"] {
        run_openftl(["kv", "put", "--drive", &disk, key, "a value"]).succeeded();
    }
    run_openftl(["kv", "del", "--drive", &disk, "two"]).succeeded();
    lose_anchor::<ValueFtl<EmulatedDevice>>(&disk);
    run_openftl(["check", &disk]).failed().saying(&["--repair"]);
    let repaired = run_openftl(["check", &disk, "--repair", "--json"]).succeeded();
    let report: serde_json::Value = serde_json::from_str(&repaired.stdout).unwrap();
    let keys = report["rebuilt"]["keys"].as_u64().unwrap();
    assert!(report["sound"] == true && (2..=3).contains(&keys), "{report}");
    let listed = run_openftl(["kv", "list", "--drive", &disk]).succeeded();
    listed.printing(&["one", "three"]);
}
