//! A device that loses a command, under a drive that is served: the watch turns silence into errors and a report.
//!
//! The clock is the test's: it goes fast once a command is lost, so that nobody waits for the patience of a drive.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::client::Client;
use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{ChunkId, Clock, FrameForm, Frames, Geometry, Nanos, Time, VirtualClock};
use openftl_media::{
    ChunkDescriptor, Command, Completion, EmulatedDevice, Media, MediaError, Notification, Profile, QueueFull, Store,
    Tag, Timing,
};
use openftl_nbd::wire::ErrorCode;
use openftl_parts::{Config, OpenError, ReadOnlyReason, chunks_per_pu};
use openftl_server::{Counters, Drives, Endpoint, Export, Operator, Protocol, ServeError, Server, ServerConfig, Stop};

/// How many of the next completions are lost.
type Lost = Arc<AtomicU64>;

/// A device that loses completions.
struct Forgetful {
    device: EmulatedDevice,
    lost: Lost,
}

impl Media for Forgetful {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&mut self, now: Time, frames: &mut Frames, tag: Tag, command: Command<'_>) -> Result<(), QueueFull> {
        self.device.submit(now, frames, tag, command)
    }

    fn poll(&mut self, now: Time, frames: &mut Frames, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.device.poll(now, frames, completions);
        while completions.len() > before && self.lost.load(Ordering::SeqCst) > 0 {
            self.lost.fetch_sub(1, Ordering::SeqCst);
            completions.pop();
        }
    }

    fn next_due(&self) -> Option<Time> {
        self.device.next_due()
    }

    fn chunk_report(
        &mut self,
        now: Time,
        first: ChunkId,
        descriptors: &mut [ChunkDescriptor],
    ) -> Result<(), MediaError> {
        self.device.chunk_report(now, first, descriptors)
    }

    fn notifications(&mut self, now: Time, after: u64, to: &mut Vec<Notification>) -> Result<(), MediaError> {
        self.device.notifications(now, after, to)
    }

    fn set_dulbe(&mut self, dulbe: bool) {
        self.device.set_dulbe(dulbe);
    }

    fn pu_busy(&self) -> Vec<Nanos> {
        self.device.pu_busy()
    }
}

/// A clock that stands still, or makes a long step each time that it is looked at.
#[derive(Clone, Default)]
struct TestClock {
    now: Arc<AtomicU64>,
    is_fast: Arc<AtomicBool>,
}

impl Clock for TestClock {
    fn now(&mut self) -> Time {
        let step = if self.is_fast.load(Ordering::SeqCst) { 900_000_000 } else { 0 };
        Time(self.now.fetch_add(step, Ordering::SeqCst))
    }

    fn wait_until(&mut self, due: Time) -> Time {
        Time(self.now.fetch_max(due.0, Ordering::SeqCst).max(due.0))
    }
}

/// Hears of standstills.
struct Listener(Sender<(usize, String)>);

impl Operator<BlockFtl<Forgetful>> for Listener {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn turn(&mut self, _: Time, _: bool, _: &mut Drives<'_, '_, BlockFtl<Forgetful>>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn came_to_standstill(&mut self, export: usize, state: &str) {
        self.0.send((export, state.to_owned())).expect("the test listens");
    }
}

struct Served {
    path: PathBuf,
    lost: Lost,
    clock: TestClock,
    counters: Arc<Counters>,
    told: Receiver<(usize, String)>,
    stop: Stop,
    thread: JoinHandle<(Result<(), ServeError>, BlockFtl<Forgetful>)>,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let config = Config {
            capacity_blocks: 1_000,
            over_provisioning: Share::percent(20),
            payload: FrameForm::Bytes,
            host_frames: 2_000,
            ..Config::default()
        };
        let profile = Profile::builtin("tiny").unwrap();
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, 1).unwrap();
        let lost = Lost::default();
        let device = Forgetful { device, lost: Arc::clone(&lost) };
        let target = BlockFtl::format(device, config, &mut VirtualClock::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut server = Server::new(crate::reactors::with_reactors(ServerConfig::default())).unwrap();
        server.listen(Endpoint::Unix(path.clone()), Protocol::Nbd).unwrap();
        let (stop, counters, clock) = (Stop::new().unwrap(), server.counters(), TestClock::default());
        let (tell, told) = channel();
        let (its_stop, mut its_clock) = (stop.clone(), clock.clone());
        let thread = std::thread::spawn(move || {
            let name = "disk".to_owned();
            let mut exports = [Export { name, description: String::new(), read_only: false, target }];
            let result = server.run_with(&mut Listener(tell), &mut exports, &mut its_clock, &its_stop).map(drop);
            let [export] = exports;
            (result, export.target)
        });
        Served { path, lost, clock, counters, told, stop, thread, _folder: folder }
    }

    /// The next completion is lost, and time goes fast from now on.
    fn lose_one(&self) {
        self.lost.store(1, Ordering::SeqCst);
        self.clock.is_fast.store(true, Ordering::SeqCst);
        self.stop.wake();
    }

    fn end(self) -> (Result<(), ServeError>, BlockFtl<Forgetful>) {
        self.stop.request();
        self.thread.join().unwrap()
    }
}

/// The drive came to a standstill, and is closed at once: nobody waits for the command that the device has lost.
fn expect_stalled(drive: BlockFtl<Forgetful>) {
    assert_eq!(drive.read_only_reason(), Some(ReadOnlyReason::Stalled));
    let closed = drive.close(&mut VirtualClock::default()).err();
    assert_eq!(closed, Some(OpenError::Unwritable(ReadOnlyReason::Stalled)));
}

#[test]
fn a_flush_that_would_never_end_is_an_error_and_the_drive_says_why() {
    let served = Served::new();
    let mut client = Client::open(&served.path, true);
    let data = [7; 100_000];
    assert_eq!((client.write(0, &data), client.flush()), (0, 0));
    assert_eq!(client.write(200_000, &data), 0);
    served.lose_one();
    assert_ne!(client.flush(), 0, "the flush ends with an error");
    let (export, state) = served.told.recv().unwrap();
    assert!(export == 0 && state.contains("1 units under way"), "{state}");
    assert_eq!(served.counters.standstills.get(), 1);
    assert!(client.read(0, data.len()).data == data, "what was flushed can be read");
    assert_ne!(client.write(0, &data), 0, "no more writes are taken");
    let (result, drive) = served.end();
    assert!(result.unwrap_err().to_string().contains("read-only"));
    assert_eq!(drive.standstill(), Some(&*state));
    expect_stalled(drive);
}

#[test]
fn a_read_that_the_device_lost_is_an_error_and_those_after_it_too() {
    let served = Served::new();
    let mut client = Client::open(&served.path, true);
    // So much that its first blocks have left the write buffer.
    assert_eq!((client.write(0, &[7; 1_000_000]), client.flush()), (0, 0));
    served.lose_one();
    assert_eq!(client.read(0, 4_096).error, ErrorCode::Io as u32);
    served.told.recv().unwrap();
    assert_eq!(client.read(4_096, 4_096).error, ErrorCode::Io as u32, "its frames may not be written to any more");
    assert_eq!(client.read(3_000_000, 4_096).data, [0; 4_096], "what was never written needs no device");
    let (result, drive) = served.end();
    result.expect("all that was written was durable before");
    expect_stalled(drive);
}

#[test]
fn a_server_that_cannot_flush_its_drive_ends_and_says_why() {
    let served = Served::new();
    let mut client = Client::open(&served.path, true);
    assert_eq!(client.write(0, &[7; 100_000]), 0);
    served.lose_one();
    let (result, _) = served.end();
    let error = result.unwrap_err().to_string();
    assert!(error.contains("never ends") && error.contains("units under way"), "{error}");
}

#[test]
fn a_drive_that_is_slow_is_no_drive_that_stands_still() {
    let served = Served::new();
    let mut client = Client::open(&served.path, true);
    served.clock.is_fast.store(true, Ordering::SeqCst);
    served.stop.wake();
    for round in 0..20 {
        assert_eq!((client.write(round * 4_096, &[7; 10_000]), client.flush()), (0, 0));
    }
    assert_eq!(served.counters.standstills.get(), 0);
    served.end().0.unwrap();
}
