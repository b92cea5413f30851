//! The flash under a drive: a device that is emulated in this process, a part of one, or a device of another machine.

use openftl_core::page::PagePool;
use openftl_core::{ChunkId, Frames, Geometry, Nanos, Ppa, Time};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Part, QueueFull, Tag,
};
use openftl_nvme_media::FabricDevice;
use std::collections::HashMap;

/// The flash under a drive.
#[expect(clippy::large_enum_variant, reason = "a drive has one, and nobody moves it about")]
pub enum Flash {
    /// Emulated in this process: it can be looked into, and made to fail.
    Emulated(EmulatedDevice),
    /// Some parallel units of such a device; others have the rest.
    Part(Part),
    /// An Open-Channel namespace that is reached over NVMe/TCP.
    Remote(Box<FabricDevice>),
}

impl From<EmulatedDevice> for Flash {
    fn from(device: EmulatedDevice) -> Flash {
        Flash::Emulated(device)
    }
}

impl Flash {
    /// Whether it is emulated in this process.
    pub fn is_emulated(&self) -> bool {
        !matches!(self, Flash::Remote(_))
    }

    /// Looks at the emulated device, which others may have a part of too, if it is one.
    pub fn look<R>(&self, look: impl FnOnce(&EmulatedDevice) -> R) -> Option<R> {
        match self {
            Flash::Emulated(device) => Some(look(device)),
            Flash::Part(part) => Some(look(&part.device())),
            Flash::Remote(_) => None,
        }
    }

    /// The same, to operate it. Its addresses are what [`Flash::on_device`] and [`Flash::chunk_on_device`] say.
    pub fn operate<R>(&mut self, deed: impl FnOnce(&mut EmulatedDevice) -> R) -> Option<R> {
        match self {
            Flash::Emulated(device) => Some(deed(device)),
            Flash::Part(part) => Some(deed(&mut part.device_mut())),
            Flash::Remote(_) => None,
        }
    }

    /// Where an address of this flash is on its device.
    pub fn on_device(&self, ppa: Ppa) -> Ppa {
        if let Flash::Part(part) = self { part.on_device(ppa) } else { ppa }
    }

    /// Where a chunk of this flash is on its device.
    pub fn chunk_on_device(&self, chunk: ChunkId) -> ChunkId {
        if let Flash::Part(part) = self { part.chunk_on_device(chunk) } else { chunk }
    }

    /// What people call it.
    pub fn name(&self) -> String {
        self.look(|device| device.profile().name.clone()).unwrap_or_else(|| "flash on another machine".to_owned())
    }

    /// Erases of each chunk so far, in the order of [`Geometry::chunk_ids`]; none if the flash is elsewhere.
    pub fn wear(&self) -> Vec<u32> {
        let on_device: HashMap<ChunkId, u32> = self.look(|device| device.wear().collect()).unwrap_or_default();
        let resets = |chunk| on_device.get(&self.chunk_on_device(chunk)).copied();
        self.geometry().chunk_ids().filter_map(resets).collect()
    }

    /// What is wrong behind it, if anything is.
    pub fn error(&self) -> Option<String> {
        if let Flash::Remote(device) = self {
            return device.cut().map(|why| format!("the link to the device behind the drive was cut: {why}"));
        }
        let error = self.look(EmulatedDevice::store_error).flatten()?;
        Some(format!("the file behind the drive failed: {error}"))
    }
}

/// The same of each.
macro_rules! each {
    ($flash:expr, $device:ident => $what:expr) => {
        match $flash {
            Flash::Emulated($device) => $what,
            Flash::Part($device) => $what,
            Flash::Remote($device) => $what,
        }
    };
}

impl Media for Flash {
    fn geometry(&self) -> &Geometry {
        each!(self, device => device.geometry())
    }

    fn page_pool(&self) -> PagePool {
        each!(self, device => device.page_pool())
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        each!(self, device => device.submit(now, frames, tag, command))
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        each!(self, device => device.poll(now, frames, completions));
    }

    fn next_due(&self) -> Option<Time> {
        each!(self, device => device.next_due())
    }

    fn needs_flush(&self) -> bool {
        each!(self, device => device.needs_flush())
    }

    fn forgets_writes(&self) -> bool {
        each!(self, device => device.forgets_writes())
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        each!(self, device => device.chunk_report(now, first, descriptors))
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        each!(self, device => device.notifications(now, after, notifications))
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        each!(self, device => device.set_dulbe(dulbe));
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        each!(self, device => device.pu_busy())
    }
}
