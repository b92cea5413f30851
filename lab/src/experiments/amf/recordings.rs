//! Where the recordings are: files beside the program, since they are half as large as it.

use super::System;
use crate::experiments::ExperimentError;
use crate::file_load::FileModel;
use std::path::{Path, PathBuf};

/// The variable that names the folder they are in, if they are elsewhere.
const VARIABLE: &str = "OPENFTL_RECORDINGS";

/// Where they are in the sources, and where packages put them.
const FOLDERS: [&str; 2] = [concat!(env!("CARGO_MANIFEST_DIR"), "/recordings"), "/usr/share/openftl/recordings"];

/// What file systems of Linux wrote for loads, so full.
pub(super) const ALL: [(&str, System, FileModel, u32); 14] = [
    ("ext4-random-60", System::Ext4, FileModel::Random, 60),
    ("ext4-random-85", System::Ext4, FileModel::Random, 85),
    ("ext4-random-95", System::Ext4, FileModel::Random, 95),
    ("ext4-sequential-85", System::Ext4, FileModel::Sequential, 85),
    ("ext4-postmark-85", System::Ext4, FileModel::Postmark, 85),
    ("ext4-oltp-85", System::Ext4, FileModel::Oltp, 85),
    ("ext4-tpc-c-85", System::Ext4, FileModel::TpcC, 85),
    ("f2fs-random-60", System::F2fs, FileModel::Random, 60),
    ("f2fs-random-85", System::F2fs, FileModel::Random, 85),
    ("f2fs-random-95", System::F2fs, FileModel::Random, 95),
    ("f2fs-sequential-85", System::F2fs, FileModel::Sequential, 85),
    ("f2fs-postmark-85", System::F2fs, FileModel::Postmark, 85),
    ("f2fs-oltp-85", System::F2fs, FileModel::Oltp, 85),
    ("f2fs-tpc-c-85", System::F2fs, FileModel::TpcC, 85),
];

/// The recording of a system under a load, if there is one.
pub(super) fn of(system: System, load: FileModel, fill: u32) -> Option<&'static str> {
    ALL.iter().find(|(_, of, by, full)| (*of, *by, *full) == (system, load, fill)).map(|(name, ..)| *name)
}

/// The bytes of a recording.
pub(super) fn read(name: &str) -> Result<Vec<u8>, ExperimentError> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    read_from(&named.map_or_else(|| FOLDERS.map(PathBuf::from).to_vec(), |folder| vec![folder]), name)
}

fn read_from(folders: &[PathBuf], name: &str) -> Result<Vec<u8>, ExperimentError> {
    let mut looked = Vec::new();
    for path in folders.iter().map(|folder| folder.join(format!("{name}.trace"))) {
        match std::fs::read(&path) {
            Ok(bytes) => return Ok(bytes),
            Err(error) => looked.push(telling(&path, &error)),
        }
    }
    Err(ExperimentError::Host(format!(
        "a recording of what a file system of Linux wrote is missing ({}): set {VARIABLE} to the folder `lab/recordings` of the sources",
        looked.join("; ")
    )))
}

fn telling(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recording_is_in_the_sources_and_there_are_no_others() {
        let folder = PathBuf::from(FOLDERS[0]);
        for (name, ..) in ALL {
            assert!(!read_from(std::slice::from_ref(&folder), name).unwrap().is_empty(), "{name}");
        }
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), ALL.len());
    }

    #[test]
    fn a_missing_recording_is_an_error_with_its_fix() {
        let error = read_from(&[PathBuf::from("/nowhere")], "ext4-oltp-85").unwrap_err().to_string();
        assert!(error.contains("/nowhere/ext4-oltp-85.trace") && error.contains(VARIABLE), "{error}");
    }
}
