//! The five lock levels of a database among the connections of this process, which alone has the store.
//!
//! | level | beside connections of others at |
//! |---|---|
//! | SHARED | up to RESERVED |
//! | RESERVED | up to SHARED |
//! | PENDING | up to SHARED, and no new ones |
//! | EXCLUSIVE | none |

use crate::ffi::{LOCK_EXCLUSIVE, LOCK_NONE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED};
use std::collections::HashMap;
use std::ffi::c_int;

/// Who has which level.
#[derive(Default)]
pub struct Locks {
    levels: HashMap<u64, c_int>,
}

impl Locks {
    /// The level of a connection.
    pub fn level(&self, owner: u64) -> c_int {
        self.levels.get(&owner).copied().unwrap_or(LOCK_NONE)
    }

    /// Raises the level of a connection. Returns whether it could be.
    pub fn lock(&mut self, owner: u64, level: c_int) -> bool {
        if self.level(owner) >= level {
            return true;
        }
        let others = self.levels.iter().filter(|(other, _)| **other != owner);
        let highest = others.map(|(_, level)| *level).max().unwrap_or(LOCK_NONE);
        let most = if level == LOCK_SHARED { LOCK_RESERVED } else { LOCK_SHARED };
        if highest > most {
            return false;
        }
        if level == LOCK_EXCLUSIVE && highest >= LOCK_SHARED {
            // Who waits for readers to leave lets no new ones in.
            self.levels.insert(owner, LOCK_PENDING);
            return false;
        }
        self.levels.insert(owner, level);
        true
    }

    /// Lowers the level of a connection.
    pub fn unlock(&mut self, owner: u64, level: c_int) {
        if level == LOCK_NONE {
            self.levels.remove(&owner);
        } else if self.level(owner) > level {
            self.levels.insert(owner, level);
        }
    }

    /// Whether any connection is about to write.
    pub fn is_reserved(&self) -> bool {
        self.levels.values().any(|level| *level >= LOCK_RESERVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let mut locks = Locks::default();
        assert!(locks.lock(1, LOCK_SHARED) && locks.lock(2, LOCK_SHARED) && locks.lock(1, LOCK_RESERVED));
        assert!(!locks.lock(2, LOCK_RESERVED) && locks.lock(3, LOCK_SHARED));
        assert!(!locks.lock(1, LOCK_EXCLUSIVE) && !locks.lock(4, LOCK_SHARED));
        assert_eq!((locks.level(1), locks.is_reserved()), (LOCK_PENDING, true));
        locks.unlock(2, LOCK_NONE);
        assert!(!locks.lock(1, LOCK_EXCLUSIVE));
        locks.unlock(3, LOCK_NONE);
        assert!(locks.lock(1, LOCK_EXCLUSIVE) && !locks.lock(2, LOCK_SHARED));
        locks.unlock(1, LOCK_SHARED);
        assert!(locks.lock(2, LOCK_SHARED) && !locks.is_reserved());
    }
}
