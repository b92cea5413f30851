//! Nodes that have changed little since they were written whole.

use crate::host::Host;
use openftl_alfs::block::{Kind, look, sign};
use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{FileKind, Inode, MountError, Operation, Options, Refusal, Reply, Volume};
use openftl_parts::target::BlockTarget;
use openftl_segments::MemorySegments;

type Memory = Host<MemorySegments>;

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

/// A volume with a file of so many blocks, which is on media and has no patch.
fn with_file(segments: u32, blocks: usize) -> (Memory, Inode) {
    let mut host = Memory::in_memory(segments, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(1, blocks << 12));
    host.mount_again();
    assert_eq!(host.volume().patched_nodes(), 0, "an unmount writes nodes whole");
    (host, file)
}

impl Memory {
    fn overwrite(&mut self, file: Inode, block: u64, seed: usize) {
        self.write(file, block << 12, &bytes(seed, 4096));
        self.sync();
    }

    /// Nodes and blocks of patches that were written since the mount.
    fn written(&mut self) -> (u64, u64) {
        let statistics = self.volume().statistics();
        (statistics.nodes, statistics.patches)
    }
}

#[test]
fn a_sync_of_a_small_change_writes_a_patch_which_is_there_after_a_crash() {
    let (mut host, file) = with_file(100, 50);
    host.overwrite(file, 7, 2);
    host.overwrite(file, 9, 3);
    assert_eq!(host.written(), (0, 2));
    host.forget_and_mount();
    assert_eq!(host.volume().patched_nodes(), 1);
    let mut expected = bytes(1, 50 << 12);
    expected[7 << 12..8 << 12].copy_from_slice(&bytes(2, 4096));
    expected[9 << 12..10 << 12].copy_from_slice(&bytes(3, 4096));
    assert!(host.read(file, 0, 50 << 12) == expected);
    host.check();
    // What changes from here on is a change of the block on media, too.
    host.overwrite(file, 8, 4);
    expected[8 << 12..9 << 12].copy_from_slice(&bytes(4, 4096));
    host.forget_and_mount();
    assert!(host.read(file, 0, 50 << 12) == expected);
    host.mount_again();
    assert_eq!(host.volume().patched_nodes(), 0);
    assert!(host.read(file, 0, 50 << 12) == expected);
}

#[test]
fn a_node_that_has_changed_much_is_written_whole_and_has_no_patch() {
    let (mut host, file) = with_file(100, 400);
    host.overwrite(file, 399, 2);
    assert_eq!((host.written(), host.volume().patched_nodes()), ((0, 1), 1));
    host.write(file, 0, &bytes(3, 200 << 12));
    host.sync();
    assert_eq!((host.written(), host.volume().patched_nodes()), ((1, 1), 0));
    // Little by little it comes to the same.
    for number in 0..200 {
        host.overwrite(file, number * 2, number as usize);
    }
    let (nodes, patches) = host.written();
    assert!((3..8).contains(&nodes) && patches > 190, "{nodes} nodes, {patches} blocks of patches");
    host.forget_and_mount();
    for number in 0..200 {
        assert_eq!(host.read(file, (number * 2) << 12, 4096), bytes(number as usize, 4096), "block {}", number * 2);
    }
}

#[test]
fn a_sync_without_a_change_of_a_node_writes_none() {
    let (mut host, file) = with_file(100, 10);
    let written = host.written();
    let mode = host.attributes(&Operation::Attributes { inode: file }).mode;
    for mode in [0o600, mode] {
        let changed = Some(openftl_alfs::FileTime::default());
        let changes = openftl_alfs::Changes { mode: Some(mode), changed, ..openftl_alfs::Changes::default() };
        host.attributes(&Operation::SetAttributes { inode: file, changes });
    }
    host.sync();
    let (nodes, patches) = host.written();
    assert_eq!((nodes - written.0, patches - written.1), (0, 0));
}

#[test]
fn patches_and_the_nodes_below_them_are_moved_by_cleaning() {
    let (mut host, file) = with_file(82, 60);
    host.overwrite(file, 5, 2);
    let folder = host.make(Inode::ROOT, "folder", FileKind::Directory);
    let others: Vec<Inode> = (0..30).map(|number| host.make(folder, &format!("{number}"), FileKind::Regular)).collect();
    others.iter().for_each(|other| host.write(*other, 0, &bytes(3, 60 << 12)));
    let (mut number, mut cleaned) = (0, 0);
    while cleaned < 60 {
        let at = number * 2_654_435_761 % 1800;
        host.write(others[at / 60], (at % 60) as u64 * 4096, &bytes(number, 4096));
        number += 1;
        if number.is_multiple_of(3) {
            host.sync();
        }
        if number.is_multiple_of(500) {
            cleaned += host.volume().statistics().segments_cleaned;
            assert_eq!(host.volume().statistics().blocks_forgotten, 0);
            host.forget_and_mount();
        }
        assert!(number < 20_000, "it never cleans: {}", host.volume().describe());
    }
    host.sync();
    host.forget_and_mount();
    assert_eq!(host.read(file, 5 << 12, 4096), bytes(2, 4096));
    assert!(host.read(file, 6 << 12, 54 << 12) == bytes(1, 60 << 12)[6 << 12..]);
    host.check();
}

#[test]
fn more_nodes_are_patched_than_there_is_room_for_patches() {
    let mut host = Memory::in_memory(64, 16);
    let files: Vec<Inode> =
        (0..300).map(|number| host.make(Inode::ROOT, &format!("{number}"), FileKind::Regular)).collect();
    files.iter().for_each(|file| host.write(*file, 0, b"before"));
    host.mount_again();
    for round in 0..4_usize {
        for (number, file) in files.iter().enumerate() {
            host.write(*file, 0, &bytes(number + round, 300));
            if number.is_multiple_of(8) {
                host.sync();
            }
        }
    }
    host.sync();
    let shape = host.volume().segments().shape;
    let patched = host.volume().patched_nodes();
    assert!(patched > 20 && patched <= shape.patches_max() as usize, "{patched}");
    host.forget_and_mount();
    for (number, file) in files.iter().enumerate() {
        assert_eq!(host.read(*file, 0, 300), bytes(number + 3, 300), "file {number}");
    }
    host.check();
}

#[test]
fn a_block_of_patches_that_cannot_be_read_is_an_error_of_its_nodes_and_of_no_others() {
    let (mut host, file) = with_file(100, 50);
    let other = host.make(Inode::ROOT, "other", FileKind::Regular);
    host.write(other, 0, b"contents");
    host.sync();
    host.overwrite(file, 7, 2);
    let mut drive = host.volume.take().unwrap().into_target();
    let of =
        |block: u64| Some((look(drive.block(block)?).ok().filter(|seen| seen.kind == Kind::Patches)?.sequence, block));
    let (_, newest) = drive.written().filter_map(of).max().expect("there is one");
    drive.lose(newest);
    let mounted = Volume::mount(drive, Options::default(), &mut host.clock).map_err(|(_, error)| error);
    host.volume = Some(mounted.unwrap());
    let read = |host: &mut Memory, inode| match host.run(&Operation::Read { inode, offset: 0, bytes: 4 }) {
        Ok(Reply::Data(data)) => {
            openftl_alfs::FileSystem::give_back(host.volume(), data);
            Ok(())
        }
        other => other.map(|reply| panic!("{reply:?}")),
    };
    assert_eq!(read(&mut host, file), Err(Refusal::Device), "what is on media of it is an older version");
    assert_eq!(read(&mut host, other), Ok(()));
    // It goes, as other nodes do that cannot be read, and the volume is used on.
    host.write(other, 0, &bytes(5, 200_000));
    host.sync();
    let drive = host.volume.take().unwrap().unmount(&mut host.clock).map_err(|(_, error)| error).unwrap();
    let mounted = Volume::mount(drive, Options::default(), &mut host.clock).map_err(|(_, error)| error);
    host.volume = Some(mounted.unwrap());
    assert_eq!(host.read(other, 0, 200_000), bytes(5, 200_000));
    assert_eq!(read(&mut host, file), Err(Refusal::Device));
}

/// The newest block of a kind that is on the drive.
fn newest(drive: &MemorySegments, kind: Kind) -> u64 {
    let of = |block: u64| Some((look(drive.block(block)?).ok().filter(|seen| seen.kind == kind)?.sequence, block));
    drive.written().filter_map(of).max().expect("there is one").1
}

#[test]
fn a_record_whose_patches_were_never_written_does_not_count() {
    let (mut host, file) = with_file(100, 50);
    host.overwrite(file, 7, 2);
    host.overwrite(file, 7, 3);
    let mut drive = host.volume.take().unwrap().into_target();
    // The write pointer is behind it, as of a segment whose medium has failed and does not say how far it is written.
    let patches = newest(&drive, Kind::Patches);
    drive.block_mut(patches).unwrap().fill(0);
    let mounted = Volume::mount(drive, Options::default(), &mut host.clock).map_err(|(_, error)| error);
    host.volume = Some(mounted.unwrap());
    assert_eq!(host.read(file, 7 << 12, 4096), bytes(2, 4096), "as the record before says");
    assert_eq!(host.read(file, 8 << 12, 4096), bytes(1, 50 << 12)[8 << 12..9 << 12]);
    host.overwrite(file, 7, 4);
    host.forget_and_mount();
    assert_eq!(host.read(file, 7 << 12, 4096), bytes(4, 4096));
    host.check();
}

#[test]
fn what_an_unfinished_sync_has_patched_is_not_forgotten_by_a_second_crash() {
    let (mut host, file) = with_file(100, 50);
    host.overwrite(file, 7, 2);
    let mut drive = host.volume.take().unwrap().into_target();
    // The record of that sync never came to the anchor.
    let record = newest(&drive, Kind::Record);
    drive.block_mut(record).unwrap().fill(0);
    let mounted = Volume::mount(drive, Options::default(), &mut host.clock).map_err(|(_, error)| error);
    host.volume = Some(mounted.unwrap());
    host.forget_and_mount();
    let volume = host.volume.take().unwrap();
    let mut drive = volume.unmount(&mut host.clock).map_err(|(_, error)| error).unwrap();
    let anchors = u64::from(ANCHORS) * drive.segment_blocks().unwrap();
    let records: Vec<u64> = drive.written().filter(|block| *block < anchors).collect();
    records.into_iter().for_each(|block| drive.lose(block));
    let time = host.time_of_day();
    let rebuilt = Volume::rebuild(drive, (0, 0), time, &mut host.clock, &mut |_, _| ()).map_err(|(_, error)| error);
    host.volume = Some(rebuilt.unwrap().0);
    assert!(host.read(file, 0, 50 << 12) == bytes(1, 50 << 12), "the patch is of a sync that was never over");
}

#[test]
fn a_volume_of_another_version_whose_records_are_damaged_or_gone_is_no_empty_drive() {
    type Damage = fn(&mut MemorySegments, u64);
    let damages: [Damage; 3] = [
        |drive, blocks| drive.block_mut(0).into_iter().for_each(|block| block[..blocks as usize].fill(0)),
        |drive, blocks| (0..2 * blocks).for_each(|block| _ = drive.block_mut(block).map(|block| block.fill(7))),
        |drive, blocks| (0..2 * blocks).for_each(|block| _ = drive.block_mut(block).map(|_| ())),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let (mut host, _) = with_file(100, 5);
        host.forget_and_mount();
        let mut drive = host.volume.take().unwrap().into_target();
        for block in drive.written().collect::<Vec<_>>() {
            let bytes = drive.block_mut(block).unwrap();
            if look(bytes).is_ok() {
                bytes[5] = 1;
                sign(bytes);
            }
        }
        let blocks = drive.segment_blocks().unwrap();
        damage(&mut drive, blocks);
        let Err((drive, error)) = Volume::mount(drive, Options::default(), &mut host.clock) else { panic!() };
        assert_eq!(error, MountError::OtherVersion(1), "damage {number}");
        let time = openftl_alfs::FileTime::default();
        let rebuilt = Volume::rebuild(drive, (0, 0), time, &mut host.clock, &mut |_, _| ());
        assert_eq!(rebuilt.map(|_| ()).map_err(|(_, error)| error), Err(MountError::OtherVersion(1)));
    }
}

#[test]
fn a_volume_of_another_version_is_refused_with_the_way_out() {
    let (mut host, _) = with_file(100, 5);
    let mut drive = host.volume.take().unwrap().unmount(&mut host.clock).map_err(|(_, error)| error).unwrap();
    let anchors = u64::from(ANCHORS) * drive.segment_blocks().unwrap();
    let records: Vec<u64> = drive.written().filter(|block| *block < anchors).collect();
    for block in records {
        let bytes = drive.block_mut(block).unwrap();
        bytes[5] = 1;
        sign(bytes);
    }
    let Err((drive, error)) = Volume::mount(drive, Options::default(), &mut host.clock) else { panic!() };
    assert_eq!(error, MountError::OtherVersion(1));
    assert!(error.to_string().contains("openftl alfs mkfs"), "{error}");
    let time = openftl_alfs::FileTime::default();
    let rebuilt = Volume::rebuild(drive, (0, 0), time, &mut host.clock, &mut |_, _| ());
    assert_eq!(rebuilt.map(|_| ()).map_err(|(_, error)| error), Err(MountError::OtherVersion(1)));
}
