//! The error log of one controller: its last refusals and failures (Base, "Error Information").

use crate::command::Refusal;
use crate::wire::SubmissionEntry;
use crate::wire::log::ErrorEntry;

/// How many errors are kept (ELPE + 1).
pub const ERRORS_MAX: usize = 64;

/// A ring of entries, so that an error allocates nothing.
#[derive(Debug)]
pub struct ErrorLog {
    entries: Box<[ErrorEntry]>,
    /// Errors so far.
    count: u64,
}

impl Default for ErrorLog {
    fn default() -> ErrorLog {
        ErrorLog { entries: vec![ErrorEntry::default(); ERRORS_MAX].into(), count: 0 }
    }
}

impl ErrorLog {
    /// Errors so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Keeps an error of `command`, which came on `queue`.
    pub fn record(&mut self, queue: u16, command: &SubmissionEntry, refusal: Refusal) {
        let Refusal { status, location, block } = refusal;
        self.count += 1;
        // Only commands of I/O queues have a block there.
        let first = if queue > 0 { command.dword_pair(10) } else { 0 };
        self.entries[(self.count % ERRORS_MAX as u64) as usize] = ErrorEntry {
            count: self.count.into(),
            submission_queue: queue.into(),
            command_id: command.command_id,
            status: (status.field() << 1).into(),
            parameter_location: location.into(),
            block: block.unwrap_or(first).into(),
            namespace: command.namespace,
            opcode: command.opcode,
            version: 1,
            ..ErrorEntry::default()
        };
    }

    /// The last errors, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &ErrorEntry> {
        let kept = self.count.min(ERRORS_MAX as u64);
        (0..kept).map(|age| &self.entries[((self.count - age) % ERRORS_MAX as u64) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Status;

    #[test]
    fn the_last_errors_are_kept_the_newest_first() {
        let mut log = ErrorLog::default();
        assert_eq!(log.newest_first().count(), 0);
        for id in 1..=70_u16 {
            let command = SubmissionEntry { command_id: id.into(), ..SubmissionEntry::default() };
            log.record(1, &command, Status::INVALID_FIELD.at(4));
        }
        let counts: Vec<u64> = log.newest_first().map(|entry| entry.count.get()).collect();
        assert_eq!(counts, (7..=70).rev().collect::<Vec<u64>>());
        let newest = log.newest_first().next().unwrap();
        assert_eq!((newest.command_id.get(), newest.status.get(), newest.parameter_location.get()), (70, 0x8004, 4));
    }
}
