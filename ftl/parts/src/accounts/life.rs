//! What a drive has done since it was formatted, over all its sessions: what its health report tells.
//!
//! [`Statistics`] begin anew when a drive is opened. Each superblock says what all sessions so far come to, so a clean stop
//! keeps everything but its own last superblock, and a crash takes along at most what was done since the superblock before it:
//! one is written whenever the drive is opened, with each checkpoint, and whenever the log goes on in other chunks.

use crate::accounts::statistics::Statistics;
use openftl_core::{Nanos, Time};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Counts of a drive's life, in logical blocks unless they say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Life {
    /// Times that the drive was opened to be used; formatting it is the first.
    pub opened: u64,
    /// Of these, times that it had not been closed before.
    pub not_closed: u64,
    /// How long it was open.
    #[serde(rename = "open_ns")]
    pub open: Nanos,
    /// Read requests that ended.
    pub reads: u64,
    /// Write and trim requests that ended.
    pub writes: u64,
    /// Blocks that the host read.
    pub host_blocks_read: u64,
    /// Blocks of data that the host wrote: without those that it marked as uncorrectable.
    pub host_blocks_written: u64,
    /// Blocks read from the medium for the host, for relocation and by the scrub.
    pub media_blocks_read: u64,
    /// Blocks programmed, whatever for.
    pub media_blocks_written: u64,
    /// Chunks reset.
    pub resets: u64,
    /// Reads that failed or did not verify.
    pub read_failures: u64,
    /// Blocks moved because they were weak, and to level wear.
    pub refreshed: u64,
    /// Blocks that the scrub read only with much correction, or not at first.
    pub weak: u64,
    /// Chunks taken out of use.
    pub retired: u64,
}

/// Counts of a life.
const COUNTS: usize = 14;

/// The same on media.
#[derive(FromBytes, IntoBytes, Immutable, Unaligned, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct LifeBytes {
    counts: [U64; COUNTS],
}

impl LifeBytes {
    /// What the counts on media are, in their order.
    pub const COUNTS: &str = "since the drive was formatted: times opened, times not closed before, nanoseconds open, read \
        requests, write requests, blocks read and written by the host, blocks read and written on media, resets, failed reads, \
        blocks refreshed, blocks found weak, chunks taken out of use (8 bytes each)";
}

impl Life {
    /// A drive that was just formatted.
    pub fn new() -> Life {
        Life { opened: 1, ..Life::default() }
    }

    /// What one session adds.
    fn of(statistics: &Statistics, now: Time) -> Life {
        let from_media = statistics.host_blocks_read.saturating_sub(statistics.buffer_hits);
        Life {
            opened: 0,
            not_closed: 0,
            open: now.since(statistics.since),
            reads: statistics.read_latency.count(),
            writes: statistics.write_latency.count(),
            host_blocks_read: statistics.host_blocks_read,
            host_blocks_written: statistics.host_blocks_written - statistics.host_blocks_marked,
            media_blocks_read: from_media + statistics.relocation_reads + statistics.scrub.blocks,
            media_blocks_written: statistics.nand_blocks_written(),
            resets: statistics.resets,
            read_failures: statistics.read_failures,
            refreshed: statistics.cared.iter().map(|moved| moved.blocks).sum(),
            weak: statistics.scrub.weak,
            retired: statistics.retired_chunks,
        }
    }

    /// What it comes to with a session on top. Counts stay at their end.
    #[must_use]
    pub fn with(mut self, statistics: &Statistics, now: Time) -> Life {
        for (count, more) in self.counts().into_iter().zip(Life::of(statistics, now).counts()) {
            *count = count.saturating_add(*more);
        }
        self
    }

    /// The counts in their order on media.
    fn counts(&mut self) -> [&mut u64; COUNTS] {
        [
            &mut self.opened,
            &mut self.not_closed,
            &mut self.open.0,
            &mut self.reads,
            &mut self.writes,
            &mut self.host_blocks_read,
            &mut self.host_blocks_written,
            &mut self.media_blocks_read,
            &mut self.media_blocks_written,
            &mut self.resets,
            &mut self.read_failures,
            &mut self.refreshed,
            &mut self.weak,
            &mut self.retired,
        ]
    }

    /// As it is on media.
    pub fn encode(mut self) -> LifeBytes {
        LifeBytes { counts: self.counts().map(|count| U64::new(*count)) }
    }

    /// As it was on media.
    pub fn decode(bytes: &LifeBytes) -> Life {
        let mut life = Life::default();
        for (count, word) in life.counts().into_iter().zip(bytes.counts) {
            *count = word.get();
        }
        life
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Life {
        Life::decode(&LifeBytes { counts: std::array::from_fn(|count| U64::new(count as u64 + 1)) })
    }

    #[test]
    fn a_life_survives_its_bytes() {
        assert_eq!(Life::decode(&some().encode()), some());
    }

    #[test]
    fn a_session_is_added_and_counts_stay_at_their_end() {
        let statistics = Statistics {
            host_blocks_written: 10,
            host_blocks_marked: 3,
            host_blocks_read: 7,
            buffer_hits: 2,
            relocation_reads: 4,
            programmed: [10, 4, 1, 0, 1, 2, 0, 0, 0, 0],
            since: Time(100),
            ..Statistics::default()
        };
        let life = some().with(&statistics, Time(150));
        assert_eq!((life.opened, life.open), (1, Nanos(3 + 50)));
        assert_eq!((life.host_blocks_read, life.host_blocks_written), (6 + 7, 7 + 7), "marked blocks are no data");
        assert_eq!((life.media_blocks_read, life.media_blocks_written), (8 + 9, 9 + 18));
        let end = Life { media_blocks_written: u64::MAX, ..some() };
        assert_eq!(end.with(&statistics, Time(100)).media_blocks_written, u64::MAX);
    }
}
