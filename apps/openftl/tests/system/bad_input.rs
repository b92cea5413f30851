//! Bad input from outside: files that are no drive of ours, peers that are no client, a host without space. Each ends
//! in a clear error, and nothing acknowledged is lost.

use crate::client::{DISCONNECT, READ, WRITE};
use crate::drive::{Drive, openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::pattern::random_bytes;
use crate::program::{Running, run, wait_for};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[test]
fn a_truncated_drive_is_refused() {
    let drive = Drive::create();
    let file = File::options().write(true).open(drive.file()).unwrap();
    let bytes = file.metadata().unwrap().len();
    for left in [bytes / 2, 4096, 100, 0] {
        file.set_len(left).unwrap();
        drive.refuses_to_serve(&[]).saying(&["disk.oftl"]);
        run_openftl(["check", drive.file()]).failed().saying(&["disk.oftl"]);
        run_openftl(["inspect", drive.file()]).failed().saying(&["disk.oftl"]);
    }
    let half = Drive::create();
    File::options().write(true).open(half.file()).unwrap().set_len(bytes / 2).unwrap();
    half.refuses_to_serve(&[]).saying(&["truncated"]);
}

#[test]
fn a_file_that_is_no_drive_is_refused() {
    let drive = Drive::create();
    std::fs::write(drive.file(), random_bytes(9, 1 << 20)).unwrap();
    drive.refuses_to_serve(&[]).saying(&["disk.oftl", "no drive:"]);
    std::fs::remove_file(drive.file()).unwrap();
    drive.refuses_to_serve(&[]).saying(&["disk.oftl", "no such file"]);
}

#[test]
fn a_drive_or_a_file_without_end_is_not_read_where_text_is_wanted() {
    let drive = Drive::create();
    let folder = tempfile::tempdir().unwrap();
    let [huge, zero, linked] = ["huge.toml", "zero.toml", "drive.toml"].map(|name| folder.path().join(name));
    File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    std::os::unix::fs::symlink(drive.file(), &linked).unwrap();
    for (file, reason) in [(&huge, "longer than"), (&zero, "longer than"), (&linked, "is a drive")] {
        let file = text(file);
        let compared = format!("{file}:fdp");
        let keys = ["serve", "--memory", "--nvme-tcp", "127.0.0.1:0", "--dhchap-key", file];
        for words in [
            &["bench", "--drive", file][..],
            &["bench", "--profile", file],
            &["profiles", file],
            &["sweep", file],
            &["compare", "--drive", &compared, "--workload", "uniform"],
            &keys,
        ] {
            let ended = run_openftl(words.iter().copied()).failed().saying(&[reason, file, "fix:"]);
            assert_eq!(ended.status.code(), Some(2), "{ended}");
        }
    }
    // A drive of the other kind.
    if runs_here(&[Need::Command("files")]) {
        run_openftl(["files", drive.file()]).failed().saying(&["disk.oftl"]);
    }
}

#[test]
fn a_drive_in_use_by_another_process_is_refused_and_left_alone() {
    let drive = Drive::create();
    let mut server = drive.serve();
    let mut client = server.client();
    client.write(0, &[7; 4096]).unwrap();
    drive.refuses_to_serve(&[]).saying(&["disk.oftl", "locked", "another process"]);
    run_openftl(["check", drive.file()]).failed().saying(&["locked"]);
    run_openftl(["create", drive.file(), "--profile", "cosmos", "--capacity", "512MiB", "--force"])
        .failed()
        .saying(&["locked"]);
    server.stays_alive();
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    server.stop();
    drive.check();
}

#[test]
fn a_drive_of_a_newer_version_is_refused() {
    let drive = Drive::create();
    let file = File::options().read(true).write(true).open(drive.file()).unwrap();
    file.write_all_at(&[0xFF, 0xFF], VERSION_OFFSET).unwrap();
    drive.refuses_to_serve(&[]).saying(&["version", "newer"]);
}

/// Where the file store's header keeps its format version.
const VERSION_OFFSET: u64 = 8;

#[test]
fn a_drive_of_another_profile_than_asked_for_is_refused() {
    let drive = Drive::create();
    drive.refuses_to_serve(&["--profile", "qlc"]).saying(&["profile", "cosmos", "qlc"]);
    drive.check();
}

#[test]
fn create_does_not_overwrite_a_drive() {
    let drive = Drive::create();
    let server = drive.serve();
    server.client().write(0, &[7; 4096]).unwrap();
    server.stop();
    let again = ["create", drive.file(), "--profile", "cosmos", "--capacity", "512MiB"];
    run_openftl(again).failed().saying(&["disk.oftl", "exists", "--force"]);
    let server = drive.serve();
    assert_eq!(server.client().read(0, 4096).unwrap(), [7; 4096]);
    server.stop();
}

/// The temporary files of drives that are being created in `folder`, and were when they were stopped.
fn left_over(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "creating")).collect()
}

#[test]
fn a_create_that_is_killed_leaves_no_drive_and_does_not_hinder_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.oftl");
    // Large enough to be caught while its map is written.
    let mut create = Running::start(&openftl(), ["create", text(&disk), "--profile", "cosmos", "--capacity", "128GiB"]);
    wait_for("the temporary file", || left_over(folder.path()).pop());
    create.kill();
    create.child.wait().unwrap();
    assert!(!disk.exists(), "a drive that is not whole has no name");
    assert_eq!(left_over(folder.path()).len(), 1);
    run_openftl(["create", text(&disk), "--profile", "cosmos", "--capacity", "512MiB"]).succeeded();
    assert_eq!(left_over(folder.path()), [] as [PathBuf; 0], "what the dead process left is removed");
    run_openftl(["check", text(&disk)]).succeeded();
}

#[test]
fn a_full_disk_under_create_is_said_and_leaves_nothing_behind() {
    if !runs_here(&[Need::Mount]) {
        return;
    }
    let disk = SmallDisk::new("2m");
    let file = disk.folder.path().join("disk.oftl");
    run_openftl(["create", text(&file), "--profile", "cosmos", "--capacity", "8GiB"]).failed().saying(&[
        "cannot create",
        "disk.oftl",
        "full",
        "make room",
    ]);
    assert_eq!(disk.folder.path().read_dir().unwrap().count(), 0);
    disk.grow("200m");
    run_openftl(["create", text(&file), "--profile", "cosmos", "--capacity", "8GiB"]).succeeded();
}

#[test]
fn wrong_words_on_the_command_line_are_named() {
    let drive = Drive::create();
    let file = drive.beside("new.oftl");
    let file = text(&file);
    let check = |arguments: &[&str], words: &[&str]| {
        let ended = run_openftl(arguments.iter().copied()).failed().saying(words);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
    };
    check(&["create", file, "--profile", "floppy", "--capacity", "8GiB"], &["floppy", "cosmos"]);
    check(&["create", file, "--profile", "cosmos", "--capacity", "lots"], &["capacity", "lots"]);
    check(
        &["create", file, "--profile", "cosmos", "--capacity", "8GiB", "--over-provisioning", "ten"],
        &["ten", "10%"],
    );
    check(&["serve", drive.file(), "--nbd", "somewhere"], &["nbd", "somewhere"]);
    check(&["serve", drive.file(), "--poll", "5s", "--nbd", "unix:/nowhere"], &["poll", "1ms"]);
    check(&["serve", drive.file(), "--reactors", "0", "--nbd", "unix:/nowhere"], &["--reactors", "'0'", "1 to 64"]);
    check(&["serve", drive.file(), "--reactors", "65", "--nbd", "unix:/nowhere"], &["--reactors", "'65'", "1 to 64"]);
    check(&["serve", drive.file(), "--timing", "later", "--nbd", "unix:/nowhere"], &["later", "instant"]);
    assert!(!std::path::Path::new(file).exists(), "a command that is refused leaves no file");
}

#[test]
fn a_live_socket_is_not_taken_over_and_a_stale_one_is() {
    let (drive, other) = (Drive::create(), Drive::create());
    let mut server = drive.serve();
    let endpoint = format!("unix:{}", drive.beside("socket").display());
    run_openftl(["serve", other.file(), "--timing", "instant", "--nbd", &endpoint])
        .failed()
        .saying(&["socket", "another server"]);
    server.stays_alive();
    server.kill();
    assert!(drive.beside("socket").exists(), "kill -9 leaves the socket's file");
    let server = drive.serve();
    server.stop();
    assert!(!drive.beside("socket").exists(), "a clean stop removes the socket's file");
}

#[test]
fn garbage_on_a_connection_ends_that_connection_only() {
    let drive = Drive::create();
    let mut server = drive.serve();
    let mut neighbour = server.client();
    neighbour.write(0, &[7; 8192]).unwrap();
    for seed in 0..32 {
        let mut stream = server.connect();
        // The server may hang up before it has read all of it.
        let _ = stream.write_all(&random_bytes(seed, 64 << 10));
    }
    for seed in 32..48 {
        let mut client = server.client();
        let _ = client.send_bytes(&random_bytes(seed, 64 << 10));
        client.ends_disconnected();
    }
    server.stays_alive();
    assert_eq!(neighbour.read(0, 8192).unwrap(), [7; 8192]);
    let ended = server.stop();
    assert!(!ended.stderr.contains("panicked"), "{ended}");
    drive.check();
}

#[test]
fn a_write_that_breaks_off_changes_nothing() {
    let drive = Drive::create();
    let mut server = drive.serve();
    let mut neighbour = server.client();
    let before = random_bytes(3, 1 << 20);
    neighbour.write(0, &before).unwrap();
    for sent in [0, 1, 4095, 4096, 20_000, (1 << 20) - 1] {
        let mut client = server.client();
        client.send_header(WRITE, 0, 0, 1 << 20).unwrap();
        client.send_bytes(&vec![0xEE; sent]).unwrap();
        drop(client);
    }
    server.stays_alive();
    assert!(server.client().read(0, 1 << 20).unwrap() == before);
    server.stop();
    let server = drive.serve();
    assert!(server.client().read(0, 1 << 20).unwrap() == before);
    server.stop();
    drive.check();
}

#[test]
fn requests_beyond_the_end_fail_and_leave_the_connection_usable() {
    const INVALID: u32 = 22;
    const NO_SPACE: u32 = 28;
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    let end = client.size;
    for offset in [end, end - 512, u64::MAX - 100] {
        let error = client.read(offset, 4096).unwrap_err();
        assert_eq!(error.0, INVALID, "read at {offset}");
        let error = client.write(offset, &[1; 4096]).unwrap_err();
        assert!(matches!(error.0, INVALID | NO_SPACE), "write at {offset}: {error:?}");
        client.trim(offset, 4096).unwrap_err();
    }
    assert_eq!(client.read(end - 512, 512).unwrap(), [0; 512]);
    client.send_header(999, 0, 0, 0).unwrap();
    assert_eq!(client.receive().unwrap().1.unwrap_err().0, INVALID, "an unknown request type");
    client.write(0, &[1; 512]).unwrap();
    client.send_header(DISCONNECT, 0, 0, 0).unwrap();
    client.ends_disconnected();
    server.stop();
}

#[test]
fn a_request_for_more_than_the_server_ever_moves_is_refused() {
    let drive = Drive::create();
    let mut server = drive.serve();
    let mut client = server.client();
    client.send_header(READ, 0, 0, u32::MAX).unwrap();
    // An error or a hang-up: the protocol allows both.
    if let Ok((_, result)) = client.receive() {
        result.unwrap_err();
    }
    server.stays_alive();
    server.client().write(0, &[1; 4096]).unwrap();
    server.stop();
}

/// A file system of its own with little room, unmounted when dropped.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn new(size: &str) -> SmallDisk {
        let folder = tempfile::tempdir().expect("a temporary folder");
        run("mount", ["-t", "tmpfs", "-o", &format!("size={size}"), "none", text(folder.path())]).succeeded();
        SmallDisk { folder }
    }

    fn grow(&self, size: &str) {
        run("mount", ["-o", &format!("remount,size={size}"), text(self.folder.path())]).succeeded();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", ["--lazy", text(self.folder.path())]);
    }
}

#[test]
fn a_full_disk_under_the_drive_loses_nothing_that_was_acknowledged() {
    const PIECE: usize = 1 << 20;
    if !runs_here(&[Need::Mount]) {
        return;
    }
    let disk = SmallDisk::new("96m");
    let drive = Drive::create_in(disk.folder.path());
    let server = drive.serve();
    let mut client = server.client();
    let piece = |number: u64| random_bytes(number, PIECE);
    let (mut acknowledged, mut flushed) = (0, 0);
    // Far more than there is room for, so one of them fails.
    let error = loop {
        assert!(acknowledged < 400, "96 MiB of room took {acknowledged} MiB");
        if let Err(error) = client.write(acknowledged * PIECE as u64, &piece(acknowledged)) {
            break error;
        }
        acknowledged += 1;
        if acknowledged % 8 == 0 {
            match client.flush() {
                Ok(()) => flushed = acknowledged,
                Err(error) => break error,
            }
        }
    };
    assert!(flushed >= 8, "only {flushed} MiB were flushed before {error:?}");
    for number in 0..acknowledged {
        let found = client.read(number * PIECE as u64, PIECE).expect("what was acknowledged can be read");
        assert!(found == piece(number), "MiB {number} of {acknowledged} is not what was written");
    }
    let ended = server.interrupt();
    assert!(ended.status.code().is_some(), "{ended}");
    let ended = ended.saying(&["no space"]);
    assert!(!ended.stderr.contains("panicked"), "{ended}");

    disk.grow("800m");
    let server = drive.serve();
    let mut client = server.client();
    for number in 0..flushed {
        let found = client.read(number * PIECE as u64, PIECE).expect("what was flushed can be read");
        assert!(found == piece(number), "MiB {number} of {flushed} flushed is not what was written");
    }
    client.write(400 << 20, &piece(1)).expect("with room again, the drive takes writes");
    server.stop();
    drive.check();
}
