//! CRC32C (Castagnoli), the checksum of everything that OpenFTL puts on media, and of NVMe/TCP.

/// CRC32C of `bytes`, initial value and final XOR all ones, as iSCSI and NVMe/TCP define it.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    openftl_crc32c::crc32c(bytes)
}

/// CRC32C of bytes that come in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32c {
    state: u32,
}

impl Crc32c {
    /// Of no bytes yet.
    #[must_use]
    pub fn new() -> Crc32c {
        Crc32c { state: !0 }
    }

    /// The next piece.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.state = openftl_crc32c::update(self.state, bytes);
    }

    /// What [`crc32c`] says of all pieces together.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u32 {
        !self.state
    }
}

impl Default for Crc32c {
    fn default() -> Crc32c {
        Crc32c::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_the_check_string_is_the_published_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn pieces_have_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|index| (index * 7 + index / 256) as u8).collect();
        for cut in [0, 1, 3, 8, 255, 4096, 9_999, 10_000] {
            let mut pieces = Crc32c::new();
            pieces.update(&bytes[..cut]);
            pieces.update(&[]);
            pieces.update(&bytes[cut..]);
            assert_eq!(pieces.value(), crc32c(&bytes), "cut at {cut}");
        }
        assert_eq!(Crc32c::new().value(), crc32c(b""));
    }
}
