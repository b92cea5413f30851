//! The sockets of all clients, without a thread or a wait of its own: whoever serves the drive looks in when
//! [`ControlServer::event`] is readable.
//!
//! ```text
//!   event readable ──▶ poll ──▶ take_request ──▶ (carried out by whoever owns the drive) ──▶ answer
//!                               ▲                                                              │
//!                               └──────────────────── until there is none ─────────────────────┘
//! ```
//!
//! # Bounds
//! | what | bound |
//! |---|---|
//! | clients | [`CLIENTS_MAX`]; for one more the client that has asked for nothing for the longest time is closed |
//! | clients whose requests are being carried out | [`CLIENTS_MAX`]; one more is told so and closed |
//! | bytes that a client has said and that are not taken | [`LINE_BYTES_MAX`] |
//! | requests of a client that are not answered | one |
//! | answers that a client has not taken | one |

use crate::protocol::{Answer, Refusal, RefusalKind, Request, response_line};
use crate::session::{LINE_BYTES_MAX, Session};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::debug;

/// Clients at a time.
pub const CLIENTS_MAX: usize = 16;

/// What marks an event of the listening socket.
const EVENT_LISTENER: u64 = u64::MAX;

/// Names a client until it has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientId {
    slot: u32,
    generation: u32,
}

struct Peer {
    socket: OwnedFd,
    session: Session,
    /// An answer, and how much of it is sent.
    output: Vec<u8>,
    sent: usize,
    readable: bool,
    writable: bool,
    /// Nothing more will come.
    ended: bool,
    /// A request of it is being carried out.
    is_waiting: bool,
    /// The server's count of clients and requests when it came, or asked last: bytes that are no request do not count.
    asked: u64,
}

/// A place for a client. The generation tells its tenants apart.
#[derive(Default)]
struct Slot {
    generation: u32,
    peer: Option<Peer>,
}

/// The control sockets of one drive.
pub struct ControlServer<L> {
    epoll: OwnedFd,
    listener: L,
    may_accept: bool,
    slots: [Slot; CLIENTS_MAX],
    /// Clients and requests so far.
    count: u64,
}

impl Peer {
    fn new(socket: OwnedFd, asked: u64) -> Peer {
        Peer {
            socket,
            session: Session::default(),
            output: Vec::new(),
            sent: 0,
            readable: true,
            writable: true,
            ended: false,
            is_waiting: false,
            asked,
        }
    }

    /// Whether its next line may be taken.
    fn may_ask(&self) -> bool {
        !self.is_waiting && self.output.is_empty()
    }

    /// Whether nothing of it is under way, or would be if it took its answer.
    fn is_idle(&self) -> bool {
        let has_request = self.may_ask() && self.session.has_request();
        !self.is_waiting && !has_request
    }

    fn receive(&mut self) {
        let mut bytes = [0; LINE_BYTES_MAX];
        while self.readable && !self.ended && self.session.room() > 0 {
            let room = self.session.room();
            match rustix::io::read(&self.socket, &mut bytes[..room]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.session.receive(&bytes[..count]),
                Err(Errno::AGAIN) => self.readable = false,
                Err(Errno::INTR) => {}
                Err(_) => self.ended = true,
            }
        }
    }

    /// Sends what it is owed. False if it has gone.
    fn send(&mut self) -> bool {
        while self.writable && self.sent < self.output.len() {
            match send(&self.socket, &self.output[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => self.writable = false,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        true
    }

    /// Whether there is nothing left to do for it.
    fn is_over(&self) -> bool {
        self.may_ask() && (self.session.is_over() || (self.ended && !self.session.has_request()))
    }
}

impl<L: AsFd> ControlServer<L> {
    /// Serves the clients of `listener`, a listening socket that does not block.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(listener: L) -> io::Result<ControlServer<L>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(EVENT_LISTENER), flags)?;
        Ok(ControlServer { epoll, listener, may_accept: true, slots: Default::default(), count: 0 })
    }

    /// What is readable when something has happened.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether there is something to do of which no event tells again.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.may_accept
            || self.peers().any(|peer| {
                let may_hear = peer.readable && !peer.ended && peer.session.room() > 0;
                peer.is_over() || (peer.may_ask() && (peer.session.has_request() || may_hear))
            })
    }

    /// Takes what has happened: accepts, receives, sends. Never waits.
    pub fn poll(&mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(CLIENTS_MAX + 1);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If the system has no answer now, the event stays readable and it is asked again.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&at_once));
        for event in &events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == EVENT_LISTENER {
                self.may_accept = true;
                continue;
            }
            let id = ClientId { slot: data as u32, generation: (data >> 32) as u32 };
            if let Some(peer) = self.peer_mut(id) {
                use epoll::EventFlags as Flags;
                let gone = flags.intersects(Flags::HUP | Flags::ERR);
                peer.readable |= gone || flags.intersects(Flags::IN | Flags::RDHUP);
                peer.writable |= gone || flags.contains(Flags::OUT);
            }
        }
        self.accept();
        for slot in 0..CLIENTS_MAX {
            let Some(peer) = &mut self.slots[slot].peer else { continue };
            if !peer.send() {
                self.close(slot);
                continue;
            }
            peer.receive();
            if peer.is_over() {
                self.close(slot);
            }
        }
    }

    /// The next request of any client that has none under way. What is no request is answered here.
    pub fn take_request(&mut self) -> Option<(ClientId, Request)> {
        for slot in 0..CLIENTS_MAX {
            let Slot { generation, peer } = &mut self.slots[slot];
            let id = ClientId { slot: slot as u32, generation: *generation };
            while let Some(peer) = peer.as_mut().filter(|peer| peer.may_ask()) {
                match peer.session.take_request() {
                    None => break,
                    Some(Ok(command)) => {
                        self.count += 1;
                        (peer.is_waiting, peer.asked) = (true, self.count);
                        return Some((id, command));
                    }
                    Some(Err(refusal)) => {
                        debug!(target: "control", reason = %refusal, "line refused");
                        peer.output = response_line(Err(refusal));
                        // If it has gone, the next poll finds out.
                        peer.send();
                    }
                }
            }
        }
        None
    }

    /// Answers the request of `client`, which may have gone since.
    pub fn answer(&mut self, client: ClientId, result: Result<Answer, Refusal>) {
        let Some(peer) = self.peer_mut(client).filter(|peer| peer.is_waiting) else { return };
        peer.is_waiting = false;
        peer.output = response_line(result);
        if !peer.send() || peer.is_over() {
            self.close(client.slot as usize);
        }
    }

    fn accept(&mut self) {
        while self.may_accept {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Without a descriptor it waits for the next client that comes or goes.
                Err(_) => self.may_accept = false,
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let Some(slot) = self.place() else {
            let what =
                format_args!("{CLIENTS_MAX} clients wait for answers, and there is no room for more").to_string();
            let refusal = Refusal::new(RefusalKind::NotNow, what).fix("let another client end first");
            Peer { output: response_line(Err(refusal)), ..Peer::new(socket, 0) }.send();
            return;
        };
        let data = epoll::EventData::new_u64(u64::from(self.slots[slot].generation) << 32 | slot as u64);
        if epoll::add(&self.epoll, &socket, data, flags).is_ok() {
            self.count += 1;
            let mut peer = Peer::new(socket, self.count);
            // What it asks for at once keeps its place.
            peer.receive();
            self.slots[slot].peer = Some(peer);
        }
    }

    /// A place for one more client. Whoever holds a connection and asks for nothing locks nobody out.
    fn place(&mut self) -> Option<usize> {
        if let Some(free) = self.slots.iter().position(|slot| slot.peer.is_none()) {
            return Some(free);
        }
        let idle = |slot: &usize| self.slots[*slot].peer.as_ref().is_some_and(Peer::is_idle);
        let asked = |slot: &usize| self.slots[*slot].peer.as_ref().map(|peer| peer.asked);
        let longest_idle = (0..CLIENTS_MAX).filter(idle).min_by_key(asked)?;
        self.close(longest_idle);
        Some(longest_idle)
    }

    fn close(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        if let Some(peer) = slot.peer.take() {
            // Closing the socket takes it out of the epoll set.
            let _ = epoll::delete(&self.epoll, &peer.socket);
        }
        // Generations stay clear of the mark of the listener.
        slot.generation = (slot.generation + 1) % (1 << 31);
        self.may_accept = true;
    }

    fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(|slot| slot.peer.as_ref())
    }

    fn peer_mut(&mut self, id: ClientId) -> Option<&mut Peer> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.peer.as_mut())
    }
}
