//! What was measured: the benchmarks of each stack, and what is read from them.

use crate::rocksdb::{Bench, Phase};
use crate::stack::Stack;
use openftl_core::BLOCK_BYTES;

/// One stack with one number of threads.
pub struct Measured {
    pub stack: Stack,
    pub threads: usize,
    pub rounds: Vec<Round>,
}

/// The load of the paper, once.
pub struct Round {
    pub fill: Bench,
    pub sequential: Bench,
    pub random: Bench,
}

/// The load with a write-ahead log.
pub struct Churn {
    pub stack: Stack,
    pub threads: usize,
    pub writes: Bench,
    pub mixed: Bench,
}

/// A kind of operation, and how to find its benchmark in a round.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub bench: fn(&Round) -> &Bench,
}

pub const FILL: Kind = Kind { name: "fillseq", bench: |round| &round.fill };
pub const SEQUENTIAL: Kind = Kind { name: "readseq", bench: |round| &round.sequential };
pub const RANDOM: Kind = Kind { name: "readrandom", bench: |round| &round.random };

impl Kind {
    pub fn rate_in(self, round: &Round) -> f64 {
        rate((self.bench)(round), self.name)
    }
}

impl Measured {
    /// The rounds, the slowest first.
    pub fn sorted(&self, kind: Kind) -> Vec<&Round> {
        let mut rounds: Vec<&Round> = self.rounds.iter().collect();
        rounds.sort_by(|a, b| kind.rate_in(a).total_cmp(&kind.rate_in(b)));
        rounds
    }

    /// The round in the middle.
    pub fn median(&self, kind: Kind) -> &Round {
        self.sorted(kind)[self.rounds.len() / 2]
    }

    /// The benchmark in the middle.
    pub fn bench(&self, kind: Kind) -> &Bench {
        (kind.bench)(self.median(kind))
    }

    pub fn rate(&self, kind: Kind) -> f64 {
        kind.rate_in(self.median(kind))
    }

    /// The rates of the slowest round and of the fastest.
    pub fn range(&self, kind: Kind) -> [f64; 2] {
        let rounds = self.sorted(kind);
        [rounds[0], rounds[rounds.len() - 1]].map(|round| kind.rate_in(round))
    }
}

/// Everything that was measured.
pub struct Results {
    pub measured: Vec<Measured>,
    pub churned: Vec<Churn>,
    /// Why ext4 was left out; nothing if it was not.
    pub lacking: Vec<String>,
}

pub fn phase<'a>(bench: &'a Bench, name: &str) -> Option<&'a Phase> {
    bench.phase(name).ok()
}

pub fn rate(bench: &Bench, name: &str) -> f64 {
    phase(bench, name).map_or(f64::NAN, |phase| phase.rate)
}

/// What RocksDB gave to the drive for each byte that it was given: flushes, compactions and its log.
pub fn rocksdb_amplification(bench: &Bench) -> f64 {
    let written = ["rocksdb.flush.write.bytes", "rocksdb.compact.write.bytes", "rocksdb.wal.bytes"];
    let written: u64 = written.iter().map(|name| bench.ticker(name)).sum();
    written as f64 / bench.ticker("rocksdb.bytes.written") as f64
}

pub fn drive_amplification(bench: &Bench) -> f64 {
    bench.count("/write_amplification")
}

/// What was programmed for each byte that RocksDB was given.
pub fn amplification_of_all(bench: &Bench) -> f64 {
    bench.count("/nand_blocks_written") * BLOCK_BYTES as f64 / bench.ticker("rocksdb.bytes.written") as f64
}

/// KiB that came from media for each operation. What opening the database read counts.
pub fn kib_from_media(bench: &Bench) -> f64 {
    bench.count("/blocks_read") * BLOCK_BYTES as f64 / 1024.0 / bench.operations() as f64
}

pub fn micros_per_operation(bench: &Bench) -> f64 {
    bench.cpu_seconds * 1e6 / bench.operations() as f64
}
