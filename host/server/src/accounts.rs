//! What the requests of connections hold of a drive: frames, and places.
//!
//! ```text
//!   frames   ├── long requests: at most half ──┤· · · · · ·│ share of one connection: 1/8 │··│ reserved: 1/8 │
//!   places   ├───────────────── any request ──────────────────────────────────────────────│ reserved: 1/8 │
//! ```
//!
//! Requests wait for frames and places in the order in which their connections came. *Modest* requests wait behind nobody as
//! long as the reserve has room for them: those that are small and come from a connection that holds little. So a read of
//! 4 KiB does not wait for 32 MiB of somebody else's payload. All others leave the reserve alone. *Long* requests, of more
//! than a connection's share, hold at most half of the pool together, and wait in a line of their own: while they wait for each
//! other, usual requests pass them with a quarter of the pool; while they wait for frames, nobody but modest requests does.

use openftl_bytes::RequestId;
use openftl_core::{FrameForm, Frames};

use crate::POOL_SHARES;

/// Requests that are admitted to one drive at a time, of all connections: four connections with all that one may have. More
/// wait as for frames. What a write in part compares itself with is no more than these.
pub(crate) const REQUESTS_MAX: usize = 4096;

/// The reserve of modest requests: this part of the frames and of the places.
const RESERVE_SHARES: usize = 8;

/// What a connection holds at most with a modest request.
const MODEST_REQUESTS: usize = 32;
const MODEST_BYTES: u64 = 128 << 10;

/// What a connection holds of a drive, and what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// Requests that it has admitted.
    pub requests: usize,
    /// Bytes of frames that it holds.
    pub bytes: u64,
    /// Bytes of frames that it wants, more or less.
    pub payload: u64,
}

impl Claim {
    pub fn is_modest(&self) -> bool {
        self.requests < MODEST_REQUESTS && self.bytes + self.payload <= MODEST_BYTES
    }
}

/// On which account an admitted request holds its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Account {
    Modest,
    Usual,
    Long,
}

/// What modest and long requests hold of a drive, and what there is.
pub(crate) struct Accounts {
    /// Frames of the pool when nobody held any for a host.
    pool_frames: usize,
    pub share_frames: usize,
    /// Whether long requests wait.
    pub has_long_waiters: bool,
    /// Each admitted request's account and frames, by its place.
    held: Vec<(Account, u32)>,
    modest_requests: usize,
    modest_frames: usize,
    usual_frames: usize,
    long_frames: usize,
}

impl Accounts {
    pub fn new(frames: &Frames) -> Accounts {
        Accounts {
            pool_frames: frames.available(FrameForm::Bytes),
            share_frames: frames.len() / POOL_SHARES,
            has_long_waiters: false,
            held: Vec::new(),
            modest_requests: 0,
            modest_frames: 0,
            usual_frames: 0,
            long_frames: 0,
        }
    }

    /// On which account a request would be.
    pub fn account(&self, frames: usize, is_modest: bool) -> Account {
        if is_modest {
            Account::Modest
        } else if frames > self.share_frames {
            Account::Long
        } else {
            Account::Usual
        }
    }

    /// Whether there is room for a request of `account` that wants `frames`, while the drive has `requests` and `available`
    /// frames are free. `is_next`: it waits behind nobody in its line.
    pub fn has_room(&self, account: Account, frames: usize, is_next: bool, available: usize, requests: usize) -> bool {
        let (reserved_frames, reserved_places) = (self.pool_frames / RESERVE_SHARES, REQUESTS_MAX / RESERVE_SHARES);
        if frames > available {
            return false;
        }
        if account == Account::Modest {
            let is_in_reserve =
                self.modest_frames + frames <= reserved_frames && self.modest_requests < reserved_places;
            return is_next || is_in_reserve;
        }
        let is_within = match account {
            Account::Long => self.long_frames == 0 || self.long_frames + frames <= self.pool_frames / 2,
            _ if !self.has_long_waiters => true,
            // Long requests that wait for frames come first, or they would never find enough of them.
            _ => self.long_frames > 0 && self.usual_frames + frames <= self.pool_frames / 4,
        };
        // A drive that nobody else uses may be used up to its last frame.
        let is_alone = requests == 0;
        let left_frames = reserved_frames.saturating_sub(self.modest_frames);
        let left_places = reserved_places.saturating_sub(self.modest_requests);
        let fits = is_alone || (frames + left_frames <= available && requests + left_places < REQUESTS_MAX);
        is_next && is_within && fits
    }

    pub fn book(&mut self, id: RequestId, account: Account, frames: usize) {
        if self.held.len() <= id.index() {
            self.held.resize(id.index() + 1, (Account::Usual, 0));
        }
        self.held[id.index()] = (account, frames as u32);
        match account {
            Account::Modest => {
                self.modest_requests += 1;
                self.modest_frames += frames;
            }
            Account::Usual => self.usual_frames += frames,
            Account::Long => self.long_frames += frames,
        }
    }

    pub fn settle(&mut self, id: RequestId) {
        let Some(held) = self.held.get_mut(id.index()) else { return };
        match std::mem::replace(held, (Account::Usual, 0)) {
            (Account::Modest, frames) => {
                self.modest_requests -= 1;
                self.modest_frames -= frames as usize;
            }
            (Account::Usual, frames) => self.usual_frames -= frames as usize,
            (Account::Long, frames) => self.long_frames -= frames as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(frames: usize) -> Accounts {
        Accounts::new(&Frames::new(frames, 0, 16))
    }

    use Account::{Long, Modest, Usual};

    #[test]
    fn a_modest_request_passes_those_that_wait_while_the_reserve_has_room() {
        let mut accounts = accounts(1024);
        for _ in 0..128 {
            assert!(accounts.has_room(Modest, 1, false, 128, 10), "an eighth of the pool is reserved");
            accounts.modest_frames += 1;
        }
        assert!(!accounts.has_room(Modest, 1, false, 500, 10), "the reserve is used up, and others wait");
        assert!(accounts.has_room(Modest, 1, true, 500, 10), "nobody waits");
    }

    #[test]
    fn nobody_else_takes_frames_or_places_of_the_reserve() {
        let mut accounts = accounts(1024);
        assert!(!accounts.has_room(Usual, 64, true, 191, 1));
        assert!(accounts.has_room(Usual, 64, true, 192, 1));
        assert!(accounts.has_room(Usual, 64, true, 64, 0), "nobody else uses the drive");
        assert!(!accounts.has_room(Usual, 64, true, 1024, REQUESTS_MAX - REQUESTS_MAX / RESERVE_SHARES));
        accounts.modest_frames = 28;
        assert!(accounts.has_room(Usual, 64, true, 164, 1), "what modest requests hold is not kept twice");
    }

    #[test]
    fn long_requests_hold_half_of_the_pool_together_and_one_always_fits() {
        let mut accounts = accounts(1024);
        assert_eq!((accounts.account(128, false), accounts.account(129, false)), (Usual, Long));
        assert!(accounts.has_room(Long, 512, true, 1024, 1));
        accounts.long_frames = 129;
        assert!(!accounts.has_room(Long, 512, true, 1024, 1));
        assert!(accounts.has_room(Long, 383, true, 1024, 1));
    }

    #[test]
    fn usual_requests_pass_long_ones_that_wait_for_each_other_and_no_others() {
        let mut accounts = accounts(1024);
        accounts.has_long_waiters = true;
        assert!(!accounts.has_room(Usual, 64, true, 1024, 1), "the long one waits for frames");
        accounts.long_frames = 512;
        assert!(accounts.has_room(Usual, 64, true, 512, 1), "the long one waits for another");
        accounts.usual_frames = 200;
        assert!(!accounts.has_room(Usual, 64, true, 512, 1), "and a quarter of the pool is enough meanwhile");
    }
}
