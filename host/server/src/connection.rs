//! One client: its socket, its session, the write it is sending, the replies it is owed.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

use openftl_core::{BLOCK_BYTES, Nanos, Time};
use openftl_ftl::target::{BlockTarget, Durability, IoError};
use rustix::io::Errno;

use crate::counters::Counters;
use crate::output::Output;
use crate::{Served, ServerConfig, Ticket};
use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_nbd::protocol::{Closing, Command, Event, ExportInfo, MESSAGE_BYTES_MAX, Request, Session};
use openftl_nbd::wire::ErrorCode;

/// Bytes of a receive buffer: a whole queue of 32 writes of 4 KiB, and much more than a handshake message.
const INPUT_BYTES: usize = 256 << 10;

const _: () = assert!(INPUT_BYTES > 2 * MESSAGE_BYTES_MAX);

/// Free room at the buffer's end below which its contents are moved to the front.
const INPUT_ROOM_BYTES_MIN: usize = 64 << 10;

/// Small replies that wait to be sent, in bytes, above which no more requests are taken.
const SMALL_WAITING_BYTES_MAX: usize = 64 << 10;

/// Frames of one vectored read from the socket.
const FRAMES_AT_ONCE: usize = 32;

/// Why a connection is over, when it is not the protocol's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Peer and server have nothing more to say.
    Finished,
    /// The connection broke.
    Vanished,
    /// The peer broke a rule, or kept the server waiting for too long.
    Expelled,
}

/// A write whose payload is on its way.
struct Filling {
    id: RequestId,
    length: u64,
    filled: u64,
}

pub(crate) struct Connection {
    socket: OwnedFd,
    session: Session,
    pub export: Option<usize>,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    filling: Option<Filling>,
    /// A request that waits for frames, a place, or for others of this connection to end.
    held: Option<Request>,
    pub output: Output,
    /// Admitted requests whose replies are not yet in line, or, for reads, not yet sent.
    requests: usize,
    bytes: u64,
    pub readable: bool,
    pub writable: bool,
    /// The peer has closed its side, so a short read does not mean that there is no more to see.
    pub hung_up: bool,
    /// Nothing more will come from the peer.
    ended: bool,
    /// Replies go out, then it is over.
    closing: bool,
    accepted: Time,
    /// When the peer last took or gave a byte.
    moved: Time,
}

impl Connection {
    pub fn new(now: Time, socket: OwnedFd) -> Connection {
        let mut output = Output::default();
        let session = Session::new(&mut output.small);
        output.seal();
        Connection {
            socket,
            session,
            export: None,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            filling: None,
            held: None,
            output,
            requests: 0,
            bytes: 0,
            readable: true,
            writable: true,
            hung_up: false,
            ended: false,
            closing: false,
            accepted: now,
            moved: now,
        }
    }

    pub fn socket(&self) -> impl AsFd + '_ {
        &self.socket
    }

    /// From now on refuse requests; those under way are finished.
    pub fn stop(&mut self) {
        self.session.stop();
    }

    /// Whether nothing is under way: no request, no half-received write, no reply.
    pub fn is_idle(&self) -> bool {
        self.requests == 0 && self.filling.is_none() && self.held.is_none() && self.output.is_empty()
    }

    /// Requests that are under way: being received, with the drive, or their data being sent.
    pub fn requests_under_way(&self) -> usize {
        self.requests + usize::from(self.held.is_some())
    }

    /// Whether a request waits for something that other requests give back.
    pub fn is_held_back(&self, config: &ServerConfig) -> bool {
        self.held.is_some() || (self.start < self.end && self.filling.is_none() && !self.may_take_more(config))
    }

    /// Whether the peer has to take replies before there can be more.
    fn is_stuck(&self) -> bool {
        !self.writable && !self.output.is_empty()
    }

    /// Whether a turn would move bytes.
    pub fn can_go_on(&self) -> bool {
        (self.readable && self.wants_input()) || (self.writable && !self.output.is_empty())
    }

    /// When the peer has kept the server waiting for too long.
    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        if self.session.is_shaking_hands() {
            return Some(self.accepted + config.handshake_max);
        }
        let owes = self.filling.is_some() || self.session.is_skipping() || !self.output.is_empty();
        owes.then(|| self.moved + config.stall_max)
    }

    /// While whole messages wait in the buffer that cannot be served, the peer's further bytes wait in its socket.
    fn wants_input(&self) -> bool {
        !self.ended && !self.closing && self.held.is_none() && self.end - self.start < MESSAGE_BYTES_MAX
    }

    fn may_take_more(&self, config: &ServerConfig) -> bool {
        self.requests < config.requests_max && self.output.small_waiting() < SMALL_WAITING_BYTES_MAX
    }

    /// Takes what the socket holds, in one system call.
    pub fn receive<T: BlockTarget>(&mut self, now: Time, served: &mut [Served<'_, T>]) -> Result<(), Over> {
        if !self.readable || !self.wants_input() {
            return Ok(());
        }
        let direct = self
            .filling
            .as_ref()
            .is_some_and(|filling| filling.length - filling.filled >= (FRAMES_AT_ONCE * BLOCK_BYTES) as u64);
        let received = if direct { self.receive_into_frames(served) } else { self.receive_into_buffer() };
        match received {
            Ok((0, _)) => self.ended = true,
            Ok((bytes, room)) => {
                self.moved = now;
                self.readable = bytes == room || self.hung_up;
            }
            Err(Errno::AGAIN) => self.readable = false,
            Err(Errno::INTR) => {}
            Err(_) => return Err(Over::Vanished),
        }
        Ok(())
    }

    /// Returns bytes received and bytes asked for.
    fn receive_into_buffer(&mut self) -> rustix::io::Result<(usize, usize)> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.input.len() - self.end < INPUT_ROOM_BYTES_MIN {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.input.len() - self.end;
        let bytes = rustix::io::read(&self.socket, &mut self.input[self.end..])?;
        self.end += bytes;
        Ok((bytes, room))
    }

    /// A long payload goes from the socket straight to where it belongs.
    fn receive_into_frames<T: BlockTarget>(
        &mut self,
        served: &mut [Served<'_, T>],
    ) -> rustix::io::Result<(usize, usize)> {
        let served = &mut served[self.export.expect("a write has an export")];
        let filling = self.filling.as_mut().expect("only a write is received into frames");
        let mut from = filling.filled;
        let mut ranges: [_; FRAMES_AT_ONCE] = std::array::from_fn(|_| 0..0);
        let frames = std::array::from_fn(|index| {
            let (frame, range) = served.requests.place(filling.id, from);
            from += range.len() as u64;
            ranges[index] = range;
            frame
        });
        let mut ranges = ranges.into_iter();
        let mut slices = served
            .target
            .frames()
            .bytes_disjoint_mut::<FRAMES_AT_ONCE>(frames)
            .map(|bytes| IoSliceMut::new(&mut bytes[ranges.next().expect("as many ranges as frames")]));
        let room = (from - filling.filled) as usize;
        let bytes = rustix::io::readv(&self.socket, &mut slices)?;
        filling.filled += bytes as u64;
        Ok((bytes, room))
    }

    /// Serves what was received, as far as bounds and frames allow.
    pub fn take_requests<T: BlockTarget>(
        &mut self,
        now: Time,
        ticket: Ticket,
        infos: &[ExportInfo],
        served: &mut [Served<'_, T>],
        config: &ServerConfig,
        counters: &Counters,
    ) -> Result<(), Over> {
        loop {
            if !self.fill(now, served) {
                break;
            }
            if let Some(request) = self.held.take()
                && !self.admit(now, request, ticket, served, config)
            {
                self.held = Some(request);
                return Ok(());
            }
            if self.filling.is_some() {
                continue;
            }
            if self.closing || !self.may_take_more(config) {
                return Ok(());
            }
            let input = &self.input[self.start..self.end];
            let (consumed, event) = self.session.next(input, infos, &mut self.output.small);
            self.output.seal();
            self.start += consumed;
            match event {
                Event::Starved => break,
                Event::Step => {}
                Event::Opened(export) => self.export = Some(export),
                Event::Request(request) => self.held = Some(request),
                Event::Refused(_) => counters.errors.add(1),
                Event::Closed(Closing::Goodbye) => self.closing = true,
                Event::Closed(_) => return Err(Over::Expelled),
            }
        }
        if self.ended {
            // A write whose payload stops in the middle never happened; replies under way are still sent, because the
            // peer may have closed only its sending side.
            self.abandon(served);
            self.closing = true;
        }
        Ok(())
    }

    /// Moves payload from the buffer to the frames of the write that is being filled, and starts it when it is whole.
    /// False while bytes are missing.
    fn fill<T: BlockTarget>(&mut self, now: Time, served: &mut [Served<'_, T>]) -> bool {
        let Some(filling) = &mut self.filling else { return true };
        let served = &mut served[self.export.expect("a write has an export")];
        while filling.filled < filling.length && self.start < self.end {
            let room = served.requests.slice_mut(served.target.frames(), filling.id, filling.filled);
            let bytes = room.len().min(self.end - self.start);
            room[..bytes].copy_from_slice(&self.input[self.start..self.start + bytes]);
            self.start += bytes;
            filling.filled += bytes as u64;
        }
        if filling.filled < filling.length {
            return false;
        }
        served.requests.start(now, served.target, filling.id);
        self.filling = None;
        true
    }

    /// Gives a request its place and frames and starts it, or, if it is a write, begins to fill it. False while there is
    /// not room for it.
    fn admit<T: BlockTarget>(
        &mut self,
        now: Time,
        request: Request,
        mut ticket: Ticket,
        served: &mut [Served<'_, T>],
        config: &ServerConfig,
    ) -> bool {
        let served = &mut served[self.export.expect("requests come after the handshake")];
        let payload = payload_bytes(request.command);
        // Who does not take its replies gets nothing more to hold.
        if self.is_stuck() {
            served.waiters.retain(|waiter| *waiter != ticket.slot);
            return false;
        }
        let bytes_max = config.bytes_max.min(served.share_bytes);
        if self.requests > 0 && (self.requests == config.requests_max || self.bytes + payload > bytes_max) {
            return false;
        }
        // Whoever waits for frames is served in turn, or the large requests would wait for ever.
        let is_next = served.waiters.front().is_none_or(|front| *front == ticket.slot);
        ticket.cookie = request.cookie;
        ticket.command = request.command;
        let admitted = if is_next {
            served.requests.admit(served.target.frames(), ticket, byte_request(request.command))
        } else {
            None
        };
        let Some(id) = admitted else {
            if !served.waiters.contains(&ticket.slot) {
                served.waiters.push_back(ticket.slot);
            }
            return false;
        };
        if served.waiters.front() == Some(&ticket.slot) {
            served.waiters.pop_front();
        }
        self.requests += 1;
        self.bytes += payload;
        if let Command::Write { length, .. } = request.command {
            self.filling = Some(Filling { id, length: u64::from(length), filled: 0 });
            self.moved = now;
        } else {
            served.requests.start(now, served.target, id);
        }
        true
    }

    /// Puts the reply to a finished request in line.
    pub fn answer<T: BlockTarget>(
        &mut self,
        now: Time,
        finished: Finished<Ticket>,
        served: &mut Served<'_, T>,
        counters: &Counters,
    ) {
        let Ticket { cookie, command, .. } = finished.ticket;
        let form = self.session.reply_form();
        if self.output.is_empty() {
            self.moved = now;
        }
        count(counters, command, finished.result);
        match (finished.result, command) {
            (Ok(()), Command::Read { offset, length }) => {
                form.data_follows(cookie, offset, length, &mut self.output.small);
                self.output.push_read(finished.id, u64::from(length));
                return;
            }
            (Ok(()), _) => form.succeeded(cookie, &mut self.output.small),
            (Err(error), _) => {
                form.failed(cookie, error_code(error, command), &error.to_string(), &mut self.output.small);
            }
        }
        self.output.seal();
        self.requests -= 1;
        self.bytes -= payload_bytes(command);
        served.requests.release(served.target.frames(), finished.id);
    }

    /// Sends replies, in one system call. Returns whether others may go on: frames were given back, or this connection
    /// got stuck and waits for them no more.
    pub fn send<T: BlockTarget>(&mut self, now: Time, served: &mut [Served<'_, T>]) -> Result<bool, Over> {
        if !self.writable || self.output.is_empty() {
            return Ok(false);
        }
        let Some(export) = self.export else {
            // The handshake sends no frames, but the types want a drive to send them from.
            return self.send_from(now, &mut served[0]);
        };
        self.send_from(now, &mut served[export])
    }

    fn send_from<T: BlockTarget>(&mut self, now: Time, served: &mut Served<'_, T>) -> Result<bool, Over> {
        let Served { target, requests, released, .. } = served;
        let (in_flight, bytes) = (&mut self.requests, &mut self.bytes);
        let sent = self.output.send(&self.socket, target.frames(), requests, |id, length| {
            *in_flight -= 1;
            *bytes -= length;
            released.push(id);
        });
        let gave_back = !released.is_empty();
        released.drain(..).for_each(|id| requests.release(target.frames(), id));
        match sent {
            Ok(sent) => {
                self.writable = sent.takes_more;
                if sent.bytes > 0 {
                    self.moved = now;
                }
                Ok(gave_back || !sent.takes_more)
            }
            Err(_) => Err(Over::Vanished),
        }
    }

    /// Whether there is nothing left to do for it.
    pub fn is_over(&self) -> bool {
        self.closing && self.is_idle()
    }

    /// Gives back what the connection holds. Requests that were started end without it.
    pub fn abandon_all<T: BlockTarget>(&mut self, served: &mut [Served<'_, T>]) {
        self.abandon(served);
        let Some(export) = self.export else { return };
        let Served { target, requests, .. } = &mut served[export];
        self.output.discard(|id, _| requests.release(target.frames(), id));
    }

    fn abandon<T: BlockTarget>(&mut self, served: &mut [Served<'_, T>]) {
        if let Some(filling) = self.filling.take() {
            let served = &mut served[self.export.expect("a write has an export")];
            served.requests.abandon(served.target.frames(), filling.id);
            self.requests -= 1;
            self.bytes -= filling.length;
        }
    }
}

/// Bytes of frames that a request holds, more or less.
fn payload_bytes(command: Command) -> u64 {
    match command {
        Command::Read { length, .. } | Command::Write { length, .. } => u64::from(length),
        Command::Trim { .. } | Command::Zero { .. } | Command::Flush => 0,
    }
}

fn byte_request(command: Command) -> ByteRequest {
    let durability = |durable| if durable { Durability::Durable } else { Durability::Volatile };
    match command {
        Command::Read { offset, length } => ByteRequest::Read { offset, length: length.into() },
        Command::Write { offset, length, durable } => {
            ByteRequest::Write { offset, length: length.into(), durability: durability(durable) }
        }
        Command::Trim { offset, length, durable } => {
            ByteRequest::Trim { offset, length: length.into(), durability: durability(durable) }
        }
        Command::Zero { offset, length, durable } => {
            ByteRequest::Zero { offset, length: length.into(), durability: durability(durable) }
        }
        Command::Flush => ByteRequest::Flush,
    }
}

fn error_code(error: IoError, command: Command) -> ErrorCode {
    match error {
        IoError::ReadOnly => ErrorCode::NotPermitted,
        IoError::OutOfRange { .. } => match command {
            Command::Write { .. } | Command::Zero { .. } => ErrorCode::NoSpace,
            _ => ErrorCode::Invalid,
        },
        IoError::QueueFull | IoError::Unrecovered { .. } | IoError::WrongBlock { .. } => ErrorCode::Io,
    }
}

fn count(counters: &Counters, command: Command, result: Result<(), IoError>) {
    let (counter, bytes) = match command {
        Command::Read { length, .. } => (&counters.reads, Some((&counters.bytes_read, length))),
        Command::Write { length, .. } => (&counters.writes, Some((&counters.bytes_written, length))),
        Command::Trim { .. } | Command::Zero { .. } => (&counters.trims, None),
        Command::Flush => (&counters.flushes, None),
    };
    counter.add(1);
    match (result, bytes) {
        (Ok(()), Some((counter, bytes))) => counter.add(bytes.into()),
        (Ok(()), None) => {}
        (Err(_), _) => counters.errors.add(1),
    }
}

/// Bounds that are spans of time, by default.
pub(crate) const HANDSHAKE_MAX: Nanos = Nanos::from_millis(10_000);
pub(crate) const STALL_MAX: Nanos = Nanos::from_millis(30_000);
