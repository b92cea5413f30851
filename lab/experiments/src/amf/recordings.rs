//! Which recordings there are of what file systems of Linux wrote for loads of files.

use super::System;
use crate::file_load::FileModel;

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
