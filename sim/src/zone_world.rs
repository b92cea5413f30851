//! A zoned drive under test, a host that writes its zones, and the model that says what the host may find.

use crate::crash_points::Noted;
use crate::damage::area_on_media;
use crate::fault::{Fault, FaultKind, disturb};
use crate::played::Played;
use crate::rig::Rig;
use crate::step::{Moment, Step};
use crate::wire::{CrashPoint, Wire};
use crate::zone_model::{FoundZone, IN_ORDER, LOST, Life, Snapshot, ZoneModel};
use openftl_core::{Clock, Frame, Ppa, Stamp};
use openftl_media::{EmulatedDevice, NandStatistics, Profile, Store, Timing};
use openftl_parts::{Access, Config, Durability, IoError, OpenError, Target};
use openftl_zones::{Action, Layout, Zone, ZoneConfig, ZoneDone, ZoneError, ZoneFtl, ZoneRequest, ZoneState};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// Requests until a power cut, at most.
const OPERATIONS_MAX: u32 = 400;

/// Blocks that are read at a time where all are.
pub(crate) const READ_BLOCKS: u32 = 64;

/// Of so many blocks that are lost, one is of the area.
const AREA_LOST_EVERY: u32 = 4;

/// A request under way.
pub(crate) enum Errand {
    /// A write that the flush behind it makes durable, or a flush.
    Flush {
        snapshot: Snapshot,
    },
    Append {
        address: u64,
    },
    Read {
        zone: u32,
        first: u32,
        frames: Vec<Frame>,
        expected: Vec<Stamp>,
        /// A block of it may be an error.
        may_fail: bool,
    },
    Other,
}

/// All that takes part in a run with a zoned drive.
pub struct ZoneWorld {
    rig: Rig<ZoneFtl<Wire>>,
    layout: Layout,
    /// The model. Crash points keep the one of their moment.
    pub model: Rc<ZoneModel>,
    /// Blocks on media become weak among the operations, and are read.
    pub weakens: bool,
    /// The copy in which a block of the area may be lost: the first or the second, by its place in the copy.
    lost_copies: BTreeMap<u32, u32>,
    pub(crate) under_way: Vec<(u64, Errand)>,
    /// The last version of a block that was written through a window.
    pub(crate) version: u32,
    /// States that a power cut could leave, and what the model said.
    crash_points: Noted<ZoneModel>,
}

impl Deref for ZoneWorld {
    type Target = Rig<ZoneFtl<Wire>>;

    fn deref(&self) -> &Rig<ZoneFtl<Wire>> {
        &self.rig
    }
}

impl DerefMut for ZoneWorld {
    fn deref_mut(&mut self) -> &mut Rig<ZoneFtl<Wire>> {
        &mut self.rig
    }
}

/// What a version of a block says; version 0: zeroes.
pub(crate) fn stamp(zone: u32, life: u32, block: u32, version: u32) -> Stamp {
    assert!(life.max(block).max(version) < 1 << 16, "life {life}, block {block}, version {version}");
    match version {
        0 => Stamp::ZERO,
        _ => Stamp(u64::from(zone + 1) << 48 | u64::from(life) << 32 | u64::from(version) << 16 | u64::from(block)),
    }
}

/// The life and the version that a block says of itself.
fn life_and_version(stamp: Stamp) -> (u32, u32) {
    ((stamp.0 >> 32) as u32 & 0xFFFF, (stamp.0 >> 16) as u32 & 0xFFFF)
}

/// What stands for a block in the extension of a zone: no block has this number.
pub(crate) const EXTENSION: u32 = 0xFFFF;

impl ZoneWorld {
    /// A new drive.
    ///
    /// # Errors
    /// If there can be no such drive.
    ///
    /// # Panics
    /// If the profile is impossible.
    pub fn try_new(
        profile: Profile,
        config: Config,
        zoned: ZoneConfig,
        chunks: u32,
        seed: u64,
    ) -> Result<ZoneWorld, OpenError> {
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed).unwrap();
        let rig = Rig::<ZoneFtl<Wire>>::try_new(device, config, zoned, zoned.limits.into(), seed)?;
        let layout = *rig.ftl.as_ref().expect("it was made").layout();
        Ok(ZoneWorld {
            rig,
            layout,
            model: Rc::new(ZoneModel::new(layout.zones)),
            weakens: false,
            lost_copies: BTreeMap::new(),
            under_way: Vec::new(),
            version: IN_ORDER,
            crash_points: Noted::default(),
        })
    }

    fn on(&self, rig: Rig<ZoneFtl<Wire>>, model: Rc<ZoneModel>) -> ZoneWorld {
        let ZoneWorld { layout, weakens, version, .. } = *self;
        let (lost_copies, crash_points) = (self.lost_copies.clone(), Noted::default());
        ZoneWorld { rig, layout, model, weakens, lost_copies, under_way: Vec::new(), version, crash_points }
    }

    /// The world after a power cut, with the drive not opened yet.
    #[must_use]
    pub fn after_cut(&self, crash_point: CrashPoint, model: Rc<ZoneModel>) -> ZoneWorld {
        self.on(self.rig.with(crash_point.device, crash_point.at), model)
    }

    /// The same drive once more, closed as it is: a power cut has left this device.
    #[must_use]
    pub fn fork(&self) -> ZoneWorld {
        self.on(self.rig.fork(), self.model.clone())
    }

    /// Where everything is.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A number below `bound`, drawn from the seed.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.rig.below(bound.into()) as u32
    }

    pub(crate) fn model(&mut self) -> &mut ZoneModel {
        Rc::make_mut(&mut self.model)
    }

    pub(crate) fn address(&self, zone: u32, block: u32) -> u64 {
        u64::from(zone) * self.layout.size + u64::from(block)
    }

    /// Blocks that were written to a zone, as the host knows.
    #[must_use]
    pub fn written(&self, zone: u32) -> u32 {
        self.model.now(zone).written
    }

    /// The state of a zone.
    pub fn state(&mut self, zone: u32) -> ZoneState {
        self.ftl().board().zone(zone).state
    }

    /// States found by a watched wire.
    pub(crate) fn note_crash_points(&mut self) {
        self.crash_points.note(&self.rig.wire, &self.model);
    }

    /// The states found since the last call.
    pub fn take_crash_points(&mut self) -> Vec<(CrashPoint, Rc<ZoneModel>)> {
        self.note_crash_points();
        self.crash_points.take()
    }

    fn end(&mut self, errand: Errand, ZoneDone { result, address: at, .. }: ZoneDone) {
        match errand {
            Errand::Flush { snapshot } => match result {
                Ok(()) => self.model().flushed(&snapshot),
                Err(error) => self.expect_worn_out("a flush", error),
            },
            Errand::Append { address } => assert_eq!((result, at), (Ok(()), Some(address)), "an append is where it is"),
            Errand::Read { frames, may_fail, .. }
                if may_fail
                    && matches!(
                        result,
                        Err(ZoneError::Io(IoError::Unrecovered { .. } | IoError::WrongBlock { .. }))
                    ) =>
            {
                frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
            }
            Errand::Read { zone, first, frames, expected, .. } => self.compare(zone, first, frames, &expected, result),
            Errand::Other => result.unwrap_or_else(|error| panic!("a request ended with: {error}")),
        }
    }

    /// Something may be refused for good only because the drive is worn out, or a zone has no medium left.
    pub(crate) fn expect_worn_out(&mut self, what: &str, error: ZoneError) {
        let is_worn = match error {
            ZoneError::DriveReadOnly(_) | ZoneError::Io(IoError::ReadOnly) => self.is_worn_out(),
            ZoneError::ReadOnly { zone } => self.state(zone) == ZoneState::ReadOnly && self.has_bad_chunks(),
            _ => false,
        };
        assert!(self.may_wear_out && is_worn, "{what}: {error}: {}", self.ftl().describe());
    }

    fn has_bad_chunks(&self) -> bool {
        let NandStatistics { program_failures, erase_failures, .. } = *self.wire.device().statistics();
        program_failures + erase_failures > 0 || self.model.is_hurt()
    }

    fn compare(
        &mut self,
        zone: u32,
        first: u32,
        frames: Vec<Frame>,
        expected: &[Stamp],
        result: Result<(), ZoneError>,
    ) {
        let end = first + frames.len() as u32;
        result.unwrap_or_else(|error| panic!("a read of blocks {first} to {end} of zone {zone} ended with: {error}"));
        let pool = self.ftl().frames_mut();
        for ((block, frame), expected) in (first..).zip(frames).zip(expected) {
            let found = Stamp::recognise(pool.bytes(frame));
            assert_eq!(found, Some(*expected), "block {block} of zone {zone}");
            pool.release(frame);
        }
    }

    /// Blocks of the area that are on media, with their places there.
    pub fn area_on_media(&mut self) -> Vec<(u32, Ppa)> {
        let block = self.ftl().block();
        let places = (0..).zip(area_on_media(block)).filter_map(|(at, place)| Some((at, place?)));
        places.collect()
    }

    /// A block of the area is lost, in a copy in which it was lost before if there is any. Returns whether there was one.
    fn lose_in_area(&mut self, pick: u32, corrupt: bool) -> bool {
        let layout = self.layout;
        let mut blocks = self.area_on_media();
        blocks.retain(|(block, _)| {
            let before = self.lost_copies.get(&layout.in_copy(*block));
            before.is_none_or(|copy| *copy == block / layout.copy_blocks())
        });
        let Some((block, ppa)) = blocks.get(pick as usize % blocks.len().max(1)).copied() else { return false };
        self.lost_copies.insert(layout.in_copy(block), block / layout.copy_blocks());
        self.strike(ppa, corrupt);
        true
    }

    /// What is at `ppa` cannot be read any more, or is something else.
    pub fn strike(&mut self, ppa: Ppa, corrupt: bool) {
        let mut device = self.wire.device();
        let done = if corrupt { device.corrupt(ppa) } else { device.inject_read_failure(ppa) };
        done.expect("a store in memory");
    }

    /// A block of a zone, on media, is lost there, or one of the area, which has another copy. Returns whether there was any.
    pub(crate) fn lose(&mut self, pick: u32, corrupt: bool) -> bool {
        self.settle();
        if pick.is_multiple_of(AREA_LOST_EVERY) {
            return self.lose_in_area(pick / AREA_LOST_EVERY, corrupt);
        }
        let zone = pick % self.layout.zones;
        let written = self.ftl().board().zone(zone).written;
        let places = (0..written).filter_map(|block| self.ftl().place_on_media(zone, block).map(|ppa| (block, ppa)));
        let places: Vec<_> = places.collect();
        let Some((block, ppa)) = places.get(pick as usize / 7 % places.len().max(1)).copied() else { return false };
        self.strike(ppa, corrupt);
        self.model().hurt(zone, block);
        true
    }

    /// Writes blocks at the write pointer of a zone, or appends them.
    ///
    /// # Errors
    /// Why the drive refuses it.
    pub fn write(&mut self, zone: u32, blocks: u32, durability: Durability, is_append: bool) -> Result<(), ZoneError> {
        let Life { number, written, .. } = *self.model.now(zone);
        let frames = self.stamped(zone, number, written, blocks, IN_ORDER);
        let (now, tag) = (self.clock.now(), self.next_tag());
        let (first, frames_of) = (self.address(zone, written), &frames);
        // Where a zone has no more than its capacity, the next block is of the next zone.
        let is_append = is_append || u64::from(written) == self.layout.size;
        let request = if is_append {
            ZoneRequest::Append { zone: self.address(zone, 0), frames: frames_of, durability }
        } else {
            ZoneRequest::Write { first, frames: frames_of, durability }
        };
        // What is written is there from now on, as far as a power cut during this goes.
        self.model().write(zone, i64::from(blocks));
        let before = self.ftl().board().zone(zone).written;
        let result = self.ftl().submit(now, tag, request);
        if let Err(error) = result {
            self.model().write(zone, -i64::from(blocks));
            frames.iter().for_each(|frame| self.ftl().frames_mut().release(*frame));
            assert_eq!(self.ftl().board().zone(zone).written, before, "what is refused changes nothing");
            return Err(error);
        }
        let errand = match (durability, is_append) {
            (Durability::Durable, _) => Errand::Flush { snapshot: self.model.snapshot() },
            (Durability::Volatile, true) => Errand::Append { address: first },
            (Durability::Volatile, false) => Errand::Other,
        };
        self.under_way.push((tag, errand));
        self.note_crash_points();
        Ok(())
    }

    /// Frames with blocks of a zone from block `first` on, of this version.
    pub(crate) fn stamped(&mut self, zone: u32, life: u32, first: u32, blocks: u32, version: u32) -> Vec<Frame> {
        let frames = self.frames(blocks.into());
        let pool = self.ftl().frames_mut();
        for (block, frame) in (first..).zip(&frames) {
            stamp(zone, life, block, version).expand(pool.bytes_mut(*frame));
        }
        frames
    }

    /// Makes everything durable; ends later.
    pub fn flush(&mut self) {
        let (now, tag) = (self.clock.now(), self.next_tag());
        if let Err(error) = self.ftl().submit(now, tag, ZoneRequest::Flush) {
            return self.expect_worn_out("a flush", error);
        }
        self.under_way.push((tag, Errand::Flush { snapshot: self.model.snapshot() }));
    }

    /// Acts on a zone.
    ///
    /// # Errors
    /// Why the drive refuses it.
    pub fn act(&mut self, zone: u32, action: Action) -> Result<(), ZoneError> {
        let (now, tag) = (self.clock.now(), self.next_tag());
        let address = self.address(zone, 0);
        let before = self.model.clone();
        if action == Action::Reset {
            self.model().reset(zone);
        }
        if action == Action::Finish && self.ftl().board().zone(zone).has_window {
            let Life { written, .. } = *self.model.now(zone);
            let in_window = self.model.now(zone).end() - written;
            self.model().commit(zone, in_window);
        }
        if let Err(error) = self.ftl().submit(now, tag, ZoneRequest::Act { zone: address, action }) {
            self.model = before;
            return Err(error);
        }
        self.under_way.push((tag, Errand::Other));
        self.note_crash_points();
        Ok(())
    }

    /// Reads blocks of a zone and compares them with the model.
    pub fn read(&mut self, zone: u32, first: u32, blocks: u32) {
        let frames = self.frames(blocks.into());
        let life = self.model.now(zone);
        let stamp_of = |block: u32| match life.version(block) {
            0 => Stamp::ZERO,
            version => stamp(zone, life.number, block, version),
        };
        let expected = (first..first + blocks).map(stamp_of).collect();
        let may_fail = (first..first + blocks).any(|block| self.model.may_be_lost(zone, block));
        let (now, tag, at) = (self.clock.now(), self.next_tag(), self.address(zone, first));
        self.ftl().submit(now, tag, ZoneRequest::Read { first: at, frames: &frames }).expect("it can be read");
        self.under_way.push((tag, Errand::Read { zone, first, frames, expected, may_fail }));
    }

    /// From now on a block is read with high ECC, if it is on media. Returns whether it is.
    pub fn weaken(&mut self, zone: u32, block: u32) -> bool {
        let Some(place) = self.ftl().place_on_media(zone, block) else { return false };
        self.wire.device().inject_high_ecc(place);
        true
    }

    /// The block behind the last one of a zone that may hold something.
    fn end_of_zone(&mut self, zone: u32) -> u32 {
        let Zone { written, has_window, .. } = self.ftl().board().zone(zone);
        let window_blocks = if has_window { self.layout.window_blocks } else { 0 };
        (written + window_blocks).min(self.layout.capacity)
    }

    /// What each zone holds, told by its blocks.
    ///
    /// # Panics
    /// If the blocks of a zone are not those of one life, from the first on.
    pub fn read_all(&mut self) -> Vec<FoundZone> {
        let mut found = Vec::new();
        for zone in 0..self.layout.zones {
            let written = self.ftl().board().zone(zone).written;
            let end = self.end_of_zone(zone).max(written);
            let (mut life, mut versions) = (None, Vec::new());
            for first in (0..end).step_by(READ_BLOCKS as usize) {
                let count = READ_BLOCKS.min(end - first);
                for (block, stamp_found) in (first..).zip(self.read_raw(zone, first, count)) {
                    let Some(stamp_found) = stamp_found else {
                        versions.push((block, LOST));
                        continue;
                    };
                    let (number, version) = life_and_version(stamp_found);
                    let number = if version > 0 { *life.get_or_insert(number) } else { 0 };
                    assert_eq!(stamp_found, stamp(zone, number, block, version), "block {block} of zone {zone}");
                    let in_order = if block < written { IN_ORDER } else { 0 };
                    versions.extend((version != in_order).then_some((block, version)));
                }
            }
            found.push(FoundZone { life, written, extension: self.read_extension(zone), versions });
        }
        found
    }

    /// The life that the extension of a zone says, all of it.
    fn read_extension(&mut self, zone: u32) -> Option<u32> {
        let has_extension = self.ftl().board().zone(zone).has_extension;
        let words: Vec<u64> =
            self.ftl().extension(zone).as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let life = has_extension.then(|| life_and_version(Stamp(words[0])).0);
        let expected = life.map_or(0, |life| stamp(zone, life, EXTENSION, IN_ORDER).0);
        assert!(words.iter().all(|word| *word == expected), "the extension of zone {zone}: {words:x?}");
        life
    }

    /// Compares all of a drive that was just opened with the model. Gives what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    pub fn find(&mut self) -> Result<Vec<FoundZone>, String> {
        for zone in 0..self.layout.zones {
            let state = self.state(zone);
            if state.is_open() {
                return Err(format!("zone {zone} comes back {state:?}"));
            }
        }
        let found = self.read_all();
        self.model.verdict(&found)?;
        Ok(found)
    }

    /// The host goes on with what it found.
    pub fn adopt(&mut self, found: &[FoundZone]) {
        self.model().adopt(found);
    }

    /// Works until the power is cut, whatever is under way, and opens the drive again.
    ///
    /// # Errors
    /// What contradicts the model.
    pub fn cut_at(&mut self, moment: Moment) -> Result<(), String> {
        let wire = self.wire.clone();
        wire.cut_after(moment.events, || {
            for _ in 0..OPERATIONS_MAX {
                self.operation(4);
            }
        });
        self.power_cut_at(moment);
        self.recover()
    }
}

impl Played for ZoneWorld {
    type Ftl = ZoneFtl<Wire>;

    fn rig(&self) -> &Rig<ZoneFtl<Wire>> {
        &self.rig
    }

    fn rig_mut(&mut self) -> &mut Rig<ZoneFtl<Wire>> {
        &mut self.rig
    }

    fn request(&mut self, step: &Step) {
        match step {
            Step::Zone(deed) => self.perform(*deed),
            Step::Flush => self.flush(),
            other => unreachable!("{other} is no request for zones"),
        }
    }

    fn take(&mut self, done: Vec<ZoneDone>) {
        self.note_crash_points();
        for ended in done {
            let index = self.under_way.iter().position(|(tag, _)| *tag == ended.tag).expect("a request under way");
            let (_, errand) = self.under_way.swap_remove(index);
            self.end(errand, ended);
        }
        self.wire.look();
        self.note_crash_points();
    }

    fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
    }

    fn inject(&mut self, fault: Fault) -> bool {
        if fault.kind == FaultKind::Retry {
            // A read that has failed once is not to fail once more: then its block would be lost, and nothing to blame.
            self.settle();
        }
        if matches!(fault.kind, FaultKind::Lose | FaultKind::Corrupt) {
            return self.lose(fault.pick, fault.kind == FaultKind::Corrupt);
        }
        let ftl = self.ftl.as_ref().expect("the drive is open");
        disturb(&mut self.wire.device(), ftl.block(), self.clock.0, fault)
    }

    fn judge(&mut self) -> Result<(), String> {
        let found = self.find()?;
        self.adopt(&found);
        Ok(())
    }

    /// Everything is there.
    fn clean_restart(&mut self) {
        self.settle();
        let was_read_only = self.ftl().is_read_only();
        let closed = self.rig.close().is_ok();
        self.note_crash_points();
        // A drive that takes no writes, or took none at last, has kept what was durable.
        let snapshot = (closed && !was_read_only).then(|| self.model.snapshot());
        if let Some(snapshot) = snapshot.as_ref().filter(|_| !self.may_wear_out) {
            self.model().flushed(snapshot);
        }
        self.wire.look();
        self.note_crash_points();
        self.open(Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
        if let Some(mut snapshot) = snapshot.filter(|_| !self.ftl().is_read_only()) {
            // Of a zone that has no medium left a stop saves no more than the area has room for: a flush would have failed.
            let may_lose = self.may_wear_out && self.has_bad_chunks();
            for zone in 0..self.layout.zones {
                if may_lose && self.state(zone) == ZoneState::ReadOnly {
                    snapshot[zone as usize].written = 0;
                    snapshot[zone as usize].versions.clear();
                }
            }
            self.model().flushed(&snapshot);
        }
        self.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
    }

    fn probe(&self) {
        let mut twin = self.fork();
        twin.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
        twin.prove(0);
    }

    /// Every block of every zone, and one behind.
    fn verify_all(&mut self) {
        self.settle();
        for zone in 0..self.layout.zones {
            if self.state(zone) == ZoneState::Offline {
                continue;
            }
            let end = (self.end_of_zone(zone).max(self.written(zone)) + 1).min(self.layout.size as u32);
            for first in (0..end).step_by(READ_BLOCKS as usize) {
                self.read(zone, first, READ_BLOCKS.min(end - first));
            }
            self.settle();
        }
    }

    fn is_damaged(&self) -> bool {
        self.model.is_hurt() || !self.lost_copies.is_empty()
    }
}
