//! The commands under way on a connection, each in a slot of its own, and what was asked for of their data.
//!
//! ```text
//!   data of one command, asked for piece by piece
//!   0              granted         requested                 bytes in the SGL
//!   ├──────┬───────┬───────────────┬────────────────────────┤
//!   │ R2T  │ R2T   │ R2T when one  │ not asked for yet      │
//!   │ ▓▓▓▓ │ ▓▓    │ of them ends  │                        │     ▓ arrived
//!   └──────┴───────┴───────────────┴────────────────────────┘
//! ```

use crate::error::{FatalError, FatalErrorStatus};
use crate::pdu::{H2cData, flag};
use crate::sgl::Data;

/// The most R2Ts under way for one command, whatever the host would take.
pub const R2TS_PER_COMMAND_MAX: usize = 4;

/// The most entries of a queue: transfer tags name a slot and one of its R2Ts in 16 bits.
pub const QUEUE_ENTRIES_MAX: usize = (1 << 16) / R2TS_PER_COMMAND_MAX;

/// Names a command on its connection from its arrival to its completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub(super) u16);

impl Slot {
    /// The slot's number, below the queue's entries.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// An R2T under way; without bytes there is none.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    offset: u32,
    bytes: u32,
    arrived: u32,
}

/// An R2T to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub command_id: u16,
    pub transfer_tag: u16,
    pub offset: u32,
    pub bytes: u32,
}

/// Data that an H2CData brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arrival {
    pub slot: Slot,
    pub window: u8,
    pub offset: u32,
}

#[derive(Debug)]
pub(super) struct Command {
    pub command_id: u16,
    pub data: Data,
    /// Whether data in the capsule are still on their way.
    pub in_capsule_due: bool,
    /// Whether all digests of data that came were right.
    pub intact: bool,
    /// Bytes sent to the host.
    pub sent: u32,
    requested: u32,
    granted: u32,
    windows: [Window; R2TS_PER_COMMAND_MAX],
}

/// What a connection holds for each entry of its queue, whatever its host does: a command, and a place in `free`.
const _: () = assert!(size_of::<Option<Command>>() <= 80);

impl Command {
    fn r2ts(&self) -> usize {
        self.windows.iter().filter(|window| window.bytes > 0).count()
    }

    /// Whether data are on their way.
    pub fn is_filling(&self) -> bool {
        self.in_capsule_due || self.granted < self.requested || self.r2ts() > 0
    }
}

#[derive(Debug)]
pub(super) struct Slots {
    commands: Vec<Option<Command>>,
    free: Vec<u16>,
    /// R2Ts under way.
    r2ts: usize,
}

impl Slots {
    pub fn new(entries: usize) -> Slots {
        let mut slots = Slots { commands: Vec::new(), free: Vec::new(), r2ts: 0 };
        slots.grow(entries);
        slots
    }

    /// Makes room for `entries` commands.
    pub fn grow(&mut self, entries: usize) {
        assert!((1..=QUEUE_ENTRIES_MAX).contains(&entries), "a queue has 1 to {QUEUE_ENTRIES_MAX} entries");
        let before = self.commands.len();
        assert!(before <= entries, "a queue does not shrink");
        self.commands.resize_with(entries, || None);
        // Low numbers are taken first.
        self.free.reserve_exact(entries - self.free.len());
        self.free.splice(0..0, (before..entries).rev().map(|index| index as u16));
    }

    pub fn slot_at(&self, index: usize) -> Slot {
        assert!(self.commands[index].is_some(), "a command is in slot {index}");
        Slot(index as u16)
    }

    pub fn occupied(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    pub fn r2ts(&self) -> usize {
        self.r2ts
    }

    pub fn occupy(&mut self, command_id: u16, data: Data, in_capsule_due: bool) -> Option<Slot> {
        let slot = self.free.pop()?;
        self.commands[usize::from(slot)] = Some(Command {
            command_id,
            data,
            in_capsule_due,
            intact: true,
            sent: 0,
            requested: 0,
            granted: 0,
            windows: [Window::default(); R2TS_PER_COMMAND_MAX],
        });
        Some(Slot(slot))
    }

    pub fn get(&mut self, slot: Slot) -> &mut Command {
        self.commands[slot.index()].as_mut().expect("a slot names a command until that is completed")
    }

    pub fn vacate(&mut self, slot: Slot) -> Command {
        let command = self.commands[slot.index()].take().expect("a command is completed once");
        assert!(!command.is_filling(), "a command is completed when the data that it was asked for have arrived");
        self.free.push(slot.0);
        command
    }

    /// Notes that the next `bytes` of a command are wanted.
    pub fn request(&mut self, slot: Slot, bytes: u32) {
        let command = self.get(slot);
        let Data::OnRequest(bytes_max) = command.data else { panic!("only data on request are requested") };
        let requested = command.requested.checked_add(bytes).filter(|requested| *requested <= bytes_max);
        command.requested = requested.expect("no more is requested than the command has");
    }

    /// The next R2T of a command, if one is due and the host takes another.
    pub fn grant(&mut self, slot: Slot, r2ts_max: usize) -> Option<Grant> {
        let command = self.get(slot);
        if command.granted == command.requested || command.r2ts() >= r2ts_max {
            return None;
        }
        let (offset, bytes) = (command.granted, command.requested - command.granted);
        let free = command.windows.iter().position(|window| window.bytes == 0)?;
        command.windows[free] = Window { offset, bytes, arrived: 0 };
        command.granted = command.requested;
        let transfer_tag = slot.0 * R2TS_PER_COMMAND_MAX as u16 + free as u16;
        let command_id = command.command_id;
        self.r2ts += 1;
        Some(Grant { command_id, transfer_tag, offset, bytes })
    }

    /// Where the data of an H2CData belong.
    pub fn arrival(&self, header: &H2cData, data_bytes: u32, bytes_max: u32) -> Result<Arrival, FatalError> {
        let (command_id, tag) = (header.command_id.get(), header.transfer_tag.get());
        let slot = Slot(tag / R2TS_PER_COMMAND_MAX as u16);
        let index = usize::from(tag) % R2TS_PER_COMMAND_MAX;
        let command = self.commands.get(slot.index()).and_then(Option::as_ref);
        let window = command.map(|command| command.windows[index]).filter(|window| window.bytes > 0);
        let (Some(command), Some(window)) = (command, window) else {
            // Rare, so it may take long to say which of the two is wrong.
            let waits = |command: &Command| command.command_id == command_id && command.r2ts() > 0;
            let is_known = self.commands.iter().flatten().any(waits);
            return Err(FatalError::field(if is_known {
                std::mem::offset_of!(H2cData, transfer_tag)
            } else {
                std::mem::offset_of!(H2cData, command_id)
            }));
        };
        if command.command_id != command_id {
            return Err(FatalError::field(std::mem::offset_of!(H2cData, command_id)));
        }
        if header.bytes.get() != data_bytes {
            return Err(FatalError::field(std::mem::offset_of!(H2cData, bytes)));
        }
        if data_bytes > bytes_max {
            return Err(FatalError::of(FatalErrorStatus::DataLimitExceeded));
        }
        let offset = header.offset.get();
        let end = u64::from(offset) + u64::from(data_bytes);
        let window_end = window.offset + window.bytes;
        if offset < window.offset || end > u64::from(window_end) {
            return Err(FatalError::of(FatalErrorStatus::DataOutOfRange));
        }
        let is_last = end == u64::from(window_end);
        if offset != window.offset + window.arrived || is_last != (header.common.flags & flag::LAST != 0) {
            return Err(FatalError::of(FatalErrorStatus::SequenceError));
        }
        Ok(Arrival { slot, window: index as u8, offset })
    }

    /// The data of an H2CData are through.
    pub fn arrived(&mut self, arrival: Arrival, bytes: u32, intact: bool) {
        let command = self.get(arrival.slot);
        command.intact &= intact;
        let window = &mut command.windows[usize::from(arrival.window)];
        window.arrived += bytes;
        if window.arrived == window.bytes {
            *window = Window::default();
            self.r2ts -= 1;
        }
    }
}
