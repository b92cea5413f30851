//! What may be found of files after a power cut: names, tables and log files of one moment, no earlier than the last sync.
//!
//! The model knows what was done, and takes a snapshot of the names after each change. What is found has to be one of those since the
//! last sync; of a log file, the beginning of what was written to it, and all of what was synced.

use crate::common::{byte, bytes, content};
use openftl_files::FileKind;
use openftl_media::Media;
use openftl_volumes::{Volume, VolumeWriter};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    id: u64,
    kind: FileKind,
    /// Bytes that have to be there.
    synced: u64,
    /// Bytes written.
    written: u64,
}

pub type Snapshot = BTreeMap<String, Expected>;

/// What is done with the files of a drive.
pub struct Play<M: Media> {
    writers: Vec<(String, u64, VolumeWriter<M>)>,
    names: Snapshot,
    /// Since the last sync, the state then first.
    pub snapshots: Vec<Snapshot>,
    dice: Xoshiro256PlusPlus,
    next_id: u64,
}

/// Every file that is found, with its kind and its bytes.
pub type Found = BTreeMap<String, (FileKind, Vec<u8>)>;

/// What is on a drive.
pub fn found<M: Media>(files: &Volume<M>) -> Found {
    let names = files.list("/").unwrap().into_iter();
    names
        .map(|(name, attributes)| (format!("/{name}"), (attributes.kind, content(files, &format!("/{name}")))))
        .collect()
}

/// Whether all that is found is as one of these snapshots says; which one.
pub fn fits(snapshots: &[Snapshot], found: &Found) -> Option<usize> {
    let is_so = |snapshot: &Snapshot| {
        snapshot.len() == found.len()
            && snapshot.iter().all(|(name, Expected { id, kind, synced, written })| {
                found.get(name).is_some_and(|(found_kind, bytes)| {
                    let count = bytes.len() as u64;
                    let is_of_it = bytes.iter().zip(0..).all(|(found, at)| *found == byte(*id, at));
                    found_kind == kind && (*synced..=*written).contains(&count) && is_of_it
                })
            })
    };
    snapshots.iter().rposition(is_so)
}

/// What is found, in short.
pub fn in_short(found: &Found) -> Vec<(&String, &FileKind, usize)> {
    found.iter().map(|(name, (kind, bytes))| (name, kind, bytes.len())).collect()
}

impl<M: Media> Play<M> {
    pub fn new(seed: u64) -> Play<M> {
        Play {
            writers: Vec::new(),
            names: Snapshot::new(),
            snapshots: vec![Snapshot::new()],
            dice: Xoshiro256PlusPlus::seed_from_u64(seed),
            next_id: 1,
        }
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.dice.next_u64() % bound
    }

    fn changed(&mut self) {
        self.snapshots.push(self.names.clone());
    }

    fn synced(&mut self) {
        // What is being written need not be there yet.
        self.snapshots = vec![self.names.clone()];
    }

    fn any_name(&mut self) -> Option<String> {
        let idle: Vec<String> =
            self.names.keys().filter(|name| !self.writers.iter().any(|(path, ..)| path == *name)).cloned().collect();
        if idle.is_empty() { None } else { Some(idle[self.below(idle.len() as u64) as usize].clone()) }
    }

    pub fn step(&mut self, files: &Volume<M>) {
        match self.below(20) {
            0..=2 if self.writers.len() < 4 => self.begin(files),
            3..=10 if !self.writers.is_empty() => self.append(),
            11 if !self.writers.is_empty() => self.sync(true),
            12 if !self.writers.is_empty() => self.sync(false),
            13..=15 if !self.writers.is_empty() => self.close(),
            16 => {
                if let Some(from) = self.any_name() {
                    let to = format!("/{}", self.below(12));
                    if !self.writers.iter().any(|(path, ..)| *path == to) {
                        files.rename(&from, &to).unwrap();
                        let moved = self.names.remove(&from).unwrap();
                        self.names.insert(to, moved);
                        self.changed();
                    }
                }
            }
            17 => {
                if let Some(name) = self.any_name() {
                    self.delete(files, &name);
                }
            }
            18 => {
                files.sync_names("/").unwrap();
                self.synced();
            }
            _ => {
                if let Some(name) = self.any_name() {
                    self.verify(files, &name);
                }
            }
        }
    }

    fn begin(&mut self, files: &Volume<M>) {
        let path = format!("/{}", self.below(12));
        if self.writers.iter().any(|(other, ..)| *other == path) {
            return;
        }
        let kind = if self.below(2) == 0 { FileKind::Table } else { FileKind::Log };
        let writer = files.create(&path, kind).unwrap();
        let id = self.next_id;
        self.next_id += 1;
        // What had the name is gone, a log file is there, and a table is not before it is closed. These are two changes at most.
        if self.names.remove(&path).is_some() {
            self.changed();
        }
        if kind == FileKind::Log {
            self.names.insert(path.clone(), Expected { id, kind, synced: 0, written: 0 });
            self.changed();
        }
        self.writers.push((path, id, writer));
    }

    fn append(&mut self) {
        let (at, count) = (self.below(self.writers.len() as u64) as usize, self.below(30_000));
        let (path, id, writer) = &mut self.writers[at];
        let data = bytes(*id, writer.bytes(), count);
        // What found no room is gathered all the same, if it is of a log file.
        let _ = writer.append(&data);
        if let Some(expected) = self.names.get_mut(path).filter(|expected| expected.id == *id) {
            let written = writer.bytes();
            expected.written = written;
            for snapshot in &mut self.snapshots {
                if let Some(expected) = snapshot.get_mut(path).filter(|expected| expected.id == *id) {
                    expected.written = written;
                }
            }
        }
    }

    /// Syncs a file, or commits it only: then it is durable with whatever is synced next.
    fn sync(&mut self, is_durable: bool) {
        let at = self.below(self.writers.len() as u64) as usize;
        let (path, id, writer) = &mut self.writers[at];
        if if is_durable { writer.sync() } else { writer.commit() }.is_ok() {
            let (synced, id, path) = (writer.bytes(), *id, path.clone());
            let kind = self.names.get(&path).map_or(FileKind::Table, |expected| expected.kind);
            self.names.insert(path, Expected { id, kind, synced, written: synced });
            if is_durable {
                self.synced();
            } else {
                self.changed();
            }
            if kind == FileKind::Table {
                self.writers.swap_remove(at);
            }
        }
    }

    fn close(&mut self) {
        let at = self.below(self.writers.len() as u64) as usize;
        let (path, id, writer) = self.writers.swap_remove(at);
        let written = writer.bytes();
        let is_log = self.names.get(&path).is_some_and(|expected| expected.kind == FileKind::Log);
        if writer.close().is_ok() && !is_log {
            self.names.insert(path, Expected { id, kind: FileKind::Table, synced: written, written });
            self.changed();
        }
    }

    fn verify(&self, files: &Volume<M>, name: &str) {
        let Expected { id, written, .. } = self.names[name];
        assert_eq!(content(files, name), bytes(id, 0, written), "{name}");
    }

    /// Writes a whole table of `count` bytes, and syncs it.
    pub fn table(&mut self, files: &Volume<M>, path: &str, count: u64) {
        let mut writer = files.create(path, FileKind::Table).unwrap();
        let id = self.next_id;
        self.next_id += 1;
        if self.names.remove(path).is_some() {
            self.changed();
        }
        writer.append(&bytes(id, 0, count)).unwrap();
        writer.sync().unwrap();
        self.names.insert(path.to_owned(), Expected { id, kind: FileKind::Table, synced: count, written: count });
        self.synced();
    }

    pub fn delete(&mut self, files: &Volume<M>, path: &str) {
        files.delete(path).unwrap();
        self.names.remove(path);
        self.changed();
    }

    /// Ends all writers as a crash does: one that is dropped would commit what it has.
    pub fn forget(&mut self) {
        for (.., writer) in self.writers.drain(..) {
            writer.forget();
        }
    }

    /// Goes on from what was found after a power cut.
    pub fn go_on_from(&mut self, found: &Found) {
        let Some(at) = fits(&self.snapshots, found) else {
            panic!("found {:?}, and expected one of {:#?}", in_short(found), self.snapshots);
        };
        self.names = self.snapshots[at].clone();
        for (name, expected) in &mut self.names {
            expected.synced = found[name].1.len() as u64;
            expected.written = expected.synced;
        }
        self.snapshots = vec![self.names.clone()];
    }
}
