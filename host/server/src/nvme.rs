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

mod admin_commands;
mod admission;
mod completion;
mod heap;
mod io_commands;
mod login;
mod page_commands;
mod pair;
mod payload;
mod requests;
mod reservations;
mod value_commands;

use std::collections::VecDeque;

use openftl_bytes::{ByteRequest, RequestId};
use openftl_core::Time;
use openftl_nvme::controller::Authentication;
use openftl_nvme::wire::opcode::fabrics;
use openftl_nvme::{Answer, CommandId, HostId, Io, Queue, QueueError, Status, SubmissionEntry};
use openftl_nvme_auth::Controller;
use openftl_nvme_tcp::sgl::{Data, SglError};
use openftl_nvme_tcp::target::{Event, INPUT_BYTES_MIN, Slot, Target, TargetConfig};
use openftl_parts::target::Extent;
use openftl_parts::words::Handle;

use crate::fabric::Fabric;
use crate::link::{INPUT_BYTES, Link, Movers, Over};
use crate::parting::Parting;
use crate::served::Served;
use crate::{Counters, ServedDrive, ServerConfig};

/// Headers and completions that wait to be sent, in bytes, above which no more commands are taken.
const SMALL_WAITING_BYTES_MAX: usize = 256 << 10;

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
    /// A command of a device, or one that changes zones: it has all it needs, and comes after those before it.
    Ready(RequestId),
    /// The drive is at work.
    Running,
    /// It ends when something happens.
    Held,
    /// It ends when what the hosts that it has preempted have under way has ended.
    Fencing,
    /// Its data come and are of no use any more: then it ends like this.
    Passing(Status),
    /// A message of an authentication whose key or secret is being computed.
    Computing(Authentication),
}

/// One thing that is asked of what is served.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// This; of a device or a zoned drive, its command that means the same.
    Bytes(ByteRequest),
    /// The command itself, as it came.
    Whole,
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
    /// It ends like this when its data have come, or its request has ended.
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
    /// The host of the queue.
    host: HostId,
    /// Where hosts have to show who they are.
    authentication: Option<Box<Controller>>,
    /// Others had their step of an authentication in this turn, and this one's comes in another.
    is_put_off: bool,
    last: Last,
    commands: Vec<Option<Command>>,
    /// Commands that wait for frames or a place, in order.
    waiting: VecDeque<Slot>,
    /// Commands of devices, and those that change zones, that have their frames, in the order in which they came: so they are started.
    line: VecDeque<Slot>,
    /// Requests of the drives that are under way or whose data are being sent.
    pub requests: usize,
    /// Bytes of frames that they hold.
    pub bytes: u64,
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
    /// Where there are reactors: which data those are, what comes next of them, and how much at most.
    straight: Option<(Slot, u32, u32)>,
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
            host: HostId::default(),
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
            straight: None,
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
        self.is_put_off || (self.link.may_receive() && self.wants_input()) || self.link.may_send()
    }

    /// When the peer has kept the server waiting for too long.
    pub fn deadline(&self, config: &ServerConfig) -> Option<Time> {
        let handshake = self.is_shaking_hands().then(|| self.link.accepted + config.handshake_max);
        let authentication = self.authentication.as_ref().map(|authentication| authentication.deadline());
        let stall = self.link.deadline().filter(|_| self.queue.is_some());
        [handshake, authentication, stall].into_iter().flatten().filter(|due| *due != Time::NEVER).min()
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
    pub fn receive<T: ServedDrive>(
        &mut self,
        now: Time,
        served: &mut [Served<'_, T>],
        movers: &mut Movers<'_>,
        fabric: &mut Fabric,
        counters: &Counters,
    ) -> Result<(), Over> {
        if !self.link.may_receive() || !self.wants_input() || self.link.input().len() > INPUT_BYTES / 2 {
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
            return self.receive_straight(now, served, movers);
        }
        let is_expected = self.is_long_expected && self.session.is_owed();
        self.link.receive(now, is_expected, movers)
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
