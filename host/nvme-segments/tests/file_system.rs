//! ALFS on a served drive: what was synced is there when the server, its drive or the connection is gone.

use openftl_alfs::{
    Changes, FileKind, FileSystem, FileTime, Inode, NewFile, Operation, Options, Refusal, Reply, Volume,
};
use openftl_core::Clock;
use openftl_nvme_segments::RemoteSegments;
use openftl_zones::Face;

use crate::support::*;

pub fn attempt(
    volume: &mut Volume<RemoteSegments>,
    clock: &mut Patient,
    operation: &Operation<'_>,
) -> Result<Reply, Refusal> {
    let ticket = volume.ticket();
    loop {
        if let Some(reply) = volume.attempt(clock.now(), FileTime::default(), ticket, operation) {
            return reply;
        }
        let now = clock.now();
        while !volume.poll(now) {
            let due = volume.next_due().expect("what waits is due");
            clock.wait_until(due);
            let now = clock.now();
            if volume.poll(now) {
                break;
            }
        }
    }
}

fn name(round: u64) -> Vec<u8> {
    format!("file {round}").into_bytes()
}

pub fn contents(round: u64) -> Vec<u8> {
    (0..70_000 + round * 1000).map(|at| (at / 7 + round) as u8).collect()
}

pub fn make(volume: &mut Volume<RemoteSegments>, clock: &mut Patient, round: u64) -> Result<(), Refusal> {
    let file = NewFile { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, device: 0 };
    let made = Operation::Make { parent: Inode::ROOT, name: &name(round), file };
    let Reply::Attributes(entry) = attempt(volume, clock, &made)? else { panic!("a file has attributes") };
    for (piece, offset) in contents(round).chunks(30_000).zip((0..).step_by(30_000)) {
        _ = attempt(volume, clock, &Operation::Write { inode: entry.inode, offset, data: piece })?;
    }
    Ok(())
}

pub fn read(volume: &mut Volume<RemoteSegments>, clock: &mut Patient, round: u64) -> Vec<u8> {
    let lookup = Operation::Lookup { parent: Inode::ROOT, name: &name(round) };
    let Reply::Attributes(entry) = attempt(volume, clock, &lookup).unwrap() else { panic!("it is there") };
    let mut found = Vec::new();
    while found.len() as u64 != entry.size {
        let read = Operation::Read { inode: entry.inode, offset: found.len() as u64, bytes: 65_536 };
        let Reply::Data(data) = attempt(volume, clock, &read).unwrap() else { panic!("a read brings data") };
        volume.data(&data, &mut |piece| found.extend_from_slice(piece));
        volume.give_back(data);
    }
    found
}

#[test]
fn what_was_synced_is_there_when_the_server_is_gone() {
    let mut clock = Patient::new();
    let mut served = Served::new(drive(Face::Zones, LIMITS, 200));
    let volume = Volume::format(served.connect(), 5, (0, 0), FileTime::default(), &mut clock).unwrap();
    volume.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    for round in 0..4 {
        let mounted = Volume::mount(served.connect(), Options::default(), &mut clock);
        let mut volume = mounted.map_err(|(_, error)| error).unwrap();
        for earlier in 0..round {
            assert!(read(&mut volume, &mut clock, earlier) == contents(earlier), "file {earlier} in round {round}");
        }
        make(&mut volume, &mut clock, round).unwrap();
        _ = attempt(&mut volume, &mut clock, &Operation::Sync).unwrap();
        make(&mut volume, &mut clock, 100 + round).unwrap();
        // With and without a power cut of the drive; the file system is told in either case.
        served = Served::new(if round % 2 == 0 { served.crash() } else { served.end() });
        assert!(attempt(&mut volume, &mut clock, &Operation::Sync).is_err(), "nobody is there to sync");
        assert!(volume.failure().is_some());
        assert!(volume.target().trouble().is_some());
        assert!(make(&mut volume, &mut clock, 200).is_err());
        assert!(volume.unmount(&mut clock).is_err(), "not all is durable");
    }
    let mut volume = Volume::mount(served.connect(), Options::default(), &mut clock).map_err(|(_, why)| why).unwrap();
    assert!(volume.check(&mut clock, &mut |_, _| {}).unwrap().is_sound());
    (0..4).for_each(|round| assert!(read(&mut volume, &mut clock, round) == contents(round), "file {round}"));
    volume.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    served.end();
}

fn mounted(served: &Served, clock: &mut Patient) -> Volume<RemoteSegments> {
    Volume::mount(served.connect(), Options::default(), clock).map_err(|(_, error)| error).unwrap()
}

/// It takes no more changes, because of what another host has done.
fn expect_refused(volume: &mut Volume<RemoteSegments>, clock: &mut Patient) {
    let result = make(volume, clock, 50).and_then(|()| attempt(volume, clock, &Operation::Sync).map(drop));
    assert!(result.is_err() && volume.failure().is_some());
    let trouble = volume.target().trouble().expect("the drive has refused a write");
    assert!(trouble.contains("another host has written"), "{trouble}");
}

#[test]
fn the_first_of_two_mounts_takes_no_more_changes_and_nothing_that_was_synced_is_lost() {
    for (round, is_first_at_work) in (0..).zip([false, true]) {
        let mut clock = Patient::new();
        let served = Served::new(drive(Face::Zones, LIMITS, 210 + round));
        let volume = Volume::format(served.connect(), 5, (0, 0), FileTime::default(), &mut clock).unwrap();
        volume.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
        let mut first = mounted(&served, &mut clock);
        make(&mut first, &mut clock, 0).unwrap();
        _ = attempt(&mut first, &mut clock, &Operation::Sync).unwrap();
        let mut second = mounted(&served, &mut clock);
        assert!(read(&mut second, &mut clock, 0) == contents(0));
        if is_first_at_work {
            // Its contents may go where those of the second are to go, who is told then.
            expect_refused(&mut first, &mut clock);
        }
        let is_second_fine = make(&mut second, &mut clock, 1)
            .and_then(|()| attempt(&mut second, &mut clock, &Operation::Sync).map(drop))
            .is_ok();
        assert!(is_second_fine || is_first_at_work);
        if !is_first_at_work {
            expect_refused(&mut first, &mut clock);
        }
        drop((first, second));
        let mut third = mounted(&served, &mut clock);
        assert!(third.check(&mut clock, &mut |_, _| {}).unwrap().is_sound());
        assert!(read(&mut third, &mut clock, 0) == contents(0));
        if is_second_fine {
            assert!(read(&mut third, &mut clock, 1) == contents(1));
        }
        third.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
        served.end();
    }
}

/// A drive with a file system, mounted, after so many syncs of which each has a record of its own.
fn after_syncs(syncs: u64, clock: &mut Patient) -> (Served, Volume<RemoteSegments>) {
    let served = Served::new(drive(Face::Zones, LIMITS, 220));
    let volume = Volume::format(served.connect(), 5, (0, 0), FileTime::default(), clock).unwrap();
    volume.unmount(clock).map_err(|(_, error)| error).unwrap();
    let mut volume = mounted(&served, clock);
    make(&mut volume, clock, 0).unwrap();
    (0..syncs).for_each(|sync| sync_once(&mut volume, clock, sync).unwrap());
    (served, volume)
}

fn sync_once(volume: &mut Volume<RemoteSegments>, clock: &mut Patient, sync: u64) -> Result<(), Refusal> {
    let attributes = Changes { mode: Some(0o600 + (sync % 8) as u16), ..Changes::default() };
    _ = attempt(volume, clock, &Operation::SetAttributes { inode: Inode::ROOT, changes: attributes })?;
    attempt(volume, clock, &Operation::Sync).map(drop)
}

/// Whoever is to empty the other anchor, because his own is full, finds out before that it has newer records.
#[test]
fn a_mount_that_is_over_does_not_empty_the_other_anchor() {
    let mut clock = Patient::new();
    let (served, mut volume) = after_syncs(0, &mut clock);
    let mut syncs = 0;
    loop {
        let before = volume.statistics().records;
        sync_once(&mut volume, &mut clock, syncs).unwrap();
        if volume.statistics().records > before + 1 {
            break;
        }
        syncs += 1;
    }
    drop(volume);
    served.end();
    let (served, mut first) = after_syncs(syncs, &mut clock);
    let second = mounted(&served, &mut clock);
    assert!(sync_once(&mut first, &mut clock, syncs).is_err(), "after {syncs} syncs its anchor is full");
    assert!(first.failure().is_some());
    drop((first, second));
    let mut third = mounted(&served, &mut clock);
    assert!(third.check(&mut clock, &mut |_, _| {}).unwrap().is_sound());
    assert!(read(&mut third, &mut clock, 0) == contents(0));
    third.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    served.end();
}
