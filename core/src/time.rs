//! Time is an argument: every layer below the host is told the time and never asks for it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A moment, in nanoseconds since the drive was powered on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Time {
    /// The moment of power-on.
    pub const ZERO: Time = Time(0);
    /// Later than any moment that a run reaches.
    pub const NEVER: Time = Time(u64::MAX);

    /// The span from `earlier` to `self`; zero if `earlier` is in fact later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since power-on.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// A span of whole microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// The span in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Nanos> for Time {
    type Output = Time;
    fn add(self, span: Nanos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Nanos> for Time {
    fn add_assign(&mut self, span: Nanos) {
        *self = *self + span;
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Mul<u64> for Nanos {
    type Output = Nanos;
    fn mul(self, times: u64) -> Nanos {
        Nanos(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..=9_999 => write!(f, "{} ns", self.0),
            10_000..=9_999_999 => write!(f, "{:.1} µs", self.0 as f64 / 1e3),
            10_000_000..=9_999_999_999 => write!(f, "{:.1} ms", self.0 as f64 / 1e6),
            _ => write!(f, "{:.2} s", self.0 as f64 / 1e9),
        }
    }
}

/// Who hands out the time. The flows that wait (recovery, a clean stop) are given one; everything else gets a `now`.
pub trait Clock {
    /// The present moment.
    fn now(&mut self) -> Time;

    /// Returns no earlier than `due`, having waited (wall clock) or having jumped there (virtual time).
    fn wait_until(&mut self, due: Time) -> Time;
}

/// A clock that only moves when somebody waits: a simulated second costs nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct VirtualClock(pub Time);

impl Clock for VirtualClock {
    fn now(&mut self) -> Time {
        self.0
    }

    fn wait_until(&mut self, due: Time) -> Time {
        self.0 = self.0.max(due);
        self.0
    }
}
