//! Random commands in every state: nothing panics, and every command ends exactly once or is held.

use crate::harness::*;
use openftl_core::Time;
use openftl_nvme::wire::fabrics::ANY_CONTROLLER;
use openftl_nvme::wire::opcode;
use openftl_nvme::{
    BlockFormat, CommandId, CompletionEntry, Connection, Hints, Namespace, NamespaceKind, PageShape, Queue, QueueError,
    SubmissionEntry, ValueShape, ZonedShape,
};
use proptest::prelude::*;
use std::collections::HashSet;

/// What namespaces take, one after the other.
const HINTS: [Hints; 3] = [
    Hints::Objects,
    Hints::Streams { streams: 3, unit_blocks: 64 },
    Hints::DataPlacement { handles: 3, is_persistent: false, unit_blocks: 64 },
];

/// The zones of zoned ones.
const SHAPE: ZonedShape =
    ZonedShape { zones: 9, size: 64, capacity: 48, max_open: 2, max_active: 3, extension_bytes: 64, window_blocks: 16 };

/// One thing that happens to a controller.
#[derive(Clone, Debug)]
enum Step {
    /// A command on queue `queue` modulo those that there are.
    Command { queue: u8, entry: SubmissionEntry },
    /// I/O queue `id` is made.
    Connect { id: u8 },
    /// A connection is closed.
    Disconnect { queue: u8 },
    /// A namespace is attached or detached.
    Namespace { id: u8 },
    /// The host is silent for a while.
    Silence { ms: u16 },
}

/// Any 64 bytes, but mostly with an opcode, a namespace and flags that go further than the first check.
fn entry() -> impl Strategy<Value = SubmissionEntry> {
    let opcodes = prop_oneof![
        4 => prop::sample::select(vec![
            opcode::admin::GET_LOG_PAGE, opcode::admin::IDENTIFY, opcode::admin::ABORT, opcode::admin::SET_FEATURES,
            opcode::admin::GET_FEATURES, opcode::admin::ASYNCHRONOUS_EVENT_REQUEST, opcode::admin::KEEP_ALIVE,
            opcode::admin::GEOMETRY, opcode::io::WRITE, opcode::io::COPY, opcode::io::VECTOR_READ,
            opcode::io::VECTOR_COPY, opcode::FABRICS, opcode::admin::DIRECTIVE_SEND, opcode::admin::DIRECTIVE_RECEIVE,
            opcode::io::MANAGEMENT_RECEIVE, opcode::io::MANAGEMENT_SEND, opcode::io::FLASH_ALLOC,
            opcode::io::FLASH_ALLOC_RANGE, opcode::io::ZONE_SEND, opcode::io::ZONE_RECEIVE, opcode::io::ZONE_APPEND,
            opcode::io::PAGE_WRITE, opcode::io::PAGE_READ, opcode::io::PAGE_CONTROL, opcode::io::PAGE_REPORT,
            opcode::io::VALUE_LIST, opcode::io::VALUE_DELETE, opcode::io::VALUE_EXIST,
            opcode::io::RESERVATION_REGISTER, opcode::io::RESERVATION_REPORT, opcode::io::RESERVATION_ACQUIRE,
            opcode::io::RESERVATION_RELEASE,
        ]),
        1 => any::<u8>(),
    ];
    let namespaces = prop_oneof![4 => 0..9_u32, 1 => any::<u32>(), 1 => Just(u32::MAX)];
    let dword = || prop_oneof![2 => 0..0x120_u32, 1 => any::<u32>(), 1 => (0..32_u32).prop_map(|bit| 1 << bit)];
    let dwords = [dword(), dword(), dword(), dword(), dword(), dword()];
    let flags = prop_oneof![8 => Just(SubmissionEntry::PSDT_SGL), 1 => any::<u8>()];
    let identifiers = prop_oneof![8 => Just(0x5a_u8), 1 => Just(1), 1 => any::<u8>()];
    let id = 0..40_u16;
    (opcodes, namespaces, dwords, flags, identifiers, id).prop_map(|(opcode, namespace, dwords, flags, kind, id)| {
        let mut entry = command(opcode, namespace, dwords);
        entry.flags = flags;
        entry.data.identifier = kind;
        entry.command_id = id.into();
        entry
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (any::<u8>(), entry()).prop_map(|(queue, entry)| Step::Command { queue, entry }),
        2 => (0..70_u8).prop_map(|id| Step::Connect { id }),
        1 => any::<u8>().prop_map(|queue| Step::Disconnect { queue }),
        1 => (0..9_u8).prop_map(|id| Step::Namespace { id }),
        1 => any::<u16>().prop_map(|ms| Step::Silence { ms }),
    ]
}

/// The queues of a host, and the commands that it waits for.
struct Storm {
    world: World,
    queues: Vec<(Queue, HashSet<u16>)>,
}

impl Storm {
    fn command(&mut self, index: usize, entry: &SubmissionEntry) {
        let (queue, waiting) = &mut self.queues[index];
        let id = CommandId(entry.command_id.get());
        match queue.begin(id) {
            Ok(()) => assert!(waiting.insert(id.0), "an id under way is not taken twice"),
            Err(QueueError::IdInUse(in_use)) => {
                assert!(in_use == id.0 && waiting.contains(&id.0));
                return;
            }
            Err(QueueError::Overrun { .. }) => panic!("there are fewer ids than entries"),
        }
        let completion = self.world.serve(queue, entry);
        if let Some(completion) = completion {
            ended(waiting, &completion);
        } else {
            assert_eq!(entry.opcode, opcode::admin::ASYNCHRONOUS_EVENT_REQUEST, "nothing else is held");
        }
    }

    /// Held commands end; connections whose controller or queue is gone are closed.
    fn settle(&mut self) {
        for (queue, waiting) in &mut self.queues {
            if queue.is_admin() {
                while let Some((id, answer)) = self.world.target.take_event(queue.controller()) {
                    ended(waiting, &queue.complete(id, answer));
                }
            }
            assert_eq!(queue.under_way() as usize, waiting.len());
            assert!(waiting.len() <= 4, "only as many are held as may be");
        }
        let target = &self.world.target;
        let (alive, gone) = std::mem::take(&mut self.queues).into_iter().partition(|(queue, _)| target.is_alive(queue));
        self.queues = alive;
        let gone: Vec<(Queue, HashSet<u16>)> = gone;
        gone.into_iter().for_each(|(queue, _)| self.world.target.disconnected(queue));
        if !self.queues.iter().any(|(queue, _)| queue.is_admin()) {
            assert!(self.queues.is_empty(), "no I/O queue outlives its admin queue");
            let queue = self.world.connect();
            self.queues.push((queue, HashSet::new()));
        }
    }

    fn step(&mut self, step: Step) {
        let count = self.queues.len();
        match step {
            Step::Command { queue, entry } => self.command(usize::from(queue) % count, &entry),
            Step::Connect { id } => {
                let controller = if id == 0 { ANY_CONTROLLER } else { self.queues[0].0.controller().id };
                let data = connect_data(SUBSYSTEM, controller);
                if let Connection::Made(queue, _) = self.world.try_connect(connect(u16::from(id), 63), data) {
                    self.queues.push((queue, HashSet::new()));
                }
            }
            Step::Disconnect { queue } => {
                let (queue, _) = self.queues.swap_remove(usize::from(queue) % count);
                self.world.target.disconnected(queue);
            }
            Step::Namespace { id } => {
                let bytes = CAPACITY;
                let hints = HINTS[usize::from(id % 3)];
                let kind = match id % 5 {
                    0 => NamespaceKind::Zoned(SHAPE),
                    1 => NamespaceKind::Pages(PageShape { capacity_bytes: bytes, page_bytes_max: 4000 }),
                    2 => NamespaceKind::Values(ValueShape {
                        capacity_bytes: bytes,
                        keys_max: 9,
                        key_max: 12,
                        drive_value_max: 4000,
                    }),
                    _ => NamespaceKind::Block { format: BlockFormat::FourKib, bytes, hints },
                };
                let namespace = Namespace { kind, ..block(u32::from(id), BlockFormat::FourKib) };
                if self.world.target.detach(0, namespace.id).is_err() {
                    let _ = self.world.target.attach(0, namespace);
                }
            }
            Step::Silence { ms } => {
                self.world.now = Time(self.world.now.0 + u64::from(ms) * 1_000_000);
                self.world.target.expire(self.world.now, &mut Vec::new());
            }
        }
        self.settle();
    }
}

fn ended(waiting: &mut HashSet<u16>, completion: &CompletionEntry) {
    assert!(waiting.remove(&completion.command_id.get()), "a command ends once");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_command_ends_once_or_is_held(is_ready in any::<bool>(), steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::with_hints([HINTS[1], HINTS[2]]);
        let admin = if is_ready { world.ready() } else { world.connect() };
        let mut storm = Storm { world, queues: vec![(admin, HashSet::new())] };
        steps.into_iter().for_each(|step| storm.step(step));
    }

    #[test]
    fn any_64_bytes_are_answered(bytes in prop::array::uniform32(any::<u8>()), more in prop::array::uniform32(any::<u8>())) {
        let mut both = [0; 64];
        both[..32].copy_from_slice(&bytes);
        both[32..].copy_from_slice(&more);
        let entry = SubmissionEntry::of(&both);
        let mut world = World::with_hints([HINTS[1], HINTS[2]]);
        let _ = world.target.connect(Time::ZERO, entry, Some(&both));
        let mut admin = world.ready();
        let mut io = world.connect_io(&admin, 1);
        let _ = world.run(&mut admin, *entry, &[]);
        let _ = world.run(&mut io, *entry, &[]);
    }
}
