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
use zerocopy::IntoBytes;

/// See the module.
pub struct Pipeline<N> {
    io: Client<TcpStream>,
    /// By the client's tag.
    notes: Vec<Option<N>>,
    free: Vec<u32>,
    under_way: usize,
    /// Buffers of commands that have ended.
    buffers: Vec<Vec<u8>>,
    /// Why there is no link any more.
    cut: Option<String>,
}

impl<N> Pipeline<N> {
    /// A queue with nothing under way.
    ///
    /// # Errors
    /// If the stream cannot be one that does not block.
    pub fn new(io: Client<TcpStream>) -> Result<Pipeline<N>, ClientError> {
        io.stream().set_nonblocking(true)?;
        Ok(Pipeline { io, notes: Vec::new(), free: Vec::new(), under_way: 0, buffers: Vec::new(), cut: None })
    }

    /// Whether another command can be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.io.has_room()
    }

    /// Commands under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Why there is no link any more, if there is none.
    #[must_use]
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
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
        assert!(self.cut.is_none(), "nothing is submitted to a link that is cut");
        let index = self.free.pop().unwrap_or_else(|| {
            self.notes.push(None);
            self.notes.len() as u32 - 1
        });
        self.notes[index as usize] = Some(note);
        self.under_way += 1;
        let bytes: &[u8; SUBMISSION_BYTES] = entry.as_bytes().try_into().expect("an entry has 64 bytes");
        self.io.submit_with_list(index.into(), bytes, list, payload);
    }

    /// Sends and receives what the stream takes and gives at once. `None`: no command has ended.
    ///
    /// # Errors
    /// What ended the connection: the link is to be [cut](Pipeline::cut_link).
    pub fn try_end(&mut self) -> Result<Option<(N, Ended)>, ClientError> {
        let Some(ended) = self.io.try_wait()? else { return Ok(None) };
        let note = self.notes[ended.tag as usize].take().expect("a command ends once");
        self.free.push(ended.tag as u32);
        self.under_way -= 1;
        Ok(Some((note, ended)))
    }

    /// Waits until something can be received, or sent that waits for it.
    ///
    /// # Errors
    /// If nothing can be within this time, or waiting fails.
    pub fn wait(&mut self, most: Duration) -> Result<(), ClientError> {
        let mut wanted = PollFlags::IN;
        if self.io.wants_to_send() {
            wanted |= PollFlags::OUT;
        }
        let mut sockets = [PollFd::new(self.io.stream(), wanted)];
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut sockets, Some(&most)) {
            Ok(0) => Err(ClientError::Stream(io::ErrorKind::TimedOut.into())),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(ClientError::Stream(error.into())),
        }
    }

    /// There is no link any more. Returns the notes of the commands under way, unless it was cut before.
    pub fn cut_link(&mut self, why: &ClientError) -> Vec<N> {
        if self.cut.is_some() {
            return Vec::new();
        }
        self.cut = Some(why.to_string());
        self.under_way = 0;
        self.notes.iter_mut().filter_map(Option::take).collect()
    }
}
