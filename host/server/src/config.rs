//! The configuration of a server bounds what its peers may hold, and for how long.

use openftl_core::Nanos;
use openftl_core::units::Poll;

use crate::connection;

/// One connection's requests hold at most this part of a drive's pool, so that a few slow ones leave room for others. A
/// single request may be as large as half of the pool.
pub const POOL_SHARES: usize = 8;

/// See [`ServerConfig::reactors_above`].
const REACTORS_ABOVE: usize = 16 << 10;

/// Bounds of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// Connections open at a time; more are closed at once.
    pub connections_max: usize,
    /// Connections whose handshake is not done, authentication included; for one more the oldest of them is closed.
    pub handshakes_max: usize,
    /// Requests of one connection under way at a time.
    pub requests_max: usize,
    /// Bytes of reads and writes of one connection under way at a time; a single request is always served.
    pub bytes_max: u64,
    /// Bytes of the heap for data of NVMe commands that have no frames, of all connections together.
    pub heap_bytes_max: usize,
    /// Memory that slow peers keep, of all connections together: payload whose rest is missing and replies that are not
    /// taken, outside frames. Beyond it those that keep the most are closed.
    pub kept_bytes_max: usize,
    /// Bytes of what hosts send that wait for a store of pages, in memory of its own; at least two of the longest commands.
    pub staging_bytes: u64,
    /// How long to look again and again for what comes next before going to sleep: a core for less latency. Waking up takes
    /// some microseconds, in a virtual machine a hundred.
    pub poll: Poll,
    /// Threads that move the bytes of sockets, the one that owns the drives among them: with one, it does all.
    pub reactors: usize,
    /// Bytes that this one moves itself in a turn before others are asked; the default suits hosts that ask for one thing at a time.
    pub reactors_above: usize,
    /// Long writes come through a receive buffer, as short ones do, and not straight from the socket to their frames: to
    /// measure what a copy costs.
    pub copies_long_writes: bool,
    /// How long a handshake may take.
    pub handshake_max: Nanos,
    /// How long a peer may send nothing in the middle of a write, or take nothing of a reply. What it does send or take buys it
    /// the time that this takes at 16 KiB a second, and no more.
    pub stall_max: Nanos,
    /// How long requests under way may take to end when the server stops.
    pub stop_max: Nanos,
    /// Whether to listen for NBD on addresses that other machines reach. It has no passwords.
    pub allow_remote: bool,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            connections_max: 1024,
            handshakes_max: 128,
            requests_max: 256,
            bytes_max: 64 << 20,
            heap_bytes_max: 256 << 20,
            kept_bytes_max: 128 << 20,
            staging_bytes: 16 << 20,
            poll: Poll::Auto,
            reactors: 1,
            reactors_above: REACTORS_ABOVE,
            copies_long_writes: false,
            handshake_max: connection::HANDSHAKE_MAX,
            stall_max: connection::STALL_MAX,
            stop_max: Nanos::from_millis(5_000),
            allow_remote: false,
        }
    }
}
