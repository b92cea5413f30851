//! A drive of append-only segments: written in order by NVMe hosts, and served as zones where they want those.

use crate::drive::{Drive, run_openftl};
use crate::mounted::text;
use crate::pattern::random_bytes;
use crate::program::Ended;
use crate::server::Server;
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

/// Sixteen segments of three chunks of a mebibyte.
const SEGMENTS: &str = r#"
description = "a log for each of four writers"
[media]
profile = "cosmos"
capacity = "48MiB"
store = "file"
path = "segments.oftl"
timing = "instant"

[ftl]
kind = "segments"
segment_width = 3
max_open_segments = 4

[host]
nvme_tcp = ["127.0.0.1:0"]
"#;

const SEGMENT_BYTES: usize = 3 << 20;

const BLOCK_BYTES: usize = 4096;

/// A drive description in a folder of its own.
pub struct Segments {
    folder: TempDir,
}

impl Segments {
    fn new() -> Segments {
        Segments::of(SEGMENTS)
    }

    /// With other words in its drive description.
    pub fn with(changes: &[(&str, &str)]) -> Segments {
        Segments::of(&changes.iter().fold(SEGMENTS.to_owned(), |toml, (from, to)| {
            assert!(toml.contains(from), "{from}");
            toml.replace(from, to)
        }))
    }

    fn of(toml: &str) -> Segments {
        let segments = Segments { folder: tempfile::tempdir().expect("a temporary folder") };
        segments.file("segments.toml", toml.as_bytes());
        segments
    }

    /// A new drive, on a device whose cache forgets what it has acknowledged when the power goes, and leaves flash pages torn.
    fn volatile() -> Segments {
        let profile = run_openftl(["profiles", "cosmos", "--toml"]).succeeded().stdout;
        let (protected, volatile) = ("power_loss_protection = true", "power_loss_protection = false");
        assert!(profile.contains(protected), "the profile has a protected cache: {profile}");
        let segments = Segments::with(&[("\"cosmos\"", "\"volatile.toml\"")]);
        segments.file("volatile.toml", profile.replace(protected, volatile).as_bytes());
        segments.create().succeeded();
        segments
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("room for a file");
        text(&path).to_owned()
    }

    pub fn disk(&self) -> String {
        text(&self.path("segments.oftl")).to_owned()
    }

    pub fn toml(&self) -> String {
        text(&self.path("segments.toml")).to_owned()
    }

    /// Another drive description of the same drive, in which `from` is `to`.
    pub fn other(&self, from: &str, to: &str) -> String {
        let toml = std::fs::read_to_string(self.toml()).expect("it was written");
        assert!(toml.contains(from), "{from}");
        self.file("other.toml", toml.replace(from, to).as_bytes())
    }

    pub fn create(&self) -> Ended {
        run_openftl(["create", &self.disk(), "--drive", &self.toml(), "--seed", "1"])
    }

    fn serve(&self) -> Serving<'_> {
        self.serve_as(&self.toml())
    }

    fn serve_as(&self, toml: &str) -> Serving<'_> {
        let server = Server::start_for_nvme(&["serve", "--drive", toml]);
        let address = server.nvme_address();
        Serving { segments: self, server, address }
    }

    fn ctl(&self, words: &[&str]) -> Ended {
        run_openftl([&["ctl", &self.disk()], words].concat()).succeeded()
    }

    fn inspect(&self) -> Value {
        json(run_openftl(["inspect", &self.disk(), "--json"]))
    }
}

/// The drive and its server.
struct Serving<'a> {
    segments: &'a Segments,
    server: Server,
    address: String,
}

impl Serving<'_> {
    fn nvme(&self, command: &str, words: &[&str]) -> Ended {
        run_openftl([&["nvme", command, &self.address], words].concat())
    }

    fn write(&self, offset: usize, bytes: &[u8], flags: &[&str]) -> Ended {
        let (input, offset) = (self.segments.file("input", bytes), offset.to_string());
        self.nvme("write", &[&["--offset", &offset, "--input", &input], flags].concat())
    }

    /// A write that ends with this status of segments, and what else is said.
    fn refuses(&self, offset: usize, bytes: &[u8], said: &[&str]) {
        let ended = self.write(offset, bytes, &[]).failed().saying(said);
        assert_eq!(ended.status.code(), Some(1), "{ended}");
    }

    fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let output = text(&self.segments.path("output")).to_owned();
        let (offset, length) = (offset.to_string(), bytes.to_string());
        self.nvme("read", &["--offset", &offset, "--length", &length, "--output", &output]).succeeded();
        std::fs::read(output).expect("what was read")
    }
}

fn json(ended: Ended) -> Value {
    let ended = ended.succeeded();
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
}

#[test]
fn segments_are_made_written_in_order_and_found_again() {
    let segments = Segments::new();
    segments.create().succeeded().printing(&[
        "48 MiB for the host",
        "16 segments of 3 MiB, each on 3 dies; 4 of them may be written in part",
        "--nvme-tcp",
    ]);
    let served = segments.serve();
    served.server.says("48 MiB in 16 segments of 3 MiB, 4 of which may be written in part");
    let identified = json(served.nvme("identify", &["--json"]));
    let namespace = &identified["namespaces"][0];
    assert_eq!((&namespace["kind"], &namespace["blocks"]), (&"block".into(), &(48 << 8).into()), "{identified}");

    let bytes = random_bytes(1, SEGMENT_BYTES + (1 << 20));
    served.write(0, &bytes, &[]).succeeded().printing(&["4 MiB are written"]);
    assert!(served.read(0, bytes.len()) == bytes, "of two segments");
    let block = random_bytes(2, BLOCK_BYTES);
    served.refuses(0, &block, &["07C0h Segment Overwrite", "fix: its segment goes on at block 768"]);
    served.refuses(SEGMENT_BYTES, &block, &["07C0h Segment Overwrite", "fix: its segment goes on at block 1024"]);
    served.refuses(5 << 20, &block, &["07C1h Segment Gap", "fix: its segment goes on at block 1024"]);
    served.write(4 << 20, &block, &[]).succeeded();
    // It is sent in pieces, and those before the end of the segment are written.
    served.refuses((4 << 20) + BLOCK_BYTES, &random_bytes(3, 2 << 20), &["07C2h Segment Boundary Error"]);
    (2..5).for_each(|number| drop(served.write(number * SEGMENT_BYTES, &block, &["--fua"]).succeeded()));
    served.refuses(5 * SEGMENT_BYTES, &block, &["07C3h Too Many Open Segments"]);
    assert!(served.read(0, bytes.len()) == bytes, "what was refused has changed nothing");

    segments.ctl(&["stats"]).printing(&["Segments: 4 of 4 written in part: 1, 2, 3, 4"]);
    is_wrong(
        run_openftl(["ctl", &segments.disk(), "corrupt", "7"]),
        &["is one of segments", "choose a block namespace"],
    );
    let (while_served, page) = (segments.inspect(), ["48 MiB in segments on cosmos", "16 segments of 3 MiB"]);
    run_openftl(["inspect", &segments.disk()]).succeeded().printing(&page);
    served.server.stop();
    let stored = segments.inspect();
    let facts = |report: &Value| ["zones", "active", "blocks"].map(|name| report["segments"][name].as_u64());
    let [count, written_in_part, blocks] = facts(&stored);
    assert_eq!((count, written_in_part), (Some(16), Some(4)));
    assert!(blocks.is_some_and(|blocks| blocks > bytes.len() as u64 / BLOCK_BYTES as u64));
    assert_eq!(facts(&while_served), facts(&stored));
    run_openftl(["check", &segments.disk()]).succeeded().printing(&["✓ sound", "5 segments that hold anything"]);

    let served = segments.serve();
    assert!(served.read(0, bytes.len()) == bytes);
    served.refuses(0, &block, &["07C0h Segment Overwrite"]);
    served.server.stop();
}

/// How many blocks from the beginning of `found` on are those of `written`. What is behind them must be empty.
#[track_caller]
fn kept_blocks(found: &[u8], written: &[u8]) -> usize {
    let pairs = found.chunks(BLOCK_BYTES).zip(written.chunks(BLOCK_BYTES));
    let kept = pairs.take_while(|(found, written)| found == written).count();
    assert!(found[kept * BLOCK_BYTES..].iter().all(|byte| *byte == 0), "old or foreign blocks behind the first {kept}");
    kept
}

#[test]
fn what_is_flushed_outlives_power_cuts_and_of_the_rest_only_ends_are_missing() {
    let segments = Segments::volatile();
    let mut served = segments.serve();
    for round in 0..4 {
        // Of odd lengths: a flush inside of what flash writes at a time.
        let place = 2 * round * SEGMENT_BYTES;
        let bytes = random_bytes(round as u64, SEGMENT_BYTES);
        let (flushed, volatile) = ((round * 37 + 5) * BLOCK_BYTES, (300 + 7 * round) * BLOCK_BYTES);
        served.write(place, &bytes[..flushed], &["--fua"]).succeeded();
        served.write(place + flushed, &bytes[flushed..volatile], &[]).succeeded();
        // This one was never flushed.
        served.write(place + SEGMENT_BYTES, &bytes[..flushed], &[]).succeeded();
        if round % 2 == 0 {
            segments.ctl(&["power-cycle", "--torn"]);
        } else {
            let Serving { server, .. } = served;
            server.kill();
            served = segments.serve();
            served.server.says("recovered after a crash");
        }
        let kept = kept_blocks(&served.read(place, SEGMENT_BYTES), &bytes[..volatile]);
        assert!(kept * BLOCK_BYTES >= flushed, "round {round}: {kept} blocks are there");
        kept_blocks(&served.read(place + SEGMENT_BYTES, SEGMENT_BYTES), &bytes[..flushed]);
        // The host goes on where the segment ends now.
        let rest = kept * BLOCK_BYTES;
        let goes_on = format!("its segment goes on at block {};", place / BLOCK_BYTES + kept);
        served.refuses(place + rest + BLOCK_BYTES, &bytes[..BLOCK_BYTES], &["07C1h Segment Gap", &goes_on]);
        served.write(place + rest, &bytes[rest..], &["--fua"]).succeeded();
        assert!(served.read(place, SEGMENT_BYTES) == bytes, "round {round}");
    }
    served.server.stop();
    let served = segments.serve();
    for round in 0..4 {
        let found = served.read(2 * round * SEGMENT_BYTES, SEGMENT_BYTES);
        assert!(found == random_bytes(round as u64, SEGMENT_BYTES), "round {round}");
    }
    served.server.stop();
    run_openftl(["check", &segments.disk()]).succeeded();
}

#[test]
fn the_segments_of_a_drive_are_zones_for_hosts_that_want_those() {
    let segments = Segments::new();
    segments.create().succeeded();
    let served = segments.serve();
    let bytes = random_bytes(1, SEGMENT_BYTES + (1 << 20));
    served.write(0, &bytes[..SEGMENT_BYTES], &["--fua"]).succeeded();
    served.server.stop();

    let as_zones = segments.other("segment_width", "interface = \"zones\"\nsegment_width");
    let served = segments.serve_as(&as_zones);
    served.server.says("16 zones of 3 MiB (4 MiB apart)");
    served.nvme("identify", &[]).succeeded().printing(&["Namespace 1, zoned"]);
    let zones = |words: &[&str]| {
        let (command, rest) = words.split_first().expect("a command");
        run_openftl([&["nvme", "zones", command, &served.address], rest].concat()).succeeded()
    };
    zones(&["list"]).printing(&["16 of 3 MiB", "15 empty, 1 full"]);
    let input = segments.file("input", &bytes[SEGMENT_BYTES..]);
    zones(&["append", "2", "--input", &input]).printing(&["1 MiB are appended to zone 2"]);
    segments.ctl(&["stats"]).printing(&["Zones: 1 of 4 active, 1 of 4 open: 2"]);
    zones(&["reset", "0"]).printing(&["zone 0", "empty"]);
    zones(&["list"]).printing(&["15 empty, 1 implicitly open"]);
    served.server.stop();

    // As blocks again: what was appended is at the beginning of segment 2, and segment 0 can be written.
    let served = segments.serve();
    let appended = &bytes[SEGMENT_BYTES..];
    assert!(served.read(2 * SEGMENT_BYTES, appended.len()) == appended);
    assert!(served.read(0, SEGMENT_BYTES).iter().all(|byte| *byte == 0));
    served.refuses(2 * SEGMENT_BYTES, &appended[..BLOCK_BYTES], &["07C0h Segment Overwrite"]);
    served.write(2 * SEGMENT_BYTES + appended.len(), &appended[..BLOCK_BYTES], &[]).succeeded();
    served.write(0, appended, &[]).succeeded();
    let no_zones = run_openftl(["nvme", "zones", "list", &served.address]).failed();
    no_zones.saying(&["has no zoned namespace", "fix:"]);
    served.server.stop();
    run_openftl(["check", &segments.disk()]).succeeded().printing(&["2 segments that hold anything"]);
}

/// An error of what was asked for, that says `words` and what to do.
#[track_caller]
fn is_wrong(ended: Ended, words: &[&str]) {
    let ended = ended.failed().saying(words);
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    assert!(ended.stderr.contains("fix:"), "{ended}");
}

#[test]
fn segments_that_cannot_be_are_refused_before_anything_is_made() {
    let refused = |from: &str, to: &str, said: &[&str]| {
        let segments = Segments::with(&[(from, to)]);
        is_wrong(segments.create(), said);
        assert!(!segments.path("segments.oftl").exists());
    };
    let (width, limit) = ("segment_width = 3", "max_open_segments = 4");
    refused(width, "segment_width = 0", &["segment_width = 0", "1 to 8 parallel units", "choose"]);
    refused(width, "segment_width = 9", &["segment_width = 9", "1 to 8 parallel units", "choose"]);
    refused(width, "segment_width = -1", &["segment_width", "-1"]);
    refused(limit, "max_open_segments = 0", &["max_open_segments = 0: at least one", "choose a limit from 1 on"]);
    refused(limit, "max_open_segments = 5000", &["max_open_segments = 5000: 16 segments hold", "choose 1 to 16"]);
    refused(width, "zone_width = 3", &["ftl.zone_width is of use to zones only", "kind = \"zones\""]);
    refused(limit, "max_open_zones = 4", &["ftl.max_open_zones is of use to zones only"]);
    refused(limit, "placement = \"streams\"", &["ftl.placement is of no use to segments", "leave it away"]);
    refused(limit, "interface = \"files\"", &["files", "`blocks` or `zones`"]);
    refused("kind = \"segments\"", "kind = \"zones\"", &["ftl.segment_width is of use to segments only"]);
    refused("kind = \"segments\"", "kind = \"block\"", &["ftl.segment_width is of use to segments only"]);
    refused("kind = \"segments\"", "", &["ftl.segment_width is of use to segments only", "kind = \"segments\""]);
    refused("capacity = \"48MiB\"", "capacity = \"0\"", &["capacity = 0", "choose a size"]);
    refused(
        "capacity = \"48MiB\"",
        "capacity = \"48MiB\"\nover_provisioning = \"10%\"",
        &["media.over_provisioning = \"10%\"", "of no use to segments", "leave it away"],
    );
    let divided = "[[namespace]]\nname = \"logs\"\nkind = \"block\"\ncapacity = \"16MiB\"\n[host]";
    let segments = Segments::with(&[("capacity = \"48MiB\"\n", ""), ("[host]", divided)]);
    is_wrong(segments.create(), &["ftl.kind = \"segments\"", "segments have a whole device"]);
    let segments = Segments::new();
    let flags = ["create", &segments.disk(), "--drive", &segments.toml(), "--over-provisioning", "10%"];
    is_wrong(run_openftl(flags), &["--over-provisioning", "of no use to segments"]);
}

#[test]
fn segments_are_measured_beside_a_block_drive_and_loads_that_overwrite_are_refused() {
    let segments = Segments::new();
    let toml = segments.toml();
    let bench = |words: &[&str]| run_openftl([&["bench", "--drive", &toml, "--warm-up", "0"], words].concat());
    is_wrong(bench(&["--workload", "uniform"]), &["uniform overwrites blocks", "segments or log-structured-fs"]);
    let object: serde_json::Value =
        serde_json::from_str(&bench(&["--workload", "segments:1", "--drive-writes", "1", "--json"]).succeeded().stdout)
            .unwrap();
    assert_eq!(object["programmed"]["zones"], object["host_blocks_written"], "{object}");
}

#[test]
fn a_drive_of_segments_is_served_as_nothing_that_it_is_not() {
    let segments = Segments::new();
    segments.create().succeeded();
    let disk = segments.disk();
    let nbd = format!("unix:{}", text(&segments.path("refused")));
    let nvme = ["--nvme-tcp", "127.0.0.1:0", "--run", "true"];
    let serve = |words: &[&str]| run_openftl([&["serve"], words].concat());
    is_wrong(serve(&[&disk, "--nbd", &nbd]), &["no NVMe host reaches", "--nvme-tcp"]);
    let both = [&[disk.as_str(), "--nbd", &nbd], &nvme[..]].concat();
    is_wrong(serve(&both), &["no block namespace", "leave --nbd away"]);
    let described = |toml: &str| serve(&[&[disk.as_str(), "--drive", toml], &nvme[..]].concat());
    let wide = segments.other("segment_width = 3", "segment_width = 4");
    is_wrong(described(&wide), &["has segment_width = 3, asked for 4", "leave segment_width away"]);
    let limited = segments.other("max_open_segments = 4", "max_open_segments = 5");
    is_wrong(described(&limited), &["max_open_segments = 5", "4 at most", "leave it away"]);
    let limited = segments.other("max_open_segments = 4", "max_open_segments = 0");
    is_wrong(described(&limited), &["max_open_segments = 0", "at least one", "leave it away"]);
    let of_blocks = "[media]\nprofile = \"cosmos\"\nstore = \"file\"\npath = \"segments.oftl\"\n";
    for kind in ["", "[ftl]\nkind = \"block\"\n"] {
        let toml = segments.file("blocks.toml", format!("{of_blocks}{kind}").as_bytes());
        is_wrong(described(&toml), &["segments.oftl is a segment drive", "of a block drive", "leave --drive away"]);
    }
    let of_zones = segments.file("zones.toml", format!("{of_blocks}[ftl]\nkind = \"zones\"\n").as_bytes());
    is_wrong(described(&of_zones), &["is a segment drive", "ftl.kind = \"zones\""]);
    described(&segments.toml()).succeeded();
}

#[test]
fn a_block_drive_is_not_served_as_segments() {
    let drive = Drive::create();
    let segments = Segments::new();
    let served = run_openftl(["serve", drive.file(), "--drive", &segments.toml(), "--nvme-tcp", "127.0.0.1:0"]);
    is_wrong(served, &["disk.oftl is a block drive", "ftl.kind = \"segments\"", "leave --drive away"]);
    drive.check();
}
