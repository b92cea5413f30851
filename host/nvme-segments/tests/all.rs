//! The tests of drives of segments that are reached over NVMe/TCP as one program: each of them has a server in it, which is built once.

mod support;

mod claims;
mod file_system;
mod model;
mod refused;
