//! The six mixes of YCSB (Cooper et al., SoCC 2010), as requests for keys that are numbered.
//!
//! | mix | requests | keys |
//! |---|---|---|
//! | a | half reads, half updates | Zipf, 0.99 |
//! | b | 95 % reads, 5 % updates | Zipf |
//! | c | reads | Zipf |
//! | d | 95 % reads, 5 % inserts | those inserted last, by Zipf |
//! | e | 95 % scans of 1 to 100 keys, 5 % inserts | the first key by Zipf |
//! | f | half reads, half reads that are followed by a write of the same key | Zipf |
//!
//! As in YCSB, popular keys are spread over all keys: rank and number are not the same. What YCSB has beyond: values of ten fields, of which an
//! update writes one. Here a value is written whole.

use crate::zipf::Zipf;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The exponent of YCSB.
const THETA: f64 = 0.99;
/// Keys of a scan, at most.
const SCAN_MAX: u64 = 100;

/// Which mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyMix {
    /// Half updates.
    A,
    /// Mostly reads.
    B,
    /// Only reads.
    C,
    /// Reads of what was inserted last.
    D,
    /// Scans.
    E,
    /// Reads and writes of one key.
    F,
}

impl KeyMix {
    /// All of them, with their names.
    pub const ALL: [(&str, KeyMix); 6] =
        [("a", KeyMix::A), ("b", KeyMix::B), ("c", KeyMix::C), ("d", KeyMix::D), ("e", KeyMix::E), ("f", KeyMix::F)];

    /// Percent of requests that read, or scan, and nothing else.
    fn reads(self) -> u64 {
        match self {
            KeyMix::A | KeyMix::F => 50,
            KeyMix::B | KeyMix::D | KeyMix::E => 95,
            KeyMix::C => 100,
        }
    }
}

/// A request for a key, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyRequest {
    /// Its value is read.
    Read(u64),
    /// It has another value from now on.
    Update(u64),
    /// It is new.
    Insert(u64),
    /// So many keys are listed from it on, in their order.
    Scan(u64, u32),
    /// Its value is read, and written when that is there.
    ReadModifyWrite(u64),
}

impl KeyRequest {
    /// The number of the key, of a scan of the first one.
    #[must_use]
    pub fn key(self) -> u64 {
        match self {
            KeyRequest::Read(key)
            | KeyRequest::Update(key)
            | KeyRequest::Insert(key)
            | KeyRequest::Scan(key, _)
            | KeyRequest::ReadModifyWrite(key) => key,
        }
    }
}

/// See the module. A load without an end.
#[derive(Clone, Debug)]
pub struct KeyLoad {
    mix: KeyMix,
    keys: u64,
    zipf: Zipf,
    chance: Xoshiro256PlusPlus,
}

impl KeyLoad {
    /// A load on keys 0 to `keys - 1`, which are there.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(mix: KeyMix, keys: u64, seed: u64) -> KeyLoad {
        KeyLoad { mix, keys, zipf: Zipf::new(keys, THETA), chance: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    /// Keys that there are when all its requests so far have ended.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The next request.
    pub fn step(&mut self) -> KeyRequest {
        let is_read = self.chance.next_u64() % 100 < self.mix.reads();
        let rank = self.zipf.draw(&mut self.chance);
        match self.mix {
            KeyMix::D if is_read => KeyRequest::Read(self.keys - 1 - rank),
            KeyMix::D | KeyMix::E if !is_read => {
                self.keys += 1;
                KeyRequest::Insert(self.keys - 1)
            }
            KeyMix::E => KeyRequest::Scan(self.spread(rank), (1 + self.chance.next_u64() % SCAN_MAX) as u32),
            _ if is_read => KeyRequest::Read(self.spread(rank)),
            KeyMix::F => KeyRequest::ReadModifyWrite(self.spread(rank)),
            _ => KeyRequest::Update(self.spread(rank)),
        }
    }

    /// The number of the key with a rank: popular keys are no neighbours.
    fn spread(&self, rank: u64) -> u64 {
        let mut bits = rank.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(bits ^ (bits >> 31)) * u128::from(self.keys)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Percent of requests of each kind, and of the most popular key.
    fn shares(mix: KeyMix) -> ([u64; 5], u64) {
        let (mut load, mut kinds, mut keys) = (KeyLoad::new(mix, 1000, 7), [0; 5], BTreeMap::<u64, u64>::new());
        const STEPS: u64 = 100_000;
        for _ in 0..STEPS {
            let (kind, key) = match load.step() {
                KeyRequest::Read(key) => (0, key),
                KeyRequest::Update(key) => (1, key),
                KeyRequest::Insert(key) => (2, key),
                KeyRequest::Scan(key, count) => {
                    assert!((1..=100).contains(&count));
                    (3, key)
                }
                KeyRequest::ReadModifyWrite(key) => (4, key),
            };
            kinds[kind] += 1;
            *keys.entry(key).or_default() += 1;
            assert!(key < load.keys());
        }
        (kinds.map(|count| (count * 100 + STEPS / 2) / STEPS), keys.into_values().max().unwrap() * 100 / STEPS)
    }

    #[test]
    fn each_mix_has_the_shares_of_ycsb() {
        assert_eq!(shares(KeyMix::A).0, [50, 50, 0, 0, 0]);
        assert_eq!(shares(KeyMix::B).0, [95, 5, 0, 0, 0]);
        assert_eq!(shares(KeyMix::C).0, [100, 0, 0, 0, 0]);
        assert_eq!(shares(KeyMix::D).0, [95, 0, 5, 0, 0]);
        assert_eq!(shares(KeyMix::E).0, [0, 0, 5, 95, 0]);
        assert_eq!(shares(KeyMix::F).0, [50, 0, 0, 0, 50]);
        // Of a thousand keys the first has one request in 7.5.
        let (_, most) = shares(KeyMix::C);
        assert!((12..=14).contains(&most), "{most} %");
    }

    #[test]
    fn reads_of_what_was_inserted_last_follow_the_inserts() {
        let mut load = KeyLoad::new(KeyMix::D, 10, 1);
        (0..10_000).for_each(|_| _ = load.step());
        let (keys, mut near) = (load.keys(), 0);
        for _ in 0..1000 {
            if let KeyRequest::Read(key) = load.step() {
                near += u64::from(key + 100 > keys);
            }
        }
        assert!(keys > 400 && near > 900, "{keys} keys, {near} reads near the end");
    }
}
