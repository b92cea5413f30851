//! A picture of a drive's flash: a row for each parallel unit, a character for each chunk or for a few of them.
//!
//! ```text
//!   g0 p0  SS▒▒▓█▓▒░L▒··············
//!   g1 p0  SSC▓▓▒▒▒▒▓▓··············
//! ```

use crate::terminal::{Ink, Palette};
use openftl_blocks::BlockFtl;
use openftl_core::{ChunkId, Geometry};
use openftl_media::Media;
use openftl_parts::flash::chunk_table::ChunkUse;
use std::collections::HashSet;
use std::fmt::Write;

/// What a chunk is used for, as the picture tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Nothing in it.
    Free,
    /// Being written with data.
    Open,
    /// Data.
    Data,
    /// A part of a table.
    Table,
    /// Being collected or reset.
    Collected,
    Log,
    Checkpoint,
    /// Pages of a map that is kept on media.
    Map,
    Superblock,
    /// Offline, or retired by the FTL.
    Bad,
}

/// One chunk of the picture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    pub chunk: ChunkId,
    pub mark: Mark,
    /// Valid blocks, as a share of the chunk.
    pub valid: f64,
}

/// What each chunk is used for, metadata told apart by what the superblock names.
pub fn cells<M: Media>(drive: &BlockFtl<M>) -> Vec<Cell> {
    let superblock = drive.superblock();
    let log: HashSet<u32> = superblock.log_chunks.iter().flatten().copied().collect();
    let checkpoint: HashSet<u32> = superblock.checkpoint.extents().map(|extent| extent.chunk).collect();
    let blocks = f64::from(drive.media().geometry().blocks_per_chunk);
    let mark = |chunk: ChunkId, usage| match usage {
        ChunkUse::Retired => Mark::Bad,
        ChunkUse::Free => Mark::Free,
        ChunkUse::Open => Mark::Open,
        ChunkUse::Closed => Mark::Data,
        ChunkUse::Tenant => Mark::Table,
        ChunkUse::Victim | ChunkUse::Resetting => Mark::Collected,
        ChunkUse::Metadata if log.contains(&chunk.0) => Mark::Log,
        ChunkUse::Metadata if checkpoint.contains(&chunk.0) => Mark::Checkpoint,
        ChunkUse::Metadata if drive.has_map_pages_in(chunk) => Mark::Map,
        ChunkUse::Metadata => Mark::Superblock,
    };
    drive
        .chunk_uses()
        .map(|(chunk, usage, valid)| Cell { chunk, mark: mark(chunk, usage), valid: f64::from(valid) / blocks })
        .collect()
}

/// Characters of a row.
const CELLS_MAX: usize = 64;

/// Rows of the picture; a drive with more parallel units shows the first ones.
const ROWS_MAX: usize = 32;

const LEGEND: &str = "· free  o open  ░▒▓█ data, by how much of it is valid  v being collected\nL log  C checkpoint  M map  S superblock  T table  x bad";

/// The picture. `cells` are in the order of [`Geometry::chunk_ids`].
pub fn draw(cells: &[Cell], geometry: &Geometry, palette: Palette) -> String {
    let mut text = String::new();
    let per_pu = geometry.chunks_per_pu as usize;
    let bucket = per_pu.div_ceil(CELLS_MAX).max(1);
    let format = geometry.format();
    for row in cells.chunks(per_pu).take(ROWS_MAX) {
        let address = format.unpack_chunk(row[0].chunk);
        let picture: String = row.chunks(bucket).map(character).collect();
        _ = writeln!(text, "  g{:<2} p{:<2} {}", address.group, address.pu, palette.paint(Ink::Picture, &picture));
    }
    let left = (geometry.pus() as usize).saturating_sub(ROWS_MAX);
    if left > 0 {
        _ = writeln!(text, "  … and {left} more parallel units; --json has them all");
    }
    let scale = if bucket > 1 {
        format!("a character stands for {bucket} chunks; what most of them are is shown\n")
    } else {
        String::new()
    };
    for line in format!("{scale}{LEGEND}").lines() {
        _ = writeln!(text, "  {}", palette.paint(Ink::Dim, line));
    }
    text
}

/// What is shown for a few neighbouring chunks: what most of them are, the rarer if there is a tie; data as full as their mean.
fn character(cells: &[Cell]) -> char {
    let count = |mark| cells.iter().filter(|cell| cell.mark == mark).count();
    // A bad chunk is worth seeing even among many good ones.
    let notable = Some(Mark::Bad).filter(|&mark| count(mark) > 0);
    let order = [
        Mark::Superblock,
        Mark::Checkpoint,
        Mark::Map,
        Mark::Log,
        Mark::Collected,
        Mark::Open,
        Mark::Table,
        Mark::Data,
        Mark::Free,
    ];
    let most =
        notable.unwrap_or_else(|| order.into_iter().rev().max_by_key(|&mark| count(mark)).expect("there are marks"));
    match most {
        Mark::Free => '·',
        Mark::Open => 'o',
        Mark::Collected => 'v',
        Mark::Log => 'L',
        Mark::Checkpoint => 'C',
        Mark::Map => 'M',
        Mark::Superblock => 'S',
        Mark::Table => 'T',
        Mark::Bad => 'x',
        Mark::Data => {
            let data = cells.iter().filter(|cell| cell.mark == Mark::Data);
            let mean = data.map(|cell| cell.valid).sum::<f64>() / count(Mark::Data) as f64;
            ['░', '▒', '▓', '█'][((mean * 4.0) as usize).min(3)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn cells(geometry: &Geometry, of: impl Fn(usize) -> (Mark, f64)) -> Vec<Cell> {
        let chunks = geometry.chunk_ids().enumerate();
        chunks
            .map(|(index, chunk)| {
                let (mark, valid) = of(index);
                Cell { chunk, mark, valid }
            })
            .collect()
    }

    #[test]
    fn a_small_drive_has_a_character_for_each_chunk() {
        let geometry = Geometry::tiny();
        let cells = cells(&geometry, |index| match index {
            0 | 1 => (Mark::Superblock, 0.0),
            9 => (Mark::Log, 0.0),
            10 => (Mark::Bad, 0.0),
            12..=20 => (Mark::Data, (index - 12) as f64 / 8.0),
            25 => (Mark::Open, 0.5),
            26 => (Mark::Table, 0.0),
            _ => (Mark::Free, 0.0),
        });
        expect![[r#"
            chunks
              g0  p0  SS······
              g0  p1  ·Lx·░░▒▒
              g1  p0  ▓▓███···
              g1  p1  ·oT·····
              · free  o open  ░▒▓█ data, by how much of it is valid  v being collected
              L log  C checkpoint  M map  S superblock  T table  x bad
        "#]]
        .assert_eq(&format!("chunks\n{}", draw(&cells, &geometry, Palette::PLAIN)));
    }

    #[test]
    fn a_large_drive_shows_what_most_chunks_are_and_every_bad_one() {
        let geometry = Geometry { groups: 1, pus_per_group: 1, chunks_per_pu: 256, ..Geometry::tiny() };
        let cells = cells(&geometry, |index| match index {
            7 => (Mark::Bad, 0.0),
            8..=127 => (Mark::Data, 0.8),
            _ => (Mark::Free, 0.0),
        });
        let picture = draw(&cells, &geometry, Palette::PLAIN);
        let row = picture.lines().next().unwrap();
        assert_eq!(row, format!("  g0  p0  ·x{}{}", "█".repeat(30), "·".repeat(32)));
        assert!(picture.contains("a character stands for 4 chunks"), "{picture}");
    }
}
