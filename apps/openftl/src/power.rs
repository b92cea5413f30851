//! The power of a served drive: what a cut leaves of it, and how it comes back.
//!
//! ```text
//!                   cut                              turn_on
//!   Namespaces ───────────▶ Dark: a device, no FTL ───────────▶ Namespaces, recovered
//! ```
//!
//! The power is that of the device: all that it is divided into loses it together, and each drive is recovered on its own.
//! While it is off nobody holds a drive's file: it can be looked at, checked and copied as the cut left it.

use crate::assembly::{self, Drive, Wanted, ZonesFound, ZonesWanted};
use crate::failure::Failure;
use crate::namespaces::{Namespaces, reunite};
use openftl_blocks::Ftl;
use openftl_core::{Clock, Time};
use openftl_drive::any_drive::AnyDrive;
use openftl_media::{Durability, EmulatedDevice, PartLabel, PowerLoss, Timing};
use openftl_nvme_media::Place;
use openftl_parts::Config;
use openftl_server::Stop;
use openftl_values::ValueConfig;
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

/// A device without power.
pub struct Dark {
    parts: Vec<PartLabel>,
    wanted: Vec<Wanted>,
    timing: Timing,
    kept: Kept,
}

enum Kept {
    File(PathBuf, Durability),
    Memory(Box<EmulatedDevice>),
    /// It could not be recovered, and there is nothing to try again with.
    Nowhere,
}

/// Cuts the power of a device: its drives forget all that it does not hold.
pub fn cut(
    namespaces: Namespaces,
    home: &Home,
    timing: Timing,
    now: Time,
    torn: bool,
) -> Result<(Dark, PowerLoss), Failure> {
    let Namespaces { parts, drives, others, bare } = namespaces;
    let blocks = drives.iter().map(|drive| Wanted::Block(drive.config().clone()));
    let beside = others.iter().map(|drive| {
        let config = drive.block().config().clone();
        let drive = match drive {
            AnyDrive::Zones(drive) => drive,
            AnyDrive::Values(drive) => {
                // The frames of its own come again when it is opened.
                let host_frames = config.host_frames - drive.own_frames();
                return Wanted::Values(Config { host_frames, ..config }, ValueConfig::default());
            }
            _ => return Wanted::Pages(config),
        };
        let found = ZonesFound {
            width: None,
            limits: drive.board().limits().into(),
            face: Some(drive.face()),
            lies: drive.lies_about_flush(),
        };
        Wanted::Zoned(config, ZonesWanted::Found(found))
    });
    // The labels of a device name its block namespaces first.
    let wanted = blocks.chain(beside).collect();
    let flash = drives.into_iter().map(Drive::crash);
    let flash = flash.chain(others.into_iter().map(AnyDrive::crash)).chain(bare).collect();
    let Some(mut device) = reunite(flash) else {
        return Err(Failure::failed("the flash is on another machine, and so is its power"));
    };
    let loss = device.power_cut(now, torn).map_err(|error| {
        Failure::failed(format_args!("the power cut cannot be noted: {error}"))
            .fix("mend the disk behind the drive's file")
    })?;
    let kept = match home {
        Home::File(path) => Kept::File(path.clone(), device.durability().expect("the device is kept in a file")),
        Home::Memory => Kept::Memory(Box::new(device)),
        Home::Elsewhere(_) => unreachable!("its device is not emulated here"),
    };
    Ok((Dark { parts, wanted, timing, kept }, loss))
}

impl Dark {
    /// Turns the power on and recovers every drive. Those in a file that cannot be recovered may be mended and tried again.
    pub fn turn_on(&mut self, server: &Stop, clock: &mut impl Clock) -> Result<Namespaces, Failure> {
        let (parts, wanted) = (self.parts.clone(), self.wanted.clone());
        match &mut self.kept {
            Kept::File(path, durability) => {
                let device = assembly::open_served(path, self.timing, *durability, server)?;
                if device.parts() != parts {
                    return Err(Failure::failed(format_args!("{} is divided otherwise than it was", path.display()))
                        .fix("put the file back that was served"));
                }
                Namespaces::open(device, parts, wanted, path, clock)
            }
            kept @ Kept::Memory(_) => {
                let Kept::Memory(device) = std::mem::replace(kept, Kept::Nowhere) else { unreachable!("just matched") };
                Namespaces::open(*device, parts, wanted, Path::new("the drive in memory"), clock)
            }
            Kept::Nowhere => Err(Failure::failed("the drive in memory could not be recovered and is gone")
                .fix("end the server and begin again; a drive in a file can be looked at (openftl inspect, check)")),
        }
    }
}
