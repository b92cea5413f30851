//! A key-value drive that one thread has open: each request is waited for.

use crate::failure::Failure;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Time};
use openftl_files::PaceClock;
use openftl_media::Media;
use openftl_parts::{Durability, Target};
use openftl_values::payload::gathered;
use openftl_values::{
    Condition, Facts, Ftl, Key, Value, ValueDone, ValueError, ValueFtl, ValueInfo, ValueRequest, ValueTarget,
    keys_of_list,
};

/// Frames that a value is read to, unless it turns out to be longer.
const FRAMES: usize = 4;

/// Frames that keys are listed to.
const LIST_FRAMES: usize = 16;

/// See the module.
pub struct ValueStore<M: Media> {
    drive: ValueFtl<M>,
    clock: PaceClock,
    next_tag: u64,
    done: Vec<ValueDone>,
}

impl<M: Media> ValueStore<M> {
    /// Takes over a drive, with the clock that it was opened with.
    #[must_use]
    pub fn new(drive: ValueFtl<M>, clock: PaceClock) -> ValueStore<M> {
        ValueStore { drive, clock, next_tag: 0, done: Vec::new() }
    }

    /// Gives the drive back, with its clock.
    #[must_use]
    pub fn into_parts(self) -> (ValueFtl<M>, PaceClock) {
        (self.drive, self.clock)
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &ValueFtl<M> {
        &self.drive
    }

    /// The same, to change what is not asked of it by requests.
    pub fn drive_mut(&mut self) -> &mut ValueFtl<M> {
        &mut self.drive
    }

    /// The time of the drive.
    pub fn now(&mut self) -> Time {
        self.clock.now()
    }

    /// What the drive is like.
    #[must_use]
    pub fn info(&self) -> ValueInfo {
        self.drive.info()
    }

    /// Gives a key a value. Returns whether the key is new.
    ///
    /// # Errors
    /// As of [`ValueRequest::Store`].
    pub fn store(
        &mut self,
        key: Key,
        value: &[u8],
        condition: Condition,
        durability: Durability,
    ) -> Result<bool, ValueError> {
        let pieces = [value];
        let request = ValueRequest::Store { key, value: Value::Pieces(&pieces), condition, durability };
        self.wait(request).map(|facts| facts.keys > 0)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As of [`ValueRequest::Retrieve`].
    pub fn retrieve(&mut self, key: Key) -> Result<Vec<u8>, ValueError> {
        let mut frames = FRAMES;
        loop {
            let frames_given = self.frames(frames);
            let read = self.wait(ValueRequest::Retrieve { key, frames: &frames_given });
            let value = read.map(|facts| self.bytes(&frames_given, facts.bytes as usize));
            frames_given.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
            match value? {
                Ok(value) => return Ok(value),
                Err(needed) => frames = needed,
            }
        }
    }

    /// So many bytes of frames, or how many frames these would take.
    fn bytes(&self, frames: &[Frame], length: usize) -> Result<Vec<u8>, usize> {
        let needed = length.div_ceil(BLOCK_BYTES);
        if needed > frames.len() {
            return Err(needed);
        }
        Ok(gathered(self.drive.frames(), &frames[..needed], length))
    }

    /// Bytes of the value of a key.
    ///
    /// # Errors
    /// As of [`ValueRequest::Exist`].
    pub fn exist(&mut self, key: Key) -> Result<u32, ValueError> {
        self.wait(ValueRequest::Exist { key }).map(|facts| facts.bytes)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As of [`ValueRequest::Delete`].
    pub fn delete(&mut self, key: Key, durability: Durability) -> Result<(), ValueError> {
        self.wait(ValueRequest::Delete { key, durability }).map(|_| ())
    }

    /// Keys in their order: from `from` on, or those behind it, `most` at most, and no more than some thousands. None: there are no more.
    ///
    /// # Errors
    /// As of [`ValueRequest::List`].
    pub fn list(&mut self, from: Option<Key>, is_behind: bool, most: usize) -> Result<Vec<Key>, ValueError> {
        // Each key takes at least four bytes, and one may be passed over.
        let bytes = (LIST_FRAMES * BLOCK_BYTES).min(4 + most.saturating_add(1).saturating_mul(20)) as u32;
        let frames = self.frames(LIST_FRAMES);
        let listed = self.wait(ValueRequest::List { from, bytes, frames: &frames });
        let listed = listed.map(|facts| self.bytes(&frames, facts.bytes as usize).expect("they have all of it"));
        frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
        let keys = keys_of_list(&listed?).expect("the drive writes lists").into_iter();
        Ok(keys.filter(|key| !(is_behind && Some(*key) == from)).take(most).collect())
    }

    /// Waits until all that was stored and deleted is durable.
    ///
    /// # Errors
    /// If the drive takes no more writes.
    pub fn flush(&mut self) -> Result<(), ValueError> {
        self.wait(ValueRequest::Flush).map(|_| ())
    }

    /// Stops the drive: all is durable.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn close(mut self) -> Result<M, Failure> {
        self.drive.close(&mut self.clock).map_err(Failure::failed)
    }

    /// Lets the drive work until something has ended. For hosts with many requests under way, which they begin by [`ValueStore::drive_mut`].
    ///
    /// # Panics
    /// If nothing will ever end: a defect of the drive, or nothing is under way.
    pub fn work(&mut self) -> Vec<ValueDone> {
        self.poll();
        while self.done.is_empty() {
            self.step();
        }
        std::mem::take(&mut self.done)
    }

    fn frames(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
            self.step();
        }
        frames
    }

    /// Begins a request, and waits until it has ended.
    fn wait(&mut self, request: ValueRequest<'_>) -> Result<Facts, ValueError> {
        self.next_tag += 1;
        let tag = self.next_tag;
        loop {
            let now = self.clock.now();
            match self.drive.submit(now, tag, request) {
                Err(ValueError::Busy) => self.step(),
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        loop {
            self.poll();
            if let Some(at) = self.done.iter().position(|done| done.tag == tag) {
                return self.done.swap_remove(at).result;
            }
            self.step();
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
