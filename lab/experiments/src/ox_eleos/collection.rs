//! Pages of 2 KiB that are put at random on a full store: what cleaning costs, headers included.

use super::Flash;
use crate::ExperimentError;
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, VirtualClock};
use openftl_lab::page_trial::{PageMix, PageTrial};
use openftl_lab::theory;
use openftl_media::Store;
use openftl_pages::{GRAIN_BYTES, PageFtl, grains_of};
use openftl_parts::{Durability, VictimPolicy};

/// Bytes of a page.
const PAGE: u32 = 2048;
/// Pages of a batch.
const BATCH: usize = 64;
/// The exponent of YCSB.
pub const SKEWED: f64 = 0.99;

/// Which page is put, by a Zipf distribution with that exponent, and which chunk is cleaned.
pub const ALL: [(f64, VictimPolicy); 4] = [
    (0.0, VictimPolicy::Greedy),
    (SKEWED, VictimPolicy::Greedy),
    (SKEWED, VictimPolicy::CostBenefit),
    (SKEWED, VictimPolicy::MinimumDecliningCost),
];

/// What was measured.
pub struct Collection {
    pub theta: f64,
    pub victim: VictimPolicy,
    /// Of the bytes that pages take, the spare ones.
    pub spare: f64,
    /// Bytes put and moved over those put, with headers and grains.
    pub of_pages: f64,
    /// The same in theory, where greedy cleans what is put uniformly.
    pub theory: Option<f64>,
    /// Bytes programmed over those of pages that were put.
    pub of_nand: f64,
}

pub fn measured(flash: Flash, theta: f64, victim: VictimPolicy, puts: f64) -> Result<Collection, ExperimentError> {
    let mut clock = VirtualClock::default();
    let drive = PageFtl::format(flash.device(Store::Ram)?, flash.pages(victim), (), &mut clock)?;
    let chunk_bytes = f64::from(flash.nand.blocks_per_chunk) * BLOCK_BYTES as f64;
    let on_media = u64::from(grains_of(PAGE)) * GRAIN_BYTES as u64;
    // A batch takes room beside what it replaces.
    let pages = (drive.capacity_bytes() - 2 * BATCH as u64 * on_media) / on_media;
    let mut trial = PageTrial::new(drive, clock, flash.seed)?;
    let mix = PageMix::new(pages, [PAGE, PAGE], theta, &mut trial.chance);
    for lpid in 0..pages {
        trial.put_drawn(&mix, lpid)?;
        if trial.staged() == BATCH {
            trial.commit(Durability::Volatile)?;
        }
    }
    let half = (pages as f64 * puts / 2.0) as u64;
    for phase in 0..2 {
        if phase == 1 {
            trial.sync()?;
            trial.drive.reset_statistics();
        }
        for _ in 0..half {
            trial.put_any(&mix)?;
            if trial.staged() == BATCH {
                trial.commit(Durability::Volatile)?;
            }
        }
        trial.commit(Durability::Volatile)?;
    }
    trial.sync()?;
    let (spare, of_pages, of_nand) = {
        let (_, pages) = trial.drive.statistics();
        let put = (pages.bytes_put + pages.header_bytes + pages.grain_bytes) as f64;
        let spare = trial.drive.flash_bytes() as f64 / trial.drive.used_bytes() as f64 - 1.0;
        (spare, (put + pages.moved_bytes as f64) / put, trial.nand_bytes() as f64 / pages.bytes_put as f64)
    };
    trial.read_back()?;
    let is_known = theta == 0.0 && victim == VictimPolicy::Greedy;
    let theory = is_known.then(|| theory::greedy(spare, (chunk_bytes / on_media as f64) as u32));
    Ok(Collection { theta, victim, spare, of_pages, theory, of_nand })
}
