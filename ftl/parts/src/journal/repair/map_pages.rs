//! Rebuilding a map whose pages are on media.
//!
//! | lost | pages | known |
//! |---|---|---|
//! | map pages, and nothing else | those that the directory names and that can be read | all but the blocks of lost pages without a change |
//! | of checkpoint or log anything | the newest of each number on the media | nothing |
//!
//! From there on blocks are taken as of a map in memory; blocks that are nowhere, and have no version on the media, take none of it. Where
//! that differs from a page it becomes a change, which the next checkpoint has; so the pages on the media stay as they are.

use super::{Highest, Rebuilt, RepairReport, Versions, replay_openings, take_newest};
use crate::flash::chunks::Chunks;
use crate::flash::oob::BlockKind;
use crate::flash::scan::{Scan, interleaved};
use crate::journal::superblock::Superblock;
use crate::map::Entry;
use crate::map::demand::DemandMap;
use crate::map::directory::SEQUENCE_BITS;
use crate::map::memory::changes_planned;
use crate::open_error::OpenError;
use crate::words::METADATA_COPIES;
use openftl_core::{ChunkId, Clock, Ppa};
use openftl_media::Media;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// A map in memory that takes some of it for those blocks alone that are not nowhere.
#[derive(Clone, Default)]
struct Sparse(FxHashMap<u64, Entry>);

impl Rebuilt for Sparse {
    fn get(&self, block: u64) -> Entry {
        self.0.get(&block).copied().unwrap_or(Entry::UNMAPPED)
    }

    fn set(&mut self, block: u64, entry: Entry) {
        match entry {
            Entry::UNMAPPED => self.0.remove(&block),
            entry => self.0.insert(block, entry),
        };
    }
}

/// Rebuilds `map`, which holds what is left of checkpoint and log.
///
/// # Errors
/// If more has to be changed than a checkpoint has room for.
pub fn rebuild(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    superblock: &Superblock,
    damage: &OpenError,
    map: &mut DemandMap,
) -> Result<(RepairReport, Highest), OpenError> {
    let mut report = RepairReport { damage: damage.to_string(), ..RepairReport::default() };
    replay_openings(media, clock, scan, chunks, superblock);
    let versions = Versions::read(media, clock, scan, chunks, superblock);
    let mut highest = versions.highest;
    let (pages, size, blocks) = (map.directory().pages(), map.size(), map.len());
    let is_page_lost = matches!(damage, OpenError::MapPageLost { .. });
    if !is_page_lost {
        for page in 0..pages {
            // Of a page that is there once, the same place twice.
            let copies = versions.pages.get(&page).and_then(|(_, places)| Some([*places.first()?, *places.last()?]));
            map.move_page(page, copies);
        }
        let newest = versions.pages.values().map(|(sequence, _)| *sequence).max().unwrap_or(0);
        highest.lsn = highest.lsn.max((newest >> SEQUENCE_BITS) + 1);
    }
    let mut sparse = Sparse::default();
    let has_page = read_pages(media, clock, scan, chunks, map, &mut sparse);
    for page in (0..pages).filter(|page| !has_page[*page as usize]) {
        map.move_page(page, None);
    }
    for (block, entry) in map.changes().all() {
        sparse.set(block, entry);
    }
    let said = sparse.clone();
    let has_change = |block: u64| map.changes().get(block).is_some();
    let is_said = |block: u64| has_page[size.split(block).0 as usize] || has_change(block);
    let is_known = |block: u64| is_page_lost && is_said(block);
    // Of a lost page nothing is said: each of its blocks may be anywhere.
    let lost_pages = (0..pages).filter(|page| !has_page[*page as usize]);
    let of_lost_pages = lost_pages.flat_map(|page| size.first_of(page)..map.end_of(page));
    let looked_at: BTreeSet<u64> =
        said.0.keys().copied().chain(versions.newest.keys().copied()).chain(of_lost_pages).collect();
    if is_page_lost {
        let on_pages = (0..pages).filter(|page| has_page[*page as usize]);
        let beside = map.changes().all().filter(|(block, _)| !has_page[size.split(*block).0 as usize]).count() as u64;
        report.blocks_known = on_pages.map(|page| map.end_of(page) - size.first_of(page)).sum::<u64>() + beside;
    }
    take_newest(&mut sparse, looked_at.iter().copied(), &is_known, &is_said, &versions, chunks, &mut report);
    for block in looked_at.into_iter().filter(|block| sparse.get(*block) != said.get(*block)) {
        map.put(block, sparse.get(block));
    }
    let (changes, most) = (map.changes().len() as u64, changes_planned(blocks));
    if changes > most {
        return Err(OpenError::Inconsistent(format!(
            "too much of its map is lost to be rebuilt: {changes} blocks differ from the map pages that are left, and a checkpoint \
             has room for {most}"
        )));
    }
    Ok((report, highest))
}

/// Enters what the pages that the directory of `map` names say. Returns which of them could be read, or are nowhere.
fn read_pages(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    map: &DemandMap,
    sparse: &mut Sparse,
) -> Vec<bool> {
    let (format, size, pages) = (chunks.geometry.format(), map.size(), map.directory().pages());
    let mut have: Vec<bool> = (0..pages).map(|page| map.directory().get(page).is_none()).collect();
    for copy in 0..METADATA_COPIES {
        let missing = (0..pages).filter(|page| !have[*page as usize]);
        let readable = |ppa: &Ppa| format.block_of(*ppa) < chunks.readable(format.chunk_of(*ppa));
        let places = missing.filter_map(|page| map.directory().get(page).map(|copies| copies[copy])).filter(readable);
        let places = interleaved(format, places);
        scan.read(media, clock, &places, |ppa, frames, frame, oob| {
            let Some(oob) = oob.filter(|oob| oob.kind == BlockKind::Map && oob.address < u64::from(pages)) else {
                return;
            };
            let page = oob.address as u32;
            let is_there = map.directory().get(page).is_some_and(|copies| copies[copy] == ppa);
            if is_there && !std::mem::replace(&mut have[page as usize], true) {
                let bytes = frames.bytes(frame);
                for block in size.first_of(page)..map.end_of(page) {
                    sparse.set(block, size.entry(bytes, size.split(block).1));
                }
            }
        });
    }
    have
}

/// The chunks in which the pages of `map` are.
pub fn chunks_of(map: &DemandMap, chunks: &Chunks) -> FxHashSet<ChunkId> {
    let format = chunks.geometry.format();
    let pages = 0..map.directory().pages();
    pages.filter_map(|page| map.directory().get(page)).flatten().map(|ppa| format.chunk_of(ppa)).collect()
}
