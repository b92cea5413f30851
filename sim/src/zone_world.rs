//! A zoned drive under test, a host that writes its zones, and the model that says what the host may find.

use crate::fate::States;
use crate::liveness::{Deadline, Patience, Waiting};
use crate::step::Moment;
use crate::wire::{CrashPoint, Wire};
use crate::zone_model::{FoundZone, IN_ORDER, LOST, Life, Snapshot, ZoneModel};
use openftl_core::{Clock, Frame, FrameForm, Nanos, Stamp, VirtualClock};
use openftl_media::{EmulatedDevice, NandStatistics, Profile, Store, Timing};
use openftl_parts::config::Left;
use openftl_parts::{Access, Config, Durability, IoError, OpenError, ReadOnlyReason};
use openftl_zones::{Action, Layout, Limits, Zone, ZoneConfig, ZoneDone, ZoneError, ZoneFtl, ZoneRequest, ZoneState};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::rc::Rc;

/// Requests until a power cut, at most.
const OPERATIONS_MAX: u32 = 400;

/// Blocks that are read at a time where all are.
pub(crate) const READ_BLOCKS: u32 = 64;

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
    /// The drive; `None` while it is closed.
    pub ftl: Option<ZoneFtl<Wire>>,
    /// What the drive is connected to its device by.
    pub wire: Wire,
    /// Virtual time.
    pub clock: VirtualClock,
    config: Config,
    limits: Limits,
    layout: Layout,
    /// The model. Crash points keep the one of their moment.
    pub model: Rc<ZoneModel>,
    /// Blocks on media become weak among the operations, and are read.
    pub weakens: bool,
    chance: Xoshiro256PlusPlus,
    patience: Patience,
    waiting: Waiting,
    /// Whether the drive may wear out, and refuse writes from then on.
    pub may_wear_out: bool,
    /// What the drive is opened with from the next time on, if that is something else. Where that is refused because it needs more
    /// chunks, the drive is opened as it was made.
    pub next_config: Option<Config>,
    has_other_config: bool,
    pub(crate) under_way: Vec<(u64, Errand)>,
    pub(crate) tag: u64,
    /// The last version of a block that was written through a window.
    pub(crate) version: u32,
    /// States that a power cut could leave, and what the model said.
    crash_points: Vec<(CrashPoint, Rc<ZoneModel>)>,
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
        let wire = Wire::new(EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed).unwrap());
        let mut clock = VirtualClock::default();
        let patience = Patience::with(&wire.device());
        let mut deadline = Deadline::new(&mut clock, patience, "a new drive is made".to_owned());
        let ftl = ZoneFtl::format(wire.clone(), config.clone(), zoned, &mut deadline)?;
        let layout = *ftl.layout();
        Ok(ZoneWorld {
            model: Rc::new(ZoneModel::new(layout.zones)),
            weakens: false,
            ftl: Some(ftl),
            waiting: Waiting::new(patience, clock.0),
            wire,
            clock,
            config,
            limits: zoned.limits,
            layout,
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            patience,
            may_wear_out: false,
            next_config: None,
            has_other_config: false,
            under_way: Vec::new(),
            tag: 0,
            version: IN_ORDER,
            crash_points: Vec::new(),
        })
    }

    /// The world after a power cut, with the drive not opened yet.
    #[must_use]
    pub fn after_cut(&self, crash_point: CrashPoint, model: Rc<ZoneModel>) -> ZoneWorld {
        ZoneWorld {
            ftl: None,
            wire: Wire::new(crash_point.device),
            clock: VirtualClock(crash_point.at),
            config: self.config.clone(),
            limits: self.limits,
            layout: self.layout,
            model,
            weakens: self.weakens,
            chance: self.chance.clone(),
            patience: self.patience,
            waiting: Waiting::new(self.patience, crash_point.at),
            may_wear_out: self.may_wear_out,
            next_config: self.next_config.clone(),
            has_other_config: self.has_other_config,
            under_way: Vec::new(),
            tag: self.tag,
            version: self.version,
            crash_points: Vec::new(),
        }
    }

    /// The same drive once more, closed as it is: a power cut has left this device.
    #[must_use]
    pub fn fork(&self) -> ZoneWorld {
        let device = self.wire.device().fork().expect("memory for a small device").expect("a store in memory");
        let (event, at) = (self.wire.events(), self.clock.0);
        let states = States::prefix();
        let crash_point = CrashPoint { device, fingerprint: 0, event, at, torn: false, fates: None, states };
        self.after_cut(crash_point, self.model.clone())
    }

    /// The drive, which is open.
    ///
    /// # Panics
    /// If it is closed.
    pub fn ftl(&mut self) -> &mut ZoneFtl<Wire> {
        self.ftl.as_mut().expect("the drive is open")
    }

    /// Where everything is.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A number below `bound`, drawn from the seed.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.chance.next_u64() % u64::from(bound)) as u32
    }

    pub(crate) fn model(&mut self) -> &mut ZoneModel {
        Rc::make_mut(&mut self.model)
    }

    pub(crate) fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
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
        let found = self.wire.crash_points().into_iter();
        self.crash_points.extend(found.map(|crash_point| (crash_point, self.model.clone())));
    }

    /// The states found since the last call.
    pub fn take_crash_points(&mut self) -> Vec<(CrashPoint, Rc<ZoneModel>)> {
        self.note_crash_points();
        std::mem::take(&mut self.crash_points)
    }

    /// Lets the drive work once more, and books what has ended.
    ///
    /// # Panics
    /// If nothing is due, or it takes too long.
    pub fn pump(&mut self) {
        let mut done = Vec::new();
        let now = self.clock.now();
        self.ftl().poll(now, &mut done);
        if done.is_empty() {
            let Some(due) = self.ftl().next_due() else {
                panic!("nothing is due, and {} requests wait: {}", self.under_way.len(), self.ftl().describe());
            };
            let now = self.clock.wait_until(due);
            self.ftl().poll(now, &mut done);
        }
        if done.is_empty() {
            if let Err(waited) = self.waiting.poll(self.clock.0) {
                panic!("{waited}, and {} requests wait: {}", self.under_way.len(), self.ftl().describe());
            }
        } else {
            self.waiting.begin_anew(self.clock.0);
        }
        self.take(done);
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

    fn is_worn_out(&mut self) -> bool {
        let reason = self.ftl().block().read_only_reason();
        matches!(reason, Some(ReadOnlyReason::WornOut | ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent))
    }

    fn has_bad_chunks(&self) -> bool {
        let NandStatistics { program_failures, erase_failures, .. } = *self.wire.device().statistics();
        program_failures + erase_failures > 0 || self.model.is_hurt()
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Has the drive verify itself, with nothing under way.
    ///
    /// # Panics
    /// If it finds anything.
    pub fn check(&mut self) {
        let mut deadline = Deadline::new(&mut self.clock, self.patience, "the drive checks itself".to_owned());
        let ftl = self.ftl.as_mut().expect("the drive is open");
        let report = ftl.check(&mut deadline, &mut |_, _| ()).expect("the device answers");
        assert!(report.is_sound(), "{:#?}", report.findings);
    }

    /// The FTL is gone, whatever is under way, and the power goes at a later instant of the device ([`Wire::power_cut`]).
    pub fn power_cut_at(&mut self, moment: Moment) -> States {
        self.ftl = None;
        self.under_way.clear();
        self.wire.power_cut(moment)
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

    /// A block of a zone, on media, is lost there. Returns whether there was any.
    pub(crate) fn lose(&mut self, pick: u32, corrupt: bool) -> bool {
        self.settle();
        let zone = pick % self.layout.zones;
        let written = self.ftl().board().zone(zone).written;
        let places = (0..written).filter_map(|block| self.ftl().place_on_media(zone, block).map(|ppa| (block, ppa)));
        let places: Vec<_> = places.collect();
        let Some((block, ppa)) = places.get(pick as usize / 7 % places.len().max(1)).copied() else { return false };
        let mut device = self.wire.device();
        let done = if corrupt { device.corrupt(ppa) } else { device.inject_read_failure(ppa) };
        done.expect("a store in memory");
        drop(device);
        self.model().hurt(zone, block);
        true
    }

    /// Waits until no request is under way.
    pub fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.pump();
        }
    }

    pub(crate) fn frames(&mut self, count: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !self.ftl().frames_mut().acquire_many(FrameForm::Bytes, count as usize, &mut frames) {
            self.pump();
        }
        frames
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
        let frames = self.frames(blocks);
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
        let frames = self.frames(blocks);
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
    fn end_of(&mut self, zone: u32) -> u32 {
        let Zone { written, has_window, .. } = self.ftl().board().zone(zone);
        let window_blocks = if has_window { self.layout.window_blocks } else { 0 };
        (written + window_blocks).min(self.layout.capacity)
    }

    /// Reads every block of every zone, and one behind.
    pub fn verify_all(&mut self) {
        self.settle();
        for zone in 0..self.layout.zones {
            if self.state(zone) == ZoneState::Offline {
                continue;
            }
            let end = (self.end_of(zone).max(self.written(zone)) + 1).min(self.layout.size as u32);
            for first in (0..end).step_by(READ_BLOCKS as usize) {
                self.read(zone, first, READ_BLOCKS.min(end - first));
            }
            self.settle();
        }
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn open(&mut self) -> Result<(), OpenError> {
        if let Some(config) = self.next_config.take() {
            (self.config, self.has_other_config) = (config, true);
        }
        let mut opened = self.open_as_configured();
        if self.has_other_config && matches!(opened, Err(OpenError::OtherSize { .. })) {
            (self.config.left, self.config.checkpoint_log_blocks) = (Left::ALL, None);
            opened = self.open_as_configured();
        }
        let ftl = self.ftl.insert(opened?);
        let missing = &ftl.block().recovery_report().missing_room;
        assert!(missing.is_none(), "room is missing: {missing:?}, {}", ftl.describe());
        self.waiting = Waiting::new(self.patience, self.clock.0);
        Ok(())
    }

    fn open_as_configured(&mut self) -> Result<ZoneFtl<Wire>, OpenError> {
        let deed = "the drive is opened".to_owned();
        let mut deadline = Deadline::new(&mut self.clock, self.patience, deed);
        let (wire, config) = (self.wire.clone(), self.config.clone());
        ZoneFtl::open_with(wire, config, self.limits.into(), Access::ReadWrite, &mut deadline)
    }

    /// What each zone holds, told by its blocks.
    ///
    /// # Panics
    /// If the blocks of a zone are not those of one life, from the first on.
    pub fn read_all(&mut self) -> Vec<FoundZone> {
        let mut found = Vec::new();
        for zone in 0..self.layout.zones {
            let written = self.ftl().board().zone(zone).written;
            let end = self.end_of(zone).max(written);
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

    /// Opens the drive after a power cut and compares all of it with the model, which goes on with what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    pub fn recover(&mut self) -> Result<Vec<FoundZone>, String> {
        if self.ftl.is_none() {
            self.open().map_err(|error| error.to_string())?;
        }
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

    /// Closes the drive and opens it again: everything is there.
    ///
    /// # Panics
    /// If it is not.
    pub fn clean_restart(&mut self) {
        self.settle();
        let was_read_only = self.ftl().is_read_only();
        let deed = format!("the drive is closed, begun with {}", self.ftl().describe());
        let ftl = self.ftl.take().expect("the drive is open");
        let mut deadline = Deadline::new(&mut self.clock, self.patience, deed);
        let closed = match ftl.close(&mut deadline) {
            Ok(_) => true,
            Err(OpenError::Unwritable(
                ReadOnlyReason::WornOut | ReadOnlyReason::NoSuperblock | ReadOnlyReason::Spent,
            )) if self.may_wear_out => false,
            Err(error) => panic!("the drive cannot be closed: {error}"),
        };
        self.note_crash_points();
        // A drive that takes no writes, or took none at last, has kept what was durable.
        let snapshot = (closed && !was_read_only).then(|| self.model.snapshot());
        if let Some(snapshot) = snapshot.as_ref().filter(|_| !self.may_wear_out) {
            self.model().flushed(snapshot);
        }
        self.wire.look();
        self.note_crash_points();
        self.open().unwrap_or_else(|error| panic!("{error}"));
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
        let found = self.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
        self.adopt(&found);
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
        let found = self.recover()?;
        self.adopt(&found);
        Ok(())
    }

    /// Lets the drive work until `span` has passed.
    pub fn idle(&mut self, span: Nanos) {
        let end = self.clock.0 + span;
        loop {
            let (now, mut done) = (self.clock.now(), Vec::new());
            self.ftl().poll(now, &mut done);
            self.take(done);
            match self.ftl().next_due() {
                Some(due) if due < end => _ = self.clock.wait_until(due),
                _ => break,
            }
        }
        self.clock.wait_until(end);
    }
}
