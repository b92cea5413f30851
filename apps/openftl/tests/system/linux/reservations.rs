//! Reservations of a namespace between two Linux hosts, with nvme-cli and through the kernel's own interface for them.

use super::{Linux, PORT, boots_here, serve};
use crate::drive::Drive;
use crate::network::{CABLES, Network};
use serde_json::json;

/// What both hosts know: how a write ends that another host's reservation forbids, and how a command of nvme-cli does.
const WORDS: &str = r#"
    put() { block "$1" | dd of=$disk bs=4096 count=1 seek="$2" oflag=direct status=none; }
    # Words for a write that fails because of a reservation (EBADE).
    fenced() {
        local said
        said=$("$@" 2>&1) && fail "succeeds: $*"
        [[ $said = *"Invalid exchange"* ]] || fail "$*: $said"
    }
    conflicts() {
        local said
        said=$(nvme "$@" 2>&1) && fail "succeeds: nvme $*"
        [[ $said = *"Reservation Conflict"* || $said = *0x4083* || $said = *0x83* ]] || fail "nvme $*: $said"
    }
    there() { dd if=$disk bs=4096 count=1 skip="$2" iflag=direct status=none | cmp - <(block "$1") || fail "block $2 is not $1"; }
"#;

/// The interface of the kernel (`pr_ops`), as fencing agents use it: registers with key 12 and says how that ended.
const REGISTERS: &str = r#"
import fcntl, os, struct, sys
device = os.open(sys.argv[1], os.O_RDWR)
try:
    print(fcntl.ioctl(device, 0x401870c8, bytearray(struct.pack("QQII", 0, 12, 0, 0))) & 0x7ff)
except OSError as error:
    print(os.strerror(error.errno))
"#;

#[test]
fn a_host_that_another_one_preempts_reads_and_writes_no_more() {
    if !boots_here(&["cmp", "python3"]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let address = format!("{}:{PORT}", CABLES[1].server);
    let server = serve(&drive, &network, &["--nvme-tcp", &address]);
    let first = format!(
        r#"{WORDS}
        connect
        nvme id-ctrl $controller -o json >controller || fail id-ctrl
        nvme id-ns $disk -o json >namespace || fail id-ns
        nvme resv-register $disk --nrkey=0xa --rrega=0 >&2 || fail register
        nvme resv-acquire $disk --crkey=0xa --rtype=1 --racqa=0 >&2 || fail acquire
        put mine 0 || fail "a write of the holder"
        fio --name=job --filename=$disk --direct=1 --ioengine=libaio --rw=randwrite --size=8m --offset=1m --iodepth=8 \
            --time_based --runtime=600 --bs=4k >fio 2>&1 &
        touch held
        # The other host preempts it: fio's writes end with an error.
        wait $! && fail "fio goes on"
        grep -q "Invalid exchange" fio || fail "fio: $(cat fio)"
        fenced put late 0
        fenced fio --name=job --filename=$disk --direct=1 --rw=write --bs=4k --size=4k
        there theirs 0
        conflicts resv-acquire $disk --crkey=0xa --rtype=1 --racqa=0
        nvme resv-notif-log $controller -o json >notification || fail resv-notif-log
        touch lost
        until_true [ -e released ]
        put again 2 || fail "a write when nothing is reserved"
        "#
    );
    let second = format!(
        r#"{WORDS}
        HOST_ID=0a4f7d31-8c1d-4b52-9f5e-3f0e6c1d2b77
        cat >registers.py <<'END'
{REGISTERS}
END
        connect
        until_true [ -e held ]
        there mine 0
        fenced put theirs 0
        conflicts resv-acquire $disk --crkey=0xb --rtype=1 --racqa=0
        python3 registers.py $disk >kernel || fail "the kernel's interface"
        nvme resv-register $disk --nrkey=0xb --rrega=0 --cptpl=3 >kept 2>&1 && fail "it is kept over a loss of power"
        nvme resv-register $disk --nrkey=0xb --rrega=0 >&2 || fail register
        conflicts resv-acquire $disk --crkey=0xb --rtype=1 --racqa=0
        nvme resv-report $disk --eds -o json >before || fail resv-report
        nvme resv-acquire $disk --crkey=0xb --prkey=0xa --rtype=1 --racqa=2 >&2 || fail preempt
        put theirs 0 && put theirs 1 || fail "a write of the new holder"
        nvme resv-report $disk --eds -o json >after || fail resv-report
        touch preempted
        until_true [ -e lost ]
        nvme resv-release $disk --crkey=0xb --rtype=1 --rrela=0 >&2 || fail release
        there theirs 1
        "#
    );
    let [mut one, mut other] =
        [Linux::boot_on(&network, &CABLES[0], &first), Linux::boot_on(&network, &CABLES[1], &second)];
    one.reaches("held");
    other.tell("held");
    other.reaches("preempted");
    one.reaches("lost");
    other.tell("lost");
    let told = other.wait().succeeded();
    one.tell("released");
    let one = one.wait().succeeded();
    assert_eq!(one.json("controller")["oncs"].as_u64().unwrap() & 1 << 5, 1 << 5, "reservations");
    let namespace = one.json("namespace");
    assert_eq!([&namespace["nmic"], &namespace["rescap"]], [1, 0xfe], "{namespace:#}");
    let rows = |name: &str| {
        let report = told.json(name);
        let row = |entry: &serde_json::Value| [&entry["rkey"], &entry["rcsts"]].map(|field| field.as_u64().unwrap());
        let mut rows: Vec<_> = report["regctlext"].as_array().unwrap().iter().map(row).collect();
        rows.sort_unstable();
        (json!([report["rtype"], report["regctl"], report["ptpls"]]), rows)
    };
    assert_eq!(rows("before"), (json!([1, 2, 0]), vec![[0xa, 1], [0xb, 0]]));
    assert_eq!(rows("after"), (json!([1, 1, 0]), vec![[0xb, 1]]));
    let notification = one.json("notification");
    assert_eq!(
        [&notification["count"], &notification["rn_log_type"], &notification["nsid"]],
        [1, 1, 1],
        "{notification:#}"
    );
    // Linux always asks for reservations that are kept over a loss of power, and those are not served.
    assert!(told.text("kept").contains("Invalid Field"), "{}", told.text("kept"));
    assert_eq!(told.text("kernel"), "2\n", "Invalid Field in Command");
    server.stop();
    drive.check();
}
