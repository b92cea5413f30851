//! ALFS as a file system under test: each mount verifies all of it.

use crate::file_crash_points::{Mounts, SegmentDrive};
use openftl_alfs::{FileTime, Options, Volume};
use openftl_core::{Clock, Nanos};

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
pub struct Alfs {
    /// How it is mounted.
    pub options: Options,
}

impl Alfs {
    /// One that syncs by itself after so long.
    #[must_use]
    pub fn syncing_after(span: Nanos) -> Alfs {
        Alfs { options: Options { sync_after: span, ..Options::default() } }
    }
}

fn verified(mut volume: Volume<SegmentDrive>, clock: &mut dyn Clock) -> Result<Volume<SegmentDrive>, String> {
    let report = volume.check(clock, &mut |_, _| ()).map_err(|error| error.to_string())?;
    if report.is_sound() { Ok(volume) } else { Err(format!("it is not sound: {:#?}", report.findings)) }
}

impl Mounts for Alfs {
    type Volume = Volume<SegmentDrive>;

    fn make(&self, drive: SegmentDrive, clock: &mut dyn Clock) -> Result<Self::Volume, String> {
        Volume::format(drive, 0xA1F5, (0, 0), FileTime::default(), clock).map_err(|error| error.to_string())
    }

    fn mount(&self, drive: SegmentDrive, clock: &mut dyn Clock) -> Result<Self::Volume, String> {
        let volume = Volume::mount(drive, self.options, clock).map_err(|(_, error)| error.to_string())?;
        verified(volume, clock)
    }

    fn unmount(&self, volume: Self::Volume, clock: &mut dyn Clock) -> Result<SegmentDrive, String> {
        let volume = verified(volume, clock)?;
        volume.unmount(clock).map_err(|(_, error)| error.to_string())
    }
}
