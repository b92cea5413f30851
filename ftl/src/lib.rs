//! Layer 2: how logical becomes physical.
//!
//! Reusable parts, one noun per file, and the FTLs assembled from them. No system call, no thread, no clock, no
//! randomness: time and chance arrive as arguments.
//!
//! | part | noun |
//! |---|---|
//! | [`words`], [`placement_name`] | words that all parts share: they import no part |
//! | [`mapping`] | where each logical block is |
//! | [`write_buffer`] | what the host wrote and the medium does not have yet |
//! | [`transactions`] | write, trim, flush: whole, in order, durable |
//! | [`reading`] | read |
//! | [`provisioning`], `frontiers` | which chunk is opened next, and for whom |
//! | [`placement`], [`objects`], [`lifetimes`] | what shares chunks because it will end together |
//! | `flash` | the medium as parts share it: units, reads, resets, bad chunks, room; what goes to the device |
//! | `tenant` | whoever has chunks of a drive beside its blocks |
//! | [`units`] | write units under way, and open chunks |
//! | [`chunk_table`] | what is known of each chunk |
//! | [`garbage_collection`], [`victim`], [`closing_order`], [`throttle`] | making room |
//! | [`refresh`], [`scrub`], [`wear_levelling`] | care: weak data move, all data are read now and then, wear is spread |
//! | `journal` | what survives a power cut beside data: what follows, as one part |
//! | [`log`], [`log_block`], [`checkpoint`], [`superblock`], [`superblock_writer`] | what is on media beside data |
//! | [`oob`] | what each block says of itself |
//! | `assembly`, `chunks`, `survey`, `found_checkpoint`, `found_log`, `recovery`, `closing` | making, opening and closing a drive |
//! | [`recovery_report`], [`open_error`] | how a drive was opened, or why it was not |
//! | [`repair`] | rebuilding the map from what the blocks say of themselves |
//! | [`scan`], [`check`] | verifying all of it |
//! | [`statistics`], [`latency`], [`encounters`], [`life`] | one accounting |
//!
//! | FTL | is |
//! |---|---|
//! | [`block`] | OX-Block: 4 KiB blocks, transactions up to 1 MiB |
//! | [`tables`] | LightLSM: tables of whole chunks beside a log area |
//!
//! But for methods of `BlockFtl`, imports go in one direction.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod assembly;
pub mod block;
mod canary;
pub mod check;
pub mod checkpoint;
pub mod chunk_table;
mod chunks;
mod closing;
pub mod closing_order;
pub mod config;
pub mod encounters;
mod flash;
mod found_checkpoint;
mod found_log;
mod frontiers;
pub mod garbage_collection;
pub mod handle_events;
mod journal;
pub mod latency;
pub mod life;
pub mod lifetimes;
pub mod log;
pub mod log_block;
pub mod mapping;
pub mod objects;
pub mod oob;
pub mod open_error;
pub mod owners;
pub mod placement;
pub mod placement_name;
pub mod plan;
pub mod provisioning;
pub mod reading;
mod recovery;
pub mod recovery_report;
pub mod refresh;
mod relief;
pub mod repair;
pub mod scan;
pub mod scrub;
pub mod seals;
pub mod statistics;
pub mod superblock;
pub mod superblock_writer;
mod survey;
pub mod tables;
pub mod target;
mod tenant;
pub mod throttle;
pub mod transactions;
pub mod trims;
pub mod units;
pub mod victim;
pub mod wear_levelling;
pub mod words;
pub mod write_buffer;

pub use block::BlockFtl;
#[cfg(feature = "canary")]
pub use canary::Canary;
pub use check::{CheckReport, DamagedTable, LostBlock};
pub use config::{CollectionScope, Config, RelocateBy};
pub use encounters::Encounters;
pub use latency::Latencies;
pub use life::Life;
pub use open_error::OpenError;
pub use placement_name::PlacementName;
pub use plan::{Plan, PlanError, chunks_per_pu};
pub use recovery_report::RecoveryReport;
pub use repair::RepairReport;
pub use statistics::{GroupStatistics, Moved, PlacementStatistics, ScrubStatistics, Statistics};
pub use superblock::Superblock;
pub use target::{
    BlockTarget, Deed, Done, Durability, Extent, HandleEvent, HandleSet, HandleWatch, IoError, ObjectError,
    PlacementFacts, Request,
};
pub use victim::{PolicyError, VictimPolicy};
pub use words::{Access, Care, Handle, Purpose, ReadOnlyReason};
