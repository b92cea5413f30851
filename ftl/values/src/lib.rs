//! A key-value drive: keys of 1 to 16 bytes, and values of any size, over a [store of pages](openftl_pages).

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod error;
pub mod key;
pub mod request;

pub use error::ValueError;
pub use key::{KEY_BYTES_MAX, Key};
pub use openftl_blocks::Ftl;
pub use request::{Condition, Facts, TAGS, Value, ValueDone, ValueInfo, ValueRequest, ValueTarget};
