//! What the catalog names no more, until nobody can need it: deleted tables, chunks whose part of a table has moved, and tables that were given up.
//!
//! Something is released when the change that took it out of the catalog is durable, and nobody reads it. Changes are acknowledged in one order, and a
//! flush makes durable what was acknowledged before it, so the number of changes says which of them are.

use super::Tables;
use super::request::TableId;
use openftl_core::ChunkId;
use openftl_parts::canary::Canary;
use openftl_parts::flash::Flash;
use rustc_hash::FxHashMap;

/// What the catalog names no more.
#[derive(Clone, Copy)]
pub(crate) enum Unnamed {
    Table(TableId),
    /// A chunk that was of a table, all of which has moved.
    Chunk(ChunkId),
}

/// What is released when nobody can need it any more.
#[derive(Clone, Copy)]
struct Doomed {
    what: Unnamed,
    /// The change that took it out, until that is acknowledged; then the number of changes acknowledged by then.
    change: Option<u64>,
    acknowledged: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Releases {
    doomed: Vec<Doomed>,
    /// Tables that were given up and still have units on their way.
    abandoned: Vec<u32>,
    pins: FxHashMap<u64, u32>,
    /// Changes acknowledged, and how many of them are durable.
    acknowledged: u64,
    durable: u64,
}

impl Releases {
    /// How many there are.
    pub(crate) fn waiting(&self) -> usize {
        self.doomed.len() + self.abandoned.len()
    }

    /// A change under way takes something out of the catalog.
    pub(crate) fn add(&mut self, what: Unnamed, change: u64) {
        self.doomed.push(Doomed { what, change: Some(change), acknowledged: 0 });
    }

    /// A table was given up that was never in the catalog.
    pub(crate) fn give_up(&mut self, slot: u32) {
        self.abandoned.push(slot);
    }

    /// A change of the catalog is acknowledged.
    pub(crate) fn acknowledge(&mut self, change: u64) {
        self.acknowledged += 1;
        for doomed in self.doomed.iter_mut().filter(|doomed| doomed.change == Some(change)) {
            (doomed.change, doomed.acknowledged) = (None, self.acknowledged);
        }
    }

    /// Changes acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// So many changes are durable.
    pub(crate) fn are_durable(&mut self, changes: u64) {
        self.durable = self.durable.max(changes);
    }

    /// A table is not released until it is unpinned as often.
    pub(crate) fn pin(&mut self, table: TableId) {
        *self.pins.entry(table.number).or_default() += 1;
    }

    /// Gives whether that was the last pin.
    pub(crate) fn unpin(&mut self, table: TableId) -> bool {
        let Some(pins) = self.pins.get_mut(&table.number) else { return false };
        *pins -= 1;
        let is_last = *pins == 0;
        if is_last {
            self.pins.remove(&table.number);
        }
        is_last
    }

    fn is_pinned(&self, what: Unnamed) -> bool {
        matches!(what, Unnamed::Table(table) if self.pins.contains_key(&table.number))
    }

    /// Whether there is something that nobody reads, and has not been released.
    pub(crate) fn has_unread(&self) -> bool {
        self.doomed.iter().any(|doomed| !self.is_pinned(doomed.what))
    }

    /// Whether a flush lets something be released. None makes a deletion durable that is not acknowledged yet.
    pub(crate) fn wants_flush(&self) -> bool {
        let is_acknowledged = |doomed: &Doomed| doomed.change.is_none() && doomed.acknowledged > self.durable;
        self.doomed.iter().any(|doomed| is_acknowledged(doomed) && !self.is_pinned(doomed.what))
    }

    /// Releases what nobody can need any more. Returns whether there was any.
    pub(crate) fn release(&mut self, tables: &mut Tables, flash: &mut Flash) -> bool {
        let mut has_acted = false;
        for at in (0..self.doomed.len()).rev() {
            let Doomed { what, change, acknowledged } = self.doomed[at];
            let is_early = matches!(what, Unnamed::Chunk(_)) && flash.bugs.has(Canary::ReleaseBeforeCatalog);
            let is_durable = change.is_none() && acknowledged <= self.durable;
            if (is_durable || is_early) && !self.is_pinned(what) {
                self.doomed.swap_remove(at);
                match what {
                    Unnamed::Table(table) => tables.release(flash, table.slot),
                    Unnamed::Chunk(chunk) => tables.release_moved_chunk(flash, chunk),
                }
                has_acted = true;
            }
        }
        for at in (0..self.abandoned.len()).rev() {
            let slot = self.abandoned[at];
            if tables.is_at_rest(slot) {
                self.abandoned.swap_remove(at);
                tables.release(flash, slot);
                has_acted = true;
            }
        }
        has_acted
    }
}
