//! Which chunk to collect next: a pure function of what is known about the candidates.

/// How victims are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VictimPolicy {
    /// The chunk with the fewest valid blocks: the least work for the most room, best where all data are alike.
    #[default]
    Greedy,
    /// The chunk with the greatest benefit/cost = (1 − u) × age / 2u (Rosenblum and Ousterhout 1992), where u is the
    /// share of valid blocks: gives hot chunks time to empty themselves.
    CostBenefit,
}

/// What is known about a closed chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Blocks that are still valid.
    pub valid: u32,
    /// Blocks of the chunk.
    pub blocks: u32,
    /// Host blocks written since the chunk was closed.
    pub age: u64,
}

impl VictimPolicy {
    /// How much `candidate` is worth collecting: the candidate with the greatest worth is the victim. `None` if nothing
    /// would be gained.
    #[inline]
    #[must_use]
    pub fn worth(self, candidate: Candidate) -> Option<u64> {
        let Candidate { valid, blocks, age } = candidate;
        if valid >= blocks {
            return None;
        }
        let invalid = u64::from(blocks - valid);
        Some(match self {
            VictimPolicy::Greedy => invalid,
            VictimPolicy::CostBenefit if valid == 0 => u64::MAX,
            // Scaled to whole numbers: 2^20 keeps the order of neighbouring shares, and age stays below 2^40 blocks.
            VictimPolicy::CostBenefit => ((invalid << 20) / (2 * u64::from(valid))).saturating_mul(age + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(valid: u32, age: u64) -> Candidate {
        Candidate { valid, blocks: 256, age }
    }

    #[test]
    fn greedy_prefers_the_emptiest_whatever_its_age() {
        let worth = |valid, age| VictimPolicy::Greedy.worth(candidate(valid, age));
        assert!(worth(10, 0) > worth(11, 1_000_000));
    }

    #[test]
    fn cost_benefit_prefers_the_older_of_two_alike_and_waits_for_the_hot() {
        let worth = |valid, age| VictimPolicy::CostBenefit.worth(candidate(valid, age));
        assert!(worth(100, 10) > worth(100, 5));
        assert!(worth(150, 1_000) > worth(100, 10), "a cold chunk is worth more than an emptier hot one");
        assert_eq!(worth(0, 0), Some(u64::MAX));
    }

    #[test]
    fn nobody_collects_a_full_chunk() {
        for policy in [VictimPolicy::Greedy, VictimPolicy::CostBenefit] {
            assert_eq!(policy.worth(candidate(256, 1_000_000)), None);
        }
    }
}
