//! The reference model: what a host did, and so what it may find. It knows nothing of the FTL.
//!
//! Writes and trims are numbered in the order in which they were submitted. Of two writes of the same block the later
//! one counts; a write and a trim that were under way at the same time may have happened in either order. A write may be
//! one of uncorrectable blocks, whose reads are errors, and of that kind.
//!
//! After a power cut the model demands: writes survive as a prefix of that order, each entirely or not at all, and the
//! prefix has everything that was durable. A trim that was durable holds; one that was not may have been forgotten.
//!
//! On a table drive the blocks are those of the log area, and behind them one for each entry of the catalog that ever was, by
//! its number: it holds what was last noted there, or nothing. A change of the catalog survives with all that was acknowledged
//! before it was submitted; writes that were submitted later may come before it.
//!
//! Where the simulator damaged the medium it says so ([`History::damage`]): that version of that block may be an error
//! from then on. Wrong data it may never be, and every other block is as if nothing had happened.

mod changes;

use changes::Changes;
use std::collections::BTreeSet;

/// Names a write or trim. 0 is the state of a new drive.
pub type Change = u32;

/// What a read of one block found: the write whose data it holds, 0 for zeroes, [`UNCORRECTABLE`] for the error that the
/// host asked for; `None` for another error.
pub type Found = Option<Change>;

/// What a block holds that was written as uncorrectable, whichever write that was: one is like the other.
pub const UNCORRECTABLE: Change = Change::MAX;

/// What changes blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// They hold new data, all of them or none.
    Write,
    /// They are errors, all of them or none.
    WriteUncorrectable,
    /// They hold zeroes.
    Trim,
    /// An entry of the catalog is there, and its table if it has one: like a write, but it has no place in the order until it
    /// ends. It waits for its table to be whole, and for frames.
    Put,
    /// An entry is no more. It waits like that, too.
    Delete,
}

impl Kind {
    fn is_write(self) -> bool {
        self != Kind::Trim
    }

    /// Whether it takes effect in the order in which it was submitted.
    fn is_in_order(self) -> bool {
        self.is_write() && !self.is_of_catalog()
    }

    fn is_of_catalog(self) -> bool {
        matches!(self, Kind::Put | Kind::Delete)
    }

    /// Whether nobody can tell from what is found which change it was.
    fn is_silent(self) -> bool {
        matches!(self, Kind::WriteUncorrectable | Kind::Delete)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: Kind,
    first: u64,
    blocks: u64,
    submitted: u64,
    completed: Option<u64>,
    durable: bool,
    /// It ended in an error: it may never have happened, whatever came after it.
    failed: bool,
}

/// A copy of all of them costs no allocation for most.
#[derive(Clone)]
struct Block {
    /// What a read may find now.
    candidates: Changes,
    /// What has touched it since everything was last known to be durable.
    touched: Changes,
}

/// All that a host did, and what follows from it.
#[derive(Clone)]
pub struct History {
    changes: Vec<Entry>,
    blocks: Vec<Block>,
    tick: u64,
    under_way: u32,
    /// Every change below this one is durable.
    durable_below: usize,
    /// What the blocks were found to hold by the last look, which nothing has made durable yet, and the changes before it.
    looked: Option<(Vec<Change>, usize)>,
    /// Versions of blocks that the simulator damaged.
    damaged: BTreeSet<(u64, Change)>,
    /// Blocks of tables that it damaged, with what the table was called when it was begun.
    damaged_tables: BTreeSet<(u32, u32)>,
}

impl History {
    /// Of a new drive of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u64) -> History {
        let new = Entry {
            kind: Kind::Trim,
            first: 0,
            blocks,
            submitted: 0,
            completed: Some(0),
            durable: true,
            failed: false,
        };
        let block = Block { candidates: Changes::one(0), touched: Changes::one(0) };
        History {
            changes: vec![new],
            blocks: vec![block; blocks as usize],
            tick: 0,
            under_way: 0,
            durable_below: 1,
            looked: None,
            damaged: BTreeSet::new(),
            damaged_tables: BTreeSet::new(),
        }
    }

    /// There are as many blocks, at least; new ones hold nothing.
    pub fn grow(&mut self, blocks: u64) {
        if blocks > self.blocks() {
            let block = Block { candidates: Changes::one(0), touched: Changes::one(0) };
            self.blocks.resize(blocks as usize, block);
        }
    }

    /// Blocks of the drive.
    #[must_use]
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
        self.changes.push(Entry { kind, first, blocks, submitted, completed: None, durable: false, failed: false });
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
                let is_other_kind = changes[*other as usize].kind.is_write() != kind.is_write();
                *other >= change || (is_other_kind && concurrent(changes, *other, change))
            });
        }
        self.changes[change as usize].durable |= durable;
        if durable && kind.is_write() {
            // Writes become durable in order, and trims with the writes after them.
            let submitted = self.changes[change as usize].submitted;
            for (index, other) in self.changes.iter_mut().enumerate().skip(self.durable_below) {
                let before = index < change as usize && other.kind.is_in_order();
                other.durable |= before || other.completed.is_some_and(|completed| completed < submitted);
            }
        }
    }

    /// It ended in an error: it may have happened or not.
    pub fn fail(&mut self, change: Change) {
        self.under_way -= 1;
        self.changes[change as usize].failed = true;
    }

    /// It was refused, and has not happened.
    pub fn refuse(&mut self, change: Change) {
        self.fail(change);
        let Entry { first, blocks, .. } = self.changes[change as usize];
        for block in &mut self.blocks[first as usize..(first + blocks) as usize] {
            block.candidates.retain(|other| *other != change);
            block.touched.retain(|other| *other != change);
        }
    }

    /// A flush is submitted; gives what [`History::flushed`] wants to know.
    pub fn begin_flush(&mut self) -> u64 {
        self.tick()
    }

    /// The flush submitted at `tick` was acknowledged. Of what came before a look ([`History::looked_at`]) it makes durable what
    /// was found then: a change that was acknowledged, and lost, does not come back by it.
    pub fn flushed(&mut self, tick: u64) {
        if let Some((versions, looked_below)) = self.looked.take() {
            self.changes[..looked_below].iter_mut().for_each(|change| change.durable = true);
            for (block, version) in self.blocks.iter_mut().zip(versions) {
                block.touched.retain(|change| *change as usize >= looked_below);
                block.touched.push_front(version);
            }
        }
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

    /// A place that holds what `change` wrote to `block` is damaged: a read of it may be an error from now on.
    pub fn damage(&mut self, block: u64, change: Change) {
        self.damaged.insert((block, change));
    }

    /// A place that holds `block` as an uncorrectable one is damaged. It does not say which write that was of.
    pub fn damage_uncorrectable(&mut self, block: u64) {
        let writes: Vec<Change> = self.uncorrectable(block).collect();
        self.damaged.extend(writes.into_iter().map(|change| (block, change)));
    }

    /// A place that holds block `block` of `table` is damaged.
    pub fn damage_table(&mut self, table: u32, block: u32) {
        self.damaged_tables.insert((table, block));
    }

    /// Whether a read of block `block` of `table` may be an error.
    #[must_use]
    pub fn may_be_lost_of_table(&self, table: u32, block: u32) -> bool {
        self.damaged_tables.contains(&(table, block))
    }

    /// The writes of `block` as an uncorrectable one.
    fn uncorrectable(&self, block: u64) -> impl DoubleEndedIterator<Item = Change> {
        let is_one = move |entry: &Entry| {
            entry.kind == Kind::WriteUncorrectable && (entry.first..entry.first + entry.blocks).contains(&block)
        };
        self.changes.iter().enumerate().filter(move |(_, entry)| is_one(entry)).map(|(change, _)| change as Change)
    }

    /// Whether anything was ever damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !self.damaged.is_empty() || !self.damaged_tables.is_empty()
    }

    /// Whether a read of `block` that may find one of `changes` may be an error.
    #[must_use]
    pub fn may_be_lost(&self, block: u64, changes: &[Change]) -> bool {
        changes.iter().any(|change| self.damaged.contains(&(block, *change)))
    }

    /// What a read of these blocks may find that is submitted now.
    #[must_use]
    pub fn readable(&self, first: u64, blocks: u64) -> Vec<Vec<Change>> {
        self.blocks[first as usize..(first + blocks) as usize].iter().map(|block| block.candidates.to_vec()).collect()
    }

    /// What a block holds after `change`: data of that write, zeroes or an error; see [`Found`].
    #[must_use]
    pub fn value(&self, change: Change) -> Change {
        match self.changes[change as usize].kind {
            Kind::Write | Kind::Put => change,
            Kind::WriteUncorrectable => UNCORRECTABLE,
            Kind::Trim | Kind::Delete => 0,
        }
    }

    /// After a power cut the blocks hold `found`. Gives the last write that survived it.
    ///
    /// # Errors
    /// What contradicts the promises, in words.
    pub fn verdict(&self, found: &[Found]) -> Result<Change, String> {
        let changes = &self.changes;
        if let Some(beyond) = (self.blocks.len()..found.len()).find(|index| found[*index] != Some(0)) {
            return Err(format!("block {beyond}: {:?} found, and nothing was ever there", found[beyond]));
        }
        let durable = |change: usize| changes[change].kind.is_in_order() && changes[change].durable;
        let durable = (1..changes.len()).rev().find(|change| durable(*change)).unwrap_or(0) as Change;
        let data = found.iter().flatten().copied().filter(|found| *found != UNCORRECTABLE);
        let newest = data.max().unwrap_or(0).max(durable);
        // The newest write that survived may be one that only lost, uncorrectable or deleted blocks could tell of.
        let lost = self.damaged.iter().filter(|(block, _)| self::found(found, *block as usize).is_none());
        let lost = lost.map(|(_, change)| *change);
        let silent =
            self.blocks.iter().enumerate().flat_map(|(index, block)| {
                let found = self::found(found, index);
                block.touched.iter().copied().filter(move |change| {
                    changes[*change as usize].kind.is_silent() && Some(self.value(*change)) == found
                })
            });
        let silent: BTreeSet<Change> = lost.chain(silent).filter(|change| *change > newest).collect();
        let mut result = self.verdict_up_to(newest, durable, found);
        for survived in silent {
            result = result.or_else(|error| self.verdict_up_to(survived, durable, found).map_err(|_| error));
        }
        result
    }

    /// The verdict if `survived` is the last write that did.
    fn verdict_up_to(&self, survived: Change, durable: Change, found: &[Found]) -> Result<Change, String> {
        let changes = &self.changes;
        for (index, block) in self.blocks.iter().enumerate() {
            let Survivors { written, may_be_zero, may_be_written } = self.survivors(index, survived, found);
            let found = self::found(found, index);
            let good = match found {
                Some(0) if may_be_zero => true,
                Some(_) => found == written.map(|written| self.value(written)) && may_be_written,
                None => may_be_written && written.is_some_and(|written| self.may_be_lost(index as u64, &[written])),
            };
            if !good {
                let found = match found {
                    Some(UNCORRECTABLE) => "uncorrectable".to_owned(),
                    Some(write) => format!("write {write}"),
                    None => "an error".to_owned(),
                };
                let wanted = if may_be_written { written.unwrap_or(0) } else { 0 };
                return Err(format!(
                    "block {index}: {found} found, write {wanted} expected ({}zero allowed); the last durable write is \
                     {durable}, the last that survived {survived}; the block was touched by {:?}",
                    if may_be_zero { "" } else { "no " },
                    block.touched.iter().map(|change| (change, changes[*change as usize])).collect::<Vec<_>>(),
                ));
            }
        }
        Ok(survived)
    }

    /// What block `index` may hold if `survived` is the last write that did. `found` is what all blocks hold: it tells of a
    /// failed write whether it happened, of one of uncorrectable blocks only for this block.
    fn survivors(&self, index: usize, survived: Change, found: &[Found]) -> Survivors {
        let (changes, block) = (&self.changes, &self.blocks[index]);
        let boundary = changes[survived as usize].submitted;
        let is_write = |change: &&Change| changes[**change as usize].kind.is_write();
        let here = self::found(found, index);
        let happened = |change: Change| match changes[change as usize] {
            // Wherever it was in the order: it is there, or it has to be.
            Entry { kind, durable, completed, failed, .. } if kind.is_of_catalog() => {
                let before = durable || completed.is_some_and(|completed| completed < boundary);
                here == Some(self.value(change)) || (before && !failed)
            }
            _ if change > survived => false,
            Entry { failed: false, .. } => true,
            Entry { kind, .. } if kind.is_silent() => here == Some(self.value(change)),
            // Where all of its blocks that nothing covers are damaged, no other tells of it.
            _ => found.contains(&Some(change)) || (here.is_none() && self.may_be_lost(index as u64, &[change])),
        };
        let written = block.touched.iter().filter(is_write).copied();
        let written = written.rev().find(|change| happened(*change));
        let mut may_be_zero = written.is_none();
        let mut may_be_written = true;
        for trim in block.touched.iter().filter(|change| !is_write(change)).copied() {
            let Some(written) = written else { continue };
            let either = concurrent(changes, written, trim);
            may_be_zero |= trim > written || either;
            let Entry { durable, completed, .. } = changes[trim as usize];
            let holds = durable || completed.is_some_and(|completed| completed < boundary);
            may_be_written &= !(holds && trim > written && !either);
        }
        Survivors { written, may_be_zero, may_be_written }
    }

    /// The drive was opened again, and holds `found`: that is what counts from now on, and it is durable.
    pub fn reopened(&mut self, found: &[Found]) {
        self.looked_at(found);
        self.looked = None;
        let now = self.tick();
        for change in &mut self.changes[self.durable_below..] {
            change.completed.get_or_insert(now);
            change.durable = true;
        }
        self.durable_below = self.changes.len();
        for block in &mut self.blocks {
            block.touched.clone_from(&block.candidates);
        }
    }

    /// The drive was opened again, and holds `found`: what is read from now on. Nothing more is durable by that.
    pub fn looked_at(&mut self, found: &[Found]) {
        let survived = self.verdict(found).unwrap_or(self.changes.len() as Change - 1);
        let version = |(index, found_here): (usize, &Found)| match *found_here {
            Some(UNCORRECTABLE) => {
                let written = self.survivors(index, survived, found).written;
                let is_one = |written: &Change| self.value(*written) == UNCORRECTABLE;
                written.filter(is_one).or_else(|| self.uncorrectable(index as u64).next_back()).unwrap_or(0)
            }
            Some(version) => version,
            None => self.survivors(index, survived, found).written.unwrap_or(0),
        };
        let mut versions: Vec<Change> = found.iter().enumerate().map(version).collect();
        versions.resize(self.blocks.len(), 0);
        self.under_way = 0;
        for (block, version) in self.blocks.iter_mut().zip(&versions) {
            block.candidates = Changes::one(*version);
        }
        self.looked = Some((versions, self.changes.len()));
    }
}

/// What block `index` was found to hold; nothing was found beyond the last.
fn found(found: &[Found], index: usize) -> Found {
    found.get(index).copied().unwrap_or(Some(0))
}

/// What one block may hold after a power cut.
struct Survivors {
    /// The last write that it has a version of.
    written: Option<Change>,
    may_be_zero: bool,
    may_be_written: bool,
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

    fn verdict<const N: usize>(history: &History, found: [Change; N]) -> bool {
        history.verdict(&found.map(Some)).is_ok()
    }

    #[test]
    fn half_a_write_is_found_out() {
        let mut history = History::new(4);
        let write = written(&mut history, 0, 3, false);
        assert!(verdict(&history, [write, write, write, 0]));
        assert!(verdict(&history, [0, 0, 0, 0]), "it was never flushed");
        assert!(!verdict(&history, [write, 0, write, 0]));
    }

    #[test]
    fn a_lost_flush_and_a_hole_in_the_order_are_found_out() {
        let mut history = History::new(4);
        let first = written(&mut history, 0, 1, false);
        let flush = history.begin_flush();
        history.flushed(flush);
        let second = written(&mut history, 1, 1, false);
        let third = written(&mut history, 2, 1, false);
        assert!(!verdict(&history, [0, 0, 0, 0]), "the flushed write is missing");
        assert!(!verdict(&history, [first, 0, third, 0]), "the third without the second");
        assert!(verdict(&history, [first, second, 0, 0]));
    }

    #[test]
    fn uncorrectable_blocks_are_a_write_like_others() {
        let mut history = History::new(4);
        let first = written(&mut history, 0, 4, true);
        let marked = history.begin(Kind::WriteUncorrectable, 1, 2);
        history.complete(marked, false);
        assert_eq!(history.readable(1, 1), [vec![marked]]);
        let second = written(&mut history, 3, 1, false);
        let marked = UNCORRECTABLE;
        assert!(verdict(&history, [first, first, first, first]));
        assert!(verdict(&history, [first, marked, marked, first]));
        assert!(verdict(&history, [first, marked, marked, second]));
        assert!(!verdict(&history, [first, marked, first, first]), "half of it");
        assert!(!verdict(&history, [first, first, first, second]), "a hole in the order");
        assert!(!verdict(&history, [first, 0, 0, second]), "zeroes are not what was asked for");
        assert!(!verdict(&history, [marked, marked, marked, first]), "and the first block was never marked");
        history.reopened(&[Some(first), Some(marked), Some(marked), Some(first)]);
        assert!(!verdict(&history, [first, first, first, first]), "what was found once is durable");
        let third = written(&mut history, 1, 1, true);
        assert!(verdict(&history, [first, third, marked, first]));
        assert!(!verdict(&history, [first, marked, marked, first]), "it was written since");
    }

    #[test]
    fn a_trim_counts_once_something_after_it_is_durable() {
        let mut history = History::new(4);
        let first = written(&mut history, 0, 1, true);
        let trim = history.begin(Kind::Trim, 0, 1);
        history.complete(trim, false);
        assert!(verdict(&history, [first, 0, 0, 0]));
        assert!(verdict(&history, [0, 0, 0, 0]));
        let second = written(&mut history, 1, 1, true);
        assert!(!verdict(&history, [first, second, 0, 0]));
        assert!(verdict(&history, [0, second, 0, 0]));
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

    #[test]
    fn a_failed_write_may_be_missing_before_one_that_survived_and_is_all_there_if_it_is_there() {
        let mut history = History::new(3);
        let first = written(&mut history, 0, 3, true);
        let failed = history.begin(Kind::Write, 0, 2);
        history.fail(failed);
        let third = written(&mut history, 2, 1, true);
        assert!(verdict(&history, [first, first, third]));
        assert!(verdict(&history, [failed, failed, third]));
        assert!(!verdict(&history, [failed, first, third]));
    }

    #[test]
    fn a_failed_write_whose_blocks_are_all_damaged_may_be_errors() {
        let mut history = History::new(3);
        let first = written(&mut history, 0, 3, true);
        let failed = history.begin(Kind::Write, 0, 2);
        history.fail(failed);
        let error = [None, None, Some(first)];
        assert!(history.verdict(&error).is_err(), "nothing was damaged");
        history.damage(0, failed);
        assert!(history.verdict(&error).is_err(), "one block of two was");
        history.damage(1, failed);
        assert!(history.verdict(&error).is_ok());
        history.reopened(&error);
        assert_eq!(history.readable(0, 2), [vec![failed], vec![failed]]);
    }

    #[test]
    fn what_was_only_looked_at_may_be_gone_the_next_time() {
        let mut history = History::new(2);
        let first = written(&mut history, 0, 1, true);
        let second = written(&mut history, 1, 1, false);
        history.looked_at(&[Some(first), Some(second)]);
        assert_eq!(history.readable(1, 1), [vec![second]]);
        assert!(verdict(&history, [first, 0]) && verdict(&history, [first, second]));
        assert!(!verdict(&history, [0, second]), "the first was durable before");
        history.reopened(&[Some(first), Some(second)]);
        assert!(!verdict(&history, [first, 0]), "the drive has promised it since");
    }

    /// As of a worn-out drive that found the log in doubt, and writes a checkpoint afterwards.
    #[test]
    fn a_flush_after_a_look_makes_durable_what_was_found_and_nothing_that_was_lost() {
        let mut history = History::new(2);
        let first = written(&mut history, 0, 1, true);
        let lost = written(&mut history, 0, 2, false);
        let cut_off = history.begin(Kind::Write, 0, 2);
        history.looked_at(&[Some(first), Some(0)]);
        let refused = history.begin(Kind::Write, 0, 1);
        history.fail(refused);
        let flush = history.begin_flush();
        history.flushed(flush);
        assert!(verdict(&history, [first, 0]), "the drive never had more to make durable");
        assert!(
            !verdict(&history, [lost, lost]) && !verdict(&history, [cut_off, cut_off]) && !verdict(&history, [0, 0])
        );
    }

    #[test]
    fn a_change_of_the_catalog_may_come_after_a_later_write_and_never_before_one_that_was_acknowledged() {
        let mut history = History::new(3);
        let first = written(&mut history, 0, 1, false);
        let put = history.begin(Kind::Put, 2, 1);
        let second = written(&mut history, 1, 1, true);
        history.complete(put, false);
        assert!(verdict(&history, [first, second, 0]), "it waited");
        assert!(verdict(&history, [first, second, put]));
        let deleted = history.begin(Kind::Delete, 2, 1);
        let third = written(&mut history, 0, 1, true);
        assert!(verdict(&history, [third, second, put]) && verdict(&history, [third, second, 0]));
        history.complete(deleted, false);
        let last = written(&mut history, 1, 1, false);
        assert!(verdict(&history, [third, second, put]), "it was never flushed");
        assert!(!verdict(&history, [third, last, put]), "what came after its end survived, and it did not");
        assert!(verdict(&history, [third, last, 0]));
    }

    #[test]
    fn a_damaged_version_may_be_an_error_and_nothing_else_may() {
        let mut history = History::new(3);
        let first = written(&mut history, 0, 2, true);
        let second = written(&mut history, 0, 1, false);
        assert!(history.verdict(&[None, Some(first), Some(0)]).is_err(), "nothing was damaged");
        history.damage(0, second);
        assert!(history.verdict(&[None, Some(first), Some(0)]).is_ok());
        assert!(
            history.verdict(&[Some(first), Some(first), Some(0)]).is_ok(),
            "the second write may have been forgotten"
        );
        assert!(history.verdict(&[Some(first), None, Some(0)]).is_err(), "this block was not damaged");
        assert!(history.verdict(&[Some(0), Some(first), Some(0)]).is_err(), "zeroes are wrong data");
        history.reopened(&[None, Some(first), Some(0)]);
        assert_eq!(history.readable(0, 1), [vec![second]]);
        let third = written(&mut history, 0, 1, true);
        assert!(history.verdict(&[None, Some(first), Some(0)]).is_err(), "the block was overwritten since");
        assert!(history.verdict(&[Some(third), Some(first), Some(0)]).is_ok());
    }

    #[test]
    fn of_a_write_whose_blocks_are_partly_damaged_the_others_must_all_be_there() {
        let mut history = History::new(3);
        let write = written(&mut history, 0, 3, false);
        history.damage(1, write);
        assert!(history.verdict(&[Some(write), None, Some(write)]).is_ok());
        assert!(history.verdict(&[Some(0), None, Some(0)]).is_err());
        assert!(history.verdict(&[Some(write), None, Some(0)]).is_err());
    }
}
