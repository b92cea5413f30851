//! The checksum behind payload (TCP, "PDU Digests"): CRC32C over the data alone, in little-endian.

use openftl_core::checksum::Crc32c;

use crate::pdu::DIGEST_BYTES;

/// The digest of data that are put in line behind a header. Whoever got it shows it those data, in order, and puts what
/// it comes to behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "the digest belongs behind the data"]
pub struct DataDigest {
    crc: Crc32c,
}

impl DataDigest {
    /// The next bytes of the data.
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    /// What follows the data.
    #[must_use]
    pub fn bytes(self) -> [u8; DIGEST_BYTES] {
        self.crc.value().to_le_bytes()
    }
}
