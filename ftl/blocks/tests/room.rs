//! Room that a drive keeps for itself through any number of crashes, and the settings that it was sized for.

use openftl_blocks::Ftl;
use openftl_core::FrameForm;
use openftl_core::units::Share;
use openftl_media::Profile;
use openftl_parts::open_error::OpenError;
use openftl_parts::placement_name::PlacementName;
use openftl_parts::{Access, Config, Durability, ReadOnlyReason, Target};
use openftl_sim::TableWorld;
use openftl_sim::played::Played;
use openftl_sim::step::Moment;
use openftl_sim::world::{World, config};

/// Two groups of one parallel unit, and chunks of two write units: each of them that a crash leaves half full counts.
const NARROW: &str = r#"
name = "narrow"
description = "two groups of one parallel unit, and chunks of two write units"
groups = 2
pus_per_group = 1
chunks_per_pu = 16
oob_bytes = 16
channel_mb_s = 400
vector_copy = true
[chip]
cell = "qlc"
planes = 1
page_blocks = 4
blocks_per_chunk = 32
programming = "one-shot"
read_us = [40, 60, 80, 100]
program_us = [800]
erase_us = 3000
endurance = 3000
[cache]
blocks_per_pu = 0
mb_s = 3200
power_loss_protection = true
"#;

fn narrow_config(seed: u64) -> Config {
    Config {
        over_provisioning: Share::percent(2),
        checkpoint_log_blocks: Some(1),
        write_through: true,
        ..config(137, seed)
    }
}

fn narrow(config: Config, seed: u64) -> World {
    World::new(Profile::parse(NARROW).unwrap(), config, 1, seed)
}

/// What is missing of its room, right after it was opened.
fn missing_room(world: &mut World) -> Option<String> {
    world.ftl().block().recovery_report().missing_room.clone()
}

/// Writes now and then, and cuts the power or stops the drive, `cycles` times.
fn crash_again_and_again(world: &mut World, cycles: u32, seed: u64) {
    world.write_all(16);
    for cycle in 0..cycles {
        if world.below(3) == 0 {
            let (first, blocks) = world.range(24);
            world.submit_write(first, blocks, Durability::Volatile);
            if world.below(2) == 0 {
                let flush = world.submit_flush();
                world.wait(flush);
            }
        }
        match world.below(4) {
            0 => world.clean_restart(),
            later => {
                world.power_cut_at(Moment { later: later as u32, torn: is_torn(cycle), ..Moment::NOW });
                world.recover().unwrap_or_else(|contradiction| panic!("seed {seed}, cycle {cycle}: {contradiction}"));
            }
        }
        assert_eq!(missing_room(world), None, "seed {seed}, cycle {cycle}: {}", world.ftl().describe());
        assert!(!world.ftl().is_read_only(), "seed {seed}, cycle {cycle}: {:?}", world.ftl().read_only_reason());
    }
    world.write_all(16);
    world.clean_restart();
    world.verify_all();
}

/// Whether the cut of this cycle tears a program.
fn is_torn(cycle: u32) -> bool {
    cycle.is_multiple_of(5)
}

#[test]
fn a_narrow_drive_that_crashes_again_and_again_writes_on_and_stops_cleanly() {
    for seed in 0..6 {
        let mut world = narrow(narrow_config(seed), seed);
        crash_again_and_again(&mut world, 120, seed);
    }
}

#[test]
fn so_does_one_that_is_cut_dozens_of_times_right_after_recoveries() {
    for seed in 0..6 {
        let mut world = narrow(narrow_config(seed), seed);
        world.write_all(16);
        for cycle in 0..90_u64 {
            if cycle % 30 == 0 {
                world.write(cycle, 16);
                world.flush();
            }
            world.power_cut_at(Moment { later: (cycle % 3) as u32, ..Moment::NOW });
            world.recover().unwrap_or_else(|contradiction| panic!("seed {seed}, cycle {cycle}: {contradiction}"));
            assert_eq!(missing_room(&mut world), None, "seed {seed}, cycle {cycle}");
        }
        world.clean_restart();
        world.verify_all();
    }
}

#[test]
fn a_drive_opened_without_the_settings_that_sized_it_has_those_it_was_formatted_with() {
    let asked = Config { placement: PlacementName::Streams, handles: 3, objects_max: 5, ..narrow_config(1) };
    let mut world = narrow(asked.clone(), 1);
    world.write_all(16);
    let plan = *world.ftl().plan();
    world.settle();
    world.ftl.take().unwrap().close(&mut world.clock).unwrap();
    let left = openftl_parts::config::Left::ALL;
    world.config = Config { left, payload: FrameForm::Stamp, host_frames: 512, ..Config::default() };
    world.open(Access::ReadWrite).unwrap();
    assert_eq!(*world.ftl().plan(), plan);
    assert_eq!(world.ftl().read_only_reason(), None, "it is not worn out");
    assert_eq!(world.ftl().config().sizing(), asked.sizing());
    world.write_all(16);
    world.clean_restart();
}

#[test]
fn a_setting_that_the_drive_has_no_room_for_is_refused_with_the_one_it_was_formatted_with() {
    let mut world = narrow(narrow_config(1), 1);
    world.settle();
    world.ftl.take().unwrap().close(&mut world.clock).unwrap();
    world.config.checkpoint_log_blocks = Some(1024);
    let error = world.open(Access::ReadWrite).unwrap_err();
    let OpenError::OtherSize { field: "checkpoint_log_blocks", .. } = &error else { panic!("{error}") };
    let text = error.to_string();
    assert!(
        text.starts_with("checkpoint_log_blocks = 1024 needs ") && text.contains("checkpoint_log_blocks = 1, has"),
        "{text}"
    );
    world.config.checkpoint_log_blocks = Some(32);
    world.open(Access::ReadWrite).unwrap();
    assert_eq!(world.ftl().read_only_reason(), None, "one for which there is room is taken");
}

/// Found by the explorer: tables had the chunks that a shorter log would not need, while the longer one was still there.
#[test]
fn a_table_drive_opened_for_a_shorter_log_finds_the_longer_one_and_has_room() {
    let asked = Config { checkpoint_log_blocks: None, ..config(200, 1) };
    let mut world = TableWorld::new(Profile::builtin("tiny").unwrap(), asked, 8, 1);
    let plan = *world.ftl().block().plan();
    for block in 0..400 {
        world.write(block % 200, 1);
        world.flush();
    }
    world.power_cut(false);
    world.config.checkpoint_log_blocks = Some(1);
    world.recover().unwrap();
    let shorter = *world.ftl().block().plan();
    assert_eq!((shorter.chunks(), shorter.log_chunks), (plan.chunks(), plan.log_chunks));
    assert!(shorter.log_blocks_max < plan.log_blocks_max);
    world.write_table(100);
    world.write(0, 64);
    world.clean_restart();
    world.verify_all();
    let ftl = world.ftl.take().unwrap();
    ftl.close(&mut world.clock).unwrap();
    world.config.checkpoint_log_blocks = Some(4096);
    let error = world.open(Access::ReadWrite).unwrap_err();
    let OpenError::OtherSize { field: "checkpoint_log_blocks", good, .. } = &error else { panic!("{error}") };
    assert_eq!(*good, plan.chunks(), "tables have the others");
}

#[test]
fn other_handles_than_a_drive_was_formatted_with_are_taken_where_there_is_room_for_them() {
    let mut world = narrow(Config { placement: PlacementName::Fdp, handles: 2, ..narrow_config(1) }, 1);
    world.settle();
    world.ftl.take().unwrap().close(&mut world.clock).unwrap();
    world.config.handles = 4;
    world.open(Access::ReadWrite).unwrap();
    assert_eq!(world.ftl().config().handles, 4);
    assert_ne!(world.ftl().read_only_reason(), Some(ReadOnlyReason::WornOut));
}
