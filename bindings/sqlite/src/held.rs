//! The locks of the connections of one process on a database, where no other process can have the store: as [`crate::locks`] has them on the host.
//!
//! | level | beside connections of others at |
//! |---|---|
//! | SHARED | up to RESERVED |
//! | RESERVED | up to SHARED |
//! | PENDING | up to SHARED, and no new ones |
//! | EXCLUSIVE | none |

use crate::ffi::{LOCK_EXCLUSIVE, LOCK_NONE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED};
use crate::locks::{Hold, LOG_LOCKS};
use std::collections::BTreeMap;
use std::ffi::c_int;

/// What a connection holds.
#[derive(Clone, Copy, Default)]
struct Holding {
    level: c_int,
    /// Locks of the log, a bit for each.
    shared: u8,
    alone: u8,
}

/// See the module.
#[derive(Default)]
pub struct Held(BTreeMap<u64, Holding>);

impl Held {
    /// Raises a connection from one level to another. Returns the level that it has then: PENDING, or the one before, where it could not be.
    pub fn lock(&mut self, owner: u64, from: c_int, to: c_int) -> c_int {
        let others = self.0.iter().filter(|(other, _)| **other != owner);
        let highest = others.map(|(_, holding)| holding.level).max().unwrap_or(LOCK_NONE);
        let most = if to == LOCK_SHARED { LOCK_RESERVED } else { LOCK_SHARED };
        let level = match to {
            _ if highest > most => return from,
            // Who waits for readers to leave lets no new ones in.
            LOCK_EXCLUSIVE if highest >= LOCK_SHARED => LOCK_PENDING,
            level => level,
        };
        self.0.entry(owner).or_default().level = level;
        level
    }

    /// Lowers the level of a connection.
    pub fn unlock(&mut self, owner: u64, to: c_int) {
        if let Some(holding) = self.0.get_mut(&owner) {
            holding.level = holding.level.min(to);
        }
    }

    /// A connection is no more.
    pub fn leave(&mut self, owner: u64) {
        self.0.remove(&owner);
    }

    /// Whether any connection is about to write.
    pub fn is_reserved(&self) -> bool {
        self.0.values().any(|holding| holding.level >= LOCK_RESERVED)
    }

    /// Locks `count` locks of the write-ahead log from `first` on, or gives them up. Returns whether they could be locked.
    pub fn hold_log(&mut self, owner: u64, hold: Hold, first: c_int, count: c_int) -> bool {
        debug_assert!(first >= 0 && count > 0 && first + count <= LOG_LOCKS);
        let bits = (u8::MAX >> (LOG_LOCKS - count)) << first;
        let is_in_the_way = |(other, holding): (&u64, &Holding)| {
            *other != owner && bits & (if hold == Hold::Alone { holding.shared } else { 0 } | holding.alone) != 0
        };
        if hold != Hold::None && self.0.iter().any(is_in_the_way) {
            return false;
        }
        let holding = self.0.entry(owner).or_default();
        (holding.shared, holding.alone) = (holding.shared & !bits, holding.alone & !bits);
        match hold {
            Hold::Shared => holding.shared |= bits,
            Hold::Alone => holding.alone |= bits,
            Hold::None => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let mut held = Held::default();
        let none = LOCK_NONE;
        assert_eq!([1, 2].map(|owner| held.lock(owner, none, LOCK_SHARED)), [LOCK_SHARED; 2]);
        assert_eq!(held.lock(1, LOCK_SHARED, LOCK_RESERVED), LOCK_RESERVED);
        assert_eq!((held.lock(2, LOCK_SHARED, LOCK_RESERVED), held.lock(3, none, LOCK_SHARED)), (LOCK_SHARED, 1));
        assert_eq!(held.lock(1, LOCK_RESERVED, LOCK_EXCLUSIVE), LOCK_PENDING);
        assert_eq!((held.lock(4, none, LOCK_SHARED), held.is_reserved()), (none, true));
        held.unlock(2, none);
        assert_eq!(held.lock(1, LOCK_PENDING, LOCK_EXCLUSIVE), LOCK_PENDING);
        held.leave(3);
        assert_eq!(held.lock(1, LOCK_PENDING, LOCK_EXCLUSIVE), LOCK_EXCLUSIVE);
        assert_eq!(held.lock(2, none, LOCK_SHARED), none);
        held.unlock(1, LOCK_SHARED);
        assert_eq!((held.lock(2, none, LOCK_SHARED), held.is_reserved()), (LOCK_SHARED, false));
    }

    #[test]
    fn locks_of_a_log_exclude_each_other() {
        let mut held = Held::default();
        assert!(held.hold_log(1, Hold::Shared, 3, 1) && held.hold_log(2, Hold::Shared, 3, 1));
        assert!(!held.hold_log(1, Hold::Alone, 0, 8) && held.hold_log(1, Hold::Alone, 0, 3));
        assert!(!held.hold_log(2, Hold::Shared, 2, 1) && held.hold_log(2, Hold::Alone, 4, 4));
        assert!(held.hold_log(1, Hold::None, 0, 8) && held.hold_log(2, Hold::Alone, 0, 8));
        held.leave(2);
        assert!(held.hold_log(1, Hold::Alone, 0, 8));
    }
}
