//! A device that is divided: two block namespaces and an Open-Channel one, in one file, served by one process.

use crate::client::{Client, NbdError};
use crate::drive::{Drive, run_openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::pattern::random_bytes;
use crate::program::{Ended, Running};
use crate::server::Server;
use openftl_blocks::BlockFtl;
use openftl_core::{ChunkId, VirtualClock};
use openftl_media::partition::split;
use openftl_media::{EmulatedDevice, Media, Timing};
use openftl_parts::{Access, Config};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

/// Block namespaces come first, whatever their order in the file: 1 is the database, 2 scratch, 3 the flash.
const TENANTS: &str = r#"
description = "two drives, and flash for a host with its own FTL"
[media]
profile = "cosmos"
store = "file"
path = "tenants.oftl"
timing = "instant"

[[namespace]]
name = "database"
kind = "block"
groups = "0-2"
capacity = "128MiB"
over_provisioning = "25%"
ftl = { write_through = true }

[[namespace]]
name = "flash"
kind = "open-channel"
groups = "5-6"
capacity = "192MiB"

[[namespace]]
name = "scratch"
kind = "block"
groups = "3-4"
capacity = "64MiB"

[host]
nvme_tcp = ["127.0.0.1:0"]
"#;

const BLOCK_BYTES: usize = 4096;

#[test]
fn a_divided_device_is_inspected_while_it_is_served() {
    let tenants = Tenants::new();
    let server = tenants.serve();
    let mut client = server.client_of("database");
    (0..4).for_each(|number| client.write(number << 20, &random_bytes(number, 1 << 20)).unwrap());
    client.flush().unwrap();
    let disk = tenants.disk();
    let report = |flags: &[&str]| -> Value {
        let ended = run_openftl([&["inspect", &disk, "--json"], flags].concat()).succeeded();
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let all = |flags: &[&str]| ["database", "scratch"].map(|name| report(&[&["--namespace", name], flags].concat()));
    let (device, drives, flash) = (report(&[]), all(&[]), report(&["--namespace", "flash"]));
    run_openftl(["inspect", &disk]).succeeded().printing(&[
        "3 namespaces on cosmos",
        "served by process",
        "2  scratch",
    ]);
    run_openftl(["inspect", &disk, "--namespace", "nobody"]).failed().saying(&["no namespace nobody", "scratch"]);
    server.stop();
    for name in ["profile", "geometry", "parallel_units_unused"] {
        assert_eq!(device[name], report(&[])[name]);
    }
    let without_state = |report: &Value| {
        let mut parts = report["namespaces"].as_array().unwrap().clone();
        parts.iter_mut().for_each(|part| drop(part["drive"].as_object_mut().map(|drive| drive.remove("clean"))));
        parts
    };
    assert_eq!(without_state(&device), without_state(&report(&[])));
    let stored = all(&[]);
    drives.iter().zip(&stored).for_each(|(served, stored)| crate::inspect::assert_same(served, stored));
    assert_eq!(flash["chunks_by_state"], report(&["--namespace", "flash"])["chunks_by_state"]);
}

/// A drive description in a folder of its own.
struct Tenants {
    folder: TempDir,
}

impl Tenants {
    fn new() -> Tenants {
        Tenants::of(TENANTS)
    }

    fn of(toml: &str) -> Tenants {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("tenants.toml"), toml).expect("room for a drive description");
        Tenants { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn disk(&self) -> String {
        text(&self.path("tenants.oftl")).to_owned()
    }

    fn toml(&self) -> String {
        text(&self.path("tenants.toml")).to_owned()
    }

    fn create(&self) -> Ended {
        run_openftl(["create", &self.disk(), "--drive", &self.toml(), "--seed", "1"])
    }

    fn serve(&self) -> Server {
        Server::start(&["serve", "--drive", &self.toml()], &self.path("socket"))
    }

    fn ctl(&self, words: &[&str]) -> Ended {
        run_openftl([&["ctl", &self.disk()], words].concat())
    }

    fn ask(&self, words: &[&str]) -> Value {
        json(self.ctl(&[words, &["--json"]].concat()))
    }

    fn inspect(&self, words: &[&str]) -> Value {
        json(run_openftl([&["inspect", &self.disk(), "--json"], words].concat()))
    }

    fn check(&self) -> Value {
        json(run_openftl(["check", &self.disk(), "--json"]))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("room for a file");
        text(&path).to_owned()
    }

    /// Writes to a namespace over NVMe, durably.
    fn nvme_write(&self, address: &str, namespace: &str, bytes: &[u8]) {
        let input = self.file("input", bytes);
        run_openftl(["nvme", "write", address, "--namespace", namespace, "--input", &input, "--fua"]).succeeded();
    }

    fn nvme_read(&self, address: &str, namespace: &str, bytes: usize) -> Vec<u8> {
        let output = text(&self.path("output")).to_owned();
        let length = bytes.to_string();
        let words = ["--namespace", namespace, "--length", &length, "--output", &output];
        run_openftl([&["nvme", "read", address], &words[..]].concat()).succeeded();
        std::fs::read(output).expect("what was read")
    }

    /// A block FTL in another process, over the Open-Channel namespace.
    fn serve_elsewhere(&self, address: &str, flags: &[&str]) -> Server {
        let words = ["serve", "--device", address, "--device-namespace", "3", "--nvme-tcp", "127.0.0.1:0"];
        Server::start(&[&words, flags].concat(), &self.path("elsewhere"))
    }
}

fn json(ended: Ended) -> Value {
    let ended = ended.succeeded();
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

fn write(client: &mut Client, offset: u64, bytes: &[u8]) {
    client.write(offset, bytes).expect("a write succeeds");
}

#[test]
fn namespaces_of_both_kinds_keep_their_data_through_a_kill() {
    let tenants = Tenants::new();
    tenants.create().succeeded().printing(&[
        "database",
        "scratch",
        "open-channel",
        "groups 5-6",
        "1 of 8 parallel units",
    ]);
    let server = tenants.serve();
    let address = server.nvme_address();
    let identified = json(run_openftl(["nvme", "identify", &address, "--json"]));
    let kinds: Vec<&str> =
        identified["namespaces"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["block", "block", "open-channel"], "{identified}");

    // All at once, and by all ways in.
    let [database, scratch, flash] = [1, 2, 3].map(|seed| random_bytes(seed, 4 << 20));
    let mut client = server.client_of("database");
    assert_eq!((client.size, server.client_of("scratch").size), (128 << 20, 64 << 20));
    write(&mut client, 0, &database);
    tenants.nvme_write(&address, "2", &scratch);
    let elsewhere = tenants.serve_elsewhere(&address, &["--format-device", "--capacity", "64MiB"]);
    tenants.nvme_write(&elsewhere.nvme_address(), "1", &flash);
    // The database is written through: its client need not flush.
    server.kill();
    elsewhere.kill();

    let server = tenants.serve();
    server.says("recovered after a crash");
    let address = server.nvme_address();
    assert!(tenants.nvme_read(&address, "1", database.len()) == database);
    assert!(server.client_of("scratch").read(0, scratch.len()).unwrap() == scratch);
    let elsewhere = tenants.serve_elsewhere(&address, &[]);
    elsewhere.says("recovered after a crash");
    assert!(tenants.nvme_read(&elsewhere.nvme_address(), "1", flash.len()) == flash);
    elsewhere.interrupt().succeeded();
    server.interrupt().succeeded();

    let findings = tenants.check();
    assert_eq!(findings["sound"], true, "{findings}");
    for (name, bytes) in [("database", database.len()), ("scratch", scratch.len())] {
        assert_eq!(findings["namespaces"][name]["blocks_verified"], bytes / BLOCK_BYTES, "{findings}");
    }
    run_openftl(["check", &tenants.disk(), "--repair"]).succeeded().printing(&[
        "There was nothing to repair.",
        "namespace database",
        "namespace scratch",
        "its hosts'",
    ]);
    let facts = tenants.inspect(&[]);
    let namespaces = facts["namespaces"].as_array().unwrap();
    let names: Vec<&str> = namespaces.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((names, &facts["parallel_units_unused"]), (vec!["database", "scratch", "flash"], &1.into()), "{facts}");
    assert!(namespaces[2]["chunks_by_state"]["closed"].as_u64().unwrap() > 0, "{facts}");
    let one = tenants.inspect(&["--namespace", "scratch"]);
    assert_eq!((&one["capacity_bytes"], &one["geometry"]["groups"]), (&(64 << 20).into(), &2.into()), "{one}");
    assert_eq!(one["mapped_blocks"], scratch.len() / BLOCK_BYTES);
}

#[test]
fn fio_verifies_what_it_writes_to_two_namespaces_at_once() {
    if !runs_here(&[Need::Program("fio")]) {
        return;
    }
    let tenants = Tenants::new();
    let server = tenants.serve();
    // Opening wrote to the device too.
    let before = tenants.ask(&["stats"]);
    let jobs = [("database", "96m"), ("scratch", "48m")].map(|(name, size)| {
        let uri = format!("--uri={}", server.uri().replace("///", &format!("///{name}")));
        let size = format!("--size={size}");
        let fixed =
            ["--name=job", "--thread", "--ioengine=nbd", &uri, &size, "--verify_fatal=1", "--verify_state_save=0"];
        let work = ["--rw=randwrite", "--bsrange=4k-64k", "--iodepth=16", "--verify=crc32c", "--loops=2"];
        Running::start("fio", [&fixed[..], &work].concat())
    });
    jobs.into_iter().for_each(|job| drop(job.wait().succeeded()));
    let stats = tenants.ask(&["stats"]);
    let [database, scratch] = [0, 1].map(|at| &stats["namespaces"][at]["statistics"]["host_blocks_written"]);
    let sum = database.as_u64().unwrap() + scratch.as_u64().unwrap();
    assert!(sum > 0 && stats["statistics"]["host_blocks_written"] == sum, "one accounting: {stats}");
    let programmed = |stats: &Value| stats["nand"]["blocks_programmed"].as_u64().unwrap();
    assert_eq!(Some(programmed(&stats) - programmed(&before)), stats["nand_blocks_written"].as_u64(), "{stats}");
    server.stop();
    assert_eq!(tenants.check()["sound"], true);
}

#[test]
fn a_power_cut_takes_all_namespaces_and_each_is_recovered() {
    let tenants = Tenants::new();
    let server = tenants.serve();
    let address = server.nvme_address();
    let mut scratch = server.client_of("scratch");
    let kept = random_bytes(1, 1 << 20);
    write(&mut scratch, 0, &kept);
    scratch.flush().unwrap();
    write(&mut scratch, 8 << 20, &random_bytes(2, BLOCK_BYTES));
    tenants.nvme_write(&address, "1", &kept);
    let elsewhere = tenants.serve_elsewhere(&address, &["--format-device", "--capacity", "64MiB"]);
    tenants.nvme_write(&elsewhere.nvme_address(), "1", &kept);

    let cut = tenants.ask(&["power-cut"]);
    assert_eq!(cut["power"], "off", "{cut}");
    scratch.ends_disconnected();
    server.turns_clients_away();
    // Nobody holds the file.
    assert_eq!(tenants.inspect(&[])["namespaces"][1]["drive"]["clean"], false);
    let on = tenants.ask(&["power-on"]);
    for (at, name) in ["database", "scratch"].into_iter().enumerate() {
        let namespace = &on["namespaces"][at];
        assert_eq!((&namespace["name"], &namespace["recovery"]["clean"]), (&name.into(), &false.into()), "{on}");
    }
    let mut scratch = server.client_of("scratch");
    assert!(scratch.read(0, kept.len()).unwrap() == kept);
    assert!(scratch.read(8 << 20, BLOCK_BYTES).unwrap().iter().all(|byte| *byte == 0), "it was not flushed");
    assert!(tenants.nvme_read(&address, "1", kept.len()) == kept);
    // The FTL in the other process lost its flash, and finds it again.
    elsewhere.kill();
    let elsewhere = tenants.serve_elsewhere(&address, &[]);
    assert!(tenants.nvme_read(&elsewhere.nvme_address(), "1", kept.len()) == kept);
    elsewhere.interrupt().succeeded();
    for _ in 0..2 {
        tenants.ctl(&["power-cycle", "--torn"]).succeeded();
        assert!(server.client_of("database").read(0, kept.len()).unwrap() == kept);
    }
    server.stop();
    assert_eq!(tenants.check()["sound"], true);
}

#[test]
fn a_divided_device_in_memory_comes_back_after_a_power_cut() {
    let toml = TENANTS.replace("store = \"file\"\npath = \"tenants.oftl\"", "store = \"ram\"");
    let tenants = Tenants::of(&toml);
    let control = format!("unix:{}", text(&tenants.path("control")));
    let serve = ["serve", "--drive", &tenants.toml(), "--control", &control];
    let server = Server::start(&serve, &tenants.path("socket"));
    let kept = random_bytes(1, 1 << 20);
    for name in ["database", "scratch"] {
        let mut client = server.client_of(name);
        write(&mut client, 0, &kept);
        client.flush().unwrap();
    }
    for _ in 0..2 {
        run_openftl(["ctl", &control, "power-cycle"]).succeeded();
        for name in ["database", "scratch"] {
            assert!(server.client_of(name).read(0, kept.len()).unwrap() == kept, "{name}");
        }
    }
    server.interrupt().succeeded();
}

#[test]
fn a_detached_namespace_is_gone_for_nvme_hosts_until_it_is_attached() {
    let tenants = Tenants::new();
    let server = tenants.serve();
    let address = server.nvme_address();
    let bytes = random_bytes(1, 1 << 20);
    tenants.nvme_write(&address, "2", &bytes);
    let mut nbd = server.client_of("scratch");
    let listed = || {
        let identified = json(run_openftl(["nvme", "identify", &address, "--json"]));
        identified["namespaces"].as_array().unwrap().iter().map(|one| one["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let refused = |words: &[&str], code, said: &[&str]| {
        let ended = tenants.ctl(words).failed().saying(said);
        assert_eq!(ended.status.code(), Some(code), "{ended}");
    };
    let detached = tenants.ask(&["detach", "scratch"]);
    assert_eq!((&detached["id"], &detached["attached"]), (&2.into(), &false.into()), "{detached}");
    assert_eq!(listed(), [1, 3]);
    run_openftl(["nvme", "read", &address, "--namespace", "2", "--length", "4KiB"]).failed();
    assert!(nbd.read(0, bytes.len()).unwrap() == bytes, "NBD clients keep it");
    refused(&["detach", "2"], 1, &["namespace scratch is detached already"]);
    refused(&["attach", "database"], 1, &["namespace database is attached already"]);
    refused(&["detach", "other"], 2, &["no namespace other", "database, scratch, flash"]);
    refused(&["detach", "4"], 2, &["no namespace 4"]);
    // It stays so when the power comes back.
    tenants.ctl(&["power-cycle"]).succeeded();
    assert_eq!(listed(), [1, 3]);
    tenants.ctl(&["detach", "flash"]).succeeded();
    assert_eq!(listed(), [1]);
    let stats = tenants.ask(&["stats"]);
    let attached: Vec<bool> =
        stats["namespaces"].as_array().unwrap().iter().map(|one| one["attached"].as_bool().unwrap()).collect();
    assert_eq!(attached, [true, false, false], "{stats}");
    tenants.ctl(&["attach", "2"]).succeeded().printing(&["Namespace 2, scratch, is attached"]);
    tenants.ctl(&["attach", "flash"]).succeeded();
    assert_eq!(listed(), [1, 2, 3]);
    assert!(tenants.nvme_read(&address, "2", bytes.len()) == bytes);
    server.stop();

    // Without NVMe there is nobody to see it.
    let drive = Drive::create();
    let server = drive.serve();
    drive.ctl(&["detach", "disk"]).failed().saying(&["NVMe hosts do not reach", "--nvme-tcp"]);
    server.stop();
}

#[test]
fn faults_are_those_of_the_namespace_that_is_named() {
    let tenants = Tenants::new();
    let server = tenants.serve();
    let bytes = random_bytes(1, 64 * BLOCK_BYTES);
    for name in ["database", "scratch"] {
        let mut client = server.client_of(name);
        write(&mut client, 0, &bytes);
        client.flush().unwrap();
    }
    tenants.ctl(&["power-cycle"]).succeeded();
    tenants.ctl(&["corrupt", "7"]).failed().saying(&["several namespaces", "--namespace", "database, scratch"]);
    tenants.ctl(&["corrupt", "7", "--namespace", "flash"]).failed().saying(&["flash is an open-channel one"]);
    tenants.ctl(&["power-cut", "--namespace", "scratch"]).failed().saying(&["all of the device"]);
    tenants.ctl(&["corrupt", "7", "--namespace", "scratch"]).succeeded();
    tenants.ctl(&["--namespace", "scratch", "fail-read", "9"]).succeeded();
    tenants.ctl(&["wear", "g0p0c7", "2999", "--namespace", "flash"]).succeeded();
    let (at, io_error) = (|block: u64| block * BLOCK_BYTES as u64, NbdError(5));
    let mut scratch = server.client_of("scratch");
    assert_eq!(scratch.read(at(7), BLOCK_BYTES), Err(io_error));
    assert_eq!(scratch.read(at(9), BLOCK_BYTES), Err(io_error));
    assert!(scratch.read(0, 7 * BLOCK_BYTES).unwrap() == bytes[..7 * BLOCK_BYTES]);
    assert!(server.client_of("database").read(0, bytes.len()).unwrap() == bytes, "the other one is untouched");
    server.stop();
    // Group 0 of the flash is group 5 of the device.
    assert_eq!(tenants.inspect(&["--namespace", "flash"])["wear"]["max"], 2999);
    assert_eq!(tenants.inspect(&["--namespace", "database"])["wear"]["max"].as_u64().filter(|max| *max > 100), None);

    let check = |words: &[&str]| run_openftl([&["check", &tenants.disk()], words].concat());
    check(&[]).failed().saying(&["namespace scratch is unsound: 2 findings", "fix:"]).printing(&["✓ sound"]);
    check(&["--namespace", "database"]).succeeded();
    check(&["--namespace", "flash"]).failed().saying(&["open-channel"]);
    check(&["--namespace", "other"]).failed().saying(&["no namespace other", "database, scratch, flash"]);
}

/// Damages both copies of the checkpoint of the second block namespace, and nothing else.
fn lose_checkpoint_of_scratch(tenants: &Tenants) {
    let device = EmulatedDevice::open(tenants.disk().as_ref(), Timing::Instant).unwrap();
    let label = device.parts().iter().position(|label| label.name.as_str() == "scratch").expect("it is there");
    let partitions = device.parts().iter().map(|label| label.partition.clone()).collect();
    let part = split(device, partitions).unwrap().swap_remove(label);
    let mut clock = VirtualClock::default();
    let mut ftl = BlockFtl::open_with(part, Config::default(), Access::Inspect, &mut clock).unwrap();
    let format = ftl.media().geometry().format();
    let copies = ftl.superblock().checkpoint.copies.clone();
    let firsts: Vec<_> = copies.iter().map(|copy| format.ppa(ChunkId(copy[0].chunk), copy[0].first)).collect();
    for first in firsts {
        let at = ftl.media().on_device(first);
        ftl.media_mut().device_mut().corrupt(at).unwrap();
    }
}

#[test]
fn a_namespace_that_cannot_be_opened_is_named_and_repaired_and_the_others_are_left_alone() {
    let tenants = Tenants::new();
    let server = tenants.serve();
    let bytes = random_bytes(1, 1 << 20);
    for name in ["database", "scratch"] {
        let mut client = server.client_of(name);
        write(&mut client, 0, &bytes);
        client.flush().unwrap();
    }
    server.stop();
    lose_checkpoint_of_scratch(&tenants);
    let nbd = format!("unix:{}", text(&tenants.path("refused")));
    run_openftl(["serve", &tenants.disk(), "--nbd", &nbd]).failed().saying(&[
        "namespace scratch",
        "both copies",
        "--namespace scratch --repair",
    ]);
    let check = |words: &[&str]| run_openftl([&["check", &tenants.disk()], words].concat());
    check(&[])
        .failed()
        .printing(&["namespace database"])
        .saying(&["namespace scratch", "--namespace scratch --repair"]);
    let facts = tenants.inspect(&[]);
    let namespaces = facts["namespaces"].as_array().unwrap();
    assert_eq!((&namespaces[0]["error"], &namespaces[1]["drive"]), (&Value::Null, &Value::Null), "{facts}");
    assert!(namespaces[1]["error"].as_str().unwrap().contains("both copies"), "{facts}");
    check(&["--namespace", "scratch", "--repair"]).succeeded().printing(&["256 as the newest version"]);
    check(&[]).succeeded();
    let server = tenants.serve();
    for name in ["database", "scratch"] {
        assert!(server.client_of(name).read(0, bytes.len()).unwrap() == bytes, "{name}");
    }
    server.stop();
}

#[test]
fn what_cannot_be_divided_so_is_refused_before_anything_is_made() {
    let refused = |from: &str, to: &str, said: &[&str]| {
        assert!(TENANTS.contains(from));
        let tenants = Tenants::of(&TENANTS.replace(from, to));
        let ended = tenants.create().failed().saying(said);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(!tenants.path("tenants.oftl").exists());
    };
    refused(
        "groups = \"3-4\"",
        "groups = \"2-4\"",
        &["namespaces database and scratch", "group 2, parallel unit 0", "fix:"],
    );
    refused("groups = \"5-6\"", "groups = \"5-8\"", &["namespace flash: groups 5-8", "8 groups of 1", "fix:"]);
    refused("groups = \"5-6\"", "parallel_units = \"1\"", &["namespace flash", "parallel units 1"]);
    refused("capacity = \"64MiB\"", "capacity = \"0\"", &["namespace scratch: capacity = 0", "fix:"]);
    refused("capacity = \"64MiB\"", "", &["namespace scratch: capacity is missing"]);
    refused("kind = \"open-channel\"", "kind = \"zns\"", &["`zns`", "`open-channel`"]);
    refused("name = \"scratch\"", "name = \"database\"", &["two namespaces are called database"]);

    let tenants = Tenants::new();
    run_openftl(["create", &tenants.disk(), "--drive", &tenants.toml(), "--capacity", "1GiB"])
        .failed()
        .saying(&["--capacity 1 GiB", "[[namespace]]"]);
    run_openftl(["bench", "--drive", &tenants.toml()]).failed().saying(&["bench", "database"]);
    tenants.create().succeeded();
    let serve = |words: &[&str]| {
        let nbd = format!("unix:{}", text(&tenants.path("refused")));
        run_openftl([&["serve", "--nbd", &nbd], words].concat()).failed()
    };
    serve(&[&tenants.disk(), "--over-provisioning", "7%"]).saying(&["--over-provisioning 7%", "is divided"]);
    let other = TENANTS.replace("groups = \"3-4\"", "groups = \"4\"");
    let other = tenants.file("other.toml", other.as_bytes());
    serve(&[&tenants.disk(), "--drive", &other]).saying(&["no block namespace scratch of groups 4", "openftl inspect"]);
    let fewer =
        tenants.file("fewer.toml", TENANTS.split("[[namespace]]\nname = \"scratch\"").next().unwrap().as_bytes());
    serve(&[&tenants.disk(), "--drive", &fewer]).saying(&["a namespace scratch (block, groups 3-4", "does not know"]);
    // Without a drive description the device is served as it is divided.
    let server = Server::start(&["serve", &tenants.disk(), "--timing", "instant"], &tenants.path("socket"));
    server.says("No host reaches namespace flash: add --nvme-tcp");
    assert_eq!(server.client_of("scratch").size, 64 << 20);
    server.stop();

    let bare = "[media]\nprofile = \"tiny\"\nstore = \"file\"\npath = \"tenants.oftl\"\n[[namespace]]\nname = \"flash\"\nkind = \"open-channel\"\n";
    let bare = Tenants::of(bare);
    bare.create().succeeded();
    let nbd = format!("unix:{}", text(&bare.path("refused")));
    run_openftl(["serve", &bare.disk(), "--nbd", &nbd]).failed().saying(&["no NVMe host reaches", "--nvme-tcp"]);
}
