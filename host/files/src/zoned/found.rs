//! What is found of files when a zoned drive is opened: the catalog that counts, and the files that it has.
//!
//! Of the two zones of the catalog the one with the higher generation counts, if its first batch is whole. A batch that a power cut has cut
//! off is the last one of its zone, and ends where the zone does; anything else that does not verify is an error.

use super::ZoneFiles;
use super::allocation::{Allocation, KEPT_ZONES};
use super::catalog::{CATALOG_ZONES, Catalog, Change};
use super::node::Node;
use super::record::{BatchHead, FileRecord, RecordError, ZoneExtent, decode_batch, decode_head};
use super::shared::Shared;
use crate::names::Names;
use crate::{FileError, ReadRequest};
use openftl_core::BLOCK_BYTES;
use openftl_dispatch::{Dispatcher, PaceClock};
use openftl_media::Media;
use openftl_parts::Access;
use openftl_zones::{Face, Ftl, Zone, ZoneFtl, ZoneState};
use std::sync::Arc;

/// Zones that may be active beside those of files: the catalog's, when it begins anew.
const ACTIVE_BESIDE_FILES: u32 = CATALOG_ZONES;

/// A zone of the catalog, as it was found.
struct FoundCatalog {
    zone: u32,
    generation: u64,
    /// Whole batches, and their blocks.
    batches: u32,
    blocks: u32,
    /// Something is behind them.
    is_torn: bool,
    changes: Vec<Change>,
}

/// Takes over a drive whose zones hold files, or nothing.
pub(super) fn adopt<M: Media>(drive: ZoneFtl<M>, clock: PaceClock, access: Access) -> Result<ZoneFiles<M>, FileError> {
    if drive.face() != Face::Zones {
        return Err(FileError::Invalid(
            "this is a drive of segments, where a program that fails leaves an error behind: files need kind = \"zones\"".to_owned(),
        ));
    }
    let layout = *drive.layout();
    let limits = drive.board().limits();
    expect_enough(layout.zones, limits.max_active)?;
    let board: Vec<Zone> = drive.board().zones().to_vec();
    let is_inspected = access == Access::Inspect;
    let shared = |dispatcher, names, catalog, zones, next_number| {
        Shared::new(dispatcher, names, catalog, zones, next_number, is_inspected)
    };
    // Only to read the catalog with: what is in it says the rest.
    let open_max = (limits.max_active - ACTIVE_BESIDE_FILES) as usize;
    let zones = Allocation::new(layout.zones, layout.capacity, open_max);
    let reading = shared(Dispatcher::new(drive, clock), Names::new(), Catalog::new(layout.capacity), zones, 0);
    let mut found = Vec::new();
    for zone in 0..CATALOG_ZONES {
        found.extend(read_catalog(&reading, zone, board[zone as usize])?);
    }
    let (drive, clock) = reading.dispatcher.into_drive();
    let catalog = found.into_iter().max_by_key(|found| found.generation);
    let is_new = catalog.is_none();
    if let Some(used) = board[CATALOG_ZONES as usize..].iter().position(|zone| is_new && zone.state != ZoneState::Empty)
    {
        return Err(FileError::Invalid(format!(
            "zone {} is written, and no catalog of files names it: somebody else uses these zones; make a new drive for files, or reset all \
             zones of this one (`openftl nvme zones reset`)",
            used + CATALOG_ZONES as usize
        )));
    }
    let mut names = Names::new();
    let mut zones = Allocation::new(layout.zones, layout.capacity, open_max);
    let mut found = Catalog::new(layout.capacity);
    let mut next_number = 1;
    if let Some(FoundCatalog { zone, generation, batches, blocks, is_torn, changes }) = catalog {
        found = Catalog::found(layout.capacity, zone, generation, (batches, blocks), is_torn);
        let last = changes.iter().map(|(file, _)| *file).max().unwrap_or(0);
        if generation == u64::MAX || last == u64::MAX {
            return Err(FileError::Corruption(format!("the catalog has generation {generation}, and file {last}")));
        }
        next_number += last;
        changes.into_iter().for_each(|change| found.apply(change));
        name_all(&found, &board, &mut names, &mut zones)?;
    }
    for (zone, Zone { state, written, .. }) in (0..layout.zones).zip(&board).skip(CATALOG_ZONES as usize) {
        zones.find(
            zone,
            match state {
                ZoneState::ReadOnly | ZoneState::Offline => None,
                _ => Some(layout.capacity - written),
            },
        );
    }
    zones.keep();
    let shared = shared(Dispatcher::new(drive, clock), names, found, zones, next_number);
    let is_writable = !is_inspected && shared.dispatcher.look().drive.read_only_reason().is_none();
    if is_writable {
        if is_new {
            shared.begin_catalog()?;
        }
        shared.reset_dead()?;
    }
    Ok(ZoneFiles { shared: Arc::new(shared) })
}

/// Whether there are enough zones for files.
fn expect_enough(zones: u32, max_active: u32) -> Result<(), FileError> {
    let least = CATALOG_ZONES + KEPT_ZONES as u32 + 1;
    if zones < least {
        return Err(FileError::Invalid(format!(
            "the drive has {zones} zones, and files need {least}: make it with a larger media.capacity or a smaller ftl.zone_width"
        )));
    }
    if max_active <= ACTIVE_BESIDE_FILES {
        return Err(FileError::Invalid(format!(
            "max_active_zones = {max_active}: files need {}, of which two are for their catalog",
            ACTIVE_BESIDE_FILES + 1
        )));
    }
    Ok(())
}

/// Reads what is in a zone of the catalog; `None` if its first batch is not whole.
fn read_catalog<M: Media>(shared: &Shared<M>, zone: u32, state: Zone) -> Result<Option<FoundCatalog>, FileError> {
    if state.state == ZoneState::Offline {
        return Ok(None);
    }
    let wrong = |block: u32, error: RecordError| {
        FileError::Corruption(format!("block {block} of zone {zone}, which is for the catalog of files: {error}"))
    };
    let mut found: Option<FoundCatalog> = None;
    let (mut at, mut batches) = (0, 0);
    while at < state.written {
        let head = read(shared, zone, at, 1)?;
        let BatchHead { generation, number, blocks } = decode_head(&head).map_err(|error| match error {
            RecordError::Magic(_) if at == 0 => FileError::Invalid(format!(
                "zone {zone} is written, and has no catalog of files ({error}): make a new drive for files"
            )),
            error => wrong(at, error),
        })?;
        let expected = found.as_ref().map_or(generation, |found| found.generation);
        if number != batches || generation != expected {
            return Err(wrong(at, RecordError::Order { found: number, expected: batches }));
        }
        if blocks > state.written - at {
            break;
        }
        let batch = read(shared, zone, at, blocks)?;
        let mut records = decode_batch(&batch).map_err(|error| wrong(at, error))?;
        let found = found.get_or_insert_with(|| FoundCatalog {
            zone,
            generation,
            batches: 0,
            blocks: 0,
            is_torn: false,
            changes: Vec::new(),
        });
        while !records.is_empty() {
            let (file, record, rest) = FileRecord::decode(records).map_err(|error| wrong(at, error))?;
            found.changes.push((file, record.map(|_| records[..records.len() - rest.len()].to_vec())));
            records = rest;
        }
        at += blocks;
        batches += 1;
        (found.batches, found.blocks) = (batches, at);
    }
    if let Some(found) = &mut found {
        // A read-only zone takes nothing more, either.
        found.is_torn = at < state.written || state.state == ZoneState::ReadOnly;
    }
    Ok(found)
}

fn read<M: Media>(shared: &Shared<M>, zone: u32, first: u32, blocks: u32) -> Result<Vec<u8>, FileError> {
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    let all = bytes.len() as u64;
    let mut requests = [ReadRequest { offset: 0, buffer: &mut bytes, result: Ok(0) }];
    shared.read_pieces(&mut requests, all, &[ZoneExtent { zone, first, blocks }]);
    let [ReadRequest { result, .. }] = requests;
    result?;
    Ok(bytes)
}

/// Gives every file of the catalog its name and its blocks.
fn name_all(
    catalog: &Catalog,
    board: &[Zone],
    names: &mut Names<Node>,
    zones: &mut Allocation,
) -> Result<(), FileError> {
    let wrong = |file: u64, text: String| FileError::Corruption(format!("file {file} of the catalog: {text}"));
    let mut all: Vec<(ZoneExtent, u64)> = Vec::new();
    for (file, bytes) in catalog.records() {
        let record = match FileRecord::decode(bytes) {
            Ok((_, Some(record), _)) => record,
            Ok(_) => return Err(wrong(*file, "its record says that it is gone".to_owned())),
            Err(error) => return Err(wrong(*file, error.to_string())),
        };
        let path = record.path.clone();
        for extent in &record.extents {
            let ZoneExtent { zone, first, blocks } = *extent;
            let written = board.get(zone as usize).filter(|_| zone >= CATALOG_ZONES).map(|zone| zone.written);
            if written.is_none_or(|written| first.checked_add(blocks).is_none_or(|end| end > written)) {
                return Err(wrong(*file, format!("{path} has {extent:?}, which was not written")));
            }
            all.push((*extent, *file));
        }
        if names.insert(&path, Node::found(*file, record)).is_some() {
            return Err(wrong(*file, format!("another file is called {path}, too")));
        }
    }
    all.sort_by_key(|(extent, _)| (extent.zone, extent.first));
    for pair in all.windows(2) {
        let [(one, _), (other, file)] = pair else { unreachable!("windows of two") };
        if one.zone == other.zone && one.first + one.blocks > other.first {
            return Err(wrong(*file, format!("{other:?} is of another file, too")));
        }
    }
    all.into_iter().for_each(|(extent, _)| zones.adopt(extent));
    Ok(())
}
