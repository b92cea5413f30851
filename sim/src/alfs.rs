//! ALFS as a file system under test: each mount verifies all of it.

use crate::file_crash_points::{Mounts, SegmentDrive};
use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{FileTime, MountError, Options, Volume};
use openftl_core::{Clock, Nanos};
use openftl_parts::target::{BlockTarget, Durability, Request, Target};

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
pub struct Alfs {
    /// How it is mounted.
    pub options: Options,
    /// A volume whose records are lost is made anew when it is mounted.
    pub rebuilds: bool,
}

impl Alfs {
    /// One that syncs by itself after so long.
    #[must_use]
    pub fn syncing_after(span: Nanos) -> Alfs {
        Alfs { options: Options { sync_after: span, ..Options::default() }, rebuilds: false }
    }

    /// One that mounts read-only.
    #[must_use]
    pub fn for_readers() -> Alfs {
        Alfs { options: Options { is_read_only: true, ..Options::default() }, rebuilds: false }
    }
}

/// Trims both anchors: all records are gone.
///
/// # Errors
/// If the drive does not.
pub fn lose_records(drive: &mut SegmentDrive, clock: &mut dyn Clock) -> Result<(), String> {
    let blocks = drive.segment_blocks().expect("it is a drive of segments");
    for first in (0..u64::from(ANCHORS)).map(|anchor| anchor * blocks) {
        let trim = Request::Trim { first, blocks, durability: Durability::Durable };
        drive.submit(clock.now(), 0, trim).map_err(|error| error.to_string())?;
        let mut done = Vec::new();
        while done.is_empty() {
            drive.poll(clock.now(), &mut done);
            match drive.next_due().filter(|_| done.is_empty()) {
                Some(due) => _ = clock.wait_until(due),
                None if done.is_empty() => return Err("a trim does not end".to_owned()),
                None => {}
            }
        }
        done[0].result.map_err(|error| error.to_string())?;
    }
    Ok(())
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
        let volume = match Volume::mount(drive, self.options, clock) {
            Err((drive, MountError::NoRecord(_) | MountError::RecordsGone)) if self.rebuilds => {
                let rebuilt = Volume::rebuild(drive, (0, 0), FileTime::default(), clock, &mut |_, _| ());
                rebuilt.map(|(volume, _)| volume)
            }
            mounted => mounted,
        };
        verified(volume.map_err(|(_, error)| error.to_string())?, clock)
    }

    fn unmount(&self, volume: Self::Volume, clock: &mut dyn Clock) -> Result<SegmentDrive, String> {
        let volume = verified(volume, clock)?;
        volume.unmount(clock).map_err(|(_, error)| error.to_string())
    }
}
