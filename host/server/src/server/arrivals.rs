//! Arrivals are connections that listeners accept. The server lets them in, or refuses them.

use openftl_core::{Nanos, Time};
use rustix::event::epoll;
use rustix::io::Errno;
use tracing::{debug, warn};

use super::{Server, Slot};
use crate::channel::Channel;
use crate::connection::Connection;
use crate::peer::Peer;
use crate::protocol::Protocol;

/// Connections accepted in one turn from one listener.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// How long a listener rests after the system refused it a connection, if none closes before: what is scarce, such as
/// descriptors, may come back without any event.
const ACCEPT_RETRY_AFTER: Nanos = Nanos::from_millis(100);

impl Server {
    /// Accepts those who wait, and lets them in if there is something to serve: drives to NBD clients, namespaces to NVMe hosts.
    pub(super) fn accept(&mut self, now: Time, drives: bool, namespaces: bool) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].retry_at.is_some_and(|at| now >= at) {
                self.listeners[index].ready = true;
            }
            for _ in 0..ACCEPTS_PER_TURN_MAX {
                if !self.listeners[index].ready {
                    break;
                }
                let protocol = self.listeners[index].protocol;
                let is_served = if protocol == Protocol::NvmeTcp { namespaces } else { drives };
                match self.listeners[index].accept() {
                    Ok(socket) if is_served => self.welcome(now, socket, protocol),
                    Ok(socket) => self.refuse(&socket, protocol, "nothing is served there now"),
                    Err(Errno::AGAIN) => self.listeners[index].ready = false,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    // Out of descriptors or memory: a connection may wait in the backlog, and no event will tell of it
                    // again. To try in every turn would be to spin.
                    Err(error) => {
                        self.counters.accepts_failed.add(1);
                        warn!(target: "connection", %protocol, %error, "the system refused a connection; it is tried again");
                        self.listeners[index].ready = false;
                        self.listeners[index].retry_at = Some(now + ACCEPT_RETRY_AFTER);
                    }
                }
            }
        }
    }

    fn welcome(&mut self, now: Time, socket: std::os::fd::OwnedFd, protocol: Protocol) {
        let slot = self.slots.iter().position(|slot| slot.connection.is_none()).unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::from(self.slots[slot].generation) << 32 | slot as u64);
        let is_full = self.counters.connections.get() >= self.config.connections_max as u64;
        if is_full {
            return self.refuse(&socket, protocol, "there are too many connections");
        }
        if epoll::add(&self.epoll, &socket, data, flags).is_err() {
            return self.refuse(&socket, protocol, "the system has no room for it");
        }
        self.counters.connections.add(1);
        self.counters.connections_accepted.add(1);
        let number = self.counters.connections_accepted.get();
        self.is_crowded = true;
        let is_secure =
            protocol == Protocol::NvmeTcp && self.fabric.as_ref().is_some_and(|fabric| fabric.secure.is_some());
        let channel = if is_secure { Channel::Undecided } else { Channel::Plain };
        let connection = Connection::new(now, number, socket, protocol, channel, &self.config);
        debug!(target: "connection", connection = number, peer = %connection.link().peer, %protocol, "connection accepted");
        self.slots[slot].connection = Some(connection);
        self.wake(slot);
    }

    /// Closes a connection that has just been accepted.
    fn refuse(&mut self, socket: &std::os::fd::OwnedFd, protocol: Protocol, reason: &str) {
        self.counters.connections_refused.add(1);
        warn!(target: "connection", peer = %Peer::of(socket), %protocol, reason, "connection refused");
    }
}
