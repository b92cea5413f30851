//! Reservations as hosts meet them: every wrong field, what each command of each kind of namespace may do beside one, reports, and what
//! hosts are told.

use crate::harness::*;
use openftl_nvme::command::reservation::{Access, Acquire, Register, Release, ReservationCommand};
use openftl_nvme::command::{PageCommand, ValueCommand};
use openftl_nvme::wire::feature::id as feature;
use openftl_nvme::wire::identify::{cns, csi};
use openftl_nvme::wire::log::id;
use openftl_nvme::wire::opcode::{admin, io};
use openftl_nvme::wire::reservation::RegisteredController;
use openftl_nvme::wire::zoned::action;
use openftl_nvme::{
    Hints, HostId, IoCommand, Namespace, NamespaceKind, PageShape, Queue, ReservationType, SegmentShape, Status,
    SubmissionEntry, ValueShape, ZonedShape,
};
use openftl_values::{Condition, Key};

const ZONED: u32 = 6;
const SEGMENTED: u32 = 7;
const STORE: u32 = 8;
const VALUES: u32 = 9;

const WRITE_EXCLUSIVE: ReservationType = ReservationType::WriteExclusive;
const EXCLUSIVE_ACCESS: ReservationType = ReservationType::ExclusiveAccess;

/// A host: its admin queue and an I/O queue.
struct Member {
    id: HostId,
    admin: Queue,
    io: Queue,
}

fn join(world: &mut World, id: HostId) -> Member {
    let named = |controller| {
        let mut data = connect_data(SUBSYSTEM, controller);
        data.host_id = id;
        data
    };
    let (mut admin, _) = world.connect_with(connect(0, 31), named(0xffff));
    world.enable(&mut admin);
    let (io, _) = world.connect_with(connect(1, 127), named(admin.controller().id));
    Member { id, admin, io }
}

/// A target with a namespace of each kind, and two hosts.
fn world() -> (World, Member, Member) {
    let mut world = World::with_hints([
        Hints::Objects,
        Hints::DataPlacement { handles: 2, is_persistent: false, unit_blocks: 256 },
    ]);
    let zoned = ZonedShape {
        zones: 10,
        size: 64,
        capacity: 48,
        max_open: 3,
        max_active: 5,
        extension_bytes: 64,
        window_blocks: 8,
    };
    for (id, kind) in [
        (ZONED, NamespaceKind::Zoned(zoned)),
        (SEGMENTED, NamespaceKind::Segments(SegmentShape { segments: 100, blocks: 48 })),
        (STORE, NamespaceKind::Pages(PageShape { capacity_bytes: 100 << 20, page_bytes_max: 1 << 20 })),
        (
            VALUES,
            NamespaceKind::Values(ValueShape {
                capacity_bytes: 100 << 20,
                keys_max: 1000,
                key_max: 16,
                drive_value_max: 4096,
            }),
        ),
    ] {
        world.target.attach(0, Namespace { id, uuid: [id as u8; 16], kind }).unwrap();
    }
    let (one, other) = (join(&mut world, [1; 16]), join(&mut world, [2; 16]));
    (world, one, other)
}

impl World {
    /// Parses and carries out a command about a reservation: the hosts that are aborted, or the status.
    fn reserve(
        &mut self,
        member: &mut Member,
        namespace: u32,
        command: ReservationCommand,
        keys: [u64; 2],
    ) -> Result<Vec<HostId>, Status> {
        let io = self.io(&mut member.io, command.entry(namespace))?;
        let IoCommand::Reservation(parsed) = io.command else { panic!("{io:?}") };
        assert_eq!((parsed, io.namespace), (command, namespace), "it is what it was written as");
        let data = keys.map(u64::to_le_bytes).concat();
        let ended = self.target.reserve(&member.io, namespace, command, &data);
        ended.map_err(|refusal| refusal.status)
    }

    fn report(&mut self, member: &mut Member, namespace: u32) -> (u8, Vec<RegisteredController>) {
        self.io(&mut member.io, REPORT.entry(namespace)).unwrap();
        let data = self.target.reservation_report(&member.io, namespace);
        let (head, listed) = RegisteredController::listed(&data).unwrap();
        assert_eq!(data.len(), 64 + 64 * listed.len());
        (head.kind, listed.to_vec())
    }

    /// The number, type and rest of the oldest notification, which is read.
    fn notified(&mut self, member: &mut Member) -> [u8; 4] {
        self.ok(&mut member.admin, log_page(id::RESERVATION_NOTIFICATION, 0, 64, 0));
        [self.data[0], self.data[8], self.data[9], self.data[12]]
    }
}

const REGISTER: ReservationCommand = ReservationCommand::Register { action: Register::Register, ignores_key: false };
const REPORT: ReservationCommand = ReservationCommand::Report { bytes: 4096 };

fn acquire(kind: ReservationType) -> ReservationCommand {
    ReservationCommand::Acquire { action: Acquire::Acquire, kind }
}

fn preempt(action: Acquire) -> ReservationCommand {
    ReservationCommand::Acquire { action, kind: WRITE_EXCLUSIVE }
}

/// What each command of each kind of namespace does, as far as reservations go.
fn commands() -> Vec<(&'static str, SubmissionEntry, Access)> {
    let (read, write) = (Access::Read, Access::Write);
    let store = ValueCommand::Store {
        key: Key::new(b"key").unwrap(),
        bytes: 3,
        condition: Condition::Always,
        durability: openftl_parts::target::Durability::Volatile,
    };
    let retrieve = ValueCommand::Retrieve { key: Key::new(b"key").unwrap(), bytes: 16 };
    let zone = |dword: u32| command(io::ZONE_SEND, ZONED, [0, 0, 0, dword, 0, 0]);
    let value = |opcode| SubmissionEntry { opcode, ..retrieve.entry(VALUES) };
    let mut list = vec![
        ("FlashAlloc", command(io::FLASH_ALLOC, 1, [0; 6]), write),
        ("FlashAlloc of one range", command(io::FLASH_ALLOC_RANGE, 1, [0, 0, 0, 0, 8, 0]), write),
        ("handle status", command(io::MANAGEMENT_RECEIVE, 2, [1, 0, 0, 0, 0, 0]), read),
        ("handle update", command(io::MANAGEMENT_SEND, 2, [1, 0, 0, 0, 0, 0]), write),
        ("vector read", command(io::VECTOR_READ, 5, [0; 6]), read),
        ("vector write", command(io::VECTOR_WRITE, 5, [0; 6]), write),
        ("vector reset", command(io::VECTOR_RESET, 5, [0; 6]), write),
        ("vector copy", command(io::VECTOR_COPY, 5, [0; 6]), write),
        ("report of zones", command(io::ZONE_RECEIVE, ZONED, [0, 0, 0xff, 0, 0, 0]), read),
        ("append", ranged(io::ZONE_APPEND, ZONED, 0, 1), write),
        ("open with a window", zone(u32::from(action::OPEN) | 1 << 9), write),
        ("commit", zone(action::FLUSH_ZRWA.into()), write),
        ("extension", zone(action::SET_EXTENSION.into()), write),
        ("reset of all", zone(u32::from(action::RESET) | 1 << 8), write),
        ("write of pages", command(io::PAGE_WRITE, STORE, [0, 0, 1, 1, 0, 0]), write),
        ("read of a page", PageCommand::Read { lpid: 1, offset: 0, bytes: 4096 }.entry(STORE), read),
        ("open a session", PageCommand::Open.entry(STORE), write),
        ("close a session", PageCommand::Close { session: 1, forget: false }.entry(STORE), write),
        ("abort a batch", PageCommand::Abort { session: 1, wsn: 1 }.entry(STORE), write),
        ("length of a page", PageCommand::Stat { lpid: 1 }.entry(STORE), read),
        ("list of pages", PageCommand::List { from: 0, bytes: 4096 }.entry(STORE), read),
        ("session", PageCommand::Session { session: 1 }.entry(STORE), read),
        ("store", PageCommand::Store.entry(STORE), read),
        ("Store", store.entry(VALUES), write),
        ("Retrieve", retrieve.entry(VALUES), read),
        ("List", ValueCommand::List { from: None, bytes: 4096 }.entry(VALUES), read),
        ("Delete", value(io::VALUE_DELETE), write),
        ("Exist", value(io::VALUE_EXIST), read),
    ];
    for action in [action::CLOSE, action::FINISH, action::OPEN, action::RESET, action::OFFLINE] {
        list.push(("action on a zone", zone(action.into()), write));
    }
    for namespace in [1, 2, ZONED, SEGMENTED] {
        list.push(("read", ranged(io::READ, namespace, 0, 8), read));
        list.push(("compare", ranged(io::COMPARE, namespace, 0, 8), read));
        list.push(("verify", ranged(io::VERIFY, namespace, 0, 8), read));
        list.push(("write", ranged(io::WRITE, namespace, 0, 8), write));
    }
    for namespace in [1, 2, SEGMENTED] {
        list.push(("hint", command(io::DATASET_MANAGEMENT, namespace, [0; 6]), write));
        list.push(("deallocate", command(io::DATASET_MANAGEMENT, namespace, [0, 4, 0, 0, 0, 0]), write));
    }
    for namespace in [1, 2] {
        list.push(("zeroes", ranged(io::WRITE_ZEROES, namespace, 0, 8), write));
        list.push(("uncorrectable", ranged(io::WRITE_UNCORRECTABLE, namespace, 0, 8), write));
        list.push(("copy", command(io::COPY, namespace, [0; 6]), write));
    }
    for namespace in [1, 2, 5, ZONED, SEGMENTED, STORE, VALUES] {
        list.push(("flush", command(io::FLUSH, namespace, [0; 6]), write));
        list.push(("register", REGISTER.entry(namespace), Access::None));
        list.push(("report", REPORT.entry(namespace), Access::None));
        list.push(("acquire", acquire(WRITE_EXCLUSIVE).entry(namespace), Access::None));
        list.push(("release", ReservationCommand::Release { action: Release::Clear }.entry(namespace), Access::None));
    }
    list
}

#[test]
fn each_command_of_each_namespace_is_refused_beside_a_reservation_as_its_class_says() {
    let (mut world, mut one, mut other) = world();
    for (what, entry, access) in commands() {
        let parsed = world.io(&mut other.io, entry).unwrap_or_else(|status| panic!("{what}: {status:?}"));
        assert_eq!(parsed.command.access(), access, "{what}");
    }
    for kind in [WRITE_EXCLUSIVE, EXCLUSIVE_ACCESS] {
        for namespace in [1, 2, 5, ZONED, SEGMENTED, STORE, VALUES] {
            world.reserve(&mut one, namespace, REGISTER, [0, 1]).unwrap();
            world.reserve(&mut one, namespace, acquire(kind), [1, 0]).unwrap();
        }
        for (what, entry, access) in commands() {
            let is_refused = access == Access::Write || access == Access::Read && kind == EXCLUSIVE_ACCESS;
            let ended = world.io(&mut other.io, entry).map(drop);
            let expected = if is_refused { Err(Status::RESERVATION_CONFLICT) } else { Ok(()) };
            assert_eq!(ended, expected, "{kind:?}: {what} of {}", entry.namespace);
            world.io(&mut one.io, entry).unwrap_or_else(|status| panic!("{kind:?}: {what} of the holder: {status:?}"));
        }
        for namespace in [1, 2, 5, ZONED, SEGMENTED, STORE, VALUES] {
            world.reserve(&mut one, namespace, ReservationCommand::Release { action: Release::Clear }, [1, 0]).unwrap();
        }
    }
    for (what, entry, _) in commands() {
        assert!(world.io(&mut other.io, entry).is_ok(), "{what}: nothing is reserved any more");
    }
}

#[test]
fn a_flush_of_all_namespaces_conflicts_with_the_reservation_of_one_that_is_attached() {
    let (mut world, mut one, mut other) = world();
    world.reserve(&mut one, STORE, REGISTER, [0, 1]).unwrap();
    world.reserve(&mut one, STORE, acquire(WRITE_EXCLUSIVE), [1, 0]).unwrap();
    let all = command(io::FLUSH, u32::MAX, [0; 6]);
    assert_eq!(world.io(&mut other.io, all), Err(Status::RESERVATION_CONFLICT));
    assert!(world.io(&mut one.io, all).is_ok());
    world.target.set_attached(other.admin.controller(), STORE, false).unwrap();
    assert!(world.io(&mut other.io, all).is_ok());
}

#[test]
fn every_wrong_field_has_its_status() {
    let (mut world, mut one, _) = world();
    let of = |opcode, dword, second| command(opcode, 1, [dword, second, 0, 0, 0, 0]);
    let short = |mut entry: SubmissionEntry, bytes: u32| {
        entry.data.length = bytes.into();
        entry
    };
    let fused = |entry: SubmissionEntry| SubmissionEntry { flags: entry.flags | 1, ..entry };
    for (what, entry, status) in [
        ("a reserved action of Register", of(io::RESERVATION_REGISTER, 3, 0), Status::INVALID_FIELD),
        ("kept over a loss of power", of(io::RESERVATION_REGISTER, 0b11 << 30, 0), Status::INVALID_FIELD),
        ("a reserved CPTPL", of(io::RESERVATION_REGISTER, 0b01 << 30, 0), Status::INVALID_FIELD),
        ("keys of 15 bytes", short(REGISTER.entry(1), 15), Status::DATA_SGL_LENGTH_INVALID),
        ("half of a pair", fused(REGISTER.entry(1)), Status::INVALID_FIELD),
        ("no namespace", REGISTER.entry(3), Status::INVALID_FIELD),
        ("all namespaces", REGISTER.entry(u32::MAX), Status::INVALID_NAMESPACE),
        ("a reserved action of Acquire", of(io::RESERVATION_ACQUIRE, 3 | 1 << 8, 0), Status::INVALID_FIELD),
        ("no type", of(io::RESERVATION_ACQUIRE, 0, 0), Status::INVALID_FIELD),
        ("type 7", of(io::RESERVATION_ACQUIRE, 7 << 8, 0), Status::INVALID_FIELD),
        ("IEKEY of Acquire", of(io::RESERVATION_ACQUIRE, 1 << 3 | 1 << 8, 0), Status::INVALID_FIELD),
        ("a reserved action of Release", of(io::RESERVATION_RELEASE, 2 | 1 << 8, 0), Status::INVALID_FIELD),
        ("release of no type", of(io::RESERVATION_RELEASE, 0, 0), Status::INVALID_FIELD),
        ("IEKEY of Release", of(io::RESERVATION_RELEASE, 1 << 3 | 1 << 8, 0), Status::INVALID_FIELD),
        ("a report with identifiers of 64 bits", of(io::RESERVATION_REPORT, 15, 0), Status::HOST_ID_FORMAT),
        ("a report beyond MDTS", of(io::RESERVATION_REPORT, 1 << 18, 1), Status::INVALID_FIELD),
        ("no room for the report", short(REPORT.entry(1), 4092), Status::DATA_SGL_LENGTH_INVALID),
    ] {
        assert_eq!(world.io(&mut one.io, entry), Err(status), "{what}");
    }
    assert!(world.io(&mut one.io, of(io::RESERVATION_REGISTER, 0b10 << 30, 0)).is_ok(), "it is not kept anyway");
    assert!(world.io(&mut one.io, of(io::RESERVATION_RELEASE, 1, 0)).is_ok(), "clearing names no type");
}

#[test]
fn a_host_without_an_identifier_cannot_be_registered() {
    let (mut world, mut one, _) = world();
    let mut unnamed = join(&mut world, [0; 16]);
    assert_eq!(world.reserve(&mut unnamed, 1, REGISTER, [0, 1]), Err(Status::COMMAND_SEQUENCE_ERROR));
    world.reserve(&mut one, 1, REGISTER, [0, 1]).unwrap();
    world.reserve(&mut one, 1, acquire(WRITE_EXCLUSIVE), [1, 0]).unwrap();
    assert_eq!(world.io(&mut unnamed.io, ranged(io::WRITE, 1, 0, 1)), Err(Status::RESERVATION_CONFLICT));
}

#[test]
fn registrants_are_hosts_and_a_report_has_each_of_their_controllers_or_none() {
    let (mut world, mut one, mut other) = world();
    let mut second = join(&mut world, one.id);
    world.reserve(&mut one, 1, REGISTER, [0, 0x11]).unwrap();
    world.reserve(&mut other, 1, REGISTER, [0, 0x22]).unwrap();
    world.reserve(&mut second, 1, acquire(EXCLUSIVE_ACCESS), [0x11, 0]).unwrap();
    assert!(world.io(&mut one.io, ranged(io::WRITE, 1, 0, 1)).is_ok(), "the other controller of the holder");
    let row = |entry: &RegisteredController| (entry.controller.get(), entry.status, entry.key.get(), entry.host);
    let (kind, listed) = world.report(&mut other, 1);
    let expected = [(1, 1, 0x11, one.id), (3, 1, 0x11, one.id), (2, 0, 0x22, other.id)];
    assert_eq!((kind, listed.iter().map(row).collect::<Vec<_>>()), (2, expected.to_vec()));
    assert_eq!(world.report(&mut other, 2), (0, Vec::new()), "each namespace has its own");
    // Its host is gone, and what it had stays.
    for member in [one, second] {
        world.target.disconnected(member.io);
        world.target.disconnected(member.admin);
    }
    let (kind, listed) = world.report(&mut other, 1);
    let expected = [(0xffff, 1, 0x11, [1; 16]), (2, 0, 0x22, other.id)];
    assert_eq!((kind, listed.iter().map(row).collect::<Vec<_>>()), (2, expected.to_vec()));
    assert_eq!(world.io(&mut other.io, ranged(io::READ, 1, 0, 1)), Err(Status::RESERVATION_CONFLICT));
    let mut again = join(&mut world, [1; 16]);
    assert!(world.io(&mut again.io, ranged(io::READ, 1, 0, 1)).is_ok(), "it is back");
    // Without power everything is forgotten, and so it is with the namespace.
    world.target.forget_reservations();
    assert_eq!(world.report(&mut other, 1), (0, Vec::new()));
    world.reserve(&mut again, 1, REGISTER, [0, 1]).unwrap();
    world.reserve(&mut again, 1, acquire(EXCLUSIVE_ACCESS), [1, 0]).unwrap();
    let namespace = world.target.detach(0, 1).unwrap();
    world.target.attach(0, namespace).unwrap();
    assert!(world.io(&mut other.io, ranged(io::READ, 1, 0, 1)).is_ok());
}

#[test]
fn a_preempted_host_is_told_once_until_it_reads_and_reads_one_notification_after_the_other() {
    let (mut world, mut one, mut other) = world();
    for _ in 0..2 {
        assert_eq!(world.run(&mut one.admin, event_request(), &[]), None);
    }
    for namespace in [1, 2] {
        world.reserve(&mut one, namespace, REGISTER, [0, 1]).unwrap();
        world.reserve(&mut one, namespace, acquire(WRITE_EXCLUSIVE), [1, 0]).unwrap();
        world.reserve(&mut other, namespace, REGISTER, [0, 2]).unwrap();
    }
    assert_eq!(world.notified(&mut one), [0; 4], "an empty page");
    assert_eq!(world.reserve(&mut other, 1, preempt(Acquire::Preempt), [2, 1]), Ok(Vec::new()), "nothing is aborted");
    let aborted = world.reserve(&mut other, 2, preempt(Acquire::PreemptAndAbort), [2, 1]);
    assert_eq!(aborted, Ok(vec![one.id]));
    assert_eq!(
        world.events(&mut one.admin),
        [(Status::SUCCESS, 0x0080_0006)],
        "one event, masked until the page is read"
    );
    world.ok(&mut one.admin, retained(log_page(id::RESERVATION_NOTIFICATION, 0, 64, 0)));
    assert_eq!([world.data[0], world.data[8], world.data[9]], [1, 1, 1]);
    assert_eq!(world.events(&mut one.admin), []);
    assert_eq!(world.notified(&mut one), [1, 1, 1, 1]);
    assert_eq!(world.events(&mut one.admin), [(Status::SUCCESS, 0x0080_0006)], "there is another one");
    assert_eq!(world.notified(&mut one), [2, 1, 0, 2]);
    assert_eq!((world.notified(&mut one), world.notified(&mut other)), ([0; 4], [0; 4]));
}

#[test]
fn what_a_host_masks_it_is_not_told() {
    let (mut world, mut one, mut other) = world();
    let masks = |world: &mut World, member: &mut Member, namespace: u32| {
        let mut get = get_feature(feature::RESERVATION_MASK, 0);
        get.namespace = namespace.into();
        world.ok(&mut member.admin, get)
    };
    world.ok(&mut one.admin, set_feature(feature::RESERVATION_MASK, u32::MAX, 0xff));
    assert_eq!(masks(&mut world, &mut one, VALUES), 0b1110);
    world.ok(&mut one.admin, set_feature(feature::RESERVATION_MASK, 2, 0b100));
    assert_eq!([1, 2].map(|id| masks(&mut world, &mut one, id)), [0b1110, 0b100]);
    let shared = ReservationType::WriteExclusiveRegistrantsOnly;
    for namespace in [1, 2] {
        world.reserve(&mut one, namespace, REGISTER, [0, 1]).unwrap();
        world.reserve(&mut other, namespace, REGISTER, [0, 2]).unwrap();
        world.reserve(&mut other, namespace, acquire(shared), [2, 0]).unwrap();
        world
            .reserve(&mut other, namespace, ReservationCommand::Release { action: Release::Release(shared) }, [2, 0])
            .unwrap();
        world.reserve(&mut other, namespace, ReservationCommand::Release { action: Release::Clear }, [2, 0]).unwrap();
    }
    assert_eq!(
        (world.notified(&mut one), world.notified(&mut one)),
        ([1, 3, 0, 2], [0; 4]),
        "of namespace 2 that it is cleared"
    );
    let mut get = get_feature(feature::RESERVATION_PERSISTENCE, 0);
    get.namespace = 1.into();
    assert_eq!(world.ok(&mut one.admin, get), 0);
    world.ok(&mut one.admin, set_feature(feature::RESERVATION_PERSISTENCE, 1, 0));
    let of_all = |feature| SubmissionEntry { namespace: u32::MAX.into(), ..get_feature(feature, 0) };
    for (what, entry, status) in [
        ("PTPL", set_feature(feature::RESERVATION_PERSISTENCE, 1, 1), Status::INVALID_FIELD),
        ("PTPL of all", set_feature(feature::RESERVATION_PERSISTENCE, u32::MAX, 1), Status::INVALID_FIELD),
        ("PTPL of none", set_feature(feature::RESERVATION_PERSISTENCE, 0, 0), Status::INVALID_NAMESPACE),
        ("what is kept of all", of_all(feature::RESERVATION_PERSISTENCE), Status::INVALID_FIELD),
        ("masks of all", of_all(feature::RESERVATION_MASK), Status::INVALID_FIELD),
        ("masks of an absent one", set_feature(feature::RESERVATION_MASK, 3, 0), Status::INVALID_FIELD),
    ] {
        assert_eq!(world.refused(&mut one.admin, entry), status, "{what}");
    }
}

#[test]
fn the_key_value_set_says_that_there_are_reservations_too() {
    let (mut world, mut one, _) = world();
    let of_values = u32::from(csi::VALUES) << 24;
    let dwords = [u32::from(cns::COMMAND_SET_NAMESPACE), of_values, 0, 0, 0, 0];
    world.ok(&mut one.admin, command(admin::IDENTIFY, VALUES, dwords));
    assert_eq!(world.data[26..28], [1, 0xfe], "NMIC, RESCAP");
}
