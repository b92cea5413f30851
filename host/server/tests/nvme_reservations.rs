//! Reservations between two hosts over real sockets: who may do what, and what becomes of commands under way when their host is
//! preempted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::client::{Client, head};
use crate::memory::Memory;
use crate::nvme::{Host, Queue, Served, Wishes, entry, write, zoned_drive};
use crate::nvme_commands::{BLOCKS, SHUFFLED, pattern};
use openftl_core::BLOCK_BYTES;
use openftl_nbd::wire::{ErrorCode, command};
use openftl_nvme::ReservationType;
use openftl_nvme::command::reservation::{Acquire, Register, Release, ReservationCommand};
use openftl_nvme::wire::reservation::RegisteredController;
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::Payload;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tempfile::TempDir;
use zerocopy::IntoBytes;

const CONFLICT: u16 = 0x083;
const PREEMPTED: u16 = 0x01b;
const COMPARE_FAILURE: u16 = 0x285;
const FAILED_FUSED: u16 = 0x009;

/// Bytes of a PDU that asks for data. The command's identifier is in two of them from the eighth on.
const R2T_BYTES: usize = 24;

const WRITE_EXCLUSIVE: ReservationType = ReservationType::WriteExclusive;

const REGISTER: ReservationCommand = ReservationCommand::Register { action: Register::Register, ignores_key: false };

fn acquire(action: Acquire) -> ReservationCommand {
    ReservationCommand::Acquire { action, kind: WRITE_EXCLUSIVE }
}

fn said(command: ReservationCommand, namespace: u32) -> [u8; 64] {
    command.entry(namespace).as_bytes().try_into().expect("an entry has 64 bytes")
}

/// A host, its key, and an I/O queue of it.
struct Member {
    host: Host,
    queue: Queue,
    key: u64,
}

impl Member {
    fn join(served: &Served, id: u8) -> Member {
        let host = served.host_of([id; 16]);
        let queue = host.queue_as(1, InitiatorConfig { entries: 64, ..InitiatorConfig::default() });
        Member { host, queue, key: u64::from(id) }
    }

    fn reserve(&mut self, namespace: u32, command: ReservationCommand, keys: [u64; 2]) -> u16 {
        let data = keys.map(u64::to_le_bytes).concat();
        self.queue.run(&said(command, namespace), Payload::ToController(data[..command.sends() as usize].to_vec())).0
    }

    fn register(&mut self, namespace: u32) {
        assert_eq!(self.reserve(namespace, REGISTER, [0, self.key]), 0);
    }

    fn acquire(&mut self, namespace: u32) -> u16 {
        self.reserve(namespace, acquire(Acquire::Acquire), [self.key, 0])
    }

    fn preempt(&mut self, namespace: u32, action: Acquire, other: u64) -> u16 {
        self.reserve(namespace, acquire(action), [self.key, other])
    }

    /// Begins to preempt another, and does not wait for the end.
    fn begin_to_preempt(&mut self, namespace: u32, other: u64) {
        let data = [self.key, other].map(u64::to_le_bytes).concat();
        self.queue.client.submit(9, &said(acquire(Acquire::PreemptAndAbort), namespace), Payload::ToController(data));
        self.push();
    }

    /// Sends what was submitted, and answers nothing that the server asks later.
    fn push(&mut self) {
        self.queue.client.send().unwrap();
    }

    /// Waits until the server has asked for the data of so many commands.
    fn until_asked_for(&self, commands: usize) {
        let mut asked = [0; 16 * R2T_BYTES];
        loop {
            let bytes = self.queue.raw.peek(&mut asked).unwrap();
            let of: BTreeSet<&[u8]> = asked[..bytes].chunks_exact(R2T_BYTES).map(|pdu| &pdu[8..10]).collect();
            if of.len() >= commands {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn wait(&mut self) -> (u64, u16) {
        let ended = self.queue.client.wait().unwrap();
        (ended.tag, ended.status() & 0x7ff)
    }
}

fn pair(served: &Served) -> (Member, Member) {
    let (mut one, mut other) = (Member::join(served, 1), Member::join(served, 2));
    one.register(1);
    other.register(1);
    assert_eq!(one.acquire(1), 0);
    (one, other)
}

/// Waits until the drive has been asked for so much.
fn until_submitted(served: &Served, requests: u64) {
    while served.switches.submitted.load(Ordering::SeqCst) < requests {
        std::thread::yield_now();
    }
}

fn let_go(served: &Served) {
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
}

#[test]
fn the_holder_writes_and_others_do_not_until_one_preempts_it() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let (mut one, mut other) = pair(&served);
    let (mine, theirs) = (vec![1; 2 * BLOCK_BYTES], vec![2; 2 * BLOCK_BYTES]);
    assert_eq!((one.queue.write(0, &mine), other.queue.write(0, &theirs)), (0, CONFLICT));
    assert_eq!(other.queue.read(0, 2), mine, "others read");
    assert_eq!((other.queue.flush(), other.acquire(1)), (CONFLICT, CONFLICT));
    let mut third = Member::join(&served, 1);
    assert_eq!(third.queue.write(4, &mine), 0, "another controller of the holder");
    let (status, report) =
        other.queue.run(&said(ReservationCommand::Report { bytes: 256 }, 1), Payload::ToHost(vec![0xee; 256]));
    let (head, listed) = RegisteredController::listed(&report).unwrap();
    assert_eq!((status, head.kind, head.controllers.get()), (0, WRITE_EXCLUSIVE.code(), 3));
    let row = |entry: &RegisteredController| (entry.controller.get(), entry.is_holder(), entry.key.get());
    let rows: Vec<_> = listed.iter().map(row).collect();
    let ids = [&one, &third, &other].map(|member| member.host.controller);
    assert_eq!(rows, [(ids[0], true, 1), (ids[1], true, 1), (ids[2], false, 2)]);
    // Both controllers of the first host hear of it.
    assert_eq!(other.preempt(1, Acquire::Preempt, 1), 0);
    assert_eq!([&mut one, &mut third].map(|member| member.queue.write(0, &mine)), [CONFLICT; 2]);
    assert_eq!(other.queue.write(0, &theirs), 0);
    assert_eq!(one.queue.read(0, 2), theirs);
    assert_eq!(other.reserve(1, ReservationCommand::Release { action: Release::Release(WRITE_EXCLUSIVE) }, [2, 0]), 0);
    assert_eq!(one.queue.write(8, &mine), 0, "nothing is reserved any more");
    let data = served.end().data().to_vec();
    assert_eq!([data[0], data[4 * BLOCK_BYTES], data[8 * BLOCK_BYTES]], [2, 1, 1]);
}

#[test]
fn a_write_whose_data_come_after_its_host_was_preempted_never_happens() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let (mut one, mut other) = pair(&served);
    let long = vec![1; 64 * BLOCK_BYTES];
    one.queue.client.submit(1, &write(0, &long), Payload::ToController(long.clone()));
    one.queue.client.submit(2, &entry(0x05, 1, [100, 0, 63]), Payload::ToController(long.clone()));
    one.push();
    // Those that the server read behind the preemption would be refused, or be allowed.
    one.until_asked_for(2);
    assert_eq!(other.preempt(1, Acquire::PreemptAndAbort, 1), 0, "it waits for no host");
    // The stalled host goes on.
    let mut ended = [one.wait(), one.wait()];
    ended.sort_unstable();
    assert_eq!(ended, [(1, PREEMPTED), (2, PREEMPTED)]);
    assert_eq!(other.queue.read(0, 64), vec![0; long.len()]);
    assert!(served.end().data().iter().all(|byte| *byte == 0));
}

#[test]
fn a_preemption_that_aborts_ends_when_the_drive_has_nothing_of_the_preempted_host() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let (mut one, mut other) = pair(&served);
    served.switches.held.store(true, Ordering::SeqCst);
    one.queue.client.submit(1, &write(0, &[1; BLOCK_BYTES]), Payload::ToController(vec![1; BLOCK_BYTES]));
    one.push();
    until_submitted(&served, 1);
    other.begin_to_preempt(1, 1);
    // A refusal that comes later than the preemption: the host is a registrant no longer.
    let mut late = one.host.queue(2);
    while late.status(&entry(0x00, 1, [0; 3])) != CONFLICT {}
    assert_eq!(served.switches.blocks_written.load(Ordering::SeqCst), 0);
    let_go(&served);
    assert_eq!(other.wait(), (9, 0));
    assert_eq!(served.switches.blocks_written.load(Ordering::SeqCst), 1, "the write came first");
    assert_eq!(one.wait(), (1, 0), "it was at the drive, and took effect");
    served.end();
}

#[test]
fn a_fused_pair_at_the_drive_ends_as_one_and_one_that_waits_never_happens() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let (mut one, mut other) = pair(&served);
    let fused = |opcode: u8, first: u32, half: u8| {
        let mut entry = entry(opcode, 1, [first, 0, 0]);
        entry[1] |= half;
        entry
    };
    served.switches.held.store(true, Ordering::SeqCst);
    let block = |byte| Payload::ToController(vec![byte; BLOCK_BYTES]);
    one.queue.client.submit(1, &fused(0x05, 0, 0b01), block(0));
    one.queue.client.submit(2, &fused(0x01, 0, 0b10), block(1));
    one.push();
    until_submitted(&served, 1);
    other.begin_to_preempt(1, 1);
    let_go(&served);
    assert_eq!(other.wait(), (9, 0));
    assert_eq!([one.wait(), one.wait()], [(1, 0), (2, 0)]);
    assert_eq!(other.queue.read(0, 1), [1; BLOCK_BYTES]);
    // The first half has come, the second not yet.
    assert_eq!(one.reserve(1, REGISTER, [0, 1]), 0);
    assert_eq!(one.preempt(1, Acquire::Preempt, 2), 0);
    one.queue.client.submit(3, &fused(0x05, 0, 0b01), block(1));
    one.push();
    other.register(1);
    assert_eq!(other.preempt(1, Acquire::PreemptAndAbort, 1), 0);
    one.queue.client.submit(4, &fused(0x01, 0, 0b10), block(2));
    let ended = [one.wait(), one.wait()];
    assert!(ended.iter().all(|(_, status)| [PREEMPTED, CONFLICT, FAILED_FUSED].contains(status)), "{ended:x?}");
    assert_eq!(other.queue.read(0, 1), [1; BLOCK_BYTES]);
    served.end();
}

#[test]
fn what_a_connection_has_left_at_the_drive_is_waited_for_too() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let (one, mut other) = pair(&served);
    let Member { mut queue, host, .. } = one;
    served.switches.held.store(true, Ordering::SeqCst);
    queue.client.submit(1, &write(0, &[1; BLOCK_BYTES]), Payload::ToController(vec![1; BLOCK_BYTES]));
    queue.raw.set_nonblocking(true).unwrap();
    queue.client.try_wait().unwrap();
    until_submitted(&served, 1);
    let connections = served.counters.connections.get();
    drop((queue, host));
    while served.counters.connections.get() == connections {
        std::thread::yield_now();
    }
    // The controller of the first host ends with its admin queue; what its I/O queue had started goes on.
    other.begin_to_preempt(1, 1);
    let mut third = Member::join(&served, 3);
    assert_eq!(third.queue.write(5, &[3; BLOCK_BYTES]), CONFLICT);
    assert_eq!(served.switches.blocks_written.load(Ordering::SeqCst), 0);
    let_go(&served);
    assert_eq!(other.wait(), (9, 0));
    assert_eq!(served.switches.blocks_written.load(Ordering::SeqCst), 1);
    served.end();
}

/// Commands of every way through the server, some of which wait for frames, for data, or for each other.
fn any_command(chance: &mut Xoshiro256PlusPlus, byte: u8) -> Vec<([u8; 64], Payload)> {
    let blocks =
        if chance.next_u32().is_multiple_of(4) { 1 + chance.next_u32() % 200 } else { 1 + chance.next_u32() % 4 };
    let first = chance.next_u32() % (BLOCKS as u32 - blocks);
    let bytes = blocks as usize * BLOCK_BYTES;
    let data = || Payload::ToController(vec![byte; bytes]);
    let ranged = |opcode| entry(opcode, 1, [first, 0, blocks - 1]);
    let fused = |mut entry: [u8; 64], half: u8| {
        entry[1] |= half;
        entry
    };
    let list = |bytes: usize, at: usize, first: u32| {
        let mut list = vec![0; bytes];
        list[at..at + 4].copy_from_slice(&first.to_le_bytes());
        list
    };
    match chance.next_u32() % 9 {
        0..=2 => vec![(ranged(0x01), data())],
        3 => vec![(ranged(0x02), Payload::ToHost(vec![0; bytes]))],
        4 => vec![(ranged(0x05), data())],
        5 => vec![(ranged(0x08), Payload::None)],
        6 => {
            let mut list = list(16, 8, first);
            list[4..8].copy_from_slice(&blocks.to_le_bytes());
            vec![(entry(0x09, 1, [0, 1 << 2, 0]), Payload::ToController(list))]
        }
        7 => {
            let mut list = list(32, 8, first);
            list[16..18].copy_from_slice(&(blocks as u16 - 1).to_le_bytes());
            vec![(entry(0x19, 1, [BLOCKS as u32 - 1 - first.min(blocks), 0, 0]), Payload::ToController(list))]
        }
        _ => {
            let small = |opcode| entry(opcode, 1, [first, 0, 0]);
            let data = || Payload::ToController(vec![byte; BLOCK_BYTES]);
            vec![(fused(small(0x05), 0b01), data()), (fused(small(0x01), 0b10), data())]
        }
    }
}

#[test]
fn after_a_preemption_that_aborts_nothing_of_the_preempted_host_happens_whatever_it_had_under_way() {
    for seed in 0..12 {
        // Few frames, so that many commands wait for them.
        let drive = Memory::new(BLOCKS, if seed % 2 == 0 { 240 } else { 1024 }, SHUFFLED);
        let served = Served::new(drive);
        let (mut one, mut other) = pair(&served);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        served.switches.held.store(seed % 3 == 0, Ordering::SeqCst);
        let mut commands = 0;
        while commands < 40 {
            for (command, payload) in any_command(&mut chance, 1) {
                one.queue.client.submit(commands, &command, payload);
                commands += 1;
            }
        }
        // Some of what it is asked for it still sends.
        one.queue.raw.set_nonblocking(true).unwrap();
        let mut ended = Vec::new();
        for _ in 0..chance.next_u32() % 30 {
            ended.extend(one.queue.client.try_wait().unwrap());
        }
        one.queue.client.try_wait().unwrap().into_iter().for_each(|one| ended.push(one));
        one.queue.raw.set_nonblocking(false).unwrap();
        other.begin_to_preempt(1, 1);
        let_go(&served);
        assert_eq!(other.wait(), (9, 0), "seed {seed}");
        let after = pattern(seed, BLOCKS * BLOCK_BYTES);
        for (piece, data) in after.chunks(64 * BLOCK_BYTES).enumerate() {
            assert_eq!(other.queue.write(piece as u32 * 64, data), 0, "seed {seed}");
        }
        let mut tags: Vec<u64> = ended.iter().map(|ended| ended.tag).collect();
        while tags.len() < commands as usize {
            let (tag, status) = one.wait();
            let known = [0, PREEMPTED, CONFLICT, COMPARE_FAILURE, FAILED_FUSED, 0x080, 0x082, 0x183];
            assert!(known.contains(&status), "seed {seed}: {status:#x}");
            tags.push(tag);
        }
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..commands), "seed {seed}: each ends once");
        assert!(served.end().data() == after, "seed {seed}: something has changed");
    }
}

#[test]
fn a_late_reset_of_a_zone_is_refused_and_what_another_host_has_written_there_stays() {
    let zoned = zoned_drive();
    let wishes = Wishes { zoned: Some(zoned), ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), wishes);
    let (mut one, mut other) = (Member::join(&served, 1), Member::join(&served, 2));
    let data = pattern(7, 2 * BLOCK_BYTES);
    let at = |opcode, dword_12: u32, dword_13: u32| {
        let mut entry = entry(opcode, 2, [0, 0, dword_12]);
        entry[52..56].copy_from_slice(&dword_13.to_le_bytes());
        entry
    };
    one.register(2);
    assert_eq!(one.acquire(2), 0);
    assert_eq!(one.queue.run(&at(0x01, 1, 0), Payload::ToController(vec![9; data.len()])).0, 0);
    other.register(2);
    assert_eq!(other.queue.status(&at(0x79, 0, 4)), CONFLICT, "a reset by another");
    assert_eq!(other.preempt(2, Acquire::PreemptAndAbort, 1), 0);
    assert_eq!(other.queue.status(&at(0x79, 0, 4)), 0);
    assert_eq!(other.queue.run(&at(0x01, 1, 0), Payload::ToController(data.clone())).0, 0);
    assert_eq!(one.queue.status(&at(0x79, 0, 4)), CONFLICT, "the late reset");
    assert_eq!(one.queue.run(&at(0x7d, 0, 0), Payload::ToController(vec![9; BLOCK_BYTES])).0, CONFLICT, "an append");
    let (status, read) = one.queue.run(&at(0x02, 1, 0), Payload::ToHost(vec![0; data.len()]));
    assert_eq!((status, read), (0, data));
    served.end();
}

/// A drive that is also served over NBD at a path in a folder, and an NVMe host.
fn served_over_nbd_too() -> (TempDir, PathBuf, Served, Member) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let wishes = Wishes { nbd: Some(path.clone()), ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 512, SHUFFLED), wishes);
    let member = Member::join(&served, 5);
    (folder, path, served, member)
}

#[test]
fn an_nbd_client_is_bound_by_what_nvme_hosts_reserve() {
    const NOT_PERMITTED: u32 = ErrorCode::NotPermitted as u32;
    let (_folder, path, served, mut member) = served_over_nbd_too();
    let mut client = Client::open(&path, true);
    let [before, refused, after] = [1, 2, 3].map(|seed| pattern(seed, 3 * BLOCK_BYTES));
    assert_eq!(client.write(0, &before), 0);
    member.register(1);
    assert_eq!(client.write(0, &before), 0, "who is registered has nothing for itself yet");
    for (kind, reads) in [(WRITE_EXCLUSIVE, 0), (ReservationType::ExclusiveAccessAllRegistrants, NOT_PERMITTED)] {
        let command = ReservationCommand::Acquire { action: Acquire::Acquire, kind };
        assert_eq!(member.reserve(1, command, [member.key, 0]), 0);
        // The payload of a write that is refused is skipped, and the next request is understood.
        assert_eq!(client.write(0, &refused), NOT_PERMITTED);
        assert_eq!(client.flush(), NOT_PERMITTED);
        let read = client.read(0, before.len());
        assert_eq!(read.error, reads);
        assert!(read.error != 0 || read.data == before);
        // One that connects meanwhile sees an export that can be written, which it soon may be.
        let mut late = Client::open(&path, false);
        assert_eq!(late.write(0, &refused), NOT_PERMITTED);
        let command = ReservationCommand::Release { action: Release::Release(kind) };
        assert_eq!(member.reserve(1, command, [member.key, 0]), 0);
        assert!(client.read(0, before.len()).data == before);
        assert_eq!(late.write(BLOCK_BYTES as u64, &before[BLOCK_BYTES..]), 0);
    }
    assert_eq!((client.write(0, &after), client.flush()), (0, 0));
    let drive = served.end();
    assert!(drive.data()[..after.len()] == after[..]);
}

#[test]
fn a_write_of_an_nbd_client_that_a_reservation_overtakes_is_refused() {
    let (_folder, path, served, mut member) = served_over_nbd_too();
    member.register(1);
    let [mut client, mut other] = [true, false].map(|structured| Client::open(&path, structured));
    // Payload that waits in the receive buffer, and such that goes to its frames as it comes.
    for blocks in [2, 24] {
        let [before, overtaken] = [1, 2].map(|seed| pattern(seed, blocks * BLOCK_BYTES));
        assert_eq!(client.write(0, &before), 0);
        let whole = [head(command::WRITE, 0, 8, 0, overtaken.len()), overtaken].concat();
        let (first, rest) = whole.split_at(whole.len() - 1);
        client.say(first);
        // What was said before this request is taken before its reply is sent.
        assert_eq!(other.flush(), 0);
        let command = ReservationCommand::Acquire { action: Acquire::Acquire, kind: WRITE_EXCLUSIVE };
        assert_eq!(member.reserve(1, command, [member.key, 0]), 0);
        client.say(rest);
        assert_eq!(client.reply(|_| 0).error, ErrorCode::NotPermitted as u32);
        assert!(client.read(0, before.len()).data == before);
        let command = ReservationCommand::Release { action: Release::Release(WRITE_EXCLUSIVE) };
        assert_eq!(member.reserve(1, command, [member.key, 0]), 0);
        client.say(&whole);
        assert_eq!(client.reply(|_| 0).error, 0, "its frames were given back");
    }
    served.end();
}

#[test]
fn a_request_of_an_nbd_client_that_waits_for_room_is_overtaken_too() {
    const LENGTH: usize = 64 * BLOCK_BYTES;
    let (_folder, path, served, mut member) = served_over_nbd_too();
    let mut client = Client::open(&path, true);
    member.register(1);
    served.switches.held.store(true, Ordering::SeqCst);
    // More than all frames of the drive.
    let cookies = 0..20;
    cookies.clone().for_each(|cookie| client.send_read(cookie, 0, LENGTH));
    // Before another client is answered, what these reads may begin they have begun.
    Client::open(&path, true);
    let begun = served.switches.submitted.load(Ordering::SeqCst);
    assert!((1..20).contains(&begun), "{begun}");
    let kind = ReservationType::ExclusiveAccess;
    let command = ReservationCommand::Acquire { action: Acquire::Acquire, kind };
    assert_eq!(member.reserve(1, command, [member.key, 0]), 0);
    let_go(&served);
    let errors = cookies.map(|_| client.reply(|_| LENGTH).error);
    assert_eq!(errors.filter(|error| *error == ErrorCode::NotPermitted as u32).count() as u64, 20 - begun);
    let command = ReservationCommand::Release { action: Release::Release(kind) };
    assert_eq!(member.reserve(1, command, [member.key, 0]), 0);
    assert_eq!(client.read(0, LENGTH).error, 0);
    served.end();
}
