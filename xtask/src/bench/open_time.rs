//! How long a 64 GiB drive takes to open: after a clean stop and after a crash, young and old.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, number, object};
use crate::shell;

/// Runs the example `open_time`, which ages a drive on stamps and opens it again and again.
pub fn measure(_openftl: &Tool) -> Result<Figure, Unmeasured> {
    let arguments = ["run", "--release", "--quiet", "--package", "xtask", "--example", "open_time", "--", "--json"];
    let mut command = shell::cargo(arguments);
    let line = shell::line(&command);
    let times = object(&shell::output(&mut command)?, &line)?;
    let mut figure = Figure { commands: vec![line.clone()], ..Figure::default() };
    for age in ["young", "old"] {
        let seconds = number(&times, &format!("{age}.clean_seconds"), &line)?;
        figure.value(format!("{age}, after a clean stop"), seconds, "s", Some(Goal::AtMost(1.0)));
    }
    let crashed = |age: &str| number(&times, &format!("{age}.crash_seconds"), &line);
    let (young, old) = (crashed("young")?, crashed("old")?);
    figure.value("young, after a crash", young, "s", None);
    figure.value("old, after a crash", old, "s", None);
    figure.value("old to young, after a crash", old / young, "", Some(Goal::AtMost(1.5)));
    Ok(figure)
}
