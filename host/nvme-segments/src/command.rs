//! Commands that wait to be sent, and those under way.

use std::collections::{BTreeSet, VecDeque};

use openftl_core::{Frame, Time};
use openftl_parts::target::IoError;
use openftl_zones::Action;

/// Commands under way, at most.
pub const COMMANDS_MAX: u16 = 64;

/// Bytes of data under way, at most, unless one command has more.
pub(crate) const BYTES_UNDER_WAY_MAX: usize = 8 << 20;

/// What a command is to do. Blocks are named as segments have them.
#[derive(Debug)]
pub(crate) enum What {
    /// Writes blocks of one zone, from `first` on, all below the longest transfer.
    Write { first: u64, frames: Vec<Frame>, is_durable: bool },
    /// Empties a zone, or gives it up.
    Act { zone: u32, action: Action },
    /// Reads blocks of one zone.
    Read { first: u64, frames: Vec<Frame> },
    /// Makes durable what was written.
    Flush,
    /// Asks for the states of zones from this one on.
    Report { number: u32 },
}

/// A part of a request that is one command.
#[derive(Debug)]
pub(crate) struct Command {
    /// The number of its request.
    pub request: u64,
    /// Changes of the drive are numbered in their order; others have the number of the next one.
    pub order: u64,
    pub what: What,
    /// Of data.
    pub bytes: usize,
    /// When it was sent, in time that was spent with the link.
    pub sent: Time,
}

/// A request of the host.
#[derive(Debug)]
pub(crate) struct Request {
    pub tag: u64,
    /// Commands that have not ended.
    pub left: u32,
    pub result: Result<(), IoError>,
}

impl Request {
    /// One of its commands fails. Of several errors the one of the first block counts.
    pub fn fail(&mut self, error: IoError) {
        self.result = Err(self.result.err().map_or(error, |other| other.or_earlier(error)));
    }
}

/// Commands that wait to be sent.
#[derive(Default, Debug)]
pub(crate) struct Waiting {
    /// Those that change the drive, in their order.
    changes: VecDeque<Command>,
    /// The others.
    others: VecDeque<Command>,
    /// Changes that have not ended.
    unsettled: BTreeSet<u64>,
    next: u64,
}

impl Waiting {
    /// A command waits from now on.
    pub fn push(&mut self, request: u64, what: What, bytes: usize) {
        let order = self.next;
        match what {
            What::Write { .. } | What::Act { .. } => {
                self.next += 1;
                self.unsettled.insert(order);
                self.changes.push_back(Command { request, order, what, bytes, sent: Time::ZERO });
            }
            What::Read { .. } | What::Flush | What::Report { .. } => {
                self.others.push_back(Command { request, order, what, bytes, sent: Time::ZERO });
            }
        }
    }

    /// A change has ended.
    pub fn settle(&mut self, order: u64) {
        self.unsettled.remove(&order);
    }

    /// Whether all changes before this number have ended.
    fn is_settled(&self, order: u64) -> bool {
        self.unsettled.first().is_none_or(|first| *first >= order)
    }

    /// The next command that may be sent. `is_readable` says whether a read need not wait for what is being written.
    pub fn next(&mut self, is_readable: impl Fn(u64, usize) -> bool) -> Option<Command> {
        let may_go = |command: &Command| match &command.what {
            What::Read { first, frames } => is_readable(*first, frames.len()),
            What::Flush => self.is_settled(command.order),
            _ => true,
        };
        let ready = self.others.iter().position(may_go);
        match ready {
            Some(index) => self.others.remove(index),
            None => self.changes.pop_front(),
        }
    }

    /// A command that could not be sent goes on waiting, before all others.
    pub fn put_back(&mut self, command: Command) {
        match command.what {
            What::Write { .. } | What::Act { .. } => self.changes.push_front(command),
            _ => self.others.push_front(command),
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.others.is_empty()
    }

    /// All that waits but reads: nothing more is changed.
    pub fn take_changes(&mut self) -> Vec<Command> {
        let is_read = |command: &Command| matches!(command.what, What::Read { .. });
        let (reads, others): (Vec<Command>, Vec<Command>) = self.others.drain(..).partition(is_read);
        self.others.extend(reads);
        self.changes.drain(..).chain(others).collect()
    }

    /// All that waits: the link is cut.
    pub fn take_all(&mut self) -> Vec<Command> {
        self.unsettled.clear();
        self.changes.drain(..).chain(self.others.drain(..)).collect()
    }
}
