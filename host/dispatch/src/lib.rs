//! One drive, many threads: the threads of a process share a drive of any FTL, and each waits for its own requests.
//!
//! | file | noun |
//! |---|---|
//! | [`dispatcher`] | the drive behind its lock, and those who wait for it |
//! | [`pace`] | how time passes for a drive, and the clock that follows from it |
//! | [`bell`] | wakes the thread that waits for the device |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod bell;
pub mod dispatcher;
pub mod pace;

pub use bell::{Bell, be_precise};
pub use dispatcher::{Dispatcher, Outcome, Owned, Owner, Shareable, Stopped, Until, Watch};
pub use pace::{Pace, PaceClock};
