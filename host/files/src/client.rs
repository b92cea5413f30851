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

use crate::stream::{Inbox, ReceiveError, Stream};
use crate::table_file::is_whole;
use crate::wire::{Answer, DATA_BYTES_MAX, Head, PARTS_MAX, Part, Request, WireError};
use crate::writer::expect_end;
use crate::{Attributes, FileError, FileKind, ReadRequest};
use openftl_ftl::tables::TableLifetime;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes that are gathered before they are sent.
pub const GATHER_BYTES: usize = DATA_BYTES_MAX;
/// Bytes that are on their way to a file without being waited for, at most.
pub const UNCONFIRMED_BYTES_MAX: usize = 64 * 1024;
/// Connections of a client for files that it writes; for everything else there are [`REQUESTS_MAX`] more.
pub const WRITERS_MAX: usize = 64;
/// Requests of a client that are under way at a time.
pub const REQUESTS_MAX: usize = 32;

/// Makes one more connection to a server.
pub type Connect = Box<dyn Fn() -> io::Result<Stream> + Send + Sync>;

/// A client of a served drive. Clones are the same client.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    /// What people call the server.
    server: String,
    connect: Connect,
    session: u64,
    links: Mutex<Links>,
    /// A link is free.
    freed: Condvar,
    /// Why nothing can be done any more.
    broken: Mutex<Option<FileError>>,
    /// Files being written of which something may not have arrived.
    unsettled: Mutex<Vec<Weak<Mutex<Writing>>>>,
    /// Whoever sees to these.
    settling: Mutex<()>,
}

#[derive(Default)]
struct Links {
    idle: Vec<Link>,
    /// Requests under way and idle ones.
    open: usize,
    writers: usize,
}

/// A connection. It is used by one thread at a time.
struct Link {
    stream: Stream,
    inbox: Inbox,
    number: u64,
    output: Vec<u8>,
}

/// A file being written.
struct Writing {
    /// None when it has ended.
    link: Option<Link>,
    gathered: Vec<u8>,
    /// Bytes sent, and not waited for.
    unconfirmed: usize,
    /// Bytes of the file, with those.
    bytes: u64,
    /// Whether the client looks after it when names or log files are looked at.
    is_unsettled: bool,
    /// A table that was committed or synced.
    is_committed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    fn new(stream: Stream) -> Link {
        Link { inbox: Inbox::new(stream.clone()), stream, number: 0, output: Vec::new() }
    }

    fn send(&mut self, request: &Request<'_>) -> Result<(), ReceiveError> {
        self.number += 1;
        self.output.clear();
        request.write(self.number, &mut self.output);
        Ok(self.stream.send(&self.output)?)
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, request: &Request<'_>) -> Result<Answer<'_>, ReceiveError> {
        let sent = self.send(request);
        let number = self.number;
        // A server that ends a connection has said why before.
        let (head, body) = match (self.inbox.receive(), sent) {
            (Ok(message), _) => message,
            (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
        };
        let Head { kind, number: found, .. } = head;
        let answer = Answer::parse(kind.get(), body)?;
        match answer {
            // Said to a connection, and not to a request.
            Answer::Error(error) if found.get() == 0 => Err(io::Error::other(error.text().to_owned()).into()),
            _ if found.get() != number => {
                let reason = "the answer is that of another request";
                Err(WireError::Body { kind: kind.get(), reason }.into())
            }
            answer => Ok(answer),
        }
    }
}

impl Shared {
    fn new_link(&self, session: u64) -> Result<(Link, u64), FileError> {
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

    fn unexpected(&self) -> FileError {
        FileError::Io(format!("{}: the server answers something else than was asked", self.server))
    }

    fn expect_whole(&self) -> Result<(), FileError> {
        lock(&self.broken).clone().map_or(Ok(()), Err)
    }

    /// A connection has broken: nothing can be done any more.
    fn breaks(&self, error: &ReceiveError) -> FileError {
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
    fn ask<T>(
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

    fn done(&self, request: &Request<'_>) -> Result<(), FileError> {
        self.ask(request, |answer| matches!(answer, Answer::Done).then_some(Ok(())))
    }

    /// All that this client has appended is at the server: whoever asks there finds it.
    fn settle(&self) {
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

impl Writing {
    /// Sends what was gathered.
    fn send(&mut self, shared: &Shared, is_quiet: bool) -> Result<(), FileError> {
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
    fn tell(&mut self, shared: &Shared, request: &Request<'_>) -> Result<(), FileError> {
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
    fn confirm(&mut self, shared: &Shared, request: &Request<'_>) -> Result<(), FileError> {
        let is_settled = self.gathered.is_empty() && self.unconfirmed == 0 && *request == Request::WriterState;
        if is_settled || self.link.is_none() {
            return Ok(());
        }
        self.send(shared, true)?;
        self.ask(shared, request)
    }
}

fn ended() -> FileError {
    FileError::Invalid("the file was closed".to_owned())
}

/// A file that is written from front to back; see [`FileWriter`](crate::FileWriter).
pub struct ClientWriter {
    shared: Arc<Shared>,
    path: String,
    kind: FileKind,
    hint: (u64, TableLifetime),
    writing: Arc<Mutex<Writing>>,
}

impl ClientWriter {
    fn hint(&mut self) {
        let (bytes, lifetime) = self.hint;
        // A hint that does not arrive changes nothing.
        let _ = lock(&self.writing).tell(&self.shared, &Request::Hint { bytes, lifetime });
    }

    /// So many bytes will come at most. A hint, before the first byte; 0: unknown.
    pub fn hint_size(&mut self, bytes: u64) {
        self.hint.0 = bytes;
        self.hint();
    }

    /// It will live so long. A hint, before the first byte.
    pub fn hint_lifetime(&mut self, lifetime: TableLifetime) {
        self.hint.1 = lifetime;
        self.hint();
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        lock(&self.writing).bytes
    }

    /// A number that differs from that of every other file that the drive has had, once it has a byte; 0 if the connection is broken.
    #[must_use]
    pub fn id(&self) -> u64 {
        let mut writing = lock(&self.writing);
        if writing.send(&self.shared, true).is_err() {
            return 0;
        }
        match writing.link.as_mut().map(|link| link.ask(&Request::WriterState)) {
            Some(Ok(Answer::State { id, .. })) => id,
            _ => 0,
        }
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks: of this data, or of some before it.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        self.shared.expect_whole()?;
        let mut writing = lock(&self.writing);
        if writing.is_committed && !data.is_empty() {
            return Err(is_whole().of(&self.path));
        }
        writing.bytes += data.len() as u64;
        if writing.gathered.len() + data.len() >= GATHER_BYTES {
            writing.gathered.extend_from_slice(data);
            return writing.send(&self.shared, false);
        }
        writing.gathered.extend_from_slice(data);
        self.keep_in_mind(&mut writing);
        Ok(())
    }

    /// Not all of it has arrived.
    fn keep_in_mind(&self, writing: &mut Writing) {
        if !writing.is_unsettled {
            writing.is_unsettled = true;
            lock(&self.shared.unsettled).push(Arc::downgrade(&self.writing));
        }
    }

    /// Writes at `offset`; see [`FileWriter::write_at`](crate::FileWriter::write_at).
    ///
    /// # Errors
    /// As there, or if the connection breaks.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        let bytes = self.bytes();
        expect_end(&self.path, bytes, offset, data.len())?;
        if offset < bytes {
            self.truncate(offset)?;
        }
        self.append(data)
    }

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    /// If it is not so long, the drive fails, or the connection breaks.
    pub fn truncate(&mut self, bytes: u64) -> Result<(), FileError> {
        let mut writing = lock(&self.writing);
        let kept = writing.bytes - writing.gathered.len() as u64;
        if (kept..=writing.bytes).contains(&bytes) {
            writing.gathered.truncate((bytes - kept) as usize);
            writing.bytes = bytes;
            return Ok(());
        }
        writing.confirm(&self.shared, &Request::Truncate { bytes })
    }

    /// What was appended is on its way to the server, and arrives though this process is killed.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks: of this data, or of some before it.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.shared.expect_whole()?;
        let mut writing = lock(&self.writing);
        let is_quiet = writing.unconfirmed + writing.gathered.len() <= UNCONFIRMED_BYTES_MAX;
        writing.send(&self.shared, is_quiet)?;
        self.keep_in_mind(&mut writing);
        Ok(())
    }

    /// What was appended is durable as soon as anything is synced after this; see [`FileWriter::commit`](crate::FileWriter::commit).
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn commit(&mut self) -> Result<(), FileError> {
        self.end_with(&Request::Commit)
    }

    /// All that was appended is the server's; `request` says what it does with it, and a table is whole then.
    fn end_with(&self, request: &Request<'_>) -> Result<(), FileError> {
        let mut writing = lock(&self.writing);
        writing.confirm(&self.shared, request)?;
        writing.is_committed = self.kind == FileKind::Table;
        Ok(())
    }

    /// What was appended is durable, and so is the file's name.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.begin_sync()?.finish()
    }

    /// The first half of a sync; see [`FileWriter::begin_sync`](crate::FileWriter::begin_sync).
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn begin_sync(&mut self) -> Result<ClientSync, FileError> {
        self.end_with(&Request::BeginSync)?;
        Ok(ClientSync { shared: Arc::clone(&self.shared), path: self.path.clone() })
    }

    /// Ends the file: a table is there as a whole from now on.
    ///
    /// # Errors
    /// If there is no room, the drive fails, or the connection breaks.
    pub fn close(self) -> Result<(), FileError> {
        self.end(&Request::Close)
    }

    /// Ends the writer and leaves the file as it is at the server. Of a table that was not synced nothing is left.
    pub fn forget(self) {
        lock(&self.writing).gathered.clear();
        // Whoever forgets a file does not want to know.
        let _ = self.end(&Request::Forget);
    }

    fn end(&self, request: &Request<'_>) -> Result<(), FileError> {
        let mut writing = lock(&self.writing);
        if writing.link.is_none() {
            return Ok(());
        }
        let ended = self.shared.expect_whole().and_then(|()| {
            writing.send(&self.shared, true)?;
            let Some(link) = &mut writing.link else { return Err(ended()) };
            match link.ask(request) {
                Ok(Answer::Done) => Ok(()),
                Ok(Answer::Error(error)) => Err(error),
                Ok(_) => Err(self.shared.unexpected()),
                Err(error) => Err(self.shared.breaks(&error)),
            }
        });
        let link = writing.link.take();
        let mut links = lock(&self.shared.links);
        links.writers -= 1;
        // Its connection does for requests.
        if let Some(link) = link.filter(|_| links.open < REQUESTS_MAX && lock(&self.shared.broken).is_none()) {
            links.open += 1;
            links.idle.push(link);
            self.shared.freed.notify_one();
        }
        ended
    }
}

impl Drop for ClientWriter {
    fn drop(&mut self) {
        // Whoever drops a writer does not want to know.
        let _ = self.end(&Request::Close);
    }
}

/// A sync that waits for the drive.
pub struct ClientSync {
    shared: Arc<Shared>,
    path: String,
}

impl ClientSync {
    /// What had been appended when the sync began is durable.
    ///
    /// # Errors
    /// If the drive fails, or the connection breaks.
    pub fn finish(self) -> Result<(), FileError> {
        self.shared.done(&Request::FinishSync).map_err(|error| error.of(&self.path))
    }
}

/// A file that can be read; see [`FileReader`](crate::FileReader).
pub struct ClientReader {
    shared: Arc<Shared>,
    file: u32,
    kind: FileKind,
}

/// A part of a read, and whose it is.
struct Piece {
    request: usize,
    /// Where in its buffer it goes.
    at: usize,
    part: Part,
}

impl ClientReader {
    fn state(&self) -> Result<(u64, u64), FileError> {
        self.shared.settle();
        self.shared.ask(&Request::ReaderState { file: self.file }, |answer| match answer {
            Answer::State { bytes, id } => Some(Ok((bytes, id))),
            _ => None,
        })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Bytes of the file; 0 if the connection is broken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().map_or(0, |(bytes, _)| bytes)
    }

    /// A number that differs from that of every other file that the drive has had; 0 if the connection is broken.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state().map_or(0, |(_, id)| id)
    }

    /// Reads from `offset` on, as much as fits into `buffer`; less only at the end of the file.
    ///
    /// # Errors
    /// If the medium has lost it, or the connection breaks.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let mut requests = [ReadRequest { offset, buffer, result: Ok(0) }];
        self.read_many(&mut requests);
        let [request] = requests;
        request.result
    }

    /// Reads all of them at a time.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if self.kind == FileKind::Log {
            self.shared.settle();
        }
        let mut pieces: Vec<Piece> = Vec::with_capacity(requests.len());
        for (request, ReadRequest { offset, buffer, result }) in requests.iter_mut().enumerate() {
            *result = Ok(0);
            for at in (0..buffer.len()).step_by(DATA_BYTES_MAX) {
                let Some(offset) = offset.checked_add(at as u64) else { break };
                let bytes = (buffer.len() - at).min(DATA_BYTES_MAX) as u32;
                pieces.push(Piece { request, at, part: Part { offset, bytes } });
            }
        }
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take(PARTS_MAX).take_while(|piece| {
                bytes += piece.part.bytes as usize;
                bytes <= DATA_BYTES_MAX
            });
            let (message, after) = rest.split_at(fitting.count());
            if let Err(error) = self.read_pieces(message, requests) {
                requests.iter_mut().for_each(|request| request.result = Err(error.clone()));
                return;
            }
            rest = after;
        }
    }

    fn read_pieces(&self, pieces: &[Piece], requests: &mut [ReadRequest<'_>]) -> Result<(), FileError> {
        let parts = pieces.iter().map(|piece| piece.part).collect();
        self.shared.ask(&Request::Read { file: self.file, parts }, |answer| {
            let Answer::Data(parts) = answer else { return None };
            let fits = |(part, piece): (&Result<&[u8], FileError>, &Piece)| {
                part.as_ref().map_or(true, |data| data.len() <= piece.part.bytes as usize)
            };
            if parts.len() != pieces.len() || !parts.iter().zip(pieces).all(fits) {
                return None;
            }
            for (part, piece) in parts.into_iter().zip(pieces) {
                let request = &mut requests[piece.request];
                match (part, &mut request.result) {
                    (Err(error), result) => *result = Err(error),
                    // Behind the end of the file there is nothing.
                    (Ok(data), Ok(count)) if *count == piece.at => {
                        request.buffer[piece.at..piece.at + data.len()].copy_from_slice(data);
                        *count += data.len();
                    }
                    (Ok(_), _) => {}
                }
            }
            Some(Ok(()))
        })
    }
}

impl Drop for ClientReader {
    fn drop(&mut self) {
        // If the connection is broken it is closed already.
        let _ = self.shared.done(&Request::CloseReader { file: self.file });
    }
}
