//! What takes long and cannot say how far it has come: a line says that it is under way, for how long, and what there is to say of it.
//!
//! ```text
//!   making big.oftl   12 s   1.9 GiB written
//! ```
//!
//! It stands on a terminal only, from a second on, and goes when the work ends.

use crate::terminal::Live;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is over sooner is not spoken of.
const SILENT: Duration = Duration::from_secs(1);

/// Between two lines.
const EVERY: Duration = Duration::from_millis(200);

/// The line; it ends when this is dropped.
pub struct Waiting {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Says `what` is under way, with what `tell` says behind it.
    pub fn new(what: String, tell: impl Fn() -> String + Send + 'static) -> Waiting {
        Waiting::on(Live::new(false), SILENT, what, tell)
    }

    fn on(mut live: Live, silent: Duration, what: String, tell: impl Fn() -> String + Send + 'static) -> Waiting {
        if live.is_silent() {
            return Waiting { over: None, thread: None };
        }
        let (over, ended) = channel();
        let began = Instant::now();
        let line = move || {
            let mut wait = silent;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                live.show(&[format!("{what}   {} s   {}", began.elapsed().as_secs(), tell())]);
                wait = EVERY;
            }
            live.clear();
        };
        // Without a thread there is no line, and that is no reason to stop.
        let thread = std::thread::Builder::new().name("waiting".to_owned()).spawn(line).ok();
        Waiting { over: Some(over), thread }
    }
}

/// Opens a drive of this name, and says so while it takes long.
pub fn while_opening<T>(name: &str, open: impl FnOnce() -> T) -> T {
    let _waiting = Waiting::new(format!("opening {name}"), String::new);
    open()
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.over = None;
        // What comes next is printed where the line stood.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn it_speaks_until_it_is_dropped_and_only_where_somebody_looks() {
        let told = Arc::new(AtomicUsize::new(0));
        let tell = |told: &Arc<AtomicUsize>| {
            let told = Arc::clone(told);
            move || {
                told.fetch_add(1, Ordering::SeqCst);
                String::new()
            }
        };
        drop(Waiting::on(Live::silent(), Duration::ZERO, "a test".to_owned(), tell(&told)));
        assert_eq!(told.load(Ordering::SeqCst), 0);
        let waiting = Waiting::on(Live::plain(), Duration::ZERO, "a test".to_owned(), tell(&told));
        while told.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(waiting);
        let said = told.load(Ordering::SeqCst);
        assert_eq!(Arc::strong_count(&told), 1, "the thread has ended");
        assert_eq!(told.load(Ordering::SeqCst), said);
    }
}
