//! A store of pages under batches: pages are put and deleted, a batch is committed and waited for, and all of it is read back.
//!
//! One host has one session and one batch at a time. It knows every page that it has put, so it can compare what it reads.

use crate::zipf::Zipf;
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Nanos, VirtualClock};
use openftl_media::{EmulatedDevice, Media};
use openftl_pages::{
    Change, PAGE_BYTES_MAX, PageFacts, PageFtl, Session, SessionId, StoreDone, StoreError, StoreRequest, StoreTarget,
};
use openftl_parts::{Access, Config, Durability, OpenError, Target};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// The session of the host.
const SESSION: SessionId = SessionId(*b"openftl-lab-page");

/// Why a trial came to its end early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageTrialError {
    /// The store refuses what was asked.
    #[error("the store of pages: {0}")]
    Store(#[from] StoreError),
    /// It does not open.
    #[error("the store of pages does not open: {0}")]
    Open(String),
    /// Something was asked, and the store says that it has nothing to do.
    #[error("the store of pages hangs: {0}")]
    Hangs(String),
    /// A page is not what was put.
    #[error("page {lpid} of the store is not what was put there")]
    WrongData {
        /// The page.
        lpid: u64,
    },
}

impl From<OpenError> for PageTrialError {
    fn from(error: OpenError) -> PageTrialError {
        PageTrialError::Open(error.to_string())
    }
}

/// Pages that are put at random: how long they are, and which are popular.
#[derive(Clone, Debug)]
pub struct PageMix {
    /// The fewest and the most bytes of a page.
    bytes: [u32; 2],
    popularity: Zipf,
    by_rank: Vec<u64>,
}

impl PageMix {
    /// Pages 0 to `pages - 1`, of `bytes[0]` to `bytes[1]` bytes, by a Zipf distribution with this exponent. Popular pages are no neighbours.
    ///
    /// # Panics
    /// If there are no pages, or their lengths are none.
    #[must_use]
    pub fn new(pages: u64, bytes: [u32; 2], theta: f64, chance: &mut Xoshiro256PlusPlus) -> PageMix {
        assert!(bytes[0] > 0 && bytes[0] <= bytes[1], "{bytes:?} are the lengths of no page");
        let mut by_rank: Vec<u64> = (0..pages).collect();
        for at in (1..by_rank.len()).rev() {
            by_rank.swap(at, (chance.next_u64() % (at as u64 + 1)) as usize);
        }
        PageMix { bytes, popularity: Zipf::new(pages, theta), by_rank }
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.by_rank.len() as u64
    }

    /// Draws a page.
    pub fn page(&self, chance: &mut Xoshiro256PlusPlus) -> u64 {
        self.by_rank[self.popularity.draw(chance) as usize]
    }

    /// Draws the length of a page.
    pub fn length(&self, chance: &mut Xoshiro256PlusPlus) -> u32 {
        let [least, most] = self.bytes;
        least + (chance.next_u64() % u64::from(most - least + 1)) as u32
    }
}

/// Bytes without an order, from which the contents of pages are cut.
#[must_use]
pub fn noise(chance: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut noise = vec![0; 2 * PAGE_BYTES_MAX as usize];
    chance.fill_bytes(&mut noise);
    noise
}

/// See the module.
pub struct PageTrial<M: Media, C> {
    /// The store.
    pub drive: PageFtl<M>,
    /// Its clock.
    pub clock: C,
    /// Decides what is left to chance.
    pub chance: Xoshiro256PlusPlus,
    session: Session,
    /// The last batch that was committed.
    wsn: u64,
    noise: Vec<u8>,
    /// Where in `noise` the bytes of each page are, and how many.
    known: BTreeMap<u64, (u32, u32)>,
    /// Changes of the batch that grows.
    staged: Vec<(u64, Option<(u32, u32)>)>,
    done: Vec<StoreDone>,
}

impl<M: Media, C: Clock> PageTrial<M, C> {
    /// A host of a new store.
    ///
    /// # Errors
    /// If the store has a host already.
    pub fn new(mut drive: PageFtl<M>, clock: C, seed: u64) -> Result<PageTrial<M, C>, PageTrialError> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let noise = noise(&mut chance);
        let (session, wsn) = drive.open_session(SESSION)?;
        let (known, staged, done) = (BTreeMap::new(), Vec::new(), Vec::new());
        Ok(PageTrial { drive, clock, chance, session, wsn, noise, known, staged, done })
    }

    /// Changes of the batch that grows.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.staged.len()
    }

    /// Pages that are committed.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.known.len() as u64
    }

    /// Bytes that were programmed, for whatever purpose, since statistics began.
    #[must_use]
    pub fn nand_bytes(&self) -> u64 {
        self.drive.statistics().0.nand_blocks_written() * BLOCK_BYTES as u64
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    /// Lets the store work until it is due, or something has ended.
    fn work(&mut self) -> Result<(), PageTrialError> {
        let before = self.done.len();
        self.drive.poll(self.clock.now(), &mut self.done);
        if self.done.len() == before {
            let due = self.drive.next_due().ok_or_else(|| PageTrialError::Hangs(self.drive.describe()))?;
            self.clock.wait_until(due);
        }
        Ok(())
    }

    fn stage(&mut self, lpid: u64, put: Option<(u32, u32)>) -> Result<(), PageTrialError> {
        let mut was_idle = false;
        loop {
            let now = self.clock.now();
            let bytes = put.map(|(from, bytes)| &self.noise[from as usize..(from + bytes) as usize]);
            let pieces = bytes.map(|bytes| [bytes]);
            let change = pieces.as_ref().map_or(Change::Delete, |pieces| Change::Put(pieces));
            match self.drive.stage(now, self.session, self.wsn + 1, lpid, change, None) {
                Ok(()) => break,
                // A poll may have made room at once, so that nothing is due any more.
                Err(StoreError::Busy) => match self.work() {
                    Err(PageTrialError::Hangs(_)) if !was_idle => was_idle = true,
                    worked => {
                        worked?;
                        was_idle = false;
                    }
                },
                Err(error) => return Err(error.into()),
            }
        }
        self.staged.push((lpid, put));
        Ok(())
    }

    /// Adds a page of so many bytes to the batch that grows.
    ///
    /// # Errors
    /// If the store refuses it.
    pub fn put(&mut self, lpid: u64, bytes: u32) -> Result<(), PageTrialError> {
        let from = self.below((self.noise.len() - bytes as usize) as u64 + 1) as u32;
        self.stage(lpid, Some((from, bytes)))
    }

    /// Adds a page that is drawn to the batch that grows.
    ///
    /// # Errors
    /// If the store refuses it.
    pub fn put_any(&mut self, mix: &PageMix) -> Result<(), PageTrialError> {
        let lpid = mix.page(&mut self.chance);
        self.put_drawn(mix, lpid)
    }

    /// Adds a page, of a length that is drawn, to the batch that grows.
    ///
    /// # Errors
    /// If the store refuses it.
    pub fn put_drawn(&mut self, mix: &PageMix, lpid: u64) -> Result<(), PageTrialError> {
        let bytes = mix.length(&mut self.chance);
        self.put(lpid, bytes)
    }

    /// Adds the deletion of a page to the batch that grows.
    ///
    /// # Errors
    /// If the store refuses it.
    pub fn delete(&mut self, lpid: u64) -> Result<(), PageTrialError> {
        self.stage(lpid, None)
    }

    /// Commits the batch, if there is anything in it, and waits for that.
    ///
    /// # Errors
    /// If the store refuses it, or hangs.
    pub fn commit(&mut self, durability: Durability) -> Result<(), PageTrialError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.wsn += 1;
        self.wait(StoreRequest::Commit { session: self.session, wsn: self.wsn, durability })?;
        for (lpid, put) in self.staged.drain(..) {
            match put {
                Some(put) => _ = self.known.insert(lpid, put),
                None => _ = self.known.remove(&lpid),
            }
        }
        Ok(())
    }

    /// Waits until all that was committed is durable.
    ///
    /// # Errors
    /// If the store takes no more writes, or hangs.
    pub fn sync(&mut self) -> Result<(), PageTrialError> {
        self.wait(StoreRequest::Sync).map(drop)
    }

    /// Begins a request, and waits for its end.
    fn wait(&mut self, request: StoreRequest<'_>) -> Result<Option<PageFacts>, PageTrialError> {
        let now = self.clock.now();
        self.drive.submit(now, 0, request)?;
        loop {
            self.work()?;
            if let Some(done) = self.done.pop() {
                return Ok(done.result?);
            }
        }
    }

    /// Reads a page, and compares it with the bytes of `noise` that were put.
    fn read_page(&mut self, lpid: u64, (from, bytes): (u32, u32)) -> Result<(), PageTrialError> {
        let mut frames: Vec<Frame> = Vec::new();
        let count = (bytes as usize).div_ceil(BLOCK_BYTES);
        while !self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
            self.work()?;
        }
        let facts = self.wait(StoreRequest::Read { lpid, offset: 0, frames: &frames })?;
        let expected = self.noise[from as usize..(from + bytes) as usize].chunks(BLOCK_BYTES);
        let mut pieces = expected.zip(&frames);
        let is_same = facts.is_some_and(|facts| facts.bytes == bytes)
            && pieces.all(|(piece, frame)| self.drive.frames().bytes(*frame)[..piece.len()] == *piece);
        frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
        if is_same { Ok(()) } else { Err(PageTrialError::WrongData { lpid }) }
    }

    /// Reads so many pages that are drawn as those that are put, and compares each. All of them are committed.
    ///
    /// # Errors
    /// If a page cannot be read, or is not what was put.
    pub fn read_any(&mut self, mix: &PageMix, pages: u64) -> Result<(), PageTrialError> {
        for _ in 0..pages {
            let lpid = mix.page(&mut self.chance);
            if let Some(place) = self.known.get(&lpid).copied() {
                self.read_page(lpid, place)?;
            }
        }
        Ok(())
    }

    /// Reads every page, and compares.
    ///
    /// # Errors
    /// If a page cannot be read, or is not what was put.
    pub fn read_back(&mut self) -> Result<(), PageTrialError> {
        let known = std::mem::take(&mut self.known);
        let result = known.iter().try_for_each(|(lpid, place)| self.read_page(*lpid, *place));
        self.known = known;
        result?;
        match self.drive.pages() == self.pages() {
            true => Ok(()),
            false => Err(PageTrialError::Hangs(format!("{} pages, not {}", self.drive.pages(), self.pages()))),
        }
    }
}

impl PageTrial<EmulatedDevice, VirtualClock> {
    /// Cuts the power and opens the store again. What was committed since the last durable commit may be lost, and there is none of it.
    ///
    /// # Errors
    /// If it does not open.
    pub fn recover(self, config: &Config) -> Result<(PageTrial<EmulatedDevice, VirtualClock>, Nanos), PageTrialError> {
        let PageTrial { drive, mut clock, chance, noise, known, .. } = self;
        let mut device = drive.crash();
        device.power_cut(clock.0, true).map_err(|error| PageTrialError::Open(error.to_string()))?;
        let began = clock.0;
        let mut drive = PageFtl::open_with(device, config.clone(), (), Access::ReadWrite, &mut clock)?;
        let span = clock.0.since(began);
        let (session, wsn) = drive.open_session(SESSION)?;
        let (staged, done) = (Vec::new(), Vec::new());
        Ok((PageTrial { drive, clock, chance, session, wsn, noise, known, staged, done }, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_media::{Profile, Store, Timing};

    fn config() -> Config {
        Config { drive_id: 5, payload: FrameForm::Bytes, host_frames: 512, ..Config::default() }
    }

    fn small() -> PageTrial<EmulatedDevice, VirtualClock> {
        let profile = Profile::builtin("tiny").unwrap();
        let device = EmulatedDevice::new(profile, 64, Store::Ram, Timing::Modelled, 3).unwrap();
        let mut clock = VirtualClock::default();
        let drive = PageFtl::format(device, config(), (), &mut clock).unwrap();
        PageTrial::new(drive, clock, 1).unwrap()
    }

    #[test]
    fn what_was_committed_is_read_back_behind_a_power_cut() {
        let mut trial = small();
        let mix = PageMix::new(100, [1, 5000], 0.9, &mut trial.chance.clone());
        (0..100).for_each(|lpid| trial.put_drawn(&mix, lpid).unwrap());
        trial.delete(7).unwrap();
        trial.commit(Durability::Durable).unwrap();
        trial.read_back().unwrap();
        // A batch that grows is none yet.
        trial.put_any(&mix).unwrap();
        let (mut again, span) = trial.recover(&config()).unwrap();
        assert!(span > Nanos::ZERO);
        assert_eq!(again.pages(), 99);
        again.read_back().unwrap();
        (0..50).for_each(|_| again.put_any(&mix).unwrap());
        again.commit(Durability::Volatile).unwrap();
        again.sync().unwrap();
        again.read_back().unwrap();
    }

    #[test]
    fn a_page_that_is_not_what_was_put_is_found() {
        let mut trial = small();
        trial.put(3, 100).unwrap();
        trial.commit(Durability::Durable).unwrap();
        trial.known.insert(3, (1, 99));
        assert_eq!(trial.read_back(), Err(PageTrialError::WrongData { lpid: 3 }));
    }
}
