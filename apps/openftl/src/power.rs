//! The power of a served drive: what a cut leaves of it, and how it comes back.
//!
//! ```text
//!              cut                              turn_on
//!   Drive ───────────▶ Dark: a device, no FTL ───────────▶ Drive, recovered
//! ```
//!
//! While its power is off nobody holds a drive's file: it can be looked at, checked and copied as the cut left it.

use crate::assembly::{self, Drive};
use crate::failure::Failure;
use crate::flash::Flash;
use openftl_core::{Clock, Time};
use openftl_ftl::Config;
use openftl_media::{EmulatedDevice, PowerLoss, Timing};
use openftl_nvme_media::Place;
use std::path::{Path, PathBuf};

/// Where a drive is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Home {
    /// In this file.
    File(PathBuf),
    /// In this process.
    Memory,
    /// On a device of another machine.
    Elsewhere(Place),
}

/// A drive without power.
pub struct Dark {
    config: Config,
    timing: Timing,
    kept: Kept,
}

enum Kept {
    File(PathBuf),
    Memory(Box<EmulatedDevice>),
    /// It could not be recovered, and there is nothing to try again with.
    Nowhere,
}

/// Cuts the power of `drive`, which forgets all that its device does not hold.
pub fn cut(drive: Drive, home: &Home, timing: Timing, now: Time, torn: bool) -> Result<(Dark, PowerLoss), Failure> {
    let config = drive.config().clone();
    let Flash::Emulated(mut device) = drive.crash() else {
        return Err(Failure::failed("the flash is on another machine, and so is its power"));
    };
    let loss = device.power_cut(now, torn).map_err(|error| {
        Failure::failed(format_args!("the power cut cannot be noted: {error}"))
            .fix("mend the disk behind the drive's file")
    })?;
    let kept = match home {
        Home::File(path) => Kept::File(path.clone()),
        Home::Memory => Kept::Memory(Box::new(device)),
        Home::Elsewhere(_) => unreachable!("its device is not emulated here"),
    };
    Ok((Dark { config, timing, kept }, loss))
}

impl Dark {
    /// Turns the power on and recovers the drive. A drive in a file that cannot be recovered may be mended and tried again.
    pub fn turn_on(&mut self, clock: &mut impl Clock) -> Result<Drive, Failure> {
        match &mut self.kept {
            Kept::File(path) => {
                assembly::open(assembly::open_device(path, self.timing)?, self.config.clone(), path, clock)
            }
            kept @ Kept::Memory(_) => {
                let Kept::Memory(device) = std::mem::replace(kept, Kept::Nowhere) else { unreachable!("just matched") };
                assembly::open(*device, self.config.clone(), Path::new("the drive in memory"), clock)
            }
            Kept::Nowhere => Err(Failure::failed("the drive in memory could not be recovered and is gone")
                .fix("end the server and begin again; a drive in a file can be looked at (openftl inspect, check)")),
        }
    }
}
