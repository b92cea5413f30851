//! The controller's half of a connection.
//!
//! ```text
//!            ICReq                 Connect accepted
//!   silent ─────────▶ initialised ─────────────────▶ a queue of so many entries
//!      └──────────────────┴───────── a broken rule ──────┴────────────▶ terminated
//! ```
//!
//! [`Target::next`] looks at the bytes received so far and consumes one header, or nothing. Payload is not its business:
//! on [`Event::Payload`] the owner takes that many bytes off the stream itself, straight to where they belong, and shows
//! them to [`Target::took`]. What goes to the host is appended to a buffer; after [`Target::send_data`] the owner puts
//! the data themselves behind it.
//!
//! | a write in its capsule | a write on request | a read |
//! |---|---|---|
//! | `Command` (`InCapsule`) | `Command` (`OnRequest`) | `Command` (`ToHost`) |
//! | | [`Target::request`], as often as there is room | |
//! | `Payload`, `PayloadComplete` | `Payload` …, `PayloadComplete` | [`Target::send_data`] … |
//! | [`Target::complete`] | [`Target::complete`] | [`Target::complete`], or SUCCESS with the last data |

mod slots;

pub use slots::{QUEUE_ENTRIES_MAX, R2TS_PER_COMMAND_MAX, Slot};

use crate::digest::DataDigest;
use crate::error::{FatalError, FatalErrorStatus, Termination};
use crate::pdu::{
    ALIGNMENT_CODE_MAX, C2hData, CapsuleCmd, CapsuleResp, CommonHeader, FORMAT_VERSION, Framing, H2C_DATA_BYTES_MIN,
    HEAD_BYTES_MAX, IN_CAPSULE_BYTES_MAX, IcReq, IcResp, Kind, Layout, R2t, Side, TERM_REQ_BYTES_MAX, TermReq, append,
    append_term_req, digest_bit, flag, read,
};
use crate::receiver::{Fault, Received, Receiver};
use crate::sgl::{Completion, Data, SglError, Submission};
use crate::{COMPLETION_BYTES, SUBMISSION_BYTES};
use slots::{Arrival, Slots};

/// The most bytes that [`Target::next`] looks at in one piece, so the least room that a receive buffer needs.
pub const INPUT_BYTES_MIN: usize = HEAD_BYTES_MAX;

/// The most bytes that [`Target::next`] says by itself.
pub const ANSWER_BYTES_MAX: usize = TERM_REQ_BYTES_MAX;

/// Commands under way before [`Target::open_queue`]: the Connect alone.
const ENTRIES_BEFORE_CONNECT: usize = 1;

/// What a controller asks of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetConfig {
    /// Whether header digests are used when the host wants them.
    pub header_digest: bool,
    /// Whether data digests are used when the host wants them.
    pub data_digest: bool,
    /// CPDA: alignment of data to the controller in dwords, 0-based. Some hosts take only 0.
    pub alignment: u8,
    /// MAXH2CDATA: the most bytes in one H2CData, a multiple of 4, at least 4096.
    pub h2c_data_bytes_max: u32,
}

impl Default for TargetConfig {
    fn default() -> TargetConfig {
        TargetConfig { header_digest: true, data_digest: true, alignment: 0, h2c_data_bytes_max: 1 << 20 }
    }
}

/// What came next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing whole yet: more bytes are needed.
    Starved,
    /// A step of the transport's own.
    Step,
    /// A command. If its descriptor cannot be served, it is to be completed with that status; data that came with it are
    /// skipped.
    Command {
        /// Its name from now on.
        slot: Slot,
        /// The submission queue entry.
        entry: [u8; SUBMISSION_BYTES],
        /// Its data.
        data: Result<Data, SglError>,
        /// Bytes of a list of addresses, which come right behind it as the first of its data. Data on request may be
        /// requested when the list is complete.
        list_bytes: u32,
    },
    /// The next bytes belong to a command's data. The owner takes as many of them as it can, from its buffer or from the
    /// socket, shows them to [`Target::took`] and asks again.
    Payload {
        /// The command.
        slot: Slot,
        /// Where in its data, in bytes.
        offset: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// All data of a command that were in its capsule or that were requested have arrived.
    PayloadComplete {
        /// The command.
        slot: Slot,
        /// Whether the digests of all its data so far were right. If not, the command fails with Transient Transport
        /// Error (Base, "Generic Command Status Values", 22h).
        intact: bool,
    },
    /// It is over. What was appended to the output is still sent, then the connection is closed.
    Terminated(Termination),
}

/// What follows data to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// More data.
    More,
    /// The completion.
    Last,
    /// Nothing: the command has succeeded, with nothing to say in its completion. Only where
    /// [`Target::may_omit_response`].
    LastAndSuccess,
}

/// Whose data are coming in.
#[derive(Clone, Copy, Debug)]
enum Filling {
    InCapsule {
        slot: Slot,
    },
    Requested(Arrival),
    /// Nobody's: the command that they came with is refused, or completed without them.
    Refused,
}

/// One connection, seen from the controller.
#[derive(Debug)]
pub struct Target {
    config: TargetConfig,
    receiver: Receiver,
    sending: Framing,
    r2ts_max: usize,
    flow_control: bool,
    slots: Slots,
    /// Data that come in: whose, and how many bytes of them were taken.
    filling: Option<(Filling, u32)>,
    termination: Option<Termination>,
}

impl Target {
    /// A new connection, on which the host speaks first.
    #[must_use]
    pub fn new(config: TargetConfig) -> Target {
        assert!(config.alignment <= ALIGNMENT_CODE_MAX, "CPDA is at most {ALIGNMENT_CODE_MAX}");
        assert!(
            config.h2c_data_bytes_max >= H2C_DATA_BYTES_MIN && config.h2c_data_bytes_max.is_multiple_of(4),
            "MAXH2CDATA is a multiple of 4 from {H2C_DATA_BYTES_MIN} on"
        );
        Target {
            config,
            receiver: Receiver::new(Side::Controller),
            sending: Framing::BARE,
            r2ts_max: 1,
            flow_control: true,
            slots: Slots::new(ENTRIES_BEFORE_CONNECT),
            filling: None,
            termination: None,
        }
    }

    /// Whether the host has not yet said how it wants to speak.
    #[must_use]
    pub fn is_initialising(&self) -> bool {
        !self.receiver.is_initialised()
    }

    /// Whether it is over. Nothing more may be requested, sent or completed.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.termination.is_some()
    }

    /// Whether the host owes bytes: the rest of a PDU's data, or data that it was asked for.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.receiver.is_in_data() || self.slots.r2ts() > 0
    }

    /// Commands that have come and are not completed.
    #[must_use]
    pub fn commands_under_way(&self) -> usize {
        self.slots.occupied()
    }

    /// Whether [`Ending::LastAndSuccess`] is allowed: only a host that needs no SQHD can do without a response capsule
    /// (TCP, "C2HData PDU", SUCCESS).
    #[must_use]
    pub fn may_omit_response(&self) -> bool {
        !self.flow_control
    }

    /// The name of the command in slot `index`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn slot_at(&self, index: usize) -> Slot {
        self.slots.slot_at(index)
    }

    /// The Connect command is accepted: from now on there may be as many commands as the queue has entries (SQSIZE + 1).
    /// Without flow control (Connect, CATTR bit 2) completions need no SQHD. Called before the Connect is completed.
    pub fn open_queue(&mut self, entries: usize, flow_control: bool) {
        self.slots.grow(entries);
        self.flow_control = flow_control;
    }

    /// Consumes at most one header or digest from the front of `input`; data are consumed by the caller. R2Ts that have
    /// become possible and termination requests are appended to `out`. Returns how many bytes were consumed. Call again
    /// until [`Event::Starved`] or [`Event::Terminated`].
    pub fn next(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Event) {
        if let Some(termination) = self.termination {
            return (0, Event::Terminated(termination));
        }
        match self.receiver.next(input) {
            Err(Fault { error, header_bytes }) => (0, self.terminate(error, &input[..header_bytes], out)),
            Ok((consumed, Received::Starved)) => (consumed, Event::Starved),
            Ok((consumed, Received::Header(layout))) => {
                let header = &input[..layout.header_bytes];
                match self.header(layout, header, out) {
                    Ok(event) => (consumed, event),
                    Err(error) => (0, self.terminate(Some(error), header, out)),
                }
            }
            Ok((_, Received::Data(bytes))) => self.data(bytes, input),
            Ok((consumed, Received::DataEnd { intact })) => (consumed, self.data_end(intact, out)),
        }
    }

    /// The owner has taken `bytes` of an [`Event::Payload`], the next ones, and put them where they belong.
    pub fn took(&mut self, bytes: &[u8]) {
        let (_, taken) = self.filling.as_mut().expect("data come in");
        self.receiver.took(bytes);
        *taken += bytes.len() as u32;
    }

    /// Asks the host for the next `bytes` of a command's data. They may be asked for in several pieces, of which as many
    /// are on their way at once as host and [`R2TS_PER_COMMAND_MAX`] allow.
    pub fn request(&mut self, slot: Slot, bytes: u32, out: &mut Vec<u8>) {
        self.assert_open();
        self.slots.request(slot, bytes);
        self.grant(slot, out);
    }

    /// Appends what goes before the next `bytes` of data to the host. The caller puts the data in line behind it and, if
    /// there is a digest, shows them to it and puts it behind them.
    pub fn send_data(&mut self, slot: Slot, bytes: u32, ending: Ending, out: &mut Vec<u8>) -> Option<DataDigest> {
        self.assert_open();
        let command = self.slots.get(slot);
        let Data::ToHost(bytes_max) = command.data else { panic!("only a command with data for the host sends them") };
        assert!(bytes > 0 && bytes <= bytes_max - command.sent, "no more is sent than the host has room for");
        let mut flags = 0;
        if ending != Ending::More {
            flags |= flag::LAST;
        }
        if ending == Ending::LastAndSuccess {
            assert!(!self.flow_control, "a host that counts on SQHD gets a response capsule");
            flags |= flag::SUCCESS;
        }
        let header = C2hData {
            common: CommonHeader::new(Kind::C2hData, flags),
            command_id: command.command_id.into(),
            reserved: [0; 2],
            offset: command.sent.into(),
            bytes: bytes.into(),
            reserved_end: [0; 4],
        };
        command.sent += bytes;
        append(&header, bytes, self.sending, out);
        if ending == Ending::LastAndSuccess {
            self.slots.vacate(slot);
        }
        self.sending.data_digest.then(DataDigest::default)
    }

    /// Appends the completion of a command. `entry` carries the command's identifier and SQHD, as the queue knows them.
    /// Data that were in its capsule and have not been taken are skipped; data that were requested have to arrive first.
    pub fn complete(&mut self, slot: Slot, entry: &[u8; COMPLETION_BYTES], out: &mut Vec<u8>) {
        self.assert_open();
        if std::mem::take(&mut self.slots.get(slot).in_capsule_due) {
            let (filling, _) = self.filling.as_mut().expect("data in a capsule come right behind it");
            *filling = Filling::Refused;
        }
        let command = self.slots.vacate(slot);
        let completion: &Completion = zerocopy::transmute_ref!(entry);
        assert_eq!(completion.command_id.get(), command.command_id, "a completion is of its own command");
        let header = CapsuleResp { common: CommonHeader::new(Kind::CapsuleResp, 0), entry: *entry };
        append(&header, 0, self.sending, out);
    }

    fn assert_open(&self) {
        assert!(self.termination.is_none(), "nothing follows a termination request");
    }

    fn terminate(&mut self, error: Option<FatalError>, header: &[u8], out: &mut Vec<u8>) -> Event {
        let termination = match error {
            Some(error) => {
                append_term_req(Kind::C2hTermReq, error, header, out);
                Termination::Sent(error)
            }
            None => Termination::Broken,
        };
        self.termination = Some(termination);
        Event::Terminated(termination)
    }

    fn header(&mut self, layout: Layout, header: &[u8], out: &mut Vec<u8>) -> Result<Event, FatalError> {
        match layout.kind {
            Kind::IcReq => self.initialise(read(header), out).map(|()| Event::Step),
            Kind::CapsuleCmd => self.command(read(header), layout.data_bytes),
            Kind::H2cData => {
                let bytes_max = self.config.h2c_data_bytes_max;
                let arrival = self.slots.arrival(read(header), layout.data_bytes, bytes_max)?;
                self.filling = Some((Filling::Requested(arrival), 0));
                Ok(Event::Step)
            }
            Kind::H2cTermReq => {
                let request: &TermReq = read(header);
                let (status, information) = (request.status.get(), request.information.get());
                let termination = Termination::Received { status, information };
                self.termination = Some(termination);
                Ok(Event::Terminated(termination))
            }
            Kind::IcResp | Kind::C2hTermReq | Kind::CapsuleResp | Kind::C2hData | Kind::R2t => {
                unreachable!("a PDU to the host is refused by the receiver")
            }
        }
    }

    /// TCP, "ICReq PDU".
    fn initialise(&mut self, request: &IcReq, out: &mut Vec<u8>) -> Result<(), FatalError> {
        if request.format_version.get() != FORMAT_VERSION {
            let information = std::mem::offset_of!(IcReq, format_version) as u32;
            return Err(FatalError { status: FatalErrorStatus::UnsupportedParameter, information });
        }
        if request.host_alignment > ALIGNMENT_CODE_MAX {
            return Err(FatalError::field(std::mem::offset_of!(IcReq, host_alignment)));
        }
        let wants = |bit| request.digests & bit != 0;
        let header_digest = self.config.header_digest && wants(digest_bit::HEADER);
        let data_digest = self.config.data_digest && wants(digest_bit::DATA);
        let digests =
            (if header_digest { digest_bit::HEADER } else { 0 }) | (if data_digest { digest_bit::DATA } else { 0 });
        let response = IcResp {
            common: CommonHeader::new(Kind::IcResp, 0),
            format_version: FORMAT_VERSION.into(),
            controller_alignment: self.config.alignment,
            digests,
            h2c_data_bytes_max: self.config.h2c_data_bytes_max.into(),
            reserved: [0; 112],
        };
        append(&response, 0, Framing::BARE, out);
        let framing = |code| Framing { header_digest, data_digest, alignment: Framing::alignment(code) };
        self.receiver.initialise(framing(self.config.alignment));
        self.sending = framing(request.host_alignment);
        self.r2ts_max = (request.r2ts_max.get() as usize).saturating_add(1).min(R2TS_PER_COMMAND_MAX);
        Ok(())
    }

    fn command(&mut self, capsule: &CapsuleCmd, data_bytes: u32) -> Result<Event, FatalError> {
        if data_bytes > IN_CAPSULE_BYTES_MAX {
            return Err(FatalError::field(std::mem::offset_of!(CommonHeader, length)));
        }
        let submission = Submission::of(&capsule.entry);
        let has_list = data_bytes > 0 && submission.has_list();
        let data = submission.data(if has_list { 0 } else { data_bytes });
        let is_due = has_list || matches!(data, Ok(Data::InCapsule(_)));
        let Some(slot) = self.slots.occupy(submission.command_id.get(), data.unwrap_or(Data::None), is_due) else {
            // More commands than the queue has entries.
            return Err(FatalError::of(FatalErrorStatus::SequenceError));
        };
        if data_bytes > 0 {
            let filling = if data.is_ok() { Filling::InCapsule { slot } } else { Filling::Refused };
            self.filling = Some((filling, 0));
        }
        let list_bytes = if has_list { data_bytes } else { 0 };
        Ok(Event::Command { slot, entry: capsule.entry, data, list_bytes })
    }

    fn data(&mut self, bytes: u32, input: &[u8]) -> (usize, Event) {
        let (filling, taken) = self.filling.as_mut().expect("data come in");
        let (slot, offset) = match *filling {
            Filling::InCapsule { slot } => (slot, *taken),
            Filling::Requested(arrival) => (arrival.slot, arrival.offset + *taken),
            Filling::Refused if input.is_empty() => return (0, Event::Starved),
            Filling::Refused => {
                let skipped = &input[..input.len().min(bytes as usize)];
                self.receiver.took(skipped);
                return (skipped.len(), Event::Step);
            }
        };
        (0, Event::Payload { slot, offset, bytes })
    }

    fn data_end(&mut self, intact: bool, out: &mut Vec<u8>) -> Event {
        let (filling, taken) = self.filling.take().expect("data came in");
        let slot = match filling {
            Filling::Refused => return Event::Step,
            Filling::InCapsule { slot } => {
                let command = self.slots.get(slot);
                command.in_capsule_due = false;
                command.intact &= intact;
                slot
            }
            Filling::Requested(arrival) => {
                self.slots.arrived(arrival, taken, intact);
                self.grant(arrival.slot, out);
                arrival.slot
            }
        };
        let command = self.slots.get(slot);
        if command.is_filling() {
            return Event::Step;
        }
        Event::PayloadComplete { slot, intact: command.intact }
    }

    fn grant(&mut self, slot: Slot, out: &mut Vec<u8>) {
        while let Some(grant) = self.slots.grant(slot, self.r2ts_max) {
            let header = R2t {
                common: CommonHeader::new(Kind::R2t, 0),
                command_id: grant.command_id.into(),
                transfer_tag: grant.transfer_tag.into(),
                offset: grant.offset.into(),
                bytes: grant.bytes.into(),
                reserved: [0; 4],
            };
            append(&header, 0, self.sending, out);
        }
    }
}
