//! A whole drive whose metadata says something else: it opens, or says why not; and what opens works.
//!
//! ```text
//! input   [choice] [edit] [edit] …
//! choice  bit 0: the drive was cut off, not closed; bit 1: it is only looked at; bit 2: it is repaired
//! edit    [block, 2 bytes] [at, 2 bytes] [length, and what is edited] [bytes …]
//! ```
//!
//! Each edit overwrites some bytes of one block that is no data: superblocks count first, then checkpoints, then
//! the log, the newest of each first. Its checksums are made to agree, unless the edit says that they are to be left wrong.
//!
//! Of a drive whose map is on media the map pages come before all of these, and there it is another target.

use openftl_blocks::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{
    BLOCK_BYTES, ChunkId, Clock, Frame, FrameForm, Frames, Geometry, Nanos, OOB_BYTES_MIN, Payload, PayloadMut, Ppa,
    Time, VirtualClock,
};
use openftl_media::{
    Blocks, ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Profile, QueueFull,
    Status, Store, Tag, Timing,
};
use openftl_parts::Target;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::seals::Seals;
use openftl_parts::journal::superblock::COUNTS_END;
use openftl_parts::map::Width;
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::{
    Access, BlockTarget, Config, Durability, Handle, IoError, Request, chunks_per_pu, journal::superblock,
};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const CAPACITY_BLOCKS: u64 = 300;
/// Moments that a request may take before it counts as one that never ends.
const STEPS_MAX: u32 = 100_000;

/// Choice: the drive that was cut off.
const CUT_OFF: u8 = 1 << 0;
/// Choice: only look at it.
const INSPECT: u8 = 1 << 1;
/// Choice: repair it.
const REPAIR: u8 = 1 << 2;
/// Choice: of drives whose map is on media, the one with entries of five bytes.
const WIDE: u8 = 1 << 3;
/// In the length of an edit: of the out-of-band bytes.
const OF_OOB: u8 = 1 << 7;
/// In the length of an edit: leave the checksums wrong.
const UNSEALED: u8 = 1 << 6;
/// In the length of an edit: the length itself.
const LENGTH: u8 = 0x1F;

pub fn run(data: &[u8]) {
    thread_local! {
        static IMAGES: RefCell<[Image; 2]> = RefCell::new([false, true].map(|cut_off| Image::new(Drive::Whole, cut_off)));
    }
    IMAGES.with_borrow_mut(|images| run_on(images, data));
}

/// The same of a drive whose map is on media.
pub fn run_paged(data: &[u8]) {
    thread_local! {
        static IMAGES: RefCell<[Image; 4]> = RefCell::new(
            [(Drive::Paged, false), (Drive::Paged, true), (Drive::Wide, false), (Drive::Wide, true)]
                .map(|(kind, cut_off)| Image::new(kind, cut_off)),
        );
    }
    IMAGES.with_borrow_mut(|images| run_on(images, data));
}

/// Where the map of the drive is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drive {
    /// In memory.
    Whole,
    /// On media, in small pages.
    Paged,
    /// The same with entries of five bytes.
    Wide,
}

/// Edits one of these images, of which every second one is cut off.
fn run_on(images: &mut [Image], data: &[u8]) {
    let Some((&choice, edits)) = data.split_first() else { return };
    let of_wide = if choice & WIDE == 0 { 0 } else { images.len() - 2 };
    let image = &mut images[of_wide + usize::from(choice & CUT_OFF)];
    image.edit(edits);
    let access = match choice {
        _ if choice & INSPECT != 0 => Access::Inspect,
        _ if choice & REPAIR != 0 => Access::Repair,
        _ => Access::ReadWrite,
    };
    live(image.drive, image.device(), access);
    image.undo();
}

fn config(drive: Drive) -> Config {
    let page = PageSize::of(8, Width::Narrow).expect("as many as a page may have");
    let memory = MapMemory { budget: MapBudget::BeyondLeast(300), policy: CachePolicy::Clock, page };
    Config {
        map_memory: match drive {
            Drive::Whole => None,
            Drive::Paged => Some(memory),
            Drive::Wide => Some(memory.wide()),
        },
        capacity_blocks: CAPACITY_BLOCKS,
        over_provisioning: Share::percent(20),
        drive_id: 0xD21E,
        payload: FrameForm::Stamp,
        host_frames: 64,
        checkpoint_log_blocks: Some(8),
        ..Config::default()
    }
}

/// Opens the drive and uses it.
fn live(kind: Drive, device: EmulatedDevice, access: Access) {
    let mut clock = VirtualClock::default();
    let mut drive = match BlockFtl::open_with(device, config(kind), access, &mut clock) {
        Ok(drive) => drive,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says something");
            return;
        }
    };
    let capacity = drive.blocks();
    // Reads every block. What it finds is what was edited.
    _ = drive.check(&mut clock, &mut |_, _| ());
    if access == Access::Inspect {
        return;
    }
    for first in [0, capacity / 2, capacity.saturating_sub(8)] {
        let blocks = (capacity - first).min(8);
        _ = write(&mut drive, &mut clock, first, blocks);
    }
    let trim = Request::Trim { first: capacity / 3, blocks: 1, durability: Durability::Volatile };
    _ = finish(&mut drive, &mut clock, trim);
    _ = finish(&mut drive, &mut clock, Request::Flush);
    // What was opened and closed opens again, unless its numbers are about to run out.
    let superblock = drive.superblock();
    let counts = [superblock.sequence << 16, superblock.checkpoint.sequence, superblock.first_lsn, superblock.position];
    if counts.iter().any(|count| *count > COUNTS_END - (1 << 24)) {
        return;
    }
    if let Ok(device) = drive.close(&mut clock) {
        BlockFtl::open(device, config(kind), &mut clock).expect("a drive that was closed opens");
    }
}

fn write<M: Media>(drive: &mut BlockFtl<M>, clock: &mut VirtualClock, first: u64, blocks: u64) -> Result<(), IoError> {
    let mut frames = Vec::new();
    let taken = drive.frames_mut().acquire_many(FrameForm::Stamp, blocks as usize, &mut frames);
    assert!(taken, "an idle drive has frames");
    for frame in &frames {
        drive.frames_mut().zero(*frame);
    }
    let now = clock.now();
    let request = Request::Write { first, frames: &frames, durability: Durability::Volatile, handle: Handle::NONE };
    if let Err(error) = drive.submit(now, 1, request) {
        for frame in frames {
            drive.frames_mut().release(frame);
        }
        return Err(error);
    }
    wait(drive, clock)
}

fn finish<M: Media>(drive: &mut BlockFtl<M>, clock: &mut VirtualClock, request: Request<'_>) -> Result<(), IoError> {
    drive.submit(clock.now(), 1, request)?;
    wait(drive, clock)
}

/// Waits for the one request under way.
fn wait<M: Media>(drive: &mut BlockFtl<M>, clock: &mut VirtualClock) -> Result<(), IoError> {
    let mut done = Vec::new();
    for _ in 0..STEPS_MAX {
        let now = clock.now();
        drive.poll(now, &mut done);
        if let Some(done) = done.pop() {
            return done.result;
        }
        let due = drive.next_due().expect("a drive with a request under way has something due");
        clock.wait_until(due);
    }
    panic!("a request does not end: {}", drive.describe());
}

/// What is on the flash of a drive: a frame for each block that is written.
struct Image {
    frames: Frames,
    /// The blocks of each chunk that is written, from its first on.
    chunks: BTreeMap<ChunkId, Vec<Frame>>,
    /// Blocks that are no data.
    metadata: Vec<(Frame, Ppa)>,
    /// Of log, checkpoint and superblocks.
    seals: Seals,
    /// What edited blocks held before.
    before: Vec<(Frame, Box<[u8; BLOCK_BYTES]>, [u8; OOB_BYTES_MIN])>,
    profile: Profile,
    chunks_per_pu: u32,
    drive: Drive,
}

impl Image {
    /// Of a drive with log and checkpoints in use, closed or cut off.
    fn new(kind: Drive, cut_off: bool) -> Image {
        let profile = Profile::builtin("tiny").expect("a builtin profile");
        let shape = profile.geometry(profile.chunks_per_pu).expect("a builtin profile");
        let chunks_per_pu = chunks_per_pu(&shape, &config(kind), Share::percent(10)).expect("a possible drive");
        let device = EmulatedDevice::new(profile.clone(), chunks_per_pu, Store::Stamps, Timing::Modelled, 1)
            .expect("a possible device");
        let mut clock = VirtualClock::default();
        let mut drive = BlockFtl::format(Recorder::new(device), config(kind), &mut clock).expect("a drive that fits");
        let fill = |drive: &mut BlockFtl<Recorder>, clock: &mut VirtualClock, first, blocks| {
            write(drive, clock, first, blocks).expect("a good drive");
            finish(drive, clock, Request::Flush).expect("a good drive");
        };
        for first in (0..CAPACITY_BLOCKS).step_by(20) {
            fill(&mut drive, &mut clock, first, 20);
        }
        while drive.statistics().checkpoints < 2 {
            fill(&mut drive, &mut clock, 40, 2);
        }
        let trim = Request::Trim { first: 7, blocks: 9, durability: Durability::Durable };
        finish(&mut drive, &mut clock, trim).expect("a good drive");
        fill(&mut drive, &mut clock, 100, 8);
        let recorder = if cut_off { drive.crash() } else { drive.close(&mut clock).expect("a good drive") };
        Image::of(kind, recorder, profile, chunks_per_pu)
    }

    fn of(drive: Drive, recorder: Recorder, profile: Profile, chunks_per_pu: u32) -> Image {
        let geometry = *recorder.device.geometry();
        let Recorder { written: frames, chunks, .. } = recorder;
        let mut seals = Seals::new(&geometry);
        seals.begin(config(drive).drive_id, 0, false);
        let mut metadata: Vec<(Oob, ChunkId, Frame, Ppa)> = Vec::new();
        for (chunk, blocks) in &chunks {
            for (block, frame) in (0..).zip(blocks) {
                let oob = Oob::peek(&frames, *frame).expect("what was written says what it is");
                if !matches!(oob.kind, BlockKind::Data | BlockKind::Padding) {
                    metadata.push((oob, *chunk, *frame, geometry.format().ppa(*chunk, block)));
                }
            }
        }
        // Of two superblocks of the same sequence the one in the higher chunk is taken.
        metadata
            .sort_by_key(|(oob, chunk, ..)| (Reverse((oob.kind as u8, oob.sequence)), oob.address, Reverse(*chunk)));
        let metadata = metadata.into_iter().map(|(_, _, frame, ppa)| (frame, ppa)).collect();
        Image { frames, chunks, metadata, seals, before: Vec::new(), profile, chunks_per_pu, drive }
    }

    /// Carries out the edits of an input.
    fn edit(&mut self, mut edits: &[u8]) {
        while let Some((&[b0, b1, a0, a1, how], rest)) = edits.split_first_chunk() {
            let (block, at) = (usize::from(u16::from_le_bytes([b0, b1])), usize::from(u16::from_le_bytes([a0, a1])));
            let (bytes, rest) = rest.split_at(rest.len().min(usize::from(how & LENGTH)));
            edits = rest;
            let (frame, ppa) = self.metadata[block % self.metadata.len()];
            let oob = *self.frames.oob(frame).first_chunk().expect("sixteen bytes");
            self.before.push((frame, Box::new(*self.frames.bytes(frame)), oob));
            let place =
                if how & OF_OOB == 0 { &mut self.frames.bytes_mut(frame)[..] } else { self.frames.oob_mut(frame) };
            let at = at % place.len();
            for (byte, new) in place[at..].iter_mut().zip(bytes) {
                *byte = *new;
            }
            if how & UNSEALED == 0
                && let Ok(oob) = Oob::peek(&self.frames, frame)
            {
                if oob.kind == BlockKind::Superblock {
                    superblock::seal(self.frames.bytes_mut(frame));
                }
                oob.seal(&mut self.frames, frame);
                self.seals.apply(&mut self.frames, frame, ppa);
            }
        }
    }

    /// Puts back what was edited.
    fn undo(&mut self) {
        while let Some((frame, bytes, oob)) = self.before.pop() {
            *self.frames.bytes_mut(frame) = *bytes;
            self.frames.oob_mut(frame).copy_from_slice(&oob);
        }
    }

    /// A device that holds this.
    fn device(&mut self) -> EmulatedDevice {
        let mut device =
            EmulatedDevice::new(self.profile.clone(), self.chunks_per_pu, Store::Stamps, Timing::Instant, 1)
                .expect("a possible device");
        let Geometry { ws_min, .. } = *device.geometry();
        let format = device.geometry().format();
        let mut completions = Vec::new();
        for (chunk, blocks) in &self.chunks {
            for (first, unit) in (0..).step_by(ws_min as usize).zip(blocks.chunks(ws_min as usize)) {
                let places: Vec<Ppa> = (first..first + ws_min).map(|block| format.ppa(*chunk, block)).collect();
                let command = Command::Write { blocks: Blocks::Vector(&places), frames: unit, fua: false };
                device.submit(Time::ZERO, &mut self.frames, 0, command).expect("nothing else is under way");
                device.poll(Time::ZERO, &mut self.frames, &mut completions);
                assert_eq!(completions.pop().map(|completion| completion.status), Some(Status::Success));
            }
        }
        device
    }
}

/// A device that remembers what was written to it.
struct Recorder {
    device: EmulatedDevice,
    written: Frames,
    chunks: BTreeMap<ChunkId, Vec<Frame>>,
}

impl Recorder {
    fn new(device: EmulatedDevice) -> Recorder {
        let blocks = device.geometry().blocks() as usize;
        Recorder { device, written: Frames::new(blocks, blocks, OOB_BYTES_MIN), chunks: BTreeMap::new() }
    }

    fn write(&mut self, pool: &Frames, places: &[Ppa], frames: &[Frame]) {
        let format = self.device.geometry().format();
        for (ppa, from) in places.iter().zip(frames) {
            let to = self.written.acquire(pool.form(*from)).expect("a frame for each block of the device");
            match (pool.payload(*from), self.written.payload_mut(to)) {
                (Payload::Bytes(from), PayloadMut::Bytes(to)) => *to = *from,
                (Payload::Stamp(from), PayloadMut::Stamp(to)) => *to = from,
                _ => unreachable!("frames of the same form"),
            }
            self.written.oob_mut(to).copy_from_slice(pool.oob(*from));
            let blocks = self.chunks.entry(format.chunk_of(*ppa)).or_default();
            assert_eq!(blocks.len(), format.block_of(*ppa) as usize, "a chunk is written in order");
            blocks.push(to);
        }
    }

    fn reset(&mut self, chunk: ChunkId) {
        for frame in self.chunks.remove(&chunk).unwrap_or_default() {
            self.written.release(frame);
        }
    }
}

impl Media for Recorder {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        let format = self.device.geometry().format();
        match command {
            Command::Write { blocks: Blocks::Vector(places), frames: from, .. } => {
                self.device.submit(now, frames, tag, command)?;
                self.write(frames, places, from);
            }
            Command::Reset { blocks: Blocks::Vector(places) } => {
                self.device.submit(now, frames, tag, command)?;
                for place in places {
                    self.reset(format.chunk_of(*place));
                }
            }
            command => self.device.submit(now, frames, tag, command)?,
        }
        Ok(())
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        self.device.poll(now, frames, completions);
    }

    fn next_due(&self) -> Option<Time> {
        self.device.next_due()
    }

    fn chunk_report(&mut self, now: Time, first: ChunkId, into: &mut [ChunkDescriptor]) -> Result<(), MediaError> {
        self.device.chunk_report(now, first, into)
    }

    fn notifications(&mut self, now: Time, after: u64, into: &mut Vec<Notification>) -> Result<(), MediaError> {
        self.device.notifications(now, after, into)
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.device.set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.device.pu_busy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unedited_drives_open_and_are_sound() {
        let kinds = [Drive::Whole, Drive::Paged, Drive::Wide];
        for (kind, cut_off) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let mut image = Image::new(kind, cut_off);
            let mut kinds = Vec::new();
            for (frame, ppa) in image.metadata.clone() {
                kinds.push(image.seals.take_off(&mut image.frames, frame, ppa).unwrap().kind);
                image.seals.apply(&mut image.frames, frame, ppa);
            }
            for kind in [BlockKind::Superblock, BlockKind::Checkpoint, BlockKind::Log] {
                assert!(kinds.contains(&kind), "there is no {kind:?} to edit");
            }
            assert_eq!(kinds[0], if kind == Drive::Whole { BlockKind::Superblock } else { BlockKind::Map });
            let mut clock = VirtualClock::default();
            let mut drive = BlockFtl::open(image.device(), config(kind), &mut clock).unwrap();
            assert_eq!(drive.recovery_report().clean, !cut_off);
            assert_eq!(drive.recovery_report().replayed > 0, cut_off);
            let report = drive.check(&mut clock, &mut |_, _| ()).unwrap();
            assert!(report.is_sound() && report.blocks_verified > 200, "{report:?}");
        }
    }

    /// Wrong entries in one copy of each page, in the address beside it, with checksums that agree and with others.
    #[test]
    fn map_pages_that_say_something_else_are_found_or_refused() {
        let pages = Image::new(Drive::Paged, false).metadata.len().min(60) as u8;
        let choices = [0, CUT_OFF, INSPECT, REPAIR, CUT_OFF | REPAIR];
        for choice in choices.into_iter().flat_map(|choice| [choice, choice | WIDE]) {
            for page in 0..pages {
                run_paged(&[choice, page, 0, 4, 0, 4, 0, 0, 0, 0]);
                run_paged(&[choice, page, 0, 4, 0, 1 | OF_OOB, page ^ 1]);
                run_paged(&[choice, page, 0, 4, 0, 1 | UNSEALED, 0]);
            }
        }
    }

    #[test]
    fn an_edit_is_seen_by_the_drive_and_undone_after_it() {
        let mut image = Image::new(Drive::Whole, false);
        // The capacity in the newest superblock.
        image.edit(&[0, 0, 40, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        let open =
            |image: &mut Image| BlockFtl::open(image.device(), config(Drive::Whole), &mut VirtualClock::default());
        let error = open(&mut image).err().expect("a drive without blocks").to_string();
        assert!(error.contains("capacity is 0 blocks"), "{error}");
        image.undo();
        open(&mut image).unwrap();
    }
}
