//! A mount: the connection with the kernel, and the folder at which programs see the file system.
//!
//! Root mounts by itself; others through `fusermount3`, which is set-user-ID root and passes the connection back over a socket.

use crate::mount_table;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use std::ffi::CString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The helper of those who are not root.
const HELPER: &str = "fusermount3";

/// The type of the file system, as `/proc/mounts` shows it behind `fuse.`.
const SUBTYPE: &str = "alfs";

/// Who mounts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mounter {
    /// This process if it is root, else the helper.
    #[default]
    Either,
    /// This process.
    Own,
    /// `fusermount3`.
    Helper,
}

/// How a file system is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// The name that `/proc/mounts` and `df` show as the device.
    pub name: String,
    /// Other users may use it, too. Who is not root needs `user_allow_other` in `/etc/fuse.conf` for that.
    pub allow_other: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Who mounts.
    pub mounter: Mounter,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions { name: "openftl".to_owned(), allow_other: false, read_only: false, mounter: Mounter::Either }
    }
}

/// Why a file system is not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The folder is missing.
    #[error("{0} does not exist; create the folder first")]
    Missing(PathBuf),
    /// It is no folder.
    #[error("{0} is not a folder")]
    NotADirectory(PathBuf),
    /// Something is mounted there.
    #[error("{folder} is a mount of {name} already; unmount it first (fusermount3 -u, or umount as root)", folder = .folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
        /// The name of that mount.
        name: String,
    },
    /// The kernel has no FUSE.
    #[error("there is no /dev/fuse; load the kernel module fuse, or give the container this device")]
    NoDevice,
    /// `/dev/fuse` cannot be opened.
    #[error("/dev/fuse cannot be opened: {0}")]
    Device(Errno),
    /// There is no helper.
    #[error("fusermount3 is missing, and only root can mount without it; install the package fuse3")]
    NoHelper,
    /// The helper did not mount.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// The kernel did not mount.
    #[error("{folder} cannot be mounted: {errno}", folder = .folder.display())]
    Refused {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        errno: Errno,
    },
    /// Something else went wrong.
    #[error("{folder} cannot be mounted: {error}", folder = .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
}

/// A mounted file system. It is unmounted when this is dropped: lazily if programs still use it.
#[derive(Debug)]
pub struct Mount {
    device: Arc<OwnedFd>,
    place: MountPlace,
}

/// Where a file system is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPlace {
    folder: PathBuf,
    by_helper: bool,
    /// The device number of the mount, if `/proc` tells.
    device_number: Option<String>,
}

/// How an attempt to unmount ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// It is unmounted, or was before.
    Gone,
    /// Programs use it.
    Busy,
}

impl Mount {
    /// Mounts at `folder`. Programs wait for the first answers until somebody serves the mount.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn new(folder: &Path, options: &MountOptions) -> Result<Mount, MountError> {
        let folder = check_folder(folder)?;
        let by_helper = match options.mounter {
            Mounter::Either => !rustix::process::geteuid().is_root(),
            Mounter::Own => false,
            Mounter::Helper => true,
        };
        let device = if by_helper { mount_by_helper(&folder, options)? } else { mount(&folder, options)? };
        let device_number = mount_table::find(&folder).map(|found| found.device_number);
        Ok(Mount { device: Arc::new(device), place: MountPlace { folder, by_helper, device_number } })
    }

    /// The connection.
    #[must_use]
    pub fn device(&self) -> &Arc<OwnedFd> {
        &self.device
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &MountPlace {
        &self.place
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.place.unmount_lazily();
    }
}

impl MountPlace {
    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts unless programs use it. The kernel writes its cache before, so somebody has to serve the mount.
    #[must_use]
    pub fn unmount(&self) -> Unmounted {
        self.unmount_with(UnmountFlags::NOFOLLOW, &["-u", "-q"])
    }

    /// Unmounts; programs that use it keep what they have open.
    pub fn unmount_lazily(&self) {
        let _ = self.unmount_with(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, &["-u", "-q", "-z"]);
    }

    fn unmount_with(&self, flags: UnmountFlags, helper_arguments: &[&str]) -> Unmounted {
        // Another file system may be there by now.
        let found = mount_table::find(&self.folder).map(|found| found.device_number);
        if self.device_number.is_some() && found != self.device_number {
            return Unmounted::Gone;
        }
        if self.by_helper {
            let mut helper = Command::new(HELPER);
            let helper = helper.args(helper_arguments).arg("--").arg(&self.folder);
            let status = helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            return if status.is_ok_and(|status| status.success()) { Unmounted::Gone } else { Unmounted::Busy };
        }
        match rustix::mount::unmount(&self.folder, flags) {
            Err(Errno::BUSY) => Unmounted::Busy,
            _ => Unmounted::Gone,
        }
    }
}

/// The absolute path of a folder that is free for a mount.
fn check_folder(folder: &Path) -> Result<PathBuf, MountError> {
    // A mount whose server has died answers nothing, so it is looked for before anything asks it.
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let occupied = |folder: &Path| match mount_table::find(folder) {
        Some(found) if folder != Path::new("/") => {
            Err(MountError::Occupied { folder: folder.to_owned(), name: found.name })
        }
        _ => Ok(()),
    };
    occupied(&absolute)?;
    let folder = match std::fs::canonicalize(&absolute) {
        Ok(folder) => folder,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(MountError::Missing(absolute)),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(MountError::NotADirectory(absolute));
        }
        Err(error) => return Err(MountError::Io { folder: absolute, error }),
    };
    occupied(&folder)?;
    if folder.is_dir() { Ok(folder) } else { Err(MountError::NotADirectory(folder)) }
}

/// Options of a mount that the helper and the kernel know alike.
fn options_text(options: &MountOptions) -> String {
    let max_read = openftl_alfs::operation::PAYLOAD_BYTES_MAX;
    let allow_other = if options.allow_other { ",allow_other" } else { "" };
    format!("default_permissions,max_read={max_read}{allow_other}")
}

fn mount(folder: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::openat(CWD, "/dev/fuse", flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
        errno => MountError::Device(errno),
    })?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let text =
        format!("fd={},rootmode=40000,user_id={uid},group_id={gid},{}", device.as_raw_fd(), options_text(options));
    let text = CString::new(text).expect("options have no NUL");
    let flags = if options.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    rustix::mount::mount(options.name.as_str(), folder, format!("fuse.{SUBTYPE}"), flags, text.as_c_str())
        .map_err(|errno| MountError::Refused { folder: folder.to_owned(), errno })?;
    Ok(device)
}

fn mount_by_helper(folder: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |error| MountError::Io { folder: folder.to_owned(), error };
    let (own, helpers) = UnixStream::pair().map_err(failed)?;
    // The helper's list of options is separated by commas.
    let name = options.name.replace('\\', "\\\\").replace(',', "\\,");
    let read_only = if options.read_only { ",ro" } else { "" };
    let text = format!("fsname={name},subtype={SUBTYPE}{read_only},{}", options_text(options));
    let mut helper = Command::new(HELPER);
    helper.args(["-o", &text, "--"]).arg(folder);
    // The socket is the helper's standard input: the only way to pass it that needs no unsafe code.
    helper.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(helpers)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = helper.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => MountError::NoHelper,
        _ => failed(error),
    })?;
    // Its other end is closed here, so the receive ends when the helper does.
    drop(helper);
    let device = receive_device(&own);
    let output = child.wait_with_output().map_err(failed)?;
    match device.map_err(|errno| MountError::Refused { folder: folder.to_owned(), errno })? {
        Some(device) => Ok(device),
        None => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let message = message.strip_prefix("fusermount3: ").map(str::to_owned).unwrap_or(message);
            Err(MountError::Helper(if message.is_empty() { output.status.to_string() } else { message }))
        }
    }
}

/// Receives the connection: one byte with a file descriptor. `None`: the helper has closed the socket.
fn receive_device(socket: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Another file descriptor of the same connection, with a queue of its own in the kernel: `None` if the kernel refuses that.
pub(crate) fn clone_device(device: &OwnedFd) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let clone = rustix::fs::openat(CWD, "/dev/fuse", flags, Mode::empty()).ok()?;
    let number = u32::try_from(device.as_fd().as_raw_fd()).ok()?;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one 32-bit number from its argument, which is the input of this setter, and writes nothing.
    let cloned = unsafe {
        let request = rustix::ioctl::Setter::<{ rustix::ioctl::opcode::read::<u32>(229, 0) }, u32>::new(number);
        rustix::ioctl::ioctl(&clone, request)
    };
    cloned.ok().map(|()| clone)
}

/// The bytes of a path.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
