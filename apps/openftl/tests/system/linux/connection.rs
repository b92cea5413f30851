//! Connections that are lost, and come back: no program on the host hears of it.

use super::{Linux, boots_here, rounds, serve};
use crate::drive::Drive;
use crate::network::Network;
use rustix::process::{Pid, Signal};

/// Connects for long waits, and starts fio in the background: writes that are durable when they end, verified in the end.
/// What the host loses with a server that dies is its write cache; fio could not tell that from a lost write.
const FIO_AT_WORK: &str = r#"
    connect --ctrl-loss-tmo=600 --reconnect-delay=1 --keep-alive-tmo=2
    verified --rw=randwrite --bsrange=4k-32k --size=$((6 * (ROUNDS + 1)))m --iodepth=8 --rate_iops=300 --sync=dsync &
    fio=$!
    # $1 more writes have ended, and fio goes on.
    goes_on() {
        local enough=$(( $(writes) + $1 ))
        until_true written_or_ended $enough
        kill -0 $fio 2>/dev/null || fail "fio has ended"
    }
    written_or_ended() { has_written $1 || ! kill -0 $fio 2>/dev/null; }
"#;

#[test]
fn fio_sees_no_error_when_the_server_is_killed_and_comes_back() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let mut server = serve(&drive, &network, &[]);
    let script = r#"
        for round in $(seq $ROUNDS); do
            goes_on 100
            touch kill-$round
            until_true is_not_live
            touch lost-$round
            until_true is_live
        done
        wait $fio || fail "fio failed"
        dmesg | grep -i 'i/o error' && fail "the kernel has given up a request"
        [ "$(nvme list-ns $controller | wc -l)" = 1 ] || fail "no namespace"
    "#;
    let mut linux = Linux::boot(&network, &[FIO_AT_WORK, script].concat());
    for round in 1..=rounds() {
        linux.reaches(&format!("kill-{round}"));
        server.kill();
        linux.reaches(&format!("lost-{round}"));
        server = serve(&drive, &network, &[]);
    }
    linux.wait().succeeded();
    server.stop();
    drive.check();
}

#[test]
fn fio_sees_no_error_when_the_server_stands_still_until_the_host_gives_the_connection_up() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let script = r#"
        goes_on 100
        touch stop
        until_true is_not_live
        touch continue
        until_true is_live
        goes_on 100
        wait $fio || fail "fio failed"
        dmesg | grep -i 'i/o error' && fail "the kernel has given up a request"
        true
    "#;
    let mut linux = Linux::boot(&network, &[FIO_AT_WORK, script].concat());
    let signal = |signal| {
        rustix::process::kill_process(Pid::from_child(server.child()), signal).expect("our own child takes a signal");
    };
    linux.reaches("stop");
    signal(Signal::STOP);
    linux.reaches("continue");
    signal(Signal::CONT);
    linux.wait().succeeded();
    server.stop();
    drive.check();
}

#[test]
fn fio_sees_no_error_when_the_host_resets_the_controller() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let script = r#"
        for round in $(seq $((3 * ROUNDS))); do
            goes_on 50
            nvme reset $controller || fail reset
            until_true is_live
        done
        wait $fio || fail "fio failed"
        dmesg | grep -i 'i/o error' && fail "the kernel has given up a request"
        true
    "#;
    Linux::run(&network, &[FIO_AT_WORK, script].concat()).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn a_host_that_leaves_in_the_middle_of_writes_leaves_a_sound_drive() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let script = r#"
        for round in $(seq $((2 * ROUNDS))); do
            connect --ctrl-loss-tmo=0
            fio --name=job --filename=$disk --direct=1 --ioengine=libaio --rw=randwrite --bsrange=4k-512k --size=400m \
                --time_based --runtime=600 --iodepth=32 >/dev/null 2>&1 &
            fio=$!
            until_true has_written 50
            disconnect
            wait $fio && fail "fio ended before its disk was gone"
        done
        connect
        verified --rw=randwrite --bs=4k --size=4m --iodepth=16 || fail "fio after all"
    "#;
    Linux::run(&network, script).succeeded();
    server.stop();
    drive.check();
}

#[test]
fn a_host_that_vanishes_is_forgotten_and_another_one_connects() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    for _ in 0..rounds() {
        let script = "connect --keep-alive-tmo=1\n verified --rw=randwrite --bs=64k --size=400m --iodepth=16 --sync=dsync & \
                      until_true has_written 20; touch writes; wait";
        let mut linux = Linux::boot(&network, script);
        linux.reaches("writes");
        // Dropped, it is killed: its end of the cable says nothing any more.
        drop(linux);
    }
    Linux::run(&network, "connect; verified --rw=randwrite --bs=4k --size=4m --iodepth=16").succeeded();
    server.stop();
    drive.check();
}
