//! How a command fails: one readable report that names what was found and what to do, and an exit code.

use crate::new_file::NewFileError;
use openftl_files::FileError;
use openftl_media::{DeviceError, StoreError};
use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

/// What a command ends with if it does not end well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    kind: Kind,
    what: String,
    fix: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The thing itself failed: exit code 1.
    Failed,
    /// What was asked for cannot be: exit code 2.
    BadInput,
    /// A command that was run ended with this exit code.
    Command(u8),
}

impl Failure {
    /// The thing itself failed, or the drive is unsound.
    pub fn failed(what: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Failed, what: what.to_string(), fix: None }
    }

    /// A flag, a file or a name that cannot be used.
    pub fn bad_input(what: impl fmt::Display) -> Failure {
        Failure { kind: Kind::BadInput, what: what.to_string(), fix: None }
    }

    /// A command that was run failed; its exit code is told on.
    pub fn of_command(what: impl fmt::Display, code: i32) -> Failure {
        Failure { kind: Kind::Command(u8::try_from(code).unwrap_or(1)), what: what.to_string(), fix: None }
    }

    /// A message that says behind its last semicolon what to do.
    pub fn bad_input_with_fix(message: impl fmt::Display) -> Failure {
        let message = message.to_string();
        match message.rsplit_once("; ") {
            Some((what, fix)) => Failure::bad_input(what).fix(fix),
            None => Failure::bad_input(message),
        }
    }

    /// A device cannot be opened.
    pub fn of_device(error: &DeviceError) -> Failure {
        match error {
            DeviceError::Profile(error) | DeviceError::Store(StoreError::Profile(error)) => {
                Failure::bad_input(error).fix("correct the profile, or choose one that `openftl profiles` lists")
            }
            DeviceError::Store(error) => match error {
                StoreError::NotADrive { .. } => Failure::bad_input(error).fix("name a file made by `openftl create`"),
                StoreError::NewerVersion { .. } => {
                    Failure::bad_input(error).fix("use the version of openftl that made it, or a later one")
                }
                StoreError::OlderVersion { .. }
                | StoreError::OtherProfile { .. }
                | StoreError::ProfileTooLong { .. }
                | StoreError::Parts(_) => Failure::bad_input(error),
                StoreError::Locked { path } => {
                    Failure::failed(format_args!("{} is locked by another process", path.display())).fix(
                        "stop the one that serves it first; meanwhile `openftl inspect` shows what it holds, if it has a control socket",
                    )
                }
                StoreError::Io { source, .. } if source.kind() == ErrorKind::FileTooLarge => Failure::failed(error)
                    .fix("choose a smaller capacity, or a file system with room for longer files: those of ext4 end at 16 TiB"),
                _ => Failure::failed(error),
            },
        }
    }

    /// Adds what to do about it.
    pub fn fix(mut self, fix: impl fmt::Display) -> Failure {
        self.fix = Some(fix.to_string());
        self
    }

    /// Says what it is about.
    pub fn about(self, thing: impl fmt::Display) -> Failure {
        Failure { what: format!("{thing}: {}", self.what), ..self }
    }

    /// What was found.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    pub fn what_to_do(&self) -> Option<&str> {
        self.fix.as_deref()
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Failed => ExitCode::from(1),
            Kind::BadInput => ExitCode::from(2),
            Kind::Command(code) => ExitCode::from(code),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

impl From<NewFileError> for Failure {
    fn from(error: NewFileError) -> Failure {
        match error {
            NewFileError::File { .. } => Failure::failed(error),
            NewFileError::NoFolder { .. } | NewFileError::Folder { .. } => Failure::bad_input_with_fix(error),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        match error {
            FileError::NotFound(_) | FileError::Invalid(_) | FileError::NotSupported(_) | FileError::Exists(_) => {
                Failure::bad_input_with_fix(error)
            }
            _ => Failure::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_file_that_is_too_large_is_told_with_what_helps() {
        let io = |kind: ErrorKind| StoreError::Io { doing: "fill", path: PathBuf::from("x.oftl"), source: kind.into() };
        let fix = |kind| Failure::of_device(&DeviceError::Store(io(kind))).what_to_do().map(str::to_owned);
        assert!(fix(ErrorKind::FileTooLarge).is_some_and(|fix| fix.contains("smaller capacity")));
        assert_eq!(fix(ErrorKind::StorageFull), None);
    }
}
