//! Plans: the first operation of a request, and the kind of reply that follows it.

use crate::answer::{new_file, permissions};
use crate::request::{Body, Head};
use crate::session::inode;
use crate::wire::{self, fallocate_flag, rename_flag, setattr_flag, whence, xattr_flag};
use openftl_alfs::operation::PAYLOAD_BYTES_MAX;
use openftl_alfs::{AllocateHow, Changes, FileKind, FileTime, Inode, NewFile, Operation, RenameHow, SeekFor, XattrHow};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// How a request goes on after an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then<'a> {
    /// A reply without a body.
    Done,
    /// An entry; that there is none is a reply, too.
    Lookup,
    /// An entry.
    Entry,
    /// Attributes.
    Attributes,
    /// The file loses its [privileges](crate::privileges) if it has some; then the operation of the request follows.
    DropPrivileges,
    /// A file or folder is opened.
    Open { is_directory: bool, truncates: bool },
    /// An entry, opened; or an attempt to open the file of this name.
    Create { parent: Inode, name: &'a [u8], is_exclusive: bool, truncates: bool },
    /// An entry that was there, opened.
    OpenExisting { truncates: bool },
    /// A file that has just been truncated is opened, perhaps with an entry.
    Truncated { is_entry: bool },
    /// Bytes.
    Bytes,
    /// Bytes or their length.
    Xattr { room: u32 },
    /// Bytes of a file.
    Data,
    /// How much was written.
    Written { bytes: u32 },
    /// An offset.
    Offset,
    /// A listing.
    Entries { room: u32, with_attributes: bool },
    /// Room.
    Room,
}

/// Entries of one listing, at most.
const ENTRIES_MAX: usize = 1024;

/// The plan of a request that is not answered at once.
pub(crate) fn plan<'a>(head: &Head, body: &Body<'a>, clock: FileTime) -> Result<(Operation<'a>, Then<'a>), Errno> {
    if matches!(body, Body::Statfs) {
        return Ok((Operation::Room, Then::Room));
    }
    let inode = inode(head.nodeid)?;
    let (parent, uid, gid) = (inode, head.uid, head.gid);
    Ok(match *body {
        Body::Lookup { name } => (Operation::Lookup { parent, name: path_part(name)? }, Then::Lookup),
        Body::Getattr => (Operation::Attributes { inode }, Then::Attributes),
        Body::Setattr(setattr) => match changes(setattr, clock)? {
            none if none == Changes::default() => (Operation::Attributes { inode }, Then::Attributes),
            changes => (Operation::SetAttributes { inode, changes }, Then::Attributes),
        },
        Body::Readlink => (Operation::ReadLink { inode }, Then::Bytes),
        Body::Symlink { name, target } => {
            (Operation::Symlink { parent, name: file_name(name)?, target, uid, gid }, Then::Entry)
        }
        Body::Mknod { name, mode, device } => {
            let file = new_file(mode, device, uid, gid)?;
            (Operation::Make { parent, name: file_name(name)?, file }, Then::Entry)
        }
        Body::Mkdir { name, mode } => {
            let file = NewFile { kind: FileKind::Directory, mode: permissions(mode), uid, gid, device: 0 };
            (Operation::Make { parent, name: file_name(name)?, file }, Then::Entry)
        }
        Body::Create { name, mode, flags, .. } => {
            let (name, file) = (file_name(name)?, new_file(mode, 0, uid, gid)?);
            if file.kind != FileKind::Regular {
                return Err(Errno::INVAL);
            }
            let (is_exclusive, truncates) = (has(flags, OFlags::EXCL), has(flags, OFlags::TRUNC));
            (Operation::Make { parent, name, file }, Then::Create { parent, name, is_exclusive, truncates })
        }
        Body::Unlink { name } => (Operation::Unlink { parent, name: file_name(name)? }, Then::Done),
        Body::Rmdir { name } => (Operation::RemoveDirectory { parent, name: file_name(name)? }, Then::Done),
        Body::Rename { name, to, to_name, flags } => {
            let how = match flags {
                0 => RenameHow::Replace,
                rename_flag::NO_REPLACE => RenameHow::NoReplace,
                rename_flag::EXCHANGE => RenameHow::Exchange,
                _ => return Err(Errno::INVAL),
            };
            let (from_name, to, to_name) = (file_name(name)?, crate::session::inode(to)?, file_name(to_name)?);
            (Operation::Rename { from: inode, from_name, to, to_name, how }, Then::Done)
        }
        Body::Link { file, name } => {
            (Operation::Link { inode: crate::session::inode(file)?, parent, name: file_name(name)? }, Then::Entry)
        }
        Body::Open { flags, .. } => {
            let truncates = has(flags, OFlags::TRUNC);
            (Operation::Attributes { inode }, Then::Open { is_directory: false, truncates })
        }
        Body::Opendir => (Operation::Attributes { inode }, Then::Open { is_directory: true, truncates: false }),
        Body::Read { offset, bytes } => {
            end(offset, u64::from(bytes), Errno::INVAL)?;
            payload_bytes(bytes as usize)?;
            (Operation::Read { inode, offset, bytes }, Then::Data)
        }
        Body::Write { offset, data, .. } => {
            end(offset, data.len() as u64, Errno::FBIG)?;
            let bytes = payload_bytes(data.len())?;
            (Operation::Write { inode, offset, data }, Then::Written { bytes })
        }
        Body::Fsync | Body::Syncfs => (Operation::Sync, Then::Done),
        Body::Setxattr { name, value, flags } => {
            let how = match flags {
                0 => XattrHow::Set,
                xattr_flag::CREATE => XattrHow::Create,
                xattr_flag::REPLACE => XattrHow::Replace,
                _ => return Err(Errno::INVAL),
            };
            (Operation::SetXattr { inode, name: xattr_name(name)?, value, how }, Then::Done)
        }
        Body::Getxattr { name, bytes } => {
            (Operation::GetXattr { inode, name: xattr_name(name)? }, Then::Xattr { room: bytes })
        }
        Body::Listxattr { bytes } => (Operation::ListXattr { inode }, Then::Xattr { room: bytes }),
        Body::Removexattr { name } => (Operation::RemoveXattr { inode, name: xattr_name(name)? }, Then::Done),
        Body::Readdir { after, bytes, with_attributes } => {
            payload_bytes(bytes as usize)?;
            // As many as fit with names of 16 bytes. Those that do not fit are listed again, so few are better than many.
            let lead = if with_attributes { size_of::<wire::EntryOut>() } else { 0 };
            let entries = (bytes as usize / (lead + size_of::<wire::Dirent>() + 16)).clamp(1, ENTRIES_MAX);
            (
                Operation::ReadDirectory { inode, after, entries, with_attributes },
                Then::Entries { room: bytes, with_attributes },
            )
        }
        Body::Fallocate { offset, bytes, mode } => {
            const KEEP_SIZE: u32 = fallocate_flag::KEEP_SIZE;
            let keep_size = mode & KEEP_SIZE != 0;
            let how = match mode & !KEEP_SIZE {
                0 => AllocateHow::Allocate { keep_size },
                fallocate_flag::PUNCH_HOLE if keep_size => AllocateHow::PunchHole,
                fallocate_flag::ZERO_RANGE => AllocateHow::ZeroRange { keep_size },
                _ => return Err(Errno::OPNOTSUPP),
            };
            if bytes == 0 {
                return Err(Errno::INVAL);
            }
            end(offset, bytes, Errno::FBIG)?;
            (Operation::Allocate { inode, offset, bytes, how }, Then::Done)
        }
        Body::Lseek { offset, whence } => {
            let target = match whence {
                whence::DATA => SeekFor::Data,
                whence::HOLE => SeekFor::Hole,
                _ => return Err(Errno::INVAL),
            };
            end(offset, 0, Errno::NXIO)?;
            (Operation::Seek { inode, offset, target }, Then::Offset)
        }
        Body::Init(_)
        | Body::Destroy
        | Body::Forget { .. }
        | Body::BatchForget(_)
        | Body::Statfs
        | Body::Release
        | Body::Releasedir
        | Body::Flush
        | Body::Interrupt { .. }
        | Body::Access
        | Body::Tmpfile
        | Body::Unknown { .. } => unreachable!("these are answered at once"),
    })
}

fn has(flags: u32, flag: OFlags) -> bool {
    flags & flag.bits() != 0
}

/// A name for a lookup. How long it may be, the file system decides.
fn path_part(name: &[u8]) -> Result<&[u8], Errno> {
    if name.contains(&b'/') { Err(Errno::INVAL) } else { Ok(name) }
}

/// A name that a file may have.
fn file_name(name: &[u8]) -> Result<&[u8], Errno> {
    if name == b"." || name == b".." { Err(Errno::INVAL) } else { path_part(name) }
}

fn xattr_name(name: &[u8]) -> Result<&[u8], Errno> {
    if name.starts_with(b"system.") { Err(Errno::OPNOTSUPP) } else { Ok(name) }
}

fn payload_bytes(bytes: usize) -> Result<u32, Errno> {
    if bytes <= PAYLOAD_BYTES_MAX { Ok(bytes as u32) } else { Err(Errno::INVAL) }
}

/// Offsets have a sign in the kernel.
fn end(offset: u64, bytes: u64, errno: Errno) -> Result<u64, Errno> {
    offset.checked_add(bytes).filter(|end| i64::try_from(*end).is_ok()).ok_or(errno)
}

fn changes(setattr: &wire::SetattrIn, clock: FileTime) -> Result<Changes, Errno> {
    let valid = setattr.valid.get();
    let is = |flag| valid & flag != 0;
    let time = |set, now, seconds: u64, nanoseconds: u32| match (is(set), is(now)) {
        (_, true) => Ok(Some(clock)),
        (true, false) if nanoseconds >= 1_000_000_000 => Err(Errno::INVAL),
        (true, false) => Ok(Some(FileTime { seconds: seconds.cast_signed(), nanoseconds })),
        (false, false) => Ok(None),
    };
    if is(setattr_flag::SIZE) {
        end(setattr.size.get(), 0, Errno::FBIG)?;
    }
    Ok(Changes {
        mode: is(setattr_flag::MODE).then(|| permissions(setattr.mode.get())),
        uid: is(setattr_flag::UID).then(|| setattr.uid.get()),
        gid: is(setattr_flag::GID).then(|| setattr.gid.get()),
        size: is(setattr_flag::SIZE).then(|| setattr.size.get()),
        accessed: time(setattr_flag::ATIME, setattr_flag::ATIME_NOW, setattr.atime.get(), setattr.atimensec.get())?,
        modified: time(setattr_flag::MTIME, setattr_flag::MTIME_NOW, setattr.mtime.get(), setattr.mtimensec.get())?,
        changed: time(setattr_flag::CTIME, 0, setattr.ctime.get(), setattr.ctimensec.get())?,
    })
}
