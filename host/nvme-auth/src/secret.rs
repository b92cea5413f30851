//! Secrets, as administrators hand them out and nvme-cli writes them (8.3.4.5.8, "Secret representation").
//!
//! ```text
//! DHHC-1:01:base64(secret, CRC-32 of the secret):
//!         │          │        └ 4 bytes, little-endian
//!         │          └ 32, 48 or 64 bytes
//!         └ the hash function that makes a key of it: 00 none, 01 SHA-256, 02 SHA-384, 03 SHA-512
//! ```
//!
//! With a hash function, the key depends on whose it is (8.3.4.5.7). Without, the secret is the key. Any length goes with
//! any hash function; nvme-cli makes secrets as long as the hashes, and older Linux hosts want them so.

use std::fmt;
use std::str::{FromStr, from_utf8};

use base64ct::{Base64, Encoding};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::hash::{Digest, HashFunction};

/// How every secret begins.
const PREFIX: &str = "DHHC-1:";
/// Lengths that a secret may have, in bytes.
const LENGTHS: [usize; 3] = [32, 48, 64];
/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;

/// What host and controller both know. Forgotten when dropped; never part of a message, an error or `Debug`.
#[derive(Clone)]
pub struct Secret {
    transform: Option<HashFunction>,
    bytes: Zeroizing<Vec<u8>>,
}

/// Why a text is no secret. None of them tells what the text was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// It begins in another way.
    #[error("a secret begins with {PREFIX}, this text does not; `nvme gen-dhchap-key` makes one")]
    Prefix,
    /// The field after the prefix is not one of the four.
    #[error("the field after {PREFIX} is none of 00 (no hash function), 01 (SHA-256), 02 (SHA-384), 03 (SHA-512)")]
    HashFunction,
    /// No colon at the end.
    #[error("a secret ends with a colon, this text does not; was it cut off?")]
    End,
    /// Characters that base64 does not have, or padding that is missing.
    #[error("what stands between the last two colons is not base64; was a character lost or added?")]
    Base64,
    /// Another length.
    #[error("the secret has {found} bytes, where it must have 32, 48 or 64; `nvme gen-dhchap-key` makes one")]
    Length {
        /// Its bytes, without the checksum.
        found: usize,
    },
    /// The checksum is that of another secret.
    #[error("the checksum in the secret does not agree with it; it was mistyped or damaged, copy it again")]
    Checksum,
}

impl Secret {
    /// A new secret of `length` bytes: 32, 48 or 64. With a hash function, take the length of its hashes.
    pub fn generate(
        transform: Option<HashFunction>,
        length: usize,
        random: &mut impl CryptoRng,
    ) -> Result<Secret, SecretError> {
        check_length(length)?;
        let mut bytes = Zeroizing::new(vec![0; length]);
        random.fill_bytes(&mut bytes);
        Ok(Secret { transform, bytes })
    }

    /// The secret with these bytes: 32, 48 or 64.
    pub fn from_bytes(transform: Option<HashFunction>, bytes: &[u8]) -> Result<Secret, SecretError> {
        check_length(bytes.len())?;
        Ok(Secret { transform, bytes: Zeroizing::new(bytes.to_vec()) })
    }

    /// The secret that follows from this one for the host `nqn`, as nvme-cli derives those that it hands out: HMAC(secret,
    /// NQN ‖ "NVMe-over-Fabrics"), so that hosts have different ones. Without a hash function, the same.
    #[must_use]
    pub fn derived_for(&self, nqn: &str) -> Secret {
        Secret { transform: self.transform, bytes: Zeroizing::new(self.key(nqn).as_ref().to_vec()) }
    }

    /// The hash function that makes a key of it.
    #[must_use]
    pub fn transform(&self) -> Option<HashFunction> {
        self.transform
    }

    /// As nvme-cli takes it. The only way to see a secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut payload = Zeroizing::new(self.bytes.to_vec());
        payload.extend_from_slice(&checksum(&self.bytes));
        let encoded = Zeroizing::new(Base64::encode_string(&payload));
        let hash = self.transform.map_or(0, HashFunction::id);
        Zeroizing::new(format!("{PREFIX}{hash:02x}:{}:", encoded.as_str()))
    }

    /// The key of whoever is called `nqn`: HMAC(secret, NQN ‖ "NVMe-over-Fabrics") with the secret's hash function, or
    /// the secret.
    #[must_use]
    pub(crate) fn key(&self, nqn: &str) -> Key {
        match self.transform {
            Some(hash) => Key::Transformed(hash.hmac(&self.bytes, &[nqn.as_bytes(), b"NVMe-over-Fabrics"])),
            None => Key::Plain(self.bytes.clone()),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Secret, SecretError> {
        let (hash, encoded) =
            text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?.split_once(':').ok_or(SecretError::End)?;
        let transform = match hash {
            "00" => None,
            "01" => Some(HashFunction::Sha256),
            "02" => Some(HashFunction::Sha384),
            "03" => Some(HashFunction::Sha512),
            _ => return Err(SecretError::HashFunction),
        };
        let encoded = encoded.strip_suffix(':').ok_or(SecretError::End)?;
        let mut bytes = Zeroizing::new(Base64::decode_vec(encoded).map_err(|_| SecretError::Base64)?);
        let length = bytes.len().saturating_sub(CHECKSUM_BYTES);
        check_length(length)?;
        if checksum(&bytes[..length]) != bytes[length..] {
            return Err(SecretError::Checksum);
        }
        bytes.truncate(length);
        Ok(Secret { transform, bytes })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("transform", &self.transform).finish_non_exhaustive()
    }
}

fn check_length(found: usize) -> Result<(), SecretError> {
    if LENGTHS.contains(&found) { Ok(()) } else { Err(SecretError::Length { found }) }
}

fn checksum(secret: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc_fast::crc32_iso_hdlc(secret).to_le_bytes()
}

/// What responses are computed with.
#[derive(Clone)]
pub(crate) enum Key {
    Transformed(Digest),
    Plain(Zeroizing<Vec<u8>>),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Key::Transformed(digest) => digest.as_ref(),
            Key::Plain(bytes) => bytes,
        }
    }
}

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
    #[error("there is no secret in the file; `nvme gen-dhchap-key` makes one")]
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
pub fn read_key_file(bytes: &[u8]) -> Result<Vec<Secret>, KeyFileError> {
    let mut secrets = Vec::new();
    for (text, line) in bytes.split(|&byte| byte == b'\n').zip(1..) {
        let text = from_utf8(text).map_err(|_| KeyFileError::NotText { line })?.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if secrets.len() == KEY_FILE_SECRETS_MAX {
            return Err(KeyFileError::TooMany { line });
        }
        secrets.push(text.parse().map_err(|error| KeyFileError::Line { line, error })?);
    }
    if secrets.is_empty() { Err(KeyFileError::Empty) } else { Ok(secrets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From nvme-cli's own documentation ("Authentication" in its wiki).
    const PLAIN: &str = "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:";
    const SHA_384: &str = "DHHC-1:02:d4gmzh5i0I3npDMWAmJX/nAvAw7ioKmS2w44ceutFeObYDFG/r6zOB3UW0FLzevsI7XDJg==:";

    fn error(text: &str) -> SecretError {
        text.parse::<Secret>().expect_err(text)
    }

    #[test]
    fn secrets_of_nvme_cli_are_read_and_written_back() {
        for (text, transform, length) in [(PLAIN, None, 32), (SHA_384, Some(HashFunction::Sha384), 48)] {
            let secret: Secret = text.parse().unwrap();
            assert_eq!((secret.transform(), secret.bytes.len()), (transform, length));
            assert_eq!(secret.to_text().as_str(), text);
        }
    }

    #[test]
    fn each_way_to_spoil_a_secret_has_its_error() {
        assert_eq!(error(""), SecretError::Prefix);
        assert_eq!(error(&PLAIN.replace("DHHC-1", "NVMeTLSkey-1")), SecretError::Prefix);
        assert_eq!(error("DHHC-1:00"), SecretError::End);
        assert_eq!(error(PLAIN.strip_suffix(':').unwrap()), SecretError::End);
        for hash in ["04", "0", "000", "", "ff"] {
            assert_eq!(error(&PLAIN.replace(":00:", &format!(":{hash}:"))), SecretError::HashFunction);
        }
        assert_eq!(error(&PLAIN.replace('w', "!")), SecretError::Base64);
        assert_eq!(error(&PLAIN.replace("2wKd", "2wK")), SecretError::Base64);
        assert_eq!(error(&PLAIN.replace("2wKd", "2wKe")), SecretError::Checksum);
        assert_eq!(error(&PLAIN.replace("V3Yy:", "V3Yz:")), SecretError::Checksum);
        assert_eq!(error(&PLAIN.replace("2wKd", "")), SecretError::Length { found: 29 });
        assert_eq!(error("DHHC-1:00::"), SecretError::Length { found: 0 });
    }

    #[test]
    fn any_length_goes_with_any_hash_function() {
        // The specification's own example, with each of the four.
        for hash in ["00", "01", "02", "03"] {
            let text = format!("DHHC-1:{hash}:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:");
            let secret: Secret = text.parse().unwrap();
            assert_eq!((secret.bytes.len(), secret.to_text().as_str()), (32, text.as_str()));
        }
    }

    #[test]
    fn secrets_for_a_host_are_those_that_nvme_cli_derives() {
        let bytes: Vec<u8> = (0..64).collect();
        // `nvme gen-dhchap-key --secret=000102… --hmac=… --key-length=… --nqn=…` of nvme-cli 2.3.
        for (transform, length, text) in [
            (None, 32, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"),
            (Some(HashFunction::Sha256), 32, "DHHC-1:01:eGOjOSJAEO/H5bDhWMzHdMAz5kyhHZlbqU1HWBl05iWbjbyw:"),
            (
                Some(HashFunction::Sha384),
                48,
                "DHHC-1:02:OSFRps5xBlJdGYl/2Q2ky5ZJh7qP0Jm4ohTgY1XEoBTafULsd2tno2kh2U1D6F9MVJpgFw==:",
            ),
            (
                Some(HashFunction::Sha512),
                64,
                "DHHC-1:03:8F8lKumik69AkegfLCoXtKLOoohOebSUeYCrZ8OPiUBcjUK/ucQbSbOuYIao01rK4fDtbsyIE0OrKDbtGAOh2FOVcOM=:",
            ),
        ] {
            let secret = Secret::from_bytes(transform, &bytes[..length]).unwrap();
            assert_eq!(secret.derived_for("nqn.2014-08.org.example:host").to_text().as_str(), text);
        }
        assert_eq!(Secret::from_bytes(None, &bytes[..33]).unwrap_err(), SecretError::Length { found: 33 });
    }

    #[test]
    fn debug_and_errors_say_nothing_of_the_secret() {
        let secret: Secret = SHA_384.parse().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret { transform: Some(Sha384), .. }");
        let long = PLAIN.replace("2wKd", "2wKdd4gm");
        assert!(!error(&long).to_string().contains("2wKd"));
    }

    #[test]
    fn without_a_hash_function_the_secret_is_the_key() {
        let secret: Secret = PLAIN.parse().unwrap();
        assert_eq!(secret.key("nqn.2026-11.example:a").as_ref(), secret.bytes.as_slice());
    }

    #[test]
    fn a_key_belongs_to_a_name() {
        let secret: Secret = SHA_384.parse().unwrap();
        let (a, b) = (secret.key("nqn.2026-11.example:a"), secret.key("nqn.2026-11.example:b"));
        assert_eq!(a.as_ref().len(), 48);
        assert!(a.as_ref() != b.as_ref());
    }

    #[test]
    fn key_files_hold_secrets_comments_and_nothing_else() {
        let file = format!("# for host a\n\n  {PLAIN}\r\n#{PLAIN}\n{SHA_384}");
        let secrets = read_key_file(file.as_bytes()).unwrap();
        assert_eq!(secrets.iter().map(Secret::transform).collect::<Vec<_>>(), [None, Some(HashFunction::Sha384)]);
        assert_eq!(read_key_file(b"").unwrap_err(), KeyFileError::Empty);
        assert_eq!(read_key_file(b"# nothing\n\n").unwrap_err(), KeyFileError::Empty);
        let error = read_key_file(format!("{PLAIN}\nDHHC-1:07:x:\n").as_bytes()).unwrap_err();
        assert_eq!(error, KeyFileError::Line { line: 2, error: SecretError::HashFunction });
        assert_eq!(read_key_file(b"#\n\xFF\xFE").unwrap_err(), KeyFileError::NotText { line: 2 });
        let many = format!("{PLAIN}\n").repeat(KEY_FILE_SECRETS_MAX + 1);
        assert_eq!(
            read_key_file(many.as_bytes()).unwrap_err(),
            KeyFileError::TooMany { line: KEY_FILE_SECRETS_MAX + 1 }
        );
    }
}
