//! The program behind `openftl files`.

use openftl_command_line::cli::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    openftl_command_line::run_one("files", |command| match command {
        Command::Files(arguments) => Some(openftl_files_command::run(arguments)),
        _ => None,
    })
}
