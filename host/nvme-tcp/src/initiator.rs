//! The host's half of a connection.
//!
//! ```text
//!           ICReq             ICResp
//!   new ──────────▶ waiting ─────────▶ a queue: submit …, next …        ──▶ terminated
//! ```
//!
//! Like the controller's half, it holds no payload. [`Initiator::submit`] appends a command; data that fit into its
//! capsule are put behind it by the owner. [`Initiator::next`] says what the controller wants ([`Event::Send`]), whose
//! data come ([`Event::Payload`]) and what has ended ([`Event::Completed`]).

use crate::digest::DataDigest;
use crate::error::{FatalError, FatalErrorStatus, Termination};
use crate::pdu::{
    ALIGNMENT_CODE_MAX, C2hData, CapsuleCmd, CapsuleResp, CommonHeader, FORMAT_VERSION, Framing, H2C_DATA_BYTES_MIN,
    H2cData, HEAD_BYTES_MAX, IN_CAPSULE_BYTES_MAX, IcReq, IcResp, Kind, Layout, R2t, Side, TERM_REQ_BYTES_MAX, TermReq,
    append, append_term_req, digest_bit, flag, read,
};
use crate::receiver::{Fault, Received, Receiver};
use crate::sgl::{Completion, IN_CAPSULE, SGL_DATA, SglDescriptor, Submission, TRANSPORT};
use crate::{COMPLETION_BYTES, SUBMISSION_BYTES};

/// The most bytes that [`Initiator::next`] looks at in one piece, so the least room that a receive buffer needs.
pub const INPUT_BYTES_MIN: usize = HEAD_BYTES_MAX;

/// The most bytes that [`Initiator::next`] says by itself.
pub const ANSWER_BYTES_MAX: usize = TERM_REQ_BYTES_MAX;

/// What a host asks of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitiatorConfig {
    /// Whether to ask for header digests.
    pub header_digest: bool,
    /// Whether to ask for data digests.
    pub data_digest: bool,
    /// HPDA: alignment of data to the host in dwords, 0-based. Some controllers take only 0.
    pub alignment: u8,
    /// MAXR2T, not 0-based: R2Ts that the controller may have under way for one command.
    pub r2ts_max: u32,
    /// Entries of the queue, at least 2; one less is the most commands under way.
    pub entries: u16,
    /// The most bytes of data in a capsule: 8192 on an Admin Queue, on others what IOCCSZ leaves room for (Fabrics
    /// commands may always have 8192). Less is allowed, but Linux's controller, told of data that would have fit, waits
    /// for them in the capsule and not for an answer to an R2T.
    pub in_capsule_bytes_max: u32,
}

impl Default for InitiatorConfig {
    fn default() -> InitiatorConfig {
        InitiatorConfig {
            header_digest: false,
            data_digest: false,
            alignment: 0,
            r2ts_max: 1,
            entries: 32,
            in_capsule_bytes_max: IN_CAPSULE_BYTES_MAX,
        }
    }
}

/// Names a command from its submission to its completion; also its identifier on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(u16);

impl CommandId {
    /// The identifier's number, below the queue's entries.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// The data of a command, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// None.
    None,
    /// For the controller.
    ToController(u32),
    /// Room for data from the controller.
    ToHost(u32),
}

/// Data that the owner puts in line behind what was appended, and behind them their digest, if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the controller counts on the data"]
pub struct Outgoing {
    /// The command.
    pub command: CommandId,
    /// Where in its data, in bytes.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
    /// To be shown the data.
    pub digest: Option<DataDigest>,
}

/// What came next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing whole yet: more bytes are needed.
    Starved,
    /// A step of the transport's own.
    Step,
    /// The controller has answered; commands may be submitted.
    Initialised,
    /// The controller wants data; the header in front of them is among the output.
    Send(Outgoing),
    /// The next bytes belong to a command's data. The owner takes as many of them as it can, from its buffer or from the
    /// socket, shows them to [`Initiator::took`] and asks again.
    Payload {
        /// The command.
        command: CommandId,
        /// Where in its data, in bytes.
        offset: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// A command has ended.
    Completed {
        /// The command; its name is free again.
        command: CommandId,
        /// The completion queue entry. SQHD is zero where the controller has sent none.
        entry: [u8; COMPLETION_BYTES],
        /// Bytes of data that came.
        received: u32,
        /// Whether their digests were right. If not, the data are worth nothing, whatever the entry says.
        intact: bool,
    },
    /// It is over. What was appended to the output is still sent, then the connection is closed.
    Terminated(Termination),
}

#[derive(Clone, Copy, Debug)]
struct Command {
    /// Bytes that the controller may ask for: none of those that went in the capsule.
    on_request: u32,
    /// Bytes that it has asked for.
    requested: u32,
    /// Room for data from the controller, in bytes.
    to_host: u32,
    received: u32,
    /// Whether LAST_PDU has come.
    is_whole: bool,
    intact: bool,
}

/// Data that the controller has asked for and that are not sent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    command: CommandId,
    transfer_tag: u16,
    offset: u32,
    bytes: u32,
}

/// Data that come in.
#[derive(Clone, Copy, Debug)]
struct Filling {
    command: CommandId,
    offset: u32,
    taken: u32,
    ends_command: bool,
}

/// One connection, seen from the host.
#[derive(Debug)]
pub struct Initiator {
    config: InitiatorConfig,
    receiver: Receiver,
    sending: Framing,
    h2c_data_bytes_max: u32,
    commands: Vec<Option<Command>>,
    free: Vec<u16>,
    asked: Option<Asked>,
    filling: Option<Filling>,
    termination: Option<Termination>,
}

impl Initiator {
    /// A new connection. Appends ICReq to `out`.
    #[must_use]
    pub fn new(config: InitiatorConfig, out: &mut Vec<u8>) -> Initiator {
        assert!(config.alignment <= ALIGNMENT_CODE_MAX, "HPDA is at most {ALIGNMENT_CODE_MAX}");
        assert!(config.entries >= 2 && config.r2ts_max >= 1, "a queue has at least 2 entries and 1 R2T");
        let digests = (if config.header_digest { digest_bit::HEADER } else { 0 })
            | (if config.data_digest { digest_bit::DATA } else { 0 });
        let request = IcReq {
            common: CommonHeader::new(Kind::IcReq, 0),
            format_version: FORMAT_VERSION.into(),
            host_alignment: config.alignment,
            digests,
            r2ts_max: (config.r2ts_max - 1).into(),
            reserved: [0; 112],
        };
        append(&request, 0, Framing::BARE, out);
        let commands_max = config.entries - 1;
        Initiator {
            config,
            receiver: Receiver::new(Side::Host),
            sending: Framing::BARE,
            h2c_data_bytes_max: H2C_DATA_BYTES_MIN,
            commands: vec![None; commands_max.into()],
            free: (0..commands_max).rev().collect(),
            asked: None,
            filling: None,
            termination: None,
        }
    }

    /// Whether commands may be submitted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.receiver.is_initialised() && self.termination.is_none()
    }

    /// Commands that have no completion yet.
    #[must_use]
    pub fn commands_under_way(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    /// Appends a command. Identifier, PSDT and SGL descriptor of `entry` are filled in here. Data that go with it in its
    /// capsule are the caller's to append at once. `None` while the queue is full.
    pub fn submit(
        &mut self,
        entry: &[u8; SUBMISSION_BYTES],
        transfer: Transfer,
        out: &mut Vec<u8>,
    ) -> Option<(CommandId, Option<Outgoing>)> {
        self.submit_with_list(entry, &[], transfer, out)
    }

    /// The same for a vector command whose list of addresses goes in the capsule; its data then go in PDUs of their own.
    pub fn submit_with_list(
        &mut self,
        entry: &[u8; SUBMISSION_BYTES],
        list: &[u8],
        transfer: Transfer,
        out: &mut Vec<u8>,
    ) -> Option<(CommandId, Option<Outgoing>)> {
        assert!(self.is_open(), "commands are submitted on an open connection");
        let index = self.free.pop()?;
        let mut capsule = CapsuleCmd { common: CommonHeader::new(Kind::CapsuleCmd, 0), entry: *entry };
        let submission: &mut Submission = zerocopy::transmute_mut!(&mut capsule.entry);
        submission.command_id = index.into();
        submission.flags |= SGL_DATA;
        let in_capsule_max =
            if submission.is_fabrics() { IN_CAPSULE_BYTES_MAX } else { self.config.in_capsule_bytes_max };
        let (in_capsule, on_request, to_host) = match transfer {
            Transfer::None => (0, 0, 0),
            Transfer::ToController(bytes) if bytes <= in_capsule_max && list.is_empty() => (bytes, 0, 0),
            Transfer::ToController(bytes) => (0, bytes, 0),
            Transfer::ToHost(bytes) => (0, 0, bytes),
        };
        let identifier = if in_capsule > 0 { IN_CAPSULE } else { TRANSPORT };
        let bytes = (in_capsule + on_request + to_host).into();
        submission.sgl = SglDescriptor { address: 0.into(), bytes, reserved: [0; 3], identifier };
        self.commands[usize::from(index)] =
            Some(Command { on_request, requested: 0, to_host, received: 0, is_whole: false, intact: true });
        append(&capsule, in_capsule + list.len() as u32, self.sending, out);
        if !list.is_empty() {
            out.extend_from_slice(list);
            if self.sending.data_digest {
                let mut digest = DataDigest::default();
                digest.update(list);
                out.extend_from_slice(&digest.bytes());
            }
        }
        let command = CommandId(index);
        let outgoing = (in_capsule > 0).then(|| self.outgoing(command, 0, in_capsule));
        Some((command, outgoing))
    }

    /// Consumes at most one header or digest from the front of `input`; data are consumed by the caller. Headers of data
    /// that the controller wants and termination requests are appended to `out`. Returns how many bytes were consumed.
    /// Call again until [`Event::Starved`] or [`Event::Terminated`].
    pub fn next(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Event) {
        if let Some(termination) = self.termination {
            return (0, Event::Terminated(termination));
        }
        if let Some(asked) = self.asked {
            return (0, self.answer(asked, out));
        }
        match self.receiver.next(input) {
            Err(Fault { error, header_bytes }) => (0, self.terminate(error, &input[..header_bytes], out)),
            Ok((consumed, Received::Starved)) => (consumed, Event::Starved),
            Ok((consumed, Received::Header(layout))) => {
                let header = &input[..layout.header_bytes];
                match self.header(layout, header) {
                    Ok(event) => (consumed, event),
                    Err(error) => (0, self.terminate(Some(error), header, out)),
                }
            }
            Ok((_, Received::Data(bytes))) => {
                let Filling { command, offset, taken, .. } = self.filling.expect("data come in");
                (0, Event::Payload { command, offset: offset + taken, bytes })
            }
            Ok((consumed, Received::DataEnd { intact })) => (consumed, self.data_end(intact)),
        }
    }

    /// The owner has taken `bytes` of an [`Event::Payload`], the next ones, and put them where they belong.
    pub fn took(&mut self, bytes: &[u8]) {
        self.receiver.took(bytes);
        self.filling.as_mut().expect("data come in").taken += bytes.len() as u32;
    }

    fn outgoing(&self, command: CommandId, offset: u32, bytes: u32) -> Outgoing {
        Outgoing { command, offset, bytes, digest: self.sending.data_digest.then(DataDigest::default) }
    }

    fn terminate(&mut self, error: Option<FatalError>, header: &[u8], out: &mut Vec<u8>) -> Event {
        let termination = match error {
            Some(error) => {
                append_term_req(Kind::H2cTermReq, error, header, out);
                Termination::Sent(error)
            }
            None => Termination::Broken,
        };
        self.termination = Some(termination);
        Event::Terminated(termination)
    }

    /// The next H2CData of an R2T.
    fn answer(&mut self, asked: Asked, out: &mut Vec<u8>) -> Event {
        let Asked { command, transfer_tag, offset, bytes } = asked;
        let now = bytes.min(self.h2c_data_bytes_max);
        let left = bytes - now;
        let header = H2cData {
            common: CommonHeader::new(Kind::H2cData, if left == 0 { flag::LAST } else { 0 }),
            command_id: command.0.into(),
            transfer_tag: transfer_tag.into(),
            offset: offset.into(),
            bytes: now.into(),
            reserved: [0; 4],
        };
        append(&header, now, self.sending, out);
        self.asked = (left > 0).then_some(Asked { command, transfer_tag, offset: offset + now, bytes: left });
        Event::Send(self.outgoing(command, offset, now))
    }

    fn command(&mut self, id: u16, field: usize) -> Result<(CommandId, &mut Command), FatalError> {
        let command = self.commands.get_mut(usize::from(id)).and_then(Option::as_mut);
        command.map(|command| (CommandId(id), command)).ok_or(FatalError::field(field))
    }

    fn header(&mut self, layout: Layout, header: &[u8]) -> Result<Event, FatalError> {
        match layout.kind {
            Kind::IcResp => self.initialise(read(header)).map(|()| Event::Initialised),
            Kind::CapsuleResp => {
                let response: &CapsuleResp = read(header);
                let completion: &Completion = zerocopy::transmute_ref!(&response.entry);
                let field = std::mem::offset_of!(CapsuleResp, entry) + std::mem::offset_of!(Completion, command_id);
                let (command, _) = self.command(completion.command_id.get(), field)?;
                Ok(self.completed(command, response.entry))
            }
            Kind::R2t => {
                let r2t: &R2t = read(header);
                let (offset, bytes) = (r2t.offset.get(), r2t.bytes.get());
                let (command, state) = self.command(r2t.command_id.get(), std::mem::offset_of!(R2t, command_id))?;
                if state.on_request == 0 {
                    return Err(FatalError::of(FatalErrorStatus::SequenceError));
                }
                if bytes == 0 {
                    return Err(FatalError::field(std::mem::offset_of!(R2t, bytes)));
                }
                // No byte is asked for twice: what is to be sent is at most what the commands have.
                let is_beyond = |first: u32| u64::from(first) + u64::from(bytes) > u64::from(state.on_request);
                if is_beyond(offset) || is_beyond(state.requested) {
                    return Err(FatalError::of(FatalErrorStatus::DataOutOfRange));
                }
                state.requested += bytes;
                self.asked = Some(Asked { command, transfer_tag: r2t.transfer_tag.get(), offset, bytes });
                Ok(Event::Step)
            }
            Kind::C2hData => self.data(read(header), layout.data_bytes),
            Kind::C2hTermReq => {
                let request: &TermReq = read(header);
                let (status, information) = (request.status.get(), request.information.get());
                let termination = Termination::Received { status, information };
                self.termination = Some(termination);
                Ok(Event::Terminated(termination))
            }
            Kind::IcReq | Kind::H2cTermReq | Kind::CapsuleCmd | Kind::H2cData => {
                unreachable!("a PDU to the controller is refused by the receiver")
            }
        }
    }

    /// TCP, "ICResp PDU".
    fn initialise(&mut self, response: &IcResp) -> Result<(), FatalError> {
        if response.format_version.get() != FORMAT_VERSION {
            let information = std::mem::offset_of!(IcResp, format_version) as u32;
            return Err(FatalError { status: FatalErrorStatus::UnsupportedParameter, information });
        }
        if response.controller_alignment > ALIGNMENT_CODE_MAX {
            return Err(FatalError::field(std::mem::offset_of!(IcResp, controller_alignment)));
        }
        let used = |bit| response.digests & bit != 0;
        let (header_digest, data_digest) = (used(digest_bit::HEADER), used(digest_bit::DATA));
        if (header_digest && !self.config.header_digest) || (data_digest && !self.config.data_digest) {
            return Err(FatalError::field(std::mem::offset_of!(IcResp, digests)));
        }
        let h2c_data_bytes_max = response.h2c_data_bytes_max.get();
        if h2c_data_bytes_max < H2C_DATA_BYTES_MIN || !h2c_data_bytes_max.is_multiple_of(4) {
            return Err(FatalError::field(std::mem::offset_of!(IcResp, h2c_data_bytes_max)));
        }
        self.h2c_data_bytes_max = h2c_data_bytes_max;
        let framing = |code| Framing { header_digest, data_digest, alignment: Framing::alignment(code) };
        self.receiver.initialise(framing(self.config.alignment));
        self.sending = framing(response.controller_alignment);
        Ok(())
    }

    /// TCP, "C2HData PDU".
    fn data(&mut self, header: &C2hData, data_bytes: u32) -> Result<Event, FatalError> {
        let offset = header.offset.get();
        let flags = header.common.flags;
        let (command, state) = self.command(header.command_id.get(), std::mem::offset_of!(C2hData, command_id))?;
        if state.to_host == 0 {
            return Err(FatalError::of(FatalErrorStatus::SequenceError));
        }
        if header.bytes.get() != data_bytes {
            return Err(FatalError::field(std::mem::offset_of!(C2hData, bytes)));
        }
        if u64::from(offset) + u64::from(data_bytes) > u64::from(state.to_host) {
            return Err(FatalError::of(FatalErrorStatus::DataOutOfRange));
        }
        if state.is_whole || offset != state.received {
            return Err(FatalError::of(FatalErrorStatus::SequenceError));
        }
        state.received += data_bytes;
        state.is_whole = flags & flag::LAST != 0;
        self.filling = Some(Filling { command, offset, taken: 0, ends_command: flags & flag::SUCCESS != 0 });
        Ok(Event::Step)
    }

    fn data_end(&mut self, intact: bool) -> Event {
        let Filling { command, ends_command, .. } = self.filling.take().expect("data came in");
        let state = self.commands[command.index()].as_mut().expect("a command lasts longer than its data");
        state.intact &= intact;
        if !ends_command {
            return Event::Step;
        }
        // "C2HData PDU", SUCCESS: stands for a completion of zeroes but for the identifier.
        let mut entry = [0; COMPLETION_BYTES];
        let completion: &mut Completion = zerocopy::transmute_mut!(&mut entry);
        completion.command_id = command.0.into();
        self.completed(command, entry)
    }

    fn completed(&mut self, command: CommandId, entry: [u8; COMPLETION_BYTES]) -> Event {
        let state = self.commands[command.index()].take().expect("a command is completed once");
        self.free.push(command.0);
        Event::Completed { command, entry, received: state.received, intact: state.intact }
    }
}
