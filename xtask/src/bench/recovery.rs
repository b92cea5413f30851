//! How long recovery takes: by the time of the failure, and by the capacity of the drive.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, object};
use crate::shell;
use serde_json::Value;

/// Runs the two experiments that ask for it. Checks that do not hold are values that miss their goal.
pub fn measure(openftl: &Tool) -> Result<Figure, Unmeasured> {
    let mut figure = Figure::default();
    let (failures, line) = run(openftl, "ox-recovery")?;
    let with = |checkpoints: &str| column(&failures, "recovery", Some(checkpoints), &line);
    for checkpoints in ["none", "every 10 s", "every 30 s"] {
        let recovery = with(checkpoints)?;
        let what = format!("checkpoints {checkpoints}: first failure");
        figure.value(what, recovery[0], "s", None);
        figure.value(format!("checkpoints {checkpoints}: last failure"), recovery[recovery.len() - 1], "s", None);
    }
    figure.value(
        "default configuration: slowest of all failures",
        greatest(&with("default")?),
        "s",
        Some(Goal::AtMost(1.0)),
    );
    figure.commands.push(line);

    let (capacities, line) = run(openftl, "recovery-scale")?;
    let log = column(&capacities, "log read", None, &line)?;
    let least = log.iter().copied().fold(f64::INFINITY, f64::min);
    figure.value("1 GiB to 1 TiB: log blocks read, most", greatest(&log), "", None);
    figure.value(
        "1 GiB to 1 TiB: log blocks read, most to least",
        greatest(&log) / least,
        "",
        Some(Goal::AtMost(1.25)),
    );
    let map = column(&capacities, "map load", None, &line)?;
    figure.value("1 TiB: map load", map[map.len() - 1], "s", None);
    figure.commands.push(line);
    figure.notes.push("Seconds are those of the drive, in virtual time.".to_owned());
    Ok(figure)
}

fn run(openftl: &Tool, experiment: &str) -> Result<(Value, String), Unmeasured> {
    let folder = shell::target_directory()?.join("reproduce");
    let folder = folder.to_string_lossy().into_owned();
    let mut command = openftl.command(["reproduce", experiment, "--seeds", "1", "--out", &folder, "--json"]);
    let line = shell::line(&command);
    // A check that does not hold ends the command with 1, after its report.
    let (text, _) = shell::output_and_status(&mut command)?;
    Ok((object(&text, &line)?, line))
}

/// The numbers of a column of the first table: of all rows, or of those that begin with `first`.
fn column(report: &Value, name: &str, first: Option<&str>, command: &str) -> Result<Vec<f64>, Unmeasured> {
    let table = &report["tables"][0];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let column = list(&table["columns"]).iter().position(|column| column["name"] == name);
    let numbers: Vec<f64> = list(&table["rows"])
        .iter()
        .filter(|row| first.is_none_or(|first| row[0] == first))
        .filter_map(|row| row[column?].as_f64())
        .collect();
    match numbers.is_empty() {
        false => Ok(numbers),
        true => Err(Unmeasured::Failed(format!("`{command}` printed no column `{name}` with rows {first:?}"))),
    }
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_column_is_found_by_its_name_and_rows_by_their_first_cell() {
        let table = json!({ "columns": [{ "name": "checkpoints" }, { "name": "recovery" }],
            "rows": [["none", 1.5], ["default", 0.5], ["none", 2]] });
        let report = json!({ "tables": [table] });
        assert_eq!(column(&report, "recovery", Some("none"), "x"), Ok(vec![1.5, 2.0]));
        assert_eq!(column(&report, "recovery", None, "x").map(|all| all.len()), Ok(3));
        assert!(column(&report, "recover", None, "x").is_err());
        assert!(column(&report, "recovery", Some("never"), "x").is_err());
    }
}
