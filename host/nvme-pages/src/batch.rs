//! A batch that grows: its next part, as it is gathered.

use openftl_nvme::command::pages::{PageCommand, PagePart};
use openftl_nvme::wire::pages::{ChangeEntry, DirectoryHead};
use openftl_pages::{Change, StoreFailure};
use openftl_parts::target::Durability;
use zerocopy::IntoBytes;

/// See the module.
#[derive(Default)]
pub(crate) struct Batch {
    entries: Vec<ChangeEntry>,
    payload: Vec<u8>,
    /// The number of the next part.
    next: u16,
    /// Parts that are under way.
    pub under_way: usize,
    /// Why it cannot be committed.
    pub failure: Option<StoreFailure>,
}

/// A part on its way.
pub(crate) struct Part {
    pub command: PageCommand,
    pub data: Vec<u8>,
    /// Its pages and their bytes.
    pub changes: Vec<(u64, u32)>,
}

impl Batch {
    /// Bytes of the next part with another change of so many bytes.
    pub fn bytes_with(&self, bytes: usize) -> usize {
        size_of::<DirectoryHead>() + (self.entries.len() + 1) * size_of::<ChangeEntry>() + self.payload.len() + bytes
    }

    pub fn has_changes(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Adds a change of a page, if its bytes can be counted.
    pub fn push(&mut self, lpid: u64, change: Change<'_>, if_version: Option<u64>) {
        let before = self.payload.len();
        let mut flags = if if_version.is_some() { ChangeEntry::CONDITIONAL } else { 0 };
        match change {
            Change::Put(pieces) => pieces.iter().for_each(|piece| self.payload.extend_from_slice(piece)),
            Change::Delete => flags |= ChangeEntry::DELETE,
        }
        self.entries.push(ChangeEntry {
            lpid: lpid.into(),
            bytes: ((self.payload.len() - before) as u32).into(),
            flags: flags.into(),
            if_version: if_version.unwrap_or(0).into(),
        });
    }

    /// What was gathered, as a part; the last one commits. `None`: a batch has no more parts.
    pub fn take_part(&mut self, session: u32, wsn: u64, commit: Option<Durability>) -> Option<Part> {
        let part = self.next;
        self.next = part.checked_add(1)?;
        let mut data = Vec::new();
        if self.has_changes() {
            let head = DirectoryHead { changes: (self.entries.len() as u32).into(), reserved: 0.into() };
            data.reserve_exact(size_of_val(&head) + self.entries.len() * size_of::<ChangeEntry>() + self.payload.len());
            data.extend_from_slice(head.as_bytes());
            data.extend_from_slice(self.entries.as_bytes());
            data.extend_from_slice(&self.payload);
        }
        let changes = self.entries.drain(..).map(|entry| (entry.lpid.get(), entry.bytes.get())).collect();
        self.payload.clear();
        let bytes = data.len() as u32;
        let command = PageCommand::Write(PagePart { session, wsn, part, bytes, commit });
        Some(Part { command, data, changes })
    }
}
