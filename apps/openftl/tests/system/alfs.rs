//! A file system that manages its own flash, mounted: programs use it, and what was synced is there when its server is killed.

use crate::drive::{openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::program::{Running, run, wait_for};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How often the server is killed.
const KILLS: u8 = 4;

const DRIVE: &str = r#"
[media]
profile = "bluedbm"
capacity = "256MiB"
store = "file"
path = "alfs.oftl"
[ftl]
kind = "segments"
segment_width = 4
max_open_segments = 8
"#;

const NEEDS: [Need; 3] = [Need::Fuse, Need::Program("fusermount3"), Need::Command("alfs")];

struct Volume {
    folder: tempfile::TempDir,
    drive: String,
    mount: PathBuf,
}

impl Volume {
    fn make() -> Volume {
        let folder = tempfile::tempdir().unwrap();
        let (description, drive) = (folder.path().join("alfs.toml"), folder.path().join("alfs.oftl"));
        let mount = folder.path().join("files");
        fs::write(&description, DRIVE).unwrap();
        fs::create_dir(&mount).unwrap();
        let drive = text(&drive).to_owned();
        run_openftl(["create", &drive, "--drive", text(&description)]).succeeded();
        run_openftl(["alfs", "mkfs", &drive]).succeeded();
        Volume { folder, drive, mount }
    }

    fn mount(&self) -> Running {
        let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let outside = device(self.folder.path());
        let mut server = Running::start(&openftl(), ["alfs", "mount", &self.drive, text(&self.mount)]);
        wait_for("the mount", || {
            assert!(server.ended().is_none(), "{}", server.stderr());
            device(&self.mount).filter(|found| Some(*found) != outside)
        });
        server
    }

    fn fsck(&self) {
        run_openftl(["alfs", "fsck", &self.drive]).succeeded();
    }
}

fn write_durably(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn what_was_synced_to_a_mounted_file_system_is_there_when_its_server_is_killed() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let bytes = |kill: u8| vec![kill + 1; 300_000 + usize::from(kill) * 1000];
    for kill in 0..KILLS {
        let mut server = volume.mount();
        for earlier in 0..kill {
            let path = volume.mount.join(format!("synced {earlier}"));
            assert!(fs::read(path).unwrap() == bytes(earlier), "file {earlier} at kill {kill}");
        }
        write_durably(&volume.mount.join("new"), &bytes(kill));
        fs::rename(volume.mount.join("new"), volume.mount.join(format!("synced {kill}"))).unwrap();
        File::open(&volume.mount).unwrap().sync_all().unwrap();
        fs::write(volume.mount.join("not synced"), b"perhaps").unwrap();
        server.kill();
        drop(server);
        run("fusermount3", ["-u", "-z", text(&volume.mount)]).succeeded();
        volume.fsck();
    }
}

#[test]
fn a_mount_ends_with_its_command_and_with_the_status_of_that() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let mount = ["alfs", "mount", &volume.drive, text(&volume.mount), "--run"];
    let command =
        "cd \"$OPENFTL_FOLDER\" && mkdir -p a/b && echo hello > a/b/c && ln a/b/c d && mv a/b e && cat d && exit 7";
    let ended = run_openftl(mount.into_iter().chain([command]));
    assert!(ended.stdout.contains("hello"), "{}", ended.stdout);
    ended.failed().saying(&["ended with exit code 7"]);
    volume.fsck();
    let found = run_openftl(mount.into_iter().chain(["cd \"$OPENFTL_FOLDER\"; cat e/c; ls"])).succeeded();
    assert!(found.stdout.starts_with("hello\na\nd\ne\n"), "{}", found.stdout);
    let read_only =
        run_openftl(mount.into_iter().chain(["cat \"$OPENFTL_FOLDER/d\"; touch \"$OPENFTL_FOLDER/x\"", "--read-only"]));
    assert_eq!(read_only.stdout, "hello\n");
    read_only.failed().saying(&["Read-only file system", "ended with exit code 1"]);
    volume.fsck();
}

/// Has an NVMe host write to the first segment of a drive.
fn write_by_another_host(drive: &str, folder: &Path) {
    let zeroes = folder.join("zeroes");
    fs::write(&zeroes, vec![0; 8192]).unwrap();
    let write = format!("{} nvme write $OPENFTL_NVME_TCP --input {} --length 8KiB", openftl(), zeroes.display());
    run_openftl(["serve", drive, "--nvme-tcp", "127.0.0.1:0", "--run", &write]).succeeded();
}

#[test]
fn a_drive_that_cannot_have_a_file_system_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    run_openftl(["alfs", "mkfs", &path("nothing.oftl")]).failed().saying(&["nothing.oftl", "create"]);
    run_openftl(["create", &path("block.oftl"), "--profile", "tiny", "--capacity", "4MiB"]).succeeded();
    run_openftl(["alfs", "mkfs", &path("block.oftl")]).failed().saying(&["this is a block drive", "drives/amf.toml"]);
    let few = DRIVE.replace("segment_width = 4", "segment_width = 32").replace("alfs.oftl", "few.oftl");
    fs::write(folder.path().join("few.toml"), few).unwrap();
    run_openftl(["create", &path("few.oftl"), "--drive", &path("few.toml")]).succeeded();
    run_openftl(["alfs", "mkfs", &path("few.oftl")]).failed().saying(&["16 segments", "64", "segment_width"]);
    let volume = Volume::make();
    run_openftl(["alfs", "mkfs", &volume.drive]).failed().saying(&["there is a file system", "--force"]);
    let other = path("other.oftl");
    fs::write(folder.path().join("other.toml"), DRIVE.replace("alfs.oftl", "other.oftl")).unwrap();
    run_openftl(["create", &other, "--drive", &path("other.toml")]).succeeded();
    write_by_another_host(&other, folder.path());
    run_openftl(["alfs", "mkfs", &other]).failed().saying(&["written by another host", "--force"]);
    run_openftl(["alfs", "mkfs", &other, "--force"]).succeeded();
    run_openftl(["alfs", "mount", &volume.drive, &path("nowhere")]).failed().saying(&["nowhere", "create the folder"]);
}

#[test]
fn a_file_system_whose_records_are_lost_is_rebuilt_from_its_logs() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let mount = ["alfs", "mount", &volume.drive, text(&volume.mount), "--run"];
    let fill = "cd \"$OPENFTL_FOLDER\" && mkdir -p a/b && seq 100000 > a/b/c && ln a/b/c d && ln -s d e && seq 9 > gone && rm gone";
    run_openftl(mount.into_iter().chain([fill])).succeeded();
    let sound = run_openftl(["alfs", "fsck", "--rebuild", &volume.drive]).succeeded();
    assert!(!sound.stdout.contains("rebuilt"), "nothing is to be done: {}", sound.stdout);
    let zones = volume.folder.path().join("zones.toml");
    fs::write(&zones, DRIVE.replace("[ftl]", "[ftl]\ninterface = \"zones\"").replace("alfs.oftl", &volume.drive))
        .unwrap();
    let reset = format!("for zone in 0 1; do {} nvme zones reset $OPENFTL_NVME_TCP $zone || exit 1; done", openftl());
    run_openftl(["serve", &volume.drive, "--drive", text(&zones), "--nvme-tcp", "127.0.0.1:0", "--run", &reset])
        .succeeded();
    for verb in [["alfs", "fsck"], ["alfs", "stat"]] {
        let refused = run_openftl(verb.into_iter().chain([&volume.drive[..]]));
        refused.failed().saying(&["the records of the file system are gone", "fsck --rebuild"]);
    }
    run_openftl(["alfs", "mkfs", &volume.drive]).failed().saying(&["cannot be mounted", "--force"]);
    let rebuilt = run_openftl(["alfs", "fsck", "--rebuild", &volume.drive, "--json"]).succeeded();
    let rebuilt: serde_json::Value = serde_json::from_str(&rebuilt.stdout).unwrap();
    assert_eq!(rebuilt["rebuilt"]["mended_all"], 0, "{rebuilt}");
    assert_eq!((&rebuilt["sound"], &rebuilt["files"], &rebuilt["folders"]), (&true.into(), &2.into(), &3.into()));
    volume.fsck();
    let found =
        run_openftl(mount.into_iter().chain(["cd \"$OPENFTL_FOLDER\" && ls && seq 100000 | cmp - e && cmp d a/b/c"]));
    assert_eq!(found.succeeded().stdout, "a\nd\ne\n");
}
