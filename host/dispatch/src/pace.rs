//! How time passes for a drive, and the clock that follows from it.

use openftl_core::{Clock, Time};
use std::time::{Duration, Instant};

/// How time passes for a drive.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// It is the time of everybody, since then.
    Wall(Instant),
    /// It jumps to the next thing that is due as soon as somebody waits for it.
    Virtual,
}

impl Pace {
    /// Real time from now on.
    #[must_use]
    pub fn wall() -> Pace {
        Pace::Wall(Instant::now())
    }
}

/// A clock for opening and closing a drive.
pub struct PaceClock {
    /// How time passes.
    pub pace: Pace,
    /// The time, when it was last looked at.
    pub now: Time,
}

impl Clock for PaceClock {
    fn now(&mut self) -> Time {
        if let Pace::Wall(start) = self.pace {
            self.now = Time(start.elapsed().as_nanos() as u64);
        }
        self.now
    }

    fn wait_until(&mut self, due: Time) -> Time {
        match self.pace {
            Pace::Virtual => self.now = self.now.max(due),
            Pace::Wall(_) => {
                let now = self.now();
                if due > now {
                    std::thread::sleep(Duration::from_nanos(due.since(now).0));
                }
            }
        }
        self.now()
    }
}
