//! One drive, many threads.
//!
//! A drive has one owner at a time: whoever holds its lock. A thread that asks for something submits it itself and, where it is
//! done at once, takes the answer with it: with instant media no other thread is ever woken. Where it has to wait, one of those who wait
//! *leads*: it sleeps until something is due, polls the drive, and wakes those whose requests have ended. When its own has, another leads.
//!
//! ```text
//!   thread ── lock ─ submit ─ poll ─ done? ──yes──▶ answer
//!                                     │ no
//!                     nobody leads ◀──┴──▶ somebody leads
//!                     sleep until due      sleep until woken
//! ```
//!
//! Frames that a thread reads into are its own until it has copied what is in them. Who waits for frames, or for another to end a
//! table, may so have to wait for a thread, and not for the device: it sleeps until that one says so.
//!
//! So all writes to the device are submitted by one thread at a time, which is what its write pointers ask for.

use crate::FileError;
use openftl_core::{Clock, Frame, FrameForm, Nanos, Time};
use openftl_media::Media;
use openftl_parts::Target;
use openftl_tables::{TableDone, TableError, TableFtl};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Waits shorter than this are not slept through.
const SPIN: Nanos = Nanos(2_000);

/// How time passes for a drive.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// It is the time of everybody, since then.
    Wall(Instant),
    /// It jumps to the next thing that is due as soon as somebody waits for it.
    Virtual,
}

impl Pace {
    /// Real time from now on.
    #[must_use]
    pub fn wall() -> Pace {
        Pace::Wall(Instant::now())
    }
}

/// A clock for opening and closing a drive.
pub struct PaceClock {
    /// How time passes.
    pub pace: Pace,
    /// The time, when it was last looked at.
    pub now: Time,
}

impl Clock for PaceClock {
    fn now(&mut self) -> Time {
        if let Pace::Wall(start) = self.pace {
            self.now = Time(start.elapsed().as_nanos() as u64);
        }
        self.now
    }

    fn wait_until(&mut self, due: Time) -> Time {
        match self.pace {
            Pace::Virtual => self.now = self.now.max(due),
            Pace::Wall(_) => {
                let now = self.now();
                if due > now {
                    std::thread::sleep(Duration::from_nanos(due.since(now).0));
                }
            }
        }
        self.now()
    }
}

/// Wakes the thread that leads, for a device that has done something before it was due: a sync of its file.
#[derive(Clone, Default)]
pub struct Bell(Arc<BellState>);

#[derive(Default)]
struct BellState {
    /// Since the drive was last polled.
    is_rung: AtomicBool,
    leader: Mutex<Option<Thread>>,
}

impl Bell {
    /// Has the drive polled soon. Waits for nobody who owns the drive.
    pub fn ring(&self) {
        self.0.is_rung.store(true, Ordering::SeqCst);
        if let Some(leader) = &*self.leader() {
            leader.unpark();
        }
    }

    fn leader(&self) -> MutexGuard<'_, Option<Thread>> {
        self.0.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The drive is about to be polled.
    fn heed(&self) {
        if self.0.is_rung.load(Ordering::Relaxed) {
            self.0.is_rung.store(false, Ordering::SeqCst);
        }
    }

    /// Sleeps for so long, or until it rings. What rang since the last poll counts.
    fn sleep(&self, span: Nanos) {
        *self.leader() = Some(std::thread::current());
        if !self.0.is_rung.load(Ordering::SeqCst) {
            sleep_at_most(span);
        }
        *self.leader() = None;
    }
}

/// What somebody waits for, when it is not there yet.
pub(crate) enum Until<T> {
    /// Here it is.
    Found(T),
    /// The drive will have it, when something that is due has happened.
    Drive,
    /// Another thread will give it, or the drive.
    Others,
}

impl<T> Until<T> {
    /// What the drive will have.
    fn of_drive(found: Option<T>) -> Until<T> {
        found.map_or(Until::Drive, Until::Found)
    }
}

/// Who waits to be woken.
struct Sleeper {
    thread: Thread,
    /// For the end of this request; 0: for anything that has happened.
    tag: u64,
}

/// The drive and those who wait for it.
pub(crate) struct Owned<M> {
    pub(crate) drive: TableFtl<M>,
    /// The time of the last poll.
    pub(crate) now: Time,
    ended: Vec<TableDone>,
    /// What has ended and was not asked for yet: of a few requests at a time.
    results: Vec<(u64, Result<(), TableError>)>,
    next_tag: u64,
    /// Frames that threads read into.
    lent: usize,
    leader: Option<(Thread, Time)>,
    sleepers: Vec<Sleeper>,
    /// Looks at the drive after each poll.
    pub(crate) watch: Option<Watch<M>>,
    /// Its power is gone: nothing is asked of it any more.
    has_stopped: bool,
}

/// What is called with the drive after each poll.
pub type Watch<M> = Box<dyn FnMut(&mut TableFtl<M>, Time) + Send>;

impl<M: Media> Owned<M> {
    /// A tag for a request whose end is waited for.
    pub(crate) fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn take_result(&mut self, tag: u64) -> Option<Result<(), TableError>> {
        let at = self.results.iter().position(|(other, _)| *other == tag)?;
        Some(self.results.swap_remove(at).1)
    }

    /// Takes `count` frames to read into, until they are [given back](Owned::give_back). They come behind those in `frames`.
    pub(crate) fn lend(&mut self, count: usize, frames: &mut Vec<Frame>) -> Until<()> {
        if self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, frames) {
            self.lent += count;
            return Until::Found(());
        }
        self.is_there_none()
    }

    /// Why there are no frames.
    pub(crate) fn is_there_none<T>(&self) -> Until<T> {
        if self.lent > 0 { Until::Others } else { Until::Drive }
    }

    /// Nobody reads into these frames any more.
    pub(crate) fn give_back(&mut self, frames: &[Frame]) {
        for frame in frames {
            self.drive.frames_mut().release(*frame);
        }
        self.lent -= frames.len();
        self.wake_others();
    }

    /// Something was given up that others may wait for.
    pub(crate) fn wake_others(&self) {
        self.sleepers.iter().filter(|sleeper| sleeper.tag == 0).for_each(|sleeper| sleeper.thread.unpark());
    }

    /// Takes what has ended, and wakes those who wait for it.
    fn poll(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.drive.poll(self.now, &mut self.ended);
        if let Some(watch) = &mut self.watch {
            watch(&mut self.drive, self.now);
        }
        if self.ended.is_empty() && self.sleepers.is_empty() {
            return;
        }
        self.results.extend(self.ended.drain(..).map(|TableDone { tag, result, .. }| (tag, result)));
        let results = &self.results;
        self.sleepers.retain(|sleeper| {
            let is_due = sleeper.tag == 0 || results.iter().any(|(tag, _)| *tag == sleeper.tag);
            if is_due {
                sleeper.thread.unpark();
            }
            !is_due
        });
    }
}

/// The drive behind its lock.
pub(crate) struct Dispatcher<M> {
    owned: Mutex<Owned<M>>,
    pace: Pace,
    bell: Bell,
}

/// What a thread does with the drive while it holds the lock.
pub(crate) type Owner<'a, M> = MutexGuard<'a, Owned<M>>;

impl<M: Media> Dispatcher<M> {
    pub(crate) fn new(drive: TableFtl<M>, clock: PaceClock) -> Dispatcher<M> {
        let owned = Owned {
            drive,
            now: clock.now,
            ended: Vec::new(),
            results: Vec::new(),
            next_tag: 0,
            lent: 0,
            leader: None,
            sleepers: Vec::new(),
            watch: None,
            has_stopped: false,
        };
        Dispatcher { owned: Mutex::new(owned), pace: clock.pace, bell: Bell::default() }
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Becomes the owner of the drive.
    ///
    /// # Errors
    /// If its power is gone.
    pub(crate) fn own(&self) -> Result<Owner<'_, M>, FileError> {
        let owner = self.look();
        if owner.has_stopped { Err(no_power()) } else { Ok(owner) }
    }

    /// Becomes its owner whatever has happened to it, to look at it.
    pub(crate) fn look(&self) -> Owner<'_, M> {
        // A thread that panicked has left a drive that others may still read from; its own asserts protect it.
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.now = self.now(&owned);
        owned
    }

    fn now(&self, owned: &Owned<M>) -> Time {
        match self.pace {
            Pace::Wall(start) => owned.now.max(Time(start.elapsed().as_nanos() as u64)),
            Pace::Virtual => owned.now,
        }
    }

    /// Ends the work of the drive with `last`: who waits for it is told so, and nothing is asked of it any more.
    pub(crate) fn stop<T>(&self, last: impl FnOnce(&mut TableFtl<M>, Time) -> T) -> T {
        let mut owner = self.look();
        let now = owner.now;
        let value = last(&mut owner.drive, now);
        owner.has_stopped = true;
        if let Some((leader, _)) = &owner.leader {
            leader.unpark();
        }
        owner.sleepers.drain(..).for_each(|sleeper| sleeper.thread.unpark());
        value
    }

    /// Gives the drive back, for closing.
    pub(crate) fn into_drive(self) -> (TableFtl<M>, PaceClock) {
        let owned = self.owned.into_inner().unwrap_or_else(PoisonError::into_inner);
        (owned.drive, PaceClock { pace: self.pace, now: owned.now })
    }

    /// Waits for the end of request `tag`.
    pub(crate) fn wait<'a>(&'a self, owner: Owner<'a, M>, tag: u64) -> (Owner<'a, M>, Result<(), FileError>) {
        let (owner, result) = self.wait_until(owner, tag, |owned| Until::of_drive(owned.take_result(tag)));
        (owner, result.and_then(|result| result.map_err(FileError::from)))
    }

    /// Waits until `until` gives something. It is asked again when request `tag` has ended, or after anything that happens for a tag of 0.
    pub(crate) fn wait_until<'a, T>(
        &'a self,
        mut owner: Owner<'a, M>,
        tag: u64,
        mut until: impl FnMut(&mut Owned<M>) -> Until<T>,
    ) -> (Owner<'a, M>, Result<T, FileError>) {
        loop {
            if owner.has_stopped {
                return (owner, Err(no_power()));
            }
            let now = self.now(&owner);
            self.bell.heed();
            owner.poll(now);
            let found = until(&mut owner);
            if let Until::Found(found) = found {
                // Somebody has to watch the drive for the others.
                if owner.leader.is_none()
                    && let Some(sleeper) = owner.sleepers.pop()
                {
                    sleeper.thread.unpark();
                }
                return (owner, Ok(found));
            }
            let due = owner.drive.next_due();
            if owner.leader.is_some() || (due.is_none() && matches!(found, Until::Others)) {
                if let Some((leader, _)) =
                    owner.leader.as_ref().filter(|(_, watched)| due.is_some_and(|due| due < *watched))
                {
                    leader.unpark();
                }
                owner.sleepers.push(Sleeper { thread: std::thread::current(), tag });
                drop(owner);
                std::thread::park();
                owner = self.look();
                let own = std::thread::current().id();
                owner.sleepers.retain(|sleeper| sleeper.thread.id() != own);
                continue;
            }
            let Some(due) = due else {
                // Each of the others finds the same.
                if let Some(sleeper) = owner.sleepers.pop() {
                    sleeper.thread.unpark();
                }
                let state = owner.drive.describe();
                let reason = format!("the device has stopped: nothing is due, and the drive still waits: {state}");
                return (owner, Err(FileError::Io(reason)));
            };
            match self.pace {
                Pace::Virtual => owner.now = owner.now.max(due),
                Pace::Wall(_) if due > now + SPIN => {
                    owner.leader = Some((std::thread::current(), due));
                    drop(owner);
                    self.bell.sleep(due.since(now));
                    owner = self.look();
                    owner.leader = None;
                }
                Pace::Wall(_) => std::hint::spin_loop(),
            }
        }
    }
}

fn no_power() -> FileError {
    FileError::Io("the power of the drive is off".to_owned())
}

/// Sleeps until woken, or for so long.
fn sleep_at_most(span: Nanos) {
    thread_local! {
        static IS_PRECISE: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_PRECISE.replace(true) {
        // Without it sleeps are up to 50 µs too long, and nothing else is different.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
    std::thread::park_timeout(Duration::from_nanos(span.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_media::{EmulatedDevice, Profile, Store, Timing};
    use openftl_parts::Config;
    use openftl_tables::Ftl;

    fn dispatcher() -> Dispatcher<EmulatedDevice> {
        let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 64, Store::Ram, Timing::Modelled, 1);
        let config = Config { capacity_blocks: 512, host_frames: 64, drive_id: 1, ..Config::default() };
        let mut clock = PaceClock { pace: Pace::wall(), now: Time::ZERO };
        let drive = TableFtl::format(device.unwrap(), config, (), &mut clock).unwrap();
        Dispatcher::new(drive, clock)
    }

    #[test]
    fn who_waits_for_frames_of_another_gets_them_when_nothing_is_due() {
        let dispatcher = dispatcher();
        let mut taken = Vec::new();
        let mut owner = dispatcher.look();
        while matches!(owner.lend(1, &mut taken), Until::Found(())) {}
        drop(owner);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut frames = Vec::new();
                let (mut owner, lent) = dispatcher.wait_until(dispatcher.look(), 0, |owned| owned.lend(3, &mut frames));
                owner.give_back(&frames);
                lent
            });
            while !waits.is_finished() && dispatcher.look().sleepers.is_empty() {
                std::thread::yield_now();
            }
            let (two, rest) = taken.split_at(2);
            dispatcher.look().give_back(two);
            dispatcher.look().give_back(rest);
            assert_eq!(waits.join().unwrap(), Ok(()));
        });
        assert_eq!(dispatcher.look().lent, 0);
    }

    #[test]
    fn what_nobody_will_ever_give_is_an_error() {
        let dispatcher = dispatcher();
        let waited = dispatcher.wait_until(dispatcher.look(), 0, |_| Until::<()>::Drive).1;
        assert!(matches!(waited, Err(FileError::Io(reason)) if reason.contains("the device has stopped")));
    }
}
