//! A store of pages of another process or machine, reached over NVMe/TCP: [`RemoteStore`], a [`BlockingStore`](openftl_pages::BlockingStore) as the
//! local one is.
//!
//! ```text
//!   program ── BlockingStore ──▶ RemoteStore ── NVMe/TCP ──▶ a server's namespace of pages ──▶ PageFtl
//!                                  │ admin queue: the shape of the store; then it only shows that the host is there
//!                                  └ I/O queue:   parts of batches, some of them under way together; other commands one by one
//! ```
//!
//! [`DriveUri`](openftl_nvme_media::uri::DriveUri) says where a store is: `nvme-tcp://127.0.0.1:4420`.
//!
//! # Memory and time
//! Changes are gathered in a part of at most 1 MiB for each batch that grows, and at most [`PARTS_UNDER_WAY_MAX`] parts are under way, of all
//! batches. Whoever does not answer within the limit of the connection (30 s unless said otherwise) is cut.
//!
//! # When the connection is cut
//! Every call fails with [`StoreFailure::Gone`](openftl_pages::StoreFailure::Gone) from then on. The server closes the sessions of the connection, and
//! gives up batches that were not committed. A program connects again, opens its session, which says what was durable, and sends the batch again whose
//! commit was under way, under its old number: if it was committed, that succeeds and changes nothing.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod batch;
mod link;
mod store;

pub use link::PARTS_UNDER_WAY_MAX;
pub use openftl_nvme_media::connect::ConnectError;
pub use store::RemoteStore;
