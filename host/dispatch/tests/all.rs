//! Threads that share a drive: of tables, and of pages.

mod sharing;
