//! The states of all zones, and who may become what: the state machine of NVMe zoned namespaces, without any flash.
//!
//! ```text
//!                write, append                 close
//!         ┌──────────────────▶ implicitly open ──────▶ closed ──┐ write, append: implicitly open
//!   empty ┤                        │    ▲ ▲              │      │ open: explicitly open
//!     ▲   │ open                   │    │ └──────────────┼──────┘
//!     │   └────▶ explicitly open ◀─┘open└────────────────┘
//!     │               │ the last block is written, or finish (from empty, too)
//!     └── reset ──────┴──▶ full          failures of the medium: read only ── offline ──▶ offline
//! ```
//!
//! The host sets an extension in an empty zone, which is closed from then on. It may open an empty zone with a *window* (ZRWA): blocks from the
//! write pointer on that can be written in any order, and over again. What is written behind the window commits its first blocks, and so does
//! the host ([`Board::commit`]): the write pointer moves over them. A zone has its window until it is empty, full or offline, and as many
//! zones may have one as may be open.
//!
//! A zone that is open or closed is *active*, and holds one of
//! `max_active` resources until it is empty, full or worse. One that is open holds one of `max_open`. Where no open resource is left, the zone that was implicitly open for longest is
//! closed; an explicitly open one never is. The checks of a write come in this order: state, place, end, resources.

use crate::error::ZoneError;
use crate::state::{Action, ZoneState};
use std::collections::VecDeque;

/// A zone as the host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Zone {
    /// Its state.
    pub state: ZoneState,
    /// Blocks that were written to it. Those behind read as zeroes.
    pub written: u32,
    /// Something of it is weak and stays so: the drive had no chunk to move it to, or a block of it is lost. Only a zone that is active
    /// or full says so.
    pub is_weak: bool,
    /// The host has set its zone descriptor extension since it was last empty (ZDEV).
    pub has_extension: bool,
    /// It has a window: blocks from its write pointer on can be written in any order (ZRWAV).
    pub has_window: bool,
}

impl Zone {
    /// Whether the drive recommends to finish it, and to write the rest elsewhere (FZR).
    #[must_use]
    pub fn is_finish_recommended(&self) -> bool {
        self.is_weak && self.state.is_active()
    }

    /// Whether the drive recommends to copy what is needed of it, and to reset it (RZR).
    #[must_use]
    pub fn is_reset_recommended(&self) -> bool {
        self.is_weak && self.state == ZoneState::Full
    }
}

/// Zones that can be active at a time, whatever their drive.
pub const ACTIVE_MAX: u32 = 1024;

/// How many zones may be written at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Limits {
    /// Zones that are open, at most.
    pub max_open: u32,
    /// Zones that are open or closed, at most.
    pub max_active: u32,
}

/// How many zones may be written at a time from now on; what is left out stays as the drive was formatted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AskedLimits {
    /// See [`Limits::max_open`].
    pub max_open: Option<u32>,
    /// See [`Limits::max_active`].
    pub max_active: Option<u32>,
}

impl From<Limits> for AskedLimits {
    fn from(Limits { max_open, max_active }: Limits) -> AskedLimits {
        AskedLimits { max_open: Some(max_open), max_active: Some(max_active) }
    }
}

/// All zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Board {
    zones: Vec<Zone>,
    /// Blocks of each.
    capacity: u32,
    limits: Limits,
    /// Blocks of a window; 0: there are none.
    window_blocks: u32,
    open: u32,
    active: u32,
    windows: u32,
    /// Those that are implicitly open, in the order in which they were opened.
    implicit: VecDeque<u32>,
}

impl Board {
    /// Empty zones of `capacity` blocks each.
    #[must_use]
    pub fn new(zones: u32, capacity: u32, limits: Limits) -> Board {
        assert!(limits.max_open > 0 && limits.max_open <= limits.max_active, "{limits:?} allow a zone to be written");
        Board {
            zones: vec![Zone::default(); zones as usize],
            capacity,
            limits,
            window_blocks: 0,
            open: 0,
            active: 0,
            windows: 0,
            implicit: VecDeque::new(),
        }
    }

    /// The same with windows of `blocks` blocks; 0: without.
    #[must_use]
    pub fn with_windows(self, blocks: u32) -> Board {
        Board { window_blocks: blocks, ..self }
    }

    /// How many zones there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.zones.len() as u32
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// Zone `zone`.
    #[must_use]
    pub fn zone(&self, zone: u32) -> Zone {
        self.zones[zone as usize]
    }

    /// Every zone.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Zones that are open, and zones that are active.
    #[must_use]
    pub fn resources(&self) -> (u32, u32) {
        (self.open, self.active)
    }

    /// The limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Puts a zone into a state, whatever it was: what was found on media, or what became of the medium.
    pub fn put(&mut self, zone: u32, state: ZoneState, written: u32) {
        self.change(zone, state);
        self.zones[zone as usize].written = written;
    }

    /// Something of `zone` is weak, and cannot move. Returns whether that is news of which a host can make use.
    pub fn recommend(&mut self, zone: u32) -> bool {
        let zone = &mut self.zones[zone as usize];
        let is_news = !zone.is_weak && (zone.state.is_active() || zone.state == ZoneState::Full);
        zone.is_weak |= is_news;
        is_news
    }

    /// Nothing of `zone` is weak any more.
    pub fn withdraw(&mut self, zone: u32) {
        self.zones[zone as usize].is_weak = false;
    }

    fn change(&mut self, zone: u32, state: ZoneState) {
        let before = std::mem::replace(&mut self.zones[zone as usize].state, state);
        self.zones[zone as usize].is_weak &= state.is_active() || state == ZoneState::Full;
        self.zones[zone as usize].has_extension &= !matches!(state, ZoneState::Empty | ZoneState::Offline);
        if matches!(state, ZoneState::Empty | ZoneState::Full | ZoneState::Offline) {
            self.set_window(zone, false);
        }
        if before == ZoneState::ImplicitlyOpen {
            self.implicit.retain(|other| *other != zone);
        }
        if state == ZoneState::ImplicitlyOpen {
            self.implicit.push_back(zone);
        }
        self.open = self.open + u32::from(state.is_open()) - u32::from(before.is_open());
        self.active = self.active + u32::from(state.is_active()) - u32::from(before.is_active());
    }

    fn set_window(&mut self, zone: u32, has_window: bool) {
        let before = std::mem::replace(&mut self.zones[zone as usize].has_window, has_window);
        self.windows = self.windows + u32::from(has_window) - u32::from(before);
    }

    /// Whether `zone` may be opened now.
    fn may_open(&self, zone: u32) -> Result<(), ZoneError> {
        let state = self.zone(zone).state;
        if !state.is_active() && self.active >= self.limits.max_active {
            return Err(ZoneError::TooManyActive { limit: self.limits.max_active });
        }
        if !state.is_open() && self.open >= self.limits.max_open && self.implicit.is_empty() {
            return Err(ZoneError::TooManyOpen { limit: self.limits.max_open });
        }
        Ok(())
    }

    fn open(&mut self, zone: u32, state: ZoneState) {
        if !self.zone(zone).state.is_open()
            && self.open >= self.limits.max_open
            && let Some(oldest) = self.implicit.front().copied()
        {
            self.change(oldest, ZoneState::Closed);
        }
        self.change(zone, state);
    }

    /// A write of `blocks` blocks begins at block `at` of `zone`; an append where the last one ended. Returns where that is. Where the zone has
    /// a window the write pointer moves over what the write commits, and no further.
    ///
    /// # Errors
    /// Why it may not, in the order in which NVMe checks.
    pub fn write(&mut self, zone: u32, at: Option<u32>, blocks: u32) -> Result<u32, ZoneError> {
        let Zone { state, written, has_window, .. } = self.zone(zone);
        match state {
            ZoneState::Full => return Err(ZoneError::Full { zone }),
            ZoneState::Offline => return Err(ZoneError::Offline { zone }),
            ZoneState::ReadOnly => return Err(ZoneError::ReadOnly { zone }),
            _ => {}
        }
        let window = if has_window { self.window_blocks } else { 0 };
        let at = match at {
            None if has_window => return Err(ZoneError::AppendToWindow { zone }),
            at => at.unwrap_or(written),
        };
        let end = u64::from(at) + u64::from(blocks);
        let is_in_place = match has_window {
            true => at >= written && end <= u64::from(written) + 2 * u64::from(window),
            false => at == written,
        };
        if !is_in_place {
            return Err(ZoneError::InvalidWrite { zone, at, expected: written });
        }
        if end > u64::from(self.capacity) {
            return Err(ZoneError::Boundary { zone, end, capacity: self.capacity });
        }
        self.may_open(zone)?;
        if !state.is_open() {
            self.open(zone, ZoneState::ImplicitlyOpen);
        }
        let committed = (end as u32).saturating_sub(written + window);
        self.advance(zone, committed);
        Ok(at)
    }

    /// The write pointer of `zone` moves over `blocks` blocks.
    pub(crate) fn advance(&mut self, zone: u32, blocks: u32) {
        self.zones[zone as usize].written += blocks;
        if self.zone(zone).written == self.capacity {
            self.change(zone, ZoneState::Full);
        }
    }

    /// Opens an empty zone with a window; or one that has a window, as [`Action::Open`] does. Returns whether anything changed.
    ///
    /// # Errors
    /// If it is not empty, or there is no resource for it.
    pub fn open_with_window(&mut self, zone: u32) -> Result<bool, ZoneError> {
        let Zone { state, has_window, .. } = self.zone(zone);
        if self.window_blocks == 0 {
            return Err(ZoneError::NoWindows);
        }
        if state != ZoneState::Empty {
            return match state.is_active() && !has_window {
                true => Err(ZoneError::WindowOfWritten { zone, state }),
                false => self.act(zone, Action::Open),
            };
        }
        self.may_open(zone)?;
        if self.windows >= self.limits.max_open {
            return Err(ZoneError::TooManyWindows { limit: self.limits.max_open });
        }
        self.open(zone, ZoneState::ExplicitlyOpen);
        self.set_window(zone, true);
        Ok(true)
    }

    /// The host commits the blocks of a window up to, and without, block `end` of `zone`. Returns how many that are.
    ///
    /// # Errors
    /// If the zone has no window, or the window does not reach so far; or the zone cannot be opened.
    pub fn commit(&mut self, zone: u32, end: u64) -> Result<u32, ZoneError> {
        let Zone { state, written, has_window, .. } = self.zone(zone);
        if !has_window {
            return Err(ZoneError::NoWindow { zone });
        }
        if state == ZoneState::ReadOnly {
            return Err(ZoneError::ReadOnly { zone });
        }
        let window_end = (written + self.window_blocks).min(self.capacity);
        if end <= written.into() || end > window_end.into() {
            return Err(ZoneError::OutsideWindow { zone, end, first: written, window_end });
        }
        self.may_open(zone)?;
        if !state.is_open() {
            self.open(zone, ZoneState::ImplicitlyOpen);
        }
        let blocks = end as u32 - written;
        self.advance(zone, blocks);
        Ok(blocks)
    }

    /// What was found on media says that `zone` has a window.
    pub(crate) fn restore_window(&mut self, zone: u32) {
        self.set_window(zone, true);
    }

    /// How many zones have a window.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// The host sets the extension of an empty zone.
    ///
    /// # Errors
    /// If it is not empty, or as many zones are active as there may be.
    pub fn extend(&mut self, zone: u32) -> Result<(), ZoneError> {
        let state = self.zone(zone).state;
        if state != ZoneState::Empty {
            return Err(ZoneError::NotEmpty { zone, state });
        }
        if self.active >= self.limits.max_active {
            return Err(ZoneError::TooManyActive { limit: self.limits.max_active });
        }
        self.change(zone, ZoneState::Closed);
        self.zones[zone as usize].has_extension = true;
        Ok(())
    }

    /// What was found on media says that `zone` has an extension. Returns whether it may have one.
    pub fn restore_extension(&mut self, zone: u32) -> bool {
        let zone = &mut self.zones[zone as usize];
        zone.has_extension = !matches!(zone.state, ZoneState::Empty | ZoneState::Offline);
        zone.has_extension
    }

    /// Acts on one zone. Returns whether anything changed.
    ///
    /// # Errors
    /// If that cannot be done in its state, or there is no resource for it.
    pub fn act(&mut self, zone: u32, action: Action) -> Result<bool, ZoneError> {
        use ZoneState::{Closed, Empty, ExplicitlyOpen, Full, ImplicitlyOpen, Offline, ReadOnly};
        let state = self.zone(zone).state;
        let to = match (action, state) {
            (Action::Close, ImplicitlyOpen | ExplicitlyOpen | Closed) => Closed,
            (Action::Finish, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => Full,
            (Action::Open, Empty | Closed | ImplicitlyOpen | ExplicitlyOpen) => {
                self.may_open(zone)?;
                ExplicitlyOpen
            }
            (Action::Reset, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => Empty,
            (Action::Offline, ReadOnly | Offline) => Offline,
            _ => return Err(ZoneError::InvalidTransition { zone, state, action }),
        };
        if to == state {
            return Ok(false);
        }
        if to == ExplicitlyOpen {
            self.open(zone, to);
        } else {
            self.change(zone, to);
        }
        if matches!(to, Empty | Offline) {
            self.zones[zone as usize].written = 0;
        }
        Ok(true)
    }

    /// The zones that an action on all of them is taken on.
    ///
    /// # Errors
    /// If there are not enough resources for all.
    pub fn all_for(&self, action: Action) -> Result<Vec<u32>, ZoneError> {
        let chosen: Vec<u32> = (0..self.len()).filter(|zone| action.is_for(self.zone(*zone).state)).collect();
        let explicit = self.open - self.implicit.len() as u32;
        if action == Action::Open && explicit + chosen.len() as u32 > self.limits.max_open {
            return Err(ZoneError::TooManyOpen { limit: self.limits.max_open });
        }
        Ok(chosen)
    }
}
