//! The pages of a map on media, as they are found when its drive is opened.

use super::mark_one;
use openftl_core::{AddressFormat, ChunkId, Clock, Ppa};
use openftl_media::Media;
use openftl_parts::flash::chunk_table::ChunkTable;
use openftl_parts::flash::chunks::Chunks;
use openftl_parts::flash::oob::BlockKind;
use openftl_parts::flash::scan::{Scan, interleaved};
use openftl_parts::journal::found_log::LeftOnMedia;
use openftl_parts::journal::superblock::Superblock;
use openftl_parts::map::demand::DemandMap;
use openftl_parts::map::{Entry, Place};
use openftl_parts::open_error::OpenError;
use openftl_parts::words::{Access, METADATA_COPIES};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// What was found of the pages.
#[derive(Default)]
pub(super) struct FoundPages {
    /// Logical blocks that are mapped.
    pub mapped: u64,
    /// Copies of pages that cannot be read, and of which there is another.
    pub lacking: Vec<Ppa>,
}

impl FoundPages {
    /// In words, for whoever looks at the drive.
    pub fn single_copies(&self, format: &AddressFormat) -> Option<String> {
        let first = self.lacking.first()?;
        Some(format!(
            "map: {} pages are there only once (the other copy of the first was at {})",
            self.lacking.len(),
            format.unpack(*first)
        ))
    }
}

/// Marks valid what a map on media points at: every page of it is read, and both copies by whoever only looks or repairs. With
/// `forgiven`, its superblock, what is no more where the map says is [forgotten](super::forget_impossible) instead.
///
/// # Errors
/// If a page cannot be read, or a block cannot be where the map says.
pub(super) fn mark_paged(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    (map, table): (&mut DemandMap, &mut ChunkTable),
    access: Access,
    forgiven: Option<&Superblock>,
    (left, left_in_doubt): (&LeftOnMedia, &mut FxHashSet<ChunkId>),
) -> Result<FoundPages, OpenError> {
    let named: FxHashSet<ChunkId> =
        forgiven.into_iter().flat_map(|superblock| superblock.chunks().chain(superblock.places.map(ChunkId))).collect();
    let mut forgotten: Vec<u64> = Vec::new();
    let (format, size, pages) = (chunks.geometry.format(), map.size(), map.directory().pages());
    // What pages have for blocks with a change counts no more.
    map.settle_all();
    let mut found = FoundPages::default();
    let mut result = Ok(());
    let mut have: Vec<bool> = (0..pages).map(|page| map.directory().get(page).is_none()).collect();
    for pass in 0..METADATA_COPIES as u32 {
        // Half of the pages from either copy, so that all dies read.
        let copy_of = |page: u32| (page + pass) as usize % METADATA_COPIES;
        let is_asked = |page: &u32| access != Access::ReadWrite || !have[*page as usize];
        let readable = |ppa: &Ppa| format.block_of(*ppa) < chunks.readable(format.chunk_of(*ppa));
        let place = |page| map.directory().get(page).map(|copies| copies[copy_of(page)]);
        let mut unread: BTreeSet<Ppa> = (0..pages).filter(is_asked).filter_map(place).filter(readable).collect();
        // In order on each die: blocks of one flash page are sensed together.
        let places = interleaved(format, unread.iter().copied());
        scan.read(media, clock, &places, |ppa, frames, frame, oob| {
            let Some(oob) = oob else { return };
            // The map may be older than the chunks: what is another block by now was needed no more.
            if forgiven.is_some() {
                unread.remove(&ppa);
            }
            if oob.kind != BlockKind::Map || oob.address >= u64::from(pages) {
                return;
            }
            let page = oob.address as u32;
            let is_there = map.directory().get(page).is_some_and(|copies| copies[copy_of(page)] == ppa);
            if is_there {
                unread.remove(&ppa);
            }
            if !is_there || std::mem::replace(&mut have[page as usize], true) || result.is_err() {
                return;
            }
            let bytes = frames.bytes(frame);
            for block in size.first_of(page)..map.end_of(page) {
                let Place::Media(ppa) = size.entry(bytes, size.split(block).1).place() else { continue };
                if left.blocks.contains(&block) {
                    left_in_doubt.insert(format.chunk_of(ppa));
                }
                if map.changes().get(block).is_some() {
                    continue;
                }
                let marked = mark_one(chunks, table, block, ppa);
                found.mapped += u64::from(marked.is_ok());
                if forgiven.is_some() && (marked.is_err() || named.contains(&format.chunk_of(ppa))) {
                    forgotten.push(block);
                } else if result.is_ok() {
                    result = marked;
                }
            }
        });
        found.lacking.extend(unread);
    }
    result?;
    for page in (0..pages).filter(|page| !have[*page as usize]) {
        let (first, end) = (size.first_of(page), map.end_of(page));
        if forgiven.is_none() {
            return Err(OpenError::MapPageLost { page, first, blocks: end - first });
        }
        forgotten.extend((first..end).filter(|block| map.changes().get(*block).is_none()));
        let copies = map.directory().get(page).unwrap_or_default();
        found.lacking.retain(|copy| !copies.contains(copy));
    }
    for block in forgotten {
        map.put(block, Entry::LOST);
    }
    left_in_doubt.extend(left_behind(media, clock, scan, chunks, (map, left)));
    let mut changes = [(0, Entry::UNMAPPED); 64];
    let mut next = 0;
    loop {
        let count = map.changes().first_of(next..map.len(), &mut changes);
        for (block, entry) in &changes[..count] {
            next = block + 1;
            let Place::Media(ppa) = entry.place() else { continue };
            let marked = mark_one(chunks, table, *block, ppa);
            found.mapped += u64::from(marked.is_ok());
            if forgiven.is_some() && (marked.is_err() || named.contains(&format.chunk_of(ppa))) {
                map.put(*block, Entry::LOST);
            } else {
                marked?;
            }
        }
        if count < changes.len() {
            return Ok(found);
        }
    }
}

/// Chunks that pages point at which are somewhere else by now, as blocks of the log say that are in doubt; and those of these pages.
fn left_behind(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    (map, left): (&DemandMap, &LeftOnMedia),
) -> FxHashSet<ChunkId> {
    let (format, size) = (chunks.geometry.format(), map.size());
    let mut found: FxHashSet<ChunkId> = left.pages.values().flatten().map(|ppa| format.chunk_of(*ppa)).collect();
    let mut unread: BTreeSet<u32> = left.pages.keys().copied().collect();
    for copy in 0..METADATA_COPIES {
        let readable = |ppa: &Ppa| format.block_of(*ppa) < chunks.readable(format.chunk_of(*ppa));
        let places = interleaved(format, unread.iter().map(|page| left.pages[page][copy]).filter(readable));
        scan.read(media, clock, &places, |ppa, frames, frame, oob| {
            let Some(page) = oob.filter(|oob| oob.kind == BlockKind::Map).map(|oob| oob.address as u32) else { return };
            if left.pages.get(&page).is_none_or(|copies| copies[copy] != ppa) || !unread.remove(&page) {
                return;
            }
            let bytes = frames.bytes(frame);
            let entries = (size.first_of(page)..map.end_of(page)).map(|block| size.entry(bytes, size.split(block).1));
            found.extend(entries.filter_map(|entry| match entry.place() {
                Place::Media(ppa) => Some(format.chunk_of(ppa)),
                _ => None,
            }));
        });
    }
    // What cannot be read may point anywhere.
    if !unread.is_empty() {
        found.extend(chunks.geometry.chunk_ids());
    }
    found
}
