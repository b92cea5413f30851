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
//! A command on its way there and back, without the Connect that comes first:
//!
//! ```
//! use openftl_nvme_tcp::{Initiator, InitiatorConfig, Target, TargetConfig, initiator, nvm, target};
//! use openftl_nvme_tcp::initiator::Transfer;
//!
//! let (mut to_controller, mut to_host) = (Vec::new(), Vec::new());
//! let mut host = Initiator::new(InitiatorConfig::default(), &mut to_controller);
//! let mut controller = Target::new(TargetConfig::default());
//!
//! // ICReq and ICResp.
//! controller.next(&to_controller, &mut to_host);
//! let (consumed, event) = host.next(&to_host, &mut to_controller);
//! assert_eq!(event, initiator::Event::Initialised);
//!
//! // A Flush in its capsule.
//! to_controller.clear();
//! let (flush, _) = host.submit(&nvm::flush(1), Transfer::None, &mut to_controller).expect("the queue is empty");
//! let (_, event) = controller.next(&to_controller, &mut to_host);
//! let target::Event::Command { slot, entry, .. } = event else { panic!("{event:?}") };
//!
//! // Its completion: zeroes are success, the identifier is the command's.
//! let mut completion = [0; 16];
//! completion[12..14].copy_from_slice(&entry[2..4]);
//! controller.complete(slot, &completion, &mut to_host);
//! let (_, event) = host.next(&to_host[consumed..], &mut to_controller);
//! assert!(matches!(event, initiator::Event::Completed { command, .. } if command == flush));
//! ```
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
