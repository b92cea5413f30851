//! Reading pages: the blocks that a page touches are read, its header says whether it is that page, and its bytes are copied to the host.
//!
//! A block that is in a frame is copied from there. What the medium returns is trusted if it says that it is that block and its CRC32C agrees;
//! if not, it is read once more.

use crate::error::StoreError;
use crate::looked::Looked;
use crate::open_chunk::NO_HEAD;
use crate::pages::Pages;
use crate::place::{GRAIN_BYTES, HEADER_BYTES, Header, Kind, Place};
use crate::placing::is_of;
use crate::reads::{Carried, PageRead, ReadFor, Wanted};
use crate::request::{PageFacts, StoreDone};
use openftl_core::checksum::Crc32c;
use openftl_core::{BLOCK_BYTES, ChunkId, Frame};
use openftl_media::{Completion, Status};
use openftl_parts::flash::Flash;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::reads::{ReadId, Reader};

/// Marks reads of a victim, and of the log.
pub(crate) const OF_VICTIM: u64 = 1 << 63;
/// See above.
pub(crate) const OF_LOG: u64 = 1 << 62;

/// Reads a page that has no place yet.
fn read_carried(flash: &mut Flash, wanted: &Wanted, carried: &Carried) -> Result<PageFacts, StoreError> {
    let Carried { version, bytes } = carried;
    let length = bytes.len() as u32;
    if let ReadFor::Host { offset, frames } = &wanted.what {
        if *offset >= length {
            return Err(StoreError::Offset { lpid: wanted.lpid, bytes: length, offset: *offset });
        }
        for (part, frame) in bytes[*offset as usize..].chunks(BLOCK_BYTES).zip(frames) {
            flash.frames.bytes_mut(*frame)[..part.len()].copy_from_slice(part);
        }
    }
    Ok(PageFacts { bytes: length, version: *version })
}

impl Pages {
    /// Begins to read a page, or has that wait for frames.
    pub(crate) fn begin_read(&mut self, flash: &mut Flash, wanted: Wanted) {
        if !self.reads.waiting.is_empty() || !self.try_read(flash, &wanted) {
            self.reads.waiting.push_back(wanted);
        }
    }

    /// Begins to read a page that has waited for its leaf, ahead of others: while that is in memory.
    pub(crate) fn begin_read_first(&mut self, flash: &mut Flash, wanted: Wanted) {
        if !self.try_read(flash, &wanted) {
            self.reads.waiting.push_front(wanted);
        }
    }

    /// Begins what waits for frames. Returns whether anything was.
    pub(crate) fn begin_waiting(&mut self, flash: &mut Flash) -> bool {
        let mut has_acted = false;
        while let Some(wanted) = self.reads.waiting.front().cloned() {
            if !self.try_read(flash, &wanted) {
                break;
            }
            self.reads.waiting.pop_front();
            has_acted = true;
        }
        has_acted
    }

    fn try_read(&mut self, flash: &mut Flash, wanted: &Wanted) -> bool {
        let lpid = wanted.lpid;
        if let Some(carried) = self.carried.get(&lpid) {
            let result = read_carried(flash, wanted, carried);
            return self.end(flash, wanted, result);
        }
        let place = match self.index.look(lpid) {
            Looked::At(Some(Place::LOST)) | Looked::Lost => {
                return self.end(flash, wanted, Err(StoreError::Unrecovered { lpid }));
            }
            Looked::At(Some(place)) => place,
            Looked::At(None) => return self.end(flash, wanted, Err(StoreError::NoPage { lpid })),
            Looked::Missing(slot) => {
                self.leaf_reads.waiting.entry(slot).or_default().push(wanted.clone());
                return true;
            }
        };
        let of_page = place.blocks(flash.format);
        let bytes = place.bytes();
        let needed = match &wanted.what {
            ReadFor::Stat | ReadFor::Condition(_) => of_page.start..of_page.start + 1,
            ReadFor::Check => of_page.clone(),
            ReadFor::Host { offset, .. } if *offset >= bytes => {
                return self.end(flash, wanted, Err(StoreError::Offset { lpid, bytes, offset: *offset }));
            }
            ReadFor::Host { offset, frames } => {
                let end = bytes.min(offset.saturating_add((frames.len() * BLOCK_BYTES) as u32));
                let begin = place.grain(flash.format) as usize * GRAIN_BYTES + HEADER_BYTES;
                let block = |byte: u32| ((begin + byte as usize) / BLOCK_BYTES) as u32;
                block(*offset)..block(end - 1) + 1
            }
        };
        let head = (needed.start > of_page.start).then_some(of_page.start);
        let blocks: Vec<u32> = head.into_iter().chain(needed).collect();
        let Some(frames) = self.take_frames(flash, blocks.len(), true) else { return false };
        let blocks: Vec<(u32, Frame)> = blocks.into_iter().zip(frames).collect();
        let at = self.reads.all.iter().position(Option::is_none).unwrap_or(self.reads.all.len());
        let commands = self.fetch(flash, place.chunk(flash.format), &blocks, at as u64);
        if at == self.reads.all.len() {
            self.reads.all.push(None);
        }
        self.reads.all[at] = Some(PageRead { wanted: wanted.clone(), place, blocks, commands, is_lost: false });
        if commands == 0 {
            self.finish_read(flash, at);
        }
        true
    }

    /// Has blocks read into frames, or copies them. Returns how many commands that takes.
    pub(crate) fn fetch(&mut self, flash: &mut Flash, chunk: ChunkId, blocks: &[(u32, Frame)], owner: u64) -> u32 {
        let open = self.slot_of.get(&chunk).and_then(|slot| self.open[*slot].as_ref());
        let (mut command, mut commands) = (None, 0);
        for (block, frame) in blocks {
            if let Some(buffered) = open.and_then(|open| open.frame(*block)) {
                flash.frames.copy(buffered, *frame);
                continue;
            }
            let id = *command.get_or_insert_with(|| flash.reads.begin(Reader::Tenant, owner));
            if flash.reads.get_mut(id).add(flash.format.ppa(chunk, *block), *frame) {
                flash.submit_read(id);
                (command, commands) = (None, commands + 1);
            }
        }
        if let Some(id) = command {
            flash.submit_read(id);
            commands += 1;
        }
        commands
    }

    /// A command has ended. Gives the blocks that are lost, or `None` if some are read once more.
    pub(crate) fn lost_blocks(&self, flash: &mut Flash, id: ReadId, completion: Completion) -> Option<Vec<u32>> {
        if completion.status != Status::Success {
            flash.is_unusual = true;
        }
        let read = flash.reads.get(id);
        let failed = |(index, (ppa, frame)): (usize, (&openftl_core::Ppa, &Frame))| {
            let is_read = completion.status.data_is_good() || completion.failed >> index & 1 == 0;
            // What a page is said to be in has no header if it is padding.
            let block = flash.format.block_of(*ppa);
            let is_that = |oob: Oob| oob.kind == BlockKind::Padding || is_of(oob, block).is_some();
            u64::from(!is_read || !Oob::verify(&flash.frames, *frame).is_ok_and(is_that)) << index
        };
        let failed: u64 = read.places().iter().zip(read.frames()).enumerate().map(failed).sum();
        if failed != 0 && !read.is_again {
            // Those that failed, and no others: with a second chance for all of them, another one might.
            flash.read_again(id, failed);
            return None;
        }
        let lost = read.places().iter().enumerate().filter(|(index, _)| failed >> index & 1 != 0);
        let lost: Vec<u32> = lost.map(|(_, ppa)| flash.format.block_of(*ppa)).collect();
        flash.reads.end(id);
        flash.stirred = true;
        Some(lost)
    }

    /// A command of a page that is read has ended.
    pub(crate) fn page_read_ended(&mut self, flash: &mut Flash, id: ReadId, completion: Completion) {
        let at = flash.reads.get(id).owner as usize;
        let Some(lost) = self.lost_blocks(flash, id, completion) else { return };
        let read = self.reads.all[at].as_mut().expect("it waits for the command");
        read.is_lost |= !lost.is_empty();
        read.commands -= 1;
        if read.commands == 0 {
            self.finish_read(flash, at);
        }
    }

    /// All blocks of a page that is read are there.
    fn finish_read(&mut self, flash: &mut Flash, at: usize) {
        let read = self.reads.all[at].take().expect("it was read");
        let result = self.take_page(flash, &read);
        read.blocks.iter().for_each(|(_, frame)| flash.frames.release(*frame));
        self.keep_frames(flash);
        flash.statistics.read_failures += u64::from(result.is_err());
        self.end(flash, &read.wanted, result);
    }

    fn take_page(&self, flash: &mut Flash, read: &PageRead) -> Result<PageFacts, StoreError> {
        let PageRead { wanted: Wanted { lpid, what, .. }, place, blocks, .. } = read;
        let lost = StoreError::Unrecovered { lpid: *lpid };
        if read.is_lost {
            return Err(lost);
        }
        let begin = place.grain(flash.format) as usize * GRAIN_BYTES;
        let frame_of = |block: u32| blocks.iter().find(|(other, _)| *other == block).map(|(_, frame)| *frame);
        let first = frame_of((begin / BLOCK_BYTES) as u32).expect("the first block is always read");
        let header = Header::read(&flash.frames.bytes(first)[begin % BLOCK_BYTES..]).ok_or(lost)?;
        if (header.kind, header.lpid, header.bytes) != (Kind::Page, *lpid, place.bytes()) {
            return Err(lost);
        }
        let facts = PageFacts { bytes: header.bytes, version: header.version };
        let (offset, count) = match what {
            ReadFor::Stat | ReadFor::Condition(_) => return Ok(facts),
            ReadFor::Check => (0, header.bytes as usize),
            ReadFor::Host { offset, frames } => {
                (*offset as usize, (header.bytes - offset).min((frames.len() * BLOCK_BYTES) as u32) as usize)
            }
        };
        let mut crc = Crc32c::new();
        let mut done = 0;
        while done < count {
            let from = begin + HEADER_BYTES + offset + done;
            let frame = frame_of((from / BLOCK_BYTES) as u32).expect("all that is copied was read");
            let mut part = (BLOCK_BYTES - from % BLOCK_BYTES).min(count - done);
            let within = from % BLOCK_BYTES;
            if let ReadFor::Host { frames, .. } = what {
                let (to, at) = (frames[done / BLOCK_BYTES], done % BLOCK_BYTES);
                part = part.min(BLOCK_BYTES - at);
                flash.frames.copy_part(frame, within..within + part, to, at);
            }
            crc.update(&flash.frames.bytes(frame)[within..within + part]);
            done += part;
        }
        let is_whole = count == header.bytes as usize;
        if is_whole && crc.value() != header.crc { Err(lost) } else { Ok(facts) }
    }

    /// A read has ended. Always true.
    pub(crate) fn end(&mut self, flash: &mut Flash, wanted: &Wanted, result: Result<PageFacts, StoreError>) -> bool {
        let Wanted { tag, lpid, what } = wanted;
        match what {
            ReadFor::Host { .. } | ReadFor::Stat => {
                let at = flash.now;
                self.reads.done.push(StoreDone { tag: *tag, result: result.map(Some), at });
            }
            ReadFor::Condition(place) => {
                if let Some(version) = self.reads.versions.get_mut(place) {
                    // What cannot be read has no version that anybody could expect.
                    *version = Some(result.map_or(u64::MAX, |facts| facts.version));
                }
            }
            ReadFor::Check => self.reads.lost.extend(result.is_err().then_some(*lpid)),
        }
        flash.stirred = true;
        true
    }

    /// In which grain of a block the first page begins there.
    pub(crate) fn head_of(flash: &Flash, frame: Frame) -> Option<u32> {
        let is_of_tenant = |oob: &Oob| matches!(oob.kind, BlockKind::Tenant | BlockKind::TenantLog);
        let oob = Oob::peek(&flash.frames, frame).ok().filter(is_of_tenant)?;
        let head = oob.address as u8;
        (head != NO_HEAD).then_some(u32::from(head))
    }
}
