//! What is found of pages when a drive is opened: the map as the last checkpoint left it, and what the log says has changed since.

use crate::error::expect_length;
use crate::index::Index;
use crate::layout::{Anchor, SESSION_BLOCKS};
use crate::leaf::Leaf;
use crate::open_chunk::{OpenChunk, Stream};
use crate::pages::{PageChunk, Pages};
use crate::place::{Place, grains_of};
use crate::replaying::{self, READ_BLOCKS, expect_place, lost};
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{BLOCK_BYTES, ChunkId, Clock};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::map;
use openftl_parts::open_error::OpenError;
use openftl_parts::words::Access;
use std::collections::BTreeMap;

/// Reads blocks of the area, one after the other.
fn read(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    wanted: &[u64],
    clock: &mut dyn Clock,
    mut take: impl FnMut(u64, &[u8; BLOCK_BYTES], &mut Pages) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    for wanted in wanted.chunks(READ_BLOCKS) {
        let frames = ftl.read_blocks(wanted, clock, pages)?;
        let frames = frames.map_err(|error| lost(format!("the area of the store cannot be read: {error}")))?;
        for (block, frame) in wanted.iter().zip(&frames) {
            take(*block, ftl.flash.frames.bytes(*frame), pages)?;
        }
        frames.into_iter().for_each(|frame| ftl.flash.frames.release(frame));
    }
    Ok(())
}

/// Takes over all that there is. After an error nothing of it was taken over but what was read.
pub(crate) fn adopt(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    access: Access,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let (anchor, named) = read_area(ftl, pages, clock)?;
    pages.anchor = anchor;
    let log = replaying::read(ftl, pages, anchor, &named, clock)?;
    let live = live_chunks(ftl, pages)?;
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
    take_chunks(ftl, pages, live, access);
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
    let sessions: Vec<u64> = session_blocks().filter(|block| is_mapped(ftl, *block)).collect();
    read(ftl, pages, &sessions, clock, |block, bytes, pages| {
        pages.sessions.read(block as u32 - 1, bytes);
        Ok(())
    })?;
    let slots = pages.layout.slots;
    let first = pages.layout.slot_block(0);
    let leaves: Vec<u64> = (first..first + u64::from(slots)).filter(|block| is_mapped(ftl, *block)).collect();
    let mut found = Vec::new();
    read(ftl, pages, &leaves, clock, |block, bytes, _| {
        let leaf =
            Leaf::read(bytes).ok_or_else(|| lost(format!("block {block} of the area is no piece of the map")))?;
        found.push(((block - first) as u32, leaf));
        Ok(())
    })?;
    pages.index = Index::from_media(slots, found);
    Ok((anchor, log))
}

/// Blocks of the area that have what is known of sessions.
pub(crate) fn session_blocks() -> impl Iterator<Item = u64> {
    1..=u64::from(SESSION_BLOCKS)
}

pub(crate) fn is_mapped(ftl: &BlockFtl, block: u64) -> bool {
    ftl.place(block) != Some(map::Place::Unmapped)
}

/// Chunks that have pages by the map, and how many grains of these.
pub(crate) fn live_chunks(ftl: &BlockFtl, pages: &Pages) -> Result<BTreeMap<ChunkId, u32>, OpenError> {
    let mut live: BTreeMap<ChunkId, u32> = BTreeMap::new();
    for (lpid, place) in pages.index.pages_from(0).filter(|(_, place)| *place != Place::LOST) {
        expect_place(&ftl.flash, lpid, place)?;
        *live.entry(place.chunk(ftl.flash.format)).or_default() += place.grains();
    }
    Ok(live)
}

/// Chunks with pages are the store's, and are written on where they were left.
pub(crate) fn take_chunks(ftl: &mut BlockFtl, pages: &mut Pages, live: BTreeMap<ChunkId, u32>, access: Access) {
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
    if !gone.is_empty() {
        let is_gone = |place: Place| place != Place::LOST && gone.contains(&place.chunk(format));
        let left: Vec<u64> =
            pages.index.pages_from(0).filter(|(_, place)| is_gone(*place)).map(|(lpid, _)| lpid).collect();
        left.into_iter().for_each(|lpid| _ = pages.index.set(lpid, Some(Place::LOST)));
    }
}
