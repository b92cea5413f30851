//! Every state in which a power cut can leave files on zones, opened and judged, and some in which one can leave that opening.

use crate::common::{config, zones};
use crate::play::{Play, Snapshot, fits, found, in_short};
use openftl_files::{Pace, Volume, ZoneFiles};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Access, Config};
use openftl_sim::wire::{CrashPoint, Wire};
use openftl_zones::ZoneConfig;

/// One opening in so many is cut off in its turn, everywhere.
const RECOVERIES: u64 = 499;

/// A journal of blocks that is as small as these drives.
fn small() -> Config {
    Config { checkpoint_log_blocks: Some(8), ..config() }
}

#[derive(Default, Debug)]
struct Counts {
    points: u64,
    recovery_points: u64,
    blocks_cleaned: u64,
    catalog_beginnings: u64,
}

/// Without power-loss protection the pages of a word line that is cut are lost, both of them.
fn unprotected() -> Profile {
    let text = Profile::builtin("tiny").unwrap().to_toml();
    let changed = text.replace("power_loss_protection = true", "power_loss_protection = false");
    assert_ne!(text, changed, "the profile says that it is protected");
    Profile::parse(&changed).unwrap()
}

/// What is found on a device has to fit one of `allowed`.
fn judge(device: EmulatedDevice, allowed: &[Snapshot], what: &str) {
    let files = ZoneFiles::open(device, small(), Access::ReadWrite, Pace::Virtual)
        .unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    let found = found(&Volume::Zoned(files));
    assert!(fits(allowed, &found).is_some(), "{what}: found {:?}, expected one of {allowed:#?}", in_short(&found));
}

fn judge_all(points: Vec<CrashPoint>, allowed: &[Snapshot], what: &str, counts: &mut Counts) {
    for point in points {
        counts.points += 1;
        let what = format!("{what}, event {}, torn {}", point.event, point.torn);
        if counts.points % RECOVERIES == 0 {
            let wire = Wire::new(point.device);
            wire.watch();
            let files = ZoneFiles::open(wire.clone(), small(), Access::ReadWrite, Pace::Virtual).unwrap();
            let found = found(&Volume::Zoned(files));
            assert!(fits(allowed, &found).is_some(), "{what}: found {:?}", in_short(&found));
            for again in wire.crash_points() {
                counts.recovery_points += 1;
                judge(again.device, allowed, &format!("{what}, and again at event {}", again.event));
            }
        } else {
            judge(point.device, allowed, &what);
        }
    }
}

/// Draws steps on a new drive of `zones` zones, and judges every state that a power cut could leave meanwhile.
fn play(profile: Profile, zones: ZoneConfig, steps: u32, seed: u64, counts: &mut Counts) {
    let device = EmulatedDevice::new(profile, 48, Store::Ram, Timing::Modelled, seed).unwrap();
    let wire = Wire::new(device);
    let files = ZoneFiles::format(wire.clone(), small(), zones, Pace::Virtual).unwrap();
    let volume = Volume::Zoned(files.clone());
    let mut play = Play::new(seed);
    wire.watch();
    for step in 0..steps {
        let before = play.snapshots.clone();
        play.step(&volume);
        let what = format!("seed {seed}, step {step}");
        let during: Vec<Snapshot> = before.into_iter().chain(play.snapshots.iter().cloned()).collect();
        judge_all(wire.crash_points(), &during, &what, counts);
        // Looked at once more: what was synced has to be there.
        wire.look();
        judge_all(wire.crash_points(), &play.snapshots, &what, counts);
    }
    play.forget();
    let statistics = files.statistics();
    counts.blocks_cleaned += statistics.ftl.blocks_cleaned;
    counts.catalog_beginnings += statistics.ftl.catalog_beginnings;
}

#[test]
fn files_on_zones_bear_every_power_cut() {
    let mut counts = Counts::default();
    for seed in 0..3 {
        let zones = ZoneConfig { zones: Some(7 + seed as u32), ..zones(1) };
        let profile = if seed < 2 { unprotected() } else { Profile::builtin("tiny").unwrap() };
        play(profile, zones, 280, seed, &mut counts);
    }
    println!("{counts:?}");
    let Counts { points, recovery_points, blocks_cleaned, catalog_beginnings } = counts;
    assert!(points > 5000 && recovery_points > 500, "{counts:?}");
    assert!(
        blocks_cleaned > 0 && catalog_beginnings > 8,
        "{counts:?}: cleaning, and catalogs that begin anew, are cut as well"
    );
}
