//! The clock of a drive that nobody serves: simulated time, which turns into real time when asked to.
//!
//! A drive is filled and warmed up in simulated time, whatever it is measured in: nobody wants to wait for the NAND then.

use openftl_core::{Clock, Nanos, Time};
use std::time::{Duration, Instant};

/// Shorter waits than this are spun: the system wakes a sleeper some ten microseconds late.
const SPIN: Duration = Duration::from_micros(80);

/// Simulated time, or real time from some moment on.
#[derive(Clone, Copy, Debug)]
pub enum BenchClock {
    /// Moves only when somebody waits.
    Simulated(Time),
    /// Moves by itself.
    Real {
        /// Its time when it began to run.
        origin: Time,
        /// When that was.
        started: Instant,
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
        *self = BenchClock::Real { origin, started: Instant::now() };
    }
}

impl Clock for BenchClock {
    fn now(&mut self) -> Time {
        match self {
            BenchClock::Simulated(now) => *now,
            BenchClock::Real { origin, started } => *origin + Nanos(started.elapsed().as_nanos() as u64),
        }
    }

    fn wait_until(&mut self, due: Time) -> Time {
        match self {
            BenchClock::Simulated(now) => *now = (*now).max(due),
            BenchClock::Real { .. } => loop {
                let left = Duration::from_nanos(due.since(self.now()).0);
                match left.checked_sub(SPIN) {
                    _ if left.is_zero() => break,
                    Some(sleep) => std::thread::sleep(sleep),
                    None => std::hint::spin_loop(),
                }
            },
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
