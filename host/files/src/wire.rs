//! What a process that uses a table drive says to the one that has it open: messages of a head and a body, in network byte order.
//!
//! ```text
//!   0        4         6      8                16      20         24
//!   │ magic  │ version │ kind │ number         │ bytes │ reserved │ body …
//! ```
//!
//! A client asks and the server answers, in the order of the questions, with their number. What is quiet ([`Request::is_quiet`]) is
//! answered only if it is broken; when it fails, the next request about the file that is written says so.
//!
//! A body is a row of fields: integers of 1, 2, 4 or 8 bytes; texts of 2 bytes for their length and UTF-8; data of 4 bytes for their
//! length and the bytes. Nothing may follow the last one.
//!
//! A connection begins with [`Request::Hello`]. Those of one client are a *session*: its readers and locks can be used by each of them,
//! and end with the last. A file is written by the connection that made it, one at a time.

use crate::{Attributes, FileError, FileKind};
use openftl_tables::TableLifetime;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Begins every message: "OFTF".
pub const MAGIC: u32 = 0x4F46_5446;
/// The version of this protocol. Both sides have to be of the same.
pub const VERSION: u16 = 1;
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
/// What the kind of an answer has beyond those of requests.
const ANSWER: u16 = 0x8000;

/// Before each message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: U32,
    /// [`VERSION`].
    pub version: U16,
    /// Which request or answer.
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
    #[error("message of kind {kind:#06x}: {reason}")]
    Body {
        /// Which.
        kind: u16,
        /// Why.
        reason: &'static str,
    },
}

/// A part of a file to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// From this byte on.
    pub offset: u64,
    /// So many.
    pub bytes: u32,
}

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    Read { file: u32, parts: Vec<Part> },
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
    Append { is_quiet: bool, data: &'a [u8] },
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
#[derive(Clone, PartialEq, Eq, Debug)]
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
    Names { has_more: bool, names: Vec<(&'a str, Attributes)> },
    /// A file that can be read.
    Opened { file: u32, kind: FileKind },
    /// What a file being read or written is like.
    State { bytes: u64, id: u64 },
    /// Of each part of a read, its bytes, or why there are none.
    Data(Vec<Result<&'a [u8], FileError>>),
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
struct Writer<'v> {
    to: &'v mut Vec<u8>,
    start: usize,
}

impl Writer<'_> {
    fn begin(to: &mut Vec<u8>, kind: u16, number: u64) -> Writer<'_> {
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
        Writer { to, start }
    }

    fn u8(&mut self, value: u8) {
        self.to.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.to.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.to.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.to.extend_from_slice(&value.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u16(u16::try_from(text.len()).expect("paths and errors are short"));
        self.to.extend_from_slice(text.as_bytes());
    }

    fn data(&mut self, data: &[u8]) {
        self.u32(u32::try_from(data.len()).expect("data are cut into messages"));
        self.to.extend_from_slice(data);
    }

    fn attributes(&mut self, attributes: &Attributes) {
        self.u8(attributes.kind as u8);
        self.u64(attributes.bytes);
        self.u64(attributes.modified);
    }

    fn error(&mut self, error: &FileError) {
        self.u8(error.code() as u8);
        let text = error.text();
        let mut end = text.len().min(ERROR_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.text(&text[..end]);
    }

    fn end(self) {
        let bytes = u32::try_from(self.to.len() - self.start - HEAD_BYTES).expect("a message has a bound");
        self.to[self.start + 16..self.start + 20].copy_from_slice(&bytes.to_be_bytes());
    }
}

/// Takes a body apart.
struct Fields<'a> {
    kind: u16,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn wrong(&self, reason: &'static str) -> WireError {
        WireError::Body { kind: self.kind, reason }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.wrong("the body is too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        Ok(self.take(N)?.try_into().expect("so many were taken"))
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("a flag is neither 0 nor 1")),
        }
    }

    fn text(&mut self) -> Result<&'a str, WireError> {
        let count = self.u16()?;
        let bytes = self.take(count.into())?;
        std::str::from_utf8(bytes).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    fn data(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.u32()? as usize;
        if count > DATA_BYTES_MAX {
            return Err(self.wrong("more data than a message may have"));
        }
        self.take(count)
    }

    fn kind(&mut self) -> Result<FileKind, WireError> {
        let byte = self.u8()?;
        FileKind::from_byte(byte).ok_or_else(|| self.wrong("there is no such kind of file"))
    }

    fn lifetime(&mut self) -> Result<TableLifetime, WireError> {
        let byte = self.u8()?;
        LIFETIMES.get(usize::from(byte)).copied().ok_or_else(|| self.wrong("there is no such lifetime"))
    }

    fn attributes(&mut self) -> Result<Attributes, WireError> {
        Ok(Attributes { kind: self.kind()?, bytes: self.u64()?, modified: self.u64()? })
    }

    fn error(&mut self, code: u8) -> Result<FileError, WireError> {
        let text = self.text()?.to_owned();
        FileError::from_code(code.into(), text).ok_or_else(|| self.wrong("there is no such error"))
    }

    fn end<T>(self, value: T) -> Result<T, WireError> {
        if self.rest.is_empty() { Ok(value) } else { Err(self.wrong("something follows the last field")) }
    }
}

/// By their numbers.
const LIFETIMES: [TableLifetime; 5] =
    [TableLifetime::Unknown, TableLifetime::Short, TableLifetime::Medium, TableLifetime::Long, TableLifetime::Extreme];

impl<'a> Request<'a> {
    /// Whether it is not answered when all is well.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self, Request::Hint { .. } | Request::Append { is_quiet: true, .. })
    }

    fn kind(&self) -> u16 {
        match self {
            Request::Hello { .. } => 1,
            Request::Space => 2,
            Request::Statistics => 3,
            Request::Attributes { .. } => 4,
            Request::List { .. } => 5,
            Request::Delete { .. } => 6,
            Request::Rename { .. } => 7,
            Request::MakeFolder { .. } => 8,
            Request::DeleteFolder { .. } => 9,
            Request::SyncNames { .. } => 10,
            Request::Lock { .. } => 11,
            Request::Unlock { .. } => 12,
            Request::OpenRead { .. } => 13,
            Request::Read { .. } => 14,
            Request::ReaderState { .. } => 15,
            Request::CloseReader { .. } => 16,
            Request::Create { .. } => 17,
            Request::AppendTo { .. } => 18,
            Request::Hint { .. } => 19,
            Request::Append { .. } => 20,
            Request::Truncate { .. } => 21,
            Request::WriterState => 22,
            Request::BeginSync => 23,
            Request::FinishSync => 24,
            Request::Close => 25,
            Request::Forget => 26,
            Request::Commit => 27,
        }
    }

    /// Writes the message behind what is in `to`.
    pub fn write(&self, number: u64, to: &mut Vec<u8>) {
        let mut writer = Writer::begin(to, self.kind(), number);
        match self {
            Request::Space
            | Request::Statistics
            | Request::WriterState
            | Request::Commit
            | Request::BeginSync
            | Request::FinishSync
            | Request::Close
            | Request::Forget => {}
            Request::Hello { session } => writer.u64(*session),
            Request::Attributes { path }
            | Request::Delete { path }
            | Request::MakeFolder { path }
            | Request::DeleteFolder { path }
            | Request::SyncNames { folder: path }
            | Request::Lock { path }
            | Request::Unlock { path }
            | Request::OpenRead { path }
            | Request::AppendTo { path } => writer.text(path),
            Request::List { folder: one, after: other } | Request::Rename { from: one, to: other } => {
                writer.text(one);
                writer.text(other);
            }
            Request::Read { file, parts } => {
                writer.u32(*file);
                writer.u16(u16::try_from(parts.len()).expect("a read has a bound"));
                for part in parts {
                    writer.u64(part.offset);
                    writer.u32(part.bytes);
                }
            }
            Request::ReaderState { file } | Request::CloseReader { file } => writer.u32(*file),
            Request::Create { path, kind } => {
                writer.text(path);
                writer.u8(*kind as u8);
            }
            Request::Hint { bytes, lifetime } => {
                writer.u64(*bytes);
                let number = LIFETIMES.iter().position(|other| other == lifetime).expect("all of them are there");
                writer.u8(number as u8);
            }
            Request::Append { is_quiet, data } => {
                writer.u8((*is_quiet).into());
                writer.data(data);
            }
            Request::Truncate { bytes } => writer.u64(*bytes),
        }
        writer.end();
    }

    /// Understands the body of a message of this kind.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(kind: u16, body: &'a [u8]) -> Result<Request<'a>, WireError> {
        let mut fields = Fields { kind, rest: body };
        let request = match kind {
            1 => Request::Hello { session: fields.u64()? },
            2 => Request::Space,
            3 => Request::Statistics,
            4 => Request::Attributes { path: fields.text()? },
            5 => Request::List { folder: fields.text()?, after: fields.text()? },
            6 => Request::Delete { path: fields.text()? },
            7 => Request::Rename { from: fields.text()?, to: fields.text()? },
            8 => Request::MakeFolder { path: fields.text()? },
            9 => Request::DeleteFolder { path: fields.text()? },
            10 => Request::SyncNames { folder: fields.text()? },
            11 => Request::Lock { path: fields.text()? },
            12 => Request::Unlock { path: fields.text()? },
            13 => Request::OpenRead { path: fields.text()? },
            14 => {
                let (file, count) = (fields.u32()?, fields.u16()?);
                if usize::from(count) > PARTS_MAX {
                    return Err(fields.wrong("a read of too many parts"));
                }
                let parts = (0..count).map(|_| Ok(Part { offset: fields.u64()?, bytes: fields.u32()? }));
                let parts = parts.collect::<Result<Vec<Part>, WireError>>()?;
                if parts.iter().map(|part| u64::from(part.bytes)).sum::<u64>() > DATA_BYTES_MAX as u64 {
                    return Err(fields.wrong("a read of too many bytes"));
                }
                Request::Read { file, parts }
            }
            15 => Request::ReaderState { file: fields.u32()? },
            16 => Request::CloseReader { file: fields.u32()? },
            17 => Request::Create { path: fields.text()?, kind: fields.kind()? },
            18 => Request::AppendTo { path: fields.text()? },
            19 => Request::Hint { bytes: fields.u64()?, lifetime: fields.lifetime()? },
            20 => Request::Append { is_quiet: fields.flag()?, data: fields.data()? },
            21 => Request::Truncate { bytes: fields.u64()? },
            22 => Request::WriterState,
            23 => Request::BeginSync,
            24 => Request::FinishSync,
            25 => Request::Close,
            26 => Request::Forget,
            27 => Request::Commit,
            _ => return Err(fields.wrong("there is no such request")),
        };
        fields.end(request)
    }
}

impl<'a> Answer<'a> {
    fn kind(&self) -> u16 {
        ANSWER
            | match self {
                Answer::Done => 0,
                Answer::Welcome { .. } => 1,
                Answer::Space { .. } => 2,
                Answer::Text(_) => 3,
                Answer::Attributes(_) => 4,
                Answer::Names { .. } => 5,
                Answer::Opened { .. } => 6,
                Answer::State { .. } => 7,
                Answer::Data(_) => 8,
                Answer::Error(_) => 9,
            }
    }

    /// Writes the message behind what is in `to`.
    pub fn write(&self, number: u64, to: &mut Vec<u8>) {
        let mut writer = Writer::begin(to, self.kind(), number);
        match self {
            Answer::Done => {}
            Answer::Welcome { session } => writer.u64(*session),
            Answer::Space { free, all } => {
                writer.u64(*free);
                writer.u64(*all);
            }
            Answer::Text(text) => writer.data(text.as_bytes()),
            Answer::Attributes(attributes) => writer.attributes(attributes),
            Answer::Names { has_more, names } => {
                writer.u8((*has_more).into());
                writer.u32(names.len() as u32);
                for (name, attributes) in names {
                    writer.text(name);
                    writer.attributes(attributes);
                }
            }
            Answer::Opened { file, kind } => {
                writer.u32(*file);
                writer.u8(*kind as u8);
            }
            Answer::State { bytes, id } => {
                writer.u64(*bytes);
                writer.u64(*id);
            }
            Answer::Data(parts) => {
                writer.u16(u16::try_from(parts.len()).expect("a read has a bound"));
                for part in parts {
                    match part {
                        Ok(data) => {
                            writer.u8(0);
                            writer.data(data);
                        }
                        Err(error) => writer.error(error),
                    }
                }
            }
            Answer::Error(error) => writer.error(error),
        }
        writer.end();
    }

    /// Understands the body of a message of this kind.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(kind: u16, body: &'a [u8]) -> Result<Answer<'a>, WireError> {
        let mut fields = Fields { kind, rest: body };
        let answer = match kind.wrapping_sub(ANSWER) {
            0 => Answer::Done,
            1 => Answer::Welcome { session: fields.u64()? },
            2 => Answer::Space { free: fields.u64()?, all: fields.u64()? },
            3 => {
                let bytes = fields.data()?;
                Answer::Text(std::str::from_utf8(bytes).map_err(|_| fields.wrong("a text is not UTF-8"))?)
            }
            4 => Answer::Attributes(fields.attributes()?),
            5 => {
                let (has_more, count) = (fields.flag()?, fields.u32()?);
                // Each of them has some bytes, so that a wrong count ends soon.
                let names = (0..count).map(|_| Ok((fields.text()?, fields.attributes()?)));
                Answer::Names { has_more, names: names.collect::<Result<Vec<_>, WireError>>()? }
            }
            6 => Answer::Opened { file: fields.u32()?, kind: fields.kind()? },
            7 => Answer::State { bytes: fields.u64()?, id: fields.u64()? },
            8 => {
                let count = fields.u16()?;
                let parts = (0..count).map(|_| match fields.u8()? {
                    0 => fields.data().map(Ok),
                    code => fields.error(code).map(Err),
                });
                Answer::Data(parts.collect::<Result<Vec<_>, WireError>>()?)
            }
            9 => {
                let code = fields.u8()?;
                Answer::Error(fields.error(code)?)
            }
            _ => return Err(fields.wrong("there is no such answer")),
        };
        fields.end(answer)
    }
}
