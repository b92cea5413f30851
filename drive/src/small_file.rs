//! Files that people write: short, and read whole. A drive, or something without an end, is refused before it is read.

use openftl_core::units::ByteSize;
use openftl_media::store::format::MAGIC;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longer than anything that people write, and shorter than any drive.
const BYTES_MAX: u64 = 1 << 20;

/// Why a file cannot be what people wrote.
#[derive(Debug, thiserror::Error)]
pub enum SmallFileError {
    /// It cannot be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It begins as drives do.
    #[error("this is a drive")]
    Drive,
    /// It has no end, or one far away.
    #[error("it is longer than {}", ByteSize(BYTES_MAX))]
    TooLong,
    /// It has bytes that no text has.
    #[error("it is no text (UTF-8)")]
    NotText,
}

/// Whether `path` is a drive that is stored there, by its first bytes.
#[must_use]
pub fn is_stored_drive(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut start).is_ok() && start == MAGIC)
}

/// All bytes of a file.
///
/// # Errors
/// If it cannot be read, is a drive, or is longer than what people write.
pub fn read(path: &Path) -> Result<Vec<u8>, SmallFileError> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes {
        bytes if bytes.starts_with(&MAGIC) => Err(SmallFileError::Drive),
        bytes if bytes.len() as u64 > BYTES_MAX => Err(SmallFileError::TooLong),
        bytes => Ok(bytes),
    }
}

/// The text of a file.
///
/// # Errors
/// Those of [`read`], and if it is no text.
pub fn read_text(path: &Path) -> Result<String, SmallFileError> {
    String::from_utf8(read(path)?).map_err(|_| SmallFileError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wrote_is_refused_without_being_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let refused = |path: &Path| read_text(path).unwrap_err().to_string();
        let of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            refused(&path)
        };
        assert_eq!(of(&[&MAGIC[..], &[0; 9]].concat()), "this is a drive");
        assert_eq!(of(b"\xFF\xFE"), "it is no text (UTF-8)");
        let huge = File::create(&path).unwrap();
        huge.set_len(1 << 40).unwrap();
        for endless in [&path, Path::new("/dev/zero")] {
            assert_eq!(refused(endless), "it is longer than 1 MiB");
        }
        assert!(refused(folder.path()).contains("directory"));
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path).unwrap(), "text");
    }
}
