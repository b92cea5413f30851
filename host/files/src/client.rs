//! The files of a drive that another process has open: the other end of a [`FileServer`](crate::FileServer).
//!
//! Threads do not wait for each other: each request has a connection to itself, and there are as many as are in use at a time. A file
//! that is written has one of its own until it is closed. What is appended is gathered here, and sent when there are [`GATHER_BYTES`],
//! or when the file is flushed, synced or closed, or a name or log file is looked at by this client.
//!
//! A flush is sent and not waited for: what is on its way arrives though this process is killed. If it cannot be written there, the next
//! call that waits says so, which is at the latest when [`UNCONFIRMED_BYTES_MAX`] are on their way.
//!
//! A connection that breaks takes the client with it: readers, writers and locks are gone at the server, so that every call is an error
//! from then on. The drive is to be opened again.

mod link;
mod reader;
mod session;
mod writer;

pub use reader::ClientReader;
pub use session::{Connect, REQUESTS_MAX, WRITERS_MAX};
pub use writer::{ClientSync, ClientWriter, GATHER_BYTES, UNCONFIRMED_BYTES_MAX};

use crate::wire::{Answer, Request};
use crate::{Attributes, FileError, FileKind};
use openftl_tables::TableLifetime;
use session::{Links, Shared, Writing, lock};
use std::sync::{Arc, Condvar, Mutex};

/// A client of a served drive. Clones are the same client.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Begins a session at the server that `connect` connects to, and that people call `server`.
    ///
    /// # Errors
    /// If nobody is there, or the server turns the client away.
    pub fn connect(server: String, connect: Connect) -> Result<Client, FileError> {
        let mut shared = Shared {
            server,
            connect,
            session: 0,
            links: Mutex::default(),
            freed: Condvar::new(),
            broken: Mutex::default(),
            unsettled: Mutex::default(),
            settling: Mutex::default(),
        };
        let (link, session) = shared.new_link(0)?;
        shared.session = session;
        shared.links = Mutex::new(Links { idle: vec![link], open: 1, writers: 0 });
        Ok(Client { shared: Arc::new(shared) })
    }

    /// Whether the connection is broken, and the drive has to be opened again.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        lock(&self.shared.broken).is_some()
    }

    /// Ends the session. False if somebody still uses the drive or a file of it.
    #[must_use]
    pub fn close(self) -> bool {
        Arc::try_unwrap(self.shared).is_ok()
    }

    /// See [`Files::space`](crate::Files::space).
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn space(&self) -> Result<(u64, u64), FileError> {
        self.shared.ask(&Request::Space, |answer| match answer {
            Answer::Space { free, all } => Some(Ok((free, all))),
            _ => None,
        })
    }

    /// See [`Files::statistics`](crate::Files::statistics); as JSON.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn statistics(&self) -> Result<String, FileError> {
        self.shared.ask(&Request::Statistics, |answer| match answer {
            Answer::Text(text) => Some(Ok(text.to_owned())),
            _ => None,
        })
    }

    /// See [`Files::create`](crate::Files::create).
    ///
    /// # Errors
    /// As there, or if the connection breaks, or this client writes [`WRITERS_MAX`] files already.
    pub fn create(&self, path: &str, kind: FileKind) -> Result<ClientWriter, FileError> {
        let path = crate::path::normal(path)?;
        self.begin(&path, kind, &Request::Create { path: &path, kind })
    }

    /// See [`Files::append_to`](crate::Files::append_to).
    ///
    /// # Errors
    /// As there, or if the connection breaks, or this client writes [`WRITERS_MAX`] files already.
    pub fn append_to(&self, path: &str) -> Result<ClientWriter, FileError> {
        let path = crate::path::normal(path)?;
        self.shared.settle();
        self.begin(&path, FileKind::Log, &Request::AppendTo { path: &path })
    }

    fn begin(&self, path: &str, kind: FileKind, request: &Request<'_>) -> Result<ClientWriter, FileError> {
        let shared = &self.shared;
        shared.expect_whole()?;
        {
            let mut links = lock(&shared.links);
            if links.writers >= WRITERS_MAX {
                return Err(FileError::Busy(format!("{path}: {WRITERS_MAX} files are being written; close some")));
            }
            links.writers += 1;
        }
        let begun = shared.new_link(shared.session).and_then(|(mut link, _)| match link.ask(request) {
            Ok(Answer::State { bytes, .. }) => Ok((link, bytes)),
            Ok(Answer::Error(error)) => Err(error),
            Ok(_) => Err(shared.unexpected()),
            Err(error) => Err(shared.breaks(&error)),
        });
        let (link, bytes) = begun.inspect_err(|_| lock(&shared.links).writers -= 1)?;
        let writing = Writing {
            link: Some(link),
            gathered: Vec::new(),
            unconfirmed: 0,
            bytes,
            is_unsettled: false,
            is_committed: false,
        };
        Ok(ClientWriter {
            shared: Arc::clone(shared),
            path: path.to_owned(),
            kind,
            hint: (0, TableLifetime::Unknown),
            writing: Arc::new(Mutex::new(writing)),
        })
    }

    /// See [`Files::open_read`](crate::Files::open_read).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn open_read(&self, path: &str) -> Result<ClientReader, FileError> {
        self.shared.settle();
        let (file, kind) = self.shared.ask(&Request::OpenRead { path }, |answer| match answer {
            Answer::Opened { file, kind } => Some(Ok((file, kind))),
            _ => None,
        })?;
        Ok(ClientReader { shared: Arc::clone(&self.shared), file, kind })
    }

    /// See [`Files::attributes`](crate::Files::attributes).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn attributes(&self, path: &str) -> Result<Attributes, FileError> {
        self.shared.settle();
        self.shared.ask(&Request::Attributes { path }, |answer| match answer {
            Answer::Attributes(attributes) => Some(Ok(attributes)),
            _ => None,
        })
    }

    /// See [`Files::list`](crate::Files::list).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn list(&self, folder: &str) -> Result<Vec<(String, Attributes)>, FileError> {
        self.shared.settle();
        let mut found: Vec<(String, Attributes)> = Vec::new();
        loop {
            let after = found.last().map_or("", |(name, _)| name.as_str());
            let (has_more, names) = self.shared.ask(&Request::List { folder, after }, |answer| match answer {
                Answer::Names { has_more, names } => {
                    let names = names.into_iter().map(|(name, attributes)| (name.to_owned(), attributes));
                    Some(Ok((has_more, names.collect::<Vec<_>>())))
                }
                _ => None,
            })?;
            let is_last = !has_more || names.is_empty();
            found.extend(names);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// See [`Files::delete`](crate::Files::delete).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn delete(&self, path: &str) -> Result<(), FileError> {
        self.shared.done(&Request::Delete { path })
    }

    /// See [`Files::rename`](crate::Files::rename).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.shared.settle();
        self.shared.done(&Request::Rename { from, to })
    }

    /// See [`Files::make_folder`](crate::Files::make_folder).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn make_folder(&self, path: &str) -> Result<(), FileError> {
        self.shared.done(&Request::MakeFolder { path })
    }

    /// See [`Files::delete_folder`](crate::Files::delete_folder).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn delete_folder(&self, path: &str) -> Result<(), FileError> {
        self.shared.done(&Request::DeleteFolder { path })
    }

    /// See [`Files::sync_names`](crate::Files::sync_names).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn sync_names(&self, folder: &str) -> Result<(), FileError> {
        self.shared.settle();
        self.shared.done(&Request::SyncNames { folder })
    }

    /// See [`Files::lock`](crate::Files::lock). Locks end with the process.
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn lock(&self, path: &str) -> Result<(), FileError> {
        self.shared.done(&Request::Lock { path })
    }

    /// See [`Files::unlock`](crate::Files::unlock).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn unlock(&self, path: &str) -> Result<(), FileError> {
        self.shared.done(&Request::Unlock { path })
    }
}
