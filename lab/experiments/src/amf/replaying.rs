//! What ext4 and F2FS of Linux wrote for a load of files, replayed on a page FTL.

use super::{Case, Condition};
use crate::ExperimentError;
use crate::file_trace::{ACCESS_BLOCKS_MAX, Recording};
use crate::recorded::Replay;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::{Clock, Nanos, VirtualClock};
use openftl_lab::Driver;
use openftl_media::EmulatedDevice;
use openftl_parts::Config;

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
    replay.read_back()?;
    let Replay { drive: open, mut clock, .. } = replay;
    let media = open.crash();
    let began = clock.now();
    drop(BlockFtl::open(media, config, &mut clock)?);
    // How long Linux takes to mount was not recorded.
    let recovery = [clock.now().since(began), Nanos::ZERO];
    Ok(Case { condition, bytes, span, drive, alfs: None, map_bytes, recovery })
}
