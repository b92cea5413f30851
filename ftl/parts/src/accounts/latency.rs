//! How long requests took: a histogram with eight steps to each doubling, so that a percentile is right to an eighth.
//!
//! Counting is one shift and one addition in four KiB that stay in the cache; nothing is allocated.

use openftl_core::Nanos;

/// Steps to each doubling.
const STEPS: usize = 8;
const BUCKETS: usize = (64 - 3 + 1) * STEPS;

/// A histogram of latencies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    max: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; BUCKETS], max: 0 }
    }
}

impl Latencies {
    /// Counts one.
    #[inline]
    pub fn record(&mut self, latency: Nanos) {
        self.counts[bucket(latency.0)] += 1;
        self.max = self.max.max(latency.0);
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Latencies) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum += more);
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Nanos {
        Nanos(self.max)
    }

    /// The latency that `share` of the requests did not exceed, rounded up to a step. Zero if there were none.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Nanos {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= wanted {
                return Nanos(upper(index).min(self.max));
            }
        }
        Nanos::ZERO
    }
}

#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() as usize;
    (doubling - 2) * STEPS + (nanos >> (doubling - 3)) as usize - STEPS
}

/// The greatest latency that falls into a bucket.
fn upper(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let (doubling, step) = (index / STEPS + 2, (index % STEPS + STEPS) as u64);
    (step << (doubling - 3)) + ((1 << (doubling - 3)) - 1)
}

impl serde::Serialize for Latencies {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("Latencies", 5)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("p50", &self.percentile(0.5))?;
        fields.serialize_field("p99", &self.percentile(0.99))?;
        fields.serialize_field("p999", &self.percentile(0.999))?;
        fields.serialize_field("max", &self.max())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket() {
        for nanos in (0..2_000).chain((0..64).map(|shift| 1 << shift)).chain([u64::MAX, u64::MAX - 1]) {
            let index = bucket(nanos);
            assert!(upper(index) >= nanos && (index == 0 || upper(index - 1) < nanos), "{nanos} in {index}");
            assert!(upper(index) - nanos <= nanos / 8, "right to an eighth");
        }
    }

    #[test]
    fn latencies_of_two_are_those_of_all_requests() {
        let counted = |range: std::ops::Range<u64>| {
            let mut latencies = Latencies::default();
            range.for_each(|nanos| latencies.record(Nanos(nanos * 1000)));
            latencies
        };
        let mut sum = counted(0..100);
        sum.add(&counted(100..1000));
        assert_eq!(sum, counted(0..1000));
    }

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let mut latencies = Latencies::default();
        for nanos in 1..=1000 {
            latencies.record(Nanos(nanos * 1000));
        }
        assert_eq!(latencies.count(), 1000);
        let p50 = latencies.percentile(0.5).0;
        assert!((500_000..=565_000).contains(&p50), "{p50}");
        assert_eq!((latencies.percentile(1.0), latencies.max()), (Nanos(1_000_000), Nanos(1_000_000)));
        assert_eq!(Latencies::default().percentile(0.99), Nanos::ZERO);
    }
}
