//! Media that fail below a volume.

use crate::host::Host;
use openftl_alfs::segments::{ANCHORS, Log, State};
use openftl_alfs::{FileKind, FileSystem, Inode, Operation, Options, Refusal, Reply, Volume};
use openftl_parts::target::SegmentTarget;
use openftl_segments::MemorySegments;

type Memory = Host<MemorySegments>;

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

impl Memory {
    /// The power is cut, and the volume is mounted again.
    fn cut_and_mount(&mut self) {
        let mut drive = self.volume.take().unwrap().into_target();
        drive.power_cut();
        self.mount(drive).unwrap();
    }

    /// The same, read-only.
    fn cut_and_mount_to_read(&mut self) {
        let mut drive = self.volume.take().unwrap().into_target();
        drive.power_cut();
        let read_only = Options { is_read_only: true, ..Options::default() };
        self.volume = Some(Volume::mount(drive, read_only, &mut self.clock).map_err(|(_, error)| error).unwrap());
    }

    fn failed(&mut self) -> u64 {
        self.volume().segments().failures
    }

    fn segment_of(&mut self, log: Log) -> u32 {
        self.volume().segments().heads[log as usize].as_ref().unwrap().segment
    }
}

/// A volume with a file whose last blocks are in memory and in each log.
fn filled() -> (Memory, Inode) {
    let mut host = Memory::in_memory(100, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(1, 300_000));
    for number in 0..200 {
        host.make(Inode::ROOT, &format!("a long name of number {number}"), FileKind::Fifo);
    }
    host.sync();
    (host, file)
}

#[test]
fn what_was_to_go_to_a_segment_that_fails_goes_elsewhere() {
    for log in [Log::HotNode, Log::WarmNode, Log::HotData, Log::WarmData] {
        let (mut host, file) = filled();
        host.write(file, 5000, &bytes(2, 100_000));
        host.make(Inode::ROOT, "before", FileKind::Regular);
        let segment = host.segment_of(log);
        host.volume().target_mut().fail(segment);
        host.write(file, 50_000, &bytes(3, 100_000));
        host.make(Inode::ROOT, "after", FileKind::Regular);
        host.sync();
        assert_eq!(host.volume().failure(), None, "{log:?}");
        assert_eq!(host.failed(), 1, "{log:?}");
        let mut expected = bytes(1, 300_000);
        expected[5000..105_000].copy_from_slice(&bytes(2, 100_000));
        expected[50_000..150_000].copy_from_slice(&bytes(3, 100_000));
        assert!(host.read(file, 0, 300_000) == expected, "{log:?}");
        host.cut_and_mount();
        assert!(host.read(file, 0, 300_000) == expected, "{log:?}, after a power cut");
        for name in ["before", "after", "a long name of number 7"] {
            assert!(host.lookup(Inode::ROOT, name).is_ok(), "{log:?}: {name}");
        }
        // The drive has it back, and it is not used again.
        host.rest(10_000);
        host.sync();
        assert_eq!(host.volume().target().segment(segment).written, 0, "{log:?}");
        host.mount_again();
        assert_eq!(host.volume().segments().segment(segment).state, State::Failed, "{log:?}");
    }
}

#[test]
fn a_flush_that_finds_a_segment_failed_is_done_again_when_that_is_empty() {
    let (mut host, file) = filled();
    host.write(file, 0, &bytes(4, 50_000));
    // All of it is with the drive, and nothing of it is durable.
    let segment = host.segment_of(Log::WarmData);
    let ticket = host.volume().ticket();
    let (now, time_of_day) = (host.clock.0, host.time_of_day());
    assert_eq!(host.volume().attempt(now, time_of_day, ticket, &Operation::Sync), None);
    host.volume().target_mut().fail(segment);
    host.sync();
    assert_eq!((host.volume().failure(), host.failed()), (None, 1));
    host.cut_and_mount();
    assert!(host.read(file, 0, 50_000) == bytes(4, 50_000));
}

#[test]
fn many_segments_fail_and_nothing_is_lost_as_long_as_there_is_room() {
    let (mut host, _) = filled();
    let files: Vec<Inode> = (0..8).map(|file| host.make(Inode::ROOT, &file.to_string(), FileKind::Regular)).collect();
    let mut expected = vec![vec![0; 60_000]; files.len()];
    for number in 0..3000_usize {
        if number.is_multiple_of(100) {
            host.volume().target_mut().fail_at_write(number as u64 % 17, ANCHORS);
        }
        let (file, offset, count) = (number * 7 % 8, number * 4801 % 50_000, 1 + number * 613 % 9_000);
        let new = bytes(number, count);
        host.write(files[file], offset as u64, &new);
        expected[file][offset..offset + count].copy_from_slice(&new);
        assert_eq!(host.volume().failure(), None, "write {number}: {}", host.volume().describe());
        if number.is_multiple_of(11) {
            host.sync();
        }
        if number.is_multiple_of(500) {
            host.sync();
            host.cut_and_mount();
        }
    }
    host.sync();
    let failed = host.volume().target().failed();
    assert!(failed >= 25, "{failed}");
    host.cut_and_mount();
    for (file, expected) in files.iter().zip(&expected) {
        let end = host.attributes(&Operation::Attributes { inode: *file }).size as usize;
        assert!(host.read(*file, 0, end) == expected[..end]);
    }
}

#[test]
fn a_segment_with_records_that_fails_makes_the_volume_read_only_and_loses_nothing() {
    let (mut host, file) = filled();
    (0..ANCHORS).for_each(|anchor| host.volume().target_mut().fail(anchor));
    host.write(file, 0, b"new");
    assert_eq!(host.run(&Operation::Sync), Err(Refusal::Device));
    assert_eq!(host.run(&Operation::Write { inode: file, offset: 0, data: b"x" }), Err(Refusal::ReadOnly));
    assert!(host.read(file, 100_000, 1000) == bytes(1, 101_000)[100_000..]);
    host.cut_and_mount_to_read();
    assert!(host.read(file, 0, 300_000) == bytes(1, 300_000));
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_of_its_file_alone() {
    let mut host = Memory::in_memory(64, 32);
    let (first, second) =
        (host.make(Inode::ROOT, "first", FileKind::Regular), host.make(Inode::ROOT, "second", FileKind::Regular));
    host.write(first, 0, &bytes(1, 200_000));
    host.write(second, 0, &vec![9; 200_000]);
    host.sync();
    let piece = &bytes(1, 200_000)[8192..12_288];
    let drive = host.volume().target_mut();
    let lost = drive.written().find(|block| drive.block(*block).unwrap()[..] == *piece).expect("it is written");
    drive.lose(lost);
    let read = |host: &mut Memory, inode, offset| match host.run(&Operation::Read { inode, offset, bytes: 4096 }) {
        Ok(Reply::Data(data)) => {
            host.volume().give_back(data);
            Ok(())
        }
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => Err(refusal),
    };
    assert_eq!(read(&mut host, first, 8192), Err(Refusal::Device));
    assert_eq!(read(&mut host, first, 4096), Ok(()));
    assert_eq!(read(&mut host, second, 8192), Ok(()));
    // A part of the block cannot be written, all of it can.
    let part = Operation::Write { inode: first, offset: 8200, data: b"part" };
    assert_eq!(host.run(&part), Err(Refusal::Device));
    for number in 0..400 {
        host.write(second, number * 4999 % 190_000, &bytes(number as usize, 9000));
        host.sync();
    }
    assert_eq!((read(&mut host, first, 8192), host.volume().failure()), (Err(Refusal::Device), None));
    host.write(first, 8192, &[7; 4096]);
    host.sync();
    assert_eq!(read(&mut host, first, 8192), Ok(()));
    host.mount_again();
    assert!(host.read(first, 8192, 4096) == [7; 4096]);
}

#[test]
fn what_was_over_is_read_as_long_as_a_volume_is_mounted_on_a_drive_that_takes_no_more_writes() {
    let (mut host, file) = filled();
    host.write(file, 0, &bytes(5, 200_000));
    host.make(Inode::ROOT, "new", FileKind::Regular);
    host.volume().target_mut().wear_out();
    assert_eq!(host.run(&Operation::Sync), Err(Refusal::Device));
    let mut expected = bytes(1, 300_000);
    expected[..200_000].copy_from_slice(&bytes(5, 200_000));
    assert!(host.read(file, 0, 300_000) == expected);
    assert!(host.lookup(Inode::ROOT, "new").is_ok());
    host.cut_and_mount_to_read();
    assert!(host.read(file, 0, 300_000) == bytes(1, 300_000));
}

#[test]
fn a_read_of_more_pieces_than_the_drive_takes_requests_gets_them_one_after_the_other() {
    let mut host = Memory::in_memory(64, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(1, 80_000));
    host.sync();
    let mut expected = bytes(1, 80_000);
    // Every other block lies elsewhere.
    for at in (0..80_000).step_by(8192) {
        let piece = bytes(at + 2, 4096.min(80_000 - at));
        host.write(file, at as u64, &piece);
        expected[at..at + piece.len()].copy_from_slice(&piece);
    }
    host.mount_again();
    host.volume().target_mut().take_at_most(3);
    assert!(host.read(file, 0, 80_000) == expected);
    host.check();
}
