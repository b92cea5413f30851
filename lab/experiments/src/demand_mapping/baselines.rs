//! Other schemes beside ours, by a model ([`crate::map_caches`]): their traffic follows from the load, and their speed from the
//! time that the dies spend on it.
//!
//! ```text
//!   speed, of the whole map's = die time of a request / (that + map reads × read time + map programs × program time)
//! ```
//!
//! The die time of a request is measured, on the drive that has its whole map in memory. So no read waits for another, and map pages
//! load all dies alike: the speed is the most that such a scheme can reach. The same formula on our own traffic says how much
//! that is worth: it is in the table beside what was measured.

use super::{Case, Cases, LOADS, Load, Scale, load_of};
use crate::map_caches::{Flash, Lengths, MapCache, MapTraffic, Replayed, replay};
use crate::{Check, ExperimentError};
use openftl_core::BLOCK_BYTES;
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::trial::Measured;
use openftl_media::Profile;
use openftl_parts::Purpose;
use openftl_parts::map::ENTRIES_PER_BLOCK;

/// A scheme that loads for a write, and programs what changed when it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scheme {
    /// Map pages of 4 KiB.
    Pages,
    /// 16 of them at a time, as in the paper.
    Blocks,
    /// Single entries, as in DFTL.
    Entries,
}

impl Scheme {
    pub(super) const ALL: [Scheme; 3] = [Scheme::Pages, Scheme::Blocks, Scheme::Entries];

    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Pages => "LRU page cache",
            Scheme::Blocks => "LRU, 64 KiB",
            Scheme::Entries => "DFTL-like",
        }
    }

    pub(super) fn cache(self, blocks: u64, pool_bytes: u64) -> MapCache {
        match self {
            Scheme::Pages => MapCache::of_pages(1, blocks, pool_bytes),
            Scheme::Blocks => MapCache::of_pages(16, blocks, pool_bytes),
            Scheme::Entries => MapCache::of_entries(blocks, pool_bytes),
        }
    }
}

/// Bytes of a page in the directory of these schemes: they have one copy.
const DIRECTORY_BYTES: u64 = 4;

/// What a budget leaves to the cache of such a scheme: valid blocks and directory count, as they do here.
pub(super) fn pool_bytes(budget_percent: u32, capacity_blocks: u64, whole: &Measured) -> u64 {
    let budget = capacity_blocks * 4 * u64::from(budget_percent) / 100;
    let fixed =
        whole.geometry.blocks().div_ceil(8) + capacity_blocks.div_ceil(ENTRIES_PER_BLOCK as u64) * DIRECTORY_BYTES;
    budget.saturating_sub(fixed)
}

/// The flash of the model.
pub(super) fn flash(capacity_blocks: u64, over_provisioning: f64, blocks_per_chunk: u32) -> Flash {
    let blocks = capacity_blocks as f64 * (1.0 + over_provisioning);
    Flash {
        capacity_blocks,
        // Beside what the over-provisioning says as many as are open or kept free.
        chunks: (blocks / f64::from(blocks_per_chunk)).ceil() as u32 + 6,
        chunk_blocks: blocks_per_chunk,
    }
}

/// Seconds of a die for a block of the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    read: f64,
    program: f64,
}

impl Costs {
    pub(super) fn of(profile: &Profile) -> Costs {
        let mean = |times: &[u32]| times.iter().sum::<u32>() as f64 / times.len() as f64 / 1e6;
        let unit_blocks = profile.chip.page_blocks * profile.chip.planes;
        Costs { read: mean(&profile.chip.read_us), program: mean(&profile.chip.program_us) / f64::from(unit_blocks) }
    }

    /// The speed as a share of that with the whole map in memory, of which `whole` was measured; `per` so many requests or blocks.
    pub(super) fn share(self, whole: &Measured, whole_per: f64, traffic: MapTraffic, per: f64) -> f64 {
        let busy = whole.pu_busy.iter().map(|busy| busy.as_secs_f64()).sum::<f64>() / whole_per;
        let more = (traffic.reads as f64 * self.read + traffic.programs as f64 * self.program) / per;
        busy / (busy + more)
    }
}

/// The map traffic of our drive in a measured phase.
pub(super) fn own_traffic(measured: &Measured) -> MapTraffic {
    let statistics = &measured.statistics;
    MapTraffic { reads: statistics.map_pages_read, programs: statistics.programmed_for(Purpose::Map) }
}

/// What the model says of one load: by budget and scheme.
pub(super) struct Baselines {
    load: usize,
    budgets: Vec<u32>,
    replayed: Replayed,
    costs: Costs,
}

impl Baselines {
    /// Runs one load over the model, for all budgets and schemes at once.
    pub(super) fn of(
        scale: &Scale,
        load: usize,
        whole: &Case,
        seed: u64,
        profile: &Profile,
    ) -> Result<Self, ExperimentError> {
        let capacity_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
        let budgets: Vec<u32> = scale.budgets.iter().copied().filter(|budget| *budget > 0).collect();
        let caches = budgets.iter().flat_map(|budget| {
            let pool = pool_bytes(*budget, capacity_blocks, &whole.measured);
            Scheme::ALL.map(|scheme| scheme.cache(capacity_blocks, pool))
        });
        let (warm_up, requests) = super::lengths(scale, load);
        let lengths = Lengths {
            warm_up_writes: (capacity_blocks as f64 * warm_up) as u64,
            warm_up_requests: if LOADS[load].is_only_reads() { requests } else { 0 },
            requests,
        };
        let flash = flash(capacity_blocks, super::OVER_PROVISIONING.as_f64(), scale.blocks_per_chunk);
        let mut steps = load_of(scale, load, seed)?;
        let replayed = replay(&mut *steps, flash, lengths, caches.collect());
        Ok(Baselines { load, budgets, replayed, costs: Costs::of(profile) })
    }

    fn traffic(&self, budget: u32, scheme: Scheme) -> MapTraffic {
        let at = self.budgets.iter().position(|other| *other == budget).expect("every budget was run");
        self.replayed.traffic[at * Scheme::ALL.len() + scheme as usize]
    }

    fn requests(&self) -> f64 {
        self.replayed.requests as f64
    }

    /// The speed of a scheme, of that with the whole map in memory.
    fn share(&self, cases: &Cases, budget: u32, scheme: Scheme) -> f64 {
        let whole = &cases.of(LOADS[self.load].name, 0).measured;
        self.costs.share(whole, whole.outcome.requests() as f64, self.traffic(budget, scheme), self.requests())
    }

    /// What the formula says of our own traffic.
    fn own_share(&self, cases: &Cases, budget: u32) -> f64 {
        let name = LOADS[self.load].name;
        let (whole, own) = (&cases.of(name, 0).measured, &cases.of(name, budget).measured);
        let requests = own.outcome.requests() as f64;
        self.costs.share(whole, whole.outcome.requests() as f64, own_traffic(own), requests)
    }
}

pub(super) fn table(all: &[Baselines], cases: &Cases) -> Table {
    let mut table = Table::new(
        "baselines",
        &[
            ("load", ""),
            ("memory", "% of the map"),
            ("ours", "% of the whole map's"),
            ("ours by the model", "%"),
            ("LRU page cache", "%"),
            ("LRU 64 KiB", "%"),
            ("DFTL-like", "%"),
            ("ours programs", "a request"),
            ("LRU page cache programs", "a request"),
            ("LRU 64 KiB programs", "a request"),
            ("DFTL-like programs", "a request"),
        ],
    );
    for baselines in all {
        let Load { name, .. } = LOADS[baselines.load];
        for &budget in &baselines.budgets {
            let own = &cases.of(name, budget).measured;
            let percent = |share: f64| Cell::Number(share * 100.0, 1);
            let mut row = vec![
                Cell::Text(name.to_owned()),
                Cell::Count(budget.into()),
                percent(cases.share(name, budget)),
                percent(baselines.own_share(cases, budget)),
            ];
            row.extend(Scheme::ALL.map(|scheme| percent(baselines.share(cases, budget, scheme))));
            row.push(Cell::Number(own_traffic(own).programs as f64 / own.outcome.requests().max(1) as f64, 3));
            row.extend(Scheme::ALL.map(|scheme| {
                Cell::Number(baselines.traffic(budget, scheme).programs as f64 / baselines.requests(), 3)
            }));
            table.row(row);
        }
    }
    table
}

pub(super) fn plot(all: &[Baselines], cases: &Cases, load: &'static str) -> Plot {
    let baselines = of_load(all, load);
    let budgets = || baselines.budgets.iter().copied();
    let ours = budgets().map(|budget| (f64::from(budget), cases.share(load, budget) * 100.0)).collect();
    let mut series = vec![Series::new("OpenFTL", ours)];
    series.extend(Scheme::ALL.map(|scheme| {
        let points = budgets().map(|budget| (f64::from(budget), baselines.share(cases, budget, scheme) * 100.0));
        Series::new(scheme.name(), points.collect())
    }));
    Plot {
        name: "baselines",
        title: format!("Ours beside schemes that load for a write: {load}"),
        x: Axis::even("memory for the map", "%"),
        y: Axis::even("of the speed with the whole map in memory", "%"),
        series,
        caption: vec!["The other schemes are a model, which gives them the most that they can reach.".to_owned()],
    }
}

fn of_load<'a>(all: &'a [Baselines], load: &str) -> &'a Baselines {
    all.iter().find(|baselines| LOADS[baselines.load].name == load).expect("every load was run")
}

pub(super) fn checks(scale: &Scale, all: &[Baselines], cases: &Cases) -> Vec<Check> {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let writes = || all.iter().filter(|baselines| LOADS[baselines.load].is_only_writes());
    // With all of the map in memory there is nothing to be gained by the way that it is loaded.
    let budgets = || scale.budgets.iter().copied().filter(|budget| (1..100).contains(budget));
    let leads = writes().flat_map(|baselines| {
        let ours = |budget| cases.share(LOADS[baselines.load].name, budget);
        let best = move |budget| {
            Scheme::ALL.map(|scheme| baselines.share(cases, budget, scheme)).into_iter().fold(0.0, f64::max)
        };
        budgets().map(move |budget| ours(budget) - best(budget))
    });
    let least_lead = leads.fold(f64::INFINITY, f64::min);
    let scattered = of_load(all, super::PARETO_WRITES[0]);
    let clustered = of_load(all, super::PARETO_WRITES[1]);
    let beside = Check {
        claim: "Writes are faster than where a write loads its map page, and an eviction writes it back.",
        check: "faster than each other scheme with each budget, for all loads that only write; or no more than 5% slower",
        holds: least_lead >= -0.05,
        measured: format!(
            "{} scattered, {} clustered at 32% beside {} and {} of the paper's unit of 64 KiB, {} and {} of DFTL's entries; the least \
             lead is {:.1} points",
            percent(cases.share(super::PARETO_WRITES[0], 32)),
            percent(cases.share(super::PARETO_WRITES[1], 32)),
            percent(scattered.share(cases, 32, Scheme::Blocks)),
            percent(clustered.share(cases, 32, Scheme::Blocks)),
            percent(scattered.share(cases, 32, Scheme::Entries)),
            percent(clustered.share(cases, 32, Scheme::Entries)),
            least_lead * 100.0
        ),
        why: "A relocated block is a change of the map, too: as long as a page is not in memory, each of these costs a read and a \
              program of it.",
    };
    let errors = writes().flat_map(|baselines| {
        let name = LOADS[baselines.load].name;
        budgets().map(move |budget| baselines.own_share(cases, budget) / cases.share(name, budget) - 1.0)
    });
    let (least, most) =
        errors.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), error| (least.min(error), most.max(error)));
    let model = Check {
        claim: "The model's time is that of the drive.",
        check: scale.model_check,
        holds: least >= -scale.model_tolerance && most <= scale.model_tolerance,
        measured: format!("{:+.1}% to {:+.1}%", least * 100.0, most * 100.0),
        why: "With many requests at a time all dies are busy, so that speed is the inverse of die time.",
    };
    vec![beside, model]
}
