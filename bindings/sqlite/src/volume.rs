//! All files of one store: databases in the store, and journals in memory.
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

use crate::database::{Database, Staging};
use crate::ffi;
use crate::format::{lpid, read_directory, read_head, write_directory};
use crate::scratch::Scratch;
use crate::store::Store;
use crate::trouble::Trouble;
use crate::vfs;
use openftl_pages::Change;
use openftl_parts::Durability;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_int;

/// How the name of a database becomes that of its journal.
const JOURNAL: &str = "-journal";

/// See the module.
pub struct Volume {
    store: Store,
    /// Databases in the store, and their file numbers.
    names: BTreeMap<String, u32>,
    directory_pages: u32,
    /// Databases that connections have open.
    open: HashMap<String, Database>,
    journals: HashMap<String, Scratch>,
    next_connection: u64,
}

impl Volume {
    /// Takes over a store, and deletes pages that a killed process has left of deleted or truncated files.
    pub fn new(mut store: Store) -> Result<Volume, Trouble> {
        let mut names = BTreeMap::new();
        let (mut at, mut directory_pages) = (0, 0);
        while let Some(page) = store.read(lpid(0, at))? {
            directory_pages = read_directory(&page, &mut names)?;
            at += 1;
            if at >= directory_pages {
                break;
            }
        }
        if at < directory_pages {
            return Err(Trouble::damaged("the directory of the store ends early"));
        }
        let known: BTreeSet<u32> = names.values().copied().collect();
        let found = store.files();
        if directory_pages == 0 && !found.is_empty() {
            return Err(Trouble::damaged("the store has pages of another program; make a store for databases"));
        }
        for file in found.into_iter().filter(|file| !known.contains(file)) {
            store.sweep(file, 0)?;
        }
        let mut volume = Volume {
            store,
            names,
            directory_pages,
            open: HashMap::new(),
            journals: HashMap::new(),
            next_connection: 1,
        };
        for file in known {
            let extent = volume.extent(file)?;
            volume.store.sweep(file, extent.pages() + 1)?;
        }
        Ok(volume)
    }

    fn extent(&mut self, file: u32) -> Result<crate::format::Extent, Trouble> {
        let head = self.store.read(lpid(file, 0))?;
        read_head(&head.ok_or_else(|| Trouble::damaged(format!("file {file} of the store has no head")))?)
    }

    /// Opens a database. Returns the number of the connection.
    pub fn open(&mut self, name: &str, flags: c_int) -> Result<u64, Trouble> {
        let is_there = self.open.contains_key(name) || self.names.contains_key(name);
        let is_refused = if is_there { flags & ffi::OPEN_EXCLUSIVE != 0 } else { flags & ffi::OPEN_CREATE == 0 };
        if is_refused {
            return Err(Trouble::ordinary(ffi::CANTOPEN));
        }
        if !self.open.contains_key(name) {
            let database = match self.names.get(name).copied() {
                Some(number) => Database::stored(number, self.extent(number)?),
                None => Database::default(),
            };
            self.open.insert(name.to_owned(), database);
        }
        self.database(name).connections += 1;
        self.next_connection += 1;
        Ok(self.next_connection)
    }

    /// A connection is closed.
    pub fn close(&mut self, name: &str, connection: u64) {
        // What is dropped here was not committed, and its error was told when it arose.
        _ = self.unlock(name, connection, ffi::LOCK_NONE);
        let database = self.database(name);
        database.connections -= 1;
        if database.connections == 0 {
            self.open.remove(name);
        }
    }

    /// A database that a connection has open.
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
            database.is_rolled_back |= database.locks.is_reserved();
        }
    }

    /// Whether there is such a file. As on other systems an empty journal is none.
    pub fn exists(&self, name: &str) -> bool {
        self.names.contains_key(name)
            || self.open.get(name).is_some_and(|database| database.length() > 0)
            || self.journals.get(name).is_some_and(|journal| journal.length() > 0)
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
        let Some(number) = self.names.get(name).copied() else {
            return Err(Trouble::ordinary(ffi::IOERR_DELETE_NOENT));
        };
        let mut names = self.names.clone();
        names.remove(name);
        let committed = self.stage_directory(&names).and_then(|()| self.store.commit(Durability::Durable));
        self.settle(committed)?;
        self.take_directory(names);
        // A crash before the end of this leaves pages without a name, which are deleted when the store is opened.
        self.store.sweep(number, 0)
    }

    fn stage_directory(&mut self, names: &BTreeMap<String, u32>) -> Result<(), Trouble> {
        let pages = write_directory(names);
        for (at, page) in (0..).zip(&pages) {
            self.store.stage(lpid(0, at), Change::Put(&[page]))?;
        }
        for at in pages.len() as u32..self.directory_pages {
            self.store.stage(lpid(0, at), Change::Delete)?;
        }
        Ok(())
    }

    fn take_directory(&mut self, names: BTreeMap<String, u32>) {
        self.directory_pages = write_directory(&names).len() as u32;
        self.names = names;
    }

    /// Gives up what is staged in the store if that has failed.
    fn settle<T>(&mut self, result: Result<T, Trouble>) -> Result<T, Trouble> {
        if result.is_err() {
            self.store.abort();
        }
        result
    }

    /// Commits what is staged of these databases as one batch.
    pub fn commit(&mut self, databases: &[String], durability: Durability) -> Result<(), Trouble> {
        let staged = self.stage_databases(databases);
        let (names, staged) = self.settle(staged)?;
        if staged.iter().any(|(_, _, staging)| staging.is_any) {
            let committed = self.store.commit(durability);
            self.settle(committed)?;
            if names.len() > self.names.len() {
                self.take_directory(names);
            }
        } else if durability == Durability::Durable {
            self.store.sync()?;
        }
        for (name, number, staging) in staged {
            match self.database(&name) {
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
        Ok(())
    }

    /// Stages databases in the store, and the directory if it has new names. Returns the names, and of each database its number.
    #[expect(clippy::type_complexity, reason = "two lists that belong together once")]
    fn stage_databases(
        &mut self,
        databases: &[String],
    ) -> Result<(BTreeMap<String, u32>, Vec<(String, u32, Staging)>), Trouble> {
        let mut names = self.names.clone();
        let mut staged = Vec::new();
        for name in databases {
            let (database, store) = (self.open.get_mut(name).expect("a connection has it open"), &mut self.store);
            if !database.is_changed() {
                continue;
            }
            let free = || {
                let used: BTreeSet<u32> = names.values().copied().collect();
                (1..u32::MAX).find(|number| !used.contains(number)).expect("there are fewer files")
            };
            let number = database.number.unwrap_or_else(free);
            let staging = database.stage_all(store, number)?;
            if staging.is_any && database.number.is_none() {
                names.insert(name.clone(), number);
            }
            staged.push((name.clone(), number, staging));
        }
        if names.len() > self.names.len() {
            self.stage_directory(&names)?;
        }
        Ok((names, staged))
    }

    /// SQLite says that the transaction of a database is complete, and part of a super-journal or not.
    pub fn complete(&mut self, name: &str, super_journal: Option<&str>) {
        let known = super_journal.filter(|name| self.journals.contains_key(*name)).map(str::to_owned);
        let database = self.database(name);
        database.super_journal = known;
        database.is_complete = true;
    }

    /// SQLite syncs a database.
    pub fn sync(&mut self, name: &str) -> Result<(), Trouble> {
        let database = self.database(name);
        if database.super_journal.is_some() {
            database.is_to_be_durable = true;
            return Ok(());
        }
        self.commit(&[name.to_owned()], Durability::Durable)
    }

    /// A transaction has ended.
    pub fn end(&mut self, name: &str) -> Result<(), Trouble> {
        self.commit(&[name.to_owned()], Durability::Volatile)
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

    /// Lowers the lock of a connection. Below RESERVED nothing stays staged.
    pub fn unlock(&mut self, name: &str, connection: u64, level: c_int) -> Result<(), Trouble> {
        let database = self.database(name);
        let was = database.locks.level(connection);
        let mut result = Ok(());
        if was >= ffi::LOCK_RESERVED && level <= ffi::LOCK_SHARED && database.is_changed() {
            if database.is_complete && database.super_journal.is_none() {
                result = self.end(name);
            }
            self.database(name).discard();
        }
        self.database(name).locks.unlock(connection, level);
        result
    }

    /// Stops the drive.
    pub fn stop(self) -> Result<(), Trouble> {
        self.store.close()
    }
}
