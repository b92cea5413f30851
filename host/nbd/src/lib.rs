//! NBD, the protocol half: any Linux program, QEMU or fio speaks it. No socket, no clock.
//!
//! | module | noun |
//! |---|---|
//! | [`wire`] | the protocol's bits |
//! | [`protocol`] | the protocol's rules: bytes in, requests out |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod protocol;
pub mod wire;
