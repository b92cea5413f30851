//! `openftl completions`: what a shell completes of a command line.
//!
//! The script is made from the definition of the command line. Where a flag takes a name or a file, the names are suggested, and
//! files where no name fits; what the flag takes is up to its own parser.

use crate::cli::{self, Cli, ShellName};
use crate::failure::Failure;
use crate::terminal::say;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::{Shell, generate};
use openftl_lab::load_spec;
use openftl_media::Profile;
use openftl_parts::PlacementName;

/// Victim policies; those with a number stand here with their usual one.
const VICTIMS: [&str; 6] = ["greedy", "cost-benefit", "minimum-declining-cost", "fifo", "windowed:25%", "d-choices:10"];
const RELOCATE_BY: [&str; 2] = ["read-and-write", "device-copy"];
const DURABILITIES: [&str; 2] = ["machine", "process"];
const WARM_UPS: [&str; 1] = ["auto"];

pub fn run(arguments: &cli::Completions) -> Result<(), Failure> {
    let shell = match arguments.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut suggesting(Cli::command()), "openftl", &mut script);
    say(&String::from_utf8(script).map_err(Failure::failed)?)
}

/// `command` with the names that fit where a flag of it, or of a command below, takes a text.
fn suggesting(command: Command) -> Command {
    let of = command.get_name().to_owned();
    command.mut_args(|arg| suggested(&of, arg)).mut_subcommands(suggesting)
}

fn suggested(command: &str, arg: Arg) -> Arg {
    let names: Vec<&'static str> = match (command, arg.get_id().as_str()) {
        (_, "profile" | "open_channel") => Profile::names().collect(),
        // Of `nvme write` it is a number.
        ("write", "placement") => return arg,
        (_, "placement") => PlacementName::ALL.iter().map(|name| name.word()).collect(),
        (_, "victim") => VICTIMS.to_vec(),
        (_, "relocate_by") => RELOCATE_BY.to_vec(),
        (_, "durability") => DURABILITIES.to_vec(),
        ("bench" | "compare", "workload") if arg.get_possible_values().is_empty() => load_spec::NAMES.to_vec(),
        ("bench", "warm_up") => WARM_UPS.to_vec(),
        ("reproduce", "name") => cli::EXPERIMENTS.to_vec(),
        (_, "run") => return arg.value_hint(ValueHint::CommandString),
        _ => return arg,
    };
    arg.value_parser(PossibleValuesParser::new(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    /// The command lines on which a suggestion stands.
    fn lines(command: &Command, path: &str) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let names = arg.get_possible_values().into_iter().map(|value| value.get_name().to_owned());
            let flag = arg.get_long().map_or(String::new(), |long| format!("--{long}"));
            lines.extend(names.map(|name| (format!("{path} {flag}"), name)));
        }
        for command in command.get_subcommands() {
            lines.extend(lines_of(command, path));
        }
        lines
    }

    fn lines_of(command: &Command, path: &str) -> Vec<(String, String)> {
        lines(command, &format!("{path} {}", command.get_name()))
    }

    #[test]
    fn every_name_that_is_suggested_is_taken_where_it_is_suggested() {
        let all = lines(&suggesting(Cli::command()), "openftl");
        let flags = ["--profile", "--placement", "--victim", "--relocate-by", "--durability", "--workload", "--tls"];
        for flag in flags {
            assert!(all.iter().any(|(line, _)| line.ends_with(flag)), "{flag} has suggestions");
        }
        for (line, name) in all.iter().filter(|(line, _)| line.contains("--")) {
            let words = line.split_whitespace().chain([name.as_str()]);
            // What else the command needs is missing in some: the value itself is what counts.
            if let Err(error) =
                Cli::command().try_get_matches_from(words).and_then(|found| Cli::from_arg_matches(&found))
            {
                use clap::error::ErrorKind::{InvalidValue, ValueValidation};
                assert!(!matches!(error.kind(), InvalidValue | ValueValidation), "{line} {name}: {error}");
            }
        }
    }

    #[test]
    fn names_of_profiles_loads_and_placements_are_in_the_script_of_each_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            generate(shell, &mut suggesting(Cli::command()), "openftl", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["cosmos", "hot-cold", "log-structured-fs", "flash-alloc"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
