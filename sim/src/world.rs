//! A drive under test, a host that keeps several requests under way, and the model that says what the host may find.
//!
//! Whatever contradicts the model is a panic: in a test that is a failure, and the explorer catches it.

use crate::drive::Drive;
use crate::fate::States;
use crate::fault::written_places;
use crate::history::{Change, Found, History, Kind, UNCORRECTABLE};
use crate::liveness::{Deadline, Patience, Waiting};
use crate::step::Moment;
use crate::wire::{CrashPoint, Wire};
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{
    BLOCK_BYTES, Clock, Frame, FrameForm, Nanos, Payload, PayloadMut, Ppa, Stamp, TraceHash, VirtualClock,
};
use openftl_media::{ChunkDescriptor, EmulatedDevice, Media, Missing, NandStatistics, Profile, Store, Timing};
use openftl_parts::config::{Left, TRIM_STEP_ENTRIES};
use openftl_parts::open_error::OpenError;
use openftl_parts::{
    Access, BlockTarget, Config, Done, Durability, Extent, Handle, IoError, ObjectError, PlacementName, ReadOnlyReason,
    Request, VictimPolicy, chunks_per_pu,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::RefMut;
use std::fmt;
use std::rc::Rc;

/// The production FTL, on a wire that can be cut.
pub type Ftl = BlockFtl<Wire>;

/// A request under way.
enum Errand {
    Change { change: Change, durable: bool },
    Flush { tick: u64 },
    Announcement,
    Read { first: u64, frames: Vec<Frame>, allowed: Vec<Vec<Change>> },
}

impl fmt::Display for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Errand::Change { change, durable } => {
                write!(f, "change {change}{}", if *durable { ", durable" } else { "" })
            }
            Errand::Flush { .. } => write!(f, "flush"),
            Errand::Announcement => write!(f, "announcement"),
            Errand::Read { first, .. } => write!(f, "read of {first}"),
        }
    }
}

/// All that takes part in a run with a drive `D`.
pub struct World<D = Ftl> {
    /// The drive; `None` while it is closed.
    pub ftl: Option<D>,
    /// What the drive is connected to its device by.
    pub wire: Wire,
    /// Virtual time.
    pub clock: VirtualClock,
    /// What the drive is opened with.
    pub config: Config,
    /// What it is opened with from the next time on, if that is something else. Where that is refused because it needs more
    /// chunks, the drive is opened as it was made.
    pub next_config: Option<Config>,
    has_other_config: bool,
    /// The model. Crash points keep the one of their moment.
    pub history: Rc<History>,
    /// Whether the drive may wear out, and refuse writes from then on.
    pub may_wear_out: bool,
    /// Whether something went wrong on the medium that was asked for.
    pub is_hurt: bool,
    /// Whether a power cut has left units that can be read in part or not for long.
    pub is_disturbed: bool,
    /// What writes carry from now on.
    pub handle: Handle,
    /// Blocks that silent faults have cost and nobody has asked for.
    missing: Vec<Missing>,
    chance: Xoshiro256PlusPlus,
    patience: Patience,
    /// Since something last ended.
    waiting: Waiting,
    under_way: Vec<(u64, Errand)>,
    tag: u64,
    trace: TraceHash,
    crash_points: Vec<Judgeable>,
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

/// Drives come and go, each with a megabyte of frames: an allocator that learns from large blocks (that of GNU does) keeps
/// such memory from now on, instead of giving it back to the system and having it zeroed page by page each time.
fn keep_freed_memory() {
    const LARGE_BYTES: usize = 24 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
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

/// What a whole block of write `change` holds.
fn words(change: Change, block: u64) -> impl Iterator<Item = u64> {
    let stamp = stamp(change, block).0;
    (0..BLOCK_BYTES as u64 / 8).map(move |index| if stamp == 0 { 0 } else { stamp.wrapping_add(index << 56) })
}

/// The first eight bytes of a block, which say which write it is of.
pub(crate) fn head_of(payload: Payload<'_>) -> u64 {
    match payload {
        Payload::Stamp(stamp) => stamp.0,
        Payload::Bytes(bytes) => u64::from_le_bytes(*bytes.first_chunk().expect("eight of many bytes")),
    }
}

fn change_in(head: u64) -> Change {
    (head >> 24) as Change
}

fn stamp(change: Change, block: u64) -> Stamp {
    if change == 0 { Stamp::ZERO } else { Stamp(u64::from(change) << 24 | block) }
}

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
        keep_freed_memory();
        let wire = Wire::new(EmulatedDevice::new(profile, chunks, store, Timing::Modelled, seed).unwrap());
        let mut clock = VirtualClock::default();
        let patience = Patience::with(&wire.device());
        let mut deadline = Deadline::new(&mut clock, patience, "a new drive is made".to_owned());
        let ftl = D::format(wire.clone(), config.clone(), &mut deadline)?;
        Ok(World {
            patience,
            waiting: Waiting::new(patience, clock.0),
            ftl: Some(ftl),
            wire,
            clock,
            history: Rc::new(History::new(config.capacity_blocks)),
            config,
            next_config: None,
            has_other_config: false,
            may_wear_out: false,
            is_hurt: false,
            is_disturbed: false,
            handle: Handle::NONE,
            missing: Vec::new(),
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            under_way: Vec::new(),
            tag: 0,
            trace: TraceHash::START,
            crash_points: Vec::new(),
        })
    }

    /// The world after a power cut, with the drive not opened yet and the model as it was then.
    #[must_use]
    pub fn after_cut(&self, crash_point: CrashPoint, history: Rc<History>) -> World<D> {
        World {
            ftl: None,
            wire: Wire::new(crash_point.device),
            clock: VirtualClock(crash_point.at),
            config: self.config.clone(),
            next_config: self.next_config.clone(),
            has_other_config: self.has_other_config,
            history,
            may_wear_out: self.may_wear_out,
            is_hurt: self.is_hurt,
            is_disturbed: self.is_disturbed,
            handle: self.handle,
            missing: Vec::new(),
            chance: self.chance.clone(),
            patience: self.patience,
            waiting: Waiting::new(self.patience, crash_point.at),
            under_way: Vec::new(),
            tag: self.tag,
            trace: TraceHash::START,
            crash_points: Vec::new(),
        }
    }

    /// The same drive once more, closed as it is: a power cut has left this device.
    #[must_use]
    pub fn fork(&self) -> World<D> {
        let at = self.clock.0;
        let device = self.device().fork().expect("memory for a small device").expect("a store in memory");
        let (event, fingerprint) = (self.wire.events(), 0);
        let states = States::prefix();
        let crash_point = CrashPoint { device, fingerprint, event, at, torn: false, fates: None, states };
        self.after_cut(crash_point, self.history.clone())
    }

    /// The states found by a watched wire since the last call, each with what the model said at that moment.
    pub fn crash_points(&mut self) -> Vec<Judgeable> {
        self.collect_crash_points();
        std::mem::take(&mut self.crash_points)
    }

    /// What was done so far left these states; what the host is told next does not count for them.
    pub(crate) fn collect_crash_points(&mut self) {
        let found = self.wire.crash_points().into_iter();
        self.crash_points.extend(found.map(|crash_point| (crash_point, self.history.clone())));
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

    /// The drive, which is open.
    ///
    /// # Panics
    /// If it is closed.
    pub fn ftl(&mut self) -> &mut D {
        self.ftl.as_mut().expect("the drive is open")
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> RefMut<'_, EmulatedDevice> {
        self.wire.device()
    }

    /// A number below `bound`, drawn from the seed.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Blocks of the drive.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.config.capacity_blocks
    }

    /// Frames for a request, once there are so many.
    pub fn frames(&mut self, count: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let form = self.config.payload;
        while !self.ftl().frames_mut().acquire_many(form, count as usize, &mut frames) {
            let done = self.step();
            self.take(done);
        }
        frames
    }

    /// Lets the drive work until something has ended.
    fn step(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        let (now, ended) = (self.clock.now(), self.ftl().ended());
        let progress = self.ftl().progress();
        self.ftl().poll(now, &mut done);
        if done.is_empty() && self.ftl().ended() == ended {
            let Some(due) = self.ftl().next_due() else {
                if self.ftl().progress() == progress {
                    self.stopped("nothing is due");
                }
                // What was waited for may be there: a chunk has closed without any time.
                return done;
            };
            let now = self.clock.wait_until(due);
            self.ftl().poll(now, &mut done);
        }
        if done.is_empty() && self.ftl().ended() == ended {
            if let Err(waited) = self.waiting.poll(self.clock.0) {
                self.stopped(&waited);
            }
        } else {
            self.waiting.begin_anew(self.clock.0);
        }
        self.note_missing();
        done
    }

    /// What the host waits for will not come.
    fn stopped(&mut self, why: &str) -> ! {
        let waiting: Vec<String> = self.under_way.iter().map(|(_, errand)| errand.to_string()).collect();
        panic!("{why}, and {waiting:?} or frames are waited for: {}", self.ftl().block().describe());
    }

    /// A clock for what the drive does by itself.
    fn deadline(&mut self, deed: &str) -> Deadline<'_> {
        Deadline::new(&mut self.clock, self.patience, deed.to_owned())
    }

    /// Lets the drive work once more, and books what has ended.
    pub fn pump(&mut self) {
        let done = self.step();
        self.take(done);
    }

    /// Lets the drive do what it can without waiting, and books what has ended.
    pub(crate) fn poll(&mut self) {
        let (now, mut done) = (self.clock.now(), Vec::new());
        self.ftl().poll(now, &mut done);
        self.note_missing();
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

    fn take(&mut self, done: Vec<Done>) {
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
    fn expect_worn_out(&mut self, error: IoError) {
        let may = self.may_wear_out && error == IoError::ReadOnly && self.is_worn_out();
        let block = self.ftl().block();
        assert!(may, "{error}: {:?}, {}", block.read_only_reason(), block.describe());
    }

    /// Whether the drive is read-only as one that is worn out may be.
    pub(crate) fn is_worn_out(&mut self) -> bool {
        let reason = self.ftl().block().read_only_reason();
        matches!(reason, Some(ReadOnlyReason::WornOut | ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent))
    }

    fn give_back(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            self.ftl().frames_mut().release(frame);
        }
    }

    /// What the frames hold, by write; they are given back.
    fn release(&mut self, first: u64, frames: Vec<Frame>) -> Vec<Change> {
        let pool = self.ftl.as_mut().expect("the drive is open").frames_mut();
        let mut found = Vec::new();
        for (block, frame) in (first..).zip(frames) {
            let head = head_of(pool.payload(frame));
            let change = change_in(head);
            let whole = match pool.payload(frame) {
                Payload::Stamp(found) => found == stamp(change, block),
                Payload::Bytes(bytes) => bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .zip(words(change, block))
                    .all(|(found, word)| u64::from_le_bytes(*found) == word),
            };
            assert!(whole, "block {block} holds what was never written to it: {head:#018x}");
            pool.release(frame);
            found.push(change);
        }
        found
    }

    fn submit(&mut self, request: Request<'_>, errand: Errand) -> u64 {
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        if self.under_way.is_empty() {
            self.waiting.begin_anew(now);
        }
        self.under_way.push((tag, errand));
        for word in [now.0, tag] {
            self.trace.add(word);
        }
        if let Err(error) = self.ftl().submit(now, tag, request) {
            self.expect_worn_out(error);
            self.refused(request);
        }
        self.collect_crash_points();
        tag
    }

    /// Forgets a request that was refused.
    fn refused(&mut self, request: Request<'_>) {
        if let Some((_, Errand::Change { change, .. })) = self.under_way.pop() {
            self.model().fail(change);
        }
        if let Request::Write { frames, .. }
        | Request::WriteUncorrectable { frames, .. }
        | Request::Read { frames, .. } = request
        {
            self.give_back(frames.to_vec());
        }
    }

    fn fill(&mut self, change: Change, first: u64, frames: &[Frame]) {
        let pool = self.ftl().frames_mut();
        for (block, frame) in (first..).zip(frames) {
            match pool.payload_mut(*frame) {
                PayloadMut::Stamp(payload) => *payload = stamp(change, block),
                PayloadMut::Bytes(bytes) => {
                    for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words(change, block)) {
                        *at = word.to_le_bytes();
                    }
                }
            }
        }
    }

    pub(crate) fn begin(&mut self, kind: Kind, first: u64, blocks: u64) -> Change {
        let change = self.model().begin(kind, first, blocks);
        for (_, errand) in &mut self.under_way {
            if let Errand::Read { first: from, allowed, .. } = errand {
                for (block, allowed) in (*from..).zip(allowed) {
                    if (first..first + blocks).contains(&block) {
                        allowed.push(change);
                    }
                }
            }
        }
        change
    }

    /// Submits a write; gives its tag.
    pub fn submit_write(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let frames = self.frames(blocks);
        let change = self.begin(Kind::Write, first, blocks);
        self.fill(change, first, &frames);
        let durable = durability == Durability::Durable || self.config.write_through;
        let handle = self.handle;
        self.submit(Request::Write { first, frames: &frames, durability, handle }, Errand::Change { change, durable })
    }

    /// Announces an object, which the drive may refuse.
    pub fn submit_flash_alloc(&mut self, extents: &[Extent]) {
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        match self.ftl().submit(now, tag, Request::FlashAlloc { extents }) {
            Ok(()) => self.under_way.push((tag, Errand::Announcement)),
            Err(IoError::Object(ObjectError::NotKept | ObjectError::TooMany { .. })) => {}
            Err(error) => self.expect_worn_out(error),
        }
    }

    /// Submits a write of uncorrectable blocks; gives its tag.
    pub fn submit_write_uncorrectable(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let frames = self.frames(blocks);
        let change = self.begin(Kind::WriteUncorrectable, first, blocks);
        // What the frames hold must not come back.
        self.fill(change, first, &frames);
        let durable = durability == Durability::Durable || self.config.write_through;
        let request = Request::WriteUncorrectable { first, frames: &frames, durability };
        self.submit(request, Errand::Change { change, durable })
    }

    /// Submits a trim; gives its tag.
    pub fn submit_trim(&mut self, first: u64, blocks: u64, durability: Durability) -> u64 {
        let change = self.begin(Kind::Trim, first, blocks);
        let durable = durability == Durability::Durable || self.config.write_through;
        self.submit(Request::Trim { first, blocks, durability }, Errand::Change { change, durable })
    }

    /// Submits a flush; gives its tag.
    pub fn submit_flush(&mut self) -> u64 {
        let tick = self.model().begin_flush();
        self.submit(Request::Flush, Errand::Flush { tick })
    }

    /// Submits a read, to be compared with the model when it ends; gives its tag.
    pub fn submit_read(&mut self, first: u64, blocks: u64) -> u64 {
        let frames = self.frames(blocks);
        let allowed = self.history.readable(first, blocks);
        let request = Request::Read { first, frames: &frames };
        self.submit(request, Errand::Read { first, frames: frames.clone(), allowed })
    }

    /// Waits until a request has ended.
    pub fn wait(&mut self, tag: u64) {
        while self.under_way.iter().any(|(other, _)| *other == tag) {
            self.pump();
        }
    }

    /// Waits until no request is under way.
    pub fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.pump();
        }
    }

    /// Writes, and waits for it.
    pub fn write(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_write(first, blocks, Durability::Volatile);
        self.wait(tag);
    }

    /// Trims, and waits for it.
    pub fn trim(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_trim(first, blocks, Durability::Volatile);
        self.wait(tag);
    }

    /// Flushes, and waits for it.
    pub fn flush(&mut self) {
        let tag = self.submit_flush();
        self.wait(tag);
    }

    /// Fills the drive from its first block to its last.
    pub fn write_all(&mut self, step: u64) {
        for first in (0..self.blocks()).step_by(step as usize) {
            let blocks = step.min(self.blocks() - first);
            self.write(first, blocks);
        }
    }

    /// Reads and compares with the model.
    pub fn verify(&mut self, first: u64, blocks: u64) {
        let tag = self.submit_read(first, blocks);
        self.wait(tag);
    }

    /// Lets the drive work until `span` has passed.
    pub fn idle(&mut self, span: Nanos) {
        let until = self.clock.now() + span;
        self.waiting.begin_anew(self.clock.0);
        while let Some(due) = self.ftl().next_due().filter(|due| *due <= until) {
            let now = self.clock.wait_until(due);
            let mut done = Vec::new();
            self.ftl().poll(now, &mut done);
            self.take(done);
            // Time passes as it should; only a drive that never lets it pass is not alive.
            if let Err(polled) = self.waiting.poll(self.waiting.since()) {
                self.stopped(&polled);
            }
        }
        self.clock.wait_until(until);
        self.waiting.begin_anew(until);
    }

    /// This happened, too.
    pub(crate) fn add_to_trace(&mut self, words: impl IntoIterator<Item = u64>) {
        words.into_iter().for_each(|word| self.trace.add(word));
    }

    /// A hash over all that happened: requests and their ends, commands and theirs.
    #[must_use]
    pub fn trace(&self) -> TraceHash {
        let mut trace = self.trace;
        trace.add(self.wire.trace().0);
        trace
    }

    /// Reads the whole drive and compares it with the model.
    pub fn verify_all(&mut self) {
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

    /// Submits a request that may be refused or fail, with nothing else under way, and waits for its end.
    ///
    /// # Errors
    /// How it failed.
    pub fn attempt(&mut self, request: Request<'_>) -> Result<(), IoError> {
        self.settle();
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        self.waiting.begin_anew(now);
        self.ftl().submit(now, tag, request)?;
        loop {
            if let Some(done) = self.step().into_iter().find(|done| done.tag == tag) {
                return done.result;
            }
        }
    }

    /// Reads blocks that may be lost: what they hold, by write.
    ///
    /// # Errors
    /// How the read failed.
    pub fn try_read(&mut self, first: u64, blocks: u64) -> Result<Vec<Change>, IoError> {
        let frames = self.frames(blocks);
        let result = self.attempt(Request::Read { first, frames: &frames });
        if result.is_err() {
            self.give_back(frames);
            return result.map(|()| Vec::new());
        }
        Ok(self.release(first, frames))
    }

    /// Writes where it may be refused.
    ///
    /// # Errors
    /// How the write failed.
    pub fn try_write(&mut self, first: u64, blocks: u64, durability: Durability) -> Result<(), IoError> {
        let frames = self.frames(blocks);
        self.settle();
        let change = self.begin(Kind::Write, first, blocks);
        self.fill(change, first, &frames);
        self.tag += 1;
        let (now, tag) = (self.clock.now(), self.tag);
        let result = match self.ftl().submit(
            now,
            tag,
            Request::Write { first, frames: &frames, durability, handle: Handle::NONE },
        ) {
            Err(error) => {
                self.give_back(frames);
                Err(error)
            }
            Ok(()) => loop {
                if let Some(done) = self.step().into_iter().find(|done| done.tag == tag) {
                    break done.result;
                }
            },
        };
        match result {
            Ok(()) => self.model().complete(change, durability == Durability::Durable),
            Err(_) => self.model().fail(change),
        }
        result
    }

    /// A range of up to `most` blocks, drawn from the seed.
    pub fn range(&mut self, most: u64) -> (u64, u64) {
        let blocks = 1 + self.below(most.min(self.blocks()));
        let first = self.below(self.blocks() - blocks + 1);
        (first, blocks)
    }

    /// One more request of a mix of all kinds; on a drive that heeds them with handles and objects.
    pub fn submit_any(&mut self) {
        if self.config.placement.heeds_handles() {
            self.handle = Handle(self.below(u64::from(self.config.handles) + 2) as u8);
        } else if self.config.placement == PlacementName::FlashAlloc && self.below(8) == 0 {
            let (first, blocks) = self.range(60);
            self.submit_flash_alloc(&[Extent { first, blocks }]);
        }
        match self.below(100) {
            0..60 => {
                let (first, blocks) = self.range(12);
                self.submit_write(first, blocks, Durability::Volatile);
            }
            60..64 => {
                let (first, blocks) = self.range(256);
                self.submit_write(first, blocks, Durability::Volatile);
            }
            64..67 => {
                let (first, blocks) = self.range(4);
                self.submit_write(first, blocks, Durability::Durable);
            }
            67..71 => {
                let (first, blocks) = self.range(40);
                self.submit_trim(first, blocks, Durability::Volatile);
            }
            71 => {
                let (first, blocks) = self.range(40);
                self.submit_trim(first, blocks, Durability::Durable);
            }
            72..75 => {
                self.submit_flush();
            }
            75..78 => {
                let (first, blocks) = self.range(16);
                self.submit_write_uncorrectable(first, blocks, Durability::Volatile);
            }
            78 => {
                let (first, blocks) = self.range(16);
                self.submit_write_uncorrectable(first, blocks, Durability::Durable);
            }
            _ => {
                let (first, blocks) = self.range(16);
                self.submit_read(first, blocks);
            }
        }
    }

    /// One more request, with up to `depth` under way.
    pub fn operation(&mut self, depth: usize) {
        self.submit_any();
        while self.under_way.len() >= depth {
            self.pump();
        }
    }

    /// What the whole drive holds, by write. Nothing may be under way.
    pub fn read_all(&mut self) -> Vec<Found> {
        let mut found = Vec::new();
        for first in (0..self.blocks()).step_by(READ_BLOCKS as usize) {
            let blocks = (self.blocks() - first).min(READ_BLOCKS);
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

    /// Closes the drive and opens it again.
    pub fn clean_restart(&mut self) {
        self.settle();
        if !self.close_and_open()
            && let Err(contradiction) = self.recover()
        {
            panic!("{contradiction}");
        }
    }

    /// Closes the drive, with nothing under way. Returns false if not even a superblock could be written any more.
    ///
    /// # Panics
    /// If it cannot be closed, or not in time.
    pub fn close(&mut self) -> bool {
        let before = self.ftl().block().describe();
        let ftl = self.ftl.take().expect("the drive is open");
        match ftl.close(&mut self.deadline(&format!("the drive is closed, begun with {before}"))) {
            Err(OpenError::Unwritable(ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent)) if self.may_wear_out => {
                false
            }
            Err(error) => panic!("the drive cannot be closed: {error}; before that: {before}"),
            Ok(()) => true,
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

    /// The FTL is gone, whatever is under way, and the power goes at a later instant of the device ([`Wire::power_cut`]).
    pub fn power_cut_at(&mut self, moment: Moment) -> States {
        self.ftl = None;
        self.under_way.clear();
        let states = self.wire.power_cut(moment);
        self.is_disturbed |= states.programs_partly + states.programs_fading > 0;
        states
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// If it is refused.
    pub fn open(&mut self, access: Access) -> Result<(), OpenError> {
        if let Some(config) = self.next_config.take() {
            (self.config, self.has_other_config) = (config, true);
        }
        let mut opened = self.open_as_configured(access);
        if self.has_other_config && matches!(opened, Err(OpenError::OtherSize { .. })) {
            (self.config.left, self.config.checkpoint_log_blocks) = (Left::ALL, None);
            opened = self.open_as_configured(access);
        }
        let ftl = self.ftl.insert(opened?);
        let missing = &ftl.block().recovery_report().missing_room;
        assert!(missing.is_none(), "room is missing: {missing:?}, {}", ftl.block().describe());
        self.waiting.begin_anew(self.clock.0);
        Ok(())
    }

    fn open_as_configured(&mut self, access: Access) -> Result<D, OpenError> {
        let (wire, config) = (self.wire.clone(), self.config.clone());
        D::open(wire, config, access, &mut self.deadline("the drive is opened"))
    }

    /// Opens the drive after a power cut and compares all of it with the model, which goes on with what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    pub fn recover(&mut self) -> Result<(), String> {
        if self.ftl.is_none() {
            self.open(Access::ReadWrite).map_err(|error| error.to_string())?;
        }
        let found = self.read_all();
        self.history.verdict(&found)?;
        self.adopt(&found);
        Ok(())
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

    /// Goes on after the drive was opened and holds `found`, to show that it can.
    ///
    /// # Panics
    /// If what comes then contradicts the model.
    pub fn work_on(&mut self, found: &[Found]) {
        self.adopt(found);
        for _ in 0..40 {
            self.operation(5);
        }
        self.settle();
        self.verify_all();
        self.check();
    }

    /// Has the drive verify itself.
    pub fn check(&mut self) {
        let mut deadline = Deadline::new(&mut self.clock, self.patience, "the drive checks itself".to_owned());
        let report = self.ftl.as_mut().expect("the drive is open").check(&mut deadline);
        let was_damaged = self.history.is_damaged();
        self.note_missing();
        // A silent fault may have come about meanwhile.
        let is_new = !was_damaged && self.history.is_damaged();
        assert!(report.is_sound() || is_new, "{:#?}", report.findings);
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
