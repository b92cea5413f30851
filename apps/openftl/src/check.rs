//! `openftl check`: every block's checksum, and whether map, chunk table and media agree.
//!
//! A drive that can be checked as it is, is not written to. One that was not closed cleanly is recovered first, as the
//! next start would do; so is one whose open chunks end in blocks that cannot be read yet (MW_CUNITS: on flash with
//! paired pages something has to be written behind them first). The report says so.

use crate::assembly::{self, Drive};
use crate::cli;
use crate::failure::Failure;
use crate::measure::{rate, show};
use crate::terminal::{Ink, Live, Palette, say};
use openftl_core::VirtualClock;
use openftl_ftl::CheckReport;
use openftl_lab::picture::thousands;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

#[derive(Serialize)]
struct Findings {
    sound: bool,
    /// The drive was opened for writing, and so recovered, before it was checked.
    recovered: bool,
    #[serde(flatten)]
    report: CheckReport,
}

pub fn run(arguments: &cli::Check) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let findings = look(disk)?;
    let name = disk.display().to_string();
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

/// Checks the drive as it is, if that can be done without writing to it; else recovers it first.
fn look(disk: &Path) -> Result<Findings, Failure> {
    let mut clock = VirtualClock::default();
    let mut drive = assembly::open_to_look_at(disk, &mut clock)?;
    if drive.recovery_report().clean {
        let report = verify(disk, &mut drive, &mut clock)?;
        // What is not readable yet looks like damage. A drive without such blocks has no second chance.
        if report.is_sound() || assembly::geometry(&drive).mw_cunits == 0 {
            return Ok(Findings { sound: report.is_sound(), recovered: false, report });
        }
    }
    drop(drive);
    let mut drive = assembly::open_and_recover(disk, &mut clock)?;
    let report = verify(disk, &mut drive, &mut clock)?;
    if drive.read_only_reason().is_none() {
        assembly::close(drive, &mut clock)?;
    }
    Ok(Findings { sound: report.is_sound(), recovered: true, report })
}

fn verify(disk: &Path, drive: &mut Drive, clock: &mut VirtualClock) -> Result<CheckReport, Failure> {
    let mut live = Live::new(false);
    let started = Instant::now();
    let mut progress = |done: u64, total: u64| {
        if live.is_due() {
            show(&mut live, "check", done as f64 / total as f64, &rate(done, started));
        }
    };
    drive.check(clock, &mut progress).map_err(|error| Failure::failed(format_args!("{}: {error}", disk.display())))
}

fn page(name: &str, findings: &Findings, palette: Palette) -> String {
    let mut text = String::new();
    let report = &findings.report;
    if findings.recovered {
        _ = writeln!(
            text,
            "{name} could not be checked as it was. It was opened as for use (recovery, padding), then checked."
        );
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
            disk.oftl could not be checked as it was. It was opened as for use (recovery, padding), then checked.
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
