//! One NVMe/TCP connection: its session, its queue, and the commands under way on it.
//!
//! ```text
//!   Command ──▶ admin, fabrics ──▶ data in the heap ──▶ target.command ──▶ completion
//!           └─▶ write ──▶ frames ──▶ data from the socket into them ──▶ drive ──▶ completion
//!           │                  └─ the host is slow and others wait ──▶ heap ── whole ──▶ frames ──▶ drive ──▶ completion
//!           └─▶ read  ──▶ frames ──▶ drive ──▶ data from them to the socket, completion
//!           └─▶ others: one request of the drive after the other
//! ```
//!
//! Compare and Write as a fused pair are one request, an exchange: both wait with their data in the heap until the other has
//! come, and the drive lets nothing else change the blocks between the comparison and the write.
//!
//! Nobody waits in the stream: a write that gets no frames is parked with the data of its capsule, so that data that others
//! were asked for come through. What is kept in the heap is bounded for each connection; beyond that a command ends with
//! a status that hosts answer by trying again. And nobody holds more of a drive's frames than its share, least of all a host
//! that does not take what is sent to it. A write whose data are in its capsule gets frames when the capsule is whole; one
//! that a host is slow to send the data of loses its frames when others wait for frames, and until all its data are there
//! that host is asked for those of no other write.

use openftl_ftl::words::Handle;
use std::collections::VecDeque;

use openftl_bytes::device::DeviceFinished;
use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_core::{BLOCK_BYTES, Time};
use openftl_ftl::target::{BlockTarget, Durability, Extent};
use openftl_nvme::command::Refusal;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand, answer_of};
use openftl_nvme::controller::{Authentication, Effect};
use openftl_nvme::namespace::ALL_NAMESPACES;
use openftl_nvme::wire::opcode::fabrics;
use openftl_nvme::{
    Answer, CommandId, CompletionEntry, Connection as Connected, Half, Io, IoCommand, Outcome, Queue, QueueError, Span,
    Status, SubmissionEntry,
};
use openftl_nvme_auth::{Computed, Controller, Step};
use openftl_nvme_tcp::sgl::{Data, SglError};
use openftl_nvme_tcp::target::{Ending, Event, INPUT_BYTES_MIN, Slot, Target, TargetConfig};
use tracing::{info, trace, warn};
use zerocopy::IntoBytes;

use crate::device_request::{Lists, device_request};
use crate::fabric::{Fabric, names_of};
use crate::key_worker::{JobTicket, Source};
use crate::link::{Buffers, DIRECT_BYTES_MIN, INPUT_BYTES, Link, Over};
use crate::output::ZEROES;
use crate::parting::Parting;
use crate::served::{Claim, Ended, Served};
use crate::ticket::{Ticket, What};
use crate::{Counters, Protocol, ServedDrive, ServerConfig};

/// Data of commands that a connection keeps in the heap: those of admin commands and range lists, what is compared and
/// copied, and writes that wait for frames.
const HEAP_BYTES_MAX: usize = 4 << 20;

/// Headers and completions that wait to be sent, in bytes, above which no more commands are taken.
const SMALL_WAITING_BYTES_MAX: usize = 256 << 10;

/// The most bytes of a drive that one request of a longer command is about: one transaction.
const PIECE_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(INPUT_BYTES > 2 * INPUT_BYTES_MIN);

/// What a command is at.
enum Stage {
    /// Its data come into the heap.
    Collecting(Vec<u8>),
    /// A write that has no frames; with its data, as far as they have come: those in its capsule, or those that came slowly.
    Parked { data: Vec<u8>, is_whole: bool, is_in_line: bool },
    /// Its data come into the frames of this request.
    Filling(RequestId),
    /// Half of a fused pair, whose data are in the heap.
    Paired,
    /// A command of a device that has all it needs, and comes after those before it.
    Ready(RequestId),
    /// The drive is at work.
    Running,
    /// It ends when something happens.
    Held,
    /// A message of an authentication whose key or secret is being computed.
    Computing(Authentication),
}

/// One thing that is asked of what is served.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// This; of a device, its command that means the same.
    Bytes(ByteRequest),
    /// The vector command itself.
    Vector,
}

pub(crate) struct Command {
    entry: [u8; 64],
    data: Data,
    pub io: Option<Io>,
    /// Which of those that are served its request is for.
    export: usize,
    stage: Stage,
    /// What is to be asked for next, and of whom.
    next: Option<(usize, Part)>,
    /// What comes after it, the first one last.
    left: Vec<(usize, Part)>,
    /// What the host sent to be compared, what was read to be copied, or a list of addresses.
    pub heap: Vec<u8>,
    /// The object that it announces.
    extents: Vec<Extent>,
    /// The other half of its fused pair.
    partner: Option<Slot>,
    /// It ends like this when its data have come.
    doomed: Option<Status>,
    /// Bytes of the connection's heap that are booked for it.
    booked: usize,
    /// Bytes of frames that its request holds.
    held: u64,
    /// Bytes of its data that are in frames.
    filled: u32,
    /// Its data were moved out of frames.
    is_aside: bool,
}

impl Command {
    fn new(entry: [u8; 64], data: Data) -> Command {
        Command {
            entry,
            data,
            io: None,
            export: 0,
            stage: Stage::Running,
            next: None,
            left: Vec::new(),
            heap: Vec::new(),
            extents: Vec::new(),
            partner: None,
            doomed: None,
            booked: 0,
            held: 0,
            filled: 0,
            is_aside: false,
        }
    }

    fn entry(&self) -> &SubmissionEntry {
        SubmissionEntry::of(&self.entry)
    }

    fn id(&self) -> CommandId {
        CommandId(self.entry().command_id.get())
    }
}

/// What came last on a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A command that wants no other behind it.
    Whole,
    /// The first half of a fused pair.
    First(Slot),
    /// One that has failed already.
    FailedFirst,
}

pub(crate) struct NvmeConnection {
    pub link: Link,
    session: Target,
    pub queue: Option<Queue>,
    /// Where hosts have to show who they are.
    authentication: Option<Box<Controller>>,
    /// Others had their step of an authentication in this turn, and this one's comes in another.
    is_put_off: bool,
    last: Last,
    commands: Vec<Option<Command>>,
    /// Commands that wait for frames or a place, in order.
    waiting: VecDeque<Slot>,
    /// Commands of devices that have their frames, in the order in which they came: a device sees them in that order.
    line: VecDeque<Slot>,
    /// Requests of the drives that are under way or whose data are being sent.
    requests: usize,
    /// Bytes of frames that they hold.
    bytes: u64,
    /// Bytes that are booked for commands.
    heap_bytes: usize,
    /// Commands whose data come into frames.
    filling: usize,
    /// Commands whose data were moved out of frames, and the memory that they take.
    aside: usize,
    aside_bytes: usize,
    /// A host was asked for data that are long enough to go straight from the socket to their frames.
    is_long_expected: bool,
    /// Such data are on their way there.
    is_straight: bool,
}

/// What a turn of a connection works with.
pub(crate) struct Turn<'t, 's, T: ServedDrive> {
    pub now: Time,
    pub slot: u32,
    pub generation: u32,
    pub served: &'t mut [Served<'s, T>],
    pub fabric: &'t mut Fabric,
    pub config: &'t ServerConfig,
    pub counters: &'t Counters,
}

impl NvmeConnection {
    pub fn new(link: Link) -> NvmeConnection {
        NvmeConnection {
            link,
            session: Target::new(TargetConfig::default()),
            queue: None,
            authentication: None,
            is_put_off: false,
            last: Last::Whole,
            commands: Vec::new(),
            waiting: VecDeque::new(),
            line: VecDeque::new(),
            requests: 0,
            bytes: 0,
            heap_bytes: 0,
            filling: 0,
            aside: 0,
            aside_bytes: 0,
            is_long_expected: false,
            is_straight: false,
        }
    }

    /// Whether nothing is under way but commands that are held.
    pub fn is_idle(&self) -> bool {
        let is_active = |command: &Command| !matches!(command.stage, Stage::Held);
        self.requests == 0 && self.link.output.is_empty() && !self.commands.iter().flatten().any(is_active)
    }

    pub fn requests_under_way(&self) -> usize {
        self.requests + self.waiting.len()
    }

    pub fn is_held_back(&self) -> bool {
        !self.waiting.is_empty() || (!self.link.input().is_empty() && !self.may_take_more())
    }

    pub fn can_go_on(&self) -> bool {
        self.is_put_off
            || (self.link.readable && self.wants_input())
            || (self.link.writable && !self.link.output.is_empty())
    }

    /// When the peer has kept the server waiting for too long.
    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        let handshake = self.is_shaking_hands().then(|| self.link.accepted + config.handshake_max);
        let authentication = self.authentication.as_ref().map(|authentication| authentication.deadline());
        let stall = self.link.deadline().filter(|_| self.queue.is_some());
        [handshake, authentication, stall].into_iter().flatten().filter(|due| *due != Time::NEVER).min()
    }

    /// From when on others do not wait for the frames that the host's data or replies lie in.
    pub fn slow_at(&self) -> Option<Time> {
        let giving = self.link.giving.slow_at().filter(|_| self.filling > 0);
        let taking = self.link.taking.slow_at().filter(|_| self.link.output.holds_frames());
        [giving, taking].into_iter().flatten().min()
    }

    /// Moves data out of frames, if the host is slow. Returns whether frames came back. The commands of a device keep the
    /// order in which they came, so their data stay where they are, and the host has to go.
    pub fn move_aside<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        counters: &Counters,
    ) -> Result<bool, Over> {
        let (requests, bytes) = (&mut self.requests, &mut self.bytes);
        let gave_back = self.link.move_replies_aside(now, served, counters, |length| {
            *requests -= 1;
            *bytes -= length;
        });
        if self.filling == 0 || self.link.giving.slow_at().is_none_or(|at| now < at) {
            return Ok(gave_back);
        }
        for command in self.commands.iter_mut().flatten() {
            let Stage::Filling(id) = command.stage else { continue };
            let served = &mut served[command.export];
            if served.is_device() {
                return Err(Over::Expelled(Parting::SlowDeviceHost));
            }
            let filled = command.filled as usize;
            let mut data = Vec::with_capacity(filled);
            while data.len() < filled {
                let slice = served.slice(id, data.len() as u64);
                data.extend_from_slice(&slice[..slice.len().min(filled - data.len())]);
            }
            counters.bytes_copied.add(filled as u64);
            counters.bytes_moved_aside.add(filled as u64);
            served.abandon(id);
            self.requests -= 1;
            self.bytes -= std::mem::take(&mut command.held);
            self.aside += 1;
            self.aside_bytes += data.capacity();
            // What was booked for its lists stays booked; the memory of its data is on the server's account of slow payload.
            command.is_aside = true;
            command.stage = Stage::Parked { data, is_whole: false, is_in_line: false };
        }
        self.filling = 0;
        (self.is_straight, self.is_long_expected) = (false, false);
        Ok(true)
    }

    /// Memory that the host keeps by being slow.
    pub fn kept_bytes(&self) -> usize {
        self.aside_bytes + self.link.output.memory()
    }

    /// Whether there is no queue yet, or its host has not shown who it is.
    pub fn is_shaking_hands(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| !queue.is_authenticated())
    }

    pub fn is_over(&self) -> bool {
        // After a termination request nobody waits for what is under way.
        let owes = self.requests > 0 && !self.session.is_terminated();
        self.link.closing && !owes && self.link.output.is_empty()
    }

    fn wants_input(&self) -> bool {
        !self.link.ended && !self.link.closing && self.may_take_more()
    }

    fn may_take_more(&self) -> bool {
        self.link.output.small_waiting() < SMALL_WAITING_BYTES_MAX
    }

    /// Takes what the socket holds, in one system call. Before that hands are shaken, where there is TLS: by as many in a
    /// turn as have a step of an authentication.
    pub fn receive(
        &mut self,
        now: Time,
        buffers: &mut Buffers,
        fabric: &mut Fabric,
        counters: &Counters,
    ) -> Result<(), Over> {
        if !self.link.readable || !self.wants_input() || self.link.input().len() > INPUT_BYTES / 2 {
            return Ok(());
        }
        if !self.link.channel().is_settled() {
            let Some(left) = fabric.authentication_steps_left.checked_sub(1) else { return Ok(()) };
            fabric.authentication_steps_left = left;
            let secure = fabric.secure.as_ref().expect("only where there is TLS the first byte tells");
            self.link.settle(now, secure, counters)?;
            if !self.link.channel().is_settled() {
                return Ok(());
            }
        }
        // The rest of a long payload is not for the buffer.
        if self.is_straight {
            return Ok(());
        }
        let is_expected = self.is_long_expected && self.session.is_owed();
        self.link.receive(now, is_expected, buffers)
    }

    /// Serves what was received.
    pub fn take_commands<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        self.admit_waiting(turn);
        self.is_put_off = false;
        while !self.link.closing && self.may_take_more() {
            let has_to_authenticate = self.authentication.is_some() && self.is_shaking_hands();
            if has_to_authenticate && turn.fabric.authentication_steps_left == 0 {
                self.is_put_off = !self.link.input().is_empty();
                break;
            }
            let (input, output) = self.link.split();
            let (consumed, event) = self.session.next(input, &mut output.small);
            output.seal();
            self.link.consume(consumed);
            match event {
                Event::Starved => break,
                Event::Step => {}
                Event::Command { slot, entry, data, list_bytes } => self.begin(slot, entry, data, list_bytes, turn)?,
                Event::Payload { slot, offset, bytes } => {
                    if !self.take_payload(slot, offset, bytes, turn)? {
                        break;
                    }
                }
                Event::PayloadComplete { slot, intact } => self.payload_complete(slot, intact, turn)?,
                Event::Terminated(termination) => self.link.close_because(Parting::NvmeTcp(termination)),
            }
        }
        if self.link.ended {
            self.link.close_because(Parting::HungUp);
        }
        if self.link.closing {
            self.give_up(turn);
        }
        self.link.look_at_pace(turn.now, self.session.is_owed());
        Ok(())
    }

    /// Nothing more is heard from the host: what has not been started never happens, and holds nothing any more.
    fn give_up<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) {
        self.waiting.clear();
        self.line.clear();
        turn.served.iter_mut().for_each(|served| served.stop_waiting(turn.slot));
        for index in 0..self.commands.len() {
            let Some(command) = self.commands[index].take_if(|command| !matches!(command.stage, Stage::Running)) else {
                continue;
            };
            self.heap_bytes -= command.booked;
            turn.fabric.heap_bytes -= command.booked;
            if let Stage::Filling(id) | Stage::Ready(id) = command.stage {
                turn.served[command.export].abandon(id);
                self.requests -= 1;
                self.bytes -= command.held;
            }
            self.filling -= usize::from(matches!(command.stage, Stage::Filling(_)));
            self.came_back(&command);
        }
    }

    fn begin<T: ServedDrive>(
        &mut self,
        slot: Slot,
        entry: [u8; 64],
        data: Result<Data, SglError>,
        list_bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        if self.commands.len() <= slot.index() {
            self.commands.resize_with(slot.index() + 1, || None);
        }
        let id = CommandId(SubmissionEntry::of(&entry).command_id.get());
        let begun = self.queue.as_mut().map_or(Ok(()), |queue| match queue.begin(id) {
            Err(QueueError::IdInUse(_)) if is_beside_held(&self.commands, &entry) => queue.begin_beside(id),
            begun => begun,
        });
        match begun {
            Ok(()) => {}
            Err(QueueError::IdInUse(_)) => {
                let refused = self.queue.as_ref().expect("there is a queue").refuse(id);
                self.send_completion(slot, &refused);
                return Ok(());
            }
            Err(QueueError::Overrun { .. }) => return Err(Over::Expelled(Parting::Overrun)),
        }
        let known = data.unwrap_or(Data::None);
        self.commands[slot.index()] = Some(Command::new(entry, known));
        if let Some(status) = self.take_place_in_pair(slot, turn)? {
            return self.finish(slot, Answer::from(status), turn);
        }
        if let Err(error) = data {
            let status = match error {
                SglError::Length => Status::DATA_SGL_LENGTH_INVALID,
                SglError::Type => Status::SGL_TYPE_INVALID,
                SglError::Offset => Status::SGL_OFFSET_INVALID,
            };
            return self.finish(slot, Answer::from(status), turn);
        }
        let Some(queue) = &self.queue else { return self.connect(slot, None, turn) };
        let entry = SubmissionEntry::of(&entry);
        if queue.is_admin() || entry.is_fabrics() {
            return self.command(slot, None, turn);
        }
        match turn.fabric.target.io(turn.now, queue, entry) {
            Ok(io) => {
                let command = self.commands[slot.index()].as_mut().expect("it has just begun");
                command.io = Some(io);
                command.export = turn.fabric.export(io.namespace);
                if io.renewed != Handle::NONE
                    && let Some(drive) = turn.served[command.export].target_mut()
                {
                    drive.renew_handle(turn.now, io.renewed);
                }
                if list_bytes > 0 {
                    // It comes right behind the command, before anything else.
                    return self.gather(slot, list_bytes, turn);
                }
                self.start(slot, io, turn)
            }
            Err(answer) => self.finish(slot, answer, turn),
        }
    }

    /// Finds the other half of a fused pair. Returns the status of a half that cannot have one.
    fn take_place_in_pair<T: ServedDrive>(
        &mut self,
        slot: Slot,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<Option<Status>, Over> {
        let command = self.commands[slot.index()].as_ref().expect("it has just begun");
        let is_io = self.queue.as_ref().is_some_and(|queue| !queue.is_admin()) && !command.entry().is_fabrics();
        let half = if is_io { Half::of(command.entry()).unwrap_or_default() } else { Half::None };
        if half == Half::None && self.last == Last::Whole {
            return Ok(None);
        }
        let last = if half == Half::First { Last::First(slot) } else { Last::Whole };
        match (std::mem::replace(&mut self.last, last), half) {
            (Last::First(first), Half::Second) => {
                for (one, other) in [(first, slot), (slot, first)] {
                    self.commands[one.index()].as_mut().expect("both are under way").partner = Some(other);
                }
            }
            (Last::First(first), _) => self.abort_half(first, Status::MISSING_FUSED, turn)?,
            (Last::FailedFirst, Half::Second) => return Ok(Some(Status::FAILED_FUSED)),
            (Last::Whole, Half::Second) => return Ok(Some(Status::MISSING_FUSED)),
            (Last::Whole | Last::FailedFirst, _) => {}
        }
        Ok(None)
    }

    /// Ends half of a fused pair, at once or when the data that it was asked for have come.
    fn abort_half<T: ServedDrive>(
        &mut self,
        slot: Slot,
        status: Status,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let Some(command) = self.commands[slot.index()].as_mut() else { return Ok(()) };
        command.partner = None;
        if let Stage::Collecting(_) = command.stage {
            command.doomed = Some(status);
            return Ok(());
        }
        self.finish(slot, Answer::from(status), turn)
    }

    /// Carries out a fused pair, when both halves have their data.
    fn run_pair<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("its data came");
        let Some(partner) = command.partner else { return Ok(()) };
        let other = self.commands[partner.index()].as_ref().expect("a partner is under way");
        if !matches!(other.stage, Stage::Paired) {
            return Ok(());
        }
        let is_first = command.io.is_some_and(|io| io.half == Half::First);
        let (first, second) = if is_first { (slot, partner) } else { (partner, slot) };
        let io = |slot: Slot| self.commands[slot.index()].as_ref().and_then(|command| command.io);
        let (Some(of_first), Some(of_second)) = (io(first), io(second)) else { unreachable!("both were parsed") };
        let IoCommand::Write { span, durability, handle } = of_second.command else { unreachable!("it was checked") };
        if of_first.command != IoCommand::Compare(span) || of_first.namespace != of_second.namespace {
            return self.refuse(first, Status::INVALID_FIELD.at(40), turn);
        }
        let Span { offset, length } = span;
        let exchange = Part::Bytes(ByteRequest::Exchange { offset, length, durability, handle });
        let command = self.commands[second.index()].as_mut().expect("looked");
        command.next = Some((command.export, exchange));
        self.next_request(second, turn)
    }

    /// The blocks of a fused pair were read: they are compared, and written if they are as the host thinks. Returns whether
    /// they are being written.
    fn exchange<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        id: RequestId,
        turn: &mut Turn<'_, '_, T>,
    ) -> bool {
        let served = &mut turn.served[export];
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let new = std::mem::take(&mut command.heap);
        let first = command.partner.expect("it is a pair");
        let expected = &self.commands[first.index()].as_ref().expect("it waits").heap;
        if !is_there(served, id, expected) {
            return false;
        }
        // A capsule may hold more.
        let new = &new[..new.len().min(served.length(id) as usize)];
        served.fill(id, 0, new);
        turn.counters.bytes_copied.add(new.len() as u64);
        served.write(turn.now, id);
        true
    }

    /// Serves the Connect command.
    fn connect<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it has begun").entry;
        if let Some(data) = data
            && !turn.fabric.admits(self.link.channel().shown(), data)
        {
            let (connection, peer) = (self.link.number, self.link.peer);
            let (host, subsystem) = names_of(data).unwrap_or_default();
            let reason = "TLS has shown another host, or the host has to use TLS and does not";
            warn!(target: "nvme", connection, %peer, host, subsystem, reason, "host refused");
            return self.finish(slot, Answer::from(Status::CONNECT_INVALID_HOST), turn);
        }
        match turn.fabric.target.connect(turn.now, SubmissionEntry::of(&entry), data) {
            Connected::Needs(bytes) => self.collect(slot, bytes, turn),
            Connected::Made(queue, completion) => {
                // SQSIZE and CATTR of Connect (Base, "Connect Command").
                let entries = usize::from(u16::from_le_bytes([entry[44], entry[45]])) + 1;
                self.session.open_queue(entries, entry[46] & 0b100 == 0);
                let host = turn.fabric.target.controller(&queue).map_or("", |made| &made.host().nqn);
                let (connection, peer) = (self.link.number, self.link.peer);
                info!(
                    target: "connection",
                    connection,
                    %peer,
                    protocol = %Protocol::NvmeTcp,
                    host,
                    subsystem = %turn.fabric.target.subsystem_nqn(&queue),
                    controller = queue.controller().id,
                    queue = queue.id(),
                    "connection opened"
                );
                if queue.is_admin() && host.is_empty() {
                    turn.counters.hosts_without_name.add(1);
                    warn!(target: "nvme", connection, %peer, "host without a name (HOSTNQN) let in");
                }
                if let (Some(authority), false) = (&turn.fabric.authority, queue.is_authenticated()) {
                    self.authentication = authority.begin(turn.now, &turn.fabric.target, &queue).map(Box::new);
                }
                self.queue = Some(queue);
                self.send_completion(slot, &completion);
                Ok(())
            }
            Connected::Refused(completion) => {
                let (connection, peer) = (self.link.number, self.link.peer);
                let (host, subsystem) = data.and_then(names_of).unwrap_or_default();
                let status = completion.status().of_fabrics();
                warn!(target: "nvme", connection, %peer, host, subsystem, status, "host refused");
                self.send_completion(slot, &completion);
                self.link.close_because(Parting::Connect(completion.status()));
                Ok(())
            }
        }
    }

    /// Serves a command of the admin queue, or of fabrics.
    fn command<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it has begun").entry;
        let mut answer = std::mem::take(&mut turn.fabric.answer);
        let queue = self.queue.as_ref().expect("there is a queue");
        let name = queue.controller();
        let outcome = turn.fabric.command(turn.now, queue, SubmissionEntry::of(&entry), data, turn.served, &mut answer);
        let result = match outcome {
            Outcome::Needs(bytes) => self.collect(slot, bytes, turn),
            Outcome::Held => {
                self.commands[slot.index()].as_mut().expect("it has begun").stage = Stage::Held;
                Ok(())
            }
            Outcome::Done(done) => self.finish_with(slot, done, &answer, turn),
            Outcome::DonePadded(done, bytes) => self.finish_padded(slot, done, &answer, bytes as usize, turn),
            Outcome::DoneAnd(done, effect) => {
                if effect == Effect::CloseQueue {
                    self.link.close_because(Parting::Disconnect);
                } else {
                    turn.fabric.effects.push((name, effect));
                }
                self.finish_with(slot, done, &answer, turn)
            }
            Outcome::Authentication(message) => self.authenticate(slot, message, data, turn),
        };
        turn.fabric.answer = answer;
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.is_admin()) {
            let name = queue.controller();
            self.take_events(name, turn)?;
        }
        result
    }

    /// Takes or gives a message of the authentication.
    fn authenticate<T: ServedDrive>(
        &mut self,
        slot: Slot,
        message: Authentication,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let (Some(controller), Some(authority)) = (&mut self.authentication, &mut turn.fabric.authority) else {
            return self.finish(slot, Answer::from(Status::INVALID_OPCODE), turn);
        };
        turn.fabric.authentication_steps_left = turn.fabric.authentication_steps_left.saturating_sub(1);
        let work = match message {
            Authentication::Message { bytes } => {
                data.and_then(|data| data.get(..bytes as usize)).and_then(|message| controller.work_to_send(message))
            }
            Authentication::Wanted { bytes } => controller.work_to_receive(bytes as usize, &mut authority.nonces),
        };
        if let Some(work) = work {
            let queue = self.queue.as_ref().expect("there is a queue");
            let host = turn.fabric.target.controller(queue).map_or("", |controller| &controller.host().nqn);
            let source = Source::of(self.link.socket(), host);
            let ticket = JobTicket { slot: turn.slot, generation: turn.generation, command: slot };
            authority.worker.line_up(ticket, source, work);
            let command = self.commands[slot.index()].as_mut().expect("it has begun");
            // It is still booked.
            command.heap = data.map_or_else(Vec::new, <[u8]>::to_vec);
            command.stage = Stage::Computing(message);
            return Ok(());
        }
        let (payload, step) = match message {
            Authentication::Message { bytes } => {
                let message = data.and_then(|data| data.get(..bytes as usize)).expect("as many bytes were collected");
                (Vec::new(), controller.send(turn.now, message))
            }
            Authentication::Wanted { bytes } => {
                match controller.receive(turn.now, bytes as usize, &mut authority.nonces) {
                    Ok(answer) => answer,
                    Err(_) => return self.finish(slot, Answer::from(Status::INVALID_FIELD), turn),
                }
            }
        };
        let queue = self.queue.as_mut().expect("there is a queue");
        queue.set_authenticated(controller.is_authenticated());
        let (connection, peer) = (self.link.number, self.link.peer);
        let host = || turn.fabric.target.controller(queue).map_or("", |controller| &controller.host().nqn);
        match step {
            Step::Continue => {}
            Step::Authenticated => info!(target: "nvme", connection, %peer, host = host(), "host authenticated"),
            Step::Close(refusal) => {
                warn!(target: "nvme", connection, %peer, host = host(), reason = %refusal, "authentication refused");
                self.link.close_because(Parting::Authentication(refusal));
            }
        }
        self.finish_with(slot, Answer::from(Status::SUCCESS), &payload, turn)
    }

    /// Goes on with a message of an authentication, whose key or secret has been computed.
    pub fn computed<T: ServedDrive>(
        &mut self,
        slot: Slot,
        computed: Computed,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let Some(command) = self.commands.get_mut(slot.index()).and_then(Option::as_mut) else { return Ok(()) };
        let Stage::Computing(message) = command.stage else { return Ok(()) };
        if let Some(controller) = &mut self.authentication {
            controller.computed(computed);
        }
        command.stage = Stage::Running;
        let data = std::mem::take(&mut command.heap);
        self.authenticate(slot, message, Some(&data), turn)
    }

    /// Ends held commands for which something has happened.
    pub fn take_events<T: ServedDrive>(
        &mut self,
        name: openftl_nvme::queue::ControllerName,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        while let Some((id, answer)) = turn.fabric.target.take_event(name) {
            let held = |command: &Option<Command>| {
                command.as_ref().is_some_and(|command| command.id() == id && matches!(command.stage, Stage::Held))
            };
            let Some(index) = self.commands.iter().position(held) else { continue };
            let slot = self.session.slot_at(index);
            self.finish(slot, answer, turn)?;
        }
        Ok(())
    }

    /// Books room in the heap for a command, instead of what was booked for it. False if there is not so much.
    fn book<T: ServedDrive>(&mut self, slot: Slot, bytes: usize, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let before = command.booked;
        let (mine, all) = (self.heap_bytes - before + bytes, turn.fabric.heap_bytes - before + bytes);
        if bytes > before && (mine > HEAP_BYTES_MAX || all > turn.config.heap_bytes_max) {
            return false;
        }
        (command.booked, self.heap_bytes, turn.fabric.heap_bytes) = (bytes, mine, all);
        true
    }

    /// A command that is gone needs nothing in the heap.
    fn unbook(&mut self, command: &Command, fabric: &mut Fabric) {
        self.heap_bytes -= command.booked;
        fabric.heap_bytes -= command.booked;
        self.came_back(command);
    }

    /// The data of a command are not aside any more: they are in frames again, or gone.
    fn came_back(&mut self, command: &Command) {
        if let Stage::Parked { data, .. } = &command.stage
            && command.is_aside
        {
            self.aside -= 1;
            self.aside_bytes -= data.capacity();
        }
    }

    /// Bytes in the heap that are booked for its commands.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Has the data of a command come into the heap.
    fn collect<T: ServedDrive>(&mut self, slot: Slot, bytes: u32, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("it has begun");
        match command.data {
            // All of them come, asked for or not: Linux sends a whole page with a few ranges.
            Data::InCapsule(most) if most >= bytes => self.gather(slot, most, turn),
            Data::OnRequest(most) if most >= bytes => {
                self.gather(slot, bytes, turn)?;
                if self.commands[slot.index()].is_some() {
                    self.session.request(slot, bytes, &mut self.link.output.small);
                    self.link.output.seal();
                }
                Ok(())
            }
            _ => self.finish(slot, Answer::from(Status::DATA_SGL_LENGTH_INVALID), turn),
        }
    }

    /// Makes room in the heap for data that come, or ends the command.
    fn gather<T: ServedDrive>(&mut self, slot: Slot, bytes: u32, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        if !self.book(slot, bytes as usize, turn) {
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it has begun");
        command.stage = Stage::Collecting(Vec::with_capacity(bytes as usize));
        Ok(())
    }

    /// Starts an I/O command, or has its data come.
    fn start<T: ServedDrive>(&mut self, slot: Slot, io: Io, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let export = turn.fabric.export(io.namespace);
        if let IoCommand::OpenChannel(vector) = io.command {
            let command = self.commands[slot.index()].as_ref().expect("it has just begun");
            if let Err(refusal) = Lists::default().read(&vector, &command.heap) {
                return self.refuse(slot, refusal, turn);
            }
        }
        let request = match io.command {
            IoCommand::Write { span, .. } if io.half == Half::Second => {
                return self.collect(slot, span.length as u32, turn);
            }
            IoCommand::Write { .. } | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, .. }) => {
                let command = self.commands[slot.index()].as_ref().expect("it has just begun");
                let is_there = match command.data {
                    Data::InCapsule(bytes) => self.link.input().len() >= bytes as usize,
                    _ => true,
                };
                if !is_there || !self.admit_write(slot, turn) {
                    return self.park(slot, turn);
                }
                return Ok(());
            }
            IoCommand::Compare(span) => return self.collect(slot, span.length as u32, turn),
            IoCommand::DatasetManagement { ranges, deallocate: true } => {
                return self.collect(slot, u32::from(ranges) * 16, turn);
            }
            IoCommand::DatasetManagement { deallocate: false, .. } => {
                return self.finish(slot, Answer::from(Status::SUCCESS), turn);
            }
            IoCommand::Copy { sources, .. } => return self.collect(slot, u32::from(sources) * 32, turn),
            IoCommand::FlashAlloc { ranges } => return self.collect(slot, u32::from(ranges) * 16, turn),
            IoCommand::FlashAllocRange { extent } => {
                let command = self.commands[slot.index()].as_mut().expect("it has just begun");
                command.extents = vec![extent];
                return self.start_all(
                    slot,
                    vec![(export, Part::Bytes(ByteRequest::FlashAlloc))],
                    size_of::<Extent>(),
                    turn,
                );
            }
            IoCommand::HandleUpdate { identifiers } => return self.collect(slot, u32::from(identifiers) * 2, turn),
            IoCommand::HandleStatus { bytes } => return self.tell_handle_status(slot, io, bytes, turn),
            IoCommand::Nothing => return self.finish(slot, Answer::from(Status::SUCCESS), turn),
            IoCommand::OpenChannel(_) => Part::Vector,
            IoCommand::Flush if io.namespace == ALL_NAMESPACES => {
                let left = (0..turn.served.len()).map(|export| (export, Part::Bytes(ByteRequest::Flush))).collect();
                return self.start_all(slot, left, 0, turn);
            }
            IoCommand::Flush => Part::Bytes(ByteRequest::Flush),
            IoCommand::Read(Span { offset, length }) => Part::Bytes(ByteRequest::Read { offset, length }),
            IoCommand::Zero { span: Span { offset, length }, durability, .. } => {
                Part::Bytes(ByteRequest::Zero { offset, length, durability })
            }
            IoCommand::Verify(span) => {
                let read = |Span { offset, length }| (export, Part::Bytes(ByteRequest::Read { offset, length }));
                return self.start_all(slot, pieces(span).map(read).collect(), 0, turn);
            }
            IoCommand::WriteUncorrectable { span, durability } => {
                let write = |Span { offset, length }| {
                    (export, Part::Bytes(ByteRequest::WriteUncorrectable { offset, length, durability }))
                };
                return self.start_all(slot, pieces(span).map(write).collect(), 0, turn);
            }
        };
        self.commands[slot.index()].as_mut().expect("it has just begun").next = Some((export, request));
        self.next_request(slot, turn)
    }

    /// "Reclaim Unit Handle Status".
    fn tell_handle_status<T: ServedDrive>(
        &mut self,
        slot: Slot,
        io: Io,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let namespace = turn.fabric.namespace(io.namespace);
        let drive = turn.served[turn.fabric.export(io.namespace)].target_mut();
        let data = namespace
            .handle_status(bytes, |handle| drive.as_ref().map_or(0, |drive| BlockTarget::handle_room(*drive, handle)));
        self.finish_with(slot, Answer::from(Status::SUCCESS), &data, turn)
    }

    /// "Reclaim Unit Handle Update".
    fn update_handles<T: ServedDrive>(
        &mut self,
        slot: Slot,
        identifiers: u16,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("its data came");
        let (export, id) = (command.export, command.io.expect("an I/O command").namespace);
        let handles = match turn.fabric.namespace(id).updated_handles(identifiers, data) {
            Ok(handles) => handles,
            Err(refusal) => return self.refuse(slot, refusal, turn),
        };
        let queue = self.queue.as_ref().expect("there is a queue");
        for handle in handles {
            let Some(drive) = turn.served[export].target_mut() else { continue };
            let has_room = drive.handle_room(handle) > 0;
            if drive.renew_handle(turn.now, handle) && has_room {
                turn.fabric.target.handle_left(turn.now, queue, id, handle);
            }
        }
        self.finish(slot, Answer::from(Status::SUCCESS), turn)
    }

    /// Starts a command that asks for several things, the first one last, and keeps `bytes` in the heap meanwhile.
    fn start_all<T: ServedDrive>(
        &mut self,
        slot: Slot,
        left: Vec<(usize, Part)>,
        bytes: usize,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        if !self.book(slot, bytes + left.capacity() * size_of::<(usize, Part)>(), turn) {
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        command.stage = Stage::Running;
        command.left = left;
        command.next = command.left.pop();
        self.next_request(slot, turn)
    }

    /// Makes the next request of a command to its drive, or ends it.
    fn next_request<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        if command.next.is_none() {
            return self.finish(slot, Answer::from(Status::SUCCESS), turn);
        }
        self.make_request(slot, turn);
        Ok(())
    }

    /// Makes the next request of a command to its drive. False if it has to wait.
    fn make_request<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        command.stage = Stage::Running;
        let (export, part) = command.next.expect("there is one");
        let Some(id) = self.admit(slot, export, part, turn) else { return false };
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let served = &mut turn.served[export];
        command.export = export;
        command.next = command.left.pop();
        let is_copy = matches!(command.io.expect("an I/O command").command, IoCommand::Copy { .. });
        if let (Part::Bytes(ByteRequest::Write { .. }), true) = (part, is_copy) {
            let heap = std::mem::take(&mut command.heap);
            served.fill(id, 0, &heap);
            turn.counters.bytes_copied.add(heap.len() as u64);
        }
        if let Part::Bytes(ByteRequest::FlashAlloc) = part {
            served.set_extents(id, &command.extents);
        }
        if served.is_device() {
            command.stage = Stage::Ready(id);
            self.line.push_back(slot);
            self.advance_line(turn);
        } else {
            served.start(turn.now, id);
        }
        true
    }

    /// Gives a command the place and the frames of its next request. Or it waits for them: behind those of this connection
    /// that came before, and for frames behind those of others.
    fn admit<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        part: Part,
        turn: &mut Turn<'_, '_, T>,
    ) -> Option<RequestId> {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let payload = payload_bytes(part, &command.io.expect("an I/O command").command);
        let served = &mut turn.served[export];
        let is_first = self.waiting.front().is_none_or(|front| *front == slot);
        let bytes_max = turn.config.bytes_max.min(served.share_bytes);
        let has_its_share =
            self.requests > 0 && (self.requests >= turn.config.requests_max || self.bytes + payload > bytes_max);
        // A host that is slow to send data is asked for no more of them before it has sent those.
        let asks_for_more = match (&command.stage, command.data) {
            (Stage::Parked { is_whole, .. }, Data::OnRequest(_)) => !is_whole,
            (Stage::Running, Data::OnRequest(_)) => is_write(part, command),
            _ => false,
        };
        // A host that does not take what is sent to it gets nothing more to hold, and nobody waits behind it.
        if has_its_share || self.link.is_stuck() || (self.aside > 0 && asks_for_more) {
            served.stop_waiting(turn.slot);
        } else if is_first {
            let ticket = Ticket { slot: turn.slot, generation: turn.generation, what: What::Nvme(slot) };
            let claim = Claim { requests: self.requests, bytes: self.bytes, payload };
            let admitted = match part {
                Part::Bytes(request) if !served.is_device() => served.admit(ticket, claim, request),
                part => served.admit_command(ticket, claim, device_request(command, part, &mut Lists::default())),
            };
            if let Some(id) = admitted {
                command.held = if payload > 0 { served.length(id) } else { 0 };
                self.requests += 1;
                self.bytes += command.held;
                return Some(id);
            }
        }
        if self.waiting.front() != Some(&slot) {
            self.waiting.push_back(slot);
        }
        None
    }

    /// Starts the commands of devices that have all they need, up to the first that has not.
    fn advance_line<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) {
        while let Some(slot) = self.line.front() {
            let command = self.commands[slot.index()].as_mut().expect("it is in line");
            let Stage::Ready(id) = command.stage else { return };
            command.stage = Stage::Running;
            turn.served[command.export].start(turn.now, id);
            self.line.pop_front();
        }
    }

    /// Gives a write its frames, if there are any, and has its data come.
    fn admit_write<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        let export = command.export;
        let part = match command.io.expect("an I/O command").command {
            IoCommand::Write { span: Span { offset, length }, durability, handle }
                if !turn.served[export].is_device() =>
            {
                Part::Bytes(ByteRequest::Write { offset, length, durability, handle })
            }
            _ => Part::Vector,
        };
        let Some(id) = self.admit(slot, export, part, turn) else { return false };
        let served = &mut turn.served[export];
        if served.is_device() {
            self.line.push_back(slot);
        }
        let mut command = self.commands[slot.index()].take().expect("it is under way");
        self.came_back(&command);
        command.is_aside = false;
        let kept = command.heap.capacity();
        let mut is_whole = false;
        if let Stage::Parked { data, is_whole: whole, .. } = std::mem::replace(&mut command.stage, Stage::Filling(id)) {
            let wanted = data.len().min(served.length(id) as usize);
            served.fill(id, 0, &data[..wanted]);
            turn.counters.bytes_copied.add(wanted as u64);
            (is_whole, command.filled) = (whole, wanted as u32);
        }
        self.filling += 1;
        let command = self.commands[slot.index()].insert(command);
        if is_whole {
            self.filled(slot, id, turn);
        } else if let Data::OnRequest(_) = command.data {
            let length = served.length(id);
            self.is_long_expected =
                length >= DIRECT_BYTES_MIN && !served.is_device() && !turn.config.copies_long_writes;
            self.session.request(slot, length as u32, &mut self.link.output.small);
            self.link.output.seal();
        }
        self.book(slot, kept, turn);
        true
    }

    /// All the data of a write are in its frames.
    fn filled<T: ServedDrive>(&mut self, slot: Slot, id: RequestId, turn: &mut Turn<'_, '_, T>) {
        self.filling -= 1;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let served = &mut turn.served[command.export];
        if served.is_device() {
            command.stage = Stage::Ready(id);
            self.advance_line(turn);
        } else {
            command.stage = Stage::Running;
            served.start(turn.now, id);
        }
    }

    /// Keeps the data of the capsule of a write that waits for frames.
    fn park<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        let bytes = if let Data::InCapsule(bytes) = command.data { bytes as usize } else { 0 };
        if !self.book(slot, bytes + command.heap.capacity(), turn) {
            self.leave_line(slot, turn);
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let is_in_line = self.waiting.back() == Some(&slot);
        command.stage = Stage::Parked { data: Vec::with_capacity(bytes), is_whole: false, is_in_line };
        Ok(())
    }

    /// A command waits no more. If others of this connection do, they line up again, perhaps for another drive.
    fn leave_line<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) {
        self.waiting.retain(|other| *other != slot);
        turn.served.iter_mut().for_each(|served| served.stop_waiting(turn.slot));
    }

    /// Tries those again that wait for frames, in order.
    fn admit_waiting<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) {
        while let Some(slot) = self.waiting.front().copied() {
            let command = self.commands[slot.index()].as_ref().expect("it waits");
            let is_made = match command.stage {
                Stage::Parked { .. } => self.admit_write(slot, turn),
                _ => self.make_request(slot, turn),
            };
            if !is_made {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Takes the next bytes of a command's data. False if there are none yet.
    fn take_payload<T: ServedDrive>(
        &mut self,
        slot: Slot,
        offset: u32,
        bytes: u32,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<bool, Over> {
        let command = self.commands[slot.index()].as_mut().expect("its data come");
        self.is_straight = false;
        if let Stage::Filling(id) = command.stage {
            let served = &mut turn.served[command.export];
            if u64::from(offset) >= served.length(id) {
                return Ok(self.pass_over(bytes));
            }
            let is_long = u64::from(bytes) >= DIRECT_BYTES_MIN && !turn.config.copies_long_writes;
            let is_direct = is_long && self.link.input().is_empty() && !served.is_device();
            if is_direct {
                self.is_straight = true;
                if !self.link.readable {
                    return Ok(false);
                }
                let came = self.link.receive_into(turn.now, served, id, offset.into(), bytes.into())?;
                self.is_straight = came < u64::from(bytes);
                command.filled = offset + came as u32;
                let (mut from, end) = (u64::from(offset), u64::from(offset) + came);
                while from < end {
                    let slice = served.slice(id, from);
                    let part = &slice[..slice.len().min((end - from) as usize)];
                    self.session.took(part);
                    from += part.len() as u64;
                }
                return Ok(came > 0);
            }
            let room = served.slice_mut(id, offset.into());
            let count = room.len().min(bytes as usize).min(self.link.input().len());
            room[..count].copy_from_slice(&self.link.input()[..count]);
            turn.counters.bytes_copied.add(count as u64);
            self.session.took(&self.link.input()[..count]);
            self.link.consume(count);
            command.filled = offset + count as u32;
            return Ok(count > 0);
        }
        let is_aside = command.is_aside;
        let (Stage::Collecting(data) | Stage::Parked { data, .. }) = &mut command.stage else {
            return Ok(self.pass_over(bytes));
        };
        let count = (bytes as usize).min(self.link.input().len());
        let before = data.capacity();
        data.extend_from_slice(&self.link.input()[..count]);
        if is_aside {
            self.aside_bytes += data.capacity() - before;
        }
        turn.counters.bytes_copied.add(count as u64);
        self.session.took(&self.link.input()[..count]);
        self.link.consume(count);
        Ok(count > 0)
    }

    /// A capsule may hold more data than its command has use for. False if none of them are there.
    fn pass_over(&mut self, bytes: u32) -> bool {
        let count = (bytes as usize).min(self.link.input().len());
        self.session.took(&self.link.input()[..count]);
        self.link.consume(count);
        count > 0
    }

    fn payload_complete<T: ServedDrive>(
        &mut self,
        slot: Slot,
        intact: bool,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("its data came");
        match &mut command.stage {
            Stage::Filling(id) => {
                let id = *id;
                if intact {
                    self.filled(slot, id, turn);
                    return Ok(());
                }
                turn.served[command.export].abandon(id);
                self.filling -= 1;
                self.requests -= 1;
                self.bytes -= command.held;
                self.line.retain(|other| *other != slot);
                self.advance_line(turn);
                self.finish(slot, Answer::from(Status::TRANSIENT_TRANSPORT_ERROR), turn)
            }
            Stage::Parked { is_whole, is_in_line, .. } if intact => {
                *is_whole = true;
                if !std::mem::replace(is_in_line, true) {
                    // What came slowly goes first: those behind it wait for it.
                    if command.is_aside {
                        self.waiting.push_front(slot);
                    } else {
                        self.waiting.push_back(slot);
                    }
                    self.admit_waiting(turn);
                }
                Ok(())
            }
            Stage::Parked { .. } | Stage::Collecting(_) if !intact => {
                self.leave_line(slot, turn);
                self.finish(slot, Answer::from(Status::TRANSIENT_TRANSPORT_ERROR), turn)
            }
            Stage::Collecting(data) => {
                let data = std::mem::take(data);
                self.collected(slot, data, turn)
            }
            // They were in the capsule of a command that has no use for them.
            Stage::Parked { .. }
            | Stage::Paired
            | Stage::Ready(_)
            | Stage::Running
            | Stage::Held
            | Stage::Computing(_) => Ok(()),
        }
    }

    /// The data of a command are in the heap.
    fn collected<T: ServedDrive>(&mut self, slot: Slot, data: Vec<u8>, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("its data came");
        let Some(io) = command.io else {
            return if self.queue.is_none() {
                self.connect(slot, Some(&data), turn)
            } else {
                self.command(slot, Some(&data), turn)
            };
        };
        if let Some(status) = command.doomed {
            return self.finish(slot, Answer::from(status), turn);
        }
        if io.half != Half::None {
            (command.heap, command.stage) = (data, Stage::Paired);
            return self.run_pair(slot, turn);
        }
        let (export, namespace) = (command.export, turn.fabric.namespace(io.namespace));
        let bytes = |request| (export, Part::Bytes(request));
        let planned = match io.command {
            IoCommand::OpenChannel(_) => {
                command.heap = data;
                return self.start(slot, io, turn);
            }
            IoCommand::HandleUpdate { identifiers } => return self.update_handles(slot, identifiers, &data, turn),
            IoCommand::FlashAlloc { ranges } => namespace.object(ranges, &data).map(|extents| {
                let bytes_of_extents = extents.capacity() * size_of::<Extent>();
                command.extents = extents;
                (vec![bytes(ByteRequest::FlashAlloc)], bytes_of_extents)
            }),
            IoCommand::Compare(Span { offset, length }) => {
                command.heap = data;
                command.next = Some(bytes(ByteRequest::Read { offset, length }));
                return self.next_request(slot, turn);
            }
            IoCommand::DatasetManagement { ranges, .. } => namespace.deallocated(ranges, &data).map(|spans| {
                let durability = Durability::Volatile;
                let trim = |Span { offset, length }| bytes(ByteRequest::Trim { offset, length, durability });
                (spans.map(trim).collect::<Vec<_>>(), 0)
            }),
            IoCommand::Copy { first, sources, durability, handle } => {
                namespace.copy_plan(first, sources, &data).map(|plan| {
                    let Span { offset, length } = plan.to;
                    let reads = plan.from().map(|Span { offset, length }| bytes(ByteRequest::Read { offset, length }));
                    let mut left: Vec<_> = reads.collect();
                    left.push(bytes(ByteRequest::Write { offset, length, durability, handle }));
                    left.reverse();
                    (left, length as usize)
                })
            }
            _ => unreachable!("only these have data in the heap"),
        };
        match planned {
            Ok((left, bytes)) => self.start_all(slot, left, bytes, turn),
            Err(refusal) => self.refuse(slot, refusal, turn),
        }
    }

    /// Ends a command that was taken with an error, which the error log keeps.
    fn refuse<T: ServedDrive>(&mut self, slot: Slot, refusal: Refusal, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it is under way").entry;
        let queue = self.queue.as_ref().expect("there is a queue");
        let answer = turn.fabric.target.failed(queue, SubmissionEntry::of(&entry), refusal);
        self.finish(slot, answer, turn)
    }

    /// A request of a drive or a command of a device has ended.
    pub fn ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        ended: Ended,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        match ended {
            Ended::Request(finished) => self.request_ended(slot, export, finished, turn),
            Ended::Command(finished) => self.command_ended(slot, export, finished, turn),
        }
    }

    fn command_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: DeviceFinished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        use openftl_media::Status::{InvalidField, LbaOutOfRange, Success};
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let answer = answer_of(&finished.completion);
        let status = finished.completion.status;
        turn.fabric.is_restless |= status != Success;
        let is_read = matches!(
            command.io.expect("an I/O command").command,
            IoCommand::Read(_) | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Read, .. })
        );
        // Whatever became of some of the blocks, the host learns it from the bitmap; the others it gets.
        if is_read && !matches!(status, InvalidField | LbaOutOfRange) && !self.session.is_terminated() {
            return self.send_read(slot, export, finished.id, answer, turn);
        }
        turn.served[export].release(finished.id);
        self.requests -= 1;
        self.bytes -= command.held;
        if status == Success { self.next_request(slot, turn) } else { self.finish(slot, answer, turn) }
    }

    fn request_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: Finished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let id = finished.id;
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let io = command.io.expect("an I/O command");
        if io.half == Half::Second {
            return self.pair_ended(slot, export, finished, turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let served = &mut turn.served[export];
        let mut result = finished.result.map_err(|error| match error.block() {
            Some(_) => turn.fabric.namespace(io.namespace).failure(error, served.offset(id)),
            None => Status::from(error).into(),
        });
        match io.command {
            IoCommand::Read(_) if result.is_ok() && !self.session.is_terminated() => {
                return self.send_read(slot, export, id, Answer::from(Status::SUCCESS), turn);
            }
            IoCommand::Compare(_) if result.is_ok() && !is_there(served, id, &command.heap) => {
                result = Err(Status::COMPARE_FAILURE.into());
            }
            IoCommand::Copy { .. } if result.is_ok() && command.next.is_some() => {
                // A source was read; the destination is written last.
                let (mut from, length) = (0, served.length(id));
                while from < length {
                    let slice = served.slice(id, from);
                    command.heap.extend_from_slice(slice);
                    turn.counters.bytes_copied.add(slice.len() as u64);
                    from += slice.len() as u64;
                }
            }
            _ => {}
        }
        served.release(id);
        self.requests -= 1;
        self.bytes -= command.held;
        match result {
            Ok(()) => self.next_request(slot, turn),
            Err(refusal) => self.refuse(slot, refusal, turn),
        }
    }

    /// The exchange of a fused pair, which is the second half's, was read or written.
    fn pair_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: Finished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let Finished { id, result, .. } = finished;
        let command = self.commands[slot.index()].as_ref().expect("it is under way");
        let io = command.io.expect("an I/O command");
        let (first, held, is_written) = (command.partner.expect("it is a pair"), command.held, command.heap.is_empty());
        let is_shown = turn.served[export].is_shown(id);
        if is_shown && self.exchange(slot, export, id, turn) {
            return Ok(());
        }
        let served = &mut turn.served[export];
        let failure = result.err().map(|error| match error.block() {
            Some(_) => turn.fabric.namespace(io.namespace).failure(error, served.offset(id)),
            None => Status::from(error).into(),
        });
        served.release(id);
        self.requests -= 1;
        self.bytes -= held;
        match failure {
            // What fails the first half ends the second with it.
            None if is_shown => return self.refuse(first, Status::COMPARE_FAILURE.into(), turn),
            Some(refusal) if !is_written => return self.refuse(first, refusal, turn),
            _ => {}
        }
        for half in [first, slot] {
            self.commands[half.index()].as_mut().expect("both are under way").partner = None;
        }
        self.finish(first, Answer::from(Status::SUCCESS), turn)?;
        match failure {
            None => self.finish(slot, Answer::from(Status::SUCCESS), turn),
            Some(refusal) => self.refuse(slot, refusal, turn),
        }
    }

    /// Puts the data of a read in line, straight from their frames, and its completion.
    fn send_read<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        id: RequestId,
        answer: Answer,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].take().expect("it is under way");
        self.unbook(&command, turn.fabric);
        let served = &turn.served[export];
        let length = served.length(id);
        trace!(target: "nvme", connection = self.link.number, io = ?command.io, status = %answer.status, "command ended");
        count(turn.counters, command.io.as_ref(), answer.status, length);
        let queue = self.queue.as_mut().expect("there is a queue");
        let completion = queue.complete(command.id(), answer);
        let is_plain = answer == Answer::from(Status::SUCCESS);
        let ending = if is_plain && self.session.may_omit_response() { Ending::LastAndSuccess } else { Ending::Last };
        let output = &mut self.link.output;
        let digest = self.session.send_data(slot, length as u32, ending, &mut output.small);
        output.push_read(export, id, length);
        if let Some(mut digest) = digest {
            let mut from = 0;
            while from < length {
                let slice = served.slice(id, from);
                digest.update(slice);
                from += slice.len() as u64;
            }
            output.small.extend_from_slice(&digest.bytes());
        }
        if ending == Ending::Last {
            self.session.complete(slot, completion_bytes(&completion), &mut output.small);
        }
        output.seal();
        Ok(())
    }

    fn finish<T: ServedDrive>(&mut self, slot: Slot, answer: Answer, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        self.finish_with(slot, answer, &[], turn)
    }

    /// Ends a command, with data for the host where it has some.
    fn finish_with<T: ServedDrive>(
        &mut self,
        slot: Slot,
        answer: Answer,
        data: &[u8],
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        self.finish_padded(slot, answer, data, data.len(), turn)
    }

    /// The same, with zeroes behind the data, `bytes` in all.
    fn finish_padded<T: ServedDrive>(
        &mut self,
        slot: Slot,
        answer: Answer,
        data: &[u8],
        bytes: usize,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].take().expect("it is under way");
        self.unbook(&command, turn.fabric);
        if self.last == Last::First(slot) {
            self.last = Last::FailedFirst;
        }
        if self.session.is_terminated() {
            return Ok(());
        }
        let Some(queue) = &mut self.queue else {
            // Before Connect: nothing but Connect is served.
            let completion = CompletionEntry {
                command_id: command.entry().command_id,
                status: (answer.status.field() << 1).into(),
                ..CompletionEntry::default()
            };
            self.send_completion(slot, &completion);
            self.link.close_because(Parting::Connect(answer.status));
            return Ok(());
        };
        trace!(target: "nvme", connection = self.link.number, io = ?command.io, status = %answer.status, "command ended");
        count(turn.counters, command.io.as_ref(), answer.status, 0);
        let completion = queue.complete(command.id(), answer);
        let output = &mut self.link.output;
        if let Data::ToHost(most) = command.data
            && answer.status.is_success()
            && bytes > 0
        {
            let bytes = bytes.min(most as usize);
            let data = &data[..data.len().min(bytes)];
            let digest = self.session.send_data(slot, bytes as u32, Ending::Last, &mut output.small);
            output.small.extend_from_slice(data);
            let zeroes = bytes - data.len();
            if zeroes > 0 {
                output.push_zeroes(zeroes as u64);
            }
            if let Some(mut digest) = digest {
                digest.update(data);
                (0..zeroes)
                    .step_by(ZEROES.len())
                    .for_each(|at| digest.update(&ZEROES[..ZEROES.len().min(zeroes - at)]));
                output.small.extend_from_slice(&digest.bytes());
            }
        }
        self.session.complete(slot, completion_bytes(&completion), &mut output.small);
        output.seal();
        match command.partner {
            Some(partner) => self.abort_half(partner, Status::FAILED_FUSED, turn),
            None => Ok(()),
        }
    }

    fn send_completion(&mut self, slot: Slot, completion: &CompletionEntry) {
        self.commands[slot.index()] = None;
        self.session.complete(slot, completion_bytes(completion), &mut self.link.output.small);
        self.link.output.seal();
    }

    /// Sends what is in line, in one system call. Returns whether others may go on.
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

    /// Gives back what the connection holds. Requests that were started end without it.
    pub fn abandon_all<T: ServedDrive>(&mut self, served: &mut [Served<'_, T>]) {
        for command in self.commands.drain(..).flatten() {
            if let Stage::Filling(id) | Stage::Ready(id) = command.stage {
                served[command.export].abandon(id);
            }
        }
        self.link.output.discard(|export, id| served[export].release(id));
    }
}

/// Whether this is a property command with the name of a held event request. It has ended before anything else comes.
fn is_beside_held(commands: &[Option<Command>], entry: &[u8; 64]) -> bool {
    let entry = SubmissionEntry::of(entry);
    let is_property = matches!(entry.fabrics_type(), fabrics::PROPERTY_GET | fabrics::PROPERTY_SET);
    let is_held =
        |command: &Command| matches!(command.stage, Stage::Held) && command.entry().command_id == entry.command_id;
    entry.is_fabrics() && is_property && commands.iter().flatten().any(is_held)
}

fn completion_bytes(completion: &CompletionEntry) -> &[u8; 16] {
    completion.as_bytes().try_into().expect("a completion has 16 bytes")
}

/// Whether what was read begins with `bytes`, as many as the request has.
fn is_there<T: ServedDrive>(served: &Served<'_, T>, id: RequestId, bytes: &[u8]) -> bool {
    let (mut from, length) = (0, served.length(id));
    while from < length {
        let there = served.slice(id, from);
        if bytes.get(from as usize..from as usize + there.len()) != Some(there) {
            return false;
        }
        from += there.len() as u64;
    }
    true
}

/// Counts a command of an I/O queue that is answered; a read brought `bytes`.
fn count(counters: &Counters, io: Option<&Io>, status: Status, bytes: u64) {
    let Some(Io { command, .. }) = io else { return };
    let (counter, moved) = match command {
        IoCommand::Read(_) | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Read, .. }) => {
            (&counters.reads, Some((&counters.bytes_read, bytes)))
        }
        IoCommand::Compare(_) | IoCommand::Verify(_) => (&counters.reads, None),
        IoCommand::Write { span, .. } => (&counters.writes, Some((&counters.bytes_written, span.length))),
        IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, blocks, .. }) => {
            (&counters.writes, Some((&counters.bytes_written, u64::from(*blocks) * BLOCK_BYTES as u64)))
        }
        IoCommand::WriteUncorrectable { .. }
        | IoCommand::Copy { .. }
        | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Copy, .. }) => (&counters.writes, None),
        IoCommand::Zero { .. } | IoCommand::DatasetManagement { .. } => (&counters.trims, None),
        IoCommand::OpenChannel(VectorCommand { action: VectorAction::Reset, .. }) => (&counters.trims, None),
        IoCommand::Flush => (&counters.flushes, None),
        IoCommand::HandleStatus { .. }
        | IoCommand::HandleUpdate { .. }
        | IoCommand::FlashAlloc { .. }
        | IoCommand::FlashAllocRange { .. }
        | IoCommand::Nothing => {
            if !status.is_success() {
                counters.errors.add(1);
            }
            return;
        }
    };
    counter.add(1);
    match moved {
        _ if !status.is_success() => counters.errors.add(1),
        Some((counter, bytes)) => counter.add(bytes),
        None => {}
    }
}

/// Whether a request is the write that a host sends data for.
fn is_write(part: Part, command: &Command) -> bool {
    match (part, command.io.expect("an I/O command").command) {
        (Part::Bytes(ByteRequest::Write { .. }), IoCommand::Write { .. }) => true,
        (Part::Vector, io) => matches!(
            io,
            IoCommand::Write { .. } | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, .. })
        ),
        _ => false,
    }
}

/// Bytes of frames that a request holds, more or less.
fn payload_bytes(part: Part, command: &IoCommand) -> u64 {
    match (part, command) {
        (
            Part::Bytes(
                ByteRequest::Read { length, .. }
                | ByteRequest::Write { length, .. }
                | ByteRequest::Exchange { length, .. }
                | ByteRequest::WriteUncorrectable { length, .. },
            ),
            _,
        ) => length,
        (Part::Vector, IoCommand::Write { span, .. }) => span.length,
        (Part::Vector, IoCommand::OpenChannel(vector)) => match vector.action {
            VectorAction::Read | VectorAction::Write => u64::from(vector.blocks) * BLOCK_BYTES as u64,
            VectorAction::Reset | VectorAction::Copy => 0,
        },
        _ => 0,
    }
}

/// All of `span` in pieces of one transaction, the first one last.
fn pieces(span: Span) -> impl Iterator<Item = Span> {
    let count = span.length.div_ceil(PIECE_BYTES_MAX);
    let piece = move |index| {
        let offset = span.offset + index * PIECE_BYTES_MAX;
        Span { offset, length: PIECE_BYTES_MAX.min(span.end() - offset) }
    };
    (0..count).rev().map(piece)
}
