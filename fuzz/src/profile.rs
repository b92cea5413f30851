//! A NAND device as TOML: what is accepted can be written, read back, and built if it is small.

use openftl_blocks::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Config, chunks_per_pu};

/// Larger devices are possible, and take as much memory and time as their size asks for.
const PUS_MAX: u32 = 16;
const BLOCKS_PER_CHUNK_MAX: u32 = 512;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let profile = match Profile::parse(text) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says something");
            return;
        }
    };
    assert_eq!(Profile::parse(&profile.to_toml()).as_ref(), Ok(&profile), "a profile that is written is read back");
    let shape = profile.geometry(profile.chunks_per_pu).expect("an accepted profile has a geometry");
    let is_small =
        shape.pus() <= PUS_MAX && shape.blocks_per_chunk <= BLOCKS_PER_CHUNK_MAX && profile.cache.blocks_per_pu <= 4096;
    if !is_small {
        return;
    }
    let config = Config {
        capacity_blocks: 64,
        over_provisioning: Share::percent(10),
        payload: FrameForm::Stamp,
        host_frames: 16,
        ..Config::default()
    };
    let Ok(chunks_per_pu) = chunks_per_pu(&shape, &config, Share::percent(10)) else { return };
    let Ok(device) = EmulatedDevice::new(profile, chunks_per_pu, Store::Stamps, Timing::Modelled, 1) else { return };
    let mut clock = VirtualClock::default();
    // A device whose programs all fail is a possible one.
    if let Ok(drive) = BlockFtl::format(device, config, &mut clock) {
        _ = drive.close(&mut clock);
    }
}
