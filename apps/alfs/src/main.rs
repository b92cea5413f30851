//! The program behind `openftl alfs`.

use openftl_command_line::cli::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    openftl_command_line::run_one("alfs", |command| match command {
        Command::Alfs(arguments) => Some(openftl_alfs_command::run(arguments)),
        _ => None,
    })
}
