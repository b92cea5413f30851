//! An I/O queue with many commands under way, on a stream that does not block.
//!
//! ```text
//!   submit(note, command) ──▶ socket ──▶ try_end: (note, its end) ──▶ … ──▶ cut: notes of commands whose end nobody will see
//! ```
//!
//! A note is whatever its owner wants to know when the command ends.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use openftl_nvme::SubmissionEntry;
use openftl_nvme_tcp::SUBMISSION_BYTES;
use openftl_nvme_tcp::client::{Client, ClientError, Ended, Payload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;
use zerocopy::IntoBytes;

/// See the module.
pub struct Pipeline<N> {
    /// `Err`: why there is no link any more.
    io: Result<Client<TcpStream>, String>,
    /// By the client's tag.
    notes: Vec<Option<N>>,
    free: Vec<u32>,
    under_way: usize,
    /// Buffers of commands that have ended.
    buffers: Vec<Vec<u8>>,
}

impl<N> Pipeline<N> {
    /// A queue with nothing under way.
    ///
    /// # Errors
    /// If the stream cannot be one that does not block.
    pub fn new(io: Client<TcpStream>) -> Result<Pipeline<N>, ClientError> {
        io.stream().set_nonblocking(true)?;
        Ok(Pipeline { io: Ok(io), notes: Vec::new(), free: Vec::new(), under_way: 0, buffers: Vec::new() })
    }

    /// Whether another command can be submitted. None can be to a link that is cut.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.io.as_ref().is_ok_and(Client::has_room)
    }

    /// Commands under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// What was said of the commands under way, in no order.
    pub fn notes(&self) -> impl Iterator<Item = &N> {
        self.notes.iter().flatten()
    }

    /// Why there is no link any more, if there is none.
    #[must_use]
    pub fn cut(&self) -> Option<&str> {
        self.io.as_ref().err().map(String::as_str)
    }

    /// An empty buffer, one that was used before if there is one.
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Gives a buffer back.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            self.buffers.push(buffer);
        }
    }

    /// Submits a command, with a list of addresses if it has one; only while there is room, and a link.
    pub fn submit(&mut self, note: N, entry: &SubmissionEntry, list: &[u8], payload: Payload) {
        let io = self.io.as_mut().expect("nothing is submitted to a link that is cut");
        let index = self.free.pop().unwrap_or_else(|| {
            self.notes.push(None);
            self.notes.len() as u32 - 1
        });
        self.notes[index as usize] = Some(note);
        self.under_way += 1;
        let bytes: &[u8; SUBMISSION_BYTES] = entry.as_bytes().try_into().expect("an entry has 64 bytes");
        io.submit_with_list(index.into(), bytes, list, payload);
    }

    /// Sends and receives what the stream takes and gives at once. `None`: no command has ended.
    ///
    /// # Errors
    /// What ended the connection: the link is to be [cut](Pipeline::cut_link). Also if it is.
    pub fn try_end(&mut self) -> Result<Option<(N, Ended)>, ClientError> {
        let io = self.io.as_mut().map_err(|_| not_connected())?;
        let Some(ended) = io.try_wait()? else { return Ok(None) };
        let note = self.notes[ended.tag as usize].take().expect("a command ends once");
        self.free.push(ended.tag as u32);
        self.under_way -= 1;
        Ok(Some((note, ended)))
    }

    /// Waits until something can be received, or sent that waits for it.
    ///
    /// # Errors
    /// If nothing can be within this time, waiting fails, or the link is cut.
    pub fn wait(&mut self, most: Duration) -> Result<(), ClientError> {
        let io = self.io.as_ref().map_err(|_| not_connected())?;
        let mut wanted = PollFlags::IN;
        if io.wants_to_send() {
            wanted |= PollFlags::OUT;
        }
        let mut sockets = [PollFd::new(io.stream(), wanted)];
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut sockets, Some(&most)) {
            Ok(0) => Err(ClientError::Stream(io::ErrorKind::TimedOut.into())),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ClientError::Stream(error.into())),
        }
    }

    /// The queue itself, on a stream that blocks, for a last command; only if nothing is under way, and there is a link.
    pub fn quiet(&mut self) -> Option<&mut Client<TcpStream>> {
        let io = self.io.as_mut().ok().filter(|_| self.under_way == 0)?;
        io.stream().set_nonblocking(false).ok().map(|()| io)
    }

    /// There is no link any more: the stream is closed, and what it has taken and not sent is discarded. Returns the notes of the commands
    /// under way, unless it was cut before.
    pub fn cut_link(&mut self, why: &ClientError) -> Vec<N> {
        let Ok(io) = &self.io else { return Vec::new() };
        // Without it the kernel would go on sending writes that count as failed. A stream that is broken already has nothing to send.
        let _ = set_socket_linger(io.stream(), Some(Duration::ZERO));
        self.io = Err(why.to_string());
        self.under_way = 0;
        self.notes.iter_mut().filter_map(Option::take).collect()
    }
}

fn not_connected() -> ClientError {
    ClientError::Stream(io::ErrorKind::NotConnected.into())
}
