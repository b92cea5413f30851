//! The drive behind its lock, and those who wait for it.
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

use crate::bell::Bell;
use crate::pace::{Pace, PaceClock};
use openftl_blocks::Ftl;
use openftl_core::{Frame, FrameForm, Nanos, Time};
use openftl_parts::target::{Ended, Target};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Waits shorter than this are not slept through.
const SPIN: Nanos = Nanos(2_000);

/// What somebody waits for, when it is not there yet.
pub enum Until<T> {
    /// Here it is.
    Found(T),
    /// The drive will have it, when something that is due has happened.
    Drive,
    /// Another thread will give it, or the drive.
    Others,
}

impl<T> Until<T> {
    /// What the drive will have.
    #[must_use]
    pub fn of_drive(found: Option<T>) -> Until<T> {
        found.map_or(Until::Drive, Until::Found)
    }
}

/// Who waits to be woken.
struct Sleeper {
    thread: Thread,
    /// For the end of this request; 0: for anything that has happened.
    tag: u64,
}

/// A drive that threads can share: any FTL.
pub trait Shareable: Ftl + Target<Done: Ended> {}

impl<T: Ftl + Target<Done: Ended>> Shareable for T {}

/// How a request of a drive ends.
pub type Outcome<T> = <<T as Target>::Done as Ended>::Outcome;

/// Why a drive answers nobody any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Stopped {
    /// It was [stopped](Dispatcher::stop).
    #[error("the power of the drive is off")]
    Power,
    /// Nothing is due, and somebody waits: the device has lost a command. With the state of the drive.
    #[error("the device has stopped: nothing is due, and the drive still waits: {0}")]
    Device(String),
}

/// The drive and those who wait for it.
pub struct Owned<T: Shareable> {
    /// The drive.
    pub drive: T,
    /// The time of the last poll.
    pub now: Time,
    ended: Vec<T::Done>,
    /// What has ended and was not asked for yet: of a few requests at a time.
    results: Vec<(u64, Outcome<T>)>,
    next_tag: u64,
    /// Frames that threads read into.
    lent: usize,
    leader: Option<(Thread, Time)>,
    sleepers: Vec<Sleeper>,
    /// Looks at the drive after each poll.
    pub watch: Option<Watch<T>>,
    /// Its power is gone: nothing is asked of it any more.
    has_stopped: bool,
}

/// What is called with the drive after each poll.
pub type Watch<T> = Box<dyn FnMut(&mut T, Time) + Send>;

impl<T: Shareable> Owned<T> {
    /// A tag for a request whose end is waited for.
    pub fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn take_result(&mut self, tag: u64) -> Option<Outcome<T>> {
        let at = self.results.iter().position(|(other, _)| *other == tag)?;
        Some(self.results.swap_remove(at).1)
    }

    /// Takes `count` frames to read into, until they are [given back](Owned::give_back). They come behind those in `frames`.
    pub fn lend(&mut self, count: usize, frames: &mut Vec<Frame>) -> Until<()> {
        if self.drive.frames_mut().acquire_many(FrameForm::Bytes, count, frames) {
            self.lent += count;
            return Until::Found(());
        }
        self.is_there_none()
    }

    /// Why there are no frames.
    #[must_use]
    pub fn is_there_none<R>(&self) -> Until<R> {
        if self.lent > 0 { Until::Others } else { Until::Drive }
    }

    /// Nobody reads into these frames any more.
    pub fn give_back(&mut self, frames: &[Frame]) {
        for frame in frames {
            self.drive.frames_mut().release(*frame);
        }
        self.lent -= frames.len();
        self.wake_others();
    }

    /// Whether anybody sleeps until others have done something.
    #[must_use]
    pub fn has_sleepers(&self) -> bool {
        !self.sleepers.is_empty()
    }

    /// Something was given up that others may wait for.
    pub fn wake_others(&self) {
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
        self.results.extend(self.ended.drain(..).map(|ended| (ended.tag(), ended.outcome())));
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
pub struct Dispatcher<T: Shareable> {
    owned: Mutex<Owned<T>>,
    pace: Pace,
    bell: Bell,
}

/// What a thread does with the drive while it holds the lock.
pub type Owner<'a, T> = MutexGuard<'a, Owned<T>>;

impl<T: Shareable> Dispatcher<T> {
    /// Takes over a drive, with the clock that it was opened with.
    pub fn new(drive: T, clock: PaceClock) -> Dispatcher<T> {
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

    /// How time passes for the drive.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Has the drive polled before something is due.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Becomes the owner of the drive.
    ///
    /// # Errors
    /// If its power is gone.
    pub fn own(&self) -> Result<Owner<'_, T>, Stopped> {
        let owner = self.look();
        if owner.has_stopped { Err(Stopped::Power) } else { Ok(owner) }
    }

    /// Becomes its owner whatever has happened to it, to look at it.
    pub fn look(&self) -> Owner<'_, T> {
        // A thread that panicked has left a drive that others may still read from; its own asserts protect it.
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.now = self.now(&owned);
        owned
    }

    fn now(&self, owned: &Owned<T>) -> Time {
        match self.pace {
            Pace::Wall(start) => owned.now.max(Time(start.elapsed().as_nanos() as u64)),
            Pace::Virtual => owned.now,
        }
    }

    /// Ends the work of the drive with `last`: who waits for it is told so, and nothing is asked of it any more.
    pub fn stop<R>(&self, last: impl FnOnce(&mut T, Time) -> R) -> R {
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
    pub fn into_drive(self) -> (T, PaceClock) {
        let owned = self.owned.into_inner().unwrap_or_else(PoisonError::into_inner);
        (owned.drive, PaceClock { pace: self.pace, now: owned.now })
    }

    /// Waits for the end of request `tag`.
    pub fn wait<'a>(&'a self, owner: Owner<'a, T>, tag: u64) -> (Owner<'a, T>, Result<Outcome<T>, Stopped>) {
        self.wait_until(owner, tag, |owned| Until::of_drive(owned.take_result(tag)))
    }

    /// Waits until `until` gives something. It is asked again when request `tag` has ended, or after anything that happens for a tag of 0.
    pub fn wait_until<'a, F>(
        &'a self,
        mut owner: Owner<'a, T>,
        tag: u64,
        mut until: impl FnMut(&mut Owned<T>) -> Until<F>,
    ) -> (Owner<'a, T>, Result<F, Stopped>) {
        loop {
            if owner.has_stopped {
                return (owner, Err(Stopped::Power));
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
                return (owner, Err(Stopped::Device(state)));
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
