//! Layer 2: how logical becomes physical.
//!
//! Reusable parts, one noun per file, and the FTLs assembled from them. No system call, no thread, no clock, no
//! randomness: time and chance arrive as arguments.

pub mod target;

pub use target::{BlockTarget, Done, Durability, IoError, Request};
