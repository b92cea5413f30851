//! ALFS in lock step with the model, and every power cut of it. `ALFS_SEED` names other seeds, `ALFS_TIMES=10` has ten times as many operations.

use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{FileKind, FileTime, Inode, NewFile, Operation, Volume};
use openftl_core::{FrameForm, Nanos, VirtualClock};
use openftl_media::Profile;
use openftl_parts::Config;
use openftl_segments::MemorySegments;
use openftl_sim::alfs::{Alfs, lose_records};
use openftl_sim::file_steps::Asked;
use openftl_sim::file_world::FileWorld;
use openftl_sim::liveness::Patience;
use openftl_sim::world::profile;
use openftl_sim::{FileAct, FileCrashPoints, FileStage, FileStep, FileSteps, FileWeights, Leniency};
use openftl_zones::{Face, Limits, ZoneConfig};

fn device(is_protected: bool) -> Profile {
    let protection = [("power_loss_protection = true", "power_loss_protection = false")];
    let changes = [("blocks_per_chunk = 32", "blocks_per_chunk = 16")];
    profile("tiny", &[&changes[..], if is_protected { &[] } else { &protection }].concat())
}

/// A device that holds nothing back: flushes of segments write no records there.
fn device_without_pairs() -> Profile {
    let changes = [
        ("blocks_per_chunk = 32", "blocks_per_chunk = 16"),
        ("programming = \"shared\"\npair_distance = 2", "programming = \"one-shot\""),
        ("program_us = [400, 1200]", "program_us = [1200]"),
    ];
    profile("tiny", &changes)
}

fn stage(is_protected: bool, segments: u32, seed: u64) -> FileStage<Alfs> {
    stage_of(device(is_protected), Alfs::syncing_after(Nanos::from_millis(40)), segments, seed)
}

fn stage_of(device: Profile, mounts: Alfs, segments: u32, seed: u64) -> FileStage<Alfs> {
    let config = Config {
        payload: FrameForm::Bytes,
        host_frames: 640,
        checkpoint_log_blocks: Some(24),
        drive_id: 0xA1F5 + seed,
        ..Config::default()
    };
    let shape = ZoneConfig {
        face: Face::Segments,
        width: 1,
        limits: Limits { max_open: 8, max_active: 8 },
        zones: Some(segments),
        extension_bytes: 0,
        window_blocks: 0,
    };
    let chunks = segments / 4 + 40;
    let mut stage = FileStage::new(mounts, device, config, shape, chunks, seed).expect("there can be such a drive");
    stage.world().leniency = Leniency { may_be_full: true, accessed_is_rough: true };
    stage
}

fn steps(seed: u64, weights: FileWeights) -> FileSteps {
    let mut steps = FileSteps::new(seed, weights);
    (steps.files_max, steps.bytes_max, steps.write_bytes_max) = (40, 512 << 10, 60 << 10);
    steps
}

#[test]
fn alfs_does_what_the_model_says() {
    let seeds = std::env::var("ALFS_SEEDS").map_or(6, |text| text.parse().unwrap());
    for seed in first_seed()..first_seed() + seeds {
        let mut stage = stage(seed % 2 == 0, 200, seed);
        let mut steps = steps(seed, FileWeights::usual());
        for number in 0..3000 {
            let step = steps.next(&stage.world().model);
            play(&mut stage, &step, &format!("seed {seed}, step {number}"));
            if number % 1000 == 500 {
                stage.remount().unwrap_or_else(|error| panic!("seed {seed}, remount at {number}: {error}"));
            }
        }
        stage.world().verify().unwrap();
    }
}

/// A sync of everything that is over.
const SYNC: FileStep = FileStep::Ask(Asked { shape: Operation::Sync, name: Vec::new(), payload: Vec::new() });

/// A write to a file of the model.
fn write(inode: Inode, offset: u64, byte: u8, bytes: usize) -> FileStep {
    let shape = Operation::Write { inode, offset, data: b"" };
    FileStep::Ask(Asked { shape, name: Vec::new(), payload: vec![byte; bytes] })
}

/// Does what a step says.
fn play(stage: &mut FileStage<Alfs>, step: &FileStep, of: &str) {
    if let Err(error) = stage.step(step) {
        panic!("{of}: {error}; {}", stage.world().subject.describe());
    }
}

/// Seeds, from one that the environment names.
fn first_seed() -> u64 {
    std::env::var("ALFS_SEED").map_or(0, |text| text.parse().unwrap())
}

/// So many times as many operations as usual.
fn times() -> u32 {
    std::env::var("ALFS_TIMES").map_or(1, |text| text.parse().unwrap())
}

#[test]
fn alfs_bears_every_power_cut() {
    for (is_protected, seed) in [(true, first_seed() + 1), (false, first_seed() + 2)] {
        let mut stage = stage(is_protected, 64, seed);
        let weights = FileWeights::usual().with(FileAct::Sync, 60).with(FileAct::BeginSync, 60);
        let (mut steps, mut points) = (steps(seed, weights), FileCrashPoints::default());
        stage.wire().watch_beyond();
        let operations = if is_protected { 60 } else { 40 };
        for number in 0..operations * times() {
            let step = steps.next(&stage.world().model);
            play(&mut stage, &step, &format!("seed {seed}, step {number}"));
            points.judge(&mut stage).unwrap_or_else(|error| panic!("seed {seed}, step {number}: {error}"));
        }
        println!("seed {seed}, protected: {is_protected}: {points}");
        assert!(points.cuts > 15 && points.recovery_cuts > 100, "too few to show anything: {points}");
    }
}

#[test]
fn alfs_bears_every_power_cut_where_a_flush_writes_no_records_of_segments() {
    let seed = first_seed() + 7;
    let mounts = Alfs::syncing_after(Nanos::from_millis(40));
    let mut stage = stage_of(device_without_pairs(), mounts, 64, seed);
    let weights = FileWeights::usual().with(FileAct::Sync, 90).with(FileAct::BeginSync, 60);
    let (mut steps, mut points) = (steps(seed, weights), FileCrashPoints::default());
    for number in 0..200 {
        let step = steps.next(&stage.world().model);
        play(&mut stage, &step, &format!("seed {seed}, step {number}"));
    }
    stage.wire().watch_beyond();
    for number in 200..200 + 15 * times() {
        let step = steps.next(&stage.world().model);
        play(&mut stage, &step, &format!("seed {seed}, step {number}"));
        points.judge(&mut stage).unwrap_or_else(|error| panic!("seed {seed}, step {number}: {error}"));
    }
    println!("seed {seed}: {points}");
    assert!(points.cuts > 15 && points.recovery_cuts > 100, "too few to show anything: {points}");
}

#[test]
fn alfs_bears_every_power_cut_while_it_cleans() {
    // Without protection each flush takes ten times as many events: only where time is given for it.
    let seeds = [(true, first_seed() + 3), (false, first_seed() + 4)];
    for (is_protected, seed) in seeds.into_iter().take(1 + usize::from(times() > 1)) {
        let mut stage = stage(is_protected, 64, seed);
        let name = b"large".to_vec();
        let file = NewFile { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, device: 0 };
        let inode = stage.world().model.next_inode();
        let shape = Operation::Make { parent: Inode::ROOT, name: b"", file };
        play(&mut stage, &FileStep::Ask(Asked { shape, name, payload: Vec::new() }), "a file is made");
        for piece in 0..32 {
            play(&mut stage, &write(inode, piece << 16, piece as u8, 1 << 16), "a file is filled");
        }
        let (mut steps, mut points) = (steps(seed, FileWeights::usual()), FileCrashPoints::default());
        let cleaned = |stage: &mut FileStage<Alfs>| stage.world().subject.statistics().segments_cleaned;
        let overwrite = |stage: &mut FileStage<Alfs>, number: u64| {
            let offset = (number * 2_654_435_761 % 510) << 12;
            play(stage, &write(inode, offset, number as u8, 8192), &format!("seed {seed}, overwrite {number}"));
        };
        let mut number = 0;
        while cleaned(&mut stage) < 12 {
            overwrite(&mut stage, number);
            number += 1;
            if number % 7 == 0 {
                play(&mut stage, &SYNC, "a sync");
            }
        }
        let before = cleaned(&mut stage);
        stage.wire().watch();
        for at in 0..u64::from(times()) {
            let step = steps.next(&stage.world().model);
            play(&mut stage, &step, &format!("seed {seed}, step {at}"));
            overwrite(&mut stage, number + at);
            play(&mut stage, &SYNC, "a sync");
            points.judge(&mut stage).unwrap_or_else(|error| panic!("seed {seed}, step {at}: {error}"));
        }
        let within = cleaned(&mut stage) - before;
        assert_eq!(stage.world().subject.statistics().blocks_forgotten, 0, "what was cleaned had nothing of use");
        println!("seed {seed}, protected: {is_protected}: {points}, {within} segments cleaned meanwhile");
        assert!(points.cuts > 10, "too few to show anything: {points}, {within} segments cleaned");
    }
}

/// A volume that is rebuilt where its records are lost.
fn rebuilding_stage(is_protected: bool, segments: u32, seed: u64) -> FileStage<Alfs> {
    let mounts = Alfs { rebuilds: true, ..Alfs::syncing_after(Nanos::from_millis(40)) };
    stage_of(device(is_protected), mounts, segments, seed)
}

#[test]
fn a_volume_without_records_is_rebuilt_as_it_was() {
    for seed in first_seed()..first_seed() + 4 {
        let mut stage = rebuilding_stage(seed % 2 == 0, 200, seed);
        let mut steps = steps(seed, FileWeights::usual());
        for number in 0..1500 {
            let step = steps.next(&stage.world().model);
            play(&mut stage, &step, &format!("seed {seed}, step {number}"));
            if number % 300 == 299 {
                let rebuilt = stage.remount_damaged(lose_records, false);
                rebuilt.unwrap_or_else(|error| panic!("seed {seed}, rebuilt at {number}: {error}"));
            }
        }
        stage.world().verify().unwrap();
    }
}

#[test]
fn a_rebuild_bears_every_power_cut() {
    for (is_protected, seed) in [(true, first_seed() + 5), (false, first_seed() + 6)] {
        let mut stage = rebuilding_stage(is_protected, 64, seed);
        let (mut steps, mut points) = (steps(seed, FileWeights::usual()), FileCrashPoints::default());
        for number in 0..150 * times() {
            let step = steps.next(&stage.world().model);
            play(&mut stage, &step, &format!("seed {seed}, step {number}"));
            if number % 75 == 74 {
                let rebuilt = stage.remount_damaged(lose_records, true);
                rebuilt.unwrap_or_else(|error| panic!("seed {seed}, rebuilt at {number}: {error}"));
                points.judge(&mut stage).unwrap_or_else(|error| panic!("seed {seed}, rebuilt at {number}: {error}"));
                stage.wire().ignore();
            }
        }
        println!("seed {seed}, protected: {is_protected}: {points}");
        assert!(points.cuts > 15, "too few to show anything: {points}");
    }
}

/// A volume without flash below, in lock step with the model.
fn in_memory(segments: u32) -> FileWorld<Volume<MemorySegments>> {
    let mut clock = VirtualClock::default();
    let options = Alfs::syncing_after(Nanos::from_millis(40)).options;
    let drive = MemorySegments::new(segments, 16, 640);
    let volume = Volume::format(drive, 0xA1F5, (0, 0), FileTime::default(), &mut clock).unwrap();
    let drive = volume.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    let volume = Volume::mount(drive, options, &mut clock).map_err(|(_, error)| error).unwrap();
    let mut world = FileWorld::new(volume, clock, PATIENCE).unwrap();
    world.leniency = Leniency { may_be_full: true, accessed_is_rough: true };
    world
}

/// Of a drive that takes no time.
const PATIENCE: Patience = Patience { time: Nanos::from_millis(60_000), polls: 1 << 20 };

#[test]
fn segments_that_fail_are_no_news_to_hosts_with_and_without_power_cuts() {
    let mut failed = 0;
    for seed in first_seed()..first_seed() + 6 {
        let mut world = in_memory(160);
        let weights = FileWeights::usual().with(FileAct::Sync, 30);
        let mut steps = steps(seed, weights);
        for number in 0..2000_u64 {
            let of = |error: String| panic!("seed {seed}, step {number}: {error}");
            if number % 60 == seed {
                world.subject.target_mut().fail_at_write((number + seed) % 13, ANCHORS);
            }
            let step = steps.next(&world.model);
            world.step(&step).unwrap_or_else(of);
            assert_eq!(world.subject.failure(), None, "seed {seed}, step {number}: {}", world.subject.describe());
            if number % 250 == 249 {
                let (states, mut clock, leniency) = (world.states().to_vec(), world.clock, world.leniency);
                let mut drive = world.subject.into_target();
                failed += drive.failed();
                drive.power_cut();
                let mounted = Volume::mount(drive, Alfs::syncing_after(Nanos::from_millis(40)).options, &mut clock);
                let mut volume = mounted.map_err(|(_, error)| error).unwrap();
                let report = volume.check(&mut clock, &mut |_, _| ()).unwrap();
                assert!(report.is_sound(), "seed {seed}, step {number}: {report:#?}");
                world = FileWorld::mounted(volume, clock, PATIENCE, &states).unwrap_or_else(of_cut).0;
                world.leniency = leniency;
            }
        }
        world.verify().unwrap();
    }
    assert!(failed > 100, "too few to show anything: {failed}");
}

fn of_cut<R>(error: String) -> R {
    panic!("after a power cut: {error}")
}

#[test]
fn contents_that_cannot_be_read_are_errors_of_their_files_and_of_no_others() {
    let mut refused = 0;
    for seed in first_seed()..first_seed() + 4 {
        let mut world = in_memory(160);
        let name = b"marked".to_vec();
        let file = NewFile { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, device: 0 };
        let inode = world.model.next_inode();
        let shape = Operation::Make { parent: Inode::ROOT, name: b"", file };
        world.step(&FileStep::Ask(Asked { shape, name, payload: Vec::new() })).unwrap();
        world.step(&write(inode, 0, 0xA5, 1 << 16)).unwrap();
        world.step(&SYNC).unwrap();
        let drive = world.subject.target_mut();
        let is_marked = |block: &u64| drive.block(*block).unwrap().iter().all(|byte| *byte == 0xA5);
        let marked: Vec<u64> = drive.written().filter(is_marked).collect();
        assert_eq!(marked.len(), 16);
        marked.into_iter().step_by(3).for_each(|block| drive.lose(block));
        // Without the word of the model that is a failure.
        let shape = Operation::Read { inode, offset: 0, bytes: 4096 };
        let read = FileStep::Ask(Asked { shape, name: Vec::new(), payload: Vec::new() });
        assert!(world.step(&read).unwrap_err().contains("does not return what was written"));
        world.unreadable.insert(inode);
        let mut steps = steps(seed, FileWeights::usual());
        for number in 0..1500 {
            let step = steps.next(&world.model);
            world.step(&step).unwrap_or_else(|error| panic!("seed {seed}, step {number}: {error}"));
        }
        refused += world.refused_for_device;
    }
    assert!(refused > 5, "too few to show anything: {refused}");
}
