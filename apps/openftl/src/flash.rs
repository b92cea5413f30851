//! The flash under a drive: emulated in this process, or a device of another machine.

use openftl_core::{ChunkId, Frames, Geometry, Nanos, Time};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, QueueFull, Tag,
};
use openftl_nvme_media::FabricDevice;

/// The flash under a drive.
#[expect(clippy::large_enum_variant, reason = "a drive has one, and nobody moves it about")]
pub enum Flash {
    /// Emulated in this process: it can be looked into, and made to fail.
    Emulated(EmulatedDevice),
    /// An Open-Channel namespace that is reached over NVMe/TCP.
    Remote(Box<FabricDevice>),
}

impl From<EmulatedDevice> for Flash {
    fn from(device: EmulatedDevice) -> Flash {
        Flash::Emulated(device)
    }
}

impl Flash {
    /// The emulated device, if it is one.
    pub fn emulated(&self) -> Option<&EmulatedDevice> {
        match self {
            Flash::Emulated(device) => Some(device),
            Flash::Remote(_) => None,
        }
    }

    /// The same, to be operated.
    pub fn emulated_mut(&mut self) -> Option<&mut EmulatedDevice> {
        match self {
            Flash::Emulated(device) => Some(device),
            Flash::Remote(_) => None,
        }
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        self.emulated().map_or("flash on another machine", |device| &device.profile().name)
    }

    /// What is wrong behind it, if anything is.
    pub fn error(&self) -> Option<String> {
        match self {
            Flash::Emulated(device) => {
                device.store_error().map(|error| format!("the file behind the drive failed: {error}"))
            }
            Flash::Remote(device) => {
                device.cut().map(|why| format!("the link to the device behind the drive was cut: {why}"))
            }
        }
    }
}

/// The same of either.
macro_rules! either {
    ($flash:expr, $device:ident => $what:expr) => {
        match $flash {
            Flash::Emulated($device) => $what,
            Flash::Remote($device) => $what,
        }
    };
}

impl Media for Flash {
    #[inline]
    fn geometry(&self) -> &Geometry {
        either!(self, device => device.geometry())
    }

    #[inline]
    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        either!(self, device => device.submit(now, frames, tag, command))
    }

    #[inline]
    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        either!(self, device => device.poll(now, frames, completions));
    }

    #[inline]
    fn next_due(&self) -> Option<Time> {
        either!(self, device => device.next_due())
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        either!(self, device => device.chunk_report(now, first, descriptors))
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        either!(self, device => device.notifications(now, after, notifications))
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        either!(self, device => device.set_dulbe(dulbe));
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        either!(self, device => device.pu_busy())
    }
}
