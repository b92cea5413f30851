//! `openftl bench`: one workload on a new drive in memory.

use crate::assembly;
use crate::cli::{self, Store, Timing, WarmUp, WorkloadName};
use crate::clock::BenchClock;
use crate::drive_file::StoreName;
use crate::failure::Failure;
use crate::figures::{Figures, Measured};
use crate::measure::{Bench, SWEEP_BLOCKS, WarmedUp, rate, show};
use crate::report::{self, Seconds};
use crate::settings::Settings;
use crate::terminal::{Ink, Live, Palette, say};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos};
use openftl_ftl::target::TRANSACTION_BLOCKS_MAX;
use openftl_ftl::{BlockTarget, CollectionScope, PlacementName, VictimPolicy};
use openftl_lab::{Driver, Limit, Pattern, Workload, WorkloadConfig, theory};
use openftl_media::Timing as MediaTiming;
use serde::Serialize;
use std::ops::ControlFlow;

/// What the host sees unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(4 << 30);

/// Capacities written unless the command says otherwise.
const DRIVE_WRITES_DEFAULT: f64 = 4.0;

/// What was run.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Configuration {
    profile: String,
    capacity_bytes: u64,
    over_provisioning: f64,
    victim: VictimPolicy,
    collection: CollectionScope,
    placement: PlacementName,
    write_through: bool,
    timing: Timing,
    store: Store,
    chunks_per_pu: u32,
    queue_depth: u32,
    block_bytes: u64,
}

#[derive(Serialize, Clone, PartialEq, Debug)]
struct WorkloadFacts {
    name: WorkloadName,
    read_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    theta: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_accesses: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_space: Option<f64>,
}

/// The one object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Findings {
    #[serde(flatten)]
    figures: Figures,
    /// Write amplification that theory expects of the same effective over-provisioning; null where it has no answer.
    waf_theory: Option<f64>,
    seed: u64,
    workload: WorkloadFacts,
    configuration: Configuration,
    warm_up: WarmedUp,
    /// Blocks that were read and compared, all phases.
    blocks_verified: u64,
}

pub fn run(arguments: &cli::Bench) -> Result<(), Failure> {
    let (findings, measured) = Run::prepare(arguments)?.finish(Live::new(false))?;
    if arguments.json {
        return say(&crate::json(&findings)?);
    }
    say(&page(&findings, &measured, Palette::of_stdout()))
}

/// A run that was found possible.
struct Run {
    settings: Settings,
    configuration: Configuration,
    workload: WorkloadConfig,
    facts: WorkloadFacts,
    drive_writes: f64,
    seconds: Option<f64>,
    warm_up: WarmUp,
}

impl Run {
    fn prepare(arguments: &cli::Bench) -> Result<Run, Failure> {
        let settings = Settings::gather(&arguments.flags, CAPACITY_DEFAULT)?.expect_one_drive("bench")?;
        let timing = arguments.timing.or(settings.timing).unwrap_or(Timing::Virtual);
        let store = match (arguments.store, settings.store) {
            (Some(store), _) => store,
            (None, Some(StoreName::Ram)) => Store::Ram,
            (None, Some(StoreName::Stamps)) => Store::Stamps,
            // A drive file for serving is fine: bench takes everything from it but the file that it is kept in.
            (None, None | Some(StoreName::File)) => {
                if timing == Timing::Instant {
                    Store::Ram
                } else {
                    Store::Stamps
                }
            }
        };
        let block_bytes = arguments.block_size.0;
        let block = BLOCK_BYTES as u64;
        if block_bytes == 0 || !block_bytes.is_multiple_of(block) || block_bytes > TRANSACTION_BLOCKS_MAX as u64 * block
        {
            return Err(Failure::bad_input(format_args!(
                "--block-size {} is no multiple of 4 KiB up to 1 MiB",
                arguments.block_size
            ))
            .fix("choose 4KiB, 16KiB, 64KiB or the like"));
        }
        let share = |share: Share, flag: &str| match share <= Share::percent(100) {
            true => Ok(share),
            false => Err(Failure::bad_input(format_args!("{flag} {share} is more than all"))
                .fix("write a share from 0% to 100%")),
        };
        let read_share = arguments.read_share.unwrap_or(match arguments.workload {
            WorkloadName::Mixed => Share::percent(50),
            _ => Share::percent(0),
        });
        let read_share = share(read_share, "--read-share")?;
        let hot_accesses = share(arguments.hot_accesses, "--hot-accesses")?;
        let hot_space = share(arguments.hot_space, "--hot-space")?;
        let pattern = match arguments.workload {
            WorkloadName::Uniform | WorkloadName::Mixed => Pattern::Uniform,
            WorkloadName::Sequential => Pattern::Sequential,
            WorkloadName::Zipf => Pattern::Zipf { theta: arguments.theta },
            WorkloadName::HotCold => Pattern::HotCold { accesses: hot_accesses, space: hot_space },
        };
        let zipf = arguments.workload == WorkloadName::Zipf;
        let hot_cold = arguments.workload == WorkloadName::HotCold;
        Ok(Run {
            workload: WorkloadConfig {
                pattern,
                read_share,
                access_blocks: (block_bytes / block) as u32,
                drive_blocks: settings.drive.capacity.0 / block,
                seed: arguments.seed,
            },
            facts: WorkloadFacts {
                name: arguments.workload,
                read_share: read_share.as_f64(),
                theta: zipf.then_some(arguments.theta),
                hot_accesses: hot_cold.then_some(hot_accesses.as_f64()),
                hot_space: hot_cold.then_some(hot_space.as_f64()),
            },
            configuration: Configuration {
                profile: settings.profile.name.clone(),
                capacity_bytes: settings.drive.capacity.0,
                over_provisioning: settings.drive.over_provisioning.as_f64(),
                victim: settings.drive.victim,
                collection: settings.drive.collection,
                placement: settings.drive.placement,
                write_through: settings.drive.write_through,
                timing,
                store,
                chunks_per_pu: 0,
                queue_depth: arguments.queue_depth,
                block_bytes,
            },
            drive_writes: arguments.drive_writes.unwrap_or(DRIVE_WRITES_DEFAULT),
            seconds: arguments.seconds,
            warm_up: arguments.warm_up,
            settings,
        })
    }

    fn finish(mut self, live: Live) -> Result<(Findings, Measured), Failure> {
        let Configuration { timing, store, queue_depth, .. } = self.configuration;
        let access_blocks = self.workload.access_blocks;
        let payload = match store {
            Store::Ram => FrameForm::Bytes,
            Store::Stamps => FrameForm::Stamp,
        };
        let mut config = self.settings.drive.config(payload, self.workload.seed);
        // Room for all requests under way twice, so that the drive's buffer and not the pool is what fills up.
        config.host_frames = config.host_frames.max(2 * queue_depth * access_blocks.max(SWEEP_BLOCKS));
        let media_timing = if timing == Timing::Instant { MediaTiming::Instant } else { MediaTiming::Modelled };
        let mut clock = BenchClock::simulated();
        let drive =
            assembly::new_in_memory(&self.settings, config, store, media_timing, self.workload.seed, &mut clock)?;
        self.configuration.chunks_per_pu = assembly::geometry(&drive).chunks_per_pu;
        let driver = Driver::new(drive.blocks(), queue_depth as usize, access_blocks.max(SWEEP_BLOCKS) as usize);
        let mut bench = Bench { drive, clock, driver, live };

        let mut verified = bench.fill()?.reads.blocks;
        let mut workload = Workload::new(&self.workload);
        let only_reads = self.workload.read_share == Share::percent(100);
        let warm_up = match self.warm_up {
            _ if only_reads => Some(0.0),
            WarmUp::Auto => None,
            WarmUp::DriveWrites(drive_writes) => Some(drive_writes),
        };
        let warm_up = bench.warm_up(&mut workload, warm_up)?;
        if timing != Timing::Virtual {
            bench.clock.start_running();
        }
        let limit = self.limit(only_reads, &mut bench.clock);
        let measured = bench.measure(&mut workload, limit, |live, progress, started| {
            if live.is_due() {
                let blocks = progress.outcome.writes.blocks + progress.outcome.reads.blocks;
                let share = match limit {
                    Limit::Requests(requests) => progress.outcome.requests() as f64 / requests as f64,
                    Limit::BlocksWritten(blocks) => progress.outcome.writes.blocks as f64 / blocks as f64,
                    Limit::Until(end) | Limit::Cut(end) => {
                        progress.now.since(progress.outcome.started).0 as f64
                            / end.since(progress.outcome.started).0.max(1) as f64
                    }
                };
                let waf = progress.target.statistics().waf();
                show(live, "measure", share, &format!("{}, WAF {waf:.3}", rate(blocks, started)));
            }
            ControlFlow::Continue(())
        })?;
        verified += measured.outcome.reads.blocks;
        verified += bench.read_back()?.reads.blocks;
        let figures = measured.figures();
        let uniform = self.workload.pattern == Pattern::Uniform && access_blocks == 1 && !only_reads;
        let waf_theory = (uniform
            && self.settings.drive.victim == VictimPolicy::Greedy
            && figures.effective_over_provisioning > 0.0)
            .then(|| theory::greedy(figures.effective_over_provisioning, figures.pages_per_block));
        let result = Findings {
            figures,
            waf_theory,
            seed: self.workload.seed,
            workload: self.facts,
            configuration: self.configuration,
            warm_up,
            blocks_verified: verified,
        };
        Ok((result, measured))
    }

    fn limit(&self, only_reads: bool, clock: &mut BenchClock) -> Limit {
        let blocks = (self.drive_writes * self.workload.drive_blocks as f64).round().max(1.0) as u64;
        match self.seconds {
            Some(seconds) => Limit::Until(clock.now() + Nanos((seconds * 1e9) as u64)),
            None if only_reads => Limit::Requests(blocks.div_ceil(u64::from(self.workload.access_blocks))),
            None => Limit::BlocksWritten(blocks),
        }
    }
}

/// The page for people.
fn page(result: &Findings, measured: &Measured, palette: Palette) -> String {
    let Configuration { profile, capacity_bytes, over_provisioning, timing, queue_depth, block_bytes, .. } =
        &result.configuration;
    let name = serde_json::to_value(result.workload.name)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_default();
    let mut text = palette.paint(Ink::Bold, &format!("{name} on {profile}"));
    text.push_str(&palette.paint(
        Ink::Dim,
        &format!(
            "   {}, {:.1}% over-provisioning, {} requests, {queue_depth} at a time, seed {}\n",
            ByteSize(*capacity_bytes),
            over_provisioning * 100.0,
            ByteSize(*block_bytes),
            result.seed
        ),
    ));
    let seconds = if *timing == Timing::Virtual { Seconds::Simulated } else { Seconds::Real };
    text.push_str(&report::page(measured, seconds, palette));
    if let (Some(theory), Some(waf)) = (result.waf_theory, result.figures.relocation_waf) {
        text.push_str(&format!(
            "\nTheory expects {theory:.3} for data and relocation (greedy, {} blocks a chunk, {:.2}% effective over-provisioning);\nmeasured {waf:.3}, {:+.1}%.\n",
            result.figures.pages_per_block,
            result.figures.effective_over_provisioning * 100.0,
            (waf / theory - 1.0) * 100.0
        ));
    }
    if result.warm_up.steady == Some(false) {
        text.push_str(
            &palette
                .paint(Ink::Bad, "\nThe write amplification was not steady after the warm-up: measure for longer.\n"),
        );
    }
    if result.figures.turned_read_only {
        text.push_str(
            &palette
                .paint(Ink::Bad, "\nThe drive turned read-only: it is worn out, or has too few good chunks left.\n"),
        );
    }
    text.push_str(&format!(
        "\n{} blocks were read and compared. Trace {}.\n",
        openftl_lab::picture::thousands(result.blocks_verified),
        result.figures.trace_hash
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn prepare(line: &str) -> Result<Run, Failure> {
        let words = ["openftl", "bench"].into_iter().chain(line.split_whitespace());
        match cli::Cli::try_parse_from(words).unwrap().command {
            cli::Command::Bench(arguments) => Run::prepare(&arguments),
            other => panic!("{other:?}"),
        }
    }

    fn bench(line: &str) -> Findings {
        prepare(line).unwrap().finish(Live::silent()).unwrap_or_else(|failure| panic!("{line}: {failure}")).0
    }

    /// The object that `--json` prints, without what differs from run to run.
    fn json(line: &str) -> serde_json::Value {
        let mut object = serde_json::to_value(bench(line)).unwrap();
        assert!(object.as_object_mut().unwrap().remove("wall_seconds").is_some());
        object
    }

    const SMALL: &str = "--profile cosmos --capacity 64MiB --drive-writes 1 --warm-up 1";

    #[test]
    fn the_same_seed_gives_the_same_object_and_another_seed_another_trace() {
        for workload in ["uniform", "sequential", "mixed", "zipf", "hot-cold"] {
            let of = |seed| json(&format!("{SMALL} --workload {workload} --seed {seed}"));
            let first = of(1);
            assert_eq!(first, of(1), "{workload}");
            if workload != "sequential" {
                assert_ne!(first["trace_hash"], of(2)["trace_hash"], "{workload}");
            }
        }
    }

    #[test]
    fn stamps_stand_for_bytes_in_every_figure() {
        let of = |store| {
            let mut object = json(&format!("{SMALL} --workload mixed --store {store}"));
            object["configuration"]["store"] = serde_json::Value::Null;
            object
        };
        assert_eq!(of("stamps"), of("ram"));
    }

    #[test]
    fn the_object_has_the_fields_that_scripts_rely_on() {
        let object = json(&format!("{SMALL} --workload uniform"));
        for field in ["host_blocks_written", "nand_blocks_written", "waf", "iops", "virtual_seconds", "pages_per_block"]
        {
            assert!(object[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {object}");
        }
        for field in ["p50", "p99", "p999", "max"] {
            assert!(object["latency_ns"][field].is_u64(), "{field}: {object}");
        }
        assert!(object["effective_over_provisioning"].is_f64() && object["trace_hash"].is_string(), "{object}");
        let (host, nand) =
            (object["host_blocks_written"].as_u64().unwrap(), object["nand_blocks_written"].as_u64().unwrap());
        assert_eq!(host, 64 * 256, "one drive write");
        assert!(nand > host, "some blocks had to be moved");
    }

    #[test]
    fn every_block_is_read_back_after_the_run() {
        assert_eq!(bench(&format!("{SMALL} --workload zipf")).blocks_verified, 64 * 256);
    }

    #[test]
    fn a_workload_that_only_reads_ends() {
        let findings = bench(&format!("{SMALL} --workload uniform --read-share 100%"));
        assert_eq!(findings.figures.host_blocks_read, 64 * 256);
        assert_eq!((findings.figures.waf, findings.waf_theory), (None, None));
    }

    #[test]
    fn sizes_and_shares_that_cannot_be_are_refused() {
        for (line, word) in [
            ("--block-size 5000", "--block-size"),
            ("--block-size 2MiB", "--block-size"),
            ("--read-share 101%", "--read-share"),
            ("--workload hot-cold --hot-space 200%", "--hot-space"),
            ("--capacity 1001", "capacity"),
        ] {
            let failure = prepare(line).err().unwrap_or_else(|| panic!("{line} was taken")).to_string();
            assert!(failure.contains(word) && failure.contains("fix:"), "{line}: {failure}");
        }
    }
}
