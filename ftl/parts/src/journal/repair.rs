//! Rebuilding a map that cannot be trusted: from what is left of checkpoint and log, and from what each block on the
//! media says of itself.
//!
//! Every block of data carries its logical address and the sequence of its write, which a relocation keeps. So the newest
//! version of a logical block is known without a map. What is not known from the blocks alone is which of them were
//! trimmed, and which belong to writes that were never committed.
//!
//! | the map is lost, and what is left of it says | on the media | then |
//! |---|---|---|
//! | the last word: no page of the log behind it is lost | | that |
//! | it was at a place that cannot be read | | it stays there: an error until it is overwritten |
//! | anything else | a version of it | the newest |
//! | it was somewhere | none | lost: an error until it is overwritten or trimmed |
//! | nothing | none, and not all blocks can be read | the same |
//! | it is nowhere, or nothing | none | never written, or trimmed |
//!
//! A chunk of which not a single block can be read was being erased, and only chunks are that hold nothing any more.
//!
//! A damaged block whose out-of-band bytes can still be read is a version too, so that an older one never takes its place.
//!
//! # Seals
//! What is lost of checkpoint and log may have been the [seal](crate::flash::seals) of a chunk. All log on the media is looked for,
//! whichever chunk it is in, because it may name the opening. If it does not, the blocks of the chunk have a seal in common:
//!
//! | blocks of a chunk that verify by the seal that is known | blocks that would by one other seal | then |
//! |---|---|---|
//! | some | any | those that do count; the others are damaged |
//! | none | two or more | that is its seal, and they count; the others are damaged |
//! | none | one | it is damaged: any bytes have some seal |
//!
//! What a copied block had borrowed cannot be found again so: where that is lost, the block is.
//!
//! # A map on media
//! Of checkpoint and log its pages are left, too ([`map_pages`]).

pub mod map_pages;

use crate::flash::chunks::Chunks;
use crate::flash::oob::{BlockKind, Oob};
use crate::flash::scan::{Scan, interleaved};
use crate::journal::found_checkpoint::FoundCheckpoint;
use crate::journal::found_log::FoundLog;
use crate::journal::log_block::{self, Record};
use crate::journal::superblock::{COUNTS_END, Superblock};
use crate::map::{Entry, Mapping, Place};
use crate::open_error::OpenError;
use openftl_core::{ChunkId, Clock, Ppa};
use openftl_media::{ChunkState, Media};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};

/// What had to be rebuilt, and how well that went.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct RepairReport {
    /// Why the drive could not be opened as it was.
    pub damage: String,
    /// Written blocks on the media that cannot be read, or do not verify.
    pub media_blocks_unreadable: u64,
    /// Logical blocks of which checkpoint and log still had the last word.
    pub blocks_known: u64,
    /// Logical blocks whose newest version on the media was taken.
    pub blocks_rebuilt: u64,
    /// Of those, the ones that were nowhere by what is left of the map: they may have been trimmed.
    pub blocks_returned: u64,
    /// Logical blocks of which no version can be read, or the newest cannot: errors until they are written or trimmed.
    pub blocks_lost: u64,
    /// Of a store of pages, if its index had to be rebuilt: how well that went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexRepair>,
    /// Of a key-value drive, if its directory was written anew: keys with values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
}

/// How well the index of a store of pages was rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct IndexRepair {
    /// Pages of which the log still had the last word.
    pub pages_known: u64,
    /// Pages whose newest version on the media was taken.
    pub pages_rebuilt: u64,
    /// Of those, the ones that were nowhere by what is left of the index: they may have been deleted, or be of batches that were never committed.
    pub pages_returned: u64,
    /// Pages that were somewhere, and of which no version can be read: errors until they are put or deleted.
    pub pages_lost: u64,
}

/// A rebuilt map goes on above all that is on the media.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Highest {
    /// Sequence of data.
    pub sequence: u64,
    /// Log sequence number.
    pub lsn: u64,
}

/// The newest version of each logical block on the media, of as many as there are.
struct Versions {
    capacity_blocks: u64,
    newest: FxHashMap<u64, Version>,
    /// Written blocks that cannot be read, in chunks of which others can.
    unreadable: FxHashSet<Ppa>,
    /// Versions that do not verify.
    damaged: FxHashSet<Ppa>,
    /// Of a map on media: the newest of each page, and where it is.
    pages: BTreeMap<u32, (u64, Vec<Ppa>)>,
    highest: Highest,
}

/// A version of a logical block.
#[derive(Clone, Copy)]
struct Version {
    sequence: u64,
    place: Ppa,
}

/// A map that is being rebuilt.
trait Rebuilt {
    /// Where `block` is, as far as is known.
    fn get(&self, block: u64) -> Entry;
    /// It is there.
    fn set(&mut self, block: u64, entry: Entry);
}

impl Rebuilt for Mapping {
    fn get(&self, block: u64) -> Entry {
        Mapping::get(self, block)
    }

    fn set(&mut self, block: u64, entry: Entry) {
        Mapping::set(self, block, entry);
    }
}

/// A block that does not verify by what is known of its chunk's seal.
struct Disagreeing {
    ppa: Ppa,
    oob: Oob,
    /// What its salt would have to differ by: if it is of bytes, and if it is of a stamp.
    salts: [Option<u32>; 2],
}

/// Of what the salts of blocks would have to differ by, the one that most blocks have in common, and how many have it.
#[must_use]
pub fn common_salt(salts: impl Iterator<Item = u32>) -> Option<(u32, u32)> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    salts.for_each(|salt| *counts.entry(salt).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count)
}

impl Versions {
    fn read(
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        scan: &mut Scan,
        chunks: &Chunks,
        superblock: &Superblock,
    ) -> Versions {
        let mut versions = Versions {
            capacity_blocks: superblock.capacity_blocks,
            newest: FxHashMap::default(),
            unreadable: FxHashSet::default(),
            damaged: FxHashSet::default(),
            pages: BTreeMap::new(),
            highest: Highest::default(),
        };
        let format = chunks.geometry.format();
        for number in 0..chunks.geometry.chunks_per_pu {
            let on_each_pu = chunks.geometry.pu_ids().map(|pu| format.chunk_id(pu, number));
            let data = on_each_pu.filter(|chunk| !superblock.places.contains(&chunk.0));
            let mut unreadable = Vec::new();
            let mut is_read = FxHashSet::default();
            let mut disagreeing: BTreeMap<ChunkId, Vec<Disagreeing>> = BTreeMap::new();
            let mut agreeing = FxHashSet::default();
            let written = data.flat_map(|chunk| (0..chunks.readable(chunk)).map(move |block| format.ppa(chunk, block)));
            let places = interleaved(format, written);
            scan.read(media, clock, &places, |ppa, frames, frame, oob| {
                let is_good = oob.is_some();
                let Some(oob) = oob.or_else(|| Oob::peek(frames, frame).ok()) else {
                    unreadable.push(ppa);
                    return;
                };
                let Oob { kind, address, sequence } = oob;
                let chunk = format.chunk_of(ppa);
                is_read.insert(chunk);
                let is_of_life = kind.is_of_host() || matches!(kind, BlockKind::Tenant | BlockKind::Map);
                if is_of_life && is_good {
                    agreeing.insert(chunk);
                } else if is_of_life {
                    let salts = Oob::salts_left(frames, frame);
                    disagreeing.entry(chunk).or_default().push(Disagreeing { ppa, oob, salts });
                    return;
                }
                let is_log = || log_block::parse_block(frames.bytes(frame), superblock.drive).is_ok();
                match kind {
                    _ if sequence >= COUNTS_END => {}
                    kind if kind.is_of_host() => versions.add(ppa, address, sequence, is_good),
                    BlockKind::Map => versions.add_page(ppa, address, sequence),
                    BlockKind::Log if is_log() => versions.highest.lsn = versions.highest.lsn.max(sequence),
                    _ => {}
                }
            });
            for (chunk, blocks) in disagreeing {
                let common = common_salt(blocks.iter().flat_map(|block| block.salts).flatten());
                // Any bytes have some salt.
                let common = common.filter(|(_, count)| *count > 1 && !agreeing.contains(&chunk));
                let salt = common.map(|(salt, _)| salt);
                if let Some(salt) = salt {
                    let seal = scan.seals.get(chunk) ^ salt;
                    scan.seals.set(chunk, seal);
                }
                for Disagreeing { ppa, oob: Oob { kind, address, sequence }, salts } in blocks {
                    let is_good = salt.is_some_and(|salt| salts.contains(&Some(salt)));
                    match kind {
                        _ if sequence >= COUNTS_END => {}
                        kind if kind.is_of_host() => versions.add(ppa, address, sequence, is_good),
                        BlockKind::Map if is_good => versions.add_page(ppa, address, sequence),
                        _ => {}
                    }
                }
            }
            versions.unreadable.extend(unreadable.iter().filter(|ppa| is_read.contains(&format.chunk_of(**ppa))));
        }
        versions
    }

    fn add_page(&mut self, ppa: Ppa, address: u64, sequence: u64) {
        let Ok(page) = u32::try_from(address) else { return };
        let (newest, places) = self.pages.entry(page).or_default();
        if sequence > *newest {
            (*newest, *places) = (sequence, Vec::new());
        }
        if sequence == *newest {
            places.push(ppa);
        }
    }

    fn add(&mut self, ppa: Ppa, address: u64, sequence: u64, is_good: bool) {
        if address >= self.capacity_blocks {
            return;
        }
        if is_good {
            self.highest.sequence = self.highest.sequence.max(sequence);
        } else {
            self.damaged.insert(ppa);
        }
        // Of a block that was relocated both places are as good, if both can be read.
        let replaces = self.newest.get(&address).is_none_or(|there| {
            sequence > there.sequence || (sequence == there.sequence && is_good && self.damaged.contains(&there.place))
        });
        if replaces {
            self.newest.insert(address, Version { sequence, place: ppa });
        }
    }
}

/// Replays what all log on the media says of seals. A superblock that is lost may have named chunks of it, so they are known
/// by their first write units.
fn replay_openings(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    superblock: &Superblock,
) {
    let format = chunks.geometry.format();
    let readable =
        |chunk: ChunkId, most: u32| (0..chunks.readable(chunk).min(most)).map(move |block| format.ppa(chunk, block));
    let first_units = chunks.all().flat_map(|descriptor| readable(descriptor.chunk, chunks.geometry.ws_min));
    let places = interleaved(format, first_units);
    let mut with_log = BTreeSet::new();
    scan.read(media, clock, &places, |ppa, _, _, oob| {
        if oob.is_some_and(|oob| oob.kind == BlockKind::Log) {
            with_log.insert(format.chunk_of(ppa));
        }
    });
    let places = interleaved(format, with_log.iter().flat_map(|chunk| readable(*chunk, u32::MAX)));
    let mut found: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    scan.read(media, clock, &places, |_, frames, frame, oob| {
        if oob.is_none_or(|oob| oob.kind != BlockKind::Log) {
            return;
        }
        if let Ok(block) = log_block::parse_block(frames.bytes(frame), superblock.drive)
            && block.lsn >= superblock.first_lsn
        {
            let records = log_block::records(block.words).flatten();
            let is_of_seals = |record: &Record| matches!(record, Record::Opened { .. } | Record::Copied { .. });
            found.insert(block.lsn, records.filter(is_of_seals).collect());
        }
    });
    for record in found.into_values().flatten() {
        scan.seals.replay(record);
    }
}

/// Rebuilds `mapping`, which holds what is left of the checkpoint.
pub fn rebuild(
    media: &mut dyn Media,
    clock: &mut dyn Clock,
    scan: &mut Scan,
    chunks: &Chunks,
    superblock: &Superblock,
    (checkpoint, log): (&FoundCheckpoint, &FoundLog),
    damage: &OpenError,
    mapping: &mut Mapping,
) -> (RepairReport, Highest) {
    let mut report = RepairReport { damage: damage.to_string(), ..RepairReport::default() };
    let mut known: Vec<bool> = (0..mapping.len()).map(|block| checkpoint.knows(block)).collect();
    log.replay_remains(superblock, (&mut *mapping, &mut scan.seals), &mut known);
    if !matches!(damage, OpenError::CheckpointLost { .. } | OpenError::LogLost { .. }) {
        // There is log that was not found, or the map contradicts itself.
        known.fill(false);
    }
    replay_openings(media, clock, scan, chunks, superblock);
    let versions = Versions::read(media, clock, scan, chunks, superblock);
    let (all, is_known) = (0..mapping.len(), |block: u64| known[block as usize]);
    report.blocks_known = known.iter().filter(|known| **known).count() as u64;
    take_newest(mapping, all, &is_known, &|block| checkpoint.knows(block), &versions, chunks, &mut report);
    (report, versions.highest)
}

/// Takes the newest version of each of these blocks of `map` that is not known. `is_said`: whether what is left says anything of a block.
/// Of all others nothing is known but that they are nowhere.
fn take_newest(
    map: &mut impl Rebuilt,
    blocks: impl Iterator<Item = u64> + Clone,
    is_known: &dyn Fn(u64) -> bool,
    is_said: &dyn Fn(u64) -> bool,
    versions: &Versions,
    chunks: &Chunks,
    report: &mut RepairReport,
) {
    report.media_blocks_unreadable = (versions.unreadable.len() + versions.damaged.len()) as u64;
    let format = chunks.geometry.format();
    let cannot_be_read = |ppa: Ppa| {
        let chunk: ChunkId = format.chunk_of(ppa);
        versions.unreadable.contains(&ppa)
            || (chunks.get(chunk).is_some() && chunks.state(chunk) == ChunkState::Offline)
    };
    let may_hide = !versions.unreadable.is_empty() || chunks.all().any(|chunk| chunk.state == ChunkState::Offline);
    let mut kept = FxHashSet::default();
    for block in blocks.clone().filter(|block| is_known(*block)) {
        if let Place::Media(ppa) = map.get(block).place() {
            report.blocks_lost += u64::from(cannot_be_read(ppa) || versions.damaged.contains(&ppa));
            kept.insert(ppa);
        }
    }
    for block in blocks.filter(|block| !is_known(*block)) {
        let said = map.get(block).place();
        let entry = match (said, versions.newest.get(&block).map(|version| version.place)) {
            (Place::Media(ppa), _) if cannot_be_read(ppa) => {
                report.blocks_lost += 1;
                if kept.insert(ppa) { Entry::media(ppa) } else { Entry::LOST }
            }
            (_, Some(ppa)) => {
                report.blocks_rebuilt += 1;
                report.blocks_lost += u64::from(versions.damaged.contains(&ppa));
                report.blocks_returned += u64::from(said == Place::Unmapped && is_said(block));
                Entry::media(ppa)
            }
            (Place::Unmapped, None) if is_said(block) || !may_hide => Entry::UNMAPPED,
            (_, None) => {
                report.blocks_lost += 1;
                Entry::LOST
            }
        };
        map.set(block, entry);
    }
}
