//! The table drive as one of many.

use crate::Tables;
use crate::catalog::{Catalog, Entry};
use crate::drive::{TableFtl, TableStatistics, catalog_blocks, copy_blocks};
use crate::finding::read_catalog;
use crate::request::{FoundEntry, TableId};
use openftl_blocks::{BlockFtl, CheckReport, Ftl};
use openftl_core::{Clock, FrameForm};
use openftl_media::Media;
use openftl_parts::config::Config;
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::Tenant;
use openftl_parts::words::Access;

impl<M: Media> Ftl for TableFtl<M> {
    type Media = M;
    type Shape = ();
    type Asked = ();

    /// The capacity of `config` is the log area without the catalog.
    fn format(media: M, config: Config, (): (), clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let catalog_blocks = catalog_blocks(media.geometry());
        let capacity_blocks = config.capacity_blocks + u64::from(catalog_blocks);
        let config = Config { catalog_blocks, capacity_blocks, payload: FrameForm::Bytes, ..config.with_two_copies() };
        let mut tables = Tables::new(media.geometry());
        let mut ftl = BlockFtl::format_beside(media, config, clock, &mut tables)?;
        tables.release_found(&mut ftl.flash);
        Ok(TableFtl::new(ftl, tables, Catalog::new(copy_blocks(catalog_blocks))))
    }

    /// What is in its catalog is there to be taken ([`TableFtl::take_found`]).
    fn open_with(media: M, config: Config, (): (), access: Access, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        let catalog_blocks = config.catalog_blocks.max(1);
        let config = Config { catalog_blocks, payload: FrameForm::Bytes, ..config.with_two_copies() };
        let mut tables = Tables::new(media.geometry());
        let (mut taken_over, mut found, mut behind) = (None, Vec::new(), Vec::new());
        let find = |ftl: &mut BlockFtl, tables: &mut Tables, clock: &mut dyn Clock| {
            let (reader, anew) = read_catalog(ftl, access, &mut behind, clock, tables)?;
            let (catalog, entries, stale) = reader.finish(copy_blocks(ftl.config().catalog_blocks))?;
            for Entry { number, note, table } in entries {
                let table = match table {
                    Some(runs) => {
                        Some((TableId { slot: tables.adopt(&mut ftl.flash, number, &runs)?, number }, runs.blocks))
                    }
                    None => None,
                };
                found.push(FoundEntry { number, note, table });
            }
            taken_over = Some((catalog, anew, stale));
            Ok(())
        };
        let mut ftl = BlockFtl::open_beside(media, config, access, clock, &mut tables, find)?;
        let (catalog, anew, stale) = taken_over.expect("a drive that is open was found");
        if access != Access::Inspect {
            // Before a chunk is given back that only the second copy names. A drive that takes no writes has the copies as they are.
            _ = ftl.bring_up(&behind, 1, clock, &mut tables)?;
            tables.release_found(&mut ftl.flash);
            ftl.hand_over();
            ftl.flash.turn_read_only_if_worn_out(&ftl.journal.superblock);
            ftl.note_missing_room(&tables);
            ftl.wait_for_chunks(clock, &mut tables)?;
        }
        let mut drive = TableFtl::new(ftl, tables, catalog);
        if access != Access::Inspect {
            for parts in anew.into_iter().chain(stale) {
                drive.change(vec![parts], None);
            }
        }
        drive.found = found;
        Ok(drive)
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

    /// Everything committed is durable, and what was not is gone.
    fn close(mut self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        self.commit_what_waits(clock)?;
        self.ftl.close_beside(clock, &mut self.tables)
    }

    fn crash(self) -> M {
        self.ftl.crash()
    }
}
