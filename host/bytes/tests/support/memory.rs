//! A drive that is a piece of memory, in as awkward a temper as a test wants: it may finish requests late, out of order,
//! refuse when its queue is full, hold everything back until told, and fail on chosen blocks. What it has acknowledged
//! and what a flush has made durable are two images, so that a missing flush can be seen.

use openftl_parts::words::Handle;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Frames, Nanos, Time};
use openftl_parts::target::{BlockTarget, Done, Durability, IoError, ObjectError, Request, Target};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// When requests take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Temper {
    /// When submitted.
    Instant,
    /// At a random moment within this span; so, later ones often first.
    Shuffled { seed: u64, within: Nanos },
}

/// Switches that a test throws while the drive is being served, and what it may look at.
#[derive(Default, Debug)]
pub struct Switches {
    /// Nothing finishes while this is set.
    pub held: AtomicBool,
    /// The drive takes no more writes.
    pub read_only: AtomicBool,
    /// Requests submitted so far.
    pub submitted: AtomicU64,
    /// Writes, in blocks, that took effect.
    pub blocks_written: AtomicU64,
    /// Flushes that took effect.
    pub flushes: AtomicU64,
    /// Blocks acknowledged and not durable.
    pub volatile: AtomicU64,
}

enum Deed {
    Read { first: u64, frames: Vec<Frame> },
    Write { first: u64, frames: Vec<Frame>, durability: Durability },
    WriteUncorrectable { first: u64, frames: Vec<Frame>, durability: Durability },
    Trim { first: u64, blocks: u64, durability: Durability },
    Flush,
}

struct Pending {
    tag: u64,
    due: Time,
    deed: Deed,
}

pub struct Memory {
    frames: Frames,
    data: Vec<u8>,
    uncorrectable: Vec<bool>,
    volatile: Vec<bool>,
    temper: Temper,
    chance: Xoshiro256PlusPlus,
    pending: Vec<Pending>,
    ended: Vec<Done>,
    queue_max: usize,
    /// Under which handle each write was submitted, with its blocks.
    pub handles: Vec<(Handle, u64)>,
    /// A block that cannot be read.
    pub lost_block: Option<u64>,
    pub switches: Arc<Switches>,
}

impl Memory {
    pub fn new(blocks: usize, frames: usize, temper: Temper) -> Memory {
        let seed = if let Temper::Shuffled { seed, .. } = temper { seed } else { 0 };
        Memory {
            frames: Frames::new(frames, 0, 16),
            data: vec![0; blocks * BLOCK_BYTES],
            uncorrectable: vec![false; blocks],
            volatile: vec![false; blocks],
            temper,
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            pending: Vec::new(),
            handles: Vec::new(),
            ended: Vec::new(),
            queue_max: 64,
            lost_block: None,
            switches: Arc::default(),
        }
    }

    /// Whether the host holds no frame and the drive has nothing to do.
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_empty() && self.frames.available(FrameForm::Bytes) == self.frames.len()
    }

    pub fn data(&self) -> &[u8] {
        &self.data
    }

    fn block(&mut self, block: u64) -> &mut [u8] {
        &mut self.data[block as usize * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    fn mark(&mut self, block: u64, durability: Durability) {
        let volatile = durability == Durability::Volatile;
        let was = std::mem::replace(&mut self.volatile[block as usize], volatile);
        let change = u64::from(volatile).wrapping_sub(u64::from(was));
        self.switches.volatile.fetch_add(change, Ordering::SeqCst);
    }

    fn read(&mut self, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        for (block, frame) in (first..).zip(frames) {
            if self.lost_block == Some(block) {
                return Err(IoError::Unrecovered { block });
            }
            if self.uncorrectable[block as usize] {
                return Err(IoError::Uncorrectable { block });
            }
            let bytes = &self.data[block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            self.frames.bytes_mut(*frame).copy_from_slice(bytes);
        }
        Ok(())
    }

    fn write(&mut self, first: u64, frames: &[Frame], durability: Durability) {
        for (block, frame) in (first..).zip(frames) {
            self.data[block as usize * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(self.frames.bytes(*frame));
            self.uncorrectable[block as usize] = false;
            self.frames.release(*frame);
            self.mark(block, durability);
        }
        self.switches.blocks_written.fetch_add(frames.len() as u64, Ordering::SeqCst);
    }

    fn write_uncorrectable(&mut self, first: u64, frames: &[Frame], durability: Durability) {
        self.write(first, frames, durability);
        self.uncorrectable[first as usize..][..frames.len()].fill(true);
    }

    fn trim(&mut self, first: u64, blocks: u64, durability: Durability) {
        for block in first..first + blocks {
            self.block(block).fill(0);
            self.uncorrectable[block as usize] = false;
            self.mark(block, durability);
        }
    }

    fn flush(&mut self) {
        self.volatile.fill(false);
        self.switches.volatile.store(0, Ordering::SeqCst);
        self.switches.flushes.fetch_add(1, Ordering::SeqCst);
    }

    fn carry_out(&mut self, deed: &Deed) -> Result<(), IoError> {
        match deed {
            Deed::Read { first, frames } => return self.read(*first, frames),
            Deed::Write { first, frames, durability } => self.write(*first, frames, *durability),
            Deed::WriteUncorrectable { first, frames, durability } => {
                self.write_uncorrectable(*first, frames, *durability);
            }
            Deed::Trim { first, blocks, durability } => self.trim(*first, *blocks, *durability),
            Deed::Flush => self.flush(),
        }
        Ok(())
    }
}

impl Target for Memory {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        if self.switches.held.load(Ordering::SeqCst) {
            return;
        }
        done.append(&mut self.ended);
        self.pending.sort_by_key(|pending| std::cmp::Reverse(pending.due));
        while let Some(pending) = self.pending.pop_if(|pending| pending.due <= now) {
            let result = self.carry_out(&pending.deed);
            done.push(Done { tag: pending.tag, result, at: pending.due });
        }
    }

    fn next_due(&self) -> Option<Time> {
        if self.switches.held.load(Ordering::SeqCst) {
            return None;
        }
        let ended = self.ended.iter().map(|done| done.at);
        self.pending.iter().map(|pending| pending.due).chain(ended).min()
    }

    fn is_read_only(&self) -> bool {
        self.switches.read_only.load(Ordering::SeqCst)
    }
}

impl BlockTarget for Memory {
    fn blocks(&self) -> u64 {
        (self.data.len() / BLOCK_BYTES) as u64
    }

    fn payload_form(&self) -> FrameForm {
        FrameForm::Bytes
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        let capacity = self.blocks();
        let (first, blocks) = match request {
            Request::Read { first, frames }
            | Request::Write { first, frames, .. }
            | Request::WriteUncorrectable { first, frames, .. } => (first, frames.len() as u64),
            Request::Trim { first, blocks, .. } => (first, blocks),
            Request::Flush => (0, 1),
            Request::FlashAlloc { .. } => return Err(IoError::Object(ObjectError::NotKept)),
        };
        let too_long = blocks > 256 && !matches!(request, Request::Trim { .. });
        if blocks == 0 || too_long || first + blocks > capacity {
            return Err(IoError::OutOfRange { first, blocks, capacity });
        }
        if self.is_read_only() && !matches!(request, Request::Read { .. } | Request::Flush) {
            return Err(IoError::ReadOnly);
        }
        if self.pending.len() + self.ended.len() >= self.queue_max {
            return Err(IoError::QueueFull);
        }
        self.switches.submitted.fetch_add(1, Ordering::SeqCst);
        if let Request::Write { frames, handle, .. } = request {
            self.handles.push((handle, frames.len() as u64));
        }
        let Temper::Shuffled { within, .. } = self.temper else {
            let result = match request {
                Request::Read { first, frames } => self.read(first, frames),
                Request::Write { first, frames, durability, .. } => {
                    self.write(first, frames, durability);
                    Ok(())
                }
                Request::WriteUncorrectable { first, frames, durability } => {
                    self.write_uncorrectable(first, frames, durability);
                    Ok(())
                }
                Request::Trim { first, blocks, durability } => {
                    self.trim(first, blocks, durability);
                    Ok(())
                }
                Request::Flush => {
                    self.flush();
                    Ok(())
                }
                Request::FlashAlloc { .. } => unreachable!("refused above"),
            };
            self.ended.push(Done { tag, result, at: now });
            return Ok(());
        };
        let deed = match request {
            Request::Read { first, frames } => Deed::Read { first, frames: frames.to_vec() },
            Request::Write { first, frames, durability, .. } => {
                Deed::Write { first, frames: frames.to_vec(), durability }
            }
            Request::WriteUncorrectable { first, frames, durability } => {
                Deed::WriteUncorrectable { first, frames: frames.to_vec(), durability }
            }
            Request::Trim { first, blocks, durability } => Deed::Trim { first, blocks, durability },
            Request::Flush => Deed::Flush,
            Request::FlashAlloc { .. } => unreachable!("refused above"),
        };
        let due = now + Nanos(self.chance.next_u64() % within.0);
        self.pending.push(Pending { tag, due, deed });
        Ok(())
    }
}
