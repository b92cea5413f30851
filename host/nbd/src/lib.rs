//! NBD: any Linux program, QEMU or fio on an OpenFTL drive, over a Unix socket or loopback TCP.
//!
//! | module | noun |
//! |---|---|
//! | [`wire`] | the protocol's bits |
//! | [`protocol`] | the protocol's rules: bytes in, requests out; no socket, no clock |
//! | [`bytes`] | requests in bytes on a drive of 4 KiB blocks |
//! | [`server`] | one thread that owns the drives and all connections |
//! | [`clock`] | the clock on the wall |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod bytes;
pub mod clock;
pub mod protocol;
pub mod server;
pub mod wire;

pub use clock::WallClock;
pub use server::{
    Counters, Drives, End, Endpoint, Export, ListenError, Listener, NoOperator, Operator, ServeError, Server,
    ServerConfig, Stop,
};
