//! OX-ZNS: zones that are written in order and reset as a whole.
//!
//! A zone is a chunk on each of k parallel units, which are written side by side; k is the width of all zones of a drive. There is
//! no map of blocks and nothing is ever collected: where a block is follows from its number ([`layout`]), and what the host
//! resets is erased. So the flash is written once for each block of the host, but for what flushes save.
//!
//! ```text
//!   zone 0 [ ██████████████████ full ]      zone 1 [ ██████▒▒  ] closed      zone 2 [            ] empty, without chunks
//!            chunk  chunk  chunk  chunk                     │
//!                                                           └ ▒ not a whole write unit: in memory, and after a flush in the
//!                                                               area; the chunk gets it later
//! ```
//!
//! The rest of the drive is the block FTL as it is: it keeps the *area*, a few logical blocks that only the drive sees, with a
//! record of each zone ([`record`]) and the tails of flushes (`flushing`). Its transactions, log and checkpoints make them survive
//! power cuts; zones are its [tenant](openftl_parts::tenant), and their wear is shared.
//!
//! # The life of a zone, and what a power cut after each step leaves
//! 1. **Empty**: it has no chunks.
//! 2. **Written**: a column takes the least worn chunk of a parallel unit when its first unit is full. *What was not flushed may be
//!    missing, as a suffix of the zone.*
//! 3. **Flushed**: whole units are on media, the rest is in the area, and records name the chunks. *All of it is there.*
//! 4. **Full**, or **finished**: what is left of a unit is padded, where no host sees it. Columns without a block never had a chunk.
//! 5. **Reset**: it is empty at once; its chunks are erased when the record that says so is durable. *Undone or done, as a whole.*
//!
//! # What fails
//! A chunk that cannot be programmed any more, or in which a power cut has left something behind the last good block, is replaced: its
//! good blocks are copied to another one, and the host notices nothing. Where there is no other the zone is read only; and where a block is lost of a
//! unit that a power cut has left in part, because elsewhere a unit is written as a whole.
//!
//! A drive that wears out is read-only: what was flushed is there, and what was not can be read until the drive is closed.
//!
//! # What weakens
//! What the device reads with much correction only moves to another chunk before it is lost (`refreshing`), and the host notices nothing,
//! either. Where there is no spare chunk, or a block is lost already, the drive recommends to finish the zone, or to reset it
//! ([`Zone::is_weak`]).
//!
//! The drive never finishes a zone by itself, so no zone says that it did (ZFC).
//!
//! # What is written in any order
//! A drive can be made with *windows* (ZRWA, `window`): the host opens an empty zone with one, and writes the blocks behind the write pointer in
//! any order, and over again, in memory. What it writes behind the window moves the write pointer, as if the first blocks had been appended.
//!
//! | file | noun |
//! |---|---|
//! | [`request`] | what a host may ask |
//! | [`drive`] | the drive |
//! | [`state`] | the states of a zone |
//! | [`board`] | the states of all zones, and their limits |
//! | [`error`] | why it may not |
//! | [`layout`] | where everything is |
//! | [`face`] | what hosts call them |
//! | [`sizing`] | how many zones a device has, and how large one has to be |
//! | [`record`] | what is on media of a zone beside its blocks |
//! | `zones` | all zones: their chunks, and what is on its way |
//! | `places` | where their columns are |
//! | `writer` | what there is of a zone while the medium does not have all of it |
//! | `columns` | some columns of a zone, a bit each |
//! | `window` | what the host writes in any order |
//! | `committing` | what is committed of it |
//! | `turns` | what its columns do when something has happened |
//! | `writing` | units on their way to the medium |
//! | `refresh` | what is weak and waits |
//! | `refreshing` | what is weak, on its way to another chunk |
//! | `flushing` | what has to be durable and is no whole unit |
//! | `room` | room for zones |
//! | `finding` | what is found of zones when a drive is opened |
//! | `ftl` | the drive as one of many: made, opened, verified, stopped |
//! | `checking` | verifying all of it |
//! | `tenancy` | what the block FTL asks of zones, and tells them |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod area;
pub mod board;
mod checking;
mod columns;
mod committing;
pub mod drive;
pub mod error;
pub mod face;
mod finding;
mod flushing;
mod ftl;
pub mod layout;
mod loading;
mod places;
pub mod record;
mod refresh;
mod refreshing;
pub mod request;
mod room;
pub mod sizing;
pub mod state;
mod tenancy;
mod turns;
mod window;
mod writer;
mod writing;
mod zones;

pub use board::{ACTIVE_MAX, AskedLimits, Board, Limits, Zone};
pub use drive::ZoneFtl;
pub use error::ZoneError;
pub use face::Face;
pub use layout::Layout;
pub use openftl_blocks::Ftl;
pub use request::{ZoneDone, ZoneRequest};
pub use sizing::ZoneConfig;
pub use state::{Action, ZoneState};
pub use zones::ZoneStatistics;
