//! What `openftl inspect` shows of a drive that is being served: its server is asked, and nothing on the drive changes.

use crate::drive::{CAPACITY_BYTES, Drive, run_openftl};
use crate::mounted::text;
use crate::pattern::random_bytes;
use crate::program::{Ended, wait_for};
use crate::server::Server;
use serde_json::Value;
use std::io::Write;
use std::os::unix::net::UnixStream;

/// What is the same of a drive that is served and after its clean stop, where no host writes in between.
const LASTING: [&str; 7] =
    ["profile", "geometry", "capacity_bytes", "over_provisioning", "mapped_blocks", "plan", "wear"];

/// Asserts that a report of a served drive is that of its file, as far as that lasts.
#[track_caller]
pub fn assert_same(served: &Value, stored: &Value) {
    for name in LASTING {
        assert!(!stored[name].is_null(), "there is {name}");
        assert_eq!(served[name], stored[name], "{name}");
    }
    assert_eq!(served["superblock"]["drive"], stored["superblock"]["drive"]);
    // The checkpoint of the stop goes to chunks that are free, or where the one before was.
    let chunks = |report: &Value| report["chunks"].as_array().unwrap().clone();
    let (of_served, of_stored) = (chunks(served), chunks(stored));
    assert!(of_served.len() == of_stored.len() && !of_stored.is_empty());
    for (before, after) in of_served.iter().zip(&of_stored) {
        let is_new_checkpoint = before["use"] == "free" && after["use"] == "checkpoint";
        assert!(before == after || (is_new_checkpoint && before["chunk"] == after["chunk"]), "{before} {after}");
    }
    for report in [served, stored] {
        let by_use = report["chunks_by_use"].as_object().unwrap();
        let count = |name: &String| chunks(report).iter().filter(|chunk| chunk["use"] == *name).count();
        assert!(by_use.iter().all(|(name, total)| *total == count(name)), "{by_use:?}");
    }
    let names = |report: &Value| report.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut of_served = names(served);
    of_served.retain(|name| name != "served");
    assert_eq!(of_served, names(stored), "both have the same fields");
}

fn write_whole_units(server: &Server) {
    let mut client = server.client();
    (0..4).for_each(|number| client.write(number << 20, &random_bytes(number, 1 << 20)).unwrap());
    client.flush().unwrap();
}

#[test]
fn a_served_drive_is_inspected_through_its_server_and_is_the_same_after_a_clean_stop() {
    let drive = Drive::create();
    let server = drive.serve();
    write_whole_units(&server);
    let before = drive.ask(&["stats"])["nand"].clone();
    let served = drive.inspect();
    let page = run_openftl(["inspect", drive.file()]).succeeded();
    assert_eq!(drive.ask(&["stats"])["nand"], before, "no command goes to the device for it");
    let process = server.child().id();
    assert_eq!(served["served"]["process"], process);
    assert_eq!(served["served"]["socket"], format!("{}.ctl", drive.file()));
    assert_eq!((&served["capacity_bytes"], &served["mapped_blocks"]), (&CAPACITY_BYTES.into(), &1024.into()));
    assert_eq!(served["superblock"]["clean"], false);
    let page =
        page.printing(&[&format!("{}  512 MiB on cosmos", drive.file()), &format!("served by process {process}")]);
    let until_metadata = |page: &Ended| -> Vec<String> {
        let from_geometry = page.stdout.lines().skip_while(|line| *line != "Geometry");
        from_geometry.take_while(|line| *line != "Metadata").map(str::to_owned).collect()
    };
    server.stop();
    let stored = drive.inspect();
    assert!(stored["served"].is_null() && stored["superblock"]["clean"] == true);
    assert_same(&served, &stored);
    let offline = run_openftl(["inspect", drive.file()]).succeeded();
    assert!(!offline.stdout.contains("served by") && !offline.stdout.contains("cannot be read"), "{offline}");
    assert!(until_metadata(&page).len() > 10);
    assert_eq!(until_metadata(&page), until_metadata(&offline), "geometry, chunks and data look the same");
}

#[test]
fn a_drive_with_more_chunks_than_an_answer_holds_is_shown_whole() {
    let drive = Drive::create();
    run_openftl(["create", drive.file(), "--force", "--profile", "cosmos", "--capacity", "2GiB"]).succeeded();
    let server = drive.serve();
    write_whole_units(&server);
    let served = drive.inspect();
    assert!(served["chunks"].as_array().unwrap().len() > 2048, "it takes three answers");
    server.stop();
    assert_same(&served, &drive.inspect());
}

#[test]
fn a_drive_whose_power_is_off_is_inspected_in_its_file_and_one_in_memory_at_its_socket() {
    let drive = Drive::create();
    let server = drive.serve();
    write_whole_units(&server);
    drive.ctl(&["power-cut"]).succeeded();
    let dark = drive.inspect();
    assert!(dark["served"].is_null() && dark["recovery"]["clean"] == false, "{dark}");
    let page = run_openftl(["inspect", drive.file()]).succeeded();
    page.printing(&["recovered after a crash", "the file itself is as it was"]);
    // The last blocks of open chunks are read all the same (MW_CUNITS): what is written behind them is in memory.
    assert_eq!(dark["mapped_blocks"], 1024, "{dark}");
    assert_eq!(drive.inspect()["recovery"]["clean"], false, "it was not changed");
    drive.ctl(&["power-on"]).succeeded();
    assert_eq!(drive.inspect()["served"]["process"], server.child().id());
    server.stop();

    let control = format!("unix:{}", text(&drive.beside("control")));
    let memory = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant", "--control", &control];
    let server = Server::start(&memory, &drive.beside("memory"));
    write_whole_units(&server);
    let page = run_openftl(["inspect", &control]).succeeded();
    page.printing(&["served by process", "6.2% of the capacity is written"]);
    run_openftl(["ctl", &control, "power-cut"]).succeeded();
    run_openftl(["inspect", &control]).failed().saying(&["the power is off", "fix:"]);
    server.stop();
    run_openftl(["inspect", &control]).failed();
}

#[test]
fn a_check_of_a_served_drive_says_who_has_it_and_what_can_be_asked_meanwhile() {
    let drive = Drive::create();
    let server = drive.serve();
    // A server listens before it opens the drive.
    server.client().flush().unwrap();
    let ended = run_openftl(["check", drive.file()]).failed();
    ended.saying(&["locked by another process", "fix: stop the one that serves it first", "openftl inspect"]);
    server.stop();
    drive.check();
}

#[test]
fn clients_that_ask_for_reports_and_do_not_read_them_are_in_nobodys_way() {
    let drive = Drive::create();
    let server = drive.serve();
    write_whole_units(&server);
    let path = format!("{}.ctl", drive.file());
    let ask = |_| {
        let mut greedy = UnixStream::connect(&path).expect("it is served");
        greedy.set_nonblocking(true).unwrap();
        // As many as its socket takes.
        let line = b"{\"version\":1,\"command\":\"inspect\"}\n";
        while greedy.write(line).is_ok_and(|count| count == line.len()) {}
        greedy
    };
    let greedy: Vec<UnixStream> = (0..10).map(ask).collect();
    let mut client = server.client();
    for number in 0..20 {
        assert!(client.read(0, 1 << 20).unwrap() == random_bytes(0, 1 << 20));
        assert_eq!(drive.inspect()["mapped_blocks"], 1024, "asked {number} times");
    }
    drop(greedy);
    wait_for("statistics", || drive.ctl(&["stats"]).status.success().then_some(()));
    server.stop();
    drive.check();
}

/// What is written at random is read again through the map pages, also after the server was killed; the map stays within its budget.
#[test]
fn a_drive_that_keeps_its_map_on_media_survives_its_server_and_keeps_its_budget() {
    const BLOCKS: u64 = (64 << 20) / 4096;
    let drive = Drive::create_with_map_memory("40%");
    let block_of = |number: u64| number * 7_919 % BLOCKS;
    let mut server = drive.serve();
    for round in 0..3_u64 {
        let mut client = server.client();
        for number in 0..3_000 {
            client.write(block_of(number) * 4096, &random_bytes(round << 32 | number, 4096)).unwrap();
        }
        client.flush().unwrap();
        let report = drive.inspect();
        let bytes = |name: &str| report["map"][name].as_u64().unwrap();
        assert!(
            bytes("memory_bytes") <= bytes("budget_bytes") && bytes("budget_bytes") < bytes("whole_bytes"),
            "{report}"
        );
        drop(client);
        server.kill();
        server = drive.serve();
        let mut client = server.client();
        for number in 0..3_000 {
            assert_eq!(client.read(block_of(number) * 4096, 4096).unwrap(), random_bytes(round << 32 | number, 4096));
        }
    }
    assert!(drive.inspect()["chunks_by_use"]["map"].as_u64().unwrap() > 0);
    server.stop();
    run_openftl(["check", drive.file()]).succeeded().printing(&["sound"]);
}
