//! `openftl bench`: one workload on a new drive in memory.

use crate::assembly;
use crate::cli::{self, Store, Timing};
use crate::contender::binding_for;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::measure::{self, Trying, Watched, ended_early, expect_something};
use crate::report::{self, Seconds};
use crate::settings::{Settings, note_on};
use crate::terminal::{Ink, Live, Palette, interrupted, say};
use crate::zones_made::ZonesMade;
use openftl_blocks::Ftl;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Clock, Nanos};
use openftl_drive::description::StoreName;
use openftl_lab::load_spec::Model;
use openftl_lab::trial::{Phase, View, WarmedUp};
use openftl_lab::{Limit, LoadSpec, Measured, TrialError, WarmUp, theory};
use openftl_media::Timing as MediaTiming;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::{BlockTarget, CollectionScope, PlacementName, VictimPolicy};
use openftl_serving::flash::Flash;
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What the host sees unless the command says otherwise.
const CAPACITY_DEFAULT: ByteSize = ByteSize(4 << 30);

/// What an access has unless the load says otherwise.
const BLOCK: ByteSize = ByteSize(BLOCK_BYTES as u64);

/// Capacities written unless the command says otherwise.
const DRIVE_WRITES_DEFAULT: f64 = 4.0;

/// What was run.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Configuration {
    profile: String,
    capacity_bytes: u64,
    /// This and what follows is of block drives; null of others.
    over_provisioning: Option<f64>,
    victim: Option<VictimPolicy>,
    collection: Option<CollectionScope>,
    placement: Option<PlacementName>,
    map_memory: Option<String>,
    map_cache: Option<CachePolicy>,
    write_through: Option<bool>,
    /// Of zones and segments.
    #[serde(flatten)]
    zones: Option<ZonesMade>,
    timing: Timing,
    store: Store,
    chunks_per_pu: u32,
    queue_depth: u32,
}

/// The one object that `--json` prints.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Findings {
    #[serde(flatten)]
    figures: Figures,
    /// Write amplification that theory expects of the same effective over-provisioning; null where it has no answer.
    waf_theory: Option<f64>,
    seed: u64,
    /// As it can be said again.
    workload: String,
    configuration: Configuration,
    warm_up: WarmUpFacts,
    /// Blocks that were read and compared, all phases.
    blocks_verified: u64,
    /// Whether it was interrupted, and the figures are those of the part that was done.
    interrupted: bool,
}

/// How far the warm-up went.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct WarmUpFacts {
    /// Capacities written, the fill not counted.
    drive_writes: f64,
    /// Write amplification of each window.
    waf: Vec<f64>,
    /// Whether the last windows agreed; null if nobody asked.
    steady: Option<bool>,
}

pub fn run(arguments: &cli::Bench) -> Result<(), Failure> {
    let run = Run::prepare(arguments)?;
    let interrupted = interrupted()?;
    let is_over = |_| interrupted.load(Ordering::Relaxed);
    let palette = Palette::of_stdout();
    if arguments.json {
        let mut done = run.finish(Live::new(false), &is_over)?;
        done.findings.figures.wall_seconds = arguments.wall.then_some(done.wall_seconds);
        return say(&crate::json(&done.findings)?);
    }
    say(&header(&run.configuration, &run.trying, palette))?;
    say(&page(&run.finish(Live::new(false), &is_over)?, palette))
}

/// A run that came to its end.
struct Done {
    findings: Findings,
    measured: Measured,
    /// How long the measured phase took here.
    wall_seconds: f64,
}

/// A run that was found possible.
struct Run {
    settings: Settings,
    configuration: Configuration,
    trying: Trying,
    drive_writes: f64,
    seconds: Option<f64>,
    warm_up: WarmUp,
}

impl Run {
    fn prepare(arguments: &cli::Bench) -> Result<Run, Failure> {
        let settings = Settings::gather_any(&arguments.flags, CAPACITY_DEFAULT)?.expect_one_drive("bench")?;
        if arguments.flags.durability.is_some() {
            settings.expect_no_durability("bench keeps its drive in memory")?;
        }
        let timing = arguments.timing.or(settings.timing).unwrap_or(Timing::Virtual);
        let store = match (arguments.store, settings.store) {
            (Some(store), _) => store,
            (None, Some(StoreName::Ram)) => Store::Ram,
            (None, Some(StoreName::Stamps)) => Store::Stamps,
            // A drive description for serving is fine: bench takes everything from it but the file that it is kept in.
            (None, None | Some(StoreName::File)) => {
                if timing == Timing::Instant {
                    Store::Ram
                } else {
                    Store::Stamps
                }
            }
        };
        let usual = if settings.zones.is_some() { "segments" } else { "uniform" };
        let workload = arguments.workload.as_deref().unwrap_or(usual);
        let about = |failure: Failure| failure.about(format_args!("--workload {workload}"));
        let load: LoadSpec = workload.parse().map_err(Failure::bad_input_with_fix).map_err(about)?;
        measure::check(&load, &settings, arguments.seed).map_err(about)?;
        let (blocks, _) = settings.host_space()?;
        let (drive, has_blocks) = (&settings.drive, settings.zones.is_none());
        Ok(Run {
            trying: Trying {
                load,
                binding: binding_for(settings.drive.placement, settings.drive.handles),
                seed: arguments.seed,
                queue_depth: arguments.queue_depth,
                store,
                timing: if timing == Timing::Instant { MediaTiming::Instant } else { MediaTiming::Modelled },
            },
            configuration: Configuration {
                profile: settings.profile.name.clone(),
                capacity_bytes: blocks * BLOCK_BYTES as u64,
                over_provisioning: has_blocks.then(|| drive.over_provisioning.as_f64()),
                victim: has_blocks.then_some(drive.victim),
                collection: has_blocks.then_some(drive.collection),
                placement: has_blocks.then_some(drive.placement),
                map_memory: drive.map_memory.map(|budget| budget.to_string()),
                map_cache: drive.map_memory.map(|_| drive.map_cache.unwrap_or_default()),
                write_through: has_blocks.then_some(drive.write_through),
                zones: settings.zones_made()?,
                timing,
                store,
                chunks_per_pu: 0,
                queue_depth: arguments.queue_depth,
            },
            drive_writes: arguments.drive_writes.unwrap_or(DRIVE_WRITES_DEFAULT),
            seconds: arguments.seconds,
            warm_up: arguments.warm_up,
            settings,
        })
    }

    /// Runs it, until somebody finds in one of its phases that it is over.
    fn finish(mut self, live: Live, is_over: &dyn Fn(Phase) -> bool) -> Result<Done, Failure> {
        let mut trial = self.trying.begin(&self.settings)?;
        self.configuration.chunks_per_pu = assembly::geometry(trial.drive.block()).chunks_per_pu;
        let mut watched = Watched::new(live);
        let watch = &mut |view: View<'_, Flash>| {
            watched.see(&view);
            match is_over(view.phase) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let only_reads = !self.trying.load.writes();
        let warm_up = if only_reads { WarmUp::DriveWrites(0.0) } else { self.warm_up };
        let tried = trial.prepare(warm_up, watch).and_then(|warmed_up| {
            if self.configuration.timing != Timing::Virtual {
                trial.clock.start_running();
            }
            let blocks = (self.drive_writes * trial.drive.blocks() as f64).round().max(1.0) as u64;
            let limit = match self.seconds {
                Some(seconds) => Limit::Until(trial.clock.now() + Nanos((seconds * 1e9) as u64)),
                None if only_reads => Limit::BlocksMoved(blocks),
                None => Limit::BlocksWritten(blocks),
            };
            let started = Instant::now();
            let measured = trial.measure(limit, Nanos::ZERO, watch)?;
            let wall_seconds = started.elapsed().as_secs_f64();
            let is_whole = !measured.outcome.stopped
                && match trial.read_back(watch) {
                    Err(TrialError::Stopped { .. }) => false,
                    read => read.map(|_| true)?,
                };
            Ok((warmed_up, measured, wall_seconds, is_whole))
        });
        watched.clear();
        let reason = || trial.drive.read_only_reason().map(|reason| reason.to_string());
        let (warmed_up, measured, wall_seconds, is_whole) = tried.map_err(|error| ended_early(&error, reason()))?;
        let moved = measured.outcome.reads.blocks + measured.outcome.writes.blocks;
        if !measured.outcome.turned_read_only {
            expect_something(moved)?;
        }
        let figures = Figures::of(&measured);
        let LoadSpec { model, access, fill, .. } = &self.trying.load;
        let is_uniform = *model == Model::Uniform && access.is_none_or(|access| access == BLOCK) && fill.is_none();
        let waf_theory = (is_uniform
            && !only_reads
            && self.settings.zones.is_none()
            && self.settings.drive.victim == VictimPolicy::Greedy
            && figures.effective_over_provisioning > 0.0)
            .then(|| theory::greedy(figures.effective_over_provisioning, figures.pages_per_block));
        let WarmedUp { drive_writes, waf, steady } = warmed_up;
        let result = Findings {
            figures,
            waf_theory,
            seed: self.trying.seed,
            workload: self.trying.load.to_string(),
            configuration: self.configuration,
            warm_up: WarmUpFacts { drive_writes, waf, steady },
            blocks_verified: trial.blocks_verified(),
            interrupted: !is_whole,
        };
        Ok(Done { findings: result, measured, wall_seconds })
    }
}

/// What runs, told before it does.
fn header(configuration: &Configuration, trying: &Trying, palette: Palette) -> String {
    let Configuration { profile, capacity_bytes, over_provisioning, queue_depth, .. } = configuration;
    let title = palette.paint(Ink::Bold, &format!("{} on {profile}", trying.load));
    let how = match (over_provisioning, &configuration.zones) {
        (Some(share), _) => format!("{:.1}% over-provisioning", share * 100.0),
        (None, Some(zones)) => zones.line(),
        (None, None) => String::new(),
    };
    let rest =
        format!("   {}, {how}, {queue_depth} requests at a time, seed {}\n", ByteSize(*capacity_bytes), trying.seed);
    format!("{title}{}", palette.paint(Ink::Dim, &rest))
}

/// What was found, for people.
fn page(Done { findings: result, measured, wall_seconds }: &Done, palette: Palette) -> String {
    let Configuration { timing, .. } = &result.configuration;
    let mut text = String::new();
    if result.interrupted {
        text.push_str(&palette.paint(Ink::Bad, "\nInterrupted: these are the figures of the part that was done.\n"));
    }
    let wall_seconds = *wall_seconds;
    let seconds = if *timing == Timing::Virtual { Seconds::Simulated { wall_seconds } } else { Seconds::Real };
    text.push_str(&report::page(measured, seconds, palette));
    if let (Some(theory), Some(waf)) = (result.waf_theory, result.figures.relocation_waf) {
        text.push_str(&format!(
            "\nTheory expects {theory:.3} for data and relocation (greedy, {} blocks a chunk, {:.2}% effective over-provisioning);\nmeasured {waf:.3}, {:+.1}%.\n",
            result.figures.pages_per_block,
            result.figures.effective_over_provisioning * 100.0,
            (waf / theory - 1.0) * 100.0
        ));
    }
    let Figures { effective_over_provisioning: effective, .. } = result.figures;
    if let Some(note) = result.configuration.over_provisioning.and_then(|asked| note_on(asked, effective)) {
        text.push_str(&format!("\n{} {note}\n", palette.paint(Ink::Bad, "!")));
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
        prepare(line)
            .unwrap()
            .finish(Live::silent(), &|_| false)
            .unwrap_or_else(|failure| panic!("{line}: {failure}"))
            .findings
    }

    /// The object that `--json` prints.
    fn json(line: &str) -> serde_json::Value {
        serde_json::to_value(bench(line)).unwrap()
    }

    const SMALL: &str = "--profile cosmos --capacity 64MiB --drive-writes 1 --warm-up 1";

    #[test]
    fn the_same_seed_gives_the_same_object_and_another_seed_another_trace() {
        for workload in ["uniform", "sequential", "uniform,reads=50%", "zipf", "hot-cold", "writers:2,access=64KiB"] {
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
            let mut object = json(&format!("{SMALL} --workload uniform,reads=50% --store {store}"));
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
    fn zones_and_segments_have_the_fields_of_blocks_and_write_every_block_once() {
        let of_blocks = json(&format!("{SMALL} --workload uniform"));
        let folder = tempfile::tempdir().unwrap();
        for (kind, width) in [("zones", "zone_width"), ("segments", "segment_width")] {
            let path = folder.path().join(format!("{kind}.toml"));
            let ftl =
                format!("[media]\nprofile = \"cosmos\"\ncapacity = \"64MiB\"\n[ftl]\nkind = \"{kind}\"\n{width} = 2\n");
            std::fs::write(&path, ftl).unwrap();
            for workload in ["", " --workload segments:8,reads=20%", " --workload log-structured-fs,fill=30%"] {
                let line = format!("--drive {} --drive-writes 4 --warm-up 1{workload}", path.display());
                if workload.contains("log") {
                    let refused = prepare(&line).err().expect("32 segments are too few for it").to_string();
                    assert!(refused.contains("needs 82 MiB at least"), "{refused}");
                    continue;
                }
                let object = json(&line);
                for (field, value) in of_blocks.as_object().unwrap() {
                    let found = object.get(field).unwrap_or_else(|| panic!("{kind}: {field} is missing"));
                    let has_none = ["relocation_waf", "waf_theory"].contains(&field.as_str());
                    assert!(found.is_number() || !value.is_number() || has_none, "{kind}: {field}: {found}");
                }
                assert_eq!(object["configuration"]["victim"], serde_json::Value::Null);
                assert_eq!(object["configuration"][kind], 32, "{object}");
                let (written, zones) = (object["host_blocks_written"].as_u64(), object["programmed"]["zones"].as_u64());
                assert!(zones >= written && object["waf"].as_f64().unwrap() < 1.01, "{kind}{workload}: {object}");
            }
        }
    }

    #[test]
    fn every_block_is_read_back_after_the_run() {
        assert_eq!(bench(&format!("{SMALL} --workload zipf")).blocks_verified, 64 * 256);
    }

    #[test]
    fn an_interrupted_run_tells_what_was_measured_and_before_that_fails() {
        let interrupted_in = |phase: Phase| {
            // Large enough that somebody looks while it is read back.
            let prepared = prepare("--capacity 512MiB --drive-writes 0.1 --warm-up 0.1 --workload uniform").unwrap();
            prepared.finish(Live::silent(), &|seen| seen == phase).map(|done| done.findings)
        };
        for phase in [Phase::Fill, Phase::WarmUp] {
            let failure = interrupted_in(phase).expect_err("nothing was measured").to_string();
            assert!(failure.contains("nothing was measured yet"), "{failure}");
        }
        let (capacity, whole) = (512 * 256, 13_107);
        let findings = interrupted_in(Phase::Measure).unwrap();
        assert!(findings.interrupted && findings.figures.host_blocks_written < whole, "{findings:?}");
        let findings = interrupted_in(Phase::ReadBack).unwrap();
        assert!(findings.interrupted && findings.figures.host_blocks_written == whole, "{findings:?}");
        assert!(findings.blocks_verified < capacity, "{findings:?}");
    }

    /// Where it is far from what was asked for, too.
    #[test]
    fn the_over_provisioning_that_a_new_drive_is_told_to_have_is_near_the_measured_one() {
        for (line, told) in [
            ("--profile cosmos --capacity 64MiB", true),
            ("--profile cosmos --capacity 512MiB", true),
            ("--profile znand --capacity 512MiB", true),
            ("--profile cosmos --capacity 2GiB", false),
        ] {
            let run = prepare(&format!("{line} --workload uniform --drive-writes 1 --warm-up 1")).unwrap();
            let drive = run.settings.drive.clone();
            let geometry = *assembly::geometry(run.trying.begin(&run.settings).unwrap().drive.block());
            let likely = drive.likely_over_provisioning(&geometry).unwrap();
            let done = run.finish(Live::silent(), &|_| false).unwrap_or_else(|failure| panic!("{line}: {failure}"));
            let measured = done.findings.figures.effective_over_provisioning;
            assert!((likely / measured - 1.0).abs() < 0.35, "{line}: {likely} is told, {measured} is measured");
            assert_eq!(drive.note_on(measured).is_some(), told, "{line}: {measured}");
            assert_eq!(drive.note_on(likely).is_some(), told, "{line}: {likely}");
        }
    }

    #[test]
    fn a_workload_that_only_reads_ends() {
        let findings = bench(&format!("{SMALL} --workload uniform,reads=100%"));
        assert_eq!(findings.figures.host_blocks_read, 64 * 256);
        assert_eq!((findings.figures.waf, findings.waf_theory), (None, None));
    }

    #[test]
    fn sizes_and_shares_that_cannot_be_are_refused() {
        for (line, word) in [
            ("--workload zipfian", "`zipfian`"),
            ("--workload uniform,access=5000", "--workload uniform,access=5000"),
            ("--workload uniform,access=2MiB", "1MiB"),
            ("--workload uniform,reads=101%", "101%"),
            ("--workload trace:not-there.csv", "not-there.csv"),
            ("--capacity 0", "capacity"),
        ] {
            let failure = prepare(line).err().unwrap_or_else(|| panic!("{line} was taken")).to_string();
            assert!(failure.contains(word), "{line}: {failure}");
            assert!(failure.contains("fix:") || failure.contains(": write "), "{line}: {failure}");
        }
    }
}
