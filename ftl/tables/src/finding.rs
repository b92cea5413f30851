//! What is found of tables when a drive is opened: the catalog is read, its tables take over their chunks, and those that are of
//! none are released.

use super::Tables;
use super::catalog::{CatalogError, Reader, TableRuns};
use super::table::Table;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{Clock, FrameForm};
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::shares::FoundChunk;
use openftl_parts::map::Place;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::{BlockTarget, Done, IoError, Request};

/// Blocks of the catalog that are read at a time when a drive is opened.
const READ_BLOCKS: u32 = 64;

/// Reads every block of the catalog that was ever written.
pub(crate) fn read_catalog(
    ftl: &mut BlockFtl,
    clock: &mut dyn Clock,
    tables: &mut Tables,
) -> Result<Reader, OpenError> {
    let mut reader = Reader::default();
    let mut frames = Vec::new();
    let blocks = ftl.config().catalog_blocks;
    let count = READ_BLOCKS.min(blocks);
    assert!(
        ftl.flash.frames.acquire_many(FrameForm::Bytes, count as usize, &mut frames),
        "a drive has frames for a read"
    );
    for first in (0..blocks).step_by(count as usize) {
        let wanted =
            (first..(first + count).min(blocks)).filter(|block| ftl.place(u64::from(*block)) != Some(Place::Unmapped));
        for block in wanted.collect::<Vec<u32>>() {
            let frame = frames[(block - first) as usize];
            let read = Request::Read { first: block.into(), frames: &[frame] };
            let now = clock.now();
            ftl.submit(now, block.into(), read).map_err(|error| lost(block, &error))?;
        }
        ftl.run(clock, tables, |ftl| !ftl.is_reading())?;
        let mut done = Vec::new();
        ftl.poll_beside(clock.now(), &mut done, tables);
        for Done { tag, result, .. } in done {
            let block = tag as u32;
            result.map_err(|error| lost(block, &error))?;
            reader.take(block, ftl.flash.frames.bytes(frames[(block - first) as usize]))?;
        }
    }
    for frame in frames {
        ftl.flash.frames.release(frame);
    }
    Ok(reader)
}

fn lost(block: u32, error: &IoError) -> CatalogError {
    CatalogError::Lost { block, reason: error.to_string() }
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

    /// Chunks that were found and are of no table: what a crash left of one that was not committed, or was deleted.
    pub(crate) fn release_found_chunks(&mut self, flash: &mut Flash) {
        for (chunk, FoundChunk { write_pointer, is_open }) in self.coming_and_going.take_rest(flash) {
            if is_open {
                // Its opening may not be in the log, and what it holds does not count.
                flash.seals.open(chunk);
            }
            let open = is_open.then(|| flash.units.open(chunk, write_pointer));
            self.release_chunk(flash, chunk, open);
        }
    }
}
