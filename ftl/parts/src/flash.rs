//! The flash of a drive, as all parts share it: open chunks and write units, reads, resets, frames and room.
//!
//! ```text
//!   write_unit, copy_unit, pad ──▶ units ──┐
//!   begin read, submit_read ─────▶ reads ──┼──▶ commands, in order ──▶ device ──▶ poll ──▶ whose it was
//!   reset_when_durable ──────────▶ resets ─┘        ▲ sealed                    ▼ unsealed
//! ```
//!
//! It knows chunks, units and blocks of the medium, and nothing of logical blocks or of what an FTL keeps in them. What a
//! command was for, and who hears of its end, is the FTL's: [`Flash::poll`] only says which commands have ended.
//!
//! The device stands beside it. Parts say what is to be done, and it goes to an *outbox*; whoever has the device hands that
//! over ([`Flash::hand_over`]) when they have acted. So no part ever knows what the device is.

pub mod allowance;
pub mod backlog;
pub mod bad_chunks;
pub mod chunk_table;
pub mod chunks;
pub mod oob;
pub mod plan;
pub mod provisioning;
pub mod reads;
pub mod resets;
pub mod scan;
pub mod seals;
pub mod shares;
pub mod units;

use crate::accounts::encounters::Meetings;
use crate::accounts::life::Life;
use crate::accounts::statistics::Statistics;
use crate::canary::{Bugs, Canary};
use crate::cleaning::victim::VictimPolicy;
use crate::flash::chunk_table::{ChunkTable, ChunkUse};
use crate::flash::oob::Oob;
use crate::flash::plan::Plan;
use crate::flash::provisioning::{Claim, Provisioning};
use crate::flash::seals::Seals;
use crate::flash::units::{OpenId, UnitId, Units};
use crate::words::{Label, Phase, Purpose, ReadOnlyReason};
use allowance::Allowance;
use backlog::Backlog;
pub use bad_chunks::Reset;
use openftl_core::{AddressFormat, ChunkId, Frame, Frames, Geometry, Ppa, PuId, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Blocks, Command, Completion, Media, Tag};
use reads::{ReadId, Reader, Reads};
use resets::Resets;
use std::collections::VecDeque;

/// The flash of a drive.
pub struct Flash {
    /// The shape of the device.
    pub geometry: Geometry,
    /// How addresses are packed.
    pub format: AddressFormat,
    /// What the chunks are for.
    pub plan: Plan,
    /// All frames of the drive.
    pub frames: Frames,
    /// Zeroes, sealed as padding.
    pub padding: Frame,
    /// Frames that hosts get when the drive turns read-only.
    pub rescue: Vec<Frame>,
    /// What ties blocks to their places.
    pub seals: Seals,
    /// What is known of each chunk.
    pub chunks: ChunkTable,
    /// Free chunks, and for whom they are.
    pub provisioning: Provisioning,
    /// Write units under way, and open chunks.
    pub units: Units,
    /// Reads under way.
    pub reads: Reads,
    /// What each parallel unit has to do, where somebody asks.
    pub backlog: Backlog,
    /// Chunks on their way to be free.
    pub resets: Resets,
    /// Where collection works, and which requests meet it.
    pub meetings: Meetings,
    /// Counts since the drive was opened.
    pub statistics: Statistics,
    /// What came before the statistics began.
    pub life: Life,
    /// The time of the latest call.
    pub now: Time,
    /// What the drive may begin.
    pub phase: Phase,
    /// Why nothing can be written any more.
    pub read_only: Option<ReadOnlyReason>,
    /// Something has happened that parts may act on.
    pub stirred: bool,
    /// Free chunks have changed, or what is on its way to be free.
    pub room_changed: bool,
    /// Commands that the device has and has not completed.
    pub under_way: u32,
    /// Commands that have ended.
    pub ended: u64,
    /// Commands that the device does not have yet, in order.
    pub outbox: VecDeque<Errand>,
    /// The unit that is being handed over.
    pub handed: HandedUnit,
    /// The device had no room for the next one, and nothing has ended since.
    pub is_full: bool,
    /// Reads were given up whose frames the device may still write to: it is not asked for anything any more.
    pub is_deaf: bool,
    /// What may be moved because it is weak.
    pub allowance: Allowance,
    /// Something unusual has happened: the device may have something to say.
    pub is_unusual: bool,
    /// Chunks of a tenant that are weak, and that it has not been told of.
    pub weak_of_tenant: Vec<ChunkId>,
    /// A bug that tests look for.
    pub bugs: Bugs,
}

/// Where the blocks of a unit go, and the salts that they have for that long: kept, so that no unit needs room of its own.
pub struct HandedUnit {
    places: [Ppa; VECTOR_BLOCKS_MAX],
    salts: [u32; VECTOR_BLOCKS_MAX],
}

impl Default for HandedUnit {
    fn default() -> HandedUnit {
        HandedUnit { places: [Ppa(0); VECTOR_BLOCKS_MAX], salts: [0; VECTOR_BLOCKS_MAX] }
    }
}

/// What a tag stands for: its kind in the top byte, an index below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errand {
    /// Writes or copies a unit.
    Unit(UnitId),
    /// Reads.
    Read(ReadId),
    /// Resets a chunk.
    Reset(ChunkId),
    /// Makes durable what the device has taken.
    Flush,
}

impl Errand {
    /// The tag of the command.
    pub fn tag(self) -> Tag {
        let (kind, index) = match self {
            Errand::Unit(unit) => (0u64, unit.0),
            Errand::Read(read) => (1, read.0),
            Errand::Reset(chunk) => (2, chunk.0),
            Errand::Flush => (3, 0),
        };
        kind << 56 | u64::from(index)
    }

    #[inline]
    fn from_tag(tag: Tag) -> Errand {
        let index = tag as u32;
        match tag >> 56 {
            0 => Errand::Unit(UnitId(index)),
            1 => Errand::Read(ReadId(index)),
            2 => Errand::Reset(ChunkId(index)),
            3 => Errand::Flush,
            kind => panic!("the device completed a command that was never submitted: kind {kind}"),
        }
    }
}

impl Flash {
    /// The group of `chunk`.
    #[inline]
    pub fn group_of(&self, chunk: ChunkId) -> u32 {
        self.format.group_of(self.format.pu_of(chunk))
    }

    /// Whether anything may still be programmed: a worn-out drive takes nothing new, and saves what it has taken.
    #[inline]
    pub fn may_program(&self) -> bool {
        matches!(self.read_only, None | Some(ReadOnlyReason::WornOut))
    }

    /// `chunk` holds nothing that will be needed once the log is durable up to `barrier`.
    pub fn reset_when_durable(&mut self, chunk: ChunkId, barrier: u64) {
        self.chunks.set_usage(chunk, ChunkUse::Resetting);
        let barrier = if self.bugs.has(Canary::ResetBeforeLog) { 0 } else { barrier };
        self.resets.wait(chunk, barrier, self.reads.grace());
        self.provisioning.expect(self.group_of(chunk));
        self.stirred = true;
    }

    /// From now on nothing new is taken. A worn-out drive can still fail for a graver reason.
    pub fn turn_read_only(&mut self, reason: ReadOnlyReason) {
        if self.may_program() {
            self.read_only = Some(reason);
            self.stirred = true;
            self.provisioning.end_of_life();
            self.lend_metadata_where_resets_fail();
            // Room for what was acknowledged comes before what the policy is to show or to even out.
            self.chunks.choose_victims(VictimPolicy::Greedy, 0);
            // Reads need frames too, and what the buffer holds now may hold them for good.
            for frame in self.rescue.drain(..) {
                self.frames.release(frame);
            }
        }
    }

    /// What happened since the drive was formatted, as far as it is known.
    pub fn life(&self) -> Life {
        self.life.with(&self.statistics, self.now)
    }

    /// Takes a free chunk and opens it.
    pub fn open_chunk(&mut self, claim: Claim, label: Label) -> Option<OpenId> {
        let chunk = self.provisioning.take(claim)?;
        let usage = if matches!(claim, Claim::Metadata { .. }) { ChunkUse::Metadata } else { ChunkUse::Open };
        self.chunks.set_usage(chunk, usage);
        self.chunks.set_label(chunk, label);
        if usage == ChunkUse::Open {
            self.seals.open(chunk);
        }
        self.room_changed = true;
        let open = self.units.open(chunk, 0);
        self.sample_spare();
        Some(open)
    }

    /// Takes a free chunk of `pu` for the tenant and opens it.
    pub fn open_tenant_chunk(&mut self, pu: PuId) -> Option<OpenId> {
        let chunk = self.provisioning.take(Claim::Tenant(pu))?;
        self.chunks.set_usage(chunk, ChunkUse::Tenant);
        self.chunks.set_label(chunk, Label::Ordinary);
        self.seals.open(chunk);
        Some(self.units.open(chunk, 0))
    }

    /// Writes `used` blocks of `frames`, and padding up to the whole of it, to the next place of `open`.
    pub fn write_unit(&mut self, open: OpenId, purpose: Purpose, owner: u64, frames: &[Frame], used: u32) -> UnitId {
        let unit = self.begin_unit(open, purpose, owner, frames, used);
        if self.units.may_go(unit) {
            self.submit(Errand::Unit(unit));
        }
        unit
    }

    /// Has the device copy `used` blocks from `sources`, and the last of them again up to the whole of `frames`, to the next
    /// place of `open`.
    pub fn copy_unit(&mut self, open: OpenId, owner: u64, frames: &[Frame], used: u32, sources: &[Ppa]) {
        let unit = self.begin_unit(open, Purpose::Relocation, owner, frames, used);
        self.units.copy_from(unit, sources);
        if self.units.may_go(unit) {
            self.submit(Errand::Unit(unit));
        }
    }

    fn begin_unit(&mut self, open: OpenId, purpose: Purpose, owner: u64, frames: &[Frame], used: u32) -> UnitId {
        self.statistics.programmed[purpose as usize] += u64::from(used);
        self.statistics.programmed[Purpose::Padding as usize] += frames.len() as u64 - u64::from(used);
        self.units.begin(open, purpose, owner, frames, used)
    }

    /// Submits what was held back in the chunk of `unit` and may go now.
    pub fn submit_held(&mut self, unit: UnitId) {
        while let Some(next) = self.units.next_held(unit) {
            self.submit(Errand::Unit(next));
        }
    }

    /// Writes padding behind what `open` holds, so that it can be read.
    pub fn pad(&mut self, open: OpenId) {
        self.pad_by(open, self.geometry.mw_cunits.max(self.geometry.ws_min).min(self.units.room(open)));
    }

    /// Writes so many blocks of padding to `open`.
    pub fn pad_by(&mut self, open: OpenId, mut blocks: u32) {
        let most = VECTOR_BLOCKS_MAX as u32 / self.geometry.ws_min * self.geometry.ws_min;
        while blocks > 0 {
            let count = blocks.min(most);
            self.write_unit(open, Purpose::Padding, 0, &[self.padding; VECTOR_BLOCKS_MAX][..count as usize], 0);
            blocks -= count;
        }
    }

    /// Hands a read to the device.
    #[inline]
    pub fn submit_read(&mut self, read: ReadId) {
        self.submit(Errand::Read(read));
    }

    /// Has the blocks of `read` that have a bit in `mask` read once more.
    pub fn read_again(&mut self, read: ReadId, mask: u64) {
        self.reads.get_mut(read).keep(mask);
        self.submit(Errand::Read(read));
    }

    /// Has a command handed to the device, after those before it.
    #[inline]
    pub fn submit(&mut self, errand: Errand) {
        self.count_in_backlog(errand, true);
        self.outbox.push_back(errand);
    }

    /// Whether the device has all commands.
    #[inline]
    pub fn is_handed_over(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Whether a command waits that the device may have room for.
    #[inline]
    pub fn may_hand_over(&self) -> bool {
        !self.is_full && !self.is_deaf && !self.outbox.is_empty()
    }

    /// Hands commands to the device, in order, until it has no room for the next one.
    #[inline]
    pub fn hand_over(&mut self, media: &mut dyn Media) {
        while self.may_hand_over()
            && let Some(errand) = self.outbox.front().copied()
        {
            self.is_full = !self.try_submit(media, errand);
            if !self.is_full {
                self.outbox.pop_front();
            }
        }
    }

    fn try_submit(&mut self, media: &mut dyn Media, errand: Errand) -> bool {
        let (now, tag) = (self.now, errand.tag());
        let submitted = match errand {
            Errand::Unit(unit) => {
                let unit = self.units.unit(unit);
                let first = self.format.ppa(unit.chunk, unit.first).0;
                let HandedUnit { places, salts } = &mut self.handed;
                let to = &mut places[..unit.count as usize];
                to.iter_mut().zip(first..).for_each(|(place, ppa)| *place = Ppa(ppa));
                let (to, fua) = (&*to, self.geometry.volatile_cache);
                if unit.is_copy() {
                    let command = Command::Copy { from: unit.sources(), to, fua };
                    media.submit(now, &mut self.frames, tag, command).is_ok()
                } else {
                    // The device has the contents when it has the command. The frames may go elsewhere, too, later.
                    let (seals, frames) = (&self.seals, unit.frames());
                    let command = Command::Write { blocks: Blocks::Vector(to), frames, fua };
                    let salts = &mut salts[..frames.len()];
                    for ((salt, ppa), frame) in salts.iter_mut().zip(to).zip(frames) {
                        *salt = seals.apply(&mut self.frames, *frame, *ppa);
                    }
                    let submitted = media.submit(now, &mut self.frames, tag, command).is_ok();
                    for (salt, frame) in salts.iter().zip(frames) {
                        Oob::add_salt(&mut self.frames, *frame, *salt);
                    }
                    submitted
                }
            }
            Errand::Read(read) => {
                let read = self.reads.get(read);
                let command = Command::Read { blocks: Blocks::Vector(read.places()), frames: read.frames() };
                media.submit(now, &mut self.frames, tag, command).is_ok()
            }
            Errand::Reset(chunk) => {
                let blocks = [self.format.ppa(chunk, 0)];
                let command = Command::Reset { blocks: Blocks::Vector(&blocks) };
                media.submit(now, &mut self.frames, tag, command).is_ok()
            }
            Errand::Flush => media.submit(now, &mut self.frames, tag, Command::Flush).is_ok(),
        };
        if submitted {
            self.under_way += 1;
            self.note_submitted(errand);
        }
        submitted
    }

    /// Takes from the device which commands have ended by `now`.
    #[inline]
    pub fn poll(&mut self, media: &mut dyn Media, now: Time, completions: &mut Vec<Completion>) {
        self.now = self.now.max(now);
        if !self.is_deaf {
            media.poll(self.now, &mut self.frames, completions);
        }
        self.is_full = false;
        self.under_way -= completions.len() as u32;
        self.ended += completions.len() as u64;
    }

    /// What has ended. What was read can be verified from now on.
    #[inline]
    pub fn came_back(&mut self, completion: &Completion) -> Errand {
        let errand = Errand::from_tag(completion.tag);
        self.count_in_backlog(errand, false);
        if let Some(group) = self.cleaned_by(errand) {
            self.meetings.cleaning_ended(group);
        }
        if let Errand::Read(read) = errand {
            let read = self.reads.get(read);
            for (ppa, frame) in read.places().iter().zip(read.frames()) {
                self.seals.apply(&mut self.frames, *frame, *ppa);
            }
        }
        errand
    }

    #[inline]
    fn count_in_backlog(&mut self, errand: Errand, is_more: bool) {
        if !self.backlog.is_kept() {
            return;
        }
        match errand {
            Errand::Unit(unit) => self.backlog.unit(self.format, self.units.unit(unit), is_more),
            Errand::Read(read) => self.backlog.read(self.format, self.reads.get(read), is_more),
            Errand::Reset(chunk) => self.backlog.reset(self.format, chunk, is_more),
            Errand::Flush => {}
        }
    }

    /// The group in which `errand` is a command of collection.
    #[inline]
    fn cleaned_by(&self, errand: Errand) -> Option<u32> {
        match errand {
            Errand::Unit(unit) => {
                let unit = self.units.unit(unit);
                (unit.purpose == Purpose::Relocation).then(|| self.group_of(unit.chunk))
            }
            Errand::Read(read) => {
                let read = self.reads.get(read);
                let is_cleaning = read.reader == Reader::Collection;
                is_cleaning.then(|| self.group_of(self.format.chunk_of(read.places()[0])))
            }
            Errand::Reset(chunk) => Some(self.group_of(chunk)),
            Errand::Flush => None,
        }
    }

    /// The device has taken `errand`.
    #[inline]
    fn note_submitted(&mut self, errand: Errand) {
        match errand {
            Errand::Read(read) if self.reads.get(read).reader == Reader::Host => {
                let format = self.format;
                let group_of = |place: &Ppa| format.group_of(format.pu_of(format.chunk_of(*place)));
                let groups = self.reads.get(read).places().iter().map(group_of);
                self.meetings.count(groups, &mut self.statistics.encounters);
            }
            Errand::Unit(unit) if self.units.unit(unit).purpose == Purpose::Data => {
                let group = self.group_of(self.units.unit(unit).chunk);
                self.meetings.count(std::iter::once(group), &mut self.statistics.encounters);
            }
            _ => {
                if let Some(group) = self.cleaned_by(errand) {
                    self.meetings.cleaning_began(group);
                }
            }
        }
    }

    /// Blocks that can hold no data now: of log and checkpoint, free, on their way to be reset, moved out of victims, or not
    /// yet written.
    pub fn spare_blocks(&self) -> u64 {
        let blocks = u64::from(self.geometry.blocks_per_chunk);
        u64::from(self.provisioning.free_total()) * blocks
            + u64::from(self.provisioning.coming()) * blocks
            + self.chunks.emptied()
            + u64::from(self.provisioning.metadata_in_use()) * blocks
            + self.units.unwritten(|chunk| self.chunks.usage(chunk) == ChunkUse::Open)
    }

    /// Adds the spare blocks of this moment to the statistics.
    pub fn sample_spare(&mut self) {
        self.statistics.spare_block_samples += self.spare_blocks();
        self.statistics.spare_samples += 1;
    }
}
