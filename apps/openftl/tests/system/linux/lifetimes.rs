//! What nvme-cli tells a drive of lifetimes: streams, placement handles, objects.

use super::{Linux, boots_here, serve};
use crate::drive::Drive;
use crate::network::Network;
use serde_json::Value;

/// Blocks left in the reclaim unit of each handle.
fn left(status: &Value) -> Vec<u64> {
    let handles = status["ruhss"].as_array().unwrap_or_else(|| panic!("no handles: {status:#}"));
    handles.iter().map(|handle| handle["ruamw"].as_u64().expect("a number of blocks")).collect()
}

#[test]
fn data_are_placed_by_placement_identifiers() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &["--placement", "fdp-persistent"]);
    let told = Linux::run(
        &network,
        r#"
        connect
        nvme fdp configs $controller --endgrp-id=1 -o json >configs || fail configs
        nvme fdp usage $controller --endgrp-id=1 -o json >usage || fail usage
        nvme fdp status $disk -o json >before || fail status
        nvme fdp set-events $disk --placement-handle=2 --enable --event-types=0 >&2 || fail set-events
        block a >a
        for first in 0 1 2 3 4 5 6 7; do
            nvme write $disk --start-block=$first --block-count=0 --data-size=4096 --data=a --dir-type=2 --dir-spec=2 >&2 ||
                fail "a write under identifier 2"
        done
        nvme fdp status $disk -o json >written || fail status
        nvme fdp update $disk --pids=2 >&2 || fail update
        nvme fdp status $disk -o json >updated || fail status
        nvme fdp update $disk --pids=8 >&2 && fail "a handle that is not there"
        nvme fdp events $controller --endgrp-id=1 --host-events -o json >events || fail events
        nvme fdp stats $controller --endgrp-id=1 -o json >stats || fail stats
        dd if=$disk of=b bs=4k count=1 skip=7 iflag=direct status=none && cmp a b || fail "what was written"
        "#,
    )
    .succeeded();
    let text = told.text("configs");
    assert!(text.contains("ruh") || text.contains("RUH"), "{text}");
    let (before, written, updated) =
        (left(&told.json("before")), left(&told.json("written")), left(&told.json("updated")));
    assert_eq!(before.len(), 8, "{before:?}");
    assert!(written[2] < before[2], "what was written under it is no longer there: {before:?} {written:?}");
    assert!([0, 1, 3, 4, 5, 6, 7].into_iter().all(|other| written[other] == before[other]), "{written:?}");
    assert_eq!(updated, before, "a new unit is empty");
    let events = told.text("events");
    assert!(events.contains("Not Written to Full Capacity") || events.contains("\"type\""), "{events}");
    let stats = told.json("stats");
    assert!(stats.to_string().contains("32768"), "eight blocks were written: {stats:#}");
    server.stop();
    drive.check();
}

#[test]
fn a_host_opens_and_releases_streams() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &["--placement", "streams"]);
    let told = Linux::run(
        &network,
        r#"
        connect
        nvme dir-receive $disk --dir-type=0 --dir-oper=1 --data-len=4096 --human-readable >supported || fail identify
        nvme dir-send $disk --dir-type=0 --dir-oper=1 --target-dir=1 --endir=1 >&2 || fail enable
        nvme dir-receive $disk --dir-type=1 --dir-oper=1 --data-len=32 --human-readable >parameters || fail parameters
        block a >a
        for stream in 7 500; do
            nvme write $disk --start-block=$stream --block-count=0 --data-size=4096 --data=a --dir-type=1 --dir-spec=$stream >&2 ||
                fail "a write to stream $stream"
        done
        nvme dir-receive $disk --dir-type=1 --dir-oper=2 --data-len=64 --raw-binary >open || fail status
        nvme dir-send $disk --dir-type=1 --dir-oper=1 --dir-spec=7 >&2 || fail release
        nvme dir-receive $disk --dir-type=1 --dir-oper=2 --data-len=64 --raw-binary >released || fail status
        dd if=$disk of=b bs=4k count=1 skip=500 iflag=direct status=none && cmp a b || fail "what was written"
        "#,
    )
    .succeeded();
    let open = |name: &str| {
        let bytes = told.bytes(name);
        let count = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        let ids = bytes[2..].as_chunks::<2>().0.iter().take(count);
        ids.map(|id| u16::from_le_bytes(*id)).collect::<Vec<_>>()
    };
    assert_eq!((open("open"), open("released")), (vec![7, 500], vec![500]));
    server.stop();
    drive.check();
}

#[test]
fn objects_are_announced_by_a_command_of_ours() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &["--placement", "flash-alloc"]);
    Linux::run(
        &network,
        r#"
        connect
        announce() { nvme io-passthru $disk --opcode=0xc1 --namespace-id=1 --write --data-len=16 "$@" >&2; }
        printf '\0\0\0\0\10\0\0\0\144\0\0\0\0\0\0\0' >eight
        announce --input-file=eight || fail "eight blocks from block 100 on"
        printf '\0\0\0\0\0\0\0\0\144\0\0\0\0\0\0\0' >none
        announce --input-file=none && fail "no block"
        printf '\0\0\0\0\10\0\0\0\377\377\377\377\0\0\0\0' >beyond
        announce --input-file=beyond && fail "blocks that are not there"
        block a >a
        for first in 107 106 105 104 103 102 101 100; do
            dd if=a of=$disk bs=4k seek=$first count=1 oflag=direct status=none || fail "a write"
        done
        dd if=$disk of=b bs=4k count=1 skip=100 iflag=direct status=none && cmp a b || fail "what was written"
        "#,
    )
    .succeeded();
    server.stop();
    drive.check();
}
