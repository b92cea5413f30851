//! CRC32C (Castagnoli), the checksum of everything that OpenFTL puts on media.

/// CRC32C of `bytes`, initial value and final XOR all ones, as iSCSI and NVMe/TCP define it.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_the_check_string_is_the_published_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
