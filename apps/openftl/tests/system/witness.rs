//! A witness of a served drive: while each kind of rude host does its worst, and any two kinds together, an honest client and
//! the operator are served. The rude hosts are those of `host/server/tests/witness`, here against the program and a real drive.

#[path = "../../../../host/server/tests/witness/attack.rs"]
#[expect(dead_code, reason = "the server's own tests use more of it")]
mod attack;
#[path = "../../../../host/server/tests/witness/honest.rs"]
mod honest;
#[path = "../../../../host/server/tests/witness/wire.rs"]
mod wire;

use crate::nvme_host::SUBSYSTEM;
use crate::server::Server;
use attack::Attack;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wire::Place;

/// One at a time: what is measured is waiting for rude hosts, not for another test.
static ALONE: Mutex<()> = Mutex::new(());

/// CPU time of all threads of a process.
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the server runs");
    // Behind the name, which may hold anything: user and system time are the twelfth and thirteenth.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn watch(attacks: &[Attack]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (nbd, control) = (folder.path().join("nbd"), folder.path().join("control"));
    let words = format!("unix:{}", control.display());
    let secrets = folder.path().join("hosts.keys");
    std::fs::write(&secrets, wire::secrets()).expect("room for secrets");
    let keys = ["--dhchap-key", secrets.to_str().expect("a path of letters")];
    let asks_who = attacks.iter().any(|attack| attack.is_of_authentication());
    let drive = ["serve", "--memory", "--capacity", "64MiB", "--timing", "instant", "--nvme-tcp", "127.0.0.1:0"];
    let mut server =
        Server::start(&[&drive[..], &["--control", &words], if asks_who { &keys } else { &[] }].concat(), &nbd);
    let nvme = server.nvme_address().parse().expect("an address");
    let place = Place { nbd, nvme, subsystem: SUBSYSTEM.to_owned(), control: Some(control) };
    let process = server.child().id();
    honest::watch(&place, attacks, || Some(cpu_time(process)), || server.stays_alive());
    server.stop();
}

#[test]
fn each_kind_of_rude_host_starves_nobody() {
    for attack in Attack::ALL {
        watch(&[attack]);
    }
}

#[test]
fn no_two_kinds_of_rude_hosts_starve_anybody() {
    for (number, one) in Attack::ALL.iter().enumerate() {
        for other in &Attack::ALL[number + 1..] {
            watch(&[*one, *other]);
        }
    }
}
