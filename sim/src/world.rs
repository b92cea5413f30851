//! A drive under test, a host that keeps several requests under way, and the model that says what the host may find.
//!
//! Whatever contradicts the model is a panic: in a test that is a failure, and the explorer catches it.

use crate::block_contents::{change_in, head_of, is_whole};
use crate::block_requests::Errand;
use crate::crash_points::Noted;
use crate::drive::Drive;
use crate::fate::States;
use crate::fault::{Fault, written_places};
use crate::history::{Change, Found, History, UNCORRECTABLE};
use crate::liveness;
use crate::played::{DoneOf, Played};
use crate::rig::Rig;
use crate::stage::Stage;
use crate::step::{Moment, Range, Step};
use crate::wire::{CrashPoint, Wire};
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{Clock, Frame, FrameForm, Ppa, TraceHash};
use openftl_media::{ChunkDescriptor, EmulatedDevice, Media, Missing, NandStatistics, Profile, Store, Timing};
use openftl_parts::config::TRIM_STEP_ENTRIES;
use openftl_parts::open_error::OpenError;
use openftl_parts::{
    Access, Config, Done, Extent, Handle, IoError, ReadOnlyReason, Request, VictimPolicy, chunks_per_pu,
};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// The production FTL, on a wire that can be cut.
pub type Ftl = BlockFtl<Wire>;

/// All that takes part in a run with a drive `D`.
pub struct World<D: Drive = Ftl> {
    rig: Rig<D>,
    /// The model. Crash points keep the one of their moment.
    pub history: Rc<History>,
    /// Whether something went wrong on the medium that was asked for.
    pub is_hurt: bool,
    /// Whether a power cut has left units that can be read in part or not for long.
    pub is_disturbed: bool,
    /// What writes carry from now on.
    pub handle: Handle,
    /// The first block of the drive that the host and the model know: block 0 for them.
    first: u64,
    /// The copy of the catalog of a table drive that has lost something, if any has.
    pub(crate) lost_copy: Option<u64>,
    /// Blocks that silent faults have cost and nobody has asked for.
    missing: Vec<Missing>,
    pub(crate) under_way: Vec<(u64, Errand)>,
    /// What has ended, and was asked by somebody else.
    pub(crate) others: Vec<DoneOf<D>>,
    trace: TraceHash,
    crash_points: Noted<History>,
}

impl<D: Drive> Deref for World<D> {
    type Target = Rig<D>;

    fn deref(&self) -> &Rig<D> {
        &self.rig
    }
}

impl<D: Drive> DerefMut for World<D> {
    fn deref_mut(&mut self) -> &mut Rig<D> {
        &mut self.rig
    }
}

/// A state that a power cut could leave, and what the model said at that moment.
pub type Judgeable = (CrashPoint, Rc<History>);

/// Victim policies that drives are drawn with.
pub const VICTIM_POLICIES: [VictimPolicy; 6] = [
    VictimPolicy::Greedy,
    VictimPolicy::CostBenefit,
    VictimPolicy::Fifo,
    VictimPolicy::Windowed(Share::percent(25)),
    VictimPolicy::Choices(3),
    VictimPolicy::Choices(10),
];

/// How a drive of `capacity_blocks` is opened whose every choice follows from `seed`.
#[must_use]
pub fn config(capacity_blocks: u64, seed: u64) -> Config {
    Config {
        capacity_blocks,
        over_provisioning: Share::percent(10),
        drive_id: 0xD21E_0000 + seed,
        payload: FrameForm::Stamp,
        host_frames: 512,
        checkpoint_log_blocks: Some(24),
        // Most trims of every third drive take several steps.
        trim_step_entries: if seed.is_multiple_of(3) { 7 } else { TRIM_STEP_ENTRIES },
        victim: if seed.is_multiple_of(2) { VictimPolicy::Greedy } else { VictimPolicy::CostBenefit },
        ..Config::default()
    }
}

/// A builtin profile with some lines of its TOML replaced.
///
/// # Panics
/// If there is no such profile or line, or the result is impossible.
#[must_use]
pub fn profile(name: &str, changes: &[(&str, &str)]) -> Profile {
    let mut text = Profile::builtin_text(name).unwrap().to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has the line {from}");
        text = text.replace(from, to);
    }
    Profile::parse(&text).unwrap()
}

/// Blocks that are read at a time where all are.
const READ_BLOCKS: u64 = 64;

impl World {
    /// A new drive. `spare` percent of its chunks are held back for others that go bad.
    ///
    /// # Panics
    /// If there can be no such drive.
    #[must_use]
    pub fn new(profile: Profile, config: Config, spare: u32, seed: u64) -> World {
        World::try_new(profile, config, spare, seed).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A new drive, if there can be one like it.
    ///
    /// # Errors
    /// If the device has no such shape, or too few good chunks.
    ///
    /// # Panics
    /// If the profile is impossible.
    pub fn try_new(profile: Profile, config: Config, spare: u32, seed: u64) -> Result<World, OpenError> {
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(spare))?;
        World::with_chunks(profile, config, chunks, seed)
    }

    /// A new drive of which the host uses the last `blocks` blocks alone, and the model knows no others.
    ///
    /// # Panics
    /// If there can be no such drive.
    #[must_use]
    pub fn at_the_end(profile: Profile, config: Config, blocks: u64, seed: u64) -> World {
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(20)).unwrap();
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed).unwrap();
        let first = config.capacity_blocks - blocks;
        let rig = Rig::try_new(device, config, (), (), seed).unwrap_or_else(|error| panic!("{error}"));
        World { first, ..World::of(rig, Rc::new(History::new(blocks))) }
    }

    /// A small drive on the profile `tiny`.
    #[must_use]
    pub fn tiny(capacity_blocks: u64, seed: u64) -> World {
        World::new(Profile::builtin("tiny").unwrap(), config(capacity_blocks, seed), 20, seed)
    }
}

impl<D: Drive> World<D> {
    /// A new drive on a device with so many chunks in each parallel unit, if there can be one like it.
    ///
    /// # Errors
    /// If the device has no such shape, or too few good chunks.
    ///
    /// # Panics
    /// If the profile is impossible.
    pub fn with_chunks(profile: Profile, config: Config, chunks: u32, seed: u64) -> Result<World<D>, OpenError> {
        let store = if config.payload == FrameForm::Bytes { Store::Ram } else { Store::Stamps };
        World::with_store(profile, config, store, chunks, seed)
    }

    /// The same on a store of a kind that suits it. Forks of a store of stamps share what they keep whole.
    ///
    /// # Errors
    /// If the device has no such shape, or too few good chunks.
    ///
    /// # Panics
    /// If the profile is impossible.
    pub fn with_store(
        profile: Profile,
        config: Config,
        store: Store,
        chunks: u32,
        seed: u64,
    ) -> Result<World<D>, OpenError> {
        let device = EmulatedDevice::new(profile, chunks, store, Timing::Modelled, seed).unwrap();
        let capacity = config.capacity_blocks;
        Ok(World::of(Rig::try_new(device, config, (), (), seed)?, Rc::new(History::new(capacity))))
    }

    fn of(rig: Rig<D>, history: Rc<History>) -> World<D> {
        World {
            rig,
            history,
            is_hurt: false,
            is_disturbed: false,
            handle: Handle::NONE,
            first: 0,
            lost_copy: None,
            missing: Vec::new(),
            under_way: Vec::new(),
            others: Vec::new(),
            trace: TraceHash::START,
            crash_points: Noted::default(),
        }
    }

    fn on(&self, rig: Rig<D>, history: Rc<History>) -> World<D> {
        let World { is_hurt, is_disturbed, handle, first, lost_copy, .. } = *self;
        World { is_hurt, is_disturbed, handle, first, lost_copy, ..World::of(rig, history) }
    }

    /// What was done so far left these states; what the host is told next does not count for them.
    pub(crate) fn collect_crash_points(&mut self) {
        self.crash_points.note(&self.rig.wire, &self.history);
    }

    /// A block on the medium that holds a version of `block` and begins with `head` is damaged.
    pub(crate) fn damage(&mut self, block: u64, head: u64) {
        self.model().damage(block, change_in(head));
    }

    /// A block on the medium that stands for `block` as an uncorrectable one is damaged.
    pub(crate) fn damage_uncorrectable(&mut self, block: u64) {
        self.model().damage_uncorrectable(block);
    }

    /// Blocks that silent faults have cost since the last call.
    pub fn take_missing(&mut self) -> Vec<Missing> {
        self.note_missing();
        std::mem::take(&mut self.missing)
    }

    /// Keeps what silent faults have cost.
    pub(crate) fn keep_missing(&mut self, missing: &[Missing]) {
        self.missing.extend_from_slice(missing);
    }

    pub(crate) fn model(&mut self) -> &mut History {
        Rc::make_mut(&mut self.history)
    }

    /// A number below `bound`, drawn from the seed.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rig.below(bound)
    }

    /// Blocks of the drive that the host uses.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.config.capacity_blocks - self.first
    }

    /// A request as the drive gets it.
    pub(crate) fn of_drive<'a>(&self, request: Request<'a>) -> Request<'a> {
        let at = self.first;
        match request {
            Request::Read { first, frames } => Request::Read { first: first + at, frames },
            Request::Write { first, frames, durability, handle } => {
                Request::Write { first: first + at, frames, durability, handle }
            }
            Request::WriteUncorrectable { first, frames, durability } => {
                Request::WriteUncorrectable { first: first + at, frames, durability }
            }
            Request::Trim { first, blocks, durability } => Request::Trim { first: first + at, blocks, durability },
            Request::Flush | Request::FlashAlloc { .. } => request,
        }
    }

    /// Lets the drive work until something has ended. Gives what was asked by the host of blocks.
    pub(crate) fn step(&mut self) -> Vec<Done> {
        let done = self.rig.step();
        self.note_missing();
        match done {
            Ok(done) => self.of_blocks(done),
            Err(why) => self.stopped(&why),
        }
    }

    fn of_blocks(&mut self, done: Vec<DoneOf<D>>) -> Vec<Done> {
        let mut of_blocks = Vec::new();
        for done in done {
            match D::of_blocks(&done) {
                Some(done) => of_blocks.push(done),
                None => self.others.push(done),
            }
        }
        of_blocks
    }

    /// Lets the drive do what it can without waiting, and books what has ended.
    pub(crate) fn poll(&mut self) {
        let (now, mut done) = (self.clock.now(), Vec::new());
        self.ftl().poll(now, &mut done);
        self.take(done);
    }

    /// Lets the drive work though no request is under way.
    ///
    /// # Panics
    /// If it has nothing to do.
    pub fn idle_step(&mut self) {
        let due = self.ftl().next_due().expect("the drive has work to do");
        let now = self.clock.wait_until(due);
        let mut done = Vec::new();
        self.ftl().poll(now, &mut done);
        self.take(done);
    }

    fn book(&mut self, done: Vec<Done>) {
        // What silent faults have cost until now is known before anything is judged.
        self.note_missing();
        self.collect_crash_points();
        for done in done {
            let index = self.under_way.iter().position(|(tag, _)| *tag == done.tag).expect("a request under way");
            let (_, errand) = self.under_way.swap_remove(index);
            for word in [done.tag, done.at.0, u64::from(done.result.is_ok())] {
                self.trace.add(word);
            }
            match (errand, done.result) {
                (Errand::Change { change, durable }, Ok(())) => self.model().complete(change, durable),
                (Errand::Flush { tick }, Ok(())) => self.model().flushed(tick),
                (Errand::Announcement, Ok(())) => {}
                (Errand::Read { first, frames, allowed }, Ok(())) => self.compare(first, frames, &allowed),
                (Errand::Read { first, frames, allowed }, Err(error)) => {
                    self.expect_unreadable(first, &allowed, error);
                    self.give_back(frames);
                }
                (Errand::Change { change, .. }, Err(error)) => {
                    self.expect_worn_out(error);
                    self.model().fail(change);
                }
                (Errand::Flush { .. } | Errand::Announcement, Err(error)) => self.expect_worn_out(error),
            }
        }
        self.wire.look();
        self.collect_crash_points();
    }

    fn compare(&mut self, first: u64, frames: Vec<Frame>, allowed: &[Vec<Change>]) {
        for (index, (found, allowed)) in self.release(first, frames).into_iter().zip(allowed).enumerate() {
            let block = first + index as u64;
            let allowed: Vec<Change> = allowed.iter().map(|change| self.history.value(*change)).collect();
            assert!(allowed.contains(&found), "block {block}: write {found} read, one of {allowed:?} expected");
        }
    }

    /// A read may fail only because of a block that was damaged or is to be uncorrectable, and says which is the first.
    fn expect_unreadable(&mut self, first: u64, allowed: &[Vec<Change>], error: IoError) {
        let Some(block) = error.block() else { panic!("a read ended with: {error}") };
        let index = block.checked_sub(first).filter(|index| *index < allowed.len() as u64);
        let index = index.unwrap_or_else(|| panic!("a read of {first}… ended with: {error}")) as usize;
        let is_uncorrectable = |change: &Change| self.history.value(*change) == UNCORRECTABLE;
        let may_be = match error {
            IoError::Uncorrectable { .. } => allowed[index].iter().any(is_uncorrectable),
            _ => self.history.may_be_lost(block, &allowed[index]),
        };
        let wanted = &allowed[index];
        assert!(may_be, "a read of {first}… ended with: {error}; it may find {wanted:?}, and none was damaged");
        let is_readable = |allowed: &Vec<Change>| !allowed.iter().all(is_uncorrectable);
        assert!(
            allowed[..index].iter().all(is_readable),
            "a read of {first}… ended with: {error}, which is not the first"
        );
    }

    /// A write may fail only because the drive is worn out.
    pub(crate) fn expect_worn_out(&mut self, error: IoError) {
        let may = self.may_wear_out && error == IoError::ReadOnly && self.is_worn_out();
        let block = self.ftl().block();
        assert!(may, "{error}: {:?}, {}", block.read_only_reason(), block.describe());
    }

    pub(crate) fn give_back(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            self.ftl().frames_mut().release(frame);
        }
    }

    /// What the frames hold, by write; they are given back.
    pub(crate) fn release(&mut self, first: u64, frames: Vec<Frame>) -> Vec<Change> {
        let pool = self.ftl().frames_mut();
        let mut found = Vec::new();
        for (block, frame) in (first..).zip(frames) {
            let head = head_of(pool.payload(frame));
            let change = change_in(head);
            let whole = is_whole(pool.payload(frame), change, block);
            assert!(whole, "block {block} holds what was never written to it: {head:#018x}");
            pool.release(frame);
            found.push(change);
        }
        found
    }

    /// This happened, too.
    pub(crate) fn add_to_trace(&mut self, words: impl IntoIterator<Item = u64>) {
        words.into_iter().for_each(|word| self.trace.add(word));
    }

    /// Closes the drive, with nothing under way. Returns false if not even a superblock could be written any more.
    ///
    /// # Panics
    /// If it cannot be closed, or not in time.
    pub fn close(&mut self) -> bool {
        match self.rig.close() {
            Ok(()) => true,
            Err(ReadOnlyReason::WornOut) => panic!("a worn-out drive has room for a last superblock"),
            Err(_) => false,
        }
    }

    /// Closes the drive and opens it again, with nothing under way. Returns false if not all that was there could be made to
    /// last: what is durable is there, as after a power cut, and the drive is to be opened like after one.
    pub(crate) fn close_and_open(&mut self) -> bool {
        let was_read_only = self.ftl().is_read_only();
        let was_in_doubt = self.ftl().block().is_in_doubt();
        if !self.close() || was_in_doubt {
            return false;
        }
        self.open(Access::ReadWrite).unwrap();
        if !was_read_only {
            // Where chunks have gone bad there may be no room for a last checkpoint, or no place for a superblock.
            let NandStatistics { program_failures, erase_failures, .. } = *self.device().statistics();
            let may_lack_room = self.may_wear_out && (self.is_hurt || program_failures + erase_failures > 0);
            let report = self.ftl().block().recovery_report();
            assert!(report.clean || may_lack_room, "closed cleanly: {report:?}");
            assert!(report.replayed == 0 || may_lack_room, "closed cleanly: {report:?}");
        }
        true
    }

    /// Cuts the power, whatever is under way: with `torn`, as soon as a program operation is to be torn by it.
    pub fn power_cut(&mut self, torn: bool) {
        let device = self.wire.device();
        let tears = device.instants().iter().position(|at| torn && device.would_tear(*at));
        drop(device);
        self.power_cut_at(Moment { later: tears.unwrap_or(0) as u32, torn, ..Moment::NOW });
    }

    /// What the drive holds is `found`, whatever the model says: that counts from now on.
    pub fn adopt(&mut self, found: &[Found]) {
        let is_in_doubt = self.ftl().block().is_in_doubt();
        assert!(!is_in_doubt || self.ftl().is_read_only(), "a drive that can be written makes good what it found");
        match is_in_doubt {
            true => self.model().looked_at(found),
            false => self.model().reopened(found),
        }
    }

    /// Where the blocks below the write pointers of all chunks are.
    pub fn written_places(&mut self) -> Vec<Ppa> {
        let report = self.chunk_report();
        written_places(self.wire.geometry(), &report)
    }

    /// Where `block` is on the medium. It must have been flushed.
    ///
    /// # Panics
    /// If it is not on the medium.
    pub fn place_of(&mut self, block: u64) -> Ppa {
        self.ftl().block().place_on_media(block).expect("the block is on the medium")
    }

    /// What the device says of all its chunks.
    pub fn chunk_report(&mut self) -> Vec<ChunkDescriptor> {
        let now = self.clock.now();
        self.device().whole_chunk_report(now).unwrap()
    }
}

impl<D: Drive> Played for World<D> {
    type Ftl = D;

    fn rig(&self) -> &Rig<D> {
        &self.rig
    }

    fn rig_mut(&mut self) -> &mut Rig<D> {
        &mut self.rig
    }

    fn request(&mut self, step: &Step) {
        match step {
            Step::Write(range, durability) => _ = self.submit_write(range.first, range.blocks, *durability),
            Step::WriteUncorrectable(range, durability) => {
                self.submit_write_uncorrectable(range.first, range.blocks, *durability);
            }
            Step::Trim(range, durability) => _ = self.submit_trim(range.first, range.blocks, *durability),
            Step::Read(range) => _ = self.submit_read(range.first, range.blocks),
            Step::Handle(handle) => self.handle = Handle(*handle),
            Step::Announce(Range { first, blocks }) => {
                self.submit_flash_alloc(&[Extent { first: *first, blocks: *blocks }]);
            }
            Step::Flush => _ = self.submit_flush(),
            // There is none.
            Step::Table(_) => {}
            other => unreachable!("{other} is no request for blocks or tables"),
        }
    }

    fn take(&mut self, done: Vec<DoneOf<D>>) {
        let done = self.of_blocks(done);
        self.book(done);
    }

    fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
        self.others.clear();
    }

    fn inject(&mut self, fault: Fault) -> bool {
        let injected = self.go_wrong(fault);
        self.is_hurt |= injected;
        injected
    }

    fn judge(&mut self) -> Result<(), String> {
        let found = self.read_all();
        self.history.verdict(&found)?;
        self.adopt(&found);
        Ok(())
    }

    fn clean_restart(&mut self) {
        self.settle();
        if !self.close_and_open()
            && let Err(contradiction) = self.recover()
        {
            panic!("{contradiction}");
        }
    }

    fn probe(&self) {
        liveness::probe(self.fork());
    }

    fn verify_all(&mut self) {
        self.settle();
        for (block, found) in self.read_all().into_iter().enumerate() {
            let allowed = &self.history.readable(block as u64, 1)[0];
            match found {
                Some(found) => {
                    let is_allowed = allowed.iter().any(|change| self.history.value(*change) == found);
                    assert!(is_allowed, "block {block}: write {found} read, one of {allowed:?} expected");
                }
                None => assert!(self.history.may_be_lost(block as u64, allowed), "block {block} is lost: {allowed:?}"),
            }
        }
    }

    fn is_damaged(&self) -> bool {
        self.history.is_damaged() || self.lost_copy.is_some()
    }

    fn check(&mut self) {
        let report = self.rig.check();
        let was_damaged = self.is_damaged();
        self.note_missing();
        // A silent fault may have come about meanwhile.
        let is_new = !was_damaged && self.is_damaged();
        assert!(report.is_sound() || is_new, "{:#?}", report.findings);
    }

    fn awaited(&self) -> String {
        let waiting: Vec<String> = self.under_way.iter().map(|(_, errand)| errand.to_string()).collect();
        format!("{waiting:?}")
    }

    /// Over requests and their ends, commands and theirs.
    fn trace(&self) -> TraceHash {
        let mut trace = self.trace;
        trace.add(self.rig.wire.trace().0);
        trace
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        self.rig.ftl = None;
        self.forget_requests();
        let states = self.rig.wire.power_cut(moment);
        self.is_disturbed |= states.programs_partly + states.programs_fading > 0;
        states
    }
}

impl<D: Drive> Stage for World<D> {
    type Drive = D;

    fn block_world(&mut self) -> &mut World<D> {
        self
    }

    fn read_all(&mut self) -> Vec<Found> {
        let (mut found, all) = (Vec::new(), self.blocks());
        for first in (0..all).step_by(READ_BLOCKS as usize) {
            let blocks = (all - first).min(READ_BLOCKS);
            match self.try_read(first, blocks) {
                Ok(read) => found.extend(read.into_iter().map(Some)),
                // One by one, to say which.
                Err(_) => found.extend((first..first + blocks).map(|block| match self.try_read(block, 1) {
                    Ok(read) => Some(read[0]),
                    Err(IoError::Uncorrectable { .. }) => Some(UNCORRECTABLE),
                    Err(_) => None,
                })),
            }
        }
        found
    }

    fn crash_points(&mut self) -> Vec<Judgeable> {
        self.collect_crash_points();
        self.crash_points.take()
    }

    fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> World<D> {
        self.on(self.rig.with(crash_point.device, crash_point.at), history)
    }

    fn fork(&self) -> World<D> {
        self.on(self.rig.fork(), self.history.clone())
    }

    fn work_on(&mut self, found: &[Found]) {
        self.adopt(found);
        for _ in 0..40 {
            self.operation(5);
        }
        self.settle();
        self.verify_all();
        self.check();
    }
}
