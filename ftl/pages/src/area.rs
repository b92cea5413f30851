//! The area as it is read when a drive is opened, and what the map in it says.

use crate::layout::SESSION_BLOCKS;
use crate::pages::Pages;
use crate::place::Place;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId, Clock, Geometry};
use openftl_parts::map;
use openftl_parts::open_error::OpenError;
use std::collections::BTreeMap;

/// Blocks that are read at a time.
pub(crate) const READ_BLOCKS: usize = 64;

pub(crate) fn lost(text: String) -> OpenError {
    OpenError::IndexLost(text)
}

/// Whether a page can be at `place` on a device of this shape.
pub(crate) fn expect_place(geometry: &Geometry, lpid: u64, place: Place) -> Result<(), OpenError> {
    if place == Place::LOST {
        return Ok(());
    }
    let format = geometry.format();
    let is_there = place.has_length()
        && geometry.has_chunk(place.chunk(format))
        && place.blocks(format).end <= geometry.blocks_per_chunk;
    is_there.then_some(()).ok_or_else(|| lost(format!("page {lpid} is said to be where the device has no blocks")))
}

/// Blocks of the area that have what is known of sessions.
pub(crate) fn session_blocks() -> impl Iterator<Item = u64> {
    1..=u64::from(SESSION_BLOCKS)
}

pub(crate) fn is_mapped(ftl: &BlockFtl, block: u64) -> bool {
    ftl.place(block) != Some(map::Place::Unmapped)
}

/// Reads blocks of the area, one after the other.
pub(crate) fn read(
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

/// Has the leaves of these pages read that are not in memory, and keeps them there until [`crate::index::Index::release`].
pub(crate) fn hold(
    ftl: &mut BlockFtl,
    pages: &mut Pages,
    lpids: impl IntoIterator<Item = u64>,
    clock: &mut dyn Clock,
) -> Result<(), OpenError> {
    let mut missing: Vec<u64> = lpids.into_iter().filter(|lpid| !pages.index.hold(*lpid)).collect();
    while !missing.is_empty() {
        let (first, reads) = (pages.layout.slot_block(0), pages.index.reads_max());
        let slots = std::iter::from_fn(|| pages.index.next_to_read()).take(reads);
        let blocks: Vec<u64> = slots.map(|slot| first + u64::from(slot)).collect();
        read(ftl, pages, &blocks, clock, |block, bytes, pages| {
            let is_there = pages.index.read((block - first) as u32, Some(bytes));
            is_there.then_some(()).ok_or_else(|| lost(format!("block {block} of the area is no piece of the map")))
        })?;
        missing.retain(|lpid| !pages.index.hold(*lpid));
    }
    Ok(())
}

/// Grains of pages that the map has, by their chunks.
#[derive(Default)]
pub(crate) struct LiveGrains(BTreeMap<ChunkId, u32>);

impl LiveGrains {
    /// A page is at `place`.
    pub(crate) fn add(&mut self, format: AddressFormat, place: Option<Place>) {
        if let Some(place) = place.filter(|place| *place != Place::LOST) {
            *self.0.entry(place.chunk(format)).or_default() += place.grains();
        }
    }

    /// A page that was there is not any more.
    pub(crate) fn take(&mut self, format: AddressFormat, place: Option<Place>) {
        if let Some(place) = place.filter(|place| *place != Place::LOST) {
            *self.0.get_mut(&place.chunk(format)).expect("a page there was added") -= place.grains();
        }
    }

    /// Those with any.
    pub(crate) fn chunks(mut self) -> BTreeMap<ChunkId, u32> {
        self.0.retain(|_, grains| *grains > 0);
        self.0
    }
}
