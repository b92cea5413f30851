//! The reservation of one namespace: which hosts are registered with it, and which of them may read and write it (Base, "Reservations").
//!
//! ```text
//!   host A ─ register, key 1 ─┐                     ┌─ acquire: A holds the reservation, of one of six types
//!   host B ─ register, key 2 ─┴─▶ registrants ──────┤
//!   host C                                          └─ preempt key 1: B takes it, and A is registered no longer
//! ```
//!
//! A registrant is a host, by its identifier, whatever controllers it has and whether it has any at the moment. Nothing is kept
//! when the server ends (PTPL): its hosts begin without registrations. A host that is gone and holds nothing gives way where there is no room for another.
//!
//! | type | reads of others | writes of others | reads of registrants | writes of registrants |
//! |---|---|---|---|---|
//! | Write Exclusive | yes | no | yes | no |
//! | Exclusive Access | no | no | no | no |
//! | Write Exclusive, Registrants Only or All Registrants | yes | no | yes | yes |
//! | Exclusive Access, Registrants Only or All Registrants | no | no | yes | yes |
//!
//! The holder may do everything; of the types for all registrants each registrant is a holder.

use crate::command::Refusal;
use crate::command::reservation::{Access, Acquire, Keys, Register, Release, ReservationCommand};
use crate::wire::reservation::Notification;
use crate::wire::status::Status;

/// The most hosts that are registered with one namespace.
pub const REGISTRANTS_MAX: usize = 128;

/// HOSTID.
pub type HostId = [u8; 16];

/// A host that has said none has this identifier, and cannot be registered: nobody could tell it from another.
pub const NO_HOST_ID: HostId = [0; 16];

/// What the holder of a reservation has for itself (Base, "Reservation Type").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Only registrants write; one of them is the holder.
    WriteExclusiveRegistrantsOnly = 3,
    /// Only registrants read and write; one of them is the holder.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Only registrants write, and each of them is a holder.
    WriteExclusiveAllRegistrants = 5,
    /// Only registrants read and write, and each of them is a holder.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// Every type, in the order of their codes.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a code, RTYPE.
    #[must_use]
    pub fn of(code: u8) -> Option<ReservationType> {
        ReservationType::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// RTYPE.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What the specification calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReservationType::WriteExclusive => "Write Exclusive",
            ReservationType::ExclusiveAccess => "Exclusive Access",
            ReservationType::WriteExclusiveRegistrantsOnly => "Write Exclusive - Registrants Only",
            ReservationType::ExclusiveAccessRegistrantsOnly => "Exclusive Access - Registrants Only",
            ReservationType::WriteExclusiveAllRegistrants => "Write Exclusive - All Registrants",
            ReservationType::ExclusiveAccessAllRegistrants => "Exclusive Access - All Registrants",
        }
    }

    /// Whether every registrant is a holder.
    fn is_of_all(self) -> bool {
        use ReservationType as Type;
        matches!(self, Type::WriteExclusiveAllRegistrants | Type::ExclusiveAccessAllRegistrants)
    }

    /// Whether registrants who are not its holder may do more than others.
    fn is_shared(self) -> bool {
        !matches!(self, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
    }

    /// Whether only writes are kept from others.
    fn lets_read(self) -> bool {
        use ReservationType as Type;
        matches!(self, Type::WriteExclusive | Type::WriteExclusiveRegistrantsOnly | Type::WriteExclusiveAllRegistrants)
    }
}

/// A host that is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrant {
    /// Who.
    pub host: HostId,
    /// Its key, which others name it by.
    pub key: u64,
}

/// A reservation that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    kind: ReservationType,
    /// Of the types for all registrants, whoever acquired it: that means nothing.
    holder: HostId,
}

/// What a command changed that others have to know.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Change {
    /// Hosts that are told, and of what.
    pub notifications: Vec<(HostId, Notification)>,
    /// Hosts that lost their registration to another host, by a preemption.
    pub preempted: Vec<HostId>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reservation {
    generation: u32,
    /// In the order in which they registered.
    registrants: Vec<Registrant>,
    held: Option<Held>,
}

impl Reservation {
    /// GEN: counts what changed registrations.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The hosts that are registered.
    #[must_use]
    pub fn registrants(&self) -> &[Registrant] {
        &self.registrants
    }

    /// The type of the reservation that is held.
    #[must_use]
    pub fn held(&self) -> Option<ReservationType> {
        self.held.map(|held| held.kind)
    }

    /// Whether a host holds the reservation, alone or with others.
    #[must_use]
    pub fn is_holder(&self, host: HostId) -> bool {
        self.held.is_some_and(|held| held.holder == host || held.kind.is_of_all()) && self.is_registered(host)
    }

    /// Where there is no room for `host` to register, those are registered no longer that are not there and hold nothing: whoever comes and goes under new
    /// names keeps nobody out.
    pub fn make_room_for(&mut self, host: HostId, is_there: impl Fn(HostId) -> bool) {
        if self.registrants.len() < REGISTRANTS_MAX || self.is_registered(host) {
            return;
        }
        let (held, before) = (self.held, self.registrants.len());
        let is_holder = |one: HostId| held.is_some_and(|held| held.holder == one || held.kind.is_of_all());
        self.registrants.retain(|one| is_there(one.host) || is_holder(one.host));
        if self.registrants.len() < before {
            self.generation = self.generation.wrapping_add(1);
        }
    }

    fn is_registered(&self, host: HostId) -> bool {
        self.registrants.iter().any(|one| one.host == host)
    }

    /// Whether a host may access the namespace so now (Base, "Command Behavior in the Presence of a Reservation").
    #[must_use]
    pub fn allows(&self, host: HostId, access: Access) -> bool {
        let Some(held) = self.held else { return true };
        match access {
            Access::None => true,
            _ if self.is_holder(host) => true,
            Access::Read if held.kind.lets_read() => true,
            Access::Read | Access::Write => held.kind.is_shared() && self.is_registered(host),
        }
    }

    /// Carries out a command of `host`. A report changes nothing.
    ///
    /// # Errors
    /// The status of what cannot be; nothing has changed then.
    pub fn carry_out(&mut self, host: HostId, command: ReservationCommand, keys: Keys) -> Result<Change, Refusal> {
        if host == NO_HOST_ID {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        match command {
            ReservationCommand::Register { action, ignores_key } => self.register(host, action, ignores_key, keys),
            ReservationCommand::Acquire { action, kind } => self.acquire(host, action, kind, keys),
            ReservationCommand::Release { action } => self.release(host, action, keys),
            ReservationCommand::Report { .. } => Ok(Change::default()),
        }
    }

    fn register(&mut self, host: HostId, action: Register, ignores_key: bool, keys: Keys) -> Result<Change, Refusal> {
        let own = self.registrants.iter_mut().find(|one| one.host == host);
        let is_right = own.as_ref().is_some_and(|own| ignores_key || own.key == keys.current);
        let mut change = Change::default();
        match (action, own) {
            // Saying the same again is no error.
            (Register::Register, Some(own)) if own.key == keys.other => {}
            (Register::Register, Some(_)) => return Err(conflict()),
            // With IEKEY a host replaces its key "without regard to its registration status".
            (Register::Register, None) | (Register::Replace, None) if action == Register::Register || ignores_key => {
                if self.registrants.len() == REGISTRANTS_MAX {
                    return Err(Status::TOO_MANY_REGISTRANTS.into());
                }
                self.registrants.push(Registrant { host, key: keys.other });
            }
            (Register::Replace, Some(own)) if is_right => own.key = keys.other,
            (Register::Unregister, Some(_)) if is_right => {
                let before = self.held;
                self.remove(|one| one.host == host);
                // Registrants who could write by the reservation of another are told that they can so no longer.
                if let (Some(before), None) = (before, self.held)
                    && before.kind.is_shared()
                {
                    change.tell(self.others(host), Notification::ReservationReleased);
                }
            }
            _ => return Err(conflict()),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(change)
    }

    fn acquire(&mut self, host: HostId, action: Acquire, kind: ReservationType, keys: Keys) -> Result<Change, Refusal> {
        self.expect_key(host, keys.current)?;
        match (action, self.held) {
            (Acquire::Acquire, None) => self.held = Some(Held { kind, holder: host }),
            // Saying the same again is no error.
            (Acquire::Acquire, Some(held)) if held.kind == kind && self.is_holder(host) => {}
            (Acquire::Acquire, Some(_)) => return Err(conflict()),
            (Acquire::Preempt | Acquire::PreemptAndAbort, held) => return self.preempt(host, kind, keys.other, held),
        }
        Ok(Change::default())
    }

    fn preempt(
        &mut self,
        host: HostId,
        kind: ReservationType,
        key: u64,
        held: Option<Held>,
    ) -> Result<Change, Refusal> {
        let of_holder = |held: Held| self.registrants.iter().find(|one| one.host == held.holder).map(|one| one.key);
        let takes_over = match held {
            None => false,
            Some(held) if held.kind.is_of_all() => key == 0,
            Some(held) if of_holder(held) == Some(key) => true,
            Some(_) if key == 0 => return Err(Status::INVALID_FIELD.into()),
            Some(_) => false,
        };
        let is_of_all = held.is_some_and(|held| held.kind.is_of_all());
        let is_meant = |one: &Registrant| match takes_over {
            true => one.host != host && (is_of_all || one.key == key),
            false => one.key == key,
        };
        let preempted: Vec<HostId> = self.registrants.iter().filter(|one| is_meant(one)).map(|one| one.host).collect();
        if preempted.is_empty() && !takes_over {
            return Err(conflict());
        }
        if takes_over {
            self.held = Some(Held { kind, holder: host });
        }
        self.remove(|one| preempted.contains(&one.host));
        self.generation = self.generation.wrapping_add(1);
        let mut change = Change::default();
        let others = preempted.iter().copied().filter(|one| *one != host);
        change.tell(others.clone(), Notification::RegistrationPreempted);
        if takes_over && held.is_some_and(|held| held.kind != kind) {
            change.tell(self.others(host), Notification::ReservationReleased);
        }
        change.preempted = others.collect();
        Ok(change)
    }

    fn release(&mut self, host: HostId, action: Release, keys: Keys) -> Result<Change, Refusal> {
        self.expect_key(host, keys.current)?;
        let mut change = Change::default();
        match (action, self.held) {
            (Release::Release(_), None) => {}
            // Whoever does not hold it releases nothing, and that is no error.
            (Release::Release(_), Some(_)) if !self.is_holder(host) => {}
            (Release::Release(kind), Some(held)) if kind != held.kind => {
                return Err(Status::INVALID_FIELD.at(41));
            }
            (Release::Release(kind), Some(_)) => {
                self.held = None;
                if kind.is_shared() {
                    change.tell(self.others(host), Notification::ReservationReleased);
                }
            }
            (Release::Clear, _) => {
                change.tell(self.others(host), Notification::ReservationPreempted);
                (self.held, self.generation) = (None, self.generation.wrapping_add(1));
                self.registrants.clear();
            }
        }
        Ok(change)
    }

    /// Whether `host` is registered with this key.
    fn expect_key(&self, host: HostId, key: u64) -> Result<(), Refusal> {
        if self.registrants.contains(&Registrant { host, key }) { Ok(()) } else { Err(conflict()) }
    }

    fn others(&self, host: HostId) -> impl Iterator<Item = HostId> {
        self.registrants.iter().map(|one| one.host).filter(move |one| *one != host)
    }

    /// Removes registrants. With its last holder the reservation ends.
    fn remove(&mut self, is_meant: impl Fn(&Registrant) -> bool) {
        self.registrants.retain(|one| !is_meant(one));
        let has_holder = self.registrants.iter().any(|one| self.is_holder(one.host));
        if !has_holder {
            self.held = None;
        }
    }
}

impl Change {
    fn tell(&mut self, hosts: impl Iterator<Item = HostId>, notification: Notification) {
        self.notifications.extend(hosts.map(|host| (host, notification)));
    }
}

fn conflict() -> Refusal {
    Status::RESERVATION_CONFLICT.into()
}

#[cfg(test)]
#[path = "reservation_tests.rs"]
mod tests;
