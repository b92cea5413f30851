//! ext4 on a served drive: `nbdfuse` shows the export as a file, a loop device makes it a disk.
//!
//! ```text
//!   folder/files   ext4
//!   /dev/loopN     loop device
//!   folder/export/nbd   nbdfuse
//!   NBD
//! ```
//!
//! Each layer is a guard that takes itself down when dropped, upper ones first, also when the server below is dead.

use crate::program::{Ended, Running, run, wait_for};
use crate::server::Server;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The export as a block device. Fields are dropped in their order: the loop device goes before the file it lies on.
pub struct Disk {
    loop_device: LoopDevice,
    _export: Export,
}

struct LoopDevice(String);

struct Export {
    nbdfuse: Running,
    folder: TempDir,
}

/// A mounted file system.
pub struct Mounted {
    folder: TempDir,
    mounted: bool,
}

impl Disk {
    /// The drive of `server` as a block device.
    pub fn attach(server: &Server) -> Disk {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = text(folder.path()).to_owned();
        let mut export = Export { nbdfuse: Running::start("nbdfuse", [path.as_str(), &server.uri()]), folder };
        let file = export.folder.path().join("nbd");
        wait_for("nbdfuse to show the export", || {
            if let Some(ended) = export.nbdfuse.ended() {
                panic!("{ended}");
            }
            std::fs::metadata(&file).ok()
        });
        // Another test may take the free device between its finding and its use: losetup says so and is asked again.
        let loop_device = wait_for("a loop device", || {
            let ended = run("losetup", ["--find", "--show", text(&file)]);
            ended.status.success().then(|| LoopDevice(ended.stdout.trim().to_owned()))
        });
        Disk { loop_device, _export: export }
    }

    /// The block device.
    pub fn device(&self) -> &str {
        &self.loop_device.0
    }

    /// Makes an empty ext4 of it.
    pub fn make_ext4(&self) {
        run("mkfs.ext4", ["-q", "-F", self.device()]).succeeded();
    }

    /// Asserts that the file system has no error, without touching it.
    pub fn has_sound_ext4(&self) {
        run("e2fsck", ["-f", "-n", self.device()]).succeeded();
    }

    /// Repairs the file system: replays its journal and mends what that leaves.
    pub fn repair_ext4(&self) -> Ended {
        let ended = run("e2fsck", ["-f", "-y", self.device()]);
        // e2fsck(8): 0 no errors, 1 errors corrected; all else is damage or failure.
        assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended}");
        ended
    }

    /// Mounts the file system.
    pub fn mount(&self) -> Mounted {
        self.try_mount().unwrap_or_else(|ended| panic!("{ended}"))
    }

    /// Mounts the file system if that can be done.
    pub fn try_mount(&self) -> Result<Mounted, Ended> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ended = run("mount", ["-t", "ext4", self.device(), text(folder.path())]);
        if ended.status.success() { Ok(Mounted { folder, mounted: true }) } else { Err(ended) }
    }
}

impl Mounted {
    /// The root of the file system.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Unmounts it, so that everything is written.
    pub fn unmount(mut self) {
        run("umount", [text(self.folder.path())]).succeeded();
        self.mounted = false;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Above a dead server the plain form can fail, so the lazy one is tried too.
        if self.mounted && !run("umount", [text(self.folder.path())]).status.success() {
            run("umount", ["--lazy", text(self.folder.path())]);
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", ["--detach", &self.0]);
        let backing = PathBuf::from("/sys/block").join(self.0.trim_start_matches("/dev/")).join("loop/backing_file");
        if !std::thread::panicking() {
            wait_for("the loop device to be free", || (!backing.exists()).then_some(()));
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let folder = text(self.folder.path()).to_owned();
        if !run("fusermount3", ["-u", &folder]).status.success() {
            run("umount", ["--lazy", &folder]);
        }
        if !std::thread::panicking() {
            wait_for("nbdfuse to end", || self.nbdfuse.ended());
        }
    }
}

/// `path` as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain letters")
}
