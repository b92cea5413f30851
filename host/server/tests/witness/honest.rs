//! The witness: an honest client that is in nobody's way, and notes how long it waits.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::attack::{Attack, Rude};
use super::wire::{BLOCK, BOUND, Host, Nbd, Place, entry, nbd};
use openftl_nvme_tcp::client::Payload;

/// What an honest client waits for a small request at most, 99 times of a hundred, whatever others do. The drive does it in
/// less than a millisecond; this leaves room for a machine that is busy with other things, and the attacks made it tens of
/// seconds.
pub const SMALL_P99_MAX: Duration = Duration::from_millis(500);

/// The same for a write of a megabyte, the longest of all waits: each rude connection may keep frames for 50 ms once. And for
/// being let in, where others have keys made.
pub const LONG_MAX: Duration = Duration::from_secs(10);

/// CPU time of the server for each byte that rude hosts send, at most. The attacks made it up to 900 µs. It is 5 µs for hosts
/// that leave their log pages unread, and less for all others.
const CPU_PER_BYTE_MAX: Duration = Duration::from_micros(20);

/// The same for the honest client meanwhile.
const CPU_OF_HONEST_MAX: Duration = Duration::from_secs(1);

/// Rounds of requests in each phase.
const ROUNDS: usize = 60;

/// How long requests took, in order of length.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    fn quantile(&self, of_a_hundred: usize) -> Duration {
        self.0[(self.0.len() * of_a_hundred / 100).min(self.0.len() - 1)]
    }

    pub fn p99(&self) -> Duration {
        self.quantile(99)
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        write!(out, "{:8.2} {:8.2}", ms(self.quantile(50)), ms(self.p99()))
    }
}

/// An honest client of either kind, with an operator where there is one.
pub struct Witness {
    nbd: Nbd,
    nvme: Host,
    control: Option<std::path::PathBuf>,
}

impl Witness {
    pub fn open(place: &Place) -> Witness {
        Witness { nbd: Nbd::open(&place.nbd), nvme: Host::open(place), control: place.control.clone() }
    }

    fn run_nvme(&mut self, entry: &[u8; 64], payload: Payload) {
        self.nvme.queue.submit(0, entry, payload);
        let ended = self.nvme.queue.wait().expect("the server answers");
        assert_eq!(ended.status() & 0x7ff, 0, "the command is served");
    }

    /// Reads, writes and flushes in small pieces, each waiting for the one before.
    fn small(&mut self) -> Latencies {
        let mut took = Vec::new();
        let mut time = |deed: &mut dyn FnMut()| {
            let began = Instant::now();
            deed();
            took.push(began.elapsed());
        };
        for round in 0..ROUNDS {
            let block = 5000 + round as u32 % 100;
            let (offset, data) = (u64::from(block) * BLOCK as u64, vec![round as u8; BLOCK]);
            time(&mut || drop(self.nbd.ask(nbd::WRITE, offset, BLOCK, &data)));
            time(&mut || assert!(self.nbd.ask(nbd::READ, offset, BLOCK, &[]) == data, "what was written is read"));
            // Of two blocks a part each: both are read first.
            time(&mut || drop(self.nbd.ask(nbd::WRITE, offset + 4000, 200, &data[..200])));
            time(&mut || drop(self.nbd.ask(nbd::FLUSH, 0, 0, &[])));
            let write = entry(1, 0, [block, 0, 0]);
            time(&mut || self.run_nvme(&write, Payload::ToController(data.clone())));
            let read = entry(2, 0, [block, 0, 0]);
            time(&mut || self.run_nvme(&read, Payload::ToHost(vec![0; BLOCK])));
            time(&mut || self.run_nvme(&entry(0, 0, [0; 3]), Payload::None));
        }
        took.sort_unstable();
        Latencies(took)
    }

    /// Writes and reads a megabyte at a time; the longest wait.
    fn long(&mut self) -> Duration {
        let data = vec![9; 1 << 20];
        let mut longest = Duration::ZERO;
        for _ in 0..4 {
            let began = Instant::now();
            self.nbd.ask(nbd::WRITE, 20 << 20, data.len(), &data);
            let between = Instant::now();
            self.nbd.ask(nbd::READ, 20 << 20, data.len(), &[]);
            longest = longest.max(between - began).max(between.elapsed());
        }
        longest
    }

    /// The operator asks how the drive is.
    fn operate(&self) {
        let Some(path) = &self.control else { return };
        let mut stream = UnixStream::connect(path).expect("the drive can be controlled");
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.write_all(b"{\"version\":1,\"command\":\"stats\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("the operator is answered");
        assert!(line.contains("\"ok\""), "the operator is served: {line}");
    }
}

/// What the witness saw.
pub struct Seen {
    pub before: Latencies,
    pub during: Latencies,
    pub long: Duration,
    /// Until another honest host was let in.
    pub entry: Duration,
    pub after: Latencies,
    pub did: Vec<String>,
}

/// Lets rude hosts do their worst, several kinds of them together, and has the witness work before, meanwhile and
/// afterwards. `meanwhile` looks at the server while the rude hosts hold what they hold; `cpu` is the server's CPU time so
/// far, where it is a process of its own.
pub fn watch(place: &Place, attacks: &[Attack], cpu: impl Fn() -> Option<Duration>, meanwhile: impl FnOnce()) -> Seen {
    let mut witness = Witness::open(place);
    let before = witness.small();
    let cpu_before = cpu();
    let rude: Vec<Rude> = attacks.iter().map(|attack| attack.begin(place)).collect();
    let during = witness.small();
    let long = witness.long();
    let began = Instant::now();
    drop(Witness::open(place));
    let entry = began.elapsed();
    witness.operate();
    meanwhile();
    let spent = cpu().zip(cpu_before).map(|(now, before)| now - before);
    let sent: u64 = rude.iter().map(|rude| rude.sent.load(Ordering::Relaxed)).sum();
    let did = rude.iter().map(|rude| rude.did.clone()).collect();
    drop(rude);
    let after = witness.small();
    witness.operate();
    let seen = Seen { before, during, long, entry, after, did };
    let names: Vec<_> = attacks.iter().map(|attack| attack.name()).collect();
    println!(
        "{:42} p50 and p99 in ms: before {}, during {}, after {}; 1 MiB {:7.1}, to be let in {:7.1}; {}",
        names.join(" + "),
        seen.before,
        seen.during,
        seen.after,
        seen.long.as_secs_f64() * 1e3,
        seen.entry.as_secs_f64() * 1e3,
        seen.did.join("; ")
    );
    if let Some(spent) = spent {
        println!("{:42} {:.0} ms of CPU, {sent} bytes of rude hosts", "", spent.as_secs_f64() * 1e3);
        let bound = CPU_OF_HONEST_MAX + CPU_PER_BYTE_MAX * sent as u32;
        assert!(spent < bound, "{names:?}: {spent:?} of CPU for {sent} bytes");
    }
    for latencies in [&seen.during, &seen.after] {
        assert!(latencies.p99() < SMALL_P99_MAX, "{names:?}: p50 and p99 in ms {latencies}");
    }
    assert!(seen.long < LONG_MAX, "{names:?}: a megabyte took {:?}", seen.long);
    assert!(seen.entry < LONG_MAX, "{names:?}: to be let in took {:?}", seen.entry);
    seen
}
