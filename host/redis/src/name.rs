//! Keys of clients as keys of the drive.

use openftl_values::{KEY_BYTES_MAX, Key};
use sha2::{Digest, Sha256};

/// What keys that go by a digest begin with.
const MARK: u8 = 0xFF;

/// Bytes before the key that stands before a value.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A key of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Name {
    /// It is a key of the drive.
    Plain(Key),
    /// It goes by this digest.
    Digest(Key, Vec<u8>),
}

impl Name {
    /// That of a client's key.
    #[must_use]
    pub fn new(key: &[u8]) -> Name {
        let is_plain = key.len() < KEY_BYTES_MAX || key.first() != Some(&MARK);
        match Key::new(key) {
            Ok(key) if is_plain => Name::Plain(key),
            _ => {
                let mut bytes = [MARK; KEY_BYTES_MAX];
                bytes[1..].copy_from_slice(&Sha256::digest(key)[..KEY_BYTES_MAX - 1]);
                Name::Digest(Key::new(&bytes).expect("it has 16 bytes"), key.to_vec())
            }
        }
    }

    /// The key of the drive.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Name::Plain(key) | Name::Digest(key, _) => *key,
        }
    }

    /// What stands before the value.
    #[must_use]
    pub fn before(&self) -> Vec<u8> {
        match self {
            Name::Plain(_) => Vec::new(),
            Name::Digest(_, key) => [&(key.len() as u32).to_le_bytes()[..], key].concat(),
        }
    }
}

/// Whether a key of the drive is a digest.
#[must_use]
pub fn is_digest(key: &Key) -> bool {
    key.bytes().len() == KEY_BYTES_MAX && key.bytes()[0] == MARK
}

/// The key that stands before a value, and how many bytes it takes there. `None`: there is none.
#[must_use]
pub fn name_before(value: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = value.split_first_chunk::<LENGTH_BYTES>()?;
    let length = u32::from_le_bytes(*length) as usize;
    Some((rest.get(..length)?, LENGTH_BYTES + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_keys_are_themselves_and_long_ones_go_by_a_digest() {
        assert_eq!(Name::new(b"hello").key().bytes(), b"hello");
        assert_eq!(Name::new(&[b'k'; 16]).key().bytes(), [b'k'; 16]);
        for key in [&b""[..], &[b'k'; 17], &[0xFF; 16], &[7; 1000]] {
            let name = Name::new(key);
            assert!(is_digest(&name.key()) && name.key() == Name::new(key).key());
            let value = [name.before(), b"value".to_vec()].concat();
            assert_eq!(name_before(&value), Some((key, 4 + key.len())));
        }
        assert!(!is_digest(&Name::new(&[0xFF; 15]).key()));
        assert_ne!(Name::new(&[1; 17]).key(), Name::new(&[1; 18]).key());
        assert_eq!(name_before(b"abc"), None);
        assert_eq!(name_before(&[9, 0, 0, 0, 1]), None);
    }
}
