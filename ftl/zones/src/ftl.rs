//! The zoned drive as one of many.

use crate::board::AskedLimits;
use crate::drive::ZoneFtl;
use crate::sizing::ZoneConfig;
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::Clock;
use openftl_media::Media;
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::Access;

impl<M: Media> Ftl for ZoneFtl<M> {
    type Media = M;
    type Shape = ZoneConfig;
    type Asked = AskedLimits;

    fn format(media: M, config: Config, zoned: ZoneConfig, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        ZoneFtl::format(media, config, zoned, clock)
    }

    fn open_with(
        media: M,
        config: Config,
        limits: AskedLimits,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        ZoneFtl::open_with(media, config, limits, access, clock)
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

    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        ZoneFtl::close(self, clock)
    }

    fn crash(self) -> M {
        ZoneFtl::crash(self)
    }
}
