//! The drive: what a host may ask of zones.
//!
//! Sans-IO like every FTL: requests are begun with a tag below [`TAGS`], [`ZoneFtl::poll`] gives back what has ended, and
//! [`ZoneFtl::next_due`] says when to poll again. Addresses are logical blocks of 4 KiB in a sparse space: zone z begins at z × size, and
//! has capacity blocks from there on.

use crate::board::{Board, Zone};
use crate::error::ZoneError;
use crate::face::Face;
use crate::flushing::{Flush, FlushStage, OWN, OWN_FLUSH, ROOM_FLUSH};
use crate::layout::Layout;
use crate::request::{ZoneDone, ZoneRequest};
use crate::room::Room;
use crate::state::{Action, ZoneState};
use crate::zones::{NONE, ZoneStatistics, Zones};
use openftl_blocks::block_ftl::{BlockFtl, ROUNDS_MAX};
use openftl_blocks::reading::BlockPlace;
use openftl_core::{Clock, Frame, FrameForm, Frames, Ppa, Time};
use openftl_media::Media;
use openftl_parts::accounts::statistics::Statistics;
use openftl_parts::flash::Flash;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{Done, Durability, IoError, Target, Vitals};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};

/// Marks the tags of reads of zones.
const OF_ZONE: u64 = 1 << 61;

/// Tags of the host are below this.
pub const TAGS: u64 = OF_ZONE;

/// A zoned drive. See the module.
pub struct ZoneFtl<M: ?Sized = dyn Media> {
    pub(crate) zones: Zones,
    /// Flushes: the first is under way, the second waits.
    pub(crate) flushes: VecDeque<Flush>,
    /// Where durable appends are that wait for a flush, by tag.
    pub(crate) appended: BTreeMap<u64, u64>,
    /// Where the zones begin that are being read, by tag.
    reads: BTreeMap<u64, u64>,
    /// Writes of the area: the last one begun, the last one before which all are acknowledged, and those behind that are; how many of
    /// them are durable.
    pub(crate) next_write: u64,
    pub(crate) acknowledged: u64,
    acknowledged_early: Vec<u64>,
    pub(crate) durable: u64,
    /// Records that are to be durable so that there is room: the last of their writes, or the one up to which a flush was begun.
    pub(crate) room: Option<Room>,
    /// Why the flush under way cannot end well.
    pub(crate) failed: Option<ZoneError>,
    /// The flush of a stop has ended with an error.
    pub(crate) has_ended_unsaved: bool,
    /// Flushes end at once, and nothing is made durable by them.
    lies: bool,
    /// A write of the area has failed: what is durable of records is known no more, and no chunk is released.
    pub(crate) area_lost: Option<IoError>,
    pub(crate) done: Vec<ZoneDone>,
    ended: Vec<Done>,
    pub(crate) ftl: BlockFtl<M>,
}

impl<M: Media> Deref for ZoneFtl<M> {
    type Target = ZoneFtl;

    fn deref(&self) -> &ZoneFtl {
        self
    }
}

impl<M: Media> DerefMut for ZoneFtl<M> {
    fn deref_mut(&mut self) -> &mut ZoneFtl {
        self
    }
}

impl<M: Media> ZoneFtl<M> {
    pub(crate) fn new(ftl: BlockFtl<M>, zones: Zones) -> ZoneFtl<M> {
        ZoneFtl {
            zones,
            flushes: VecDeque::new(),
            appended: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_write: 0,
            acknowledged: 0,
            acknowledged_early: Vec::new(),
            durable: 0,
            room: None,
            failed: None,
            has_ended_unsaved: false,
            lies: false,
            area_lost: None,
            done: Vec::new(),
            ended: Vec::new(),
            ftl,
        }
    }

    /// The device, for those who test what the FTL bears.
    pub fn media_mut(&mut self) -> &mut M {
        self.ftl.media_mut()
    }
}

impl<M: Media + ?Sized> ZoneFtl<M> {
    /// The block FTL below: its area, accounting and recovery.
    #[must_use]
    pub fn block(&self) -> &BlockFtl<M> {
        &self.ftl
    }
}

impl ZoneFtl {
    /// Where everything is.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.zones.layout
    }

    /// What is in frames of its hosts.
    #[must_use]
    pub fn payload_form(&self) -> FrameForm {
        self.zones.payload
    }

    /// How hosts see its zones, unless they say otherwise.
    #[must_use]
    pub fn face(&self) -> Face {
        self.zones.face
    }

    /// Hosts see its zones so from now on. What is on media stays.
    pub fn set_face(&mut self, face: Face) {
        self.zones.face = face;
    }

    /// The states of all zones.
    #[must_use]
    pub fn board(&self) -> &Board {
        &self.zones.board
    }

    /// Where block `block` of `zone` is on media, if it would be read there now.
    #[must_use]
    pub fn place_on_media(&self, zone: u32, block: u32) -> Option<Ppa> {
        if block >= self.board().zone(zone).written {
            return None;
        }
        match self.zones.block(&self.ftl.flash, zone, block) {
            BlockPlace::Media(ppa) => Some(ppa),
            _ => None,
        }
    }

    /// The zone descriptor extension of a zone, [`Layout::extension_bytes`] long; zeroes if the host has set none.
    #[must_use]
    pub fn extension(&self, zone: u32) -> &[u8] {
        self.zones.extension(zone)
    }

    /// What happened since the drive was opened.
    #[must_use]
    pub fn statistics(&self) -> (&Statistics, &ZoneStatistics) {
        (self.ftl.statistics(), &self.zones.statistics)
    }

    /// Counts from nothing from now on.
    pub fn reset_statistics(&mut self) {
        self.ftl.reset_statistics();
        self.zones.statistics = ZoneStatistics::default();
    }

    /// Bytes of memory for where zones are: what a block FTL has its map for.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let bytes = self.zones.layout.map_bytes();
        debug_assert_eq!(bytes, self.zones.places.bytes() + size_of_val(&self.zones.numbers[..]) as u64);
        bytes
    }

    /// The state of the parts in one line, for messages about what should never happen.
    #[must_use]
    pub fn describe(&self) -> String {
        let stage = self.flushes.front().map(|flush| &flush.stage);
        let writers = self.zones.writers.iter().flatten().map(|writer| {
            let columns: Vec<_> =
                writer.columns.iter().map(|column| (column.stage, column.under_way, column.old, column.new)).collect();
            let units: Vec<_> = writer.units.iter().map(|unit| unit.state).collect();
            let (zone, first, saved) = (writer.zone, writer.first_unit, &writer.saved);
            format!(
                "zone {zone} from unit {first}: {units:?}, {columns:?}, saved {saved:?}, durable {}",
                writer.durable
            )
        });
        format!(
            "{} flushes, the first {stage:?}, {} of {} tails free, writes {}/{}/{}, {} doomed, {} leaving, short of room: {}, writers {:?}; {}",
            self.flushes.len(),
            self.zones.tail_of.iter().filter(|zone| **zone == NONE).count(),
            self.zones.tail_of.len(),
            self.durable,
            self.acknowledged,
            self.next_write,
            self.zones.doomed.len(),
            self.zones.coming_and_going.leaving(),
            self.zones.lacks_room,
            writers.collect::<Vec<_>>(),
            self.ftl.describe()
        )
    }

    /// Zones that have changed by themselves since this was last called: they are read only, or the drive recommends to finish or to reset
    /// them. A zone that was lost when the drive was opened is none of them.
    pub fn take_changed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.zones.changed)
    }

    /// Whether the drive lies about flushes, and about durable writes, from now on: they end at once, and nothing is saved by them. What the
    /// drive needs itself is durable all the same, so that a power cut loses what was promised, and nothing more.
    pub fn lie_about_flush(&mut self, lies: bool) {
        self.lies = lies;
    }

    /// See [`ZoneFtl::lie_about_flush`].
    #[must_use]
    pub fn lies_about_flush(&self) -> bool {
        self.lies
    }

    /// Whether all writes of the area are durable.
    pub(crate) fn is_area_durable(&self) -> bool {
        self.durable == self.next_write
    }

    /// Waits until everything is durable that can be: for good, or as it was found.
    pub(crate) fn flush_all(&mut self, is_last: bool, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut done = Vec::new();
        if self.ftl.flash.read_only.is_none() {
            self.begin_flush(None, is_last);
            if !is_last && !self.save_at_once() {
                // Units have to be written first, and may want the chunks that nobody has.
                self.zones.release_found(&mut self.ftl.flash);
            }
            self.poll(clock.now(), &mut done);
        }
        while !self.flushes.is_empty() && self.ftl.flash.may_program() {
            // Where the device has nothing to do room is in chunks that nobody has, though the drive may look now and then.
            if !self.ftl.is_at_work() && self.zones.coming_and_going.has_found() {
                self.zones.release_found(&mut self.ftl.flash);
                self.poll(clock.now(), &mut done);
                continue;
            }
            let due = self.next_due().ok_or(OpenError::Stopped)?;
            clock.wait_until(due);
            self.poll(clock.now(), &mut done);
        }
        self.done.append(&mut done);
        Ok(())
    }

    /// The zone that begins at `address`.
    fn zone_at(&self, address: u64) -> Result<u32, ZoneError> {
        let Layout { size, .. } = self.zones.layout;
        let zone = self.zone_of(address, 1)?;
        if address.is_multiple_of(size) { Ok(zone) } else { Err(ZoneError::NotAZone { address, size }) }
    }

    /// The zone that blocks from `first` on begin in.
    fn zone_of(&self, first: u64, count: u64) -> Result<u32, ZoneError> {
        let layout = &self.zones.layout;
        let blocks = layout.blocks();
        if count == 0 || first.checked_add(count).is_none_or(|end| end > blocks) {
            return Err(ZoneError::OutOfRange { first, count, blocks });
        }
        Ok((first / layout.size) as u32)
    }

    /// Begins a request.
    ///
    /// # Errors
    /// If it cannot be started; frames stay the caller's, and nothing has changed.
    pub fn submit(&mut self, now: Time, tag: u64, request: ZoneRequest<'_>) -> Result<(), ZoneError> {
        assert!(tag < TAGS, "tags from {TAGS:#x} on are the drive's own");
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.ftl.flash.statistics.host_requests += 1;
        let result = match request {
            ZoneRequest::Read { first, frames } => self.read(tag, first, frames),
            ZoneRequest::Write { first, frames, durability } => self.write(tag, first, false, frames, durability),
            ZoneRequest::Append { zone, frames, durability } => self.write(tag, zone, true, frames, durability),
            ZoneRequest::OpenWithWindow { zone } => self.open_with_window(tag, zone),
            ZoneRequest::Commit { last } => self.commit(tag, last),
            ZoneRequest::Act { zone, action } => self.act(tag, zone, action),
            ZoneRequest::ActOnAll { action } => self.act_on_all(tag, action),
            ZoneRequest::Extend { zone, frame } => self.extend(tag, zone, frame),
            ZoneRequest::Flush => self.flush(tag),
        };
        self.ftl.flash.statistics.host_errors += u64::from(result.is_err());
        self.ftl.hand_over();
        result
    }

    /// Begins a flush. A drive that takes no more writes has nothing to save, or cannot.
    fn flush(&mut self, tag: u64) -> Result<(), ZoneError> {
        match self.expect_writable() {
            _ if self.lies => self.succeed(tag, None),
            Ok(()) => self.begin_flush(Some(tag), false),
            Err(_) if self.is_all_saved() => self.succeed(tag, None),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn expect_writable(&self) -> Result<(), ZoneError> {
        match self.ftl.read_only_reason() {
            Some(reason) => Err(ZoneError::DriveReadOnly(reason)),
            None => Ok(()),
        }
    }

    fn succeed(&mut self, tag: u64, address: Option<u64>) {
        self.done.push(ZoneDone { tag, result: Ok(()), address, at: self.ftl.flash.now });
    }

    fn read(&mut self, tag: u64, first: u64, frames: &[Frame]) -> Result<(), ZoneError> {
        let zone = self.zone_of(first, frames.len() as u64)?;
        let layout = self.zones.layout;
        let at = first % layout.size;
        let end = at + frames.len() as u64;
        if end > layout.size {
            return Err(ZoneError::Boundary { zone, end, capacity: layout.capacity });
        }
        let Zone { state, written, has_window, .. } = self.zones.board.zone(zone);
        if state == ZoneState::Offline {
            return Err(ZoneError::Offline { zone });
        }
        let written = if has_window { written.max(self.zones.in_window(zone).end) } else { written };
        let there = u64::from(written).saturating_sub(at).min(frames.len() as u64) as usize;
        frames[there..].iter().for_each(|frame| self.ftl.flash.frames.zero(*frame));
        if there == 0 {
            self.ftl.flash.statistics.host_blocks_read += frames.len() as u64;
            self.succeed(tag, None);
            return Ok(());
        }
        let (zones, number) = (&self.zones, self.zones.numbers[zone as usize]);
        let place = |flash: &Flash, block: u32| zones.block(flash, zone, block);
        self.ftl.read_elsewhere(tag | OF_ZONE, number, at as u32, &frames[..there], place);
        self.reads.insert(tag, first - at);
        Ok(())
    }

    fn write(
        &mut self,
        tag: u64,
        first: u64,
        is_append: bool,
        frames: &[Frame],
        durability: Durability,
    ) -> Result<(), ZoneError> {
        self.expect_writable()?;
        let zone = if is_append { self.zone_at(first)? } else { self.zone_of(first, frames.len() as u64)? };
        if frames.is_empty() || frames.len() > TRANSACTION_BLOCKS_MAX {
            return Err(ZoneError::Length { blocks: frames.len() });
        }
        let size = self.zones.layout.size;
        let at = (!is_append).then_some((first % size) as u32);
        let Zone { written, has_window, .. } = self.zones.board.zone(zone);
        let at = self.zones.board.write(zone, at, frames.len() as u32)?;
        match has_window {
            true => {
                let committed = self.zones.board.zone(zone).written - written;
                self.zones.write_window(&mut self.ftl.flash, zone, at, frames, committed);
            }
            false => self.zones.append(&mut self.ftl.flash, zone, frames),
        }
        self.zones.statistics.appended += if is_append { frames.len() as u64 } else { 0 };
        let address = is_append.then(|| u64::from(zone) * size + u64::from(at));
        match durability {
            Durability::Volatile => self.succeed(tag, address),
            Durability::Durable if self.lies => self.succeed(tag, address),
            Durability::Durable => {
                if let Some(address) = address {
                    self.appended.insert(tag, address);
                }
                self.begin_flush(Some(tag), false);
            }
        }
        Ok(())
    }

    fn act(&mut self, tag: u64, address: u64, action: Action) -> Result<(), ZoneError> {
        self.expect_writable()?;
        let zone = self.zone_at(address)?;
        self.act_on(zone, action)?;
        self.succeed(tag, None);
        Ok(())
    }

    fn open_with_window(&mut self, tag: u64, address: u64) -> Result<(), ZoneError> {
        self.expect_writable()?;
        let zone = self.zone_at(address)?;
        self.zones.board.open_with_window(zone)?;
        self.succeed(tag, None);
        Ok(())
    }

    fn commit(&mut self, tag: u64, last: u64) -> Result<(), ZoneError> {
        self.expect_writable()?;
        let zone = self.zone_of(last, 1)?;
        let blocks = self.zones.board.commit(zone, last % self.zones.layout.size + 1)?;
        self.zones.commit(&mut self.ftl.flash, zone, blocks);
        self.succeed(tag, None);
        Ok(())
    }

    fn extend(&mut self, tag: u64, first: u64, frame: Frame) -> Result<(), ZoneError> {
        self.expect_writable()?;
        let (zone, bytes) = (self.zone_at(first)?, self.zones.layout.extension_bytes as usize);
        if bytes == 0 {
            return Err(ZoneError::NoExtension);
        }
        self.zones.board.extend(zone)?;
        self.zones.set_extension(zone, Some(&self.ftl.flash.frames.bytes(frame)[..bytes]));
        self.zones.mark_dirty(zone);
        self.succeed(tag, None);
        Ok(())
    }

    fn act_on_all(&mut self, tag: u64, action: Action) -> Result<(), ZoneError> {
        self.expect_writable()?;
        for zone in self.zones.board.all_for(action)? {
            self.act_on(zone, action)?;
        }
        self.succeed(tag, None);
        Ok(())
    }

    /// Resets a zone as part of a request that is not one of zones.
    ///
    /// # Errors
    /// If that cannot be done in its state, or the drive takes no writes.
    pub fn reset(&mut self, now: Time, zone: u32) -> Result<(), ZoneError> {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.expect_writable()?;
        self.act_on(zone, Action::Reset)
    }

    /// Gives up a zone that is read only, as part of a request that is not one of zones: it is offline, and what it had is given back.
    ///
    /// # Errors
    /// If that cannot be done in its state, or the drive takes no writes.
    pub fn take_offline(&mut self, now: Time, zone: u32) -> Result<(), ZoneError> {
        self.ftl.flash.now = self.ftl.flash.now.max(now);
        self.expect_writable()?;
        self.act_on(zone, Action::Offline)
    }

    fn act_on(&mut self, zone: u32, action: Action) -> Result<(), ZoneError> {
        let in_window = self.zones.in_window(zone).len() as u32;
        if action == Action::Finish && in_window > 0 && self.zones.board.zone(zone).state.is_active() {
            // What the host has written is there, whether it was committed or not.
            self.zones.board.advance(zone, in_window);
            self.zones.commit(&mut self.ftl.flash, zone, in_window);
        }
        if !self.zones.board.act(zone, action)? {
            return Ok(());
        }
        match action {
            Action::Reset | Action::Offline => {
                self.zones.statistics.resets += u64::from(action == Action::Reset);
                self.zones.empty(&mut self.ftl.flash, zone);
            }
            Action::Finish => {
                self.zones.statistics.finishes += 1;
                self.zones.end(&mut self.ftl.flash, zone);
            }
            Action::Open | Action::Close => {}
        }
        self.ftl.flash.stirred = true;
        Ok(())
    }

    /// A request of the block FTL has ended: a read of a zone, or one of the drive's own.
    fn take(&mut self, Done { tag, result, at }: Done) {
        if tag & OWN == 0 {
            let tag = tag & !OF_ZONE;
            let zone = self.reads.remove(&tag).expect("a read ends once");
            let result = result.map_err(|error| ZoneError::Io(error.renamed(|block| zone + block)));
            self.done.push(ZoneDone { tag, result, address: None, at });
            return;
        }
        if tag == ROOM_FLUSH {
            if let Some(Room::Flushing(acknowledged)) = self.room.take()
                && result.is_ok()
            {
                self.durable = self.durable.max(acknowledged);
            }
            return;
        }
        if tag == OWN_FLUSH {
            let failed = self.failed.take().or(result.err().map(ZoneError::Io));
            if let Some(Flush { stage: FlushStage::Flushing(acknowledged), .. }) = self.flushes.front()
                && failed.is_none()
            {
                self.durable = self.durable.max(*acknowledged);
            }
            self.end_flush(failed.map_or(Ok(()), Err));
            return;
        }
        if let Err(error) = result {
            self.area_lost = Some(error);
        }
        self.acknowledged_early.push(tag & !OWN);
        while let Some(next) = self.acknowledged_early.iter().position(|write| *write == self.acknowledged + 1) {
            self.acknowledged_early.swap_remove(next);
            self.acknowledged += 1;
        }
    }
}

impl Target for ZoneFtl {
    type Done = ZoneDone;

    fn frames(&self) -> &Frames {
        &self.ftl.flash.frames
    }

    fn frames_mut(&mut self) -> &mut Frames {
        &mut self.ftl.flash.frames
    }

    fn poll(&mut self, now: Time, done: &mut Vec<ZoneDone>) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "{}: it works for ever, and no time passes", self.describe());
            self.ftl.poll_beside(now, &mut self.ended, &mut self.zones);
            let is_news = !self.ended.is_empty();
            for index in 0..self.ended.len() {
                let ended = self.ended[index];
                self.take(ended);
            }
            self.ended.clear();
            self.zones.keep_frames(&mut self.ftl.flash);
            let has_acted = self.advance_flush() | self.release() | self.make_room();
            self.ftl.hand_over();
            if !is_news && !has_acted && !self.ftl.flash.stirred {
                break;
            }
        }
        done.append(&mut self.done);
    }

    fn next_due(&self) -> Option<Time> {
        if self.done.is_empty() { self.ftl.next_due() } else { Some(Time::ZERO) }
    }

    fn is_read_only(&self) -> bool {
        self.ftl.is_read_only()
    }

    fn vitals(&self) -> Option<Vitals> {
        self.ftl.vitals()
    }

    fn give_up(&mut self, now: Time) -> String {
        let state = self.describe();
        self.ftl.give_up_beside(now, &mut self.zones);
        state
    }
}
