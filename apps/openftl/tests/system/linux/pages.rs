//! A store of pages in a Linux host: a character device without a disk, which nvme-cli sends commands of pages through.

use super::{HOST_NQN, Linux, NQN, PORT, boots_here};
use crate::drive::run_openftl;
use crate::mounted::text;
use crate::network::{CABLES, Network};
use crate::server::Server;

const STORE: &str = r#"
[media]
profile = "cosmos"
capacity = "64MiB"
store = "file"
path = "pages.oftl"
timing = "instant"
[ftl]
kind = "pages"
"#;

#[test]
fn nvme_cli_reads_and_commits_pages_through_the_character_device_of_their_namespace() {
    if !boots_here(&["cmp"]) {
        return;
    }
    let (folder, network) = (tempfile::tempdir().unwrap(), Network::new());
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    std::fs::write(path("pages.toml"), STORE).unwrap();
    std::fs::write(path("page"), "a page of some bytes").unwrap();
    let (toml, disk) = (path("pages.toml"), path("pages.oftl"));
    run_openftl(["create", &disk, "--drive", &toml]).succeeded();
    run_openftl(["pages", "put", "--drive", &disk, &format!("7={}", path("page"))]).succeeded();
    let address = format!("{}:{PORT}", CABLES[0].server);
    let words = ["serve", &disk, "--nqn", NQN, "--nvme-tcp", &address, "--allow-remote", "--allow-host", HOST_NQN];
    let server = Server::start_for_nvme_in(&network, &words);
    let told = Linux::run(
        &network,
        r#"
        reach
        generic=/dev/ng${controller#/dev/nvme}n1
        until_true [ -c $generic ]
        [ ! -e $controller"n1" ] || fail "pages are no disk"
        send() { nvme io-passthru $generic --namespace-id=1 "$@"; }
        # Read page 7, as many bytes as it has.
        send --opcode=0xa2 --cdw10=7 --cdw12=4096 --data-len=4096 --read --raw-binary >read 2>answer || fail "$(cat answer)"
        head -c 20 read >page
        # Open a session, and put page 8 with one durable part: a directory of one change, and three bytes.
        printf 'a session of ours' | head -c 16 >identifier
        send --opcode=0xa5 --cdw15=16 --data-len=16 --write --input-file=identifier >opened 2>&1 || fail "$(cat opened)"
        printf '\1\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0new' >part
        commit() { send --opcode=0xa1 --cdw12=$1 --cdw13=3 --cdw15=35 --data-len=35 --write --input-file=part; }
        commit 1 >committed 2>&1 || fail "$(cat committed)"
        # The same batch again is the same batch; one that is far ahead is refused.
        commit 1 >again 2>&1 || fail "$(cat again)"
        commit 99 >early 2>&1 && fail "a batch that is far ahead"
        send --opcode=0xa6 --cdw10=8 --cdw12=16 --data-len=16 --read --raw-binary >stat 2>answer || fail "$(cat answer)"
        send --opcode=0x00 >flushed 2>&1 || fail "$(cat flushed)"
        "#,
    )
    .succeeded();
    assert_eq!(told.text("page"), "a page of some bytes");
    // How nvme-cli words a status, differs from version to version; the status does not.
    let early = told.text("early").to_lowercase();
    assert!(early.contains("1d7"), "{early}");
    assert_eq!(told.bytes("stat")[8..12], [3, 0, 0, 0]);
    server.stop();
    let read = run_openftl(["pages", "get", "--drive", &disk, "8"]).succeeded();
    assert_eq!(read.stdout, "new");
}
