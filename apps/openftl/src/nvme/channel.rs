//! What the bytes of a queue go through: a socket, or TLS on one.

use super::socket::Socket;
use crate::cli::nvme::HostFlags;
use crate::failure::Failure;
use openftl_nvme_auth::{TlsKey, TlsPsk};
use openftl_nvme_tls::{ConnectError, TlsError, TlsStream};
use std::io::{self, Read, Write};
use std::time::Duration;

/// A stream to a controller.
pub enum Channel {
    /// That everybody on its way can read and change.
    Plain(Socket),
    /// That nobody can.
    Secure(Box<TlsStream<Socket>>),
}

/// The pre-shared keys of a host for a subsystem.
pub struct Keys(Vec<TlsPsk>);

impl Keys {
    /// Those that the command line names, if it names one.
    pub fn new(host: &HostFlags, subsystem_nqn: &str) -> Result<Option<Keys>, Failure> {
        let Some(key) = &host.tls_key else { return Ok(None) };
        if !openftl_nvme_tls::IS_BUILT {
            return Err(Failure::bad_input(format_args!("--tls-key: {}", TlsError::NotBuilt)));
        }
        let key: TlsKey = super::authentication::secret("--tls-key", key)?;
        Ok(Some(Keys(key.psks(host.host_nqn.as_str(), subsystem_nqn).collect())))
    }
}

impl Channel {
    /// Shakes hands over `socket`, where there are keys to do it with.
    pub fn open(socket: Socket, keys: Option<&Keys>) -> Result<Channel, ConnectError> {
        let Some(Keys(psks)) = keys else { return Ok(Channel::Plain(socket)) };
        Ok(Channel::Secure(Box::new(TlsStream::connect(socket, psks.iter().cloned())?)))
    }

    /// How long anything may take from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        match self {
            Channel::Plain(socket) => socket.set_patience(patience),
            Channel::Secure(stream) => stream.get_mut().set_patience(patience),
        }
    }

    /// From now on a read looks again and again until something has come.
    pub fn poll(&mut self) {
        match self {
            Channel::Plain(socket) => socket.poll(),
            Channel::Secure(stream) => stream.get_mut().poll(),
        }
    }
}

impl Read for Channel {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(socket) => socket.read(room),
            Channel::Secure(stream) => stream.read(room),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(socket) => socket.write(bytes),
            Channel::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Channel::Plain(socket) => socket.flush(),
            Channel::Secure(stream) => stream.flush(),
        }
    }
}
