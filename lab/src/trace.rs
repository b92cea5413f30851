//! A recorded trace of real hosts as a load: streamed line by line, never loaded whole.
//!
//! | format | one file in `trace/` |
//! |---|---|
//! | fio's I/O log, versions 2 and 3 | [`fio`] |
//! | text of `blkparse` | [`blkparse`] |
//! | MSR Cambridge, CSV | [`msr`] |
//! | Alibaba block traces, CSV | [`alibaba`] |
//!
//! Whoever calls opens the file. Requests come in their order, as fast as the queue depth lets them or, with a [`Pace`], at
//! their times. Requests of one device are taken, others skipped. A read or write takes every block that it touches, a trim
//! only those that it covers.

pub mod alibaba;
pub mod blkparse;
pub mod fio;
pub mod msr;

use crate::load::{Access, Load, Operation, Sweep};
use openftl_core::{BLOCK_BYTES, Time};
use std::fmt;
use std::io::{BufRead, Read};
use std::str::FromStr;

/// The longest line that is read.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// The most blocks of one read or write; longer ones of a trace are cut into several.
pub const ACCESS_BLOCKS_MAX: u32 = 64;

/// As much of a value as an error shows, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// Why a trace cannot be played.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}, line {line}: {field} `{value}`: {fix}")]
pub struct TraceError {
    /// The trace, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What part of it is wrong.
    pub field: &'static str,
    /// What is there.
    pub value: String,
    /// What to do.
    pub fix: String,
}

/// How a trace is written down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TraceFormat {
    /// fio's I/O log of version 2 or 3.
    Fio,
    /// What `blkparse` prints.
    Blkparse,
    /// CSV of MSR Cambridge.
    Msr,
    /// CSV of Alibaba's block traces.
    Alibaba,
}

impl TraceFormat {
    const ALL: [(&str, TraceFormat); 4] = [
        ("fio", TraceFormat::Fio),
        ("blkparse", TraceFormat::Blkparse),
        ("msr", TraceFormat::Msr),
        ("alibaba", TraceFormat::Alibaba),
    ];

    /// Nanoseconds of a time as it is written down, since whatever moment.
    fn nanos(self, text: &str) -> Option<u64> {
        let units = |nanos: u64| text.parse::<u64>().ok()?.checked_mul(nanos);
        match self {
            TraceFormat::Fio => units(1_000),
            TraceFormat::Blkparse => blkparse::nanos(text),
            TraceFormat::Msr => units(100),
            TraceFormat::Alibaba => units(1_000),
        }
    }

    /// Guesses the format from the first line of a trace.
    #[must_use]
    pub fn of_first_line(line: &str) -> Option<TraceFormat> {
        let fields = line.split(',').count();
        if line.starts_with("fio version") {
            Some(TraceFormat::Fio)
        } else if line.split_whitespace().nth(6).is_some() && blkparse::is_device(line) {
            Some(TraceFormat::Blkparse)
        } else if fields == 7 {
            Some(TraceFormat::Msr)
        } else if fields == 5 {
            Some(TraceFormat::Alibaba)
        } else {
            None
        }
    }
}

impl FromStr for TraceFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<TraceFormat, String> {
        let known = TraceFormat::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, format)| *format).ok_or_else(|| "one of fio, blkparse, msr or alibaba".to_owned())
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = TraceFormat::ALL.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// What becomes of requests beyond the end of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Beyond {
    /// They are an error.
    #[default]
    Error,
    /// They begin again at the drive's start.
    Wrap,
    /// The trace's device had this many bytes: offsets are scaled to the drive, lengths stay.
    Scale {
        /// Bytes of the device that the trace was taken from.
        from_bytes: u64,
    },
}

/// How many times as fast as it was recorded a trace is played.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace(f64);

impl FromStr for Pace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Pace, &'static str> {
        let times =
            if text == "trace" { Some(1.0) } else { text.strip_suffix('x').and_then(|times| times.parse().ok()) };
        let possible = times.filter(|times| (1e-6..=1e6).contains(times));
        possible.map(Pace).ok_or("write trace for its own times, or how many times as fast, as 10x or 0.5x")
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1.0 { f.write_str("trace") } else { write!(f, "{}x", self.0) }
    }
}

/// How a trace is played.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct TraceConfig {
    /// The trace's name, for errors.
    pub file: String,
    /// Its format, or whichever its first line looks like.
    pub format: Option<TraceFormat>,
    /// The device whose requests are played, or that of the first request.
    pub device: Option<String>,
    /// What becomes of requests beyond the end of the drive.
    pub beyond: Beyond,
    /// How fast its times go by; without it, requests are wanted as soon as there is room for them.
    pub pace: Option<Pace>,
    /// Blocks of the drive.
    pub drive_blocks: u64,
    /// Blocks that are written before the trace begins, from the first on.
    pub fill_blocks: u64,
}

/// One line of a trace that is a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Which device it was for.
    pub device: &'a str,
    /// When, in the units of the format; empty if it says nothing of it.
    pub time: &'a str,
    /// What was done.
    pub operation: Operation,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// What is wrong in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault<'a> {
    /// Which field.
    pub field: &'static str,
    /// What it says.
    pub value: &'a str,
    /// What it should.
    pub fix: &'static str,
}

/// The number in a field.
fn number<'a>(field: &'static str, value: Option<&'a str>) -> Result<u64, Fault<'a>> {
    let value = value.unwrap_or_default();
    value.trim().parse().map_err(|_| Fault { field, value, fix: "write a whole number that fits in 64 bits" })
}

/// A trace as a load.
pub struct Trace<R> {
    config: TraceConfig,
    lines: Lines<R>,
    sweep: Sweep,
    /// What is left of the last request.
    rest: Option<Access>,
    /// The times of the first request and of the last, in nanoseconds, where there is a pace.
    times: Option<(u64, u64)>,
    failure: Option<TraceError>,
}

impl<R: BufRead> Trace<R> {
    /// The trace that `reader` holds.
    ///
    /// # Panics
    /// If the drive has no blocks, or fewer than are to be filled.
    #[must_use]
    pub fn new(config: TraceConfig, reader: R) -> Trace<R> {
        assert!(config.drive_blocks > 0 && config.fill_blocks <= config.drive_blocks, "a drive as full: {config:?}");
        Trace {
            sweep: Sweep::new(config.fill_blocks, ACCESS_BLOCKS_MAX),
            lines: Lines { reader, line: 0, bytes: Vec::new() },
            rest: None,
            times: None,
            failure: None,
            config,
        }
    }

    /// The next request, whole, in blocks of the drive.
    fn request(&mut self) -> Result<Option<Access>, TraceError> {
        loop {
            let (number, line) = match self.lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(None),
                Err((number, fault)) => return Err(located(&self.config, number, fault)),
            };
            match played(&mut self.config, number, line) {
                Ok(Played::Access { access, nanos }) => {
                    if let Some(nanos) = nanos {
                        // A request that was written down late is wanted no sooner than the one before it.
                        let (first, last) = self.times.unwrap_or((nanos, nanos));
                        self.times = Some((first, last.max(nanos)));
                    }
                    return Ok(Some(access));
                }
                Ok(Played::Nothing) => {}
                Ok(Played::End) => return Ok(None),
                Err(fault) => return Err(located(&self.config, number, fault)),
            }
        }
    }

    /// The next piece of `access`: as long as an access may be, and not across the end of the drive.
    fn piece(&mut self, access: Access) -> Access {
        if access.operation == Operation::Flush {
            return access;
        }
        let most = if access.operation == Operation::Trim { u32::MAX } else { ACCESS_BLOCKS_MAX };
        let room = (self.config.drive_blocks - access.first).min(u64::from(u32::MAX)) as u32;
        let blocks = access.blocks.min(most).min(room);
        let end = access.first + u64::from(blocks);
        let first = if end == self.config.drive_blocks { 0 } else { end };
        self.rest = (blocks < access.blocks).then_some(Access { first, blocks: access.blocks - blocks, ..access });
        Access { blocks, ..access }
    }
}

impl<R: BufRead> Load for Trace<R> {
    fn step(&mut self) -> Option<Access> {
        if let Some(rest) = self.rest.take() {
            return Some(self.piece(rest));
        }
        if self.failure.is_some() {
            return None;
        }
        match self.request() {
            Ok(access) => access.map(|access| self.piece(access)),
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }

    fn fill_step(&mut self) -> Option<Access> {
        self.sweep.step()
    }

    fn due(&self) -> Option<Time> {
        let (Pace(times), (first, last)) = self.config.pace.zip(self.times)?;
        Some(Time(((last - first) as f64 / times) as u64))
    }

    fn kinds(&self) -> Vec<String> {
        vec!["data".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        self.config.drive_blocks
    }

    fn access_blocks_max(&self) -> u32 {
        ACCESS_BLOCKS_MAX
    }

    fn failure(&self) -> Option<&TraceError> {
        self.failure.as_ref()
    }
}

enum Played {
    Access {
        access: Access,
        /// Its time, if that is asked for.
        nanos: Option<u64>,
    },
    Nothing,
    End,
}

/// What the text of one line means for the drive.
fn played<'a>(config: &mut TraceConfig, line: u64, text: &'a str) -> Result<Played, Fault<'a>> {
    let format = match config.format {
        Some(format) => format,
        None => *config.format.insert(TraceFormat::of_first_line(text).ok_or(Fault {
            field: "format",
            value: text,
            fix: "no known trace begins so; say which it is: fio, blkparse, msr or alibaba",
        })?),
    };
    let record = match format {
        TraceFormat::Fio => fio::record(line, text)?,
        TraceFormat::Blkparse if blkparse::is_summary(text) => return Ok(Played::End),
        TraceFormat::Blkparse => blkparse::record(text)?,
        TraceFormat::Msr => msr::record(text)?,
        TraceFormat::Alibaba => alibaba::record(text)?,
    };
    let Some(record) = record else { return Ok(Played::Nothing) };
    if config.device.get_or_insert_with(|| record.device.to_owned()) != record.device {
        return Ok(Played::Nothing);
    }
    let nanos = config.pace.map(|_| {
        let fix =
            "this says no time in the units of its format; leave out pace to play requests as fast as they are taken";
        format.nanos(record.time).ok_or(Fault { field: "time", value: record.time, fix })
    });
    let nanos = nanos.transpose()?;
    let access = placed(config, &record).ok_or(Fault {
        field: "offset and length",
        value: text,
        fix: "beyond the end of the drive: make it larger, or choose beyond=wrap or beyond=scale:SIZE",
    })?;
    Ok(access.map_or(Played::Nothing, |access| Played::Access { access, nanos }))
}

/// Where a request lies on the drive; `None` if beyond, and nothing inside if it means no block.
fn placed(config: &TraceConfig, record: &Record<'_>) -> Option<Option<Access>> {
    if record.operation == Operation::Flush {
        return Some(Some(Access::FLUSH));
    }
    let block = BLOCK_BYTES as u64;
    let end = record.offset.checked_add(record.bytes)?;
    let (first, end) = match record.operation {
        Operation::Trim => (record.offset.div_ceil(block), end / block),
        _ => (record.offset / block, end.div_ceil(block)),
    };
    if end <= first || record.bytes == 0 {
        return Some(None);
    }
    // Nothing is longer than the drive.
    let length = end - first;
    let drive = config.drive_blocks;
    let (first, blocks) = match config.beyond {
        Beyond::Error if end > drive => return None,
        Beyond::Error => (first, length),
        Beyond::Wrap => (first % drive, length.min(drive)),
        Beyond::Scale { from_bytes } => {
            let from = (from_bytes / block).max(1);
            if first >= from {
                return None;
            }
            let scaled = (u128::from(first) * u128::from(drive) / u128::from(from)) as u64;
            (scaled, length.min(drive - scaled))
        }
    };
    Some(Some(Access::plain(record.operation, first, u32::try_from(blocks).ok()?)))
}

fn located(config: &TraceConfig, line: u64, fault: Fault<'_>) -> TraceError {
    TraceError {
        file: config.file.clone(),
        line,
        field: fault.field,
        value: fault.value.chars().take(SHOWN_CHARS_MAX).collect(),
        fix: fault.fix.to_owned(),
    }
}

/// Lines of a file, one at a time.
struct Lines<R> {
    reader: R,
    /// The number of the last one, from 1.
    line: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not empty, and its number.
    fn next_line(&mut self) -> Result<Option<(u64, &str)>, (u64, Fault<'static>)> {
        loop {
            self.line += 1;
            self.bytes.clear();
            let most = LINE_BYTES_MAX as u64 + 1;
            let line = self.line;
            let fault = |field, fix| (line, Fault { field, value: "", fix });
            let read = (&mut self.reader).take(most).read_until(b'\n', &mut self.bytes);
            match read {
                Err(_) => return Err(fault("line", "the file cannot be read on; look after where it is kept")),
                Ok(0) => return Ok(None),
                Ok(bytes) if bytes > LINE_BYTES_MAX => {
                    return Err(fault("line", "longer than 64 KiB: this is no trace of a known format"));
                }
                Ok(_) => {}
            }
            if !self.bytes.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(self.bytes.trim_ascii());
        let fix = "not text: uncompress the file, or turn binary traces into text first (blkparse)";
        let line = self.line;
        text.map(|text| Some((line, text))).map_err(|_| (line, Fault { field: "line", value: "", fix }))
    }
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
