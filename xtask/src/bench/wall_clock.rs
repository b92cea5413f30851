//! How precisely a drive in real time keeps the times of its NAND: how long after the moment that the model names the
//! host is told that a read has ended.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, number, object};
use crate::shell;

/// What "a few microseconds" is taken to mean, in nanoseconds.
const FEW_MICROSECONDS: f64 = 5_000.0;

/// Random reads, one at a time and eight at a time.
pub fn measure(openftl: &Tool) -> Result<Figure, Unmeasured> {
    let mut figure = Figure::default();
    for depth in ["1", "8"] {
        let workload = ["bench", "--profile", "cosmos", "--timing", "wall-clock", "--workload", "uniform,reads=100%"];
        let scale = ["--seconds", "3", "--warm-up", "0", "--seed", "1", "--json"];
        let depth_flag = ["--queue-depth", depth];
        let mut command = openftl.command(workload.into_iter().chain(scale).chain(depth_flag));
        let line = shell::line(&command);
        let run = object(&shell::output(&mut command)?, &line)?;
        for (quantile, goal) in [("p50", Some(Goal::AtMost(FEW_MICROSECONDS))), ("p99", None), ("p999", None)] {
            let what = format!("depth {depth}: told after the end, {quantile}");
            figure.value(what, number(&run, &format!("lateness_ns.{quantile}"), &line)?, "ns", goal);
        }
        figure.commands.push(line);
    }
    figure.notes.push(
        "At p99 it shows whether the machine had a core to spare: a thread that waits for one is late whoever wakes it."
            .to_owned(),
    );
    Ok(figure)
}
