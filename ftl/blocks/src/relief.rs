//! What a drive does when something waits for room and nothing under way will make any.
//!
//! Whoever waits is the host (a write, a flush), collection, or the metadata: a log or checkpoint that gets no chunk. A
//! drive is *stuck* when one of them waits, no command but reads of hosts is at the device and no part has anything to act
//! on. Then it takes these measures, the next one only if those before it do nothing, and those from the empty chunk on only
//! where no reset waits for reads alone:
//!
//! | measure | makes room because |
//! |---|---|
//! | move another victim together with blocks that wait for a full unit | both end, for one unit |
//! | write relocated blocks that wait for a full unit, where the padding takes less than that | their victims end |
//! | write what is buffered | what it makes invalid can be collected |
//! | force the log | chunks whose reset waits for it are reset |
//! | mark every group that wants it; merge map pages; place blocks outside of their class | more is collected |
//! | collect a chunk that holds nothing, whatever the policy would choose | it takes no room; the policy's victims, nearly full, may have taken all |
//! | recycle an open chunk that holds nothing | a crash left it partly written, and only a full chunk can be reset |
//! | give away a spare, keep nothing apart | they were held back for later |
//! | begin a checkpoint, where the drive is worn out | the log gives back its chunks |
//! | give away what is kept for metadata, where the drive is worn out | the log may do without checkpoints |
//! | collect the emptiest chunk of a group, whatever the policy would choose | its victim is fuller, and has no room |
//! | lend the reserves | metadata may take the last chunk of a group, and relocation may leave its group |
//! | turn read-only, where chunks have gone bad | nothing new is taken, and all that is left may save what was |
//! | turn read-only for good | nothing is left: whoever waits gets an answer |
//!
//! A crash finds the room that it needs because of three rules. A victim that only the reserve of its group has room for
//! moves as one transaction (`Victim::whole`): after a crash either the victim or the chunk it moved to holds nothing. Open
//! chunks that hold nothing when a drive is opened are recycled where room is short. And the log does not outgrow its plan:
//! while a checkpoint is being written commits stop before the log needs a chunk more (`Journal::may_grow`).
//!
//! Where the drive is worn out and the log cannot go on without a chunk, it goes before relocation: what a victim leaves is reset only
//! when the log is durable.

use crate::block_ftl::BlockFtl;
use openftl_core::{ChunkId, Clock, Time};
use openftl_parts::canary::Canary;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::plan::{COLLECTION_HEADROOM_CHUNKS, RELOCATION_RESERVE_CHUNKS};
use openftl_parts::flash::units::OpenId;
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{Phase, ReadOnlyReason, TRANSACTION_BLOCKS_MAX};

/// What the measures have set going.
#[derive(Default)]
pub(crate) struct Relief {
    /// Chunks, and the next block of each, that hold nothing and were open when the drive was opened: what was left of a
    /// checkpoint, or of a victim that moved. Nobody may count on room that only collection would bring back.
    pub(crate) left_open: Vec<(ChunkId, u32)>,
    /// Open chunks that hold nothing and are being filled with padding, so that they can be reset.
    recycling: Vec<ChunkId>,
    /// How far what the host has written was when it last went on: committed, placed, in the buffer, held there; and how many commands
    /// of the device had ended then.
    host_stands_at: [u64; 4],
    host_stands_since: u64,
}

/// So many commands of the device end without any of the host's before it is not waited for that nothing is being written.
const COMMANDS_TO_REST: u64 = 1024;

impl BlockFtl {
    /// The same as [`Target::give_up`](openftl_parts::target::Target::give_up), of a drive whose chunks are partly those of a tenant.
    pub fn give_up_beside(&mut self, now: Time, tenant: &mut dyn Tenant) -> String {
        let state = self.describe();
        self.standstill.get_or_insert_with(|| state.clone());
        self.flash.turn_read_only(ReadOnlyReason::Stalled);
        if !self.reading.is_idle() {
            self.flash.is_deaf = true;
            self.give_up_reads();
        }
        self.advance(now, tenant);
        state
    }

    /// Whether somebody waits, and nothing under way will change that: the reads of hosts and of the scrub will not, and may
    /// go on for ever. On a drive that is being stopped nobody waits for collection alone.
    fn is_stuck(&self) -> bool {
        // First what is mostly so, because every turn asks.
        self.flash.under_way == self.flash.reads.under_way()
            && !self.flash.stirred
            && (!self.transactions.is_idle()
                || self.transactions.stalled
                || (self.collection.is_stalled() && self.may_collect())
                || self.journal.is_stalled(&self.flash)
                || self.map_pages.as_ref().is_some_and(|pages| pages.is_stalled()))
            && !self.map_pages.as_ref().is_some_and(|pages| pages.is_reading())
            && !self.transactions.trims.wants_turn()
            && self.flash.is_handed_over()
    }

    /// A program that had to be repeated can leave an old block where nothing more is written behind it, while the host,
    /// with all frames waiting for that block, writes nothing more: push it out, when nothing is being written.
    fn free_frames(&mut self) {
        // An empty write buffer has no block that waits. Who composes this FTL with another one may have all frames for that.
        if self.buffer.unplaced() == 0 && self.buffer.held() == 0 {
            return;
        }
        let scarce = self.flash.frames.available(self.config.payload) < TRANSACTION_BLOCKS_MAX;
        if !scarce || self.flash.stirred || !self.flash.may_program() {
            return;
        }
        if self.flash.units.under_way() > 0 && !self.has_waited_for_rest() {
            return;
        }
        if self.buffer.unplaced() > 0 && self.transactions.push < self.buffer.head() {
            self.transactions.push = self.buffer.head();
            self.flash.stirred = true;
            return;
        }
        if self.buffer.held() > 0 {
            self.pad_host_frontiers();
        }
    }

    /// Whether the drive has written a long time for itself while nothing that the host has written went on. On a medium that is so weak
    /// that all has to move again and again that has no end.
    fn has_waited_for_rest(&mut self) -> bool {
        if !self.host_chunks_open().all(|open| self.flash.units.is_at_rest(open)) {
            return false;
        }
        let (buffer, ended) = (&self.buffer, self.flash.ended);
        let found = [buffer.committed(), buffer.placed(), buffer.head(), buffer.held()];
        if self.relief.host_stands_at != found {
            (self.relief.host_stands_at, self.relief.host_stands_since) = (found, ended);
        }
        ended - self.relief.host_stands_since > COMMANDS_TO_REST
    }

    /// Takes the measures that make room, cheapest first, when nothing else will.
    pub(crate) fn relieve(&mut self, tenant: &dyn Tenant) {
        // Not yet stuck, but chunks wait for the log: do not let them pile up.
        let waiting = self.flash.resets.waiting_for_log(self.journal.log.durable());
        if waiting > 0
            && self.journal.log.is_idle()
            && (self.transactions.stalled
                || self.collection.is_stalled()
                || self.collection.is_ahead()
                || waiting >= self.flash.geometry.groups.max(4) as usize)
        {
            self.journal.force_log(&mut self.flash);
        }
        self.free_frames();
        if !self.flash.may_program() || !self.is_stuck() {
            return;
        }
        let is_recovering = self.flash.phase == Phase::Recovering;
        // What a crash left of tables is room as soon as the catalog has been read.
        if !is_recovering && tenant.has_found() {
            return;
        }
        if !is_recovering && self.move_on() {
            return self.relieved();
        }
        // A reset that waits for reads is room to come; without a confirmed superblock nothing is reset.
        if self.flash.reads.under_way() > 0
            && self.journal.superblock.is_confirmed()
            && self.flash.resets.is_waiting_for_reads(self.journal.log.durable())
        {
            return;
        }
        if (!is_recovering && self.collect_emptiest(0)) || self.recycle_one() || self.lend() {
            return self.relieved();
        }
        self.flash.turn_read_only(match self.flash.read_only {
            None if self.flash.is_aged() => ReadOnlyReason::WornOut,
            Some(ReadOnlyReason::WornOut) if self.flash.is_beyond_saving() => ReadOnlyReason::Spent,
            _ => ReadOnlyReason::NoRoom,
        });
    }

    /// A measure was taken: whoever waits tries again.
    fn relieved(&mut self) {
        (self.flash.stirred, self.transactions.stalled) = (true, false);
        self.flash.room_changed = true;
    }

    /// Finishes what is begun, and begins whatever may make room. Returns whether there was anything.
    fn move_on(&mut self) -> bool {
        if self.join_victims() || self.push_relocations() {
            return true;
        }
        if self.transactions.push < self.buffer.head() {
            self.transactions.push = self.buffer.head();
            return true;
        }
        if self.journal.log.position() > self.journal.log.durable() && self.journal.log.is_idle() {
            self.journal.force_log(&mut self.flash);
            return self.flash.stirred;
        }
        self.mark_all() || self.merge_for_room() || self.spill()
    }

    /// Gives away what was held back. Returns whether there was anything.
    fn lend(&mut self) -> bool {
        if self.flash.provisioning.lend_spare() {
            return true;
        }
        if self.flash.read_only.is_none() && self.placement.keep_nothing_apart() {
            self.flash.provisioning.keep_apart(0);
            return true;
        }
        let is_recovering = self.flash.phase == Phase::Recovering;
        self.journal.shorten_log(&mut self.flash, self.buffer.committed())
            || self.flash.provisioning.lend_metadata()
            || (!is_recovering && self.collect_emptiest(self.flash.geometry.blocks_per_chunk))
            || self.flash.provisioning.lend_reserves()
    }

    /// Begins to recycle an open chunk that holds nothing. Returns whether there was one.
    fn recycle_one(&mut self) -> bool {
        if self.flash.bugs.has(Canary::ForgottenRoom) {
            return false;
        }
        if let Some((chunk, next)) = self.relief.left_open.pop() {
            self.recycle(chunk, next);
            return true;
        }
        let partial = self.collection.partial.iter().flatten().find(|(chunk, _)| self.holds_nothing(*chunk)).copied();
        if let Some((chunk, next)) = partial {
            self.collection.partial.iter_mut().for_each(|list| list.retain(|(other, _)| *other != chunk));
            self.recycle(chunk, next);
            return true;
        }
        let open = self.host_chunks_open().chain(self.collection.open_chunks()).find(|open| self.is_recyclable(*open));
        open.inspect(|open| self.fill_up(*open)).is_some()
    }

    /// Whether something was written to `open`, all of which is needed no more, and more can be.
    fn is_recyclable(&self, open: OpenId) -> bool {
        let Some(chunk) = self.flash.units.chunk_if_open(open).filter(|_| self.flash.units.room(open) > 0) else {
            return false;
        };
        self.flash.units.chunk(open).next > 0 && self.holds_nothing(chunk)
    }

    /// Whether nothing in `chunk` is needed or on its way.
    fn holds_nothing(&self, chunk: ChunkId) -> bool {
        self.flash.chunks.valid(chunk) == 0 && self.flash.chunks.pending(chunk) == 0
    }

    /// Fills `chunk`, which a crash left open at block `next` and holds nothing, so that it can be reset.
    fn recycle(&mut self, chunk: ChunkId, next: u32) {
        let open = self.flash.units.open(chunk, next);
        self.fill_up(open);
    }

    /// Recycles what was left open and holds nothing. On a drive that is read-only it stays as it is.
    pub(crate) fn recycle_left_open(&mut self) {
        if self.flash.bugs.has(Canary::ForgottenRoom) {
            return;
        }
        for (chunk, next) in std::mem::take(&mut self.relief.left_open) {
            if self.flash.read_only.is_none() {
                self.recycle(chunk, next);
            } else {
                let group = self.flash.group_of(chunk);
                self.collection.partial[group as usize].push((chunk, next));
            }
        }
    }

    fn fill_up(&mut self, open: OpenId) {
        self.relief.recycling.push(self.flash.units.chunk(open).chunk);
        self.flash.pad_by(open, self.flash.units.room(open));
        self.flash.stirred = true;
    }

    /// An open chunk of data has been closed. Returns whether it was recycled, and goes to its reset.
    pub(crate) fn is_recycled(&mut self, chunk: ChunkId) -> bool {
        let Some(index) = self.relief.recycling.iter().position(|other| *other == chunk) else { return false };
        self.relief.recycling.swap_remove(index);
        let is_empty = self.holds_nothing(chunk);
        if is_empty {
            self.placement.events.emptied(chunk, self.flash.now);
            self.flash.reset_when_durable(chunk, self.journal.log.position());
        }
        is_empty
    }

    /// Whether room is short in `group`, or on the whole drive.
    pub(crate) fn is_short_of_room(&self, group: u32) -> bool {
        let here = self.flash.provisioning.free_in_group(group) + self.flash.provisioning.coming_in_group(group);
        let all = self.flash.provisioning.free_total() + self.flash.provisioning.coming();
        let headroom = self.flash.geometry.groups * COLLECTION_HEADROOM_CHUNKS;
        here < self.flash.provisioning.fewest_in_group(group) || all + headroom < self.flash.provisioning.target()
    }

    /// Whether fewer chunks are free than a drive that works should have.
    #[must_use]
    pub fn is_short_of_chunks(&self) -> bool {
        self.flash.may_program() && self.flash.provisioning.free_total() < self.flash.provisioning.target()
    }

    /// Waits until a drive is not short of chunks, or has nothing more to do for that. A drive takes chunks when it is opened, and each
    /// time its power is cut some are left that nobody knows: so where room is short what the last crash left goes first.
    ///
    /// # Errors
    /// If the device stops completing commands.
    pub fn wait_for_chunks(&mut self, clock: &mut dyn Clock, tenant: &mut dyn Tenant) -> Result<(), OpenError> {
        if !self.is_short_of_chunks() {
            return Ok(());
        }
        self.hand_over();
        self.run(clock, tenant, |ftl| {
            let is_at_rest = !ftl.is_at_work() && !ftl.flash.stirred;
            is_at_rest || !ftl.is_short_of_chunks()
        })
    }

    /// What a drive that was just opened, and knows whose everything is, lacks of the room that any crash should leave it. One
    /// whose chunks have gone bad has less, and is worn out in time.
    pub fn note_missing_room(&mut self, tenant: &dyn Tenant) {
        let is_healthy = self.flash.read_only.is_none() && !self.flash.is_aged();
        self.recovery.missing_room = if is_healthy { self.missing_room(tenant) } else { None };
    }

    /// In each group a chunk to relocate into, and in all the chunks that the plan has for metadata: what is missing of that.
    fn missing_room(&self, tenant: &dyn Tenant) -> Option<String> {
        let mut all = 0;
        for group in 0..self.flash.geometry.groups {
            let coming = self.room_to_come(tenant, group);
            let emptied = self.chunks_to_empty(group);
            all += coming + emptied;
            let fewest = self.valid_of_closed(group).min();
            if coming + emptied < RELOCATION_RESERVE_CHUNKS
                && fewest.is_some_and(|fewest| !self.has_room_to_move(group, fewest))
            {
                return Some(format!("group {group} has no chunk to relocate into"));
            }
        }
        // What tables have open and partly written may be more than their share.
        let has_tables = self.config.catalog_blocks > 0;
        let needed = if has_tables { 0 } else { self.flash.provisioning.metadata_to_come() };
        (all < needed)
            .then(|| format!("{all} chunks are free or soon will be, and log and checkpoints may need {needed}"))
    }

    /// Valid blocks of each chunk of `group` that could be a victim.
    fn valid_of_closed(&self, group: u32) -> impl Iterator<Item = u32> {
        let chunks = self.flash.geometry.chunk_ids().filter(move |chunk| self.flash.group_of(*chunk) == group);
        chunks
            .filter(|chunk| self.flash.chunks.usage(*chunk) == ChunkUse::Closed)
            .map(|chunk| self.flash.chunks.valid(chunk))
    }

    /// Chunks of `group` that relocation gives back without taking a free one: victims that move, for which room was found
    /// when they were chosen, and those whose blocks fit into what is open for relocation.
    fn chunks_to_empty(&self, group: u32) -> u32 {
        let mut valid: Vec<u32> = self.valid_of_closed(group).collect();
        valid.sort_unstable();
        let mut room = self.open_room_to_move(group);
        let fits = |valid: &&u32| {
            let left = room.checked_sub(**valid);
            room = left.unwrap_or(0);
            left.is_some()
        };
        self.victims_of(group) + valid.iter().take_while(fits).count() as u32
    }

    /// Chunks of `group` that are free or soon will be, but for those that tables may have.
    fn room_to_come(&self, tenant: &dyn Tenant, group: u32) -> u32 {
        let is_here = |chunk: &ChunkId| self.flash.group_of(*chunk) == group;
        let left_open = self.relief.left_open.iter().map(|(chunk, _)| *chunk);
        let recycled = self.relief.recycling.iter().copied().chain(left_open).filter(is_here).count();
        let (leaving, closing) = tenant.leaving(&self.flash, group);
        self.flash.provisioning.room_to_come(group, recycled as u32 + closing, leaving)
    }
}
