//! What a device looks like before an FTL runs on it: the states of its chunks, and the superblocks.
//!
//! Also the little that is written before an FTL runs: padding without which the end of a chunk cannot be read, and
//! resets of the places for superblocks.

use crate::flash::chunks::Chunks;
use crate::flash::oob::{BlockKind, Oob};
use crate::flash::plan::{Plan, SUPERBLOCK_COPIES};
use crate::flash::scan::Scan;
use crate::journal::found_log::FoundLog;
use crate::journal::log_block;
use crate::journal::superblock::{SEARCH_CHUNKS, SUPERBLOCK_VERSION, Superblock, SuperblockError};
use crate::journal::superblock_writer::PlaceState;
use crate::open_error::OpenError;
use crate::words::Access;
use openftl_core::{AddressFormat, BLOCK_BYTES, ChunkId, Clock, Frame, Frames, Geometry, Ppa, PuId, VECTOR_BLOCKS_MAX};
use openftl_media::{ChunkDescriptor, ChunkState, Media, Status};
use rustc_hash::{FxHashMap, FxHashSet};

/// Parallel units that hold superblocks.
pub fn superblock_pus(geometry: &Geometry) -> impl Iterator<Item = PuId> + use<> {
    let format = geometry.format();
    (0..geometry.groups.min(SUPERBLOCK_COPIES)).map(move |group| format.pu_id(group, 0))
}

/// Makes sure that `chunk` is free, whatever it holds. Returns whether it is.
pub fn make_free(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &mut Chunks,
    chunk: ChunkId,
) -> bool {
    let geometry = chunks.geometry;
    let Some(descriptor) = &mut chunks.table[chunk.0 as usize] else { return false };
    // Only a closed chunk can be reset.
    pad(media, clock, scan, &geometry, descriptor, geometry.blocks_per_chunk);
    if descriptor.state == ChunkState::Closed {
        let ppa = geometry.format().ppa(chunk, 0);
        let free = scan.run(media, clock, &[ppa], None::<fn(&mut Frames, Frame)>) == Status::Success;
        descriptor.state = if free { ChunkState::Free } else { ChunkState::Offline };
        descriptor.write_pointer = 0;
    }
    descriptor.state == ChunkState::Free
}

/// Writes padding to an open chunk up to block `to`. A program that fails counts too: the chunk goes on behind it, or is
/// closed by it.
pub fn pad(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    geometry: &Geometry,
    descriptor: &mut ChunkDescriptor,
    to: u32,
) {
    let most = VECTOR_BLOCKS_MAX as u32 / geometry.ws_min * geometry.ws_min;
    while descriptor.state == ChunkState::Open && descriptor.write_pointer < to {
        let count = (to - descriptor.write_pointer).min(most);
        let first = geometry.format().ppa(descriptor.chunk, descriptor.write_pointer);
        let blocks: Vec<Ppa> = (0..u64::from(count)).map(|index| Ppa(first.0 + index)).collect();
        let fill = |frames: &mut Frames, frame: Frame| {
            frames.zero(frame);
            Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }.seal(frames, frame);
        };
        if scan.run(media, clock, &blocks, Some(fill)) == Status::Success {
            descriptor.write_pointer += count;
            if descriptor.write_pointer == geometry.blocks_per_chunk {
                descriptor.state = ChunkState::Closed;
            }
            continue;
        }
        // Only the device knows how far it got.
        let before = descriptor.write_pointer;
        let reported = media.chunk_report(clock.now(), descriptor.chunk, std::slice::from_mut(descriptor));
        if reported.is_err() || (descriptor.state == ChunkState::Open && descriptor.write_pointer == before) {
            return;
        }
    }
}

/// Pads open chunks so that everything the FTL has written to them can be read. Returns the blocks of padding.
pub fn settle(media: &mut dyn Media, clock: &mut dyn Clock, scan: &mut Scan, chunks: &mut Chunks) -> u64 {
    let geometry = chunks.geometry;
    if geometry.mw_cunits == 0 {
        return 0;
    }
    for descriptor in chunks.table.iter_mut().flatten().filter(|chunk| chunk.state == ChunkState::Open) {
        let to = (descriptor.write_pointer + geometry.mw_cunits).min(geometry.blocks_per_chunk);
        pad(media, clock, scan, &geometry, descriptor, to);
    }
    scan.blocks_written
}

/// Makes sure that of each copy of the log at most one chunk is open, the last: a crash may leave one that was not full
/// when the next was begun, and only closed chunks can be reset.
pub fn close_all_but_last(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &mut Chunks,
    superblock: &Superblock,
) {
    let geometry = chunks.geometry;
    for list in &superblock.log_chunks {
        let is_open = |chunk: &ChunkId| chunks.state(*chunk) == ChunkState::Open;
        let mut open: Vec<ChunkId> = list.iter().copied().map(ChunkId).filter(is_open).collect();
        open.pop();
        for chunk in open {
            let descriptor = chunks.table[chunk.0 as usize].as_mut().expect("it is open");
            pad(media, clock, scan, &geometry, descriptor, geometry.blocks_per_chunk);
        }
    }
}

/// Who goes on in a chunk that was left open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenUp {
    /// The relocation of its group: it gets the one with the most room, for without room it is stuck.
    Relocation,
    /// A host frontier: one of each parallel unit, as many as the plan has.
    Host,
    /// The plan counts on no more.
    Beyond,
}

/// Shares out chunks that were left open.
pub fn take_up(open: Vec<ChunkDescriptor>, format: AddressFormat, plan: &Plan) -> Vec<(ChunkDescriptor, TakenUp)> {
    let mut roomiest: FxHashMap<u32, ChunkDescriptor> = FxHashMap::default();
    for descriptor in &open {
        let best = roomiest.entry(format.group_of(format.pu_of(descriptor.chunk))).or_insert(*descriptor);
        if descriptor.write_pointer < best.write_pointer {
            *best = *descriptor;
        }
    }
    let mut host = FxHashSet::default();
    let role = |descriptor: ChunkDescriptor| {
        let pu = format.pu_of(descriptor.chunk);
        let taken_up = if roomiest[&format.group_of(pu)].chunk == descriptor.chunk {
            TakenUp::Relocation
        } else if (host.len() as u32) < plan.host_frontiers && host.insert(pu) {
            TakenUp::Host
        } else {
            TakenUp::Beyond
        };
        (descriptor, taken_up)
    };
    open.into_iter().map(role).collect()
}

/// Makes sure that no more chunks are open than the plan counts on, where the device has a limit. What is open beyond (every
/// recovery that is cut off may leave the chunks of a checkpoint) would stay so, and in the end no chunk could be opened any
/// more. Nothing goes on in what may be a tenant's.
pub fn close_beyond_plan(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &mut Chunks,
    superblock: &Superblock,
    plan: &Plan,
    is_of_tenant: impl Fn(ChunkId) -> bool,
) {
    let geometry = chunks.geometry;
    if geometry.open_chunks_max == 0 && geometry.open_chunks_per_pu_max == 0 {
        return;
    }
    let named: FxHashSet<ChunkId> = superblock.chunks().chain(superblock.places.map(ChunkId)).collect();
    let is_open = |chunk: &&ChunkDescriptor| chunk.state == ChunkState::Open && !named.contains(&chunk.chunk);
    let of_tenant: Vec<ChunkId> =
        chunks.all().filter(is_open).map(|open| open.chunk).filter(|chunk| is_of_tenant(*chunk)).collect();
    for chunk in of_tenant {
        let descriptor = chunks.table[chunk.0 as usize].as_mut().expect("it is open");
        pad(media, clock, scan, &geometry, descriptor, geometry.blocks_per_chunk);
    }
    if geometry.open_chunks_max == 0 {
        return;
    }
    let open = chunks.all().filter(is_open).copied().collect();
    for (descriptor, _) in take_up(open, geometry.format(), plan).iter().filter(|(_, by)| *by == TakenUp::Beyond) {
        let descriptor = chunks.table[descriptor.chunk.0 as usize].as_mut().expect("it is open");
        pad(media, clock, scan, &geometry, descriptor, geometry.blocks_per_chunk);
    }
}

/// Whether no log of the drive is in a chunk alone that `superblock` does not know. It would have been named by a newer one.
///
/// # Errors
/// If there is such a chunk.
pub fn newer_log(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    superblock: &Superblock,
    log: &FoundLog,
) -> Result<(), OpenError> {
    let format = chunks.geometry.format();
    let known: FxHashSet<ChunkId> = superblock.chunks().chain(superblock.places.map(ChunkId)).collect();
    let unknown = chunks.all().map(|descriptor| descriptor.chunk).filter(|chunk| !known.contains(chunk));
    let written = unknown.filter(|chunk| chunks.readable(*chunk) > 0);
    let places: Vec<Ppa> = written.map(|chunk| format.ppa(chunk, 0)).collect();
    let mut newer = Ok(());
    scan.read(media, clock, &places, |ppa, frames, frame, oob| {
        if oob.is_none_or(|oob| oob.kind != BlockKind::Log) {
            return;
        }
        let Ok(block) = log_block::parse_block(frames.bytes(frame), superblock.drive) else { return };
        let counts = block.lsn >= superblock.first_lsn && !superblock.is_in_gap(block.lsn);
        // One that is in a known chunk, too, was written here by mistake, or is no loss: where the log goes on beyond the
        // chunks that are known, the first block of one of the others is only there.
        if counts && !log.has(block.lsn) {
            let chunk = format.unpack_chunk(format.chunk_of(ppa)).to_string();
            newer = Err(OpenError::SuperblockLost { sequence: superblock.sequence, chunk, lsn: block.lsn });
        }
    });
    newer
}

/// What was found of the superblocks.
pub struct FoundSuperblock {
    /// The valid one with the highest sequence.
    pub superblock: Superblock,
    /// Places that have it.
    pub copies: usize,
    /// Whether a newer one may have been lost: something that cannot be read is where one would be.
    pub in_doubt: bool,
}

/// Looks for superblocks.
pub fn find_superblock(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
) -> Result<FoundSuperblock, OpenError> {
    let geometry = chunks.geometry;
    let format = geometry.format();
    let is_possible = |oob: &Oob| matches!(oob.kind, BlockKind::Superblock | BlockKind::Padding);
    let all_of_pu = 0..SEARCH_CHUNKS.min(geometry.chunks_per_pu);
    let of_pu = |pu| all_of_pu.clone().map(move |chunk| format.chunk_id(pu, chunk));
    let mut searched: Vec<ChunkId> = superblock_pus(&geometry).flat_map(of_pu).collect();
    searched.retain(|chunk| chunks.readable(*chunk) > 0);
    // One read of each tells the chunks that begin with something else: those have no superblocks, and are most of them.
    let mut lost: Vec<Ppa> = Vec::new();
    let first: Vec<Ppa> = searched.iter().map(|chunk| format.ppa(*chunk, 0)).collect();
    scan.read(media, clock, &first, |ppa, _, _, oob| {
        if oob.is_some_and(|oob| !is_possible(&oob)) {
            lost.push(ppa);
        }
    });
    searched.retain(|chunk| !lost.contains(&format.ppa(*chunk, 0)));
    let units = |chunk: ChunkId| (0..chunks.readable(chunk)).step_by(geometry.ws_min as usize);
    let places: Vec<Ppa> =
        searched.iter().flat_map(|chunk| units(*chunk).map(|block| format.ppa(*chunk, block))).collect();
    let mut candidates: Vec<(u64, Ppa, usize)> = Vec::new();
    let mut newest_error = None;
    let mut older_error = None;
    scan.read(media, clock, &places, |ppa, frames, frame, oob| {
        let Some(oob) = oob.filter(is_possible) else {
            lost.push(ppa);
            // The out-of-band bytes of another version say nothing that this one knows; the record names its version.
            match Superblock::length(frames.bytes(frame)) {
                Err(error @ SuperblockError::Version(version)) if Oob::is_of_another_version(frames, frame) => {
                    let which = if version > SUPERBLOCK_VERSION { &mut newest_error } else { &mut older_error };
                    *which = Some(error);
                }
                _ => {}
            }
            return;
        };
        if oob.kind == BlockKind::Superblock && oob.address == 0 {
            match Superblock::length(frames.bytes(frame)) {
                Ok(length) => candidates.push((oob.sequence, ppa, length)),
                Err(error) => newest_error = Some(error),
            }
        }
    });
    candidates.sort_unstable();
    let sequences: Vec<u64> = candidates.iter().map(|(sequence, ..)| *sequence).collect();
    let records: Vec<Ppa> = candidates.iter().map(|(_, ppa, _)| *ppa).collect();
    let (mut error, mut damaged) = (newest_error.clone().or(older_error), false);
    while let Some((sequence, first, length)) = candidates.pop() {
        let blocks = length.div_ceil(BLOCK_BYTES);
        let places: Vec<Ppa> = (0..blocks as u64).map(|index| Ppa(first.0 + index)).collect();
        let mut record = vec![0; blocks * BLOCK_BYTES];
        scan.read(media, clock, &places, |ppa, frames, frame, oob| {
            if oob.is_some() {
                let at = (ppa.0 - first.0) as usize * BLOCK_BYTES;
                record[at..at + BLOCK_BYTES].copy_from_slice(frames.bytes(frame));
            }
        });
        match Superblock::decode(&record) {
            // A drive that a newer version has written to is not to be opened by what it wrote before.
            Ok(_) if matches!(newest_error, Some(SuperblockError::Version(_))) => break,
            Ok(superblock) if superblock.sequence != sequence => {
                let reason = format!("its out-of-band bytes call it {sequence}");
                return Err(SuperblockError::Untrue { sequence: superblock.sequence, reason }.into());
            }
            Ok(superblock) => {
                // A lost unit behind every record of its chunk may have been the newest; so may any in a chunk that is gone.
                let is_last = |lost: &Ppa| {
                    let chunk = format.chunk_of(*lost);
                    superblock.places.contains(&chunk.0)
                        && records.iter().all(|record| format.chunk_of(*record) != chunk || record < lost)
                };
                let is_gone = |chunk: &u32| *chunk != u32::MAX && chunks.state(ChunkId(*chunk)) == ChunkState::Offline;
                let in_doubt = damaged || lost.iter().any(is_last) || superblock.places.iter().any(is_gone);
                let copies = sequences.iter().filter(|sequence| **sequence == superblock.sequence).count();
                return Ok(FoundSuperblock { superblock, copies, in_doubt });
            }
            Err(other) => (error, damaged) = (Some(other), true),
        }
    }
    Err(error.map_or(OpenError::NotFormatted, OpenError::Superblock))
}

/// The places of superblocks as they were left.
pub fn superblock_places(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &mut Chunks,
    superblock: &Superblock,
    access: Access,
) -> Vec<PlaceState> {
    let format = chunks.geometry.format();
    let mut states = Vec::new();
    for pair in superblock.places.chunks(2).filter(|pair| pair[0] != u32::MAX) {
        let pair = [ChunkId(pair[0]), ChunkId(pair[1])];
        // Which of the two has the newer records. Any unit may be one whose program failed, the first too.
        let mut sequences = [None; 2];
        for (sequence, chunk) in sequences.iter_mut().zip(pair) {
            let units = (0..chunks.readable(chunk)).step_by(chunks.geometry.ws_min as usize);
            let places: Vec<Ppa> = units.map(|block| format.ppa(chunk, block)).collect();
            scan.read(media, clock, &places, |_, _, _, oob| {
                let record = oob.filter(|oob| oob.kind == BlockKind::Superblock);
                *sequence = (*sequence).max(record.map(|oob| oob.sequence));
            });
        }
        let newer = usize::from(sequences[1] > sequences[0]);
        let (active, other) = (pair[newer], pair[1 - newer]);
        let has_record = sequences[newer].is_some();
        let mut state = PlaceState { active: None, has_record, spare: None, full: None };
        let write_pointer = chunks.get(active).map_or(0, |chunk| chunk.write_pointer);
        match chunks.state(active) {
            ChunkState::Open | ChunkState::Free => state.active = Some((active, write_pointer)),
            ChunkState::Closed => state.full = Some(active),
            ChunkState::Offline => {}
        }
        match chunks.state(other) {
            ChunkState::Free => state.spare = Some(other),
            ChunkState::Offline => {}
            // Older records. With the active one full too, it has to be free before the next superblock; else the writer
            // resets it behind that: what was found may be readable this time only.
            _ if state.full.is_some() && access != Access::Inspect => {
                if make_free(media, clock, scan, chunks, other) {
                    state.spare = Some(other);
                }
            }
            ChunkState::Closed => state.full = Some(other),
            ChunkState::Open => {
                if access != Access::Inspect && make_free(media, clock, scan, chunks, other) {
                    state.spare = Some(other);
                }
            }
        }
        states.push(state);
    }
    states
}
