//! A zoned namespace as a disk of a Linux host: its zones, what they refuse, and file systems that know them.

use super::zoned::{Limits, Shape, Zoned};
use super::{Linux, boots_here, rounds};
use crate::drive::{openftl, run_openftl};
use crate::network::Network;
use crate::program::Running;
use serde_json::Value;

/// Blocks of 4 KiB that a zone has addresses for, and that it holds: three chunks of a mebibyte.
const ZONE_BLOCKS: u64 = 1024;
const ZONE_CAPACITY: u64 = 768;
const ZONES: u64 = 128;

const LIMITS: Limits = Limits { open: 12, active: 14 };

/// What a script has to find the zones by: $zones is their disk, and $disk the one without.
const FUNCTIONS: &str = r#"
    connect_zones() {
        connect
        until_true sees 2
        zones=$found
        queue=/sys/block/${zones##*/}/queue
        echo mq-deadline >$queue/scheduler || fail "no scheduler for writes in order"
    }
"#;

/// A device with a block namespace, 1, and a zoned one, 2.
fn create(limits: Limits) -> Zoned {
    Zoned::beside_blocks(&Shape { width: 3, zones: ZONES, limits })
}

/// Boots a guest that runs `script`, in which the functions are known.
fn boot(network: &Network, script: &str) -> Linux {
    Linux::boot(network, &[FUNCTIONS, script].concat())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn linux_sees_the_zones_and_their_limits() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (create(LIMITS), Network::new());
    let server = drive.serve(&network);
    let told = boot(
        &network,
        r#"
        connect_zones
        for name in zoned nr_zones chunk_sectors max_open_zones max_active_zones zone_append_max_bytes; do
            echo $name $(cat $queue/$name)
        done >limits
        cat /sys/block/${disk##*/}/queue/zoned >other
        echo $(cat /sys/block/${zones##*/}/{ro,size}) >whole
        nvme zns id-ctrl $controller -o json >controller || fail id-ctrl
        nvme zns id-ns $zones -o json >namespace || fail id-ns
        nvme zns report-zones $zones -o json >zones || fail report-zones
        nvme zns changed-zone-list $zones >changed || fail changed-zone-list
        "#,
    )
    .wait()
    .succeeded();
    let Limits { open, active } = LIMITS;
    let limits = format!(
        "zoned host-managed\nnr_zones {ZONES}\nchunk_sectors {}\nmax_open_zones {open}\n\
         max_active_zones {active}\nzone_append_max_bytes {}\n",
        ZONE_BLOCKS * 8,
        1 << 20
    );
    assert_eq!(told.text("limits"), limits);
    assert_eq!(told.text("other"), "none\n");
    // Linux makes zones whose commands it does not know read-only.
    assert_eq!(told.text("whole"), format!("0 {}\n", ZONES * ZONE_BLOCKS * 8));
    // As long as any transfer.
    assert_eq!(number(&told.json("controller")["zasl"]), 0);
    let namespace = told.json("namespace");
    let facts = ["zoc", "mor", "mar"].map(|name| number(&namespace[name]));
    assert_eq!(facts, [0, open - 1, active - 1], "{namespace:#}");
    assert_eq!(number(&namespace["lbafe"][0]["zsze"]), ZONE_BLOCKS);
    let report = told.json("zones");
    let zones = report["zone_list"].as_array().expect("zones");
    assert_eq!((zones.len() as u64, number(&report["nr_zones"])), (ZONES, ZONES));
    for (zone, first) in zones.iter().zip((0..).step_by(ZONE_BLOCKS as usize)) {
        let facts = ["slba", "wp", "cap", "attrs"].map(|name| number(&zone[name]));
        assert_eq!(facts, [first, first, ZONE_CAPACITY, 0], "{zone:#}");
        assert_eq!((&zone["state"], &zone["type"]), (&"EMPTY".into(), &"SEQWRITE_REQ".into()));
    }
    assert!(told.text("changed").contains("nrzid:  0"), "no zone has changed by itself: {}", told.text("changed"));
    server.stop();
    drive.check();
}

#[test]
fn nvme_cli_opens_zones_with_a_random_write_area_and_commits_it() {
    if !boots_here(&["cmp"]) {
        return;
    }
    let (drive, network) = (create(LIMITS), Network::new());
    let server = drive.serve(&network);
    let told = boot(
        &network,
        r#"
        connect_zones
        put() { nvme write $zones -s $1 -c 0 -z 4096 -d $2 >&2 || fail "a write to block $1"; }
        there() {
            dd if=$zones of=read bs=4k skip=$1 count=1 iflag=direct status=none && cmp read $2 || fail "block $1 is not $2"
        }
        pointer() {
            nvme zns report-zones $zones -s 1024 -d 1 >report || fail report-zones
            grep -q "WP: $1 .*Attrs: $2" report || fail "$(cat report)"
        }
        block a >a; block b >b; zeroes >nothing
        nvme zns id-ns $zones -o json >namespace || fail id-ns
        nvme zns open-zone $zones -s 1024 --zrwaa >&2 || fail "open-zone --zrwaa"
        pointer 0x400 0x8
        # In any order, over again, and read back.
        put 1030 a; put 1024 b; put 1030 b; put 1027 a
        there 1030 b; there 1024 b; there 1025 nothing
        pointer 0x400 0x8
        # Behind the area: the first five blocks are committed.
        put 1044 a
        pointer 0x405 0x8
        nvme zns zrwa-flush-zone $zones -l 1030 >&2 || fail zrwa-flush-zone
        pointer 0x407 0x8
        nvme write $zones -s 1030 -c 0 -z 4096 -d a >said 2>&1 && fail "a block that is committed was written"
        nvme zns zone-append $zones -s 1024 -z 4096 -d a >>said 2>&1 && fail "appended to a random write area"
        nvme zns open-zone $zones -s 2048 >&2 || fail open-zone
        nvme zns zrwa-flush-zone $zones -l 2048 >>said 2>&1 && fail "a zone without an area was committed"
        nvme flush $zones >&2 || fail flush
        nvme zns finish-zone $zones -s 1024 >&2 || fail finish-zone
        there 1044 a; there 1043 nothing; there 1030 b; there 1027 a
        pointer 0xffffffffffffffff 0
        "#,
    )
    .wait()
    .succeeded();
    let namespace = told.json("namespace");
    let facts = ["ozcs", "numzrwa", "zrwafg", "zrwasz", "zrwacap"].map(|name| number(&namespace[name]));
    assert_eq!(facts, [2, LIMITS.open - 1, 1, 16, 1], "{namespace:#}");
    server.stop();
    drive.check();
}

#[test]
fn every_zone_command_of_nvme_cli_and_blkzone_does_what_it_says() {
    if !boots_here(&["blkzone", "cmp"]) {
        return;
    }
    let (drive, network) = (create(LIMITS), Network::new());
    let server = drive.serve(&network);
    boot(
        &network,
        r#"
        connect_zones
        # The first three zones as `blkzone` sees them: states, then write pointers in sectors of the zone.
        are() {
            local states=$1 found
            shift
            found=$(blkzone report -c 3 $zones | sed 's/.*wptr 0x\([0-9a-f]*\) .*(\(..\)).*/\2 \1/' |
                while read -r state pointer; do echo -n "$state $((16#$pointer)) "; done)
            [ "$found" = "$states " ] || fail "zones are: $found, not: $states"
        }
        block a >a; block b >b
        are "em 0 em 0 em 0"
        nvme zns zone-append $zones -s 1024 -z 4096 -d a >first || fail zone-append
        nvme zns zone-append $zones -s 1024 -z 4096 -d b >second || fail zone-append
        grep -q "LBA 400$" first && grep -q "LBA 401$" second || fail "appended elsewhere: $(cat first second)"
        are "em 0 oi 16 em 0"
        cat a b >both
        dd if=$zones of=read bs=4k skip=1024 count=2 iflag=direct status=none && cmp read both || fail "other blocks"
        nvme zns open-zone $zones -s 0 >&2 || fail open-zone
        nvme zns close-zone $zones -s 1024 >&2 || fail close-zone
        nvme zns finish-zone $zones -s 2048 >&2 || fail finish-zone
        are "oe 0 cl 16 fu 8192"
        nvme zns report-zones $zones -S 4 >closed || fail report-zones
        [ "$(grep -c SLBA closed)" = 1 ] && grep -q "SLBA: 0x400 .*WP: 0x402 .*State: 0x40" closed || fail "$(cat closed)"
        nvme zns reset-zone $zones -s 1024 >&2 || fail reset-zone
        are "oe 0 em 0 fu 8192"
        dd if=$zones of=read bs=4k skip=1024 count=1 iflag=direct status=none && zeroes | cmp - read || fail "old blocks"
        nvme zns reset-zone $zones -a >&2 || fail "reset-zone of all"
        are "em 0 em 0 em 0"

        blkzone open -o 8192 -c 2 $zones || fail open
        are "em 0 oe 0 oe 0"
        dd if=both of=$zones bs=8k seek=512 oflag=direct status=none || fail "a write to an open zone"
        blkzone close -o 8192 -c 1 $zones || fail close
        are "em 0 cl 16 oe 0"
        blkzone finish -c 2 $zones || fail finish
        are "fu 8192 fu 8192 oe 0"
        dd if=$zones of=read bs=4k skip=1024 count=2 iflag=direct status=none && cmp read both || fail "not what is finished"
        blkzone reset -o 8192 -c 1 $zones || fail reset
        are "fu 8192 em 0 oe 0"
        blkzone reset $zones || fail "reset of all"
        are "em 0 em 0 em 0"
        "#,
    )
    .wait()
    .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn what_zones_refuse_has_the_errno_of_linux_and_changes_nothing() {
    if !boots_here(&["blkzone", "cmp"]) {
        return;
    }
    let (drive, network) = (create(LIMITS), Network::new());
    let server = drive.serve(&network);
    boot(
        &network,
        r#"
        connect_zones
        # $1: the message of an error number. The zones are as they were.
        refused() {
            local error=$1 said
            shift
            blkzone report $zones >before
            said=$("$@" 2>&1) && fail "succeeds: $*"
            [[ $said = *"$error"* ]] || fail "not '$error': $*: $said"
            blkzone report $zones | cmp - before || fail "other zones: $*"
        }
        write() { dd of=$zones bs=4k oflag=direct status=none if=$1 seek=$2; }
        # The names of EIO, ETOOMANYREFS and EOVERFLOW.
        io="Input/output error" open="Too many references" active="Value too large"
        block a >a
        write a 0 && write a 1 || fail "writes in order"
        refused "$io" write a 1
        refused "$io" write a 3
        refused "$io" write a 1025
        # Addresses without blocks, behind a zone's capacity.
        refused "$io" write a 768
        head -c 3137536 /dev/zero >rest
        dd if=rest of=$zones bs=3137536 seek=8192 oflag=seek_bytes,direct status=none || fail "the rest of the zone"
        refused "$io" write a 0
        refused "$io" write a 768

        blkzone open -o 8192 -c 12 $zones || fail "as many as can be open"
        refused "$open" blkzone open -o 106496 -c 1 $zones
        refused "$open" write a 13312
        blkzone close -o 8192 -c 2 $zones || fail close
        blkzone open -o 106496 -c 2 $zones || fail "as many as can be active"
        blkzone close -o 24576 -c 1 $zones || fail close
        refused "$active" blkzone open -o 122880 -c 1 $zones
        refused "$active" write a 15360
        blkzone finish -o 8192 -c 1 $zones || fail "finish makes room"
        write a 15360 || fail "a write where there is room"
        is_live || fail "the connection is $(state)"
        "#,
    )
    .wait()
    .succeeded();
    server.stop();
    drive.check();
}

#[test]
fn fio_finds_what_it_wrote_to_zones() {
    if !boots_here(&["blkzone"]) {
        return;
    }
    let (drive, network) = (create(LIMITS), Network::new());
    let server = drive.serve(&network);
    boot(
        &network,
        r#"
        connect_zones
        disk=$zones
        for round in $(seq $ROUNDS); do
            blkzone reset $zones || fail reset
            zoned="--zonemode=zbd --max_open_zones=6 --randseed=$round"
            verified $zoned --rw=randwrite --bs=64k --size=64m --io_size=24m --iodepth=8 || fail "fio of zones at random"
            verified $zoned --rw=randwrite --bs=4k --offset=64m --size=64m --io_size=4m --iodepth=16 || fail "fio of small writes"
            verified $zoned --rw=write --bs=256k --offset=128m --size=16m --iodepth=8 || fail "fio in order"
        done
        grep -q '\[mq-deadline\]' $queue/scheduler || fail "another scheduler: $(cat $queue/scheduler)"
        "#,
    )
    .wait()
    .succeeded();
    server.stop();
    drive.check();
}

/// A file system that knows zones.
struct FileSystem {
    kind: &'static str,
    programs: &'static [&'static str],
    /// Functions of a script: the first makes one, the second fails if there is an error in it.
    functions: &'static str,
    /// What Linux mounts.
    device: &'static str,
    limits: Limits,
    /// Crashes that it is put through before a new one is made.
    crashes: usize,
}

const BTRFS: FileSystem = FileSystem {
    kind: "btrfs",
    programs: &["mkfs.btrfs", "btrfs", "sha1sum", "blkzone"],
    functions: r#"
        make() { mkfs.btrfs -q -f -O zoned -d single -m single $zones >&2; }
        has_no_error() { btrfs check $zones >&2; }
    "#,
    device: "$zones",
    limits: LIMITS,
    // After a dozen, Linux 6.1 says that there is no space, with most zones empty and few active: it counts what it cannot
    // use of zones as small as these.
    crashes: 6,
};

const F2FS: FileSystem = FileSystem {
    kind: "f2fs",
    programs: &["mkfs.f2fs", "fsck.f2fs", "sha1sum", "blkzone"],
    functions: r#"
        make() { mkfs.f2fs -q -f -m -c $zones $disk >&2; }
        # fsck.f2fs succeeds in a dry run whatever it finds.
        has_no_error() {
            fsck.f2fs -f --dry-run $disk >check 2>&1 || return 1
            cat check >&2
            ! grep -q -e '\[Fail\]' -e ASSERT check
        }
    "#,
    device: "$disk",
    // Linux 6.1 goes on in new zones after a crash, and does not finish those that it wrote to before: up to six are left
    // active by each, until nothing in them is valid any more.
    limits: Limits { open: 24, active: 28 },
    crashes: 3,
};

/// Writes until the guest is ended: files of which those that are synced have their checksums in `sums`, and others that
/// come and go. Most are of few blocks, less than the flash is programmed with at a time: they are what a flush has to save.
const WORK: &str = r#"
    touch sums works
    number=0
    while :; do
        number=$((number + 1))
        file=/mnt/disk/$ROUND-$number
        bytes=$((RANDOM / 3))
        if [ $((number % 6)) = 0 ]; then
            bytes=$((RANDOM * 4))
            other=/mnt/disk/other-$((number % 4))
            head -c $((RANDOM * 16)) /dev/urandom >$other || fail write
            [ $((RANDOM % 3)) != 0 ] || rm $other || fail rm
        fi
        head -c $bytes /dev/urandom >$file || fail write
        if [ $((number % 8)) = 0 ]; then sync || fail sync; else sync $file || fail fsync; fi
        sha1sum $file >>sums
    done
"#;

/// How a server loses what is not durable.
#[derive(Clone, Copy)]
enum Loss {
    /// The power of the drive goes, when so many more writes have ended.
    PowerAfterWrites(u64),
    /// `kill -9` of the server, when so many files have been synced.
    KillAfterFiles(usize),
}

/// Puts file systems of this kind through the losses.
fn keeps_what_was_synced(system: &FileSystem, losses: &[Loss]) {
    if boots_here(system.programs) {
        losses.chunks(system.crashes).for_each(|losses| survives(system, losses));
    }
}

/// In each round a guest writes to the file system, and loses its drive; the next guest finds all files that were synced. The
/// last one also looks for errors in the file system.
fn survives(system: &FileSystem, losses: &[Loss]) {
    let (drive, network) = (create(system.limits), Network::new());
    let mut server = drive.serve(&network);
    let mut sums = String::new();
    let FileSystem { kind, functions, device, .. } = system;
    let found = |sums: &str| {
        format!(
            "connect_zones; mkdir /mnt/disk; cat >known <<'END'\n{sums}END\n
             [ -s known ] || make || fail make
             mount -t {kind} {device} /mnt/disk || fail mount
             [ ! -s known ] || sha1sum --check --quiet known >&2 || fail 'what was synced'\n"
        )
    };
    for (round, loss) in losses.iter().enumerate() {
        let script = format!("{functions}\n{}\nROUND={round}\n{WORK}", found(&sums));
        let mut linux = boot(&network, &script);
        linux.reaches("works");
        // The host ends before its drive comes back: what it has in memory may rest on writes that the drive has lost.
        server = match *loss {
            Loss::PowerAfterWrites(writes) => {
                let words = ["power-cut", "--torn", "--after-writes", &writes.to_string()];
                let mut cut = Running::start(&openftl(), [&["ctl", &drive.file()], &words[..]].concat());
                linux.brings_about("the power cut", || cut.ended()).succeeded();
                sums.push_str(&linux.dies_leaving("sums"));
                run_openftl(["ctl", &drive.file(), "power-on"]).succeeded();
                server
            }
            Loss::KillAfterFiles(files) => {
                let path = linux.folder.path().join("sums");
                let synced = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
                linux.brings_about("files to be synced", || (synced() >= files).then_some(()));
                server.kill();
                sums.push_str(&linux.dies_leaving("sums"));
                drive.serve(&network)
            }
        };
    }
    let last = r#"
        umount /mnt/disk || fail umount
        has_no_error || fail "there is an error"
        [ $(blkzone report $zones | grep -c '(cl)\|(oi)\|(fu)') -ge 3 ] || fail "zones are not used: $(blkzone report $zones)"
    "#;
    boot(&network, &format!("{functions}\n{}\n{last}", found(&sums))).wait().succeeded();
    server.stop();
    drive.check();
}

/// Power cuts of a test, at other writes in each round.
fn power_cuts() -> Vec<Loss> {
    (0..u64::from(rounds())).map(|round| Loss::PowerAfterWrites(40 + 67 * round % 240)).collect()
}

#[test]
fn btrfs_on_zones_keeps_what_was_synced_through_power_cuts() {
    keeps_what_was_synced(&BTRFS, &power_cuts());
}

#[test]
fn f2fs_on_zones_keeps_what_was_synced_through_power_cuts() {
    keeps_what_was_synced(&F2FS, &power_cuts());
}

#[test]
fn f2fs_on_zones_keeps_what_was_synced_when_the_server_is_killed() {
    keeps_what_was_synced(&F2FS, &vec![Loss::KillAfterFiles(6); rounds() as usize]);
}
