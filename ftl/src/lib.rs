//! Layer 2: how logical becomes physical.
//!
//! Reusable parts, one noun per file, and the FTLs assembled from them. No system call, no thread, no clock, no
//! randomness: time and chance arrive as arguments.

pub mod config;
pub mod plan;
pub mod statistics;
pub mod target;
pub mod victim;

pub use config::Config;
pub use plan::{Plan, PlanError, chunks_per_pu};
pub use statistics::{GroupStatistics, Purpose, Statistics};
pub use target::{BlockTarget, Done, Durability, IoError, Request};
pub use victim::VictimPolicy;
