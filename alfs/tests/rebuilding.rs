//! Volumes whose records are lost.

use crate::host::Host;
use openftl_alfs::block::{Kind, look, seal, zeroes};
use openftl_alfs::mounting::is_unfinished;
use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{FileKind, Inode, MountError, Operation, Options, RebuildReport, Refusal, RenameHow, Reply, Volume};
use openftl_core::{Clock, FrameForm, Time, VirtualClock};
use openftl_parts::target::{BlockTarget, Durability, Request, Target};
use openftl_segments::MemorySegments;
use std::collections::BTreeMap;

type Memory = Host<MemorySegments>;

/// All blocks of this kind and number can be read no more.
fn damage_all(drive: &mut MemorySegments, kind: Kind, identity: u32) {
    let is =
        |block: u64| look(drive.block(block).unwrap()).is_ok_and(|seen| (seen.kind, seen.identity) == (kind, identity));
    let found: Vec<u64> = drive.written().filter(|block| is(*block)).collect();
    found.into_iter().for_each(|block| drive.lose(block));
}

/// The last block of this kind and number can be read no more.
fn damage_block(drive: &mut MemorySegments, kind: Kind, identity: u32) {
    let of = |block: u64| look(drive.block(block)?).ok().filter(|seen| (seen.kind, seen.identity) == (kind, identity));
    let (_, block) = drive.written().filter_map(|block| Some((of(block)?.sequence, block))).max().expect("it is there");
    drive.lose(block);
}

impl Memory {
    /// The records are lost, whether the volume was unmounted or not, and it is made anew.
    fn rebuild(&mut self, is_unmounted: bool, damage: impl FnOnce(&mut MemorySegments)) -> RebuildReport {
        let volume = self.volume.take().unwrap();
        let mut drive = match is_unmounted {
            true => volume.unmount(&mut self.clock).map_err(|(_, error)| error).unwrap(),
            false => volume.into_target(),
        };
        let blocks = drive.segment_blocks().unwrap() * u64::from(ANCHORS);
        drive.submit(self.clock.now(), 0, Request::Trim { first: 0, blocks, durability: Durability::Durable }).unwrap();
        damage(&mut drive);
        let refused = Volume::mount(drive, Options::default(), &mut self.clock);
        let Err((drive, error @ (MountError::RecordsGone | MountError::NoRecord(_)))) = refused else { panic!() };
        assert!(error.to_string().contains("fsck --rebuild"), "{error}");
        let rebuilt = Volume::rebuild(drive, (0, 0), self.time_of_day(), &mut self.clock, &mut |_, _| ());
        let (volume, report) = rebuilt.map_err(|(_, error)| error).unwrap();
        self.volume = Some(volume);
        self.check();
        self.mount_again();
        report
    }

    /// Regular files by path, with their bytes.
    fn tree(&mut self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![(Inode::ROOT, String::new())];
        while let Some((folder, path)) = folders.pop() {
            for name in self.names(folder).into_iter().filter(|name| name != "." && name != "..") {
                let attributes = self.attributes(&Operation::Lookup { parent: folder, name: name.as_bytes() });
                let path = format!("{path}/{name}");
                match attributes.kind {
                    FileKind::Directory => folders.push((attributes.inode, path)),
                    _ => _ = found.insert(path, self.read(attributes.inode, 0, attributes.size as usize)),
                }
            }
        }
        found
    }

    fn remove(&mut self, parent: Inode, name: &str) {
        assert_eq!(self.run(&Operation::Unlink { parent, name: name.as_bytes() }), Ok(Reply::Done));
    }
}

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

/// Files of several sizes in some folders, written over until the file system has cleaned a lot.
fn aged(seed: usize) -> Memory {
    let mut host = Memory::in_memory(90, 32);
    let mut files = Vec::new();
    for folder in 0..4 {
        let parent = host.make(Inode::ROOT, &format!("folder {folder}"), FileKind::Directory);
        for file in 0..30 {
            let inode = host.make(parent, &format!("file {file}"), FileKind::Regular);
            host.write(inode, 0, &bytes(seed + file, 200 + file * 3_000));
            files.push(inode);
        }
    }
    let mut number = seed;
    while host.volume().statistics().segments_cleaned < 60 {
        let file = files[number * 7919 % files.len()];
        host.write(file, (number * 104_729 % 16) as u64 * 4096, &bytes(number, 4096 + number % 9000));
        number += 1;
        assert!(number < seed + 20_000, "it never cleans: {}", host.volume().describe());
        if number.is_multiple_of(5) {
            host.sync();
        }
    }
    host.sync();
    host
}

#[test]
fn of_many_versions_a_rebuild_finds_the_newest() {
    for (seed, is_unmounted) in [(1, true), (2, false), (3, false)] {
        let mut host = aged(seed);
        let before = host.tree();
        host.sync();
        let report = host.rebuild(is_unmounted, |_| ());
        assert_eq!(host.tree(), before);
        assert_eq!((report.lost_and_found, report.lost_blocks, report.files), (0, 0, 120), "{report:#?}");
    }
}

#[test]
fn a_deleted_file_comes_back_only_if_it_was_deleted_by_the_last_sync() {
    let mut host = Memory::in_memory(250, 32);
    let folder = host.make(Inode::ROOT, "folder", FileKind::Directory);
    let other = host.make(Inode::ROOT, "other", FileKind::Directory);
    for (folder, name) in [(folder, "kept"), (folder, "deleted"), (other, "deleted last")] {
        let file = host.make(folder, name, FileKind::Regular);
        host.write(file, 0, name.as_bytes());
    }
    let below = host.make(folder, "below", FileKind::Directory);
    host.make(below, "deleted with its folder", FileKind::Regular);
    host.sync();
    host.remove(folder, "deleted");
    host.remove(below, "deleted with its folder");
    let gone = host.run(&Operation::RemoveDirectory { parent: folder, name: b"below" });
    assert_eq!(gone, Ok(Reply::Done));
    host.rest(100);
    host.sync();
    host.remove(other, "deleted last");
    host.rest(100);
    host.sync();
    let report = host.rebuild(false, |_| ());
    assert_eq!(report.lost_and_found, 1, "{report:#?}");
    let tree = host.tree();
    assert_eq!(tree["/folder/kept"], b"kept");
    assert_eq!(tree.len(), 2, "{tree:?}");
    assert!(tree.iter().any(|(path, bytes)| path.starts_with("/lost+found/#") && bytes == b"deleted last"));
    // The owner of the root alone sees what others have deleted.
    let found = host.attributes(&Operation::Lookup { parent: Inode::ROOT, name: b"lost+found" });
    assert_eq!((found.mode, found.uid), (0o700, 0));
}

#[test]
fn after_an_unmount_no_deleted_file_comes_back() {
    let mut host = Memory::in_memory(250, 32);
    let file = host.make(Inode::ROOT, "deleted", FileKind::Regular);
    host.write(file, 0, &bytes(1, 100_000));
    host.sync();
    host.remove(Inode::ROOT, "deleted");
    let report = host.rebuild(true, |_| ());
    assert_eq!((report.lost_and_found, report.deeds_all), (0, 0), "{report:#?}");
    assert_eq!(host.tree().len(), 0);
}

#[test]
fn files_of_a_folder_that_cannot_be_read_are_in_lost_and_found() {
    let mut host = Memory::in_memory(250, 32);
    let folder = host.make(Inode::ROOT, "folder", FileKind::Directory);
    let below = host.make(folder, "below", FileKind::Directory);
    let first = host.make(folder, "first", FileKind::Regular);
    let second = host.make(below, "second", FileKind::Regular);
    host.write(first, 0, &bytes(1, 100));
    host.write(second, 0, &bytes(2, 50_000));
    let report = host.rebuild(true, |drive| damage_all(drive, Kind::Inode, folder.0));
    assert!(report.unreadable > 0 && report.lost_and_found == 2, "{report:#?}");
    let tree = host.tree();
    assert_eq!(tree[&format!("/lost+found/#{first}")], bytes(1, 100));
    assert_eq!(tree[&format!("/lost+found/#{below}/second")], bytes(2, 50_000));
    assert_eq!(host.lookup(Inode::ROOT, "folder"), Err(Refusal::NotFound));
}

#[test]
fn a_root_that_cannot_be_read_is_made_anew() {
    let mut host = Memory::in_memory(250, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, b"contents");
    let report = host.rebuild(true, |drive| damage_all(drive, Kind::Inode, Inode::ROOT.0));
    assert!(report.deeds.iter().any(|deed| deed.contains("root")), "{report:#?}");
    assert_eq!(host.tree()[&format!("/lost+found/#{file}")], b"contents");
}

#[test]
fn of_a_node_that_cannot_be_read_an_older_one_is_used_and_the_report_says_so() {
    let mut host = Memory::in_memory(250, 32);
    host.make(Inode::ROOT, "first", FileKind::Regular);
    host.sync();
    let second = host.make(Inode::ROOT, "second", FileKind::Regular);
    let report = host.rebuild(true, |drive| damage_block(drive, Kind::Inode, Inode::ROOT.0));
    assert!(report.deeds.iter().any(|deed| deed.contains("node 1 is lost as it was last")), "{report:#?}");
    assert_eq!(host.tree().into_keys().collect::<Vec<_>>(), ["/first".to_owned(), format!("/lost+found/#{second}")]);
}

#[test]
fn contents_that_look_like_nodes_are_contents() {
    let mut host = Memory::in_memory(250, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, b"contents");
    let forged = host.make(Inode::ROOT, "forged", FileKind::Regular);
    let mut block = zeroes();
    seal(&mut block, Kind::Inode, file.0, 1 << 40, 77);
    let image = [vec![7; 4096], block.repeat(200)].concat();
    host.write(forged, 0, &image);
    let report = host.rebuild(true, |_| ());
    assert_eq!(report.deeds_all, 0, "{report:#?}");
    assert_eq!(
        host.tree(),
        BTreeMap::from([("/file".to_owned(), b"contents".to_vec()), ("/forged".to_owned(), image)])
    );
}

#[test]
fn a_sync_that_did_not_end_is_not_mistaken_for_the_last_one_after_a_mount() {
    let mut host = Memory::in_memory(250, 32);
    let folder = host.make(Inode::ROOT, "folder", FileKind::Directory);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, b"before");
    host.sync();
    // A sync that is cut off has written nodes, and its record does not count.
    let (from, to) = (Inode::ROOT, folder);
    let renamed = Operation::Rename { from, from_name: b"file", to, to_name: b"moved", how: RenameHow::Replace };
    assert_eq!(host.run(&renamed), Ok(Reply::Done));
    host.write(file, 0, b"after!");
    host.sync();
    let mut drive = host.volume.take().unwrap().into_target();
    damage_block(&mut drive, Kind::Record, 0);
    host.mount(drive).unwrap();
    host.rest(20_000);
    assert_eq!(host.tree(), BTreeMap::from([("/file".to_owned(), b"before".to_vec())]));
    host.rebuild(false, |_| ());
    assert_eq!(host.tree(), BTreeMap::from([("/file".to_owned(), b"before".to_vec())]));
}

/// A file of 100 blocks, on media for long, the third of which was overwritten in a sync of its own.
fn patched() -> (Memory, Inode) {
    let mut host = Memory::in_memory(250, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(1, 100 << 12));
    host.sync();
    for number in 2..4 {
        host.write(file, 3 << 12, &bytes(number, 4096));
        host.sync();
    }
    assert!(host.volume().patched_nodes() > 0);
    (host, file)
}

fn is_patched(host: &mut Memory, file: Inode, number: usize) -> bool {
    let (before, after) = (bytes(1, 100 << 12), host.read(file, 0, 100 << 12));
    assert!(after[..3 << 12] == before[..3 << 12] && after[4 << 12..] == before[4 << 12..]);
    after[3 << 12..4 << 12] == bytes(number, 4096)
}

#[test]
fn of_many_patches_a_rebuild_takes_the_newest() {
    let (mut host, file) = patched();
    let report = host.rebuild(false, |_| ());
    assert_eq!((report.lost_and_found, report.lost_blocks, report.unreadable), (0, 0, 0), "{report:#?}");
    assert!(is_patched(&mut host, file, 3));
    assert_eq!(host.volume().patched_nodes(), 0, "it has written all nodes whole");
}

#[test]
fn of_a_patch_that_cannot_be_read_a_rebuild_takes_an_older_one() {
    let (mut host, file) = patched();
    let report = host.rebuild(false, |drive| {
        let newest = |block: &u64| {
            Some((look(drive.block(*block)?).ok().filter(|seen| seen.kind == Kind::Patches)?.sequence, *block))
        };
        let (_, block) = drive.written().filter_map(|block| newest(&block)).max().expect("there are patches");
        drive.lose(block);
    });
    assert_eq!((report.unreadable, report.lost_and_found), (1, 0), "{report:#?}");
    assert!(is_patched(&mut host, file, 2));
}

#[test]
fn a_patch_of_a_sync_that_did_not_end_does_not_come_back_with_a_rebuild() {
    let (mut host, file) = patched();
    host.write(file, 3 << 12, &bytes(4, 4096));
    host.sync();
    let mut drive = host.volume.take().unwrap().into_target();
    damage_block(&mut drive, Kind::Record, 0);
    host.mount(drive).unwrap();
    host.rest(20_000);
    assert!(is_patched(&mut host, file, 3));
    host.rebuild(false, |_| ());
    assert!(is_patched(&mut host, file, 3));
}

#[test]
fn where_there_is_no_file_system_nothing_is_rebuilt() {
    let (mut clock, time) = (VirtualClock::default(), openftl_alfs::FileTime::default());
    let drive = MemorySegments::new(64, 16, 600);
    let Err((mut drive, error)) = Volume::rebuild(drive, (0, 0), time, &mut clock, &mut |_, _| ()) else { panic!() };
    assert_eq!(error, MountError::NothingToRebuild);
    let frame = drive.frames_mut().acquire(FrameForm::Bytes).unwrap();
    let write = Request::Write {
        first: u64::from(ANCHORS) * drive.segment_blocks().unwrap(),
        frames: &[frame],
        durability: Durability::Durable,
        handle: openftl_parts::words::Handle::NONE,
    };
    drive.submit(clock.now(), 0, write).unwrap();
    let Err((drive, error)) = Volume::mount(drive, Options::default(), &mut clock) else { panic!() };
    assert_eq!(error, MountError::NoVolume, "another host has written it");
    let rebuilt = Volume::rebuild(drive, (0, 0), time, &mut clock, &mut |_, _| ());
    assert_eq!(rebuilt.map(|_| ()).map_err(|(_, error)| error), Err(MountError::NothingToRebuild));
}

/// A drive with the blocks of those segments of `drive` that are `kept`.
fn copied(drive: &MemorySegments, kept: impl Fn(u32) -> bool) -> MemorySegments {
    let mut copy = MemorySegments::new(64, 16, 600);
    let blocks: Vec<u64> = drive.written().filter(|block| kept((block / 16) as u32)).collect();
    for block in blocks {
        let frame = copy.frames_mut().acquire(FrameForm::Bytes).unwrap();
        *copy.frames_mut().bytes_mut(frame) = *drive.block(block).unwrap();
        let (durability, handle) = (Durability::Durable, openftl_parts::words::Handle::NONE);
        copy.submit(Time::ZERO, 0, Request::Write { first: block, frames: &[frame], durability, handle }).unwrap();
        copy.poll(Time::ZERO, &mut Vec::new());
    }
    copy
}

/// Why the drive is not mounted, and whether it holds what the making of a volume leaves that was cut off.
fn judged(drive: MemorySegments) -> (MountError, bool) {
    let mut clock = VirtualClock::default();
    let Err((mut drive, why)) = Volume::mount(drive, Options::default(), &mut clock) else { panic!("it is mounted") };
    let is_unfinished = is_unfinished(&mut drive, &why, &mut clock).unwrap();
    (why, is_unfinished)
}

#[test]
fn what_a_cut_off_making_leaves_is_told_from_a_volume_that_lost_its_records() {
    let mut clock = VirtualClock::default();
    let (drive, time) = (MemorySegments::new(64, 16, 600), openftl_alfs::FileTime::default());
    let made = Volume::format(drive, 7, (0, 0), time, &mut clock).unwrap().into_target();
    assert!(Volume::mount(copied(&made, |_| true), Options::default(), &mut clock).is_ok());
    assert_eq!(judged(copied(&made, |_| false)), (MountError::NoVolume, true));
    assert_eq!(judged(copied(&made, |segment| segment >= ANCHORS)), (MountError::RecordsGone, true));
    let (why, is_unfinished) = judged(copied(&made, |segment| segment < ANCHORS));
    assert!(matches!(why, MountError::NoRecord(_)) && is_unfinished, "{why}");
    let mut lost = copied(&made, |_| true);
    damage_all(&mut lost, Kind::Record, 0);
    assert!(!judged(lost).1, "what cannot be read may have been anything");
    let (host, _) = patched();
    let used = host.volume.unwrap().into_target();
    assert_eq!(
        judged(copied(&used, |segment| segment >= ANCHORS)),
        (MountError::RecordsGone, false),
        "a file is there"
    );
}
