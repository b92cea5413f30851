//! Control: what whoever operates a served drive may ask of it, one line of JSON at a time, over a Unix socket.
//!
//! | module | noun |
//! |---|---|
//! | [`protocol`] | requests and responses |
//! | [`session`] | the lines of one client: bytes in, commands out; no socket, no clock |
//! | [`server`] | the sockets of all clients, without a thread or a wait of its own |
//! | [`client`] | the other end |

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod client;
pub mod protocol;
pub mod server;
pub mod session;

pub use client::{AskError, Client};
pub use protocol::{After, Answer, Command, Cut, Refusal, RefusalKind, Request};
pub use server::{ClientId, ControlServer};

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a drive in a file is controlled unless its server was told otherwise.
#[must_use]
pub fn socket_beside(disk: &Path) -> PathBuf {
    let mut path = OsString::from(disk);
    path.push(".ctl");
    path.into()
}
