//! What a file system shows of itself to those who use its files without a mount.

use crate::common::{bytes, config, content, read_all, reopen_found, segments, tiny_alfs, tiny_device, write};
use openftl_alfs::{FileSystem, FileTime, Inode, NewFile, Operation, Options, Reply};
use openftl_core::{Clock, Nanos, Time};
use openftl_files::{FileError, FileKind, Pace, PaceClock};
use openftl_media::EmulatedDevice;
use openftl_parts::{Access, Config};
use openftl_segments::SegmentFtl;
use openftl_volumes::{AlfsFiles, Volume};
use openftl_zones::{AskedLimits, Ftl, Limits, ZoneConfig};
use std::collections::BTreeMap;

/// Runs operations on the file system of a device, as a mount would.
fn mounted(device: EmulatedDevice, operations: &[Operation<'_>]) -> (EmulatedDevice, Vec<Reply>) {
    let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
    let drive = SegmentFtl::open_with(device, config(), AskedLimits::default(), Access::ReadWrite, &mut clock).unwrap();
    let mounted = openftl_alfs::Volume::mount(drive, Options::default(), &mut clock);
    let mut volume = mounted.map_err(|(_, error)| error).unwrap();
    let mut replies = Vec::new();
    for operation in operations {
        let ticket = volume.ticket();
        let reply = loop {
            if let Some(reply) = volume.attempt(clock.now(), FileTime::default(), ticket, operation) {
                break reply.unwrap();
            }
            if !volume.poll(clock.now()) {
                let due = volume.next_due().unwrap();
                let _ = clock.wait_until(due);
            }
        };
        replies.push(reply);
    }
    let drive = volume.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    (drive.close(&mut clock).unwrap(), replies)
}

fn closed(volume: Volume<EmulatedDevice>) -> EmulatedDevice {
    let Volume::Alfs(files) = volume else { panic!("it is of an ALFS") };
    files.close().unwrap().expect("nobody uses it")
}

#[test]
fn a_table_that_is_not_whole_has_its_name_here_alone_and_leaves_nothing() {
    let files = tiny_alfs(64, 1);
    let mut table = files.create("/db.sst", FileKind::Table).unwrap();
    table.append(&bytes(1, 0, 50_000)).unwrap();
    assert_eq!(files.list("/").unwrap().len(), 1, "the folder of such tables is not listed");
    files.sync_names("/").unwrap();
    table.forget();
    assert_eq!(files.list("/").unwrap(), []);
    let mut table = files.create("/db.sst", FileKind::Table).unwrap();
    table.append(&bytes(2, 0, 50_000)).unwrap();
    files.sync_names("/").unwrap();
    let (free, _) = files.space();
    std::mem::forget(table);
    // The process dies with the table on media.
    let now = files.with_drive(|drive| drive.block().now());
    let mut device = files.with_drive(|drive| drive.media_mut().fork().unwrap().unwrap());
    device.power_cut(now, false).unwrap();
    let volume = reopen_found(device);
    assert_eq!(volume.list("/").unwrap(), []);
    volume.sync_names("/").unwrap();
    let (found, _) = volume.space().unwrap();
    assert!(found >= free + 50_000, "{found} bytes are free, and {free} were before");
    let unfinished = Operation::Lookup { parent: Inode::ROOT, name: b".unfinished" };
    let (device, replies) = mounted(closed(volume), &[unfinished]);
    let [Reply::Attributes(folder)] = &replies[..] else { panic!("{replies:?}") };
    let inode = folder.inode;
    let list = Operation::ReadDirectory { inode, after: 0, entries: 10, with_attributes: false };
    let (_, replies) = mounted(device, &[list]);
    let [Reply::Entries(entries)] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!(entries.len(), 2, "itself and its parent: {entries:?}");
}

#[test]
fn the_folder_of_unfinished_tables_is_nobody_elses() {
    let files = tiny_alfs(64, 2);
    for path in ["/.unfinished", "/.unfinished/0", "//.unfinished//x"] {
        let refused = [
            files.create(path, FileKind::Log).map(drop),
            files.open_read(path).map(drop),
            files.make_folder(path),
            files.delete(path),
            files.rename("/a", path),
            files.attributes(path).map(drop),
            files.list(path).map(drop),
        ];
        for refused in refused {
            let Err(FileError::Invalid(said)) = refused else { panic!("{path}: {refused:?}") };
            assert!(said.contains("choose another name"), "{said}");
        }
    }
    write(&Volume::Alfs(files), "/.unfinished-too", FileKind::Table, 1, 10, 10);
}

#[test]
fn what_a_mount_has_made_is_here_and_what_is_neither_file_nor_folder_is_listed_alone() {
    let files = tiny_alfs(64, 3);
    write(&Volume::Alfs(files.clone()), "/table", FileKind::Table, 1, 5000, 5000);
    let device = files.close().unwrap().expect("nobody uses it");
    let (parent, uid, gid) = (Inode::ROOT, 0, 0);
    let file = |mode| NewFile { kind: openftl_alfs::FileKind::Regular, mode, uid, gid, device: 0 };
    let operations = [
        Operation::Make { parent, name: b"ours", file: file(0o600) },
        Operation::Make { parent, name: b"read-only", file: file(0o400) },
        Operation::Symlink { parent, name: b"link", target: b"table", uid, gid },
        Operation::Lookup { parent, name: b"table" },
    ];
    let (device, replies) = mounted(device, &operations);
    let Reply::Attributes(table) = &replies[3] else { panic!("{replies:?}") };
    assert_eq!((table.mode, table.size), (0o444, 5000), "a table is a file that nobody writes to");
    let volume = reopen_found(device);
    let kinds = volume.list("/").unwrap().into_iter().map(|(name, found)| (name, found.kind)).collect::<Vec<_>>();
    let of = |name: &str, kind| (name.to_owned(), kind);
    let (log, table) = (FileKind::Log, FileKind::Table);
    assert_eq!(kinds, [of("link", log), of("ours", log), of("read-only", table), of("table", table)]);
    let mut ours = volume.append_to("/ours").unwrap();
    ours.append(b"here").unwrap();
    ours.close().unwrap();
    assert_eq!(content(&volume, "/ours"), b"here");
    for refused in [volume.open_read("/link").map(drop), volume.append_to("/link").map(drop)] {
        assert!(matches!(refused, Err(FileError::NotSupported(_))), "{refused:?}");
    }
    volume.delete("/link").unwrap();
    assert_eq!(volume.list("/").unwrap().len(), 3);
}

#[test]
fn a_log_file_is_replaced_by_a_new_one_at_once_and_who_has_the_other_open_goes_on() {
    let files = tiny_alfs(64, 4);
    let volume = Volume::Alfs(files.clone());
    write(&volume, "/CURRENT", FileKind::Log, 1, 9000, 9000);
    let (before, mut older) = (volume.open_read("/CURRENT").unwrap(), volume.append_to("/CURRENT").unwrap());
    let mut newer = volume.create("/CURRENT", FileKind::Log).unwrap();
    assert_ne!(older.id(), newer.id());
    newer.append(&bytes(2, 0, 100)).unwrap();
    older.append(&bytes(1, 9000, 1000)).unwrap();
    newer.sync().unwrap();
    assert_eq!(read_all(&before), bytes(1, 0, 10_000), "also what was written since");
    assert_eq!(content(&volume, "/CURRENT"), bytes(2, 0, 100));
    drop((before, older, newer, volume));
    // Nobody holds the other file any more, so its room is free.
    let volume = reopen_found(files.close().unwrap().expect("nobody uses it"));
    assert_eq!(content(&volume, "/CURRENT"), bytes(2, 0, 100));
    assert_eq!(volume.list("/").unwrap().len(), 1);
}

#[test]
fn a_sync_without_changes_asks_nothing_of_the_drive() {
    let files = tiny_alfs(64, 5);
    let mut log = files.create("/log", FileKind::Log).unwrap();
    log.append(b"once").unwrap();
    log.sync().unwrap();
    let before = files.statistics();
    log.sync().unwrap();
    files.sync_names("/").unwrap();
    let after = files.statistics();
    assert_eq!(after.syncs, before.syncs + 2);
    assert_eq!(after.syncs_for_nothing, before.syncs_for_nothing + 2);
    assert_eq!(after.nand_blocks_written, before.nand_blocks_written);
    assert_eq!(after.ftl.records, before.ftl.records);
}

#[test]
fn blocks_that_the_medium_has_lost_are_an_error_that_names_the_file_and_others_can_be_read() {
    let files = tiny_alfs(64, 7);
    let volume = Volume::Alfs(files.clone());
    // More than what the drive keeps in memory until its page can be programmed.
    write(&volume, "/lost", FileKind::Table, 1, 400_000, 9000);
    files.sync_names("/").unwrap();
    files.with_drive(|drive| {
        let written: Vec<u32> = drive.board().zones().iter().map(|zone| zone.written).collect();
        for (zone, written) in (0..).zip(written).skip(2) {
            for place in (0..written).filter_map(|block| drive.place_on_media(zone, block)).collect::<Vec<_>>() {
                drive.media_mut().inject_read_failure(place).unwrap();
            }
        }
    });
    write(&volume, "/new", FileKind::Table, 2, 40_000, 9000);
    let reader = volume.open_read("/lost").unwrap();
    let mut buffer = vec![0; 500_000];
    for _ in 0..2 {
        let Err(FileError::Io(said)) = reader.read(0, &mut buffer) else { panic!("it is lost") };
        assert_eq!(said, "/lost: the device does not return what was written");
    }
    assert_eq!(content(&volume, "/new"), bytes(2, 0, 40_000));
}

#[test]
fn a_drive_that_is_too_small_or_writes_too_few_segments_is_refused_with_the_field() {
    let refused = |segments: ZoneConfig, text: &str| {
        let made = AlfsFiles::format(tiny_device(80, 6), config(), segments, 6, Pace::Virtual);
        let Err(FileError::Invalid(said)) = made.map(drop) else { panic!("it is refused") };
        assert!(said.contains(text), "{said}");
    };
    refused(ZoneConfig { zones: Some(63), ..segments() }, "63 segments, and a file system needs 64");
    let limits = Limits { max_open: 7, max_active: 7 };
    refused(ZoneConfig { limits, ..segments() }, "max_open_segments = 8");
}

/// The drive keeps frames of writes until their units are on the medium, and gives them back without anything having ended. With as little memory as a
/// file system may have, whoever writes waits for them, and not for the next sync, which is due seconds later.
#[test]
fn a_table_that_is_longer_than_memory_is_written_as_fast_as_the_medium_takes_it() {
    let config = Config { host_frames: 600, ..config() };
    let files = AlfsFiles::format(tiny_device(200, 7), config, segments(), 7, Pace::Virtual).unwrap();
    let now = |files: &AlfsFiles<EmulatedDevice>| files.with_drive(|drive| drive.block().now());
    let began = now(&files);
    let mut table = files.create("/long", FileKind::Table).unwrap();
    let data = bytes(7, 0, 16 << 20);
    data.chunks(1 << 20).for_each(|piece| table.append(piece).unwrap());
    let took = now(&files).since(began);
    assert!(took < Nanos::from_millis(4_000), "{took:?} for 16 MiB: somebody waited for the next sync");
    table.close().unwrap();
    assert!(content(&Volume::Alfs(files), "/long") == data);
}

#[test]
fn names_that_are_not_text_are_listed_read_renamed_and_deleted_by_their_escapes() {
    let device = tiny_alfs(64, 4).close().unwrap().expect("nobody uses it");
    let (parent, uid, gid) = (Inode::ROOT, 0, 0);
    let file = |kind| NewFile { kind, mode: 0o644, uid, gid, device: 0 };
    let (folder, regular) = (file(openftl_alfs::FileKind::Directory), file(openftl_alfs::FileKind::Regular));
    let make = |name, file| Operation::Make { parent, name, file };
    let operations = [make(b"\xFF\xFE", folder), make(b"caf\xE9", regular), make(br"caf\xE9", regular)];
    let (device, replies) = mounted(device, &operations);
    let Reply::Attributes(folder) = &replies[0] else { panic!("{replies:?}") };
    let parent = folder.inode;
    let within = Operation::Make { parent, name: b"\x80", file: regular };
    let (device, _) = mounted(device, &[within]);
    let volume = reopen_found(device);
    let names = |folder: &str| volume.list(folder).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("/"), [r"\xFF\xFE", r"caf\x5CxE9", r"caf\xE9"]);
    assert_eq!(names(r"/\xff\xFE/"), [r"\x80"]);
    let mut log = volume.append_to(r"/caf\xe9").unwrap();
    log.append(b"of bytes").unwrap();
    log.close().unwrap();
    assert_eq!(content(&volume, r"/caf\xE9"), b"of bytes");
    assert_eq!(content(&volume, r"/caf\x5CxE9"), b"", "it is another file");
    write(&volume, r"/\xFF\xFE/table", FileKind::Table, 1, 9000, 5000);
    volume.rename(r"/caf\xE9", r"/\xFF\xFE/\x80").unwrap();
    volume.rename(r"/\xFF\xFE/table", "/caf\\xC3\\xA9").unwrap();
    assert_eq!(names("/"), [r"\xFF\xFE", r"caf\x5CxE9", "café"]);
    assert_eq!(content(&volume, r"/\xFF\xFE/\x80"), b"of bytes");
    volume.delete(r"/\xFF\xFE/\x80").unwrap();
    volume.delete(r"/caf\x5CxE9").unwrap();
    volume.delete_folder(r"/\xFF\xFE").unwrap();
    assert_eq!(names("/"), ["café"]);
    let (_, replies) = mounted(closed(volume), &[Operation::Lookup { parent: Inode::ROOT, name: "café".as_bytes() }]);
    assert!(matches!(&replies[..], [Reply::Attributes(_)]), "{replies:?}");
}

#[test]
fn what_was_synced_to_a_drive_that_wore_out_is_listed_and_read_and_writes_are_refused() {
    let mut profile = openftl_media::Profile::builtin("tiny").unwrap();
    profile.chip.endurance = 12;
    let device =
        EmulatedDevice::new(profile, 84, openftl_media::Store::Ram, openftl_media::Timing::Modelled, 5).unwrap();
    let files = AlfsFiles::format(device, config(), segments(), 5, Pace::Virtual).unwrap();
    let volume = Volume::Alfs(files.clone());
    write(&volume, "/first.sst", FileKind::Table, 1, 70_000, 5000);
    // Until the drive takes no more: of each file what is synced is known.
    let mut synced = BTreeMap::from([("/first.sst".to_owned(), bytes(1, 0, 70_000))]);
    let why = (2..20_000).find_map(|id| {
        let path = format!("/{}.log", id % 7);
        let data = bytes(id, 0, 30_000 + id % 5 * 9000);
        let written = files.create(&path, FileKind::Log).and_then(|mut log| {
            log.append(&data)?;
            log.sync()
        });
        match written {
            Ok(()) => _ = synced.insert(path, data),
            Err(error) => return Some((path, error)),
        }
        None
    });
    let (under_way, error) = why.expect("it wears out");
    assert!(error.to_string().contains("takes no changes"), "{under_way}: {error}");
    drop(volume);
    let now = files.with_drive(|drive| drive.block().now());
    let mut device = files.crash().expect("nobody uses it");
    device.power_cut(now, false).unwrap();
    // Opened for use it is for readers.
    let volume = reopen_found(device);
    let listed: Vec<String> = volume.list("/").unwrap().into_iter().map(|(name, _)| format!("/{name}")).collect();
    let mut read = 0;
    for (path, data) in synced.iter().filter(|(path, _)| **path != under_way) {
        assert!(listed.contains(path), "{path} of {listed:?}");
        assert!(content(&volume, path) == *data, "{path}");
        read += 1;
    }
    assert!(read > 4);
    let refused = [
        volume.create("/new", FileKind::Log).map(drop),
        volume.append_to("/1.log").map(drop),
        volume.rename("/first.sst", "/second.sst"),
        volume.make_folder("/folder"),
        volume.delete("/first.sst"),
    ];
    for refused in refused {
        let Err(FileError::ReadOnly(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("takes no more writes"), "{why}");
    }
    assert!(content(&volume, "/first.sst") == synced["/first.sst"], "nothing has changed");
}
