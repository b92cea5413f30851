//! A store of pages that this process has open, for any number of threads.

use crate::failure::Failure;
use openftl_core::{BLOCK_BYTES, Clock, Frame, Time};
use openftl_dispatch::{Bell, Dispatcher, Owned, PaceClock, Stopped, Until};
use openftl_media::Media;
use openftl_pages::{
    BlockingStore, Change, Ftl, ListBreak, PageFacts, PageFtl, Session, SessionId, StoreError, StoreFacts,
    StoreFailure, StoreRequest, StoreTarget,
};
use openftl_parts::{Durability, Target};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// Frames of the read under way: the list is kept for the next one.
    static FRAMES: Cell<Vec<Frame>> = const { Cell::new(Vec::new()) };
}

/// See the module. Each clone is the same store.
pub struct PageStore<M: Media> {
    dispatcher: Arc<Dispatcher<PageFtl<M>>>,
}

impl<M: Media> Clone for PageStore<M> {
    fn clone(&self) -> PageStore<M> {
        PageStore { dispatcher: Arc::clone(&self.dispatcher) }
    }
}

fn gone(stopped: Stopped) -> StoreFailure {
    StoreFailure::Gone(stopped.to_string())
}

impl<M: Media> PageStore<M> {
    /// Takes over a drive, with the clock that it was opened with.
    #[must_use]
    pub fn new(drive: PageFtl<M>, clock: PaceClock) -> PageStore<M> {
        PageStore { dispatcher: Arc::new(Dispatcher::new(drive, clock)) }
    }

    /// Calls `with` on the drive, for those who ask it what it did.
    pub fn with_drive<T>(&self, with: impl FnOnce(&mut PageFtl<M>) -> T) -> T {
        with(&mut self.dispatcher.look().drive)
    }

    /// The time of the drive.
    #[must_use]
    pub fn now(&self) -> Time {
        self.dispatcher.look().now
    }

    /// Has the drive polled soon, for a device that does something before it is due.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.dispatcher.bell().clone()
    }

    /// Has `watch` called with the drive after each poll: for those who test what its users bear.
    pub fn watch(&self, watch: openftl_dispatch::Watch<PageFtl<M>>) {
        self.dispatcher.look().watch = Some(watch);
    }

    /// Stops the drive at once with `last`, as a power cut does: its users get errors from now on, also those who wait.
    pub fn stop<T>(&self, last: impl FnOnce(&mut PageFtl<M>, Time) -> T) -> T {
        self.dispatcher.stop(last)
    }

    /// Stops the drive: all is durable. `None` if somebody else still has the store.
    ///
    /// # Errors
    /// If it cannot be durable.
    pub fn close(self) -> Result<Option<M>, Failure> {
        let Some((drive, mut clock)) = self.into_drive() else { return Ok(None) };
        let _ = clock.now();
        drive.close(&mut clock).map(Some).map_err(Failure::failed)
    }

    /// Gives the device back as it is: what a crash leaves behind. `None` if somebody else still has the store.
    #[must_use]
    pub fn crash(self) -> Option<M> {
        self.into_drive().map(|(drive, _)| drive.crash())
    }

    fn into_drive(self) -> Option<(PageFtl<M>, PaceClock)> {
        Arc::try_unwrap(self.dispatcher).ok().map(Dispatcher::into_drive)
    }

    /// Begins a request, and waits for its end.
    fn wait(&self, request: StoreRequest<'_>) -> Result<Option<PageFacts>, StoreFailure> {
        let mut owner = self.dispatcher.own().map_err(gone)?;
        let (now, tag) = (owner.now, owner.tag());
        owner.drive.submit(now, tag, request)?;
        let ended = self.dispatcher.wait(owner, tag).1;
        Ok(ended.map_err(gone)??)
    }

    /// Reads into `frames`, and copies from there to `buffer`.
    fn read_with(
        &self,
        lpid: u64,
        offset: u32,
        buffer: &mut [u8],
        frames: &mut Vec<Frame>,
    ) -> Result<PageFacts, StoreFailure> {
        let mut owner = self.dispatcher.own().map_err(gone)?;
        let most = (owner.drive.page_bytes_max() as usize).div_ceil(BLOCK_BYTES);
        let blocks = buffer.len().div_ceil(BLOCK_BYTES).clamp(1, most);
        if !matches!(owner.lend(blocks, frames), Until::Found(())) {
            let lend = |owned: &mut Owned<PageFtl<M>>| owned.lend(blocks, frames);
            let (after, lent) = self.dispatcher.wait_until(owner, 0, lend);
            owner = after;
            lent.map_err(gone)?;
        }
        let (now, tag) = (owner.now, owner.tag());
        if let Err(error) = owner.drive.submit(now, tag, StoreRequest::Read { lpid, offset, frames }) {
            owner.give_back(frames);
            return Err(error.into());
        }
        let (mut owner, ended) = self.dispatcher.wait(owner, tag);
        let read = match ended {
            // The drive may still write to the frames.
            Err(stopped) => return Err(gone(stopped)),
            Ok(read) => read.map(|facts| facts.expect("a page that is read has facts")),
        };
        if let Ok(facts) = read {
            let count = buffer.len().min(facts.bytes.saturating_sub(offset) as usize);
            for (to, frame) in buffer[..count].chunks_mut(BLOCK_BYTES).zip(&*frames) {
                to.copy_from_slice(&owner.drive.frames().bytes(*frame)[..to.len()]);
            }
        }
        owner.give_back(frames);
        Ok(read?)
    }
}

impl<M: Media> BlockingStore for PageStore<M> {
    fn open_session(&self, id: SessionId) -> Result<(Session, u64), StoreFailure> {
        Ok(self.dispatcher.own().map_err(gone)?.drive.open_session(id)?)
    }

    fn close_session(&self, session: Session, forget: bool) -> Result<(), StoreFailure> {
        let mut owner = self.dispatcher.own().map_err(gone)?;
        let now = owner.now;
        owner.drive.close_session(now, session, forget)?;
        // What was staged gives room to others.
        owner.wake_others();
        Ok(())
    }

    fn stage(
        &self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure> {
        let mut owner = self.dispatcher.own().map_err(gone)?;
        let now = owner.now;
        match owner.drive.stage(now, session, wsn, lpid, change, if_version) {
            Err(StoreError::Busy) => {}
            staged => return Ok(staged?),
        }
        let stage = |owned: &mut Owned<PageFtl<M>>| match owned
            .drive
            .stage(owned.now, session, wsn, lpid, change, if_version)
        {
            Err(StoreError::Busy) => owned.is_there_none(),
            staged => Until::Found(staged),
        };
        let staged = self.dispatcher.wait_until(owner, 0, stage).1;
        Ok(staged.map_err(gone)??)
    }

    fn commit(&self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure> {
        self.wait(StoreRequest::Commit { session, wsn, durability }).map(drop)
    }

    fn abort(&self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        let mut owner = self.dispatcher.own().map_err(gone)?;
        let now = owner.now;
        owner.drive.abort(now, session, wsn)?;
        owner.wake_others();
        Ok(())
    }

    fn read(&self, lpid: u64, offset: u32, buffer: &mut [u8]) -> Result<PageFacts, StoreFailure> {
        let mut frames = FRAMES.take();
        let read = self.read_with(lpid, offset, buffer, &mut frames);
        frames.clear();
        FRAMES.set(frames);
        read
    }

    fn stat(&self, lpid: u64) -> Result<PageFacts, StoreFailure> {
        self.wait(StoreRequest::Stat { lpid }).map(|facts| facts.expect("a page that is there has facts"))
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure> {
        let owner = self.dispatcher.own().map_err(gone)?;
        let (mut found, mut next) = (Vec::new(), from);
        let list = |owned: &mut Owned<PageFtl<M>>| match owned.drive.list(next..=u64::MAX, most, &mut found) {
            Ok(()) => Until::Found(Ok(())),
            Err(ListBreak::Lost { from }) => Until::Found(Err(StoreError::Unrecovered { lpid: from })),
            Err(ListBreak::Waits { from }) => {
                next = from;
                Until::Drive
            }
        };
        self.dispatcher.wait_until(owner, 0, list).1.map_err(gone)??;
        Ok(found)
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        self.wait(StoreRequest::Sync).map(drop)
    }

    fn facts(&self) -> Result<StoreFacts, StoreFailure> {
        let owner = self.dispatcher.own().map_err(gone)?;
        let drive = &owner.drive;
        Ok(StoreFacts {
            pages: drive.pages(),
            used_bytes: drive.used_bytes(),
            capacity_bytes: drive.capacity_bytes(),
            page_bytes_max: drive.page_bytes_max(),
        })
    }
}
