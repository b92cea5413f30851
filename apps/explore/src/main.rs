//! The program behind `openftl explore`.

use openftl_command_line::cli::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    openftl_command_line::run_one("explore", |command| match command {
        Command::Explore(arguments) => Some(openftl_explore_command::run(arguments)),
        _ => None,
    })
}
