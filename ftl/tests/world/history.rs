//! The reference model: what a host did, and so what it may find. It knows nothing of the FTL.
//!
//! Writes and trims are numbered in the order in which they were submitted. Of two writes of the same block the later
//! one counts; a write and a trim that were under way at the same time may have happened in either order.
//!
//! After a power cut the model demands: writes survive as a prefix of that order, each entirely or not at all, and the
//! prefix has everything that was durable. A trim that was durable holds; one that was not may have been forgotten.

/// Names a write or trim. 0 is the state of a new drive.
pub type Change = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Write,
    Trim,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: Kind,
    first: u64,
    blocks: u64,
    submitted: u64,
    completed: Option<u64>,
    durable: bool,
}

#[derive(Clone)]
struct Block {
    /// What a read may find now.
    candidates: Vec<Change>,
    /// What has touched it since everything was last known to be durable.
    touched: Vec<Change>,
}

pub struct History {
    changes: Vec<Entry>,
    blocks: Vec<Block>,
    tick: u64,
    under_way: u32,
    /// Every change below this one is durable.
    durable_below: usize,
}

impl History {
    /// Of a new drive of `blocks` blocks.
    pub fn new(blocks: u64) -> History {
        let new = Entry { kind: Kind::Trim, first: 0, blocks, submitted: 0, completed: Some(0), durable: true };
        let block = Block { candidates: vec![0], touched: vec![0] };
        History { changes: vec![new], blocks: vec![block; blocks as usize], tick: 0, under_way: 0, durable_below: 1 }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A write or trim is submitted.
    pub fn begin(&mut self, kind: Kind, first: u64, blocks: u64) -> Change {
        let submitted = self.tick();
        let change = self.changes.len() as Change;
        self.changes.push(Entry { kind, first, blocks, submitted, completed: None, durable: false });
        for block in &mut self.blocks[first as usize..(first + blocks) as usize] {
            block.candidates.push(change);
            block.touched.push(change);
        }
        self.under_way += 1;
        change
    }

    /// It was acknowledged.
    pub fn complete(&mut self, change: Change, durable: bool) {
        let now = self.tick();
        self.under_way -= 1;
        self.changes[change as usize].completed = Some(now);
        let Entry { kind, first, blocks, .. } = self.changes[change as usize];
        for block in &mut self.blocks[first as usize..(first + blocks) as usize] {
            let changes = &self.changes;
            block.candidates.retain(|other| {
                *other >= change || (changes[*other as usize].kind != kind && concurrent(changes, *other, change))
            });
        }
        self.changes[change as usize].durable |= durable;
        if durable && kind == Kind::Write {
            // Writes become durable in order, and trims with the writes after them.
            let submitted = self.changes[change as usize].submitted;
            for (index, other) in self.changes.iter_mut().enumerate().skip(self.durable_below) {
                let before = index < change as usize && other.kind == Kind::Write;
                other.durable |= before || other.completed.is_some_and(|completed| completed < submitted);
            }
        }
    }

    /// It ended in an error: it may have happened or not.
    pub fn fail(&mut self, _change: Change) {
        self.under_way -= 1;
    }

    /// A flush is submitted; gives what [`History::flushed`] wants to know.
    pub fn begin_flush(&mut self) -> u64 {
        self.tick()
    }

    /// The flush submitted at `tick` was acknowledged.
    pub fn flushed(&mut self, tick: u64) {
        let mut all = true;
        for change in &mut self.changes[self.durable_below..] {
            change.durable |= change.completed.is_some_and(|completed| completed < tick);
            all &= change.durable;
        }
        if all && self.under_way == 0 {
            self.durable_below = self.changes.len();
            for block in &mut self.blocks {
                block.touched.clone_from(&block.candidates);
            }
        }
    }

    /// What a read of these blocks may find that is submitted now.
    pub fn readable(&self, first: u64, blocks: u64) -> Vec<Vec<Change>> {
        self.blocks[first as usize..(first + blocks) as usize].iter().map(|block| block.candidates.clone()).collect()
    }

    /// The write whose data `change` left behind; 0 for zeroes.
    pub fn value(&self, change: Change) -> Change {
        if self.changes[change as usize].kind == Kind::Write { change } else { 0 }
    }

    /// After a power cut the blocks hold `found`, by write. Gives what contradicts the promises, in words.
    pub fn verdict(&self, found: &[Change]) -> Result<(), String> {
        let changes = &self.changes;
        let durable = |change: usize| changes[change].kind == Kind::Write && changes[change].durable;
        let durable = (1..changes.len()).rev().find(|change| durable(*change)).unwrap_or(0) as Change;
        let survived = found.iter().copied().max().unwrap_or(0).max(durable);
        let boundary = changes[survived as usize].submitted;
        for (index, (block, found)) in self.blocks.iter().zip(found).enumerate() {
            let is = |kind| move |change: &&Change| changes[**change as usize].kind == kind;
            let written = block.touched.iter().filter(is(Kind::Write)).rfind(|change| **change <= survived).copied();
            let mut may_be_zero = written.is_none();
            let mut may_be_written = true;
            for trim in block.touched.iter().filter(is(Kind::Trim)).copied() {
                let Some(written) = written else { continue };
                let either = concurrent(changes, written, trim);
                may_be_zero |= trim > written || either;
                let Entry { durable, completed, .. } = changes[trim as usize];
                let holds = durable || completed.is_some_and(|completed| completed < boundary);
                may_be_written &= !(holds && trim > written && !either);
            }
            let good = if *found == 0 { may_be_zero } else { Some(*found) == written && may_be_written };
            if !good {
                let wanted = if may_be_written { written.unwrap_or(0) } else { 0 };
                return Err(format!(
                    "block {index}: write {found} found, {wanted} expected ({}zero allowed); the last durable write is \
                     {durable}, the last that survived {survived}; the block was touched by {:?}",
                    if may_be_zero { "" } else { "no " },
                    block.touched.iter().map(|change| (change, changes[*change as usize])).collect::<Vec<_>>(),
                ));
            }
        }
        Ok(())
    }

    /// The drive was opened again with `found`: that is what counts from now on, and it is durable.
    pub fn reopened(&mut self, found: &[Change]) {
        let now = self.tick();
        for change in &mut self.changes[self.durable_below..] {
            change.completed.get_or_insert(now);
            change.durable = true;
        }
        self.under_way = 0;
        self.durable_below = self.changes.len();
        for (block, found) in self.blocks.iter_mut().zip(found) {
            block.candidates.clear();
            block.candidates.push(*found);
            block.touched.clone_from(&block.candidates);
        }
    }
}

/// Whether two changes were under way at the same time.
fn concurrent(changes: &[Entry], one: Change, other: Change) -> bool {
    let (earlier, later) = (changes[one.min(other) as usize], changes[one.max(other) as usize]);
    earlier.completed.is_none_or(|completed| completed > later.submitted)
}

/// The model is no use if it lets everything pass.
#[cfg(test)]
mod tests {
    use super::*;

    fn written(history: &mut History, first: u64, blocks: u64, durable: bool) -> Change {
        let change = history.begin(Kind::Write, first, blocks);
        history.complete(change, durable);
        change
    }

    #[test]
    fn half_a_write_is_found_out() {
        let mut history = History::new(4);
        let write = written(&mut history, 0, 3, false);
        assert!(history.verdict(&[write, write, write, 0]).is_ok());
        assert!(history.verdict(&[0, 0, 0, 0]).is_ok(), "it was never flushed");
        assert!(history.verdict(&[write, 0, write, 0]).is_err());
    }

    #[test]
    fn a_lost_flush_and_a_hole_in_the_order_are_found_out() {
        let mut history = History::new(4);
        let first = written(&mut history, 0, 1, false);
        let flush = history.begin_flush();
        history.flushed(flush);
        let second = written(&mut history, 1, 1, false);
        let third = written(&mut history, 2, 1, false);
        assert!(history.verdict(&[0, 0, 0, 0]).is_err(), "the flushed write is missing");
        assert!(history.verdict(&[first, 0, third, 0]).is_err(), "the third without the second");
        assert!(history.verdict(&[first, second, 0, 0]).is_ok());
    }

    #[test]
    fn a_trim_counts_once_something_after_it_is_durable() {
        let mut history = History::new(4);
        let first = written(&mut history, 0, 1, true);
        let trim = history.begin(Kind::Trim, 0, 1);
        history.complete(trim, false);
        assert!(history.verdict(&[first, 0, 0, 0]).is_ok());
        assert!(history.verdict(&[0, 0, 0, 0]).is_ok());
        let second = written(&mut history, 1, 1, true);
        assert!(history.verdict(&[first, second, 0, 0]).is_err());
        assert!(history.verdict(&[0, second, 0, 0]).is_ok());
    }

    #[test]
    fn of_two_overlapping_writes_the_later_counts_and_trims_go_either_way() {
        let mut history = History::new(1);
        let one = history.begin(Kind::Write, 0, 1);
        let two = history.begin(Kind::Write, 0, 1);
        history.complete(two, false);
        assert_eq!(history.readable(0, 1), [vec![two]]);
        history.complete(one, false);
        let trim = history.begin(Kind::Trim, 0, 1);
        let three = history.begin(Kind::Write, 0, 1);
        history.complete(three, false);
        history.complete(trim, false);
        assert_eq!(history.readable(0, 1), [vec![trim, three]]);
    }
}
