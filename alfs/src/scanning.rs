//! What lies in the logs, without any record: nodes, and which of several blocks of one node is the newest.
//!
//! | evidence | what it says |
//! |---|---|
//! | summary of a full segment | the owner of each block. A block counts as a node only if its owner says the same: contents of files may look like nodes |
//! | a segment without summary | it is a segment of nodes if each of its blocks is a block of metadata that says that it is there |
//! | the newest block of the map of nodes | where its nodes were when it was written, and which were free. An older block of a node is stale |
//! | the sequence of a node | of blocks that are newer than the map's, the one with the greatest sequence is the node |
//! | a block of patches | how nodes differ from the blocks that it names. Of the patches of a block that counts the newest does |

use crate::block::{Bytes, Kind, Seen, is_in_place, look};
use crate::mounting::MountError;
use crate::node_map::{address_in, block_of};
use crate::patch;
use crate::record::SEQUENCE_END;
use crate::requests::read_each;
use crate::segments::{ANCHORS, IS_MAP, IS_NODE, IS_PATCHES, Owner, Shape, owners};
use openftl_core::Clock;
use openftl_parts::target::SegmentTarget;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The newest block of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Its kind.
    pub kind: Kind,
    /// The record that it, or its patch, was written for.
    pub sequence: u64,
    /// Where it is.
    pub address: u32,
}

/// What was found in the logs.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The volume.
    pub volume: u64,
    /// The greatest sequence of any block.
    pub last: u64,
    /// The greatest of a node or a block of the map of nodes: what was written for it may be there in part.
    pub last_sync: u64,
    /// Nodes by number.
    pub nodes: BTreeMap<u32, Found>,
    /// Where their newest patches are.
    pub patches: BTreeMap<u32, u32>,
    /// Blocks that cannot be read.
    pub unreadable: u64,
    /// Nodes that the map names, of which no block or only an older one was found.
    pub missing: Vec<u32>,
}

/// A block of metadata of a log.
struct Version {
    seen: Seen,
    address: u32,
}

/// The patch of a node, in a block of patches.
struct PatchSeen {
    /// The block of patches.
    of: Version,
    node: u32,
    base: u32,
}

#[derive(Default)]
struct Scanner {
    versions: Vec<Version>,
    patches: Vec<PatchSeen>,
    /// By volume and index: the newest block of the map.
    maps: BTreeMap<(u64, u32), (u64, Box<Bytes>)>,
    /// Blocks of each volume.
    volumes: FxHashMap<u64, u64>,
    last: FxHashMap<u64, u64>,
    unreadable: FxHashSet<u32>,
}

impl Scanner {
    /// A block is of a volume, and that has come so far.
    fn see(&mut self, seen: Seen) {
        let last = self.last.entry(seen.volume).or_default();
        *last = (*last).max(seen.sequence);
    }

    /// Takes a node, or a block of the map of nodes or of patches with its bytes.
    fn take(&mut self, seen: Seen, address: u32, bytes: &Bytes) {
        self.see(seen);
        *self.volumes.entry(seen.volume).or_default() += 1;
        if seen.kind == Kind::Patches {
            let entries = patch::entries(bytes).unwrap_or_default().into_iter();
            let patches = entries.map(|entry| (entry.node, entry.base));
            let of = |(node, base)| PatchSeen { of: Version { seen, address }, node, base };
            return self.patches.extend(patches.map(of));
        }
        if seen.kind != Kind::NodeMap {
            return self.versions.push(Version { seen, address });
        }
        let newest = self.maps.entry((seen.volume, seen.identity));
        let (sequence, block) = newest.or_insert_with(|| (seen.sequence, Box::new(*bytes)));
        if *sequence < seen.sequence {
            (*sequence, **block) = (seen.sequence, *bytes);
        }
    }
}

/// What is certain about a block that a volume may have written.
fn seen(bytes: &Bytes) -> Option<Seen> {
    look(bytes).ok().filter(|seen| seen.sequence < SEQUENCE_END)
}

/// The owners of the blocks of a full segment, and the volume whose summary it is; `None`: there is no whole summary.
pub(crate) fn summary_of(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    shape: Shape,
    segment: u32,
) -> Result<Option<(Vec<Owner>, Seen)>, MountError> {
    if target.segment(segment).written < shape.segment_blocks {
        return Ok(None);
    }
    let first = shape.first_of(segment) + shape.data_blocks();
    let (mut found, mut of, mut is_whole) = (Vec::new(), None::<Seen>, true);
    let blocks = shape.data_blocks() as usize;
    read_each(target, clock, first, shape.summary_blocks(), &mut |_, bytes| {
        let seen = bytes.and_then(seen).filter(|seen| seen.kind == Kind::Summary && seen.identity == segment);
        match (bytes, seen) {
            (Some(bytes), Some(seen)) if of.is_none_or(|of| of.volume == seen.volume) => {
                found.extend(owners(bytes).take(blocks - found.len()));
                of = of.max_by_sequence(seen);
            }
            _ => is_whole = false,
        }
    })?;
    Ok(of.filter(|_| is_whole).map(|of| (found, of)))
}

trait Newest {
    fn max_by_sequence(self, other: Seen) -> Option<Seen>;
}

impl Newest for Option<Seen> {
    fn max_by_sequence(self, other: Seen) -> Option<Seen> {
        Some(self.filter(|seen| seen.sequence >= other.sequence).unwrap_or(other))
    }
}

/// Blocks of nodes and of the map of nodes of a full segment, as its summary says.
fn scan_full(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    first: u32,
    (owners, of): (Vec<Owner>, Seen),
    scanner: &mut Scanner,
) -> Result<(), MountError> {
    scanner.see(of);
    let is_metadata = |owner: &Owner| owner.node != 0 && matches!(owner.slot, IS_NODE | IS_MAP | IS_PATCHES);
    let mut at = 0;
    while let Some(begins) = owners[at..].iter().position(is_metadata).map(|skip| at + skip) {
        let count = owners[begins..].iter().take_while(|owner| is_metadata(owner)).count();
        at = begins + count;
        read_each(target, clock, first + begins as u32, count as u32, &mut |address, bytes| {
            let Some(bytes) = bytes else {
                scanner.unreadable.insert(address);
                return;
            };
            let owner = owners[(address - first) as usize];
            let says = |seen: &Seen| match owner.slot {
                IS_NODE => seen.kind.is_node() && seen.identity == owner.node,
                IS_PATCHES => seen.kind == Kind::Patches,
                _ => seen.kind == Kind::NodeMap && seen.identity == owner.node - 1,
            };
            if let Some(seen) = seen(bytes).filter(|seen| says(seen) && seen.volume == of.volume) {
                scanner.take(seen, address, bytes);
            }
        })?;
    }
    Ok(())
}

/// The same of a segment without a summary, all blocks of which are metadata, or none counts.
fn scan_open(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    first: u32,
    count: u32,
    scanner: &mut Scanner,
) -> Result<(), MountError> {
    let mut is_of_nodes = true;
    let mut nodes: Vec<(Seen, u32)> = Vec::new();
    let mut maps: Vec<(Seen, u32, Box<Bytes>)> = Vec::new();
    let mut unreadable = Vec::new();
    read_each(target, clock, first, count, &mut |address, bytes| match bytes.map(|bytes| (seen(bytes), bytes)) {
        _ if !is_of_nodes => {}
        None => unreadable.push(address),
        Some((Some(seen), bytes)) if seen.kind != Kind::Summary && !is_in_place(bytes, address) => is_of_nodes = false,
        Some((Some(seen), bytes)) if matches!(seen.kind, Kind::NodeMap | Kind::Patches) => {
            maps.push((seen, address, Box::new(*bytes)));
        }
        Some((Some(seen), _)) if seen.kind.is_node() => nodes.push((seen, address)),
        // A rebuild that was cut off has filled it up.
        Some((Some(seen), _)) if seen.kind == Kind::Summary => {}
        Some(_) => is_of_nodes = false,
    })?;
    scanner.unreadable.extend(unreadable);
    if is_of_nodes {
        let nothing = crate::block::zeroes();
        nodes.into_iter().for_each(|(seen, address)| scanner.take(seen, address, &nothing));
        maps.into_iter().for_each(|(seen, address, bytes)| scanner.take(seen, address, &bytes));
    }
    Ok(())
}

/// Reads all logs. `None`: there is nothing of a volume.
pub(crate) fn scan(
    target: &mut impl SegmentTarget,
    clock: &mut dyn Clock,
    shape: Shape,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<Scan>, MountError> {
    let mut scanner = Scanner::default();
    for segment in 0..shape.segments {
        progress(segment.into(), shape.segments.into());
        let (first, written) = (shape.first_of(segment), target.segment(segment).written);
        if segment < ANCHORS {
            // Its records do not count, and what they were written for may be in the logs.
            read_each(target, clock, first, written, &mut |_, bytes| {
                bytes.and_then(seen).into_iter().for_each(|seen| scanner.see(seen));
            })?;
            continue;
        }
        match summary_of(target, clock, shape, segment)? {
            Some(summary) => scan_full(target, clock, first, summary, &mut scanner)?,
            None => scan_open(target, clock, first, written.min(shape.data_blocks()), &mut scanner)?,
        }
    }
    let most = scanner.volumes.iter().max_by_key(|(volume, blocks)| (**blocks, **volume));
    let Some((&volume, _)) = most else { return Ok(None) };
    let last = scanner.last.get(&volume).copied().unwrap_or(0);
    let mut scan = Scan { volume, last, unreadable: scanner.unreadable.len() as u64, ..Scan::default() };
    // No volume ever had more nodes.
    scanner.maps.retain(|(_, index), _| *index < shape.map_blocks_max());
    scanner.versions.retain(|version| block_of(version.seen.identity) < shape.map_blocks_max());
    choose(&mut scan, scanner);
    Ok(Some(scan))
}

/// Of all blocks of each node the one that counts.
fn choose(scan: &mut Scan, scanner: Scanner) {
    let Scanner { mut versions, mut maps, mut patches, unreadable, .. } = scanner;
    versions.retain(|version| version.seen.volume == scan.volume && version.seen.identity != 0);
    maps.retain(|(volume, _), _| *volume == scan.volume);
    patches.retain(|patch| patch.of.seen.volume == scan.volume);
    let sequences = versions.iter().map(|version| version.seen.sequence).chain(maps.values().map(|(last, _)| *last));
    let of_patches = patches.iter().map(|patch| patch.of.seen.sequence);
    scan.last_sync = sequences.chain(of_patches).max().unwrap_or(0);
    versions.sort_by_key(|Version { seen, address }| (seen.identity, Reverse(seen.sequence), *address));
    // A node that is not where the map says was freed since, and its segment was trimmed; unless it cannot be read, or the map is of a sync
    // that is there in part.
    let may_be_lost = |sequence: u64, address: u32| unreadable.contains(&address) || sequence == scan.last_sync;
    for of_node in versions.chunk_by(|one, other| one.seen.identity == other.seen.identity) {
        let node = of_node[0].seen.identity;
        let newest = &of_node[0];
        let chosen = match maps.get(&(scan.volume, block_of(node))) {
            Some((sequence, map)) if newest.seen.sequence <= *sequence => {
                let address = address_in(map, node);
                let there = of_node.iter().find(|version| address != 0 && version.address == address);
                there.or_else(|| Some(newest).filter(|_| address != 0 && may_be_lost(*sequence, address)))
            }
            _ => Some(newest),
        };
        let Some(Version { seen, address }) = chosen else { continue };
        let found = Found { kind: seen.kind, sequence: seen.sequence, address: *address };
        scan.nodes.insert(node, found);
    }
    // A patch of an earlier block at the same address is older than the block.
    let counts = |patch: &PatchSeen| {
        let found = scan.nodes.get(&patch.node);
        found.is_some_and(|found| found.address == patch.base && patch.of.seen.sequence >= found.sequence)
    };
    patches.retain(counts);
    patches.sort_by_key(|PatchSeen { of, node, .. }| (*node, of.seen.sequence, of.seen.identity, of.address));
    for PatchSeen { of, node, .. } in patches {
        scan.nodes.get_mut(&node).expect("it was just looked at").sequence = of.seen.sequence;
        scan.patches.insert(node, of.address);
    }
    // Nodes that cannot be read where the map says.
    for ((_, index), (_, map)) in &maps {
        for node in crate::node_map::nodes_of(*index).filter(|node| *node != 0) {
            let address = address_in(map, node);
            if unreadable.contains(&address) && scan.nodes.get(&node).is_none_or(|found| found.address != address) {
                scan.missing.push(node);
            }
        }
    }
}
