//! The log of a server: every line of it, and how many there may be.

use crate::client;
use crate::drive::{Drive, openftl, run_openftl};
use crate::mounted::text;
use crate::nvme_host::{NvmeHost, SUBSYSTEM};
use crate::pattern::random_bytes;
use crate::program::{Ended, Running, wait_for};
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::fabrics::{self, CONTROLLER_ID_ANY, Identity, QueueParameters, connect_data};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use zerocopy::IntoBytes;

const BLOCK_BYTES: usize = 4096;

const JSON: [&str; 6] = ["--timing", "instant", "--log-format", "json", "--log", "debug"];

/// The lines of a log in JSON, each of which has what every line has.
pub fn lines(log: &str) -> Vec<Value> {
    let line = |line: &str| -> Value {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let of = |name: &str| value[name].as_str().unwrap_or_else(|| panic!("no {name}: {line}"));
        // 2026-11-24T21:54:54.123456Z
        let shape: String = of("time").chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{line}");
        assert!(["error", "warn", "info", "debug", "trace"].contains(&of("level")), "{line}");
        assert!(!of("target").is_empty() && !of("message").is_empty(), "{line}");
        value
    };
    log.lines().map(line).collect()
}

/// The one line with all of these.
#[track_caller]
fn one<'l>(log: &'l [Value], wanted: &[(&str, Value)]) -> &'l Value {
    let is_it = |line: &&Value| wanted.iter().all(|(name, value)| line[*name] == *value);
    let found: Vec<&Value> = log.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{wanted:?} in {}", serde_json::to_string_pretty(log).unwrap());
    found[0]
}

#[test]
fn a_log_in_json_says_who_came_and_went_and_what_an_operator_did_to_the_drive() {
    let drive = Drive::create();
    let server = drive.serve_with(&[&JSON[..], &["--nvme-tcp", "127.0.0.1:0"]].concat());
    let mut client = server.client();
    client.write(0, &random_bytes(1, 9 * BLOCK_BYTES)).unwrap();
    client.flush().unwrap();
    let host = NvmeHost::connect(&server.nvme_address());
    drive.ctl(&["lie-about-flush", "on"]).succeeded();
    drive.ctl(&["lie-about-flush", "off"]).succeeded();
    drive.ctl(&["power-cut", "--torn"]).succeeded();
    client.ends_disconnected();
    host.ends_disconnected();
    server.turns_clients_away();
    drive.ctl(&["power-on"]).succeeded();
    let place = drive.ask(&["fail-read", "4"])["place"].clone();
    drive.ctl(&["fail-program", "--close"]).succeeded();
    drive.ctl(&["fail-read", "999999999"]).failed();
    let mut last = server.client();
    // Overwritten, the block is whole again.
    last.write(4 * BLOCK_BYTES as u64, &random_bytes(2, BLOCK_BYTES)).unwrap();
    last.flush().unwrap();
    let ended = server.stop();
    last.ends_disconnected();
    let log = lines(&ended.stderr);
    let is = |name: &'static str, value: &str| (name, Value::from(value));

    let me = format!("process {}", std::process::id());
    let opened: Vec<&Value> =
        log.iter().filter(|line| line["message"] == "connection opened" && line["protocol"] == "nbd").collect();
    assert_eq!(opened.len(), 2, "{ended}");
    assert_eq!((&opened[0]["peer"], &opened[0]["export"]), (&me.as_str().into(), &"disk".into()));
    let closed = |opened: &Value| {
        let wanted = [is("message", "connection closed"), ("connection", opened["connection"].clone())];
        one(&log, &wanted)["reason"].clone()
    };
    assert_eq!(closed(opened[0]), "the power was cut");
    assert_eq!(closed(opened[1]), "the server stops");
    let admin = one(&log, &[is("message", "connection opened"), is("protocol", "nvme-tcp"), ("queue", 0.into())]);
    assert_eq!((&admin["host"], &admin["subsystem"]), (&"nqn.2026-11.org.example:host".into(), &SUBSYSTEM.into()));
    assert!(admin["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{admin}");
    assert_eq!(closed(admin), "the power was cut");
    one(&log, &[is("message", "connection opened"), is("protocol", "nvme-tcp"), ("queue", 1.into())]);
    let refused = [is("message", "connection refused"), is("level", "warn"), is("peer", &me)];
    assert_eq!(one(&log, &refused)["reason"], "nothing is served there now");

    let fault = |name: &str| [is("target", "fault"), is("level", "warn"), is("fault", name)].to_vec();
    for on in [true, false] {
        let lie = [fault("lie-about-flush"), vec![("on", on.into()), is("drive", "disk")]].concat();
        one(&log, &lie);
    }
    one(&log, &[fault("fail-read"), vec![("block", 4.into()), ("place", place), is("drive", "disk")]].concat());
    one(&log, &[fault("fail-program"), vec![("close", true.into())]].concat());
    let asked = one(&log, &[is("target", "control"), is("message", "request refused")]);
    assert_eq!(asked["request"], r#"{"command":"fail-read","block":999999999}"#);

    let off = one(&log, &[is("target", "power"), is("power", "off"), is("level", "warn"), ("torn", true.into())]);
    // The NBD client, and two of the NVMe host.
    assert_eq!((&off["connections"], &off["requests"]), (&3.into(), &0.into()), "{off}");
    one(&log, &[is("target", "power"), is("power", "on"), is("level", "warn"), ("clients_turned_away", 1.into())]);
    let opened = |clean: bool| one(&log, &[is("target", "drive"), is("level", "info"), ("clean", clean.into())]);
    assert_eq!((&opened(true)["drive"], &opened(false)["drive"]), (&"disk".into(), &"disk".into()));
    assert!(log.iter().any(|line| line["step"] == "replay log" && line["level"] == "debug"), "{ended}");
    one(&log, &[is("target", "drive"), is("message", "closed, with a checkpoint")]);
    drive.check();
}

#[test]
fn without_a_log_a_server_says_on_standard_output_what_it_always_said() {
    let drive = Drive::create();
    let server = drive.serve();
    server.client().flush().unwrap();
    drive.ctl(&["power-cycle"]).succeeded();
    drive.ctl(&["lie-about-flush", "on"]).succeeded();
    let ended = server.stop();
    assert_eq!(ended.stderr, "", "{ended}");
    let words = ["The power is off. Connections dropped: ", "The power is on: recovered", "make nothing durable"];
    let ended = ended.printing(&words);
    assert!(!ended.stdout.contains("connection opened") && !ended.stdout.contains("target"), "{ended}");
}

#[test]
fn a_level_leaves_out_what_is_below_it_and_a_target_may_have_its_own() {
    let drive = Drive::create();
    let logged = |levels: &str| {
        let server = drive.serve_with(&["--timing", "instant", "--log", levels]);
        server.client().read(0, BLOCK_BYTES).unwrap();
        drive.ctl(&["power-cycle"]).succeeded();
        server.stop().stderr
    };
    let (off, warn, single) = (logged("off"), logged("warn"), logged("off,nbd=trace,drive=info"));
    assert_eq!(off, "");
    assert!(warn.lines().all(|line| line.contains(" WARN  ")) && warn.contains("power: The power is off."), "{warn}");
    let of_nbd = |line: &&str| line.contains(" TRACE nbd: request ended connection=");
    assert_eq!(single.lines().filter(of_nbd).count(), 1, "{single}");
    assert!(single.lines().all(|line| of_nbd(&line) || line.contains(" INFO  drive: ")), "{single}");
}

#[test]
fn a_flood_of_rude_connections_writes_a_bounded_number_of_lines_and_hides_no_fault() {
    const RUDE: u64 = 2000;
    let drive = Drive::create();
    let server = drive.serve_with(&JSON);
    for _ in 0..RUDE {
        let mut rude = server.connect();
        rude.write_all(&[b'x'; 64]).unwrap();
        // Until the server has closed it, with something unread or not.
        let _ = rude.read_to_end(&mut Vec::new());
    }
    drive.ctl(&["lie-about-flush", "on"]).succeeded();
    let ended = server.stop();
    let log = lines(&ended.stderr);
    let expelled = |line: &&Value| line["target"] == "connection" && line["level"] == "warn";
    let (mut written, mut left_out) = (0, 0);
    for line in log.iter().filter(expelled) {
        let is_one = line["message"] == "connection closed";
        assert!(!is_one || line["reason"].as_str().unwrap().contains("have bits that were not offered"), "{line}");
        written += u64::from(is_one);
        left_out += line["unlogged"].as_u64().unwrap_or(0);
    }
    assert_eq!(written + left_out, RUDE, "every one of them is written or counted");
    // Of each kind 128 at once, and one more every ten seconds.
    assert!(written < 200 && log.len() < 1000, "{written} of {}", log.len());
    one(&log, &[("fault", "lie-about-flush".into()), ("level", "warn".into())]);
}

#[test]
fn a_log_that_nobody_reads_neither_stops_the_drive_nor_grows_and_says_what_it_lost() {
    let drive = Drive::create();
    let socket = drive.beside("socket");
    let mut server = Command::new(openftl())
        .args(["serve", drive.file(), "--nbd", &format!("unix:{}", socket.display())])
        .args(["--timing", "instant", "--log", "trace", "--log-format", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openftl starts");
    let stream = wait_for("the server to listen", || UnixStream::connect(&socket).ok());
    let mut client = client::Client::new(stream);
    // Each is a line of more than a hundred bytes: the pipe holds 64 KiB, and 1 MiB waits for it.
    (0..15_000).for_each(|_| drop(client.read(0, 512).expect("it is served")));
    let (mut stderr, log) = (server.stderr.take().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let read = Arc::clone(&log);
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Some(count) = stderr.read(&mut piece).ok().filter(|count| *count > 0) {
            read.lock().unwrap().extend_from_slice(&piece[..count]);
        }
    });
    wait_for("a line that says how many are lost", || {
        client.read(0, 512).expect("it is served");
        let log = String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
        log.contains("lines are lost").then_some(())
    });
    kill_process(Pid::from_child(&server), Signal::INT).unwrap();
    assert!(server.wait().unwrap().success());
    reader.join().unwrap();
    let log = lines(std::str::from_utf8(&log.lock().unwrap()).unwrap());
    let ended = log.iter().filter(|line| line["message"] == "request ended").count() as u64;
    let lost: u64 = log.iter().filter_map(|line| line["lines"].as_u64()).sum();
    assert!(lost > 1000 && ended > 1000, "{ended} written, {lost} lost");
    one(&log, &[("target", "drive".into()), ("message", "closed, with a checkpoint".into())]);
}

#[test]
fn hosts_that_are_refused_are_named_with_the_reason() {
    const HOST: &str = "nqn.2026-11.org.openftl:host";
    let drive = Drive::create();
    let secret = || run_openftl(["nvme", "gen-key"]).succeeded().stdout;
    let known = drive.beside("hosts");
    std::fs::write(&known, format!("{HOST} {}", secret())).unwrap();
    let another = drive.beside("another");
    std::fs::write(&another, secret()).unwrap();
    let server = drive.serve_with(&[&JSON[..], &["--nvme-tcp", "127.0.0.1:0", "--dhchap-key", text(&known)]].concat());
    let key = format!("@{}", another.display());
    let address = server.nvme_address();
    run_openftl(["nvme", "identify", &address, "--dhchap-key", &key]).failed();
    run_openftl(["nvme", "identify", &address, "--host-nqn", "nqn.2026-11.org.example:stranger"]).failed();
    let log = lines(&server.stop().stderr);
    let refused = one(&log, &[("message", "authentication refused".into()), ("level", "warn".into())]);
    assert_eq!((&refused["host"], &refused["target"]), (&HOST.into(), &"nvme".into()));
    assert!(refused["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{refused}");
    let stranger = one(&log, &[("message", "host refused".into()), ("level", "warn".into())]);
    assert_eq!(stranger["host"], "nqn.2026-11.org.example:stranger");
    assert!(stranger["status"].as_str().unwrap().contains("Connect Invalid Host"), "{stranger}");
}

#[test]
fn a_host_without_a_name_is_let_in_and_noted() {
    let drive = Drive::create();
    let server = drive.serve_with(&[&JSON[..], &["--nvme-tcp", "127.0.0.1:0"]].concat());
    let stream = std::net::TcpStream::connect(server.nvme_address()).unwrap();
    let mut nameless = Client::open(stream, InitiatorConfig::default()).expect("the server speaks NVMe over TCP");
    let identity = Identity { host_id: [7; 16], host_nqn: "nqn.a".to_owned(), subsystem_nqn: SUBSYSTEM.to_owned() };
    let mut data = connect_data(&identity, CONTROLLER_ID_ANY).unwrap();
    data.host_nqn = [0; 256];
    let queue = QueueParameters { queue_id: 0, entries: 32, flow_control: false, keep_alive_ms: 0 };
    let connect = fabrics::connect(queue);
    nameless.call("Connect", &connect, Payload::ToController(data.as_bytes().to_vec())).expect("any host may connect");
    drop(nameless);
    let log = lines(&server.stop().stderr);
    let noted = one(&log, &[("target", "nvme".into()), ("level", "warn".into())]);
    assert_eq!(noted["message"], "host without a name (HOSTNQN) let in");
}

fn serve_and_run(command: &str, flags: &[&str]) -> Ended {
    let memory = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant", "--run", command];
    run_openftl([&memory, flags].concat())
}

#[test]
fn with_a_log_in_json_standard_error_is_json_to_the_last_line_also_where_the_command_fails() {
    let ended = serve_and_run("exit 7", &["--log-format", "json"]).failed();
    assert_eq!(ended.status.code(), Some(7));
    let log = lines(&ended.stderr);
    let last = log.last().expect("it says why it failed");
    assert_eq!(last["level"], "error");
    assert!(last["message"].as_str().unwrap().contains("ended with exit code 7"), "{last}");
    let missing = run_openftl(["serve", "missing.oftl", "--log", "info", "--log-format", "json"]).failed();
    let log = lines(&missing.stderr);
    assert!(log.len() == 1 && log[0]["fix"].as_str().unwrap().contains("openftl create"), "{missing}");
    // For people the greeting is there too.
    let ended = serve_and_run("true", &["--log", "info"]).succeeded();
    assert!(ended.stderr.contains("listening on") && ended.stderr.contains(" INFO  drive: made anew "), "{ended}");
}

#[test]
fn slow_peers_that_lose_their_frames_are_named() {
    const LONG: u32 = 16 << 20;
    let drive = Drive::create();
    let server = drive.serve_with(&JSON);
    let slow = |number: u64| {
        let mut client = server.client();
        client.send_header(client::WRITE, 0, number * u64::from(LONG), LONG).unwrap();
        client.send_bytes(&random_bytes(number, 4096)).unwrap();
        client
    };
    // Long writes may have half of the frames, 32 MiB: the others wait for what these hold and do not use.
    let slow: Vec<client::Client> = (0..4).map(slow).collect();
    let mut honest = server.client();
    honest.write(10 * u64::from(LONG), &random_bytes(9, LONG as usize)).unwrap();
    drop(slow);
    drop(honest);
    let log = lines(&server.stop().stderr);
    let lost: Vec<&Value> =
        log.iter().filter(|line| line["message"] == "slow peer lost its frames to others").collect();
    assert!(!lost.is_empty(), "{log:?}");
    let me = format!("process {}", std::process::id());
    for line in lost {
        assert_eq!(
            (&line["level"], &line["protocol"], &line["peer"]),
            (&"info".into(), &"nbd".into(), &me.as_str().into())
        );
        let opened = [("message", "connection opened".into()), ("connection", line["connection"].clone())];
        one(&log, &opened);
    }
}

#[test]
fn a_drive_whose_file_takes_no_more_says_so_once_with_the_reason() {
    let drive = Drive::create();
    let socket = drive.beside("socket");
    // What would be a signal is an error of the write, as a full disk is.
    let nbd = format!("unix:{}", socket.display());
    let serve = format!("trap '' XFSZ; exec {} serve {} --nbd {nbd} {}", openftl(), drive.file(), JSON.join(" "));
    let mut server = Running::start("sh", ["-c", &serve]);
    let mut client = client::Client::new(wait_for("the server to listen", || UnixStream::connect(&socket).ok()));
    client.flush().unwrap();
    let pid = Some(Pid::from_child(&server.child));
    prlimit(pid, Resource::Fsize, Rlimit { current: Some(1 << 20), maximum: None }).expect("our own child is bounded");
    let all = (0..256).all(|number| client.write(number << 20, &random_bytes(number, 1 << 20)).is_ok());
    assert!(!all, "the file may not grow so large");
    kill_process(Pid::from_child(&server.child), Signal::INT).unwrap();
    let ended = wait_for("the server's end", || server.ended()).failed();
    let log = lines(&ended.stderr);
    let read_only = one(&log, &[("target", "drive".into()), ("drive", "disk".into()), ("level", "error".into())]);
    assert!(read_only["reason"].as_str().unwrap().contains("failed a write"), "{read_only}");
    let last = log.last().unwrap();
    assert!(
        last["level"] == "error" && last["message"].as_str().unwrap().contains("the file behind the drive failed"),
        "{last}"
    );
}
