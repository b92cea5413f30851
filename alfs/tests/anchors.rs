//! The segments with records: how far they are filled, and which record counts.

use crate::host::Host;
use openftl_alfs::block::{Kind, look};
use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{FileKind, FileTime, Inode, MountError, Operation, Options, Refusal, Volume};
use openftl_core::{FrameForm, VirtualClock};
use openftl_parts::target::{BlockTarget, Durability, Request, SegmentTarget, Target};
use openftl_parts::words::Handle;
use openftl_segments::MemorySegments;

const SHORT: u32 = 16;

#[test]
fn a_record_that_would_fill_an_anchor_to_its_last_block_is_refused() {
    let mut ends = [0; 2];
    for segments in (3700..4100).step_by(20) {
        let drive = MemorySegments::new(segments, SHORT, 1200);
        match Volume::format(drive, 77, (0, 0), FileTime::default(), &mut VirtualClock::default()) {
            Ok(volume) => {
                let fullest = (0..ANCHORS).map(|anchor| volume.target().segment(anchor).written).max().unwrap();
                assert!(fullest < SHORT, "{segments} segments: an anchor of {fullest} blocks cannot be left");
                ends[0] += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("a record does not fit into a segment"), "{error}");
                ends[1] += 1;
            }
        }
    }
    assert!(ends[0] > 2 && ends[1] > 2, "{ends:?}: both are tried");
}

#[test]
fn a_record_of_many_nodes_stays_short_enough_for_a_short_anchor() {
    let mut host = Host::<MemorySegments>::in_memory(1200, SHORT);
    for number in 0..9000 {
        host.make(Inode::ROOT, &format!("{number}"), FileKind::Regular);
        if number % 500 == 0 {
            host.sync();
        }
    }
    host.sync();
    host.mount_again();
    assert_eq!(host.volume().failure(), None);
}

type Memory = Host<MemorySegments>;

/// Both ways to mount.
fn ways() -> [Options; 2] {
    [true, false].map(|is_read_only| Options { is_read_only, ..Options::default() })
}

/// Blocks of this kind, each with its number and where it is, in the order of their numbers.
fn blocks_of(drive: &MemorySegments, kind: Kind) -> Vec<(u64, u64)> {
    let of = |block: u64| Some((look(drive.block(block)?).ok().filter(|seen| seen.kind == kind)?.sequence, block));
    let mut found: Vec<(u64, u64)> = drive.written().filter_map(of).collect();
    found.sort_unstable();
    found
}

/// A copy of a drive, of which segments have no more than so many of their blocks.
fn cut(drive: &MemorySegments, segments: u32, most: impl Fn(u32) -> u32) -> MemorySegments {
    let segment_blocks = drive.segment_blocks().unwrap() as u32;
    let mut copy = MemorySegments::new(segments, segment_blocks, 1200);
    for segment in 0..segments {
        for within in 0..drive.segment(segment).written.min(most(segment)) {
            let first = u64::from(segment * segment_blocks + within);
            let frame = copy.frames_mut().acquire(FrameForm::Bytes).unwrap();
            copy.frames_mut().bytes_mut(frame).copy_from_slice(drive.block(first).unwrap());
            let write =
                Request::Write { first, frames: &[frame], durability: Durability::Durable, handle: Handle::NONE };
            copy.submit(openftl_core::Time::ZERO, 0, write).unwrap();
        }
    }
    copy.poll(openftl_core::Time::ZERO, &mut Vec::new());
    copy
}

/// A file that was written whole, then its first block four times, each with a sync of its own: records of one block each.
fn written() -> (Memory, Inode) {
    let mut host = Memory::in_memory(100, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &[1; 50 << 12]);
    host.mount_again();
    for value in 2..6 {
        host.write(file, 0, &[value; 4096]);
        host.sync();
    }
    (host, file)
}

#[test]
fn a_record_that_the_other_anchor_goes_on_from_was_durable() {
    let (mut host, file) = written();
    let before: Vec<u32> = (0..100).map(|segment| host.volume().target().segment(segment).written).collect();
    let sequence = blocks_of(host.volume().target(), Kind::Record).last().unwrap().0;
    let patches = blocks_of(host.volume().target(), Kind::Patches).last().unwrap().1;
    // Its record is whole, in the other anchor, and what it needs never came to the drive.
    let drive = host.volume.take().unwrap().unmount(&mut host.clock).map_err(|(_, error)| error).unwrap();
    let mut drive = cut(&drive, 100, |segment| if segment < ANCHORS { 32 } else { before[segment as usize] });
    assert_eq!(blocks_of(&drive, Kind::Record).last().unwrap().0, sequence + 1);
    // A block of patches that the last durable record needs has gone bad.
    drive.block_mut(patches).unwrap().fill(0);
    let mounted = Volume::mount(drive, ways()[0], &mut host.clock).map_err(|(_, error)| error);
    host.volume = Some(mounted.unwrap());
    let read = host.run(&Operation::Read { inode: file, offset: 0, bytes: 4096 });
    assert_eq!(read, Err(Refusal::Device), "what was before the last sync is not what was synced");
}

#[test]
fn records_that_cannot_be_read_for_a_moment_are_read_again() {
    for options in ways() {
        let (mut host, file) = written();
        let mut drive = host.volume.take().unwrap().into_target();
        blocks_of(&drive, Kind::Record).into_iter().for_each(|(_, block)| drive.lose_for(block, 3));
        blocks_of(&drive, Kind::Patches).into_iter().for_each(|(_, block)| drive.lose_for(block, 2));
        let mounted = Volume::mount(drive, options, &mut host.clock).map_err(|(_, error)| error);
        host.volume = Some(mounted.unwrap());
        assert_eq!(host.read(file, 0, 4096), [5; 4096]);
    }
}

#[test]
fn where_a_durable_record_cannot_be_read_older_ones_are_not_the_newest() {
    for options in ways() {
        let (mut host, file) = written();
        let mut drive = host.volume.take().unwrap().into_target();
        let records = blocks_of(&drive, Kind::Record);
        let (last, lost) = (records[records.len() - 1].0, records[records.len() - 2]);
        drive.lose_for(lost.1, 20);
        let Err((drive, error)) = Volume::mount(drive, options, &mut host.clock) else { panic!("it is mounted") };
        assert_eq!(error, MountError::RecordLost { durable: last - 1, found: last - 2 });
        assert!(error.to_string().contains("mount it again"), "{error}");
        // The medium has come to itself.
        let drive = (0..5).fold(drive, |drive, _| match Volume::mount(drive, ways()[0], &mut host.clock) {
            Ok(volume) => volume.into_target(),
            Err((drive, _)) => drive,
        });
        let mounted = Volume::mount(drive, options, &mut host.clock).map_err(|(_, error)| error);
        host.volume = Some(mounted.unwrap());
        assert_eq!(host.read(file, 0, 4096), [5; 4096]);
    }
}

#[test]
fn a_last_record_that_is_torn_was_not_over_and_the_one_before_counts() {
    let (mut host, file) = written();
    let mut drive = host.volume.take().unwrap().into_target();
    let records = blocks_of(&drive, Kind::Record);
    drive.lose(records[records.len() - 1].1);
    for _ in 0..3 {
        let mounted = Volume::mount(drive, ways()[1], &mut host.clock).map_err(|(_, error)| error);
        host.volume = Some(mounted.unwrap());
        assert_eq!(host.read(file, 0, 4096), [4; 4096]);
        drive = host.volume.take().unwrap().into_target();
    }
}
