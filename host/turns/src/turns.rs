//! A file system behind its lock, and those who wait for it.
//!
//! ```text
//!   thread ── lock ── attempt ── over? ──yes──▶ unlock, answer
//!                                  │ no
//!   helper ────────────────────────┤
//!                                  ▼
//!               one of those who wait polls when something is due; the others sleep until it has made progress
//! ```
//!
//! Nobody holds the lock while it sleeps. Of the threads that wait, one sleeps until the file system's next moment is due (the *sentry*), whichever
//! came first. A thread that only [helps](Turns::help) waits always, so that work which nobody waits for goes on, too.

use crate::clock::ServeClock;
use openftl_alfs::FileSystem;
use openftl_core::Time;
use openftl_dispatch::be_precise;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a thread has while it holds the lock.
pub struct Taken<F, B> {
    /// The file system.
    pub fs: F,
    /// What its users keep beside it.
    pub beside: B,
    /// Looks at the file system after each poll.
    pub watch: Option<FsWatch<F>>,
    /// Until when the sentry sleeps, if there is one.
    sentry: Option<Time>,
    /// Somebody who waits has been woken to become the sentry.
    is_called: bool,
    /// Changes when operations that wait should be attempted again.
    progress: u64,
}

/// What is called with the file system after each poll.
pub type FsWatch<F> = Box<dyn FnMut(&mut F, Time) + Send>;

/// The lock, held.
pub type TakenGuard<'a, F, B> = MutexGuard<'a, Taken<F, B>>;

/// Wakes the sentry, for a device that has done something before it was due.
#[derive(Clone, Default)]
pub struct Alarm(Arc<AlarmState>);

#[derive(Default)]
struct AlarmState {
    /// Since the file system was last polled.
    is_rung: AtomicBool,
    /// The sentry waits here.
    sentry: Condvar,
}

impl Alarm {
    /// Has the file system polled soon: at once, or when the device has itself asked again. Waits for nobody who has the file system.
    pub fn ring(&self) {
        self.0.is_rung.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.0.sentry.notify_all();
    }
}

/// See the module.
pub struct Turns<F, B, C> {
    taken: Mutex<Taken<F, B>>,
    alarm: Alarm,
    /// The others wait here.
    others: Condvar,
    clock: C,
    /// Threads that want the lock.
    wanting: AtomicU32,
    /// Helpers leave.
    is_over: AtomicBool,
}

/// A thread that panics with the file system tells those who wait: they find the lock poisoned.
struct TellOfPanic<'a> {
    others: &'a Condvar,
    alarm: &'a Alarm,
}

impl Drop for TellOfPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.others.notify_all();
            self.alarm.wake();
        }
    }
}

impl<F: FileSystem, B, C: ServeClock> Turns<F, B, C> {
    /// Takes over a file system. Its times are those of `clock`.
    pub fn new(fs: F, beside: B, clock: C) -> Turns<F, B, C> {
        let taken = Taken { fs, beside, watch: None, sentry: None, is_called: false, progress: 0 };
        Turns {
            taken: Mutex::new(taken),
            alarm: Alarm::default(),
            others: Condvar::new(),
            clock,
            wanting: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// How time passes.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Has the file system polled before something is due.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Takes the lock; whoever has attempted something [leaves](Turns::leave) with it.
    ///
    /// # Panics
    /// If a thread has panicked that held it.
    pub fn take(&self) -> TakenGuard<'_, F, B> {
        self.wanting.fetch_add(1, Ordering::Relaxed);
        let taken = self.taken.lock();
        self.wanting.fetch_sub(1, Ordering::Relaxed);
        taken.expect("no thread has panicked with the file system")
    }

    /// Gives the lock back. If the file system is due before anybody would look, one who waits is woken.
    pub fn leave(&self, mut taken: TakenGuard<'_, F, B>) {
        match (taken.fs.next_due(), taken.sentry) {
            (Some(due), Some(until)) if due < until => self.alarm.wake(),
            (Some(_), None) if !taken.is_called => {
                taken.is_called = true;
                self.others.notify_one();
            }
            _ => {}
        }
    }

    /// Waits until an operation that waits should be attempted again: there was progress, or others have left and nothing is due any more.
    ///
    /// # Panics
    /// If a thread has panicked that held the lock.
    pub fn wait_for_progress<'a>(&'a self, mut taken: TakenGuard<'a, F, B>) -> TakenGuard<'a, F, B> {
        let progress = taken.progress;
        loop {
            taken = self.wait(taken);
            if taken.progress != progress || taken.fs.next_due().is_none() {
                return taken;
            }
        }
    }

    /// Waits for whatever is due, until the [end](Turns::end).
    ///
    /// # Panics
    /// If a thread has panicked that held the lock.
    pub fn help(&self) {
        let mut taken = self.take();
        while !self.is_over.load(Ordering::SeqCst) {
            taken = self.wait(taken);
        }
    }

    /// Helpers leave.
    pub fn end(&self) {
        let _taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_over.store(true, Ordering::SeqCst);
        self.alarm.wake();
        self.others.notify_all();
    }

    /// The file system, and what was beside it.
    pub fn into_inner(self) -> (F, B) {
        let Taken { fs, beside, .. } = self.taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        (fs, beside)
    }

    /// Polls if something is due; else sleeps until something may be.
    fn wait<'a>(&'a self, mut taken: TakenGuard<'a, F, B>) -> TakenGuard<'a, F, B> {
        let is_rung = self.alarm.0.is_rung.swap(false, Ordering::SeqCst);
        let due = if is_rung { Some(self.clock.now()) } else { taken.fs.next_due() };
        match due {
            Some(due) if is_rung || taken.sentry.is_none_or(|until| due < until) => {
                let span = self.clock.until(due);
                if span.is_zero() {
                    let told = TellOfPanic { others: &self.others, alarm: &self.alarm };
                    let (now, state) = (self.clock.now(), &mut *taken);
                    let has_progress = state.fs.poll(now);
                    if let Some(watch) = &mut state.watch {
                        watch(&mut state.fs, now);
                    }
                    drop(told);
                    if has_progress {
                        taken.progress += 1;
                        self.others.notify_all();
                        self.alarm.wake();
                    }
                    // It has more to do; so have other threads. Without them a yield would give the processor to another process.
                    if self.wanting.load(Ordering::Relaxed) == 0 {
                        return taken;
                    }
                    drop(taken);
                    thread::yield_now();
                    return self.take();
                }
                if taken.sentry.is_some() {
                    // The sentry sleeps for too long.
                    self.alarm.wake();
                    taken.is_called = false;
                    return self.others.wait(taken).expect("no thread has panicked with the file system");
                }
                taken.sentry = Some(due);
                taken.is_called = false;
                be_precise();
                let sentry = &self.alarm.0.sentry;
                taken = sentry.wait_timeout(taken, span).expect("no thread has panicked with the file system").0;
                taken.sentry = None;
                taken
            }
            _ => {
                taken.is_called = false;
                taken = self.others.wait(taken).expect("no thread has panicked with the file system");
                taken.is_called = false;
                taken
            }
        }
    }
}
