//! TLS 1.3 with pre-shared keys, below NVMe over TCP.
//!
//! ```text
//!   ICReq, capsules, data          ICResp, capsules, data
//!         │                                ▲
//!    Session::write                  Session::read
//!         │                                │
//!   records ────────── stream ───────▶ records          a stream that the caller has: a socket, or memory
//! ```
//!
//! A connection begins with the handshake, before the first PDU (TCP Transport 1.1, "Transport Layer Security"). The host
//! offers the identities of its keys, the controller knows which it has, and both show that they know the key itself: so a
//! finished handshake proves both names of the identity. There are no certificates, nothing is resumed, and no data travel
//! before the handshake is done.
//!
//! | module | noun |
//! |---|---|
//! | `session` | one end of a connection |
//! | `acceptor` | what a controller knows: which identities, and their keys |
//! | `stream` | a host's end on a stream that blocks |
//! | `hello` | what a ClientHello offers |
//! | `pipe` | the stream as the library sees it |
//!
//! The protocol is s2n-tls's, a library in C that brings its cryptography (AWS-LC); with the feature `s2n` switched off there
//! is none of it, and whoever makes an [`Acceptor`] or a [`Session`] is told so. Cipher suites are TLS_AES_128_GCM_SHA256
//! with keys for SHA-256 and TLS_AES_256_GCM_SHA384 with keys for SHA-384; the key exchange is always there (psk_dhe_ke), so
//! a key that is stolen later opens no recording.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(feature = "s2n"), forbid(unsafe_code))]

#[cfg(feature = "s2n")]
mod acceptor;
#[cfg(feature = "s2n")]
mod hello;
#[cfg(feature = "s2n")]
mod pipe;
#[cfg(feature = "s2n")]
mod session;

#[cfg(not(feature = "s2n"))]
mod absent;
#[cfg(not(feature = "s2n"))]
use absent as acceptor;
#[cfg(not(feature = "s2n"))]
use absent as session;

mod stream;

pub use acceptor::Acceptor;
pub use session::Session;
pub use stream::{ConnectError, TlsStream};

/// Whether this build has TLS.
pub const IS_BUILT: bool = cfg!(feature = "s2n");

/// The first byte of a connection that begins with TLS: a record of the handshake (RFC 8446, 5.1). NVMe over TCP begins
/// with 00h, the type of ICReq.
pub const FIRST_BYTE: u8 = 0x16;

/// Why there is no TLS.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TlsError {
    /// It was left out.
    #[error(
        "this program was built without TLS; `cargo build --release --features tls` builds it in, with a C compiler"
    )]
    NotBuilt,
    /// The library refuses.
    #[error("the TLS library cannot do it: {0}")]
    Library(String),
}

#[cfg(feature = "s2n")]
fn library(error: s2n_tls::error::Error) -> TlsError {
    TlsError::Library(error.message().to_owned())
}
