//! A socket, what has been received on it and not yet looked at, and what is to be sent.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use openftl_bytes::RequestId;
use openftl_core::{BLOCK_BYTES, Nanos, Time};
use rustix::io::Errno;

use crate::channel::{Channel, Moved};
use crate::output::Output;
use crate::pace::Pace;
use crate::parting::Parting;
use crate::peer::Peer;
use crate::secure::Secure;
use crate::served::Served;
use crate::{Counters, ServedDrive};

/// Bytes of a receive buffer: a whole queue of 32 writes of 4 KiB, and much more than any message of a protocol.
pub(crate) const INPUT_BYTES: usize = 256 << 10;

/// Receive buffers that are kept for the next connections that need one.
const BUFFERS_KEPT_MAX: usize = 64;

/// Unread bytes of a connection that are kept without a buffer when nothing more comes: any short write whose rest is missing.
const REST_BYTES_MAX: usize = DIRECT_BYTES_MIN as usize;

/// Free room at the buffer's end below which its contents are moved to the front.
const INPUT_ROOM_BYTES_MIN: usize = 64 << 10;

/// Frames of one vectored read from the socket, where so many are left to fill, and where it is only worth a system call of
/// its own.
const FRAMES_AT_ONCE: usize = 32;
const FRAMES_AT_ONCE_MIN: usize = 8;

/// Payload that is worth a system call of its own, straight into frames.
pub(crate) const DIRECT_BYTES_MIN: u64 = (FRAMES_AT_ONCE_MIN * BLOCK_BYTES) as u64;

/// Bytes that are taken to find a header before a long payload: what of the payload comes with it has to be copied.
const HEAD_BYTES: usize = 16 << 10;

/// Why a connection is over, when it is not the protocol's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Peer and server have nothing more to say.
    Finished,
    /// The connection broke.
    Vanished,
    /// The peer broke a rule, or kept the server waiting for too long.
    Expelled(Parting),
}

/// Receive buffers that no connection needs: one that has read all it received gives its own back, so those that are idle
/// have none, and those that are busy share a few, which are still in the cache.
#[derive(Default)]
pub(crate) struct Buffers(Vec<Box<[u8]>>);

impl Buffers {
    fn take(&mut self) -> Box<[u8]> {
        self.0.pop().unwrap_or_else(|| vec![0; INPUT_BYTES].into_boxed_slice())
    }

    fn give(&mut self, buffer: Box<[u8]>) {
        if buffer.len() == INPUT_BYTES && self.0.len() < BUFFERS_KEPT_MAX {
            self.0.push(buffer);
        }
    }
}

/// One end of a stream.
pub(crate) struct Link {
    /// The server's connections are counted from 1 on.
    pub number: u64,
    pub peer: Peer,
    /// Why it is closing, or will be when what is in line has gone out.
    pub parting: Option<Parting>,
    socket: OwnedFd,
    channel: Channel,
    /// A receive buffer, only the bytes that are not yet read, or nothing.
    input: Box<[u8]>,
    start: usize,
    end: usize,
    pub output: Output,
    /// Reads that have just been sent.
    released: Vec<(usize, RequestId)>,
    pub readable: bool,
    pub writable: bool,
    /// The peer has closed its side, so a short read does not mean that there is no more to see.
    pub hung_up: bool,
    /// Nothing more will come from the peer.
    pub ended: bool,
    /// What is in line goes out, then it is over.
    pub closing: bool,
    /// When it was made.
    pub accepted: Time,
    /// When the peer last took or gave a byte.
    pub moved: Time,
    /// How it gives what it has announced.
    pub giving: Pace,
    /// How it takes what is in line for it.
    pub taking: Pace,
    /// How long it may do neither.
    stall_max: Nanos,
}

impl Link {
    pub fn new(now: Time, number: u64, socket: OwnedFd, channel: Channel, stall_max: Nanos) -> Link {
        Link {
            number,
            peer: Peer::of(&socket),
            parting: None,
            socket,
            channel,
            input: Box::default(),
            start: 0,
            end: 0,
            output: Output::default(),
            released: Vec::new(),
            readable: true,
            writable: true,
            hung_up: false,
            ended: false,
            closing: false,
            accepted: now,
            moved: now,
            giving: Pace::default(),
            taking: Pace::default(),
            stall_max,
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Where TLS has hands to shake: goes on with that, as far as the peer has come.
    pub fn settle(&mut self, now: Time, secure: &Secure, counters: &Counters) -> Result<(), Over> {
        let moved = self.channel.settle(self.socket.as_fd(), secure, counters)?;
        self.book(now, moved);
        Ok(())
    }

    /// What is in line goes out, then it is over, for the first reason that there was.
    pub fn close_because(&mut self, parting: Parting) {
        self.closing = true;
        self.parting.get_or_insert(parting);
    }

    /// Tells the peer that nothing more comes, where there is a way to.
    pub fn close(&mut self) {
        if let Channel::Secure(secured) = &mut self.channel {
            secured.close(self.socket.as_fd());
        }
    }

    /// What was received and not yet consumed.
    pub fn input(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// The same, and the output beside it.
    pub fn split(&mut self) -> (&[u8], &mut Output) {
        (&self.input[self.start..self.end], &mut self.output)
    }

    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "only what was received is consumed");
        self.start += bytes;
    }

    /// Whether the peer has to take what is in line before there can be more.
    pub fn is_stuck(&self) -> bool {
        (!self.writable && !self.output.is_empty()) || self.output.has_kept()
    }

    /// Notes whether the peer owes payload now, and whether it has to take something.
    pub fn look_at_pace(&mut self, now: Time, owes_payload: bool) {
        self.giving.set_owing(now, owes_payload, self.stall_max);
        self.taking.set_owing(now, !self.output.is_empty(), self.stall_max);
    }

    /// When the peer is late with what it owes.
    pub fn deadline(&self) -> Option<Time> {
        [self.giving.deadline(), self.taking.deadline()].into_iter().flatten().min()
    }

    fn came(&mut self, now: Time, bytes: usize) {
        if bytes > 0 {
            self.moved = now;
            self.giving.moved(now, bytes as u64, self.stall_max);
        }
    }

    /// Moves replies that a slow peer does not take out of their frames; `ended` is told of each read. Returns whether frames
    /// came back.
    pub fn move_replies_aside<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        counters: &Counters,
        mut ended: impl FnMut(u64),
    ) -> bool {
        if !self.output.holds_frames() || self.taking.slow_at().is_none_or(|at| now < at) {
            return false;
        }
        let released = &mut self.released;
        let copied = self.output.move_aside(served, |export, id, length| {
            ended(length);
            released.push((export, id));
        });
        counters.bytes_copied.add(copied);
        counters.bytes_moved_aside.add(copied);
        released.drain(..).for_each(|(export, id)| served[export].release(id));
        true
    }

    /// Gives the receive buffer back if nothing in it is unread.
    pub fn give_back(&mut self, buffers: &mut Buffers) {
        if self.start == self.end && !self.input.is_empty() {
            (self.start, self.end) = (0, 0);
            buffers.give(std::mem::take(&mut self.input));
        }
    }

    /// The same for a few bytes of a message whose rest does not come.
    pub fn set_aside(&mut self, buffers: &mut Buffers) {
        if self.input.len() == INPUT_BYTES && self.input().len() <= REST_BYTES_MAX {
            let rest: Box<[u8]> = self.input().into();
            (self.start, self.end) = (0, rest.len());
            buffers.give(std::mem::replace(&mut self.input, rest));
        }
        if let Channel::Secure(secured) = &mut self.channel
            && self.output.is_empty()
        {
            secured.rest();
        }
    }

    /// Takes what the socket holds, in one system call, or with TLS in one for each record; little of it if a long payload
    /// `is_expected`.
    pub fn receive(&mut self, now: Time, is_expected: bool, buffers: &mut Buffers) -> Result<(), Over> {
        if self.input.len() < INPUT_BYTES {
            let rest = std::mem::replace(&mut self.input, buffers.take());
            let unread = &rest[self.start..self.end];
            self.input[..unread.len()].copy_from_slice(unread);
            (self.start, self.end) = (0, unread.len());
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.input.len() - self.end < INPUT_ROOM_BYTES_MIN {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = (self.input.len() - self.end).min(if is_expected { HEAD_BYTES } else { INPUT_BYTES });
        let free = &mut self.input[self.end..][..room];
        if let Channel::Secure(secured) = &mut self.channel {
            let moved = secured.receive(self.socket.as_fd(), &mut [IoSliceMut::new(free)])?;
            self.end += moved.bytes;
            self.book(now, moved);
            return Ok(());
        }
        let received = rustix::io::read(&self.socket, free);
        self.end += self.received(now, received, room)?;
        Ok(())
    }

    /// A long payload goes from the socket straight to where it belongs: the bytes of request `id` from `from` on, of which
    /// `left` are to come, at least [`DIRECT_BYTES_MIN`]. Returns how many came.
    pub fn receive_into<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut Served<'_, T>,
        id: RequestId,
        from: u64,
        left: u64,
    ) -> Result<u64, Over> {
        if left >= (FRAMES_AT_ONCE * BLOCK_BYTES) as u64 {
            self.receive_frames::<T, FRAMES_AT_ONCE>(now, served, id, from)
        } else {
            self.receive_frames::<T, FRAMES_AT_ONCE_MIN>(now, served, id, from)
        }
    }

    fn receive_frames<T: ServedDrive, const FRAMES: usize>(
        &mut self,
        now: Time,
        served: &mut Served<'_, T>,
        id: RequestId,
        from: u64,
    ) -> Result<u64, Over> {
        let (pieces, room) = served.room::<FRAMES>(id, from);
        let mut slices = pieces.map(IoSliceMut::new);
        if let Channel::Secure(secured) = &mut self.channel {
            let moved = secured.receive(self.socket.as_fd(), &mut slices)?;
            self.book(now, moved);
            return Ok(moved.bytes as u64);
        }
        let received = rustix::io::readv(&self.socket, &mut slices);
        Ok(self.received(now, received, room)? as u64)
    }

    /// Books what a read of the socket gave, which had `room`.
    fn received(&mut self, now: Time, received: rustix::io::Result<usize>, room: usize) -> Result<usize, Over> {
        match received {
            Ok(0) => self.ended = true,
            Ok(bytes) => {
                self.came(now, bytes);
                self.readable = bytes == room || self.hung_up;
                return Ok(bytes);
            }
            Err(Errno::AGAIN) => self.readable = false,
            Err(Errno::INTR) => {}
            Err(_) => return Err(Over::Vanished),
        }
        Ok(0)
    }

    /// The same of what came through TLS, or did not.
    fn book(&mut self, now: Time, Moved { bytes, would_block, ended }: Moved) {
        self.came(now, bytes);
        self.readable &= !would_block;
        self.ended |= ended;
    }

    /// Sends what is in line, in one system call; `ended` is told of each read that is sent to its end. Returns whether
    /// others may go on: frames were given back, or this connection got stuck.
    pub fn send<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        mut ended: impl FnMut(RequestId, u64),
    ) -> Result<bool, Over> {
        let released = &mut self.released;
        let ended = |export, id, length| {
            ended(id, length);
            released.push((export, id));
        };
        let sent = match &mut self.channel {
            Channel::Secure(secured) => self.output.send_secured(secured, self.socket.as_fd(), served, ended),
            Channel::Plain | Channel::Undecided => self.output.send(&self.socket, served, ended),
        };
        let gave_back = !released.is_empty();
        released.drain(..).for_each(|(export, id)| served[export].release(id));
        let sent = sent.map_err(|_| Over::Vanished)?;
        self.writable = sent.takes_more;
        if sent.bytes > 0 {
            self.moved = now;
            self.taking.moved(now, sent.bytes as u64, self.stall_max);
        }
        self.taking.set_owing(now, !self.output.is_empty(), self.stall_max);
        Ok(gave_back || !sent.takes_more)
    }
}
