//! What is found of tables when a drive is opened: the catalog is read, its tables take over their chunks, and those that are of
//! none are released.

use super::Tables;
use super::catalog::{CatalogError, Parts, Reader, TableRuns};
use super::drive::copy_blocks;
use super::table::Table;
use openftl_blocks::area::AreaBlock;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{BLOCK_BYTES, Clock, Frame};
use openftl_parts::flash::Flash;
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::shares::FoundChunk;
use openftl_parts::map::Place;
use openftl_parts::open_error::OpenError;
use openftl_parts::target::IoError;
use openftl_parts::words::Access;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Blocks of the catalog that are read at a time when a drive is opened.
const READ_BLOCKS: u32 = 64;

/// Reads every block of the catalog that was ever written: of its first copy, or, if any of that cannot be read, of its second. Gives
/// what the first has to have written to it then. What it has lost comes last: until all is as in the second copy, that one counts. Adds
/// second copies that are behind the first to `behind`.
pub(crate) fn read_catalog(
    ftl: &mut BlockFtl,
    access: Access,
    behind: &mut Vec<AreaBlock>,
    clock: &mut dyn Clock,
    tables: &mut Tables,
) -> Result<(Reader, Vec<Parts>), OpenError> {
    // After a clean stop the copies are alike, but for what the medium has lost.
    let may_differ = !ftl.recovery_report().clean || access == Access::Repair;
    let mut reader = Reader::default();
    let copy_blocks = copy_blocks(ftl.config().catalog_blocks);
    let first = read_copy(ftl, 0, may_differ.then_some(&mut *behind), clock, tables, &mut |block, bytes| {
        Ok(reader.take(block, bytes)?)
    })?;
    let Err(reason) = first else { return Ok((reader, Vec::new())) };
    behind.clear();
    let mut reader = Reader::default();
    let mut anew = BTreeMap::new();
    let second = read_copy(ftl, copy_blocks, None, clock, tables, &mut |block, bytes| {
        reader.take(block, bytes)?;
        anew.insert(block, Parts { first: block, blocks: vec![Box::new(*bytes)] });
        Ok(())
    })?;
    second.map_err(|_| lost(reason))?;
    // The first copy may have been ahead of the second, by what was not durable.
    let mut lost_blocks = Vec::new();
    for block in 0..copy_blocks {
        if ftl.place(block.into()) == Some(Place::Unmapped) {
            continue;
        }
        match ftl.read_blocks(&[block.into()], clock, tables)? {
            Ok(frames) => {
                let free = reader.take_as_free(block, ftl.flash.frames.bytes(frames[0]));
                if let (Some(free), Entry::Vacant(place)) = (free, anew.entry(block)) {
                    place.insert(free);
                }
                ftl.flash.frames.release(frames[0]);
            }
            // What was never written to the second copy would be missing without a word.
            Err(_) if !anew.contains_key(&block) => return Err(lost(reason).into()),
            Err(_) => lost_blocks.push(block),
        }
    }
    let (last, mut anew): (Vec<_>, Vec<_>) =
        anew.into_iter().partition(|(block, _)| lost_blocks.binary_search(block).is_ok());
    anew.extend(last);
    Ok((reader, anew.into_iter().map(|(_, parts)| parts).collect()))
}

/// Takes a block of the catalog, with its place in the copy.
type TakeBlock<'a> = dyn FnMut(u32, &[u8; BLOCK_BYTES]) -> Result<(), OpenError> + 'a;

/// Hands every block that was ever written of the copy that begins at block `begin` of the area to `take`, with its place in the copy. The
/// inner error is that a block cannot be read.
fn read_copy(
    ftl: &mut BlockFtl,
    begin: u32,
    mut behind: Option<&mut Vec<AreaBlock>>,
    clock: &mut dyn Clock,
    tables: &mut Tables,
    take: &mut TakeBlock<'_>,
) -> Result<Result<(), IoError>, OpenError> {
    let blocks = copy_blocks(ftl.config().catalog_blocks);
    let count = READ_BLOCKS.min(blocks).max(1);
    for first in (0..blocks).step_by(count as usize) {
        let wanted = (begin + first..begin + (first + count).min(blocks)).map(u64::from);
        let wanted: Vec<u64> = wanted.filter(|block| ftl.place(*block) != Some(Place::Unmapped)).collect();
        let frames = match ftl.read_blocks(&wanted, clock, tables)? {
            Ok(frames) => frames,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(behind) = &mut behind {
            let second = wanted.iter().map(|block| block + u64::from(blocks));
            let first: Vec<(Frame, u64)> = frames.iter().copied().zip(second).collect();
            behind.extend(ftl.behind(&first, clock, tables)?);
        }
        for (block, frame) in wanted.iter().zip(frames) {
            take(*block as u32 - begin, ftl.flash.frames.bytes(frame))?;
            ftl.flash.frames.release(frame);
        }
    }
    Ok(Ok(()))
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
