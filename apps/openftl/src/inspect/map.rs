//! What `openftl inspect` says of a map that is kept on media.

use openftl_blocks::BlockFtl;
use openftl_core::units::ByteSize;
use openftl_lab::picture::thousands;
use openftl_media::Media;
use serde::Serialize;
use std::fmt::Write;

/// A map on media.
#[derive(Serialize, Clone, Copy)]
pub struct MapFacts {
    pages: u32,
    pages_in_memory: u32,
    /// What is not in a page yet.
    changes: usize,
    changes_max: u64,
    memory_bytes: u64,
    budget_bytes: u64,
    /// What the whole map would take.
    whole_bytes: u64,
}

impl MapFacts {
    /// Of a drive that has its map there.
    pub fn of<M: Media>(drive: &BlockFtl<M>) -> Option<MapFacts> {
        let (plan, changes, pages_in_memory) = drive.map_on_media()?;
        Some(MapFacts {
            pages: plan.pages,
            pages_in_memory,
            changes,
            changes_max: plan.changes_max,
            memory_bytes: drive.map_memory_bytes(),
            budget_bytes: plan.bytes(),
            whole_bytes: plan.whole_bytes,
        })
    }

    /// For people.
    pub fn write(&self, text: &mut String) {
        let pages = thousands(self.pages.into());
        let in_memory = thousands(self.pages_in_memory.into());
        let changes = thousands(self.changes as u64);
        _ = writeln!(
            text,
            "  on media: {pages} pages, {in_memory} of them in memory, and {changes} changes beside them"
        );
        let [memory, budget, whole] = [self.memory_bytes, self.budget_bytes, self.whole_bytes].map(ByteSize);
        _ = writeln!(text, "  {memory} of memory, {budget} at most; the whole map takes {whole}");
    }
}
