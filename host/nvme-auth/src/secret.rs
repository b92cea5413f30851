//! Secrets of DH-HMAC-CHAP, as administrators hand them out and nvme-cli writes them ([`interchange`](crate::interchange)).
//!
//! With a hash function, the key depends on whose it is (8.3.4.5.7). Without, the secret is the key. Any length goes with
//! any hash function; nvme-cli makes secrets as long as the hashes, and older Linux hosts want them so.

use std::fmt;
use std::str::FromStr;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::hash::{Digest, HashFunction};
use crate::interchange::{Form, SecretError};

/// What host and controller both know. Forgotten when dropped; never part of a message, an error or `Debug`.
#[derive(Clone)]
pub struct Secret {
    transform: Option<HashFunction>,
    bytes: Zeroizing<Vec<u8>>,
}

impl Secret {
    /// A new secret of `length` bytes: 32, 48 or 64. With a hash function, take the length of its hashes.
    pub fn generate(
        transform: Option<HashFunction>,
        length: usize,
        random: &mut impl CryptoRng,
    ) -> Result<Secret, SecretError> {
        Form::Dhchap.check(transform, length)?;
        let mut bytes = Zeroizing::new(vec![0; length]);
        random.fill_bytes(&mut bytes);
        Ok(Secret { transform, bytes })
    }

    /// The secret with these bytes: 32, 48 or 64.
    pub fn from_bytes(transform: Option<HashFunction>, bytes: &[u8]) -> Result<Secret, SecretError> {
        Form::Dhchap.check(transform, bytes.len())?;
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
        Form::Dhchap.encode(self.transform, &self.bytes)
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
        let (transform, bytes) = Form::Dhchap.decode(text)?;
        Ok(Secret { transform, bytes })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("transform", &self.transform).finish_non_exhaustive()
    }
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
        assert_eq!(error(""), SecretError::Prefix(Form::Dhchap));
        assert_eq!(error(&PLAIN.replace("DHHC-1", "NVMeTLSkey-1")), SecretError::Prefix(Form::Dhchap));
        assert_eq!(error("DHHC-1:00"), SecretError::End);
        assert_eq!(error(PLAIN.strip_suffix(':').unwrap()), SecretError::End);
        for hash in ["04", "0", "000", "", "ff"] {
            assert_eq!(error(&PLAIN.replace(":00:", &format!(":{hash}:"))), SecretError::HashFunction(Form::Dhchap));
        }
        assert_eq!(error(&PLAIN.replace('w', "!")), SecretError::Base64);
        assert_eq!(error(&PLAIN.replace("2wKd", "2wK")), SecretError::Base64);
        assert_eq!(error(&PLAIN.replace("2wKd", "2wKe")), SecretError::Checksum);
        assert_eq!(error(&PLAIN.replace("V3Yy:", "V3Yz:")), SecretError::Checksum);
        assert_eq!(error(&PLAIN.replace("2wKd", "")), SecretError::Length { form: Form::Dhchap, found: 29 });
        assert_eq!(error("DHHC-1:00::"), SecretError::Length { form: Form::Dhchap, found: 0 });
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
        assert_eq!(
            Secret::from_bytes(None, &bytes[..33]).unwrap_err(),
            SecretError::Length { form: Form::Dhchap, found: 33 }
        );
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
}
