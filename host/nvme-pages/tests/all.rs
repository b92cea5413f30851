//! The tests of stores of pages that are reached over NVMe/TCP as one program: each of them has a server in it, which is built once.

mod support;

mod model;
mod rude;
mod sessions;
mod store;
