//! Why a call of SQLite fails: the result code that it gets, and a line for its log.

use crate::ffi;
use openftl_drive::failure::Failure;
use openftl_pages::{StoreError, StoreFailure};
use std::ffi::c_int;
use std::io;
use std::path::Path;

/// See the module.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The result code.
    pub code: c_int,
    /// The line; empty: it is nothing out of the ordinary.
    pub message: String,
}

impl Trouble {
    /// A result code, and the line for it.
    pub fn new(code: c_int, message: impl Into<String>) -> Trouble {
        Trouble { code, message: message.into() }
    }

    /// A result that SQLite expects now and then.
    pub fn ordinary(code: c_int) -> Trouble {
        Trouble { code, message: String::new() }
    }

    /// Bytes in the store that cannot be.
    pub fn damaged(message: impl Into<String>) -> Trouble {
        Trouble::new(ffi::IOERR_READ, message)
    }

    /// Why a read of the store fails.
    pub fn reading(failure: &StoreFailure) -> Trouble {
        Trouble::new(ffi::IOERR_READ, failure.to_string())
    }

    /// Why the file with the locks of a database fails.
    pub fn locking(code: c_int, folder: &Path, error: &io::Error) -> Trouble {
        Trouble::new(code, format!("the locks in {}: {error}", folder.display()))
    }

    /// Why a store cannot be opened.
    pub fn opening(failure: &Failure) -> Trouble {
        let fix = failure.what_to_do().map(|fix| format!(" (fix: {fix})")).unwrap_or_default();
        Trouble::new(ffi::CANTOPEN, format!("{}{fix}", failure.what()))
    }
}

/// Why a batch is not committed.
impl From<StoreFailure> for Trouble {
    fn from(failure: StoreFailure) -> Trouble {
        let code = match failure {
            StoreFailure::Refused(
                StoreError::NoSpace { .. } | StoreError::MapFull { .. } | StoreError::BatchTooLong { .. },
            ) => ffi::FULL,
            StoreFailure::Refused(_) | StoreFailure::Drive(_) | StoreFailure::Gone(_) => ffi::IOERR_WRITE,
        };
        Trouble::new(code, failure.to_string())
    }
}

/// What goes wrong with temporary files.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        let code = if error.kind() == io::ErrorKind::StorageFull { ffi::FULL } else { ffi::IOERR };
        Trouble::new(code, format!("a temporary file: {error}"))
    }
}
