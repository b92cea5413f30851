//! A wire between FTL and device that can be cut at any event, also in the middle of a recovery.
//!
//! An event is a command that the device has accepted, or a new moment at which it is asked what has ended. When the
//! count reaches the one chosen the thread unwinds with [`PowerCut`], out of whatever the FTL was doing; the device
//! stays with the test.

use openftl_core::{ChunkId, Frames, Geometry, Nanos, Time};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, QueueFull, Tag,
};
use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// The panic payload of a cut.
struct PowerCut;

#[derive(Clone)]
pub struct Wire {
    shared: Rc<Shared>,
    geometry: Geometry,
}

struct Shared {
    device: RefCell<EmulatedDevice>,
    events: Cell<u64>,
    cut_at: Cell<u64>,
    now: Cell<Time>,
    before: Cell<Time>,
}

impl Wire {
    pub fn new(device: EmulatedDevice) -> Wire {
        let geometry = *device.geometry();
        let shared = Shared {
            device: RefCell::new(device),
            events: Cell::new(0),
            cut_at: Cell::new(u64::MAX),
            now: Cell::new(Time::ZERO),
            before: Cell::new(Time::ZERO),
        };
        Wire { shared: Rc::new(shared), geometry }
    }

    /// The same device, which says that it has another geometry.
    pub fn pretending(&self, geometry: Geometry) -> Wire {
        Wire { geometry, ..self.clone() }
    }

    pub fn device(&self) -> RefMut<'_, EmulatedDevice> {
        self.shared.device.borrow_mut()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.shared.events.get()
    }

    /// Runs `work` until it ends, or until `events` more events have happened. Gives whether it was cut.
    pub fn cut_after(&self, events: u64, work: impl FnOnce()) -> bool {
        self.shared.cut_at.set(self.events().saturating_add(events));
        let ended = catch_unwind(AssertUnwindSafe(work));
        self.shared.cut_at.set(u64::MAX);
        match ended {
            Ok(()) => false,
            Err(payload) if payload.is::<PowerCut>() => true,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The power goes: with `torn` in the middle of the time since the event before, leaving what is being programmed
    /// torn, and without it at the event itself.
    pub fn power_cut(&self, torn: bool) {
        let (before, now) = (self.shared.before.get(), self.shared.now.get());
        let at = if torn { before + Nanos(now.since(before).0 / 2) } else { now };
        self.device().power_cut(at, torn).expect("a store in memory");
    }

    fn event(&self) {
        let shared = &self.shared;
        shared.events.set(shared.events.get() + 1);
        if shared.events.get() == shared.cut_at.get() {
            resume_unwind(Box::new(PowerCut));
        }
    }
}

impl Media for Wire {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        self.shared.device.borrow_mut().submit(now, frames, tag, command)?;
        self.event();
        Ok(())
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        if now > self.shared.now.get() {
            self.shared.before.set(self.shared.now.replace(now));
            self.event();
        }
        self.shared.device.borrow_mut().poll(now, frames, completions);
    }

    fn next_due(&self) -> Option<Time> {
        self.shared.device.borrow().next_due()
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.shared.device.borrow_mut().chunk_report(now, first, descriptors)
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        self.shared.device.borrow_mut().notifications(now, after, notifications)
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.shared.device.borrow_mut().set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.shared.device.borrow().pu_busy()
    }
}
