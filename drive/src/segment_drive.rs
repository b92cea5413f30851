//! A drive of segments that is kept in a file, for a file system that is on it.

use crate::failure::Failure;
use crate::flash::{self, HOST_FRAMES};
use openftl_core::{Clock, FrameForm};
use openftl_media::{EmulatedDevice, Timing as MediaTiming};
use openftl_parts::{Access, Config};
use openftl_segments::SegmentFtl;
use openftl_zones::{AskedLimits, Ftl, ZoneFtl};
use std::path::Path;

/// A drive of segments on flash of this machine.
pub type SegmentDrive = SegmentFtl<Box<ZoneFtl<EmulatedDevice>>>;

/// Opens the drive of segments that is kept in `disk`, whatever it was described as, on flash that takes no time.
///
/// # Errors
/// If it is in use, of another kind, or cannot be trusted.
pub fn open_stored(disk: &Path, access: Access, clock: &mut dyn Clock) -> Result<SegmentDrive, Failure> {
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    let device = flash::open(disk, access, MediaTiming::Instant).map_err(Failure::failed)?;
    let drive = SegmentFtl::open_with(device, config, AskedLimits::default(), access, clock);
    drive.map_err(|error| Failure::failed(error).about(disk.display()))
}
