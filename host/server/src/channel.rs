//! What lies between a socket and the bytes of a protocol: nothing, or TLS.
//!
//! ```text
//!                  ┌ 16h: TLS ─▶ shaking hands ─▶ open
//!   first byte? ───┤
//!                  └ another: plain, where that is allowed
//! ```
//!
//! A plain connection costs nothing of this: its bytes go between the socket and where they belong in one system call. With
//! TLS the library's buffers lie between them: what is received is decrypted there and copied to where it belongs, what is
//! sent is gathered in a buffer of [`GATHERED_BYTES_MAX`] and encrypted from there.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use openftl_nvme_auth::PskIdentity;
use openftl_nvme_tls::{FIRST_BYTE, Session};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::Counters;
use crate::link::Over;
use crate::parting::Parting;
use crate::secure::{Secure, TlsPolicy};
use crate::transfer::Moved;

/// Bytes that are gathered to be encrypted at a time.
pub(crate) const GATHERED_BYTES_MAX: usize = 64 << 10;

/// What lies between.
pub(crate) enum Channel {
    /// Nothing.
    Plain,
    /// The first byte will tell.
    Undecided,
    /// TLS.
    Secure(Box<Secured>),
    /// TLS, which a reactor has now.
    Lent,
}

/// TLS on a socket.
pub(crate) struct Secured {
    session: Session,
    /// What is to be encrypted next.
    pub gathered: Vec<u8>,
}

impl Channel {
    /// Decides and shakes hands, as far as the peer has come. Nothing moved when it is done, so that the protocol's bytes may
    /// follow.
    pub fn settle(&mut self, socket: BorrowedFd<'_>, secure: &Secure, counters: &Counters) -> Result<Moved, Over> {
        if let Channel::Undecided = self {
            let mut first = [0];
            match recv(socket, &mut first[..], RecvFlags::PEEK) {
                Ok((_, 0)) => return Ok(Moved { ended: true, ..Moved::default() }),
                Ok(_) if first[0] == FIRST_BYTE => {
                    let session = secure.acceptor.accept().map_err(|_| Over::Vanished)?;
                    *self = Channel::Secure(Box::new(Secured { session, gathered: Vec::new() }));
                }
                Ok(_) if secure.policy == TlsPolicy::Allowed => *self = Channel::Plain,
                Ok(_) => {
                    counters.connections_without_tls.add(1);
                    return Err(Over::Expelled(Parting::NoTls));
                }
                Err(Errno::AGAIN) => return Ok(Moved { would_block: true, ..Moved::default() }),
                Err(Errno::INTR) => return Ok(Moved::default()),
                Err(_) => return Err(Over::Vanished),
            }
        }
        let Channel::Secure(secured) = self else { return Ok(Moved::default()) };
        match secured.session.shake_hands(&mut Socket(socket)) {
            Ok(()) => Ok(Moved::default()),
            // What a handshake sends fits into the buffer of a new socket, so it waits for the peer only.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Moved { would_block: true, ..Moved::default() }),
            Err(error) => {
                let over = over(&error, Parting::TlsHandshake);
                if let Over::Expelled(_) = over {
                    counters.tls_handshakes_failed.add(1);
                }
                Err(over)
            }
        }
    }

    /// Whether the bytes of the protocol come now.
    pub fn is_settled(&self) -> bool {
        match self {
            Channel::Plain | Channel::Lent => true,
            Channel::Undecided => false,
            Channel::Secure(secured) => secured.session.is_open(),
        }
    }

    /// What lies between, for a transfer.
    #[inline]
    pub fn secured(&mut self) -> Option<&mut Secured> {
        match self {
            Channel::Secure(secured) => Some(secured),
            Channel::Plain | Channel::Undecided | Channel::Lent => None,
        }
    }

    /// The same, lent to a transfer that another thread makes.
    pub fn lend(&mut self) -> Option<Box<Secured>> {
        match std::mem::replace(self, Channel::Lent) {
            Channel::Secure(secured) => Some(secured),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Secured {
    /// Fills the rooms, one after the other, with what the socket holds.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, rooms: &mut [IoSliceMut<'_>]) -> Result<Moved, Over> {
        let mut moved = Moved::default();
        for room in rooms {
            let mut room = &mut room[..];
            while !room.is_empty() {
                match self.session.read(&mut Socket(socket), room) {
                    Ok(0) => return Ok(Moved { ended: true, ..moved }),
                    Ok(bytes) => {
                        moved.bytes += bytes;
                        room = &mut room[bytes..];
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(Moved { would_block: true, ..moved });
                    }
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        return Ok(Moved { ended: true, ..moved });
                    }
                    Err(error) => return Err(over(&error, Parting::TlsRecord)),
                }
            }
        }
        Ok(moved)
    }

    /// Who the peer has shown to be.
    pub fn shown(&self) -> Option<&PskIdentity> {
        self.session.identity()
    }

    /// Sends what is gathered; how much of it the socket took.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> Result<Moved, Over> {
        match self.session.write(&mut Socket(socket), &self.gathered) {
            Ok(bytes) => Ok(Moved { bytes, would_block: bytes < self.gathered.len(), ..Moved::default() }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Moved { would_block: true, ..Moved::default() }),
            Err(_) => Err(Over::Vanished),
        }
    }

    /// Tells the peer that nothing more comes.
    pub fn close(&mut self, socket: BorrowedFd<'_>) {
        self.session.close(&mut Socket(socket));
    }

    /// Keeps no buffer that nothing is in.
    pub fn rest(&mut self) {
        self.gathered = Vec::new();
        self.session.rest();
    }
}

/// Whose doing it is that there is no more.
fn over(error: &io::Error, rudeness: Parting) -> Over {
    if error.kind() == ErrorKind::InvalidData { Over::Expelled(rudeness) } else { Over::Vanished }
}

/// A socket as TLS reads and writes it.
struct Socket<'s>(BorrowedFd<'s>);

impl Read for Socket<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, room)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0.as_fd(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
