//! What one phase of a run measured.

use hdrhistogram::Histogram;
use openftl_core::{Nanos, Time, TraceHash};

/// The longest latency that is told apart from longer ones: 1000 seconds.
const LATENCY_NANOS_MAX: u64 = 1_000_000_000_000;

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Requests {
    /// How many were completed.
    pub requests: u64,
    /// How many blocks they moved.
    pub blocks: u64,
    /// From when the host wanted it to its completion, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The longest of them, exactly.
    pub slowest: Nanos,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { requests: 0, blocks: 0, latency: nanoseconds(), slowest: Nanos::ZERO }
    }
}

fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("constant bounds are in order")
}

impl Requests {
    /// Counts one request.
    #[inline]
    pub fn count(&mut self, blocks: u32, latency: Nanos) {
        self.requests += 1;
        self.blocks += u64::from(blocks);
        self.latency.saturating_record(latency.0);
        self.slowest = self.slowest.max(latency);
    }

    /// Counts requests of another kind too.
    ///
    /// # Panics
    /// Never: all latencies have the same bounds.
    pub fn merge(&mut self, other: &Requests) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.latency.add(&other.latency).expect("histograms with the same bounds can be added");
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// What one phase of a run measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When its first request was submitted.
    pub started: Time,
    /// When its last request ended.
    pub ended: Time,
    /// Reads; every block was checked.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Trims.
    pub trims: Requests,
    /// Flushes.
    pub flushes: Requests,
    /// Objects that the drive said it keeps apart.
    pub objects_kept: u64,
    /// Objects that it did not; the host went on without.
    pub objects_refused: u64,
    /// How long after the moment at which a request ended the host was told, in nanoseconds: nothing in simulated time.
    pub lateness: Histogram<u64>,
    /// Over operation, address, completion time and result of every request, in order of completion.
    pub trace_hash: TraceHash,
    /// The drive turned read-only, so the phase ended early.
    pub turned_read_only: bool,
    /// Whoever watches the progress ended the phase early.
    pub stopped: bool,
}

impl Outcome {
    /// A small outcome for tests of whatever shows one: a second with 10 reads and 20 writes.
    #[must_use]
    pub fn sample() -> Outcome {
        let mut outcome = Outcome::new(Time::ZERO);
        outcome.ended = Time(1_000_000_000);
        for request in 1..=20 {
            outcome.writes.count(1, Nanos::from_micros(10 * request));
            if request % 2 == 0 {
                outcome.reads.count(1, Nanos::from_micros(40 + request));
            }
        }
        outcome.trace_hash.add(30);
        outcome
    }

    pub(crate) fn new(started: Time) -> Outcome {
        Outcome {
            started,
            ended: started,
            reads: Requests::default(),
            writes: Requests::default(),
            trims: Requests::default(),
            flushes: Requests::default(),
            objects_kept: 0,
            objects_refused: 0,
            lateness: nanoseconds(),
            trace_hash: TraceHash::START,
            turned_read_only: false,
            stopped: false,
        }
    }

    /// Seconds on the drive's clock.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.ended.since(self.started).as_secs_f64()
    }

    /// Reads and writes together.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Requests a second on the drive's clock; `None` if no time passed (instant media).
    #[must_use]
    pub fn iops(&self) -> Option<f64> {
        (self.seconds() > 0.0).then(|| self.requests() as f64 / self.seconds())
    }

    /// Latency of reads and writes together.
    #[must_use]
    pub fn latency(&self) -> Histogram<u64> {
        let mut both = self.reads.latency.clone();
        both.add(&self.writes.latency).expect("histograms with the same bounds can be added");
        both
    }
}
