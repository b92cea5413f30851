//! One client, whatever it speaks.

use std::os::fd::OwnedFd;

use openftl_bytes::RequestId;
use openftl_core::{Nanos, Time};

use crate::channel::Channel;
use crate::link::{Link, Movers, Over};
use crate::nbd::NbdConnection;
use crate::nvme::NvmeConnection;
use crate::parting::Parting;
use crate::served::Served;
use crate::transfer::{Moved, Parcel, Room};
use crate::{Counters, Protocol, ServedDrive, ServerConfig};

pub(crate) enum Connection {
    Nbd(NbdConnection),
    Nvme(NvmeConnection),
}

/// The same of either.
macro_rules! either {
    ($connection:expr, $name:ident => $what:expr) => {
        match $connection {
            Connection::Nbd($name) => $what,
            Connection::Nvme($name) => $what,
        }
    };
}

impl Connection {
    pub fn new(
        now: Time,
        number: u64,
        socket: OwnedFd,
        protocol: Protocol,
        channel: Channel,
        config: &ServerConfig,
    ) -> Connection {
        let link = Link::new(now, number, socket, channel, config.stall_max);
        match protocol {
            Protocol::Nbd => Connection::Nbd(NbdConnection::new(link)),
            Protocol::NvmeTcp => Connection::Nvme(NvmeConnection::new(link)),
        }
    }

    pub fn link(&self) -> &Link {
        either!(self, connection => &connection.link)
    }

    pub fn link_mut(&mut self) -> &mut Link {
        either!(self, connection => &mut connection.link)
    }

    /// From now on refuse requests; those under way are finished.
    pub fn stop(&mut self) {
        match self {
            Connection::Nbd(connection) => {
                connection.link.parting.get_or_insert(Parting::Stop);
                connection.stop();
            }
            Connection::Nvme(connection) => connection.link.close_because(Parting::Stop),
        }
    }

    /// What is spoken on it.
    pub fn protocol(&self) -> Protocol {
        match self {
            Connection::Nbd(_) => Protocol::Nbd,
            Connection::Nvme(_) => Protocol::NvmeTcp,
        }
    }

    /// Whether the peer has not yet said, or shown, who it is.
    pub fn is_shaking_hands(&self) -> bool {
        either!(self, connection => connection.is_shaking_hands())
    }

    pub fn is_idle(&self) -> bool {
        either!(self, connection => connection.is_idle())
    }

    pub fn requests_under_way(&self) -> usize {
        either!(self, connection => connection.requests_under_way())
    }

    pub fn is_held_back(&self, config: &ServerConfig) -> bool {
        match self {
            Connection::Nbd(connection) => connection.is_held_back(config),
            Connection::Nvme(connection) => connection.is_held_back(),
        }
    }

    /// Whether nothing is to be done for it until its socket says so, or a host is told something: the server looks at it no more before that.
    pub fn may_sleep(&self, config: &ServerConfig) -> bool {
        let link = self.link();
        let is_quiet = !link.is_readable() && !link.hung_up && !link.ended && !link.closing && link.input().is_empty();
        is_quiet
            && self.is_idle()
            && !self.can_go_on()
            && !self.is_held_back(config)
            && !self.is_shaking_hands()
            && self.kept_bytes() == 0
            && self.slow_at().is_none()
            && self.deadline(config).is_none()
    }

    pub fn can_go_on(&self) -> bool {
        either!(self, connection => connection.can_go_on())
    }

    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        either!(self, connection => connection.deadline(config))
    }

    /// From when on others do not wait for the frames that its payload lies in.
    pub fn slow_at(&self) -> Option<Time> {
        either!(self, connection => connection.slow_at())
    }

    /// Gives up frames that a slow peer's payload lies in. Returns whether there were any.
    pub fn move_aside<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        counters: &Counters,
    ) -> Result<bool, Over> {
        match self {
            Connection::Nbd(connection) => Ok(connection.move_aside(now, served, counters)),
            Connection::Nvme(connection) => connection.move_aside(now, served, counters),
        }
    }

    /// Memory that the peer keeps by being slow.
    pub fn kept_bytes(&self) -> usize {
        either!(self, connection => connection.kept_bytes())
    }

    pub fn is_over(&self) -> bool {
        either!(self, connection => connection.is_over())
    }

    /// Sends what is in line, in one system call. Returns whether others may go on: frames were given back, or this connection got stuck and
    /// waits for them no more.
    pub fn send<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        movers: &mut Movers<'_>,
    ) -> Result<bool, Over> {
        if !self.link().may_send() {
            return Ok(false);
        }
        let (link, ended) = self.link_and_books();
        link.send(now, served, movers, ended)
    }

    /// A reactor has filled these with payload.
    pub fn payload_came<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        rooms: Vec<Room>,
        moved: Moved,
    ) {
        either!(self, connection => connection.payload_came(now, served, rooms, moved));
    }

    /// A reactor has sent this, or a part of it. Returns the same.
    pub fn sent<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        parcel: Parcel,
        moved: Moved,
    ) -> Result<bool, Over> {
        let (link, ended) = self.link_and_books();
        link.sent(now, served, parcel, moved, ended)
    }

    /// The link, and who books that a read was sent to its end.
    fn link_and_books(&mut self) -> (&mut Link, impl FnMut(RequestId, u64)) {
        let (link, requests, bytes) =
            either!(self, connection => (&mut connection.link, &mut connection.requests, &mut connection.bytes));
        let ended = move |_, length| {
            *requests -= 1;
            *bytes -= length;
        };
        (link, ended)
    }

    pub fn abandon_all<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) {
        either!(self, connection => connection.abandon_all(served));
    }
}

/// Bounds that are spans of time, by default.
pub(crate) const HANDSHAKE_MAX: Nanos = Nanos::from_millis(10_000);
pub(crate) const STALL_MAX: Nanos = Nanos::from_millis(30_000);
