//! What a log-structured file system gains where it manages its flash itself (Application-Managed Flash).
//!
//! ```text
//!   ext4   programs ─▶ files ─▶ blocks in place ──────────────▶ page FTL: collects
//!   F2FS   programs ─▶ files ─▶ logs, which are cleaned ───────▶ page FTL: collects what the logs have left behind
//!   ALFS   programs ─▶ files ─▶ logs, which are cleaned ───────▶ segments: nothing is ever moved
//! ```
//!
//! All three have the same flash, and the same programs run on them ([`FileLoad`]). ALFS is the file system of this project
//! ([`AlfsTrial`]), with every byte of its files. What ext4 and F2FS write was recorded in a Linux guest ([`file_trace`](crate::file_trace),
//! `cargo xtask file-traces`) and is replayed on the page FTL. What the page FTL keeps for itself as over-provisioning ALFS has as free
//! segments. Figures are for each block that programs write.

mod recordings;
mod replaying;
mod telling;

use self::replaying::replayed;
use super::{Assistant, Experiment, ExperimentError, Options, Paper, Run, recorded};
use crate::alfs_trial::AlfsTrial;
use crate::file_load::{FileLoad, FileModel, phases};
use crate::file_trace::Head;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm, Nanos};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Config, Statistics, chunks_per_pu};
use openftl_zones::{Face, Limits, ZoneConfig};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "amf",
    question: "What does a log-structured file system save on segments, against ext4 and F2FS on a page FTL of the same flash?",
    paper: Some(Paper {
        title: "Application-Managed Flash",
        place: "slides 21 to 27",
        found: "Erases fall so that flash lives 6% longer than under EXT4 and 37% longer than under F2FS, both on a page FTL; the map \
                shrinks to a 128th, and performance grows by 80%.",
    }),
    claims: &["004-3", "004-4", "004-5", "004-6", "004-7", "004-9"],
    in_virtual_time: true,
    memory_bytes: [1 << 30, 1 << 30],
    run,
};

const PROFILE: &str = "bluedbm";
/// As few as there can be with work side by side: a segment is a chunk of each, and a volume so small is to have many.
const GROUPS: u32 = 2;

/// Of the page FTL, and of the disk of the guest in which the recordings were made.
const CAPACITY: ByteSize = ByteSize(512 << 20);

/// What F2FS has room for on such a disk: files are to fill a part of this.
const ROOM: ByteSize = ByteSize(396 << 20);

/// Segments that are written in part: six logs and two anchors.
const OPEN_SEGMENTS: u32 = 8;

/// Full file systems, in percent of [`ROOM`].
const FILL: u32 = 85;

/// Of the page FTL, in percent of its capacity: what drives for laptops have, and what drives for servers have.
const SPARES: [u32; 2] = [7, 28];

/// How full ALFS is made alone.
const FILLS: [u32; 6] = [60, 70, 80, 85, 90, 95];

/// How full the others are made with random writes.
const RECORDED_FILLS: [u32; 3] = [60, FILL, 95];

/// The file system, and what is below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    Ext4,
    F2fs,
    Alfs,
}

impl System {
    const ALL: [System; 3] = [System::Ext4, System::F2fs, System::Alfs];

    fn name(self) -> &'static str {
        match self {
            System::Ext4 => "ext4, page FTL",
            System::F2fs => "F2FS, page FTL",
            System::Alfs => "ALFS, segments",
        }
    }
}

/// The recordings that the experiment replays: what each is called, and what it is of.
pub fn recordings() -> impl Iterator<Item = (&'static str, Head)> {
    recordings::ALL.iter().map(|(name, system, load, fill)| {
        let file_system = if *system == System::Ext4 { "ext4" } else { "f2fs" };
        let head = Head {
            file_system: file_system.to_owned(),
            load: load.name().to_owned(),
            data_bytes: data_bytes(*fill),
            disk_bytes: CAPACITY.0,
            seed: RECORDED_SEED,
        };
        (*name, head)
    })
}

/// Bytes that files have on a file system so full.
fn data_bytes(fill: u32) -> u64 {
    ROOM.0 * u64::from(fill) / 100
}

/// The seed of the loads that were recorded.
const RECORDED_SEED: u64 = 1;

/// One system under one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Condition {
    system: System,
    load: FileModel,
    /// In percent of [`ROOM`].
    fill: u32,
    /// In percent of [`CAPACITY`].
    spare: u32,
}

impl Condition {
    fn words(self) -> String {
        let Condition { system, load, fill, spare } = self;
        format!("{}: {load}, {fill} % full, {spare} % spare", system.name())
    }
}

struct Scale {
    loads: &'static [FileModel],
    spares: &'static [u32],
    fills: &'static [u32],
    recorded_fills: &'static [u32],
}

const FULL: Scale = Scale { loads: &FileModel::ALL, spares: &SPARES, fills: &FILLS, recorded_fills: &RECORDED_FILLS };

const QUICK: Scale = Scale {
    loads: &[FileModel::Random, FileModel::Oltp],
    spares: &[SPARES[0]],
    fills: &[FILL],
    recorded_fills: &[FILL],
};

impl Scale {
    fn profile() -> Result<Profile, ExperimentError> {
        let mut profile = Profile::builtin(PROFILE)?;
        (profile.groups, profile.pus_per_group) = (GROUPS, 1);
        Ok(profile)
    }

    /// All loads with all spares, and random writes on file systems that are less or more full.
    fn conditions(&self) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for &spare in self.spares {
            for &load in self.loads {
                conditions.extend(System::ALL.map(|system| Condition { system, load, fill: FILL, spare }));
            }
        }
        let of =
            |system| move |fill: &u32| Condition { system, load: FileModel::Random, fill: *fill, spare: SPARES[0] };
        conditions.extend(self.recorded_fills.iter().map(of(System::Ext4)));
        conditions.extend(self.recorded_fills.iter().map(of(System::F2fs)));
        conditions.extend(self.fills.iter().map(of(System::Alfs)));
        let mut once = Vec::new();
        for condition in conditions {
            if !once.contains(&condition) {
                once.push(condition);
            }
        }
        once
    }
}

/// What was measured of one condition.
#[derive(Clone, Debug)]
struct Case {
    condition: Condition,
    /// Bytes that programs wrote.
    bytes: u64,
    span: Nanos,
    drive: Statistics,
    /// What ALFS wrote.
    alfs: Option<openftl_alfs::Statistics>,
    map_bytes: u64,
    /// Until the drive was open again behind a power cut, and until the volume was mounted.
    recovery: [Nanos; 2],
}

impl Case {
    /// For each block that programs wrote.
    fn per_block(&self, count: u64) -> f64 {
        count as f64 * BLOCK_BYTES as f64 / self.bytes as f64
    }

    /// Blocks that the drive got from the file system.
    fn file_system_blocks(&self) -> u64 {
        self.alfs.map_or(self.drive.host_blocks_written, |alfs| alfs.blocks_written())
    }

    fn file_system_waf(&self) -> f64 {
        self.per_block(self.file_system_blocks())
    }

    fn device_waf(&self) -> f64 {
        self.drive.nand_blocks_written() as f64 / self.file_system_blocks() as f64
    }

    /// Blocks that the drive moved.
    fn moved(&self) -> u64 {
        self.drive.groups.iter().map(|group| group.relocated).sum()
    }

    /// Blocks programmed for each block that programs wrote.
    fn programs(&self) -> f64 {
        self.per_block(self.drive.nand_blocks_written())
    }

    /// Chunks erased for each chunk that programs filled.
    fn erases(&self, blocks_per_chunk: u32) -> f64 {
        self.per_block(self.drive.resets * u64::from(blocks_per_chunk))
    }

    /// Bytes of programs in a second.
    fn speed(&self) -> f64 {
        self.bytes as f64 / self.span.as_secs_f64()
    }
}

/// All cases.
struct Cases {
    all: Vec<Case>,
    blocks_per_chunk: u32,
}

impl Cases {
    fn of(&self, system: System, load: FileModel, fill: u32, spare: u32) -> &Case {
        let wanted = Condition { system, load, fill, spare };
        self.all.iter().find(|case| case.condition == wanted).expect("every condition was run")
    }

    fn erases(&self, case: &Case) -> f64 {
        case.erases(self.blocks_per_chunk)
    }
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let began = assistant.cpu_time();
    let conditions = scale.conditions();
    let mut all = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        assistant.progress(index as f64 / conditions.len() as f64, &condition.words());
        all.push(case(*condition, options.seed)?);
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    let blocks_per_chunk = Scale::profile()?.chip.blocks_per_chunk;
    telling::told(&scale, &Cases { all, blocks_per_chunk }, cpu)
}

/// The page FTL on the flash that all have.
fn page_ftl(spare: u32, seed: u64) -> Config {
    Config {
        capacity_blocks: CAPACITY.0 / BLOCK_BYTES as u64,
        over_provisioning: Share::percent(spare),
        payload: FrameForm::Stamp,
        drive_id: seed,
        ..Config::default()
    }
}

fn device(spare: u32, store: Store, seed: u64) -> Result<EmulatedDevice, ExperimentError> {
    let profile = Scale::profile()?;
    let chunks = chunks_per_pu(&profile.geometry(profile.chunks_per_pu)?, &page_ftl(spare, seed), Share::percent(0))?;
    Ok(EmulatedDevice::new(profile, chunks, store, Timing::Modelled, seed)?)
}

fn case(condition: Condition, seed: u64) -> Result<Case, ExperimentError> {
    let Condition { system, load, fill, spare } = condition;
    if let Some(name) = recordings::of(system, load, fill) {
        return replayed(condition, &recorded::read(name)?, device(spare, Store::Stamps, seed)?, page_ftl(spare, seed));
    }
    let limits = Limits { max_open: OPEN_SEGMENTS, max_active: OPEN_SEGMENTS };
    let segments =
        ZoneConfig { face: Face::Segments, width: GROUPS, limits, zones: None, extension_bytes: 0, window_blocks: 0 };
    let config = Config { payload: FrameForm::Bytes, drive_id: seed, ..Config::default() };
    let mut trial = AlfsTrial::new(device(spare, Store::Ram, seed)?, config, segments)?;
    let mut load = FileLoad::new(load, data_bytes(fill), seed);
    let [to_age, to_measure] = phases(data_bytes(fill));
    trial.fill(&mut load)?;
    trial.run(&mut load, to_age)?;
    let phase = trial.run(&mut load, to_measure)?;
    let map_bytes = trial.map_bytes();
    let recovery = trial.recover()?;
    trial.verify()?;
    Ok(Case {
        condition,
        bytes: phase.bytes,
        span: phase.span,
        drive: phase.drive,
        alfs: Some(phase.blocks),
        map_bytes,
        recovery: [recovery.drive, recovery.volume],
    })
}
