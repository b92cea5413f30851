//! `openftl nvme` against a served drive, against targets that are none, and with input that makes no sense.

use crate::drive::{openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
pub use crate::nvme_host::SUBSYSTEM as NQN;
use crate::pattern::random_bytes;
use crate::program::{Ended, run};
use crate::server::Server;
use serde_json::Value;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What the host sees of it.
pub const CAPACITY_BYTES: u64 = 64 << 20;

/// A drive in memory that NVMe hosts reach.
pub struct Target {
    server: Server,
    /// Where it listens.
    pub address: String,
    /// For what a test writes.
    pub folder: TempDir,
}

impl Target {
    /// Serves one of [`CAPACITY_BYTES`], with more flags.
    pub fn serve(flags: &[&str]) -> Target {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let drive = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant", "--nvme-tcp", "127.0.0.1:0"];
        let server = Server::start(&[&drive, flags].concat(), &folder.path().join("socket"));
        let address = server.nvme_address();
        Target { server, address, folder }
    }

    /// Waits until the server says these words.
    pub fn says(&self, words: &str) {
        self.server.says(words);
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).expect("room for a file");
        path
    }

    /// `openftl nvme` with this command and these words, on this target.
    pub fn run(&self, command: &str, words: &[&str]) -> Ended {
        run_openftl([&["nvme", command, &self.address], words].concat())
    }

    pub fn json(&self, command: &str, words: &[&str]) -> Value {
        let ended = self.run(command, &[words, &["--json"]].concat()).succeeded();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"))
    }

    /// Expects that the command is refused as wrong, saying these words and what to do.
    pub fn refuses(&self, command: &str, words: &[&str], said: &[&str]) {
        let ended = self.run(command, words).failed().saying(said);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(ended.stderr.contains("fix: "), "{ended}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let target = Target::serve(&[]);
    let bytes = random_bytes(1, 3 << 20);
    let input = target.file("input", &bytes);
    let output = target.folder.path().join("output");
    for flags in [&[][..], &["--fua", "--header-digest", "--data-digest"], &["--data-digest"]] {
        let place = ["--nqn", NQN, "--namespace", "1", "--offset", "5MiB"];
        let words = [&place[..], &["--input", text(&input)], flags].concat();
        target.run("write", &words).succeeded().printing(&["3 MiB are written", "from offset 5 MiB"]);
        let digests: Vec<&str> = flags.iter().copied().filter(|flag| flag.ends_with("digest")).collect();
        let words = [&place[..], &["--length", "3MiB", "--output", text(&output)], &digests[..]].concat();
        target.run("read", &words).succeeded().printing(&["3 MiB of namespace 1"]);
        assert!(std::fs::read(&output).unwrap() == bytes, "{flags:?}");
    }
    // All of it, of which most was never written.
    target.run("read", &["--output", text(&output)]).succeeded();
    let all = std::fs::read(&output).unwrap();
    assert_eq!(all.len() as u64, CAPACITY_BYTES);
    assert!(all[5 << 20..8 << 20] == bytes && all[..5 << 20].iter().all(|byte| *byte == 0));
}

#[test]
fn a_write_says_how_long_its_data_live_to_a_drive_that_heeds_it() {
    let bytes = random_bytes(3, 64 << 10);
    let check = |placement: &str, heeded: [&str; 2], refused: &[([&str; 2], &str)]| {
        let target = Target::serve(&["--placement", placement]);
        let input = target.file("input", &bytes);
        let output = target.folder.path().join("output");
        let words = ["--input", text(&input)];
        target.run("write", &[&words[..], &heeded].concat()).succeeded().printing(&["64 KiB are written"]);
        target.run("read", &["--length", "64KiB", "--output", text(&output)]).succeeded();
        assert!(std::fs::read(&output).unwrap() == bytes);
        for (flags, said) in refused {
            target.refuses("write", &[&words[..], flags].concat(), &[said]);
        }
    };
    let no_stream = (["--stream", "3"], "--stream: namespace 1 takes no streams");
    let no_identifier = (["--placement", "3"], "--placement: namespace 1 takes no placement identifiers");
    check("streams", ["--stream", "40000"], &[no_identifier]);
    check("fdp", ["--placement", "7"], &[no_stream, (["--placement", "8"], "namespace 1 has no such identifier")]);
    check("hot-cold", ["--offset", "0"], &[no_stream, no_identifier]);
}

#[test]
fn a_drive_whose_flash_is_another_server_s_outlives_a_kill() {
    let flash = Target::serve(&["--open-channel", "cosmos"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let elsewhere = ["serve", "--device", &flash.address, "--nvme-tcp", "127.0.0.1:0"];
    let serve = |flags: &[&str]| Server::start(&[&elsewhere, flags].concat(), &folder.path().join("socket"));
    let server = serve(&["--format-device", "--capacity", "256MiB"]);
    let bytes = random_bytes(2, 8 << 20);
    let (input, output) = (flash.file("input", &bytes), flash.folder.path().join("output"));
    let written = ["nvme", "write", &server.nvme_address(), "--offset", "4KiB", "--input", text(&input), "--fua"];
    run_openftl(written).succeeded();
    server.kill();
    let server = serve(&[]);
    server.says("recovered after a crash");
    let read =
        ["nvme", "read", &server.nvme_address(), "--offset", "4KiB", "--length", "8MiB", "--output", text(&output)];
    run_openftl(read).succeeded();
    assert!(std::fs::read(&output).unwrap() == bytes, "what was written is on the other server's flash");
    server.interrupt().succeeded();
}

#[test]
fn a_server_that_loses_its_flash_ends_the_command_that_it_runs() {
    let flash = Target::serve(&["--open-channel", "cosmos"]);
    let input = flash.file("input", &random_bytes(3, 8 << 20));
    let process = flash.folder.path().join("process");
    let script = format!(
        "kill -9 {}; {} nvme write $OPENFTL_NVME_TCP --input {} --fua; echo $$ > {}; kill -TERM $PPID; exec sleep 1000",
        flash.server.child().id(),
        openftl(),
        text(&input),
        text(&process),
    );
    let elsewhere = ["serve", "--device", &flash.address, "--format-device", "--capacity", "256MiB"];
    let ended = run_openftl([&elsewhere[..], &["--nvme-tcp", "127.0.0.1:0", "--run", &script]].concat()).failed();
    assert_eq!(ended.saying(&["the link to the device behind the drive was cut", "fix: mend"]).status.code(), Some(1));
    let process = std::fs::read_to_string(&process).expect("the command came so far");
    assert!(!Path::new("/proc").join(process.trim()).exists(), "the command is still there");
}

#[test]
fn a_device_without_a_drive_on_it_is_not_taken_for_one() {
    let flash = Target::serve(&["--open-channel", "cosmos"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let nbd = format!("unix:{}", text(&folder.path().join("socket")));
    let serve = |words: &[&str]| run_openftl([&["serve", "--nbd", &nbd, "--device"], words].concat()).failed();
    serve(&[&flash.address]).saying(&["holds no drive", "--format-device"]);
    serve(&[&flash.address, "--device-namespace", "1"]).saying(&["namespace 1 is no Open-Channel namespace"]);
    serve(&[&flash.address, "--device-nqn", "nqn.2024-01.org.example:other"]).saying(&["Connect"]);
    serve(&["127.0.0.1:1"]).saying(&["127.0.0.1:1"]);
}

#[test]
fn pipes_carry_blocks_both_ways() {
    let target = Target::serve(&[]);
    let (openftl, address) = (openftl(), &target.address);
    let piped = |line: String| run("sh", ["-c", &line]);
    piped(format!("yes mud | head -c 1052672 | {openftl} nvme write {address} --offset 8KiB")).succeeded();
    let read = format!("{openftl} nvme read {address} --offset 8KiB --length 1052672");
    let ended = piped(read.clone()).succeeded();
    assert!(ended.stdout == "mud\n".repeat(1_052_672 / 4), "{} bytes of another kind", ended.stdout.len());
    // A reader that has enough is no failure.
    let ended = piped(format!("{read} | head -c 8 && echo enough")).succeeded();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("mud\nmud\nenough\n", ""));
    // What came before the half block is there.
    let ended = piped(format!("yes sky | head -c 5000 | {openftl} nvme write {address}")).failed();
    ended.saying(&["ends inside a block", "5000 bytes", "fix: "]);
    piped(format!("head -c 0 /dev/null | {openftl} nvme write {address}")).succeeded().printing(&["0 B"]);
}

#[test]
fn a_target_says_what_it_offers() {
    let target = Target::serve(&[]);
    let (_, port) = target.address.split_once(':').unwrap();
    let line = format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {NQN}");
    target.run("discover", &[]).succeeded().printing(&[&line]);
    let offer = target.json("discover", &[]);
    let record = &offer["records"][0];
    assert_eq!(offer["records"].as_array().unwrap().len(), 1, "{offer}");
    assert_eq!((record["subsystem_nqn"].as_str(), record["port"].as_str()), (Some(NQN), Some(port)));
}

#[test]
fn a_controller_says_what_it_is_and_how_it_is() {
    let target = Target::serve(&[]);
    target.run("write", &["--input", "/dev/zero", "--length", "4MiB", "--fua"]).succeeded();
    target.run("identify", &["--nqn", NQN]).succeeded().printing(&[NQN, "Namespace 1, block", "64 MiB", "Health"]);
    let found = target.json("identify", &["--namespace", "1"]);
    let controller = &found["controller"];
    assert_eq!(controller["model"].as_str(), Some("OpenFTL"), "{found}");
    assert_eq!(controller["transfer_bytes_max"].as_u64(), Some(1 << 20));
    let namespace = &found["namespaces"][0];
    assert_eq!((namespace["id"].as_u64(), namespace["kind"].as_str()), (Some(1), Some("block")), "{found}");
    assert_eq!((namespace["block_bytes"].as_u64(), namespace["blocks"].as_u64()), (Some(4096), Some(16_384)));
    assert!(namespace["open_channel"].is_null(), "{found}");
    assert!(found["health"]["written_bytes"].as_u64().is_some_and(|bytes| bytes >= 4 << 20), "{found}");
    assert!(found["ocp"]["media_bytes_written"].as_u64().is_some_and(|bytes| bytes >= 4 << 20), "{found}");
}

#[test]
fn a_bench_moves_what_its_workload_says() {
    let target = Target::serve(&[]);
    for (workload, reads, writes) in [
        ("read", true, false),
        ("write", false, true),
        ("mixed", true, true),
        ("sequential-read", true, false),
        ("sequential-write", false, true),
    ] {
        for (depth, block) in [("1", "4KiB"), ("64", "16KiB"), ("16", "1MiB")] {
            let words = ["--workload", workload, "--depth", depth, "--block", block, "--seconds", "0.1"];
            let found = target.json("bench", &words);
            let depth: u64 = depth.parse().unwrap();
            assert!(found["requests"].as_u64().is_some_and(|requests| requests >= depth), "{found}");
            assert!(found["iops"].as_f64().is_some_and(|rate| rate > 0.0), "{found}");
            assert!(found["latency_ns"]["p999"].as_u64().is_some_and(|nanos| nanos > 0), "{found}");
            if depth > 1 {
                assert_eq!((found["reads"].is_object(), found["writes"].is_object()), (reads, writes), "{found}");
            }
        }
    }
    let words = ["--workload", "mixed", "--depth", "8", "--seconds", "0.1", "--header-digest", "--data-digest"];
    target.run("bench", &words).succeeded().printing(&["IOPS", "reads", "writes", "p99.9"]);
}

#[test]
fn names_and_places_that_are_not_there_are_refused_with_what_to_do() {
    let target = Target::serve(&["--allow-host", "nqn.2026-11.org.openftl:host"]);
    let half_block = target.file("half", &[1; 5000]);
    let too_long = target.file("long", &vec![1; (1 << 20) + 4096]);
    for (command, words, said) in [
        ("identify", &["--nqn", "nqn.2026-11.org.openftl:tape"][..], &["nqn.2026-11.org.openftl:tape", "discover"][..]),
        ("identify", &["--host-nqn", "nqn.2026-11.org.example:stranger"], &["Connect Invalid Host", "--host-nqn"]),
        ("identify", &["--namespace", "7"], &["no namespace 7", "1"]),
        ("read", &["--namespace", "7"], &["no namespace 7", "identify"]),
        ("read", &["--offset", "1000"], &["--offset", "4 KiB"]),
        ("read", &["--length", "1000"], &["--length", "4 KiB"]),
        ("read", &["--offset", "63MiB", "--length", "2MiB"], &["beyond the end", "64 MiB"]),
        ("read", &["--offset", "65MiB"], &["beyond the end", "64 MiB"]),
        ("write", &["--input", text(&half_block)], &["4 KiB"]),
        ("write", &["--input", text(&too_long), "--offset", "63MiB"], &["beyond the end"]),
        ("write", &["--input", text(&too_long), "--length", "4MiB"], &["--length", "leave --length away"]),
        ("bench", &["--block", "6000"], &["--block", "4 KiB"]),
        ("bench", &["--block", "2MiB"], &["--block", "1 MiB"]),
        ("bench", &["--block", "0"], &["--block"]),
        ("bench", &["--depth", "5000"], &["--depth", "1023"]),
        ("identify", &["--dhchap-key", "secret"], &["--dhchap-key", "gen-key"]),
    ] {
        target.refuses(command, words, said);
    }
    let nowhere = target.folder.path().join("no/such/file");
    let ended = target.run("read", &["--length", "4KiB", "--output", text(&nowhere)]).failed();
    assert_eq!(ended.saying(&["--output", "no/such/file"]).status.code(), Some(2));
    let ended = target.run("write", &["--input", text(&nowhere)]).failed();
    assert_eq!(ended.saying(&["--input", "no/such/file"]).status.code(), Some(2));
    // And still serves.
    target.run("read", &["--length", "4KiB", "--output", "/dev/null"]).succeeded();
}

/// Somebody who listens, and does this with whoever connects.
fn stranger(act: impl Fn(TcpStream) -> Option<TcpStream> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address").to_string();
    // Ends with the test's process.
    std::thread::spawn(move || listener.incoming().flatten().filter_map(act).collect::<Vec<_>>());
    address
}

#[test]
fn who_does_not_speak_nvme_is_told_apart_from_who_says_nothing_and_who_is_not_there() {
    let check = |address: &str, patience: &str, code: i32, words: &[&str]| {
        for command in ["discover", "identify", "bench"] {
            let ended = run_openftl(["nvme", command, address, "--timeout", patience]).failed().saying(words);
            assert_eq!(ended.status.code(), Some(code), "{ended}");
        }
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    check(&free, "3min", 2, &["nobody listens", &free, "fix: "]);
    let talker = stranger(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok().map(|()| stream));
    check(&talker, "3min", 1, &["does not speak NVMe over TCP", "fix: "]);
    let leaver = stranger(|_| None);
    check(&leaver, "3min", 1, &["does not speak NVMe over TCP", "fix: "]);
    let listener = stranger(Some);
    check(&listener, "300ms", 1, &["no answer within 300ms", "fix: "]);
    // However long an answer may take: who speaks NVMe says so at once.
    let ended = run_openftl(["nvme", "identify", &listener, "--timeout", "3min"]).failed();
    ended.saying(&["no answer within 5s", "fix: "]);
}

#[test]
fn a_generated_key_is_the_one_that_nvme_cli_generates() {
    if !runs_here(&[Need::Program("nvme")]) {
        return;
    }
    for (hash, number, bytes) in [("sha256", "1", 32), ("sha384", "2", 48), ("sha512", "3", 64)] {
        let secret = "5a".repeat(bytes);
        let ours = run_openftl(["nvme", "gen-key", "--hash", hash, "--secret", &secret, "--nqn", NQN]).succeeded();
        let bytes = bytes.to_string();
        let words = ["gen-dhchap-key", "--secret", &secret, "--hmac", number, "--key-length", &bytes, "--nqn", NQN];
        assert_eq!(ours.stdout, run("nvme", words).succeeded().stdout);
        let random = run_openftl(["nvme", "gen-key", "--hash", hash]).succeeded().stdout;
        run("nvme", ["check-dhchap-key", "--key", random.trim()]).succeeded();
    }
}

#[test]
fn keys_from_gen_key_show_host_and_controller_to_each_other() {
    const HOST: &str = "nqn.2026-11.org.openftl:host";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let key = |name: &str, hash: &str| {
        let path = folder.path().join(name);
        let secret = run_openftl(["nvme", "gen-key", "--hash", hash]).succeeded().stdout;
        std::fs::write(&path, &secret).expect("room for a key");
        (format!("@{}", path.display()), secret)
    };
    let (mine, my_secret) = key("mine", "sha256");
    let (theirs, their_secret) = key("theirs", "sha512");
    let (another, _) = key("another", "sha384");
    let known = folder.path().join("hosts");
    std::fs::write(&known, format!("{HOST} {my_secret}controller {their_secret}")).expect("room for keys");
    let target = Target::serve(&["--dhchap-key", text(&known)]);
    let input = target.file("input", &random_bytes(2, 64 << 10));
    let words = ["--dhchap-key", &mine, "--dhchap-ctrl-key", &theirs];
    target.run("identify", &words).succeeded();
    target.run("identify", &words[..2]).succeeded();
    target.run("write", &[&words[..], &["--input", text(&input)]].concat()).succeeded();
    target.run("bench", &[&words[..], &["--seconds", "0.1"]].concat()).succeeded();
    target.refuses("identify", &[], &["authenticate themselves", "--dhchap-key"]);
    target.refuses("identify", &["--dhchap-key", &another], &["authentication", "failed", "--dhchap-key"]);
    let wrong = ["--dhchap-key", &mine, "--dhchap-ctrl-key", &another];
    target.refuses("identify", &wrong, &["does not know the controller secret"]);
    target.refuses("identify", &["--host-nqn", "nqn.2026-11.org.example:stranger"], &["Connect Invalid Host"]);
}
