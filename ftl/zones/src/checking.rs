//! Verifying the zones of a drive: every block below a write pointer is read, and says that it is that block.

use crate::board::Zone;
use crate::drive::ZoneFtl;
use crate::state::ZoneState;
use openftl_blocks::check::{CHECK_TAG, CheckReport};
use openftl_core::{Clock, Frame};
use openftl_parts::flash::Flash;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::IoError;

impl ZoneFtl {
    /// Verifies area and metadata as [`openftl_blocks::BlockFtl::check`] does, and each zone. `progress` is told the blocks done
    /// and in all. Nothing is written.
    ///
    /// # Errors
    /// If the device stops answering.
    pub fn check(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, OpenError> {
        let is_readable = |zone: &Zone| zone.state != ZoneState::Offline && zone.written > 0;
        let shown = (0..).zip(self.board().zones().iter().copied());
        let zones: Vec<(u32, Zone)> = shown.filter(|(_, zone)| is_readable(zone)).collect();
        let in_zones: u64 = zones.iter().map(|(_, zone)| u64::from(zone.written)).sum();
        let mut report =
            self.ftl.check_beside(clock, &mut |done, all| progress(done, all + in_zones), &mut self.zones)?;
        report.zones = zones.len() as u64;
        let area = u64::from(self.layout().area_blocks());
        let frames = self.ftl.frames_to_check();
        for (zone, Zone { written, .. }) in zones {
            for first in (0..written).step_by(frames.len()) {
                let count = (written - first).min(frames.len() as u32);
                if self.read_and_wait(clock, zone, first, &frames[..count as usize])?.is_err() {
                    // One by one, to say which.
                    for block in first..first + count {
                        if let Err(error) = self.read_and_wait(clock, zone, block, &frames[..1])? {
                            report.zone_blocks_lost += 1;
                            report.add(format!("zone {zone}: {}", error.renamed(|_| block.into())));
                        }
                    }
                }
                report.zone_blocks_verified += u64::from(count);
                progress(area + report.zone_blocks_verified, area + in_zones);
            }
        }
        for frame in frames {
            self.ftl.flash.frames.release(frame);
        }
        report.zone_blocks_verified -= report.zone_blocks_lost;
        Ok(report)
    }

    /// Reads blocks of a zone, and waits.
    fn read_and_wait(
        &mut self,
        clock: &mut dyn Clock,
        zone: u32,
        first: u32,
        frames: &[Frame],
    ) -> Result<Result<(), IoError>, OpenError> {
        self.ftl.flash.now = self.ftl.flash.now.max(clock.now());
        let (zones, number) = (&self.zones, self.zones.numbers[zone as usize]);
        let place = |flash: &Flash, block: u32| zones.block(flash, zone, block);
        self.ftl.read_elsewhere(CHECK_TAG, number, first, frames, place);
        self.ftl.wait_for_check(clock, &mut self.zones)
    }
}
