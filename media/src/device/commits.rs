//! Commands that end when a drive file is committed: flushes, writes and copies with FUA, resets.
//!
//! When a commit ends nobody knows before. The device has itself asked for when one is likely to have ended, by the time that
//! the last ones took, and then again and again, each time after a fraction of that.

use super::EmulatedDevice;
use crate::contract::{Command, Completion, Status};
use crate::store::StoreError;
use openftl_core::{Nanos, Time};
use std::collections::VecDeque;

/// Looks at a commit that takes longer than usual, in the time that one usually takes.
const LOOKS: u64 = 16;
/// The least time between two looks.
const LOOK_EVERY_MIN: Nanos = Nanos(20_000);
/// What the first commit is taken to last.
const TYPICAL_AT_FIRST: Nanos = Nanos(1_000_000);

/// Completions that wait for commits.
#[derive(Clone)]
pub(super) struct Commits {
    /// With the number of the commit, which never falls.
    waiting: VecDeque<(u64, Completion)>,
    /// How many had ended at the last look.
    ended: u64,
    /// Since when the next one is awaited.
    began: Time,
    /// When to look next.
    due: Time,
    typical: Nanos,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits { waiting: VecDeque::new(), ended: 0, began: Time::ZERO, due: Time::ZERO, typical: TYPICAL_AT_FIRST }
    }
}

impl Commits {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When to look whether a commit has ended.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.due)
    }

    /// Forgets all of them: the power is gone.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn await_next(&mut self, now: Time) {
        (self.began, self.due) = (now, now + self.typical);
    }

    fn look_again(&mut self, now: Time) {
        self.due = now + Nanos((self.typical.0 / LOOKS).max(LOOK_EVERY_MIN.0));
    }

    /// Learns how long commits take: an eighth of the way each time.
    fn learn(&mut self, now: Time) {
        let took = now.since(self.began).0;
        self.typical = Nanos(self.typical.0 - self.typical.0 / 8 + took / 8);
    }
}

impl EmulatedDevice {
    /// Whether a command ends only when it is committed, where there are commits.
    #[inline]
    pub(super) fn ends_committed(command: &Command<'_>) -> bool {
        match command {
            Command::Read { .. } => false,
            Command::Write { fua, .. } | Command::Copy { fua, .. } => *fua,
            Command::Reset { .. } | Command::Flush => true,
        }
    }

    /// Has `completion` wait until everything so far is committed.
    #[cold]
    pub(super) fn complete_when_committed(&mut self, completion: Completion) {
        let wanted = self.backing.want_commit().and_then(|number| Ok((number, self.backing.commits_ended()?)));
        match wanted {
            Err(error) => self.commit_failed(error, completion),
            Ok((number, ended)) if number <= ended => self.queue.push(completion),
            Ok((number, _)) => {
                if self.commits.waiting.is_empty() {
                    self.commits.await_next(self.now);
                }
                self.commits.waiting.push_back((number, completion));
            }
        }
    }

    /// Ends the commands whose commits have ended.
    pub(super) fn advance_commits(&mut self) {
        if self.commits.waiting.is_empty() {
            return;
        }
        match self.backing.commits_ended() {
            Ok(ended) => {
                if ended > self.commits.ended {
                    self.commits.ended = ended;
                    self.commits.learn(self.now);
                    self.commits.await_next(self.now);
                } else if self.commits.due <= self.now {
                    self.commits.look_again(self.now);
                }
                while let Some((_, completion)) = self.commits.waiting.pop_front_if(|(number, _)| *number <= ended) {
                    self.queue.push(Completion { at: completion.at.max(self.now), ..completion });
                }
            }
            Err(error) => {
                self.store_error = Some(error);
                for (_, completion) in std::mem::take(&mut self.commits.waiting) {
                    self.queue.push(failed(completion, self.now));
                }
            }
        }
    }

    fn commit_failed(&mut self, error: StoreError, completion: Completion) {
        self.store_error = Some(error);
        self.queue.push(failed(completion, self.now));
    }
}

fn failed(completion: Completion, now: Time) -> Completion {
    Completion { status: Status::WriteFault, failed: u64::MAX, at: completion.at.max(now), ..completion }
}
