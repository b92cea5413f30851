//! `openftl pages bench`: what putting pages at random costs.

use crate::cli::pages::PageBench;
use crate::failure::Failure;
use crate::report;
use crate::terminal::say;
use openftl_core::units::ByteSize;
use openftl_core::{BLOCK_BYTES, Clock};
use openftl_drive::page_drive::PageDrive;
use openftl_lab::page_trial::{PageMix, PageTrial};
use openftl_lab::theory;
use openftl_media::EmulatedDevice;
use openftl_pages::{Ftl, HEADER_BYTES, PageFtl};
use openftl_parts::Durability;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Pages that are read at the end, at most.
const READS_MAX: u64 = 20_000;

/// Bytes of a grain.
const GRAIN_BYTES: u64 = 64;

#[derive(Serialize)]
struct Measured {
    profile: String,
    pages: u64,
    bytes_least: u64,
    bytes_most: u64,
    capacity_bytes: u64,
    used_bytes: u64,
    flash_bytes: u64,
    map_bytes: u64,
    /// Leaves of the map that were read because they were not in memory, and written.
    map_leaves_read: u64,
    map_leaves_written: u64,
    batch: u64,
    durable: bool,
    seed: u64,
    zipf: f64,
    victim: String,
    batches: u64,
    pages_put: u64,
    bytes_put: u64,
    /// Of their headers, what they left of their last grains, and what was left of blocks so that they do not cross them.
    header_bytes: u64,
    grain_bytes: u64,
    skipped_bytes: u64,
    /// With headers, and what pages left of their last grains.
    bytes_put_on_media: u64,
    /// Blocks programmed, by purpose.
    programmed: BTreeMap<&'static str, u64>,
    cross_blocks: bool,
    /// Blocks that the device read for each page, of pages that were drawn afterwards.
    blocks_read_per_page: f64,
    nand_bytes: u64,
    moved_bytes: u64,
    padded_bytes: u64,
    log_bytes: u64,
    /// Of those the bytes of pages.
    carried_bytes: u64,
    waf: f64,
    /// Of the bytes on media of pages: put and moved, over put.
    waf_of_pages: f64,
    waf_of_pages_in_theory: f64,
    seconds: f64,
    batches_per_second: f64,
    bytes_per_second: f64,
}

/// Commits the batch when it has as many pages as it may.
fn commit_full<C: Clock>(
    host: &mut PageTrial<EmulatedDevice, C>,
    arguments: &PageBench,
    durability: Durability,
) -> Result<(), Failure> {
    if host.staged() as u64 == arguments.batch { host.commit(durability).map_err(Failure::failed) } else { Ok(()) }
}

pub fn run(arguments: &PageBench) -> Result<(), Failure> {
    let mut drive = PageDrive::read(&arguments.drive)?;
    if let Some(cross_blocks) = arguments.cross_blocks {
        drive.let_cross_blocks(cross_blocks);
    }
    if let Some(budget) = arguments.map_memory {
        drive.limit_map(budget);
    }
    if let Some(victim) = arguments.victim {
        drive.clean_by(victim)?;
    }
    let (store, clock) = drive.in_memory(arguments.seed)?;
    let capacity = store.capacity_bytes();
    let mut host = PageTrial::new(store, clock, arguments.seed).map_err(Failure::failed)?;
    let length = |bytes: ByteSize| u32::try_from(bytes.0).map_err(Failure::bad_input);
    let (least, most) = (arguments.bytes.0.0, arguments.bytes.1.0);
    let lengths = [length(arguments.bytes.0)?, length(arguments.bytes.1)?];
    let durability = if arguments.durable { Durability::Durable } else { Durability::Volatile };
    let on_media = |bytes: u64| (bytes + HEADER_BYTES as u64).div_ceil(GRAIN_BYTES) * GRAIN_BYTES;
    // A batch takes room beside what it replaces.
    let room = arguments.fill.of(capacity).min(capacity.saturating_sub(2 * arguments.batch * on_media(most)));
    let pages = room / on_media(least.midpoint(most)).max(1);
    if pages == 0 {
        return Err(Failure::bad_input("there is no room for a page").fix("ask for a larger store, or smaller batches"));
    }
    let mix = PageMix::new(pages, lengths, arguments.zipf, &mut host.chance);
    for lpid in 0..pages {
        host.put_drawn(&mix, lpid).map_err(Failure::failed)?;
        commit_full(&mut host, arguments, durability)?;
    }
    host.commit(durability).map_err(Failure::failed)?;
    host.sync().map_err(Failure::failed)?;
    // What comes before the steady state does not count.
    let puts = (pages as f64 * arguments.store_writes) as u64;
    for _ in 0..puts / 2 {
        host.put_any(&mix).map_err(Failure::failed)?;
        commit_full(&mut host, arguments, durability)?;
    }
    host.commit(durability).map_err(Failure::failed)?;
    Ftl::reset_statistics(&mut host.drive);
    let began = host.clock.now();
    for _ in 0..puts - puts / 2 {
        host.put_any(&mix).map_err(Failure::failed)?;
        commit_full(&mut host, arguments, durability)?;
    }
    host.commit(durability).map_err(Failure::failed)?;
    host.sync().map_err(Failure::failed)?;
    let seconds = host.clock.now().since(began).0 as f64 / 1e9;
    let mut measured = measure(arguments, &drive, &host.drive, pages, seconds);
    let (before, reads) = (host.drive.media_mut().statistics().blocks_read, pages.min(READS_MAX));
    host.read_any(&mix, reads).map_err(Failure::failed)?;
    let blocks_read = host.drive.media_mut().statistics().blocks_read - before;
    measured.blocks_read_per_page = blocks_read as f64 / reads as f64;
    if arguments.json {
        return say(&crate::json(&measured)?);
    }
    say(&told(&measured))
}

fn measure(arguments: &PageBench, drive: &PageDrive, store: &PageFtl, pages: u64, seconds: f64) -> Measured {
    let (statistics, of_pages) = store.statistics();
    let nand_bytes = statistics.programmed.iter().sum::<u64>() * BLOCK_BYTES as u64;
    let bytes_put_on_media = of_pages.bytes_put + of_pages.header_bytes + of_pages.grain_bytes;
    let (used_bytes, flash_bytes) = (store.used_bytes(), store.flash_bytes());
    let mean = bytes_put_on_media as f64 / of_pages.pages_put.max(1) as f64;
    let geometry = drive.geometry().map_or(1.0, |geometry| f64::from(geometry.blocks_per_chunk) * BLOCK_BYTES as f64);
    let spare = flash_bytes as f64 / used_bytes as f64 - 1.0;
    Measured {
        profile: drive.profile().to_owned(),
        pages,
        bytes_least: arguments.bytes.0.0,
        bytes_most: arguments.bytes.1.0,
        capacity_bytes: store.capacity_bytes(),
        used_bytes,
        flash_bytes,
        map_bytes: store.map_bytes(),
        map_leaves_read: statistics.map_pages_read,
        map_leaves_written: of_pages.leaves_written,
        batch: arguments.batch,
        durable: arguments.durable,
        seed: arguments.seed,
        zipf: arguments.zipf,
        victim: drive.victim().to_string(),
        batches: of_pages.batches_committed,
        pages_put: of_pages.pages_put,
        bytes_put: of_pages.bytes_put,
        header_bytes: of_pages.header_bytes,
        grain_bytes: of_pages.grain_bytes,
        skipped_bytes: of_pages.skipped_bytes,
        bytes_put_on_media,
        programmed: report::programmed(statistics).collect(),
        cross_blocks: drive.cross_blocks(),
        blocks_read_per_page: 0.0,
        nand_bytes,
        moved_bytes: of_pages.moved_bytes,
        padded_bytes: of_pages.padded_bytes,
        log_bytes: of_pages.log_bytes,
        carried_bytes: of_pages.carried_bytes,
        waf: nand_bytes as f64 / of_pages.bytes_put as f64,
        waf_of_pages: (bytes_put_on_media + of_pages.moved_bytes) as f64 / bytes_put_on_media as f64,
        waf_of_pages_in_theory: theory::greedy(spare.max(0.001), (geometry / mean) as u32),
        seconds,
        batches_per_second: of_pages.batches_committed as f64 / seconds,
        bytes_per_second: of_pages.bytes_put as f64 / seconds,
    }
}

fn told(measured: &Measured) -> String {
    let Measured { pages, used_bytes, capacity_bytes, flash_bytes, map_bytes, bytes_put, nand_bytes, .. } = measured;
    let mut text = format!(
        "{pages} pages, {} of {} with headers, on {} of flash; the map has {}\n",
        ByteSize(*used_bytes),
        ByteSize(*capacity_bytes),
        ByteSize(*flash_bytes),
        ByteSize(*map_bytes)
    );
    _ = writeln!(text, "  put          {:>10}   in {} batches", ByteSize(*bytes_put).to_string(), measured.batches);
    _ = writeln!(text, "  headers      {:>10}", ByteSize(measured.header_bytes).to_string());
    let (slack, skipped) = (measured.grain_bytes + measured.skipped_bytes, measured.skipped_bytes);
    let because = if measured.cross_blocks {
        String::new()
    } else {
        format!("   of which {} so that pages do not cross blocks", ByteSize(skipped))
    };
    _ = writeln!(text, "  slack        {:>10}{because}", ByteSize(slack).to_string());
    _ = writeln!(text, "  moved        {:>10}", ByteSize(measured.moved_bytes).to_string());
    _ = writeln!(text, "  padding      {:>10}", ByteSize(measured.padded_bytes).to_string());
    let (log, carried) = (ByteSize(measured.log_bytes).to_string(), ByteSize(measured.carried_bytes));
    _ = writeln!(text, "  log          {log:>10}   of which {carried} are pages");
    let [read, written] = [measured.map_leaves_read, measured.map_leaves_written];
    if read > 0 {
        let written = ByteSize(written * BLOCK_BYTES as u64).to_string();
        _ = writeln!(
            text,
            "  map          {written:>10}   and {} read, for {read} pages of it that were not in memory",
            ByteSize(read * BLOCK_BYTES as u64)
        );
    }
    _ = writeln!(text, "  NAND         {:>10}", ByteSize(*nand_bytes).to_string());
    _ = writeln!(
        text,
        "  write amplification {:.3}; of pages on media {:.3}, {:.3} in theory",
        measured.waf, measured.waf_of_pages, measured.waf_of_pages_in_theory
    );
    _ = writeln!(
        text,
        "  {:.0} batches/s, {}/s in {:.3} s of the drive",
        measured.batches_per_second,
        ByteSize(measured.bytes_per_second as u64),
        measured.seconds
    );
    let all: u64 = measured.programmed.values().sum();
    let shares = measured.programmed.iter().filter(|(_, blocks)| **blocks > 0);
    let shares: Vec<String> =
        shares.map(|(name, blocks)| format!("{name} {:.1}%", *blocks as f64 * 100.0 / all.max(1) as f64)).collect();
    _ = writeln!(text, "  of the NAND bytes: {}", shares.join(", "));
    _ = writeln!(text, "  a read of a page reads {:.2} blocks", measured.blocks_read_per_page);
    text
}
