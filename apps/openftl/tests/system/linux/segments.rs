//! Append-only segments as a disk of a Linux host: of blocks that are written in order, or of zones.

use super::{HOST_NQN, Linux, NQN, PORT, boots_here};
use crate::drive::run_openftl;
use crate::network::{CABLES, Network};
use crate::segments::Segments;
use crate::server::Server;

/// Serves the drive of this description to the guest of `network`.
fn serve(toml: &str, network: &Network) -> Server {
    let address = format!("{}:{PORT}", CABLES[0].server);
    let words = ["serve", "--drive", toml, "--nqn", NQN, "--nvme-tcp", &address];
    Server::start_for_nvme_in(network, &[&words[..], &["--allow-remote", "--allow-host", HOST_NQN]].concat())
}

/// A segment has four chunks of a mebibyte: Linux heeds boundaries that are powers of two.
#[test]
fn a_segment_is_written_in_order_discarded_and_written_again_and_its_drive_is_one_of_zones_too() {
    if !boots_here(&["blkdiscard", "blkzone", "cmp"]) {
        return;
    }
    let segments = Segments::with(&[
        ("segment_width = 3", "segment_width = 4"),
        ("capacity = \"48MiB\"", "capacity = \"64MiB\""),
        ("[host]\nnvme_tcp = [\"127.0.0.1:0\"]\n", ""),
    ]);
    segments.create().succeeded();
    let network = Network::new();
    let server = serve(&segments.toml(), &network);
    let told = Linux::run(
        &network,
        r#"
        connect
        nvme id-ns $disk -o json >namespace || fail id-ns
        cat /sys/block/${disk##*/}/queue/{zoned,chunk_sectors} >limits
        head -c 10485760 /dev/urandom >log
        write() { dd if=log of=$disk bs=1M iflag=fullblock oflag=direct status=none "$@"; }
        read_back() { dd if=$disk of=read bs=1M iflag=direct status=none "$@"; }
        # Two segments, and half of a third one.
        write || fail "writes in order"
        read_back count=10 && cmp log read || fail "other blocks"
        # Words for dd, which fails with EIO, and nothing changes.
        refused() {
            said=$(write "$@" 2>&1) && fail "succeeds: $*"
            [[ $said = *"Input/output error"* ]] || fail "$*: $said"
            read_back count=10 && cmp log read || fail "other blocks after: $*"
        }
        refused count=1 skip=1
        refused count=1 seek=4
        refused count=1 seek=14
        blkdiscard --offset 4M --length 4M $disk || fail blkdiscard
        read_back skip=4 count=4 && head -c 4194304 /dev/zero | cmp - read || fail "what is discarded is there"
        write seek=4 count=4 || fail "a segment that was discarded"
        head -c 4194304 log >expected
        read_back skip=4 count=4 && cmp expected read || fail "other blocks"
        verified --rw=write --bs=64k --iodepth=8 --offset=12m --size=8m || fail "fio in order"
        sync $disk || fail sync
        "#,
    )
    .succeeded();
    let namespace = told.json("namespace");
    let facts = ["nsze", "ncap", "noiob", "npdg", "npda", "dlfeat", "nawun", "nawupf"].map(|name| &namespace[name]);
    assert_eq!(facts, [16_384, 16_384, 1024, 1023, 1023, 0, 255, 0], "{namespace:#}");
    assert_eq!(told.text("limits"), "none\n8192\n");
    server.stop();

    let toml = segments.other("segment_width", "interface = \"zones\"\nsegment_width");
    let server = serve(&toml, &network);
    let told = Linux::run(
        &network,
        r#"
        connect
        queue=/sys/block/${disk##*/}/queue
        echo mq-deadline >$queue/scheduler || fail "no scheduler for writes in order"
        cat $queue/{zoned,chunk_sectors,nr_zones,max_open_zones,max_active_zones} >limits
        blkzone report $disk >zones || fail report
        dd if=$disk of=beginning bs=1M count=4 iflag=direct status=none || fail read
        dd if=$disk of=again bs=1M skip=4 count=4 iflag=direct status=none || fail read
        cmp beginning again || fail "other blocks than were written as segments"
        zoned="--zonemode=zbd --max_open_zones=3"
        verified $zoned --rw=randwrite --bs=64k --offset=24m --size=32m --io_size=8m --iodepth=8 || fail "fio of zones"
        "#,
    )
    .succeeded();
    assert_eq!(told.text("limits"), "host-managed\n8192\n16\n4\n4\n");
    let report = told.text("zones");
    let zones: Vec<&str> = report.lines().collect();
    assert_eq!(zones.len(), 16, "{report}");
    assert!(zones.iter().all(|zone| zone.contains("len 0x002000, cap 0x002000")), "{report}");
    let states = |state: &str| zones.iter().filter(|zone| zone.contains(state)).count();
    // Two and two are full, and one holds two mebibytes of four.
    assert_eq!([states("(fu)"), states("(em)")], [4, 11], "{report}");
    assert!(zones[2].contains("wptr 0x001000"), "{report}");
    server.stop();
    run_openftl(["check", &segments.disk()]).succeeded();
}
