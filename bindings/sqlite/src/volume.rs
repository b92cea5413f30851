//! All files of one store, for the connections of this process: databases and write-ahead logs in the store, and journals in memory.
//!
//! Rollback journals and super-journals end with the process. A crash cannot leave a database half written, so no journal is ever needed after one.
//!
//! | SQLite | here |
//! |---|---|
//! | writes a database | the page is staged ([`crate::database`]) |
//! | syncs it | one batch, durable |
//! | syncs it as part of a super-journal | nothing; deleting the super-journal commits all its databases as one batch |
//! | says COMMIT_PHASETWO | one batch of what is staged, ordered: the database was not synced (`synchronous=OFF`), or truncated since |
//! | unlocks with something staged | it is dropped; or committed if SQLite said SYNC since the last write: a rollback that was not synced |
//! | appends to a log | the frame is staged |
//! | syncs the log, or a database that has one | the staged frames, in batches: the last one durable, or ordered before that of the database |
//! | publishes what a log has, in a store that other processes use | the staged frames, ordered |
//! | has copied a log to its database (CKPT_DONE) | one batch of what is staged, ordered |
//!
//! In a store that other processes use, what this process knows of a file is read anew whenever SQLite takes a lock on it.

use crate::database::{Database, Staging};
use crate::ffi;
use crate::format::{Directory, FileKind, lpid, read_head};
use crate::locks;
use crate::scratch::Scratch;
use crate::shared_memory::SharedMemory;
use crate::store::Store;
use crate::trouble::Trouble;
use crate::vfs;
use openftl_pages::Change;
use openftl_parts::Durability;
use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;

/// How the name of a database becomes that of its journal.
const JOURNAL: &str = "-journal";
/// The same of its write-ahead log.
const LOG: &str = "-wal";
/// How often a change of the directory is tried beside other processes.
const TRIES_MAX: u32 = 100;

/// See the module.
pub struct Volume {
    store: Store,
    /// Files in the store.
    directory: Directory,
    /// The versions of its pages.
    versions: Vec<u64>,
    /// Files that connections have open.
    open: HashMap<String, Database>,
    journals: HashMap<String, Scratch>,
    next_connection: u64,
}

impl Volume {
    /// Takes over a store, and deletes pages that a killed process has left of deleted or truncated files.
    pub fn new(store: Store) -> Result<Volume, Trouble> {
        let mut volume = Volume {
            store,
            directory: Directory::default(),
            versions: Vec::new(),
            open: HashMap::new(),
            journals: HashMap::new(),
            next_connection: 1,
        };
        let found = volume.store.files()?;
        // Files that another process makes meanwhile have names by now.
        volume.load_directory()?;
        let known: BTreeSet<u32> = volume.directory.names.values().copied().collect();
        if volume.versions.is_empty() && !found.is_empty() {
            return Err(Trouble::damaged("the store has pages of another program; make a store for databases"));
        }
        // Numbers are used once, so nobody puts such pages any more.
        for file in found.into_iter().filter(|file| !known.contains(file)) {
            volume.store.sweep(file, 0)?;
        }
        if !volume.store.is_shared() {
            for file in known {
                let extent = volume.extent(file)?;
                let extent = extent.ok_or_else(|| Trouble::damaged(format!("file {file} of the store has no head")))?;
                volume.store.sweep(file, extent.pages() + 1)?;
            }
        }
        Ok(volume)
    }

    fn load_directory(&mut self) -> Result<(), Trouble> {
        let (mut tries, is_shared) = (0, self.store.is_shared());
        'again: loop {
            let (mut directory, mut versions) = (Directory::default(), Vec::new());
            let mut all = 1;
            while (versions.len() as u32) < all {
                let at = versions.len() as u32;
                match self.store.read(lpid(0, at))? {
                    Some((page, version)) => {
                        all = directory.read(page)?;
                        versions.push(version);
                    }
                    None if at == 0 => break,
                    // Another process has made it shorter since.
                    None if is_shared && tries < TRIES_MAX => {
                        tries += 1;
                        continue 'again;
                    }
                    None => return Err(Trouble::damaged("the directory of the store ends early")),
                }
            }
            (self.directory, self.versions) = (directory, versions);
            return Ok(());
        }
    }

    fn extent(&mut self, file: u32) -> Result<Option<crate::format::Extent>, Trouble> {
        self.store.read(lpid(file, 0))?.map(|(head, _)| read_head(head)).transpose()
    }

    /// Has other processes' changes of the directory in it.
    fn refresh_directory(&mut self) -> Result<(), Trouble> {
        if self.store.is_shared() { self.load_directory() } else { Ok(()) }
    }

    /// Has what other processes have committed of an open file in it, unless this one changes it.
    pub fn refresh(&mut self, name: &str) -> Result<(), Trouble> {
        if !self.store.is_shared() || self.database(name).is_changed() {
            return Ok(());
        }
        if self.database(name).number.is_none() {
            self.load_directory()?;
        }
        let number = self.database(name).number.or_else(|| self.directory.names.get(name).copied());
        let Some(number) = number else { return Ok(()) };
        match self.extent(number)? {
            Some(extent) => self.database(name).is_stored(number, extent),
            None => self.database(name).is_gone(),
        }
        Ok(())
    }

    /// The same of a database and its log, if that is open.
    pub fn refresh_with_log(&mut self, name: &str) -> Result<(), Trouble> {
        let log = format!("{name}{LOG}");
        if self.store.is_shared() && self.open.contains_key(&log) {
            self.refresh(&log)?;
        }
        self.refresh(name)
    }

    /// Opens a file. Returns the number of the connection.
    pub fn open(&mut self, name: &str, flags: c_int) -> Result<u64, Trouble> {
        self.refresh_directory()?;
        let is_there = self.open.contains_key(name) || self.directory.names.contains_key(name);
        let is_refused = if is_there { flags & ffi::OPEN_EXCLUSIVE != 0 } else { flags & ffi::OPEN_CREATE == 0 };
        if is_refused {
            return Err(Trouble::ordinary(ffi::CANTOPEN));
        }
        if !self.open.contains_key(name) {
            let kind = if flags & ffi::OPEN_WAL == 0 { FileKind::Database } else { FileKind::Log };
            let database = match self.directory.names.get(name).copied() {
                None => Database::new(kind),
                Some(number) => match self.extent(number)? {
                    Some(extent) if extent.kind == kind => Database::stored(number, extent),
                    // Another process deletes it.
                    None if self.store.is_shared() => Database::new(kind),
                    None => return Err(Trouble::damaged(format!("file {number} of the store has no head"))),
                    Some(_) => {
                        let text =
                            format!("{name}: a database cannot be opened as a write-ahead log, nor a log as one");
                        return Err(Trouble::new(ffi::CANTOPEN, text));
                    }
                },
            };
            self.open.insert(name.to_owned(), database);
        }
        self.database(name).connections += 1;
        self.next_connection += 1;
        Ok(self.next_connection)
    }

    /// A connection is closed.
    pub fn close(&mut self, name: &str) {
        let database = self.database(name);
        database.connections -= 1;
        if database.connections > 0 {
            return;
        }
        if database.kind() == FileKind::Log && database.is_changed() {
            // SQLite leaves frames that it did not sync to whoever opens the log next.
            if let Err(trouble) = self.commit_log(name, Durability::Volatile) {
                vfs::log(trouble.code, &trouble.message);
            }
        }
        self.open.remove(name);
    }

    /// A file that a connection has open.
    pub fn database(&mut self, name: &str) -> &mut Database {
        self.open.get_mut(name).expect("a connection has it open")
    }

    /// The same, and the store.
    pub fn database_and_store(&mut self, name: &str) -> (&mut Database, &mut Store) {
        (self.open.get_mut(name).expect("a connection has it open"), &mut self.store)
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Fills `bytes` with those of an open file from `offset` on. Returns how many there were.
    pub fn read(&mut self, name: &str, bytes: &mut [u8], offset: u64) -> Result<usize, Trouble> {
        if self.store.is_shared() && offset + bytes.len() as u64 > self.database(name).length() {
            // Another process may have made it longer.
            self.refresh(name)?;
        }
        let (database, store) = self.database_and_store(name);
        database.read(store, bytes, offset)
    }

    /// Bytes of an open file.
    pub fn length(&mut self, name: &str) -> Result<u64, Trouble> {
        self.refresh(name)?;
        Ok(self.database(name).length())
    }

    /// The journal `name`, which begins to be if it was not.
    pub fn journal(&mut self, name: &str) -> &mut Scratch {
        self.journals.entry(name.to_owned()).or_default()
    }

    /// Whether there is such a journal, empty or not.
    pub fn has_journal(&self, name: &str) -> bool {
        self.journals.contains_key(name)
    }

    /// A journal is read: its database is being rolled back, if a connection may write it. SQLite also looks at the journal of a database that nobody
    /// writes, to see whether it needs to be rolled back.
    pub fn journal_is_read(&mut self, name: &str) {
        if let Some(database) = name.strip_suffix(JOURNAL).and_then(|name| self.open.get_mut(name)) {
            database.is_rolled_back |= database.writer.is_some();
        }
    }

    /// Whether there is such a file. As on other systems an empty journal is none.
    pub fn exists(&mut self, name: &str) -> Result<bool, Trouble> {
        if let Some(journal) = self.journals.get(name) {
            return Ok(journal.length() > 0);
        }
        // The journal of an open database is in the memory of its process.
        let is_journal = name.strip_suffix(JOURNAL).is_some_and(|name| self.open.contains_key(name));
        if !is_journal {
            self.refresh_directory()?;
        }
        let is_here = self.open.get(name).is_some_and(|database| database.length() > 0);
        Ok(is_here || self.directory.names.contains_key(name))
    }

    /// Deletes a file. A super-journal commits its databases.
    pub fn delete(&mut self, name: &str) -> Result<(), Trouble> {
        if self.journals.contains_key(name) {
            self.commit_super(name)?;
            self.journals.remove(name);
            return Ok(());
        }
        if self.open.contains_key(name) {
            return Err(Trouble::new(ffi::IOERR_DELETE, format!("{name} is open, and cannot be deleted")));
        }
        for _ in 0..TRIES_MAX {
            self.refresh_directory()?;
            let mut directory = self.directory.clone();
            let Some(number) = directory.names.remove(name) else {
                return Err(Trouble::ordinary(ffi::IOERR_DELETE_NOENT));
            };
            let staged = self.stage_directory(&directory);
            let committed = staged.and_then(|()| self.store.commit(Durability::Durable));
            if self.settle(committed)? {
                self.take_directory(directory)?;
                // A crash before the end of this leaves pages without a name, which are deleted when the store is opened.
                return self.store.sweep(number, 0);
            }
        }
        Err(Trouble::new(ffi::BUSY, format!("{name}: other processes change the directory of the store all the time")))
    }

    fn stage_directory(&mut self, directory: &Directory) -> Result<(), Trouble> {
        let pages = directory.write();
        let is_shared = self.store.is_shared();
        // Of two processes that change the directory at a time one has to begin anew.
        let version = |at: usize| is_shared.then(|| self.versions.get(at).copied().unwrap_or(0));
        for (at, page) in pages.iter().enumerate() {
            self.store.stage_if(lpid(0, at as u32), Change::Put(&[page]), version(at))?;
        }
        for at in pages.len()..self.versions.len() {
            self.store.stage_if(lpid(0, at as u32), Change::Delete, version(at))?;
        }
        Ok(())
    }

    fn take_directory(&mut self, directory: Directory) -> Result<(), Trouble> {
        if self.store.is_shared() {
            return self.load_directory();
        }
        self.versions = vec![0; directory.write().len()];
        self.directory = directory;
        Ok(())
    }

    /// Gives up what is staged in the store if that has failed.
    fn settle<T>(&mut self, result: Result<T, Trouble>) -> Result<T, Trouble> {
        if result.is_err() {
            self.store.abort();
        }
        result
    }

    /// Commits what is staged of a log.
    fn commit_log(&mut self, log: &str, durability: Durability) -> Result<(), Trouble> {
        let log = [log.to_owned()];
        while self.commit_batch(&log, durability)? {}
        Ok(())
    }

    /// Commits what is staged of these databases as one batch, behind what is staged of their logs.
    pub fn commit(&mut self, databases: &[String], durability: Durability) -> Result<(), Trouble> {
        for name in databases {
            let log = format!("{name}{LOG}");
            if self.open.get(&log).is_some_and(Database::is_changed) {
                self.commit_log(&log, Durability::Volatile)?;
            }
        }
        self.commit_batch(databases, durability).map(drop)
    }

    /// Commits a batch. Returns whether there is more for another one.
    fn commit_batch(&mut self, files: &[String], durability: Durability) -> Result<bool, Trouble> {
        for _ in 0..TRIES_MAX {
            let staged = self.stage_files(files);
            let (directory, staged) = self.settle(staged)?;
            let is_part = staged.iter().any(|(_, _, staging)| staging.is_part);
            if staged.iter().any(|(_, _, staging)| staging.is_any) {
                // Of several batches the last one makes all of them durable.
                let committed = self.store.commit(if is_part { Durability::Volatile } else { durability });
                if !self.settle(committed)? {
                    // Another process has changed the directory.
                    self.load_directory()?;
                    continue;
                }
                if let Some(directory) = directory {
                    self.take_directory(directory)?;
                }
            } else if durability == Durability::Durable {
                self.store.sync()?;
            }
            for (name, number, staging) in staged {
                match self.database(&name) {
                    database if staging.is_part => database.part_committed(number, &staging),
                    database if staging.is_any => database.committed(number),
                    database => database.discard(),
                }
                if let Some(first) = staging.sweep_from
                    && let Err(trouble) = self.store.sweep(number, first)
                {
                    // The transaction is committed. What is left of it is deleted when the store is opened.
                    vfs::log(trouble.code, &trouble.message);
                }
            }
            return Ok(is_part);
        }
        Err(Trouble::new(ffi::BUSY, "other processes change the directory of the store all the time"))
    }

    /// Stages files in the store, and the directory if it has new names, which is then returned; and of each file its number.
    #[expect(clippy::type_complexity, reason = "two lists that belong together once")]
    fn stage_files(&mut self, files: &[String]) -> Result<(Option<Directory>, Vec<(String, u32, Staging)>), Trouble> {
        let mut directory = None;
        let mut staged = Vec::new();
        for name in files {
            let (database, store) = (self.open.get_mut(name).expect("a connection has it open"), &mut self.store);
            if !database.is_changed() {
                continue;
            }
            let next = directory.as_ref().unwrap_or(&self.directory).next;
            let number = database.number.unwrap_or(next);
            let staging = database.stage_all(store, number)?;
            if staging.is_any && database.number.is_none() {
                let directory = directory.get_or_insert_with(|| self.directory.clone());
                directory.names.insert(name.clone(), number);
                directory.next = number.checked_add(1).ok_or_else(|| {
                    Trouble::new(ffi::FULL, "the store has had 4294967295 files: copy its databases to a new one")
                })?;
            }
            staged.push((name.clone(), number, staging));
        }
        if let Some(directory) = &directory {
            self.stage_directory(directory)?;
        }
        Ok((directory, staged))
    }

    /// SQLite says that the transaction of a database is complete, and part of a super-journal or not.
    pub fn complete(&mut self, name: &str, super_journal: Option<&str>) {
        let known = super_journal.filter(|name| self.journals.contains_key(*name)).map(str::to_owned);
        let database = self.database(name);
        database.super_journal = known;
        database.is_complete = true;
    }

    /// SQLite syncs a file.
    pub fn sync(&mut self, name: &str) -> Result<(), Trouble> {
        let database = self.database(name);
        if database.kind() == FileKind::Log {
            return self.commit_log(name, Durability::Durable);
        }
        if database.super_journal.is_some() {
            database.is_to_be_durable = true;
            return Ok(());
        }
        self.commit(&[name.to_owned()], Durability::Durable)
    }

    /// A transaction has ended, or a log has been copied to its database.
    pub fn end(&mut self, name: &str) -> Result<(), Trouble> {
        self.commit(&[name.to_owned()], Durability::Volatile)
    }

    /// SQLite has copied pages from a log to the database `name`, and is about to tell others so.
    pub fn end_checkpoint(&mut self, name: &str) -> Result<(), Trouble> {
        let ended = self.end(name);
        if ended.is_err() {
            let database = self.database(name);
            database.discard();
            if let Some(memory) = &mut database.memory {
                // The pages are in the log, and all connections look there again.
                memory.invalidate();
            }
        }
        ended
    }

    /// A file was made shorter. Nothing follows that would tell other processes so of a log, which they write on.
    pub fn log_is_cut(&mut self, name: &str) -> Result<(), Trouble> {
        let is_log = self.database(name).kind() == FileKind::Log;
        if is_log && self.store.is_shared() { self.commit_log(name, Durability::Volatile) } else { Ok(()) }
    }

    /// SQLite is about to tell others what the log of a database has. Other processes find it in the store.
    pub fn publish(&mut self, name: &str) {
        let log = format!("{name}{LOG}");
        if !self.store.is_shared() || !self.open.get(&log).is_some_and(Database::is_changed) {
            return;
        }
        if let Err(trouble) = self.commit_log(&log, Durability::Volatile) {
            vfs::log(trouble.code, &trouble.message);
            self.database(&log).discard();
            let database = self.database(name);
            database.unpublished = Some(trouble);
            if let Some(memory) = &mut database.memory {
                memory.invalidate();
            }
        }
    }

    fn commit_super(&mut self, super_journal: &str) -> Result<(), Trouble> {
        let of_it = |database: &Database| database.super_journal.as_deref() == Some(super_journal);
        let databases: Vec<String> =
            self.open.iter().filter(|(_, database)| of_it(database)).map(|(name, _)| name.clone()).collect();
        if databases.is_empty() {
            return Ok(());
        }
        let is_durable = self.open.values().any(|database| of_it(database) && database.is_to_be_durable);
        self.commit(&databases, if is_durable { Durability::Durable } else { Durability::Volatile })
    }

    /// A connection is about to lower its lock. Below RESERVED nothing stays staged.
    pub fn unlocks(&mut self, name: &str, connection: u64, level: c_int) -> Result<(), Trouble> {
        let database = self.database(name);
        if level > ffi::LOCK_SHARED || database.writer != Some(connection) {
            return Ok(());
        }
        database.writer = None;
        let mut result = Ok(());
        if database.is_changed() {
            if database.is_complete && database.super_journal.is_none() {
                result = self.end(name);
            }
            self.database(name).discard();
        }
        result
    }

    /// The memory that the connections of a database share, which is mapped with the first of them in this process.
    pub fn memory(&mut self, name: &str, is_first: bool) -> Result<&mut SharedMemory, Trouble> {
        let database = self.open.get_mut(name).expect("a connection has it open");
        let memory = &mut database.memory;
        if memory.is_none() {
            let folder = &self.store.opened().locks;
            let path = locks::memory_file(folder, name);
            let opened = std::fs::create_dir_all(folder).and_then(|()| SharedMemory::open(&path, is_first));
            *memory = Some(opened.map_err(|error| Trouble::locking(ffi::IOERR_SHMOPEN, &path, &error))?);
        }
        Ok(memory.as_mut().expect("it was just mapped"))
    }

    /// A connection maps it no more.
    pub fn leave_memory(&mut self, name: &str, is_deleted: bool) {
        let memory = &mut self.database(name).memory;
        let Some(mapped) = memory else { return };
        mapped.connections -= 1;
        if mapped.connections == 0 {
            if is_deleted {
                mapped.delete();
            }
            *memory = None;
        }
    }

    /// Stops the drive.
    pub fn stop(self) -> Result<(), Trouble> {
        self.store.close()
    }
}
