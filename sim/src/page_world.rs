//! A store of pages under test, its host with some sessions, and what that may find.

use crate::fault::{Fault, FaultKind, disturb};
use crate::played::Played;
use crate::played_crash_points::Cut;
use crate::rig::Rig;
use crate::step::{Moment, Step, ZoneDeed, ZoneDeedKind};
use crate::wire::{CrashPoint, Wire};
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Clock, Frame, Frames};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_pages::{
    Change, PageFacts, PageFtl, Session, SessionId, StoreDone, StoreError, StoreRequest, StoreTarget, WINDOW,
};
use openftl_parts::target::{Durability, Target};
use openftl_parts::{Access, Config, OpenError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Sessions that the host has.
pub const SESSIONS: usize = 3;

/// Pages of each session.
const PAGES: u64 = 200;

/// What a page holds: its bytes, all of which follow from their number and this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// How many.
    pub bytes: usize,
    /// What they follow from.
    pub seed: u64,
}

impl Made {
    /// The bytes.
    #[must_use]
    pub fn expand(self) -> Vec<u8> {
        made_bytes(self.seed, self.bytes)
    }
}

/// So many bytes that follow from a seed, and hardly from another one.
#[must_use]
pub fn made_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(count.next_multiple_of(size_of::<u64>()));
    while bytes.len() < count {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

type Changes = Vec<(u64, Option<Made>)>;

/// Pages that a quick comparison reads: one of so many that nothing has changed for a while.
const OLD_PAGES_READ: u64 = 32;

/// Batches, the last ones, of which it reads all pages.
const NEW_BATCHES: usize = 4;

/// A batch that was committed, or is about to be.
#[derive(Clone, Debug)]
struct Committed {
    session: usize,
    wsn: u64,
    /// Models are copied for each crash point, and what was in a batch stays as it is.
    changes: Rc<Changes>,
    is_done: bool,
    /// The drive has taken no more: it may be there, or not.
    has_failed: bool,
    is_durable: bool,
}

/// What is known of the store.
#[derive(Clone, Default)]
pub struct Model {
    history: Vec<Committed>,
    /// The last batch of each session.
    last: [u64; SESSIONS],
    /// The last page that was made up. No two are the same.
    made: u64,
}

impl Model {
    /// Pages after so many batches of each session.
    fn pages(&self) -> BTreeMap<u64, Made> {
        let mut pages = BTreeMap::new();
        for (lpid, made) in self.history.iter().flat_map(|batch| batch.changes.iter()) {
            match made {
                Some(made) => _ = pages.insert(*lpid, *made),
                None => _ = pages.remove(lpid),
            }
        }
        pages
    }

    /// The same, without those that batches changed which the drive refused after it had taken them: until it is opened again they may be as before or after.
    fn certain_pages(&self) -> BTreeMap<u64, Made> {
        let mut pages = self.pages();
        let refused = self.history.iter().filter(|batch| batch.has_failed);
        refused.flat_map(|batch| batch.changes.iter()).for_each(|(lpid, _)| _ = pages.remove(lpid));
        pages
    }
}

enum Errand {
    Read { frames: Vec<Frame>, lpid: u64, offset: usize, expected: Option<Made> },
    Commit { session: usize, wsn: u64, is_durable: bool },
    Sync { batches: Vec<(usize, u64)> },
}

/// See the module.
pub struct PageWorld {
    rig: Rig<PageFtl<Wire>>,
    /// What is known of the store. Crash points keep the one of their moment.
    pub model: Model,
    under_way: Vec<(u64, Errand)>,
    /// Pages that are made up have no more bytes, if the drive takes as many.
    pub page_bytes_max: u64,
    /// The open sessions.
    pub sessions: Vec<Session>,
    /// What is staged of the next batch of each session.
    staged: [Changes; SESSIONS],
    /// The drive is compared quickly, with such a number.
    quickly: Option<u64>,
    /// Of each page all that was ever put, and the seeds of what was made up when it was deleted, whether committed or not.
    ever: BTreeMap<u64, (Vec<Made>, Vec<u64>)>,
}

/// What a repair has brought back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Returned {
    /// Pages that are as the last durable change left them.
    pub as_durable: usize,
    /// Pages that were deleted durably, and are there.
    pub deleted: usize,
    /// Pages of which a later version is there.
    pub later: usize,
}

impl Deref for PageWorld {
    type Target = Rig<PageFtl<Wire>>;

    fn deref(&self) -> &Rig<PageFtl<Wire>> {
        &self.rig
    }
}

impl DerefMut for PageWorld {
    fn deref_mut(&mut self) -> &mut Rig<PageFtl<Wire>> {
        &mut self.rig
    }
}

/// The first bytes of what frames hold together.
#[must_use]
pub fn gathered(pool: &Frames, frames: &[Frame], bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    for frame in frames {
        let count = (bytes - all.len()).min(BLOCK_BYTES);
        all.extend_from_slice(&pool.bytes(*frame)[..count]);
    }
    all
}

fn id(session: usize) -> SessionId {
    SessionId([session as u8 + 1; 16])
}

impl PageWorld {
    /// A new store on a device with so many chunks on each parallel unit.
    ///
    /// # Panics
    /// If there can be no such store.
    #[must_use]
    pub fn new(profile: Profile, config: Config, chunks: u32, seed: u64) -> PageWorld {
        PageWorld::try_new(profile, config, chunks, seed).expect("there can be such a store")
    }

    /// The same.
    ///
    /// # Errors
    /// If there can be no such store.
    pub fn try_new(profile: Profile, config: Config, chunks: u32, seed: u64) -> Result<PageWorld, OpenError> {
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, seed).expect("a valid profile");
        let mut rig = Rig::try_new(device, config, (), (), seed)?;
        rig.may_wear_out = true;
        let mut world = PageWorld::of(rig, Model::default());
        world.open_sessions();
        Ok(world)
    }

    fn of(rig: Rig<PageFtl<Wire>>, model: Model) -> PageWorld {
        let staged = Default::default();
        PageWorld {
            rig,
            model,
            under_way: Vec::new(),
            page_bytes_max: u64::MAX,
            sessions: Vec::new(),
            staged,
            quickly: None,
            ever: BTreeMap::new(),
        }
    }

    /// The world after a power cut, with the drive not opened yet.
    #[must_use]
    pub fn after_cut(&self, crash_point: CrashPoint, model: Model) -> PageWorld {
        PageWorld::of(self.rig.with(crash_point.device, crash_point.at), model)
    }

    /// Opens all sessions. Gives the last batch of each.
    fn open_sessions(&mut self) -> Vec<u64> {
        self.staged = Default::default();
        for session in std::mem::take(&mut self.sessions) {
            let now = self.clock.now();
            // Of a drive that was open before there is none.
            _ = self.ftl().close_session(now, session, false);
        }
        let opened = (0..SESSIONS).map(|session| self.ftl().open_session(id(session)).expect("it is not open"));
        let (sessions, last) = opened.unzip();
        self.sessions = sessions;
        last
    }

    /// The tag of the next request. The host waits for it from now on.
    fn begin(&mut self) -> u64 {
        if self.under_way.is_empty() {
            self.wait_anew();
        }
        self.next_tag()
    }

    /// Adds changes of pages to the next batch of a session: of `count` pages that follow from `pick`, with bytes that follow from `size`. Gives
    /// whether there was room for all.
    pub fn stage(&mut self, session: usize, pick: u64, count: u64, size: u64, deletes: bool) -> bool {
        let most = self.page_bytes_max.min(self.ftl().page_bytes_max() as u64);
        for number in pick..pick + count {
            // Some numbers follow each other, some have gaps.
            let page = number % PAGES;
            let lpid = (session as u64) << 32 | if page < PAGES / 2 { page } else { page * 1_000_003 };
            self.model.made += 1;
            let bytes = match (size + number) % 8 {
                0 => 1 + number % 30,
                1..=3 => 100 + size % 1900,
                4 | 5 => 4096 - 32,
                6 => 5000 + size * 7 % 5000,
                _ => most - (size % 3) * most / 4,
            };
            let made = Made { bytes: bytes.min(most) as usize, seed: self.model.made };
            let bytes = made.expand();
            let pieces = [&bytes[..bytes.len() / 3], &bytes[bytes.len() / 3..]];
            let change = if deletes { Change::Delete } else { Change::Put(&pieces) };
            let (wsn, name) = (self.model.last[session] + 1, self.sessions[session]);
            let mut has_waited = false;
            loop {
                let now = self.clock.now();
                match self.ftl().stage(now, name, wsn, lpid, change, None) {
                    Ok(()) => break,
                    Err(StoreError::Busy) => {
                        // Once for this page: whoever is to try again for ever is not served.
                        if self.under_way.is_empty() && !std::mem::replace(&mut has_waited, true) {
                            self.wait_anew();
                        }
                        self.pump();
                    }
                    Err(StoreError::NoSpace { .. } | StoreError::MapFull { .. } | StoreError::BatchTooLong { .. }) => {
                        return false;
                    }
                    Err(error) => {
                        self.expect_worn_out(error);
                        return false;
                    }
                }
            }
            self.staged[session].push((lpid, (!deletes).then_some(made)));
            let (put, deleted) = self.ever.entry(lpid).or_default();
            if deletes { deleted.push(made.seed) } else { put.push(made) }
        }
        true
    }

    /// Commits what is staged.
    pub fn commit(&mut self, session: usize, is_durable: bool) {
        let (wsn, tag) = (self.model.last[session] + 1, self.begin());
        let durability = if is_durable { Durability::Durable } else { Durability::Volatile };
        let (now, name) = (self.clock.now(), self.sessions[session]);
        match self.ftl().submit(now, tag, StoreRequest::Commit { session: name, wsn, durability }) {
            Ok(()) => {
                let changes = Rc::new(std::mem::take(&mut self.staged[session]));
                self.model.last[session] = wsn;
                self.model.history.push(Committed {
                    session,
                    wsn,
                    changes,
                    is_done: false,
                    has_failed: false,
                    is_durable: false,
                });
                self.under_way.push((tag, Errand::Commit { session, wsn, is_durable }));
            }
            Err(error) => self.expect_worn_out(error),
        }
    }

    /// Gives up what is staged.
    pub fn abort(&mut self, session: usize) {
        let (now, name, wsn) = (self.clock.now(), self.sessions[session], self.model.last[session] + 1);
        self.staged[session].clear();
        self.ftl().abort(now, name, wsn).expect("the session is open");
    }

    /// Asks for all that was committed to be durable.
    pub fn sync(&mut self) {
        // What has not ended may be durable later.
        let done = self.model.history.iter().filter(|batch| batch.is_done);
        let batches = done.map(|batch| (batch.session, batch.wsn)).collect();
        let tag = self.begin();
        let now = self.clock.now();
        match self.ftl().submit(now, tag, StoreRequest::Sync) {
            Ok(()) => self.under_way.push((tag, Errand::Sync { batches })),
            Err(error) => self.expect_worn_out(error),
        }
    }

    /// Reads a page, all of it or a part, and compares it when it is there.
    pub fn read(&mut self, lpid: u64, offset: usize, expected: Option<Made>) {
        let most = expected.map_or(1, |made| made.bytes.saturating_sub(offset).div_ceil(BLOCK_BYTES).max(1));
        let frames = self.frames(most as u64);
        let tag = self.begin();
        let now = self.clock.now();
        let read = StoreRequest::Read { lpid, offset: offset as u32, frames: &frames };
        self.ftl().submit(now, tag, read).expect("reads are always begun");
        self.under_way.push((tag, Errand::Read { frames, lpid, offset, expected }));
    }

    fn expect_worn_out(&mut self, error: StoreError) {
        let is_read_only = matches!(error, StoreError::ReadOnly(_) | StoreError::Log(_) | StoreError::Aborted);
        assert!(is_read_only && self.is_worn_out(), "{error}: {}", self.ftl().describe());
    }

    /// Reads these pages and compares them: all, or those that may have changed lately and some others.
    fn verify(&mut self, mut pages: BTreeMap<u64, Made>) {
        if let Some(number) = self.quickly {
            let new = self.model.history.iter().rev().take(NEW_BATCHES);
            let new: BTreeSet<u64> = new.flat_map(|batch| batch.changes.iter().map(|(lpid, _)| *lpid)).collect();
            let is_read = |lpid: &u64| new.contains(lpid) || (lpid + number).is_multiple_of(OLD_PAGES_READ);
            pages.retain(|lpid, _| is_read(lpid));
        }
        for (lpid, made) in pages {
            self.read(lpid, 0, Some(made));
            if self.under_way.len() > 8 {
                self.settle();
            }
        }
        self.settle();
    }

    /// Begins a request, and waits for its end, while nothing else is under way.
    ///
    /// # Errors
    /// As of the request.
    pub fn ask(&mut self, request: StoreRequest<'_>) -> Result<Option<PageFacts>, StoreError> {
        self.rig.ask(|ftl, now, tag| ftl.submit(now, tag, request), |done: &StoreDone| (done.tag, done.result))
    }

    /// Reads the first bytes of a page, or all of it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn bytes_of(&mut self, lpid: u64, blocks: u64) -> Result<Vec<u8>, StoreError> {
        let frames = self.frames(blocks);
        let facts = self.ask(StoreRequest::Read { lpid, offset: 0, frames: &frames });
        let bytes = facts.map(|facts| {
            let count = facts.expect("a read says what it read").bytes as usize;
            gathered(self.ftl().frames(), &frames, count.min(frames.len() * BLOCK_BYTES))
        });
        frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
        bytes
    }

    /// Numbers and lengths of all pages.
    ///
    /// # Panics
    /// If the drive cannot say.
    pub fn listed(&mut self) -> Vec<(u64, u32)> {
        let mut clock = self.clock;
        let listed =
            self.ftl().list_now(0..=u64::MAX, usize::MAX, &mut clock).unwrap_or_else(|error| panic!("{error}"));
        self.rig.clock = clock;
        listed
    }

    /// Another world on a copy of the device, with the drive not open.
    #[must_use]
    pub fn twin(&self) -> PageWorld {
        let mut twin = PageWorld::of(self.rig.fork(), self.model.clone());
        twin.ever.clone_from(&self.ever);
        twin
    }

    /// Compares a drive that was repaired with all that was ever put, and goes on with what was found: each page is as the last durable change
    /// left it, or newer; one that was deleted may be back.
    ///
    /// # Errors
    /// Which page cannot be as it is.
    pub fn adopt_repaired(&mut self) -> Result<Returned, String> {
        let last = self.open_sessions();
        let durable = self.model.history.iter().filter(|batch| batch.is_durable);
        let durable: BTreeMap<u64, Option<Made>> = durable.flat_map(|batch| batch.changes.iter().copied()).collect();
        let mut returned = Returned::default();
        let mut found = BTreeMap::new();
        for (lpid, _) in self.listed() {
            let bytes = self.bytes_of(lpid, 256).map_err(|error| format!("page {lpid}: {error}"))?;
            let put = self.ever.get(&lpid).map_or(&[][..], |(put, _)| put);
            let is_it = |made: &&Made| made.bytes == bytes.len() && made.expand() == bytes;
            let Some(made) = put.iter().find(is_it) else {
                return Err(format!("page {lpid} has {} bytes that were never put there", bytes.len()));
            };
            found.insert(lpid, *made);
        }
        for (lpid, (_, deleted)) in &self.ever {
            match (durable.get(lpid), found.get(lpid)) {
                (Some(Some(durable)), Some(made)) if made.seed < durable.seed => {
                    return Err(format!("page {lpid} has {made:?}, and {durable:?} was durable"));
                }
                (Some(Some(durable)), None) if !deleted.iter().any(|seed| *seed > durable.seed) => {
                    return Err(format!("page {lpid} is not there, and {durable:?} was durable"));
                }
                (Some(Some(durable)), Some(made)) if made == durable => returned.as_durable += 1,
                (Some(None), Some(_)) => returned.deleted += 1,
                (Some(None), None) => returned.as_durable += 1,
                (_, Some(_)) => returned.later += 1,
                (_, None) => {}
            }
        }
        self.model.last.copy_from_slice(&last);
        self.model.history = (0..SESSIONS)
            .map(|session| {
                let own = |(lpid, _): &(&u64, &Made)| **lpid >> 32 == session as u64;
                let changes = found.iter().filter(own).map(|(lpid, made)| (*lpid, Some(*made)));
                let changes = Rc::new(changes.collect());
                let wsn = last[session];
                Committed { session, wsn, changes, is_done: true, has_failed: false, is_durable: true }
            })
            .collect();
        Ok(returned)
    }

    /// The medium may have lost batches, each as a whole and all behind it: nothing was promised.
    pub fn forget_promises(&mut self) {
        self.model.history.iter_mut().for_each(|batch| batch.is_durable = false);
    }

    /// Closes the drive and opens it again, with no session open.
    pub fn clean_restart_alone(&mut self) {
        self.close().unwrap_or_else(|error| panic!("{error}"));
        self.sessions.clear();
        self.open(Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A drive after a power cut recovers, works and is closed.
    pub fn prove(&mut self) {
        self.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
        for session in 0..SESSIONS {
            self.stage(session, 7, 5, 3, false);
            self.commit(session, session == 1);
        }
        self.sync();
        self.settle();
        // What was found then goes on to be true, wherever the log of what was put since ends.
        for (session, torn) in [(0, false), (1, true)] {
            self.stage(session, 9, 4, 2, false);
            self.commit(session, torn);
            self.power_cut_at(Moment { events: 3, torn, ..Moment::NOW });
            self.recover().unwrap_or_else(|contradiction| panic!("cut once more: {contradiction}"));
        }
        self.clean_restart();
        self.verify_all();
    }
}

impl Cut for PageWorld {
    type Model = Model;

    fn left_by(&self, crash_point: CrashPoint, model: &Model) -> PageWorld {
        self.after_cut(crash_point, model.clone())
    }

    fn recover_quickly(&mut self, number: u64) -> Result<(), String> {
        self.quickly = Some(number);
        let recovered = self.recover();
        self.quickly = None;
        recovered
    }

    fn work_and_close(&mut self) {
        self.prove();
    }
}

impl Played for PageWorld {
    type Ftl = PageFtl<Wire>;

    fn rig(&self) -> &Rig<PageFtl<Wire>> {
        &self.rig
    }

    fn rig_mut(&mut self) -> &mut Rig<PageFtl<Wire>> {
        &mut self.rig
    }

    /// What steps ask of zones is asked of pages.
    fn request(&mut self, step: &Step) {
        let Step::Zone(ZoneDeed { kind, pick, size }) = *step else { return self.sync() };
        let (pick, size) = (u64::from(pick), u64::from(size));
        let session = (pick % SESSIONS as u64) as usize;
        match kind {
            ZoneDeedKind::Read => {
                // A page of a batch that waits may be read as it was.
                self.settle();
                let pages = self.model.certain_pages();
                let from = pages.range(((session as u64) << 32) + pick % PAGES..).next();
                match from.map(|(lpid, made)| (*lpid, *made)) {
                    Some((lpid, made)) => self.read(lpid, size as usize * 997 % made.bytes, Some(made)),
                    None => self.read(u64::MAX, 0, None),
                }
            }
            ZoneDeedKind::Append | ZoneDeedKind::Write => {
                self.stage(session, pick, 1 + size % 6, size, false);
                self.commit(session, false);
            }
            ZoneDeedKind::AppendDurably => {
                self.stage(session, pick, 1 + size % 3, size, false);
                self.commit(session, true);
            }
            ZoneDeedKind::Open | ZoneDeedKind::OpenWithWindow => {
                _ = self.stage(session, pick, 1 + size % 10, size, false);
            }
            ZoneDeedKind::Reset => {
                self.stage(session, pick, 1 + size % 20, size, true);
                self.commit(session, size % 2 == 0);
            }
            ZoneDeedKind::Close => self.abort(session),
            ZoneDeedKind::Commit | ZoneDeedKind::Finish => self.commit(session, size % 4 == 0),
        }
        // Batches that wait are not to be more than a session can have.
        if self.under_way.len() > WINDOW as usize {
            self.settle();
        }
    }

    fn take(&mut self, done: Vec<StoreDone>) {
        for StoreDone { tag, result, .. } in done {
            let index = self.under_way.iter().position(|(other, _)| *other == tag).expect("a request under way");
            match self.under_way.swap_remove(index).1 {
                Errand::Commit { session, wsn, is_durable } => {
                    let of = |batch: &&mut Committed| (batch.session, batch.wsn) == (session, wsn);
                    match result {
                        Ok(facts) => {
                            assert_eq!(facts, None);
                            // Batches are in one order, whatever their sessions.
                            let is_that = |batch: &Committed| (batch.session, batch.wsn) == (session, wsn);
                            let at = self.model.history.iter().position(is_that).expect("it was committed");
                            self.model.history[at].is_done = true;
                            let same = self.model.history[..=at].iter_mut().filter(|batch| batch.session == session);
                            same.filter(|_| is_durable).for_each(|batch| batch.is_durable = true);
                        }
                        Err(error) => {
                            self.expect_worn_out(error);
                            self.model.history.iter_mut().find(of).expect("it was committed").has_failed = true;
                        }
                    }
                }
                Errand::Sync { batches } => match result {
                    Ok(_) => {
                        let is_among = |batch: &&mut Committed| batches.contains(&(batch.session, batch.wsn));
                        self.model.history.iter_mut().filter(is_among).for_each(|batch| batch.is_durable = true);
                    }
                    Err(error) => self.expect_worn_out(error),
                },
                Errand::Read { frames, lpid, offset, expected } => {
                    match (result, expected) {
                        (Ok(Some(PageFacts { bytes, .. })), Some(made)) => {
                            assert_eq!(bytes as usize, made.bytes, "page {lpid}");
                            let expected = made.expand();
                            let count = (made.bytes - offset).min(frames.len() * BLOCK_BYTES);
                            let found = gathered(self.ftl().frames(), &frames, count);
                            assert!(
                                found[..count] == expected[offset..offset + count],
                                "page {lpid} from byte {offset}"
                            );
                        }
                        (Err(StoreError::NoPage { .. }), None) => {}
                        (result, expected) => {
                            panic!("page {lpid}: {result:?}, {expected:?}: {}", self.ftl().describe())
                        }
                    }
                    frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
                }
            }
        }
        self.wire.look();
    }

    fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
    }

    fn inject(&mut self, fault: Fault) -> bool {
        if matches!(fault.kind, FaultKind::Lose | FaultKind::Corrupt) {
            return false;
        }
        // A read that has failed once is not to fail once more.
        self.settle();
        let ftl = self.ftl.as_ref().expect("the drive is open");
        disturb(&mut self.wire.device(), ftl.block(), self.clock.0, fault)
    }

    /// After a power cut each session has all that was durable, and of the rest its first batches; each whole.
    fn judge(&mut self) -> Result<(), String> {
        let last = self.open_sessions();
        for batch in &self.model.history {
            if batch.is_durable && batch.wsn > last[batch.session] {
                return Err(format!(
                    "session {} has lost batch {}, which was durable: {last:?}",
                    batch.session, batch.wsn
                ));
            }
        }
        for (session, last) in last.iter().enumerate() {
            if *last > self.model.last[session] {
                return Err(format!("session {session} has batch {last}, which was never committed"));
            }
        }
        self.model.history.retain(|batch| batch.wsn <= last[batch.session]);
        self.model.history.iter_mut().for_each(|batch| (batch.is_durable, batch.has_failed) = (true, false));
        self.model.last.copy_from_slice(&last);
        let pages = self.model.pages();
        let expected: Vec<(u64, u32)> = pages.iter().map(|(lpid, made)| (*lpid, made.bytes as u32)).collect();
        let found = self.listed();
        if found != expected {
            let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            return Err(format!(
                "{} pages are there, and {} were committed, of batches up to {last:?}; the first that differ: {differs:?}",
                found.len(),
                expected.len()
            ));
        }
        self.verify(pages);
        Ok(())
    }

    fn clean_restart(&mut self) {
        self.settle();
        let is_closed = self.close().is_ok();
        if is_closed {
            self.model.history.iter_mut().for_each(|batch| batch.is_durable |= !batch.has_failed);
        }
        self.open(Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
        self.judge().unwrap_or_else(|contradiction| panic!("{contradiction}"));
    }

    fn probe(&self) {
        PageWorld::of(self.rig.fork(), self.model.clone()).prove();
    }

    fn verify_all(&mut self) {
        self.verify(self.model.certain_pages());
    }

    fn is_damaged(&self) -> bool {
        false
    }
}
