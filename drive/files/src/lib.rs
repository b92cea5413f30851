//! A drive that has files, on tables, on zones or of an ALFS: from its description, or as it is stored.
//!
//! What is on media decides which files a drive of zones or segments has. Where nothing is yet, segments get an ALFS, and zones a catalog.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

use openftl_blocks::{DriveKind, kind_on};
use openftl_core::{FrameForm, Time};
use openftl_drive::description::{DriveDescription, FtlKind, another_seed};
use openftl_drive::flash::{self, Flash, HOST_FRAMES};
use openftl_drive::small_file::is_stored_drive;
use openftl_drive::table_drive::{TableDrive, device_error, invalid_as_said, look_at, placed, written};
use openftl_files::{FileError, Pace, PaceClock};
use openftl_media::{Durability, EmulatedDevice, Timing as MediaTiming};
use openftl_parts::{Access, Config};
use openftl_volumes::Volume;
use std::path::Path;

/// The files of a drive whose flash is emulated, or of one that a server has open.
pub type DriveFiles = Volume<EmulatedDevice>;

/// What a drive description says of a drive of zones or segments. How wide these are is found on its media.
#[derive(Clone, Debug)]
pub struct ZoneFileDrive {
    flash: Flash,
}

/// A drive that has files.
#[derive(Clone, Debug)]
pub enum FileDrive {
    /// On tables, and a log area.
    Tables(TableDrive),
    /// On zones, or of an ALFS.
    Zones(ZoneFileDrive),
}

impl FileDrive {
    /// Reads a drive description.
    ///
    /// # Errors
    /// If it cannot be read or understood, or is of another kind of drive.
    pub fn read(path: &Path) -> Result<FileDrive, FileError> {
        let file = DriveDescription::read_alone(path).map_err(|failure| invalid_as_said(&failure))?;
        let drive = match file.ftl.kind {
            Some(FtlKind::Zones | FtlKind::Segments) => ZoneFileDrive::of(&file).map(FileDrive::Zones),
            Some(FtlKind::Tables) => TableDrive::of(&file).map(FileDrive::Tables),
            _ => Err(FileError::Invalid(
                "ftl.kind is neither \"tables\" nor \"zones\" nor \"segments\": only those have files; write one of them in [ftl]"
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
    /// If it is not there, in use, of another kind, or cannot be trusted; if the server turns the client away; or if another process has the drive
    /// open and does not serve it.
    pub fn open_or_connect(&self, access: Access) -> Result<DriveFiles, FileError> {
        match self {
            FileDrive::Tables(drive) => open_tables(drive, access),
            FileDrive::Zones(drive) => drive.open(access),
        }
    }
}

fn open_tables(drive: &TableDrive, access: Access) -> Result<DriveFiles, FileError> {
    if let Some(client) = drive.connect()? {
        return Ok(Volume::Served(client));
    }
    drive.open(access).map(Volume::Here).map_err(|error| match (error, drive.server()) {
        (FileError::Busy(text), Some(server)) => {
            let server = written(server);
            FileError::Busy(format!("{text}, and it is not served: nobody listens at {server}; run `openftl serve`"))
        }
        (FileError::Busy(text), None) => FileError::Busy(format!(
            "{text}. It is not served: for several processes write files = \"unix:/run/lsm.sock\" in [host] of the drive description, \
             and run `openftl serve`"
        )),
        (error, _) => error,
    })
}

impl ZoneFileDrive {
    /// What `file` says.
    ///
    /// # Errors
    /// If it is of another kind of drive, or says what such files cannot be.
    pub fn of(file: &DriveDescription) -> Result<ZoneFileDrive, FileError> {
        let invalid = |reason: &str| Err(FileError::Invalid(reason.to_owned()));
        if !matches!(file.ftl.kind, Some(FtlKind::Zones | FtlKind::Segments)) {
            return invalid("ftl.kind is neither \"zones\" nor \"segments\"; write one of them in [ftl]");
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
                "media.store: files on zones or segments are on a drive that was made before, with `openftl create`; write store = \"file\" and its path",
            );
        }
        Ok(ZoneFileDrive { flash })
    }

    /// Opens the drive. One that was just made has no files.
    ///
    /// # Errors
    /// If it is not there, in use, of another kind, has something else in its zones, or cannot be trusted.
    pub fn open(&self, access: Access) -> Result<DriveFiles, FileError> {
        let disk = self.flash.disk().expect("it was looked at");
        let (pace, timing) = self.flash.pace();
        placed(disk)?;
        let device = self.flash.open(disk, access, timing).map_err(|error| device_error(&error))?;
        open_on(device, access, pace).map_err(|error| error.of(&disk.display().to_string()))
    }
}

fn open_on(device: EmulatedDevice, access: Access, pace: Pace) -> Result<DriveFiles, FileError> {
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    let volume = Volume::on_zones(device, config, access, pace, another_seed())?;
    if matches!(pace, Pace::Virtual) || access == Access::Inspect {
        return Ok(volume);
    }
    let synced = match &volume {
        Volume::Zoned(files) => {
            let bell = files.bell();
            files.with_drive(|drive| drive.media_mut().sync_beside(move || bell.ring()))
        }
        Volume::Alfs(files) => {
            files.help()?;
            let alarm = files.alarm();
            files.with_drive(|drive| drive.media_mut().sync_beside(move || alarm.ring()))
        }
        Volume::Here(_) | Volume::Served(_) => Ok(()),
    };
    synced.map_err(|error| device_error(&error.into()))?;
    Ok(volume)
}

/// Opens what `path` names, a drive description or a drive that is stored there, which is on flash that takes no time then.
///
/// # Errors
/// If it is no drive with files, in use, or cannot be trusted.
pub fn open(path: &Path, access: Access) -> Result<DriveFiles, FileError> {
    if !is_stored_drive(path) {
        return FileDrive::read(path)?.open_or_connect(access);
    }
    let named = |error: FileError| error.of(&path.display().to_string());
    // Says itself which file it is.
    let mut device = flash::open(path, access, MediaTiming::Instant).map_err(|error| device_error(&error))?;
    let mut clock = PaceClock { pace: Pace::wall(), now: Time::ZERO };
    match kind_on(&mut device, &mut clock) {
        Ok(DriveKind::Zones | DriveKind::Segments) => {
            if access != Access::Inspect {
                // What is synced survives a crash of the machine, whatever the drive is named by.
                let kept = device.set_durability(Durability::Machine);
                kept.map_err(|error| named(device_error(&error.into())))?;
            }
            open_on(device, access, Pace::wall()).map_err(named)
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
    use openftl_alfs::FileTime;
    use openftl_core::Clock;
    use openftl_files::FileKind;
    use openftl_media::{Media, Profile};
    use openftl_parts::target::{BlockTarget, Request, Target};
    use openftl_parts::words::Handle;
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
        refused("[ftl]\nkind = \"pages\"\n", "neither \"tables\" nor \"zones\" nor \"segments\"");
        refused(of_zones, "media.store: files on zones");
        refused("[ftl]\nkind = \"segments\"\n", "media.store: files on zones or segments");
        let stored = "[media]\nstore = \"file\"\npath = \"none.oftl\"\n";
        refused(&format!("{stored}{of_zones}"), "none.oftl: make it first");
        refused(&format!("{stored}{of_zones}[host]\nfiles = \"unix:/tmp/x\"\n"), "host.files");
        refused(&format!("{stored}{of_zones}[[namespace]]\nname = \"x\"\nkind = \"block\"\n"), "[[namespace]]");
    }

    #[test]
    fn a_drive_of_segments_gets_a_file_system_and_zones_that_have_one_keep_it() {
        let folder = tempfile::tempdir().unwrap();
        for face in [Face::Segments, Face::Zones] {
            let disk = made(&folder, face);
            if face == Face::Segments {
                let error = open(&disk, Access::Inspect).map(|_| ()).unwrap_err().to_string();
                assert!(error.contains("there is no file system on the drive yet"), "{error}");
            } else {
                // As `openftl alfs mkfs` does.
                let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
                let drive = openftl_drive::segment_drive::open_stored(&disk, Access::ReadWrite, &mut clock).unwrap();
                let made = openftl_alfs::Volume::format(drive, 7, (0, 0), FileTime::default(), &mut clock).unwrap();
                let drive = made.unmount(&mut clock).map_err(|(_, error)| error).unwrap();
                drop(drive.close(&mut clock).unwrap());
            }
            let volume = open(&disk, Access::ReadWrite).unwrap();
            assert!(matches!(volume, Volume::Alfs(_)), "{face:?}");
            let mut writer = volume.create("/log", FileKind::Log).unwrap();
            writer.append(b"here").unwrap();
            writer.close().unwrap();
            assert_eq!(volume.close(), Ok(true));
            let volume = open(&disk, Access::Inspect).unwrap();
            assert!(matches!(volume.delete("/log"), Err(FileError::ReadOnly(_))));
            assert!(matches!(volume.create("/other", FileKind::Table).map(|_| ()), Err(FileError::ReadOnly(_))));
            let mut found = [0; 10];
            assert_eq!(volume.open_read("/log").unwrap().read(0, &mut found), Ok(4));
            std::fs::remove_file(&disk).unwrap();
        }
    }

    #[test]
    fn segments_that_somebody_else_has_written_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let disk = made(&folder, Face::Segments);
        let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
        let mut drive = openftl_drive::segment_drive::open_stored(&disk, Access::ReadWrite, &mut clock).unwrap();
        let frame = drive.frames_mut().acquire(FrameForm::Bytes).unwrap();
        drive.frames_mut().bytes_mut(frame).fill(7);
        let (durability, handle) = (openftl_parts::Durability::Volatile, Handle::NONE);
        drive.submit(clock.now(), 1, Request::Write { first: 0, frames: &[frame], durability, handle }).unwrap();
        drop(drive.close(&mut clock).unwrap());
        for access in [Access::ReadWrite, Access::Inspect] {
            let error = open(&disk, access).map(|_| ()).unwrap_err();
            assert!(
                matches!(&error, FileError::Invalid(said) if said.contains("somebody else has written")),
                "{error}"
            );
        }
    }

    /// A stored drive without files.
    fn made(folder: &tempfile::TempDir, face: Face) -> std::path::PathBuf {
        let disk = folder.path().join("zoned.oftl");
        let profile = Profile::builtin("tiny").unwrap();
        let device = EmulatedDevice::create(&disk, &profile, 80, MediaTiming::Instant, 1).unwrap();
        let limits = Limits { max_open: 8, max_active: 8 };
        let zones = ZoneConfig { face, width: 1, limits, zones: None, extension_bytes: 0, window_blocks: 0 };
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

    /// Found by the explorer: where blocks cannot be read until more is written behind them, what had crashed could be used, and not looked at.
    #[test]
    fn a_drive_that_crashed_is_looked_at_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        for face in [Face::Zones, Face::Segments] {
            let disk = made(&folder, face);
            let volume = open(&disk, Access::ReadWrite).unwrap();
            for number in 0..5 {
                let mut writer = volume.create(&format!("/{number}.log"), FileKind::Log).unwrap();
                writer.append(&[number; 3000]).unwrap();
                writer.sync().unwrap();
            }
            let device = match volume {
                Volume::Zoned(files) => files.crash(),
                Volume::Alfs(files) => files.crash(),
                Volume::Here(_) | Volume::Served(_) => unreachable!("it has zones"),
            };
            let device = device.expect("nobody uses it");
            assert!(device.geometry().mw_cunits > 0);
            drop(device);
            let before = std::fs::read(&disk).unwrap();
            let volume = open(&disk, Access::Inspect).unwrap_or_else(|error| panic!("{face:?}: {error}"));
            for number in 0..5 {
                let mut found = [0xFF; 4000];
                let file = volume.open_read(&format!("/{number}.log")).unwrap();
                assert_eq!(file.read(0, &mut found), Ok(3000), "{face:?}");
                assert!(found[..3000].iter().all(|byte| *byte == number), "{face:?}");
            }
            drop(volume);
            assert!(std::fs::read(&disk).unwrap() == before, "{face:?}: it was written to");
            std::fs::remove_file(&disk).unwrap();
        }
    }
}
