//! A session holds what a client shares with its readers and writers: the links to the server, and the files whose data may not have
//! arrived.

use super::link::Link;
use crate::FileError;
use crate::stream::{ReceiveError, Stream};
use crate::wire::{Answer, DATA_BYTES_MAX, Request};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Connections of a client for files that it writes; for everything else there are [`REQUESTS_MAX`] more.
pub const WRITERS_MAX: usize = 64;
/// Requests of a client that are under way at a time.
pub const REQUESTS_MAX: usize = 32;

/// Makes one more connection to a server.
pub type Connect = Box<dyn Fn() -> io::Result<Stream> + Send + Sync>;

pub(super) struct Shared {
    /// What people call the server.
    pub(super) server: String,
    pub(super) connect: Connect,
    pub(super) session: u64,
    pub(super) links: Mutex<Links>,
    /// A link is free.
    pub(super) freed: Condvar,
    /// Why nothing can be done any more.
    pub(super) broken: Mutex<Option<FileError>>,
    /// Files being written of which something may not have arrived.
    pub(super) unsettled: Mutex<Vec<Weak<Mutex<Writing>>>>,
    /// Whoever sees to these.
    pub(super) settling: Mutex<()>,
}

#[derive(Default)]
pub(super) struct Links {
    pub(super) idle: Vec<Link>,
    /// Requests under way and idle ones.
    pub(super) open: usize,
    pub(super) writers: usize,
}

/// A file being written.
pub(super) struct Writing {
    /// None when it has ended.
    pub(super) link: Option<Link>,
    pub(super) gathered: Vec<u8>,
    /// Bytes sent, and not waited for.
    pub(super) unconfirmed: usize,
    /// Bytes of the file, with those.
    pub(super) bytes: u64,
    /// Whether the client looks after it when names or log files are looked at.
    pub(super) is_unsettled: bool,
    /// A table that was committed or synced.
    pub(super) is_committed: bool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new_link(&self, session: u64) -> Result<(Link, u64), FileError> {
        let stream = (self.connect)().map_err(|error| FileError::Io(format!("{}: {error}", self.server)))?;
        let mut link = Link::new(stream);
        let session = match link.ask(&Request::Hello { session }) {
            Ok(Answer::Welcome { session }) => session,
            Ok(Answer::Error(error)) => return Err(error.of(&self.server)),
            Ok(_) => return Err(self.unexpected()),
            Err(error) => return Err(FileError::Io(format!("{}: {error}", self.server))),
        };
        Ok((link, session))
    }

    pub(super) fn unexpected(&self) -> FileError {
        FileError::Io(format!("{}: the server answers something else than was asked", self.server))
    }

    pub(super) fn expect_whole(&self) -> Result<(), FileError> {
        lock(&self.broken).clone().map_or(Ok(()), Err)
    }

    /// A connection has broken: nothing can be done any more.
    pub(super) fn breaks(&self, error: &ReceiveError) -> FileError {
        let failure = FileError::Io(format!(
            "the connection to the server of the drive, {}, is broken ({error}); close the drive and open it again",
            self.server
        ));
        lock(&self.broken).get_or_insert_with(|| failure.clone());
        lock(&self.links).idle.clear();
        self.freed.notify_all();
        failure
    }

    /// A connection for one request.
    fn take(&self) -> Result<Link, FileError> {
        let mut links = lock(&self.links);
        loop {
            self.expect_whole()?;
            if let Some(link) = links.idle.pop() {
                return Ok(link);
            }
            if links.open < REQUESTS_MAX {
                links.open += 1;
                drop(links);
                return self.new_link(self.session).map(|(link, _)| link).inspect_err(|_| {
                    lock(&self.links).open -= 1;
                    self.freed.notify_one();
                });
            }
            links = self.freed.wait(links).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put_back(&self, link: Link) {
        lock(&self.links).idle.push(link);
        self.freed.notify_one();
    }

    /// Asks, and hands the answer to `take`.
    pub(super) fn ask<T>(
        &self,
        request: &Request<'_>,
        take: impl FnOnce(Answer<'_>) -> Option<Result<T, FileError>>,
    ) -> Result<T, FileError> {
        let mut link = self.take()?;
        let result = match link.ask(request) {
            Ok(Answer::Error(error)) => Err(error),
            Ok(answer) => take(answer).unwrap_or_else(|| Err(self.unexpected())),
            Err(error) => {
                lock(&self.links).open -= 1;
                return Err(self.breaks(&error));
            }
        };
        self.put_back(link);
        result
    }

    pub(super) fn done(&self, request: &Request<'_>) -> Result<(), FileError> {
        self.ask(request, |answer| matches!(answer, Answer::Done).then_some(Ok(())))
    }

    /// All that this client has appended is at the server: whoever asks there finds it.
    pub(super) fn settle(&self) {
        let _alone = lock(&self.settling);
        let writers = std::mem::take(&mut *lock(&self.unsettled));
        for writing in writers.iter().filter_map(Weak::upgrade) {
            let mut writing = lock(&writing);
            writing.is_unsettled = false;
            if let Err(error) = writing.confirm(self, &Request::WriterState) {
                // Whoever writes the file is told by the server, or finds the connection broken.
                drop(error);
            }
        }
    }
}

impl Writing {
    /// Sends what was gathered.
    pub(super) fn send(&mut self, shared: &Shared, is_quiet: bool) -> Result<(), FileError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let data = std::mem::take(&mut self.gathered);
        let mut sent = Ok(());
        for data in data.chunks(DATA_BYTES_MAX) {
            let request = Request::Append { is_quiet, data };
            sent = if is_quiet {
                self.unconfirmed += data.len();
                self.tell(shared, &request)
            } else {
                self.ask(shared, &request)
            };
            if sent.is_err() {
                break;
            }
        }
        self.gathered = data;
        self.gathered.clear();
        sent
    }

    /// Sends what is not answered.
    pub(super) fn tell(&mut self, shared: &Shared, request: &Request<'_>) -> Result<(), FileError> {
        let Some(link) = &mut self.link else { return Err(ended()) };
        link.send(request).map_err(|error| shared.breaks(&error))
    }

    /// Asks something about the file, and learns how long it is.
    fn ask(&mut self, shared: &Shared, request: &Request<'_>) -> Result<(), FileError> {
        shared.expect_whole()?;
        let Some(link) = &mut self.link else { return Err(ended()) };
        let failure = match link.ask(request) {
            Ok(Answer::State { bytes, .. }) => {
                (self.bytes, self.unconfirmed) = (bytes, 0);
                return Ok(());
            }
            Ok(Answer::Done) => return Ok(()),
            Ok(Answer::Error(error)) => error,
            Ok(_) => return Err(shared.unexpected()),
            Err(error) => return Err(shared.breaks(&error)),
        };
        // What did not come to be is not counted.
        if let Ok(Answer::State { bytes, .. }) = link.ask(&Request::WriterState) {
            (self.bytes, self.unconfirmed) = (bytes, 0);
        }
        Err(failure)
    }

    /// Sends what was gathered, and asks when it has been done.
    pub(super) fn confirm(&mut self, shared: &Shared, request: &Request<'_>) -> Result<(), FileError> {
        let is_settled = self.gathered.is_empty() && self.unconfirmed == 0 && *request == Request::WriterState;
        if is_settled || self.link.is_none() {
            return Ok(());
        }
        self.send(shared, true)?;
        self.ask(shared, request)
    }
}

pub(super) fn ended() -> FileError {
    FileError::Invalid("the file was closed".to_owned())
}
