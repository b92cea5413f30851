//! Layer 2, ground floor: the parts that Flash Translation Layers are assembled from.
//!
//! A part knows chunks, units and blocks of the medium. It names no FTL. No system call, no thread, no clock, no
//! randomness: time and chance arrive as arguments.
//!
//! | part | noun |
//! |---|---|
//! | [`words`], [`placement_name`], [`lifetimes`], [`config`] | words and settings that all parts share |
//! | [`target`] | what a host may ask of a drive of blocks, and what it gets |
//! | [`tenant`] | whoever has chunks of a drive beside its blocks |
//! | [`flash`] | the medium as parts share it: units, open chunks, reads, resets, bad chunks, room; what goes to the device |
//! | [`flash::oob`], [`flash::seals`] | what each block says of itself, and what ties it to its place |
//! | [`journal`] | what survives a power cut beside data: log, checkpoint, superblock; what is found of them |
//! | [`map`] | where each logical block is |
//! | [`cleaning`] | victims, and the pace of making room |
//! | [`accounts`] | one accounting: statistics, latencies, encounters, the life of a drive |
//! | [`open_error`] | why a drive was not opened |
//!
//! An FTL is a crate beside this one. Imports go in one direction.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod accounts;
pub mod canary;
pub mod cleaning;
pub mod config;
pub mod flash;
pub mod journal;
pub mod lifetimes;
pub mod map;
pub mod open_error;
pub mod placement_name;
pub mod target;
pub mod tenant;
pub mod words;

pub use accounts::encounters::Encounters;
pub use accounts::latency::Latencies;
pub use accounts::life::Life;
pub use accounts::statistics::{GroupStatistics, Moved, PlacementStatistics, ScrubStatistics, Statistics};
#[cfg(feature = "canary")]
pub use canary::Canary;
pub use cleaning::victim::{PolicyError, VictimPolicy};
pub use config::{CollectionScope, Config, RelocateBy};
pub use flash::plan::{Plan, PlanError, chunks_per_pu};
pub use journal::recovery_report::RecoveryReport;
pub use journal::repair::{IndexRepair, RepairReport};
pub use journal::superblock::Superblock;
pub use open_error::OpenError;
pub use placement_name::PlacementName;
pub use target::{
    BlockTarget, Deed, Done, Durability, Extent, HandleEvent, HandleSet, HandleWatch, IoError, ObjectError,
    PlacementFacts, Request, Target,
};
pub use words::{Access, Care, Handle, Purpose, ReadOnlyReason};
