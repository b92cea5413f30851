//! The entries of a map page in memory, in few bytes where they were written in order.
//!
//! What is written in order goes round the parallel units, a write unit to each: a *stripe*. Its entries follow from those of
//! its first row:
//!
//! ```text
//!   logical   0 1 2 3 │ 4 5 6 7 │ 8 9 …                   unit 4, width 2
//!   place     A+0…A+3 │ B+0…B+3 │ A+4…A+7 │ B+4…B+7 │ …   bases A, B
//! ```
//!
//! A run of blocks that follow each other is a stripe of width 1. Where that takes more than the entries do, they are kept.

use super::directory::PageSize;
use super::{Entry, Width};
use openftl_core::BLOCK_BYTES;

/// Columns of a stripe, at most.
const WIDTH_MAX: usize = 128;

/// Entries that are compared at a time.
const LOOKED_AT: usize = 32;

/// Blocks from `first` on, up to the next stripe.
#[derive(Clone, Copy)]
pub(super) struct Stripe {
    first: u16,
    /// Blocks that follow each other on the medium.
    unit: u16,
    width: u16,
    /// Its first base among all.
    base: u16,
}

/// The entries of a page, each as long as on media: the page's size says so, too.
pub(super) enum Contents {
    Plain(Box<[u8]>),
    Stripes { stripes: Box<[Stripe]>, bases: Box<[u8]> },
}

impl Contents {
    pub(super) fn new(page: &[u8; BLOCK_BYTES], size: PageSize) -> Contents {
        let (entries, entry_bytes) = (size.entries() as usize, size.width().bytes());
        let words = &page[..entries * entry_bytes];
        let plain: Vec<Entry> = (0..entries).map(|index| size.entry(page, index)).collect();
        let seen = Seen::of(&plain);
        let (mut stripes, mut bases) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < entries {
            let (unit, width, len) = longest(&plain[first..], &seen, entry_bytes);
            let base = (bases.len() / entry_bytes) as u16;
            stripes.push(Stripe { first: first as u16, unit: unit as u16, width: width as u16, base });
            for column in 0..width {
                bases.extend_from_slice(&words[(first + column * unit) * entry_bytes..][..entry_bytes]);
            }
            first += len;
            if size_of_val(&*stripes) + bases.len() >= words.len() {
                return Contents::Plain(words.into());
            }
        }
        Contents::Stripes { stripes: stripes.into_boxed_slice(), bases: bases.into_boxed_slice() }
    }

    #[inline]
    pub(super) fn get(&self, index: usize, width: Width) -> Entry {
        match self {
            Contents::Plain(words) => width.get(words, index),
            Contents::Stripes { stripes, bases } => {
                let stripe = stripes[stripes.partition_point(|stripe| usize::from(stripe.first) <= index) - 1];
                let [first, unit, columns] = [stripe.first, stripe.unit, stripe.width].map(usize::from);
                let (at, within) = ((index - first) / unit, (index - first) % unit);
                let base = width.get(bases, usize::from(stripe.base) + at % columns);
                base.following((at / columns * unit + within) as u32)
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Contents::Plain(words) => words.len(),
            Contents::Stripes { stripes, bases } => size_of_val(&**stripes) + bases.len(),
        }
    }
}

/// Bits by which places are told apart.
const SEEN_BITS: u64 = 1 << 14;

/// Which places the entries of a page name, by their last bits: of a page that was written anywhere it says at once that a place is not
/// among them.
struct Seen([u64; SEEN_BITS as usize / 64]);

impl Seen {
    fn of(entries: &[Entry]) -> Seen {
        let mut seen = Seen([0; SEEN_BITS as usize / 64]);
        for entry in entries.iter().filter(|entry| entry.is_on_media()) {
            let bit = entry.address().0 % SEEN_BITS;
            seen.0[bit as usize / 64] |= 1 << (bit % 64);
        }
        seen
    }

    /// Whether an entry may name the place of `entry`, which is on media.
    fn may_have(&self, entry: Entry) -> bool {
        let bit = entry.address().0 % SEEN_BITS;
        self.0[bit as usize / 64] >> (bit % 64) & 1 != 0
    }
}

/// Unit, width and blocks of the stripe that says most of the first `entries`, each of so many bytes, in few bytes. `seen` has all of the page.
fn longest(entries: &[Entry], seen: &Seen, entry_bytes: usize) -> (usize, usize, usize) {
    let follows = |pair: &[Entry]| pair[1] == pair[0].following(1);
    let unit = 1 + entries.windows(2).take_while(|pair| follows(pair)).count();
    let mut best = (unit, 1, unit);
    // Where the place behind its first unit is not in the page, no second row begins.
    if !entries[0].is_on_media() || !seen.may_have(entries[0].following(unit as u32)) {
        return best;
    }
    let mut width = 1;
    for _ in 0..2 {
        let Some(next) = next_width(entries, unit, width + 1) else { break };
        width = next;
        let is_as_said = |index: &usize| {
            let (at, within) = (index / unit, index % unit);
            let base = entries[at % width * unit];
            base.is_on_media() && entries[*index] == base.following((at / width * unit + within) as u32)
        };
        // Where no second row goes on, what is left of a unit was taken for one.
        let second = (width + 1) * unit;
        if second < entries.len() && !is_as_said(&second) {
            continue;
        }
        let len = (0..entries.len()).take_while(is_as_said).count();
        let has_rows = len == entries.len() || len >= (width + 2) * unit;
        // Per byte: a stripe takes eight, and each base as many as an entry.
        if has_rows && len * (8 + entry_bytes * best.1) > best.2 * (8 + entry_bytes * width) {
            best = (unit, width, len);
        }
    }
    best
}

/// The least width, `from` on, of which the second row goes on where the first ends.
fn next_width(entries: &[Entry], unit: usize, from: usize) -> Option<usize> {
    let next = entries[0].following(unit as u32);
    let end = WIDTH_MAX.min((entries.len() - 1) / unit) + 1;
    if unit > 1 {
        return (from..end).find(|width| entries[width * unit] == next);
    }
    // As a rule: what was written anywhere. Several are compared at a time, without a branch for each.
    let mut first = from;
    for entries in entries.get(from..end)?.chunks(LOOKED_AT) {
        if entries.iter().fold(false, |found, entry| found | (*entry == next)) {
            return entries.iter().position(|entry| *entry == next).map(|at| first + at);
        }
        first += entries.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::Ppa;
    use proptest::prelude::*;

    fn at(place: u64) -> Entry {
        Entry::media(Ppa(place))
    }

    /// What is kept of these entries says the same, whatever their width. Returns its bytes, where they are narrow.
    #[track_caller]
    fn check(entries: &[Entry]) -> usize {
        let [bytes, _] = [Width::Narrow, Width::Wide].map(|width| {
            let entries = &entries[..entries.len().min(PageSize::full(width).entries() as usize)];
            let size = PageSize::of(entries.len() as u32, width).unwrap();
            let mut page = Box::new([0xFF; BLOCK_BYTES]);
            entries.iter().enumerate().for_each(|(index, entry)| size.set_entry(&mut page, index, *entry));
            let contents = Contents::new(&page, size);
            for (index, entry) in entries.iter().enumerate() {
                assert_eq!(contents.get(index, width), *entry, "{index}");
            }
            contents.bytes()
        });
        bytes
    }

    /// Written in order over so many parallel units, from `first` on in each.
    fn striped(units: u64, unit: u64, first: u64) -> Vec<Entry> {
        let place = |block: u64| block / unit % units * 10_000 + block / unit / units * unit + block % unit;
        (first..first + 1024).map(|block| at(place(block))).collect()
    }

    #[test]
    fn what_was_written_in_order_takes_four_bytes_for_each_parallel_unit() {
        assert_eq!(check(&striped(8, 4, 0)), 8 + 8 * 4);
        assert_eq!(check(&striped(1, 1, 0)), 8 + 4);
        assert_eq!(check(&striped(128, 4, 0)), 8 + 128 * 4);
        // What is left of a unit at the beginning is a stripe by itself.
        assert!(check(&striped(32, 24, 1_000)) <= 3 * 8 + 40 * 4);
    }

    #[test]
    fn what_is_nowhere_or_lost_takes_a_run() {
        let mut entries = striped(8, 4, 0);
        entries[100..200].fill(Entry::UNMAPPED);
        entries[200..300].fill(Entry::LOST);
        assert!(check(&entries) < 300);
        assert_eq!(check(&[Entry::UNMAPPED; 1024]), 12);
    }

    #[test]
    fn what_was_written_anywhere_is_kept_as_it_is() {
        let entries: Vec<Entry> = (0..1024).map(|index| at(index * 7 % 9_973)).collect();
        assert_eq!(check(&entries), 4096);
    }

    #[test]
    fn the_least_width_is_found_wherever_it_is() {
        for unit in [1, 3] {
            for width in [2, 33, 100, WIDTH_MAX, WIDTH_MAX + 1] {
                let mut entries: Vec<Entry> = (0..1024).map(|index| at(100_000 + index * 7)).collect();
                entries[width * unit] = entries[0].following(unit as u32);
                let found = (width <= WIDTH_MAX).then_some(width);
                assert_eq!(next_width(&entries, unit, 2), found, "{unit} {width}");
                assert_eq!(next_width(&entries, unit, width + 1), None);
                // It is beyond the end of a shorter page.
                assert_eq!(next_width(&entries[..width * unit], unit, 2), None);
                assert_eq!(next_width(&entries[..=width * unit], unit, 2), found);
            }
        }
    }

    proptest! {
        #[test]
        fn any_page_says_the_same_in_memory(
            pieces in proptest::collection::vec((0_usize..6, 1_u64..40, 1_u64..9, 0_u64..100_000, 1_usize..400), 1..12),
            size in 0_usize..8,
        ) {
            let mut entries = Vec::new();
            for (kind, units, unit, first, len) in pieces {
                let piece = (0..len as u64).map(|index| match kind {
                    0 => Entry::UNMAPPED,
                    1 => Entry::LOST,
                    2 => at((first + index * index * 31) % 1_000_000),
                    3 => at(first + index),
                    _ => at(first + index / unit % units * 3_000 + index / unit / units * unit + index % unit),
                });
                entries.extend(piece);
            }
            let page = 1024 >> size;
            entries.resize(page, Entry::UNMAPPED);
            check(&entries);
        }
    }
}
