//! The lives of NVMe hosts over real sockets: decent, rude, slow or gone, on a drive that is late and out of order.
//!
//! Nothing here sleeps or looks at a clock: a host waits for the server's answer, and time-outs are tested with a clock
//! that the test sets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::{Memory, Temper};
use crate::nvme::{DISCOVERY, HOST, Host, Queue, SUBSYSTEM, Served, TestClock, Wishes, entry, status, write};
use crate::nvme_commands::{BLOCKS, SHUFFLED, capsule, pattern};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_nvme::{HostsAllowed, Nqn};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{PropertyName, property_set};
use openftl_nvme_tcp::{ClientError, Initiator, InitiatorConfig};
use openftl_server::{ServerConfig, WallClock};

/// CC of a controller that is ready, and what to add for a shutdown.
const CC_READY: u64 = 4 << 20 | 6 << 16 | 1;

const CC_SHUTDOWN: u64 = 1 << 14;

/// Waits until the server has closed the connection; what it said before.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    said
}

#[test]
fn queues_are_made_within_their_limits() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    assert_eq!(host.admin.set_number_of_queues(1000).unwrap(), 64);
    let refused = |host: &Host, id, entries| match host.try_queue(id, InitiatorConfig { entries, ..Default::default() })
    {
        Err(ClientError::Refused { status, .. }) => status & 0x7ff,
        Err(error) => panic!("{error}"),
        Ok(_) => 0,
    };
    let first = host.queue(1);
    assert_eq!(refused(&host, 1, 32), status::SEQUENCE_ERROR, "it is there");
    assert_eq!(refused(&host, 65, 32), status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(refused(&host, 2, 1025), status::CONNECT_INVALID_PARAMETERS);
    assert_eq!(refused(&host, 64, 1024), 0);
    drop(first);
    // A queue that is gone can be made again, as soon as the server has seen that it is gone.
    while served.counters.connections.get() > 1 {
        std::thread::yield_now();
    }
    let mut again = host.queue(1);
    assert_eq!(again.flush(), 0);
    // A controller that is not there, and a queue before its controller is ready.
    host.controller += 1;
    assert_eq!(refused(&host, 2, 32), status::CONNECT_INVALID_PARAMETERS);
    let (admin, controller) = served.admin_of(HOST, SUBSYSTEM, 0).unwrap();
    host.controller = controller;
    assert_eq!(refused(&host, 1, 32), status::SEQUENCE_ERROR);
    drop((admin, again));
    served.end();
}

#[test]
fn a_host_with_more_commands_under_way_than_its_queue_holds_is_ended() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    served.switches.held.store(true, Ordering::SeqCst);
    let host = served.host();
    let mut queue = host.queue_as(1, InitiatorConfig { entries: 4, ..InitiatorConfig::default() });
    // Flushes as a host says them that thinks its queue larger; they stay under way.
    let mut out = Vec::new();
    for id in 0..5 {
        out.extend_from_slice(&capsule(id, 0x00));
    }
    queue.raw.write_all(&out).unwrap();
    let said = until_closed(&mut queue.raw);
    assert_eq!((said[0], said.len() > 24), (0x03, true), "C2HTermReq");
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(host.queue(1).flush(), 0);
    served.end();
}

#[test]
fn a_command_id_that_is_under_way_is_refused_and_its_owner_goes_on() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    served.switches.held.store(true, Ordering::SeqCst);
    let host = served.host();
    let mut queue = host.queue(1);
    queue.raw.write_all(&[capsule(9, 0x00), capsule(9, 0x00)].concat()).unwrap();
    let mut response = [0; 24];
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!(u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff, status::ID_CONFLICT);
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!(response[22..], [0; 2]);
    served.end();
}

/// SPDK's hosts name the property commands of their shutdown like event requests that are still held.
#[test]
fn a_host_shuts_down_with_the_names_of_its_event_requests() {
    const NAME: u16 = 500;
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    let property = |kind: u8, offset: u8, value: u32| {
        let mut property = capsule(NAME, 0x7f);
        (property[12], property[52]) = (kind, offset);
        property[56..60].copy_from_slice(&value.to_le_bytes());
        property
    };
    let stream = host.admin.stream_mut();
    let response = |stream: &mut TcpStream| {
        let mut response = [0; 24];
        stream.read_exact(&mut response).unwrap();
        assert_eq!(response[20..22], NAME.to_le_bytes());
        let status = u16::from_le_bytes([response[22], response[23]]) >> 1 & 0x7ff;
        (status, u32::from_le_bytes(response[8..12].try_into().unwrap()))
    };
    let (get, set, csts, configuration) = (0x04, 0x00, 0x1c, 0x14);
    // The event request, and a command that is not of fabrics.
    stream.write_all(&[capsule(NAME, 0x0c), capsule(NAME, 0x18), property(get, csts, 0)].concat()).unwrap();
    assert_eq!(response(stream).0, status::ID_CONFLICT, "keep alive");
    assert_eq!(response(stream), (0, 1), "ready");
    let normal_shutdown = 1 << 14 | 6 << 16 | 4 << 20 | 1;
    stream.write_all(&property(set, configuration, normal_shutdown)).unwrap();
    assert_eq!(response(stream).0, 0);
    assert_eq!(response(stream).0, status::ABORT_REQUESTED, "the event request ends behind the command that ends it");
    for turn in 0.. {
        assert!(turn < 1_000_000, "the shutdown completes");
        stream.write_all(&property(get, csts, 0)).unwrap();
        if response(stream) == (0, 0b10 << 2 | 1) {
            break;
        }
    }
    served.end();
}

#[test]
fn discovery_tells_each_host_what_it_may_connect_to_and_others_are_refused() {
    let hosts = HostsAllowed::Listed(vec![Nqn::new(HOST).unwrap()]);
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), Wishes { hosts, ..Wishes::default() });
    let log = |host: &str| {
        let (mut admin, _) = served.admin_of(host, DISCOVERY, 0).unwrap();
        admin.start_controller(|| false).unwrap();
        let page = entry(0x02, 0, [(2048 / 4 - 1) << 16 | 0x70, 0, 0]);
        admin.call("Get Log Page", &page, Payload::ToHost(vec![0; 2048])).unwrap().data
    };
    let mine = log(HOST);
    assert_eq!(mine[8..16], 1_u64.to_le_bytes(), "one record");
    let record = &mine[1024..];
    assert!(record[256..].starts_with(SUBSYSTEM.as_bytes()), "its name");
    assert!(record[32..].starts_with(served.address.port().to_string().as_bytes()), "its port");
    assert!(record[512..].starts_with(b"127.0.0.1 "));
    let other = "nqn.2026-11.org.example:other";
    assert_eq!(log(other)[8..16], [0; 8], "nothing for others");
    match served.admin_of(other, SUBSYSTEM, 0) {
        Err(ClientError::Refused { status, .. }) => assert_eq!(status & 0x7ff, status::CONNECT_INVALID_HOST),
        _ => panic!("another host was let in"),
    }
    assert_eq!(served.host().queue(1).flush(), 0);
    served.end();
}

#[test]
fn a_host_that_falls_silent_loses_its_controller_and_its_queues() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 1024, Temper::Instant), Wishes::at(clock.clone()));
    let mut silent = served.host_that_keeps_alive(5_000);
    let mut queue = silent.queue(1);
    let mut talking = served.host();
    // Any command counts: the first interval is one with commands, the second one without.
    for _ in 0..2 {
        clock.0.fetch_add(Nanos::from_millis(5_000).0, Ordering::SeqCst);
        served.stop.wake();
        talking.admin.keep_alive().unwrap();
    }
    assert_eq!(until_closed(&mut queue.raw), b"");
    assert!(silent.admin.keep_alive().is_err());
    talking.admin.keep_alive().unwrap();
    served.end();
}

#[test]
fn a_reset_closes_the_queues_and_what_was_under_way_ends_without_them() {
    let served = Served::new(Memory::new(BLOCKS, 64, SHUFFLED));
    let mut host = served.host();
    let mut queue = host.queue(1);
    served.switches.held.store(true, Ordering::SeqCst);
    // Running, waiting for data, and waiting for frames.
    for tag in 0..20 {
        queue.client.submit(tag, &entry(0x02, 1, [tag as u32, 0, 3]), Payload::ToHost(vec![0; 4 * BLOCK_BYTES]));
    }
    let data = vec![1; 5 * BLOCK_BYTES];
    queue.client.submit(20, &write(0, &data), Payload::ToController(data));
    let set = |host: &mut Host, value| {
        let entry = property_set(PropertyName::Cc, value);
        host.admin.call("Property Set", &entry, Payload::None).unwrap();
    };
    let mut closed = std::thread::spawn(move || queue.client.wait().is_err());
    // Its first completion can only be that of the reset, for the drive is held.
    set(&mut host, CC_READY & !1);
    assert!(std::mem::replace(&mut closed, std::thread::spawn(|| false)).join().unwrap());
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    set(&mut host, CC_READY);
    host.admin.set_number_of_queues(64).unwrap();
    let mut queue = host.queue(1);
    assert_eq!(queue.write(100, &[3; 4 * BLOCK_BYTES]), 0);
    served.end();
}

#[test]
fn event_requests_are_held_within_their_limit_until_they_are_aborted() {
    let served = Served::new(Memory::new(BLOCKS, 64, SHUFFLED));
    let mut host = served.host();
    // Four may be held, and a fifth is refused.
    for tag in 0..5 {
        host.admin.submit(tag, &entry(0x0c, 0, [0; 3]), Payload::None);
    }
    let refused = host.admin.wait().unwrap();
    assert_eq!((refused.tag, refused.status() & 0x7ff), (4, status::EVENT_LIMIT_EXCEEDED));
    let id = 0; // The first identifier that the client gives out is not known; all are tried.
    let mut aborted = 0;
    for command in id..32_u32 {
        host.admin.submit(100, &entry(0x08, 0, [command << 16, 0, 0]), Payload::None);
        loop {
            let ended = host.admin.wait().unwrap();
            if ended.tag == 100 {
                break;
            }
            assert_eq!(ended.status() & 0x7ff, 0x007, "Command Abort Requested");
            aborted += 1;
        }
    }
    while host.admin.commands_under_way() > 0 {
        host.admin.wait().unwrap();
        aborted += 1;
    }
    assert_eq!(aborted, 4);
    served.end();
}

/// What a host sends for a write: its capsule, the data of its capsule, or those of the R2T that it is answered with.
fn say_write(queue: &mut Queue, first: u32, data: &[u8], bytes: usize) {
    let mut capsule = [0; 72];
    let in_capsule = data.len() <= 8192;
    let length = 72 + if in_capsule { data.len() as u32 } else { 0 };
    (capsule[0], capsule[2], capsule[3]) = (0x04, 72, if in_capsule { 72 } else { 0 });
    capsule[4..8].copy_from_slice(&length.to_le_bytes());
    capsule[8..].copy_from_slice(&write(first, data));
    (capsule[9], capsule[10]) = (0x40, 77);
    capsule[40..44].copy_from_slice(&(data.len() as u32).to_le_bytes());
    capsule[47] = if in_capsule { 0x01 } else { 0x5a };
    if in_capsule {
        let said = [&capsule, data].concat();
        queue.raw.write_all(&said[..bytes.min(said.len())]).unwrap();
        return;
    }
    queue.raw.write_all(&capsule[..bytes.min(72)]).unwrap();
    if bytes < 72 {
        return;
    }
    let mut r2t = [0; 24];
    queue.raw.read_exact(&mut r2t).unwrap();
    assert_eq!(r2t[0], 0x09, "R2T");
    let mut header = [0; 24];
    (header[0], header[1], header[2], header[3]) = (0x06, 0x04, 24, 24);
    header[4..8].copy_from_slice(&(24 + data.len() as u32).to_le_bytes());
    header[8..12].copy_from_slice(&r2t[8..12]);
    header[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
    let said = [&header, data].concat();
    queue.raw.write_all(&said[..(bytes - 72).min(said.len())]).unwrap();
}

#[test]
fn a_write_cut_off_at_any_byte_never_happened_and_gives_its_frames_back() {
    // The clock stands still, so nobody is expelled for being late: that the host is gone is seen from its socket.
    let served = Served::with(Memory::new(BLOCKS, 64, Temper::Instant), Wishes::at(TestClock::default()));
    let host = served.host();
    let mut other = host.queue(1);
    let (small, large) = (2 * BLOCK_BYTES, 30 * BLOCK_BYTES);
    let cuts =
        |whole: usize| [1, 8, 40, 71, 72, 73, 90, 96, 97, 5000, whole - 1].into_iter().filter(move |cut| *cut < whole);
    let cuts = cuts(72 + small).map(|cut| (small, cut)).chain(cuts(72 + 24 + large).map(|cut| (large, cut)));
    for (round, (bytes, cut)) in cuts.enumerate() {
        for how in [None, Some(Shutdown::Write)] {
            let mut rude = host.queue(2);
            say_write(&mut rude, 100, &vec![9; bytes], cut);
            match how {
                Some(how) => {
                    rude.raw.shutdown(how).unwrap();
                    until_closed(&mut rude.raw);
                }
                None => drop(rude),
            }
            while served.counters.connections.get() > 2 {
                std::thread::yield_now();
            }
            // Almost the whole pool, which the server must have back for it.
            let data = pattern(round as u64, 62 * BLOCK_BYTES);
            assert_eq!(other.write(0, &data), 0, "{bytes} bytes, cut at {cut}");
        }
    }
    assert_eq!(other.read(100, 30), vec![0; large]);
    served.end();
}

#[test]
fn a_long_write_whose_data_come_apart_from_their_header_is_not_the_last() {
    const LENGTH: usize = 16 * BLOCK_BYTES;
    let served = Served::new(Memory::new(BLOCKS, 64, Temper::Instant));
    let host = served.host();
    let (mut queue, mut other) = (host.queue(1), host.queue(2));
    for round in 0..3 {
        let data = pattern(round, LENGTH);
        say_write(&mut queue, 100, &data, 72 + 24);
        // Answered after the server has looked at the header, so all the data go straight to their frames.
        assert_eq!(other.flush(), 0);
        queue.raw.write_all(&data).unwrap();
        assert_eq!(response(&mut queue), (77, 0));
        assert!(other.read(100, 16) == data);
    }
    drop((queue, other, host));
    served.end();
}

#[test]
fn a_host_that_takes_no_answers_holds_no_more_than_its_share() {
    // A pool of which everybody's share is an eighth, and a clock that stands still: nobody is expelled.
    let served = Served::with(Memory::new(BLOCKS, 128, Temper::Instant), Wishes::at(TestClock::default()));
    let host = served.host();
    let mut flood = host.queue_as(1, InitiatorConfig { entries: 1024, ..InitiatorConfig::default() });
    let mut said = Vec::new();
    for id in 0..1000 {
        let mut capsule = capsule(id, 0x02);
        capsule[8 + 48..8 + 52].copy_from_slice(&15_u32.to_le_bytes());
        capsule[8 + 32..8 + 36].copy_from_slice(&(16 * BLOCK_BYTES as u32).to_le_bytes());
        capsule[8 + 39] = 0x5a;
        said.extend_from_slice(&capsule);
    }
    flood.raw.write_all(&said).unwrap();
    let mut other = host.queue(2);
    for round in 0..50 {
        let data = pattern(round, 100 * BLOCK_BYTES);
        assert_eq!(other.write(0, &data), 0);
        assert!(other.read(0, 100) == data);
    }
    drop(flood);
    served.end();
}

#[test]
fn a_host_that_never_takes_an_answer_is_not_listened_to_for_ever() {
    let served = Served::new(Memory::new(BLOCKS, 128, Temper::Instant));
    let host = served.host();
    let mut other = host.queue(2);
    let flood = host.queue_as(1, InitiatorConfig { entries: 1024, ..InitiatorConfig::default() });
    // Commands that are answered with a status each. Some have to stay unsent, or the server keeps all their answers.
    flood.raw.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let unsupported = capsule(1, 0x03);
    loop {
        // The socket may take a part of one.
        let rest = &unsupported[sent % unsupported.len()..];
        match (&flood.raw).write(rest) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // As full as it gets: after a round trip of another the server has had its turn, and it is still full.
                assert_eq!(other.flush(), 0);
                match (&flood.raw).write(rest) {
                    Ok(bytes) => sent += bytes,
                    Err(_) => break,
                }
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 64 << 20, "{sent} bytes of commands were taken, and no answer was");
    }
    drop(flood);
    assert_eq!(other.flush(), 0);
    served.end();
}

#[test]
fn garbage_ends_its_own_connection_and_no_other() {
    let served = Served::new(Memory::new(BLOCKS, 128, SHUFFLED));
    let host = served.host();
    let mut decent = host.queue(1);
    let mut early = served.connect();
    early.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    until_closed(&mut early);
    let mut late = host.queue(2);
    late.raw.write_all(&[0xff; 100]).unwrap();
    assert_eq!(until_closed(&mut late.raw)[0], 0x03, "C2HTermReq");
    // A command before Connect.
    let mut bytes = Vec::new();
    let _ = Initiator::new(InitiatorConfig::default(), &mut bytes);
    let mut impatient = served.connect();
    impatient.write_all(&[&bytes[..], &capsule(1, 0x02)].concat()).unwrap();
    assert_eq!(until_closed(&mut impatient).len(), 128 + 24, "ICResp and a refusal");
    assert_eq!(decent.write(0, &[1; BLOCK_BYTES]), 0);
    assert_eq!(decent.read(0, 1), [1; BLOCK_BYTES]);
    served.end();
}

#[test]
fn half_open_handshakes_end_in_time_however_busy_they_look() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 128, Temper::Instant), Wishes::at(clock.clone()));
    let mut greeting = Vec::new();
    let _ = Initiator::new(InitiatorConfig::default(), &mut greeting);
    let host = served.host();
    let (mut silent, mut slow, mut without_connect) = (served.connect(), served.connect(), served.connect());
    without_connect.write_all(&greeting).unwrap();
    assert_eq!(host.queue(2).flush(), 0, "a later connection is served, so these are accepted");
    let mut other = host.queue(1);
    // A byte in each second, as long as a handshake may take.
    for byte in &greeting[..10] {
        slow.write_all(&[*byte]).unwrap();
        clock.0.fetch_add(Nanos::from_millis(1_000).0, Ordering::SeqCst);
        served.stop.wake();
        assert_eq!(other.flush(), 0);
    }
    for stream in [&mut silent, &mut slow] {
        assert_eq!(until_closed(stream), b"");
    }
    assert_eq!(until_closed(&mut without_connect).len(), 128, "ICResp");
    served.end();
}

#[test]
fn one_connection_too_many_is_turned_away() {
    let config = ServerConfig { connections_max: 2, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 128, SHUFFLED), Wishes { config, ..Wishes::default() });
    let host = served.host();
    let mut queue = host.queue(1);
    assert_eq!(until_closed(&mut served.connect()), b"");
    assert_eq!(queue.flush(), 0);
    served.end();
}

/// A write in its capsule with a data digest, which is wrong.
fn say_damaged_write(queue: &mut Queue, id: u8) {
    let mut capsule = [0; 72];
    (capsule[0], capsule[1], capsule[2], capsule[3]) = (0x04, 0x02, 72, 72);
    capsule[4..8].copy_from_slice(&(72 + 4096 + 4_u32).to_le_bytes());
    capsule[8..].copy_from_slice(&entry(0x01, 1, [50, 0, 0]));
    (capsule[9], capsule[10]) = (0x40, id);
    capsule[40..44].copy_from_slice(&4096_u32.to_le_bytes());
    capsule[47] = 0x01;
    queue.raw.write_all(&[&capsule[..], &[9; 4096], &[0; 4]].concat()).unwrap();
}

fn response(queue: &mut Queue) -> (u16, u16) {
    let mut response = [0; 24];
    queue.raw.read_exact(&mut response).unwrap();
    assert_eq!(response[0], 0x05, "CapsuleResp");
    let word = |at| u16::from_le_bytes([response[at], response[at + 1]]);
    (word(20), word(22) >> 1 & 0x7ff)
}

#[test]
fn damaged_data_are_a_transient_error_of_their_command() {
    let served = Served::new(Memory::new(BLOCKS, 128, SHUFFLED));
    let host = served.host();
    let mut queue = host.queue_as(1, InitiatorConfig { data_digest: true, ..InitiatorConfig::default() });
    say_damaged_write(&mut queue, 5);
    assert_eq!(response(&mut queue), (5, status::TRANSIENT_TRANSPORT_ERROR));
    assert_eq!(queue.write(51, &[1; BLOCK_BYTES]), 0);
    assert_eq!(queue.read(50, 1), [0; BLOCK_BYTES]);
    served.end();
}

#[test]
fn a_damaged_write_that_waits_for_frames_leaves_the_line() {
    let served = Served::new(Memory::new(BLOCKS, 16, SHUFFLED));
    let host = served.host();
    let config = InitiatorConfig { data_digest: true, ..InitiatorConfig::default() };
    let (mut queue, mut other) = (host.queue_as(1, config), host.queue(2));
    served.switches.held.store(true, Ordering::SeqCst);
    // All frames are taken by a read that the drive holds.
    other.client.submit(1, &entry(0x02, 1, [0, 0, 15]), Payload::ToHost(vec![0; 16 * BLOCK_BYTES]));
    let mut third = host.queue(3);
    let held = std::thread::spawn(move || other.client.wait().map(|ended| (ended.status(), other)).unwrap());
    while served.switches.submitted.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    say_damaged_write(&mut queue, 5);
    assert_eq!(response(&mut queue), (5, status::TRANSIENT_TRANSPORT_ERROR));
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    let (status, mut other) = held.join().unwrap();
    assert_eq!(status, 0);
    assert_eq!(third.write(0, &[1; BLOCK_BYTES]), 0);
    assert_eq!(other.read(0, 1), [1; BLOCK_BYTES]);
    served.end();
}

#[test]
fn a_shutdown_is_complete_when_the_drive_is_flushed() {
    let served = Served::new(Memory::new(BLOCKS, 1024, SHUFFLED));
    let mut host = served.host();
    let mut queue = host.queue(1);
    assert_eq!(queue.write(0, &[1; 8 * BLOCK_BYTES]), 0);
    assert_eq!(served.switches.volatile.load(Ordering::SeqCst), 8);
    served.switches.held.store(true, Ordering::SeqCst);
    let shutdown = property_set(PropertyName::Cc, CC_READY | CC_SHUTDOWN);
    host.admin.call("Property Set", &shutdown, Payload::None).unwrap();
    for _ in 0..5 {
        assert_eq!(host.admin.property(PropertyName::Csts).unwrap() >> 2 & 0b11, 0b01, "under way");
    }
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    while host.admin.property(PropertyName::Csts).unwrap() >> 2 & 0b11 != 0b10 {}
    assert_eq!(served.switches.volatile.load(Ordering::SeqCst), 0);
    served.end();
}

#[test]
fn a_stop_finishes_what_is_under_way_flushes_and_waits_for_no_one() {
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), Wishes::at(WallClock::new()));
    let host = served.host();
    let (mut queue, mut halfway, mut third) = (host.queue(1), host.queue(2), host.queue(3));
    served.switches.held.store(true, Ordering::SeqCst);
    let data = vec![3; 2 * BLOCK_BYTES];
    queue.raw.write_all(&[]).unwrap();
    say_write(&mut queue, 0, &data, usize::MAX);
    // A write of which half has come, and one that nobody has heard the data of.
    say_write(&mut halfway, 100, &vec![9; 20 * BLOCK_BYTES], 30_000);
    assert_eq!(third.status(&entry(0x03, 1, [0; 3])), status::INVALID_OPCODE, "so both have been heard");
    served.stop.request();
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(response(&mut queue), (77, 0));
    assert_eq!(until_closed(&mut queue.raw), b"");
    until_closed(&mut halfway.raw);
    let switches = Arc::clone(&served.switches);
    let drive = served.end();
    assert_eq!(drive.data()[..data.len()], data);
    assert!(drive.data()[100 * BLOCK_BYTES..].iter().all(|byte| *byte == 0));
    assert_eq!((switches.volatile.load(Ordering::SeqCst), switches.flushes.load(Ordering::SeqCst)), (0, 1));
}

#[test]
fn data_that_come_slowly_go_on_in_memory_while_others_use_their_frames() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(256, 512, Temper::Instant), Wishes::at(clock.clone()));
    let (slow_host, other_host) = (served.host(), served.host());
    let (mut slow, mut other) = (slow_host.queue(1), other_host.queue(1));
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    // A write of 256 blocks, whose data come on request: half of the pool.
    let mut capsule = vec![4, 0, 72, 0, 72, 0, 0, 0];
    capsule.extend_from_slice(&write(0, &data));
    capsule[8 + 1] = 0x40;
    capsule[8 + 32..8 + 36].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    capsule[8 + 39] = 0x5a;
    slow.raw.write_all(&capsule).unwrap();
    let mut r2t = [0; 24];
    slow.raw.read_exact(&mut r2t).unwrap();
    assert_eq!(r2t[0], 9, "R2T");
    let mut head = vec![6, 4, 24, 24];
    head.extend_from_slice(&(24 + (1_u32 << 20)).to_le_bytes());
    head.extend_from_slice(&r2t[8..12]);
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    slow.raw.write_all(&[&head, &data[..300_001]].concat()).unwrap();
    other.client.submit(5, &write(0, &vec![7; data.len()]), Payload::ToController(vec![7; data.len()]));
    let mut third = other_host.queue(2);
    assert_eq!(third.read(0, 1), [0; BLOCK_BYTES], "a small request waits for neither");
    clock.0.fetch_add(60_000_000, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(other.client.wait().unwrap().status(), 0);
    let moved = served.counters.bytes_moved_aside.get();
    assert!(0 < moved && moved <= 300_001, "{moved} bytes were moved");
    slow.raw.write_all(&data[300_001..]).unwrap();
    let mut completion = [0; 24];
    slow.raw.read_exact(&mut completion).unwrap();
    assert_eq!((completion[0], &completion[22..24]), (5, &[0, 0][..]), "a capsule with success");
    assert!(third.read(0, 256) == data);
    assert!(served.counters.bytes_kept.get() < 100, "the header of a reply at most");
    drop((slow, other, third, slow_host, other_host));
    served.end();
}
