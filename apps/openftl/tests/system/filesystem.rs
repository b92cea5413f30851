//! ext4 on the drive: made, filled, unmounted, checked and compared; and recovered after `kill -9` of the server in the
//! middle of writing.

use crate::drive::Drive;
use crate::environment::{Need, runs_here};
use crate::mounted::{Disk, text};
use crate::pattern::{next, random_bytes};
use crate::program::{run, wait_for};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const NEEDS: [Need; 8] = [
    Need::Mount,
    Need::Fuse,
    Need::Loop,
    Need::Program("nbdfuse"),
    Need::Program("fusermount3"),
    Need::Program("mkfs.ext4"),
    Need::Program("e2fsck"),
    Need::Program("diff"),
];

/// Fills `folder` with folders, files from empty to megabytes, hard and symbolic links.
fn grow_tree(folder: &Path, seed: u64) -> io::Result<()> {
    let mut state = seed;
    for branch in 0..12 {
        let branch = folder.join(format!("branch {branch}")).join("with").join("twigs");
        fs::create_dir_all(&branch)?;
        for leaf in 0..40 {
            let choice = next(&mut state);
            let bytes = match leaf % 8 {
                0 => 0,
                7 => 1 << 20,
                _ => choice % (96 << 10),
            };
            fs::write(branch.join(format!("leaf {leaf}")), random_bytes(choice, bytes as usize))?;
        }
        fs::hard_link(branch.join("leaf 1"), branch.join("hard"))?;
        std::os::unix::fs::symlink("leaf 2", branch.join("symbolic"))?;
    }
    Ok(())
}

fn same_trees(a: &Path, b: &Path) {
    run("diff", ["--recursive", "--no-dereference", text(a), text(b)]).succeeded();
}

#[test]
fn an_ext4_file_system_keeps_a_tree_of_files_byte_for_byte() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let original = drive.beside("original");
    fs::create_dir(&original).unwrap();
    grow_tree(&original, 5).unwrap();

    let server = drive.serve();
    let disk = Disk::attach(&server);
    disk.make_ext4();
    let mounted = disk.mount();
    run("cp", ["-a", text(&original), text(mounted.path())]).succeeded();
    // What is deleted must not come back.
    grow_tree(&mounted.path().join("deleted"), 7).unwrap();
    fs::remove_dir_all(mounted.path().join("deleted")).unwrap();
    mounted.unmount();
    disk.has_sound_ext4();
    drop(disk);
    server.stop();
    drive.check();

    let server = drive.serve();
    let disk = Disk::attach(&server);
    disk.has_sound_ext4();
    let mounted = disk.mount();
    same_trees(&original, &mounted.path().join("original"));
    let names: Vec<_> = fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "only `original` and `lost+found`, but {names:?}");
    mounted.unmount();
    drop(disk);
    server.stop();
    drive.check();
}

/// Writes file after file until one fails or `stop` is set; counts those that were synced.
fn write_synced_files(folder: &Path, synced: &AtomicUsize, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Acquire) {
        let number = synced.load(Ordering::Acquire);
        let mut file = File::create(folder.join(synced_name(number)))?;
        file.write_all(&synced_contents(number))?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        synced.store(number + 1, Ordering::Release);
    }
    Ok(())
}

fn synced_name(number: usize) -> String {
    format!("synced {number}")
}

fn synced_contents(number: usize) -> Vec<u8> {
    let mut state = number as u64;
    let bytes = 1 + next(&mut state) % (200 << 10);
    random_bytes(state, bytes as usize)
}

/// Writes and deletes without ever syncing, so that there is always something half-way.
fn write_unsynced_files(folder: &Path, stop: &AtomicBool) -> io::Result<()> {
    for number in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let name = |number: u64| -> PathBuf { folder.join(format!("unsynced {number}")) };
        fs::write(name(number), random_bytes(number, 1 << 20))?;
        if number >= 8 {
            fs::remove_file(name(number - 8))?;
        }
    }
    Ok(())
}

#[test]
fn files_synced_before_kill_9_are_intact_after_journal_recovery() {
    if !runs_here(&NEEDS) {
        return;
    }
    let drive = Drive::create();
    let server = drive.serve();
    let disk = Disk::attach(&server);
    disk.make_ext4();
    let mounted = disk.mount();

    let (synced, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let folder = mounted.path().to_owned();
    let writers = [
        std::thread::spawn({
            let (folder, synced, stop) = (folder.clone(), Arc::clone(&synced), Arc::clone(&stop));
            move || write_synced_files(&folder, &synced, &stop)
        }),
        std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || write_unsynced_files(&folder, &stop)
        }),
    ];
    wait_for("forty synced files", || (synced.load(Ordering::Acquire) >= 40).then_some(()));
    server.kill();
    // What is synced from here on would be a lie. One sync may have been answered just before the kill and be counted
    // after it, so the count is taken when the writers are done.
    wait_for("the synced writer to fail", || writers[0].is_finished().then_some(()));
    stop.store(true, Ordering::Release);
    wait_for("the other writer to end", || writers[1].is_finished().then_some(()));
    let [first, second] = writers.map(|writer| writer.join().expect("a writer does not panic"));
    first.expect_err("no file can be synced without a server");
    // Whether the other one notices depends on how much the kernel still takes into its cache.
    drop(second);
    drop(mounted);
    drop(disk);

    let server = drive.serve();
    let disk = Disk::attach(&server);
    disk.repair_ext4();
    disk.has_sound_ext4();
    let mounted = disk.mount();
    let synced = synced.load(Ordering::Acquire);
    for number in 0..synced {
        let file = mounted.path().join(synced_name(number));
        let found = fs::read(&file).unwrap_or_else(|error| panic!("file {number} of {synced} synced: {error}"));
        assert!(found == synced_contents(number), "file {number} of {synced} synced is not as it was written");
    }
    grow_tree(&mounted.path().join("after"), 8).unwrap();
    mounted.unmount();
    disk.has_sound_ext4();
    drop(disk);
    server.stop();
    drive.check();
}
