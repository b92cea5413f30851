//! What a served drive's file survives: whether a host's flush reaches the disk is up to `--durability`.

use crate::drive::{Drive, openftl, run_openftl};
use crate::pattern::random_bytes;
use crate::program::run;

/// Flushes of the device for `flushes` writes that are flushed each and as many that carry FUA.
fn media_flushes(drive: &Drive, flags: &[&str], flushes: u64) -> u64 {
    let server = drive.serve_with(&[&["--timing", "instant"], flags].concat());
    let mut client = server.client();
    let before = drive.ask(&["stats"])["statistics"]["media_flushes"].as_u64().expect("a count");
    for number in 0..flushes {
        client.write(number << 20, &random_bytes(number, 8192)).unwrap();
        client.flush().unwrap();
    }
    let after = drive.ask(&["stats"])["statistics"]["media_flushes"].as_u64().expect("a count");
    server.stop();
    after - before
}

#[test]
fn a_flush_reaches_the_disk_unless_the_drive_is_to_survive_its_process_alone() {
    let drive = Drive::create();
    assert_eq!(media_flushes(&drive, &[], 8), 8, "the default");
    assert_eq!(media_flushes(&drive, &["--durability", "process"], 8), 0);
    assert_eq!(media_flushes(&drive, &["--durability", "machine"], 8), 8);
    drive.check();
}

#[test]
fn a_drive_that_is_killed_is_opened_with_either_durability_and_has_what_was_flushed() {
    let drive = Drive::create();
    let modes = ["machine", "process", "machine", "machine", "process"];
    for (round, durability) in (0..).zip(modes) {
        let server = drive.serve_with(&["--timing", "instant", "--durability", durability]);
        let mut client = server.client();
        for earlier in 0..round {
            let found = client.read(earlier << 20, 1 << 20).unwrap();
            assert!(found == random_bytes(earlier, 1 << 20), "round {round}, MiB {earlier}");
        }
        client.write(round << 20, &random_bytes(round, 1 << 20)).unwrap();
        client.flush().unwrap();
        server.kill();
    }
    drive.check();
}

#[test]
fn durability_is_refused_where_no_file_is_kept() {
    let refused = |arguments: &[&str], words: &[&str]| {
        let ended = run_openftl(arguments.iter().copied()).failed().saying(words);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
    };
    refused(&["serve", "--memory", "--durability", "machine"], &["durability = machine", "in memory", "leave it away"]);
    refused(&["bench", "--durability", "process"], &["durability = process", "in memory"]);
    refused(&["create", "x.oftl", "--durability", "always"], &["always", "machine", "process"]);
    run(&openftl(), ["create", "--help"]).succeeded().printing(&["--durability", "[default: machine]"]);
}
