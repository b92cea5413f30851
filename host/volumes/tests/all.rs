//! The tests of files as one program: each of them has a drive and a server in it, which are built once.

mod common;

mod alfs;
mod crash_points;
mod crashes;
mod files;
mod play;
mod served;
mod wire;
mod zoned_full;
mod zoned_refusals;
