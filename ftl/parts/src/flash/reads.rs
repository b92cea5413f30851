//! Reads that the device has, or is to have: of whom they are, what of, and into which frames.
//!
//! A part begins a read, adds blocks, and hands it to the device ([`Flash::submit_read`](super::Flash)). When it has ended the
//! part looks at the blocks, and either has some of them read once more or ends it.

use openftl_core::{Frame, Ppa, VECTOR_BLOCKS_MAX};

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// The host, from the map or from a table.
    Host,
    /// Collection: blocks of a victim, or of a unit that could not be copied.
    Collection,
    /// The scrub.
    Scrub,
    /// The map, of its pages.
    Map,
    /// Whoever has chunks beside the blocks.
    Tenant,
}

/// Names a read under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadId(pub u32);

/// A read under way.
pub struct Read {
    /// Who reads.
    pub reader: Reader,
    /// What its reader knows it by.
    pub owner: u64,
    /// Whether some of its blocks are read once more.
    pub is_again: bool,
    blocks: u32,
    /// The epoch in which it began, if it keeps chunks from being reset.
    epoch: Option<u64>,
    places: [Ppa; VECTOR_BLOCKS_MAX],
    frames: [Frame; VECTOR_BLOCKS_MAX],
}

impl Read {
    /// Where its blocks are.
    #[inline]
    pub fn places(&self) -> &[Ppa] {
        &self.places[..self.blocks as usize]
    }

    /// What they are read into.
    #[inline]
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..self.blocks as usize]
    }

    /// Adds a block. Returns whether it is full now.
    #[inline]
    pub fn add(&mut self, ppa: Ppa, frame: Frame) -> bool {
        let at = self.blocks as usize;
        (self.places[at], self.frames[at]) = (ppa, frame);
        self.blocks += 1;
        self.blocks as usize == VECTOR_BLOCKS_MAX
    }

    /// Only the blocks that have a bit in `mask` are left, to be read again.
    pub fn keep(&mut self, mask: u64) {
        let mut kept = 0;
        for at in (0..self.blocks as usize).filter(|at| mask >> at & 1 != 0) {
            (self.places[kept], self.frames[kept]) = (self.places[at], self.frames[at]);
            kept += 1;
        }
        (self.blocks, self.is_again) = (kept as u32, true);
    }
}

/// Counts of reads by epoch, so that a chunk is reset only when no read that may be of it is under way.
///
/// The epoch goes from e to e + 1 when no read that began in e − 1 is left. Whatever is under way when a chunk falls out
/// of the map has ended two epochs later. So a read costs two counts in one place, and nothing in the chunk's entry.
#[derive(Default)]
struct Epochs {
    epoch: u64,
    under_way: [u32; 2],
}

impl Epochs {
    fn begin(&mut self) -> u64 {
        self.under_way[(self.epoch & 1) as usize] += 1;
        self.epoch
    }

    fn end(&mut self, epoch: u64) {
        self.under_way[(epoch & 1) as usize] -= 1;
    }

    fn under_way(&self) -> u32 {
        self.under_way.iter().sum()
    }

    /// Moves on as far as needed towards `epoch` and possible. Returns whether it is reached.
    fn reach(&mut self, epoch: u64) -> bool {
        while self.epoch < epoch && self.under_way[((self.epoch + 1) & 1) as usize] == 0 {
            self.epoch += 1;
        }
        self.epoch >= epoch
    }
}

/// All reads under way.
#[derive(Default)]
pub struct Reads {
    reads: Vec<Read>,
    free: Vec<ReadId>,
    epochs: Epochs,
}

impl Reads {
    /// A read of no blocks yet. What collection reads it resets itself, and no sooner; all others keep chunks that were in use
    /// from being reset until they end.
    #[inline]
    pub fn begin(&mut self, reader: Reader, owner: u64) -> ReadId {
        let epoch = (reader != Reader::Collection).then(|| self.epochs.begin());
        if let Some(id) = self.free.pop() {
            let read = self.get_mut(id);
            (read.reader, read.owner, read.is_again, read.blocks, read.epoch) = (reader, owner, false, 0, epoch);
            return id;
        }
        let (places, frames) = ([Ppa(0); VECTOR_BLOCKS_MAX], [Frame(0); VECTOR_BLOCKS_MAX]);
        self.reads.push(Read { reader, owner, is_again: false, blocks: 0, epoch, places, frames });
        ReadId(self.reads.len() as u32 - 1)
    }

    /// The read `id`.
    #[inline]
    pub fn get(&self, id: ReadId) -> &Read {
        &self.reads[id.0 as usize]
    }

    /// The read `id`, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: ReadId) -> &mut Read {
        &mut self.reads[id.0 as usize]
    }

    /// Nothing of it is needed any more.
    #[inline]
    pub fn end(&mut self, id: ReadId) {
        let read = self.get_mut(id);
        read.blocks = 0;
        if let Some(epoch) = read.epoch.take() {
            self.epochs.end(epoch);
        }
        self.free.push(id);
    }

    /// Those of one reader.
    pub fn of(&self, reader: Reader) -> impl Iterator<Item = ReadId> {
        let of = move |(_, read): &(u32, &Read)| read.reader == reader && read.blocks > 0;
        (0..).zip(&self.reads).filter(of).map(|(index, _)| ReadId(index))
    }

    /// Reads under way that keep chunks from being reset: all but those of collection.
    #[inline]
    pub fn under_way(&self) -> u32 {
        self.epochs.under_way()
    }

    /// The epoch at which every read that is under way now has ended.
    pub fn grace(&self) -> u64 {
        self.epochs.epoch + 2
    }

    /// Whether every read that was under way when [`Reads::grace`] gave `epoch` has ended.
    pub fn have_ended(&mut self, epoch: u64) -> bool {
        self.epochs.reach(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_ends_when_the_reads_before_it_have_and_no_sooner() {
        let mut reads = Reads::default();
        let before = reads.begin(Reader::Host, 0);
        let grace = reads.grace();
        assert!(!reads.have_ended(grace));
        let after = reads.begin(Reader::Scrub, 0);
        assert!(!reads.have_ended(grace));
        reads.end(before);
        assert!(reads.have_ended(grace), "a read that began later need not have ended");
        reads.end(after);
        let grace = reads.grace();
        reads.begin(Reader::Collection, 0);
        assert!(
            reads.have_ended(grace),
            "with no read under way it passes at once, and collection resets what it has read"
        );
    }

    #[test]
    fn what_is_read_again_keeps_its_order_and_its_frames() {
        let mut reads = Reads::default();
        let id = reads.begin(Reader::Host, 7);
        for at in 0..4 {
            assert!(!reads.get_mut(id).add(Ppa(at), Frame(at as u32 + 10)));
        }
        reads.get_mut(id).keep(0b1010);
        let read = reads.get(id);
        assert_eq!((read.places(), read.frames()), (&[Ppa(1), Ppa(3)][..], &[Frame(11), Frame(13)][..]));
        assert!(read.is_again && read.owner == 7);
        assert_eq!(reads.of(Reader::Host).collect::<Vec<_>>(), [id]);
        reads.end(id);
        assert_eq!(reads.of(Reader::Host).count(), 0);
    }
}
