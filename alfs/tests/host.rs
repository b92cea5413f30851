//! A host that waits for each operation: the file system, its drive and its clock.

use openftl_alfs::{
    Attributes, FileKind, FileSystem, FileTime, Inode, MountError, NewFile, Operation, Options, Refusal, Reply, Volume,
};
use openftl_blocks::Ftl;
use openftl_core::{Clock, VirtualClock};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::Config;
use openftl_parts::target::SegmentTarget;
use openftl_segments::{MemorySegments, SegmentFtl};
use openftl_zones::{Face, Limits, ZoneConfig, ZoneFtl};

pub type Drive = SegmentFtl<Box<ZoneFtl<EmulatedDevice>>>;

pub struct Host<D = Drive> {
    pub volume: Option<Volume<D>>,
    pub clock: VirtualClock,
}

/// A drive of segments that are a chunk each, on the flash of `tiny`.
pub fn drive(chunks_per_pu: u32, width: u32, clock: &mut VirtualClock) -> Drive {
    let mut profile = Profile::builtin("tiny").unwrap();
    profile.chip.endurance = 1_000_000;
    let device = EmulatedDevice::new(profile, chunks_per_pu, Store::Ram, Timing::Modelled, 1).unwrap();
    let segments = ZoneConfig {
        face: Face::Segments,
        width,
        limits: Limits { max_open: 8, max_active: 8 },
        zones: None,
        extension_bytes: 0,
        window_blocks: 0,
    };
    let config = Config { host_frames: 1200, ..Config::default() };
    SegmentFtl::format(device, config, segments, clock).unwrap()
}

impl Host {
    pub fn new(chunks_per_pu: u32, width: u32) -> Host {
        let mut clock = VirtualClock::default();
        let drive = drive(chunks_per_pu, width, &mut clock);
        Host::on(drive, clock)
    }
}

impl Host<MemorySegments> {
    /// The same on a drive without flash, which has faults.
    pub fn in_memory(segments: u32, segment_blocks: u32) -> Host<MemorySegments> {
        Host::on(MemorySegments::new(segments, segment_blocks, 1200), VirtualClock::default())
    }
}

impl<D: SegmentTarget> Host<D> {
    pub fn on(drive: D, mut clock: VirtualClock) -> Host<D> {
        let volume = Volume::format(drive, 77, (0, 0), FileTime::default(), &mut clock).unwrap();
        Host { volume: Some(volume), clock }
    }

    pub fn volume(&mut self) -> &mut Volume<D> {
        self.volume.as_mut().unwrap()
    }

    pub fn time_of_day(&self) -> FileTime {
        let nanos = self.clock.0.0;
        FileTime { seconds: (nanos / 1_000_000_000) as i64, nanoseconds: (nanos % 1_000_000_000) as u32 }
    }

    pub fn run(&mut self, operation: &Operation<'_>) -> Result<Reply, Refusal> {
        let ticket = self.volume().ticket();
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 1_000_000, "{operation:?} does not end: {}", self.volume().describe());
            let (now, time_of_day) = (self.clock.now(), self.time_of_day());
            if let Some(result) = self.volume().attempt(now, time_of_day, ticket, operation) {
                return result;
            }
            if !self.volume().poll(now) {
                let due = self.volume().next_due();
                let due =
                    due.unwrap_or_else(|| panic!("{operation:?} waits for nothing: {}", self.volume().describe()));
                self.clock.wait_until(due);
            }
        }
    }

    /// Lets the file system work until nothing is due for a while.
    pub fn rest(&mut self, millis: u64) {
        let until = self.clock.now() + openftl_core::Nanos::from_millis(millis);
        for _ in 0..1_000_000 {
            let now = self.clock.now();
            if self.volume().poll(now) {
                continue;
            }
            match self.volume().next_due().filter(|due| *due < until) {
                Some(due) => _ = self.clock.wait_until(due),
                None => return,
            }
        }
        panic!("it never rests: {}", self.volume().describe());
    }

    pub fn attributes(&mut self, operation: &Operation<'_>) -> Attributes {
        match self.run(operation) {
            Ok(Reply::Attributes(attributes)) => attributes,
            other => panic!("{operation:?}: {other:?}, {}", self.volume().describe()),
        }
    }

    pub fn make(&mut self, parent: Inode, name: &str, kind: FileKind) -> Inode {
        let file = NewFile { kind, mode: 0o644, uid: 1, gid: 2, device: 0 };
        self.attributes(&Operation::Make { parent, name: name.as_bytes(), file }).inode
    }

    pub fn lookup(&mut self, parent: Inode, name: &str) -> Result<Inode, Refusal> {
        self.run(&Operation::Lookup { parent, name: name.as_bytes() }).map(|reply| match reply {
            Reply::Attributes(attributes) => attributes.inode,
            other => panic!("{other:?}"),
        })
    }

    pub fn write(&mut self, inode: Inode, offset: u64, data: &[u8]) {
        for (piece, offset) in data.chunks(1 << 19).zip((offset..).step_by(1 << 19)) {
            assert_eq!(self.run(&Operation::Write { inode, offset, data: piece }), Ok(Reply::Done));
        }
    }

    pub fn read(&mut self, inode: Inode, offset: u64, bytes: usize) -> Vec<u8> {
        let mut found = Vec::new();
        while found.len() < bytes {
            let (offset, wanted) = (offset + found.len() as u64, (bytes - found.len()).min(1 << 20) as u32);
            match self.run(&Operation::Read { inode, offset, bytes: wanted }) {
                Ok(Reply::Data(data)) => {
                    let before = found.len();
                    self.volume().data(&data, &mut |piece| found.extend_from_slice(piece));
                    assert_eq!(found.len() - before, data.bytes as usize);
                    self.volume().give_back(data);
                    if found.len() == before {
                        return found;
                    }
                }
                other => panic!("read of {inode} at {offset}: {other:?}"),
            }
        }
        found
    }

    pub fn sync(&mut self) {
        assert_eq!(self.run(&Operation::Sync), Ok(Reply::Done));
    }

    /// All names in a folder.
    pub fn names(&mut self, inode: Inode) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let operation = Operation::ReadDirectory { inode, after, entries: 7, with_attributes: true };
            match self.run(&operation) {
                Ok(Reply::Entries(entries)) if entries.is_empty() => return names,
                Ok(Reply::Entries(entries)) => {
                    after = entries.last().unwrap().cookie;
                    names.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Everything agrees.
    pub fn check(&mut self) {
        let volume = self.volume.as_mut().unwrap();
        let report = volume.check(&mut self.clock, &mut |_, _| ()).unwrap();
        assert!(report.is_sound(), "{report:#?}");
    }

    /// Unmounts, and mounts again.
    pub fn mount_again(&mut self) {
        self.check();
        let volume = self.volume.take().unwrap();
        let drive = volume.unmount(&mut self.clock).map_err(|(_, error)| error).unwrap();
        self.mount(drive).unwrap();
    }

    /// The file system is gone without a word, and mounted again; the drive goes on.
    pub fn forget_and_mount(&mut self) {
        let drive = self.volume.take().unwrap().into_target();
        self.mount(drive).unwrap();
    }

    pub fn mount(&mut self, drive: D) -> Result<(), MountError> {
        let volume = Volume::mount(drive, Options::default(), &mut self.clock).map_err(|(_, error)| error)?;
        self.volume = Some(volume);
        self.check();
        Ok(())
    }
}
