//! An NVMe/TCP initiator in user space that is not ours: truenas_pynvmeof_client, a package of plain Python.
//!
//! What it does and expects is in `pynvmeof.py`, one function for each test.

use crate::environment::{Need, pynvmeof, runs_here};
use crate::mounted::text;
use crate::nvme_commands::{CAPACITY_BYTES, NQN, Target};
use crate::pattern::random_bytes;
use crate::program::run;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/system/pynvmeof.py");

/// Whether the client is here. It needs nothing but Python.
fn is_here() -> bool {
    runs_here(&[Need::Pynvmeof, Need::Program("python3")])
}

/// Runs one function of the script.
fn check(target: &Target, name: &str) {
    let package = pynvmeof().expect("it was asked whether there is one");
    let path = format!("PYTHONPATH={}", text(&package));
    let (address, port) = target.address.split_once(':').expect("an address with a port");
    // Without -B, Python would write into the package's folder.
    run("env", [&path, "python3", "-B", SCRIPT, name, address, port, NQN, text(target.folder.path())]).succeeded();
}

/// Runs a function that needs nothing but a new drive.
fn check_alone(name: &str) {
    if is_here() {
        check(&Target::serve(&[]), name);
    }
}

#[test]
fn it_finds_and_identifies_the_drive() {
    check_alone("identify");
}

#[test]
fn what_it_writes_is_there_for_others() {
    if !is_here() {
        return;
    }
    let target = Target::serve(&[]);
    check(&target, "transfer");
    let output = target.folder.path().join("output");
    target.run("read", &["--output", text(&output)]).succeeded();
    let (image, output) = (target.folder.path().join("image"), std::fs::read(output).unwrap());
    assert_eq!(output.len() as u64, CAPACITY_BYTES);
    assert!(std::fs::read(image).unwrap() == output);
}

#[test]
fn what_others_write_is_there_for_it() {
    if !is_here() {
        return;
    }
    let target = Target::serve(&[]);
    let input = target.file("input", &random_bytes(5, 3 << 20));
    target.run("write", &["--offset", "20KiB", "--input", text(&input)]).succeeded();
    check(&target, "read_back");
}

#[test]
fn it_gets_the_status_of_what_is_wrong_and_goes_on() {
    check_alone("wrong");
}

#[test]
fn a_pdu_of_it_that_is_none_ends_one_connection() {
    check_alone("broken");
}

#[test]
fn it_sets_features_and_reads_logs() {
    check_alone("features");
}

#[test]
fn it_hears_of_a_temperature() {
    check_alone("events");
}

#[test]
fn two_of_it_work_while_one_leaves_and_returns() {
    check_alone("leave_and_return");
}
