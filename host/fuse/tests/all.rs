//! The tests of FUSE as one program.

mod golden;
mod malformed;
mod memory;
mod mounted;
mod privileges;
mod sessions;
