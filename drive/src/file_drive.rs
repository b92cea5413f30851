//! A drive that has files, on tables or on zones: from its description, or as it is stored.

use crate::description::{DriveDescription, FtlKind};
use crate::flash::{self, Flash, HOST_FRAMES};
use crate::small_file::is_stored_drive;
use crate::table_drive::{TableDrive, TableVolume, device_error, invalid_as_said, look_at, placed};
use openftl_blocks::{DriveKind, kind_on};
use openftl_core::{FrameForm, Time};
use openftl_files::{FileError, Pace, PaceClock, Volume, ZoneFiles};
use openftl_media::{Durability, EmulatedDevice, Timing as MediaTiming};
use openftl_parts::{Access, Config};
use std::path::Path;

/// What a drive description says of a drive whose files are on zones. How wide these are is found on its media.
#[derive(Clone, Debug)]
pub struct ZoneFileDrive {
    flash: Flash,
}

/// A drive that has files.
#[derive(Clone, Debug)]
pub enum FileDrive {
    /// On tables, and a log area.
    Tables(TableDrive),
    /// On zones.
    Zones(ZoneFileDrive),
}

impl FileDrive {
    /// Reads a drive description.
    ///
    /// # Errors
    /// If it cannot be read or understood, or is of another kind of drive.
    pub fn read(path: &Path) -> Result<FileDrive, FileError> {
        let file = DriveDescription::read(path).map_err(|failure| invalid_as_said(&failure))?;
        let drive = match file.ftl.kind {
            Some(FtlKind::Zones) => ZoneFileDrive::of(&file).map(FileDrive::Zones),
            Some(FtlKind::Tables) => TableDrive::of(&file).map(FileDrive::Tables),
            _ => Err(FileError::Invalid(
                "ftl.kind is neither \"tables\" nor \"zones\": only those have files; write one of them in [ftl]"
                    .to_owned(),
            )),
        };
        drive.map_err(|error| error.of(&path.display().to_string()))
    }

    /// The file that the flash is kept in; none: it is in memory, and new each time.
    #[must_use]
    pub fn disk(&self) -> Option<&Path> {
        match self {
            FileDrive::Tables(drive) => drive.disk(),
            FileDrive::Zones(drive) => drive.flash.disk(),
        }
    }

    /// Connects to the server of the drive, or opens it here where nobody serves it.
    ///
    /// # Errors
    /// See [`TableDrive::open_or_connect`].
    pub fn open_or_connect(&self, access: Access) -> Result<TableVolume, FileError> {
        match self {
            FileDrive::Tables(drive) => drive.open_or_connect(access),
            FileDrive::Zones(drive) => drive.open(access).map(Volume::Zoned),
        }
    }
}

impl ZoneFileDrive {
    /// What `file` says.
    ///
    /// # Errors
    /// If it is of another kind of drive, or says what files on zones cannot be.
    pub fn of(file: &DriveDescription) -> Result<ZoneFileDrive, FileError> {
        let invalid = |reason: &str| Err(FileError::Invalid(reason.to_owned()));
        if file.ftl.kind != Some(FtlKind::Zones) {
            return invalid("ftl.kind is not \"zones\"");
        }
        if file.host.files.is_some() {
            return invalid("host.files: only a table drive is served to several processes; leave it away");
        }
        if !file.namespaces.is_empty() {
            return invalid("[[namespace]]: a drive with files cannot be divided; leave it away");
        }
        let flash = Flash::of(file, "files").map_err(|failure| invalid_as_said(&failure))?;
        if flash.disk().is_none() {
            return invalid(
                "media.store: files on zones are on a drive that was made before, with `openftl create`; write store = \"file\" and its path",
            );
        }
        Ok(ZoneFileDrive { flash })
    }

    /// Opens the drive. One that was just made has no files.
    ///
    /// # Errors
    /// If it is not there, in use, of another kind, has something else in its zones, or cannot be trusted.
    pub fn open(&self, access: Access) -> Result<ZoneFiles<EmulatedDevice>, FileError> {
        let disk = self.flash.disk().expect("it was looked at");
        let (pace, timing) = self.flash.pace();
        placed(disk)?;
        let device = self.flash.open(disk, access, timing).map_err(|error| device_error(&error))?;
        open_on(device, access, pace).map_err(|error| error.of(&disk.display().to_string()))
    }
}

fn open_on(device: EmulatedDevice, access: Access, pace: Pace) -> Result<ZoneFiles<EmulatedDevice>, FileError> {
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    let files = ZoneFiles::open(device, config, access, pace)?;
    if matches!(pace, Pace::Wall(_)) && access != Access::Inspect {
        let bell = files.bell();
        let synced = files.with_drive(|drive| drive.media_mut().sync_beside(move || bell.ring()));
        synced.map_err(|error| device_error(&error.into()))?;
    }
    Ok(files)
}

/// Opens what `path` names, a drive description or a drive that is stored there, which is on flash that takes no time then.
///
/// # Errors
/// If it is no drive with files, in use, or cannot be trusted.
pub fn open(path: &Path, access: Access) -> Result<TableVolume, FileError> {
    if !is_stored_drive(path) {
        return FileDrive::read(path)?.open_or_connect(access);
    }
    let named = |error: FileError| error.of(&path.display().to_string());
    let mut device = flash::open(path, access, MediaTiming::Instant).map_err(|error| named(device_error(&error)))?;
    let mut clock = PaceClock { pace: Pace::wall(), now: Time::ZERO };
    match kind_on(&mut device, &mut clock) {
        Ok(DriveKind::Zones | DriveKind::Segments) => {
            if access != Access::Inspect {
                // What is synced survives a crash of the machine, whatever the drive is named by.
                let kept = device.set_durability(Durability::Machine);
                kept.map_err(|error| named(device_error(&error.into())))?;
            }
            open_on(device, access, Pace::wall()).map(Volume::Zoned).map_err(named)
        }
        Ok(DriveKind::Tables) if access != Access::Inspect => Err(named(FileError::Invalid(
            "a table drive that is used, and not only looked at, is named by its description (TOML), which says where tables go".to_owned(),
        ))),
        // Who opens it says what is wrong with it.
        _ => {
            drop(device);
            look_at(path).map(Volume::Here)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_files::FileKind;
    use openftl_media::Profile;
    use openftl_zones::{Face, Ftl, Limits, ZoneConfig, ZoneFtl};

    #[test]
    fn descriptions_that_cannot_have_files_are_refused_with_the_field() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |text: &str, said: &str| {
            let path = folder.path().join("drive.toml");
            std::fs::write(&path, text).unwrap();
            let error = open(&path, Access::ReadWrite).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        let of_zones = "[ftl]\nkind = \"zones\"\n";
        refused("[ftl]\nkind = \"pages\"\n", "neither \"tables\" nor \"zones\"");
        refused(of_zones, "media.store: files on zones");
        let stored = "[media]\nstore = \"file\"\npath = \"none.oftl\"\n";
        refused(&format!("{stored}{of_zones}"), "none.oftl: make it first");
        refused(&format!("{stored}{of_zones}[host]\nfiles = \"unix:/tmp/x\"\n"), "host.files");
        refused(&format!("{stored}{of_zones}[[namespace]]\nname = \"x\"\nkind = \"block\"\n"), "[[namespace]]");
    }

    #[test]
    fn a_drive_of_segments_has_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let disk = made(&folder, Face::Segments);
        for access in [Access::ReadWrite, Access::Inspect] {
            let error = open(&disk, access).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("segments"), "{error}");
        }
    }

    /// A stored drive without files.
    fn made(folder: &tempfile::TempDir, face: Face) -> std::path::PathBuf {
        let disk = folder.path().join("zoned.oftl");
        let profile = Profile::builtin("tiny").unwrap();
        let device = EmulatedDevice::create(&disk, &profile, 64, MediaTiming::Instant, 1).unwrap();
        let limits = Limits { max_open: 4, max_active: 6 };
        let zones = ZoneConfig { face, width: 2, limits, zones: None, extension_bytes: 0, window_blocks: 0 };
        let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
        let drive = ZoneFtl::format(device, Config::default(), zones, &mut clock).unwrap();
        drop(drive.close(&mut clock).unwrap());
        disk
    }

    #[test]
    fn a_drive_of_zones_that_is_named_itself_has_files_and_is_looked_at_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let disk = made(&folder, Face::Zones);
        let volume = open(&disk, Access::ReadWrite).unwrap();
        let mut writer = volume.create("/log", FileKind::Log).unwrap();
        writer.append(b"here").unwrap();
        writer.close().unwrap();
        assert_eq!(volume.close(), Ok(true));
        let volume = open(&disk, Access::Inspect).unwrap();
        assert!(matches!(volume.delete("/log"), Err(FileError::ReadOnly(_))));
        let mut found = [0; 10];
        assert_eq!(volume.open_read("/log").unwrap().read(0, &mut found), Ok(4));
        assert_eq!(&found[..4], b"here");
    }
}
