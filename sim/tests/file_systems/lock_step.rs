//! Operations on file systems without a drive that do what the model does, late and with other inode numbers, and on those that do not.

use openftl_alfs::operation::{Operation, Reply};
use openftl_alfs::{Attributes, Data, FileKind, FileSystem, FileTime, Inode, NewFile, Refusal, RenameHow, Ticket};
use openftl_core::{Nanos, Time, VirtualClock};
use openftl_sim::liveness::Patience;
use openftl_sim::{FileModel, FileSteps, FileWeights, FileWorld};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// It is full once in a while.
    Full,
    /// Of the bytes of a large read one is wrong.
    WrongByte,
    /// A change of the mode does not show in the time.
    NoChangedTime,
    /// Exchanges only replace.
    ReplacesOnExchange,
    /// A listing that goes on has missed a name.
    MissesName,
    /// Seeks end too early.
    SeeksRoughly,
    /// A file that is held goes with its last name.
    ForgetsHolds,
    /// A folder that is not empty is refused for another reason.
    WrongRefusal,
    /// An operation that waits is never over.
    Hangs,
    /// A new file has the number of another one.
    SameNumber,
    /// No extended attribute is listed.
    ListsNoXattrs,
}

/// The model with other inode numbers, which has operations wait.
struct Slow {
    model: FileModel,
    flaw: Flaw,
    /// When an operation will be over.
    due: BTreeMap<Ticket, Time>,
    operations: u64,
}

impl Slow {
    fn new(flaw: Flaw) -> Slow {
        let mut model = FileModel::new(0o750, FileTime::default());
        let file = NewFile { kind: FileKind::Regular, mode: 0, uid: 0, gid: 0, device: 0 };
        for _ in 0..1_000 {
            let ticket = model.ticket();
            let parent = Inode::ROOT;
            for operation in [Operation::Make { parent, name: b"x", file }, Operation::Unlink { parent, name: b"x" }] {
                _ = model.attempt(Time::ZERO, FileTime::default(), ticket, &operation).unwrap().unwrap();
            }
        }
        Slow { model, flaw, due: BTreeMap::new(), operations: 0 }
    }

    /// The operation that is carried out in place of another one.
    fn bent<'a>(&self, operation: &Operation<'a>) -> Operation<'a> {
        match (self.flaw, *operation) {
            (
                Flaw::ReplacesOnExchange,
                Operation::Rename { from, from_name, to, to_name, how: RenameHow::Exchange },
            ) => Operation::Rename { from, from_name, to, to_name, how: RenameHow::Replace },
            (Flaw::NoChangedTime, Operation::SetAttributes { inode, mut changes }) if changes.mode.is_some() => {
                let before = self.model.file(inode).map(|file| file.attributes().changed);
                changes.changed = changes.changed.or(before);
                Operation::SetAttributes { inode, changes }
            }
            (_, other) => other,
        }
    }

    fn spoiled(&mut self, operation: &Operation<'_>, reply: Result<Reply, Refusal>) -> Result<Reply, Refusal> {
        match (self.flaw, operation, reply) {
            (Flaw::MissesName, Operation::ReadDirectory { after: 1.., .. }, Ok(Reply::Entries(mut entries))) => {
                if entries.len() > 2 {
                    entries.remove(1);
                }
                Ok(Reply::Entries(entries))
            }
            (Flaw::SeeksRoughly, Operation::Seek { .. }, Ok(Reply::Offset(offset))) => {
                Ok(Reply::Offset(offset & !0xFFFF))
            }
            (Flaw::WrongRefusal, _, Err(Refusal::NotEmpty)) => Err(Refusal::Exists),
            (Flaw::SameNumber, Operation::Make { .. }, Ok(Reply::Attributes(made)))
                if self.operations.is_multiple_of(5) =>
            {
                let other = self.model.files().next().map(|file| file.attributes().inode);
                Ok(Reply::Attributes(Attributes { inode: other.unwrap_or(made.inode), ..made }))
            }
            (Flaw::ListsNoXattrs, Operation::ListXattr { .. }, Ok(Reply::Bytes(_))) => Ok(Reply::Bytes(Vec::new())),
            (_, _, reply) => reply,
        }
    }
}

impl FileSystem for Slow {
    fn ticket(&mut self) -> Ticket {
        self.model.ticket()
    }

    fn attempt(
        &mut self,
        now: Time,
        clock: FileTime,
        ticket: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>> {
        let late = now + Nanos::from_micros(ticket.0 % 4 * 50);
        let due = *self.due.entry(ticket).or_insert(late);
        if due > now || self.flaw == Flaw::Hangs {
            return None;
        }
        self.due.remove(&ticket);
        self.operations += 1;
        let needs_room = matches!(operation, Operation::Make { .. } | Operation::Write { .. });
        if self.flaw == Flaw::Full && needs_room && self.operations.is_multiple_of(3) {
            return Some(Err(Refusal::NoRoom));
        }
        let operation = self.bent(operation);
        let reply = self.model.attempt(now, clock, ticket, &operation)?;
        Some(self.spoiled(&operation, reply))
    }

    fn abandon(&mut self, ticket: Ticket) {
        self.due.remove(&ticket);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.due.values().any(|due| *due <= now) && self.flaw != Flaw::Hangs
    }

    fn next_due(&self) -> Option<Time> {
        self.due.values().min().copied()
    }

    fn data(&self, data: &Data, piece: &mut dyn FnMut(&[u8])) {
        let is_wrong = self.flaw == Flaw::WrongByte && data.bytes > 5_000;
        self.model.data(data, &mut |bytes| {
            let mut bytes = bytes.to_vec();
            bytes[0] ^= u8::from(is_wrong);
            piece(&bytes);
        });
    }

    fn give_back(&mut self, data: Data) {
        self.model.give_back(data);
    }

    fn hold(&mut self, inode: Inode, times: u64) {
        if self.flaw != Flaw::ForgetsHolds {
            self.model.hold(inode, times);
        }
    }

    fn release(&mut self, inode: Inode, times: u64) -> bool {
        self.flaw == Flaw::ForgetsHolds || self.model.release(inode, times)
    }
}

fn play(flaw: Flaw, operations: u32, seed: u64) -> Result<FileWorld<Slow>, String> {
    let patience = Patience { time: Nanos::from_millis(10), polls: 1_000 };
    let mut world = FileWorld::new(Slow::new(flaw), VirtualClock::default(), patience)?;
    world.leniency.may_be_full = flaw == Flaw::Full;
    let mut steps = FileSteps::new(seed, FileWeights::usual());
    for _ in 0..operations {
        let step = steps.next(&world.model);
        world.step(&step)?;
    }
    world.settle()?;
    world.verify()?;
    Ok(world)
}

#[test]
fn a_file_system_that_does_what_the_model_does_passes() {
    for seed in 0..6 {
        let world = play(Flaw::None, 1_500, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(world.states().len() > 1, "a sync is not the last step");
        assert_eq!(world.refused_for_room, 0);
    }
}

#[test]
fn a_file_system_that_is_full_may_refuse_what_needs_room() {
    let world = play(Flaw::Full, 1_500, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(world.refused_for_room > 50, "{}", world.refused_for_room);
}

#[test]
fn flaws_are_caught() {
    let flaws = [
        (Flaw::WrongByte, "differ"),
        (Flaw::NoChangedTime, "expected Attributes"),
        (Flaw::ReplacesOnExchange, ""),
        (Flaw::MissesName, "not listed"),
        (Flaw::SeeksRoughly, "expected Offset"),
        (Flaw::ForgetsHolds, ""),
        (Flaw::WrongRefusal, "should be one of"),
        (Flaw::Hangs, "no end after"),
        (Flaw::SameNumber, "inode number"),
        (Flaw::ListsNoXattrs, ""),
    ];
    for (flaw, expected) in flaws {
        let error = play(flaw, 1_500, 3).err().unwrap_or_else(|| panic!("{flaw:?} is not caught"));
        assert!(error.contains(expected), "{flaw:?} is caught by another thing than expected: {error}");
    }
}
