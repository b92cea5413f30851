//! A drive of segments, or of zones, that is kept in a file, for a file system that is on it.

use crate::failure::Failure;
use crate::flash::{self, HOST_FRAMES};
use openftl_core::{Clock, FrameForm};
use openftl_media::{EmulatedDevice, Timing as MediaTiming};
use openftl_parts::{Access, Config, OpenError};
use openftl_segments::SegmentFtl;
use openftl_zones::{AskedLimits, Ftl, ZoneFtl};
use std::path::Path;

/// A drive of segments on flash of this machine. Zones are segments, too, whatever the drive was made as.
pub type SegmentDrive = SegmentFtl<Box<ZoneFtl<EmulatedDevice>>>;

/// What to do without a drive of segments.
const MAKE_ONE: &str = "make a drive of segments: openftl create DISK --drive drives/amf.toml";

/// Opens the drive of segments, or of zones, that is kept in `disk`, whatever it was described as, on flash that takes no time.
///
/// # Errors
/// If it is in use, of another kind, or cannot be trusted.
pub fn open_stored(disk: &Path, access: Access, clock: &mut dyn Clock) -> Result<SegmentDrive, Failure> {
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    if !disk.exists() {
        return Err(Failure::bad_input(format_args!("{} is not there", disk.display())).fix(MAKE_ONE));
    }
    let device = flash::open(disk, access, MediaTiming::Instant).map_err(|error| Failure::of_device(&error))?;
    let drive = SegmentFtl::open_with(device, config, AskedLimits::default(), access, clock);
    drive.map_err(|error| {
        let failure = match error {
            OpenError::OtherKind { .. } => Failure::bad_input(error).fix(MAKE_ONE),
            error => Failure::failed(error)
                .fix(format_args!("`openftl check {}` says what is wrong with the drive", disk.display())),
        };
        failure.about(disk.display())
    })
}
