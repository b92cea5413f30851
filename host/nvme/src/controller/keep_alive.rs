//! Whether the host is still there (Base, "Keep Alive", traffic based).
//!
//! ```text
//!        ├──── KATO ────┼──── KATO ────┼──── KATO ────┤
//!             command         none: expired
//! ```
//!
//! Any command in an interval begins another one at its end, so that I/O has nothing to do but set a flag.

use super::keep_alive_span;
use openftl_core::Time;

/// The timer of one controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    ms: u32,
    /// When the interval ends.
    due: Time,
    /// Whether a command came in it.
    is_seen: bool,
}

impl KeepAlive {
    /// A timer of `ms` milliseconds, rounded up to the controller's granularity; 0: none.
    #[must_use]
    pub fn new(now: Time, ms: u32) -> KeepAlive {
        let mut timer = KeepAlive { ms, due: Time::NEVER, is_seen: false };
        timer.restart(now);
        timer
    }

    /// KATO as the host set it.
    #[must_use]
    pub fn ms(&self) -> u32 {
        self.ms
    }

    /// A command has come.
    #[inline]
    pub fn seen(&mut self) {
        self.is_seen = true;
    }

    /// Begins an interval.
    pub fn restart(&mut self, now: Time) {
        self.due = if self.ms == 0 { Time::NEVER } else { now + keep_alive_span(self.ms) };
        self.is_seen = false;
    }

    /// When to look again, if ever.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        (self.due != Time::NEVER).then_some(self.due)
    }

    /// Whether the host has been silent for a whole interval.
    pub fn has_expired(&mut self, now: Time) -> bool {
        if now < self.due {
            return false;
        }
        if self.is_seen {
            self.restart(now);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Nanos;

    const fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    #[test]
    fn a_silent_host_expires_and_one_with_traffic_does_not() {
        let mut timer = KeepAlive::new(at(0), 1000);
        assert_eq!(timer.next_due(), Some(at(1000)));
        timer.seen();
        assert!(!timer.has_expired(at(999)) && !timer.has_expired(at(1000)));
        assert_eq!(timer.next_due(), Some(at(2000)));
        assert!(timer.has_expired(at(2000)));
    }

    #[test]
    fn a_keep_alive_command_begins_an_interval() {
        let mut timer = KeepAlive::new(at(0), 1000);
        timer.restart(at(900));
        assert!(!timer.has_expired(at(1899)) && timer.has_expired(at(1900)));
    }

    #[test]
    fn no_time_is_no_timer_and_odd_times_are_rounded_up() {
        let mut timer = KeepAlive::new(at(0), 0);
        assert_eq!(timer.next_due(), None);
        assert!(!timer.has_expired(Time(u64::MAX - 1)));
        assert_eq!(KeepAlive::new(at(0), 101).next_due(), Some(at(0) + Nanos::from_millis(200)));
    }
}
