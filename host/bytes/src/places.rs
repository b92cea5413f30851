//! The table of what is under way: a place for each request, named by its index until the request is over.
//!
//! ```text
//!   places   [ a ][ b ][   ][ d ][   ][   ]      the lowest free place is taken next, so that the free ones
//!                        ▲         └───┴──▶      gather at the end, where they are given up
//! ```
//!
//! The table is as large as what is under way needs it to be: a crowd that has gone leaves neither memory nor anything to
//! look through. A place that is kept keeps its buffers, so a steady load allocates nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};

/// Places that are kept when nothing is under way, with the buffers in them.
const KEPT: usize = 256;

pub(crate) struct Places<P> {
    places: Vec<P>,
    is_taken: Vec<bool>,
    /// Free places, the lowest first. Some of them may have been given up or taken since.
    free: BinaryHeap<Reverse<u32>>,
    taken: usize,
    taken_max: usize,
}

impl<P> Places<P> {
    /// A table for `taken_max` requests.
    pub fn new(taken_max: usize) -> Places<P> {
        Places { places: Vec::new(), is_taken: Vec::new(), free: BinaryHeap::new(), taken: 0, taken_max }
    }

    /// Places that are taken.
    pub fn len(&self) -> usize {
        self.taken
    }

    pub fn is_full(&self) -> bool {
        self.taken == self.taken_max
    }

    /// Places that there are, taken or not.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.places.len()
    }

    /// Takes a place, a new one made by `make` if none is free.
    pub fn take(&mut self, make: impl FnOnce() -> P) -> u32 {
        assert!(!self.is_full(), "whoever takes a place has looked for one");
        self.taken += 1;
        while let Some(Reverse(index)) = self.free.pop() {
            if let Some(is_taken @ false) = self.is_taken.get_mut(index as usize) {
                *is_taken = true;
                return index;
            }
        }
        self.places.push(make());
        self.is_taken.push(true);
        self.places.len() as u32 - 1
    }

    /// Gives a place back.
    pub fn give_back(&mut self, index: u32) {
        assert!(std::mem::replace(&mut self.is_taken[index as usize], false), "place {index} is given back once");
        self.taken -= 1;
        self.free.push(Reverse(index));
        while self.places.len() > KEPT && self.is_taken.last() == Some(&false) {
            self.places.pop();
            self.is_taken.pop();
        }
        // Moved once for each halving, so that it costs a request no more than a constant.
        let room = self.places.len().max(KEPT);
        if self.places.capacity() > 4 * room {
            self.places.shrink_to(room);
            self.is_taken.shrink_to(room);
        }
        if self.free.len() > 2 * room {
            let (is_taken, mut free) = (&self.is_taken, std::mem::take(&mut self.free).into_vec());
            free.sort_unstable();
            free.dedup();
            free.retain(|Reverse(index)| is_taken.get(*index as usize) == Some(&false));
            free.shrink_to(room);
            self.free = free.into();
        }
    }
}

impl<P> Index<u32> for Places<P> {
    type Output = P;

    #[inline]
    fn index(&self, index: u32) -> &P {
        &self.places[index as usize]
    }
}

impl<P> IndexMut<u32> for Places<P> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut P {
        &mut self.places[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn no_place_is_taken_twice_and_a_crowd_leaves_no_more_than_is_kept() {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut places = Places::new(5_000);
        let mut taken: Vec<u32> = Vec::new();
        for round in 0..60_000 {
            // Crowds that come, and go again but for a few.
            let is_coming = (round / 10_000) % 2 == 0;
            if chance.next_u32() % 8 < if is_coming { 7 } else { 1 } && !places.is_full() {
                let index = places.take(|| None);
                assert_eq!(places[index].replace(round), None, "place {index} was taken");
                taken.push(index);
            } else if !taken.is_empty() {
                let index = taken.swap_remove(chance.next_u32() as usize % taken.len());
                places[index] = None;
                places.give_back(index);
            }
            assert_eq!(places.len(), taken.len());
            assert!(places.free.len() <= 2 * places.held().max(KEPT));
        }
        while let Some(index) = taken.pop() {
            places[index] = None;
            places.give_back(index);
        }
        assert!(places.held() <= KEPT && places.places.capacity() <= 4 * KEPT);
    }
}
