//! Redis clients of a served key-value drive.
//!
//! ```text
//!   NVMe hosts ──▶ server ──────────▶ drive
//!   Redis clients ─▶ RedisDoor ─ Front ─┘     in the turn that the server gives its operator
//! ```
//!
//! The server's thread owns the drive, and so nothing is locked: in its turn the door moves bytes between the sockets and the [`Front`], which asks
//! the drive. The server polls the drive, and hands on the ends of what the front has asked. All sockets are behind one descriptor that the server
//! watches.

use crate::service::Drive;
use openftl_core::{Nanos, Time};
use openftl_drive::failure::Failure;
use openftl_redis::{Front, PeerId};
use openftl_server::{Drives, OPERATOR_TAGS};
use rustix::event::epoll;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::{debug, info, warn};

/// Clients at a time.
const CLIENTS_MAX: usize = 1024;

/// Bytes that are received at a time.
const RECEIVED: usize = 64 << 10;

/// Changes are durable after this, also without anybody asking.
const FLUSH_AFTER: Nanos = Nanos::from_millis(1000);

/// Sockets that are looked at in a turn.
const EVENTS_MAX: usize = 128;

/// What an event belongs to: a listener with this bit, or the client with that number.
const LISTENER: u64 = 1 << 63;

/// A client and its socket.
struct Client {
    socket: TcpStream,
    /// What its socket is watched for.
    watched: epoll::EventFlags,
    /// The socket has failed.
    has_gone: bool,
}

/// What Redis clients have done.
#[derive(Serialize, Clone, Copy, Default)]
pub struct RedisCounters {
    commands: u64,
    clients: u64,
    clients_turned_away: u64,
    clients_closed_for_memory: u64,
}

impl RedisCounters {
    /// Commands that were understood.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Clients that came.
    pub fn clients(&self) -> u64 {
        self.clients
    }
}

/// See the module.
pub struct RedisDoor {
    epoll: OwnedFd,
    listeners: Vec<TcpListener>,
    clients: BTreeMap<PeerId, Client>,
    front: Front,
    flush_at: Time,
    counters: RedisCounters,
    received: Vec<u8>,
}

impl RedisDoor {
    /// Listens at these addresses.
    ///
    /// # Errors
    /// If one of them is not local and `allow_remote` is not said, or is in use.
    pub fn new(addresses: &[SocketAddr], allow_remote: bool) -> Result<RedisDoor, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Failure::failed)?;
        let listeners = addresses.iter().map(|address| listen(*address, allow_remote));
        let listeners = listeners.collect::<Result<Vec<TcpListener>, Failure>>()?;
        for (number, listener) in (0_u64..).zip(&listeners) {
            let data = epoll::EventData::new_u64(LISTENER | number);
            epoll::add(&epoll, listener, data, epoll::EventFlags::IN).map_err(Failure::failed)?;
        }
        Ok(RedisDoor {
            epoll,
            listeners,
            clients: BTreeMap::new(),
            front: Front::new(OPERATOR_TAGS),
            flush_at: Time::ZERO,
            counters: RedisCounters::default(),
            received: vec![0; RECEIVED],
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// What was done so far.
    pub fn counters(&self) -> RedisCounters {
        RedisCounters { commands: self.front.commands(), ..self.counters }
    }

    /// What becomes readable when a socket has something, or takes more.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When it wants a turn though no socket has anything.
    pub fn next_due(&self) -> Option<Time> {
        self.front.wants_flush().then_some(self.flush_at)
    }

    /// The power is gone, and with it all that the clients have asked: they are closed, and may come again.
    pub fn power_cut(&mut self) {
        self.clients.clear();
        self.front.drive_lost();
    }

    /// Its turn. While there is no drive clients are turned away.
    pub fn turn(&mut self, now: Time, called: bool, drives: &mut Drives<'_, '_, Drive>) {
        if called {
            self.take_events(!drives.is_empty());
        }
        // A device that is divided has no key-value drive: there is one, and it is the first.
        let Some((drive, done)) = drives.values_mut(0) else { return };
        if self.clients.is_empty() && done.is_empty() && !self.front.wants_flush() {
            return;
        }
        // What is sent makes room for more answers.
        while self.front.advance(now, drive, done.drain(..)) | self.send() {}
        if now >= self.flush_at && self.front.flush(now, drive) {
            self.flush_at = now + FLUSH_AFTER;
        }
        self.close_clients();
        self.watch_clients();
    }

    /// Takes new clients, and what clients have sent.
    fn take_events(&mut self, is_served: bool) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        let at_once = rustix::event::Timespec::default();
        // What cannot be looked at now is looked at in the next turn: the descriptor stays readable.
        if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&at_once)).is_err() {
            return;
        }
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data & LISTENER != 0 {
                self.accept((data ^ LISTENER) as usize, is_served);
            } else if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                // A socket that has hung up is ready whatever it is watched for, and what its client waits for reaches nobody.
                let has_hung_up = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                self.receive(PeerId(data), has_hung_up);
            }
        }
    }

    fn accept(&mut self, listener: usize, is_served: bool) {
        // Whoever has come and gone again is none.
        while let Ok((mut socket, address)) = self.listeners[listener].accept() {
            if self.clients.len() == CLIENTS_MAX || !is_served {
                self.counters.clients_turned_away += 1;
                let (said, reason): (&[u8], _) = match is_served {
                    true => (b"-ERR max number of clients reached\r\n", "too many clients"),
                    false => (b"-ERR the power of the drive is off\r\n", "the power is off"),
                };
                warn!(target: "connection", protocol = "redis", %address, reason, "turned away");
                // It may not want to know.
                _ = socket.write(said);
                continue;
            }
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            // Without it replies would be slower, and no less right.
            _ = socket.set_nodelay(true);
            let peer = self.front.connect();
            let watched = epoll::EventFlags::IN;
            if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(peer.0), watched).is_err() {
                self.front.disconnect(peer);
                continue;
            }
            debug!(target: "connection", protocol = "redis", %address, "connected");
            self.counters.clients += 1;
            self.clients.insert(peer, Client { socket, watched, has_gone: false });
        }
    }

    /// Takes what a client has sent: so much of it that the others have their turn.
    fn receive(&mut self, peer: PeerId, has_hung_up: bool) {
        let Some(client) = self.clients.get_mut(&peer) else { return };
        if !self.front.wants_input(peer) {
            client.has_gone |= has_hung_up;
            return;
        }
        match client.socket.read(&mut self.received) {
            Ok(0) => self.front.end_input(peer),
            Ok(count) => self.front.receive(peer, &self.received[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => client.has_gone = true,
        }
    }

    /// Sends what clients are to get. Returns whether anything was sent.
    fn send(&mut self) -> bool {
        let mut has_sent = false;
        for (peer, client) in &mut self.clients {
            while !client.has_gone && !self.front.output(*peer).is_empty() {
                match client.socket.write(self.front.output(*peer)) {
                    Ok(count) => {
                        self.front.sent(*peer, count);
                        has_sent = true;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => client.has_gone = true,
                }
            }
        }
        has_sent
    }

    /// Closes those that are done, have gone, or keep too much.
    fn close_clients(&mut self) {
        while let Some(heaviest) = self.front.heaviest() {
            self.counters.clients_closed_for_memory += 1;
            warn!(target: "connection", protocol = "redis", client = heaviest.0, "closed: clients keep too much memory");
            self.front.disconnect(heaviest);
            self.clients.remove(&heaviest);
        }
        let front = &mut self.front;
        self.clients.retain(|peer, client| {
            let stays = !client.has_gone && !front.is_over(*peer);
            if !stays {
                front.disconnect(*peer);
                debug!(target: "connection", protocol = "redis", client = peer.0, "closed");
            }
            stays
        });
    }

    /// Sockets are watched for what clients can do now.
    fn watch_clients(&mut self) {
        for (peer, client) in &mut self.clients {
            let mut wanted = epoll::EventFlags::empty();
            wanted.set(epoll::EventFlags::IN, self.front.wants_input(*peer));
            wanted.set(epoll::EventFlags::OUT, !self.front.output(*peer).is_empty());
            if wanted != client.watched {
                let data = epoll::EventData::new_u64(peer.0);
                client.has_gone |= epoll::modify(&self.epoll, &client.socket, data, wanted).is_err();
                client.watched = wanted;
            }
        }
    }
}

fn listen(address: SocketAddr, allow_remote: bool) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(Failure::bad_input(format_args!(
            "{address} can be reached from other machines, and there are no passwords here"
        ))
        .fix("use a loopback address like 127.0.0.1:6379, or add --allow-remote"));
    }
    let failed =
        |error| Failure::failed(format_args!("cannot listen on {address}: {error}")).fix("choose another address");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let shown = listener.local_addr().map_or(address, |address| address);
    info!(target: "connection", protocol = "redis", endpoint = %shown, "listening");
    Ok(listener)
}
