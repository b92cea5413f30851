//! Small drives, and files whose every byte says whose it is.

#![allow(dead_code, reason = "not every test uses all of it")]

use openftl_files::{FileKind, FileReader, Files, Pace};
use openftl_ftl::tables::TablePlacement;
use openftl_ftl::{Access, Config};
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};

/// Blocks of the log area.
pub const LOG_BLOCKS: u64 = 512;

pub fn config() -> Config {
    Config { capacity_blocks: LOG_BLOCKS, host_frames: 256, drive_id: 7, ..Config::default() }
}

/// A new drive on the profile `tiny`, with `chunks` chunks on each of its four parallel units.
pub fn tiny(chunks: u32, seed: u64) -> Files<EmulatedDevice> {
    let device = EmulatedDevice::new(Profile::builtin("tiny").unwrap(), chunks, Store::Ram, Timing::Modelled, seed);
    Files::format(device.unwrap(), config(), TablePlacement::Horizontal, Pace::Virtual).unwrap()
}

pub fn reopen(device: EmulatedDevice) -> Files<EmulatedDevice> {
    Files::open(device, config(), TablePlacement::Horizontal, Access::ReadWrite, Pace::Virtual).unwrap()
}

/// The power goes, and comes back.
pub fn power_cut(files: Files<EmulatedDevice>, torn: bool) -> Files<EmulatedDevice> {
    let now = files.with_drive(|drive| drive.block().now());
    let mut device = files.crash().expect("nobody uses it");
    device.power_cut(now, torn).unwrap();
    reopen(device)
}

/// Byte `at` of file `id`.
pub fn byte(id: u64, at: u64) -> u8 {
    let word = (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at / 8)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (word >> (8 * (at % 8))) as u8
}

pub fn bytes(id: u64, from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(|at| byte(id, at)).collect()
}

/// Writes file `id` of `count` bytes in pieces, and closes it.
pub fn write<M: Media>(files: &Files<M>, path: &str, kind: FileKind, id: u64, count: u64, piece: u64) {
    let mut writer = files.create(path, kind).unwrap();
    let mut at = 0;
    while at < count {
        let step = piece.min(count - at);
        writer.append(&bytes(id, at, step)).unwrap();
        at += step;
    }
    writer.close().unwrap();
}

/// All of a file.
pub fn read_all<M: Media>(reader: &FileReader<M>) -> Vec<u8> {
    let mut found = vec![0; reader.bytes() as usize + 10];
    let count = reader.read(0, &mut found).unwrap();
    found.truncate(count);
    found
}

pub fn content<M: Media>(files: &Files<M>, path: &str) -> Vec<u8> {
    read_all(&files.open_read(path).unwrap())
}
