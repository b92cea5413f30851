//! Who is at the other end of a socket, for the log.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::getpeername;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// Of TCP.
    Address(SocketAddr),
    /// Of a Unix socket: the process that connected.
    Process(Pid),
    /// The system does not say.
    Unknown,
}

impl Peer {
    pub fn of(socket: impl AsFd) -> Peer {
        let address = getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        match address {
            Some(address) => Peer::Address(address),
            None => socket_peercred(&socket).map_or(Peer::Unknown, |credentials| Peer::Process(credentials.pid)),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Process(pid) => write!(f, "process {}", pid.as_raw_nonzero()),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}
