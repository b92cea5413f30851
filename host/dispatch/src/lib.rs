//! One drive, many threads: the threads of a process share a drive of any FTL, or a file system, and each waits for its own requests.
//!
//! | file | noun |
//! |---|---|
//! | [`dispatcher`] | the drive behind its lock, and those who wait for it |
//! | [`pace`] | how time passes for a drive, and the clock that follows from it |
//! | [`bell`] | wakes the thread that waits for the device |
//! | [`turns`] | a file system behind its lock, and those who wait for it |
//! | [`clock`] | how time passes for a file system |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod bell;
pub mod clock;
pub mod dispatcher;
pub mod pace;
pub mod turns;

pub use bell::Bell;
pub use clock::{JumpingClock, ServeClock, WallClock};
pub use dispatcher::{Dispatcher, Outcome, Owned, Owner, Shareable, Stopped, Until, Watch};
pub use pace::{Pace, PaceClock};
pub use turns::{Alarm, Taken, TakenGuard, Turns};
