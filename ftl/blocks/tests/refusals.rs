//! Drives that cannot be opened, each with the error that says why, and nothing written to any of them. And a drive that
//! is only looked at.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::{ChunkId, Clock, FrameForm, Frames, Geometry, Ppa, VirtualClock};
use openftl_media::{Blocks, ChunkState, Command, EmulatedDevice, Media, Profile, Status, Store, Timing};
use openftl_parts::flash::oob::{BlockKind, OOB_VERSION, Oob};
use openftl_parts::flash::seals::Seals;
use openftl_parts::journal::log::Log;
use openftl_parts::journal::log_block::Record;
use openftl_parts::journal::superblock::{SUPERBLOCK_VERSION, Superblock, SuperblockError};
use openftl_parts::map::Width;
use openftl_parts::open_error::OpenError;
use openftl_parts::{Access, BlockTarget, Config, Durability, IoError, PlanError, ReadOnlyReason};
use openftl_sim::played::Played;
use openftl_sim::wire::Wire;
use openftl_sim::world::{World, config};

/// A drive that was closed, or cut off, with something in it.
fn drive(clean: bool) -> World {
    let mut world = World::tiny(700, 1);
    world.write_all(16);
    world.flush();
    while world.ftl().statistics().checkpoints < 2 {
        world.write(0, 8);
        world.flush();
    }
    if clean {
        world.settle();
        world.ftl.take().unwrap().close(&mut world.clock).unwrap();
    }
    world.power_cut(false);
    world
}

/// Opens it in vain: the error, after making sure that nothing was written.
fn refused(world: &mut World) -> OpenError {
    let before = world.chunk_report();
    let programmed = world.device().statistics().blocks_programmed;
    let error = world.open(Access::ReadWrite).expect_err("it cannot be opened");
    assert_eq!(world.chunk_report(), before, "nothing was written");
    assert_eq!(world.device().statistics().blocks_programmed, programmed);
    error
}

/// The same where padding is written before: the log is read after it.
fn refused_after_padding(world: &mut World) -> OpenError {
    world.open(Access::ReadWrite).expect_err("it cannot be opened")
}

/// It would take the chunks of the tables for its own.
#[test]
fn a_block_drive_is_not_opened_or_made_with_a_catalog_of_tables() {
    let mut world = drive(true);
    world.config.catalog_blocks = 8;
    let error = refused(&mut world);
    assert!(matches!(error, OpenError::OtherKind { found: "block", wanted: "table" }), "{error}");
    let tiny = Profile::builtin("tiny").unwrap();
    let media = EmulatedDevice::new(tiny, 20, Store::Stamps, Timing::Modelled, 1).unwrap();
    let config = Config { catalog_blocks: 8, ..config(700, 1) };
    let made = BlockFtl::format(media, config, &mut VirtualClock::default());
    assert!(matches!(made.err(), Some(OpenError::OtherKind { .. })));
}

/// Writes raw blocks at the write pointer of a chunk, as somebody else would.
fn write_raw(world: &mut World, chunk: ChunkId, units: &[Vec<(Oob, Vec<u8>)>]) {
    write_raw_as(world, chunk, units, OOB_VERSION);
}

/// The same; their out-of-band bytes say that they are of that version.
fn write_raw_as(world: &mut World, chunk: ChunkId, units: &[Vec<(Oob, Vec<u8>)>], version: u8) {
    let geometry = *world.wire.geometry();
    for unit in units {
        let write_pointer = world.chunk_report().iter().find(|other| other.chunk == chunk).unwrap().write_pointer;
        if write_pointer == geometry.blocks_per_chunk {
            // Full, and so all of it can be read.
            return;
        }
        let first = geometry.format().ppa(chunk, write_pointer);
        let mut seals = Seals::new(&geometry);
        seals.begin(world.config.drive_id, 0, false);
        let mut frames = Frames::new(unit.len(), 0, geometry.oob_bytes as usize);
        let mut list = Vec::new();
        for (oob, bytes) in unit {
            let frame = frames.acquire(FrameForm::Bytes).unwrap();
            frames.bytes_mut(frame).fill(0);
            frames.bytes_mut(frame)[..bytes.len()].copy_from_slice(bytes);
            oob.seal(&mut frames, frame);
            seals.apply(&mut frames, frame, Ppa(first.0 + list.len() as u64));
            frames.oob_mut(frame)[1] = version;
            list.push(frame);
        }
        let blocks: Vec<Ppa> = (0..unit.len() as u64).map(|index| Ppa(first.0 + index)).collect();
        let command = Command::Write { blocks: Blocks::Vector(&blocks), frames: &list, fua: true };
        let mut completions = Vec::new();
        let now = world.clock.now();
        world.device().submit(now, &mut frames, 0, command).unwrap();
        let due = world.device().next_due().unwrap();
        let now = world.clock.wait_until(due);
        world.device().poll(now, &mut frames, &mut completions);
        assert_eq!(completions[0].status, Status::Success);
    }
}

fn padding() -> Vec<(Oob, Vec<u8>)> {
    vec![(Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }, Vec::new()); 4]
}

/// A chunk that the next superblock could go to.
fn open_place(world: &mut World, superblock: &Superblock) -> ChunkId {
    let report = world.chunk_report();
    let is = |chunk: &u32, state| report.iter().any(|other| other.chunk.0 == *chunk && other.state == state);
    let place = |state| superblock.places.iter().copied().find(|chunk| is(chunk, state));
    ChunkId(place(ChunkState::Open).or_else(|| place(ChunkState::Free)).expect("one of them can be written"))
}

#[test]
fn a_device_that_was_never_formatted_is_refused() {
    let device =
        EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 20, Store::Stamps, Timing::Modelled, 1).unwrap();
    let mut world = drive(true);
    world.wire = Wire::new(device);
    assert_eq!(refused(&mut world), OpenError::NotFormatted);
    // The same with something of somebody else on it, half written.
    for chunk in world.wire.geometry().chunk_ids().take(6).collect::<Vec<_>>() {
        write_raw(&mut world, chunk, &[padding(), padding(), padding()]);
    }
    let error = refused(&mut world);
    assert_eq!(error, OpenError::NotFormatted);
    assert!(error.to_string().contains("openftl create"), "{error}");
}

#[test]
fn a_drive_of_another_geometry_is_refused() {
    for clean in [true, false] {
        let mut world = drive(clean);
        let geometry = *world.wire.geometry();
        // One chunk fewer on each parallel unit: the addresses stay what they are.
        let smaller = Geometry { chunks_per_pu: geometry.chunks_per_pu - 1, ..geometry };
        assert_eq!(smaller.format(), geometry.format());
        world.wire = world.wire.pretending(smaller);
        let (formatted, found) = (Superblock::geometry_of(&geometry), Superblock::geometry_of(&smaller));
        assert_eq!(refused(&mut world), OpenError::OtherGeometry { formatted, found });
    }
}

#[test]
fn a_drive_of_a_newer_version_is_refused_though_older_superblocks_are_there() {
    for clean in [true, false] {
        let mut world = drive(clean);
        world.open(Access::Inspect).unwrap();
        let superblock = world.ftl().superblock().clone();
        world.ftl = None;
        let mut bytes = Superblock { sequence: superblock.sequence + 1, ..superblock.clone() }.encode();
        bytes[8] = (SUPERBLOCK_VERSION + 1) as u8;
        let oob = Oob { kind: BlockKind::Superblock, address: 0, sequence: superblock.sequence + 1 };
        let mut record = padding();
        record[0] = (oob, bytes);
        let place = open_place(&mut world, &superblock);
        write_raw(&mut world, place, &[record, padding(), padding()]);
        let error = refused(&mut world);
        assert_eq!(error, OpenError::Superblock(SuperblockError::Version(SUPERBLOCK_VERSION + 1)));
        assert!(error.to_string().contains("use a newer"), "{error}");
    }
}

#[test]
fn a_drive_of_a_version_before_is_refused_with_both_versions_and_what_to_do() {
    // What was changed last is the superblock alone; before that it was the out-of-band bytes as well.
    for (before, of_blocks) in [(SUPERBLOCK_VERSION - 1, OOB_VERSION), (2, 2)] {
        let mut world = drive(true);
        world.open(Access::Inspect).unwrap();
        let superblock = world.ftl().superblock().clone();
        world.ftl = None;
        let tiny = Profile::builtin("tiny").unwrap();
        world.wire = Wire::new(EmulatedDevice::new(tiny, 40, Store::Ram, Timing::Modelled, 1).unwrap());
        let mut bytes = superblock.encode();
        bytes[8] = before as u8;
        let oob = Oob { kind: BlockKind::Superblock, address: 0, sequence: superblock.sequence };
        let mut record = padding();
        record[0] = (oob, bytes);
        write_raw_as(&mut world, ChunkId(superblock.places[0]), &[record, padding(), padding()], of_blocks);
        let error = refused(&mut world);
        assert_eq!(error, OpenError::Superblock(SuperblockError::Version(before)));
        let error = error.to_string();
        let versions = format!("format version {before}, this program knows version {SUPERBLOCK_VERSION}");
        assert!(error.contains(&versions), "{error}");
        assert!(error.contains("use the older OpenFTL that wrote it") && error.contains("openftl create"), "{error}");
    }
}

/// Appends `superblock` to one of its places; its out-of-band bytes call it number `sequence`.
fn write_superblock(world: &mut World, place: ChunkId, superblock: &Superblock, sequence: u64) {
    let oob = Oob { kind: BlockKind::Superblock, address: 0, sequence };
    let mut record = padding();
    record[0] = (oob, superblock.encode());
    write_raw(world, place, &[record, padding(), padding()]);
}

#[test]
fn a_superblock_that_cannot_be_true_is_refused_whatever_its_checksum() {
    type Change = fn(&mut Superblock);
    let changes: [(Change, &str); 12] = [
        (|superblock| superblock.capacity_blocks = 0, "capacity is 0 blocks"),
        (|superblock| superblock.capacity_blocks = 0x7FFF_FFFF, "capacity is 2147483647 blocks, and the device has"),
        (|superblock| superblock.sequence += 1 << 47, "its sequence is"),
        (|superblock| superblock.places[0] = 9, "chunk 9 is for superblocks, which nobody would find there"),
        (|superblock| superblock.first_lsn = 0, "the first LSN is 0"),
        (|superblock| superblock.first_lsn = u64::MAX, "the first LSN is 18446744073709551615"),
        (|superblock| superblock.position = u64::MAX, "host blocks written is"),
        (|superblock| superblock.checkpoint.sequence = u64::MAX, "the checkpoint's sequence is"),
        (
            |superblock| superblock.log_chunks[0].push(0xFFFF),
            "chunk 65535 is for the log, and the device has no such chunk",
        ),
        (
            |superblock| superblock.log_chunks[1].push(superblock.log_chunks[0][0]),
            "is for the log, and for the log too",
        ),
        (|superblock| superblock.log_chunks[0].push(superblock.checkpoint.copies[0][0].chunk), "and for the log too"),
        (
            |superblock| superblock.checkpoint.copies[0][0].blocks = u32::MAX,
            "the checkpoint has 4294967295 blocks of chunk",
        ),
    ];
    let rewritten = |change: &dyn Fn(&mut Superblock)| {
        let mut world = drive(false);
        world.open(Access::Inspect).unwrap();
        let mut superblock = world.ftl().superblock().clone();
        world.ftl = None;
        let place = open_place(&mut world, &superblock);
        // One that cannot be read yet may have the next number.
        superblock.sequence += 10;
        change(&mut superblock);
        let sequence = superblock.sequence;
        write_superblock(&mut world, place, &superblock, sequence);
        world
    };
    for (change, reason) in changes {
        let error = refused(&mut rewritten(&change));
        assert!(matches!(error, OpenError::Superblock(SuperblockError::Untrue { .. })), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    // And one that is only written again is not.
    let mut world = rewritten(&|_| ());
    world.recover().unwrap();
}

#[test]
fn a_superblock_that_its_out_of_band_bytes_call_otherwise_is_refused() {
    let mut world = drive(false);
    world.open(Access::Inspect).unwrap();
    let superblock = world.ftl().superblock().clone();
    world.ftl = None;
    // Taken as it is, the next one would be number 6, and older than this for whoever orders them.
    let newest = superblock.sequence + 1;
    let place = open_place(&mut world, &superblock);
    write_superblock(&mut world, place, &Superblock { sequence: 5, ..superblock }, newest);
    let error = refused(&mut world);
    assert!(
        error.to_string().contains(&format!("superblock 5 cannot be true: its out-of-band bytes call it {newest}"))
    );
}

/// Appends a block to the log of a drive that was cut off, with one record, as number `lsn` and saying that it is `says`.
fn write_log_block(world: &mut World, lsn: u64, says: u64, record: Record) {
    let superblock = world.ftl().superblock().clone();
    world.ftl = None;
    let report = world.chunk_report();
    let is = |chunk: &u32, state| report.iter().any(|other| other.chunk.0 == *chunk && other.state == state);
    let chunk = |state| superblock.log_chunks[0].iter().copied().find(|chunk| is(chunk, state));
    let chunk = chunk(ChunkState::Open).or_else(|| chunk(ChunkState::Free)).expect("a log can be written");
    let mut frames = Frames::new(Log::frames_needed(1), 0, 16);
    let mut log = Log::new(superblock.drive, Width::Narrow, 1, says, &mut frames);
    log.append(&mut frames, record);
    log.force(&mut frames);
    let frame = log.next_unit(0).expect("a unit was ended").frames[0];
    let mut unit = padding();
    let oob = Oob { kind: BlockKind::Log, address: 0, sequence: lsn };
    unit[0] = (oob, frames.bytes(frame).to_vec());
    write_raw(world, ChunkId(chunk), &[unit, padding(), padding()]);
}

/// The LSN after the last of the log.
fn next_lsn(world: &mut World) -> u64 {
    let found = world.ftl().recovery_report().steps.iter().find(|step| step.name == "read log").unwrap().found.clone();
    let numbers: Vec<u64> = found.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [blocks, first_lsn] = numbers[..] else { panic!("{found}") };
    first_lsn + blocks
}

#[test]
fn a_map_that_points_into_metadata_is_refused() {
    let mut world = drive(false);
    world.open(Access::Inspect).unwrap();
    let superblock = world.ftl().superblock().clone();
    let lsn = next_lsn(&mut world);
    let report = world.chunk_report();
    let written = |chunk: &u32| report.iter().any(|other| other.chunk.0 == *chunk && other.write_pointer > 0);
    let place = superblock.places.into_iter().find(written).expect("a superblock was written");
    let ppa = world.wire.geometry().format().ppa(ChunkId(place), 0);
    write_log_block(&mut world, lsn, lsn, Record::Mapped { block: 3, ppa, last: true });
    let error = refused_after_padding(&mut world);
    assert!(error.to_string().contains("which is for log, checkpoints or superblocks"), "{error}");
}

#[test]
fn a_log_block_that_says_another_number_than_its_out_of_band_bytes_is_none() {
    let mut world = drive(false);
    world.open(Access::Inspect).unwrap();
    let lsn = next_lsn(&mut world);
    write_log_block(&mut world, lsn, 1 << 40, Record::Trimmed { first: 0, blocks: 700 });
    world.recover().unwrap();
    world.verify_all();
    world.clean_restart();
    assert!(world.ftl().superblock().first_lsn < lsn + 100, "the log goes on where it was");
}

#[test]
fn a_drive_whose_checkpoint_is_damaged_is_refused() {
    for clean in [true, false] {
        let mut world = drive(clean);
        world.open(Access::Inspect).unwrap();
        let checkpoint = world.ftl().superblock().checkpoint.clone();
        world.ftl = None;
        let format = world.wire.geometry().format();
        for extents in &checkpoint.copies {
            world.device().corrupt(format.ppa(ChunkId(extents[0].chunk), extents[0].first)).unwrap();
        }
        let error = refused(&mut world);
        let OpenError::CheckpointLost { sequence, missing, .. } = error else { panic!("{error}") };
        assert_eq!((sequence, missing), (checkpoint.sequence, 1));
    }
}

#[test]
fn a_capacity_that_does_not_fit_the_device_is_refused_in_numbers() {
    let device =
        EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 20, Store::Stamps, Timing::Modelled, 1).unwrap();
    let blocks = device.geometry().blocks();
    let error =
        BlockFtl::format(device, config(blocks, 1), &mut VirtualClock::default()).err().expect("it does not fit");
    assert!(matches!(error, OpenError::Plan(PlanError::TooFewChunks { available: 80, .. })), "{error}");
}

#[test]
fn a_drive_that_is_only_inspected_is_not_changed() {
    for clean in [true, false] {
        let mut world = drive(clean);
        let (before, commands) = (world.chunk_report(), world.device().statistics().blocks_programmed);
        world.open(Access::Inspect).unwrap();
        assert_eq!(world.ftl().read_only_reason(), Some(ReadOnlyReason::Inspection));
        assert_eq!(world.ftl().recovery_report().clean, clean);
        if clean {
            world.verify_all();
            world.check();
        }
        assert_eq!(world.try_write(0, 1, Durability::Volatile), Err(IoError::ReadOnly));
        let ftl = world.ftl.take().unwrap();
        ftl.close(&mut world.clock).unwrap();
        assert_eq!(world.chunk_report(), before);
        assert_eq!(world.device().statistics().blocks_programmed, commands);
        // And nothing keeps it from being opened in earnest.
        world.open(Access::ReadWrite).unwrap();
        world.verify_all();
    }
}

#[test]
fn a_crash_soon_after_a_clean_stop_is_not_called_clean() {
    let mut world = drive(true);
    world.open(Access::ReadWrite).unwrap();
    assert!(world.ftl().recovery_report().clean);
    world.write(5, 3);
    world.flush();
    world.power_cut(false);
    world.recover().unwrap();
    assert!(!world.ftl().recovery_report().clean);
    assert!(world.ftl().recovery_report().replayed >= 3);
}

#[test]
fn choices_that_may_differ_each_time_do_and_those_of_the_format_do_not() {
    let mut world = drive(true);
    world.config = Config { capacity_blocks: 5, drive_id: 7, host_frames: 900, ..world.config.clone() };
    world.open(Access::ReadWrite).unwrap();
    assert_eq!(world.ftl().blocks(), 700);
    assert_eq!(world.ftl().config().drive_id, config(700, 1).drive_id);
    assert_eq!(world.ftl().config().host_frames, 900);
    world.verify_all();
}
