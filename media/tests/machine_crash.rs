//! A drive file with `durability = "machine"`: what a crash of the machine leaves of it, what a commit covers, who waits for it,
//! and what becomes of a drive whose sync fails. The page cache is simulated; the store and the device are the real ones.

use openftl_core::{ChunkId, Frame, FrameForm, Frames, Payload, Ppa, Stamp, Time};
use openftl_media::store::format;
use openftl_media::{
    Blocks, ChunkDescriptor, ChunkState, Command, Completion, Durability, EmulatedDevice, FileStore, Media, PageCache,
    Profile, Status, Store, Timing,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

const CHUNKS: u32 = 3;
const UNIT: u32 = 4;
const BLOCKS: u32 = 32;

/// What a host knows of one chunk: the versions of its blocks, and whether it is closed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Written {
    versions: Vec<u64>,
    resets: u32,
}

/// A device and a host that knows what it did.
struct Host {
    device: EmulatedDevice,
    frames: Frames,
    pages: Vec<Frame>,
    chunks: Vec<ChunkId>,
    now: Time,
    version: u64,
    written: Vec<Written>,
}

impl Host {
    fn create(cache: &PageCache, durability: Durability) -> Host {
        let profile = Profile::builtin("tiny").unwrap();
        let store = FileStore::create_simulated(cache, &profile, CHUNKS, &[], 3).unwrap();
        Host::new(store, durability)
    }

    fn open(cache: &PageCache, durability: Durability) -> Host {
        Host::new(FileStore::open_simulated(cache).unwrap(), durability)
    }

    fn new(store: FileStore, durability: Durability) -> Host {
        let (profile, store) = (store.profile().clone(), Store::File(Box::new(store)));
        let mut device = EmulatedDevice::new(profile, CHUNKS, store, Timing::Instant, 3).unwrap();
        device.set_durability(durability).unwrap();
        let chunks: Vec<ChunkId> = device.geometry().chunk_ids().collect();
        let mut frames = Frames::new(64, 0, 16);
        let mut pages = Vec::new();
        assert!(frames.acquire_many(FrameForm::Bytes, 64, &mut pages));
        let written = vec![Written::default(); chunks.len()];
        Host { device, frames, pages, chunks, now: Time::ZERO, version: 0, written }
    }

    fn submit(&mut self, tag: u64, command: Command<'_>) {
        self.device.submit(self.now, &mut self.frames, tag, command).unwrap();
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        self.now = self.device.next_due().map_or(self.now, |due| due.max(self.now));
        self.device.poll(self.now, &mut self.frames, &mut completions);
        completions
    }

    fn run(&mut self, command: Command<'_>) -> Status {
        self.submit(0, command);
        loop {
            if let Some(completion) = self.poll().first() {
                return completion.status;
            }
            std::thread::yield_now();
        }
    }

    fn ppas(&self, chunk: usize, first: u32, blocks: u32) -> Vec<Ppa> {
        let format = self.device.geometry().format();
        (first..first + blocks).map(|block| format.ppa(self.chunks[chunk], block)).collect()
    }

    /// Writes the next unit of a chunk.
    fn write(&mut self, chunk: usize, fua: bool) -> Status {
        self.version += 1;
        let first = self.written[chunk].versions.len() as u32;
        let ppas = self.ppas(chunk, first, UNIT);
        let list = self.pages[..ppas.len()].to_vec();
        for (frame, ppa) in list.iter().zip(&ppas) {
            Stamp(ppa.0 << 32 | self.version).expand(self.frames.bytes_mut(*frame));
            self.frames.oob_mut(*frame).fill(self.version as u8);
        }
        let status = self.run(Command::Write { blocks: Blocks::Vector(&ppas), frames: &list, fua });
        if status == Status::Success {
            self.written[chunk].versions.extend([self.version; UNIT as usize]);
        }
        status
    }

    fn reset(&mut self, chunk: usize) -> Status {
        let ppas = self.ppas(chunk, 0, 1);
        let status = self.run(Command::Reset { blocks: Blocks::Vector(&ppas) });
        if status == Status::Success {
            self.written[chunk].versions.clear();
            self.written[chunk].resets += 1;
        }
        status
    }

    /// What is on the device. A block with what was never written there is a panic.
    fn found(&mut self) -> Vec<Written> {
        let resets: Vec<u32> = self.device.wear().map(|(_, resets)| resets).collect();
        let mut all = Vec::new();
        for (chunk, resets) in resets.into_iter().enumerate() {
            let unknown = ChunkDescriptor {
                chunk: self.chunks[chunk],
                state: ChunkState::Offline,
                wear_index: 0,
                blocks: 0,
                write_pointer: 0,
            };
            let mut report = [unknown];
            self.device.chunk_report(self.now, self.chunks[chunk], &mut report).unwrap();
            let mut versions = Vec::new();
            for ppa in self.ppas(chunk, 0, report[0].write_pointer) {
                let frame = self.pages[0];
                assert!(self.device.look(ppa, &mut self.frames, frame), "block {ppa:?} is there");
                let Payload::Bytes(bytes) = self.frames.payload(frame) else { panic!("a byte frame") };
                let stamp = Stamp::recognise(bytes).unwrap_or_else(|| panic!("{ppa:?} holds what nobody wrote"));
                assert_eq!(stamp.0 >> 32, ppa.0, "a block of another place");
                let version = stamp.0 & 0xFFFF_FFFF;
                assert!(self.frames.oob(frame).iter().all(|byte| *byte == version as u8), "its own out-of-band bytes");
                versions.push(version);
            }
            all.push(Written { versions, resets });
        }
        all
    }
}

/// A history of units, resets, FUA and flushes on a few chunks, cut off at an operation of the disk. Returns whether the
/// device is after the crash as it was at one moment, no earlier than what was promised.
fn crash_once(seed: u64, durability: Durability) -> Result<(), String> {
    let cache = PageCache::new();
    let mut host = Host::create(&cache, durability);
    let mut chance = SplitMix64::seed_from_u64(seed);
    cache.crash_at(cache.operations() + chance.next_u64() % 1000);
    // The device after each command, and the last of these moments that was promised to survive.
    let mut moments = vec![host.written.clone()];
    let mut promised = 0;
    while !cache.has_crashed() {
        let chunk = (chance.next_u64() % 4) as usize;
        let is_full = host.written[chunk].versions.len() as u32 == BLOCKS;
        let (status, is_promise) = match chance.next_u64() % 16 {
            0 => (host.run(Command::Flush), true),
            1 if !is_full => (host.write(chunk, true), true),
            _ if is_full => (host.reset(chunk), true),
            _ => (host.write(chunk, false), false),
        };
        if status != Status::Success {
            return Err(format!("seed {seed}: {status:?}"));
        }
        moments.push(host.written.clone());
        // What ended in the same moment as the crash was promised to nobody.
        if is_promise && !cache.has_crashed() {
            promised = moments.len() - 1;
        }
    }
    let left = cache.crash(chance.next_u64());
    drop(host);
    let found = std::panic::catch_unwind(|| {
        let mut host = Host::open(&left, durability);
        let found = host.found();
        // And it goes on.
        for chunk in 0..4 {
            host.written = found.clone();
            if found[chunk].versions.len() as u32 == BLOCKS {
                assert_eq!(host.reset(chunk), Status::Success);
            }
            host.version = 1 << 20;
            assert_eq!(host.write(chunk, true), Status::Success);
        }
        drop(host);
        Host::open(&left, durability).found();
        found
    })
    .map_err(|_| format!("seed {seed}: what is found cannot be used"))?;
    match moments[promised..].contains(&found) {
        true => Ok(()),
        false => Err(format!("seed {seed}: {found:?} is no moment after {:?}", moments[promised])),
    }
}

#[test]
fn a_crash_of_the_machine_leaves_the_device_as_it_was_at_one_moment_after_the_last_promise() {
    for seed in 0..400 {
        crash_once(seed, Durability::Machine).unwrap();
    }
}

#[test]
fn without_commits_the_same_crashes_are_found_to_damage_the_drive() {
    std::panic::set_hook(Box::new(|_| {}));
    let damaged = (0..100).filter(|seed| crash_once(*seed, Durability::Process).is_err()).count();
    let _ = std::panic::take_hook();
    assert!(damaged > 50, "{damaged} of 100");
}

#[test]
fn a_process_that_dies_leaves_the_last_commit_and_the_next_one_goes_on_from_there() {
    let mut cache = PageCache::new();
    let mut host = Host::create(&cache, Durability::Machine);
    for _ in 0..5 {
        assert_eq!(host.write(0, false), Status::Success);
        assert_eq!(host.run(Command::Flush), Status::Success);
        let flushed = host.written.clone();
        assert_eq!(host.write(1, false), Status::Success);
        // Before any destructor runs.
        cache = cache.of_next_process();
        let version = host.version;
        host = Host::open(&cache, Durability::Machine);
        assert_eq!(host.found(), flushed);
        (host.written, host.version) = (flushed, version);
    }
}

#[test]
fn a_drive_that_is_closed_keeps_everything_whatever_it_is_opened_for_next() {
    let cache = PageCache::new();
    let mut host = Host::create(&cache, Durability::Machine);
    for durability in [Durability::Process, Durability::Machine, Durability::Process, Durability::Process] {
        assert_eq!(host.write(0, false), Status::Success);
        let (written, version) = (host.written.clone(), host.version);
        drop(host);
        host = Host::open(&cache, durability);
        assert_eq!(host.found(), written);
        (host.written, host.version) = (written, version);
    }
}

#[test]
fn flushes_that_wait_share_a_commit_and_reads_wait_for_none() {
    let cache = PageCache::new();
    let mut host = Host::create(&cache, Durability::Machine);
    for _ in 0..BLOCKS / UNIT {
        host.write(0, false);
    }
    host.device.sync_beside(|| ()).unwrap();
    let before = host.device.commits().unwrap();
    cache.hold_syncs();
    host.submit(100, Command::Flush);
    for tag in 101..132 {
        host.write(1 + tag as usize % 3, false);
        host.submit(tag, Command::Flush);
    }
    let (ppas, list) = (host.ppas(0, 0, UNIT), host.pages[..UNIT as usize].to_vec());
    assert_eq!(host.run(Command::Read { blocks: Blocks::Vector(&ppas), frames: &list }), Status::Success);
    assert_eq!(host.device.commits(), Some(before), "the disk has not answered");
    cache.release_syncs();
    let mut ended = Vec::new();
    while ended.len() < 32 {
        let completions = host.poll();
        assert!(completions.iter().all(|completion| completion.status == Status::Success));
        ended.extend(completions.iter().map(|completion| completion.tag));
        std::thread::yield_now();
    }
    assert_eq!(ended, (100..132).collect::<Vec<u64>>());
    assert_eq!(host.device.commits(), Some(before + 2), "one for the first, one for all that came meanwhile");
    host.submit(200, Command::Flush);
    assert_eq!(host.poll().len(), 1, "there is nothing to commit");
    assert_eq!(host.device.commits(), Some(before + 2));
}

#[test]
fn a_chunk_that_is_written_again_before_its_reset_is_committed_waits_for_that() {
    let cache = PageCache::new();
    let mut host = Host::create(&cache, Durability::Machine);
    for _ in 0..BLOCKS / UNIT {
        host.write(0, false);
    }
    assert_eq!(host.run(Command::Flush), Status::Success);
    let full = host.written.clone();
    host.device.sync_beside(|| ()).unwrap();
    cache.hold_syncs();
    let (ppas, frames) = (host.ppas(0, 0, UNIT), host.pages[..UNIT as usize].to_vec());
    host.submit(1, Command::Reset { blocks: Blocks::Vector(&ppas[..1]) });
    assert_eq!(host.poll(), [], "a reset ends when it is committed");
    for seed in 0..20 {
        assert_eq!(Host::open(&cache.crash(seed), Durability::Machine).found(), full, "what it held is still there");
    }
    cache.release_syncs();
    host.submit(2, Command::Write { blocks: Blocks::Vector(&ppas), frames: &frames, fua: false });
    let statuses: Vec<Status> = host.poll().iter().map(|completion| completion.status).collect();
    assert_eq!(statuses, [Status::Success; 2]);
    assert_eq!(Host::open(&cache.crash(1), Durability::Machine).found()[0].versions, [] as [u64; 0]);
}

#[test]
fn a_sync_that_fails_is_not_tried_again_and_nothing_is_promised_from_then_on() {
    let cache = PageCache::new();
    let mut host = Host::create(&cache, Durability::Machine);
    host.write(0, true);
    let committed = host.written.clone();
    host.write(0, false);
    cache.fail_next_sync();
    assert_eq!(host.run(Command::Flush), Status::WriteFault);
    let message = host.device.store_error().expect("why");
    assert!(message.contains("cannot sync (simulated)") && message.contains("Input/output error"), "{message}");
    let syncs = cache.syncs();
    assert_eq!(host.run(Command::Flush), Status::WriteFault);
    assert_eq!(host.write(1, false), Status::WriteFault);
    assert_eq!(host.write(0, true), Status::WriteFault);
    drop(host);
    assert_eq!(cache.syncs(), syncs, "the disk is not asked again");
    for left in [cache.crash(1), cache.of_next_process()] {
        assert_eq!(Host::open(&left, Durability::Machine).found(), committed);
    }
}

#[test]
fn a_real_file_is_synced_for_flushes_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.oftl");
    let profile = Profile::builtin("tiny").unwrap();
    let store = FileStore::create(&path, &profile, CHUNKS, &[], 3).unwrap();
    let mut host = Host::new(store, Durability::Machine);
    host.device.sync_beside(|| ()).unwrap();
    for round in 0..8 {
        for chunk in 0..4 {
            host.write(chunk, false);
        }
        assert_eq!(host.device.commits(), Some(round));
        assert_eq!(host.run(Command::Flush), Status::Success);
        assert_eq!(host.device.commits(), Some(round + 1));
    }
    let written = host.written.clone();
    drop(host);
    let mut host = Host::new(FileStore::open(&path).unwrap(), Durability::Process);
    assert_eq!(host.found(), written);
    assert_eq!(host.device.commits(), None);
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(length, format::Layout::of(host.device.geometry()).file_bytes);
}
