//! What a device notifies, hosts of its namespace hear of: an asynchronous event, and the log page that says more.

use std::net::TcpStream;

use crate::support::Served;
use openftl_core::{FrameForm, Frames, Time};
use openftl_media::conformance::Inject;
use openftl_media::{Blocks, Command, EmulatedDevice, Media, NotifiedState, Profile, Status, Store, Timing};
use openftl_nvme::SubmissionEntry;
use openftl_nvme::wire::{log, opcode};
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::fabrics::{CONTROLLER_ID_ANY, QueueParameters};
use zerocopy::IntoBytes;

/// A host that has asked to hear of events.
fn listening(served: &Served) -> Client<TcpStream> {
    let stream = TcpStream::connect(served.address).unwrap();
    let mut admin = Client::open(stream, InitiatorConfig::default()).unwrap();
    let queue = QueueParameters { queue_id: 0, entries: 32, flow_control: true, keep_alive_ms: 0 };
    admin.connect(queue, &served.place().identity, CONTROLLER_ID_ANY).unwrap();
    admin.start_controller(|| true).unwrap();
    let request = SubmissionEntry { opcode: opcode::admin::ASYNCHRONOUS_EVENT_REQUEST, ..SubmissionEntry::default() };
    admin.submit(1, request.as_bytes().try_into().unwrap(), Payload::None);
    admin
}

#[test]
fn a_chunk_notification_ends_the_request_of_a_host_that_listens() {
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), 6, Store::Ram, Timing::Instant, 5).unwrap();
    let served = Served::new(device);
    let mut admin = listening(&served);
    let mut device = served.reach();
    let geometry = *device.geometry();
    let mut frames = Frames::new(geometry.blocks_per_chunk as usize, 0, geometry.oob_bytes as usize);
    let mut list = Vec::new();
    assert!(frames.acquire_many(FrameForm::Bytes, geometry.blocks_per_chunk as usize, &mut list));
    let chunk = device.whole_chunk_report(Time::ZERO).unwrap()[0].chunk;
    let first = geometry.format().ppa(chunk, 0);
    let blocks = Blocks::Scalar { first, count: geometry.blocks_per_chunk };
    let mut run = |device: &mut openftl_nvme_media::FabricDevice, command| {
        let mut completions = Vec::new();
        device.submit(Time::ZERO, &mut frames, 1, command).unwrap();
        while completions.is_empty() {
            let due = device.next_due().expect("a command is under way");
            device.poll(due, &mut frames, &mut completions);
        }
        completions[0].status
    };
    assert_eq!(run(&mut device, Command::Write { blocks, frames: &list, fua: false }), Status::Success);
    served.ask(move |device| device.lose(first));
    let read = Command::Read { blocks: Blocks::Vector(&[first]), frames: &list[..1] };
    assert_eq!(run(&mut device, read), Status::UnrecoveredRead);

    let event = admin.wait().unwrap();
    assert_eq!((event.tag, event.status()), (1, 0));
    let page = event.completion.specific.get() >> 16 & 0xff;
    assert_eq!(page, u64::from(log::id::CHUNK_NOTIFICATIONS));
    let mut notifications = Vec::new();
    device.notifications(Time::ZERO, 0, &mut notifications).unwrap();
    assert_eq!((notifications[0].ppa, notifications[0].state), (first, NotifiedState::Unrecoverable));
}
