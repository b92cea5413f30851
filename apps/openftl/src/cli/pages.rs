//! The words of `openftl pages`.

use super::number::whole;
use clap::{Args, Subcommand};
use openftl_core::units::{ByteSize, Share};
use openftl_parts::VictimPolicy;
use openftl_parts::map::memory::MapBudget;
use std::path::PathBuf;

const PAGES_EXAMPLES: &str = "\
Examples:
  openftl create eleos.oftl --drive drives/eleos.toml
  echo hello | openftl pages put --drive eleos.oftl 7
  openftl pages get --drive eleos.oftl 7
  openftl pages list --drive eleos.oftl
  openftl pages list --drive nvme-tcp://127.0.0.1:4420
  openftl pages bench --drive drives/eleos.toml

A page has a number (LPID) of 64 bits, and 1 byte to 1 MiB. A store that `openftl serve` has is named by its URI:
nvme-tcp://MACHINE[:PORT][/SUBSYSTEM][?namespace=ID].";

#[derive(Args, Debug)]
#[command(after_help = PAGES_EXAMPLES)]
pub struct Pages {
    #[command(subcommand)]
    pub command: PagesCommand,
}

#[derive(Subcommand, Debug)]
pub enum PagesCommand {
    /// Puts pages, all of them or none: each from a file, or one from standard input.
    Put(PagePut),
    /// Copies a page to standard output.
    Get(PageGet),
    /// Deletes pages, all of them or none.
    Delete(PageDelete),
    /// Lists pages in the order of their numbers, or shows some of them.
    List(PageList),
    /// Fills a new store in memory, overwrites its pages, and measures, in virtual time.
    Bench(PageBench),
}

/// A store of pages.
#[derive(Args, Clone, Debug)]
pub struct PagePlace {
    /// A store made by `openftl create`, the description (TOML) of one, or the URI of one that is served.
    #[arg(long, value_name = "DISK|TOML|URI")]
    pub drive: PathBuf,
}

#[derive(Args, Debug)]
pub struct PagePut {
    #[command(flatten)]
    pub place: PagePlace,
    /// The number of the page; with `=FILE` the file that has its bytes.
    #[arg(value_name = "LPID[=FILE]", required = true)]
    pub pages: Vec<String>,
}

#[derive(Args, Debug)]
pub struct PageGet {
    #[command(flatten)]
    pub place: PagePlace,
    /// The number of the page.
    #[arg(value_name = "LPID", value_parser = whole::<u64>(0, u64::MAX))]
    pub lpid: u64,
}

#[derive(Args, Debug)]
pub struct PageDelete {
    #[command(flatten)]
    pub place: PagePlace,
    /// The numbers of the pages.
    #[arg(value_name = "LPID", required = true, value_parser = whole::<u64>(0, u64::MAX))]
    pub lpids: Vec<u64>,
}

#[derive(Args, Debug)]
pub struct PageList {
    #[command(flatten)]
    pub place: PagePlace,
    /// The first number.
    #[arg(long, value_name = "LPID", default_value = "0", value_parser = whole::<u64>(0, u64::MAX))]
    pub from: u64,
    /// So many pages at most.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole::<u64>(1, u64::MAX))]
    pub limit: u64,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  openftl pages bench --drive drives/eleos.toml
  openftl pages bench --drive drives/eleos.toml --bytes 100-4000 --batch 64 --durable
  openftl pages bench --drive drives/eleos.toml --fill 80% --store-writes 6 --seed 2 --json
  openftl pages bench --drive drives/eleos.toml --zipf 0.99 --victim minimum-declining-cost
  openftl pages bench --drive drives/eleos.toml --bytes 1984 --cross-blocks false
  openftl pages bench --drive drives/eleos.toml --map-memory 10% --zipf 0.99

Whatever the description says, the store is new, in memory, and in virtual time. Write amplification is NAND bytes over bytes that were put;
beside it stands that of the theory of greedy collection with the same spare flash, for the bytes on media.";

#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct PageBench {
    /// The description (TOML) of a store.
    #[arg(long, value_name = "TOML")]
    pub drive: PathBuf,
    /// Bytes of a page: one size, or the least and the most of sizes that are drawn.
    #[arg(long, value_name = "SIZE|LEAST-MOST", default_value = "2KiB", value_parser = sizes)]
    pub bytes: (ByteSize, ByteSize),
    /// How much of what pages can hold is filled.
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    pub fill: Share,
    /// How often what the pages hold is put once more, at random.
    #[arg(long, value_name = "N", default_value = "4", value_parser = super::number::positive)]
    pub store_writes: f64,
    /// Puts some pages more often than others: page of rank k as often as k to the power of minus this (0.99 is YCSB's). 0: all alike.
    #[arg(long, value_name = "THETA", default_value = "0", value_parser = super::number::not_negative)]
    pub zipf: f64,
    /// How the chunk to clean is chosen: greedy, cost-benefit or minimum-declining-cost [default: as described].
    #[arg(long, value_name = "POLICY")]
    pub victim: Option<VictimPolicy>,
    /// Whether a page that fits into one block of 4 KiB may lie in two: true or false [default: as described].
    #[arg(long, value_name = "BOOL")]
    pub cross_blocks: Option<bool>,
    /// What the map may take of the memory: a share of what it takes at most, like 10%, or bytes, like 1MiB [default: as described].
    #[arg(long, value_name = "SHARE|SIZE")]
    pub map_memory: Option<MapBudget>,
    /// Pages of a batch.
    #[arg(long, value_name = "N", default_value = "64", value_parser = whole::<u64>(1, 100_000))]
    pub batch: u64,
    /// Each batch is committed durably.
    #[arg(long)]
    pub durable: bool,
    /// What is left to chance.
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

fn sizes(text: &str) -> Result<(ByteSize, ByteSize), String> {
    let size = |text: &str| text.parse::<ByteSize>().map_err(|error| error.to_string());
    let (least, most) = match text.split_once('-') {
        Some((least, most)) => (size(least)?, size(most)?),
        None => (size(text)?, size(text)?),
    };
    if least.0 == 0 || least.0 > most.0 || most.0 > u64::from(openftl_pages::PAGE_BYTES_MAX) {
        return Err("write a size like 2KiB, or the least and the most, 100-4KiB: 1 byte to 1 MiB".to_owned());
    }
    Ok((least, most))
}
