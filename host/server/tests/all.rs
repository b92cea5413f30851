//! The tests of the server as one program, which is built once. Those that count what the whole process has, or that take long, are
//! programs of their own.

#[path = "support/authentication.rs"]
mod authentication;
#[path = "support/client.rs"]
mod client;
#[path = "../../bytes/tests/support/memory.rs"]
mod memory;
#[path = "support/nvme.rs"]
mod nvme;
#[path = "support/reactors.rs"]
mod reactors;

mod nvme_attachment;
mod nvme_authentication;
mod nvme_commands;
mod nvme_hints;
mod nvme_hosts;
mod nvme_pages;
mod nvme_reactors;
mod nvme_reservations;
mod nvme_segments;
mod nvme_tls;
mod nvme_zones;
mod operator;
mod sockets;
mod standstill;
