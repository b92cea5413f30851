//! `openftl nvme bench`: one queue of a namespace, full all the time.
//!
//! ```text
//!             ┌────────── depth commands under way ──────────┐
//!   submit ──▶│ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ │──▶ completion: how long it took, and its
//!      ▲      └──────────────────────────────────────────────┘    buffer goes to the next
//!      └──────────────────────────────────────────────────────────────────┘
//! ```

use super::channel::Channel;
use super::disk::Disk;
use super::transfer::check;
use crate::cli::nvme::{NvmeBench, NvmeWorkload};
use crate::failure::Failure;
use crate::figures::Latency;
use crate::terminal::{Ink, Live, Palette, say};
use clap::ValueEnum;
use openftl_core::Nanos;
use openftl_core::units::{ByteSize, Share};
use openftl_lab::outcome::Requests;
use openftl_lab::picture::thousands;
use openftl_lab::workload::Operation;
use openftl_lab::{Pattern, Workload, WorkloadConfig};
use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::nvm::{self, Blocks};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The most bytes of data of all commands under way, each of which has a buffer.
const UNDER_WAY_BYTES_MAX: u64 = 1 << 30;

/// The one object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Findings {
    workload: NvmeWorkload,
    depth: u16,
    block_bytes: u64,
    seconds: f64,
    requests: u64,
    iops: f64,
    bytes_per_second: f64,
    /// Reads and writes together.
    latency_ns: Option<Latency>,
    latency_mean_ns: f64,
    reads: Option<Kind>,
    writes: Option<Kind>,
}

/// Commands of one kind.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Kind {
    requests: u64,
    latency_ns: Latency,
    latency_mean_ns: f64,
}

impl Kind {
    fn of(requests: &Requests) -> Option<Kind> {
        let latency_ns = Latency::of_some(requests)?;
        Some(Kind { requests: requests.requests, latency_ns, latency_mean_ns: requests.latency.mean() })
    }
}

pub fn run(arguments: &NvmeBench) -> Result<(), Failure> {
    let mut disk = Disk::open(&arguments.subsystem, arguments.namespace)?;
    let (block, depth) = (arguments.block, arguments.depth);
    disk.check_whole("--block", block)?;
    if !(disk.block_bytes..=disk.command_bytes_max.min(disk.bytes)).contains(&block.0) {
        return Err(Failure::bad_input(format_args!("--block {block} is more than one command moves, or nothing"))
            .fix(format_args!("choose at most {}", ByteSize(disk.command_bytes_max.min(disk.bytes)))));
    }
    let commands_max = disk.association.commands_max();
    if depth > commands_max {
        return Err(Failure::bad_input(format_args!("--depth {depth} is more than a queue of the controller holds"))
            .fix(format_args!("choose at most {commands_max}")));
    }
    let under_way_bytes = block.0.saturating_mul(depth.into());
    if under_way_bytes > UNDER_WAY_BYTES_MAX {
        return Err(Failure::bad_input(format_args!(
            "--depth {depth} with --block {block} has {} under way, more than {}",
            ByteSize(under_way_bytes),
            ByteSize(UNDER_WAY_BYTES_MAX)
        ))
        .fix("choose less of either"));
    }
    let mut queue = disk.queue(depth)?;
    if arguments.poll {
        queue.stream_mut().poll();
    }
    let mut load = Load::new(&disk, queue, arguments);
    let seconds = load.run(Duration::from_secs_f64(arguments.seconds))?;
    let findings = load.findings(arguments, seconds);
    if arguments.json {
        return say(&crate::json(&findings)?);
    }
    say(&page(&findings, arguments.namespace, Palette::of_stdout()))
}

/// A queue at work.
struct Load<'d> {
    disk: &'d Disk,
    queue: Client<Channel>,
    workload: Workload,
    command_bytes: u64,
    depth: usize,
    /// By tag: what is under way there.
    under_way: Vec<Slot>,
    reads: Requests,
    writes: Requests,
}

#[derive(Clone, Copy)]
struct Slot {
    operation: Operation,
    blocks: Blocks,
    submitted: Instant,
}

impl<'d> Load<'d> {
    fn new(disk: &'d Disk, queue: Client<Channel>, arguments: &NvmeBench) -> Load<'d> {
        let command_bytes = arguments.block.0;
        let (pattern, read_share) = match arguments.workload {
            NvmeWorkload::Read => (Pattern::Uniform, 100),
            NvmeWorkload::Write => (Pattern::Uniform, 0),
            NvmeWorkload::Mixed => (Pattern::Uniform, 50),
            NvmeWorkload::SequentialRead => (Pattern::Sequential, 100),
            NvmeWorkload::SequentialWrite => (Pattern::Sequential, 0),
        };
        // A command is one block of the workload: none of them is shorter than the others.
        let workload = Workload::new(&WorkloadConfig {
            pattern,
            read_share: Share::percent(read_share),
            access_blocks: 1,
            drive_blocks: disk.bytes / command_bytes,
            seed: arguments.seed,
        });
        let depth = usize::from(arguments.depth);
        let under_way = Vec::with_capacity(depth);
        let (reads, writes) = (Requests::default(), Requests::default());
        Load { disk, queue, workload, command_bytes, depth, under_way, reads, writes }
    }

    /// Keeps the queue full for so long, then lets it run empty. Returns how many seconds it was.
    fn run(&mut self, time: Duration) -> Result<f64, Failure> {
        let mut live = Live::new(false);
        let started = Instant::now();
        let mut now = started;
        for tag in 0..self.depth {
            // Something else in each buffer than zeroes, which a drive may keep more cheaply.
            let slot = self.submit(tag, vec![tag as u8 | 1; self.command_bytes as usize], now);
            self.under_way.push(slot);
        }
        while self.queue.commands_under_way() > 0 {
            let ended = self.queue.wait().map_err(|error| self.disk.association.failure(error))?;
            now = Instant::now();
            let tag = ended.tag as usize;
            let Slot { operation, blocks, submitted } = self.under_way[tag];
            let (what, wanted, requests) = match operation {
                Operation::Read => ("Read", self.command_bytes, &mut self.reads),
                Operation::Write => ("Write", 0, &mut self.writes),
                other => unreachable!("a workload only reads and writes, no {other:?}"),
            };
            check(what, blocks, &ended, wanted)?;
            requests.count(1, Nanos((now - submitted).as_nanos() as u64));
            if now - started < time {
                self.under_way[tag] = self.submit(tag, ended.data, now);
            }
            if live.is_due() {
                let seconds = (now - started).as_secs_f64().max(1e-9);
                let requests = self.reads.requests + self.writes.requests;
                let rate = thousands((requests as f64 / seconds) as u64);
                live.show_share("measure", seconds / time.as_secs_f64(), &format!("{rate} commands/s"));
            }
        }
        Ok((now - started).as_secs_f64())
    }

    /// Submits the next command of the workload, with this buffer.
    fn submit(&mut self, tag: usize, buffer: Vec<u8>, now: Instant) -> Slot {
        let access = self.workload.next_access();
        let blocks = self.disk.blocks(access.first * self.command_bytes, self.command_bytes);
        let (entry, payload) = match access.operation {
            Operation::Read => (nvm::read(blocks), Payload::ToHost(buffer)),
            Operation::Write => (nvm::write(blocks), Payload::ToController(buffer)),
            other => unreachable!("a workload only reads and writes, no {other:?}"),
        };
        self.queue.submit(tag as u64, &entry, payload);
        Slot { operation: access.operation, blocks, submitted: now }
    }

    fn findings(&self, arguments: &NvmeBench, seconds: f64) -> Findings {
        let mut all = self.reads.clone();
        all.merge(&self.writes);
        let iops = all.requests as f64 / seconds.max(1e-9);
        Findings {
            workload: arguments.workload,
            depth: arguments.depth,
            block_bytes: self.command_bytes,
            seconds,
            requests: all.requests,
            iops,
            bytes_per_second: iops * self.command_bytes as f64,
            latency_ns: Latency::of_some(&all),
            latency_mean_ns: all.latency.mean(),
            reads: Kind::of(&self.reads),
            writes: Kind::of(&self.writes),
        }
    }
}

/// The page for people.
fn page(findings: &Findings, namespace: u32, palette: Palette) -> String {
    let Findings { workload, depth, block_bytes, seconds, iops, bytes_per_second, .. } = findings;
    let name = workload.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let mut text = palette.paint(Ink::Bold, &format!("{name} on namespace {namespace}"));
    let block = ByteSize(*block_bytes);
    text.push_str(&palette.paint(Ink::Dim, &format!("   {block} a command, {depth} at a time, for {seconds:.2} s\n")));
    let rate = thousands(iops.round() as u64);
    _ = writeln!(text, "  {rate} IOPS, {:.1} MB/s\n", bytes_per_second / 1e6);
    let header = format!("    {:>12}{:>12}{:>12}{:>12}{:>12}", "mean", "p50", "p99", "p99.9", "max");
    _ = writeln!(text, "{}{}", palette.paint(Ink::Bold, "Latency"), palette.paint(Ink::Dim, &header));
    for (what, kind) in [("reads", &findings.reads), ("writes", &findings.writes)] {
        if let Some(Kind { latency_ns: Latency { p50, p99, p999, max, .. }, latency_mean_ns, .. }) = kind {
            let cells = [latency_mean_ns.round() as u64, *p50, *p99, *p999, *max].map(|nanos| Nanos(nanos).to_string());
            _ = write!(text, "  {what:<9}");
            cells.iter().for_each(|cell| _ = write!(text, "{cell:>12}"));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_page_says_rate_and_latencies() {
        let mut writes = Requests::default();
        [40_000, 50_000, 60_000].into_iter().for_each(|nanos| writes.count(1, Nanos(nanos)));
        let findings = Findings {
            workload: NvmeWorkload::SequentialWrite,
            depth: 32,
            block_bytes: 4096,
            seconds: 5.0,
            requests: 3,
            iops: 123_456.0,
            bytes_per_second: 123_456.0 * 4096.0,
            latency_ns: None,
            latency_mean_ns: 0.0,
            reads: None,
            writes: Kind::of(&writes),
        };
        expect![[r#"
            sequential-write on namespace 1   4 KiB a command, 32 at a time, for 5.00 s
              123 456 IOPS, 505.7 MB/s

            Latency            mean         p50         p99       p99.9         max
              writes        50.0 µs     50.0 µs     60.0 µs     60.0 µs     60.0 µs
        "#]]
        .assert_eq(&page(&findings, 1, Palette::PLAIN));
    }
}
