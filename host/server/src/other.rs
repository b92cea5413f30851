//! What is served to NVMe hosts beside drives of blocks.

use openftl_core::{Frames, Geometry};
use openftl_media::Media;
use openftl_pages::PageFtl;
use openftl_values::ValueFtl;
use openftl_zones::ZoneFtl;

/// An Open-Channel device under an NVMe namespace, with the memory that payload travels in.
pub struct Device<M> {
    pub(crate) media: M,
    pub(crate) frames: Frames,
}

impl<M: Media> Device<M> {
    /// `blocks` blocks of payload may be under way at a time, at least those of two of the longest commands.
    #[must_use]
    pub fn new(media: M, blocks: usize) -> Device<M> {
        let blocks = blocks.max(2 * openftl_media::SCALAR_BLOCKS_MAX as usize);
        let frames = Frames::on(media.page_pool(), blocks, 0, media.geometry().oob_bytes as usize);
        Device { media, frames }
    }

    /// The device.
    #[must_use]
    pub fn media(&self) -> &M {
        &self.media
    }

    /// The device, to be operated.
    pub fn media_mut(&mut self) -> &mut M {
        &mut self.media
    }

    /// The device again, when it is served no more.
    #[must_use]
    pub fn into_media(self) -> M {
        self.media
    }
}

/// What is served to NVMe hosts beside drives of blocks. All of them have to keep bytes.
pub enum Other<M: Media> {
    /// A zoned drive, seen as zones or as segments.
    Zones(Box<ZoneFtl<M>>),
    /// A store of pages.
    Pages(Box<PageFtl<M>>),
    /// A key-value drive.
    Values(Box<ValueFtl<M>>),
    /// An Open-Channel device.
    Device(Device<M>),
}

/// The shape of a device.
impl<M: Media> Device<M> {
    /// As hosts learn it.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        *self.media.geometry()
    }
}
