//! Requests: bytes in, a value out that borrows names and payload from them.
//!
//! The kernel sends well-formed requests alone. Everything else is an error value: no bytes make this panic.

use crate::wire::{self, opcode};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Names the request in its reply.
    pub unique: u64,
    /// The file or folder that the request is for.
    pub nodeid: u64,
    /// User of the caller.
    pub uid: u32,
    /// Group of the caller.
    pub gid: u32,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FuseRequest<'a> {
    /// Its header.
    pub head: Head,
    /// Its opcode with everything that follows.
    pub body: Body<'a>,
}

/// A request that is answered with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {unique:?} is malformed: {errno}")]
pub struct Malformed {
    /// The request; `None`: it is answered with nothing.
    pub unique: Option<u64>,
    /// The error.
    pub errno: Errno,
}

/// What a request asks, for the file of its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are those of the structs in `wire`")]
pub enum Body<'a> {
    /// The first request of a connection.
    Init(&'a wire::InitIn),
    /// The last one.
    Destroy,
    /// A name in the folder.
    Lookup { name: &'a [u8] },
    /// Takes lookups back. No reply.
    Forget { lookups: u64 },
    /// Takes lookups of several files back. No reply.
    BatchForget(&'a [wire::ForgetOne]),
    /// Attributes.
    Getattr,
    /// Changes of attributes.
    Setattr(&'a wire::SetattrIn),
    /// The target of a symbolic link.
    Readlink,
    /// A new symbolic link.
    Symlink { name: &'a [u8], target: &'a [u8] },
    /// A new file.
    Mknod { name: &'a [u8], mode: u32, device: u32 },
    /// A new folder.
    Mkdir { name: &'a [u8], mode: u32 },
    /// A name of a file less.
    Unlink { name: &'a [u8] },
    /// An empty folder less.
    Rmdir { name: &'a [u8] },
    /// `RENAME` and `RENAME2`.
    Rename { name: &'a [u8], to: u64, to_name: &'a [u8], flags: u32 },
    /// One name more, in the folder.
    Link { file: u64, name: &'a [u8] },
    /// An open file.
    Open { flags: u32, drops_privileges: bool },
    /// A new and open file.
    Create { name: &'a [u8], mode: u32, flags: u32, drops_privileges: bool },
    /// Bytes of a file.
    Read { offset: u64, bytes: u32 },
    /// Bytes for a file.
    Write { offset: u64, data: &'a [u8], drops_privileges: bool },
    /// Room.
    Statfs,
    /// An open file less.
    Release,
    /// `FSYNC` and `FSYNCDIR`.
    Fsync,
    /// An extended attribute is set.
    Setxattr { name: &'a [u8], value: &'a [u8], flags: u32 },
    /// The value of an extended attribute, or its length if `bytes` is 0.
    Getxattr { name: &'a [u8], bytes: u32 },
    /// The names of extended attributes, or their length if `bytes` is 0.
    Listxattr { bytes: u32 },
    /// An extended attribute less.
    Removexattr { name: &'a [u8] },
    /// A file is closed.
    Flush,
    /// An open folder.
    Opendir,
    /// Names in a folder, with attributes or without.
    Readdir { after: u64, bytes: u32, with_attributes: bool },
    /// An open folder less.
    Releasedir,
    /// Room for a range, a hole, or zeroes.
    Fallocate { offset: u64, bytes: u64, mode: u32 },
    /// The next data or hole.
    Lseek { offset: u64, whence: u32 },
    /// Everything is to be durable.
    Syncfs,
    /// The caller waits for that request no longer.
    Interrupt { unique: u64 },
    /// Whether the caller may access the file.
    Access,
    /// A new file without a name.
    Tmpfile,
    /// An opcode that is not served.
    Unknown { opcode: u32 },
}

impl<'a> FuseRequest<'a> {
    /// The request that `bytes` are, as one read of the device returned them.
    ///
    /// # Errors
    /// If they are none.
    pub fn parse(bytes: &'a [u8]) -> Result<FuseRequest<'a>, Malformed> {
        let Ok((head, rest)) = wire::InHeader::ref_from_prefix(bytes) else {
            return Err(Malformed { unique: None, errno: Errno::IO });
        };
        let code = head.opcode.get();
        let is_answered = !matches!(code, opcode::FORGET | opcode::BATCH_FORGET);
        let malformed = |errno| Malformed { unique: is_answered.then_some(head.unique.get()), errno };
        // A reply to number 0 would be a notification.
        if head.unique.get() == 0 && is_answered {
            return Err(Malformed { unique: None, errno: Errno::IO });
        }
        let body_bytes = (head.len.get() as usize)
            .checked_sub(size_of::<wire::InHeader>() + 8 * usize::from(head.total_extlen.get()))
            .filter(|_| head.len.get() as usize == bytes.len())
            .ok_or(malformed(Errno::IO))?;
        let body = Body::parse(code, Fields(&rest[..body_bytes])).map_err(malformed)?;
        let head =
            Head { unique: head.unique.get(), nodeid: head.nodeid.get(), uid: head.uid.get(), gid: head.gid.get() };
        Ok(FuseRequest { head, body })
    }
}

impl<'a> Body<'a> {
    fn parse(code: u32, mut fields: Fields<'a>) -> Result<Body<'a>, Errno> {
        Ok(match code {
            opcode::INIT => Body::Init(fields.layout()?),
            opcode::DESTROY => Body::Destroy,
            opcode::LOOKUP => Body::Lookup { name: fields.last_text()? },
            opcode::FORGET => Body::Forget { lookups: fields.layout::<wire::ForgetIn>()?.nlookup.get() },
            opcode::BATCH_FORGET => {
                let head: &wire::BatchForgetIn = fields.layout()?;
                let items = <[wire::ForgetOne]>::ref_from_prefix_with_elems(fields.0, head.count.get() as usize);
                Body::BatchForget(items.map_err(|_| Errno::INVAL)?.0)
            }
            opcode::GETATTR => fields.layout::<wire::GetattrIn>().map(|_| Body::Getattr)?,
            opcode::SETATTR => Body::Setattr(fields.layout()?),
            opcode::READLINK => Body::Readlink,
            opcode::SYMLINK => Body::Symlink { name: fields.text()?, target: fields.last_text()? },
            opcode::MKNOD => {
                let head: &wire::MknodIn = fields.layout()?;
                Body::Mknod { name: fields.last_text()?, mode: head.mode.get(), device: head.rdev.get() }
            }
            opcode::MKDIR => {
                let head: &wire::MkdirIn = fields.layout()?;
                Body::Mkdir { name: fields.last_text()?, mode: head.mode.get() }
            }
            opcode::UNLINK => Body::Unlink { name: fields.last_text()? },
            opcode::RMDIR => Body::Rmdir { name: fields.last_text()? },
            opcode::RENAME => {
                let head: &wire::RenameIn = fields.layout()?;
                fields.rename(head.newdir.get(), 0)?
            }
            opcode::RENAME2 => {
                let head: &wire::Rename2In = fields.layout()?;
                fields.rename(head.newdir.get(), head.flags.get())?
            }
            opcode::LINK => {
                let head: &wire::LinkIn = fields.layout()?;
                Body::Link { file: head.oldnodeid.get(), name: fields.last_text()? }
            }
            opcode::OPEN => {
                let head: &wire::OpenIn = fields.layout()?;
                let drops_privileges = head.open_flags.get() & wire::open_in_flag::KILL_SUIDGID != 0;
                Body::Open { flags: head.flags.get(), drops_privileges }
            }
            opcode::CREATE => {
                let head: &wire::CreateIn = fields.layout()?;
                let drops_privileges = head.open_flags.get() & wire::open_in_flag::KILL_SUIDGID != 0;
                let name = fields.last_text()?;
                Body::Create { name, mode: head.mode.get(), flags: head.flags.get(), drops_privileges }
            }
            opcode::READ => {
                let head: &wire::ReadIn = fields.layout()?;
                Body::Read { offset: head.offset.get(), bytes: head.size.get() }
            }
            opcode::WRITE => {
                let head: &wire::WriteIn = fields.layout()?;
                let drops_privileges = head.write_flags.get() & wire::write_flag::KILL_SUIDGID != 0;
                Body::Write { offset: head.offset.get(), data: fields.payload(head.size.get())?, drops_privileges }
            }
            opcode::STATFS => Body::Statfs,
            opcode::RELEASE => fields.layout::<wire::ReleaseIn>().map(|_| Body::Release)?,
            opcode::FSYNC | opcode::FSYNCDIR => fields.layout::<wire::FsyncIn>().map(|_| Body::Fsync)?,
            opcode::SETXATTR => {
                let head: &wire::SetxattrIn = fields.layout()?;
                let name = fields.text()?;
                Body::Setxattr { name, value: fields.payload(head.size.get())?, flags: head.flags.get() }
            }
            opcode::GETXATTR => {
                let head: &wire::GetxattrIn = fields.layout()?;
                Body::Getxattr { name: fields.last_text()?, bytes: head.size.get() }
            }
            opcode::LISTXATTR => Body::Listxattr { bytes: fields.layout::<wire::GetxattrIn>()?.size.get() },
            opcode::REMOVEXATTR => Body::Removexattr { name: fields.last_text()? },
            opcode::FLUSH => fields.layout::<wire::FlushIn>().map(|_| Body::Flush)?,
            opcode::OPENDIR => fields.layout::<wire::OpenIn>().map(|_| Body::Opendir)?,
            opcode::READDIR | opcode::READDIRPLUS => {
                let head: &wire::ReadIn = fields.layout()?;
                let with_attributes = code == opcode::READDIRPLUS;
                Body::Readdir { after: head.offset.get(), bytes: head.size.get(), with_attributes }
            }
            opcode::RELEASEDIR => fields.layout::<wire::ReleaseIn>().map(|_| Body::Releasedir)?,
            opcode::FALLOCATE => {
                let head: &wire::FallocateIn = fields.layout()?;
                Body::Fallocate { offset: head.offset.get(), bytes: head.length.get(), mode: head.mode.get() }
            }
            opcode::LSEEK => {
                let head: &wire::LseekIn = fields.layout()?;
                Body::Lseek { offset: head.offset.get(), whence: head.whence.get() }
            }
            opcode::SYNCFS => fields.layout::<wire::SyncfsIn>().map(|_| Body::Syncfs)?,
            opcode::INTERRUPT => Body::Interrupt { unique: fields.layout::<wire::InterruptIn>()?.unique.get() },
            opcode::ACCESS => fields.layout::<wire::AccessIn>().map(|_| Body::Access)?,
            opcode::TMPFILE => Body::Tmpfile,
            _ => Body::Unknown { opcode: code },
        })
    }
}

/// The bytes behind the header of a request, as far as they have not been taken.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn layout<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T, Errno> {
        let (layout, rest) = T::ref_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(layout)
    }

    /// Bytes as far as a NUL: at least one.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).filter(|end| *end > 0).ok_or(Errno::INVAL)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// Bytes as far as a NUL, which is the last byte.
    fn last_text(&mut self) -> Result<&'a [u8], Errno> {
        let text = self.text()?;
        if self.0.is_empty() { Ok(text) } else { Err(Errno::INVAL) }
    }

    /// All bytes that are left, which have to be so many.
    fn payload(&mut self, bytes: u32) -> Result<&'a [u8], Errno> {
        if self.0.len() == bytes as usize { Ok(std::mem::take(&mut self.0)) } else { Err(Errno::INVAL) }
    }

    fn rename(&mut self, to: u64, flags: u32) -> Result<Body<'a>, Errno> {
        Ok(Body::Rename { name: self.text()?, to, to_name: self.last_text()?, flags })
    }
}
