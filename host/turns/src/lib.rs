//! One file system, many threads: each attempts its own operations, and those that wait look after the device in turns.
//!
//! | file | noun |
//! |---|---|
//! | [`turns`] | a file system behind its lock, and those who wait for it |
//! | [`clock`] | how time passes for a file system |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod clock;
pub mod turns;

pub use clock::{JumpingClock, ServeClock, WallClock};
pub use turns::{Alarm, Taken, TakenGuard, Turns};
