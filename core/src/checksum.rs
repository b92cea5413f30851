//! CRC32C (Castagnoli), the checksum of everything that OpenFTL puts on media, and of NVMe/TCP.

pub use openftl_crc32c::{Crc32c, crc32c};
