//! The clock of a drive that nobody serves: simulated time, which turns into real time when asked to.
//!
//! A drive is filled and warmed up in simulated time, whatever it is measured in: nobody wants to wait for the NAND then.

use openftl_core::{Clock, Nanos, Time};
use openftl_server::WallClock;

/// Simulated time, or real time from some moment on.
#[derive(Clone, Copy, Debug)]
pub enum BenchClock {
    /// Moves only when somebody waits.
    Simulated(Time),
    /// Moves by itself.
    Real {
        /// Its time when it began to run.
        origin: Time,
        /// What has gone by since.
        since: WallClock,
    },
}

impl BenchClock {
    /// Simulated time from power-on.
    pub fn simulated() -> BenchClock {
        BenchClock::Simulated(Time::ZERO)
    }

    /// Real time from here on.
    pub fn start_running(&mut self) {
        let origin = self.now();
        *self = BenchClock::Real { origin, since: WallClock::new() };
    }
}

impl Clock for BenchClock {
    fn now(&mut self) -> Time {
        match self {
            BenchClock::Simulated(now) => *now,
            BenchClock::Real { origin, since } => *origin + Nanos(since.now().0),
        }
    }

    fn wait_until(&mut self, due: Time) -> Time {
        match self {
            BenchClock::Simulated(now) => *now = (*now).max(due),
            BenchClock::Real { origin, since } => {
                since.wait_until(Time(due.since(*origin).0));
            }
        }
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_jumps_and_real_time_goes_on_from_there() {
        let mut clock = BenchClock::simulated();
        assert_eq!(clock.wait_until(Time(1_000_000_000_000)), Time(1_000_000_000_000));
        assert_eq!(clock.now(), Time(1_000_000_000_000));
        clock.start_running();
        let due = clock.now() + Nanos::from_micros(200);
        assert!(due > Time(1_000_000_000_000));
        assert!(clock.wait_until(due) >= due);
    }
}
