//! Who is it: host and controller show each other over NVMe/TCP that they know a secret, without sending it.
//!
//! DH-HMAC-CHAP does so with commands, on a connection that everybody can read:
//!
//! ```text
//!  host                                             controller
//!   │ ── Authentication Send ─── AUTH_Negotiate ──────▶ │   which hash functions, which groups
//!   │ ◀─ Authentication Receive ─ Challenge ─────────── │   one of each, C1, S1, g^x
//!   │ ── Authentication Send ─── Reply ───────────────▶ │   R1, and if the controller is asked too C2, S2; g^y
//!   │ ◀─ Authentication Receive ─ Success1 ──────────── │   R2 if asked
//!   │ ── Authentication Send ─── Success2 ────────────▶ │   only after R2
//! ```
//!
//! Whoever is not content says `AUTH_Failure1` (controller) or `AUTH_Failure2` (host), and the connection ends.
//! Each queue authenticates by itself, and may do so again later.
//!
//! | module | noun |
//! |---|---|
//! | [`secret`] | what an administrator hands out, as nvme-cli writes it |
//! | [`secrets`] | those that a subsystem knows |
//! | [`tls_key`] | the same for TLS, and the pre-shared keys that follow from it |
//! | [`tls_keys`] | those that a subsystem knows |
//! | [`interchange`] | how all of them are written down |
//! | [`key_file`], [`key_table`] | files of them: a host's, a server's |
//! | [`credentials`] | two names, one or two keys, and the responses that follow from them |
//! | [`hash`] | SHA-2 and HMAC |
//! | [`group`] | Diffie-Hellman in the groups of RFC 7919 |
//! | [`nonces`] | numbers used once |
//! | [`messages`] | the payload of Authentication Send and Authentication Receive |
//! | [`refusal`] | why one side does not go on |
//! | [`policy`] | which hash functions and groups one accepts |
//! | [`controller`] | the controller's half |
//! | [`host`] | the host's half |
//!
//! Paragraphs and figures are those of the NVM Express Base Specification 2.1; in-band authentication is 8.3.4, and
//! DH-HMAC-CHAP 8.3.4.5. Later revisions call the protocol KX-HMAC-CHAP and keep the layouts.
//!
//! TLS does so before the first byte of NVMe; its handshake is that of a library, its keys are derived here. TLS with a key
//! that DH-HMAC-CHAP has made is not offered: who asks for a secure channel in AUTH_Negotiate is refused.
//!
//! No socket, no clock, no chance of its own: commands are the transport's, time and randomness are arguments.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod controller;
pub mod credentials;
pub mod group;
pub mod hash;
pub mod host;
pub mod interchange;
pub mod key_file;
pub mod key_table;
pub mod messages;
pub mod nonces;
pub mod policy;
pub mod refusal;
pub mod secret;
pub mod secrets;
pub mod tls_key;
pub mod tls_keys;

pub use controller::{AllocationTooShort, Computed, Controller, Step, Work};
pub use credentials::Credentials;
pub use group::DhGroup;
pub use hash::HashFunction;
pub use host::{Host, Next};
pub use interchange::{Form, SecretError};
pub use key_file::{KeyFileError, read_key_file};
pub use key_table::SecretsError;
pub use nonces::Nonces;
pub use policy::Policy;
pub use refusal::{Explanation, Refusal};
pub use secret::Secret;
pub use secrets::Secrets;
pub use tls_key::{PskIdentity, PskVersion, TlsKey, TlsPsk};
pub use tls_keys::TlsKeys;
