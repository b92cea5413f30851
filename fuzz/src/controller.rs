//! What a host says to an NVMe controller, once it has connected: commands on its admin and I/O queues, in any order.
//!
//! ```text
//!   ┌ queue, data ┬ 64 bytes ┐┌ queue, data ┬ 64 bytes ┐ …      bit 0: which queue; bit 1: the data are already there
//! ```
//!
//! Command ids are given out here, so that a completion can be told from all others.

use openftl_core::{ChunkId, Geometry, Time};
use openftl_media::{ChunkDescriptor, ChunkState, MediaError, Notification};
use openftl_nvme::command::pages::{PagePart, change_entry, expect_directory, payload_start};
use openftl_nvme::command::{PageCommand, ReservationCommand, ValueCommand, VectorCommand, ZoneCommand};
use openftl_nvme::wire::entry::SglDescriptor;
use openftl_nvme::wire::fabrics::{ANY_CONTROLLER, ConnectData};
use openftl_nvme::wire::reservation::RegisteredController;
use openftl_nvme::wire::{U32, opcode, zero_ended};
use openftl_nvme::{
    Answer, BlockFormat, CommandId, CompletionEntry, Connection, Drives, Health, Hints, IoCommand, Namespace,
    NamespaceKind, NamespaceName, Nqn, Outcome, PageShape, Queue, SubmissionEntry, SubsystemConfig, Target, ValueShape,
    ZonedShape,
};
use openftl_zones::Zone;
use zerocopy::{FromZeros, IntoBytes};

const NAME: &str = "nqn.2024-01.org.example:drive";

/// Drives that answer something.
struct Figures;

impl Drives for Figures {
    fn health(&mut self, _: Time, _: usize) -> Health {
        Health::default()
    }

    fn bytes_in_use(&mut self, _: NamespaceName) -> u64 {
        u64::MAX
    }

    fn chunk_report(
        &mut self,
        _: Time,
        _: NamespaceName,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        descriptors.fill(ChunkDescriptor {
            chunk: first,
            state: ChunkState::Free,
            wear_index: 0,
            blocks: 16,
            write_pointer: 0,
        });
        Ok(())
    }

    fn notifications(
        &mut self,
        _: Time,
        _: NamespaceName,
        _: u64,
        _: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        Err(MediaError::Unavailable("not here".to_owned()))
    }

    fn set_dulbe(&mut self, _: NamespaceName, _: bool) {}
}

fn fabrics(kind: u8, dwords: [u32; 6]) -> SubmissionEntry {
    SubmissionEntry {
        opcode: opcode::FABRICS,
        namespace: u32::from(kind).into(),
        data: SglDescriptor { length: 1024.into(), identifier: SglDescriptor::TRANSPORT, ..SglDescriptor::default() },
        dwords_10_15: dwords.map(U32::new),
        ..SubmissionEntry::default()
    }
}

fn connected(target: &mut Target, queue: u32, controller: u16) -> Queue {
    let mut data = ConnectData::new_zeroed();
    data.controller_id = controller.into();
    data.subsystem_nqn = zero_ended(NAME);
    data.host_nqn = zero_ended("nqn.2024-01.org.example:host");
    let entry = fabrics(opcode::fabrics::CONNECT, [queue << 16, 63, 0, 0, 0, 0]);
    match target.connect(Time::ZERO, &entry, Some(data.as_bytes())) {
        Connection::Made(queue, _) => queue,
        other => panic!("a good Connect is refused: {other:?}"),
    }
}

/// The zones of the zoned namespace.
const SHAPE: ZonedShape =
    ZonedShape { zones: 9, size: 64, capacity: 48, max_open: 2, max_active: 3, extension_bytes: 64, window_blocks: 16 };

/// A target with a ready controller of one host: its admin queue and an I/O queue.
fn ready() -> (Target, [Queue; 2]) {
    let mut target = Target::new("SN", "OpenFTL", "0.1.0");
    let subsystem =
        target.add_subsystem(SubsystemConfig::new(Nqn::new(NAME).expect("a name"), "SN")).expect("it can be");
    let block = |format, hints| NamespaceKind::Block { format, bytes: 1 << 20, hints };
    let kinds = [
        block(BlockFormat::FourKib, Hints::DataPlacement { handles: 3, is_persistent: false, unit_blocks: 64 }),
        block(BlockFormat::Bytes512, Hints::Streams { streams: 3, unit_blocks: 64 }),
        NamespaceKind::OpenChannel(Geometry::tiny()),
        block(BlockFormat::Bytes512, Hints::Objects),
        NamespaceKind::Zoned(SHAPE),
        NamespaceKind::Pages(PageShape { capacity_bytes: 1 << 20, page_bytes_max: 4000 }),
        NamespaceKind::Values(ValueShape { capacity_bytes: 1 << 20, keys_max: 99, key_max: 12, drive_value_max: 4000 }),
    ];
    for (id, kind) in (1..).zip(kinds) {
        target.attach(subsystem, Namespace { id, uuid: [id as u8; 16], kind }).expect("a new id");
    }
    let admin = connected(&mut target, 0, ANY_CONTROLLER);
    let enable = fabrics(opcode::fabrics::PROPERTY_SET, [0, 0x14, 6 << 16 | 4 << 20 | 1, 0, 0, 0]);
    let enabled = target.command(Time::ZERO, &admin, &enable, None, &mut Figures, &mut Vec::new());
    assert_eq!(enabled, Outcome::Done(Answer::of(0)));
    let io = connected(&mut target, 1, admin.controller().id);
    (target, [admin, io])
}

pub fn run(data: &[u8]) {
    let (mut target, mut queues) = ready();
    let mut out = Vec::new();
    // The data of any command are what comes after it.
    for (index, record) in data.chunks_exact(65).enumerate() {
        let later = &data[(index + 1) * 65..];
        let mut entry = *SubmissionEntry::of(record[1..].try_into().expect("sixty-four bytes"));
        let id = CommandId(index as u16);
        entry.command_id = id.0.into();
        let queue = &mut queues[usize::from(record[0] & 1)];
        if !target.is_alive(queue) || queue.begin(id).is_err() {
            continue;
        }
        let at_once = record[0] & 2 != 0;
        let Some(answer) = serve(&mut target, queue, &entry, at_once.then_some(later), later, &mut out) else {
            continue;
        };
        check(&queue.complete(id, answer), id);
        while let Some((id, answer)) = target.take_event(queues[0].controller()) {
            check(&queues[0].complete(id, answer), id);
        }
        assert!(queues[0].under_way() <= 4, "more is held than may be");
    }
}

/// Serves one command; `None` if it is held.
fn serve(
    target: &mut Target,
    queue: &Queue,
    entry: &SubmissionEntry,
    at_once: Option<&[u8]>,
    later: &[u8],
    out: &mut Vec<u8>,
) -> Option<Answer> {
    if !queue.is_admin() && entry.opcode != opcode::FABRICS {
        return Some(match target.io(Time::ZERO, queue, entry) {
            Ok(io) => {
                let namespace = target.subsystems()[0].namespace(io.namespace);
                look(&io.command, namespace, later);
                match io.command {
                    IoCommand::Reservation(command) => reserve(target, queue, io.namespace, command, later),
                    _ => Answer::of(0),
                }
            }
            Err(answer) => answer,
        });
    }
    let mut outcome = target.command(Time::ZERO, queue, entry, at_once, &mut Figures, out);
    if let Outcome::Needs(bytes) = outcome {
        assert!(at_once.is_none() && bytes <= 1 << 20);
        let mut data = later.to_vec();
        data.resize(bytes as usize, 0);
        outcome = target.command(Time::ZERO, queue, entry, Some(&data), &mut Figures, out);
    }
    assert!(out.len() <= 1 << 20, "no more is sent than a transfer holds");
    assert!(out.len() as u64 <= u64::from(entry.data.length.get()), "no more is sent than there is room for");
    match outcome {
        Outcome::Done(answer) | Outcome::DonePadded(answer, _) | Outcome::DoneAnd(answer, _) => Some(answer),
        Outcome::Authentication(_) => Some(Answer::of(0)),
        Outcome::Held => None,
        Outcome::Needs(_) => panic!("it has what it needs"),
    }
}

/// Carries out a command about a reservation. Whatever comes is as long as the command says.
fn reserve(target: &mut Target, queue: &Queue, namespace: u32, command: ReservationCommand, later: &[u8]) -> Answer {
    if let ReservationCommand::Report { bytes } = command {
        let report = target.reservation_report(queue, namespace);
        let (head, listed) = RegisteredController::listed(&report).expect("a report has a head");
        assert!(bytes <= 1 << 20 && usize::from(head.controllers.get()) == listed.len());
        return Answer::of(0);
    }
    let mut data = later.to_vec();
    data.resize(command.sends() as usize, 0);
    match target.reserve(queue, namespace, command, &data) {
        Ok(_) => Answer::of(0),
        Err(refusal) => Answer::from(refusal.status),
    }
}

/// Reads whatever lists a command comes with; what they name is in the namespace.
fn look(command: &IoCommand, namespace: Option<&Namespace>, data: &[u8]) {
    let Some(namespace) = namespace else {
        assert_eq!(*command, IoCommand::Flush, "only a flush names all namespaces");
        return;
    };
    let capacity = namespace.blocks() << namespace.block_bytes_log2();
    match command {
        IoCommand::Read(span) | IoCommand::Write { span, .. } | IoCommand::Compare(span) => {
            assert!(span.end() <= capacity && (1..=1 << 20).contains(&span.length));
        }
        IoCommand::Zero { span, .. } | IoCommand::Verify(span) => assert!(span.end() <= capacity),
        IoCommand::WriteUncorrectable { span, .. } => {
            assert!(span.end() <= capacity && (span.offset | span.length).is_multiple_of(4096));
        }
        IoCommand::DatasetManagement { ranges, .. } => {
            if let Ok(spans) = namespace.deallocated(*ranges, data) {
                spans.for_each(|span| assert!(span.end() <= capacity && span.length > 0));
            }
        }
        IoCommand::Copy { first, sources, .. } => {
            if let Ok(plan) = namespace.copy_plan(*first, *sources, data) {
                let length: u64 = plan.from().map(|span| span.length).sum();
                assert!(length == plan.to.length && plan.to.end() <= capacity);
            }
        }
        IoCommand::OpenChannel(VectorCommand { blocks, at, to, .. }) => {
            let mut addresses = [openftl_core::Ppa(0); openftl_core::VECTOR_BLOCKS_MAX];
            for list in [at, to] {
                if let Ok(list) = list.read(*blocks, data, &mut addresses) {
                    assert_eq!(list.len(), usize::from(*blocks));
                }
            }
        }
        IoCommand::HandleStatus { bytes } => {
            assert_eq!(namespace.handle_status(*bytes, |handle| u64::from(handle.0)).len(), *bytes as usize);
        }
        IoCommand::HandleUpdate { identifiers } => {
            if let Ok(handles) = namespace.updated_handles(*identifiers, data) {
                assert_eq!(handles.len(), usize::from(*identifiers));
            }
        }
        IoCommand::FlashAlloc { ranges } => {
            if let Ok(extents) = namespace.object(*ranges, data) {
                assert_eq!(extents.len(), usize::from(*ranges));
                extents.iter().for_each(|extent| assert!(extent.blocks > 0 && extent.end() * 4096 <= capacity));
            }
        }
        IoCommand::FlashAllocRange { extent } => {
            assert!(extent.blocks > 0 && extent.end() * 4096 <= capacity, "{extent:?}");
        }
        IoCommand::Zone(ZoneCommand::Append { span, .. }) => {
            let is_of_zone = span.offset.is_multiple_of(SHAPE.size * 4096) && span.offset < capacity;
            assert!(is_of_zone && (1..=1 << 20).contains(&span.length), "{span:?}");
        }
        IoCommand::Zone(ZoneCommand::Commit { last }) => assert!(*last < namespace.blocks(), "block {last}"),
        IoCommand::Zone(ZoneCommand::Act { first, .. } | ZoneCommand::OpenWithWindow { first }) => {
            assert!(first.is_multiple_of(SHAPE.size) && *first < namespace.blocks(), "block {first}");
        }
        IoCommand::Zone(ZoneCommand::Extend { first, bytes }) => {
            assert!(first.is_multiple_of(SHAPE.size) && *first < namespace.blocks(), "block {first}");
            assert_eq!(*bytes, SHAPE.extension_bytes);
        }
        IoCommand::Zone(ZoneCommand::ActOnAll { .. }) => {}
        IoCommand::Zone(ZoneCommand::Report(report)) => {
            let zones = [Zone::default(); SHAPE.zones as usize];
            let extension = [0; SHAPE.extension_bytes as usize];
            let said = namespace.zone_report(&SHAPE, report, &zones, |_| &extension);
            let descriptor = 64 + if report.is_extended { extension.len() } else { 0 };
            let listed = (said.len() - 64) / descriptor;
            assert!(said.len() <= report.bytes as usize && listed <= zones.len() - report.first as usize);
        }
        IoCommand::Page(PageCommand::Write(PagePart { bytes, .. })) => {
            assert!(*bytes <= 1 << 20);
            // Whatever comes is as long as the command says.
            let mut part = data.to_vec();
            part.resize(*bytes as usize, 0);
            let read = |at: u32, out: &mut [u8]| out.copy_from_slice(&part[at as usize..at as usize + out.len()]);
            if *bytes > 0
                && let Ok(changes) = expect_directory(*bytes, read)
            {
                let pages: u64 = (0..changes).map(|change| u64::from(change_entry(change, read).bytes.get())).sum();
                assert_eq!(u64::from(payload_start(changes)) + pages, u64::from(*bytes));
            }
        }
        IoCommand::Page(PageCommand::Read { bytes, .. } | PageCommand::List { bytes, .. }) => {
            assert!((1..=1 << 20).contains(bytes));
        }
        IoCommand::Value(ValueCommand::Store { bytes, .. }) => assert!(*bytes <= 4000),
        IoCommand::Value(ValueCommand::List { bytes, .. } | ValueCommand::Retrieve { bytes, .. }) => {
            assert!(*bytes <= 1 << 20);
        }
        IoCommand::Flush
        | IoCommand::Nothing
        | IoCommand::Page(_)
        | IoCommand::Value(_)
        | IoCommand::Reservation(_) => {}
    }
}

fn check(completion: &CompletionEntry, id: CommandId) {
    assert_eq!(completion.command_id.get(), id.0);
    assert!(completion.status.get() & 1 == 0, "the phase tag is reserved over fabrics");
}
