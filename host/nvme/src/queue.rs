//! What is under way on one queue.
//!
//! ```text
//!              head: taken off, reported with every completion (SQHD)
//!                ▼
//!   entries  ┌───┬───┬───┬───┬───┬───┐      the host sends a command only where the head has passed
//!            └───┴───┴───┴───┴───┴───┘
//!   ids      ··1····1·1··············       commands under way, by the host's names for them
//! ```
//!
//! Over fabrics a submission and a completion queue are one, and one connection of the transport.

use crate::command::Answer;
use crate::wire::fabrics::connect;
use crate::wire::{CompletionEntry, Status};

/// The most entries of a queue (CAP.MQES), and so the most commands under way on it.
pub const QUEUE_ENTRIES_MAX: u32 = 1024;

/// The host's name for a command that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommandId(pub u16);

/// Names one controller for as long as it lives, and none after.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControllerName {
    /// Which subsystem of the target.
    pub subsystem: SubsystemIndex,
    /// CNTLID.
    pub id: u16,
    /// Counts the associations of the target: a later controller may have the id again.
    pub association: u64,
}

/// Which subsystem of a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubsystemIndex {
    /// The one that tells of the others.
    Discovery,
    /// One with namespaces.
    Nvm(usize),
}

/// A command that the queue cannot take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    /// More commands under way than entries. The host does not keep to the protocol: end the connection.
    #[error("the host has more commands under way than its queue of {entries} has entries")]
    Overrun {
        /// Entries of the queue.
        entries: u32,
    },
    /// A command of this name is under way. Answer with [`Queue::refuse`].
    #[error("command id {0:#06x} is under way already")]
    IdInUse(u16),
}

/// One queue of a controller, admin or I/O, as Connect made it.
#[derive(Debug)]
pub struct Queue {
    /// Whose.
    pub(crate) controller: ControllerName,
    pub(crate) id: u16,
    /// Which of all the queues that the target ever had, from 1 on.
    pub(crate) serial: u64,
    /// Whether the host may be listened to: no authentication is required, or it has succeeded.
    pub(crate) is_authenticated: bool,
    entries: u32,
    head: u32,
    has_flow_control: bool,
    ids: CommandIds,
    /// A command that has the name of one that is held.
    beside: Option<CommandId>,
}

impl Queue {
    /// A queue of `entries` entries, whose first one was the Connect command `connect`: it is under way.
    pub(crate) fn new(
        controller: ControllerName,
        id: u16,
        serial: u64,
        entries: u32,
        has_flow_control: bool,
        connect: CommandId,
    ) -> Queue {
        assert!((2..=QUEUE_ENTRIES_MAX).contains(&entries), "Connect has checked the size");
        let mut ids = CommandIds::new();
        ids.insert(connect);
        Queue {
            controller,
            id,
            serial,
            is_authenticated: true,
            entries,
            head: 1 % entries,
            has_flow_control,
            ids,
            beside: None,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn controller(&self) -> ControllerName {
        self.controller
    }

    /// QID; 0 is the admin queue.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Whether this is the admin queue.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.id == 0
    }

    /// Commands under way.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.ids.len
    }

    /// Whether the host has proved who it is, or need not.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether the host has proved who it is is known better now.
    pub fn set_authenticated(&mut self, is_authenticated: bool) {
        self.is_authenticated = is_authenticated;
    }

    /// Takes a command off the queue: it is under way until [`Queue::complete`].
    ///
    /// # Errors
    /// If the command cannot be taken; nothing else is under way then than before.
    pub fn begin(&mut self, id: CommandId) -> Result<(), QueueError> {
        if self.ids.len == self.entries {
            return Err(QueueError::Overrun { entries: self.entries });
        }
        self.head = (self.head + 1) % self.entries;
        if !self.ids.insert(id) {
            return Err(QueueError::IdInUse(id.0));
        }
        Ok(())
    }

    /// Takes a command that [`Queue::begin`] did not take because a held one has its name, an event request that ends when
    /// something happens: it ends with the next [`Queue::complete`] of that name, before anything else is taken. Hosts built on SPDK
    /// name the property commands of their shutdown like requests that they have given up.
    ///
    /// # Errors
    /// If there are as many commands under way as entries.
    pub fn begin_beside(&mut self, id: CommandId) -> Result<(), QueueError> {
        assert!(self.beside.is_none(), "a command beside another ends before the next begins");
        if self.ids.len == self.entries {
            return Err(QueueError::Overrun { entries: self.entries });
        }
        self.beside = Some(id);
        Ok(())
    }

    /// Ends a command that is under way.
    #[must_use]
    pub fn complete(&mut self, id: CommandId, answer: Answer) -> CompletionEntry {
        if self.beside == Some(id) {
            self.beside = None;
        } else {
            assert!(self.ids.remove(id), "command {:#06x} completes once", id.0);
        }
        self.entry(id, answer)
    }

    /// Answers a command that [`Queue::begin`] did not take because of its id. The other of that id goes on.
    #[must_use]
    pub fn refuse(&self, id: CommandId) -> CompletionEntry {
        self.entry(id, Answer::from(Status::COMMAND_ID_CONFLICT))
    }

    /// Ends the Connect command that made the queue.
    #[must_use]
    pub fn complete_connect(&mut self, id: CommandId, answer: Answer) -> CompletionEntry {
        let entry = self.complete(id, answer);
        let head = if self.has_flow_control { self.head as u16 } else { connect::SUBMISSION_HEAD_UNUSED };
        CompletionEntry { submission_head: head.into(), ..entry }
    }

    fn entry(&self, id: CommandId, answer: Answer) -> CompletionEntry {
        CompletionEntry {
            result: answer.result.into(),
            submission_head: if self.has_flow_control { self.head as u16 } else { 0 }.into(),
            submission_queue: 0.into(),
            command_id: id.0.into(),
            status: (answer.status.field() << 1).into(),
        }
    }
}

/// A set of command ids: one bit each, since hosts name their commands as they like. 8 KiB a queue.
#[derive(Debug)]
struct CommandIds {
    bits: Box<[u64]>,
    len: u32,
}

impl CommandIds {
    fn new() -> CommandIds {
        CommandIds { bits: vec![0; (1 << 16) / 64].into(), len: 0 }
    }

    /// Adds `id`; false if it was there.
    fn insert(&mut self, id: CommandId) -> bool {
        let (word, bit) = CommandIds::place(id);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.len += u32::from(is_new);
        is_new
    }

    /// Takes `id` out; false if it was not there.
    fn remove(&mut self, id: CommandId) -> bool {
        let (word, bit) = CommandIds::place(id);
        let was_there = self.bits[word] & bit != 0;
        self.bits[word] &= !bit;
        self.len -= u32::from(was_there);
        was_there
    }

    fn place(id: CommandId) -> (usize, u64) {
        (usize::from(id.0) / 64, 1 << (id.0 % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(entries: u32, has_flow_control: bool) -> Queue {
        let controller = ControllerName { subsystem: SubsystemIndex::Nvm(0), id: 1, association: 1 };
        Queue::new(controller, 1, 1, entries, has_flow_control, CommandId(9))
    }

    fn done() -> Answer {
        Answer::from(Status::SUCCESS)
    }

    #[test]
    fn the_head_goes_round_with_the_commands_taken() {
        let mut queue = queue(3, true);
        assert_eq!(queue.complete_connect(CommandId(9), done()).submission_head.get(), 1);
        for head in [2, 0, 1] {
            queue.begin(CommandId(7)).unwrap();
            assert_eq!(queue.complete(CommandId(7), done()).submission_head.get(), head);
        }
    }

    #[test]
    fn a_command_may_have_the_name_of_a_held_one() {
        let mut queue = queue(3, true);
        let _ = queue.complete_connect(CommandId(9), done());
        queue.begin(CommandId(7)).unwrap();
        assert_eq!(queue.begin(CommandId(7)), Err(QueueError::IdInUse(7)));
        queue.begin_beside(CommandId(7)).unwrap();
        assert_eq!(queue.complete(CommandId(7), done()).submission_head.get(), 0, "each was taken off once");
        assert_eq!(
            (queue.under_way(), queue.begin(CommandId(7))),
            (1, Err(QueueError::IdInUse(7))),
            "the held one is held"
        );
        let _ = queue.complete(CommandId(7), done());
        assert_eq!(queue.begin(CommandId(7)), Ok(()));
    }

    #[test]
    fn without_flow_control_the_head_is_said_to_be_unused_once() {
        let mut queue = queue(3, false);
        assert_eq!(queue.complete_connect(CommandId(9), done()).submission_head.get(), 0xffff);
        queue.begin(CommandId(7)).unwrap();
        assert_eq!(queue.complete(CommandId(7), done()).submission_head.get(), 0);
    }

    #[test]
    fn an_id_under_way_is_refused_and_its_owner_goes_on() {
        let mut queue = queue(4, true);
        assert_eq!(queue.begin(CommandId(9)), Err(QueueError::IdInUse(9)));
        let entry = queue.refuse(CommandId(9));
        assert_eq!((entry.status(), entry.submission_head.get()), (Status::COMMAND_ID_CONFLICT, 2));
        assert_eq!(queue.under_way(), 1);
        let _ = queue.complete_connect(CommandId(9), done());
        queue.begin(CommandId(9)).unwrap();
    }

    #[test]
    fn no_more_is_under_way_than_the_queue_has_entries() {
        let mut queue = queue(2, true);
        queue.begin(CommandId(1)).unwrap();
        assert_eq!(queue.begin(CommandId(2)), Err(QueueError::Overrun { entries: 2 }));
        let _ = queue.complete(CommandId(1), done());
        queue.begin(CommandId(2)).unwrap();
    }
}
