//! File systems of Linux that know zones, and one that does not: what each writes for what programs write, and what its drive makes of it.
//!
//! ```text
//!   F2FS    programs ─▶ logs, which are cleaned ─▶ zones: nothing is moved
//!                    └▶ tables of blocks ────────▶ page FTL of 24 MiB, on flash of its own
//!   btrfs   programs ─▶ trees that are never overwritten, block groups that are cleaned ─▶ zones
//!   F2FS    programs ─▶ logs, which are cleaned ─▶ page FTL: collects what the logs have left behind
//! ```
//!
//! What they write was recorded in a Linux guest (`cargo xtask file-traces`) and is replayed: those on zones from what a served drive wrote down.

use super::Scale;
use crate::file_load::FileModel;
use crate::file_trace::Head;
use crate::recorded::{self, LastPhase, Replay};
use crate::{Check, ExperimentError};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm, VirtualClock};
use openftl_lab::BlockDrive;
use openftl_lab::figures::{Cell, Table};
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};
use openftl_parts::{Config, Statistics, chunks_per_pu};
use openftl_zones::{Face, Limits, ZoneConfig, ZoneFtl};

const PROFILE: &str = "bluedbm";
/// Dies, each in a group of its own; a zone is a chunk of each.
const DIES: u32 = 8;
/// Of the zones together, and of the page FTL.
const CAPACITY: ByteSize = ByteSize(512 << 20);
/// Of the blocks beside the zones, and the spare flash of their FTL.
const BESIDE: ByteSize = ByteSize(24 << 20);
const BESIDE_SPARE: Share = Share::percent(28);
const SEED: u64 = 1;

/// Bytes of files: as in `amf` at 85 %, and as many as btrfs has room for with such small zones.
const FULL_BYTES: u64 = (396 << 20) * 85 / 100;
const BTRFS_BYTES: u64 = 100_000_000;

/// What a file system is on: its spare flash and, of zones, how many may be written in part. F2FS has as much flash on either drive; btrfs writes to
/// more zones at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Drive {
    spare: Share,
    active_zones: Option<u32>,
}

const PAGE_FTL: Drive = Drive { spare: Share::percent(13), active_zones: None };
const ZONES: Drive = Drive { spare: PAGE_FTL.spare, active_zones: Some(11) };
const ZONES_OF_BTRFS: Drive = Drive { spare: Share::percent(28), active_zones: Some(24) };

/// A file system on a drive under a load, and what was recorded of it: on the zones or the only disk, and on the blocks beside.
struct Condition {
    system: &'static str,
    drive: Drive,
    load: FileModel,
    recording: &'static str,
    beside: Option<&'static str>,
}

impl Condition {
    const fn new(
        system: &'static str,
        drive: Drive,
        load: FileModel,
        recording: &'static str,
        beside: Option<&'static str>,
    ) -> Condition {
        Condition { system, drive, load, recording, beside }
    }

    fn is_zoned(&self) -> bool {
        self.drive.active_zones.is_some()
    }

    /// Bytes of files.
    fn data_bytes(&self) -> u64 {
        if self.drive == ZONES_OF_BTRFS { BTRFS_BYTES } else { FULL_BYTES }
    }
}

const CONDITIONS: [Condition; 6] = [
    Condition::new("F2FS", PAGE_FTL, FileModel::Random, "f2fs-random-85", None),
    Condition::new("F2FS", ZONES, FileModel::Random, "f2fs-zones-random-85", Some("f2fs-blocks-random-85")),
    Condition::new("F2FS", PAGE_FTL, FileModel::Oltp, "f2fs-oltp-85", None),
    Condition::new("F2FS", ZONES, FileModel::Oltp, "f2fs-zones-oltp-85", Some("f2fs-blocks-oltp-85")),
    Condition::new("btrfs", ZONES_OF_BTRFS, FileModel::Random, "btrfs-zones-random-25", None),
    Condition::new("btrfs", ZONES_OF_BTRFS, FileModel::Oltp, "btrfs-zones-oltp-25", None),
];

/// The recordings of file systems on zones, and on blocks beside them: what each is called, and what it is of.
pub(super) fn recordings() -> impl Iterator<Item = (&'static str, Head)> {
    CONDITIONS.iter().filter(|condition| condition.is_zoned()).flat_map(|condition| {
        let Condition { system, load, recording, beside, .. } = condition;
        let head = |what: &str, disk_bytes| Head {
            file_system: format!("{}-{what}", system.to_lowercase()),
            load: load.name().to_owned(),
            data_bytes: condition.data_bytes(),
            disk_bytes,
            seed: SEED,
        };
        let beside = beside.map(|name| (name, head("blocks", BESIDE.0)));
        std::iter::once((*recording, head("zones", CAPACITY.0))).chain(beside)
    })
}

/// What was measured of a condition.
pub(super) struct Case {
    condition: &'static Condition,
    /// The zones or the only disk, and the blocks beside.
    main: LastPhase,
    beside: Option<LastPhase>,
}

impl Case {
    fn parts(&self) -> impl Iterator<Item = &LastPhase> {
        std::iter::once(&self.main).chain(&self.beside)
    }

    /// For each block that programs wrote.
    fn per_block(&self, count: impl Fn(&Statistics) -> u64) -> f64 {
        let blocks: u64 = self.parts().map(|part| count(&part.drive)).sum();
        blocks as f64 * BLOCK_BYTES as f64 / self.main.bytes as f64
    }

    /// Blocks that the drives got.
    fn file_system(&self) -> f64 {
        self.per_block(|drive| drive.host_blocks_written)
    }

    /// Blocks programmed on flash.
    fn programs(&self) -> f64 {
        self.per_block(Statistics::nand_blocks_written)
    }

    /// Blocks that drives moved.
    fn moved(&self) -> f64 {
        self.per_block(|drive| drive.groups.iter().map(|group| group.relocated).sum())
    }

    fn is(&self, system: &str, is_zoned: bool, load: FileModel) -> bool {
        let of = self.condition;
        (of.system, of.is_zoned(), of.load) == (system, is_zoned, load)
    }

    /// What the drive makes of a block that it gets.
    fn drive(&self) -> f64 {
        self.programs() / self.file_system()
    }

    fn name(&self) -> String {
        let drive = if self.condition.is_zoned() { "zones" } else { "page FTL" };
        format!("{} on {drive}", self.condition.system)
    }
}

/// Replays them all; of a small scale the first two.
pub(super) fn cases(
    scale: &Scale,
    seed: u64,
    mut progress: impl FnMut(f64, &str),
) -> Result<Vec<Case>, ExperimentError> {
    let conditions = &CONDITIONS[..scale.file_systems];
    let mut cases = Vec::new();
    for (at, condition) in conditions.iter().enumerate() {
        let words = format!("{}: {}", condition.recording, condition.load);
        progress(at as f64 / conditions.len() as f64, &words);
        cases.push(case(condition, seed)?);
    }
    Ok(cases)
}

fn case(condition: &'static Condition, seed: u64) -> Result<Case, ExperimentError> {
    let page_ftl = |capacity: ByteSize, spare| Config {
        capacity_blocks: capacity.0 / BLOCK_BYTES as u64,
        over_provisioning: spare,
        payload: FrameForm::Stamp,
        drive_id: seed,
        ..Config::default()
    };
    let device = |dies, config: &Config| -> Result<EmulatedDevice, ExperimentError> {
        let mut profile = Profile::builtin(PROFILE)?;
        (profile.groups, profile.pus_per_group) = (dies, 1);
        let chunks = chunks_per_pu(&profile.geometry(profile.chunks_per_pu)?, config, Share::percent(0))?;
        Ok(EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, seed)?)
    };
    let pages = page_ftl(CAPACITY, condition.drive.spare);
    let media = device(DIES, &pages)?;
    let mut clock = VirtualClock::default();
    let drive = if let Some(active) = condition.drive.active_zones {
        let limits = Limits { max_open: active, max_active: active };
        let zone_blocks = u64::from(DIES * media.geometry().blocks_per_chunk);
        let zones = (CAPACITY.0 / BLOCK_BYTES as u64 / zone_blocks) as u32;
        let zones = ZoneConfig {
            face: Face::Zones,
            width: DIES,
            limits,
            zones: Some(zones),
            extension_bytes: 0,
            window_blocks: 0,
        };
        let config = Config { payload: FrameForm::Stamp, drive_id: seed, ..Config::default() };
        ZoneFtl::format(media, config, zones, &mut clock)?.into()
    } else {
        BlockFtl::format(media, pages, &mut clock)?.into()
    };
    let main = replayed(condition.recording, drive, clock)?;
    let beside = match condition.beside {
        Some(name) => {
            let config = page_ftl(BESIDE, BESIDE_SPARE);
            let mut clock = VirtualClock::default();
            let drive = BlockFtl::format(device(1, &config)?, config, &mut clock)?.into();
            Some(replayed(name, drive, clock)?)
        }
        None => None,
    };
    Ok(Case { condition, main, beside })
}

/// Replays a recording, and reads all of the drive back.
fn replayed(name: &str, drive: BlockDrive<EmulatedDevice>, clock: VirtualClock) -> Result<LastPhase, ExperimentError> {
    let bytes = recorded::read(name)?;
    let mut replay = Replay::new(&bytes, drive, clock)?;
    let measured = replay.run()?;
    replay.read_back()?;
    Ok(measured)
}

pub(super) fn table(cases: &[Case]) -> Table {
    let mut table = Table::new(
        "file-systems",
        &[
            ("file system", ""),
            ("load", ""),
            ("files", "MiB"),
            ("throughput", "MiB/s"),
            ("file system", "blocks a block"),
            ("drive", "programs a block"),
            ("moved by it", "blocks a block"),
            ("programs", "a block of programs"),
        ],
    );
    for case in cases {
        // Zones and the blocks beside them are at work at the same time.
        let span = case.parts().map(|part| part.span).max().expect("one at least");
        table.row(vec![
            Cell::Text(case.name()),
            Cell::Text(case.condition.load.to_string()),
            Cell::Count(case.condition.data_bytes() >> 20),
            Cell::Number(case.main.bytes as f64 / f64::from(1 << 20) / span.as_secs_f64(), 1),
            Cell::Number(case.file_system(), 2),
            Cell::Number(case.drive(), 3),
            Cell::Number(case.moved(), 2),
            Cell::Number(case.programs(), 2),
        ]);
    }
    table
}

pub(super) fn check(cases: &[Case]) -> Check {
    let words = cases.iter().map(|case| {
        let (above, below) = (case.file_system(), case.drive());
        format!("{}, {}: {above:.2} × {below:.3} = {:.2}", case.name(), case.condition.load, case.programs())
    });
    let words = words.collect::<Vec<_>>().join("; ");
    let of =
        |is_zoned| cases.iter().find(|case| case.is("F2FS", is_zoned, FileModel::Random)).expect("it was replayed");
    let (zones, pages) = (of(true), of(false));
    Check {
        claim: "Under F2FS, zones move the cleaning from the drive into the file system.",
        check: "random writes: 1.01 programs of the drive for a block that it gets, at most, against 1.5 of a page FTL, and more blocks from \
                the file system than there",
        holds: zones.drive() <= super::AMPLIFICATION_MAX
            && pages.drive() >= 1.5
            && zones.file_system() > pages.file_system(),
        measured: words,
        why: "F2FS cleans whole zones before it can write them again; on a disk without zones it writes into holes, and the page FTL cleans \
              below it.",
    }
}

/// What there is to say of the replays.
pub(super) fn parameter() -> String {
    format!(
        "recorded on Linux 6.1, replayed on {PROFILE} with {DIES} dies: the page FTL has {CAPACITY} with {} over-provisioning, F2FS has zones \
         of as much flash, and {BESIDE} of blocks beside them on a die of their own; btrfs has zones with {} of spare flash",
        PAGE_FTL.spare, ZONES_OF_BTRFS.spare
    )
}
