//! Verifies a volume: every node is read, and nodes, names and segments have to agree.

use crate::block::Kind;
use crate::inode::{self, ADDRESSES, AREA, fields};
use crate::mounting::MountError;
use crate::node_map::nodes_of;
use crate::operation::{FileKind, FileSystem, Inode, Operation, Refusal};
use crate::segments::ANCHORS;
use crate::tree::{FANOUT, Place, SLOTS, about};
use crate::volume::{Step, Stop, Volume};
use openftl_core::Clock;
use openftl_parts::target::SegmentTarget;
use rustc_hash::{FxHashMap, FxHashSet};

/// Findings that are kept; more are counted.
const FINDINGS_MAX: usize = 1000;

/// What a check has found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CheckReport {
    /// Files that are no folders.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Nodes, those of files included.
    pub nodes: u64,
    /// Blocks with contents and names.
    pub blocks: u64,
    /// Nodes that were deleted and are not free yet.
    pub doomed: u64,
    /// What does not agree, one sentence each: the first of them.
    pub findings: Vec<String>,
    /// How many there are.
    pub findings_all: u64,
}

impl CheckReport {
    /// Whether everything agrees.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings_all == 0
    }

    fn find(&mut self, finding: String) {
        self.findings_all += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// What is known of a file while its names are counted.
struct FileSeen {
    kind: Option<FileKind>,
    links: u32,
    entries: u32,
    parent: u32,
    size: u64,
    blocks: u64,
    blocks_found: u64,
    names: u32,
    folders: u32,
}

#[derive(Default)]
struct Walk {
    report: CheckReport,
    /// Blocks that somebody has.
    claimed: FxHashSet<u32>,
    /// Valid blocks of each segment.
    valid: Vec<u32>,
    files: FxHashMap<u32, FileSeen>,
    /// Nodes that another node, or a list, names.
    named: FxHashMap<u32, u32>,
    others: Vec<u32>,
}

impl<T: SegmentTarget> Volume<T> {
    /// Verifies everything. `progress` is told how many blocks of the map of nodes are done, of how many.
    ///
    /// # Errors
    /// If the drive stops, or what is in memory cannot be made durable before.
    pub fn check(
        &mut self,
        clock: &mut dyn Clock,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, MountError> {
        if !self.options.is_read_only {
            self.run_to_end(clock, &Operation::Sync)?;
        }
        let mut walk = Walk { valid: vec![0; self.segments.shape.segments as usize], ..Walk::default() };
        for address in self.map.blocks.iter().map(|block| block.address).collect::<Vec<_>>() {
            self.claim(&mut walk, address, "the map of nodes");
        }
        for address in self.patches.addresses().collect::<Vec<_>>() {
            self.claim(&mut walk, address, "patches of nodes");
        }
        let blocks = self.map.blocks.len() as u32;
        for index in 0..blocks {
            progress(index.into(), blocks.into());
            match self.wait(clock, |volume| volume.pin_map(index))? {
                Ok(_) => {}
                Err(_) => {
                    walk.report.find(format!("block {index} of the map of nodes cannot be read"));
                    continue;
                }
            }
            let addresses: Vec<(u32, u32)> = nodes_of(index)
                .map(|node| (node, self.map.changes.get(&node).copied().unwrap_or_else(|| self.address_in_map(node))))
                .filter(|(node, address)| *node != 0 && *address != 0)
                .collect();
            for (node, address) in addresses {
                self.claim(&mut walk, address, &format!("node {node}"));
                self.check_node(&mut walk, node, clock)?;
                self.cache.evict();
            }
        }
        let folders: Vec<u32> = walk
            .files
            .iter()
            .filter(|(_, seen)| seen.kind == Some(FileKind::Directory) && seen.links > 0)
            .map(|(inode, _)| *inode)
            .collect();
        for folder in sorted(folders) {
            self.check_names(&mut walk, Inode(folder), clock)?;
            self.cache.evict();
        }
        self.compare(&mut walk);
        progress(blocks.into(), blocks.into());
        Ok(walk.report)
    }

    /// Runs an operation to its end.
    fn run_to_end(&mut self, clock: &mut dyn Clock, operation: &Operation<'_>) -> Result<(), MountError> {
        let ticket = self.ticket();
        loop {
            let now = clock.now();
            match self.attempt(now, self.time_of_day, ticket, operation) {
                Some(Ok(_)) => return Ok(()),
                Some(Err(_)) => return Err(MountError::Stopped(self.failed.unwrap_or("a sync was refused"))),
                None => {}
            }
            if !self.poll(now) {
                self.wait_for_drive(clock)?;
            }
        }
    }

    fn wait_for_drive(&mut self, clock: &mut dyn Clock) -> Result<(), MountError> {
        let due = self.next_due().ok_or(MountError::Stopped("nothing is due, and something is waited for"))?;
        clock.wait_until(due);
        Ok(())
    }

    /// Repeats a step until it does not wait, with nothing going on beside it.
    pub(crate) fn wait<R>(
        &mut self,
        clock: &mut dyn Clock,
        mut step: impl FnMut(&mut Self) -> Step<R>,
    ) -> Result<Result<R, Refusal>, MountError> {
        loop {
            self.now = clock.now();
            match step(self) {
                Ok(result) => return Ok(Ok(result)),
                Err(Stop::Refused(refusal)) => return Ok(Err(refusal)),
                Err(Stop::Wait) => {}
            }
            if !self.take_completions() {
                let due = self.target.next_due();
                let due = due.ok_or(MountError::Stopped("the drive has nothing to do, and a read has not ended"))?;
                clock.wait_until(due);
            }
        }
    }

    fn claim(&self, walk: &mut Walk, address: u32, who: &str) {
        if address == 0 {
            return;
        }
        let shape = self.segments.shape;
        let (segment, within) = (shape.segment_of(address), address % shape.segment_blocks);
        if !(ANCHORS..shape.segments).contains(&segment) || within >= shape.data_blocks() {
            return walk.report.find(format!("{who} is said to be at {address}, where nothing can be"));
        }
        if !walk.claimed.insert(address) {
            return walk.report.find(format!("{who} is at {address}, as something else is"));
        }
        walk.valid[segment as usize] += 1;
    }

    fn check_node(&mut self, walk: &mut Walk, node: u32, clock: &mut dyn Clock) -> Result<(), MountError> {
        if self.wait(clock, |volume| volume.pin(node, &Kind::NODES))?.is_err() {
            walk.report.find(format!("node {node} cannot be read, or is another block"));
            return Ok(());
        }
        walk.report.nodes += 1;
        let found = self.cache.node(node);
        let kind = found.kind;
        let places = |at: usize, count: usize| (0..count).map(move |slot| Place { node, at: at + 4 * slot });
        let (mut addresses, mut children) = (Vec::new(), Vec::new());
        let mut owner = node;
        match kind {
            Kind::Inode => {
                let fields = *fields(&found.bytes);
                if !fields.is_inline() {
                    addresses.extend(places(AREA, ADDRESSES).map(|place| self.number(place)));
                    children.extend((0..inode::NODE_COUNT).map(|which| inode::node(&found.bytes, which)));
                }
                children.push(fields.xattrs.get());
                let seen = walk.files.entry(node).or_insert_with(FileSeen::unseen);
                seen.kind = fields.kind();
                (seen.links, seen.entries) = (fields.links.get(), fields.entries.get());
                (seen.parent, seen.size, seen.blocks) = (fields.parent.get(), fields.size.get(), fields.blocks.get());
                seen.blocks_found += 1;
            }
            Kind::Direct | Kind::Indirect => {
                owner = about(&found.bytes).inode;
                let numbers: Vec<u32> = places(SLOTS, FANOUT as usize).map(|place| self.number(place)).collect();
                let into = if kind == Kind::Direct { &mut addresses } else { &mut children };
                into.extend(numbers);
                walk.others.push(node);
            }
            _ => {
                walk.others.push(node);
                return Ok(());
            }
        }
        addresses.retain(|address| *address != 0);
        for address in &addresses {
            self.claim(walk, *address, &format!("a block of file {owner}"));
        }
        walk.report.blocks += addresses.len() as u64;
        let seen = walk.files.entry(owner).or_insert_with(FileSeen::unseen);
        seen.blocks_found += addresses.len() as u64;
        for child in children.into_iter().filter(|child| *child != 0) {
            *walk.named.entry(child).or_default() += 1;
            // All that is below a file is one node each.
            seen.blocks_found += 1;
        }
        Ok(())
    }

    fn check_names(&mut self, walk: &mut Walk, folder: Inode, clock: &mut dyn Clock) -> Result<(), MountError> {
        let mut after = 0;
        let mut entries = 0;
        loop {
            let Ok(found) = self.wait(clock, |volume| volume.names_after(folder, after, 1000))? else {
                walk.report.find(format!("names of folder {folder} cannot be read"));
                return Ok(());
            };
            let Some(last) = found.last() else { break };
            after = last.cookie;
            for entry in found.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
                entries += 1;
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let Some(seen) = walk.files.get_mut(&entry.inode.0).filter(|seen| seen.kind.is_some()) else {
                    walk.report.find(format!("{name} in folder {folder} is file {}, which is not there", entry.inode));
                    continue;
                };
                seen.names += 1;
                if seen.kind != Some(entry.kind) {
                    let kind = seen.kind;
                    walk.report.find(format!("{name} in folder {folder} says {:?}, its file {kind:?}", entry.kind));
                }
                if entry.kind == FileKind::Directory {
                    let parent = seen.parent;
                    if parent != folder.0 {
                        walk.report.find(format!("folder {} is in {folder}, and says it is in {parent}", entry.inode));
                    }
                    walk.files.get_mut(&folder.0).expect("it is looked at").folders += 1;
                }
            }
        }
        let seen = &walk.files[&folder.0];
        if seen.entries != entries {
            let said = seen.entries;
            walk.report.find(format!("folder {folder} has {entries} names, and says {said}"));
        }
        Ok(())
    }

    /// What was counted, and what is said.
    fn compare(&mut self, walk: &mut Walk) {
        walk.report.doomed = self.doomed.len() as u64;
        for node in &self.doomed {
            *walk.named.entry(*node).or_default() += 1;
        }
        let gone: FxHashSet<u32> = self.doomed.iter().chain(&self.orphans).copied().collect();
        for node in std::mem::take(&mut walk.others) {
            match walk.named.get(&node) {
                Some(1) => {}
                found => walk.report.find(format!("node {node} is below {} others, not one", found.unwrap_or(&0))),
            }
        }
        let mut counted = 0;
        let mut files: Vec<u32> = walk.files.keys().copied().collect();
        files.sort_unstable();
        for inode in files {
            let FileSeen { kind, links, size, blocks, blocks_found, names, folders, .. } = walk.files[&inode];
            let Some(kind) = kind else {
                if self.doomed.is_empty() {
                    walk.report.find(format!(
                        "file {inode} is not there, and {blocks_found} nodes and blocks say that they are its"
                    ));
                }
                continue;
            };
            let is_directory = kind == FileKind::Directory;
            match is_directory {
                true => walk.report.folders += 1,
                false => walk.report.files += 1,
            }
            if gone.contains(&inode) {
                continue;
            }
            counted += 1;
            let names_wanted = if inode == Inode::ROOT.0 {
                0
            } else if is_directory {
                1
            } else {
                links
            };
            if names != names_wanted || names_wanted == 0 && inode != Inode::ROOT.0 {
                walk.report.find(format!("file {inode} has {names} names, and {links} links"));
            }
            if is_directory && links != 2 + folders {
                walk.report.find(format!("folder {inode} has {folders} folders, and {links} links"));
            }
            if self.doomed.is_empty() && blocks != blocks_found {
                walk.report.find(format!("file {inode} of {size} bytes has {blocks_found} blocks, and says {blocks}"));
            }
        }
        if counted != self.files {
            walk.report.find(format!("there are {counted} files, and the volume says {}", self.files));
        }
        for (index, found) in (0..).zip(&walk.valid) {
            let said = self.segments.segment(index).valid;
            if said != *found {
                walk.report.find(format!("segment {index} has {found} blocks of use, and says {said}"));
            }
        }
    }
}

impl FileSeen {
    /// A file of which nodes were found before its own.
    fn unseen() -> FileSeen {
        FileSeen {
            kind: None,
            links: 0,
            entries: 0,
            parent: 0,
            size: 0,
            blocks: 0,
            blocks_found: 0,
            names: 0,
            folders: 0,
        }
    }
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers
}
