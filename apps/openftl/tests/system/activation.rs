//! A server whose sockets a service manager has made (`LISTEN_FDS`), and what the manager is told (`NOTIFY_SOCKET`).

use crate::client::Client;
use crate::drive::openftl;
use crate::environment::{Need, runs_here};
use crate::program::{BOUND, Ended, Running, run, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A small drive in memory.
const MEMORY: [&str; 6] = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant"];

/// A server that gets descriptors 3 and 4, in a folder of its own.
struct Manager {
    folder: TempDir,
    heard: UnixDatagram,
}

/// A server that was started so. Dropped, it is killed.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let heard = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        heard.set_read_timeout(Some(BOUND)).expect("a bound");
        Manager { folder, heard }
    }

    fn place(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn unix(&self, name: &str) -> OwnedFd {
        UnixListener::bind(self.folder.path().join(name)).expect("a socket").into()
    }

    /// Starts `openftl` with `sockets`, of these `names` (none: the variable is not set).
    fn start(&self, sockets: [OwnedFd; 2], count: &str, names: Option<&str>, arguments: &[&str]) -> Started {
        let names = names.map_or(String::new(), |names| format!("LISTEN_FDNAMES={names}"));
        // The shell has them as its standard input and output, and becomes the server: LISTEN_PID is its number.
        let script = format!(
            "exec 3<&0 4<&1 0</dev/null 1>{0}/out 2>{0}/err; \
             exec env LISTEN_PID=$$ LISTEN_FDS={count} {names} NOTIFY_SOCKET={0}/notify NO_COLOR=1 \"$@\"",
            self.folder.path().display()
        );
        let [first, second] = sockets;
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", &openftl()]).args(arguments);
        Started(command.stdin(Stdio::from(first)).stdout(Stdio::from(second)).spawn().expect("sh starts"))
    }

    fn hears(&self) -> String {
        let mut text = [0; 256];
        let bytes = self.heard.recv(&mut text).expect("the server tells something");
        String::from_utf8(text[..bytes].to_vec()).expect("states are text")
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// What a server that refuses to start says.
    fn refusal(&self, sockets: [OwnedFd; 2], count: &str, names: Option<&str>, arguments: &[&str]) -> String {
        let mut started = self.start(sockets, count, names, arguments);
        let status = wait_for("the server to refuse", || started.0.try_wait().expect("our own child"));
        assert_eq!(status.code(), Some(2), "{}{}", self.said("out"), self.said("err"));
        self.said("err")
    }
}

fn tcp(address: &str) -> OwnedFd {
    TcpListener::bind(address).expect("a port").into()
}

fn nothing() -> OwnedFd {
    File::open("/dev/null").expect("it is always there").into()
}

/// Sends SIGTERM, and waits for a clean end.
fn stop(started: &mut Started) {
    kill_process(Pid::from_child(&started.0), Signal::TERM).expect("our own child takes a signal");
    let status = wait_for("the server to stop", || started.0.try_wait().expect("our own child"));
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_serves_the_sockets_that_it_is_passed_and_says_when_it_is_ready_and_when_it_stops() {
    let manager = Manager::new();
    let nvme = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nvme.local_addr().unwrap().to_string();
    let sockets = [manager.unix("nbd"), nvme.into()];
    // Who connects early is served when the drive is ready.
    let early = UnixStream::connect(manager.folder.path().join("nbd")).unwrap();
    let mut server = manager.start(sockets, "2", Some("nbd:nvme-tcp"), &MEMORY);
    assert_eq!(manager.hears(), "READY=1\n");
    assert_eq!(Client::new(early).size, 64 << 20);
    run(&openftl(), ["nvme", "identify", &address]).succeeded();
    let said = manager.said("out");
    assert!(said.contains("listening on nbd+unix:///?socket=") && !said.contains(":10809"), "no others: {said}");
    stop(&mut server);
    assert_eq!(manager.hears(), "STOPPING=1\n");
    assert!(manager.folder.path().join("nbd").exists(), "the socket's file is the manager's");
}

#[test]
fn a_drive_is_operated_at_the_control_socket_that_its_server_is_passed() {
    let manager = Manager::new();
    let sockets = [manager.unix("control"), manager.unix("nbd")];
    let _server = manager.start(sockets, "2", Some("control:nbd"), &MEMORY);
    assert_eq!(manager.hears(), "READY=1\n");
    let drive = format!("unix:{}", manager.place("control"));
    run(&openftl(), ["ctl", &drive, "power-cycle"]).succeeded().printing(&["The power is on"]);
}

#[test]
fn a_table_drive_is_served_at_the_socket_that_its_description_names_and_at_no_other() {
    if !runs_here(&[Need::Command("files")]) {
        return;
    }
    let manager = Manager::new();
    let description = manager.place("lsm.toml");
    let text = format!(
        "[media]\ncapacity = \"64MiB\"\nstore = \"ram\"\ntiming = \"instant\"\n[ftl]\nkind = \"tables\"\n\
         [host]\nfiles = \"unix:{}\"\n",
        manager.place("files")
    );
    std::fs::write(&description, text).unwrap();
    let serve = ["serve", "--drive", &description];
    let socket = manager.unix("files");
    let mut early = UnixStream::connect(manager.place("files")).unwrap();
    let mut server = manager.start([socket, nothing()], "1", Some("files"), &serve);
    assert_eq!(manager.hears(), "READY=1\n");
    run(&openftl(), ["files", &description]).succeeded().printing(&["0 tables"]);
    early.set_nonblocking(true).unwrap();
    let told = early.read(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(told, Err(std::io::ErrorKind::WouldBlock), "who connects early is not turned away");
    stop(&mut server);
    assert_eq!(manager.hears(), "STOPPING=1\n");
    let said = manager.refusal([manager.unix("other"), nothing()], "1", Some("files"), &serve);
    assert!(said.contains("host.files") && said.contains("/other") && said.contains("fix: "), "{said}");
    let said = manager.refusal([manager.unix("nbd"), nothing()], "1", Some("nbd"), &serve);
    assert!(said.contains("table drive") && said.contains("FileDescriptorName=files"), "{said}");
}

#[test]
fn what_cannot_be_served_is_refused_by_number_and_name_with_a_fix() {
    let manager = Manager::new();
    let refused = |socket: OwnedFd, name: Option<&str>, more: &[&str], words: &[&str]| {
        let said = manager.refusal([socket, nothing()], "1", name, &[&MEMORY[..], more].concat());
        assert!(said.starts_with("error: ") && said.contains("fix: "), "{said}");
        for word in words {
            assert!(said.contains(word), "no `{word}` in: {said}");
        }
    };
    let datagrams = || UnixDatagram::bind(manager.place("datagrams")).expect("a socket").into();
    refused(datagrams(), Some("nbd"), &[], &["socket 3, named nbd", "no stream socket"]);
    refused(manager.unix("a"), Some("smb"), &[], &["socket 3, named smb", "FileDescriptorName=nbd, nvme-tcp"]);
    refused(manager.unix("b"), None, &[], &["LISTEN_FDNAMES has 0 names"]);
    refused(nothing(), Some("nbd"), &[], &["socket 3, named nbd", "is no socket"]);
    refused(UnixStream::pair().unwrap().0.into(), Some("nbd"), &[], &["does not listen", "Accept=no"]);
    refused(tcp("0.0.0.0:0"), Some("nbd"), &[], &["other machines", "--allow-remote"]);
    refused(tcp("0.0.0.0:0"), Some("nvme-tcp"), &[], &["which hosts may connect"]);
    refused(manager.unix("c"), Some("nvme-tcp"), &[], &["no Unix sockets", "/c"]);
    refused(manager.unix("d"), Some("files"), &[], &["block drive"]);
    refused(manager.unix("e"), Some("nbd"), &["--nbd", "127.0.0.1:0"], &["--nbd is given", "leave --nbd away"]);
    refused(tcp("127.0.0.1:0"), Some("nvme-tcp"), &["--nvme-tcp", "127.0.0.1:0"], &["--nvme-tcp is given"]);
    let said = manager.refusal([manager.unix("f"), nothing()], "3", Some("nbd:nbd:nbd"), &MEMORY);
    assert!(said.contains("named nbd"), "{said}");
    let said = manager.refusal([manager.unix("g"), nothing()], "many", Some("nbd"), &MEMORY);
    assert!(said.contains("LISTEN_FDS=many is no number"), "{said}");
}

#[test]
fn descriptors_of_another_process_are_left_alone_and_a_manager_that_is_gone_is_an_error() {
    let alone = |variables: &[&str]| -> Ended {
        let program = openftl();
        let words = [variables, &[&program], &MEMORY[..], &["--run", "env"]].concat();
        Running::start("env", words).wait()
    };
    let ended = alone(&["LISTEN_PID=1", "LISTEN_FDS=7", "LISTEN_FDNAMES=a"]).succeeded();
    assert!(ended.stdout.contains("OPENFTL_URI=") && !ended.stdout.contains("LISTEN_"), "{ended}");
    let ended = alone(&["NOTIFY_SOCKET=/nowhere/notify"]).failed();
    assert!(ended.stderr.contains("NOTIFY_SOCKET=/nowhere/notify: "), "{ended}");
}

#[test]
fn systemd_starts_a_server_with_its_first_client() {
    if !runs_here(&[Need::Program("systemd-socket-activate")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd");
    let listen = format!("--listen={}", socket.display());
    let program = openftl();
    let words = [&[&listen, "--fdname=nbd", &program], &MEMORY[..]].concat();
    let mut manager = Running::start("systemd-socket-activate", words);
    let stream = wait_for("systemd-socket-activate to listen", || {
        assert!(manager.ended().is_none_or(|ended| panic!("{ended}")));
        UnixStream::connect(&socket).ok()
    });
    assert_eq!(Client::new(stream).size, 64 << 20);
}

/// The units of `packaging/systemd`, with the program where they look for it.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if !runs_here(&[Need::Program("systemd-analyze")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut names = Vec::new();
    for entry in units.read_dir().expect("the units") {
        let entry = entry.expect("an entry");
        let text = std::fs::read_to_string(entry.path()).expect("a unit");
        let text = text.replace("/usr/bin/openftl", &openftl()).replace("Documentation=man:openftl-serve(1)\n", "");
        let name = entry.file_name().into_string().expect("a plain name");
        std::fs::write(folder.path().join(&name), text).expect("room for a unit");
        names.push(folder.path().join(name.replace('@', "@disk")).display().to_string());
    }
    assert_eq!(names.len(), 3);
    for template in folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>() {
        let instance = template.to_str().unwrap().replace('@', "@disk");
        std::fs::copy(&template, &instance).expect("room for a unit");
        std::fs::remove_file(&template).expect("it was just made");
    }
    let ended = run("systemd-analyze", ["verify"].into_iter().chain(names.iter().map(String::as_str)));
    assert!(ended.stderr.trim().is_empty() && ended.stdout.trim().is_empty(), "{ended}");
    ended.succeeded();
}
