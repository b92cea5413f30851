//! A drive of any kind, as those hold it who make, open, verify and stop drives: command line, lab, simulator.
//!
//! What a host may ask of a drive differs from FTL to FTL. How a drive comes and goes, how it works as time goes on
//! ([`Target`](openftl_parts::Target)), and its one accounting do not.

use crate::block_ftl::BlockFtl;
use crate::check::CheckReport;
use openftl_core::Clock;
use openftl_media::Media;
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::{Access, ReadOnlyReason};

/// See the module.
pub trait Ftl: Sized {
    /// The device.
    type Media: Media;

    /// What a new drive is like beyond its [`Config`]; of most there is nothing to say.
    type Shape;

    /// What may be asked of a drive each time that it is opened, beyond its [`Config`].
    type Asked: Default + Clone;

    /// Makes a new drive on a device. What was on it is lost.
    ///
    /// # Errors
    /// If it does not fit the device, or the device fails.
    fn format(media: Self::Media, config: Config, shape: Self::Shape, clock: &mut dyn Clock)
    -> Result<Self, OpenError>;

    /// Opens a drive with the access that is wanted.
    ///
    /// # Errors
    /// If no consistent state can be reached, or the drive is one of another FTL.
    fn open_with(
        media: Self::Media,
        config: Config,
        asked: Self::Asked,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError>;

    /// The block FTL: all of a drive of blocks. Beside a tenant it is the area of the tenant's records. Accounts and the report of
    /// the recovery are here, whatever the drive is for.
    fn block(&self) -> &BlockFtl<Self::Media>;

    /// Counts from nothing from now on.
    fn reset_statistics(&mut self);

    /// Bytes of memory for where data are.
    fn map_memory_bytes(&self) -> u64 {
        (**self.block()).map_memory_bytes()
    }

    /// Flash beyond what the host can write, as a share of that.
    fn over_provisioning(&self) -> f64 {
        self.block().effective_over_provisioning()
    }

    /// Why it takes no writes, if it does not.
    fn read_only_reason(&self) -> Option<ReadOnlyReason> {
        (**self.block()).read_only_reason()
    }

    /// The state of the parts in one line, for messages about what should never happen.
    fn describe(&self) -> String {
        (**self.block()).describe()
    }

    /// Verifies the drive. `progress` is told the blocks done and in all. Nothing is written.
    ///
    /// # Errors
    /// If the device stops answering.
    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError>;

    /// Stops cleanly: everything is durable.
    ///
    /// # Errors
    /// If the device stops completing commands, or the drive has failed.
    fn close(self, clock: &mut dyn Clock) -> Result<Self::Media, OpenError>;

    /// Gives the device back as it is: what a crash of the FTL leaves behind.
    fn crash(self) -> Self::Media;
}

impl<M: Media> Ftl for BlockFtl<M> {
    type Media = M;
    type Shape = ();
    type Asked = ();

    fn format(media: M, config: Config, (): (), clock: &mut dyn Clock) -> Result<Self, OpenError> {
        BlockFtl::format(media, config, clock)
    }

    fn open_with(media: M, config: Config, (): (), access: Access, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        BlockFtl::open_with(media, config, access, clock)
    }

    fn block(&self) -> &BlockFtl<M> {
        self
    }

    fn reset_statistics(&mut self) {
        (**self).reset_statistics();
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        (**self).check(clock, progress)
    }

    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        BlockFtl::close(self, clock)
    }

    fn crash(self) -> M {
        BlockFtl::crash(self)
    }
}
