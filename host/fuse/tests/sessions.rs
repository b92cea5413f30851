//! A session with a host that speaks to it as the kernel does.

use crate::memory::Memory;
use openftl_alfs::{FileTime, Operation};
use openftl_core::{Nanos, Time};
use openftl_fuse::wire::{self, init_flag, opcode, setattr_flag};
use openftl_fuse::{Answer, Session};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The time of day of all tests here.
pub const CLOCK: FileTime = FileTime { seconds: 1000, nanoseconds: 5 };

const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();

/// The bytes of a layout.
pub fn bytes_of<T: IntoBytes + Immutable>(layout: &T) -> Vec<u8> {
    layout.as_bytes().to_vec()
}

/// A request of user and group 1000.
pub fn request(code: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let head = wire::InHeader {
        len: ((size_of::<wire::InHeader>() + body.len()) as u32).into(),
        opcode: code.into(),
        unique: 4.into(),
        nodeid: nodeid.into(),
        uid: 1000.into(),
        gid: 1000.into(),
        pid: 42.into(),
        total_extlen: 0.into(),
        padding: 0.into(),
    };
    [head.as_bytes(), body].concat()
}

/// The other end of a session.
pub struct Host {
    pub fs: Memory,
    pub session: Session,
    pub answer: Answer,
    pub now: Time,
}

impl Host {
    pub fn unopened(fs: Memory) -> Host {
        Host { fs, session: Session::new(), answer: Answer::default(), now: Time::ZERO }
    }

    pub fn new(fs: Memory) -> Host {
        Host::of_kernel(fs, u32::MAX)
    }

    /// The kernel offers these features.
    pub fn of_kernel(fs: Memory, flags: u32) -> Host {
        let mut host = Host::unopened(fs);
        assert_eq!(host.errno(opcode::INIT, 0, &init(7, 38, flags)), None);
        host
    }

    /// A reply with its header.
    pub fn raw(&mut self, request: &[u8]) -> Vec<u8> {
        self.session.exchange(&mut self.fs, &mut self.now, CLOCK, request, &mut self.answer);
        let bytes = self.answer.bytes();
        if let Ok((head, _)) = wire::OutHeader::read_from_prefix(bytes) {
            assert_eq!(head.len.get() as usize, bytes.len());
        }
        bytes.to_vec()
    }

    pub fn raw_errno(&mut self, request: &[u8]) -> Option<Errno> {
        self.raw(request);
        self.answer.errno()
    }

    pub fn errno(&mut self, code: u32, nodeid: u64, body: &[u8]) -> Option<Errno> {
        self.raw_errno(&request(code, nodeid, body))
    }

    /// The body of a reply without an error.
    pub fn ask(&mut self, code: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
        assert_eq!(self.errno(code, nodeid, body), None, "opcode {code}");
        self.answer.body().to_vec()
    }

    pub fn layout<T: FromBytes>(&mut self, code: u32, nodeid: u64, body: &[u8]) -> T {
        T::read_from_prefix(&self.ask(code, nodeid, body)).expect("a body of this size").0
    }

    pub fn make(&mut self, name: &str, mode: u32) -> u64 {
        let head = wire::MknodIn { mode: mode.into(), rdev: 0.into(), umask: 0.into(), padding: 0.into() };
        let body = [head.as_bytes(), name.as_bytes(), &[0]].concat();
        self.layout::<wire::EntryOut>(opcode::MKNOD, 1, &body).nodeid.get()
    }

    fn create(&mut self, name: &str, flags: u32) -> Vec<u8> {
        let head =
            wire::CreateIn { flags: flags.into(), mode: 0o100_644.into(), umask: 0.into(), open_flags: 0.into() };
        self.raw(&request(opcode::CREATE, 1, &[head.as_bytes(), name.as_bytes(), &[0]].concat()))
    }

    pub fn write(&mut self, nodeid: u64, offset: u64, data: &[u8]) -> u32 {
        let body = [&write_in(offset, data.len() as u32), data].concat();
        self.layout::<wire::WriteOut>(opcode::WRITE, nodeid, &body).size.get()
    }

    fn read(&mut self, nodeid: u64, offset: u64, size: u32) -> Vec<u8> {
        self.ask(opcode::READ, nodeid, &read_in(offset, size))
    }

    pub fn size(&mut self, nodeid: u64) -> u64 {
        self.layout::<wire::AttrOut>(opcode::GETATTR, nodeid, &[0; 16]).attr.size.get()
    }

    fn forget(&mut self, nodeid: u64, lookups: u64) {
        let body = bytes_of(&wire::ForgetIn { nlookup: lookups.into() });
        assert!(self.raw(&request(opcode::FORGET, nodeid, &body)).is_empty());
    }

    pub fn open(&mut self, nodeid: u64, flags: u32) -> wire::OpenOut {
        self.layout(opcode::OPEN, nodeid, &bytes_of(&wire::OpenIn { flags: flags.into(), open_flags: 0.into() }))
    }

    pub fn setattr(&mut self, nodeid: u64, change: impl FnOnce(&mut wire::SetattrIn)) -> wire::Attr {
        let mut setattr = wire::SetattrIn::read_from_bytes(&[0; 88]).expect("88 bytes");
        change(&mut setattr);
        self.layout::<wire::AttrOut>(opcode::SETATTR, nodeid, setattr.as_bytes()).attr
    }
}

fn init(major: u32, minor: u32, flags: u32) -> Vec<u8> {
    bytes_of(&wire::InitIn {
        major: major.into(),
        minor: minor.into(),
        max_readahead: (128 << 10).into(),
        flags: flags.into(),
    })
}

fn write_in(offset: u64, size: u32) -> Vec<u8> {
    bytes_of(&wire::WriteIn {
        fh: 0.into(),
        offset: offset.into(),
        size: size.into(),
        write_flags: 0.into(),
        lock_owner: 0.into(),
        flags: 0.into(),
        padding: 0.into(),
    })
}

fn read_in(offset: u64, size: u32) -> Vec<u8> {
    write_in(offset, size)
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn host() -> Host {
    Host::new(Memory::new(Nanos::ZERO))
}

#[test]
fn init_comes_first_and_once() {
    let mut host = Host::unopened(Memory::new(Nanos::ZERO));
    assert_eq!(host.errno(opcode::GETATTR, 1, &[0; 16]), Some(Errno::IO));
    // Too old.
    assert_eq!(host.errno(opcode::INIT, 0, &init(6, 99, u32::MAX)), Some(Errno::PROTO));
    assert_eq!(host.errno(opcode::INIT, 0, &init(7, 30, u32::MAX)), Some(Errno::PROTO));
    // A later major version is told ours, and comes again with it.
    let out: wire::InitOut = host.layout(opcode::INIT, 0, &init(8, 0, u32::MAX));
    assert_eq!((out.major.get(), host.session.is_open()), (7, false));
    let out: wire::InitOut = host.layout(opcode::INIT, 0, &init(7, 31, u32::MAX));
    assert_eq!((out.minor.get(), host.session.is_open()), (31, true));
    let flags = out.flags.get();
    assert_ne!(flags & init_flag::WRITEBACK_CACHE, 0);
    // FUSE_POSIX_LOCKS, FUSE_DONT_MASK, FUSE_FLOCK_LOCKS, FUSE_HANDLE_KILLPRIV.
    assert_eq!(flags & (1 << 1 | 1 << 6 | 1 << 10 | 1 << 19), 0);
    assert_eq!(host.errno(opcode::INIT, 0, &init(7, 31, u32::MAX)), Some(Errno::IO));
    assert_eq!(host.errno(opcode::DESTROY, 0, b""), None);
    assert_eq!(host.errno(opcode::STATFS, 1, b""), Some(Errno::IO));
}

#[test]
fn written_bytes_are_read_across_blocks() {
    let mut host = Host::new(Memory::new(Nanos::from_micros(80)));
    let file = host.make("f", 0o100_600);
    let data: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(host.write(file, 10, &data), 20_000);
    assert_eq!(host.read(file, 10, 20_000), data);
    assert_eq!(host.read(file, 20_000, 1 << 20), data[19_990..]);
    assert!(host.read(file, 1 << 40, 4096).is_empty());
    assert_eq!(host.now, Time(240_000), "each read took its time");
    assert_eq!(host.fs.open_reads(), 0);
    assert_eq!(host.errno(opcode::READ, file, &read_in(0, (1 << 20) + 1)), Some(Errno::INVAL));
    assert_eq!(host.errno(opcode::READ, file, &read_in(u64::MAX, 2)), Some(Errno::INVAL));
}

#[test]
fn payload_of_a_write_is_not_copied() {
    let mut host = host();
    let file = host.make("f", 0o100_600);
    let request = request(opcode::WRITE, file, &[&write_in(0, 3)[..], b"abc"].concat());
    let pending = host.session.begin(&mut host.fs, CLOCK, &request, &mut host.answer).expect("an operation");
    let Operation::Write { data, .. } = *pending.operation() else { panic!("a write") };
    assert!(std::ptr::eq(data, &request[80..]));
    host.session.abandon(&mut host.fs, pending);
}

#[test]
fn missing_name_is_an_entry_that_may_be_remembered() {
    let mut host = host();
    let entry: wire::EntryOut = host.layout(opcode::LOOKUP, 1, &text("none"));
    assert_eq!(entry.nodeid.get(), 0);
    assert!(entry.entry_valid.get() > 1000);
    assert_eq!(host.fs.holds(), 0);
}

#[test]
fn file_without_a_name_stays_until_it_is_forgotten_and_closed() {
    let mut host = host();
    let file = host.make("f", 0o100_600);
    host.write(file, 0, b"abc");
    host.ask(opcode::LOOKUP, 1, &text("f"));
    host.open(file, 0);
    host.ask(opcode::UNLINK, 1, &text("f"));
    host.forget(file, 1);
    assert_eq!(host.read(file, 0, 9), b"abc");
    // One too many, and the open file is still there.
    host.forget(file, 2);
    assert_eq!(host.session.counts().unbalanced, 1);
    assert_eq!(host.read(file, 0, 9), b"abc");
    host.ask(opcode::RELEASE, file, &[0; 24]);
    assert_eq!(host.fs.files(), 1);
    assert_eq!(host.errno(opcode::GETATTR, file, &[0; 16]), Some(Errno::STALE));
    // Closed and forgotten once more than there was.
    host.ask(opcode::RELEASE, file, &[0; 24]);
    host.forget(file, 1);
    assert_eq!(host.session.counts().unbalanced, 3);
}

#[test]
fn root_is_never_released() {
    let mut host = host();
    host.ask(opcode::LOOKUP, 1, &text("."));
    host.ask(opcode::OPENDIR, 1, &[0; 8]);
    host.forget(1, 1000);
    host.ask(opcode::RELEASEDIR, 1, &[0; 24]);
    host.ask(opcode::RELEASEDIR, 1, &[0; 24]);
    host.ask(opcode::GETATTR, 1, &[0; 16]);
    assert_eq!((host.fs.holds(), host.session.counts().unbalanced), (0, 0));
}

#[test]
fn batch_of_forgets_releases_each() {
    let mut host = host();
    let files = [host.make("a", 0o100_600), host.make("b", 0o100_600)];
    let mut body = bytes_of(&wire::BatchForgetIn { count: 3.into(), dummy: 0.into() });
    for file in [files[0], files[1], u64::MAX] {
        body.extend(bytes_of(&wire::ForgetOne { nodeid: file.into(), nlookup: 1.into() }));
    }
    assert!(host.raw(&request(opcode::BATCH_FORGET, 0, &body)).is_empty());
    assert_eq!((host.fs.holds(), host.session.files_known(), host.session.counts().unbalanced), (0, 0, 1));
}

#[test]
fn answer_that_is_not_delivered_leaves_no_reference() {
    let mut host = host();
    host.create("f", 0);
    assert_eq!(host.fs.holds(), 2);
    host.session.undelivered(&mut host.fs, &mut host.answer);
    assert_eq!((host.fs.holds(), host.fs.files()), (0, 2));
}

#[test]
fn end_of_the_connection_releases_everything() {
    let mut host = host();
    let file = host.make("f", 0o100_600);
    host.open(file, 0);
    host.ask(opcode::UNLINK, 1, &text("f"));
    host.session.end(&mut host.fs);
    assert_eq!((host.fs.holds(), host.fs.files(), host.session.files_known()), (0, 1, 0));
}

#[test]
fn create_opens_what_is_there_unless_it_is_exclusive() {
    let mut host = host();
    let file = host.make("f", 0o106_755);
    host.write(file, 0, b"abc");
    host.create("f", O_EXCL);
    assert_eq!(host.answer.errno(), Some(Errno::EXIST));
    host.create("f", 0);
    assert_eq!(host.answer.body().len(), size_of::<wire::EntryOut>() + size_of::<wire::OpenOut>());
    assert_eq!(host.size(file), 3);
    host.create("f", O_TRUNC);
    let entry = wire::EntryOut::read_from_prefix(host.answer.body()).expect("an entry").0;
    assert_eq!((entry.nodeid.get(), entry.attr.size.get(), entry.attr.mode.get()), (file, 0, 0o106_755));
    assert_eq!(host.fs.holds(), 5);
}

#[test]
fn only_files_are_opened_as_files_and_folders_as_folders() {
    let mut host = host();
    let (file, pipe) = (host.make("f", 0o100_644), host.make("p", 0o010_644));
    assert_eq!(host.errno(opcode::OPEN, 1, &[0; 8]), Some(Errno::ISDIR));
    assert_eq!(host.errno(opcode::OPEN, pipe, &[0; 8]), Some(Errno::NXIO));
    assert_eq!(host.errno(opcode::OPENDIR, file, &[0; 8]), Some(Errno::NOTDIR));
    assert_eq!(host.errno(opcode::OPEN, 99, &[0; 8]), Some(Errno::STALE));
    let out: wire::OpenOut = host.layout(opcode::OPENDIR, 1, &[0; 8]);
    assert_eq!(out.open_flags.get(), 2 | 8);
}

#[test]
fn setattr_sets_given_times_and_the_present() {
    let mut host = host();
    let file = host.make("f", 0o100_644);
    let attr = host.setattr(file, |setattr| {
        setattr.valid = (setattr_flag::ATIME | setattr_flag::MTIME | setattr_flag::CTIME).into();
        setattr.atime = (-5_i64).cast_unsigned().into();
        setattr.mtime = 6.into();
        setattr.mtimensec = 999_999_999.into();
        setattr.ctime = 7.into();
    });
    assert_eq!(attr.atime.get().cast_signed(), -5);
    assert_eq!((attr.mtime.get(), attr.mtimensec.get(), attr.ctime.get()), (6, 999_999_999, 7));
    let attr = host.setattr(file, |setattr| {
        setattr.valid = (setattr_flag::ATIME | setattr_flag::ATIME_NOW | setattr_flag::MODE).into();
        setattr.mode = 0o100_4755.into();
    });
    assert_eq!((attr.atime.get(), attr.atimensec.get(), attr.ctime.get()), (1000, 5, 1000));
    assert_eq!(attr.mode.get(), 0o100_755 | (0o100_4755 & 0o7000));
    let mut bad = wire::SetattrIn::read_from_bytes(&[0; 88]).expect("88 bytes");
    bad.valid = setattr_flag::ATIME.into();
    bad.atimensec = 1_000_000_000.into();
    assert_eq!(host.errno(opcode::SETATTR, file, bad.as_bytes()), Some(Errno::INVAL));
    bad.valid = setattr_flag::SIZE.into();
    bad.size = u64::MAX.into();
    assert_eq!(host.errno(opcode::SETATTR, file, bad.as_bytes()), Some(Errno::FBIG));
}

#[test]
fn extended_attributes_tell_their_length_and_refuse_a_small_buffer() {
    let mut host = host();
    let file = host.make("f", 0o100_644);
    let get = |size: u32, name: &str| {
        [bytes_of(&wire::GetxattrIn { size: size.into(), padding: 0.into() }), text(name)].concat()
    };
    let set = |flags: u32, name: &str, value: &[u8]| {
        let head = wire::SetxattrIn { size: (value.len() as u32).into(), flags: flags.into() };
        [bytes_of(&head), text(name), value.to_vec()].concat()
    };
    assert_eq!(host.errno(opcode::GETXATTR, file, &get(0, "user.a")), Some(Errno::NODATA));
    host.ask(opcode::SETXATTR, file, &set(1, "user.a", b"val\0ue"));
    assert_eq!(host.errno(opcode::SETXATTR, file, &set(1, "user.a", b"")), Some(Errno::EXIST));
    assert_eq!(host.errno(opcode::SETXATTR, file, &set(2, "user.b", b"")), Some(Errno::NODATA));
    assert_eq!(host.errno(opcode::SETXATTR, file, &set(3, "user.b", b"")), Some(Errno::INVAL));
    host.ask(opcode::SETXATTR, file, &set(0, "user.bc", b""));
    assert_eq!(host.layout::<wire::GetxattrOut>(opcode::GETXATTR, file, &get(0, "user.a")).size.get(), 6);
    assert_eq!(host.errno(opcode::GETXATTR, file, &get(5, "user.a")), Some(Errno::RANGE));
    assert_eq!(host.ask(opcode::GETXATTR, file, &get(6, "user.a")), b"val\0ue");
    let list = |size: u32| bytes_of(&wire::GetxattrIn { size: size.into(), padding: 0.into() });
    assert_eq!(host.layout::<wire::GetxattrOut>(opcode::LISTXATTR, file, &list(0)).size.get(), 15);
    assert_eq!(host.errno(opcode::LISTXATTR, file, &list(14)), Some(Errno::RANGE));
    assert_eq!(host.ask(opcode::LISTXATTR, file, &list(99)), b"user.a\0user.bc\0");
    host.ask(opcode::REMOVEXATTR, file, &text("user.a"));
    assert_eq!(host.errno(opcode::REMOVEXATTR, file, &text("user.a")), Some(Errno::NODATA));
    assert_eq!(host.errno(opcode::SETXATTR, file, &set(0, "system.posix_acl_access", b"")), Some(Errno::OPNOTSUPP));
}

/// Names of a listing with their cookies.
fn names(body: &[u8], with_attributes: bool) -> Vec<(String, u64, u64)> {
    let mut rest = body;
    let mut names = Vec::new();
    while !rest.is_empty() {
        let lead = if with_attributes { size_of::<wire::EntryOut>() } else { 0 };
        let nodeid =
            if with_attributes { wire::EntryOut::read_from_prefix(rest).expect("an entry").0.nodeid.get() } else { 0 };
        let (head, after) = wire::Dirent::read_from_prefix(&rest[lead..]).expect("a name");
        let name = &after[..head.namelen.get() as usize];
        names.push((String::from_utf8(name.to_vec()).expect("text"), head.off.get(), nodeid));
        rest = &rest[(lead + 24 + name.len()).next_multiple_of(8)..];
    }
    names
}

#[test]
fn listings_go_on_behind_a_cookie_and_count_what_carries_attributes() {
    for with_attributes in [false, true] {
        let code = if with_attributes { opcode::READDIRPLUS } else { opcode::READDIR };
        let mut host = host();
        let wanted: Vec<String> = (0..500).map(|number| format!("{number}-{}", "x".repeat(number % 40))).collect();
        for name in &wanted {
            let file = host.make(name, 0o100_644);
            host.forget(file, 1);
        }
        let (mut after, mut found, mut counted) = (0, Vec::new(), 0);
        loop {
            let body = host.ask(code, 1, &read_in(after, 4096));
            assert!(body.len() <= 4096);
            let Some(last) = names(&body, with_attributes).last().cloned() else { break };
            after = last.1;
            for (name, _, nodeid) in names(&body, with_attributes) {
                assert!(nodeid == 0 || (name != "." && name != ".."), "these carry no attributes");
                counted += u64::from(nodeid != 0);
                found.push(name);
            }
        }
        assert_eq!(found[..2], [".", ".."]);
        assert_eq!(found[2..], wanted);
        assert_eq!(counted, if with_attributes { 500 } else { 0 });
        assert_eq!(host.fs.holds(), counted);
        // A buffer without room for one name.
        assert_eq!(host.errno(code, 1, &read_in(after - 1, 8)), Some(Errno::INVAL));
    }
}

#[test]
fn rename_link_and_folders_answer_as_they_should() {
    let mut host = host();
    let rename = |flags: u32, from: &str, to: &str| {
        let head = wire::Rename2In { newdir: 1.into(), flags: flags.into(), padding: 0.into() };
        [bytes_of(&head), text(from), text(to)].concat()
    };
    let file = host.make("a", 0o100_644);
    let link = |name: &str| [bytes_of(&wire::LinkIn { oldnodeid: file.into() }), text(name)].concat();
    let entry: wire::EntryOut = host.layout(opcode::LINK, 1, &link("b"));
    assert_eq!((entry.nodeid.get(), entry.attr.nlink.get()), (file, 2));
    assert_eq!(host.errno(opcode::RENAME2, 1, &rename(1, "a", "b")), Some(Errno::EXIST));
    assert_eq!(host.errno(opcode::RENAME2, 1, &rename(2, "a", "c")), Some(Errno::NOENT));
    assert_eq!(host.errno(opcode::RENAME2, 1, &rename(4, "a", "c")), Some(Errno::INVAL));
    host.ask(opcode::RENAME2, 1, &rename(0, "a", "c"));
    let folder: wire::EntryOut = host.layout(
        opcode::MKDIR,
        1,
        &[bytes_of(&wire::MkdirIn { mode: 0o1755.into(), umask: 0.into() }), text("d")].concat(),
    );
    assert_eq!(folder.attr.mode.get(), 0o041_755);
    assert_eq!(host.errno(opcode::UNLINK, 1, &text("d")), Some(Errno::ISDIR));
    assert_eq!(host.errno(opcode::RMDIR, 1, &text("c")), Some(Errno::NOTDIR));
    host.ask(opcode::RMDIR, 1, &text("d"));
    let link: wire::EntryOut = host.layout(opcode::SYMLINK, 1, &[text("s"), text("some/where")].concat());
    assert_eq!(link.attr.mode.get(), 0o120_777);
    assert_eq!(host.ask(opcode::READLINK, link.nodeid.get(), b""), b"some/where");
    assert_eq!(host.errno(opcode::READLINK, file, b""), Some(Errno::INVAL));
}

#[test]
fn allocations_seeks_room_and_syncs_are_passed_on() {
    let mut host = Host::of_kernel(Memory::new(Nanos::from_micros(5)), !init_flag::WRITEBACK_CACHE);
    let file = host.make("f", 0o100_644);
    let allocate = |offset: u64, length: u64, mode: u32| {
        bytes_of(&wire::FallocateIn {
            fh: 0.into(),
            offset: offset.into(),
            length: length.into(),
            mode: mode.into(),
            padding: 0.into(),
        })
    };
    host.ask(opcode::FALLOCATE, file, &allocate(0, 100, 0));
    assert_eq!(host.size(file), 100);
    host.write(file, 0, &[7; 100]);
    host.ask(opcode::FALLOCATE, file, &allocate(10, 200, 3));
    assert_eq!(host.read(file, 0, 200), [vec![7; 10], vec![0; 90]].concat());
    for (offset, length, mode, errno) in [
        (0, 0, 0, Errno::INVAL),
        (0, 1, 2, Errno::OPNOTSUPP),
        (0, 1, 8, Errno::OPNOTSUPP),
        (u64::MAX, 2, 0, Errno::FBIG),
        (i64::MAX as u64, 1, 0, Errno::FBIG),
    ] {
        assert_eq!(host.errno(opcode::FALLOCATE, file, &allocate(offset, length, mode)), Some(errno));
    }
    let seek = |offset: u64, whence: u32| {
        bytes_of(&wire::LseekIn { fh: 0.into(), offset: offset.into(), whence: whence.into(), padding: 0.into() })
    };
    assert_eq!(host.layout::<wire::LseekOut>(opcode::LSEEK, file, &seek(3, 4)).offset.get(), 100);
    assert_eq!(host.errno(opcode::LSEEK, file, &seek(100, 3)), Some(Errno::NXIO));
    assert_eq!(host.errno(opcode::LSEEK, file, &seek(0, 0)), Some(Errno::INVAL));
    // A kernel that collects writes has bytes of which nobody here knows.
    let mut collecting = Host::new(Memory::new(Nanos::ZERO));
    assert_eq!(collecting.errno(opcode::LSEEK, 1, &seek(0, 3)), Some(Errno::NOSYS));
    let room: wire::StatfsOut = host.layout(opcode::STATFS, 1, b"");
    assert_eq!((room.blocks.get(), room.bavail.get(), room.ffree.get(), room.namelen.get()), (1000, 900, 700, 255));
    for (code, bytes) in [(opcode::FSYNC, 16), (opcode::FSYNCDIR, 16), (opcode::SYNCFS, 8)] {
        host.ask(code, 1, &vec![0; bytes]);
    }
    assert_eq!(host.fs.syncs, 3);
}

#[test]
fn operation_that_waits_is_abandoned_with_its_ticket() {
    let mut host = Host::new(Memory::new(Nanos::from_micros(5)));
    let request = request(opcode::FSYNC, 1, &[0; 16]);
    let mut pending = host.session.begin(&mut host.fs, CLOCK, &request, &mut host.answer).expect("an operation");
    assert!(!host.session.attempt(&mut host.fs, host.now, CLOCK, &mut pending, &mut host.answer));
    assert_eq!(host.fs.open_reads(), 1);
    host.session.abandon(&mut host.fs, pending);
    assert_eq!(host.fs.open_reads(), 0);
}
