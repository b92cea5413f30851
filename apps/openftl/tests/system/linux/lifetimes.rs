//! What nvme-cli tells a drive of lifetimes: streams, placement handles, objects.

use super::{Linux, boots_here, serve};
use crate::drive::Drive;
use crate::network::Network;
use serde_json::Value;

/// Placement handles of a drive that says no number.
const HANDLES: u64 = 8;

/// Blocks of a reclaim unit of the drive of these tests.
const UNIT_BLOCKS: u64 = 256;

/// Blocks left in the reclaim unit of each handle.
fn left(status: &Value) -> Vec<u64> {
    let handles = status["ruhss"].as_array().unwrap_or_else(|| panic!("no handles: {status:#}"));
    handles.iter().map(|handle| handle["ruamw"].as_u64().expect("a number of blocks")).collect()
}

/// A number of nvme-cli, which prints long ones as text.
fn number(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or(text).unwrap_or_else(|| panic!("no number: {value}"))
}

/// What events say: type, flags, placement identifier, namespace.
fn told_events(log: &Value) -> Vec<[u64; 4]> {
    let events: Vec<_> = log["events"].as_array().unwrap_or_else(|| panic!("no events: {log:#}")).iter().collect();
    assert_eq!(number(&log["n"]), events.len() as u64, "{log:#}");
    events.iter().map(|event| ["type", "fdpef", "pid", "nsid"].map(|field| number(&event[field]))).collect()
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
        nvme fdp configs $controller --endgrp-id=1 -o binary >configs-bytes || fail "configs in bytes"
        nvme fdp usage $controller --endgrp-id=1 -o json >usage || fail usage
        nvme fdp status $disk -o json >before || fail status
        nvme fdp set-events $disk --placement-handle=2 --enable --event-types=0,0x80,0x81 >&2 || fail set-events
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
        nvme fdp events $controller --endgrp-id=1 -o json >own-events || fail "events of the drive"
        nvme fdp stats $controller --endgrp-id=1 -o json >stats || fail stats
        dd if=$disk of=b bs=4k count=1 skip=7 iflag=direct status=none && cmp a b || fail "what was written"
        "#,
    )
    .succeeded();
    let configs = told.json("configs");
    let config = &configs["configs"][0];
    assert_eq!(number(&configs["n"]), 0, "one, 0-based: {configs:#}");
    let field = |name: &str| number(&config[name]);
    // Valid, with a write cache; no bytes of a vendor; one reclaim group; a namespace; no time limit.
    assert_eq!(["fdpa", "vss", "nrg", "nruh", "nnss", "erutl"].map(field), [0x90, 0, 1, HANDLES, 1, 0], "{config:#}");
    // nvme-cli 2.3 leaves the handles out of its JSON: four bytes each, behind 16 of a head and 64 of the configuration.
    let bytes = told.bytes("configs-bytes");
    assert_eq!(bytes[16 + 64..][..32], [2, 0, 0, 0].repeat(8), "persistently isolated");
    let usage = told.json("usage");
    let used = usage["ruhus"].as_array().unwrap_or_else(|| panic!("no handles: {usage:#}"));
    assert!(used.iter().all(|handle| number(&handle["ruha"]) == 1), "specified by a host: {usage:#}");
    assert_eq!([used.len() as u64, number(&usage["nruh"])], [HANDLES; 2]);

    let (before, written, updated) =
        (left(&told.json("before")), left(&told.json("written")), left(&told.json("updated")));
    // A unit is one chunk of a drive as small as this.
    assert_eq!(before, [UNIT_BLOCKS; HANDLES as usize]);
    assert_eq!(field("runs"), UNIT_BLOCKS * 4096, "{config:#}");
    let mut expected = before.clone();
    expected[2] -= 8;
    assert_eq!(written, expected, "eight blocks were written under identifier 2");
    assert_eq!(updated, before, "a new unit is empty");
    assert_eq!(told_events(&told.json("events")), [[0, 0b111, 2, 1]], "the unit was not fully written");
    assert_eq!(told_events(&told.json("own-events")), [[0; 4]; 0], "the drive has done nothing by itself");
    let stats = told.json("stats");
    let counted = ["hbmw", "mbmw", "mbe"].map(|name| number(&stats[name]));
    assert_eq!((counted[0], counted[2]), (8 * 4096, 0), "eight blocks, and no chunk was erased: {stats:#}");
    assert!(counted[1] >= UNIT_BLOCKS * 4096, "the rest of the unit is padding: {stats:#}");
    server.stop();
    drive.check();
}

#[test]
fn a_drive_says_what_it_has_moved() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &["--placement", "fdp"]);
    let told = Linux::run(
        &network,
        r#"
        connect
        nvme fdp set-events $disk --placement-handle=0 --enable --event-types=0x80,0x81 >&2 || fail set-events
        fio --name=fill --filename=$disk --rw=write --bs=1M --direct=1 >&2 || fail fill
        fio --name=overwrite --filename=$disk --rw=randwrite --bs=32k --io_size=256M --direct=1 --iodepth=16 --ioengine=libaio \
            --norandommap --randseed=1 >&2 || fail overwrite
        nvme fdp events $controller --endgrp-id=1 -o json >events || fail events
        nvme fdp events $controller --endgrp-id=1 -o binary >bytes || fail "events in bytes"
        nvme fdp events $controller --endgrp-id=1 --host-events -o json >of-hosts || fail "events of hosts"
        nvme fdp stats $controller --endgrp-id=1 -o json >stats || fail stats
        "#,
    )
    .succeeded();
    let log = told.json("events");
    let events = told_events(&log);
    assert!(!events.is_empty(), "collection moves what is valid: {log:#}");
    assert!(events.iter().all(|event| *event == [0x80, 0b111, 0, 1]), "Media Reallocated, of handle 0: {log:#}");
    let moved: Vec<u64> = log["events"].as_array().unwrap().iter().map(|event| number(&event["nlbam"])).collect();
    assert!(moved.iter().all(|blocks| (1..=UNIT_BLOCKS).contains(blocks)), "{moved:?}");
    // The first block lies behind four bytes, where nvme-cli 2.3 does not look for it.
    let bytes = told.bytes("bytes");
    for event in bytes[64..][..events.len() * 64].chunks_exact(64) {
        let first = u64::from_le_bytes(event[20..28].try_into().unwrap());
        assert!(event[16] == 1 && first < (512 << 20) / 4096, "{event:?}");
    }
    assert_eq!(told_events(&told.json("of-hosts")), [[0; 4]; 0]);
    let stats = told.json("stats");
    let counted = ["hbmw", "mbmw", "mbe"].map(|name| number(&stats[name]));
    assert_eq!(counted[0], (512 + 256) << 20, "as fio has written: {stats:#}");
    assert!(counted[1] > counted[0] + moved.iter().sum::<u64>() * 4096 && counted[2] > 0, "{stats:#}");
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
