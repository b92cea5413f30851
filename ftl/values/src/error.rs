//! Why a key-value drive refuses a request, or could not do it. Where NVMe KV has a status for it, the first words are its name.

use openftl_pages::StoreError;
use openftl_parts::target::IoError;
use openftl_parts::words::ReadOnlyReason;

/// See the module. Nothing has happened, unless the medium has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValueError {
    /// As many requests as there may be, or as many bytes of values, wait in the drive; poll, then ask again.
    #[error("the drive has no room for this request right now: poll it, then ask again")]
    Busy,
    /// There is no room for the value.
    #[error(
        "capacity exceeded: {free} bytes are free, and the value needs {needed} with its header; delete keys, or store smaller values"
    )]
    CapacityExceeded {
        /// Bytes that it takes, with what stands before and behind it.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// There are as many keys as there may be.
    #[error(
        "capacity exceeded: the drive has {most} keys, as many as its index has room for; delete keys, or make a drive with a larger keys_max"
    )]
    KeysExceeded {
        /// How many there may be.
        most: u64,
    },
    /// A value longer than the drive takes.
    #[error("invalid value size: the value has {bytes} bytes, and this drive takes {most} at most")]
    ValueSize {
        /// Its bytes.
        bytes: u64,
        /// The most.
        most: u32,
    },
    /// A key of no bytes, or a longer one than the drive takes.
    #[error("invalid key size: the key has {bytes} bytes, and a key has 1 to {most} bytes on this drive")]
    KeySize {
        /// Its bytes.
        bytes: u64,
        /// The most.
        most: u8,
    },
    /// There is no such key.
    #[error("key does not exist")]
    NoKey,
    /// There is such a key.
    #[error("key exists")]
    KeyExists,
    /// The medium has lost the value, or returned something else.
    #[error("unrecovered error: the value cannot be read from the medium")]
    Unrecovered,
    /// A list needs room for the number of its keys, and no more frames than are given.
    #[error("a list of keys goes to 4 bytes at least, and {frames} frames have {most}: {bytes} were asked for")]
    ListSize {
        /// What was asked for.
        bytes: u32,
        /// Frames that were given.
        frames: usize,
        /// Bytes of these.
        most: u64,
    },
    /// The frames of a value have fewer bytes than it.
    #[error("{frames} frames have fewer bytes than a value of {bytes}")]
    Frames {
        /// Bytes of the value.
        bytes: u64,
        /// Frames that were given.
        frames: usize,
    },
    /// The drive takes no more writes.
    #[error("the drive is read-only: {0}")]
    ReadOnly(ReadOnlyReason),
    /// The area with the log of the drive has failed.
    #[error("the log of the drive: {0}")]
    Log(IoError),
    /// The store of pages below refuses what it never should: a defect.
    #[error("the pages below: {0}")]
    Pages(StoreError),
}

impl ValueError {
    /// The status of NVMe KV, of the generic ones. `None`: it has none.
    #[must_use]
    pub fn status(self) -> Option<u8> {
        match self {
            ValueError::CapacityExceeded { .. } | ValueError::KeysExceeded { .. } => Some(0x81),
            ValueError::ValueSize { .. } => Some(0x85),
            ValueError::KeySize { .. } => Some(0x86),
            ValueError::NoKey => Some(0x87),
            ValueError::Unrecovered => Some(0x88),
            ValueError::KeyExists => Some(0x89),
            ValueError::ListSize { .. } => Some(0x02),
            _ => None,
        }
    }
}

impl From<StoreError> for ValueError {
    fn from(error: StoreError) -> ValueError {
        match error {
            StoreError::Busy | StoreError::Early { .. } => ValueError::Busy,
            StoreError::NoSpace { needed, free, .. } => ValueError::CapacityExceeded { needed, free },
            StoreError::Unrecovered { .. } => ValueError::Unrecovered,
            StoreError::ReadOnly(reason) => ValueError::ReadOnly(reason),
            StoreError::Log(error) => ValueError::Log(error),
            other => ValueError::Pages(other),
        }
    }
}
