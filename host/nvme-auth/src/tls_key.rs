//! Keys of TLS: what an administrator hands out, and the pre-shared key that follows from it for a host and a subsystem.
//!
//! ```text
//!   configured PSK      NVMeTLSkey-1:01:…:                                    what is handed out
//!        │ HKDF, label "HostNQN", the host's name; or nothing (hash 00)
//!   retained PSK                                                              what a host knows
//!        │ HKDF, label "nvme-tls-psk", the identity or what stands for it
//!   TLS PSK             NVMe1R01 HOSTNQN SUBNQN base64(HMAC of the names)     what a handshake shows
//! ```
//!
//! Both ends derive the same, so only the identity travels. TCP Transport 1.1, "Transport Layer Security": "PSK Interchange
//! Format", "Retained PSK Derivation", "TLS PSK and PSK Identity Derivation".

use std::fmt;
use std::str::FromStr;

use base64ct::{Base64, Encoding};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::hash::{Digest, HashFunction};
use crate::interchange::{Form, SecretError};

/// The most bytes that HKDF-Expand-Label takes for its context (RFC 8446, 7.1, `HkdfLabel`).
const CONTEXT_BYTES_MAX: usize = 255;

/// A configured PSK. Forgotten when dropped; never part of a message, an error or `Debug`.
#[derive(Clone)]
pub struct TlsKey {
    transform: Option<HashFunction>,
    bytes: Zeroizing<Vec<u8>>,
}

/// A pre-shared key of TLS 1.3.
#[derive(Clone)]
pub struct TlsPsk {
    /// What the client says, for the server to find the key.
    pub identity: PskIdentity,
    /// The hash function of its cipher suite.
    pub hash: HashFunction,
    key: Digest,
}

/// Whom a TLS PSK is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PskIdentity {
    /// What travels.
    pub text: String,
    /// The host.
    pub host_nqn: String,
    /// The subsystem.
    pub subsystem_nqn: String,
}

/// The version of a PSK identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PskVersion {
    /// `NVMe0R01 HOSTNQN SUBNQN`. Not for names so long that the identity has more than 255 bytes.
    Zero,
    /// With a digest behind the names, so that keys of the same names have different identities.
    One,
}

impl TlsKey {
    /// A new key for `hash`, as long as its hashes: SHA-256 or SHA-384.
    ///
    /// # Errors
    /// With another hash function.
    pub fn generate(hash: HashFunction, random: &mut impl CryptoRng) -> Result<TlsKey, SecretError> {
        let mut bytes = Zeroizing::new(vec![0; hash.length()]);
        random.fill_bytes(&mut bytes);
        TlsKey::from_bytes(Some(hash), &bytes)
    }

    /// The key with these bytes: 32 with SHA-256, 48 with SHA-384, either without a hash function.
    ///
    /// # Errors
    /// With another length or hash function.
    pub fn from_bytes(transform: Option<HashFunction>, bytes: &[u8]) -> Result<TlsKey, SecretError> {
        Form::Tls.check(transform, bytes.len())?;
        Ok(TlsKey { transform, bytes: Zeroizing::new(bytes.to_vec()) })
    }

    /// As nvme-cli takes it. The only way to see a key.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Form::Tls.encode(self.transform, &self.bytes)
    }

    /// The hash function of the cipher suite that goes with it.
    #[must_use]
    pub fn hash(&self) -> HashFunction {
        let by_length = if self.bytes.len() == 32 { HashFunction::Sha256 } else { HashFunction::Sha384 };
        self.transform.unwrap_or(by_length)
    }

    /// The pre-shared key of a host and a subsystem; `None` where this version has no identity for names that long.
    #[must_use]
    pub fn psk(&self, version: PskVersion, host_nqn: &str, subsystem_nqn: &str) -> Option<TlsPsk> {
        TlsPsk::of(&self.retained(host_nqn), self.hash(), version, host_nqn, subsystem_nqn)
    }

    /// Those that a host offers and a controller knows, the best first.
    pub fn psks(&self, host_nqn: &str, subsystem_nqn: &str) -> impl Iterator<Item = TlsPsk> {
        let versions = [PskVersion::One, PskVersion::Zero].into_iter();
        versions.filter_map(move |version| self.psk(version, host_nqn, subsystem_nqn))
    }

    fn retained(&self, host_nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.bytes.clone(),
            Some(hash) => {
                let retained = hash.expand_label(&hash.extract(&self.bytes), "HostNQN", host_nqn.as_bytes());
                Zeroizing::new(retained.as_ref().to_vec())
            }
        }
    }
}

impl TlsPsk {
    fn of(
        retained: &[u8],
        hash: HashFunction,
        version: PskVersion,
        host_nqn: &str,
        subsystem_nqn: &str,
    ) -> Option<TlsPsk> {
        let number = hash.id();
        let (text, context) = match version {
            PskVersion::Zero => {
                let text = format!("NVMe0R{number:02} {host_nqn} {subsystem_nqn}");
                (text.clone(), text)
            }
            PskVersion::One => {
                let names = format!("{host_nqn} {subsystem_nqn} NVMe-over-Fabrics");
                let digest = Base64::encode_string(hash.hmac(retained, &[names.as_bytes()]).as_ref());
                (format!("NVMe1R{number:02} {host_nqn} {subsystem_nqn} {digest}"), format!("{number:02} {digest}"))
            }
        };
        if context.len() > CONTEXT_BYTES_MAX {
            return None;
        }
        let key = hash.expand_label(&hash.extract(retained), "nvme-tls-psk", context.as_bytes());
        let identity = PskIdentity { text, host_nqn: host_nqn.to_owned(), subsystem_nqn: subsystem_nqn.to_owned() };
        Some(TlsPsk { identity, hash, key })
    }

    /// The key itself, for TLS.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key.as_ref()
    }
}

impl FromStr for TlsKey {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<TlsKey, SecretError> {
        let (transform, bytes) = Form::Tls.decode(text)?;
        Ok(TlsKey { transform, bytes })
    }
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").field("transform", &self.transform).finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsPsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPsk").field("identity", &self.identity.text).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.psk-test-host";
    const SUBSYSTEM: &str = "nqn.psk-test-subsys";

    /// Keys and identities that libnvme's own tests expect (`test/psk.c`).
    const SHA_256: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
    const SHA_384: &str = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

    fn key(text: &str) -> TlsKey {
        text.parse().unwrap()
    }

    fn identity(text: &str, version: PskVersion) -> String {
        key(text).psk(version, HOST, SUBSYSTEM).unwrap().identity.text
    }

    #[test]
    fn keys_of_nvme_cli_are_read_and_written_back() {
        let plain = SHA_256.replace(":01:", ":00:");
        for (text, transform, hash) in [
            (plain.as_str(), None, HashFunction::Sha256),
            (SHA_256, Some(HashFunction::Sha256), HashFunction::Sha256),
            (SHA_384, Some(HashFunction::Sha384), HashFunction::Sha384),
        ] {
            let key = key(text);
            assert_eq!((key.transform, key.hash(), key.to_text().as_str()), (transform, hash, text));
        }
    }

    #[test]
    fn identities_are_those_that_libnvme_makes() {
        assert_eq!(
            identity(SHA_256, PskVersion::One),
            "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="
        );
        assert_eq!(
            identity(SHA_384, PskVersion::One),
            "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys \
             QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a"
        );
        assert_eq!(identity(SHA_256, PskVersion::Zero), "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys");
        assert_eq!(identity(SHA_384, PskVersion::Zero), "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys");
    }

    /// What Linux expects of its own derivation from a retained or generated PSK to the digest and the TLS PSK
    /// (`drivers/nvme/common/tests/auth_kunit.c`, 2026).
    #[test]
    fn the_keys_are_those_that_linux_derives() {
        let hex = |digits: &str| -> Vec<u8> {
            let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            digits.as_bytes().chunks(2).map(byte).collect()
        };
        for (hash, retained, digest, wanted) in [
            (
                HashFunction::Sha256,
                "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
                "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
                "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
            ),
            (
                HashFunction::Sha384,
                "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e11874900 1ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
                "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
                "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
            ),
        ] {
            let retained = hex(&retained.replace(' ', ""));
            let psk = TlsPsk::of(&retained, hash, PskVersion::One, "hostnqn", "subsysnqn").unwrap();
            assert_eq!(psk.identity.text.rsplit(' ').next(), Some(digest));
            assert_eq!(psk.key(), hex(wanted));
        }
    }

    #[test]
    fn each_way_to_spoil_a_key_has_its_error() {
        let error = |text: &str| text.parse::<TlsKey>().expect_err(text);
        assert_eq!(error(&SHA_256.replace("NVMeTLSkey-1", "DHHC-1")), SecretError::Prefix(Form::Tls));
        assert_eq!(error(&SHA_256.replace(":01:", ":03:")), SecretError::HashFunction(Form::Tls));
        assert_eq!(error(&SHA_256.replace(":01:", ":02:")), SecretError::Length { form: Form::Tls, found: 32 });
        assert_eq!(error(&SHA_384.replace(":02:", ":01:")), SecretError::Length { form: Form::Tls, found: 48 });
        assert_eq!(error(SHA_256.strip_suffix(':').unwrap()), SecretError::End);
        assert_eq!(error(&SHA_256.replace("VRLb", "VRLc")), SecretError::Checksum);
        assert_eq!(error(&SHA_256.replace("VRLb", "!RLb")), SecretError::Base64);
        for text in [error(&SHA_256.replace(":01:", ":02:")).to_string(), format!("{:?}", key(SHA_256))] {
            assert!(!text.contains("VRLb"), "{text}");
        }
    }

    #[test]
    fn a_key_without_a_hash_function_has_another_identity_than_one_with() {
        let plain = SHA_256.replace(":01:", ":00:");
        assert_ne!(identity(&plain, PskVersion::One), identity(SHA_256, PskVersion::One));
        let [one, other] =
            [plain.as_str(), SHA_256].map(|text| key(text).psk(PskVersion::Zero, HOST, SUBSYSTEM).unwrap());
        assert_eq!(one.identity, other.identity);
        assert_ne!(one.key(), other.key());
    }

    #[test]
    fn the_longest_names_have_an_identity_of_version_1_only() {
        let [host, subsystem] = ["a", "b"].map(|letter| format!("nqn.{}", letter.repeat(219)));
        let identities: Vec<usize> = key(SHA_384).psks(&host, &subsystem).map(|psk| psk.identity.text.len()).collect();
        assert_eq!(identities, [9 + 223 + 1 + 223 + 1 + 64]);
        // As long as HKDF takes.
        let subsystem = format!("nqn.{}", "b".repeat(255 - 9 - 223 - 1 - 4));
        assert_eq!(key(SHA_256).psk(PskVersion::Zero, &host, &subsystem).unwrap().identity.text.len(), 255);
        assert!(key(SHA_256).psk(PskVersion::Zero, &host, &format!("{subsystem}b")).is_none());
    }
}
