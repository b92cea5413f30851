//! Wakes the thread that waits for the device.

use openftl_core::Nanos;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

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
    pub(crate) fn heed(&self) {
        if self.0.is_rung.load(Ordering::Relaxed) {
            self.0.is_rung.store(false, Ordering::SeqCst);
        }
    }

    /// Sleeps for so long, or until it rings. What rang since the last poll counts.
    pub(crate) fn sleep(&self, span: Nanos) {
        *self.leader() = Some(std::thread::current());
        if !self.0.is_rung.load(Ordering::SeqCst) {
            sleep_at_most(span);
        }
        *self.leader() = None;
    }
}

/// Sleeps until woken, or for so long.
fn sleep_at_most(span: Nanos) {
    be_precise();
    std::thread::park_timeout(Duration::from_nanos(span.0));
}

/// Sleeps of this thread end when they should.
pub fn be_precise() {
    thread_local! {
        static IS_PRECISE: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_PRECISE.replace(true) {
        // Without it sleeps are up to 50 µs too long, and nothing else is different.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}
