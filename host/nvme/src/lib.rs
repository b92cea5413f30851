//! NVMe without a transport: the controllers of a target, from bits to I/O. No socket, no clock, no chance.
//!
//! Read in this order:
//!
//! | module | noun |
//! |---|---|
//! | [`wire`] | the bits: entries, codes, data structures |
//! | [`command`] | what 64 bytes ask for, or the exact status of what is wrong with them |
//! | [`queue`] | what is under way on one queue |
//! | [`namespace`] | what a host sees as one disk |
//! | [`hints`] | what writes to it may say of the lifetime of their data |
//! | [`reservation`] | which hosts may read and write it |
//! | [`data_placement`] | placement identifiers, and what has happened to them |
//! | [`controller`] | what one host has made of a subsystem |
//! | [`subsystem`] | what controllers share |
//! | [`discovery`] | where hosts reach what is served |
//! | [`target`] | all that is served, and the way in for a transport |
//! | [`drives`], [`health`] | what a controller asks of the drives behind it |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod command;
pub mod controller;
pub mod data_placement;
pub mod discovery;
pub mod drives;
pub mod health;
pub mod hints;
pub mod namespace;
pub mod queue;
pub mod reservation;
mod reserved;
mod streams;
pub mod subsystem;
pub mod target;
pub mod wire;

pub use command::{Answer, Half, Io, IoCommand, Refusal};
pub use controller::{Authentication, Effect, Outcome};
pub use discovery::{Port, SecureChannel};
pub use drives::{Drives, NamespaceName, PlacementCounts};
pub use health::Health;
pub use hints::Hints;
pub use namespace::{BlockFormat, Namespace, NamespaceKind, PageShape, SegmentShape, Span, ValueShape, ZonedShape};
pub use queue::{CommandId, ControllerName, Queue, QueueError};
pub use reservation::{HostId, Reservation, ReservationType};
pub use subsystem::{HostsAllowed, Nqn, SubsystemConfig, SubsystemError};
pub use target::{Connection, Target};
pub use wire::{CompletionEntry, Status, SubmissionEntry};
