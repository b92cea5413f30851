//! The tests of key-value drives that are reached over NVMe/TCP as one program: each of them has a server in it, which is built once.

mod support;

mod commands;
mod model;
mod rude;
