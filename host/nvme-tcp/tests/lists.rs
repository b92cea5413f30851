//! The lists of addresses of vector commands: they come in the capsule, whichever way the data of the command go.

use openftl_nvme_tcp::initiator::{self, Initiator, Transfer};
use openftl_nvme_tcp::sgl::{Data, Submission, TRANSPORT};
use openftl_nvme_tcp::target::{Event, Slot, Target};
use openftl_nvme_tcp::{InitiatorConfig, SUBMISSION_BYTES, TargetConfig};

const LIST: [u8; 24] = [7; 24];

fn connected() -> (Initiator, Target, Vec<u8>, Vec<u8>) {
    let (mut to_target, mut to_host) = (Vec::new(), Vec::new());
    let config = InitiatorConfig { header_digest: true, data_digest: true, ..InitiatorConfig::default() };
    let mut host = Initiator::new(config, &mut to_target);
    let mut target = Target::new(TargetConfig::default());
    let (consumed, event) = target.next(&to_target, &mut to_host);
    assert_eq!((consumed, event), (to_target.len(), Event::Step));
    to_target.clear();
    let (consumed, event) = host.next(&to_host, &mut to_target);
    assert_eq!((consumed, event), (to_host.len(), initiator::Event::Initialised));
    to_host.clear();
    target.open_queue(8, true);
    (host, target, to_target, to_host)
}

/// What the target makes of a vector command, up to the end of its list.
fn heard(opcode: u8, transfer: Transfer) -> (Target, Slot, Data) {
    let (mut host, mut target, mut stream, mut out) = connected();
    let mut entry = [0; SUBMISSION_BYTES];
    entry[0] = opcode;
    let (_, outgoing) = host.submit_with_list(&entry, &LIST, transfer, &mut stream).expect("the queue is empty");
    assert_eq!(outgoing, None, "the data go in PDUs of their own");
    let (mut at, event) = target.next(&stream, &mut out);
    let Event::Command { slot, entry, data, list_bytes } = event else { panic!("{event:?}") };
    assert_eq!(list_bytes as usize, LIST.len());
    assert_eq!(Submission::of(&entry).sgl.identifier, TRANSPORT);
    let event = target.next(&stream[at..], &mut out).1;
    assert_eq!(event, Event::Payload { slot, offset: 0, bytes: LIST.len() as u32 });
    assert_eq!(stream[at..at + LIST.len()], LIST);
    target.took(&LIST);
    at += LIST.len();
    let (consumed, event) = target.next(&stream[at..], &mut out);
    assert_eq!(event, Event::PayloadComplete { slot, intact: true }, "the digest is that of the list");
    assert_eq!(at + consumed, stream.len());
    (target, slot, data.expect("data that the transport can serve"))
}

#[test]
fn a_list_comes_before_the_data_whichever_way_they_go() {
    let (_, _, data) = heard(0x90, Transfer::None);
    assert_eq!(data, Data::None);
    let (mut target, slot, data) = heard(0x91, Transfer::ToController(4112));
    assert_eq!(data, Data::OnRequest(4112), "however few they are");
    let mut out = Vec::new();
    target.request(slot, 4112, &mut out);
    assert!(!out.is_empty(), "an R2T");
    let (_, _, data) = heard(0x92, Transfer::ToHost(8224));
    assert_eq!(data, Data::ToHost(8224));
    let (_, _, data) = heard(0x93, Transfer::None);
    assert_eq!(data, Data::None);
}

#[test]
fn a_command_that_is_refused_before_its_list_has_come_is_completed_at_once() {
    let (mut host, mut target, mut stream, mut out) = connected();
    let mut entry = [0; SUBMISSION_BYTES];
    entry[0] = 0x92;
    host.submit_with_list(&entry, &LIST, Transfer::ToHost(4112), &mut stream).expect("the queue is empty");
    let (mut at, event) = target.next(&stream, &mut out);
    let Event::Command { slot, entry, .. } = event else { panic!("{event:?}") };
    let mut completion = [0; 16];
    completion[12..14].copy_from_slice(&entry[2..4]);
    target.complete(slot, &completion, &mut out);
    loop {
        match target.next(&stream[at..], &mut out) {
            (_, Event::Starved) => break,
            (consumed, Event::Step) => at += consumed,
            (_, other) => panic!("{other:?}"),
        }
    }
    assert_eq!(at, stream.len(), "the list was skipped");
}
