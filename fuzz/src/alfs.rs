//! A file system whose metadata say something else: it mounts, or says why not; what mounts ends every operation; and what is rebuilt is sound.
//!
//! ```text
//! input   [choice] [edit] [edit] …
//! choice  bit 0: the power was cut, with files open that have no name; bit 1: it is mounted read-only; bit 2: it is rebuilt
//! edit    [block, 2 bytes] [at, 2 bytes] [length] [bytes …]
//! ```
//!
//! Each edit overwrites some bytes of one block with a header: records count first, then all others from the last one on. Its checksum is made to
//! agree, unless the edit says that it is to be left wrong.

use openftl_alfs::block::{look, sign};
use openftl_alfs::segments::ANCHORS;
use openftl_alfs::{
    AllocateHow, Attributes, Changes, FileKind, FileSystem, FileTime, Inode, NewFile, Operation, Options, Refusal,
    RenameHow, Reply, SeekFor, Volume, XattrHow,
};
use openftl_core::{BLOCK_BYTES, Clock, VirtualClock};
use openftl_parts::target::SegmentTarget;
use openftl_segments::MemorySegments;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Choice: the volume that was cut off.
const CUT_OFF: u8 = 1 << 0;
/// Choice: only read it.
const READ_ONLY: u8 = 1 << 1;
/// Choice: rebuild it.
const REBUILD: u8 = 1 << 2;
/// In the length of an edit: leave the checksum wrong.
const UNSEALED: u8 = 1 << 6;
/// In the length of an edit: the length itself.
const LENGTH: u8 = 0x3F;

const SEGMENTS: u32 = 64;
const SEGMENT_BLOCKS: u32 = 16;
const FRAMES: usize = 512;
/// Turns that an operation may take before it counts as one that never ends.
const TURNS_MAX: u32 = 20_000;
/// Files that are looked at.
const FILES_MAX: usize = 64;
/// Entries of a folder that are read.
const ENTRIES_MAX: usize = 200;

pub fn run(data: &[u8]) {
    thread_local! {
        static IMAGES: RefCell<[Image; 2]> = RefCell::new([false, true].map(Image::new));
    }
    IMAGES.with_borrow(|images| {
        let Some((&choice, edits)) = data.split_first() else { return };
        let drive = images[usize::from(choice & CUT_OFF)].edited(edits);
        live(drive, choice);
    });
}

/// A volume, and its blocks with headers.
struct Image {
    drive: MemorySegments,
    blocks: Vec<u64>,
}

impl Image {
    fn new(is_cut_off: bool) -> Image {
        let mut host = Host::made();
        host.fill(is_cut_off);
        let drive = if is_cut_off { host.volume.into_target() } else { host.unmounted().expect("nothing is wrong") };
        let anchors = u64::from(ANCHORS * SEGMENT_BLOCKS);
        let mut blocks: Vec<u64> =
            drive.written().filter(|block| drive.block(*block).is_some_and(|bytes| look(bytes).is_ok())).collect();
        blocks.sort_by_key(|block| (*block >= anchors, Reverse(*block)));
        Image { drive, blocks }
    }

    fn edited(&self, mut edits: &[u8]) -> MemorySegments {
        let mut drive = self.drive.fork();
        while let Some((&[block_low, block_high, at_low, at_high, length], rest)) = edits.split_first_chunk() {
            let block = usize::from(u16::from_le_bytes([block_low, block_high])) % self.blocks.len();
            let bytes = drive.block_mut(self.blocks[block]).expect("it is written");
            let at = usize::from(u16::from_le_bytes([at_low, at_high])) % BLOCK_BYTES;
            let count = usize::from(length & LENGTH).min(rest.len()).min(BLOCK_BYTES - at);
            let (new, behind) = rest.split_at(count);
            bytes[at..at + count].copy_from_slice(new);
            if length & UNSEALED == 0 {
                sign(bytes);
            }
            edits = behind;
        }
        drive
    }
}

/// Mounts the volume and uses it.
fn live(drive: MemorySegments, choice: u8) {
    let mut clock = VirtualClock::default();
    let options = Options { is_read_only: choice & READ_ONLY != 0, ..Options::default() };
    if choice & REBUILD != 0 {
        let rebuilt = Volume::rebuild(drive, (0, 0), FileTime::default(), &mut clock, &mut |_, _| ());
        let (volume, _) = match rebuilt {
            Ok(rebuilt) => rebuilt,
            Err((_, error)) => return assert!(!error.to_string().is_empty(), "an error says something"),
        };
        let mut host = Host { volume, clock };
        let report = host.volume.check(&mut host.clock, &mut |_, _| ()).expect("the drive answers");
        assert!(report.is_sound(), "what is rebuilt is sound: {report:#?}");
        return host.use_it(true);
    }
    match Volume::mount(drive, options, &mut clock) {
        Ok(volume) => Host { volume, clock }.use_it(!options.is_read_only),
        Err((_, error)) => assert!(!error.to_string().is_empty(), "an error says something"),
    }
}

struct Host<D> {
    volume: Volume<D>,
    clock: VirtualClock,
}

impl Host<MemorySegments> {
    fn made() -> Host<MemorySegments> {
        let mut clock = VirtualClock::default();
        let drive = MemorySegments::new(SEGMENTS, SEGMENT_BLOCKS, FRAMES);
        let volume = Volume::format(drive, 0xA1F5, (0, 0), FileTime::default(), &mut clock);
        Host { volume: volume.expect("nothing is wrong"), clock }
    }

    /// Files of all shapes: inline and not, with holes below each kind of node, with attributes, names in a node and in blocks.
    fn fill(&mut self, is_cut_off: bool) {
        let folder = self.make(Inode::ROOT, b"folder", FileKind::Directory);
        let below = self.make(folder, b"below", FileKind::Directory);
        let small = self.make(folder, b"small", FileKind::Regular);
        self.write(small, 0, &[1; 100]);
        let large = self.make(below, b"large", FileKind::Regular);
        for offset in [0, 979 * 4096, 4 << 30, 2 << 40] {
            self.write(large, offset, &[2; 9000]);
        }
        for number in 0..30_u8 {
            self.make(below, &[b'a' + number; 200], FileKind::Fifo);
        }
        let (parent, uid, gid) = (Inode::ROOT, 0, 0);
        self.ask(&Operation::Symlink { parent, name: b"link", target: b"folder/small", uid, gid });
        self.ask(&Operation::Link { inode: small, parent, name: b"other" });
        self.ask(&Operation::SetXattr { inode: small, name: b"user.a", value: &[3; 50], how: XattrHow::Set });
        let gone = self.make(Inode::ROOT, b"gone", FileKind::Regular);
        self.write(gone, 0, &[4; 50_000]);
        self.sync();
        if is_cut_off {
            self.volume.hold(gone, 1);
        }
        self.ask(&Operation::Unlink { parent, name: b"gone" });
        self.write(large, 4096, &[5; 4096]);
        self.sync();
    }
}

impl<D: SegmentTarget> Host<D> {
    /// Runs an operation to its end.
    fn run(&mut self, operation: &Operation<'_>) -> Result<Reply, Refusal> {
        let ticket = self.volume.ticket();
        for _ in 0..TURNS_MAX {
            let now = self.clock.now();
            if let Some(result) = self.volume.attempt(now, FileTime::default(), ticket, operation) {
                return result;
            }
            self.turn(operation);
        }
        panic!("{operation:?} does not end: {}", self.volume.describe())
    }

    fn turn(&mut self, operation: &Operation<'_>) {
        let now = self.clock.now();
        if !self.volume.poll(now) {
            let due = self.volume.next_due();
            let due = due.unwrap_or_else(|| panic!("{operation:?} waits for nothing: {}", self.volume.describe()));
            self.clock.wait_until(due);
        }
    }

    /// Runs an operation whose end is of no importance.
    fn ask(&mut self, operation: &Operation<'_>) {
        if let Ok(Reply::Data(data)) = self.run(operation) {
            let mut bytes = 0;
            self.volume.data(&data, &mut |piece| bytes += piece.len());
            assert_eq!(bytes, data.bytes as usize);
            self.volume.give_back(data);
        }
    }

    fn make(&mut self, parent: Inode, name: &[u8], kind: FileKind) -> Inode {
        let file = NewFile { kind, mode: 0o644, uid: 0, gid: 0, device: 0 };
        match self.run(&Operation::Make { parent, name, file }) {
            Ok(Reply::Attributes(attributes)) => attributes.inode,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, inode: Inode, offset: u64, data: &[u8]) {
        self.ask(&Operation::Write { inode, offset, data });
    }

    fn sync(&mut self) {
        self.ask(&Operation::Sync);
    }

    fn unmounted(mut self) -> Result<D, ()> {
        self.volume.unmount(&mut self.clock).map_err(|_| ())
    }

    /// Does everything that a host may do.
    fn use_it(mut self, is_writable: bool) {
        let files = self.walk();
        _ = self.volume.check(&mut self.clock, &mut |_, _| ());
        if !is_writable {
            return;
        }
        for (number, (parent, name, attributes)) in files.iter().enumerate() {
            self.change(number, *parent, name, attributes);
        }
        self.sync();
        for (parent, name, attributes) in files.iter().rev() {
            let (parent, name) = (*parent, &name[..]);
            match attributes.kind {
                FileKind::Directory => self.ask(&Operation::RemoveDirectory { parent, name }),
                _ => self.ask(&Operation::Unlink { parent, name }),
            }
        }
        let file = NewFile { kind: FileKind::Regular, mode: 0o600, uid: 0, gid: 0, device: 0 };
        for number in 0..8 {
            self.ask(&Operation::Make { parent: Inode::ROOT, name: &[b'n', number], file });
        }
        for _ in 0..100 {
            let now = self.clock.now();
            self.volume.poll(now);
        }
        self.sync();
        _ = self.volume.check(&mut self.clock, &mut |_, _| ());
        _ = self.walk();
        _ = self.unmounted();
    }

    /// Names that lead from the root to files, and these; each file once.
    fn walk(&mut self) -> Vec<(Inode, Vec<u8>, Attributes)> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::from([Inode::ROOT]);
        let mut folders = vec![Inode::ROOT];
        while let Some(parent) = folders.pop() {
            let (mut after, mut entries) = (0, 0);
            while entries < ENTRIES_MAX {
                let listing = Operation::ReadDirectory { inode: parent, after, entries: 16, with_attributes: true };
                let Ok(Reply::Entries(names)) = self.run(&listing) else { break };
                let Some(last) = names.last() else { break };
                assert!(last.cookie > after, "cookies go on");
                (after, entries) = (last.cookie, entries + names.len());
                for entry in names {
                    if found.len() == FILES_MAX {
                        return found;
                    }
                    let lookup = Operation::Lookup { parent, name: &entry.name };
                    let Ok(Reply::Attributes(attributes)) = self.run(&lookup) else { continue };
                    if !seen.insert(attributes.inode) {
                        continue;
                    }
                    if attributes.kind == FileKind::Directory {
                        folders.push(attributes.inode);
                    }
                    self.look_at(&attributes);
                    found.push((parent, entry.name, attributes));
                }
            }
        }
        found
    }

    fn look_at(&mut self, attributes: &Attributes) {
        let Attributes { inode, size, .. } = *attributes;
        for offset in [0, 979 * 4096, 4 << 30, size / 2, size.saturating_sub(5000)] {
            self.ask(&Operation::Read { inode, offset, bytes: 10_000 });
        }
        for target in [SeekFor::Data, SeekFor::Hole] {
            self.ask(&Operation::Seek { inode, offset: 0, target });
        }
        self.ask(&Operation::ReadLink { inode });
        self.ask(&Operation::ListXattr { inode });
        self.ask(&Operation::GetXattr { inode, name: b"user.a" });
    }

    fn change(&mut self, number: usize, parent: Inode, name: &[u8], attributes: &Attributes) {
        let Attributes { inode, size, .. } = *attributes;
        self.write(inode, size.saturating_sub(100), &[6; 5000]);
        self.write(inode, 979 * 4096 + 5, &[6; 9000]);
        let punch = Operation::Allocate { inode, offset: 4000, bytes: 1 << 33, how: AllocateHow::PunchHole };
        self.ask(&punch);
        let changes = Changes { size: Some(size / 2), ..Changes::default() };
        self.ask(&Operation::SetAttributes { inode, changes });
        self.ask(&Operation::SetXattr { inode, name: b"user.b", value: b"value", how: XattrHow::Set });
        self.ask(&Operation::RemoveXattr { inode, name: b"user.a" });
        self.ask(&Operation::Link { inode, parent: Inode::ROOT, name: &[b'l', number as u8] });
        let how = [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange][number % 3];
        let to_name = &[b'r', number as u8 / 2][..];
        self.ask(&Operation::Rename { from: parent, from_name: name, to: Inode::ROOT, to_name, how });
        let (from, to) = (Inode::ROOT, parent);
        self.ask(&Operation::Rename { from, from_name: to_name, to, to_name: name, how: RenameHow::Replace });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// So many inputs at random, unless `ALFS_FUZZ_ROUNDS` says how many.
    const ROUNDS: u64 = 400;

    /// Edits of whole words: numbers that are there, their neighbours, and the ends of what a number can be.
    fn edits(dice: &mut impl Rng) -> Vec<u8> {
        let mut input = vec![(dice.next_u32() % 8) as u8];
        for _ in 0..1 + dice.next_u32() % 3 {
            let block = (dice.next_u32() % if dice.next_u32().is_multiple_of(2) { 12 } else { 400 }) as u16;
            // Bytes of a header are seldom worth it: a block that is none is refused at once.
            let area = [512, 4096, 200][dice.next_u32() as usize % 3];
            let at = (32 + dice.next_u32() % (area - 32)) as u16 & !3;
            let word = match dice.next_u32() % 6 {
                0 => 0,
                1 => u32::MAX - dice.next_u32() % 2,
                2 => dice.next_u32() % 70,
                3 => dice.next_u32() % (SEGMENTS * SEGMENT_BLOCKS),
                4 => 1 << (dice.next_u32() % 32),
                _ => dice.next_u32(),
            };
            let bytes = word.to_le_bytes();
            let count = [1, 2, 4][dice.next_u32() as usize % 3];
            input.extend(block.to_le_bytes());
            input.extend(at.to_le_bytes());
            input.push(count as u8);
            input.extend(&bytes[..count]);
        }
        input
    }

    #[test]
    fn words_that_say_something_else_are_found_or_refused() {
        let rounds = std::env::var("ALFS_FUZZ_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number"));
        let seed = std::env::var("ALFS_FUZZ_SEED").map_or(1, |text| text.parse().expect("a number"));
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        for round in 0..rounds {
            let input = edits(&mut dice);
            println!("round {round}: {input:?}");
            run(&input);
        }
    }

    #[test]
    fn volumes_without_edits_are_sound_and_used() {
        for choice in 0..8 {
            run(&[choice]);
        }
    }
}
