//! Throws bytes at either half and checks what must hold whatever they are. The seeded tests and the fuzzer share it.

use std::collections::BTreeMap;

use openftl_core::checksum::Crc32c;
use openftl_nvme_tcp::digest::DataDigest;
use openftl_nvme_tcp::fabrics::{self, QueueParameters};
use openftl_nvme_tcp::initiator::{self, Transfer};
use openftl_nvme_tcp::pdu::{CommonHeader, Framing, IcReq, IcResp, Kind, append};
use openftl_nvme_tcp::sgl::{Completion, Data, SglError, Submission};
use openftl_nvme_tcp::target::{self, Ending, Slot};
use openftl_nvme_tcp::{Initiator, InitiatorConfig, SUBMISSION_BYTES, Target, TargetConfig, Termination};

/// Entries of the queue that a listening controller opens.
pub const ENTRIES: u16 = 8;

/// More data than this a listening controller neither asks for nor sends.
pub const DATA_BYTES_MAX: u32 = 13_000;

/// What a stream of bytes led to, without what depends on how the stream was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A command came.
    Command { slot: Slot, opcode: u8, data: Result<Data, SglError> },
    /// The data that a command waited for came; their CRC32C.
    Data { slot: Slot, intact: bool, crc: u32 },
    /// A command of a host ended; the CRC32C of the data that came for it.
    Completed { command: usize, received: u32, intact: bool, crc: u32 },
    /// It is over.
    Terminated(Termination),
}

/// One half, listening.
pub trait Listener {
    /// Takes bytes as they arrive.
    fn hear(&mut self, bytes: &[u8]);
    /// Everything that it heard and everything that it said.
    fn transcript(self) -> (Vec<Heard>, Vec<u8>);
}

/// However a stream is cut into pieces, it leads to the same.
pub fn exercise<L: Listener>(new: impl Fn() -> L, data: &[u8], mut piece: impl FnMut() -> usize) -> Vec<Heard> {
    let mut whole = new();
    whole.hear(data);
    let mut pieces = new();
    let mut rest = data;
    while !rest.is_empty() {
        let (next, later) = rest.split_at(piece().clamp(1, rest.len()));
        pieces.hear(next);
        rest = later;
    }
    let (whole, pieces) = (whole.transcript(), pieces.transcript());
    assert!(whole == pieces, "what is heard or said depends on how the bytes arrived: {:?} {:?}", whole.0, pieces.0);
    whole.0
}

fn append_zeroes(bytes: u32, digest: Option<DataDigest>, output: &mut Vec<u8>) {
    let start = output.len();
    output.resize(start + bytes as usize, 0);
    if let Some(mut digest) = digest {
        digest.update(&output[start..]);
        output.extend_from_slice(&digest.bytes());
    }
}

struct Op {
    entry: [u8; SUBMISSION_BYTES],
    /// Bytes that are still to be asked for.
    to_request: u32,
    crc: Crc32c,
}

/// A controller that answers every command at once.
pub struct Controller {
    target: Target,
    connected: bool,
    ops: BTreeMap<Slot, Op>,
    input: Vec<u8>,
    heard: Vec<Heard>,
    output: Vec<u8>,
}

impl Controller {
    pub fn new(config: TargetConfig) -> Controller {
        Controller {
            target: Target::new(config),
            connected: false,
            ops: BTreeMap::new(),
            input: Vec::new(),
            heard: Vec::new(),
            output: Vec::new(),
        }
    }

    /// What it said since it was last asked.
    pub fn said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    fn command(&mut self, slot: Slot, entry: [u8; SUBMISSION_BYTES], data: Result<Data, SglError>) {
        let op = Op { entry, to_request: 0, crc: Crc32c::new() };
        assert!(self.ops.insert(slot, op).is_none(), "a slot names two commands");
        let op = self.ops.get_mut(&slot).expect("just put there");
        match data {
            Err(error) => self.complete(slot, error.status_code()),
            // A Compare is refused before its data have come.
            Ok(Data::InCapsule(_)) if entry[0] == 0x05 => self.complete(slot, 0x01),
            Ok(Data::InCapsule(_)) => {}
            Ok(Data::OnRequest(bytes)) if bytes <= DATA_BYTES_MAX => {
                // Half of it, then all: two R2Ts where the host takes them. The rest follows when those have come.
                op.to_request = bytes / 4;
                let now = bytes - op.to_request;
                for piece in [now / 2, now - now / 2] {
                    if piece > 0 {
                        self.target.request(slot, piece, &mut self.output);
                    }
                }
            }
            Ok(Data::ToHost(bytes)) if bytes <= DATA_BYTES_MAX => {
                let first = bytes / 3;
                if first > 0 {
                    let digest = self.target.send_data(slot, first, Ending::More, &mut self.output);
                    append_zeroes(first, digest, &mut self.output);
                }
                let ending = if self.target.may_omit_response() { Ending::LastAndSuccess } else { Ending::Last };
                let digest = self.target.send_data(slot, bytes - first, ending, &mut self.output);
                append_zeroes(bytes - first, digest, &mut self.output);
                if ending == Ending::Last {
                    self.complete(slot, 0);
                } else {
                    self.ops.remove(&slot);
                }
            }
            Ok(Data::None) => self.complete(slot, 0),
            Ok(_) => self.complete(slot, 0x02),
        }
    }

    fn complete(&mut self, slot: Slot, status: u8) {
        let Op { entry, .. } = self.ops.remove(&slot).expect("known");
        let submission = Submission::of(&entry);
        if submission.is_fabrics() && submission.fabrics_type == 0x01 && status == 0 && !self.connected {
            self.connected = true;
            self.target.open_queue(ENTRIES.into(), entry[46] & fabrics::DISABLE_FLOW_CONTROL == 0);
        }
        let completion = Completion {
            specific: 0.into(),
            submission_head: 0.into(),
            queue_id: 0.into(),
            command_id: submission.command_id,
            status: (u16::from(status) << 1).into(),
        };
        self.target.complete(slot, &zerocopy::transmute!(completion), &mut self.output);
    }
}

impl Listener for Controller {
    fn hear(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut from = 0;
        // Every event consumes something or is the only one of its kind at a place.
        let mut turns_left = 4 * input.len() + 16;
        loop {
            turns_left = turns_left.checked_sub(1).expect("it goes round in circles");
            let said = self.output.len();
            let (consumed, event) = self.target.next(&input[from..], &mut self.output);
            assert!(consumed <= input.len() - from, "consumed more than there was");
            assert!(self.output.len() - said <= target::ANSWER_BYTES_MAX, "an answer that is too long");
            assert!(self.target.commands_under_way() <= ENTRIES.into(), "more commands than entries");
            from += consumed;
            match event {
                target::Event::Starved => {
                    assert!(input.len() - from < target::INPUT_BYTES_MIN, "starved with a whole header");
                    assert_eq!(self.output.len(), said, "half a header was answered");
                    break;
                }
                target::Event::Step => {}
                target::Event::Command { slot, entry, data, .. } => {
                    self.heard.push(Heard::Command { slot, opcode: entry[0], data });
                    self.command(slot, entry, data);
                }
                target::Event::Payload { slot, bytes, .. } => {
                    let there = (input.len() - from).min(bytes as usize);
                    if there == 0 {
                        break;
                    }
                    let piece = &input[from..][..there];
                    self.ops.get_mut(&slot).expect("known").crc.update(piece);
                    self.target.took(piece);
                    from += there;
                }
                target::Event::PayloadComplete { slot, intact } => {
                    let op = self.ops.get_mut(&slot).expect("known");
                    self.heard.push(Heard::Data { slot, intact, crc: op.crc.value() });
                    let rest = std::mem::take(&mut op.to_request);
                    if rest > 0 && intact {
                        self.target.request(slot, rest, &mut self.output);
                    } else {
                        self.complete(slot, if intact { 0 } else { 0x22 });
                    }
                }
                target::Event::Terminated(termination) => {
                    if !matches!(self.heard.last(), Some(Heard::Terminated(_))) {
                        self.heard.push(Heard::Terminated(termination));
                    }
                    assert!(self.target.is_terminated());
                    break;
                }
            }
        }
        self.input = input[from..].to_vec();
    }

    fn transcript(self) -> (Vec<Heard>, Vec<u8>) {
        (self.heard, self.output)
    }
}

/// Opcodes and bytes of data of a listening host's commands, one after the other: with 1 and 5 to the controller, with 2
/// from there.
const COMMANDS: [(u8, u32); 13] = [
    (1, 512),
    (5, 600),
    (2, 4096),
    (0, 0),
    (1, 8192),
    (1, 8193),
    (2, 1),
    (1, 10_000),
    (2, 10_000),
    (2, 512),
    (1, 13_000),
    (0, 0),
    (2, 12_999),
];

/// A host that connects and then has one command after the other, several under way.
pub struct Host {
    initiator: Initiator,
    flow_control: bool,
    submitted: usize,
    crcs: BTreeMap<usize, Crc32c>,
    input: Vec<u8>,
    heard: Vec<Heard>,
    output: Vec<u8>,
}

impl Host {
    pub fn new(config: InitiatorConfig, flow_control: bool) -> Host {
        let mut output = Vec::new();
        let initiator = Initiator::new(InitiatorConfig { entries: ENTRIES, ..config }, &mut output);
        let (crcs, input, heard) = (BTreeMap::new(), Vec::new(), Vec::new());
        Host { initiator, flow_control, submitted: 0, crcs, input, heard, output }
    }

    /// What it said since it was last asked.
    pub fn said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Whether all of its commands have ended well.
    pub fn is_done(&self) -> bool {
        self.submitted == COMMANDS.len() + 1 && self.initiator.commands_under_way() == 0
    }

    fn submit(&mut self) {
        let (entry, transfer) = match self.submitted {
            0 => {
                let queue = QueueParameters {
                    queue_id: 1,
                    entries: ENTRIES,
                    flow_control: self.flow_control,
                    keep_alive_ms: 0,
                };
                (fabrics::connect(queue), Transfer::ToController(1024))
            }
            index => {
                let Some(&(opcode, bytes)) = COMMANDS.get(index - 1) else { return };
                let mut entry = [0; SUBMISSION_BYTES];
                entry[0] = opcode;
                let transfer = match opcode {
                    0 => Transfer::None,
                    1 | 5 => Transfer::ToController(bytes),
                    _ => Transfer::ToHost(bytes),
                };
                (entry, transfer)
            }
        };
        if self.submitted == 1 && self.initiator.commands_under_way() > 0 {
            return;
        }
        let Some((command, outgoing)) = self.initiator.submit(&entry, transfer, &mut self.output) else { return };
        self.crcs.insert(command.index(), Crc32c::new());
        if let Some(outgoing) = outgoing {
            append_zeroes(outgoing.bytes, outgoing.digest, &mut self.output);
        }
        self.submitted += 1;
        self.submit();
    }
}

impl Listener for Host {
    fn hear(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut from = 0;
        let mut turns_left = 4 * input.len() + 16;
        loop {
            turns_left = turns_left.checked_sub(1).expect("it goes round in circles");
            let said = self.output.len();
            let (consumed, event) = self.initiator.next(&input[from..], &mut self.output);
            assert!(consumed <= input.len() - from, "consumed more than there was");
            assert!(self.output.len() - said <= initiator::ANSWER_BYTES_MAX, "an answer that is too long");
            from += consumed;
            match event {
                initiator::Event::Starved => {
                    assert!(input.len() - from < initiator::INPUT_BYTES_MIN, "starved with a whole header");
                    assert_eq!(self.output.len(), said, "half a header was answered");
                    break;
                }
                initiator::Event::Step => {}
                initiator::Event::Initialised => self.submit(),
                initiator::Event::Send(outgoing) => {
                    append_zeroes(outgoing.bytes, outgoing.digest, &mut self.output);
                }
                initiator::Event::Payload { command, bytes, .. } => {
                    let there = (input.len() - from).min(bytes as usize);
                    if there == 0 {
                        break;
                    }
                    let piece = &input[from..][..there];
                    self.crcs.get_mut(&command.index()).expect("known").update(piece);
                    self.initiator.took(piece);
                    from += there;
                }
                initiator::Event::Completed { command, received, intact, .. } => {
                    let crc = self.crcs.remove(&command.index()).expect("a command ends once").value();
                    self.heard.push(Heard::Completed { command: command.index(), received, intact, crc });
                    self.submit();
                }
                initiator::Event::Terminated(termination) => {
                    if !matches!(self.heard.last(), Some(Heard::Terminated(_))) {
                        self.heard.push(Heard::Terminated(termination));
                    }
                    break;
                }
            }
        }
        self.input = input[from..].to_vec();
    }

    fn transcript(self) -> (Vec<Heard>, Vec<u8>) {
        (self.heard, self.output)
    }
}

/// A whole session: what the host said and what the controller said.
pub fn session(host: InitiatorConfig, controller: TargetConfig, flow_control: bool) -> (Vec<u8>, Vec<u8>) {
    let mut host = Host::new(host, flow_control);
    let mut controller = Controller::new(controller);
    let (mut to_controller, mut to_host) = (Vec::new(), Vec::new());
    loop {
        let piece = host.said();
        controller.hear(&piece);
        to_controller.extend(piece);
        let piece = controller.said();
        host.hear(&piece);
        to_host.extend_from_slice(&piece);
        if piece.is_empty() && host.output.is_empty() {
            break;
        }
    }
    assert!(host.is_done(), "{:?} {:?}", host.heard, controller.heard);
    (to_controller, to_host)
}

/// ICReq and an accepted Connect: what a host says before it does anything else.
pub fn greeting_of_a_host(flow_control: bool) -> Vec<u8> {
    let mut host = Host::new(InitiatorConfig::default(), flow_control);
    let mut said = host.said();
    let common = CommonHeader::new(Kind::IcResp, 0);
    let mut response = Vec::new();
    let h2c_data_bytes_max = 4096.into();
    let header = IcResp {
        common,
        format_version: 0.into(),
        controller_alignment: 0,
        digests: 0,
        h2c_data_bytes_max,
        reserved: [0; 112],
    };
    append(&header, 0, Framing::BARE, &mut response);
    host.hear(&response);
    said.extend(host.said());
    assert_eq!(said.len(), size_of::<IcReq>() + 72 + 1024, "the Connect alone, without digests");
    said
}
