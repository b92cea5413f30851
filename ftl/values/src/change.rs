//! A change of the directory that no run has: a page of one grain, written with the value that it is of.
//!
//! | bytes | field |
//! |---|---|
//! | 0-15 | key, zeroes behind its end |
//! | 16 | length of the key |
//! | 17 | 1: added; 2: removed |
//! | 18-23 | keys that there are after it |
//! | 24-31 | bytes of these |
//!
//! The page with the greatest number has the last count.

use crate::key::{KEY_BYTES_MAX, Key};

/// Bytes of the page of a change: with its header it fills a grain.
pub(crate) const CHANGE_BYTES: usize = 32;

/// How many keys there are, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Count {
    pub keys: u64,
    pub key_bytes: u64,
}

impl Count {
    pub fn add(&mut self, key: &Key) {
        self.keys += 1;
        self.key_bytes += u64::from(key.length());
    }

    pub fn remove(&mut self, key: &Key) {
        self.keys = self.keys.saturating_sub(1);
        self.key_bytes = self.key_bytes.saturating_sub(u64::from(key.length()));
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub key: Key,
    pub is_removed: bool,
    pub count: Count,
}

impl Change {
    pub fn to_bytes(self) -> [u8; CHANGE_BYTES] {
        let mut bytes = [0; CHANGE_BYTES];
        bytes[..KEY_BYTES_MAX].copy_from_slice(&self.key.padded());
        (bytes[16], bytes[17]) = (self.key.length(), 1 + u8::from(self.is_removed));
        bytes[18..24].copy_from_slice(&self.count.keys.to_le_bytes()[..6]);
        bytes[24..].copy_from_slice(&self.count.key_bytes.to_le_bytes());
        bytes
    }

    /// `None`: there is none.
    pub fn read(bytes: &[u8]) -> Option<Change> {
        let bytes: &[u8; CHANGE_BYTES] = bytes.try_into().ok()?;
        let key = Key::from_padded(*bytes.first_chunk()?, bytes[16])?;
        let mut keys = [0; 8];
        keys[..6].copy_from_slice(&bytes[18..24]);
        let key_bytes = u64::from_le_bytes(*bytes.last_chunk()?);
        let count = Count { keys: u64::from_le_bytes(keys), key_bytes };
        matches!(bytes[17], 1 | 2).then_some(Change { key, is_removed: bytes[17] == 2, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_as_it_was_written() {
        let key = Key::new(b"key\0").unwrap();
        let change = Change { key, is_removed: true, count: Count { keys: 0x0102_0304_0506, key_bytes: 7 } };
        let bytes = change.to_bytes();
        assert_eq!(bytes, *b"key\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\x02\x06\x05\x04\x03\x02\x01\x07\0\0\0\0\0\0\0");
        assert_eq!(Change::read(&bytes), Some(change));
        assert_eq!(Change::read(&bytes[1..]), None);
        let mut other = bytes;
        other[17] = 3;
        assert_eq!(Change::read(&other), None);
    }
}
