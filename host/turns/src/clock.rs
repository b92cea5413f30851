//! Clocks of a file system that threads share.

use openftl_alfs::FileTime;
use openftl_core::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How time passes for a file system. All threads that use it ask.
pub trait ServeClock: Send + Sync {
    /// The present moment; never earlier than a moment that was returned before.
    fn now(&self) -> Time;

    /// For how long to sleep until `due`. Zero: it has come, or the clock has jumped there.
    fn until(&self, due: Time) -> Duration;

    /// The time of day, for the times of files. It is the kernel's time of its last tick, as the kernel has it for files whose writes it
    /// collects: with a finer one here, a file would be changed before it was made.
    fn time_of_day(&self) -> FileTime {
        let tick = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        FileTime { seconds: tick.tv_sec, nanoseconds: tick.tv_nsec as u32 }
    }
}

impl<C: ServeClock + ?Sized> ServeClock for &C {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn until(&self, due: Time) -> Duration {
        (**self).until(due)
    }

    fn time_of_day(&self) -> FileTime {
        (**self).time_of_day()
    }
}

impl<C: ServeClock + ?Sized> ServeClock for Box<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn until(&self, due: Time) -> Duration {
        (**self).until(due)
    }

    fn time_of_day(&self) -> FileTime {
        (**self).time_of_day()
    }
}

/// Real time since a moment.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(Instant);

impl WallClock {
    /// A clock that starts at [`Time::ZERO`] now.
    #[must_use]
    pub fn new() -> WallClock {
        WallClock::since(Instant::now())
    }

    /// A clock that started then.
    #[must_use]
    pub fn since(start: Instant) -> WallClock {
        WallClock(start)
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

impl ServeClock for WallClock {
    fn now(&self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }

    fn until(&self, due: Time) -> Duration {
        Duration::from_nanos(due.since(self.now()).0)
    }
}

/// Time that jumps to the next thing that is due as soon as somebody waits for it: the device takes no time of the host's.
#[derive(Default, Debug)]
pub struct JumpingClock(AtomicU64);

impl JumpingClock {
    /// A clock that stands at this moment.
    #[must_use]
    pub fn new(now: Time) -> JumpingClock {
        JumpingClock(AtomicU64::new(now.0))
    }
}

impl ServeClock for JumpingClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    fn until(&self, due: Time) -> Duration {
        self.0.fetch_max(due.0, Ordering::Relaxed);
        Duration::ZERO
    }
}
