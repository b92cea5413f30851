//! Write amplification under uniform random writes against the analytic value, at several over-provisionings.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, number, object};
use crate::shell;

/// Greedy collection; theory is taken at the over-provisioning that the drive really has for data.
pub fn measure(openftl: &Tool) -> Result<Figure, Unmeasured> {
    let mut figure = Figure::default();
    for over_provisioning in ["7%", "10%", "15%", "28%"] {
        let arguments = ["bench", "--profile", "cosmos", "--timing", "virtual", "--workload", "uniform"];
        let scale =
            ["--over-provisioning", over_provisioning, "--drive-writes", "4", "--seed", "1", "--victim", "greedy"];
        let mut command = openftl.command(arguments.into_iter().chain(scale).chain(["--json"]));
        let line = shell::line(&command);
        let run = object(&shell::output(&mut command)?, &line)?;
        let (waf, theory) = (number(&run, "waf", &line)?, number(&run, "waf_theory", &line)?);
        let effective = 100.0 * number(&run, "effective_over_provisioning", &line)?;
        let pages = number(&run, "pages_per_block", &line)?;
        figure.value(format!("OP {over_provisioning}: WAF"), waf, "", None);
        figure.value(format!("OP {over_provisioning}: theory at {effective:.2} % and {pages} pages"), theory, "", None);
        let apart = 100.0 * (waf / theory - 1.0).abs();
        figure.value(format!("OP {over_provisioning}: apart"), apart, "%", Some(Goal::AtMost(3.0)));
        figure.commands.push(line);
    }
    Ok(figure)
}
