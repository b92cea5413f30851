//! A key-value drive that is served to clients of Redis: killed, stopped, and refused what cannot be.

use crate::drive::{openftl, run_openftl};
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

    /// Starts a server. Gives it, and where it listens.
    fn serve(&self) -> (Child, SocketAddr) {
        let mut server = Command::new(openftl())
            .args(["serve", "--redis", "127.0.0.1:0", "--exit-with-parent", "--ready-fd", "1", "--drive"])
            .arg(self.description())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.as_mut().unwrap()).lines();
        let line =
            lines.find(|line| line.as_ref().unwrap().starts_with('{')).expect("it tells where it listens").unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        (server, ready["redis"][0].as_str().unwrap().parse().unwrap())
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
            "--nbd is for block drives",
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
