//! ALFS on a served drive: what was synced is there when the server, its drive or the connection is gone.

use openftl_alfs::{FileKind, FileSystem, FileTime, Inode, NewFile, Operation, Options, Refusal, Reply, Volume};
use openftl_core::Clock;
use openftl_nvme_segments::RemoteSegments;
use openftl_zones::Face;

use crate::support::*;

fn attempt(
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

fn contents(round: u64) -> Vec<u8> {
    (0..70_000 + round * 1000).map(|at| (at / 7 + round) as u8).collect()
}

fn make(volume: &mut Volume<RemoteSegments>, clock: &mut Patient, round: u64) -> Result<(), Refusal> {
    let file = NewFile { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, device: 0 };
    let made = Operation::Make { parent: Inode::ROOT, name: &name(round), file };
    let Reply::Attributes(entry) = attempt(volume, clock, &made)? else { panic!("a file has attributes") };
    for (piece, offset) in contents(round).chunks(30_000).zip((0..).step_by(30_000)) {
        _ = attempt(volume, clock, &Operation::Write { inode: entry.inode, offset, data: piece })?;
    }
    Ok(())
}

fn read(volume: &mut Volume<RemoteSegments>, clock: &mut Patient, round: u64) -> Vec<u8> {
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
