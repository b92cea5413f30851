//! `openftl files`: what is on a table drive, on one whose files are on zones or of an ALFS, or on the one that a server has open.

use openftl_command_line::cli;
use openftl_command_line::failure::Failure;
use openftl_command_line::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_drive::small_file::is_stored_drive;
use openftl_drive_files::{DriveFiles, FileDrive};
use openftl_files::{Attributes, FileError, FileKind};
use openftl_parts::Access;
use openftl_volumes::Volume;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

#[derive(Serialize)]
struct Found {
    path: String,
    kind: &'static str,
    bytes: u64,
    modified_s: u64,
}

#[derive(Serialize)]
struct Listing {
    files: Vec<Found>,
    tables_free_bytes: u64,
    tables_all_bytes: u64,
}

/// Runs the command.
///
/// # Errors
/// If it fails.
pub fn run(arguments: &cli::Files) -> Result<(), Failure> {
    let files = open(&arguments.drive)?;
    if let Some(path) = &arguments.get {
        return copy_out(&files, path);
    }
    let folder = arguments.folder.as_deref().unwrap_or("/");
    let mut found = Vec::new();
    gather(&files, folder, &mut found)?;
    let (tables_free_bytes, tables_all_bytes) = files.space().map_err(Failure::from)?;
    if arguments.json {
        return say(&openftl_command_line::json(&Listing { files: found, tables_free_bytes, tables_all_bytes })?);
    }
    let palette = Palette::of_stdout();
    let mut text = String::new();
    for Found { path, kind, bytes, .. } in &found {
        let size = if *kind == word(FileKind::Folder) { String::new() } else { ByteSize(*bytes).to_string() };
        _ = writeln!(text, "{} {size:>10}  {path}", palette.paint(Ink::Dim, &format!("{kind:<6}")));
    }
    let count = |kind| found.iter().filter(|file| file.kind == word(kind)).count();
    let (tables, logs) = (count(FileKind::Table), count(FileKind::Log));
    let (free, all) = (ByteSize(tables_free_bytes), ByteSize(tables_all_bytes));
    let place = if has_tables(&files) { " in tables" } else { "" };
    _ = writeln!(text, "{tables} tables, {logs} log files; room for {free} more{place}, of {all}");
    say(&text)
}

/// Whether it is a table drive, which has a place of its own for log files.
fn has_tables(files: &DriveFiles) -> bool {
    match files {
        Volume::Here(_) | Volume::Served(_) => true,
        Volume::Zoned(_) | Volume::Alfs(_) => false,
    }
}

/// What is on a drive that is named itself, or by its description.
fn open(drive: &Path) -> Result<DriveFiles, Failure> {
    let failure_on = |error: FileError, disk: &Path| match error {
        FileError::Corruption(_) => Failure::from(error)
            .fix(format_args!("`openftl check {}` opens it as for use, and says whether it is sound", disk.display())),
        FileError::Busy(_) => {
            Failure::from(error).fix("name its description (TOML) if it is served: its server is asked then")
        }
        error => Failure::from(error),
    };
    if is_stored_drive(drive) {
        return openftl_drive_files::open(drive, Access::Inspect).map_err(|error| failure_on(error, drive));
    }
    let described = FileDrive::read(drive).map_err(Failure::from)?;
    let Some(disk) = described.disk() else {
        return match described.open_or_connect(Access::Inspect).map_err(Failure::from)? {
            Volume::Here(_) | Volume::Zoned(_) | Volume::Alfs(_) => Err(Failure::bad_input(format_args!(
                "{}: the drive is in memory, and gone with its program",
                drive.display()
            ))
            .fix("a drive that is to be looked at has media.store = \"file\", or is served")),
            served => Ok(served),
        };
    };
    described.open_or_connect(Access::Inspect).map_err(|error| match error {
        error @ FileError::Busy(_) => Failure::from(error),
        error => failure_on(error, disk),
    })
}

/// A folder, and what is in it.
fn gather(files: &DriveFiles, folder: &str, found: &mut Vec<Found>) -> Result<(), Failure> {
    for (name, Attributes { kind, bytes, modified }) in files.list(folder).map_err(Failure::from)? {
        let path = if folder == "/" { format!("/{name}") } else { format!("{}/{name}", folder.trim_end_matches('/')) };
        found.push(Found { path: path.clone(), kind: word(kind), bytes, modified_s: modified });
        if kind == FileKind::Folder {
            gather(files, &path, found)?;
        }
    }
    Ok(())
}

fn copy_out(files: &DriveFiles, path: &str) -> Result<(), Failure> {
    let reader = files.open_read(path).map_err(Failure::from)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut out = std::io::stdout().lock();
    let mut at = 0;
    while at < reader.bytes() {
        let count = reader.read(at, &mut buffer).map_err(Failure::from)?;
        match out.write_all(&buffer[..count]) {
            // Whoever reads has enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|error| Failure::failed(format_args!("standard output: {error}")))?,
        }
        at += count as u64;
    }
    Ok(())
}

fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Table => "table",
        FileKind::Log => "log",
        FileKind::Folder => "folder",
    }
}
