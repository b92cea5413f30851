//! What people write for the command line tool: a drive in a file. Apart from the tool, so that it can be fuzzed.

pub mod drive_description;
pub mod failure;
pub mod new_file;
pub mod small_file;
pub mod table_drive;
