//! A key-value drive that is served to clients of Redis and to NVMe hosts: killed, cut off from its power, stopped, and refused what cannot be.

use crate::drive::{openftl, run_openftl};
use openftl_nvme_values::RemoteValues;
use openftl_values::{Condition, Key};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const DRIVE: &str = "[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\nstore = \"file\"\npath = \"kv.oftl\"\ntiming = \"instant\"\n\
                     [ftl]\nkind = \"values\"\ndurable_stores = true\n";

struct Served {
    folder: TempDir,
}

impl Served {
    fn new() -> Served {
        let served = Served { folder: tempfile::tempdir().unwrap() };
        std::fs::write(served.description(), DRIVE).unwrap();
        let made =
            run_openftl(["create", served.disk().to_str().unwrap(), "--drive", served.description().to_str().unwrap()]);
        assert_eq!(made.status.code(), Some(0), "{}", made.stderr);
        served
    }

    fn description(&self) -> PathBuf {
        self.folder.path().join("kv.toml")
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("kv.oftl")
    }

    /// Starts a server. Gives it, and where it listens for clients of Redis.
    fn serve(&self) -> (Child, SocketAddr) {
        let (server, redis, _) = self.serve_both(&[]);
        (server, redis)
    }

    /// The same with more flags; and what else it tells of itself.
    fn serve_both(&self, flags: &[&str]) -> (Child, SocketAddr, serde_json::Value) {
        let mut server = Command::new(openftl())
            .args(["serve", "--redis", "127.0.0.1:0", "--exit-with-parent", "--ready-fd", "1"])
            .args(flags)
            .arg("--drive")
            .arg(self.description())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.as_mut().unwrap()).lines();
        let line =
            lines.find(|line| line.as_ref().unwrap().starts_with('{')).expect("it tells where it listens").unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        (server, ready["redis"][0].as_str().unwrap().parse().unwrap(), ready)
    }
}

/// Sends bytes, and reads an answer of so many.
fn ask(client: &mut TcpStream, said: &[u8], expected: &[u8]) {
    client.write_all(said).unwrap();
    let mut answer = vec![0; expected.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(expected));
}

#[test]
fn what_was_answered_on_a_drive_with_durable_stores_is_there_after_a_kill() {
    let served = Served::new();
    for round in 0..3 {
        let (mut server, address) = served.serve();
        let mut client = TcpStream::connect(address).unwrap();
        // An answer that is shorter than it should be fails, and does not wait for more.
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for number in 0..round * 50 {
            let value = format!("value {number}");
            ask(
                &mut client,
                format!("GET k{number}\r\n").as_bytes(),
                format!("${}\r\n{value}\r\n", value.len()).as_bytes(),
            );
        }
        for number in round * 50..(round + 1) * 50 {
            ask(&mut client, format!("SET k{number} 'value {number}'\r\n").as_bytes(), b"+OK\r\n");
        }
        // Others are under way when it dies.
        let more: String = (0..100).map(|number| format!("SET more{number} x\r\n")).collect();
        client.write_all(more.as_bytes()).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let checked = run_openftl(["check", served.disk().to_str().unwrap()]);
        assert!(checked.status.success() && checked.stdout.contains("✓ sound"), "{}{}", checked.stdout, checked.stderr);
    }
}

#[test]
fn garbage_closes_its_client_and_others_are_served() {
    let served = Served::new();
    let (mut server, address) = served.serve();
    let mut honest = TcpStream::connect(address).unwrap();
    for _ in 0..20 {
        let mut rude = TcpStream::connect(address).unwrap();
        rude.write_all(b"*1\r\n:rubbish\r\n").unwrap();
        let mut answer = Vec::new();
        rude.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"-ERR Protocol error: expected '$', got ':'\r\n");
        ask(&mut honest, b"PING\r\n", b"+PONG\r\n");
    }
    ask(&mut honest, b"QUIT\r\n", b"+OK\r\n");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A client of Redis. An answer that is shorter than it should be fails, and does not wait for more.
fn client(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client
}

#[test]
fn clients_that_leave_before_their_answers_cost_others_nothing() {
    let served = Served::new();
    let (mut server, address) = served.serve();
    let mut honest = client(address);
    let value = "x".repeat(4000);
    ask(&mut honest, format!("SET k {value}\r\n").as_bytes(), b"+OK\r\n");
    for round in 0..20 {
        // More answers than sockets take, and what came of them is not read: the socket is reset.
        let mut rude = client(address);
        rude.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        _ = rude.write_all(&b"GET k\r\n".repeat(5_000));
        drop(rude);
        ask(&mut honest, format!("SET n{round} 1\r\n").as_bytes(), b"+OK\r\n");
    }
    ask(&mut honest, b"DBSIZE\r\n", b":21\r\n");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn redis_clients_and_nvme_hosts_use_one_drive_together() {
    let served = Served::new();
    let (mut server, address, ready) = served.serve_both(&["--nvme-tcp", "127.0.0.1:0"]);
    let uri = ready["values"][0].as_str().expect("the URI of the drive");
    let kv = |words: &[&str]| run_openftl([&["kv", words[0], "--drive", uri], &words[1..]].concat());
    let mut redis = client(address);
    ask(&mut redis, b"SET by-redis one\r\n", b"+OK\r\n");
    assert_eq!(kv(&["get", "by-redis"]).succeeded().stdout, "one");
    kv(&["put", "by-nvme", "two"]).succeeded().printing(&["by-nvme", "3 bytes"]);
    ask(&mut redis, b"GET by-nvme\r\n", b"$3\r\ntwo\r\n");
    ask(&mut redis, b"DBSIZE\r\n", b":2\r\n");
    assert_eq!(kv(&["list"]).succeeded().stdout, "by-nvme\nby-redis\n");
    assert_eq!(kv(&["exist", "by-redis"]).succeeded().stdout, "by-redis: 3 bytes\n");
    let refused = kv(&["put", "by-redis", "x", "--if-missing"]);
    assert_eq!((refused.status.code(), refused.stderr.contains("key exists")), (Some(1), true), "{}", refused.stderr);
    let identified = run_openftl(["nvme", "identify", ready["nvme_tcp"][0].as_str().unwrap()]).succeeded();
    identified.printing(&["Namespace 1, values", "1 to 16 bytes each"]);
    let info: serde_json::Value = serde_json::from_str(&kv(&["info", "--json"]).succeeded().stdout).unwrap();
    assert_eq!((info["key_max"].as_u64(), info["transfer_max"].as_u64()), (Some(16), Some(1 << 20)));
    // A host that sends anything, and a value that is longer than the drive takes.
    let nvme: SocketAddr = ready["nvme_tcp"][0].as_str().unwrap().parse().unwrap();
    TcpStream::connect(nvme).unwrap().write_all(&[0xff; 4096]).unwrap();
    let long = served.folder.path().join("long");
    std::fs::write(&long, vec![7; 300_000]).unwrap();
    let refused = kv(&["put", "long", "--file", long.to_str().unwrap()]);
    assert!(refused.status.code() == Some(2) && refused.stderr.contains("kv info"), "{}", refused.stderr);
    kv(&["del", "by-redis"]).succeeded();
    ask(&mut redis, b"EXISTS by-redis\r\n", b":0\r\n");
    let missing = kv(&["del", "by-redis"]);
    assert_eq!(missing.status.code(), Some(1), "{}", missing.stderr);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(
        run_openftl(["kv", "get", "--drive", served.disk().to_str().unwrap(), "by-nvme"]).succeeded().stdout,
        "two"
    );
}

#[test]
fn a_power_cut_while_both_kinds_of_clients_work_leaves_all_that_was_durable() {
    let served = Served::new();
    let (mut server, address, ready) = served.serve_both(&["--nvme-tcp", "127.0.0.1:0"]);
    let uri = ready["values"][0].as_str().expect("the URI of the drive").parse().unwrap();
    let disk = served.disk();
    let mut acknowledged = 0_u32;
    for cut in 0..3 {
        let mut nvme = RemoteValues::connect(&uri).unwrap();
        let mut redis = client(address);
        for number in 0..acknowledged {
            let value =
                nvme.retrieve(key_of(number)).unwrap_or_else(|error| panic!("key {number}, cut {cut}: {error}"));
            assert_eq!(value, vec![number as u8; 3000], "key {number}");
        }
        // The power goes while Stores are under way: when it has counted so many more commands of the device.
        let commands = (40 + 30 * cut).to_string();
        let words = ["ctl", disk.to_str().unwrap(), "power-cycle", "--after-commands", &commands, "--torn"];
        let operator = std::thread::scope(|scope| {
            let operator = scope.spawn(|| run_openftl(words));
            while nvme.store(key_of(acknowledged), vec![acknowledged as u8; 3000], Condition::Always).is_ok() {
                acknowledged += 1;
                // The client of Redis may lose its connection first.
                _ = redis.write_all(format!("SET redis{acknowledged} x\r\n").as_bytes());
            }
            operator.join().unwrap()
        });
        operator.succeeded();
        // It is closed with the power, and does not wait for answers that never come.
        let mut answers = Vec::new();
        match redis.read_to_end(&mut answers) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
    let mut redis = client(address);
    ask(&mut redis, b"PING\r\n", b"+PONG\r\n");
    server.kill().unwrap();
    server.wait().unwrap();
    let checked = run_openftl(["check", disk.to_str().unwrap()]);
    assert!(checked.status.success() && checked.stdout.contains("✓ sound"), "{}{}", checked.stdout, checked.stderr);
}

fn key_of(number: u32) -> Key {
    Key::new(format!("nvme{number:08}").as_bytes()).unwrap()
}

#[test]
fn a_served_drive_is_refused_to_what_is_none_and_where_nobody_is() {
    let ended = run_openftl(["kv", "list", "--drive", "nvme-tcp://127.0.0.1:1"]);
    assert!(ended.status.code() == Some(1) && ended.stderr.contains("nobody answers"), "{}", ended.stderr);
    let ended = run_openftl(["kv", "list", "--drive", "nvme-tcp://:1"]);
    assert!(ended.status.code() == Some(2) && ended.stderr.contains("no machine, or no port"), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_served_is_refused_with_the_fix() {
    let served = Served::new();
    let description = served.description();
    let description = description.to_str().unwrap();
    let cases = [
        (vec!["serve", "--drive", description], "add --redis 127.0.0.1:6379"),
        (vec!["serve", "--drive", description, "--redis", "0.0.0.0:6379"], "--allow-remote"),
        (
            vec!["serve", "--drive", description, "--redis", "127.0.0.1:0", "--nbd", "127.0.0.1:0"],
            "there is no block namespace",
        ),
        (vec!["serve", "--memory", "--redis", "127.0.0.1:0"], "--redis is for key-value drives"),
        (vec!["kv", "put", "--drive", description, "seventeen letters", "x"], "invalid key size"),
    ];
    for (arguments, expected) in cases {
        let ended = run_openftl(arguments.clone());
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
}
