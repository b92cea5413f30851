//! What shows that two runs were the same.

/// A running hash over all that happened, in order: equal hashes mean equal runs. Not cryptographic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceHash(pub u64);

impl TraceHash {
    /// Of a run in which nothing has happened.
    pub const START: TraceHash = TraceHash(0x6F70_656E_6674_6C00);

    /// Adds a word.
    #[inline]
    pub fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl std::fmt::Display for TraceHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0 ^ (self.0 >> 32))
    }
}
