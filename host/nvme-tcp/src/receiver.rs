//! The receiving end of a connection, the same on both sides: it cuts a stream of bytes into headers and data.
//!
//! ```text
//!          ┌──────────────── no data ───────────────┐
//!          ▼                                        │
//!   ┌─▶ header ──▶ data (taken by the owner) ──▶ data digest ──┐
//!   └──────────────────────────────────────────────────────────┘
//! ```
//!
//! A header is looked at as soon as it can be judged: its first eight bytes alone, then the whole with its digest.

use openftl_core::checksum::Crc32c;
use zerocopy::FromBytes;

use crate::error::{FatalError, FatalErrorStatus};
use crate::pdu::{CommonHeader, DIGEST_BYTES, Framing, Kind, Layout, Side, layout};

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// More bytes are needed.
    Starved,
    /// A header; it lies at the front of the input, its data, if any, behind what was consumed.
    Header(Layout),
    /// This many bytes of data, to be taken with [`Receiver::took`].
    Data(u32),
    /// The data are through, and their digest was right or there was none.
    DataEnd {
        /// Whether the digest was right.
        intact: bool,
    },
}

/// A header that ends the connection: why, and how many bytes of the input are it. Without an error there is nothing to
/// say either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub error: Option<FatalError>,
    pub header_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Header,
    Data { left: u32, digest: Option<Crc32c> },
}

#[derive(Debug)]
pub(crate) struct Receiver {
    side: Side,
    framing: Framing,
    is_initialised: bool,
    phase: Phase,
}

impl Receiver {
    pub fn new(side: Side) -> Receiver {
        Receiver { side, framing: Framing::BARE, is_initialised: false, phase: Phase::Header }
    }

    /// From the next PDU on, what was agreed holds.
    pub fn initialise(&mut self, framing: Framing) {
        self.framing = framing;
        self.is_initialised = true;
    }

    pub fn is_initialised(&self) -> bool {
        self.is_initialised
    }

    /// Whether a PDU has begun of which the data are not through.
    pub fn is_in_data(&self) -> bool {
        matches!(self.phase, Phase::Data { .. })
    }

    /// Looks at the front of `input`. Returns how many bytes were consumed.
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Received), Fault> {
        match self.phase {
            Phase::Header => self.header(input),
            Phase::Data { left: 0, digest: None } => {
                self.phase = Phase::Header;
                Ok((0, Received::DataEnd { intact: true }))
            }
            Phase::Data { left: 0, digest: Some(digest) } => {
                let Some(received) = input.first_chunk::<DIGEST_BYTES>() else { return Ok((0, Received::Starved)) };
                self.phase = Phase::Header;
                Ok((DIGEST_BYTES, Received::DataEnd { intact: digest.value().to_le_bytes() == *received }))
            }
            Phase::Data { left, .. } => Ok((0, Received::Data(left))),
        }
    }

    /// The owner has put `bytes`, the next ones of the data, where they belong.
    pub fn took(&mut self, bytes: &[u8]) {
        let Phase::Data { left, digest } = &mut self.phase else { panic!("only data are taken") };
        assert!(bytes.len() <= *left as usize, "more is taken than there are data");
        *left -= bytes.len() as u32;
        if let Some(digest) = digest {
            digest.update(bytes);
        }
    }

    fn header(&mut self, input: &[u8]) -> Result<(usize, Received), Fault> {
        let Ok((common, _)) = CommonHeader::ref_from_prefix(input) else { return Ok((0, Received::Starved)) };
        let fault = |error, header_bytes| Fault { error, header_bytes };
        let short = |error| fault(Some(error), size_of::<CommonHeader>());
        let kind = match Kind::from_code(common.kind) {
            Some(kind) if kind.receiver() == self.side => kind,
            _ => return Err(short(FatalError::field(std::mem::offset_of!(CommonHeader, kind)))),
        };
        let is_init = matches!(kind, Kind::IcReq | Kind::IcResp);
        if !kind.is_term_req() && is_init == self.is_initialised {
            return Err(short(FatalError::of(FatalErrorStatus::SequenceError)));
        }
        let layout = match layout(kind, common, self.framing) {
            Ok(layout) => layout,
            Err(_) if kind.is_term_req() => return Err(fault(None, size_of::<CommonHeader>())),
            Err(error) => return Err(short(error)),
        };
        let Some(head) = input.get(..layout.head_bytes) else { return Ok((0, Received::Starved)) };
        layout.check_header_digest(head).map_err(|error| fault(Some(error), layout.header_bytes))?;
        if layout.data_bytes > 0 {
            self.phase = Phase::Data { left: layout.data_bytes, digest: layout.data_digest.then(Crc32c::new) };
        }
        Ok((layout.head_bytes, Received::Header(layout)))
    }
}
