//! What is in memory of a volume: nodes, blocks of the map of nodes, and contents that were not written as whole blocks.
//!
//! What is dirty stays until it is written. Of the rest, what was not used for longest leaves when there is more than [`Budget`] says.

use crate::block::{Bytes, Kind};
use crate::inode::fields;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names one block in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// A node.
    Node(u32),
    /// A block of the map of nodes.
    Map(u32),
    /// A block of a file.
    Page(u32, u32),
}

/// A block that is in memory, or on its way there.
#[derive(Debug)]
pub enum Slot<V> {
    /// It is being read from this address.
    Loading(u32),
    /// It could not be read, and nobody has been told yet.
    Failed,
    /// It is there.
    Here(V),
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its block, whose header is made when it is written.
    pub bytes: Box<Bytes>,
    /// What it is.
    pub kind: Kind,
    /// Where it is on media; 0: nowhere yet.
    pub address: u32,
    /// Of a dirty node that was on media: its bytes when it was clean.
    pub before: Option<Box<Bytes>>,
    is_used: bool,
}

impl Node {
    /// Whether it says where blocks of a file are.
    #[must_use]
    pub fn has_addresses(&self) -> bool {
        match self.kind {
            Kind::Inode => !fields(&self.bytes).is_inline(),
            Kind::Direct => true,
            _ => false,
        }
    }
}

/// A block of a file.
#[derive(Debug)]
pub struct Page {
    /// Its contents.
    pub bytes: Box<Bytes>,
    /// The file has no such block on media.
    pub is_new: bool,
    is_used: bool,
}

/// Blocks in memory, at most, unless more of them are dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Nodes, and blocks of the map of nodes.
    pub nodes: usize,
    /// Blocks of files.
    pub pages: usize,
}

impl Default for Budget {
    /// 48 MiB.
    fn default() -> Budget {
        Budget { nodes: 8192, pages: 4096 }
    }
}

/// See the module.
#[derive(Default, Debug)]
pub struct Cache {
    nodes: FxHashMap<u32, Slot<Node>>,
    map: FxHashMap<u32, Slot<Box<Bytes>>>,
    pages: BTreeMap<(u32, u32), Slot<Page>>,
    dirty_nodes: BTreeSet<u32>,
    dirty_pages: BTreeSet<(u32, u32)>,
    /// Everything that is there, roughly in the order in which it was last used.
    queue: VecDeque<Key>,
    budget: Budget,
}

impl Cache {
    /// An empty one.
    #[must_use]
    pub fn new(budget: Budget) -> Cache {
        Cache { budget, ..Cache::default() }
    }

    /// What there is of a node.
    pub fn slot(&mut self, node: u32) -> Option<&Slot<Node>> {
        let slot = self.nodes.get_mut(&node)?;
        if let Slot::Here(node) = slot {
            node.is_used = true;
        }
        Some(slot)
    }

    /// What there is of a block of the map.
    #[must_use]
    pub fn map_slot(&self, index: u32) -> Option<&Slot<Box<Bytes>>> {
        self.map.get(&index)
    }

    /// What there is of a block of a file.
    pub fn page_slot(&mut self, page: (u32, u32)) -> Option<&Slot<Page>> {
        let slot = self.pages.get_mut(&page)?;
        if let Slot::Here(page) = slot {
            page.is_used = true;
        }
        Some(slot)
    }

    /// A node that is here.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    pub fn node(&self, node: u32) -> &Node {
        match self.nodes.get(&node) {
            Some(Slot::Here(node)) => node,
            other => panic!("node {node} is in memory, not {other:?}"),
        }
    }

    /// The same, to be changed: it is dirty from now on.
    ///
    /// # Panics
    /// If it is not here.
    pub fn node_mut(&mut self, node: u32) -> &mut Node {
        let was_clean = self.dirty_nodes.insert(node);
        match self.nodes.get_mut(&node) {
            Some(Slot::Here(node)) => {
                if was_clean && node.address != 0 {
                    node.before = Some(node.bytes.clone());
                }
                node
            }
            other => panic!("node {node} is in memory, not {other:?}"),
        }
    }

    /// The same, to be written as it is: only its header changes, so it is as dirty as before.
    ///
    /// # Panics
    /// If it is not here.
    pub fn node_to_write(&mut self, node: u32) -> &mut Node {
        match self.nodes.get_mut(&node) {
            Some(Slot::Here(node)) => node,
            other => panic!("node {node} is in memory, not {other:?}"),
        }
    }

    /// A node, if it is here.
    #[must_use]
    pub fn node_here(&self, node: u32) -> Option<&Node> {
        match self.nodes.get(&node) {
            Some(Slot::Here(node)) => Some(node),
            _ => None,
        }
    }

    /// What is on media of a node is elsewhere.
    pub fn move_node(&mut self, node: u32, address: u32) {
        match self.nodes.get_mut(&node) {
            Some(Slot::Here(node)) => node.address = address,
            other => debug_assert!(other.is_none(), "node {node} was just written"),
        }
    }

    /// A node has been written: it is where it is said, and clean.
    pub fn clean_node(&mut self, node: u32, address: u32) {
        let found = self.node_to_write(node);
        (found.address, found.before) = (address, None);
        self.dirty_nodes.remove(&node);
    }

    /// A node is clean: its block and its patch say what it is.
    pub fn patch_node(&mut self, node: u32) {
        self.node_to_write(node).before = None;
        self.dirty_nodes.remove(&node);
    }

    /// A block of a file that is here, if it is.
    #[must_use]
    pub fn page(&self, page: (u32, u32)) -> Option<&Page> {
        match self.pages.get(&page) {
            Some(Slot::Here(page)) => Some(page),
            _ => None,
        }
    }

    /// The same, to be changed: it is dirty from now on.
    ///
    /// # Panics
    /// If it is not here.
    pub fn page_mut(&mut self, page: (u32, u32)) -> &mut Page {
        self.dirty_pages.insert(page);
        match self.pages.get_mut(&page) {
            Some(Slot::Here(page)) => page,
            other => panic!("page {page:?} is in memory, not {other:?}"),
        }
    }

    /// A block of a file has been written, and is clean.
    pub fn clean_page(&mut self, page: (u32, u32)) {
        self.page_mut(page).is_new = false;
        self.dirty_pages.remove(&page);
    }

    /// Whether a block of a file is dirty.
    #[must_use]
    pub fn is_dirty_page(&self, page: (u32, u32)) -> bool {
        self.dirty_pages.contains(&page)
    }

    /// The first dirty node, and the first dirty block of a file.
    #[must_use]
    pub fn first_dirty(&self) -> (Option<u32>, Option<(u32, u32)>) {
        (self.dirty_nodes.first().copied(), self.dirty_pages.first().copied())
    }

    /// Blocks that are dirty.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.dirty_nodes.len() + self.dirty_pages.len()
    }

    /// `key` is being read from `address`.
    pub fn begin(&mut self, key: Key, address: u32) {
        match key {
            Key::Node(node) => _ = self.nodes.insert(node, Slot::Loading(address)),
            Key::Map(index) => _ = self.map.insert(index, Slot::Loading(address)),
            Key::Page(inode, index) => _ = self.pages.insert((inode, index), Slot::Loading(address)),
        }
    }

    /// Whether `key` is waited for from `address`. It may have been forgotten, and asked for again from elsewhere.
    #[must_use]
    pub fn is_loading(&self, key: Key, address: u32) -> bool {
        fn is<V>(slot: Option<&Slot<V>>, address: u32) -> bool {
            matches!(slot, Some(Slot::Loading(from)) if *from == address)
        }
        match key {
            Key::Node(node) => is(self.nodes.get(&node), address),
            Key::Map(index) => is(self.map.get(&index), address),
            Key::Page(inode, index) => is(self.pages.get(&(inode, index)), address),
        }
    }

    /// `key` could not be read.
    pub fn fail(&mut self, key: Key) {
        match key {
            Key::Node(node) => _ = self.nodes.insert(node, Slot::Failed),
            Key::Map(index) => _ = self.map.insert(index, Slot::Failed),
            Key::Page(inode, index) => _ = self.pages.insert((inode, index), Slot::Failed),
        }
    }

    /// A node is here.
    pub fn put_node(&mut self, node: u32, bytes: Box<Bytes>, kind: Kind, address: u32) {
        self.nodes.insert(node, Slot::Here(Node { bytes, kind, address, before: None, is_used: true }));
        self.queue.push_back(Key::Node(node));
    }

    /// A block of the map is here.
    pub fn put_map(&mut self, index: u32, bytes: Box<Bytes>) {
        self.map.insert(index, Slot::Here(bytes));
        self.queue.push_back(Key::Map(index));
    }

    /// A block of a file is here.
    pub fn put_page(&mut self, page: (u32, u32), bytes: Box<Bytes>, is_new: bool) {
        self.pages.insert(page, Slot::Here(Page { bytes, is_new, is_used: true }));
        self.queue.push_back(Key::Page(page.0, page.1));
    }

    /// `key` is of no use any more, dirty or not.
    pub fn forget(&mut self, key: Key) {
        match key {
            Key::Node(node) => {
                self.nodes.remove(&node);
                self.dirty_nodes.remove(&node);
            }
            Key::Map(index) => _ = self.map.remove(&index),
            Key::Page(inode, index) => {
                self.pages.remove(&(inode, index));
                self.dirty_pages.remove(&(inode, index));
            }
        }
    }

    /// The blocks in memory of a file, from `first` to before `end`.
    pub fn pages_of(&self, inode: u32, first: u32, end: u32) -> Vec<u32> {
        if first >= end {
            return Vec::new();
        }
        self.pages.range((inode, first)..(inode, end)).map(|((_, index), _)| *index).collect()
    }

    /// Makes room: nothing of an operation that is being attempted may be needed.
    pub fn evict(&mut self) {
        let there = self.nodes.len() + self.map.len() + self.pages.len();
        if self.queue.len() > 4 * there + 1024 {
            // Names of blocks that were forgotten, whether or not they came back.
            let mut seen = BTreeSet::new();
            let Cache { nodes, map, pages, queue, .. } = self;
            queue.retain(|key| {
                let is_here = match key {
                    Key::Node(node) => matches!(nodes.get(node), Some(Slot::Here(_))),
                    Key::Map(index) => matches!(map.get(index), Some(Slot::Here(_))),
                    Key::Page(inode, index) => matches!(pages.get(&(*inode, *index)), Some(Slot::Here(_))),
                };
                is_here && seen.insert(*key)
            });
        }
        let mut steps = self.queue.len();
        while steps > 0
            && (self.nodes.len() + self.map.len() > self.budget.nodes || self.pages.len() > self.budget.pages)
        {
            steps -= 1;
            let Some(key) = self.queue.pop_front() else { return };
            let stays = match key {
                Key::Node(node) => match self.nodes.get_mut(&node) {
                    Some(Slot::Here(found)) => std::mem::take(&mut found.is_used) || self.dirty_nodes.contains(&node),
                    _ => continue,
                },
                Key::Map(index) => match self.map.get(&index) {
                    Some(Slot::Here(_)) => false,
                    _ => continue,
                },
                Key::Page(inode, index) => match self.pages.get_mut(&(inode, index)) {
                    Some(Slot::Here(found)) => {
                        std::mem::take(&mut found.is_used) || self.dirty_pages.contains(&(inode, index))
                    }
                    _ => continue,
                },
            };
            if stays {
                self.queue.push_back(key);
            } else {
                self.forget(key);
            }
        }
    }

    /// Bytes of memory for blocks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Dirty nodes are there twice.
        (self.nodes.len() + self.dirty_nodes.len() + self.map.len() + self.pages.len()) * size_of::<Bytes>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::zeroes;

    #[test]
    fn blocks_that_are_forgotten_leave_nothing_behind() {
        let mut cache = Cache::new(Budget::default());
        cache.put_page((1, 0), zeroes(), true);
        for index in 1..20_000 {
            cache.put_page((2, index), zeroes(), true);
            cache.forget(Key::Page(2, index));
            if index % 3 == 0 {
                cache.put_page((1, 0), zeroes(), true);
            }
            cache.evict();
            assert!(cache.queue.len() <= 1028, "{} names of one block, after {index} others", cache.queue.len());
        }
        assert_eq!(cache.pages_of(1, 0, 9), [0]);
    }
}
