//! NVMe without a transport.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]
pub mod wire;
