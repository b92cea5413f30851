//! Which files of a volume that is rebuilt stay: those with a name, and those without one that were not deleted. See [`crate::rebuilding`].

use crate::block::Kind;
use crate::directory::{Found as FoundName, block_for};
use crate::inode;
use crate::mounting::MountError;
use crate::names;
use crate::operation::{FileKind, Inode, NewFile};
use crate::rebuilding::{File, Name, Rebuild};
use openftl_parts::target::SegmentTarget;
use rustc_hash::FxHashSet;

/// The folder of files without a name.
const LOST_AND_FOUND: &str = "lost+found";

/// Other names to try where that is taken.
const OTHER_NAMES: u32 = 1000;

impl<T: SegmentTarget> Rebuild<'_, T> {
    pub(crate) fn reach(&mut self, folder: u32) {
        self.files.get_mut(&folder).expect("it is there").is_reached = true;
        self.queue.push(folder);
    }

    /// Reads all folders that are reached, and what they name. `is_lost`: from a folder without a name on.
    pub(crate) fn follow_names(&mut self, is_lost: bool) -> Result<(), MountError> {
        loop {
            while let Some(folder) = self.queue.pop() {
                self.read_folder(folder, is_lost)?;
            }
            // A folder that says it is elsewhere, where nobody names it, was moved by a sync that is there in part.
            let Some(name) = self.elsewhere.pop() else { return Ok(()) };
            let inode = name.found.inode.0;
            if self.files[&inode].is_reached {
                self.remove(name, "is the name of a folder that has another one");
            } else {
                self.report.tell(format!("folder {inode} is in {}, and said that it is elsewhere", name.folder));
                self.accept_folder(name.folder, inode);
            }
        }
    }

    fn accept_folder(&mut self, parent: u32, folder: u32) {
        let file = self.files.get_mut(&folder).expect("it is there");
        (file.parent, file.names) = (parent, 1);
        self.files.get_mut(&parent).expect("it was read").folders += 1;
        self.reach(folder);
    }

    fn remove(&mut self, name: Name, why: &str) {
        let Name { folder, found } = name;
        self.report.tell(format!("a name of file {} in folder {folder} {why}, and is removed", found.inode));
        self.removed.push(name);
    }

    fn read_folder(&mut self, folder: u32, is_lost: bool) -> Result<(), MountError> {
        let found = self.names_of(folder)?;
        self.entries.insert(folder, found.len() as u32);
        let mut seen: FxHashSet<Vec<u8>> = FxHashSet::default();
        for (found, name) in found {
            let name_found = Name { folder, found };
            let inode = found.inode.0;
            if !is_placed(&found, &name) || !seen.insert(name) {
                self.remove(name_found, "cannot be found by it");
                continue;
            }
            let Some(file) = self.files.get_mut(&inode).filter(|file| file.kind == found.kind) else {
                self.remove(name_found, "has no such file");
                continue;
            };
            // A folder that was deleted names what it named then.
            let has_enough = is_lost && file.names >= file.links;
            if file.kind != FileKind::Directory {
                if has_enough {
                    self.remove(name_found, "has no file any more");
                } else {
                    (file.names, file.is_reached) = (file.names + 1, true);
                }
            } else if file.is_reached || inode == Inode::ROOT.0 {
                self.remove(name_found, "is the name of a folder that has another one");
            } else if file.parent == folder {
                self.accept_folder(folder, inode);
            } else {
                self.elsewhere.push(name_found);
            }
        }
        Ok(())
    }

    /// The names in a folder. Blocks that cannot be read are noted.
    fn names_of(&mut self, folder: u32) -> Result<Vec<(FoundName, Vec<u8>)>, MountError> {
        let mut found = Vec::new();
        let mut take = |area: &[u8], block: Option<u32>| {
            found.extend(names::names(area, 0).map(|name| {
                let found = FoundName { inode: name.inode, kind: name.kind, block, at: name.at };
                (found, name.name.to_vec())
            }));
        };
        self.pin_again(folder)?;
        if self.files[&folder].is_inline {
            take(inode::inline(&self.volume.cache.node(folder).bytes), None);
            return Ok(found);
        }
        let mut blocks: Vec<u32> = Vec::new();
        let is_whole = self.walk(folder, &mut |_, index, _, _| blocks.push(index), &mut |_, _| ())?;
        self.is_damaged |= !is_whole;
        for block in blocks {
            match self.wait(|volume| {
                volume.pin(folder, &[Kind::Inode])?;
                volume.pin_page(Inode(folder), block)
            })? {
                Ok(_) => {
                    let page = self.volume.cache.page((folder, block)).expect("it was pinned");
                    take(crate::directory::area(&page.bytes), Some(block));
                }
                Err(_) => {
                    self.report.tell(format!("names of folder {folder} are lost: block {block} of it cannot be read"));
                    self.unreadable_names.insert((folder, block));
                    self.is_damaged = true;
                }
            }
        }
        Ok(found)
    }

    /// Whether a file without a name is known to be deleted; `None`: if the folder is, that it was in.
    fn was_deleted(&self, file: &File) -> Option<bool> {
        if file.links == 0 {
            return Some(true);
        }
        if self.is_damaged {
            return Some(false);
        }
        match self.files.get(&file.parent) {
            Some(parent) if parent.kind == FileKind::Directory && parent.was_deleted => Some(true),
            Some(parent) if parent.kind == FileKind::Directory && parent.is_reached => {
                Some(parent.sequence > file.sequence && parent.sequence < self.scan.last_sync)
            }
            Some(parent) if parent.kind == FileKind::Directory => None,
            // The folder is free, or its number is that of another file by now.
            _ => Some(true),
        }
    }

    /// Files without a name: deleted, or kept in `lost+found` with what is below them.
    pub(crate) fn judge_the_rest(&mut self) -> Result<(), MountError> {
        loop {
            let mut undecided: Vec<u32> = Vec::new();
            let mut has_news = false;
            for inode in self.files.keys().copied().collect::<Vec<_>>() {
                let file = self.files[&inode];
                if file.is_reached || file.was_deleted {
                    continue;
                }
                match self.was_deleted(&file) {
                    Some(true) => {
                        self.files.get_mut(&inode).expect("it is there").was_deleted = true;
                        has_news = true;
                    }
                    // Files wait until no folder is left that may name them.
                    Some(false) if file.kind == FileKind::Directory => {
                        self.keep(inode)?;
                        has_news = true;
                    }
                    _ => undecided.push(inode),
                }
            }
            if has_news {
                continue;
            }
            // Folders that are in each other come first; the names of one may lead to the others.
            let first = undecided.iter().copied().find(|inode| self.files[inode].kind == FileKind::Directory);
            match first {
                Some(folder) => self.keep(folder)?,
                None if undecided.is_empty() => return Ok(()),
                None => {
                    for file in undecided {
                        self.keep(file)?;
                    }
                }
            }
        }
    }

    /// A file without a name goes to `lost+found`, and what it names with it.
    fn keep(&mut self, inode: u32) -> Result<(), MountError> {
        let file = self.files.get_mut(&inode).expect("it is there");
        (file.names, file.is_reached) = (1, true);
        self.lost.push(inode);
        if file.kind == FileKind::Directory {
            self.reach(inode);
            self.follow_names(true)?;
        }
        Ok(())
    }

    /// Puts a name into a folder.
    fn put_name(&mut self, folder: Inode, name: &[u8], inode: Inode, kind: FileKind) -> Result<(), MountError> {
        let expected = self.wait(|volume| {
            _ = volume.find_name(folder, name)?;
            volume.expect_room_for_name(folder, name)?;
            volume.pin(inode.0, &[Kind::Inode])
        })?;
        expected.map_err(|_| MountError::Stopped("lost+found has no room for a name"))?;
        self.volume.put_name(folder, name, inode, kind);
        Ok(())
    }

    /// Files without a name get one in `lost+found`: `#` and their number.
    pub(crate) fn fill_lost_and_found(&mut self) -> Result<(), MountError> {
        let folder = self.lost_and_found()?;
        for inode in std::mem::take(&mut self.lost) {
            let kind = self.files[&inode].kind;
            self.put_name(folder, format!("#{inode}").as_bytes(), Inode(inode), kind)?;
            self.volume.fields_mut(Inode(inode)).parent = folder.0.into();
            self.volume.count_links(folder, i32::from(kind == FileKind::Directory));
            self.report.lost_and_found += 1;
            self.report.tell(format!("file {inode} has no name, and is in {LOST_AND_FOUND} as #{inode}"));
        }
        self.volume.touch(folder);
        Ok(())
    }

    fn lost_and_found(&mut self) -> Result<Inode, MountError> {
        for number in 0..OTHER_NAMES {
            let name = if number == 0 { LOST_AND_FOUND.to_owned() } else { format!("{LOST_AND_FOUND}.{number}") };
            let found = self.wait(|volume| volume.find_name(Inode::ROOT, name.as_bytes()))?;
            match found.map_err(|_| MountError::Stopped("the root folder cannot be read"))? {
                Some(found) if found.kind == FileKind::Directory && number == 0 => return Ok(found.inode),
                Some(_) => {}
                None => return self.make_lost_and_found(&name),
            }
        }
        Err(MountError::Stopped("all names for lost+found are taken"))
    }

    fn make_lost_and_found(&mut self, name: &str) -> Result<Inode, MountError> {
        self.expect_nodes()?;
        self.pin_again(Inode::ROOT.0)?;
        let root = *self.volume.fields(Inode::ROOT);
        let (uid, gid) = (root.uid.get(), root.gid.get());
        let file = NewFile { kind: FileKind::Directory, mode: 0o700, uid, gid, device: 0 };
        let inode = self.volume.new_inode(Inode::ROOT, &root, &file);
        self.report.folders += 1;
        self.put_name(Inode::ROOT, name.as_bytes(), inode, FileKind::Directory)?;
        self.volume.count_links(Inode::ROOT, 1);
        self.volume.touch(Inode::ROOT);
        Ok(inode)
    }
}

/// Whether a name is where its folder looks for it.
fn is_placed(found: &FoundName, name: &[u8]) -> bool {
    if name == b"." || name == b".." {
        return false;
    }
    let Some(block) = found.block else { return true };
    let level = (block + 1).ilog2() as u8;
    usize::from(level) < crate::directory::LEVELS_MAX && block_for(level, names::hash(name)) == block
}
