//! What is on one device, open: one drive, or the namespaces that the device is divided into.
//!
//! ```text
//!   one device   ──▶ Drive                                       namespace 1
//!
//!   parts        ──▶ Drive, Drive, …    the block namespaces     1, 2, …
//!                └─▶ Flash, …           the Open-Channel ones    behind them
//! ```

use crate::assembly::{self, Drive};
use crate::failure::Failure;
use crate::flash::Flash;
use openftl_blocks::BlockFtl;
use openftl_core::Clock;
use openftl_media::partition::{join, split};
use openftl_media::{EmulatedDevice, PartKind, PartLabel, PartName};
use openftl_parts::Config;
use std::fmt;
use std::path::Path;

/// What is on one device.
pub struct Namespaces {
    /// What the device is divided into; nothing if it is one drive.
    pub parts: Vec<PartLabel>,
    /// The drives: of the block namespaces, in their order.
    pub drives: Vec<Drive>,
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
        Namespaces { parts: Vec::new(), drives: vec![drive], bare: Vec::new() }
    }

    /// Formats drives of `configs`, in their order, on a device that is divided so.
    pub fn format(
        device: EmulatedDevice,
        parts: Vec<PartLabel>,
        configs: Vec<Config>,
        clock: &mut impl Clock,
    ) -> Result<Namespaces, Failure> {
        Namespaces::each(device, parts, configs, |flash, config, label| {
            BlockFtl::format(flash, config, clock).map_err(|error| {
                let failure = Failure::failed(error).fix("ask for less capacity, or another profile");
                label.map_or(failure.clone(), |label| failure.about(format_args!("namespace {}", label.name)))
            })
        })
    }

    /// Opens what is on a device that is divided so. `path` is for messages.
    pub fn open(
        device: EmulatedDevice,
        parts: Vec<PartLabel>,
        configs: Vec<Config>,
        path: &Path,
        clock: &mut impl Clock,
    ) -> Result<Namespaces, Failure> {
        Namespaces::each(device, parts, configs, |flash, config, label| {
            let stored = Stored { path, namespace: label.map(|label| &label.name) };
            assembly::open(flash, config, &stored, clock)
        })
    }

    fn each(
        device: EmulatedDevice,
        parts: Vec<PartLabel>,
        configs: Vec<Config>,
        mut begin: impl FnMut(Flash, Config, Option<&PartLabel>) -> Result<Drive, Failure>,
    ) -> Result<Namespaces, Failure> {
        let mut configs = configs.into_iter();
        let mut next = || configs.next().expect("each drive has its configuration");
        if parts.is_empty() {
            return Ok(Namespaces::one(begin(device.into(), next(), None)?));
        }
        let (mut drives, mut bare) = (Vec::new(), Vec::new());
        for (flash, label) in divide(device, &parts)?.into_iter().zip(&parts) {
            match label.kind {
                PartKind::Block => drives.push(begin(flash, next(), Some(label))?),
                PartKind::OpenChannel => bare.push(flash),
            }
        }
        Ok(Namespaces { parts, drives, bare })
    }

    /// A clean stop of all drives. If one cannot be closed, the others are all the same.
    pub fn close(self, clock: &mut impl Clock) -> Result<(), Failure> {
        let closed = self.drives.into_iter().map(|drive| assembly::close(drive, clock).map(drop));
        closed.fold(Ok(()), Result::and)
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

/// The labels of one kind, in their order.
pub fn of_kind(parts: &[PartLabel], kind: PartKind) -> impl Iterator<Item = &PartLabel> {
    parts.iter().filter(move |label| label.kind == kind)
}
