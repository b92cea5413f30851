//! Pages on their way to the medium: they are packed into the frames of write units, one behind the other.
//!
//! Several chunks are written side by side, on parallel units of their own. A page goes to the one whose turn it is, and all of it to the same
//! one; the turn goes on when a unit is full.

use crate::looked::Looked;
use crate::open_chunk::{Beside, InFlight, NO_HEAD, OpenChunk, Owner, PageUnit, Stream, UnitState};
use crate::pages::{Frontiers, PageChunk, Pages};
use crate::place::{GRAIN_BYTES, GRAINS_PER_BLOCK, HEADER_BYTES, Header, Kind, Place, grains_of};
use crate::queue::Mutation;
use crate::reads::Carried;
use crate::record::Record;
use openftl_core::checksum::crc32c;
use openftl_core::{BLOCK_BYTES, Frame, VECTOR_BLOCKS_MAX};
use openftl_parts::flash::Flash;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::units::UnitId;
use openftl_parts::words::Purpose;

/// What the out-of-band bytes of a block say: its block in the chunk, and in which grain the first page or group begins there.
fn oob(stream: Stream, block: u32, head: u8, sequence: u64) -> Oob {
    let kind = if stream == Stream::Log { BlockKind::TenantLog } else { BlockKind::Tenant };
    Oob { kind, address: u64::from(block) << 8 | u64::from(head), sequence }
}

/// Whether out-of-band bytes are those of block `block` of a chunk with pages, or with the log, which is true then.
pub(crate) fn is_of(oob: Oob, block: u32) -> Option<bool> {
    let is_of_tenant = matches!(oob.kind, BlockKind::Tenant | BlockKind::TenantLog);
    (is_of_tenant && oob.address >> 8 == u64::from(block)).then_some(oob.kind == BlockKind::TenantLog)
}

/// Chunks that the log and what a failed program left may take while nothing else gets any. The log has spares beside them.
pub(crate) const LOG_RESERVE: u32 = 2;

fn owner_of(slot: usize, first: u32) -> u64 {
    (slot as u64) << 32 | u64::from(first)
}

fn slot_and_first(owner: u64) -> (usize, u32) {
    ((owner >> 32) as usize, owner as u32)
}

impl Pages {
    /// Chunks that moving pages and the log may need while no other is free.
    pub(crate) fn reserve(&self) -> u32 {
        self.layout.move_chunks + 1 + LOG_RESERVE
    }

    /// Whether pages have to move so that there is room.
    pub(crate) fn is_short(&self, flash: &Flash) -> bool {
        Pages::free_chunks(flash) <= self.reserve() + self.layout.host_chunks
    }

    fn frontiers(&mut self, stream: Stream) -> &mut Frontiers {
        match stream {
            Stream::Host => &mut self.host,
            Stream::Moves => &mut self.moves,
            Stream::Log => &mut self.logs,
        }
    }

    /// The chunk for a page of so many grains, which was put before its last put at `put_before`.
    fn choose(&mut self, flash: &mut Flash, stream: Stream, grains: u32, put_before: u64) -> Option<usize> {
        if stream == Stream::Log {
            return self.choose_of_log(flash, grains);
        }
        let rest = self.next_version.saturating_sub(put_before);
        let frontiers = self.frontiers(stream);
        let count = frontiers.slots.len();
        if let Some(heat) = &frontiers.heat {
            frontiers.turn = heat.class(rest);
        }
        for step in 0..count {
            let at = (self.frontiers(stream).turn + step) % count;
            if let Some(slot) = self.frontiers(stream).slots[at] {
                let open = self.open[slot].as_ref().expect("a chunk that is written");
                if self.has_room_for(flash, open, grains) {
                    self.frontiers(stream).turn = at;
                    return Some(slot);
                }
            }
            let free = Pages::free_chunks(flash);
            let kept = match stream {
                Stream::Host if !self.puts_again => self.reserve(),
                Stream::Moves if !self.puts_again => LOG_RESERVE,
                // What a failed program left waits for nothing, and others wait for it.
                _ => 0,
            };
            let may_open = free > kept;
            if may_open && self.choose_pu(flash).is_none() {
                // The device lets no more chunks be open: this one has to be closed first.
                if let Some(full) = self.frontiers(stream).slots[at].take() {
                    self.fill_up(flash, full);
                }
                continue;
            }
            if may_open && let Some(slot) = self.open_chunk(flash, stream) {
                if let Some(full) = self.frontiers(stream).slots[at].take() {
                    self.fill_up(flash, full);
                }
                self.frontiers(stream).slots[at] = Some(slot);
                self.frontiers(stream).turn = at;
                return Some(slot);
            }
        }
        // Once: a host that asks again and again is to wait for what happens meanwhile.
        if stream == Stream::Host && !std::mem::replace(&mut self.lacks_room, true) {
            flash.stirred = true;
        }
        None
    }

    /// The chunk for a group of the log of so many grains: that of the group before it until all of that is on media, else that of the other lane.
    fn choose_of_log(&mut self, flash: &mut Flash, grains: u32) -> Option<usize> {
        let (lane, lanes) = (self.logs.turn, self.logs.slots.len());
        let last = self.logs.slots[lane].map(|slot| (slot, self.open[slot].as_ref().expect("a chunk that is written")));
        if let Some((slot, open)) = last {
            // What a failed program left goes elsewhere.
            let is_in_flight = open.failed_at.is_none() && !open.pages.is_empty();
            if is_in_flight && self.has_room_for(flash, open, grains) {
                return Some(slot);
            }
            if is_in_flight {
                self.push_out(flash, slot);
                return None;
            }
        }
        // What is written again stays in one lane: recoveries that are cut off are to take few chunks.
        let steps = if self.log.is_written_again() { 0..=0 } else { 1..=lanes };
        steps.map(|step| (lane + step) % lanes).find_map(|lane| {
            let slot = self.open_lane(flash, lane, grains)?;
            self.logs.turn = lane;
            Some(slot)
        })
    }

    /// Whether a page or group of so many grains has room in a chunk.
    pub(crate) fn has_room_for(&self, flash: &Flash, open: &OpenChunk, grains: u32) -> bool {
        let is_open = !open.is_full && flash.units.room(open.open) > 0;
        is_open && open.next_grain + grains <= self.chunk_grains
    }

    /// The chunk of a lane in which a group of so many grains has room: another one if this one has none, and all that is in it is on media.
    fn open_lane(&mut self, flash: &mut Flash, lane: usize, grains: u32) -> Option<usize> {
        if let Some(slot) = self.logs.slots[lane] {
            let open = self.open[slot].as_ref().expect("a chunk that is written");
            if self.has_room_for(flash, open, grains) {
                return Some(slot);
            }
            self.logs.slots[lane] = None;
            self.fill_up(flash, slot);
        }
        let chunk = *self.log.spares.front()?;
        if !Pages::may_open(flash) || !Pages::may_open_on(flash, flash.format.pu_of(chunk)) {
            return None;
        }
        self.log.spares.pop_front();
        self.log.go_on_in(lane, chunk, 0, self.chunk_grains / GRAINS_PER_BLOCK);
        let open = flash.units.open(chunk, 0);
        self.chunks.insert(chunk, PageChunk { is_log: true, ..PageChunk::default() });
        let slot = self.add_open(OpenChunk::new(chunk, open, Stream::Log, 0));
        self.logs.slots[lane] = Some(slot);
        Some(slot)
    }

    fn open_chunk(&mut self, flash: &mut Flash, stream: Stream) -> Option<usize> {
        let pu = self.choose_pu(flash)?;
        let open = flash.open_tenant_chunk(pu)?;
        let chunk = flash.units.chunk(open).chunk;
        self.opened.push(chunk);
        self.chunks.insert(chunk, PageChunk::default());
        Some(self.add_open(OpenChunk::new(chunk, open, stream, 0)))
    }

    /// A chunk is written from now on.
    pub(crate) fn add_open(&mut self, open: OpenChunk) -> usize {
        let slot = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if slot == self.open.len() {
            self.open.push(None);
        }
        self.slot_of.insert(open.chunk, slot);
        self.open[slot] = Some(open);
        slot
    }

    /// Puts a page where there is room, in pieces that make up all of it; `put_before` is when it was put before its last put. `None`: there is no frame or no chunk for it now.
    pub(crate) fn put(
        &mut self,
        flash: &mut Flash,
        header: Header,
        pieces: &[&[u8]],
        owner: Owner,
        stream: Stream,
        put_before: u64,
    ) -> Option<Place> {
        let grains = grains_of(header.bytes);
        let slot = self.choose(flash, stream, grains, put_before)?;
        let open = self.open[slot].as_ref().expect("a chunk that is written");
        let skipped = self.grains_to_skip(flash, stream, open.next_grain, grains);
        let first = open.next_grain + skipped;
        let blocks = (first + grains).div_ceil(GRAINS_PER_BLOCK) - first.div_ceil(GRAINS_PER_BLOCK);
        // What moves, and what a failed program left, goes on whatever hosts hold.
        let may_use_kept = stream != Stream::Host || matches!(owner, Owner::Queued(..) | Owner::Logged);
        let frames = self.take_frames(flash, blocks as usize, may_use_kept)?;
        let place = Place::new(flash.format, self.open[slot].as_ref()?.chunk, first, header.bytes);
        if skipped > 0 {
            self.skip_rest_of_block(flash, slot);
            if let Some(victim) = self.cleaning.at.as_mut().filter(|_| stream == Stream::Moves) {
                victim.slack_grains_left -= skipped;
            }
        }
        self.fill(flash, slot, header, pieces, frames);
        self.lacks_room &= stream != Stream::Host;
        let open = self.open[slot].as_mut().expect("a chunk that is written");
        open.pages.push_back(InFlight { lpid: header.lpid, place, owner });
        if stream != Stream::Log {
            self.live_grains += u64::from(grains);
        }
        let known = self.chunks.get_mut(&place.chunk(flash.format)).expect("a chunk that is written is known");
        known.live += grains;
        known.put_before.add(put_before, grains);
        known.filled_at = self.next_version;
        let rest = self.next_version.saturating_sub(put_before);
        let has_filled = self.submit_full(flash, slot);
        let frontiers = self.frontiers(stream);
        match &mut frontiers.heat {
            Some(heat) => heat.put(rest, grains),
            // Its lanes take turns group by group.
            None if stream == Stream::Log => {}
            None => frontiers.turn += usize::from(has_filled),
        }
        flash.stirred = true;
        Some(place)
    }

    /// Copies header and pieces to the frames of units, of which there are enough.
    fn fill(&mut self, flash: &mut Flash, slot: usize, header: Header, pieces: &[&[u8]], frames: Vec<Frame>) {
        let (unit_blocks, chunk_blocks) = (self.unit_blocks, self.chunk_grains / GRAINS_PER_BLOCK);
        let open = self.open[slot].as_mut().expect("a chunk that is written");
        let (first, grains) = (open.next_grain, grains_of(header.bytes));
        let mut frames = frames.into_iter();
        let mut at = first as usize * GRAIN_BYTES;
        let head = header.to_bytes();
        let slack = grains as usize * GRAIN_BYTES - HEADER_BYTES - header.bytes as usize;
        let zeroes = [0; GRAIN_BYTES];
        let page = pieces.iter().map(|piece| (*piece, Beside::default()));
        let header = (&head[..], Beside { header: HEADER_BYTES as u64, slack: 0 });
        let rest = (&zeroes[..slack], Beside { header: 0, slack: slack as u64 });
        for (mut piece, beside) in [header].into_iter().chain(page).chain([rest]) {
            while !piece.is_empty() {
                let (block, within) = ((at / BLOCK_BYTES) as u32, at % BLOCK_BYTES);
                if within == 0 {
                    let is_new = open
                        .units
                        .back()
                        .is_none_or(|unit| unit.state != UnitState::Filling || unit.frames.len() as u32 == unit_blocks);
                    if is_new {
                        let capacity = unit_blocks.min(chunk_blocks - block) as usize;
                        open.units.push_back(PageUnit {
                            first: block,
                            frames: Vec::with_capacity(capacity),
                            heads: Vec::with_capacity(capacity),
                            state: UnitState::Filling,
                            count: 0,
                            beside: Beside::default(),
                        });
                    }
                    let unit = open.units.back_mut().expect("it was just looked at");
                    unit.frames.push(frames.next().expect("they were counted"));
                    unit.heads.push(NO_HEAD);
                }
                let unit = open.units.iter_mut().rev().find(|unit| unit.first <= block).expect("it has begun");
                let index = (block - unit.first) as usize;
                if at == first as usize * GRAIN_BYTES && unit.heads[index] == NO_HEAD {
                    unit.heads[index] = (first % GRAINS_PER_BLOCK) as u8;
                }
                let count = piece.len().min(BLOCK_BYTES - within);
                flash.frames.bytes_mut(unit.frames[index])[within..within + count].copy_from_slice(&piece[..count]);
                piece = &piece[count..];
                at += count;
                if piece.is_empty() {
                    // Neither a header nor what is left of a grain lies in two blocks.
                    unit.beside.header += beside.header;
                    unit.beside.slack += beside.slack;
                }
            }
        }
        open.next_grain = first + grains;
    }

    /// Submits units that are full. Returns whether there was one.
    fn submit_full(&mut self, flash: &mut Flash, slot: usize) -> bool {
        let (unit_blocks, chunk_blocks) = (self.unit_blocks, self.chunk_grains / GRAINS_PER_BLOCK);
        let mut has_any = false;
        loop {
            let open = self.open[slot].as_ref().expect("a chunk that is written");
            let end = open.next_grain / GRAINS_PER_BLOCK;
            let is_full = |unit: &&PageUnit| {
                let blocks = unit_blocks.min(chunk_blocks - unit.first);
                unit.state == UnitState::Filling && unit.first + blocks <= end
            };
            let Some(unit) = open.units.iter().find(is_full) else { return has_any };
            let first = unit.first;
            self.submit(flash, slot, first);
            has_any = true;
        }
    }

    /// Submits a unit as it is, with padding up to what can be written.
    fn submit(&mut self, flash: &mut Flash, slot: usize, first: u32) {
        let sequence = self.next_version;
        let open = self.open[slot].as_mut().expect("a chunk that is written");
        let (handle, stream) = (open.open, open.stream);
        if flash.units.room(handle) == 0 {
            // A program has failed there, of which it hears next.
            return;
        }
        let unit = open.unit_at(first).expect("a unit that fills");
        let mut blocks = [flash.padding; VECTOR_BLOCKS_MAX];
        blocks[..unit.frames.len()].copy_from_slice(&unit.frames);
        for ((block, frame), head) in (first..).zip(&unit.frames).zip(&unit.heads) {
            oob(stream, block, *head, sequence).seal(&mut flash.frames, *frame);
        }
        let used = unit.frames.len() as u32;
        let count = used.next_multiple_of(flash.geometry.ws_min);
        let id = flash.write_unit(handle, Purpose::Tenant, owner_of(slot, first), &blocks[..count as usize], used);
        unit.state = UnitState::Written { id, is_programmed: false, is_readable: false };
        unit.count = count;
        let beside = unit.beside;
        open.next_grain = open.next_grain.max((first + count) * GRAINS_PER_BLOCK);
        open.under_way += 1;
        self.statistics.padded_bytes += u64::from(count - used) * BLOCK_BYTES as u64;
        let purpose = match stream {
            Stream::Host => Purpose::Tenant,
            Stream::Moves => Purpose::Relocation,
            Stream::Log => Purpose::Log,
        };
        let programmed = &mut flash.statistics.programmed;
        programmed[Purpose::Tenant as usize] -= u64::from(used);
        programmed[purpose as usize] += u64::from(used);
        if stream != Stream::Log {
            self.account_beside(flash, stream, purpose, beside);
        }
    }

    /// Of blocks that were programmed for `purpose`, counts so many as headers and slack as these add up to.
    fn account_beside(&mut self, flash: &mut Flash, stream: Stream, purpose: Purpose, beside: Beside) {
        let uncounted = &mut self.uncounted[usize::from(stream == Stream::Moves)];
        let programmed = &mut flash.statistics.programmed;
        for (to, bytes, sum) in [
            (Purpose::Header, beside.header, &mut uncounted.header),
            (Purpose::Slack, beside.slack, &mut uncounted.slack),
        ] {
            *sum += bytes;
            // Statistics may have begun anew since the first of these bytes.
            let blocks = (*sum / BLOCK_BYTES as u64).min(programmed[purpose as usize]);
            *sum -= blocks * BLOCK_BYTES as u64;
            programmed[purpose as usize] -= blocks;
            programmed[to as usize] += blocks;
        }
    }

    /// Grains that are left of a block before a page of so many, so that the page lies in one block.
    fn grains_to_skip(&self, flash: &Flash, stream: Stream, next_grain: u32, grains: u32) -> u32 {
        let within = next_grain % GRAINS_PER_BLOCK;
        let crosses = grains <= GRAINS_PER_BLOCK && within + grains > GRAINS_PER_BLOCK;
        if self.cross_blocks || !crosses || self.puts_again {
            return 0;
        }
        let left = GRAINS_PER_BLOCK - within;
        match (stream, &self.cleaning.at) {
            (Stream::Host, _) => left,
            // While hosts have chunks, and so that half of the room that cleaning makes stays, whatever the pages are.
            (Stream::Moves, Some(victim))
                if left <= victim.slack_grains_left && Pages::free_chunks(flash) > self.reserve() =>
            {
                left
            }
            (Stream::Moves | Stream::Log, _) => 0,
        }
    }

    /// What is left of the last block that a page reaches into holds nothing.
    fn skip_rest_of_block(&mut self, flash: &mut Flash, slot: usize) {
        let open = self.open[slot].as_mut().expect("a chunk that is written");
        let within = (open.next_grain % GRAINS_PER_BLOCK) as usize * GRAIN_BYTES;
        let bytes = BLOCK_BYTES - within;
        let unit = open.units.back_mut().expect("a block that has begun is in a unit");
        flash.frames.bytes_mut(*unit.frames.last().expect("a unit has a block"))[within..].fill(0);
        unit.beside.slack += bytes as u64;
        open.next_grain = open.next_grain.next_multiple_of(GRAINS_PER_BLOCK);
        self.statistics.skipped_bytes += bytes as u64;
    }

    /// Submits what is not full in a chunk.
    pub(crate) fn press(&mut self, flash: &mut Flash, slot: usize) {
        let Some(open) = self.open[slot].as_mut().filter(|open| open.failed_at.is_none()) else { return };
        let within = (open.next_grain % GRAINS_PER_BLOCK) as usize * GRAIN_BYTES;
        if let Some(unit) = open.units.back_mut().filter(|unit| unit.state == UnitState::Filling) {
            let (first, last) = (unit.first, *unit.frames.last().expect("a unit has a block"));
            if within > 0 {
                flash.frames.bytes_mut(last)[within..].fill(0);
                unit.beside.slack += (BLOCK_BYTES - within) as u64;
                self.statistics.padded_bytes += (BLOCK_BYTES - within) as u64;
            }
            self.submit(flash, slot, first);
        }
    }

    /// Has what waits in a chunk become readable, and survive a power cut: writes what is not full, and padding behind it.
    pub(crate) fn push_out(&mut self, flash: &mut Flash, slot: usize) {
        self.press(flash, slot);
        let Some(open) = &self.open[slot] else { return };
        if flash.geometry.mw_cunits > 0 && flash.units.wants_padding(open.open) {
            let (handle, room) = (open.open, flash.units.room(open.open));
            flash.pad(handle);
            let written = room - flash.units.room(handle);
            let open = self.open[slot].as_mut().expect("it was just looked at");
            open.next_grain = open.next_grain.next_multiple_of(GRAINS_PER_BLOCK) + written * GRAINS_PER_BLOCK;
            self.statistics.padded_bytes += u64::from(written) * BLOCK_BYTES as u64;
        }
    }

    /// Has all that is on its way written so that it can be read. Returns whether there is anything left to wait for.
    pub(crate) fn make_readable(&mut self, flash: &mut Flash) -> bool {
        let before = flash.outbox.len();
        for slot in 0..self.open.len() {
            if self.open[slot].as_ref().is_some_and(|open| !open.units.is_empty()) {
                self.push_out(flash, slot);
            }
        }
        self.settle(flash) | (flash.outbox.len() > before)
    }

    /// Nothing more is put to a chunk: it is filled with padding, and closed.
    pub(crate) fn fill_up(&mut self, flash: &mut Flash, slot: usize) {
        self.press(flash, slot);
        let open = self.open[slot].as_mut().expect("a chunk that is written");
        if !open.is_full {
            open.is_full = true;
            let (handle, room) = (open.open, flash.units.room(open.open));
            flash.pad_by(handle, room);
            self.statistics.padded_bytes += u64::from(room) * BLOCK_BYTES as u64;
        }
    }

    /// A unit survives a power cut.
    pub(crate) fn programmed(&mut self, flash: &mut Flash, id: UnitId) {
        let (slot, first) = slot_and_first(flash.units.unit(id).owner);
        let Some(open) = self.open[slot].as_mut() else { return };
        if let Some(PageUnit { state: UnitState::Written { is_programmed, .. }, .. }) = open.unit_at(first) {
            *is_programmed = true;
        }
        self.take_programmed(flash, slot);
    }

    fn take_programmed(&mut self, flash: &mut Flash, slot: usize) {
        let Some(open) = self.open[slot].as_mut() else { return };
        for page in open.take_programmed(flash.format) {
            self.page_programmed(flash, page);
        }
        self.release_frames(flash, slot);
        flash.stirred = true;
    }

    fn release_frames(&mut self, flash: &mut Flash, slot: usize) {
        let Some(open) = self.open[slot].as_mut() else { return };
        let frames = open.take_frames(flash.format);
        frames.into_iter().for_each(|frame| flash.frames.release(frame));
    }

    /// The medium has a page for good.
    fn page_programmed(&mut self, flash: &mut Flash, page: InFlight) {
        let InFlight { lpid, place, owner } = page;
        match owner {
            Owner::Staged(session, wsn, change) => {
                let state = self.sessions.get_mut(session);
                if let Some(batch) = state.and_then(|state| state.batches.get_mut(&wsn)) {
                    batch.changes[change as usize].is_in_flight = false;
                }
            }
            Owner::Queued(number, change) => {
                if let Some(Mutation::Batch { changes, in_flight, .. }) = self.queue.get_mut(number) {
                    changes[change as usize].is_in_flight = false;
                    *in_flight -= 1;
                }
            }
            Owner::Moves(from) => {
                let is_current = self.index.get(lpid) == Some(place);
                if is_current {
                    self.queue.push(Mutation::Other(Record::Moved { lpid, from, to: place }));
                }
                self.has_moved(flash, from);
            }
            Owner::Group(number) => self.logged = self.log.programmed(number).unwrap_or(0).max(self.logged),
            Owner::Logged | Owner::Dead => {}
        }
    }

    /// A page has moved away from `from`, and the queue says so, or need not.
    pub(crate) fn has_moved(&mut self, flash: &mut Flash, from: Place) {
        let chunk = from.chunk(flash.format);
        let known = self.chunks.get_mut(&chunk).expect("a chunk that pages move away from is known");
        known.moving -= 1;
        if known.moving == 0 {
            self.doom_if_empty(flash, chunk);
        }
    }

    /// A unit can be read.
    pub(crate) fn readable(&mut self, flash: &mut Flash, id: UnitId) {
        let (slot, first) = slot_and_first(flash.units.unit(id).owner);
        let Some(open) = self.open[slot].as_mut() else { return };
        open.under_way -= 1;
        if let Some(PageUnit { state: UnitState::Written { is_readable, .. }, .. }) = open.unit_at(first) {
            *is_readable = true;
        }
        self.release_frames(flash, slot);
        flash.stirred = true;
    }

    /// A unit could not be programmed.
    pub(crate) fn unit_failed(&mut self, flash: &mut Flash, id: UnitId) {
        let (slot, first) = slot_and_first(flash.units.unit(id).owner);
        let open = self.open[slot].as_mut().expect("it has a unit under way");
        open.under_way -= 1;
        open.failed_at = Some(open.failed_at.map_or(first, |other| other.min(first)));
        open.is_full = true;
        let handle = open.open;
        // What was submitted behind it ends, and the chunk is closed.
        if flash.units.room(handle) > 0 {
            flash.pad_by(handle, flash.units.room(handle));
        }
        flash.stirred = true;
    }

    /// Lets chunks go in which everything has ended. What failed is put elsewhere. Returns whether anything was done.
    pub(crate) fn settle(&mut self, flash: &mut Flash) -> bool {
        let mut has_acted = false;
        for slot in 0..self.open.len() {
            let Some(open) = &self.open[slot] else { continue };
            let is_closed = flash.units.chunk_if_open(open.open).is_none();
            let is_at_rest = is_closed && open.under_way == 0;
            if !is_at_rest || !(open.is_full || flash.units.room(open.open) == 0) {
                continue;
            }
            if !open.pages.is_empty() {
                has_acted |= self.put_again(flash, slot);
            }
            let Some(open) = &self.open[slot] else { continue };
            if open.pages.is_empty() {
                self.leave(flash, slot);
                has_acted = true;
            }
        }
        has_acted
    }

    /// A chunk is written no more.
    fn leave(&mut self, flash: &mut Flash, slot: usize) {
        let open = self.open[slot].take().expect("it was just looked at");
        for unit in open.units {
            unit.frames.into_iter().for_each(|frame| flash.frames.release(frame));
        }
        self.slot_of.remove(&open.chunk);
        for frontiers in [&mut self.host, &mut self.moves, &mut self.logs] {
            frontiers.slots.iter_mut().filter(|other| **other == Some(slot)).for_each(|other| *other = None);
        }
        if open.failed_at.is_some() {
            self.weaken(open.chunk);
        }
        self.doom_if_empty(flash, open.chunk);
    }

    /// Puts pages in flight elsewhere that a failed program has left. Returns whether any was.
    fn put_again(&mut self, flash: &mut Flash, slot: usize) -> bool {
        self.puts_again = true;
        let has_acted = self.put_all_again(flash, slot);
        self.puts_again = false;
        has_acted
    }

    fn put_all_again(&mut self, flash: &mut Flash, slot: usize) -> bool {
        let mut has_acted = false;
        while let Some(page) = self.open[slot].as_ref().and_then(|open| open.pages.front().copied()) {
            if page.owner != Owner::Dead {
                let mut bytes = std::mem::take(&mut self.scratch);
                self.copy_buffered(flash, page.place, &mut bytes);
                let header = Header::read(&bytes).expect("the drive has written it");
                let stream = match page.owner {
                    Owner::Moves(_) => Stream::Moves,
                    Owner::Group(_) => Stream::Log,
                    _ => Stream::Host,
                };
                let put_before = self.chunks[&page.place.chunk(flash.format)].put_before.at;
                let place = self.put(flash, header, &[&bytes[HEADER_BYTES..]], page.owner, stream, put_before);
                self.scratch = bytes;
                let Some(place) = place else { return has_acted };
                self.replace(flash, page, place);
            }
            has_acted = true;
            self.open[slot].as_mut().expect("it was just looked at").pages.pop_front();
        }
        has_acted
    }

    /// Gives pages that the log has with their bytes a place, while there is room. Returns whether any got one.
    pub(crate) fn place_carried(&mut self, flash: &mut Flash) -> bool {
        let before = self.carried.len();
        // A checkpoint waits for them, and it gives chunks back.
        self.puts_again = true;
        while let Some((lpid, Carried { version, bytes })) = self.carried.first_key_value() {
            let (lpid, length) = (*lpid, bytes.len() as u32);
            let header = Header { kind: Kind::Page, lpid, version: *version, bytes: length, crc: crc32c(bytes) };
            if !matches!(self.index.look(lpid), Looked::At(_)) {
                // Those that follow need theirs, too.
                let next: Vec<u64> = self.carried.keys().copied().take(self.index.reads_max()).collect();
                next.into_iter().for_each(|lpid| _ = self.index.look(lpid));
                break;
            }
            let bytes = bytes.clone();
            let Some(place) = self.put(flash, header, &[&bytes], Owner::Logged, Stream::Moves, *version) else { break };
            self.set(lpid, Some(place));
        }
        self.puts_again = false;
        self.carried.len() < before
    }

    /// All of a page whose frames are there, header and all.
    pub(crate) fn copy_buffered(&self, flash: &Flash, place: Place, bytes: &mut Vec<u8>) {
        let slot = self.slot_of[&place.chunk(flash.format)];
        let open = self.open[slot].as_ref().expect("a chunk that is written");
        bytes.clear();
        let (mut at, end) = (place.grain(flash.format) as usize * GRAIN_BYTES, HEADER_BYTES + place.bytes() as usize);
        while bytes.len() < end {
            let frame = open.frame((at / BLOCK_BYTES) as u32).expect("a page in flight has its frames");
            let within = at % BLOCK_BYTES;
            let count = (BLOCK_BYTES - within).min(end - bytes.len());
            bytes.extend_from_slice(&flash.frames.bytes(frame)[within..within + count]);
            at += count;
        }
    }

    /// A page in flight is at `place` instead.
    fn replace(&mut self, flash: &mut Flash, page: InFlight, place: Place) {
        let InFlight { lpid, place: old, owner } = page;
        if let Owner::Group(number) = owner {
            _ = self.log.move_to(flash.format, number, place);
            let known = self.chunks.get_mut(&old.chunk(flash.format)).expect("it is written to");
            known.live -= old.grains();
            return;
        }
        match owner {
            Owner::Staged(session, wsn, change) => {
                let state = self.sessions.get_mut(session).expect("a batch has a session");
                let batch = state.batches.get_mut(&wsn).expect("a page of a batch that is given up is nobody's");
                let put = batch.changes[change as usize].put.as_mut().expect("it is put");
                put.0 = place;
                self.hold(flash, old, place);
            }
            Owner::Queued(number, change) => {
                if let Some(Mutation::Batch { changes, .. }) = self.queue.get_mut(number) {
                    changes[change as usize].place = Some(place);
                }
            }
            Owner::Logged | Owner::Moves(_) | Owner::Group(_) | Owner::Dead => {}
        }
        let is_staged = matches!(owner, Owner::Staged(..));
        if !is_staged && self.index.get(lpid) == Some(old) {
            self.set(lpid, Some(place));
            self.kill(flash, old);
        } else if is_staged {
            self.kill(flash, old);
        } else {
            // Another version has come since: this one is needed by the log alone.
            self.kill(flash, place);
        }
    }

    /// A page of a batch that is not committed is at `to` instead of `from`.
    pub(crate) fn hold(&mut self, flash: &Flash, from: Place, to: Place) {
        self.chunks.entry(from.chunk(flash.format)).or_default().held -= from.grains();
        if to != Place::LOST {
            self.chunks.entry(to.chunk(flash.format)).or_default().held += to.grains();
        }
    }
}
