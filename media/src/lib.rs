//! Layer 1: how bits are kept and how long it takes.
//!
//! [`Media`] is the Open-Channel 2.0 contract. Everything above speaks only to it; everything that keeps bits
//! implements it and passes the conformance suite.
//!
//! | module | noun |
//! |---|---|
//! | [`conformance`] | every rule of the contract as a check for any device |
//! | [`contract`] | the trait, its commands, completions, descriptors and statuses |
//! | [`profile`] | one NAND device, from TOML |
//! | [`device`] | the emulated device |
//! | [`partition`] | parts of one device, each a device of its own |
//! | [`parts`] | what they are called, and what they are for |
//! | [`store`] | where its bits are kept: RAM, stamps, a file |

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod conformance;
pub mod contract;
pub mod device;
pub mod partition;
pub mod parts;
pub mod profile;
pub mod store;

pub use contract::{
    Blocks, ChunkDescriptor, ChunkState, Command, Completion, Media, MediaError, Notification, NotifiedScope,
    NotifiedState, QueueFull, SCALAR_BLOCKS_MAX, Status, Tag,
};
pub use device::{
    BlockMask, COMMANDS_MAX, DeviceError, DieFate, EmulatedDevice, EraseFate, Missing, NandStatistics, PowerLoss,
    ProgramFailure, ProgramFate, Remains, SilentFault, Timing,
};
pub use partition::{Part, Partition, PartitionError};
pub use parts::{PartKind, PartLabel, PartName};
pub use profile::{Profile, ProfileError};
pub use store::commit::Durability;
pub use store::file::FileStore;
pub use store::page_cache::PageCache;
pub use store::{Store, StoreError};
