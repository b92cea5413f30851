//! What is on one device, open: one drive, or the namespaces that the device is divided into.
//!
//! ```text
//!   one device   ──▶ a drive of any kind but tables              namespace 1
//!
//!   parts        ──▶ Drive, Drive, …    the block namespaces     1, 2, …
//!                ├─▶ AnyDrive, …        the zoned ones           behind them
//!                └─▶ Flash, …           the Open-Channel ones    behind those
//! ```

use crate::assembly::{self, Drive, Wanted, ZonesWanted};
use crate::failure::Failure;
use openftl_blocks::Ftl;
use openftl_core::Clock;
use openftl_drive::any_drive::{AnyDrive, Shape};
use openftl_media::partition::{join, split};
use openftl_media::{EmulatedDevice, Media, PartKind, PartLabel, PartName};
use openftl_serving::flash::Flash;
use openftl_zones::Face;
use std::fmt;
use std::path::Path;

/// What is on one device.
pub struct Namespaces {
    /// What the device is divided into; nothing if it is one drive.
    pub parts: Vec<PartLabel>,
    /// The drives: of the block namespaces, in their order.
    pub drives: Vec<Drive>,
    /// Drives of other kinds, which NVMe hosts alone can see, in the order of their namespaces: zones, pages, or keys and values.
    pub others: Vec<AnyDrive<Flash>>,
    /// The flash of the Open-Channel namespaces, in their order.
    pub bare: Vec<Flash>,
}

/// A drive where it is stored: a file, or one namespace of a file that has several.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    pub path: &'a Path,
    pub namespace: Option<&'a PartName>,
}

impl<'a> Stored<'a> {
    /// The only drive in a file.
    pub fn alone(path: &'a Path) -> Stored<'a> {
        Stored { path, namespace: None }
    }

    /// What names it on a command line.
    pub fn words(&self) -> String {
        match self.namespace {
            Some(name) => format!("{} --namespace {name}", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

impl fmt::Display for Stored<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        self.namespace.map_or(Ok(()), |name| write!(f, ", namespace {name}"))
    }
}

impl Namespaces {
    /// One drive has the whole device.
    pub fn one(drive: Drive) -> Namespaces {
        Namespaces { parts: Vec::new(), drives: vec![drive], others: Vec::new(), bare: Vec::new() }
    }

    /// The block FTL of each drive, in the order of the namespaces: all of a block drive; what others keep beside what hosts see, and accounts.
    pub fn ftls(&self) -> impl Iterator<Item = &Drive> {
        self.drives.iter().chain(self.others.iter().map(AnyDrive::block))
    }

    /// Formats what is `wanted`, in order, on a device that is divided so.
    pub fn format(
        device: EmulatedDevice,
        parts: Vec<PartLabel>,
        wanted: Vec<Wanted>,
        clock: &mut impl Clock,
    ) -> Result<Namespaces, Failure> {
        Namespaces::each(device, parts, wanted, |flash, wanted, label| {
            let (config, shape, face) = match wanted {
                Wanted::Block(config) => (config, Shape::Blocks, Face::default()),
                Wanted::Zoned(config, ZonesWanted::New(zones)) => {
                    (config, Shape::Zones(zones.zoned(flash.geometry())), zones.interface.unwrap_or(zones.face))
                }
                Wanted::Pages(config) => (config, Shape::Pages, Face::default()),
                Wanted::Values(config, values) => (config, Shape::Values(values), Face::default()),
                Wanted::Zoned(_, ZonesWanted::Found(_)) => unreachable!("new zones have settings"),
            };
            let mut drive = AnyDrive::format(flash, config, shape, clock).map_err(|error| {
                let failure = Failure::failed(error).fix("ask for less capacity, or another profile");
                label.map_or(failure.clone(), |label| failure.about(format_args!("namespace {}", label.name)))
            })?;
            if let AnyDrive::Zones(zones) = &mut drive {
                zones.set_face(face);
            }
            Ok(drive)
        })
    }

    /// Opens what is on a device that is divided so. `path` is for messages.
    pub fn open(
        device: EmulatedDevice,
        parts: Vec<PartLabel>,
        wanted: Vec<Wanted>,
        path: &Path,
        clock: &mut impl Clock,
    ) -> Result<Namespaces, Failure> {
        Namespaces::each(device, parts, wanted, |flash, wanted, label| {
            let stored = Stored { path, namespace: label.map(|label| &label.name) };
            match wanted {
                Wanted::Block(config) => assembly::open(flash, config, &stored, clock).map(AnyDrive::from),
                Wanted::Zoned(config, ZonesWanted::Found(found)) => {
                    assembly::open_zones(flash, config, found, &stored, clock).map(AnyDrive::from)
                }
                Wanted::Pages(config) => assembly::open_pages(flash, config, &stored, clock).map(AnyDrive::from),
                Wanted::Values(config, _) => assembly::open_values(flash, config, &stored, clock).map(AnyDrive::from),
                Wanted::Zoned(_, ZonesWanted::New(_)) => unreachable!("zones that are there are as they are"),
            }
        })
    }

    fn each(
        device: EmulatedDevice,
        parts: Vec<PartLabel>,
        wanted: Vec<Wanted>,
        mut begin: impl FnMut(Flash, Wanted, Option<&PartLabel>) -> Result<AnyDrive<Flash>, Failure>,
    ) -> Result<Namespaces, Failure> {
        let mut wanted = wanted.into_iter();
        let mut next = || wanted.next().expect("each drive has its configuration");
        let (mut drives, mut others, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        let mut keep = |opened| match opened {
            AnyDrive::Blocks(drive) => drives.push(*drive),
            AnyDrive::Tables(_) => unreachable!("these have a server of their own"),
            other => others.push(other),
        };
        if parts.is_empty() {
            keep(begin(device.into(), next(), None)?);
            return Ok(Namespaces { parts, drives, others, bare });
        }
        for (flash, label) in divide(device, &parts)?.into_iter().zip(&parts) {
            match label.kind {
                PartKind::Block | PartKind::Zoned => keep(begin(flash, next(), Some(label))?),
                PartKind::OpenChannel => bare.push(flash),
            }
        }
        Ok(Namespaces { parts, drives, others, bare })
    }

    /// A clean stop of all drives. If one cannot be closed, the others are all the same.
    pub fn close(self, clock: &mut impl Clock) -> Result<(), Failure> {
        let blocks = self.drives.into_iter().map(|drive| assembly::close(drive, clock).map(drop));
        let closed = blocks.fold(Ok(()), Result::and);
        let others = self.others.into_iter().map(|drive| assembly::close(drive, clock).map(drop));
        others.fold(closed, Result::and)
    }
}

/// The parts of a device, in the order of their labels.
pub fn divide(device: EmulatedDevice, parts: &[PartLabel]) -> Result<Vec<Flash>, Failure> {
    let partitions = parts.iter().map(|label| label.partition.clone()).collect();
    let parts = split(device, partitions).map_err(Failure::failed)?;
    Ok(parts.into_iter().map(Flash::Part).collect())
}

/// The device that all of this flash is of; `None` if it is on another machine.
pub fn reunite(flash: Vec<Flash>) -> Option<EmulatedDevice> {
    let mut parts = Vec::new();
    for flash in flash {
        match flash {
            Flash::Emulated(device) => return Some(device),
            Flash::Part(part) => parts.push(part),
            Flash::Remote(_) => return None,
        }
    }
    Some(join(parts))
}

/// The labels in the order in which hosts see the namespaces.
pub fn ordered(parts: &[PartLabel]) -> impl Iterator<Item = &PartLabel> {
    PartKind::ALL.into_iter().flat_map(move |kind| of_kind(parts, kind))
}

/// The labels of the drives, in the order of the namespaces.
pub fn with_ftl(parts: &[PartLabel]) -> impl Iterator<Item = &PartLabel> {
    ordered(parts).filter(|label| label.kind != PartKind::OpenChannel)
}

/// The labels of one kind, in their order.
pub fn of_kind(parts: &[PartLabel], kind: PartKind) -> impl Iterator<Item = &PartLabel> {
    parts.iter().filter(move |label| label.kind == kind)
}
