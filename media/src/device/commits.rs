//! Commands that end when a drive file is committed: flushes, writes and copies with FUA, resets.
//!
//! When a commit ends nobody knows before. The thread that does it wakes whoever owns the device
//! ([`EmulatedDevice::sync_beside`]); for those who only wait for what is due, the device has itself asked again and again.

use super::EmulatedDevice;
use crate::contract::{Command, Completion, Status};
use crate::store::StoreError;
use openftl_core::{Nanos, Time};
use std::collections::VecDeque;

/// Time between two looks at a commit under way.
const LOOK_EVERY: Nanos = Nanos::from_millis(2);

/// Completions that wait for commits.
#[derive(Clone, Default)]
pub(super) struct Commits {
    /// With the number of the commit, which never falls.
    waiting: VecDeque<(u64, Completion)>,
    /// When to look next.
    due: Time,
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
                    self.commits.due = self.now + LOOK_EVERY;
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
                if self.commits.due <= self.now {
                    self.commits.due = self.now + LOOK_EVERY;
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
