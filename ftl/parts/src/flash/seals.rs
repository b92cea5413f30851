//! Seals: what ties the out-of-band CRC of a block to its place and to the life of its chunk.
//!
//! A block says which logical block it is and when that was written, and an older version of it says so too. So the CRC32C
//! on media is XORed with a *salt* that is not on media with it:
//!
//! ```text
//!   CRC on media = CRC32C(what the block says, payload) ⊕ address × 9E37_79B1h ⊕ seal
//! ```
//!
//! Each opening of a chunk has a number of its own, never used again on the drive; the chunk's seal is the CRC32C of drive
//! and number (8 bytes each). The FTL seals a block when it hands it to the device, and takes the salt off when the block
//! comes back, in one place each ([`Seals::apply`]); everything in between sees the plain CRC.
//!
//! | kind | seal | told apart from an older block in the same place by |
//! |---|---|---|
//! | data, lost, uncorrectable, table | of the chunk's opening | the seal |
//! | log | of opening 0 | its LSN, which is never given to other contents |
//! | log of a tenant | of opening 0 | the number of its group, which counts on |
//! | checkpoint | of opening 0 | its sequence, which is at least the LSN at which it began |
//! | superblock | none (it is looked for before the drive is known) | its sequence |
//! | padding | no salt: nobody asks which padding it is | |
//!
//! # How the seal of a chunk is known after a crash
//! The checkpoint has the seals of all chunks as they were when it was written. A chunk that was opened since has an *opened*
//! record in the log, ahead of the first record that names a block in it. That decides every case:
//!
//! | the log names a block in the chunk | the chunk was opened since the checkpoint | then |
//! |---|---|---|
//! | yes | yes | the opened record, which is ahead, has the seal |
//! | no, the checkpoint does | no | the checkpoint has it |
//! | neither | | nothing in it counts: if it is open it goes on under a new seal, else it is reset |
//!
//! A chunk is reset only when the log that says where its blocks went is durable, so no row has blocks of two lives.
//! Opening numbers begin behind 2²⁴ × the sequence of the superblock found, and each opening of the drive writes a newer one
//! before anything is opened for data.
//!
//! # Blocks that the device copied
//! They keep the out-of-band bytes that they had elsewhere, salt included. What that salt differs by is *borrowed*: four bytes
//! for each block of flash in memory, and of those logical blocks that are mapped to a copy a record in the log and a word in
//! the checkpoint (behind the chunk table). Only drives that were formatted for device copy have them.
//!
//! # What is found out, and what is not
//! | what is where a block should be | found out by |
//! |---|---|
//! | an erased page (a program was lost) | the kind |
//! | the same logical block as of an earlier life of the chunk (an erase and a program were lost) | the seal |
//! | any block that was written for, or read from, another place | the address |
//! | a block of an earlier drive on the same flash | the seal |
//! | a copy that the device never made, or made elsewhere | the seal, as borrowed |
//! | an older block of log, checkpoint or superblock | its number; the other copy is read |
//! | all of this with a chance of 2⁻³² | nothing |
//! | a program cut off by the power, left whole beyond the write pointer, then written again in the same life and lost | nothing |

#[cfg(feature = "canary")]
use crate::canary::Canary;
use crate::config::Config;
use crate::flash::oob::{BlockKind, OOB_VERSION, Oob};
use crate::journal::log_block::Record;
use openftl_core::checksum::crc32c;
use openftl_core::{AddressFormat, ChunkId, Frame, Frames, Geometry, Ppa};
use std::collections::BTreeSet;

/// Spreads addresses over 32 bits; odd, so that no two of so many bits have the same product.
const PLACE_FACTOR: u32 = 0x9E37_79B1;
/// The same of bits above those.
const UPPER_FACTOR: u32 = 0x85EB_CA6B;

/// Bits of an opening number below the sequence of the superblock that it begins with.
const OPENINGS_BITS: u32 = 24;

/// What of a drive is known, so that its blocks can be verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Nothing: only superblocks are.
    Nothing,
    /// Which drive it is: log and checkpoint are, too.
    Drive,
    /// All of it.
    Chunks,
}

/// The seals of a drive.
pub struct Seals {
    format: AddressFormat,
    blocks_per_chunk: usize,
    known: Known,
    drive: u64,
    /// Of log and checkpoint.
    metadata: u32,
    /// By chunk.
    chunks: Vec<u32>,
    /// By place: what the salt of a block that was copied there differs by; empty on drives that copy nothing.
    borrowed: Vec<u32>,
    /// The number of the last opening.
    opening: u64,
    /// Chunks whose opening is not in the log yet.
    owed: BTreeSet<ChunkId>,
    /// No block has a salt: a bug to be found.
    #[cfg(feature = "canary")]
    is_untied: bool,
}

impl Seals {
    /// Those of a drive of which nothing is known yet.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Seals {
        let format = geometry.format();
        Seals {
            format,
            blocks_per_chunk: geometry.blocks_per_chunk as usize,
            known: Known::Nothing,
            drive: 0,
            metadata: 0,
            chunks: vec![0; format.chunk_ids()],
            borrowed: Vec::new(),
            opening: 0,
            owed: BTreeSet::new(),
            #[cfg(feature = "canary")]
            is_untied: false,
        }
    }

    /// The drive is `drive`, and `superblock` the sequence of its newest superblock. `copies` says whether the device copies
    /// blocks of it. What was known of another is forgotten.
    pub fn begin(&mut self, drive: u64, superblock: u64, copies: bool) {
        (self.known, self.drive) = (Known::Drive, drive);
        self.metadata = self.seal(0);
        self.chunks.fill(0);
        self.borrowed = vec![0; if copies { self.chunks.len() * self.blocks_per_chunk } else { 0 }];
        self.begin_numbers(superblock);
    }

    /// Opening numbers go on behind all that were given away under superblocks up to `superblock`.
    pub fn begin_numbers(&mut self, superblock: u64) {
        self.opening = self.opening.max((superblock + 1) << OPENINGS_BITS);
    }

    /// The seals of all chunks are known from now on.
    pub fn end_loading(&mut self) {
        self.known = Known::Chunks;
    }

    /// Takes over the bug that this drive is to have, if it is one of seals.
    pub fn heed_canary(&mut self, config: &Config) {
        #[cfg(feature = "canary")]
        {
            self.is_untied = config.bugs().has(Canary::UntiedBlocks);
        }
        #[cfg(not(feature = "canary"))]
        {
            _ = config;
        }
    }

    fn seal(&self, opening: u64) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.drive.to_le_bytes());
        bytes[8..].copy_from_slice(&opening.to_le_bytes());
        crc32c(&bytes)
    }

    /// A chunk is opened for data or for a table: blocks that are written to it have a new seal.
    pub fn open(&mut self, chunk: ChunkId) {
        self.opening += 1;
        let seal = self.seal(self.opening);
        self.set(chunk, seal);
        self.owed.insert(chunk);
    }

    /// The seal of a chunk.
    #[inline]
    #[must_use]
    pub fn get(&self, chunk: ChunkId) -> u32 {
        self.chunks[chunk.0 as usize]
    }

    /// A chunk was opened with this seal. Returns false if there is no such chunk.
    pub fn set(&mut self, chunk: ChunkId, seal: u32) -> bool {
        let Some(there) = self.chunks.get_mut(chunk.0 as usize) else { return false };
        *there = seal;
        if !self.borrowed.is_empty() {
            self.borrowed[chunk.0 as usize * self.blocks_per_chunk..][..self.blocks_per_chunk].fill(0);
        }
        true
    }

    /// A tenant's own log says that a chunk was opened with this seal, which this one's need not say. Returns false if there is no such chunk.
    pub fn restore(&mut self, chunk: ChunkId, seal: u32) -> bool {
        let is_there = self.set(chunk, seal);
        if is_there {
            self.owed.insert(chunk);
        }
        is_there
    }

    /// The next chunk whose opening is not in the log.
    #[inline]
    pub fn next_owed(&mut self) -> Option<(ChunkId, u32)> {
        let chunk = self.owed.pop_first()?;
        Some((chunk, self.get(chunk)))
    }

    /// Whether the device copies blocks of this drive.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        !self.borrowed.is_empty()
    }

    fn index(&self, ppa: Ppa) -> Option<usize> {
        let block = self.format.block_of(ppa) as usize;
        let index = self.format.chunk_of(ppa).0 as usize * self.blocks_per_chunk + block;
        (block < self.blocks_per_chunk && index < self.borrowed.len()).then_some(index)
    }

    /// What the salt of the block at `ppa` differs by because the device copied it there; 0 if it was written.
    #[inline]
    #[must_use]
    pub fn borrowed(&self, ppa: Ppa) -> u32 {
        if self.borrowed.is_empty() { 0 } else { self.index(ppa).map_or(0, |index| self.borrowed[index]) }
    }

    /// Sets what [`Seals::borrowed`] says. Returns false if nothing is copied on this drive, or there is no such place.
    pub fn set_borrowed(&mut self, ppa: Ppa, borrowed: u32) -> bool {
        let index = self.index(ppa);
        if let Some(index) = index {
            self.borrowed[index] = borrowed;
        }
        index.is_some()
    }

    /// Takes over what the log says of a seal. Returns false if that cannot be.
    pub fn replay(&mut self, record: Record) -> bool {
        match record {
            Record::Opened { chunk, seal } => self.set(chunk, seal),
            Record::Copied { ppa, borrowed } => self.set_borrowed(ppa, borrowed),
            Record::Mapped { .. }
            | Record::Trimmed { .. }
            | Record::Suspect { .. }
            | Record::MergeBegan { .. }
            | Record::Page { .. } => true,
        }
    }

    /// The device has copied a block of data.
    pub fn copied(&mut self, from: Ppa, to: Ppa) {
        let differs = self.salt_of_data(from) ^ self.own_salt(to);
        let is_set = self.set_borrowed(to, differs);
        assert!(is_set, "only drives that keep what is borrowed have blocks copied");
    }

    /// The salt of what is written to `ppa` as data.
    #[inline]
    fn own_salt(&self, ppa: Ppa) -> u32 {
        place(ppa) ^ self.get(self.format.chunk_of(ppa))
    }

    #[inline]
    fn salt_of_data(&self, ppa: Ppa) -> u32 {
        self.own_salt(ppa) ^ self.borrowed(ppa)
    }

    /// Whether a block of this kind can be verified by what is known so far.
    #[must_use]
    pub fn can_tell(&self, kind: BlockKind) -> bool {
        match kind {
            BlockKind::Padding | BlockKind::Superblock => true,
            BlockKind::Log | BlockKind::TenantLog | BlockKind::Checkpoint => self.known != Known::Nothing,
            BlockKind::Data | BlockKind::Lost | BlockKind::Uncorrectable | BlockKind::Tenant | BlockKind::Map => {
                self.known == Known::Chunks
            }
        }
    }

    /// Puts the salt of `ppa` on the CRC of `frame`, or takes it off. Returns the salt. What is no block of this format stays as it is, as
    /// if its salt were 0.
    #[inline]
    pub fn apply(&self, frames: &mut Frames, frame: Frame, ppa: Ppa) -> u32 {
        #[cfg(feature = "canary")]
        if self.is_untied {
            return 0;
        }
        Oob::add_salt_of(frames, frame, |kind, version| match BlockKind::from_byte(kind) {
            _ if version != OOB_VERSION => 0,
            Some(BlockKind::Data | BlockKind::Tenant | BlockKind::Lost | BlockKind::Uncorrectable | BlockKind::Map) => {
                self.salt_of_data(ppa)
            }
            Some(BlockKind::Log | BlockKind::TenantLog | BlockKind::Checkpoint) => place(ppa) ^ self.metadata,
            Some(BlockKind::Superblock) => place(ppa),
            // Many of one command may be one frame.
            Some(BlockKind::Padding) | None => 0,
        })
    }
}

impl Seals {
    /// What was read from `ppa` into `frame`, if it verifies, or if it is of a kind that cannot be verified yet. The salt is off
    /// then.
    pub fn take_off(&self, frames: &mut Frames, frame: Frame, ppa: Ppa) -> Option<Oob> {
        self.apply(frames, frame, ppa);
        match Oob::peek(frames, frame) {
            Ok(oob) if !self.can_tell(oob.kind) => Some(oob),
            _ => Oob::verify_either(frames, frame).ok(),
        }
    }
}

#[inline]
fn place(ppa: Ppa) -> u32 {
    (ppa.0 as u32).wrapping_mul(PLACE_FACTOR) ^ ((ppa.0 >> 32) as u32).wrapping_mul(UPPER_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::FrameForm;

    struct Bench {
        seals: Seals,
        frames: Frames,
        frame: Frame,
        chunks: Vec<ChunkId>,
        format: AddressFormat,
    }

    fn bench(copies: bool) -> Bench {
        let geometry = Geometry::tiny();
        let mut seals = Seals::new(&geometry);
        seals.begin(0xD21E, 7, copies);
        seals.end_loading();
        let mut frames = Frames::new(1, 0, 16);
        let frame = frames.acquire(FrameForm::Bytes).unwrap();
        Bench { seals, frames, frame, chunks: geometry.chunk_ids().collect(), format: geometry.format() }
    }

    impl Bench {
        fn write(&mut self, kind: BlockKind, ppa: Ppa) {
            Oob { kind, address: 9, sequence: 5 }.seal(&mut self.frames, self.frame);
            self.seals.apply(&mut self.frames, self.frame, ppa);
        }

        fn is_good_at(&mut self, ppa: Ppa) -> bool {
            self.seals.apply(&mut self.frames, self.frame, ppa);
            let is_good = Oob::verify(&self.frames, self.frame).is_ok();
            self.seals.apply(&mut self.frames, self.frame, ppa);
            is_good
        }
    }

    const SEALED: [BlockKind; 7] = [
        BlockKind::Data,
        BlockKind::Lost,
        BlockKind::Uncorrectable,
        BlockKind::Tenant,
        BlockKind::Log,
        BlockKind::Checkpoint,
        BlockKind::Superblock,
    ];

    #[test]
    fn a_block_verifies_in_its_place_and_nowhere_else() {
        let mut bench = bench(false);
        let (one, other) = (bench.chunks[0], bench.chunks[1]);
        bench.seals.open(one);
        bench.seals.open(other);
        for kind in SEALED {
            bench.write(kind, bench.format.ppa(one, 3));
            assert!(bench.is_good_at(bench.format.ppa(one, 3)), "{kind:?}");
            assert!(!bench.is_good_at(bench.format.ppa(one, 4)), "{kind:?}");
            assert!(!bench.is_good_at(bench.format.ppa(other, 3)), "{kind:?}");
        }
    }

    #[test]
    fn data_and_tables_verify_only_in_the_life_of_the_chunk_in_which_they_were_written() {
        let mut bench = bench(false);
        let ppa = bench.format.ppa(bench.chunks[2], 1);
        for kind in [BlockKind::Data, BlockKind::Lost, BlockKind::Uncorrectable, BlockKind::Tenant] {
            bench.seals.open(bench.chunks[2]);
            bench.write(kind, ppa);
            let seal = bench.seals.get(bench.chunks[2]);
            bench.seals.open(bench.chunks[2]);
            assert!(!bench.is_good_at(ppa), "{kind:?}");
            bench.seals.set(bench.chunks[2], seal);
            assert!(bench.is_good_at(ppa), "{kind:?}");
        }
    }

    #[test]
    fn openings_behind_a_newer_superblock_or_of_another_drive_have_other_seals() {
        let mut bench = bench(false);
        let chunk = bench.chunks[0];
        let mut seals: Vec<u32> = [(0xD21E, 7), (0xD21E, 8), (0xD21F, 7)]
            .into_iter()
            .flat_map(|(drive, superblock)| {
                bench.seals = Seals::new(&Geometry::tiny());
                bench.seals.begin(drive, superblock, false);
                [(); 3].map(|()| {
                    bench.seals.open(chunk);
                    bench.seals.get(chunk)
                })
            })
            .collect();
        seals.sort_unstable();
        seals.dedup();
        assert_eq!(seals.len(), 9);
    }

    #[test]
    fn a_copy_verifies_where_it_was_copied_to_also_from_copy_to_copy() {
        let mut bench = bench(true);
        let chunks = bench.chunks.clone();
        chunks[..3].iter().for_each(|chunk| bench.seals.open(*chunk));
        let places = [bench.format.ppa(chunks[0], 3), bench.format.ppa(chunks[1], 0), bench.format.ppa(chunks[2], 8)];
        bench.write(BlockKind::Data, places[0]);
        for (from, to) in [(places[0], places[1]), (places[1], places[2])] {
            assert!(!bench.is_good_at(to), "nothing was copied there");
            bench.seals.copied(from, to);
            assert!(bench.is_good_at(to) && bench.seals.borrowed(to) != 0);
            bench.seals.open(bench.format.chunk_of(from));
            assert!(bench.is_good_at(to), "also when its source has been reset");
        }
        bench.seals.open(chunks[2]);
        assert!(
            !bench.is_good_at(places[2]) && bench.seals.borrowed(places[2]) == 0,
            "what is borrowed ends with the life"
        );
    }

    #[test]
    fn padding_has_no_salt() {
        let mut bench = bench(false);
        bench.write(BlockKind::Padding, bench.format.ppa(bench.chunks[0], 3));
        assert!(Oob::verify(&bench.frames, bench.frame).is_ok());
    }
}
