//! Opening a drive: after a clean stop, after a crash, for the first time.
//!
//! After a clean stop and after a crash the same steps are taken; there is just no log to replay after a clean stop.
//! They read aloud in [`STEPS`]. All of them up to the last only read, so a crash during recovery leaves what the crash before
//! it left; but for padding: on devices with MW_CUNITS, without which the last blocks of a chunk cannot be read, of chunks of
//! the log that are not its last, and, where a device limits its open chunks, of those that the plan does not count on. It
//! comes after superblock and checkpoint: whatever they refuse has not been touched.
//!
//! Log and checkpoint are there twice, and a block that cannot be read or does not verify is read once more and then
//! taken from the other copy. What is left in one copy only is soon in two again: the last blocks of the log are written
//! to the copy that lacks them, and for anything more a new checkpoint is begun. Blocks of the log of which nothing says that
//! they were durable are written to both copies again: a unit that was being programmed when the power went may be read once,
//! and not the next time.
//!
//! A tenant says which of the chunks that nobody knows are its own when the drive works; where room is short, right after the superblock,
//! before log and checkpoint take any: what a crash has left is room, and a recovery that is cut off must not leave more of it. While blocks of
//! the log are in doubt no chunk is reset that would hold something without them: data that they say are somewhere else, and what the area said
//! of chunks before (`BlockFtl::read_left`).
//!
//! The last step writes a superblock. It says which numbers of the log do not count ([`openftl_parts::journal::superblock::LogGap`]): what
//! was found beyond its end, and what may have been given away. From then on the drive works; the log goes on behind the
//! gap, and the next checkpoint leaves it behind.
//!
//! | cut off | then |
//! |---|---|
//! | before the superblock is on media | the next recovery finds what this one found |
//! | after it | it finds the gap, and skips it |
//! | while blocks of the log are mended | they have the same numbers and contents wherever they are found |

mod pages;

use crate::assembly::{Origin, new_map};
use crate::block_ftl::BlockFtl;
use crate::kind::DriveKind;
use crate::write_buffer::WriteBuffer;
use openftl_core::{AddressFormat, ChunkId, Clock, Geometry, Ppa, Time};
use openftl_media::{ChunkState, Media};
use openftl_parts::canary::Canary;
use openftl_parts::config::{Config, RelocateBy};
use openftl_parts::flash::chunk_table::{ChunkTable, ChunkUse};
use openftl_parts::flash::chunks::Chunks;
use openftl_parts::flash::plan::Plan;
use openftl_parts::flash::scan::Scan;
use openftl_parts::journal::found_checkpoint::FoundCheckpoint;
use openftl_parts::journal::found_log::{FoundLog, LeftOnMedia};
use openftl_parts::journal::log::{Log, MendedUnit};
use openftl_parts::journal::recovery_report::{RecoveryReport, STEPS, StepReport};
use openftl_parts::journal::repair::{self, Highest, map_pages};
use openftl_parts::journal::superblock::{CheckpointPlace, LogGap, MapOnMedia, Sizing, Superblock};
use openftl_parts::journal::superblock_writer::PlaceState;
use openftl_parts::journal::survey::{
    close_all_but_last, close_beyond_plan, find_superblock, newer_log, settle, superblock_places,
};
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::map::{Entry, Map, Mapping, Place};
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::{Nobody, Tenant, expect_blocks_alone};
use openftl_parts::words::{Access, METADATA_COPIES, Phase, ReadOnlyReason};
use pages::{FoundPages, mark_paged};
use rustc_hash::FxHashSet;

/// Sequences of data that a recovery skips, so that none is used twice: more than any pool has frames for blocks that were
/// programmed and not yet logged.
const POSITIONS_SKIPPED: u64 = 1 << 24;

/// Sequences of superblocks that a repair skips.
const SUPERBLOCKS_SKIPPED: u64 = 1 << 10;

struct Steps<'a> {
    clock: &'a mut dyn Clock,
    report: RecoveryReport,
    began: Time,
    read: u64,
}

impl<'a> Steps<'a> {
    fn new(clock: &'a mut dyn Clock) -> Steps<'a> {
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

/// What is found of a drive on its medium, beside its [`Origin`].
struct Found {
    chunks: Chunks,
    checkpoint: FoundCheckpoint,
    log: FoundLog,
    superblocks: Vec<PlaceState>,
    /// Pages of a map on media.
    pages: FoundPages,
    /// Blocks mapped.
    mapped: u64,
    /// Blocks that were read.
    read: u64,
    /// The next position in the order of writes.
    position: u64,
    /// The number of the next block of the log.
    next_lsn: u64,
    left_in_doubt: FxHashSet<ChunkId>,
    left_in_area: Vec<(u32, Ppa)>,
    /// Numbers of the log that do not count from now on, unless the drive was stopped cleanly.
    gap: Option<LogGap>,
    /// Units of the log that are to be written again.
    mend: Vec<MendedUnit>,
}

impl Found {
    /// Reads what is on the medium, and settles what a power cut has left between two states.
    fn read(
        media: &mut dyn Media,
        mut config: Config,
        access: Access,
        steps: &mut Steps<'_>,
    ) -> Result<(Origin, Found), OpenError> {
        let now = steps.clock.now();
        let mut chunks = Chunks::report(media, now)?;
        let geometry = chunks.geometry;
        let mut scan = Scan::new(&geometry);
        scan.seals.heed_canary(&config);
        steps.end(0, format!("{} chunks", geometry.chunks()));

        // What is durable of superblock and checkpoint can be read as it was left. So a device that holds something else, or
        // a drive that cannot be trusted, is refused before anything is written.
        let mut found = find_superblock(media, &mut *steps.clock, &mut scan, &chunks)?;
        let mut superblock = found.superblock.clone();
        trust(&superblock, &geometry)?;
        config.capacity_blocks = superblock.capacity_blocks;
        config.over_provisioning = superblock.over_provisioning;
        expect_kind(&config, &superblock)?;
        (config.catalog_blocks, config.tenant) = (superblock.catalog_blocks, superblock.tenant);
        config.drive_id = superblock.drive;
        config.has_copies = superblock.copies;
        if !config.has_copies {
            config.relocate_by = RelocateBy::ReadAndWrite;
        }
        scan.seals.begin(superblock.drive, superblock.sequence, superblock.copies);
        config.take_over(superblock.sizing);
        config.map_memory = map_memory(&config, &superblock)?;
        let plan = plan_for(&chunks, &config, &superblock)?;
        steps.end(scan.blocks_read, format!("superblock {}", superblock.sequence));

        let (mut map, mut table) = (new_map(&config, &geometry)?, ChunkTable::new(&geometry));
        let maps = (&mut map, &mut table);
        let mut checkpoint =
            FoundCheckpoint::read(media, &mut *steps.clock, &mut scan, &chunks, &superblock, access, maps)?;
        let mut sound = checkpoint.expect_whole(&superblock);
        if access != Access::Repair {
            sound = Ok(sound?);
        }
        steps.end(scan.blocks_read, format!("checkpoint {}", superblock.checkpoint.sequence));

        let may_pad = access != Access::Inspect || media.forgets_writes();
        let is_left = !may_pad || (superblock.clean && config.tenant.goes_on_in_order());
        let settled = if is_left { 0 } else { settle(media, &mut *steps.clock, &mut scan, &mut chunks) };
        if settled > 0 {
            // A superblock that was on its way may have become readable. It is true, and its sequence must not be used again.
            let newest = find_superblock(media, &mut *steps.clock, &mut scan, &chunks)?;
            if newest.superblock.sequence != superblock.sequence {
                trust(&newest.superblock, &geometry)?;
                found = newest;
                superblock = found.superblock.clone();
                scan.seals.begin(superblock.drive, superblock.sequence, superblock.copies);
                (map, table) = (new_map(&config, &geometry)?, ChunkTable::new(&geometry));
                let maps = (&mut map, &mut table);
                checkpoint =
                    FoundCheckpoint::read(media, &mut *steps.clock, &mut scan, &chunks, &superblock, access, maps)?;
                sound = checkpoint.expect_whole(&superblock);
            }
        }
        steps.end(scan.blocks_read, format!("{settled} blocks of padding"));

        let is_settled = may_pad || geometry.mw_cunits == 0;
        let is_over = superblock.clean && !found.in_doubt;
        let log = FoundLog::read(media, &mut *steps.clock, &mut scan, &chunks, &superblock, (is_settled, is_over));
        sound = sound.and_then(|()| log.expect_whole());
        if found.in_doubt && sound.is_ok() {
            sound = newer_log(media, &mut *steps.clock, &mut scan, &chunks, &superblock, &log);
        }
        steps.report.clean = superblock.clean && log.is_empty();
        steps.end(scan.blocks_read, format!("{} blocks from LSN {}", log.blocks(), superblock.first_lsn));

        checkpoint.load_seals(&map, &mut scan.seals);
        let mut replayed = sound.and_then(|()| log.replay(&superblock, &geometry, (&mut map, &mut scan.seals)));
        scan.seals.end_loading();
        let (mut left_in_doubt, mut left_in_area) = (FxHashSet::default(), Vec::new());
        let mut left_on_media = LeftOnMedia::default();
        if let Ok(replayed) = &mut replayed {
            (steps.report.replayed, steps.report.dropped) = (replayed.records, replayed.dropped);
            left_in_doubt = std::mem::take(&mut replayed.left_in_doubt);
            left_in_area = std::mem::take(&mut replayed.left_in_area);
            left_on_media = std::mem::take(&mut replayed.left_on_media);
        }
        steps.report.beyond_end = log.beyond_end() as u64;
        let (records, dropped) = (steps.report.replayed, steps.report.dropped);
        steps.end(scan.blocks_read, format!("{records} records, {dropped} of cut-off transactions dropped"));

        let mut highest = Highest::default();
        if !is_settled
            && !steps.report.clean
            && let Map::Whole(mapping) = &mut map
        {
            forget_impossible(&chunks, &superblock, mapping);
        }
        let mut pages = FoundPages::default();
        let mapped = match replayed.and_then(|_| {
            let mapped = match &mut map {
                Map::Whole(mapping) => mark_valid(&chunks, mapping, &mut table)?,
                Map::Paged(map) => {
                    let forgiven = (!is_settled && !steps.report.clean).then_some(&superblock);
                    let to_mark = (&mut **map, &mut table);
                    let left = (&left_on_media, &mut left_in_doubt);
                    pages = mark_paged(media, &mut *steps.clock, &mut scan, &chunks, to_mark, access, forgiven, left)?;
                    pages.mapped
                }
            };
            expect_apart(&superblock, geometry.format(), &table)?;
            Ok(mapped)
        }) {
            Err(damage) if access == Access::Repair => {
                let left = (&checkpoint, &log);
                let clock = &mut *steps.clock;
                let (report, on_media) = match &mut map {
                    Map::Whole(mapping) => {
                        repair::rebuild(media, clock, &mut scan, &chunks, &superblock, left, &damage, mapping)
                    }
                    Map::Paged(map) => map_pages::rebuild(media, clock, &mut scan, &chunks, &superblock, &damage, map)?,
                };
                steps.report.repair = Some(report);
                highest = on_media;
                // Whatever a lost superblock called itself is not used again.
                superblock.sequence += SUPERBLOCKS_SKIPPED;
                scan.seals.begin_numbers(superblock.sequence);
                table.forget_valid();
                let (mapped, of_map) = match &mut map {
                    Map::Whole(mapping) => (mark_valid(&chunks, mapping, &mut table)?, FxHashSet::default()),
                    Map::Paged(map) => {
                        let to_mark = (&mut **map, &mut table);
                        let left = (&LeftOnMedia::default(), &mut left_in_doubt);
                        pages = mark_paged(media, &mut *steps.clock, &mut scan, &chunks, to_mark, access, None, left)?;
                        (pages.mapped, map_pages::chunks_of(map, &chunks))
                    }
                };
                // An older superblock may name chunks that have been put to another use since.
                superblock.forget_chunks(|chunk| {
                    let is_unused = matches!(chunks.state(chunk), ChunkState::Free | ChunkState::Offline);
                    is_unused || table.valid(chunk) > 0 || of_map.contains(&chunk)
                });
                mapped
            }
            mapped => mapped?,
        };
        let is_good =
            |chunk: ChunkId| !checkpoint.retired.contains(&chunk) && chunks.state(chunk) != ChunkState::Offline;
        let good = geometry.chunk_ids().filter(|chunk| is_good(*chunk)).count() as u64;
        let gap = log.gap(geometry.ws_min);
        let clean = steps.report.clean && steps.report.repair.is_none();
        // No number of a gap that is known is used again.
        let known = superblock.log_gaps.last().map_or(0, |gap| gap.next);
        let is_reused = clean || config.bugs().has(Canary::ReusedNumber);
        let next_lsn = if is_reused { gap.end } else { gap.next.max(highest.lsn + 1).max(known) };
        let skipped = if clean { 0 } else { POSITIONS_SKIPPED };
        let position = (superblock.position + steps.report.replayed).max(highest.sequence + 1) + skipped;
        if access != Access::Inspect {
            close_all_but_last(media, &mut *steps.clock, &mut scan, &mut chunks, &superblock);
            let is_of_tenant = |chunk: ChunkId| config.catalog_blocks > 0 && table.valid(chunk) == 0;
            close_beyond_plan(media, &mut *steps.clock, &mut scan, &mut chunks, &superblock, &plan, is_of_tenant);
        }
        let superblocks = superblock_places(media, &mut *steps.clock, &mut scan, &mut chunks, &superblock, access);
        steps.report.single_copies = single_copies(&superblock, found.copies, &checkpoint, &log, &chunks);
        steps.report.single_copies.extend(pages.single_copies(&geometry.format()));
        let mend = log.to_write_again(superblock.drive, geometry.ws_min);
        let gap = (!clean).then_some(gap);
        let origin = Origin { config, plan, superblock, map, chunks: table, seals: scan.seals, good, next_lsn };
        let read = scan.blocks_read;
        let found = Found {
            chunks,
            checkpoint,
            log,
            superblocks,
            pages,
            mapped,
            read,
            position,
            next_lsn,
            left_in_doubt,
            left_in_area,
            gap,
            mend,
        };
        Ok((origin, found))
    }
}

impl<M: Media> BlockFtl<M> {
    /// Opens a drive that was formatted before, whatever happened to it since.
    ///
    /// # Errors
    /// If no consistent state can be reached; nothing was written then.
    pub fn open(media: M, config: Config, clock: &mut dyn Clock) -> Result<BlockFtl<M>, OpenError> {
        BlockFtl::open_with(media, config, Access::ReadWrite, clock)
    }

    /// Opens a drive with the access that is wanted.
    ///
    /// # Errors
    /// If no consistent state can be reached; nothing was written then.
    pub fn open_with(
        media: M,
        config: Config,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<BlockFtl<M>, OpenError> {
        expect_blocks_alone(&config)?;
        BlockFtl::open_beside(media, config, access, clock, &mut Nobody, |_, _, _| Ok(()))
    }

    /// Opens a drive of which `tenant` has chunks, too. Once the area can be read `find` takes over what it says of them: when the drive
    /// works, or before it takes any chunk, where room is short and that is to come from what `find` leaves.
    ///
    /// # Errors
    /// If no consistent state can be reached, or `find` says so.
    pub fn open_beside<T: Tenant>(
        mut media: M,
        config: Config,
        access: Access,
        clock: &mut dyn Clock,
        tenant: &mut T,
        find: impl FnOnce(&mut BlockFtl, &mut T, &mut dyn Clock) -> Result<(), OpenError>,
    ) -> Result<BlockFtl<M>, OpenError> {
        let mut steps = Steps::new(clock);
        let (origin, found) = Found::read(&mut media, config, access, &mut steps)?;
        tenant.find_drive(media.geometry(), &origin.config)?;
        let now = steps.clock.now();
        let mut ftl = BlockFtl::assemble(media, origin, now, tenant);
        if access != Access::Inspect {
            ftl.flash.life.opened += 1;
            ftl.flash.life.not_closed += u64::from(!steps.report.clean);
        }
        ftl.go_on(found, access, steps, tenant, find)?;
        Ok(ftl)
    }
}

impl BlockFtl {
    /// Goes on from what was found.
    fn go_on<T: Tenant>(
        &mut self,
        found: Found,
        access: Access,
        mut steps: Steps<'_>,
        tenant: &mut T,
        find: impl FnOnce(&mut BlockFtl, &mut T, &mut dyn Clock) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let mut find = Some(find);
        let Found {
            chunks,
            checkpoint,
            log,
            superblocks,
            pages,
            mapped,
            read,
            position,
            next_lsn,
            left_in_doubt,
            left_in_area,
            gap,
            mend,
        } = found;
        let is_mendable = mend.len() <= Log::mendable();
        let is_mended = !self.flash.bugs.has(Canary::UnmendedCopy);
        self.buffer = WriteBuffer::new(self.flash.frames.len(), self.placement.classes(), position);
        if access == Access::Inspect {
            self.flash.read_only = Some(ReadOnlyReason::Inspection);
        }
        // The area before may name any chunk of the tenant.
        self.flash.resets.keep_in_doubt(left_in_doubt, !left_in_area.is_empty());
        self.left_in_area = left_in_area;
        self.journal.superblock.put_in_place(&mut self.flash, superblocks);
        self.adopt_metadata(&chunks, &log);
        self.adopt_map_chunks(&chunks, access)?;
        pages.lacking.iter().for_each(|ppa| self.move_map_pages_of(self.flash.format.chunk_of(*ppa)));
        for chunk in checkpoint.retired {
            self.flash.chunks.set_usage(chunk, ChunkUse::Retired);
        }
        self.sort_chunks(tenant, &chunks, checkpoint.suspects.into_iter().chain(log.suspects()).collect());
        self.flash.chunks.set_written(position);
        steps.end(read, format!("{mapped} blocks mapped"));

        if access == Access::Inspect {
            self.recovery = steps.report;
            return find.map_or(Ok(()), |find| find(self, tenant, steps.clock));
        }
        self.recovery.clean = steps.report.clean;
        self.journal.superblock.current_mut().clean = false;
        self.flash.turn_read_only_if_worn_out(&self.journal.superblock);
        // What was found may be the word of a superblock that can be read this time only. So another says the same first:
        // until then nothing is reset. On a drive whose places for superblocks have gone bad nothing ever is.
        let (is_worn_out, is_repaired) = (self.flash.read_only.is_some(), steps.report.repair.is_some());
        if log.is_in_doubt() {
            self.journal.log.doubt(log.durable_below());
        }
        if !is_worn_out || (self.journal.superblock.can_go_on() && !is_repaired) {
            // Also ahead of a checkpoint: the log may want a chunk meanwhile, and the superblock that names it names the gap.
            let is_skipped = !is_repaired && self.skip(gap);
            let is_replaced = !is_worn_out && (!is_skipped || !is_mendable || self.journal.log.is_long(&self.flash));
            // What a tenant gives back is room, and a recovery that is cut off leaves less of it.
            // A repair is asked for by people, and a tenant may have to write before it can give back anything.
            let is_found_first = tenant.has_found() && self.is_short_of_chunks() && access != Access::Repair;
            if let Some(find) = find.take_if(|_| is_found_first) {
                let superblock = self.journal.request_superblock(&mut self.flash);
                self.run(steps.clock, tenant, |ftl| {
                    ftl.journal.superblock.durable() >= superblock || !ftl.flash.may_program()
                })?;
                find(self, tenant, steps.clock)?;
                tenant.release_found(&mut self.flash);
            }
            // A worn-out drive takes no chunk for it.
            if !is_replaced && is_mendable && (!is_worn_out || self.has_room_to_mend(&mend)) {
                self.journal.log.trust();
                mend.iter().filter(|_| is_mended).for_each(|unit| self.journal.log.mend(&mut self.flash.frames, unit));
            }
            if is_repaired {
                // The superblock of the checkpoint says it.
                self.journal.superblock.current_mut().tenant.more |= tenant.note_of_repair();
                self.journal.superblock.confirm();
            } else if find.is_none() {
                let superblock = self.journal.superblock.durable();
                self.run(steps.clock, tenant, |ftl| ftl.is_opened(superblock))?;
            } else {
                let superblock = self.journal.request_superblock(&mut self.flash);
                self.run(steps.clock, tenant, |ftl| ftl.is_opened(superblock))?;
            }
            if is_replaced {
                self.journal.begin_checkpoint(&mut self.flash, self.buffer.committed());
                self.run(steps.clock, tenant, |ftl| !ftl.journal.checkpoint.is_working() || !ftl.flash.may_program())?;
                let blocks = self.journal.superblock.current().checkpoint.blocks;
                steps.end(read, format!("checkpoint of {blocks} blocks"));
            } else {
                let superblock = self.journal.superblock.durable();
                steps.end(read, format!("superblock {superblock}, the log goes on at LSN {next_lsn}"));
            }
        }
        (self.flash.phase, self.flash.stirred) = (Phase::Working, true);
        // Only now: the programs would hold up the recovery's own.
        self.recycle_left_open();
        let is_single = checkpoint.lacking != [0; METADATA_COPIES];
        if is_single && steps.report.repair.is_none() {
            self.journal.begin_checkpoint(&mut self.flash, self.buffer.committed());
        }
        self.forget_notifications();
        // A tenant may have been found already.
        steps.report.doubt = self.recovery.doubt.take();
        self.recovery = steps.report;
        if self.config.catalog_blocks == 0 {
            self.note_missing_room(tenant);
        }
        self.reset_statistics();
        find.map_or(Ok(()), |find| find(self, tenant, steps.clock))
    }

    /// Has the next superblock say what of the log does not count, if anything. Returns false if it can name no more. Right
    /// behind a gap that gap grows, so recoveries cut short use up none.
    fn skip(&mut self, gap: Option<LogGap>) -> bool {
        let superblock = self.journal.superblock.current_mut();
        let Some(gap) = gap else { return true };
        if self.flash.bugs.has(Canary::UnrecordedGap) {
            return true;
        }
        if superblock.skip_log(gap).is_none() {
            return false;
        }
        superblock.position += POSITIONS_SKIPPED;
        true
    }

    /// Whether `superblock` is on media and the log is mended, or as much of it as there is room for.
    fn is_opened(&self, superblock: u64) -> bool {
        let is_at_rest = self.flash.under_way == 0 && self.flash.is_handed_over();
        !self.flash.may_program()
            || (self.journal.superblock.durable() >= superblock && (self.journal.log.is_idle() || is_at_rest))
    }

    /// Whether the open chunks of the log have room for what their copies lack.
    fn has_room_to_mend(&self, mend: &[MendedUnit]) -> bool {
        self.journal.log.copies.iter().enumerate().all(|(copy, lane)| {
            let lacking = mend.iter().filter(|unit| unit.copies[copy]).count() as u32;
            lane.open.map_or(0, |open| self.flash.units.room(open)) >= lacking * self.flash.geometry.ws_min
        })
    }
}

/// Whether a superblock that verifies can be true of this device.
fn trust(superblock: &Superblock, geometry: &Geometry) -> Result<(), OpenError> {
    let found = Superblock::geometry_of(geometry);
    if superblock.geometry != found {
        return Err(OpenError::OtherGeometry { formatted: superblock.geometry, found });
    }
    Ok(superblock.validate(geometry)?)
}

/// The plan of a drive that is opened with `config`.
///
/// # Errors
/// If it needs more chunks than the drive was formatted with, and these are not there.
fn plan_for(chunks: &Chunks, config: &Config, superblock: &Superblock) -> Result<Plan, OpenError> {
    let plan = Plan::new(&chunks.geometry, config)?;
    let formatted = Plan::new(&chunks.geometry, &config.sized(superblock.sizing))?;
    let all = chunks.all().filter(|chunk| chunk.state != ChunkState::Offline).count() as u64;
    // Tables were promised all that the plan left them.
    let good = if config.catalog_blocks > 0 { formatted.chunks() } else { all };
    if plan.chunks() > formatted.chunks() && plan.chunks() > good {
        let (asked, known) = (config.sizing(), superblock.sizing);
        let log = |sizing: Sizing| sizing.checkpoint_log_blocks.map_or("none".to_owned(), |blocks| blocks.to_string());
        let (field, asked, known) = match () {
            () if asked.checkpoint_log_blocks != known.checkpoint_log_blocks => {
                ("checkpoint_log_blocks", log(asked), log(known))
            }
            () if asked.placement != known.placement => {
                ("placement", asked.placement.to_string(), known.placement.to_string())
            }
            () if asked.handles != known.handles => ("handles", asked.handles.to_string(), known.handles.to_string()),
            () => ("objects_max", asked.objects_max.to_string(), known.objects_max.to_string()),
        };
        return Err(OpenError::OtherSize { field, asked, formatted: known, needed: plan.chunks(), good });
    }
    Ok(plan.at_least(&formatted))
}

/// Whether the drive was formatted for the FTL that is to open it.
fn expect_kind(config: &Config, superblock: &Superblock) -> Result<(), OpenError> {
    let found = DriveKind::of(superblock.catalog_blocks, superblock.tenant);
    let wanted = DriveKind::of(config.catalog_blocks, config.tenant);
    if found != wanted && !(found.has_zones() && wanted.has_zones()) {
        return Err(OpenError::OtherKind { found: found.word(), wanted: wanted.word() });
    }
    Ok(())
}

/// Which FTL the drive on a device was formatted for: its superblock is read, and nothing else.
///
/// # Errors
/// If there is no drive, or it cannot be one of this device.
pub fn kind_on(media: &mut dyn Media, clock: &mut dyn Clock) -> Result<DriveKind, OpenError> {
    let chunks = Chunks::report(media, clock.now())?;
    let mut scan = Scan::new(&chunks.geometry);
    let found = find_superblock(media, clock, &mut scan, &chunks)?;
    trust(&found.superblock, &chunks.geometry)?;
    Ok(DriveKind::of(found.superblock.catalog_blocks, found.superblock.tenant))
}

/// What is there only once and should be there twice.
fn single_copies(
    superblock: &Superblock,
    places: usize,
    checkpoint: &FoundCheckpoint,
    log: &FoundLog,
    chunks: &Chunks,
) -> Vec<String> {
    let mut single = Vec::new();
    // A crash may leave it so; after a clean stop it is a loss.
    if superblock.clean && places < superblock.places.chunks(2).filter(|pair| pair[0] != u32::MAX).count() {
        single.push(format!("superblock {} is in one place", superblock.sequence));
    }
    for (copy, lacking) in checkpoint.lacking.iter().enumerate().filter(|(_, lacking)| **lacking > 0) {
        let CheckpointPlace { sequence, blocks, .. } = &superblock.checkpoint;
        single.push(format!("checkpoint {sequence}: copy {copy} lacks {lacking} of {blocks} blocks"));
    }
    for (copy, lacking) in log.lacking().iter().enumerate() {
        let promised = lacking.iter().filter(|(lsn, _)| *lsn < log.durable_below());
        let count = promised.clone().count();
        // Who only looks cannot read the last blocks of an open chunk (MW_CUNITS), and they may be there.
        let open = superblock.log_chunks[copy].iter().filter_map(|chunk| chunks.get(ChunkId(*chunk)));
        let open = open.filter(|chunk| chunk.state == ChunkState::Open);
        let unreadable: u32 = open.map(|chunk| chunk.write_pointer - chunks.readable(chunk.chunk)).sum();
        if let Some((first, _)) = promised.clone().next()
            && count > unreadable as usize
        {
            single.push(format!("log: copy {copy} lacks {count} blocks (the first is {first})"));
        }
    }
    single
}

/// Forgets what is no more where the map says. While the last blocks of the log cannot be read, the map is older than the
/// chunks: what has moved since may have left a chunk that is free by now, or put to another use. Who only looks at the drive sees it as lost.
fn forget_impossible(chunks: &Chunks, superblock: &Superblock, mapping: &mut Mapping) {
    let format = chunks.geometry.format();
    let named: FxHashSet<ChunkId> = superblock.chunks().chain(superblock.places.map(ChunkId)).collect();
    for block in 0..mapping.len() {
        if let Place::Media(ppa) = mapping.get(block).place()
            && (format.block_of(ppa) >= written(chunks, format.chunk_of(ppa)) || named.contains(&format.chunk_of(ppa)))
        {
            mapping.set(block, Entry::LOST);
        }
    }
}

/// Blocks of `chunk` that a map may point at.
fn written(chunks: &Chunks, chunk: ChunkId) -> u32 {
    match chunks.get(chunk) {
        None => 0,
        // What it held is lost; which blocks that were is all that is left.
        Some(descriptor) if descriptor.state == ChunkState::Offline => chunks.geometry.blocks_per_chunk,
        Some(descriptor) if descriptor.state == ChunkState::Free => 0,
        Some(descriptor) => descriptor.write_pointer,
    }
}

/// The memory for the map of a drive that was formatted with map pages: as it is asked for, or as it was then.
///
/// # Errors
/// If it was not.
fn map_memory(config: &Config, superblock: &Superblock) -> Result<Option<MapMemory>, OpenError> {
    match (config.map_memory, superblock.map) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(OpenError::WholeMap),
        (asked, Some(MapOnMedia { page_entries, memory_bytes, cache })) => {
            let formatted = MapMemory { budget: MapBudget::Bytes(memory_bytes), policy: cache, page: page_entries };
            Ok(Some(MapMemory { page: page_entries, ..asked.unwrap_or(formatted) }))
        }
    }
}

/// Marks valid what the map points at. Returns how many blocks are mapped.
///
/// # Errors
/// If a block cannot be where the map says.
fn mark_valid(chunks: &Chunks, mapping: &Mapping, table: &mut ChunkTable) -> Result<u64, OpenError> {
    let format = chunks.geometry.format();
    let written: Vec<u32> = (0..format.chunk_ids() as u32).map(|chunk| written(chunks, ChunkId(chunk))).collect();
    let on_media = |entry: Entry| if let Place::Media(ppa) = entry.place() { Some(ppa) } else { None };
    let mapped = table.load_valid(mapping.entries().map(on_media), &written);
    mapped.or_else(|block| {
        // Which of the two is wrong is said in one place.
        let block = block as u64;
        let ppa = on_media(mapping.get(block)).expect("what is nowhere is not marked");
        mark_one(chunks, table, block, ppa)?;
        unreachable!("block {block} at {ppa:?} can be marked after all")
    })
}

/// Marks valid that `block` is at `ppa`.
fn mark_one(chunks: &Chunks, table: &mut ChunkTable, block: u64, ppa: Ppa) -> Result<(), OpenError> {
    let format = chunks.geometry.format();
    if ppa.0 >> format.bits() != 0 {
        let place = ppa.0;
        return Err(OpenError::Inconsistent(format!(
            "logical block {block} is mapped to {place:#x}, and no address of the device is so long"
        )));
    }
    let written = written(chunks, format.chunk_of(ppa));
    let address = format.unpack(ppa);
    if format.block_of(ppa) >= written {
        return Err(OpenError::Inconsistent(format!(
            "logical block {block} is mapped to {address}, and only {written} blocks of that chunk are written"
        )));
    }
    if table.is_valid(ppa) {
        return Err(OpenError::Inconsistent(format!("two logical blocks are mapped to {address}; one is {block}")));
    }
    table.set_valid(ppa);
    Ok(())
}

/// Whether no data are where the superblock has its own.
fn expect_apart(superblock: &Superblock, format: AddressFormat, table: &ChunkTable) -> Result<(), OpenError> {
    // Data there would be reset with the metadata.
    let places = superblock.places.iter().copied().filter(|chunk| *chunk != u32::MAX).map(ChunkId);
    if let Some(chunk) = superblock.chunks().chain(places).find(|chunk| table.valid(*chunk) > 0) {
        let (blocks, address) = (table.valid(chunk), format.unpack_chunk(chunk));
        return Err(OpenError::Inconsistent(format!(
            "{blocks} logical blocks are mapped to the chunk of {address}, which is for log, checkpoints or superblocks"
        )));
    }
    Ok(())
}
