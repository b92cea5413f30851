//! Verifying the tables of a drive: every block of each is read, and says that it is that block.

use super::drive::TableFtl;
use openftl_blocks::check::{CHECK_TAG, CheckReport, DamagedTable};
use openftl_blocks::reading::BlockPlace;
use openftl_core::{Clock, Frame};
use openftl_parts::flash::Flash;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::IoError;

impl TableFtl {
    /// Verifies log area, catalog and metadata as [`openftl_blocks::BlockFtl::check`] does, and each table in the catalog. `progress` is told
    /// the blocks done and in all. Nothing is written.
    ///
    /// # Errors
    /// If the device stops answering.
    pub fn check(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, OpenError> {
        let tables: Vec<(u32, u64, u32)> = self.tables().collect();
        let of_tables: u64 = tables.iter().map(|(_, _, blocks)| u64::from(*blocks)).sum();
        let mut report =
            self.ftl.check_beside(clock, &mut |done, all| progress(done, all + of_tables), &mut self.tables)?;
        report.tables = tables.len() as u64;
        let (log_area, all) = (self.block().plan().capacity_blocks, self.block().plan().capacity_blocks + of_tables);
        let frames = self.ftl.frames_to_check();
        for (slot, number, blocks) in tables {
            let mut lost = 0;
            for first in (0..blocks).step_by(frames.len()) {
                let count = (blocks - first).min(frames.len() as u32);
                if self.read_and_wait(clock, (slot, number), first, &frames[..count as usize])?.is_err() {
                    // One by one, to say which.
                    for block in first..first + count {
                        if let Err(error) = self.read_and_wait(clock, (slot, number), block, &frames[..1])? {
                            lost += 1;
                            report.add(self.finding(slot, number, block, error));
                        }
                    }
                }
                report.table_blocks_verified += u64::from(count);
                progress(log_area + report.table_blocks_verified, all);
            }
            if lost > 0 {
                report.add_damaged(DamagedTable { number, blocks, blocks_lost: lost });
            }
        }
        for frame in frames {
            self.ftl.flash.frames.release(frame);
        }
        report.table_blocks_verified -= report.table_blocks_lost;
        Ok(report)
    }

    /// Reads blocks of the table `number` in `slot`.
    fn read_and_wait(
        &mut self,
        clock: &mut dyn Clock,
        (slot, number): (u32, u64),
        first: u32,
        frames: &[Frame],
    ) -> Result<Result<(), IoError>, OpenError> {
        self.ftl.flash.now = self.ftl.flash.now.max(clock.now());
        let place = |flash: &Flash, block: u32| self.tables.block(flash, slot, block);
        self.ftl.read_elsewhere(CHECK_TAG, number, first, frames, place);
        self.ftl.wait_for_check(clock, &mut self.tables)
    }

    fn finding(&self, slot: u32, number: u64, block: u32, error: IoError) -> String {
        let what = match error {
            IoError::WrongBlock { .. } => "came back damaged or as another block",
            _ => "cannot be read from the medium",
        };
        let place = match self.tables.block(&self.ftl.flash, slot, block) {
            BlockPlace::Media(ppa) => format!(" (it is at {})", self.ftl.flash.format.unpack(ppa)),
            BlockPlace::Frame(_) => String::new(),
        };
        format!("block {block} of table {number} {what}{place}")
    }
}
