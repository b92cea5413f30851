//! The program behind `openftl reproduce`.

use openftl_command_line::cli::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    openftl_command_line::run_one("reproduce", |command| match command {
        Command::Reproduce(arguments) => Some(openftl_reproduce_command::run(arguments)),
        _ => None,
    })
}
