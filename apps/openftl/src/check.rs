//! `openftl check`: every block's checksum, and whether map, chunk table and media agree.
//!
//! A drive that can be checked as it is, is not written to. One that was not closed cleanly is recovered first, as the
//! next start would do; so is one whose open chunks end in blocks that cannot be read yet (MW_CUNITS: on flash with
//! paired pages something has to be written behind them first). The report says so. With `--repair` it is opened for
//! repair, checked, and closed. Of a device that is divided every block namespace is checked, or the one that is named.
//! Of a table drive the tables are read too, and what is lost is told by the names of the files.

use crate::assembly::{self, StoredDrive};
use crate::cli;
use crate::failure::Failure;
use crate::measure::rate;
use crate::namespaces::Stored;
use crate::terminal::{Ink, Live, Palette, say};
use crate::waiting::{Waiting, while_opening};
use openftl_blocks::{CheckReport, Ftl};
use openftl_core::VirtualClock;
use openftl_files::note::Note;
use openftl_lab::picture::thousands;
use openftl_media::{PartKind, PartLabel};
use openftl_parts::{IndexRepair, RepairReport};
use openftl_zones::Face;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

#[derive(Serialize, Default)]
struct Findings {
    sound: bool,
    /// The drive was opened for writing, and so recovered, before it was checked.
    recovered: bool,
    /// It was opened for repair.
    repaired: bool,
    /// What was there in one copy only. If the drive was opened for writing, it is there twice again.
    single_copies: Vec<String>,
    /// What had to be rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt: Option<RepairReport>,
    #[serde(flatten)]
    report: CheckReport,
    /// What hosts call the zones of the report.
    #[serde(skip)]
    face: Face,
    /// The files of a table drive that have lost blocks, as far as the report names these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged_files: Vec<DamagedFile>,
}

/// A file of a table drive with blocks that cannot be read.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct DamagedFile {
    path: String,
    /// The number of its table; none: a log file.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<u64>,
    blocks_lost: u64,
}

/// What was found in each namespace of a device.
#[derive(Serialize)]
struct DeviceFindings {
    sound: bool,
    namespaces: BTreeMap<String, Findings>,
}

pub fn run(arguments: &cli::Check) -> Result<(), Failure> {
    let disk = &arguments.disk;
    let parts = assembly::parts_of(disk)?;
    if parts.is_empty() || arguments.namespace.is_some() {
        let stored = Stored { path: disk, namespace: arguments.namespace.as_ref() };
        expect_block(&stored, &parts)?;
        let findings = findings(&stored, arguments.repair)?;
        match arguments.json {
            true => say(&crate::json(&findings)?)?,
            false => say(&page(&stored.to_string(), &findings, Palette::of_stdout()))?,
        }
        return verdict(&stored, &findings, arguments.repair);
    }
    let (mut all, mut result) = (BTreeMap::new(), Ok(()));
    for label in &parts {
        let stored = Stored { path: disk, namespace: Some(&label.name) };
        if label.kind == PartKind::OpenChannel {
            if !arguments.json {
                say(&format!("{stored}: an open-channel one, what it holds is its hosts'"))?;
            }
            continue;
        }
        // One that cannot be opened is no reason to leave the others alone.
        match findings(&stored, arguments.repair) {
            Ok(findings) => {
                if !arguments.json {
                    say(&page(&stored.to_string(), &findings, Palette::of_stdout()))?;
                }
                result = result.and(verdict(&stored, &findings, arguments.repair));
                all.insert(label.name.to_string(), findings);
            }
            Err(failure) => result = result.and(Err(failure)),
        }
    }
    if arguments.json {
        say(&crate::json(&DeviceFindings { sound: result.is_ok(), namespaces: all })?)?;
    }
    result
}

/// Only what our FTL has written can be checked.
fn expect_block(stored: &Stored<'_>, parts: &[PartLabel]) -> Result<(), Failure> {
    let label = parts.iter().find(|label| Some(&label.name) == stored.namespace);
    match label.map(|label| label.kind) {
        Some(PartKind::OpenChannel) => Err(Failure::bad_input(format_args!("{stored}: an open-channel namespace"))
            .fix("what it holds is its hosts': they know whether it is sound")),
        Some(PartKind::Block | PartKind::Zoned) | None => Ok(()),
    }
}

fn findings(stored: &Stored<'_>, repairs: bool) -> Result<Findings, Failure> {
    if repairs { repair(stored) } else { look(stored) }
}

/// How the command ends for what was found.
fn verdict(stored: &Stored<'_>, findings: &Findings, repaired: bool) -> Result<(), Failure> {
    if findings.sound {
        return Ok(());
    }
    let CheckReport { findings_total, blocks_lost, table_blocks_lost, zone_blocks_lost, pages_lost, .. } =
        findings.report;
    let failure = Failure::failed(format_args!("{stored} is unsound: {findings_total} findings"));
    Err(match () {
        () if blocks_lost + table_blocks_lost == findings_total && table_blocks_lost > 0 => failure
            .fix("restore the damaged files from a copy; what is lost of them is an error until they are deleted"),
        () if zone_blocks_lost == findings_total => {
            let empty = match findings.face {
                Face::Zones => "reset the zones",
                Face::Segments => "trim the segments",
            };
            failure.fix(format_args!(
                "copy what can still be read, and {empty}: what is lost of them is an error until then"
            ))
        }
        () if pages_lost == findings_total => {
            failure.fix("put the lost pages again, or delete them: they are errors until then")
        }
        () if blocks_lost == findings_total => {
            failure.fix("restore the lost blocks from a copy; they are errors until they are overwritten or trimmed")
        }
        () if repaired => failure.fix("copy what can still be read (nbdcopy), and create a new drive"),
        () => failure.fix(format_args!("openftl check {} --repair", stored.words())),
    })
}

/// Checks the drive as it is, if that can be done without writing to it; else recovers it first.
fn look(stored: &Stored<'_>) -> Result<Findings, Failure> {
    let mut clock = VirtualClock::default();
    let name = stored.to_string();
    if let Some(mut drive) = while_opening(&name, || assembly::open_as_it_is(stored, &mut clock))?
        && drive.block().recovery_report().clean
    {
        let findings = verified(stored, &mut drive, &mut clock)?;
        // Data that are not readable yet look like damage. A drive without such blocks has no second chance, and to use one
        // whose metadata is there only once would hide that.
        let is_certain = assembly::geometry(drive.block()).mw_cunits == 0 || !findings.single_copies.is_empty();
        if findings.sound || is_certain {
            return Ok(findings);
        }
    }
    let mut drive = while_opening(&name, || assembly::open_and_recover(stored, &mut clock))?;
    let findings = verified(stored, &mut drive, &mut clock)?;
    close(drive, &mut clock)?;
    Ok(Findings { recovered: true, ..findings })
}

/// Repairs the drive, and checks what it is then.
fn repair(stored: &Stored<'_>) -> Result<Findings, Failure> {
    let mut clock = VirtualClock::default();
    let what = "repair: the drive is opened; if its map is lost, every block on the media is read";
    let opening = Waiting::new(what.to_owned(), String::new);
    let mut drive = assembly::open_and_repair(stored, &mut clock)?;
    drop(opening);
    let findings = verified(stored, &mut drive, &mut clock)?;
    close(drive, &mut clock)?;
    Ok(Findings { repaired: true, ..findings })
}

fn close(drive: StoredDrive, clock: &mut VirtualClock) -> Result<(), Failure> {
    if drive.block().read_only_reason().is_none() { assembly::close(drive, clock).map(drop) } else { Ok(()) }
}

fn verified(stored: &Stored<'_>, drive: &mut StoredDrive, clock: &mut VirtualClock) -> Result<Findings, Failure> {
    let report = verify(stored, drive, clock)?;
    let recovery = drive.block().recovery_report();
    Ok(Findings {
        sound: report.is_sound(),
        single_copies: recovery.single_copies.clone(),
        rebuilt: recovery.repair.clone(),
        damaged_files: damaged_files(drive, &report),
        face: drive.zones().map(|zones| zones.face()).unwrap_or_default(),
        report,
        ..Findings::default()
    })
}

/// The files that the lost blocks of `report` are of.
fn damaged_files(drive: &StoredDrive, report: &CheckReport) -> Vec<DamagedFile> {
    let Some(ftl) = drive.tables() else { return Vec::new() };
    let catalog = u64::from(ftl.block().config().catalog_blocks);
    let in_log_area: Vec<u64> = report.lost.iter().filter_map(|lost| lost.block.checked_sub(catalog)).collect();
    let mut files = Vec::new();
    for entry in ftl.found() {
        let damaged = report.damaged_tables.iter().find(|damaged| damaged.number == entry.number);
        let Ok(note) = Note::decode(&entry.note) else { continue };
        let is_of_file = |block: &&u64| {
            let extents = || note.extents.iter().map(|extent| (u64::from(extent.first), u64::from(extent.blocks)));
            extents().any(|(first, blocks)| (first..first + blocks).contains(*block))
        };
        let blocks_lost = match damaged {
            Some(damaged) => u64::from(damaged.blocks_lost),
            None => in_log_area.iter().filter(is_of_file).count() as u64,
        };
        if blocks_lost > 0 {
            files.push(DamagedFile { path: note.path, table: damaged.map(|damaged| damaged.number), blocks_lost });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn verify(stored: &Stored<'_>, drive: &mut StoredDrive, clock: &mut VirtualClock) -> Result<CheckReport, Failure> {
    let mut live = Live::new(false);
    let started = Instant::now();
    let mut progress = |done: u64, total: u64| {
        if live.is_due() {
            live.show_share("check", done as f64 / total as f64, &rate(done, started));
        }
    };
    drive.check(clock, &mut progress).map_err(|error| Failure::failed(format_args!("{stored}: {error}")))
}

fn page(name: &str, findings: &Findings, palette: Palette) -> String {
    let mut text = String::new();
    let report = &findings.report;
    if findings.recovered {
        _ = writeln!(text, "{name}: its recovery ran before the check, as it does when the drive is served.");
    }
    if let Some(rebuilt) = &findings.rebuilt {
        write_rebuilt(&mut text, rebuilt, palette);
    }
    if findings.recovered || findings.repaired {
        for single in &findings.single_copies {
            _ = writeln!(text, "{} {single}; both are written anew", palette.paint(Ink::Good, "·"));
        }
    }
    if findings.repaired && findings.rebuilt.is_none() && findings.single_copies.is_empty() {
        let word =
            if findings.sound { "There was nothing to repair." } else { "Map and log were whole: nothing to repair." };
        _ = writeln!(text, "{word}");
    }
    for finding in &report.findings {
        _ = writeln!(text, "{} {finding}", palette.paint(Ink::Bad, "✗"));
    }
    let untold = report.findings_total - report.findings.len() as u64;
    if untold > 0 {
        _ = writeln!(text, "  … and {} more", thousands(untold));
    }
    for DamagedFile { path, table, blocks_lost } in &findings.damaged_files {
        let sign = palette.paint(Ink::Bad, "✗");
        let name = table.map_or(String::new(), |number| format!(", which is table {number}"));
        _ = writeln!(text, "{sign} {path}{name}: {} of its blocks cannot be read", thousands(*blocks_lost));
    }
    if report.blocks_uncorrectable > 0 {
        _ = writeln!(
            text,
            "{} {} blocks are errors because a host marked them as uncorrectable",
            palette.paint(Ink::Good, "·"),
            thousands(report.blocks_uncorrectable)
        );
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
    if report.tables > 0 {
        let (tables, blocks) = (thousands(report.tables), thousands(report.table_blocks_verified));
        _ = writeln!(text, "  {tables} tables, of which {blocks} blocks were read and verified");
    }
    if report.pages > 0 {
        _ = writeln!(text, "  {} pages that were read and verified", thousands(report.pages - report.pages_lost));
    }
    if report.keys > 0 {
        _ = writeln!(text, "  {} keys that have values and are in the directory of keys", thousands(report.keys));
    }
    if report.zones > 0 {
        let (zones, blocks) = (thousands(report.zones), thousands(report.zone_blocks_verified));
        let noun = findings.face.noun();
        _ = writeln!(text, "  {zones} {noun} that hold anything, of which {blocks} blocks were read and verified");
    }
    text
}

fn write_rebuilt(text: &mut String, rebuilt: &RepairReport, palette: Palette) {
    let RepairReport { damage, blocks_known, blocks_rebuilt, blocks_returned, blocks_lost, keys, .. } = rebuilt;
    _ = writeln!(text, "{} {damage}", palette.paint(Ink::Bad, "✗"));
    if let Some(index) = &rebuilt.index {
        write_index(text, index, rebuilt.media_blocks_unreadable);
    }
    if let Some(keys) = keys {
        _ = writeln!(text, "  The directory was written anew from the {} keys that have values.", thousands(*keys));
    }
    // Of a store of pages these are blocks of its index, which is rebuilt from the pages.
    if rebuilt.index.is_some() || keys.is_some() {
        return;
    }
    _ = writeln!(
        text,
        "  The map was rebuilt: {} logical blocks are as checkpoint and log say, {} as the newest version on the media,\n  \
         {} are lost.",
        thousands(*blocks_known),
        thousands(*blocks_rebuilt),
        thousands(*blocks_lost)
    );
    if *blocks_returned > 0 {
        _ = writeln!(
            text,
            "  {} of them were nowhere as far as the old map goes: blocks that were trimmed may be back.",
            thousands(*blocks_returned)
        );
    }
    if *blocks_rebuilt > 0 {
        _ = writeln!(text, "  Writes that were under way or never flushed may be there in part.");
        if rebuilt.media_blocks_unreadable > 0 {
            _ = writeln!(
                text,
                "  {} blocks on the media cannot be read; if they held newer versions, older ones have taken their place.",
                thousands(rebuilt.media_blocks_unreadable)
            );
        }
    }
}

/// How well the index of a store of pages was rebuilt.
fn write_index(text: &mut String, index: &IndexRepair, blocks_unreadable: u64) {
    let IndexRepair { pages_known, pages_rebuilt, pages_returned, pages_lost } = index;
    _ = writeln!(
        text,
        "  The index of pages was rebuilt: {} pages are as the log says, {} as their newest versions on the media, {} are lost.",
        thousands(*pages_known),
        thousands(*pages_rebuilt),
        thousands(*pages_lost)
    );
    if *pages_returned > 0 {
        _ = writeln!(
            text,
            "  {} of them were nowhere as far as the old index goes: pages that were deleted may be back.",
            thousands(*pages_returned)
        );
    }
    if *pages_rebuilt > 0 {
        _ = writeln!(text, "  Batches that were under way or not durable may be there in part.");
        if blocks_unreadable > 0 {
            _ = writeln!(
                text,
                "  {} blocks on the media cannot be read; if they held newer versions, older ones have taken their place.",
                thousands(blocks_unreadable)
            );
        }
    }
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
            ..CheckReport::default()
        };
        let unsound = Findings { recovered: true, report, ..Findings::default() };
        expect![[r#"
            disk.oftl: its recovery ran before the check, as it does when the drive is served.
            ✗ logical block 7 came back damaged or as another block
              … and 2 more
            ✗ unsound  disk.oftl: 10 blocks read and verified, 2 never written or trimmed, 4 chunks compared
        "#]]
        .assert_eq(&page("disk.oftl", &unsound, Palette::PLAIN));
        let sound = Findings {
            sound: true,
            report: CheckReport { blocks_verified: 10, blocks_uncorrectable: 3, ..CheckReport::default() },
            ..Findings::default()
        };
        expect![[r#"
            · 3 blocks are errors because a host marked them as uncorrectable
            ✓ sound  disk.oftl: 10 blocks read and verified, 0 never written or trimmed, 0 chunks compared
        "#]]
        .assert_eq(&page("disk.oftl", &sound, Palette::PLAIN));
    }

    #[test]
    fn lost_blocks_of_tables_are_told_by_the_names_of_the_files() {
        let report = CheckReport {
            blocks_verified: 10,
            findings_total: 3,
            findings: vec!["block 7 of table 12 cannot be read from the medium (it is at g0p0c3b7)".to_owned()],
            blocks_lost: 1,
            tables: 2,
            table_blocks_verified: 998,
            table_blocks_lost: 2,
            ..CheckReport::default()
        };
        let files = [("/db/000007.log", None, 1), ("/db/000012.sst", Some(12), 2)];
        let files = files.map(|(path, table, blocks_lost)| DamagedFile { path: path.to_owned(), table, blocks_lost });
        let unsound = Findings { report, damaged_files: files.into(), ..Findings::default() };
        expect![[r#"
            ✗ block 7 of table 12 cannot be read from the medium (it is at g0p0c3b7)
              … and 2 more
            ✗ /db/000007.log: 1 of its blocks cannot be read
            ✗ /db/000012.sst, which is table 12: 2 of its blocks cannot be read
            ✗ unsound  lsm.oftl: 10 blocks read and verified, 0 never written or trimmed, 0 chunks compared
              2 tables, of which 998 blocks were read and verified
        "#]]
        .assert_eq(&page("lsm.oftl", &unsound, Palette::PLAIN));
    }

    #[test]
    fn a_repair_says_what_it_did_and_what_it_cannot_know() {
        let nothing = Findings { sound: true, repaired: true, ..Findings::default() };
        expect![[r#"
            There was nothing to repair.
            ✓ sound  disk.oftl: 0 blocks read and verified, 0 never written or trimmed, 0 chunks compared
        "#]]
        .assert_eq(&page("disk.oftl", &nothing, Palette::PLAIN));
        let rebuilt = RepairReport {
            damage: "log block 9 is lost".to_owned(),
            media_blocks_unreadable: 3,
            blocks_known: 1000,
            blocks_rebuilt: 20,
            blocks_returned: 2,
            blocks_lost: 1,
            index: None,
            keys: None,
        };
        let findings = Findings {
            repaired: true,
            rebuilt: Some(rebuilt),
            single_copies: vec!["checkpoint 7: copy 1 lacks 3 of 8 blocks".to_owned()],
            report: CheckReport {
                blocks_verified: 1019,
                blocks_lost: 1,
                findings_total: 1,
                findings: vec!["logical block 7 cannot be read".to_owned()],
                ..CheckReport::default()
            },
            ..Findings::default()
        };
        expect![[r#"
            ✗ log block 9 is lost
              The map was rebuilt: 1 000 logical blocks are as checkpoint and log say, 20 as the newest version on the media,
              1 are lost.
              2 of them were nowhere as far as the old map goes: blocks that were trimmed may be back.
              Writes that were under way or never flushed may be there in part.
              3 blocks on the media cannot be read; if they held newer versions, older ones have taken their place.
            · checkpoint 7: copy 1 lacks 3 of 8 blocks; both are written anew
            ✗ logical block 7 cannot be read
            ✗ unsound  disk.oftl: 1 019 blocks read and verified, 0 never written or trimmed, 0 chunks compared
        "#]].assert_eq(&page("disk.oftl", &findings, Palette::PLAIN));
    }

    #[test]
    fn a_directory_that_was_written_anew_is_not_a_rebuilt_index() {
        let rebuilt = RepairReport {
            damage: "change 7 of the directory cannot be read".to_owned(),
            keys: Some(12),
            ..RepairReport::default()
        };
        let findings = Findings { repaired: true, sound: true, rebuilt: Some(rebuilt), ..Findings::default() };
        expect![[r#"
            ✗ change 7 of the directory cannot be read
              The directory was written anew from the 12 keys that have values.
            ✓ sound  disk.oftl: 0 blocks read and verified, 0 never written or trimmed, 0 chunks compared
        "#]]
        .assert_eq(&page("disk.oftl", &findings, Palette::PLAIN));
    }
}
