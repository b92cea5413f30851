//! Once a queue is set up, commands and their data cost no allocation, on either side.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Read, Write};

use openftl_nvme_tcp::client::{Client, Payload};
use openftl_nvme_tcp::initiator::{self, Transfer};
use openftl_nvme_tcp::sgl::{Completion, Data, Submission};
use openftl_nvme_tcp::target::{self, Ending};
use openftl_nvme_tcp::{COMPLETION_BYTES, Initiator, InitiatorConfig, SUBMISSION_BYTES, Target, TargetConfig};
use zerocopy::FromZeros;

/// The system's allocator, counting what this thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's doing; counting touches no memory of its.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn completion(entry: &[u8; SUBMISSION_BYTES]) -> [u8; COMPLETION_BYTES] {
    let mut completion = Completion::new_zeroed();
    completion.command_id = Submission::of(entry).command_id;
    zerocopy::transmute!(completion)
}

/// The controller takes what it was sent. It completes at once.
fn serve(controller: &mut Target, entries: &mut [[u8; SUBMISSION_BYTES]], to_controller: &[u8], to_host: &mut Vec<u8>) {
    let mut from = 0;
    loop {
        let (consumed, event) = controller.next(&to_controller[from..], to_host);
        from += consumed;
        match event {
            target::Event::Starved => break,
            target::Event::Step => {}
            target::Event::Command { slot, entry, data, .. } => {
                entries[slot.index()] = entry;
                match data.unwrap() {
                    Data::InCapsule(_) => {}
                    Data::OnRequest(bytes) => controller.request(slot, bytes, to_host),
                    Data::ToHost(bytes) => {
                        let digest = controller.send_data(slot, bytes, Ending::Last, to_host);
                        let start = to_host.len();
                        to_host.resize(start + bytes as usize, 7);
                        let mut digest = digest.unwrap();
                        digest.update(&to_host[start..]);
                        to_host.extend_from_slice(&digest.bytes());
                        controller.complete(slot, &completion(&entry), to_host);
                    }
                    Data::None => controller.complete(slot, &completion(&entry), to_host),
                }
            }
            target::Event::Payload { bytes, .. } => {
                controller.took(&to_controller[from..][..bytes as usize]);
                from += bytes as usize;
            }
            target::Event::PayloadComplete { slot, intact } => {
                assert!(intact);
                controller.complete(slot, &completion(&entries[slot.index()]), to_host);
            }
            target::Event::Terminated(termination) => panic!("{termination}"),
        }
    }
}

/// Lets both halves talk until neither has anything left to say.
fn talk(
    host: &mut Initiator,
    controller: &mut Target,
    entries: &mut [[u8; SUBMISSION_BYTES]],
    to_controller: &mut Vec<u8>,
    to_host: &mut Vec<u8>,
) {
    while !to_controller.is_empty() || !to_host.is_empty() {
        serve(controller, entries, to_controller, to_host);
        to_controller.clear();
        let mut from = 0;
        loop {
            let (consumed, event) = host.next(&to_host[from..], to_controller);
            from += consumed;
            match event {
                initiator::Event::Starved => break,
                initiator::Event::Step | initiator::Event::Initialised => {}
                initiator::Event::Send(outgoing) => append(outgoing, to_controller),
                initiator::Event::Payload { bytes, .. } => {
                    host.took(&to_host[from..][..bytes as usize]);
                    from += bytes as usize;
                }
                initiator::Event::Completed { intact, .. } => assert!(intact),
                initiator::Event::Terminated(termination) => panic!("{termination}"),
            }
        }
        to_host.clear();
    }
}

fn append(outgoing: initiator::Outgoing, to_controller: &mut Vec<u8>) {
    let start = to_controller.len();
    to_controller.resize(start + outgoing.bytes as usize, 9);
    let mut digest = outgoing.digest.unwrap();
    digest.update(&to_controller[start..]);
    to_controller.extend_from_slice(&digest.bytes());
}

#[test]
fn commands_and_data_cost_no_allocation() {
    let mut to_controller = Vec::with_capacity(1 << 20);
    let mut to_host = Vec::with_capacity(1 << 20);
    let config = InitiatorConfig { header_digest: true, data_digest: true, ..InitiatorConfig::default() };
    let mut host = Initiator::new(config, &mut to_controller);
    let mut controller = Target::new(TargetConfig::default());
    controller.open_queue(32, true);
    let mut entries = [[0; SUBMISSION_BYTES]; 32];
    talk(&mut host, &mut controller, &mut entries, &mut to_controller, &mut to_host);

    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        for (opcode, transfer) in [
            (0, Transfer::None),
            (1, Transfer::ToController(4096)),
            (1, Transfer::ToController(100_000)),
            (2, Transfer::ToHost(4096)),
            (2, Transfer::ToHost(100_000)),
        ] {
            let mut entry = [0; SUBMISSION_BYTES];
            entry[0] = opcode;
            let (_, outgoing) = host.submit(&entry, transfer, &mut to_controller).unwrap();
            if let Some(outgoing) = outgoing {
                append(outgoing, &mut to_controller);
            }
        }
        talk(&mut host, &mut controller, &mut entries, &mut to_controller, &mut to_host);
        assert_eq!((host.commands_under_way(), controller.commands_under_way()), (0, 0));
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

/// A stream at whose other end the controller is.
struct Line {
    controller: Target,
    entries: [[u8; SUBMISSION_BYTES]; 32],
    to_controller: Vec<u8>,
    to_host: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_controller.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        serve(&mut self.controller, &mut self.entries, &self.to_controller, &mut self.to_host);
        self.to_controller.clear();
        Ok(())
    }
}

impl Read for Line {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = room.len().min(self.to_host.len());
        room[..bytes].copy_from_slice(&self.to_host[..bytes]);
        self.to_host.drain(..bytes);
        Ok(bytes)
    }
}

#[test]
fn commands_of_a_client_cost_no_allocation() {
    let mut controller = Target::new(TargetConfig::default());
    controller.open_queue(32, true);
    let (to_controller, to_host) = (Vec::with_capacity(8 << 20), Vec::with_capacity(8 << 20));
    let line = Line { controller, entries: [[0; SUBMISSION_BYTES]; 32], to_controller, to_host };
    let config = InitiatorConfig { header_digest: true, data_digest: true, ..InitiatorConfig::default() };
    let mut client = Client::open(line, config).unwrap();
    let submit = |client: &mut Client<Line>, tag: u64, data: Vec<u8>| {
        let mut entry = [0; SUBMISSION_BYTES];
        let is_write = tag.is_multiple_of(2);
        entry[0] = if is_write { 1 } else { 2 };
        client.submit(tag, &entry, if is_write { Payload::ToController(data) } else { Payload::ToHost(data) });
    };
    let mut before = 0;
    for round in 0..20 {
        // The first rounds find out how much room the output needs, which grows by doubling.
        if round == 5 {
            before = ALLOCATIONS.get();
        }
        if round == 0 {
            (0..31).for_each(|tag| submit(&mut client, tag, vec![5; if tag % 3 == 0 { 100_000 } else { 4096 }]));
        }
        for _ in 0..31 {
            let ended = client.wait().unwrap();
            assert!(ended.status() == 0 && ended.intact);
            submit(&mut client, ended.tag, ended.data);
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
