//! Questions and answers: what is asked of a drive, how it is measured, and how the answer is shown.
//!
//! Nothing here reads a clock or draws chance of its own: a seed and a [`openftl_core::Clock`] come as arguments, so the
//! same load runs in virtual time, against the wall clock, or on instant media.
//!
//! | module | noun |
//! |---|---|
//! | [`workload`] | which blocks a host asks for, in which order |
//! | [`zipf`] | a distribution in which few are popular |
//! | [`driver`] | keeps a drive busy at a queue depth and checks every block that comes back |
//! | [`outcome`] | what one phase of a run measured |
//! | [`steady`] | brings a drive into its steady state |
//! | [`theory`] | write amplification as the literature computes it |
//! | [`picture`] | bars, strips and sparklines for a terminal |
//! | [`fit`] | a straight line through points |
//! | [`experiments`] | what papers measured, measured again, with a verdict |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod driver;
pub mod experiments;
pub mod fit;
pub mod outcome;
pub mod picture;
pub mod steady;
pub mod theory;
pub mod workload;
pub mod zipf;

pub use driver::{Driver, Limit, RunError};
pub use openftl_core::TraceHash;
pub use outcome::Outcome;
pub use workload::{Access, Operation, Pattern, Workload, WorkloadConfig};
