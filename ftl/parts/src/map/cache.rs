//! Items in memory that are also on media, found by number: those that were used last, or often, as a policy has it. They are clean, so they leave
//! at no cost.
//!
//! | policy | the item that leaves |
//! |---|---|
//! | `clock` | the first in a ring that was not used since the hand last came by |
//! | `lru` | the one that was not used for the longest time |
//! | `2q` | of those used once the oldest, while they have more than a quarter; else the least recently used of the others |
//! | `seed-hotness` | of eight drawn the one with the least hotness: uses, halved now and then, and a weight when loaded |
//!
//! [Pinned](super::pins) items are in a list of their own, and leave when no other is left; with `seed-hotness`
//! they weigh more, as in the paper.

use super::pins::PinnedPages;
use openftl_core::UnknownWord;
use std::collections::VecDeque;
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How the item is chosen that leaves.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum CachePolicy {
    /// A ring and a mark.
    #[default]
    Clock,
    /// The least recently used.
    Lru,
    /// Two queues: one for what was used once.
    #[serde(rename = "2q")]
    #[strum(serialize = "2q")]
    TwoQueues,
    /// The hotness of the paper on selective loading.
    SeedHotness,
}

impl CachePolicy {
    /// All of them.
    pub const ALL: &[CachePolicy] = <CachePolicy as VariantArray>::VARIANTS;

    /// Its place among all.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The one with this place.
    #[must_use]
    pub fn from_code(code: u8) -> Option<CachePolicy> {
        CachePolicy::ALL.get(usize::from(code)).copied()
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "policy of the map cache", <CachePolicy as VariantNames>::VARIANTS)
}

const NONE: u32 = u32::MAX;

struct Slot<T> {
    number: u32,
    contents: T,
    before: u32,
    after: u32,
    /// In which list it is.
    list: u8,
    /// Whether it was used since the hand came by, or how hot it is.
    heat: u32,
}

/// A list of slots, the newest first.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

/// Hotness of what was just loaded: so that it is not the next to leave.
const HEAT_OF_LOADED: u32 = 8;

/// Hotness that a pinned item has beyond its uses.
const HEAT_OF_PINNED: u32 = 64;

/// Items drawn, of which the coldest leaves.
const DRAWN: u32 = 8;

/// The list of pinned items.
const PINNED: u8 = 2;

/// What is kept in a cache.
pub trait Cached {
    /// Bytes of memory that it takes, beside those of the value itself. They do not change while it is there.
    fn bytes(&self) -> usize;
}

/// See the module.
pub struct Cache<T> {
    policy: CachePolicy,
    /// The slot of each item.
    slot_of: Vec<u32>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    lists: [List; 3],
    pins: PinnedPages,
    /// Items that were used once and have left.
    left: VecDeque<u32>,
    has_left: Vec<bool>,
    bytes: usize,
    bytes_max: usize,
    /// What is drawn next.
    chance: u64,
}

impl<T: Cached> Cache<T> {
    /// Nothing is in memory yet of so many items.
    #[must_use]
    pub fn new(policy: CachePolicy, items: u32, bytes_max: usize) -> Cache<T> {
        let is_two_queues = policy == CachePolicy::TwoQueues;
        Cache {
            policy,
            slot_of: vec![NONE; items as usize],
            slots: Vec::new(),
            free: Vec::new(),
            lists: [List { first: NONE, last: NONE, len: 0 }; 3],
            pins: PinnedPages::default(),
            left: VecDeque::new(),
            has_left: vec![false; if is_two_queues { items as usize } else { 0 }],
            bytes: 0,
            bytes_max,
            chance: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// How the item is chosen that leaves.
    #[must_use]
    pub fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// Bytes of memory that every item takes, in memory or not.
    #[must_use]
    pub fn bytes_per_item(policy: CachePolicy) -> usize {
        size_of::<u32>() + usize::from(policy == CachePolicy::TwoQueues)
    }

    /// Bytes of memory that an item takes here beside what it says itself.
    pub const BYTES_BESIDE: usize = size_of::<Option<Slot<T>>>();

    fn bytes_of(contents: &T) -> usize {
        contents.bytes() + Cache::<T>::BYTES_BESIDE
    }

    /// Bytes of memory that all together take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Items in memory.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.lists.iter().map(|list| list.len).sum()
    }

    /// Whether none is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// From now on they take so many bytes at most.
    #[inline]
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
        self.make_room(0);
    }

    /// The item, if it is in memory. Counts as a use.
    #[inline]
    pub fn get(&mut self, number: u32) -> Option<&T> {
        let at = self.slot_of[number as usize];
        if at == NONE {
            return None;
        }
        self.use_slot(at);
        Some(&self.slot(at).contents)
    }

    /// The same. No use of it.
    #[must_use]
    #[inline]
    pub fn peek(&self, number: u32) -> Option<&T> {
        let at = self.slot_of[number as usize];
        (at != NONE).then(|| &self.slot(at).contents)
    }

    /// Whether the item is in memory. No use of it.
    #[must_use]
    #[inline]
    pub fn has(&self, number: u32) -> bool {
        self.slot_of[number as usize] != NONE
    }

    /// The item is in memory from now on, if there is room for it. Others leave for it.
    pub fn put(&mut self, number: u32, contents: T) {
        let is_pinned = self.pins.has(number);
        let (list, heat) = match self.slot_of[number as usize] {
            NONE => (self.list_of_new(number), HEAT_OF_LOADED + if is_pinned { HEAT_OF_PINNED } else { 0 }),
            at => (self.slot(at).list, self.slot(at).heat),
        };
        self.remove(number);
        let bytes = Cache::bytes_of(&contents);
        if bytes > self.bytes_max {
            return;
        }
        self.make_room(bytes);
        let heat = if self.policy == CachePolicy::SeedHotness { heat } else { 0 };
        let slot = Slot { number, contents, before: NONE, after: NONE, list, heat };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(slot);
                at
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() as u32 - 1
            }
        };
        self.slot_of[number as usize] = at;
        self.bytes += bytes;
        self.link(at, list);
    }

    /// The item is in memory no more. Gives it, if it was.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let at = std::mem::replace(&mut self.slot_of[number as usize], NONE);
        if at == NONE {
            return None;
        }
        self.unlink(at);
        let slot = self.slots[at as usize].take().expect("the item names it");
        self.bytes -= Cache::bytes_of(&slot.contents);
        self.free.push(at);
        Some(slot.contents)
    }

    /// The item was not in memory, and nobody wants it to come: should it come later, it is as one that was never used.
    pub fn pass_by(&mut self, number: u32) {
        if let Some(has_left) = self.has_left.get_mut(number as usize) {
            *has_left = false;
        }
    }

    /// The items that are pinned.
    #[must_use]
    pub fn pins(&self) -> &PinnedPages {
        &self.pins
    }

    /// These items are pinned from now on, and no others. Nothing is loaded for that.
    pub fn set_pins(&mut self, pins: PinnedPages) {
        self.pins = pins;
        for at in 0..self.slots.len() as u32 {
            let Some(Slot { number, list, .. }) = self.slots[at as usize] else { continue };
            let is_pinned = self.pins.has(number);
            if self.policy == CachePolicy::SeedHotness {
                let heat = if is_pinned { HEAT_OF_PINNED } else { 0 };
                self.slot_mut(at).heat = self.slot(at).heat.max(heat);
            } else if is_pinned != (list == PINNED) {
                self.unlink(at);
                self.link(at, if is_pinned { PINNED } else { 0 });
            }
        }
    }

    fn list_of_new(&mut self, number: u32) -> u8 {
        if self.policy != CachePolicy::SeedHotness && self.pins.has(number) {
            return PINNED;
        }
        let was_here = self.policy == CachePolicy::TwoQueues && std::mem::take(&mut self.has_left[number as usize]);
        u8::from(was_here)
    }

    #[inline]
    fn slot(&self, at: u32) -> &Slot<T> {
        self.slots[at as usize].as_ref().expect("a slot that is named has an item")
    }

    #[inline]
    fn slot_mut(&mut self, at: u32) -> &mut Slot<T> {
        self.slots[at as usize].as_mut().expect("a slot that is named has an item")
    }

    #[inline]
    fn use_slot(&mut self, at: u32) {
        match self.policy {
            CachePolicy::Clock if self.slot(at).list != PINNED => self.slot_mut(at).heat = 1,
            CachePolicy::SeedHotness => self.slot_mut(at).heat = self.slot(at).heat.saturating_add(1),
            CachePolicy::TwoQueues if self.slot(at).list == 0 => {}
            CachePolicy::Clock | CachePolicy::Lru | CachePolicy::TwoQueues => self.move_up(at),
        }
    }

    fn move_up(&mut self, at: u32) {
        let list = self.slot(at).list;
        if self.lists[list as usize].first != at {
            self.unlink(at);
            self.link(at, list);
        }
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.bytes_max && !self.is_empty() {
            let coldest = self.coldest();
            let Slot { number, list, .. } = *self.slot(coldest);
            if self.policy == CachePolicy::TwoQueues && list == 0 {
                self.remember(number);
            }
            self.remove(number);
        }
    }

    /// An item that was used once has left: should it come again, it is one of the others.
    fn remember(&mut self, number: u32) {
        self.left.push_back(number);
        self.has_left[number as usize] = true;
        while self.left.len() > (self.len() / 2).max(1) as usize {
            let oldest = self.left.pop_front().expect("it is not empty");
            self.has_left[oldest as usize] = false;
        }
    }

    /// The slot of the item that leaves next. There is one.
    fn coldest(&mut self) -> u32 {
        if self.len() == self.lists[PINNED as usize].len {
            return self.lists[PINNED as usize].last;
        }
        match self.policy {
            CachePolicy::Lru => self.lists[0].last,
            CachePolicy::Clock => loop {
                let at = self.lists[0].last;
                if std::mem::take(&mut self.slot_mut(at).heat) == 0 {
                    break at;
                }
                self.move_up(at);
                if self.lists[0].len == 1 {
                    break at;
                }
            },
            CachePolicy::TwoQueues => {
                let [once, often, _] = self.lists;
                let is_once = often.len == 0 || (once.len > 0 && once.len > (once.len + often.len) / 4);
                self.lists[usize::from(!is_once)].last
            }
            CachePolicy::SeedHotness => {
                let mut coldest = None;
                for _ in 0..DRAWN {
                    let at = self.draw();
                    let heat = self.slot(at).heat;
                    if coldest.is_none_or(|(least, _)| heat < least) {
                        coldest = Some((heat, at));
                    }
                    // What is met and not used cools down.
                    self.slot_mut(at).heat -= heat / 8;
                }
                coldest.expect("some were drawn").1
            }
        }
    }

    /// Any slot with an item. There is one.
    fn draw(&mut self) -> u32 {
        loop {
            self.chance ^= self.chance << 13;
            self.chance ^= self.chance >> 7;
            self.chance ^= self.chance << 17;
            let at = (self.chance % self.slots.len() as u64) as u32;
            if self.slots[at as usize].is_some() {
                return at;
            }
        }
    }

    fn link(&mut self, at: u32, list: u8) {
        let first = self.lists[list as usize].first;
        let slot = self.slot_mut(at);
        (slot.before, slot.after, slot.list) = (NONE, first, list);
        match first {
            NONE => self.lists[list as usize].last = at,
            first => self.slot_mut(first).before = at,
        }
        self.lists[list as usize].first = at;
        self.lists[list as usize].len += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Slot { before, after, list, .. } = *self.slot(at);
        match before {
            NONE => self.lists[list as usize].first = after,
            before => self.slot_mut(before).after = after,
        }
        match after {
            NONE => self.lists[list as usize].last = before,
            after => self.slot_mut(after).before = before,
        }
        self.lists[list as usize].len -= 1;
    }
}
