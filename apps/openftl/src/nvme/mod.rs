//! `openftl nvme`: what a user without root or kernel modules needs of an NVMe/TCP target.
//!
//! ```text
//!   gen-key    discover    identify    read    write    bench    zones
//!                  │          │          └───┬───┴────────┴────────┘
//!                  │          │             disk            a namespace, by an I/O queue
//!                  └──────────┴──────────────┤
//!                                       association         admin queue, authentication
//!                                            │
//!                                         channel          plain, or TLS
//!                                            │
//!                                          socket
//! ```

mod address;
mod association;
mod authentication;
mod bench;
mod channel;
mod discover;
mod disk;
mod gen_key;
mod identify;
mod input;
mod namespaces;
mod read;
mod socket;
mod transfer;
mod write;
mod zones;

pub use association::identity;

pub use address::Address;

use crate::cli::nvme::{Nvme, NvmeCommand};
use crate::failure::Failure;

pub fn run(arguments: &Nvme) -> Result<(), Failure> {
    match &arguments.command {
        NvmeCommand::GenKey(arguments) => gen_key::run(arguments),
        NvmeCommand::Discover(arguments) => discover::run(arguments),
        NvmeCommand::Identify(arguments) => identify::run(arguments),
        NvmeCommand::Read(arguments) => read::run(arguments),
        NvmeCommand::Write(arguments) => write::run(arguments),
        NvmeCommand::Bench(arguments) => bench::run(arguments),
        NvmeCommand::Zones(arguments) => zones::run(arguments),
    }
}
