//! What is found of tables when a drive is opened: the catalog is read, its tables take over their chunks, and those that are of
//! none are released.

use super::Tables;
use super::catalog::{CatalogError, Reader, TableRuns};
use super::table::Table;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::Clock;
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::shares::FoundChunk;
use openftl_parts::map::Place;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::IoError;

/// Blocks of the catalog that are read at a time when a drive is opened.
const READ_BLOCKS: u32 = 64;

/// Reads every block of the catalog that was ever written.
pub(crate) fn read_catalog(
    ftl: &mut BlockFtl,
    clock: &mut dyn Clock,
    tables: &mut Tables,
) -> Result<Reader, OpenError> {
    let mut reader = Reader::default();
    let blocks = ftl.config().catalog_blocks;
    let count = READ_BLOCKS.min(blocks);
    for first in (0..blocks).step_by(count as usize) {
        let wanted =
            (first..(first + count).min(blocks)).filter(|block| ftl.place(u64::from(*block)) != Some(Place::Unmapped));
        let wanted: Vec<u64> = wanted.map(u64::from).collect();
        let frames = ftl.read_blocks(&wanted, clock, tables)?.map_err(lost)?;
        for (block, frame) in wanted.iter().zip(frames) {
            reader.take(*block as u32, ftl.flash.frames.bytes(frame))?;
            ftl.flash.frames.release(frame);
        }
    }
    Ok(reader)
}

fn lost(error: IoError) -> CatalogError {
    CatalogError::Lost { block: error.block().unwrap_or(0) as u32, reason: error.to_string() }
}

impl Tables {
    /// Takes over a table that the catalog describes.
    pub(crate) fn adopt(&mut self, flash: &mut Flash, number: u64, found: &TableRuns) -> Result<u32, CatalogError> {
        let wrong = |reason: String| CatalogError::Entry { number, block: 0, reason };
        let unit_blocks = self.unit_blocks;
        for run in &found.runs {
            let end = u64::from(run.first) + u64::from(run.units) * u64::from(unit_blocks);
            if !flash.geometry.has_chunk(run.chunk) || end > u64::from(flash.geometry.blocks_per_chunk) {
                return Err(wrong(format!("{run:?} is beyond the device")));
            }
        }
        let table = Table::from_runs(number, found.blocks, unit_blocks, flash.format, &found.runs);
        let table = table.ok_or_else(|| wrong("its runs are not every unit once".to_owned()))?;
        for chunk in &table.chunks {
            match self.coming_and_going.take(flash, *chunk) {
                Some(FoundChunk { write_pointer, is_open: true }) => {
                    let open = flash.units.open(*chunk, write_pointer);
                    self.half_full.insert(*chunk, open);
                }
                Some(_) => {}
                // What the device has taken out of use is lost, and the rest of the table is not.
                None if flash.chunks.usage(*chunk) == ChunkUse::Retired => {}
                None => {
                    let address = flash.format.unpack_chunk(*chunk);
                    return Err(wrong(format!("the chunk of {address} is free, or of something else")));
                }
            }
        }
        Ok(self.add(table))
    }
}
