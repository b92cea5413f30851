//! Files of a drive, whichever has them: on tables or on zones (`host/files`), of an ALFS, or of a drive that a server has open.
//!
//! | file | noun |
//! |---|---|
//! | [`volume`] | files of a drive that is here, or served |
//! | [`alfs`] | files of an ALFS: the same functions over a file system |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod alfs;
pub mod volume;

pub use alfs::{AlfsFileStatistics, AlfsFiles, AlfsReader, AlfsSync, AlfsWriter};
pub use volume::{Volume, VolumeReader, VolumeSync, VolumeWriter};
