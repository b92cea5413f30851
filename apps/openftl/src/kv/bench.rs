//! `openftl kv bench`: a mix of YCSB on a new drive in memory, in virtual time.

use crate::cli::kv::KvBench;
use crate::failure::Failure;
use crate::terminal::{Live, say};
use hdrhistogram::Histogram;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Frame, FrameForm, Time};
use openftl_drive::value_drive::ValueDrive;
use openftl_drive::value_store::ValueStore;
use openftl_lab::loads::{KeyLoad, KeyMix, KeyRequest};
use openftl_lab::picture::thousands;
use openftl_media::EmulatedDevice;
use openftl_pages::{GRAIN_BYTES, grains_of};
use openftl_parts::{Durability, Target};
use openftl_values::{Condition, Key, RECORD_BYTES, Value, ValueDone, ValueError, ValueRequest, ValueTarget};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How much of the drive is filled unless the number of keys is said.
const FILL: f64 = 0.8;

/// Frames of a list: 100 keys of 8 bytes, and more.
const LIST_FRAMES: usize = 1;

#[derive(Serialize)]
struct Measured {
    mix: &'static str,
    profile: String,
    value_bytes: u64,
    keys: u64,
    requests: u64,
    depth: u64,
    durable: bool,
    seed: u64,
    /// Of the share that is full when the mix begins.
    fill: f64,
    /// Of virtual time.
    seconds: f64,
    requests_per_second: f64,
    read_p50_us: f64,
    read_p99_us: f64,
    write_p50_us: f64,
    write_p99_us: f64,
    /// Bytes of values that were stored, and those that the NAND was programmed with.
    stored_bytes: u64,
    nand_bytes: u64,
    waf: f64,
    /// The same while the drive was filled.
    waf_of_filling: f64,
    reads_per_retrieve: f64,
    blocks_per_retrieve: f64,
    /// Bytes on media of the directory: of filling and of the mix.
    directory_bytes: u64,
    index_bytes: u64,
    index_bytes_per_key: f64,
    /// Stores of keys that share the number of another one.
    shared_numbers: u64,
    runs: Vec<u64>,
}

/// A request under way.
struct Job {
    began: Time,
    what: KeyRequest,
    /// A read that is followed by a write has been read.
    is_written: bool,
    frames: Vec<Frame>,
}

struct Host {
    store: ValueStore<EmulatedDevice>,
    value: Vec<u8>,
    durability: Durability,
    jobs: BTreeMap<u64, Job>,
    next_tag: u64,
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    chance: Xoshiro256PlusPlus,
}

/// Keys as YCSB has them are longer; eight bytes in an order that is not that of their numbers.
fn key(number: u64) -> Key {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key::new(&bits.to_be_bytes()).expect("eight bytes are a key")
}

impl Host {
    fn begin(&mut self, what: KeyRequest) -> Result<(), Failure> {
        let began = self.store.now();
        let frames = match what {
            KeyRequest::Read(_) | KeyRequest::ReadModifyWrite(_) => self.value.len().div_ceil(BLOCK_BYTES),
            KeyRequest::Scan(..) => LIST_FRAMES,
            KeyRequest::Update(_) | KeyRequest::Insert(_) => 0,
        };
        let mut given = Vec::new();
        while !self.store.drive_mut().frames_mut().acquire_many(FrameForm::Bytes, frames, &mut given) {
            self.work()?;
        }
        self.ask(Job { began, what, is_written: false, frames: given })
    }

    /// Asks the drive what a job is at.
    fn ask(&mut self, job: Job) -> Result<(), Failure> {
        self.next_tag += 1;
        let tag = self.next_tag;
        loop {
            let now = self.store.now();
            // Each value differs from the one before it.
            let from = (self.chance.next_u64() % (BLOCK_BYTES as u64)) as usize;
            let pieces = [&self.value[from % (self.value.len() + 1)..], &self.value[..from % (self.value.len() + 1)]];
            let store = |number: u64| ValueRequest::Store {
                key: key(number),
                value: Value::Pieces(&pieces),
                condition: Condition::Always,
                durability: self.durability,
            };
            let request = match job.what {
                KeyRequest::ReadModifyWrite(number) if job.is_written => store(number),
                KeyRequest::Read(number) | KeyRequest::ReadModifyWrite(number) => {
                    ValueRequest::Retrieve { key: key(number), frames: &job.frames }
                }
                KeyRequest::Update(number) | KeyRequest::Insert(number) => store(number),
                KeyRequest::Scan(number, count) => {
                    let bytes = (4 + count * 12).min((LIST_FRAMES * BLOCK_BYTES) as u32);
                    ValueRequest::List { from: Some(key(number)), bytes, frames: &job.frames }
                }
            };
            match self.store.drive_mut().submit(now, tag, request) {
                Ok(()) => break,
                Err(ValueError::Busy) => self.work()?,
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        self.jobs.insert(tag, job);
        Ok(())
    }

    /// Lets the drive work until something has ended.
    fn work(&mut self) -> Result<(), Failure> {
        for ValueDone { tag, result, at } in self.store.work() {
            let mut job = self.jobs.remove(&tag).expect("a request under way");
            match result {
                Ok(_) => {}
                // What was inserted last may not be there yet.
                Err(ValueError::NoKey) if matches!(job.what, KeyRequest::Read(_)) => {}
                Err(error) => return Err(Failure::failed(error)),
            }
            if matches!(job.what, KeyRequest::ReadModifyWrite(_)) && !job.is_written {
                job.is_written = true;
                self.ask(job)?;
                continue;
            }
            let histogram = match job.what {
                KeyRequest::Read(_) | KeyRequest::Scan(..) => &mut self.reads,
                KeyRequest::Update(_) | KeyRequest::Insert(_) | KeyRequest::ReadModifyWrite(_) => &mut self.writes,
            };
            histogram.saturating_record(at.since(job.began).0);
            job.frames.iter().for_each(|frame| self.store.drive_mut().frames_mut().release(*frame));
        }
        Ok(())
    }

    /// Keeps so many requests under way until all have ended.
    fn run(
        &mut self,
        requests: impl Iterator<Item = KeyRequest>,
        depth: u64,
        mut tell: impl FnMut(u64),
    ) -> Result<(), Failure> {
        for (done, request) in (0..).zip(requests) {
            while self.jobs.len() as u64 >= depth {
                self.work()?;
            }
            self.begin(request)?;
            if done % 1024 == 0 {
                tell(done);
            }
        }
        while !self.jobs.is_empty() {
            self.work()?;
        }
        Ok(())
    }

    fn nand_bytes(&self) -> u64 {
        self.store.drive().store().statistics().0.programmed.iter().sum::<u64>() * BLOCK_BYTES as u64
    }
}

pub fn run(arguments: &KvBench) -> Result<(), Failure> {
    let drive = ValueDrive::read(&arguments.drive)?;
    let store = drive.in_memory(arguments.seed)?;
    let info = store.info();
    let value_bytes = u32::try_from(arguments.value.0).ok().filter(|bytes| *bytes <= info.value_max);
    let Some(value_bytes) = value_bytes else {
        return Err(Failure::bad_input(format_args!(
            "--value {}: the drive takes {} bytes at most",
            arguments.value, info.value_max
        ))
        .fix("ask for less, or for another profile"));
    };
    let on_media = u64::from(grains_of(value_bytes + RECORD_BYTES as u32)) * GRAIN_BYTES as u64;
    let most = ((info.capacity_bytes as f64 * FILL) as u64 / on_media).min(info.keys_max);
    let keys = arguments.keys.unwrap_or(most);
    let requests = arguments.requests.unwrap_or(keys);
    let inserts = if matches!(arguments.mix, KeyMix::D | KeyMix::E) { requests / 16 } else { 0 };
    let room = (info.capacity_bytes / on_media).min(info.keys_max);
    if keys == 0 || keys + inserts > room {
        return Err(Failure::bad_input(format_args!(
            "--keys {keys}: there is room for {room} of this size, those that are inserted included"
        ))
        .fix("ask for fewer, for fewer requests, or for a larger drive"));
    }
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(arguments.seed);
    let mut value = vec![0; value_bytes as usize];
    chance.fill_bytes(&mut value);
    let histogram = || Histogram::new_with_bounds(1, 1 << 40, 3).map_err(Failure::failed);
    let mut host = Host {
        store,
        value,
        durability: Durability::Volatile,
        jobs: BTreeMap::new(),
        next_tag: 0,
        reads: histogram()?,
        writes: histogram()?,
        chance,
    };
    let mut live = Live::new(false);
    let show = |live: &mut Live, what: &str, done: u64, all: u64| {
        if live.is_due() {
            live.show(&[format!("{what}: {} of {}", thousands(done), thousands(all))]);
        }
    };
    host.run((0..keys).map(KeyRequest::Insert), arguments.depth, |done| show(&mut live, "filling", done, keys))?;
    host.store.flush().map_err(Failure::failed)?;
    let waf_of_filling = host.nand_bytes() as f64 / (keys * u64::from(value_bytes)).max(1) as f64;
    let filled = *host.store.drive().statistics();
    let index_bytes = host.store.drive().index_bytes();
    let known = host.store.info();
    host.store.drive_mut().reset_statistics();
    host.durability = if arguments.durable { Durability::Durable } else { Durability::Volatile };
    (host.reads, host.writes) = (histogram()?, histogram()?);
    let began = host.store.now();
    let mut load = KeyLoad::new(arguments.mix, keys, arguments.seed);
    let steps = (0..requests).map(|_| load.step());
    host.run(steps, arguments.depth, |done| show(&mut live, "mix", done, requests))?;
    let seconds = host.store.now().since(began).0 as f64 / 1e9;
    // What was acknowledged and is on its way belongs to the mix.
    host.store.flush().map_err(Failure::failed)?;
    live.clear();
    let (statistics, nand_bytes) = (*host.store.drive().statistics(), host.nand_bytes());
    let read_blocks = host.store.drive().store().statistics().0.host_blocks_read;
    let us = |histogram: &Histogram<u64>, quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    let name = KeyMix::ALL.iter().find(|(_, mix)| *mix == arguments.mix).expect("all of them are named").0;
    let per = |all: u64, of: u64| all as f64 / of.max(1) as f64;
    let measured = Measured {
        mix: name,
        profile: drive.profile().to_owned(),
        value_bytes: value_bytes.into(),
        keys,
        requests,
        depth: arguments.depth,
        durable: arguments.durable,
        seed: arguments.seed,
        fill: known.used_bytes as f64 / known.capacity_bytes as f64,
        seconds,
        requests_per_second: requests as f64 / seconds,
        read_p50_us: us(&host.reads, 0.5),
        read_p99_us: us(&host.reads, 0.99),
        write_p50_us: us(&host.writes, 0.5),
        write_p99_us: us(&host.writes, 0.99),
        stored_bytes: statistics.bytes_stored,
        nand_bytes,
        waf: per(nand_bytes, statistics.bytes_stored),
        waf_of_filling,
        reads_per_retrieve: per(statistics.retrieve_reads, statistics.retrieves),
        blocks_per_retrieve: per(read_blocks, statistics.retrieves),
        directory_bytes: [filled, statistics]
            .iter()
            .map(|statistics| statistics.change_bytes + statistics.run_bytes + statistics.manifest_bytes)
            .sum(),
        index_bytes,
        index_bytes_per_key: per(index_bytes, keys),
        shared_numbers: filled.shared + statistics.shared,
        runs: host.store.drive().runs(),
    };
    if arguments.json {
        return say(&crate::json(&measured)?);
    }
    say(&told(&measured))
}

fn told(measured: &Measured) -> String {
    let Measured { mix, value_bytes, keys, requests, depth, seconds, .. } = measured;
    let mut text = format!(
        "mix {mix}: {} keys with values of {value_bytes} bytes, {:.0}% full; {} requests, {depth} at a time\n",
        thousands(*keys),
        measured.fill * 100.0,
        thousands(*requests)
    );
    let rate = thousands(measured.requests_per_second as u64);
    _ = writeln!(text, "  rate         {rate} requests/s, in {seconds:.3} s of the drive");
    if measured.read_p99_us > 0.0 {
        _ = writeln!(text, "  reads        p50 {:.0} µs, p99 {:.0} µs", measured.read_p50_us, measured.read_p99_us);
    }
    if measured.write_p99_us > 0.0 || measured.stored_bytes > 0 {
        _ = writeln!(text, "  writes       p50 {:.0} µs, p99 {:.0} µs", measured.write_p50_us, measured.write_p99_us);
    }
    let (stored, nand) = (ByteSize(measured.stored_bytes), ByteSize(measured.nand_bytes));
    if measured.stored_bytes > 0 {
        _ = writeln!(text, "  stored       {stored}; NAND {nand}: write amplification {:.3}", measured.waf);
    }
    _ = writeln!(text, "  filling      write amplification {:.3}", measured.waf_of_filling);
    if measured.reads_per_retrieve > 0.0 {
        _ = writeln!(text, "  a Retrieve   reads {:.3} pages", measured.reads_per_retrieve);
    }
    _ = writeln!(
        text,
        "  directory    {} written, {:.1} bytes a key; runs of {} keys",
        ByteSize(measured.directory_bytes),
        measured.directory_bytes as f64 / *keys as f64,
        measured.runs.iter().map(|keys| thousands(*keys)).collect::<Vec<_>>().join(", ")
    );
    _ = writeln!(
        text,
        "  index        {} of memory, {:.2} bytes a key; {} keys share the number of another",
        ByteSize(measured.index_bytes),
        measured.index_bytes_per_key,
        thousands(measured.shared_numbers)
    );
    text
}
