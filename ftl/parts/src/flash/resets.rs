//! Chunks on their way to be free: each waits until nothing in it can be needed any more.

use super::reads::Reads;
use openftl_core::ChunkId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// A chunk to be reset.
struct Waiting {
    chunk: ChunkId,
    /// The log position that must be durable before.
    barrier: u64,
    /// The epoch at which no read of it can be under way.
    grace: u64,
}

/// Chunks on their way to be free, and the count of those that are still good.
pub struct Resets {
    waiting: VecDeque<Waiting>,
    /// No barrier of one of them is below: most turns find that the log has not come so far.
    barrier_min: u64,
    /// Chunks that were found empty because of blocks of the log that are in doubt: without these they are not.
    in_doubt: FxHashSet<ChunkId>,
    /// All others, too: what a tenant had there before is not known yet.
    is_all_in_doubt: bool,
    /// Chunks in which programs failed, and the log does not say so yet.
    owed: VecDeque<ChunkId>,
    /// Chunks of the device that are not retired, and in which no program has failed.
    good: u64,
    /// With fewer the drive turns read-only.
    good_min: u64,
}

impl Resets {
    /// No chunk is on its way; `good` chunks are not retired, and `good_min` are the fewest to write with.
    pub fn new(good: u64, good_min: u64) -> Resets {
        Resets {
            waiting: VecDeque::new(),
            barrier_min: u64::MAX,
            in_doubt: FxHashSet::default(),
            is_all_in_doubt: false,
            owed: VecDeque::new(),
            good,
            good_min,
        }
    }

    /// The next chunk in which a program failed and of which the log does not say so.
    #[inline]
    pub fn next_owed(&mut self) -> Option<ChunkId> {
        self.owed.pop_front()
    }

    /// `chunk` waits until the log is durable up to `barrier`, and every read has ended that has by the epoch `grace`.
    pub fn wait(&mut self, chunk: ChunkId, barrier: u64, grace: u64) {
        self.waiting.push_back(Waiting { chunk, barrier, grace });
        self.barrier_min = self.barrier_min.min(barrier);
    }

    /// Chunks of the device that are not retired, and in which no program has failed.
    pub fn good(&self) -> u64 {
        self.good
    }

    /// Whether a chunk waits for its reset.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether one of them waits for reads and nothing else.
    pub fn is_waiting_for_reads(&self, durable: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.barrier <= durable && !self.is_kept(waiting.chunk))
    }

    /// Whether `chunk` may be needed again while something of the log is in doubt.
    fn is_kept(&self, chunk: ChunkId) -> bool {
        self.is_all_in_doubt || self.in_doubt.contains(&chunk)
    }

    /// How many chunks wait for a log position that is not durable.
    #[inline]
    pub fn waiting_for_log(&self, durable: u64) -> usize {
        if durable < self.barrier_min {
            return self.waiting.len();
        }
        self.waiting.iter().filter(|waiting| waiting.barrier > durable).count()
    }

    /// The log is to say that a program failed in `chunk`.
    pub fn owe(&mut self, chunk: ChunkId) {
        self.owed.push_back(chunk);
    }

    /// None of these chunks is reset while something of the log is in doubt; with `is_all` no chunk, until a tenant has said which of its
    /// own it may need again.
    pub fn keep_in_doubt(&mut self, chunks: FxHashSet<ChunkId>, is_all: bool) {
        (self.in_doubt, self.is_all_in_doubt) = (chunks, is_all);
    }

    /// A tenant may need these again, and no others.
    pub fn keep_of_tenant(&mut self, chunks: impl IntoIterator<Item = ChunkId>) {
        self.in_doubt.extend(chunks);
        self.is_all_in_doubt = false;
    }

    /// One chunk less to write with.
    pub fn lose_one(&mut self) {
        self.good -= 1;
    }

    /// With fewer good chunks the drive turns read-only.
    pub fn good_min(&self) -> u64 {
        self.good_min
    }

    /// How many chunks wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing of one of them can be needed any more. The log is durable up to `durable`, and something of it is in doubt
    /// or not. Asked at every turn of the drive, where mostly none is ready.
    pub fn is_any_ready(&mut self, durable: u64, is_in_doubt: bool, reads: &mut Reads) -> bool {
        if !is_in_doubt {
            self.in_doubt.clear();
            self.is_all_in_doubt = false;
        }
        durable >= self.barrier_min && self.waiting.iter().any(|waiting| self.is_ready(waiting, durable, reads))
    }

    #[inline]
    fn is_ready(&self, waiting: &Waiting, durable: u64, reads: &mut Reads) -> bool {
        waiting.barrier <= durable && !self.is_kept(waiting.chunk) && reads.have_ended(waiting.grace)
    }

    /// The next chunk that waits, if nothing of it can be needed any more ([`Resets::is_any_ready`]); else it waits on behind the
    /// others.
    #[inline]
    pub fn next(&mut self, durable: u64, reads: &mut Reads) -> Option<ChunkId> {
        let waiting = self.waiting.pop_front()?;
        if !self.is_ready(&waiting, durable, reads) {
            self.waiting.push_back(waiting);
            return None;
        }
        self.barrier_min = self.waiting.iter().map(|waiting| waiting.barrier).min().unwrap_or(u64::MAX);
        Some(waiting.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the explorer: chunks waited for the log, which waited for a chunk, and reads of the scrub, which never ended, were
    /// taken for what they waited for.
    #[test]
    fn a_chunk_that_waits_for_the_log_does_not_wait_for_reads() {
        let mut resets = Resets::new(9, 3);
        let waiting = |chunk, barrier| Waiting { chunk: ChunkId(chunk), barrier, grace: 0 };
        for Waiting { chunk, barrier, grace } in [waiting(1, 5), waiting(2, 7)] {
            resets.wait(chunk, barrier, grace);
        }
        assert!(!resets.is_waiting_for_reads(4) && resets.is_waiting_for_reads(5));
        resets.in_doubt.insert(ChunkId(1));
        assert!(!resets.is_waiting_for_reads(6) && resets.is_waiting_for_reads(7));
    }
}
