//! An I/O command allocates nothing, good or bad, from its 64 bytes to its completion.

use openftl_nvme::wire::entry::SglDescriptor;
use openftl_nvme::wire::fabrics::{ANY_CONTROLLER, ConnectData};
use openftl_nvme::wire::{U32, opcode, zero_ended};
use openftl_nvme::{
    Answer, BlockFormat, CommandId, Connection, Namespace, NamespaceKind, Nqn, Queue, Status, SubmissionEntry,
    SubsystemConfig, Target,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what this thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NAME: &str = "nqn.2024-01.org.example:drive";

fn command(opcode: u8, namespace: u32, dwords: [u32; 6]) -> SubmissionEntry {
    let data = SglDescriptor { length: 4096.into(), identifier: SglDescriptor::TRANSPORT, ..SglDescriptor::default() };
    SubmissionEntry {
        opcode,
        flags: SubmissionEntry::PSDT_SGL,
        namespace: namespace.into(),
        data,
        dwords_10_15: dwords.map(U32::new),
        ..SubmissionEntry::default()
    }
}

fn connected(target: &mut Target, queue: u32, controller: u16) -> Queue {
    let data = ConnectData {
        host_id: [0; 16],
        controller_id: controller.into(),
        reserved: [0; 238],
        subsystem_nqn: zero_ended(NAME),
        host_nqn: zero_ended("nqn.2024-01.org.example:host"),
        reserved_2: [0; 256],
    };
    let kind = u32::from(opcode::fabrics::CONNECT);
    let entry = command(opcode::FABRICS, kind, [queue << 16, 127, 0, 0, 0, 0]);
    match target.connect(openftl_core::Time::ZERO, &entry, Some(zerocopy::IntoBytes::as_bytes(&data))) {
        Connection::Made(queue, _) => queue,
        other => panic!("{other:?}"),
    }
}

/// Drives that nobody asks.
struct Nothing;

impl openftl_nvme::Drives for Nothing {
    fn health(&mut self, _: openftl_core::Time, _: usize) -> openftl_nvme::Health {
        unreachable!()
    }

    fn bytes_in_use(&mut self, _: openftl_nvme::NamespaceName) -> u64 {
        unreachable!()
    }

    fn chunk_report(
        &mut self,
        _: openftl_core::Time,
        _: openftl_nvme::NamespaceName,
        _: openftl_core::ChunkId,
        _: &mut [openftl_media::ChunkDescriptor],
    ) -> Result<(), openftl_media::MediaError> {
        unreachable!()
    }

    fn notifications(
        &mut self,
        _: openftl_core::Time,
        _: openftl_nvme::NamespaceName,
        _: u64,
        _: &mut Vec<openftl_media::Notification>,
    ) -> Result<(), openftl_media::MediaError> {
        unreachable!()
    }

    fn set_dulbe(&mut self, _: openftl_nvme::NamespaceName, _: bool) {
        unreachable!()
    }
}

#[test]
fn an_io_command_allocates_nothing() {
    let mut target = Target::new("SN", "OpenFTL", "0.1.0");
    let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(NAME).unwrap(), "SN")).unwrap();
    let hints = openftl_nvme::Hints::DataPlacement { handles: 3, is_persistent: false, unit_blocks: 64 };
    let kind = NamespaceKind::Block { format: BlockFormat::FourKib, bytes: 1 << 20, hints };
    target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
    let admin = connected(&mut target, 0, ANY_CONTROLLER);
    let enable = [0, 0x14, 6 << 16 | 4 << 20 | 1, 0, 0, 0];
    let enable = command(opcode::FABRICS, u32::from(opcode::fabrics::PROPERTY_SET), enable);
    let _ = target.command(openftl_core::Time::ZERO, &admin, &enable, None, &mut Nothing, &mut Vec::new());
    let mut queue = connected(&mut target, 1, admin.controller().id);
    let good = command(opcode::io::READ, 1, [7, 0, 0, 0, 0, 0]);
    let bad = command(opcode::io::READ, 1, [1 << 20, 0, 0, 0, 0, 0]);
    let before = ALLOCATIONS.get();
    for id in 0..1000_u16 {
        let (mut entry, status) = match id % 4 {
            0 => (good, 0),
            1 => (bad, Status::LBA_OUT_OF_RANGE.code()),
            // Placement identifiers 2, and 3, which is not there.
            identifier => (command(opcode::io::WRITE, 1, [7, 0, 2 << 20, u32::from(identifier) << 16, 0, 0]), 0),
        };
        entry.command_id = id.into();
        queue.begin(CommandId(id)).unwrap();
        let answer = target.io(openftl_core::Time::ZERO, &queue, &entry).err().unwrap_or(Answer::of(0));
        let completion = queue.complete(CommandId(id), answer);
        assert_eq!(completion.status().code(), status);
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(before > 0, "the counter counts");
}
