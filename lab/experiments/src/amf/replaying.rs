//! What ext4 and F2FS of Linux wrote for a load of files, replayed on a page FTL.

use super::{Case, Condition};
use crate::ExperimentError;
use crate::file_trace::{ACCESS_BLOCKS_MAX, Recording};
use crate::recorded::Replay;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::units::Share;
use openftl_core::{BLOCK_BYTES, Clock, Nanos, VirtualClock};
use openftl_lab::{Driver, Limit, Pattern, Workload, WorkloadConfig};
use openftl_media::EmulatedDevice;
use openftl_parts::Config;
use std::ops::ControlFlow;

/// Requests under way at a time.
const QUEUE_DEPTH: usize = 64;

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
    for _ in 0..2 {
        replay.phase()?;
        replay.flush()?;
    }
    replay.drive.reset_statistics();
    let began = replay.clock.now();
    let bytes = replay.phase()?;
    replay.flush()?;
    let span = replay.clock.now().since(began);
    let drive = replay.drive.block().statistics().clone();
    let map_bytes = replay.drive.map_memory_bytes();
    read_back(&mut replay)?;
    let Replay { drive: open, mut clock, .. } = replay;
    let media = open.crash();
    let began = clock.now();
    drop(BlockFtl::open(media, config, &mut clock)?);
    // How long Linux takes to mount was not recorded.
    let recovery = [clock.now().since(began), Nanos::ZERO];
    Ok(Case { condition, bytes, span, drive, alfs: None, map_bytes, recovery })
}

/// Reads all of the drive once, and compares.
fn read_back(replay: &mut Replay<'_>) -> Result<(), ExperimentError> {
    let Replay { drive, clock, driver, recording } = replay;
    let drive_blocks = recording.head().disk_bytes / BLOCK_BYTES as u64;
    let (pattern, read_share) = (Pattern::Sequential, Share::percent(100));
    let config = WorkloadConfig { pattern, read_share, access_blocks: ACCESS_BLOCKS_MAX, drive_blocks, seed: 0 };
    let mut reads = Workload::new(&config);
    let limit = Limit::Requests(reads.slots());
    driver.run(drive, clock, &mut reads, limit, |_| ControlFlow::Continue(()))?;
    Ok(())
}
