//! What is found of a checkpoint when a drive is opened: one copy of each block, and the other where that is lost.
//!
//! ```text
//!   copy 0   ■ ■ ■ ■ ■ ■ □ □ □ □ □ □  ┊  ■ ■ ■ □ □ □        each extent: the first half of it of one copy,
//!   copy 1   □ □ □ □ □ □ ■ ■ ■ ■ ■ ■  ┊  □ □ □ ■ ■ ■        the second half of the other
//! ```
//!
//! So the dies of both copies read side by side, if the copies are alike: where a program failed in one they are not, and
//! it is all of one copy, then all of the other. What is left is read where anything is missing, or by who only looks.

use crate::flash::chunk_table::ChunkTable;
use crate::flash::chunks::Chunks;
use crate::flash::oob::BlockKind;
use crate::flash::scan::{Scan, interleaved};
use crate::flash::seals::Seals;
use crate::journal::checkpoint::{BodyLayout, CHUNK_RESETS, CHUNK_RETIRED, CHUNK_SUSPECT, CHUNKS_PER_BLOCK};
use crate::journal::superblock::{Extent, Superblock};
use crate::map::demand::DemandMap;
use crate::map::directory::Places;
use crate::map::{ENTRIES_PER_BLOCK, Entry, Map, Place};
use crate::open_error::OpenError;
use crate::words::{Access, METADATA_COPIES};
use openftl_core::{ChunkId, Clock, Ppa};
use openftl_media::Media;
use rustc_hash::FxHashSet;

/// A checkpoint as it was found: map entries and resets are where they belong, the rest is here.
#[derive(Default)]
pub struct FoundCheckpoint {
    /// Which blocks of the body were found in some copy.
    have: Vec<bool>,
    /// Chunks that were retired.
    pub retired: Vec<ChunkId>,
    /// Chunks that were to be retired, because a program had failed in them.
    pub suspects: Vec<ChunkId>,
    /// Blocks that each copy was found to lack.
    pub lacking: [u32; METADATA_COPIES],
    /// The seal of each chunk.
    seals: Vec<(ChunkId, u32)>,
    /// Logical blocks that were at a place to which they had been copied, and what they had borrowed.
    borrowed: Vec<(u64, u32)>,
    bad_entry: Option<(u64, Entry)>,
    bad_page: Option<(u32, Places)>,
}

impl FoundCheckpoint {
    /// Reads the checkpoint that `superblock` names into `mapping` and `table`. Who opens a drive to use it reads each block in one copy
    /// if none is missing then; who looks at it reads both copies.
    ///
    /// # Errors
    /// If its size is not that of this drive's.
    pub fn read(
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        scan: &mut Scan,
        chunks: &Chunks,
        superblock: &Superblock,
        access: Access,
        (map, table): (&mut Map, &mut ChunkTable),
    ) -> Result<FoundCheckpoint, OpenError> {
        let mut blocks = superblock.checkpoint.blocks;
        let layout =
            BodyLayout::new(superblock.capacity_blocks, &chunks.geometry, superblock.copies, superblock.map_page());
        if access == Access::Repair && blocks != 0 && !layout.may_have(blocks) {
            blocks = layout.blocks();
        }
        if blocks != 0 && !layout.may_have(blocks) {
            let found = format!("the checkpoint has {blocks} blocks, and this drive's has {}", layout.blocks());
            return Err(OpenError::Inconsistent(found));
        }
        let mut found = FoundCheckpoint { have: vec![false; blocks as usize], ..FoundCheckpoint::default() };
        let chunk_order: Vec<ChunkId> = chunks.geometry.chunk_ids().collect();
        let mut in_copies: [Vec<bool>; METADATA_COPIES] = std::array::from_fn(|_| vec![false; blocks as usize]);
        let of_second: FxHashSet<u32> = superblock.checkpoint.copies[1].iter().map(|extent| extent.chunk).collect();
        let format = chunks.geometry.format();
        for pass in 0..METADATA_COPIES {
            if access == Access::ReadWrite && pass > 0 && found.have.iter().all(|have| *have) {
                return Ok(found);
            }
            let places = places(chunks, superblock, pass);
            scan.read(media, clock, &places, |ppa, frames, frame, oob| {
                let is_of_this = |oob: &crate::flash::oob::Oob| {
                    oob.kind == BlockKind::Checkpoint
                        && oob.sequence == superblock.checkpoint.sequence
                        && oob.address < u64::from(blocks)
                };
                let Some(oob) = oob.filter(is_of_this) else { return };
                let index = oob.address as usize;
                in_copies[usize::from(of_second.contains(&format.chunk_of(ppa).0))][index] = true;
                if !std::mem::replace(&mut found.have[index], true) {
                    found.take(index, layout, frames.bytes(frame), &chunk_order, map, table);
                }
            });
        }
        found.lacking = in_copies.map(|in_copy| in_copy.iter().filter(|have| !**have).count() as u32);
        Ok(found)
    }

    fn take(
        &mut self,
        index: usize,
        layout: BodyLayout,
        bytes: &[u8],
        chunk_order: &[ChunkId],
        map: &mut Map,
        table: &mut ChunkTable,
    ) {
        let table_end = (layout.map_blocks + layout.table_blocks) as usize;
        if let Map::Paged(map) = map
            && !(layout.map_blocks as usize..table_end).contains(&index)
        {
            self.take_paged(index, layout, bytes, map);
            return;
        }
        if index < layout.map_blocks as usize {
            let Map::Whole(mapping) = map else { return };
            if let Some(bad) = mapping.load(index * ENTRIES_PER_BLOCK, bytes.as_chunks::<4>().0) {
                self.bad_entry = Some((bad as u64, mapping.get(bad as u64)));
            }
        } else if index < table_end {
            let first = (index - layout.map_blocks as usize) * CHUNKS_PER_BLOCK;
            for (chunk, entry) in chunk_order[first..].iter().zip(bytes.as_chunks::<8>().0) {
                let entry = u64::from_le_bytes(*entry);
                let resets = entry as u32;
                table.set_resets(*chunk, resets & CHUNK_RESETS);
                if resets & CHUNK_RETIRED != 0 {
                    self.retired.push(*chunk);
                } else if resets & CHUNK_SUSPECT != 0 {
                    self.suspects.push(*chunk);
                }
                self.seals.push((*chunk, (entry >> 32) as u32));
            }
        } else {
            let first = (index - table_end) * ENTRIES_PER_BLOCK;
            let left = (map.blocks() as usize).saturating_sub(first);
            for (block, word) in (first..).zip(bytes.as_chunks::<4>().0).take(left) {
                if *word != [0; 4] {
                    self.borrowed.push((block as u64, u32::from_le_bytes(*word)));
                }
            }
        }
    }

    /// Takes a block of the directory, or of changes.
    fn take_paged(&mut self, index: usize, layout: BodyLayout, bytes: &[u8], map: &mut DemandMap) {
        let (width, pairs) = (layout.width, layout.width.pairs_per_block());
        let pair = |at: usize| [0, 1].map(|half| width.get(bytes, 2 * at + half));
        if index < layout.map_blocks as usize {
            let first = (index * pairs) as u32;
            for (page, at) in (first..map.directory().pages()).zip(0..pairs) {
                if !map.load_page(page, pair(at), &[]) {
                    self.bad_page = Some((page, pair(at)));
                }
            }
            return;
        }
        for [block, entry] in (0..pairs).map(pair).take_while(|pair| *pair != [Entry::UNMAPPED; 2]) {
            let Place::Media(Ppa(block)) = block.place() else {
                self.bad_entry = Some((0, block));
                return;
            };
            let is_possible = match entry.place() {
                Place::Media(ppa) => width.has_room_for(ppa),
                Place::Unmapped | Place::Lost => true,
                Place::Buffer(_) => false,
            };
            if block >= map.len() || !is_possible {
                self.bad_entry = Some((block, entry));
                return;
            }
            map.put(block, entry);
        }
    }

    /// Brings the seals of the checkpoint to where they belong; `map` is as the checkpoint has it.
    pub fn load_seals(&self, map: &Map, seals: &mut Seals) {
        for (chunk, seal) in &self.seals {
            seals.set(*chunk, *seal);
        }
        let Map::Whole(mapping) = map else { return };
        for (block, borrowed) in &self.borrowed {
            if let Place::Media(ppa) = mapping.get(*block).place() {
                seals.set_borrowed(ppa, *borrowed);
            }
        }
    }

    /// Whether the checkpoint says where logical block `block` is.
    pub fn knows(&self, block: u64) -> bool {
        self.have.is_empty() || self.have[block as usize / ENTRIES_PER_BLOCK]
    }

    /// Whether every block was found, and says what can be.
    ///
    /// # Errors
    /// If not.
    pub fn expect_whole(&self, superblock: &Superblock) -> Result<(), OpenError> {
        if let Some(first) = self.have.iter().position(|have| !have) {
            let missing = self.have.iter().filter(|have| !**have).count() as u32;
            let sequence = superblock.checkpoint.sequence;
            let blocks = superblock.checkpoint.blocks;
            return Err(OpenError::CheckpointLost { sequence, blocks, missing, first: first as u32 });
        }
        if let Some((page, places)) = self.bad_page {
            return Err(OpenError::Inconsistent(format!("the checkpoint has map page {page} at {places:?}")));
        }
        if let Some((block, entry)) = self.bad_entry {
            return Err(OpenError::Inconsistent(format!("the checkpoint maps logical block {block} to {entry:?}")));
        }
        Ok(())
    }
}

/// Where blocks may be read in one pass.
fn places(chunks: &Chunks, superblock: &Superblock, pass: usize) -> Vec<Ppa> {
    let format = chunks.geometry.format();
    let copies = &superblock.checkpoint.copies;
    let lengths = |copy: usize| copies[copy].iter().map(|extent| extent.blocks);
    let are_alike = lengths(0).eq(lengths(1));
    let extents =
        copies.iter().enumerate().flat_map(|(copy, extents)| extents.iter().map(move |of| (of, copy == pass)));
    let written = extents.flat_map(|(&Extent { chunk, first, blocks }, is_in_turn)| {
        let (chunk, end) = (ChunkId(chunk), first.saturating_add(blocks));
        let middle = first.saturating_add(blocks / 2);
        let part = match (are_alike, is_in_turn) {
            (true, true) => first..middle,
            (true, false) => middle..end,
            (false, true) => first..end,
            (false, false) => 0..0,
        };
        (part.start..part.end.min(chunks.readable(chunk))).map(move |block| format.ppa(chunk, block))
    });
    interleaved(format, written)
}
