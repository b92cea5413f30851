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
    /// Zones that hosts see as segments.
    Segments,
    /// Pages of any size.
    Pages,
    /// Keys and values.
    Values,
    /// Something of a later version.
    Newer,
}

impl DriveKind {
    /// That of a drive with a catalog of so many blocks, and with this tenant.
    #[must_use]
    pub fn of(catalog_blocks: u32, tenant: TenantNote) -> DriveKind {
        match (catalog_blocks, tenant.family()) {
            (0, _) => DriveKind::Blocks,
            (_, 0) if tenant.kind == 0 => DriveKind::Tables,
            (_, 0) if tenant.kind == TenantNote::PAGES => DriveKind::Pages,
            (_, 0) if tenant.kind == TenantNote::VALUES => DriveKind::Values,
            // 3: with windows.
            (_, 1 | 3) => DriveKind::Zones,
            (_, 2) => DriveKind::Segments,
            _ => DriveKind::Newer,
        }
    }

    /// Whether it is zones, however hosts see them.
    #[must_use]
    pub fn has_zones(self) -> bool {
        matches!(self, DriveKind::Zones | DriveKind::Segments)
    }

    /// The word for such a drive.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DriveKind::Blocks => "block",
            DriveKind::Tables => "table",
            DriveKind::Zones => "zoned",
            DriveKind::Segments => "segment",
            DriveKind::Pages => "page",
            DriveKind::Values => "key-value",
            DriveKind::Newer => "newer",
        }
    }
}
