//! The words of `openftl reproduce` name an experiment, its seeds, and where its figures go.

use super::number::whole;
use clap::Args;
use std::path::PathBuf;

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  openftl reproduce                                       what there is
  openftl reproduce ox-recovery                           table and verdicts; CSV and SVG in ./reproduce
  openftl reproduce flashalloc --html flashalloc.html     a page with pictures
  openftl reproduce ox-recovery --quick --seeds 2 --json
  openftl reproduce recovery-scale --out results --seed 7
  openftl reproduce waf-theory                            every victim policy beside its theory

Verdicts: *reproduced*, the effect is the paper's to within 30 %, or what the claim says; *direction only*, it points the same
way, or the paper gives no figure; *not reproduced*. The verdict is that of most seeds. Checks are this project's own claims.

kv-target, ox-copies, ox-lightlsm and ycsb-rocksdb run on a real clock: this machine has a part in their figures, and they run
with one seed unless told otherwise. All others run in virtual time: the same seeds give the same figures, but for CPU times.

Exit codes: 0 it ran, and every check holds; 1 one does not, or it came to no end; 2 there is no such experiment.";

/// Experiments that there are.
pub const EXPERIMENTS: [&str; 14] = [
    "ox-recovery",
    "recovery-scale",
    "flashalloc",
    "gc-locality",
    "demand-mapping",
    "zns",
    "amf",
    "ox-eleos",
    "ycsb",
    "waf-theory",
    "kv-target",
    "ox-copies",
    "ox-lightlsm",
    "ycsb-rocksdb",
];

#[derive(Args, Debug)]
#[command(after_help = REPRODUCE_EXAMPLES)]
pub struct Reproduce {
    /// The experiment; without one, they are listed.
    #[arg(value_name = "NAME", conflicts_with = "list")]
    pub name: Option<String>,
    /// List the experiments.
    #[arg(long)]
    pub list: bool,
    /// The folder that CSV and SVG files are written to.
    #[arg(long, value_name = "DIR", default_value = "reproduce")]
    pub out: PathBuf,
    /// Also write a page with verdicts, pictures and tables to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The first seed, which decides everything that is left to chance.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1)]
    pub seed: u64,
    /// Seeds, one after the other from there on: 5, or 1 where the clock is real.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1000))]
    pub seeds: Option<u32>,
    /// On a smaller scale, in seconds.
    #[arg(long)]
    pub quick: bool,
    /// Print the report, or the list, as JSON.
    #[arg(long)]
    pub json: bool,
}
