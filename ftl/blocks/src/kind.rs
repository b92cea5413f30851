//! Which FTL a drive was formatted for, as its superblock says it: blocks alone, or blocks beside a tenant.

use openftl_parts::words::TenantNote;

/// Which FTL a drive was formatted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DriveKind {
    /// Blocks alone.
    Blocks,
    /// Tables, and a log area.
    Tables,
    /// Zones.
    Zones,
    /// Something of a later version.
    Newer,
}

impl DriveKind {
    /// That of a drive with a catalog of so many blocks, and with this tenant.
    #[must_use]
    pub fn of(catalog_blocks: u32, tenant: TenantNote) -> DriveKind {
        match (catalog_blocks, tenant.kind) {
            (0, _) => DriveKind::Blocks,
            (_, 0) => DriveKind::Tables,
            (_, 1) => DriveKind::Zones,
            _ => DriveKind::Newer,
        }
    }

    /// The word for such a drive.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DriveKind::Blocks => "block",
            DriveKind::Tables => "table",
            DriveKind::Zones => "zoned",
            DriveKind::Newer => "newer",
        }
    }
}
