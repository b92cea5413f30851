//! What is found of pages when a drive is opened: the map as the last checkpoint left it, and what the log says has changed since.

use crate::area::{LiveGrains, expect_place, hold, is_mapped, lost, read, session_blocks};
use crate::error::expect_length;
use crate::index::Index;
use crate::layout::Anchor;
use crate::leaf::Leaf;
use crate::open_chunk::{OpenChunk, Stream};
use crate::pages::{PageChunk, Pages};
use crate::place::{Place, grains_of};
use crate::replaying;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{ChunkId, Clock};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::Access;
use std::collections::BTreeMap;

/// Takes over all that there is. After an error nothing of it was taken over but what was read.
pub(crate) fn adopt(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    access: Access,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let mut live = LiveGrains::default();
    let (anchor, named) = read_area(ftl, pages, &mut live, clock)?;
    pages.anchor = anchor;
    let log = replaying::read(ftl, pages, anchor, &named, &mut live, clock)?;
    let live = live.chunks();
    let format = ftl.flash.format;
    for chunk in live.keys() {
        let is_there = pages.coming_and_going.is_found(*chunk) && !log.has(format, *chunk);
        if !is_there && ftl.flash.chunks.usage(*chunk) != ChunkUse::Retired {
            let address = format.unpack_chunk(*chunk);
            return Err(lost(format!("the map names the chunk of {address}, which is of something else")));
        }
    }
    let mut carried_grains = 0;
    for (lpid, carried) in &log.carried {
        let length = expect_length(*lpid, carried.bytes.len(), pages.page_bytes_max);
        carried_grains += u64::from(grains_of(length.map_err(|error| lost(error.to_string()))?));
    }
    let needed = log.needed();
    pages.carried = replaying::take(ftl, pages, log, &named, access);
    take_chunks(ftl, pages, live, access, clock)?;
    if access != Access::Inspect {
        replaying::release_found(ftl, pages, &needed);
    }
    if !ftl.recovery_report().clean {
        pages.next_version = pages.next_version.max(anchor.versions_end);
    }
    pages.versions_end = anchor.versions_end;
    pages.live_grains += carried_grains;
    ftl.hand_over();
    Ok(())
}

/// Reads the area: the anchor with the chunks that the log may be in, sessions, and the map.
fn read_area(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    live: &mut LiveGrains,
    clock: &mut dyn Clock,
) -> Result<(Anchor, Vec<ChunkId>), OpenError> {
    let mut anchor = None;
    if is_mapped(ftl, 0) {
        read(ftl, pages, &[0], clock, |_, block, _| {
            let none = || lost("the anchor of the store is none, or one of another version".to_owned());
            anchor = Some(Anchor::read(block).ok_or_else(none)?);
            Ok(())
        })?;
    }
    // Power went before the store was made.
    let Some((anchor, log)) = anchor else {
        return Err(OpenError::Tenant {
            text: "the store was not made to its end: make it again".to_owned(),
            is_lost: false,
        });
    };
    (pages.capacity_grains, pages.next_version) = (anchor.capacity_grains, anchor.version);
    pages.index = Index::new(pages.layout.slots, pages.leaf_pages, pages.index_memory(anchor.memory)?);
    let sessions: Vec<u64> = session_blocks().filter(|block| is_mapped(ftl, *block)).collect();
    read(ftl, pages, &sessions, clock, |block, bytes, pages| {
        pages.sessions.read(block as u32 - 1, bytes);
        Ok(())
    })?;
    let slots = pages.layout.slots;
    let first = pages.layout.slot_block(0);
    let leaves: Vec<u64> = (first..first + u64::from(slots)).filter(|block| is_mapped(ftl, *block)).collect();
    let geometry = ftl.flash.geometry;
    // The first and the last number of each.
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    read(ftl, pages, &leaves, clock, |block, bytes, pages| {
        let leaf = Leaf::read(bytes, pages.leaf_pages);
        let leaf = leaf.ok_or_else(|| lost(format!("block {block} of the area is no piece of the map")))?;
        let from = leaf.first();
        for (lpid, place) in leaf.pages_from(from) {
            expect_place(&geometry, lpid, place)?;
            live.add(geometry.format(), Some(place));
            ends.insert(from, lpid);
        }
        let is_new = pages.index.found((block - first) as u32, leaf);
        is_new.then_some(()).ok_or_else(|| lost(format!("two pieces of the map have pages from {from} on")))
    })?;
    pages.index.all_found();
    cut_leaves(ftl, pages, &ends, live, clock)?;
    Ok((anchor, log))
}

/// Power went between the write of a leaf and that of the one that it took a part of: this one still has it on media.
fn cut_leaves(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    ends: &BTreeMap<u64, u64>,
    live: &mut LiveGrains,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    for (first, last) in ends {
        if pages.index.end_of(*first).is_none_or(|end| *last < end) {
            continue;
        }
        hold(ftl, pages, [*first], clock)?;
        for place in pages.index.cut(*first) {
            live.take(ftl.flash.format, Some(place));
        }
        pages.index.release();
    }
    Ok(())
}

/// Chunks that have pages by a map that is whole, and how many grains of these.
pub(crate) fn live_chunks(ftl: &BlockFtl, pages: &Pages) -> Result<BTreeMap<ChunkId, u32>, OpenError> {
    let mut live = LiveGrains::default();
    for (lpid, place) in pages.index.pages_from(0) {
        expect_place(&ftl.flash.geometry, lpid, place)?;
        live.add(ftl.flash.format, Some(place));
    }
    Ok(live.chunks())
}

/// Chunks with pages are the store's, and are written on where they were left.
///
/// # Errors
/// If a chunk is gone, and the map cannot be read to find what was there.
pub(crate) fn take_chunks(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    live: BTreeMap<ChunkId, u32>,
    access: Access,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let format = ftl.flash.format;
    let mut gone = Vec::new();
    for (chunk, live) in live {
        let Some(found) = pages.coming_and_going.take(&mut ftl.flash, chunk) else {
            gone.push(chunk);
            continue;
        };
        pages.chunks.insert(chunk, PageChunk { live, ..PageChunk::default() });
        pages.live_grains += u64::from(live);
        if !found.is_open {
            continue;
        }
        let open = ftl.flash.units.open(chunk, found.write_pointer);
        let slot = pages.add_open(OpenChunk::new(chunk, open, Stream::Host, found.write_pointer));
        let free = pages.host.slots.iter().position(Option::is_none);
        match free {
            Some(at) => pages.host.slots[at] = Some(slot),
            None if access != Access::Inspect => pages.fill_up(&mut ftl.flash, slot),
            None => {}
        }
    }
    // The medium has lost the chunk, with all it had.
    let is_gone = |place: Place| place != Place::LOST && gone.contains(&place.chunk(format));
    let mut from = Some(0).filter(|_| !gone.is_empty());
    while let Some(next) = from {
        hold(ftl, pages, [next], clock)?;
        from = pages.index.end_of(next);
        let mut left = Vec::new();
        _ = pages.index.list(next..=from.map_or(u64::MAX, |end| end - 1), &mut |lpid, place| {
            left.extend(is_gone(place).then_some(lpid));
            true
        });
        left.into_iter().for_each(|lpid| _ = pages.index.set(lpid, Some(Place::LOST)));
        pages.index.release();
    }
    Ok(())
}
