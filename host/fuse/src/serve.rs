//! Serving: threads that read requests from the kernel and share one file system.
//!
//! ```text
//!   worker ─┐ read · lock · attempt · unlock · write
//!   worker ─┤                 │ it waits
//!   worker ─┤                 ▼
//!   helper ─┘  one of those who wait polls when something is due; the others sleep until it has made progress
//! ```
//!
//! The file system is behind one lock, which nobody holds while it sleeps or talks to the kernel. Of the threads that wait, one sleeps until the
//! file system's next moment is due (the *sentry*), whichever came first; the helper thread waits always, so work that no request waits for
//! goes on, too.
//!
//! # The end
//! After [`Stopper::stop`], or when the kernel has unmounted the file system:
//! 1. The mount is unmounted. The kernel writes its cache before, so the workers still serve it.
//! 2. If programs use it, it is synced, unmounted lazily, and the workers leave: each after the request that it works on. One `statfs` after
//!    another wakes those that wait for requests. Programs that still have files open get errors when the connection is closed.
//! 3. References of the kernel are released, the file system is synced, and goes back to the caller.

use crate::answer::Answer;
use crate::clock::ServeClock;
use crate::mount::{Mount, MountPlace, Unmounted, clone_device};
use crate::session::{REQUEST_BYTES_MAX, Session, SessionCounts};
use openftl_alfs::{FileSystem, Operation, Refusal};
use openftl_core::Time;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Attempts to unmount before the mount counts as in use: a program that is being started has the files of its parent open for a moment.
const UNMOUNT_ATTEMPTS: u32 = 10;

/// Between two of them.
const UNMOUNT_PAUSE: Duration = Duration::from_millis(10);

/// How a mount is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Threads that read requests, at least one: so many requests are under way at a time.
    pub threads: usize,
    /// Each thread has a file descriptor of its own for the connection, if the kernel has that.
    pub clone_device: bool,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions { threads: 4, clone_device: true }
    }
}

/// Stops the serving of a mount, from any thread.
#[derive(Clone, Default, Debug)]
pub struct Stopper(Arc<StopState>);

#[derive(Default, Debug)]
struct StopState {
    reason: Mutex<Option<Reason>>,
    changed: Condvar,
}

/// Why serving ends; later ones leave less that could be done in an orderly way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reason {
    /// Somebody wants it.
    Asked,
    /// The connection is over.
    Disconnected,
    /// A worker has panicked, or the kernel returns errors that it should not.
    Broken,
}

impl Stopper {
    /// Has the mount unmounted and its serving ended. Returns at once. Not for signal handlers: it takes a lock.
    pub fn stop(&self) {
        self.end(Reason::Asked);
    }

    fn end(&self, reason: Reason) {
        let mut found = self.reason();
        *found = (*found).max(Some(reason));
        self.0.changed.notify_all();
    }

    fn wait(&self) -> Reason {
        let mut found = self.reason();
        loop {
            match *found {
                Some(reason) => return reason,
                None => found = self.0.changed.wait(found).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn reason(&self) -> MutexGuard<'_, Option<Reason>> {
        self.0.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file system that was served.
#[derive(Debug)]
#[must_use = "the file system has to be closed"]
pub struct Served<F> {
    /// The file system.
    pub fs: F,
    /// How its last sync ended.
    pub synced: Result<(), Refusal>,
    /// What the kernel asked.
    pub counts: SessionCounts,
    /// Whether programs still used it when it was unmounted.
    pub was_busy: bool,
}

/// The file system and its connection, under one lock.
struct State<F> {
    fs: F,
    session: Session,
    /// Until when the sentry sleeps, if there is one.
    sentry: Option<Time>,
    /// Somebody who waits has been woken to become the sentry.
    is_called: bool,
    /// Changes when operations that wait should be attempted again.
    progress: u64,
}

struct Shared<'a, F> {
    state: Mutex<State<F>>,
    /// The sentry waits here.
    alarm: Condvar,
    /// The others wait here.
    others: Condvar,
    clock: &'a dyn ServeClock,
    /// Workers leave after their request.
    is_leaving: AtomicBool,
    /// All workers have left, so the helper does, too.
    is_over: AtomicBool,
}

/// Serves a mounted file system until it is unmounted, or `stopper` stops it, and returns it.
///
/// # Panics
/// If the file system does.
pub fn serve<F: FileSystem + Send>(
    mount: Mount,
    fs: F,
    clock: &dyn ServeClock,
    options: &ServeOptions,
    stopper: &Stopper,
) -> Served<F> {
    let state = State { fs, session: Session::new(), sentry: None, is_called: false, progress: 0 };
    let shared = Shared {
        state: Mutex::new(state),
        alarm: Condvar::new(),
        others: Condvar::new(),
        clock,
        is_leaving: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let mut was_busy = false;
    thread::scope(|scope| {
        let helper = thread::Builder::new().name("fuse-helper".to_owned());
        let helper = helper.spawn_scoped(scope, || shared.help()).expect("a thread can be started");
        let workers: Vec<_> = (0..options.threads.max(1))
            .map(|number| {
                let clone = (options.clone_device && number > 0).then(|| clone_device(mount.device())).flatten();
                let device = clone.map_or_else(|| mount.device().clone(), Arc::new);
                let shared = &shared;
                let work = move || {
                    let mut leaving = Leaving { stopper, reason: Reason::Broken };
                    leaving.reason = shared.work(&device);
                };
                let builder = thread::Builder::new().name(format!("fuse-{number}"));
                builder.spawn_scoped(scope, work).expect("a thread can be started")
            })
            .collect();
        let wakers = shared.leave(mount.place(), stopper.wait(), workers.len());
        was_busy = !wakers.is_empty();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // The last file descriptor of the connection: the kernel ends it, and with it the wait of the wakers.
        drop(mount);
        for waker in wakers {
            let _ = waker.join();
        }
        {
            let _state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            shared.is_over.store(true, Ordering::SeqCst);
            shared.alarm.notify_all();
            shared.others.notify_all();
        }
        let helped = helper.join();
        for result in results.into_iter().chain([helped]) {
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let State { mut fs, mut session, .. } = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    session.end(&mut fs);
    let synced = sync(&mut fs, clock);
    let counts = session.counts();
    tracing::info!(target: "fuse", requests = counts.requests, undelivered = counts.undelivered, was_busy, "unmounted");
    Served { fs, synced, counts, was_busy }
}

/// Makes everything durable.
fn sync<F: FileSystem>(fs: &mut F, clock: &dyn ServeClock) -> Result<(), Refusal> {
    let ticket = fs.ticket();
    loop {
        if let Some(result) = fs.attempt(clock.now(), clock.time_of_day(), ticket, &Operation::Sync) {
            return result.map(drop);
        }
        while !fs.poll(clock.now()) {
            let due = fs.next_due().expect("a sync waits for something that is due");
            thread::sleep(clock.until(due));
        }
    }
}

/// Reports that a worker has left, also by a panic.
struct Leaving<'a> {
    stopper: &'a Stopper,
    reason: Reason,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.stopper.end(self.reason);
    }
}

fn write(device: &OwnedFd, answer: &Answer) -> Result<(), Errno> {
    loop {
        match rustix::io::write(device, answer.bytes()) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

impl<F: FileSystem> Shared<'_, F> {
    fn lock(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().expect("no thread has panicked with the file system")
    }

    /// A worker: one request after the other. Returns the reason of its end.
    fn work(&self, device: &OwnedFd) -> Reason {
        // Sleeps until something is due would be up to 50 µs too long.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut buffer = vec![0; REQUEST_BYTES_MAX];
        let mut answer = Answer::default();
        while !self.is_leaving.load(Ordering::SeqCst) {
            match rustix::io::read(device, &mut buffer[..]) {
                Ok(bytes) => {
                    self.answer(&buffer[..bytes], &mut answer);
                    if !answer.bytes().is_empty() && !self.deliver(device, &mut answer) {
                        return Reason::Disconnected;
                    }
                }
                // The request was taken back before it was read, or a signal came.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                // The kernel has unmounted the file system, or has given up on us.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Reason::Disconnected,
                Err(errno) => {
                    tracing::error!(target: "fuse", %errno, "the connection with the kernel is broken");
                    return Reason::Broken;
                }
            }
        }
        Reason::Asked
    }

    /// Works on one request until its answer is there.
    fn answer(&self, request: &[u8], answer: &mut Answer) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(mut pending) = state.session.begin(&mut state.fs, self.clock.time_of_day(), request, answer) {
            loop {
                let state = &mut *guard;
                let (now, clock) = (self.clock.now(), self.clock.time_of_day());
                if state.session.attempt(&mut state.fs, now, clock, &mut pending, answer) {
                    break;
                }
                let progress = state.progress;
                while guard.progress == progress {
                    guard = self.wait(guard);
                }
            }
        }
        self.call_sentry(&mut guard);
    }

    /// Hands an answer to the kernel. Returns `false` if the connection is over.
    fn deliver(&self, device: &OwnedFd, answer: &mut Answer) -> bool {
        let Err(errno) = write(device, answer) else { return true };
        let mut guard = self.lock();
        let state = &mut *guard;
        state.session.undelivered(&mut state.fs, answer);
        self.call_sentry(&mut guard);
        drop(guard);
        match errno {
            // The caller is gone.
            Errno::NOENT => true,
            Errno::NODEV | Errno::CONNABORTED => false,
            errno => {
                tracing::error!(target: "fuse", %errno, bytes = answer.bytes().len(), "the kernel refuses an answer");
                answer.fail(Errno::IO);
                let _ = write(device, answer);
                true
            }
        }
    }

    /// The helper: waits for whatever is due.
    fn help(&self) {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut guard = self.lock();
        while !self.is_over.load(Ordering::SeqCst) {
            guard = self.wait(guard);
        }
    }

    /// Polls if something is due; else sleeps until something may be.
    fn wait<'g>(&'g self, mut guard: MutexGuard<'g, State<F>>) -> MutexGuard<'g, State<F>> {
        let state = &mut *guard;
        match state.fs.next_due() {
            Some(due) if state.sentry.is_none_or(|until| due < until) => {
                let span = self.clock.until(due);
                if span.is_zero() {
                    if state.fs.poll(self.clock.now()) {
                        state.progress += 1;
                        self.others.notify_all();
                        self.alarm.notify_all();
                        return guard;
                    }
                    // It has more to do; so have other threads.
                    drop(guard);
                    thread::yield_now();
                    return self.lock();
                }
                if state.sentry.is_some() {
                    // The sentry sleeps for too long.
                    self.alarm.notify_all();
                    state.is_called = false;
                    return self.others.wait(guard).expect("no thread has panicked with the file system");
                }
                state.sentry = Some(due);
                state.is_called = false;
                guard = self.alarm.wait_timeout(guard, span).expect("no thread has panicked with the file system").0;
                guard.sentry = None;
                guard
            }
            _ => {
                state.is_called = false;
                guard = self.others.wait(guard).expect("no thread has panicked with the file system");
                guard.is_called = false;
                guard
            }
        }
    }

    /// A thread leaves the file system: somebody else has to know when it is due.
    fn call_sentry(&self, state: &mut State<F>) {
        match (state.fs.next_due(), state.sentry) {
            (Some(due), Some(until)) if due < until => self.alarm.notify_all(),
            (Some(_), None) if !state.is_called => {
                state.is_called = true;
                self.others.notify_one();
            }
            _ => {}
        }
    }

    /// Unmounts, as far as that is left to do. If workers may still wait for requests then, returns threads that wake them until the connection
    /// is closed.
    fn leave(&self, place: &MountPlace, reason: Reason, workers: usize) -> Vec<thread::JoinHandle<()>> {
        let is_unmounted = || {
            (0..UNMOUNT_ATTEMPTS).any(|attempt| {
                thread::sleep(UNMOUNT_PAUSE * attempt.min(1));
                place.unmount() == Unmounted::Gone
            })
        };
        if reason == Reason::Disconnected || (reason == Reason::Asked && is_unmounted()) {
            return Vec::new();
        }
        let open =
            |flags| rustix::fs::openat(CWD, place.folder(), flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        if reason == Reason::Asked
            && let Err(errno) = open(OFlags::RDONLY).and_then(rustix::fs::syncfs)
        {
            tracing::warn!(target: "fuse", %errno, "the kernel's cache could not be written");
        }
        // Nobody is asked for this one, so it can be opened when nobody answers.
        let folder = Arc::new(open(OFlags::PATH));
        place.unmount_lazily();
        self.is_leaving.store(true, Ordering::SeqCst);
        let waker = |_| {
            let folder = folder.clone();
            let wake =
                move || while folder.as_ref().as_ref().is_ok_and(|folder| rustix::fs::fstatfs(folder).is_ok()) {};
            thread::Builder::new().name("fuse-waker".to_owned()).spawn(wake).expect("a thread can be started")
        };
        // A worker that panics leaves its request without an answer, and with it one that wakes.
        (0..workers).map(waker).collect()
    }
}
