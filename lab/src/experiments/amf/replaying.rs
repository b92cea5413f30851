//! What ext4 and F2FS of Linux wrote for a load of files, replayed on a page FTL.

use super::{Case, Condition};
use crate::experiments::ExperimentError;
use crate::file_trace::{ACCESS_BLOCKS_MAX, BadRecording, Recorded, Recording};
use crate::load::{Access, Load};
use crate::{BlockDrive, Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, Clock, Nanos, VirtualClock};
use openftl_media::EmulatedDevice;
use openftl_parts::Config;
use std::ops::ControlFlow;

/// Requests under way at a time.
const QUEUE_DEPTH: usize = 64;

/// The accesses of a recording up to the next flush or the end of a phase.
struct UntilFlush<'r, 'a> {
    recording: &'r mut Recording<'a>,
    ended: Option<Recorded>,
    failure: Option<BadRecording>,
}

impl Load for UntilFlush<'_, '_> {
    fn step(&mut self) -> Option<Access> {
        match self.recording.read_next() {
            Ok(Some(Recorded::Access(access))) => return Some(access),
            Ok(ended) => self.ended = ended,
            Err(error) => self.failure = Some(error),
        }
        None
    }

    fn fill_step(&mut self) -> Option<Access> {
        None
    }

    fn kinds(&self) -> Vec<String> {
        vec!["all".to_owned()]
    }

    fn live_blocks_max(&self) -> u64 {
        self.recording.head().disk_bytes / BLOCK_BYTES as u64
    }

    fn access_blocks_max(&self) -> u32 {
        ACCESS_BLOCKS_MAX
    }
}

/// A drive on which a recording is replayed.
struct Replay<'a> {
    drive: BlockDrive<EmulatedDevice>,
    clock: VirtualClock,
    driver: Driver,
    recording: Recording<'a>,
}

impl Replay<'_> {
    /// Replays a phase. Gives the bytes that programs wrote in it.
    fn phase(&mut self) -> Result<u64, ExperimentError> {
        let Replay { drive, clock, driver, recording } = self;
        loop {
            let mut part = UntilFlush { recording, ended: None, failure: None };
            driver.run(drive, clock, &mut part, Limit::Requests(u64::MAX), |_| ControlFlow::Continue(()))?;
            let UntilFlush { ended, failure, .. } = part;
            if let Some(error) = failure {
                return Err(error.into());
            }
            match ended {
                Some(Recorded::Phase { bytes }) => {
                    driver.flush(drive, clock)?;
                    return Ok(bytes);
                }
                Some(_) => _ = driver.flush(drive, clock)?,
                None => return Err(ExperimentError::Host("a recording ends within a phase".to_owned())),
            }
        }
    }
}

/// Replays a recording on a page FTL.
pub(super) fn replayed(
    condition: Condition,
    bytes: &[u8],
    device: EmulatedDevice,
    config: Config,
) -> Result<Case, ExperimentError> {
    let recording = Recording::new(bytes)?;
    let mut clock = VirtualClock::default();
    let drive = BlockFtl::format(device, config.clone(), &mut clock)?.into();
    let driver = Driver::new(config.capacity_blocks, QUEUE_DEPTH, ACCESS_BLOCKS_MAX as usize);
    let mut replay = Replay { drive, clock, driver, recording };
    // The files are made, and age.
    replay.phase()?;
    replay.phase()?;
    replay.drive.reset_statistics();
    let began = replay.clock.now();
    let bytes = replay.phase()?;
    let span = replay.clock.now().since(began);
    let drive = replay.drive.block().statistics().clone();
    let map_bytes = replay.drive.map_memory_bytes();
    replay.read_back()?;
    let Replay { drive: open, mut clock, .. } = replay;
    let media = open.crash();
    let began = clock.now();
    drop(BlockFtl::open(media, config, &mut clock)?);
    // How long Linux takes to mount was not recorded.
    let recovery = [clock.now().since(began), Nanos::ZERO];
    Ok(Case { condition, bytes, span, drive, alfs: None, map_bytes, recovery })
}

impl Replay<'_> {
    /// Reads all of the drive once, and compares.
    fn read_back(&mut self) -> Result<(), ExperimentError> {
        let Replay { drive, clock, driver, recording } = self;
        let drive_blocks = recording.head().disk_bytes / BLOCK_BYTES as u64;
        let (pattern, read_share) = (Pattern::Sequential, Share::percent(100));
        let config = WorkloadConfig { pattern, read_share, access_blocks: ACCESS_BLOCKS_MAX, drive_blocks, seed: 0 };
        let mut reads = Workload::new(&config);
        let limit = Limit::Requests(reads.slots());
        driver.run(drive, clock, &mut reads, limit, |_| ControlFlow::Continue(()))?;
        Ok(())
    }
}
