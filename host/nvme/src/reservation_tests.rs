//! The rules of the specification, written down a second time as tables.

use super::*;

const A: HostId = [0xa; 16];
const B: HostId = [0xb; 16];
const C: HostId = [0xc; 16];

/// Keys of the hosts.
const KEYS: [(HostId, u64); 3] = [(A, 0xaa), (B, 0xbb), (C, 0xcc)];

fn key_of(host: HostId) -> u64 {
    KEYS.iter().find(|(other, _)| *other == host).unwrap().1
}

impl Reservation {
    fn run(&mut self, host: HostId, command: ReservationCommand, current: u64, other: u64) -> Result<Change, Status> {
        let before = self.clone();
        let ended = self.carry_out(host, command, Keys { current, other }).map_err(|refusal| refusal.status);
        if ended.is_err() {
            assert_eq!(*self, before, "what is refused changes nothing");
        }
        assert!(
            self.held.is_none_or(|held| held.kind.is_of_all() || self.is_holder(held.holder)),
            "a holder is registered"
        );
        assert!(self.held.is_none() || !self.registrants.is_empty());
        ended
    }

    fn with(hosts: &[HostId]) -> Reservation {
        let mut reservation = Reservation::default();
        for host in hosts {
            reservation.run(*host, REGISTER, 0, key_of(*host)).unwrap();
        }
        reservation
    }

    /// Registrants, of whom the first holds the reservation.
    fn held_by(hosts: &[HostId], kind: ReservationType) -> Reservation {
        let mut reservation = Reservation::with(hosts);
        reservation.run(hosts[0], acquire(kind), key_of(hosts[0]), 0).unwrap();
        reservation
    }

    fn hosts(&self) -> Vec<HostId> {
        self.registrants.iter().map(|one| one.host).collect()
    }

    fn holders(&self) -> Vec<HostId> {
        self.hosts().into_iter().filter(|host| self.is_holder(*host)).collect()
    }
}

const REGISTER: ReservationCommand = ReservationCommand::Register { action: Register::Register, ignores_key: false };
const UNREGISTER: ReservationCommand =
    ReservationCommand::Register { action: Register::Unregister, ignores_key: false };
const REPLACE: ReservationCommand = ReservationCommand::Register { action: Register::Replace, ignores_key: false };
const CLEAR: ReservationCommand = ReservationCommand::Release { action: Release::Clear };

fn ignoring_key(action: Register) -> ReservationCommand {
    ReservationCommand::Register { action, ignores_key: true }
}

fn acquire(kind: ReservationType) -> ReservationCommand {
    ReservationCommand::Acquire { action: Acquire::Acquire, kind }
}

fn preempt(kind: ReservationType) -> ReservationCommand {
    ReservationCommand::Acquire { action: Acquire::Preempt, kind }
}

fn release(kind: ReservationType) -> ReservationCommand {
    ReservationCommand::Release { action: Release::Release(kind) }
}

fn told(change: &Change) -> Vec<(HostId, Notification)> {
    change.notifications.clone()
}

/// "Command Behavior in the Presence of a Reservation": may the holder, another registrant, another host read; may they write.
const BEHAVIOR: [(u8, [bool; 3], [bool; 3]); 6] = [
    (1, [true, true, true], [true, false, false]),
    (2, [true, false, false], [true, false, false]),
    (3, [true, true, true], [true, true, false]),
    (4, [true, true, false], [true, true, false]),
    (5, [true, true, true], [true, true, false]),
    (6, [true, true, false], [true, true, false]),
];

#[test]
fn who_may_read_and_write_is_what_the_table_says() {
    assert_eq!(ReservationType::ALL.map(ReservationType::code), BEHAVIOR.map(|(code, ..)| code));
    for (code, reads, writes) in BEHAVIOR {
        let kind = ReservationType::of(code).unwrap();
        let reservation = Reservation::held_by(&[A, B], kind);
        for (access, expected) in [(Access::Read, reads), (Access::Write, writes), (Access::None, [true; 3])] {
            let allowed = [A, B, C].map(|host| reservation.allows(host, access));
            assert_eq!(allowed, expected, "{kind:?}, {access:?}");
        }
        assert!(!reservation.is_holder(C) && !reservation.is_holder(NO_HOST_ID));
    }
    let free = Reservation::with(&[A]);
    assert!([A, B, NO_HOST_ID].iter().all(|host| free.allows(*host, Access::Write)), "registering reserves nothing");
    for code in [0, 7, 255] {
        assert_eq!(ReservationType::of(code), None);
    }
}

#[test]
fn a_host_registers_with_one_key_replaces_it_and_leaves() {
    let conflict = Err(Status::RESERVATION_CONFLICT);
    let mut one = Reservation::default();
    assert_eq!(one.run(NO_HOST_ID, REGISTER, 0, 1), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(one.run(A, UNREGISTER, 0, 0), conflict, "not registered");
    assert_eq!(one.run(A, ignoring_key(Register::Unregister), 0, 0), conflict, "not registered");
    assert_eq!(one.run(A, REPLACE, 0, 1), conflict, "not registered");
    one.run(A, REGISTER, 99, 1).unwrap();
    one.run(A, REGISTER, 0, 1).unwrap();
    assert_eq!(one.run(A, REGISTER, 1, 2), conflict, "another key");
    one.run(B, REGISTER, 0, 1).unwrap();
    assert_eq!(one.generation(), 3, "two hosts may have the same key");
    assert_eq!(one.run(A, REPLACE, 7, 2), conflict);
    one.run(A, REPLACE, 1, 2).unwrap();
    one.run(A, ignoring_key(Register::Replace), 7, 3).unwrap();
    assert_eq!(one.registrants(), [Registrant { host: A, key: 3 }, Registrant { host: B, key: 1 }]);
    assert_eq!(one.run(A, UNREGISTER, 2, 0), conflict);
    one.run(A, UNREGISTER, 3, 0).unwrap();
    one.run(B, ignoring_key(Register::Unregister), 0, 0).unwrap();
    one.run(C, ignoring_key(Register::Replace), 0, 5).unwrap();
    assert_eq!((one.registrants(), one.generation()), (&[Registrant { host: C, key: 5 }][..], 8));
}

#[test]
fn no_more_hosts_register_than_there_is_room_for() {
    let mut full = Reservation::default();
    for host in 1..=REGISTRANTS_MAX as u128 {
        full.run(host.to_le_bytes(), REGISTER, 0, 1).unwrap();
    }
    for command in [REGISTER, ignoring_key(Register::Replace)] {
        assert_eq!(full.run(A, command, 0, 1), Err(Status::TOO_MANY_REGISTRANTS));
    }
    full.run(1_u128.to_le_bytes(), UNREGISTER, 1, 0).unwrap();
    full.run(A, REGISTER, 0, 1).unwrap();
}

#[test]
fn hosts_that_are_gone_and_hold_nothing_keep_nobody_from_registering() {
    for kind in ReservationType::ALL {
        let mut full = Reservation::default();
        let hosts: Vec<HostId> = (1..=REGISTRANTS_MAX as u128).map(u128::to_le_bytes).collect();
        hosts.iter().for_each(|host| _ = full.run(*host, REGISTER, 0, 1).unwrap());
        full.run(hosts[3], acquire(kind), 1, 0).unwrap();
        let is_there = |host: HostId| host == hosts[7];
        let before = full.clone();
        full.make_room_for(hosts[9], is_there);
        assert_eq!(full, before, "it is registered already");
        full.make_room_for(A, is_there);
        if kind.is_of_all() {
            assert_eq!(full, before, "all of them hold it");
            continue;
        }
        assert_eq!((full.hosts(), full.holders()), (vec![hosts[3], hosts[7]], vec![hosts[3]]));
        full.run(A, REGISTER, 0, 1).unwrap();
        full.make_room_for(B, |_| false);
        assert_eq!(full.hosts(), [hosts[3], hosts[7], A], "there is room");
    }
}

#[test]
fn a_reservation_is_acquired_by_a_registrant_who_knows_its_key_and_by_one_host() {
    for kind in ReservationType::ALL {
        let mut one = Reservation::with(&[A, B]);
        let conflict = Err(Status::RESERVATION_CONFLICT);
        assert_eq!(one.run(C, acquire(kind), 0, 0), conflict, "not registered");
        assert_eq!(one.run(A, acquire(kind), 0xbb, 0), conflict, "the key of another");
        one.run(A, acquire(kind), 0xaa, 0).unwrap();
        one.run(A, acquire(kind), 0xaa, 0).unwrap();
        let again = one.run(B, acquire(kind), 0xbb, 0);
        assert_eq!(again.is_ok(), kind.is_of_all(), "{kind:?}: each registrant is a holder");
        for other in ReservationType::ALL.into_iter().filter(|other| *other != kind) {
            for (host, key) in [(A, 0xaa), (B, 0xbb)] {
                assert_eq!(one.run(host, acquire(other), key, 0), conflict, "{kind:?}, {other:?}");
            }
        }
        assert_eq!((one.held(), one.generation()), (Some(kind), 2), "acquiring is not counted");
    }
}

#[test]
fn whoever_holds_it_releases_it_and_registrants_are_told_if_they_had_something_of_it() {
    for kind in ReservationType::ALL {
        let mut one = Reservation::held_by(&[A, B, C], kind);
        let wrong = ReservationType::ALL.into_iter().find(|other| *other != kind).unwrap();
        assert_eq!(one.run(A, release(kind), 0, 0), Err(Status::RESERVATION_CONFLICT));
        assert_eq!(one.run(A, release(wrong), 0xaa, 0), Err(Status::INVALID_FIELD));
        if !kind.is_of_all() {
            assert_eq!(one.run(B, release(kind), 0xbb, 0), Ok(Change::default()));
            assert_eq!(one.holders(), [A], "{kind:?}: who does not hold it releases nothing");
        }
        let change = one.run(A, release(kind), 0xaa, 0).unwrap();
        let released = |host| (host, Notification::ReservationReleased);
        let expected = if kind.code() > 2 { vec![released(B), released(C)] } else { Vec::new() };
        assert_eq!((told(&change), one.held(), one.hosts().len()), (expected, None, 3), "{kind:?}");
        assert_eq!(one.run(A, release(wrong), 0xaa, 0), Ok(Change::default()), "there is none any more");
        assert_eq!(one.generation(), 3, "releasing is not counted");
    }
}

#[test]
fn a_holder_that_leaves_releases_it_and_of_all_registrants_the_last_one_does() {
    for kind in ReservationType::ALL {
        let mut one = Reservation::held_by(&[A, B, C], kind);
        let change = one.run(A, UNREGISTER, 0xaa, 0).unwrap();
        let released = |host| (host, Notification::ReservationReleased);
        let expected = if matches!(kind.code(), 3 | 4) { vec![released(B), released(C)] } else { Vec::new() };
        assert_eq!(told(&change), expected, "{kind:?}");
        assert_eq!(one.held().is_some(), kind.is_of_all(), "{kind:?}");
        one.run(B, UNREGISTER, 0xbb, 0).unwrap();
        one.run(C, UNREGISTER, 0xcc, 0).unwrap();
        assert_eq!(one.held(), None);
    }
}

#[test]
fn clearing_removes_all_and_tells_the_others() {
    for kind in ReservationType::ALL {
        let mut one = Reservation::held_by(&[A, B, C], kind);
        assert_eq!(one.run(B, CLEAR, 0xaa, 0), Err(Status::RESERVATION_CONFLICT));
        let change = one.run(B, CLEAR, 0xbb, 0).unwrap();
        let preempted = |host| (host, Notification::ReservationPreempted);
        assert_eq!(told(&change), [preempted(A), preempted(C)]);
        assert_eq!((one.held(), one.hosts(), one.generation()), (None, Vec::new(), 4));
    }
}

/// What becomes of A, B and C, of whom A holds a reservation, when `who` preempts `key` with a reservation of type `kind`.
struct Preemption {
    held: u8,
    who: HostId,
    key: u64,
    kind: u8,
    /// Registrants, the type and who holds it; or the status.
    expected: Result<(&'static [HostId], u8, &'static [HostId]), Status>,
    told: &'static [(HostId, Notification)],
}

use Notification::{RegistrationPreempted as Preempted, ReservationReleased as Released};

#[rustfmt::skip]
const PREEMPTIONS: &[Preemption] = &[
    // The key of the holder: its reservation is released and made anew.
    Preemption { held: 1, who: B, key: 0xaa, kind: 1, expected: Ok((&[B, C], 1, &[B])), told: &[(A, Preempted)] },
    Preemption { held: 1, who: B, key: 0xaa, kind: 4, expected: Ok((&[B, C], 4, &[B])), told: &[(A, Preempted), (C, Released)] },
    Preemption { held: 4, who: C, key: 0xaa, kind: 5, expected: Ok((&[B, C], 5, &[B, C])), told: &[(A, Preempted), (B, Released)] },
    // Its own: another type.
    Preemption { held: 3, who: A, key: 0xaa, kind: 2, expected: Ok((&[A, B, C], 2, &[A])), told: &[(B, Released), (C, Released)] },
    // Of another registrant: the reservation stays.
    Preemption { held: 1, who: A, key: 0xbb, kind: 2, expected: Ok((&[A, C], 1, &[A])), told: &[(B, Preempted)] },
    Preemption { held: 3, who: C, key: 0xbb, kind: 1, expected: Ok((&[A, C], 3, &[A])), told: &[(B, Preempted)] },
    Preemption { held: 2, who: C, key: 0xcc, kind: 1, expected: Ok((&[A, B], 2, &[A])), told: &[] },
    Preemption { held: 1, who: B, key: 0xdd, kind: 1, expected: Err(Status::RESERVATION_CONFLICT), told: &[] },
    Preemption { held: 1, who: B, key: 0, kind: 1, expected: Err(Status::INVALID_FIELD), told: &[] },
    // Of all registrants: zero stands for all the others.
    Preemption { held: 5, who: B, key: 0, kind: 1, expected: Ok((&[B], 1, &[B])), told: &[(A, Preempted), (C, Preempted)] },
    Preemption { held: 6, who: C, key: 0, kind: 6, expected: Ok((&[C], 6, &[C])), told: &[(A, Preempted), (B, Preempted)] },
    Preemption { held: 5, who: B, key: 0xaa, kind: 1, expected: Ok((&[B, C], 5, &[B, C])), told: &[(A, Preempted)] },
    Preemption { held: 6, who: B, key: 0xdd, kind: 1, expected: Err(Status::RESERVATION_CONFLICT), told: &[] },
    // None is held: only registrations go.
    Preemption { held: 0, who: B, key: 0xaa, kind: 1, expected: Ok((&[B, C], 0, &[])), told: &[(A, Preempted)] },
    Preemption { held: 0, who: B, key: 0xdd, kind: 1, expected: Err(Status::RESERVATION_CONFLICT), told: &[] },
];

#[test]
fn preempting_does_what_the_specification_says_for_each_type_and_key() {
    for (row, preemption) in PREEMPTIONS.iter().enumerate() {
        let Preemption { held, who, key, kind, expected, told: notified } = preemption;
        let hosts = [A, B, C];
        let start = match ReservationType::of(*held) {
            Some(kind) => Reservation::held_by(&hosts, kind),
            None => Reservation::with(&hosts),
        };
        let kind = ReservationType::of(*kind).unwrap();
        let mut one = start.clone();
        assert_eq!(one.run(*who, preempt(kind), 1, *key), Err(Status::RESERVATION_CONFLICT), "row {row}: a wrong key");
        let ended = one.run(*who, preempt(kind), key_of(*who), *key);
        let found = ended.as_ref().map(|_| (one.hosts(), one.held().map_or(0, ReservationType::code), one.holders()));
        let expected = expected.as_ref().map(|(hosts, held, holders)| (hosts.to_vec(), *held, holders.to_vec()));
        assert_eq!(found, expected, "row {row}");
        let Ok(change) = ended else { continue };
        assert_eq!(told(&change), *notified, "row {row}");
        let gone: Vec<HostId> = hosts.into_iter().filter(|host| !one.hosts().contains(host) && host != who).collect();
        assert_eq!((change.preempted, one.generation()), (gone, 4), "row {row}");
        // With Abort it is the same, and the caller ends the commands of those that are gone.
        let mut other = start;
        let abort = ReservationCommand::Acquire { action: Acquire::PreemptAndAbort, kind };
        other.run(*who, abort, key_of(*who), *key).unwrap();
        assert!(abort.aborts() && !preempt(kind).aborts() && other == one, "row {row}");
    }
}

#[test]
fn a_preempted_host_may_register_again_and_has_nothing_of_what_it_had() {
    let mut one = Reservation::held_by(&[A, B], ReservationType::WriteExclusive);
    one.run(B, preempt(ReservationType::WriteExclusive), 0xbb, 0xaa).unwrap();
    assert!(!one.allows(A, Access::Write) && one.allows(A, Access::Read));
    one.run(A, REGISTER, 0, 0xaa).unwrap();
    assert_eq!(one.run(A, acquire(ReservationType::WriteExclusive), 0xaa, 0), Err(Status::RESERVATION_CONFLICT));
    assert!(!one.allows(A, Access::Write));
}
