//! A server whose process has no descriptor left. It is alone in its file, because the limit binds the whole process.

#[path = "support/client.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod client;
#[path = "../../bytes/tests/support/memory.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod memory;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Client, head};
use memory::{Memory, Temper};
use openftl_core::{Clock, Nanos, Time};
use openftl_nbd::wire::{command, option};
use openftl_server::{Endpoint, Export, Protocol, ServedDrive, Server, ServerConfig, Stop};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

impl ServedDrive for Memory {
    type Device = openftl_media::EmulatedDevice;
}

/// The process's descriptors while it is full.
const DESCRIPTORS_MAX: u64 = 128;

/// A clock that stands still until the test moves it.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&mut self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn wait_until(&mut self, due: Time) -> Time {
        Time(self.0.fetch_max(due.0, Ordering::SeqCst).max(due.0))
    }
}

/// Takes every descriptor that the process may still have.
fn hoard() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn without_descriptors_a_client_waits_until_one_comes_back_and_the_server_does_not_spin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = Server::new(ServerConfig::default()).unwrap();
    server.listen(Endpoint::Unix(path.clone()), Protocol::Nbd).unwrap();
    let (stop, counters, clock) = (Stop::new().unwrap(), server.counters(), TestClock::default());
    let (its_stop, mut its_clock) = (stop.clone(), clock.clone());
    let thread = std::thread::spawn(move || {
        let target = Memory::new(16, 64, Temper::Instant);
        let export = Export { name: "disk".to_owned(), description: String::new(), read_only: false, target };
        server.run(&mut [export], &mut its_clock, &its_stop)
    });
    let (mut staying, mut leaving) = (Client::open(&path, true), Client::open(&path, true));

    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS_MAX), ..limit }).unwrap();
    let mut hoarded = hoard();
    // One for the client's end of the connection, none for the server's.
    let connect = |hoarded: &mut Vec<File>| {
        drop(hoarded.pop().expect("the process was not full before"));
        Client::connect(&path)
    };

    // However many turns others make, the server tries once, as its clock stands still and nobody leaves.
    let mut first = connect(&mut hoarded);
    for _ in 0..50 {
        assert_eq!(staying.read(0, 10).error, 0);
    }
    assert_eq!(counters.accepts_failed.get(), 1);

    // A connection that closes gives its descriptor to the one that waits.
    leaving.say(&head(command::DISC, 0, 0, 0, 0));
    assert_eq!(leaving.until_closed(), b"");
    assert_eq!(&first.take(18)[..16], b"NBDMAGICIHAVEOPT");
    // Linux looks for a descriptor before it looks for a connection, so the server's look for a next one failed too.
    assert_eq!(counters.accepts_failed.get(), 2);

    // A descriptor that comes back from elsewhere is found after a while, though nothing else would wake the server.
    first.say(&[0, 0, 0, 3]);
    first.say_option(option::EXPORT_NAME, b"");
    first.take(10);
    let mut second = connect(&mut hoarded);
    for _ in 0..50 {
        assert_eq!(staying.read(0, 10).error, 0);
    }
    assert_eq!(counters.accepts_failed.get(), 3);
    drop(hoarded);
    setrlimit(Resource::Nofile, limit).unwrap();
    clock.0.fetch_add(Nanos::from_millis(1_000).0, Ordering::SeqCst);
    assert_eq!(&second.take(18)[..16], b"NBDMAGICIHAVEOPT");

    stop.request();
    thread.join().unwrap().unwrap();
}
