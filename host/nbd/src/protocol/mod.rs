//! The protocol half of a connection: bytes in, requests out; answers in, bytes out. No socket, no clock.
//!
//! ```text
//!   greeting ─▶ client flags ─▶ options ──GO, EXPORT_NAME──▶ transmission ──DISC──▶ closed
//!                    │             │ ABORT                        │
//!                    └─────────────┴──── a broken rule ───────────┴──────────────────▶ closed
//! ```
//!
//! [`Session::next`] looks at the bytes received so far and consumes one whole message, or nothing. The payload of a
//! write is not its business: after [`Command::Write`] the caller takes that many bytes off the stream itself, straight
//! to where they belong. The payload of a *refused* write is skipped here, and its refusal is said only afterwards.

mod handshake;
mod reply;
mod transmission;

pub use reply::ReplyForm;

use crate::wire::ErrorCode;

/// The most bytes of data of one option: name (at most 4096 by the protocol's "Conventions"), two lengths and room for
/// a long list of information types. Longer ones are skipped and refused.
pub const OPTION_BYTES_MAX: usize = 8192;

/// The most bytes of a whole message that the session looks at in one piece, so the least room that a receive buffer
/// needs.
pub const MESSAGE_BYTES_MAX: usize = 16 + OPTION_BYTES_MAX;

/// The longest payload that the protocol lets any client send without asking first ("Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The longest payload of a refused write that is skipped; a client that sends more is disconnected.
pub const SKIP_BYTES_MAX: u32 = 2 * PAYLOAD_BYTES_MAX;

/// What a client of another protocol has reserved of an export for the moment. NBD clients learn it when a request is refused, and not when
/// they connect: a reservation may end meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Reserved {
    /// Nothing.
    #[default]
    Nothing,
    /// Whatever changes the export, or makes changes durable.
    Writes,
    /// Reads as well.
    Everything,
}

impl Reserved {
    /// Whether a request is refused that changes the export, makes changes durable, or (`writes` is false) reads it.
    fn forbids(self, writes: bool) -> bool {
        match self {
            Reserved::Nothing => false,
            Reserved::Writes => writes,
            Reserved::Everything => true,
        }
    }
}

/// What a client may know of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// The name that clients ask for. The first export also answers to the empty name.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// What is refused because a client of another protocol has reserved it.
    pub reserved: Reserved,
    /// The longest read or write served, in bytes; at most [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes_max: u32,
}

/// A checked request: inside the export, allowed, not too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The client's name for it, repeated in the reply.
    pub cookie: u64,
    /// What to do.
    pub command: Command,
}

/// What a client asks for; offsets and lengths in bytes, lengths never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// `NBD_CMD_WRITE`; the payload follows on the stream.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes, also of the payload.
        length: u32,
        /// Force unit access.
        durable: bool,
    },
    /// `NBD_CMD_TRIM`.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Force unit access.
        durable: bool,
    },
    /// `NBD_CMD_WRITE_ZEROES`.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Force unit access.
        durable: bool,
    },
    /// `NBD_CMD_FLUSH`.
    Flush,
}

/// What the next message was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing whole yet: more bytes are needed.
    Starved,
    /// A step of the handshake, or of skipping a refused payload.
    Step,
    /// The handshake is over; the number is the export's.
    Opened(usize),
    /// A request to serve.
    Request(Request),
    /// A request that was refused; the answer is among the output.
    Refused(ErrorCode),
    /// No more messages. Requests under way are still answered when the client said goodbye.
    Closed(Closing),
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Closing {
    /// The client said so.
    #[error("the client said goodbye")]
    Goodbye,
    /// Client flags with bits that were not offered.
    #[error("client flags {0:#010x} have bits that were not offered")]
    ClientFlags(u32),
    /// Not an option.
    #[error("option magic {0:#018x} is not IHAVEOPT")]
    OptionMagic(u64),
    /// An export name that does not exist, where the protocol has no room for an error.
    #[error("EXPORT_NAME asked for an export that does not exist")]
    ExportName,
    /// Not a request.
    #[error("request magic {0:#010x} is not 0x25609513")]
    RequestMagic(u32),
    /// A write so long that its payload is not skipped.
    #[error("a write of {0} bytes is beyond what is skipped")]
    PayloadTooLong(u32),
}

/// The requests and answers of one connection.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    no_zeroes: bool,
    structured: bool,
    stopping: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    ClientFlags,
    Options,
    SkipOption { option: u32, left: u32 },
    Transmission { export: usize },
    SkipPayload { export: usize, cookie: u64, left: u32, refusal: transmission::Refusal },
    Closed(Closing),
}

impl Session {
    /// A new connection. Appends the greeting to `output`.
    #[must_use]
    pub fn new(output: &mut Vec<u8>) -> Session {
        handshake::greet(output);
        Session { phase: Phase::ClientFlags, no_zeroes: false, structured: false, stopping: false }
    }

    /// Consumes at most one message from the front of `input`. Answers of the handshake and refusals are appended to
    /// `output`. Returns how many bytes were consumed. Call again until [`Event::Starved`] or [`Event::Closed`].
    pub fn next(&mut self, input: &[u8], exports: &[ExportInfo], output: &mut Vec<u8>) -> (usize, Event) {
        match self.phase {
            Phase::Closed(closing) => (0, Event::Closed(closing)),
            Phase::ClientFlags => self.client_flags(input),
            Phase::Options => self.option(input, exports, output),
            Phase::SkipOption { option, left } => self.skip_option(option, left, input, output),
            Phase::Transmission { export } => self.request(input, export, &exports[export], output),
            Phase::SkipPayload { export, cookie, left, refusal } => {
                self.skip_payload(export, cookie, left, refusal, input, output)
            }
        }
    }

    /// From now on, refuse everything: the server is stopping ("Terminating the transmission phase").
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether the handshake is not over.
    #[must_use]
    pub fn is_shaking_hands(&self) -> bool {
        matches!(self.phase, Phase::ClientFlags | Phase::Options | Phase::SkipOption { .. })
    }

    /// Whether a refused payload is being skipped.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        matches!(self.phase, Phase::SkipPayload { .. })
    }

    /// How requests of this session are answered.
    #[must_use]
    pub fn reply_form(&self) -> ReplyForm {
        if self.structured { ReplyForm::Structured } else { ReplyForm::Simple }
    }

    fn close(&mut self, closing: Closing) -> Event {
        self.phase = Phase::Closed(closing);
        Event::Closed(closing)
    }
}

/// Looks at the front of `input` as a `T`, if there are enough bytes.
fn head<T: zerocopy::FromBytes + zerocopy::Immutable + zerocopy::KnownLayout + zerocopy::Unaligned>(
    input: &[u8],
) -> Option<&T> {
    T::ref_from_prefix(input).ok().map(|(head, _)| head)
}
