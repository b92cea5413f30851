//! Chunks of map pages: where copies go on, which are emptied, and when they are reset.

use super::CHUNKS_KEPT;
use crate::block_ftl::BlockFtl;
use openftl_core::{ChunkId, Ppa};
use openftl_parts::flash::plan::RELOCATION_RESERVE_CHUNKS;
use openftl_parts::flash::provisioning::Claim;
use openftl_parts::flash::units::OpenId;
use openftl_parts::map::Map;
use openftl_parts::words::{Label, METADATA_COPIES};

impl BlockFtl {
    /// Has pages merged though there is room for more changes: where blocks were that have been overwritten counts as valid until
    /// then, and collection finds nothing. Not where the copies of pages would take the last free chunks. Returns whether that is new.
    pub(crate) fn merge_for_room(&mut self) -> bool {
        let (Map::Paged(map), Some(pages)) = (&self.map, &mut self.map_pages) else { return false };
        let kept = self.flash.geometry.groups * RELOCATION_RESERVE_CHUNKS + METADATA_COPIES as u32;
        let has_room = self.flash.provisioning.free_total() > kept;
        let is_new = has_room && !map.changes().is_empty() && pages.changes_wanted > 0;
        if is_new {
            pages.changes_wanted = 0;
        }
        is_new
    }

    /// The chunk that a copy goes on in.
    pub(super) fn map_frontier(&mut self, copy: usize) -> Option<OpenId> {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        if let Some(open) = pages.open[copy].filter(|open| self.flash.units.room(*open) > 0) {
            return Some(open);
        }
        pages.open[copy] = None;
        if let Some((chunk, next)) = pages.partial[copy].pop() {
            pages.open[copy] = Some(self.flash.units.open(chunk, next));
            return pages.open[copy];
        }
        let turn = pages.turns[copy];
        pages.turns[copy] = turn.wrapping_add(1);
        let open = self.flash.open_chunk(Claim::Metadata { copy, turn }, Label::Ordinary)?;
        let chunk = self.flash.units.chunk(open).chunk;
        self.flash.seals.open(chunk);
        let pages = self.map_pages.as_mut().expect("the map is on media");
        pages.live.insert(chunk, 0);
        pages.open[copy] = Some(open);
        Some(open)
    }

    /// So many pages that are not being merged, of the chunks in which the fewest copies count.
    pub(super) fn pages_of_emptiest(&self, count: usize) -> Vec<u32> {
        let (Map::Paged(map), Some(pages)) = (&self.map, &self.map_pages) else { return Vec::new() };
        let mut chunks: Vec<(u32, ChunkId)> = pages
            .live
            .iter()
            .filter(|(chunk, live)| **live > 0 && !self.is_map_frontier(**chunk))
            .map(|(chunk, live)| (*live, *chunk))
            .collect();
        chunks.sort_unstable();
        let mut chosen: Vec<u32> = Vec::new();
        for (_, chunk) in chunks {
            if chosen.len() == count {
                break;
            }
            let is_there = |ppa: Ppa| self.flash.format.chunk_of(ppa) == chunk;
            let here = map.directory().with_copy_in(is_there).filter(|page| !map.is_merging(*page));
            let new: Vec<u32> = here.filter(|page| !chosen.contains(page)).take(count - chosen.len()).collect();
            chosen.extend(new);
        }
        chosen
    }

    /// Whether what is at `place` is no page that stays there: padding, or an old version, or one that is being merged.
    pub(crate) fn leaves_map_chunk(&self, place: Ppa) -> bool {
        let Map::Paged(map) = &self.map else { return false };
        !map.directory().with_copy_in(|ppa| ppa == place).any(|page| !map.is_merging(page))
    }

    /// The pages in `chunk` should move.
    pub(crate) fn move_map_pages_of(&mut self, chunk: ChunkId) {
        if let Some(pages) = &mut self.map_pages {
            pages.weak.insert(chunk);
            self.flash.stirred = true;
        }
    }

    /// Whether map pages are being written to `chunk`, or will be.
    pub(super) fn is_map_frontier(&self, chunk: ChunkId) -> bool {
        let Some(pages) = &self.map_pages else { return false };
        let open = pages.open.iter().flatten().any(|open| self.flash.units.chunk_if_open(*open) == Some(chunk));
        open || pages.partial.iter().flatten().any(|(partial, _)| *partial == chunk)
    }

    /// Where chunks of map pages run short, the emptiest is emptied. Those that are weak are emptied one by one, and while the host waits
    /// for anything, something of that ends between them: on a medium whose every other read is a weak one, that has no end.
    pub(super) fn choose_map_chunk_to_empty(&mut self) {
        let (progress, waits) =
            (self.progress, self.buffer.committed() < self.buffer.head() || !self.transactions.is_idle());
        let most = self.flash.plan.map_chunks as usize;
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let is_open = |chunk: &ChunkId| {
            let open = pages.open.iter().flatten().any(|open| self.flash.units.chunk_if_open(*open) == Some(*chunk));
            open || pages.partial.iter().flatten().any(|(partial, _)| partial == chunk)
        };
        if pages.emptying.is_some_and(|chunk| pages.live.get(&chunk).is_some_and(|live| *live > 0)) {
            return;
        }
        pages.emptying = None;
        // What is weak moves first; an open chunk when it is full.
        pages.weak.retain(|chunk| pages.live.get(chunk).is_some_and(|live| *live > 0 || is_open(chunk)));
        let may_care = !waits || pages.cared_at != Some(progress);
        if let Some(chunk) = pages.weak.iter().copied().find(|chunk| may_care && !is_open(chunk)) {
            pages.weak.remove(&chunk);
            pages.cared_at = Some(progress);
            pages.emptying = Some(chunk);
            return;
        }
        let kept = METADATA_COPIES * CHUNKS_KEPT as usize;
        if pages.live.len() + kept > most {
            let full = pages.live.iter().filter(|(chunk, live)| **live > 0 && !is_open(chunk));
            pages.emptying = full.min_by_key(|(_, live)| **live).map(|(chunk, _)| *chunk);
        }
    }

    /// Chunks in which no copy counts any more go to their reset.
    pub(super) fn reset_map_chunks(&mut self) {
        let pages = self.map_pages.as_mut().expect("the map is on media");
        let is_full = |chunk: ChunkId| {
            let open = pages.open.iter().flatten().any(|open| self.flash.units.chunk_if_open(*open) == Some(chunk));
            let partial = pages.partial.iter().flatten().any(|(partial, _)| *partial == chunk);
            !open && !partial
        };
        let empty: Vec<ChunkId> = pages
            .live
            .iter()
            .filter(|(chunk, live)| **live == 0 && is_full(**chunk))
            .map(|(chunk, _)| *chunk)
            .collect();
        for chunk in empty {
            pages.live.remove(&chunk);
            self.flash.provisioning.end_metadata();
            self.flash.reset_when_durable(chunk, self.journal.log.position());
        }
    }
}
