//! A drive of any kind: what it is for is an argument when it is made, and is found when it is opened.
//!
//! This is the one place where all FTLs meet. Whoever makes, opens, verifies or stops drives does that through [`Ftl`], and does not ask
//! what they are for.

use openftl_blocks::{BlockFtl, CheckReport, DriveKind, Ftl, kind_on};
use openftl_core::Clock;
use openftl_media::Media;
use openftl_pages::PageFtl;
use openftl_parts::{Access, Config, OpenError};
use openftl_tables::TableFtl;
use openftl_values::{ValueConfig, ValueFtl};
use openftl_zones::{AskedLimits, ZoneConfig, ZoneFtl};

/// See the module.
pub enum AnyDrive<M: Media> {
    /// Blocks.
    Blocks(Box<BlockFtl<M>>),
    /// Tables, and blocks beside them.
    Tables(Box<TableFtl<M>>),
    /// Zones, which hosts may see as segments.
    Zones(Box<ZoneFtl<M>>),
    /// Pages of any size.
    Pages(Box<PageFtl<M>>),
    /// Keys and values.
    Values(Box<ValueFtl<M>>),
}

/// What a new drive is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Blocks.
    Blocks,
    /// Tables.
    Tables,
    /// Zones like these.
    Zones(ZoneConfig),
    /// Pages of any size.
    Pages,
    /// Keys and values like these.
    Values(ValueConfig),
}

macro_rules! of_any {
    ($drive:expr, $ftl:ident => $result:expr) => {
        match $drive {
            AnyDrive::Blocks($ftl) => $result,
            AnyDrive::Tables($ftl) => $result,
            AnyDrive::Zones($ftl) => $result,
            AnyDrive::Pages($ftl) => $result,
            AnyDrive::Values($ftl) => $result,
        }
    };
}

impl<M: Media> AnyDrive<M> {
    /// The tables, if it has any.
    #[must_use]
    pub fn tables(&self) -> Option<&TableFtl<M>> {
        if let AnyDrive::Tables(drive) = self { Some(drive) } else { None }
    }

    /// The pages, if it has any.
    #[must_use]
    pub fn pages(&self) -> Option<&PageFtl<M>> {
        if let AnyDrive::Pages(drive) = self { Some(drive) } else { None }
    }

    /// The keys and values, if it has any.
    #[must_use]
    pub fn values(&self) -> Option<&ValueFtl<M>> {
        if let AnyDrive::Values(drive) = self { Some(drive) } else { None }
    }

    /// The zones, if it has any.
    #[must_use]
    pub fn zones(&self) -> Option<&ZoneFtl<M>> {
        if let AnyDrive::Zones(drive) = self { Some(drive) } else { None }
    }
}

impl<M: Media> From<BlockFtl<M>> for AnyDrive<M> {
    fn from(drive: BlockFtl<M>) -> AnyDrive<M> {
        AnyDrive::Blocks(Box::new(drive))
    }
}

impl<M: Media> From<TableFtl<M>> for AnyDrive<M> {
    fn from(drive: TableFtl<M>) -> AnyDrive<M> {
        AnyDrive::Tables(Box::new(drive))
    }
}

impl<M: Media> From<ZoneFtl<M>> for AnyDrive<M> {
    fn from(drive: ZoneFtl<M>) -> AnyDrive<M> {
        AnyDrive::Zones(Box::new(drive))
    }
}

impl<M: Media> From<PageFtl<M>> for AnyDrive<M> {
    fn from(drive: PageFtl<M>) -> AnyDrive<M> {
        AnyDrive::Pages(Box::new(drive))
    }
}

impl<M: Media> From<ValueFtl<M>> for AnyDrive<M> {
    fn from(drive: ValueFtl<M>) -> AnyDrive<M> {
        AnyDrive::Values(Box::new(drive))
    }
}

impl<M: Media> Ftl for AnyDrive<M> {
    type Media = M;
    type Shape = Shape;
    type Asked = AskedLimits;

    fn format(media: M, config: Config, shape: Shape, clock: &mut dyn Clock) -> Result<Self, OpenError> {
        match shape {
            Shape::Blocks => BlockFtl::format(media, config, clock).map(AnyDrive::from),
            Shape::Tables => TableFtl::format(media, config, (), clock).map(AnyDrive::from),
            Shape::Zones(zones) => ZoneFtl::format(media, config, zones, clock).map(AnyDrive::from),
            Shape::Pages => PageFtl::format(media, config, (), clock).map(AnyDrive::from),
            Shape::Values(values) => ValueFtl::format(media, config, values, clock).map(AnyDrive::from),
        }
    }

    fn open_with(
        mut media: M,
        config: Config,
        limits: AskedLimits,
        access: Access,
        clock: &mut dyn Clock,
    ) -> Result<Self, OpenError> {
        // Who opens it says what is wrong with it.
        match kind_on(&mut media, clock).unwrap_or(DriveKind::Blocks) {
            DriveKind::Tables => TableFtl::open_with(media, config, (), access, clock).map(AnyDrive::from),
            DriveKind::Zones | DriveKind::Segments => {
                ZoneFtl::open_with(media, config, limits, access, clock).map(AnyDrive::from)
            }
            DriveKind::Pages => PageFtl::open_with(media, config, (), access, clock).map(AnyDrive::from),
            DriveKind::Values => ValueFtl::open_with(media, config, (), access, clock).map(AnyDrive::from),
            DriveKind::Blocks | DriveKind::Newer => {
                BlockFtl::open_with(media, config, access, clock).map(AnyDrive::from)
            }
        }
    }

    fn block(&self) -> &BlockFtl<M> {
        match self {
            AnyDrive::Blocks(drive) => drive,
            AnyDrive::Tables(drive) => drive.block(),
            AnyDrive::Zones(drive) => drive.block(),
            AnyDrive::Pages(drive) => drive.block(),
            AnyDrive::Values(drive) => drive.block(),
        }
    }

    fn reset_statistics(&mut self) {
        of_any!(self, drive => (**drive).reset_statistics());
    }

    fn map_memory_bytes(&self) -> u64 {
        of_any!(self, drive => (**drive).map_memory_bytes())
    }

    fn over_provisioning(&self) -> f64 {
        of_any!(self, drive => (**drive).over_provisioning())
    }

    fn describe(&self) -> String {
        of_any!(self, drive => (**drive).describe())
    }

    fn check(&mut self, clock: &mut dyn Clock, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
        of_any!(self, drive => drive.check(clock, progress))
    }

    fn close(self, clock: &mut dyn Clock) -> Result<M, OpenError> {
        of_any!(self, drive => drive.close(clock))
    }

    fn crash(self) -> M {
        of_any!(self, drive => drive.crash())
    }
}
