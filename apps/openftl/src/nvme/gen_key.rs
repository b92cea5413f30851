//! `openftl nvme gen-key`: a secret for in-band authentication.

use super::authentication::random;
use crate::cli::nvme::{GenKey, Hash};
use crate::failure::Failure;
use crate::terminal::say;
use openftl_nvme_auth::{HashFunction, Secret};
use std::str::from_utf8;

pub fn run(arguments: &GenKey) -> Result<(), Failure> {
    say(secret(arguments)?.to_text().as_str())
}

fn secret(arguments: &GenKey) -> Result<Secret, Failure> {
    let (hash, name) = match arguments.hash {
        Hash::Sha256 => (HashFunction::Sha256, "sha256"),
        Hash::Sha384 => (HashFunction::Sha384, "sha384"),
        Hash::Sha512 => (HashFunction::Sha512, "sha512"),
    };
    let secret = match &arguments.secret {
        None => Secret::generate(Some(hash), hash.length(), &mut random()).map_err(Failure::failed)?,
        Some(digits) => {
            // Of the secret itself no error says a word: it may end in a log.
            let bytes = bytes_of(digits).ok_or_else(|| {
                Failure::bad_input("--secret holds something else than pairs of hexadecimal digits")
                    .fix(format_args!("write {} digits, or leave it away for a random secret", 2 * hash.length()))
            })?;
            if bytes.len() != hash.length() {
                return Err(Failure::bad_input(format_args!(
                    "--secret has {} bytes; with --hash {name} it has {}",
                    bytes.len(),
                    hash.length()
                ))
                .fix("write two hexadecimal digits for each byte, or choose the hash of that length"));
            }
            Secret::from_bytes(Some(hash), &bytes).map_err(Failure::bad_input)?
        }
    };
    Ok(match &arguments.nqn {
        Some(nqn) => secret.derived_for(nqn.as_str()),
        None => secret,
    })
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && digits.len().is_multiple_of(2);
    let pairs = digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(from_utf8(pair).ok()?, 16).ok());
    if is_hex { pairs.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(hash: Hash, secret: Option<&str>) -> GenKey {
        GenKey { hash, nqn: None, secret: secret.map(str::to_owned) }
    }

    #[test]
    fn a_random_secret_can_be_read_back_and_is_another_each_time() {
        for (hash, length) in [(Hash::Sha256, 32), (Hash::Sha384, 48), (Hash::Sha512, 64)] {
            let text = |_| secret(&arguments(hash, None)).unwrap().to_text();
            let [first, second] = [0, 1].map(text);
            assert_ne!(*first, *second);
            let back: Secret = first.parse().unwrap();
            assert_eq!(back.transform().map(HashFunction::length), Some(length));
        }
    }

    #[test]
    fn a_given_secret_is_the_one_that_nvme_cli_makes_of_it() {
        let digits: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
        let mut arguments = arguments(Hash::Sha256, Some(&digits));
        arguments.nqn = Some("nqn.2014-08.org.example:host".parse().unwrap());
        let text = secret(&arguments).unwrap().to_text();
        assert_eq!(text.as_str(), "DHHC-1:01:eGOjOSJAEO/H5bDhWMzHdMAz5kyhHZlbqU1HWBl05iWbjbyw:");
    }

    #[test]
    fn a_wrong_secret_is_refused_without_being_repeated() {
        for digits in ["abc", "xyxy", "aébb", "aabb"] {
            let failure = secret(&arguments(Hash::Sha384, Some(digits))).unwrap_err().to_string();
            assert!(failure.contains("--secret") && failure.contains("fix:") && !failure.contains(digits), "{failure}");
        }
    }
}
