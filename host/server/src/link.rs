//! A socket, what has been received on it and not yet looked at, and what is to be sent.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use openftl_bytes::RequestId;
use openftl_core::{BLOCK_BYTES, Nanos, Time};
use openftl_nvme_auth::PskIdentity;

use crate::channel::{Channel, Secured};
use crate::output::Output;
use crate::pace::Pace;
use crate::parting::Parting;
use crate::peer::Peer;
use crate::reactors::{Party, Reactors};
use crate::secure::Secure;
use crate::served::Served;
use crate::transfer::{self, Load, Moved, Parcel, Room, Transfer};
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

/// With TLS a byte is so many times as much work.
const WORK_OF_TLS: usize = 4;

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

    pub fn give(&mut self, buffer: Box<[u8]>) {
        if buffer.len() == INPUT_BYTES && self.0.len() < BUFFERS_KEPT_MAX {
            self.0.push(buffer);
        }
    }
}

/// Who moves the bytes of a connection.
pub(crate) struct Movers<'m> {
    pub buffers: &'m mut Buffers,
    pub reactors: &'m mut Reactors,
    pub party: Party,
}

/// One end of a stream.
pub(crate) struct Link {
    /// The server's connections are counted from 1 on.
    pub number: u64,
    pub peer: Peer,
    /// Why it is closing, or will be when what is in line has gone out.
    pub parting: Option<Parting>,
    socket: Arc<OwnedFd>,
    channel: Channel,
    /// Who the peer has shown to be with TLS.
    shown: Option<PskIdentity>,
    /// A receive buffer, only the bytes that are not yet read, or nothing.
    input: Box<[u8]>,
    start: usize,
    end: usize,
    pub output: Output,
    /// Reads that have just been sent.
    released: Vec<(usize, RequestId)>,
    readable: bool,
    writable: bool,
    /// Which reactor makes its transfers, since there was much to move.
    pub reactor: Option<usize>,
    /// A reactor has the receive buffer, and fills it.
    is_receiving: bool,
    /// It has come back and was not looked at.
    has_come: bool,
    /// A reactor has what is next in line, and sends it.
    is_sending: bool,
    /// The system has said so since the last transfer in this direction began.
    is_readable_again: bool,
    is_writable_again: bool,
    /// Bytes that came with the last transfer, which the next is likely to bring as well.
    came_last: usize,
    /// Emptied, for the next transfers.
    parcel: Parcel,
    rooms: Vec<Room>,
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
            socket: Arc::new(socket),
            channel,
            shown: None,
            input: Box::default(),
            start: 0,
            end: 0,
            output: Output::default(),
            released: Vec::new(),
            readable: true,
            writable: true,
            reactor: None,
            is_receiving: false,
            has_come: false,
            is_sending: false,
            is_readable_again: false,
            is_writable_again: false,
            came_last: 0,
            parcel: Parcel::default(),
            rooms: Vec::new(),
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
        self.is_readable_again = false;
        let moved = self.channel.settle(self.socket.as_fd(), secure, counters)?;
        self.book_received(now, moved);
        if self.channel.is_settled() {
            self.shown = self.channel.secured().and_then(|secured| secured.shown().cloned());
        }
        Ok(())
    }

    /// Who the peer has shown to be.
    pub fn shown(&self) -> Option<&PskIdentity> {
        self.shown.as_ref()
    }

    /// The system says what the socket has, or has room for.
    pub fn announce(&mut self, hung_up: bool, readable: bool, writable: bool) {
        self.hung_up |= hung_up;
        self.readable |= readable;
        self.writable |= writable;
        self.is_readable_again |= readable;
        self.is_writable_again |= writable;
    }

    /// Whether the socket may have something to receive.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether that may be received now.
    pub fn may_receive(&self) -> bool {
        self.readable && !self.is_receiving && !self.is_lent()
    }

    /// Whether something is in line that may be sent now.
    pub fn may_send(&self) -> bool {
        self.writable && !self.output.is_empty() && !self.is_sending && !self.is_lent()
    }

    /// Whether a reactor has its receive buffer: what was received will be looked at when it is back.
    pub fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    /// Whether a reactor has brought something that was not looked at; it is from now on.
    pub fn has_come(&mut self) -> bool {
        std::mem::take(&mut self.has_come)
    }

    /// Whether a reactor has the session of TLS, which either direction needs.
    fn is_lent(&self) -> bool {
        matches!(self.channel, Channel::Lent)
    }

    /// What is in line goes out, then it is over, for the first reason that there was.
    pub fn close_because(&mut self, parting: Parting) {
        self.closing = true;
        self.parting.get_or_insert(parting);
    }

    /// Tells the peer that nothing more comes, where there is a way to.
    pub fn close(&mut self) {
        if let Some(secured) = self.channel.secured() {
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

    /// Moves replies that a slow peer does not take out of their frames; `ended` is told of each read. Returns whether frames
    /// came back.
    pub fn move_replies_aside<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        counters: &Counters,
        mut ended: impl FnMut(u64),
    ) -> bool {
        if !self.output.holds_frames() || self.is_sending || self.taking.slow_at().is_none_or(|at| now < at) {
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
        if !self.output.is_empty() {
            return;
        }
        (self.parcel, self.rooms) = (Parcel::default(), Vec::new());
        if let Some(secured) = self.channel.secured() {
            secured.rest();
        }
    }

    /// Takes what the socket holds, in one system call, or with TLS in one for each record; little of it if a long payload
    /// `is_expected`. Where a reactor does that, it has come when the [buffer is back](Link::is_receiving).
    pub fn receive(&mut self, now: Time, is_expected: bool, movers: &mut Movers<'_>) -> Result<(), Over> {
        if self.input.len() < INPUT_BYTES {
            let rest = std::mem::replace(&mut self.input, movers.buffers.take());
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
        self.is_readable_again = false;
        if self.is_for_reactor(self.came_last, movers) {
            let (start, room) = (self.start, self.end..self.end + room);
            (self.start, self.end, self.is_receiving) = (0, 0, true);
            let buffer = std::mem::take(&mut self.input);
            self.give(now, movers, Load::Received { buffer, start, room });
            return Ok(());
        }
        let free = &mut self.input[self.end..][..room];
        let moved = transfer::receive(self.socket.as_fd(), self.channel.secured(), &mut [IoSliceMut::new(free)])?;
        self.end += moved.bytes;
        self.came_last = moved.bytes;
        self.book_received(now, moved);
        Ok(())
    }

    /// Whether a reactor is to move so many bytes.
    pub fn is_for_reactor(&mut self, bytes: usize, movers: &mut Movers<'_>) -> bool {
        let is_secure = matches!(self.channel, Channel::Secure(_));
        let work = if is_secure { bytes * WORK_OF_TLS } else { bytes };
        movers.reactors.take_on(&mut self.reactor, work)
    }

    /// Has its reactor make a transfer.
    fn give(&mut self, began: Time, movers: &mut Movers<'_>, load: Load) {
        let transfer = Transfer { began, load, secured: self.channel.lend() };
        let reactor = self.reactor.expect("it has taken it on");
        movers.reactors.give(movers.party, reactor, Arc::clone(&self.socket), transfer);
    }

    /// TLS is back from a transfer.
    pub fn take_back(&mut self, secured: Option<Box<Secured>>) {
        if let Some(secured) = secured {
            self.channel = Channel::Secure(secured);
        }
    }

    /// The receive buffer is back, with what came behind `start..end`.
    pub fn take_input(&mut self, now: Time, input: Box<[u8]>, unread: std::ops::Range<usize>, moved: Moved) {
        assert!(self.is_receiving, "a buffer is taken back once");
        (self.is_receiving, self.has_come) = (false, true);
        self.input = input;
        (self.start, self.end) = (unread.start, unread.end + moved.bytes);
        self.came_last = moved.bytes;
        self.book_received(now, moved);
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

    /// Has a reactor do the same, for as many bytes as it fits: it has come when the pages are [back](Link::take_rooms).
    pub fn have_received_into<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut Served<'_, T>,
        (id, from, left): (RequestId, u64, u64),
        movers: &mut Movers<'_>,
    ) {
        self.is_readable_again = false;
        self.is_receiving = true;
        let mut rooms = std::mem::take(&mut self.rooms);
        served.lend(id, from, left, FRAMES_AT_ONCE, &mut rooms);
        self.give(now, movers, Load::Filled(rooms));
    }

    /// The pages are back; they are where they belong again, or are not needed any more.
    pub fn take_rooms(&mut self, now: Time, mut rooms: Vec<Room>, moved: Moved) {
        assert!(self.is_receiving, "pages are taken back once");
        (self.is_receiving, self.has_come) = (false, true);
        rooms.clear();
        self.rooms = rooms;
        self.book_received(now, moved);
    }

    fn receive_frames<T: ServedDrive, const FRAMES: usize>(
        &mut self,
        now: Time,
        served: &mut Served<'_, T>,
        id: RequestId,
        from: u64,
    ) -> Result<u64, Over> {
        let mut slices = served.room::<FRAMES>(id, from).map(IoSliceMut::new);
        self.is_readable_again = false;
        let moved = transfer::receive(self.socket.as_fd(), self.channel.secured(), &mut slices)?;
        self.book_received(now, moved);
        Ok(moved.bytes as u64)
    }

    /// Books what the socket gave.
    fn book_received(&mut self, now: Time, moved: Moved) {
        if moved.bytes > 0 {
            self.moved = now;
            self.giving.moved(now, moved.bytes as u64, self.stall_max);
        }
        if moved.would_block || (moved.is_short && !self.hung_up) {
            self.readable = std::mem::take(&mut self.is_readable_again);
        }
        self.ended |= moved.ended;
    }

    /// Sends what is in line, in one system call; `ended` is told of each read that is sent to its end. Returns whether
    /// others may go on: frames were given back, or this connection got stuck. Where a reactor sends it, [`Link::sent`] does so.
    pub fn send<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        movers: &mut Movers<'_>,
        ended: impl FnMut(RequestId, u64),
    ) -> Result<bool, Over> {
        self.is_writable_again = false;
        // What was moved out of its frames is that of a slow peer: it is not copied again.
        let may_go = movers.reactors.is_any() && !self.output.has_kept();
        if may_go && self.is_for_reactor(self.output.bytes_at_once(), movers) {
            let mut parcel = std::mem::take(&mut self.parcel);
            self.output.pack(served, &mut parcel);
            self.is_sending = true;
            self.taking.set_owing(now, true, self.stall_max);
            self.give(now, movers, Load::Sent(parcel));
            return Ok(false);
        }
        let released = &mut self.released;
        let ended = note_released(released, ended);
        let sent = self.output.send(self.socket.as_fd(), self.channel.secured(), served, ended);
        self.book_sent(now, served, sent)
    }

    /// A reactor has sent what was in `parcel`, or a part of it. The same is told and returned.
    pub fn sent<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        parcel: Parcel,
        moved: Moved,
        ended: impl FnMut(RequestId, u64),
    ) -> Result<bool, Over> {
        assert!(self.is_sending, "a parcel is sent once");
        self.is_sending = false;
        self.parcel = parcel;
        self.output.advance(moved.bytes as u64, note_released(&mut self.released, ended));
        self.book_sent(now, served, Ok(moved))
    }

    fn book_sent<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        sent: Result<Moved, Over>,
    ) -> Result<bool, Over> {
        let gave_back = !self.released.is_empty();
        self.released.drain(..).for_each(|(export, id)| served[export].release(id));
        let moved = sent?;
        let takes_more = !moved.would_block && !moved.is_short;
        self.writable = takes_more || std::mem::take(&mut self.is_writable_again);
        if moved.bytes > 0 {
            self.moved = now;
            self.taking.moved(now, moved.bytes as u64, self.stall_max);
        }
        self.taking.set_owing(now, !self.output.is_empty(), self.stall_max);
        Ok(gave_back || !takes_more)
    }
}

/// Notes each read that was sent to its end, and tells `ended` of it.
fn note_released(
    released: &mut Vec<(usize, RequestId)>,
    mut ended: impl FnMut(RequestId, u64),
) -> impl FnMut(usize, RequestId, u64) {
    move |export, id, length| {
        ended(id, length);
        released.push((export, id));
    }
}
