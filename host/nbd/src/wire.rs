//! The bits of the NBD protocol: magic numbers, flags, codes and message layouts, all in network byte order.
//!
//! Section names in the comments are those of the protocol document, `doc/proto.md` of the reference implementation.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `INIT_PASSWD`, "NBDMAGIC" ("Oldstyle negotiation").
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", in the greeting and before each option ("Newstyle negotiation").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each option reply ("Fixed newstyle negotiation").
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each request ("Request message").
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each simple reply ("Simple reply message").
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply ("Structured reply chunk message").
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags, 16 bits from the server; the client answers with the same bits in 32 ("Handshake flags").
pub mod handshake_flag {
    /// `NBD_FLAG_FIXED_NEWSTYLE`.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// `NBD_FLAG_NO_ZEROES`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags, 16 bits ("Transmission flags").
pub mod transmission_flag {
    /// `NBD_FLAG_HAS_FLAGS`: always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// `NBD_FLAG_READ_ONLY`.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `NBD_FLAG_SEND_FLUSH`.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// `NBD_FLAG_SEND_FUA`.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `NBD_FLAG_SEND_TRIM`.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `NBD_FLAG_SEND_WRITE_ZEROES`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_FLAG_SEND_DF`: only with structured replies.
    pub const SEND_DF: u16 = 1 << 7;
    /// `NBD_FLAG_CAN_MULTI_CONN`.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `NBD_FLAG_SEND_FAST_ZERO`.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Option codes ("Option types").
pub mod option {
    /// `NBD_OPT_EXPORT_NAME`.
    pub const EXPORT_NAME: u32 = 1;
    /// `NBD_OPT_ABORT`.
    pub const ABORT: u32 = 2;
    /// `NBD_OPT_LIST`.
    pub const LIST: u32 = 3;
    /// `NBD_OPT_STARTTLS`.
    pub const STARTTLS: u32 = 5;
    /// `NBD_OPT_INFO`.
    pub const INFO: u32 = 6;
    /// `NBD_OPT_GO`.
    pub const GO: u32 = 7;
    /// `NBD_OPT_STRUCTURED_REPLY`.
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Option reply types ("Option reply types").
pub mod option_reply {
    /// `NBD_REP_ACK`.
    pub const ACK: u32 = 1;
    /// `NBD_REP_SERVER`.
    pub const SERVER: u32 = 2;
    /// `NBD_REP_INFO`.
    pub const INFO: u32 = 3;
    /// `NBD_REP_ERR_UNSUP`.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// `NBD_REP_ERR_POLICY`.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// `NBD_REP_ERR_INVALID`.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// `NBD_REP_ERR_UNKNOWN`.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// `NBD_REP_ERR_SHUTDOWN`.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    /// `NBD_REP_ERR_TOO_BIG`.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Information types of `NBD_REP_INFO` ("Option reply types").
pub mod info {
    /// `NBD_INFO_EXPORT`: size and transmission flags; always sent.
    pub const EXPORT: u16 = 0;
    /// `NBD_INFO_NAME`: the canonical name.
    pub const NAME: u16 = 1;
    /// `NBD_INFO_DESCRIPTION`.
    pub const DESCRIPTION: u16 = 2;
    /// `NBD_INFO_BLOCK_SIZE`: smallest, preferred and largest request ("Block size constraints").
    pub const BLOCK_SIZE: u16 = 3;
}

/// Command codes ("Request types").
pub mod command {
    /// `NBD_CMD_READ`.
    pub const READ: u16 = 0;
    /// `NBD_CMD_WRITE`: the only one with a payload.
    pub const WRITE: u16 = 1;
    /// `NBD_CMD_DISC`.
    pub const DISC: u16 = 2;
    /// `NBD_CMD_FLUSH`.
    pub const FLUSH: u16 = 3;
    /// `NBD_CMD_TRIM`.
    pub const TRIM: u16 = 4;
    /// `NBD_CMD_WRITE_ZEROES`.
    pub const WRITE_ZEROES: u16 = 6;
}

/// Command flags ("Command flags").
pub mod command_flag {
    /// `NBD_CMD_FLAG_FUA`: valid with every command.
    pub const FUA: u16 = 1 << 0;
    /// `NBD_CMD_FLAG_NO_HOLE`: with `WRITE_ZEROES`.
    pub const NO_HOLE: u16 = 1 << 1;
    /// `NBD_CMD_FLAG_DF`: with `READ`, once structured replies are agreed.
    pub const DF: u16 = 1 << 2;
    /// `NBD_CMD_FLAG_FAST_ZERO`: with `WRITE_ZEROES`.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// `NBD_REPLY_FLAG_DONE`: the last chunk of a structured reply ("Structured reply flags").
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// Chunk types ("Structured reply types").
pub mod chunk {
    /// `NBD_REPLY_TYPE_NONE`.
    pub const NONE: u16 = 0;
    /// `NBD_REPLY_TYPE_OFFSET_DATA`.
    pub const OFFSET_DATA: u16 = 1;
    /// `NBD_REPLY_TYPE_ERROR`.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// Why a request failed ("Error values"). The numbers are the protocol's, whatever the machine's `errno` are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ErrorCode {
    /// `EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `EIO`: the drive lost or damaged the data.
    Io = 5,
    /// `EINVAL`: the request itself is wrong.
    Invalid = 22,
    /// `ENOSPC`: a write beyond the end.
    NoSpace = 28,
    /// `EOVERFLOW`: an unfragmented read longer than the server sends.
    Overflow = 75,
    /// `ENOTSUP`: zeroes cannot be written faster than data here.
    NotSupported = 95,
    /// `ESHUTDOWN`: the server is stopping.
    Shutdown = 108,
}

/// What the server says first ("Newstyle negotiation").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct Greeting {
    /// [`NBD_MAGIC`].
    pub magic: U64,
    /// [`OPTION_MAGIC`].
    pub option_magic: U64,
    /// [`handshake_flag`].
    pub flags: U16,
}

/// Head of an option ("Newstyle negotiation").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct OptionHead {
    /// [`OPTION_MAGIC`].
    pub magic: U64,
    /// [`option`].
    pub option: U32,
    /// Bytes of data that follow.
    pub length: U32,
}

/// Head of an option reply ("Fixed newstyle negotiation").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct OptionReplyHead {
    /// [`OPTION_REPLY_MAGIC`].
    pub magic: U64,
    /// The option answered.
    pub option: U32,
    /// [`option_reply`].
    pub reply: U32,
    /// Bytes of data that follow.
    pub length: U32,
}

/// `NBD_INFO_EXPORT` ("Option reply types").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct InfoExport {
    /// [`info::EXPORT`].
    pub info: U16,
    /// Size in bytes.
    pub size: U64,
    /// [`transmission_flag`].
    pub flags: U16,
}

/// `NBD_INFO_BLOCK_SIZE` ("Option reply types"); bytes.
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct InfoBlockSize {
    /// [`info::BLOCK_SIZE`].
    pub info: U16,
    /// Smallest request, and what every offset and length is a multiple of.
    pub minimum: U32,
    /// What the drive likes best.
    pub preferred: U32,
    /// Longest payload.
    pub maximum: U32,
}

/// A request ("Request message").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct RequestHead {
    /// [`REQUEST_MAGIC`].
    pub magic: U32,
    /// [`command_flag`].
    pub flags: U16,
    /// [`command`].
    pub command: U16,
    /// The client's name for the request ("handle" in older editions).
    pub cookie: U64,
    /// First byte.
    pub offset: U64,
    /// How many bytes.
    pub length: U32,
}

/// A simple reply ("Simple reply message").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct SimpleReply {
    /// [`SIMPLE_REPLY_MAGIC`].
    pub magic: U32,
    /// Zero or an [`ErrorCode`].
    pub error: U32,
    /// The request's.
    pub cookie: U64,
}

/// Head of a chunk of a structured reply ("Structured reply chunk message").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ChunkHead {
    /// [`STRUCTURED_REPLY_MAGIC`].
    pub magic: U32,
    /// [`REPLY_FLAG_DONE`].
    pub flags: U16,
    /// [`chunk`].
    pub kind: U16,
    /// The request's.
    pub cookie: U64,
    /// Bytes of payload that follow.
    pub length: U32,
}

/// `NBD_REPLY_TYPE_OFFSET_DATA` up to the data ("Structured reply types").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct OffsetData {
    /// The chunk.
    pub head: ChunkHead,
    /// Where the data lies in the export, in bytes.
    pub offset: U64,
}

/// `NBD_REPLY_TYPE_ERROR` up to the message ("Structured reply types").
#[derive(FromBytes, IntoBytes, Unaligned, Immutable, Clone, Copy)]
#[repr(C)]
pub struct ErrorChunk {
    /// The chunk.
    pub head: ChunkHead,
    /// An [`ErrorCode`].
    pub error: U32,
    /// Bytes of message that follow.
    pub message_length: U16,
}

const _: () = {
    assert!(size_of::<Greeting>() == 18);
    assert!(size_of::<OptionHead>() == 16);
    assert!(size_of::<OptionReplyHead>() == 20);
    assert!(size_of::<InfoExport>() == 12);
    assert!(size_of::<InfoBlockSize>() == 14);
    assert!(size_of::<RequestHead>() == 28);
    assert!(size_of::<SimpleReply>() == 16);
    assert!(size_of::<ChunkHead>() == 20);
    assert!(size_of::<OffsetData>() == 28);
    assert!(size_of::<ErrorChunk>() == 26);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_lies_on_the_wire_in_network_order() {
        let head = RequestHead {
            magic: REQUEST_MAGIC.into(),
            flags: command_flag::FUA.into(),
            command: command::WRITE.into(),
            cookie: 0x0102_0304_0506_0708.into(),
            offset: 0x1112_1314_1516_1718.into(),
            length: 0x2122_2324.into(),
        };
        let golden = [
            0x25, 0x60, 0x95, 0x13, 0x00, 0x01, 0x00, 0x01, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
            0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
        ];
        assert_eq!(head.as_bytes(), golden);
        let read = RequestHead::ref_from_bytes(&golden).unwrap();
        assert_eq!((read.command.get(), read.length.get()), (command::WRITE, 0x2122_2324));
    }

    #[test]
    fn the_greeting_lies_on_the_wire_as_text_and_flags() {
        let greeting = Greeting { magic: NBD_MAGIC.into(), option_magic: OPTION_MAGIC.into(), flags: 3.into() };
        assert_eq!(greeting.as_bytes(), b"NBDMAGICIHAVEOPT\x00\x03");
    }

    #[test]
    fn replies_lie_on_the_wire_in_network_order() {
        let simple = SimpleReply {
            magic: SIMPLE_REPLY_MAGIC.into(),
            error: (ErrorCode::NoSpace as u32).into(),
            cookie: 0x0102_0304_0506_0708.into(),
        };
        assert_eq!(simple.as_bytes(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 1, 2, 3, 4, 5, 6, 7, 8]);
        let option = OptionReplyHead {
            magic: OPTION_REPLY_MAGIC.into(),
            option: option::GO.into(),
            reply: option_reply::ERR_UNKNOWN.into(),
            length: 5.into(),
        };
        let golden = [0, 3, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, 0, 0, 0, 7, 0x80, 0, 0, 6, 0, 0, 0, 5];
        assert_eq!(option.as_bytes(), golden);
        let chunk = ErrorChunk {
            head: ChunkHead {
                magic: STRUCTURED_REPLY_MAGIC.into(),
                flags: REPLY_FLAG_DONE.into(),
                kind: chunk::ERROR.into(),
                cookie: 1.into(),
                length: 6.into(),
            },
            error: (ErrorCode::Shutdown as u32).into(),
            message_length: 0.into(),
        };
        let golden = [0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 108, 0, 0];
        assert_eq!(chunk.as_bytes(), golden);
    }

    #[test]
    fn information_lies_on_the_wire_in_network_order() {
        let export = InfoExport { info: info::EXPORT.into(), size: 0x1_0000.into(), flags: 0x0105.into() };
        assert_eq!(export.as_bytes(), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 5]);
        let sizes = InfoBlockSize {
            info: info::BLOCK_SIZE.into(),
            minimum: 1.into(),
            preferred: 4096.into(),
            maximum: (32 << 20).into(),
        };
        assert_eq!(sizes.as_bytes(), [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0]);
    }
}
