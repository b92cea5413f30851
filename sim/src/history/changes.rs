//! A short list of changes: a few lie in place, more of them on the heap.

use super::Change;
use std::ops::Deref;

/// Changes that lie in place, at most.
const FEW: usize = 4;

/// Changes in some order. Worlds copy thousands of such lists for each state that a power cut left, and most have one or two.
#[derive(Clone)]
pub(super) enum Changes {
    Few { len: u8, changes: [Change; FEW] },
    Many(Vec<Change>),
}

impl Changes {
    /// A list of one.
    pub(super) fn one(change: Change) -> Changes {
        Changes::Few { len: 1, changes: [change; FEW] }
    }

    pub(super) fn push(&mut self, change: Change) {
        match self {
            Changes::Few { len, changes } if usize::from(*len) < FEW => {
                changes[usize::from(*len)] = change;
                *len += 1;
            }
            Changes::Few { changes, .. } => {
                let mut many = Vec::with_capacity(2 * FEW);
                many.extend_from_slice(changes);
                many.push(change);
                *self = Changes::Many(many);
            }
            Changes::Many(many) => many.push(change),
        }
    }

    pub(super) fn push_front(&mut self, change: Change) {
        self.push(change);
        self.as_mut_slice().rotate_right(1);
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Change) -> bool) {
        match self {
            Changes::Few { len, changes } => {
                let mut kept = 0;
                for index in 0..usize::from(*len) {
                    if is_kept(&changes[index]) {
                        changes[kept] = changes[index];
                        kept += 1;
                    }
                }
                *len = kept as u8;
            }
            Changes::Many(many) => many.retain(is_kept),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Change] {
        match self {
            Changes::Few { len, changes } => &mut changes[..usize::from(*len)],
            Changes::Many(many) => many,
        }
    }
}

impl Deref for Changes {
    type Target = [Change];

    #[inline]
    fn deref(&self) -> &[Change] {
        match self {
            Changes::Few { len, changes } => &changes[..usize::from(*len)],
            Changes::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order_in_place_and_on_the_heap() {
        for count in [2, FEW as Change, FEW as Change + 1, 9] {
            let mut list = Changes::one(0);
            (1..count).for_each(|change| list.push(change));
            list.push_front(99);
            let expected: Vec<Change> = std::iter::once(99).chain(0..count).collect();
            assert_eq!(list.to_vec(), expected);
            list.retain(|change| change % 2 == 1);
            let odd: Vec<Change> = expected.into_iter().filter(|change| change % 2 == 1).collect();
            assert_eq!(list.to_vec(), odd);
        }
    }
}
