//! The flash of a drive of one FTL, as a drive description has it: its NAND, where its bytes are kept, and how time passes on it.

use crate::description::{DriveDescription, StoreName, Timing, find_profile};
use crate::failure::Failure;
use openftl_core::Geometry;
use openftl_dispatch::Pace;
use openftl_media::{DeviceError, Durability, EmulatedDevice, Profile, Store, Timing as MediaTiming};
use openftl_parts::Access;
use std::path::{Path, PathBuf};

/// Frames of 4 KiB for requests under way.
pub const HOST_FRAMES: u32 = 4096;

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct Flash {
    profile: Profile,
    /// The file that it is kept in; none: it is in memory.
    disk: Option<PathBuf>,
    durability: Durability,
    timing: Timing,
}

impl Flash {
    /// What `file` says of the flash of a drive for `payload`: "files", "pages".
    ///
    /// # Errors
    /// If there is no such NAND, or it keeps no bytes.
    pub fn of(file: &DriveDescription, payload: &str) -> Result<Flash, Failure> {
        let name = file.media.profile.as_deref().unwrap_or("cosmos");
        let profile = find_profile(name).map_err(|failure| failure.about("media.profile"))?;
        let disk = match file.media.store {
            Some(StoreName::Stamps) => {
                let text = format!("media.store = \"stamps\" keeps no bytes, and {payload} have some");
                return Err(Failure::bad_input(text).fix("choose \"ram\" or \"file\""));
            }
            Some(StoreName::File) => file.media.path.clone(),
            Some(StoreName::Ram) | None => None,
        };
        Ok(Flash {
            profile,
            disk,
            durability: file.media.durability.unwrap_or_default(),
            timing: file.media.timing.unwrap_or(Timing::WallClock),
        })
    }

    /// The file that it is kept in; none: it is in memory, and new each time.
    #[must_use]
    pub fn disk(&self) -> Option<&Path> {
        self.disk.as_deref()
    }

    /// Its NAND.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Its shape with so many chunks in a parallel unit.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn geometry(&self, chunks: u32) -> Result<Geometry, DeviceError> {
        Ok(self.profile.geometry(chunks)?)
    }

    /// How time passes for a drive on it, and on the device.
    #[must_use]
    pub fn pace(&self) -> (Pace, MediaTiming) {
        match self.timing {
            Timing::Virtual => (Pace::Virtual, MediaTiming::Modelled),
            Timing::WallClock => (Pace::wall(), MediaTiming::Modelled),
            Timing::Instant => (Pace::wall(), MediaTiming::Instant),
        }
    }

    /// Makes the device in a file, for a drive that is formatted without waiting for it.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(&self, file: &Path, chunks: u32, seed: u64) -> Result<EmulatedDevice, DeviceError> {
        let mut device = EmulatedDevice::create(file, &self.profile, chunks, MediaTiming::Instant, seed)?;
        device.set_durability(self.durability)?;
        Ok(device)
    }

    /// Makes the device in memory.
    ///
    /// # Errors
    /// If there is not enough of it.
    pub fn in_memory(&self, chunks: u32, timing: MediaTiming, seed: u64) -> Result<EmulatedDevice, DeviceError> {
        EmulatedDevice::new(self.profile.clone(), chunks, Store::Ram, timing, seed)
    }

    /// Opens the device in a file.
    ///
    /// # Errors
    /// If it is in use, or none.
    pub fn open(&self, file: &Path, access: Access, timing: MediaTiming) -> Result<EmulatedDevice, DeviceError> {
        let mut device = open(file, access, timing)?;
        device.set_durability(self.durability)?;
        Ok(device)
    }
}

/// Opens the device in a file, whatever it was described as.
///
/// # Errors
/// If it is in use, or none.
pub fn open(file: &Path, access: Access, timing: MediaTiming) -> Result<EmulatedDevice, DeviceError> {
    match access {
        Access::Inspect => EmulatedDevice::open_to_look_at(file, timing),
        Access::ReadWrite | Access::Repair => EmulatedDevice::open(file, timing),
    }
}
