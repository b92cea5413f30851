//! What a store of pages in batches (OX-ELEOS) gains: for the small transactions of SQLite, and for a page store that would clean by itself.
//!
//! ```text
//!   transactions   SQLite ─▶ journal or log, files ─▶ ext4 ─▶ blocks ─▶ block FTL      recorded and replayed
//!                  SQLite ─▶ VFS ─▶ a batch for each transaction ─────▶ ELEOS          recorded and replayed
//!   batches        pages ─▶ buffers of 8 MiB ─▶ segments, cleaned by the host ─▶ block FTL
//!                  pages ─▶ batches of 8 MiB ──────────────────────────────────▶ ELEOS
//!   collection     pages of 2 KiB ─▶ ELEOS, beside theory, and by policy
//! ```
//!
//! All of it is virtual time on one model of the flash, and all that is programmed counts. Neither of two that are compared has more chunks than the
//! other. The recordings of ext4 were made in a Linux guest (`cargo xtask file-traces`), those of the VFS by a test of `bindings/sqlite`; see
//! [`recorded`](super::recorded).

mod batches;
mod collection;
mod host_log;
mod telling;
mod transactions;

use self::batches::Batches;
use self::collection::Collection;
use self::transactions::{Transactions, Way};
use super::{Assistant, Experiment, ExperimentError, Options, Paper, Run};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Config, VictimPolicy, chunks_per_pu};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ox-eleos",
    question: "What does a store of pages in batches gain, for SQLite and for page stores that clean by themselves?",
    paper: Some(Paper {
        title: "Open-Channel SSD (What is it Good For)",
        place: "section 4.2",
        found: "OX-ELEOS takes buffers of log-structured storage, typically of 8 MB, with pages of any size, and maps, collects and \
                recovers them in the drive, so that hosts have less to do. There are no figures.",
    }),
    claims: &["000-29"],
    in_virtual_time: true,
    memory_bytes: [2 << 30, 512 << 20],
    run,
};

/// What both have beyond their capacity.
const OVER_PROVISIONING: Share = Share::percent(28);

/// A NAND, and the part of it that is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Nand {
    profile: &'static str,
    groups: u32,
    pus_per_group: u32,
    blocks_per_chunk: u32,
}

/// As in its profile.
const COSMOS: Nand = Nand { profile: "cosmos", groups: 8, pus_per_group: 1, blocks_per_chunk: 256 };
/// Eight dies with chunks of 6 MiB, so that a small drive has many.
const GRANBY: Nand = Nand { profile: "granby", groups: 8, pus_per_group: 1, blocks_per_chunk: 1536 };

impl Nand {
    fn profile(self) -> Result<Profile, ExperimentError> {
        let mut profile = Profile::builtin(self.profile)?;
        (profile.groups, profile.pus_per_group) = (self.groups, self.pus_per_group);
        profile.chip.blocks_per_chunk = self.blocks_per_chunk;
        Ok(profile)
    }
}

/// A drive, of either kind.
#[derive(Clone, Copy, Debug)]
struct Flash {
    nand: Nand,
    capacity: ByteSize,
    seed: u64,
}

impl Flash {
    fn blocks(&self, payload: FrameForm) -> Config {
        Config {
            capacity_blocks: self.capacity.0 / BLOCK_BYTES as u64,
            over_provisioning: OVER_PROVISIONING,
            payload,
            drive_id: self.seed,
            ..Config::default()
        }
    }

    fn pages(&self, victim: VictimPolicy) -> Config {
        Config { victim, ..self.blocks(FrameForm::Bytes) }
    }

    /// Chunks of a parallel unit: as many as the one needs that needs more.
    fn chunks(&self) -> Result<u32, ExperimentError> {
        let profile = self.nand.profile()?;
        let shape = profile.geometry(profile.chunks_per_pu)?;
        let of_blocks = chunks_per_pu(&shape, &self.blocks(FrameForm::Stamp), Share::percent(0))?;
        let pages = self.pages(VictimPolicy::Greedy);
        Ok(of_blocks.max(openftl_pages::chunks_per_pu(&shape, &pages, self.capacity.0)?))
    }

    fn device(&self, store: Store) -> Result<EmulatedDevice, ExperimentError> {
        Ok(EmulatedDevice::new(self.nand.profile()?, self.chunks()?, store, Timing::Modelled, self.seed)?)
    }
}

struct Scale {
    /// Of the drives with databases, and the bytes of other data on each.
    capacity: ByteSize,
    ballast: ByteSize,
    nands: &'static [Nand],
    /// Of the drives with large batches, and the bytes of a batch.
    batch_capacity: ByteSize,
    batch_bytes: u32,
    /// Puts that are measured, for each page.
    batch_puts: f64,
    /// Of the drives that are collected, and puts for each page; the first half does not count.
    collected: ByteSize,
    collected_puts: f64,
    /// Whether those have so many chunks, and are overwritten so often, that what is kept for open ones and what came before hardly counts.
    is_steady: bool,
}

const FULL: Scale = Scale {
    capacity: ByteSize(512 << 20),
    ballast: ByteSize(384 << 20),
    nands: &[COSMOS, GRANBY],
    batch_capacity: ByteSize(512 << 20),
    batch_bytes: 8 << 20,
    batch_puts: 2.0,
    collected: ByteSize(512 << 20),
    collected_puts: 6.0,
    is_steady: true,
};

const QUICK: Scale = Scale {
    capacity: ByteSize(160 << 20),
    ballast: ByteSize(32 << 20),
    nands: &[COSMOS],
    batch_capacity: ByteSize(96 << 20),
    batch_bytes: 1 << 20,
    batch_puts: 1.0,
    collected: ByteSize(96 << 20),
    collected_puts: 3.0,
    is_steady: false,
};

/// What was measured.
struct Cases {
    transactions: Vec<Transactions>,
    batches: Vec<Batches>,
    collection: Vec<Collection>,
}

fn run(options: Options, assistant: &mut dyn Assistant) -> Result<Run, ExperimentError> {
    let scale = if options.quick { QUICK } else { FULL };
    let seed = options.seed;
    let began = assistant.cpu_time();
    let mut transactions = Vec::new();
    let ways = Way::all();
    let all = (scale.nands.len() * ways.len()) as f64;
    for &nand in scale.nands {
        for &way in &ways {
            assistant.progress(0.4 * transactions.len() as f64 / all, &format!("{}, {}", nand.profile, way.name()));
            let flash = Flash { nand, capacity: scale.capacity, seed };
            transactions.push(transactions::measured(way, flash, scale.ballast)?);
        }
    }
    assistant.progress(0.4, "batches that the host cleans");
    let flash = Flash { nand: COSMOS, capacity: scale.batch_capacity, seed };
    let by_host = batches::by_host(&scale, flash, assistant)?;
    assistant.progress(0.5, "batches that the drive cleans");
    let by_drive = batches::by_drive(&scale, flash, assistant)?;
    let mut collection = Vec::new();
    for (at, (theta, victim)) in collection::ALL.into_iter().enumerate() {
        let share = 0.6 + 0.4 * at as f64 / collection::ALL.len() as f64;
        assistant.progress(share, &format!("collection, {victim}, Zipf {theta}"));
        let flash = Flash { nand: COSMOS, capacity: scale.collected, seed };
        collection.push(collection::measured(flash, theta, victim, scale.collected_puts)?);
    }
    let cpu = assistant.cpu_time() - began;
    assistant.progress(1.0, "done");
    let cases = Cases { transactions, batches: vec![by_host, by_drive], collection };
    Ok(telling::told(&scale, &cases, cpu))
}
