//! The key-value drive as one of many.

use crate::config::ValueConfig;
use crate::directory::Directory;
use crate::drive::{OWN_FRAMES, RUN_FRAMES, ValueFtl};
use crate::finding::lost;
use crate::ids;
use crate::manifest::{Manifest, Shape};
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::Clock;
use openftl_media::Media;
use openftl_pages::{Change, PageFtl, Purpose, StoreError, StoreRequest, StoreTarget};
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::Durability;
use openftl_parts::words::Access;

/// With the frames that the drive reads to for itself.
fn with_own_frames(config: Config) -> Config {
    Config { host_frames: config.host_frames + (OWN_FRAMES + RUN_FRAMES) as u32, ..config }
}

impl ValueFtl {
    /// Frames that were added to the host's of the configuration, for what the drive reads for itself.
    #[must_use]
    pub fn own_frames(&self) -> u32 {
        (OWN_FRAMES + RUN_FRAMES) as u32
    }
}

impl<M: Media> Ftl for ValueFtl<M> {
    type Media = M;
    type Shape = ValueConfig;
    type Asked = ();

    /// The capacity of `config` is not looked at.
    fn format(media: M, config: Config, shape: ValueConfig, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let drive_id = config.drive_id;
        let store = PageFtl::format_for(media, with_own_frames(config), Purpose::Values, clock)?;
        let shape = shape.shape(&store, drive_id)?;
        let mut drive = ValueFtl::new(store, shape);
        drive.keep_frames();
        drive.open_sessions()?;
        drive.write_manifest(clock)?;
        drive.reset_statistics();
        Ok(drive)
    }

    fn open_with(media: M, config: Config, (): (), access: Access, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let store = PageFtl::open_for(media, with_own_frames(config), Purpose::Values, access, clock)?;
        let mut drive = ValueFtl::new(store, Shape::UNKNOWN);
        drive.keep_frames();
        let index = drive.store.repair_report_mut().as_ref().filter(|report| report.index.is_some());
        let found = match index.map(|report| report.damage.clone()) {
            Some(damage) => Err(OpenError::IndexLost(damage)),
            None if drive.store.is_rebuilding_keys() => {
                Err(lost("a repair of the directory of keys was cut off".to_owned()))
            }
            None => drive.find(access, clock),
        };
        match found {
            Err(damage) if access == Access::Repair && damage.is_repairable() => {
                drive.rebuild(&damage, clock)?;
                drive.directory = Directory::default();
                drive.find(access, clock)?;
            }
            found => found?,
        }
        drive.store.end_repair(clock)?;
        drive.store.reset_statistics();
        Ok(drive)
    }

    fn block(&self) -> &BlockFtl<M> {
        self.store.block()
    }

    fn reset_statistics(&mut self) {
        (**self).reset_statistics();
    }

    fn map_memory_bytes(&self) -> u64 {
        self.index_bytes()
    }

    fn over_provisioning(&self) -> f64 {
        self.store.over_provisioning()
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        (**self).check(clock, progress)
    }

    /// Requests under way are given up, and so is a merge.
    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        self.store.close(clock)
    }

    fn crash(self) -> M {
        self.store.crash()
    }
}

impl ValueFtl {
    /// Writes the manifest of a new drive.
    fn write_manifest(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let refused = |error: StoreError| OpenError::Tenant {
            text: format!("the manifest cannot be written: {error}"),
            is_lost: false,
        };
        let manifest = Manifest { shape: self.shape, count: self.count, next_page: 0, runs: Vec::new() }.to_bytes();
        let (session, wsn) = self.merges;
        self.store.stage(clock.now(), session, wsn, ids::MANIFEST, Change::Put(&[&manifest]), None).map_err(refused)?;
        self.merges.1 += 1;
        self.ask_pages(StoreRequest::Commit { session, wsn, durability: Durability::Durable }, clock)
    }
}
