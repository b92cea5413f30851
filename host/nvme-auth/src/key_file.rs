//! A file of secrets, one in each line: what one host knows.

use std::str::{FromStr, from_utf8};

use crate::interchange::SecretError;

/// Most secrets that a key file may hold.
pub const KEY_FILE_SECRETS_MAX: usize = 1024;

/// Why a file is no key file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyFileError {
    /// A line is no secret.
    #[error("line {line}: {error}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        error: SecretError,
    },
    /// A line is not even text.
    #[error("line {line} is not text; a key file has one secret in each line, and comments begin with #")]
    NotText {
        /// Counted from 1.
        line: usize,
    },
    /// Nothing in it.
    #[error("there is no secret in the file")]
    Empty,
    /// Too much in it.
    #[error("line {line}: a key file holds at most {KEY_FILE_SECRETS_MAX} secrets")]
    TooMany {
        /// The line with the first secret too many.
        line: usize,
    },
}

/// The secrets in the bytes of a key file: one in each line, with blanks around it or none. Empty lines, and lines that
/// begin with `#`, say nothing.
///
/// # Errors
/// The first line that holds something else.
pub fn read_key_file<K: FromStr<Err = SecretError>>(bytes: &[u8]) -> Result<Vec<K>, KeyFileError> {
    let mut secrets = Vec::new();
    for (line, text) in lines(bytes) {
        let text = text.ok_or(KeyFileError::NotText { line })?;
        if secrets.len() == KEY_FILE_SECRETS_MAX {
            return Err(KeyFileError::TooMany { line });
        }
        secrets.push(text.parse().map_err(|error| KeyFileError::Line { line, error })?);
    }
    if secrets.is_empty() { Err(KeyFileError::Empty) } else { Ok(secrets) }
}

/// The lines that say something, without the blanks around them, and their numbers; `None` where one is no text.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Option<&str>)> {
    let lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    lines
        .map(|(line, text)| (line, from_utf8(text).ok().map(str::trim)))
        .filter(|(_, text)| text.is_none_or(|text| !text.is_empty() && !text.starts_with('#')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::HashFunction;
    use crate::interchange::Form;
    use crate::secret::Secret;

    /// From nvme-cli's own documentation ("Authentication" in its wiki).
    const PLAIN: &str = "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:";
    const SHA_384: &str = "DHHC-1:02:d4gmzh5i0I3npDMWAmJX/nAvAw7ioKmS2w44ceutFeObYDFG/r6zOB3UW0FLzevsI7XDJg==:";

    #[test]
    fn key_files_hold_secrets_comments_and_nothing_else() {
        let file = format!("# for host a\n\n  {PLAIN}\r\n#{PLAIN}\n{SHA_384}");
        let secrets = read_key_file::<Secret>(file.as_bytes()).unwrap();
        assert_eq!(secrets.iter().map(Secret::transform).collect::<Vec<_>>(), [None, Some(HashFunction::Sha384)]);
        assert_eq!(read_key_file::<Secret>(b"").unwrap_err(), KeyFileError::Empty);
        assert_eq!(read_key_file::<Secret>(b"# nothing\n\n").unwrap_err(), KeyFileError::Empty);
        let error = read_key_file::<Secret>(format!("{PLAIN}\nDHHC-1:07:x:\n").as_bytes()).unwrap_err();
        assert_eq!(error, KeyFileError::Line { line: 2, error: SecretError::HashFunction(Form::Dhchap) });
        assert_eq!(read_key_file::<Secret>(b"#\n\xFF\xFE").unwrap_err(), KeyFileError::NotText { line: 2 });
        let many = format!("{PLAIN}\n").repeat(KEY_FILE_SECRETS_MAX + 1);
        assert_eq!(
            read_key_file::<Secret>(many.as_bytes()).unwrap_err(),
            KeyFileError::TooMany { line: KEY_FILE_SECRETS_MAX + 1 }
        );
    }
}
