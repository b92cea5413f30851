//! Which chunk of a group to collect next: pure functions of what is known about the closed chunks, and of a draw.
//!
//! | policy | the victim | found |
//! |---|---|---|
//! | `greedy` | the emptiest | from lists by valid blocks |
//! | `cost-benefit` | the greatest (1 − u) × age / 2u | by looking at all |
//! | `minimum-declining-cost` | the greatest (1 − u)² × rest / u | by looking at all |
//! | `fifo` | the one that was closed first | in the [`ClosingOrder`] |
//! | `windowed:25%` | the emptiest of the quarter that was closed first | in the [`ClosingOrder`] |
//! | `d-choices:10` | the emptiest of ten drawn at random | in the [`ClosingOrder`] |
//!
//! Cleaning a chunk costs less the longer it waits, for what it holds is written again meanwhile. *Minimum declining cost* (Lomet and Luo 2020) takes
//! the chunk whose cost falls least: of cost ∝ 1 / (1 − u) that is the one where u / ((1 − u)² × rest) is least, if what it holds is written
//! again once in a `rest`. A block drive takes the age of the chunk for that; a store of pages knows more.
//!
//! None of them chooses a chunk that gives nothing back: where theirs would, the next takes its place.

use crate::cleaning::closing_order::ClosingOrder;
use openftl_core::ChunkId;
use openftl_core::units::Share;
use std::fmt;
use std::str::FromStr;

/// Chunks that may be drawn at random for one victim, at most.
const CHOICES_MAX: u32 = 1_000;

/// How victims are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum VictimPolicy {
    /// The chunk with the fewest valid blocks: the least work for the most room, best where all data are alike.
    #[default]
    Greedy,
    /// The chunk with the greatest benefit/cost = (1 − u) × age / 2u (Rosenblum and Ousterhout 1992), where u is the
    /// share of valid blocks: gives hot chunks time to empty themselves.
    CostBenefit,
    /// The chunk that it costs least to clean now instead of later: see the module.
    MinimumDecliningCost,
    /// The chunk that was closed first: what a log that is written round and round does.
    Fifo,
    /// The chunk with the fewest valid blocks among this share of the closed chunks, those that were closed first.
    Windowed(Share),
    /// The chunk with the fewest valid blocks among so many closed ones drawn at random.
    Choices(u32),
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

impl Candidate {
    /// Benefit over cost of collecting it: the candidate with the greatest is the victim. `None` if nothing would be
    /// gained.
    #[inline]
    #[must_use]
    pub fn benefit_over_cost(self) -> Option<u64> {
        let Candidate { valid, blocks, age } = self;
        if valid >= blocks {
            return None;
        }
        if valid == 0 {
            return Some(u64::MAX);
        }
        // Scaled to whole numbers: 2^20 keeps the order of neighbouring shares, and age stays below 2^40 blocks.
        let invalid = u64::from(blocks - valid);
        Some(((invalid << 20) / (2 * u64::from(valid))).saturating_mul(age + 1))
    }

    /// How slowly the cost of collecting it falls, if its blocks are written again once in its age: the candidate with the greatest is the victim.
    /// `None` if nothing would be gained.
    #[inline]
    #[must_use]
    pub fn steadiness(self) -> Option<u64> {
        let Candidate { valid, blocks, age } = self;
        if valid >= blocks {
            return None;
        }
        if valid == 0 {
            return Some(u64::MAX);
        }
        let invalid = u64::from(blocks - valid);
        let emptiness = ((invalid * invalid) << 16) / (u64::from(valid) * u64::from(blocks));
        Some((emptiness + 1).saturating_mul(age + 1))
    }
}

/// The chunk of `order` that was closed first, of those that have not all of their `blocks` valid.
#[must_use]
pub fn first_closed(order: &ClosingOrder, blocks: u32) -> Option<ChunkId> {
    order.oldest_with_fewer(blocks)
}

/// The emptiest of the `window` of `order` that was closed first. Where all of these are full, the oldest that is not.
#[must_use]
pub fn emptiest_of_window(order: &ClosingOrder, blocks: u32, window: Share) -> Option<ChunkId> {
    let oldest = window.of(u64::from(order.chunks())) as u32;
    match order.emptiest_of_oldest(oldest) {
        Some((chunk, valid)) if valid < blocks => Some(chunk),
        _ => first_closed(order, blocks),
    }
}

/// The emptiest of `choices` chunks of `order`; `draw` gives a number below its argument, each as likely. Where all of
/// these are full, the emptiest of all.
#[must_use]
pub fn emptiest_of_choices(
    order: &ClosingOrder,
    blocks: u32,
    choices: u32,
    mut draw: impl FnMut(u32) -> u32,
) -> Option<ChunkId> {
    let chunks = order.chunks();
    let drawn = (0..if chunks == 0 { 0 } else { choices }).filter_map(|_| order.at(draw(chunks)));
    let emptiest = drawn.min_by_key(|(_, valid)| *valid).filter(|(_, valid)| *valid < blocks);
    emptiest.or_else(|| order.emptiest_of_oldest(chunks).filter(|(_, valid)| *valid < blocks)).map(|(chunk, _)| chunk)
}

/// A victim policy that there is not.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "\"{text}\" is no victim policy{why}: choose greedy, cost-benefit, minimum-declining-cost, fifo, windowed:25% (a share from 0.0001% to \
     100%), or d-choices:10 (1 to {CHOICES_MAX})"
)]
pub struct PolicyError {
    text: String,
    why: String,
}

impl FromStr for VictimPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<VictimPolicy, PolicyError> {
        let error = |why: &str| PolicyError { text: text.to_owned(), why: why.to_owned() };
        let (name, number) = match text.trim().split_once(':') {
            Some((name, number)) => (name.trim_end(), Some(number.trim_start())),
            None => (text.trim(), None),
        };
        match (name, number) {
            ("greedy", None) => Ok(VictimPolicy::Greedy),
            ("cost-benefit", None) => Ok(VictimPolicy::CostBenefit),
            ("minimum-declining-cost", None) => Ok(VictimPolicy::MinimumDecliningCost),
            ("fifo", None) => Ok(VictimPolicy::Fifo),
            ("windowed", None) => Err(error(" without its window")),
            ("windowed", Some(share)) => match share.parse::<Share>() {
                Ok(window) if window > Share::percent(0) && window <= Share::percent(100) => {
                    Ok(VictimPolicy::Windowed(window))
                }
                Ok(_) => Err(error(" because of its window")),
                Err(unit) => Err(error(&format!(" ({unit})"))),
            },
            ("d-choices", None) => Err(error(" without the number of choices")),
            ("d-choices", Some(choices)) => match choices.parse() {
                Ok(choices @ 1..=CHOICES_MAX) => Ok(VictimPolicy::Choices(choices)),
                _ => Err(error(" because of the number of choices")),
            },
            _ => Err(error("")),
        }
    }
}

impl fmt::Display for VictimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VictimPolicy::Greedy => f.write_str("greedy"),
            VictimPolicy::CostBenefit => f.write_str("cost-benefit"),
            VictimPolicy::MinimumDecliningCost => f.write_str("minimum-declining-cost"),
            VictimPolicy::Fifo => f.write_str("fifo"),
            VictimPolicy::Windowed(window) => write!(f, "windowed:{window}"),
            VictimPolicy::Choices(choices) => write!(f, "d-choices:{choices}"),
        }
    }
}

impl serde::Serialize for VictimPolicy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for VictimPolicy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<VictimPolicy, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 16;

    /// Chunks 0, 1, 2, … closed in this order, with so many valid blocks.
    fn closed_with(valid: &[u32]) -> ClosingOrder {
        let mut order = ClosingOrder::default();
        for (chunk, valid) in valid.iter().enumerate() {
            order.close(ChunkId(chunk as u32), chunk as u64);
            order.set_valid(ChunkId(chunk as u32), *valid);
        }
        order
    }

    #[test]
    fn cost_benefit_prefers_the_older_of_two_alike_and_waits_for_the_hot() {
        let worth = |valid, age| Candidate { valid, blocks: 256, age }.benefit_over_cost();
        assert!(worth(100, 10) > worth(100, 5));
        assert!(worth(150, 1_000) > worth(100, 10), "a cold chunk is worth more than an emptier hot one");
        assert_eq!(worth(0, 0), Some(u64::MAX));
        assert_eq!(worth(256, 1_000_000), None, "nobody collects a full chunk");
    }

    #[test]
    fn the_cost_of_what_is_written_again_soon_falls_fast_and_can_wait() {
        let worth = |valid, age| Candidate { valid, blocks: 256, age }.steadiness();
        assert!(worth(100, 10) > worth(100, 5) && worth(100, 10) > worth(120, 10));
        assert!(worth(200, 10_000) > worth(50, 10), "a cold chunk before a hot one that is emptier");
        assert!(worth(200, 100) < worth(50, 100), "of two alike the emptier one");
        assert_eq!((worth(0, 0), worth(256, 1_000_000)), (Some(u64::MAX), None));
    }

    #[test]
    fn fifo_takes_the_oldest_that_gives_anything_back() {
        assert_eq!(first_closed(&closed_with(&[15, 3, 0]), BLOCKS), Some(ChunkId(0)));
        assert_eq!(first_closed(&closed_with(&[16, 16, 9, 0]), BLOCKS), Some(ChunkId(2)));
        assert_eq!(first_closed(&closed_with(&[16, 16]), BLOCKS), None);
    }

    #[test]
    fn a_window_hides_what_was_closed_later_unless_all_in_it_is_full() {
        let windowed =
            |valid: &[u32], percent| emptiest_of_window(&closed_with(valid), BLOCKS, Share::percent(percent));
        assert_eq!(windowed(&[9, 8, 7, 6, 5, 4, 3, 2], 25), Some(ChunkId(1)));
        assert_eq!(windowed(&[9, 8, 7, 6, 5, 4, 3, 2], 100), Some(ChunkId(7)));
        assert_eq!(windowed(&[9, 8, 7], 1), Some(ChunkId(0)), "a window has one chunk at least");
        assert_eq!(windowed(&[16, 16, 16, 9, 1, 1, 1, 1], 25), Some(ChunkId(3)));
        assert_eq!(windowed(&[16, 16], 50), None);
    }

    #[test]
    fn choices_take_the_emptiest_drawn_and_only_without_one_the_emptiest_of_all() {
        let chosen = |valid: &[u32], drawn: &[u32]| {
            let mut draws = drawn.iter();
            let draw = |below| *draws.next().filter(|draw| **draw < below).expect("as many draws as choices");
            emptiest_of_choices(&closed_with(valid), BLOCKS, drawn.len() as u32, draw)
        };
        assert_eq!(chosen(&[1, 9, 5, 7], &[3, 1, 2, 3]), Some(ChunkId(2)));
        assert_eq!(chosen(&[1, 9, 16, 16], &[2, 3]), Some(ChunkId(0)));
        assert_eq!(chosen(&[16, 16], &[0, 1]), None);
        assert_eq!(emptiest_of_choices(&closed_with(&[]), BLOCKS, 3, |_| unreachable!()), None);
    }

    #[test]
    fn policies_are_written_as_they_are_read() {
        for text in [
            "greedy",
            "cost-benefit",
            "minimum-declining-cost",
            "fifo",
            "windowed:25%",
            "windowed:0.5%",
            "d-choices:10",
        ] {
            assert_eq!(text.parse::<VictimPolicy>().unwrap().to_string(), text);
        }
        assert_eq!("windowed: 0.25".parse(), Ok(VictimPolicy::Windowed(Share::percent(25))));
    }

    #[test]
    fn what_is_no_policy_is_named_with_what_is() {
        for text in
            ["lru", "windowed", "windowed:0%", "windowed:101%", "windowed:x", "d-choices:0", "d-choices:1001", "fifo:2"]
        {
            let error = text.parse::<VictimPolicy>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{text}\"")) && error.contains("cost-benefit"), "{error}");
        }
    }
}
