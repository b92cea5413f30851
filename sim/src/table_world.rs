//! A table drive under test: tables beside the log area, which is a [`World`] of its own.
//!
//! ```text
//!   model:   [ block 0 | block 1 | … | entry 0 | entry 1 | … ]      one history, so that both are one prefix
//!              log area                catalog, by number
//! ```
//!
//! Each table that is begun has a serial, from 1 on, and each of its blocks says that serial and its place. A note
//! says which change it is of, and the serial and the length of the table. So what is found after a power cut tells of
//! itself, and a mix-up of tables, of their blocks or of their notes is seen.

use crate::block_contents::{head_of, holds};
use crate::drive::TABLE_TAG;
use crate::fate::States;
use crate::fault::Fault;
use crate::history::{Change, Found, History};
use crate::liveness;
use crate::played::Played;
use crate::rig::Rig;
use crate::stage::Stage;
use crate::step::{Moment, Step};
use crate::table_contents::{note, words};
use crate::table_requests::Errand;
use crate::wire::{CrashPoint, Wire};
use crate::world::{Judgeable, World};
use openftl_core::units::Share;
use openftl_core::{Frame, FrameForm, Nanos, TraceHash};
use openftl_media::{Profile, Store};
use openftl_parts::{Config, IoError, OpenError, Target, chunks_per_pu};
use openftl_tables::{FoundEntry, TableDone, TableError, TableFtl, TableId};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Blocks that are read at a time where all of a table is.
const READ_BLOCKS: u32 = 64;

/// What a host may do with a table now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Writing,
    /// It was ended, and is not in the catalog yet.
    Ended,
    Committed,
    /// It is deleted, and still pinned.
    Deleted,
}

/// A table that can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub id: TableId,
    pub serial: u32,
    pub blocks: u32,
    pub pins: u32,
    pub state: State,
}

/// The production FTL, on a wire that can be cut.
type Tables = TableFtl<Wire>;

/// All that takes part in a run with a table drive. It is a world too: that of the log area.
pub struct TableWorld {
    pub(crate) world: World<Tables>,
    pub(crate) tables: Vec<Table>,
    /// Entries without a table, by number.
    pub(crate) files: Vec<u64>,
    pub(crate) under_way: Vec<(u64, Errand)>,
    pub(crate) serials: u32,
    pub(crate) tags: u64,
}

impl Deref for TableWorld {
    type Target = World<Tables>;

    fn deref(&self) -> &World<Tables> {
        &self.world
    }
}

impl DerefMut for TableWorld {
    fn deref_mut(&mut self) -> &mut World<Tables> {
        &mut self.world
    }
}

/// Chunks of each parallel unit of a device that holds the drive of `config`, its catalog, and tables of so many chunks there.
///
/// # Errors
/// If there can be no such drive.
///
/// # Panics
/// If the profile is impossible.
pub fn table_chunks_per_pu(
    profile: &Profile,
    config: &Config,
    spare: Share,
    for_tables: u32,
) -> Result<u32, OpenError> {
    let shape = profile.geometry(profile.chunks_per_pu).expect("a possible profile");
    // The catalog grows with the device, and the device with the catalog.
    let mut chunks = 1;
    loop {
        let catalog = openftl_tables::catalog_blocks(&profile.geometry(chunks).expect("a possible profile"));
        let capacity_blocks = config.capacity_blocks + u64::from(catalog);
        let needed = chunks_per_pu(&shape, &Config { capacity_blocks, ..config.clone() }, spare)? + for_tables;
        if needed <= chunks {
            return Ok(chunks);
        }
        chunks = needed;
    }
}

impl TableWorld {
    /// A new drive whose log area has the capacity of `config`, with so many chunks for tables in each parallel unit.
    ///
    /// # Errors
    /// If there can be no such drive.
    pub fn try_new(
        profile: Profile,
        config: Config,
        spare: u32,
        for_tables: u32,
        seed: u64,
    ) -> Result<TableWorld, OpenError> {
        let config = Config { payload: FrameForm::Bytes, ..config };
        let chunks = table_chunks_per_pu(&profile, &config, Share::percent(spare), for_tables)?;
        Ok(TableWorld::of(World::with_store(profile, config, Store::Stamps, chunks, seed)?))
    }

    /// The same of one that must be possible.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn new(profile: Profile, config: Config, for_tables: u32, seed: u64) -> TableWorld {
        TableWorld::try_new(profile, config, 20, for_tables, seed).unwrap_or_else(|error| panic!("{error}"))
    }

    fn of(world: World<Tables>) -> TableWorld {
        TableWorld { world, tables: Vec::new(), files: Vec::new(), under_way: Vec::new(), serials: 0, tags: TABLE_TAG }
    }

    /// Serials of the tables that are being written.
    #[must_use]
    pub fn being_written(&self) -> Vec<u32> {
        self.serials_of(|table| table.state == State::Writing)
    }

    /// Serials of the tables that are in the catalog.
    #[must_use]
    pub fn committed(&self) -> Vec<u32> {
        self.serials_of(|table| table.state == State::Committed)
    }

    /// Serials of the tables that can be read.
    #[must_use]
    pub fn readable(&self) -> Vec<u32> {
        self.serials_of(|_| true)
    }

    /// Serials of the tables that are pinned.
    #[must_use]
    pub fn pinned(&self) -> Vec<u32> {
        self.serials_of(|table| table.pins > 0)
    }

    /// Numbers of entries without a table.
    #[must_use]
    pub fn files(&self) -> &[u64] {
        &self.files
    }

    fn serials_of(&self, is: impl Fn(&Table) -> bool) -> Vec<u32> {
        self.tables.iter().filter(|table| is(table)).map(|table| table.serial).collect()
    }

    pub(crate) fn table(&mut self, serial: u32) -> &mut Table {
        self.tables.iter_mut().find(|table| table.serial == serial).expect("a table that is there")
    }

    /// What the drive calls a table.
    pub fn id(&mut self, serial: u32) -> TableId {
        self.table(serial).id
    }

    /// Blocks of a table so far.
    pub fn blocks_of(&mut self, serial: u32) -> u32 {
        self.table(serial).blocks
    }

    /// The block of the model that stands for an entry.
    pub(crate) fn entry(&mut self, number: u64) -> u64 {
        let block = self.world.blocks() + number;
        self.world.model().grow(block + 1);
        block
    }

    pub(crate) fn tag(&mut self) -> u64 {
        self.tags += 1;
        self.tags
    }

    /// Books the requests for tables that have ended.
    pub(crate) fn book(&mut self) {
        self.world.collect_crash_points();
        let ended = std::mem::take(&mut self.world.others);
        for ended in ended {
            self.world.add_to_trace([ended.tag, ended.at.0, u64::from(ended.result.is_ok())]);
            let index = self.under_way.iter().position(|(tag, _)| *tag == ended.tag).expect("a request under way");
            let (_, errand) = self.under_way.swap_remove(index);
            self.end(errand, ended);
        }
        self.world.wire.look();
        self.world.collect_crash_points();
    }

    fn end(&mut self, errand: Errand, TableDone { result, .. }: TableDone) {
        match (errand, result) {
            (Errand::Commit { serial, change }, Ok(())) => {
                self.world.model().complete(change, false);
                self.table(serial).state = State::Committed;
            }
            (Errand::Commit { serial, change }, Err(error)) => {
                match error {
                    TableError::NoSpace | TableError::CatalogFull => self.world.model().refuse(change),
                    error => {
                        self.expect_worn_out(error);
                        self.world.model().fail(change);
                    }
                }
                self.tables.retain(|table| table.serial != serial);
            }
            (Errand::Change { change }, Ok(())) => self.world.model().complete(change, false),
            (Errand::Change { change }, Err(error)) => {
                self.expect_worn_out(error);
                self.world.model().fail(change);
            }
            (Errand::Read { serial, first, frames }, result) => self.compare(serial, first, frames, result),
        }
    }

    /// Something may be refused only because the drive is worn out.
    pub(crate) fn expect_worn_out(&mut self, error: TableError) {
        let is_read_only = matches!(error, TableError::ReadOnly(_) | TableError::Io(IoError::ReadOnly));
        let may = self.world.may_wear_out && is_read_only && self.world.is_worn_out();
        assert!(may, "{error}: {:?}", self.ftl().block().read_only_reason());
    }

    fn compare(&mut self, serial: u32, first: u32, frames: Vec<Frame>, result: Result<(), TableError>) {
        let history = self.world.history.clone();
        let pool = self.ftl().frames_mut();
        let failed = match result {
            Ok(()) => None,
            Err(TableError::Io(error)) => Some(error.block().expect("a read says which block it could not read")),
            Err(error) => panic!("a read of table {serial} ended with: {error}"),
        };
        if let Some(block) = failed {
            let is_in_range = (first..first + frames.len() as u32).contains(&(block as u32));
            let may_be = is_in_range && history.may_be_lost_of_table(serial, block as u32);
            assert!(may_be, "block {block} of table {serial} is lost, and was not damaged: {result:?}");
        }
        for (block, frame) in (first..).zip(frames) {
            if failed.is_none() {
                let payload = pool.payload(frame);
                let (head, expected) = (head_of(payload), words(serial, block));
                assert!(holds(pool.bytes(frame), expected), "block {block} of table {serial} holds {head:#018x}");
            }
            pool.release(frame);
        }
    }

    /// Makes everything durable.
    pub fn flush(&mut self) {
        self.settle();
        self.world.submit_flush();
        self.settle();
        // What was deleted is released, and its chunks are reset.
        self.idle(Nanos::from_millis(50));
    }

    /// Reads every table, wherever it is.
    pub fn verify_tables(&mut self) {
        self.settle();
        for serial in self.readable() {
            self.read_table(serial);
        }
        self.settle();
    }

    fn read_table(&mut self, serial: u32) {
        let blocks = self.blocks_of(serial);
        for first in (0..blocks).step_by(READ_BLOCKS as usize) {
            let count = (blocks - first).min(READ_BLOCKS);
            let may_be_lost = |block| self.history.may_be_lost_of_table(serial, block);
            if (first..first + count).any(may_be_lost) {
                // One by one: each that is not damaged is good.
                (first..first + count).for_each(|block| self.read(serial, block, 1));
            } else {
                self.read(serial, first, count);
            }
            self.settle();
        }
    }

    /// Takes over what was in the catalog when the drive was opened; gives what is noted of each entry.
    fn adopt_entries(&mut self) -> Vec<(u64, Change)> {
        let entries = self.ftl().take_found();
        let mut changes = Vec::new();
        (self.tables, self.files) = (Vec::new(), Vec::new());
        for FoundEntry { number, note: noted, table } in entries {
            let word = |index: usize| {
                let bytes = noted
                    .get(4 * index..4 * index + 4)
                    .unwrap_or_else(|| panic!("a note of entry {number} is {noted:?}"));
                u32::from_le_bytes(bytes.try_into().expect("four bytes"))
            };
            let (change, serial, blocks) = (word(0), word(1), word(2));
            assert_eq!(noted, note(change, serial, blocks, noted.len()), "the note of entry {number} is whole");
            assert_eq!(table.map_or(0, |(_, blocks)| blocks), blocks, "entry {number} has the table that was noted");
            match table {
                Some((id, blocks)) => {
                    assert_eq!(id.number(), number, "the table is that of its entry");
                    self.tables.push(Table { id, serial, blocks, pins: 0, state: State::Committed });
                }
                None => self.files.push(number),
            }
            changes.push((number, change));
        }
        changes
    }

    /// Cuts the power, whatever is under way; see [`World::power_cut`].
    pub fn power_cut(&mut self, torn: bool) {
        self.world.power_cut(torn);
        self.forget_requests();
    }

    /// A block of a table may be an error from now on.
    pub fn lose_of_table(&mut self, serial: u32, block: u32) {
        self.world.model().damage_table(serial, block);
    }
}

impl Played for TableWorld {
    type Ftl = Tables;

    fn rig(&self) -> &Rig<Tables> {
        self.world.rig()
    }

    fn rig_mut(&mut self) -> &mut Rig<Tables> {
        self.world.rig_mut()
    }

    fn request(&mut self, step: &Step) {
        if let Step::Write(range, _) | Step::WriteUncorrectable(range, _) | Step::Read(range) = step {
            // Reads of tables may have them.
            for frame in self.frames(range.blocks) {
                self.ftl().frames_mut().release(frame);
            }
        }
        match step {
            Step::Table(deed) => self.perform(*deed),
            step => self.world.request(step),
        }
    }

    fn take(&mut self, done: Vec<TableDone>) {
        self.world.take(done);
        self.book();
    }

    fn requests_under_way(&self) -> usize {
        self.world.requests_under_way() + self.under_way.len()
    }

    fn forget_requests(&mut self) {
        self.world.forget_requests();
        self.under_way.clear();
        self.tables.clear();
        self.files.clear();
    }

    fn inject(&mut self, fault: Fault) -> bool {
        self.world.inject(fault)
    }

    fn judge(&mut self) -> Result<(), String> {
        let found = self.read_all();
        self.history.verdict(&found)?;
        self.world.adopt(&found);
        Ok(())
    }

    /// Everything that was committed is there, and nothing else.
    fn clean_restart(&mut self) {
        self.settle();
        let is_clean = self.world.close_and_open();
        self.forget_requests();
        if !is_clean {
            if let Err(contradiction) = self.recover() {
                panic!("{contradiction}");
            }
            return;
        }
        let found = self.read_all();
        let blocks = self.world.blocks();
        for block in blocks..self.history.blocks().max(found.len() as u64) {
            let found = found.get(block as usize).copied().flatten().unwrap_or(0);
            let allowed =
                if block < self.history.blocks() { self.history.readable(block, 1).remove(0) } else { vec![0] };
            let is_allowed = allowed.iter().any(|change| self.history.value(*change) == found);
            assert!(is_allowed, "entry {}: change {found} found, one of {allowed:?} expected", block - blocks);
        }
    }

    fn probe(&self) {
        liveness::probe(self.fork());
    }

    fn verify_all(&mut self) {
        self.verify_tables();
        self.world.verify_all();
    }

    fn is_damaged(&self) -> bool {
        self.world.is_damaged()
    }

    fn check(&mut self) {
        self.world.check();
    }

    fn awaited(&self) -> String {
        format!("{} and {} requests for tables", self.world.awaited(), self.under_way.len())
    }

    fn trace(&self) -> TraceHash {
        self.world.trace()
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        let states = self.world.power_cut_at(moment);
        self.forget_requests();
        states
    }

    fn idle(&mut self, span: Nanos) {
        self.world.idle(span);
        self.book();
    }
}

impl Stage for TableWorld {
    type Drive = Tables;

    fn block_world(&mut self) -> &mut World<Tables> {
        &mut self.world
    }

    /// First the log area, then the entries. Each table is read, and is what its entry says.
    fn read_all(&mut self) -> Vec<Found> {
        let mut found = self.world.read_all();
        let entries: Vec<(u64, Change)> = self.adopt_entries();
        let last = entries.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        found.resize(found.len() + last as usize, Some(0));
        for (number, change) in entries {
            found[(self.world.blocks() + number) as usize] = Some(change);
        }
        self.verify_tables();
        found
    }

    fn crash_points(&mut self) -> Vec<Judgeable> {
        self.world.crash_points()
    }

    fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> TableWorld {
        TableWorld { serials: self.serials, ..TableWorld::of(self.world.after_cut(crash_point, history)) }
    }

    fn fork(&self) -> TableWorld {
        TableWorld { serials: self.serials, ..TableWorld::of(self.world.fork()) }
    }

    fn work_on(&mut self, found: &[Found]) {
        self.world.adopt(found);
        for _ in 0..40 {
            self.operation(5);
        }
        self.verify_all();
        self.check();
    }
}
