//! Who waits, for whom, and what is said when nothing will come.

use openftl_blocks::Ftl;
use openftl_core::Time;
use openftl_dispatch::{Dispatcher, Pace, PaceClock, Stopped, Until};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_pages::{Change, PageFtl, SessionId, StoreRequest, StoreTarget};
use openftl_parts::{Config, Durability, Target};
use openftl_tables::TableFtl;
use std::time::{Duration, Instant};

fn device() -> EmulatedDevice {
    EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 64, Store::Ram, Timing::Modelled, 1).unwrap()
}

fn tables() -> Dispatcher<TableFtl<EmulatedDevice>> {
    let config = Config { capacity_blocks: 512, host_frames: 64, drive_id: 1, ..Config::default() };
    let mut clock = PaceClock { pace: Pace::wall(), now: Time::ZERO };
    let drive = TableFtl::format(device(), config, (), &mut clock).unwrap();
    Dispatcher::new(drive, clock)
}

fn pages() -> Dispatcher<PageFtl<EmulatedDevice>> {
    let config = Config { host_frames: 64, drive_id: 1, ..Config::default() };
    let mut clock = PaceClock { pace: Pace::wall(), now: Time::ZERO };
    let drive = PageFtl::format(device(), config, (), &mut clock).unwrap();
    Dispatcher::new(drive, clock)
}

#[test]
fn who_waits_for_frames_of_another_gets_them_when_nothing_is_due() {
    let dispatcher = tables();
    let mut taken = Vec::new();
    let mut owner = dispatcher.look();
    while matches!(owner.lend(1, &mut taken), Until::Found(())) {}
    drop(owner);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut frames = Vec::new();
            let (mut owner, lent) = dispatcher.wait_until(dispatcher.look(), 0, |owned| owned.lend(3, &mut frames));
            owner.give_back(&frames);
            lent
        });
        while !waits.is_finished() && !dispatcher.look().has_sleepers() {
            std::thread::yield_now();
        }
        let (two, rest) = taken.split_at(2);
        dispatcher.look().give_back(two);
        dispatcher.look().give_back(rest);
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
    let mut all = Vec::new();
    while matches!(dispatcher.look().lend(1, &mut all), Until::Found(())) {}
    assert_eq!(all.len(), taken.len(), "every frame came back");
}

#[test]
fn what_nobody_will_ever_give_is_an_error() {
    let dispatcher = tables();
    let waited = dispatcher.wait_until(dispatcher.look(), 0, |_| Until::<()>::Drive).1;
    assert!(matches!(waited, Err(Stopped::Device(state)) if !state.is_empty()));
}

#[test]
fn each_thread_gets_its_own_answers() {
    let dispatcher = pages();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let dispatcher = &dispatcher;
            scope.spawn(move || {
                let id = SessionId([thread as u8; 16]);
                let (session, _) = dispatcher.own().unwrap().drive.open_session(id).unwrap();
                for wsn in 1..=50 {
                    let mut owner = dispatcher.own().unwrap();
                    let (now, tag, lpid) = (owner.now, owner.tag(), (thread << 32) + wsn % 7);
                    let bytes = vec![thread as u8; 100 + wsn as usize];
                    owner.drive.stage(now, session, wsn, lpid, Change::Put(&[&bytes]), None).unwrap();
                    let durability = if wsn % 3 == 0 { Durability::Durable } else { Durability::Volatile };
                    owner.drive.submit(now, tag, StoreRequest::Commit { session, wsn, durability }).unwrap();
                    let (mut owner, ended) = dispatcher.wait(owner, tag);
                    assert_eq!(ended.unwrap(), Ok(None));
                    let mut frames = Vec::new();
                    assert!(matches!(owner.lend(1, &mut frames), Until::Found(())));
                    let (now, tag) = (owner.now, owner.tag());
                    owner.drive.submit(now, tag, StoreRequest::Read { lpid, offset: 0, frames: &frames }).unwrap();
                    let (mut owner, ended) = dispatcher.wait(owner, tag);
                    let facts = ended.unwrap().unwrap().expect("the page is there");
                    assert_eq!(facts.bytes, 100 + wsn as u32);
                    assert_eq!(owner.drive.frames().bytes(frames[0])[..facts.bytes as usize], bytes);
                    owner.give_back(&frames);
                }
            });
        }
    });
    assert_eq!(dispatcher.look().drive.pages(), 28);
}

#[test]
fn who_waits_hears_of_a_power_cut() {
    let dispatcher = pages();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| dispatcher.wait_until(dispatcher.look(), 0, |_| Until::<()>::Others).1);
        while !waits.is_finished() && !dispatcher.look().has_sleepers() {
            std::thread::yield_now();
        }
        dispatcher.stop(|_, _| ());
        assert_eq!(waits.join().unwrap(), Err(Stopped::Power));
    });
    assert!(matches!(dispatcher.own().map(drop), Err(Stopped::Power)));
}

#[test]
fn a_bell_wakes_who_waits_for_the_device_before_it_is_due() {
    let dispatcher = pages();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut owner = dispatcher.look();
            let (session, _) = owner.drive.open_session(SessionId([1; 16])).unwrap();
            let (now, tag) = (owner.now, owner.tag());
            owner.drive.stage(now, session, 1, 1, Change::Put(&[&[1; 5000]]), None).unwrap();
            let durability = Durability::Durable;
            owner.drive.submit(now, tag, StoreRequest::Commit { session, wsn: 1, durability }).unwrap();
            dispatcher.wait(owner, tag).1
        });
        let begun = Instant::now();
        // Rings at any moment do no harm, and lose no answer.
        while !waits.is_finished() && begun.elapsed() < Duration::from_secs(60) {
            dispatcher.bell().ring();
            std::thread::yield_now();
        }
        assert_eq!(waits.join().unwrap(), Ok(Ok(None)));
    });
}
