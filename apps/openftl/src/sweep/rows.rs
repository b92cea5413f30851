//! The CSV of a sweep: rows that are there, and rows that are added.
//!
//! What an interruption leaves is a file whose last row may be torn: without the end of its line. It is cut off, and its run
//! done again.

use super::plan::{Plan, header};
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file, open and locked.
pub struct Rows {
    path: PathBuf,
    file: File,
    /// By run, from 0.
    rows: BTreeMap<usize, Vec<String>>,
}

impl Rows {
    /// Opens the file of a sweep, or begins it.
    pub fn open(path: &Path, plan: &Plan) -> Result<Rows, Failure> {
        let name = path.display();
        let refused = |error: std::io::Error| {
            Failure::bad_input(format_args!("--out {name}: {error}")).fix("name a file that can be written")
        };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(refused)?;
        file.try_lock().map_err(|_| {
            Failure::bad_input(format_args!("--out {name}: another sweep is writing it"))
                .fix("wait for its end, or name another file with --out")
        })?;
        let mut text = String::new();
        match file.read_to_string(&mut text) {
            Err(error) if error.kind() == ErrorKind::InvalidData => return Err(not_ours(path, 1, "it is no text")),
            result => result.map_err(refused)?,
        };
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        if whole.is_empty() && !first_line().starts_with(&text) {
            return Err(not_ours(path, 1, "its header is another"));
        }
        let rows = understood(path, whole, plan)?;
        // Nothing is changed before all of it is known to be ours.
        let length = whole.len() as u64;
        file.set_len(length).and_then(|()| file.seek(std::io::SeekFrom::End(0))).map_err(refused)?;
        let mut rows = Rows { path: path.to_owned(), file, rows };
        if length == 0 {
            rows.write(&header())?;
        }
        Ok(rows)
    }

    /// Whether a run is done.
    pub fn has(&self, run: usize) -> bool {
        self.rows.contains_key(&run)
    }

    /// Adds the row of a run that has ended.
    pub fn append(&mut self, row: Vec<String>) -> Result<(), Failure> {
        self.write(&row)?;
        let run: usize = row[0].parse().expect("a row begins with the number of its run");
        self.rows.insert(run - 1, row);
        Ok(())
    }

    /// With one write, so that little can be torn.
    fn write(&mut self, row: &[String]) -> Result<(), Failure> {
        let line = lines([row]);
        self.file.write_all(line.as_bytes()).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::failed(format_args!("cannot write {}: {error}", self.path.display()))
            .fix("make room and run the same command again: it goes on from the rows that are there")
    }

    /// Puts the rows in order, all at once, and gives them back with the names of their fields.
    pub fn finish(self) -> Result<Vec<BTreeMap<String, String>>, Failure> {
        let header = header();
        let text = lines([&header].into_iter().chain(self.rows.values()).map(Vec::as_slice));
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        std::fs::write(&beside, text)
            .and_then(|()| std::fs::rename(&beside, &self.path))
            .map_err(|error| self.failed(&error))?;
        let named = |row: Vec<String>| header.iter().cloned().zip(row).collect();
        Ok(self.rows.into_values().map(named).collect())
    }
}

fn first_line() -> String {
    lines([&header()[..]])
}

/// Rows as text, as RFC 4180 has it but for the ends of lines.
fn lines<'a>(rows: impl IntoIterator<Item = &'a [String]>) -> String {
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).expect("memory takes any row, and all are equally long");
    }
    let bytes = writer.into_inner().expect("memory can be flushed");
    String::from_utf8(bytes).expect("text is written")
}

/// The rows of a file that is whole.
fn understood(path: &Path, text: &str, plan: &Plan) -> Result<BTreeMap<usize, Vec<String>>, Failure> {
    let mut rows = BTreeMap::new();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    for (line, record) in (1..).zip(reader.records()) {
        let record = record.map_err(|_| not_ours(path, line, "the row has another number of fields"))?;
        let row: Vec<String> = record.iter().map(str::to_owned).collect();
        if line == 1 {
            if row != header() {
                return Err(not_ours(path, line, "its header is another"));
            }
            continue;
        }
        let run = row[0].parse::<usize>().ok().and_then(|run| run.checked_sub(1));
        let of_plan = run.and_then(|run| plan.runs.get(run).map(|of_plan| (run, of_plan.beginning(run))));
        match of_plan {
            Some((run, beginning)) if row.starts_with(&beginning) => rows.insert(run, row),
            _ => return Err(not_ours(path, line, "the sweep has no such run")),
        };
    }
    Ok(rows)
}

fn not_ours(path: &Path, line: u64, why: &str) -> Failure {
    Failure::bad_input(format_args!("{}, line {line}: {why}: this is the file of another sweep", path.display()))
        .fix("name another file with --out, or remove this one if nobody needs it")
}
