//! A key-value drive under test, its host with many requests under way, and a model: a map from keys to values.
//!
//! Requests for one key take their turns in the order of their arrival, so what each of them is to answer is known when it is begun.

use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::target::{Durability, Target};
use openftl_parts::{Access, Config, OpenError};
use openftl_sim::fault::{Fault, FaultKind, disturb};
use openftl_sim::page_world::{gathered, made_bytes};
use openftl_sim::played::Played;
use openftl_sim::played_crash_points::Cut;
use openftl_sim::rig::Rig;
use openftl_sim::step::{Step, ZoneDeed, ZoneDeedKind};
use openftl_sim::wire::{CrashPoint, Wire};
use openftl_values::{
    Condition, Facts, Key, Value, ValueConfig, ValueDone, ValueError, ValueFtl, ValueRequest, ValueTarget,
};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// Keys that the host has.
pub const KEYS: u64 = 60;

/// Requests that the host has under way, at most.
const UNDER_WAY_MAX: usize = 24;

/// Of drives that are compared quickly, one of so many verifies itself.
const SELF_VERIFIED: u64 = 12;

/// What a value is: its bytes, all of which follow from their number and this.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    pub bytes: usize,
    pub seed: u64,
}

/// Of few bytes there are not many.
impl PartialEq for Made {
    fn eq(&self, other: &Made) -> bool {
        let is_short = self.bytes < 16 && self.bytes == other.bytes;
        (self.bytes, self.seed) == (other.bytes, other.seed) || is_short && self.expand() == other.expand()
    }
}

impl Made {
    pub fn expand(self) -> Vec<u8> {
        made_bytes(self.seed, self.bytes)
    }
}

/// Keys of all lengths, some of which are others with a zero behind them.
pub fn key(number: u64) -> Key {
    let number = number % KEYS;
    let text = format!("{:x}", (number / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = text.as_bytes()[..1 + (number / 3) as usize % 14].to_vec();
    bytes.insert(0, b'a' + (number / 3) as u8);
    match number % 3 {
        0 => {}
        1 => bytes.push(0),
        _ => bytes[0] = 255 - bytes[0],
    }
    Key::new(&bytes[..bytes.len().min(16)]).unwrap()
}

/// What a request changes: nothing, or that the key has a value, or none.
type Change = Option<(Key, Option<Made>)>;

/// What is known of the drive.
#[derive(Clone, Default)]
pub struct Model {
    /// Values when all requests have ended that were begun.
    pub live: BTreeMap<Key, Made>,
    /// Values from which the history goes on.
    base: BTreeMap<Key, Made>,
    /// Changes in the order in which they were acknowledged, and how many of them are durable.
    history: Vec<(Key, Option<Made>)>,
    durable: usize,
    /// Changes of requests that have not ended, and of those that have failed on a drive that has worn out.
    open: Vec<(u64, (Key, Option<Made>))>,
    /// The last value that was made up. No two are the same.
    made: u64,
}

impl Model {
    /// The changes of a later one may be there, or not.
    pub fn may_have(&mut self, later: &Model) {
        let ended = later.history[self.history.len()..].iter().map(|change| (0, *change));
        self.open.extend(ended.chain(later.open.iter().copied()));
        self.made = later.made;
    }

    /// How far the history has come on a drive with these values: as far as it can be, all that is durable included.
    fn judge(&self, found: &BTreeMap<Key, Made>) -> Result<(), String> {
        let mut values = self.base.clone();
        let differs = |values: &BTreeMap<Key, Made>, key: &Key| values.get(key) != found.get(key);
        let mut different = found.keys().chain(values.keys()).filter(|key| differs(&values, key)).count();
        // Keys of both are counted twice where they differ.
        different -= found.keys().filter(|key| values.contains_key(key) && differs(&values, key)).count();
        for step in 0..=self.history.len() {
            if step >= self.durable && different == 0 {
                return Ok(());
            }
            let Some((key, made)) = self.history.get(step) else { break };
            let before = differs(&values, key);
            match made {
                Some(made) => _ = values.insert(*key, *made),
                None => _ = values.remove(key),
            }
            different = different + usize::from(differs(&values, key)) - usize::from(before);
        }
        // All that was acknowledged, and of the rest what may be: of each key the first changes.
        for key in found.keys().chain(values.keys()) {
            let open = self.open.iter().filter(|(_, (other, _))| other == key).map(|(_, (_, made))| *made);
            let may_be = std::iter::once(values.get(key).copied()).chain(open);
            if !may_be.clone().any(|made| made == found.get(key).copied()) {
                return Err(format!(
                    "key {key} has {:?}, and may have {:?}; {} of {} changes are durable",
                    found.get(key),
                    may_be.collect::<Vec<_>>(),
                    self.durable,
                    self.history.len()
                ));
            }
        }
        Ok(())
    }
}

/// Room for values that are sent in frames: those of many requests wait for it.
const STAGING_BLOCKS: usize = 300;

enum Errand {
    Change { change: Change, expected: Result<Facts, ValueError>, is_durable: bool },
    Retrieve { frames: Vec<Frame>, key: Key, expected: Option<Made> },
    Exist { expected: Result<Facts, ValueError> },
    Flush { until: usize },
    List { frames: Vec<Frame>, from: Option<Key>, bytes: u32 },
}

pub struct ValueWorld {
    rig: Rig<ValueFtl<Wire>>,
    pub model: Model,
    under_way: Vec<(u64, Errand)>,
    /// Keys that lists gave.
    pub listed: Vec<Vec<Key>>,
    /// A drive that was found out about verifies itself.
    verifies_itself: bool,
    /// The drive is found out about, and not compared.
    is_judging: bool,
    /// All values that were ever to be stored.
    ever: Vec<(Key, Made)>,
}

impl Deref for ValueWorld {
    type Target = Rig<ValueFtl<Wire>>;

    fn deref(&self) -> &Rig<ValueFtl<Wire>> {
        &self.rig
    }
}

impl DerefMut for ValueWorld {
    fn deref_mut(&mut self) -> &mut Rig<ValueFtl<Wire>> {
        &mut self.rig
    }
}

/// Keys of a list as it is on wires.
pub fn read_list(bytes: &[u8]) -> Vec<Key> {
    let count = u32::from_le_bytes(*bytes.first_chunk().unwrap());
    let (mut rest, mut keys) = (&bytes[4..], Vec::new());
    for _ in 0..count {
        let length = u16::from_le_bytes(*rest.first_chunk().unwrap()) as usize;
        keys.push(Key::new(&rest[2..2 + length]).unwrap());
        rest = &rest[(2 + length).next_multiple_of(4)..];
    }
    assert!(rest.is_empty(), "{} bytes behind the last key", rest.len());
    keys
}

impl ValueWorld {
    pub fn new(profile: Profile, config: Config, shape: ValueConfig, chunks: u32, seed: u64) -> ValueWorld {
        ValueWorld::try_new(profile, config, shape, chunks, seed).unwrap()
    }

    /// The same, where there can be such a drive.
    pub fn try_new(
        profile: Profile,
        config: Config,
        shape: ValueConfig,
        chunks: u32,
        seed: u64,
    ) -> Result<ValueWorld, OpenError> {
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, seed).unwrap();
        let mut rig = Rig::try_new(device, config, shape, (), seed)?;
        rig.may_wear_out = true;
        Ok(ValueWorld::of(rig, Model::default()))
    }

    fn of(rig: Rig<ValueFtl<Wire>>, model: Model) -> ValueWorld {
        ValueWorld {
            rig,
            model,
            under_way: Vec::new(),
            listed: Vec::new(),
            verifies_itself: true,
            is_judging: false,
            ever: Vec::new(),
        }
    }

    /// The world after a power cut, with the drive not opened yet.
    pub fn after_cut(&self, crash_point: CrashPoint, model: Model) -> ValueWorld {
        ValueWorld::of(self.rig.with(crash_point.device, crash_point.at), model)
    }

    /// The world with a device as it is, with the drive not opened yet and nothing known of it.
    pub fn after_cut_with(&self, device: EmulatedDevice) -> ValueWorld {
        ValueWorld::of(self.rig.with(device, self.rig.clock.0), Model::default())
    }

    /// Another world on a copy of the device, with the drive not open.
    pub fn twin(&self) -> ValueWorld {
        let mut twin = ValueWorld::of(self.rig.fork(), self.model.clone());
        twin.ever.clone_from(&self.ever);
        twin
    }

    /// Compares a drive that was repaired, all of whose changes were durable, with what was stored, and goes on with what was found: each key has its
    /// last value, and one that was deleted may be back with any. Gives how many are.
    pub fn adopt_repaired(&mut self) -> Result<usize, String> {
        let live = std::mem::take(&mut self.model.live);
        let mut found = BTreeMap::new();
        for key in self.keys() {
            let value = self.value_of(key)?;
            let is_it = |made: &Made| made.bytes == value.len() && made.expand() == value;
            let made = match live.get(&key) {
                Some(made) if !is_it(made) => return Err(format!("key {key} has another value than the last one")),
                Some(made) => *made,
                None => {
                    let ever = self.ever.iter().find(|(other, made)| *other == key && is_it(made));
                    ever.ok_or_else(|| format!("key {key} has a value that was never stored"))?.1
                }
            };
            found.insert(key, made);
        }
        if let Some(key) = live.keys().find(|key| !found.contains_key(key)) {
            return Err(format!("key {key} is not there"));
        }
        let back = found.len() - live.len();
        self.model = Model { live: found.clone(), base: found, made: self.model.made, ..Model::default() };
        Ok(back)
    }

    /// Begins a request, once the drive takes it. `false`: it takes no more writes.
    fn begin(&mut self, request: ValueRequest<'_>, change: Change, errand: Errand) -> bool {
        if self.under_way.is_empty() {
            self.wait_anew();
        }
        while self.under_way.len() >= UNDER_WAY_MAX {
            self.pump();
        }
        let tag = self.next_tag();
        // Power may go before the drive has said that it has begun.
        self.model.open.extend(change.map(|change| (tag, change)));
        loop {
            let now = self.clock.now();
            match self.ftl().submit(now, tag, request) {
                Ok(()) => {
                    self.under_way.push((tag, errand));
                    return true;
                }
                Err(ValueError::Busy) => self.pump(),
                Err(error) => {
                    self.expect_worn_out(error);
                    return false;
                }
            }
        }
    }

    fn change(
        &mut self,
        request: ValueRequest<'_>,
        change: Change,
        expected: Result<Facts, ValueError>,
        is_durable: bool,
    ) {
        // What is durable is so with all that took effect before it: with those that have ended.
        if is_durable {
            self.settle();
        }
        self.begin(request, change, Errand::Change { change, expected, is_durable });
        if let Some((key, made)) = change {
            self.ever.extend(made.map(|made| (key, made)));
            match made {
                Some(made) => _ = self.model.live.insert(key, made),
                None => _ = self.model.live.remove(&key),
            }
        }
        if is_durable {
            self.settle();
        }
    }

    pub fn store(&mut self, key: Key, bytes: usize, condition: Condition, is_durable: bool) {
        self.model.made += 1;
        let made = Made { bytes, seed: self.model.made };
        let value = made.expand();
        let is_there = self.model.live.contains_key(&key);
        let expected = match condition {
            Condition::IfExists if !is_there => Err(ValueError::NoKey),
            Condition::IfMissing if is_there => Err(ValueError::KeyExists),
            _ => Ok(Facts { bytes: bytes as u32, keys: u32::from(!is_there) }),
        };
        let change = expected.is_ok().then_some((key, Some(made)));
        let durability = if is_durable { Durability::Durable } else { Durability::Volatile };
        // In frames or in pieces, by turns.
        if made.seed.is_multiple_of(2) {
            let mut frames = Vec::new();
            let needed = bytes.div_ceil(BLOCK_BYTES);
            if self.ftl().staging().is_empty() {
                self.ftl().set_staging(STAGING_BLOCKS);
            }
            while !self.ftl().staging_mut().acquire_many(FrameForm::Bytes, needed, &mut frames) {
                self.pump();
            }
            for (part, frame) in value.chunks(BLOCK_BYTES).zip(&frames) {
                self.ftl().staging_mut().bytes_mut(*frame)[..part.len()].copy_from_slice(part);
            }
            let value = Value::Frames { frames: &frames, bytes: bytes as u32 };
            self.change(ValueRequest::Store { key, value, condition, durability }, change, expected, is_durable);
        } else {
            let pieces = [&value[..bytes / 3], &value[bytes / 3..]];
            let value = Value::Pieces(&pieces);
            self.change(ValueRequest::Store { key, value, condition, durability }, change, expected, is_durable);
        }
    }

    pub fn delete(&mut self, key: Key, is_durable: bool) {
        let is_there = self.model.live.contains_key(&key);
        let expected = if is_there { Ok(Facts { bytes: 0, keys: 1 }) } else { Err(ValueError::NoKey) };
        let durability = if is_durable { Durability::Durable } else { Durability::Volatile };
        let request = ValueRequest::Delete { key, durability };
        self.change(request, is_there.then_some((key, None)), expected, is_durable);
    }

    /// Reads a value to so many bytes at most, and compares it when it is there.
    pub fn retrieve(&mut self, key: Key, bytes_max: usize) {
        let expected = self.model.live.get(&key).copied();
        let bytes = expected.map_or(1, |made| made.bytes).min(bytes_max);
        let frames = self.frames(bytes.div_ceil(BLOCK_BYTES) as u64);
        let given = frames.clone();
        self.begin(ValueRequest::Retrieve { key, frames: &given }, None, Errand::Retrieve { frames, key, expected });
    }

    pub fn exist(&mut self, key: Key) {
        let made = self.model.live.get(&key);
        let expected = made.map(|made| Facts { bytes: made.bytes as u32, keys: 0 }).ok_or(ValueError::NoKey);
        self.begin(ValueRequest::Exist { key }, None, Errand::Exist { expected });
    }

    /// Lists keys when nothing else is under way.
    pub fn list(&mut self, from: Option<Key>, bytes: u32) {
        self.settle();
        let frames = self.frames((bytes as usize).div_ceil(BLOCK_BYTES) as u64);
        let given = frames.clone();
        self.begin(ValueRequest::List { from, bytes, frames: &given }, None, Errand::List { frames, from, bytes });
        self.settle();
    }

    pub fn flush(&mut self) {
        let until = self.model.history.len();
        self.begin(ValueRequest::Flush, None, Errand::Flush { until });
    }

    /// Lists the keys of the drive, page by page, without comparing them.
    pub fn keys(&mut self) -> Vec<Key> {
        self.is_judging = true;
        let mut keys: Vec<Key> = Vec::new();
        loop {
            let from = keys.last().copied();
            self.list(from, if self.verifies_itself { 100 } else { 1000 });
            let more = self.listed.pop().unwrap();
            let more = &more[usize::from(from.is_some() && more.first() == from.as_ref())..];
            if more.is_empty() {
                self.is_judging = false;
                return keys;
            }
            keys.extend(more);
        }
    }

    fn expect_worn_out(&mut self, error: ValueError) {
        let is_read_only = matches!(error, ValueError::ReadOnly(_) | ValueError::Log(_) | ValueError::Pages(_));
        assert!(is_read_only && self.is_worn_out(), "{error}: {}", self.ftl().describe());
    }

    /// A drive after a power cut recovers, works and is closed.
    pub fn prove(&mut self) {
        self.recover().unwrap_or_else(|contradiction| panic!("{contradiction}"));
        for number in 0..12 {
            self.store(key(number * 7), number as usize * 300, Condition::Always, number == 5);
            self.delete(key(number * 5), false);
        }
        self.flush();
        self.settle();
        self.clean_restart();
        self.check();
        self.verify_all();
    }
}

impl Cut for ValueWorld {
    type Model = Model;

    fn left_by(&self, crash_point: CrashPoint, model: &Model) -> ValueWorld {
        self.after_cut(crash_point, model.clone())
    }

    fn recover_quickly(&mut self, number: u64) -> Result<(), String> {
        self.verifies_itself = number.is_multiple_of(SELF_VERIFIED);
        let recovered = self.recover();
        self.verifies_itself = true;
        recovered
    }

    fn work_and_close(&mut self) {
        self.prove();
    }
}

impl Played for ValueWorld {
    type Ftl = ValueFtl<Wire>;

    fn rig(&self) -> &Rig<ValueFtl<Wire>> {
        &self.rig
    }

    fn rig_mut(&mut self) -> &mut Rig<ValueFtl<Wire>> {
        &mut self.rig
    }

    /// What steps ask of zones is asked of keys.
    fn request(&mut self, step: &Step) {
        let Step::Zone(ZoneDeed { kind, pick, size }) = *step else { return self.flush() };
        let (pick, size) = (u64::from(pick), u64::from(size));
        let most = self.ftl().info().value_max as usize;
        let bytes = match size % 9 {
            0 => 0,
            1..=3 => (size * 37 % 900) as usize,
            4 | 5 => 4096 - 20,
            6 => 5000 + size as usize * 7 % 5000,
            _ => most - (size as usize % 3) * most / 4,
        }
        .min(most);
        match kind {
            ZoneDeedKind::Read => self.retrieve(key(pick), if size.is_multiple_of(4) { 4096 } else { most }),
            ZoneDeedKind::Append | ZoneDeedKind::Write => {
                for more in 0..1 + size % 6 {
                    self.store(key(pick + more * 11), bytes / (1 + more as usize), Condition::Always, false);
                }
            }
            ZoneDeedKind::AppendDurably => self.store(key(pick), bytes, Condition::Always, true),
            ZoneDeedKind::Open => self.store(key(pick), bytes, Condition::IfMissing, false),
            ZoneDeedKind::OpenWithWindow => self.store(key(pick), bytes, Condition::IfExists, false),
            ZoneDeedKind::Reset => {
                for more in 0..1 + size % 12 {
                    self.delete(key(pick + more), false);
                }
            }
            ZoneDeedKind::Close => self.exist(key(pick)),
            ZoneDeedKind::Commit => self.delete(key(pick), size.is_multiple_of(2)),
            ZoneDeedKind::Finish => self.list(Some(key(pick)), 4 + (size as u32 * 16) % 1000),
        }
    }

    fn take(&mut self, done: Vec<ValueDone>) {
        for ValueDone { tag, result, .. } in done {
            let index = self.under_way.iter().position(|(other, _)| *other == tag).expect("a request under way");
            match self.under_way.swap_remove(index).1 {
                Errand::Change { change, expected, is_durable } => {
                    if result == expected {
                        if let Some(change) = change {
                            self.model.open.retain(|(other, _)| *other != tag);
                            self.model.history.push(change);
                        }
                        // What has changed nothing says nothing of what others have.
                        if is_durable && change.is_some() {
                            self.model.durable = self.model.history.len();
                        }
                    } else {
                        // A drive that has worn out refuses this one, or has refused the one before it.
                        let is_refused = result.is_err() && self.is_worn_out();
                        assert!(is_refused, "{result:?} instead of {expected:?}: {}", self.ftl().describe());
                    }
                }
                Errand::Retrieve { frames, key, expected } => {
                    // What has failed on a drive that has worn out may have happened, or not.
                    let is_known = self.model.open.iter().all(|(open, (other, _))| {
                        *other != key || self.under_way.iter().any(|(under_way, _)| under_way == open)
                    });
                    match (result, expected) {
                        (Ok(facts), Some(made)) if is_known => {
                            assert_eq!(facts.bytes as usize, made.bytes, "key {key}");
                            let (expected, count) = (made.expand(), made.bytes.min(frames.len() * BLOCK_BYTES));
                            let found = gathered(self.ftl().frames(), &frames, count);
                            assert!(found[..count] == expected[..count], "key {key}");
                        }
                        (Err(ValueError::NoKey), None) => {}
                        (result, expected) => {
                            assert!(!is_known, "key {key}: {result:?}, {expected:?}: {}", self.ftl().describe());
                        }
                    }
                    frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
                }
                Errand::Exist { expected } => {
                    assert!(result == expected || !self.model.open.is_empty(), "{result:?} instead of {expected:?}");
                }
                Errand::Flush { until } => match result {
                    Ok(_) => self.model.durable = self.model.durable.max(until),
                    Err(error) => self.expect_worn_out(error),
                },
                Errand::List { frames, from, bytes } => {
                    let facts = result.unwrap_or_else(|error| panic!("{error}: {}", self.ftl().describe()));
                    let found = gathered(self.ftl().frames(), &frames, facts.bytes as usize);
                    let keys = read_list(&found);
                    assert!(facts.bytes <= bytes && keys.len() == facts.keys as usize, "{facts:?}");
                    if !self.is_judging && self.model.open.is_empty() {
                        let (mut room, mut expected) = (bytes as usize - 4, Vec::new());
                        for key in self.model.live.keys().filter(|key| from.is_none_or(|from| **key >= from)) {
                            let Some(left) = room.checked_sub((2 + key.bytes().len()).next_multiple_of(4)) else {
                                break;
                            };
                            room = left;
                            expected.push(*key);
                        }
                        assert_eq!(keys, expected, "from {from:?}, {bytes} bytes");
                    }
                    self.listed.push(keys);
                    frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
                }
            }
        }
        self.wire.look();
    }

    fn requests_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn forget_requests(&mut self) {
        self.under_way.clear();
        self.is_judging = false;
    }

    fn inject(&mut self, fault: Fault) -> bool {
        if matches!(fault.kind, FaultKind::Lose | FaultKind::Corrupt) {
            return false;
        }
        // A read that has failed once is not to fail once more.
        self.settle();
        let ftl = self.ftl.as_ref().expect("the drive is open");
        disturb(&mut self.wire.device(), ftl.block(), self.clock.0, fault)
    }

    /// After a power cut the first changes are there, all that are durable among them, each as a whole; directory and values agree.
    fn judge(&mut self) -> Result<(), String> {
        let candidates: Vec<(Key, Made)> = {
            let model = &self.model;
            let changes = model.history.iter().chain(model.open.iter().map(|(_, change)| change));
            let made = changes.filter_map(|(key, made)| Some((*key, (*made)?)));
            made.chain(model.base.iter().map(|(key, made)| (*key, *made))).collect()
        };
        // Power may go once more in between: the model is left as it is until all is found.
        let keys = self.keys();
        let mut found = BTreeMap::new();
        for key in keys {
            let value = self.value_of(key)?;
            let is_it =
                |(other, made): &&(Key, Made)| *other == key && made.bytes == value.len() && made.expand() == value;
            let Some((_, made)) = candidates.iter().find(is_it) else {
                return Err(format!("key {key} has {} bytes that were never stored under it", value.len()));
            };
            found.insert(key, *made);
        }
        self.model.judge(&found)?;
        let info = self.ftl().info();
        let key_bytes = found.keys().map(|key| u64::from(key.length())).sum::<u64>();
        let value_bytes = found.values().map(|made| made.bytes as u64).sum::<u64>();
        if (info.keys, info.key_bytes, info.value_bytes) != (found.len() as u64, key_bytes, value_bytes) {
            return Err(format!("{} keys of {key_bytes} bytes, values of {value_bytes}: {info:?}", found.len()));
        }
        self.model = Model { live: found.clone(), base: found, made: self.model.made, ..Model::default() };
        if self.verifies_itself {
            self.check();
        }
        Ok(())
    }

    fn clean_restart(&mut self) {
        self.settle();
        if self.close().is_ok() && self.model.open.is_empty() {
            self.model.durable = self.model.history.len();
        }
        self.open(Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
        self.judge().unwrap_or_else(|contradiction| panic!("{contradiction}"));
    }

    fn probe(&self) {
        ValueWorld::of(self.rig.fork(), self.model.clone()).prove();
    }

    fn verify_all(&mut self) {
        for number in 0..KEYS {
            self.retrieve(key(number), usize::MAX);
        }
        self.settle();
    }

    fn is_damaged(&self) -> bool {
        false
    }
}

impl ValueWorld {
    /// Reads a value that is there.
    fn value_of(&mut self, key: Key) -> Result<Vec<u8>, String> {
        let most = self.ftl().info().value_max as usize;
        let frames = self.frames(most.div_ceil(BLOCK_BYTES) as u64);
        let result = self.ask(ValueRequest::Retrieve { key, frames: &frames });
        let bytes = result.map(|facts| gathered(self.ftl().frames(), &frames, facts.bytes as usize));
        frames.into_iter().for_each(|frame| self.ftl().frames_mut().release(frame));
        bytes.map_err(|error| format!("key {key} is listed: {error}"))
    }

    /// Begins a request, and waits for its end.
    pub fn ask(&mut self, request: ValueRequest<'_>) -> Result<Facts, ValueError> {
        self.rig.ask(|ftl, now, tag| ftl.submit(now, tag, request), |done: &ValueDone| (done.tag, done.result))
    }
}
