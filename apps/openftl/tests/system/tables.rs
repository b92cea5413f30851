//! A table drive that is served, and used by other processes.

use crate::drive::{openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::program::{Ended, Running, wait_for};
use openftl_core::{FrameForm, Frames, Ppa, Time};
use openftl_drive_files::{DriveFiles, FileDrive};
use openftl_files::{FileError, FileKind};
use openftl_media::{EmulatedDevice, Media, Timing};
use openftl_parts::Access;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_volumes::Volume;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use tempfile::TempDir;

/// A table drive, in a folder of its own.
struct Tables {
    folder: TempDir,
}

impl Tables {
    fn new(host: &str) -> Tables {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[media]\nprofile = \"tiny\"\ncapacity = \"64MiB\"\nstore = \"file\"\npath = \"lsm.oftl\"\ntiming = \"instant\"\n\
             [ftl]\nkind = \"tables\"\nlog_area = \"8MiB\"\n{host}"
        );
        std::fs::write(folder.path().join("lsm.toml"), text).unwrap();
        Tables { folder }
    }

    /// With a socket beside the drive description.
    fn with_server() -> Tables {
        let tables = Tables::new("");
        let socket = tables.path("lsm.sock");
        let text = std::fs::read_to_string(tables.path("lsm.toml")).unwrap();
        let text = format!("{text}[host]\nfiles = \"unix:{}\"\n", socket.display());
        std::fs::write(tables.path("lsm.toml"), text).unwrap();
        tables
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path of plain letters").to_owned()
    }

    fn serve(&self) -> Running {
        self.serve_with(&[])
    }

    fn serve_with(&self, flags: &[&str]) -> Running {
        let words = ["serve", "--drive", &self.text("lsm.toml")];
        let mut server = Running::start(&openftl(), [&words[..], flags].concat());
        wait_for("the server to listen", || {
            if let Some(ended) = server.ended() {
                panic!("{ended}");
            }
            server.stdout().contains("Ctrl-C ends it").then_some(())
        });
        server
    }

    fn open(&self) -> Result<DriveFiles, FileError> {
        FileDrive::read(&self.path("lsm.toml"))?.open_or_connect(Access::ReadWrite)
    }

    fn ctl(&self, command: &[&str]) -> Value {
        let drive = self.text("lsm.oftl");
        let ended = run_openftl(["ctl", &drive, "--json"].into_iter().chain(command.iter().copied())).succeeded();
        serde_json::from_str(&ended.stdout).unwrap()
    }
}

fn append(volume: &DriveFiles, path: &str, data: &[u8], is_synced: bool) {
    let mut writer = volume.append_to(path).unwrap();
    writer.append(data).unwrap();
    if is_synced {
        writer.sync().unwrap();
    }
    writer.close().unwrap();
}

fn content(volume: &DriveFiles, path: &str) -> Vec<u8> {
    let reader = volume.open_read(path).unwrap();
    let mut found = vec![0; reader.bytes() as usize];
    assert_eq!(reader.read(0, &mut found), Ok(found.len()));
    found
}

fn end(server: Running) -> String {
    ended(server).stdout
}

fn ended(mut server: Running) -> Ended {
    rustix::process::kill_process(rustix::process::Pid::from_child(&server.child), rustix::process::Signal::TERM)
        .unwrap();
    wait_for("the server to stop", || server.ended()).succeeded()
}

#[test]
fn the_log_of_a_table_drive_says_who_came_and_when_the_power_went() {
    let tables = Tables::with_server();
    let server = tables.serve_with(&["--log", "debug", "--log-format", "json"]);
    append(&tables.open().unwrap(), "/a.log", b"a", true);
    let mut rude = std::os::unix::net::UnixStream::connect(tables.path("lsm.sock")).unwrap();
    rude.write_all(&[0xff; 64]).unwrap();
    let _ = rude.read_to_end(&mut Vec::new());
    tables.ctl(&["power-cycle"]);
    let log = crate::log::lines(&ended(server).stderr);
    let has = |wanted: &[(&str, &str)]| log.iter().any(|line| wanted.iter().all(|(name, value)| line[*name] == *value));
    let me = format!("process {}", std::process::id());
    assert!(has(&[("message", "connection opened"), ("protocol", "files"), ("peer", &me)]), "{log:?}");
    assert!(has(&[("message", "connection closed"), ("protocol", "files"), ("peer", &me)]), "{log:?}");
    assert!(has(&[("message", "the client broke a rule"), ("level", "warn"), ("peer", &me)]), "{log:?}");
    for power in ["off", "on"] {
        assert!(has(&[("target", "power"), ("level", "warn"), ("power", power)]), "{log:?}");
    }
    assert!(has(&[("target", "drive"), ("drive", "lsm"), ("message", "recovered after a crash")]), "{log:?}");
    assert!(has(&[("target", "drive"), ("drive", "lsm"), ("message", "closed, with a checkpoint")]), "{log:?}");
    assert!(has(&[("target", "control"), ("level", "debug"), ("message", "request carried out")]), "{log:?}");
}

#[test]
fn a_table_drive_is_served_and_stops_cleanly() {
    if !runs_here(&[Need::Command("files")]) {
        return;
    }
    let tables = Tables::with_server();
    let server = tables.serve();
    let said = server.stdout();
    let line = said.lines().find(|line| line.trim_start().starts_with("env LD_PRELOAD=/")).expect("a line to type");
    assert!(line.contains("/libopenftl_rocksdb.so ") && line.contains("db_bench --fs_uri=openftl:///"), "{said}");
    let (one, other) = (tables.open().unwrap(), tables.open().unwrap());
    assert!(matches!((&one, &other), (Volume::Served(_), Volume::Served(_))));
    append(&one, "/a.log", b"from one", false);
    assert_eq!(content(&other, "/a.log"), b"from one");
    let mut writer = other.create("/t.sst", FileKind::Table).unwrap();
    writer.append(&[7; 100_000]).unwrap();
    writer.close().unwrap();
    assert_eq!(content(&one, "/t.sst"), vec![7; 100_000]);
    let drive = tables.text("lsm.toml");
    run_openftl(["files", &drive]).succeeded().printing(&["/a.log", "/t.sst", "1 tables, 1 log files"]);
    assert_eq!(run_openftl(["files", &drive, "--get", "/a.log"]).succeeded().stdout, "from one");
    let stats = tables.ctl(&["stats"]);
    assert_eq!(
        (&stats["power"], &stats["statistics"]["table_bytes_written"]),
        (&"on".into(), &100_000.into()),
        "{stats}"
    );
    let report = || -> Value {
        let ended = run_openftl(["inspect", &tables.text("lsm.oftl"), "--json"]).succeeded();
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let served = report();
    assert_eq!(served["served"]["process"], server.child.id());
    let said = end(server);
    assert_eq!(served["tables"], report()["tables"]);
    for name in ["profile", "geometry", "capacity_bytes", "plan"] {
        assert_eq!(served[name], report()[name]);
    }
    assert!(said.contains("is closed, with a checkpoint"), "{said}");
    assert!(matches!(one.list("/"), Err(FileError::Io(_))));
    // Without a server the drive is opened here.
    let here = tables.open().unwrap();
    assert!(matches!(here, Volume::Here(_)));
    assert_eq!((content(&here, "/a.log"), content(&here, "/t.sst").len()), (b"from one".to_vec(), 100_000));
}

#[test]
fn what_was_synced_survives_the_death_of_the_server_and_power_cuts() {
    let tables = Tables::with_server();
    let mut server = tables.serve();
    let volume = tables.open().unwrap();
    append(&volume, "/a.log", b"one", true);
    server.kill();
    let error = volume.list("/").unwrap_err().to_string();
    assert!(error.contains("lsm.sock") && error.contains("open it again"), "{error}");
    let server = tables.serve();
    assert!(server.stdout().contains("recovered after a crash"), "{}", server.stdout());
    let volume = tables.open().unwrap();
    append(&volume, "/a.log", b" two", true);
    let cut = tables.ctl(&["power-cut"]);
    assert_eq!((&cut["power"], cut["connections_dropped"].as_u64() > Some(0)), (&"off".into(), true), "{cut}");
    assert!(matches!(volume.list("/"), Err(FileError::Io(_))));
    let error = tables.open().map(|_| ()).unwrap_err().to_string();
    assert_eq!(tables.ctl(&["stats"])["power"], "off");
    assert!(error.contains("the power of the drive is off"), "{error}");
    let on = tables.ctl(&["power-on"]);
    assert_eq!(on["recovery"]["clean"], false, "{on}");
    assert_eq!(content(&tables.open().unwrap(), "/a.log"), b"one two");
    for command in [&["fail-read", "1"][..], &["lie-about-flush", "on"], &["detach", "x"]] {
        let drive = tables.text("lsm.oftl");
        run_openftl(["ctl", &drive].into_iter().chain(command.iter().copied())).failed();
    }
    end(server);
}

/// Where the first block of each table is.
fn tables_on(device: &mut EmulatedDevice) -> BTreeMap<u64, Ppa> {
    let (geometry, format) = (*device.geometry(), device.geometry().format());
    let mut frames = Frames::new(1, 0, geometry.oob_bytes as usize);
    let frame = frames.acquire(FrameForm::Bytes).unwrap();
    let mut found = BTreeMap::new();
    for descriptor in device.whole_chunk_report(Time::ZERO).unwrap() {
        for block in 0..descriptor.write_pointer {
            let ppa = format.ppa(descriptor.chunk, block);
            if device.look(ppa, &mut frames, frame)
                && let Ok(Oob { kind: BlockKind::Tenant, address: 0, sequence }) = Oob::peek(&frames, frame)
            {
                found.insert(sequence, ppa);
            }
        }
    }
    found
}

#[test]
fn check_and_inspect_read_tables_and_name_the_files_that_lost_something() {
    if !runs_here(&[Need::Command("files")]) {
        return;
    }
    let tables = Tables::new("");
    let (file, disk) = (tables.text("lsm.toml"), tables.text("lsm.oftl"));
    run_openftl(["create", &disk, "--drive", &file]).succeeded();
    let volume = tables.open().unwrap();
    for name in ["/db.log", "/1.sst", "/2.sst"] {
        let kind = if name.ends_with("sst") { FileKind::Table } else { FileKind::Log };
        let mut writer = volume.create(name, kind).unwrap();
        writer.append(&[7; 100_000]).unwrap();
        writer.sync().unwrap();
        writer.close().unwrap();
    }
    drop(volume);
    let check = || run_openftl(["check", &disk]);
    // Nobody has stopped the drive: the last blocks of its catalog cannot be read before something is written behind them, which is done in memory.
    let as_it_was = std::fs::read(&disk).unwrap();
    run_openftl(["files", &file]).succeeded().printing(&["/1.sst", "/2.sst", "/db.log"]);
    run_openftl(["inspect", &disk]).succeeded().printing(&["recovered after a crash", "2 tables of 50 blocks"]);
    assert!(std::fs::read(&disk).unwrap() == as_it_was, "it was written to");
    check().succeeded().printing(&[
        "recovery ran before the check",
        "sound",
        "2 tables, of which 50 blocks were read and verified",
    ]);
    run_openftl(["files", &file]).succeeded().printing(&["/1.sst", "/2.sst", "/db.log"]);
    run_openftl(["inspect", &disk]).succeeded().printing(&["Tables", "2 tables of 50 blocks"]);
    let inspected: Value = serde_json::from_str(&run_openftl(["inspect", &disk, "--json"]).succeeded().stdout).unwrap();
    let (found, space) = (&inspected["tables"], 64 << 20);
    assert_eq!((&found["tables"], &found["blocks"]), (&2.into(), &50.into()), "{found}");
    assert!(found["all_bytes"].as_u64() >= Some(space) && found["free_bytes"].as_u64() < found["all_bytes"].as_u64());

    let mut device = EmulatedDevice::open(tables.path("lsm.oftl").as_ref(), Timing::Instant).unwrap();
    let (number, place) = tables_on(&mut device).pop_last().unwrap();
    device.corrupt(place).unwrap();
    drop(device);
    let name = format!("/2.sst, which is table {number}: 1 of its blocks cannot be read");
    check().failed().printing(&["unsound", &format!("block 0 of table {number} came back damaged"), &name]);
    let findings: Value = serde_json::from_str(&run_openftl(["check", &disk, "--json"]).failed().stdout).unwrap();
    let expected = serde_json::json!([{ "path": "/2.sst", "table": number, "blocks_lost": 1 }]);
    assert_eq!((&findings["damaged_files"], &findings["table_blocks_lost"]), (&expected, &1.into()), "{findings}");
    check().failed().saying(&["restore the damaged files from a copy"]);
}

#[test]
fn who_is_in_the_way_is_named() {
    let tables = Tables::new("");
    let (file, disk) = (tables.text("lsm.toml"), tables.text("lsm.oftl"));
    run_openftl(["serve", "--drive", &file]).failed().saying(&["host.files is missing", "files = \"unix:"]);
    run_openftl(["create", &disk, "--drive", &file]).succeeded();
    let _open = tables.open().unwrap();
    let error = tables.open().map(|_| ()).unwrap_err();
    assert!(matches!(&error, FileError::Busy(text) if text.contains("not served")), "{error}");
    let served = Tables::with_server();
    let file = served.text("lsm.toml");
    run_openftl(["serve", "--drive", &file, "--nbd", "127.0.0.1:0"]).failed().saying(&["--nbd is for block drives"]);
    let server = served.serve();
    run_openftl(["serve", "--drive", &file]).failed().saying(&["another server is listening"]);
    end(server);
    let remote = Tables::new("[host]\nfiles = \"0.0.0.0:10810\"\n");
    run_openftl(["serve", "--drive", &remote.text("lsm.toml")]).failed().saying(&["other machines could reach it"]);
}

#[test]
fn a_drive_description_that_cannot_be_read_is_named_once_with_its_fix() {
    if !runs_here(&[Need::Command("files")]) {
        return;
    }
    let tables = Tables::new("");
    let said = run_openftl(["files", &tables.text("none.toml")]).failed().stderr;
    assert!(
        said.starts_with(&format!("error: {}: ", tables.text("none.toml"))) && said.matches("error:").count() == 1,
        "{said}"
    );
    assert!(said.contains("\n  fix: name a drive description"), "{said}");
    std::fs::write(tables.path("lsm.toml"), "[media]\nprofile = \"none\"\n[ftl]\nkind = \"tables\"\n").unwrap();
    let said = run_openftl(["files", &tables.text("lsm.toml")]).failed().stderr;
    assert!(said.contains("media.profile: profile none: there is no profile `none`"), "{said}");
    assert!(said.contains("\n  fix: choose one of them"), "{said}");
}
