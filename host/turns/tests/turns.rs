//! A file system that threads share, and who waits for it.

use openftl_alfs::{Data, FileSystem, FileTime, Inode, Operation, Refusal, Reply, Ticket};
use openftl_core::{Nanos, Time};
use openftl_turns::{ServeClock, Turns, WallClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Longer than any test takes.
const HOUR: Nanos = Nanos::from_millis(3_600_000);

/// A file system whose syncs end when something outside has happened, and which is not due before an hour has passed.
#[derive(Default)]
struct Slow {
    has_happened: Arc<AtomicBool>,
    is_noticed: bool,
    due: Option<Time>,
}

impl FileSystem for Slow {
    fn ticket(&mut self) -> Ticket {
        Ticket(1)
    }

    fn attempt(
        &mut self,
        now: Time,
        _: FileTime,
        _: Ticket,
        operation: &Operation<'_>,
    ) -> Option<Result<Reply, Refusal>> {
        assert_eq!(*operation, Operation::Sync);
        self.due.get_or_insert(now + HOUR);
        self.is_noticed.then_some(Ok(Reply::Done))
    }

    fn abandon(&mut self, _: Ticket) {}

    fn poll(&mut self, _: Time) -> bool {
        let is_new = self.has_happened.load(Ordering::SeqCst) && !self.is_noticed;
        self.is_noticed |= is_new;
        is_new
    }

    fn next_due(&self) -> Option<Time> {
        self.due.filter(|_| !self.is_noticed)
    }

    fn data(&self, _: &Data, _: &mut dyn FnMut(&[u8])) {
        unreachable!("nobody reads")
    }

    fn give_back(&mut self, _: Data) {
        unreachable!("nobody reads")
    }

    fn hold(&mut self, _: Inode, _: u64) {}

    fn release(&mut self, _: Inode, _: u64) -> bool {
        true
    }
}

#[test]
fn an_alarm_wakes_all_who_wait_for_a_file_system_that_is_not_due_for_long() {
    let slow = Slow::default();
    let has_happened = Arc::clone(&slow.has_happened);
    let turns = Turns::new(slow, (), WallClock::new());
    thread::scope(|scope| {
        let helper = scope.spawn(|| turns.help());
        let sync = || {
            let clock = turns.clock();
            let mut taken = turns.take();
            while taken.fs.attempt(clock.now(), clock.time_of_day(), Ticket(1), &Operation::Sync).is_none() {
                taken = turns.wait_for_progress(taken);
            }
            turns.leave(taken);
        };
        let waiting = [scope.spawn(sync), scope.spawn(sync)];
        // A ring without a reason ends no wait.
        turns.alarm().ring();
        has_happened.store(true, Ordering::SeqCst);
        // One that comes when the sentry is about to sleep is not heard: the device rings, or is due, again.
        while !waiting.iter().all(|thread| thread.is_finished()) {
            turns.alarm().ring();
            thread::yield_now();
        }
        turns.end();
        helper.join().unwrap();
    });
    assert!(turns.into_inner().0.is_noticed);
}
