//! A host on an initiator: it submits commands and keeps their data.

use std::collections::BTreeMap;

use openftl_nvme_tcp::initiator::{ANSWER_BYTES_MAX, CommandId, Event, INPUT_BYTES_MIN, Outgoing, Transfer};
use openftl_nvme_tcp::sgl::Completion;
use openftl_nvme_tcp::{Initiator, InitiatorConfig, SUBMISSION_BYTES, Termination};

use super::{Chance, Stream};

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    pub tag: u64,
    pub completion: Completion,
    pub data: Vec<u8>,
    pub received: usize,
    pub intact: bool,
}

struct Op {
    tag: u64,
    data: Vec<u8>,
}

pub struct Host {
    pub initiator: Initiator,
    pub termination: Option<Termination>,
    pub ended: Vec<Ended>,
    ops: BTreeMap<CommandId, Op>,
    input: Vec<u8>,
}

impl Host {
    pub fn new(config: InitiatorConfig, out: &mut Stream) -> Host {
        Host {
            initiator: Initiator::new(config, &mut out.bytes),
            termination: None,
            ended: Vec::new(),
            ops: BTreeMap::new(),
            input: Vec::new(),
        }
    }

    /// Submits a command with data for the controller, or with room for data from there. False while the queue is full.
    pub fn submit(
        &mut self,
        tag: u64,
        entry: &[u8; SUBMISSION_BYTES],
        transfer: Transfer,
        data: Vec<u8>,
        out: &mut Stream,
    ) -> bool {
        let Some((command, outgoing)) = self.initiator.submit(entry, transfer, &mut out.bytes) else { return false };
        assert!(self.ops.insert(command, Op { tag, data }).is_none(), "an identifier names two commands");
        if let Some(outgoing) = outgoing {
            self.send(outgoing, out);
        }
        true
    }

    fn send(&mut self, outgoing: Outgoing, out: &mut Stream) {
        let Outgoing { command, offset, bytes, digest } = outgoing;
        let piece = &self.ops[&command].data[offset as usize..][..bytes as usize];
        out.data(piece);
        if let Some(mut digest) = digest {
            digest.update(piece);
            out.bytes.extend_from_slice(&digest.bytes());
        }
    }

    /// Takes bytes from the controller.
    pub fn hear(&mut self, bytes: &[u8], chance: &mut Chance, out: &mut Stream) {
        self.input.extend_from_slice(bytes);
        let mut from = 0;
        while self.termination.is_none() {
            let said = out.bytes.len();
            let (consumed, event) = self.initiator.next(&self.input[from..], &mut out.bytes);
            from += consumed;
            assert!(out.bytes.len() - said <= ANSWER_BYTES_MAX, "an answer that is too long");
            match event {
                Event::Starved => {
                    assert!(self.input.len() - from < INPUT_BYTES_MIN, "starved with a whole header");
                    break;
                }
                Event::Step | Event::Initialised => {}
                Event::Send(outgoing) => self.send(outgoing, out),
                Event::Payload { command, offset, bytes } => {
                    let there = (self.input.len() - from).min(bytes as usize);
                    if there == 0 {
                        break;
                    }
                    let piece = &self.input[from..][..(1 + chance.below(there)).min(there)];
                    self.ops.get_mut(&command).expect("known").data[offset as usize..][..piece.len()]
                        .copy_from_slice(piece);
                    self.initiator.took(piece);
                    from += piece.len();
                }
                Event::Completed { command, entry, received, intact } => {
                    let Op { tag, data } = self.ops.remove(&command).expect("a command ends once");
                    let completion = zerocopy::transmute!(entry);
                    self.ended.push(Ended { tag, completion, data, received: received as usize, intact });
                }
                Event::Terminated(termination) => self.termination = Some(termination),
            }
        }
        self.input.drain(..from);
    }
}
