//! The schedule: when dies, channels and cache are free, and so how long everything takes.
//!
//! Nothing here is simulated step by step. Each command is laid out in time when it is submitted:
//!
//! ```text
//!   read      die      [ sense ][ held until its data have left ]
//!             channel           [ transfer ]                          ─▶ complete
//!
//!   write     cache    [ wait for room ][ fill ]                      ─▶ complete (write-back)
//!             channel                    [ transfer ]
//!             die                        [ held     ][ program ]      ─▶ complete (FUA without protection)
//!
//!   reset     die      [ erase ]                                      ─▶ complete
//! ```
//!
//! A die does one operation at a time, first come first served; a channel carries one transfer at a time and serves
//! whoever is ready, so it remembers its reservations and a later command may use a gap between them. Each group has one
//! channel, each parallel unit its own share of the cache: groups never interfere.

use crate::profile::{Profile, Programming};
use openftl_core::{ChunkId, Geometry, Nanos, PuId, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;

/// When everything on the device is free.
#[derive(Clone)]
pub struct Schedule {
    instant: bool,
    pu_bits: u32,
    sense_blocks: u32,
    /// Duration of a sense, by page within the chunk.
    sense: Vec<Nanos>,
    /// Duration of a program operation, by unit within the chunk.
    program: Vec<Nanos>,
    erase: Nanos,
    block_on_channel: Nanos,
    block_in_cache: Nanos,
    /// Program operations that each parallel unit's share of the cache holds; 0 without a cache.
    cache_units: usize,
    protected: bool,
    pus: Vec<Die>,
    channels: Vec<Channel>,
    settled_at: Time,
    jitter: Option<Jitter>,
}

/// Every duration of a die is longer or shorter by up to so many percent.
#[derive(Clone)]
struct Jitter {
    percent: u64,
    sequence: Xoshiro256PlusPlus,
}

#[derive(Clone, Default)]
struct Die {
    free_at: Time,
    busy: Nanos,
    /// Program operations that were not finished when last looked at, in the order they are carried out.
    programs: VecDeque<Program>,
}

/// A program operation on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// When the cache has taken its data.
    pub accepted: Time,
    /// When the die begins to program.
    pub begins: Time,
    /// When it is done.
    pub done: Time,
    /// Where to.
    pub chunk: ChunkId,
    /// First block of the unit.
    pub first: u32,
}

impl Schedule {
    /// Everything is free.
    pub fn new(profile: &Profile, geometry: &Geometry, instant: bool) -> Schedule {
        let chip = &profile.chip;
        let unit = profile.program_blocks();
        let pages = geometry.blocks_per_chunk / profile.sense_blocks();
        let units = geometry.blocks_per_chunk / unit;
        let micros = |us: u32| Nanos::from_micros(u64::from(us));
        let sense = (0..pages).map(|page| {
            let bit = match chip.programming {
                Programming::OneShot => page % chip.cell.bits(),
                Programming::Shared => profile.page_bit(page),
            };
            micros(chip.read_us[bit as usize])
        });
        let program = (0..units).map(|unit| {
            let bit = if chip.programming == Programming::Shared { profile.page_bit(unit) } else { 0 };
            micros(chip.program_us[bit as usize])
        });
        let format = geometry.format();
        Schedule {
            instant,
            pu_bits: u32::from(format.pu_bits),
            sense_blocks: profile.sense_blocks(),
            sense: sense.collect(),
            program: program.collect(),
            erase: micros(chip.erase_us),
            block_on_channel: Profile::transfer(profile.block_bytes_on_channel(), profile.channel_mb_s),
            block_in_cache: Profile::transfer(profile.block_bytes_on_channel(), profile.cache.mb_s),
            cache_units: (profile.cache.blocks_per_pu / unit) as usize,
            protected: profile.cache.power_loss_protection,
            pus: (0..format.pu_ids()).map(|_| Die::default()).collect(),
            channels: (0..1 << format.group_bits).map(|_| Channel::default()).collect(),
            settled_at: Time::ZERO,
            jitter: None,
        }
    }

    /// From now on each sense, program and erase takes up to `percent` longer or shorter, at most 100; how much follows from `seed`.
    pub fn set_jitter(&mut self, percent: u32, seed: u64) {
        let sequence = Xoshiro256PlusPlus::seed_from_u64(seed);
        self.jitter = (percent > 0).then(|| Jitter { percent: u64::from(percent.min(100)), sequence });
    }

    /// What an operation takes that typically takes `span`.
    #[inline]
    fn stretched(&mut self, span: Nanos) -> Nanos {
        let Some(Jitter { percent, sequence }) = &mut self.jitter else { return span };
        let drawn = 100 - *percent + sequence.next_u64() % (2 * *percent + 1);
        Nanos(span.0 * drawn / 100)
    }

    /// Whether what the cache has taken outlives the power.
    pub fn is_protected(&self) -> bool {
        self.protected
    }

    /// Whether nothing takes any time.
    #[inline]
    pub fn is_instant(&self) -> bool {
        self.instant
    }

    /// The page, over all planes, that `block` of a chunk is on.
    #[inline]
    pub fn page_of(&self, block: u32) -> u32 {
        block / self.sense_blocks
    }

    /// Senses one page and moves `blocks` of its blocks out: when they are there.
    #[inline]
    pub fn sense(&mut self, now: Time, pu: PuId, page: u32, blocks: u32) -> Time {
        if self.instant {
            return now;
        }
        let sense = self.stretched(self.sense[page as usize]);
        let transfer = self.block_on_channel * u64::from(blocks);
        let die = &mut self.pus[pu.0 as usize];
        let sensed = die.free_at.max(now) + sense;
        let begins = self.channels[(pu.0 >> self.pu_bits) as usize].reserve(now, sensed, transfer);
        die.free_at = begins + transfer;
        die.busy += sense + transfer;
        die.free_at
    }

    /// Takes `blocks` blocks out of the cache.
    #[inline]
    pub fn cached(&self, now: Time, blocks: u32) -> Time {
        if self.instant { now } else { now + self.block_in_cache * u64::from(blocks) }
    }

    /// Whether `block` is still in the cache at `now`, its program operation not finished.
    pub fn is_cached(&self, now: Time, pu: PuId, chunk: ChunkId, block: u32) -> bool {
        let unit = self.sense.len() as u32 * self.sense_blocks / self.program.len() as u32;
        self.cache_units > 0
            && self.pus[pu.0 as usize].programs.iter().any(|program| {
                program.done > now && program.chunk == chunk && program.first <= block && block < program.first + unit
            })
    }

    /// Programs one unit of `blocks` blocks whose data are at hand from `ready` on (not before `now`). Gives the time
    /// at which the cache has taken it and the time at which it is programmed.
    #[inline]
    pub fn program(
        &mut self,
        now: Time,
        ready: Time,
        pu: PuId,
        chunk: ChunkId,
        first: u32,
        blocks: u32,
        fua: bool,
    ) -> (Time, Time) {
        if self.instant {
            return (now, now);
        }
        let program = self.stretched(self.program[(first / blocks) as usize]);
        let transfer = self.block_on_channel * u64::from(blocks);
        let die = &mut self.pus[pu.0 as usize];
        while die.programs.front().is_some_and(|oldest| oldest.done <= now) {
            die.programs.pop_front();
        }
        // The cache has room when the unit that is `cache_units` ahead has been programmed.
        let room = match die.programs.len().checked_sub(self.cache_units) {
            Some(index) if self.cache_units > 0 => die.programs[index].done,
            _ => now,
        };
        let accepted = ready.max(room) + self.block_in_cache * u64::from(blocks);
        let group = (pu.0 >> self.pu_bits) as usize;
        let begins = self.channels[group].reserve(now, accepted.max(die.free_at), transfer);
        let done = begins + transfer + program;
        die.free_at = done;
        die.busy += transfer + program;
        die.programs.push_back(Program { accepted, begins: begins + transfer, done, chunk, first });
        let acknowledged = if self.cache_units == 0 || (fua && !self.protected) { done } else { accepted };
        self.settled_at = self.settled_at.max(if self.protected { acknowledged } else { done });
        (acknowledged, done)
    }

    /// Erases a chunk: when the die begins, and when it is done.
    pub fn erase(&mut self, now: Time, pu: PuId) -> (Time, Time) {
        if self.instant {
            return (now, now);
        }
        let erase = self.stretched(self.erase);
        let die = &mut self.pus[pu.0 as usize];
        let begins = die.free_at.max(now);
        die.free_at = begins + erase;
        die.busy += erase;
        (begins, die.free_at)
    }

    /// When everything accepted so far is programmed, or in a protected cache.
    pub fn settled_at(&self) -> Time {
        self.settled_at
    }

    /// Time that the die of `pu` has been given work for.
    pub fn busy(&self, pu: PuId) -> Nanos {
        self.pus[pu.0 as usize].busy
    }

    /// Program operations that were not finished when last looked at.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.pus.iter().flat_map(|die| &die.programs)
    }

    /// The same of one die.
    pub fn programs_of(&self, pu: PuId) -> impl Iterator<Item = &Program> {
        self.pus[pu.0 as usize].programs.iter()
    }

    /// The power is gone: each die has stopped, the last of them by `now`. Gives the program operations that were not finished, for
    /// each die in the order they were to be carried out.
    pub fn stop(&mut self, now: Time, until: impl Fn(PuId) -> Time) -> Vec<Program> {
        let mut unfinished = Vec::new();
        for (pu, die) in (0..).map(PuId).zip(&mut self.pus) {
            let until = until(pu);
            unfinished.extend(die.programs.drain(..).filter(|program| program.done > until));
            // The die worked until then and no longer; what it would have done does not count.
            die.busy = die.busy - die.free_at.since(until);
            die.free_at = now;
        }
        for channel in &mut self.channels {
            channel.reserved.clear();
        }
        self.settled_at = now;
        unfinished
    }
}

/// A channel: one transfer at a time.
#[derive(Clone, Default)]
struct Channel {
    /// Reservations that had not ended when last looked at: from, to; in order, apart from each other.
    reserved: VecDeque<(Time, Time)>,
}

impl Channel {
    /// Reserves the channel for `span`, as soon as it is free from `earliest` on. Gives the beginning.
    #[inline]
    fn reserve(&mut self, now: Time, earliest: Time, span: Nanos) -> Time {
        while self.reserved.front().is_some_and(|(_, to)| *to <= now) {
            self.reserved.pop_front();
        }
        match self.reserved.back_mut() {
            None => self.reserved.push_back((earliest, earliest + span)),
            Some((_, to)) if *to == earliest => *to += span,
            Some((_, to)) if *to < earliest => self.reserved.push_back((earliest, earliest + span)),
            Some(_) => return self.reserve_gap(earliest, span),
        }
        earliest
    }

    /// Finds the first gap that is long enough, or the end.
    fn reserve_gap(&mut self, earliest: Time, span: Nanos) -> Time {
        let mut index = self.reserved.partition_point(|(_, to)| *to <= earliest);
        let mut begins = earliest;
        while let Some((from, to)) = self.reserved.get(index) {
            if begins + span <= *from {
                break;
            }
            begins = begins.max(*to);
            index += 1;
        }
        let ends = begins + span;
        let joins_before = index > 0 && self.reserved[index - 1].1 == begins;
        let joins_after = self.reserved.get(index).is_some_and(|(from, _)| *from == ends);
        match (joins_before, joins_after) {
            (true, true) => {
                self.reserved[index - 1].1 = self.reserved[index].1;
                self.reserved.remove(index);
            }
            (true, false) => self.reserved[index - 1].1 = ends,
            (false, true) => self.reserved[index].0 = begins,
            (false, false) => self.reserved.insert(index, (begins, ends)),
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_later_transfer_uses_a_gap_that_is_long_enough() {
        let mut channel = Channel::default();
        assert_eq!(channel.reserve(Time(0), Time(100), Nanos(10)), Time(100));
        assert_eq!(channel.reserve(Time(0), Time(0), Nanos(50)), Time(0));
        assert_eq!(channel.reserve(Time(0), Time(10), Nanos(60)), Time(110), "the gap from 50 to 100 is too short");
        assert_eq!(channel.reserve(Time(0), Time(10), Nanos(50)), Time(50), "this one fits exactly");
        assert_eq!(channel.reserved, [(Time(0), Time(170))]);
    }

    proptest! {
        #[test]
        fn transfers_on_a_channel_never_overlap(requests in proptest::collection::vec((0..50_u64, 0..300_u64, 1..40_u64), 1..200)) {
            let mut channel = Channel::default();
            let mut now = 0;
            let mut carried: Vec<(u64, u64)> = Vec::new();
            for (passes, ahead, span) in requests {
                now += passes;
                let begins = channel.reserve(Time(now), Time(now + ahead), Nanos(span)).0;
                prop_assert!(begins >= now + ahead);
                for (from, to) in &carried {
                    prop_assert!(begins + span <= *from || *to <= begins, "{begins}+{span} overlaps {from}..{to}");
                }
                carried.push((begins, begins + span));
            }
        }
    }
}
