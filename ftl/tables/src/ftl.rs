//! The table drive as one of many.

use crate::drive::{TableFtl, TableStatistics};
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::Clock;
use openftl_media::Media;
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::Access;

impl<M: Media> Ftl for TableFtl<M> {
    type Media = M;
    type Shape = ();
    type Asked = ();

    fn format(media: M, config: Config, (): (), clock: &mut dyn Clock) -> Result<Self, OpenError> {
        TableFtl::format(media, config, clock)
    }

    fn open_with(media: M, config: Config, (): (), access: Access, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        TableFtl::open_with(media, config, access, clock)
    }

    fn block(&self) -> &BlockFtl<M> {
        &self.ftl
    }

    fn reset_statistics(&mut self) {
        self.ftl.reset_statistics();
        self.statistics = TableStatistics::default();
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        (**self).check(clock, progress)
    }

    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        TableFtl::close(self, clock)
    }

    fn crash(self) -> M {
        TableFtl::crash(self)
    }
}
