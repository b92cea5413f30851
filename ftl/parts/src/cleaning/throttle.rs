//! How much of the bandwidth the host gets while garbage collection works.
//!
//! A pure rule: as long as there is room, the host writes as it likes. When room runs short, each relocated block earns
//! the host what it frees: a victim with v valid of b blocks gives b − v blocks for v relocations. The earnings shrink as
//! room shrinks, so that host and collection approach a balance instead of one stopping the other.

/// Room left for host writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Chunks that the host may still open.
    pub free: u32,
    /// Chunks that it could open when collection has nothing to do.
    pub plenty: u32,
}

impl Room {
    /// Whether the host writes as it likes.
    #[must_use]
    pub fn is_ample(self) -> bool {
        2 * self.free >= self.plenty
    }

    /// How many of `groups` may be collected side by side: one of eight while room is ample, all of them with none left.
    #[must_use]
    pub fn marked_groups(self, groups: u32) -> u32 {
        let fewest = groups.div_ceil(8);
        if self.is_ample() {
            return fewest;
        }
        let half = self.plenty.div_ceil(2).max(1);
        fewest + (groups - fewest) * (half - self.free.min(half)) / half
    }

    /// What the host earns, in 256ths of a block, for one of `relocations` that free `freed` blocks together.
    #[inline]
    #[must_use]
    pub fn earned(self, freed: u32, relocations: u32) -> i64 {
        // From half of the balance with no room left to twice the balance at plenty.
        let gain = 128 + 384 * i64::from(self.free.min(self.plenty)) / i64::from(self.plenty.max(1));
        gain * i64::from(freed) / i64::from(relocations.max(1))
    }
}

/// What the host has earned and not spent.
#[derive(Clone, Copy, Default, Debug)]
pub struct Throttle {
    /// In 256ths of a block.
    credit: i64,
}

/// Credit never grows beyond this many blocks: what was saved up is no licence to flood.
const CREDIT_MAX: i64 = 256 * 256;

impl Throttle {
    /// Adds what was earned.
    #[inline]
    pub fn earn(&mut self, earned: i64) {
        self.credit = (self.credit + earned).min(CREDIT_MAX);
    }

    /// Whether the host may write now.
    #[inline]
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.credit > 0
    }

    /// The host writes `blocks`; credit may go below zero by one request.
    #[inline]
    pub fn spend(&mut self, blocks: usize) {
        self.credit = (self.credit - 256 * blocks as i64).max(-CREDIT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earnings_shrink_with_the_room() {
        let earned = |free| Room { free, plenty: 16 }.earned(50, 200);
        assert!(earned(0) < earned(4) && earned(4) < earned(16));
        assert_eq!(earned(0) * 2, 256 * 50 / 200, "half the balance with no room left");
    }

    #[test]
    fn more_groups_are_collected_as_room_runs_short() {
        let marked = |free| Room { free, plenty: 24 }.marked_groups(8);
        assert_eq!((marked(24), marked(12), marked(6), marked(0)), (1, 1, 4, 8));
        assert_eq!(Room { free: 0, plenty: 3 }.marked_groups(1), 1);
    }

    #[test]
    fn an_empty_victim_earns_without_relocations() {
        assert!(Room { free: 0, plenty: 16 }.earned(256, 0) > 0);
    }

    #[test]
    fn credit_is_bounded_both_ways() {
        let mut throttle = Throttle::default();
        throttle.earn(i64::MAX / 2);
        throttle.spend(256);
        assert!(!throttle.may_write(), "saved credit is worth one large request");
        for _ in 0..10 {
            throttle.spend(256);
        }
        throttle.earn(CREDIT_MAX + 1);
        assert!(throttle.may_write());
    }
}
