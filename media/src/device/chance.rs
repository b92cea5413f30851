//! Seeded chance: what fails, and when.
//!
//! Each parallel unit draws from a sequence of its own, so that what happens on one never changes another. Where a
//! probability is zero nothing is drawn.

use crate::profile::{Faults, Profile};
use openftl_core::{Geometry, PuId};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The odds of a device, and the sequences they are drawn from.
#[derive(Clone)]
pub struct Chance {
    faults: Faults,
    endurance: f64,
    sequences: Vec<Xoshiro256PlusPlus>,
    /// Whether programs fail at all.
    pub programs_fail: bool,
    /// Whether reads fail, or need much correction, at all.
    pub reads_fail: bool,
}

/// What may be drawn for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draw {
    /// A program operation fails.
    ProgramFail,
    /// An erase fails.
    EraseFail,
    /// A block is lost.
    ReadFail,
    /// A block cannot be read this time.
    ReadRetry,
    /// A block needs to be refreshed.
    HighEcc,
}

impl Chance {
    /// The odds of `profile`.
    pub fn new(profile: &Profile, geometry: &Geometry, seed: u64) -> Chance {
        let faults = profile.faults.clone();
        Chance {
            endurance: f64::from(profile.chip.endurance),
            sequences: (0..geometry.format().pu_ids() as u64)
                .map(|pu| {
                    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add((pu + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
                })
                .collect(),
            programs_fail: faults.program_fail > 0.0,
            reads_fail: faults.read_fail > 0.0 || faults.read_retry > 0.0 || faults.high_ecc > 0.0,
            faults,
        }
    }

    /// Whether it happens, on `pu`, to a chunk erased `resets` times.
    pub fn draw(&mut self, draw: Draw, pu: PuId, resets: u32) -> bool {
        let new = match draw {
            Draw::ProgramFail => self.faults.program_fail,
            Draw::EraseFail => self.faults.erase_fail,
            Draw::ReadFail => self.faults.read_fail,
            Draw::ReadRetry => self.faults.read_retry,
            Draw::HighEcc => self.faults.high_ecc,
        };
        if new == 0.0 {
            return false;
        }
        let wear = f64::from(resets) / self.endurance;
        let probability = new * (1.0 + (self.faults.wear_factor - 1.0) * wear);
        // 53 bits, which is what a double can tell apart.
        let drawn = (self.sequences[pu.0 as usize].next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < probability
    }

    /// One of two, on `pu`.
    pub fn coin(&mut self, pu: PuId) -> bool {
        self.sequences[pu.0 as usize].next_u64() & 1 == 1
    }
}

/// Which of `chunks` chunks are bad from the factory: exactly the share that the profile says, anywhere.
pub fn factory_bad(profile: &Profile, chunks: u64, seed: u64) -> impl FnMut() -> bool + use<> {
    let mut bad = profile.faults.factory_bad.of(chunks);
    let mut left = chunks;
    let mut sequence = Xoshiro256PlusPlus::seed_from_u64(seed);
    move || {
        // Selection sampling: the next of `left` chunks is bad with probability bad / left.
        let chosen = bad > 0 && sequence.next_u64() % left < bad;
        left -= 1;
        bad -= u64::from(chosen);
        chosen
    }
}
