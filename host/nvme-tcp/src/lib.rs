//! NVMe over TCP: the PDUs, and both halves of a connection, without a socket, a clock or a thread.
//!
//! ```text
//!   host                                                                                    controller
//!   ┌───────────┐  ICReq  CapsuleCmd  H2CData  H2CTermReq  ─────────▶  ┌────────┐  entry, payload  ┌────────────┐
//!   │ Initiator │                                                     │ Target │ ◀──────────────▶ │ queue, FTL │
//!   └───────────┘  ◀─────────  ICResp  CapsuleResp  C2HData  R2T  …   └────────┘                  └────────────┘
//! ```
//!
//! | module | noun |
//! |---|---|
//! | [`pdu`] | the bits: headers, their fields and their bounds |
//! | [`error`] | why a connection has to end, as a termination request says it |
//! | [`digest`] | the checksum behind payload |
//! | [`sgl`] | where the data of a command travel |
//! | [`target`] | the controller's half |
//! | [`initiator`] | the host's half |
//! | [`fabrics`] | the commands that a host begins with |
//! | [`nvm`] | the few others that a host's own tools need |
//! | [`keep_alive`] | when a host has to say that it is there |
//! | [`client`] | a host on any stream that blocks |
//!
//! Neither half ever holds payload: it says which of the next bytes belong where, and its owner receives them straight
//! to that place, or sends them straight from there. A submission queue entry is 64 bytes and a completion queue entry
//! 16, and of both a half knows no more than a transport has to.
//!
//! Section names in the comments are those of the NVM Express TCP Transport Specification 1.1 ("TCP") and of the NVM
//! Express Base Specification 2.1 ("Base").

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod client;
pub mod digest;
pub mod error;
pub mod fabrics;
pub mod initiator;
pub mod keep_alive;
pub mod nvm;

pub mod pdu;
mod receiver;
pub mod sgl;
pub mod target;

pub use client::{Client, ClientError};
pub use digest::DataDigest;
pub use error::{FatalError, FatalErrorStatus, Termination};

pub use initiator::{Initiator, InitiatorConfig};
pub use target::{Target, TargetConfig};

/// Bytes of a submission queue entry (Base, "Submission Queue Entry").
pub const SUBMISSION_BYTES: usize = 64;

/// Bytes of a completion queue entry (Base, "Completion Queue Entry").
pub const COMPLETION_BYTES: usize = 16;
