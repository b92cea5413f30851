//! The chunk notification log (log page D0h): what the host should know without having asked.
//!
//! | what happens | state | scope |
//! |---|---|---|
//! | a block is read with much correction, or not at all for once | error rate high | that block |
//! | a block cannot be read | unrecoverable | that block |
//! | a chunk goes offline: an erase failed, or all at once | unrecoverable | the chunk |
//! | a reset takes a chunk's wear index above the threshold | wear index high | the chunk |
//!
//! The log does not outlive the power.

use crate::contract::{Notification, NotifiedScope, NotifiedState};
use openftl_core::Ppa;
use std::collections::VecDeque;

/// Notifications kept; an older one makes room for a newer one.
pub const NOTIFICATIONS_MAX: usize = 4096;

/// The newest notifications.
#[derive(Clone, Default)]
pub struct NotificationLog {
    entries: VecDeque<Notification>,
    count: u64,
}

impl NotificationLog {
    /// Adds one, and counts it.
    pub fn push(&mut self, ppa: Ppa, state: NotifiedState, scope: NotifiedScope) {
        if self.entries.len() == NOTIFICATIONS_MAX {
            self.entries.pop_front();
        }
        self.count += 1;
        self.entries.push_back(Notification { count: self.count, ppa, state, scope });
    }

    /// Appends those counted above `after`.
    pub fn read(&self, after: u64, notifications: &mut Vec<Notification>) {
        let old = self.entries.partition_point(|entry| entry.count <= after);
        notifications.extend(self.entries.range(old..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_counts_on_and_keeps_the_newest() {
        let mut log = NotificationLog::default();
        for index in 0..NOTIFICATIONS_MAX as u64 + 10 {
            log.push(Ppa(index), NotifiedState::ErrorRateHigh, NotifiedScope::Chunk);
        }
        let mut read = Vec::new();
        log.read(0, &mut read);
        assert_eq!((read.len(), read[0].count), (NOTIFICATIONS_MAX, 11));
        read.clear();
        log.read(NOTIFICATIONS_MAX as u64 + 9, &mut read);
        assert_eq!(read.iter().map(|entry| entry.count).collect::<Vec<_>>(), [NOTIFICATIONS_MAX as u64 + 10]);
    }
}
