//! NVMe without a transport.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]
pub mod command;
pub mod health;
pub mod namespace;
pub mod queue;
pub mod wire;
