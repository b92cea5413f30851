//! A server of one drive of segments, seen as zones, in a thread of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::{Clock, FrameForm, Time};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{
    Namespace, NamespaceKind, Nqn, Port, SegmentShape, SubsystemConfig, Target as Subsystems, ZonedShape,
};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_segments::RemoteSegments;
use openftl_parts::Config;
use openftl_parts::target::{BlockTarget, Durability, IoError, Request, Target};
use openftl_parts::words::{Access, Handle};
use openftl_server::{Endpoint, Export, NoOperator, Other, Protocol, Server, ServerConfig, Stop, WallClock};
use openftl_zones::{AskedLimits, Face, Limits, ZoneConfig, ZoneFtl};

/// The subsystem that a URI names without saying so.
pub const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:drive";

pub type Drive = ZoneFtl<EmulatedDevice>;

/// Real time, for a drive that is waited for.
pub struct Patient(WallClock);

impl Patient {
    pub fn new() -> Patient {
        Patient(WallClock::new())
    }
}

impl Clock for Patient {
    fn now(&mut self) -> Time {
        self.0.now()
    }

    fn wait_until(&mut self, due: Time) -> Time {
        self.0.wait_until(due)
    }
}

/// A small drive in memory, on flash that takes its time.
pub fn drive(face: Face, limits: Limits, chunks: u32) -> Drive {
    drive_with_windows(face, limits, chunks, 0)
}

/// The same, whose zones can have random write areas of so many blocks.
pub fn drive_with_windows(face: Face, limits: Limits, chunks: u32, window_blocks: u32) -> Drive {
    let profile = Profile::builtin("tiny").unwrap();
    let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, 1).unwrap();
    let config = Config { host_frames: 2048, checkpoint_log_blocks: Some(24), ..Config::default() };
    let zones = ZoneConfig { face, width: 3, limits, zones: None, extension_bytes: 0, window_blocks };
    ZoneFtl::format(device, config, zones, &mut WallClock::new()).unwrap()
}

pub const LIMITS: Limits = Limits { max_open: 8, max_active: 8 };

/// See the module.
pub struct Served {
    pub address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Drive>>,
}

impl Served {
    pub fn new(drive: Drive) -> Served {
        let mut server = Server::new(ServerConfig::default()).unwrap();
        let Endpoint::Tcp(address) = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap() else {
            unreachable!("listened on TCP")
        };
        let mut target = Subsystems::new("1", "OpenFTL", "1");
        let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1")).unwrap();
        let layout = drive.layout();
        let kind = match drive.face() {
            Face::Zones => NamespaceKind::Zoned(ZonedShape::of(layout, drive.board().limits())),
            Face::Segments => NamespaceKind::Segments(SegmentShape { segments: layout.zones, blocks: layout.capacity }),
        };
        target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
        target.add_port(Port { id: 1, address });
        server.set_target(target);
        let stop = Stop::new().unwrap();
        let its_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let exports: &mut [Export<BlockFtl<EmulatedDevice>>] = &mut [];
            let mut others = [Other::Zones(Box::new(drive))];
            let served =
                server.run_with_others(&mut NoOperator, exports, &mut others, &mut WallClock::new(), &its_stop);
            served.unwrap();
            let [Other::Zones(drive)] = others else { unreachable!("it was a drive of zones") };
            *drive
        });
        Served { address, stop, thread: Some(thread) }
    }

    pub fn uri(&self) -> DriveUri {
        format!("nvme-tcp://{}", self.address).parse().unwrap()
    }

    pub fn connect(&self) -> RemoteSegments {
        RemoteSegments::connect(&self.uri()).unwrap()
    }

    /// Stops the server. The drive as it leaves it.
    pub fn end(mut self) -> Drive {
        self.stop.request();
        self.thread.take().expect("ended once").join().expect("the server stops")
    }

    /// Stops the server, and cuts the power of its drive. The drive as it is found again.
    pub fn crash(self) -> Drive {
        let device = self.end().crash();
        let config = Config { host_frames: 2048, checkpoint_log_blocks: Some(24), ..Config::default() };
        ZoneFtl::open_with(device, config, AskedLimits::default(), Access::ReadWrite, &mut WallClock::new()).unwrap()
    }
}

/// A drive, one block of which is eight bytes for us.
pub struct Host<T> {
    pub drive: T,
    clock: Patient,
    next_tag: u64,
}

impl<T: BlockTarget> Host<T> {
    pub fn new(drive: T) -> Host<T> {
        Host { drive, clock: Patient::new(), next_tag: 0 }
    }

    pub fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Begins a write of blocks with these values.
    pub fn submit_write(&mut self, first: u64, values: &[u64], durability: Durability) -> Result<u64, IoError> {
        let (tag, mut frames) = (self.tag(), Vec::new());
        assert!(self.drive.frames_mut().acquire_many(FrameForm::Bytes, values.len(), &mut frames));
        for (frame, value) in frames.iter().zip(values) {
            let bytes = self.drive.frames_mut().bytes_mut(*frame);
            bytes.fill(*value as u8);
            bytes[..8].copy_from_slice(&value.to_le_bytes());
        }
        let request = Request::Write { first, frames: &frames, durability, handle: Handle::NONE };
        let now = self.clock.now();
        let result = self.drive.submit(now, tag, request);
        if result.is_err() {
            frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
        }
        result.map(|()| tag)
    }

    pub fn submit(&mut self, request: Request<'_>) -> Result<u64, IoError> {
        let (tag, now) = (self.tag(), self.clock.now());
        self.drive.submit(now, tag, request).map(|()| tag)
    }

    /// Waits until this request has ended, and all that end before it.
    pub fn end_of(&mut self, tag: u64) -> Result<(), IoError> {
        self.ends_of(&[tag])[0]
    }

    /// Waits until all of these requests have ended.
    pub fn ends_of(&mut self, tags: &[u64]) -> Vec<Result<(), IoError>> {
        use openftl_parts::target::Ended;
        let (mut done, mut ends) = (Vec::<<T as Target>::Done>::new(), HashMap::new());
        loop {
            let now = self.clock.now();
            self.drive.poll(now, &mut done);
            ends.extend(done.drain(..).map(|done| (done.tag(), done.result)));
            if tags.iter().all(|tag| ends.contains_key(tag)) {
                return tags.iter().map(|tag| ends[tag]).collect();
            }
            let due = self.drive.next_due().expect("a request ends");
            self.clock.wait_until(due);
        }
    }

    pub fn write(&mut self, first: u64, values: &[u64], durability: Durability) -> Result<(), IoError> {
        let tag = self.submit_write(first, values, durability)?;
        self.end_of(tag)
    }

    pub fn run(&mut self, request: Request<'_>) -> Result<(), IoError> {
        let tag = self.submit(request)?;
        self.end_of(tag)
    }

    pub fn read(&mut self, first: u64, blocks: usize) -> Result<Vec<u64>, IoError> {
        let mut frames = Vec::new();
        assert!(self.drive.frames_mut().acquire_many(FrameForm::Bytes, blocks, &mut frames));
        frames.iter().for_each(|frame| self.drive.frames_mut().bytes_mut(*frame).fill(0xee));
        let result = self.run(Request::Read { first, frames: &frames });
        let value = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let read = frames.iter().map(|frame| value(self.drive.frames().bytes(*frame))).collect();
        frames.iter().for_each(|frame| self.drive.frames_mut().release(*frame));
        result.map(|()| read)
    }
}
