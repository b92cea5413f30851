//! What `openftl ctl` does to a served drive: its power goes and comes back, blocks, programs and chunks go bad, it lies.

use crate::client::{Client, NbdError};
use crate::drive::{CAPACITY_BYTES, Drive, openftl, run_openftl};
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::pattern::random_bytes;
use crate::program::{Running, run, wait_for};
use crate::server::Server;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

const BLOCK_BYTES: usize = 4096;

/// The protocol's EIO.
const IO_ERROR: NbdError = NbdError(5);

fn offset(block: u64) -> u64 {
    block * BLOCK_BYTES as u64
}

fn write_blocks(client: &mut Client, first: u64, blocks: usize, seed: u64) -> Vec<u8> {
    let bytes = random_bytes(seed, blocks * BLOCK_BYTES);
    client.write(offset(first), &bytes).expect("a write succeeds");
    bytes
}

/// Writes blocks and brings them to the medium, where they can be made to fail.
fn write_to_medium(drive: &Drive, server: &Server, first: u64, blocks: usize, seed: u64) -> Vec<u8> {
    let mut client = server.client();
    let bytes = write_blocks(&mut client, first, blocks, seed);
    client.flush().unwrap();
    drive.ctl(&["power-cycle"]).succeeded();
    bytes
}

#[test]
fn a_power_cut_drops_every_client_and_takes_exactly_what_was_not_flushed() {
    let drive = Drive::create();
    let server = drive.serve();
    let (mut client, idle) = (server.client(), server.client());
    let flushed = write_blocks(&mut client, 10, 7, 1);
    client.flush().unwrap();
    // Less than a write unit: it waits in the write buffer for more.
    write_blocks(&mut client, 11, 1, 2);
    write_blocks(&mut client, 100, 2, 3);

    let cut = drive.ask(&["power-cut"]);
    assert_eq!((&cut["power"], &cut["connections_dropped"]), (&"off".into(), &2.into()), "{cut}");
    client.ends_disconnected();
    idle.ends_disconnected();
    server.turns_clients_away();
    server.turns_clients_away();

    let on = drive.ask(&["power-on"]);
    assert_eq!((&on["power"], &on["recovery"]["clean"]), (&"on".into(), &false.into()), "{on}");
    assert_eq!(on["clients_turned_away"], 2, "{on}");
    let mut client = server.client();
    assert!(
        client.read(offset(10), flushed.len()).unwrap() == flushed,
        "what was flushed is there, older than what was not"
    );
    assert!(client.read(offset(100), 2 * BLOCK_BYTES).unwrap().iter().all(|byte| *byte == 0));
    let said = server.says("The power is on: recovered after a crash");
    assert!(said.contains("The power is off. Connections dropped: 2"), "{said}");
    assert_eq!(said.matches("turned away").count(), 1, "{said}");
    let ended = server.stop();
    assert!(ended.stdout.contains("power cuts"), "{ended}");
    drive.check();
}

#[test]
fn a_power_cut_leaves_requests_without_a_reply() {
    let drive = Drive::create();
    let server = drive.serve_with(&["--timing", "wall-clock"]);
    let mut client = server.client();
    // More than the flash writes before the cut; the flush behind it cannot end before.
    for number in 0..24 {
        client.send_write(number << 20, &random_bytes(number, 1 << 20), 0).unwrap();
    }
    client.send_header(crate::client::FLUSH, 0, 0, 0).unwrap();
    wait_for("all writes to be acknowledged", || (drive.ask(&["stats"])["writes"] == 24).then_some(()));
    let cut = drive.ask(&["power-cut"]);
    let flushes = drive.ask(&["stats"])["flushes"].as_u64().unwrap();
    assert_eq!(cut["requests_under_way"].as_u64().unwrap() + flushes, 1, "the flush has ended or not: {cut}");
    client.ends_disconnected();
    drive.ctl(&["power-on"]).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn a_power_cut_after_so_many_writes_or_flushes_strikes_at_the_same_one_each_time() {
    let drive = Drive::create();
    let server = drive.serve();
    // Of single blocks, each flushed, until the power is gone; gives how many were answered.
    let answered = |flags: &[&str]| {
        let mut cut = Running::start(&openftl(), [&["ctl", drive.file(), "power-cut"], flags].concat());
        wait_for("the cut to be armed", || drive.ask(&["stats"])["cut_waits"].as_bool().filter(|waits| *waits));
        let mut client = server.client();
        let mut count = 0;
        let mut write_and_flush = |block: u64| {
            client.send_write(offset(block), &random_bytes(block, BLOCK_BYTES), 0)?;
            client.receive()?.1.expect("a write that is answered");
            client.send_header(crate::client::FLUSH, 0, 0, 0)?;
            client.receive()
        };
        while write_and_flush(count).is_ok() {
            count += 1;
        }
        wait_for("the answer", || cut.ended()).succeeded();
        drive.ctl(&["power-on"]).succeeded();
        count
    };
    for _ in 0..2 {
        // The answer to the last one is lost with the power.
        assert_eq!(answered(&["--after-writes", "20"]), 19);
        assert_eq!(answered(&["--after-flushes", "7"]), 6);
    }
    let words = ["ctl", drive.file(), "power-cut", "--after-commands", "1000000"];
    let mut waits = Running::start(&openftl(), words);
    let armed = || drive.ask(&["stats"])["cut_waits"].as_bool().filter(|waits| *waits);
    wait_for("the cut to be armed", armed);
    // One that cannot be takes nobody's place.
    let mut lines = BufReader::new(UnixStream::connect(format!("{}.ctl", drive.file())).unwrap());
    let impossible = b"{\"version\":1,\"command\":\"power-cut\",\"seed\":1,\"after\":{\"writes\":9}}\n";
    lines.get_mut().write_all(impossible).unwrap();
    let mut answer = String::new();
    lines.read_line(&mut answer).unwrap();
    assert!(answer.contains("malformed"), "{answer}");
    assert!(waits.ended().is_none() && armed().is_some());
    drive.ctl(&["power-cycle"]).succeeded();
    wait_for("the answer", || waits.ended()).failed().saying(&["another power cut was asked for"]);
    server.stop();
    drive.check();
}

#[test]
fn a_drive_in_memory_comes_back_as_its_device_held_it() {
    let folder = tempfile::tempdir().unwrap();
    let control = format!("unix:{}", text(&folder.path().join("control")));
    let memory = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant", "--control", &control];
    let server = Server::start(&memory, &folder.path().join("socket"));
    let mut client = server.client();
    let flushed = write_blocks(&mut client, 0, 9, 1);
    client.flush().unwrap();
    for _ in 0..3 {
        write_blocks(&mut client, 0, 1, 2);
        run_openftl(["ctl", &control, "power-cycle"]).succeeded();
        client = server.client();
        assert!(client.read(0, flushed.len()).unwrap() == flushed);
    }
    drop(client);
    server.stop();
}

#[test]
fn while_the_power_is_off_nothing_else_can_be_done_and_the_file_can_be_looked_at() {
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    let flushed = write_blocks(&mut client, 0, 100, 1);
    client.flush().unwrap();
    drive.ctl(&["power-on"]).failed().saying(&["the power is on already"]);
    drive.ctl(&["power-cut"]).succeeded();
    for words in
        [&["power-cut"][..], &["power-cycle"], &["fail-read", "0"], &["fail-program"], &["lie-about-flush", "on"]]
    {
        let ended = drive.ctl(words).failed().saying(&["the power is off", "power-on"]);
        assert_eq!(ended.status.code(), Some(1), "{ended}");
    }
    let stats = drive.ask(&["stats"]);
    assert_eq!(
        (&stats["power"], &stats["power_cuts"], &stats["flushes"]),
        (&"off".into(), &1.into(), &1.into()),
        "{stats}"
    );
    // Nobody holds the file. Looking at it changes nothing, and a copy is a drive of its own.
    let copy = drive.beside("copy.oftl");
    fs::copy(drive.file(), &copy).unwrap();
    assert_eq!(drive.inspect()["profile"], "cosmos");
    assert!(fs::read(&copy).unwrap() == fs::read(drive.file()).unwrap());
    run_openftl(["check", text(&copy)]).succeeded();
    drive.ctl(&["power-on"]).succeeded();
    assert!(server.client().read(0, flushed.len()).unwrap() == flushed);
    server.stop();
    drive.check();
}

#[test]
fn a_drive_that_is_stopped_without_power_recovers_the_next_time() {
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    let flushed = write_blocks(&mut client, 0, 10, 1);
    client.flush().unwrap();
    drive.ctl(&["power-cut"]).succeeded();
    let ended = server.stop();
    assert!(ended.stdout.contains("as the power cut left it"), "{ended}");
    let server = drive.serve();
    server.says("recovered after a crash");
    assert!(server.client().read(0, flushed.len()).unwrap() == flushed);
    server.stop();
    drive.check();
}

#[test]
fn a_drive_that_cannot_be_recovered_stays_off_until_its_file_is_mended() {
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    let flushed = write_blocks(&mut client, 0, 10, 1);
    client.flush().unwrap();
    drive.ctl(&["power-cut"]).succeeded();
    let copy = drive.beside("copy.oftl");
    fs::copy(drive.file(), &copy).unwrap();
    fs::write(drive.file(), random_bytes(1, 1 << 20)).unwrap();
    for _ in 0..2 {
        drive.ctl(&["power-on"]).failed().saying(&["disk.oftl", "no drive:"]);
        server.turns_clients_away();
    }
    fs::copy(&copy, drive.file()).unwrap();
    drive.ctl(&["power-on"]).succeeded();
    assert!(server.client().read(0, flushed.len()).unwrap() == flushed);
    server.stop();
    drive.check();
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_until_it_is_overwritten_or_trimmed() {
    let drive = Drive::create();
    let server = drive.serve();
    let bytes = write_to_medium(&drive, &server, 0, 16, 1);
    let failed = drive.ask(&["fail-read", "3"]);
    assert_eq!(failed["block"], 3, "{failed}");
    drive.ctl(&["fail-read", "5"]).succeeded();
    let mut client = server.client();
    assert_eq!(client.read(offset(3), BLOCK_BYTES), Err(IO_ERROR));
    assert_eq!(client.read(0, 16 * BLOCK_BYTES), Err(IO_ERROR));
    assert!(client.read(0, 3 * BLOCK_BYTES).unwrap() == bytes[..3 * BLOCK_BYTES], "the others are untouched");
    let again = write_blocks(&mut client, 3, 1, 2);
    client.trim(offset(5), BLOCK_BYTES as u32).unwrap();
    assert!(client.read(offset(3), BLOCK_BYTES).unwrap() == again);
    assert!(client.read(offset(5), BLOCK_BYTES).unwrap().iter().all(|byte| *byte == 0));
    assert!(drive.ask(&["stats"])["statistics"]["read_failures"].as_u64().unwrap() >= 2);
    server.stop();
    drive.check();
}

#[test]
fn a_corrupted_block_is_an_error_and_never_wrong_data() {
    let drive = Drive::create();
    let server = drive.serve();
    let bytes = write_to_medium(&drive, &server, 0, 4, 1);
    drive.ctl(&["corrupt", "2"]).succeeded();
    let mut client = server.client();
    assert_eq!(client.read(offset(2), BLOCK_BYTES), Err(IO_ERROR));
    assert!(client.read(0, 2 * BLOCK_BYTES).unwrap() == bytes[..2 * BLOCK_BYTES]);
    server.stop();
    run_openftl(["check", drive.file()]).failed().saying(&["unsound"]);
}

#[test]
fn a_block_that_is_not_on_the_medium_cannot_be_made_to_fail() {
    let drive = Drive::create();
    let server = drive.serve();
    write_blocks(&mut server.client(), 0, 1, 1);
    for command in ["fail-read", "corrupt"] {
        let check = |block: &str, code, words: &[&str]| {
            let ended = drive.ctl(&[command, block]).failed().saying(words);
            assert_eq!(ended.status.code(), Some(code), "{ended}");
        };
        check("0", 1, &["logical block 0 is still in the write buffer", "power-cycle"]);
        check("1", 1, &["logical block 1 was never written", "write it first"]);
        let blocks = CAPACITY_BYTES / BLOCK_BYTES as u64;
        check(&blocks.to_string(), 2, &["not on this drive of 131072 blocks", "counted from 0"]);
        check(&u64::MAX.to_string(), 2, &["18446744073709551615"]);
    }
    server.stop();
}

#[test]
fn programs_that_fail_cost_no_data() {
    let drive = Drive::create();
    let server = drive.serve();
    write_to_medium(&drive, &server, 0, 256, 1);
    let mut client = server.client();
    write_blocks(&mut client, 4096, 64, 3);
    client.flush().unwrap();
    // The chunks that the drive will go on writing to: of two that a power cut leaves open in a group, the roomier one is for
    // garbage collection.
    drive.ctl(&["power-cut"]).succeeded();
    let facts = drive.inspect();
    let chunks = facts["chunks"].as_array().unwrap().iter();
    let is_fuller = |chunk: &&Value| chunk["use"] == "open" && chunk["valid_blocks"].as_u64().unwrap() > 16;
    let open: Vec<&str> = chunks.filter(is_fuller).map(|chunk| chunk["chunk"].as_str().unwrap()).collect();
    drive.ctl(&["power-on"]).succeeded();
    drive.ctl(&["fail-program"]).succeeded();
    drive.ctl(&["fail-program", open[0]]).succeeded();
    let closed = drive.ask(&["fail-program", open[1], "--close"]);
    assert_eq!((&closed["chunk"], &closed["close"]), (&open[1].into(), &true.into()), "{closed}");
    let mut client = server.client();
    let bytes = write_blocks(&mut client, 1000, 1024, 2);
    client.flush().unwrap();
    let failures = drive.ask(&["stats"])["statistics"]["program_failures"].as_u64().unwrap();
    assert!(failures >= 2, "{failures} failures; two of the three may have met");
    drive.ctl(&["power-cycle"]).succeeded();
    assert!(server.client().read(offset(1000), bytes.len()).unwrap() == bytes);
    server.stop();
    drive.check();
}

#[test]
fn a_chunk_wears_as_it_is_told() {
    let drive = Drive::create();
    let server = drive.serve();
    let worn = drive.ask(&["wear", "g1p0c7", "2345"]);
    assert_eq!((&worn["resets"], &worn["endurance"]), (&2345.into(), &3000.into()), "{worn}");
    let ended = drive.ctl(&["wear", "g8p0c0", "1"]).failed().saying(&["g8p0c0", "8 groups of 1 parallel units"]);
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    server.stop();
    assert_eq!(drive.inspect()["wear"]["max"], 2345);
}

#[test]
fn a_drive_that_lies_about_flush_loses_what_was_flushed() {
    let drive = Drive::create();
    let server = drive.serve_with(&["--timing", "instant", "--lie-about-flush"]);
    server.says("lies about flush");
    let mut client = server.client();
    write_blocks(&mut client, 0, 1, 1);
    client.flush().unwrap();
    let durable = client.send_write(offset(1), &[1; BLOCK_BYTES], crate::client::FLAG_FUA).unwrap();
    assert_eq!(client.receive().unwrap(), (durable, Ok(())));
    // It goes on lying when its power comes back.
    drive.ctl(&["power-cycle"]).succeeded();
    assert_eq!(drive.ask(&["stats"])["lies_about_flush"], true);
    let mut client = server.client();
    assert!(client.read(0, 2 * BLOCK_BYTES).unwrap().iter().all(|byte| *byte == 0));

    drive.ctl(&["lie-about-flush", "off"]).succeeded();
    let kept = write_blocks(&mut client, 0, 1, 2);
    client.flush().unwrap();
    drive.ctl(&["power-cycle"]).succeeded();
    assert!(server.client().read(0, BLOCK_BYTES).unwrap() == kept);
    server.stop();
    drive.check();
}

#[test]
fn statistics_count_what_was_done() {
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    write_blocks(&mut client, 0, 64, 1);
    client.flush().unwrap();
    client.read(0, BLOCK_BYTES).unwrap();
    let stats = drive.ask(&["stats"]);
    for (name, count) in [("writes", 1), ("reads", 1), ("flushes", 1), ("connections_open", 1), ("power_cuts", 0)] {
        assert_eq!(stats[name], count, "{name}: {stats}");
    }
    assert_eq!(stats["statistics"]["host_blocks_written"], 64, "{stats}");
    assert!(stats["waf"].as_f64().unwrap() >= 1.0 && stats["nand"]["programs"].as_u64().unwrap() >= 16, "{stats}");
    let text = drive.ctl(&["stats"]).succeeded().stdout;
    assert!(text.contains("The power is on") && text.contains("write amplification"), "{text}");
    server.stop();
}

#[test]
fn a_drive_that_nobody_serves_is_named_with_what_to_do() {
    let drive = Drive::create();
    let check = |drive: &str, words: &[&str]| {
        let ended = run_openftl(["ctl", drive, "stats"]).failed().saying(words);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
    };
    check(drive.file(), &["disk.oftl is not being served", "disk.oftl.ctl", "openftl serve"]);
    check("/nowhere/disk.oftl", &["/nowhere/disk.oftl"]);
    // A killed server leaves its socket; the next one replaces it.
    let server = drive.serve();
    server.kill();
    let socket = format!("{}.ctl", drive.file());
    assert!(fs::exists(&socket).unwrap());
    check(drive.file(), &["disk.oftl is not being served"]);
    check(&socket, &["nobody listens"]);
    let server = drive.serve();
    drive.ctl(&["stats"]).succeeded();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600, "its user's alone");
    server.stop();
    assert!(!fs::exists(&socket).unwrap(), "it goes with the server");
}

#[test]
fn a_control_socket_can_only_be_where_a_socket_can_be() {
    let drive = Drive::create();
    drive.refuses_to_serve(&["--control", "127.0.0.1:1"]).saying(&["--control", "127.0.0.1:1", "Unix socket"]);
    drive.refuses_to_serve(&["--control", "unix:"]).saying(&["--control", "path is missing"]);
    let (server, other) = (drive.serve(), Drive::create());
    let taken = format!("unix:{}.ctl", drive.file());
    other.refuses_to_serve(&["--control", &taken]).saying(&["another server", "--control"]);
    // No test could do without its drive because of this: it is served, and says what it cannot do.
    let long = other.beside(&"x".repeat(100));
    fs::create_dir(&long).unwrap();
    let far = long.join("disk.oftl");
    fs::copy(other.file(), &far).unwrap();
    let uncontrolled = Server::start(&["serve", text(&far), "--timing", "instant"], &other.beside("far"));
    let said = uncontrolled.says("cannot be controlled");
    assert!(
        said.contains("cannot be controlled") && said.contains("107 bytes") && said.contains("--control"),
        "{said}"
    );
    uncontrolled.stop();
    server.stop();
}

#[test]
fn garbage_on_the_control_socket_is_refused_and_disturbs_nobody() {
    let drive = Drive::create();
    let mut server = drive.serve();
    let connect = || UnixStream::connect(format!("{}.ctl", drive.file())).unwrap();
    let mut lines = BufReader::new(connect());
    for garbage in [&b"power-cut"[..], b"{}", b"\x00\xFF", b"{\"version\":1,\"command\":\"format\"}", b"[[[[[["] {
        lines.get_mut().write_all(&[garbage, b"\n"].concat()).unwrap();
        let mut answer = String::new();
        lines.read_line(&mut answer).unwrap();
        assert!(answer.contains("\"error\"") && answer.contains("malformed"), "{answer}");
    }
    let mut endless = connect();
    while endless.write_all(&[b'['; 1 << 16]).is_ok() {}
    let mut halfway = connect();
    halfway.write_all(b"{\"version\":1,\"command\":").unwrap();
    drop(halfway);
    server.stays_alive();
    assert_eq!(drive.ask(&["stats"])["power"], "on");
    lines.get_mut().write_all(b"{\"version\":1,\"command\":\"stats\"}\n").unwrap();
    let mut answer = String::new();
    lines.read_line(&mut answer).unwrap();
    assert!(answer.starts_with("{\"version\":1,\"ok\":{"), "{answer}");
    server.stop();
}

#[test]
fn several_operators_each_get_their_answer() {
    let drive = Drive::create();
    let server = drive.serve();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| drop(drive.ask(&["stats"]))));
        }
        for seed in 0..5_u64 {
            drive.ctl(&["power-cycle", "--seed", &seed.to_string()]).succeeded();
        }
    });
    // Two who want the power off: one of them comes too late, and is told so.
    let cuts = [0, 1].map(|_| {
        let words = ["ctl", drive.file(), "power-cut", "--seed", "3"];
        Running::start(&crate::drive::openftl(), words)
    });
    let succeeded = cuts.map(|cut| cut.wait().status.success());
    assert!(succeeded == [true, false] || succeeded == [false, true], "{succeeded:?}");
    assert_eq!(drive.ask(&["stats"])["power_cuts"], 6);
    drive.ctl(&["power-on"]).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn a_client_of_the_control_socket_that_waits_hears_of_the_servers_end() {
    let drive = Drive::create();
    let server = drive.serve();
    let mut control = UnixStream::connect(format!("{}.ctl", drive.file())).unwrap();
    control.write_all(b"{\"version\":1,\"command\":\"stats\"}\n").unwrap();
    server.stop();
    let mut said = String::new();
    control.read_to_string(&mut said).unwrap();
    assert!(said.is_empty() || said.contains("\"ok\""), "{said}");
}

#[test]
fn what_fio_has_flushed_is_there_after_power_cuts_in_the_middle_of_its_writes() {
    if !runs_here(&[Need::Program("fio")]) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let uri = format!("--uri={}", server.uri());
    let fixed = [
        "--name=job",
        "--thread",
        "--ioengine=nbd",
        &uri,
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--bs=8k",
        "--iodepth=32",
        "--randseed=7",
    ];
    let fio = |job: &[&str]| run("fio", [&fixed[..], job].concat());
    let flushed = ["--rw=randwrite", "--size=64m", "--verify=crc32c"];
    fio(&["--rw=randwrite", "--size=64m", "--verify=md5", "--end_fsync=1"]).succeeded();
    fio(&[&flushed[..], &["--do_verify=0", "--end_fsync=1"]].concat()).succeeded();
    for seed in 0..6_u64 {
        // Elsewhere on the drive, so that the flushed blocks stay as they are.
        let endless = ["--rw=randwrite", "--offset=128m", "--size=128m", "--time_based", "--runtime=600"];
        let mut writer = Running::start("fio", [&fixed[..], &endless].concat());
        let writes = || drive.ask(&["stats"])["writes"].as_u64().unwrap();
        let before = writes();
        wait_for("fio to write", || (writes() > before + 500).then_some(()));
        drive.ctl(&["power-cut", "--seed", &seed.to_string()]).succeeded();
        let ended = wait_for("fio to lose the drive", || writer.ended());
        assert!(!ended.status.success(), "{ended}");
        drive.ctl(&["power-on"]).succeeded();
        fio(&[&flushed[..], &["--verify_only=1"]].concat()).succeeded();
    }
    server.stop();
    drive.check();
}
