//! A file system that is the model, and whose log on segments has one block for each change: the number of an image of the model, which is kept
//! beside the drive. What a power cut leaves of the log is thus real, and what it means is simple.

use openftl_alfs::operation::{Operation, Reply};
use openftl_alfs::{Data, FileSystem, FileTime, Inode, Refusal, RenameHow, Ticket};
use openftl_core::{BLOCK_BYTES, Clock, Frame, Time};
use openftl_parts::target::{BlockTarget, Durability, Request, Target};
use openftl_parts::words::Handle;
use openftl_sim::FileModel;
use openftl_sim::file_crash_points::{Mounts, SegmentDrive};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Marks a block of the log.
const MAGIC: u64 = 0x616C_6673_2D6C_6F67;

/// What is wrong with a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Nothing.
    None,
    /// A sync is over before it has reached the device.
    SyncsEarly,
    /// A name that was removed is there again, if the power is cut before the next change.
    Resurrects,
    /// A rename is two changes: one more name, and one name less.
    TearsRenames,
    /// Writes are kept in memory until the next sync but one.
    ForgetsWrites,
    /// A mount writes that there is nothing, and then that there is what it found.
    MountsInTwoSteps,
    /// A file system that was found on a drive never ends a sync.
    Hangs,
    /// What is unmounted is not durable, if nothing has synced it.
    UnmountsVolatile,
}

/// Makes such file systems.
pub struct Double {
    lie: Lie,
    images: Rc<RefCell<BTreeMap<u64, FileModel>>>,
    next: Rc<Cell<u64>>,
}

impl Double {
    pub fn new(lie: Lie) -> Double {
        Double { lie, images: Rc::default(), next: Rc::new(Cell::new(1)) }
    }

    fn volume(&self, drive: SegmentDrive, model: FileModel, head: u64) -> Volume {
        Volume {
            drive,
            lie: self.lie,
            images: self.images.clone(),
            next: self.next.clone(),
            model,
            synced: None,
            head,
            last: 0,
            tag: 0,
            flushes: BTreeMap::new(),
            roll: None,
            was_found: false,
        }
    }
}

/// See the module.
pub struct Volume {
    drive: SegmentDrive,
    lie: Lie,
    images: Rc<RefCell<BTreeMap<u64, FileModel>>>,
    next: Rc<Cell<u64>>,
    model: FileModel,
    /// The model at the last sync.
    synced: Option<FileModel>,
    /// The next block of the log.
    head: u64,
    /// The image that was written last.
    last: u64,
    tag: u64,
    /// Flushes by tag, whether they are over, each with the ticket of its sync.
    flushes: BTreeMap<u64, (Option<Ticket>, bool)>,
    /// The flush before the log goes on in another segment.
    roll: Option<u64>,
    was_found: bool,
}

impl Volume {
    fn segment_blocks(&self) -> u64 {
        self.drive.segment_blocks().expect("a drive of segments")
    }

    fn flush(&mut self, now: Time, ticket: Option<Ticket>) -> u64 {
        self.tag += 1;
        self.drive.submit(now, self.tag, Request::Flush).expect("a drive takes a flush");
        self.flushes.insert(self.tag, (ticket, false));
        self.tag
    }

    /// A frame, once the log can go on.
    fn room(&mut self, now: Time, blocks: u64) -> Option<Vec<Frame>> {
        let capacity = self.segment_blocks();
        if self.head % capacity > capacity - 4 {
            let Some(flush) = self.roll else {
                self.roll = Some(self.flush(now, None));
                return None;
            };
            if !self.flushes[&flush].1 {
                return None;
            }
            self.flushes.remove(&flush);
            self.roll = None;
            let segments = self.drive.blocks() / capacity;
            let segment = (self.head / capacity + 1) % segments;
            self.head = segment * capacity;
            self.tag += 1;
            let trim = Request::Trim { first: self.head, blocks: capacity, durability: Durability::Volatile };
            self.drive.submit(now, self.tag, trim).expect("a segment can be trimmed");
        }
        let (form, mut frames) = (self.drive.payload_form(), Vec::new());
        self.drive.frames_mut().acquire_many(form, blocks as usize, &mut frames).then_some(frames)
    }

    /// Adds an image to the log.
    fn write(&mut self, now: Time, frame: Frame, image: FileModel, durability: Durability) {
        let number = self.next.get();
        self.next.set(number + 1);
        self.images.borrow_mut().insert(number, image);
        let bytes: &mut [u8; BLOCK_BYTES] = self.drive.frames_mut().bytes_mut(frame);
        bytes.fill(0);
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        self.tag += 1;
        let write = Request::Write { first: self.head, frames: &[frame], durability, handle: Handle::NONE };
        self.drive.submit(now, self.tag, write).expect("the log can be written");
        (self.head, self.last) = (self.head + 1, number);
    }

    /// A rename that was done by half: the file has both names.
    fn torn(&self, clock: FileTime, operation: &Operation<'_>) -> Option<FileModel> {
        let Operation::Rename { from, from_name, to, to_name, how: RenameHow::Replace } = *operation else {
            return None;
        };
        let mut model = self.model.clone();
        let inode = model.named(from, from_name)?;
        let link = Operation::Link { inode, parent: to, name: to_name };
        matches!(model.attempt(Time::ZERO, clock, Ticket(0), &link), Some(Ok(_))).then_some(model)
    }

    fn wait(&mut self, clock: &mut dyn Clock, tag: u64) {
        while !self.flushes[&tag].1 {
            let now = clock.now();
            if !self.poll(now) {
                clock.wait_until(self.next_due().expect("a flush ends"));
            }
        }
        self.flushes.remove(&tag);
    }
}

impl FileSystem for Volume {
    fn ticket(&mut self) -> Ticket {
        self.model.ticket()
    }

    fn attempt(
        &mut self,
        now: Time,
        clock: FileTime,
        ticket: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>> {
        if *operation == Operation::Sync {
            if self.lie == Lie::SyncsEarly {
                return Some(Ok(Reply::Done));
            }
            if self.lie == Lie::Hangs && self.was_found {
                return None;
            }
            let Some((tag, is_over)) = self
                .flushes
                .iter()
                .find(|(_, (of, _))| *of == Some(ticket))
                .map(|(tag, (_, is_over))| (*tag, *is_over))
            else {
                self.synced = Some(self.model.clone());
                self.flush(now, Some(ticket));
                return None;
            };
            return is_over.then(|| {
                self.flushes.remove(&tag);
                Ok(Reply::Done)
            });
        }
        let is_refused = !self.model.refusals(operation).is_empty();
        let reads = matches!(
            operation,
            Operation::Lookup { .. }
                | Operation::Attributes { .. }
                | Operation::ReadLink { .. }
                | Operation::Read { .. }
                | Operation::Seek { .. }
                | Operation::ReadDirectory { .. }
                | Operation::GetXattr { .. }
                | Operation::ListXattr { .. }
                | Operation::Room
        );
        if is_refused || reads {
            return self.model.attempt(now, clock, ticket, operation);
        }
        let torn = self.torn(clock, operation).filter(|_| self.lie == Lie::TearsRenames);
        let mut frames = self.room(now, 1 + u64::from(torn.is_some()))?;
        if let Some(torn) = torn {
            let frame = frames.pop().expect("there is room for two");
            self.write(now, frame, torn, Durability::Durable);
        }
        let before = self.model.clone();
        let reply = self.model.attempt(now, clock, ticket, operation);
        let is_unlink = matches!(operation, Operation::Unlink { .. });
        let is_write = matches!(operation, Operation::Write { .. });
        let image = match (self.lie, &self.synced) {
            (Lie::Resurrects, _) if is_unlink => before,
            (Lie::ForgetsWrites, Some(synced)) if is_write => synced.clone(),
            _ => self.model.clone(),
        };
        let frame = frames.pop().expect("there is room");
        self.write(now, frame, image, Durability::Volatile);
        reply
    }

    fn abandon(&mut self, _ticket: Ticket) {}

    fn poll(&mut self, now: Time) -> bool {
        let mut done = Vec::new();
        self.drive.poll(now, &mut done);
        for ended in &done {
            ended.result.expect("requests of a log do not fail");
            if let Some((_, is_over)) = self.flushes.get_mut(&ended.tag) {
                *is_over = true;
            }
        }
        !done.is_empty()
    }

    fn next_due(&self) -> Option<Time> {
        self.drive.next_due()
    }

    fn data(&self, data: &Data, piece: &mut dyn FnMut(&[u8])) {
        self.model.data(data, piece);
    }

    fn give_back(&mut self, data: Data) {
        self.model.give_back(data);
    }

    fn hold(&mut self, inode: Inode, times: u64) {
        self.model.hold(inode, times);
    }

    fn release(&mut self, inode: Inode, times: u64) -> bool {
        self.model.release(inode, times)
    }
}

/// The numbers of the images that a segment has, by block.
fn log_of(drive: &mut SegmentDrive, clock: &mut dyn Clock, segment: u64, written: u32) -> Vec<(u64, u64)> {
    let (capacity, form, mut found) = (drive.segment_blocks().expect("segments"), drive.payload_form(), Vec::new());
    for block in segment * capacity..segment * capacity + u64::from(written) {
        let mut frames = Vec::new();
        assert!(drive.frames_mut().acquire_many(form, 1, &mut frames), "there is a frame");
        drive.submit(clock.now(), 1, Request::Read { first: block, frames: &frames }).expect("a block can be read");
        let mut done = Vec::new();
        loop {
            drive.poll(clock.now(), &mut done);
            if !done.is_empty() {
                break;
            }
            clock.wait_until(drive.next_due().expect("a read ends"));
        }
        done[0].result.expect("a block can be read");
        let (words, _) = drive.frames().bytes(frames[0]).as_chunks();
        if u64::from_le_bytes(words[0]) == MAGIC {
            found.push((block, u64::from_le_bytes(words[1])));
        }
        drive.frames_mut().release(frames[0]);
    }
    found
}

impl Mounts for Double {
    type Volume = Volume;

    fn make(&self, drive: SegmentDrive, clock: &mut dyn Clock) -> Result<Volume, String> {
        let now = FileTime { seconds: 1_600_000_000, nanoseconds: 0 };
        let mut volume = self.volume(drive, FileModel::new(0o755, now), 0);
        let frames = volume.room(clock.now(), 1).expect("a new drive has room");
        let image = volume.model.clone();
        volume.write(clock.now(), frames[0], image, Durability::Volatile);
        let flush = volume.flush(clock.now(), None);
        volume.wait(clock, flush);
        Ok(volume)
    }

    fn mount(&self, mut drive: SegmentDrive, clock: &mut dyn Clock) -> Result<Volume, String> {
        let capacity = drive.segment_blocks().expect("segments");
        let mut last = None;
        for segment in 0..drive.blocks() / capacity {
            let written = drive.zones().board().zone(segment as u32).written;
            for (_, number) in log_of(&mut drive, clock, segment, written) {
                let head = segment * capacity + u64::from(written);
                last = last.max(Some((number, head)));
            }
        }
        let (number, head) = last.ok_or("there is no file system")?;
        let model = self.images.borrow()[&number].after_power_cut();
        // A full segment is behind its last block, which is of the next one.
        let head = if head % capacity == 0 { head - 1 } else { head };
        let mut volume = self.volume(drive, model, head);
        (volume.was_found, volume.last) = (true, number);
        if self.lie == Lie::MountsInTwoSteps {
            let nothing = FileModel::new(0o755, FileTime::default());
            for image in [nothing, volume.model.clone()] {
                let frames = loop {
                    match volume.room(clock.now(), 1) {
                        Some(frames) => break frames,
                        None => {
                            let roll = volume.roll.expect("it waits for that");
                            while !volume.flushes[&roll].1 {
                                if !volume.poll(clock.now()) {
                                    clock.wait_until(volume.next_due().expect("a flush ends"));
                                }
                            }
                        }
                    }
                };
                volume.write(clock.now(), frames[0], image, Durability::Volatile);
                let flush = volume.flush(clock.now(), None);
                volume.wait(clock, flush);
            }
        }
        Ok(volume)
    }

    fn unmount(&self, mut volume: Volume, clock: &mut dyn Clock) -> Result<SegmentDrive, String> {
        if self.lie != Lie::UnmountsVolatile {
            let flush = volume.flush(clock.now(), None);
            volume.wait(clock, flush);
            return Ok(volume.drive);
        }
        // As if nothing had been written since the last sync.
        if let Some(synced) = volume.synced.take() {
            self.images.borrow_mut().insert(volume.last, synced);
        }
        let flush = volume.flush(clock.now(), None);
        volume.wait(clock, flush);
        Ok(volume.drive)
    }
}
