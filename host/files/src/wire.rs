//! What a process that uses a table drive says to the one that has it open: messages of a head, in network byte order, and a body.
//!
//! ```text
//!   0        4         6      8                16      20         24
//!   │ magic  │ version │ kind │ number         │ bytes │ reserved │ body …
//! ```
//!
//! A client asks (kind 1) and the server answers (kind 2), in the order of the questions, with their number. What is quiet
//! ([`Request::is_quiet`]) is answered only if it is broken; when it fails, the next request about the file that is written says so.
//!
//! A body is a [`Request`] or an [`Answer`] as [postcard](https://postcard.jamesmunns.com) writes it. Nothing may follow it. Texts and data
//! are not copied from it.
//!
//! A connection begins with [`Request::Hello`]. Those of one client are a *session*: its readers and locks can be used by each of them,
//! and end with the last. A file is written by the connection that made it, one at a time.

use crate::{Attributes, FileError, FileKind};
use openftl_tables::TableLifetime;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::Bytes;
use std::fmt;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

/// Begins every message: "OFTF".
pub const MAGIC: u32 = 0x4F46_5446;
/// The version of this protocol. Both sides have to be of the same. Whoever changes a message, or their order, counts on.
pub const VERSION: u16 = 2;
/// Bytes of a head.
pub const HEAD_BYTES: usize = size_of::<Head>();
/// Bytes of a body, at most.
pub const BODY_BYTES_MAX: usize = 2 << 20;
/// Bytes of data in one message: of an append, or of all parts of a read together.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Parts of one read.
pub const PARTS_MAX: usize = 256;
/// Bytes of the text of an error; it is cut there.
const ERROR_BYTES_MAX: usize = 1024;
/// The kind of a request, and of an answer.
const REQUEST: u16 = 1;
const ANSWER: u16 = 2;

/// Before each message.
#[derive(FromBytes, IntoBytes, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// Request or answer.
    pub kind: U16,
    /// Of the request; its answer has the same.
    pub number: U64,
    /// Of the body.
    pub bytes: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(HEAD_BYTES == 24);

/// Why bytes are no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Somebody speaks something else.
    #[error("the message begins with {0:#010x}, and not with {MAGIC:#010x}: this is another protocol")]
    Magic(u32),
    /// Another release.
    #[error(
        "the other side speaks version {0} of the protocol, and this one {VERSION}; use the same release of OpenFTL on both sides"
    )]
    Version(u16),
    /// It does not fit.
    #[error("a message of {0} bytes is longer than {BODY_BYTES_MAX}")]
    TooLong(u32),
    /// A field is not what it should be.
    #[error("a message of kind {kind}: {reason}")]
    Body {
        /// Which.
        kind: u16,
        /// Why.
        reason: &'static str,
    },
}

/// A part of a file to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// From this byte on.
    pub offset: u64,
    /// So many.
    pub bytes: u32,
}

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of the functions of `Files`, `FileWriter` and `FileReader`")]
pub enum Request<'a> {
    /// Begins a session (0), or takes part in one.
    Hello { session: u64 },
    /// `Files::space`.
    Space,
    /// `Files::statistics`.
    Statistics,
    /// `Files::attributes`.
    Attributes { path: &'a str },
    /// `Files::list`, behind the name `after`.
    List { folder: &'a str, after: &'a str },
    /// `Files::delete`.
    Delete { path: &'a str },
    /// `Files::rename`.
    Rename { from: &'a str, to: &'a str },
    /// `Files::make_folder`.
    MakeFolder { path: &'a str },
    /// `Files::delete_folder`.
    DeleteFolder { path: &'a str },
    /// `Files::sync_names`.
    SyncNames { folder: &'a str },
    /// `Files::lock`.
    Lock { path: &'a str },
    /// `Files::unlock`.
    Unlock { path: &'a str },
    /// `Files::open_read`.
    OpenRead { path: &'a str },
    /// `FileReader::read_many`.
    Read {
        file: u32,
        #[serde(deserialize_with = "few")]
        parts: Vec<Part>,
    },
    /// `FileReader::bytes` and `FileReader::id`.
    ReaderState { file: u32 },
    /// Ends a reader.
    CloseReader { file: u32 },
    /// `Files::create`.
    Create { path: &'a str, kind: FileKind },
    /// `Files::append_to`.
    AppendTo { path: &'a str },
    /// `FileWriter::hint_size` and `FileWriter::hint_lifetime`. Quiet.
    Hint { bytes: u64, lifetime: TableLifetime },
    /// `FileWriter::append`. May be quiet.
    Append {
        is_quiet: bool,
        #[serde(with = "serde_bytes")]
        data: &'a [u8],
    },
    /// `FileWriter::truncate`.
    Truncate { bytes: u64 },
    /// `FileWriter::bytes` and `FileWriter::id`, when everything before is done.
    WriterState,
    /// `FileWriter::commit`.
    Commit,
    /// `FileWriter::begin_sync`.
    BeginSync,
    /// `PendingSync::finish`, of any sync that has begun.
    FinishSync,
    /// `FileWriter::close`.
    Close,
    /// `FileWriter::forget`.
    Forget,
}

/// What the server answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are what the functions return")]
pub enum Answer<'a> {
    /// It is done.
    Done,
    /// The client's session.
    Welcome { session: u64 },
    /// Room for tables.
    Space { free: u64, all: u64 },
    /// Statistics, as JSON.
    Text(&'a str),
    /// What a name is like.
    Attributes(Attributes),
    /// Names in a folder; there may be more.
    Names {
        has_more: bool,
        #[serde(borrow)]
        names: Vec<(&'a str, Attributes)>,
    },
    /// A file that can be read.
    Opened { file: u32, kind: FileKind },
    /// What a file being read or written is like.
    State { bytes: u64, id: u64 },
    /// Of each part of a read, its bytes, or why there are none.
    Data(#[serde(borrow, with = "parts")] Vec<Result<&'a [u8], FileError>>),
    /// It was not done.
    Error(FileError),
}

impl Head {
    /// Understands the head of a message.
    ///
    /// # Errors
    /// If it is none, or its body would be too long.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Head, WireError> {
        let head = Head::read_from_bytes(bytes).expect("as many bytes as a head has");
        if head.magic.get() != MAGIC {
            return Err(WireError::Magic(head.magic.get()));
        }
        if head.version.get() != VERSION {
            return Err(WireError::Version(head.version.get()));
        }
        if head.reserved.get() != 0 {
            return Err(WireError::Body {
                kind: head.kind.get(),
                reason: "the reserved bytes of the head are not zero",
            });
        }
        if head.bytes.get() as usize > BODY_BYTES_MAX {
            return Err(WireError::TooLong(head.bytes.get()));
        }
        Ok(head)
    }
}

/// Writes a message behind what is in `to`.
fn write(body: &impl Serialize, kind: u16, number: u64, to: &mut Vec<u8>) {
    let start = to.len();
    let head = Head {
        magic: MAGIC.into(),
        version: VERSION.into(),
        kind: kind.into(),
        number: number.into(),
        bytes: 0.into(),
        reserved: 0.into(),
    };
    to.extend_from_slice(head.as_bytes());
    *to = postcard::to_extend(body, std::mem::take(to)).expect("memory has room for all that is written");
    let bytes = u32::try_from(to.len() - start - HEAD_BYTES).expect("a message has a bound");
    to[start + 16..start + 20].copy_from_slice(&bytes.to_be_bytes());
}

/// Understands all of a body.
fn parse<'a, T: Deserialize<'a>>(kind: u16, expected: u16, body: &'a [u8]) -> Result<T, WireError> {
    let wrong = |reason| WireError::Body { kind, reason };
    if kind != expected {
        return Err(wrong("requests are of kind 1, and answers of kind 2"));
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(wrong("something follows the last field")),
        Err(postcard::Error::DeserializeUnexpectedEnd) => Err(wrong("the body is too short")),
        Err(postcard::Error::DeserializeBadUtf8) => Err(wrong("a text is not UTF-8")),
        Err(postcard::Error::DeserializeBadBool) => Err(wrong("a flag is neither 0 nor 1")),
        Err(_) => Err(wrong("a field is not what it should be")),
    }
}

impl<'a> Request<'a> {
    /// Whether it is not answered when all is well.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self, Request::Hint { .. } | Request::Append { is_quiet: true, .. })
    }

    /// Writes the message behind what is in `to`.
    pub fn write(&self, number: u64, to: &mut Vec<u8>) {
        write(self, REQUEST, number, to);
    }

    /// Understands the body of a message of this kind.
    ///
    /// # Errors
    /// If it is none, or asks for more than one request may.
    pub fn parse(kind: u16, body: &'a [u8]) -> Result<Request<'a>, WireError> {
        let request = parse(kind, REQUEST, body)?;
        let bytes = match &request {
            Request::Read { parts, .. } => parts.iter().map(|part| u64::from(part.bytes)).sum(),
            Request::Append { data, .. } => data.len() as u64,
            _ => 0,
        };
        if bytes > DATA_BYTES_MAX as u64 {
            return Err(WireError::Body { kind, reason: "more data than a message may have" });
        }
        Ok(request)
    }
}

impl<'a> Answer<'a> {
    /// Writes the message behind what is in `to`.
    pub fn write(&self, number: u64, to: &mut Vec<u8>) {
        write(self, ANSWER, number, to);
    }

    /// Understands the body of a message of this kind.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(kind: u16, body: &'a [u8]) -> Result<Answer<'a>, WireError> {
        parse(kind, ANSWER, body)
    }
}

/// Its code and its text, which is cut where it is long.
impl Serialize for FileError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.text();
        (self.code() as u8, &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileError, D::Error> {
        let (code, text) = <(u8, &str)>::deserialize(deserializer)?;
        FileError::from_code(code.into(), text.to_owned()).ok_or_else(|| de::Error::custom("there is no such error"))
    }
}

/// Parts of a read: no more of them are taken from a message than a read may have.
fn few<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    struct Few;

    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Part>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "up to {PARTS_MAX} parts")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<Part>, A::Error> {
            let mut parts = Vec::new();
            while let Some(part) = sequence.next_element()? {
                if parts.len() == PARTS_MAX {
                    return Err(de::Error::invalid_length(parts.len() + 1, &self));
                }
                parts.push(part);
            }
            Ok(parts)
        }
    }

    deserializer.deserialize_seq(Few)
}

/// What was read, as bytes and not one by one.
mod parts {
    use super::{Bytes, Deserialize, Deserializer, FileError, Serializer};

    pub(super) fn serialize<S: Serializer>(
        parts: &[Result<&[u8], FileError>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(parts.iter().map(|part| part.as_ref().map(|data| Bytes::new(data))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Result<&'de [u8], FileError>>, D::Error> {
        let parts = Vec::<Result<&'de Bytes, FileError>>::deserialize(deserializer)?;
        Ok(parts.into_iter().map(|part| part.map(|data| -> &'de [u8] { data })).collect())
    }
}
