//! `openftl check`: every block's checksum, and whether map, chunk table and media agree.
//!
//! A drive that was closed cleanly is not written to. One that was not has to be recovered first, as the next start would
//! do: on flash with paired pages the last blocks of an open chunk cannot even be read before something is written behind
//! them. The report says so.

use crate::assembly;
use crate::cli;
use crate::failure::Failure;
use crate::measure::{rate, show};
use crate::terminal::{Ink, Live, Palette, say};
use openftl_core::VirtualClock;
use openftl_ftl::CheckReport;
use openftl_lab::picture::thousands;
use serde::Serialize;
use std::fmt::Write;
use std::time::Instant;

#[derive(Serialize)]
struct Findings {
    sound: bool,
    /// The drive had not been closed cleanly, and was recovered before it was checked.
    recovered: bool,
    #[serde(flatten)]
    report: CheckReport,
}

pub fn run(arguments: &cli::Check) -> Result<(), Failure> {
    let mut clock = VirtualClock::default();
    let mut drive = assembly::open_to_look_at(&arguments.disk, &mut clock)?;
    let recovered = !drive.recovery_report().clean;
    if recovered {
        drop(drive);
        drive = assembly::open_and_recover(&arguments.disk, &mut clock)?;
    }
    let mut live = Live::new(false);
    let started = Instant::now();
    let report = drive
        .check(&mut clock, &mut |done, total| {
            if live.is_due() {
                show(&mut live, "check", done as f64 / total as f64, &rate(done, started));
            }
        })
        .map_err(|error| Failure::failed(format_args!("{}: {error}", arguments.disk.display())))?;
    drop(live);
    if recovered && drive.read_only_reason().is_none() {
        assembly::close(drive, &mut clock)?;
    }
    let findings = Findings { sound: report.is_sound(), recovered, report };
    let name = arguments.disk.display().to_string();
    match arguments.json {
        true => say(&crate::json(&findings)?)?,
        false => say(&page(&name, &findings, Palette::of_stdout()))?,
    }
    if findings.sound {
        return Ok(());
    }
    Err(Failure::failed(format_args!("{name} is unsound: {} findings", findings.report.findings_total))
        .fix("copy what can still be read (nbdcopy), and create a new drive"))
}

fn page(name: &str, findings: &Findings, palette: Palette) -> String {
    let mut text = String::new();
    let report = &findings.report;
    if findings.recovered {
        _ = writeln!(text, "{name} had not been closed cleanly. It was recovered, then checked.");
    }
    for finding in &report.findings {
        _ = writeln!(text, "{} {finding}", palette.paint(Ink::Bad, "✗"));
    }
    let untold = report.findings_total - report.findings.len() as u64;
    if untold > 0 {
        _ = writeln!(text, "  … and {} more", thousands(untold));
    }
    let verdict =
        if findings.sound { palette.paint(Ink::Good, "✓ sound") } else { palette.paint(Ink::Bad, "✗ unsound") };
    _ = writeln!(
        text,
        "{verdict}  {name}: {} blocks read and verified, {} never written or trimmed, {} chunks compared",
        thousands(report.blocks_verified),
        thousands(report.blocks_unmapped),
        thousands(report.chunks_compared)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn findings_come_before_the_verdict() {
        let report = CheckReport {
            blocks_verified: 10,
            blocks_unmapped: 2,
            chunks_compared: 4,
            findings_total: 3,
            findings: vec!["logical block 7 came back damaged or as another block".to_owned()],
        };
        let unsound = Findings { sound: false, recovered: true, report };
        expect![[r#"
            disk.oftl had not been closed cleanly. It was recovered, then checked.
            ✗ logical block 7 came back damaged or as another block
              … and 2 more
            ✗ unsound  disk.oftl: 10 blocks read and verified, 2 never written or trimmed, 4 chunks compared
        "#]]
        .assert_eq(&page("disk.oftl", &unsound, Palette::PLAIN));
        let sound = Findings {
            sound: true,
            recovered: false,
            report: CheckReport { blocks_verified: 10, ..CheckReport::default() },
        };
        expect![[r#"
            ✓ sound  disk.oftl: 10 blocks read and verified, 0 never written or trimmed, 0 chunks compared
        "#]]
        .assert_eq(&page("disk.oftl", &sound, Palette::PLAIN));
    }
}
