//! The same with batches of pages, as OX-ELEOS has them: a store of pages behind NVMe/TCP, whose writers commit one batch after the other.

use super::{BUFFER_BYTES, COMMAND_BYTES, HOST_FRAMES, PROFILE, SUBSYSTEM, Turn, cpu_seconds, of_host, queued_seconds};
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::FrameForm;
use openftl_experiments::ExperimentError;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{Namespace, NamespaceKind, Nqn, PageShape, Port, SubsystemConfig, Target};
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_pages::RemoteStore;
use openftl_pages::{BlockingStore, Change, PageFtl, SessionId, StoreFailure, chunks_per_pu};
use openftl_parts::{Config, Durability};
use openftl_server::{Endpoint, Export, NoOperator, Other, Protocol, Server, ServerConfig, Stop, WallClock};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes of a page: no multiple of a block, as those of the paper need not be.
const PAGE_BYTES: usize = 4000;
/// Pages of a batch.
const PAGES: u64 = BUFFER_BYTES / PAGE_BYTES as u64;
/// Of the store so much is written, over and over.
const FILL: f64 = 0.7;

/// A store, and who serves it.
pub struct PageController {
    /// Not there while it is served.
    drive: Option<Box<PageFtl<EmulatedDevice>>>,
    clock: WallClock,
}

impl PageController {
    pub fn new(capacity: u64, seed: u64) -> Result<PageController, ExperimentError> {
        let config =
            Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, drive_id: seed, ..Config::default() };
        let profile = Profile::builtin(PROFILE)?;
        let shape = profile.geometry(profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&shape, &config, capacity)?;
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Instant, seed)?;
        let mut clock = WallClock::new();
        let drive = PageFtl::format(device, config, (), &mut clock)?;
        Ok(PageController { drive: Some(Box::new(drive)), clock })
    }

    /// Has so many writers write `bytes` together.
    pub fn turn(&mut self, writers: usize, bytes: u64, seed: u64) -> Result<Turn, ExperimentError> {
        let drive = self.drive.take().ok_or_else(|| of_host("a store of pages was not given back"))?;
        let room = (drive.capacity_bytes() as f64 * FILL) as u64 / (PAGE_BYTES as u64 + 96);
        let region = (room / writers as u64 / PAGES).max(1) * PAGES;
        let batches = (bytes / writers as u64 / BUFFER_BYTES).max(1);
        let mut server = Server::new(ServerConfig::default()).map_err(of_host)?;
        let listened = server.listen("127.0.0.1:0".parse().map_err(of_host)?, Protocol::NvmeTcp).map_err(of_host)?;
        let Endpoint::Tcp(address) = listened else { unreachable!("listened on TCP") };
        server.set_target(target(&drive, address)?);
        let (stop, counters, clock) = (Stop::new().map_err(of_host)?, server.counters(), &mut self.clock);
        let (written, served) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let before = (cpu_seconds(), queued_seconds());
                let exports: &mut [Export<BlockFtl<EmulatedDevice>>] = &mut [];
                let mut others = [Other::Pages(drive)];
                let served = server.run_with_others(&mut NoOperator, exports, &mut others, clock, &stop);
                let [Other::Pages(drive)] = others else { unreachable!("it was a store of pages") };
                (drive, served.map(|_| (cpu_seconds() - before.0, queued_seconds() - before.1)))
            });
            let written = write_all(address, writers, region, batches, seed);
            stop.request();
            (written, thread.join().expect("the server does not panic"))
        });
        let (drive, seconds) = served;
        self.drive = Some(drive);
        let (cpu_seconds, queued_seconds) = seconds.map_err(of_host)?;
        let (wall_seconds, bytes) = written?;
        let copied_bytes = counters.bytes_copied.get() as f64;
        Ok(Turn { bytes: bytes as f64, wall_seconds, cpu_seconds, queued_seconds, copied_bytes })
    }
}

/// One subsystem with the store.
fn target(drive: &PageFtl, address: SocketAddr) -> Result<Target, ExperimentError> {
    let mut target = Target::new("1", "OpenFTL", env!("CARGO_PKG_VERSION"));
    let config = SubsystemConfig::new(Nqn::new(SUBSYSTEM).map_err(of_host)?, "1");
    let subsystem = target.add_subsystem(config).map_err(of_host)?;
    let (capacity_bytes, page_bytes_max) = (drive.capacity_bytes(), drive.page_bytes_max());
    let kind = NamespaceKind::Pages(PageShape { capacity_bytes, page_bytes_max });
    target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).map_err(of_host)?;
    target.add_port(Port { id: 1, address });
    Ok(target)
}

/// Seconds that all writers took, and the bytes of pages that they committed.
fn write_all(
    address: SocketAddr,
    writers: usize,
    region: u64,
    batches: u64,
    seed: u64,
) -> Result<(f64, u64), ExperimentError> {
    let all_ready = Barrier::new(writers);
    std::thread::scope(|scope| {
        let ready = &all_ready;
        let hands: Vec<_> = (0..writers as u64)
            .map(|writer| {
                scope.spawn(move || -> Result<(Instant, Instant), ExperimentError> {
                    let connected = connect(address);
                    // Whoever could not connect lets the others go on.
                    ready.wait();
                    let began = Instant::now();
                    commit(&connected?, writer, region, batches, seed).map_err(of_host)?;
                    Ok((began, Instant::now()))
                })
            })
            .collect();
        let spans: Result<Vec<_>, _> = hands.into_iter().map(|hand| hand.join().expect("no panic")).collect();
        let spans = spans?;
        let began = spans.iter().map(|(began, _)| *began).min().expect("there are writers");
        let ended = spans.iter().map(|(_, ended)| *ended).max().expect("there are writers");
        let bytes = writers as u64 * batches * PAGES * PAGE_BYTES as u64;
        Ok(((ended - began).as_secs_f64(), bytes))
    })
}

fn connect(address: SocketAddr) -> Result<RemoteStore, ExperimentError> {
    let uri: DriveUri = format!("nvme-tcp://{address}/{SUBSYSTEM}").parse().map_err(of_host)?;
    RemoteStore::connect(&uri).map_err(of_host)
}

/// Commits one batch after the other, of pages of the writer's own.
fn commit(store: &RemoteStore, writer: u64, region: u64, batches: u64, seed: u64) -> Result<(), StoreFailure> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed + writer);
    let mut bytes = vec![0; COMMAND_BYTES as usize];
    chance.fill_bytes(&mut bytes);
    let mut id = *b"openftl-copies\0\0";
    id[15] = writer as u8;
    let (session, mut wsn) = store.open_session(SessionId(id))?;
    for batch in 0..batches {
        wsn += 1;
        for page in 0..PAGES {
            let lpid = writer * region + (batch * PAGES + page) % region;
            let from = (page as usize * PAGE_BYTES) % (bytes.len() - PAGE_BYTES);
            store.stage(session, wsn, lpid, Change::Put(&[&bytes[from..from + PAGE_BYTES]]), None)?;
        }
        store.commit(session, wsn, Durability::Volatile)?;
    }
    store.sync()?;
    store.close_session(session, false)
}
