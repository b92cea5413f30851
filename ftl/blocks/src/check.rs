//! Verifying a whole drive: every mapped block is read, and map, chunk table and device are compared. A tenant's blocks are
//! read by the tenant.

use crate::block_ftl::BlockFtl;
use openftl_core::{Address, Clock, Frame};
use openftl_media::ChunkState;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::map::{Map, Place};
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{BlockTarget, Done, IoError, Request};
use openftl_parts::tenant::{Nobody, Tenant};
use openftl_parts::words::{ReadOnlyReason, TRANSACTION_BLOCKS_MAX};
use std::collections::BTreeSet;

/// Findings that are kept in full; beyond that they are only counted.
pub const FINDINGS_MAX: usize = 100;

/// The tag of what a check reads: those of the host may be under way too, and this one is out of their way.
pub const CHECK_TAG: u64 = u64::MAX - 1;

/// Entries, or map pages, that are looked at before a check goes on.
const SKIP_LOOKS: u64 = 1 << 20;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct CheckReport {
    /// Logical blocks that were read and verified.
    pub blocks_verified: u64,
    /// Logical blocks that are not mapped.
    pub blocks_unmapped: u64,
    /// Chunks that were compared with the device.
    pub chunks_compared: u64,
    /// Everything that is not as it should be.
    pub findings_total: u64,
    /// The first of them, in words.
    pub findings: Vec<String>,
    /// Of these the logical blocks that cannot be read: errors until they are written or trimmed.
    pub blocks_lost: u64,
    /// The first of them.
    pub lost: Vec<LostBlock>,
    /// Logical blocks that the host marked as uncorrectable: errors because it wants them to be, and so no findings.
    pub blocks_uncorrectable: u64,
    /// Tables in the catalog of a table drive, and how many blocks of them were read and verified.
    pub tables: u64,
    /// See [`CheckReport::tables`].
    pub table_blocks_verified: u64,
    /// Of the findings the blocks of tables that cannot be read.
    pub table_blocks_lost: u64,
    /// The first tables with such blocks.
    pub damaged_tables: Vec<DamagedTable>,
    /// Zones of a zoned drive that hold anything, and how many blocks of them were read and verified.
    pub zones: u64,
    /// See [`CheckReport::zones`].
    pub zone_blocks_verified: u64,
    /// Of the findings the blocks of zones that cannot be read.
    pub zone_blocks_lost: u64,
    /// Pages of a store of pages, and of the findings those that cannot be read.
    pub pages: u64,
    /// See [`CheckReport::pages`].
    pub pages_lost: u64,
    /// Keys of a key-value drive.
    #[serde(skip_serializing_if = "is_zero")]
    pub keys: u64,
}

fn is_zero(keys: &u64) -> bool {
    *keys == 0
}

/// A table of which blocks cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct DamagedTable {
    /// The number of its entry in the catalog.
    pub number: u64,
    /// Its blocks.
    pub blocks: u32,
    /// Those that cannot be read.
    pub blocks_lost: u32,
}

/// A logical block that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct LostBlock {
    /// Which.
    pub block: u64,
    /// Where the map says that it is; `None` if no version of it was found by a repair.
    pub address: Option<String>,
}

impl CheckReport {
    /// Whether the drive is sound.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings_total == 0
    }

    fn add_lost(&mut self, lost: LostBlock, error: &IoError) {
        self.add(match &lost.address {
            Some(address) => format!("{error} (it is at {address})"),
            None => format!("{error} (no version of it was found)"),
        });
        self.blocks_lost += 1;
        if self.lost.len() < FINDINGS_MAX {
            self.lost.push(lost);
        }
    }

    /// Counts a table of which blocks are lost, and names it if there is room.
    pub fn add_damaged(&mut self, table: DamagedTable) {
        self.table_blocks_lost += u64::from(table.blocks_lost);
        if self.damaged_tables.len() < FINDINGS_MAX {
            self.damaged_tables.push(table);
        }
    }

    /// Counts a finding, and keeps it if there is room.
    pub fn add(&mut self, finding: String) {
        self.findings_total += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

fn mapped_to_invalid(block: u64, address: Address) -> String {
    format!("logical block {block} is mapped to {address}, which the chunk table calls invalid")
}

impl BlockFtl {
    /// Verifies the drive. `progress` is told the blocks done and in all. Nothing is written.
    ///
    /// # Errors
    /// If the device stops answering.
    pub fn check(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, OpenError> {
        self.check_beside(clock, progress, &mut Nobody)
    }

    /// [`check`](BlockFtl::check), with a tenant whose chunks are checked, too.
    ///
    /// # Errors
    /// As of [`check`](BlockFtl::check).
    pub fn check_beside(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
        tenant: &mut dyn Tenant,
    ) -> Result<CheckReport, OpenError> {
        let mut report = CheckReport::default();
        // On a drive that is in use, what was there only once is there twice again, or soon will be.
        if self.flash.read_only == Some(ReadOnlyReason::Inspection) {
            for single in &self.recovery.single_copies {
                report.add(single.clone());
            }
        }
        self.compare_chunks(clock, tenant, &mut report)?;
        let frames = self.frames_to_check();
        let capacity = self.blocks();
        let mut first = 0;
        while first < capacity {
            let next = self.skip_nowhere(first);
            report.blocks_unmapped += next - first;
            first = next;
            progress(first, capacity);
            let blocks = (capacity - first).min(frames.len() as u64) as usize;
            if blocks == 0 {
                break;
            }
            if self.read_and_wait(clock, tenant, first, &frames[..blocks])?.is_err() {
                // One by one, to say which.
                for block in first..first + blocks as u64 {
                    match self.read_and_wait(clock, tenant, block, &frames[..1])? {
                        Ok(()) => {}
                        Err(IoError::Uncorrectable { .. }) => report.blocks_uncorrectable += 1,
                        Err(error) => {
                            let address =
                                self.place_on_media(block).map(|ppa| self.flash.format.unpack(ppa).to_string());
                            report.add_lost(LostBlock { block, address }, &error);
                        }
                    }
                }
            }
            let is_unmapped = |block: &u64| match &self.map {
                Map::Whole(map) => map.get(*block).place() == Place::Unmapped,
                Map::Paged(map) => map.buffered(*block).is_none() && !map.has_any(*block),
            };
            let unmapped = (first..first + blocks as u64).filter(is_unmapped).count() as u64;
            report.blocks_unmapped += unmapped;
            report.blocks_verified += blocks as u64 - unmapped;
            first += blocks as u64;
            progress(first, capacity);
        }
        for frame in frames {
            self.flash.frames.release(frame);
        }
        report.blocks_verified -= report.blocks_lost + report.blocks_uncorrectable;
        Ok(report)
    }

    /// The first block from `first` on that may be somewhere, or the end; or one up to which nothing is, where there is more to look at
    /// than a check does at a time.
    fn skip_nowhere(&self, first: u64) -> u64 {
        match &self.map {
            Map::Whole(map) => {
                let mut looks = SKIP_LOOKS;
                map.skip_unmapped(first..map.len(), &mut looks)
            }
            Map::Paged(map) => {
                let (mut next, mut page) = (first, map.size().split(first).0);
                if !map.is_nothing_on(page) {
                    return first;
                }
                let end = page.saturating_add(SKIP_LOOKS as u32).min(map.directory().pages());
                let held: BTreeSet<u32> = map.buffered_blocks().map(|block| map.size().split(block).0).collect();
                while page < end && map.is_nothing_on(page) && !held.contains(&page) {
                    next = map.end_of(page);
                    page += 1;
                }
                next
            }
        }
    }

    /// Frames that blocks are read into, as many as there are and one request may have.
    pub fn frames_to_check(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let form = self.payload_form();
        let count = self.flash.frames.available(form).min(TRANSACTION_BLOCKS_MAX);
        let taken = self.flash.frames.acquire_many(form, count, &mut frames);
        assert!(taken && count > 0, "a drive that was just opened has frames to spare");
        frames
    }

    fn read_and_wait(
        &mut self,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
        first: u64,
        frames: &[Frame],
    ) -> Result<Result<(), IoError>, OpenError> {
        if let Err(error) = self.submit(clock.now(), CHECK_TAG, Request::Read { first, frames }) {
            return Ok(Err(error));
        }
        self.wait_for_check(clock, tenant)
    }

    /// Waits for the read that was begun with [`CHECK_TAG`].
    pub fn wait_for_check(
        &mut self,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<Result<(), IoError>, OpenError> {
        let ended = |done: &Done| done.tag == CHECK_TAG;
        self.run(clock, tenant, |ftl| ftl.done.iter().any(ended))?;
        let index = self.done.iter().position(ended).expect("it has ended");
        Ok(self.done.swap_remove(index).result)
    }

    fn compare_chunks(
        &mut self,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
        report: &mut CheckReport,
    ) -> Result<(), OpenError> {
        let mut mapped = vec![0u32; self.flash.format.chunk_ids()];
        let mut wrong = Vec::new();
        // Of a map on media only where nothing moves while it is read.
        let is_counted = matches!(self.map, Map::Whole(_)) || self.flash.read_only == Some(ReadOnlyReason::Inspection);
        let mut note = |ftl: &BlockFtl, block, ppa| {
            mapped[ftl.flash.format.chunk_of(ppa).0 as usize] += 1;
            if !ftl.flash.chunks.is_valid(ppa) {
                wrong.push((block, ppa));
            }
        };
        let lost = if is_counted { self.each_place_of_map(clock, tenant, &mut note)? } else { Vec::new() };
        let is_counted = is_counted && lost.is_empty();
        for (block, ppa) in wrong {
            report.add(mapped_to_invalid(block, self.flash.format.unpack(ppa)));
        }
        for page in &lost {
            report.add(format!("map page {page}: neither copy of it can be read"));
        }
        let descriptors = self.media.whole_chunk_report(clock.now())?;
        let in_memory = if matches!(self.map, Map::Whole(_)) { self.map.blocks() } else { 0 };
        for block in 0..in_memory {
            let Place::Media(ppa) = self.buffer.base(&self.map, block).place() else { continue };
            mapped[self.flash.format.chunk_of(ppa).0 as usize] += 1;
            if !self.flash.chunks.is_valid(ppa) {
                report.add(mapped_to_invalid(block, self.flash.format.unpack(ppa)));
            }
        }
        for descriptor in &descriptors {
            let chunk = descriptor.chunk;
            let address = self.flash.format.unpack_chunk(chunk);
            let (usage, valid) = (self.flash.chunks.usage(chunk), self.flash.chunks.valid(chunk));
            report.chunks_compared += 1;
            if valid != mapped[chunk.0 as usize] && is_counted {
                let mapped = mapped[chunk.0 as usize];
                report.add(format!("chunk {address}: the chunk table counts {valid} valid blocks, the map {mapped}"));
            }
            let agree = match usage {
                ChunkUse::Free => descriptor.state == ChunkState::Free,
                ChunkUse::Closed | ChunkUse::Victim => descriptor.state == ChunkState::Closed,
                ChunkUse::Open | ChunkUse::Tenant => {
                    matches!(descriptor.state, ChunkState::Open | ChunkState::Free | ChunkState::Closed)
                }
                ChunkUse::Retired | ChunkUse::Resetting | ChunkUse::Metadata => true,
            };
            if !agree {
                report.add(format!("chunk {address}: {usage:?} for the FTL, {:?} for the device", descriptor.state));
            }
            let pointer = descriptor.write_pointer;
            if self.flash.chunks.valid(chunk) > 0
                && let Some(beyond) = self.flash.chunks.next_valid(chunk, pointer)
            {
                report.add(format!("chunk {address}: block {beyond} is valid, and the write pointer is at {pointer}"));
            }
        }
        Ok(())
    }
}
