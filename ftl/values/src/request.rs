//! What a host may ask of a key-value drive.

use crate::error::ValueError;
use crate::key::Key;
use openftl_core::{Frame, Time};
use openftl_parts::target::{Durability, Target};

/// Tags of hosts are below this.
pub const TAGS: u64 = 1 << 62;

/// Which keys a Store is for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Condition {
    /// Any.
    #[default]
    Always,
    /// One that exists: else the request ends with [`ValueError::NoKey`].
    IfExists,
    /// One that does not: else the request ends with [`ValueError::KeyExists`].
    IfMissing,
}

/// The bytes of a value on their way to the drive. It has them when the request has begun.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// So many bytes in frames of the drive's [staging](crate::ValueFtl::staging). The frames are the drive's from the beginning of the request
    /// on: it copies their bytes to where they are programmed from, which is their only copy.
    Frames {
        /// Where they are: as many frames as they take.
        frames: &'a [Frame],
        /// How many.
        bytes: u32,
    },
    /// In pieces, wherever they are: the drive keeps a copy until it writes them.
    Pieces(&'a [&'a [u8]]),
}

impl Value<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Value::Frames { bytes, .. } => u64::from(*bytes),
            Value::Pieces(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub enum ValueRequest<'a> {
    /// The key has this value from now on. Facts: bytes of the value; 1 key if it is new, else 0.
    Store {
        /// The key.
        key: Key,
        /// Its value: 0 bytes to [`ValueInfo::value_max`].
        value: Value<'a>,
        /// Whether it is to exist, decided and written as one.
        condition: Condition,
        /// When it is done. A drive with durable stores is always durable.
        durability: Durability,
    },
    /// Reads the value of a key, as much as fits. Facts: *all* bytes of the value, however many fit.
    Retrieve {
        /// The key.
        key: Key,
        /// Where to; the host's until the [`ValueDone`] and after. What lies behind the value is of no meaning.
        frames: &'a [Frame],
    },
    /// Asks whether there is a key. Facts: bytes of its value.
    Exist {
        /// The key.
        key: Key,
    },
    /// There is no such key from now on: [`ValueError::NoKey`] if there is none. Facts: 1 key.
    Delete {
        /// The key.
        key: Key,
        /// When it is done.
        durability: Durability,
    },
    /// Writes keys in their order, as NVMe KV has them: their number (4 bytes), and of each its length (2 bytes) and its bytes, with zeroes
    /// behind so that it takes a multiple of 4. Facts: bytes and keys written.
    List {
        /// The first key, or where it would be; `None`: from the first one on.
        from: Option<Key>,
        /// So many bytes at most: 4 at least.
        bytes: u32,
        /// Where to; the host's until the [`ValueDone`] and after.
        frames: &'a [Frame],
    },
    /// Done when all that was acknowledged before is durable.
    Flush,
}

/// What is known when a request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Facts {
    /// Bytes: see the requests.
    pub bytes: u32,
    /// Keys: see the requests.
    pub keys: u32,
}

/// A request has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueDone {
    /// The host's tag.
    pub tag: u64,
    /// How.
    pub result: Result<Facts, ValueError>,
    /// When.
    pub at: Time,
}

/// What a key-value drive is like, and how much of it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueInfo {
    /// Keys that there are, and their bytes.
    pub keys: u64,
    /// See above.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Keys that there may be.
    pub keys_max: u64,
    /// Bytes of a key, at most.
    pub key_max: u8,
    /// Bytes of a value, at most.
    pub value_max: u32,
    /// Bytes on media for values, with what stands before and behind each.
    pub capacity_bytes: u64,
    /// Of these the bytes that are taken.
    pub used_bytes: u64,
    /// Stores and Deletes are durable when they are acknowledged, whatever the request says.
    pub durable_stores: bool,
}

/// A key-value drive, seen from a host interface.
pub trait ValueTarget: Target<Done = ValueDone> {
    /// Begins a request with a tag below [`TAGS`].
    ///
    /// # Errors
    /// If it cannot be begun. Nothing has happened then, and frames stay the caller's.
    fn submit(&mut self, now: Time, tag: u64, request: ValueRequest<'_>) -> Result<(), ValueError>;

    /// What the drive is like.
    fn info(&self) -> ValueInfo;
}
