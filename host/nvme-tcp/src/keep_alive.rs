//! When a host has to say that it is still there.

use openftl_core::{Nanos, Time};

/// When a host has to send the next Keep Alive: at half of the time after which the controller gives it up, so that one
/// that is late loses nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    interval: Nanos,
    due: Time,
}

impl KeepAlive {
    /// From `now` on, for a KATO in milliseconds; zero is never due.
    #[must_use]
    pub fn new(now: Time, keep_alive_ms: u32) -> KeepAlive {
        let mut keep_alive =
            KeepAlive { interval: Nanos::from_micros(u64::from(keep_alive_ms) * 500), due: Time::NEVER };
        keep_alive.sent(now);
        keep_alive
    }

    /// When the next is due.
    #[must_use]
    pub fn due(&self) -> Time {
        self.due
    }

    /// One was sent.
    pub fn sent(&mut self, now: Time) {
        if self.interval > Nanos::ZERO {
            self.due = now + self.interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_is_due_at_half_of_its_time() {
        let mut keep_alive = KeepAlive::new(Time(1_000), 10);
        assert_eq!(keep_alive.due(), Time(5_001_000));
        keep_alive.sent(Time(4_000_000));
        assert_eq!(keep_alive.due(), Time(9_000_000));
        assert_eq!(KeepAlive::new(Time(0), 0).due(), Time::NEVER);
    }
}
