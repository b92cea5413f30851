//! The smallest FTL of the kit: one log of blocks, which grows at its end. `docs/write-an-ftl.md` walks through it.
//!
//! ```text
//!   log     [ block 0 …                                  safe │ pending             ] end
//!   flash   [ chunk 17, full ][ chunk 4, full ][ chunk 9, open ]
//!   memory                                                    [ frames              ]
//!   area    [ index: 17, 4, 9 and how much of each ][ tail: what was pending at the last flush ]
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

use openftl_blocks::block_ftl::{BlockFtl, ROUNDS_MAX};
use openftl_blocks::reading::BlockPlace;
use openftl_blocks::{CheckReport, Ftl};
use openftl_core::{BLOCK_BYTES, ChunkId, Clock, Frame, FrameForm, Frames, Geometry, PuId, Time};
use openftl_media::Media;
use openftl_parts::flash::Flash;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::shares::TenantChunks;
use openftl_parts::flash::units::{OpenId, UnitId, Units};
use openftl_parts::journal::Journal;
use openftl_parts::target::{BlockTarget, Done, Durability, IoError, Request, Target};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{Access, Handle, Phase, Purpose, ReadOnlyReason, TenantNote};
use openftl_parts::{Config, OpenError};
use std::collections::VecDeque;
use std::ops::Range;

/// What a superblock says of drives of this FTL. Those that do not know the number do not open them.
const NOTE: TenantNote = TenantNote { kind: 0b100, words: [0; 3], more: 0 };

/// Chunks that the index, a block of the area, has room for.
const CHUNKS_MAX: usize = BLOCK_BYTES / 8 - 1;

/// The tag of the write of the area.
const OWN: u64 = u64::MAX;

/// Blocks of the log that follow each other in a chunk.
struct Piece {
    chunk: ChunkId,
    first: u64,
    blocks: u32,
}

/// The log: what it has of the flash, and what is on its way there.
#[derive(Default)]
struct Log {
    unit_blocks: u32,
    tail_max: usize,
    pieces: Vec<Piece>,
    /// The chunk of the last one, until it is closed.
    open: Option<OpenId>,
    /// Blocks before this one can be read from media, whatever happens. The others are pending.
    safe: u64,
    pending: VecDeque<Frame>,
    /// So many of them are on their way to the last chunk.
    submitted: usize,
    chunks: TenantChunks,
}

impl Log {
    fn new(geometry: &Geometry) -> Log {
        let unit_blocks = Units::whole_unit(geometry);
        Log { unit_blocks, tail_max: (geometry.mw_cunits + unit_blocks) as usize, ..Log::default() }
    }

    fn end(&self) -> u64 {
        self.safe + self.pending.len() as u64
    }

    fn place(&self, flash: &Flash, block: u64) -> BlockPlace {
        if let Some(index) = block.checked_sub(self.safe) {
            return BlockPlace::Frame(self.pending[index as usize]);
        }
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.first <= block) - 1];
        BlockPlace::Media(flash.format.ppa(piece.chunk, (block - piece.first) as u32))
    }

    /// Blocks that can be appended. Two chunks are kept for what a failed program leaves to be written again.
    fn room(&self, flash: &Flash) -> u64 {
        let free: u32 = (0..flash.geometry.groups).map(|group| flash.provisioning.tenant_share_left(group)).sum();
        let chunks = (free as usize).min(CHUNKS_MAX.saturating_sub(self.pieces.len())).saturating_sub(2);
        (chunks as u64 * u64::from(flash.geometry.blocks_per_chunk)).saturating_sub(self.pending.len() as u64)
    }

    /// Puts a block behind all others.
    fn push(&mut self, flash: &mut Flash, frame: Frame) {
        Oob { kind: BlockKind::Tenant, address: self.end(), sequence: 0 }.seal(&mut flash.frames, frame);
        self.pending.push_back(frame);
    }

    /// The chunk that the log goes on in: the last one, or another one when all has ended there.
    fn open_chunk(&mut self, flash: &mut Flash) -> Option<OpenId> {
        if self.open.is_none() && self.pieces.len() < CHUNKS_MAX {
            let free = |pu: &PuId| flash.provisioning.tenant_chunks_on_pu(*pu);
            let open = flash.open_tenant_chunk(flash.geometry.pu_ids().max_by_key(free)?)?;
            self.open = Some(open);
            self.pieces.push(Piece { chunk: flash.units.chunk(open).chunk, first: self.safe, blocks: 0 });
        }
        self.open.filter(|open| flash.units.room(*open) > 0)
    }
}

impl Log {
    /// Takes over what index and tail say.
    fn find(&mut self, ftl: &mut BlockFtl, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let index = self.read_area(0..1, ftl, clock)?[0];
        let bytes = ftl.flash.frames.bytes(index).to_vec();
        ftl.flash.frames.release(index);
        let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let mut next = || words.next().unwrap_or(0);
        let (pieces, tail) = (next(), next());
        for _ in 0..pieces {
            let (chunk, blocks) = (ChunkId(next()), next());
            let Some(found) = self.chunks.take(&mut ftl.flash, chunk) else {
                return Err(lost(format!("the index names {chunk:?}, which has nothing of the log")));
            };
            // Behind the blocks that count comes padding. The log goes on in another chunk.
            self.open = found.is_open.then(|| ftl.flash.units.open(chunk, found.write_pointer));
            self.open.inspect(|open| ftl.flash.pad_by(*open, ftl.flash.units.room(*open)));
            self.pieces.push(Piece { chunk, first: self.safe, blocks });
            self.safe += u64::from(blocks);
        }
        let tail = self.read_area(1..1 + u64::from(tail), ftl, clock)?;
        tail.into_iter().for_each(|frame| self.push(&mut ftl.flash, frame));
        Ok(())
    }

    fn read_area(
        &mut self,
        blocks: Range<u64>,
        ftl: &mut BlockFtl,
        clock: &mut dyn Clock,
    ) -> Result<Vec<Frame>, OpenError> {
        let wanted: Vec<u64> = blocks.collect();
        ftl.read_blocks(&wanted, clock, self)?.map_err(|error| lost(error.to_string()))
    }
}

impl Tenant for Log {
    fn chunks(&self) -> Option<&TenantChunks> {
        Some(&self.chunks)
    }

    fn chunks_mut(&mut self) -> Option<&mut TenantChunks> {
        Some(&mut self.chunks)
    }

    fn frames_needed(&self, _geometry: &Geometry) -> usize {
        3 * (1 + self.tail_max)
    }

    /// Whole units go to the medium.
    fn advance(&mut self, flash: &mut Flash, _journal: &mut Journal) {
        let unit = self.unit_blocks as usize;
        while self.pending.len() >= self.submitted + unit
            && flash.phase != Phase::Recovering
            && flash.may_program()
            && let Some(open) = self.open_chunk(flash)
        {
            let frames: Vec<Frame> = self.pending.range(self.submitted..self.submitted + unit).copied().collect();
            flash.write_unit(open, Purpose::Tenant, 0, &frames, self.unit_blocks);
            self.submitted += unit;
        }
    }

    fn unit_programmed(&mut self, _flash: &mut Flash, _unit: UnitId) {}

    fn unit_readable(&mut self, flash: &mut Flash, unit: UnitId) {
        let (piece, unit) = (self.pieces.last_mut().expect("it is open"), flash.units.unit(unit));
        // Behind one that failed it is written again.
        if unit.first == piece.blocks {
            piece.blocks += unit.count;
            self.safe += u64::from(unit.count);
            self.submitted -= unit.count as usize;
            self.pending.drain(..unit.count as usize).for_each(|frame| flash.frames.release(frame));
        }
    }

    /// The chunk is closed. Where the device would take more, it is filled.
    fn unit_failed(&mut self, flash: &mut Flash, unit: UnitId) {
        let open = flash.units.unit(unit).open;
        flash.pad_by(open, flash.units.room(open));
    }

    /// The log goes on in another chunk, where a program has failed with all that is pending.
    fn chunk_closed(&mut self, flash: &mut Flash, chunk: ChunkId) {
        if self.pieces.last().is_none_or(|piece| piece.chunk != chunk) {
            return self.chunks.closed(flash, chunk);
        }
        (self.open, self.submitted, flash.stirred) = (None, 0, true);
        if let Some(empty) = self.pieces.pop_if(|piece| piece.blocks == 0) {
            self.chunks.leave_closed(flash, empty.chunk);
        }
    }
}

/// A drive that is one log.
pub struct LogFtl<M: Media> {
    log: Log,
    /// Flushes by their tags, and the block up to which each has everything saved.
    flushes: VecDeque<(u64, u64)>,
    /// So many of them end with the write of the area that is under way.
    saving: usize,
    ftl: BlockFtl<M>,
}

impl<M: Media> LogFtl<M> {
    /// What was found and is not of the log is what a crash has left.
    fn ready(mut self, clock: &mut dyn Clock) -> Result<LogFtl<M>, OpenError> {
        self.log.release_found(&mut self.ftl.flash);
        self.ftl.wait_for_chunks(clock, &mut self.log)?;
        Ok(self)
    }

    /// Appends a block each of `frames`, which are the drive's from here on. Gives the number of the first one.
    ///
    /// # Errors
    /// If there is no room, or the drive takes no more writes. The frames stay the caller's.
    pub fn append(&mut self, frames: &[Frame]) -> Result<u64, IoError> {
        let (first, blocks) = (self.log.end(), frames.len() as u64);
        let capacity = first + self.log.room(&self.ftl.flash);
        match self.ftl.read_only_reason() {
            Some(_) => return Err(IoError::ReadOnly),
            None if first + blocks > capacity => return Err(IoError::OutOfRange { first, blocks, capacity }),
            None => {}
        }
        self.ftl.flash.statistics.host_blocks_written += blocks;
        frames.iter().for_each(|frame| self.log.push(&mut self.ftl.flash, *frame));
        self.ftl.flash.stirred = true;
        Ok(first)
    }

    /// Begins to read blocks of the log from `first` on.
    ///
    /// # Errors
    /// If the log ends before the last of them.
    pub fn read(&mut self, tag: u64, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        let (blocks, capacity) = (frames.len() as u64, self.log.end());
        if blocks == 0 || first + blocks > capacity {
            return Err(IoError::OutOfRange { first, blocks, capacity });
        }
        let log = &self.log;
        self.ftl.read_elsewhere(tag, 0, first as u32, frames, |flash, block| log.place(flash, block.into()));
        Ok(())
    }

    /// Begins to make durable what has been appended.
    pub fn flush(&mut self, tag: u64) {
        self.flushes.push_back((tag, self.log.end()));
    }

    /// Saves index and tail, if a flush waits for that and all that is not safe fits into the tail. Returns whether it has begun to.
    fn save(&mut self) -> Result<bool, IoError> {
        let (log, mut frames) = (&self.log, Vec::new());
        let tail = log.pending.len().min(log.tail_max);
        let end = log.safe + tail as u64;
        let is_stranded = log.open.is_none() && log.pending.len() > tail && log.chunks.leaving() == 0;
        if is_stranded && self.ftl.read_only_reason().is_none() {
            self.ftl.flash.turn_read_only(ReadOnlyReason::WornOut);
        }
        if self.saving == 0 && !self.flushes.is_empty() && self.ftl.read_only_reason().is_some() {
            return Err(IoError::ReadOnly);
        }
        let is_due = self.saving == 0 && self.flushes.front().is_some_and(|(_, flushed)| *flushed <= end);
        if !is_due || !self.ftl.flash.frames.acquire_many(FrameForm::Bytes, 1 + tail, &mut frames) {
            return Ok(false);
        }
        let pieces: Vec<&Piece> = log.pieces.iter().filter(|piece| piece.blocks > 0).collect();
        let words = pieces.iter().flat_map(|piece| [piece.chunk.0, piece.blocks]);
        let words = [pieces.len() as u32, tail as u32].into_iter().chain(words);
        let pool = &mut self.ftl.flash.frames;
        pool.zero(frames[0]);
        let bytes = pool.bytes_mut(frames[0]).chunks_exact_mut(4);
        bytes.zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        log.pending.iter().zip(&frames[1..]).for_each(|(from, to)| pool.copy(*from, *to));
        self.saving = self.flushes.iter().take_while(|(_, flushed)| *flushed <= end).count();
        let write = Request::Write { first: 0, frames: &frames, durability: Durability::Durable, handle: Handle::NONE };
        self.ftl.submit(self.ftl.flash.now, OWN, write).map(|()| true)
    }

    /// Flushes have ended.
    fn saved(&mut self, count: usize, result: Result<(), IoError>, done: &mut Vec<Done>) {
        let at = self.ftl.flash.now;
        done.extend(self.flushes.drain(..count).map(|(tag, _)| Done { tag, result, at }));
        self.saving = 0;
    }
}

impl<M: Media> Target for LogFtl<M> {
    type Done = Done;

    fn frames(&self) -> &Frames {
        &self.ftl.flash.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.ftl.flash.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "it works for ever, and no time passes: {}", self.describe());
            let from = done.len();
            self.ftl.poll_beside(now, done, &mut self.log);
            if let Some(at) = (from..done.len()).find(|at| done[*at].tag == OWN) {
                let result = done.remove(at).result;
                self.saved(self.saving, result, done);
            }
            match self.save() {
                Err(error) => self.saved(self.flushes.len(), Err(error), done),
                Ok(false) if !self.ftl.flash.stirred => break,
                Ok(_) => {}
            }
        }
        self.ftl.hand_over();
    }

    fn next_due(&self) -> Option<Time> {
        self.ftl.next_due()
    }

    fn is_read_only(&self) -> bool {
        self.ftl.is_read_only()
    }
}

impl<M: Media> Ftl for LogFtl<M> {
    type Media = M;
    type Shape = ();
    type Asked = ();

    fn format(media: M, config: Config, (): (), clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let mut log = Log::new(media.geometry());
        let config = config.beside(NOTE, 1 + log.tail_max as u32);
        let ftl = BlockFtl::format_beside(media, config, clock, &mut log)?;
        LogFtl { log, flushes: VecDeque::new(), saving: 0, ftl }.ready(clock)
    }

    /// The log ends where the last flush says.
    fn open_with(media: M, config: Config, (): (), access: Access, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let mut log = Log::new(media.geometry());
        let config = config.beside(NOTE, 1);
        let find = |ftl: &mut BlockFtl, log: &mut Log, clock: &mut dyn Clock| log.find(ftl, clock);
        let ftl = BlockFtl::open_beside(media, config, access, clock, &mut log, find)?;
        let drive = LogFtl { log, flushes: VecDeque::new(), saving: 0, ftl };
        if access == Access::Inspect { Ok(drive) } else { drive.ready(clock) }
    }

    fn block(&self) -> &BlockFtl<M> {
        &self.ftl
    }

    fn reset_statistics(&mut self) {
        self.ftl.reset_statistics();
    }

    fn describe(&self) -> String {
        let Log { pieces, open, safe, pending, submitted, .. } = &self.log;
        let (pieces, pending, flushes) = (pieces.len(), pending.len(), self.flushes.len());
        let log =
            format!("{safe} blocks in {pieces} chunks, {pending} pending, {submitted} of them submitted to {open:?}");
        format!("{log}, {flushes} flushes; {}", self.ftl.describe())
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        self.ftl.check_beside(clock, progress, &mut self.log)
    }

    fn crash(self) -> M {
        self.ftl.crash()
    }

    fn close(mut self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        let mut done = Vec::new();
        self.flush(0);
        self.poll(clock.now(), &mut done);
        while !self.flushes.is_empty() {
            clock.wait_until(self.next_due().ok_or(OpenError::Stopped)?);
            self.poll(clock.now(), &mut done);
        }
        if let Some(reason) = self.ftl.read_only_reason().filter(|_| done.iter().any(|done| done.result.is_err())) {
            return Err(OpenError::Unwritable(reason));
        }
        self.ftl.close_beside(clock, &mut self.log)
    }
}

fn lost(text: String) -> OpenError {
    OpenError::Tenant { text, is_lost: true }
}
