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

use crate::bad_chunks::BadChunks;
use crate::block::{BlockFtl, HostFrontiers, Phase, ReadOnlyReason};
use crate::checkpoint::{BodyLayout, CHUNK_RETIRED, CHUNK_STUCK, CHUNKS_PER_BLOCK, Checkpointer};
use crate::chunk_table::{ChunkTable, ChunkUse};
use crate::config::Config;
use crate::garbage_collection::Collection;
use crate::log::{self, Log, LogChunk, Record, Successor};
use crate::mapping::{Entry, Mapping, Place};
use crate::oob::{BlockKind, Oob};
use crate::plan::{Plan, PlanError, SUPERBLOCK_COPIES};
use crate::provisioning::{Claim, Provisioning};
use crate::scan::Scan;
use crate::statistics::{GroupStatistics, Statistics};
use crate::superblock::{ENTRIES_PER_BLOCK, SEARCH_CHUNKS, Superblock, SuperblockError};
use crate::superblock_writer::{PlaceState, SuperblockWriter};
use crate::target::TRANSACTION_BLOCKS_MAX;
use crate::transactions::Transactions;
use crate::units::{OpenId, Units};
use crate::write_buffer::WriteBuffer;
use openftl_core::{
    BLOCK_BYTES, ChunkId, Clock, Frame, FrameForm, Frames, Geometry, GeometryError, Nanos, Ppa, PuId, Time,
    VECTOR_BLOCKS_MAX,
};
use openftl_media::{ChunkDescriptor, ChunkState, Media, MediaError, Status};
use std::collections::VecDeque;

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

/// Superblock frames: the longest record.
const SUPERBLOCK_FRAMES: usize = 64;

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

/// Parallel units that hold superblocks.
fn superblock_pus(geometry: &Geometry) -> impl Iterator<Item = PuId> + use<> {
    let format = geometry.format();
    (0..geometry.groups.min(SUPERBLOCK_COPIES)).map(move |group| format.pu_id(group, 0))
}

/// The descriptors of a device, by chunk address.
struct Chunks {
    geometry: Geometry,
    table: Vec<Option<ChunkDescriptor>>,
}

impl Chunks {
    fn report(media: &mut impl Media, now: Time) -> Result<Chunks, OpenError> {
        let geometry = *media.geometry();
        geometry.validate()?;
        let bits = geometry.format().bits();
        if bits > 31 {
            return Err(PlanError::TooLarge { capacity_blocks: geometry.blocks(), bits }.into());
        }
        let mut table = vec![None; geometry.format().chunk_ids()];
        for descriptor in media.whole_chunk_report(now)? {
            table[descriptor.chunk.0 as usize] = Some(descriptor);
        }
        Ok(Chunks { geometry, table })
    }

    fn get(&self, chunk: ChunkId) -> Option<&ChunkDescriptor> {
        self.table.get(chunk.0 as usize)?.as_ref()
    }

    fn state(&self, chunk: ChunkId) -> ChunkState {
        self.get(chunk).map_or(ChunkState::Offline, |descriptor| descriptor.state)
    }

    /// Blocks of `chunk` that can be read.
    fn readable(&self, chunk: ChunkId) -> u32 {
        match self.get(chunk) {
            Some(chunk) if chunk.state == ChunkState::Closed => chunk.write_pointer,
            Some(chunk) if chunk.state == ChunkState::Open => {
                chunk.write_pointer.saturating_sub(self.geometry.mw_cunits)
            }
            _ => 0,
        }
    }

    fn all(&self) -> impl Iterator<Item = &ChunkDescriptor> {
        self.table.iter().flatten()
    }
}

impl<M: Media> BlockFtl<M> {
    /// Makes a new drive on a device. What was on it is lost.
    ///
    /// # Errors
    /// If the capacity does not fit the device, or the device fails.
    pub fn format(mut media: M, config: Config, clock: &mut impl Clock) -> Result<BlockFtl<M>, OpenError> {
        let mut chunks = Chunks::report(&mut media, clock.now())?;
        let geometry = chunks.geometry;
        let plan = Plan::new(&geometry, &config)?;
        let good = chunks.all().filter(|chunk| chunk.state != ChunkState::Offline).count() as u64;
        if good < plan.chunks() {
            return Err(PlanError::TooFewChunks {
                capacity_blocks: config.capacity_blocks,
                over_provisioning: config.over_provisioning,
                needed: plan.chunks(),
                available: good,
            }
            .into());
        }
        let mut scan = Scan::new(&geometry);
        let mut places = [u32::MAX; 4];
        let mut states = Vec::new();
        for (place, pu) in superblock_pus(&geometry).enumerate() {
            let first_chunks =
                (0..SEARCH_CHUNKS.min(geometry.chunks_per_pu)).map(|chunk| geometry.format().chunk_id(pu, chunk));
            let mut found = Vec::new();
            for chunk in first_chunks {
                // Nothing of another drive may be found here later.
                let usable = chunks.state(chunk) != ChunkState::Offline;
                if usable && make_free(&mut media, clock, &mut scan, &mut chunks, chunk) {
                    found.push(chunk);
                }
            }
            let [active, spare, ..] = found[..] else { return Err(OpenError::NoSuperblockPlace(pu)) };
            places[2 * place..2 * place + 2].copy_from_slice(&[active.0, spare.0]);
            states.push(PlaceState { active: Some((active, 0)), spare: Some(spare), full: None });
        }
        let superblock = Superblock {
            drive: config.drive_id,
            sequence: 0,
            capacity_blocks: config.capacity_blocks,
            over_provisioning: config.over_provisioning,
            geometry: Superblock::geometry_of(&geometry),
            clean: false,
            checkpoint: Default::default(),
            first_lsn: 1,
            position: 0,
            log_chunks: Vec::new(),
            places,
        };
        let mapping = Mapping::new(config.capacity_blocks);
        let table = ChunkTable::new(&geometry);
        let now = clock.now();
        let mut ftl = BlockFtl::assemble(media, config, plan, superblock, mapping, table, good, 1, now);
        ftl.place_superblocks(states);
        ftl.sort_chunks(&chunks, |_| false);
        let log = ftl.provisioning.take(Claim::Metadata(0)).expect("the plan has room for a log");
        ftl.chunks.set_usage(log, ChunkUse::Metadata, 0);
        ftl.log.chunks.push_back(LogChunk { chunk: log, last_lsn: 0 });
        ftl.log.open = Some(ftl.units.open(log, 0));
        let superblock = ftl.request_superblock();
        ftl.run(clock, |ftl| ftl.superblock.durable() >= superblock || ftl.read_only.is_some())?;
        match ftl.read_only {
            Some(reason) => Err(OpenError::Unwritable(reason)),
            None => {
                ftl.phase = Phase::Working;
                Ok(ftl)
            }
        }
    }

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
            } else if ftl.chunks.valid(chunk) > 0 {
                ftl.chunks.set_usage(chunk, ChunkUse::Stuck, position);
            }
        }
        ftl.sort_chunks(&chunks, |_| false);
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

    /// Stops cleanly: everything is durable, and the drive opens again without a log to replay.
    ///
    /// # Errors
    /// If the device stops completing commands, or the drive is read-only because of a failure.
    pub fn close(mut self, clock: &mut impl Clock) -> Result<M, OpenError> {
        if self.may_program() {
            let ended = |ftl: &BlockFtl<M>| !ftl.may_program();
            let tag = u64::MAX;
            if self.flush(tag).is_err() {
                self.run(clock, |ftl| ftl.transactions.is_idle() || ended(ftl))?;
            }
            self.run(clock, |ftl| ftl.transactions.is_idle() || ended(ftl))?;
            self.phase = Phase::Closing;
            self.run(clock, |ftl| ftl.is_quiet() || ended(ftl))?;
            // Whoever only looks at the drive later can read all of it, and need not write padding first.
            self.pad_data_frontiers();
            self.run(clock, |ftl| ftl.is_quiet() || ended(ftl))?;
            // The checkpoint begins with an empty log block, so that there is nothing to replay on it.
            self.force_log();
            self.run(clock, |ftl| ftl.is_quiet() || ended(ftl))?;
            self.begin_checkpoint();
            self.run(clock, |ftl| ftl.is_quiet() || ended(ftl))?;
        }
        match self.read_only {
            None | Some(ReadOnlyReason::Inspection | ReadOnlyReason::WornOut) => Ok(self.media),
            Some(reason) => Err(OpenError::Unwritable(reason)),
        }
    }

    fn pad_data_frontiers(&mut self) {
        let host = self.host.open.iter().flatten();
        let open: Vec<OpenId> = host.copied().chain(self.collection.open_chunks()).collect();
        for open in open {
            if self.geometry.mw_cunits > 0 && self.units.wants_padding(open) {
                self.pad(open);
            }
        }
    }

    fn is_quiet(&self) -> bool {
        !self.checkpoint.is_working()
            && !self.superblock.is_writing()
            && self.log.is_idle()
            && self.under_way == 0
            && self.backlog.is_empty()
            && !self.stirred
    }

    /// Works until `until` holds, waiting for the device as it needs.
    pub(crate) fn run(
        &mut self,
        clock: &mut impl Clock,
        until: impl Fn(&BlockFtl<M>) -> bool,
    ) -> Result<(), OpenError> {
        loop {
            let now = clock.now();
            self.advance(now);
            if until(self) {
                return Ok(());
            }
            match self.media.next_due() {
                Some(due) => {
                    clock.wait_until(due);
                }
                None if self.stirred => {}
                None => return Err(OpenError::Stopped),
            }
        }
    }

    /// A drive with its parts in place, and no chunk sorted yet.
    fn assemble(
        media: M,
        config: Config,
        plan: Plan,
        superblock: Superblock,
        mapping: Mapping,
        chunks: ChunkTable,
        good: u64,
        next_lsn: u64,
        now: Time,
    ) -> BlockFtl<M> {
        let geometry = *media.geometry();
        let (groups, ws_min, mw_cunits) = (geometry.groups, geometry.ws_min, geometry.mw_cunits);
        let most = VECTOR_BLOCKS_MAX as u32 / ws_min * ws_min;
        let unit_blocks = geometry.ws_opt.min(most);
        let collection_frames = Collection::frames_needed(groups, unit_blocks, mw_cunits);
        // What can be stuck in the buffer: a partly filled unit, and on each frontier what cannot be read yet.
        let stuck = (plan.host_frontiers * (unit_blocks + mw_cunits) + unit_blocks) as usize;
        let payload = collection_frames + stuck + TRANSACTION_BLOCKS_MAX + config.host_frames as usize + 1;
        let metadata = Log::frames_needed(ws_min)
            + Checkpointer::frames_needed(plan.checkpoint_lanes, &geometry)
            + SUPERBLOCK_FRAMES.next_multiple_of(ws_min as usize);
        let (pages, stamps) = match config.payload {
            FrameForm::Bytes => (payload + metadata, 0),
            FrameForm::Stamp => (metadata, payload),
        };
        let mut frames = Frames::new(pages, stamps, geometry.oob_bytes as usize);
        let padding = frames.acquire(config.payload).expect("the pool was sized for it");
        frames.zero(padding);
        Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }.seal(&mut frames, padding);
        let log = Log::new(superblock.drive, ws_min, next_lsn, &mut frames);
        let layout = BodyLayout::new(config.capacity_blocks, &geometry);
        let checkpoint = Checkpointer::new(layout, plan.checkpoint_lanes, &geometry, &mut frames);
        let own = |frames: &mut Frames, form, count| {
            let mut own: Vec<Frame> = Vec::new();
            assert!(frames.acquire_many(form, count, &mut own), "the pool was sized for it");
            own
        };
        let superblock_frames = own(&mut frames, FrameForm::Bytes, SUPERBLOCK_FRAMES);
        let rescue = own(&mut frames, config.payload, TRANSACTION_BLOCKS_MAX);
        let relocation_frames = own(&mut frames, config.payload, collection_frames);
        // The smallest drive that can still be written has a quarter of its over-provisioning.
        let over_provisioned = plan.data_chunks
            - plan.capacity_blocks.div_ceil(u64::from(geometry.blocks_per_chunk)).min(plan.data_chunks);
        let good_min = plan.chunks() - over_provisioned * 3 / 4;
        let mut order: Vec<PuId> = geometry.pu_ids().collect();
        let format = geometry.format();
        order.sort_by_key(|pu| (pu.0 & ((1 << format.pu_bits) - 1), format.group_of(*pu)));
        let mut provisioning = Provisioning::new(&geometry, &plan);
        provisioning.hold_spares(good.saturating_sub(plan.chunks()) as u32);
        BlockFtl {
            format,
            unit_blocks,
            provisioning,
            buffer: WriteBuffer::new(frames.len(), 0),
            units: Units::new(&geometry),
            host: HostFrontiers {
                open: vec![None; order.len()],
                opened: 0,
                partial: vec![Vec::new(); format.pu_ids()],
                next: 0,
                order,
            },
            log,
            superblock: SuperblockWriter::new(superblock, superblock_frames),
            checkpoint,
            collection: Collection::new(groups, relocation_frames),
            bad_chunks: BadChunks::new(good, good_min),
            transactions: Transactions::default(),
            reads: Default::default(),
            statistics: Statistics {
                groups: vec![GroupStatistics::default(); groups as usize],
                ..Statistics::default()
            },
            recovery: RecoveryReport::default(),
            done: Vec::new(),
            completions: Vec::new(),
            backlog: VecDeque::new(),
            under_way: 0,
            rescue,
            padding,
            now,
            read_only: None,
            phase: Phase::Recovering,
            stirred: true,
            media,
            geometry,
            config,
            plan,
            frames,
            mapping,
            chunks,
        }
    }

    /// Takes over the chunks of log and checkpoint that the superblock names.
    fn adopt_metadata(&mut self, chunks: &Chunks, log_chunks: &[u32], found: &FoundLog) {
        let sequence = self.superblock.current().sequence;
        let named: Vec<ChunkId> = self.superblock.current().chunks().collect();
        for chunk in named {
            if self.chunks.usage(chunk) != ChunkUse::Metadata {
                self.chunks.set_usage(chunk, ChunkUse::Metadata, 0);
                self.provisioning.begin_metadata();
            }
        }
        for chunk in log_chunks.iter().copied().map(ChunkId) {
            let last_lsn = found.last_lsns.iter().find(|(other, _)| *other == chunk).map_or(0, |(_, lsn)| *lsn);
            let state = chunks.state(chunk);
            let write_pointer = chunks.get(chunk).map_or(0, |chunk| chunk.write_pointer);
            match state {
                ChunkState::Open if self.log.open.is_none() => {
                    self.log.open = Some(self.units.open(chunk, write_pointer));
                }
                ChunkState::Free => self.log.successor = Some(Successor { chunk, superblock: sequence }),
                _ => {}
            }
            // A closed chunk without a readable block is as good as one that ended before the log began.
            let last_lsn = if last_lsn == 0 && state != ChunkState::Free { 1 } else { last_lsn };
            self.log.chunks.push_back(LogChunk { chunk, last_lsn });
        }
        let extents = self.superblock.current().checkpoint.extents.clone();
        let mut adopted = Vec::new();
        for extent in extents {
            let chunk = ChunkId(extent.chunk);
            if chunks.state(chunk) == ChunkState::Open && !adopted.contains(&chunk) {
                let write_pointer = chunks.get(chunk).map_or(0, |chunk| chunk.write_pointer);
                self.checkpoint.adopt(chunk, write_pointer);
                adopted.push(chunk);
            }
        }
    }

    /// Sorts every chunk that has no use yet by what the device says of it and what is valid in it.
    fn sort_chunks(&mut self, chunks: &Chunks, keep: impl Fn(ChunkId) -> bool) {
        let mut partial_on_pu = vec![0; self.format.pu_ids()];
        for descriptor in chunks.all() {
            let chunk = descriptor.chunk;
            if keep(chunk) || self.chunks.usage(chunk) != ChunkUse::Free {
                continue;
            }
            let valid = self.chunks.valid(chunk);
            match descriptor.state {
                ChunkState::Offline => self.chunks.set_usage(chunk, ChunkUse::Retired, 0),
                ChunkState::Free => self.provisioning.give(chunk, self.chunks.resets(chunk)),
                ChunkState::Closed if valid > 0 => self.chunks.set_usage(chunk, ChunkUse::Closed, 0),
                ChunkState::Closed => self.reset_when_durable(chunk, 0),
                ChunkState::Open => {
                    self.chunks.set_usage(chunk, ChunkUse::Open, 0);
                    let pu = self.format.pu_of(chunk);
                    let place = (chunk, descriptor.write_pointer);
                    // One for the host frontier of each parallel unit, others for relocation.
                    if partial_on_pu[pu.0 as usize] == 0 {
                        self.host.partial[pu.0 as usize].push(place);
                    } else {
                        self.collection.partial[self.format.group_of(pu) as usize].push(place);
                    }
                    partial_on_pu[pu.0 as usize] += 1;
                }
            }
        }
    }
}

/// Makes sure that `chunk` is free, whatever it holds. Returns whether it is.
fn make_free(
    media: &mut impl Media,
    clock: &mut impl Clock,
    scan: &mut Scan,
    chunks: &mut Chunks,
    chunk: ChunkId,
) -> bool {
    let geometry = chunks.geometry;
    let Some(descriptor) = &mut chunks.table[chunk.0 as usize] else { return false };
    // Only a closed chunk can be reset.
    pad(media, clock, scan, &geometry, descriptor, geometry.blocks_per_chunk);
    if descriptor.state == ChunkState::Closed {
        let ppa = geometry.format().ppa(chunk, 0);
        let free = scan.run(media, clock, &[ppa], None::<fn(&mut Frames, Frame)>) == Status::Success;
        descriptor.state = if free { ChunkState::Free } else { ChunkState::Offline };
        descriptor.write_pointer = 0;
    }
    descriptor.state == ChunkState::Free
}

/// Writes padding to an open chunk up to block `to`. A program that fails counts too: the chunk goes on behind it, or is
/// closed by it.
fn pad(
    media: &mut impl Media,
    clock: &mut impl Clock,
    scan: &mut Scan,
    geometry: &Geometry,
    descriptor: &mut ChunkDescriptor,
    to: u32,
) {
    let most = VECTOR_BLOCKS_MAX as u32 / geometry.ws_min * geometry.ws_min;
    while descriptor.state == ChunkState::Open && descriptor.write_pointer < to {
        let count = (to - descriptor.write_pointer).min(most);
        let first = geometry.format().ppa(descriptor.chunk, descriptor.write_pointer);
        let blocks: Vec<Ppa> = (0..u64::from(count)).map(|index| Ppa(first.0 + index)).collect();
        let fill = |frames: &mut Frames, frame: Frame| {
            frames.zero(frame);
            Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }.seal(frames, frame);
        };
        if scan.run(media, clock, &blocks, Some(fill)) == Status::Success {
            descriptor.write_pointer += count;
            if descriptor.write_pointer == geometry.blocks_per_chunk {
                descriptor.state = ChunkState::Closed;
            }
            continue;
        }
        // Only the device knows how far it got.
        let before = descriptor.write_pointer;
        let reported = media.chunk_report(clock.now(), descriptor.chunk, std::slice::from_mut(descriptor));
        if reported.is_err() || (descriptor.state == ChunkState::Open && descriptor.write_pointer == before) {
            return;
        }
    }
}

/// Pads open chunks so that everything the FTL has written to them can be read. Returns the blocks of padding.
fn settle(media: &mut impl Media, clock: &mut impl Clock, scan: &mut Scan, chunks: &mut Chunks) -> u64 {
    let geometry = chunks.geometry;
    if geometry.mw_cunits == 0 {
        return 0;
    }
    for descriptor in chunks.table.iter_mut().flatten().filter(|chunk| chunk.state == ChunkState::Open) {
        let to = (descriptor.write_pointer + geometry.mw_cunits).min(geometry.blocks_per_chunk);
        pad(media, clock, scan, &geometry, descriptor, to);
    }
    scan.blocks_written
}

/// The valid superblock with the highest sequence.
fn find_superblock(
    media: &mut impl Media,
    clock: &mut impl Clock,
    scan: &mut Scan,
    chunks: &Chunks,
) -> Result<Superblock, OpenError> {
    let geometry = chunks.geometry;
    let format = geometry.format();
    let mut places = Vec::new();
    for pu in superblock_pus(&geometry) {
        for chunk in (0..SEARCH_CHUNKS.min(geometry.chunks_per_pu)).map(|chunk| format.chunk_id(pu, chunk)) {
            let readable = chunks.readable(chunk);
            places.extend((0..readable).step_by(geometry.ws_min as usize).map(|block| format.ppa(chunk, block)));
        }
    }
    // Candidates by sequence; the low half that the out-of-band bytes carry is enough to order them.
    let mut candidates: Vec<(u32, Ppa, usize)> = Vec::new();
    let mut newest_error = None;
    scan.read(media, clock, &places, |ppa, frames, frame, good| {
        let Some(oob) = good.then(|| Oob::verify(frames, frame).ok()).flatten() else { return };
        if oob.kind == BlockKind::Superblock && oob.address == 0 {
            match Superblock::length(frames.bytes(frame)) {
                Ok(length) => candidates.push((oob.sequence, ppa, length)),
                Err(error) => newest_error = Some(error),
            }
        }
    });
    candidates.sort_unstable();
    let mut error = newest_error.clone();
    while let Some((_, first, length)) = candidates.pop() {
        let blocks = length.div_ceil(BLOCK_BYTES);
        let places: Vec<Ppa> = (0..blocks as u64).map(|index| Ppa(first.0 + index)).collect();
        let mut record = vec![0; blocks * BLOCK_BYTES];
        scan.read(media, clock, &places, |ppa, frames, frame, good| {
            if good && Oob::verify(frames, frame).is_ok() {
                let at = (ppa.0 - first.0) as usize * BLOCK_BYTES;
                record[at..at + BLOCK_BYTES].copy_from_slice(frames.bytes(frame));
            }
        });
        match Superblock::decode(&record) {
            // A drive that a newer version has written to is not to be opened by what it wrote before.
            Ok(_) if matches!(newest_error, Some(SuperblockError::Version(_))) => break,
            Ok(superblock) => return Ok(superblock),
            Err(other) => error = Some(other),
        }
    }
    Err(error.map_or(OpenError::NotFormatted, OpenError::Superblock))
}

/// The places of superblocks as they were left.
fn superblock_places(
    media: &mut impl Media,
    clock: &mut impl Clock,
    scan: &mut Scan,
    chunks: &mut Chunks,
    superblock: &Superblock,
    access: Access,
) -> Vec<PlaceState> {
    let format = chunks.geometry.format();
    let mut states = Vec::new();
    for pair in superblock.places.chunks(2).filter(|pair| pair[0] != u32::MAX) {
        let pair = [ChunkId(pair[0]), ChunkId(pair[1])];
        // Which of the two has the newer records. Any unit may be one whose program failed, the first too.
        let mut sequences = [None; 2];
        for (sequence, chunk) in sequences.iter_mut().zip(pair) {
            let units = (0..chunks.readable(chunk)).step_by(chunks.geometry.ws_min as usize);
            let places: Vec<Ppa> = units.map(|block| format.ppa(chunk, block)).collect();
            scan.read(media, clock, &places, |_, frames, frame, good| {
                let oob = good.then(|| Oob::verify(frames, frame).ok()).flatten();
                let record = oob.filter(|oob| oob.kind == BlockKind::Superblock);
                *sequence = (*sequence).max(record.map(|oob| oob.sequence));
            });
        }
        let newer = usize::from(sequences[1] > sequences[0]);
        let (active, other) = (pair[newer], pair[1 - newer]);
        let mut state = PlaceState { active: None, spare: None, full: None };
        let write_pointer = chunks.get(active).map_or(0, |chunk| chunk.write_pointer);
        match chunks.state(active) {
            ChunkState::Open | ChunkState::Free => state.active = Some((active, write_pointer)),
            ChunkState::Closed => state.full = Some(active),
            ChunkState::Offline => {}
        }
        match chunks.state(other) {
            ChunkState::Free => state.spare = Some(other),
            ChunkState::Offline => {}
            // Older records: with the active one full too, it has to be free before the next superblock.
            _ if state.full.is_some() && access == Access::ReadWrite => {
                if make_free(media, clock, scan, chunks, other) {
                    state.spare = Some(other);
                }
            }
            ChunkState::Closed => state.full = Some(other),
            ChunkState::Open => {
                if access == Access::ReadWrite && make_free(media, clock, scan, chunks, other) {
                    state.spare = Some(other);
                }
            }
        }
        states.push(state);
    }
    states
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
                if flags & (CHUNK_RETIRED | CHUNK_STUCK) != 0 {
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
struct FoundLog {
    /// LSN and records of the blocks from the first LSN of the superblock on, in the order of LSNs.
    blocks: Vec<(u64, Vec<Option<Record>>)>,
    /// The highest LSN of any block.
    highest: u64,
    /// The highest LSN in each chunk.
    last_lsns: Vec<(ChunkId, u64)>,
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
        let written =
            chunks.get(chunk).filter(|chunk| chunk.state != ChunkState::Free).map_or(0, |chunk| chunk.write_pointer);
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
