//! A power cut strikes at once, at a moment that a seed chooses, or when a count is reached; its toll says what it took.

use openftl_control::ClientId;
use openftl_core::{Nanos, Time};
use openftl_media::PowerLoss;
use openftl_serving::flash::Flash;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A cut with a seed strikes after fewer device commands than this…
const COMMANDS_MAX_LOG2: u64 = 9;

/// …or after less time than this, whichever comes first: a drive that does nothing has no commands to count.
const DELAY_MAX: Nanos = Nanos::from_millis(20);

/// A power cut on its way.
pub struct ArmedCut {
    pub client: ClientId,
    /// Whether the power comes on again at once.
    pub and_on: bool,
    /// Whether units are left torn.
    pub torn: bool,
    pub(super) asked_at: Time,
    /// Strikes then at the latest; never, if it waits for something to be counted.
    pub(super) due: Time,
    /// Strikes when this count…
    pub(super) counted: Counted,
    /// …is so large.
    pub(super) count_due: u64,
    pub(super) commands_asked_at: u64,
    pub(super) commands_found: u64,
}

/// What is counted until a cut strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counted {
    Commands,
    Writes,
    Flushes,
}

/// What a cut took.
#[derive(Clone, Copy, Debug)]
pub struct Toll {
    pub connections: u64,
    pub requests: u64,
    pub loss: PowerLoss,
}

impl ArmedCut {
    /// Whether the power goes now, when hosts' writes and flushes that have ended are `ended`.
    pub(super) fn strikes(&mut self, now: Time, flash: &Flash, ended: (u64, u64)) -> bool {
        self.commands_found = commands_of(flash);
        let count = match self.counted {
            Counted::Commands => self.commands_found,
            Counted::Writes => ended.0,
            Counted::Flushes => ended.1,
        };
        count >= self.count_due || now >= self.due
    }

    /// Whether it may wait for ever, and another cut may come before it.
    pub(super) fn may_be_overtaken(&self) -> bool {
        self.due == Time::NEVER
    }
}

/// When a cut strikes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// After so many more commands to the device…
    pub commands: u64,
    /// …or after this time, whichever comes first.
    pub delay: Nanos,
    pub torn: bool,
}

impl Moment {
    pub const NOW: Moment = Moment { commands: 0, delay: Nanos::ZERO, torn: false };

    /// A few commands away more often than many.
    pub fn chosen_by(seed: u64) -> Moment {
        let mut chance = SplitMix64::seed_from_u64(seed);
        let span = 1 << (chance.next_u64() % (COMMANDS_MAX_LOG2 + 1));
        Moment {
            commands: chance.next_u64() % span,
            delay: Nanos(chance.next_u64() % DELAY_MAX.0),
            torn: chance.next_u64() % 2 == 1,
        }
    }
}

/// Commands that the device has had.
pub(super) fn commands_of(flash: &Flash) -> u64 {
    flash.look(|device| device.statistics().commands).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_chooses_the_same_moment_each_time_and_seeds_choose_different_ones() {
        let moments: Vec<Moment> = (0..200).map(Moment::chosen_by).collect();
        assert!(moments.iter().zip(0..).all(|(moment, seed)| *moment == Moment::chosen_by(seed)));
        assert!(moments.iter().all(|moment| moment.commands < 512 && moment.delay < DELAY_MAX));
        let share = |is: &dyn Fn(&Moment) -> bool| moments.iter().filter(|moment| is(moment)).count();
        assert!((60..140).contains(&share(&|moment| moment.torn)));
        assert!((60..140).contains(&share(&|moment| moment.commands < 8)));
        assert!(share(&|moment| moment.commands > 100) > 5);
    }
}
