//! Where the parts of a PDU lie: worked out from a header that was received, and for one that is sent.

use openftl_core::checksum::crc32c;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{CommonHeader, DIGEST_BYTES, Kind, TERM_REQ_BYTES_MAX, TermReq, flag};
use crate::error::{FatalError, FatalErrorStatus};

/// What the two sides have agreed on for PDUs in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framing {
    /// Whether headers have digests.
    pub header_digest: bool,
    /// Whether data have digests.
    pub data_digest: bool,
    /// Data begin at a multiple of this many bytes.
    pub alignment: u8,
}

impl Framing {
    /// Before ICReq and ICResp have agreed on more.
    pub const BARE: Framing = Framing { header_digest: false, data_digest: false, alignment: 4 };

    /// Bytes of alignment that a 0-based number of dwords (HPDA, CPDA) stands for.
    #[must_use]
    pub fn alignment(code: u8) -> u8 {
        (code + 1) * 4
    }

    fn header_digest_bytes(self, kind: Kind) -> usize {
        if self.header_digest && !kind.is_bare() { DIGEST_BYTES } else { 0 }
    }
}

/// The parts of a PDU, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The type.
    pub kind: Kind,
    /// The header, without its digest.
    pub header_bytes: usize,
    /// Everything in front of the data: header, digest and padding.
    pub head_bytes: usize,
    /// The data, without digest.
    pub data_bytes: u32,
    /// Whether a header digest is there.
    pub header_digest: bool,
    /// Whether a data digest is there.
    pub data_digest: bool,
}

impl Layout {
    /// Checks the digest behind a header. `head` is everything in front of the data.
    ///
    /// # Errors
    /// Header Digest Error, with the digest that came.
    pub fn check_header_digest(&self, head: &[u8]) -> Result<(), FatalError> {
        if !self.header_digest {
            return Ok(());
        }
        let (header, rest) = head.split_at(self.header_bytes);
        let received = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        if crc32c(header) == received {
            return Ok(());
        }
        Err(FatalError { status: FatalErrorStatus::HeaderDigestError, information: received })
    }
}

/// Works out a received PDU of `kind` from its common header.
///
/// # Errors
/// The first field that is wrong, in the order in which they lie (TCP, "Error Handling Model"). The type itself is the
/// caller's to judge. Reserved flags are not looked at.
pub fn layout(kind: Kind, common: &CommonHeader, framing: Framing) -> Result<Layout, FatalError> {
    const FLAGS: usize = std::mem::offset_of!(CommonHeader, flags);
    const HEADER_LENGTH: usize = std::mem::offset_of!(CommonHeader, header_length);
    const DATA_OFFSET: usize = std::mem::offset_of!(CommonHeader, data_offset);
    const LENGTH: usize = std::mem::offset_of!(CommonHeader, length);

    let header_bytes = kind.header_bytes();
    let length = common.length.get() as usize;
    let without_data = header_bytes + framing.header_digest_bytes(kind);
    let has_data = match kind {
        Kind::H2cData | Kind::C2hData => true,
        Kind::CapsuleCmd => length > without_data,
        _ => false,
    };

    if !kind.is_bare() {
        if (common.flags & flag::HEADER_DIGEST != 0) != framing.header_digest {
            return Err(FatalError::field(FLAGS));
        }
        if has_data && (common.flags & flag::DATA_DIGEST != 0) != framing.data_digest {
            return Err(FatalError::field(FLAGS));
        }
        // "C2HData PDU": SUCCESS only where LAST_PDU is.
        if kind == Kind::C2hData && common.flags & flag::SUCCESS != 0 && common.flags & flag::LAST == 0 {
            return Err(FatalError::field(FLAGS));
        }
    }
    if usize::from(common.header_length) != header_bytes {
        return Err(FatalError::field(HEADER_LENGTH));
    }
    if kind.is_term_req() {
        if !(header_bytes..=TERM_REQ_BYTES_MAX).contains(&length) {
            return Err(FatalError::field(LENGTH));
        }
        // The header that the other side complains of is not looked at: nothing follows it.
        let (head_bytes, data_bytes) = (header_bytes, 0);
        return Ok(Layout { kind, header_bytes, head_bytes, data_bytes, header_digest: false, data_digest: false });
    }
    if !has_data {
        if length != without_data {
            return Err(FatalError::field(LENGTH));
        }
        return Ok(Layout {
            kind,
            header_bytes,
            head_bytes: without_data,
            data_bytes: 0,
            header_digest: without_data > header_bytes,
            data_digest: false,
        });
    }
    let data_offset = usize::from(common.data_offset);
    if length < without_data {
        return Err(FatalError::field(LENGTH));
    }
    if data_offset < without_data || !data_offset.is_multiple_of(usize::from(framing.alignment)) {
        return Err(FatalError::field(DATA_OFFSET));
    }
    let digest_bytes = if framing.data_digest { DIGEST_BYTES } else { 0 };
    let Some(data_bytes @ 1..) = length.checked_sub(data_offset + digest_bytes) else {
        return Err(FatalError::field(LENGTH));
    };
    Ok(Layout {
        kind,
        header_bytes,
        head_bytes: data_offset,
        data_bytes: data_bytes as u32,
        header_digest: framing.header_digest,
        data_digest: framing.data_digest,
    })
}

/// Appends everything of a PDU that lies in front of its data. `header` begins with a [`CommonHeader`] of which type and
/// flags (without those of digests) are right; offset and lengths are worked out here. `data_bytes` are what the caller
/// puts behind it, and behind those a digest, if agreed.
pub fn append(header: &(impl IntoBytes + Immutable), data_bytes: u32, framing: Framing, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(header.as_bytes());
    let header_bytes = out.len() - start;
    let (common, _) = CommonHeader::mut_from_prefix(&mut out[start..]).expect("a header begins with the common one");
    let kind = Kind::from_code(common.kind).expect("what is sent has a type");
    let mut head_bytes = header_bytes + framing.header_digest_bytes(kind);
    let mut length = head_bytes as u32;
    let header_digest = head_bytes > header_bytes;
    if header_digest {
        common.flags |= flag::HEADER_DIGEST;
    }
    if data_bytes > 0 {
        head_bytes = head_bytes.next_multiple_of(usize::from(framing.alignment));
        common.data_offset = u8::try_from(head_bytes).expect("a head and its padding have at most 128 bytes");
        length = head_bytes as u32 + data_bytes;
        if framing.data_digest {
            common.flags |= flag::DATA_DIGEST;
            length += DIGEST_BYTES as u32;
        }
    }
    common.length = length.into();
    if header_digest {
        let digest = crc32c(&out[start..]);
        out.extend_from_slice(&digest.to_le_bytes());
    }
    out.resize(start + head_bytes, 0);
}

/// Appends a termination request that says `error` of a PDU with the header `wrong`.
pub fn append_term_req(kind: Kind, error: FatalError, wrong: &[u8], out: &mut Vec<u8>) {
    let wrong = &wrong[..wrong.len().min(TERM_REQ_BYTES_MAX - size_of::<TermReq>())];
    let mut common = CommonHeader::new(kind, 0);
    common.length = ((size_of::<TermReq>() + wrong.len()) as u32).into();
    let (status, information) = (error.status.code().into(), error.information.into());
    let request = TermReq { common, status, information, reserved: [0; 10] };
    out.extend_from_slice(request.as_bytes());
    out.extend_from_slice(wrong);
}
