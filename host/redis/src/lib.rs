//! Redis clients on a key-value drive: `redis-cli` and `redis-benchmark` talk to it as they are.
//!
//! ```text
//!   sockets ── bytes ──▶ Front ── requests ──▶ drive (ValueFtl), which others may ask, too
//!           ◀── bytes ──       ◀── done ─────
//! ```
//!
//! Nothing here has a socket or a clock: [`Front`] takes the bytes that a client has sent, and gives those that it is to get. Commands of a client
//! are begun as they arrive (pipelining), and answered in their order. Commands for one key take effect in their order; a command that looks at
//! all keys waits for those before it.
//!
//! | command | on the drive |
//! |---|---|
//! | `GET` | Retrieve |
//! | `SET key value [NX\|XX]` | Store, with a condition |
//! | `DEL`, `EXISTS` | Delete, Exist, of each key |
//! | `SCAN cursor [MATCH pattern] [COUNT n]` | List, in the order of keys |
//! | `DBSIZE`, `INFO` | what the drive counts |
//! | `PING`, `ECHO`, `SELECT 0`, `COMMAND`, `CONFIG GET`, `CLIENT`, `QUIT` | nothing |
//!
//! # Keys
//! Keys of 1 to 16 bytes are keys of the drive as they are. Longer ones, the empty one, and those of 16 bytes that begin with FFh go by a
//! *digest*: FFh and the first 15 bytes of their SHA-256. Their value on the drive has the key before it: its length (4 bytes) and its bytes. `GET`,
//! `EXISTS` and `DEL` compare all of it. A `SET` does not: it takes the place of a key with the same 120 bits, of which nobody knows two.
//!
//! # What a client may hold
//! | bound | of one client | of all |
//! |---|---|---|
//! | bytes that it has sent and that wait | a longest command ([`front::INPUT_MAX`]) | [`front::KEPT_BYTES_MAX`]: then the client that keeps most is closed |
//! | commands under way | [`front::COMMANDS_MAX`] | what the drive takes |
//! | replies that it does not read | [`front::OUTPUT_MAX`], and the longest reply: then nothing of it is begun | as for bytes that wait |
//! | places of `SCAN` | | [`front::CURSORS_MAX`]; the oldest one goes |
//!
//! Bytes that are no commands get an error, and the client is closed. Others do not notice.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod beginning;
pub mod command;
pub mod front;
pub mod glob;
pub mod name;
mod peer;
pub mod resp;

pub use front::Front;
pub use peer::PeerId;
pub use resp::{Parsed, ProtocolError};
