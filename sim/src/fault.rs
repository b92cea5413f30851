//! What goes wrong on the medium, and what the model then has to allow. The fault model is `docs/SIMULATION.md`.
//!
//! | letters | fault | the model allows |
//! |---|---|---|
//! | `program7` | the next program on a chunk fails | nothing |
//! | `close7` | the same, and it closes the chunk | nothing |
//! | `erase7` | the next erase of a chunk fails | nothing |
//! | `ecc7` | a block is read with high ECC | nothing |
//! | `retry7` | the next read of a block fails, and the one after it does not | nothing |
//! | `lose7` | a block cannot be read any more | that version of that block is an error |
//! | `corrupt7` | a block is changed, and nobody notices | the same |
//! | `swap7` | two blocks are found in each other's place | the same, of both |
//! | `losterase7` | the next erase of a chunk does nothing, and is reported as done | nothing |
//! | `lostprogram7` | the next program on a chunk does nothing, and is reported as done | what was programmed is an error |
//! | `astray7` | the next program on a chunk goes to the place of other blocks, and is reported as done | the same, and those |
//! | `offline7` | a chunk is gone with all it holds | the same, of each of its blocks |
//!
//! The number picks the place, counted round among those that the fault may hit: metadata only where another copy of it
//! is whole and in its place, because nothing survives the loss of all copies, and a chunk for superblocks only while two others are good.
//! What a program will hold is not known before: of metadata those of the first copy only are lost or go astray. What that
//! was is asked of the device when something is compared with the model.

use crate::block_contents::head_of;
use crate::drive::Drive;
use crate::table_contents::table_in;
use crate::wire::Wire;
use crate::world::World;
use openftl_blocks::BlockFtl;
use openftl_core::{ChunkId, FrameForm, Frames, Geometry, Ppa, Time};
use openftl_media::{ChunkDescriptor, ChunkState, EmulatedDevice, Media, Missing, ProgramFailure, SilentFault};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::words::AREA_COPIES;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The next program on a chunk fails, and the chunk goes on behind it.
    Program,
    /// The next program on a chunk fails and closes it.
    Close,
    /// The next erase of a chunk fails, which takes it offline.
    Erase,
    /// A block is good, and read with high ECC.
    HighEcc,
    /// One read of a block fails.
    Retry,
    /// A block cannot be read any more.
    Lose,
    /// A block is changed silently.
    Corrupt,
    /// Two blocks are found in each other's place: a write went astray.
    Swap,
    /// A chunk goes offline with all it holds.
    Offline,
    /// The next erase of a chunk is lost.
    LostErase,
    /// The next program on a chunk is lost.
    LostProgram,
    /// The next program on a chunk goes to other blocks.
    Astray,
}

impl FaultKind {
    /// All of them, with the word that each is written by.
    pub const ALL: [(FaultKind, &'static str); 12] = [
        (FaultKind::Program, "program"),
        (FaultKind::Close, "close"),
        (FaultKind::Erase, "erase"),
        (FaultKind::HighEcc, "ecc"),
        (FaultKind::Retry, "retry"),
        (FaultKind::Lose, "lose"),
        (FaultKind::Corrupt, "corrupt"),
        (FaultKind::Swap, "swap"),
        (FaultKind::Offline, "offline"),
        (FaultKind::LostErase, "losterase"),
        (FaultKind::LostProgram, "lostprogram"),
        (FaultKind::Astray, "astray"),
    ];

    /// Those of which the device says nothing, also not when they happen. They were added later, and are drawn apart.
    pub const SILENT: [FaultKind; 3] = [FaultKind::LostErase, FaultKind::LostProgram, FaultKind::Astray];

    /// The word that it is written by.
    #[must_use]
    pub fn word(self) -> &'static str {
        FaultKind::ALL.iter().find(|(kind, _)| *kind == self).expect("all kinds are listed").1
    }
}

/// A fault at a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Picks the place.
    pub pick: u32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.word(), self.pick)
    }
}

impl FromStr for Fault {
    type Err = ();

    fn from_str(text: &str) -> Result<Fault, ()> {
        let digits = text.find(|c: char| c.is_ascii_digit()).ok_or(())?;
        let (word, pick) = text.split_at(digits);
        let (kind, _) = FaultKind::ALL.into_iter().find(|(_, other)| *other == word).ok_or(())?;
        Ok(Fault { kind, pick: pick.parse().map_err(|_| ())? })
    }
}

/// What a block on the medium says of itself.
#[derive(Clone, Copy)]
struct Inscription {
    ppa: Ppa,
    oob: Oob,
    /// The first eight bytes of its payload.
    head: u64,
    /// It is of the catalog of a table drive: the first copy, or the second.
    catalog_copy: Option<u64>,
}

impl Inscription {
    /// What its copies have in common; `None` if it is missed by nobody but the host.
    fn metadata(&self) -> Option<(u8, u64, u64)> {
        match self.oob.kind {
            kind if kind.is_of_host() || matches!(kind, BlockKind::Padding | BlockKind::Tenant) => None,
            kind => Some((kind as u8, self.oob.address, self.oob.sequence)),
        }
    }
}

/// All blocks that verify, and how many copies there are of metadata.
struct Inscriptions {
    blocks: Vec<Inscription>,
    /// Chunks with blocks that can be read and do not verify: they are damaged, or the device has copied them, and the drive
    /// does not know it yet. What such a chunk holds cannot be told.
    unclear: BTreeSet<ChunkId>,
    copies: BTreeMap<(u8, u64, u64), u32>,
    /// The copy of the catalog that has lost something. The other one has to be whole.
    lost_copy: Option<u64>,
}

/// The copy of the catalog that a block is of, where the catalog has so many blocks.
fn catalog_copy(oob: Oob, catalog: u64) -> Option<u64> {
    let is_catalog = oob.kind.is_of_host() && oob.address < catalog;
    is_catalog.then(|| oob.address * u64::from(AREA_COPIES) / catalog)
}

impl Inscriptions {
    fn read(world: &mut World<impl Drive>) -> Inscriptions {
        let catalog = u64::from(world.ftl().block().config().catalog_blocks);
        let places = world.written_places();
        let mut frames = Frames::new(1, 0, world.wire.geometry().oob_bytes as usize);
        let frame = frames.acquire(FrameForm::Bytes).expect("a new pool is full");
        let format = world.wire.geometry().format();
        let lost_copy = world.lost_copy;
        let mut found =
            Inscriptions { blocks: Vec::new(), unclear: BTreeSet::new(), copies: BTreeMap::new(), lost_copy };
        let ftl = world.ftl.as_ref().expect("the drive is open");
        let mut device = world.wire.device();
        for ppa in places {
            if !device.look(ppa, &mut frames, frame) {
                continue;
            }
            // What does not belong here does not verify here.
            ftl.block().unseal(&mut frames, frame, ppa);
            let Ok(oob) = Oob::verify_either(&frames, frame) else {
                found.unclear.insert(format.chunk_of(ppa));
                continue;
            };
            let head = head_of(frames.payload(frame));
            let inscription = Inscription { ppa, oob, head, catalog_copy: catalog_copy(oob, catalog) };
            if let Some(metadata) = inscription.metadata() {
                *found.copies.entry(metadata).or_default() += 1;
            }
            found.blocks.push(inscription);
        }
        found
    }

    /// Whether all of these may be damaged at once.
    fn may_go(&self, blocks: &[Inscription]) -> bool {
        let mut copies = self.lost_copy.into_iter().chain(blocks.iter().filter_map(|block| block.catalog_copy));
        if let Some(one) = copies.next()
            && copies.any(|other| other != one)
        {
            return false;
        }
        let mut going: BTreeMap<(u8, u64, u64), u32> = BTreeMap::new();
        for metadata in blocks.iter().filter_map(Inscription::metadata) {
            *going.entry(metadata).or_default() += 1;
        }
        going.iter().all(|(metadata, going)| self.copies[metadata] > *going)
    }

    fn in_chunk(&self, world: &World<impl Drive>, chunk: ChunkId) -> Vec<Inscription> {
        let format = world.wire.geometry().format();
        self.blocks.iter().copied().filter(|block| format.chunk_of(block.ppa) == chunk).collect()
    }
}

impl<D: Drive> World<D> {
    /// Lets something go wrong. Gives whether there was a place for it.
    pub(crate) fn go_wrong(&mut self, fault: Fault) -> bool {
        let Fault { kind, pick } = fault;
        match kind {
            FaultKind::Program | FaultKind::Close | FaultKind::Erase | FaultKind::HighEcc | FaultKind::Retry => {
                let now = self.clock.0;
                let block = self.ftl.as_ref().expect("the drive is open").block();
                disturb(&mut self.wire.device(), block, now, fault)
            }
            FaultKind::Swap => {
                let inscriptions = Inscriptions::read(self);
                let mut blocks = inscriptions.blocks.clone();
                blocks.retain(|block| inscriptions.may_go(&[*block]));
                let Some(one) = picked(&blocks, pick) else { return false };
                blocks.retain(|other| other.ppa != one.ppa && inscriptions.may_go(&[one, *other]));
                // Another version of the same logical block is the one that is hardest to tell from it.
                let is_twin = |other: &Inscription| {
                    one.oob.kind.is_of_host() && other.oob.kind.is_of_host() && other.oob.address == one.oob.address
                };
                if blocks.iter().any(is_twin) && pick.is_multiple_of(2) {
                    blocks.retain(is_twin);
                }
                let Some(other) = picked(&blocks, pick.wrapping_mul(31)) else { return false };
                self.tell_the_model(&[one, other]);
                self.device().misdirect(one.ppa, other.ppa).expect("a store in memory");
                true
            }
            FaultKind::Lose | FaultKind::Corrupt => {
                let inscriptions = Inscriptions::read(self);
                let mut blocks = inscriptions.blocks.clone();
                blocks.retain(|block| inscriptions.may_go(&[*block]));
                let Some(block) = picked(&blocks, pick) else { return false };
                self.tell_the_model(&[block]);
                let mut device = self.device();
                let done = match kind {
                    FaultKind::Lose => device.inject_read_failure(block.ppa),
                    _ => device.corrupt(block.ppa),
                };
                done.expect("a store in memory");
                true
            }
            FaultKind::LostErase => {
                let Some(chunk) = picked(&self.good_chunks(), pick) else { return false };
                self.device().inject_silent_fault(chunk, SilentFault::LostErase);
                true
            }
            FaultKind::LostProgram => {
                let Some(chunk) = picked(&self.forgettable_chunks(), pick) else { return false };
                self.device().inject_silent_fault(chunk, SilentFault::LostProgram);
                true
            }
            FaultKind::Astray => {
                let (inscriptions, geometry) = (Inscriptions::read(self), *self.wire.geometry());
                let Some(chunk) = picked(&self.forgettable_chunks(), pick) else { return false };
                // Metadata of which a copy goes now may go once more before it is programmed over.
                let mut blocks = inscriptions.blocks.clone();
                blocks.retain(|block| block.oob.kind.is_of_host() && block.catalog_copy.is_none());
                let Some(block) = picked(&blocks, pick.wrapping_mul(31)) else { return false };
                let (format, at) = (geometry.format(), geometry.format().block_of(block.ppa));
                let first = format.ppa(format.chunk_of(block.ppa), at - at % geometry.ws_min);
                let unit = first.0..first.0 + u64::from(geometry.ws_min);
                let over: Vec<Inscription> =
                    inscriptions.blocks.iter().copied().filter(|other| unit.contains(&other.ppa.0)).collect();
                if !inscriptions.may_go(&over) {
                    return false;
                }
                self.device().inject_silent_fault(chunk, SilentFault::Misdirected(first));
                true
            }
            FaultKind::Offline => {
                let inscriptions = Inscriptions::read(self);
                let mut chunks = self.dispensable_chunks();
                chunks.retain(|chunk| {
                    !inscriptions.unclear.contains(chunk) && inscriptions.may_go(&inscriptions.in_chunk(self, *chunk))
                });
                let Some(chunk) = picked(&chunks, pick) else { return false };
                self.tell_the_model(&inscriptions.in_chunk(self, chunk));
                self.device().take_offline(chunk).expect("a store in memory");
                true
            }
        }
    }

    /// Chunks of which the next program may be lost: one where data are written, or the first copy of metadata, if there is a
    /// second. Of a table drive, where tables are: the catalog may lose something of one copy alone, whichever comes first.
    fn forgettable_chunks(&mut self) -> Vec<ChunkId> {
        let report = self.chunk_report();
        // One that is free may be given back unwritten, and the other copy or the catalog go there.
        let is_open = |chunk: ChunkId| {
            report.iter().any(|descriptor| descriptor.chunk == chunk && descriptor.state == ChunkState::Open)
        };
        let ftl = self.ftl().block();
        let superblock = ftl.superblock();
        let of_log = superblock.log_chunks[0].iter().copied();
        // A place with a bad chunk may be given up when the other is full.
        let is_good = |chunk: u32| {
            report
                .iter()
                .any(|descriptor| descriptor.chunk == ChunkId(chunk) && descriptor.state != ChunkState::Offline)
        };
        let has_two_places = superblock.places.into_iter().all(is_good);
        let of_superblocks = superblock.places[..2].iter().copied().filter(|_| has_two_places);
        let mut chunks: Vec<ChunkId> = of_log.chain(of_superblocks).map(ChunkId).collect();
        let data = if ftl.config().catalog_blocks > 0 { ChunkUse::Tenant } else { ChunkUse::Open };
        chunks.extend(ftl.chunk_uses().filter(|(_, usage, _)| *usage == data).map(|(chunk, ..)| chunk));
        chunks.retain(|chunk| is_open(*chunk));
        chunks
    }

    fn good_chunks(&mut self) -> Vec<ChunkId> {
        good_chunks(&self.chunk_report())
    }

    /// Good chunks without which the drive can go on, or wear out.
    fn dispensable_chunks(&mut self) -> Vec<ChunkId> {
        let report = self.chunk_report();
        dispensable_chunks(&self.wire.device(), &report, self.ftl.as_ref().expect("the drive is open").block())
    }

    /// Tells the model what silent faults have cost so far.
    pub(crate) fn note_missing(&mut self) {
        let missing = self.device().take_missing();
        if missing.is_empty() {
            return;
        }
        self.keep_missing(&missing);
        let catalog = u64::from(self.ftl().block().config().catalog_blocks);
        let mut frames = Frames::new(0, 1, openftl_core::OOB_BYTES_MIN);
        let frame = frames.acquire(FrameForm::Stamp).expect("a new pool is full");
        for Missing { place, oob, head } in missing {
            frames.oob_mut(frame).copy_from_slice(&oob);
            if let Ok(oob) = Oob::peek(&frames, frame) {
                let inscription = Inscription { ppa: place, oob, head, catalog_copy: catalog_copy(oob, catalog) };
                self.tell_the_model(&[inscription]);
            }
        }
    }

    fn tell_the_model(&mut self, blocks: &[Inscription]) {
        let catalog = u64::from(self.ftl().block().config().catalog_blocks);
        for block in blocks {
            if block.catalog_copy.is_some() {
                self.lost_copy = block.catalog_copy;
                continue;
            }
            match block.oob.kind {
                BlockKind::Data => self.damage(block.oob.address - catalog, block.head),
                BlockKind::Uncorrectable => self.damage_uncorrectable(block.oob.address),
                BlockKind::Tenant => self.model().damage_table(table_in(block.head), block.oob.address as u32),
                _ => {}
            }
        }
    }
}

/// Lets something go wrong by which nothing is lost, on a drive of any kind. Gives whether there was a place for it.
///
/// # Panics
/// If the fault takes data away.
pub fn disturb(device: &mut EmulatedDevice, block: &BlockFtl<Wire>, now: Time, fault: Fault) -> bool {
    let Fault { kind, pick } = fault;
    let report = device.whole_chunk_report(now).expect("the device answers");
    match kind {
        FaultKind::Program | FaultKind::Close => {
            let Some(chunk) = picked(&good_chunks(&report), pick) else { return false };
            let failure = if kind == FaultKind::Close { ProgramFailure::ChunkClosed } else { ProgramFailure::NextUnit };
            device.inject_program_failure(chunk, failure);
        }
        FaultKind::Erase => {
            let Some(chunk) = picked(&dispensable_chunks(device, &report, block), pick) else { return false };
            let endurance = device.endurance();
            device.set_wear(chunk, endurance).expect("a store in memory");
        }
        FaultKind::HighEcc => {
            let Some(ppa) = picked(&written_places(device.geometry(), &report), pick) else { return false };
            device.inject_high_ecc(ppa);
        }
        FaultKind::Retry => {
            // Where reads fail at random, too, the repeated one might: then the block would be lost, and nothing to blame.
            if device.profile().faults.read_retry > 0.0 {
                return false;
            }
            let Some(ppa) = picked(&written_places(device.geometry(), &report), pick) else { return false };
            device.inject_transient_read_failure(ppa, 1);
        }
        _ => unreachable!("{fault} takes data away"),
    }
    true
}

fn good_chunks(report: &[ChunkDescriptor]) -> Vec<ChunkId> {
    report.iter().filter(|chunk| chunk.state != ChunkState::Offline).map(|chunk| chunk.chunk).collect()
}

fn dispensable_chunks(device: &EmulatedDevice, report: &[ChunkDescriptor], block: &BlockFtl<Wire>) -> Vec<ChunkId> {
    let mut chunks = good_chunks(report);
    let endurance = device.endurance();
    let worn: Vec<ChunkId> = device.wear().filter(|(_, resets)| *resets >= endurance).map(|(chunk, _)| chunk).collect();
    let places: Vec<ChunkId> = block.superblock().places.iter().copied().map(ChunkId).collect();
    let good = places.iter().filter(|place| chunks.contains(place) && !worn.contains(place)).count();
    chunks.retain(|chunk| good > 2 || !places.contains(chunk));
    chunks
}

/// All places below a write pointer.
pub(crate) fn written_places(geometry: &Geometry, report: &[ChunkDescriptor]) -> Vec<Ppa> {
    let format = geometry.format();
    let places = |chunk: &ChunkDescriptor| {
        let chunk = *chunk;
        (0..chunk.write_pointer).map(move |block| format.ppa(chunk.chunk, block))
    };
    report.iter().flat_map(places).collect()
}

fn picked<T: Copy>(among: &[T], pick: u32) -> Option<T> {
    if among.is_empty() { None } else { Some(among[pick as usize % among.len()]) }
}
