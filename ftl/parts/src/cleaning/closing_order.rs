//! The closed chunks of one group in the order in which they were closed, with the valid blocks of each.
//!
//! A chunk gets the next place when it is closed and keeps it until it is collected. Over the places stands a tree whose
//! nodes know how many chunks are below them and how many valid blocks the emptiest of these has:
//!
//! ```text
//!                     4 chunks, 3
//!             ┌───────────┴───────────┐
//!         2 chunks, 7             2 chunks, 3
//!        ┌────┴────┐             ┌────┴────┐
//!      chunk 5     –           chunk 2   chunk 9          oldest ──▶ youngest
//!      7 valid                 3 valid   16 valid
//! ```
//!
//! So the oldest chunk that gives anything back, the emptiest of the oldest ones and the one at a given place are each
//! found on one way from the root to a leaf. When the places are used up, those that are empty are squeezed out.

use openftl_core::ChunkId;
use rustc_hash::FxHashMap;

/// Places of an order in which nothing was ever closed.
const PLACES_MIN: usize = 8;

/// Stands for the valid blocks of a place without a chunk, and of a chunk that cannot be collected yet.
const NOTHING: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    /// Chunks at or below.
    chunks: u32,
    /// Valid blocks of the emptiest of them that may be collected.
    fewest: u32,
}

const EMPTY: Node = Node { chunks: 0, fewest: NOTHING };

/// The order. See the module.
#[derive(Clone)]
pub struct ClosingOrder {
    /// A heap: the children of node `n` are `2n` and `2n + 1`, and the leaves are the second half.
    nodes: Vec<Node>,
    /// The chunk at each place, and when it was closed.
    at: Vec<(ChunkId, u64)>,
    /// The first place that was never used.
    end: usize,
    places: FxHashMap<ChunkId, usize>,
    /// Valid blocks of all chunks that may be collected, and how many these are.
    valid: u64,
    candidates: u32,
}

impl Default for ClosingOrder {
    fn default() -> ClosingOrder {
        ClosingOrder {
            nodes: vec![EMPTY; 2 * PLACES_MIN],
            at: vec![(ChunkId(0), 0); PLACES_MIN],
            end: 0,
            places: FxHashMap::default(),
            valid: 0,
            candidates: 0,
        }
    }
}

impl ClosingOrder {
    /// Closed chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.nodes[1].chunks
    }

    /// `chunk` was closed now, as the `number`-th of the drive. It may be collected once its valid blocks are set.
    pub fn close(&mut self, chunk: ChunkId, number: u64) {
        if self.end == self.at.len() {
            self.squeeze();
        }
        let place = self.end;
        self.end += 1;
        self.at[place] = (chunk, number);
        let other = self.places.insert(chunk, place);
        assert!(other.is_none(), "{chunk:?} was closed twice");
        self.set(place, Node { chunks: 1, fewest: NOTHING });
    }

    /// `chunk` may be collected, and has this many valid blocks.
    pub fn set_valid(&mut self, chunk: ChunkId, valid: u32) {
        let place = self.places[&chunk];
        self.forget_valid(place);
        self.valid += u64::from(valid);
        self.candidates += 1;
        self.set(place, Node { chunks: 1, fewest: valid });
    }

    /// `chunk` is closed no more.
    pub fn remove(&mut self, chunk: ChunkId) {
        let place = self.places.remove(&chunk).expect("it is closed");
        self.forget_valid(place);
        self.set(place, EMPTY);
    }

    /// The oldest chunk with fewer than `below` valid blocks.
    #[must_use]
    pub fn oldest_with_fewer(&self, below: u32) -> Option<ChunkId> {
        let leaves = self.at.len();
        let mut node = 1;
        if self.nodes[node].fewest >= below {
            return None;
        }
        while node < leaves {
            node *= 2;
            node += usize::from(self.nodes[node].fewest >= below);
        }
        Some(self.at[node - leaves].0)
    }

    /// The emptiest of the `count` oldest chunks, the oldest of these if there are several, with its valid blocks.
    #[must_use]
    pub fn emptiest_of_oldest(&self, count: u32) -> Option<(ChunkId, u32)> {
        let leaves = self.at.len();
        // Down to the last of them, past subtrees that belong to the oldest as a whole.
        let (mut node, mut left, mut best) = (1, count.min(self.chunks()), (0, NOTHING));
        let mut consider = |node: usize| {
            if self.nodes[node].fewest < best.1 {
                best = (node, self.nodes[node].fewest);
            }
        };
        while left > 0 {
            if left == self.nodes[node].chunks {
                consider(node);
                break;
            }
            let first = 2 * node;
            if left < self.nodes[first].chunks {
                node = first;
            } else {
                consider(first);
                left -= self.nodes[first].chunks;
                node = first + 1;
            }
        }
        let (mut node, fewest) = best;
        if fewest == NOTHING {
            return None;
        }
        while node < leaves {
            node *= 2;
            node += usize::from(self.nodes[node].fewest != fewest);
        }
        Some((self.at[node - leaves].0, fewest))
    }

    /// The chunk that `older` others were closed before, with its valid blocks; `None` if it cannot be collected yet, or
    /// there are not so many.
    #[must_use]
    pub fn at(&self, older: u32) -> Option<(ChunkId, u32)> {
        let leaves = self.at.len();
        if older >= self.chunks() {
            return None;
        }
        let (mut node, mut left) = (1, older);
        while node < leaves {
            node *= 2;
            if left >= self.nodes[node].chunks {
                left -= self.nodes[node].chunks;
                node += 1;
            }
        }
        let fewest = self.nodes[node].fewest;
        (fewest != NOTHING).then(|| (self.at[node - leaves].0, fewest))
    }

    /// The number that `chunk` got when it was closed.
    #[must_use]
    pub fn number(&self, chunk: ChunkId) -> u64 {
        self.at[self.places[&chunk]].1
    }

    /// Valid blocks of the mean chunk that may be collected, in 256ths; `None` without such a chunk.
    #[must_use]
    pub fn mean_valid(&self) -> Option<u64> {
        (self.candidates > 0).then(|| self.valid * 256 / u64::from(self.candidates))
    }

    fn forget_valid(&mut self, place: usize) {
        let Node { fewest, .. } = self.nodes[self.at.len() + place];
        if fewest != NOTHING {
            self.valid -= u64::from(fewest);
            self.candidates -= 1;
        }
    }

    fn set(&mut self, place: usize, leaf: Node) {
        let mut node = self.at.len() + place;
        self.nodes[node] = leaf;
        while node > 1 {
            node /= 2;
            let joined = join(self.nodes[2 * node], self.nodes[2 * node + 1]);
            let before = std::mem::replace(&mut self.nodes[node], joined);
            if (before.chunks, before.fewest) == (joined.chunks, joined.fewest) {
                break;
            }
        }
    }

    /// Squeezes out the places without a chunk, and makes room for as many again as there are chunks.
    fn squeeze(&mut self) {
        let leaves = self.at.len();
        let kept: Vec<_> = (0..self.end)
            .map(|place| (self.at[place], self.nodes[leaves + place]))
            .filter(|(_, node)| node.chunks > 0)
            .collect();
        let leaves = (2 * kept.len()).next_power_of_two().max(PLACES_MIN);
        self.end = kept.len();
        self.at = vec![(ChunkId(0), 0); leaves];
        self.nodes = vec![EMPTY; 2 * leaves];
        for (place, (at, node)) in kept.into_iter().enumerate() {
            self.at[place] = at;
            self.places.insert(at.0, place);
            self.nodes[leaves + place] = node;
        }
        for node in (1..leaves).rev() {
            self.nodes[node] = join(self.nodes[2 * node], self.nodes[2 * node + 1]);
        }
    }
}

fn join(first: Node, second: Node) -> Node {
    Node { chunks: first.chunks + second.chunks, fewest: first.fewest.min(second.fewest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The same as a list that is searched from end to end.
    #[derive(Default)]
    struct Model(Vec<(ChunkId, u64, Option<u32>)>);

    impl Model {
        fn oldest_with_fewer(&self, below: u32) -> Option<ChunkId> {
            self.0.iter().find(|(_, _, valid)| valid.is_some_and(|valid| valid < below)).map(|one| one.0)
        }

        fn emptiest_of_oldest(&self, count: u32) -> Option<(ChunkId, u32)> {
            let candidates =
                self.0.iter().take(count as usize).filter_map(|(chunk, _, valid)| Some((*chunk, (*valid)?)));
            candidates.min_by_key(|(_, valid)| *valid)
        }

        fn mean_valid(&self) -> Option<u64> {
            let valid: Vec<u64> = self.0.iter().filter_map(|one| one.2.map(u64::from)).collect();
            (!valid.is_empty()).then(|| valid.iter().sum::<u64>() * 256 / valid.len() as u64)
        }
    }

    #[test]
    fn the_tree_answers_as_a_search_through_a_list_does() {
        for seed in 0..20 {
            let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut below = |bound: u64| dice.next_u64() % bound;
            let (mut order, mut model) = (ClosingOrder::default(), Model::default());
            let mut free: Vec<ChunkId> = (0..40).map(ChunkId).collect();
            for number in 0..2_000 {
                match below(3) {
                    0 if !free.is_empty() => {
                        let chunk = free.swap_remove(below(free.len() as u64) as usize);
                        order.close(chunk, number);
                        model.0.push((chunk, number, None));
                    }
                    1 if !model.0.is_empty() => {
                        let (chunk, closed, _) = model.0.remove(below(model.0.len() as u64) as usize);
                        assert_eq!(order.number(chunk), closed);
                        order.remove(chunk);
                        free.push(chunk);
                    }
                    _ if !model.0.is_empty() => {
                        let at = below(model.0.len() as u64) as usize;
                        let valid = below(17) as u32;
                        order.set_valid(model.0[at].0, valid);
                        model.0[at].2 = Some(valid);
                    }
                    _ => {}
                }
                let (fewer, count, older) = (below(18) as u32, below(42) as u32, below(42) as u32);
                assert_eq!(order.chunks() as usize, model.0.len());
                assert_eq!(order.oldest_with_fewer(fewer), model.oldest_with_fewer(fewer), "seed {seed}");
                assert_eq!(order.emptiest_of_oldest(count), model.emptiest_of_oldest(count), "seed {seed}");
                let at = model.0.get(older as usize).and_then(|(chunk, _, valid)| Some((*chunk, (*valid)?)));
                assert_eq!(order.at(older), at, "seed {seed}");
                assert_eq!(order.mean_valid(), model.mean_valid(), "seed {seed}");
            }
        }
    }
}
