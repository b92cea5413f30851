//! A controller on a target: a piece of memory that hosts write and read, with whims of its own.

use std::collections::BTreeMap;

use openftl_nvme_tcp::sgl::{Completion, Data, Submission};
use openftl_nvme_tcp::target::{ANSWER_BYTES_MAX, Ending, Event, INPUT_BYTES_MIN, Slot};
use openftl_nvme_tcp::{SUBMISSION_BYTES, Target, TargetConfig, Termination};
use zerocopy::FromZeros;

use super::{Chance, Stream};

/// Status of a command of which data were damaged on the way: Transient Transport Error.
pub const TRANSIENT_TRANSPORT_ERROR: u16 = 0x22;

struct Op {
    entry: [u8; SUBMISSION_BYTES],
    data: Data,
    buffer: Vec<u8>,
    requested: usize,
    sent: usize,
    status: Option<u16>,
    is_filling: bool,
}

pub struct Controller {
    pub target: Target,
    pub memory: Vec<u8>,
    pub flow_control: bool,
    pub entries: usize,
    pub termination: Option<Termination>,
    /// Bytes in a unit of CDW10.
    pub block_bytes: usize,
    /// The status of every command but Connect and Property commands.
    pub status: u16,
    /// Response capsules that the SUCCESS flag saved.
    pub successes: usize,
    ops: BTreeMap<Slot, Op>,
    input: Vec<u8>,
    head: u16,
    configuration: u64,
    connected: bool,
}

fn dword(entry: &[u8; SUBMISSION_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
}

impl Controller {
    pub fn new(config: TargetConfig, entries: usize, flow_control: bool, memory: usize) -> Controller {
        Controller {
            target: Target::new(config),
            memory: vec![0; memory],
            flow_control,
            entries,
            termination: None,
            block_bytes: 1,
            status: 0,
            successes: 0,
            ops: BTreeMap::new(),
            input: Vec::new(),
            head: 0,
            configuration: 0,
            connected: false,
        }
    }

    /// Takes bytes from the host and does what they ask for.
    pub fn hear(&mut self, bytes: &[u8], chance: &mut Chance, out: &mut Stream) {
        self.input.extend_from_slice(bytes);
        let mut from = 0;
        while self.termination.is_none() {
            let said = out.bytes.len();
            let (consumed, event) = self.target.next(&self.input[from..], &mut out.bytes);
            from += consumed;
            assert!(out.bytes.len() - said <= ANSWER_BYTES_MAX, "an answer that is too long");
            match event {
                Event::Starved => {
                    assert!(self.input.len() - from < INPUT_BYTES_MIN, "starved with a whole header");
                    break;
                }
                Event::Step => {}
                Event::Command { slot, entry, data, .. } => {
                    self.head = (self.head + 1) % self.entries as u16;
                    let data = data.expect("our host makes no wrong descriptors");
                    let bytes = match data {
                        Data::None => 0,
                        Data::InCapsule(bytes) | Data::OnRequest(bytes) | Data::ToHost(bytes) => bytes as usize,
                    };
                    let is_filling = matches!(data, Data::InCapsule(_));
                    let mut buffer = vec![0; bytes];
                    if let Data::ToHost(_) = data {
                        // An Identify brings its CNS, again and again; everything else what is in memory.
                        if entry[0] == 0x06 {
                            buffer.fill(entry[40]);
                        } else {
                            buffer.copy_from_slice(&self.memory[self.place(&entry)..][..bytes]);
                        }
                    }
                    let op = Op { entry, data, buffer, requested: 0, sent: 0, status: None, is_filling };
                    assert!(self.ops.insert(slot, op).is_none(), "a slot names two commands");
                }
                Event::Payload { slot, offset, bytes } => {
                    let there = (self.input.len() - from).min(bytes as usize);
                    if there == 0 {
                        break;
                    }
                    let taken = 1 + chance.below(there);
                    let piece = &self.input[from..][..taken.min(there)];
                    self.ops.get_mut(&slot).expect("known").buffer[offset as usize..][..piece.len()]
                        .copy_from_slice(piece);
                    self.target.took(piece);
                    from += piece.len();
                }
                Event::PayloadComplete { slot, intact } => {
                    let op = self.ops.get_mut(&slot).expect("known");
                    op.is_filling = false;
                    if !intact {
                        op.status = Some(TRANSIENT_TRANSPORT_ERROR);
                    }
                }
                Event::Terminated(termination) => self.termination = Some(termination),
            }
        }
        self.input.drain(..from);
    }

    /// Goes on with one of the commands. Returns whether there is any that it could go on with.
    pub fn work(&mut self, chance: &mut Chance, out: &mut Stream) -> bool {
        if self.termination.is_some() {
            return false;
        }
        let ready: Vec<Slot> = self.ops.iter().filter(|(_, op)| !op.is_filling).map(|(slot, _)| *slot).collect();
        let Some(&slot) = ready.get(chance.below(ready.len())) else { return false };
        let op = self.ops.get_mut(&slot).expect("known");
        match op.data {
            _ if op.status.is_some() => self.complete(slot, out),
            Data::OnRequest(_) if op.requested < op.buffer.len() => {
                // Sometimes several calls for data at once.
                for _ in 0..1 + chance.below(3) {
                    let left = op.buffer.len() - op.requested;
                    if left == 0 {
                        break;
                    }
                    let bytes = if chance.below(2) == 0 { left } else { 1 + chance.below(left) };
                    self.target.request(slot, bytes as u32, &mut out.bytes);
                    op.requested += bytes;
                }
                op.is_filling = true;
            }
            Data::ToHost(_) if op.sent < op.buffer.len() => {
                let left = op.buffer.len() - op.sent;
                let bytes = if chance.below(2) == 0 { left } else { 1 + chance.below(left) };
                let ending = match bytes == left {
                    false => Ending::More,
                    true if self.target.may_omit_response() && chance.below(2) == 0 => Ending::LastAndSuccess,
                    true => Ending::Last,
                };
                let digest = self.target.send_data(slot, bytes as u32, ending, &mut out.bytes);
                let piece = &op.buffer[op.sent..][..bytes];
                out.data(piece);
                if let Some(mut digest) = digest {
                    let (front, back) = piece.split_at(bytes / 2);
                    digest.update(front);
                    digest.update(back);
                    out.bytes.extend_from_slice(&digest.bytes());
                }
                op.sent += bytes;
                if ending == Ending::LastAndSuccess {
                    self.successes += 1;
                    self.ops.remove(&slot);
                }
            }
            Data::InCapsule(_) | Data::OnRequest(_) => {
                if Submission::of(&op.entry).opcode == 0x01 {
                    let start = dword(&op.entry, 40) as usize * self.block_bytes;
                    self.memory[start..start + op.buffer.len()].copy_from_slice(&op.buffer);
                }
                self.complete(slot, out);
            }
            Data::None | Data::ToHost(_) => self.complete(slot, out),
        }
        true
    }

    /// Where a command's data lie in memory, in bytes.
    fn place(&self, entry: &[u8; SUBMISSION_BYTES]) -> usize {
        dword(entry, 40) as usize * self.block_bytes
    }

    fn complete(&mut self, slot: Slot, out: &mut Stream) {
        let op = self.ops.remove(&slot).expect("known");
        let submission = Submission::of(&op.entry);
        if submission.is_fabrics() && submission.fabrics_type == 0x01 && !self.connected {
            self.connected = true;
            self.target.open_queue(self.entries, self.flow_control);
        }
        let mut completion = Completion::new_zeroed();
        completion.command_id = submission.command_id;
        completion.submission_head = if self.flow_control { self.head.into() } else { 0xffff.into() };
        completion.status = (op.status.unwrap_or(0) << 1).into();
        match (submission.is_fabrics(), submission.fabrics_type) {
            (true, 0x00) => self.configuration = dword(&op.entry, 48).into(),
            (true, 0x01) => completion.specific = 5.into(),
            // CC, and CSTS, which is ready one question later than it might be.
            (true, 0x04) if dword(&op.entry, 44) == 0x14 => completion.specific = self.configuration.into(),
            (true, 0x04) if dword(&op.entry, 44) == 0x1c => {
                completion.specific = (self.configuration >> 31 & 1).into();
                self.configuration |= (self.configuration & 1) << 31;
            }
            (true, _) => {}
            // Nine queues for submission, two for completion.
            (false, _) if op.entry[0] == 0x09 => completion.specific = 0x0001_0008.into(),
            (false, _) => completion.status = (op.status.unwrap_or(self.status) << 1).into(),
        }
        self.target.complete(slot, &zerocopy::transmute!(completion), &mut out.bytes);
    }
}
