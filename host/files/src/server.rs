//! Many clients, one drive: a thread for each connection, over the files that they share.
//!
//! ```text
//!   client ── connection ── thread ─┐
//!         └── connection ── thread ─┼── session: readers, locks
//!   client ── connection ── thread ─┼── session                    ──▶ Files
//!                             └ the file that it writes
//! ```
//!
//! What a client does wrong ends its connection and nothing else. When a connection ends, the table that it was writing is given up, and
//! a log file stays with all that was sent. When the last one of a session ends, its readers and locks go.
//!
//! # Bounds
//! | what | bound |
//! |---|---|
//! | connections | [`CONNECTIONS_MAX`]; more are told so and closed |
//! | files that a session has open for reading | [`READERS_MAX`] |
//! | names that a session has locked | [`LOCKS_MAX`] |
//! | files that a connection writes | one |
//! | bytes of a message | [`BODY_BYTES_MAX`](crate::wire::BODY_BYTES_MAX) |
//! | requests of a connection that are carried out | one |
//! | how long a message, or the other side that takes one, is waited for | [`PATIENCE`] |

use crate::stream::{Inbox, ReceiveError, Stream};
use crate::wire::{Answer, DATA_BYTES_MAX, Request, WireError};
use crate::{FileError, FileKind, FileReader, FileWriter, Files, ReadRequest};
use openftl_media::Media;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 256;
/// Files that a session has open for reading.
pub const READERS_MAX: usize = 65_536;
/// Names that a session has locked.
pub const LOCKS_MAX: usize = 1024;
/// How long a message is waited for that has begun, and the other side that does not take one.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a server has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct ServerCounts {
    /// Connections that were taken.
    pub connections: u64,
    /// Connections that were told that there is no room for them, or that the power is off.
    pub turned_away: u64,
    /// Connections that were ended because of what they said.
    pub broken: u64,
    /// Requests.
    pub requests: u64,
}

/// Serves a drive to processes of this machine.
pub struct FileServer<M: Media> {
    shared: Arc<Shared<M>>,
    /// Has the thread that accepts look up.
    wake: Arc<OwnedFd>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared<M: Media> {
    /// None while the power is off.
    files: Mutex<Option<Files<M>>>,
    connections: Mutex<Connections>,
    /// A connection has ended.
    ended: Condvar,
    sessions: Mutex<HashMap<u64, Weak<Session<M>>>>,
    is_ending: AtomicBool,
    chance: RandomState,
    taken: AtomicU64,
    turned_away: AtomicU64,
    broken: AtomicU64,
    requests: AtomicU64,
    under_way: AtomicU64,
}

#[derive(Default)]
struct Connections {
    next: u64,
    streams: HashMap<u64, Stream>,
}

/// What the connections of one client share.
struct Session<M: Media> {
    files: Files<M>,
    next_reader: AtomicU32,
    readers: RwLock<HashMap<u32, Arc<FileReader<M>>>>,
    locks: Mutex<Vec<String>>,
}

impl<M: Media> Drop for Session<M> {
    fn drop(&mut self) {
        for path in self.locks.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It was locked by this session.
            let _ = self.files.unlock(&path);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl<M: Media + Send + 'static> FileServer<M> {
    /// Serves `files` to clients at `listeners`, listening sockets that do not block.
    ///
    /// # Errors
    /// If the process has no thread or file descriptor left.
    pub fn new<L: AsFd + Send + 'static>(listeners: Vec<L>, files: Files<M>) -> io::Result<FileServer<M>> {
        let shared = Arc::new(Shared {
            files: Mutex::new(Some(files)),
            connections: Mutex::default(),
            ended: Condvar::new(),
            sessions: Mutex::default(),
            is_ending: AtomicBool::new(false),
            chance: RandomState::new(),
            taken: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
        });
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (to_accept, woken) = (Arc::clone(&shared), Arc::clone(&wake));
        let accepting = std::thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || to_accept.accept(&listeners, &woken))?;
        Ok(FileServer { shared, wake, accepting: Some(accepting) })
    }

    /// Serves these files from now on, after an [`interrupt`](FileServer::interrupt).
    pub fn serve(&self, files: Files<M>) {
        *lock(&self.shared.files) = Some(files);
    }

    /// Calls `with` on the files, if there are some.
    pub fn with_files<T>(&self, with: impl FnOnce(&Files<M>) -> T) -> Option<T> {
        lock(&self.shared.files).as_ref().map(with)
    }

    /// Connections now, and requests that are being carried out.
    #[must_use]
    pub fn load(&self) -> (u64, u64) {
        (lock(&self.shared.connections).streams.len() as u64, self.shared.under_way.load(Ordering::Relaxed))
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { taken, turned_away, broken, requests, .. } = &*self.shared;
        ServerCounts {
            connections: load(taken),
            turned_away: load(turned_away),
            broken: load(broken),
            requests: load(requests),
        }
    }

    /// Ends all connections at once, as the drive's power goes: no answer leaves any more, and then the drive is stopped with `last`.
    /// Gives the files back, which nobody uses; none if there were none. Clients are turned away until there are some again.
    pub fn interrupt<T>(&self, last: impl FnOnce(&Files<M>) -> T) -> Option<(Files<M>, T)> {
        let files = lock(&self.shared.files).take()?;
        self.shared.end_connections(Stream::end);
        let value = last(&files);
        self.shared.wait_until_alone();
        Some((files, value))
    }

    /// Lets each connection finish what it is doing and ends it. Gives the files back, which nobody uses.
    #[must_use]
    pub fn end(mut self) -> Option<Files<M>> {
        self.stop_accepting();
        let files = lock(&self.shared.files).take();
        self.shared.end_connections(Stream::end_input);
        self.shared.wait_until_alone();
        files
    }
}

impl<M: Media> FileServer<M> {
    fn stop_accepting(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        // Fails only if it has been written to so often that it is readable anyway.
        let _ = rustix::io::write(&*self.wake, &[1; 8]);
        if let Some(accepting) = self.accepting.take() {
            // It has nothing to say.
            let _ = accepting.join();
        }
    }
}

impl<M: Media> Drop for FileServer<M> {
    fn drop(&mut self) {
        self.stop_accepting();
        self.shared.end_connections(Stream::end);
    }
}

impl<M: Media> Shared<M> {
    fn end_connections(&self, how: impl Fn(&Stream)) {
        lock(&self.connections).streams.values().for_each(how);
    }

    fn wait_until_alone(&self) {
        let mut connections = lock(&self.connections);
        while !connections.streams.is_empty() {
            connections = self.ended.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<M: Media + Send + 'static> Shared<M> {
    fn accept<L: AsFd>(self: Arc<Self>, listeners: &[L], wake: &OwnedFd) {
        while !self.is_ending.load(Ordering::Acquire) {
            let mut events: Vec<PollFd<'_>> =
                listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
            events.push(PollFd::new(wake, PollFlags::IN));
            if poll(&mut events, None).is_err_and(|error| error != Errno::INTR) {
                return;
            }
            let called: Vec<bool> = events.iter().map(|event| !event.revents().is_empty()).collect();
            for (listener, _) in listeners.iter().zip(called).filter(|(_, is_called)| *is_called) {
                match accept_with(listener, SocketFlags::CLOEXEC) {
                    Ok(socket) => self.welcome(socket),
                    // Without a descriptor left, a connection that ends leaves one.
                    Err(Errno::MFILE | Errno::NFILE) => self.wait_for_one_to_end(),
                    Err(_) => {}
                }
            }
        }
    }

    fn wait_for_one_to_end(&self) {
        let connections = lock(&self.connections);
        if !connections.streams.is_empty() {
            drop(self.ended.wait_timeout(connections, Duration::from_secs(1)));
        }
    }

    fn welcome(self: &Arc<Self>, socket: OwnedFd) {
        // A Unix socket has no such thing.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let stream = Stream::from(socket);
        if stream.set_patience(PATIENCE).is_err() {
            return;
        }
        // Files and connections under one lock: who ends all connections finds this one, or it finds no files.
        let files = lock(&self.files);
        let Some(files) = files.as_ref() else {
            return self.turn_away(&stream, FileError::Io("the power of the drive is off".to_owned()));
        };
        let mut connections = lock(&self.connections);
        if connections.streams.len() >= CONNECTIONS_MAX {
            drop(connections);
            let what =
                format!("{CONNECTIONS_MAX} connections use the drive, and there is no room for more; close some");
            return self.turn_away(&stream, FileError::Busy(what));
        }
        connections.next += 1;
        let id = connections.next;
        connections.streams.insert(id, stream.clone());
        drop(connections);
        add(&self.taken);
        info!(target: "connection", connection = id, peer = %stream.peer(), protocol = "files", "connection opened");
        let (shared, files) = (Arc::clone(self), files.clone());
        let thread = std::thread::Builder::new().name(format!("client {id}"));
        let begun = thread.spawn(move || {
            let place = Place { shared: Arc::clone(&shared), id };
            Connection::new(&shared, files, stream).run(id);
            drop(place);
        });
        if begun.is_err() {
            lock(&self.connections).streams.remove(&id);
        }
    }

    fn turn_away(&self, stream: &Stream, error: FileError) {
        add(&self.turned_away);
        warn!(target: "connection", peer = %stream.peer(), protocol = "files", reason = %error, "connection refused");
        let mut message = Vec::new();
        Answer::Error(error).write(0, &mut message);
        // Who does not listen is turned away all the same.
        let _ = stream.send(&message);
    }

    /// The session with this number, or a new one.
    fn session(&self, files: &Files<M>, asked: u64) -> Result<(u64, Arc<Session<M>>), FileError> {
        let mut sessions = lock(&self.sessions);
        if asked != 0 {
            let session = sessions.get(&asked).and_then(Weak::upgrade);
            let ended = || FileError::Io("the session has ended; close the drive and open it again".to_owned());
            return session.map(|session| (asked, session)).ok_or_else(ended);
        }
        sessions.retain(|_, session| session.strong_count() > 0);
        // Nobody guesses the number of another's session.
        let number = (1_u64..)
            .map(|count| self.chance.hash_one((self.taken.load(Ordering::Relaxed), count)))
            .find(|number| *number != 0 && !sessions.contains_key(number))
            .expect("there are more numbers than sessions");
        let session = Arc::new(Session {
            files: files.clone(),
            next_reader: AtomicU32::new(1),
            readers: RwLock::default(),
            locks: Mutex::default(),
        });
        sessions.insert(number, Arc::downgrade(&session));
        Ok((number, session))
    }
}

/// The place of a connection; it is free when the thread has ended, however that came.
struct Place<M: Media> {
    shared: Arc<Shared<M>>,
    id: u64,
}

impl<M: Media> Drop for Place<M> {
    fn drop(&mut self) {
        if let Some(stream) = lock(&self.shared.connections).streams.remove(&self.id) {
            info!(target: "connection", connection = self.id, peer = %stream.peer(), protocol = "files", "connection closed");
            stream.end();
        }
        self.shared.ended.notify_all();
    }
}

/// One connection, in its thread.
struct Connection<'s, M: Media> {
    shared: &'s Shared<M>,
    stream: Stream,
    state: State<M>,
    output: Vec<u8>,
}

struct State<M: Media> {
    files: Files<M>,
    session: Option<Arc<Session<M>>>,
    writer: Option<FileWriter<M>>,
    /// Why what was asked quietly was not done.
    failed: Option<FileError>,
    /// What is read, before it is sent.
    data: Vec<u8>,
}

impl<'s, M: Media + Send + 'static> Connection<'s, M> {
    fn new(shared: &'s Shared<M>, files: Files<M>, stream: Stream) -> Connection<'s, M> {
        let state = State { files, session: None, writer: None, failed: None, data: Vec::new() };
        Connection { shared, stream, state, output: Vec::new() }
    }

    fn run(mut self, id: u64) {
        let mut inbox = Inbox::new(self.stream.clone());
        if let Err(error) = self.listen(&mut inbox) {
            add(&self.shared.broken);
            let peer = self.stream.peer();
            warn!(target: "connection", connection = id, %peer, protocol = "files", reason = %error, "the client broke a rule");
            self.output.clear();
            Answer::Error(FileError::Invalid(error.to_string())).write(0, &mut self.output);
            // Whoever it is may not understand it.
            let _ = self.stream.send(&self.output);
        }
        if let Some(writer) = self.state.writer.take() {
            match writer.kind() {
                FileKind::Table => writer.forget(),
                // What was sent is its; where the power is off, nothing is done.
                FileKind::Log | FileKind::Folder => drop(writer.close()),
            }
        }
    }

    fn listen(&mut self, inbox: &mut Inbox) -> Result<(), WireError> {
        loop {
            // Who says nothing at all is not waited for.
            let received = if self.state.session.is_none() { inbox.receive_now() } else { inbox.receive() };
            let (head, body) = match received {
                Ok(message) => message,
                Err(ReceiveError::Wire(error)) => return Err(error),
                Err(ReceiveError::Closed | ReceiveError::Broken(_)) => return Ok(()),
            };
            let request = Request::parse(head.kind.get(), body)?;
            let is_quiet = request.is_quiet();
            add(&self.shared.requests);
            add(&self.shared.under_way);
            self.output.clear();
            let result = self.state.carry_out(self.shared, &request, head.number.get(), &mut self.output);
            self.shared.under_way.fetch_sub(1, Ordering::Relaxed);
            let is_over = result.is_err() && self.state.session.is_none();
            match result {
                Err(error) if is_quiet => {
                    self.state.failed.get_or_insert(error);
                    self.output.clear();
                }
                Err(error) => {
                    self.output.clear();
                    Answer::Error(error).write(head.number.get(), &mut self.output);
                }
                Ok(()) => {}
            }
            if self.stream.send(&self.output).is_err() || is_over {
                return Ok(());
            }
        }
    }
}

impl<M: Media + Send + 'static> State<M> {
    /// Does what is asked and writes the answer, if there is to be one.
    fn carry_out(
        &mut self,
        shared: &Shared<M>,
        request: &Request<'_>,
        number: u64,
        output: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        if let Request::Hello { session } = request {
            if self.session.is_some() {
                return Err(FileError::Invalid("the session has begun already".to_owned()));
            }
            let (session, shared) = shared.session(&self.files, *session)?;
            self.session = Some(shared);
            Answer::Welcome { session }.write(number, output);
            return Ok(());
        }
        let Some(session) = &self.session else {
            return Err(FileError::Invalid("the connection does not begin with a session".to_owned()));
        };
        let files = &self.files;
        match request {
            Request::Hello { .. } => unreachable!("it was answered above"),
            Request::Space => {
                let (free, all) = files.space();
                Answer::Space { free, all }.write(number, output);
            }
            Request::Statistics => {
                let text =
                    serde_json::to_string(&files.statistics()).map_err(|error| FileError::Io(error.to_string()))?;
                Answer::Text(&text).write(number, output);
            }
            Request::Attributes { path } => Answer::Attributes(files.attributes(path)?).write(number, output),
            Request::List { folder, after } => list(files, folder, after)?.answer(number, output),
            Request::Delete { path } => done(files.delete(path), number, output)?,
            Request::Rename { from, to } => done(files.rename(from, to), number, output)?,
            Request::MakeFolder { path } => done(files.make_folder(path), number, output)?,
            Request::DeleteFolder { path } => done(files.delete_folder(path), number, output)?,
            Request::SyncNames { folder } => done(files.sync_names(folder), number, output)?,
            Request::Lock { path } => done(session.lock(path), number, output)?,
            Request::Unlock { path } => done(session.unlock(path), number, output)?,
            Request::OpenRead { path } => {
                let (file, kind) = session.open_read(path)?;
                Answer::Opened { file, kind }.write(number, output);
            }
            Request::Read { file, parts } => {
                let reader = session.reader(*file)?;
                self.data.resize(parts.iter().map(|part| part.bytes as usize).sum(), 0);
                let (mut rest, mut requests) = (&mut self.data[..], Vec::with_capacity(parts.len()));
                for part in parts {
                    let (buffer, after) = rest.split_at_mut(part.bytes as usize);
                    requests.push(ReadRequest { offset: part.offset, buffer, result: Ok(0) });
                    rest = after;
                }
                reader.read_many(&mut requests);
                let parts = requests.into_iter().map(|ReadRequest { buffer, result, .. }| match result {
                    Ok(count) => Ok(&buffer[..count]),
                    Err(error) => Err(error),
                });
                Answer::Data(parts.collect()).write(number, output);
            }
            Request::ReaderState { file } => {
                let reader = session.reader(*file)?;
                Answer::State { bytes: reader.bytes(), id: reader.id() }.write(number, output);
            }
            Request::CloseReader { file } => {
                session.close_reader(*file)?;
                Answer::Done.write(number, output);
            }
            Request::FinishSync => done(files.finish_sync(), number, output)?,
            Request::Create { path, kind } => {
                self.expect_no_writer()?;
                if *kind == FileKind::Folder {
                    return Err(FileError::Invalid(format!("{path}: a folder is made by its own request")));
                }
                self.begin(self.files.create(path, *kind)?, number, output);
            }
            Request::AppendTo { path } => {
                self.expect_no_writer()?;
                self.begin(self.files.append_to(path)?, number, output);
            }
            Request::Hint { .. }
            | Request::Append { .. }
            | Request::Truncate { .. }
            | Request::WriterState
            | Request::Commit
            | Request::BeginSync
            | Request::Close
            | Request::Forget => self.write(request, number, output)?,
        }
        Ok(())
    }

    fn expect_no_writer(&self) -> Result<(), FileError> {
        match self.writer {
            None => Ok(()),
            Some(_) => Err(FileError::Invalid("the connection writes a file already".to_owned())),
        }
    }

    fn begin(&mut self, writer: FileWriter<M>, number: u64, output: &mut Vec<u8>) {
        Answer::State { bytes: writer.bytes(), id: writer.id() }.write(number, output);
        self.writer = Some(writer);
        self.failed = None;
    }

    /// What is asked of the file that is written.
    fn write(&mut self, request: &Request<'_>, number: u64, output: &mut Vec<u8>) -> Result<(), FileError> {
        let Some(writer) = &mut self.writer else {
            return Err(FileError::Invalid("the connection writes no file".to_owned()));
        };
        if let Request::Forget = request {
            self.writer.take().expect("it is there").forget();
            Answer::Done.write(number, output);
            return Ok(());
        }
        if let Request::Close = request {
            let mut writer = self.writer.take().expect("it is there");
            let Some(failed) = self.failed.take() else { return done(writer.close(), number, output) };
            // A part of it is missing, so that a table does not come to be.
            writer.fail();
            drop(writer.close());
            return Err(failed);
        }
        // What failed before is told once, and nothing is done behind it until then.
        if self.failed.is_some() {
            if request.is_quiet() {
                return Ok(());
            }
            if *request != Request::WriterState {
                return Err(self.failed.take().expect("it is there"));
            }
        }
        match request {
            Request::Hint { bytes, lifetime } => {
                writer.hint_size(*bytes);
                writer.hint_lifetime(*lifetime);
            }
            Request::Append { data, .. } => writer.append(data)?,
            Request::Truncate { bytes } => writer.truncate(*bytes)?,
            Request::Commit => writer.commit()?,
            Request::BeginSync => drop(writer.begin_sync()?),
            _ => {}
        }
        if !request.is_quiet() {
            Answer::State { bytes: writer.bytes(), id: writer.id() }.write(number, output);
        }
        Ok(())
    }
}

fn done(result: Result<(), FileError>, number: u64, output: &mut Vec<u8>) -> Result<(), FileError> {
    result.map(|()| Answer::Done.write(number, output))
}

/// Names that fit into one answer.
struct Listed {
    names: Vec<(String, crate::Attributes)>,
    has_more: bool,
}

fn list<M: Media>(files: &Files<M>, folder: &str, after: &str) -> Result<Listed, FileError> {
    let mut names = files.list(folder)?;
    names.retain(|(name, _)| name.as_str() > after);
    let mut bytes = 0;
    let fitting = names.iter().take_while(|(name, _)| {
        bytes += name.len() + 32;
        bytes <= DATA_BYTES_MAX
    });
    let count = fitting.count();
    let has_more = count < names.len();
    names.truncate(count);
    Ok(Listed { names, has_more })
}

impl Listed {
    fn answer(&self, number: u64, output: &mut Vec<u8>) {
        let names = self.names.iter().map(|(name, attributes)| (name.as_str(), *attributes)).collect();
        Answer::Names { has_more: self.has_more, names }.write(number, output);
    }
}

impl<M: Media> Session<M> {
    fn open_read(&self, path: &str) -> Result<(u32, FileKind), FileError> {
        let reader = self.files.open_read(path)?;
        let kind = reader.kind();
        let mut readers = self.readers.write().unwrap_or_else(PoisonError::into_inner);
        if readers.len() >= READERS_MAX {
            return Err(FileError::Busy(format!("{READERS_MAX} files are open; close some")));
        }
        let mut file = self.next_reader.fetch_add(1, Ordering::Relaxed);
        while readers.contains_key(&file) {
            file = self.next_reader.fetch_add(1, Ordering::Relaxed);
        }
        readers.insert(file, Arc::new(reader));
        Ok((file, kind))
    }

    fn reader(&self, file: u32) -> Result<Arc<FileReader<M>>, FileError> {
        let readers = self.readers.read().unwrap_or_else(PoisonError::into_inner);
        let reader = readers.get(&file).map(Arc::clone);
        reader.ok_or_else(|| FileError::Invalid(format!("file {file} is not open")))
    }

    fn close_reader(&self, file: u32) -> Result<(), FileError> {
        let reader = self.readers.write().unwrap_or_else(PoisonError::into_inner).remove(&file);
        reader.map(drop).ok_or_else(|| FileError::Invalid(format!("file {file} is not open")))
    }

    fn lock(&self, path: &str) -> Result<(), FileError> {
        let mut locks = lock(&self.locks);
        if locks.len() >= LOCKS_MAX {
            return Err(FileError::Busy(format!("{LOCKS_MAX} names are locked; unlock some")));
        }
        self.files.lock(path)?;
        locks.push(crate::path::normal(path)?);
        Ok(())
    }

    fn unlock(&self, path: &str) -> Result<(), FileError> {
        let path = crate::path::normal(path)?;
        let mut locks = lock(&self.locks);
        let Some(at) = locks.iter().position(|locked| *locked == path) else {
            return Err(FileError::Invalid(format!("{path} is not locked")));
        };
        self.files.unlock(&path)?;
        locks.swap_remove(at);
        Ok(())
    }
}
