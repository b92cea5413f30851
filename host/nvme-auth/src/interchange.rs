//! How secrets are written down: the same form for those of DH-HMAC-CHAP and for keys of TLS.
//!
//! ```text
//! DHHC-1:01:base64(secret, CRC-32 of the secret):
//! NVMeTLSkey-1:01:base64(secret, CRC-32 of the secret):
//!               │          │        └ 4 bytes, little-endian
//!               │          └ as many bytes as the form allows
//!               └ the hash function that makes a key of it: 00 none, 01 SHA-256, 02 SHA-384, 03 SHA-512
//! ```
//!
//! Base, "Secret representation"; TCP Transport 1.1, "PSK Interchange Format".

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use crate::hash::HashFunction;

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;

/// What a text is a secret of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// DH-HMAC-CHAP.
    Dhchap,
    /// TLS.
    Tls,
}

/// Why a text is no secret. None of them tells what the text was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// It begins in another way.
    #[error("a {0} begins with {prefix}, this text does not; {maker} makes one", prefix = .0.prefix(), maker = .0.maker())]
    Prefix(Form),
    /// The field after the prefix is none that this form knows.
    #[error("the field after {prefix} is none of {known}", prefix = .0.prefix(), known = .0.hashes())]
    HashFunction(Form),
    /// No colon at the end.
    #[error("a secret ends with a colon, this text does not; was it cut off?")]
    End,
    /// Characters that base64 does not have, or padding that is missing.
    #[error("what stands between the last two colons is not base64; was a character lost or added?")]
    Base64,
    /// Another length.
    #[error("the {form} has {found} bytes, where it must have {wanted}; {maker} makes one", wanted = .form.lengths(), maker = .form.maker())]
    Length {
        /// What it should be.
        form: Form,
        /// Its bytes, without the checksum.
        found: usize,
    },
    /// The checksum is that of another secret.
    #[error("the checksum in the secret does not agree with it; it was mistyped or damaged, copy it again")]
    Checksum,
}

impl Form {
    /// How every text begins.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Form::Dhchap => "DHHC-1:",
            Form::Tls => "NVMeTLSkey-1:",
        }
    }

    /// The tool that makes such texts.
    fn maker(self) -> &'static str {
        match self {
            Form::Dhchap => "`nvme gen-dhchap-key`",
            Form::Tls => "`nvme gen-tls-key`",
        }
    }

    fn hashes(self) -> &'static str {
        match self {
            Form::Dhchap => "00 (no hash function), 01 (SHA-256), 02 (SHA-384), 03 (SHA-512)",
            Form::Tls => "00 (no hash function), 01 (SHA-256), 02 (SHA-384)",
        }
    }

    fn lengths(self) -> &'static str {
        match self {
            Form::Dhchap => "32, 48 or 64",
            Form::Tls => "32 with SHA-256, 48 with SHA-384, and either without a hash function",
        }
    }

    /// Whether a secret may have this length.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check(self, transform: Option<HashFunction>, found: usize) -> Result<(), SecretError> {
        let fits = match (self, transform) {
            (Form::Dhchap, _) => [32, 48, 64].contains(&found),
            (Form::Tls, None) => [32, 48].contains(&found),
            (Form::Tls, Some(hash)) => hash != HashFunction::Sha512 && hash.length() == found,
        };
        if fits { Ok(()) } else { Err(SecretError::Length { form: self, found }) }
    }

    /// The hash function and the bytes that a text says.
    pub(crate) fn decode(self, text: &str) -> Result<(Option<HashFunction>, Zeroizing<Vec<u8>>), SecretError> {
        let rest = text.strip_prefix(self.prefix()).ok_or(SecretError::Prefix(self))?;
        let (hash, encoded) = rest.split_once(':').ok_or(SecretError::End)?;
        let transform = match (hash, self) {
            ("00", _) => None,
            ("01", _) => Some(HashFunction::Sha256),
            ("02", _) => Some(HashFunction::Sha384),
            ("03", Form::Dhchap) => Some(HashFunction::Sha512),
            _ => return Err(SecretError::HashFunction(self)),
        };
        let encoded = encoded.strip_suffix(':').ok_or(SecretError::End)?;
        let mut bytes = Zeroizing::new(Base64::decode_vec(encoded).map_err(|_| SecretError::Base64)?);
        let length = bytes.len().saturating_sub(CHECKSUM_BYTES);
        self.check(transform, length)?;
        if checksum(&bytes[..length]) != bytes[length..] {
            return Err(SecretError::Checksum);
        }
        bytes.truncate(length);
        Ok((transform, bytes))
    }

    /// The text that says them.
    pub(crate) fn encode(self, transform: Option<HashFunction>, bytes: &[u8]) -> Zeroizing<String> {
        let mut payload = Zeroizing::new(bytes.to_vec());
        payload.extend_from_slice(&checksum(bytes));
        let encoded = Zeroizing::new(Base64::encode_string(&payload));
        let hash = transform.map_or(0, HashFunction::id);
        Zeroizing::new(format!("{}{hash:02x}:{}:", self.prefix(), encoded.as_str()))
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Form::Dhchap => "secret",
            Form::Tls => "TLS key",
        })
    }
}

fn checksum(secret: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(secret).to_le_bytes()
}
