//! What a value costs the software on its way to the flash: one Store of a key-value drive, or writes of blocks with an index in the host.
//!
//! ```text
//!   Store           key, value ──────────────────────────────────────▶ key-value drive ─▶ medium
//!   one write       key ─▶ index: place ─▶ one write of all blocks ──▶ block drive ─────▶ medium
//!   block writes    key ─▶ index: place ─▶ a write of each block ────▶ block drive ─────▶ medium
//! ```
//!
//! The medium takes no time and everything is one thread, so what is measured is the CPU time of the software. The payload lies in frames when it
//! begins, as a socket leaves it there. The three take turns, so that other work on the machine hits all of them alike.

use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, Frame, FrameForm, VirtualClock};
use openftl_experiments::{Assistant, Check, Claim, Experiment, ExperimentError, Figure, Options, Paper, Run};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::target::{BlockTarget, Durability, Request, Target};
use openftl_parts::words::Handle;
use openftl_parts::{Config, chunks_per_pu};
use openftl_values::{Condition, Key, Value, ValueConfig, ValueFtl, ValueRequest, ValueTarget};
use std::collections::BTreeMap;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-target",
    question: "What does a value cost the software: as one Store, or as writes of blocks with an index in the host?",
    paper: Some(Paper {
        title: "LightNVM: Lightning Fast Evaluation Platform for Non-Volatile Memories",
        place: "its table of the key-value target",
        found: "Writes of 1 MB to null hardware: the key-value target of LightNVM comes to 44.7 GB/s at 21.20 µs each, its \
                page target to 28.1 GB/s at 33.02 µs, and the block layer alone to 29 GB/s at 32.04 µs.",
    }),
    claims: &["001-4", "001-5"],
    in_virtual_time: false,
    memory_bytes: [3 << 30, 1 << 30],
    run,
};

/// Chunks of 24 MiB: a value has up to 1 MiB.
const PROFILE: &str = "granby";

/// The length of the values of the paper.
const LONG: u64 = 1 << 20;

/// A Store may program so many times the bytes of a value, at most: its header and record, and what a page leaves of its last block.
const PROGRAMMED_MAX: f64 = 1.05;

struct Scale {
    capacity: u64,
    lengths: &'static [u64],
    /// Bytes of values of each turn.
    turn_bytes: u64,
    rounds: usize,
}

const FULL: Scale = Scale {
    capacity: 1 << 30,
    lengths: &[4 << 10, 16 << 10, 64 << 10, 256 << 10, LONG],
    turn_bytes: 256 << 20,
    rounds: 7,
};
const QUICK: Scale = Scale { capacity: 256 << 20, lengths: &[64 << 10, LONG], turn_bytes: 32 << 20, rounds: 1 };

/// How a value goes to a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    Store,
    OneWrite,
    BlockWrites,
}

impl Path {
    const ALL: [Path; 3] = [Path::Store, Path::OneWrite, Path::BlockWrites];

    fn name(self) -> &'static str {
        match self {
            Path::Store => "a Store",
            Path::OneWrite => "one write, index in the host",
            Path::BlockWrites => "a write of each block, index in the host",
        }
    }
}

/// What a turn took.
#[derive(Clone, Copy, Default)]
struct Turn {
    values: f64,
    bytes: f64,
    cpu_seconds: f64,
    programmed_bytes: f64,
}

impl Turn {
    fn us_per_value(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.values
    }

    fn gb_per_second(&self) -> f64 {
        self.bytes / self.cpu_seconds / 1e9
    }

    fn programmed(&self) -> f64 {
        self.programmed_bytes / self.bytes
    }
}

/// The two drives, and the index that a host of the second keeps.
struct Drives {
    values: ValueFtl<EmulatedDevice>,
    blocks: BlockFtl<EmulatedDevice>,
    clocks: [VirtualClock; 2],
    index: BTreeMap<Key, u64>,
    capacity_blocks: u64,
    next_block: u64,
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    assistant.progress(0.0, "making two drives");
    let mut drives = Drives::new(&scale, options.seed)?;
    let steps = (scale.rounds * scale.lengths.len()) as f64;
    let mut done = 0.0;
    // By paths, then by lengths: one turn a round.
    let mut turns = vec![vec![Vec::new(); scale.lengths.len()]; Path::ALL.len()];
    for round in 0..=scale.rounds {
        for (column, length) in scale.lengths.iter().enumerate() {
            assistant.progress(done / (steps + 1.0), &format!("values of {}", ByteSize(*length)));
            for (row, path) in Path::ALL.into_iter().enumerate() {
                let turn = drives.turn(path, *length, scale.turn_bytes, assistant)?;
                // The first round finds memory that nobody has touched yet.
                if round > 0 {
                    turns[row][column].push(turn);
                }
            }
            done += 1.0;
        }
    }
    assistant.progress(1.0, "done");
    let median = |turns: &Vec<Turn>| {
        let mut turns = turns.clone();
        turns.sort_by(|a, b| a.us_per_value().total_cmp(&b.us_per_value()));
        turns[turns.len() / 2]
    };
    let turns: Vec<Vec<Turn>> = turns.iter().map(|columns| columns.iter().map(median).collect()).collect();
    Ok(told(&scale, &turns))
}

impl Drives {
    fn new(scale: &Scale, seed: u64) -> Result<Drives, ExperimentError> {
        let capacity_blocks = scale.capacity / BLOCK_BYTES as u64;
        let config = Config {
            capacity_blocks,
            payload: FrameForm::Bytes,
            host_frames: 4096,
            drive_id: seed,
            ..Config::default()
        };
        let profile = || Profile::builtin(PROFILE);
        let shape = profile()?.geometry(profile()?.chunks_per_pu)?;
        // As much room for both as neither has to clean much for values of a quarter of it.
        let chunks = chunks_per_pu(&shape, &config, Share::percent(30))?.max(8);
        let device = || {
            EmulatedDevice::new(profile()?, chunks, Store::Ram, Timing::Instant, seed).map_err(ExperimentError::from)
        };
        let mut clocks = [VirtualClock::default(); 2];
        let values = ValueFtl::format(device()?, config.clone(), ValueConfig::default(), &mut clocks[0])?;
        let blocks = BlockFtl::format(device()?, config, &mut clocks[1])?;
        let mut drives = Drives { values, blocks, clocks, index: BTreeMap::new(), capacity_blocks, next_block: 0 };
        drives.values.set_staging(2 * LONG as usize / BLOCK_BYTES);
        Ok(drives)
    }

    /// Writes values of `length` bytes, `bytes` in all, under keys of which each comes four times.
    fn turn(
        &mut self,
        path: Path,
        length: u64,
        bytes: u64,
        assistant: &mut dyn Assistant,
    ) -> Result<Turn, ExperimentError> {
        let count = bytes / length;
        let keys = (count / 4).max(1);
        let key = |number: u64| Key::new(format!("{length:06x}{:08}", number % keys).as_bytes()).expect("14 bytes");
        if path != Path::Store {
            // Places of values of other lengths are free again.
            (self.index, self.next_block) = (BTreeMap::new(), 0);
        }
        let programmed = |drives: &Drives| match path {
            Path::Store => drives.values.block().statistics().nand_blocks_written(),
            Path::OneWrite | Path::BlockWrites => drives.blocks.statistics().nand_blocks_written(),
        };
        let before = programmed(self);
        let began = assistant.cpu_time();
        for number in 0..count {
            match path {
                Path::Store => self.store(key(number), length)?,
                Path::OneWrite => self.write(key(number), length, length / BLOCK_BYTES as u64)?,
                Path::BlockWrites => self.write(key(number), length, 1)?,
            }
        }
        let cpu_seconds = (assistant.cpu_time().0 - began.0) as f64 * 1e-9;
        let programmed_bytes = ((programmed(self) - before) * BLOCK_BYTES as u64) as f64;
        // What the next turn needs room for.
        if path == Path::Store {
            for number in 0..keys {
                self.values_end(ValueRequest::Delete { key: key(number), durability: Durability::Volatile })?;
            }
        }
        Ok(Turn { values: count as f64, bytes: (count * length) as f64, cpu_seconds, programmed_bytes })
    }

    fn store(&mut self, key: Key, length: u64) -> Result<(), ExperimentError> {
        let mut frames = Vec::new();
        let needed = length as usize / BLOCK_BYTES;
        let has_frames = self.values.staging_mut().acquire_many(FrameForm::Bytes, needed, &mut frames);
        assert!(has_frames, "the value before has been taken");
        let value = Value::Frames { frames: &frames, bytes: length as u32 };
        self.values_end(ValueRequest::Store {
            key,
            value,
            condition: Condition::Always,
            durability: Durability::Volatile,
        })
    }

    /// Begins a request of the key-value drive, and waits until it has ended.
    fn values_end(&mut self, request: ValueRequest<'_>) -> Result<(), ExperimentError> {
        let (drive, clock) = (&mut self.values, &mut self.clocks[0]);
        drive.submit(clock.now(), 1, request).map_err(of_drive)?;
        let mut done = Vec::new();
        loop {
            drive.poll(clock.now(), &mut done);
            if let Some(done) = done.pop() {
                return done.result.map(drop).map_err(of_drive);
            }
            clock.wait_until(drive.next_due().expect("the drive ends what was asked"));
        }
    }

    /// Writes a value to its place, or to a new one, `blocks` of its blocks at a time; the index says where it is.
    fn write(&mut self, key: Key, length: u64, blocks: u64) -> Result<(), ExperimentError> {
        let all = length / BLOCK_BYTES as u64;
        let next = &mut self.next_block;
        let place = *self.index.entry(key).or_insert_with(|| {
            let place = *next;
            *next += all;
            place
        });
        assert!(place + all <= self.capacity_blocks, "the values of a turn take a quarter of what it writes");
        let (drive, clock) = (&mut self.blocks, &mut self.clocks[1]);
        let (mut done, mut under_way) = (Vec::new(), 0);
        for first in (place..place + all).step_by(blocks as usize) {
            let mut frames: Vec<Frame> = Vec::new();
            while !drive.frames_mut().acquire_many(FrameForm::Bytes, blocks as usize, &mut frames) {
                drive.poll(clock.now(), &mut done);
                let due = drive.next_due().expect("the drive gives frames back");
                clock.wait_until(due);
            }
            let (durability, handle) = (Durability::Volatile, Handle::NONE);
            let write = Request::Write { first, frames: &frames, durability, handle };
            BlockTarget::submit(drive, clock.now(), first, write).map_err(of_drive)?;
            under_way += 1;
        }
        loop {
            drive.poll(clock.now(), &mut done);
            for done in done.drain(..) {
                done.result.map_err(of_drive)?;
                under_way -= 1;
            }
            if under_way == 0 {
                return Ok(());
            }
            clock.wait_until(drive.next_due().expect("the drive ends what was asked"));
        }
    }
}

fn of_drive(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Host(error.to_string())
}

fn told(scale: &Scale, turns: &[Vec<Turn>]) -> Run {
    let mut run = Run::default();
    run.parameter("drives", format_args!("{PROFILE}, {} in memory, instant media", ByteSize(scale.capacity)));
    run.parameter("host", "one thread that is host and drive; values one after the other");
    run.parameter("keys", "each is stored four times; the values take a quarter of what is written");
    run.parameter("measured", format_args!("median of {} turns of {}", scale.rounds, ByteSize(scale.turn_bytes)));
    let columns = [
        ("path", ""),
        ("value", "KiB"),
        ("CPU", "µs/value"),
        ("rate", "GB/s of CPU time"),
        ("programmed", "bytes/byte"),
    ];
    let mut table = Table::new("software", &columns);
    for (path, turns) in Path::ALL.iter().zip(turns) {
        for (length, turn) in scale.lengths.iter().zip(turns) {
            table.row(vec![
                Cell::Text(path.name().to_owned()),
                Cell::Count(length >> 10),
                Cell::Number(turn.us_per_value(), 1),
                Cell::Number(turn.gb_per_second(), 2),
                Cell::Number(turn.programmed(), 3),
            ]);
        }
    }
    run.tables.push(table);
    run.plots.push(Plot {
        name: "rate",
        title: "What the software can do, by the length of values".to_owned(),
        x: Axis::even("value", "KiB"),
        y: Axis::even("rate", "GB/s of CPU time"),
        series: Path::ALL
            .iter()
            .zip(turns)
            .map(|(path, turns)| {
                let lengths = scale.lengths.iter().map(|length| (length >> 10) as f64);
                Series::new(path.name(), lengths.zip(turns.iter().map(Turn::gb_per_second)).collect())
            })
            .collect(),
        caption: vec!["One thread, and a medium that takes no time: the CPU time of host and drive.".to_owned()],
    });
    let last = scale.lengths.len() - 1;
    let [store, one, each] = [0, 1, 2].map(|row: usize| turns[row][last]);
    let why = "The drive of the paper keeps a value where the host put it; the pages of this one have no alignment, so a Store copies the \
               value behind its header, and verifies all of it by a checksum of its own. A write of blocks copies nothing here. What one request \
               instead of 256 saves shows in the third path, which is how a block layer of pages would have it.";
    run.claims.push(Claim::new(
        &["001-4"],
        "Values of 1 MB reach a higher rate as values than as blocks.",
        vec![
            Figure::effect(
                "against one write",
                " times",
                2,
                44.7 / 28.1,
                1.0,
                store.gb_per_second() / one.gb_per_second(),
            ),
            Figure::effect(
                "against a write of each block",
                " times",
                2,
                44.7 / 29.0,
                1.0,
                store.gb_per_second() / each.gb_per_second(),
            ),
        ],
        why,
    ));
    run.claims.push(Claim::new(
        &["001-5"],
        "A value of 1 MB takes less time as a value than as blocks.",
        vec![
            Figure::effect("of one write", " times", 2, 21.20 / 33.02, 1.0, store.us_per_value() / one.us_per_value()),
            Figure::effect(
                "of a write of each block",
                " times",
                2,
                21.20 / 32.04,
                1.0,
                store.us_per_value() / each.us_per_value(),
            ),
        ],
        why,
    ));
    run.checks.push(Check {
        claim: "A Store of 1 MiB programs little more than its value.",
        check: "at most 1.05 bytes for each byte, header, record, log and cleaning among them",
        holds: store.programmed() <= PROGRAMMED_MAX,
        measured: format!("{:.3}; one write of 256 blocks {:.3}", store.programmed(), one.programmed()),
        why: "52 bytes stand beside a value, and pages follow each other without gaps.",
    });
    run.notes = vec![
        "CPU time is that of one thread, which is host and drive; there is no kernel in it, so that the paper's time in the kernel (001-6) \
         has no figure here.",
        "The medium is memory of this process: programming a block copies it there, for all paths alike, and is in the CPU time.",
        "A real clock: unlike experiments in virtual time this one does not repeat itself to the last digit.",
    ];
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Nanos;

    /// A stopwatch that counts how often it was looked at: no figure of the clock is judged here.
    struct Counting(u64);

    impl Assistant for Counting {
        fn progress(&mut self, _share: f64, _doing: &str) {}

        fn cpu_time(&mut self) -> Nanos {
            self.0 += 1;
            Nanos(self.0 * 1000)
        }
    }

    #[test]
    fn each_path_writes_all_of_its_values_and_a_store_programs_little_more_than_them() {
        let told = run(Options { seed: 1, quick: true }, &mut Counting(0)).unwrap();
        assert_eq!(told.tables[0].rows.len(), 6);
        for row in &told.tables[0].rows {
            let Cell::Number(programmed, _) = row[4] else { panic!("{row:?}") };
            assert!((0.9..1.5).contains(&programmed), "{}", told.tables[0]);
        }
        assert!(told.checks.iter().all(|check| check.holds), "{:?}", told.checks);
    }
}
