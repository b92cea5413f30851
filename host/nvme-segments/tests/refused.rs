//! Namespaces that are no drives of segments, servers that are not there, and such that fall silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use openftl_nvme_segments::{ConnectError, RemoteSegments};
use openftl_parts::target::{AppendError, Durability, IoError, Request, Target};
use openftl_zones::{Face, Limits};

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

#[test]
fn when_another_host_writes_to_the_zones_nothing_more_is_written() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let (mut there, mut other) = (Host::new(served.connect()), Host::new(served.connect()));
    other.write(0, &[1], Durability::Volatile).unwrap();
    assert_eq!(there.write(0, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("Zone Invalid Write"), "{trouble}");
    assert_eq!(there.write(0, &[2], Durability::Volatile), Err(IoError::ReadOnly));
    assert_eq!(there.read(0, 1).unwrap(), [1]);
    drop((there, other));
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

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let through = silent_after(served.address, 60_000);
    let uri = format!("nvme-tcp://{through}").parse().unwrap();
    let mut there = Host::new(RemoteSegments::connect_within(&uri, Duration::from_millis(300)).unwrap());
    there.write(0, &[7; 20], Durability::Volatile).unwrap();
    let ends = (0..200).map(|_| there.read(0, 1)).find(Result::is_err);
    assert_eq!(ends, Some(Err(IoError::Unrecovered { block: 0 })));
    let trouble = there.drive.trouble().unwrap().to_owned();
    assert!(trouble.contains("timed out"), "{trouble}");
    assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly));
    drop(there);
    served.end();
}
