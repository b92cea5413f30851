//! The clock on the wall: real time for a drive that real clients talk to.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use openftl_core::{Clock, Nanos, Time};

/// How long before a moment the thread wakes up and spins: about what waking up takes.
pub const SPIN: Nanos = Nanos(5_000);

/// Nanoseconds since the clock was made, which is the moment that the drive was powered on.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    start: Instant,
}

impl WallClock {
    /// A clock that shows zero now. The calling thread's timers get precise (no slack for saving power), because that is
    /// where the waiting will be done.
    #[must_use]
    pub fn new() -> WallClock {
        // Without it waits are up to 50 µs late, which is as good a clock, only a later one.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        WallClock { start: Instant::now() }
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

impl Clock for WallClock {
    #[inline]
    fn now(&mut self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn wait_until(&mut self, due: Time) -> Time {
        loop {
            let now = self.now();
            if now >= due {
                return now;
            }
            let span = due.since(now);
            if span > SPIN {
                std::thread::sleep(Duration::from_nanos((span - SPIN).0));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_no_earlier_than_due() {
        let mut clock = WallClock::new();
        let due = clock.now() + Nanos::from_micros(200);
        assert!(clock.wait_until(due) >= due);
        assert!(clock.now() >= due);
    }
}
