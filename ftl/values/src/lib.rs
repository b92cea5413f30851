//! A key-value drive: keys of 1 to 16 bytes, and values of any size, over a [store of pages](openftl_pages).
//!
//! ```text
//!   Store, Retrieve, Exist, Delete            List
//!        │ number = seeded hash of the key      │ runs and changes, merged
//!        ▼                                      ▼
//!   page of the value                     directory: pages of keys in their order
//!        └──────────── one store of pages ──────┘
//!                      log · map · cleaning · recovery
//! ```
//!
//! There is no log, map, cleaning or recovery here: a value is a page, its number is a hash of its key, and the map of pages is the index. Numbers
//! are drawn from 128 to 256 times as many as there may be keys: near enough to each other for ten to twelve bytes a key in memory, and so far
//! apart that of 128 keys less than one shares its number.
//!
//! # A number has
//! * **nothing**: no key with it is there. That is known without a read.
//! * **the page of a key**: its value and behind it a record with the key, which is compared. Another key with that number is told apart by it.
//! * **a list** of keys, once a second key comes: each value is in a page of its own then, and the list says which.
//!
//! # Keys in order
//! The same store has the directory, in pages of other numbers. A Store of a new key and a Delete put a page of one grain beside theirs, in the same
//! batch: *key added* or *key removed*. These changes are in memory, too, in their order. When there are many, a merge makes a *run* of them: pages
//! with some thousand keys each, and their first keys in memory. Runs of similar size are merged with them. A Store of a key that exists changes no
//! directory. [`ValueRequest::List`] goes through runs and changes together; it remembers nothing between two requests.
//!
//! # What a request costs
//! | request | reads | batch |
//! |---|---|---|
//! | Store of a new key | none; of one key in 128 one or more, to tell it from the key that has its number | value, change |
//! | Store of a key that is there | the record of the key | value |
//! | Retrieve | the value; one more if it is read in part, or shares its number | |
//! | Exist | the record of the key | |
//! | Delete | the record of the key | the value goes, change |
//! | merge of `n` changes | runs that are not much larger | a run, the manifest; the changes go |
//!
//! # Promises
//! Batches of Stores and Deletes follow each other in one session of the store below. So a power cut leaves the first of them, in the order in which
//! they took effect, each as a whole and with its change of the directory. Where all are volatile that is the order of their acknowledgement; a
//! durable one is acknowledged later than it takes effect. A merge is one batch of its own session, written while it grows and committed when it is
//! complete.
//!
//! Room for the directory, the runs of a merge and the changes of Deletes is kept from values, in bytes and in the map. So a full drive deletes,
//! and stores what is not longer under the same key.
//!
//! A page that the medium has lost takes the knowledge of its key with it: a Retrieve of any key with that number is
//! [`ValueError::Unrecovered`]. A Store or a Delete takes its place, as if it had been of the same key.
//!
//! | file | noun |
//! |---|---|
//! | [`request`] | what a host may ask |
//! | [`key`] | a key |
//! | [`error`] | why a request is refused |
//! | [`drive`] | the drive |
//! | [`config`] | what a new drive is to be like |
//! | `ids` | numbers of pages |
//! | `record` | what stands behind a value, and lists |
//! | `change`, `run`, `manifest` | the directory on media |
//! | `directory` | the directory in memory |
//! | `asked` | requests under way |
//! | `turns` | whose turn it is at a number |
//! | `looking_up` | from a key to its page |
//! | `writing` | from a Store or a Delete to a batch |
//! | `listing` | lists |
//! | `merging` | merges of the directory |
//! | `finding` | what is found when a drive is opened |
//! | `repairing` | the directory, rebuilt from the keys behind values |
//! | `found_keys` | what the pages of values say of keys then |
//! | `ftl` | the drive as one of many: made, opened, verified, stopped |
//! | [`payload`] | payload in frames |
//! | `checking` | verifying all of it |

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
mod found_keys;
mod ftl;
mod ids;
pub mod key;
mod listing;
mod looking_up;
mod manifest;
mod merging;
pub mod payload;
mod record;
mod repairing;
pub mod request;
mod run;
mod turns;
mod writing;

pub use config::ValueConfig;
pub use drive::{ValueFtl, ValueStatistics};
pub use error::ValueError;
pub use key::{KEY_BYTES_MAX, Key};
pub use listing::keys_of_list;
pub use openftl_blocks::Ftl;
pub use record::RECORD_BYTES;
pub use request::{Condition, Facts, TAGS, Value, ValueDone, ValueInfo, ValueRequest, ValueTarget};
