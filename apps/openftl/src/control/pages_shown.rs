//! How full a served store of pages is, and what its hosts have done.

use openftl_core::units::ByteSize;
use openftl_lab::picture::thousands;
use openftl_pages::PageFtl;

/// See the module.
#[derive(serde::Serialize)]
pub(super) struct PagesShown {
    pages: u64,
    used_bytes: u64,
    capacity_bytes: u64,
    batches_committed: u64,
    batches_aborted: u64,
    pages_put: u64,
    bytes_put: u64,
    pages_deleted: u64,
}

impl PagesShown {
    pub(super) fn of(drive: &PageFtl) -> PagesShown {
        let (_, statistics) = drive.statistics();
        PagesShown {
            pages: drive.pages(),
            used_bytes: drive.used_bytes(),
            capacity_bytes: drive.capacity_bytes(),
            batches_committed: statistics.batches_committed,
            batches_aborted: statistics.batches_aborted,
            pages_put: statistics.pages_put,
            bytes_put: statistics.bytes_put,
            pages_deleted: statistics.pages_deleted,
        }
    }

    pub(super) fn line(&self) -> String {
        format!(
            "\nPages: {}, {} of {} used; batches: {} committed, {} aborted",
            thousands(self.pages),
            ByteSize(self.used_bytes),
            ByteSize(self.capacity_bytes),
            thousands(self.batches_committed),
            thousands(self.batches_aborted)
        )
    }
}
