//! Reactors are threads that move the bytes of sockets beside the server's own, which owns the drives.
//!
//! ```text
//!                   ┌──▶ reactor 2 ── system calls, TLS ──┐
//!   server's thread ┤                                     ├──▶ server's thread: requests, drives, replies
//!   (reactor 1)     └──▶ reactor 3 ── system calls, TLS ──┘
//! ```
//!
//! A connection has at most one transfer in each direction under way, and what that needs goes with it: a receive buffer, pages of replies,
//! the session of TLS. So nothing is shared, and all that is decided is decided by one thread, as without reactors: who may hold what, what
//! comes first, and in which order a drive is asked.
//!
//! The server's thread makes the first transfers of a turn itself, [`ServerConfig::reactors_above`](crate::ServerConfig) bytes of them: one host that asks for one thing at
//! a time does not wait for another thread to wake up. It makes those that the reactor of their connection has no room for, too.
//!
//! A reactor without transfers looks for more for [`LOOKS_FOR`], and then sleeps; so does the server's thread, for which reactors ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use tracing::error;

use crate::link::Over;
use crate::transfer::{Moved, Transfer};

/// Transfers that a reactor has at a time.
const TRANSFERS_MAX: usize = 16;

/// How long a reactor looks for more before it sleeps: to wake it costs the server's thread some microseconds.
const LOOKS_FOR: Duration = Duration::from_micros(50);

/// How long a transfer may be under way when the server ends. It waits for nobody, so it only takes its time.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Whose transfer it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Party {
    pub slot: u32,
    pub generation: u32,
}

/// A transfer and its socket.
struct Errand {
    party: Party,
    reactor: usize,
    socket: Arc<OwnedFd>,
    transfer: Transfer,
}

/// A transfer that was made.
pub(crate) struct Made {
    pub party: Party,
    pub socket: Arc<OwnedFd>,
    pub transfer: Transfer,
    pub moved: Result<Moved, Over>,
    reactor: usize,
}

/// How the server's thread is woken.
struct Bell {
    sleeps: AtomicBool,
    event: OwnedFd,
}

struct Reactor {
    errands: SyncSender<Errand>,
    under_way: usize,
    /// Connections whose transfers it makes.
    connections: usize,
    thread: JoinHandle<()>,
}

/// Those beside the server's thread.
pub(crate) struct Reactors {
    reactors: Vec<Reactor>,
    made: Receiver<Made>,
    /// Taken from there by a look.
    seen: VecDeque<Made>,
    bell: Arc<Bell>,
    /// What the server's thread moves itself in a turn, at most.
    above: usize,
    /// What the server's thread has moved itself in this turn.
    moved: usize,
}

impl Reactors {
    /// So many, the server's thread among them, which moves the first `above` bytes of a turn.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn new(count: usize, above: usize) -> io::Result<Reactors> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let bell = Arc::new(Bell { sleeps: AtomicBool::new(false), event });
        let others = count.saturating_sub(1);
        // There is room for all that can be under way.
        let (tell, made) = sync_channel(others * TRANSFERS_MAX);
        let start = |number| {
            let (errands, to_do) = sync_channel(TRANSFERS_MAX);
            let (tell, bell) = (tell.clone(), Arc::clone(&bell));
            let name = format!("reactor {}", number + 2);
            let thread = std::thread::Builder::new().name(name).spawn(move || serve(&to_do, &tell, &bell))?;
            Ok(Reactor { errands, under_way: 0, connections: 0, thread })
        };
        let reactors = (0..others).map(start).collect::<io::Result<Vec<Reactor>>>()?;
        Ok(Reactors { reactors, made, seen: VecDeque::new(), bell, above, moved: 0 })
    }

    /// Whether there are others beside the server's thread.
    #[inline]
    pub fn is_any(&self) -> bool {
        !self.reactors.is_empty()
    }

    /// What is readable when the server's thread is called.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }

    /// A turn begins.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.moved = 0;
    }

    /// Whether a reactor is to make a transfer that is as much work as so many bytes; otherwise the server's thread makes it now. `own` is the
    /// reactor of the connection, once it has one: always the same, since two threads would wait for each other at the socket.
    #[inline]
    pub fn take_on(&mut self, own: &mut Option<usize>, bytes: usize) -> bool {
        if !self.is_any() {
            return false;
        }
        let is_much = self.moved + bytes >= self.above;
        let takes = is_much && {
            let reactor = *own.get_or_insert_with(|| self.least_busy());
            self.reactors[reactor].under_way < TRANSFERS_MAX
        };
        if !takes {
            self.moved += bytes;
        }
        takes
    }

    /// Finds a connection its reactor: that of the fewest.
    #[cold]
    fn least_busy(&mut self) -> usize {
        let fewest = (0..self.reactors.len()).min_by_key(|reactor| self.reactors[*reactor].connections);
        let reactor = fewest.expect("there are some");
        self.reactors[reactor].connections += 1;
        reactor
    }

    /// A connection of this reactor is gone.
    pub fn leave(&mut self, reactor: usize) {
        self.reactors[reactor].connections -= 1;
    }

    /// Has the reactor of a connection make a transfer, after it was [taken on](Reactors::take_on).
    pub fn give(&mut self, party: Party, reactor: usize, socket: Arc<OwnedFd>, transfer: Transfer) {
        let errand = Errand { party, reactor, socket, transfer };
        match self.reactors[reactor].errands.try_send(errand) {
            Ok(()) => self.reactors[reactor].under_way += 1,
            // It has ended: the transfer is made here, and those after it as well.
            Err(TrySendError::Disconnected(errand) | TrySendError::Full(errand)) => {
                self.reactors[reactor].under_way = TRANSFERS_MAX;
                let made = make(errand);
                self.seen.push_back(made);
            }
        }
    }

    /// A transfer that was made, the first one first.
    pub fn next_made(&mut self) -> Option<Made> {
        if !self.is_any() {
            return None;
        }
        let made = self.seen.pop_front().or_else(|| self.made.try_recv().ok())?;
        self.came_home(&made);
        Some(made)
    }

    fn came_home(&mut self, made: &Made) {
        let under_way = &mut self.reactors[made.reactor].under_way;
        *under_way = under_way.saturating_sub(1);
    }

    /// Whether there is one.
    #[inline]
    pub fn has_made(&mut self) -> bool {
        if !self.is_any() {
            return false;
        }
        if self.seen.is_empty() {
            self.seen.extend(self.made.try_recv().ok());
        }
        !self.seen.is_empty()
    }

    /// Whether transfers are under way.
    #[inline]
    pub fn are_at_work(&self) -> bool {
        self.reactors.iter().any(|reactor| reactor.under_way > 0)
    }

    /// The server's thread is about to sleep: from here on the event is readable when a transfer was made. False if one was already.
    pub fn may_sleep(&mut self) -> bool {
        if !self.is_any() {
            return true;
        }
        self.bell.sleeps.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.has_made() {
            self.woke();
            return false;
        }
        true
    }

    /// It sleeps no more.
    pub fn woke(&mut self) {
        if self.is_any() {
            self.bell.sleeps.store(false, Ordering::SeqCst);
        }
    }

    /// The event was seen.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.bell.event, &mut [0_u8; 8]);
    }

    /// Waits for all that is under way: of connections that are gone.
    pub fn finish(&mut self) {
        self.seen.clear();
        let mut left: usize = self.reactors.iter().map(|reactor| reactor.under_way).sum();
        while left > 0 && self.made.recv_timeout(ENDS_WITHIN).is_ok() {
            left -= 1;
        }
        self.reactors.iter_mut().for_each(|reactor| reactor.under_way = 0);
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        for Reactor { errands, thread, .. } in self.reactors.drain(..) {
            drop(errands);
            if thread.join().is_err() {
                error!(target: "connection", "a reactor has panicked");
            }
        }
    }
}

fn make(errand: Errand) -> Made {
    let Errand { party, reactor, socket, mut transfer } = errand;
    let moved = transfer.make(socket.as_fd());
    Made { party, socket, transfer, moved, reactor }
}

/// What a reactor does, until the server is gone.
fn serve(errands: &Receiver<Errand>, tell: &SyncSender<Made>, bell: &Bell) {
    while let Some(errand) = next(errands) {
        if tell.send(make(errand)).is_err() {
            return;
        }
        // Either the server's thread sees the transfer before it sleeps, or it is seen here that it sleeps.
        fence(Ordering::SeqCst);
        if bell.sleeps.load(Ordering::SeqCst) && bell.sleeps.swap(false, Ordering::SeqCst) {
            // Fails only when the counter is full, and then the server is awake already.
            let _ = rustix::io::write(&bell.event, &[1; 8]);
        }
    }
}

/// The next errand. `None` when there will be none.
fn next(errands: &Receiver<Errand>) -> Option<Errand> {
    let mut began = None;
    loop {
        match errands.try_recv() {
            Ok(errand) => return Some(errand),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        let began = *began.get_or_insert_with(Instant::now);
        if began.elapsed() >= LOOKS_FOR {
            return errands.recv().ok();
        }
        // Where cores are scarce, somebody else has use for this one.
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::{Load, Parcel};
    use openftl_core::Time;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    const PARTY: Party = Party { slot: 3, generation: 5 };

    fn sent(bytes: &[u8]) -> Transfer {
        let mut parcel = Parcel::default();
        parcel.push_small(bytes);
        Transfer { began: Time::ZERO, load: Load::Sent(parcel), secured: None }
    }

    fn wait(reactors: &mut Reactors) -> Made {
        loop {
            match reactors.next_made() {
                Some(made) => return made,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn a_transfer_comes_back_with_what_it_moved() {
        let mut reactors = Reactors::new(2, 0).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = Arc::new(OwnedFd::from(near));
        let mut own = None;
        for number in 0..100_u8 {
            assert!(reactors.take_on(&mut own, 1));
            reactors.give(PARTY, own.unwrap(), Arc::clone(&socket), sent(&[number; 3]));
            let made = wait(&mut reactors);
            assert_eq!((made.party, made.moved.unwrap().bytes), (PARTY, 3));
            let mut came = [0; 3];
            far.read_exact(&mut came).unwrap();
            assert_eq!(came, [number; 3]);
        }
        assert!(!reactors.are_at_work());
    }

    #[test]
    fn the_first_bytes_of_a_turn_are_the_servers_thread_s() {
        let mut reactors = Reactors::new(2, 10).unwrap();
        let mut own = None;
        for _ in 0..2 {
            reactors.begin_turn();
            assert_eq!([4, 4, 4, 1].map(|bytes| reactors.take_on(&mut own, bytes)), [false, false, true, false]);
        }
        let mut alone = Reactors::new(1, 0).unwrap();
        assert!(!alone.take_on(&mut None, usize::MAX) && alone.may_sleep() && !alone.is_any());
    }

    #[test]
    fn a_connection_keeps_its_reactor_and_all_have_as_many() {
        let mut reactors = Reactors::new(4, 0).unwrap();
        let mut own = [None; 6];
        for _ in 0..3 {
            assert!(own.iter_mut().all(|own| reactors.take_on(own, 1)));
            assert_eq!(own, [0, 1, 2, 0, 1, 2].map(Some));
        }
        [0, 2, 3].into_iter().for_each(|gone| reactors.leave(own[gone].unwrap()));
        let mut next = [None; 3];
        assert!(next.iter_mut().all(|own| reactors.take_on(own, 1)));
        assert_eq!(next, [0, 0, 2].map(Some));
    }

    /// Its reactor has as many as it may have: who has the drives does not wait for it.
    #[test]
    fn what_a_reactor_has_no_room_for_is_not_given_to_it() {
        let mut reactors = Reactors::new(2, 0).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = Arc::new(OwnedFd::from(near));
        let mut own = None;
        for _ in 0..TRANSFERS_MAX {
            assert!(reactors.take_on(&mut own, 1));
            reactors.give(PARTY, 0, Arc::clone(&socket), sent(b"x"));
        }
        assert!(!reactors.take_on(&mut own, 1));
        (0..TRANSFERS_MAX).for_each(|_| assert!(wait(&mut reactors).moved.is_ok()));
        assert!(reactors.take_on(&mut own, 1));
        far.read_exact(&mut [0; TRANSFERS_MAX]).unwrap();
    }

    #[test]
    fn a_thread_that_sleeps_is_called_and_one_that_must_not_sleep_is_told() {
        let mut reactors = Reactors::new(2, 0).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let socket = Arc::new(OwnedFd::from(near));
        for _ in 0..200 {
            assert!(reactors.may_sleep());
            reactors.give(PARTY, 0, Arc::clone(&socket), sent(b"x"));
            // Without a call this would be for ever.
            poll(&mut [PollFd::from_borrowed_fd(reactors.event(), PollFlags::IN)], None).unwrap();
            reactors.clear();
            assert!(!reactors.may_sleep());
            assert!(wait(&mut reactors).moved.is_ok());
        }
    }

    #[test]
    fn what_is_under_way_when_the_server_ends_is_waited_for() {
        let mut reactors = Reactors::new(3, 0).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = Arc::new(OwnedFd::from(near));
        (0..20).for_each(|number| reactors.give(PARTY, number % 2, Arc::clone(&socket), sent(b"x")));
        reactors.finish();
        assert!(!reactors.are_at_work() && Arc::strong_count(&socket) == 1);
        far.read_exact(&mut [0; 20]).unwrap();
    }
}
