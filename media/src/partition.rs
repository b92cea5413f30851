//! Parts of one emulated device, each a device of its own: tenants that share a controller and no parallel unit.
//!
//! ```text
//!   device      group 0   group 1   group 2   group 3          Partition { groups: 0..2, pus: 0..2 }   a block FTL
//!     PU 0      ▒▒▒▒▒▒▒   ▒▒▒▒▒▒▒   ░░░░░░░   ░░░░░░░          Partition { groups: 2..4, pus: 0..2 }   a host's own FTL
//!     PU 1      ▒▒▒▒▒▒▒   ▒▒▒▒▒▒▒   ░░░░░░░   ░░░░░░░
//! ```
//!
//! A part counts groups and parallel units from zero and sees the chunks, notifications and completions of its own. Of the
//! device's queue each has an equal share, so that none finds it full of another's commands. What is the whole device's and
//! stays shared: channels that two parts have a group on, the power, and DULBE, for which the last word counts.

use crate::conformance::Inject;
use crate::contract::{
    Blocks, ChunkDescriptor, Command, Completion, Media, MediaError, Notification, QueueFull, Status, Tag,
};
use crate::device::{COMMANDS_MAX, EmulatedDevice, ProgramFailure};
use openftl_core::page::PagePool;
use openftl_core::{Address, AddressFormat, ChunkId, Frames, Geometry, Nanos, Ppa, PuId, Time, VECTOR_BLOCKS_MAX};
use std::cell::{Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// Notifications that a part keeps.
const NOTIFICATIONS_MAX: usize = 256;

/// An address that no device has.
const NOWHERE: Ppa = Ppa(1 << 62);

/// Which parallel units a part has: those of `pus` in each of `groups`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Groups of the device.
    pub groups: Range<u32>,
    /// Parallel units of each of these groups.
    pub pus: Range<u32>,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partition { groups, pus } = self;
        write!(f, "groups {}, parallel units {}", span(groups), span(pus))
    }
}

/// Numbers as people write them: `0-3`, or one alone.
#[must_use]
pub fn span(numbers: &Range<u32>) -> String {
    match numbers.len() {
        1 => numbers.start.to_string(),
        _ => format!("{}-{}", numbers.start, i64::from(numbers.end) - 1),
    }
}

/// Why a device cannot be split so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartitionError {
    /// A part is empty or reaches beyond the device.
    #[error("{partition}: the device has {device_groups} groups of {device_pus}, counted from 0")]
    Outside {
        /// As asked for.
        partition: Partition,
        /// Of the device.
        device_groups: u32,
        /// Of the device.
        device_pus: u32,
    },
    /// Two parts have a parallel unit in common.
    #[error("parts {one} and {other} both have group {group}, parallel unit {pu}: give it to one of them")]
    Shared {
        /// The first, in the order given.
        one: usize,
        /// The second.
        other: usize,
        /// A group that both have.
        group: u32,
        /// A parallel unit of it that both have.
        pu: u32,
    },
    /// The device counts the open chunks of all its parts together: one tenant could use up another's.
    #[error("open_chunks_max = {open_chunks_max} holds for the whole device, and parts cannot share it; set it to 0")]
    OpenChunks {
        /// Of the device.
        open_chunks_max: u32,
    },
}

/// What is under way for a part.
#[derive(Clone, Copy)]
struct Errand {
    part: usize,
    tag: Tag,
}

#[derive(Default)]
struct Inbox {
    /// Commands of the part that the device has.
    under_way: usize,
    completions: VecDeque<Completion>,
    notifications: VecDeque<Notification>,
    notified: u64,
}

struct Whole {
    device: EmulatedDevice,
    /// By the device's tag.
    errands: Vec<Option<Errand>>,
    free: Vec<u32>,
    inboxes: Vec<Inbox>,
    parts: Vec<Partition>,
    /// The last notification that was handed out.
    notified: u64,
    completions: Vec<Completion>,
}

/// A part of a device.
pub struct Part {
    whole: Rc<RefCell<Whole>>,
    index: usize,
    partition: Partition,
    geometry: Geometry,
    device_format: AddressFormat,
}

/// Whether a device of this shape can be split so: into parts that have no parallel unit in common.
///
/// # Errors
/// If a part is not on the device, or two of them overlap.
pub fn check(geometry: &Geometry, partitions: &[Partition]) -> Result<(), PartitionError> {
    if geometry.open_chunks_max > 0 {
        return Err(PartitionError::OpenChunks { open_chunks_max: geometry.open_chunks_max });
    }
    let both = |one: &Range<u32>, other: &Range<u32>| one.start.max(other.start)..one.end.min(other.end);
    for (other, partition) in partitions.iter().enumerate() {
        let Partition { groups, pus } = partition.clone();
        if groups.is_empty() || pus.is_empty() || groups.end > geometry.groups || pus.end > geometry.pus_per_group {
            let (device_groups, device_pus) = (geometry.groups, geometry.pus_per_group);
            return Err(PartitionError::Outside { partition: partition.clone(), device_groups, device_pus });
        }
        for (one, earlier) in partitions[..other].iter().enumerate() {
            let (groups, pus) = (both(&earlier.groups, &groups), both(&earlier.pus, &pus));
            if !groups.is_empty() && !pus.is_empty() {
                return Err(PartitionError::Shared { one, other, group: groups.start, pu: pus.start });
            }
        }
    }
    Ok(())
}

impl Partition {
    /// The shape of such a part of a device of `geometry`.
    #[must_use]
    pub fn shape(&self, geometry: &Geometry) -> Geometry {
        Geometry { groups: self.groups.len() as u32, pus_per_group: self.pus.len() as u32, ..*geometry }
    }
}

/// Splits `device` into parts that have no parallel unit in common. What no part has is left alone.
///
/// # Errors
/// If a part is not on the device, or two of them overlap.
pub fn split(device: EmulatedDevice, partitions: Vec<Partition>) -> Result<Vec<Part>, PartitionError> {
    let geometry = *device.geometry();
    check(&geometry, &partitions)?;
    let shapes: Vec<Geometry> = partitions.iter().map(|partition| partition.shape(&geometry)).collect();
    let whole = Rc::new(RefCell::new(Whole {
        device,
        errands: Vec::new(),
        free: Vec::new(),
        inboxes: partitions.iter().map(|_| Inbox::default()).collect(),
        parts: partitions.clone(),
        notified: 0,
        completions: Vec::new(),
    }));
    let part = |(index, (partition, geometry)): (usize, (Partition, Geometry))| {
        let device_format = whole.borrow().device.geometry().format();
        Part { whole: Rc::clone(&whole), index, partition, geometry, device_format }
    };
    Ok(partitions.into_iter().zip(shapes).enumerate().map(part).collect())
}

/// The device again, when all of its parts are handed back. What is under way goes on, and its completions are nobody's:
/// this is for a device whose power is about to go, or that is closed.
///
/// # Panics
/// If a part is missing, or there is none.
#[must_use]
pub fn join(parts: Vec<Part>) -> EmulatedDevice {
    let whole = Rc::clone(&parts.first().expect("a device is split into some parts").whole);
    assert!(parts.iter().all(|part| Rc::ptr_eq(&part.whole, &whole)), "they are parts of one device");
    drop(parts);
    Rc::into_inner(whole).expect("all parts are handed back").into_inner().device
}

impl Whole {
    /// Takes what the device has completed, and puts it where it belongs.
    fn poll(&mut self, now: Time, frames: &mut Frames) {
        let mut completions = std::mem::take(&mut self.completions);
        self.device.poll(now, frames, &mut completions);
        for completion in completions.drain(..) {
            let index = completion.tag as usize;
            let Errand { part, tag } = self.errands[index].take().expect("a command ends once");
            self.free.push(index as u32);
            self.inboxes[part].under_way -= 1;
            self.inboxes[part].completions.push_back(Completion { tag, ..completion });
        }
        self.completions = completions;
    }

    /// Takes the device's notifications, and puts them where they belong.
    fn take_notifications(&mut self, now: Time) -> Result<(), MediaError> {
        let mut notifications = Vec::new();
        self.device.notifications(now, self.notified, &mut notifications)?;
        let format = self.device.geometry().format();
        for notification in notifications {
            self.notified = notification.count;
            let address = format.unpack(notification.ppa);
            let has = |part: &Partition| part.groups.contains(&address.group) && part.pus.contains(&address.pu);
            let Some(part) = self.parts.iter().position(has) else { continue };
            let inbox = &mut self.inboxes[part];
            inbox.notified += 1;
            if inbox.notifications.len() == NOTIFICATIONS_MAX {
                inbox.notifications.pop_front();
            }
            inbox.notifications.push_back(Notification { count: inbox.notified, ..notification });
        }
        Ok(())
    }
}

impl Part {
    /// The whole device, to be operated: faults, power, statistics.
    #[must_use]
    pub fn device(&self) -> Ref<'_, EmulatedDevice> {
        Ref::map(self.whole.borrow(), |whole| &whole.device)
    }

    /// The same, to change it.
    #[must_use]
    pub fn device_mut(&self) -> RefMut<'_, EmulatedDevice> {
        RefMut::map(self.whole.borrow_mut(), |whole| &mut whole.device)
    }

    /// Where an address of this part is on the device; nowhere if the part has none such.
    #[must_use]
    pub fn on_device(&self, ppa: Ppa) -> Ppa {
        let format = self.geometry.format();
        if ppa.0 >> format.bits() != 0 || !self.geometry.has_chunk(format.chunk_of(ppa)) {
            return NOWHERE;
        }
        let Address { group, pu, chunk, block } = format.unpack(ppa);
        let (group, pu) = (group + self.partition.groups.start, pu + self.partition.pus.start);
        self.device_format.pack(Address { group, pu, chunk, block })
    }

    /// Where an address of the device is in this part, which has it.
    fn in_part(&self, ppa: Ppa) -> Ppa {
        let Address { group, pu, chunk, block } = self.device_format.unpack(ppa);
        let (group, pu) = (group - self.partition.groups.start, pu - self.partition.pus.start);
        self.geometry.format().pack(Address { group, pu, chunk, block })
    }

    fn list<'a>(&self, ppas: &[Ppa], room: &'a mut [Ppa; VECTOR_BLOCKS_MAX]) -> Option<&'a [Ppa]> {
        let room = room.get_mut(..ppas.len())?;
        room.iter_mut().zip(ppas).for_each(|(to, ppa)| *to = self.on_device(*ppa));
        Some(room)
    }

    /// The blocks of a command on the device. `None` if there are more than a command may have.
    fn blocks<'a>(&self, blocks: Blocks<'_>, room: &'a mut [Ppa; VECTOR_BLOCKS_MAX]) -> Option<Blocks<'a>> {
        match blocks {
            Blocks::Vector(list) => self.list(list, room).map(Blocks::Vector),
            Blocks::Scalar { first, count } => {
                // Parallel units that lie side by side here may not on the device.
                let format = self.geometry.format();
                let pu = |ppa: Ppa| format.pu_of(format.chunk_of(ppa));
                let last = Ppa(first.0.saturating_add(u64::from(count.max(1)) - 1));
                let first = if pu(first) == pu(last) { self.on_device(first) } else { NOWHERE };
                Some(Blocks::Scalar { first, count })
            }
        }
    }

    /// Where a chunk of this part is on the device.
    #[must_use]
    pub fn chunk_on_device(&self, chunk: ChunkId) -> ChunkId {
        self.device_format.chunk_of(self.on_device(self.geometry.format().ppa(chunk, 0)))
    }
}

impl Media for Part {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn page_pool(&self) -> PagePool {
        self.whole.borrow().device.page_pool()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        let (mut at, mut to) = ([Ppa(0); VECTOR_BLOCKS_MAX], [Ppa(0); VECTOR_BLOCKS_MAX]);
        let command = match command {
            Command::Read { blocks, frames } => {
                self.blocks(blocks, &mut at).map(|blocks| Command::Read { blocks, frames })
            }
            Command::Write { blocks, frames, fua } => {
                self.blocks(blocks, &mut at).map(|blocks| Command::Write { blocks, frames, fua })
            }
            Command::Reset { blocks } => self.blocks(blocks, &mut at).map(|blocks| Command::Reset { blocks }),
            Command::Copy { from, to: destination, fua } => {
                let from = self.list(from, &mut at);
                from.zip(self.list(destination, &mut to)).map(|(from, to)| Command::Copy { from, to, fua })
            }
            Command::Flush => Some(Command::Flush),
        };
        let mut whole = self.whole.borrow_mut();
        let whole = &mut *whole;
        let inbox = &whole.inboxes[self.index];
        if inbox.under_way + inbox.completions.len() >= COMMANDS_MAX / whole.parts.len() {
            return Err(QueueFull);
        }
        let Some(command) = command else {
            let completion = Completion { tag, status: Status::InvalidField, failed: 0, at: now };
            whole.inboxes[self.index].completions.push_back(completion);
            return Ok(());
        };
        let index = whole.free.pop().unwrap_or_else(|| {
            whole.errands.push(None);
            whole.errands.len() as u32 - 1
        });
        let submitted = whole.device.submit(now, frames, index.into(), command);
        match submitted {
            Ok(()) => {
                whole.errands[index as usize] = Some(Errand { part: self.index, tag });
                whole.inboxes[self.index].under_way += 1;
            }
            Err(QueueFull) => whole.free.push(index),
        }
        submitted
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        let mut whole = self.whole.borrow_mut();
        // The device fills the frames of a read when it is submitted, so anyone may take its completion.
        whole.poll(now, frames);
        let inbox = &mut whole.inboxes[self.index].completions;
        while let Some(completion) = inbox.pop_front_if(|completion| completion.at <= now) {
            completions.push(completion);
        }
    }

    fn next_due(&self) -> Option<Time> {
        let whole = self.whole.borrow();
        let inbox = &whole.inboxes[self.index];
        let arrived = inbox.completions.front().map(|completion| completion.at);
        let due = if inbox.under_way > 0 { whole.device.next_due() } else { None };
        arrived.into_iter().chain(due).min()
    }

    fn needs_flush(&self) -> bool {
        self.whole.borrow().device.needs_flush()
    }

    fn forgets_writes(&self) -> bool {
        self.whole.borrow().device.forgets_writes()
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        if !self.geometry.has_chunk(first) {
            return Err(MediaError::NoSuchChunk(first));
        }
        let format = self.geometry.format();
        let chunks: Vec<ChunkId> = self.geometry.chunk_ids_starting_at(first).take(descriptors.len()).collect();
        let asked = descriptors.len();
        let mut room = descriptors;
        // Those of a parallel unit follow each other on the device too.
        for run in chunks.chunk_by(|one, other| format.pu_of(*one) == format.pu_of(*other)) {
            let (here, rest) = room.split_at_mut(run.len());
            let on_device = self.chunk_on_device(run[0]);
            self.whole.borrow_mut().device.chunk_report(now, on_device, here)?;
            here.iter_mut().zip(run).for_each(|(descriptor, chunk)| descriptor.chunk = *chunk);
            room = rest;
        }
        match chunks.last() {
            Some(last) if chunks.len() < asked => Err(MediaError::NoSuchChunk(ChunkId(last.0 + 1))),
            _ => Ok(()),
        }
    }

    fn notifications(
        &mut self,
        now: Time,
        after: u64,
        notifications: &mut Vec<Notification>,
    ) -> Result<(), MediaError> {
        let mut whole = self.whole.borrow_mut();
        whole.take_notifications(now)?;
        let own = whole.inboxes[self.index].notifications.iter().filter(|notification| notification.count > after);
        notifications
            .extend(own.map(|notification| Notification { ppa: self.in_part(notification.ppa), ..*notification }));
        Ok(())
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.whole.borrow_mut().device.set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        let whole = self.whole.borrow();
        let busy: Vec<Nanos> = whole.device.pu_busy();
        let all: Vec<PuId> = whole.device.geometry().pu_ids().collect();
        let of = |pu: PuId| {
            let chunk = self.chunk_on_device(self.geometry.format().chunk_id(pu, 0));
            all.iter().position(|other| *other == self.device_format.pu_of(chunk)).map_or(Nanos::ZERO, |at| busy[at])
        };
        self.geometry.pu_ids().map(of).collect()
    }
}

impl Inject for Part {
    fn lose(&mut self, ppa: Ppa) {
        let ppa = self.on_device(ppa);
        self.device_mut().lose(ppa);
    }

    fn fail_reads(&mut self, ppa: Ppa, times: u32) {
        let ppa = self.on_device(ppa);
        self.device_mut().fail_reads(ppa, times);
    }

    fn weaken(&mut self, ppa: Ppa) {
        let ppa = self.on_device(ppa);
        self.device_mut().weaken(ppa);
    }

    fn misdirect(&mut self, one: Ppa, other: Ppa) {
        let (one, other) = (self.on_device(one), self.on_device(other));
        Inject::misdirect(&mut *self.device_mut(), one, other);
    }

    fn fail_program(&mut self, chunk: ChunkId, failure: ProgramFailure) {
        let chunk = self.chunk_on_device(chunk);
        self.device_mut().fail_program(chunk, failure);
    }

    fn take_offline(&mut self, chunk: ChunkId) {
        let chunk = self.chunk_on_device(chunk);
        Inject::take_offline(&mut *self.device_mut(), chunk);
    }

    fn wear_out(&mut self, chunk: ChunkId, resets: u32) {
        let chunk = self.chunk_on_device(chunk);
        self.device_mut().wear_out(chunk, resets);
    }

    fn endurance(&self) -> u32 {
        Inject::endurance(&*self.device())
    }
}
