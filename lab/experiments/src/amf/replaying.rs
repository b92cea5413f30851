//! What ext4 and F2FS of Linux wrote for a load of files, replayed on a page FTL.

use super::{Case, Condition};
use crate::ExperimentError;
use crate::recorded::{LastPhase, Replay};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::{Clock, Nanos, VirtualClock};
use openftl_media::EmulatedDevice;
use openftl_parts::Config;

/// Replays a recording on a page FTL.
pub(super) fn replayed(
    condition: Condition,
    bytes: &[u8],
    device: EmulatedDevice,
    config: Config,
) -> Result<Case, ExperimentError> {
    let mut clock = VirtualClock::default();
    let drive = BlockFtl::format(device, config.clone(), &mut clock)?.into();
    let mut replay = Replay::new(bytes, drive, clock)?;
    let LastPhase { bytes, span, drive } = replay.run()?;
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
