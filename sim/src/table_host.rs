//! What a host does with a table drive: one step, or a mix of everything.

use crate::played::Played;
use crate::stage::Stage;
use crate::step::{Deed, DeedKind};
use crate::table_contents::NOTE_BYTES_MIN;
use crate::table_world::TableWorld;
use openftl_parts::Durability;
use openftl_tables::{TableLifetime, Wish};

impl TableWorld {
    /// Does something with a table, if there is one that it can be done with.
    pub fn perform(&mut self, Deed { kind, pick, size }: Deed) {
        let picked = |among: &[u32]| (!among.is_empty()).then(|| among[pick as usize % among.len()]);
        let note_bytes = NOTE_BYTES_MIN + size as usize;
        match kind {
            DeedKind::Begin => {
                let lifetimes =
                    [TableLifetime::Unknown, TableLifetime::Short, TableLifetime::Medium, TableLifetime::Extreme];
                let lifetime = lifetimes[pick as usize % lifetimes.len()];
                self.begin(Wish { blocks: Some(size.into()).filter(|blocks| *blocks > 0), lifetime });
            }
            DeedKind::Append => _ = picked(&self.being_written()).map(|table| self.append(table, size)),
            DeedKind::Commit => _ = picked(&self.being_written()).map(|table| self.commit(table, note_bytes)),
            DeedKind::Abandon => _ = picked(&self.being_written()).map(|table| self.abandon(table)),
            DeedKind::Note => _ = picked(&self.committed()).map(|table| self.put(table, note_bytes)),
            DeedKind::Delete => _ = picked(&self.committed()).map(|table| self.delete(table)),
            DeedKind::Pin => _ = picked(&self.committed()).map(|table| self.pin(table)),
            DeedKind::Unpin => _ = picked(&self.pinned()).map(|table| self.unpin(table)),
            DeedKind::Read => {
                let Some(table) = picked(&self.readable()) else { return };
                let blocks = self.blocks_of(table);
                if blocks > 0 {
                    let first = pick.wrapping_mul(31) % blocks;
                    self.read(table, first, size.clamp(1, blocks - first));
                }
            }
            DeedKind::PutFile => {
                let number = self.files().get(pick as usize % self.files().len().max(1)).copied();
                self.put_file(number.filter(|_| !pick.is_multiple_of(2)), note_bytes);
            }
            DeedKind::DeleteFile => {
                if let Some(number) = self.files().get(pick as usize % self.files().len().max(1)).copied() {
                    self.delete_file(number);
                }
            }
        }
    }

    /// One more of a mix of all requests.
    pub fn submit_any(&mut self) {
        let pick = |world: &mut TableWorld, among: Vec<u32>| match among.len() as u64 {
            0 => None,
            count => Some(among[world.below(count) as usize]),
        };
        match self.below(100) {
            0..12 => {
                let wish = match self.below(3) {
                    0 => Wish { blocks: Some(1 + self.below(60)), ..Wish::default() },
                    _ => Wish::default(),
                };
                if self.being_written().len() < 6 {
                    self.begin(wish);
                }
            }
            12..45 => {
                let blocks = 1 + self.below(30) as u32;
                if let Some(table) = pick(self, self.being_written()) {
                    self.append(table, blocks);
                }
            }
            45..53 => {
                let bytes = self.note_bytes();
                if let Some(table) = pick(self, self.being_written()) {
                    self.commit(table, bytes);
                }
            }
            53..55 => {
                if let Some(table) = pick(self, self.being_written()) {
                    self.abandon(table);
                }
            }
            55..59 => {
                let bytes = self.note_bytes();
                if let Some(table) = pick(self, self.committed()) {
                    self.put(table, bytes);
                }
            }
            59..61 => {
                let bytes = self.note_bytes();
                let number = self.files().first().copied().filter(|_| self.tags.is_multiple_of(2));
                self.put_file(number, bytes);
            }
            61 => {
                if let Some(number) = self.files().first().copied() {
                    self.delete_file(number);
                }
            }
            62..69 => {
                // About as many as are committed, so that there is room.
                if let Some(table) = pick(self, self.committed()) {
                    self.delete(table);
                }
            }
            69 => {
                if let Some(table) = pick(self, self.committed()) {
                    self.pin(table);
                }
            }
            70..73 => {
                if let Some(table) = pick(self, self.pinned()) {
                    self.unpin(table);
                }
            }
            73..84 => {
                if let Some(table) = pick(self, self.readable()) {
                    let blocks = self.blocks_of(table);
                    if blocks > 0 {
                        let first = self.below(blocks.into()) as u32;
                        let count = 1 + self.below((blocks - first).min(100).into()) as u32;
                        self.read(table, first, count);
                    }
                }
            }
            84..93 => {
                let (first, blocks) = self.block_world().range(12);
                let durability = if self.below(8) == 0 { Durability::Durable } else { Durability::Volatile };
                self.block_world().submit_write(first, blocks, durability);
            }
            93..95 => {
                let (first, blocks) = self.block_world().range(20);
                self.block_world().submit_trim(first, blocks, Durability::Volatile);
            }
            95..98 => {
                let (first, blocks) = self.block_world().range(16);
                self.block_world().submit_read(first, blocks);
            }
            _ => _ = self.block_world().submit_flush(),
        }
    }

    fn note_bytes(&mut self) -> usize {
        match self.below(8) {
            0 => NOTE_BYTES_MIN + self.below(9_000) as usize,
            _ => NOTE_BYTES_MIN + self.below(60) as usize,
        }
    }

    /// One more request, with up to `depth` under way.
    pub fn operation(&mut self, depth: usize) {
        self.submit_any();
        while self.requests_under_way() >= depth {
            self.pump();
        }
    }
}
