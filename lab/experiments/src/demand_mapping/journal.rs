//! Figure 6b: what a hint about the journal of a file system gains, and what a wrong one costs.
//!
//! In the paper a write looks for its mapping block, so a journal whose mapping blocks stay in memory finds them there. Here
//! a write looks for none. So the same hint is given twice: to our drive, and to the schemes of the model, which load for a write.

use super::baselines::{Costs, Scheme, flash, pool_bytes};
use super::{OVER_PROVISIONING, QUEUE_DEPTH, Scale, ZIPF, map_memory};
use crate::claim::TOLERANCE;
use crate::full_drive::FullDrive;
use crate::map_caches::{Lengths, MapTraffic, replay};
use crate::{Check, Claim, ExperimentError, Figure};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_lab::figures::{Axis, Cell, Plot, Series, Table};
use openftl_lab::load_spec::Model;
use openftl_lab::loads::JournaledFs;
use openftl_lab::trial::{Measured, unwatched};
use openftl_lab::{Binding, Limit, LoadSpec};
use openftl_media::{Profile, Timing};
use openftl_parts::Config;
use openftl_parts::map::pins::MapPin;
use std::ops::Range;

/// The paper's 64 MB of 400 MB.
const BUDGET: u32 = 16;

/// Of what the database does the part that reads: Filebench's OLTP has 200 threads that read and 10 that write.
const READS: Share = Share::percent(95);

/// What the drive is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hint {
    None,
    Right,
    Learned,
    Wrong,
}

impl Hint {
    const ALL: [Hint; 4] = [Hint::None, Hint::Right, Hint::Learned, Hint::Wrong];

    fn name(self) -> &'static str {
        match self {
            Hint::None => "none",
            Hint::Right => "the journal",
            Hint::Learned => "learned",
            Hint::Wrong => "other blocks",
        }
    }

    /// The blocks that it names.
    fn blocks(self, capacity_blocks: u64) -> Option<Range<u64>> {
        let journal = JournaledFs::journal_of(capacity_blocks);
        match self {
            Hint::None | Hint::Learned => None,
            Hint::Right => Some(journal),
            Hint::Wrong => Some(capacity_blocks - (journal.end - journal.start)..capacity_blocks),
        }
    }

    fn pins(self, capacity_blocks: u64) -> Vec<MapPin> {
        if self == Hint::Learned {
            return vec![MapPin::Learned];
        }
        let bytes = |block: u64| ByteSize(block * BLOCK_BYTES as u64);
        let pin = |blocks: Range<u64>| MapPin::Range { from: bytes(blocks.start), to: bytes(blocks.end) };
        self.blocks(capacity_blocks).map(pin).into_iter().collect()
    }
}

/// What was measured, and what the model says.
pub(super) struct Journal {
    whole: Measured,
    ours: [Measured; 4],
    /// By scheme, and without a hint, with the right one, with a wrong one.
    modelled: Vec<[MapTraffic; 3]>,
    /// Blocks that the host moved in the model.
    moved: f64,
    costs: Costs,
}

/// Runs of the drive.
pub(super) const RUNS: usize = 1 + Hint::ALL.len();

const MODELLED: [Hint; 3] = [Hint::None, Hint::Right, Hint::Wrong];

impl Journal {
    pub(super) fn of(
        scale: &Scale,
        seed: u64,
        profile: &Profile,
        mut progress: impl FnMut(usize, &str),
    ) -> Result<Journal, ExperimentError> {
        let capacity_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
        progress(0, "whole map");
        let whole = measured(scale, seed, profile, None)?;
        let mut ours = Vec::new();
        for (index, hint) in Hint::ALL.into_iter().enumerate() {
            progress(index + 1, hint.name());
            ours.push(measured(scale, seed, profile, Some(hint))?);
        }
        let pool = pool_bytes(BUDGET, capacity_blocks, &whole);
        let caches = Scheme::ALL.into_iter().flat_map(|scheme| {
            MODELLED.map(|hint| {
                let cache = scheme.cache(capacity_blocks, pool);
                match hint.blocks(capacity_blocks) {
                    Some(blocks) => cache.pinned(blocks),
                    None => cache,
                }
            })
        });
        let lengths = Lengths {
            warm_up_writes: (capacity_blocks as f64 * scale.warm_up) as u64,
            warm_up_requests: requests_of(scale),
            requests: requests_of(scale),
        };
        let flash = flash(capacity_blocks, OVER_PROVISIONING.as_f64(), scale.blocks_per_chunk);
        let replayed = replay(&mut load_of(scale, seed), flash, lengths, caches.collect());
        let modelled = replayed.traffic.as_chunks::<3>().0.to_vec();
        let ours = ours.try_into().unwrap_or_else(|_| unreachable!("one for each hint"));
        Ok(Journal { whole, ours, modelled, moved: replayed.moved as f64, costs: Costs::of(profile) })
    }

    fn of_hint(&self, hint: Hint) -> &Measured {
        &self.ours[hint as usize]
    }

    fn share(&self, hint: Hint) -> f64 {
        speed(self.of_hint(hint)) / speed(&self.whole)
    }

    /// What a hint gains, in percent.
    fn gain(&self, hint: Hint) -> f64 {
        (self.share(hint) / self.share(Hint::None) - 1.0) * 100.0
    }

    fn modelled_share(&self, scheme: Scheme, hint: usize) -> f64 {
        let traffic = self.modelled[scheme as usize][hint];
        self.costs.share(&self.whole, moved(&self.whole), traffic, self.moved)
    }

    fn modelled_gain(&self, scheme: Scheme, hint: usize) -> f64 {
        (self.modelled_share(scheme, hint) / self.modelled_share(scheme, 0) - 1.0) * 100.0
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(
            "journal",
            &[
                ("scheme", ""),
                ("hint", ""),
                ("speed", "% of the whole map's"),
                ("gain", "%"),
                ("map pages read", "a block moved"),
                ("map pages programmed", "a block moved"),
            ],
        );
        for hint in Hint::ALL {
            let traffic = super::baselines::own_traffic(self.of_hint(hint));
            let per = moved(self.of_hint(hint));
            table.row(row("OpenFTL", hint.name(), (self.share(hint), self.gain(hint)), traffic, per));
        }
        for scheme in Scheme::ALL {
            for (index, hint) in MODELLED.into_iter().enumerate() {
                let figures = (self.modelled_share(scheme, index), self.modelled_gain(scheme, index));
                table.row(row(scheme.name(), hint.name(), figures, self.modelled[scheme as usize][index], self.moved));
            }
        }
        table
    }

    pub(super) fn plot(&self) -> Plot {
        // Speeds one beside the other: 1 without a hint, 2 with the right one, 3 with a wrong one.
        let ours = MODELLED.iter().zip(1..).map(|(hint, x)| (f64::from(x), self.share(*hint) * 100.0)).collect();
        let mut series = vec![Series::new("OpenFTL", ours)];
        series.extend(Scheme::ALL.map(|scheme| {
            let points = (0..3).map(|hint| (1.0 + hint as f64, self.modelled_share(scheme, hint) * 100.0));
            Series::new(scheme.name(), points.collect())
        }));
        Plot {
            name: "journal",
            title: format!("ext4 data=journal with {BUDGET}% of the map in memory: no hint, the journal, other blocks"),
            x: Axis::even("1: no hint, 2: the journal, 3: other blocks", ""),
            y: Axis::even("of the speed with the whole map in memory", "%"),
            series,
            caption: vec!["In the paper the hint about the journal gains 10%.".to_owned()],
        }
    }

    pub(super) fn claim(&self) -> Claim {
        Claim::new(
            &["003-5"],
            "Where replacement prefers the journal of ext4, throughput is 10% higher.",
            vec![Figure::effect("our drive, hint about the journal", " %", 1, 10.0, 0.0, self.gain(Hint::Right))],
            "A write needs no map page here, so none is missing for one, whether or not the journal is known.",
        )
    }

    pub(super) fn checks(&self, scale: &Scale) -> Vec<Check> {
        let gains = Scheme::ALL.map(|scheme| (scheme, self.modelled_gain(scheme, 1)));
        let of_entries = self.modelled_gain(Scheme::Entries, 1);
        let told = gains.map(|(scheme, gain)| format!("{} {gain:+.1}%", scheme.name())).join(", ");
        let best = Scheme::ALL.map(|scheme| self.modelled_share(scheme, 1)).into_iter().fold(0.0, f64::max);
        let costs = [Hint::Right, Hint::Learned, Hint::Wrong].map(|hint| (hint, self.gain(hint)));
        vec![
            Check {
                claim: "Where a write loads its entry, and an eviction writes it back, the hint gains what the paper says.",
                check: "7% or more with DFTL-like eviction, by the model: the paper's 10% to within 30%",
                holds: of_entries >= 10.0 * (1.0 - TOLERANCE),
                measured: told,
                why: "Entries of the journal are changed in order and leave before they are changed again: each costs a read before, \
                      and a read and a program after. A whole page in memory takes a thousand of these changes.",
            },
            Check {
                claim: "Without a hint the drive is faster than those schemes with one.",
                check: "than the best of them with the hint about the journal",
                holds: self.share(Hint::None) > best,
                measured: format!("{:.1}% and {:.1}%", self.share(Hint::None) * 100.0, best * 100.0),
                why: "Changes wait for each other in memory, and are merged many at a time.",
            },
            Check {
                claim: "A hint costs nothing, even where it is wrong.",
                check: scale.hint_check,
                holds: costs.iter().all(|(_, gain)| *gain > -scale.hint_cost_max),
                measured: costs.map(|(hint, gain)| format!("{} {gain:+.2}%", hint.name())).join(", "),
                why: "Pages come to memory when they are read, and never for the hint alone.",
            },
        ]
    }
}

fn row(scheme: &str, hint: &str, (share, gain): (f64, f64), traffic: MapTraffic, per: f64) -> Vec<Cell> {
    vec![
        Cell::Text(scheme.to_owned()),
        Cell::Text(hint.to_owned()),
        Cell::Number(share * 100.0, 1),
        Cell::Number(gain, 2),
        Cell::Number(traffic.reads as f64 / per, 4),
        Cell::Number(traffic.programs as f64 / per, 4),
    ]
}

/// Requests of the database and its file system.
fn requests_of(scale: &Scale) -> u64 {
    (scale.capacity.0 as f64 / BLOCK_BYTES as f64 * scale.journal_requests) as u64
}

/// Writes until the drive has settled, and then reads as well.
fn load_of(scale: &Scale, seed: u64) -> JournaledFs {
    let capacity_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
    let writes_first = (capacity_blocks as f64 * scale.warm_up) as u64;
    JournaledFs::new(capacity_blocks, ZIPF, READS, writes_first, seed)
}

/// Blocks that the host read and wrote.
fn moved(measured: &Measured) -> f64 {
    (measured.outcome.reads.blocks + measured.outcome.writes.blocks) as f64
}

fn speed(measured: &Measured) -> f64 {
    moved(measured) / measured.outcome.seconds()
}

/// With `hint` and little memory, or with the whole map.
fn measured(scale: &Scale, seed: u64, profile: &Profile, hint: Option<Hint>) -> Result<Measured, ExperimentError> {
    let mut profile = profile.clone();
    profile.chip.blocks_per_chunk = scale.blocks_per_chunk;
    let capacity_blocks = scale.capacity.0 / BLOCK_BYTES as u64;
    let drive = FullDrive {
        profile,
        timing: Timing::Modelled,
        config: Config {
            capacity_blocks,
            over_provisioning: OVER_PROVISIONING,
            map_memory: hint.map(|_| map_memory(BUDGET)),
            map_pins: hint.map_or_else(Vec::new, |hint| hint.pins(capacity_blocks)),
            ..Config::default()
        },
        load: LoadSpec::new(Model::Uniform),
        binding: Binding::None,
        queue_depth: QUEUE_DEPTH,
        pace: Nanos::ZERO,
        warm_up: scale.warm_up,
        drive_writes: 0.0,
        seed,
    };
    let mut trial = drive.settled(|_| Box::new(load_of(scale, seed)))?;
    let limit = Limit::Requests(requests_of(scale));
    // The drive has been written to without a read so far.
    trial.measure(limit, Nanos::ZERO, &mut unwatched)?;
    Ok(trial.measure(limit, Nanos::ZERO, &mut unwatched)?)
}
