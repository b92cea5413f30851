//! What can be done with files, and what cannot: of a drive that is open here, on tables, on zones or of an ALFS, and of a served one.

use crate::common::{Drive, PLACES, bytes, content, read_all, write};
use openftl_files::{FileError, FileKind, ReadRequest};
use openftl_volumes::Volume;
use std::sync::atomic::{AtomicBool, Ordering};

const KINDS: [FileKind; 2] = [FileKind::Table, FileKind::Log];

#[test]
fn what_was_written_is_read_back_whatever_the_pieces() {
    for place in PLACES {
        what_was_written_is_read_back_whatever_the_pieces_of(Drive::new(place, 64, 1));
    }
}

fn what_was_written_is_read_back_whatever_the_pieces_of(files: Drive) {
    for kind in KINDS {
        for (count, piece) in [(0, 1), (1, 1), (4095, 7), (4096, 4096), (4097, 5000), (100_000, 333), (300_000, 65_536)]
        {
            let path = format!("/{kind:?}-{count}-{piece}");
            write(&files, &path, kind, count, count, piece);
            assert_eq!(content(&files, &path), bytes(count, 0, count), "{path}");
        }
    }
    let files = files.reopen();
    assert_eq!(content(&files, "/Table-300000-65536"), bytes(300_000, 0, 300_000));
    assert_eq!(content(&files, "/Log-100000-333"), bytes(100_000, 0, 100_000));
    assert_eq!(files.list("/").unwrap().len(), 14);
}

#[test]
fn any_part_of_a_file_can_be_read_also_many_at_a_time() {
    for place in PLACES {
        any_part_of_a_file_can_be_read_also_many_at_a_time_of(Drive::new(place, 64, 2));
    }
}

fn any_part_of_a_file_can_be_read_also_many_at_a_time_of(files: Drive) {
    for kind in KINDS {
        write(&files, "/file", kind, 9, 200_001, 10_000);
        let reader = files.open_read("/file").unwrap();
        let mut buffers = vec![[0_u8; 9000]; 40];
        let mut requests: Vec<ReadRequest<'_>> = (0_u64..)
            .zip(&mut buffers)
            .map(|(index, buffer)| ReadRequest { offset: index * 5003, buffer, result: Ok(0) })
            .collect();
        reader.read_many(&mut requests);
        for ReadRequest { offset, buffer, result } in requests {
            let expected = 9000.min(200_001_u64.saturating_sub(offset));
            assert_eq!(result, Ok(expected as usize));
            assert_eq!(buffer[..expected as usize], bytes(9, offset, expected), "{kind:?} from {offset}");
        }
        let mut buffer = [0; 10];
        assert_eq!(reader.read(200_001, &mut buffer), Ok(0), "the end");
        assert_eq!(reader.read(u64::MAX, &mut buffer), Ok(0), "far behind it");
    }
}

#[test]
fn a_file_is_read_while_it_is_written() {
    for place in PLACES {
        a_file_is_read_while_it_is_written_of(Drive::new(place, 64, 3));
    }
}

fn a_file_is_read_while_it_is_written_of(files: Drive) {
    for kind in KINDS {
        let mut writer = files.create("/file", kind).unwrap();
        for step in 0..30 {
            writer.append(&bytes(5, step * 7001, 7001)).unwrap();
            if kind == FileKind::Log {
                assert_eq!(content(&files, "/file"), bytes(5, 0, (step + 1) * 7001));
            }
        }
        writer.close().unwrap();
        assert_eq!(content(&files, "/file"), bytes(5, 0, 30 * 7001));
    }
}

#[test]
fn the_end_of_a_file_may_be_written_again_and_cut() {
    for place in PLACES {
        the_end_of_a_file_may_be_written_again_and_cut_of(Drive::new(place, 64, 4));
    }
}

fn the_end_of_a_file_may_be_written_again_and_cut_of(files: Drive) {
    for kind in KINDS {
        // As direct I/O writes: whole blocks, the last one with zeroes behind, then again, and cut at the end.
        let mut writer = files.create("/file", kind).unwrap();
        let mut padded = bytes(6, 0, 10_000);
        padded.resize(12_288, 0);
        writer.write_at(0, &padded).unwrap();
        let mut rest = bytes(6, 8192, 5000);
        rest.resize(8192, 0);
        writer.write_at(8192, &rest).unwrap();
        writer.sync().unwrap();
        writer.truncate(13_192).unwrap();
        writer.close().unwrap();
        assert_eq!(content(&files, "/file"), bytes(6, 0, 13_192), "{kind:?}");
        files.sync_names("/").unwrap();
        let mut writer = files.create("/other", kind).unwrap();
        writer.append(&[1; 20_000]).unwrap();
        assert!(matches!(writer.write_at(8192, &[2; 20_000]), Err(FileError::NotSupported(_))), "too far back");
        assert!(matches!(writer.write_at(19_000, &[2; 10]), Err(FileError::NotSupported(_))), "not to the end");
        assert!(matches!(writer.write_at(20_001, &[2; 10]), Err(FileError::NotSupported(_))), "beyond the end");
        assert!(matches!(writer.truncate(20_001), Err(FileError::Invalid(_))));
    }
    let files = files.power_cut(false);
    assert_eq!(content(&files, "/file").len(), 13_192);
}

#[test]
fn a_table_is_written_once_and_a_log_is_gone_on_with() {
    for place in PLACES {
        a_table_is_written_once_and_a_log_is_gone_on_with_of(Drive::new(place, 64, 5));
    }
}

fn a_table_is_written_once_and_a_log_is_gone_on_with_of(files: Drive) {
    write(&files, "/t.sst", FileKind::Table, 1, 5000, 5000);
    let error = files.append_to("/t.sst").map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "/t.sst is a table: it is written once, and cannot be appended to");
    let mut writer = files.create("/u.sst", FileKind::Table).unwrap();
    writer.append(b"one").unwrap();
    writer.sync().unwrap();
    assert!(matches!(writer.append(b"two"), Err(FileError::NotSupported(_))));
    writer.close().unwrap();
    assert_eq!(content(&files, "/u.sst"), b"one");
    write(&files, "/l.log", FileKind::Log, 2, 5000, 5000);
    let files = files.reopen();
    let mut writer = files.append_to("/l.log").unwrap();
    writer.append(&bytes(2, 5000, 5000)).unwrap();
    writer.close().unwrap();
    assert_eq!(content(&files, "/l.log"), bytes(2, 0, 10_000));
}

#[test]
fn what_is_committed_costs_no_sync_and_is_durable_with_the_next_one() {
    for place in PLACES {
        what_is_committed_costs_no_sync_and_is_durable_with_the_next_one_of(Drive::new(place, 64, 17));
    }
}

fn what_is_committed_costs_no_sync_and_is_durable_with_the_next_one_of(files: Drive) {
    let syncs = |files: &Drive| {
        let statistics: serde_json::Value = serde_json::from_str(&files.statistics().unwrap()).unwrap();
        statistics["syncs"].as_u64().unwrap()
    };
    let mut table = files.create("/t.sst", FileKind::Table).unwrap();
    table.append(&bytes(1, 0, 100_000)).unwrap();
    table.commit().unwrap();
    assert!(matches!(table.append(b"more"), Err(FileError::NotSupported(_))));
    assert_eq!(content(&files, "/t.sst"), bytes(1, 0, 100_000), "it is whole before it is closed");
    table.close().unwrap();
    assert_eq!(syncs(&files), 0);
    let mut manifest = files.create("/MANIFEST", FileKind::Log).unwrap();
    manifest.append(b"t.sst").unwrap();
    manifest.sync().unwrap();
    assert_eq!(syncs(&files), 1);
    manifest.forget();
    let files = files.power_cut(true);
    assert_eq!(content(&files, "/MANIFEST"), b"t.sst");
    assert_eq!(content(&files, "/t.sst"), bytes(1, 0, 100_000));
}

#[test]
fn a_table_can_be_read_by_who_opened_it_before_its_first_byte() {
    for place in PLACES {
        a_table_can_be_read_by_who_opened_it_before_its_first_byte_of(Drive::new(place, 64, 12));
    }
}

fn a_table_can_be_read_by_who_opened_it_before_its_first_byte_of(files: Drive) {
    let mut writer = files.create("/t.sst", FileKind::Table).unwrap();
    let reader = files.open_read("/t.sst").unwrap();
    writer.append(&bytes(1, 0, 20_000)).unwrap();
    writer.close().unwrap();
    files.delete("/t.sst").unwrap();
    files.sync_names("/").unwrap();
    for other in 2..12 {
        write(&files, "/t.sst", FileKind::Table, other, 100_000, 50_000);
        files.sync_names("/").unwrap();
    }
    assert_eq!(read_all(&reader), bytes(1, 0, 20_000));
}

#[test]
fn names_are_those_of_a_tree() {
    for place in PLACES {
        names_are_those_of_a_tree_of(Drive::new(place, 64, 6));
    }
}

fn names_are_those_of_a_tree_of(files: Drive) {
    let not_found =
        |result: Result<(), FileError>| assert!(matches!(result, Err(FileError::NotFound(_))), "{result:?}");
    not_found(files.create("/db/x", FileKind::Log).map(|_| ()));
    not_found(files.make_folder("/db/wal"));
    files.make_folder("/db").unwrap();
    files.make_folder("/db/wal").unwrap();
    assert_eq!(files.make_folder("/db"), Err(FileError::Exists("/db".to_owned())));
    write(&files, "/db/b", FileKind::Log, 1, 10, 10);
    write(&files, "/db/a", FileKind::Table, 2, 20, 10);
    write(&files, "/db/wal/c", FileKind::Log, 3, 30, 10);
    let names = |folder: &str| files.list(folder).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names("/db"), ["a", "b", "wal"]);
    assert_eq!(names("/"), ["db"]);
    assert_eq!(names("/db//wal/"), ["c"]);
    assert_eq!(files.attributes("/db/a").unwrap().bytes, 20);
    assert!(matches!(files.delete_folder("/db/wal"), Err(FileError::Busy(_))));
    assert!(matches!(files.delete("/db/wal"), Err(FileError::Invalid(_))));
    assert!(matches!(files.list("/db/a"), Err(FileError::Invalid(_))));
    files.delete("/db/wal/c").unwrap();
    files.delete_folder("/db/wal").unwrap();
    not_found(files.delete("/db/wal/c"));
    files.sync_names("/db").unwrap();
    let files = files.power_cut(true);
    assert_eq!(files.list("/db").unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn renaming_replaces_and_who_reads_the_old_file_goes_on() {
    for place in PLACES {
        renaming_replaces_and_who_reads_the_old_file_goes_on_of(Drive::new(place, 64, 7));
    }
}

fn renaming_replaces_and_who_reads_the_old_file_goes_on_of(files: Drive) {
    for kind in KINDS {
        write(&files, "/old", kind, 1, 9000, 9000);
        write(&files, "/new", kind, 2, 7000, 7000);
        let reader = files.open_read("/old").unwrap();
        files.rename("/new", "/old").unwrap();
        files.sync_names("/").unwrap();
        // Chunks and blocks of the replaced file are not given away while it is read.
        for other in 0..8 {
            write(&files, &format!("/other{other}"), kind, 10 + other, 30_000, 9000);
        }
        files.sync_names("/").unwrap();
        assert_eq!(content(&files, "/old"), bytes(2, 0, 7000));
        assert_eq!(read_all(&reader), bytes(1, 0, 9000), "{kind:?}");
        assert!(matches!(files.rename("/new", "/x"), Err(FileError::NotFound(_))));
    }
    let files = files.power_cut(false);
    assert_eq!(content(&files, "/old"), bytes(2, 0, 7000));
}

#[test]
fn a_lock_is_had_once() {
    for place in PLACES {
        a_lock_is_had_once_of(Drive::new(place, 64, 8));
    }
}

fn a_lock_is_had_once_of(files: Drive) {
    files.lock("/LOCK").unwrap();
    assert_eq!(files.lock("//LOCK"), Err(FileError::Busy("/LOCK is locked already".to_owned())));
    files.unlock("/LOCK").unwrap();
    assert!(files.unlock("/LOCK").is_err());
    files.lock("/LOCK").unwrap();
}

#[test]
fn a_full_drive_says_so_and_goes_on_when_tables_are_deleted() {
    for place in PLACES {
        a_full_drive_says_so_and_goes_on_when_tables_are_deleted_of(Drive::new(place, 64, 9));
    }
}

fn a_full_drive_says_so_and_goes_on_when_tables_are_deleted_of(files: Drive) {
    let (free, all) = files.space().unwrap();
    // A file system has a root folder, and a map with its place.
    let is_tree = matches!(*files, Volume::Alfs(_));
    assert_eq!(all - free, if is_tree { 8192 } else { 0 });
    let mut count = 0;
    let failed = loop {
        let mut writer = files.create(&format!("/{count}.sst"), FileKind::Table).unwrap();
        match writer.append(&bytes(count, 0, 200_000)).and_then(|()| writer.close()) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, FileError::NoSpace(_)), "{failed}");
    files.delete(&format!("/{count}.sst")).unwrap();
    assert!(count > 3, "{count} tables");
    for round in 0..3 * count {
        files.delete(&format!("/{}.sst", round % count)).unwrap();
        write(&files, &format!("/{}.sst", round % count), FileKind::Table, 1000 + round, 200_000, 50_000);
    }
    for table in 0..count {
        assert_eq!(content(&files, &format!("/{table}.sst")), bytes(1000 + 2 * count + table, 0, 200_000));
    }
    for table in 0..count {
        files.delete(&format!("/{table}.sst")).unwrap();
    }
    files.sync_names("/").unwrap();
    let mut writer = files.create("/large.sst", FileKind::Table).unwrap();
    let error = (0..).find_map(|_| writer.append(&[0; 65_536]).err()).unwrap();
    assert!(matches!(error, FileError::TooLarge(_)), "{error}");
    drop(writer);
    files.delete("/large.sst").unwrap();
}

#[test]
fn a_full_log_area_says_so_and_goes_on_when_log_files_are_deleted() {
    for place in PLACES {
        a_full_log_area_says_so_and_goes_on_when_log_files_are_deleted_of(Drive::new(place, 64, 10));
    }
}

fn a_full_log_area_says_so_and_goes_on_when_log_files_are_deleted_of(files: Drive) {
    let mut writer = files.create("/a.log", FileKind::Log).unwrap();
    let error = (0..).find_map(|_| writer.append(&[7; 65_536]).err()).unwrap();
    assert!(matches!(error, FileError::NoSpace(_)), "{error}");
    drop(writer);
    for round in 0..20 {
        files.delete("/a.log").unwrap();
        write(&files, "/a.log", FileKind::Log, round, 1_500_000, 65_536);
    }
    assert_eq!(content(&files, "/a.log"), bytes(19, 0, 1_500_000));
}

#[test]
fn many_threads_write_and_read_side_by_side() {
    for place in PLACES {
        many_threads_write_and_read_side_by_side_of(Drive::new(place, 256, 11));
    }
}

fn many_threads_write_and_read_side_by_side_of(files: Drive) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..4_u64 {
            let files: &Drive = &files;
            threads.push(scope.spawn(move || {
                for round in 0..12 {
                    for kind in KINDS {
                        let path = format!("/{thread}-{kind:?}");
                        let id = thread * 100 + round;
                        write(files, &path, kind, id, 90_000, 12_345);
                        files.sync_names("/").unwrap();
                        assert_eq!(content(files, &path), bytes(id, 0, 90_000));
                    }
                }
            }));
        }
        // Another looks at whatever there is.
        let (files, stop) = (&files, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for (name, _) in files.list("/").unwrap() {
                    if let Ok(reader) = files.open_read(&format!("/{name}")) {
                        let _ = reader.read(0, &mut [0; 5000]).unwrap();
                    }
                }
            }
        });
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|ended| ended.is_ok()));
    });
    assert_eq!(files.list("/").unwrap().len(), 8);
}

#[test]
fn what_is_synced_after_its_file_was_renamed_is_there_under_the_new_name() {
    for place in PLACES {
        what_is_synced_after_its_file_was_renamed_is_there_under_the_new_name_of(Drive::new(place, 64, 12));
    }
}

fn what_is_synced_after_its_file_was_renamed_is_there_under_the_new_name_of(files: Drive) {
    let mut log = files.create("/log", FileKind::Log).unwrap();
    let mut table = files.create("/table", FileKind::Table).unwrap();
    let mut forgotten = files.create("/forgotten", FileKind::Log).unwrap();
    log.append(&bytes(1, 0, 100)).unwrap();
    log.sync().unwrap();
    log.append(&bytes(1, 100, 10_000)).unwrap();
    table.append(&bytes(2, 0, 50_000)).unwrap();
    forgotten.append(&bytes(3, 0, 100)).unwrap();
    forgotten.sync().unwrap();
    forgotten.append(&bytes(3, 100, 10)).unwrap();
    for name in ["log", "table", "forgotten"] {
        files.rename(&format!("/{name}"), &format!("/{name}-2")).unwrap();
    }
    log.append(&bytes(1, 10_100, 5000)).unwrap();
    table.append(&bytes(2, 50_000, 5000)).unwrap();
    table.close().unwrap();
    log.sync().unwrap();
    forgotten.forget();
    drop(log);
    let files = files.power_cut(false);
    let names: Vec<String> = files.list("/").unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["forgotten-2", "log-2", "table-2"]);
    assert_eq!(content(&files, "/log-2"), bytes(1, 0, 15_100));
    assert_eq!(content(&files, "/table-2"), bytes(2, 0, 55_000));
    let found = content(&files, "/forgotten-2");
    assert!(found.len() >= 100, "{} bytes", found.len());
    assert_eq!(found, bytes(3, 0, found.len() as u64), "what was never written is not there");
}
