//! A drive of segments of another process or machine, reached over NVMe/TCP: [`RemoteSegments`], a
//! [`SegmentTarget`](openftl_parts::target::SegmentTarget) as the drive of this process is.
//!
//! ```text
//!   file system ── SegmentTarget ──▶ RemoteSegments ── NVMe/TCP ──▶ a zoned namespace: each zone is a segment
//!                                      │ admin queue: the shape of the drive; then it only shows that the host is there
//!                                      └ I/O queue:   reads, writes, resets and flushes, many of them under way together
//! ```
//!
//! [`DriveUri`](openftl_nvme_media::uri::DriveUri) says where a drive is: `nvme-tcp://127.0.0.1:4420`. A drive of segments is served as zones with
//! `interface = "zones"`; a namespace of blocks does not say how far its segments are written, so it is refused.
//!
//! # Order
//! A drive of this process has done a write when it has taken it. Here a write is under way for a while, and this is what [`RemoteSegments`] adds:
//!
//! - Writes and trims are sent in the order of their submission, and the write pointer that hosts are told is that of all of them.
//! - A read of blocks that are being written waits until they are; others pass it.
//! - A flush is sent when all that was written and trimmed before it has ended.
//!
//! # Segments that fail
//! If the drive refuses a write because the medium of its zone has failed, the data stay in this process: they can be read until the segment is trimmed,
//! and flushes are refused with [`AppendError::SegmentReadOnly`](openftl_parts::target::AppendError::SegmentReadOnly), as those of a drive of this
//! process are. After such a flush the states of all zones are asked for; if none has failed, nothing explains it, and nothing more is changed. A zone
//! that cannot be reset, because it has failed unnoticed, is taken offline in place of the reset. How far a zone is written that was
//! read only before the connection was made only reports of this project's servers say; on a drive of others it counts as written to its end, so after a power
//! cut of such a drive a file system may take blocks for written that never came to it.
//!
//! # When the connection is cut
//! Reads fail with [`IoError::Unrecovered`](openftl_parts::target::IoError::Unrecovered) and all else with
//! [`IoError::ReadOnly`](openftl_parts::target::IoError::ReadOnly), those under way and all later ones; [`RemoteSegments::trouble`] says why. What was flushed
//! is there; of the rest each segment has a prefix, as after a power cut.
//!
//! # When the drive is not what it was
//! If the drive refuses what it has no reason to, as it does a write to a zone that another host has written to meanwhile, nothing more is sent that changes
//! it: what waits and all that comes fails with [`IoError::ReadOnly`](openftl_parts::target::IoError::ReadOnly), flushes too. It is the same if a read is
//! refused for another reason than that the medium has lost its blocks: they may be there. Reads go on, but not those of a zone's blocks from the first one on
//! that it has not taken: nobody knows what is there.
//!
//! # One host
//! Who writes claims the drive ([`Claim`]): its server keeps the right to write from all others by a reservation, and refuses what comes late from
//! a host that has had it before. Without a claim, or where the server has no reservations, nobody but the user prevents that two hosts write to one drive, and then what was flushed is
//! lost: each resets zones that are of no use to it and have the other's data by now, and a reset has no condition by which the drive could refuse it. Writes are refused where they are not at the write pointer of their zone, which may be too late.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod claim;
mod command;
mod drive;
mod zone;

pub use claim::Claim;
pub use command::COMMANDS_MAX;
pub use drive::RemoteSegments;
pub use openftl_nvme_media::connect::ConnectError;
