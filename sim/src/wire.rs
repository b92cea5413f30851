//! The wire between FTL and device, where the power can be cut at any event, also in the middle of a recovery.
//!
//! ```text
//!   FTL ── submit ──▶ [event for each program unit, and for the whole command] ──▶ device
//!       ◀── poll ──── [event for each new moment] ────────────────────────────────
//! ```
//!
//! When the count of events reaches the one chosen, the thread unwinds with `PowerCut`, out of whatever the FTL was
//! doing; of a vector write the device then has the units up to that event. The FTL is gone, the device works on with what
//! it has, and at one of its own instants ([`EmulatedDevice::instants`]) the power goes.
//!
//! A wire that is watched keeps a [`CrashPoint`] for every state in which a power cut could leave the device.

use crate::fate::{Fates, States};
use crate::step::Moment;
use openftl_core::page::PagePool;
use openftl_core::{ChunkId, Frames, Geometry, Nanos, Time, TraceHash};
use openftl_media::{
    Blocks, ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, QueueFull, Tag,
};
use rustc_hash::FxHashSet;
use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// The panic payload of a cut.
struct PowerCut;

/// A device as a power cut leaves it.
pub struct CrashPoint {
    /// The device, its power back on.
    pub device: EmulatedDevice,
    /// Tells it from the others of its history.
    pub fingerprint: u64,
    /// After which event the FTL was gone.
    pub event: u64,
    /// When the power was.
    pub at: Time,
    /// Whether what was being programmed is torn.
    pub torn: bool,
    /// What became of each die, if not the same of all.
    pub fates: Option<Fates>,
    /// What is particular about it.
    pub states: States,
}

#[derive(Default)]
struct Watch {
    looks_beyond: bool,
    /// All prefixes in time were looked at that there are without another command.
    is_looked_at: bool,
    seen: FxHashSet<u64>,
    crash_points: Vec<CrashPoint>,
}

/// One end of a wire to a device; clones share it.
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
    trace: Cell<TraceHash>,
    watch: RefCell<Option<Watch>>,
    /// As [`Media::forgets_writes`] says.
    forgets_writes: bool,
}

impl Wire {
    /// A wire to `device`.
    #[must_use]
    pub fn new(device: EmulatedDevice) -> Wire {
        Wire::to(device, false)
    }

    /// A wire to a copy of a device that is looked at and thrown away.
    #[must_use]
    pub fn to_copy(device: EmulatedDevice) -> Wire {
        Wire::to(device, true)
    }

    fn to(device: EmulatedDevice, forgets_writes: bool) -> Wire {
        let geometry = *device.geometry();
        let shared = Shared {
            device: RefCell::new(device),
            events: Cell::new(0),
            cut_at: Cell::new(u64::MAX),
            now: Cell::new(Time::ZERO),
            trace: Cell::new(TraceHash::START),
            watch: RefCell::default(),
            forgets_writes,
        };
        Wire { shared: Rc::new(shared), geometry }
    }

    /// The same device, which says that it has another geometry.
    #[must_use]
    pub fn pretending(&self, geometry: Geometry) -> Wire {
        Wire { geometry, ..self.clone() }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> RefMut<'_, EmulatedDevice> {
        self.changes();
        self.shared.device.borrow_mut()
    }

    /// The device is not what it was when it was looked at.
    fn changes(&self) {
        if let Some(watch) = &mut *self.shared.watch.borrow_mut() {
            watch.is_looked_at = false;
        }
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.shared.events.get()
    }

    /// A hash over all commands and completions so far.
    #[must_use]
    pub fn trace(&self) -> TraceHash {
        self.shared.trace.get()
    }

    /// The FTL is to be gone when `events` more events have happened, if it is run by [`Wire::until_cut`].
    pub fn arm(&self, events: u64) {
        self.shared.cut_at.set(self.events().saturating_add(events));
    }

    /// It is not to be gone after all.
    pub fn disarm(&self) {
        self.shared.cut_at.set(u64::MAX);
    }

    /// Whether an event was chosen that has not happened yet.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.shared.cut_at.get() != u64::MAX
    }

    /// Runs `work` until it ends, or until `events` more events have happened. Gives whether it was cut.
    pub fn cut_after(&self, events: u64, work: impl FnOnce()) -> bool {
        self.arm(events);
        let cut = self.until_cut(work);
        self.disarm();
        cut
    }

    /// Runs `work` until it ends, or until the event at which the FTL is to be gone. Gives whether it was cut.
    pub fn until_cut(&self, work: impl FnOnce()) -> bool {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => false,
            Err(payload) if payload.is::<PowerCut>() => true,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The FTL is gone, and the power goes at a later instant of the device, counted round; 0 is now. What is being programmed then
    /// may be left torn, or each die has a fate of its own.
    pub fn power_cut(&self, moment: Moment) -> States {
        self.disarm();
        let mut device = self.device();
        let instants = device.instants();
        let at = instants[moment.later as usize % instants.len()];
        match moment.fates {
            Some(fates) => States::of(fates.cut(&mut device, at)),
            None => {
                device.power_cut(at, moment.torn).expect("a store in memory");
                States::prefix()
            }
        }
    }

    /// From now on every state is kept in which a power cut could leave the device.
    pub fn watch(&self) {
        *self.shared.watch.borrow_mut() = Some(Watch::default());
    }

    /// The same, and of those beyond a prefix in time some for each event.
    pub fn watch_beyond(&self) {
        *self.shared.watch.borrow_mut() = Some(Watch { looks_beyond: true, ..Watch::default() });
    }

    /// No state is kept any more.
    pub fn ignore(&self) {
        *self.shared.watch.borrow_mut() = None;
    }

    /// Looks for states once more though the device is as it was: the host has been told something.
    pub fn look(&self) {
        if let Some(watch) = &mut *self.shared.watch.borrow_mut() {
            watch.look(&self.shared.device.borrow(), self.events());
        }
    }

    /// The states found since the last call, in the order in which they were found, each once.
    #[must_use]
    pub fn crash_points(&self) -> Vec<CrashPoint> {
        match &mut *self.shared.watch.borrow_mut() {
            Some(watch) => {
                watch.seen.clear();
                watch.is_looked_at = false;
                std::mem::take(&mut watch.crash_points)
            }
            None => Vec::new(),
        }
    }

    fn event(&self) {
        let shared = &self.shared;
        shared.events.set(shared.events.get() + 1);
        if shared.events.get() == shared.cut_at.get() {
            self.disarm();
            resume_unwind(Box::new(PowerCut));
        }
    }

    fn add_to_trace(&self, words: impl IntoIterator<Item = u64>) {
        let mut trace = self.shared.trace.get();
        words.into_iter().for_each(|word| trace.add(word));
        self.shared.trace.set(trace);
    }

    /// An event after each unit of a vector write but the last: the device may have accepted no more than that.
    fn accept_in_parts(&self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        let Command::Write { blocks: Blocks::Vector(blocks), frames: list, fua } = command else { return Ok(()) };
        let unit = self.geometry.ws_min as usize;
        for end in (unit..blocks.len()).step_by(unit) {
            let part = Command::Write { blocks: Blocks::Vector(&blocks[..end]), frames: &list[..end], fua };
            if self.events() + 1 == self.shared.cut_at.get() {
                self.shared.device.borrow_mut().submit(now, frames, tag, part)?;
            } else if let Some(watch) = &mut *self.shared.watch.borrow_mut() {
                let mut device = forked(&self.shared.device.borrow());
                device.submit(now, frames, tag, part)?;
                watch.is_looked_at = false;
                watch.look(&device, self.events());
            }
            self.event();
        }
        Ok(())
    }
}

/// Of each event, so many states beyond a prefix in time are looked at.
const FATES_PER_EVENT: u32 = 6;

impl Watch {
    fn look(&mut self, device: &EmulatedDevice, event: u64) {
        // Time that passes leaves fewer of them.
        if !std::mem::replace(&mut self.is_looked_at, true) {
            self.look_at_prefixes(device, event);
        }
        if !self.looks_beyond || device.instants().len() == 1 {
            return;
        }
        for number in 0..FATES_PER_EVENT {
            let fates = Fates((event as u32).wrapping_mul(FATES_PER_EVENT).wrapping_add(number));
            let mut device = forked(device);
            let at = device.instants()[0];
            let states = States::of(fates.cut(&mut device, at));
            let fingerprint = device.fingerprint();
            if states.prefix == 0 && self.seen.insert(fingerprint) {
                let fates = Some(fates);
                self.crash_points.push(CrashPoint { device, fingerprint, event, at, torn: false, fates, states });
            }
        }
    }

    fn look_at_prefixes(&mut self, device: &EmulatedDevice, event: u64) {
        for at in device.instants() {
            for torn in [false, true] {
                if torn && !device.would_tear(at) {
                    continue;
                }
                let mut device = forked(device);
                device.power_cut(at, torn).expect("a store in memory");
                let fingerprint = device.fingerprint();
                if self.seen.insert(fingerprint) {
                    let states = States::prefix();
                    self.crash_points.push(CrashPoint { device, fingerprint, event, at, torn, fates: None, states });
                }
            }
        }
    }
}

fn forked(device: &EmulatedDevice) -> EmulatedDevice {
    device.fork().expect("memory for a small device").expect("a store in memory")
}

/// What a command is, for the trace: not its tag, which is a word between the FTL and its own parts.
fn words(command: &Command<'_>) -> impl Iterator<Item = u64> {
    let (kind, blocks) = match *command {
        Command::Read { blocks, .. } => (1, blocks),
        Command::Write { blocks, fua, .. } => (2 + u64::from(fua), blocks),
        Command::Reset { blocks } => (4, blocks),
        Command::Copy { to, .. } => (5, Blocks::Vector(to)),
        Command::Flush => (6, Blocks::Vector(&[])),
    };
    let (first, len) = (if blocks.is_empty() { 0 } else { blocks.get(0).0 }, blocks.len() as u64);
    [kind, first, len].into_iter()
}

impl Media for Wire {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn page_pool(&self) -> PagePool {
        self.shared.device.borrow().page_pool()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        self.accept_in_parts(now, frames, tag, command)?;
        self.shared.device.borrow_mut().submit(now, frames, tag, command)?;
        self.add_to_trace(std::iter::once(now.0).chain(words(&command)));
        if !matches!(command, Command::Read { .. } | Command::Flush) {
            self.changes();
            self.look();
        }
        self.event();
        Ok(())
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        if now > self.shared.now.get() {
            self.shared.now.set(now);
            self.event();
        }
        let before = completions.len();
        self.shared.device.borrow_mut().poll(now, frames, completions);
        let ended = completions[before..].iter();
        self.add_to_trace(ended.flat_map(|ended| [ended.at.0, ended.status as u64, ended.failed]));
    }

    fn next_due(&self) -> Option<Time> {
        self.shared.device.borrow().next_due()
    }

    fn needs_flush(&self) -> bool {
        self.shared.device.borrow().needs_flush()
    }

    fn forgets_writes(&self) -> bool {
        self.shared.forgets_writes || self.shared.device.borrow().forgets_writes()
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
