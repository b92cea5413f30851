//! Files on zones that are full, or of which something fails, and how they go on.

use crate::common::{bytes, content, reopen_zones, tiny_zones};
use openftl_files::{FileError, FileKind, Volume};

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
