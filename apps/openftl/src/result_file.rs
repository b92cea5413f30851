//! Files that results are written to.

use crate::failure::Failure;
use std::path::Path;

/// A file that cannot be written is known before an hour of work.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    std::fs::File::options().append(true).create(true).open(path).map(drop).map_err(|error| {
        Failure::bad_input(format_args!("{}: {error}", path.display())).fix("name a file that can be written")
    })
}

/// Writes a result.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))
}
