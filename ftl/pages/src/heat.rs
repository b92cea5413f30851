//! How often pages are put, as far as it is known, so that those are written together that are put as often.
//!
//! After Lomet and Luo (2020): a chunk knows when the pages in it were put *before* they were put last, in the mean. A page that is put again
//! was put last somewhere between that time and now, and half way is taken. A page that moves takes the time of its chunk along, or that of its version
//! where that is earlier. The time since is its *rest*: about two times as long as from one put to the next.
//!
//! ```text
//!   put before last        put last        now         time is counted in pages that were put
//!         │───────────────────│─────────────│
//!         ╰───────────── rest ──────────────╯
//! ```
//!
//! Pages are divided into as many classes as chunks are written side by side, so that each class has about as many bytes of what is put. Nothing of
//! this is on media: after a drive was opened all chunks are alike, until pages are put again.

use std::cmp::Ordering;

/// Steps of rests: four for each power of two.
const STEPS: usize = 4 * u64::BITS as usize;

/// See the module.
pub(crate) struct Heat {
    /// Grains put, by step of rest, since they were last halved.
    put: Box<[u64; STEPS]>,
    /// Grains since then, and how many it takes.
    since: u64,
    window: u64,
    /// The first step of each class but the first.
    bounds: Vec<usize>,
}

/// The step of a rest.
fn step(rest: u64) -> usize {
    let bits = rest.max(4).ilog2();
    4 * bits as usize + (rest.max(4) >> (bits - 2)) as usize - 4
}

impl Heat {
    /// Nothing is known. There are so many classes, and a chunk has so many grains.
    pub(crate) fn new(classes: usize, chunk_grains: u32) -> Heat {
        let window = 2 * classes as u64 * u64::from(chunk_grains);
        Heat { put: Box::new([0; STEPS]), since: 0, window, bounds: vec![STEPS; classes.saturating_sub(1)] }
    }

    /// The class of a page with this rest: the first is put most often.
    pub(crate) fn class(&self, rest: u64) -> usize {
        let step = step(rest);
        self.bounds.partition_point(|bound| *bound <= step)
    }

    /// A page of so many grains with this rest is put.
    pub(crate) fn put(&mut self, rest: u64, grains: u32) {
        self.put[step(rest)] += u64::from(grains);
        self.since += u64::from(grains);
        if self.since >= self.window {
            self.divide();
        }
    }

    fn divide(&mut self) {
        let (total, classes) = (self.put.iter().sum::<u64>(), self.bounds.len() as u64 + 1);
        let (mut class, mut before) = (0, 0);
        for (step, put) in self.put.iter().enumerate() {
            while class < self.bounds.len() && before * classes >= total * (class as u64 + 1) {
                self.bounds[class] = step;
                class += 1;
            }
            before += put;
        }
        self.bounds[class..].fill(STEPS);
        self.put.iter_mut().for_each(|put| *put /= 2);
        self.since = 0;
    }
}

/// When the pages in a chunk were put before they were put last, in the mean by grains.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PutBefore {
    /// The mean.
    pub at: u64,
    grains: u64,
}

impl PutBefore {
    /// A page of so many grains comes, which was put before its last put at `at`.
    pub(crate) fn add(&mut self, at: u64, grains: u32) {
        self.grains += u64::from(grains);
        let by = |span: u64| (u128::from(span) * u128::from(grains) / u128::from(self.grains)) as u64;
        match at.cmp(&self.at) {
            Ordering::Less => self.at -= by(self.at - at),
            Ordering::Equal => {}
            Ordering::Greater => self.at += by(at - self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other() {
        assert_eq!(
            [0, 4, 5, 6, 7, 8, 9, 10, 12, 16, u64::MAX].map(step),
            [8, 8, 9, 10, 11, 12, 12, 13, 14, 16, STEPS - 1]
        );
    }

    #[test]
    fn classes_get_as_much_each_whatever_the_rests_are() {
        let mut heat = Heat::new(4, 1 << 10);
        // Of 16 pages that are put, 8 rest for 2^4 to 2^5, 4 for 2^10, 4 for 2^20 and more.
        let rest = |n: u64| match n % 16 {
            n @ 0..8 => 16 + n,
            8..12 => 1 << 10,
            n => 1 << (8 + n),
        };
        for n in 0..10_000 {
            heat.put(rest(n), 8);
        }
        let mut counts = [0; 4];
        for n in 0..1600 {
            counts[heat.class(rest(n))] += 1;
        }
        assert_eq!(counts, [400; 4]);
        assert_eq!((heat.class(0), heat.class(u64::MAX)), (0, 3));
    }

    #[test]
    fn alike_they_are_of_one_class() {
        let mut heat = Heat::new(3, 16);
        (0..1000).for_each(|_| heat.put(100, 8));
        assert_eq!(heat.class(100), heat.class(101));
    }

    #[test]
    fn a_mean_is_by_grains() {
        let mut mean = PutBefore::default();
        mean.add(1000, 1);
        mean.add(2000, 3);
        assert_eq!(mean.at, 1750);
        mean.add(0, 4);
        assert_eq!(mean.at, 875);
    }
}
