//! Garbage collection by every policy, in one group at a time and everywhere: the drive stays alive, nothing is lost, and
//! what the statistics say of it can be so.

use openftl_core::units::Share;
use openftl_core::{Nanos, Time};
use openftl_media::Profile;
use openftl_parts::{
    CollectionScope, Config, OpenError, PlacementName, PlanError, Purpose, RelocateBy, Statistics, Target, VictimPolicy,
};
use openftl_sim::played::Played;
use openftl_sim::world::{VICTIM_POLICIES, World, config};

const SCOPES: [CollectionScope; 2] = [CollectionScope::Marked, CollectionScope::DeviceWide];

/// Keeps a full drive of `capacity` blocks under random writes of up to `most` blocks, reads all of it, and looks whether
/// it is sound.
fn overwrite(profile: &str, capacity: u64, victim: VictimPolicy, collection: CollectionScope, most: u64) -> Statistics {
    let config = Config { over_provisioning: Share::percent(7), victim, collection, ..config(capacity, 7) };
    let mut world = World::new(Profile::builtin(profile).unwrap(), config, 0, 7);
    world.write_all(16);
    let mut written = 0;
    while written < 6 * capacity {
        let (first, blocks) = world.range(most);
        world.write(first, blocks);
        written += blocks;
    }
    world.verify_all();
    world.check();
    assert!(world.clock.0 > Time::ZERO);
    world.ftl().statistics().clone()
}

#[test]
fn a_full_drive_stays_alive_by_every_policy() {
    for victim in VICTIM_POLICIES.into_iter().chain([
        VictimPolicy::MinimumDecliningCost,
        VictimPolicy::Choices(1),
        VictimPolicy::Windowed(Share::percent(1)),
    ]) {
        for collection in SCOPES {
            let statistics = overwrite("tiny", 2_000, victim, collection, 8);
            let collected: u64 = statistics.groups.iter().map(|group| group.victims).sum();
            assert!(collected > 100 && statistics.waf() > 1.5, "{victim} {collection:?}: {collected} collected");
            let encounters = statistics.encounters;
            assert!(encounters.commands > 1_000, "{victim} {collection:?}: {encounters:?}");
            assert!(encounters.marked > 0 && encounters.marked <= encounters.commands, "{victim}: {encounters:?}");
            assert!(encounters.met > 0 && encounters.met <= encounters.commands, "{victim}: {encounters:?}");
        }
    }
}

/// Copied by the device, blocks move as they do through the host: the same writes cost as much, and nothing is read.
#[test]
fn the_device_moves_what_is_relocated_without_showing_it() {
    for &placement in PlacementName::ALL {
        let run = |relocate_by| {
            let config = Config {
                over_provisioning: Share::percent(15),
                relocate_by,
                placement,
                handles: 2,
                ..config(2_000, 7)
            };
            let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 7);
            world.write_all(16);
            for _ in 0..3_000 {
                let (first, blocks) = world.range(8);
                world.write(first, blocks);
            }
            let statistics = world.ftl().statistics().clone();
            world.verify_all();
            world.clean_restart();
            world.write_all(16);
            world.verify_all();
            world.check();
            statistics
        };
        let [read, copied] = [RelocateBy::ReadAndWrite, RelocateBy::DeviceCopy].map(run);
        assert!(read.relocation_reads > 0 && read.relocation_copies == 0, "{placement}");
        assert!(copied.relocation_reads == 0 && copied.relocation_copies > 0, "{placement}: {copied:?}");
        let ratio = copied.waf() / read.waf();
        assert!((0.8..1.2).contains(&ratio), "{placement}: {} {}", copied.waf(), read.waf());
    }
}

#[test]
fn a_device_without_vector_copy_is_not_asked_for_it() {
    let mut profile = Profile::builtin("tiny").unwrap();
    profile.vector_copy = false;
    let config = Config { relocate_by: RelocateBy::DeviceCopy, ..config(700, 7) };
    let error = World::try_new(profile, config, 0, 7).err().expect("refused");
    assert!(matches!(error, OpenError::Plan(PlanError::NoVectorCopy)), "{error}");
}

/// Lets the drive work until it wants to be called no more.
fn rest(world: &mut World) {
    world.settle();
    while world.ftl().next_due().is_some() {
        world.idle_step();
    }
}

fn victims(world: &mut World) -> u64 {
    world.ftl().statistics().groups.iter().map(|group| group.victims).sum()
}

/// While the host is silent a drive may make room that it does not need yet: it comes to rest by itself, and the next burst of
/// writes meets less of collection.
#[test]
fn room_is_made_while_the_host_is_silent() {
    let bursts = |collect_when_idle| {
        let config = Config { over_provisioning: Share::percent(30), collect_when_idle, ..config(2_000, 8) };
        let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 8);
        world.write_all(16);
        let (mut silent, mut busy) = (0, 0);
        for _ in 0..40 {
            let before = victims(&mut world);
            for _ in 0..8 {
                let (first, blocks) = world.range(8);
                world.write(first, blocks);
            }
            world.flush();
            let between = victims(&mut world);
            rest(&mut world);
            (busy, silent) = (busy + between - before, silent + victims(&mut world) - between);
        }
        world.verify_all();
        world.check();
        (silent, busy, world.ftl().statistics().waf())
    };
    let (silent_never, busy_never, waf_never) = bursts(None);
    let (silent, busy, waf) = bursts(Some(Nanos::from_millis(5)));
    assert!(silent > 3 * busy, "{silent} chunks in silence, {busy} besides; {silent_never} and {busy_never} without");
    assert!(busy < busy_never, "{busy} {busy_never}");
    assert!(waf < 1.3 * waf_never, "what is done ahead is not done in vain: {waf} {waf_never}");
}

#[test]
fn a_silent_drive_with_nothing_to_gain_moves_nothing() {
    let config = Config { collect_when_idle: Some(Nanos::from_millis(1)), ..config(2_000, 8) };
    let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 8);
    world.write_all(16);
    for _ in 0..10 {
        rest(&mut world);
        world.verify_all();
    }
    assert_eq!(world.ftl().statistics().programmed_for(Purpose::Relocation), 0);
}

/// A drive whose oldest chunks are all valid: the first in the order give nothing back, whatever the policy.
#[test]
fn where_the_oldest_data_rest_every_policy_finds_what_does_not() {
    for victim in VICTIM_POLICIES {
        let config = Config { over_provisioning: Share::percent(10), victim, ..config(2_000, 3) };
        let mut world = World::new(Profile::builtin("tiny").unwrap(), config, 0, 3);
        world.write_all(16);
        for number in 0..3_000 {
            world.write(number * 8 % 160, 8);
        }
        world.verify_all();
        world.check();
    }
}
