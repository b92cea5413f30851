//! `openftl pages bench`: what putting pages at random costs.

use super::{SESSION, failure};
use crate::cli::pages::PageBench;
use crate::failure::Failure;
use crate::report;
use crate::terminal::say;
use openftl_core::BLOCK_BYTES;
use openftl_core::units::ByteSize;
use openftl_drive::page_drive::PageDrive;
use openftl_drive::page_store::PageStore;
use openftl_lab::theory;
use openftl_lab::zipf::Zipf;
use openftl_media::EmulatedDevice;
use openftl_pages::{BlockingStore, Change, Ftl, HEADER_BYTES, PAGE_BYTES_MAX, PageFtl, Session};
use openftl_parts::Durability;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
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

/// The host: pages of which each has drawn bytes.
struct Host {
    store: PageStore<EmulatedDevice>,
    session: Session,
    wsn: u64,
    chance: Xoshiro256PlusPlus,
    noise: Vec<u8>,
    sizes: (u64, u64),
    /// Which page is put next: a rank, and the page of each.
    popularity: Zipf,
    by_rank: Vec<u64>,
    batch: u64,
    durability: Durability,
    /// Changes of the batch that is being gathered.
    staged: u64,
}

impl Host {
    fn below(&mut self, bound: u64) -> u64 {
        self.chance.next_u64() % bound
    }

    fn put_any(&mut self) -> Result<(), Failure> {
        let rank = self.popularity.draw(&mut self.chance);
        self.put(self.by_rank[rank as usize])
    }

    fn put(&mut self, lpid: u64) -> Result<(), Failure> {
        let (least, most) = self.sizes;
        let bytes = (least + self.below(most - least + 1)) as usize;
        let from = self.below((self.noise.len() - bytes) as u64 + 1) as usize;
        let change = Change::Put(&[&self.noise[from..from + bytes]]);
        self.store.stage(self.session, self.wsn + 1, lpid, change, None).map_err(failure)?;
        self.staged += 1;
        if self.staged == self.batch { self.commit() } else { Ok(()) }
    }

    /// Reads pages that are drawn as those that are put. Gives how many blocks the device read for each.
    fn read_some(&mut self, pages: u64) -> Result<f64, Failure> {
        let blocks_read =
            |store: &PageStore<EmulatedDevice>| store.with_drive(|store| store.media_mut().statistics().blocks_read);
        let (before, reads) = (blocks_read(&self.store), pages.min(READS_MAX));
        let mut buffer = vec![0; self.sizes.1 as usize];
        for _ in 0..reads {
            let rank = self.popularity.draw(&mut self.chance);
            self.store.read(self.by_rank[rank as usize], 0, &mut buffer).map_err(failure)?;
        }
        Ok((blocks_read(&self.store) - before) as f64 / reads as f64)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if self.staged > 0 {
            self.wsn += 1;
            self.staged = 0;
            self.store.commit(self.session, self.wsn, self.durability).map_err(failure)?;
        }
        Ok(())
    }
}

pub fn run(arguments: &PageBench) -> Result<(), Failure> {
    let mut drive = PageDrive::read(&arguments.drive)?;
    if let Some(cross_blocks) = arguments.cross_blocks {
        drive.let_cross_blocks(cross_blocks);
    }
    if let Some(victim) = arguments.victim {
        drive.clean_by(victim)?;
    }
    let store = drive.in_memory(arguments.seed)?;
    let (session, wsn) = store.open_session(SESSION).map_err(failure)?;
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(arguments.seed);
    let mut noise = vec![0; 2 * PAGE_BYTES_MAX as usize];
    chance.fill_bytes(&mut noise);
    let (least, most) = (arguments.bytes.0.0, arguments.bytes.1.0);
    let durability = if arguments.durable { Durability::Durable } else { Durability::Volatile };
    let sizes = (least, most);
    let batch = arguments.batch;
    let on_media = |bytes: u64| (bytes + HEADER_BYTES as u64).div_ceil(GRAIN_BYTES) * GRAIN_BYTES;
    let capacity = store.with_drive(|drive| drive.capacity_bytes());
    // A batch takes room beside what it replaces.
    let room = arguments.fill.of(capacity).min(capacity.saturating_sub(2 * batch * on_media(most)));
    let pages = room / on_media(least.midpoint(most)).max(1);
    if pages == 0 {
        return Err(Failure::bad_input("there is no room for a page").fix("ask for a larger store, or smaller batches"));
    }
    let popularity = Zipf::new(pages, arguments.zipf);
    let mut by_rank: Vec<u64> = (0..pages).collect();
    for at in (1..by_rank.len()).rev() {
        by_rank.swap(at, (chance.next_u64() % (at as u64 + 1)) as usize);
    }
    let mut host =
        Host { store, session, wsn, chance, noise, sizes, popularity, by_rank, batch, durability, staged: 0 };
    for lpid in 0..pages {
        host.put(lpid)?;
    }
    host.commit()?;
    host.store.sync().map_err(failure)?;
    // What comes before the steady state does not count.
    let puts = (pages as f64 * arguments.store_writes) as u64;
    for _ in 0..puts / 2 {
        host.put_any()?;
    }
    host.commit()?;
    host.store.with_drive(Ftl::reset_statistics);
    let began = host.store.now();
    for _ in 0..puts - puts / 2 {
        host.put_any()?;
    }
    host.commit()?;
    host.store.sync().map_err(failure)?;
    let seconds = host.store.now().since(began).0 as f64 / 1e9;
    let mut measured = host.store.with_drive(|store| measure(arguments, &drive, store, pages, seconds));
    measured.blocks_read_per_page = host.read_some(pages)?;
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
