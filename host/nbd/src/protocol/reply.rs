//! Replies to requests: simple ones, or structured ones once the client has asked for them.

use zerocopy::IntoBytes;

use crate::wire::{
    ChunkHead, ErrorChunk, ErrorCode, OffsetData, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    SimpleReply, chunk,
};

/// How the client wants its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyForm {
    /// "Simple reply message".
    Simple,
    /// "Structured reply chunk message".
    Structured,
}

impl ReplyForm {
    /// Says that a request without data succeeded. A simple reply does in both forms.
    pub fn succeeded(self, cookie: u64, output: &mut Vec<u8>) {
        simple(cookie, 0, output);
    }

    /// What goes before the `length` bytes of data of a read at `offset`.
    ///
    /// The data is known to be good by now, so the one chunk is also the last.
    pub fn data_follows(self, cookie: u64, offset: u64, length: u32, output: &mut Vec<u8>) {
        match self {
            ReplyForm::Simple => simple(cookie, 0, output),
            ReplyForm::Structured => {
                let bytes = length + (size_of::<OffsetData>() - size_of::<ChunkHead>()) as u32;
                let head = OffsetData { head: last(chunk::OFFSET_DATA, cookie, bytes), offset: offset.into() };
                output.extend_from_slice(head.as_bytes());
            }
        }
    }

    /// Says that a request failed; structured replies also tell people why.
    pub fn failed(self, cookie: u64, error: ErrorCode, why: &str, output: &mut Vec<u8>) {
        match self {
            ReplyForm::Simple => simple(cookie, error as u32, output),
            ReplyForm::Structured => {
                let bytes = size_of::<ErrorChunk>() - size_of::<ChunkHead>() + why.len();
                let head = ErrorChunk {
                    head: last(chunk::ERROR, cookie, bytes as u32),
                    error: (error as u32).into(),
                    message_length: (why.len() as u16).into(),
                };
                output.extend_from_slice(head.as_bytes());
                output.extend_from_slice(why.as_bytes());
            }
        }
    }
}

fn simple(cookie: u64, error: u32, output: &mut Vec<u8>) {
    let reply = SimpleReply { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
    output.extend_from_slice(reply.as_bytes());
}

fn last(kind: u16, cookie: u64, bytes: u32) -> ChunkHead {
    ChunkHead {
        magic: STRUCTURED_REPLY_MAGIC.into(),
        flags: REPLY_FLAG_DONE.into(),
        kind: kind.into(),
        cookie: cookie.into(),
        length: bytes.into(),
    }
}
