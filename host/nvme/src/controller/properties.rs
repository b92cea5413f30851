//! The properties of a controller: what a host reads and writes to start and stop it (Base, "Controller Properties").
//!
//! ```text
//!                 CC.EN = 1                  CC.SHN
//!   disabled ───────────────▶ ready ────────────────▶ shutting down ──(drive flushed)──▶ shut down
//!      ▲  │ wrong CC            │                           │                               │
//!      │  └──────▶ fatal        │ CC.EN = 0                 │                               │
//!      └────────────────────────┴───────────────────────────┴───────────────────────────────┘
//! ```

use crate::command::Refusal;
use crate::queue::QUEUE_ENTRIES_MAX;
use crate::wire::fabrics::property;
use crate::wire::status::Status;

/// VS and VER: 2.0.
pub const VERSION: u32 = 0x0002_0000;

/// CAP.TO and CRTO.CRWMT: how long a controller may take to become ready, in units of 500 ms. It takes none.
const READY_TIMEOUT: u32 = 2;

/// CAP: MQES; CQR, always one over fabrics (bit 16); TO; CSS with the NVM command set (bit 37) and others (bit 43); MPSMIN
/// and MPSMAX 4 KiB; CRMS, ready means ready for all namespaces (bit 59).
const CAPABILITIES: u64 =
    (QUEUE_ENTRIES_MAX - 1) as u64 | 1 << 16 | (READY_TIMEOUT as u64) << 24 | 1 << 37 | 1 << 43 | 1 << 59;

/// CC.EN.
const ENABLE: u32 = 1 << 0;
/// CC.CSS 000b: the NVM command set.
const CSS_NVM: u32 = 0b000;
/// CC.CSS 110b: all command sets.
const CSS_ALL: u32 = 0b110;
/// CC.CSS 111b: admin commands only.
const CSS_ADMIN: u32 = 0b111;

/// CSTS.RDY.
const READY: u32 = 1 << 0;
/// CSTS.CFS.
const FATAL: u32 = 1 << 1;

/// CSTS.SHST.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Shutdown {
    #[default]
    None = 0b00,
    UnderWay = 0b01,
    Complete = 0b10,
}

/// What a write to a property has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing that others need to know.
    None,
    /// The controller is enabled.
    Enabled,
    /// The controller is disabled: back to its first state.
    Reset,
    /// The host wants to leave: everything completed has to become durable.
    ShutdownBegun,
}

/// The properties of one controller.
#[derive(Clone, Copy, Default, Debug)]
pub struct Properties {
    configuration: u32,
    is_ready: bool,
    is_fatal: bool,
    shutdown: Shutdown,
}

impl Properties {
    /// Whether commands other than those of fabrics are served (CSTS.RDY, and no shutdown).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready && self.shutdown == Shutdown::None
    }

    /// Whether the host wants admin commands only.
    #[must_use]
    pub fn is_admin_only(&self) -> bool {
        self.configuration >> 4 & 0b111 == CSS_ADMIN
    }

    /// Everything completed is durable: a shutdown under way is complete.
    pub fn shutdown_completed(&mut self) {
        if self.shutdown == Shutdown::UnderWay {
            self.shutdown = Shutdown::Complete;
        }
    }

    /// The value of the property at `offset`, of `bytes` bytes.
    ///
    /// # Errors
    /// If there is none of that size there.
    pub fn get(&self, offset: u32, bytes: u8) -> Result<u64, Refusal> {
        let (value, size) = match offset {
            property::CAPABILITIES => (CAPABILITIES, 8),
            property::VERSION => (u64::from(VERSION), 4),
            property::CONFIGURATION => (u64::from(self.configuration), 4),
            property::STATUS => (u64::from(self.status()), 4),
            property::READY_TIMEOUTS => (u64::from(READY_TIMEOUT), 4),
            _ => return Err(Status::INVALID_FIELD.at(44)),
        };
        if bytes == size { Ok(value) } else { Err(Status::INVALID_FIELD.at(40)) }
    }

    /// Writes the property at `offset`.
    ///
    /// # Errors
    /// If there is none of that size there that can be written.
    pub fn set(&mut self, offset: u32, bytes: u8, value: u64) -> Result<Change, Refusal> {
        if offset != property::CONFIGURATION {
            return Err(Status::INVALID_FIELD.at(44));
        }
        if bytes != 4 {
            return Err(Status::INVALID_FIELD.at(40));
        }
        Ok(self.configure(value as u32))
    }

    fn configure(&mut self, new: u32) -> Change {
        let old = std::mem::replace(&mut self.configuration, new);
        match (old & ENABLE != 0, new & ENABLE != 0) {
            (false, true) => {
                self.is_fatal = !is_possible(new);
                self.is_ready = !self.is_fatal;
                self.shutdown = Shutdown::None;
                if self.is_ready { Change::Enabled } else { Change::None }
            }
            (true, false) => {
                *self = Properties { configuration: new, shutdown: self.shutdown, ..Properties::default() };
                Change::Reset
            }
            _ if new >> 14 & 0b11 != 0 && self.shutdown == Shutdown::None => {
                self.shutdown = Shutdown::UnderWay;
                Change::ShutdownBegun
            }
            _ => Change::None,
        }
    }

    fn status(&self) -> u32 {
        let ready = if self.is_ready { READY } else { 0 };
        let fatal = if self.is_fatal { FATAL } else { 0 };
        ready | fatal | (self.shutdown as u32) << 2
    }
}

/// Whether a controller can be enabled so: command sets, memory page size, arbitration and entry sizes that it has.
fn is_possible(configuration: u32) -> bool {
    let field = |shift: u32, bits: u32| configuration >> shift & ((1 << bits) - 1);
    // Entry sizes may be left at 0 by a host that makes no I/O queue.
    matches!(field(4, 3), CSS_NVM | CSS_ALL | CSS_ADMIN)
        && field(7, 4) == 0
        && field(11, 3) == 0
        && matches!(field(16, 4), 0 | 6)
        && matches!(field(20, 4), 0 | 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: u64 = 6 << 16 | 4 << 20 | 1;

    fn status(properties: &Properties) -> u64 {
        properties.get(property::STATUS, 4).unwrap()
    }

    #[test]
    fn a_host_enables_shuts_down_and_resets() {
        let mut properties = Properties::default();
        assert_eq!(status(&properties), 0);
        assert_eq!(properties.set(property::CONFIGURATION, 4, USUAL), Ok(Change::Enabled));
        assert!(properties.is_ready() && status(&properties) == 1);
        assert_eq!(properties.set(property::CONFIGURATION, 4, USUAL | 1 << 14), Ok(Change::ShutdownBegun));
        assert!(!properties.is_ready() && status(&properties) == 0b0101, "not complete before the drive says so");
        assert_eq!(properties.set(property::CONFIGURATION, 4, USUAL | 1 << 14), Ok(Change::None));
        properties.shutdown_completed();
        assert_eq!(status(&properties), 0b1001);
        assert_eq!(properties.set(property::CONFIGURATION, 4, USUAL & !1), Ok(Change::Reset));
        assert_eq!(status(&properties), 0b1000, "the host may still read how its shutdown went");
        assert_eq!(properties.set(property::CONFIGURATION, 4, USUAL), Ok(Change::Enabled));
        assert_eq!(status(&properties), 1);
    }

    #[test]
    fn a_configuration_that_cannot_be_is_fatal_until_it_is_taken_back() {
        for wrong in [1 << 4, 1 << 7, 1 << 11, 7 << 16, 3 << 20] {
            let mut properties = Properties::default();
            let value = if wrong >= 1 << 16 { wrong | 1 } else { USUAL | wrong };
            assert_eq!(properties.set(property::CONFIGURATION, 4, value), Ok(Change::None));
            assert!(!properties.is_ready() && status(&properties) == 0b10, "{wrong:#x}");
            assert_eq!(properties.set(property::CONFIGURATION, 4, 0), Ok(Change::Reset));
            assert_eq!(status(&properties), 0);
        }
    }

    #[test]
    fn what_is_no_property_or_of_another_size_is_refused() {
        let mut properties = Properties::default();
        assert_eq!(properties.get(property::CAPABILITIES, 4), Err(Status::INVALID_FIELD.at(40)));
        assert_eq!(properties.get(property::VERSION, 8), Err(Status::INVALID_FIELD.at(40)));
        assert_eq!(properties.get(0x24, 4), Err(Status::INVALID_FIELD.at(44)));
        assert_eq!(properties.set(property::VERSION, 4, 1), Err(Status::INVALID_FIELD.at(44)));
        assert_eq!(properties.set(property::CONFIGURATION, 8, 1), Err(Status::INVALID_FIELD.at(40)));
    }

    #[test]
    fn the_capabilities_are_those_of_the_queues() {
        let capabilities = Properties::default().get(property::CAPABILITIES, 8).unwrap();
        assert_eq!(capabilities & 0xffff, 1023);
        assert_eq!(capabilities >> 24 & 0xff, Properties::default().get(property::READY_TIMEOUTS, 4).unwrap() & 0xffff);
    }
}
