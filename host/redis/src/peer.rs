//! A client: what it has sent, what it waits for, and what it is to get.

use crate::front::OUTPUT_MAX;
use crate::name::Name;
use openftl_values::{Key, ValueError};
use std::collections::{BTreeMap, VecDeque};

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u64);

/// What a client waits for.
pub(crate) enum Answer {
    /// It is there.
    Ready(Vec<u8>),
    /// One request of the drive.
    Waiting,
    /// A value that is longer than what was read, and is read again when those before it are answered.
    Long { name: Name, frames: usize },
    /// How many of several keys.
    Count {
        deletes: bool,
        /// Some of them go by a digest.
        compares: bool,
        todo: VecDeque<Name>,
        under_way: usize,
        count: i64,
        error: Option<ValueError>,
    },
    /// Keys.
    Scan { cursor: u64, pattern: Option<Vec<u8>>, keys: Vec<Vec<u8>>, todo: VecDeque<Key>, under_way: usize },
}

#[derive(Default)]
pub(crate) struct Peer {
    /// What it has sent, and where what waits begins.
    pub input: Vec<u8>,
    pub at: usize,
    pub output: Vec<u8>,
    pub answers: VecDeque<Answer>,
    /// The number of the first answer.
    pub first: u64,
    /// Keys whose values it waits for, and how often: nothing that comes after them may change these, for a long value is read twice.
    pub reading: BTreeMap<Key, u32>,
    /// Nothing more is taken from it.
    pub is_ending: bool,
    /// It sends nothing more.
    pub has_ended: bool,
}

impl Peer {
    pub fn kept(&self) -> usize {
        let ready = self.answers.iter().map(|answer| if let Answer::Ready(bytes) = answer { bytes.len() } else { 64 });
        self.input.capacity() + self.output.capacity() + ready.sum::<usize>()
    }

    pub fn answer(&mut self, number: u64) -> Option<&mut Answer> {
        self.answers.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// A value has come.
    pub fn has_read(&mut self, key: &Key) {
        if let Some(count) = self.reading.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.reading.remove(key);
            }
        }
    }

    /// Moves answers that are there to the output, in their order.
    pub fn deliver(&mut self) -> bool {
        let mut has_any = false;
        while self.output.len() <= OUTPUT_MAX
            && let Some(Answer::Ready(bytes)) = self.answers.pop_front_if(|answer| matches!(answer, Answer::Ready(_)))
        {
            self.output.extend(bytes);
            self.first += 1;
            has_any = true;
        }
        has_any
    }
}
