//! A host without a transport, and drives that only know figures.

use openftl_core::{ChunkId, Geometry, Time};
use openftl_media::{ChunkDescriptor, ChunkState, MediaError, Notification};
use openftl_nvme::command::ReservationCommand;
use openftl_nvme::wire::entry::SglDescriptor;
use openftl_nvme::wire::fabrics::{ANY_CONTROLLER, ConnectData};
use openftl_nvme::wire::{U32, opcode, zero_ended};
use openftl_nvme::{
    Answer, BlockFormat, CommandId, CompletionEntry, Connection, Drives, Effect, Health, Hints, HostsAllowed, Io,
    IoCommand, Namespace, NamespaceKind, NamespaceName, Nqn, Outcome, PlacementCounts, Queue, Status, SubmissionEntry,
    SubsystemConfig, Target,
};
use openftl_parts::{HandleEvent, HandleWatch};
use zerocopy::{FromZeros, IntoBytes};

pub const SUBSYSTEM: &str = "nqn.2024-01.org.example:drive";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub const HOST_ID: [u8; 16] = [0x11; 16];

/// Bytes of the block namespaces.
pub const CAPACITY: u64 = 64 << 20;

/// Drives whose figures a test sets.
pub struct Figures {
    pub health: Health,
    pub geometry: Geometry,
    pub notifications: Vec<Notification>,
    pub dulbe: Vec<(u32, bool)>,
    pub counts: PlacementCounts,
    /// What each namespace was last told to keep note of.
    pub watched: Vec<(u32, HandleWatch)>,
    pub handle_events: Vec<HandleEvent>,
}

impl Drives for Figures {
    fn health(&mut self, _: Time, _: usize) -> Health {
        self.health
    }

    fn bytes_in_use(&mut self, _: NamespaceName) -> u64 {
        8 << 20
    }

    fn chunk_report(
        &mut self,
        _: Time,
        _: NamespaceName,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        let chunks = self.geometry.chunk_ids().skip_while(|chunk| *chunk != first);
        for (descriptor, chunk) in descriptors.iter_mut().zip(chunks) {
            *descriptor = ChunkDescriptor {
                chunk,
                state: ChunkState::Open,
                wear_index: 3,
                blocks: self.geometry.blocks_per_chunk,
                write_pointer: 4,
            };
        }
        Ok(())
    }

    fn notifications(
        &mut self,
        _: Time,
        _: NamespaceName,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        notifications.extend(self.notifications.iter().filter(|notification| notification.count > after));
        Ok(())
    }

    fn placement_counts(&mut self, _: NamespaceName) -> PlacementCounts {
        self.counts
    }

    fn watch_handles(&mut self, namespace: NamespaceName, watch: HandleWatch) {
        self.watched.retain(|(id, _)| *id != namespace.id);
        self.watched.push((namespace.id, watch));
    }

    fn handle_events(&mut self, _: NamespaceName, events: &mut Vec<HandleEvent>) {
        events.extend(&self.handle_events);
    }

    fn set_dulbe(&mut self, namespace: NamespaceName, dulbe: bool) {
        self.dulbe.push((namespace.id, dulbe));
    }
}

/// A target with one subsystem: namespace 1 of 4 KiB blocks, 2 of 512 bytes, 5 Open-Channel.
pub struct World {
    pub target: Target,
    pub drives: Figures,
    pub now: Time,
    /// What the last command returned.
    pub data: Vec<u8>,
    /// What else is to be done after it.
    pub effect: Option<Effect>,
    next_id: u16,
}

pub fn config(nqn: &str) -> SubsystemConfig {
    SubsystemConfig {
        nqn: Nqn::new(nqn).unwrap(),
        serial: "SN1".to_owned(),
        model: "OpenFTL".to_owned(),
        firmware: "0.1.0".to_owned(),
        hosts: HostsAllowed::Any,
        requires_authentication: false,
        is_shared: false,
        in_capsule_bytes: 8192,
    }
}

pub fn block(id: u32, format: BlockFormat) -> Namespace {
    Namespace { id, uuid: [id as u8; 16], kind: NamespaceKind::Block { format, bytes: CAPACITY, hints: Hints::None } }
}

impl World {
    pub fn new() -> World {
        World::with(config(SUBSYSTEM))
    }

    pub fn with(config: SubsystemConfig) -> World {
        World::of(config, [Hints::None; 2])
    }

    /// Whose namespaces 1 and 2 take such hints.
    pub fn with_hints(hints: [Hints; 2]) -> World {
        World::of(config(SUBSYSTEM), hints)
    }

    fn of(config: SubsystemConfig, [of_first, of_second]: [Hints; 2]) -> World {
        let mut target = Target::new("SN0", "OpenFTL", "0.1.0");
        let subsystem = target.add_subsystem(config).unwrap();
        let geometry = Geometry::tiny();
        let open_channel = Namespace { id: 5, uuid: [5; 16], kind: NamespaceKind::OpenChannel(geometry) };
        let hinted = |id, format, hints| {
            let kind = NamespaceKind::Block { format, bytes: CAPACITY, hints };
            Namespace { kind, ..block(id, format) }
        };
        let first = hinted(1, BlockFormat::FourKib, of_first);
        for namespace in [first, hinted(2, BlockFormat::Bytes512, of_second), open_channel] {
            target.attach(subsystem, namespace).unwrap();
        }
        let health = Health::default();
        let drives = Figures {
            health,
            geometry,
            notifications: Vec::new(),
            dulbe: Vec::new(),
            counts: PlacementCounts::default(),
            watched: Vec::new(),
            handle_events: Vec::new(),
        };
        World { target, drives, now: Time::ZERO, data: Vec::new(), effect: None, next_id: 0 }
    }

    /// A name for the next command.
    pub fn name(&mut self, mut entry: SubmissionEntry) -> SubmissionEntry {
        self.next_id = self.next_id.wrapping_add(1);
        entry.command_id = self.next_id.into();
        entry
    }

    /// Makes an admin queue.
    pub fn connect(&mut self) -> Queue {
        self.connect_with(connect(0, 31), connect_data(SUBSYSTEM, ANY_CONTROLLER)).0
    }

    /// Makes an admin queue and enables the controller.
    pub fn ready(&mut self) -> Queue {
        let mut queue = self.connect();
        self.enable(&mut queue);
        queue
    }

    pub fn enable(&mut self, queue: &mut Queue) {
        self.ok(queue, property_set(0x14, 6 << 16 | 4 << 20 | 1));
        assert_eq!(self.ok(queue, property_get(0x1c, 4)), 1);
    }

    /// Makes I/O queue `id` of the controller of `admin`.
    pub fn connect_io(&mut self, admin: &Queue, id: u16) -> Queue {
        self.connect_with(connect(id, 127), connect_data(SUBSYSTEM, admin.controller().id)).0
    }

    pub fn connect_with(&mut self, entry: SubmissionEntry, data: ConnectData) -> (Queue, CompletionEntry) {
        match self.try_connect(entry, data) {
            Connection::Made(queue, completion) => (queue, completion),
            other => panic!("{other:?}"),
        }
    }

    pub fn try_connect(&mut self, entry: SubmissionEntry, data: ConnectData) -> Connection {
        let entry = self.name(entry);
        self.target.connect(self.now, &entry, Some(data.as_bytes()))
    }

    /// Why a Connect is refused, and its result.
    pub fn refused_connect(&mut self, entry: SubmissionEntry, data: ConnectData) -> (Status, u64) {
        match self.try_connect(entry, data) {
            Connection::Refused(completion) => (completion.status(), completion.result.get()),
            other => panic!("{other:?}"),
        }
    }

    /// Runs a command to its end, with the data that it needs; `None` if it is held.
    pub fn run(&mut self, queue: &mut Queue, entry: SubmissionEntry, data: &[u8]) -> Option<CompletionEntry> {
        let entry = self.name(entry);
        queue.begin(CommandId(entry.command_id.get())).unwrap();
        self.serve_with(queue, &entry, data)
    }

    /// Serves a command that was taken off its queue.
    pub fn serve(&mut self, queue: &mut Queue, entry: &SubmissionEntry) -> Option<CompletionEntry> {
        self.serve_with(queue, entry, &[])
    }

    fn serve_with(&mut self, queue: &mut Queue, entry: &SubmissionEntry, data: &[u8]) -> Option<CompletionEntry> {
        let id = CommandId(entry.command_id.get());
        self.effect = None;
        if !queue.is_admin() && entry.opcode != opcode::FABRICS {
            let answer = match self.target.io(self.now, queue, entry) {
                Ok(Io { namespace, command: IoCommand::Reservation(command), .. }) => {
                    self.reservation(queue, entry, namespace, command)
                }
                Ok(_) => Answer::of(0),
                Err(answer) => answer,
            };
            return Some(queue.complete(id, answer));
        }
        let (target, drives) = (&mut self.target, &mut self.drives);
        let mut outcome = target.command(self.now, queue, entry, None, drives, &mut self.data);
        if let Outcome::Needs(bytes) = outcome {
            assert!(self.data.is_empty());
            let mut data = data.to_vec();
            data.resize(bytes as usize, 0);
            outcome = target.command(self.now, queue, entry, Some(&data), drives, &mut self.data);
        }
        match outcome {
            Outcome::Done(answer) => Some(queue.complete(id, answer)),
            Outcome::DonePadded(answer, bytes) => {
                assert!(self.data.len() <= bytes as usize, "no more is sent than was asked for");
                self.data.resize(bytes as usize, 0);
                Some(queue.complete(id, answer))
            }
            Outcome::DoneAnd(answer, effect) => {
                self.effect = Some(effect);
                Some(queue.complete(id, answer))
            }
            Outcome::Held => None,
            Outcome::Authentication(_) => Some(queue.complete(id, Answer::of(0))),
            Outcome::Needs(_) => panic!("it has what it needs"),
        }
    }

    /// Carries out a command about a reservation, with the end of its entry as keys.
    fn reservation(
        &mut self,
        queue: &Queue,
        entry: &SubmissionEntry,
        namespace: u32,
        command: ReservationCommand,
    ) -> Answer {
        if let ReservationCommand::Report { .. } = command {
            assert!(self.target.reservation_report(queue, namespace).len().is_multiple_of(64));
            return Answer::of(0);
        }
        match self.target.reserve(queue, namespace, command, &entry.as_bytes()[48..]) {
            Ok(_) => Answer::of(0),
            Err(refusal) => Answer::from(refusal.status),
        }
    }

    /// The result of a command that succeeds.
    pub fn ok(&mut self, queue: &mut Queue, entry: SubmissionEntry) -> u64 {
        let completion = self.run(queue, entry, &[]).expect("not held");
        assert!(completion.status().is_success(), "{:?}", completion.status());
        completion.result.get()
    }

    /// The status of a command that does not.
    pub fn refused(&mut self, queue: &mut Queue, entry: SubmissionEntry) -> Status {
        let completion = self.run(queue, entry, &[]).expect("not held");
        assert!(!completion.status().is_success() && self.data.is_empty());
        Status::from_field(completion.status().field() & !(1 << 13))
    }

    /// Parses an I/O command.
    pub fn io(&mut self, queue: &mut Queue, entry: SubmissionEntry) -> Result<Io, Status> {
        let entry = self.name(entry);
        let id = CommandId(entry.command_id.get());
        queue.begin(id).unwrap();
        let io = self.target.io(self.now, queue, &entry);
        let answer = io.err().unwrap_or(Answer::of(0));
        let _ = queue.complete(id, answer);
        io.map_err(|answer| Status::from_field(answer.status.field() & !(1 << 13)))
    }

    /// The results of the held commands that have ended.
    pub fn events(&mut self, queue: &mut Queue) -> Vec<(Status, u64)> {
        let controller = queue.controller();
        std::iter::from_fn(|| self.target.take_event(controller))
            .map(|(id, answer)| queue.complete(id, answer))
            .map(|completion| (completion.status(), completion.result.get()))
            .collect()
    }
}

/// A command with room for a megabyte of data.
pub fn command(opcode: u8, namespace: u32, dwords: [u32; 6]) -> SubmissionEntry {
    SubmissionEntry {
        opcode,
        flags: SubmissionEntry::PSDT_SGL,
        namespace: namespace.into(),
        data: SglDescriptor {
            length: (1 << 20).into(),
            identifier: SglDescriptor::TRANSPORT,
            ..SglDescriptor::default()
        },
        dwords_10_15: dwords.map(U32::new),
        ..SubmissionEntry::default()
    }
}

pub fn fabrics(kind: u8, dwords: [u32; 6]) -> SubmissionEntry {
    command(opcode::FABRICS, u32::from(kind), dwords)
}

pub fn property_get(offset: u32, bytes: u8) -> SubmissionEntry {
    fabrics(opcode::fabrics::PROPERTY_GET, [u32::from(bytes == 8), offset, 0, 0, 0, 0])
}

pub fn property_set(offset: u32, value: u32) -> SubmissionEntry {
    fabrics(opcode::fabrics::PROPERTY_SET, [0, offset, value, 0, 0, 0])
}

pub fn connect(queue: u16, last_entry: u16) -> SubmissionEntry {
    fabrics(opcode::fabrics::CONNECT, [u32::from(queue) << 16, u32::from(last_entry), 0, 0, 0, 0])
}

pub fn connect_data(subsystem: &str, controller: u16) -> ConnectData {
    let mut data = ConnectData::new_zeroed();
    data.host_id = HOST_ID;
    data.controller_id = controller.into();
    data.subsystem_nqn = zero_ended(subsystem);
    data.host_nqn = zero_ended(HOST);
    data
}

pub fn identify(structure: u8, namespace: u32) -> SubmissionEntry {
    command(opcode::admin::IDENTIFY, namespace, [u32::from(structure), 0, 0, 0, 0, 0])
}

/// Get Log Page of `bytes` bytes from `offset` on.
pub fn log_page(page: u8, namespace: u32, bytes: u32, offset: u64) -> SubmissionEntry {
    let dwords = bytes / 4 - 1;
    let low = u32::from(page) | (dwords & 0xffff) << 16;
    command(opcode::admin::GET_LOG_PAGE, namespace, [low, dwords >> 16, offset as u32, (offset >> 32) as u32, 0, 0])
}

pub fn retained(mut entry: SubmissionEntry) -> SubmissionEntry {
    entry.dwords_10_15[0] = (entry.dword(10) | 1 << 15).into();
    entry
}

pub fn get_feature(feature: u8, select: u32) -> SubmissionEntry {
    command(opcode::admin::GET_FEATURES, 0, [u32::from(feature) | select << 8, 0, 0, 0, 0, 0])
}

pub fn set_feature(feature: u8, namespace: u32, value: u32) -> SubmissionEntry {
    command(opcode::admin::SET_FEATURES, namespace, [u32::from(feature), value, 0, 0, 0, 0])
}

pub fn event_request() -> SubmissionEntry {
    command(opcode::admin::ASYNCHRONOUS_EVENT_REQUEST, 0, [0; 6])
}

/// A read, write or the like of `blocks` blocks.
pub fn ranged(opcode: u8, namespace: u32, first: u64, blocks: u32) -> SubmissionEntry {
    command(opcode, namespace, [first as u32, (first >> 32) as u32, blocks - 1, 0, 0, 0])
}
