//! What can go wrong with a file.

use openftl_dispatch::Stopped;
use openftl_parts::{IoError, OpenError};
use openftl_tables::TableError;
use openftl_zones::ZoneError;

/// Why something could not be done. Each has one fate: the caller is told, and the drive goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file or folder.
    #[error("{0}: no such file or folder")]
    NotFound(String),
    /// It is there already.
    #[error("{0}: is there already")]
    Exists(String),
    /// No room now.
    #[error("no space: {0}")]
    NoSpace(String),
    /// More than the drive could hold if it were empty.
    #[error("too large: {0}")]
    TooLarge(String),
    /// The medium lost data, or does not answer.
    #[error("{0}")]
    Io(String),
    /// What is on media does not verify.
    #[error("{0}")]
    Corruption(String),
    /// It is in use.
    #[error("{0}")]
    Busy(String),
    /// An argument is wrong.
    #[error("{0}")]
    Invalid(String),
    /// A table cannot do that.
    #[error("{0}")]
    NotSupported(String),
    /// The drive takes no writes.
    #[error("{0}")]
    ReadOnly(String),
}

impl FileError {
    /// Its status in the C interface.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            FileError::NotFound(_) => 1,
            FileError::Exists(_) => 2,
            FileError::NoSpace(_) => 3,
            FileError::TooLarge(_) => 4,
            FileError::Io(_) => 5,
            FileError::Corruption(_) => 6,
            FileError::Busy(_) => 7,
            FileError::Invalid(_) => 8,
            FileError::NotSupported(_) => 9,
            FileError::ReadOnly(_) => 10,
        }
    }

    /// The error with this status, of which `text` is what it says beside its kind.
    #[must_use]
    pub fn from_code(code: i32, text: String) -> Option<FileError> {
        Some(match code {
            1 => FileError::NotFound(text),
            2 => FileError::Exists(text),
            3 => FileError::NoSpace(text),
            4 => FileError::TooLarge(text),
            5 => FileError::Io(text),
            6 => FileError::Corruption(text),
            7 => FileError::Busy(text),
            8 => FileError::Invalid(text),
            9 => FileError::NotSupported(text),
            10 => FileError::ReadOnly(text),
            _ => return None,
        })
    }

    /// What it says beside its kind.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            FileError::NotFound(text)
            | FileError::Exists(text)
            | FileError::NoSpace(text)
            | FileError::TooLarge(text)
            | FileError::Io(text)
            | FileError::Corruption(text)
            | FileError::Busy(text)
            | FileError::Invalid(text)
            | FileError::NotSupported(text)
            | FileError::ReadOnly(text) => text,
        }
    }

    /// The same, said of `path`.
    #[must_use]
    pub fn of(self, path: &str) -> FileError {
        let with = |text: String| format!("{path}: {text}");
        match self {
            FileError::NoSpace(text) => FileError::NoSpace(with(text)),
            FileError::TooLarge(text) => FileError::TooLarge(with(text)),
            FileError::Io(text) => FileError::Io(with(text)),
            FileError::Corruption(text) => FileError::Corruption(with(text)),
            FileError::Invalid(text) => FileError::Invalid(with(text)),
            FileError::NotSupported(text) => FileError::NotSupported(with(text)),
            FileError::ReadOnly(text) => FileError::ReadOnly(with(text)),
            other => other,
        }
    }
}

impl From<Stopped> for FileError {
    fn from(stopped: Stopped) -> FileError {
        FileError::Io(stopped.to_string())
    }
}

impl From<TableError> for FileError {
    fn from(error: TableError) -> FileError {
        let text = error.to_string();
        match error {
            TableError::NoSpace | TableError::CatalogFull => FileError::NoSpace(text),
            TableError::TooManyWriters => FileError::Busy(text),
            TableError::NoteTooLong { .. } | TableError::OutOfRange { .. } => FileError::Invalid(text),
            TableError::ReadOnly(_) | TableError::Io(IoError::ReadOnly) => FileError::ReadOnly(text),
            TableError::Io(IoError::WrongBlock { .. }) => FileError::Corruption(text),
            TableError::Io(_) => FileError::Io(text),
        }
    }
}

impl From<ZoneError> for FileError {
    fn from(error: ZoneError) -> FileError {
        let text = error.to_string();
        match error {
            ZoneError::TooManyActive { .. } | ZoneError::TooManyOpen { .. } => FileError::Busy(text),
            ZoneError::DriveReadOnly(_) | ZoneError::Io(IoError::ReadOnly) => FileError::ReadOnly(text),
            ZoneError::Io(IoError::WrongBlock { .. }) => FileError::Corruption(text),
            _ => FileError::Io(text),
        }
    }
}

impl From<OpenError> for FileError {
    fn from(error: OpenError) -> FileError {
        let text = error.to_string();
        match error {
            OpenError::OtherKind { .. } | OpenError::OtherGeometry { .. } | OpenError::NotFormatted => {
                FileError::Invalid(text)
            }
            OpenError::Media(_) | OpenError::Stopped => FileError::Io(text),
            OpenError::Plan(_) | OpenError::Geometry(_) => FileError::Invalid(text),
            OpenError::Unwritable(_) => FileError::ReadOnly(text),
            _ => FileError::Corruption(text),
        }
    }
}
