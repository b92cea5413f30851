//! A key-value drive in a Linux host: a character device without a disk, which nvme-cli and programs send commands of the Key Value set through.

use super::{HOST_NQN, Linux, NQN, PORT, boots_here};
use crate::drive::run_openftl;
use crate::mounted::text;
use crate::network::{CABLES, Network};
use crate::server::Server;

const DRIVE: &str = r#"
[media]
profile = "cosmos"
capacity = "64MiB"
store = "file"
path = "kv.oftl"
timing = "instant"
[ftl]
kind = "values"
"#;

/// A made drive in a folder: the description, and its file.
fn made(folder: &tempfile::TempDir) -> (String, String) {
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    std::fs::write(path("kv.toml"), DRIVE).unwrap();
    let (toml, disk) = (path("kv.toml"), path("kv.oftl"));
    run_openftl(["create", &disk, "--drive", &toml]).succeeded();
    (toml, disk)
}

fn serve(network: &Network, disk: &str) -> Server {
    let address = format!("{}:{PORT}", CABLES[0].server);
    let words = ["serve", disk, "--nqn", NQN, "--nvme-tcp", &address, "--allow-remote", "--allow-host", HOST_NQN];
    Server::start_for_nvme_in(network, &[&words[..], &["--timing", "instant"]].concat())
}

#[test]
fn nvme_cli_stores_and_retrieves_through_the_character_device_of_a_key_value_namespace() {
    if !boots_here(&["cmp"]) {
        return;
    }
    let (folder, network) = (tempfile::tempdir().unwrap(), Network::new());
    let (_, disk) = made(&folder);
    run_openftl(["kv", "put", "--drive", &disk, "from-here", "hello, Linux"]).succeeded();
    let server = serve(&network, &disk);
    let told = Linux::run(
        &network,
        r#"
        reach
        generic=/dev/ng${controller#/dev/nvme}n1
        until_true [ -c $generic ]
        [ ! -e $controller"n1" ] || fail "keys and values are no disk"
        send() { nvme io-passthru $generic --namespace-id=1 "$@"; }
        # Key "hello" is 68 65 6c 6c 6f. Only if there is none, then again, then only if there is one.
        hello="--cdw2=0x6c6c6568 --cdw3=0x6f"
        printf world >value
        store() { send --opcode=0x01 $hello --cdw10=5 --cdw11=$1 --data-len=5 --write --input-file=value; }
        store 0x205 >stored 2>&1 || fail "$(cat stored)"
        store 0x205 >exists 2>&1 && fail "the key is new a second time"
        store 0x105 >again 2>&1 || fail "$(cat again)"
        send --opcode=0x02 $hello --cdw10=4096 --cdw11=5 --data-len=4096 --read --raw-binary >all 2>answer || fail "$(cat answer)"
        head -c 5 all >retrieved
        send --opcode=0x02 $hello --cdw10=2 --cdw11=5 --data-len=2 --read --raw-binary >part 2>partly || fail "$(cat partly)"
        send --opcode=0x14 $hello --cdw11=5 >exist 2>&1 || fail "$(cat exist)"
        send --opcode=0x14 $hello --cdw11=4 >missing 2>&1 && fail "there is no key hell"
        send --opcode=0x14 $hello >empty 2>&1 && fail "a key of no bytes"
        send --opcode=0x14 $hello --cdw11=17 >long 2>&1 && fail "a key of 17 bytes"
        send --opcode=0x06 --cdw10=4096 --data-len=4096 --read --raw-binary >listed 2>answer || fail "$(cat answer)"
        send --opcode=0x10 $hello --cdw11=5 >deleted 2>&1 || fail "$(cat deleted)"
        send --opcode=0x10 $hello --cdw11=5 >twice 2>&1 || fail "$(cat twice)"
        send --opcode=0x14 $hello --cdw11=5 >gone 2>&1 && fail "it was deleted"
        # Four bytes behind the first eight of a key.
        printf 'of sixteen bytes' >value
        send --opcode=0x01 --cdw2=0x33323130 --cdw3=0x37363534 --cdw14=0x62613938 --cdw15=0x66656463 --cdw10=16 --cdw11=16 \
            --data-len=16 --write --input-file=value >sixteen 2>&1 || fail "$(cat sixteen)"
        send --opcode=0x00 >flushed 2>&1 || fail "$(cat flushed)"
        nvme admin-passthru $controller --opcode=0x06 --namespace-id=1 --cdw10=0x05 --cdw11=0x01000000 --data-len=4096 --read \
            --raw-binary >identified 2>answer || fail "$(cat answer)"
        nvme admin-passthru $controller --opcode=0x06 --namespace-id=1 --cdw10=0 --data-len=4096 --read \
            >blocks 2>&1 && fail "it has no blocks"
        :
        "#,
    )
    .succeeded();
    assert_eq!((told.text("retrieved").as_str(), told.text("part").as_str()), ("world", "wo"));
    // How nvme-cli words a status, differs from version to version; the status does not.
    for (file, status) in [("exists", "89"), ("missing", "87"), ("empty", "86"), ("long", "2"), ("gone", "87")] {
        let said = told.text(file).to_lowercase();
        assert!(said.contains(status), "{file}: {said}");
    }
    // Two keys in their order: from-here (9 bytes), hello (5).
    let listed = told.bytes("listed");
    assert_eq!(listed[..6], [2, 0, 0, 0, 9, 0]);
    assert_eq!((&listed[6..15], &listed[16..18], &listed[18..23]), (&b"from-here"[..], &[5, 0][..], &b"hello"[..]));
    let identified = told.bytes("identified");
    assert_eq!((identified[72], identified[25]), (16, 0), "KVKML, and one format");
    server.stop();
    let read = run_openftl(["kv", "get", "--drive", &disk, "0123456789abcdef"]).succeeded();
    assert_eq!(read.stdout, "of sixteen bytes");
}

/// The ioctls that nvme-cli uses, from a program of a few lines: 64 bits of result, and values longer than a page.
const PROBE: &str = r#"
import ctypes, fcntl, os, sys

class Passthrough(ctypes.Structure):
    _fields_ = [("opcode", ctypes.c_uint8), ("flags", ctypes.c_uint8), ("rsvd1", ctypes.c_uint16), ("nsid", ctypes.c_uint32),
                ("cdw2", ctypes.c_uint32), ("cdw3", ctypes.c_uint32), ("metadata", ctypes.c_uint64), ("addr", ctypes.c_uint64),
                ("metadata_len", ctypes.c_uint32), ("data_len", ctypes.c_uint32), ("cdw10", ctypes.c_uint32), ("cdw11", ctypes.c_uint32),
                ("cdw12", ctypes.c_uint32), ("cdw13", ctypes.c_uint32), ("cdw14", ctypes.c_uint32), ("cdw15", ctypes.c_uint32),
                ("timeout_ms", ctypes.c_uint32), ("rsvd2", ctypes.c_uint32), ("result", ctypes.c_uint64)]

IO64_CMD = 0xC0000000 | ctypes.sizeof(Passthrough) << 16 | ord("N") << 8 | 0x48
device = os.open(sys.argv[1], os.O_RDWR)

def send(opcode, key=b"", data=None, size=0, options=0):
    """Status, result."""
    words = [int.from_bytes(key.ljust(16, b"\0")[at:at + 4], "little") for at in (0, 4, 8, 12)]
    buffer = data if data is not None else ctypes.create_string_buffer(max(size, 1))
    command = Passthrough(opcode=opcode, nsid=1, cdw2=words[0], cdw3=words[1], cdw14=words[2], cdw15=words[3],
                          cdw10=size, cdw11=len(key) | options << 8, data_len=size if opcode in (1, 2, 6) else 0,
                          addr=ctypes.addressof(buffer))
    return fcntl.ioctl(device, IO64_CMD, command), command.result

def value_of(number, size):
    return ctypes.create_string_buffer(bytes((number * 31 + at * 7) & 255 for at in range(251)) * (size // 251 + 1), size + 251)

def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, {wanted} expected")

longest = 256 * 1024 - 4096
for number, size in enumerate([0, 1, 511, 4096, 5000, 65536, 100001, longest]):
    key = b"k" * (1 + 2 * number)
    expect(f"store of {size}", send(1, key, value_of(number, size), size, 2), (0, 0))
    expect("store of a key that exists", send(1, key, value_of(number, size), size, 2)[0] & 0x7ff, 0x89)
    room = ctypes.create_string_buffer(longest)
    expect(f"retrieve of {size}", send(2, key, room, longest), (0, size))
    expect("its bytes", room.raw[:size], value_of(number, size).raw[:size])
    expect("a buffer that is too small", send(2, key, room, max(1, size // 2)), (0, size))
    expect("exist", send(0x14, key), (0, 0))
expect("a value that is too long", send(1, b"k", value_of(0, 300000), 300000)[0] & 0x7ff, 0x85)
expect("no such key", send(0x14, b"other")[0] & 0x7ff, 0x87)
listed = ctypes.create_string_buffer(4096)
expect("list", send(6, b"", listed, 4096)[0], 0)
expect("keys", int.from_bytes(listed.raw[:4], "little"), 8)
expect("list from the second", send(6, b"kk", listed, 4096)[0], 0)
expect("keys from the second", int.from_bytes(listed.raw[:4], "little"), 7)
for number in range(8):
    expect("delete", send(0x10, b"k" * (1 + 2 * number)), (0, 0))
expect("list of nothing", send(6, b"", listed, 4), (0, 0))
expect("no keys", listed.raw[:4], b"\0\0\0\0")
for number in range(500):
    expect("store of many", send(1, b"many%04d" % number, value_of(number, 700), 700)[0], 0)
expect("flush", send(0), (0, 0))
for number in range(500):
    expect("one that is not flushed", send(1, b"more%04d" % number, value_of(number, 700), 700)[0], 0)
print("done")
"#;

#[test]
fn a_program_uses_the_ioctls_of_linux_and_what_it_flushed_is_there_after_a_kill() {
    if !boots_here(&["python3"]) {
        return;
    }
    let (folder, network) = (tempfile::tempdir().unwrap(), Network::new());
    let (_, disk) = made(&folder);
    let server = serve(&network, &disk);
    let script = format!(
        "reach\ngeneric=/dev/ng${{controller#/dev/nvme}}n1\nuntil_true [ -c $generic ]\ncat >probe.py <<'PROBE'\n{PROBE}\nPROBE\n\
         python3 probe.py $generic >probed 2>&1 || fail \"$(cat probed)\"\n"
    );
    let told = Linux::run(&network, &script).succeeded();
    assert_eq!(told.text("probed").trim(), "done");
    server.kill();
    let listed = run_openftl(["kv", "list", "--drive", &disk, "--json", "--limit", "2000"]).succeeded();
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let keys: Vec<&str> = listed["keys"].as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap()).collect();
    let many = keys.iter().filter(|key| key.starts_with("many")).count();
    let more: Vec<&&str> = keys.iter().filter(|key| key.starts_with("more")).collect();
    assert_eq!((many, keys.len()), (500, 500 + more.len()));
    // What was not flushed is there up to some Store.
    assert!(more.iter().enumerate().all(|(number, key)| **key == format!("more{number:04}")), "{more:?}");
    let checked = run_openftl(["check", &disk]);
    assert!(checked.stdout.contains("✓ sound"), "{}{}", checked.stdout, checked.stderr);
}
