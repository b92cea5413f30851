//! A drive file: what it survives, and what it says when it cannot be had.

use openftl_core::{ChunkId, Frame, FrameForm, Frames, Payload, Ppa, Stamp, Time};
use openftl_media::{
    Blocks, ChunkDescriptor, ChunkState, Command, Completion, DeviceError, EmulatedDevice, FileStore, Media, Profile,
    Status, Store, StoreError, Timing,
};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const CHUNKS: u32 = 8;
const UNIT: u32 = 4;

fn profile() -> Profile {
    Profile::builtin("tiny").unwrap()
}

/// Opens a drive that was closed just now. A process that another test starts has its lock too, until it becomes another program.
fn when_free<T>(open: impl Fn() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    for _ in 0..100_000 {
        match open() {
            Err(DeviceError::Store(StoreError::Locked { .. })) => std::thread::yield_now(),
            opened => return opened,
        }
    }
    open()
}

/// A device with a host that waits.
struct Drive {
    device: EmulatedDevice,
    frames: Frames,
    pages: Vec<Frame>,
    now: Time,
}

impl Drive {
    fn create(path: &Path) -> Drive {
        Drive::new(EmulatedDevice::create(path, &profile(), CHUNKS, Timing::Instant, 3).unwrap())
    }

    fn open(path: &Path) -> Drive {
        Drive::new(when_free(|| EmulatedDevice::open(path, Timing::Instant)).unwrap())
    }

    fn new(device: EmulatedDevice) -> Drive {
        let mut frames = Frames::new(64, 0, 16);
        let mut pages = Vec::new();
        assert!(frames.acquire_many(FrameForm::Bytes, 64, &mut pages));
        Drive { device, frames, pages, now: Time::ZERO }
    }

    fn run(&mut self, command: Command<'_>) -> Completion {
        self.device.submit(self.now, &mut self.frames, 0, command).unwrap();
        let mut completions = Vec::new();
        self.now = self.device.next_due().unwrap();
        self.device.poll(self.now, &mut self.frames, &mut completions);
        completions[0]
    }

    fn ppas(&self, chunk: ChunkId, first: u32, blocks: u32) -> Vec<Ppa> {
        let format = self.device.geometry().format();
        (first..first + blocks).map(|block| format.ppa(chunk, block)).collect()
    }

    fn write(&mut self, chunk: ChunkId, first: u32, blocks: u32, version: u64) -> Status {
        let ppas = self.ppas(chunk, first, blocks);
        let list = self.pages[..ppas.len()].to_vec();
        for (frame, ppa) in list.iter().zip(&ppas) {
            Stamp(ppa.0 * 1000 + version).expand(self.frames.bytes_mut(*frame));
            self.frames.oob_mut(*frame).fill(version as u8);
        }
        self.run(Command::Write { blocks: Blocks::Vector(&ppas), frames: &list, fua: false }).status
    }

    fn reset(&mut self, chunk: ChunkId) -> Status {
        let ppas = self.ppas(chunk, 0, 1);
        self.run(Command::Reset { blocks: Blocks::Vector(&ppas) }).status
    }

    fn expect(&mut self, chunk: ChunkId, first: u32, blocks: u32, version: u64) {
        let ppas = self.ppas(chunk, first, blocks);
        let list = self.pages[..ppas.len()].to_vec();
        let completion = self.run(Command::Read { blocks: Blocks::Vector(&ppas), frames: &list });
        assert_eq!(completion.status, Status::Success);
        for (frame, ppa) in list.iter().zip(&ppas) {
            let Payload::Bytes(bytes) = self.frames.payload(*frame) else { panic!("a byte frame") };
            assert_eq!(Stamp::recognise(bytes), Some(Stamp(ppa.0 * 1000 + version)));
            assert!(self.frames.oob(*frame).iter().all(|byte| *byte == version as u8));
        }
    }

    fn descriptor(&mut self, chunk: ChunkId) -> ChunkDescriptor {
        let mut report =
            [ChunkDescriptor { chunk, state: ChunkState::Free, wear_index: 0, blocks: 0, write_pointer: 0 }];
        self.device.chunk_report(self.now, chunk, &mut report).unwrap();
        report[0]
    }
}

#[test]
fn everything_is_there_when_a_drive_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    let chunks: Vec<ChunkId> = profile().geometry(CHUNKS).unwrap().chunk_ids().collect();
    let mut drive = Drive::create(&path);
    assert_eq!(drive.write(chunks[0], 0, 32, 1), Status::Success);
    assert_eq!(drive.reset(chunks[0]), Status::Success);
    assert_eq!(drive.write(chunks[0], 0, 32, 2), Status::Success);
    assert_eq!(drive.write(chunks[9], 0, 16, 3), Status::Success);
    drive.device.take_offline(chunks[4]).unwrap();
    let lost = drive.ppas(chunks[0], 7, 1);
    drive.device.inject_read_failure(lost[0]).unwrap();
    drop(drive);

    let mut drive = Drive::open(&path);
    assert_eq!(drive.device.profile(), &profile());
    let found = drive.descriptor(chunks[0]);
    assert_eq!((found.state, found.write_pointer), (ChunkState::Closed, 32));
    assert_eq!(drive.device.wear().next(), Some((chunks[0], 1)));
    drive.expect(chunks[0], 0, 7, 2);
    drive.expect(chunks[0], 8, 24, 2);
    let frame = [drive.pages[0]];
    let completion = drive.run(Command::Read { blocks: Blocks::Vector(&lost), frames: &frame });
    assert_eq!(completion.status, Status::UnrecoveredRead, "a lost block stays lost");
    assert_eq!(drive.descriptor(chunks[4]).state, ChunkState::Offline);
    let found = drive.descriptor(chunks[9]);
    assert_eq!((found.state, found.write_pointer), (ChunkState::Open, 16));
    assert_eq!(drive.write(chunks[9], 16, 16, 3), Status::Success, "an open chunk goes on where it stopped");
    drive.expect(chunks[9], 0, 32, 3);
    assert_eq!(drive.reset(chunks[0]), Status::Success);
    assert_eq!(drive.write(chunks[0], 0, 32, 4), Status::Success);
    drive.expect(chunks[0], 0, 32, 4);
}

#[test]
fn a_reset_gives_the_space_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    let mut drive = Drive::create(&path);
    let used = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
    let chunks: Vec<ChunkId> = drive.device.geometry().chunk_ids().collect();
    let empty = used(&path);
    for chunk in &chunks {
        drive.write(*chunk, 0, 32, 1);
    }
    let full = used(&path);
    assert!(full >= empty + 32 * 32 * 4096, "{full}");
    for chunk in &chunks {
        drive.reset(*chunk);
    }
    assert!(used(&path) < empty + (full - empty) / 4, "{} bytes of {full} are still used", used(&path));
}

/// The same test runs in two processes: one writes and reports what was acknowledged until it is killed, the other one
/// kills it and looks.
#[test]
fn what_was_acknowledged_survives_the_death_of_the_process() {
    const CHILD: &str = "OPENFTL_FILE_STORE_CHILD";
    let chunks: Vec<ChunkId> = profile().geometry(CHUNKS).unwrap().chunk_ids().collect();
    if let Some(path) = std::env::var_os(CHILD) {
        let mut drive = Drive::create(Path::new(&path));
        for step in 0_u64.. {
            let chunk = chunks[(step as usize / 8) % chunks.len()];
            let first = (step % 8) as u32 * UNIT;
            if first == 0 && step >= 8 * chunks.len() as u64 {
                assert_eq!(drive.reset(chunk), Status::Success);
            }
            assert_eq!(drive.write(chunk, first, UNIT, step), Status::Success);
            println!("acknowledged {step}");
            std::io::stdout().flush().unwrap();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    for kill_after in [3, 50, 700] {
        let path = directory.path().join(format!("{kill_after}.oftl"));
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file_store::what_was_acknowledged_survives_the_death_of_the_process", "--nocapture"])
            .env(CHILD, &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = None;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The first line shares its line with what the test harness prints.
            let line = line.unwrap();
            let Some((_, step)) = line.split_once("acknowledged ") else { continue };
            acknowledged = step.parse::<u64>().ok().max(acknowledged);
            if acknowledged == Some(kill_after) {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let last = acknowledged.expect("the child came that far");
        assert!(last >= kill_after);
        let mut drive = Drive::open(&path);
        let rounds = 8 * chunks.len() as u64;
        for step in (last + 1).saturating_sub(rounds)..=last {
            // The chunk that was about to be reset and written next may be gone.
            if step / 8 == (last + 1).saturating_sub(rounds) / 8 && last + 1 >= rounds {
                continue;
            }
            let chunk = chunks[(step as usize / 8) % chunks.len()];
            let readable = drive.descriptor(chunk);
            let first = (step % 8) as u32 * UNIT;
            assert!(readable.write_pointer >= first + UNIT, "step {step}: {readable:?}");
            if readable.state == ChunkState::Closed || first + UNIT + 8 <= readable.write_pointer {
                drive.expect(chunk, first, UNIT, step);
            }
        }
    }
}

fn broken(change: impl FnOnce(&File)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    drop(Drive::create(&path));
    change(&File::options().read(true).write(true).open(&path).unwrap());
    match when_free(|| EmulatedDevice::open(&path, Timing::Instant)) {
        Ok(_) => panic!("a broken drive file is opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_drive_file_that_is_not_whole_is_refused_with_the_reason() {
    let check =
        |message: String, expected: &str| assert!(message.contains(expected), "{message}\nshould say\n{expected}");
    let length = |file: &File| file.metadata().unwrap().len();
    check(broken(|file| file.set_len(length(file) - 1).unwrap()), "is truncated");
    check(broken(|file| file.set_len(60).unwrap()), "is truncated: 60 bytes of 80");
    check(broken(|file| file.set_len(100).unwrap()), "is truncated: 100 bytes");
    check(broken(|file| file.set_len(0).unwrap()), "is no drive:");
    check(broken(|file| file.write_all_at(b"QFI\xfb", 0).unwrap()), "is no drive:");
    check(
        broken(|file| file.write_all_at(&[4], 8).unwrap()),
        "has format version 4, this program knows versions up to 3",
    );
    check(
        broken(|file| file.write_all_at(&[2], 8).unwrap()),
        "has format version 2, this program knows none before 3: create the drive anew",
    );
    check(broken(|file| file.write_all_at(&[9], 24).unwrap()), "is damaged: the header's checksum is wrong");
    check(broken(|file| file.write_all_at(&[0xFF; 4], 64).unwrap()), "is damaged: the header's checksum is wrong");
    check(broken(|file| file.write_all_at(b"X", 100).unwrap()), "is damaged: the header's checksum is wrong");
    check(
        broken(|file| file.write_all_at(&[4], 65536 + 5 * 16).unwrap()),
        "is damaged: the record of chunk 5 is damaged",
    );
}

#[test]
fn a_drive_file_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    let drive = Drive::create(&path);
    let error = FileStore::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("is locked by another process"), "{error}");
    drop(drive);
    when_free(|| FileStore::open(&path).map_err(DeviceError::Store)).unwrap();
}

#[test]
fn a_drive_of_another_profile_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    drop(Drive::create(&path));
    for (profile, chunks) in [(Profile::builtin("cosmos").unwrap(), CHUNKS), (profile(), CHUNKS + 1)] {
        let store = when_free(|| FileStore::open(&path).map_err(DeviceError::Store)).unwrap();
        let store = Store::File(Box::new(store));
        let error = EmulatedDevice::new(profile, chunks, store, Timing::Instant, 3).err().expect("another device");
        assert!(matches!(error, DeviceError::Store(StoreError::OtherProfile { .. })), "{error}");
        assert!(error.to_string().contains("found tiny with 8 chunks per PU, asked for"), "{error}");
    }
}

#[test]
fn a_file_that_exists_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, "precious").unwrap();
    let error = EmulatedDevice::create(&path, &profile(), CHUNKS, Timing::Instant, 3).err().expect("the file exists");
    assert!(error.to_string().contains("precious: File exists"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_store_that_takes_no_more_fails_the_write_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.oftl");
    let mut drive = Drive::create(&path);
    let chunks: Vec<ChunkId> = drive.device.geometry().chunk_ids().collect();
    assert_eq!(drive.write(chunks[0], 0, 32, 1), Status::Success);
    assert_eq!(drive.write(chunks[1], 0, 16, 1), Status::Success);
    drop(drive);
    // The drive in a file that can be made to refuse every write from some moment on, as a full disk does.
    let sealed = rustix::fs::memfd_create("drive", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    let sealed = File::from(sealed);
    sealed.write_all_at(&std::fs::read(&path).unwrap(), 0).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&sealed));
    let mut drive = Drive::open(Path::new(&path));
    rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::WRITE).unwrap();
    for _ in 0..2 {
        assert_eq!(drive.write(chunks[1], 16, 16, 1), Status::WriteFault);
        assert_eq!(drive.write(chunks[2], 0, 4, 1), Status::WriteFault);
        assert_eq!(drive.reset(chunks[0]), Status::WriteFault);
    }
    let message = drive.device.store_error().expect("what the store said");
    assert!(message.contains("Operation not permitted"), "{message}");
    assert_eq!(drive.descriptor(chunks[1]).write_pointer, 16);
    assert_eq!(drive.descriptor(chunks[2]).state, ChunkState::Free);
    drive.expect(chunks[0], 0, 32, 1);
    drive.expect(chunks[1], 0, 8, 1);
}
