//! A table drive from its drive description: for `openftl` itself, and for programs that have the drive inside them.

use crate::description::{DriveDescription, FtlKind, another_seed};
use crate::failure::Failure;
use crate::flash::{self, Flash, HOST_FRAMES};
use crate::new_file::{self, Existing, NewFileError};
use openftl_core::units::{ByteSize, Share};
use openftl_core::{BLOCK_BYTES, FrameForm, Geometry};
use openftl_files::{Client, FileError, Files, Pace, Stream};
use openftl_media::{DeviceError, EmulatedDevice, StoreError, Timing as MediaTiming};
use openftl_parts::{Access, Config};
use openftl_server::Endpoint;
use openftl_tables::TablePlacement;
use std::io;
use std::path::Path;

/// What tables can hold unless the drive description says otherwise.
pub const CAPACITY_DEFAULT: ByteSize = ByteSize(8 << 30);
/// The log area unless the drive description says otherwise, or an eighth of the capacity if that is less.
pub const LOG_AREA_DEFAULT: ByteSize = ByteSize(1 << 30);

/// The files of a drive whose flash is emulated.
pub type TableFiles = Files<EmulatedDevice>;

/// What a drive description says of a table drive.
#[derive(Clone, Debug)]
pub struct TableDrive {
    flash: Flash,
    capacity: ByteSize,
    log_area: ByteSize,
    over_provisioning: Share,
    placement: TablePlacement,
    checkpoint: (Option<u64>, Option<openftl_core::Nanos>),
    /// Where it is served.
    server: Option<Endpoint>,
}

impl TableDrive {
    /// Reads a drive description.
    ///
    /// # Errors
    /// If it cannot be read or understood, or is of another kind of drive.
    pub fn read(path: &Path) -> Result<TableDrive, FileError> {
        let file = DriveDescription::read_alone(path).map_err(|failure| invalid_as_said(&failure))?;
        TableDrive::of(&file).map_err(|error| error.of(&path.display().to_string()))
    }

    /// What `file` says.
    ///
    /// # Errors
    /// If it is of another kind of drive, or says what cannot be.
    pub fn of(file: &DriveDescription) -> Result<TableDrive, FileError> {
        let invalid = |reason: &str| Err(FileError::Invalid(reason.to_owned()));
        if file.ftl.kind != Some(FtlKind::Tables) {
            return invalid(
                "ftl.kind is not \"tables\": only a table drive has files; write kind = \"tables\" in [ftl]",
            );
        }
        let is_on_media = file.ftl.map_memory.is_some() || file.ftl.map_cache.is_some();
        if is_on_media || file.ftl.map_pin.is_some() || file.ftl.map_block.is_some() {
            return invalid(
                "ftl.map_memory, ftl.map_cache, ftl.map_pin and ftl.map_block are for block drives: a table drive has a small map; leave them away",
            );
        }
        if !file.namespaces.is_empty() {
            return invalid("[[namespace]]: a table drive cannot be divided; leave it away");
        }
        let flash = Flash::of(file, "files").map_err(|failure| invalid_as_said(&failure))?;
        let capacity = file.media.capacity.unwrap_or(CAPACITY_DEFAULT);
        let log_area = file.ftl.log_area.unwrap_or(ByteSize(LOG_AREA_DEFAULT.0.min(capacity.0 / 8)));
        for (field, bytes) in [("media.capacity", capacity), ("ftl.log_area", log_area)] {
            if bytes.0 == 0 || !bytes.0.is_multiple_of(BLOCK_BYTES as u64) {
                return invalid(&format!("{field} = {} bytes: give a multiple of {BLOCK_BYTES}", bytes.0));
            }
        }
        Ok(TableDrive {
            flash,
            capacity,
            log_area,
            over_provisioning: file.media.over_provisioning.unwrap_or(Share::percent(10)),
            placement: file.ftl.table_placement.unwrap_or_default(),
            checkpoint: (file.ftl.checkpoint_log_blocks, file.ftl.checkpoint_interval),
            server: file.host.files.as_deref().map(endpoint).transpose()?,
        })
    }

    /// The file that the flash is kept in; none: it is in memory, and new each time.
    #[must_use]
    pub fn disk(&self) -> Option<&Path> {
        self.flash.disk()
    }

    /// What tables can hold.
    #[must_use]
    pub fn capacity(&self) -> ByteSize {
        self.capacity
    }

    /// The log area.
    #[must_use]
    pub fn log_area(&self) -> ByteSize {
        self.log_area
    }

    /// Where it is served, if the drive description says so.
    #[must_use]
    pub fn server(&self) -> Option<&Endpoint> {
        self.server.as_ref()
    }

    fn config(&self, drive_id: u64) -> Config {
        Config {
            capacity_blocks: self.log_area.0 / BLOCK_BYTES as u64,
            over_provisioning: self.over_provisioning,
            drive_id,
            payload: FrameForm::Bytes,
            host_frames: HOST_FRAMES,
            checkpoint_log_blocks: self.checkpoint.0,
            checkpoint_interval: self.checkpoint.1,
            ..Config::default()
        }
    }

    fn chunks_per_pu(&self) -> Result<u32, FileError> {
        let shape = self.flash.geometry(1).map_err(|error| device_error(&error))?;
        let table_blocks = self.capacity.0 / BLOCK_BYTES as u64;
        openftl_tables::chunks_per_pu(&shape, &self.config(0), table_blocks)
            .map_err(|error| FileError::Invalid(format!("media.capacity, ftl.log_area: {error}")))
    }

    /// The shape of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn geometry(&self) -> Result<Geometry, FileError> {
        self.flash.geometry(self.chunks_per_pu()?).map_err(|error| device_error(&error))
    }

    /// Makes the drive in the file `disk`, which must not exist.
    ///
    /// # Errors
    /// If it exists or cannot be made.
    pub fn create(&self, disk: &Path, seed: Option<u64>) -> Result<(), FileError> {
        self.make(disk, Existing::Keep, seed)
    }

    /// Makes the drive in the file `disk`, in the place of what is there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn replace(&self, disk: &Path, seed: Option<u64>) -> Result<(), FileError> {
        self.make(disk, Existing::Replace, seed)
    }

    fn make(&self, disk: &Path, existing: Existing, seed: Option<u64>) -> Result<(), FileError> {
        let (seed, chunks) = (seed.unwrap_or_else(another_seed), self.chunks_per_pu()?);
        new_file::make(disk, existing, |temporary| {
            let device = self.flash.create(temporary, chunks, seed).map_err(|error| device_error(&error))?;
            Files::format(device, self.config(seed), self.placement, Pace::Virtual).and_then(Files::close).map(drop)
        })
    }

    /// Connects to the server of the drive; nothing if nobody is there.
    ///
    /// # Errors
    /// If the server turns the client away.
    pub fn connect(&self) -> Result<Option<Client>, FileError> {
        let Some(server) = self.server.clone() else { return Ok(None) };
        let (name, reached) = (written(&server), server.clone());
        match Client::connect(name, Box::new(move || reach(&reached))) {
            // A server whose drive has no power is there, and the drive is its own.
            Err(FileError::Io(_)) if reach(&server).is_err() => Ok(None),
            connected => connected.map(Some),
        }
    }

    /// Opens a device that the drive is on, after it lost its power, with the clock that it had.
    ///
    /// # Errors
    /// If it cannot be trusted.
    pub fn reopen(&self, device: EmulatedDevice, pace: Pace) -> Result<TableFiles, FileError> {
        Files::open(device, self.config(0), self.placement, Access::ReadWrite, pace)
    }

    /// Opens the drive, or makes one in memory.
    ///
    /// # Errors
    /// If it is not there, in use, of another kind, or cannot be trusted.
    pub fn open(&self, access: Access) -> Result<TableFiles, FileError> {
        let (pace, timing) = self.flash.pace();
        let Some(disk) = self.flash.disk() else {
            let (seed, chunks) = (another_seed(), self.chunks_per_pu()?);
            let device = self.flash.in_memory(chunks, timing, seed).map_err(|error| device_error(&error))?;
            return Files::format(device, self.config(seed), self.placement, pace);
        };
        placed(disk)?;
        let device = self.flash.open(disk, access, timing).map_err(|error| device_error(&error))?;
        let files = Files::open(device, self.config(0), self.placement, access, pace)
            .map_err(|error| error.of(&disk.display().to_string()))?;
        if matches!(pace, Pace::Wall(_)) && access != Access::Inspect {
            let bell = files.bell();
            let synced = files.with_drive(|drive| drive.media_mut().sync_beside(move || bell.ring()));
            synced.map_err(|error| device_error(&error.into()))?;
        }
        Ok(files)
    }
}

/// Whether a drive that is to be opened has been made.
///
/// # Errors
/// If it has not.
pub fn placed(disk: &Path) -> Result<(), FileError> {
    if disk.exists() {
        return Ok(());
    }
    let disk = disk.display();
    Err(FileError::NotFound(format!(
        "{disk}: make it first, with `openftl create {disk}` and the drive description as --drive"
    )))
}

/// Opens the table drive that is stored in `disk` to look at it, whatever it was described as.
///
/// # Errors
/// If it is not there, in use, of another kind, or cannot be trusted.
pub fn look_at(disk: &Path) -> Result<TableFiles, FileError> {
    let device = flash::open(disk, Access::Inspect, MediaTiming::Instant).map_err(|error| device_error(&error))?;
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    Files::open(device, config, TablePlacement::default(), Access::Inspect, Pace::wall())
        .map_err(|error| error.of(&disk.display().to_string()))
}

impl From<NewFileError> for FileError {
    fn from(error: NewFileError) -> FileError {
        FileError::Io(error.to_string())
    }
}

/// What is wrong with a file that somebody wrote, and its fix, in one line.
#[must_use]
pub fn invalid_as_said(failure: &Failure) -> FileError {
    FileError::Invalid(match failure.what_to_do() {
        Some(fix) => format!("{}; {fix}", failure.what()),
        None => failure.what().to_owned(),
    })
}

/// Where a table drive is served.
fn endpoint(text: &str) -> Result<Endpoint, FileError> {
    match text.parse() {
        Ok(endpoint @ Endpoint::Unix(_)) => Ok(endpoint),
        Ok(endpoint @ Endpoint::Tcp(_)) if endpoint.is_local() => Ok(endpoint),
        Ok(Endpoint::Tcp(_)) => Err(FileError::Invalid(format!(
            "host.files = {text:?}: other machines could reach it, and there are no passwords; choose 127.0.0.1 or a Unix socket"
        ))),
        Err(error) => Err(FileError::Invalid(format!("host.files = {text:?}: {error}"))),
    }
}

fn reach(server: &Endpoint) -> io::Result<Stream> {
    match server {
        Endpoint::Unix(path) => Stream::unix(path),
        Endpoint::Tcp(address) => Stream::tcp(*address),
    }
}

/// As a drive description has it.
#[must_use]
pub fn written(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
        Endpoint::Tcp(address) => address.to_string(),
    }
}

/// What a device that cannot be opened or changed is for those who use its files.
#[must_use]
pub fn device_error(error: &DeviceError) -> FileError {
    let text = error.to_string();
    match error {
        DeviceError::Store(StoreError::Locked { .. }) => FileError::Busy(text),
        DeviceError::Store(StoreError::NotADrive { .. } | StoreError::NewerVersion { .. })
        | DeviceError::Profile(_) => FileError::Invalid(text),
        DeviceError::Store(_) => FileError::Io(text),
    }
}
