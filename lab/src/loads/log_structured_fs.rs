//! A file system that is a log: segments, several of them open at a time, and a cleaner of its own.
//!
//! ```text
//!   hot data   ▐████▒▒▒▌                  units go to the log of their kind;
//!   warm data  ▐██████▒▌                  what the cleaner moves goes to the cold ones
//!   cold data  ▐█▒▒▒▒▒▒▌
//!   nodes      ▐███▒▒▒▒▌ ▐█▒▒▒▒▒▒▌        closed: ▐█ █  ██▌ ▐  █   ▌ …   free: ▐       ▌ …
//! ```
//!
//! A segment is written once from its start to its end; when nothing of it is valid any more it is trimmed and free
//! again. When free ones run short, the segment with the least that is valid is cleaned.

use super::{Numbers, Object, ObjectConfig};
use crate::load::{Access, Hint, Load, Operation};
use crate::workload::{below, threshold};
use openftl_core::units::Share;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Blocks of a segment, where the drive is large: 2 MiB.
const SEGMENT_BLOCKS: u64 = 512;

/// Segments of a small drive at least.
const SEGMENTS_MIN: u64 = 256;

/// Free segments below which the cleaner works, and up to which.
const FREE_LOW: usize = 6;
const FREE_HIGH: usize = 8;

/// Segments that hold nothing that lives: open and free ones, and some more so that cleaning gains something.
const SPARE: u64 = 20;

/// The part of the data that is hot, and of the writes that go there.
const HOT_SPACE: Share = Share::percent(10);
const HOT_WRITES: Share = Share::percent(90);

/// Units of data that a unit of nodes points at, and writes of data that come to one of a node.
const UNITS_PER_NODE: u64 = 1018;
const WRITES_PER_NODE_WRITE: u64 = 8;

const NAMES: [&str; LOGS] = ["hot data", "warm data", "cold data", "nodes", "cold nodes"];
const LOGS: usize = 5;
const HOT_DATA: usize = 0;
const WARM_DATA: usize = 1;
const COLD_DATA: usize = 2;
const NODES: usize = 3;
const COLD_NODES: usize = 4;

/// No unit, or no place.
const NONE: u32 = u32::MAX;

/// A segment that is cleaned.
#[derive(Clone, Copy, Debug)]
struct Cleaning {
    segment: u32,
    next: u32,
}

/// A file system that is a log.
pub struct LogStructuredFs {
    rng: Xoshiro256PlusPlus,
    unit_blocks: u32,
    segment_units: u32,
    /// Data and nodes, of which the first are data.
    units: u32,
    data: u32,
    hot: u32,
    /// Where each unit lies.
    places: Vec<u32>,
    /// Which unit lies at each place.
    owners: Vec<u32>,
    /// Valid units of each segment.
    valid: Vec<u32>,
    /// Whether it is written to its end and may be cleaned.
    closed: Vec<bool>,
    free: VecDeque<u32>,
    logs: [Option<Object>; LOGS],
    cleaning: Option<Cleaning>,
    is_short: bool,
    /// Steps that are decided and not yet taken.
    decided: VecDeque<Access>,
    /// Units that were written for the first time.
    filled: u32,
    numbers: Numbers,
}

impl LogStructuredFs {
    /// Segments that a drive has at least.
    pub const SEGMENTS_LEAST: u64 = 2 * SPARE + 1;

    /// The file system that `config` describes; an access is a unit. `segment_blocks` is a multiple of it, or left to the file system.
    ///
    /// # Panics
    /// If the drive is too small.
    #[must_use]
    pub fn new(config: ObjectConfig, segment_blocks: Option<u64>) -> LogStructuredFs {
        let unit_blocks = u64::from(config.access_blocks);
        let segment_blocks = segment_blocks.unwrap_or(SEGMENT_BLOCKS.min(config.drive_blocks / SEGMENTS_MIN));
        let segment_units = (segment_blocks / unit_blocks).max(1);
        let segments = config.drive_blocks / (segment_units * unit_blocks);
        assert!(segments >= Self::SEGMENTS_LEAST, "a log needs more segments than {segments}: {config:?}");
        let units = (config.live_blocks_max() / unit_blocks).min((segments - SPARE) * segment_units);
        assert!(segments * segment_units < u64::from(NONE), "places of 32 bits reach all of the drive");
        let nodes = units.div_ceil(UNITS_PER_NODE + 1);
        let data = units - nodes;
        LogStructuredFs {
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            unit_blocks: config.access_blocks,
            segment_units: segment_units as u32,
            units: units as u32,
            data: data as u32,
            hot: HOT_SPACE.of(data).clamp(1, data - 1) as u32,
            places: vec![NONE; units as usize],
            owners: vec![NONE; (segments * segment_units) as usize],
            valid: vec![0; segments as usize],
            closed: vec![false; segments as usize],
            free: (0..segments as u32).collect(),
            logs: [None; LOGS],
            cleaning: None,
            is_short: false,
            decided: VecDeque::with_capacity(8),
            filled: 0,
            numbers: Numbers::default(),
        }
    }

    fn log_of(&self, unit: u32) -> usize {
        match unit {
            _ if unit >= self.data => NODES,
            _ if unit < self.hot => HOT_DATA,
            _ => WARM_DATA,
        }
    }

    fn segment_first(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.segment_units) * u64::from(self.unit_blocks)
    }

    /// Writes `unit` behind what is in `log`.
    fn append(&mut self, log: usize, unit: u32) {
        if self.logs[log].is_none() {
            let segment = self.free.pop_front().expect("the cleaner keeps segments free");
            let hint = Hint { kind: log as u8, object: self.numbers.next() };
            let object = Object::new(self.segment_first(segment), self.segment_units * self.unit_blocks, hint);
            self.decided.push_back(object.allocate());
            self.logs[log] = Some(object);
        }
        let Some(open) = &mut self.logs[log] else { return };
        let access = open.write(self.unit_blocks);
        let is_written = open.is_written();
        self.decided.push_back(access);
        let place = (access.first / u64::from(self.unit_blocks)) as u32;
        let segment = place / self.segment_units;
        self.owners[place as usize] = unit;
        self.valid[segment as usize] += 1;
        if is_written {
            self.logs[log] = None;
            self.closed[segment as usize] = true;
        }
        let old = std::mem::replace(&mut self.places[unit as usize], place);
        if old != NONE {
            self.owners[old as usize] = NONE;
            let before = old / self.segment_units;
            self.valid[before as usize] -= 1;
            self.free_if_empty(before);
        }
        self.free_if_empty(segment);
    }

    /// Trims a segment of which nothing is needed any more.
    fn free_if_empty(&mut self, segment: u32) {
        if self.closed[segment as usize] && self.valid[segment as usize] == 0 {
            self.closed[segment as usize] = false;
            self.free.push_back(segment);
            let blocks = self.segment_units * self.unit_blocks;
            self.decided.push_back(Access::plain(Operation::Trim, self.segment_first(segment), blocks));
        }
    }

    /// Moves one more unit of the segment that is cleaned.
    fn clean(&mut self) {
        let Some(Cleaning { segment, next }) = self.cleaning else {
            let closed = (0..self.valid.len()).filter(|&segment| self.closed[segment]);
            let segment = closed.min_by_key(|&segment| self.valid[segment]);
            self.cleaning = segment.map(|segment| Cleaning { segment: segment as u32, next: 0 });
            return;
        };
        let begin = segment * self.segment_units;
        // Once all of it is moved it is free, and may even be written again.
        let is_done = next == self.segment_units || !self.closed[segment as usize];
        self.cleaning = (!is_done).then_some(Cleaning { segment, next: next + 1 });
        if is_done {
            return;
        }
        let unit = self.owners[(begin + next) as usize];
        if unit != NONE {
            let first = u64::from(begin + next) * u64::from(self.unit_blocks);
            self.decided.push_back(Access::plain(Operation::Read, first, self.unit_blocks));
            self.append(if unit < self.data { COLD_DATA } else { COLD_NODES }, unit);
        }
    }

    /// The host overwrites a unit, and now and then the node that points there.
    fn overwrite(&mut self) {
        let is_hot = self.rng.next_u64() < threshold(HOT_WRITES);
        let draw = self.rng.next_u64();
        let unit = match is_hot {
            true => below(draw, u64::from(self.hot)) as u32,
            false => self.hot + below(draw, u64::from(self.data - self.hot)) as u32,
        };
        self.append(self.log_of(unit), unit);
        if self.rng.next_u64().is_multiple_of(WRITES_PER_NODE_WRITE) {
            let node = (self.data + unit / UNITS_PER_NODE as u32).min(self.units - 1);
            self.append(NODES, node);
        }
    }
}

impl Load for LogStructuredFs {
    fn step(&mut self) -> Option<Access> {
        while self.decided.is_empty() {
            self.is_short = self.free.len() < if self.is_short { FREE_HIGH } else { FREE_LOW };
            if self.is_short {
                self.clean();
            } else {
                self.overwrite();
            }
        }
        self.decided.pop_front()
    }

    fn fill_step(&mut self) -> Option<Access> {
        if self.decided.is_empty() && self.filled < self.units {
            let unit = self.filled;
            self.filled += 1;
            self.append(self.log_of(unit), unit);
        }
        self.decided.pop_front()
    }

    fn kinds(&self) -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    /// To the drive all of a segment lives until it is trimmed, so this is far more than what the file system holds.
    fn live_blocks_max(&self) -> u64 {
        self.owners.len() as u64 * u64::from(self.unit_blocks)
    }

    fn access_blocks_max(&self) -> u32 {
        self.unit_blocks
    }
}
