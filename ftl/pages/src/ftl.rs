//! The store of pages as one of many drives.

use crate::area::{self, lost};
use crate::checkpointing::Checkpoint;
use crate::drive::PageFtl;
use crate::finding;
use crate::index::Index;
use crate::pages::Pages;
use crate::place::{OWN_BYTES_MAX, PAGE_BYTES_MAX, Place};
use crate::repairing;
use crate::sizing::{LEAST, page_bytes_max, pages_for};
use crate::tenancy::note;
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::{ChunkId, Clock, Geometry, Ppa};
use openftl_media::{ChunkState, Media};
use openftl_parts::config::Config;
use openftl_parts::flash::chunks::Chunks;
use openftl_parts::journal::repair::RepairReport;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{Durability, Request, Target};
use openftl_parts::tenant::Tenant;
use openftl_parts::words::{Access, TenantNote};

/// What hosts see of a store of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Its pages.
    Pages,
    /// Keys and values, which another FTL keeps in pages.
    Values,
}

impl Purpose {
    fn kind(self) -> u8 {
        match self {
            Purpose::Pages => TenantNote::PAGES,
            Purpose::Values => TenantNote::VALUES,
        }
    }

    /// The longest page.
    fn page_bytes_max(self, geometry: &Geometry) -> u32 {
        match (self, page_bytes_max(geometry)) {
            // What stands behind the longest value is beyond it.
            (Purpose::Values, PAGE_BYTES_MAX) => OWN_BYTES_MAX,
            (_, most) => most,
        }
    }
}

impl<M: Media> Ftl for PageFtl<M> {
    type Media = M;
    type Shape = ();
    type Asked = ();

    fn format(media: M, config: Config, (): (), clock: &mut dyn Clock) -> Result<Self, OpenError> {
        PageFtl::format_for(media, config, Purpose::Pages, clock)
    }

    fn open_with(media: M, config: Config, (): (), access: Access, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let mut drive = PageFtl::open_for(media, config, Purpose::Pages, access, clock)?;
        drive.end_repair(clock)?;
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
        let flash = self.ftl.media().geometry().bytes();
        flash as f64 / self.capacity_bytes() as f64 - 1.0
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        (**self).check(clock, progress)
    }

    /// Batches that are not committed are given up.
    fn close(mut self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        self.is_quiet = true;
        self.checkpoint_now(clock)?;
        let is_all_durable = self.pages.durable >= self.pages.queue.last();
        if let Some(reason) = self.ftl.read_only_reason().filter(|_| !is_all_durable) {
            return Err(OpenError::Unwritable(reason));
        }
        // Whoever only looks at the drive writes no padding so that it can be read.
        while self.ftl.read_only_reason().is_none() && self.pages.make_readable(&mut self.ftl.flash) {
            self.ftl.hand_over();
            self.ftl.run(clock, &mut self.pages, |ftl| ftl.flash.units.under_way() == 0)?;
        }
        self.ftl.close_beside(clock, &mut self.pages)
    }

    fn crash(self) -> M {
        self.ftl.crash()
    }
}

impl<M: Media> PageFtl<M> {
    /// Makes a new store on a device, for a purpose. The capacity of `config` is not looked at.
    ///
    /// # Errors
    /// As of [`Ftl::format`].
    pub fn format_for(
        mut media: M,
        config: Config,
        purpose: Purpose,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        let chunks = Chunks::report(&mut media, clock.now())?;
        let geometry = chunks.geometry;
        let mut good = vec![0; geometry.groups as usize];
        let format = geometry.format();
        for found in chunks.all().filter(|found| found.state != ChunkState::Offline) {
            good[format.group_of(format.pu_of(found.chunk)) as usize] += 1;
        }
        let (layout, capacity, mut below) = pages_for(&geometry, &good, &config)?;
        below.tenant.kind = purpose.kind();
        let notes = [
            (!config.cross_blocks, TenantNote::WHOLE_BLOCKS),
            (config.map_memory.is_some(), TenantNote::INDEX_ON_MEDIA),
        ];
        below.tenant.more |= notes.into_iter().filter(|(is_said, _)| *is_said).map(|(_, note)| note).sum::<u8>();
        let mut pages = Pages::new(&geometry, layout, purpose.page_bytes_max(&geometry), capacity, &config);
        pages.anchor.memory = pages.index_memory(None)?;
        pages.index = Index::new(layout.slots, pages.leaf_pages, pages.anchor.memory);
        let mut ftl = BlockFtl::format_beside(media, below, clock, &mut pages)?;
        pages.release_found(&mut ftl.flash);
        pages.keep_frames(&mut ftl.flash);
        let mut drive = PageFtl::new(ftl, pages);
        // The anchor says how large it is.
        drive.checkpoint_now(clock)?;
        Ok(drive)
    }

    /// Opens a store that was made for a purpose. If that is to repair it, [`PageFtl::end_repair`] is to follow.
    ///
    /// # Errors
    /// As of [`Ftl::open_with`], also if it was made for another one.
    pub fn open_for(
        media: M,
        config: Config,
        purpose: Purpose,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        let geometry = *media.geometry();
        // What it was formatted for is found in its superblock.
        let mut config = config.beside(note(&LEAST), LEAST.area_blocks());
        config.tenant.kind = purpose.kind();
        let mut pages = Pages::new(&geometry, LEAST, purpose.page_bytes_max(&geometry), 0, &config);
        config.map_memory = None;
        let find = |ftl: &mut BlockFtl, pages: &mut Pages, clock: &mut dyn Clock| {
            pages.keep_frames(&mut ftl.flash);
            let adopted = match (ftl.recovery_report().repair.is_some(), repairing::is_rebuilding(ftl)) {
                (true, _) => {
                    Err(lost("the area of the store was rebuilt, and may say of pages what was true before".to_owned()))
                }
                (false, true) => Err(lost("a repair of the store was cut off".to_owned())),
                (false, false) => finding::adopt(ftl, pages, access, clock),
            };
            match adopted {
                Err(damage) if access == Access::Repair && damage.is_repairable() => {
                    repairing::rebuild(ftl, pages, &damage, clock)
                }
                adopted => adopted,
            }
        };
        let ftl = BlockFtl::open_beside(media, config, access, clock, &mut pages, find)?;
        let mut drive = PageFtl::new(ftl, pages);
        // What was read to open it is no work for a host.
        drive.ftl.reset_statistics();
        if access != Access::Inspect {
            drive.ftl.flash.turn_read_only_if_worn_out(&drive.ftl.journal.superblock);
            drive.secure_log(clock)?;
            // After a repair there are others.
            drive.pages.release_found(&mut drive.ftl.flash);
            // On a drive that is worn out they stay as they are: the next recovery may need them.
            if drive.pages.log.is_secure() {
                drive.pages.release_in_doubt(&mut drive.ftl.flash);
            }
            drive.ftl.hand_over();
            drive.write_rebuilt(clock)?;
        }
        Ok(drive)
    }
}

impl PageFtl {
    /// Waits until what was found of the log is on media for good.
    fn secure_log(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut done = Vec::new();
        while !self.pages.log.is_secure() && self.expect_writable().is_ok() {
            self.poll(clock.now(), &mut done);
            if !self.pages.log.is_secure() && self.expect_writable().is_ok() {
                clock.wait_until(self.ftl.next_due().ok_or(OpenError::Stopped)?);
            }
        }
        Ok(())
    }

    /// Writes an index that was rebuilt, and trims what the area had of the old one.
    fn write_rebuilt(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        if !self.pages.is_rebuilt || self.expect_writable().is_err() {
            return Ok(());
        }
        self.checkpoint_now(clock)?;
        let first = self.pages.layout.slot_block(0);
        let is_old =
            |slot: &u32| area::is_mapped(&self.ftl, first + u64::from(*slot)) && !self.pages.index.has_slot(*slot);
        let old: Vec<u32> = (0..self.pages.layout.slots).filter(is_old).collect();
        for slot in old {
            let trim = Request::Trim { first: first + u64::from(slot), blocks: 1, durability: Durability::Volatile };
            let mut done = Vec::new();
            let mut write = self.submit_area(trim);
            while self.expect_writable().is_ok() && write.is_none_or(|write| write > self.acknowledged) {
                self.poll(clock.now(), &mut done);
                match write {
                    None => write = self.submit_area(trim),
                    Some(write) if write <= self.acknowledged => break,
                    Some(_) => _ = clock.wait_until(self.ftl.next_due().ok_or(OpenError::Stopped)?),
                }
            }
        }
        // Its end says that the trims are durable.
        self.checkpoint_now(clock)
    }

    /// Says that the directory of keys is being rebuilt, for an FTL composed of this that keeps one in pages. Where the index is being rebuilt, too, that
    /// is said already, and both begin again if power goes.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn begin_repair_of_keys(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let is_said = repairing::is_rebuilding(&self.ftl) || self.is_rebuilding_keys();
        if self.ftl.read_only_reason().is_some() || is_said {
            return Ok(());
        }
        repairing::mark(&mut self.ftl, &mut self.pages, TenantNote::REBUILDING_KEYS, clock)
    }

    /// Whether the directory of keys was being rebuilt when the drive was left.
    #[must_use]
    pub fn is_rebuilding_keys(&self) -> bool {
        repairing::is_rebuilding_keys(&self.ftl)
    }

    /// Ends a repair, if there is one: what it has written counts from now on.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn end_repair(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let is_rebuilding = repairing::is_rebuilding(&self.ftl) || self.is_rebuilding_keys();
        if self.ftl.read_only_reason().is_some() || !is_rebuilding {
            return Ok(());
        }
        repairing::mark(&mut self.ftl, &mut self.pages, 0, clock)?;
        self.pages.is_rebuilt = false;
        for chunk in std::mem::take(&mut self.pages.old_log) {
            self.pages.chunks.get_mut(&chunk).expect("it was kept").live = 0;
            self.pages.doom_if_empty(&mut self.ftl.flash, chunk);
        }
        self.ftl.reset_statistics();
        Ok(())
    }

    /// The version that the next page gets: for those who test what the FTL bears.
    #[must_use]
    pub fn next_version(&self) -> u64 {
        self.pages.next_version
    }

    /// Chunks that the log is in, or may go on in: for those who test what the FTL bears.
    #[must_use]
    pub fn log_chunks(&self) -> Vec<ChunkId> {
        self.pages.log.chunks(self.ftl.flash.format, self.pages.anchor.group)
    }

    /// Blocks of the groups of the log that are needed, group by group: for the same.
    #[must_use]
    pub fn log_places(&self) -> Vec<Vec<Ppa>> {
        let format = self.ftl.flash.format;
        let blocks = |place: Place| place.blocks(format).map(move |block| format.ppa(place.chunk(format), block));
        self.pages.log.placed.iter().map(|placed| blocks(placed.place).collect()).collect()
    }

    /// How the drive was repaired, for an FTL composed of this that adds to it.
    pub fn repair_report_mut(&mut self) -> &mut Option<RepairReport> {
        self.ftl.repair_report_mut()
    }

    /// Makes a checkpoint of all that is committed, and waits for it. One that is under way may have begun before the last commit.
    fn checkpoint_now(&mut self, clock: &mut dyn Clock) -> Result<(), OpenError> {
        let mut done = Vec::new();
        let mut has_begun = false;
        let was_quiet = std::mem::replace(&mut self.is_quiet, true);
        while self.expect_writable().is_ok() {
            if matches!(self.checkpoint, Checkpoint::Idle) {
                if has_begun {
                    break;
                }
                self.begin_checkpoint();
                has_begun = true;
            }
            self.poll(clock.now(), &mut done);
            if !matches!(self.checkpoint, Checkpoint::Idle) && self.expect_writable().is_ok() {
                clock.wait_until(self.ftl.next_due().ok_or(OpenError::Stopped)?);
            }
        }
        self.is_quiet = was_quiet;
        self.done.append(&mut done);
        Ok(())
    }
}
