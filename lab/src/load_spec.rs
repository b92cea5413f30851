//! A load as text, and how it is made: `NAME`, `NAME:ARGUMENT`, and options behind commas.
//!
//! ```text
//!   uniform                     zipf:0.99,access=16KiB,reads=30%       writers:8,fill=80%       lsm:4,trees=4,discard=no
//!   sequential                  hot-cold:90/10                         tenants:lsm*2+double-write,fill=70%
//!   trace:web.csv,format=msr,device=0,beyond=wrap
//! ```
//!
//! Options of a tenant are its own; `tenants` itself has none. Sizes that are not given follow from the drive's.

use crate::likeness::nearest;
use crate::load::Load;
use crate::loads::{
    DoubleWrite, DoubleWriteConfig, LogStructuredFs, LsmConfig, LsmTrees, ObjectConfig, Segments, Tenants, Writers,
};
use crate::trace::{Beyond, Pace, Trace, TraceConfig, TraceFormat};
use crate::workload::{Pattern, Workload, WorkloadConfig};
use openftl_core::BLOCK_BYTES;
use openftl_core::units::{ByteSize, Share};
use openftl_core::word::one_of;
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use std::fmt;
use std::io::BufRead;
use std::str::FromStr;

/// The smallest drive, or part of one, for loads that have sizes of their own: 16 MiB, in blocks.
pub const DRIVE_BLOCKS_MIN: u64 = 4096;

/// The fullest that loads which move about may keep a drive.
const FILL_MAX: Share = Share::percent(95);

/// Blocks of an access: as many as a transaction has.
const ACCESS_BLOCKS_MAX: u64 = TRANSACTION_BLOCKS_MAX as u64;

/// Blocks of a unit of a log-structured file system: 16 KiB.
const LOG_UNIT_BLOCKS: u32 = 4;

/// Blocks of an access of writers of segments: 64 KiB.
const SEGMENT_ACCESS_BLOCKS: u32 = 16;

/// Blocks of a segment, where the drive is large and says nothing: 16 MiB.
const SEGMENT_BLOCKS: u64 = 4096;

/// LSM-trees of one file system.
const TREES_MAX: u32 = 16;

/// Tenants of one drive.
const TENANTS_MAX: usize = 64;

/// The loads, by the word that each begins with.
pub const NAMES: [&str; 11] = [
    "uniform",
    "sequential",
    "zipf",
    "hot-cold",
    "writers",
    "lsm",
    "log-structured-fs",
    "segments",
    "double-write",
    "tenants",
    "trace",
];

/// The load that was probably meant, as a question.
fn meant(word: &str) -> String {
    nearest(word, NAMES).map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}

/// Which model of a host.
#[derive(Clone, PartialEq, Debug)]
pub enum Model {
    /// Any place as likely as any other.
    Uniform,
    /// In order, and from the start again.
    Sequential,
    /// Few places are popular.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// A share of the accesses goes to a share of the space.
    HotCold {
        /// The hot part of the accesses.
        accesses: Share,
        /// The hot part of the space.
        space: Share,
    },
    /// Writers of files that live for different times.
    Writers {
        /// How many, 1 to 255.
        writers: u32,
    },
    /// LSM-trees in one file system.
    Lsm {
        /// Compactions of a tree that write at a time.
        jobs: u32,
        /// How many trees there are.
        trees: u32,
        /// Whether writes go to a log first.
        log: bool,
        /// Whether files that are deleted are trimmed.
        discard: bool,
    },
    /// A file system that is a log, with a cleaner of its own.
    LogStructuredFs,
    /// Writers that fill segments, which are trimmed.
    Segments {
        /// How many, 1 to 255.
        writers: u32,
        /// Whether any full segment is trimmed, and not the oldest.
        any: bool,
    },
    /// A database that writes each page to a double-write buffer first.
    DoubleWrite {
        /// The exponent of the pages' popularity.
        theta: f64,
    },
    /// Several loads side by side, each on an equal part of the drive.
    Tenants(Vec<LoadSpec>),
    /// A recorded trace.
    Trace {
        /// Its file.
        file: String,
        /// Its format, if it is not to be guessed.
        format: Option<TraceFormat>,
        /// The device whose requests are played, or that of the first request.
        device: Option<String>,
        /// What becomes of requests beyond the drive.
        beyond: Beyond,
        /// Whether its times count, and how fast they go by.
        pace: Option<Pace>,
    },
}

/// A load, so far only described.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadSpec {
    /// What is modelled.
    pub model: Model,
    /// Bytes of an access; each model has its own default.
    pub access: Option<ByteSize>,
    /// Share of the accesses that read; none unless given.
    pub reads: Option<Share>,
    /// How much of the drive is live; each model has its own default.
    pub fill: Option<Share>,
    /// Bytes of a segment, of models that have some; those of the drive, if that has some.
    pub segment: Option<ByteSize>,
    /// Whether what is popular lies together at the beginning of the drive, and not scattered over it.
    pub clustered: bool,
}

/// A load that cannot be understood, or not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// No such load.
    #[error("`{word}` is no load{}; write {}", meant(word), one_of(&NAMES))]
    Name {
        /// What was written.
        word: String,
    },
    /// What stands behind the colon.
    #[error("{load}:{value}: {fix}")]
    Argument {
        /// The load.
        load: String,
        /// What was written.
        value: String,
        /// What is possible.
        fix: String,
    },
    /// An option that this load does not have.
    #[error("{load} has no option `{option}`; write {possible}")]
    Option {
        /// The load.
        load: String,
        /// What was written.
        option: String,
        /// What is possible.
        possible: &'static str,
    },
    /// An option's value.
    #[error("{option}={value}: {fix}")]
    Value {
        /// The option.
        option: &'static str,
        /// What was written.
        value: String,
        /// What is possible.
        fix: String,
    },
    /// The drive is too small.
    #[error("{load} needs {} at least, and has {} here; make the drive larger", ByteSize(least * BLOCK_BYTES as u64), ByteSize(blocks * BLOCK_BYTES as u64))]
    Drive {
        /// The load.
        load: String,
        /// Blocks that it has.
        blocks: u64,
        /// Blocks that it needs.
        least: u64,
    },
    /// The drive is written in order.
    #[error(
        "{load} overwrites blocks, and the drive has segments that are written in order; write segments or log-structured-fs"
    )]
    Overwrites {
        /// The load.
        load: String,
    },
    /// The trace cannot be opened.
    #[error("trace {file}: {reason}; name a file that can be read")]
    Open {
        /// The file.
        file: String,
        /// Why not.
        reason: String,
    },
}

/// Opens a trace by its name: the lab itself opens no file.
pub type OpenTrace<'a> = &'a mut dyn FnMut(&str) -> std::io::Result<Box<dyn BufRead>>;

impl LoadSpec {
    /// A load without options.
    #[must_use]
    pub fn new(model: Model) -> LoadSpec {
        LoadSpec { model, access: None, reads: None, fill: None, segment: None, clustered: false }
    }

    /// Makes the load for a drive of `drive_blocks` blocks, with segments of so many blocks if it is written in order. The same seed
    /// makes the same steps.
    ///
    /// # Errors
    /// If the drive is too small or of another kind, or a trace cannot be opened.
    pub fn build(
        &self,
        drive_blocks: u64,
        drive_segment: Option<u64>,
        seed: u64,
        open: OpenTrace<'_>,
    ) -> Result<Box<dyn Load>, LoadError> {
        let segment_blocks = self.segment_blocks(drive_blocks, drive_segment)?;
        let least = match &self.model {
            Model::Tenants(tenants) => DRIVE_BLOCKS_MIN * tenants.len() as u64,
            Model::Writers { writers } => Writers::drive_blocks_min(*writers).max(DRIVE_BLOCKS_MIN),
            Model::Lsm { .. } | Model::LogStructuredFs | Model::DoubleWrite { .. } => DRIVE_BLOCKS_MIN,
            _ => 1,
        };
        if drive_blocks < least {
            return Err(LoadError::Drive { load: self.to_string(), blocks: drive_blocks, least });
        }
        // A file system as ext4 keeps the last 5 % for itself, and trees grow until they have the rest.
        let fill = if matches!(self.model, Model::Lsm { .. }) { FILL_MAX } else { Share::percent(85) };
        let objects = |access_blocks| ObjectConfig {
            drive_blocks,
            fill: self.fill.unwrap_or(fill),
            access_blocks: self.access_blocks(access_blocks),
            seed,
        };
        Ok(match &self.model {
            Model::Uniform => self.pattern(Pattern::Uniform, drive_blocks, seed),
            Model::Sequential => self.pattern(Pattern::Sequential, drive_blocks, seed),
            Model::Zipf { theta } => self.pattern(Pattern::Zipf { theta: *theta }, drive_blocks, seed),
            Model::HotCold { accesses, space } => {
                self.pattern(Pattern::HotCold { accesses: *accesses, space: *space }, drive_blocks, seed)
            }
            Model::Writers { writers } => Box::new(Writers::new(objects(64), *writers)),
            &Model::Lsm { jobs, trees, log, discard } => {
                let lsm = LsmTrees::new(LsmConfig { objects: objects(64), jobs, trees, log, discard });
                Box::new(lsm.ok_or_else(|| {
                    let fix = "the trees have no room to work in; choose a larger fill, or fewer of them".to_owned();
                    LoadError::Value { option: "trees", value: trees.to_string(), fix }
                })?)
            }
            Model::LogStructuredFs => Box::new(LogStructuredFs::new(objects(LOG_UNIT_BLOCKS), segment_blocks)),
            Model::Segments { writers, any } => {
                let segment_blocks = segment_blocks.expect("it is known for this model");
                let reads = self.reads.unwrap_or_default();
                Box::new(Segments::new(objects(SEGMENT_ACCESS_BLOCKS), segment_blocks, *writers, *any, reads))
            }
            Model::DoubleWrite { theta } => Box::new(DoubleWrite::new(DoubleWriteConfig {
                objects: objects(4),
                theta: *theta,
                reads: self.reads.unwrap_or_default(),
            })),
            Model::Tenants(tenants) => {
                let part = drive_blocks / tenants.len() as u64;
                let mut loads = Vec::with_capacity(tenants.len());
                for (index, tenant) in (1..).zip(tenants) {
                    let load = tenant.build(part, None, seed.wrapping_add(index << 32), &mut *open)?;
                    loads.push((tenant.to_string(), load));
                }
                Box::new(Tenants::new(loads, part, seed))
            }
            Model::Trace { file, format, device, beyond, pace } => {
                let reader =
                    open(file).map_err(|error| LoadError::Open { file: file.clone(), reason: error.to_string() })?;
                // A host that appends to segments filled them itself.
                let fill = if drive_segment.is_some() { Share::default() } else { Share::percent(100) };
                let config = TraceConfig {
                    file: file.clone(),
                    format: *format,
                    device: device.clone(),
                    beyond: *beyond,
                    pace: *pace,
                    drive_blocks,
                    fill_blocks: self.fill.unwrap_or(fill).of(drive_blocks).min(drive_blocks),
                };
                Box::new(Trace::new(config, reader))
            }
        })
    }

    /// Blocks of a segment of models that have some, if it is not left to them.
    fn segment_blocks(&self, drive_blocks: u64, of_drive: Option<u64>) -> Result<Option<u64>, LoadError> {
        let asked = self.segment.map(|segment| segment.0 / BLOCK_BYTES as u64);
        let wrong = |blocks: u64, fix: String| LoadError::Value {
            option: "segment",
            value: ByteSize(blocks * BLOCK_BYTES as u64).to_string().replace(' ', ""),
            fix,
        };
        let least = match &self.model {
            Model::LogStructuredFs => LogStructuredFs::SEGMENTS_LEAST,
            Model::Segments { writers, .. } => Segments::segments_min(*writers),
            // What it writes, and where, was recorded: the drive says if it is out of order.
            Model::Trace { .. } => return Ok(None),
            _ if of_drive.is_some() => return Err(LoadError::Overwrites { load: self.to_string() }),
            _ => return Ok(None),
        };
        if let (Some(asked), Some(of_drive)) = (asked, of_drive)
            && asked != of_drive
        {
            let has = ByteSize(of_drive * BLOCK_BYTES as u64);
            return Err(wrong(asked, format!("the drive has segments of {has}; leave the option away")));
        }
        let usual = matches!(self.model, Model::Segments { .. }).then(|| SEGMENT_BLOCKS.min(drive_blocks / least));
        let Some(blocks) = of_drive.or(asked).or(usual) else { return Ok(None) };
        let unit = u64::from(self.access_blocks(LOG_UNIT_BLOCKS));
        if self.model == Model::LogStructuredFs && !blocks.is_multiple_of(unit) {
            let unit = ByteSize(unit * BLOCK_BYTES as u64);
            return Err(wrong(blocks, format!("it is no multiple of an access, {unit}; write another access=")));
        }
        if blocks == 0 || drive_blocks / blocks < least {
            return Err(LoadError::Drive {
                load: self.to_string(),
                blocks: drive_blocks,
                least: least * blocks.max(1),
            });
        }
        Ok(Some(blocks))
    }

    /// Whether the load ever writes, once the drive is filled.
    #[must_use]
    pub fn writes(&self) -> bool {
        match &self.model {
            Model::Tenants(tenants) => tenants.iter().any(LoadSpec::writes),
            _ => self.reads != Some(Share::percent(100)),
        }
    }

    fn access_blocks(&self, default: u32) -> u32 {
        self.access.map_or(default, |access| (access.0 / BLOCK_BYTES as u64) as u32)
    }

    fn pattern(&self, pattern: Pattern, drive_blocks: u64, seed: u64) -> Box<dyn Load> {
        let workload = Workload::new(&WorkloadConfig {
            pattern,
            read_share: self.reads.unwrap_or_default(),
            access_blocks: self.access_blocks(1),
            drive_blocks: self.fill.unwrap_or(Share::percent(100)).of(drive_blocks).clamp(1, drive_blocks),
            seed,
        });
        Box::new(if self.clustered { workload.clustered() } else { workload })
    }

    /// The options that the model has.
    fn possible(&self) -> &'static str {
        match self.model {
            Model::Tenants(_) => "none behind `tenants`, but behind each tenant",
            Model::Trace { .. } => {
                "fill=100%, format=msr, device=0, pace=trace, pace=10x, beyond=error, beyond=wrap or beyond=scale:64GiB"
            }
            Model::Lsm { .. } => "access=256KiB, fill=95%, trees=4, log=no or discard=no",
            Model::Writers { .. } => "access=256KiB or fill=85%",
            Model::LogStructuredFs => "access=256KiB, fill=85% or segment=2MiB",
            Model::Segments { .. } => "access=256KiB, fill=85%, reads=30%, segment=16MiB or ends=any",
            Model::Zipf { .. } | Model::HotCold { .. } => "access=16KiB, reads=30%, fill=85% or clustered=yes",
            _ => "access=16KiB, reads=30% or fill=85%",
        }
    }

    fn set(&mut self, option: &str) -> Result<(), LoadError> {
        let unknown =
            LoadError::Option { load: self.name().to_owned(), option: option.to_owned(), possible: self.possible() };
        let Some((name, value)) = option.split_once('=') else { return Err(unknown) };
        let is_trace = matches!(self.model, Model::Trace { .. });
        let has_reads = !matches!(
            self.model,
            Model::Trace { .. } | Model::Writers { .. } | Model::Lsm { .. } | Model::LogStructuredFs
        );
        match name {
            "access" if !is_trace => self.access = Some(access(value)?),
            "reads" if has_reads => self.reads = Some(share("reads", value, Share::default(), Share::percent(100))?),
            "fill" => {
                let most = match self.model {
                    Model::Writers { .. }
                    | Model::Lsm { .. }
                    | Model::LogStructuredFs
                    | Model::Segments { .. }
                    | Model::DoubleWrite { .. } => FILL_MAX,
                    _ => Share::percent(100),
                };
                let least = if is_trace { Share::default() } else { Share::percent(20) };
                self.fill = Some(share("fill", value, least, most)?);
            }
            _ => return self.set_of_model(name, value, unknown),
        }
        Ok(())
    }

    /// An option that only one model has.
    fn set_of_model(&mut self, name: &str, value: &str, unknown: LoadError) -> Result<(), LoadError> {
        let wrong = |option, fix: String| LoadError::Value { option, value: value.to_owned(), fix };
        let switch = |option| match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(wrong(option, "write yes or no".to_owned())),
        };
        match (&mut self.model, name) {
            (Model::LogStructuredFs | Model::Segments { .. }, "segment") => {
                let whole = |size: &ByteSize| size.0 > 0 && size.0.is_multiple_of(BLOCK_BYTES as u64);
                let fix = "write a multiple of 4KiB, as 16MiB".to_owned();
                let size = value.parse().ok().filter(whole);
                self.segment = Some(size.ok_or_else(|| wrong("segment", fix))?);
            }
            (Model::Segments { any, .. }, "ends") => {
                *any = match value {
                    "oldest" => false,
                    "any" => true,
                    _ => return Err(wrong("ends", "write oldest or any".to_owned())),
                }
            }
            (Model::Zipf { .. } | Model::HotCold { .. }, "clustered") => self.clustered = switch("clustered")?,
            (Model::Lsm { trees, .. }, "trees") => {
                let fix = format!("write a number from 1 to {TREES_MAX}");
                let number = value.parse().ok().filter(|trees| (1..=TREES_MAX).contains(trees));
                *trees = number.ok_or_else(|| wrong("trees", fix))?;
            }
            (Model::Lsm { log, .. }, "log") => *log = switch("log")?,
            (Model::Lsm { discard, .. }, "discard") => *discard = switch("discard")?,
            _ => return self.set_of_trace(name, value, unknown),
        }
        Ok(())
    }

    fn set_of_trace(&mut self, name: &str, value: &str, unknown: LoadError) -> Result<(), LoadError> {
        let Model::Trace { format, device, beyond, pace, .. } = &mut self.model else { return Err(unknown) };
        let wrong = |option, fix: String| LoadError::Value { option, value: value.to_owned(), fix };
        match name {
            "format" => *format = Some(value.parse().map_err(|fix| wrong("format", format!("write {fix}")))?),
            "pace" => *pace = Some(value.parse().map_err(|fix: &str| wrong("pace", fix.to_owned()))?),
            "device" => *device = Some(value.to_owned()),
            "beyond" => {
                *beyond = match (value, value.strip_prefix("scale:").map(str::parse::<ByteSize>)) {
                    ("error", _) => Beyond::Error,
                    ("wrap", _) => Beyond::Wrap,
                    (_, Some(Ok(ByteSize(from_bytes)))) if from_bytes >= BLOCK_BYTES as u64 => {
                        Beyond::Scale { from_bytes }
                    }
                    _ => return Err(wrong("beyond", "write error, wrap or scale:64GiB".to_owned())),
                }
            }
            _ => return Err(unknown),
        }
        Ok(())
    }

    /// The word that the load begins with.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.model {
            Model::Uniform => "uniform",
            Model::Sequential => "sequential",
            Model::Zipf { .. } => "zipf",
            Model::HotCold { .. } => "hot-cold",
            Model::Writers { .. } => "writers",
            Model::Lsm { .. } => "lsm",
            Model::LogStructuredFs => "log-structured-fs",
            Model::Segments { .. } => "segments",
            Model::DoubleWrite { .. } => "double-write",
            Model::Tenants(_) => "tenants",
            Model::Trace { .. } => "trace",
        }
    }
}

fn access(value: &str) -> Result<ByteSize, LoadError> {
    let block = BLOCK_BYTES as u64;
    match value.parse() {
        Ok(ByteSize(bytes)) if bytes > 0 && bytes.is_multiple_of(block) && bytes <= ACCESS_BLOCKS_MAX * block => {
            Ok(ByteSize(bytes))
        }
        _ => {
            let fix = "write a multiple of 4KiB up to 1MiB, as 16KiB".to_owned();
            Err(LoadError::Value { option: "access", value: value.to_owned(), fix })
        }
    }
}

fn share(option: &'static str, value: &str, least: Share, most: Share) -> Result<Share, LoadError> {
    match value.parse() {
        Ok(share) if (least..=most).contains(&share) => Ok(share),
        _ => Err(LoadError::Value {
            option,
            value: value.to_owned(),
            fix: format!("write a share from {least} to {most}"),
        }),
    }
}

/// The model that a name and its argument mean.
fn model(name: &str, argument: Option<&str>) -> Result<Model, LoadError> {
    let wrong = |fix: &str| LoadError::Argument {
        load: name.to_owned(),
        value: argument.unwrap_or_default().to_owned(),
        fix: fix.to_owned(),
    };
    let without = |model| if argument.is_none() { Ok(model) } else { Err(wrong("nothing comes behind this name")) };
    let theta = |default: f64| match argument.map(str::parse::<f64>) {
        None => Ok(default),
        Some(Ok(theta)) if (0.0..=8.0).contains(&theta) => Ok(theta),
        Some(_) => Err(wrong("write an exponent from 0 to 8, as 0.99")),
    };
    let count = |default: u32, most: u32| match argument.map(str::parse::<u32>) {
        None => Ok(default),
        Some(Ok(count)) if (1..=most).contains(&count) => Ok(count),
        Some(_) => Err(wrong(&format!("write a number from 1 to {most}"))),
    };
    match name {
        "uniform" => without(Model::Uniform),
        "sequential" => without(Model::Sequential),
        "zipf" => Ok(Model::Zipf { theta: theta(0.99)? }),
        "hot-cold" => {
            let (accesses, space) = argument.unwrap_or("90/10").split_once('/').unwrap_or_default();
            let percent =
                |text: &str| format!("{text}%").parse::<Share>().ok().filter(|share| *share <= Share::percent(100));
            match (percent(accesses), percent(space)) {
                (Some(accesses), Some(space)) => Ok(Model::HotCold { accesses, space }),
                _ => Err(wrong("write percent of the accesses, a slash and percent of the space, as 90/10")),
            }
        }
        "writers" => Ok(Model::Writers { writers: count(8, 255)? }),
        "lsm" => Ok(Model::Lsm { jobs: count(4, 16)?, trees: 1, log: true, discard: true }),
        "log-structured-fs" => without(Model::LogStructuredFs),
        "segments" => Ok(Model::Segments { writers: count(4, 255)?, any: false }),
        "double-write" => Ok(Model::DoubleWrite { theta: theta(0.99)? }),
        "trace" => match argument {
            Some(file) if !file.is_empty() => {
                let (format, device, beyond, pace) = (None, None, Beyond::Error, None);
                Ok(Model::Trace { file: file.to_owned(), format, device, beyond, pace })
            }
            _ => Err(wrong("name a file, as trace:web.csv")),
        },
        _ => Err(LoadError::Name { word: name.to_owned() }),
    }
}

/// Tenants between plus signs, each perhaps several times: `lsm*4+double-write`.
fn tenants(text: &str) -> Result<Model, LoadError> {
    let mut tenants = Vec::new();
    for part in text.split('+') {
        let (spec, times) = match part.rsplit_once('*') {
            None => (part, 1),
            Some((spec, times)) => (
                spec,
                times.parse().ok().filter(|times| *times > 0).ok_or_else(|| {
                    let fix = "behind an asterisk comes how many there are, as lsm*4".to_owned();
                    LoadError::Argument { load: "tenants".to_owned(), value: part.to_owned(), fix }
                })?,
            ),
        };
        let spec: LoadSpec = spec.parse()?;
        if matches!(spec.model, Model::Tenants(_)) || times > TENANTS_MAX || tenants.len() + times > TENANTS_MAX {
            let fix = format!("at most {TENANTS_MAX} tenants share a drive, and a tenant has none of its own");
            return Err(LoadError::Argument { load: "tenants".to_owned(), value: text.to_owned(), fix });
        }
        if matches!(spec.model, Model::Trace { pace: Some(_), .. }) {
            let fix = "tenants take turns, so the times of a trace mean nothing among them; leave out pace".to_owned();
            return Err(LoadError::Argument { load: "tenants".to_owned(), value: text.to_owned(), fix });
        }
        tenants.extend(std::iter::repeat_n(spec, times));
    }
    Ok(Model::Tenants(tenants))
}

impl FromStr for LoadSpec {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<LoadSpec, LoadError> {
        if let Some(argument) = text.strip_prefix("tenants:") {
            return Ok(LoadSpec::new(tenants(argument)?));
        }
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let (name, argument) = match first.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (first, None),
        };
        let mut spec = LoadSpec::new(model(name, argument)?);
        for option in parts {
            spec.set(option)?;
        }
        Ok(spec)
    }
}

impl fmt::Display for LoadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |size: ByteSize| size.to_string().replace(' ', "");
        f.write_str(self.name())?;
        match &self.model {
            Model::Uniform | Model::Sequential | Model::LogStructuredFs => {}
            Model::Zipf { theta } | Model::DoubleWrite { theta } => write!(f, ":{theta}")?,
            Model::HotCold { accesses, space } => {
                write!(f, ":{}/{}", f64::from(accesses.millionths) / 1e4, f64::from(space.millionths) / 1e4)?;
            }
            Model::Writers { writers } => write!(f, ":{writers}")?,
            Model::Segments { writers, any } => write!(f, ":{writers}{}", if *any { ",ends=any" } else { "" })?,
            Model::Lsm { jobs, trees, log, discard } => {
                write!(f, ":{jobs}")?;
                if *trees > 1 {
                    write!(f, ",trees={trees}")?;
                }
                for (option, is_on) in [("log", log), ("discard", discard)] {
                    if !is_on {
                        write!(f, ",{option}=no")?;
                    }
                }
            }
            Model::Tenants(tenants) => {
                for (index, run) in tenants.chunk_by(|one, next| one == next).enumerate() {
                    let between = if index == 0 { ":" } else { "+" };
                    write!(f, "{between}{}", run[0])?;
                    if run.len() > 1 {
                        write!(f, "*{}", run.len())?;
                    }
                }
            }
            Model::Trace { file, format, device, beyond, pace } => {
                write!(f, ":{file}")?;
                if let Some(format) = format {
                    write!(f, ",format={format}")?;
                }
                if let Some(device) = device {
                    write!(f, ",device={device}")?;
                }
                if let Some(pace) = pace {
                    write!(f, ",pace={pace}")?;
                }
                match beyond {
                    Beyond::Error => {}
                    Beyond::Wrap => f.write_str(",beyond=wrap")?,
                    // Exact, where a size in larger units may be rounded.
                    Beyond::Scale { from_bytes } => write!(f, ",beyond=scale:{from_bytes}")?,
                }
            }
        }
        if let Some(access) = self.access {
            write!(f, ",access={}", size(access))?;
        }
        if let Some(reads) = self.reads {
            write!(f, ",reads={reads}")?;
        }
        if let Some(fill) = self.fill {
            write!(f, ",fill={fill}")?;
        }
        if let Some(segment) = self.segment {
            write!(f, ",segment={}", size(segment))?;
        }
        if self.clustered {
            f.write_str(",clustered=yes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "load_spec_tests.rs"]
mod tests;
