//! Numbers used once: challenges, Diffie-Hellman exponents, sequence numbers.

use rand_core::CryptoRng;
use zeroize::Zeroizing;

/// Where they come from. A subsystem or a host keeps one for all its queues, because sequence numbers are counted.
pub struct Nonces<R> {
    random: R,
    sequence: u32,
}

impl<R: CryptoRng> Nonces<R> {
    /// Nonces from `random`; the first sequence number is drawn too (8.3.4.5.3, SEQNUM).
    pub fn new(mut random: R) -> Nonces<R> {
        let sequence = random.next_u32();
        Nonces { random, sequence }
    }

    /// `length` random bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(vec![0; length]);
        self.random.fill_bytes(&mut bytes);
        bytes
    }

    /// The next sequence number; zero has a meaning of its own and is left out.
    pub(crate) fn sequence(&mut self) -> u32 {
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        self.sequence
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rand_core::{TryCryptoRng, TryRng};

    use super::*;

    struct Ones;

    impl TryRng for Ones {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            Ok(u32::MAX)
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            Ok(u64::MAX)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
            bytes.fill(0xFF);
            Ok(())
        }
    }

    impl TryCryptoRng for Ones {}

    #[test]
    fn sequence_numbers_are_counted_and_leave_zero_out() {
        let mut nonces = Nonces::new(Ones);
        assert_eq!([nonces.sequence(), nonces.sequence(), nonces.sequence()], [1, 2, 3]);
    }
}
