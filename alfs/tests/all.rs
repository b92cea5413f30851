//! The file system on segments of the emulated device, in virtual time.

mod basics;
mod host;
mod rebuilding;
