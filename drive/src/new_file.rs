//! A file that takes its name only when it is whole: it is made under a temporary name in the same folder, synced, and renamed.
//!
//! | stopped | leaves |
//! |---|---|
//! | while it is made | `.NAME.PID.creating`, and no file of the name |
//! | before the rename is on the disk (a crash of the machine) | the same, or the whole file |
//!
//! The temporary name carries the id of the process that makes the file. A temporary file whose process has died is removed
//! when a file of the same name is made next.

use rustix::fs::{Access, CWD, RenameFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// How temporary names end.
const SUFFIX: &str = ".creating";

/// What happens to a file that already has the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// It stays, and making the new one fails.
    Keep,
    /// The new one replaces it.
    Replace,
}

/// A file that cannot be made, or not be given its name.
#[derive(Debug, thiserror::Error)]
pub enum NewFileError {
    /// There is no such folder.
    #[error("cannot create {}: there is no folder {}; make it first, or name another", path.display(), folder_of(path).display())]
    NoFolder {
        /// The name that it was to have.
        path: PathBuf,
    },
    /// The folder takes no files.
    #[error(
        "cannot create {}: nothing can be written in {} ({source}); name a folder of yours",
        path.display(),
        folder_of(path).display()
    )]
    Folder {
        /// The name that it was to have.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file was made, and could not be given its name.
    #[error("cannot create {}: {source}", path.display())]
    File {
        /// The name that it was to have.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Bytes on the disk of the file that this process is making under the name `path`.
#[must_use]
pub fn bytes_made(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let temporary = path.with_file_name(temporary_name(path, std::process::id()));
    temporary.symlink_metadata().map_or(0, |data| data.blocks() * 512)
}

/// Has `make` make a file, and gives it the name `path` once `make` has succeeded. A failure leaves nothing behind.
///
/// # Errors
/// Those of `make`; or if the file cannot be synced or renamed, or `path` exists and is to be kept.
pub fn make<T, E: From<NewFileError>>(
    path: &Path,
    existing: Existing,
    make: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, E> {
    let failed = |source: io::Error| E::from(NewFileError::File { path: path.to_owned(), source });
    if existing == Existing::Keep && path.symlink_metadata().is_ok() {
        return Err(failed(Errno::EXIST.into()));
    }
    expect_folder(path)?;
    remove_left_over(path);
    let temporary = Temporary(path.with_file_name(temporary_name(path, std::process::id())));
    let made = make(&temporary.0)?;
    temporary.publish(path, existing).map_err(failed)?;
    Ok(made)
}

/// Whether a file can be made in the folder of `path`.
fn expect_folder(path: &Path) -> Result<(), NewFileError> {
    let (folder, path) = (folder_of(path), path.to_owned());
    if !folder.is_dir() {
        return Err(NewFileError::NoFolder { path });
    }
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|source| NewFileError::Folder { path, source: source.into() })
}

/// The temporary file, removed unless it got its name.
struct Temporary(PathBuf);

impl Temporary {
    fn publish(&self, path: &Path, existing: Existing) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        match existing {
            Existing::Replace => std::fs::rename(&self.0, path)?,
            Existing::Keep => match rustix::fs::renameat_with(CWD, &self.0, CWD, path, RenameFlags::NOREPLACE) {
                // A file system that cannot refuse to replace: looked up instead.
                Err(Errno::INVAL | Errno::NOSYS) if !path.exists() => std::fs::rename(&self.0, path)?,
                Err(Errno::INVAL | Errno::NOSYS) => return Err(Errno::EXIST.into()),
                renamed => renamed?,
            },
        }
        File::open(folder_of(path))?.sync_all()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn temporary_name(path: &Path, process: u32) -> String {
    format!(".{}.{process}{SUFFIX}", name_of(path))
}

/// Removes the temporary files of `path` whose processes have died. One that cannot be removed hinders nobody.
fn remove_left_over(path: &Path) {
    let prefix = format!(".{}.", name_of(path));
    let Ok(entries) = folder_of(path).read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.strip_suffix(SUFFIX)?.parse().ok());
        if process.and_then(Pid::from_raw).is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Refused(String);

    impl From<NewFileError> for Refused {
        fn from(error: NewFileError) -> Refused {
            Refused(error.to_string())
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn write(text: &'static str) -> impl FnOnce(&Path) -> Result<(), Refused> {
        move |path| std::fs::write(path, text).map_err(|error| Refused(error.to_string()))
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.oftl");
        make(&path, Existing::Keep, |temporary| {
            std::fs::write(temporary, "half").unwrap();
            assert!(!path.exists());
            let name = format!(".disk.oftl.{}.creating", std::process::id());
            assert_eq!(names(folder.path()), [name]);
            write("whole")(temporary)
        })
        .unwrap();
        assert_eq!(names(folder.path()), ["disk.oftl"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.oftl");
        let full = Refused("no space".to_owned());
        let made = make(&path, Existing::Keep, |temporary| {
            write("half")(temporary)?;
            Err::<(), _>(Refused("no space".to_owned()))
        });
        assert_eq!(made, Err(full));
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named_and_nothing_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/disk.oftl");
        let refused =
            make(&path, Existing::Keep, |_| -> Result<(), Refused> { panic!("it is not tried") }).unwrap_err();
        let none = folder.path().join("none");
        assert!(refused.0.ends_with(&format!("there is no folder {}; make it first, or name another", none.display())));
    }

    #[test]
    fn a_name_that_is_taken_is_kept_also_if_it_is_taken_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.oftl");
        let taken_meanwhile = make(&path, Existing::Keep, |temporary| {
            std::fs::write(&path, "precious").unwrap();
            write("new")(temporary)
        });
        let taken_before = make(&path, Existing::Keep, |_| -> Result<(), Refused> { panic!("it is not tried") });
        for refused in [taken_meanwhile, taken_before] {
            assert!(refused.unwrap_err().0.contains("disk.oftl: File exists"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
            assert_eq!(names(folder.path()), ["disk.oftl"]);
        }
        make(&path, Existing::Replace, write("new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_a_living_one_makes_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.oftl");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let living = std::os::unix::process::parent_id();
        for process in [dead, living] {
            std::fs::write(folder.path().join(temporary_name(&path, process)), "half").unwrap();
        }
        let other = folder.path().join(temporary_name(&folder.path().join("other.oftl"), dead));
        std::fs::write(&other, "of another name").unwrap();
        make(&path, Existing::Keep, write("whole")).unwrap();
        let mut expected = vec![temporary_name(&path, living), name_of(&other), "disk.oftl".to_owned()];
        expected.sort();
        assert_eq!(names(folder.path()), expected);
    }
}
