//! The drives of this process in service.
//!
//! A server is generic: over its drives, their flash, its clock. Here stands what the command line serves, [`Flash`](flash::Flash), and the server is compiled for
//! it and optimised once, so that the command line itself, which is most of what a first build waits for, need not be.
//!
//! | module | noun |
//! |---|---|
//! | [`clock`] | simulated time, which turns into real time when asked to |
//! | [`flash`] | the flash under a drive: emulated in this process, a part of that, or on another machine |
//! | [`service`] | the turns of the server for such drives, and of the server of a table drive's files |
//! | [`redis_door`] | Redis clients of a served key-value drive |

#![forbid(unsafe_code)]

pub mod clock;
pub mod flash;
pub mod redis_door;
pub mod service;
