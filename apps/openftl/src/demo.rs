//! `openftl demo`: a whole drive at work in a few seconds.
//!
//! Time is simulated and data are real: every block goes through buffer, flash and garbage collection and is compared
//! when it is read. Simulated time shows the latencies of NAND, however fast or slow this machine is.

use crate::assembly;
use crate::cli::{self, Store};
use crate::failure::Failure;
use crate::figures::Figures;
use crate::measure::{Trying, Watched, ended_early};
use crate::report::{self, Seconds};
use crate::settings::Settings;
use crate::terminal::{Ink, Live, Palette, say};
use openftl_blocks::Ftl;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Nanos, Time};
use openftl_lab::load_spec::Model;
use openftl_lab::picture::{bar, sparkline, strip, thousands};
use openftl_lab::trial::View;
use openftl_lab::{Binding, Limit, LoadSpec, Outcome, TrialError};
use openftl_media::{Media, Timing as MediaTiming};
use openftl_parts::{BlockTarget, RecoveryReport, VictimPolicy};
use openftl_serving::flash::Flash;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const CAPACITY: ByteSize = ByteSize(512 << 20);
const QUEUE_DEPTH: u32 = 32;
const READ_SHARE: Share = Share::percent(30);
const HOT_ACCESSES: Share = Share::percent(90);
const HOT_SPACE: Share = Share::percent(10);
const SEED: u64 = 1;

/// Part of a given time that is left for reading everything back.
const READ_BACK_SHARE: f64 = 0.12;

#[derive(Serialize)]
struct Findings {
    #[serde(flatten)]
    figures: Figures,
    profile: String,
    capacity_bytes: u64,
    fill_virtual_seconds: f64,
    restart: RecoveryReport,
    blocks_verified: u64,
    seed: u64,
}

pub fn run(arguments: &cli::Demo) -> Result<(), Failure> {
    let started = Instant::now();
    let palette = Palette::of_stdout();
    // Made for loads that have a hot part.
    let flags = cli::DriveFlags { victim: Some(VictimPolicy::CostBenefit), ..cli::DriveFlags::default() };
    let settings = Settings::gather(&flags, CAPACITY)?;
    let load = LoadSpec {
        reads: Some(READ_SHARE),
        ..LoadSpec::new(Model::HotCold { accesses: HOT_ACCESSES, space: HOT_SPACE })
    };
    let trying = Trying {
        load,
        binding: Binding::None,
        seed: SEED,
        queue_depth: QUEUE_DEPTH,
        store: Store::Ram,
        timing: MediaTiming::Modelled,
    };
    let mut trial = trying.begin(&settings)?;
    let tell = |text: &str| if arguments.json { Ok(()) } else { say(text) };
    tell(&introduction(&settings, assembly::geometry(trial.drive.block()), palette))?;
    let mut watched = Watched::new(if arguments.json { Live::silent() } else { Live::new(true) });
    let failed = |error: TrialError| ended_early(&error, None);

    let filling = Instant::now();
    let filled = trial.fill(&mut |view: View<'_, Flash>| {
        watched.see(&view);
        ControlFlow::Continue(())
    });
    watched.clear();
    let filled = filled.map_err(failed)?;
    tell(&step(
        "filled",
        palette,
        &format!("{} written in order, {}", settings.drive.capacity, speeds(&filled, filling.elapsed())),
    ))?;

    let mut scene = Scene::new();
    let overwriting = Instant::now();
    let end = arguments.seconds.map(|seconds| {
        let end = Duration::try_from_secs_f64(seconds * (1.0 - READ_BACK_SHARE)).unwrap_or(Duration::MAX);
        (end, end.saturating_sub(started.elapsed()).as_secs_f64().max(1e-9))
    });
    let limit = match end {
        Some(_) => Limit::Until(Time::NEVER),
        None => {
            let blocks = (arguments.drive_writes * trial.drive.blocks() as f64).round().max(1.0);
            Limit::BlocksWritten(blocks as u64)
        }
    };
    let measured = trial.measure(limit, Nanos::ZERO, &mut |view: View<'_, Flash>| {
        let live = watched.live();
        if live.is_due() {
            let share = end.map_or(view.share, |(_, lasts)| overwriting.elapsed().as_secs_f64() / lasts);
            let lines = scene.draw(&view, share, live.palette());
            live.show(&lines);
        }
        match end {
            Some((end, _)) if started.elapsed() >= end => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    let wall_seconds = overwriting.elapsed().as_secs_f64();
    watched.clear();
    let measured = measured.map_err(failed)?;
    let drive_writes = measured.outcome.writes.blocks as f64 / trial.drive.blocks() as f64;
    let mix = format!(
        "{drive_writes:.1} times its capacity, {HOT_ACCESSES} of it on {HOT_SPACE} of the blocks; {READ_SHARE} reads"
    );
    tell(&step("overwritten", palette, &mix))?;

    trial.drive = assembly::restart(trial.drive, &mut trial.clock)?;
    let restart = trial.drive.block().recovery_report().clone();
    let opened =
        format!("stopped with a checkpoint, {} in {}", assembly::opened_how(&restart), assembly::opened_in(&restart));
    tell(&step("restarted", palette, &opened))?;

    let reading = Instant::now();
    let read_back = trial.read_back(&mut |view: View<'_, Flash>| {
        watched.see(&view);
        ControlFlow::Continue(())
    });
    watched.clear();
    let read_back = read_back.map_err(failed)?;
    let verified = trial.blocks_verified();
    tell(&step(
        "read back",
        palette,
        &format!("every block is what was last written, {}", speeds(&read_back, reading.elapsed())),
    ))?;

    if arguments.json {
        return say(&crate::json(&Findings {
            figures: Figures::of(&measured),
            profile: settings.profile.name.clone(),
            capacity_bytes: settings.drive.capacity.0,
            fill_virtual_seconds: filled.seconds(),
            restart,
            blocks_verified: verified,
            seed: SEED,
        })?);
    }
    let mut page = report::page(&measured, Seconds::Simulated { wall_seconds }, palette);
    page.push_str(&format!(
        "\n{} {} blocks were read and compared, none was wrong.\n",
        palette.paint(Ink::Good, "✓"),
        thousands(verified)
    ));
    page.push_str(&next(palette));
    say(&page)
}

fn introduction(settings: &Settings, geometry: &openftl_core::Geometry, palette: Palette) -> String {
    let title = palette.paint(Ink::Bold, "OpenFTL: a whole SSD in this process");
    format!(
        "{title}\n  {} for the host on {}: {} dies in {} groups, {} over-provisioning\n  {}\n\n",
        settings.drive.capacity,
        settings.profile.name,
        geometry.pus(),
        geometry.groups,
        settings.drive.over_provisioning,
        palette.paint(
            Ink::Dim,
            "Time is simulated, so latencies are those of NAND. Data are real and compared when read."
        ),
    )
}

fn step(name: &str, palette: Palette, text: &str) -> String {
    format!("{} {}  {text}\n", palette.paint(Ink::Good, "✓"), palette.paint(Ink::Bold, &format!("{name:<11}")))
}

fn speeds(outcome: &Outcome, wall: Duration) -> String {
    let megabytes = (outcome.reads.blocks + outcome.writes.blocks) as f64 * BLOCK_BYTES as f64 / 1e6;
    format!(
        "{:.0} MB/s (simulated at {:.0} MB/s)",
        megabytes / outcome.seconds().max(1e-9),
        megabytes / wall.as_secs_f64().max(1e-9)
    )
}

fn next(palette: Palette) -> String {
    format!(
        "\n{}\n  openftl create disk.oftl --capacity 2GiB && openftl serve disk.oftl\n                                     {}\n  openftl bench --workload uniform   {}\n",
        palette.paint(Ink::Bold, "Next"),
        palette.paint(Ink::Dim, "a drive that lasts; fio, qemu and any file system can use it"),
        palette.paint(Ink::Dim, "write amplification beside what theory says"),
    )
}

/// What is seen while the mix runs.
struct Scene {
    began: Instant,
    last_host: u64,
    last_nand: u64,
    last_busy: Vec<openftl_core::Nanos>,
    last_now: Time,
    waf: Vec<f64>,
}

/// Values of the sparkline.
const HISTORY: usize = 32;

impl Scene {
    fn new() -> Scene {
        Scene {
            began: Instant::now(),
            last_host: 0,
            last_nand: 0,
            last_busy: Vec::new(),
            last_now: Time::ZERO,
            waf: Vec::new(),
        }
    }

    fn draw(&mut self, view: &View<'_, Flash>, share: f64, palette: Palette) -> Vec<String> {
        let statistics = view.drive.statistics();
        let (host, nand) = (statistics.host_blocks_written, statistics.nand_blocks_written());
        if host > self.last_host {
            self.waf.push((nand - self.last_nand) as f64 / (host - self.last_host) as f64);
            let excess = self.waf.len().saturating_sub(HISTORY);
            self.waf.drain(..excess);
        }
        let busy = view.drive.media().pu_busy();
        let span = view.now.since(self.last_now).as_secs_f64();
        let dies = strip(busy.iter().enumerate().map(|(index, &busy)| {
            let before = self.last_busy.get(index).copied().unwrap_or(busy);
            if span > 0.0 { (busy - before).as_secs_f64() / span } else { 0.0 }
        }));
        (self.last_host, self.last_nand, self.last_now, self.last_busy) = (host, nand, view.now, busy);
        let outcome = view.outcome;
        let simulated = view.now.since(outcome.started).as_secs_f64();
        let rate = |seconds: f64| thousands((outcome.requests() as f64 / seconds.max(1e-9)) as u64);
        let waf = self.waf.last().copied().unwrap_or(0.0);
        let picture = |text: &str| palette.paint(Ink::Picture, text);
        vec![
            format!(
                "  overwriting  {} {simulated:>7.2} s simulated, write amplification {waf:.2}",
                picture(&bar(share, 24))
            ),
            format!(
                "    speed      {} requests/s of the drive, {} of the simulation",
                rate(simulated),
                rate(self.began.elapsed().as_secs_f64())
            ),
            format!("    flash      {} written for {} by the host", bytes(nand), bytes(host)),
            format!("    write amp. {}", picture(&sparkline(&self.waf))),
            format!("    dies busy  {}", picture(&dies)),
        ]
    }
}

fn bytes(blocks: u64) -> ByteSize {
    ByteSize(blocks * BLOCK_BYTES as u64)
}
