//! A crew of threads, each of which takes the next run when it has ended one. Nothing is shared between runs.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long whoever watches sleeps at most before it looks again.
const LOOK: Duration = Duration::from_millis(100);

/// How far a run is.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// What it is doing.
    pub doing: Cow<'static, str>,
    /// The part of it that is done, 0 to 1.
    pub share: f64,
}

/// Where a run says how far it is, and hears that it is no longer wanted.
pub struct Desk<'a> {
    stage: &'a Mutex<Option<(usize, Stage)>>,
    run: usize,
    stop: &'a AtomicBool,
}

impl Desk<'_> {
    /// Says how far the run is. Cheap enough for every thousand requests.
    pub fn say(&self, doing: impl Into<Cow<'static, str>>, share: f64) -> ControlFlow<()> {
        let stage = Stage { doing: doing.into(), share };
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.run, stage));
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Threads for `runs` runs, if nobody says how many: one for each processor.
pub fn size(asked: Option<u32>, runs: usize) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or_else(processors, |jobs| jobs as usize).min(runs).max(1)
}

/// Works off the runs `0..runs` on `jobs` threads. The caller's thread is told of every run that has `ended`, in whatever order,
/// and may stop there; now and then it is `shown` how many have ended and how
/// far the runs under way are.
pub fn work<T: Send>(
    runs: usize,
    jobs: usize,
    run: impl Fn(usize, &Desk<'_>) -> T + Sync,
    mut ended: impl FnMut(usize, T) -> ControlFlow<()>,
    mut shown: impl FnMut(usize, &[(usize, Stage)]),
) {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let stages: Vec<Mutex<Option<(usize, Stage)>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for stage in &stages {
            let (sender, next, stop, run) = (sender.clone(), &next, &stop, &run);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        break;
                    }
                    let result = run(number, &Desk { stage, run: number, stop });
                    // What has ended is not under way.
                    *stage.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    if sender.send((number, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut count = 0;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok((number, result)) => {
                    count += 1;
                    if !stop.load(Ordering::Relaxed) && ended(number, result).is_break() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let stage = |of: &Mutex<Option<_>>| of.lock().unwrap_or_else(PoisonError::into_inner).clone();
            shown(count, &stages.iter().filter_map(stage).collect::<Vec<_>>());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn every_run_is_done_once_whoever_does_it() {
        for jobs in [1, 3] {
            let mut done = vec![0; 20];
            work(
                20,
                jobs,
                |run, desk| {
                    assert!(desk.say("run", 0.5).is_continue());
                    run * run
                },
                |run, square| {
                    assert_eq!(square, run * run);
                    done[run] += 1;
                    ControlFlow::Continue(())
                },
                |_, _| {},
            );
            assert_eq!(done, [1; 20], "{jobs} jobs");
        }
    }

    #[test]
    fn two_threads_work_at_the_same_time() {
        // Each run waits for the other: with one thread this would never end.
        let both = Barrier::new(2);
        let mut ended = 0;
        work(
            2,
            2,
            |_, _| {
                both.wait();
            },
            |_, ()| {
                ended += 1;
                ControlFlow::Continue(())
            },
            |_, _| {},
        );
        assert_eq!(ended, 2);
    }

    #[test]
    fn a_run_that_has_ended_is_not_shown_as_under_way() {
        // The second run says nothing until the end of the first has been shown.
        let first_is_gone = AtomicBool::new(false);
        work(
            2,
            1,
            |run, desk| {
                if run == 0 {
                    _ = desk.say(format!("run {run}"), 1.0);
                }
                while run == 1 && !first_is_gone.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            },
            |_, ()| ControlFlow::Continue(()),
            |ended, under_way| {
                assert!(ended == 0 || under_way.is_empty(), "{under_way:?}");
                first_is_gone.store(ended > 0, Ordering::Relaxed);
            },
        );
    }

    #[test]
    fn after_a_stop_no_run_begins_and_those_under_way_are_told() {
        let mut ended = Vec::new();
        work(
            1000,
            1,
            |run, desk| {
                // The first ends by itself; whatever has begun by the time of the stop hears of it.
                while run > 0 && desk.say("run", 0.0).is_continue() {
                    std::thread::yield_now();
                }
            },
            |run, ()| {
                ended.push(run);
                ControlFlow::Break(())
            },
            |_, _| {},
        );
        assert_eq!(ended, [0]);
    }
}
