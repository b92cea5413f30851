//! What a host does with a zoned drive: one step, or a mix of everything; and what the drive may refuse of it.

use crate::played::Played;
use crate::step::{ZoneDeed, ZoneDeedKind};
use crate::zone_world::{READ_BLOCKS, ZoneWorld};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;
use openftl_parts::{Durability, IoError};
use openftl_zones::{Action, ZoneError, ZoneState};

/// Blocks of a write, at most.
const WRITE_BLOCKS_MAX: u32 = TRANSACTION_BLOCKS_MAX as u32;

impl ZoneWorld {
    /// Does something with a zone, and takes it that the drive may refuse that.
    pub fn perform(&mut self, ZoneDeed { kind, pick, size }: ZoneDeed) {
        let zones = self.layout().zones;
        let (zone, round) = (pick % zones, pick / zones);
        let durability = match kind {
            ZoneDeedKind::AppendDurably => Durability::Durable,
            _ => Durability::Volatile,
        };
        match kind {
            ZoneDeedKind::Append | ZoneDeedKind::AppendDurably | ZoneDeedKind::Write => {
                // Mostly as much as there is room for.
                let left = self.layout().capacity - self.written(zone);
                let blocks = if left > 0 && round % 8 != 7 { size.min(left) } else { size };
                let blocks = blocks.min(WRITE_BLOCKS_MAX);
                let result = self.write_anywhere(zone, round, blocks, durability, kind != ZoneDeedKind::Write);
                self.expect_refusal(zone, result);
            }
            ZoneDeedKind::Read => {
                let first = round % self.layout().size as u32;
                if self.state(zone) != ZoneState::Offline {
                    self.read(zone, first, size.clamp(1, READ_BLOCKS).min(self.layout().size as u32 - first));
                }
            }
            ZoneDeedKind::OpenWithWindow => {
                let result = self.open_with_window(zone);
                self.expect_refusal(zone, result);
            }
            ZoneDeedKind::Commit => {
                let result = self.commit(zone, size);
                self.expect_refusal(zone, result);
            }
            ZoneDeedKind::Open => self.expect_act(zone, Action::Open),
            ZoneDeedKind::Close => self.expect_act(zone, Action::Close),
            ZoneDeedKind::Finish => self.expect_act(zone, Action::Finish),
            ZoneDeedKind::Reset => self.expect_act(zone, Action::Reset),
        }
    }

    /// One more of a mix of all requests, refused or not.
    pub fn submit_any(&mut self) {
        let zones = self.layout().zones;
        // Most of it in few zones, so that they fill.
        let zone = if self.below(4) == 0 { self.below(zones) } else { self.below(zones.min(3)) };
        if self.weakens && self.below(5) == 0 {
            return self.weaken_any(zone);
        }
        if self.layout().extension_bytes > 0 && self.below(5) == 0 {
            let result = self.extend(zone);
            return self.expect_refusal(zone, result);
        }
        let window_blocks = self.layout().window_blocks;
        if window_blocks > 0 && self.below(5) == 0 {
            let result = match self.below(2) {
                0 => self.open_with_window(zone),
                _ => {
                    let blocks = 1 + self.below(window_blocks);
                    self.commit(zone, blocks)
                }
            };
            return self.expect_refusal(zone, result);
        }
        match self.below(100) {
            0..50 => {
                let blocks = 1 + self.below(40);
                let left = self.layout().capacity - self.written(zone);
                let durability = if self.below(10) == 0 { Durability::Durable } else { Durability::Volatile };
                let is_append = self.below(2) == 0;
                let blocks = if left > 0 && self.below(8) != 0 { blocks.min(left) } else { blocks };
                let behind = self.below(u32::MAX);
                let result = self.write_anywhere(zone, behind, blocks, durability, is_append);
                self.expect_refusal(zone, result);
            }
            50..58 => self.flush(),
            58..66 => self.expect_act(zone, Action::Reset),
            66..68 => self.expect_act(zone, Action::Finish),
            68..71 => self.expect_act(zone, Action::Open),
            71..75 => self.expect_act(zone, Action::Close),
            _ => {
                let first = self.below(self.layout().size as u32);
                let count = 1 + self.below((self.layout().size as u32 - first).min(60));
                self.read(zone, first, count);
            }
        }
    }

    /// Writes blocks at the write pointer of a zone; or, where it has a window, mostly there.
    fn write_anywhere(
        &mut self,
        zone: u32,
        behind: u32,
        blocks: u32,
        durability: Durability,
        is_append: bool,
    ) -> Result<(), ZoneError> {
        let left = self.layout().capacity - self.written(zone);
        let has_window = self.ftl().board().zone(zone).has_window;
        if !has_window || behind % 16 == 15 || left == 0 {
            // What is appended to a window is refused.
            return self.write(zone, blocks, durability, is_append || has_window);
        }
        let reach = left.min(2 * self.layout().window_blocks);
        let behind = behind / 16 % reach;
        self.write_window(zone, behind, blocks.min(reach - behind), durability)
    }

    fn expect_act(&mut self, zone: u32, action: Action) {
        let result = self.act(zone, action);
        self.expect_refusal(zone, result);
    }

    /// Something may be refused only by the state of its zone, or the limits.
    fn expect_refusal(&mut self, zone: u32, result: Result<(), ZoneError>) {
        let Err(error) = result else { return };
        let state = self.state(zone);
        let has_window = self.ftl().board().zone(zone).has_window;
        let may_be = match error {
            ZoneError::NoWindows => self.layout().window_blocks == 0,
            ZoneError::NoWindow { .. } => !has_window,
            ZoneError::AppendToWindow { .. } | ZoneError::InvalidWrite { .. } => has_window,
            ZoneError::OutsideWindow { .. } => has_window,
            ZoneError::WindowOfWritten { .. } => state.is_active() && !has_window,
            ZoneError::TooManyWindows { limit } => self.ftl().board().windows() >= limit,
            ZoneError::Full { .. } => state == ZoneState::Full,
            ZoneError::Boundary { .. } | ZoneError::OutOfRange { .. } => true,
            ZoneError::TooManyActive { .. } => {
                self.ftl().board().resources().1 >= self.ftl().board().limits().max_active
            }
            ZoneError::TooManyOpen { .. } => self.ftl().board().resources().0 >= self.ftl().board().limits().max_open,
            ZoneError::NotEmpty { .. } => state != ZoneState::Empty,
            ZoneError::InvalidTransition { .. } => {
                matches!(state, ZoneState::Empty | ZoneState::Full | ZoneState::ReadOnly)
            }
            ZoneError::Io(IoError::QueueFull) => true,
            ZoneError::DriveReadOnly(_) | ZoneError::ReadOnly { .. } | ZoneError::Io(IoError::ReadOnly) => {
                return self.expect_worn_out("a request", error);
            }
            _ => false,
        };
        assert!(may_be, "zone {zone}, {state:?}: {error}");
    }

    /// One more request, with up to `depth` under way.
    pub fn operation(&mut self, depth: usize) {
        self.submit_any();
        while self.requests_under_way() >= depth {
            self.pump();
        }
    }

    /// Does some of everything, closes, opens and closes again.
    ///
    /// # Panics
    /// If what comes then contradicts the model, or does not end.
    pub fn prove(&mut self, operations: u32) {
        for _ in 0..operations {
            self.operation(4);
        }
        self.settle();
        // Each zone that can be written is: its columns go on, or move.
        for zone in 0..self.layout().zones {
            let left = self.layout().capacity - self.written(zone);
            if self.state(zone).is_active() && left > 0 {
                let blocks = left.min(3 * self.layout().unit_blocks);
                let result = match self.ftl().board().zone(zone).has_window {
                    true => self.commit(zone, left.min(self.layout().window_blocks)),
                    false => self.write(zone, blocks, Durability::Volatile, false),
                };
                self.expect_refusal(zone, result);
            }
        }
        self.flush();
        self.verify_all();
        self.clean_restart();
        self.verify_all();
    }

    /// Some block of a zone becomes weak, and is read.
    fn weaken_any(&mut self, zone: u32) {
        let written = self.ftl().board().zone(zone).written;
        if written > 0 {
            let block = self.below(written);
            self.weaken(zone, block);
            self.read(zone, block, 1);
        }
    }
}
