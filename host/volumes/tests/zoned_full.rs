//! Files on zones that are full, or of which something fails, and how they go on.

use crate::common::{bytes, content, reopen_zones, tiny_zones, write};
use openftl_files::{FileError, FileKind};
use openftl_volumes::Volume;

const BLOCK: u64 = openftl_core::BLOCK_BYTES as u64;

#[test]
fn a_catalog_that_outgrows_its_zone_refuses_a_sync_and_takes_it_when_files_were_deleted() {
    let files = tiny_zones(64, 1);
    let capacity = u64::from(files.with_drive(|drive| drive.layout().capacity));
    let path = |number: u64| format!("/{number}");
    // Each record has a tail of almost a block.
    let mut writers: Vec<_> =
        (0..capacity + 4).map(|number| files.create(&path(number), FileKind::Log).unwrap()).collect();
    files.sync_names("/").unwrap();
    for (writer, number) in writers.iter_mut().zip(0..) {
        writer.append(&bytes(number, 0, 4050)).unwrap();
        writer.commit().unwrap();
    }
    for _ in 0..2 {
        let refused = files.sync_names("/");
        assert!(matches!(refused, Err(FileError::NoSpace(_))), "{refused:?}");
    }
    for number in 0..20 {
        files.delete(&path(number)).unwrap();
    }
    files.sync_names("/").unwrap();
    writers.into_iter().for_each(|writer| writer.forget());
    let files = Volume::Zoned(reopen_zones(files.crash().unwrap()));
    assert_eq!(files.list("/").unwrap().len() as u64, capacity - 16);
    for number in 20..capacity + 4 {
        assert_eq!(content(&files, &path(number)), bytes(number, 0, 4050));
    }
}

#[test]
fn a_zone_that_cannot_be_read_does_not_end_cleaning() {
    let files = tiny_zones(64, 3);
    let volume = Volume::Zoned(files.clone());
    let (zone, pieces) =
        (u64::from(files.with_drive(|drive| drive.layout().capacity)) * BLOCK, files.space().1 / 3 / 8192);
    let (mut kept, mut gone) =
        (files.create("/kept", FileKind::Log).unwrap(), files.create("/gone", FileKind::Log).unwrap());
    for piece in 0..pieces {
        for (writer, id) in [(&mut kept, 1), (&mut gone, 2)] {
            writer.append(&bytes(id, piece * 8192, 8192)).unwrap();
            writer.commit().unwrap();
        }
    }
    kept.close().unwrap();
    gone.close().unwrap();
    files.delete("/gone").unwrap();
    files.sync_names("/").unwrap();
    // In the midst of the first two victims blocks of both files are lost.
    for zone in [2, 3] {
        files.with_drive(|drive| {
            for block in 40..44 {
                let place = drive.place_on_media(zone, block).unwrap();
                drive.media_mut().inject_read_failure(place).unwrap();
            }
        });
    }
    // What cannot move keeps a zone each, and what has moved before takes as much elsewhere.
    let room = files.space().0 - 4 * zone;
    write(&volume, "/new", FileKind::Table, 3, room, 65_536);
    files.sync_names("/").unwrap();
    assert_eq!(content(&volume, "/new"), bytes(3, 0, room));
    let lost = files.open_read("/kept").unwrap().read(0, &mut vec![0; pieces as usize * 8192]);
    assert!(matches!(lost, Err(FileError::Io(_))), "{lost:?}");
    assert!(files.statistics().ftl.zones_cleaned > 0);
}
