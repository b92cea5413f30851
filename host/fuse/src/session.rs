//! A session: one connection with the kernel, as rules that need neither a device nor a clock.
//!
//! ```text
//!   request bytes ──begin──▶ answered, or Pending ──attempt──▶ answered, or it waits ──poll, attempt──▶ …
//! ```
//!
//! [`Session::begin`] turns a request into an operation of the file system, or answers it. [`Session::attempt`] attempts the operation and turns
//! its reply into an [`Answer`]. A few requests are several operations, one after the other: an open that truncates is a look at the attributes
//! and a change of them.
//!
//! References that an answer gives to the kernel count from the moment in which it is made. Who cannot deliver it takes them back
//! ([`Session::undelivered`]).
//!
//! # What is answered without the file system
//! - `ACCESS`, `FLUSH`, `INTERRUPT` with `ENOSYS`: the kernel checks permissions itself (`default_permissions`), writes its cache before it flushes,
//!   and then sends none of these again. So a request is not interrupted, but ends.
//! - Attributes in the `system.` namespace, those of access control lists among them, with `EOPNOTSUPP`: nothing here would obey them.
//! - `LSEEK` with `ENOSYS`, if the kernel collects writes: it asks for data and holes without writing what it has collected, and would be told of a
//!   hole where it has data. So it takes each file for one without holes.
//! - `TMPFILE` and everything unknown with `ENOSYS`.

use crate::answer::{self, Answer};
use crate::plan::{Then, plan};
use crate::privileges::{self, Privileges};
use crate::references::References;
use crate::request::{Body, FuseRequest, Head};
use crate::wire::{self, init_flag, open_flag};
use openftl_alfs::operation::PAYLOAD_BYTES_MAX;
use openftl_alfs::{Changes, FileKind, FileSystem, FileTime, Inode, Operation, Refusal, Reply, Ticket};
use openftl_core::Time;
use rustix::io::Errno;

/// Bytes of a request, at most: a write with all its payload and its headers.
pub const REQUEST_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + wire::PAGE_BYTES;

/// Requests that the kernel may have under way for its cache: writes of it, and reads ahead.
const BACKGROUND_MAX: u16 = 512;

/// The features that are used if the kernel has them.
const FLAGS: u32 = init_flag::ASYNC_READ
    | init_flag::ATOMIC_O_TRUNC
    | init_flag::EXPORT_SUPPORT
    | init_flag::BIG_WRITES
    | init_flag::DO_READDIRPLUS
    | init_flag::READDIRPLUS_AUTO
    | init_flag::ASYNC_DIO
    | init_flag::WRITEBACK_CACHE
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::CACHE_SYMLINKS
    | init_flag::HANDLE_KILLPRIV_V2;

/// Events of a session.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SessionCounts {
    /// Requests.
    pub requests: u64,
    /// Requests that are none.
    pub malformed: u64,
    /// Requests with an opcode that is not served.
    pub unknown: u64,
    /// Files of which more was forgotten or closed than there was.
    pub unbalanced: u64,
    /// Answers that could not be delivered.
    pub undelivered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// There was no `INIT`.
    New,
    Open,
    /// There was a `DESTROY`.
    Ended,
}

/// One connection with the kernel.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    references: References,
    privileges: Privileges,
    /// The kernel has written bytes of which the file system does not know.
    collects_writes: bool,
    counts: SessionCounts,
}

/// A request that the file system works on. It borrows the bytes of the request.
#[derive(Debug)]
#[must_use = "the kernel waits for the answer"]
pub struct Pending<'a> {
    head: Head,
    operation: Operation<'a>,
    then: Then<'a>,
    /// What follows [`Then::DropPrivileges`].
    behind: Option<(Operation<'a>, Then<'a>)>,
    /// Whether a truncation by an open takes the privileges of the file.
    drops_privileges: bool,
    /// The file, when it has lost its privileges and no reply says so.
    has_lost: Option<Inode>,
    /// Of the operation, once it has been attempted.
    ticket: Option<Ticket>,
}

impl Pending<'_> {
    /// The operation that is to be attempted.
    #[must_use]
    pub fn operation(&self) -> &Operation<'_> {
        &self.operation
    }
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

impl Session {
    /// A session that waits for the kernel's `INIT`.
    #[must_use]
    pub fn new() -> Session {
        let (references, privileges, counts) = Default::default();
        Session { phase: Phase::New, references, privileges, collects_writes: false, counts }
    }

    /// Whether the kernel has opened the connection, and not closed it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// What has happened.
    #[must_use]
    pub fn counts(&self) -> SessionCounts {
        self.counts
    }

    /// Files that the kernel knows, without the root folder.
    #[must_use]
    pub fn files_known(&self) -> usize {
        self.references.files()
    }

    /// Begins a request, which is all that one read of the device returned. `None`: `answer` is the reply, or empty if there is none.
    ///
    /// `clock` is the time of day: a request may set times of a file to it.
    pub fn begin<'a, F: FileSystem + ?Sized>(
        &mut self,
        fs: &mut F,
        clock: FileTime,
        request: &'a [u8],
        answer: &mut Answer,
    ) -> Option<Pending<'a>> {
        answer.clear();
        self.counts.requests += 1;
        let FuseRequest { head, body } = match FuseRequest::parse(request) {
            Ok(request) => request,
            Err(malformed) => {
                self.counts.malformed += 1;
                if let Some(unique) = malformed.unique {
                    answer.refuse(unique, malformed.errno);
                }
                return None;
            }
        };
        match self.at_once(fs, &head, &body, answer) {
            Some(Ok(())) => None,
            Some(Err(errno)) => {
                answer.refuse(head.unique, errno);
                None
            }
            None => match plan(&head, &body, clock) {
                Ok((operation, then)) => Some(self.pending(head, &body, operation, then)),
                Err(errno) => {
                    answer.refuse(head.unique, errno);
                    None
                }
            },
        }
    }

    fn pending<'a>(&self, head: Head, body: &Body<'_>, operation: Operation<'a>, then: Then<'a>) -> Pending<'a> {
        let drops_privileges = self.privileges.are_dropped(&head, body);
        let pending = Pending { head, operation, then, behind: None, drops_privileges, has_lost: None, ticket: None };
        match inode(head.nodeid) {
            // What is opened, or made, has its attributes asked for in any case.
            Ok(inode) if drops_privileges && !matches!(then, Then::Open { .. } | Then::Create { .. }) => Pending {
                operation: Operation::Attributes { inode },
                then: Then::DropPrivileges,
                behind: Some((operation, then)),
                ..pending
            },
            _ => pending,
        }
    }

    /// Attempts a request. Returns whether it is over: then `answer` is the reply.
    pub fn attempt<F: FileSystem + ?Sized>(
        &mut self,
        fs: &mut F,
        now: Time,
        clock: FileTime,
        pending: &mut Pending<'_>,
        answer: &mut Answer,
    ) -> bool {
        loop {
            let ticket = *pending.ticket.get_or_insert_with(|| fs.ticket());
            let Some(result) = fs.attempt(now, clock, ticket, &pending.operation) else { return false };
            pending.ticket = None;
            match self.conclude(fs, pending, result, answer) {
                Ok(Step::Over) => answer.finish(),
                Ok(Step::Next) => continue,
                Err(errno) => answer.refuse(pending.head.unique, errno),
            }
            answer.changed = pending.has_lost;
            return true;
        }
    }

    /// A request will not be attempted again.
    pub fn abandon<F: FileSystem + ?Sized>(&mut self, fs: &mut F, pending: Pending<'_>) {
        if let Some(ticket) = pending.ticket {
            fs.abandon(ticket);
        }
    }

    /// The kernel did not take the answer: its caller is gone. References in it do not count.
    pub fn undelivered<F: FileSystem + ?Sized>(&mut self, fs: &mut F, answer: &mut Answer) {
        self.counts.undelivered += 1;
        for inode in answer.looked_up.drain(..) {
            self.references.forget(fs, inode, 1);
        }
        if let Some(inode) = answer.opened.take() {
            self.references.close(fs, inode);
        }
    }

    /// The connection is over: the kernel knows no file any more.
    pub fn end<F: FileSystem + ?Sized>(&mut self, fs: &mut F) {
        self.phase = Phase::Ended;
        self.references.end(fs);
    }

    /// All of one request, from its bytes to the answer, in virtual time: for tests and fuzzers.
    ///
    /// # Panics
    /// If the file system waits for nothing.
    pub fn exchange<F: FileSystem + ?Sized>(
        &mut self,
        fs: &mut F,
        now: &mut Time,
        clock: FileTime,
        request: &[u8],
        answer: &mut Answer,
    ) {
        let Some(mut pending) = self.begin(fs, clock, request, answer) else { return };
        while !self.attempt(fs, *now, clock, &mut pending, answer) {
            while !fs.poll(*now) {
                *now = fs.next_due().expect("an operation waits for something that is due").max(*now);
            }
        }
    }

    /// Requests that need no operation; `None`: this one does.
    fn at_once<F: FileSystem + ?Sized>(
        &mut self,
        fs: &mut F,
        head: &Head,
        body: &Body<'_>,
        answer: &mut Answer,
    ) -> Option<Result<(), Errno>> {
        let forget = |session: &mut Session, fs: &mut F, nodeid: u64, lookups| {
            let is_known = inode(nodeid).is_ok_and(|inode| session.references.forget(fs, inode, lookups));
            session.counts.unbalanced += u64::from(!is_known);
        };
        match *body {
            Body::Forget { lookups } => {
                forget(self, fs, head.nodeid, lookups);
                return Some(Ok(()));
            }
            Body::BatchForget(items) => {
                items.iter().for_each(|item| forget(self, fs, item.nodeid.get(), item.nlookup.get()));
                return Some(Ok(()));
            }
            Body::Init(init) => return Some(self.init(head, init, answer)),
            _ if self.phase != Phase::Open => return Some(Err(Errno::IO)),
            Body::Destroy => self.end(fs),
            Body::Release | Body::Releasedir => {
                let was_open = inode(head.nodeid).is_ok_and(|inode| self.references.close(fs, inode));
                self.counts.unbalanced += u64::from(!was_open);
            }
            Body::Lseek { .. } if self.collects_writes => return Some(Err(Errno::NOSYS)),
            Body::Access | Body::Flush | Body::Interrupt { .. } | Body::Tmpfile => return Some(Err(Errno::NOSYS)),
            Body::Unknown { .. } => {
                self.counts.unknown += 1;
                return Some(Err(Errno::NOSYS));
            }
            _ => return None,
        }
        answer.start(head.unique);
        Some(Ok(()))
    }

    /// Agrees on a version and on features.
    fn init(&mut self, head: &Head, init: &wire::InitIn, answer: &mut Answer) -> Result<(), Errno> {
        if self.phase != Phase::New {
            return Err(Errno::IO);
        }
        let (major, minor) = (init.major.get(), init.minor.get());
        if major < wire::MAJOR || (major == wire::MAJOR && minor < wire::MINOR_MIN) {
            return Err(Errno::PROTO);
        }
        answer.start(head.unique);
        answer.push(&wire::InitOut {
            major: wire::MAJOR.into(),
            minor: wire::MINOR.min(if major == wire::MAJOR { minor } else { u32::MAX }).into(),
            max_readahead: init.max_readahead,
            flags: (init.flags.get() & FLAGS).into(),
            max_background: BACKGROUND_MAX.into(),
            congestion_threshold: (BACKGROUND_MAX / 4 * 3).into(),
            max_write: (PAYLOAD_BYTES_MAX as u32).into(),
            time_gran: 1.into(),
            max_pages: ((PAYLOAD_BYTES_MAX / wire::PAGE_BYTES) as u16).into(),
            map_alignment: 0.into(),
            flags2: 0.into(),
            unused: Default::default(),
        });
        answer.finish();
        let agreed = init.flags.get() & FLAGS;
        self.privileges = Privileges::agreed(agreed);
        self.collects_writes = agreed & init_flag::WRITEBACK_CACHE != 0;
        // A kernel with a later major version sends its INIT again, with the version of the reply.
        if major == wire::MAJOR {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    /// Turns the result of an operation into the reply, or into the next operation of the request.
    fn conclude<'a, F: FileSystem + ?Sized>(
        &mut self,
        fs: &mut F,
        pending: &mut Pending<'a>,
        result: Result<Reply, Refusal>,
        answer: &mut Answer,
    ) -> Result<Step, Errno> {
        let reply = match (result, pending.then) {
            (Ok(reply), _) => reply,
            (Err(Refusal::NotFound), Then::Lookup) => {
                answer.start(pending.head.unique);
                answer.push(&answer::no_entry());
                return Ok(Step::Over);
            }
            (Err(Refusal::Exists), Then::Create { parent, name, is_exclusive: false, truncates }) => {
                pending.operation = Operation::Lookup { parent, name };
                pending.then = Then::OpenExisting { truncates };
                return Ok(Step::Next);
            }
            (Err(refusal), _) => return Err(errno(refusal)),
        };
        if let (Then::Open { truncates, .. } | Then::OpenExisting { truncates }, Reply::Attributes(found)) =
            (pending.then, &reply)
        {
            let is_entry = matches!(pending.then, Then::OpenExisting { .. });
            check_kind(found.kind, matches!(pending.then, Then::Open { is_directory: true, .. }))?;
            if truncates {
                let mode = privileges::lost_by(found).filter(|_| pending.drops_privileges);
                pending.has_lost = mode.map(|_| found.inode);
                let changes = Changes { mode, size: Some(0), ..Changes::default() };
                pending.operation = Operation::SetAttributes { inode: found.inode, changes };
                pending.then = Then::Truncated { is_entry };
                return Ok(Step::Next);
            }
        }
        if let (Then::DropPrivileges, Reply::Attributes(found)) = (pending.then, &reply) {
            let behind = pending.behind.expect("an operation is behind the loss of privileges");
            let (operation, then) = privileges::drop_before(found, behind);
            if let Then::DropPrivileges = then {
                pending.has_lost = Some(found.inode);
            }
            (pending.operation, pending.then) = (operation, then);
            return Ok(Step::Next);
        }
        answer.start(pending.head.unique);
        match (pending.then, reply) {
            (Then::Done, Reply::Done) => {}
            (Then::Lookup | Then::Entry, Reply::Attributes(file)) => {
                self.references.look_up(fs, file.inode);
                answer.looked_up.push(file.inode);
                answer.push(&answer::entry_out(&file));
            }
            (Then::Attributes, Reply::Attributes(file)) => answer.push(&answer::attr_out(&file)),
            (
                Then::Create { .. } | Then::OpenExisting { .. } | Then::Truncated { is_entry: true },
                Reply::Attributes(file),
            ) => {
                self.references.look_up(fs, file.inode);
                answer.looked_up.push(file.inode);
                answer.push(&answer::entry_out(&file));
                self.open(fs, file.inode, false, answer);
            }
            (Then::Truncated { is_entry: false }, Reply::Attributes(file)) => self.open(fs, file.inode, false, answer),
            (Then::Open { is_directory, .. }, Reply::Attributes(file)) => {
                self.open(fs, file.inode, is_directory, answer);
            }
            (Then::Bytes, Reply::Bytes(bytes)) => answer.push_bytes(&bytes),
            (Then::Xattr { room: 0 }, Reply::Bytes(bytes)) => {
                answer.push(&wire::GetxattrOut { size: (bytes.len() as u32).into(), padding: 0.into() });
            }
            (Then::Xattr { room }, Reply::Bytes(bytes)) => {
                if bytes.len() > room as usize {
                    return Err(Errno::RANGE);
                }
                answer.push_bytes(&bytes);
            }
            (Then::Data, Reply::Data(data)) => {
                answer.push_data(fs, &data);
                fs.give_back(data);
            }
            (Then::Written { bytes }, Reply::Done) => {
                answer.push(&wire::WriteOut { size: bytes.into(), padding: 0.into() });
            }
            (Then::Offset, Reply::Offset(offset)) => answer.push(&wire::LseekOut { offset: offset.into() }),
            (Then::Entries { room, with_attributes }, Reply::Entries(entries)) => {
                answer.push_entries(&entries, with_attributes, room as usize);
                // An empty listing would say that there are no more names.
                if answer.body().is_empty() && !entries.is_empty() {
                    return Err(Errno::INVAL);
                }
                for inode in &answer.looked_up {
                    self.references.look_up(fs, *inode);
                }
            }
            (Then::Room, Reply::Room(room)) => answer.push(&answer::statfs_out(&room)),
            (then, reply) => unreachable!("{:?} is answered with {reply:?}, but is to be {then:?}", pending.operation),
        }
        Ok(Step::Over)
    }

    /// The body of an open's reply. The kernel names the open file by its inode, so its handle says nothing.
    fn open<F: FileSystem + ?Sized>(&mut self, fs: &mut F, inode: Inode, is_directory: bool, answer: &mut Answer) {
        self.references.open(fs, inode);
        answer.opened = Some(inode);
        let caching = if is_directory { open_flag::CACHE_DIR } else { 0 };
        let open_flags = (open_flag::KEEP_CACHE | caching).into();
        answer.push(&wire::OpenOut { fh: u64::from(inode.0).into(), open_flags, padding: 0.into() });
    }
}

/// What becomes of a request after an operation.
enum Step {
    /// The answer is there.
    Over,
    /// Another operation follows.
    Next,
}

/// The file with this number in a request.
pub(crate) fn inode(nodeid: u64) -> Result<Inode, Errno> {
    u32::try_from(nodeid).ok().filter(|number| *number != 0).map(Inode).ok_or(Errno::STALE)
}

fn check_kind(kind: FileKind, is_directory: bool) -> Result<(), Errno> {
    match (kind, is_directory) {
        (FileKind::Directory, true) | (FileKind::Regular, false) => Ok(()),
        (_, true) => Err(Errno::NOTDIR),
        (FileKind::Directory, false) => Err(Errno::ISDIR),
        (_, false) => Err(Errno::NXIO),
    }
}

/// The number of a refusal.
#[must_use]
pub fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::NotFound => Errno::NOENT,
        Refusal::Stale => Errno::STALE,
        Refusal::Exists => Errno::EXIST,
        Refusal::NotADirectory => Errno::NOTDIR,
        Refusal::IsADirectory => Errno::ISDIR,
        Refusal::NotEmpty => Errno::NOTEMPTY,
        Refusal::Invalid => Errno::INVAL,
        Refusal::NotPermitted => Errno::PERM,
        Refusal::NameTooLong => Errno::NAMETOOLONG,
        Refusal::TooManyLinks => Errno::MLINK,
        Refusal::TooBig => Errno::FBIG,
        Refusal::NoRoom => Errno::NOSPC,
        Refusal::ReadOnly => Errno::ROFS,
        Refusal::NoXattr => Errno::NODATA,
        Refusal::XattrTooBig => Errno::TOOBIG,
        Refusal::NoSuchOffset => Errno::NXIO,
        Refusal::Device => Errno::IO,
    }
}
