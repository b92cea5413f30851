//! A page store that structures its log by itself, over a block FTL: what a host does where the drive has no pages.
//!
//! ```text
//!   put ─▶ fresh buffer ─▶ segment ─┐
//!                                   ├─▶ segments, each as long as a buffer, on a block drive
//!   cleaned ─▶ moved buffer ────────┘
//! ```
//!
//! A buffer is written when it is full, and flushed. Segments are trimmed when nothing is left in them, so that the drive below moves little. The
//! one with the fewest live bytes is cleaned; of it the blocks with live pages are read. A page has a header as in ELEOS, and its room on media is
//! the same. The map is in memory of the host, without bound; nothing here is written for its recovery.

use crate::{Assistant, ExperimentError};
use openftl_blocks::BlockFtl;
use openftl_core::checksum::Crc32c;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, Nanos, VirtualClock};
use openftl_media::EmulatedDevice;
use openftl_pages::{GRAIN_BYTES, HEADER_BYTES, grains_of};
use openftl_parts::words::{Handle, TRANSACTION_BLOCKS_MAX};
use openftl_parts::{BlockTarget, Done, Durability, Request, Statistics, Target};
use std::collections::BTreeMap;

/// Segments that are free before a buffer is written: for it, for what cleaning moves, and one more.
const FREE_MIN: usize = 3;

/// Requests under way at a time.
const QUEUE_DEPTH: usize = 16;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    segment: u32,
    /// Its first byte, of its header.
    offset: u32,
    bytes: u32,
}

impl Place {
    /// Bytes on media, with header and grains.
    fn taken(&self) -> u64 {
        taken(self.bytes)
    }

    /// The blocks that it touches.
    fn blocks(&self) -> (u32, u32) {
        let end = self.offset + HEADER_BYTES as u32 + self.bytes;
        (self.offset / BLOCK_BYTES as u32, end.div_ceil(BLOCK_BYTES as u32))
    }
}

/// Bytes on media of a page.
fn taken(bytes: u32) -> u64 {
    u64::from(grains_of(bytes)) * GRAIN_BYTES as u64
}

/// Pages that gather for a segment.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Each page with its offset, and where it is until then if it moves.
    pages: Vec<(u64, u32, u32, Option<Place>)>,
}

impl Buffer {
    fn add(&mut self, lpid: u64, page: &[u8], from: Option<Place>) {
        let offset = self.bytes.len();
        let mut crc = Crc32c::new();
        crc.update(page);
        self.bytes.extend(lpid.to_le_bytes());
        self.bytes.extend((page.len() as u32).to_le_bytes());
        self.bytes.extend(crc.value().to_le_bytes());
        self.bytes.resize(offset + HEADER_BYTES, 0);
        self.bytes.extend(page);
        self.bytes.resize(offset + taken(page.len() as u32) as usize, 0);
        self.pages.push((lpid, offset as u32, page.len() as u32, from));
    }
}

/// A segment on the drive.
#[derive(Default)]
struct Segment {
    /// Bytes of live pages.
    live: u64,
    /// Its pages when it was written, with their offsets and lengths.
    pages: Vec<(u64, u32, u32)>,
}

/// Bytes that went over the link, and what cleaning copied.
#[derive(Clone, Copy, Default)]
pub struct HostCounts {
    pub put: u64,
    pub written: u64,
    pub read: u64,
    pub moved: u64,
    pub batches: u64,
    /// CPU time of the drive and its device.
    pub drive_cpu: Nanos,
}

/// See the module.
pub struct HostLog<'a> {
    drive: BlockFtl<EmulatedDevice>,
    pub clock: VirtualClock,
    assistant: &'a mut dyn Assistant,
    buffer_bytes: usize,
    segments: Vec<Segment>,
    places: BTreeMap<u64, Place>,
    fresh: Buffer,
    moved: Buffer,
    free: Vec<u32>,
    /// Segments with pages that count, or that have not been read yet.
    full: Vec<u32>,
    /// Cleaned segments, which are free when this buffer of moved pages is written.
    emptied: Vec<u32>,
    pub counts: HostCounts,
}

fn of_drive(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Host(format!("the block drive below a page store of the host: {error}"))
}

impl<'a> HostLog<'a> {
    pub fn new(
        drive: BlockFtl<EmulatedDevice>,
        clock: VirtualClock,
        buffer_bytes: u32,
        assistant: &'a mut dyn Assistant,
    ) -> HostLog<'a> {
        let buffer_bytes = buffer_bytes as usize;
        let segments = BlockTarget::blocks(&drive) / (buffer_bytes / BLOCK_BYTES) as u64;
        HostLog {
            drive,
            clock,
            assistant,
            buffer_bytes,
            segments: (0..segments).map(|_| Segment::default()).collect(),
            places: BTreeMap::new(),
            fresh: Buffer::default(),
            moved: Buffer::default(),
            free: (0..segments as u32).rev().collect(),
            full: Vec::new(),
            emptied: Vec::new(),
            counts: HostCounts::default(),
        }
    }

    /// CPU time so far of the thread that is host and drive.
    pub fn cpu_time(&mut self) -> Nanos {
        self.assistant.cpu_time()
    }

    /// Bytes of all segments.
    pub fn room(&self) -> u64 {
        self.segments.len() as u64 * self.buffer_bytes as u64
    }

    pub fn live_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live).sum()
    }

    pub fn statistics(&self) -> &Statistics {
        self.drive.statistics()
    }

    /// Counts from nothing from now on.
    pub fn reset_statistics(&mut self) {
        self.drive.reset_statistics();
        self.counts = HostCounts::default();
    }

    fn first_block(&self, segment: u32) -> u64 {
        u64::from(segment) * (self.buffer_bytes / BLOCK_BYTES) as u64
    }

    /// Puts a page. A full buffer is written before it.
    pub fn put(&mut self, lpid: u64, page: &[u8]) -> Result<(), ExperimentError> {
        if self.fresh.bytes.len() as u64 + taken(page.len() as u32) > self.buffer_bytes as u64 {
            self.commit()?;
        }
        self.counts.put += page.len() as u64;
        self.fresh.add(lpid, page, None);
        Ok(())
    }

    /// Writes what has gathered, and cleans until there is room for the next buffer.
    pub fn commit(&mut self) -> Result<(), ExperimentError> {
        let buffer = std::mem::take(&mut self.fresh);
        if buffer.pages.is_empty() {
            return Ok(());
        }
        self.counts.batches += 1;
        self.fresh = self.write(buffer)?;
        while self.free.len() < FREE_MIN {
            self.clean()?;
        }
        Ok(())
    }

    /// Writes a buffer to a free segment. Gives its memory back.
    fn write(&mut self, mut buffer: Buffer) -> Result<Buffer, ExperimentError> {
        let Some(segment) = self.free.pop() else {
            return Err(of_drive("there is no free segment: its pages take too much of it"));
        };
        buffer.bytes.resize(buffer.bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let began = self.assistant.cpu_time();
        let first = self.first_block(segment);
        self.write_blocks(first, &buffer.bytes)?;
        self.counts.drive_cpu += self.assistant.cpu_time() - began;
        self.counts.written += buffer.bytes.len() as u64;
        for (lpid, offset, bytes, from) in buffer.pages.drain(..) {
            let place = Place { segment, offset, bytes };
            let state = &mut self.segments[segment as usize];
            state.pages.push((lpid, offset, bytes));
            let current = self.places.get(&lpid).copied();
            // A page that was put since it was read does not move.
            if from.is_some() && current != from {
                continue;
            }
            state.live += place.taken();
            if let Some(old) = self.places.insert(lpid, place) {
                self.segments[old.segment as usize].live -= old.taken();
            }
        }
        self.full.push(segment);
        buffer.bytes.clear();
        Ok(buffer)
    }

    /// Copies what is live of the segment with the least of it.
    fn clean(&mut self) -> Result<(), ExperimentError> {
        let victim = (0..self.full.len()).min_by_key(|at| self.segments[self.full[*at] as usize].live);
        let Some(victim) = victim.map(|at| self.full.swap_remove(at)) else {
            return Err(of_drive("there is nothing to clean"));
        };
        let pages = std::mem::take(&mut self.segments[victim as usize].pages);
        let live: Vec<(u64, Place)> = pages
            .into_iter()
            .map(|(lpid, offset, bytes)| (lpid, Place { segment: victim, offset, bytes }))
            .filter(|(lpid, place)| self.places.get(lpid) == Some(place))
            .collect();
        // Runs of blocks with live pages, in their order.
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (_, place) in &live {
            let (first, end) = place.blocks();
            match runs.last_mut() {
                Some((_, last)) if first <= *last => *last = end.max(*last),
                _ => runs.push((first, end)),
            }
        }
        let mut image = vec![0; self.buffer_bytes];
        let began = self.assistant.cpu_time();
        self.read_blocks(self.first_block(victim), &runs, &mut image)?;
        self.counts.drive_cpu += self.assistant.cpu_time() - began;
        for (lpid, place) in live {
            let page = checked(lpid, place, &image)?;
            self.counts.moved += place.taken();
            if self.moved.bytes.len() as u64 + place.taken() > self.buffer_bytes as u64 {
                self.write_moved()?;
            }
            self.moved.add(lpid, page, Some(place));
        }
        self.emptied.push(victim);
        if self.segments[victim as usize].live == 0 {
            self.release(victim)?;
            self.emptied.pop();
        }
        Ok(())
    }

    /// Writes what has moved; segments that were emptied before it are free.
    fn write_moved(&mut self) -> Result<(), ExperimentError> {
        let buffer = std::mem::take(&mut self.moved);
        self.moved = self.write(buffer)?;
        for segment in std::mem::take(&mut self.emptied) {
            self.release(segment)?;
        }
        Ok(())
    }

    fn release(&mut self, segment: u32) -> Result<(), ExperimentError> {
        assert_eq!(self.segments[segment as usize].live, 0, "nothing is left in segment {segment}");
        let (first, blocks) = (self.first_block(segment), (self.buffer_bytes / BLOCK_BYTES) as u64);
        let began = self.assistant.cpu_time();
        self.submit(Request::Trim { first, blocks, durability: Durability::Volatile })?;
        self.end_one()?;
        self.counts.drive_cpu += self.assistant.cpu_time() - began;
        self.free.push(segment);
        Ok(())
    }

    /// Reads a page that is in a segment.
    pub fn read(&mut self, lpid: u64) -> Result<Vec<u8>, ExperimentError> {
        let place = *self.places.get(&lpid).ok_or_else(|| of_drive(format_args!("page {lpid} is not there")))?;
        let (first, end) = place.blocks();
        let mut image = vec![0; (end - first) as usize * BLOCK_BYTES];
        let from = self.first_block(place.segment) + u64::from(first);
        self.read_blocks(from, &[(0, end - first)], &mut image)?;
        let inside = Place { offset: place.offset - first * BLOCK_BYTES as u32, ..place };
        Ok(checked(lpid, inside, &image)?.to_vec())
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), ExperimentError> {
        BlockTarget::submit(&mut self.drive, self.clock.now(), 0, request).map_err(of_drive)
    }

    /// Lets the drive work until something has ended, or it is due. Gives what has ended.
    fn work(&mut self) -> Result<usize, ExperimentError> {
        let mut done: Vec<Done> = Vec::new();
        self.drive.poll(self.clock.now(), &mut done);
        for done in &done {
            done.result.map_err(of_drive)?;
        }
        if done.is_empty() {
            let due = self.drive.next_due().ok_or_else(|| of_drive("it hangs"))?;
            self.clock.wait_until(due);
        }
        Ok(done.len())
    }

    /// Waits until the request that is under way alone has ended.
    fn end_one(&mut self) -> Result<(), ExperimentError> {
        while self.work()? == 0 {}
        Ok(())
    }

    fn frames(&mut self, count: usize, under_way: &mut usize) -> Result<Vec<Frame>, ExperimentError> {
        let mut frames = Vec::new();
        while *under_way >= QUEUE_DEPTH || !self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
            *under_way -= self.work()?;
        }
        Ok(frames)
    }

    /// Writes bytes from a block on, and makes them durable.
    fn write_blocks(&mut self, first: u64, bytes: &[u8]) -> Result<(), ExperimentError> {
        let mut under_way = 0;
        for (at, piece) in (0..).zip(bytes.chunks(TRANSACTION_BLOCKS_MAX * BLOCK_BYTES)) {
            let frames = self.frames(piece.len() / BLOCK_BYTES, &mut under_way)?;
            for (frame, block) in frames.iter().zip(piece.chunks(BLOCK_BYTES)) {
                self.drive.frames_mut().bytes_mut(*frame).copy_from_slice(block);
            }
            let first = first + at * TRANSACTION_BLOCKS_MAX as u64;
            let (durability, handle) = (Durability::Volatile, Handle::NONE);
            self.submit(Request::Write { first, frames: &frames, durability, handle })?;
            under_way += 1;
        }
        while under_way > 0 {
            under_way -= self.work()?;
        }
        self.submit(Request::Flush)?;
        self.end_one()
    }

    /// Reads runs of blocks, counted from `segment` on, to where they are in an image of it.
    fn read_blocks(&mut self, segment: u64, runs: &[(u32, u32)], image: &mut [u8]) -> Result<(), ExperimentError> {
        for &(first, end) in runs {
            let blocks = (end - first) as usize;
            self.counts.read += (blocks * BLOCK_BYTES) as u64;
        }
        let pieces = runs.iter().flat_map(|&(first, end)| {
            (first..end)
                .step_by(TRANSACTION_BLOCKS_MAX)
                .map(move |at| (at, end.min(at + TRANSACTION_BLOCKS_MAX as u32)))
        });
        let pieces: Vec<(u32, u32)> = pieces.collect();
        for group in pieces.chunks(QUEUE_DEPTH) {
            let mut asked: Vec<(u32, Vec<Frame>)> = Vec::new();
            let mut under_way = 0;
            for &(first, end) in group {
                let mut frames = Vec::new();
                let count = (end - first) as usize;
                if !self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, &mut frames) {
                    self.take(&mut asked, &mut under_way, image)?;
                    frames = self.frames(count, &mut under_way)?;
                }
                self.submit(Request::Read { first: segment + u64::from(first), frames: &frames })?;
                asked.push((first, frames));
                under_way += 1;
            }
            self.take(&mut asked, &mut under_way, image)?;
        }
        Ok(())
    }

    /// Waits for reads, and copies what they brought.
    fn take(
        &mut self,
        asked: &mut Vec<(u32, Vec<Frame>)>,
        under_way: &mut usize,
        image: &mut [u8],
    ) -> Result<(), ExperimentError> {
        while *under_way > 0 {
            *under_way -= self.work()?;
        }
        for (first, frames) in asked.drain(..) {
            for (at, frame) in (first as usize..).zip(&frames) {
                image[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].copy_from_slice(self.drive.frames().bytes(*frame));
            }
            frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
        }
        Ok(())
    }
}

/// The bytes of a page in the image of its segment, if they are its.
fn checked(lpid: u64, place: Place, image: &[u8]) -> Result<&[u8], ExperimentError> {
    let (header, rest) = image[place.offset as usize..].split_at(HEADER_BYTES);
    let page = &rest[..place.bytes as usize];
    let mut crc = Crc32c::new();
    crc.update(page);
    let is_it = header[..8] == lpid.to_le_bytes()
        && header[8..12] == place.bytes.to_le_bytes()
        && header[12..16] == crc.value().to_le_bytes();
    if is_it { Ok(page) } else { Err(of_drive(format_args!("page {lpid} came back as something else"))) }
}
