//! `openftl nvme gen-key`: a secret for in-band authentication, or a key of TLS.

use super::authentication::random;
use crate::cli::nvme::{GenKey, Hash};
use crate::failure::Failure;
use crate::terminal::say;
use clap::ValueEnum;
use openftl_nvme_auth::{HashFunction, Secret, TlsKey};
use std::str::from_utf8;

pub fn run(arguments: &GenKey) -> Result<(), Failure> {
    match arguments.tls {
        true => say(tls_key(arguments)?.to_text().as_str()),
        false => say(secret(arguments)?.to_text().as_str()),
    }
}

fn secret(arguments: &GenKey) -> Result<Secret, Failure> {
    let hash = hash(arguments.hash);
    let secret = match given(arguments)? {
        None => Secret::generate(Some(hash), hash.length(), &mut random()).map_err(Failure::failed)?,
        Some(bytes) => Secret::from_bytes(Some(hash), &bytes).map_err(Failure::bad_input)?,
    };
    Ok(match &arguments.nqn {
        Some(nqn) => secret.derived_for(nqn.as_str()),
        None => secret,
    })
}

fn tls_key(arguments: &GenKey) -> Result<TlsKey, Failure> {
    let hash = hash(arguments.hash);
    if hash == HashFunction::Sha512 {
        return Err(Failure::bad_input("--hash sha512: TLS has no cipher with it").fix("choose sha256 or sha384"));
    }
    match given(arguments)? {
        None => TlsKey::generate(hash, &mut random()).map_err(Failure::failed),
        Some(bytes) => TlsKey::from_bytes(Some(hash), &bytes).map_err(Failure::bad_input),
    }
}

fn hash(hash: Hash) -> HashFunction {
    match hash {
        Hash::Sha256 => HashFunction::Sha256,
        Hash::Sha384 => HashFunction::Sha384,
        Hash::Sha512 => HashFunction::Sha512,
    }
}

/// The bytes of `--secret`: as many as the hash has. Of the secret itself no error says a word: it may end in a log.
fn given(arguments: &GenKey) -> Result<Option<Vec<u8>>, Failure> {
    let Some(digits) = &arguments.secret else { return Ok(None) };
    let (hash, name) = (hash(arguments.hash), arguments.hash.to_possible_value());
    let bytes = bytes_of(digits).ok_or_else(|| {
        Failure::bad_input("--secret holds something else than pairs of hexadecimal digits")
            .fix(format_args!("write {} digits, or leave it away for a random secret", 2 * hash.length()))
    })?;
    if bytes.len() != hash.length() {
        return Err(Failure::bad_input(format_args!(
            "--secret has {} bytes; with --hash {} it has {}",
            bytes.len(),
            name.as_ref().map_or("", |name| name.get_name()),
            hash.length()
        ))
        .fix("write two hexadecimal digits for each byte, or choose the hash of that length"));
    }
    Ok(Some(bytes))
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
        GenKey { hash, tls: false, nqn: None, secret: secret.map(str::to_owned) }
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
    fn a_tls_key_is_what_nvme_cli_makes_of_its_bytes() {
        // From libnvme's tests.
        let digits = "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03";
        let key = tls_key(&arguments(Hash::Sha256, Some(digits))).unwrap().to_text();
        assert_eq!(key.as_str(), "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:");
        let [first, second] = [0, 1].map(|_| tls_key(&arguments(Hash::Sha384, None)).unwrap().to_text());
        assert_ne!(*first, *second);
        let refused = tls_key(&arguments(Hash::Sha512, None)).unwrap_err().to_string();
        assert!(refused.contains("--hash sha512") && refused.contains("fix:"), "{refused}");
    }

    #[test]
    fn a_wrong_secret_is_refused_without_being_repeated() {
        for digits in ["abc", "xyxy", "aébb", "aabb"] {
            let failure = secret(&arguments(Hash::Sha384, Some(digits))).unwrap_err().to_string();
            assert!(failure.contains("--secret") && failure.contains("fix:") && !failure.contains(digits), "{failure}");
        }
    }
}
