//! Two tenants of one device: a block FTL in the server on some of its parallel units, and on the others a host that brings its
//! own. Each has what it wrote, and a chunk of one is never found in use by the other.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Frames, Time};
use openftl_media::partition::{Part, Partition, split};
use openftl_media::{Blocks, ChunkState, Command, EmulatedDevice, Media, Profile, Status, Store, Timing};
use openftl_nvme::{BlockFormat, Namespace, NamespaceKind, Nqn, SubsystemConfig, Target};
use openftl_nvme_media::{FabricDevice, Place, Waiting};
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::Client;
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, Identity, QueueParameters};
use openftl_nvme_tcp::nvm::Blocks as LogicalBlocks;
use openftl_parts::Config;
use openftl_parts::target::BlockTarget;
use openftl_server::{Device, Endpoint, Export, NoOperator, Other, Protocol, Server, ServerConfig, Stop, WallClock};

const NAME: &str = "nqn.2024-01.org.example:shared";
const BLOCKS: u64 = 256;

fn identity() -> Identity {
    let host_nqn = "nqn.2024-01.org.example:host".to_owned();
    Identity { host_id: [1; 16], host_nqn, subsystem_nqn: NAME.to_owned() }
}

/// Group 0 is the block FTL's, group 1 the host's.
fn halves() -> [Part; 2] {
    let profile = Profile::builtin("tiny").unwrap();
    let device = EmulatedDevice::new(profile, 100, Store::Ram, Timing::Instant, 3).unwrap();
    let half = |group: u32| Partition { groups: group..group + 1, pus: 0..2 };
    split(device, vec![half(0), half(1)]).unwrap().try_into().ok().expect("two parts")
}

/// Serves both until it is stopped, and hands back what the chunks of the drive's part and of the host's are then.
fn serve(mut server: Server, stop: &Stop) -> [Vec<ChunkState>; 2] {
    let [ours, theirs] = halves();
    let config = Config {
        capacity_blocks: BLOCKS,
        over_provisioning: Share::percent(20),
        payload: FrameForm::Bytes,
        host_frames: 600,
        ..Config::default()
    };
    let mut clock = WallClock::new();
    let drive = BlockFtl::format(ours, config, &mut clock).unwrap();
    let device = Device::new(theirs, 1024);
    let mut target = Target::new("SN", "OpenFTL", "0.1.0");
    let subsystem = SubsystemConfig::new(Nqn::new(NAME).unwrap(), "SN");
    let subsystem = target.add_subsystem(subsystem).unwrap();
    let kind = NamespaceKind::Block {
        format: BlockFormat::FourKib,
        bytes: drive.blocks() * 4096,
        hints: drive.placement().into(),
    };
    target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
    let kind = NamespaceKind::OpenChannel(device.geometry());
    target.attach(subsystem, Namespace { id: 2, uuid: [2; 16], kind }).unwrap();
    server.set_target(target);
    let mut exports =
        [Export { name: "drive".to_owned(), description: String::new(), read_only: false, target: drive }];
    let mut others = [Other::Device(device)];
    server.run_with_others(&mut NoOperator, &mut exports, &mut others, &mut clock, stop).unwrap();
    let ([Export { target: drive, .. }], [Other::Device(device)]) = (exports, others) else {
        unreachable!("it was a device")
    };
    let states = |mut part: Part| {
        let report = part.whole_chunk_report(Time::NEVER).unwrap();
        report.iter().map(|chunk| chunk.state).collect()
    };
    [states(drive.close(&mut clock).unwrap()), states(device.into_media())]
}

/// The namespace of the block FTL, seen from a host.
fn io_queue(address: SocketAddr) -> [Client<TcpStream>; 2] {
    let open = || Client::open(TcpStream::connect(address).unwrap(), InitiatorConfig::default()).unwrap();
    let mut admin = open();
    let queue = |queue_id| QueueParameters { queue_id, entries: 32, flow_control: true, keep_alive_ms: 0 };
    let connected = admin.connect(queue(0), &identity(), CONTROLLER_ID_ANY).unwrap();
    admin.start_controller(|| true).unwrap();
    admin.set_number_of_queues(1).unwrap();
    let mut io = open();
    io.connect(queue(1), &identity(), connected.controller_id).unwrap();
    [admin, io]
}

#[test]
fn a_block_ftl_and_a_host_with_its_own_share_a_device() {
    let mut server = Server::new(ServerConfig::default()).unwrap();
    let Endpoint::Tcp(address) = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap() else {
        unreachable!("it was a TCP endpoint")
    };
    let stop = Stop::new().unwrap();
    let at_stop = stop.clone();
    let (sender, states) = channel();
    let thread = std::thread::spawn(move || sender.send(serve(server, &at_stop)).unwrap());

    let [_admin, mut io] = io_queue(address);
    let place = Place { address, identity: identity(), namespace: 2 };
    let mut device = FabricDevice::reach(&place, Waiting::ForOne).unwrap();
    let geometry = *device.geometry();
    assert_eq!((geometry.groups, geometry.pus_per_group), (1, 2), "a host sees its part and nothing else");
    let count = geometry.blocks_per_chunk;
    let mut frames = Frames::new(count as usize, 0, geometry.oob_bytes as usize);
    let mut list = Vec::new();
    assert!(frames.acquire_many(FrameForm::Bytes, count as usize, &mut list));
    let run = |device: &mut FabricDevice, frames: &mut Frames, command: Command<'_>| {
        let mut completions = Vec::new();
        device.submit(Time::ZERO, frames, 1, command).unwrap();
        while completions.is_empty() {
            let due = device.next_due().expect("a command is under way");
            device.poll(due, frames, &mut completions);
        }
        assert_eq!(completions[0].status, Status::Success);
    };
    let chunks: Vec<_> = geometry.chunk_ids().take(8).collect();
    let value = |step: u64| (step % 251) as u8;
    for (number, chunk) in (0..).zip(&chunks) {
        for step in 0..BLOCKS / 8 {
            let block = number * (BLOCKS / 8) + step;
            io.write(LogicalBlocks { namespace: 1, first: block, count: 1 }, vec![value(block); 4096]).unwrap();
        }
        list.iter().for_each(|frame| frames.bytes_mut(*frame).fill(value(number + 100)));
        let blocks = Blocks::Scalar { first: geometry.format().ppa(*chunk, 0), count };
        run(&mut device, &mut frames, Command::Write { blocks, frames: &list, fua: false });
    }
    for (number, chunk) in (0..).zip(&chunks) {
        let blocks = Blocks::Scalar { first: geometry.format().ppa(*chunk, 0), count };
        run(&mut device, &mut frames, Command::Read { blocks, frames: &list });
        assert!(list.iter().all(|frame| *frames.bytes(*frame) == [value(number + 100); 4096]), "chunk {chunk:?}");
    }
    for block in 0..BLOCKS {
        let read = io.read(LogicalBlocks { namespace: 1, first: block, count: 1 }, vec![0; 4096]).unwrap();
        assert!(read == vec![value(block); 4096], "block {block}");
    }
    stop.request();
    drop((io, device));
    let [ours, theirs] = states.recv().unwrap();
    thread.join().unwrap();
    let in_use = |states: &[ChunkState]| states.iter().filter(|state| **state != ChunkState::Free).count();
    assert_eq!(in_use(&theirs), chunks.len(), "the drive has used none of the host's chunks");
    assert!(in_use(&ours) > 0);
}
