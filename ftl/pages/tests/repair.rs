//! Repair: the index is rebuilt from the headers of pages when the metadata of a store is lost in both copies, or contradicts itself.

use openftl_blocks::Ftl;
use openftl_core::{ChunkId, Ppa};
use openftl_media::{Media, Profile};
use openftl_parts::journal::repair::IndexRepair;
use openftl_parts::{Access, Config, OpenError};
use openftl_sim::damage::{area_on_media, checkpoint_and_log, strike};
use openftl_sim::devices::plain_and_paired;
use openftl_sim::page_world::{PageWorld, Returned};
use openftl_sim::played::Played;
use openftl_sim::step::Moment;

fn new_store(profile: Profile, seed: u64) -> PageWorld {
    let config = Config { checkpoint_log_blocks: Some(8), host_frames: 256, ..Config::default() };
    PageWorld::new(profile, config, 30, seed)
}

/// A store in which pages were put, overwritten, moved and deleted, with what is in flight of its last batches.
fn in_use(profile: Profile, seed: u64, rounds: u64) -> PageWorld {
    let mut world = new_store(profile, seed);
    for round in 0..rounds {
        let session = (round % 3) as usize;
        world.stage(session, round * (7 + seed), 1 + round % 4, round * 5 / 3, round % 9 == 8);
        world.commit(session, round % 4 == 3);
        if round % 7 == 0 {
            world.settle();
        }
    }
    world.sync();
    world.settle();
    // Neither committed nor given up.
    world.stage(0, 3, 3, 5, false);
    world
}

/// Chunks that an open store has metadata in.
struct Metadata {
    /// Of the area's checkpoint, of its log, and of the log of pages.
    checkpoint: Vec<ChunkId>,
    area_log: Vec<ChunkId>,
    log: Vec<ChunkId>,
}

impl Metadata {
    fn of(world: &mut PageWorld) -> Metadata {
        let ftl = world.ftl();
        let (checkpoint, area_log) = checkpoint_and_log(ftl.block());
        Metadata { checkpoint, area_log, log: ftl.log_chunks() }
    }
}

/// Where the anchor and the leaves of a store are that was stopped.
fn area_of(world: &PageWorld) -> (Ppa, Vec<Ppa>) {
    let mut twin = world.twin();
    twin.open(Access::Inspect).unwrap();
    let area = area_on_media(twin.ftl().block());
    (area[0].expect("a store has an anchor"), area[9..].iter().copied().flatten().collect())
}

/// Stops the store, with all its batches committed.
fn stop(world: &mut PageWorld) {
    world.abort(0);
    world.close().unwrap();
    world.sessions.clear();
}

/// It cannot be opened as it is, and is repaired.
fn repaired(world: &mut PageWorld, name: &str) -> (IndexRepair, Returned) {
    let refusal = world.open(Access::ReadWrite).expect_err("it cannot be opened as it is");
    assert!(refusal.is_repairable(), "{name}: {refusal}");
    world.power_cut_at(Moment::NOW);
    world.open(Access::Repair).unwrap_or_else(|error| panic!("{name}: {error}"));
    let report = world.ftl().block().recovery_report().repair.clone().expect("something was rebuilt");
    let returned = world.adopt_repaired().unwrap_or_else(|error| panic!("{name}: {error}, {report:?}"));
    world.check();
    (report.index.expect("the index was rebuilt"), returned)
}

/// It is a drive like any other again.
fn expect_in_use(world: &mut PageWorld) {
    for round in 0..200_u64 {
        world.stage(round as usize % 3, round * 31, 1 + round % 4, round * 7 / 3, round % 11 == 10);
        world.commit(round as usize % 3, round % 5 == 0);
        if round % 7 == 0 {
            world.settle();
        }
    }
    world.sync();
    world.settle();
    world.power_cut_at(Moment::NOW);
    world.recover().unwrap();
    world.verify_all();
    world.clean_restart();
    world.check();
}

#[test]
fn an_index_is_rebuilt_from_headers_when_both_copies_of_the_checkpoint_of_its_area_are_lost() {
    for (seed, profile) in (1..).zip(plain_and_paired()) {
        let mut world = in_use(profile, seed, 120);
        let checkpoint = Metadata::of(&mut world).checkpoint;
        world.power_cut_at(Moment::NOW);
        strike(&world, &checkpoint);
        let (report, returned) = repaired(&mut world, "checkpoint");
        println!("{report:?}, {returned:?}");
        assert!(report.pages_known > 0 && returned.as_durable > 50, "{report:?}, {returned:?}");
        assert_eq!(report.pages_lost, 0, "{report:?}");
        expect_in_use(&mut world);
    }
}

/// Nothing is left but the headers, and the seals of chunks that were opened since are to be found out.
#[test]
fn an_index_is_rebuilt_from_headers_alone_when_all_logs_and_the_checkpoint_are_lost() {
    for (seed, profile) in (3..).zip(plain_and_paired()) {
        let mut world = in_use(profile, seed, 120);
        let before = Metadata::of(&mut world).log;
        // What the log of pages carries is there nowhere else: a store that was stopped has no such pages.
        world.abort(0);
        world.clean_restart();
        let Metadata { checkpoint, area_log, log } = Metadata::of(&mut world);
        world.power_cut_at(Moment::NOW);
        strike(&world, &[checkpoint, area_log, log, before].concat());
        let (report, returned) = repaired(&mut world, "all");
        println!("{report:?}, {returned:?}");
        assert_eq!((report.pages_known, report.pages_lost), (0, 0), "{report:?}");
        assert!(returned.as_durable > 50, "{returned:?}");
        expect_in_use(&mut world);
    }
}

#[test]
fn an_anchor_or_a_leaf_that_is_lost_is_refused_and_rebuilt() {
    for (seed, profile) in (5..).zip(plain_and_paired()) {
        for part in ["anchor", "leaves"] {
            let mut world = in_use(profile.clone(), seed, 90);
            stop(&mut world);
            let (anchor, leaves) = area_of(&world);
            let struck = if part == "anchor" { vec![anchor] } else { leaves };
            assert!(!struck.is_empty());
            struck.into_iter().for_each(|ppa| world.device().corrupt(ppa).unwrap());
            let refusal = world.twin().open(Access::ReadWrite).unwrap_err().to_string();
            assert!(refusal.contains("openftl check --repair"), "{refusal}");
            let (report, returned) = repaired(&mut world, part);
            assert!(report.pages_lost == 0 && returned.as_durable > 40, "{part}: {report:?}, {returned:?}");
            expect_in_use(&mut world);
        }
    }
}

/// A store with 40 pages, of which the middle 20 were deleted, whose anchor is lost.
fn with_deletions(seed: u64, is_log_lost: bool) -> PageWorld {
    let [plain, _] = plain_and_paired();
    let mut world = new_store(plain, seed);
    world.stage(0, 0, 40, 3, false);
    world.commit(0, true);
    world.settle();
    world.stage(0, 10, 20, 3, true);
    world.commit(0, true);
    world.settle();
    assert_eq!(world.listed().len(), 20);
    let log = Metadata::of(&mut world).log;
    stop(&mut world);
    let (anchor, _) = area_of(&world);
    world.device().corrupt(anchor).unwrap();
    if is_log_lost {
        strike(&world, &log);
    }
    world
}

#[test]
fn a_page_that_was_deleted_may_be_back_and_the_report_says_so() {
    let mut world = with_deletions(7, true);
    let (report, returned) = repaired(&mut world, "deleted");
    assert_eq!((report.pages_rebuilt, report.pages_returned), (40, 20), "{report:?}");
    assert_eq!(returned.deleted, 20);
    expect_in_use(&mut world);
}

/// As long as the log says it, what was deleted stays so.
#[test]
fn a_page_whose_deletion_is_in_the_log_does_not_come_back() {
    let mut world = with_deletions(8, false);
    let (report, returned) = repaired(&mut world, "deleted");
    assert_eq!((report.pages_known, report.pages_returned, returned.deleted), (20, 0, 0), "{report:?}");
    assert_eq!(world.listed().len(), 20);
}

/// A store whose log is in two chunks or more since its anchor, with batches too long to be carried, all of them durable.
fn with_long_log(profile: Profile, seed: u64) -> PageWorld {
    let config = Config { checkpoint_log_blocks: Some(64), host_frames: 256, ..Config::default() };
    let mut world = PageWorld::new(profile, config, 60, seed);
    for round in 0..200 {
        // Each has a page that fills more than half a unit.
        world.stage(round % 3, round as u64 * 5, 2, 6, round % 9 == 8);
        world.commit(round % 3, true);
        world.settle();
        if written_log(&world).len() > 40 {
            break;
        }
    }
    world.abort(0);
    world
}

/// Blocks of the log that are written and hold groups since the anchor, in their order.
fn written_log(world: &PageWorld) -> Vec<Ppa> {
    world.ftl.as_ref().expect("the drive is open").log_places().into_iter().flatten().collect()
}

/// Whether a store that was cut off has all that is durable.
fn is_whole(world: &PageWorld) -> bool {
    let mut twin = world.twin();
    twin.power_cut_at(Moment::NOW);
    twin.recover().is_ok()
}

/// What a store is like of which one block of the log cannot be read.
#[derive(Default, Debug)]
struct Outcomes {
    whole: u64,
    /// The last batches are missing, without a word.
    shorter: u64,
    /// It is refused, and repaired.
    repaired: u64,
}

#[test]
fn a_block_of_the_log_that_is_lost_is_noticed_unless_it_is_at_the_end() {
    for (seed, profile) in (21..).zip(plain_and_paired()) {
        let mut world = with_long_log(profile, seed);
        let log = written_log(&world);
        let geometry = *world.device().geometry();
        world.power_cut_at(Moment::NOW);
        let mut outcomes = Outcomes::default();
        let reach = (2 * geometry.ws_min + geometry.mw_cunits) as usize;
        for (number, ppa) in log.iter().enumerate() {
            let mut twin = world.twin();
            twin.device().corrupt(*ppa).unwrap();
            match twin.open(Access::ReadWrite) {
                Ok(()) => {
                    let is_whole = is_whole(&twin);
                    assert!(is_whole || number + reach >= log.len(), "block {number} of {}", log.len());
                    twin.forget_promises();
                    twin.judge().unwrap_or_else(|error| panic!("block {number} of {}: {error}", log.len()));
                    if is_whole { outcomes.whole += 1 } else { outcomes.shorter += 1 }
                }
                Err(error) => {
                    assert!(error.is_repairable(), "block {number}: {error}");
                    assert!(error.to_string().contains("of the log is lost"), "block {number}: {error}");
                    twin.power_cut_at(Moment::NOW);
                    twin.open(Access::Repair).unwrap_or_else(|error| panic!("block {number}: {error}"));
                    let report = twin.ftl().block().recovery_report().repair.clone().expect("it was repaired");
                    let returned = twin.adopt_repaired();
                    returned.unwrap_or_else(|error| panic!("block {number} of {}: {error}, {report:?}", log.len()));
                    twin.check();
                    outcomes.repaired += 1;
                }
            }
        }
        println!("{} blocks: {outcomes:?}", log.len());
        assert!(outcomes.repaired as usize + reach >= log.len() && outcomes.shorter > 0, "{outcomes:?}");
    }
}

#[test]
fn a_repair_that_is_begun_again_remembers_what_the_log_said() {
    let mut cuts = 0;
    let world = with_deletions(8, false);
    for events in (1..).step_by(5) {
        let mut twin = world.twin();
        let wire = twin.wire.clone();
        if !wire.cut_after(events, || twin.open(Access::Repair).unwrap()) {
            break;
        }
        twin.power_cut_at(Moment::NOW);
        if twin.twin().open(Access::ReadWrite).is_ok() {
            break;
        }
        twin.open(Access::Repair).unwrap_or_else(|error| panic!("cut after {events}: {error}"));
        let report = twin.ftl().block().recovery_report().repair.clone().and_then(|repair| repair.index);
        assert!(report.is_some_and(|index| index.pages_returned == 0), "cut after {events}: {report:?}");
        let returned = twin.adopt_repaired().unwrap_or_else(|error| panic!("cut after {events}: {error}"));
        assert_eq!(returned.deleted, 0, "cut after {events}: {report:?}");
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts}");
}

#[test]
fn a_sound_store_has_nothing_to_rebuild() {
    for (seed, profile) in (9..).zip(plain_and_paired()) {
        let mut world = in_use(profile, seed, 60);
        world.power_cut_at(Moment::NOW);
        world.open(Access::Repair).unwrap();
        assert_eq!(world.ftl().block().recovery_report().repair, None);
        world.judge().unwrap();
        expect_in_use(&mut world);
    }
}

#[test]
fn a_repair_may_be_cut_anywhere_and_is_begun_again() {
    let (mut cuts, mut refused) = (0, 0);
    for (seed, profile) in (11..).zip(plain_and_paired()) {
        for part in ["checkpoint", "anchor"] {
            let mut world = in_use(profile.clone(), seed, 60);
            let checkpoint = Metadata::of(&mut world).checkpoint;
            if part == "checkpoint" {
                world.power_cut_at(Moment::NOW);
                strike(&world, &checkpoint);
            } else {
                stop(&mut world);
                let (anchor, _) = area_of(&world);
                world.device().corrupt(anchor).unwrap();
            }
            for events in (1..).step_by(11) {
                let mut twin = world.twin();
                let wire = twin.wire.clone();
                if !wire.cut_after(events, || twin.open(Access::Repair).unwrap()) {
                    break;
                }
                twin.power_cut_at(Moment { torn: events % 2 == 0, ..Moment::NOW });
                cuts += 1;
                // It may have come to its end.
                if let Err(error) = twin.twin().open(Access::ReadWrite) {
                    assert!(error.is_repairable(), "cut after {events}: {error}");
                    refused += u64::from(matches!(error, OpenError::IndexLost(text) if text.contains("cut off")));
                }
                twin.open(Access::Repair).unwrap_or_else(|error| panic!("{part}, cut after {events}: {error}"));
                twin.adopt_repaired().unwrap_or_else(|error| panic!("{part}, cut after {events}: {error}"));
                twin.check();
                if events % 5 == 0 {
                    expect_in_use(&mut twin);
                }
            }
        }
    }
    println!("{cuts} cuts of repairs, after {refused} of which the drive is refused because of that");
    assert!(cuts > 40 && refused > 10, "{cuts} cuts, {refused} refused");
}

/// Found by reading: the versions of pages that were staged and never committed were given again after a power cut, so that an index rebuilt from
/// headers could take such a page for one that was committed later.
#[test]
fn a_page_that_was_never_committed_is_older_than_all_that_are_put_after_the_power_cut() {
    let mut world = new_store(Profile::builtin("tiny").unwrap(), 5);
    world.stage(0, 1, 4, 900, false);
    world.commit(0, true);
    world.settle();
    // Far more is staged than is put afterwards.
    for round in 0..40 {
        world.stage(1, round, 8, 3000, false);
    }
    world.settle();
    let version = |world: &mut PageWorld| world.ftl().next_version();
    let staged = version(&mut world);
    for is_again in [false, true] {
        world.power_cut_at(Moment::NOW);
        world.recover().unwrap();
        let next = version(&mut world);
        assert!(next >= staged, "{next} is given again, {staged} was the next one, {is_again}");
        // Nothing was put: it is the anchor's word that counts, and it is not beyond what it was.
        world.power_cut_at(Moment::NOW);
        world.recover().unwrap();
    }
    expect_in_use(&mut world);
    let next = version(&mut world);
    world.clean_restart();
    assert_eq!(version(&mut world), next, "a clean stop skips none");
}
