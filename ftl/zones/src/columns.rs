//! A set of columns of a zone, a bit for each.

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Columns {
    words: Box<[u64]>,
}

impl Columns {
    /// None of `width`.
    pub(crate) fn none(width: u32) -> Columns {
        Columns { words: vec![0; width.div_ceil(u64::BITS) as usize].into() }
    }

    fn place(column: u32) -> (usize, u64) {
        ((column / u64::BITS) as usize, 1 << (column % u64::BITS))
    }

    #[inline]
    pub(crate) fn insert(&mut self, column: u32) {
        let (word, bit) = Columns::place(column);
        self.words[word] |= bit;
    }

    /// Returns whether it was there.
    #[inline]
    pub(crate) fn remove(&mut self, column: u32) -> bool {
        let (word, bit) = Columns::place(column);
        let was_there = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        was_there
    }

    #[inline]
    pub(crate) fn contains(&self, column: u32) -> bool {
        let (word, bit) = Columns::place(column);
        self.words[word] & bit != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The first one from `column` on.
    #[inline]
    pub(crate) fn next(&self, column: u32) -> Option<u32> {
        let (first, bit) = Columns::place(column);
        let rest = self.words.get(first)? & (bit.wrapping_neg());
        if rest != 0 {
            return Some(first as u32 * u64::BITS + rest.trailing_zeros());
        }
        let (word, bits) = (first + 1..).zip(&self.words[first + 1..]).find(|(_, bits)| **bits != 0)?;
        Some(word as u32 * u64::BITS + bits.trailing_zeros())
    }

    /// Takes all of `other`, which has none from now on.
    #[inline]
    pub(crate) fn take_all(&mut self, other: &mut Columns) {
        for (word, more) in self.words.iter_mut().zip(&mut other.words) {
            *word |= std::mem::take(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(columns: &Columns) -> Vec<u32> {
        std::iter::successors(columns.next(0), |column| columns.next(column + 1)).collect()
    }

    #[test]
    fn columns_come_in_their_order_across_words() {
        let mut columns = Columns::none(130);
        assert!(columns.is_empty() && all(&columns).is_empty());
        for column in [129, 0, 64, 63, 5] {
            columns.insert(column);
        }
        assert_eq!(all(&columns), [0, 5, 63, 64, 129]);
        assert!(columns.remove(63) && !columns.remove(63) && !columns.contains(63) && columns.contains(64));
        let mut others = Columns::none(130);
        others.insert(63);
        others.insert(64);
        columns.take_all(&mut others);
        assert!(others.is_empty());
        assert_eq!(all(&columns), [0, 5, 63, 64, 129]);
        assert_eq!((columns.next(65), columns.next(130)), (Some(129), None));
    }

    #[test]
    fn a_width_of_whole_words_ends_with_its_last_column() {
        let mut columns = Columns::none(64);
        columns.insert(63);
        assert_eq!((columns.next(0), columns.next(64)), (Some(63), None));
    }
}
