//! What stands behind a value in its page, and the list of keys that share a number.
//!
//! ```text
//!   page of a key        value ····················· record        one key has the number
//!   list of keys         record record ··· record                  several do; each value is in a page of its own
//! ```
//!
//! A page is read with its last bytes, so a value begins at its first byte and is copied to its host where it is to be.
//!
//! | bytes of a record | field |
//! |---|---|
//! | 0-15 | key, zeroes behind its end |
//! | 16 | length of the key |
//! | 17 | kind: 1, of the value before it; 2, of a list |
//! | 18-19 | of a list: the place of the key's page |

use crate::key::{KEY_BYTES_MAX, Key};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 20;

const OF_VALUE: u8 = 1;
const OF_LIST: u8 = 2;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// The page is the value of this key.
    Value(Key),
    /// The page is a list, and this a key of it: its value is at this place.
    Listed(Key, u16),
}

impl Record {
    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let (key, kind, slot) = match self {
            Record::Value(key) => (key, OF_VALUE, 0),
            Record::Listed(key, slot) => (key, OF_LIST, slot),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[..KEY_BYTES_MAX].copy_from_slice(&key.padded());
        (bytes[16], bytes[17]) = (key.length(), kind);
        bytes[18..].copy_from_slice(&slot.to_le_bytes());
        bytes
    }

    /// `None`: there is none.
    pub fn read(bytes: &[u8]) -> Option<Record> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let key = Key::from_padded(*bytes.first_chunk()?, bytes[16])?;
        let slot = u16::from_le_bytes([bytes[18], bytes[19]]);
        match bytes[17] {
            OF_VALUE if slot == 0 => Some(Record::Value(key)),
            OF_LIST => Some(Record::Listed(key, slot)),
            _ => None,
        }
    }
}

/// The keys of a list and their places, from its page. `None`: it is none.
pub(crate) fn read_list(bytes: &[u8]) -> Option<Vec<(Key, u16)>> {
    let records = bytes.chunks(RECORD_BYTES).map(|record| match Record::read(record)? {
        Record::Listed(key, slot) => Some((key, slot)),
        Record::Value(_) => None,
    });
    records.collect()
}

/// The page of a list.
pub(crate) fn list_bytes(list: &[(Key, u16)]) -> Vec<u8> {
    list.iter().flat_map(|(key, slot)| Record::Listed(*key, *slot).to_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_nothing_else_is_one() {
        let key = |bytes: &[u8]| Key::new(bytes).unwrap();
        for record in [Record::Value(key(b"a")), Record::Listed(key(&[255; 16]), 1023)] {
            let bytes = record.to_bytes();
            assert_eq!(Record::read(&bytes), Some(record));
            assert_eq!(Record::read(&bytes[1..]), None);
            for (at, byte) in [(16, 0), (16, 17), (17, 0), (17, 3)] {
                let mut other = bytes;
                other[at] = byte;
                assert_eq!(Record::read(&other), None, "byte {at}");
            }
        }
        let list = vec![(key(b"a"), 0), (key(b"a\0"), 7)];
        assert_eq!(read_list(&list_bytes(&list)), Some(list));
        assert_eq!(read_list(&Record::Value(key(b"a")).to_bytes()), None);
        assert_eq!(read_list(&[0; 19]), None);
    }

    #[test]
    fn a_record_has_its_bytes() {
        let bytes = Record::Listed(Key::new(b"hello").unwrap(), 0x0102).to_bytes();
        assert_eq!(bytes, *b"hello\0\0\0\0\0\0\0\0\0\0\0\x05\x02\x02\x01");
    }
}
