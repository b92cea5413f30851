//! What people write for a drive, and what becomes of it: for the command line tool, for programs that have a drive inside them, and
//! for a fuzzer.
//!
//! | module | noun |
//! |---|---|
//! | [`any_drive`] | a drive of any kind, found by what is on its media |
//! | [`description`] | a drive description: media, FTL and host interface in one TOML file |
//! | [`table_drive`] | a table drive from its description |
//! | [`flash`] | the flash of a table drive or a store of pages, from its description |
//! | [`page_drive`] | a store of pages from its description |
//! | [`page_store`] | the same, open, for any number of threads |
//! | [`value_drive`] | a key-value drive from its description |
//! | [`value_store`] | the same, open: each request is waited for |
//! | [`segment_drive`] | a drive of segments that is kept in a file |
//! | [`new_file`] | a file that is there whole or not at all |
//! | [`small_file`] | a file that is read as a whole, if it is no drive |
//! | [`plugin`] | the plugin that puts files of RocksDB on table drives |
//! | [`failure`] | why something does not work, with its fix |

pub mod any_drive;
pub mod description;
pub mod failure;
pub mod flash;
mod ftl_section;
pub mod new_file;
pub mod page_drive;
pub mod page_store;
pub mod plugin;
pub mod segment_drive;
pub mod small_file;
pub mod table_drive;
pub mod value_drive;
pub mod value_store;
