//! Set-user-ID and set-group-ID bits of files that change.

use crate::memory::Memory;
use crate::sessions::{Host, bytes_of, request};
use openftl_core::Nanos;
use openftl_fuse::wire::{self, init_flag, opcode, open_in_flag, setattr_flag, write_flag};
use zerocopy::IntoBytes;

const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();

fn host() -> Host {
    Host::new(Memory::new(Nanos::ZERO))
}

fn mode(host: &mut Host, file: u64) -> u32 {
    host.layout::<wire::AttrOut>(opcode::GETATTR, file, &[0; 16]).attr.mode.get()
}

fn write(host: &mut Host, file: u64, write_flags: u32) {
    let head = wire::WriteIn {
        fh: 0.into(),
        offset: 0.into(),
        size: 3.into(),
        write_flags: write_flags.into(),
        lock_owner: 0.into(),
        flags: 0.into(),
        padding: 0.into(),
    };
    let out: wire::WriteOut = host.layout(opcode::WRITE, file, &[head.as_bytes(), b"abc"].concat());
    assert_eq!(out.size.get(), 3);
}

fn open_in(open_flags: u32) -> Vec<u8> {
    bytes_of(&wire::OpenIn { flags: O_TRUNC.into(), open_flags: open_flags.into() })
}

#[test]
fn write_drops_privileges_if_the_kernel_says_so() {
    let mut host = host();
    for (made, left) in [(0o106_755, 0o100_755), (0o106_745, 0o102_745), (0o101_755, 0o101_755)] {
        let file = host.make(&format!("{made}"), made);
        write(&mut host, file, 0);
        assert_eq!(mode(&mut host, file), made, "its writer may set these bits");
        write(&mut host, file, write_flag::KILL_SUIDGID);
        // Without the group's right to execute, set-group-ID means something else, and stays.
        let notice = host.answer.notice();
        assert_eq!(notice.is_some(), made != left, "the kernel goes on with the mode that it remembers otherwise");
        assert_eq!((mode(&mut host, file), host.size(file)), (left, 3));
        assert_eq!(host.answer.notice(), None);
    }
}

#[test]
fn change_of_owner_and_truncation_drop_privileges_if_the_kernel_says_so() {
    let mut host = host();
    for (valid, is_changed) in [(setattr_flag::UID | setattr_flag::GID, true), (setattr_flag::SIZE, false)] {
        let file = host.make(&format!("{valid}"), 0o106_755);
        let change = |setattr: &mut wire::SetattrIn, valid: u32| {
            setattr.valid = valid.into();
            (setattr.uid, setattr.gid, setattr.size) = (5.into(), 6.into(), 7.into());
        };
        assert_eq!(host.setattr(file, |setattr| change(setattr, valid)).mode.get(), 0o106_755);
        let before = host.fs.attempts;
        let attr = host.setattr(file, |setattr| change(setattr, valid | setattr_flag::KILL_SUIDGID));
        assert_eq!(attr.mode.get(), 0o100_755);
        assert_eq!(host.fs.attempts - before, 2, "a look at the mode, and one change of it all");
        assert_eq!((attr.uid.get() == 5, attr.size.get() == 7), (is_changed, !is_changed));
    }
}

#[test]
fn mode_that_is_given_is_that_of_the_file_afterwards() {
    let mut host = host();
    let file = host.make("f", 0o106_755);
    let attr = host.setattr(file, |setattr| {
        setattr.valid = (setattr_flag::MODE | setattr_flag::KILL_SUIDGID).into();
        setattr.mode = 0o104_711.into();
    });
    assert_eq!(attr.mode.get(), 0o104_711);
}

#[test]
fn open_that_truncates_drops_privileges_if_the_kernel_says_so() {
    let mut host = host();
    let file = host.make("f", 0o106_755);
    write(&mut host, file, 0);
    host.ask(opcode::OPEN, file, &open_in(0));
    assert_eq!((mode(&mut host, file), host.size(file)), (0o106_755, 0));
    write(&mut host, file, 0);
    host.ask(opcode::OPEN, file, &open_in(open_in_flag::KILL_SUIDGID));
    assert_eq!((mode(&mut host, file), host.size(file)), (0o100_755, 0));
    let file = host.make("g", 0o106_755);
    let head = wire::CreateIn {
        flags: O_TRUNC.into(),
        mode: 0o100_644.into(),
        umask: 0.into(),
        open_flags: open_in_flag::KILL_SUIDGID.into(),
    };
    host.ask(opcode::CREATE, 1, &[head.as_bytes(), b"g\0"].concat());
    assert_eq!(mode(&mut host, file), 0o100_755);
}

#[test]
fn fallocate_takes_the_privileges_of_files_from_others_than_root() {
    let mut host = host();
    let file = host.make("f", 0o106_755);
    let head =
        wire::FallocateIn { fh: 0.into(), offset: 0.into(), length: 10.into(), mode: 0.into(), padding: 0.into() };
    let mut of_root = request(opcode::FALLOCATE, file, head.as_bytes());
    of_root[24..28].fill(0);
    assert_eq!(host.raw_errno(&of_root), None);
    assert_eq!(mode(&mut host, file), 0o106_755);
    assert_eq!(host.errno(opcode::FALLOCATE, file, head.as_bytes()), None);
    assert_eq!((mode(&mut host, file), host.size(file)), (0o100_755, 10));
}

#[test]
fn kernel_without_the_feature_is_left_all_but_truncation_by_an_open() {
    let mut host = Host::of_kernel(Memory::new(Nanos::ZERO), !init_flag::HANDLE_KILLPRIV_V2);
    let file = host.make("f", 0o106_745);
    // Bits that mean nothing to such a kernel.
    write(&mut host, file, write_flag::KILL_SUIDGID);
    assert_eq!(mode(&mut host, file), 0o106_745);
    let mut of_root = request(opcode::OPEN, file, &open_in(0));
    of_root[24..28].fill(0);
    assert_eq!(host.raw_errno(&of_root), None);
    assert_eq!((mode(&mut host, file), host.size(file)), (0o106_745, 0));
    host.ask(opcode::OPEN, file, &open_in(0));
    assert_eq!(mode(&mut host, file), 0o102_745);
}
