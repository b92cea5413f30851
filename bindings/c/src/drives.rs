//! The drives that this process has open: each once, however often it is asked for.

use crate::Shared;
use openftl_core::Time;
use openftl_drive_files::DriveFiles;
use openftl_files::FileError;
use openftl_media::EmulatedDevice;
use openftl_parts::Access;
use openftl_volumes::Volume;
use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A path as C gives it.
pub type Path<'a> = &'a str;

/// What a URI begins with.
const SCHEME: &str = "openftl://";

static OPEN: Mutex<Option<HashMap<PathBuf, Shared>>> = Mutex::new(None);

/// `openftl_drive`: one use of an open drive.
pub struct Drive {
    file: PathBuf,
    files: Option<Shared>,
}

/// The file that a URI names.
pub fn drive_file(uri: &str) -> Result<PathBuf, FileError> {
    let Some(path) = uri.strip_prefix(SCHEME).filter(|path| !path.is_empty()) else {
        return Err(FileError::Invalid(format!(
            "the URI {uri:?} names no drive; write it like {SCHEME}/srv/lsm.toml, with the path of a drive description"
        )));
    };
    FilePath::new(path).canonicalize().map_err(|error| FileError::NotFound(format!("{path} ({error})")))
}

/// What is said to whoever closes a drive that is in use.
pub fn not_closed(file: &FilePath, users: &str) -> FileError {
    FileError::Busy(format!("{}: {users} are still open", file.display()))
}

impl Drive {
    /// Opens the drive of a URI, or takes part in it if this process has it open.
    pub fn open(uri: &str) -> Result<Drive, FileError> {
        let file = drive_file(uri)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let drives = open.get_or_insert_default();
        // What has lost its server is opened anew; who uses it still hears of it there.
        if let Some(files) = drives.get(&file).filter(|files| !is_broken(files)) {
            return Ok(Drive { files: Some(Arc::clone(files)), file });
        }
        let files = Arc::new(openftl_drive_files::open(&file, Access::ReadWrite)?);
        if let Some(text) = std::env::var_os(POWER_CUT_VARIABLE) {
            let cut = PowerCut::read(&text.to_string_lossy())?;
            match &*files {
                Volume::Here(files) => files.watch(Box::new(move |drive, now| cut.look(drive.media_mut(), now))),
                Volume::Zoned(files) => files.watch(Box::new(move |drive, now| cut.look(drive.media_mut(), now))),
                Volume::Alfs(files) => files.watch(Box::new(move |drive, now| cut.look(drive.media_mut(), now))),
                Volume::Served(_) => {
                    return Err(FileError::Invalid(format!(
                        "{POWER_CUT_VARIABLE}: a server has the drive; cut its power with `openftl ctl`"
                    )));
                }
            }
        }
        drives.insert(file.clone(), Arc::clone(&files));
        Ok(Drive { files: Some(files), file })
    }

    /// Its files.
    pub fn files(&self) -> &DriveFiles {
        self.files.as_ref().expect("a drive that is not closed")
    }

    /// Ends this use; the last one closes the drive.
    pub fn close(mut self) -> Result<(), FileError> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), FileError> {
        let Some(files) = self.files.take() else { return Ok(()) };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(drives) = open.as_mut() else { return Ok(()) };
        let is_kept = drives.get(&self.file).is_some_and(|kept| Arc::ptr_eq(kept, &files));
        // This use, and the table of open drives.
        if Arc::strong_count(&files) > 1 + usize::from(is_kept) {
            return Ok(());
        }
        if is_kept {
            drives.remove(&self.file);
        }
        keep_statistics(&files);
        let Some(files) = Arc::into_inner(files) else { return Ok(()) };
        match files.close()? {
            true => Ok(()),
            false => Err(not_closed(&self.file, "files of the drive")),
        }
    }
}

/// Names a file that gets the statistics of a drive, as JSON, when it is closed.
const STATISTICS_VARIABLE: &str = "OPENFTL_STATISTICS";

/// Cuts the power of the drive after so many commands of the device, and ends the process as if it were a computer that lost it too:
/// `10000`, or `10000,torn` for what is being programmed then to be left torn. What the next process finds on a drive in a file is what
/// the power cut left. For those who test what a database bears.
const POWER_CUT_VARIABLE: &str = "OPENFTL_POWER_CUT";

#[derive(Clone, Copy)]
struct PowerCut {
    commands: u64,
    torn: bool,
}

impl PowerCut {
    fn read(text: &str) -> Result<PowerCut, FileError> {
        let (count, torn) = text.split_once(',').map_or((text, false), |(count, how)| (count, how.trim() == "torn"));
        let commands = count.trim().parse().map_err(|_| {
            FileError::Invalid(format!(
                "{POWER_CUT_VARIABLE}={text}: give a number of commands of the device, like 10000 or 10000,torn"
            ))
        })?;
        Ok(PowerCut { commands, torn })
    }

    fn look(self, device: &mut EmulatedDevice, now: Time) {
        if device.statistics().commands >= self.commands {
            // Whatever became of it, the power is gone.
            let _ = device.power_cut(now, self.torn);
            std::process::abort();
        }
    }
}

/// Whether the server of a drive has gone.
fn is_broken(files: &DriveFiles) -> bool {
    matches!(files, Volume::Served(client) if client.is_broken())
}

fn keep_statistics(files: &DriveFiles) {
    let Some(path) = std::env::var_os(STATISTICS_VARIABLE) else { return };
    // Who asked for them sees that there are none.
    if let Ok(text) = files.statistics() {
        let _ = std::fs::write(path, text + "\n");
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // Who does not close it does not want to know.
        let _ = self.leave();
    }
}
