//! Drives of zones that cannot have files, and what is wrong with them; the room that deleted files leave.

use crate::common::{bytes, config, content, reopen_zones, tiny_device, tiny_zones, write, zones};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Time};
use openftl_files::{FileError, FileKind, Files, Pace, PaceClock, ZoneFiles};
use openftl_media::EmulatedDevice;
use openftl_parts::{Access, Durability, Target};
use openftl_tables::{TableLifetime, TablePlacement};
use openftl_volumes::Volume;
use openftl_zones::{Ftl, Limits, ZoneConfig, ZoneFtl, ZoneRequest, ZoneState};

fn format(zones: ZoneConfig) -> Result<ZoneFiles<EmulatedDevice>, FileError> {
    ZoneFiles::format(tiny_device(64, 1), config(), zones, Pace::Virtual)
}

#[test]
fn too_few_zones_or_active_ones_are_refused_with_the_field_and_the_least_that_do_work() {
    let refused = |zones: ZoneConfig, text: &str| {
        let error = format(zones).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let limits = |max_active| Limits { max_open: 1, max_active };
    refused(ZoneConfig { zones: Some(3), limits: limits(3), ..zones(1) }, "the drive has 3 zones, and files need 4");
    refused(ZoneConfig { zones: Some(8), limits: limits(2), ..zones(1) }, "max_active_zones = 2: files need 3");
    let files = Volume::Zoned(format(ZoneConfig { zones: Some(4), limits: limits(3), ..zones(1) }).unwrap());
    write(&files, "/a", FileKind::Log, 1, 50_000, 999);
    write(&files, "/b", FileKind::Table, 2, 50_000, 999);
    files.sync_names("/").unwrap();
    assert_eq!(content(&files, "/a"), bytes(1, 0, 50_000));
    assert_eq!(content(&files, "/b"), bytes(2, 0, 50_000));
}

/// Writes a block to a zone of a drive without files.
fn write_block(drive: &mut ZoneFtl<EmulatedDevice>, zone: u64, clock: &mut PaceClock) {
    let frame = drive.frames_mut().acquire(FrameForm::Bytes).unwrap();
    drive.frames_mut().bytes_mut(frame).fill(7);
    let first = zone * drive.layout().size;
    let request = ZoneRequest::Write { first, frames: &[frame], durability: Durability::Volatile };
    drive.submit(clock.now(), 1, request).unwrap();
    drive.poll(clock.now(), &mut Vec::new());
}

#[test]
fn zones_that_somebody_else_has_written_are_left_alone() {
    for (zone, text) in
        [(0, "zone 0 is written, and has no catalog of files"), (5, "zone 5 is written, and no catalog")]
    {
        let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
        let mut drive = ZoneFtl::format(tiny_device(64, 2), config(), zones(2), &mut clock).unwrap();
        write_block(&mut drive, zone, &mut clock);
        let device = drive.close(&mut clock).unwrap();
        let error = ZoneFiles::open(device, config(), Access::ReadWrite, Pace::Virtual).map(|_| ()).unwrap_err();
        assert!(matches!(&error, FileError::Invalid(said) if said.contains(text)), "{error}");
    }
}

#[test]
fn a_drive_of_another_kind_is_refused() {
    let tables = Files::format(tiny_device(64, 3), config(), TablePlacement::Horizontal, Pace::Virtual).unwrap();
    let device = tables.close().unwrap().unwrap();
    let error = ZoneFiles::open(device, config(), Access::ReadWrite, Pace::Virtual).map(|_| ()).unwrap_err();
    assert!(matches!(error, FileError::Invalid(_)), "{error}");
}

#[test]
fn who_only_looks_changes_nothing() {
    let files = Volume::Zoned(tiny_zones(64, 4));
    write(&files, "/a", FileKind::Log, 1, 5000, 999);
    files.sync_names("/").unwrap();
    let Volume::Zoned(files) = files else { unreachable!("it is on zones") };
    let device = files.close().unwrap().unwrap();
    let files = ZoneFiles::open(device, config(), Access::Inspect, Pace::Virtual).unwrap();
    assert!(matches!(files.delete("/a"), Err(FileError::ReadOnly(_))));
    assert!(matches!(files.create("/b", FileKind::Log), Err(FileError::ReadOnly(_))));
    assert!(matches!(files.append_to("/a"), Err(FileError::ReadOnly(_))));
    assert_eq!(content(&Volume::Zoned(files.clone()), "/a"), bytes(1, 0, 5000));
    let files = Volume::Zoned(reopen_zones(files.crash().unwrap()));
    assert_eq!(content(&files, "/a"), bytes(1, 0, 5000));
}

#[test]
fn a_synced_end_of_a_log_file_stays_though_more_was_gathered_behind_it_and_the_file_was_renamed() {
    let files = tiny_zones(64, 5);
    let mut writer = files.create("/a", FileKind::Log).unwrap();
    writer.append(&bytes(1, 0, 100)).unwrap();
    writer.sync().unwrap();
    writer.append(&bytes(1, 100, 10_000)).unwrap();
    files.rename("/a", "/b").unwrap();
    files.sync_names("/").unwrap();
    writer.forget();
    let files = Volume::Zoned(reopen_zones(files.crash().unwrap()));
    let found = content(&files, "/b");
    assert!(found.len() >= 100, "{} bytes", found.len());
    assert_eq!(found, bytes(1, 0, found.len() as u64));
}

#[test]
fn zones_of_short_lives_are_reset_and_nothing_of_them_is_copied() {
    let files = tiny_zones(64, 6);
    let mut long = files.create("/long", FileKind::Table).unwrap();
    long.hint_lifetime(TableLifetime::Extreme);
    for round in 0..40 {
        long.append(&bytes(1, round * 5000, 5000)).unwrap();
        let mut short = files.create("/short", FileKind::Table).unwrap();
        short.hint_lifetime(TableLifetime::Short);
        short.append(&bytes(2, 0, 200_000)).unwrap();
        short.close().unwrap();
        files.sync_names("/").unwrap();
    }
    long.close().unwrap();
    let statistics = files.statistics();
    assert!(statistics.ftl.zones.resets > 20, "{statistics:?}");
    assert_eq!(statistics.ftl.blocks_cleaned, 0, "{statistics:?}");
    let tables = statistics.programmed.iter().find(|(purpose, _)| *purpose == "tables").unwrap().1;
    let written = statistics.table_bytes_written / BLOCK_BYTES as u64 + statistics.ftl.catalog_blocks;
    assert!(tables <= written + 40, "each block once, and the ends of tables are padded: {statistics:?}");
    assert_eq!(content(&Volume::Zoned(files), "/long"), bytes(1, 0, 200_000));
}

#[test]
fn mixed_lives_are_parted_by_cleaning_and_deleted_files_give_their_room_back() {
    let files = tiny_zones(64, 7);
    let (_, all) = files.space();
    let volume = Volume::Zoned(files.clone());
    // Each zone has blocks of both, in turns, until two thirds of the drive are full.
    let pieces = all / 3 / 8192;
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
    assert_eq!(files.with_drive(|drive| drive.board().zones()[3].state), ZoneState::Full);
    let room = files.space().0;
    assert!(room >= all / 2, "{room} of {all}");
    // Of that, all but what the last zones cannot be emptied for.
    write(&volume, "/new", FileKind::Table, 3, room - 64 * BLOCK_BYTES as u64, 65_536);
    files.sync_names("/").unwrap();
    assert!(files.statistics().ftl.zones_cleaned > 0);
    drop(volume);
    let files = Volume::Zoned(reopen_zones(files.crash().unwrap()));
    assert_eq!(content(&files, "/kept"), bytes(1, 0, pieces * 8192));
    assert_eq!(content(&files, "/new"), bytes(3, 0, room - 64 * BLOCK_BYTES as u64));
}
