//! The state machine of zones against a model that says the same in another way: every state × action × resource.

use openftl_zones::{Action, Board, Limits, Zone, ZoneError, ZoneState};
use rustc_hash::FxHashSet;
use std::collections::{BTreeSet, VecDeque};

const CAPACITY: u32 = 3;

/// What a host can ask of a zone.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Write {
        at: Option<u32>,
        blocks: u32,
    },
    Act(Action),
    /// The medium of the zone has failed.
    Fail,
    /// Something of it is weak, and cannot move.
    Weaken,
    /// The host sets its extension.
    Extend,
    /// The host opens it with a window.
    OpenWithWindow,
    /// The host commits what is before this block.
    Commit {
        end: u64,
    },
}

/// A zone as the specification tells of it: a state, a write pointer, and when it was implicitly opened; and the zones that have been weak
/// or got an extension since they last were empty; and those that have a window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Model {
    zones: Vec<(ZoneState, u32, usize)>,
    weak: BTreeSet<usize>,
    extended: BTreeSet<usize>,
    windowed: BTreeSet<usize>,
    clock: usize,
    /// Blocks of a window.
    window: u32,
}

impl Model {
    fn count(&self, is: impl Fn(ZoneState) -> bool) -> u32 {
        self.zones.iter().filter(|zone| is(zone.0)).count() as u32
    }

    /// Opens zone `zone` as `state`; the error if there is no resource.
    fn open(&mut self, limits: Limits, zone: usize, state: ZoneState) -> Result<(), ZoneError> {
        let before = self.zones[zone].0;
        if before == ZoneState::Empty && self.count(|state| state.is_active()) >= limits.max_active {
            return Err(ZoneError::TooManyActive { limit: limits.max_active });
        }
        let is_open = matches!(before, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen);
        if !is_open && self.count(|state| state.is_open()) >= limits.max_open {
            let implicit = self.zones.iter().enumerate().filter(|(_, zone)| zone.0 == ZoneState::ImplicitlyOpen);
            let Some((oldest, _)) = implicit.min_by_key(|(_, zone)| zone.2) else {
                return Err(ZoneError::TooManyOpen { limit: limits.max_open });
            };
            self.zones[oldest].0 = ZoneState::Closed;
        }
        if before != state {
            self.clock += 1;
            self.zones[zone] = (state, self.zones[zone].1, self.clock);
        }
        Ok(())
    }

    fn apply(&mut self, limits: Limits, zone: usize, deed: Deed) -> Result<(), ZoneError> {
        use ZoneState::{Closed, Empty, ExplicitlyOpen, Full, ImplicitlyOpen, Offline, ReadOnly};
        let (state, written, _) = self.zones[zone];
        let name = zone as u32;
        match deed {
            Deed::Fail => self.zones[zone].0 = ReadOnly,
            Deed::Weaken => _ = self.weak.insert(zone),
            Deed::Extend => {
                if state != Empty {
                    return Err(ZoneError::NotEmpty { zone: name, state });
                }
                if self.count(|state| state.is_active()) == limits.max_active {
                    return Err(ZoneError::TooManyActive { limit: limits.max_active });
                }
                self.zones[zone].0 = Closed;
                self.extended.insert(zone);
            }
            Deed::Write { at, blocks } => {
                match state {
                    Full => return Err(ZoneError::Full { zone: name }),
                    ReadOnly => return Err(ZoneError::ReadOnly { zone: name }),
                    Offline => return Err(ZoneError::Offline { zone: name }),
                    Empty | ImplicitlyOpen | ExplicitlyOpen | Closed => {}
                }
                let has_window = self.windowed.contains(&zone);
                if at.is_none() && has_window {
                    return Err(ZoneError::AppendToWindow { zone: name });
                }
                let at = at.unwrap_or(written);
                // Within the window, or so far behind it that a window is committed.
                let places = if has_window { written..=written + 2 * self.window - 1 } else { written..=written };
                let is_in_place = places.contains(&at) && (!has_window || places.contains(&(at + blocks - 1)));
                if !is_in_place {
                    return Err(ZoneError::InvalidWrite { zone: name, at, expected: written });
                }
                if at + blocks > CAPACITY {
                    let end = u64::from(at + blocks);
                    return Err(ZoneError::Boundary { zone: name, end, capacity: CAPACITY });
                }
                if state != ExplicitlyOpen {
                    self.open(limits, zone, ImplicitlyOpen)?;
                }
                match has_window {
                    false => self.zones[zone].1 += blocks,
                    true => {
                        while self.zones[zone].1 + self.window < at + blocks {
                            self.zones[zone].1 += 1;
                        }
                    }
                }
                if self.zones[zone].1 == CAPACITY {
                    self.zones[zone].0 = Full;
                }
            }
            Deed::OpenWithWindow => {
                let has_window = self.windowed.contains(&zone);
                match state {
                    _ if self.window == 0 => return Err(ZoneError::NoWindows),
                    Empty => {}
                    ImplicitlyOpen | ExplicitlyOpen | Closed if has_window => {}
                    ImplicitlyOpen | ExplicitlyOpen | Closed => {
                        return Err(ZoneError::WindowOfWritten { zone: name, state });
                    }
                    Full | ReadOnly | Offline => {
                        return Err(ZoneError::InvalidTransition { zone: name, state, action: Action::Open });
                    }
                }
                let before = self.clone();
                self.open(limits, zone, ExplicitlyOpen)?;
                if !has_window && self.windowed.len() as u32 >= limits.max_open {
                    *self = before;
                    return Err(ZoneError::TooManyWindows { limit: limits.max_open });
                }
                self.windowed.insert(zone);
            }
            Deed::Commit { end } => {
                if !self.windowed.contains(&zone) {
                    return Err(ZoneError::NoWindow { zone: name });
                }
                if state == ReadOnly {
                    return Err(ZoneError::ReadOnly { zone: name });
                }
                let window_end = CAPACITY.min(written + self.window);
                if !(written + 1..=window_end).any(|block| u64::from(block) == end) {
                    return Err(ZoneError::OutsideWindow { zone: name, end, first: written, window_end });
                }
                if state != ExplicitlyOpen {
                    self.open(limits, zone, ImplicitlyOpen)?;
                }
                self.zones[zone].1 = end as u32;
                if self.zones[zone].1 == CAPACITY {
                    self.zones[zone].0 = Full;
                }
            }
            Deed::Act(action) => {
                let refused = Err(ZoneError::InvalidTransition { zone: name, state, action });
                match (action, state) {
                    (Action::Reset, ReadOnly | Offline)
                    | (Action::Finish, ReadOnly | Offline)
                    | (Action::Close, Empty | Full | ReadOnly | Offline)
                    | (Action::Open, Full | ReadOnly | Offline)
                    | (Action::Offline, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => return refused,
                    (Action::Reset, _) => self.zones[zone] = (Empty, 0, 0),
                    (Action::Finish, _) => self.zones[zone].0 = Full,
                    (Action::Close, _) => self.zones[zone].0 = Closed,
                    (Action::Open, _) => self.open(limits, zone, ExplicitlyOpen)?,
                    (Action::Offline, _) => self.zones[zone] = (Offline, 0, 0),
                }
            }
        }
        // A recommendation is for zones that a host can finish or reset.
        let zones = &self.zones;
        self.weak.retain(|zone| !matches!(zones[*zone].0, Empty | ReadOnly | Offline));
        self.extended.retain(|zone| !matches!(zones[*zone].0, Empty | Offline));
        self.windowed.retain(|zone| !matches!(zones[*zone].0, Empty | Full | Offline));
        Ok(())
    }
}

/// The order of what is implicitly open is all that the times are for.
fn normal(model: &Model) -> Model {
    let mut times: Vec<usize> =
        model.zones.iter().filter(|zone| zone.0 == ZoneState::ImplicitlyOpen).map(|zone| zone.2).collect();
    times.sort_unstable();
    let rank = |zone: &(ZoneState, u32, usize)| match zone.0 {
        ZoneState::ImplicitlyOpen => times.iter().position(|time| *time == zone.2).expect("it is one of them") + 1,
        _ => 0,
    };
    let zones = model.zones.iter().map(|zone| (zone.0, zone.1, rank(zone))).collect();
    Model { zones, clock: times.len(), ..model.clone() }
}

fn deeds(window: u32) -> Vec<Deed> {
    let writes = [(None, 1), (None, 2), (None, 4), (Some(0), 1), (Some(1), 2), (Some(3), 1)];
    let writes = writes.into_iter().map(|(at, blocks)| Deed::Write { at, blocks });
    let others = [Deed::Fail, Deed::Weaken, Deed::Extend, Deed::OpenWithWindow];
    let commits = (0..if window > 0 { 5 } else { 1 }).map(|end| Deed::Commit { end });
    writes.chain(Action::ALL.into_iter().map(Deed::Act)).chain(others).chain(commits).collect()
}

#[test]
fn every_state_that_can_be_reached_takes_every_deed_as_the_model_does() {
    let mut cells = 0_u64;
    // Zones, blocks of a window, and limits. Three zones are needed where two may be open and a third one active.
    let drives = [
        (3, 0, 1, 1),
        (3, 0, 2, 3),
        (2, 0, 1, 2),
        (2, 0, 2, 2),
        (2, 1, 1, 1),
        (2, 1, 1, 2),
        (2, 2, 1, 2),
        (2, 2, 2, 2),
    ];
    for (zones, window, max_open, max_active) in drives {
        let limits = Limits { max_open, max_active };
        let empty = Model {
            zones: vec![(ZoneState::Empty, 0, 0); zones],
            weak: BTreeSet::new(),
            extended: BTreeSet::new(),
            windowed: BTreeSet::new(),
            clock: 0,
            window,
        };
        let first = (empty, Board::new(zones as u32, CAPACITY, limits).with_windows(window));
        let mut seen = FxHashSet::from_iter([first.0.clone()]);
        let mut waiting = VecDeque::from([first]);
        while let Some((model, board)) = waiting.pop_front() {
            for zone in 0..zones {
                for deed in deeds(window) {
                    cells += 1;
                    let (mut model, mut board) = (model.clone(), board.clone());
                    let before = (board.clone(), model.clone());
                    let expected = model.apply(limits, zone, deed);
                    let name = zone as u32;
                    let found = match deed {
                        Deed::Write { at, blocks } => board.write(name, at, blocks).map(drop),
                        Deed::Act(action) => board.act(name, action).map(drop),
                        Deed::Fail => {
                            let written = board.zone(name).written;
                            board.put(name, ZoneState::ReadOnly, written);
                            Ok(())
                        }
                        Deed::Extend => board.extend(name),
                        Deed::OpenWithWindow => board.open_with_window(name).map(drop),
                        Deed::Commit { end } => board.commit(name, end).map(drop),
                        Deed::Weaken => {
                            let is_news = board.recommend(name);
                            assert_eq!(is_news, model.weak.contains(&zone) && !before.1.weak.contains(&zone));
                            Ok(())
                        }
                    };
                    assert_eq!(found, expected, "{deed:?} of zone {zone}, {limits:?}: {before:?}");
                    if found.is_err() {
                        assert_eq!(board, before.0, "{deed:?} was refused, and changed something");
                    }
                    let is_recommended = |zone: &Zone| zone.is_finish_recommended() || zone.is_reset_recommended();
                    let shown: Vec<_> = board
                        .zones()
                        .iter()
                        .map(|zone| {
                            (zone.state, zone.written, is_recommended(zone), zone.has_extension, zone.has_window)
                        })
                        .collect();
                    let is_in = |set: &BTreeSet<usize>, zone: usize| set.contains(&zone);
                    let wanted: Vec<_> = model
                        .zones
                        .iter()
                        .enumerate()
                        .map(|(at, zone)| {
                            let [weak, extended, windowed] =
                                [&model.weak, &model.extended, &model.windowed].map(|set| is_in(set, at));
                            (zone.0, zone.1, weak, extended, windowed)
                        })
                        .collect();
                    assert_eq!(shown, wanted, "{deed:?} of zone {zone}, {limits:?}: {before:?}");
                    let counted = (model.count(ZoneState::is_open), model.count(ZoneState::is_active));
                    assert_eq!(board.resources(), counted);
                    assert_eq!(board.windows(), model.windowed.len() as u32);
                    let model = normal(&model);
                    if seen.insert(model.clone()) {
                        waiting.push_back((model, board));
                    }
                }
            }
        }
    }
    assert!(cells > 100_000, "{cells} cells are not all there are");
}

#[test]
fn an_action_on_all_zones_is_taken_on_those_it_is_for_or_on_none() {
    let limits = Limits { max_open: 2, max_active: 4 };
    let mut board = Board::new(8, CAPACITY, limits);
    for zone in 0..3 {
        board.write(zone, None, 1).unwrap();
        board.act(zone, Action::Close).unwrap();
    }
    assert_eq!(board.all_for(Action::Open), Err(ZoneError::TooManyOpen { limit: 2 }));
    board.act(0, Action::Finish).unwrap();
    assert_eq!(board.all_for(Action::Open), Ok(vec![1, 2]));
    assert_eq!(board.all_for(Action::Reset), Ok(vec![0, 1, 2]));
    assert_eq!(board.all_for(Action::Offline), Ok(vec![]));
    board.act(1, Action::Open).unwrap();
    assert_eq!(board.all_for(Action::Close), Ok(vec![1]));
    board.write(3, None, 1).unwrap();
    assert_eq!(board.all_for(Action::Finish), Ok(vec![1, 2, 3]));
}
