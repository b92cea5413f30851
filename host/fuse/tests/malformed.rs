//! Requests that the kernel does not send.

use crate::memory::Memory;
use crate::sessions::{Host, bytes_of, request};
use openftl_core::Nanos;
use openftl_fuse::request::FuseRequest;
use openftl_fuse::wire::{self, opcode};
use rustix::io::Errno;

/// A request of each opcode that is served, as the kernel would send it, and whether what is behind its layout may be cut off.
fn requests() -> Vec<(u32, Vec<u8>)> {
    let zeroes = |bytes: usize| vec![0; bytes];
    let with = |bytes: usize, text: &[u8]| [&zeroes(bytes)[..], text].concat();
    let write = wire::WriteIn {
        fh: 0.into(),
        offset: 0.into(),
        size: 5.into(),
        write_flags: 0.into(),
        lock_owner: 0.into(),
        flags: 0.into(),
        padding: 0.into(),
    };
    let setxattr = wire::SetxattrIn { size: 5.into(), flags: 0.into() };
    let forgets = wire::BatchForgetIn { count: 3.into(), dummy: 0.into() };
    vec![
        (opcode::INIT, zeroes(16)),
        (opcode::LOOKUP, with(0, b"a\0")),
        (opcode::FORGET, zeroes(8)),
        (opcode::BATCH_FORGET, [bytes_of(&forgets), zeroes(48)].concat()),
        (opcode::GETATTR, zeroes(16)),
        (opcode::SETATTR, zeroes(88)),
        (opcode::SYMLINK, with(0, b"a\0target\0")),
        (opcode::MKNOD, with(16, b"a\0")),
        (opcode::MKDIR, with(8, b"a\0")),
        (opcode::UNLINK, with(0, b"a\0")),
        (opcode::RMDIR, with(0, b"a\0")),
        (opcode::RENAME, with(8, b"a\0b\0")),
        (opcode::RENAME2, with(16, b"a\0b\0")),
        (opcode::LINK, with(8, b"a\0")),
        (opcode::OPEN, zeroes(8)),
        (opcode::CREATE, with(16, b"a\0")),
        (opcode::READ, zeroes(40)),
        (opcode::WRITE, [&bytes_of(&write)[..], b"bytes"].concat()),
        (opcode::RELEASE, zeroes(24)),
        (opcode::FSYNC, zeroes(16)),
        (opcode::SETXATTR, [&bytes_of(&setxattr)[..], b"user.a\0bytes"].concat()),
        (opcode::GETXATTR, with(8, b"user.a\0")),
        (opcode::LISTXATTR, zeroes(8)),
        (opcode::REMOVEXATTR, with(0, b"user.a\0")),
        (opcode::FLUSH, zeroes(24)),
        (opcode::OPENDIR, zeroes(8)),
        (opcode::READDIR, zeroes(40)),
        (opcode::READDIRPLUS, zeroes(40)),
        (opcode::RELEASEDIR, zeroes(24)),
        (opcode::FSYNCDIR, zeroes(16)),
        (opcode::FALLOCATE, zeroes(32)),
        (opcode::LSEEK, zeroes(24)),
        (opcode::SYNCFS, zeroes(8)),
        (opcode::INTERRUPT, zeroes(8)),
        (opcode::ACCESS, zeroes(8)),
        // Without a body.
        (opcode::READLINK, Vec::new()),
        (opcode::STATFS, Vec::new()),
        (opcode::DESTROY, Vec::new()),
        (opcode::TMPFILE, Vec::new()),
    ]
}

#[test]
fn every_request_that_is_cut_off_is_an_error() {
    for (code, body) in requests() {
        let whole = request(code, 1, &body);
        FuseRequest::parse(&whole).unwrap_or_else(|error| panic!("opcode {code}: {error}"));
        for bytes in 0..whole.len() {
            // With the length that was sent, and with the length that arrived.
            let short = &whole[..bytes];
            assert!(FuseRequest::parse(short).is_err(), "opcode {code}, {bytes} bytes");
            if bytes >= size_of::<wire::InHeader>() {
                let honest = request(code, 1, &body[..bytes - size_of::<wire::InHeader>()]);
                let malformed = FuseRequest::parse(&honest).expect_err("too short");
                let is_forget = matches!(code, opcode::FORGET | opcode::BATCH_FORGET);
                assert_eq!(malformed.unique.is_none(), is_forget, "opcode {code}");
                let mut host = Host::new(Memory::new(Nanos::ZERO));
                let reply = host.raw(&honest);
                assert_eq!(reply.is_empty(), is_forget, "opcode {code}");
                assert_eq!(host.session.counts().malformed, 1);
            }
        }
    }
}

#[test]
fn whole_requests_of_zeroes_are_answered_with_errors_at_most() {
    for (code, body) in requests() {
        let mut host = Host::new(Memory::new(Nanos::from_micros(1)));
        for nodeid in [0, 1, 2, 77, 1 << 32, u64::MAX] {
            host.raw(&request(code, nodeid, &body));
        }
        assert_eq!(host.fs.open_reads(), 0);
    }
}

#[test]
fn any_bytes_behind_a_header_are_answered() {
    // Numbers of a simple generator: the same bytes in each run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut host = Host::new(Memory::new(Nanos::from_micros(1)));
    for _ in 0..30_000 {
        let code = (next() % 54) as u32;
        if code == opcode::DESTROY {
            continue;
        }
        let mut body: Vec<u8> = (0..next() % 100).map(|_| (next() >> (next() % 64)) as u8).collect();
        if next() % 2 == 0 {
            body.push(0);
        }
        // Allocations and sizes stay small: offsets of the test's file system are memory.
        if matches!(code, opcode::SETATTR | opcode::FALLOCATE | opcode::WRITE) {
            body.iter_mut().skip(10).for_each(|byte| *byte = 0);
        }
        let reply = host.raw(&request(code, next() % 20, &body));
        let is_forget = matches!(code, opcode::FORGET | opcode::BATCH_FORGET);
        assert_eq!(reply.is_empty(), is_forget, "opcode {code}");
    }
    host.session.end(&mut host.fs);
    assert_eq!((host.fs.holds(), host.fs.open_reads()), (0, 0));
}

#[test]
fn header_that_disagrees_with_the_read_is_refused() {
    let mut host = Host::new(Memory::new(Nanos::ZERO));
    let mut statfs = request(opcode::STATFS, 1, b"");
    statfs.push(0);
    assert_eq!(host.raw_errno(&statfs), Some(Errno::IO));
    // Extensions longer than the request.
    let mut statfs = request(opcode::STATFS, 1, b"");
    statfs[36] = 1;
    assert_eq!(host.raw_errno(&statfs), Some(Errno::IO));
    assert!(host.raw(b"").is_empty());
}

#[test]
fn unknown_opcodes_are_not_served() {
    let mut host = Host::new(Memory::new(Nanos::ZERO));
    for code in [0, 7, 19, 31, 32, 33, 37, 39, 40, 41, 47, 48, 49, 51, 52, 53, 4096, u32::MAX] {
        assert_eq!(host.errno(code, 1, b""), Some(Errno::NOSYS), "opcode {code}");
    }
}

#[test]
fn names_that_no_file_has_are_refused() {
    let mut host = Host::new(Memory::new(Nanos::ZERO));
    for name in [&b"a/b\0"[..], b".\0", b"..\0", b"\0", b"a\0b\0"] {
        assert_eq!(host.errno(opcode::UNLINK, 1, name), Some(Errno::INVAL));
        assert_eq!(host.errno(opcode::MKDIR, 1, &[&[0; 8], name].concat()), Some(Errno::INVAL));
    }
    let long = [vec![b'x'; 256], vec![0]].concat();
    assert_eq!(host.errno(opcode::LOOKUP, 1, &long), Some(Errno::NAMETOOLONG));
}
