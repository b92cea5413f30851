//! An emulated device behind a server on loopback, and hands on it.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use openftl_blocks::block_ftl::BlockFtl;
use openftl_core::Time;
use openftl_media::EmulatedDevice;
use openftl_nvme::{Namespace, NamespaceKind, Nqn, SubsystemConfig, Target};
use openftl_nvme_media::{FabricDevice, Place, Waiting};
use openftl_nvme_tcp::fabrics::Identity;
use openftl_server::{
    Device, Drives, Endpoint, Export, Operator, Other, Protocol, Server, ServerConfig, Stop, WallClock,
};
use rustix::event::{EventfdFlags, eventfd};

pub const NAME: &str = "nqn.2024-01.org.example:device";

type Drive = BlockFtl<EmulatedDevice>;
type Deed = Box<dyn FnOnce(&mut EmulatedDevice) + Send>;

/// Does to the device what the test asks for, in the server's thread.
struct Hands {
    bell: Arc<OwnedFd>,
    deeds: Receiver<Deed>,
}

impl Operator<Drive> for Hands {
    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn next_due(&self) -> Option<Time> {
        None
    }

    fn turn(&mut self, _: Time, called: bool, drives: &mut Drives<'_, '_, Drive>) -> ControlFlow<()> {
        if called {
            rustix::io::read(&*self.bell, &mut [0_u8; 8]).expect("the bell was rung");
            for deed in self.deeds.try_iter() {
                deed(drives.device_mut(0).expect("a device is served"));
            }
        }
        ControlFlow::Continue(())
    }
}

/// A server with one device, until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    bell: Arc<OwnedFd>,
    deeds: Sender<Deed>,
    stop: Stop,
    thread: Option<JoinHandle<EmulatedDevice>>,
}

impl Served {
    pub fn new(device: EmulatedDevice) -> Served {
        let mut server = Server::new(ServerConfig::default()).unwrap();
        let Endpoint::Tcp(address) = server.listen("127.0.0.1:0".parse().unwrap(), Protocol::NvmeTcp).unwrap() else {
            unreachable!("it was a TCP endpoint")
        };
        let device = Device::new(device, 4096);
        server.set_target(target(&device));
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let (sender, deeds) = channel();
        let stop = Stop::new().unwrap();
        let mut hands = Hands { bell: Arc::clone(&bell), deeds };
        let at_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            let exports: &mut [Export<Drive>] = &mut [];
            let mut others = [Other::Device(device)];
            server.run_with_others(&mut hands, exports, &mut others, &mut WallClock::new(), &at_stop).unwrap();
            let [Other::Device(device)] = others else { unreachable!("it was a device") };
            device.into_media()
        });
        Served { address, bell, deeds: sender, stop, thread: Some(thread) }
    }

    /// What `deed` says of the device.
    pub fn ask<R: Send + 'static>(&self, deed: impl FnOnce(&mut EmulatedDevice) -> R + Send + 'static) -> R {
        let (answer, answers) = channel();
        let deed: Deed = Box::new(move |device| answer.send(deed(device)).expect("the test waits"));
        self.deeds.send(deed).expect("the server runs");
        rustix::io::write(&*self.bell, &1_u64.to_le_bytes()).expect("the bell is rung");
        answers.recv().expect("the server runs")
    }

    pub fn place(&self) -> Place {
        let host_nqn = "nqn.2024-01.org.example:host".to_owned();
        let identity = Identity { host_id: [1; 16], host_nqn, subsystem_nqn: NAME.to_owned() };
        Place { address: self.address, identity, namespace: 1 }
    }

    pub fn reach(&self) -> FabricDevice {
        FabricDevice::reach(&self.place(), Waiting::ForOne).expect("it is served")
    }

    /// The device, when the server has stopped.
    pub fn end(mut self) -> EmulatedDevice {
        self.stop.request();
        self.thread.take().expect("it ends once").join().expect("the server has not panicked")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn target(device: &Device<EmulatedDevice>) -> Target {
    let mut target = Target::new("SN", "OpenFTL", "0.1.0");
    let subsystem = target.add_subsystem(SubsystemConfig::new(Nqn::new(NAME).unwrap(), "SN")).unwrap();
    let kind = NamespaceKind::OpenChannel(device.geometry());
    target.attach(subsystem, Namespace { id: 1, uuid: [1; 16], kind }).unwrap();
    target
}
