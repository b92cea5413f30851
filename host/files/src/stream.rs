//! The socket between a client and a server: a Unix socket, or TCP.

use crate::wire::{HEAD_BYTES, Head, WireError};
use rustix::net::{SendFlags, Shutdown, sockopt};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are received ahead.
const AHEAD_BYTES: usize = 32 * 1024;

/// A connected socket.
#[derive(Clone, Debug)]
pub struct Stream(Arc<OwnedFd>);

impl From<OwnedFd> for Stream {
    fn from(socket: OwnedFd) -> Stream {
        Stream(Arc::new(socket))
    }
}

impl Stream {
    /// Connects to the Unix socket at `path`.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn unix(path: &Path) -> io::Result<Stream> {
        Ok(OwnedFd::from(UnixStream::connect(path)?).into())
    }

    /// Connects to `address`.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn tcp(address: SocketAddr) -> io::Result<Stream> {
        let stream = TcpStream::connect(address)?;
        // Small messages are not to wait for more; one that refuses works as well.
        let _ = stream.set_nodelay(true);
        Ok(OwnedFd::from(stream).into())
    }

    /// Who is at the other end, for the log: the process behind a Unix socket, or the address.
    pub(crate) fn peer(&self) -> String {
        if let Some(address) = rustix::net::getpeername(&self.0).ok().flatten()
            && let Ok(address) = SocketAddr::try_from(address)
        {
            return address.to_string();
        }
        let process = sockopt::socket_peercred(&self.0).map(|credentials| credentials.pid.as_raw_nonzero());
        process.map_or("unknown".to_owned(), |pid| format!("process {pid}"))
    }

    /// How long to wait for the other side in the middle of a message.
    pub(crate) fn set_patience(&self, span: Duration) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Recv, Some(span))?;
        Ok(sockopt::set_socket_timeout(&self.0, sockopt::Timeout::Send, Some(span))?)
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // No signal: the program may be any.
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends the connection for all who use it.
    pub(crate) fn end(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Has nothing more come in. What has to be sent still is.
    pub(crate) fn end_input(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Read);
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}

/// Why no message comes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// The other side has ended the connection, between two messages.
    #[error("the connection was closed")]
    Closed,
    /// It broke.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// What came is no message.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Messages from the other side.
pub(crate) struct Inbox {
    stream: BufReader<Stream>,
    body: Vec<u8>,
}

impl Inbox {
    pub(crate) fn new(stream: Stream) -> Inbox {
        Inbox { stream: BufReader::with_capacity(AHEAD_BYTES, stream), body: Vec::new() }
    }

    /// Waits for the next message. In the middle of one, only as long as the stream has patience.
    pub(crate) fn receive(&mut self) -> Result<(Head, &[u8]), ReceiveError> {
        loop {
            match self.stream.fill_buf() {
                Ok([]) => return Err(ReceiveError::Closed),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(ReceiveError::Closed),
                Err(error) => return Err(error.into()),
            }
        }
        self.receive_now()
    }

    /// The same without patience for its beginning.
    pub(crate) fn receive_now(&mut self) -> Result<(Head, &[u8]), ReceiveError> {
        let mut head = [0; HEAD_BYTES];
        self.stream.read_exact(&mut head)?;
        let head = Head::parse(&head)?;
        self.body.resize(head.bytes.get() as usize, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok((head, &self.body))
    }
}
