//! A server ends because it is stopped or interrupted, or with an error.

use std::io;

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The exports cannot be served.
    #[error("export `{name}`: {why}")]
    Export {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The system failed the server.
    #[error("the server cannot go on: {0}")]
    System(#[from] io::Error),
    /// When the server stopped, a drive could not be flushed.
    #[error("export `{name}`: the last flush failed: {error}")]
    Flush {
        /// The export's name.
        name: String,
        /// What the drive says.
        error: String,
    },
    /// When the server stopped, a drive had requests and nothing to do.
    #[error("export `{name}`: the drive has {requests} requests that it never ends{state}")]
    Stuck {
        /// The export's name.
        name: String,
        /// Requests left.
        requests: usize,
        /// What the drive says of its state, behind a colon, if anything.
        state: String,
    },
}

/// How serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was asked to stop: what was under way is finished, the drives are flushed, nobody listens any more.
    Stopped,
    /// The operator interrupted it: connections are closed, their requests have no reply, and the drives are as they were
    /// at that moment. Clients that connect from now on wait until the server runs again.
    Interrupted {
        /// Connections closed.
        connections: u64,
        /// Requests that were under way; their clients wait for them in vain.
        requests: u64,
    },
}
