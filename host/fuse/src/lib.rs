//! A file system for every program on Linux: the FUSE protocol, spoken by ourselves.
//!
//! ```text
//!   programs ── kernel: names, attributes, page cache ── /dev/fuse ── serve: threads ── session: rules ── FileSystem
//! ```
//!
//! The kernel checks permissions, keeps names and attributes as long as it likes, and collects writes in its page cache: nobody else changes
//! the file system while it is mounted.
//!
//! `sync` and `syncfs` do not reach the file system: the kernel writes its cache, and sends `SYNCFS` to virtual machines and block devices
//! alone. `fsync` of any file or folder does, and makes everything durable.
//!
//! | file | noun |
//! |---|---|
//! | [`wire`] | the protocol's bits |
//! | [`request`] | bytes in, requests out |
//! | [`answer`] | replies, and the references that the kernel gets with them |
//! | `plan` | the operation of a request |
//! | `privileges` | set-user-ID and set-group-ID bits of files that change |
//! | `references` | which files the kernel knows |
//! | [`session`] | a connection with the kernel, without a device and a clock |
//! | [`mount`], with `mount_table` | a connection with the kernel, and the folder that shows it |
//! | [`mod@serve`] | threads that serve a mount |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod answer;
pub mod mount;
mod mount_table;
mod plan;
mod privileges;
mod references;
pub mod request;
pub mod serve;
pub mod session;
pub mod wire;

pub use answer::Answer;
pub use mount::{Mount, MountError, MountOptions, MountPlace, Mounter, Unmounted};
pub use openftl_turns::{JumpingClock, ServeClock, WallClock};
pub use request::{Body, FuseRequest, Head, Malformed};
pub use serve::{ServeOptions, Served, Stopper, serve};
pub use session::{Pending, Session, SessionCounts};
