//! What a host may ask, and what it may not.

use openftl_core::{BLOCK_BYTES, Clock, Nanos, Time};
use openftl_media::Media;
use openftl_pages::{
    Change, GRAIN_BYTES, PageFacts, Session, SessionId, StoreError, StoreRequest, StoreTarget, WINDOW,
};
use openftl_parts::target::{Durability, Target};
use openftl_parts::{Access, Config, Purpose};
use openftl_sim::devices::plain_and_paired;
use openftl_sim::fault::{Fault, FaultKind};
use openftl_sim::page_world::PageWorld;
use openftl_sim::played::Played;

fn world(chunks: u32) -> PageWorld {
    let [plain, _] = plain_and_paired();
    PageWorld::new(plain, Config { checkpoint_log_blocks: Some(8), ..Config::default() }, chunks, 1)
}

#[test]
fn what_is_committed_is_read_and_is_there_after_a_restart() {
    let mut world = world(32);
    for round in 0..40 {
        let session = round as usize % 3;
        world.stage(session, round * 5, 1 + round % 4, round * 3, false);
        world.commit(session, round % 5 == 0);
    }
    world.settle();
    world.verify_all();
    world.clean_restart();
    world.check();
}

#[test]
fn pages_are_overwritten_for_many_times_the_capacity() {
    let mut world = world(36);
    for round in 0..3000_u64 {
        let session = round as usize % 3;
        world.stage(session, round * 7919, 1 + round % 4, round * 7 / 3, round % 50 == 49);
        world.commit(session, round % 5 == 0);
        if round % 7 == 0 {
            world.settle();
        }
    }
    world.settle();
    world.verify_all();
    println!(
        "{} of {} bytes, {:?}",
        world.ftl().used_bytes(),
        world.ftl().capacity_bytes(),
        world.ftl().statistics().1
    );
    let cleaned = world.ftl().statistics().1.chunks_cleaned;
    assert!(cleaned > 20, "{cleaned}");
    world.clean_restart();
    world.check();
}

/// Found by hand: what the device held back when the drive was stopped could not be read by who only looked at it.
#[test]
fn a_store_that_was_stopped_can_be_looked_at() {
    for profile in plain_and_paired() {
        let config = Config { checkpoint_log_blocks: Some(8), ..Config::default() };
        let mut world = PageWorld::new(profile, config, 32, 1);
        world.stage(0, 3, 4, 5, false);
        world.commit(0, false);
        world.settle();
        world.close().unwrap();
        world.open(Access::Inspect).unwrap();
        world.check();
        world.verify_all();
    }
}

/// Blocks that the device has programmed, and those that the accounts have for each purpose.
fn programmed(world: &mut PageWorld) -> (u64, [u64; Purpose::ALL.len()]) {
    let on_media = world.device().statistics().blocks_programmed;
    (on_media, world.ftl().statistics().0.programmed)
}

#[test]
fn headers_and_slack_are_purposes_of_their_own_and_all_purposes_add_up_to_what_was_programmed() {
    for (profile, cross_blocks) in plain_and_paired().into_iter().zip([true, false]) {
        let config = Config { checkpoint_log_blocks: Some(8), cross_blocks, ..Config::default() };
        let mut world = PageWorld::new(profile, config, 36, 1);
        world.ftl().reset_statistics();
        let (before, _) = programmed(&mut world);
        for round in 0..1500_u64 {
            world.stage(round as usize % 3, round * 7919, 1 + round % 4, round * 7 / 3, round % 50 == 49);
            world.commit(round as usize % 3, round % 5 == 0);
            if round % 7 == 0 {
                world.settle();
            }
        }
        world.sync();
        world.settle();
        world.idle(Nanos::from_millis(1_000));
        let (after, of) = programmed(&mut world);
        assert_eq!(of.iter().sum::<u64>(), after - before, "the sum is what the device has programmed: {of:?}");
        let pages = *world.ftl().statistics().1;
        println!("{of:?}, {pages:?}");
        assert!(pages.chunks_cleaned > 10, "{pages:?}");
        // What fills units now is not programmed; what moved has headers, too.
        let (block, unit) = (BLOCK_BYTES as u64, 100);
        let header = of[Purpose::Header as usize];
        let slack = of[Purpose::Slack as usize];
        assert!(header + unit / 8 >= pages.header_bytes / block && header > 20, "{header} blocks: {pages:?}");
        let lost = pages.grain_bytes + pages.skipped_bytes;
        assert!(slack + unit >= lost / block && slack > 20, "{slack} blocks: {pages:?}");
        assert_eq!(pages.skipped_bytes > 0, !cross_blocks);
    }
}

/// In how many blocks each page lies.
fn blocks_of(cross_blocks: bool, bytes: usize, pages: u64) -> (f64, u64) {
    let [plain, _] = plain_and_paired();
    let config = Config { checkpoint_log_blocks: Some(8), cross_blocks, ..Config::default() };
    let mut world = PageWorld::new(plain, config, 32, 1);
    let session = world.sessions[0];
    for lpid in 0..pages {
        put(&mut world, session, lpid + 1, lpid, &vec![lpid as u8; bytes]).unwrap();
        commit(&mut world, session, lpid + 1).unwrap();
    }
    (0..pages).for_each(|lpid| assert_eq!(read(&mut world, lpid).unwrap(), vec![lpid as u8; bytes]));
    world.clean_restart_alone();
    let before = world.wire.device().statistics().blocks_read;
    (0..pages).for_each(|lpid| assert_eq!(read(&mut world, lpid).unwrap(), vec![lpid as u8; bytes]));
    let blocks_read = world.wire.device().statistics().blocks_read - before;
    let contents = world.ftl().contents();
    assert_eq!((contents.pages, contents.bytes), (pages, pages * bytes as u64));
    assert_eq!(contents.header_bytes, 32 * pages);
    assert_eq!(contents.grain_bytes, pages * ((bytes + 32).next_multiple_of(GRAIN_BYTES) - bytes - 32) as u64);
    (blocks_read as f64 / pages as f64, world.ftl().statistics().1.skipped_bytes)
}

#[test]
fn a_page_that_is_not_to_cross_blocks_lies_in_one_if_it_fits() {
    for bytes in [1952, 2016, 3000, 4064] {
        let (crossing, _) = blocks_of(true, bytes, 60);
        let (whole, _) = blocks_of(false, bytes, 60);
        println!("{bytes} bytes: {crossing:.2} blocks each, or {whole:.2}");
        assert!(crossing > 1.2 || bytes == 2016 || bytes == 4064, "{bytes} bytes: {crossing}");
        assert!((whole - 1.0).abs() < f64::EPSILON, "{bytes} bytes: {whole}");
    }
    let (long, _) = blocks_of(false, 4065, 60);
    assert!((2.0..2.2).contains(&long), "what fits into no block is packed: {long}");
}

/// Pages just longer than half a block waste most: cleaning has to get on all the same, and to find room for all that the store promises.
#[test]
fn a_full_store_whose_pages_do_not_cross_blocks_is_overwritten_without_an_end() {
    let [plain, _] = plain_and_paired();
    let config = Config { checkpoint_log_blocks: Some(8), cross_blocks: false, ..Config::default() };
    let mut world = PageWorld::new(plain, config, 36, 1);
    let session = world.sessions[0];
    let (mut wsn, mut lpid) = (1, 0);
    while world.ftl().used_bytes() + 2 * 2112 <= world.ftl().capacity_bytes() {
        match put(&mut world, session, wsn, lpid, &[lpid as u8; 2080]) {
            Ok(()) => lpid += 1,
            Err(StoreError::Busy) => _ = world.ask(StoreRequest::Sync),
            Err(error) => panic!("{error} at {lpid}: {}", world.ftl().describe()),
        }
        if lpid % 8 == 7 && commit(&mut world, session, wsn).is_ok() {
            wsn += 1;
        }
    }
    commit(&mut world, session, wsn).unwrap();
    for round in 0..3 * lpid {
        wsn += 1;
        let (at, mut waits) = (round * 7919 % lpid, 0);
        while let Err(error) = put(&mut world, session, wsn, at, &[at as u8; 2079]) {
            waits += 1;
            assert!(error == StoreError::Busy && waits < 10_000, "{error} at {round}: {}", world.ftl().describe());
            if waits == 1 {
                world.wait_anew();
            }
            world.pump();
        }
        commit(&mut world, session, wsn).unwrap();
    }
    let pages = *world.ftl().statistics().1;
    println!("{lpid} pages, {pages:?}");
    assert!(pages.chunks_cleaned > 50 && pages.skipped_bytes > 0, "{pages:?}");
    (0..lpid).for_each(|lpid| assert_eq!(read(&mut world, lpid).unwrap()[..2079], [lpid as u8; 2079]));
}

#[test]
fn a_batch_that_is_staged_for_long_keeps_nobody_from_room() {
    let mut world = world(24);
    let capacity = world.ftl().capacity_bytes();
    let mut staged = 0;
    for round in 0..6000_u64 {
        // A page of the long batch beside each few that die.
        if world.ftl().used_bytes() < capacity / 2 && world.stage(0, staged, 1, 4 + staged, false) {
            staged += 1;
        }
        world.stage(1, round, 3, 4, false);
        world.commit(1, false);
        if round % 7 == 0 {
            world.settle();
        }
        if round % 100 == 99 {
            world.stage(1, round, 60, 0, true);
            world.commit(1, false);
        }
    }
    let cleaned = world.ftl().statistics().1.chunks_cleaned;
    assert!(cleaned > 20 && staged > 20, "{cleaned} cleaned, {staged} staged");
    world.commit(0, true);
    world.settle();
    world.verify_all();
    world.clean_restart();
    world.check();
}

#[test]
fn a_scrub_finds_weak_blocks_of_pages_and_has_them_moved() {
    let [plain, _] = plain_and_paired();
    let interval = Some(Nanos::from_millis(200));
    let config = Config { checkpoint_log_blocks: Some(8), scrub_interval: interval, ..Config::default() };
    let mut world = PageWorld::new(plain, config, 36, 1);
    for round in 0..60_u64 {
        world.stage(round as usize % 3, round * 7919, 4, round * 7 / 3, false);
        world.commit(round as usize % 3, round % 5 == 0);
        world.settle();
    }
    let before = world.ftl().statistics().1.chunks_cleaned;
    for pick in 0..40 {
        world.inject(Fault { kind: FaultKind::HighEcc, pick: pick * 104_729 });
    }
    world.idle(Nanos::from_millis(1_000));
    let (statistics, of_pages) = world.ftl().statistics();
    let (scrub, cleaned) = (statistics.scrub, of_pages.chunks_cleaned);
    assert!(scrub.passes > 1 && scrub.weak > 0 && scrub.lost == 0, "{scrub:?}");
    assert!(cleaned > before, "{cleaned} chunks cleaned: {scrub:?}");
    world.verify_all();
    world.clean_restart();
    world.check();
}

fn commit(world: &mut PageWorld, session: Session, wsn: u64) -> Result<Option<PageFacts>, StoreError> {
    world.ask(StoreRequest::Commit { session, wsn, durability: Durability::Durable })
}

fn put(world: &mut PageWorld, session: Session, wsn: u64, lpid: u64, bytes: &[u8]) -> Result<(), StoreError> {
    world.ftl().stage(Time::ZERO, session, wsn, lpid, Change::Put(&[bytes]), None)
}

fn read(world: &mut PageWorld, lpid: u64) -> Result<Vec<u8>, StoreError> {
    world.bytes_of(lpid, 16)
}

#[test]
fn a_batch_is_repeated_without_effect_and_another_one_with_its_number_is_refused() {
    let mut world = world(32);
    let session = world.sessions[0];
    for wsn in 1..=3 {
        put(&mut world, session, wsn, 7, &[wsn as u8; 100]).unwrap();
        commit(&mut world, session, wsn).unwrap();
    }
    // After a lost reply, with its changes or without.
    put(&mut world, session, 2, 7, &[2; 100]).unwrap();
    assert_eq!(commit(&mut world, session, 2), Ok(None));
    assert_eq!(commit(&mut world, session, 3), Ok(None));
    put(&mut world, session, 2, 7, &[9; 100]).unwrap();
    assert_eq!(commit(&mut world, session, 2), Err(StoreError::Repeated { wsn: 2 }));
    assert_eq!(read(&mut world, 7).unwrap(), [3; 100]);
    assert_eq!(commit(&mut world, session, 0), Err(StoreError::Late { wsn: 0, last: 3 }));
    let used = world.ftl().used_bytes();
    world.ftl().close_session(Time::ZERO, session, false).unwrap();
    assert_eq!((world.ftl().used_bytes(), used), (192, 192), "what was staged again takes no room");
}

#[test]
fn a_batch_waits_for_those_before_it_and_is_refused_if_it_is_too_far_ahead() {
    let mut world = world(32);
    let session = world.sessions[0];
    let early = WINDOW + 1;
    assert_eq!(put(&mut world, session, early, 1, b"x"), Err(StoreError::Early { wsn: early, last: 0 }));
    for wsn in (1..=WINDOW).rev() {
        put(&mut world, session, wsn, 1, &[wsn as u8]).unwrap();
        let (now, tag) = (world.clock.now(), 100 + wsn);
        let request = StoreRequest::Commit { session, wsn, durability: Durability::Volatile };
        world.ftl().submit(now, tag, request).unwrap();
        let mut done = Vec::new();
        world.ftl().poll(now, &mut done);
        let ended: Vec<u64> = done.iter().map(|done| done.tag - 100).collect();
        let expected: Vec<u64> = if wsn == 1 { (1..=WINDOW).collect() } else { Vec::new() };
        assert_eq!(ended, expected, "in order, once the first is there");
        assert_eq!(put(&mut world, session, wsn, 1, b"x").is_err(), wsn > 1, "a batch that waits takes no more");
    }
    assert_eq!(read(&mut world, 1).unwrap(), [WINDOW as u8]);
}

#[test]
fn a_condition_that_does_not_hold_fails_the_whole_batch() {
    let mut world = world(32);
    let session = world.sessions[0];
    let stage = |world: &mut PageWorld, wsn, lpid, bytes: &[u8], version| {
        world.ftl().stage(Time::ZERO, session, wsn, lpid, Change::Put(&[bytes]), Some(version)).unwrap();
    };
    stage(&mut world, 1, 5, b"new", 0);
    commit(&mut world, session, 1).unwrap();
    stage(&mut world, 2, 6, b"beside", 0);
    stage(&mut world, 2, 5, b"again", 0);
    assert_eq!(commit(&mut world, session, 2), Err(StoreError::Condition { lpid: 5 }));
    assert_eq!(read(&mut world, 6), Err(StoreError::NoPage { lpid: 6 }));
    let version = world.ask(StoreRequest::Stat { lpid: 5 }).unwrap().unwrap().version;
    // Also where its header has to be read on media.
    world.clean_restart_alone();
    let (session, last) = world.ftl().open_session(SessionId([1; 16])).unwrap();
    assert_eq!(last, 1);
    world.ftl().stage(Time::ZERO, session, 2, 5, Change::Put(&[b"again"]), Some(version + 1)).unwrap();
    assert_eq!(commit(&mut world, session, 2), Err(StoreError::Condition { lpid: 5 }));
    world.ftl().stage(Time::ZERO, session, 2, 5, Change::Put(&[b"again"]), Some(version)).unwrap();
    commit(&mut world, session, 2).unwrap();
    assert_eq!(read(&mut world, 5).unwrap(), b"again");
}

/// The header of the page is still being read on media when a batch of another session changes the page.
#[test]
fn a_condition_is_of_the_version_that_is_there_when_the_batch_is_committed() {
    let mut world = world(32);
    let session = world.sessions[0];
    put(&mut world, session, 1, 5, b"first").unwrap();
    commit(&mut world, session, 1).unwrap();
    let version = world.ask(StoreRequest::Stat { lpid: 5 }).unwrap().unwrap().version;
    world.clean_restart_alone();
    let [one, other] = [1, 2].map(|id| world.ftl().open_session(SessionId([id; 16])).unwrap().0);
    world.ftl().stage(Time::ZERO, other, 1, 5, Change::Put(&[b"if first"]), Some(version)).unwrap();
    let now = world.clock.now();
    let request = StoreRequest::Commit { session: other, wsn: 1, durability: Durability::Durable };
    world.ftl().submit(now, 700, request).unwrap();
    put(&mut world, one, 2, 5, b"second").unwrap();
    world
        .ftl()
        .submit(now, 701, StoreRequest::Commit { session: one, wsn: 2, durability: Durability::Volatile })
        .unwrap();
    let mut done = Vec::new();
    while done.len() < 2 {
        let now = world.clock.now();
        world.ftl().poll(now, &mut done);
        if done.len() < 2 {
            let due = world.ftl().next_due().expect("something is due");
            world.clock.wait_until(due);
        }
    }
    done.sort_by_key(|done| done.tag);
    assert_eq!((done[0].result, done[1].result), (Err(StoreError::Condition { lpid: 5 }), Ok(None)));
    assert_eq!(read(&mut world, 5).unwrap(), b"second");
}

/// Found by reading: the flush of its last batch brought a forgotten session back.
#[test]
fn a_session_that_is_forgotten_before_its_last_batch_is_durable_stays_forgotten() {
    let mut world = world(32);
    let session = world.sessions[0];
    put(&mut world, session, 1, 5, b"kept").unwrap();
    let request = StoreRequest::Commit { session, wsn: 1, durability: Durability::Volatile };
    world.ask(request).unwrap();
    world.ftl().close_session(Time::ZERO, session, true).unwrap();
    world.ask(StoreRequest::Sync).unwrap();
    let (session, last) = world.ftl().open_session(SessionId([1; 16])).unwrap();
    assert_eq!(last, 0);
    put(&mut world, session, 1, 6, b"new").unwrap();
    commit(&mut world, session, 1).unwrap();
    assert_eq!(read(&mut world, 5).unwrap(), b"kept");
    world.clean_restart_alone();
    assert_eq!(world.ftl().open_session(SessionId([1; 16])).unwrap().1, 1);
}

#[test]
fn what_cannot_be_is_refused_with_the_field_and_changes_nothing() {
    let mut world = world(32);
    let (session, most) = (world.sessions[0], world.ftl().page_bytes_max());
    let long = vec![1; most as usize + 1];
    assert_eq!(put(&mut world, session, 1, 9, b""), Err(StoreError::Length { lpid: 9, bytes: 0, most }));
    let bytes = u64::from(most) + 1;
    assert_eq!(put(&mut world, session, 1, 9, &long), Err(StoreError::Length { lpid: 9, bytes, most }));
    assert_eq!(world.ftl().open_session(SessionId([1; 16])), Err(StoreError::SessionOpen));
    let nobody = Session(77);
    assert_eq!(put(&mut world, nobody, 1, 9, b"x"), Err(StoreError::NoSession { session: 77 }));
    assert_eq!(commit(&mut world, nobody, 1), Err(StoreError::NoSession { session: 77 }));
    assert_eq!(read(&mut world, 9), Err(StoreError::NoPage { lpid: 9 }));
    // A page that is not there can be deleted.
    world.ftl().stage(Time::ZERO, session, 1, 9, Change::Delete, None).unwrap();
    put(&mut world, session, 1, 10, b"ten").unwrap();
    commit(&mut world, session, 1).unwrap();
    let frames = world.frames(1);
    let read = world.ask(StoreRequest::Read { lpid: 10, offset: 3, frames: &frames });
    assert_eq!(read, Err(StoreError::Offset { lpid: 10, bytes: 3, offset: 3 }));
    assert_eq!(world.listed(), [(10, 3)]);
}

#[test]
fn a_full_store_refuses_what_is_new_and_takes_what_is_shorter_and_deletions() {
    let mut world = world(36);
    let session = world.sessions[0];
    let (mut wsn, mut lpid) = (1, 0);
    let refused = loop {
        match put(&mut world, session, wsn, lpid, &[1; 4000]) {
            Ok(()) => lpid += 1,
            Err(StoreError::Busy) => _ = world.ask(StoreRequest::Sync),
            Err(error) => break error,
        }
        if lpid % 8 == 7 && commit(&mut world, session, wsn).is_ok() {
            wsn += 1;
        }
    };
    assert!(matches!(refused, StoreError::NoSpace { needed: 4032, free, .. } if free < 4032), "{refused}");
    commit(&mut world, session, wsn).unwrap();
    for round in 0..lpid {
        wsn += 1;
        while put(&mut world, session, wsn, round, &[2; 3900]) == Err(StoreError::Busy) {
            world.ask(StoreRequest::Sync).unwrap();
        }
        commit(&mut world, session, wsn).unwrap();
    }
    wsn += 1;
    (0..10).for_each(|lpid| world.ftl().stage(Time::ZERO, session, wsn, lpid, Change::Delete, None).unwrap());
    commit(&mut world, session, wsn).unwrap();
    put(&mut world, session, wsn + 1, u64::MAX, &[3; 4000]).unwrap();
    commit(&mut world, session, wsn + 1).unwrap();
    assert_eq!(read(&mut world, u64::MAX).unwrap(), [3; 4000]);
    assert_eq!(read(&mut world, 11).unwrap(), [2; 3900]);
}

#[test]
fn a_session_that_is_closed_leaves_nothing_and_a_forgotten_one_begins_anew() {
    let mut world = world(32);
    let session = world.sessions[0];
    put(&mut world, session, 2, 1, &[1; 5000]).unwrap();
    let now = world.clock.now();
    world.ftl().submit(now, 500, StoreRequest::Commit { session, wsn: 2, durability: Durability::Durable }).unwrap();
    world.ftl().close_session(now, session, false).unwrap();
    let mut done = Vec::new();
    world.ftl().poll(now, &mut done);
    assert_eq!(done[0].result, Err(StoreError::Aborted));
    assert_eq!(world.ftl().used_bytes(), 0);
    let (session, last) = world.ftl().open_session(SessionId([1; 16])).unwrap();
    assert_eq!(last, 0);
    put(&mut world, session, 1, 1, b"x").unwrap();
    commit(&mut world, session, 1).unwrap();
    world.ftl().close_session(now, session, true).unwrap();
    assert_eq!(world.ftl().open_session(SessionId([1; 16])).unwrap().1, 0);
    world.clean_restart_alone();
    assert_eq!(world.ftl().open_session(SessionId([1; 16])).unwrap().1, 0);
}

/// All groups of the log were in one chunk, so that each durable batch stood behind the program of the one before it.
#[test]
fn durable_batches_that_follow_each_other_go_to_different_parallel_units_where_there_is_room() {
    for (chunks, takes_turns) in [(64, true), (28, false)] {
        let mut world = world(chunks);
        for round in 0..6 {
            world.stage(0, 5 * round, 2, 0, false);
            world.commit(0, true);
            world.settle();
        }
        let format = world.wire.geometry().format();
        let places = world.ftl().log_places();
        let units: Vec<_> = places.iter().map(|group| format.pu_of(format.chunk_of(group[0]))).collect();
        assert!(units.len() >= 6, "{units:?}");
        assert!(units.windows(2).all(|pair| (pair[0] != pair[1]) == takes_turns), "{chunks} chunks: {units:?}");
    }
}
