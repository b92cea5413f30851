//! TLS: `openftl nvme` and OpenSSL as hosts of a served drive.

use crate::drive::run_openftl;
use crate::environment::{Need, runs_here};
use crate::mounted::text;
use crate::nvme_commands::Target;
use crate::pattern::random_bytes;
use crate::program::{Ended, run, wait_for};
use openftl_nvme_auth::{PskVersion, TlsKey};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const HOST: &str = "nqn.2026-11.org.openftl:host";
const NQN: &str = "nqn.2026-11.org.openftl:drive";

/// A key of `openftl nvme gen-key --tls`, for the command line and for a file of a server.
struct Key {
    flag: String,
    text: String,
}

fn key(folder: &Path, name: &str, hash: &str) -> Key {
    let path = folder.join(name);
    let text = run_openftl(["nvme", "gen-key", "--tls", "--hash", hash]).succeeded().stdout;
    std::fs::write(&path, &text).expect("room for a key");
    Key { flag: format!("@{}", path.display()), text: text.trim().to_owned() }
}

fn known(folder: &TempDir, lines: &str) -> PathBuf {
    let path = folder.path().join("hosts.tls");
    std::fs::write(&path, lines).expect("room for keys");
    path
}

#[test]
fn a_host_with_its_key_discovers_writes_reads_and_measures_over_tls() {
    if !runs_here(&[Need::Tls]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for hash in ["sha256", "sha384"] {
        let (mine, another) = (key(folder.path(), "mine", hash), key(folder.path(), "another", hash));
        let known = known(&folder, &format!("# hosts\n{HOST} {}\n", mine.text));
        let target = Target::serve(&["--tls-key", text(&known)]);
        let with = ["--tls-key", mine.flag.as_str()];
        let offer = target.json("discover", &with);
        assert_eq!(offer["records"][0]["security"], "tls required", "{offer}");
        target.run("identify", &with).succeeded();
        let bytes = random_bytes(7, 3 << 20);
        let input = target.file("input", &bytes);
        let output = target.file("output", &[]);
        target.run("write", &[&with[..], &["--input", text(&input)]].concat()).succeeded();
        let words = ["--length", "3MiB", "--output", text(&output), "--header-digest", "--data-digest"];
        target.run("read", &[&with[..], &words].concat()).succeeded();
        assert!(std::fs::read(&output).expect("it was written") == bytes, "what was read is not what was written");
        target.run("bench", &[&with[..], &["--seconds", "0.1", "--workload", "mixed"]].concat()).succeeded();

        target.refuses("identify", &["--tls-key", &another.flag], &["does not shake hands", "--tls-key", HOST]);
        let stranger = ["--host-nqn", "nqn.2026-11.org.example:stranger", "--tls-key", &mine.flag];
        target.refuses("identify", &stranger, &["does not shake hands"]);
        let plain = target.run("identify", &[]).failed().saying(&["--tls-key"]);
        assert_eq!(plain.status.code(), Some(1), "{plain}");
        target.says("turned away in its TLS handshake");
        target.says("connected without TLS and was turned away");
    }
}

#[test]
fn tls_goes_with_authentication_and_where_it_is_allowed_others_come_without() {
    if !runs_here(&[Need::Tls]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mine = key(folder.path(), "mine", "sha256");
    let known = known(&folder, &format!("{HOST} {}\n", mine.text));
    let secret = run_openftl(["nvme", "gen-key"]).succeeded().stdout;
    let secrets = folder.path().join("hosts.keys");
    std::fs::write(&secrets, format!("{HOST} {secret}")).expect("room for secrets");
    let both = Target::serve(&["--tls-key", text(&known), "--dhchap-key", text(&secrets)]);
    both.run("identify", &["--tls-key", &mine.flag, "--dhchap-key", secret.trim()]).succeeded();
    both.refuses("identify", &["--tls-key", &mine.flag], &["authenticate themselves"]);

    let allowed = Target::serve(&["--tls-key", text(&known), "--tls", "allowed"]);
    allowed.run("identify", &["--tls-key", &mine.flag]).succeeded();
    allowed.run("identify", &["--host-nqn", "nqn.2026-11.org.example:stranger"]).succeeded();
    allowed.refuses("identify", &[], &["Connect Invalid Host"]);

    // A target without TLS, and input that makes no sense.
    let plain = Target::serve(&[]);
    plain.refuses("identify", &["--tls-key", &mine.flag], &["does not shake hands", "where there is no TLS"]);
    plain.refuses("identify", &["--tls-key", "DHHC-1:00:x:"], &["--tls-key", "NVMeTLSkey-1:", "--tls"]);
    let serve = ["serve", "--memory", "--nvme-tcp", "127.0.0.1:0", "--tls-key"];
    for (words, said) in [
        (&[text(&secrets)][..], &["--tls-key", "line 1", "NVMeTLSkey-1:"][..]),
        (&["/nowhere/keys"], &["--tls-key /nowhere/keys"]),
        (&[text(&known), "--allow-any-host"], &["--allow-any-host", "--tls allowed"]),
        (&[text(&known), "--allow-host", "nqn.other"], &["nqn.other", "no key in --tls-key"]),
    ] {
        let ended = run_openftl([&serve[..], words].concat()).failed().saying(said);
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(ended.stderr.contains("fix: "), "{ended}");
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An initialization request: type 0, 128 bytes, and nothing asked for (TCP Transport, "ICReq").
fn initialization_request() -> [u8; 128] {
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    request
}

#[test]
fn openssl_shakes_hands_and_carries_an_initialization() {
    if !runs_here(&[Need::Tls, Need::Program("openssl")]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mine = key(folder.path(), "mine", "sha256");
    let known = known(&folder, &format!("{HOST} {}\n", mine.text));
    let target = Target::serve(&["--tls-key", text(&known)]);
    let key: TlsKey = mine.text.parse().expect("it was made for this");
    for version in [PskVersion::Zero, PskVersion::One] {
        let psk = key.psk(version, HOST, NQN).expect("the names are short");
        let digits = hexadecimal(psk.key());
        let mut openssl = Command::new("openssl")
            .args(["s_client", "-connect", &target.address, "-tls1_3", "-quiet", "-no_ign_eof", "-psk", &digits])
            .args(["-psk_identity", &psk.identity.text])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("OpenSSL starts");
        let (mut said, mut heard) = (openssl.stdin.take().expect("a pipe"), openssl.stdout.take().expect("a pipe"));
        said.write_all(&initialization_request()).expect("OpenSSL reads");
        let mut answer = [0xee; 128];
        heard.read_exact(&mut answer).expect("the answer comes through TLS");
        assert_eq!((answer[0], answer[2], answer[4]), (1, 128, 128), "ICResp, {version:?}");
        drop(said);
        wait_for("OpenSSL to end", || openssl.try_wait().expect("it is ours"));
    }
}

/// OpenSSL as a target that shakes hands and says nothing more: what `openftl nvme identify` says to it, and what it heard.
fn identify_at_openssl(flags: &[&str], key: &Key) -> (Ended, Vec<u8>) {
    let place = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound");
    let address = place.to_string();
    let mut openssl = Command::new("openssl")
        .args(["s_server", "-accept", &address, "-tls1_3", "-quiet"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("OpenSSL starts");
    wait_for("OpenSSL to listen", || TcpStream::connect(place).ok());
    let ended = run_openftl(["nvme", "identify", &address, "--tls-key", &key.flag, "--timeout", "300ms"]);
    openssl.kill().expect("it is ours");
    let mut heard = Vec::new();
    openssl.stdout.take().expect("a pipe").read_to_end(&mut heard).expect("it has ended");
    openssl.wait().expect("it is ours");
    (ended, heard)
}

#[test]
fn a_target_of_openssl_has_to_know_the_key_and_no_certificate_will_do() {
    if !runs_here(&[Need::Tls, Need::Program("openssl")]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mine = key(folder.path(), "mine", "sha256");
    let parsed: TlsKey = mine.text.parse().expect("it was made for this");
    let psk = parsed.psk(PskVersion::One, HOST, NQN).expect("the names are short");
    let digits = hexadecimal(psk.key());
    let (ended, heard) = identify_at_openssl(&["-nocert", "-psk", &digits, "-psk_identity", &psk.identity.text], &mine);
    assert!(heard.starts_with(&initialization_request()[..8]), "an ICReq came through TLS: {heard:?}");
    assert!(ended.failed().stderr.contains("no answer within 300ms"));

    let [certificate, private] = ["certificate", "private"].map(|name| folder.path().join(name));
    let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-keyout"];
    run("openssl", [&make[..], &[text(&private), "-out", text(&certificate)]].concat()).succeeded();
    let (ended, heard) = identify_at_openssl(&["-cert", text(&certificate), "-key", text(&private)], &mine);
    assert!(heard.is_empty(), "something was said to who does not know the key: {heard:?}");
    let ended = ended.failed().saying(&["does not shake hands", "--tls-key"]);
    assert_eq!(ended.status.code(), Some(2), "{ended}");
}
