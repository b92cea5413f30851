//! What files are after a power cut: names, tables and log files of one moment, no earlier than the last sync.
//!
//! The model knows what was done, and takes a snapshot of the names after each change. What is found has to be one of those since the
//! last sync; of a log file, the beginning of what was written to it, and all of what was synced.

use crate::common::{byte, bytes, content, power_cut, tiny};
use openftl_files::{FileKind, FileWriter, Files, Volume};
use openftl_media::EmulatedDevice;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Expected {
    id: u64,
    kind: FileKind,
    /// Bytes that have to be there.
    synced: u64,
    /// Bytes written.
    written: u64,
}

type Snapshot = BTreeMap<String, Expected>;

struct World {
    files: Option<Files<EmulatedDevice>>,
    writers: Vec<(String, u64, FileWriter<EmulatedDevice>)>,
    names: Snapshot,
    /// Since the last sync, the state then first.
    snapshots: Vec<Snapshot>,
    dice: Xoshiro256PlusPlus,
    next_id: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            files: Some(tiny(96, seed)),
            writers: Vec::new(),
            names: Snapshot::new(),
            snapshots: vec![Snapshot::new()],
            dice: Xoshiro256PlusPlus::seed_from_u64(seed),
            next_id: 1,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice.next_u64() % bound
    }

    fn files(&self) -> &Files<EmulatedDevice> {
        self.files.as_ref().expect("the drive is open")
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

    fn step(&mut self) {
        match self.below(20) {
            0..=2 if self.writers.len() < 4 => self.begin(),
            3..=10 if !self.writers.is_empty() => self.append(),
            11 if !self.writers.is_empty() => self.sync(true),
            12 if !self.writers.is_empty() => self.sync(false),
            13..=15 if !self.writers.is_empty() => self.close(),
            16 => {
                if let Some(from) = self.any_name() {
                    let to = format!("/{}", self.below(12));
                    if !self.writers.iter().any(|(path, ..)| *path == to) {
                        self.files().rename(&from, &to).unwrap();
                        let moved = self.names.remove(&from).unwrap();
                        self.names.insert(to, moved);
                        self.changed();
                    }
                }
            }
            17 => {
                if let Some(name) = self.any_name() {
                    self.files().delete(&name).unwrap();
                    self.names.remove(&name);
                    self.changed();
                }
            }
            18 => {
                self.files().sync_names("/").unwrap();
                self.synced();
            }
            _ => {
                if let Some(name) = self.any_name() {
                    self.verify(&name);
                }
            }
        }
    }

    fn begin(&mut self) {
        let path = format!("/{}", self.below(12));
        if self.writers.iter().any(|(other, ..)| *other == path) {
            return;
        }
        let kind = if self.below(2) == 0 { FileKind::Table } else { FileKind::Log };
        let writer = self.files().create(&path, kind).unwrap();
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
        if writer.append(&data).is_ok()
            && let Some(expected) = self.names.get_mut(path)
        {
            expected.written += count;
            let written = expected.written;
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

    fn verify(&self, name: &str) {
        let Expected { id, written, .. } = self.names[name];
        assert_eq!(content(&Volume::Here(self.files().clone()), name), bytes(id, 0, written), "{name}");
    }

    fn cut(&mut self) {
        // A writer that is dropped would commit what it has: a crash does not.
        for (.., writer) in self.writers.drain(..) {
            writer.forget();
        }
        let torn = self.below(2) == 0;
        let files = power_cut(self.files.take().unwrap(), torn);
        let volume = Volume::Here(files.clone());
        let found: BTreeMap<String, (FileKind, Vec<u8>)> = files
            .list("/")
            .unwrap()
            .into_iter()
            .map(|(name, attributes)| (format!("/{name}"), (attributes.kind, content(&volume, &format!("/{name}")))))
            .collect();
        drop(volume);
        let fits = |snapshot: &Snapshot| {
            snapshot.len() == found.len()
                && snapshot.iter().all(|(name, Expected { id, kind, synced, written })| {
                    found.get(name).is_some_and(|(found_kind, bytes)| {
                        let count = bytes.len() as u64;
                        let is_of_it = bytes.iter().zip(0..).all(|(found, at)| *found == byte(*id, at));
                        found_kind == kind && (*synced..=*written).contains(&count) && is_of_it
                    })
                })
        };
        let Some(at) = self.snapshots.iter().rposition(fits) else {
            let found: Vec<_> = found.iter().map(|(name, (kind, bytes))| (name, kind, bytes.len())).collect();
            panic!("found {found:?}, and expected one of {:#?}", self.snapshots);
        };
        self.names = self.snapshots[at].clone();
        for (name, expected) in &mut self.names {
            expected.synced = found[name].1.len() as u64;
            expected.written = expected.synced;
        }
        self.snapshots = vec![self.names.clone()];
        self.files = Some(files);
    }
}

#[test]
fn after_a_power_cut_files_are_as_they_were_at_one_moment_since_the_last_sync() {
    for seed in 0..24 {
        let mut world = World::new(seed);
        for _ in 0..6 {
            for _ in 0..60 {
                world.step();
            }
            world.cut();
        }
    }
}
