//! What the FTL adds to a 4 KiB read and write: instant media in RAM, one thread, through the FTL's own interface,
//! against the same copies to and from the device alone. LightNVM added 0.16 µs and 0.23 µs.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, number, object};
use crate::shell;

/// Runs the FTL's own example which compares the two in turn.
pub fn measure(_openftl: &Tool) -> Result<Figure, Unmeasured> {
    let arguments =
        ["run", "--release", "--quiet", "--package", "openftl-blocks", "--example", "software_cost", "--", "--json"];
    let mut command = shell::cargo(arguments);
    let line = shell::line(&command);
    let costs = object(&shell::output(&mut command)?, &line)?;
    let mut figure = Figure { commands: vec![line.clone()], ..Figure::default() };
    for (what, bound_us) in [("read", 0.16), ("write", 0.23)] {
        let micros = |name: String| Ok::<f64, Unmeasured>(number(&costs, &name, &line)? / 1000.0);
        figure.value(format!("4 KiB random {what}, device alone"), micros(format!("device_{what}_ns"))?, "µs", None);
        figure.value(format!("4 KiB random {what}, through the FTL"), micros(format!("ftl_{what}_ns"))?, "µs", None);
        let added = micros(format!("{what}_added_ns"))?;
        figure.value(format!("4 KiB random {what}, added by the FTL"), added, "µs", Some(Goal::AtMost(bound_us)));
    }
    let collecting = number(&costs, "collecting_write_ns", &line)? / 1000.0;
    figure.value("4 KiB random write, full drive with 10 % over-provisioning".to_owned(), collecting, "µs", None);
    Ok(figure)
}
