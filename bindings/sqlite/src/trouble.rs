//! Why a call of SQLite fails: the result code that it gets, and a line for its log.

use crate::ffi;
use openftl_drive::failure::Failure;
use openftl_pages::StoreError;
use std::ffi::c_int;
use std::io;

/// See the module.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The result code.
    pub code: c_int,
    /// The line; empty: it is nothing out of the ordinary.
    pub message: String,
}

impl Trouble {
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
    pub fn reading(error: StoreError) -> Trouble {
        Trouble::new(ffi::IOERR_READ, error.to_string())
    }

    /// Why a store cannot be opened.
    pub fn opening(failure: &Failure) -> Trouble {
        let fix = failure.what_to_do().map(|fix| format!(" (fix: {fix})")).unwrap_or_default();
        Trouble::new(ffi::CANTOPEN, format!("{}{fix}", failure.what()))
    }
}

/// Why a batch is not committed.
impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        let code = match error {
            StoreError::NoSpace { .. } | StoreError::MapFull { .. } | StoreError::BatchTooLong { .. } => ffi::FULL,
            _ => ffi::IOERR_WRITE,
        };
        Trouble::new(code, error.to_string())
    }
}

/// What goes wrong with temporary files.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        let code = if error.kind() == io::ErrorKind::StorageFull { ffi::FULL } else { ffi::IOERR };
        Trouble::new(code, format!("a temporary file: {error}"))
    }
}
