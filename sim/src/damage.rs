//! Damage to the metadata of a drive that is [played](crate::played), and where they are.

use crate::played::Played;
use openftl_blocks::BlockFtl;
use openftl_core::{ChunkId, Ppa};
use openftl_media::Media;
use openftl_parts::flash::chunks::Chunks;
use std::collections::BTreeSet;

/// Chunks of the checkpoint and of the log that the superblock of an open drive names.
#[must_use]
pub fn checkpoint_and_log(block: &BlockFtl) -> (Vec<ChunkId>, Vec<ChunkId>) {
    let superblock = block.superblock();
    let checkpoint: BTreeSet<ChunkId> = superblock.checkpoint.extents().map(|extent| ChunkId(extent.chunk)).collect();
    let log = superblock.log_chunks.iter().flatten().map(|chunk| ChunkId(*chunk));
    (checkpoint.into_iter().collect(), log.collect())
}

/// Where blocks of the area of an open drive are on media, from the first one on.
#[must_use]
pub fn area_on_media(block: &BlockFtl) -> Vec<Option<Ppa>> {
    (0..u64::from(block.config().catalog_blocks)).map(|at| block.place_on_media(at)).collect()
}

/// Blocks of these chunks that are written.
///
/// # Panics
/// If there is no such chunk.
#[must_use]
pub fn written_blocks<W: Played>(world: &W, chunks: &[ChunkId]) -> Vec<Ppa> {
    let now = world.rig().clock.0;
    let mut device = world.rig().device();
    let format = device.geometry().format();
    let found = Chunks::report(&mut *device, now).expect("the device answers");
    let written = |chunk: &ChunkId| found.get(*chunk).expect("there is such a chunk").write_pointer;
    chunks.iter().flat_map(|chunk| (0..written(chunk)).map(|block| format.ppa(*chunk, block))).collect()
}

/// Turns a bit in every block of these chunks.
pub fn strike<W: Played>(world: &W, chunks: &[ChunkId]) {
    let blocks = written_blocks(world, chunks);
    blocks.into_iter().for_each(|ppa| world.rig().device().corrupt(ppa).expect("it is written"));
}
