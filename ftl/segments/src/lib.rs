//! AFTL: append-only segments under a block interface, for hosts that write logs themselves (Application-Managed Flash).
//!
//! A segment is a chunk on each of k parallel units, and has an address range of its own. The host reads, writes each segment from its
//! first block to its last one, and trims it as a whole when nothing in it is of use any more. Everything else of flash management is the
//! host's; the device keeps a map of segments, levels wear and replaces what goes bad.
//!
//! ```text
//!   logical blocks   [ segment 0                 ][ segment 1                 ][ segment 2                 ] …
//!                      ████████████████ full        ██████████ ▲                  empty
//!                      overwrite: refused                      └ write pointer: the next write begins here
//!
//!   the same flash as zones:  zone 0, zone 1, …   each with the capacity of a segment, a power of two apart
//! ```
//!
//! There is little code here, and that is the point: a segment is a zone whose address range has no gap behind it. [`drive`] names blocks as
//! segments have them, says why a write is out of order, and counts trims ([`trims`]). Mapping, flushes, power cuts and failures are those
//! of [`openftl_zones`], whose promises hold word for word; a host of zones finds the
//! same drive behind [`SegmentFtl::into_zones`], with reports and appends.
//!
//! # What AMF I/O is here
//! | request | rule | refused with |
//! |---|---|---|
//! | read | any blocks; those that are not written read as zeroes | out of range |
//! | write | at the write pointer, within one segment | overwrite, gap (both say the write pointer), crossing, too many open |
//! | trim | a segment is empty as soon as all of it is trimmed, by one request or block by block; one whose medium has failed is gone | out of range |
//! | flush | as everywhere | |
//!
//! What is trimmed of a segment that is not empty yet reads as before; the count of such blocks is in memory, and begins anew when the drive
//! is opened.
//!
//! | file | noun |
//! |---|---|
//! | [`drive`] | the drive |
//! | [`as_blocks`] | a drive of blocks, or segments that are seen as one |
//! | [`memory`] | such a drive without flash, for tests of hosts |
//! | [`trims`] | what is trimmed of segments that are not empty yet |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod as_blocks;
pub mod drive;
pub mod memory;
pub mod trims;

pub use as_blocks::{AsBlocks, BlockDrive};
pub use drive::SegmentFtl;
pub use memory::MemorySegments;
pub use trims::Trims;
