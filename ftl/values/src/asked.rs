//! Requests that have not ended.

use crate::directory::{Cursor, Pending};
use crate::key::Key;
use crate::request::{Condition, Facts};
use openftl_core::{BLOCK_BYTES, Frame, Frames};

/// The value of a Store, until it is written.
pub(crate) enum Held {
    /// A copy of what the host gave.
    Bytes(Vec<u8>),
    /// Frames of the staging.
    Frames { frames: Vec<Frame>, bytes: u32 },
}

impl Held {
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        match self {
            Held::Bytes(bytes) => bytes.len(),
            Held::Frames { bytes, .. } => *bytes as usize,
        }
    }

    /// They are needed no more.
    pub fn release(self, staging: &mut Frames, waiting_bytes: &mut usize) {
        match self {
            Held::Bytes(bytes) => *waiting_bytes -= bytes.len(),
            Held::Frames { frames, .. } => frames.iter().for_each(|frame| staging.release(*frame)),
        }
    }

    /// The bytes, piece by piece.
    pub fn pieces<'a>(&'a self, staging: &'a Frames) -> impl Iterator<Item = &'a [u8]> {
        let (whole, frames, bytes) = match self {
            Held::Bytes(bytes) => (&bytes[..], &[][..], 0),
            Held::Frames { frames, bytes } => (&[][..], &frames[..], *bytes as usize),
        };
        let of_frames = frames.iter().enumerate().map(move |(at, frame)| {
            let rest = bytes - (at * BLOCK_BYTES).min(bytes);
            &staging.bytes(*frame)[..rest.min(BLOCK_BYTES)]
        });
        std::iter::once(whole).chain(of_frames).filter(|piece| !piece.is_empty())
    }
}

/// What is asked for.
pub(crate) enum Deed {
    Store { value: Held, condition: Condition },
    Retrieve { frames: Vec<Frame> },
    Exist,
    Delete,
    List(Box<Listing>),
    Flush,
}

/// A list that is being written.
pub(crate) struct Listing {
    /// The last key that was gone through, or the first that is to be; `None`: from the first one on.
    pub position: Option<Key>,
    /// Whether it is behind that key.
    pub is_behind: bool,
    pub bytes_max: usize,
    pub written: usize,
    pub keys: u32,
    pub frames: Vec<Frame>,
    /// Of which generation of the directory the cursors are; `None`: there are none.
    pub generation: Option<u64>,
    pub cursors: Vec<Cursor>,
}

/// How far a request is.
pub(crate) enum Phase {
    /// It has not begun, or waits for something that is not read.
    Waiting,
    /// The record at the end of page `lpid` is read.
    Tail { lpid: u64, bytes: u32 },
    /// All of the page is read to the host's frames.
    Whole { lpid: u64, bytes: u32 },
    /// The key is the one that was asked for, and its value is read to the host's frames.
    Data { lpid: u64, bytes: u32 },
    /// The list of keys that share the number is read.
    List { bytes: u32 },
    /// It was read, and it is not known yet whether the key has a value.
    Listed(Vec<(Key, u16)>),
    /// The value of the key that has the number, which is about to share it, is read, piece by piece.
    Other { key: Key, bytes: u32, read: Vec<u8> },
    /// A page of a run is read: the cursor that waits for it.
    Run { cursor: usize, generation: u64 },
    /// It is to be written.
    Planned(Plan),
    /// Its batch is to be committed.
    Committing { facts: Facts, effect: Effect },
    /// It is to be durable.
    Durable { facts: Facts },
}

/// How a Store or a Delete changes the pages of its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// Nobody has the number: the page of the key.
    New,
    /// The page of the key again. One that the medium has lost `is_lost`: which key it was of is not known.
    Again { lpid: u64, is_lost: bool },
    /// Another key has the number: a list of both, and a page for each value.
    Share { other: Key, value: Vec<u8> },
    /// A place in the list.
    Join { list: Vec<(Key, u16)> },
    /// The page of the key goes.
    Remove { is_lost: bool },
    /// The place in the list and its page go.
    Leave { list: Vec<(Key, u16)>, slot: u16 },
}

/// What a committed batch changes of what is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Effect {
    /// The key is there, or is there no more.
    pub change: Option<(Key, Pending)>,
    /// Whether the number of keys changes by that.
    pub is_counted: bool,
    /// Bytes of values that come and go.
    pub bytes_new: u64,
    /// See above.
    pub bytes_old: u64,
    /// Grains of pages that go.
    pub grains_old: u64,
}

/// A request.
pub(crate) struct Asked {
    pub tag: u64,
    pub deed: Deed,
    /// Its key and the number of that; none of lists and flushes.
    pub key: Option<(Key, u64)>,
    /// It has its turn at the number.
    pub has_turn: bool,
    pub is_durable: bool,
    pub phase: Phase,
    /// Frames of the drive's own that are read to.
    pub own: Vec<Frame>,
}

impl Asked {
    /// Whether it changes anything.
    pub fn is_change(&self) -> bool {
        matches!(self.deed, Deed::Store { .. } | Deed::Delete)
    }

    /// Its key.
    pub fn key(&self) -> Key {
        self.key.expect("a request for a key has one").0
    }

    /// The number of its key.
    pub fn number(&self) -> u64 {
        self.key.expect("a request for a key has one").1
    }
}
