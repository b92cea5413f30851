//! How long a drive takes to open, after a clean stop and after a crash, young and old.
//!
//! ```text
//! cargo run --release -p xtask --example open_time -- [--profile NAME] [--capacity SIZE] [--drive-writes N] [--json]
//! ```
//!
//! The drive keeps stamps, so that 64 GiB fit in memory. It is *young* when its whole capacity has been written once, and
//! *old* when it has been overwritten at random `--drive-writes` times more. In each age it is crashed four times, each
//! time with more written since its last checkpoint, and the slowest opening counts.
//!
//! A time is the sum of what the NAND takes, in virtual time, and what the software takes, by the clock on the wall. On
//! real hardware the two overlap, so it is an upper bound.

use openftl_blocks::BlockFtl;
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, Clock, FrameForm, VirtualClock};
use openftl_lab::{Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Config, chunks_per_pu};
use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

type Drive = BlockFtl<EmulatedDevice>;

/// Crashes in each age. Before crash `n`, `n` of `CRASH_WRITES_SHARE` of the capacity are written.
const CRASHES: u64 = 4;
const CRASH_WRITES_SHARE: Share = Share::percent(4);
const SEED: u64 = 1;

struct Options {
    profile: String,
    capacity: ByteSize,
    drive_writes: u64,
    json: bool,
}

/// What opening took, in seconds.
#[derive(Clone, Copy, Default)]
struct Opened {
    nand: f64,
    software: f64,
    /// Log records replayed.
    replayed: u64,
}

impl Opened {
    fn total(self) -> f64 {
        self.nand + self.software
    }
}

/// A drive that is worked on, stopped and crashed.
struct Life {
    drive: Option<Drive>,
    config: Config,
    clock: VirtualClock,
    /// Only ever writes: what it would expect to read is not true any more after a crash.
    driver: Driver,
}

impl Life {
    fn begin(options: &Options) -> Result<Life, Box<dyn Error>> {
        let profile = Profile::builtin(&options.profile)?;
        let config = Config {
            capacity_blocks: options.capacity.0 / BLOCK_BYTES as u64,
            payload: FrameForm::Stamp,
            ..Config::default()
        };
        let geometry = profile.geometry(profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&geometry, &config, Share::percent(1))?;
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Modelled, SEED)?;
        let mut clock = VirtualClock::default();
        let driver = Driver::new(config.capacity_blocks, 32, 64);
        let drive = Some(BlockFtl::format(device, config.clone(), &mut clock)?);
        Ok(Life { drive, config, clock, driver })
    }

    /// Writes `blocks` blocks in this pattern.
    fn write(&mut self, pattern: Pattern, access_blocks: u32, blocks: u64, seed: u64) -> Result<(), Box<dyn Error>> {
        let mut workload = Workload::new(&WorkloadConfig {
            pattern,
            read_share: Share::percent(0),
            access_blocks,
            drive_blocks: self.config.capacity_blocks,
            seed,
        });
        let drive = self.drive.as_mut().expect("the drive is open");
        let limit = Limit::BlocksWritten(blocks);
        self.driver.run(drive, &mut self.clock, &mut workload, limit, |_| ControlFlow::Continue(()))?;
        Ok(())
    }

    fn open_after_clean_stop(&mut self) -> Result<Opened, Box<dyn Error>> {
        let device = self.drive.take().expect("the drive is open").close(&mut self.clock)?;
        self.open(device)
    }

    fn open_after_crash(&mut self) -> Result<Opened, Box<dyn Error>> {
        let mut device = self.drive.take().expect("the drive is open").crash();
        device.power_cut(self.clock.now(), false)?;
        self.open(device)
    }

    fn open(&mut self, device: EmulatedDevice) -> Result<Opened, Box<dyn Error>> {
        let (nand, software) = (self.clock.now(), Instant::now());
        let drive = BlockFtl::open(device, self.config.clone(), &mut self.clock)?;
        let opened = Opened {
            nand: self.clock.now().since(nand).as_secs_f64(),
            software: software.elapsed().as_secs_f64(),
            replayed: drive.recovery_report().replayed,
        };
        for step in &drive.recovery_report().steps {
            eprintln!("    {:<22} {:>12}  {}", step.name, step.time.to_string(), step.found);
        }
        eprintln!("    software {:.3} s", opened.software);
        self.drive = Some(drive);
        Ok(opened)
    }

    /// Opens the drive after a clean stop and after crashes: that, and the slowest of those.
    fn measure(&mut self, age: &str) -> Result<[Opened; 2], Box<dyn Error>> {
        eprintln!("{age}, after a clean stop");
        let clean = self.open_after_clean_stop()?;
        let mut slowest = Opened::default();
        for crash in 1..=CRASHES {
            let blocks = crash * CRASH_WRITES_SHARE.of(self.config.capacity_blocks);
            self.write(Pattern::Uniform, 1, blocks, SEED + crash)?;
            eprintln!("{age}, crash {crash}");
            let opened = self.open_after_crash()?;
            if opened.total() > slowest.total() {
                slowest = opened;
            }
        }
        Ok([clean, slowest])
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let mut life = Life::begin(&options)?;
    let capacity_blocks = life.config.capacity_blocks;
    life.write(Pattern::Sequential, 64, capacity_blocks, SEED)?;
    let young = life.measure("young")?;
    life.write(Pattern::Uniform, 1, options.drive_writes * capacity_blocks, SEED)?;
    let old = life.measure("old")?;
    for (age, [clean, crashed]) in [("young", young), ("old", old)] {
        let Opened { replayed, .. } = crashed;
        if !options.json {
            println!("{age}: clean {:.3} s, crashed {:.3} s ({replayed} replayed)", clean.total(), crashed.total());
        }
    }
    if options.json {
        let [young, old] = [young, old].map(|[clean, crashed]| {
            format!(
                "{{\"clean_seconds\":{:.6},\"crash_seconds\":{:.6},\"crash_replayed\":{}}}",
                clean.total(),
                crashed.total(),
                crashed.replayed
            )
        });
        println!("{{\"young\":{young},\"old\":{old},\"capacity_bytes\":{}}}", options.capacity.0);
    }
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options =
        Options { profile: "granby".to_owned(), capacity: ByteSize(64 << 30), drive_writes: 2, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--profile" => options.profile = value()?,
            "--capacity" => options.capacity = value()?.parse()?,
            "--drive-writes" => options.drive_writes = value()?.parse()?,
            "--json" => options.json = true,
            other => return Err(format!("there is no `{other}`; see the first lines of this example").into()),
        }
    }
    Ok(options)
}
