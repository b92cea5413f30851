//! Cleaning: pages that are needed move together, so that chunks become free.
//!
//! ```text
//!   victim ──▶ a window of it is read ──▶ page by page: does the map say that it is here? ──▶ put with others that move
//!      ▲                                                                                          │ programmed
//!      └── chosen while free chunks are few        erased ◀── the log says so, for good ◀────────┘
//! ```
//!
//! Unless a host has no room, no page moves while one that has moved is being programmed: what hosts write and read at the parallel unit waits for one
//! unit then, and not for all that was read of a victim. For the same reason little is read of it at a time.
//!
//! Pages are found by their headers, one behind the other; blocks say where the first page begins in them, so that a block that is lost costs the
//! pages that reach into it, and no others.

use crate::looked::Looked;
use crate::open_chunk::{Owner, Stream};
use crate::pages::{Frontiers, PageChunk, Pages};
use crate::place::{GRAIN_BYTES, GRAINS_PER_BLOCK, HEADER_BYTES, Header, Kind, Place, grains_of};
use crate::placing::LOG_RESERVE;
use crate::queue::Mutation;
use crate::reading::OF_VICTIM;
use crate::record::Record;
use crate::victim::{Victim, Window};
use openftl_core::checksum::crc32c;
use openftl_core::{BLOCK_BYTES, ChunkId, Frame, VECTOR_BLOCKS_MAX};
use openftl_media::Completion;
use openftl_parts::cleaning::victim::{Candidate, VictimPolicy};
use openftl_parts::flash::Flash;
use openftl_parts::flash::reads::ReadId;
use std::collections::BTreeMap;

/// Blocks of a victim that are read at a time, unless a page is longer: hosts that read from its parallel unit, or write there, wait for no more.
const WINDOW_BLOCKS: u32 = VECTOR_BLOCKS_MAX as u32;

impl Pages {
    /// Goes on with cleaning. Returns whether anything was done.
    pub(crate) fn clean(&mut self, flash: &mut Flash) -> bool {
        let mut has_acted = false;
        while !self.index.is_full_of_changes() && self.clean_step(flash) {
            has_acted = true;
        }
        has_acted
    }

    /// Grains of which a chunk has fewer if cleaning it gains anything, whatever is left behind the last page of another one.
    fn worth(&self) -> u32 {
        self.chunk_grains - grains_of(self.page_bytes_max) + 1
    }

    /// The chunk to clean: a weak one, or the one that the policy chooses. `None` where nothing would be gained.
    fn choose_victim(&self, flash: &Flash) -> Option<ChunkId> {
        let is_short = self.is_short(flash);
        if !is_short && self.weak == 0 {
            return None;
        }
        let worth = self.worth();
        let may = self.chunks.iter().filter(|(chunk, known)| {
            !self.slot_of.contains_key(chunk)
                && !known.is_log
                && known.moving == 0
                && (known.is_weak || (is_short && known.live < worth))
        });
        let worth = |known: &PageChunk| {
            let since = match self.victim {
                VictimPolicy::CostBenefit => known.filled_at,
                _ => known.put_before.at,
            };
            let age = self.next_version.saturating_sub(since);
            let candidate = Candidate { valid: known.live, blocks: self.chunk_grains, age };
            match self.victim {
                VictimPolicy::CostBenefit => candidate.benefit_over_cost(),
                VictimPolicy::MinimumDecliningCost => candidate.steadiness(),
                _ => Some(u64::from(self.chunk_grains - known.live)),
            }
        };
        // Of those alike the first.
        may.rev().max_by_key(|(_, known)| (known.is_weak, worth(known))).map(|(chunk, _)| *chunk)
    }

    /// Whether no chunk will be free for hosts: there is none, and nothing to clean or on its way.
    pub(crate) fn is_out_of_chunks(&self, flash: &Flash) -> bool {
        let free = Pages::free_chunks(flash);
        if free > self.reserve() || !self.doomed.is_empty() || self.coming_and_going.leaving() > 0 {
            return false;
        }
        let needed = self.cleaning.at.as_ref().and_then(|victim| victim.refused_grains).unwrap_or(1);
        let can_move = free > LOG_RESERVE || self.have_room(flash, &self.moves, needed);
        !can_move || (self.cleaning.at.is_none() && self.choose_victim(flash).is_none())
    }

    /// Whether a page of so many grains has room in an open chunk of these.
    fn have_room(&self, flash: &Flash, frontiers: &Frontiers, grains: u32) -> bool {
        let mut open = frontiers.slots.iter().flatten().filter_map(|slot| self.open[*slot].as_ref());
        open.any(|open| self.has_room_for(flash, open, grains))
    }

    /// Whether pages that were put already will get no place: those that the log has with their bytes, or that a failed program left. No chunk is
    /// free, and none is on its way. Nothing is under way: chunks that leave when a mutation is durable wait for these very pages.
    pub(crate) fn lack_chunks(&self, flash: &Flash) -> bool {
        if Pages::free_chunks(flash) > 0 || self.coming_and_going.leaving() > 0 {
            return false;
        }
        let lacks = |frontiers: &Frontiers, bytes: u32| !self.have_room(flash, frontiers, grains_of(bytes));
        let is_carried =
            self.carried.first_key_value().is_some_and(|(_, page)| lacks(&self.moves, page.bytes.len() as u32));
        is_carried
            || self.open.iter().flatten().filter(|open| open.failed_at.is_some()).any(|open| {
                open.pages.iter().find(|page| page.owner != Owner::Dead).is_some_and(|page| match page.owner {
                    Owner::Group(_) => lacks(&self.logs, page.place.bytes()) && self.log.spares.is_empty(),
                    Owner::Moves(_) => lacks(&self.moves, page.place.bytes()),
                    _ => lacks(&self.host, page.place.bytes()),
                })
            })
    }

    /// Pages in `chunk` of batches that are not committed.
    fn held_in(&mut self, flash: &Flash, chunk: ChunkId) -> BTreeMap<Place, (u32, u64, u32)> {
        let mut held = BTreeMap::new();
        if self.chunks[&chunk].held == 0 {
            return held;
        }
        for (session, state) in self.sessions.all_mut() {
            for (wsn, batch) in &state.batches {
                let puts = (0..).zip(&batch.changes).filter_map(|(at, change)| Some((at, change.put?.0)));
                let here = puts.filter(|(_, place)| place.chunk(flash.format) == chunk);
                held.extend(here.map(|(at, place)| (place, (session, *wsn, at))));
            }
        }
        held
    }

    /// The change of a batch, still not committed, that has a page at `place`.
    fn change_at(&mut self, place: Place) -> Option<(u32, u64, u32)> {
        let (session, wsn, at) = *self.cleaning.at.as_ref()?.held.get(&place)?;
        let batch = self.sessions.get_mut(session)?.batches.get(&wsn)?;
        let change = batch.changes.get(at as usize)?;
        (change.put.is_some_and(|(other, _)| other == place)).then_some((session, wsn, at))
    }

    fn clean_step(&mut self, flash: &mut Flash) -> bool {
        let Some(victim) = &self.cleaning.at else {
            let Some(chunk) = self.choose_victim(flash) else { return false };
            let held = self.held_in(flash, chunk);
            let slack_grains_left = self.worth().saturating_sub(self.chunks[&chunk].live) / 2;
            self.cleaning.at = Some(Victim {
                chunk,
                held,
                grain: 0,
                slack_grains_left,
                window: None,
                wanted_blocks: 0,
                refused_grains: None,
                left_from: 0,
            });
            return true;
        };
        match &victim.window {
            None if victim.grain >= self.chunk_grains || self.chunks[&victim.chunk].live == 0 => self.end_victim(flash),
            None => self.read_window(flash),
            Some(window) if window.commands > 0 => false,
            // A host that has no room waits for all of this.
            Some(_) if !self.lacks_room && self.moves_are_under_way(flash) => false,
            Some(_) => self.take_window(flash),
        }
    }

    /// Whether a chunk that pages move to has a unit that has not ended: hosts that read from its parallel unit, or write there, wait for one, and
    /// not for all that was read of a victim.
    pub(crate) fn moves_are_under_way(&self, flash: &Flash) -> bool {
        let open = self.moves.slots.iter().flatten().filter_map(|slot| self.open[*slot].as_ref());
        open.map(|open| flash.units.uncompleted(open.open)).any(|units| units > 0)
    }

    /// Reads what comes next of the victim.
    fn read_window(&mut self, flash: &mut Flash) -> bool {
        let victim = self.cleaning.at.as_ref().expect("a chunk is cleaned");
        let (chunk, first) = (victim.chunk, victim.grain / GRAINS_PER_BLOCK);
        let chunk_blocks = self.chunk_grains / GRAINS_PER_BLOCK;
        let victim = self.cleaning.at.as_ref().expect("a chunk is cleaned");
        let usual = WINDOW_BLOCKS.min(self.page_blocks_max().max(self.unit_blocks as usize) as u32);
        let count = (chunk_blocks - first).min(victim.wanted_blocks.max(usual));
        let Some(frames) = self.take_frames(flash, count as usize, true) else { return false };
        let blocks: Vec<(u32, Frame)> = (first..).zip(frames.iter().copied()).collect();
        let commands = self.fetch(flash, chunk, &blocks, OF_VICTIM);
        flash.statistics.relocation_reads += u64::from(count);
        let lost = vec![false; frames.len()];
        self.cleaning.at.as_mut().expect("a chunk is cleaned").window = Some(Window { first, frames, lost, commands });
        true
    }

    /// A command of a window has ended.
    pub(crate) fn window_read_ended(&mut self, flash: &mut Flash, id: ReadId, completion: Completion) {
        let Some(lost) = self.lost_blocks(flash, id, completion) else { return };
        let window = self.cleaning.at.as_mut().and_then(|victim| victim.window.as_mut()).expect("it is read");
        window.commands -= 1;
        for block in lost {
            window.lost[(block - window.first) as usize] = true;
        }
    }

    /// Moves the next page of the window. Returns whether it got on.
    fn take_window(&mut self, flash: &mut Flash) -> bool {
        let victim = self.cleaning.at.as_ref().expect("a chunk is cleaned");
        let (chunk, grain, window) = (victim.chunk, victim.grain, victim.window.as_ref().expect("it was read"));
        let (first, end) = (window.first, window.first + window.frames.len() as u32);
        let block = grain / GRAINS_PER_BLOCK;
        if block >= end {
            self.leave_window(flash);
            return true;
        }
        let index = (block - first) as usize;
        let within = (grain % GRAINS_PER_BLOCK) as usize * GRAIN_BYTES;
        // The first page that begins behind this block. A page that reaches into the next one may have been cut off there.
        let next_head = |from: u32| {
            let heads = (from..end).filter(|block| !window.lost[(block - first) as usize]).find_map(|block| {
                let head = Pages::head_of(flash, window.frames[(block - first) as usize])?;
                Some(block * GRAINS_PER_BLOCK + head)
            });
            heads.unwrap_or(end * GRAINS_PER_BLOCK)
        };
        let header = match window.lost[index] {
            true => None,
            // Blocks are entered where their first page begins.
            false if within == 0 && Pages::head_of(flash, window.frames[index]) != Some(0) => {
                let next = next_head(block);
                self.cleaning.at.as_mut().expect("a chunk is cleaned").grain = next;
                return true;
            }
            false => Header::read(&flash.frames.bytes(window.frames[index])[within..])
                .filter(|header| header.kind == Kind::Page),
        };
        let Some(header) = header else {
            let next = next_head(block + 1);
            self.cleaning.at.as_mut().expect("a chunk is cleaned").grain = next;
            return true;
        };
        let place = Place::new(flash.format, chunk, grain, header.bytes);
        let blocks = place.blocks(flash.format);
        let behind = grain + place.grains();
        let behind = if behind.div_ceil(GRAINS_PER_BLOCK) > block + 1 { next_head(block + 1) } else { behind };
        let of_map = match self.index.look(header.lpid) {
            Looked::At(there) => there == Some(place),
            Looked::Missing(_) | Looked::Lost => {
                self.look_ahead(flash, grain);
                return false;
            }
        };
        let victim = self.cleaning.at.as_ref().expect("a chunk is cleaned");
        let window = victim.window.as_ref().expect("it was read");
        let is_held = victim.held.contains_key(&place);
        let is_live = of_map || is_held;
        if is_live && blocks.end > end && end < self.chunk_grains / GRAINS_PER_BLOCK {
            // All of it in one window.
            self.cleaning.at.as_mut().expect("a chunk is cleaned").wanted_blocks = blocks.end - block;
            self.leave_window(flash);
            return true;
        }
        if is_live {
            let range = (blocks.start - first) as usize..(blocks.end.min(end) - first) as usize;
            let is_lost = blocks.end > end || window.lost[range.clone()].iter().any(|lost| *lost);
            let mut bytes = std::mem::take(&mut self.scratch);
            bytes.clear();
            for frame in &window.frames[range] {
                bytes.extend_from_slice(flash.frames.bytes(*frame));
            }
            debug_assert!(is_lost || bytes.len() <= self.page_blocks_max() * BLOCK_BYTES);
            let begin = within + HEADER_BYTES;
            let page = bytes.get(begin..begin + header.bytes as usize).filter(|_| !is_lost);
            let page = page.filter(|page| crc32c(page) == header.crc);
            let change = if is_held { self.change_at(place) } else { None };
            let owner = change.map_or(Owner::Moves(place), |(session, wsn, at)| Owner::Staged(session, wsn, at));
            let is_needed = of_map || change.is_some();
            let put_before = self.chunks[&chunk].put_before.at.min(header.version);
            let moved = match page {
                Some(page) if is_needed => self.put(flash, header, &[page], owner, Stream::Moves, put_before).map(Some),
                _ => Some(None),
            };
            self.scratch = bytes;
            match (moved, change) {
                (None, _) => {
                    let victim = self.cleaning.at.as_mut().expect("a chunk is cleaned");
                    victim.refused_grains = Some(grains_of(header.bytes));
                    return false;
                }
                (_, None) if !is_needed => {}
                (Some(Some(to)), Some(change)) => self.move_change(flash, change, place, to),
                // The batch can be committed, and the page is an error then.
                (Some(None), Some(change)) => self.move_change(flash, change, place, Place::LOST),
                (Some(to), None) => self.move_page(flash, header.lpid, place, to),
            }
        }
        let victim = self.cleaning.at.as_mut().expect("a chunk is cleaned");
        (victim.grain, victim.wanted_blocks, victim.refused_grains) = (behind, 0, None);
        true
    }

    /// Has the leaves read that pages of the window from this grain on are in.
    fn look_ahead(&mut self, flash: &Flash, mut grain: u32) {
        let window = self.cleaning.at.as_ref().and_then(|victim| victim.window.as_ref()).expect("it was read");
        for _ in 0..self.index.reads_max() {
            let (block, within) = (grain / GRAINS_PER_BLOCK, (grain % GRAINS_PER_BLOCK) as usize * GRAIN_BYTES);
            let frame = block.checked_sub(window.first).and_then(|at| window.frames.get(at as usize));
            let header = frame.and_then(|frame| Header::read(&flash.frames.bytes(*frame)[within..]));
            let Some(header) = header.filter(|header| header.kind == Kind::Page) else { return };
            self.index.look(header.lpid);
            grain += grains_of(header.bytes);
        }
    }

    /// A page of the map has moved, or is lost.
    fn move_page(&mut self, flash: &mut Flash, lpid: u64, from: Place, to: Option<Place>) {
        let Some(to) = to else { return self.lose(flash, lpid, from) };
        self.set(lpid, Some(to));
        self.chunks.get_mut(&from.chunk(flash.format)).expect("the victim is known").moving += 1;
        self.statistics.moved_bytes += u64::from(from.grains()) * GRAIN_BYTES as u64;
        self.kill(flash, from);
    }

    /// A page of a batch that is not committed has moved.
    fn move_change(&mut self, flash: &mut Flash, (session, wsn, at): (u32, u64, u32), from: Place, to: Place) {
        let state = self.sessions.get_mut(session).expect("it was just looked at");
        let change = &mut state.batches.get_mut(&wsn).expect("it was just looked at").changes[at as usize];
        change.put.as_mut().expect("it is put").0 = to;
        change.is_in_flight = to != Place::LOST;
        self.hold(flash, from, to);
        self.statistics.moved_bytes += u64::from(from.grains()) * GRAIN_BYTES as u64;
        self.kill(flash, from);
    }

    fn leave_window(&mut self, flash: &mut Flash) {
        let victim = self.cleaning.at.as_mut().expect("a chunk is cleaned");
        let window = victim.window.take().expect("it was read");
        window.frames.into_iter().for_each(|frame| flash.frames.release(frame));
        self.keep_frames(flash);
    }

    /// The page is lost: an error until it is put or deleted.
    fn lose(&mut self, flash: &mut Flash, lpid: u64, place: Place) {
        self.set(lpid, Some(Place::LOST));
        self.queue.push(Mutation::Other(Record::Lost { lpid, from: place }));
        self.kill(flash, place);
    }

    /// All of the victim was looked at. Pages of it that are left are lost. Returns whether it got on: a leaf may be missing.
    fn end_victim(&mut self, flash: &mut Flash) -> bool {
        let Victim { chunk, left_from, .. } = *self.cleaning.at.as_ref().expect("a chunk is cleaned");
        if self.chunks[&chunk].live > 0 {
            let is_there = |place: Place| place != Place::LOST && place.chunk(flash.format) == chunk;
            let mut left = Vec::new();
            let listed = self.index.list(left_from..=u64::MAX, &mut |lpid, place| {
                left.extend(is_there(place).then_some((lpid, place)));
                // Leaves that are to change are in memory until then.
                left.is_empty()
            });
            let (next, is_missing) = match (left.last(), listed) {
                (Some((lpid, _)), _) => (lpid.checked_add(1), false),
                (None, Err((next, _))) => (Some(next), true),
                (None, Ok(())) => (None, false),
            };
            left.into_iter().for_each(|(lpid, place)| self.lose(flash, lpid, place));
            if let Some(next) = next {
                self.cleaning.at.as_mut().expect("a chunk is cleaned").left_from = next;
                return !is_missing;
            }
        }
        self.cleaning.at = None;
        self.statistics.chunks_cleaned += 1;
        self.doom_if_empty(flash, chunk);
        flash.stirred = true;
        true
    }
}
