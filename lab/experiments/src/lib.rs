//! Experiments: what a paper measured, measured again here, with a verdict.
//!
//! ```text
//!   ALL ─▶ Experiment ── run(options, assistant) ─▶ Run ┐ one for each seed
//!            name                                   Run ┼─▶ Report ┬ tables    text, CSV
//!            paper: what it found                   Run ┘          ├ plots     SVG, HTML
//!                                                                  ├ findings  the paper's claims: how much of them comes out?
//!                                                                  └ checks    this project's own: do they hold?
//! ```
//!
//! | module | experiment |
//! |---|---|
//! | [`ox_recovery`] | recovery time against failure time, without and with checkpoints |
//! | [`recovery_scale`] | recovery of drives from 1 GiB to 1 TiB |
//! | [`gc_locality`] | how much of the host's load garbage collection leaves in peace |
//! | [`flash_alloc`] | what each way of telling a drive about lifetimes gains |
//! | [`demand_mapping`] | how fast a drive is that has memory for a part of its map |
//! | [`zns`] | what zones save against a page FTL, and what flushes and wide zones cost |
//! | [`amf`] | what ALFS saves on segments, against ext4 and F2FS on a page FTL |
//! | [`ox_eleos`] | what batches of pages save SQLite, and page stores that would clean by themselves |
//! | [`ycsb`] | the mixes of YCSB on a key-value drive, beside slots on a block FTL |
//! | [`waf_theory`] | write amplification of each victim policy, beside theory |
//!
//! How a claim is judged is in [`claim`], what several seeds say together in [`report`]. What was recorded elsewhere and is replayed is in
//! [`recorded`]: what a file system of Linux wrote ([`file_trace`]) for what programs did to files ([`file_load`]), and what a program
//! committed to a store of pages ([`page_trace`]). [`alfs_trial`] is ALFS under a load of files, [`map_caches`] a model of maps that are
//! loaded before they are changed.
//!
//! Loads, trials and figures are in `lab/`; experiments that need sockets and a real clock in `lab/real-time/`.
//!
//! To add one: a file here with a `pub const EXPERIMENT: Experiment`, and its place in [`ALL`]. It draws on a drive in
//! virtual time, so all but CPU time follows from the seed. What it shares with others is [`crash`] and [`full_drive`], and
//! whatever the next one needs.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod alfs_trial;
pub mod amf;
pub mod claim;
pub mod crash;
pub mod demand_mapping;
pub mod file_load;
pub mod file_trace;
pub mod fit;
pub mod flash_alloc;
pub mod full_drive;
pub mod gc_locality;
pub mod map_caches;
pub mod order_table;
pub mod ox_eleos;
pub mod ox_recovery;
pub mod page_trace;
pub mod recorded;
pub mod recovery_scale;
pub mod report;
pub mod waf_theory;
pub mod ycsb;
pub mod zns;

pub use claim::{Check, Checked, Claim, Figure, Finding, Verdict};
pub use report::{Parameter, Report, Run, Total};

use alfs_trial::AlfsError;
use file_trace::BadRecording;
use openftl_core::Nanos;
use openftl_lab::page_trial::PageTrialError;
use openftl_lab::value_trial::ValueTrialError;
use openftl_lab::{LoadError, RunError, TrialError};
use openftl_media::{DeviceError, ProfileError, StoreError};
use openftl_parts::{OpenError, PlanError};
use page_trace::BadPageTrace;

/// Every experiment, in the order in which they are listed.
pub const ALL: [Experiment; 10] = [
    ox_recovery::EXPERIMENT,
    recovery_scale::EXPERIMENT,
    flash_alloc::EXPERIMENT,
    gc_locality::EXPERIMENT,
    demand_mapping::EXPERIMENT,
    zns::EXPERIMENT,
    amf::EXPERIMENT,
    ox_eleos::EXPERIMENT,
    ycsb::EXPERIMENT,
    waf_theory::EXPERIMENT,
];

/// One question, and how it is answered.
pub struct Experiment {
    /// What it is called on the command line, and what its files are called.
    pub name: &'static str,
    /// What is asked, in one line.
    pub question: &'static str,
    /// Who asked it first, if a paper did.
    pub paper: Option<Paper>,
    /// Numbers of the paper's claims that it has something to say of.
    pub claims: &'static [&'static str],
    /// Whether all that it tells follows from the seed; otherwise it needs a real clock, and this machine has a part in it.
    pub in_virtual_time: bool,
    /// Memory that one seed takes at the most, in bytes: of a full run, of a quick one.
    pub memory_bytes: [u64; 2],
    /// Answers it, for one seed.
    pub run: fn(Options, &mut dyn Assistant) -> Result<Run, ExperimentError>,
}

/// Where a paper says something, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Paper {
    /// Its title.
    pub title: &'static str,
    /// Section and figure.
    pub place: &'static str,
    /// What it found, in our words.
    pub found: &'static str,
}

/// What may differ from run to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The same on a smaller scale, in seconds: shows that it works, not what is so.
    pub quick: bool,
}

/// Who runs an experiment: shows how far it is, and holds the stopwatch that nothing here may read by itself.
pub trait Assistant {
    /// A `share` (0 to 1) of the experiment is done; `doing` says what is next.
    fn progress(&mut self, share: f64, doing: &str);

    /// CPU time that the calling thread has taken so far.
    fn cpu_time(&mut self) -> Nanos;
}

/// An experiment that came to no end.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The NAND.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What is behind the device.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The drive has no room for what it is to hold.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The drive did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The load cannot be made for the drive.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The drive was at fault.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The drive was at fault, or turned read-only.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A file system on the drive.
    #[error(transparent)]
    Alfs(#[from] AlfsError),
    /// A recording cannot be replayed.
    #[error(transparent)]
    Recording(#[from] BadRecording),
    /// A recording of batches cannot be replayed.
    #[error(transparent)]
    Batches(#[from] BadPageTrace),
    /// A store of pages.
    #[error(transparent)]
    Pages(#[from] PageTrialError),
    /// A key-value drive.
    #[error(transparent)]
    Values(#[from] ValueTrialError),
    /// Who served the drive, or used it.
    #[error("{0}")]
    Host(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Watches that progress only ever goes forward, and counts CPU time by the question.
    struct Watch {
        share: f64,
        asked: u64,
    }

    impl Assistant for Watch {
        fn progress(&mut self, share: f64, doing: &str) {
            assert!((self.share..=1.0).contains(&share), "{doing}: {share} after {}", self.share);
            self.share = share;
        }

        fn cpu_time(&mut self) -> Nanos {
            self.asked += 1;
            Nanos::from_millis(self.asked)
        }
    }

    fn quick(experiment: &Experiment, seed: u64) -> Run {
        let mut watch = Watch { share: 0.0, asked: 0 };
        let run = (experiment.run)(Options { seed, quick: true }, &mut watch)
            .unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
        assert!(watch.asked > 0, "{} measures CPU time", experiment.name);
        run
    }

    #[test]
    fn names_are_fit_for_files() {
        for experiment in &ALL {
            assert!(
                experiment.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{}",
                experiment.name
            );
        }
    }

    /// What comes of each claim on a small scale, with most of three seeds: not what is so, but whoever changes it should know.
    const ON_A_SMALL_SCALE: [(&str, &str); 25] = [
        ("Without checkpoints, recovery time grows linearly with the log.", "reproduced"),
        ("Without checkpoints, recovery takes close to 100 s at T6.", "not reproduced"),
        ("With checkpoints, recovery does not grow with the time of the failure.", "reproduced"),
        ("With checkpoints, recovery is far faster after longer runs, and oscillates.", "direction only"),
        ("Intervals of 10 s and 30 s do not differ significantly.", "not reproduced"),
        ("The more files are written at a time, the more FlashAlloc gains.", "direction only"),
        (
            "Tables in chunks of their own take 1.5 off RocksDB's write amplification, which comes near 1.",
            "not reproduced",
        ),
        ("RocksDB writes 2 to 2.7 times as fast.", "not reproduced"),
        (
            "Segments in chunks of their own take 2.5 off F2FS's write amplification, which comes near 1.",
            "not reproduced",
        ),
        ("F2FS writes 1.8 times as fast.", "direction only"),
        (
            "Keeping MySQL's double-write buffer apart takes 0.3 off the write amplification, at 1.2 times the throughput.",
            "direction only",
        ),
        (
            "For RocksDB beside MySQL write amplification falls by 0.9 (2.5 to 1.6), and both are twice as fast.",
            "direction only",
        ),
        ("Multi-stream with 8 streams still suffers from write amplification for RocksDB's tables.", "not reproduced"),
        ("FlashAlloc lowers the latency of RocksDB's operations: the mean, p99 and p99.9.", "not reproduced"),
        (
            "While one group is collected, 93.75% of the reads and writes are left in peace on 16 groups, 87.5% on 8.",
            "reproduced",
        ),
        (
            "Random writes with a Pareto distribution reach 80% of the throughput with 32% of the memory.",
            "direction only",
        ),
        ("Where replacement prefers the journal of ext4, throughput is 10% higher.", "not reproduced"),
        ("The more memory the map has, the higher the throughput.", "not reproduced"),
        ("Random writes are faster with AMF, and slowest with F2FS on a page FTL.", "direction only"),
        ("Databases are faster with AMF than with EXT4, and slowest with F2FS.", "not reproduced"),
        ("Flash lives 6 % longer than under EXT4, and 37 % longer than under F2FS.", "direction only"),
        ("A map of segments takes 4 MB for 512 GB, and 8 MB for 1 TB.", "reproduced"),
        ("The controller needs 128 times less DRAM, and performance grows by 80 %.", "reproduced"),
        ("A log on a page FTL is managed twice.", "direction only"),
        ("A drive that takes buffers of pages of any size leaves hosts less to do.", "direction only"),
    ];

    #[test]
    fn every_experiment_comes_to_its_findings_on_a_small_scale_and_repeats_itself() {
        let mut verdicts = Vec::new();
        for experiment in &ALL {
            // Two threads: it is the longest test of the crate.
            let (runs, again) = std::thread::scope(|scope| {
                let again = scope.spawn(|| quick(experiment, 1));
                (vec![quick(experiment, 1), quick(experiment, 2)], again.join().expect("no panic"))
            });
            assert_eq!(runs[0], again, "{}", experiment.name);
            assert_ne!(runs[0].tables, runs[1].tables, "{}", experiment.name);
            let report = Report::of(experiment, true, vec![1, 2], runs);
            assert!(!report.tables.is_empty() && !report.plots.is_empty(), "{}", experiment.name);
            assert!(!report.findings.is_empty() || !report.checks.is_empty(), "{}", experiment.name);
            for check in &report.checks {
                assert!(check.holds, "{}: {check:?}\n{}", experiment.name, report.tables[0]);
            }
            let numbers: BTreeSet<&str> = report.findings.iter().flat_map(|finding| finding.numbers).copied().collect();
            assert_eq!(numbers, experiment.claims.iter().copied().collect(), "{}", experiment.name);
            verdicts.extend(report.findings.iter().map(|finding| (finding.claim, finding.verdict.words())));
        }
        assert_eq!(verdicts, ON_A_SMALL_SCALE);
    }
}
