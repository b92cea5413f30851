//! Known bugs, for tests of the tests: whoever looks for bugs has to find these.
//!
//! They are built in with the feature `canary` alone. Without it no drive can have one, and asking costs nothing.

/// A bug that an FTL could have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// The commit record goes to the log before the data that it speaks of is programmed.
    RecordBeforeData,
    /// A flush is answered before the log is durable.
    FlushBeforeLog,
    /// A chunk is reset before the log that says where its blocks went is durable.
    ResetBeforeLog,
    /// A checkpoint is published without waiting for the log, so that it may know of half a transaction.
    CheckpointBeforeLog,
    /// Each block of a write is a transaction of its own.
    SplitTransaction,
    /// A block that is to be uncorrectable is so in the write buffer only, and zeroes on the medium.
    ForgottenMark,
    /// A chunk whose part of a table has moved is released before the catalog that says so is durable.
    ReleaseBeforeCatalog,
    /// A recovery does not write down which numbers of the log it skips.
    UnrecordedGap,
    /// A recovery gives log blocks numbers that were given away before the crash.
    ReusedNumber,
    /// Blocks of the log that only one copy has stay so.
    UnmendedCopy,
    /// Chunks that a crash left open and that hold nothing stay so: the room in them is gone.
    ForgottenRoom,
    /// What collection has moved counts, though the host has overwritten it meanwhile.
    CollectionRace,
    /// Nothing ties the CRC of a block to its place and to the life of its chunk, so an older version passes for the newest.
    UntiedBlocks,
}

/// The bug that a drive is to have, if any.
#[derive(Clone, Copy, Default)]
pub struct Bugs {
    #[cfg(feature = "canary")]
    canary: Option<Canary>,
}

impl Bugs {
    /// With this bug, or none.
    #[cfg(feature = "canary")]
    #[must_use]
    pub fn new(canary: Option<Canary>) -> Bugs {
        Bugs { canary }
    }

    /// Whether this drive has that bug.
    #[inline]
    pub fn has(self, canary: Canary) -> bool {
        #[cfg(feature = "canary")]
        return self.canary == Some(canary);
        #[cfg(not(feature = "canary"))]
        {
            _ = canary;
            false
        }
    }
}
