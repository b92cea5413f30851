//! OX-Block: a block device of 4 KiB blocks with transactions of up to 1 MiB, assembled from the parts.
//!
//! | file | noun |
//! |---|---|
//! | [`block_ftl`] | the drive: its state, and who hears of what the device reports |
//! | `settling` | what became of units |
//! | [`transactions`], [`trims`] | write, trim, flush: whole, in order, durable |
//! | [`reading`] | read |
//! | [`write_buffer`] | what the host wrote and the medium does not have yet |
//! | [`placement`], [`objects`], [`handle_events`], `frontiers` | what shares chunks because it will end together |
//! | [`garbage_collection`], `relief` | making room |
//! | `map_pages` | pages of a map on media, read and merged |
//! | [`refresh`], [`scrub`], [`wear_levelling`] | care: weak data move, all data are read now and then, wear is spread |
//! | `assembly`, `recovery`, `closing` | making, opening and closing a drive |
//! | [`check`] | verifying all of it |
//! | [`ftl`] | what drives of all kinds have in common |
//! | [`kind`] | which FTL a drive was formatted for |
//!
//! A tenant ([`openftl_parts::tenant`]) may have chunks of the same flash: the functions whose names end in `_beside`
//! take it as an argument.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod area;
mod assembly;
pub mod block_ftl;
pub mod check;
mod closing;
mod frontiers;
pub mod ftl;
pub mod garbage_collection;
#[cfg(test)]
mod hand_over_tests;
pub mod handle_events;
pub mod kind;
mod map_pages;
pub mod objects;
pub mod placement;
pub mod reading;
mod recovery;
pub mod refresh;
mod relief;
pub mod scrub;
mod settling;
pub mod transactions;
pub mod trims;
pub mod wear_levelling;
pub mod write_buffer;

pub use block_ftl::BlockFtl;
pub use check::{CheckReport, DamagedTable, LostBlock};
pub use ftl::Ftl;
pub use kind::DriveKind;
pub use recovery::kind_on;
