//! A file system that manages its own flash, mounted: programs use it, and what was synced is there when its server is killed.

use crate::drive::{openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::program::{Running, run, wait_for};
use crate::server::Server;
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

/// What a mounted file system needs.
pub const NEEDS: [Need; 3] = [Need::Fuse, Need::Program("fusermount3"), Need::Command("alfs")];

/// A drive with an empty file system.
pub struct Volume {
    /// Where all of it is.
    pub folder: tempfile::TempDir,
    drive: String,
    /// The folder that shows the file system.
    pub mount: PathBuf,
}

impl Volume {
    /// A new one.
    pub fn make() -> Volume {
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

    /// Mounts it.
    pub fn mount(&self) -> Running {
        self.mount_of(&self.drive, &[])
    }

    /// Mounts it for other users, too.
    pub fn mount_for_all(&self) -> Running {
        self.mount_of(&self.drive, &["--allow-other"])
    }

    /// Mounts a drive, this one or a served one.
    fn mount_of(&self, drive: &str, words: &[&str]) -> Running {
        let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let outside = device(self.folder.path());
        let mut server = Running::start(&openftl(), [&["alfs", "mount", drive, text(&self.mount)], words].concat());
        wait_for("the mount", || {
            assert!(server.ended().is_none(), "{}", server.stderr());
            device(&self.mount).filter(|found| Some(*found) != outside)
        });
        server
    }

    /// Unmounts it, and looks whether all of it agrees.
    pub fn unmount(&self, server: Running) {
        run("fusermount3", ["-u", text(&self.mount)]).succeeded();
        server.wait().succeeded();
        self.fsck();
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

/// The drive of a volume, served as zones to NVMe hosts.
fn serve(volume: &Volume) -> Server {
    let zones = volume.folder.path().join("zones.toml");
    let toml = DRIVE.replace("[ftl]", "[ftl]\ninterface = \"zones\"").replace("alfs.oftl", &volume.drive);
    fs::write(&zones, toml).unwrap();
    Server::start_for_nvme(&["serve", &volume.drive, "--drive", text(&zones), "--nvme-tcp", "127.0.0.1:0"])
}

fn uri(server: &Server) -> String {
    format!("nvme-tcp://{}", server.nvme_address())
}

#[test]
fn what_was_synced_to_a_served_drive_is_there_when_its_server_is_killed_or_its_power_is_cut() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let mut server = serve(&volume);
    run_openftl(["alfs", "mkfs", &uri(&server)]).failed().saying(&["there is a file system", "--force"]);
    run_openftl(["alfs", "mkfs", "--force", &uri(&server)]).succeeded();
    let bytes = |round: u8| vec![round + 1; 300_000 + usize::from(round) * 1000];
    for round in 0..4 {
        let address = uri(&server);
        let mut mount = volume.mount_of(&address, &[]);
        for earlier in 0..round {
            let path = volume.mount.join(format!("synced {earlier}"));
            assert!(fs::read(path).unwrap() == bytes(earlier), "file {earlier} in round {round}");
        }
        write_durably(&volume.mount.join("new"), &bytes(round));
        fs::rename(volume.mount.join("new"), volume.mount.join(format!("synced {round}"))).unwrap();
        File::open(&volume.mount).unwrap().sync_all().unwrap();
        fs::write(volume.mount.join("not synced"), b"perhaps").unwrap();
        if round % 2 == 0 {
            server.kill();
            server = serve(&volume);
        } else {
            run_openftl(["ctl", &volume.drive, "power-cycle", "--torn"]).succeeded();
        }
        let sync = File::open(&volume.mount).and_then(|folder| folder.sync_all());
        assert!(sync.is_err(), "the connection is cut, so nothing more is durable");
        run("fusermount3", ["-u", text(&volume.mount)]).succeeded();
        let ended = wait_for("the end of the mount", || mount.ended());
        ended.failed().saying(&["what was not synced is lost", "the connection to the drive is cut"]);
        run_openftl(["alfs", "fsck", &uri(&server)]).succeeded().printing(&["✓ nvme-tcp://"]);
    }
    let command = ["--run", "ls \"$OPENFTL_FOLDER\" | grep -c synced"];
    let mount = ["alfs", "mount", &uri(&server), text(&volume.mount)];
    run_openftl(mount.into_iter().chain(command)).succeeded();
    run_openftl(["alfs", "stat", &uri(&server), "--json"]).succeeded();
    run_openftl(["alfs", "dump", &uri(&server)]).succeeded();
    server.stop();
    volume.fsck();
}

#[test]
fn a_served_drive_that_is_mounted_is_refused_to_others_until_one_preempts_it() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let server = serve(&volume);
    let (address, other) = (uri(&server), volume.folder.path().join("other"));
    fs::create_dir(&other).unwrap();
    let mut first = volume.mount_of(&address, &[]);
    write_durably(&volume.mount.join("first"), b"first");
    let mount = |words: &[&str]| run_openftl([&["alfs", "mount", &address, text(&other)][..], words].concat());
    let taken = ["another host writes to the drive", "controller", "--preempt"];
    mount(&["--run", "true"]).failed().saying(&taken);
    run_openftl(["alfs", "mkfs", "--force", &address]).failed().saying(&taken);
    run_openftl(["alfs", "fsck", "--rebuild", &address]).failed().saying(&taken);
    run_openftl(["nvme", "zones", "reset", &server.nvme_address(), "all"]).failed().saying(&["Reservation Conflict"]);
    // Who reads is no danger.
    mount(&["--read-only", "--run", "cat \"$OPENFTL_FOLDER/first\""]).succeeded().printing(&["first"]);
    run_openftl(["alfs", "stat", &address]).succeeded();
    let wrong = run_openftl(["alfs", "mount", "--preempt", &volume.drive, text(&other)]).failed();
    assert_eq!(wrong.saying(&["--preempt", "only a served drive"]).status.code(), Some(2));
    // The first is held up, and finds out when it goes on.
    fs::write(volume.mount.join("not synced"), b"perhaps").unwrap();
    let signal = |name: &str| run("kill", [name, &first.id().to_string()]).succeeded();
    signal("-STOP");
    let write = "cat \"$OPENFTL_FOLDER/first\" && echo second >\"$OPENFTL_FOLDER/second\"";
    mount(&["--preempt", "--run", write]).succeeded().printing(&["first"]);
    signal("-CONT");
    let sync = File::open(&volume.mount).and_then(|folder| folder.sync_all());
    assert!(sync.is_err(), "what it has not synced is lost");
    run("fusermount3", ["-u", text(&volume.mount)]).succeeded();
    let ended = wait_for("the end of the mount", || first.ended());
    ended.failed().saying(&["what was not synced is lost"]);
    run_openftl(["alfs", "fsck", &address]).succeeded();
    // Of a mount that was killed nothing is left that another one would have to be told of.
    let mut second = volume.mount_of(&address, &[]);
    assert_eq!(fs::read(volume.mount.join("second")).unwrap(), b"second\n");
    second.kill();
    drop(second);
    run("fusermount3", ["-u", "-z", text(&volume.mount)]).succeeded();
    mount(&["--run", "true"]).succeeded();
    server.stop();
    volume.fsck();
}

#[test]
fn a_served_drive_that_can_have_no_file_system_is_refused_with_the_way_to_one_that_can() {
    let volume = Volume::make();
    let blocks = Server::start_for_nvme(&["serve", &volume.drive, "--nvme-tcp", "127.0.0.1:0"]);
    for verb in ["mkfs", "fsck", "stat", "dump"] {
        let refused = run_openftl(["alfs", verb, &uri(&blocks)]).failed();
        refused.saying(&["namespace 1 is not zoned", "interface = \"zones\"", "fix:"]);
    }
    blocks.stop();
    let nobody = run_openftl(["alfs", "mount", "nvme-tcp://127.0.0.1:1", text(&volume.mount)]).failed();
    nobody.saying(&["nobody answers at 127.0.0.1:1", "fix:"]);
    let wrong = run_openftl(["alfs", "fsck", "nvme-tcp://127.0.0.1:port"]).failed();
    assert_eq!(wrong.saying(&["no place of a served drive", "nvme-tcp://127.0.0.1:4420"]).status.code(), Some(2));
}

#[test]
fn a_drive_of_zones_has_a_file_system_if_enough_of_them_may_be_active() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, width: u32, active: u32| {
        let drive = text(&folder.path().join(name)).to_owned();
        let zones =
            format!("kind = \"zones\"\nzone_width = {width}\nmax_open_zones = 4\nmax_active_zones = {active}\n");
        let segments = "kind = \"segments\"\nsegment_width = 4\nmax_open_segments = 8\n";
        assert!(DRIVE.contains(segments));
        let toml = folder.path().join(format!("{name}.toml"));
        fs::write(&toml, DRIVE.replace(segments, &zones).replace("alfs.oftl", name)).unwrap();
        run_openftl(["create", &drive, "--drive", text(&toml)]).succeeded();
        drive
    };
    let refused = |drive: &str, said: &[&str]| {
        let ended = run_openftl(["alfs", "mkfs", drive]).failed().saying(said);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
    };
    refused(
        &make("few.oftl", 4, 7),
        &["max_active_zones = 7", "writes 8 zones at a time", "max_active_zones = 8 or more"],
    );
    refused(&make("wide.oftl", 32, 8), &["16 zones, and a file system needs 64", "a smaller zone_width"]);
    let zoned = make("zoned.oftl", 4, 8);
    run_openftl(["alfs", "mkfs", &zoned]).succeeded().printing(&["128 segments of 2 MiB"]);
    run_openftl(["alfs", "mkfs", &zoned]).failed().saying(&["there is a file system"]);
    run_openftl(["alfs", "fsck", &zoned]).succeeded();
    if runs_here(&NEEDS) {
        let mount = folder.path().join("files");
        fs::create_dir(&mount).unwrap();
        let fill =
            "cd \"$OPENFTL_FOLDER\" && for n in $(seq 9); do seq 30000 > a; rm -f b; mv a b; done; seq 30000 | cmp - b";
        run_openftl(["alfs", "mount", &zoned, text(&mount), "--run", fill]).succeeded();
        run_openftl(["alfs", "fsck", &zoned]).succeeded().printing(&["1 file"]);
    }
    // It is a drive of zones as before.
    run_openftl(["check", &zoned]).succeeded();
}

#[test]
fn the_room_that_stat_shows_is_that_of_df() {
    if !runs_here(&NEEDS) {
        return;
    }
    let volume = Volume::make();
    let mount = ["alfs", "mount", &volume.drive, text(&volume.mount), "--run"];
    let fill = "cd \"$OPENFTL_FOLDER\" && seq 100000 > a && mkdir b && seq 9 > b/c";
    run_openftl(mount.into_iter().chain([fill])).succeeded();
    let df = "df -B1 --output=size,used \"$OPENFTL_FOLDER\" | tail -n 1";
    let shown = run_openftl(mount.into_iter().chain([df, "--read-only"])).succeeded().stdout;
    let shown: Vec<u64> = shown.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let stat = run_openftl(["alfs", "stat", &volume.drive, "--json"]).succeeded().stdout;
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(
        [&stat["capacity_bytes"], &stat["used_bytes"]].map(|number| number.as_u64()),
        [Some(shown[0]), Some(shown[1])]
    );
    assert!(shown[1] > 500_000, "{shown:?}");
}

#[test]
fn a_file_that_is_no_drive_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.oftl");
    fs::write(&path, vec![7; 100_000]).unwrap();
    for verb in ["mkfs", "fsck", "stat", "dump"] {
        let ended =
            run_openftl(["alfs", verb, text(&path)]).failed().saying(&["broken.oftl", "fix:", "openftl create"]);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
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
