//! What nvme-cli sees of a drive, and what its commands do to it.

use super::{Linux, NQN, PORT, boots_here, serve};
use crate::drive::{CAPACITY_BYTES, Drive};
use crate::network::{CABLES, Network};
use serde_json::Value;

fn number(value: &Value) -> u64 {
    // nvme-cli writes numbers that may not fit JSON as text.
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or(text).unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn discovery_names_the_subsystem_and_where_it_is() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let told = Linux::run(
        &network,
        r#"
        nvme discover -t tcp -a $SERVER -s $PORT --hostnqn=$HOST_NQN -o json >log || fail discover
        nvme discover -t tcp -a $SERVER -s $PORT --hostnqn=nqn.2026-11.test:stranger -o json >strange || fail discover
        # What is discovered is connected.
        nvme connect-all -t tcp -a $SERVER -s $PORT --hostnqn=$HOST_NQN --hostid=$HOST_ID || fail connect-all
        until_true has_disk
        cat /sys/class/nvme/nvme*/subsysnqn >connected
        "#,
    )
    .succeeded();
    let log = told.json("log");
    let records = log["records"].as_array().expect("records");
    assert_eq!(records.len(), 1, "{log:#}");
    let check = |name: &str, value: &str| assert_eq!(records[0][name], value, "{name} in {log:#}");
    check("subnqn", NQN);
    check("subtype", "nvme subsystem");
    check("trtype", "tcp");
    check("adrfam", "ipv4");
    check("traddr", CABLES[0].server);
    check("trsvcid", PORT);
    // Who may not connect does not learn what is there.
    let strange = told.text("strange");
    assert!(!strange.contains(NQN), "{strange}");
    assert_eq!(told.text("connected").trim(), NQN);
    server.stop();
}

#[test]
fn a_host_that_is_not_on_the_list_is_refused_and_the_one_that_is_goes_on() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let told = Linux::run(
        &network,
        r#"
        connect
        for stranger in nqn.2026-11.test:stranger ${HOST_NQN}0 nqn.2014-08.org.nvmexpress.discovery; do
            nvme connect -t tcp -a $SERVER -s $PORT -n $NQN --hostnqn=$stranger && fail "$stranger connects"
        done
        nvme connect -t tcp -a $SERVER -s $PORT -n $NQN.not --hostnqn=$HOST_NQN && fail "a subsystem that is not there"
        block a >a && dd if=a of=$disk bs=4k oflag=direct status=none && dd if=$disk of=b bs=4k count=1 iflag=direct status=none
        cmp a b
        "#,
    );
    told.succeeded();
    server.stop();
    drive.check();
}

#[test]
fn identify_says_what_the_drive_is() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let told = Linux::run(
        &network,
        r#"
        connect
        nvme id-ctrl $controller -o json >controller || fail id-ctrl
        nvme id-ns $disk -o json >namespace || fail id-ns
        nvme ns-descs $disk -o json >descriptors || fail ns-descs
        nvme list-ns $controller -o json >list || fail list-ns
        nvme id-ns-lba-format $controller -l 0 -U 0 >format-0 2>&1
        nvme get-feature $controller -f 6 >cache || fail "the write cache"
        nvme get-feature $controller -f 7 >queues || fail "the number of queues"
        cat /sys/block/${disk##*/}/size >sectors
        cat /sys/block/${disk##*/}/uuid >uuid
        cat /sys/block/${disk##*/}/queue/{logical_block_size,fua,write_cache,discard_max_bytes,write_zeroes_max_bytes} >queue
        "#,
    )
    .succeeded();
    let controller = told.json("controller");
    let text = |name: &str| controller[name].as_str().expect(name).trim().to_owned();
    assert_eq!(text("mn"), "OpenFTL");
    assert_eq!(text("subnqn"), NQN);
    assert_eq!(text("sn").len(), 16, "{controller:#}");
    // Compare, write uncorrectable, deallocation, write zeroes, timestamp, verify and copy; a write cache, and flushes of
    // all namespaces.
    let optional = number(&controller["oncs"]);
    for bit in [0, 1, 2, 3, 6, 7, 8] {
        assert!(optional & 1 << bit != 0, "ONCS has no bit {bit}: {optional:#x}");
    }
    assert_eq!(number(&controller["vwc"]), 7);
    assert_eq!(number(&controller["tnvmcap"]), CAPACITY_BYTES);
    let namespace = told.json("namespace");
    for name in ["nsze", "ncap"] {
        assert_eq!(number(&namespace[name]) * 4096, CAPACITY_BYTES, "{name}");
    }
    let format = &namespace["lbafs"][number(&namespace["flbas"]) as usize & 15];
    assert_eq!((number(&format["ms"]), number(&format["ds"])), (0, 12), "{namespace:#}");
    // A megabyte, and the first block counts.
    assert_eq!((number(&namespace["nawun"]), number(&namespace["nawupf"])), (255, 255));
    assert_eq!(told.text("sectors").trim().parse(), Ok(CAPACITY_BYTES / 512));
    let uuid = told.text("uuid");
    assert!(told.text("descriptors").contains(uuid.trim()), "{uuid}: {}", told.text("descriptors"));
    assert!(told.text("list").contains('1'), "{}", told.text("list"));
    assert!(told.text("cache").ends_with("0x00000001\n") || told.text("cache").contains("00000001"));
    let queue = told.text("queue");
    let queue: Vec<&str> = queue.split_whitespace().collect();
    assert_eq!(queue[..4], ["4096", "1", "write", "back"], "{queue:?}");
    assert!(queue[4..].iter().all(|bytes| *bytes != "0"), "{queue:?}");
    server.stop();
}

#[test]
fn the_logs_count_what_was_written() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let told = Linux::run(
        &network,
        r#"
        connect
        nvme smart-log $controller -o json >smart-before || fail smart-log
        dd if=/dev/urandom of=$disk bs=1M count=32 oflag=direct conv=fsync status=none || fail dd
        nvme smart-log $controller -o json >smart || fail smart-log
        nvme ocp smart-add-log $controller -o json >ocp || fail "ocp smart-add-log"
        nvme fw-log $controller -o json >firmware || fail fw-log
        # It looks for registers on PCI unless told which commands.
        nvme effects-log $controller --csi=0 -o json >effects || fail effects-log
        nvme supported-log-pages $controller >pages || fail supported-log-pages
        nvme changed-ns-list-log $controller >changed || fail changed-ns-list-log
        "#,
    )
    .succeeded();
    let (before, smart, ocp) = (told.json("smart-before"), told.json("smart"), told.json("ocp"));
    assert_eq!(number(&before["data_units_written"]), 0, "{before:#}");
    // Thousands of 512 bytes, rounded up.
    let host = 32 << 20;
    assert_eq!(number(&smart["data_units_written"]), u64::div_ceil(host, 512_000), "{smart:#}");
    assert_eq!(number(&smart["critical_warning"]), 0);
    assert_eq!(number(&smart["avail_spare"]), 100);
    let media = number(&ocp["Physical media units written"]["lo"]);
    assert!((host..2 * host).contains(&media), "{media} bytes programmed for {host}: {ocp:#}");
    assert_eq!(ocp["Log page GUID"], "0xafd514c97c6f4f9ca4f2bfea2810afc5");
    for page in ["LID 0x0 ", "LID 0x1 ", "LID 0x2 ", "LID 0x3 ", "LID 0x4 ", "LID 0x5 ", "LID 0xc0 "] {
        assert!(told.text("pages").contains(page), "{page}: {}", told.text("pages"));
    }
    server.stop();
}

#[test]
fn every_io_command_of_nvme_cli_does_what_it_says() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let told = Linux::run(
        &network,
        r#"
        connect
        zeroes >zeroes; block a >a; block b >b; cat a b a b >four
        put() { nvme write $disk --start-block=$1 --block-count=0 --data-size=4096 --data=$2 "${@:3}" || fail write $*; }
        is() {
            # nvme-cli leaves what is longer in a file.
            rm -f /run/read
            nvme read $disk --start-block=$1 --block-count=0 --data-size=4096 --data=/run/read || fail read $*
            cmp /run/read $2 || fail "block $1 is not $2"
        }
        put 10 a; put 11 b; put 12 a; put 13 b --force-unit-access
        nvme flush $disk || fail flush
        is 10 a; is 11 b; is 12 a; is 13 b; is 14 zeroes
        nvme read $disk -s 10 -c 3 -z 16384 -d /run/read && cmp /run/read four || fail "four blocks"

        nvme compare $disk -s 10 -c 3 -z 16384 -d four || fail compare
        nvme compare $disk -s 11 -c 0 -z 4096 -d a && fail "compares what differs"
        nvme verify $disk -s 10 -c 3 || fail verify

        nvme write-zeroes $disk -s 11 -c 0 || fail write-zeroes
        is 10 a; is 11 zeroes; is 12 a
        nvme dsm $disk --ad --slbs=12,10 --blocks=1,1 || fail dsm
        is 10 zeroes; is 11 zeroes; is 12 zeroes; is 13 b

        put 20 a; put 21 b; put 30 b
        nvme copy $disk --sdlba=40 --slbs=20,30,21 --blocks=0,0,0 || fail copy
        is 40 a; is 41 b; is 42 b; is 20 a

        # The last block, and through the kernel's block layer what the command wrote.
        last=$(( $(cat /sys/block/${disk##*/}/size) / 8 - 1 ))
        put $last a; is $last a
        dd if=$disk of=/run/read bs=4k skip=$last count=1 iflag=direct status=none && cmp /run/read a || fail "the last block"
        blkdiscard --offset $((40 * 4096)) --length 4096 $disk || fail blkdiscard
        is 40 zeroes; is 41 b
        blkdiscard --zeroout --offset $((41 * 4096)) --length 4096 $disk || fail "blkdiscard --zeroout"
        is 41 zeroes; is 42 b
        "#,
    );
    told.succeeded();
    // NBD shows the same drive.
    let mut client = server.client();
    assert!(client.read(12 * 4096, 4096).unwrap().iter().all(|byte| *byte == 0));
    assert!(client.read(13 * 4096, 4096).unwrap().iter().any(|byte| *byte != 0));
    drop(client);
    server.stop();
    drive.check();
}

#[test]
fn a_wrong_command_gets_its_status_and_a_row_in_the_error_log() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let server = serve(&drive, &network, &[]);
    let told = Linux::run(
        &network,
        r#"
        connect
        zeroes >zeroes; block a >a
        nvme write $disk -s 5 -c 0 -z 4096 -d a || fail write
        # $1: the status that nvme-cli prints in parentheses, without the bits that say more or forbid to try again.
        wrong() {
            local said status=$1 found
            shift
            said=$("$@" 2>&1) && fail "succeeds: $*"
            found=$(sed -n 's/.*(0x\([0-9a-f]*\)).*/\1/p' <<<"$said" | tail -n 1)
            [ $((0x${found:-0} & 0x7ff)) = $((status)) ] || fail "status ${found:-none} instead of $status: $*: $said"
        }
        last=$(( $(cat /sys/block/${disk##*/}/size) / 8 - 1 ))
        wrong 0x080 nvme read $disk -s $((last + 1)) -c 0 -z 4096 -d /run/read
        wrong 0x080 nvme read $disk -s $last -c 1 -z 8192 -d /run/read
        wrong 0x080 nvme write $disk -s 0xffffffffffffffff -c 0 -z 4096 -d a
        wrong 0x285 nvme compare $disk -s 5 -c 0 -z 4096 -d zeroes
        nvme write-uncor $disk -s 6 -c 1 || fail write-uncor
        wrong 0x281 nvme read $disk -s 5 -c 2 -z 12288 -d /run/read
        wrong 0x281 nvme verify $disk -s 7 -c 0
        wrong 0x281 nvme compare $disk -s 6 -c 0 -z 4096 -d zeroes
        dd if=$disk of=/run/read bs=4k skip=6 count=1 iflag=direct status=none && fail "the kernel reads block 6"
        dd if=$disk of=/run/read bs=4k skip=5 count=1 iflag=direct status=none && cmp /run/read a || fail "block 5"
        nvme write $disk -s 6 -c 0 -z 4096 -d a || fail "write of block 6"
        nvme write-zeroes $disk -s 7 -c 0 || fail "write-zeroes of block 7"
        cat a a zeroes >cured
        rm -f /run/read
        nvme read $disk -s 5 -c 2 -z 12288 -d /run/read && cmp /run/read cured || fail "the blocks are not cured"
        rm -f /run/read
        wrong 0x001 nvme format $disk -l 1 --force
        wrong 0x001 nvme io-passthru $disk --opcode=0x7c --namespace-id=1
        wrong 0x001 nvme admin-passthru $controller --opcode=0xc1
        wrong 0x00b nvme admin-passthru $controller --opcode=0x06 --namespace-id=65 --cdw10=0 --data-len=4096 --read
        wrong 0x002 nvme admin-passthru $controller --opcode=0x06 --cdw10=0xfe --data-len=4096 --read
        wrong 0x109 nvme get-log $controller --log-id=0xd7 --log-len=64
        wrong 0x002 nvme get-feature $controller -f 0xee
        nvme error-log $controller -e 64 -o json >errors || fail error-log
        nvme smart-log $controller -o json >smart || fail smart-log
        # Nothing was changed, and the host goes on.
        nvme read $disk -s 5 -c 0 -z 4096 -d /run/read && cmp /run/read a || fail "the block is another one"
        is_live || fail "the connection is $(state)"
        "#,
    )
    .succeeded();
    let errors = told.json("errors");
    let rows: Vec<&Value> = errors["errors"].as_array().expect("errors").iter().collect();
    let there: Vec<&&Value> = rows.iter().filter(|row| number(&row["error_count"]) > 0).collect();
    assert!(there.len() >= 12, "{errors:#}");
    // The newest one first.
    let counts: Vec<u64> = there.iter().map(|row| number(&row["error_count"])).collect();
    assert!(counts.windows(2).all(|pair| pair[0] == pair[1] + 1), "{counts:?}");
    let compare = there.iter().find(|row| number(&row["status_field"]) & 0x7ff == 0x285).expect("the failed compare");
    assert_eq!((number(&compare["lba"]), number(&compare["nsid"])), (5, 1), "{compare:#}");
    // Of a read of blocks 5 to 7 the first that cannot be read.
    let read = there.iter().rfind(|row| number(&row["status_field"]) & 0x7ff == 0x281).expect("the failed read");
    assert_eq!((number(&read["lba"]), number(&read["nsid"])), (6, 1), "{read:#}");
    assert_eq!(number(&told.json("smart")["num_err_log_entries"]), counts[0]);
    server.stop();
    drive.check();
}
