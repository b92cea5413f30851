//! OX-ELEOS: a store of pages of any size, written in batches that are all or nothing.
//!
//! A page has a number (LPID, 64 bits) and 1 byte to 1 MiB. Hosts do not write blocks: they gather changes of pages in a *batch*, and commit it.
//! The drive packs pages one behind the other, knows where each is, and cleans what is left of old ones.
//!
//! ```text
//!   session a   batch 1 ─ batch 2 ─ ...      stage ──▶ units of flash ──▶ commit ──▶ map
//!   session b   batch 1 ─ ...                (while it grows)             │
//!                                                                         └──▶ log ──▶ leaves of the map
//! ```
//!
//! The rest of the drive is the block FTL as it is: it keeps the *area* ([`layout`]), blocks that no host sees, with the leaves of the map. Its own
//! log and checkpoints make them survive power cuts; pages are its [tenant](openftl_parts::tenant), and their wear is shared. The log of pages is in
//! chunks beside those of pages, so a durable batch costs a unit of it, and nothing of the block FTL.
//!
//! # The life of a page, and what a power cut after each step leaves
//! 1. **Staged**: its bytes are in frames, or on media already; no read sees it. *Nothing; its room is given back.*
//! 2. **Committed**: the map says where it is, with all others of its batch. *All of the batch or nothing, and each session has a prefix of its
//!    batches.*
//! 3. **Durable**: the log says so, for good. *It is there*, unless the medium loses that part of the log ([`log`] says what is noticed then).
//! 4. **Moved**: cleaning has put it elsewhere. The old place is erased when the log says so, for good. *It is there, at one place or the other.*
//! 5. **Deleted**, or put again: as 2 and 3.
//!
//! # What a durable commit costs
//! Where the device keeps nothing through a power cut, a batch that fills units is durable when they are programmed and the log names them. What is
//! shorter than half a unit goes to the log with its bytes, and to its unit when that is full (`logging`).
//!
//! | file | noun |
//! |---|---|
//! | [`request`] | what a host may ask |
//! | [`blocking`] | a store as its users call it, whose calls wait |
//! | [`drive`] | the drive |
//! | [`error`] | why it may not |
//! | [`place`] | where a page is, and its header |
//! | [`leaf`] | a piece of the map |
//! | [`index`] | the map |
//! | [`looked`] | what it says when it is asked |
//! | `whole_index`, `demand_index` | the map in memory, and on media |
//! | `leaf_reads` | leaves of it that are read when they are asked for |
//! | [`session`] | sessions, and batches that are not committed |
//! | [`layout`] | the area |
//! | [`record`] | what the log holds |
//! | [`log`] | the log |
//! | [`queue`] | what has changed and is not in the log |
//! | [`open_chunk`] | a chunk that is written |
//! | `pages` | all pages, and their chunks |
//! | `committing` | how batches end |
//! | `placing` | pages on their way to the medium |
//! | `reads`, `reading` | pages that are read |
//! | `victim`, `cleaning` | which chunk is cleaned, and how |
//! | `logging` | from the queue to the log |
//! | `checkpointing` | from the log to the leaves |
//! | `area` | the area as it is read when a drive is opened |
//! | `finding`, `replaying` | what is found of pages when a drive is opened, and of the log |
//! | `seen_log` | what else is seen of the log, and what that says of a group that is missing |
//! | `repairing` | the index, rebuilt from the headers of pages |
//! | `last_word` | which of log and media is right about a page then |
//! | `facts` | what an FTL composed of it may know without reading |
//! | `stretches` | groups that follow each other, as a repair finds them |
//! | `sizing` | how many bytes there is room for |
//! | `ftl` | the drive as one of many: made, opened, verified, stopped |
//! | `checking` | verifying all of it |
//! | `tenancy` | what the block FTL asks of pages, and tells them |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod area;
pub mod blocking;
mod checking;
mod checkpointing;
mod cleaning;
mod committing;
mod demand_index;
pub mod drive;
pub mod error;
mod facts;
mod finding;
mod ftl;
mod heat;
pub mod index;
mod last_word;
pub mod layout;
pub mod leaf;
mod leaf_reads;
pub mod log;
mod logging;
pub mod looked;
pub mod open_chunk;
mod pages;
pub mod place;
mod placing;
pub mod queue;
mod reading;
mod reads;
pub mod record;
mod repairing;
mod replaying;
pub mod request;
mod seen_log;
pub mod session;
mod sizing;
mod stretches;
mod tenancy;
mod victim;
mod whole_index;

pub use blocking::{BlockingStore, StoreFacts, StoreFailure};
pub use drive::{PageFtl, TAGS};
pub use error::{StoreError, WINDOW};
pub use facts::PageContents;
pub use ftl::Purpose;
pub use openftl_blocks::Ftl;
pub use pages::PageStatistics;
pub use place::{GRAIN_BYTES, HEADER_BYTES, PAGE_BYTES_MAX, grains_of};
pub use request::{Change, ListBreak, PageFacts, Session, SessionId, StoreDone, StoreRequest, StoreTarget};
pub use sizing::chunks_per_pu;
pub use victim::cleans_by;
