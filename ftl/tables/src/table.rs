//! One table: where each of its write units is.
//!
//! In memory that is a word for each unit. On media it is a list of [`Run`]s: the units of one chunk, which are as far apart
//! in the table as it had columns. A table whose programs all succeeded has one run a chunk; a unit that had to be written
//! elsewhere is a run of its own.

use openftl_core::{AddressFormat, ChunkId, Frame, Ppa, PuId};
use openftl_parts::flash::units::{OpenId, UnitId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Where a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnitPlace {
    /// There, and it can be read.
    Media(Ppa),
    /// On its way; it is read from its frames.
    UnderWay(UnitId),
    /// Its program failed, and it waits in [`Writing::again`].
    Again,
}

const UNDER_WAY: u32 = 1 << 31;
const AGAIN: u32 = u32::MAX;

/// A [`UnitPlace`] in four bytes: an address has 31 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Packed(u32);

impl Packed {
    fn of(place: UnitPlace) -> Packed {
        Packed(match place {
            UnitPlace::Media(ppa) => ppa.0 as u32,
            UnitPlace::UnderWay(unit) => UNDER_WAY | unit.0,
            UnitPlace::Again => AGAIN,
        })
    }

    #[inline]
    fn place(self) -> UnitPlace {
        match self.0 {
            AGAIN => UnitPlace::Again,
            word if word & UNDER_WAY != 0 => UnitPlace::UnderWay(UnitId(word & !UNDER_WAY)),
            word => UnitPlace::Media(Ppa(word.into())),
        }
    }
}

/// Units of a table that lie one behind the other in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The chunk.
    pub chunk: ChunkId,
    /// The first block of the first unit in it.
    pub first: u32,
    /// How many units.
    pub units: u32,
    /// The first of them in the table.
    pub unit: u32,
    /// From one to the next in the table.
    pub stride: u32,
}

/// A parallel unit that units of a table go to.
pub(crate) struct Column {
    pub(crate) pu: PuId,
    pub(crate) open: Option<OpenId>,
}

/// What there is of a table only while it is written.
pub(crate) struct Writing {
    pub(crate) columns: Vec<Column>,
    /// The column of the next unit.
    pub(crate) next: usize,
    /// Blocks of the next unit so far.
    pub(crate) filling: Vec<Frame>,
    /// Units that are not programmed yet.
    pub(crate) unprogrammed: u32,
    /// Units that cannot be read yet.
    pub(crate) unreadable: u32,
    /// Units whose program failed, and their blocks.
    pub(crate) again: VecDeque<(u32, Vec<Frame>)>,
    /// Nothing more will be appended.
    pub(crate) is_ended: bool,
    /// A unit can be written nowhere.
    pub(crate) has_failed: bool,
    /// Nothing of it will be needed.
    pub(crate) is_abandoned: bool,
    /// Chunks that were full or failed, and belong to the table.
    pub(crate) open: Vec<OpenId>,
}

/// A table.
pub(crate) struct Table {
    /// Of all tables that this drive has had; each of its blocks says it.
    pub(crate) number: u64,
    /// Blocks appended.
    pub(crate) blocks: u32,
    units: Vec<Packed>,
    /// Its chunks.
    pub(crate) chunks: Vec<ChunkId>,
    /// It is in the catalog no more.
    pub(crate) is_deleted: bool,
    pub(crate) writing: Option<Box<Writing>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(number: u64, columns: impl Iterator<Item = PuId>) -> Table {
        let writing = Writing {
            columns: columns.map(|pu| Column { pu, open: None }).collect(),
            next: 0,
            filling: Vec::new(),
            unprogrammed: 0,
            unreadable: 0,
            again: VecDeque::new(),
            is_ended: false,
            has_failed: false,
            is_abandoned: false,
            open: Vec::new(),
        };
        Table {
            number,
            blocks: 0,
            units: Vec::new(),
            chunks: Vec::new(),
            is_deleted: false,
            writing: Some(Box::new(writing)),
        }
    }

    /// The table that the catalog describes, or `None` if its runs are not each of its units once.
    pub(crate) fn from_runs(
        number: u64,
        blocks: u32,
        unit_blocks: u32,
        format: AddressFormat,
        runs: &[Run],
    ) -> Option<Table> {
        let count = blocks.div_ceil(unit_blocks) as usize;
        // Before memory is taken for as many as it says.
        if runs.iter().map(|run| u64::from(run.units)).sum::<u64>() != count as u64 {
            return None;
        }
        let mut units = vec![Packed(AGAIN); count];
        let mut chunks: Vec<ChunkId> = Vec::new();
        for run in runs {
            for index in 0..run.units {
                let unit = run.unit.checked_add(index.checked_mul(run.stride)?)?;
                let place = units.get_mut(unit as usize).filter(|place| place.0 == AGAIN)?;
                let ppa = format.ppa(run.chunk, run.first.checked_add(index.checked_mul(unit_blocks)?)?);
                *place = Packed::of(UnitPlace::Media(ppa));
            }
            chunks.push(run.chunk);
        }
        chunks.sort_unstable();
        chunks.dedup();
        // As many as it has, and none of them twice: that is all of them.
        Some(Table { number, blocks, units, chunks, is_deleted: false, writing: None })
    }

    /// Its runs, if all of it is on media. The order is that of their first units.
    pub(crate) fn runs(&self, unit_blocks: u32, format: AddressFormat) -> Option<Vec<Run>> {
        runs(&self.units, unit_blocks, format)
    }

    /// The same if these units were there instead.
    pub(crate) fn runs_with(
        &self,
        places: impl Iterator<Item = (u32, UnitPlace)>,
        unit_blocks: u32,
        format: AddressFormat,
    ) -> Option<Vec<Run>> {
        let mut units = self.units.clone();
        for (unit, place) in places {
            units[unit as usize] = Packed::of(place);
        }
        runs(&units, unit_blocks, format)
    }

    /// Where unit `unit` is.
    #[inline]
    pub(crate) fn place(&self, unit: u32) -> UnitPlace {
        self.units[unit as usize].place()
    }

    /// From now on unit `unit` is there.
    pub(crate) fn set_place(&mut self, unit: u32, place: UnitPlace) {
        if unit as usize == self.units.len() {
            self.units.push(Packed::of(place));
        } else {
            self.units[unit as usize] = Packed::of(place);
        }
    }

    /// Units begun.
    pub(crate) fn units(&self) -> u32 {
        self.units.len() as u32
    }

    pub(crate) fn writing(&mut self) -> &mut Writing {
        self.writing.as_mut().expect("a table that is being written")
    }
}

fn runs(units: &[Packed], unit_blocks: u32, format: AddressFormat) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last_of: FxHashMap<ChunkId, usize> = FxHashMap::default();
    for (unit, packed) in (0..).zip(units) {
        let UnitPlace::Media(ppa) = packed.place() else { return None };
        let (chunk, first) = (format.chunk_of(ppa), format.block_of(ppa));
        if let Some(run) = last_of.get(&chunk).map(|index| &mut runs[*index]) {
            let stride = unit - (run.unit + (run.units - 1) * run.stride);
            let is_next = first == run.first + run.units * unit_blocks;
            if is_next && (run.units == 1 || run.stride == stride) {
                (run.stride, run.units) = (stride, run.units + 1);
                continue;
            }
        }
        last_of.insert(chunk, runs.len());
        runs.push(Run { chunk, first, units: 1, unit, stride: 1 });
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Geometry;

    const UNIT: u32 = 4;

    fn table(places: &[(u32, u32)]) -> Table {
        let format = Geometry::tiny().format();
        let mut table = Table::new(7, std::iter::empty());
        for (unit, (chunk, row)) in (0..).zip(places) {
            table.set_place(unit, UnitPlace::Media(format.ppa(ChunkId(*chunk), row * UNIT)));
        }
        table.blocks = places.len() as u32 * UNIT;
        table
    }

    fn check(places: &[(u32, u32)], runs: usize) {
        let (format, table) = (Geometry::tiny().format(), table(places));
        let found = table.runs(UNIT, format).unwrap();
        assert_eq!(found.len(), runs, "{found:?}");
        let again = Table::from_runs(7, table.blocks, UNIT, format, &found).unwrap();
        assert!(again.units == table.units, "{found:?}");
    }

    #[test]
    fn a_table_of_two_columns_is_a_run_a_chunk() {
        check(&[(0, 0), (8, 0), (0, 1), (8, 1), (0, 2)], 2);
        check(&[(0, 0), (8, 0), (0, 1), (8, 1), (0, 2), (8, 2), (0, 3), (8, 3), (1, 0), (9, 0)], 4);
    }

    #[test]
    fn a_unit_that_was_written_elsewhere_is_a_run_of_its_own() {
        // Unit 1 failed in chunk 8 and came behind unit 4.
        check(&[(0, 0), (8, 3), (0, 1), (8, 1), (0, 2), (8, 2)], 3);
    }

    #[test]
    fn runs_that_are_not_every_unit_once_are_no_table() {
        let format = Geometry::tiny().format();
        let run = |unit, units, stride| Run { chunk: ChunkId(0), first: 0, units, unit, stride };
        let is_table = |runs: &[Run]| Table::from_runs(1, 4 * UNIT, UNIT, format, runs).is_some();
        assert!(is_table(&[run(0, 4, 1)]));
        assert!(is_table(&[run(0, 2, 2), run(1, 2, 2)]));
        assert!(!is_table(&[run(0, 3, 1)]), "one is missing");
        assert!(!is_table(&[run(0, 4, 1), run(3, 1, 1)]), "one is there twice");
        assert!(!is_table(&[run(0, 2, u32::MAX), run(1, 3, 1)]), "one is far beyond the end");
        assert!(!is_table(&[run(1, 4, 1)]));
        let largest = Table::from_runs(1, u32::MAX, 1, format, &[run(0, 4, 1)]);
        assert!(largest.is_none(), "it says that it has far more than its runs");
    }
}
