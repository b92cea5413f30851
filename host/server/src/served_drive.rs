//! A drive that can be served, and what NVMe hosts learn of how it is doing.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{BLOCK_BYTES, Time};
use openftl_media::Media;
use openftl_nvme::{Health, PlacementCounts};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::target::{BlockTarget, Target};
use openftl_zones::ZoneFtl;

/// A drive that can be served, and says how it is.
pub trait ServedDrive: BlockTarget {
    /// What it is built on. Such devices can be served beside it.
    type Device: Media;

    /// How it is doing.
    fn health(&mut self, now: Time) -> Health {
        let _ = now;
        Health { is_read_only: self.is_read_only(), ..Health::default() }
    }

    /// What it has written since it was opened.
    fn placement_counts(&mut self) -> PlacementCounts {
        PlacementCounts::default()
    }

    /// Bytes of it that hold data.
    fn bytes_in_use(&mut self) -> u64 {
        self.blocks() * BLOCK_BYTES as u64
    }
}

impl<M: Media> ServedDrive for BlockFtl<M> {
    type Device = M;

    fn health(&mut self, _now: Time) -> Health {
        health_of(self)
    }

    fn placement_counts(&mut self) -> PlacementCounts {
        let chunk_blocks = u64::from(self.media().geometry().blocks_per_chunk);
        let life = self.life();
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES as u64);
        PlacementCounts {
            host_bytes_written: bytes(life.host_blocks_written),
            media_bytes_written: bytes(life.media_blocks_written),
            media_bytes_erased: bytes(life.resets.saturating_mul(chunk_blocks)),
        }
    }

    fn bytes_in_use(&mut self) -> u64 {
        let held: u64 = self.chunk_uses().map(|(_, _, valid)| u64::from(valid)).sum();
        held.min(self.blocks()) * BLOCK_BYTES as u64
    }
}

/// How the block FTL of a drive is doing, of any kind. Counts are those of the drive's life.
pub(crate) fn health_of<M: Media>(drive: &BlockFtl<M>) -> Health {
    const HOUR: u64 = 3_600_000_000_000;
    let life = drive.life();
    let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES as u64);
    let (mut chunks, mut free, mut erases_min, mut erases_max) = (0, 0, u32::MAX, 0);
    for ((_, usage, _), erases) in drive.chunk_uses().zip(drive.chunk_resets()) {
        chunks += 1;
        free += u64::from(usage == ChunkUse::Free);
        (erases_min, erases_max) = (erases_min.min(erases), erases_max.max(erases));
    }
    Health {
        host_bytes_read: bytes(life.host_blocks_read),
        // Write Uncorrectable has no data (Base, "Data Units Written").
        host_bytes_written: bytes(life.host_blocks_written),
        host_reads: life.reads,
        host_writes: life.writes,
        media_bytes_read: bytes(life.media_blocks_read),
        media_bytes_written: bytes(life.media_blocks_written),
        bad_chunks: life.retired,
        erases_max,
        erases_min: erases_min.min(erases_max),
        free_percent: (free * 100 / u64::max(chunks, 1)) as u8,
        unrecovered_reads: life.read_failures,
        weak_reads: life.weak,
        refreshes: life.refreshed,
        power_cycles: life.opened,
        unsafe_shutdowns: life.not_closed,
        power_on_hours: life.open.0 / HOUR,
        is_read_only: drive.is_read_only(),
        ..Health::default()
    }
}

/// Bytes of zones that are written.
pub(crate) fn bytes_in_zones(drive: &ZoneFtl) -> u64 {
    drive.board().zones().iter().map(|zone| u64::from(zone.written)).sum::<u64>() * BLOCK_BYTES as u64
}
