//! A host on a stream that blocks: one queue of a controller, with many commands under way.
//!
//! ```text
//!   open ──▶ connect ──▶ [Admin Queue: start_controller, identify, …]  ──▶ submit …, wait … ──▶ disconnect
//! ```
//!
//! The stream is anything that reads and writes, so this needs no socket either. Buffers of commands belong to the client
//! while they are under way and come back when they have ended.
//!
//! A controller may take nothing before it has got rid of what it sends, and would then wait for us as we for it. A stream
//! that is to carry long reads and long writes at once therefore says [`WouldBlock`](io::ErrorKind::WouldBlock) to a write
//! when there is something to read; then that is read first. Where a write simply blocks, whoever has both under way keeps
//! them below what the stream holds on its way.

use std::io::{self, Read, Write};

use crate::error::Termination;
use crate::fabrics::{self, Connected, Identity, NqnError, PropertyName, QueueParameters};
use crate::initiator::{CommandId, Event, Initiator, InitiatorConfig, Outgoing, Transfer};
use crate::nvm::{self, Blocks, IDENTIFY_BYTES, Lifetime, LogPart, ZonePlace};
use crate::sgl::Completion;
use crate::{COMPLETION_BYTES, SUBMISSION_BYTES};
use zerocopy::IntoBytes;

/// Bytes of the receive buffer.
const INPUT_BYTES: usize = 128 << 10;

/// Free room at the buffer's end below which its contents are moved to the front.
const INPUT_ROOM_BYTES_MIN: usize = 16 << 10;

/// Data of this many bytes or more are received straight to where they belong.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Bytes of output that are sent are dropped when there are more of them than this, and than of others.
const SENT_BYTES_MAX: usize = 256 << 10;

/// CC of a controller that is to start: entries of 64 and 16 bytes, pages of 4 KiB, the NVM Command Set (Base,
/// "Controller Configuration").
const CC_START: u64 = 4 << 20 | 6 << 16 | 1;

/// CC.CSS 110b: all command sets that the controller has; in place of the NVM Command Set where CAP has bit 43.
const CC_ALL_COMMAND_SETS: u64 = 0b110 << 4;
const CAP_ALL_COMMAND_SETS: u64 = 1 << 43;

/// CSTS.RDY and CSTS.CFS (Base, "Controller Status").
const CSTS_READY: u64 = 1 << 0;
const CSTS_FATAL: u64 = 1 << 1;

/// The data of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// None.
    None,
    /// For the controller.
    ToController(Vec<u8>),
    /// Room for data from the controller.
    ToHost(Vec<u8>),
}

/// A command that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// As given when it was submitted.
    pub tag: u64,
    /// How.
    pub completion: Completion,
    /// Its buffer.
    pub data: Vec<u8>,
    /// Bytes of data that came.
    pub received: usize,
    /// Whether their digests were right.
    pub intact: bool,
}

impl Ended {
    /// Status without the phase tag; zero is success.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.completion.status.get() >> 1
    }
}

/// Why a client cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The stream broke.
    #[error("the connection broke: {0}")]
    Stream(#[from] io::Error),
    /// The stream ended.
    #[error("the controller closed the connection")]
    Closed,
    /// By the protocol's rules.
    #[error("{0}")]
    Terminated(#[from] Termination),
    /// A name that cannot be sent.
    #[error("{0}")]
    Nqn(#[from] NqnError),
    /// The controller refused a command.
    #[error("{what} failed with status code type {:#x}, status code {:#04x}", status >> 8 & 7, status & 0xff)]
    Refused {
        /// The command.
        what: &'static str,
        /// Status without the phase tag.
        status: u16,
    },
    /// The data of a command did not come as they were sent.
    #[error("the data of {what} were damaged on the way; their digest is wrong")]
    Damaged {
        /// The command.
        what: &'static str,
    },
    /// Fewer data than the command has.
    #[error("{what} brought {received} bytes of {wanted}")]
    Short {
        /// The command.
        what: &'static str,
        /// Bytes that came.
        received: usize,
        /// Bytes that were wanted.
        wanted: usize,
    },
    /// The controller does not start.
    #[error("the controller does not become ready (CSTS {status:#x})")]
    NotReady {
        /// CSTS.
        status: u64,
    },
}

struct Op {
    tag: u64,
    data: Vec<u8>,
}

/// One queue of a controller.
pub struct Client<S> {
    stream: S,
    initiator: Initiator,
    output: Vec<u8>,
    /// Bytes of the output that the stream has taken.
    sent: usize,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// By identifier.
    ops: Vec<Option<Op>>,
}

impl<S: Read + Write> Client<S> {
    /// Initialises a connection: ICReq and ICResp.
    ///
    /// # Errors
    /// What went wrong with the stream or the answer.
    pub fn open(stream: S, config: InitiatorConfig) -> Result<Client<S>, ClientError> {
        let mut output = Vec::new();
        let initiator = Initiator::new(config, &mut output);
        let mut ops = Vec::new();
        ops.resize_with(config.entries.into(), || None);
        let input = vec![0; INPUT_BYTES].into_boxed_slice();
        let mut client = Client { stream, initiator, output, sent: 0, input, start: 0, end: 0, ops };
        while !client.initiator.is_open() {
            client.send()?;
            client.receive()?;
            let ended = client.take()?;
            assert!(ended.is_none(), "no command was submitted");
        }
        Ok(client)
    }

    /// Connects the queue. On the Admin Queue `controller_id` is [`fabrics::CONTROLLER_ID_ANY`] or a wish, on others the
    /// one that the Admin Queue got.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(
        &mut self,
        queue: QueueParameters,
        identity: &Identity,
        controller_id: u16,
    ) -> Result<Connected, ClientError> {
        let data = fabrics::connect_data(identity, controller_id)?;
        let payload = Payload::ToController(data.as_bytes().to_vec());
        let ended = self.call("Connect", &fabrics::connect(queue), payload)?;
        Ok(Connected::of(&ended.completion))
    }

    /// Whether another command can be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.initiator.commands_under_way() < self.ops.len() - 1
    }

    /// Commands that have not ended.
    #[must_use]
    pub fn commands_under_way(&self) -> usize {
        self.initiator.commands_under_way()
    }

    /// Submits a command; only while there is room. It is sent at the latest by the next [`Client::wait`].
    pub fn submit(&mut self, tag: u64, entry: &[u8; SUBMISSION_BYTES], payload: Payload) {
        self.submit_with_list(tag, entry, &[], payload);
    }

    /// The same for a vector command whose list of addresses goes in the capsule.
    pub fn submit_with_list(&mut self, tag: u64, entry: &[u8; SUBMISSION_BYTES], list: &[u8], payload: Payload) {
        let (transfer, data) = match payload {
            Payload::None => (Transfer::None, Vec::new()),
            Payload::ToController(data) => (Transfer::ToController(length(&data)), data),
            Payload::ToHost(data) => (Transfer::ToHost(length(&data)), data),
        };
        let submitted = self.initiator.submit_with_list(entry, list, transfer, &mut self.output);
        let (command, outgoing) = submitted.expect("commands are submitted while there is room");
        self.ops[command.index()] = Some(Op { tag, data });
        if let Some(outgoing) = outgoing {
            append(&self.ops, outgoing, &mut self.output);
        }
    }

    /// Waits until one of the commands under way has ended, whichever is first.
    ///
    /// # Errors
    /// What ended the connection.
    pub fn wait(&mut self) -> Result<Ended, ClientError> {
        assert!(self.commands_under_way() > 0, "there is a command to wait for");
        loop {
            if let Some(ended) = self.take()? {
                return Ok(ended);
            }
            self.send()?;
            self.receive()?;
        }
    }

    /// On a stream that does not block: sends and receives what it takes and gives at once. `None` if no command has ended.
    ///
    /// # Errors
    /// What ended the connection.
    pub fn try_wait(&mut self) -> Result<Option<Ended>, ClientError> {
        loop {
            if let Some(ended) = self.take().or_else(not_yet)? {
                return Ok(Some(ended));
            }
            self.send()?;
            match self.receive() {
                Ok(()) => {}
                Err(error) => return not_yet(error),
            }
        }
    }

    /// What the client reads and writes.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The same.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Whether something waits to be sent.
    pub fn wants_to_send(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Runs one command while no other is under way. `what` names it in errors.
    ///
    /// # Errors
    /// [`ClientError`]; also if the controller refuses the command or its data do not come whole.
    pub fn call(
        &mut self,
        what: &'static str,
        entry: &[u8; SUBMISSION_BYTES],
        payload: Payload,
    ) -> Result<Ended, ClientError> {
        assert_eq!(self.commands_under_way(), 0, "a call is the only command under way");
        let wanted = if let Payload::ToHost(data) = &payload { data.len() } else { 0 };
        self.submit(0, entry, payload);
        let ended = self.wait()?;
        match (ended.status(), ended.received) {
            (0, _) if !ended.intact => Err(ClientError::Damaged { what }),
            (0, received) if received < wanted => Err(ClientError::Short { what, received, wanted }),
            (0, _) => Ok(ended),
            (status, _) => Err(ClientError::Refused { what, status }),
        }
    }

    /// Reads a property.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn property(&mut self, name: PropertyName) -> Result<u64, ClientError> {
        let ended = self.call("Property Get", &fabrics::property_get(name), Payload::None)?;
        Ok(ended.completion.specific.get())
    }

    /// Starts the controller of an Admin Queue, with all command sets that it has. Each time that it is not ready yet,
    /// `wait` takes a while and says whether to ask again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn start_controller(&mut self, mut wait: impl FnMut() -> bool) -> Result<(), ClientError> {
        let has_all = self.property(PropertyName::Cap)? & CAP_ALL_COMMAND_SETS != 0;
        let configuration = CC_START | if has_all { CC_ALL_COMMAND_SETS } else { 0 };
        self.call("Property Set", &fabrics::property_set(PropertyName::Cc, configuration), Payload::None)?;
        loop {
            let status = self.property(PropertyName::Csts)?;
            if status & CSTS_READY != 0 {
                return Ok(());
            }
            if status & CSTS_FATAL != 0 || !wait() {
                return Err(ClientError::NotReady { status });
            }
        }
    }

    /// Asks for I/O queues. Returns how many there may be.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn set_number_of_queues(&mut self, queues: u16) -> Result<u32, ClientError> {
        let ended = self.call("Set Features", &nvm::set_number_of_queues(queues), Payload::None)?;
        Ok(nvm::queues_granted(ended.completion.specific.get()))
    }

    /// The Identify data structure that CNS `structure` stands for.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn identify(&mut self, structure: u8, namespace: u32) -> Result<Vec<u8>, ClientError> {
        let room = Payload::ToHost(vec![0; IDENTIFY_BYTES]);
        Ok(self.call("Identify", &nvm::identify(structure, namespace), room)?.data)
    }

    /// The same, of the command set that CSI `command_set` stands for.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn identify_of_set(&mut self, structure: u8, namespace: u32, command_set: u8) -> Result<Vec<u8>, ClientError> {
        let room = Payload::ToHost(vec![0; IDENTIFY_BYTES]);
        let entry = nvm::identify_of_set(structure, namespace, command_set);
        Ok(self.call("Identify", &entry, room)?.data)
    }

    /// Part of a log page: as many bytes as `data` has room for.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn log_page(&mut self, part: LogPart, data: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let entry = nvm::get_log_page(part, length(&data));
        Ok(self.call("Get Log Page", &entry, Payload::ToHost(data))?.data)
    }

    /// The geometry of an Open-Channel namespace.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn geometry(&mut self, namespace: u32) -> Result<Vec<u8>, ClientError> {
        let room = Payload::ToHost(vec![0; IDENTIFY_BYTES]);
        Ok(self.call("Geometry", &nvm::geometry(namespace), room)?.data)
    }

    /// Tells the controller of an Admin Queue that its host is there; [`KeepAlive`](crate::keep_alive::KeepAlive) says
    /// when.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn keep_alive(&mut self) -> Result<(), ClientError> {
        self.call("Keep Alive", &nvm::keep_alive(), Payload::None).map(drop)
    }

    /// Has a namespace heed what writes say of how long their data live, by the controller of an Admin Queue.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn enable_directive(&mut self, namespace: u32, lifetime: Lifetime) -> Result<(), ClientError> {
        self.call("Directive Send", &nvm::enable_directive(namespace, lifetime), Payload::None).map(drop)
    }

    /// How many placement identifiers a namespace has.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn placement_identifiers(&mut self, namespace: u32) -> Result<u16, ClientError> {
        let room = Payload::ToHost(vec![0; nvm::HANDLE_STATUS_BYTES]);
        let head = self.call("I/O Management Receive", &nvm::handle_status(namespace), room)?.data;
        Ok(nvm::placement_identifiers(&head))
    }

    /// Reads blocks into `data`, which has as many bytes as they.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read(&mut self, blocks: Blocks, data: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        Ok(self.call("Read", &nvm::read(blocks), Payload::ToHost(data))?.data)
    }

    /// Writes blocks from `data`, which has as many bytes as they, and gives it back.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write(&mut self, blocks: Blocks, data: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        Ok(self.call("Write", &nvm::write(blocks), Payload::ToController(data))?.data)
    }

    /// A report of zones, as CDW13 `action` asks for it: as many bytes as `data` has room for.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn zone_report(&mut self, place: ZonePlace, action: u32, data: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let entry = nvm::zone_receive(place, action, length(&data));
        Ok(self.call("Zone Management Receive", &entry, Payload::ToHost(data))?.data)
    }

    /// Does with a zone, or with all, what CDW13 `action` says.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn zone_send(&mut self, place: ZonePlace, action: u32) -> Result<(), ClientError> {
        self.call("Zone Management Send", &nvm::zone_send(place, action), Payload::None).map(drop)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn flush(&mut self, namespace: u32) -> Result<(), ClientError> {
        self.call("Flush", &nvm::flush(namespace), Payload::None).map(drop)
    }

    /// Takes leave of an I/O queue; an Admin Queue is left by closing its stream.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        self.call("Disconnect", &fabrics::disconnect(), Payload::None).map(drop)
    }

    /// Goes through what was received until a command has ended or more is needed.
    fn take(&mut self) -> Result<Option<Ended>, ClientError> {
        loop {
            let (consumed, event) = self.initiator.next(&self.input[self.start..self.end], &mut self.output);
            self.start += consumed;
            match event {
                Event::Starved => return Ok(None),
                Event::Step | Event::Initialised => {}
                Event::Send(outgoing) => append(&self.ops, outgoing, &mut self.output),
                Event::Payload { command, offset, bytes } => {
                    if !self.take_payload(command, offset as usize, bytes as usize)? {
                        return Ok(None);
                    }
                }
                Event::Completed { command, entry, received, intact } => {
                    return Ok(Some(self.ended(command, entry, received as usize, intact)));
                }
                Event::Terminated(termination) => {
                    // A termination request of ours is said on the way out; whether it is heard matters no more.
                    let _ = self.send();
                    return Err(termination.into());
                }
            }
        }
    }

    /// Moves data to where they belong. False while none are there.
    fn take_payload(&mut self, command: CommandId, offset: usize, bytes: usize) -> Result<bool, ClientError> {
        let there = (self.end - self.start).min(bytes);
        if there == 0 && bytes >= DIRECT_BYTES_MIN {
            self.send()?;
        }
        let op = self.ops[command.index()].as_mut().expect("data are of a command under way");
        let room = &mut op.data[offset..offset + bytes];
        if there > 0 {
            let piece = &self.input[self.start..self.start + there];
            room[..there].copy_from_slice(piece);
            self.initiator.took(piece);
            self.start += there;
            return Ok(true);
        }
        if bytes < DIRECT_BYTES_MIN {
            return Ok(false);
        }
        let read = read_some(&mut self.stream, room)?;
        self.initiator.took(&room[..read]);
        Ok(true)
    }

    fn ended(&mut self, command: CommandId, entry: [u8; COMPLETION_BYTES], received: usize, intact: bool) -> Ended {
        let Op { tag, data } = self.ops[command.index()].take().expect("a command ends once");
        Ended { tag, completion: zerocopy::transmute!(entry), data, received, intact }
    }

    /// Sends what is in line, or as much of it as the stream takes before there is something to read. Waiting for the end of a command does so, too;
    /// this alone answers nothing that the controller asks.
    ///
    /// # Errors
    /// What ended the connection.
    pub fn send(&mut self) -> Result<(), ClientError> {
        if self.output.is_empty() {
            return Ok(());
        }
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.drop_sent();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(self.stream.flush()?)
    }

    /// Where there is always more to send the output is never empty, and it is not to keep what is sent.
    fn drop_sent(&mut self) {
        if self.sent > SENT_BYTES_MAX && self.sent > self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn receive(&mut self) -> Result<(), ClientError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.input.len() - self.end < INPUT_ROOM_BYTES_MIN {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.end += read_some(&mut self.stream, &mut self.input[self.end..])?;
        Ok(())
    }
}

/// A stream that does not block has nothing, which is no error.
fn not_yet(error: ClientError) -> Result<Option<Ended>, ClientError> {
    match error {
        ClientError::Stream(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        error => Err(error),
    }
}

fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("a command has less than 4 GiB of data")
}

fn append(ops: &[Option<Op>], outgoing: Outgoing, output: &mut Vec<u8>) {
    let Outgoing { command, offset, bytes, digest } = outgoing;
    let op = ops[command.index()].as_ref().expect("data are of a command under way");
    let data = &op.data[offset as usize..][..bytes as usize];
    output.extend_from_slice(data);
    if let Some(mut digest) = digest {
        digest.update(data);
        output.extend_from_slice(&digest.bytes());
    }
}

/// At least one byte.
fn read_some(stream: &mut impl Read, room: &mut [u8]) -> Result<usize, ClientError> {
    loop {
        match stream.read(room) {
            Ok(0) => return Err(ClientError::Closed),
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, and then none until it is given room again.
    #[derive(Default)]
    struct Narrow {
        room: usize,
        heard: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= taken;
            self.heard.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Narrow {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    #[test]
    fn output_that_is_never_sent_as_a_whole_does_not_grow() {
        let mut output = Vec::new();
        let initiator = Initiator::new(InitiatorConfig::default(), &mut output);
        let input = vec![0; INPUT_BYTES].into_boxed_slice();
        let stream = Narrow::default();
        let mut client = Client { stream, initiator, output, sent: 0, input, start: 0, end: 0, ops: Vec::new() };
        let mut said = client.output.clone();
        for round in 0..400_u32 {
            let piece = vec![round as u8; 50_000];
            said.extend_from_slice(&piece);
            client.output.extend_from_slice(&piece);
            client.stream.room = if round == 0 { 1000 } else { 50_000 };
            client.send().unwrap();
            assert!(client.wants_to_send());
            assert!(client.output.len() <= 2 * (SENT_BYTES_MAX + 100_000), "round {round}: {}", client.output.len());
        }
        client.stream.room = usize::MAX;
        client.send().unwrap();
        assert!(client.stream.heard == said && client.output.is_empty());
    }
}
