//! One NBD client: its session, the write it is sending, the replies it is owed.
//!
//! ```text
//!   short write   waits in the receive buffer until it is whole ──▶ frames ──▶ drive
//!   long write    frames ── data from the socket into them ──▶ drive
//!                    └─ the client is slow and others wait ──▶ memory ── whole ──▶ frames ──▶ drive
//! ```

use openftl_core::Time;
use openftl_parts::target::{AppendError, Durability, IoError};
use openftl_parts::words::Handle;

use crate::accounts::Claim;
use crate::counters::Counters;
use crate::link::{DIRECT_BYTES_MIN, INPUT_BYTES, Link, Movers, Over};
use crate::parting::Parting;
use crate::served::Served;
use crate::ticket::{Ticket, What};
use crate::transfer::{Moved, Room};
use crate::{Protocol, ServedDrive, ServerConfig};
use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_nbd::protocol::{Closing, Command, Event, ExportInfo, MESSAGE_BYTES_MAX, Request, Session};
use openftl_nbd::wire::ErrorCode;
use tracing::{debug, info, trace};

const _: () = assert!(INPUT_BYTES > 2 * MESSAGE_BYTES_MAX);

/// Small replies that wait to be sent, in bytes, above which no more requests are taken.
const SMALL_WAITING_BYTES_MAX: usize = 64 << 10;

/// The least that memory for slow payload grows by.
const ASIDE_BYTES_MIN: usize = 64 << 10;

/// Where the payload of a write is put.
enum Place {
    /// The frames of this request.
    Frames(RequestId),
    /// Memory of the connection: what has come so far.
    Aside(Vec<u8>),
}

/// A write whose payload is on its way.
struct Filling {
    request: Request,
    place: Place,
    length: u64,
    filled: u64,
}

/// A request that waits for frames, a place, the rest of a short payload, or for others of this connection to end.
struct Held {
    request: Request,
    /// All the payload of a write that came slowly; otherwise nothing.
    aside: Vec<u8>,
}

impl Held {
    /// Whether nothing of it is still to come.
    fn is_whole(&self) -> bool {
        !matches!(self.request.command, Command::Write { .. }) || !self.aside.is_empty()
    }

    /// The bytes that have to be in the receive buffer before it gets frames.
    fn awaited(&self) -> usize {
        match self.request.command {
            Command::Write { length, .. } if u64::from(length) < DIRECT_BYTES_MIN && self.aside.is_empty() => {
                length as usize
            }
            _ => 0,
        }
    }
}

pub(crate) struct NbdConnection {
    pub link: Link,
    session: Session,
    export: Option<usize>,
    filling: Option<Filling>,
    held: Option<Held>,
    /// The last request was a long write, and the next may be one.
    is_long_expected: bool,
    /// Admitted requests whose replies are not yet in line, or, for reads, not yet sent.
    pub requests: usize,
    pub bytes: u64,
}

impl NbdConnection {
    pub fn new(mut link: Link) -> NbdConnection {
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
        let waits = |held: &Held| held.awaited() <= self.link.input().len();
        self.held.as_ref().is_some_and(waits)
            || (!self.link.input().is_empty() && self.filling.is_none() && !self.may_take_more(config))
    }

    /// Whether a turn would move bytes.
    pub fn can_go_on(&self) -> bool {
        (self.link.may_receive() && self.wants_input()) || self.link.may_send()
    }

    /// When the peer has kept the server waiting for too long.
    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        if self.session.is_shaking_hands() {
            return Some(self.link.accepted + config.handshake_max);
        }
        self.link.deadline()
    }

    /// From when on others do not wait for the frames that the client's payload or replies lie in.
    pub fn slow_at(&self) -> Option<Time> {
        let fills = matches!(&self.filling, Some(Filling { place: Place::Frames(_), .. }));
        let giving = self.link.giving.slow_at().filter(|_| fills);
        let taking = self.link.taking.slow_at().filter(|_| self.link.output.holds_frames());
        [giving, taking].into_iter().flatten().min()
    }

    /// Moves payload out of frames, if the client is slow. Returns whether frames came back.
    pub fn move_aside<T: ServedDrive>(&mut self, now: Time, served: &mut [Served<'_, T>], counters: &Counters) -> bool {
        let (requests, bytes) = (&mut self.requests, &mut self.bytes);
        let mut gave_back = self.link.move_replies_aside(now, served, counters, |length| {
            *requests -= 1;
            *bytes -= length;
        });
        if let Some(filling) = &mut self.filling
            && let Place::Frames(id) = filling.place
            && !self.link.is_receiving()
            && self.link.giving.slow_at().is_some_and(|at| now >= at)
        {
            let served = &mut served[self.export.expect("a write has an export")];
            let mut aside = Vec::with_capacity(filling.filled as usize);
            while (aside.len() as u64) < filling.filled {
                let left = filling.filled as usize - aside.len();
                let slice = served.slice(id, aside.len() as u64);
                aside.extend_from_slice(&slice[..slice.len().min(left)]);
            }
            counters.bytes_copied.add(filling.filled);
            counters.bytes_moved_aside.add(filling.filled);
            filling.place = Place::Aside(aside);
            served.abandon(id);
            self.requests -= 1;
            self.bytes -= filling.length;
            gave_back = true;
        }
        gave_back
    }

    /// Memory that the client keeps by being slow.
    pub fn kept_bytes(&self) -> usize {
        let filling = match &self.filling {
            Some(Filling { place: Place::Aside(aside), .. }) => aside.capacity(),
            _ => 0,
        };
        filling + self.held.as_ref().map_or(0, |held| held.aside.capacity()) + self.link.output.memory()
    }

    /// While whole messages wait in the buffer that cannot be served, the peer's further bytes wait in its socket.
    fn wants_input(&self) -> bool {
        let room = match &self.held {
            None => MESSAGE_BYTES_MAX,
            Some(held) => held.awaited(),
        };
        !self.link.ended && !self.link.closing && self.link.input().len() < room
    }

    fn may_take_more(&self, config: &ServerConfig) -> bool {
        self.requests < config.requests_max && self.link.output.small_waiting() < SMALL_WAITING_BYTES_MAX
    }

    /// Takes what the socket holds, in one system call.
    pub fn receive<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        movers: &mut Movers<'_>,
        config: &ServerConfig,
    ) -> Result<(), Over> {
        if !self.link.may_receive() || !self.wants_input() {
            return Ok(());
        }
        if config.copies_long_writes {
            return self.link.receive(now, false, movers);
        }
        match &mut self.filling {
            Some(Filling { place: Place::Frames(id), length, filled, .. }) if *length - *filled >= DIRECT_BYTES_MIN => {
                let served = &mut served[self.export.expect("a write has an export")];
                let left = *length - *filled;
                if self.link.is_for_reactor(left as usize, movers) {
                    self.link.have_received_into(now, served, (*id, *filled, left), movers);
                    return Ok(());
                }
                *filled += self.link.receive_into(now, served, *id, *filled, left)?;
                Ok(())
            }
            _ => self.link.receive(now, self.is_long_expected && self.held.is_none(), movers),
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
        let result = self.take_requests_until_starved(now, ticket, infos, served, config, counters);
        let is_awaiting = self.held.as_ref().is_some_and(|held| held.awaited() > self.link.input().len());
        let owes_payload = self.filling.is_some() || is_awaiting || self.session.is_skipping();
        self.link.look_at_pace(now, owes_payload);
        result
    }

    fn take_requests_until_starved<T: ServedDrive>(
        &mut self,
        now: Time,
        ticket: Ticket,
        infos: &[ExportInfo],
        served: &mut [Served<'_, T>],
        config: &ServerConfig,
        counters: &Counters,
    ) -> Result<(), Over> {
        loop {
            if !self.fill(now, infos, served, counters) {
                break;
            }
            if let Some(held) = self.held.take() {
                if held.is_whole() && self.refuse_if_reserved(held.request, infos, counters) {
                    served[self.export.expect("a request has an export")].stop_waiting(ticket.slot);
                    continue;
                }
                let is_starved = held.awaited() > self.link.input().len();
                if is_starved || !self.admit(now, &held, ticket, served, config, counters) {
                    self.held = Some(held);
                    if is_starved {
                        break;
                    }
                    return Ok(());
                }
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
                Event::Opened(export) => {
                    self.export = Some(export);
                    let (connection, peer) = (self.link.number, self.link.peer);
                    info!(target: "connection", connection, %peer, protocol = %Protocol::Nbd, export = infos[export].name, "connection opened");
                }
                Event::Request(request) => self.held = Some(Held { request, aside: Vec::new() }),
                Event::Refused(error) => self.count_refused(error, counters),
                Event::Closed(goodbye @ Closing::Goodbye) => self.link.close_because(Parting::Nbd(goodbye)),
                Event::Closed(rule) => return Err(Over::Expelled(Parting::Nbd(rule))),
            }
        }
        if self.link.ended {
            // A write whose payload stops in the middle never happened; replies under way are still sent, because the
            // peer may have closed only its sending side.
            self.abandon(served);
            self.held = None;
            self.link.close_because(Parting::HungUp);
        }
        Ok(())
    }

    fn count_refused(&self, error: ErrorCode, counters: &Counters) {
        counters.errors.add(1);
        debug!(target: "nbd", connection = self.link.number, peer = %self.link.peer, ?error, "request refused");
    }

    /// Refuses a request that is about to start if another client's reservation has overtaken it. Returns whether it has.
    fn refuse_if_reserved(&mut self, request: Request, infos: &[ExportInfo], counters: &Counters) -> bool {
        let info = &infos[self.export.expect("requests come after the handshake")];
        let Some(error) = self.session.refuse_if_reserved(request, info, &mut self.link.output.small) else {
            return false;
        };
        self.link.output.seal();
        self.count_refused(error, counters);
        true
    }

    /// Moves payload from the buffer to where that of the write belongs. When it is whole, the write starts, waits for
    /// frames, or is refused. False while bytes are missing.
    fn fill<T: ServedDrive>(
        &mut self,
        now: Time,
        infos: &[ExportInfo],
        served: &mut [Served<'_, T>],
        counters: &Counters,
    ) -> bool {
        let Some(filling) = &mut self.filling else { return true };
        let export = self.export.expect("a write has an export");
        while filling.filled < filling.length && !self.link.input().is_empty() {
            let left = (filling.length - filling.filled) as usize;
            let bytes = match &mut filling.place {
                Place::Frames(id) => {
                    let room = served[export].slice_mut(*id, filling.filled);
                    let bytes = room.len().min(self.link.input().len());
                    room[..bytes].copy_from_slice(&self.link.input()[..bytes]);
                    bytes
                }
                Place::Aside(aside) => {
                    let bytes = left.min(self.link.input().len());
                    if aside.capacity() - aside.len() < bytes {
                        aside.reserve_exact(left.min(aside.len().max(ASIDE_BYTES_MIN).max(bytes)));
                    }
                    aside.extend_from_slice(&self.link.input()[..bytes]);
                    bytes
                }
            };
            counters.bytes_copied.add(bytes as u64);
            self.link.consume(bytes);
            filling.filled += bytes as u64;
        }
        if filling.filled < filling.length {
            return false;
        }
        self.link.giving.finish_one();
        let request = filling.request;
        if self.refuse_if_reserved(request, infos, counters) {
            self.abandon(served);
            return true;
        }
        let filling = self.filling.take().expect("it was looked at above");
        match filling.place {
            Place::Frames(id) => served[export].start(now, id),
            Place::Aside(aside) => self.held = Some(Held { request, aside }),
        }
        true
    }

    /// Gives a request its place and frames and starts it, or, if it is a write, begins to fill it. False while there is
    /// not room for it.
    fn admit<T: ServedDrive>(
        &mut self,
        now: Time,
        held: &Held,
        mut ticket: Ticket,
        served: &mut [Served<'_, T>],
        config: &ServerConfig,
        counters: &Counters,
    ) -> bool {
        let served = &mut served[self.export.expect("requests come after the handshake")];
        let request = held.request;
        let payload = payload_bytes(request.command);
        let bytes_max = config.bytes_max.min(served.share_bytes);
        let has_its_share =
            self.requests > 0 && (self.requests == config.requests_max || self.bytes + payload > bytes_max);
        // A client that does not take its replies gets nothing more to hold, and nobody waits behind it.
        if has_its_share || self.link.is_stuck() {
            served.stop_waiting(ticket.slot);
            return false;
        }
        ticket.what = What::Nbd { cookie: request.cookie, command: request.command };
        let claim = Claim { requests: self.requests, bytes: self.bytes, payload };
        let Some(id) = served.admit(ticket, claim, byte_request(request.command)) else { return false };
        self.requests += 1;
        self.bytes += payload;
        self.is_long_expected = matches!(request.command, Command::Write { .. }) && payload >= DIRECT_BYTES_MIN;
        match request.command {
            Command::Write { .. } if !held.aside.is_empty() => {
                served.fill(id, 0, &held.aside);
                counters.bytes_copied.add(payload);
                served.start(now, id);
            }
            Command::Write { .. } => {
                self.filling = Some(Filling { request, place: Place::Frames(id), length: payload, filled: 0 });
            }
            _ => served.start(now, id),
        }
        true
    }

    /// Puts the reply to a finished request in line.
    pub fn answer<T: ServedDrive>(
        &mut self,
        finished: Finished<Ticket>,
        served: &mut [Served<'_, T>],
        counters: &Counters,
    ) {
        let What::Nbd { cookie, command } = finished.ticket.what else {
            unreachable!("what an NBD connection asked for")
        };
        let export = self.export.expect("requests come after the handshake");
        let form = self.session.reply_form();
        count(counters, command, finished.result);
        trace!(target: "nbd", connection = self.link.number, ?command, result = ?finished.result, "request ended");
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

    /// A reactor has filled these with payload.
    pub fn payload_came<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        mut rooms: Vec<Room>,
        moved: Moved,
    ) {
        let Some(Filling { place: Place::Frames(id), filled, .. }) = &mut self.filling else {
            unreachable!("nothing is done with a write whose pages are lent")
        };
        served[self.export.expect("a write has an export")].take_back(*id, *filled, &mut rooms);
        *filled += moved.bytes as u64;
        self.link.take_rooms(now, rooms, moved);
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
        if let Some(Filling { place: Place::Frames(id), length, .. }) = self.filling.take() {
            let served = &mut served[self.export.expect("a write has an export")];
            served.abandon(id);
            self.requests -= 1;
            self.bytes -= length;
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
        // NBD has no words of its own for what is written in order.
        IoError::Append(AppendError::NoSuchRequest) => ErrorCode::NotSupported,
        IoError::Append(AppendError::SegmentReadOnly { .. }) => ErrorCode::NotPermitted,
        IoError::Append(AppendError::TooManyOpen { .. }) => ErrorCode::NoSpace,
        IoError::Append(_) => ErrorCode::Invalid,
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
