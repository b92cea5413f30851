//! The program. What it does is in the library beside it, which is compiled while the crates below it still are.

use std::process::ExitCode;

fn main() -> ExitCode {
    openftl_command_line::run()
}
