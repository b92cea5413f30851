//! One accounting for every FTL: what the host asked for, what the FTL made of it, what the NAND had to program.
//!
//! ```text
//!   host writes ──▶ data ─┐
//!                         ├──▶ NAND writes          WAF = NAND writes / host writes
//!   relocation ───────────┤
//!   log, checkpoint, superblock, padding ─┘
//! ```
//!
//! Every figure is in logical blocks of 4 KiB unless its name says otherwise.

use crate::encounters::Encounters;
use crate::latency::Latencies;
use crate::placement::PlacementStatistics;
use openftl_core::{Nanos, Time};

/// Why a block was programmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Purpose {
    /// A block that the host wrote.
    Data = 0,
    /// A block that garbage collection moved.
    Relocation = 1,
    /// The write-ahead log.
    Log = 2,
    /// A checkpoint.
    Checkpoint = 3,
    /// A superblock.
    Superblock = 4,
    /// Nothing: fills a write unit that could not wait, or a chunk that had to be closed.
    Padding = 5,
    /// A block of a table that the host wrote.
    Table = 6,
}

impl Purpose {
    /// Every purpose, in the order of [`Statistics::programmed`].
    pub const ALL: [Purpose; 7] = [
        Purpose::Data,
        Purpose::Relocation,
        Purpose::Log,
        Purpose::Checkpoint,
        Purpose::Superblock,
        Purpose::Padding,
        Purpose::Table,
    ];

    /// Those of a block drive.
    pub const OF_BLOCKS: [Purpose; 6] =
        [Purpose::Data, Purpose::Relocation, Purpose::Log, Purpose::Checkpoint, Purpose::Superblock, Purpose::Padding];

    /// The word that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Data => "data",
            Purpose::Relocation => "relocation",
            Purpose::Log => "log",
            Purpose::Checkpoint => "checkpoint",
            Purpose::Superblock => "superblock",
            Purpose::Padding => "padding",
            Purpose::Table => "tables",
        }
    }
}

/// Why a chunk was emptied though nobody needed its room.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Care {
    /// A read of the host found it weak.
    HostRead = 0,
    /// The scrub found it weak.
    Scrub = 1,
    /// The device said that it is weak, or has gone offline.
    Notification = 2,
    /// Its data rest while others wear: wear levelling.
    Wear = 3,
}

impl Care {
    /// Every reason, in the order of [`Statistics::cared`].
    pub const ALL: [Care; 4] = [Care::HostRead, Care::Scrub, Care::Notification, Care::Wear];

    /// The words that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Care::HostRead => "found weak by a read",
            Care::Scrub => "found weak by the scrub",
            Care::Notification => "notified by the device",
            Care::Wear => "moved to level wear",
        }
    }
}

/// Chunks that were emptied for one reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Moved {
    /// Chunks.
    pub chunks: u64,
    /// Blocks that were valid in them.
    pub blocks: u64,
}

/// What the scrub did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct ScrubStatistics {
    /// Times that all of the drive was read.
    pub passes: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Blocks that needed much correction, or could not be read or were wrong at first.
    pub weak: u64,
    /// Of those, blocks that could not be read or were wrong the second time too. What is lost of the data is given up
    /// when it is to be moved; what is lost of the metadata is written anew.
    pub lost: u64,
}

/// What garbage collection did in one group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct GroupStatistics {
    /// Times the group was marked for collection.
    pub marked: u64,
    /// Chunks collected.
    pub victims: u64,
    /// Blocks that were still valid in them, and moved.
    pub relocated: u64,
    /// Time that the group was marked.
    #[serde(rename = "marked_ns")]
    pub marked_time: Nanos,
}

/// What happened since the drive was opened, or since the last reset of the statistics.
#[derive(Clone, PartialEq, Default, Debug, serde::Serialize)]
pub struct Statistics {
    /// Blocks that the host wrote.
    pub host_blocks_written: u64,
    /// Of these, blocks that it marked as uncorrectable: without data, and programmed like others.
    pub host_blocks_marked: u64,
    /// Blocks that the host read.
    pub host_blocks_read: u64,
    /// Blocks that the host trimmed or had zeroed.
    pub host_blocks_trimmed: u64,
    /// Entries of the map that trims looked at, the counts that say where nothing is mapped included.
    pub trim_entries: u64,
    /// Write, read, trim and flush requests.
    pub host_requests: u64,
    /// Flushes, durable writes included.
    pub host_flushes: u64,
    /// Flushes of the device, each for all requests that waited for one: where it has to survive a crash of its machine.
    pub media_flushes: u64,
    /// Requests that ended in an error.
    pub host_errors: u64,
    /// Blocks that were found in the write buffer when read.
    pub buffer_hits: u64,
    /// Blocks programmed, by [`Purpose`].
    pub programmed: [u64; 7],
    /// Blocks that were read to be written elsewhere: by garbage collection, and of tables that move.
    pub relocation_reads: u64,
    /// Blocks that the device copied for garbage collection, without their being read.
    pub relocation_copies: u64,
    /// Programs that failed and were repeated elsewhere.
    pub program_failures: u64,
    /// Resets that failed; each retired a chunk.
    pub reset_failures: u64,
    /// Reads that failed or did not verify, after a retry.
    pub read_failures: u64,
    /// Blocks given up when they were to be moved: their data could not be read.
    pub lost_blocks: u64,
    /// Chunks emptied though nobody needed their room, by [`Care`].
    pub cared: [Moved; 4],
    /// What the scrub did.
    pub scrub: ScrubStatistics,
    /// Chunks whose wear index the device has reported as high.
    pub worn_chunks: u64,
    /// Chunks that went offline with all they held.
    pub offline_chunks: u64,
    /// Chunks reset.
    pub resets: u64,
    /// Chunks taken out of use.
    pub retired_chunks: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Times that a host write had to wait because of the throttle.
    pub throttled: u64,
    /// Time that the oldest throttled write of each wait spent waiting, in sum.
    pub throttled_time: Nanos,
    /// How long reads took.
    #[serde(rename = "read_latency_ns")]
    pub read_latency: Latencies,
    /// How long writes and trims took until they were acknowledged, durable ones until they were durable.
    #[serde(rename = "write_latency_ns")]
    pub write_latency: Latencies,
    /// How long flushes took.
    #[serde(rename = "flush_latency_ns")]
    pub flush_latency: Latencies,
    /// What became of wishes about placement.
    pub placement: PlacementStatistics,
    /// How often the host met garbage collection.
    pub encounters: Encounters,
    /// Garbage collection by group.
    pub groups: Vec<GroupStatistics>,
    /// Sum over time of the blocks that could hold no data (free, being erased, or not yet written in open chunks); with
    /// [`Statistics::spare_samples`] the mean, which is taken out of the physical size for the effective
    /// over-provisioning.
    pub spare_block_samples: u64,
    /// Samples in the sum: one whenever a chunk is opened.
    pub spare_samples: u64,
    /// When these statistics began.
    #[serde(skip)]
    pub since: Time,
}

impl Statistics {
    /// Adds what another drive did, as the drives on the parts of one device are added up: its groups come behind these.
    pub fn add(&mut self, other: &Statistics) {
        let Statistics {
            host_blocks_written,
            host_blocks_marked,
            host_blocks_read,
            host_blocks_trimmed,
            trim_entries,
            host_requests,
            host_flushes,
            media_flushes,
            host_errors,
            buffer_hits,
            programmed,
            relocation_reads,
            relocation_copies,
            program_failures,
            reset_failures,
            read_failures,
            lost_blocks,
            cared,
            scrub,
            worn_chunks,
            offline_chunks,
            resets,
            retired_chunks,
            checkpoints,
            throttled,
            throttled_time,
            read_latency,
            write_latency,
            flush_latency,
            placement,
            encounters,
            groups,
            spare_block_samples,
            spare_samples,
            since,
        } = other;
        for (sum, more) in [
            (&mut self.host_blocks_written, host_blocks_written),
            (&mut self.host_blocks_marked, host_blocks_marked),
            (&mut self.host_blocks_read, host_blocks_read),
            (&mut self.host_blocks_trimmed, host_blocks_trimmed),
            (&mut self.trim_entries, trim_entries),
            (&mut self.host_requests, host_requests),
            (&mut self.host_flushes, host_flushes),
            (&mut self.media_flushes, media_flushes),
            (&mut self.host_errors, host_errors),
            (&mut self.buffer_hits, buffer_hits),
            (&mut self.relocation_reads, relocation_reads),
            (&mut self.relocation_copies, relocation_copies),
            (&mut self.program_failures, program_failures),
            (&mut self.reset_failures, reset_failures),
            (&mut self.read_failures, read_failures),
            (&mut self.lost_blocks, lost_blocks),
            (&mut self.scrub.passes, &scrub.passes),
            (&mut self.scrub.blocks, &scrub.blocks),
            (&mut self.scrub.weak, &scrub.weak),
            (&mut self.scrub.lost, &scrub.lost),
            (&mut self.worn_chunks, worn_chunks),
            (&mut self.offline_chunks, offline_chunks),
            (&mut self.resets, resets),
            (&mut self.retired_chunks, retired_chunks),
            (&mut self.checkpoints, checkpoints),
            (&mut self.throttled, throttled),
            (&mut self.throttled_time.0, &throttled_time.0),
            (&mut self.encounters.commands, &encounters.commands),
            (&mut self.encounters.collecting, &encounters.collecting),
            (&mut self.encounters.marked, &encounters.marked),
            (&mut self.encounters.met, &encounters.met),
            (&mut self.spare_block_samples, spare_block_samples),
            (&mut self.spare_samples, spare_samples),
        ] {
            *sum += more;
        }
        self.programmed.iter_mut().zip(programmed).for_each(|(sum, more)| *sum += more);
        for (sum, more) in self.cared.iter_mut().zip(cared) {
            (sum.chunks, sum.blocks) = (sum.chunks + more.chunks, sum.blocks + more.blocks);
        }
        self.read_latency.add(read_latency);
        self.write_latency.add(write_latency);
        self.flush_latency.add(flush_latency);
        self.placement.add(placement);
        self.groups.extend(groups);
        self.since = self.since.min(*since);
    }

    /// Blocks programmed, for whatever purpose.
    #[must_use]
    pub fn nand_blocks_written(&self) -> u64 {
        self.programmed.iter().sum()
    }

    /// Write amplification factor: NAND writes over host writes. 0 if the host wrote nothing.
    #[must_use]
    pub fn waf(&self) -> f64 {
        if self.host_blocks_written == 0 {
            return 0.0;
        }
        self.nand_blocks_written() as f64 / self.host_blocks_written as f64
    }

    /// Data and relocations over host writes: what the theory of garbage collection speaks of, without log, checkpoint
    /// and padding.
    #[must_use]
    pub fn relocation_waf(&self) -> f64 {
        if self.host_blocks_written == 0 {
            return 0.0;
        }
        (self.programmed[Purpose::Data as usize] + self.programmed[Purpose::Relocation as usize]) as f64
            / self.host_blocks_written as f64
    }

    /// What was moved because of `care`.
    #[must_use]
    pub fn cared_for(&self, care: Care) -> Moved {
        self.cared[care as usize]
    }

    /// Blocks programmed for `purpose`.
    #[must_use]
    pub fn programmed_for(&self, purpose: Purpose) -> u64 {
        self.programmed[purpose as usize]
    }
}
