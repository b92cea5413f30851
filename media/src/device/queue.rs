//! Completions on their way: delivered by due time, in submission order where they fall together.
//!
//! Most completions are due no earlier than all before them (always so on an instant device), and most of the others overtake only a few:
//! those wait in line. Only one that overtakes many goes through the heap.

use crate::contract::Completion;
use openftl_core::Time;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// The most commands that a device has under way.
pub const COMMANDS_MAX: usize = 4096;

/// Others that a completion may overtake in line: as many as are sooner moved than a heap is put in order.
const OVERTAKEN_MAX: usize = 64;

/// Completions that are not yet delivered.
#[derive(Clone, Default)]
pub struct CompletionQueue {
    line: VecDeque<Entry>,
    overtaking: BinaryHeap<Entry>,
    submitted: u64,
}

#[derive(Clone)]
struct Entry {
    order: u64,
    completion: Completion,
}

impl Entry {
    fn key(&self) -> (Time, u64) {
        (self.completion.at, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, because a `BinaryHeap` gives the greatest first.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl CompletionQueue {
    /// Commands under way.
    #[inline]
    pub fn len(&self) -> usize {
        self.line.len() + self.overtaking.len()
    }

    /// Adds the completion of one more command.
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        let entry = Entry { order: self.submitted, completion };
        self.submitted += 1;
        if self.line.back().is_none_or(|last| last.completion.at <= completion.at) {
            return self.line.push_back(entry);
        }
        // The line may be long, and most of it is in no cache: only its end is searched.
        let is_before = |place: usize| self.line[place].completion.at <= completion.at;
        let (mut place, mut end) = (self.line.len().saturating_sub(OVERTAKEN_MAX + 1), self.line.len());
        if place > 0 && !is_before(place) {
            return self.overtaking.push(entry);
        }
        while place < end {
            let middle = place.midpoint(end);
            match is_before(middle) {
                true => place = middle + 1,
                false => end = middle,
            }
        }
        self.line.insert(place, entry);
    }

    /// When the next completion is due.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        match (self.line.front(), self.overtaking.peek()) {
            (Some(line), Some(heap)) => Some(line.completion.at.min(heap.completion.at)),
            (Some(entry), None) | (None, Some(entry)) => Some(entry.completion.at),
            (None, None) => None,
        }
    }

    /// Appends what is due by `now`.
    #[inline]
    pub fn drain(&mut self, now: Time, completions: &mut Vec<Completion>) {
        if self.overtaking.is_empty() {
            while let Some(entry) = self.line.pop_front_if(|entry| entry.completion.at <= now) {
                completions.push(entry.completion);
            }
            return;
        }
        loop {
            let line = self.line.front().map(Entry::key);
            let heap = self.overtaking.peek().map(Entry::key);
            let from_line = match (line, heap) {
                (None, None) => return,
                (Some(line), Some(heap)) => line < heap,
                (line, _) => line.is_some(),
            };
            let (at, _) = if from_line { line } else { heap }.expect("one of the two has an entry");
            if at > now {
                return;
            }
            let entry = if from_line { self.line.pop_front() } else { self.overtaking.pop() };
            completions.push(entry.expect("the entry just looked at").completion);
        }
    }

    /// Forgets all of them: the power is gone.
    pub fn clear(&mut self) {
        self.line.clear();
        self.overtaking.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Status;

    #[test]
    fn whoever_overtakes_many_comes_in_its_turn_too() {
        let mut queue = CompletionQueue::default();
        let count = 3 * OVERTAKEN_MAX as u64;
        for tag in 0..count {
            queue.push(Completion { tag, status: Status::Success, failed: 0, at: Time(1000 - tag / 2) });
        }
        assert!(!queue.overtaking.is_empty() && queue.line.len() > OVERTAKEN_MAX, "both ways are taken");
        let mut completions = Vec::new();
        queue.drain(Time(1000), &mut completions);
        let mut expected: Vec<u64> = (0..count).collect();
        expected.sort_by_key(|tag| (1000 - tag / 2, *tag));
        assert_eq!(completions.iter().map(|completion| completion.tag).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn completions_come_by_due_time_and_then_in_submission_order() {
        let mut queue = CompletionQueue::default();
        for (tag, at) in [(0, 50), (1, 20), (2, 50), (3, 20), (4, 70), (5, 60), (6, 70)] {
            queue.push(Completion { tag, status: Status::Success, failed: 0, at: Time(at) });
        }
        assert_eq!((queue.len(), queue.next_due()), (7, Some(Time(20))));
        let mut tags = |now| {
            let mut completions = Vec::new();
            queue.drain(Time(now), &mut completions);
            completions.iter().map(|completion| completion.tag).collect::<Vec<_>>()
        };
        assert_eq!(tags(19), []);
        assert_eq!(tags(50), [1, 3, 0, 2]);
        assert_eq!(tags(1000), [5, 4, 6]);
    }
}
