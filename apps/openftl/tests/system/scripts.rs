//! What scripts ask of a server: a command that runs beside it, a line when it is ready, an end with whoever started it.

use crate::drive::{openftl, run_openftl};
use crate::program::{Running, run, wait_for};
use serde_json::Value;
use std::path::Path;

/// A small drive in memory.
const MEMORY: [&str; 6] = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant"];

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
}

#[test]
fn a_server_ends_with_the_command_that_it_runs_and_with_its_status() {
    let serve = |command: &str| run_openftl([&MEMORY[..], &["--run", command]].concat());
    let ended = serve("test -S \"$OPENFTL_SOCKET\" && echo \"$OPENFTL_URI\"").succeeded();
    assert!(ended.stdout.starts_with("nbd+unix:///?socket=") && ended.stdout.lines().count() == 1, "{ended}");
    assert!(ended.stderr.contains("listening on"), "{ended}");
    for code in [1, 7] {
        let ended = serve(&format!("exit {code}")).failed().saying(&[&format!("ended with exit code {code}")]);
        assert_eq!(ended.status.code(), Some(code));
    }
    assert_eq!(serve("kill -TERM $$").failed().saying(&["signal 15"]).status.code(), Some(143));
}

#[test]
fn two_servers_that_run_commands_are_not_in_each_others_way() {
    let inner = format!("{} {} --run 'echo inner: $OPENFTL_URI'", openftl(), MEMORY.join(" "));
    let command = format!("echo outer: $OPENFTL_URI && {inner}");
    let ended =
        run_openftl([&MEMORY[..], &["--run", &command]].concat()).succeeded().printing(&["outer: nbd", "inner: nbd"]);
    let uris: Vec<&str> = ended.stdout.lines().filter_map(|line| line.split_once(": ")).map(|(_, uri)| uri).collect();
    assert_ne!(uris[0], uris[1]);
}

#[test]
fn a_line_of_json_says_that_clients_can_connect_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let flags = "--nvme-tcp 127.0.0.1:0 --nbd 127.0.0.1:0 --ready-fd 7";
    let serve = format!("{} {} {flags}", openftl(), MEMORY.join(" "));
    let script = format!("{serve} --run 'cat {0}' 7> {0}", ready.display());
    let ended = run("sh", ["-c", &script]).succeeded();
    let line: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
    assert_eq!(line["ready"], true);
    assert!(line["nbd"][0].as_str().is_some_and(|uri| uri.starts_with("nbd://127.0.0.1:")), "{line}");
    assert!(line["nvme_tcp"][0].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{line}");
    run_openftl([&MEMORY[..], &["--run", "true", "--ready-fd", "971"]].concat())
        .failed()
        .saying(&["--ready-fd 971", "fix:"]);
}

#[test]
fn a_server_ends_with_the_process_that_started_it() {
    let folder = tempfile::tempdir().unwrap();
    let [ready, socket] = ["ready", "nbd.sock"].map(|name| folder.path().join(name));
    let serve = format!("{} {} --nbd unix:{} --exit-with-parent", openftl(), MEMORY.join(" "), socket.display());
    let script = format!("{serve} --ready-fd 7 7> {} & exec sleep 1000", ready.display());
    let mut parent = Running::start("sh", ["-c", &script]);
    wait_for("a server that is ready", || read(&ready));
    assert!(socket.exists());
    parent.kill();
    wait_for("the server's end, which removes its socket", || (!socket.exists()).then_some(()));
}

#[test]
fn what_hosts_do_to_zones_is_recorded_and_played_on_a_drive_in_virtual_time() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("host.log");
    let [log, image] = [log, folder.path().join("image")].map(|path| path.to_str().unwrap().to_owned());
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let description = concat!(env!("CARGO_MANIFEST_DIR"), "/../../drives/zns.toml");
    let zones = format!("{} nvme zones", openftl());
    let script = format!(
        "{zones} append $OPENFTL_NVME_TCP 3 --input {image} && {zones} append $OPENFTL_NVME_TCP 3 --input {image} && \
         {zones} reset $OPENFTL_NVME_TCP 3 && {zones} append $OPENFTL_NVME_TCP 5 --input {image}"
    );
    let serve = ["serve", "--drive", description, "--memory", "--timing", "instant", "--nvme-tcp", "127.0.0.1:0"];
    let ended = run_openftl([&serve[..], &["--record", &log, "--run", &script]].concat()).succeeded();
    assert!(ended.stderr.contains("  recorded  "), "{ended}");
    let workload = format!("trace:{log}");
    let bench = ["bench", "--drive", description, "--workload", &workload, "--warm-up", "0", "--queue-depth", "4"];
    let ended = run_openftl([&bench[..], &["--json"]].concat()).succeeded();
    let measured: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
    assert_eq!(measured["host_blocks_written"], 3 << 8, "{measured:#}");
    // Once more to the same file: it is not overwritten, and nothing is served.
    let again = run_openftl([&serve[..], &["--record", &log, "--run", "echo served"]].concat());
    let again = again.failed().saying(&["--record", "there is such a file"]);
    assert_eq!((again.status.code(), again.stdout.as_str()), (Some(2), ""));
    let values = concat!(env!("CARGO_MANIFEST_DIR"), "/../../drives/kv.toml");
    let other = folder.path().join("other.log");
    let flags = ["--memory", "--redis", "127.0.0.1:0", "--record", other.to_str().unwrap(), "--run", "true"];
    let refused = run_openftl([&["serve", "--drive", values], &flags[..]].concat());
    assert_eq!(refused.failed().saying(&["nothing of this drive is blocks or zones"]).status.code(), Some(2));
    assert!(!other.exists());
}
