//! A volume is made anew from what lies in its logs, when its records are lost.
//!
//! | step | what it does |
//! |---|---|
//! | scan | of all blocks of each node the one that counts is chosen: see `scanning` |
//! | read nodes | a node that contradicts itself is none |
//! | follow names | from the root; a name whose file is gone, or is another kind of file, is removed |
//! | judge the rest | a file without a name was deleted, or goes to `lost+found` |
//! | claim blocks | each block of a file has to be there, and to be that file's; otherwise it is a hole from now on, and the report says so |
//! | mend | links, names and blocks are counted, `lost+found` is made |
//! | write | both anchors are trimmed, segments that are written in part are filled up, and one record follows |
//!
//! Nothing is written before the last step. After it has begun the anchors are empty, what is written to logs is newer than what was there and says the
//! same, and nothing else is trimmed before the record is durable, unless too few segments are free: then those in which nothing was claimed go first, and
//! with them what they told of deleted files. So after a power cut in the middle the volume can be rebuilt again.
//!
//! # What comes back
//! After an unmount: the volume as it was, because an unmount writes the map of nodes. Otherwise the newest block of each node with its newest patch, also of a sync that did
//! not end, so that a rename may be half done: both names, or none, and then the file is in `lost+found`.
//!
//! # Files that were deleted
//! A file without a name is known to be deleted if the map of nodes says so, if it says so itself (no links), or if the folder that it says it is in
//! is newer than it and does not name it, or was deleted. The latter counts only if everything can be read, and the folder is not of the very last sync,
//! which may be there in part. All others go to `lost+found`, so a deleted file may come back there; the folder is its owner's alone, because
//! a block of such a file may be another one's by now where no summary tells.

use crate::block::{Kind, seal};
use crate::chain::expect_version;
use crate::directory::Found as FoundName;
use crate::inode::{ADDRESSES, AREA, NODES, fields};
use crate::mounting::{MountError, shape_of};
use crate::node_map::{NODES_PER_BLOCK, block_of};
use crate::operation::{FileKind, FileTime, Inode, Refusal};
use crate::patches;
use crate::record::MapBlock;
use crate::requests::run;
use crate::scanning::{Scan, scan, summary_of};
use crate::segments::{ANCHORS, IS_NODE, OWNERS_PER_BLOCK, Owner, Segment, State, put_owners};
use crate::tree::{FANOUT, LEVELS, Place, SLOTS, about, span};
use crate::volume::{Options, Volume};
use crate::writing::slot_of;
use openftl_core::{Clock, Frame, FrameForm};
use openftl_parts::target::{Durability, Request, SegmentTarget};
use openftl_parts::words::Handle;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Deeds that are kept; more are counted.
const DEEDS_MAX: usize = 1000;

/// Generations that are left out: those of files that were deleted since, which nothing tells of any more.
const GENERATIONS_LEFT_OUT: u32 = 1 << 16;

/// Summaries that are in memory at a time.
const SUMMARIES_MAX: usize = 64;

/// Blocks that are written at a time.
const WRITE_BLOCKS: usize = 64;

/// What a rebuild has found and done.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RebuildReport {
    /// Nodes that are of use.
    pub nodes: u64,
    /// Files that are no folders.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Blocks of contents and names.
    pub blocks: u64,
    /// Blocks of logs that cannot be read.
    pub unreadable: u64,
    /// Nodes that nothing needs: what was deleted, or was never whole.
    pub dropped: u64,
    /// Files and folders that are in `lost+found` now.
    pub lost_and_found: u64,
    /// Blocks of files that are holes now.
    pub lost_blocks: u64,
    /// What was mended, one sentence each: the first of them.
    pub deeds: Vec<String>,
    /// How many there are.
    pub deeds_all: u64,
}

impl RebuildReport {
    pub(crate) fn tell(&mut self, deed: String) {
        self.deeds_all += 1;
        if self.deeds.len() < DEEDS_MAX {
            self.deeds.push(deed);
        }
    }
}

/// What is known of a file.
#[derive(Clone, Copy)]
pub(crate) struct File {
    pub(crate) kind: FileKind,
    pub(crate) links: u32,
    pub(crate) parent: u32,
    pub(crate) generation: u32,
    pub(crate) sequence: u64,
    pub(crate) is_inline: bool,
    /// Blocks that were found, without nodes.
    pub(crate) blocks: u64,
    /// Names that were found, and of a folder the folders in it.
    pub(crate) names: u32,
    pub(crate) folders: u32,
    /// A name leads to it, or it is in `lost+found`.
    pub(crate) is_reached: bool,
    pub(crate) was_deleted: bool,
}

/// A name that was read.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) folder: u32,
    pub(crate) found: FoundName,
}

pub(crate) struct Rebuild<'c, T> {
    pub(crate) volume: Volume<T>,
    pub(crate) clock: &'c mut dyn Clock,
    pub(crate) scan: Scan,
    pub(crate) report: RebuildReport,
    pub(crate) files: BTreeMap<u32, File>,
    /// Folders that are to be read.
    pub(crate) queue: Vec<u32>,
    /// Names of folders that say they are elsewhere.
    pub(crate) elsewhere: Vec<Name>,
    /// Names to be removed.
    pub(crate) removed: Vec<Name>,
    /// Names in each folder that was read.
    pub(crate) entries: FxHashMap<u32, u32>,
    /// Blocks of folders that cannot be read.
    pub(crate) unreadable_names: FxHashSet<(u32, u32)>,
    /// Something is missing, so that what is not there may have been.
    pub(crate) is_damaged: bool,
    /// Files without a name that stay.
    pub(crate) lost: Vec<u32>,
    /// Nodes that somebody has.
    pub(crate) claimed: FxHashSet<u32>,
    /// Blocks in segments without a summary that somebody has.
    pub(crate) owners: BTreeMap<u32, Owner>,
    pub(crate) node_addresses: FxHashSet<u32>,
    pub(crate) summaries: FxHashMap<u32, Option<Vec<Owner>>>,
    pub(crate) valid: Vec<u32>,
}

impl<T: SegmentTarget> Volume<T> {
    /// Makes the volume of a drive anew from what lies in its logs: see the module. `owner` and `group` have its root, should that be gone. `progress`
    /// is told how many segments were read, of how many.
    ///
    /// # Errors
    /// If nothing of a volume is there, or the drive stops. Nothing has been written in the first case.
    pub fn rebuild(
        mut target: T,
        (owner, group): (u32, u32),
        time_of_day: FileTime,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Volume<T>, RebuildReport), (T, MountError)> {
        let scanned = shape_of(&target).and_then(|shape| {
            expect_version(&mut target, clock, shape)?;
            Ok((shape, scan(&mut target, clock, shape, progress)?))
        });
        let (shape, scan) = match scanned {
            Ok((shape, Some(scan))) => (shape, scan),
            Ok((_, None)) => return Err((target, MountError::NothingToRebuild)),
            Err(error) => return Err((target, error)),
        };
        let mut volume = Volume::blank(target, scan.volume, shape, Options::default());
        volume.now = clock.now();
        volume.time_of_day = time_of_day;
        (volume.syncing.next, volume.syncing.durable) = (scan.last + 2, scan.last);
        let mut rebuild = Rebuild {
            is_damaged: scan.unreadable > 0 || !scan.missing.is_empty(),
            report: RebuildReport { unreadable: scan.unreadable, ..RebuildReport::default() },
            volume,
            clock,
            scan,
            files: BTreeMap::new(),
            queue: Vec::new(),
            elsewhere: Vec::new(),
            removed: Vec::new(),
            entries: FxHashMap::default(),
            unreadable_names: FxHashSet::default(),
            lost: Vec::new(),
            claimed: FxHashSet::default(),
            owners: BTreeMap::new(),
            node_addresses: FxHashSet::default(),
            summaries: FxHashMap::default(),
            valid: vec![0; shape.segments as usize],
        };
        match rebuild.run((owner, group)) {
            Ok(()) => Ok((rebuild.volume, rebuild.report)),
            Err(error) => Err((rebuild.volume.into_target(), error)),
        }
    }
}

impl<T: SegmentTarget> Rebuild<'_, T> {
    fn run(&mut self, root_owner: (u32, u32)) -> Result<(), MountError> {
        self.take_nodes()?;
        self.read_nodes()?;
        if self.files.get(&Inode::ROOT.0).is_some_and(|root| root.kind == FileKind::Directory) {
            self.reach(Inode::ROOT.0);
            self.follow_names(false)?;
        } else {
            self.is_damaged = true;
        }
        self.judge_the_rest()?;
        self.claim_all()?;
        self.put_segments();
        self.mend(root_owner)?;
        self.write()
    }

    /// A step of the volume, repeated until it does not wait.
    pub(crate) fn wait<R>(
        &mut self,
        step: impl FnMut(&mut Volume<T>) -> crate::volume::Step<R>,
    ) -> Result<Result<R, Refusal>, MountError> {
        self.volume.cache.evict();
        self.volume.wait(self.clock, step)
    }

    fn pin(&mut self, node: u32, kinds: &[Kind]) -> Result<bool, MountError> {
        Ok(self.wait(|volume| volume.pin(node, kinds))?.is_ok())
    }

    /// A node is in memory, as it was before.
    pub(crate) fn pin_again(&mut self, node: u32) -> Result<(), MountError> {
        match self.pin(node, &Kind::NODES)? {
            true => Ok(()),
            false => Err(MountError::Stopped("a node that was read before cannot be read again")),
        }
    }

    /// The volume knows where the nodes are.
    fn take_nodes(&mut self) -> Result<(), MountError> {
        for node in std::mem::take(&mut self.scan.missing) {
            let deed = match self.scan.nodes.contains_key(&node) {
                true => format!("node {node} is lost as it was last, an older one is there instead"),
                false => format!("node {node} is lost"),
            };
            self.report.tell(deed);
        }
        let blocks = self.scan.nodes.last_key_value().map_or(0, |(node, _)| block_of(*node)) + 1;
        self.volume.map.blocks = vec![MapBlock { address: 0, free: NODES_PER_BLOCK as u16 }; blocks as usize];
        for (node, found) in &self.scan.nodes {
            self.volume.map.set(*node, found.address);
            self.node_addresses.insert(found.address);
        }
        let patches = std::mem::take(&mut self.scan.patches);
        self.node_addresses.extend(patches.values());
        self.volume.read_patches(&patches, self.clock)
    }

    fn read_nodes(&mut self) -> Result<(), MountError> {
        let mut by_address: Vec<(u32, u32)> = self.scan.nodes.iter().map(|(node, at)| (at.address, *node)).collect();
        by_address.sort_unstable();
        for (_, node) in by_address {
            let found = self.scan.nodes[&node];
            if !self.pin(node, &[found.kind])? {
                self.report.tell(format!("node {node} contradicts itself, and is dropped"));
                self.is_damaged = true;
                self.drop_node(node);
                continue;
            }
            if found.kind != Kind::Inode {
                continue;
            }
            let fields = *fields(&self.volume.cache.node(node).bytes);
            let generation = fields.generation.get();
            let next = generation.saturating_add(1).saturating_add(GENERATIONS_LEFT_OUT);
            self.volume.next_generation = self.volume.next_generation.max(next);
            let file = File {
                kind: fields.kind().expect("the node is sound"),
                links: fields.links.get(),
                parent: fields.parent.get(),
                generation,
                sequence: found.sequence,
                is_inline: fields.is_inline(),
                blocks: 0,
                names: 0,
                folders: 0,
                is_reached: false,
                was_deleted: false,
            };
            self.files.insert(node, file);
        }
        Ok(())
    }

    /// A node is of no use: it is free.
    fn drop_node(&mut self, node: u32) {
        self.volume.cache.forget(crate::cache::Key::Node(node));
        self.volume.map.changes.remove(&node);
        self.volume.map.unrecorded.remove(&node);
        _ = self.volume.patches.forget(node);
        self.scan.nodes.remove(&node);
        self.report.dropped += 1;
    }

    /// Visits the blocks and the nodes of a file, whose contents are not in its node. `block` is told of each block its index, the place of its address, and
    /// that; `node` of each node below. Returns whether all nodes are there; where one is not, its number is 0 from now on.
    pub(crate) fn walk(
        &mut self,
        inode: u32,
        block: &mut dyn FnMut(&mut Self, u32, Place, u32),
        node: &mut dyn FnMut(&mut Self, u32),
    ) -> Result<bool, MountError> {
        let generation = self.files[&inode].generation;
        let mut is_whole = true;
        self.pin_again(inode)?;
        let mut rest: Vec<(Place, u32, u64)> = Vec::new();
        let mut first = ADDRESSES as u64;
        for (which, levels) in LEVELS.into_iter().enumerate() {
            rest.push((Place { node: inode, at: NODES + 4 * which }, levels, first));
            first += span(levels);
        }
        rest.reverse();
        self.visit_addresses(inode, AREA, ADDRESSES as u64, 0, block);
        while let Some((place, levels, first)) = rest.pop() {
            self.pin_again(place.node)?;
            let number = self.volume.number(place);
            if number == 0 {
                continue;
            }
            let kind = Volume::<T>::kind_of(levels);
            let is_there = self.pin(number, &[kind])? && {
                let is = about(&self.volume.cache.node(number).bytes);
                (is.inode, is.generation, is.levels, u64::from(is.first)) == (inode, generation, levels, first)
                    && !self.claimed.contains(&number)
            };
            if !is_there {
                self.pin_again(place.node)?;
                self.volume.set_number(place, 0);
                self.report
                    .tell(format!("blocks of file {inode} from {first} on are lost: node {number} is not there"));
                self.report.lost_blocks += 1;
                is_whole = false;
                continue;
            }
            node(self, number);
            if levels == 1 {
                self.visit_addresses(number, SLOTS, FANOUT, first as u32, block);
                continue;
            }
            let below = span(levels - 1);
            let children = (0..FANOUT)
                .rev()
                .map(|slot| (Place { node: number, at: SLOTS + 4 * slot as usize }, levels - 1, first + slot * below));
            rest.extend(children.filter(|(place, ..)| self.volume.number(*place) != 0));
        }
        Ok(is_whole)
    }

    /// Visits the addresses of a node, which is in memory and stays.
    fn visit_addresses(
        &mut self,
        node: u32,
        at: usize,
        count: u64,
        first: u32,
        block: &mut dyn FnMut(&mut Self, u32, Place, u32),
    ) {
        for slot in 0..count as u32 {
            let place = Place { node, at: at + 4 * slot as usize };
            let address = self.volume.number(place);
            if address != 0 {
                block(self, first + slot, place, address);
            }
        }
    }

    /// The blocks of all files that stay.
    fn claim_all(&mut self) -> Result<(), MountError> {
        let lost: FxHashSet<u32> = self.lost.iter().copied().collect();
        let reached: Vec<u32> =
            self.files.iter().filter(|(_, file)| file.is_reached).map(|(inode, _)| *inode).collect();
        // Where two files say that a block is theirs, and nothing tells, it is that of the file with a name.
        let (last, first): (Vec<u32>, Vec<u32>) = reached.into_iter().partition(|inode| lost.contains(inode));
        for inode in first.iter().chain(&last) {
            self.claim_node(*inode);
        }
        for inode in first.into_iter().chain(last) {
            self.claim_file(inode)?;
        }
        let unclaimed: Vec<u32> = self.scan.nodes.keys().copied().filter(|node| !self.claimed.contains(node)).collect();
        for node in unclaimed {
            self.drop_node(node);
        }
        Ok(())
    }

    /// A block is of use, and belongs to `owner`.
    fn claim(&mut self, address: u32, owner: Owner) {
        self.valid[self.volume.segments.shape.segment_of(address) as usize] += 1;
        self.owners.insert(address, owner);
    }

    fn claim_node(&mut self, node: u32) {
        self.claimed.insert(node);
        let address = self.scan.nodes[&node].address;
        self.claim(address, Owner { node, slot: IS_NODE });
        let patches = self.volume.patches.address_of(node);
        if patches != 0 && !self.owners.contains_key(&patches) {
            self.claim(patches, patches::OWNER);
        }
        self.report.nodes += 1;
    }

    /// The owner of a block, if a summary says so.
    fn owner_of(&mut self, address: u32) -> Result<Option<Owner>, MountError> {
        let shape = self.volume.segments.shape;
        let segment = shape.segment_of(address);
        if !self.summaries.contains_key(&segment) {
            let summary = summary_of(&mut self.volume.target, self.clock, shape, segment)?;
            let owners = summary.filter(|(_, of)| of.volume == self.scan.volume).map(|(owners, _)| owners);
            if self.summaries.len() >= SUMMARIES_MAX {
                self.summaries.clear();
            }
            self.summaries.insert(segment, owners);
        }
        let within = (address % shape.segment_blocks) as usize;
        Ok(self.summaries[&segment].as_ref().and_then(|owners| owners.get(within).copied()))
    }

    /// Why an address cannot be that of a block of `owner`.
    fn objection(&mut self, address: u32, owner: Owner) -> Result<Option<&'static str>, MountError> {
        let shape = self.volume.segments.shape;
        let (segment, within) = (shape.segment_of(address), address % shape.segment_blocks);
        if within >= shape.data_blocks() || within >= self.volume.target.segment(segment).written {
            return Ok(Some("nothing is there"));
        }
        if self.node_addresses.contains(&address) {
            return Ok(Some("a node is there"));
        }
        Ok(match self.owner_of(address)? {
            Some(other) if other == owner && !self.owners.contains_key(&address) => None,
            None if !self.owners.contains_key(&address) => None,
            _ => Some("it is another one's"),
        })
    }

    fn claim_file(&mut self, inode: u32) -> Result<(), MountError> {
        self.pin_again(inode)?;
        let of_file = *fields(&self.volume.cache.node(inode).bytes);
        let mut blocks = 1;
        let xattrs = of_file.xattrs.get();
        if xattrs != 0 {
            if !self.claimed.contains(&xattrs) && self.pin(xattrs, &[Kind::Xattrs])? {
                self.claim_node(xattrs);
                blocks += 1;
            } else {
                self.pin_again(inode)?;
                self.volume.fields_mut(Inode(inode)).xattrs = 0.into();
                self.report.tell(format!("extended attributes of file {inode} are lost: node {xattrs} is not there"));
            }
        }
        if !self.files[&inode].is_inline {
            blocks += self.claim_blocks(inode)?;
        }
        self.pin_again(inode)?;
        if of_file.blocks.get() != blocks {
            self.volume.fields_mut(Inode(inode)).blocks = blocks.into();
            let said = of_file.blocks.get();
            self.report.tell(format!("file {inode} has {blocks} blocks, and said {said}"));
        }
        Ok(())
    }

    /// Claims the blocks of a file, and the nodes above them; they are counted.
    fn claim_blocks(&mut self, inode: u32) -> Result<u64, MountError> {
        let mut found: Vec<(u32, Place, u32)> = Vec::new();
        let mut nodes: Vec<u32> = Vec::new();
        _ = self.walk(
            inode,
            &mut |_, index, place, address| found.push((index, place, address)),
            &mut |rebuild, node| {
                rebuild.claim_node(node);
                nodes.push(node);
            },
        )?;
        for (index, place, address) in found {
            let owner = Owner { node: place.node, slot: slot_of(place, place.node == inode) };
            let objection = match self.unreadable_names.contains(&(inode, index)) {
                true => Some("it cannot be read"),
                false => self.objection(address, owner)?,
            };
            let Some(objection) = objection else {
                self.claim(address, owner);
                self.files.get_mut(&inode).expect("it is there").blocks += 1;
                continue;
            };
            self.pin_again(place.node)?;
            self.volume.set_number(place, 0);
            self.volume.cache.forget(crate::cache::Key::Page(inode, index));
            self.report.lost_blocks += 1;
            self.report.tell(format!("block {index} of file {inode} is lost: {objection}"));
        }
        let blocks = self.files[&inode].blocks;
        self.report.blocks += blocks;
        Ok(nodes.len() as u64 + blocks)
    }

    /// The volume knows its segments, and its nodes.
    fn put_segments(&mut self) {
        let shape = self.volume.segments.shape;
        for index in ANCHORS..shape.segments {
            let (valid, written) = (self.valid[index as usize], self.volume.target.segment(index).written);
            if !self.volume.target.segment(index).is_writable {
                self.volume.segments.restore(index, Segment { valid, state: State::Failed, ..Segment::default() });
            } else if written > 0 {
                // Those that are written in part are filled up before there is a record. What is of no use is trimmed after that.
                self.volume.segments.restore(index, Segment { valid, state: State::Full, ..Segment::default() });
            }
        }
        let mut used = vec![0; self.volume.map.blocks.len()];
        // Node 0 is none.
        used[0] = 1;
        for node in self.scan.nodes.keys() {
            used[block_of(*node) as usize] += 1;
        }
        for (block, used) in self.volume.map.blocks.iter_mut().zip(used) {
            block.free = NODES_PER_BLOCK as u16 - used;
        }
    }

    /// What files say of themselves is so.
    fn mend(&mut self, (owner, group): (u32, u32)) -> Result<(), MountError> {
        if !self.files.get(&Inode::ROOT.0).is_some_and(|root| root.is_reached) {
            self.report.tell("the root folder is lost, and is made anew".to_owned());
            self.expect_nodes()?;
            self.volume.make_root(owner, group, self.volume.time_of_day);
        }
        let reached: Vec<(u32, File)> =
            self.files.iter().filter(|(_, file)| file.is_reached).map(|(inode, file)| (*inode, *file)).collect();
        for (inode, file) in reached {
            self.volume.files += 1;
            let is_directory = file.kind == FileKind::Directory;
            *if is_directory { &mut self.report.folders } else { &mut self.report.files } += 1;
            self.mend_file(inode, file)?;
        }
        for name in std::mem::take(&mut self.removed) {
            self.remove_name(name)?;
        }
        if !self.lost.is_empty() {
            self.fill_lost_and_found()?;
        }
        Ok(())
    }

    fn mend_file(&mut self, inode: u32, file: File) -> Result<(), MountError> {
        self.pin_again(inode)?;
        let is_directory = file.kind == FileKind::Directory;
        let said = *fields(&self.volume.cache.node(inode).bytes);
        let links = if is_directory { 2 + file.folders } else { file.names };
        if said.links.get() != links {
            self.volume.fields_mut(Inode(inode)).links = links.into();
            self.report.tell(format!("file {inode} has {links} links, and said {}", said.links.get()));
        }
        if said.parent.get() != file.parent {
            self.volume.fields_mut(Inode(inode)).parent = file.parent.into();
        }
        if is_directory {
            let entries = self.entries.get(&inode).copied().unwrap_or(0);
            if said.entries.get() != entries {
                self.volume.fields_mut(Inode(inode)).entries = entries.into();
                self.report.tell(format!("folder {inode} has {entries} names, and said {}", said.entries.get()));
            }
            let size = file.blocks * openftl_core::BLOCK_BYTES as u64;
            if said.size.get() != size {
                self.pin_again(inode)?;
                self.volume.fields_mut(Inode(inode)).size = size.into();
            }
        }
        Ok(())
    }

    pub(crate) fn expect_nodes(&mut self) -> Result<(), MountError> {
        let expected = self.wait(Volume::expect_nodes)?;
        expected.map_err(|_| MountError::Stopped("there is no free node"))
    }

    fn remove_name(&mut self, Name { folder, found }: Name) -> Result<(), MountError> {
        let there = self.wait(|volume| {
            volume.pin(folder, &[Kind::Inode])?;
            if let Some(block) = found.block {
                _ = volume.pin_page(Inode(folder), block)?;
                _ = volume.address_of(folder, block.into())?;
            }
            Ok(())
        })?;
        there.map_err(|_| MountError::Stopped("a folder that was read before cannot be read again"))?;
        self.volume.remove_name(Inode(folder), found);
        Ok(())
    }

    /// Everything becomes durable.
    fn write(&mut self) -> Result<(), MountError> {
        let shape = self.volume.segments.shape;
        let blocks = u64::from(shape.segment_blocks);
        let target = &mut self.volume.target;
        // Records that do not count must not count when their segments are written on.
        for anchor in 0..ANCHORS {
            let first = u64::from(anchor) * blocks;
            run(target, self.clock, Request::Trim { first, blocks, durability: Durability::Volatile })?;
        }
        run(target, self.clock, Request::Flush)?;
        for segment in ANCHORS..shape.segments {
            let is_in_part = (1..shape.segment_blocks).contains(&self.volume.target.segment(segment).written);
            if is_in_part && self.valid[segment as usize] > 0 && self.volume.target.segment(segment).is_writable {
                self.fill_up(segment)?;
            }
        }
        if self.volume.segments.free() < self.volume.segments.shape.wait_below() {
            self.trim_useless()?;
        }
        self.volume.syncing.wants_map = true;
        self.volume.settle(self.clock)
    }

    /// Segments that are of no use make room at once, where none is free otherwise.
    fn trim_useless(&mut self) -> Result<(), MountError> {
        let blocks = u64::from(self.volume.segments.shape.segment_blocks);
        let useless = self.volume.segments.useless();
        for segment in &useless {
            let first = u64::from(*segment) * blocks;
            self.volume.segments.trim(*segment);
            let trim = Request::Trim { first, blocks, durability: Durability::Volatile };
            run(&mut self.volume.target, self.clock, trim)?;
        }
        run(&mut self.volume.target, self.clock, Request::Flush)?;
        for segment in useless {
            self.volume.segments.empty(segment, self.volume.target.segment(segment).is_writable);
        }
        Ok(())
    }

    /// Fills a segment up, and writes its summary. All blocks that are added are metadata, so that a segment of nodes stays one.
    fn fill_up(&mut self, segment: u32) -> Result<(), MountError> {
        let shape = self.volume.segments.shape;
        let first = shape.first_of(segment);
        let owner_at = |at: u32| self.owners.get(&(first + at)).copied().unwrap_or_default();
        let owners: Vec<Owner> = (0..shape.data_blocks()).map(owner_at).collect();
        let summaries: Vec<&[Owner]> = owners.chunks(OWNERS_PER_BLOCK as usize).collect();
        let (sequence, id) = (self.volume.syncing.next, self.volume.id);
        let mut at = self.volume.target.segment(segment).written;
        let mut frames: Vec<Frame> = Vec::new();
        while at < shape.segment_blocks {
            let target = &mut self.volume.target;
            let count = (shape.segment_blocks - at).min(WRITE_BLOCKS as u32);
            if !target.frames_mut().acquire_many(FrameForm::Bytes, count as usize, &mut frames) {
                return Err(MountError::Stopped("the drive has no frame left"));
            }
            for (frame, at) in frames.iter().zip(at..) {
                let owners = at.checked_sub(shape.data_blocks()).map_or(&[][..], |index| summaries[index as usize]);
                let bytes = target.frames_mut().bytes_mut(*frame);
                put_owners(bytes, owners);
                seal(bytes, Kind::Summary, segment, sequence, id);
            }
            let request = Request::Write {
                first: u64::from(first + at),
                frames: &frames,
                durability: Durability::Volatile,
                handle: Handle::NONE,
            };
            run(target, self.clock, request)?;
            frames.clear();
            at += count;
        }
        Ok(())
    }
}
