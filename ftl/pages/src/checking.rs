//! Verifying the pages of a drive: every one is read, and says that it is that page.

use crate::area::lost;
use crate::drive::PageFtl;
use crate::reads::{ReadFor, Wanted};
use crate::request::{ListBreak, StoreTarget};
use openftl_blocks::check::CheckReport;
use openftl_core::Clock;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::Target;
use std::ops::RangeInclusive;

/// Pages that are read at a time.
const READS: usize = 64;

impl PageFtl {
    /// Pages as [`StoreTarget::list`] gives them, with a wait for parts of the map.
    ///
    /// # Errors
    /// If the device stops answering, or has lost a part of the map.
    pub fn list_now(
        &mut self,
        lpids: RangeInclusive<u64>,
        most: usize,
        clock: &mut dyn Clock,
    ) -> Result<Vec<(u64, u32)>, OpenError> {
        let (mut found, mut done) = (Vec::new(), Vec::new());
        let mut next = *lpids.start();
        loop {
            self.ftl.flash.now = self.ftl.flash.now.max(clock.now());
            match self.list(next..=*lpids.end(), most, &mut found) {
                Ok(()) => break,
                Err(ListBreak::Lost { from }) => {
                    return Err(lost(format!("a piece of the map, with page {from}, cannot be read")));
                }
                Err(ListBreak::Waits { from }) => next = from,
            }
            clock.wait_until(self.ftl.next_due().ok_or(OpenError::Stopped)?);
            self.poll(clock.now(), &mut done);
        }
        self.done.append(&mut done);
        Ok(found)
    }

    /// Bytes of a page that is committed, if there is one; 0: the medium has lost it. Waits for a part of the map.
    ///
    /// # Errors
    /// As of [`PageFtl::list_now`].
    pub fn bytes_now(&mut self, lpid: u64, clock: &mut dyn Clock) -> Result<Option<u32>, OpenError> {
        Ok(self.list_now(lpid..=lpid, 1, clock)?.first().map(|(_, bytes)| *bytes))
    }

    /// Verifies area and metadata as [`openftl_blocks::BlockFtl::check`] does, and each page. `progress` is told the blocks and pages done and
    /// in all. Nothing is written.
    ///
    /// # Errors
    /// If the device stops answering.
    pub fn check(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, OpenError> {
        let all = self.pages();
        let mut report =
            self.ftl.check_beside(clock, &mut |done, blocks| progress(done, blocks + all), &mut self.pages)?;
        let area = u64::from(self.pages.layout.area_blocks());
        let (mut from, mut verified) = (Some(0), 0);
        while let Some(first) = from {
            let some = self.list_now(first..=u64::MAX, READS, clock)?;
            from = some.last().and_then(|(lpid, _)| lpid.checked_add(1));
            for (lpid, _) in &some {
                self.ftl.flash.now = self.ftl.flash.now.max(clock.now());
                self.pages.begin_read(&mut self.ftl.flash, Wanted { tag: 0, lpid: *lpid, what: ReadFor::Check });
            }
            // The scrub may read all the time: that is not waited for.
            let mut done = Vec::new();
            self.poll(clock.now(), &mut done);
            while !(self.pages.reads.is_idle() && self.pages.leaf_reads.waiting.is_empty()) {
                clock.wait_until(self.ftl.next_due().ok_or(OpenError::Stopped)?);
                self.poll(clock.now(), &mut done);
            }
            self.done.append(&mut done);
            verified += some.len() as u64;
            progress(area + verified, area + all);
        }
        for lpid in std::mem::take(&mut self.pages.reads.lost) {
            report.pages_lost += 1;
            report.add(format!("page {lpid} cannot be read from the medium"));
        }
        if let Some(doubt) = &self.ftl.recovery_report().doubt {
            report.add(doubt.clone());
        }
        report.pages = self.pages();
        Ok(report)
    }
}
