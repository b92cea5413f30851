//! A store of pages that one thread has open: each request is waited for.

use crate::failure::Failure;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm};
use openftl_files::PaceClock;
use openftl_media::Media;
use openftl_pages::{
    BlockingStore, Change, Ftl, PageFacts, PageFtl, Session, SessionId, StoreError, StoreFacts, StoreFailure,
    StoreRequest, StoreTarget,
};
use openftl_parts::{Durability, Target};

/// See the module.
pub struct PageStore<M: Media> {
    drive: PageFtl<M>,
    clock: PaceClock,
    next_tag: u64,
    done: Vec<openftl_pages::StoreDone>,
}

impl<M: Media> PageStore<M> {
    /// Takes over a drive, with the clock that it was opened with.
    #[must_use]
    pub fn new(drive: PageFtl<M>, clock: PaceClock) -> PageStore<M> {
        PageStore { drive, clock, next_tag: 0, done: Vec::new() }
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &PageFtl<M> {
        &self.drive
    }

    /// The same, to change what is not asked of it by requests.
    pub fn drive_mut(&mut self) -> &mut PageFtl<M> {
        &mut self.drive
    }

    /// The time of the drive.
    pub fn now(&mut self) -> openftl_core::Time {
        self.clock.now()
    }

    /// Opens a session. Returns it and the number of its last durable batch.
    ///
    /// # Errors
    /// As of [`StoreTarget::open_session`].
    pub fn open_session(&mut self, id: SessionId) -> Result<(Session, u64), StoreError> {
        self.drive.open_session(id)
    }

    /// Adds a change to a batch, and waits until there is room for it.
    ///
    /// # Errors
    /// As of [`StoreTarget::stage`].
    pub fn stage(&mut self, session: Session, wsn: u64, lpid: u64, change: Change<'_>) -> Result<(), StoreError> {
        self.stage_if(session, wsn, lpid, change, None)
    }

    /// The same, with the version that the page has to have.
    ///
    /// # Errors
    /// As of [`StoreTarget::stage`].
    pub fn stage_if(
        &mut self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreError> {
        loop {
            let now = self.clock.now();
            match self.drive.stage(now, session, wsn, lpid, change, if_version) {
                Err(StoreError::Busy) => self.step(),
                staged => return staged,
            }
        }
    }

    /// Commits a batch, and waits for that.
    ///
    /// # Errors
    /// As of [`StoreRequest::Commit`].
    pub fn commit(&mut self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreError> {
        self.wait(StoreRequest::Commit { session, wsn, durability }).map(|_| ())
    }

    /// Waits until all that was committed is durable.
    ///
    /// # Errors
    /// If the drive takes no more writes.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.wait(StoreRequest::Sync).map(|_| ())
    }

    /// Length and version of a page.
    ///
    /// # Errors
    /// As of [`StoreRequest::Stat`].
    pub fn stat(&mut self, lpid: u64) -> Result<PageFacts, StoreError> {
        self.wait(StoreRequest::Stat { lpid }).map(|facts| facts.expect("a page that is there has facts"))
    }

    /// All bytes of a page.
    ///
    /// # Errors
    /// As of [`StoreRequest::Read`].
    pub fn read(&mut self, lpid: u64) -> Result<Vec<u8>, StoreError> {
        let blocks = (self.drive.page_bytes_max() as usize).div_ceil(BLOCK_BYTES);
        let mut frames: Vec<Frame> = Vec::new();
        while !self.drive.frames_mut().acquire_many(FrameForm::Bytes, blocks, &mut frames) {
            self.step();
        }
        let read = self.wait(StoreRequest::Read { lpid, offset: 0, frames: &frames });
        let bytes = read.map(|facts| {
            let length = facts.expect("a page that is there has facts").bytes as usize;
            let mut bytes = Vec::with_capacity(length);
            for frame in &frames[..length.div_ceil(BLOCK_BYTES)] {
                let count = BLOCK_BYTES.min(length - bytes.len());
                bytes.extend_from_slice(&self.drive.frames().bytes(*frame)[..count]);
            }
            bytes
        });
        frames.into_iter().for_each(|frame| self.drive.frames_mut().release(frame));
        bytes
    }

    /// Stops the drive: all is durable.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn close(mut self) -> Result<M, Failure> {
        self.drive.close(&mut self.clock).map_err(Failure::failed)
    }

    /// Begins a request, and waits until it has ended.
    fn wait(&mut self, request: StoreRequest<'_>) -> Result<Option<PageFacts>, StoreError> {
        self.next_tag += 1;
        let (tag, now) = (self.next_tag, self.clock.now());
        self.drive.submit(now, tag, request)?;
        loop {
            if let Some(at) = self.done.iter().position(|done| done.tag == tag) {
                return self.done.swap_remove(at).result;
            }
            self.poll();
            if self.done.iter().all(|done| done.tag != tag) {
                self.step();
            }
        }
    }

    fn poll(&mut self) {
        let now = self.clock.now();
        self.drive.poll(now, &mut self.done);
    }

    /// Waits until something is due, and lets the drive work.
    ///
    /// # Panics
    /// If nothing will ever be: a defect of the drive.
    fn step(&mut self) {
        let due = self.drive.next_due();
        let due = due.unwrap_or_else(|| panic!("nothing is due: {}", Ftl::describe(&self.drive)));
        self.clock.wait_until(due);
        self.poll();
    }
}

impl<M: Media> BlockingStore for PageStore<M> {
    fn open_session(&mut self, id: SessionId) -> Result<(Session, u64), StoreFailure> {
        Ok(self.drive.open_session(id)?)
    }

    fn close_session(&mut self, session: Session, forget: bool) -> Result<(), StoreFailure> {
        let now = self.clock.now();
        Ok(self.drive.close_session(now, session, forget)?)
    }

    fn stage(
        &mut self,
        session: Session,
        wsn: u64,
        lpid: u64,
        change: Change<'_>,
        if_version: Option<u64>,
    ) -> Result<(), StoreFailure> {
        Ok(self.stage_if(session, wsn, lpid, change, if_version)?)
    }

    fn commit(&mut self, session: Session, wsn: u64, durability: Durability) -> Result<(), StoreFailure> {
        Ok(PageStore::commit(self, session, wsn, durability)?)
    }

    fn abort(&mut self, session: Session, wsn: u64) -> Result<(), StoreFailure> {
        let now = self.clock.now();
        Ok(self.drive.abort(now, session, wsn)?)
    }

    fn read(&mut self, lpid: u64) -> Result<Vec<u8>, StoreFailure> {
        Ok(PageStore::read(self, lpid)?)
    }

    fn stat(&mut self, lpid: u64) -> Result<PageFacts, StoreFailure> {
        Ok(PageStore::stat(self, lpid)?)
    }

    fn list(&mut self, from: u64, most: usize) -> Result<Vec<(u64, u32)>, StoreFailure> {
        Ok(self.drive.list(from, most))
    }

    fn sync(&mut self) -> Result<(), StoreFailure> {
        Ok(PageStore::sync(self)?)
    }

    fn facts(&mut self) -> Result<StoreFacts, StoreFailure> {
        let drive = &self.drive;
        Ok(StoreFacts {
            pages: drive.pages(),
            used_bytes: drive.used_bytes(),
            capacity_bytes: drive.capacity_bytes(),
            page_bytes_max: drive.page_bytes_max(),
        })
    }
}
