//! Where a table goes: a pure function of what is known of it and of the drive.
//!
//! A table's units go round its *columns*, parallel units of the device, in their order.
//!
//! ```text
//!               group 0   group 1   group 2   group 3
//!               PU 0 1    PU 0 1    PU 0 1    PU 0 1
//!   horizontal   0 4       1 5       2 6       3 7      all parallel units, one group after the other
//!   vertical                         0 1                one group
//!   by load      0 2       1 3                          all groups while fewer tables than groups are written, or else half
//! ```
//!
//! **Horizontal** gives one writer all the dies, and lets every writer and reader wait for every other. **Vertical** gives each
//! writer a group that nobody else writes to, and no more than that. **By load** gives a table all the groups while fewer
//! tables than groups are being written, and then the half of the groups that is written to least, so that two tables need not
//! meet. Halves from half as many tables on were tried, and fewer groups for each of many tables; both are slower: a table keeps its
//! groups to its end, also when the others have ended, and RocksDB waits for the last of them (`openftl reproduce ox-lightlsm`).

use openftl_core::UnknownWord;
use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How tables are placed.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
    VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownWord, parse_err_fn = unknown)]
pub enum TablePlacement {
    /// Over all parallel units.
    Horizontal,
    /// Over those of one group.
    Vertical,
    /// Over all groups while fewer tables than groups are being written, or else over the half that is written to least.
    #[default]
    ByLoad,
}

impl TablePlacement {
    /// Every one.
    pub const ALL: &[TablePlacement] = <TablePlacement as VariantArray>::VARIANTS;

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

fn unknown(text: &str) -> UnknownWord {
    UnknownWord::new(text, "placement of tables", <TablePlacement as VariantNames>::VARIANTS)
}

/// How long a table is expected to live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableLifetime {
    /// Nobody said.
    #[default]
    Unknown,
    /// It will be gone soon: a flush.
    Short,
    /// Of an upper level.
    Medium,
    /// Of a level below.
    Long,
    /// Of the last level.
    Extreme,
}

/// What is known of a table before its first block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Wish {
    /// Blocks that it will have at most, if that is known.
    pub blocks: Option<u64>,
    /// How long it is expected to live.
    pub lifetime: TableLifetime,
}

/// One parallel unit, as a placement sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its group.
    pub group: u32,
    /// Its place in the group.
    pub place: u32,
    /// Chunks that a table may open there.
    pub chunks: u32,
    /// Tables that are being written there.
    pub writers: u32,
}

/// The columns of a table, as indices of `units`. Parallel units without a chunk are left out, so there may be none.
///
/// `writing` is the number of tables that are being written already, `turn` counts tables, so that not all begin at the same die, and
/// `unit_blocks` are the blocks of one write unit: a table has no more columns than it has units.
#[must_use]
pub fn columns(
    placement: TablePlacement,
    wish: Wish,
    units: &[Unit],
    writing: u32,
    turn: u64,
    unit_blocks: u32,
) -> Vec<usize> {
    let groups = units.iter().map(|unit| unit.group + 1).max().unwrap_or(0);
    let chosen = match placement {
        TablePlacement::Horizontal => groups,
        TablePlacement::Vertical => 1,
        TablePlacement::ByLoad if writing < groups => groups,
        TablePlacement::ByLoad => groups.div_ceil(2),
    };
    let mut order: Vec<u32> = (0..groups).collect();
    // The least busy groups, among them the roomiest, among them by turns.
    let sum = |group: u32, of: fn(&Unit) -> u32| units.iter().filter(|unit| unit.group == group).map(of).sum::<u32>();
    order.rotate_left((turn % u64::from(groups.max(1))) as usize);
    if chosen < groups {
        order.sort_by_key(|group| {
            let (chunks, writers) = (sum(*group, |unit| unit.chunks), sum(*group, |unit| unit.writers));
            (chunks == 0, writers, u32::MAX - chunks)
        });
        order.truncate(chosen as usize);
    }
    let mut columns: Vec<usize> =
        (0..units.len()).filter(|index| units[*index].chunks > 0 && order.contains(&units[*index].group)).collect();
    let rank = |group: u32| order.iter().position(|other| *other == group);
    columns.sort_by_key(|index| (units[*index].place, rank(units[*index].group)));
    if let Some(blocks) = wish.blocks {
        columns.truncate(blocks.div_ceil(u64::from(unit_blocks)).max(1).try_into().unwrap_or(usize::MAX));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(groups: u32, pus: u32) -> Vec<Unit> {
        (0..groups).flat_map(|group| (0..pus).map(move |place| Unit { group, place, chunks: 8, writers: 0 })).collect()
    }

    fn place(placement: TablePlacement, units: &[Unit], writing: u32, turn: u64) -> Vec<(u32, u32)> {
        let columns = columns(placement, Wish::default(), units, writing, turn, 24);
        columns.into_iter().map(|index| (units[index].group, units[index].place)).collect()
    }

    #[test]
    fn horizontal_goes_round_all_groups_before_it_comes_to_a_second_die_of_one() {
        let found = place(TablePlacement::Horizontal, &units(3, 2), 5, 0);
        assert_eq!(found, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
        let next = place(TablePlacement::Horizontal, &units(3, 2), 5, 1);
        assert_eq!(next[..3], [(1, 0), (2, 0), (0, 0)], "the next table begins elsewhere");
    }

    #[test]
    fn vertical_takes_the_group_that_is_written_to_least() {
        let mut units = units(4, 2);
        for unit in units.iter_mut().filter(|unit| unit.group != 2) {
            unit.writers = 1;
        }
        for turn in 0..8 {
            assert_eq!(place(TablePlacement::Vertical, &units, 3, turn), [(2, 0), (2, 1)]);
        }
    }

    #[test]
    fn by_load_is_horizontal_for_few_writers_and_the_less_busy_half_for_more() {
        let (mut units, turn) = (units(8, 4), 3);
        let groups = |units: &[Unit], writing| {
            let mut groups: Vec<u32> =
                place(TablePlacement::ByLoad, units, writing, turn).iter().map(|at| at.0).collect();
            groups.sort_unstable();
            groups.dedup();
            groups
        };
        assert_eq!([0, 3, 7, 8, 20].map(|writing| groups(&units, writing).len()), [8, 8, 8, 4, 4]);
        for unit in units.iter_mut().filter(|unit| unit.group % 2 == 0) {
            unit.writers = 1;
        }
        assert_eq!(groups(&units, 8), [1, 3, 5, 7], "where nobody writes yet");
    }

    #[test]
    fn a_parallel_unit_without_chunks_is_left_out_and_so_is_a_group() {
        let mut units = units(2, 2);
        units[1].chunks = 0;
        assert_eq!(place(TablePlacement::Horizontal, &units, 0, 0), [(0, 0), (1, 0), (1, 1)]);
        units[0].chunks = 0;
        assert_eq!(place(TablePlacement::Vertical, &units, 0, 0), [(1, 0), (1, 1)]);
        units.iter_mut().for_each(|unit| unit.chunks = 0);
        assert!(place(TablePlacement::ByLoad, &units, 0, 0).is_empty(), "no room at all");
    }

    #[test]
    fn a_small_table_has_no_more_columns_than_units() {
        let wish = |blocks| Wish { blocks: Some(blocks), ..Wish::default() };
        let count = |blocks| columns(TablePlacement::Horizontal, wish(blocks), &units(4, 4), 0, 0, 24).len();
        assert_eq!([0, 1, 24, 25, 1000].map(count), [1, 1, 1, 2, 16]);
    }

    #[test]
    fn words_are_read_back() {
        for &placement in TablePlacement::ALL {
            assert_eq!(placement.word().parse(), Ok(placement));
        }
        let error = "diagonal".parse::<TablePlacement>().unwrap_err().to_string();
        assert_eq!(error, "\"diagonal\" is no placement of tables: choose horizontal, vertical or by-load");
    }
}
