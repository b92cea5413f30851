//! The hash functions of DH-HMAC-CHAP and of TLS keys: plain, as HMAC, and to derive keys (HKDF).

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A hash function; its number is the one on the wire (8.3.4.5.2, "DH-HMAC-CHAP hash function identifiers").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum HashFunction {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

/// Bytes of the longest hash.
pub const DIGEST_BYTES_MAX: usize = 64;

impl HashFunction {
    /// All of them.
    pub const ALL: [HashFunction; 3] = [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512];

    /// The function with this number.
    #[must_use]
    pub fn from_id(id: u8) -> Option<HashFunction> {
        HashFunction::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Its number on the wire.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Bytes of a hash, of a challenge and of a response.
    #[must_use]
    pub fn length(self) -> usize {
        match self {
            HashFunction::Sha256 => 32,
            HashFunction::Sha384 => 48,
            HashFunction::Sha512 => 64,
        }
    }

    /// The hash of `bytes`.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Digest {
        match self {
            HashFunction::Sha256 => Digest::copy(&Sha256::digest(bytes)),
            HashFunction::Sha384 => Digest::copy(&Sha384::digest(bytes)),
            HashFunction::Sha512 => Digest::copy(&Sha512::digest(bytes)),
        }
    }

    /// HMAC under `key` of `parts`, one after the other (RFC 2104).
    #[must_use]
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Digest {
        match self {
            HashFunction::Sha256 => mac::<Hmac<Sha256>>(key, parts),
            HashFunction::Sha384 => mac::<Hmac<Sha384>>(key, parts),
            HashFunction::Sha512 => mac::<Hmac<Sha512>>(key, parts),
        }
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Digest {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    Digest::copy(&mac.finalize().into_bytes())
}

impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HashFunction::Sha256 => "SHA-256",
            HashFunction::Sha384 => "SHA-384",
            HashFunction::Sha512 => "SHA-512",
        })
    }
}

impl HashFunction {
    /// HKDF-Extract without a salt (RFC 5869, 2.2).
    #[must_use]
    pub fn extract(self, secret: &[u8]) -> Digest {
        self.hmac(&[], &[secret])
    }

    /// HKDF-Expand-Label, as many bytes as a hash has (RFC 8446, 7.1): one step of HKDF-Expand.
    ///
    /// # Panics
    /// If the context has more than 255 bytes.
    #[must_use]
    pub fn expand_label(self, key: &Digest, label: &str, context: &[u8]) -> Digest {
        let length = (self.length() as u16).to_be_bytes();
        let label_bytes = [u8::try_from(TLS_LABEL.len() + label.len()).expect("labels are short")];
        let context_bytes = [u8::try_from(context.len()).expect("a context has at most 255 bytes")];
        let label = [&label_bytes[..], TLS_LABEL.as_bytes(), label.as_bytes()].concat();
        self.hmac(key.as_ref(), &[&length, &label, &context_bytes, context, &[1]])
    }
}

/// How every label of TLS 1.3 begins.
const TLS_LABEL: &str = "tls13 ";

/// A hash; forgotten when dropped, and compared in constant time only.
#[derive(Clone)]
pub struct Digest {
    bytes: Zeroizing<[u8; DIGEST_BYTES_MAX]>,
    length: usize,
}

impl Digest {
    fn copy(hash: &[u8]) -> Digest {
        let mut bytes = Zeroizing::new([0; DIGEST_BYTES_MAX]);
        bytes[..hash.len()].copy_from_slice(hash);
        Digest { bytes, length: hash.len() }
    }

    /// Whether it is `other`, in a time that does not depend on where they differ.
    #[must_use]
    pub fn equals(&self, other: &[u8]) -> bool {
        self.as_ref().ct_eq(other).into()
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
