//! NVMe hosts over TLS: with the right key, a wrong one, none, under another name, in pieces, and many of them.
#![cfg(feature = "tls")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;

use crate::memory::{Memory, Temper};
use crate::nvme::{DISCOVERY, HOST, SUBSYSTEM, Served, TestClock, Wishes, entry, identity, status, write};
use openftl_core::BLOCK_BYTES;
use openftl_nvme_auth::{HashFunction, TlsKey, TlsKeys, TlsPsk};
use openftl_nvme_tcp::client::Payload;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, QueueParameters};
use openftl_nvme_tcp::{Client, ClientError, InitiatorConfig};
use openftl_nvme_tls::{ConnectError, TlsStream};
use openftl_server::{ServerConfig, TlsPolicy};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const OTHER: &str = "nqn.2026-11.org.example:other";
const BLOCKS: usize = 1024;

fn key(number: u8) -> TlsKey {
    let hash = if number.is_multiple_of(2) { HashFunction::Sha256 } else { HashFunction::Sha384 };
    TlsKey::from_bytes(Some(hash), &vec![number; hash.length()]).unwrap()
}

/// `HOST` has the first key, `OTHER` the second.
fn keys() -> TlsKeys {
    let text = format!("{HOST} {}\n{OTHER} {}\n", key(0).to_text().as_str(), key(1).to_text().as_str());
    TlsKeys::read(text.as_bytes()).unwrap()
}

fn served(policy: TlsPolicy) -> Served {
    Served::with(Memory::new(BLOCKS, 256, Temper::Instant), Wishes { tls: Some((keys(), policy)), ..Wishes::default() })
}

fn at(clock: &TestClock, config: ServerConfig) -> Served {
    let tls = Some((keys(), TlsPolicy::Required));
    Served::with(Memory::new(BLOCKS, 256, Temper::Instant), Wishes { config, tls, ..Wishes::at(clock.clone()) })
}

type Secure = TlsStream<TcpStream>;

fn secure(served: &Served, psks: impl IntoIterator<Item = TlsPsk>) -> Result<Secure, ConnectError> {
    TlsStream::connect(served.connect(), psks)
}

fn queue<S: Read + Write>(
    stream: S,
    config: InitiatorConfig,
    queue_id: u16,
    [host, subsystem]: [&str; 2],
    controller: u16,
) -> Result<(Client<S>, u16), ClientError> {
    let mut client = Client::open(stream, config)?;
    let queue = QueueParameters { queue_id, entries: config.entries, flow_control: true, keep_alive_ms: 0 };
    let connected = client.connect(queue, &identity(host, subsystem), controller)?;
    Ok((client, connected.controller_id))
}

fn admin<S: Read + Write>(stream: S, host: &str, subsystem: &str) -> Result<(Client<S>, u16), ClientError> {
    queue(stream, InitiatorConfig::default(), 0, [host, subsystem], CONTROLLER_ID_ANY)
}

/// Status of a refused command; zero if it was not.
fn refused(result: Result<impl Sized, ClientError>) -> u16 {
    match result {
        Err(ClientError::Refused { status, .. }) => status & 0x7ff,
        Err(error) => panic!("{error}"),
        Ok(_) => 0,
    }
}

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

fn read(first: u32, bytes: usize) -> ([u8; 64], Payload) {
    (entry(0x02, 1, [first, 0, (bytes / BLOCK_BYTES) as u32 - 1]), Payload::ToHost(vec![0; bytes]))
}

fn wait_for(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn a_host_with_its_key_discovers_writes_and_reads_with_digests_or_without() {
    let served = served(TlsPolicy::Required);
    for (host, key) in [(HOST, key(0)), (OTHER, key(1))] {
        let stream = secure(&served, key.psks(host, DISCOVERY)).unwrap();
        assert_eq!(stream.identity().host_nqn, host);
        let (mut discovery, _) = admin(stream, host, DISCOVERY).unwrap();
        discovery.start_controller(|| false).unwrap();
        let part = openftl_nvme_tcp::nvm::LogPart { page: 0x70, namespace: 0, offset: 1024 };
        let record = discovery.log_page(part, vec![0; 1024]).unwrap();
        assert_eq!((record[3] & 0b11, record[768]), (0b01, 2), "TREQ: required; SECTYPE: TLS 1.3");

        let (mut admin, controller) =
            admin(secure(&served, key.psks(host, SUBSYSTEM)).unwrap(), host, SUBSYSTEM).unwrap();
        admin.start_controller(|| false).unwrap();
        admin.set_number_of_queues(2).unwrap();
        for (id, digests) in [(1, false), (2, true)] {
            let config = InitiatorConfig { header_digest: digests, data_digest: digests, ..InitiatorConfig::default() };
            let stream = secure(&served, key.psks(host, SUBSYSTEM)).unwrap();
            let (mut io, _) = queue(stream, config, id, [host, SUBSYSTEM], controller).unwrap();
            for (round, blocks) in [1, 2, 17, 64, 256].into_iter().enumerate() {
                let data = random(blocks * BLOCK_BYTES, round as u64);
                io.call("Write", &write(3, &data), Payload::ToController(data.clone())).unwrap();
                let (entry, room) = read(3, data.len());
                assert!(io.call("Read", &entry, room).unwrap().data == data, "{blocks} blocks, digests: {digests}");
            }
            // Many at once.
            let data = random(16 * BLOCK_BYTES, 99);
            for (block, piece) in (0..).zip(data.chunks(BLOCK_BYTES)) {
                io.submit(block, &write(block as u32, piece), Payload::ToController(piece.to_vec()));
            }
            while io.commands_under_way() > 0 {
                assert_eq!(io.wait().unwrap().status(), 0);
            }
            let (entry, room) = read(0, data.len());
            assert!(io.call("Read", &entry, room).unwrap().data == data);
            // Long ones too.
            let data = random(192 * BLOCK_BYTES, 98);
            for (number, piece) in (0..).zip(data.chunks(48 * BLOCK_BYTES)) {
                io.submit(number, &write(number as u32 * 48, piece), Payload::ToController(piece.to_vec()));
            }
            while io.commands_under_way() > 0 {
                assert_eq!(io.wait().unwrap().status(), 0);
            }
            let (entry, room) = read(0, data.len());
            assert!(io.call("Read", &entry, room).unwrap().data == data);
        }
    }
    assert_eq!(served.counters.connections_expelled.get(), 0);
    served.end();
}

#[test]
fn a_wrong_key_an_unknown_name_and_no_tls_are_turned_away() {
    let served = served(TlsPolicy::Required);
    let stranger = "nqn.2026-11.org.example:stranger";
    // The same identity with another key, and names that nobody knows.
    for psks in [
        TlsKey::from_bytes(Some(HashFunction::Sha256), &[9; 32]).unwrap().psks(HOST, SUBSYSTEM).collect::<Vec<_>>(),
        key(0).psks(stranger, SUBSYSTEM).collect(),
        key(0).psks(HOST, "nqn.2026-11.org.example:elsewhere").collect(),
        Vec::new(),
    ] {
        assert!(secure(&served, psks).is_err());
    }
    wait_for(|| served.counters.connections.get() == 0);
    assert_eq!(served.counters.tls_handshakes_failed.get(), 4);
    let plain = Client::open(served.connect(), InitiatorConfig::default());
    assert!(plain.is_err(), "a host without TLS is let in");
    wait_for(|| served.counters.connections_without_tls.get() == 1);
    // Others are not disturbed.
    let (mut admin, _) = admin(secure(&served, key(0).psks(HOST, SUBSYSTEM)).unwrap(), HOST, SUBSYSTEM).unwrap();
    admin.start_controller(|| false).unwrap();
    served.end();
}

#[test]
fn a_host_connects_as_whom_it_has_shown_to_be_and_where() {
    let served = served(TlsPolicy::Required);
    for (host, subsystem) in [(OTHER, SUBSYSTEM), (HOST, DISCOVERY), (OTHER, DISCOVERY)] {
        let stream = secure(&served, key(0).psks(HOST, SUBSYSTEM)).unwrap();
        assert_eq!(refused(admin(stream, host, subsystem)), status::CONNECT_INVALID_HOST, "{host} at {subsystem}");
    }
    // Nor does an I/O queue join the controller of another host.
    let (mut mine, controller) =
        admin(secure(&served, key(0).psks(HOST, SUBSYSTEM)).unwrap(), HOST, SUBSYSTEM).unwrap();
    mine.start_controller(|| false).unwrap();
    mine.set_number_of_queues(1).unwrap();
    let stream = secure(&served, key(1).psks(OTHER, SUBSYSTEM)).unwrap();
    let joined = queue(stream, InitiatorConfig::default(), 1, [HOST, SUBSYSTEM], controller);
    assert_eq!(refused(joined), status::CONNECT_INVALID_HOST);
    served.end();
}

#[test]
fn where_tls_is_allowed_only_those_without_a_key_connect_without() {
    let served = served(TlsPolicy::Allowed);
    let stranger = "nqn.2026-11.org.example:stranger";
    let (mut plain, _) = served.admin_of(stranger, SUBSYSTEM, 0).unwrap();
    plain.start_controller(|| false).unwrap();
    let (mut discovery, _) = served.admin_of(stranger, DISCOVERY, 0).unwrap();
    discovery.start_controller(|| false).unwrap();
    let part = openftl_nvme_tcp::nvm::LogPart { page: 0x70, namespace: 0, offset: 1024 };
    let record = discovery.log_page(part, vec![0; 1024]).unwrap();
    assert_eq!((record[3] & 0b11, record[768]), (0b10, 2), "TREQ: not required; SECTYPE: TLS 1.3");
    // Whoever borrows the name of a host with a key has to have the key too.
    assert_eq!(refused(served.admin_of(HOST, SUBSYSTEM, 0)), status::CONNECT_INVALID_HOST);
    let (mut admin, _) = admin(secure(&served, key(0).psks(HOST, SUBSYSTEM)).unwrap(), HOST, SUBSYSTEM).unwrap();
    admin.start_controller(|| false).unwrap();
    served.end();
}

#[test]
fn a_server_without_tls_ends_a_connection_that_begins_with_it() {
    let served = Served::new(Memory::new(BLOCKS, 256, Temper::Instant));
    assert!(secure(&served, key(0).psks(HOST, SUBSYSTEM)).is_err());
    wait_for(|| served.counters.connections.get() == 0);
    served.host();
    served.end();
}

/// A stream that sends so many bytes and no more, the last one changed or not.
struct Spoilt {
    stream: TcpStream,
    left: usize,
    changes: bool,
}

impl Read for Spoilt {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.stream.read(room)
    }
}

impl Write for Spoilt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut bytes = bytes[..bytes.len().min(self.left)].to_vec();
        self.left -= bytes.len();
        if self.left == 0 && self.changes {
            bytes.last_mut().into_iter().for_each(|last| *last ^= 0x20);
        }
        self.stream.write_all(&bytes)?;
        if self.left == 0 {
            self.stream.shutdown(Shutdown::Write)?;
            return Err(ErrorKind::BrokenPipe.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All that a host does, until it has sent so many bytes. How many are left.
fn session(served: &Served, left: usize, changes: bool) -> Result<usize, Box<dyn std::error::Error>> {
    let stream = TlsStream::connect(Spoilt { stream: served.connect(), left, changes }, key(0).psks(HOST, SUBSYSTEM))?;
    let (mut admin, _) = admin(stream, HOST, SUBSYSTEM)?;
    admin.start_controller(|| false)?;
    admin.keep_alive()?;
    Ok(admin.stream().get_ref().left)
}

#[test]
fn a_host_that_breaks_off_at_any_byte_or_changes_it_leaves_nothing_behind() {
    let served = served(TlsPolicy::Required);
    let whole = usize::MAX - session(&served, usize::MAX, false).unwrap();
    assert!(whole > 1000);
    // Every byte of the first record's head, and then some of each.
    for left in (1..=whole).filter(|left| *left < 12 || left.is_multiple_of(13)) {
        for changes in [false, true] {
            assert!(session(&served, left, changes).is_err(), "byte {left} of {whole}, changed: {changes}");
        }
    }
    wait_for(|| served.counters.connections.get() == 0);
    session(&served, usize::MAX, false).unwrap();
    served.end();
}

#[test]
fn handshakes_that_do_not_go_on_end_and_of_too_many_the_oldest_do() {
    let clock = TestClock::default();
    let config = ServerConfig { handshakes_max: 3, ..ServerConfig::default() };
    let served = at(&clock, config);
    // It may say that it closes, or reset what was not read.
    let end_comes = |stream: &mut TcpStream| drop(stream.read_to_end(&mut Vec::new()));
    // Silent ones, and ones that begin a record.
    let mut open: Vec<TcpStream> = (0..5_u8)
        .map(|number| {
            clock.0.fetch_add(1, Ordering::SeqCst);
            let mut stream = served.connect();
            if number.is_multiple_of(2) {
                stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
            }
            wait_for(|| served.counters.connections_accepted.get() == u64::from(number) + 1);
            stream
        })
        .collect();
    open[..2].iter_mut().for_each(end_comes);
    assert_eq!(served.counters.connections.get(), 3);
    // One that has shaken hands and says nothing of NVMe is one of them too.
    let mut silent = secure(&served, key(0).psks(HOST, SUBSYSTEM)).unwrap();
    end_comes(&mut open[2]);
    clock.0.fetch_add(config.handshake_max.0, Ordering::SeqCst);
    served.stop.wake();
    open[3..].iter_mut().for_each(end_comes);
    assert_eq!(silent.read(&mut [0; 10]).unwrap_or(0), 0);
    assert_eq!(served.counters.connections_expelled.get(), 6);
    let (mut admin, _) = admin(secure(&served, key(0).psks(HOST, SUBSYSTEM)).unwrap(), HOST, SUBSYSTEM).unwrap();
    admin.start_controller(|| false).unwrap();
    served.end();
}

#[test]
fn hosts_that_come_and_go_find_what_they_wrote() {
    const HOSTS: u32 = 4;
    let served = served(TlsPolicy::Required);
    std::thread::scope(|scope| {
        for number in 0..HOSTS {
            let served = &served;
            scope.spawn(move || {
                for round in 0..25_u64 {
                    let connect = || secure(served, key(0).psks(HOST, SUBSYSTEM)).unwrap();
                    let (mut admin, controller) = admin(connect(), HOST, SUBSYSTEM).unwrap();
                    admin.start_controller(|| false).unwrap();
                    admin.set_number_of_queues(1).unwrap();
                    let (mut io, _) =
                        queue(connect(), InitiatorConfig::default(), 1, [HOST, SUBSYSTEM], controller).unwrap();
                    let first = number * 32;
                    let (entry, room) = read(first, 32 * BLOCK_BYTES);
                    let there = io.call("Read", &entry, room).unwrap().data;
                    let seed = |round: u64| u64::from(number) << 32 | round;
                    assert!(round == 0 || there == random(32 * BLOCK_BYTES, seed(round - 1)));
                    let data = random(32 * BLOCK_BYTES, seed(round));
                    io.call("Write", &write(first, &data), Payload::ToController(data)).unwrap();
                    // Gone in the middle of something, now and then.
                    if round.is_multiple_of(3) {
                        let (entry, room) = read(first, 32 * BLOCK_BYTES);
                        io.submit(0, &entry, room);
                        let _ = io.try_wait();
                    }
                }
            });
        }
    });
    assert_eq!(served.counters.connections_expelled.get(), 0);
    served.end();
}
