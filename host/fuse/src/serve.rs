//! Serving: threads that read requests from the kernel and share one file system.
//!
//! ```text
//!   worker ─┐ read · lock · attempt · unlock · write
//!   worker ─┤                 │ it waits
//!   worker ─┤                 ▼
//!   helper ─┘  one of those who wait polls when something is due; the others sleep until it has made progress
//! ```
//!
//! The file system is behind one lock ([`Turns`]), which nobody holds while it sleeps or talks to the kernel. The helper thread waits always, so
//! work that no request waits for goes on, too.
//!
//! # The end
//! After [`Stopper::stop`], or when the kernel has unmounted the file system:
//! 1. The mount is unmounted. The kernel writes its cache before, so the workers still serve it.
//! 2. If programs use it, it is synced, unmounted lazily, and the workers leave: each after the request that it works on. One `statfs` after
//!    another wakes those that wait for requests. Programs that still have files open get errors when the connection is closed.
//! 3. References of the kernel are released, the file system is synced, and goes back to the caller.

use crate::answer::Answer;
use crate::mount::{Mount, MountPlace, Unmounted, clone_device};
use crate::session::{REQUEST_BYTES_MAX, Session, SessionCounts};
use openftl_alfs::{FileSystem, Operation, Refusal};
use openftl_turns::{ServeClock, Taken, Turns};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
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

/// The file system and its connection, which the workers share.
struct Shared<'a, F> {
    turns: Turns<F, Session, &'a dyn ServeClock>,
    /// Workers leave after their request.
    is_leaving: AtomicBool,
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
    let shared = Shared { turns: Turns::new(fs, Session::new(), clock), is_leaving: AtomicBool::new(false) };
    let mut was_busy = false;
    thread::scope(|scope| {
        let helper = thread::Builder::new().name("fuse-helper".to_owned());
        let helper = helper.spawn_scoped(scope, || shared.turns.help()).expect("a thread can be started");
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
        shared.turns.end();
        let helped = helper.join();
        for result in results.into_iter().chain([helped]) {
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let (mut fs, mut session) = shared.turns.into_inner();
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

fn write(device: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        match rustix::io::write(device, bytes) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

impl<F: FileSystem> Shared<'_, F> {
    /// A worker: one request after the other. Returns the reason of its end.
    fn work(&self, device: &OwnedFd) -> Reason {
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
        let clock = self.turns.clock();
        let mut taken = self.turns.take();
        let Taken { fs, beside: session, .. } = &mut *taken;
        if let Some(mut pending) = session.begin(fs, clock.time_of_day(), request, answer) {
            loop {
                let (now, time_of_day) = (clock.now(), clock.time_of_day());
                let Taken { fs, beside: session, .. } = &mut *taken;
                if session.attempt(fs, now, time_of_day, &mut pending, answer) {
                    break;
                }
                taken = self.turns.wait_for_progress(taken);
            }
        }
        self.turns.leave(taken);
    }

    /// Hands an answer to the kernel. Returns `false` if the connection is over.
    fn deliver(&self, device: &OwnedFd, answer: &mut Answer) -> bool {
        if let Some(notice) = answer.notice() {
            // It is refused if the kernel knows no such file, so it remembers nothing of it.
            let _ = write(device, &notice);
        }
        let Err(errno) = write(device, answer.bytes()) else { return true };
        let mut taken = self.turns.take();
        let Taken { fs, beside: session, .. } = &mut *taken;
        session.undelivered(fs, answer);
        self.turns.leave(taken);
        match errno {
            // The caller is gone.
            Errno::NOENT => true,
            Errno::NODEV | Errno::CONNABORTED => false,
            errno => {
                tracing::error!(target: "fuse", %errno, bytes = answer.bytes().len(), "the kernel refuses an answer");
                answer.fail(Errno::IO);
                let _ = write(device, answer.bytes());
                true
            }
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
