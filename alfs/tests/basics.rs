//! What everybody expects of a file system.

use crate::host::Host;
use openftl_alfs::segments::State;
use openftl_alfs::{
    Changes, FileKind, FileSystem, Inode, NewFile, Operation, Options, Refusal, RenameHow, Reply, Volume,
};

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

#[test]
fn files_are_there_after_a_mount_and_after_a_crash_if_synced() {
    let mut host = Host::new(80, 1);
    let folder = host.make(Inode::ROOT, "folder", FileKind::Directory);
    let small = host.make(folder, "small", FileKind::Regular);
    host.write(small, 0, b"hello");
    let large = host.make(folder, "large", FileKind::Regular);
    host.write(large, 3, &bytes(1, 300_000));
    host.mount_again();
    assert_eq!(host.names(Inode::ROOT), [".", "..", "folder"]);
    assert_eq!(host.lookup(folder, "small"), Ok(small));
    assert_eq!(host.read(small, 0, 100), b"hello");
    assert_eq!(host.read(large, 3, 1_000_000), bytes(1, 300_000));
    host.write(small, 5, b", world");
    host.sync();
    let lost = host.make(folder, "lost", FileKind::Regular);
    host.write(lost, 0, b"gone");
    host.forget_and_mount();
    assert_eq!(host.read(small, 0, 100), b"hello, world");
    assert_eq!(host.lookup(folder, "lost"), Err(Refusal::NotFound));
}

#[test]
fn many_names_come_and_go() {
    let mut host = Host::new(200, 2);
    let folder = host.make(Inode::ROOT, "folder", FileKind::Directory);
    let mut inodes = Vec::new();
    for number in 0..1500 {
        inodes.push(host.make(folder, &format!("a name that is number {number}"), FileKind::Regular));
    }
    let mut names = host.names(folder);
    assert_eq!(names.len(), 1502);
    host.mount_again();
    names.sort();
    let mut again = host.names(folder);
    again.sort();
    assert_eq!(names, again);
    for (number, inode) in (0..1500).zip(&inodes) {
        assert_eq!(host.lookup(folder, &format!("a name that is number {number}")), Ok(*inode));
    }
    let not_empty = host.run(&Operation::RemoveDirectory { parent: Inode::ROOT, name: b"folder" });
    assert_eq!(not_empty, Err(Refusal::NotEmpty));
    for number in 0..1500 {
        let name = format!("a name that is number {number}");
        assert_eq!(host.run(&Operation::Unlink { parent: folder, name: name.as_bytes() }), Ok(Reply::Done));
    }
    assert_eq!(host.run(&Operation::RemoveDirectory { parent: Inode::ROOT, name: b"folder" }), Ok(Reply::Done));
    host.rest(10_000);
    host.sync();
    let Ok(Reply::Room(room)) = host.run(&Operation::Room) else { panic!() };
    assert_eq!(room.blocks - room.free, 3, "the root and two blocks of the map are left");
}

#[test]
fn large_and_sparse_files_shrink_and_go() {
    let mut host = Host::new(300, 4);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    let offsets = [0, 979 * 4096 - 100, 2_000_000_000, 9_000_000_000, 4_000_000_000_000];
    for (seed, offset) in offsets.into_iter().enumerate() {
        host.write(file, offset, &bytes(seed, 10_000));
    }
    host.mount_again();
    for (seed, offset) in offsets.into_iter().enumerate() {
        assert_eq!(host.read(file, offset, 10_000), bytes(seed, 10_000), "{offset}");
    }
    assert_eq!(host.read(file, 1_000_000_000, 5000), vec![0; 5000]);
    let shrink = |host: &mut Host, size| {
        let changes = Changes { size: Some(size), ..Changes::default() };
        host.attributes(&Operation::SetAttributes { inode: file, changes })
    };
    shrink(&mut host, 2_000_005_000);
    shrink(&mut host, 20_000_000_000);
    assert_eq!(host.read(file, 2_000_000_000, 10_000), [bytes(2, 10_000)[..5000].to_vec(), vec![0; 5000]].concat());
    assert_eq!(host.read(file, 9_000_000_000, 10_000), vec![0; 10_000]);
    let attributes = shrink(&mut host, 7000);
    host.rest(10_000);
    let after = host.attributes(&Operation::Attributes { inode: file });
    assert!(after.blocks < attributes.blocks);
    assert_eq!((after.blocks, after.size), (3, 7000));
    assert_eq!(host.run(&Operation::Unlink { parent: Inode::ROOT, name: b"file" }), Ok(Reply::Done));
    host.rest(10_000);
    host.sync();
    let Ok(Reply::Room(room)) = host.run(&Operation::Room) else { panic!() };
    assert_eq!(room.blocks - room.free, 2, "the root and a block of the map are left");
}

#[test]
fn a_full_file_system_deletes_and_is_written_over_and_over() {
    let mut host = Host::new(80, 1);
    let mut files = Vec::new();
    let last = loop {
        let name = format!("file {}", files.len());
        let made = Operation::Make {
            parent: Inode::ROOT,
            name: name.as_bytes(),
            file: NewFile { kind: FileKind::Regular, mode: 0o600, uid: 0, gid: 0, device: 0 },
        };
        let inode = match host.run(&made) {
            Ok(Reply::Attributes(attributes)) => attributes.inode,
            Err(refusal) => break refusal,
            other => panic!("{other:?}"),
        };
        files.push(inode);
        let data = bytes(files.len(), 40_000);
        match host.run(&Operation::Write { inode, offset: 0, data: &data }) {
            Ok(Reply::Done) => {}
            Err(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(last, Refusal::NoRoom);
    assert!(files.len() > 100, "{}", files.len());
    let full = files.len() - 1;
    for round in 0..20 {
        for (at, inode) in files[..full].iter().enumerate() {
            if (at + round) % 3 == 0 {
                let data = bytes(at + 1, 40_000);
                assert_eq!(host.run(&Operation::Write { inode: *inode, offset: 0, data: &data }), Ok(Reply::Done));
            }
        }
        host.sync();
    }
    assert!(host.volume().statistics().segments_cleaned > 100);
    assert_eq!(host.volume().statistics().blocks_forgotten, 0);
    for (at, inode) in files[..full].iter().enumerate() {
        assert_eq!(host.read(*inode, 0, 50_000), bytes(at + 1, 40_000), "file {at}");
    }
    for at in 0..full {
        let name = format!("file {at}");
        assert_eq!(host.run(&Operation::Unlink { parent: Inode::ROOT, name: name.as_bytes() }), Ok(Reply::Done));
    }
    host.mount_again();
    assert_eq!(host.names(Inode::ROOT).len(), 3);
}

#[test]
fn a_file_without_a_name_stays_as_long_as_somebody_holds_it() {
    let mut host = Host::new(80, 1);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(3, 20_000));
    host.volume().hold(file, 2);
    assert_eq!(host.run(&Operation::Unlink { parent: Inode::ROOT, name: b"file" }), Ok(Reply::Done));
    host.sync();
    host.rest(10_000);
    assert_eq!(host.read(file, 0, 20_000), bytes(3, 20_000));
    assert!(host.volume().release(file, 2));
    host.rest(10_000);
    assert_eq!(host.run(&Operation::Attributes { inode: file }), Err(Refusal::Stale));
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.volume().hold(file, 1);
    assert_eq!(host.run(&Operation::Unlink { parent: Inode::ROOT, name: b"file" }), Ok(Reply::Done));
    host.sync();
    host.forget_and_mount();
    host.rest(10_000);
    assert_eq!(host.run(&Operation::Attributes { inode: file }), Err(Refusal::Stale));
}

#[test]
fn folders_move_but_not_below_themselves() {
    let mut host = Host::new(80, 1);
    let a = host.make(Inode::ROOT, "a", FileKind::Directory);
    let b = host.make(a, "b", FileKind::Directory);
    let c = host.make(b, "c", FileKind::Directory);
    let rename = |host: &mut Host, from, from_name: &str, to, to_name: &str, how| {
        let (from_name, to_name) = (from_name.as_bytes(), to_name.as_bytes());
        host.run(&Operation::Rename { from, from_name, to, to_name, how })
    };
    assert_eq!(rename(&mut host, Inode::ROOT, "a", c, "x", RenameHow::Replace), Err(Refusal::Invalid));
    assert_eq!(rename(&mut host, a, "b", Inode::ROOT, "b", RenameHow::NoReplace), Ok(Reply::Done));
    assert_eq!(rename(&mut host, Inode::ROOT, "a", c, "x", RenameHow::Replace), Ok(Reply::Done));
    assert_eq!(host.attributes(&Operation::Attributes { inode: Inode::ROOT }).links, 3);
    assert_eq!(host.attributes(&Operation::Attributes { inode: c }).links, 3);
    assert_eq!(host.attributes(&Operation::Lookup { parent: a, name: b".." }).inode, c);
    host.mount_again();
    assert_eq!(host.lookup(c, "x"), Ok(a));
}

#[test]
fn a_volume_that_is_mounted_read_only_can_be_read_and_synced_and_nothing_is_written() {
    let mut host = Host::new(80, 1);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(3, 20_000));
    let drive = host.volume.take().unwrap().unmount(&mut host.clock).map_err(|(_, error)| error).unwrap();
    let written = |host: &mut Host| host.volume().target().zones().statistics().0.host_blocks_written;
    let options = Options { is_read_only: true, ..Options::default() };
    host.volume = Some(Volume::mount(drive, options, &mut host.clock).map_err(|(_, error)| error).unwrap());
    let before = written(&mut host);
    assert_eq!(host.read(file, 0, 20_000), bytes(3, 20_000));
    host.sync();
    let refused = host.run(&Operation::Unlink { parent: Inode::ROOT, name: b"file" });
    assert_eq!(refused, Err(Refusal::ReadOnly));
    host.check();
    host.rest(10_000);
    assert_eq!(written(&mut host), before);
}

#[test]
fn a_full_file_system_in_which_each_block_has_a_node_of_its_own_is_overwritten_for_ever() {
    for (chunks, width, size) in [(80, 1, 5000), (80, 1, 4096), (100, 1, 9000), (200, 2, 4096)] {
        let mut host = Host::new(chunks, width);
        let mut files = Vec::new();
        for number in 0.. {
            let name = format!("{number}");
            let file = NewFile { kind: FileKind::Regular, mode: 0o600, uid: 0, gid: 0, device: 0 };
            let made = host.run(&Operation::Make { parent: Inode::ROOT, name: name.as_bytes(), file });
            let Ok(Reply::Attributes(made)) = made else { break };
            let data = bytes(number, size);
            if host.run(&Operation::Write { inode: made.inode, offset: 0, data: &data }).is_err() {
                break;
            }
            files.push(made.inode);
        }
        let mut at = 1;
        for round in 0..4000 {
            at = at * 48_271 % 2_147_483_647;
            let file = at % files.len();
            let data = bytes(file, size);
            let write = Operation::Write { inode: files[file], offset: 0, data: &data };
            assert_eq!(host.run(&write), Ok(Reply::Done), "round {round}: {}", host.volume().describe());
            if round % 10 == 0 {
                host.sync();
            }
        }
        assert!(host.volume().statistics().segments_cleaned > 50, "{:?}", host.volume().statistics());
        assert_eq!(host.volume().statistics().blocks_forgotten, 0);
        for (number, inode) in files.iter().enumerate() {
            assert_eq!(host.read(*inode, 0, size), bytes(number, size), "file {number}");
        }
        host.mount_again();
    }
}

#[test]
fn a_file_system_that_cannot_clean_says_that_it_is_full_and_still_deletes() {
    let mut host = Host::new(80, 1);
    let mut files = Vec::new();
    'full: loop {
        let inode = host.make(Inode::ROOT, &format!("{}", files.len()), FileKind::Regular);
        files.push(inode);
        for block in 0..24 {
            let data = bytes(block, 4096);
            let offset = (block as u64) << 12;
            if host.run(&Operation::Write { inode, offset, data: &data }) != Ok(Reply::Done) {
                break 'full;
            }
        }
    }
    host.sync();
    let segments = host.volume().segments();
    let (shape, mut damaged) = (segments.shape, 0);
    let full: Vec<u32> = (0..shape.segments).filter(|index| segments.segment(*index).state == State::Full).collect();
    let mut drive = host.volume.take().unwrap().unmount(&mut host.clock).map_err(|(_, error)| error).unwrap();
    for segment in full {
        if let Some(ppa) = drive.zones().place_on_media(segment, shape.data_blocks()) {
            drive.zones_mut().media_mut().corrupt(ppa).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 10);
    host.mount(drive).unwrap();
    // Half of each damaged segment is of no use after this, and no part of it can be had.
    let mut refused = None;
    for round in 0..20_000 {
        let data = bytes(round, 4096);
        let (inode, block) = (files[round % (files.len() - 1)], round / files.len() % 12 * 2);
        let write = Operation::Write { inode, offset: (block as u64) << 12, data: &data };
        match host.run(&write) {
            Ok(Reply::Done) if round % 50 == 0 => host.sync(),
            Ok(Reply::Done) => {}
            other => {
                refused = Some(other);
                break;
            }
        }
    }
    assert_eq!(refused, Some(Err(Refusal::NoRoom)), "{}", host.volume().describe());
    for number in 0..files.len() {
        let name = format!("{number}");
        assert_eq!(host.run(&Operation::Unlink { parent: Inode::ROOT, name: name.as_bytes() }), Ok(Reply::Done));
    }
    host.rest(10_000);
    host.sync();
    host.mount_again();
    let file = host.make(Inode::ROOT, "again", FileKind::Regular);
    host.write(file, 0, &bytes(1, 100_000));
}

#[test]
fn a_silent_file_system_cleans_what_is_worth_it_and_then_rests() {
    let mut host = Host::new(80, 1);
    let files: Vec<Inode> =
        (0..100).map(|number| host.make(Inode::ROOT, &format!("{number}"), FileKind::Regular)).collect();
    for (number, inode) in files.iter().enumerate() {
        host.write(*inode, 0, &bytes(number, 80_000));
    }
    host.sync();
    // Half of what is of use becomes useless, in every segment.
    for (number, inode) in files.iter().enumerate() {
        for block in (0..19).step_by(2) {
            host.write(*inode, block << 12, &bytes(number, 80_000)[(block as usize) << 12..][..4096]);
        }
    }
    host.sync();
    let before = *host.volume().statistics();
    host.rest(60_000);
    let after = *host.volume().statistics();
    assert!(after.segments_cleaned > before.segments_cleaned, "{}", host.volume().describe());
    host.rest(60_000);
    assert_eq!(host.volume().statistics().segments_cleaned, after.segments_cleaned, "there was an end to it");
    for (number, inode) in files.iter().enumerate() {
        assert_eq!(host.read(*inode, 0, 80_000), bytes(number, 80_000));
    }
}

#[test]
fn a_long_read_gets_its_frames_though_short_ones_keep_coming() {
    let mut host = Host::in_memory(200, 32);
    let file = host.make(Inode::ROOT, "file", FileKind::Regular);
    host.write(file, 0, &bytes(1, 1 << 20));
    host.sync();
    let ask = |host: &mut Host<_>, ticket, bytes| {
        let (now, time) = (host.clock.0, host.time_of_day());
        let reply = host.volume().attempt(now, time, ticket, &Operation::Read { inode: file, offset: 0, bytes });
        host.volume().poll(now);
        match reply {
            Some(Ok(Reply::Data(data))) => Some(data),
            None => None,
            other => panic!("{other:?}"),
        }
    };
    // Short reads hold all frames, and each is replaced as soon as it is given back.
    let mut held = std::collections::VecDeque::new();
    let long = host.volume().ticket();
    let mut is_begun = false;
    for round in 0..20_000 {
        let ticket = host.volume().ticket();
        let short = (0..3).find_map(|_| ask(&mut host, ticket, 4 * 4096));
        let is_full = short.is_none();
        held.extend(short);
        if is_full {
            host.volume().abandon(ticket);
            is_begun = true;
            host.volume().give_back(held.pop_front().expect("somebody has the frames"));
        }
        if is_begun && let Some(data) = ask(&mut host, long, 1 << 20) {
            assert_eq!(data.bytes, 1 << 20);
            host.volume().give_back(data);
            held.into_iter().for_each(|data| host.volume().give_back(data));
            return host.check();
        }
        assert!(round < 19_000, "the long read waits for ever");
    }
}
