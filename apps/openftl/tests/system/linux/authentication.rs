//! DH-HMAC-CHAP with the secrets that nvme-cli makes: of each kind, right and wrong, in one direction and in both.

use super::{HOST_NQN, Linux, boots_here, serve};
use crate::drive::Drive;
use crate::network::Network;
use crate::program::run;
use crate::server::Server;

/// The hash that transforms a secret, as `nvme gen-dhchap-key --hmac` numbers it (0: none), and the secret's bytes.
const KINDS: [(&str, &str); 6] = [("0", "32"), ("0", "48"), ("0", "64"), ("1", "32"), ("2", "48"), ("3", "64")];

/// A new secret of `name`.
fn secret(name: &str, (hash, bytes): (&str, &str)) -> String {
    let flags = ["gen-dhchap-key", "--nqn", name, "--hmac", hash, "--key-length", bytes];
    run("nvme", flags).succeeded().stdout.trim().to_owned()
}

/// Serves `drive` to hosts that show these secrets.
fn serve_with_secrets(drive: &Drive, network: &Network, secrets: &[(&str, &str)]) -> Server {
    let file = drive.beside("secrets");
    let lines = secrets.iter().map(|(name, secret)| format!("{name} {secret}\n"));
    std::fs::write(&file, lines.collect::<String>()).expect("room for a file");
    let file = file.to_str().expect("a path of plain letters");
    serve(drive, network, &["--dhchap-key", file])
}

#[test]
fn every_kind_of_secret_that_nvme_cli_makes_lets_its_host_in() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    for kind in KINDS {
        let secret = secret(HOST_NQN, kind);
        let server = serve_with_secrets(&drive, &network, &[(HOST_NQN, &secret)]);
        let script = format!(
            r#"
            connect --dhchap-secret={secret}
            verified --rw=randwrite --bs=4k --size=2m --iodepth=16 || fail "fio with a secret of {kind:?}"
            "#
        );
        Linux::run(&network, &script).succeeded();
        server.stop();
    }
    drive.check();
}

/// What a guest does that must not be let in. $1 says why.
const REFUSED: &str = r#"
    refused() {
        local why=$1
        shift
        nvme connect -t tcp -a $SERVER -s $PORT -n $NQN --hostnqn=$HOST_NQN --hostid=$HOST_ID "$@" && fail "connects $why"
        [ -z "$(ls /sys/class/nvme)" ] || fail "a controller is left behind $why"
    }
"#;

#[test]
fn a_host_with_a_wrong_secret_or_none_is_refused() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let (right, wrong) = (secret(HOST_NQN, KINDS[3]), secret(HOST_NQN, KINDS[3]));
    let other = secret(HOST_NQN, KINDS[2]);
    let server = serve_with_secrets(&drive, &network, &[(HOST_NQN, &right)]);
    let script = format!(
        r#"
        refused "with a wrong secret" --dhchap-secret={wrong}
        refused "with a secret of another kind" --dhchap-secret={other}
        refused "without a secret"
        connect --dhchap-secret={right}
        "#
    );
    Linux::run(&network, &[REFUSED, &script].concat()).succeeded();
    server.stop();
}

#[test]
fn a_host_goes_on_only_with_a_controller_that_knows_its_secret_too() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let (host, controller) = (secret(HOST_NQN, KINDS[4]), secret(HOST_NQN, KINDS[5]));
    let wrong = secret(HOST_NQN, KINDS[5]);
    let server = serve_with_secrets(&drive, &network, &[(HOST_NQN, &host), ("controller", &controller)]);
    let script = format!(
        r#"
        refused "a controller with another secret" --dhchap-secret={host} --dhchap-ctrl-secret={wrong}
        connect --dhchap-secret={host} --dhchap-ctrl-secret={controller}
        verified --rw=randwrite --bs=4k --size=2m --iodepth=16 || fail fio
        "#
    );
    Linux::run(&network, &[REFUSED, &script].concat()).succeeded();
    server.stop();
}

#[test]
fn a_host_authenticates_again_when_the_server_comes_back() {
    if !boots_here(&[]) {
        return;
    }
    let (drive, network) = (Drive::create(), Network::new());
    let secret = secret(HOST_NQN, KINDS[3]);
    let serve = || serve_with_secrets(&drive, &network, &[(HOST_NQN, &secret)]);
    let server = serve();
    let script = format!(
        r#"
        connect --ctrl-loss-tmo=600 --reconnect-delay=1 --dhchap-secret={secret}
        touch connected
        until_true is_not_live
        touch lost
        until_true is_live
        verified --rw=randwrite --bs=4k --size=2m --iodepth=16 || fail fio
        "#
    );
    let mut linux = Linux::boot(&network, &script);
    linux.reaches("connected");
    server.kill();
    linux.reaches("lost");
    let server = serve();
    linux.wait().succeeded();
    server.stop();
}
