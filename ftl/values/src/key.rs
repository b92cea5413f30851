//! A key: 1 to 16 bytes, in the order of their bytes. A key and the same with a zero behind it are two keys.

use crate::error::ValueError;
use std::fmt;
use std::hash::Hasher;

/// Bytes of a key, at most.
pub const KEY_BYTES_MAX: usize = 16;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    // Zeroes behind the end, and the length after them: the derived order is that of the bytes, and what is shorter comes first.
    bytes: [u8; KEY_BYTES_MAX],
    length: u8,
}

impl Key {
    /// The key with these bytes.
    ///
    /// # Errors
    /// If there are none, or more than 16.
    pub fn new(bytes: &[u8]) -> Result<Key, ValueError> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(ValueError::KeySize { bytes: bytes.len() as u64, most: KEY_BYTES_MAX as u8 });
        }
        let mut key = Key { bytes: [0; KEY_BYTES_MAX], length: bytes.len() as u8 };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(key)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// Its bytes with zeroes behind them, as media and wires have them.
    #[must_use]
    pub fn padded(&self) -> [u8; KEY_BYTES_MAX] {
        self.bytes
    }

    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// From its padded form. `None`: the length is none of a key, or something is behind it.
    #[must_use]
    pub fn from_padded(bytes: [u8; KEY_BYTES_MAX], length: u8) -> Option<Key> {
        let is_key = (1..=KEY_BYTES_MAX).contains(&usize::from(length))
            && bytes[usize::from(length)..].iter().all(|byte| *byte == 0);
        is_key.then_some(Key { bytes, length })
    }

    /// The number of its page: `bits` bits of SipHash-1-3 under the seed of the drive, which hosts do not know.
    #[must_use]
    pub fn number(&self, seed: [u64; 2], bits: u32) -> u64 {
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(seed[0], seed[1]);
        hasher.write(self.bytes());
        if bits == 0 { 0 } else { hasher.finish() >> (u64::BITS - bits) }
    }
}

/// Letters and digits as they are, anything else in hexadecimal.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.starts_with("0x") => {
                f.write_str(text)
            }
            _ => {
                f.write_str("0x")?;
                self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_bytes_and_a_zero_behind_makes_another_one() {
        let order: [&[u8]; 7] = [b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"a\x01", b"b"];
        let keys = order.map(|bytes| Key::new(bytes).unwrap());
        assert!(keys.is_sorted_by(|a, b| a < b));
        for (key, bytes) in keys.iter().zip(order) {
            assert_eq!((key.bytes(), Key::from_padded(key.padded(), key.length())), (bytes, Some(*key)));
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(Key::new(b""), Err(ValueError::KeySize { bytes: 0, most: 16 }));
        assert_eq!(Key::new(&[7; 17]), Err(ValueError::KeySize { bytes: 17, most: 16 }));
        assert_eq!(Key::new(&[7; 16]).map(|key| key.length()), Ok(16));
        assert_eq!(Key::from_padded([0; 16], 0), None);
        assert_eq!(Key::from_padded([1; 16], 17), None);
        assert_eq!(Key::from_padded([1; 16], 15), None);
    }

    #[test]
    fn a_key_is_shown_as_text_or_in_hexadecimal() {
        let show = |bytes: &[u8]| Key::new(bytes).unwrap().to_string();
        assert_eq!(
            (show(b"user:1"), show(b"a b"), show(b"0x41")),
            ("user:1".into(), "0x612062".into(), "0x30783431".into())
        );
    }

    #[test]
    fn numbers_follow_from_the_seed_and_have_so_many_bits() {
        let keys: Vec<Key> = (0..1000_u32).map(|number| Key::new(&number.to_le_bytes()).unwrap()).collect();
        let numbers = |seed, bits| keys.iter().map(move |key| key.number(seed, bits));
        assert!(numbers([1, 2], 12).all(|number| number < 1 << 12) && numbers([1, 2], 0).all(|number| number == 0));
        let same = numbers([1, 2], 12).zip(numbers([1, 3], 12)).filter(|(one, other)| one == other).count();
        assert!(same < 10, "{same}");
    }
}
