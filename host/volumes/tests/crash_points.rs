//! Every state in which a power cut can leave files on zones or of an ALFS, opened and judged, and some in which one can leave that opening.

use crate::common::{config, segments, zones};
use crate::play::{Play, Snapshot, fits, found, in_short};
use openftl_core::Time;
use openftl_files::{Pace, PaceClock, ZoneFiles};
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};
use openftl_parts::{Access, Config};
use openftl_sim::wire::{CrashPoint, Wire};
use openftl_volumes::{AlfsFiles, Volume};
use openftl_zones::{Ftl, ZoneConfig, ZoneFtl};

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

fn opened<M: Media>(media: M, what: &str) -> Volume<M> {
    Volume::on_zones(media, small(), Access::ReadWrite, Pace::Virtual, 2)
        .unwrap_or_else(|error| panic!("{what}: it does not open: {error}"))
}

/// What is found on a device has to fit one of `allowed`.
fn judge(device: EmulatedDevice, allowed: &[Snapshot], what: &str) {
    let found = found(&opened(device, what));
    assert!(fits(allowed, &found).is_some(), "{what}: found {:?}, expected one of {allowed:#?}", in_short(&found));
}

fn judge_all(points: Vec<CrashPoint>, allowed: &[Snapshot], what: &str, counts: &mut Counts) {
    for point in points {
        counts.points += 1;
        let what = format!("{what}, event {}, torn {}", point.event, point.torn);
        if counts.points.is_multiple_of(RECOVERIES) {
            let wire = Wire::new(point.device);
            wire.watch();
            let found = found(&opened(wire.clone(), &what));
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

/// A step of a play.
type Step<'a> = Box<dyn FnOnce(&mut Play<Wire>, &Volume<Wire>) + 'a>;

/// Does steps with files, and judges every state that a power cut could leave meanwhile.
fn judge_each<'a>(wire: &Wire, volume: &Volume<Wire>, seed: u64, steps: impl Iterator<Item = Step<'a>>) -> Counts {
    let (mut play, mut counts) = (Play::new(seed), Counts::default());
    wire.watch();
    for (number, step) in steps.enumerate() {
        let before = play.snapshots.clone();
        step(&mut play, volume);
        let what = format!("seed {seed}, step {number}");
        let during: Vec<Snapshot> = before.into_iter().chain(play.snapshots.iter().cloned()).collect();
        judge_all(wire.crash_points(), &during, &what, &mut counts);
        // Looked at once more: what was synced has to be there.
        wire.look();
        judge_all(wire.crash_points(), &play.snapshots, &what, &mut counts);
    }
    play.forget();
    counts
}

/// The same with files on zones of a new drive.
fn watched<'a>(profile: Profile, zones: ZoneConfig, seed: u64, steps: impl Iterator<Item = Step<'a>>) -> Counts {
    let wire = wire(profile, 48, seed);
    let files = ZoneFiles::format(wire.clone(), small(), zones, Pace::Virtual).unwrap();
    let mut counts = judge_each(&wire, &Volume::Zoned(files.clone()), seed, steps);
    let statistics = files.statistics();
    counts.blocks_cleaned = statistics.ftl.blocks_cleaned;
    counts.catalog_beginnings = statistics.ftl.catalog_beginnings;
    println!("seed {seed}: {counts:?}");
    counts
}

fn wire(profile: Profile, chunks: u32, seed: u64) -> Wire {
    Wire::new(EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, seed).unwrap())
}

#[test]
fn files_on_zones_bear_every_power_cut() {
    for seed in [0, 1, 4] {
        let zones = ZoneConfig { zones: Some(8), ..zones(1 + seed as u32 % 2) };
        let profile = if seed < 2 { unprotected() } else { Profile::builtin("tiny").unwrap() };
        let step = || Box::new(|play: &mut Play<Wire>, files: &Volume<Wire>| play.step(files)) as Step<'_>;
        let counts = watched(profile, zones, seed, (0..110).map(|_| step()));
        assert!(counts.points > 1000 && counts.recovery_points > 200, "{counts:?}");
    }
}

#[test]
fn cleaning_and_a_catalog_that_begins_anew_bear_every_power_cut() {
    // Tables of both kinds lie side by side, until little is left; those of one kind are deleted, and others find room where they were.
    let written = (0..12).flat_map(|number| [format!("/kept-{number}"), format!("/gone-{number}")]);
    let steps = written.map(|path| {
        Box::new(move |play: &mut Play<Wire>, files: &Volume<Wire>| play.table(files, &path, 20_000)) as Step<'_>
    });
    let deleted = (0..12).map(|number| {
        Box::new(move |play: &mut Play<Wire>, files: &Volume<Wire>| play.delete(files, &format!("/gone-{number}")))
            as Step<'_>
    });
    let again = (0..14).flat_map(|number: u32| {
        let write = move |play: &mut Play<Wire>, files: &Volume<Wire>| {
            play.table(files, &format!("/again-{number}"), 20_000);
        };
        let delete = move |play: &mut Play<Wire>, files: &Volume<Wire>| {
            if let Some(older) = number.checked_sub(6) {
                play.delete(files, &format!("/again-{older}"));
            }
        };
        [Box::new(write) as Step<'_>, Box::new(delete)]
    });
    let zones = ZoneConfig { zones: Some(8), ..zones(1) };
    let counts = watched(unprotected(), zones, 9, steps.chain(deleted).chain(again));
    assert!(counts.blocks_cleaned > 10, "{counts:?}");
    assert!(counts.catalog_beginnings > 1, "{counts:?}: more than the first");
    assert!(counts.points > 1000 && counts.recovery_points > 200, "{counts:?}");
}

#[test]
fn files_of_an_alfs_bear_every_power_cut() {
    for seed in 0..2 {
        let profile = if seed == 0 { unprotected() } else { Profile::builtin("tiny").unwrap() };
        let (wire, segments) = (wire(profile, 64, seed), ZoneConfig { zones: Some(64), ..segments() });
        let files = AlfsFiles::format(wire.clone(), small(), segments, seed, Pace::Virtual).unwrap();
        let step = || Box::new(|play: &mut Play<Wire>, files: &Volume<Wire>| play.step(files)) as Step<'_>;
        let volume = Volume::Alfs(files);
        let counts = judge_each(&wire, &volume, seed, (0..60).map(|_| step()));
        println!("seed {seed}: {counts:?}");
        assert!(counts.points > 300 && (seed > 0 || counts.recovery_points > 100), "{counts:?}");
    }
}

/// Where nothing was yet, whatever was begun is begun anew.
#[test]
fn the_very_first_opening_bears_every_power_cut() {
    for (seed, made) in [(0, segments()), (1, zones(2))] {
        for profile in [unprotected(), Profile::builtin("tiny").unwrap()] {
            let (wire, made) = (wire(profile, 64, seed), ZoneConfig { zones: Some(64), ..made });
            let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
            drop(ZoneFtl::format(wire.clone(), small(), made, &mut clock).unwrap().close(&mut clock).unwrap());
            wire.watch();
            let volume = opened(wire.clone(), "a new drive");
            let points = wire.crash_points();
            assert!(points.len() > 5, "{} states", points.len());
            for point in points {
                let what = format!("face {:?}, event {}, torn {}", made.face, point.event, point.torn);
                assert_eq!(opened(point.device, &what).list("/"), Ok(Vec::new()), "{what}");
            }
            assert_eq!(volume.close(), Ok(true));
        }
    }
}
