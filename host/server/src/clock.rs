//! The clock on the wall: real time for a drive that real clients talk to.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use openftl_core::{Clock, Nanos, Time};

/// How long before a moment to stop sleeping and to spin: about as long as waking up takes, which is a few microseconds
/// on bare metal and tens of them in a virtual machine. Learnt from each sleep: nine of ten wake up in time.
#[derive(Clone, Copy, Debug)]
pub struct Lead(Nanos);

impl Lead {
    /// The least, and where learning begins.
    pub const MIN: Nanos = Nanos(5_000);
    /// The most: whoever wakes up later than that has no core to run on, and spinning would not help.
    pub const MAX: Nanos = Nanos(150_000);
    const STEP: Nanos = Nanos(250);

    /// Before the first sleep.
    #[must_use]
    pub fn new() -> Lead {
        Lead(Lead::MIN)
    }

    /// How long to spin.
    #[inline]
    #[must_use]
    pub fn get(self) -> Nanos {
        self.0
    }

    /// A sleep that was to end at `meant` ended at `woke`.
    pub fn learn(&mut self, meant: Time, woke: Time) {
        let was_late = woke.since(meant) > self.0;
        self.0 = if was_late { (self.0 + Lead::STEP * 9).min(Lead::MAX) } else { (self.0 - Lead::STEP).max(Lead::MIN) };
    }
}

impl Default for Lead {
    fn default() -> Lead {
        Lead::new()
    }
}

/// Nanoseconds since the clock was made, which is the moment that the drive was powered on.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    start: Instant,
    lead: Lead,
}

impl WallClock {
    /// A clock that shows zero now. The calling thread's timers get precise (no slack for saving power), because that is
    /// where the waiting will be done.
    #[must_use]
    pub fn new() -> WallClock {
        // Without it waits are up to 50 µs late, which is as good a clock, only a later one.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        WallClock { start: Instant::now(), lead: Lead::new() }
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
            if span > self.lead.get() {
                let sleep = span - self.lead.get();
                std::thread::sleep(Duration::from_nanos(sleep.0));
                let woke = self.now();
                self.lead.learn(now + sleep, woke);
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
    fn the_lead_grows_to_what_waking_up_takes_and_shrinks_again() {
        let mut lead = Lead::new();
        let mut sleep = |late: u64| {
            lead.learn(Time(1_000_000), Time(1_000_000 + late));
            lead.get()
        };
        let learnt = (0..200).map(|_| sleep(60_000)).last().unwrap();
        assert!((Nanos(57_000)..Nanos(63_000)).contains(&learnt), "{learnt}");
        assert_eq!((0..200).map(|_| sleep(1_000_000)).last(), Some(Lead::MAX));
        assert_eq!((0..1_000).map(|_| sleep(1_000)).last(), Some(Lead::MIN));
    }

    #[test]
    fn a_wait_ends_no_earlier_than_due() {
        let mut clock = WallClock::new();
        let due = clock.now() + Nanos::from_micros(200);
        assert!(clock.wait_until(due) >= due);
        assert!(clock.now() >= due);
    }
}
