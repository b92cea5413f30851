//! fio's `nbd` engine: random writes that fio verifies itself, at once and after a restart.
//!
//! fio's header in each block names its kind of checksum. Before each job that is looked at again after a restart, the
//! drive is filled with blocks of another kind: so blocks that went back to their state before are found out.

use crate::drive::{CAPACITY_BYTES, Drive};
use crate::environment::{Need, runs_here};
use crate::program::{Ended, run};
use crate::server::Server;

const NEEDS: [Need; 1] = [Need::Program("fio")];

/// Blocks of 4 to 64 KiB at random over 128 MiB, each written once.
const RANDOM_WRITES: [&str; 5] = ["--rw=randwrite", "--bsrange=4k-64k", "--size=128m", "--iodepth=32", "--randseed=7"];

/// Runs one fio job on the served drive.
fn fio(server: &Server, job: &[&str]) -> Ended {
    let uri = format!("--uri={}", server.uri());
    let fixed = ["--name=job", "--thread", "--ioengine=nbd", &uri, "--verify_fatal=1", "--verify_state_save=0"];
    run("fio", fixed.into_iter().chain(job.iter().copied()))
}

/// A random-write job that is verified at once (`md5`) and overwritten by one that is not (`crc32c`).
fn write_two_generations(server: &Server, last: &[&str]) {
    fio(server, &[&RANDOM_WRITES[..], &["--verify=md5"]].concat()).succeeded();
    fio(server, &[&RANDOM_WRITES[..], &["--verify=crc32c", "--do_verify=0"], last].concat()).succeeded();
}

fn verify_second_generation(server: &Server) -> Ended {
    fio(server, &[&RANDOM_WRITES[..], &["--verify=crc32c", "--verify_only=1"]].concat())
}

#[test]
fn random_writes_of_every_size_read_back() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    fio(&server, &["--rw=randwrite", "--bsrange=4k-64k", "--size=256m", "--iodepth=32", "--verify=crc32c"]).succeeded();
    fio(&server, &["--rw=randwrite", "--bsrange=4k-1m", "--size=512m", "--iodepth=8", "--verify=crc32c"]).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn writes_smaller_than_a_block_read_back() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let job =
        ["--rw=randwrite", "--bsrange=512-16k", "--blockalign=512", "--size=16m", "--iodepth=16", "--verify=crc32c"];
    fio(&server, &job).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn overwriting_several_times_keeps_the_last_write_of_each_block() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create_small();
    let server = drive.serve_with(&["--timing", "instant", "--reactors", "3"]);
    // The whole capacity, four times: garbage collection has to work for it.
    for seed in ["--randseed=1", "--randseed=2", "--randseed=3", "--randseed=4"] {
        fio(&server, &["--rw=randwrite", "--bs=8k", "--size=128m", "--iodepth=32", "--verify=crc32c", seed])
            .succeeded();
    }
    assert!(server.stop().stdout.contains("by reactors"), "three threads move the bytes");
    drive.check();
}

#[test]
fn random_overwrites_go_on_for_ten_drive_writes() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create_small();
    let server = drive.serve();
    // Without a map of what was written before, so that blocks are hit at random and not once each.
    fio(&server, &["--rw=randwrite", "--bs=4k", "--size=128m", "--iodepth=32", "--norandommap", "--loops=10"])
        .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn trimmed_and_rewritten_blocks_read_back() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    // Depth 1: fio sends the trim and the write of a block at once, and NBD does not order them.
    for kind in ["--rw=randtrimwrite", "--rw=trimwrite"] {
        fio(&server, &[kind, "--bs=16k", "--size=64m", "--iodepth=1", "--verify=crc32c"]).succeeded();
    }
    fio(&server, &["--rw=randtrim", "--bs=16k", "--size=64m", "--iodepth=16"]).succeeded();
    let zeroes = ["--rw=randread", "--bs=16k", "--size=64m", "--iodepth=16", "--verify=pattern", "--verify_pattern=0"];
    fio(&server, &zeroes).succeeded();
    server.stop();
    let server = drive.serve();
    fio(&server, &zeroes).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn everything_written_is_there_after_a_clean_restart() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    write_two_generations(&server, &[]);
    server.stop();
    let server = drive.serve();
    verify_second_generation(&server).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn everything_flushed_is_there_after_kill_9() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    write_two_generations(&server, &["--end_fsync=1"]);
    server.kill();
    let server = drive.serve();
    verify_second_generation(&server).succeeded();
    server.kill();
    let server = drive.serve();
    verify_second_generation(&server).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn the_verification_of_these_tests_finds_a_block_of_the_generation_before() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let mut client = server.client();
    fio(&server, &[&RANDOM_WRITES[..], &["--verify=md5"]].concat()).succeeded();
    let before = client.read(0, 4096).unwrap();
    write_two_generations(&server, &[]);
    verify_second_generation(&server).succeeded();
    client.write(0, &before).unwrap();
    let ended = verify_second_generation(&server);
    assert!(!ended.status.success(), "a block from elsewhere passes for the right one: {ended}");
}

#[test]
fn wall_clock_timing_serves_the_same_data() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve_with(&["--timing", "wall-clock"]);
    fio(&server, &["--rw=randwrite", "--bsrange=4k-64k", "--size=32m", "--iodepth=16", "--verify=crc32c"]).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn two_jobs_on_connections_of_their_own_do_not_disturb_each_other() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let half = format!("--offset_increment={}", CAPACITY_BYTES / 2);
    let job = ["--rw=randwrite", "--bs=4k", "--size=64m", "--iodepth=16", "--verify=crc32c", "--numjobs=2", &half];
    fio(&server, &job).succeeded();
    server.stop();
    drive.check();
}
