//! What the explorer has found of drives that are worn out.

use super::explored;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos};
use openftl_media::Profile;
use openftl_media::profile::{Cell, Programming};
use openftl_parts::{Config, PlacementName, ReadOnlyReason, RelocateBy, VictimPolicy};
use openftl_sim::played::Played;
use openftl_sim::step::{Step, parse_steps};
use openftl_sim::swarm::{Kind, Setting};
use openftl_sim::world::World;
use openftl_sim::{Run, explore};

/// Found by the explorer: what a chunk that had gone offline held was still to be given up when the drive was closed, so the
/// chunk counted as a good one when it was opened again, and a worn-out drive took writes for a while.
#[test]
fn a_drive_that_a_chunk_gone_offline_has_worn_out_stays_so_when_it_is_opened_again() {
    let mut profile = Profile::builtin("tiny").unwrap();
    let chip = &mut profile.chip;
    (chip.cell, chip.programming, chip.pair_distance) = (Cell::Slc, Programming::OneShot, None);
    (chip.read_us, chip.program_us) = (vec![40], vec![800]);
    (profile.pus_per_group, profile.cache.blocks_per_pu, profile.cache.power_loss_protection) = (1, 0, false);
    (profile.faults.program_fail, profile.faults.erase_fail, profile.faults.read_retry) = (0.005, 0.002, 0.01);
    let config = Config {
        capacity_blocks: 212,
        over_provisioning: Share::percent(10),
        drive_id: 0xD226_F65F,
        payload: FrameForm::Stamp,
        host_frames: 400,
        checkpoint_log_blocks: Some(8),
        checkpoint_interval: Some(Nanos::from_millis(1)),
        victim: VictimPolicy::CostBenefit,
        scrub_interval: Some(Nanos::from_millis(1_000)),
        wear_spread_max: Some(2),
        ..Config::default()
    };
    let mut world = World::new(profile, config, 0, 521_855);
    world.may_wear_out = true;
    let steps = "w0+12 w0+123 w0+11 w0+11 t0+1 w0+8 w0+11 w0+10 w0+5 w0+6 f !offline3002 r0+1 w5+8 w0+1";
    for step in parse_steps(steps).unwrap() {
        match step {
            Step::Write(range, durability) => _ = world.submit_write(range.first, range.blocks, durability),
            Step::Trim(range, durability) => _ = world.submit_trim(range.first, range.blocks, durability),
            Step::Read(range) => _ = world.submit_read(range.first, range.blocks),
            Step::Flush => _ = world.submit_flush(),
            Step::Fault(fault) => assert!(world.inject(fault)),
            other => panic!("{other} is not among them"),
        }
        while world.requests_under_way() >= 5 {
            world.pump();
        }
    }
    world.settle();
    for _ in 0..3 {
        assert_eq!(world.ftl().read_only_reason(), Some(ReadOnlyReason::WornOut));
        world.clean_restart();
    }
}

/// Found by the explorer: on a worn-out drive the last chunks were kept for relocation, and the log, which every reset and
/// every flush waited for, got none.
#[test]
fn the_log_of_a_worn_out_drive_goes_on_where_relocation_could_not() {
    let mut profile = Profile::builtin("tiny").unwrap();
    let chip = &mut profile.chip;
    (chip.cell, chip.planes, chip.page_blocks, chip.pair_distance) = (Cell::Qlc, 2, 1, Some(1));
    (chip.read_us, chip.program_us) = (vec![40, 60, 80, 100], vec![400, 800, 1_600, 3_200]);
    (profile.pus_per_group, profile.cache.blocks_per_pu, profile.cache.power_loss_protection) = (2, 8, false);
    (profile.faults.program_fail, profile.faults.erase_fail, profile.faults.read_retry) = (0.005, 0.002, 0.01);
    let config = Config {
        capacity_blocks: 298,
        over_provisioning: Share::percent(20),
        drive_id: 3_525_213_440,
        payload: FrameForm::Stamp,
        host_frames: 600,
        checkpoint_log_blocks: Some(8),
        checkpoint_interval: Some(Nanos::from_millis(1)),
        marked_groups_max: Some(1),
        wear_spread_max: Some(2),
        ..Config::default()
    };
    let seed = 32_000;
    let steps = parse_steps(WORN_OUT_AND_WITHOUT_LOG).unwrap();
    let run = Run {
        seed,
        setting: Setting { seed, profile, config, spare: 0, depth: 5, kind: Kind::Blocks, jitter: 0 },
        steps,
    };
    assert_eq!(explore(&run).failure, None);
}

const WORN_OUT_AND_WITHOUT_LOG: &str = "\
    w0+256 w256+42 w240+7 w152+3 t114+16 !close2402 w169+1 t251+6 w8+159 w33+7 s w43+3 t15+1 w53+2 w50+12 w47+6 \
    w48+173 w98+132 w4+3 t15+1 w35+11 r4+1 W44+2 u53+5 w53+7 r5+1 w38+1 f w32+10 u108+11 !corrupt8304 c r239+2 w5+8 \
    w37+10 w188+8 w27+90 w288+7 f w35+8 r2+24 w47+8 w127+10 w47+3 w40+8 w48+9 f w88+168 w32+7 w29+7 w47+4 w38+5 \
    w34+7 w1+2 w113+5 w37+3 w51+5 u1+8 w147+78 w3+1 w11+101 t194+26 w234+12 w22+3 w17+3 W14+2 w74+197 t84+1 w14+11 s \
    w0+1 w14+9 w0+1 u0+6 w12+10 w0+6 w12+89 w0+5 r113+3 t91+30 w0+199 f w0+122 W0+34 W0+9 w0+5";

/// Found by the explorer: a drive whose chunks had gone bad, and which therefore wrote nothing when it was opened, reset what
/// the superblock it had found gave away. A power cut had left that one readable for that one time.
#[test]
fn a_worn_out_drive_resets_nothing_on_the_word_of_a_superblock_that_fades() {
    let mut profile = Profile::builtin("tiny").unwrap();
    let chip = &mut profile.chip;
    (chip.cell, chip.planes, chip.page_blocks, chip.blocks_per_chunk) = (Cell::Tlc, 1, 4, 12);
    (chip.read_us, chip.program_us, chip.pair_distance) = (vec![40, 60, 80], vec![400, 800, 1_600], Some(1));
    (profile.groups, profile.pus_per_group, profile.cache.blocks_per_pu) = (1, 2, 0);
    profile.cache.power_loss_protection = false;
    profile.faults.high_ecc = 0.05;
    let config = Config {
        capacity_blocks: 167,
        over_provisioning: Share::percent(2),
        drive_id: 3_525_188_259,
        payload: FrameForm::Stamp,
        host_frames: 300,
        write_through: true,
        checkpoint_log_blocks: Some(1),
        checkpoint_interval: Some(Nanos::from_millis(20)),
        placement: PlacementName::Streams,
        handles: 1,
        objects_max: 1,
        relocate_by: RelocateBy::DeviceCopy,
        ..Config::default()
    };
    let seed = 6_819;
    let steps = "w0+1 w0+1 W0+1 w0+4 w0+1 !offline3045 u0+1 w0+1 x1 w0+1 w0+1 !offline4770 x41~9898";
    let steps = parse_steps(steps).unwrap();
    let run = Run {
        seed,
        setting: Setting { seed, profile, config, spare: 0, depth: 2, kind: Kind::Blocks, jitter: 0 },
        steps,
    };
    assert_eq!(explore(&run).failure, None);
}

/// Found by the explorer: the places for superblocks had worn out, so the drive could not write again what it found of the log. A
/// unit that was being programmed when the power went could be read that one time, and a flush promised what it said.
#[test]
fn a_drive_too_worn_out_to_write_again_what_it_found_does_not_promise_it() {
    let mut profile = Profile::builtin("tiny").unwrap();
    let chip = &mut profile.chip;
    (chip.cell, chip.planes, chip.page_blocks, chip.blocks_per_chunk) = (Cell::Qlc, 3, 2, 24);
    (chip.programming, chip.pair_distance, chip.program_us) = (Programming::OneShot, None, vec![800]);
    (chip.read_us, chip.erase_us, chip.endurance) = (vec![40, 60, 80, 100], 3_000, 36);
    (profile.cache.blocks_per_pu, profile.cache.power_loss_protection) = (24, false);
    let seed = 610_835;
    let config = Config {
        capacity_blocks: 302,
        over_provisioning: Share::percent(1),
        drive_id: 0xD21E_0000 + seed,
        payload: FrameForm::Stamp,
        host_frames: 300,
        checkpoint_log_blocks: Some(5),
        placement: PlacementName::FlashAlloc,
        handles: 2,
        objects_max: 1,
        relocate_by: RelocateBy::DeviceCopy,
        ..Config::default()
    };
    let setting = Setting { seed, profile, config, spare: 3, depth: 16, kind: Kind::Blocks, jitter: 0 };
    let steps = parse_steps(WORN_OUT_BY_OPENINGS).unwrap();
    let run = Run { seed, setting, steps };
    assert_eq!(explore(&run).failure, None);
}

const WORN_OUT_BY_OPENINGS: &str = "\
    x1 x25/28 c x1/15 x1 x1 x1 c c x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x13 c x1 x1 x1 x1 x1 x1 x1 c c c x1 x25 c \
    x4+12~6010 w38+1 c f s x1";

/// Found by the explorer: a drive of one group without spares was worn out with 230 blocks to be saved. Each log unit was forced, so
/// the log took chunk after chunk, and no checkpoint shortened it.
#[test]
fn the_log_of_a_worn_out_drive_is_shortened_by_checkpoints() {
    assert!(explored(Run::draw(211_009)).worn_out > 0);
}

/// Found by the explorer: victims in the order of their closing gave back a block each, and the room for what was buffered went to
/// the log and to checkpoints.
#[test]
fn a_worn_out_drive_chooses_the_emptiest_victims_whatever_its_policy() {
    assert!(explored(Run::draw(32_008_293)).worn_out > 0);
}

/// Found by the explorer: chunks went bad while a worn-out drive saved what it had taken, more of them than it holds back for
/// that. It said that it had no room, as one does that has lost track of it.
#[test]
fn a_worn_out_drive_that_loses_more_than_it_holds_back_is_spent() {
    let mut profile = Profile::builtin("tiny").unwrap();
    (profile.groups, profile.pus_per_group) = (2, 1);
    let chip = &mut profile.chip;
    (chip.cell, chip.planes, chip.page_blocks, chip.blocks_per_chunk) = (Cell::Tlc, 1, 1, 12);
    (chip.programming, chip.pair_distance) = (Programming::Shared, Some(1));
    (chip.read_us, chip.program_us) = (vec![40, 60, 80], vec![400, 800, 1_600]);
    (chip.erase_us, chip.endurance) = (3_000, 16);
    profile.cache.blocks_per_pu = 3;
    profile.faults.factory_bad = Share::percent(3);
    (profile.faults.program_fail, profile.faults.erase_fail) = (0.03, 0.0);
    (profile.faults.read_retry, profile.faults.high_ecc) = (0.01, 0.05);
    let seed = 80_006_095;
    let config = Config {
        capacity_blocks: 338,
        over_provisioning: Share::percent(7),
        drive_id: 0xD21E_0000 + seed,
        host_frames: 260,
        checkpoint_log_blocks: Some(2),
        trim_step_entries: 5,
        placement: PlacementName::HotCold,
        handles: 1,
        objects_max: 1,
        victim: VictimPolicy::CostBenefit,
        relocate_by: RelocateBy::DeviceCopy,
        marked_groups_max: None,
        scrub_interval: Some(Nanos::from_millis(1_000)),
        wear_spread_max: Some(1),
        ..Config::default()
    };
    let setting = Setting { seed, profile, config, spare: 0, depth: 16, kind: Kind::Tables { chunks: 9 }, jitter: 0 };
    let steps = "\
        w0+256 w256+64 b0+0 p0+27 b0+2 b0+0 w0+10 p4+11 f p83+9 g61+0 s q0+7 r0+25 q0+0 r0+29 r0+12 q0+0 r212+5 q0+2 \
        q0+0 r0+22 r0+1 o94 x7/1/37 q0+0 g0+0 r0+1 q0+0 q0+0 r0+18 w0+192 W0+243 w0+256";
    let exploration = explore(&Run { seed, setting, steps: parse_steps(steps).unwrap() });
    assert_eq!(exploration.failure, None);
    assert!(exploration.tally.worn_out > 0);
}

/// Found by the explorer: erases failed, so a worn-out drive gave what it held back for its log to the data, although three chunks
/// of four held nothing. The log had no chunk then, and none of those could be reset without it.
#[test]
fn a_worn_out_drive_resets_what_is_empty_before_it_gives_away_the_room_of_its_log() {
    let mut profile = Profile::builtin("tiny").unwrap();
    (profile.groups, profile.pus_per_group, profile.cache.blocks_per_pu) = (1, 1, 36);
    let chip = &mut profile.chip;
    (chip.cell, chip.planes, chip.page_blocks, chip.blocks_per_chunk) = (Cell::Mlc, 2, 3, 12);
    (chip.programming, chip.pair_distance) = (Programming::OneShot, None);
    (chip.read_us, chip.program_us, profile.faults.high_ecc) = (vec![40, 60], vec![800], 0.05);
    let seed = 91_069_838;
    let config = Config {
        capacity_blocks: 140,
        over_provisioning: Share::percent(1),
        drive_id: 0xD21E_0000 + seed,
        host_frames: 300,
        checkpoint_log_blocks: Some(2),
        placement: PlacementName::HotCold,
        handles: 1,
        objects_max: 1,
        marked_groups_max: None,
        wear_spread_max: Some(1),
        ..Config::default()
    };
    let setting = Setting { seed, profile, config, spare: 1, depth: 16, kind: Kind::Blocks, jitter: 0 };
    let steps = parse_steps(
        "\
        w0+2 w33+4 w0+25 W0+6 w27+8 w8+6 U71+11 w0+1 w7+12 w9+5 u56+12 w11+10 w66+7 w10+9 w17+7 w11+10 w8+12 w0+24 \
        w0+29 u0+3 u0+11 w0+39 u0+9 U0+2 U0+3 w0+8 w21+3 w0+18 w0+23 w0+8 u0+7 w0+21 u0+12 w0+5 W0+4 w0+14 w0+22 \
        u0+9 w0+17 !erase3155 w0+22 w24+8 w0+1 W0+1 w0+52 !swap5998 !offline1307 w0+111 u0+12 W0+16 W0+40",
    )
    .unwrap();
    let exploration = explore(&Run { seed, setting, steps });
    assert_eq!(exploration.failure, None);
    assert!(exploration.tally.worn_out > 0);
}
