//! Requests for one number take turns, in the order of their arrival: reads of it together, a change of it alone. Others pass.

use std::collections::{BTreeMap, VecDeque};

/// Those who are at a number, and those who wait.
#[derive(Default)]
struct Turn {
    readers: u32,
    has_writer: bool,
    waiting: VecDeque<(usize, bool)>,
}

impl Turn {
    fn may_begin(&self, is_change: bool) -> bool {
        !self.has_writer && (!is_change || self.readers == 0)
    }

    fn begin(&mut self, is_change: bool) {
        self.has_writer |= is_change;
        self.readers += u32::from(!is_change);
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Turns {
    all: BTreeMap<u64, Turn>,
}

impl Turns {
    /// A request comes to a number. Returns whether it is its turn.
    pub fn come(&mut self, number: u64, request: usize, is_change: bool) -> bool {
        let turn = self.all.entry(number).or_default();
        let may_begin = turn.waiting.is_empty() && turn.may_begin(is_change);
        match may_begin {
            true => turn.begin(is_change),
            false => turn.waiting.push_back((request, is_change)),
        }
        may_begin
    }

    /// A request leaves its number. Appends those whose turn it is now.
    pub fn leave(&mut self, number: u64, is_change: bool, ready: &mut VecDeque<usize>) {
        let turn = self.all.get_mut(&number).expect("a request that leaves has come");
        if is_change {
            turn.has_writer = false;
        } else {
            turn.readers -= 1;
        }
        while let Some((request, is_change)) = turn.waiting.front().copied() {
            if !turn.may_begin(is_change) {
                return;
            }
            turn.waiting.pop_front();
            turn.begin(is_change);
            ready.push_back(request);
        }
        if turn.readers == 0 && !turn.has_writer {
            self.all.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_together_a_change_goes_alone_and_nobody_is_overtaken() {
        let (mut turns, mut ready) = (Turns::default(), VecDeque::new());
        assert!(turns.come(5, 0, false) && turns.come(5, 1, false) && turns.come(6, 9, true));
        assert!(!turns.come(5, 2, true) && !turns.come(5, 3, false) && !turns.come(5, 4, true));
        turns.leave(5, false, &mut ready);
        assert!(ready.is_empty());
        turns.leave(5, false, &mut ready);
        assert_eq!(ready, [2]);
        turns.leave(5, true, &mut ready);
        assert_eq!(ready, [2, 3]);
        turns.leave(5, false, &mut ready);
        assert_eq!(ready, [2, 3, 4]);
        turns.leave(5, true, &mut ready);
        turns.leave(6, true, &mut ready);
        assert!(turns.all.is_empty() && ready.len() == 3);
    }
}
