//! LightLSM: tables of whole chunks beside a log area of blocks, for a database that is an LSM-tree.
//!
//! A table is written from front to back, there as a whole or not at all, read block by block, and deleted as a whole. Its
//! chunks hold nothing else, so deleting it comes down to erasing them: nothing is ever relocated to make room for tables. Only what
//! the medium is about to lose moves.
//!
//! ```text
//!   capacity of the block FTL                              chunks beyond it
//!   [ catalog | log area: 4 KiB blocks of the host ]       [ table ][ table ][ free ] …
//!        │ names the chunks of each table ─────────────────────▲
//! ```
//!
//! The rest of the drive is the block FTL as it is, with its transactions, log, checkpoints and garbage collection. It keeps
//! what is small: the log area, which the host uses as it likes, and in front of it the *catalog* ([`catalog`]), which says
//! what tables there are and where they lie. Chunks for tables come from the same [provisioning](openftl_parts::flash::provisioning), so wear is shared.
//!
//! # The life of a table, and what a crash after each step leaves
//! 1. **Begun**: it has *columns* ([`columns`]), parallel units that its write units go to in turns. *Crash: nothing of it.*
//! 2. **Written**: full units are on media or on their way. *Crash: chunks that nobody names; they are reset.*
//! 3. **Committed**: all of it is programmed, and then its entry is written to the catalog: a transaction of the block FTL, in
//!    order with all the others. *Crash: all of it or nothing of it.*
//! 4. **Deleted**: its entry is overwritten. *Crash: all of it or nothing of it.*
//! 5. **Released**: that is durable, nobody reads it any more, and its chunks are reset. A chunk that is not full
//!    cannot be reset; it goes on with the next table that has a column there.
//!
//! # Reads
//! A table is read at the unit of read, 4 KiB, whatever the unit of write: what crosses the device's interface for a
//! lookup is the blocks that it needs. Every block says which table it is of, and where in it ([`openftl_parts::flash::oob`]).
//!
//! | file | noun |
//! |---|---|
//! | [`columns`] | where tables go: horizontal, vertical, by load |
//! | `table` | one table: where each of its units is |
//! | [`catalog`] | what is on media beside the tables |
//! | `writing` | units of tables on their way, and their chunks afterwards |
//! | `moving` | what is weak of a table, on its way to another chunk |
//! | `releases` | what the catalog names no more, until nobody can need it |
//! | [`drive`] | the drive: what a host may ask |
//! | [`request`] | what it names, and what it is told |
//! | `finding` | what is found of tables when a drive is opened |
//! | `ftl` | the drive as one of many: made, opened, verified, stopped |
//! | `checking` | every block of every table, verified |
//! | `tenancy` | what the block FTL asks of tables, and tells them |
//! | `waits` | how long units wait, and for whom |
//! | `sizing` | how much flash a drive needs |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod catalog;
mod checking;
pub mod columns;
pub mod drive;
mod finding;
mod ftl;
mod moving;
mod releases;
pub mod request;
mod sizing;
mod table;
mod tenancy;
mod waits;
mod writing;

pub use catalog::CatalogError;
pub use columns::{TableLifetime, TablePlacement, Wish};
pub use drive::{TableFtl, TableStatistics, catalog_blocks};
pub use openftl_blocks::Ftl;
pub use request::{FoundEntry, TableDone, TableError, TableId};
pub use sizing::chunks_per_pu;
pub use waits::TableWaits;

use openftl_core::{ChunkId, Geometry, PuId};
use openftl_parts::flash::Flash;
use openftl_parts::flash::shares::TenantChunks;
use openftl_parts::flash::units::{OpenId, Units};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use table::Table;

/// Tables that may be written at a time.
pub const WRITING_MAX: usize = 32;

/// Every table of a drive, and the chunks of those that are no more.
pub struct Tables {
    /// Blocks of a write unit of a table: as WS_OPT, and a chunk is a whole number of them.
    pub(crate) unit_blocks: u32,
    slots: Vec<Option<Table>>,
    free_slots: Vec<u32>,
    /// Tables being written on each parallel unit, by [`PuId`].
    writers: Vec<u32>,
    /// Tables that were ended and are not wholly readable yet, or have units to be written again.
    unsettled: Vec<u32>,
    /// Chunks of tables that are not full.
    half_full: FxHashMap<ChunkId, OpenId>,
    /// Chunks that are partly written and of no table, by [`PuId`].
    partial: Vec<VecDeque<OpenId>>,
    /// Chunks that are of no table yet, or no more.
    coming_and_going: TenantChunks,
    /// Tables begun so far: the columns of the next one begin elsewhere.
    turns: u64,
    /// Chunks that should move, the one that does, and whether another try may succeed.
    weak: VecDeque<ChunkId>,
    moving: Option<moving::Move>,
    may_move: bool,
    /// A table was released, and its chunks are leaving.
    makes_room: bool,
    /// The host had no room for a table, and has had none since: it comes before what is weak.
    lacks_room: bool,
    waits: waits::Waits,
}

impl Tables {
    /// No table.
    pub(crate) fn new(geometry: &Geometry) -> Tables {
        let pus = geometry.format().pu_ids();
        Tables {
            unit_blocks: Units::whole_unit(geometry),
            slots: Vec::new(),
            free_slots: Vec::new(),
            writers: vec![0; pus],
            unsettled: Vec::new(),
            half_full: FxHashMap::default(),
            partial: vec![VecDeque::new(); pus],
            coming_and_going: TenantChunks::default(),
            turns: 0,
            weak: VecDeque::new(),
            moving: None,
            may_move: false,
            makes_room: false,
            lacks_room: false,
            waits: waits::Waits::default(),
        }
    }

    fn table(&self, slot: u32) -> &Table {
        self.slots[slot as usize].as_ref().expect("a slot that is named has a table")
    }

    fn table_mut(&mut self, slot: u32) -> &mut Table {
        self.slots[slot as usize].as_mut().expect("a slot that is named has a table")
    }

    fn add(&mut self, table: Table) -> u32 {
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = Some(table);
            return slot;
        }
        self.slots.push(Some(table));
        self.slots.len() as u32 - 1
    }

    fn remove(&mut self, slot: u32) -> Table {
        self.unsettled.retain(|other| *other != slot);
        self.free_slots.push(slot);
        self.slots[slot as usize].take().expect("a slot that is named has a table")
    }
}

impl Tables {
    /// Table chunks that are free, and rooms of partly written ones, on `pu`.
    pub(crate) fn chunks_on_pu(&self, flash: &Flash, pu: PuId) -> u32 {
        flash.provisioning.tenant_chunks_on_pu(pu) + self.partial[pu.0 as usize].len() as u32
    }
}
