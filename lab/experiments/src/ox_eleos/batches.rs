//! Pages of any size in large buffers: cleaned by the host over a block FTL, and by the drive (ELEOS).

use super::host_log::HostLog;
use super::{Flash, OVER_PROVISIONING, Scale};
use crate::{Assistant, ExperimentError};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, Nanos, VirtualClock};
use openftl_lab::page_trial::{PageMix, PageTrial, noise};
use openftl_media::{EmulatedDevice, Store};
use openftl_pages::{GRAIN_BYTES, PageFtl, grains_of};
use openftl_parts::words::Purpose;
use openftl_parts::{Config, Durability, VictimPolicy, chunks_per_pu};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// Bytes of a page: as large as those of a tree that writes what has changed of them.
const PAGE_BYTES: [u32; 2] = [256, 4000];
/// The exponent of YCSB.
const THETA: f64 = 0.99;
/// Of the bytes that ELEOS has room for so many are pages.
const FILL: Share = Share::percent(85);
/// What the block FTL has beyond its capacity, where the host keeps spare segments by itself.
const SPARE_BELOW: Share = Share::percent(7);
/// Of an entry in the directory of a batch.
const ENTRY_BYTES: u64 = 16;

/// What was measured.
pub struct Batches {
    pub name: &'static str,
    pub pages: u64,
    pub batches: u64,
    /// Of pages that were put.
    pub bytes: u64,
    /// Over the link.
    pub written: u64,
    pub read: u64,
    /// On media of pages that cleaning moved, on whichever side.
    pub moved: u64,
    /// What the block FTL moved below the host.
    pub moved_below: u64,
    pub nand_bytes: u64,
    pub span: Nanos,
    /// Of all bytes that pages may be put to, those that are taken.
    pub utilisation: f64,
    /// CPU time of the host and of the drive.
    pub cpu: [Nanos; 2],
}

impl Batches {
    /// For each byte that was put.
    pub fn per_byte(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes as f64
    }

    pub fn link(&self) -> f64 {
        self.per_byte(self.written + self.read)
    }

    /// Mebibytes of pages in a second.
    pub fn speed(&self) -> f64 {
        self.bytes as f64 / self.span.as_secs_f64() / f64::from(1 << 20)
    }
}

/// Pages for so many bytes of a store.
fn pages_in(capacity: u64) -> u64 {
    let mean = u64::from(grains_of(PAGE_BYTES[0].midpoint(PAGE_BYTES[1]))) * GRAIN_BYTES as u64;
    FILL.of(capacity) / mean
}

/// The same number of pages for both.
fn pages(flash: &Flash) -> u64 {
    pages_in(flash.capacity.0)
}

pub fn by_host(scale: &Scale, flash: Flash, assistant: &mut dyn Assistant) -> Result<Batches, ExperimentError> {
    let (profile, chunks) = (flash.nand.profile()?, flash.chunks()?);
    let shape = profile.geometry(profile.chunks_per_pu)?;
    let buffer_blocks = u64::from(scale.batch_bytes) / BLOCK_BYTES as u64;
    let config = |segments: u64| Config {
        over_provisioning: SPARE_BELOW,
        capacity_blocks: segments * buffer_blocks,
        ..flash.blocks(FrameForm::Bytes)
    };
    // As many segments as the flash has room for.
    let bytes = flash.capacity.0 as f64 * (1.0 + OVER_PROVISIONING.as_f64());
    let mut segments = bytes as u64 / u64::from(scale.batch_bytes);
    while chunks_per_pu(&shape, &config(segments), Share::percent(0))? > chunks {
        segments -= 1;
    }
    let mut clock = VirtualClock::default();
    let drive = BlockFtl::format(flash.device(Store::Ram)?, config(segments), &mut clock)?;
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(flash.seed);
    let noise = noise(&mut chance);
    let mix = PageMix::new(pages(&flash), PAGE_BYTES, THETA, &mut chance);
    let mut log = HostLog::new(drive, clock, scale.batch_bytes, assistant);
    let mut known = BTreeMap::new();
    let mut put = |log: &mut HostLog<'_>, lpid: u64| {
        let bytes = mix.length(&mut chance) as usize;
        let from = (chance.next_u64() % (noise.len() - bytes) as u64) as usize;
        known.insert(lpid, (from, bytes));
        log.put(lpid, &noise[from..from + bytes])
    };
    let mut ranks = Xoshiro256PlusPlus::seed_from_u64(flash.seed + 1);
    let puts = (mix.pages() as f64 * scale.batch_puts) as u64;
    (0..mix.pages()).try_for_each(|lpid| put(&mut log, lpid))?;
    (0..puts).try_for_each(|_| put(&mut log, mix.page(&mut ranks)))?;
    log.commit()?;
    log.reset_statistics();
    let (began, started) = (log.cpu_time(), log.clock.now());
    (0..puts).try_for_each(|_| put(&mut log, mix.page(&mut ranks)))?;
    log.commit()?;
    let (cpu, span) = (log.cpu_time() - began, log.clock.now().since(started));
    let counts = log.counts;
    let nand_bytes = log.statistics().nand_blocks_written() * BLOCK_BYTES as u64;
    let moved_below = log.statistics().programmed[Purpose::Relocation as usize] * BLOCK_BYTES as u64;
    let utilisation = log.live_bytes() as f64 / log.room() as f64;
    for (lpid, (from, bytes)) in known {
        if log.read(lpid)? != noise[from..from + bytes] {
            return Err(ExperimentError::Host(format!("page {lpid} of the host's store is not what was put there")));
        }
    }
    Ok(Batches {
        name: "host, block FTL",
        pages: mix.pages(),
        batches: counts.batches,
        bytes: counts.put,
        written: counts.written,
        read: counts.read,
        moved: counts.moved,
        moved_below,
        nand_bytes,
        span,
        utilisation,
        cpu: [cpu - counts.drive_cpu, counts.drive_cpu],
    })
}

/// A host that gathers pages in a buffer, and sends it when it is full.
struct Sender<'a> {
    trial: PageTrial<EmulatedDevice, VirtualClock>,
    assistant: &'a mut dyn Assistant,
    noise: Vec<u8>,
    gathered: Vec<(u64, u32)>,
    buffer: Vec<u8>,
    buffer_bytes: usize,
    batch_max: usize,
    /// CPU time of the drive and its device.
    drive_cpu: Nanos,
}

impl Sender<'_> {
    fn put(&mut self, mix: &PageMix, lpid: u64) -> Result<(), ExperimentError> {
        let bytes = mix.length(&mut self.trial.chance);
        let taken = grains_of(bytes) as usize * GRAIN_BYTES;
        if self.buffer.len() + taken > self.buffer_bytes || self.gathered.len() == self.batch_max {
            self.send()?;
        }
        self.gathered.push((lpid, bytes));
        self.buffer.extend_from_slice(&self.noise[..bytes as usize]);
        self.buffer.resize(self.buffer.len() + taken - bytes as usize, 0);
        Ok(())
    }

    fn send(&mut self) -> Result<(), ExperimentError> {
        let began = self.assistant.cpu_time();
        for (lpid, bytes) in self.gathered.drain(..) {
            self.trial.put(lpid, bytes)?;
        }
        self.trial.commit(Durability::Durable)?;
        self.drive_cpu += self.assistant.cpu_time() - began;
        self.buffer.clear();
        Ok(())
    }
}

pub fn by_drive(scale: &Scale, flash: Flash, assistant: &mut dyn Assistant) -> Result<Batches, ExperimentError> {
    let mut clock = VirtualClock::default();
    let drive = PageFtl::format(flash.device(Store::Ram)?, flash.pages(VictimPolicy::Greedy), (), &mut clock)?;
    let (room, batch_max) = (drive.flash_bytes(), drive.batch_max());
    let mut trial = PageTrial::new(drive, clock, flash.seed)?;
    let mix = PageMix::new(pages(&flash), PAGE_BYTES, THETA, &mut trial.chance);
    let noise = noise(&mut trial.chance);
    let buffer_bytes = scale.batch_bytes as usize;
    let (gathered, buffer) = (Vec::new(), Vec::with_capacity(buffer_bytes));
    let mut sender =
        Sender { trial, assistant, noise, gathered, buffer, buffer_bytes, batch_max, drive_cpu: Nanos::ZERO };
    let mut ranks = Xoshiro256PlusPlus::seed_from_u64(flash.seed + 1);
    let puts = (mix.pages() as f64 * scale.batch_puts) as u64;
    (0..mix.pages()).try_for_each(|lpid| sender.put(&mix, lpid))?;
    (0..puts).try_for_each(|_| sender.put(&mix, mix.page(&mut ranks)))?;
    sender.send()?;
    sender.trial.drive.reset_statistics();
    sender.drive_cpu = Nanos::ZERO;
    let (began, started) = (sender.assistant.cpu_time(), sender.trial.clock.now());
    (0..puts).try_for_each(|_| sender.put(&mix, mix.page(&mut ranks)))?;
    sender.send()?;
    let (cpu, span) = (sender.assistant.cpu_time() - began, sender.trial.clock.now().since(started));
    let Sender { mut trial, drive_cpu, .. } = sender;
    let of_pages = *trial.drive.statistics().1;
    let (nand_bytes, used) = (trial.nand_bytes(), trial.drive.used_bytes());
    trial.read_back()?;
    Ok(Batches {
        name: "ELEOS",
        pages: mix.pages(),
        batches: of_pages.batches_committed,
        bytes: of_pages.bytes_put,
        written: of_pages.bytes_put + ENTRY_BYTES * of_pages.pages_put,
        read: 0,
        moved: of_pages.moved_bytes,
        moved_below: 0,
        nand_bytes,
        span,
        utilisation: used as f64 / room as f64,
        cpu: [cpu - drive_cpu, drive_cpu],
    })
}
