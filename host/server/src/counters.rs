//! What a server has done so far, readable from any thread while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread raises and any thread reads.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    // The server's thread is the only writer, so no locked instruction is needed.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sub(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) - count, Ordering::Relaxed);
    }
}

/// What a server has done since it began.
#[derive(Default, Debug)]
pub struct Counters {
    /// Connections open now.
    pub connections: Counter,
    /// Those of them that the last turn has left with something to do.
    pub connections_awake: Counter,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Connections turned away because there were too many.
    pub connections_refused: Counter,
    /// Times that the system refused to look for the next connection, for want of descriptors or memory; the server tries
    /// again.
    pub accepts_failed: Counter,
    /// Connections ended because the peer broke a rule of the protocol or kept the server waiting.
    pub connections_expelled: Counter,
    /// Those of them that were to use TLS, and did not know the key of the identity that they showed.
    pub tls_handshakes_failed: Counter,
    /// And those that did not use TLS where every host has to.
    pub connections_without_tls: Counter,
    /// Drives that came to a standstill with requests under way.
    pub standstills: Counter,
    /// NVMe controllers whose host said no name for itself (HOSTNQN), where any host may connect.
    pub hosts_without_name: Counter,
    /// Reads answered.
    pub reads: Counter,
    /// Writes answered.
    pub writes: Counter,
    /// Trims and write-zeroes answered.
    pub trims: Counter,
    /// Flushes answered.
    pub flushes: Counter,
    /// Requests answered with an error, refused ones included.
    pub errors: Counter,
    /// Bytes read by clients.
    pub bytes_read: Counter,
    /// Bytes written by clients.
    pub bytes_written: Counter,
    /// Bytes of clients' data that were copied in memory: between receive buffers, the heap and frames. What the kernel
    /// copies, to and from its sockets, is not in it, nor what TLS does.
    pub bytes_copied: Counter,
    /// Bytes that reactors beside the server's thread have received and sent.
    pub bytes_by_reactors: Counter,
    /// Bytes of slow payload that were moved out of frames because others waited for frames.
    pub bytes_moved_aside: Counter,
    /// Memory that peers keep now by being slow: payload whose rest is missing and replies that they do not take, outside
    /// frames.
    pub bytes_kept: Counter,
    /// The most that it has been.
    pub bytes_kept_max: Counter,
    /// Connections ended because that was too much; they had the most of it.
    pub connections_too_slow: Counter,
    /// Requests that are admitted to the drives now.
    pub requests_admitted: Counter,
    /// The most that they have been.
    pub requests_admitted_max: Counter,
    /// Turns of the server's loop.
    pub turns: Counter,
}

impl Counters {
    /// Requests answered.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.reads.get() + self.writes.get() + self.trims.get() + self.flushes.get()
    }
}
