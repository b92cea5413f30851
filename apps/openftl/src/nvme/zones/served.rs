//! The commands against a server of a zoned drive, over a real socket.

use super::append::{self, Piece};
use super::{Action, ZoneChoice, ZonedDisk};
use crate::cli::zones::{ZonedPlace, ZonesCommand};
use crate::cli::{Cli, Command, nvme::NvmeCommand};
use crate::failure::Failure;
use crate::nvme::association::Association;
use crate::nvme::identify::ZonedFacts;
use crate::nvme::input::Input;
use clap::Parser;
use expect_test::expect;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::Time;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_nvme::{Namespace, NamespaceKind, Nqn, Port, SubsystemConfig, Target, ZonedShape};
use openftl_parts::Config;
use openftl_server::{
    Device, Drives, Endpoint, Export, Operator, Other, Protocol, Server, ServerConfig, Stop, WallClock,
};
use openftl_zones::{Face, Limits, ZoneConfig, ZoneFtl, ZoneState};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::thread::JoinHandle;

const SUBSYSTEM: &str = "nqn.2026-11.org.openftl:drive";

type Drive = BlockFtl<EmulatedDevice>;

struct Nobody;

impl Operator<Drive> for Nobody {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn turn(&mut self, _now: Time, _called: bool, _drives: &mut Drives<'_, '_, Drive>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn device() -> EmulatedDevice {
    EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 48, Store::Ram, Timing::Modelled, 1).unwrap()
}

/// Serves a zoned drive as namespace 1, of which two zones may be open and three active, and a device as namespace 2.
struct Served {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new() -> Served {
        let config = Config { host_frames: 2048, checkpoint_log_blocks: Some(8), ..Config::default() };
        let zones = ZoneConfig {
            face: Face::Zones,
            width: 3,
            limits: Limits { max_open: 2, max_active: 3 },
            zones: None,
            extension_bytes: 128,
            window_blocks: 16,
        };
        let drive = ZoneFtl::format(device(), config, zones, &mut WallClock::new()).unwrap();
        let device = Device::new(device(), 64);
        let mut server = Server::new(ServerConfig::default()).unwrap();
        let endpoint = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap();
        let Endpoint::Tcp(address) = endpoint else { unreachable!("listened on TCP") };
        let mut target = Target::new("1", "OpenFTL", "1");
        let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "1")).unwrap();
        let zoned = NamespaceKind::Zoned(ZonedShape::of(drive.layout(), drive.board().limits()));
        let kinds = [zoned, NamespaceKind::OpenChannel(device.geometry())];
        for (id, kind) in (1..).zip(kinds) {
            target.attach(subsystem, Namespace { id, uuid: [id as u8; 16], kind }).unwrap();
        }
        target.add_port(Port { id: 1, address });
        server.set_target(target);
        let stop = Stop::new().unwrap();
        let its_stop = stop.clone();
        let mut others = [Other::Zones(Box::new(drive)), Other::Device(device)];
        let thread = std::thread::spawn(move || {
            let mut exports: [Export<Drive>; 0] = [];
            server.run_with_others(&mut Nobody, &mut exports, &mut others, &mut WallClock::new(), &its_stop).unwrap();
        });
        Served { address, stop, thread: Some(thread) }
    }

    /// The namespace that a command line names by these flags.
    fn place(&self, flags: &[&str]) -> ZonedPlace {
        let address = self.address.to_string();
        let words = [&["openftl", "nvme", "zones", "list", &address], flags].concat();
        match Cli::try_parse_from(words).unwrap().command {
            Command::Nvme(nvme) => match nvme.command {
                NvmeCommand::Zones(zones) => match zones.command {
                    ZonesCommand::List(list) => list.place,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn disk(&self) -> ZonedDisk {
        ZonedDisk::open(&self.place(&[])).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request();
        let ended = self.thread.take().expect("ended once").join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

impl ZonedDisk {
    fn state(&mut self, number: u64) -> (ZoneState, Option<u64>) {
        let zone = self.zone(number).unwrap();
        (zone.state, zone.written_blocks)
    }

    fn one(&mut self, number: u64, action: Action) -> Result<(), Failure> {
        self.change(ZoneChoice::One(number), action)
    }

    fn append(&mut self, number: u64, bytes: &[u8], is_durable: bool) -> Result<Vec<Piece>, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input");
        std::fs::write(&path, bytes).unwrap();
        let (zone, mut input) = (self.zone(number)?, Input::open(&path)?);
        let mut placed = Vec::new();
        append::append(self, &zone, &mut input, is_durable, &mut |piece| {
            placed.push(*piece);
            Ok(())
        })?;
        Ok(placed)
    }
}

#[track_caller]
fn refuses(result: Result<impl Sized, Failure>, told: &[&str]) {
    let failure = result.err().expect("it is refused").to_string();
    for words in told {
        assert!(failure.contains(words), "{failure}");
    }
    assert!(failure.contains("fix: "), "{failure}");
}

#[test]
fn zones_are_listed_opened_closed_finished_and_reset() {
    let served = Served::new();
    let mut disk = served.disk();
    let zones = disk.zones().unwrap();
    assert_eq!(zones.len() as u64, disk.shape.zone_count);
    assert!(zones.iter().all(|zone| (zone.state, zone.written_blocks) == (ZoneState::Empty, Some(0))));
    assert_eq!((disk.shape.max_open, disk.shape.max_active), (Some(2), Some(3)));
    disk.one(4, Action::Open).unwrap();
    assert_eq!(disk.state(4), (ZoneState::ExplicitlyOpen, Some(0)));
    disk.append(4, &[7; 5000], false).unwrap();
    disk.one(4, Action::Close).unwrap();
    assert_eq!(disk.state(4), (ZoneState::Closed, Some(2)));
    disk.one(4, Action::Finish).unwrap();
    let capacity = zones[4].capacity_blocks;
    assert_eq!(disk.state(4), (ZoneState::Full, Some(capacity)));
    disk.one(5, Action::Finish).unwrap();
    disk.change(ZoneChoice::All, Action::Reset).unwrap();
    assert_eq!(disk.zones().unwrap(), zones);
}

#[test]
fn a_zone_is_opened_with_a_random_write_area_whose_blocks_are_committed() {
    let served = Served::new();
    let mut disk = served.disk();
    disk.open_with_window(2).unwrap();
    let zone = disk.zone(2).unwrap();
    assert_eq!((zone.state, zone.written_blocks, zone.attributes), (ZoneState::ExplicitlyOpen, Some(0), 1 << 3));
    refuses(disk.append(2, &[1], false), &["01B6h Invalid Zone Operation Request", "open an empty zone with"]);
    refuses(disk.commit(2, 17), &["area of zone 2 has 16 blocks", "and 17 are", "from 1 to 16"]);
    disk.commit(2, 5).unwrap();
    disk.commit(2, 11).unwrap();
    assert_eq!(disk.state(2), (ZoneState::ExplicitlyOpen, Some(16)));
    disk.open_with_window(3).unwrap();
    disk.one(2, Action::Close).unwrap();
    refuses(
        disk.open_with_window(4),
        &["01B7h ZRWA Resources Unavailable", "finish or reset", "--state active` shows"],
    );
    disk.append(5, &[1], false).unwrap();
    refuses(disk.open_with_window(5), &["01B6h", "--state empty` shows"]);
    refuses(disk.commit(5, 1), &["01B6h"]);
    disk.one(2, Action::Finish).unwrap();
    assert_eq!(disk.zone(2).unwrap().attributes, 0);
}

#[test]
fn identify_says_size_capacity_and_limits_of_zones() {
    let served = Served::new();
    let subsystem = served.place(&[]).subsystem;
    let mut association = Association::make(&subsystem.address, SUBSYSTEM, &subsystem.host).unwrap();
    let mut queue = None;
    let facts = ZonedFacts::ask(&mut association, &mut queue, 1, 0, 20 * 128).unwrap();
    assert!(queue.is_some(), "another namespace is asked by the same one");
    let mut text = String::new();
    facts.write(&mut text, 4096);
    expect![[r#"
        namespace
          zones            20 of 384 KiB (96 blocks), 128 blocks from one to the next
          at a time        2 open (MOR), 3 open or closed (MAR)
          an append        as long as any command (ZASL)
          extension        128 bytes of each zone (ZDES)
          random writes    16 blocks of 2 zones (ZRWASZ, NUMZRWA), committed by 1 (ZRWAFG)
    "#]]
    .assert_eq(&format!("namespace\n{text}"));
}

#[test]
fn a_file_is_appended_in_pieces_one_behind_the_other() {
    let served = Served::new();
    let mut disk = served.disk();
    let (size, capacity) = (disk.shape.zone_size_blocks, disk.zone(2).unwrap().capacity_blocks);
    let block = disk.shape.block_bytes as usize;
    let first = disk.append(2, &[1; 10], true).unwrap();
    assert_eq!(first, [Piece { from_byte: 0, first_block: 2 * size, blocks: 1 }]);
    let piece_blocks = disk.append_bytes_max().unwrap() / block as u64;
    let rest = vec![3; (capacity as usize - 1) * block];
    let pieces = disk.append(2, &rest, false).unwrap();
    let mut next = 2 * size + 1;
    for piece in &pieces {
        assert!(piece.first_block == next && piece.blocks <= piece_blocks);
        assert_eq!(piece.from_byte, (next - 2 * size - 1) * block as u64);
        next += piece.blocks;
    }
    assert_eq!(next, 2 * size + capacity);
    assert_eq!(disk.state(2), (ZoneState::Full, Some(capacity)));
    refuses(disk.append(2, &[1], false), &["Append of bytes 0 to 0 to zone 2", "01B9h Zone Is Full", "reset the zone"]);
    refuses(disk.append(3, &[], false), &["is empty"]);
}

#[test]
fn a_refusal_says_its_name_and_what_to_do() {
    let served = Served::new();
    let mut disk = served.disk();
    disk.one(0, Action::Open).unwrap();
    disk.one(1, Action::Open).unwrap();
    refuses(disk.one(2, Action::Open), &["Open of zone 2", "01BEh Too Many Open Zones", "close", "--state open`"]);
    disk.one(1, Action::Close).unwrap();
    disk.append(2, &[1], false).unwrap();
    disk.change(ZoneChoice::All, Action::Close).unwrap();
    assert_eq!(disk.state(2), (ZoneState::Closed, Some(1)));
    refuses(disk.append(3, &[1], false), &["01BDh Too Many Active Zones", "finish or reset", "--state active` shows"]);
    refuses(disk.one(3, Action::Offline), &["01BFh Invalid Zone State Transition", "only a read-only zone"]);
    let (address, count) = (served.address, disk.shape.zone_count);
    refuses(disk.one(count, Action::Reset), &["has no zone", &format!("from 0 to {}", count - 1)]);
    refuses(ZonedDisk::open(&served.place(&["--namespace", "2"])), &["no zoned namespace 2", "--namespace 1"]);
    refuses(disk.one(3, Action::Close), &[&format!("openftl nvme zones list {address} --nqn {SUBSYSTEM}")]);
}
