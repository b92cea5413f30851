//! A file system that the kernel has mounted, used as programs use one. Skipped where nothing can be mounted.

use crate::memory::Memory;
use openftl_core::Nanos;
use openftl_fuse::{
    JumpingClock, Mount, MountError, MountOptions, Mounter, ServeClock, ServeOptions, Served, Stopper, WallClock, serve,
};
use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// Longer than anything here takes: a server that hangs fails a test instead of holding it up.
const PATIENCE: Duration = Duration::from_secs(60);

struct Mounted {
    folder: TempDir,
    stopper: Stopper,
    served: mpsc::Receiver<Served<Memory>>,
    thread: JoinHandle<()>,
}

impl Mounted {
    /// `None`: the kernel, or this user, cannot mount.
    fn new(options: &MountOptions, latency: Nanos, threads: usize) -> Option<Mounted> {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = match Mount::new(folder.path(), options) {
            Ok(mount) => mount,
            Err(error @ (MountError::NoDevice | MountError::Device(_) | MountError::NoHelper)) => {
                eprintln!("skipped: {error}");
                return None;
            }
            Err(error @ MountError::Refused { errno: Errno::PERM | Errno::ACCESS, .. }) => {
                eprintln!("skipped: {error}");
                return None;
            }
            Err(error @ MountError::Helper(_)) if !rustix::process::geteuid().is_root() => {
                eprintln!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let stopper = Stopper::default();
        let (sender, served) = mpsc::channel();
        let stop = stopper.clone();
        let thread = thread::spawn(move || {
            let clock: &dyn ServeClock =
                if latency == Nanos::ZERO { &JumpingClock::default() } else { &WallClock::new() };
            let options = ServeOptions { threads, ..ServeOptions::default() };
            let _ = sender.send(serve(mount, Memory::new(latency), clock, &options, &stop));
        });
        Some(Mounted { folder, stopper, served, thread })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The file system after a stop.
    fn stop(self) -> (Served<Memory>, TempDir) {
        self.stopper.stop();
        self.wait()
    }

    fn wait(self) -> (Served<Memory>, TempDir) {
        let served = self.served.recv_timeout(PATIENCE).expect("serving ends");
        self.thread.join().expect("no panic");
        assert_eq!(served.synced, Ok(()));
        assert_eq!(served.counts.malformed, 0);
        assert_eq!(served.fs.holds(), 0, "no reference outlives the connection");
        assert_eq!(served.fs.open_reads(), 0, "memory of reads is given back");
        (served, self.folder)
    }
}

fn instant() -> Option<Mounted> {
    Mounted::new(&MountOptions::default(), Nanos::ZERO, 4)
}

#[test]
fn files_are_used_as_programs_use_them() {
    let Some(mounted) = instant() else { return };
    let path = mounted.path().join("file");
    let data: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 253) as u8).collect();
    fs::write(&path, &data).unwrap();
    assert_eq!(fs::read(&path).unwrap(), data);
    assert_eq!(fs::metadata(&path).unwrap().len(), data.len() as u64);

    // Bytes that were written come from the file system, not from the cache alone.
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut bytes = vec![0; 100_000];
    file.read_exact_at(&mut bytes, 1_234_567).unwrap();
    assert_eq!(bytes, data[1_234_567..1_334_567]);

    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [&data[..5000], &[0; 4000]].concat());
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let mut appended = OpenOptions::new().append(true).open(&path).unwrap();
    appended.write_all(b"one").unwrap();
    appended.write_all(b"two").unwrap();
    drop(appended);
    assert_eq!(fs::read(&path).unwrap(), b"onetwo");
    assert_eq!(
        OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );

    // Direct transfers go around the cache.
    let mut options = OpenOptions::new();
    options.write(true).read(true).create(true).truncate(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let direct = options.open(mounted.path().join("direct")).unwrap();
    direct.write_all_at(&[9; 8192], 4096).unwrap();
    let mut bytes = vec![1; 12_288];
    direct.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [vec![0; 4096], vec![9; 8192]].concat());
    drop((file, direct));
    let (served, folder) = mounted.stop();
    assert!(!served.was_busy);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it is unmounted");
    assert!(served.fs.syncs >= 2, "one of the program, one at the end");
}

#[test]
fn ten_thousand_names_are_listed_once_each() {
    let Some(mounted) = instant() else { return };
    let folder = mounted.path().join("many");
    fs::create_dir(&folder).unwrap();
    let wanted: BTreeSet<String> = (0..10_000).map(|number| format!("name-{number}")).collect();
    for name in &wanted {
        File::create(folder.join(name)).unwrap();
    }
    for _ in 0..3 {
        let found: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(found.len(), wanted.len());
        let found: BTreeSet<_> = found.into_iter().map(|name| name.into_string().unwrap()).collect();
        assert_eq!(found, wanted);
    }
    // Removed while it is listed, as `rm -r` does.
    for entry in fs::read_dir(&folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    // A listing that the kernel keeps knows a new name.
    File::create(folder.join("new")).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
    let (served, _) = mounted.stop();
    assert_eq!(served.fs.files(), 1);
}

#[test]
fn names_links_and_kinds_are_those_of_a_file_system() {
    let Some(mounted) = instant() else { return };
    let at = |name: &str| mounted.path().join(name);
    fs::write(at("a"), b"a").unwrap();
    fs::write(at("b"), b"b").unwrap();
    rustix::fs::renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(at("a")).unwrap(), b"b");
    let refused = rustix::fs::renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(Errno::EXIST));
    // A file that is open stays when its name goes to another one.
    let mut open = File::open(at("b")).unwrap();
    fs::rename(at("a"), at("b")).unwrap();
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"a");
    assert_eq!(open.metadata().unwrap().nlink(), 0);

    fs::hard_link(at("b"), at("c")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 2);
    symlink("b", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("b"));
    assert_eq!(fs::read(at("link")).unwrap(), b"b");
    let (mode, kind) = (rustix::fs::Mode::from_raw_mode(0o600), rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(CWD, at("pipe"), kind, mode, 0).unwrap();
    assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());

    fs::create_dir(at("folder")).unwrap();
    assert_eq!(fs::metadata(mounted.path()).unwrap().nlink(), 3);
    fs::write(at("folder/inside"), b"").unwrap();
    assert_eq!(fs::remove_dir(at("folder")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::rename(at("folder"), at("folder/below")).unwrap_err().kind(), ErrorKind::InvalidInput);
    fs::set_permissions(at("b"), PermissionsExt::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(at("c")).unwrap().mode(), 0o104_711);
    assert_eq!(fs::metadata(at("none")).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(at("none"), b"now there").unwrap();
    assert_eq!(fs::read(at("none")).unwrap(), b"now there");
    assert_eq!(fs::write(at(&"x".repeat(256)), b"").unwrap_err().kind(), ErrorKind::InvalidFilename);

    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let file = File::options().write(true).open(at("b")).unwrap();
    file.write_all_at(b"later", 0).unwrap();
    file.set_modified(time).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::metadata(at("b")).unwrap().modified().unwrap(), time);
    drop(open);
    let (served, _) = mounted.stop();
    assert!(!served.was_busy);
}

#[test]
fn seek_finds_bytes_that_the_kernel_has_not_written() {
    let Some(mounted) = instant() else { return };
    let file = File::create_new(mounted.path().join("file")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"in the kernel's cache", 500_000).unwrap();
    let data = rustix::fs::seek(&file, SeekFrom::Data(0)).expect("there are bytes");
    assert!(data <= 500_000, "{data}");
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(500_000)).unwrap();
    assert!(hole > 500_000, "{hole}");
    drop(file);
    let _ = mounted.stop();
}

/// Some times are the kernel's and some are the file system's.
#[test]
fn times_of_a_file_never_go_back() {
    let Some(mounted) = instant() else { return };
    let time = |metadata: fs::Metadata| (metadata.ctime(), metadata.ctime_nsec());
    for number in 0..100 {
        let path = mounted.path().join(format!("file-{number}"));
        let mut file = File::create_new(&path).unwrap();
        let made = time(file.metadata().unwrap());
        file.write_all(b"in the kernel's cache").unwrap();
        let written = time(file.metadata().unwrap());
        fs::rename(&path, path.with_extension("renamed")).unwrap();
        let renamed = time(file.metadata().unwrap());
        assert!(made <= written && written <= renamed, "file {number}: {made:?}, {written:?}, {renamed:?}");
    }
    let _ = mounted.stop();
}

#[test]
fn extended_attributes_holes_and_room_are_passed_on() {
    let Some(mounted) = instant() else { return };
    let path = mounted.path().join("file");
    fs::write(&path, [7; 10_000]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    rustix::fs::setxattr(&path, "user.name", b"value", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::setxattr(&path, "user.name", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    let mut value = [0; 64];
    assert_eq!(rustix::fs::getxattr(&path, "user.name", &mut value), Ok(5));
    assert_eq!(&value[..5], b"value");
    assert_eq!(rustix::fs::getxattr(&path, "user.name", &mut [0; 4]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&path, &mut value), Ok(10));
    assert_eq!(rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value), Err(Errno::OPNOTSUPP));
    rustix::fs::removexattr(&path, "user.name").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.name", &mut value), Err(Errno::NODATA));

    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20_000);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 100, 200).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 19_000, 2000).unwrap();
    let wanted = [vec![7; 100], vec![0; 200], vec![7; 9700], vec![0; 11_000]].concat();
    assert_eq!(fs::read(&path).unwrap(), wanted);
    assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(5)), Ok(21_000));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(30_000)), Err(Errno::NXIO));
    assert_eq!((&file).seek(std::io::SeekFrom::End(0)).unwrap(), 21_000);
    let room = rustix::fs::statvfs(mounted.path()).unwrap();
    assert_eq!(
        (room.f_blocks, room.f_bavail, room.f_files, room.f_namemax, room.f_frsize),
        (1000, 900, 800, 255, 4096)
    );
    // Copies in the kernel, and mapped memory's way, go through reads and writes.
    assert_eq!(fs::copy(&path, mounted.path().join("copy")).unwrap(), 21_000);
    assert_eq!(fs::read(mounted.path().join("copy")).unwrap(), wanted);
    drop(file);
    let _ = mounted.stop();
}

#[test]
fn many_programs_wait_for_a_slow_device_at_once() {
    let latency = Nanos::from_millis(2);
    let Some(mounted) = Mounted::new(&MountOptions::default(), latency, 3) else { return };
    thread::scope(|scope| {
        for number in 0..6_u8 {
            let path = mounted.path().join(format!("file-{number}"));
            scope.spawn(move || {
                let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
                for turn in 0..20_u64 {
                    file.write_all_at(&[number + turn as u8; 4096], turn * 4096).unwrap();
                    file.sync_data().unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                    let mut bytes = [0; 4096];
                    file.read_exact_at(&mut bytes, turn * 4096).unwrap();
                    assert_eq!(bytes, [number + turn as u8; 4096]);
                }
            });
        }
    });
    let (served, _) = mounted.stop();
    assert_eq!(served.fs.syncs, 121);
    eprintln!("{} attempts, {} polls", served.fs.attempts, served.fs.polls);
}

#[test]
fn stop_ends_the_serving_of_a_mount_that_is_in_use() {
    let Some(mounted) = instant() else { return };
    let mut file = File::create(mounted.path().join("file")).unwrap();
    file.write_all(b"in the cache").unwrap();
    let (served, folder) = mounted.stop();
    assert!(served.was_busy);
    assert_eq!(served.fs.files(), 2);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it is unmounted");
    // The connection is closed.
    assert!(file.sync_all().is_err());
}

#[test]
fn what_others_unmount_is_returned() {
    let Some(mounted) = instant() else { return };
    fs::write(mounted.path().join("file"), b"abc").unwrap();
    let status = Command::new("umount").arg(mounted.path()).status();
    if !status.is_ok_and(|status| status.success()) {
        assert!(Command::new("fusermount3").arg("-u").arg(mounted.path()).status().unwrap().success());
    }
    let (served, _) = mounted.wait();
    assert_eq!((served.fs.files(), served.was_busy), (2, false));
}

#[test]
fn helper_of_other_users_mounts_and_unmounts() {
    let options = MountOptions { mounter: Mounter::Helper, name: "a,b\\c d".to_owned(), ..MountOptions::default() };
    let Some(mounted) = Mounted::new(&options, Nanos::ZERO, 2) else { return };
    fs::write(mounted.path().join("file"), b"abc").unwrap();
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(mounted.path().to_str().unwrap())).expect("a mount");
    assert!(line.starts_with("a,b\\134c\\040d ") && line.contains(" fuse.alfs "), "{line}");
    let open = File::open(mounted.path().join("file")).unwrap();
    let (served, folder) = mounted.stop();
    assert!(served.was_busy);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it is unmounted");
    drop(open);
}

#[test]
fn read_only_mounts_refuse_changes() {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let Some(mounted) = Mounted::new(&options, Nanos::ZERO, 1) else { return };
    assert_eq!(fs::write(mounted.path().join("file"), b"").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let _ = mounted.stop();
}

#[test]
fn folders_that_cannot_be_mounted_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |path: &Path| Mount::new(path, &MountOptions::default()).expect_err("no mount");
    assert!(matches!(mount(&folder.path().join("none")), MountError::Missing(_)));
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(mount(&file), MountError::NotADirectory(_)));
    assert!(matches!(mount(&file.join("below")), MountError::NotADirectory(_)));
    let Some(mounted) = instant() else { return };
    let error = mount(mounted.path());
    assert!(matches!(&error, MountError::Occupied { name, .. } if name == "openftl"), "{error}");
    let _ = mounted.stop();
}

#[test]
fn panic_of_the_file_system_ends_the_mount_and_reaches_the_caller() {
    let Some(mounted) = instant() else { return };
    fs::write(mounted.path().join("file"), b"abc").unwrap();
    // Whoever waits for an answer gets an error when the connection is closed.
    assert!(fs::metadata(mounted.path().join("panic")).is_err());
    assert_eq!(mounted.served.recv_timeout(PATIENCE).map(drop), Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(mounted.thread.join().is_err());
    assert_eq!(fs::read_dir(mounted.folder.path()).unwrap().count(), 0, "it is unmounted");
}
