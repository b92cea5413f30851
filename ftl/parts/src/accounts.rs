//! One accounting for all FTLs.

pub mod encounters;
pub mod latency;
pub mod life;
pub mod statistics;
