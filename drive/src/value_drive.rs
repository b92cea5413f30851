//! A key-value drive from its drive description: for `openftl` itself, and for programs that have the drive inside them.

use crate::description::{DriveDescription, FtlKind};
use crate::failure::Failure;
use crate::new_file::Existing;
use crate::page_drive::{PageDrive, open_stored_as};
use crate::value_store::ValueStore;
use openftl_core::Geometry;
use openftl_media::EmulatedDevice;
use openftl_parts::{Access, Config};
use openftl_values::{ValueConfig, ValueFtl, ValueInfo, ValueTarget};
use std::path::Path;

/// What a drive description says of a key-value drive.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueDrive {
    pages: PageDrive,
    shape: ValueConfig,
}

impl ValueDrive {
    /// Reads a drive description.
    ///
    /// # Errors
    /// If it cannot be read or understood, or is of another kind of drive.
    pub fn read(path: &Path) -> Result<ValueDrive, Failure> {
        let file = DriveDescription::read(path)?;
        ValueDrive::of(&file).map_err(|failure| failure.about(path.display()))
    }

    /// What `file` says.
    ///
    /// # Errors
    /// If it is of another kind of drive, or says what cannot be.
    pub fn of(file: &DriveDescription) -> Result<ValueDrive, Failure> {
        if file.ftl.kind != Some(FtlKind::Values) {
            return Err(Failure::bad_input("ftl.kind is not \"values\": only a key-value drive has keys")
                .fix("write kind = \"values\" in [ftl]"));
        }
        let bytes = file.ftl.value_max.map(|most| u32::try_from(most.0)).transpose();
        let value_max = bytes.map_err(|_| {
            let most = file.ftl.value_max.unwrap_or_default();
            Failure::bad_input(format_args!("ftl.value_max = \"{most}\": no value is so long"))
                .fix("write 1MiB or less")
        })?;
        let shape = ValueConfig {
            keys_max: file.ftl.keys_max,
            key_max: file.ftl.key_max,
            value_max,
            durable_stores: file.ftl.durable_stores.unwrap_or(false),
            ..ValueConfig::default()
        };
        Ok(ValueDrive { pages: PageDrive::described(file)?, shape })
    }

    /// The file that the flash is kept in; none: it is in memory, and new each time.
    #[must_use]
    pub fn disk(&self) -> Option<&Path> {
        self.pages.disk()
    }

    /// The name of its NAND.
    #[must_use]
    pub fn profile(&self) -> &str {
        self.pages.profile()
    }

    /// The configuration of its FTL.
    #[must_use]
    pub fn config(&self, drive_id: u64) -> Config {
        self.pages.config(drive_id)
    }

    /// What a new drive is like.
    #[must_use]
    pub fn shape(&self) -> ValueConfig {
        self.shape
    }

    /// Chunks on each parallel unit of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn chunks_per_pu(&self) -> Result<u32, Failure> {
        self.pages.chunks_per_pu()
    }

    /// The shape of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn geometry(&self) -> Result<Geometry, Failure> {
        self.pages.geometry()
    }

    /// Makes the drive in the file `disk`. Returns what it is like.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self, disk: &Path, existing: Existing, seed: Option<u64>) -> Result<ValueInfo, Failure> {
        self.pages.make_as(disk, existing, seed, self.shape, |drive: &ValueFtl<_>| drive.info())
    }

    /// Makes the drive in memory, in virtual time.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn in_memory(&self, seed: u64) -> Result<ValueStore<EmulatedDevice>, Failure> {
        self.pages.in_memory_as(seed, self.shape).map(|(drive, clock)| ValueStore::new(drive, clock))
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// If it is in memory, not there, in use, of another kind, or cannot be trusted.
    pub fn open(&self, access: Access) -> Result<ValueStore<EmulatedDevice>, Failure> {
        self.pages.open_as(access).map(|(drive, clock)| ValueStore::new(drive, clock))
    }
}

/// Opens the key-value drive that is kept in `disk`, whatever it was described as, on flash that takes no time.
///
/// # Errors
/// If it is in use, of another kind, or cannot be trusted.
pub fn open_stored(disk: &Path, access: Access) -> Result<ValueStore<EmulatedDevice>, Failure> {
    open_stored_as(disk, access).map(|(drive, clock)| ValueStore::new(drive, clock))
}
