//! One NVMe/TCP connection: its session, its queue, and the commands under way on it.
//!
//! ```text
//!   Command ──▶ admin, fabrics ──▶ data in the heap ──▶ target.command ──▶ completion
//!           └─▶ write ──▶ frames ──▶ data from the socket into them ──▶ drive ──▶ completion
//!           └─▶ read  ──▶ frames ──▶ drive ──▶ data from them to the socket, completion
//!           └─▶ others: one request of the drive after the other
//! ```
//!
//! Nobody waits in the stream: a write that gets no frames is parked with the data of its capsule, so that data that others
//! were asked for come through. What is kept in the heap is bounded for each connection; beyond that a command ends with
//! a status that hosts answer by trying again.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use openftl_bytes::device::DeviceFinished;
use openftl_bytes::{ByteRequest, Finished, RequestId};
use openftl_core::Time;
use openftl_ftl::target::Durability;
use openftl_nvme::command::Refusal;
use openftl_nvme::command::open_channel::{VectorAction, VectorCommand, answer_of};
use openftl_nvme::controller::Effect;
use openftl_nvme::namespace::ALL_NAMESPACES;
use openftl_nvme::{
    Answer, CommandId, CompletionEntry, Connection as Connected, Io, IoCommand, Outcome, Queue, QueueError, Span,
    Status, SubmissionEntry,
};
use openftl_nvme_tcp::sgl::{Data, SglError};
use openftl_nvme_tcp::target::{Ending, Event, INPUT_BYTES_MIN, Slot, Target, TargetConfig};
use zerocopy::IntoBytes;

use crate::device_request::{Lists, device_request};
use crate::fabric::Fabric;
use crate::link::{DIRECT_BYTES_MIN, INPUT_BYTES, Link, Over};
use crate::served::{Ended, Served};
use crate::{ServedDrive, ServerConfig, Ticket, What};

/// Data of commands that a connection keeps in the heap: those of admin commands and range lists, what is compared and
/// copied, and writes that wait for frames.
const HEAP_BYTES_MAX: usize = 4 << 20;

/// Headers and completions that wait to be sent, in bytes, above which no more commands are taken.
const SMALL_WAITING_BYTES_MAX: usize = 256 << 10;

/// The most bytes of a drive that one request of a longer command reads.
const PIECE_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(INPUT_BYTES > 2 * INPUT_BYTES_MIN);

/// What a command is at.
enum Stage {
    /// Its data come into the heap.
    Collecting(Vec<u8>),
    /// A write that has no frames yet; with the data that were in its capsule, as far as they have come.
    Parked { data: Vec<u8>, is_whole: bool },
    /// Its data come into the frames of this request.
    Filling(RequestId),
    /// A command of a device that has all it needs, and comes after those before it.
    Ready(RequestId),
    /// The drive is at work.
    Running,
    /// It ends when something happens.
    Held,
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
    /// Which of those that are served it is for.
    export: usize,
    stage: Stage,
    /// What is still to be asked for and of whom, the next one last.
    left: Vec<(usize, Part)>,
    /// What the host sent to be compared, what was read to be copied, or a list of addresses.
    pub heap: Vec<u8>,
}

impl Command {
    fn entry(&self) -> &SubmissionEntry {
        SubmissionEntry::of(&self.entry)
    }

    fn id(&self) -> CommandId {
        CommandId(self.entry().command_id.get())
    }
}

pub(crate) struct NvmeConnection {
    pub link: Link,
    session: Target,
    pub queue: Option<Queue>,
    commands: Vec<Option<Command>>,
    /// Commands that wait for frames or a place, in order.
    waiting: VecDeque<Slot>,
    /// Commands of devices that have their frames, in the order in which they came: a device sees them in that order.
    line: VecDeque<Slot>,
    /// Requests of the drives that are under way or whose data are being sent.
    requests: usize,
    heap_bytes: usize,
    answer: Vec<u8>,
}

/// What a turn of a connection works with.
pub(crate) struct Turn<'t, 's, T: ServedDrive> {
    pub now: Time,
    pub slot: u32,
    pub generation: u32,
    pub served: &'t mut [Served<'s, T>],
    pub fabric: &'t mut Fabric,
}

impl NvmeConnection {
    pub fn new(now: Time, socket: OwnedFd) -> NvmeConnection {
        NvmeConnection {
            link: Link::new(now, socket),
            session: Target::new(TargetConfig::default()),
            queue: None,
            commands: Vec::new(),
            waiting: VecDeque::new(),
            line: VecDeque::new(),
            requests: 0,
            heap_bytes: 0,
            answer: Vec::new(),
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
        (self.link.readable && self.wants_input()) || (self.link.writable && !self.link.output.is_empty())
    }

    /// When the peer has kept the server waiting for too long.
    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        if self.queue.is_none() {
            return Some(self.link.accepted + config.handshake_max);
        }
        let owes = self.session.is_owed() || !self.link.output.is_empty();
        owes.then(|| self.link.moved + config.stall_max)
    }

    pub fn is_over(&self) -> bool {
        self.link.closing && self.requests == 0 && self.link.output.is_empty()
    }

    fn wants_input(&self) -> bool {
        !self.link.ended && !self.link.closing && self.may_take_more()
    }

    fn may_take_more(&self) -> bool {
        self.link.output.small_waiting() < SMALL_WAITING_BYTES_MAX
    }

    /// Takes what the socket holds, in one system call.
    pub fn receive(&mut self, now: Time) -> Result<(), Over> {
        if !self.link.readable || !self.wants_input() || self.link.input().len() > INPUT_BYTES / 2 {
            return Ok(());
        }
        self.link.receive(now)
    }

    /// Serves what was received.
    pub fn take_commands<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        self.admit_waiting(turn);
        while !self.link.closing && self.may_take_more() {
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
                Event::Terminated(_) => self.link.closing = true,
            }
        }
        if self.link.ended {
            self.link.closing = true;
        }
        Ok(())
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
        if let Some(queue) = &mut self.queue {
            match queue.begin(id) {
                Ok(()) => {}
                Err(QueueError::IdInUse(_)) => {
                    let refused = queue.refuse(id);
                    self.send_completion(slot, &refused);
                    return Ok(());
                }
                Err(QueueError::Overrun { .. }) => return Err(Over::Expelled),
            }
        }
        let known = data.unwrap_or(Data::None);
        let (left, heap) = (Vec::new(), Vec::new());
        let command = Command { entry, data: known, io: None, export: 0, stage: Stage::Running, left, heap };
        self.commands[slot.index()] = Some(command);
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
        match turn.fabric.target.io(queue, entry) {
            Ok(io) => {
                let command = self.commands[slot.index()].as_mut().expect("it has just begun");
                command.io = Some(io);
                command.export = turn.fabric.export(io.namespace);
                if list_bytes > 0 {
                    // It comes right behind the command, before anything else.
                    let list = Vec::with_capacity(list_bytes as usize);
                    self.heap_bytes += list.capacity();
                    command.stage = Stage::Collecting(list);
                    return Ok(());
                }
                self.start(slot, io, turn)
            }
            Err(answer) => self.finish(slot, answer, turn),
        }
    }

    /// Serves the Connect command.
    fn connect<T: ServedDrive>(
        &mut self,
        slot: Slot,
        data: Option<&[u8]>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let entry = self.commands[slot.index()].as_ref().expect("it has begun").entry;
        match turn.fabric.target.connect(turn.now, SubmissionEntry::of(&entry), data) {
            Connected::Needs(bytes) => self.collect(slot, bytes, turn),
            Connected::Made(queue, completion) => {
                // SQSIZE and CATTR of Connect (Base, "Connect Command").
                let entries = usize::from(u16::from_le_bytes([entry[44], entry[45]])) + 1;
                self.session.open_queue(entries, entry[46] & 0b100 == 0);
                self.queue = Some(queue);
                self.send_completion(slot, &completion);
                Ok(())
            }
            Connected::Refused(completion) => {
                self.send_completion(slot, &completion);
                self.link.closing = true;
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
        let mut answer = std::mem::take(&mut self.answer);
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
            Outcome::DoneAnd(done, effect) => {
                if effect == Effect::CloseQueue {
                    self.link.closing = true;
                } else {
                    turn.fabric.effects.push((name, effect));
                }
                self.finish_with(slot, done, &answer, turn)
            }
            Outcome::Authentication(_) => self.finish(slot, Answer::from(Status::INVALID_OPCODE), turn),
        };
        self.answer = answer;
        if let Some(queue) = self.queue.as_ref().filter(|queue| queue.is_admin()) {
            let name = queue.controller();
            self.take_events(name, turn)?;
        }
        result
    }

    /// Ends held commands for which something has happened.
    pub fn take_events<T: ServedDrive>(
        &mut self,
        name: openftl_nvme::queue::ControllerName,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        while let Some((id, answer)) = turn.fabric.target.take_event(name) {
            let held = |command: &Option<Command>| command.as_ref().is_some_and(|command| command.id() == id);
            let Some(index) = self.commands.iter().position(held) else { continue };
            let slot = self.session.slot_at(index);
            self.finish(slot, answer, turn)?;
        }
        Ok(())
    }

    /// Has the data of a command come into the heap.
    fn collect<T: ServedDrive>(&mut self, slot: Slot, bytes: u32, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        if self.heap_bytes + bytes as usize > HEAP_BYTES_MAX {
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let command = self.commands[slot.index()].as_mut().expect("it has begun");
        let mut wanted = bytes;
        match command.data {
            // All of them come, asked for or not: Linux sends a whole page with a few ranges.
            Data::InCapsule(most) if most >= bytes => wanted = most,
            Data::OnRequest(most) if most >= bytes => {
                self.session.request(slot, bytes, &mut self.link.output.small);
                self.link.output.seal();
            }
            _ => return self.finish(slot, Answer::from(Status::DATA_SGL_LENGTH_INVALID), turn),
        }
        let data = Vec::with_capacity(wanted as usize);
        self.heap_bytes += data.capacity();
        let command = self.commands[slot.index()].as_mut().expect("it has begun");
        command.stage = Stage::Collecting(data);
        Ok(())
    }

    /// Starts an I/O command, or has its data come.
    fn start<T: ServedDrive>(&mut self, slot: Slot, io: Io, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let export = turn.fabric.export(io.namespace);
        let request = |request| vec![(export, Part::Bytes(request))];
        if let IoCommand::OpenChannel(vector) = io.command {
            let command = self.commands[slot.index()].as_ref().expect("it has just begun");
            if let Err(refusal) = Lists::default().read(&vector, &command.heap) {
                return self.refuse(slot, refusal, turn);
            }
        }
        let left = match io.command {
            IoCommand::Write { .. } | IoCommand::OpenChannel(VectorCommand { action: VectorAction::Write, .. }) => {
                if !self.admit_write(slot, turn) {
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
            IoCommand::OpenChannel(_) => vec![(export, Part::Vector)],
            IoCommand::Flush if io.namespace == ALL_NAMESPACES => {
                (0..turn.served.len()).map(|export| (export, Part::Bytes(ByteRequest::Flush))).collect()
            }
            IoCommand::Flush => request(ByteRequest::Flush),
            IoCommand::Read(Span { offset, length }) => request(ByteRequest::Read { offset, length }),
            IoCommand::Zero { span: Span { offset, length }, durability, .. } => {
                request(ByteRequest::Zero { offset, length, durability })
            }
            IoCommand::Verify(span) => pieces(span).map(|piece| (export, Part::Bytes(piece))).collect(),
        };
        self.commands[slot.index()].as_mut().expect("it has just begun").left = left;
        self.next_request(slot, turn)
    }

    /// Makes the next request of a command to its drive, or ends it.
    fn next_request<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let Some((export, part)) = command.left.last().copied() else {
            return self.finish(slot, Answer::from(Status::SUCCESS), turn);
        };
        let io = command.io.expect("an I/O command");
        let ticket = Ticket { slot: turn.slot, generation: turn.generation, what: What::Nvme(slot) };
        let served = &mut turn.served[export];
        let is_next = served.waiters.front().is_none_or(|front| *front == turn.slot)
            && (!served.is_device() || self.waiting.front().is_none_or(|front| *front == slot));
        let admitted = match part {
            _ if !is_next => None,
            Part::Bytes(request) if !served.is_device() => served.admit(ticket, request),
            part => served.admit_command(ticket, device_request(command, part, &mut Lists::default())),
        };
        let Some(id) = admitted else {
            self.wait(slot, export, turn);
            return Ok(());
        };
        command.left.pop();
        command.stage = Stage::Running;
        if let (Part::Bytes(ByteRequest::Write { .. }), IoCommand::Copy { .. }) = (part, io.command) {
            let heap = std::mem::take(&mut command.heap);
            served.fill(id, 0, &heap);
            self.heap_bytes -= heap.len();
        }
        self.requests += 1;
        if served.is_device() {
            command.stage = Stage::Ready(id);
            self.line.push_back(slot);
            self.advance_line(turn);
        } else {
            served.start(turn.now, id);
        }
        Ok(())
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

    fn wait<T: ServedDrive>(&mut self, slot: Slot, export: usize, turn: &mut Turn<'_, '_, T>) {
        if !self.waiting.contains(&slot) {
            self.waiting.push_back(slot);
        }
        let waiters = &mut turn.served[export].waiters;
        if !waiters.contains(&turn.slot) {
            waiters.push_back(turn.slot);
        }
    }

    /// Gives a write its frames, if there are any, and has its data come.
    fn admit_write<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> bool {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let io = command.io.expect("an I/O command");
        let ticket = Ticket { slot: turn.slot, generation: turn.generation, what: What::Nvme(slot) };
        let served = &mut turn.served[command.export];
        let is_device = served.is_device();
        if self.link.is_stuck()
            || served.waiters.front().is_some_and(|front| *front != turn.slot)
            || is_device && self.waiting.front().is_some_and(|front| *front != slot)
        {
            return false;
        }
        let admitted = match io.command {
            IoCommand::Write { span: Span { offset, length }, durability } if !is_device => {
                served.admit(ticket, ByteRequest::Write { offset, length, durability })
            }
            _ => served.admit_command(ticket, device_request(command, Part::Vector, &mut Lists::default())),
        };
        let Some(id) = admitted else { return false };
        self.requests += 1;
        if is_device {
            self.line.push_back(slot);
        }
        let mut is_whole = false;
        if let Stage::Parked { data, is_whole: whole } = std::mem::replace(&mut command.stage, Stage::Filling(id)) {
            served.fill(id, 0, &data);
            self.heap_bytes -= data.capacity();
            is_whole = whole;
        }
        if is_whole {
            self.filled(slot, id, turn);
        } else if let Data::OnRequest(_) = command.data {
            self.session.request(slot, served.length(id) as u32, &mut self.link.output.small);
            self.link.output.seal();
        }
        true
    }

    /// All the data of a write are in its frames.
    fn filled<T: ServedDrive>(&mut self, slot: Slot, id: RequestId, turn: &mut Turn<'_, '_, T>) {
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

    fn park<T: ServedDrive>(&mut self, slot: Slot, turn: &mut Turn<'_, '_, T>) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let bytes = if let Data::InCapsule(bytes) = command.data { bytes as usize } else { 0 };
        if self.heap_bytes + bytes > HEAP_BYTES_MAX {
            return self.finish(slot, Answer::from(Status::NAMESPACE_NOT_READY), turn);
        }
        let data = Vec::with_capacity(bytes);
        self.heap_bytes += data.capacity();
        command.stage = Stage::Parked { data, is_whole: false };
        let export = command.export;
        self.wait(slot, export, turn);
        Ok(())
    }

    /// Tries those again that wait for frames, in order.
    fn admit_waiting<T: ServedDrive>(&mut self, turn: &mut Turn<'_, '_, T>) {
        while let Some(slot) = self.waiting.front().copied() {
            let command = self.commands[slot.index()].as_ref().expect("it waits");
            let export = command.left.last().map_or(command.export, |(export, _)| *export);
            if matches!(command.stage, Stage::Parked { .. }) {
                if !self.admit_write(slot, turn) {
                    return;
                }
            } else {
                let left = command.left.len();
                let made = self.next_request(slot, turn);
                let is_made = made.is_ok()
                    && self.commands[slot.index()].as_ref().is_none_or(|command| command.left.len() < left);
                if !is_made {
                    return;
                }
            }
            self.waiting.pop_front();
            let others = self.waiting.iter().any(|other| {
                let command = self.commands[other.index()].as_ref().expect("it waits");
                command.left.last().map_or(command.export, |(export, _)| *export) == export
            });
            let waiters = &mut turn.served[export].waiters;
            if !others && waiters.front() == Some(&turn.slot) {
                waiters.pop_front();
            }
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
        if let Stage::Filling(id) = command.stage {
            let served = &mut turn.served[command.export];
            let is_direct = self.link.input().is_empty() && u64::from(bytes) >= DIRECT_BYTES_MIN && !served.is_device();
            if is_direct && self.link.readable {
                let came = self.link.receive_into(turn.now, served, id, offset.into())?;
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
            self.session.took(&self.link.input()[..count]);
            self.link.consume(count);
            return Ok(count > 0);
        }
        let (Stage::Collecting(data) | Stage::Parked { data, .. }) = &mut command.stage else {
            unreachable!("data come only where they are wanted")
        };
        let count = (bytes as usize).min(self.link.input().len());
        data.extend_from_slice(&self.link.input()[..count]);
        self.session.took(&self.link.input()[..count]);
        self.link.consume(count);
        Ok(count > 0)
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
                self.requests -= 1;
                self.line.retain(|other| *other != slot);
                self.advance_line(turn);
                self.finish(slot, Answer::from(Status::TRANSIENT_TRANSPORT_ERROR), turn)
            }
            Stage::Parked { is_whole, .. } if intact => {
                *is_whole = true;
                Ok(())
            }
            Stage::Parked { .. } | Stage::Collecting(_) if !intact => {
                self.waiting.retain(|other| *other != slot);
                self.finish(slot, Answer::from(Status::TRANSIENT_TRANSPORT_ERROR), turn)
            }
            Stage::Collecting(data) => {
                let data = std::mem::take(data);
                self.heap_bytes -= data.capacity();
                self.collected(slot, data, turn)
            }
            Stage::Parked { .. } | Stage::Ready(_) | Stage::Running | Stage::Held => {
                unreachable!("its data are where they belong")
            }
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
        let (export, namespace) = (command.export, turn.fabric.namespace(io.namespace));
        let bytes = |request| (export, Part::Bytes(request));
        let refused = match io.command {
            IoCommand::OpenChannel(_) => {
                self.heap_bytes += data.capacity();
                command.heap = data;
                return self.start(slot, io, turn);
            }
            IoCommand::Compare(Span { offset, length }) => {
                self.heap_bytes += data.capacity();
                command.heap = data;
                command.left = vec![bytes(ByteRequest::Read { offset, length })];
                None
            }
            IoCommand::DatasetManagement { ranges, .. } => match namespace.deallocated(ranges, &data) {
                Ok(spans) => {
                    let trim = |Span { offset, length }| ByteRequest::Trim {
                        offset,
                        length,
                        durability: Durability::Volatile,
                    };
                    command.left = spans.map(trim).map(bytes).collect();
                    None
                }
                Err(refusal) => Some(refusal),
            },
            IoCommand::Copy { first, sources, durability } => match namespace.copy_plan(first, sources, &data) {
                Ok(plan) => {
                    let Span { offset, length } = plan.to;
                    let reads = plan.from().map(|Span { offset, length }| bytes(ByteRequest::Read { offset, length }));
                    command.left = reads.collect();
                    command.left.push(bytes(ByteRequest::Write { offset, length, durability }));
                    command.left.reverse();
                    command.heap = Vec::with_capacity(length as usize);
                    None
                }
                Err(refusal) => Some(refusal),
            },
            _ => unreachable!("only these have data in the heap"),
        };
        match refused {
            Some(refusal) => self.refuse(slot, refusal, turn),
            None => self.next_request(slot, turn),
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
        if status == Success { self.next_request(slot, turn) } else { self.finish(slot, answer, turn) }
    }

    fn request_ended<T: ServedDrive>(
        &mut self,
        slot: Slot,
        export: usize,
        finished: Finished<Ticket>,
        turn: &mut Turn<'_, '_, T>,
    ) -> Result<(), Over> {
        let command = self.commands[slot.index()].as_mut().expect("it is under way");
        let io = command.io.expect("an I/O command");
        let served = &mut turn.served[export];
        let id = finished.id;
        let mut result = finished.result.map_err(Status::from);
        match io.command {
            IoCommand::Read(_) if result.is_ok() && !self.session.is_terminated() => {
                return self.send_read(slot, export, id, Answer::from(Status::SUCCESS), turn);
            }
            IoCommand::Compare(span) if result.is_ok() => {
                let mut from = 0;
                while from < span.length && result.is_ok() {
                    let there = served.slice(id, from);
                    let sent = &command.heap[from as usize..from as usize + there.len()];
                    if there != sent {
                        result = Err(Status::COMPARE_FAILURE);
                    }
                    from += there.len() as u64;
                }
            }
            IoCommand::Copy { .. } if result.is_ok() && !command.left.is_empty() => {
                // A source was read; the destination is written last.
                let (mut from, length) = (0, served.length(id));
                while from < length {
                    let slice = served.slice(id, from);
                    command.heap.extend_from_slice(slice);
                    from += slice.len() as u64;
                }
                self.heap_bytes += length as usize;
            }
            _ => {}
        }
        served.release(id);
        self.requests -= 1;
        match result {
            Ok(()) => self.next_request(slot, turn),
            Err(status) => self.refuse(slot, status.into(), turn),
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
        self.heap_bytes -= command.heap.capacity();
        let served = &turn.served[export];
        let length = served.length(id);
        let queue = self.queue.as_mut().expect("there is a queue");
        let completion = queue.complete(command.id(), answer);
        if self.link.output.is_empty() {
            self.link.moved = turn.now;
        }
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
        let command = self.commands[slot.index()].take().expect("it is under way");
        if let Stage::Collecting(kept) | Stage::Parked { data: kept, .. } = &command.stage {
            self.heap_bytes -= kept.capacity();
        }
        self.heap_bytes -= command.heap.capacity().min(self.heap_bytes);
        if self.session.is_terminated() {
            return Ok(());
        }
        if self.link.output.is_empty() {
            self.link.moved = turn.now;
        }
        let Some(queue) = &mut self.queue else {
            // Before Connect: nothing but Connect is served.
            let completion = CompletionEntry {
                command_id: command.entry().command_id,
                status: (answer.status.field() << 1).into(),
                ..CompletionEntry::default()
            };
            self.send_completion(slot, &completion);
            self.link.closing = true;
            return Ok(());
        };
        let completion = queue.complete(command.id(), answer);
        let output = &mut self.link.output;
        if let Data::ToHost(most) = command.data
            && answer.status.is_success()
            && !data.is_empty()
        {
            let data = &data[..data.len().min(most as usize)];
            let digest = self.session.send_data(slot, data.len() as u32, Ending::Last, &mut output.small);
            output.small.extend_from_slice(data);
            if let Some(mut digest) = digest {
                digest.update(data);
                output.small.extend_from_slice(&digest.bytes());
            }
        }
        self.session.complete(slot, completion_bytes(&completion), &mut output.small);
        output.seal();
        Ok(())
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
        let requests = &mut self.requests;
        self.link.send(now, served, |_, _| *requests -= 1)
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

fn completion_bytes(completion: &CompletionEntry) -> &[u8; 16] {
    completion.as_bytes().try_into().expect("a completion has 16 bytes")
}

/// Reads of all of `span`, the first one last.
fn pieces(span: Span) -> impl Iterator<Item = ByteRequest> {
    let count = span.length.div_ceil(PIECE_BYTES_MAX);
    let piece = move |index| {
        let offset = span.offset + index * PIECE_BYTES_MAX;
        ByteRequest::Read { offset, length: PIECE_BYTES_MAX.min(span.end() - offset) }
    };
    (0..count).rev().map(piece)
}
