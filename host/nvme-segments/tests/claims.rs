//! Who writes claims the drive: a second host is refused or takes it over, and what the first one sends late changes nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use openftl_alfs::{FileTime, Operation, Options, Volume};
use openftl_nvme::command::reservation::{Acquire, Register, ReservationCommand};
use openftl_nvme::{ReservationType, Status};
use openftl_nvme_media::connect::connect;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_segments::{Claim, ConnectError, RemoteSegments};
use openftl_nvme_tcp::client::{ClientError, Payload};
use openftl_parts::target::{BlockTarget, Durability, IoError, Request, Target};
use openftl_zones::Face;
use zerocopy::IntoBytes;

use crate::file_system::{attempt, contents, make, read};
use crate::support::*;

fn claimed(uri: &DriveUri, claim: Claim) -> RemoteSegments {
    RemoteSegments::claim(uri, claim).unwrap()
}

/// A way to a server, on which what hosts send can be held back.
#[derive(Clone)]
struct Gate {
    address: SocketAddr,
    is_closed: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    fn to(server: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Gate { address: listener.local_addr().unwrap(), is_closed: Arc::default() };
        let its = gate.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut host, mut there) = (stream.unwrap(), TcpStream::connect(server).unwrap());
                let (mut its_host, mut its_there) = (host.try_clone().unwrap(), there.try_clone().unwrap());
                let gate = its.clone();
                std::thread::spawn(move || std::io::copy(&mut there, &mut host));
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(bytes @ 1..) = its_host.read(&mut buffer) {
                        let (is_closed, changed) = &*gate.is_closed;
                        drop(changed.wait_while(is_closed.lock().unwrap(), |is_closed| *is_closed).unwrap());
                        if its_there.write_all(&buffer[..bytes]).is_err() {
                            return;
                        }
                    }
                    let _ = its_there.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        gate
    }

    fn uri(&self) -> DriveUri {
        format!("nvme-tcp://{}", self.address).parse().unwrap()
    }

    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.0.lock().unwrap() = is_closed;
        self.is_closed.1.notify_all();
    }
}

#[test]
fn a_second_writer_is_refused_by_name_until_the_first_has_ended_and_readers_are_not() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let mut first = Host::new(claimed(&served.uri(), Claim::IfFree));
    first.write(0, &[1], Durability::Durable).unwrap();
    let Err(refused) = RemoteSegments::claim(&served.uri(), Claim::IfFree) else { panic!("it is taken") };
    assert!(matches!(refused, ConnectError::Taken { controller: 1, .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("another host writes to the drive") && text.contains("controller 1"), "{text}");
    let mut reader = Host::new(served.connect());
    assert_eq!(reader.read(0, 1), Ok(vec![1]));
    assert_eq!(reader.write(1, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    let trouble = reader.drive.trouble().unwrap();
    assert!(trouble.contains("Reservation Conflict") && trouble.contains("another host has reserved"), "{trouble}");
    first.write(1, &[2], Durability::Durable).unwrap();
    drop(first);
    let mut second = Host::new(claimed(&served.uri(), Claim::IfFree));
    second.write(2, &[3], Durability::Durable).unwrap();
    assert_eq!(second.read(0, 3), Ok(vec![1, 2, 3]));
    drop((second, reader));
    let mut anybody = Host::new(served.connect());
    anybody.write(3, &[4], Durability::Durable).expect("whoever ends gives the right back");
    drop(anybody);
    served.end();
}

#[test]
fn what_a_dead_host_has_reserved_is_taken_over_without_being_told_so() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let dead = connect(&served.uri(), "nqn.2026-11.org.openftl:other", 4, Duration::from_secs(5)).unwrap();
    let mut queue = dead.io_queue(2).unwrap();
    let mut say = |command: ReservationCommand, keys: [u64; 2]| {
        let entry = command.entry(1);
        let data = Payload::ToController(keys.map(u64::to_le_bytes).concat());
        queue.call("Reservation", entry.as_bytes().try_into().unwrap(), data)
    };
    say(ReservationCommand::Register { action: Register::Register, ignores_key: false }, [0, 7]).unwrap();
    let kind = ReservationType::ExclusiveAccess;
    say(ReservationCommand::Acquire { action: Acquire::Acquire, kind }, [7, 0]).unwrap();
    // It has never said that it leaves.
    drop((queue, dead));
    let mut heir = Host::new(claimed(&served.uri(), Claim::IfFree));
    heir.write(0, &[1], Durability::Durable).unwrap();
    drop(heir);
    served.end();
}

#[test]
fn a_reset_that_a_preempted_host_sends_late_is_refused_and_what_the_other_one_has_synced_stays() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let gate = Gate::to(served.address);
    let mut first = Host::new(claimed(&gate.uri(), Claim::IfFree));
    let capacity = first.drive.segment_blocks().unwrap();
    first.write(0, &[1, 2, 3], Durability::Durable).unwrap();
    gate.set_closed(true);
    let trim = Request::Trim { first: 0, blocks: capacity, durability: Durability::Volatile };
    let late = first.submit(trim).unwrap();
    let later = first.submit_write(0, &[9], Durability::Volatile).unwrap();
    let mut second = Host::new(claimed(&served.uri(), Claim::Preempt));
    assert_eq!(second.read(0, 3), Ok(vec![1, 2, 3]));
    let trim = Request::Trim { first: 0, blocks: capacity, durability: Durability::Durable };
    second.run(trim).unwrap();
    second.write(0, &[4, 5], Durability::Durable).unwrap();
    gate.set_closed(false);
    assert_eq!(first.ends_of(&[late, later]), [Err(IoError::ReadOnly); 2]);
    assert!(first.drive.is_read_only());
    let trouble = first.drive.trouble().unwrap();
    assert!(trouble.contains("refuses a reset") && trouble.contains("another host has reserved"), "{trouble}");
    assert_eq!(second.read(0, 2), Ok(vec![4, 5]));
    second.write(2, &[6], Durability::Durable).unwrap();
    // Whoever was preempted cannot end the claim of the other.
    drop(first);
    let refused = RemoteSegments::claim(&served.uri(), Claim::IfFree).err();
    assert!(matches!(refused, Some(ConnectError::Taken { .. })), "{refused:?}");
    drop(second);
    let mut third = Host::new(served.connect());
    assert_eq!(third.read(0, 3), Ok(vec![4, 5, 6]));
    drop(third);
    served.end();
}

#[test]
fn a_mount_that_is_held_up_loses_the_drive_to_another_and_nothing_that_was_synced_is_lost() {
    let mut clock = Patient::new();
    let served = Served::new(drive(Face::Zones, LIMITS, 210));
    let drive = claimed(&served.uri(), Claim::IfFree);
    let volume = Volume::format(drive, 5, (0, 0), FileTime::default(), &mut clock).unwrap();
    volume.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    let gate = Gate::to(served.address);
    let mount = |uri: &DriveUri, claim, clock: &mut Patient| {
        Volume::mount(claimed(uri, claim), Options::default(), clock).map_err(|(_, error)| error).unwrap()
    };
    let mut first = mount(&gate.uri(), Claim::IfFree, &mut clock);
    make(&mut first, &mut clock, 0).unwrap();
    _ = attempt(&mut first, &mut clock, &Operation::Sync).unwrap();
    gate.set_closed(true);
    let held_up = std::thread::spawn(move || {
        let mut clock = Patient::new();
        let made = make(&mut first, &mut clock, 50);
        let synced = made.and_then(|()| attempt(&mut first, &mut clock, &Operation::Sync).map(drop));
        (first, synced)
    });
    let mut second = mount(&served.uri(), Claim::Preempt, &mut clock);
    assert!(read(&mut second, &mut clock, 0) == contents(0));
    for round in 1..6 {
        make(&mut second, &mut clock, round).unwrap();
        _ = attempt(&mut second, &mut clock, &Operation::Sync).unwrap();
    }
    gate.set_closed(false);
    let (first, synced) = held_up.join().unwrap();
    assert!(synced.is_err() && first.failure().is_some(), "it takes no more changes");
    let trouble = first.target().trouble().unwrap();
    assert!(trouble.contains("another host has reserved the drive"), "{trouble}");
    assert!(first.unmount(&mut clock).is_err());
    make(&mut second, &mut clock, 6).unwrap();
    second.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    let mut third = mount(&served.uri(), Claim::IfFree, &mut clock);
    assert!(third.check(&mut clock, &mut |_, _| {}).unwrap().is_sound());
    (0..7).for_each(|round| assert!(read(&mut third, &mut clock, round) == contents(round), "file {round}"));
    third.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
    served.end();
}

#[test]
fn a_drive_that_nobody_claims_has_no_reservation() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    drop(served.connect());
    let other = connect(&served.uri(), "nqn.2026-11.org.openftl:other", 4, Duration::from_secs(5)).unwrap();
    let mut queue = other.io_queue(2).unwrap();
    let entry = ReservationCommand::Report { bytes: 64 }.entry(1);
    let report =
        queue.call("Reservation Report", entry.as_bytes().try_into().unwrap(), Payload::ToHost(vec![0xee; 64]));
    assert_eq!(report.unwrap().data, [0; 64]);
    let acquire = ReservationCommand::Acquire { action: Acquire::Acquire, kind: ReservationType::WriteExclusive };
    let refused =
        queue.call("Acquire", acquire.entry(1).as_bytes().try_into().unwrap(), Payload::ToController(vec![0; 16]));
    let Err(ClientError::Refused { status, .. }) = refused else { panic!("nobody has registered") };
    assert_eq!(Status::from_field(status).code(), Status::RESERVATION_CONFLICT.code());
    drop((queue, other));
    served.end();
}
