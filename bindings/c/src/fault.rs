//! Why a call fails, as C learns of it: a status, and a line.

use openftl_drive::failure::Failure;
use openftl_files::FileError;
use openftl_pages::{StoreError, StoreFailure};
use std::ffi::c_int;

/// `OPENFTL_CONFLICT`: no file has it.
const CONFLICT: c_int = 11;

/// See the module.
pub struct Fault {
    /// The `openftl_status`.
    pub code: c_int,
    /// The line.
    pub text: String,
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Fault {
        Fault { code: error.code(), text: error.to_string() }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        let fix = failure.what_to_do().map(|fix| format!("; {fix}")).unwrap_or_default();
        let error = FileError::Invalid(String::new());
        Fault { code: error.code(), text: format!("{}{fix}", failure.what()) }
    }
}

impl From<StoreFailure> for Fault {
    fn from(failure: StoreFailure) -> Fault {
        let text = failure.to_string();
        let kind: fn(String) -> FileError = match failure {
            StoreFailure::Refused(StoreError::Condition { .. }) => return Fault { code: CONFLICT, text },
            StoreFailure::Refused(error) => match error {
                StoreError::NoPage { .. } => FileError::NotFound,
                StoreError::NoSpace { .. } | StoreError::MapFull { .. } => FileError::NoSpace,
                StoreError::BatchTooLong { .. } => FileError::TooLarge,
                StoreError::Unrecovered { .. } => FileError::Io,
                StoreError::SessionOpen | StoreError::TooManySessions { .. } | StoreError::Busy => FileError::Busy,
                StoreError::ReadOnly(_) | StoreError::Log(_) => FileError::ReadOnly,
                _ => FileError::Invalid,
            },
            StoreFailure::Drive(_) | StoreFailure::Gone(_) => FileError::Io,
        };
        Fault { code: kind(String::new()).code(), text }
    }
}
