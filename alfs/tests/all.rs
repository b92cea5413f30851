//! The file system on segments of the emulated device, in virtual time.

mod anchors;
mod basics;
mod faults;
mod host;
mod patches;
mod rebuilding;
