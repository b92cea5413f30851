//! The VFS under programs that people have: Debian's `sqlite3`, and Python's module.
//!
//! Where a program is missing, the tests that need it are left out, and say so.

mod basics;
mod cleaned;
mod embedded;
mod faults;
mod figures;
mod killed;
mod logs;
mod power;
mod processes;
mod random;
mod recordings;
mod refused;
mod world;
