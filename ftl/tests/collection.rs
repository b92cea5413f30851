//! Garbage collection by every policy, in one group at a time and everywhere: the drive stays alive, nothing is lost, and
//! what the statistics say of it can be so.

use openftl_core::Time;
use openftl_core::units::Share;
use openftl_ftl::{CollectionScope, Config, Statistics, VictimPolicy};
use openftl_media::Profile;
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
    for victim in
        VICTIM_POLICIES.into_iter().chain([VictimPolicy::Choices(1), VictimPolicy::Windowed(Share::percent(1))])
    {
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
