//! The tests of devices as one program, which is built once.

mod canary;
mod common;
mod conformance;
mod faults;
mod file_store;
mod machine_crash;
mod parts;
mod power;
mod simulation;
mod timing;
