//! One NBD client: its session, the write it is sending, the replies it is owed.

use std::os::fd::OwnedFd;

use openftl_core::Time;
use openftl_ftl::target::{Durability, Handle, IoError};

use crate::channel::Channel;
use crate::counters::Counters;
use crate::link::{Buffers, DIRECT_BYTES_MIN, INPUT_BYTES, Link, Over};
use crate::served::Served;
use crate::{ServedDrive, ServerConfig, Ticket, What};
use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_nbd::protocol::{Closing, Command, Event, ExportInfo, MESSAGE_BYTES_MAX, Request, Session};
use openftl_nbd::wire::ErrorCode;

const _: () = assert!(INPUT_BYTES > 2 * MESSAGE_BYTES_MAX);

/// Small replies that wait to be sent, in bytes, above which no more requests are taken.
const SMALL_WAITING_BYTES_MAX: usize = 64 << 10;

/// A write whose payload is on its way.
struct Filling {
    id: RequestId,
    length: u64,
    filled: u64,
}

pub(crate) struct NbdConnection {
    pub link: Link,
    session: Session,
    export: Option<usize>,
    filling: Option<Filling>,
    /// A request that waits for frames, a place, or for others of this connection to end.
    held: Option<Request>,
    /// The last request was a long write, and the next may be one.
    is_long_expected: bool,
    /// Admitted requests whose replies are not yet in line, or, for reads, not yet sent.
    requests: usize,
    bytes: u64,
}

impl NbdConnection {
    pub fn new(now: Time, socket: OwnedFd, channel: Channel) -> NbdConnection {
        let mut link = Link::new(now, socket, channel);
        let session = Session::new(&mut link.output.small);
        link.output.seal();
        NbdConnection {
            link,
            session,
            export: None,
            filling: None,
            held: None,
            is_long_expected: false,
            requests: 0,
            bytes: 0,
        }
    }

    pub fn is_shaking_hands(&self) -> bool {
        self.session.is_shaking_hands()
    }

    /// From now on refuse requests; those under way are finished.
    pub fn stop(&mut self) {
        self.session.stop();
    }

    /// Whether nothing is under way: no request, no half-received write, no reply.
    pub fn is_idle(&self) -> bool {
        self.requests == 0 && self.filling.is_none() && self.held.is_none() && self.link.output.is_empty()
    }

    /// Requests that are under way: being received, with the drive, or their data being sent.
    pub fn requests_under_way(&self) -> usize {
        self.requests + usize::from(self.held.is_some())
    }

    /// Whether a request waits for something that other requests give back.
    pub fn is_held_back(&self, config: &ServerConfig) -> bool {
        self.held.is_some() || (!self.link.input().is_empty() && self.filling.is_none() && !self.may_take_more(config))
    }

    /// Whether a turn would move bytes.
    pub fn can_go_on(&self) -> bool {
        (self.link.readable && self.wants_input()) || (self.link.writable && !self.link.output.is_empty())
    }

    /// When the peer has kept the server waiting for too long.
    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        if self.session.is_shaking_hands() {
            return Some(self.link.accepted + config.handshake_max);
        }
        let owes = self.filling.is_some() || self.session.is_skipping() || !self.link.output.is_empty();
        owes.then(|| self.link.moved + config.stall_max)
    }

    /// While whole messages wait in the buffer that cannot be served, the peer's further bytes wait in its socket.
    fn wants_input(&self) -> bool {
        !self.link.ended && !self.link.closing && self.held.is_none() && self.link.input().len() < MESSAGE_BYTES_MAX
    }

    fn may_take_more(&self, config: &ServerConfig) -> bool {
        self.requests < config.requests_max && self.link.output.small_waiting() < SMALL_WAITING_BYTES_MAX
    }

    /// Takes what the socket holds, in one system call.
    pub fn receive<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Result<(), Over> {
        if !self.link.readable || !self.wants_input() {
            return Ok(());
        }
        if config.copies_long_writes {
            return self.link.receive(now, false, buffers);
        }
        match &mut self.filling {
            Some(filling) if filling.length - filling.filled >= DIRECT_BYTES_MIN => {
                let served = &mut served[self.export.expect("a write has an export")];
                let left = filling.length - filling.filled;
                filling.filled += self.link.receive_into(now, served, filling.id, filling.filled, left)?;
                Ok(())
            }
            _ => self.link.receive(now, self.is_long_expected, buffers),
        }
    }

    /// Serves what was received, as far as bounds and frames allow.
    pub fn take_requests<T: ServedDrive>(
        &mut self,
        now: Time,
        ticket: Ticket,
        infos: &[ExportInfo],
        served: &mut [Served<'_, T>],
        config: &ServerConfig,
        counters: &Counters,
    ) -> Result<(), Over> {
        loop {
            if !self.fill(now, served, counters) {
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
            if self.link.closing || !self.may_take_more(config) {
                return Ok(());
            }
            let (input, output) = self.link.split();
            let (consumed, event) = self.session.next(input, infos, &mut output.small);
            output.seal();
            self.link.consume(consumed);
            match event {
                Event::Starved => break,
                Event::Step => {}
                Event::Opened(export) => self.export = Some(export),
                Event::Request(request) => self.held = Some(request),
                Event::Refused(_) => counters.errors.add(1),
                Event::Closed(Closing::Goodbye) => self.link.closing = true,
                Event::Closed(_) => return Err(Over::Expelled),
            }
        }
        if self.link.ended {
            // A write whose payload stops in the middle never happened; replies under way are still sent, because the
            // peer may have closed only its sending side.
            self.abandon(served);
            self.link.closing = true;
        }
        Ok(())
    }

    /// Moves payload from the buffer to the frames of the write that is being filled, and starts it when it is whole.
    /// False while bytes are missing.
    fn fill<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>], counters: &Counters) -> bool {
        let Some(filling) = &mut self.filling else { return true };
        let served = &mut served[self.export.expect("a write has an export")];
        while filling.filled < filling.length && !self.link.input().is_empty() {
            let room = served.slice_mut(filling.id, filling.filled);
            let bytes = room.len().min(self.link.input().len());
            room[..bytes].copy_from_slice(&self.link.input()[..bytes]);
            counters.bytes_copied.add(bytes as u64);
            self.link.consume(bytes);
            filling.filled += bytes as u64;
        }
        if filling.filled < filling.length {
            return false;
        }
        served.start(now, filling.id);
        self.filling = None;
        true
    }

    /// Gives a request its place and frames and starts it, or, if it is a write, begins to fill it. False while there is
    /// not room for it.
    fn admit<T: ServedDrive>(
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
        if self.link.is_stuck() {
            served.waiters.retain(|waiter| *waiter != ticket.slot);
            return false;
        }
        let bytes_max = config.bytes_max.min(served.share_bytes);
        if self.requests > 0 && (self.requests == config.requests_max || self.bytes + payload > bytes_max) {
            return false;
        }
        // Whoever waits for frames is served in turn, or the large requests would wait for ever.
        let is_next = served.waiters.front().is_none_or(|front| *front == ticket.slot);
        ticket.what = What::Nbd { cookie: request.cookie, command: request.command };
        let admitted = if is_next { served.admit(ticket, byte_request(request.command)) } else { None };
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
        self.is_long_expected = matches!(request.command, Command::Write { .. }) && payload >= DIRECT_BYTES_MIN;
        if let Command::Write { length, .. } = request.command {
            self.filling = Some(Filling { id, length: u64::from(length), filled: 0 });
            self.link.moved = now;
        } else {
            served.start(now, id);
        }
        true
    }

    /// Puts the reply to a finished request in line.
    pub fn answer<T: ServedDrive>(
        &mut self,
        now: Time,
        finished: Finished<Ticket>,
        served: &mut [Served<'_, T>],
        counters: &Counters,
    ) {
        let What::Nbd { cookie, command } = finished.ticket.what else {
            unreachable!("what an NBD connection asked for")
        };
        let export = self.export.expect("requests come after the handshake");
        let form = self.session.reply_form();
        if self.link.output.is_empty() {
            self.link.moved = now;
        }
        count(counters, command, finished.result);
        match (finished.result, command) {
            (Ok(()), Command::Read { offset, length }) => {
                form.data_follows(cookie, offset, length, &mut self.link.output.small);
                self.link.output.push_read(export, finished.id, u64::from(length));
                return;
            }
            (Ok(()), _) => form.succeeded(cookie, &mut self.link.output.small),
            (Err(error), _) => {
                form.failed(cookie, error_code(error, command), &error.to_string(), &mut self.link.output.small);
            }
        }
        self.link.output.seal();
        self.requests -= 1;
        self.bytes -= payload_bytes(command);
        served[export].release(finished.id);
    }

    /// Sends replies, in one system call. Returns whether others may go on: frames were given back, or this connection
    /// got stuck and waits for them no more.
    pub fn send<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>]) -> Result<bool, Over> {
        if !self.link.writable || self.link.output.is_empty() {
            return Ok(false);
        }
        let (requests, bytes) = (&mut self.requests, &mut self.bytes);
        self.link.send(now, served, |_, length| {
            *requests -= 1;
            *bytes -= length;
        })
    }

    /// Whether there is nothing left to do for it.
    pub fn is_over(&self) -> bool {
        self.link.closing && self.is_idle()
    }

    /// Gives back what the connection holds. Requests that were started end without it.
    pub fn abandon_all<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) {
        self.abandon(served);
        self.link.output.discard(|export, id| served[export].release(id));
    }

    fn abandon<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) {
        if let Some(filling) = self.filling.take() {
            let served = &mut served[self.export.expect("a write has an export")];
            served.abandon(filling.id);
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
            ByteRequest::Write { offset, length: length.into(), durability: durability(durable), handle: Handle::NONE }
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
        IoError::QueueFull
        | IoError::Unrecovered { .. }
        | IoError::WrongBlock { .. }
        | IoError::Object(_)
        | IoError::Uncorrectable { .. } => ErrorCode::Io,
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
