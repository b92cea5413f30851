//! One accounting for every FTL: what the host asked for, what the FTL made of it, what the NAND had to program.
//!
//! ```text
//!   host writes ──▶ data ─┐
//!                         ├──▶ NAND writes          WAF = NAND writes / host writes
//!   relocation ───────────┤
//!   log, checkpoint, superblock, padding, map ─┤
//!   headers and slack of pages ────────────────┘
//! ```
//!
//! Every figure is in logical blocks of 4 KiB unless its name says otherwise.

use crate::accounts::encounters::Encounters;
use crate::accounts::latency::Latencies;
use crate::words::{Care, Class, Purpose};
use openftl_core::{Nanos, Time};

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
    /// Map pages read: for reads of the host, and to be merged.
    #[serde(skip_serializing_if = "is_none")]
    pub map_pages_read: u64,
    /// Map pages written, both copies of one counted as one.
    #[serde(skip_serializing_if = "is_none")]
    pub map_pages_written: u64,
    /// Changes of the map that were merged into these.
    #[serde(skip_serializing_if = "is_none")]
    pub map_changes_merged: u64,
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
    pub programmed: [u64; Purpose::ALL.len()],
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

fn is_none(count: &u64) -> bool {
    *count == 0
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
            map_pages_read,
            map_pages_written,
            map_changes_merged,
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
            (&mut self.map_pages_read, map_pages_read),
            (&mut self.map_pages_written, map_pages_written),
            (&mut self.map_changes_merged, map_changes_merged),
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

/// What became of the wishes.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct PlacementStatistics {
    /// Blocks that the host wrote, by handle (0: none); of objects and learned classes all that are not ordinary count as 1.
    pub blocks: Vec<u64>,
    /// Objects that were announced.
    pub objects: u64,
    /// Objects that were written to their end.
    pub objects_written: u64,
    /// Objects that were trimmed before that.
    pub objects_trimmed: u64,
    /// Objects that ended because another was announced in their place.
    pub objects_replaced: u64,
    /// Objects that were refused.
    pub objects_refused: u64,
    /// Blocks written among ordinary ones because no more chunks may be open.
    pub unplaced: u64,
    /// Blocks written wherever there was room, because there was none elsewhere.
    pub spilled: u64,
    /// Blocks that collection should have kept apart, and moved with others for want of room.
    pub merged: u64,
}

impl PlacementStatistics {
    /// Counts blocks that the host wrote.
    #[inline]
    pub fn count(&mut self, Class(class): Class, blocks: u64) {
        let index = usize::from(class);
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, 0);
        }
        self.blocks[index] += blocks;
    }

    /// Adds what another drive did.
    pub fn add(&mut self, other: &PlacementStatistics) {
        let PlacementStatistics {
            blocks,
            objects,
            objects_written,
            objects_trimmed,
            objects_replaced,
            objects_refused,
            unplaced,
            spilled,
            merged,
        } = other;
        for (index, more) in blocks.iter().enumerate() {
            self.count(Class(index as u16), *more);
        }
        for (sum, more) in [
            (&mut self.objects, objects),
            (&mut self.objects_written, objects_written),
            (&mut self.objects_trimmed, objects_trimmed),
            (&mut self.objects_replaced, objects_replaced),
            (&mut self.objects_refused, objects_refused),
            (&mut self.unplaced, unplaced),
            (&mut self.spilled, spilled),
            (&mut self.merged, merged),
        ] {
            *sum += more;
        }
    }
}
