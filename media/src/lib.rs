//! Layer 1: how bits are kept and how long it takes.
//!
//! [`Media`] is the Open-Channel 2.0 contract. Everything above speaks only to it; everything that keeps bits
//! implements it and passes the conformance suite.
//!
//! | module | noun |
//! |---|---|
//! | [`contract`] | the trait, its commands, completions, descriptors and statuses |

pub mod contract;

pub use contract::{
    Blocks, ChunkDescriptor, ChunkState, Command, Completion, Media, MediaError, Notification, NotifiedScope,
    NotifiedState, QueueFull, Status, Tag,
};
