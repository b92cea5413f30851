//! `cargo xtask bench`: the figures that the project promises, measured on this machine.
//!
//! A figure that misses its goal is reported, not failed: machines differ. A figure that cannot be measured because
//! a program is missing says so; one whose command breaks fails the run.

mod figure;
mod machine;
mod nbd;
mod nvme;
mod open_time;
mod recovery;
mod rocksdb;
mod simulation;
mod software_cost;
mod waf;
mod wall_clock;

use crate::shell;
use crate::steps::{Outcome, Steps};
use figure::{Figure, Unmeasured};
use std::process::{Command, ExitCode};

/// Measures one figure; `openftl` is the release build of the command line tool.
type Measure = fn(openftl: &Tool) -> Result<Figure, Unmeasured>;

const FIGURES: [(&str, Measure); 9] = [
    ("software-cost", software_cost::measure),
    ("simulation", simulation::measure),
    ("waf", waf::measure),
    ("open-time", open_time::measure),
    ("recovery", recovery::measure),
    ("wall-clock", wall_clock::measure),
    ("nbd", nbd::measure),
    ("nvme", nvme::measure),
    ("rocksdb", rocksdb::measure),
];

/// The arguments of `bench`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Names of the figures to measure; all if empty.
    figures: Vec<String>,
    /// Whether to end with one JSON object on standard output.
    json: bool,
}

impl Options {
    /// Understands the command line.
    pub fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { figures: Vec::new(), json: false };
        for word in words {
            match *word {
                "--json" => options.json = true,
                name if FIGURES.iter().any(|(figure, _)| *figure == name) => options.figures.push(name.to_owned()),
                other => {
                    let names = FIGURES.map(|(name, _)| name).join(", ");
                    return Err(format!("`bench` does not know `{other}`; it takes --json and the figures {names}"));
                }
            }
        }
        Ok(options)
    }
}

/// The release build of the command line tool.
pub struct Tool {
    path: std::path::PathBuf,
}

impl Tool {
    /// A run of it with these arguments.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments);
        command
    }
}

/// Measures and prints.
pub fn run(options: &Options) -> ExitCode {
    let mut steps = Steps::new("bench");
    let mut tool = None;
    steps.run("build for release", || {
        let built = shell::run(&mut shell::cargo(crate::test::RELEASE)).and_then(|()| shell::target_directory());
        Outcome::of(built.map(|target| tool = Some(Tool { path: target.join("release").join("openftl") })))
    });
    let Some(tool) = tool else { return steps.finish() };
    let mut results = Vec::new();
    for (name, measure) in FIGURES {
        if !options.figures.is_empty() && !options.figures.iter().any(|figure| figure == name) {
            continue;
        }
        steps.run(name, || {
            let result = measure(&tool);
            let outcome = match &result {
                Ok(_) => Outcome::Done,
                Err(Unmeasured::Missing(reason)) => Outcome::LeftOut(format!("not measured: {reason}")),
                Err(Unmeasured::Failed(reason)) => Outcome::Failed(reason.clone()),
            };
            results.push((name, result));
            outcome
        });
    }
    let machine = machine::describe();
    println!("\nMachine: {machine}");
    for (name, result) in &results {
        match result {
            Ok(figure) => println!("\n{name}\n{figure}"),
            Err(reason) => println!("\n{name}\n  not measured: {reason}"),
        }
    }
    let exit = steps.finish();
    if options.json {
        let figures = results.iter().map(|(name, result)| (name.to_string(), figure::json(result))).collect();
        println!("{}", serde_json::json!({ "machine": machine, "figures": serde_json::Value::Object(figures) }));
    }
    exit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_does_not_exist_is_named_with_those_that_do() {
        let error = Options::parse(&["speed"]).unwrap_err();
        assert!(error.contains("`speed`") && error.contains("software-cost"), "{error}");
    }

    #[test]
    fn figures_and_json_are_understood() {
        let expected = Options { figures: vec!["waf".to_owned(), "nbd".to_owned()], json: true };
        assert_eq!(Options::parse(&["waf", "--json", "nbd"]), Ok(expected));
    }
}
