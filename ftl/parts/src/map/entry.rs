//! Where one logical block is, in memory and on media.
//!
//! ```text
//!   in memory, 64 bits                        on media, 4 bytes     on media, 5 bytes
//!   1 … 7FFF_FFFFh   never written, trimmed   FFFF_FFFFh            FF_FFFF_FFFFh
//!   1 … 7FFF_FFFEh   lost                     FFFF_FFFEh            FF_FFFF_FFFEh
//!   1 … frame        in the write buffer      never on media
//!   0 … address      packed and sparse        31 bits               36 bits
//! ```
//!
//! A drive whose addresses and logical blocks have at most 31 bits (8 TiB) has [narrow](Width::Narrow) entries. A larger one has
//! [wide](Width::Wide) ones, and keeps its map on media: in memory it would be tens of gigabytes.

use openftl_core::{BLOCK_BYTES, Frame, Ppa};

/// Bits of an address, at most. So a change of a map page has room for it ([`super::changes`]).
pub const ADDRESS_BITS_MAX: u32 = 36;

/// Bits of the number of a logical block, at most: what the out-of-band bytes have room for ([`crate::flash::oob`]).
pub const BLOCK_BITS_MAX: u32 = 36;

/// Bits of an address, and of the number of a logical block, that a narrow entry has room for.
pub const NARROW_BITS: u32 = 31;

/// Where a logical block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere: it reads as zeroes.
    Unmapped,
    /// It was written, and a repair found no version of it: it reads as an error until it is written or trimmed.
    Lost,
    /// On media.
    Media(Ppa),
    /// In the write buffer.
    Buffer(Frame),
}

/// A [`Place`] in 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(u64);

/// Set of all that is not on media.
const NOT_ON_MEDIA: u64 = 1 << 63;

/// The bits that say what it is, where it is not on media.
const WHAT: u64 = (1 << NARROW_BITS) - 1;

impl Entry {
    /// Nowhere.
    pub const UNMAPPED: Entry = Entry(NOT_ON_MEDIA | WHAT);

    /// Lost.
    pub const LOST: Entry = Entry(NOT_ON_MEDIA | (WHAT - 1));

    /// On media; the address has at most [`ADDRESS_BITS_MAX`] bits.
    #[inline]
    #[must_use]
    pub fn media(ppa: Ppa) -> Entry {
        debug_assert!(ppa.0 >> ADDRESS_BITS_MAX == 0, "the plan admits only devices with shorter addresses");
        Entry(ppa.0)
    }

    /// In the write buffer.
    #[inline]
    #[must_use]
    pub fn buffer(frame: Frame) -> Entry {
        Entry(NOT_ON_MEDIA | u64::from(frame.0))
    }

    /// Whether it is on media.
    #[inline]
    #[must_use]
    pub fn is_on_media(self) -> bool {
        self.0 & NOT_ON_MEDIA == 0
    }

    /// The address of one that is on media.
    #[inline]
    #[must_use]
    pub fn address(self) -> Ppa {
        debug_assert!(self.is_on_media(), "only what is on media has an address");
        Ppa(self.0)
    }

    /// Spelled out.
    #[inline]
    #[must_use]
    pub fn place(self) -> Place {
        if self.is_on_media() {
            Place::Media(Ppa(self.0))
        } else if self == Entry::UNMAPPED {
            Place::Unmapped
        } else if self == Entry::LOST {
            Place::Lost
        } else {
            Place::Buffer(Frame((self.0 & WHAT) as u32))
        }
    }

    /// The entry so many blocks behind it in its run: what is nowhere or lost is so in all of a run.
    #[inline]
    #[must_use]
    pub fn following(self, blocks: u32) -> Entry {
        if self.is_on_media() { Entry(self.0 + u64::from(blocks)) } else { self }
    }

    /// In 32 bits, and the bits of an address that these have no room for.
    #[inline]
    #[must_use]
    pub fn split(self) -> (u32, u16) {
        let low = (self.0 & WHAT) as u32 | (self.0 >> (63 - NARROW_BITS)) as u32 & !(WHAT as u32);
        (low, (self.0 >> NARROW_BITS) as u16 & ((1 << (ADDRESS_BITS_MAX - NARROW_BITS)) - 1))
    }

    /// What was [split](Entry::split).
    #[inline]
    #[must_use]
    pub fn join(low: u32, upper: u16) -> Entry {
        Entry(Entry::from_narrow(low).0 | u64::from(upper) << NARROW_BITS)
    }

    /// In 32 bits. An address has at most [`NARROW_BITS`] bits.
    #[inline]
    #[must_use]
    pub fn to_narrow(self) -> u32 {
        debug_assert!(!self.is_on_media() || self.0 >> NARROW_BITS == 0, "a large drive has wide entries");
        self.split().0
    }

    /// From 32 bits.
    #[inline]
    #[must_use]
    pub fn from_narrow(word: u32) -> Entry {
        Entry(u64::from(word) & WHAT | u64::from(word >> NARROW_BITS) << 63)
    }
}

/// An entry as something has it in fewer bytes.
pub trait Word: Copy + PartialEq {
    /// It as an entry.
    fn entry(self) -> Entry;
    /// The word for an entry.
    fn of(entry: Entry) -> Self;
}

impl Word for u32 {
    #[inline]
    fn entry(self) -> Entry {
        Entry::from_narrow(self)
    }

    #[inline]
    fn of(entry: Entry) -> u32 {
        entry.to_narrow()
    }
}

/// On media, narrow.
impl Word for [u8; 4] {
    #[inline]
    fn entry(self) -> Entry {
        Entry::from_narrow(u32::from_le_bytes(self))
    }

    #[inline]
    fn of(entry: Entry) -> [u8; 4] {
        entry.to_narrow().to_le_bytes()
    }
}

/// On media, wide.
impl Word for [u8; 5] {
    #[inline]
    fn entry(self) -> Entry {
        let [a, b, c, d, e] = self;
        let word = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        // The uppermost bit says that it is not on media, and then so many others are set, too.
        if e & 0x80 == 0 { Entry(word) } else { Entry(NOT_ON_MEDIA | word & WHAT) }
    }

    #[inline]
    fn of(entry: Entry) -> [u8; 5] {
        let word = if entry.is_on_media() { entry.0 } else { entry.0 | !WHAT };
        let [a, b, c, d, e, ..] = word.to_le_bytes();
        [a, b, c, d, e]
    }
}

/// How long the entries of a map are on media.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Width {
    /// Four bytes.
    #[default]
    Narrow,
    /// Five.
    Wide,
}

impl Width {
    /// Of a drive of so many logical blocks on a device whose addresses have so many bits.
    #[must_use]
    pub fn needed(capacity_blocks: u64, address_bits: u32) -> Width {
        let is_narrow = capacity_blocks >> NARROW_BITS == 0 && address_bits <= NARROW_BITS;
        if is_narrow { Width::Narrow } else { Width::Wide }
    }

    /// Whether an entry has room for the address `ppa`.
    #[inline]
    #[must_use]
    pub fn has_room_for(self, ppa: Ppa) -> bool {
        let bits = match self {
            Width::Narrow => NARROW_BITS,
            Width::Wide => ADDRESS_BITS_MAX,
        };
        ppa.0 >> bits == 0
    }

    /// Bytes of an entry on media.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Width::Narrow => 4,
            Width::Wide => 5,
        }
    }

    /// Pairs of entries, such as the places of a page or a change, in one block of a checkpoint.
    #[must_use]
    pub const fn pairs_per_block(self) -> usize {
        BLOCK_BYTES / (2 * self.bytes())
    }

    /// The entry at `index` of `bytes`.
    #[inline]
    #[must_use]
    pub fn get(self, bytes: &[u8], index: usize) -> Entry {
        match self {
            Width::Narrow => bytes.as_chunks::<4>().0[index].entry(),
            Width::Wide => bytes.as_chunks::<5>().0[index].entry(),
        }
    }

    /// Sets the entry at `index` of `bytes`.
    #[inline]
    pub fn set(self, bytes: &mut [u8], index: usize, entry: Entry) {
        match self {
            Width::Narrow => bytes.as_chunks_mut::<4>().0[index] = Word::of(entry),
            Width::Wide => bytes.as_chunks_mut::<5>().0[index] = Word::of(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_it_was_made_of() {
        assert_eq!(Entry::UNMAPPED.place(), Place::Unmapped);
        for ppa in [0, 1, (1 << 31) - 1, 1 << 31, (1 << ADDRESS_BITS_MAX) - 1] {
            assert_eq!(Entry::media(Ppa(ppa)).place(), Place::Media(Ppa(ppa)));
        }
        assert_eq!(Entry::LOST.place(), Place::Lost);
        for frame in [0, 1, (1 << 31) - 3] {
            assert_eq!(Entry::buffer(Frame(frame)).place(), Place::Buffer(Frame(frame)));
        }
    }

    #[test]
    fn a_word_says_what_its_entry_does() {
        let others = [Entry::UNMAPPED, Entry::LOST, Entry::buffer(Frame(0)), Entry::buffer(Frame(12_345))];
        let places = |bits: u32| [0, 1, 12_345, (1 << bits) - 1].map(|ppa| Entry::media(Ppa(ppa)));
        for entry in others.into_iter().chain(places(NARROW_BITS)) {
            assert_eq!(u32::of(entry).entry(), entry);
            assert_eq!(<[u8; 4]>::of(entry).entry(), entry);
        }
        for entry in others.into_iter().chain(places(ADDRESS_BITS_MAX)) {
            assert_eq!(<[u8; 5]>::of(entry).entry(), entry);
            let (low, upper) = entry.split();
            assert_eq!(Entry::join(low, upper), entry);
        }
        assert_eq!([u32::of(Entry::UNMAPPED), u32::of(Entry::LOST)], [u32::MAX, u32::MAX - 1]);
        assert_eq!(<[u8; 5]>::of(Entry::UNMAPPED), [0xFF; 5]);
        assert_eq!(<[u8; 5]>::of(Entry::LOST), [0xFE, 0xFF, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn the_largest_drive_with_narrow_entries_has_8_tib() {
        let blocks = (8 << 40) / BLOCK_BYTES as u64;
        assert_eq!(Width::needed(blocks - 1, 31), Width::Narrow);
        assert_eq!(Width::needed(blocks, 31), Width::Wide);
        assert_eq!(Width::needed(1, 32), Width::Wide);
    }
}
