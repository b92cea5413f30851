//! The zoned drive as one of many.

use crate::board::{AskedLimits, Limits};
use crate::drive::ZoneFtl;
use crate::face::Face;
use crate::finding;
use crate::layout::Layout;
use crate::sizing::{ZoneConfig, zones_for};
use crate::tenancy::note;
use crate::zones::Zones;
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::Clock;
use openftl_media::{ChunkState, Media};
use openftl_parts::config::Config;
use openftl_parts::flash::chunks::Chunks;
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{Access, ReadOnlyReason};

impl<M: Media> Ftl for ZoneFtl<M> {
    type Media = M;
    type Shape = ZoneConfig;
    type Asked = AskedLimits;

    /// The capacity of `config` is not looked at.
    fn format(mut media: M, config: Config, zoned: ZoneConfig, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let chunks = Chunks::report(&mut media, clock.now())?;
        let geometry = chunks.geometry;
        let mut good = vec![0; geometry.groups as usize];
        let format = geometry.format();
        for found in chunks.all().filter(|found| found.state != ChunkState::Offline) {
            good[format.group_of(format.pu_of(found.chunk)) as usize] += 1;
        }
        let payload = config.payload;
        let (layout, config) = zones_for(&geometry, &good, &config, &zoned)?;
        let mut zones = Zones::new(&geometry, layout, zoned.limits, zoned.face, payload);
        let mut ftl = BlockFtl::format_beside(media, config, clock, &mut zones)?;
        zones.release_found(&mut ftl.flash);
        zones.keep_frames(&mut ftl.flash);
        zones.refresh.is_stopped = false;
        Ok(ZoneFtl::new(ftl, zones))
    }

    /// Width and number of zones are as the drive was formatted, and so are limits that are not asked for.
    fn open_with(
        media: M,
        config: Config,
        limits: AskedLimits,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        let geometry = *media.geometry();
        // What it was formatted for is found in its superblock.
        let layout = Layout::new(&geometry, 1, 1, 1);
        let payload = config.payload;
        let config = config.with_two_copies().beside(note(&layout, 1, Face::Zones), 1);
        let mut zones = Zones::new(&geometry, layout, Limits { max_open: 1, max_active: 1 }, Face::Zones, payload);
        zones.asked = limits;
        let mut behind = Vec::new();
        let find = |ftl: &mut BlockFtl, zones: &mut Zones, clock: &mut dyn Clock| {
            zones.keep_frames(&mut ftl.flash);
            finding::adopt(ftl, zones, access, &mut behind, clock)
        };
        let ftl = BlockFtl::open_beside(media, config, access, clock, &mut zones, find)?;
        let is_clean = ftl.recovery_report().clean;
        let mut drive = ZoneFtl::new(ftl, zones);
        // What was read to open it is no work for a host.
        drive.ftl.reset_statistics();
        if access != Access::Inspect {
            drive.ftl.flash.turn_read_only_if_worn_out(&drive.ftl.journal.superblock);
            // Before anything is given back that only the second copy names. A drive that takes no writes gives nothing back.
            _ = drive.ftl.bring_up(&behind, 1, clock, &mut drive.zones)?;
            // What a host finds stays there: what was read while that was possible is saved.
            if !is_clean {
                drive.flush_all(false, clock)?;
            }
            // Only now: chunks that are not full are padded, and nobody is to wait for that.
            drive.zones.release_found(&mut drive.ftl.flash);
            drive.ftl.hand_over();
            drive.zones.refresh.is_stopped = false;
        }
        Ok(drive)
    }

    fn block(&self) -> &BlockFtl<M> {
        &self.ftl
    }

    fn reset_statistics(&mut self) {
        (**self).reset_statistics();
    }

    fn map_memory_bytes(&self) -> u64 {
        self.map_bytes()
    }

    fn over_provisioning(&self) -> f64 {
        let flash = self.ftl.media().geometry().blocks();
        flash as f64 / self.layout().blocks() as f64 - 1.0
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        (**self).check(clock, progress)
    }

    /// Open zones are closed.
    fn close(mut self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        // After the last flush no record says that something is padded.
        self.zones.refresh.is_stopped = true;
        self.flush_all(true, clock)?;
        // A worn-out drive writes no records: they may be older than its zones. So no superblock says that it was stopped, and who opens it
        // next looks where the zones end.
        if self.ftl.flash.read_only == Some(ReadOnlyReason::WornOut) && !self.zones.targets().is_empty() {
            self.ftl.run(clock, &mut self.zones, |ftl| ftl.flash.under_way == 0)?;
            return match self.has_ended_unsaved {
                true => Err(OpenError::Unwritable(ReadOnlyReason::WornOut)),
                false => Ok(self.ftl.crash()),
            };
        }
        self.ftl.close_beside(clock, &mut self.zones)
    }

    fn crash(self) -> M {
        self.ftl.crash()
    }
}
