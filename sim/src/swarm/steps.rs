//! What happens to a drive of the swarm, drawn step by step.

use super::{Dice, Setting};
use crate::fate::Fates;
use crate::fault::{Fault, FaultKind};
use crate::file_steps::{FileAct, FileWeights};
use crate::step::{Deed, DeedKind, FileDeed, Moment, Range, Step, ZoneDeed, ZoneDeedKind};
use openftl_parts::{Config, Durability, PlacementName};

/// A kind of step, before it is said which blocks it names.
#[derive(Clone, Copy)]
enum Kind {
    Write,
    LongWrite,
    DurableWrite,
    WriteUncorrectable,
    Trim,
    DurableTrim,
    Read,
    Flush,
    Settle,
    Idle,
    Restart,
    Cut,
    Fault,
}

/// How often each kind comes, in some unit.
const WEIGHTS: [(Kind, u64); 13] = [
    (Kind::Write, 300),
    (Kind::LongWrite, 20),
    (Kind::DurableWrite, 20),
    (Kind::WriteUncorrectable, 30),
    (Kind::Trim, 40),
    (Kind::DurableTrim, 10),
    (Kind::Read, 80),
    (Kind::Flush, 25),
    (Kind::Settle, 10),
    (Kind::Idle, 20),
    (Kind::Restart, 4),
    (Kind::Cut, 14),
    (Kind::Fault, 14),
];

pub(super) fn steps(setting: &Setting, dice: &mut Dice) -> Vec<Step> {
    // Writes are always there; of everything else, a third is left out.
    let weights: Vec<(Kind, u64)> =
        WEIGHTS.into_iter().filter(|(kind, _)| matches!(kind, Kind::Write) || !dice.once_in(3)).collect();
    let reported = FaultKind::ALL.iter().map(|(kind, _)| *kind).filter(|kind| !FaultKind::SILENT.contains(kind));
    let faults: Vec<FaultKind> = reported.filter(|_| dice.once_in(2)).collect();
    let has_nested_cuts = dice.once_in(2);
    let capacity = setting.config.capacity_blocks;
    // Few blocks are overwritten soon; with the whole drive it takes longer until collection works.
    let space = if dice.once_in(3) { (capacity / 8).max(20) } else { capacity };
    let mut steps: Vec<Step> = Vec::new();
    if dice.once_in(2) {
        let whole = (0..capacity).step_by(64).map(|first| Range { first, blocks: 64.min(capacity - first) });
        steps.extend(whole.map(|range| Step::Write(range, Durability::Volatile)));
    }
    for _ in 0..dice.between(60, 260) {
        let kind = weighted(&weights, dice);
        let mut range = |most: u64| {
            let blocks = dice.between(1, most.min(space));
            Range { first: dice.between(0, space - blocks), blocks }
        };
        steps.push(match kind {
            Kind::Write => Step::Write(range(12), Durability::Volatile),
            Kind::LongWrite => Step::Write(range(256), Durability::Volatile),
            Kind::DurableWrite => Step::Write(range(6), Durability::Durable),
            Kind::WriteUncorrectable => {
                let range = range(12);
                let durability = if dice.once_in(4) { Durability::Durable } else { Durability::Volatile };
                Step::WriteUncorrectable(range, durability)
            }
            Kind::Trim => Step::Trim(range(40), Durability::Volatile),
            Kind::DurableTrim => Step::Trim(range(40), Durability::Durable),
            Kind::Read => Step::Read(range(32)),
            Kind::Flush => Step::Flush,
            Kind::Settle => Step::Settle,
            Kind::Idle => Step::Idle(dice.one_of(&[100, 1_000, 10_000, 100_000])),
            Kind::Restart => Step::Restart,
            Kind::Cut => cut(dice, has_nested_cuts),
            Kind::Fault if faults.is_empty() => Step::Settle,
            Kind::Fault => Step::Fault(Fault { kind: dice.one_of(&faults), pick: dice.between(0, 9_999) as u32 }),
        });
    }
    steps
}

/// Steps with 30 to 300 cuts and stops in them, and little work in between: what each of them leaves adds up.
pub(super) fn long_loop(setting: &Setting, dice: &mut Dice) -> Vec<Step> {
    let capacity = setting.config.capacity_blocks;
    let space = if dice.once_in(2) { capacity } else { (capacity / 8).max(1) };
    let (work_max, events_max) = (dice.one_of(&[1, 3, 8]), dice.one_of(&[5, 40, 400]));
    let (stops, has_nested_cuts) = (dice.one_of(&[0, 4, 20]), dice.once_in(2));
    let mut steps = Vec::new();
    if dice.once_in(2) {
        let whole = (0..capacity).step_by(64).map(|first| Range { first, blocks: 64.min(capacity - first) });
        steps.extend(whole.map(|range| Step::Write(range, Durability::Volatile)));
    }
    for _ in 0..dice.between(30, 300) {
        for _ in 0..dice.between(0, work_max) {
            let mut range = |most: u64| {
                let blocks = dice.between(1, most.min(space));
                Range { first: dice.between(0, space - blocks), blocks }
            };
            let range = range(8);
            steps.push(match dice.between(0, 9) {
                0..6 => Step::Write(range, Durability::Volatile),
                6 => Step::Write(range, Durability::Durable),
                7 => Step::Trim(range, Durability::Volatile),
                8 => Step::Read(range),
                _ => Step::Flush,
            });
        }
        match stops > 0 && dice.once_in(stops) {
            true => steps.push(Step::Restart),
            false => {
                let mut moment = || Moment {
                    events: dice.between(1, events_max),
                    later: if dice.once_in(2) { dice.between(0, 30) as u32 } else { 0 },
                    torn: dice.once_in(2),
                    fates: None,
                };
                let at = moment();
                let recoveries = if has_nested_cuts { vec![moment()] } else { Vec::new() };
                steps.push(Step::Cut { at, recoveries });
            }
        }
    }
    steps
}

/// The same steps: in one run of three the cuts leave more than a prefix in time, and in one of three the drive is opened with other
/// settings than it was made with.
pub(super) fn beyond(steps: Vec<Step>, dice: &mut Dice) -> Vec<Step> {
    let (has_fates, has_settings) = (dice.once_in(3), dice.once_in(3));
    let mut all = Vec::new();
    for step in steps {
        let opens = matches!(step, Step::Restart | Step::Cut { .. });
        if opens && has_settings && dice.once_in(4) {
            all.push(Step::Settings(dice.between(0, 99) as u32));
        }
        all.push(match step {
            Step::Cut { mut at, mut recoveries } if has_fates => {
                for moment in std::iter::once(&mut at).chain(&mut recoveries) {
                    moment.fates = dice.once_in(2).then(|| Fates(dice.between(0, 9_999) as u32));
                }
                Step::Cut { at, recoveries }
            }
            step => step,
        });
    }
    all
}

/// The same steps, with what the drive may be told of lifetimes in between.
pub(super) fn with_hints(steps: Vec<Step>, setting: &Setting, dice: &mut Dice) -> Vec<Step> {
    let Config { placement, handles, capacity_blocks, .. } = setting.config;
    if !placement.heeds_handles() && placement != PlacementName::FlashAlloc {
        return steps;
    }
    let mut all = Vec::new();
    for step in steps {
        if dice.once_in(5) {
            all.push(match placement {
                PlacementName::FlashAlloc => {
                    let blocks = dice.between(1, 100.min(capacity_blocks));
                    Step::Announce(Range { first: dice.between(0, capacity_blocks - blocks), blocks })
                }
                // One more than there are, and none.
                _ => Step::Handle(dice.between(0, u64::from(handles) + 1) as u8),
            });
        }
        all.push(step);
    }
    all
}

/// The same steps of every other run, with faults in between of which the device says nothing: some kinds of them. Erases are
/// lost more often than programs, because only where both are lost something whole and old is left.
pub(super) fn with_silent_faults(steps: Vec<Step>, dice: &mut Dice) -> Vec<Step> {
    let kinds: Vec<FaultKind> = FaultKind::SILENT.into_iter().filter(|_| dice.once_in(2)).collect();
    if kinds.is_empty() || dice.once_in(2) {
        return steps;
    }
    let every = dice.one_of(&[8, 20, 60]);
    let mut all = Vec::new();
    for step in steps {
        if dice.once_in(every) {
            let kind = dice.one_of(&kinds);
            for _ in 0..if kind == FaultKind::LostErase { 6 } else { 1 } {
                all.push(Step::Fault(Fault { kind, pick: dice.between(0, 9_999) as u32 }));
            }
        }
        all.push(step);
    }
    all
}

/// How often each kind comes.
const DEEDS: [(DeedKind, u64); 11] = [
    (DeedKind::Begin, 12),
    (DeedKind::Append, 34),
    (DeedKind::Commit, 9),
    (DeedKind::Abandon, 2),
    (DeedKind::Note, 4),
    (DeedKind::Delete, 7),
    (DeedKind::Pin, 2),
    (DeedKind::Unpin, 3),
    (DeedKind::Read, 14),
    (DeedKind::PutFile, 3),
    (DeedKind::DeleteFile, 2),
];

/// The same steps for a table drive, with what is done with tables in between.
pub(super) fn with_tables(steps: Vec<Step>, dice: &mut Dice) -> Vec<Step> {
    // Tables may be small or large, and are mostly of one size.
    let most = dice.one_of(&[8, 40, 200]);
    let share = dice.one_of(&[1, 2, 4]);
    let mut all = Vec::new();
    for step in steps {
        for _ in 0..share {
            if dice.once_in(3) {
                continue;
            }
            let kind = weighted(&DEEDS, dice);
            let pick = dice.between(0, 99) as u32;
            let size = match kind {
                DeedKind::Begin => dice.one_of(&[0, 0, most]),
                DeedKind::Append | DeedKind::Read => dice.between(1, most),
                DeedKind::Commit | DeedKind::Note | DeedKind::PutFile => match dice.once_in(6) {
                    true => dice.between(0, 12_000),
                    false => dice.between(0, 60),
                },
                _ => 0,
            };
            all.push(Step::Table(Deed { kind, pick, size: size as u32 }));
        }
        all.push(match step {
            Step::WriteUncorrectable(range, durability) => Step::Write(range, durability),
            step => step,
        });
    }
    all
}

/// How often each kind comes.
const ZONE_DEEDS: [(ZoneDeedKind, u64); 8] = [
    (ZoneDeedKind::Append, 30),
    (ZoneDeedKind::AppendDurably, 5),
    (ZoneDeedKind::Write, 25),
    (ZoneDeedKind::Read, 16),
    (ZoneDeedKind::Open, 3),
    (ZoneDeedKind::Close, 4),
    (ZoneDeedKind::Finish, 4),
    (ZoneDeedKind::Reset, 9),
];

/// The same of what zones with windows take beside.
const WINDOW_DEEDS: [(ZoneDeedKind, u64); 2] = [(ZoneDeedKind::OpenWithWindow, 12), (ZoneDeedKind::Commit, 8)];

/// Faults that a zoned drive makes good, or wears out by.
const ZONE_FAULTS: [FaultKind; 5] =
    [FaultKind::Program, FaultKind::Close, FaultKind::Erase, FaultKind::HighEcc, FaultKind::Retry];

/// What happens to a zoned drive.
pub(super) fn zone_steps(setting: &Setting, dice: &mut Dice) -> Vec<Step> {
    // Of everything but writes, a third is left out.
    let is_write = |kind: ZoneDeedKind| matches!(kind, ZoneDeedKind::Append | ZoneDeedKind::Write);
    let has_windows = matches!(setting.kind, super::Kind::Zones { zoned, .. } if zoned.window_blocks > 0);
    let mut deeds: Vec<_> = ZONE_DEEDS.into_iter().filter(|(kind, _)| is_write(*kind) || !dice.once_in(3)).collect();
    deeds.extend(WINDOW_DEEDS.into_iter().filter(|_| has_windows));
    let weights = [
        (Kind::Write, 300),
        (Kind::Flush, 25),
        (Kind::Settle, 10),
        (Kind::Idle, 12),
        (Kind::Restart, 5),
        (Kind::Cut, 20),
        (Kind::Fault, 12),
    ];
    let weights: Vec<_> =
        weights.into_iter().filter(|(kind, _)| matches!(kind, Kind::Write) || !dice.once_in(3)).collect();
    let faults: Vec<FaultKind> = ZONE_FAULTS.into_iter().filter(|_| dice.once_in(2)).collect();
    // Drawn apart, so that other drives are what they would be without.
    let loses = Dice::new(setting.seed.rotate_left(8)).once_in(4);
    let faults = if loses { [faults, vec![FaultKind::Lose, FaultKind::Corrupt]].concat() } else { faults };
    let has_nested_cuts = dice.once_in(2);
    let (most, favoured) = (dice.one_of(&[4, 40, 200]), dice.between(1, 4));
    let is_loop = super::is_narrow(setting.seed) && dice.once_in(2);
    let mut steps = Vec::new();
    for _ in 0..dice.between(60, 260) {
        // Where cuts follow each other at once, what each of them leaves adds up.
        let kind = if is_loop && dice.once_in(3) { Kind::Cut } else { weighted(&weights, dice) };
        steps.push(match kind {
            Kind::Flush => Step::Flush,
            Kind::Settle => Step::Settle,
            Kind::Idle => Step::Idle(dice.one_of(&[100, 1_000, 10_000, 100_000])),
            Kind::Restart => Step::Restart,
            Kind::Cut => cut(dice, has_nested_cuts),
            Kind::Fault if !faults.is_empty() => {
                Step::Fault(Fault { kind: dice.one_of(&faults), pick: dice.between(0, 9_999) as u32 })
            }
            _ => {
                let kind = weighted(&deeds, dice);
                // Most of it in few zones, so that they fill.
                let pick = if dice.once_in(4) { dice.between(0, 9_999) } else { dice.between(0, favoured - 1) };
                let size = match kind {
                    ZoneDeedKind::Append | ZoneDeedKind::AppendDurably | ZoneDeedKind::Write => dice.between(1, most),
                    ZoneDeedKind::Read => dice.between(1, 60),
                    ZoneDeedKind::Commit => dice.between(1, 40),
                    _ => 0,
                };
                Step::Zone(ZoneDeed { kind, pick: pick as u32, size: size as u32 })
            }
        });
    }
    steps
}

/// Faults that segments make good, or fail by.
const FILE_FAULTS: [FaultKind; 5] = ZONE_FAULTS;

/// What happens to a file system.
pub(super) fn file_steps(setting: &Setting, dice: &mut Dice) -> Vec<Step> {
    let often = [0, 10, 60];
    let weights = FileWeights::usual()
        .with(FileAct::Sync, dice.one_of(&often))
        .with(FileAct::BeginSync, dice.one_of(&often))
        .with(FileAct::Write, dice.one_of(&[20, 80]));
    let kinds =
        [(Kind::Write, 300), (Kind::Settle, 4), (Kind::Idle, 8), (Kind::Restart, 4), (Kind::Cut, 12), (Kind::Fault, 8)];
    let kinds: Vec<_> = kinds.into_iter().filter(|(kind, _)| matches!(kind, Kind::Write) || !dice.once_in(3)).collect();
    let faults: Vec<FaultKind> = FILE_FAULTS.into_iter().filter(|_| dice.once_in(2)).collect();
    let (has_nested_cuts, has_fates) = (dice.once_in(2), dice.once_in(3));
    // A drive that was filled and cleaned is another one than a new one.
    let steps = if super::is_narrow(setting.seed) { dice.between(200, 600) } else { dice.between(40, 200) };
    let mut all = Vec::new();
    for _ in 0..steps {
        all.push(match weighted(&kinds, dice) {
            Kind::Settle => Step::Settle,
            Kind::Idle => Step::Idle(dice.one_of(&[100, 1_000, 10_000, 2_000_000])),
            Kind::Restart => Step::Restart,
            Kind::Cut => match cut(dice, has_nested_cuts) {
                Step::Cut { mut at, mut recoveries } if has_fates => {
                    for moment in std::iter::once(&mut at).chain(&mut recoveries) {
                        moment.fates = dice.once_in(2).then(|| Fates(dice.between(0, 9_999) as u32));
                    }
                    Step::Cut { at, recoveries }
                }
                cut => cut,
            },
            Kind::Fault if !faults.is_empty() => {
                Step::Fault(Fault { kind: dice.one_of(&faults), pick: dice.between(0, 9_999) as u32 })
            }
            _ => Step::File(FileDeed { act: weights.draw(dice), pick: dice.between(0, 99_999) as u32 }),
        });
    }
    all
}

fn weighted<K: Copy>(weights: &[(K, u64)], dice: &mut Dice) -> K {
    let mut drawn = dice.between(1, weights.iter().map(|(_, weight)| weight).sum());
    for (kind, weight) in weights {
        match drawn.checked_sub(*weight) {
            None | Some(0) => return *kind,
            Some(left) => drawn = left,
        }
    }
    unreachable!("what is drawn is no more than the sum")
}

fn cut(dice: &mut Dice, has_nested_cuts: bool) -> Step {
    let mut moment = |most: u64| Moment {
        events: dice.between(1, most),
        later: if dice.once_in(2) { dice.between(0, 30) as u32 } else { 0 },
        torn: dice.once_in(2),
        fates: None,
    };
    let at = moment(120);
    let nested = if has_nested_cuts { moment(4).events - 1 } else { 0 };
    Step::Cut { at, recoveries: (0..nested).map(|_| moment(150)).collect() }
}
