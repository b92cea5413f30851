//! Opening a drive: after a clean stop, after a crash, for the first time.
//!
//! After a clean stop and after a crash the same steps are taken; there is just no log to replay after a clean stop.
//! They read aloud in [`STEPS`]. All of them up to the last only read (but for padding on devices with MW_CUNITS, without
//! which the last blocks of a chunk cannot be read), so a crash during recovery leaves what the crash before it left. The
//! padding comes after superblock and checkpoint: whatever they refuse has not been touched.
//!
//! Where does the log end? Blocks are put in the order of their LSNs, from the first that the superblock names:
//!
//! | next LSN is | then |
//! |---|---|
//! | found, verified | replay its records; go on |
//! | not found | the log ends here: nothing after it was ever promised, because durability is given in order |
//!
//! Records of a transaction without its last one are dropped: it was never acknowledged as durable.
//!
//! Whatever was logged beyond the end keeps its LSNs to itself: the new log begins above the highest LSN seen anywhere.

use crate::block::{BlockFtl, Phase, ReadOnlyReason};
use crate::checkpoint::{BodyLayout, CHUNK_RETIRED, CHUNKS_PER_BLOCK};
use crate::chunk_table::{ChunkTable, ChunkUse};
use crate::config::Config;
use crate::log::{self, Record};
use crate::mapping::{Entry, Mapping, Place};
use crate::oob::{BlockKind, Oob};
use crate::plan::{Plan, PlanError};
use crate::scan::Scan;
use crate::superblock::{ENTRIES_PER_BLOCK, SEARCH_CHUNKS, Superblock, SuperblockError};
use crate::survey::{Chunks, find_superblock, settle, superblock_places};
use crate::write_buffer::WriteBuffer;
use openftl_core::{ChunkId, Clock, Geometry, GeometryError, Nanos, Ppa, PuId, Time};
use openftl_media::{ChunkDescriptor, ChunkState, Media, MediaError};

/// The names of the steps, in their order.
pub const STEPS: [&str; 8] = [
    "read chunk report",
    "find superblock",
    "load checkpoint",
    "settle open chunks",
    "read log",
    "replay log",
    "rebuild chunk table",
    "write checkpoint",
];

/// One step of opening a drive.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct StepReport {
    /// Its name, of [`STEPS`].
    pub name: &'static str,
    /// How long it took on the drive's clock.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Blocks that it read.
    pub blocks_read: u64,
    /// What it found.
    pub found: String,
}

/// How a drive was opened.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct RecoveryReport {
    /// The steps taken.
    pub steps: Vec<StepReport>,
    /// Whether the drive had been closed cleanly.
    pub clean: bool,
    /// Records replayed.
    pub replayed: u64,
    /// Records of transactions that were cut off, and dropped.
    pub dropped: u64,
    /// Log blocks found beyond the end of the log.
    pub beyond_end: u64,
}

/// A drive that cannot be opened, or formatted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The device does not answer.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// The device has an impossible shape.
    #[error("the device reports an impossible geometry: {0}")]
    Geometry(#[from] GeometryError),
    /// The capacity does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No superblock was found.
    #[error(
        "no superblock was found on the device: it was never formatted, or holds something else. `openftl create` makes a new drive"
    )]
    NotFormatted,
    /// Superblocks were found, but none can be used.
    #[error("no superblock on the device can be used: {0}")]
    Superblock(#[from] SuperblockError),
    /// The drive was formatted on a device of another shape.
    #[error(
        "the drive was formatted on a device of another geometry (groups, PUs per group, chunks per PU, blocks per chunk): \
         {formatted:?}, and this one has {found:?}; open it with the profile it was created with"
    )]
    OtherGeometry {
        /// In the superblock.
        formatted: [u32; 4],
        /// Of the device.
        found: [u32; 4],
    },
    /// A block of the checkpoint cannot be read or does not verify.
    #[error(
        "checkpoint {sequence} lacks {missing} of its {blocks} blocks (the first is {first}): the map cannot be trusted"
    )]
    CheckpointLost {
        /// Which checkpoint.
        sequence: u64,
        /// Blocks that it should have.
        blocks: u32,
        /// Blocks that were not found.
        missing: u32,
        /// The first of them.
        first: u32,
    },
    /// Checkpoint and log together say something that cannot be.
    #[error("the map is inconsistent: {0}")]
    Inconsistent(String),
    /// Too few chunks for superblocks.
    #[error("parallel unit {0:?} has no two good chunks among its first {SEARCH_CHUNKS}: no place for superblocks")]
    NoSuperblockPlace(PuId),
    /// The first writes to a new drive failed.
    #[error("the drive could not be written: {0}")]
    Unwritable(ReadOnlyReason),
    /// The device stopped completing commands.
    #[error("the device has stopped: nothing is due, and the drive still waits")]
    Stopped,
}

/// Whether a drive may be written when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Recovery ends with a checkpoint, and the drive takes requests.
    ReadWrite,
    /// Nothing is written; the drive takes reads.
    Inspect,
}

struct Steps<'a, C> {
    clock: &'a mut C,
    report: RecoveryReport,
    began: Time,
    read: u64,
}

impl<'a, C: Clock> Steps<'a, C> {
    fn new(clock: &'a mut C) -> Steps<'a, C> {
        let began = clock.now();
        Steps { clock, report: RecoveryReport::default(), began, read: 0 }
    }

    fn end(&mut self, blocks_read: u64, found: String) {
        let now = self.clock.now();
        self.report.steps.push(StepReport {
            name: STEPS[self.report.steps.len()],
            time: now.since(self.began),
            blocks_read: blocks_read - self.read,
            found,
        });
        (self.began, self.read) = (now, blocks_read);
    }
}

impl<M: Media> BlockFtl<M> {
    /// Opens a drive that was formatted before, whatever happened to it since.
    ///
    /// # Errors
    /// If no consistent state can be reached; nothing was written then.
    pub fn open(media: M, config: Config, clock: &mut impl Clock) -> Result<BlockFtl<M>, OpenError> {
        BlockFtl::open_with(media, config, Access::ReadWrite, clock)
    }

    /// Opens a drive with the access that is wanted.
    ///
    /// # Errors
    /// If no consistent state can be reached; nothing was written then.
    pub fn open_with(
        mut media: M,
        mut config: Config,
        access: Access,
        clock: &mut impl Clock,
    ) -> Result<BlockFtl<M>, OpenError> {
        let mut steps = Steps::new(clock);
        let now = steps.clock.now();
        let mut chunks = Chunks::report(&mut media, now)?;
        let geometry = chunks.geometry;
        let mut scan = Scan::new(&geometry);
        steps.end(0, format!("{} chunks", geometry.chunks()));

        // What is durable of superblock and checkpoint can be read as it was left. So a device that holds something else, or
        // a drive that cannot be trusted, is refused before anything is written.
        let mut superblock = find_superblock(&mut media, steps.clock, &mut scan, &chunks)?;
        if superblock.geometry != Superblock::geometry_of(&geometry) {
            let found = Superblock::geometry_of(&geometry);
            return Err(OpenError::OtherGeometry { formatted: superblock.geometry, found });
        }
        config.capacity_blocks = superblock.capacity_blocks;
        config.over_provisioning = superblock.over_provisioning;
        config.drive_id = superblock.drive;
        let plan = Plan::new(&geometry, &config)?;
        steps.end(scan.blocks_read, format!("superblock {}", superblock.sequence));

        let mut mapping = Mapping::new(config.capacity_blocks);
        let mut table = ChunkTable::new(&geometry);
        let mut flags =
            load_checkpoint(&mut media, steps.clock, &mut scan, &superblock, &geometry, &mut mapping, &mut table)?;
        steps.end(scan.blocks_read, format!("checkpoint {}", superblock.checkpoint.sequence));

        let settled =
            if access == Access::ReadWrite { settle(&mut media, steps.clock, &mut scan, &mut chunks) } else { 0 };
        if settled > 0 {
            // A superblock that was on its way may have become readable. It is true, and its sequence must not be used again.
            let newest = find_superblock(&mut media, steps.clock, &mut scan, &chunks)?;
            if newest.sequence != superblock.sequence {
                superblock = newest;
                mapping = Mapping::new(config.capacity_blocks);
                table = ChunkTable::new(&geometry);
                flags = load_checkpoint(
                    &mut media,
                    steps.clock,
                    &mut scan,
                    &superblock,
                    &geometry,
                    &mut mapping,
                    &mut table,
                )?;
            }
        }
        steps.end(scan.blocks_read, format!("{settled} blocks of padding"));

        let found = read_log(&mut media, steps.clock, &mut scan, &chunks, &superblock);
        // The superblock of a clean stop is still the newest when little was written after it.
        steps.report.clean = superblock.clean && found.blocks.is_empty();
        steps.end(scan.blocks_read, format!("{} blocks from LSN {}", found.blocks.len(), superblock.first_lsn));

        replay(&found, &superblock, &mut mapping, &mut steps.report)?;
        let (replayed, dropped) = (steps.report.replayed, steps.report.dropped);
        steps.end(scan.blocks_read, format!("{replayed} records, {dropped} of cut-off transactions dropped"));

        let mapped = rebuild(&chunks, &mapping, &mut table)?;
        let is_retired =
            |chunk: ChunkId| flags.iter().any(|(other, flags)| *other == chunk && flags & CHUNK_RETIRED != 0);
        let is_good = |chunk: &&ChunkDescriptor| chunk.state != ChunkState::Offline && !is_retired(chunk.chunk);
        let good = chunks.all().filter(is_good).count() as u64;
        let next_lsn = found.highest.max(superblock.first_lsn - 1) + 1;
        let log_chunks = superblock.log_chunks.clone();
        let states = superblock_places(&mut media, steps.clock, &mut scan, &mut chunks, &superblock, access);
        let position = superblock.position + steps.report.replayed;
        let now = steps.clock.now();
        let mut ftl = BlockFtl::assemble(media, config, plan, superblock, mapping, table, good, next_lsn, now);
        ftl.buffer = WriteBuffer::new(ftl.frames.len(), position);
        ftl.place_superblocks(states);
        ftl.adopt_metadata(&chunks, &log_chunks, &found);
        for (chunk, flags) in flags {
            if flags & CHUNK_RETIRED != 0 {
                ftl.chunks.set_usage(chunk, ChunkUse::Retired, position);
            }
        }
        ftl.sort_chunks(&chunks);
        steps.end(scan.blocks_read, format!("{mapped} blocks mapped"));

        if access == Access::Inspect {
            ftl.read_only = Some(ReadOnlyReason::Inspection);
            ftl.recovery = steps.report;
            return Ok(ftl);
        }
        ftl.superblock.current_mut().clean = false;
        ftl.turn_read_only_if_worn_out();
        // What is beyond the end of the log must never be taken for a part of it: a new checkpoint leaves it behind. On a
        // worn-out drive nothing follows it.
        let is_log_left = !found.blocks.is_empty() || found.highest >= ftl.superblock.current().first_lsn;
        if is_log_left && ftl.read_only.is_none() {
            ftl.begin_checkpoint();
            ftl.run(steps.clock, |ftl| !ftl.checkpoint.is_working() || !ftl.may_program())?;
            let blocks = ftl.superblock.current().checkpoint.blocks;
            steps.end(scan.blocks_read, format!("{blocks} blocks written"));
        }
        ftl.phase = Phase::Working;
        ftl.recovery = steps.report;
        ftl.reset_statistics();
        Ok(ftl)
    }
}

fn load_checkpoint(
    media: &mut impl Media,
    clock: &mut impl Clock,
    scan: &mut Scan,
    superblock: &Superblock,
    geometry: &Geometry,
    mapping: &mut Mapping,
    table: &mut ChunkTable,
) -> Result<Vec<(ChunkId, u32)>, OpenError> {
    let mut flagged = Vec::new();
    let blocks = superblock.checkpoint.blocks;
    if blocks == 0 {
        return Ok(flagged);
    }
    let layout = BodyLayout::new(superblock.capacity_blocks, geometry);
    if blocks != layout.blocks() {
        let found = format!("the checkpoint has {blocks} blocks, and this drive's has {}", layout.blocks());
        return Err(OpenError::Inconsistent(found));
    }
    let format = geometry.format();
    let chunk_order: Vec<ChunkId> = geometry.chunk_ids().collect();
    let extents = superblock.checkpoint.extents.iter().filter(|extent| geometry.has_chunk(ChunkId(extent.chunk)));
    let places: Vec<Ppa> = extents
        .flat_map(|extent| {
            let last = (extent.first.saturating_add(extent.blocks)).min(geometry.blocks_per_chunk);
            (extent.first..last).map(|block| format.ppa(ChunkId(extent.chunk), block))
        })
        .collect();
    let mut have = vec![false; blocks as usize];
    let mut bad_entry = None;
    scan.read(media, clock, &places, |_, frames, frame, good| {
        let Some(oob) = good.then(|| Oob::verify(frames, frame).ok()).flatten() else { return };
        let of_this = oob.kind == BlockKind::Checkpoint && oob.sequence == superblock.checkpoint.sequence as u32;
        if !of_this || oob.address >= u64::from(blocks) {
            return;
        }
        let index = oob.address as u32;
        have[index as usize] = true;
        let bytes = frames.bytes(frame);
        if index < layout.map_blocks {
            let first = index as usize * ENTRIES_PER_BLOCK;
            let entries = &mut mapping.entries_mut()[first..];
            for (at, (entry, word)) in entries.iter_mut().zip(bytes.as_chunks::<4>().0).enumerate() {
                *entry = Entry(u32::from_le_bytes(*word));
                if matches!(entry.place(), Place::Buffer(_)) {
                    bad_entry = Some((first + at, entry.0));
                }
            }
        } else {
            let first = (index - layout.map_blocks) as usize * CHUNKS_PER_BLOCK;
            for (chunk, entry) in chunk_order[first..].iter().zip(bytes.as_chunks::<8>().0) {
                let entry = u64::from_le_bytes(*entry);
                table.set_resets(*chunk, entry as u32);
                let flags = (entry >> 32) as u32;
                if flags & CHUNK_RETIRED != 0 {
                    flagged.push((*chunk, flags));
                }
            }
        }
    });
    if let Some(first) = have.iter().position(|have| !have) {
        let missing = have.iter().filter(|have| !**have).count() as u32;
        let sequence = superblock.checkpoint.sequence;
        return Err(OpenError::CheckpointLost { sequence, blocks, missing, first: first as u32 });
    }
    if let Some((block, word)) = bad_entry {
        return Err(OpenError::Inconsistent(format!("the checkpoint maps logical block {block} to {word:#010x}")));
    }
    Ok(flagged)
}

/// What was found of the log.
pub(crate) struct FoundLog {
    /// LSN and records of the blocks from the first LSN of the superblock on, in the order of LSNs.
    pub(crate) blocks: Vec<(u64, Vec<Option<Record>>)>,
    /// The highest LSN of any block.
    pub(crate) highest: u64,
    /// The highest LSN in each chunk.
    pub(crate) last_lsns: Vec<(ChunkId, u64)>,
}

fn read_log(
    media: &mut impl Media,
    clock: &mut impl Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    superblock: &Superblock,
) -> FoundLog {
    let format = chunks.geometry.format();
    let mut found = FoundLog { blocks: Vec::new(), highest: 0, last_lsns: Vec::new() };
    for chunk in superblock.log_chunks.iter().copied().map(ChunkId) {
        let places: Vec<Ppa> = (0..chunks.readable(chunk)).map(|block| format.ppa(chunk, block)).collect();
        let mut last_lsn = 0;
        scan.read(media, clock, &places, |_, frames, frame, good| {
            let Some(oob) = good.then(|| Oob::verify(frames, frame).ok()).flatten() else { return };
            if oob.kind != BlockKind::Log {
                return;
            }
            let Ok((lsn, words)) = log::parse_block(frames.bytes(frame), superblock.drive) else { return };
            last_lsn = last_lsn.max(lsn);
            if lsn >= superblock.first_lsn {
                found.blocks.push((lsn, log::records(words).collect()));
            }
        });
        found.highest = found.highest.max(last_lsn);
        if last_lsn > 0 {
            found.last_lsns.push((chunk, last_lsn));
        }
    }
    found.blocks.sort_by_key(|(lsn, _)| *lsn);
    found.blocks.dedup_by_key(|(lsn, _)| *lsn);
    found
}

fn replay(
    found: &FoundLog,
    superblock: &Superblock,
    mapping: &mut Mapping,
    report: &mut RecoveryReport,
) -> Result<(), OpenError> {
    let mut transaction: Vec<(u32, Ppa)> = Vec::new();
    for (expected, (lsn, records)) in (superblock.first_lsn..).zip(&found.blocks) {
        if *lsn != expected {
            report.beyond_end = found.blocks.len() as u64 - (expected - superblock.first_lsn);
            break;
        }
        for record in records {
            match record {
                Some(Record::Mapped { block, ppa, last }) if u64::from(*block) < mapping.len() => {
                    transaction.push((*block, *ppa));
                    if *last {
                        report.replayed += transaction.len() as u64;
                        for (block, ppa) in transaction.drain(..) {
                            mapping.set(block, Entry::media(ppa));
                        }
                    }
                }
                Some(Record::Trimmed { first, blocks })
                    if u64::from(*first) + u64::from(*blocks) <= mapping.len() && transaction.is_empty() =>
                {
                    report.replayed += 1;
                    for block in *first..first + blocks {
                        mapping.set(block, Entry::UNMAPPED);
                    }
                }
                record => {
                    return Err(OpenError::Inconsistent(format!(
                        "log block {lsn} has the impossible record {record:?}"
                    )));
                }
            }
        }
    }
    report.dropped = transaction.len() as u64;
    Ok(())
}

/// Marks valid what the map points at. Returns how many blocks are mapped.
fn rebuild(chunks: &Chunks, mapping: &Mapping, table: &mut ChunkTable) -> Result<u64, OpenError> {
    let format = chunks.geometry.format();
    let mut mapped = 0;
    for (block, entry) in mapping.entries().iter().enumerate() {
        let Place::Media(ppa) = entry.place() else { continue };
        let (chunk, at) = (format.chunk_of(ppa), format.block_of(ppa));
        let written = match chunks.get(chunk) {
            None => 0,
            // It held them, and they are lost with it.
            Some(chunk) if chunk.state == ChunkState::Offline => chunks.geometry.blocks_per_chunk,
            Some(chunk) if chunk.state == ChunkState::Free => 0,
            Some(chunk) => chunk.write_pointer,
        };
        let address = format.unpack(ppa);
        if at >= written {
            return Err(OpenError::Inconsistent(format!(
                "logical block {block} is mapped to {address}, and only {written} blocks of that chunk are written"
            )));
        }
        if table.is_valid(ppa) {
            return Err(OpenError::Inconsistent(format!("two logical blocks are mapped to {address}; one is {block}")));
        }
        table.set_valid(ppa);
        mapped += 1;
    }
    Ok(mapped)
}
