//! An operator that interrupts a server: as a power cut does, whatever clients wait for.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use crate::client::Client;
use crate::memory::{Memory, Temper};
use openftl_core::{Nanos, Time};
use openftl_server::{Drives, End, Endpoint, Export, Operator, Protocol, Server, ServerConfig, Stop, WallClock};
use rustix::event::{EventfdFlags, eventfd};

/// Interrupts whenever it is called, and says that it has.
struct Interrupter {
    bell: Arc<OwnedFd>,
    due: Option<Time>,
    interrupted: Sender<()>,
}

impl Operator<Memory> for Interrupter {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn next_due(&self) -> Option<Time> {
        self.due
    }

    fn turn(&mut self, now: Time, called: bool, _drives: &mut Drives<'_, '_, Memory>) -> ControlFlow<()> {
        if called {
            rustix::io::read(&*self.bell, &mut [0_u8; 8]).expect("the bell was rung");
        }
        if called || self.due.take_if(|due| now >= *due).is_some() {
            self.interrupted.send(()).expect("the test waits");
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

fn ring(bell: &OwnedFd) {
    rustix::io::write(bell, &1_u64.to_le_bytes()).expect("the bell is rung");
}

fn export(drive: Memory) -> [Export<Memory>; 1] {
    [Export { name: "disk".to_owned(), description: String::new(), read_only: false, target: drive }]
}

#[test]
fn an_interruption_drops_clients_without_a_reply_and_the_server_can_serve_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut server = Server::new(crate::reactors::with_reactors(ServerConfig::default())).unwrap();
    server.listen(Endpoint::Unix(path.clone()), Protocol::Nbd).unwrap();
    let (stop, counters) = (Stop::new().unwrap(), server.counters());
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let temper = Temper::Shuffled { seed: 1, within: Nanos::from_micros(10) };
    let (drive, other) = (Memory::new(256, 512, temper), Memory::new(256, 512, temper));
    let (switches, others) = (Arc::clone(&drive.switches), Arc::clone(&other.switches));
    let (interrupted, interruptions) = channel();
    let (its_stop, its_bell) = (stop.clone(), Arc::clone(&bell));
    let thread = std::thread::spawn(move || {
        let mut clock = WallClock::new();
        let mut operator = Interrupter { bell: its_bell, due: None, interrupted };
        let first = server.run_with(&mut operator, &mut export(drive), &mut clock, &its_stop).unwrap();
        let dark = server.turn_away(&mut operator, &mut clock, &its_stop).unwrap();
        let last = server.run_with(&mut operator, &mut export(other), &mut clock, &its_stop).unwrap();
        [first, dark, last]
    });

    let mut client = Client::open(&path, true);
    assert_eq!(client.write(0, &[1; 4_096]), 0);
    switches.held.store(true, Ordering::SeqCst);
    client.send_write(1, 4_096, &[2; 4_096]);
    client.send_read(2, 0, 4_096);
    // The next handshake is answered by a later turn, so both have been taken.
    let mut idle = Client::open(&path, true);
    ring(&bell);
    assert_eq!(client.until_closed(), b"", "no reply to what was under way");
    assert_eq!(idle.until_closed(), b"");
    assert_eq!(switches.flushes.load(Ordering::SeqCst), 0, "nothing is flushed for anybody");

    interruptions.recv().unwrap();
    let mut early = Client::connect(&path);
    assert_eq!(early.until_closed(), b"", "closed without a word");
    assert_eq!(counters.connections_refused.get(), 1);
    ring(&bell);
    interruptions.recv().unwrap();

    let mut later = Client::open(&path, true);
    assert_eq!(later.write(0, &[3; 4_096]), 0);
    stop.request();
    let interrupted = |connections, requests| End::Interrupted { connections, requests };
    assert_eq!(thread.join().unwrap(), [interrupted(2, 2), interrupted(0, 0), End::Stopped]);
    assert_eq!(others.flushes.load(Ordering::SeqCst), 1, "a stop flushes");
    assert!(!path.exists(), "the socket file goes with the stop");
}

#[test]
fn an_operator_that_nobody_calls_gets_its_turn_when_it_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::new(crate::reactors::with_reactors(ServerConfig::default())).unwrap();
    server.listen(Endpoint::Unix(folder.path().join("socket")), Protocol::Nbd).unwrap();
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let (interrupted, _interruptions) = channel();
    let mut operator = Interrupter { bell, due: Some(Time(1_000_000)), interrupted };
    let drive = Memory::new(16, 64, Temper::Instant);
    let end = server.run_with(&mut operator, &mut export(drive), &mut WallClock::new(), &Stop::new().unwrap());
    assert_eq!(end.unwrap(), End::Interrupted { connections: 0, requests: 0 });
}
