//! The handle that ends a server, or wakes it, from another thread or a signal handler.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Ends a running server cleanly. Clones stand for the same server.
#[derive(Clone, Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    requested: AtomicBool,
    event: OwnedFd,
}

impl AsFd for Stop {
    /// What is readable when it was asked to stop or woken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Stop {
    /// A handle that has not been pulled.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Stop> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Stop { shared: Arc::new(Shared { requested: AtomicBool::new(false), event }) })
    }

    /// Asks the server to stop: an atomic store and a write, so a signal handler may call it.
    pub fn request(&self) {
        self.shared.requested.store(true, Ordering::Release);
        self.wake();
    }

    /// Makes a waiting server look at its clock and its drives again.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the server is awake already.
        let _ = rustix::io::write(&self.shared.event, &[1; 8]);
    }

    /// Whether the server was asked to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.shared.requested.load(Ordering::Acquire)
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    pub(crate) fn clear(&self) {
        let mut count = [0_u8; 8];
        let _ = rustix::io::read(&self.shared.event, &mut count);
    }
}
