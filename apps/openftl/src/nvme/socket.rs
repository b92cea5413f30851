//! The stream behind a queue: a TCP connection that never waits with its back to the other side.
//!
//! Reading waits until there is something. Writing waits until there is room, or until there is something to read, of
//! which it tells: a controller may take no more before it has got rid of what it sends. Both wait only so long.

use super::Address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// A connection to a target.
pub struct Socket {
    stream: TcpStream,
    patience: Duration,
    /// Looks again and again instead of sleeping.
    is_polling: bool,
}

impl Socket {
    /// Connects to the first address that answers. `patience` is how long anything may take.
    ///
    /// # Errors
    /// Why the last of them did not.
    pub fn connect(address: &Address, patience: Duration) -> io::Result<Socket> {
        let mut last = io::Error::new(ErrorKind::NotFound, "no machine has this name");
        for address in (address.machine.as_str(), address.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    // A command is worth a packet of its own.
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(patience))?;
                    return Ok(Socket { stream, patience, is_polling: false });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// How long anything may take from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = patience;
        self.stream.set_read_timeout(Some(patience))
    }

    /// From now on a read looks again and again until something has come.
    pub fn poll(&mut self) {
        self.is_polling = true;
    }

    fn impatient(&self) -> io::Error {
        io::Error::new(ErrorKind::TimedOut, format!("no answer within {:?}", self.patience))
    }
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.is_polling {
            let started = Instant::now();
            loop {
                match recv(&self.stream, &mut *room, RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN) if started.elapsed() < self.patience => std::thread::yield_now(),
                    Err(Errno::AGAIN) => return Err(self.impatient()),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                    Ok((bytes, _)) => return Ok(bytes),
                }
            }
        }
        match self.stream.read(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(self.impatient()),
            result => result,
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => {}
                result => return Ok(result?),
            }
            let patience =
                Timespec { tv_sec: self.patience.as_secs() as i64, tv_nsec: self.patience.subsec_nanos().into() };
            let mut ready = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::OUT)];
            match poll(&mut ready, Some(&patience)) {
                Ok(0) => return Err(self.impatient()),
                Ok(_) if ready[0].revents().contains(PollFlags::OUT) => {}
                Ok(_) => return Err(ErrorKind::WouldBlock.into()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
