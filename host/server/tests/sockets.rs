//! The server over real sockets: clients that are decent, rude, slow or gone, on a drive that is late and out of order.
//!
//! Nothing here sleeps or looks at a clock: a client waits for the server's answer, and time-outs are tested with a clock
//! that the test sets.

use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::client::{Client, head};
use crate::memory::{Memory, Switches, Temper};
use crate::reactors::with_reactors;
use openftl_core::units::Poll;
use openftl_core::{BLOCK_BYTES, Clock, Nanos, Time};
use openftl_nbd::wire::{ErrorCode, command, command_flag, option};
use openftl_server::{Counters, Endpoint, Export, Protocol, ServeError, Server, ServerConfig, Stop, WallClock};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BLOCKS: usize = 256;
const SHUFFLED: Temper = Temper::Shuffled { seed: 1, within: Nanos::from_micros(200) };

/// A clock that stands still until the test moves it, except for a drive that waits.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&mut self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }

    fn wait_until(&mut self, due: Time) -> Time {
        Time(self.0.fetch_max(due.0, Ordering::SeqCst).max(due.0))
    }
}

/// A server in a thread of its own.
struct Served {
    path: PathBuf,
    tcp: Endpoint,
    stop: Stop,
    counters: Arc<Counters>,
    switches: Arc<Switches>,
    thread: Option<JoinHandle<(Result<(), ServeError>, Memory)>>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new(drive: Memory) -> Served {
        Served::with(drive, ServerConfig::default(), WallClock::new())
    }

    fn with(drive: Memory, config: ServerConfig, clock: impl Clock + Send + 'static) -> Served {
        Served::after(|_| {}, drive, config, clock).1
    }

    /// A server that runs only after `before` had its socket, where clients can connect already.
    fn after<R>(
        before: impl FnOnce(&Path) -> R,
        drive: Memory,
        config: ServerConfig,
        mut clock: impl Clock + Send + 'static,
    ) -> (R, Served) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut server = Server::new(with_reactors(config)).unwrap();
        server.listen(Endpoint::Unix(path.clone()), Protocol::Nbd).unwrap();
        let tcp = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::Nbd).unwrap();
        let (stop, counters, switches) = (Stop::new().unwrap(), server.counters(), Arc::clone(&drive.switches));
        let its_stop = stop.clone();
        let result = before(&path);
        let thread = std::thread::spawn(move || {
            let name = "disk".to_owned();
            let mut exports = [Export { name, description: String::new(), read_only: false, target: drive }];
            let result = server.run(&mut exports, &mut clock, &its_stop);
            let [export] = exports;
            (result, export.target)
        });
        (result, Served { path, tcp, stop, counters, switches, thread: Some(thread), _folder: folder })
    }

    fn open(&self) -> Client {
        Client::open(&self.path, true)
    }

    /// Stops the server; what the drive holds.
    fn end(mut self) -> Memory {
        self.stop.request();
        let (result, drive) = self.thread.take().expect("ended once").join().unwrap();
        result.unwrap();
        assert!(drive.is_at_rest(), "the server kept a frame or a request");
        assert!(!self.path.exists(), "the socket file is left");
        drive
    }
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..bytes).map(|_| chance.next_u32() as u8).collect()
}

#[test]
fn what_was_written_is_read_in_both_forms_of_reply() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let data = pattern(1, 100_000);
    for structured in [false, true] {
        let mut client = Client::open(&served.path, structured);
        assert_eq!(client.write(4_321, &data), 0);
        assert!(client.read(4_321, data.len()).data == data);
        assert!(client.read(5_000, 10).data == data[679..689]);
        assert_eq!(client.read(1 << 40, 1).error, ErrorCode::Invalid as u32);
        assert_eq!(client.write((BLOCKS * BLOCK_BYTES) as u64 - 1, &[1, 2]), ErrorCode::NoSpace as u32);
        assert_eq!(client.flush(), 0);
        client.say(&head(command::DISC, 0, 0, 0, 0));
        assert_eq!(client.until_closed(), b"");
    }
    served.end();
}

#[test]
fn tcp_serves_the_same() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let Endpoint::Tcp(address) = served.tcp else { unreachable!("listened on TCP") };
    let mut client = served.open();
    assert_eq!(client.write(0, b"over the socket"), 0);
    let mut tcp = TcpStream::connect(address).unwrap();
    // A whole conversation in one go: the server hears messages that come before it has answered.
    let name = [&0x4948_4156_454f_5054_u64.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let talk = [&[0, 0, 0, 3][..], &name, &head(command::READ, 0, 1, 0, 15), &head(command::DISC, 0, 0, 0, 0)].concat();
    std::io::Write::write_all(&mut tcp, &talk).unwrap();
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut tcp, &mut said).unwrap();
    assert_eq!(said.len(), 18 + 10 + 16 + 15);
    assert!(said.ends_with(b"over the socket"));
    served.end();
}

#[test]
fn many_requests_in_flight_agree_with_a_vector() {
    const BYTES: usize = BLOCKS * BLOCK_BYTES;
    for seed in 0..4 {
        let temper = Temper::Shuffled { seed, within: Nanos::from_micros(300) };
        // A pool so small that most of the time somebody waits for frames.
        let served = Served::new(Memory::new(BLOCKS, 64, temper));
        let parts: Vec<_> = (0..3_u64)
            .map(|number| {
                let path = served.path.clone();
                // Each client has every third 5000 bytes: they share blocks, but no byte.
                std::thread::spawn(move || {
                    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed * 10 + number);
                    let mut client = Client::open(&path, number % 2 == 0);
                    let own: Vec<u64> = (0..BYTES as u64 / 5_000).filter(|part| part % 3 == number).collect();
                    let mut model = vec![vec![0_u8; 5_000]; own.len()];
                    for round in 0..30 {
                        // Some parts, each in one request, all in flight together.
                        let mut wanted = Vec::new();
                        for (index, part) in own.iter().enumerate() {
                            let (from, length) = (chance.next_u64() % 5_000, 1 + chance.next_u64() % 5_000);
                            let length = length.min(5_000 - from) as usize;
                            let (offset, range) = (part * 5_000 + from, from as usize..from as usize + length);
                            let cookie = index as u64;
                            match chance.next_u64() % 5 {
                                0 | 1 => {
                                    let data = pattern(chance.next_u64(), length);
                                    client.send_write(cookie, offset, &data);
                                    model[index][range].copy_from_slice(&data);
                                    wanted.push((cookie, Vec::new()));
                                }
                                2 => {
                                    client.say(&head(command::WRITE_ZEROES, 0, cookie, offset, length));
                                    model[index][range].fill(0);
                                    wanted.push((cookie, Vec::new()));
                                }
                                3 => {
                                    client.send_read(cookie, offset, length);
                                    wanted.push((cookie, model[index][range].to_vec()));
                                }
                                _ => {}
                            }
                        }
                        let mut left: std::collections::HashMap<u64, Vec<u8>> = wanted.into_iter().collect();
                        while !left.is_empty() {
                            let reply = client.reply(|cookie| left[&cookie].len());
                            assert_eq!(reply.error, 0);
                            let wanted = left.remove(&reply.cookie).expect("each request is answered once");
                            assert!(reply.data == wanted, "seed {seed}, client {number}, round {round}");
                        }
                    }
                    own.into_iter().zip(model).collect::<Vec<_>>()
                })
            })
            .collect();
        let parts: Vec<_> = parts.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let drive = served.end();
        for (part, wanted) in parts {
            assert!(drive.data()[part as usize * 5_000..][..5_000] == wanted, "seed {seed}, part {part}");
        }
    }
}

#[test]
fn a_write_cut_off_in_the_middle_never_happened() {
    // Short of the last byte: in a small write from the buffer, and in a large one received into frames.
    for length in [10, 4_096, 700_000] {
        let served = Served::new(Memory::new(BLOCKS, 1_024, SHUFFLED));
        let mut rude = served.open();
        rude.say(&head(command::WRITE, 0, 1, 100, length));
        rude.say(&vec![9; length - 1]);
        rude.socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rude.until_closed(), b"", "half a request is not answered");
        let mut other = served.open();
        assert!(other.read(0, 1 << 20).data.iter().all(|byte| *byte == 0));
        drop(other);
        assert_eq!(served.switches.blocks_written.load(Ordering::SeqCst), 0);
        served.end();
    }
}

#[test]
fn a_client_that_closes_only_its_sending_side_gets_its_replies() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let mut client = served.open();
    client.send_write(1, 0, &[5; 6_000]);
    client.send_read(2, 200_000, 3);
    client.socket.shutdown(Shutdown::Write).unwrap();
    let mut cookies = [client.reply(|_| 0).cookie, client.reply(|_| 0).cookie];
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2]);
    assert_eq!(client.until_closed(), b"");
    assert_eq!(served.end().data()[..6_000], [5; 6_000]);
}

#[test]
fn garbage_ends_its_own_connection_and_no_other() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let mut decent = served.open();
    let mut early = Client::connect(&served.path);
    early.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    early.until_closed();
    let mut late = served.open();
    late.say(&[0xff; 28]);
    late.until_closed();
    assert_eq!(decent.write(0, b"still here"), 0);
    assert_eq!(decent.read(0, 10).data, b"still here");
    assert_eq!(served.counters.connections_expelled.get(), 2);
    served.end();
}

#[test]
fn an_overlong_write_is_refused_and_the_connection_goes_on() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let mut client = served.open();
    // The pool has 512 frames, so the longest request is 256 of them, which is also the size of the drive.
    let longest = 256 * BLOCK_BYTES;
    assert_eq!(client.write(0, &vec![1; longest]), 0);
    assert_eq!(client.write(0, &vec![2; longest + 1]), ErrorCode::NoSpace as u32);
    let info = client.read(0, longest);
    assert!(info.data == vec![1; longest]);
    client.say(&head(command::WRITE, 0, 1, 0, u32::MAX as usize));
    client.until_closed();
    served.end();
}

#[test]
fn a_flush_on_one_connection_covers_writes_acknowledged_on_another() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let (mut writer, mut flusher) = (served.open(), served.open());
    let volatile = || served.switches.volatile.load(Ordering::SeqCst);
    assert_eq!(writer.write(0, &[1; 3 * BLOCK_BYTES]), 0);
    assert_eq!(volatile(), 3);
    assert_eq!(flusher.flush(), 0);
    assert_eq!(volatile(), 0);
    writer.say(&[head(command::WRITE, command_flag::FUA, 1, 4_000, 500), vec![2; 500]].concat());
    assert_eq!(writer.reply(|_| 0).error, 0);
    assert_eq!(volatile(), 0, "FUA is durable when it is answered");
    served.end();
}

#[test]
fn while_the_drive_holds_all_frames_the_sockets_wait_and_then_everybody_is_served() {
    let served = Served::new(Memory::new(BLOCKS, 32, SHUFFLED));
    served.switches.held.store(true, Ordering::SeqCst);
    // Greedy clients ask for far more than the pool holds, and take no reply for now; a modest one comes last.
    let greedy: Vec<_> = (0..2_u64)
        .map(|number| {
            let mut client = served.open();
            for cookie in 0..64 {
                client.send_read(cookie, number * 4096, 10 * BLOCK_BYTES);
            }
            client
        })
        .collect();
    let mut modest = served.open();
    modest.send_read(1, 0, 1);
    // Nobody is answered while the drive holds back: a handshake still is, so the server is alive.
    let submitted = served.switches.submitted.load(Ordering::SeqCst);
    assert!(submitted <= 3, "{submitted} requests; a connection whose share is 4 frames has one of 10 at a time");
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(modest.reply(|_| 1).data, [0]);
    for mut client in greedy {
        let mut cookies: Vec<u64> = (0..64).map(|_| client.reply(|_| 0).cookie).collect();
        cookies.sort_unstable();
        assert!(cookies.into_iter().eq(0..64));
    }
    served.end();
}

#[test]
fn a_client_that_does_not_read_its_replies_disturbs_nobody() {
    let config = ServerConfig { bytes_max: 1 << 20, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 2_048, SHUFFLED), config, WallClock::new());
    let mut slow = served.open();
    for cookie in 0..100 {
        slow.send_read(cookie, 0, 512 << 10);
    }
    let mut quick = served.open();
    for round in 0..50 {
        let data = pattern(round, 5_000);
        assert_eq!(quick.write(0, &data), 0);
        assert!(quick.read(0, 5_000).data == data);
    }
    // And when it reads at last, all is there.
    for _ in 0..100 {
        assert_eq!(slow.reply(|_| 0).data.len(), 512 << 10);
    }
    served.end();
}

#[test]
fn who_keeps_the_server_waiting_is_expelled() {
    let clock = TestClock::default();
    let config = ServerConfig::default();
    let served = Served::with(Memory::new(BLOCKS, 2_048, SHUFFLED), config, clock.clone());
    let mut idle = served.open();
    let mut silent = Client::connect(&served.path);
    silent.take(18);
    let mut halfway = served.open();
    halfway.say(&head(command::WRITE, 0, 1, 0, 4_096));
    halfway.say(&[1; 100]);
    // Answered on another connection, accepted later: so the server has heard the half write.
    assert_eq!(served.open().read(0, 1).error, 0);
    clock.0.fetch_add(config.handshake_max.0, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(silent.until_closed(), b"");
    clock.0.fetch_add(config.stall_max.0, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(halfway.until_closed(), b"");
    assert_eq!(idle.read(0, 100).data, [0; 100], "a connection with nothing to say may stay");
    served.end();
}

#[test]
fn a_write_that_comes_slowly_goes_on_in_memory_while_others_use_its_frames() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 512, Temper::Instant), ServerConfig::default(), clock.clone());
    let (data, sent) = (pattern(1, BLOCKS * BLOCK_BYTES), 500_000);
    let mut slow = served.open();
    slow.say(&[head(command::WRITE, 0, 1, 0, data.len()), data[..sent].to_vec()].concat());
    // Half of the pool is all that long requests hold together.
    let mut other = served.open();
    other.say(&head(command::WRITE, 0, 2, 0, data.len()));
    assert_eq!(served.open().read(0, 1).data, [0], "a small request waits for neither");
    assert_eq!(served.counters.bytes_moved_aside.get(), 0);
    clock.0.fetch_add(60_000_000, Ordering::SeqCst);
    served.stop.wake();
    other.say(&vec![7; data.len()]);
    assert_eq!(other.reply(|_| 0).error, 0);
    let moved = served.counters.bytes_moved_aside.get();
    assert!(0 < moved && moved <= sent as u64, "{moved} bytes were moved");
    slow.say(&data[sent..]);
    assert_eq!(slow.reply(|_| 0).error, 0);
    assert!(slow.read(0, data.len()).data == data);
    assert!(served.counters.bytes_kept.get() < 100, "the header of a reply at most");
    served.end();
}

#[test]
fn replies_that_are_not_taken_leave_their_frames_when_others_wait_and_arrive_in_the_end() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 512, Temper::Instant), ServerConfig::default(), clock.clone());
    let data = pattern(2, BLOCKS * BLOCK_BYTES);
    let (mut slow, mut other) = (served.open(), served.open());
    assert_eq!(other.write(0, &data), 0);
    (0..4).for_each(|cookie| slow.send_read(cookie, 0, data.len()));
    assert_eq!(served.open().read(0, 1).error, 0);
    other.send_read(9, 0, data.len());
    assert_eq!(served.open().read(0, 1).error, 0);
    clock.0.fetch_add(60_000_000, Ordering::SeqCst);
    served.stop.wake();
    assert!(other.reply(|_| 0).data == data);
    assert!(served.counters.bytes_moved_aside.get() > 0);
    for cookie in 0..4 {
        let reply = slow.reply(|_| 0);
        assert_eq!((reply.cookie, reply.data == data), (cookie, true));
    }
    served.end();
}

#[test]
fn a_byte_now_and_then_keeps_no_connection_open() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 2_048, Temper::Instant), ServerConfig::default(), clock.clone());
    let (mut trickling, mut deaf, mut other) = (served.open(), served.open(), served.open());
    trickling.say(&head(command::WRITE, 0, 1, 0, 700_000));
    (0..4).for_each(|cookie| deaf.send_read(cookie, 0, 1 << 20));
    // It has to take what it has asked for from here on.
    while served.counters.reads.get() == 0 {
        std::thread::yield_now();
    }
    for _ in 0..2 {
        trickling.say(&[1]);
        deaf.say(&head(command::FLUSH, 0, 9, 0, 0));
        assert_eq!(other.read(0, 1).error, 0);
        assert_eq!(served.counters.connections_expelled.get(), 0);
        clock.0.fetch_add(20_000_000_000, Ordering::SeqCst);
        served.stop.wake();
    }
    trickling.until_closed();
    deaf.until_closed();
    assert_eq!(other.read(0, 1).error, 0);
    assert_eq!(served.counters.connections_expelled.get(), 2);
    served.end();
}

#[test]
fn of_those_who_keep_too_much_by_being_slow_the_one_with_the_most_goes() {
    let clock = TestClock::default();
    let config = ServerConfig { kept_bytes_max: 1_500_000, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 512, Temper::Instant), config, clock.clone());
    let write = head(command::WRITE, 0, 1, 0, BLOCKS * BLOCK_BYTES);
    let (mut little, mut much, mut other) = (served.open(), served.open(), served.open());
    for (client, bytes) in [(&mut little, 700_000), (&mut much, 900_000), (&mut other, BLOCKS * BLOCK_BYTES)] {
        // Each takes the frames of the one before.
        client.say(&write);
        assert_eq!(served.open().read(0, 1).error, 0);
        clock.0.fetch_add(60_000_000, Ordering::SeqCst);
        served.stop.wake();
        client.say(&vec![1; bytes]);
    }
    assert_eq!(other.reply(|_| 0).error, 0);
    much.until_closed();
    assert_eq!(served.counters.connections_too_slow.get(), 1);
    little.say(&vec![1; BLOCKS * BLOCK_BYTES - 700_000]);
    assert_eq!(little.reply(|_| 0).error, 0);
    served.end();
}

#[test]
fn long_writes_go_straight_from_the_socket_to_their_frames() {
    const WRITES: u64 = 8;
    const LENGTH: usize = 768 << 10;
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let mut client = served.open();
    let copied = || served.counters.bytes_copied.get();
    // The first one surprises the server, which takes what a receive buffer holds; of the others only the ends are copied.
    assert_eq!(client.write(100, &pattern(1, LENGTH)), 0);
    let before = copied();
    for seed in 0..WRITES {
        assert_eq!(client.write(100, &pattern(seed, LENGTH)), 0);
    }
    let of_others = copied() - before;
    assert!(of_others <= (WRITES * (16 + 32)) << 10, "{of_others} bytes were copied");
    assert!(client.read(100, LENGTH).data == pattern(WRITES - 1, LENGTH));
    assert_eq!(copied() - before, of_others, "reads leave from their frames");
    served.end();
}

#[test]
fn a_server_that_polls_serves_and_hears_the_stop() {
    // Longer than the test may take: all of it happens while the server does not sleep.
    let config = ServerConfig { poll: Poll::For(Nanos::from_millis(3_600_000)), ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 512, SHUFFLED), config, WallClock::new());
    let mut client = served.open();
    let data = pattern(7, 5_000);
    assert_eq!(client.write(0, &data), 0);
    assert!(client.read(0, 5_000).data == data);
    assert_eq!(served.open().read(0, 1).error, 0);
    served.end();
}

#[test]
fn one_connection_too_many_is_turned_away() {
    let config = ServerConfig { connections_max: 2, ..ServerConfig::default() };
    let served = Served::with(Memory::new(BLOCKS, 512, SHUFFLED), config, WallClock::new());
    let (mut first, second) = (served.open(), served.open());
    assert_eq!(Client::connect(&served.path).until_closed(), b"");
    assert_eq!(first.read(0, 1).error, 0);
    let mut second = second;
    second.say(&head(command::DISC, 0, 0, 0, 0));
    second.until_closed();
    assert_eq!(served.open().read(0, 1).error, 0);
    served.end();
}

#[test]
fn of_a_crowd_that_comes_at_once_nobody_is_left_waiting() {
    // More than several turns accept. All but the first are turned away, so that no event of theirs makes another turn;
    // and the first one's handshake may take an hour, so that no time-out does.
    let config =
        ServerConfig { connections_max: 1, handshake_max: Nanos::from_millis(3_600_000), ..ServerConfig::default() };
    let crowd = |path: &Path| (0..100).map(|_| Client::connect(path)).collect::<Vec<_>>();
    let (crowd, served) = Served::after(crowd, Memory::new(BLOCKS, 512, SHUFFLED), config, WallClock::new());
    let mut crowd = crowd.into_iter();
    let mut first = crowd.next().expect("a hundred");
    for mut other in crowd {
        assert_eq!(other.until_closed(), b"");
    }
    assert_eq!(&first.take(18)[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(served.counters.connections_refused.get(), 99);
    served.end();
}

#[test]
fn a_stop_finishes_what_is_under_way_and_flushes() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    served.switches.held.store(true, Ordering::SeqCst);
    let mut client = served.open();
    client.send_write(1, 0, &[3; 4_096]);
    // The next handshake is answered by a later turn, so the write has been taken.
    let mut other = served.open();
    served.stop.request();
    served.switches.held.store(false, Ordering::SeqCst);
    served.stop.wake();
    assert_eq!(client.reply(|_| 0).error, 0);
    assert_eq!(client.until_closed(), b"");
    assert_eq!(other.until_closed(), b"");
    let volatile = Arc::clone(&served.switches);
    assert_eq!(served.end().data()[..4_096], [3; 4_096]);
    assert_eq!(volatile.volatile.load(Ordering::SeqCst), 0);
    assert_eq!(volatile.flushes.load(Ordering::SeqCst), 1);
}

#[test]
fn a_stop_does_not_wait_for_a_peer_that_stays_halfway() {
    let clock = TestClock::default();
    let served = Served::with(Memory::new(BLOCKS, 512, SHUFFLED), ServerConfig::default(), clock.clone());
    let mut halfway = served.open();
    halfway.say(&head(command::WRITE, 0, 1, 0, 4_096));
    halfway.say(&[1; 100]);
    assert_eq!(served.open().read(0, 1).error, 0);
    served.stop.request();
    // The stop is seen in some turn; only time ends the wait, so time goes on until it does.
    while !served.thread.as_ref().expect("running").is_finished() {
        clock.0.fetch_add(1_000_000_000, Ordering::SeqCst);
        served.stop.wake();
        std::thread::yield_now();
    }
    assert_eq!(halfway.until_closed(), b"");
    assert_eq!(served.switches.blocks_written.load(Ordering::SeqCst), 0);
    served.end();
}

#[test]
fn a_lost_block_is_an_error_of_its_reads_only() {
    let mut drive = Memory::new(BLOCKS, 512, SHUFFLED);
    drive.lost_block = Some(3);
    let served = Served::new(drive);
    let mut client = served.open();
    assert_eq!(client.read(0, 5 * BLOCK_BYTES).error, ErrorCode::Io as u32);
    assert_eq!(client.read(0, 3 * BLOCK_BYTES).error, 0);
    assert_eq!(client.write(3 * 4096 + 1, &[1]), ErrorCode::Io as u32, "the rest of the block is lost");
    served.end();
}

#[test]
fn a_drive_that_turns_read_only_says_so() {
    let served = Served::new(Memory::new(BLOCKS, 512, SHUFFLED));
    let mut client = served.open();
    assert_eq!(client.write(0, &[1; 10]), 0);
    served.switches.read_only.store(true, Ordering::SeqCst);
    assert_eq!(client.write(0, &[2; 10]), ErrorCode::NotPermitted as u32);
    assert_eq!(client.read(0, 10).data, [1; 10]);
    let mut later = Client::connect(&served.path);
    later.take(18);
    later.say(&[0, 0, 0, 3]);
    later.say_option(option::EXPORT_NAME, b"disk");
    assert_eq!(later.take(10)[9] & 2, 2, "NBD_FLAG_READ_ONLY");
    served.end();
}

#[test]
fn exports_that_cannot_be_served_are_named_with_the_reason() {
    let export = |name: &str, frames| {
        let target = Memory::new(1, frames, Temper::Instant);
        Export { name: name.to_owned(), description: String::new(), read_only: false, target }
    };
    let check = |mut exports: Vec<Export<Memory>>, why: &str| {
        let mut server = Server::new(with_reactors(ServerConfig::default())).unwrap();
        let error = server.run(&mut exports, &mut WallClock::new(), &Stop::new().unwrap()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    check(vec![], "there is no drive to export");
    check(vec![export("a", 8), export("a", 8)], "export `a`: two exports have this name");
    check(vec![export("a", 7)], "export `a`: 7 free byte frames");
    check(vec![export(&"x".repeat(5_000), 8)], "at most 4096 bytes");
}
