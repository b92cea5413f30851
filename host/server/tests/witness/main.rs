//! The witness: while each kind of rude host does its worst, and any two kinds together, an honest client is served.
//!
//! ```text
//!   rude hosts ──▶ server ◀── witness: 4 KiB reads, writes, writes in part, flushes over NBD and NVMe
//! ```
//!
//! | module | noun |
//! |---|---|
//! | [`attack`] | what rude hosts do: one variant for each kind |
//! | [`honest`] | the witness, and what it saw |
//! | [`wire`] | the bytes of both protocols |
//!
//! What counts is counted: the requests of the witness end while the rude hosts hold their connections, and what they hold
//! is within its bounds. Latencies are printed, and asserted against bounds that only starvation reaches.

mod attack;
mod honest;
#[path = "../../../bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod memory;
#[path = "../support/reactors.rs"]
mod reactors;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use attack::Attack;
use memory::{Memory, Temper};
use openftl_core::{BLOCK_BYTES, Clock, Nanos};
use openftl_nvme::{BlockFormat, Hints, Namespace, NamespaceKind, Nqn, Port, SubsystemConfig, Target};
use openftl_nvme_auth::{Policy, Secrets};
use openftl_server::{
    Counters, Endpoint, Export, Protocol, ServeError, ServedDrive, Server, ServerConfig, Stop, WallClock,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::Place;

impl ServedDrive for Memory {
    type Device = openftl_media::EmulatedDevice;
}

const SUBSYSTEM: &str = "nqn.2026-11.org.example:drive";

/// The pool of `openftl serve`: two of the longest requests of NBD.
const FRAMES: usize = 16_384;

/// 64 MiB.
const BLOCKS: usize = 16_384;

/// One server at a time: they share the machine, and the limit of descriptors.
static ALONE: Mutex<()> = Mutex::new(());

struct Served {
    place: Place,
    counters: Arc<Counters>,
    stop: Stop,
    thread: JoinHandle<(Result<(), ServeError>, Memory)>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new(config: ServerConfig, asks_who: bool, mut clock: impl Clock + Send + 'static) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let nbd = folder.path().join("nbd");
        let mut server = Server::new(reactors::with_reactors(config)).unwrap();
        server.listen(Endpoint::Unix(nbd.clone()), Protocol::Nbd).unwrap();
        let nvme = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap();
        let Endpoint::Tcp(nvme) = nvme else { unreachable!("listened on TCP") };
        let mut target = Target::new("1", "OpenFTL", "1");
        let subsystem = SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1");
        let index = target.add_subsystem(SubsystemConfig { requires_authentication: asks_who, ..subsystem }).unwrap();
        let bytes = (BLOCKS * BLOCK_BYTES) as u64;
        let kind = NamespaceKind::Block { format: BlockFormat::FourKib, bytes, hints: Hints::None };
        target.attach(index, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
        target.add_port(Port { id: 1, address: nvme });
        server.set_target(target);
        if asks_who {
            server.set_secrets(Secrets::read(wire::secrets().as_bytes()).unwrap(), Policy::default()).unwrap();
        }
        let (stop, counters) = (Stop::new().unwrap(), server.counters());
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let target = Memory::new(BLOCKS, FRAMES, Temper::Instant);
            let name = "disk".to_owned();
            let mut exports = [Export { name, description: String::new(), read_only: false, target }];
            let result = server.run(&mut exports, &mut clock, &its_stop);
            let [export] = exports;
            (result, export.target)
        });
        let place = Place { nbd, nvme, subsystem: SUBSYSTEM.to_owned(), control: None };
        Served { place, counters, stop, thread, _folder: folder }
    }

    /// Stops the server, which has kept nothing.
    fn end(self) {
        self.stop.request();
        let (result, drive) = self.thread.join().unwrap();
        result.unwrap();
        assert!(drive.is_at_rest(), "the server kept a frame or a request");
    }
}

fn watch(attacks: &[Attack]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    // Deadlines have tests of their own, with a clock that the test sets. Here nobody is closed for being late, however slow
    // the machine is: rude hosts hold what they hold as long as the witness works.
    let hour = Nanos::from_millis(3_600_000);
    let config = ServerConfig { stall_max: hour, handshake_max: hour, ..ServerConfig::default() };
    let asks_who = attacks.iter().any(|attack| attack.is_of_authentication());
    let served = Served::new(config, asks_who, WallClock::new());
    let counters = &served.counters;
    honest::watch(
        &served.place,
        attacks,
        || None,
        || {
            // The witness was served beside the rude hosts: none was closed but those that kept too much.
            assert_eq!(counters.connections_expelled.get(), counters.connections_too_slow.get(), "{attacks:?}");
        },
    );
    let kept = counters.bytes_kept_max.get();
    println!(
        "{:42} kept at most {} KiB, moved aside {} KiB, copied {} KiB, requests admitted at most {}, turns {}",
        "",
        kept >> 10,
        counters.bytes_moved_aside.get() >> 10,
        counters.bytes_copied.get() >> 10,
        counters.requests_admitted_max.get(),
        counters.turns.get()
    );
    assert!(kept <= config.kept_bytes_max as u64, "{kept} bytes are kept");
    assert!(counters.requests_admitted_max.get() <= 4096);
    served.end();
}

#[test]
fn clients_that_announce_long_writes_and_send_a_byte_starve_nobody() {
    watch(&[Attack::SlowNbdWrites]);
}

#[test]
fn hosts_that_are_asked_for_data_and_send_a_byte_starve_nobody() {
    watch(&[Attack::SlowNvmeWrites]);
}

#[test]
fn hosts_that_do_not_take_what_they_read_starve_nobody() {
    watch(&[Attack::UnreadReplies]);
}

#[test]
fn a_crowd_that_trims_and_leaves_makes_nothing_slow() {
    watch(&[Attack::CrowdOfTrims]);
}

#[test]
fn trims_of_a_large_part_over_and_over_starve_nobody() {
    watch(&[Attack::LongTrims]);
}

#[test]
fn deallocations_of_many_large_ranges_starve_nobody() {
    watch(&[Attack::LongDeallocations]);
}

#[test]
fn log_pages_that_nobody_takes_starve_nobody() {
    watch(&[Attack::UnreadLogPages]);
}

#[test]
fn authentications_that_never_end_starve_nobody() {
    watch(&[Attack::Authentications]);
}

#[test]
fn no_two_kinds_together_starve_anybody() {
    // The control socket is not the server's: the system tests attack that.
    let attacks: Vec<Attack> = Attack::ALL.into_iter().filter(|attack| !attack.is_of_control()).collect();
    for (number, one) in attacks.iter().enumerate() {
        for other in &attacks[number + 1..] {
            watch(&[*one, *other]);
        }
    }
}
