//! A key-value drive: keys of 1 to 16 bytes, and values of any size, over a [store of pages](openftl_pages).

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod asked;
mod change;
mod checking;
pub mod config;
mod directory;
pub mod drive;
pub mod error;
mod finding;
mod ftl;
mod ids;
pub mod key;
mod listing;
mod looking_up;
mod manifest;
mod merging;
mod record;
pub mod request;
mod run;
mod turns;
mod writing;

pub use config::ValueConfig;
pub use drive::{ValueFtl, ValueStatistics};
pub use error::ValueError;
pub use key::{KEY_BYTES_MAX, Key};
pub use openftl_blocks::Ftl;
pub use record::RECORD_BYTES;
pub use request::{Condition, Facts, TAGS, Value, ValueDone, ValueInfo, ValueRequest, ValueTarget};
