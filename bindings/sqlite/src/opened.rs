//! A store that is open, of this process or of another.

use crate::trouble::Trouble;
use openftl_core::BLOCK_BYTES;
use openftl_drive::page_store::PageStore;
use openftl_media::EmulatedDevice;
use openftl_pages::{BlockingStore, PageFtl};
use openftl_parts::words::Purpose;
use std::fmt::Write;
use std::path::PathBuf;

/// See the module.
pub struct Opened {
    /// The store.
    pub pages: Box<dyn BlockingStore + Send + Sync>,
    /// The drive in this process that is closed with it, and asked what it did.
    pub local: Option<PageStore<EmulatedDevice>>,
    /// Other processes use it too.
    pub is_shared: bool,
    /// The folder for the locks of its databases.
    pub locks: PathBuf,
}

impl Opened {
    /// A drive that this process alone has.
    pub fn local(store: PageStore<EmulatedDevice>, locks: PathBuf) -> Opened {
        Opened { pages: Box::new(store.clone()), local: Some(store), is_shared: false, locks }
    }

    /// What has reached the store and its NAND since it was opened: one line of JSON. `None`: another process knows.
    pub fn statistics(&self) -> Option<String> {
        self.local.as_ref().map(|store| store.with_drive(|drive| statistics(drive)))
    }

    /// Stops the drive, if it is of this process.
    pub fn close(self) -> Result<(), Trouble> {
        if !self.is_shared {
            // Nobody has a database open. Locks that cannot be deleted are no obstacle to the next process.
            _ = std::fs::remove_dir_all(&self.locks);
        }
        drop(self.pages);
        let closed = self.local.map(PageStore::close).transpose();
        closed.map(drop).map_err(|failure| Trouble::opening(&failure))
    }
}

fn statistics(drive: &PageFtl) -> String {
    let (blocks, pages) = drive.statistics();
    let nand = |purpose: Purpose| blocks.programmed[purpose as usize] * BLOCK_BYTES as u64;
    let figures = [
        ("pages_put", pages.pages_put),
        ("pages_deleted", pages.pages_deleted),
        ("bytes_put", pages.bytes_put),
        ("header_bytes", pages.header_bytes),
        ("grain_bytes", pages.grain_bytes),
        ("padded_bytes", pages.padded_bytes),
        ("log_bytes", pages.log_bytes),
        ("carried_bytes", pages.carried_bytes),
        ("batches_committed", pages.batches_committed),
        ("batches_aborted", pages.batches_aborted),
        ("nand_bytes", blocks.programmed.iter().sum::<u64>() * BLOCK_BYTES as u64),
        ("nand_page_bytes", nand(Purpose::Tenant)),
        ("nand_header_bytes", nand(Purpose::Header)),
        ("nand_slack_bytes", nand(Purpose::Slack)),
        ("nand_area_bytes", nand(Purpose::Data)),
        ("nand_relocation_bytes", nand(Purpose::Relocation)),
        ("nand_log_bytes", nand(Purpose::Log) + nand(Purpose::Checkpoint)),
        ("nand_padding_bytes", nand(Purpose::Padding)),
        ("used_bytes", drive.used_bytes()),
        ("capacity_bytes", drive.capacity_bytes()),
    ];
    let mut text = String::from("{");
    for (name, value) in figures {
        let comma = if text.len() > 1 { "," } else { "" };
        write!(text, "{comma}\"{name}\":{value}").expect("a string takes all");
    }
    text + "}"
}
