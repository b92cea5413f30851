//! The tests of a device that is reached as one program: each of them has a server in it, which is built once.

mod support;

mod conformance;
mod drive;
mod events;
mod tenants;
