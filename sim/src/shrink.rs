//! A failing run made short: steps are left out or joined, and those that stay made simple, while it still fails in the
//! same way.

use crate::caught::Failure;
use crate::explore::explore;
use crate::step::{Deed, FileDeed, Moment, Range, Step, ZoneDeed};
use crate::swarm::Run;

/// Runs that are tried, at most.
pub const ATTEMPTS_MAX: u32 = 5_000;

/// A short run that fails as a longer one did.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The run.
    pub run: Run,
    /// How it fails.
    pub failure: Failure,
    /// Runs that were tried.
    pub attempts: u32,
}

/// Makes `run` short, which fails with `failure`, as long as `go_on` says so of what it has become.
#[must_use]
pub fn shrink(run: &Run, failure: &Failure, go_on: impl FnMut(&Shrunk) -> bool) -> Shrunk {
    let shrunk = Shrunk { run: run.clone(), failure: failure.clone(), attempts: 0 };
    let mut shrinking = Shrinking { shrunk, go_on, is_over: false };
    loop {
        while shrinking.leave_out() || shrinking.join() {}
        if !shrinking.simplify() {
            return shrinking.shrunk;
        }
    }
}

struct Shrinking<F> {
    shrunk: Shrunk,
    go_on: F,
    is_over: bool,
}

impl<F: FnMut(&Shrunk) -> bool> Shrinking<F> {
    /// Keeps `steps` if they fail in the same way.
    fn keep_if_failing(&mut self, steps: Vec<Step>) -> bool {
        let shrunk = &mut self.shrunk;
        self.is_over = self.is_over || shrunk.attempts == ATTEMPTS_MAX || !(self.go_on)(shrunk);
        if self.is_over {
            return false;
        }
        shrunk.attempts += 1;
        let run = Run { steps, ..shrunk.run.clone() };
        match explore(&run).failure {
            Some(failure) if failure.place == shrunk.failure.place => {
                (shrunk.run, shrunk.failure) = (run, failure);
                true
            }
            _ => false,
        }
    }

    /// Leaves out halves, then quarters, and so on down to single steps. Gives whether any could be.
    fn leave_out(&mut self) -> bool {
        let before = self.shrunk.run.steps.len();
        let mut size = before.div_ceil(2);
        while size > 0 {
            // From the end: what comes after the failure goes first.
            let mut end = self.shrunk.run.steps.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut steps = self.shrunk.run.steps.clone();
                steps.drain(start..end);
                self.keep_if_failing(steps);
                end = start.min(self.shrunk.run.steps.len());
            }
            size /= 2;
        }
        self.shrunk.run.steps.len() < before
    }

    /// Makes one write of two: what fills a drive need not be many. Gives whether any could be.
    fn join(&mut self) -> bool {
        let before = self.shrunk.run.steps.len();
        let most = self.shrunk.run.setting.config.capacity_blocks.min(256);
        let mut index = 0;
        while index < self.shrunk.run.steps.len() {
            let mut steps = self.shrunk.run.steps.clone();
            let is_write = |step: &Step| matches!(step, Step::Write(..));
            let next = steps[index + 1..].iter().position(is_write).map(|ahead| index + 1 + ahead);
            if let (Step::Write(one, durability), Some(next)) = (&steps[index], next) {
                let other = steps[next].range().expect("a write names blocks");
                let joined = Range { first: 0, blocks: (one.blocks + other.blocks).min(most) };
                steps[index] = Step::Write(joined, *durability);
                steps.remove(next);
                if self.keep_if_failing(steps) {
                    continue;
                }
            }
            index += 1;
        }
        self.shrunk.run.steps.len() < before
    }

    /// Makes single steps simpler. Gives whether any could be.
    fn simplify(&mut self) -> bool {
        let mut changed = false;
        for index in 0..self.shrunk.run.steps.len() {
            while let Some(simpler) = simpler(&self.shrunk.run.steps[index]).into_iter().find(|simpler| {
                let mut steps = self.shrunk.run.steps.clone();
                steps[index] = simpler.clone();
                self.keep_if_failing(steps)
            }) {
                debug_assert_eq!(simpler, self.shrunk.run.steps[index]);
                changed = true;
            }
        }
        changed
    }
}

/// What may be tried in place of a step, simplest first.
fn simpler(step: &Step) -> Vec<Step> {
    let mut simpler = Vec::new();
    if let Some(Range { first, blocks }) = step.range() {
        let ranges = [(0, 1), (first, 1), (0, blocks), (first / 2, blocks), (first, blocks / 2), (first, blocks - 1)];
        let differ = |range: &Range| range.blocks > 0 && (range.first, range.blocks) != (first, blocks);
        let ranges = ranges.map(|(first, blocks)| Range { first, blocks });
        simpler.extend(ranges.iter().filter(|range| differ(range)).map(|range| step.with_range(*range)));
    }
    match step {
        Step::Cut { at, recoveries } => {
            if !recoveries.is_empty() {
                simpler.push(Step::Cut { at: *at, recoveries: Vec::new() });
                simpler.push(Step::Cut { at: *at, recoveries: recoveries[..recoveries.len() - 1].to_vec() });
            }
            simpler.extend(simpler_moments(*at).map(|at| Step::Cut { at, recoveries: recoveries.clone() }));
            for (index, moment) in recoveries.iter().enumerate() {
                simpler.extend(simpler_moments(*moment).map(|moment| {
                    let mut recoveries = recoveries.clone();
                    recoveries[index] = moment;
                    Step::Cut { at: *at, recoveries }
                }));
            }
        }
        Step::Table(deed) => {
            let deeds = simpler_numbers(deed.pick, deed.size).map(|(pick, size)| Deed { pick, size, ..*deed });
            simpler.extend(deeds.map(Step::Table));
        }
        Step::Zone(deed) => {
            let deeds = simpler_numbers(deed.pick, deed.size).map(|(pick, size)| ZoneDeed { pick, size, ..*deed });
            simpler.extend(deeds.filter(|simpler| simpler.size > 0 || deed.size == 0).map(Step::Zone));
        }
        Step::File(FileDeed { act, pick }) => {
            let picks = [0, 1, pick / 16, pick / 2, pick.saturating_sub(1)].into_iter().filter(|less| less < pick);
            simpler.extend(picks.map(|pick| Step::File(FileDeed { act: *act, pick })));
        }
        Step::Idle(micros) if *micros > 1 => simpler.push(Step::Idle(micros / 2)),
        _ => {}
    }
    simpler
}

/// What picks a table or a zone, and how much of it.
fn simpler_numbers(pick: u32, size: u32) -> impl Iterator<Item = (u32, u32)> {
    let candidates = [(0, size), (pick, 1), (pick, size / 2), (pick, size.saturating_sub(1))];
    candidates.into_iter().filter(move |(first, less)| *first < pick || *less < size)
}

fn simpler_moments(moment: Moment) -> impl Iterator<Item = Moment> {
    let Moment { events, later, .. } = moment;
    let candidates = [
        Moment { fates: None, ..moment },
        Moment { torn: false, ..moment },
        Moment { later: 0, ..moment },
        Moment { later: later / 2, ..moment },
        Moment { events: 1, ..moment },
        Moment { events: events / 2, ..moment },
        Moment { events: events.saturating_sub(1), ..moment },
    ];
    candidates.into_iter().filter(move |candidate| *candidate != moment && candidate.events > 0)
}
