//! Several namespaces of one device: a Linux host sees those that are attached, and hears of each that comes or goes.

use super::{HOST_NQN, Linux, NQN, PORT, boots_here};
use crate::drive::run_openftl;
use crate::mounted::text;
use crate::network::{CABLES, Network};
use crate::server::Server;

const TENANTS: &str = r#"
[media]
profile = "cosmos"
store = "file"
path = "tenants.oftl"
timing = "instant"
[[namespace]]
name = "one"
kind = "block"
groups = "0-3"
capacity = "128MiB"
[[namespace]]
name = "two"
kind = "block"
groups = "4-5"
capacity = "64MiB"
[[namespace]]
name = "flash"
kind = "open-channel"
groups = "6-7"
"#;

#[test]
fn a_host_sees_disks_come_and_go_and_their_data_stay() {
    if !boots_here(&["cmp"]) {
        return;
    }
    let (folder, network) = (tempfile::tempdir().unwrap(), Network::new());
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    std::fs::write(path("tenants.toml"), TENANTS).unwrap();
    let (toml, disk) = (path("tenants.toml"), path("tenants.oftl"));
    let address = format!("{}:{PORT}", CABLES[0].server);
    let words = ["serve", "--drive", &toml, "--nqn", NQN, "--nvme-tcp", &address, "--allow-remote"];
    let server =
        Server::start_in(&network, &[&words[..], &["--allow-host", HOST_NQN]].concat(), &folder.path().join("socket"));
    let script = r#"
        connect
        until_true sees 2
        [ "$(nvme list-ns $controller | wc -l)" = 3 ] || fail "not three namespaces: $(nvme list-ns $controller)"
        first=$disk
        disk=$found
        verified --rw=randwrite --bs=4k --size=4m --iodepth=8 --randseed=3 || fail "fio of namespace 2"
        disk=$first
        verified --rw=randwrite --bs=4k --size=4m --iodepth=8 --randseed=4 || fail "fio of namespace 1"

        touch idle
        until_true sees_not 2
        sees 1 || fail "namespace 1 has gone too"
        [ "$(nvme list-ns $controller | wc -l)" = 2 ] || fail "not two namespaces: $(nvme list-ns $controller)"
        touch gone
        until_true sees 2
        disk=$found
        verified --rw=randwrite --bs=4k --size=4m --iodepth=8 --randseed=3 --verify_only=1 || fail "what was written is not there"

        # At work: what is under way ends, and what comes later fails; nobody hangs.
        fio --name=job --filename=$disk --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --size=16m --iodepth=8 \
            --time_based --runtime=600 >fio 2>&1 &
        fio=$!
        until_true has_written 2000
        touch busy
        wait $fio && fail "fio has not noticed"
        until_true sees_not 2
        disk=$first
        verified --rw=randwrite --bs=4k --size=4m --iodepth=8 --randseed=4 --verify_only=1 || fail "namespace 1 is disturbed"
        is_live || fail "the controller is $(state)"
        touch back
        until_true sees 2
        dd if=$found of=/dev/null bs=1M count=4 iflag=direct 2>/dev/null || fail "namespace 2 cannot be read"
    "#;
    let mut linux = Linux::boot(&network, script);
    for (reached, word) in [("idle", "detach"), ("gone", "attach"), ("busy", "detach"), ("back", "attach")] {
        linux.reaches(reached);
        run_openftl(["ctl", &disk, word, "two"]).succeeded();
    }
    linux.wait().succeeded();
    server.stop();
    run_openftl(["check", &disk]).succeeded();
}
