//! How fast a peer gives or takes what it owes: the rest of a payload that it has announced, or the replies that it has
//! asked for.
//!
//! ```text
//!   owes from here on                                                        slow: nothing to speak of for SLOW_AFTER
//!   ├──── stall_max ────────────────────────┤ deadline                       late: past the deadline
//!        ├─ bytes ─▶ deadline + bytes / rate, but never more than stall_max from now on
//! ```
//!
//! A peer that is *slow* loses the frames that its payload lies in as soon as somebody else waits for frames: the payload
//! goes on in memory of the connection. A peer that is *late* loses the connection. A byte now and then does not help: each
//! buys the time that it takes at [`BYTES_PER_SECOND_MIN`]. So a request of `n` bytes is over after `stall_max` and `n` bytes
//! at that rate.

use openftl_core::{Nanos, Time};

/// The least that a peer gives or takes while it owes, in bytes per second: a hundredth of the slowest network that drives
/// are used over, so that it catches nobody who is in earnest.
pub(crate) const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

const NS_PER_BYTE_MAX: u64 = 1_000_000_000 / BYTES_PER_SECOND_MIN;

/// How long a peer may give or take less than [`SLOW_BYTES`] before it is slow: a megabyte a second. Payload of a faster peer
/// costs no copy, and nobody waits longer than that for the frames of a slower one.
pub(crate) const SLOW_AFTER: Nanos = Nanos::from_millis(50);
const SLOW_BYTES: u64 = 64 << 10;

/// One direction of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pace(Option<Owed>);

#[derive(Clone, Copy, Debug)]
struct Owed {
    deadline: Time,
    slow_at: Time,
    /// Bytes that moved since it was last found not to be slow.
    bytes: u64,
}

impl Pace {
    /// Notes whether the peer owes something now.
    pub fn set_owing(&mut self, now: Time, is_owing: bool, stall_max: Nanos) {
        if !is_owing {
            self.0 = None;
        } else if self.0.is_none() {
            self.0 = Some(Owed { deadline: now + stall_max, slow_at: now + SLOW_AFTER, bytes: 0 });
        }
    }

    /// The peer gave or took this much.
    pub fn moved(&mut self, now: Time, bytes: u64, stall_max: Nanos) {
        let Some(owed) = &mut self.0 else { return };
        let bought = Nanos(bytes.saturating_mul(NS_PER_BYTE_MAX));
        owed.deadline = (owed.deadline + bought).min(now + stall_max);
        owed.bytes += bytes;
        if owed.bytes >= SLOW_BYTES {
            (owed.bytes, owed.slow_at) = (0, now + SLOW_AFTER);
        }
    }

    /// The peer has come to the end of one request; the next has a deadline of its own.
    pub fn finish_one(&mut self) {
        self.0 = None;
    }

    /// When the peer is late.
    pub fn deadline(&self) -> Option<Time> {
        self.0.map(|owed| owed.deadline)
    }

    /// From when on the peer is slow, unless it moves.
    pub fn slow_at(&self) -> Option<Time> {
        self.0.map(|owed| owed.slow_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL_MAX: Nanos = Nanos::from_millis(30_000);

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn a_byte_now_and_then_does_not_move_the_deadline() {
        let mut pace = Pace::default();
        pace.set_owing(seconds(0), true, STALL_MAX);
        pace.moved(seconds(20), 1, STALL_MAX);
        assert!(pace.deadline().unwrap() < seconds(31));
        assert_eq!(pace.slow_at(), Some(Time::ZERO + SLOW_AFTER));
    }

    #[test]
    fn a_peer_above_the_least_rate_is_never_late_and_one_below_it_is_in_the_end() {
        for (per_second, is_late) in [(BYTES_PER_SECOND_MIN + 100, false), (BYTES_PER_SECOND_MIN / 2, true)] {
            let mut pace = Pace::default();
            pace.set_owing(seconds(0), true, STALL_MAX);
            let late = (1..3_600).find(|second| {
                let is_late = seconds(*second) >= pace.deadline().unwrap();
                pace.moved(seconds(*second), per_second, STALL_MAX);
                pace.set_owing(seconds(*second), true, STALL_MAX);
                is_late
            });
            assert_eq!(late.is_some(), is_late, "{per_second} bytes per second: late at {late:?}");
        }
    }

    #[test]
    fn whoever_owes_nothing_has_no_deadline() {
        let mut pace = Pace::default();
        pace.moved(seconds(1), 5, STALL_MAX);
        pace.set_owing(seconds(1), true, STALL_MAX);
        pace.set_owing(seconds(2), false, STALL_MAX);
        assert_eq!((pace.deadline(), pace.slow_at()), (None, None));
    }
}
