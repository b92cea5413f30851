//! Plays one run from its beginning to its end, and judges it.

use crate::caught::{Failure, caught};
use crate::fate::States;
use crate::fault::FaultKind;
use crate::played::{Played, Plays};
use crate::step::{Moment, Step};
use crate::swarm::{Run, Setting, World, other_settings};
use openftl_core::{Nanos, TraceHash};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Virtual time in which a drive comes to rest when nothing is asked of it.
const REST: Nanos = Nanos::from_millis(500);

/// What happened, in numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Steps taken.
    pub steps: u64,
    /// Commands and moments seen between FTL and device.
    pub events: u64,
    /// Power cuts while the drive was open.
    pub cuts: u64,
    /// Power cuts during a recovery.
    pub recovery_cuts: u64,
    /// States that all these cuts left.
    pub states: States,
    /// Openings with other settings than the time before.
    pub other_settings: u64,
    /// Recovered drives that then worked and closed.
    pub closed: u64,
    /// Clean restarts.
    pub restarts: u64,
    /// Table drives among the runs.
    pub table_drives: u64,
    /// Zoned drives among the runs.
    pub zoned_drives: u64,
    /// Stores of pages among the runs.
    pub page_stores: u64,
    /// File systems among the runs.
    pub file_systems: u64,
    /// Drives that wore out.
    pub worn_out: u64,
    /// Faults injected, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

impl Tally {
    /// Faults of all kinds.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.events += other.events;
        self.cuts += other.cuts;
        self.recovery_cuts += other.recovery_cuts;
        self.states += other.states;
        self.other_settings += other.other_settings;
        self.closed += other.closed;
        self.restarts += other.restarts;
        self.table_drives += other.table_drives;
        self.zoned_drives += other.zoned_drives;
        self.page_stores += other.page_stores;
        self.file_systems += other.file_systems;
        self.worn_out += other.worn_out;
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Explored {
    /// What happened.
    pub tally: Tally,
    /// A hash over all of it, in order: the same on every machine.
    pub trace: TraceHash,
    /// What was wrong, if anything was.
    pub failure: Option<Failure>,
}

/// Plays a run.
#[must_use]
pub fn explore(run: &Run) -> Explored {
    let mut tally = Tally { runs: 1, ..Tally::default() };
    let mut trace = TraceHash::START;
    let failure = caught(|| match run.setting.world().expect("a setting that was drawn or tried") {
        World::Block(world) => trace = play(*world, run, &mut tally),
        World::Tables(world) => {
            tally.table_drives += 1;
            trace = play(*world, run, &mut tally);
        }
        World::Zones(world) => {
            tally.zoned_drives += 1;
            trace = play(*world, run, &mut tally);
        }
        World::Pages(world) => {
            tally.page_stores += 1;
            trace = play(*world, run, &mut tally);
        }
        World::Files(world) => {
            tally.file_systems += 1;
            trace = play(*world, run, &mut tally);
        }
    })
    .err();
    trace.add(u64::from(failure.is_some()));
    Explored { tally, trace, failure }
}

/// Plays a run in a world of somebody else: one with an FTL that is none of the project's.
#[must_use]
pub fn explore_in<P: Played>(run: &Run, world: impl FnOnce() -> P) -> Explored {
    let (mut tally, mut trace) = (Tally { runs: 1, ..Tally::default() }, TraceHash::START);
    let failure = caught(|| trace = play(world(), run, &mut tally)).err();
    Explored { tally, trace, failure }
}

/// Plays a run in a world.
fn play(world: impl Plays, run: &Run, tally: &mut Tally) -> TraceHash {
    let mut play = Play { world, setting: &run.setting, cut: None, tally };
    for step in &run.steps {
        play.take(step);
    }
    play.end();
    play.world.trace()
}

/// A run under way.
struct Play<'a, S> {
    world: S,
    setting: &'a Setting,
    /// The power cut that is to come.
    cut: Option<(Moment, &'a [Moment])>,
    tally: &'a mut Tally,
}

impl<'a, S: Plays> Play<'a, S> {
    fn take(&mut self, step: &'a Step) {
        self.tally.steps += 1;
        if let Step::Cut { at, recoveries } = step {
            // One that has not come yet comes now.
            self.power_cut();
            self.world.wire().arm(at.events);
            self.cut = Some((*at, recoveries));
            return;
        }
        let wire = self.world.wire().clone();
        if wire.until_cut(|| self.act(step)) {
            self.power_cut();
        }
        self.tally.events = wire.events();
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Settle => self.world.settle(),
            Step::Idle(micros) => self.world.idle(Nanos::from_micros(*micros)),
            Step::Settings(number) => {
                self.world.set_next_config(other_settings(self.setting, *number));
                self.tally.other_settings += 1;
            }
            Step::Restart => {
                self.world.clean_restart();
                self.tally.restarts += 1;
            }
            Step::Fault(fault) => {
                let injected = self.world.inject(*fault);
                *self.tally.faults.entry(fault.kind).or_default() += u64::from(injected);
            }
            Step::Cut { .. } => unreachable!("taken before"),
            request => self.world.request(request),
        }
        while self.world.requests_under_way() >= self.setting.depth {
            self.world.pump();
        }
    }

    /// Cuts the power as was said, and has the drive recover; that may be cut, too.
    fn power_cut(&mut self) {
        let Some((at, recoveries)) = self.cut.take() else { return };
        self.tally.cuts += 1;
        self.cut(at);
        for at in recoveries {
            let world = &mut self.world;
            let wire = world.wire().clone();
            if !wire.cut_after(at.events, || open(world)) {
                break;
            }
            self.tally.recovery_cuts += 1;
            self.cut(*at);
        }
        let world = &mut self.world;
        if !world.is_open() {
            open(world);
        }
        if let Err(contradiction) = world.recover() {
            panic!("{contradiction}");
        }
    }

    /// The power goes. A copy of what that leaves is recovered, works and is closed; the drive itself goes on as it is.
    fn cut(&mut self, at: Moment) {
        self.tally.states += self.world.power_cut_at(at);
        self.world.probe();
        self.tally.closed += 1;
    }

    fn end(&mut self) {
        let wire = self.world.wire().clone();
        if wire.until_cut(|| self.world.idle(REST)) || wire.is_armed() {
            self.power_cut();
        }
        let world = &mut self.world;
        world.settle();
        world.verify_all();
        if !self.tally.faults.contains_key(&FaultKind::Offline) && !world.is_damaged() {
            world.check();
        }
        self.tally.worn_out += u64::from(world.is_read_only());
        world.clean_restart();
        world.verify_all();
        self.tally.events = world.wire().events();
    }
}

fn open(world: &mut impl Plays) {
    if let Err(error) = world.open() {
        panic!("the drive is refused: {error}");
    }
}
