//! A figure: what was measured, with which command, beside what was promised.

use crate::table::Table;
use serde_json::{Value, json};
use std::fmt;

/// Why a figure has no values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmeasured {
    /// Something that it needs is not on this machine.
    Missing(String),
    /// Its command broke, or printed what cannot be understood.
    Failed(String),
}

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmeasured::Missing(reason) => write!(f, "{reason}"),
            Unmeasured::Failed(reason) => write!(f, "FAILED: {reason}"),
        }
    }
}

impl From<String> for Unmeasured {
    fn from(reason: String) -> Unmeasured {
        Unmeasured::Failed(reason)
    }
}

/// One value of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What it is the value of.
    pub what: String,
    /// What was measured, in `unit`.
    pub value: f64,
    /// The unit, empty for a ratio.
    pub unit: &'static str,
    /// What was promised, if anything.
    pub goal: Option<Goal>,
}

/// A promise about a value, in the value's unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Goal {
    fn reached(self, value: f64) -> bool {
        match self {
            Goal::AtMost(bound) => value <= bound,
            Goal::AtLeast(bound) => value >= bound,
        }
    }
}

/// What was measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figure {
    /// The commands, as one would type them.
    pub commands: Vec<String>,
    /// The values.
    pub values: Vec<Measured>,
    /// What one has to know to read them.
    pub notes: Vec<String>,
}

impl Figure {
    /// Adds a value.
    pub fn value(&mut self, what: impl Into<String>, value: f64, unit: &'static str, goal: Option<Goal>) {
        self.values.push(Measured { what: what.into(), value, unit, goal });
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for command in &self.commands {
            writeln!(f, "  $ {command}")?;
        }
        let mut table = Table::new(&["what", "measured", "goal", "reached"]);
        for Measured { what, value, unit, goal } in &self.values {
            let with_unit = |value: f64| format!("{} {unit}", round(value)).trim_end().to_owned();
            let (promised, reached) = match goal {
                None => (String::new(), ""),
                Some(goal) => {
                    let promised = match goal {
                        Goal::AtMost(bound) => format!("≤ {}", with_unit(*bound)),
                        Goal::AtLeast(bound) => format!("≥ {}", with_unit(*bound)),
                    };
                    (promised, if goal.reached(*value) { "yes" } else { "NO" })
                }
            };
            table.row(vec![what.clone(), with_unit(*value), promised, reached.to_owned()]);
        }
        write!(f, "{table}")?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

/// Four digits that matter, thousands grouped.
fn round(value: f64) -> String {
    if value.abs() >= 1000.0 {
        let digits = format!("{:.0}", value.abs());
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, groups.join(","));
    }
    let decimals = if value.abs() >= 100.0 { 1 } else { 3 };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The figure, or why there is none, as JSON.
pub fn json(result: &Result<Figure, Unmeasured>) -> Value {
    let figure = match result {
        Ok(figure) => figure,
        Err(reason) => return json!({ "not_measured": reason.to_string() }),
    };
    let values = figure.values.iter().map(|Measured { what, value, unit, goal }| {
        let mut object = json!({ "what": what, "value": value, "unit": unit });
        match goal {
            None => {}
            Some(Goal::AtMost(bound)) => object["at_most"] = json!(bound),
            Some(Goal::AtLeast(bound)) => object["at_least"] = json!(bound),
        }
        if let Some(goal) = goal {
            object["reached"] = json!(goal.reached(*value));
        }
        object
    });
    json!({ "commands": figure.commands, "values": values.collect::<Vec<_>>(), "notes": figure.notes })
}

/// The number at `path` (names joined by dots) of what `command` printed.
pub fn number(object: &Value, path: &str, command: &str) -> Result<f64, Unmeasured> {
    let found = path.split('.').fold(object, |object, name| &object[name]);
    found.as_f64().ok_or_else(|| Unmeasured::Failed(format!("`{command}` printed no number `{path}`, but {found}")))
}

/// The JSON object that `text`, printed by `command`, consists of.
pub fn object(text: &str, command: &str) -> Result<Value, Unmeasured> {
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[start..])
        .map_err(|error| Unmeasured::Failed(format!("`{command}` printed no JSON object: {error}")))
}

/// The middle one of `values`, or the mean of the middle two.
///
/// # Panics
/// If there are none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_what_matters() {
        let check = |value: f64, text: &str| assert_eq!(round(value), text);
        check(1_234_567.8, "1,234,568");
        check(0.1604, "0.16");
        check(5.0, "5");
        check(123.456, "123.5");
        check(-1500.0, "-1,500");
        check(0.0, "0");
    }

    #[test]
    fn a_missed_goal_is_said_in_the_table_and_in_json() {
        let mut figure = Figure::default();
        figure.value("read", 0.2, "µs", Some(Goal::AtMost(0.16)));
        assert!(figure.to_string().contains("≤ 0.16 µs  NO"), "{figure}");
        assert_eq!(json(&Ok(figure))["values"][0]["reached"], false);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert!((median(vec![4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-12);
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_missing_number_is_named() {
        let error = number(&json!({"a": {"b": "text"}}), "a.b", "tool").unwrap_err().to_string();
        assert!(error.contains("`a.b`") && error.contains("tool"), "{error}");
    }
}
