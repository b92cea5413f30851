//! The bits of the FUSE protocol: opcodes, flags and message layouts, in the byte order of the machine.
//!
//! ```text
//!   request   InHeader │ body of the opcode │ names, each with a NUL, or payload      (read from /dev/fuse)
//!   reply     OutHeader │ body of the opcode │ payload                                (written to /dev/fuse)
//! ```
//!
//! Numbers and layouts are those of the kernel's public header `include/uapi/linux/fuse.h`, version 7.38; comments name its structs and constants.

use zerocopy::byteorder::native_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `FUSE_KERNEL_VERSION`: the only major version of the protocol.
pub const MAJOR: u32 = 7;
/// `FUSE_KERNEL_MINOR_VERSION`, of the header that these layouts are from.
pub const MINOR: u32 = 38;
/// Older kernels are refused: Linux 5.4 has this version.
pub const MINOR_MIN: u32 = 31;

/// `FUSE_ROOT_ID`.
pub const ROOT_ID: u64 = 1;

/// Bytes of a page, the unit of [`InitOut::max_pages`] (on machines with larger pages a request may carry more than it announces).
pub const PAGE_BYTES: usize = 4096;

/// `FUSE_NOTIFY_INVAL_INODE`, in place of the error of a reply.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// Bytes of this notification.
pub const NOTICE_BYTES: usize = size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>();

/// Opcodes (`enum fuse_opcode`).
pub mod opcode {
    /// `FUSE_LOOKUP`.
    pub const LOOKUP: u32 = 1;
    /// `FUSE_FORGET`: no reply.
    pub const FORGET: u32 = 2;
    /// `FUSE_GETATTR`.
    pub const GETATTR: u32 = 3;
    /// `FUSE_SETATTR`.
    pub const SETATTR: u32 = 4;
    /// `FUSE_READLINK`.
    pub const READLINK: u32 = 5;
    /// `FUSE_SYMLINK`.
    pub const SYMLINK: u32 = 6;
    /// `FUSE_MKNOD`.
    pub const MKNOD: u32 = 8;
    /// `FUSE_MKDIR`.
    pub const MKDIR: u32 = 9;
    /// `FUSE_UNLINK`.
    pub const UNLINK: u32 = 10;
    /// `FUSE_RMDIR`.
    pub const RMDIR: u32 = 11;
    /// `FUSE_RENAME`.
    pub const RENAME: u32 = 12;
    /// `FUSE_LINK`.
    pub const LINK: u32 = 13;
    /// `FUSE_OPEN`.
    pub const OPEN: u32 = 14;
    /// `FUSE_READ`.
    pub const READ: u32 = 15;
    /// `FUSE_WRITE`.
    pub const WRITE: u32 = 16;
    /// `FUSE_STATFS`.
    pub const STATFS: u32 = 17;
    /// `FUSE_RELEASE`.
    pub const RELEASE: u32 = 18;
    /// `FUSE_FSYNC`.
    pub const FSYNC: u32 = 20;
    /// `FUSE_SETXATTR`.
    pub const SETXATTR: u32 = 21;
    /// `FUSE_GETXATTR`.
    pub const GETXATTR: u32 = 22;
    /// `FUSE_LISTXATTR`.
    pub const LISTXATTR: u32 = 23;
    /// `FUSE_REMOVEXATTR`.
    pub const REMOVEXATTR: u32 = 24;
    /// `FUSE_FLUSH`.
    pub const FLUSH: u32 = 25;
    /// `FUSE_INIT`.
    pub const INIT: u32 = 26;
    /// `FUSE_OPENDIR`.
    pub const OPENDIR: u32 = 27;
    /// `FUSE_READDIR`.
    pub const READDIR: u32 = 28;
    /// `FUSE_RELEASEDIR`.
    pub const RELEASEDIR: u32 = 29;
    /// `FUSE_FSYNCDIR`.
    pub const FSYNCDIR: u32 = 30;
    /// `FUSE_ACCESS`.
    pub const ACCESS: u32 = 34;
    /// `FUSE_CREATE`.
    pub const CREATE: u32 = 35;
    /// `FUSE_INTERRUPT`: no reply but `ENOSYS`.
    pub const INTERRUPT: u32 = 36;
    /// `FUSE_DESTROY`.
    pub const DESTROY: u32 = 38;
    /// `FUSE_BATCH_FORGET`: no reply.
    pub const BATCH_FORGET: u32 = 42;
    /// `FUSE_FALLOCATE`.
    pub const FALLOCATE: u32 = 43;
    /// `FUSE_READDIRPLUS`.
    pub const READDIRPLUS: u32 = 44;
    /// `FUSE_RENAME2`.
    pub const RENAME2: u32 = 45;
    /// `FUSE_LSEEK`.
    pub const LSEEK: u32 = 46;
    /// `FUSE_SYNCFS`.
    pub const SYNCFS: u32 = 50;
    /// `FUSE_TMPFILE`.
    pub const TMPFILE: u32 = 51;
}

/// Flags of [`InitIn`] and [`InitOut`].
pub mod init_flag {
    /// `FUSE_ASYNC_READ`: several reads of one file at a time.
    pub const ASYNC_READ: u32 = 1 << 0;
    /// `FUSE_ATOMIC_O_TRUNC`: an open truncates.
    pub const ATOMIC_O_TRUNC: u32 = 1 << 3;
    /// `FUSE_EXPORT_SUPPORT`: `.` and `..` can be looked up, for NFS.
    pub const EXPORT_SUPPORT: u32 = 1 << 4;
    /// `FUSE_BIG_WRITES`: writes of more than a page.
    pub const BIG_WRITES: u32 = 1 << 5;
    /// `FUSE_DO_READDIRPLUS`.
    pub const DO_READDIRPLUS: u32 = 1 << 13;
    /// `FUSE_READDIRPLUS_AUTO`: the kernel chooses between both kinds of listing.
    pub const READDIRPLUS_AUTO: u32 = 1 << 14;
    /// `FUSE_ASYNC_DIO`: several requests for one direct read or write.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// `FUSE_WRITEBACK_CACHE`: writes are collected in the page cache; the kernel owns size and modification time of files in it.
    pub const WRITEBACK_CACHE: u32 = 1 << 16;
    /// `FUSE_PARALLEL_DIROPS`: lookups and listings of one folder at a time.
    pub const PARALLEL_DIROPS: u32 = 1 << 18;
    /// `FUSE_MAX_PAGES`: [`super::InitOut::max_pages`] counts.
    pub const MAX_PAGES: u32 = 1 << 22;
    /// `FUSE_CACHE_SYMLINKS`.
    pub const CACHE_SYMLINKS: u32 = 1 << 23;
    /// `FUSE_HANDLE_KILLPRIV_V2`: the file system drops the set-user-ID and set-group-ID bits of files that change, where a request says so.
    pub const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
}

/// Flags of [`SetattrIn::valid`].
pub mod setattr_flag {
    /// `FATTR_MODE`.
    pub const MODE: u32 = 1 << 0;
    /// `FATTR_UID`.
    pub const UID: u32 = 1 << 1;
    /// `FATTR_GID`.
    pub const GID: u32 = 1 << 2;
    /// `FATTR_SIZE`.
    pub const SIZE: u32 = 1 << 3;
    /// `FATTR_ATIME`.
    pub const ATIME: u32 = 1 << 4;
    /// `FATTR_MTIME`.
    pub const MTIME: u32 = 1 << 5;
    /// `FATTR_ATIME_NOW`.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// `FATTR_MTIME_NOW`.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// `FATTR_CTIME`: the kernel's writeback cache alone sends it.
    pub const CTIME: u32 = 1 << 10;
    /// `FATTR_KILL_SUIDGID`: the set-user-ID and set-group-ID bits are dropped.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of [`OpenIn::open_flags`] and [`CreateIn::open_flags`].
pub mod open_in_flag {
    /// `FUSE_OPEN_KILL_SUIDGID`: a truncation drops the set-user-ID and set-group-ID bits.
    pub const KILL_SUIDGID: u32 = 1 << 0;
}

/// Flags of [`WriteIn::write_flags`].
pub mod write_flag {
    /// `FUSE_WRITE_KILL_SUIDGID`: the set-user-ID and set-group-ID bits are dropped.
    pub const KILL_SUIDGID: u32 = 1 << 2;
}

/// Flags of [`OpenOut::open_flags`].
pub mod open_flag {
    /// `FOPEN_KEEP_CACHE`: the pages of the file stay in the cache.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// `FOPEN_CACHE_DIR`: the kernel may cache the listing of the folder.
    pub const CACHE_DIR: u32 = 1 << 3;
}

/// Flags of [`Rename2In`] (`renameat2(2)`).
pub mod rename_flag {
    /// `RENAME_NOREPLACE`.
    pub const NO_REPLACE: u32 = 1 << 0;
    /// `RENAME_EXCHANGE`.
    pub const EXCHANGE: u32 = 1 << 1;
}

/// Flags of [`FallocateIn::mode`] (`fallocate(2)`).
pub mod fallocate_flag {
    /// `FALLOC_FL_KEEP_SIZE`.
    pub const KEEP_SIZE: u32 = 1 << 0;
    /// `FALLOC_FL_PUNCH_HOLE`: with `KEEP_SIZE` alone.
    pub const PUNCH_HOLE: u32 = 1 << 1;
    /// `FALLOC_FL_ZERO_RANGE`.
    pub const ZERO_RANGE: u32 = 1 << 4;
}

/// Values of [`LseekIn::whence`] (`lseek(2)`).
pub mod whence {
    /// `SEEK_DATA`.
    pub const DATA: u32 = 3;
    /// `SEEK_HOLE`.
    pub const HOLE: u32 = 4;
}

/// Flags of [`SetxattrIn`] (`setxattr(2)`).
pub mod xattr_flag {
    /// `XATTR_CREATE`.
    pub const CREATE: u32 = 1 << 0;
    /// `XATTR_REPLACE`.
    pub const REPLACE: u32 = 1 << 1;
}

/// The kind of a file in a mode (`S_IFMT`).
pub mod file_type {
    /// `S_IFMT`.
    pub const MASK: u32 = 0o170_000;
    /// `S_IFIFO`.
    pub const FIFO: u32 = 0o010_000;
    /// `S_IFCHR`.
    pub const CHARACTER_DEVICE: u32 = 0o020_000;
    /// `S_IFDIR`.
    pub const DIRECTORY: u32 = 0o040_000;
    /// `S_IFBLK`.
    pub const BLOCK_DEVICE: u32 = 0o060_000;
    /// `S_IFREG`.
    pub const REGULAR: u32 = 0o100_000;
    /// `S_IFLNK`.
    pub const SYMLINK: u32 = 0o120_000;
    /// `S_IFSOCK`.
    pub const SOCKET: u32 = 0o140_000;
}

/// A struct of the wire, its size, and its fields.
macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(C)]
            pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

layout! {
    /// `fuse_in_header`: before each request.
    InHeader: 40 {
        /// Bytes of the request with this header.
        len: U32,
        /// See [`opcode`].
        opcode: U32,
        /// The reply has it, too.
        unique: U64,
        /// The file or folder that the request is for.
        nodeid: U64,
        /// User of the caller.
        uid: U32,
        /// Group of the caller.
        gid: U32,
        /// Process of the caller.
        pid: U32,
        /// Extensions behind the body, in units of 8 bytes; none is negotiated.
        total_extlen: U16,
        /// Zero.
        padding: U16,
    }
    /// `fuse_out_header`: before each reply.
    OutHeader: 16 {
        /// Bytes of the reply with this header.
        len: U32,
        /// 0, or an `errno` below zero.
        error: I32,
        /// Of the request.
        unique: U64,
    }
    /// `fuse_init_in` as far as version 7.35; later versions append to it.
    InitIn: 16 {
        /// Major version of the kernel.
        major: U32,
        /// Minor version of the kernel.
        minor: U32,
        /// Bytes that the kernel reads ahead.
        max_readahead: U32,
        /// See [`init_flag`]: those that the kernel offers.
        flags: U32,
    }
    /// `fuse_init_out`.
    InitOut: 64 {
        /// Major version that is spoken.
        major: U32,
        /// Minor version that is spoken.
        minor: U32,
        /// Bytes that the kernel may read ahead.
        max_readahead: U32,
        /// See [`init_flag`]: those that are used.
        flags: U32,
        /// Asynchronous requests under way.
        max_background: U16,
        /// From so many on the kernel calls the device congested.
        congestion_threshold: U16,
        /// Bytes of a write.
        max_write: U32,
        /// Nanoseconds between two times of a file.
        time_gran: U32,
        /// Pages of a request.
        max_pages: U16,
        /// Not used.
        map_alignment: U16,
        /// Upper half of the flags.
        flags2: U32,
        /// Zeroes.
        unused: [U32; 7],
    }
    /// `fuse_attr`.
    Attr: 88 {
        /// Inode number.
        ino: U64,
        /// Bytes.
        size: U64,
        /// 512-byte units on media.
        blocks: U64,
        /// Seconds of the last access.
        atime: U64,
        /// Seconds of the last change of bytes.
        mtime: U64,
        /// Seconds of the last change of attributes.
        ctime: U64,
        /// Nanoseconds after `atime`.
        atimensec: U32,
        /// Nanoseconds after `mtime`.
        mtimensec: U32,
        /// Nanoseconds after `ctime`.
        ctimensec: U32,
        /// Kind and permissions.
        mode: U32,
        /// Links.
        nlink: U32,
        /// Owner.
        uid: U32,
        /// Group.
        gid: U32,
        /// Device number.
        rdev: U32,
        /// Preferred bytes of a transfer.
        blksize: U32,
        /// Zero.
        flags: U32,
    }
    /// `fuse_entry_out`.
    EntryOut: 128 {
        /// The file; 0: there is none of this name.
        nodeid: U64,
        /// Distinguishes files that had the same number.
        generation: U64,
        /// Seconds that the kernel may remember the name.
        entry_valid: U64,
        /// Seconds that the kernel may remember the attributes.
        attr_valid: U64,
        /// Nanoseconds after `entry_valid`.
        entry_valid_nsec: U32,
        /// Nanoseconds after `attr_valid`.
        attr_valid_nsec: U32,
        /// The attributes.
        attr: Attr,
    }
    /// `fuse_attr_out`.
    AttrOut: 104 {
        /// Seconds that the kernel may remember the attributes.
        attr_valid: U64,
        /// Nanoseconds after that.
        attr_valid_nsec: U32,
        /// Zero.
        dummy: U32,
        /// The attributes.
        attr: Attr,
    }
    /// `fuse_forget_in`.
    ForgetIn: 8 {
        /// Lookups to forget.
        nlookup: U64,
    }
    /// `fuse_batch_forget_in`, before so many [`ForgetOne`].
    BatchForgetIn: 8 {
        /// How many follow.
        count: U32,
        /// Zero.
        dummy: U32,
    }
    /// `fuse_forget_one`.
    ForgetOne: 16 {
        /// The file.
        nodeid: U64,
        /// Lookups to forget.
        nlookup: U64,
    }
    /// `fuse_getattr_in`.
    GetattrIn: 16 {
        /// Whether `fh` counts.
        getattr_flags: U32,
        /// Zero.
        dummy: U32,
        /// An open file.
        fh: U64,
    }
    /// `fuse_setattr_in`.
    SetattrIn: 88 {
        /// See [`setattr_flag`].
        valid: U32,
        /// Zero.
        padding: U32,
        /// An open file.
        fh: U64,
        /// Bytes.
        size: U64,
        /// Not used.
        lock_owner: U64,
        /// Seconds of the last access.
        atime: U64,
        /// Seconds of the last change of bytes.
        mtime: U64,
        /// Seconds of the last change of attributes.
        ctime: U64,
        /// Nanoseconds after `atime`.
        atimensec: U32,
        /// Nanoseconds after `mtime`.
        mtimensec: U32,
        /// Nanoseconds after `ctime`.
        ctimensec: U32,
        /// Kind and permissions.
        mode: U32,
        /// Not used.
        unused4: U32,
        /// Owner.
        uid: U32,
        /// Group.
        gid: U32,
        /// Not used.
        unused5: U32,
    }
    /// `fuse_mknod_in`, before a name.
    MknodIn: 16 {
        /// Kind and permissions.
        mode: U32,
        /// Device number.
        rdev: U32,
        /// Applied already.
        umask: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_mkdir_in`, before a name.
    MkdirIn: 8 {
        /// Permissions.
        mode: U32,
        /// Applied already.
        umask: U32,
    }
    /// `fuse_rename_in`, before two names.
    RenameIn: 8 {
        /// The new folder.
        newdir: U64,
    }
    /// `fuse_rename2_in`, before two names.
    Rename2In: 16 {
        /// The new folder.
        newdir: U64,
        /// See [`rename_flag`].
        flags: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_link_in`, before a name.
    LinkIn: 8 {
        /// The file that gets one name more.
        oldnodeid: U64,
    }
    /// `fuse_open_in`.
    OpenIn: 8 {
        /// Flags of `open(2)`.
        flags: U32,
        /// See [`open_in_flag`].
        open_flags: U32,
    }
    /// `fuse_create_in`, before a name.
    CreateIn: 16 {
        /// Flags of `open(2)`.
        flags: U32,
        /// Kind and permissions.
        mode: U32,
        /// Applied already.
        umask: U32,
        /// See [`open_in_flag`].
        open_flags: U32,
    }
    /// `fuse_open_out`.
    OpenOut: 16 {
        /// The kernel names the open file by it.
        fh: U64,
        /// See [`open_flag`].
        open_flags: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_release_in`.
    ReleaseIn: 24 {
        /// The open file.
        fh: U64,
        /// Those of the open.
        flags: U32,
        /// Not used.
        release_flags: U32,
        /// Not used.
        lock_owner: U64,
    }
    /// `fuse_read_in`, also of listings.
    ReadIn: 40 {
        /// The open file.
        fh: U64,
        /// First byte, or the cookie of an entry.
        offset: U64,
        /// How many bytes.
        size: U32,
        /// Not used.
        read_flags: U32,
        /// Not used.
        lock_owner: U64,
        /// Those of the open.
        flags: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_write_in`, before the payload.
    WriteIn: 40 {
        /// The open file.
        fh: U64,
        /// First byte.
        offset: U64,
        /// How many bytes.
        size: U32,
        /// See [`write_flag`].
        write_flags: U32,
        /// Not used.
        lock_owner: U64,
        /// Those of the open.
        flags: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_write_out`.
    WriteOut: 8 {
        /// Bytes that were written.
        size: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_statfs_out`.
    StatfsOut: 80 {
        /// Blocks.
        blocks: U64,
        /// Free blocks.
        bfree: U64,
        /// Free blocks for users.
        bavail: U64,
        /// Files.
        files: U64,
        /// Files that can still be made.
        ffree: U64,
        /// Preferred bytes of a transfer.
        bsize: U32,
        /// Bytes of a name, at most.
        namelen: U32,
        /// Bytes of a block.
        frsize: U32,
        /// Zero.
        padding: U32,
        /// Zeroes.
        spare: [U32; 6],
    }
    /// `fuse_fsync_in`.
    FsyncIn: 16 {
        /// The open file.
        fh: U64,
        /// Whether bytes alone are to be durable.
        fsync_flags: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_flush_in`.
    FlushIn: 24 {
        /// The open file.
        fh: U64,
        /// Not used.
        unused: U32,
        /// Zero.
        padding: U32,
        /// Not used.
        lock_owner: U64,
    }
    /// `fuse_setxattr_in` without `FUSE_SETXATTR_EXT`, before a name and a value.
    SetxattrIn: 8 {
        /// Bytes of the value.
        size: U32,
        /// See [`xattr_flag`].
        flags: U32,
    }
    /// `fuse_getxattr_in`, before a name where one value is asked for.
    GetxattrIn: 8 {
        /// Bytes of the reply, at most; 0 asks for its length.
        size: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_getxattr_out`.
    GetxattrOut: 8 {
        /// Bytes that the reply would have.
        size: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_access_in`.
    AccessIn: 8 {
        /// Permissions in question.
        mask: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_interrupt_in`.
    InterruptIn: 8 {
        /// The request that is interrupted.
        unique: U64,
    }
    /// `fuse_fallocate_in`.
    FallocateIn: 32 {
        /// The open file.
        fh: U64,
        /// First byte.
        offset: U64,
        /// How many bytes.
        length: U64,
        /// See [`fallocate_flag`].
        mode: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_lseek_in`.
    LseekIn: 24 {
        /// The open file.
        fh: U64,
        /// From here on.
        offset: U64,
        /// See [`whence`].
        whence: U32,
        /// Zero.
        padding: U32,
    }
    /// `fuse_lseek_out`.
    LseekOut: 8 {
        /// The place that was found.
        offset: U64,
    }
    /// `fuse_syncfs_in`.
    SyncfsIn: 8 {
        /// Zero.
        padding: U64,
    }
    /// `fuse_notify_inval_inode_out`.
    NotifyInvalInodeOut: 24 {
        /// The file.
        ino: U64,
        /// First byte that is no longer what the kernel remembers; below zero: attributes alone.
        off: I64,
        /// How many bytes.
        len: I64,
    }
    /// `fuse_dirent`, before a name that is padded to 8 bytes.
    Dirent: 24 {
        /// The file.
        ino: U64,
        /// The cookie of this entry: a listing goes on behind it.
        off: U64,
        /// Bytes of the name, without padding.
        namelen: U32,
        /// The kind of the file, as the upper bits of its mode.
        kind: U32,
    }
}
