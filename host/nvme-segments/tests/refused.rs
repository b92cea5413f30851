//! Namespaces that are no drives of segments, servers that are not there, and such that fall silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use openftl_nvme::command::zoned::{OPEN_WITH_WINDOW, send_dword};
use openftl_nvme_media::connect::connect;
use openftl_nvme_segments::{Claim, ConnectError, RemoteSegments};
use openftl_nvme_tcp::nvm::ZonePlace;
use openftl_parts::target::{AppendError, Durability, IoError, Request, Target};
use openftl_zones::{Action, Face, Limits};

use crate::support::*;

fn refused(text: &str) -> ConnectError {
    RemoteSegments::connect(&text.parse().unwrap()).err().expect("there is no such drive")
}

#[test]
fn a_namespace_of_blocks_is_refused_with_the_way_to_serve_zones() {
    let served = Served::new(drive(Face::Segments, LIMITS, 60));
    let text = refused(&served.uri().to_string()).to_string();
    assert!(text.contains("namespace 1 is not zoned") && text.contains("interface = \"zones\""), "{text}");
    let text = refused(&format!("{}?namespace=2", served.uri())).to_string();
    assert!(text.contains("namespace 2 is not there"), "{text}");
    served.end();
}

#[test]
fn the_controllers_of_this_project_say_that_they_are() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let association = connect(&served.uri(), "nqn.2026-11.org.openftl:other", 4, Duration::from_secs(5)).unwrap();
    // By this a host knows that the reports say how far a zone is written that is read only.
    assert!(association.controller.model.starts_with(b"OpenFTL "));
    drop(association);
    served.end();
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = refused(&format!("nvme-tcp://{address}")).to_string();
    assert!(text.contains("nobody answers") && text.contains(&address.to_string()), "{text}");
}

#[test]
fn more_segments_than_may_be_written_in_part_are_refused_here() {
    let served = Served::new(drive(Face::Zones, Limits { max_open: 2, max_active: 3 }, 60));
    let mut there = Host::new(served.connect());
    let capacity = openftl_parts::target::BlockTarget::segment_blocks(&there.drive).unwrap();
    (0..3).for_each(|segment| there.write(segment * capacity, &[7], Durability::Volatile).unwrap());
    let error = there.write(3 * capacity, &[7], Durability::Volatile);
    assert_eq!(error, Err(AppendError::TooManyOpen { limit: 3 }.into()));
    assert!(!there.drive.is_read_only(), "the drive was not asked");
    drop(there);
    served.end();
}

/// Somebody else does this with a zone.
fn send_zone(served: &Served, first: u64, dword: u32) {
    let association = connect(&served.uri(), "nqn.2026-11.org.openftl:other", 4, Duration::from_secs(5)).unwrap();
    association.io_queue(2).unwrap().zone_send(ZonePlace { namespace: 1, first }, dword).unwrap();
}

#[test]
fn zones_that_somebody_has_opened_count_as_active_until_they_are_trimmed() {
    let served = Served::new(drive(Face::Zones, Limits { max_open: 3, max_active: 3 }, 60));
    let capacity = openftl_parts::target::BlockTarget::segment_blocks(&served.connect()).unwrap();
    let size = capacity.next_power_of_two();
    send_zone(&served, 0, send_dword(Action::Open, false));
    send_zone(&served, size, send_dword(Action::Open, false));
    let mut there = Host::new(served.connect());
    there.write(2 * capacity, &[7], Durability::Volatile).unwrap();
    let error = there.write(3 * capacity, &[7], Durability::Volatile);
    assert_eq!(error, Err(AppendError::TooManyOpen { limit: 3 }.into()));
    there.write(0, &[8], Durability::Volatile).expect("it is active already");
    let trim = Request::Trim { first: capacity, blocks: capacity, durability: Durability::Volatile };
    there.run(trim).unwrap();
    there.write(3 * capacity, &[9], Durability::Volatile).expect("the other one was given back");
    there.run(Request::Flush).unwrap();
    drop(there);
    served.end();
}

#[test]
fn a_zone_with_a_random_write_area_is_refused_with_the_way_to_give_it_back() {
    let served = Served::new(drive_with_windows(Face::Zones, LIMITS, 60, 16));
    let size = openftl_parts::target::BlockTarget::segment_blocks(&served.connect()).unwrap().next_power_of_two();
    send_zone(&served, size, OPEN_WITH_WINDOW);
    let text = refused(&served.uri().to_string()).to_string();
    assert!(text.contains("random write area in zone 1") && text.contains("zones reset"), "{text}");
    send_zone(&served, size, send_dword(Action::Reset, false));
    drop(served.connect());
    served.end();
}

#[test]
fn when_another_host_writes_to_the_zones_nothing_more_is_written() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let (mut there, mut other) = (Host::new(served.connect()), Host::new(served.connect()));
    other.write(0, &[1], Durability::Volatile).unwrap();
    assert_eq!(there.write(0, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("Zone Invalid Write"), "{trouble}");
    assert_eq!(there.write(0, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly));
    assert_eq!(there.read(0, 1), Err(IoError::Unrecovered { block: 0 }), "it is not what was written here");
    drop((there, other));
    served.end();
}

#[test]
fn behind_a_write_that_was_refused_nothing_is_written_synced_or_read() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let (write, flush) = (0x01, 0x00);
    let through = ending_otherwise(served.address, move |opcode, count| {
        // Data Transfer Error, of the third write; the drive has taken it, which nobody here knows.
        assert!(opcode != flush || count == 1, "nothing is flushed after it");
        (opcode == write && count == 3).then_some(0x004)
    });
    let mut there = Host::new(RemoteSegments::connect(&format!("nvme-tcp://{through}").parse().unwrap()).unwrap());
    let capacity = openftl_parts::target::BlockTarget::segment_blocks(&there.drive).unwrap();
    there.write(0, &[1, 2], Durability::Volatile).unwrap();
    there.write(capacity, &[3], Durability::Volatile).unwrap();
    there.run(Request::Flush).unwrap();
    // More than can be under way: some wait.
    let writes: Vec<u64> =
        (2..capacity).map(|block| there.submit_write(block, &[block], Durability::Volatile).unwrap()).collect();
    let other = there.submit_write(capacity + 1, &[4], Durability::Volatile).unwrap();
    let trim = Request::Trim { first: capacity, blocks: capacity, durability: Durability::Volatile };
    let trim = there.submit(trim).unwrap();
    let flush = there.submit(Request::Flush).unwrap();
    let mut results = there.ends_of(&[&writes[..], &[other, trim, flush]].concat());
    assert_eq!(results.pop().unwrap(), Err(IoError::ReadOnly), "the flush");
    assert_eq!(results.pop().unwrap(), Err(IoError::ReadOnly), "the trim that waited");
    assert_eq!(results.pop().unwrap(), Err(IoError::ReadOnly), "the write that waited");
    assert_eq!((results[0], *results.last().unwrap()), (Err(IoError::ReadOnly), Err(IoError::ReadOnly)));
    assert_eq!(there.read(0, 2).unwrap(), [1, 2]);
    assert_eq!(there.read(1, 2), Err(IoError::Unrecovered { block: 2 }));
    assert_eq!(there.read(5, 2), Err(IoError::Unrecovered { block: 5 }));
    drop(there);
    let mut again = Host::new(served.connect());
    assert_eq!(again.read(capacity, 2).unwrap(), [3, 0], "what waited was not sent");
    drop(again);
    served.end();
}

/// Passes bytes on until `until` bytes of answers have gone, and is silent then, but listens.
fn silent_after(address: std::net::SocketAddr, until: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut host, mut server) = (stream.unwrap(), TcpStream::connect(address).unwrap());
            let (mut its_host, mut its_server) = (host.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut its_host, &mut its_server));
            std::thread::spawn(move || {
                let (mut buffer, mut passed) = ([0; 4096], 0);
                while let Ok(bytes) = server.read(&mut buffer) {
                    passed += bytes;
                    if bytes == 0 || passed < until && host.write_all(&buffer[..bytes]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    here
}

/// Passes bytes on, and answers so much later while `is_late` says so. Tells how the streams of hosts end; `None`: properly.
fn late(
    address: std::net::SocketAddr,
    by: Duration,
    is_late: std::sync::Arc<AtomicBool>,
) -> (std::net::SocketAddr, std::sync::mpsc::Receiver<Option<std::io::ErrorKind>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let (ends, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut host, mut server) = (stream.unwrap(), TcpStream::connect(address).unwrap());
            let (mut its_host, mut its_server) = (host.try_clone().unwrap(), server.try_clone().unwrap());
            let (ends, is_late) = (ends.clone(), is_late.clone());
            std::thread::spawn(move || {
                let end = std::io::copy(&mut its_host, &mut its_server);
                _ = ends.send(end.err().map(|error| error.kind()));
            });
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = server.read(&mut buffer) {
                    if is_late.load(SeqCst) {
                        std::thread::sleep(by);
                    }
                    if host.write_all(&buffer[..bytes]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (here, ended)
}

/// A response with this is not passed on.
const NEVER: u16 = 0x7fff;

/// Passes PDUs on, and has commands that `status` knows end with another status: it is asked with the opcode, and how many of these there were.
fn ending_otherwise(
    address: std::net::SocketAddr,
    status: impl Fn(u8, usize) -> Option<u16> + Send + Sync + 'static,
) -> std::net::SocketAddr {
    /// A PDU: its type is in byte 0, and its length in bytes 4 to 7.
    fn pdu(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut pdu = vec![0; 8];
        stream.read_exact(&mut pdu).ok()?;
        pdu.resize(u32::from_le_bytes(pdu[4..8].try_into().unwrap()) as usize, 0);
        stream.read_exact(&mut pdu[8..]).ok().map(|()| pdu)
    }
    const COMMAND: u8 = 0x04;
    const RESPONSE: u8 = 0x05;
    const DATA: u8 = 0x07;
    /// Of the last data of a command: it has ended well, and no response follows.
    const SUCCESS: u8 = 1 << 3;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let status = std::sync::Arc::new(status);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut host, mut server) = (stream.unwrap(), TcpStream::connect(address).unwrap());
            let (mut its_host, mut its_server) = (host.try_clone().unwrap(), server.try_clone().unwrap());
            let (names, named) = std::sync::mpsc::channel::<(u16, u8)>();
            std::thread::spawn(move || {
                while let Some(pdu) = pdu(&mut its_host) {
                    if pdu[0] == COMMAND {
                        names.send((u16::from_le_bytes([pdu[10], pdu[11]]), pdu[8])).unwrap();
                    }
                    if its_server.write_all(&pdu).is_err() {
                        return;
                    }
                }
            });
            let status = status.clone();
            std::thread::spawn(move || {
                let (mut opcodes, mut counts) = (std::collections::HashMap::new(), [0; 256]);
                while let Some(mut pdu) = pdu(&mut server) {
                    opcodes.extend(named.try_iter());
                    let mut status_of = |id: &[u8]| {
                        let opcode = opcodes[&u16::from_le_bytes([id[0], id[1]])];
                        counts[usize::from(opcode)] += 1;
                        status(opcode, counts[usize::from(opcode)]).map(|status| (status << 1).to_le_bytes())
                    };
                    if pdu[0] == RESPONSE
                        && let Some(status) = status_of(&pdu[20..22])
                    {
                        if status == (NEVER << 1).to_le_bytes() {
                            continue;
                        }
                        pdu[22..24].copy_from_slice(&status);
                    }
                    if pdu[0] == DATA
                        && pdu[1] & SUCCESS != 0
                        && let Some(status) = status_of(&pdu[8..10])
                    {
                        pdu[1] &= !SUCCESS;
                        let mut response = vec![0; 24];
                        (response[0], response[2], response[4]) = (RESPONSE, 24, 24);
                        response[20..22].copy_from_slice(&pdu[8..10]);
                        response[22..].copy_from_slice(&status);
                        pdu.extend(response);
                    }
                    if host.write_all(&pdu).is_err() {
                        return;
                    }
                }
            });
        }
    });
    here
}

#[test]
fn what_a_failed_zone_did_not_take_is_kept_until_it_is_trimmed_and_is_never_durable() {
    const ZONE_READ_ONLY: u16 = 0x1ba;
    let (write, zone_send) = (0x01, 0x79);
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    // The third write is refused, and the zone, which has not failed, is not taken offline.
    let through = ending_otherwise(served.address, move |opcode, count| match opcode {
        opcode if opcode == write && count == 3 => Some(ZONE_READ_ONLY),
        opcode if opcode == zone_send => Some(0),
        _ => None,
    });
    let mut there = Host::new(RemoteSegments::connect(&format!("nvme-tcp://{through}").parse().unwrap()).unwrap());
    let capacity = openftl_parts::target::BlockTarget::segment_blocks(&there.drive).unwrap();
    for value in 1..=3 {
        there.write(value - 1, &[value], Durability::Volatile).unwrap();
    }
    let failed = AppendError::SegmentReadOnly { boundary: capacity };
    assert_eq!(there.write(3, &[4], Durability::Volatile), Err(failed.into()));
    assert_eq!(there.run(Request::Flush), Err(failed.into()));
    assert_eq!(there.read(0, 4).unwrap(), [1, 2, 3, 0], "what was refused is still here");
    there.write(capacity, &[5], Durability::Volatile).unwrap();
    let trim = Request::Trim { first: 0, blocks: capacity, durability: Durability::Volatile };
    there.run(trim).unwrap();
    there.run(Request::Flush).unwrap();
    assert_eq!(there.read(0, 1), Err(IoError::Unrecovered { block: 0 }), "the segment is given up");
    assert_eq!(there.read(capacity, 1).unwrap(), [5]);
    assert!(!there.drive.is_read_only());
    drop(there);
    served.end();
}

#[test]
fn a_flush_that_a_failed_zone_has_refused_asks_which_one_it_is() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let (write, flush, report) = (0x01, 0x00, 0x7a);
    let reports = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let asked = reports.clone();
    let through = ending_otherwise(served.address, move |opcode, count| {
        asked.fetch_add(usize::from(opcode == report), std::sync::atomic::Ordering::SeqCst);
        (opcode == write && count == 2 || opcode == flush).then_some(0x1ba)
    });
    let mut there = Host::new(RemoteSegments::connect(&format!("nvme-tcp://{through}").parse().unwrap()).unwrap());
    let before = reports.load(std::sync::atomic::Ordering::SeqCst);
    let capacity = openftl_parts::target::BlockTarget::segment_blocks(&there.drive).unwrap();
    there.write(0, &[1], Durability::Volatile).unwrap();
    there.write(capacity, &[2], Durability::Volatile).unwrap();
    let failed = AppendError::SegmentReadOnly { boundary: 2 * capacity };
    assert_eq!(there.run(Request::Flush), Err(failed.into()));
    assert!(reports.load(std::sync::atomic::Ordering::SeqCst) > before, "the states of zones were asked for");
    assert!(!there.drive.is_read_only());
    drop(there);
    served.end();
}

#[test]
fn a_zone_that_cannot_be_reset_is_given_up_and_what_was_written_behind_that_is_kept() {
    let (write, zone_send) = (0x01, 0x79);
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    // The reset does not go, taking the zone offline does, and then it takes no writes.
    let through = ending_otherwise(served.address, move |opcode, count| match (opcode, count) {
        (opcode, 1) if opcode == zone_send => Some(0x1bf),
        (opcode, 2) if opcode == zone_send => Some(0),
        (opcode, 3) if opcode == write => Some(0x1bb),
        _ => None,
    });
    let mut there = Host::new(RemoteSegments::connect(&format!("nvme-tcp://{through}").parse().unwrap()).unwrap());
    let capacity = openftl_parts::target::BlockTarget::segment_blocks(&there.drive).unwrap();
    there.write(0, &[1, 2], Durability::Volatile).unwrap();
    there.write(capacity, &[3], Durability::Volatile).unwrap();
    let trim = Request::Trim { first: 0, blocks: capacity, durability: Durability::Volatile };
    let trim = there.submit(trim).unwrap();
    let write = there.submit_write(0, &[4, 5], Durability::Volatile).unwrap();
    let flush = there.submit(Request::Flush).unwrap();
    let failed = AppendError::SegmentReadOnly { boundary: capacity };
    assert_eq!(there.ends_of(&[trim, write, flush]), [Ok(()), Ok(()), Err(failed.into())]);
    assert!(!there.drive.is_read_only());
    assert!(!openftl_parts::target::SegmentTarget::segment(&there.drive, 0).is_writable);
    assert_eq!(there.read(0, 2).unwrap(), [4, 5], "it is here until it is trimmed");
    there.run(Request::Trim { first: 0, blocks: capacity, durability: Durability::Volatile }).unwrap_err();
    assert!(there.drive.is_read_only(), "the zone has not failed, so it cannot be taken offline");
    drop(there);
    served.end();
}

#[test]
fn only_a_read_that_says_so_has_found_that_the_medium_lost_its_blocks() {
    let read = 0x02;
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    // Unrecovered Read Error, then Namespace Not Ready.
    let through = ending_otherwise(served.address, move |opcode, count| match count {
        1 if opcode == read => Some(0x281),
        2 if opcode == read => Some(0x082),
        _ => None,
    });
    let mut there = Host::new(RemoteSegments::connect(&format!("nvme-tcp://{through}").parse().unwrap()).unwrap());
    there.write(0, &[1], Durability::Durable).unwrap();
    assert_eq!(there.read(0, 1), Err(IoError::Unrecovered { block: 0 }));
    assert!(!there.drive.is_read_only());
    assert_eq!(there.read(0, 1), Err(IoError::Unrecovered { block: 0 }));
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("refuses a read") && trouble.contains("0082h"), "{trouble}");
    assert_eq!(there.write(1, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    assert_eq!(there.read(0, 1).unwrap(), [1]);
    drop(there);
    served.end();
}

#[test]
fn a_flush_that_no_failed_zone_explains_is_not_done() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let flush = 0x00;
    let through =
        ending_otherwise(served.address, move |opcode, count| (opcode == flush && count == 1).then_some(0x1ba));
    let mut there = Host::new(RemoteSegments::connect(&format!("nvme-tcp://{through}").parse().unwrap()).unwrap());
    there.write(0, &[1], Durability::Volatile).unwrap();
    assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly));
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("refuses a flush") && trouble.contains("has no such zone"), "{trouble}");
    assert_eq!(there.write(1, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    assert_eq!(there.read(0, 1).unwrap(), [1]);
    drop(there);
    served.end();
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let through = silent_after(served.address, 60_000);
    let uri = format!("nvme-tcp://{through}").parse().unwrap();
    let mut there = Host::new(RemoteSegments::connect_within(&uri, Claim::None, Duration::from_millis(300)).unwrap());
    there.write(0, &[7; 20], Durability::Volatile).unwrap();
    let ends = (0..200).map(|_| there.read(0, 1)).find(Result::is_err);
    assert_eq!(ends, Some(Err(IoError::Unrecovered { block: 0 })));
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("timed out"), "{trouble}");
    assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly));
    drop(there);
    served.end();
}

#[test]
fn a_server_that_answers_reads_and_never_a_flush_is_given_up() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let through = ending_otherwise(served.address, |opcode, _| (opcode == 0).then_some(NEVER));
    let uri = format!("nvme-tcp://{through}").parse().unwrap();
    let mut there = Host::new(RemoteSegments::connect_within(&uri, Claim::None, Duration::from_millis(300)).unwrap());
    there.write(0, &[7; 20], Durability::Volatile).unwrap();
    let flush = there.submit(Request::Flush).unwrap();
    let mut reads = 0;
    while there.read(0, 1).is_ok() {
        reads += 1;
    }
    assert!(reads > 0, "what it answers is heard");
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("timed out"), "{trouble} {flush}");
    assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly));
    drop(there);
    served.end();
}

#[test]
fn a_link_that_was_given_up_is_closed_at_once_and_an_answer_that_comes_late_is_not_heard() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let is_late = std::sync::Arc::new(AtomicBool::new(false));
    let (through, ends) = late(served.address, Duration::from_millis(900), is_late.clone());
    let uri = format!("nvme-tcp://{through}").parse().unwrap();
    let mut there = Host::new(RemoteSegments::connect_within(&uri, Claim::None, Duration::from_millis(300)).unwrap());
    there.write(0, &[7; 20], Durability::Volatile).unwrap();
    is_late.store(true, SeqCst);
    assert_eq!(there.read(0, 1), Err(IoError::Unrecovered { block: 0 }));
    // Reset, not ended: the kernel does not go on sending what it has.
    let reset = std::iter::from_fn(|| ends.recv_timeout(Duration::from_millis(500)).ok())
        .any(|end| end == Some(std::io::ErrorKind::ConnectionReset));
    assert!(reset, "the link is still there");
    std::thread::sleep(Duration::from_millis(700));
    there.drive.poll(openftl_core::Time(u64::MAX / 2), &mut Vec::new());
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("timed out"), "{trouble}");
    assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly));
    drop(there);
    served.end();
}
