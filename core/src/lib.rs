//! The words that every layer of OpenFTL shares.
//!
//! Nothing here performs I/O, reads a clock or draws randomness.
//!
//! | module | noun |
//! |---|---|
//! | [`geometry`] | the shape of an Open-Channel device |
//! | [`address`] | where a logical block of the device lies: [`Ppa`] and [`ChunkId`] |
//! | [`time`] | [`Time`] and [`Nanos`], always handed in; the [`Clock`] that hands them |
//! | [`frame`] | the memory that payload travels in between host, FTL and media |
//! | [`page`] | 4096 bytes of payload, held by frames and stores together |
//! | [`memory`] | memory from the system in large pieces |
//! | [`stamp`] | eight bytes that stand for a whole block |
//! | [`checksum`] | CRC32C |
//! | [`trace`] | a hash over all that happened |
//! | [`units`] | sizes, percentages and spans of time as people write them |
//! | [`word`] | words that people choose from |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod address;
pub mod checksum;
pub mod frame;
pub mod geometry;
pub mod memory;
pub mod page;
pub mod stamp;
pub mod time;
pub mod trace;
pub mod units;
pub mod word;

pub use address::{Address, AddressFormat, ChunkId, ChunkName, ChunkNameError, Ppa, PuId};
pub use frame::{Frame, FrameForm, Frames, Payload, PayloadMut};
pub use geometry::{Geometry, GeometryError};
pub use stamp::Stamp;
pub use time::{Clock, Nanos, Time, VirtualClock};
pub use trace::TraceHash;
pub use word::UnknownWord;

/// Bytes in a logical block, the unit of read of the device and of the map (seed: OX-Block maps 4 KiB pages).
pub const BLOCK_BYTES: usize = 4096;

/// The smallest out-of-band area that an FTL can live with, in bytes per block.
pub const OOB_BYTES_MIN: usize = 16;

/// The most logical blocks that one vector command names (Open-Channel 2.0: NLB is six bits, 0-based).
pub const VECTOR_BLOCKS_MAX: usize = 64;
