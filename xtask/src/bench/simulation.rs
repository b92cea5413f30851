//! How fast virtual time goes: simulated 4 KiB host writes in a second of one core, and whether a seed repeats itself.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, number, object};
use crate::shell;
use serde_json::Value;

/// Sequential overwrites (WAF near 1) and uniform ones at 10 % over-provisioning, each twice.
pub fn measure(openftl: &Tool) -> Result<Figure, Unmeasured> {
    let mut figure = Figure::default();
    for (workload, writes_per_second) in [("sequential", 2e6), ("uniform", 0.5e6)] {
        let (first, line) = run(openftl, workload)?;
        let (second, _) = run(openftl, workload)?;
        let rate = |run: &Value| {
            Ok::<f64, Unmeasured>(number(run, "host_blocks_written", &line)? / number(run, "wall_seconds", &line)?)
        };
        let best = rate(&first)?.max(rate(&second)?);
        figure.value(format!("{workload}: host writes a second"), best, "/s", Some(Goal::AtLeast(writes_per_second)));
        figure.value(format!("{workload}: WAF"), number(&first, "waf", &line)?, "", None);
        let same = f64::from(u8::from(without_wall_time(first.clone()) == without_wall_time(second)));
        figure.value(format!("{workload}: same seed, same figures (1 = yes)"), same, "", Some(Goal::AtLeast(1.0)));
        figure.notes.push(format!("{workload}: trace_hash {}", first["trace_hash"]));
        figure.commands.push(line);
    }
    figure
        .notes
        .push("The rate is the better one of two runs: other work on the machine only ever slows a run.".to_owned());
    Ok(figure)
}

fn run(openftl: &Tool, workload: &str) -> Result<(Value, String), Unmeasured> {
    let arguments = ["bench", "--profile", "cosmos", "--timing", "virtual", "--workload", workload];
    let scale = ["--over-provisioning", "10%", "--drive-writes", "4", "--seed", "1", "--json", "--wall"];
    let mut command = openftl.command(arguments.into_iter().chain(scale));
    let line = shell::line(&command);
    let result = object(&shell::output(&mut command)?, &line)?;
    if !result["trace_hash"].is_string() && !result["trace_hash"].is_number() {
        return Err(Unmeasured::Failed(format!("`{line}` printed no trace_hash")));
    }
    Ok((result, line))
}

/// Everything that has to be the same when a seed is run again.
fn without_wall_time(mut run: Value) -> Value {
    if let Some(fields) = run.as_object_mut() {
        fields.retain(|name, _| !name.starts_with("wall_"));
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_wall_time_may_differ_between_two_runs_of_a_seed() {
        let run = |seconds: f64, waf: f64| without_wall_time(json!({ "wall_seconds": seconds, "waf": waf }));
        assert_eq!(run(1.0, 5.5), run(2.0, 5.5));
        assert_ne!(run(1.0, 5.5), run(1.0, 5.6));
    }
}
