//! The server: one thread that owns the drives and all connections, and as many beside it as are wished for that move the bytes of sockets
//! (`reactors.rs`).
//!
//! ```text
//!   wait ──▶ accept ──▶ receive, take requests ──▶ poll the drives ──▶ operator ──▶ answer, send ──▶ wait …
//!    ▲                  (who waits for frames first)                      │                             │
//!    │                                                                    └─ may interrupt it all       │
//!    └── until a socket is ready, a drive is due, a peer is late, the operator is called, or the stop ──┘
//!        is pulled
//! ```
//!
//! Each turn costs a connection at most one system call to receive and one to send, however many requests they hold;
//! and nobody gets more than that in a turn, so nobody starves.
//!
//! # Who may hold what
//! A peer can be slow, silent or gone in the middle of anything. What it holds then is bounded for itself and for all
//! together, and none of it is what others wait for:
//!
//! - **Frames.** A request that needs none of the peer any more ends by itself. A short write gets frames when all of its
//!   payload is in the receive buffer. A long one, and a read whose bytes are in line, may wait for a slow peer in frames; but
//!   as soon as another request finds too few of them, what lies in the frames of peers that moved less than 64 KiB in 50 ms
//!   goes on in memory of their connections, and their frames are free. That costs a copy of what has arrived, so no more than
//!   what the peer has paid for, and on the fast path nothing.
//! - **Memory instead of frames** is bounded for all by [`ServerConfig::kept_bytes_max`]; beyond it the connections that keep
//!   the most are closed. A client gets no frames for more replies before it has read those, and an NVMe host is asked for the
//!   data of no other write before it has sent those.
//! - **A reserve.** An eighth of the frames and of the places is for modest requests: small, of connections that hold little.
//!   They pass those that wait, so a read of 4 KiB never waits for the payload of others.
//! - **Turns.** All other requests wait for frames and places in the order in which their connections came. Requests of more
//!   than a connection's share hold at most half of the pool together.
//! - **Time.** Whoever owes something has [`ServerConfig::stall_max`], and the time that what it moves takes at 16 KiB a second.
//!
//! No two requests wait for each other: a request takes all its frames at once or none, and frames are held by the drive, which
//! ends what it has begun, or for a peer, and then they come back when somebody waits.
//!
//! # Bounds
//! | what | bound |
//! |---|---|
//! | connections | [`ServerConfig::connections_max`] |
//! | connections whose handshake is not done | [`ServerConfig::handshakes_max`] |
//! | steps of authentications and of handshakes of TLS in a turn | `AUTHENTICATION_STEPS_PER_TURN_MAX`, for those who are not yet let in |
//! | keys and secrets of authentications | one at a time, on a thread of their own that works half of the time; sources take turns by the time that each has had (`key_worker.rs`) |
//! | requests of a connection | [`ServerConfig::requests_max`] |
//! | bytes of a connection's requests | [`ServerConfig::bytes_max`], and the drive's pool by [`POOL_SHARES`] |
//! | requests admitted to a drive | `accounts::REQUESTS_MAX`, an eighth of them reserved for modest ones |
//! | frames | the drive's pool: without a free one NBD sockets are not read and NVMe commands parked; the longest waiting goes first |
//! | what hosts send to a store of pages or a key-value drive | [`ServerConfig::staging_bytes`] for each, in frames of its own: without a free one commands are parked |
//! | batches of pages that grow | [`BATCHES_MAX`](openftl_nvme::wire::pages::BATCHES_MAX) of a session, and of all [`CHANGES_MAX`](openftl_nvme::wire::pages::CHANGES_MAX) changes; sessions: as many as the store keeps |
//! | memory of slow payload and of replies that are not taken | [`ServerConfig::kept_bytes_max`] for all connections |
//! | receive buffers | one for each connection that has something unread, and `BUFFERS_KEPT_MAX` for the next |
//! | transfers of a reactor | `TRANSFERS_MAX`, one in each direction of a connection; what is beyond the server's thread does itself |
//! | bytes of a TLS connection that is busy | a gathering buffer of `GATHERED_BYTES_MAX` and the library's, about as much again; they are given back when it rests |
//! | heap of an NVMe connection's commands | `HEAP_BYTES_MAX`, and of all [`ServerConfig::heap_bytes_max`]; beyond it they end with a status that hosts answer by trying again |
//! | answers that an NVMe or NBD peer does not take | `SMALL_WAITING_BYTES_MAX`; then nothing more is heard from it |
//! | commands of an NVMe queue | its entries, at most `QUEUE_ENTRIES_MAX`; queues of a controller: `IO_QUEUES_MAX` |
//! | time of a handshake | [`ServerConfig::handshake_max`] |
//! | time that a peer may leave the server waiting in the middle of a message or of its replies | [`ServerConfig::stall_max`], and `n` bytes at 16 KiB a second |
//! | time to finish requests when stopping | [`ServerConfig::stop_max`] |
//! | time that requests may wait for a drive that ends nothing | what the drive says of itself ([`openftl_parts::target::Vitals`]), and none where nothing is under way; then it takes no more writes, and they end with errors |

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod accounts;
mod authentication;
mod channel;
pub mod clock;
mod config;
mod connection;
mod counters;
mod device_request;
mod end;
mod ended;
mod endpoint;
mod export;
mod fabric;
mod key_worker;
mod lingering;
mod link;
mod listener;
mod nbd;
mod nvme;
mod operator;
mod other;
mod output;
mod pace;
mod page_request;
mod parting;
mod peer;
mod protocol;
mod reactors;
mod recorder;
mod secure;
mod served;
mod served_drive;
mod server;
mod stop;
mod ticket;
mod transfer;
mod value_request;
mod zone_request;

pub use clock::WallClock;
pub use config::{POOL_SHARES, ServerConfig};
pub use counters::{Counter, Counters};
pub use end::{End, ServeError};
pub use endpoint::{Endpoint, EndpointError};
pub use export::{EXPORT_NAME_BYTES_MAX, Export, POOL_FRAMES_MIN};
pub use listener::{AdoptError, ListenError, Listener};
pub use openftl_bytes::objects::TAGS as OPERATOR_TAGS;
pub use operator::{AttachError, Drives, NoOperator, Operator};
pub use other::{Device, Other};
pub use protocol::Protocol;
pub use recorder::Recorder;
pub use secure::TlsPolicy;
pub use served_drive::ServedDrive;
pub use server::Server;
pub use stop::Stop;
