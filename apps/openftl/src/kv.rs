//! `openftl kv`: what is on a key-value drive.

mod bench;

use crate::cli::kv::{Kv, KvCommand, KvDel, KvGet, KvInfo, KvList, KvPlace, KvPut};
use crate::failure::Failure;
use crate::terminal::{Ink, Palette, say};
use openftl_core::units::ByteSize;
use openftl_drive::small_file::is_stored_drive;
use openftl_drive::value_drive::{ValueDrive, open_stored};
use openftl_drive::value_store::ValueStore;
use openftl_lab::picture::thousands;
use openftl_media::EmulatedDevice;
use openftl_pages::{GRAIN_BYTES, HEADER_BYTES};
use openftl_parts::{Access, Durability};
use openftl_values::{Condition, Key, RECORD_BYTES, ValueError};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::ffi::OsStrExt;

type Drive = ValueStore<EmulatedDevice>;

pub fn run(arguments: &Kv) -> Result<(), Failure> {
    match &arguments.command {
        KvCommand::Put(put_arguments) => put(put_arguments),
        KvCommand::Get(get_arguments) => get(get_arguments),
        KvCommand::Del(del_arguments) => del(del_arguments),
        KvCommand::Exist(exist_arguments) => exist(exist_arguments),
        KvCommand::List(list_arguments) => list(list_arguments),
        KvCommand::Info(info_arguments) => info(info_arguments),
        KvCommand::Bench(bench_arguments) => bench::run(bench_arguments),
    }
}

fn open(place: &KvPlace, access: Access) -> Result<Drive, Failure> {
    match is_stored_drive(&place.drive) {
        true => open_stored(&place.drive, access),
        false => ValueDrive::read(&place.drive)?.open(access),
    }
}

fn put(arguments: &KvPut) -> Result<(), Failure> {
    let value = match (&arguments.value, &arguments.file) {
        (Some(value), _) => value.as_bytes().to_vec(),
        (None, Some(file)) => std::fs::read(file).map_err(|error| {
            Failure::bad_input(format_args!("{}: {error}", file.display())).fix("name a file that has the value")
        })?,
        (None, None) => {
            let mut value = Vec::new();
            std::io::stdin().read_to_end(&mut value).map_err(Failure::failed)?;
            value
        }
    };
    let condition = match (arguments.if_exists, arguments.if_missing) {
        (true, _) => Condition::IfExists,
        (_, true) => Condition::IfMissing,
        _ => Condition::Always,
    };
    let mut drive = open(&arguments.place, Access::ReadWrite)?;
    let stored = drive.store(arguments.key, &value, condition, Durability::Durable);
    drive.close()?;
    let is_new = stored.map_err(|error| failure(arguments.key, error))?;
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    let what = if is_new { "new, " } else { "" };
    say(&format!("{sign} {}: {what}{} bytes\n", arguments.key, value.len()))
}

fn get(arguments: &KvGet) -> Result<(), Failure> {
    let mut drive = open(&arguments.place, Access::Inspect)?;
    let value = drive.retrieve(arguments.key).map_err(|error| failure(arguments.key, error))?;
    match std::io::stdout().lock().write_all(&value) {
        // Whoever reads has enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::failed(format_args!("standard output: {error}"))),
    }
}

fn exist(arguments: &KvGet) -> Result<(), Failure> {
    let mut drive = open(&arguments.place, Access::Inspect)?;
    let bytes = drive.exist(arguments.key).map_err(|error| failure(arguments.key, error))?;
    say(&format!("{}: {bytes} bytes\n", arguments.key))
}

fn del(arguments: &KvDel) -> Result<(), Failure> {
    let mut drive = open(&arguments.place, Access::ReadWrite)?;
    let deleted = arguments
        .keys
        .iter()
        .try_for_each(|key| drive.delete(*key, Durability::Durable).map_err(|error| failure(*key, error)));
    drive.close()?;
    deleted?;
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    let count = arguments.keys.len();
    say(&format!("{sign} {count} {} deleted\n", if count == 1 { "key" } else { "keys" }))
}

#[derive(Serialize)]
struct Listed {
    /// As text, or in hexadecimal.
    key: String,
    hex: String,
}

#[derive(Serialize)]
struct Listing {
    keys: Vec<Listed>,
    keys_all: u64,
}

fn list(arguments: &KvList) -> Result<(), Failure> {
    let mut drive = open(&arguments.place, Access::Inspect)?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let (mut keys, mut from, mut is_behind) = (Vec::<Key>::new(), arguments.from, false);
    while keys.len() < limit {
        let more = drive.list(from, is_behind, limit - keys.len()).map_err(Failure::failed)?;
        let Some(last) = more.last().copied() else { break };
        keys.extend(more);
        (from, is_behind) = (Some(last), true);
    }
    let keys_all = drive.info().keys;
    if arguments.json {
        let hex = |key: &Key| key.bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let keys = keys.iter().map(|key| Listed { key: key.to_string(), hex: hex(key) }).collect();
        return say(&crate::json(&Listing { keys, keys_all })?);
    }
    let mut text = String::new();
    keys.iter().for_each(|key| _ = writeln!(text, "{key}"));
    say(&text)
}

#[derive(Serialize)]
struct Info {
    keys: u64,
    keys_max: u64,
    key_bytes: u64,
    key_max: u8,
    value_bytes: u64,
    value_max: u32,
    durable_stores: bool,
    used_bytes: u64,
    capacity_bytes: u64,
    /// Memory for where values are, and for the directory.
    index_bytes: u64,
    /// Each value has a header before it and a record behind it.
    header_bytes_per_value: usize,
    /// A page begins on a grain.
    grain_bytes: usize,
    /// Bytes on media over those of keys and values.
    overhead: f64,
    /// Keys of each run of the directory, the oldest one first.
    directory_runs: Vec<u64>,
    directory_changes: usize,
}

fn info(arguments: &KvInfo) -> Result<(), Failure> {
    let store = open(&arguments.place, Access::Inspect)?;
    let (drive, known) = (store.drive(), store.info());
    let payload = known.key_bytes + known.value_bytes;
    let info = Info {
        keys: known.keys,
        keys_max: known.keys_max,
        key_bytes: known.key_bytes,
        key_max: known.key_max,
        value_bytes: known.value_bytes,
        value_max: known.value_max,
        durable_stores: known.durable_stores,
        used_bytes: known.used_bytes,
        capacity_bytes: known.capacity_bytes,
        index_bytes: drive.index_bytes(),
        header_bytes_per_value: HEADER_BYTES + RECORD_BYTES,
        grain_bytes: GRAIN_BYTES,
        overhead: if payload == 0 { 0.0 } else { known.used_bytes as f64 / payload as f64 - 1.0 },
        directory_runs: drive.runs(),
        directory_changes: drive.changes(),
    };
    if arguments.json {
        return say(&crate::json(&info)?);
    }
    let mut text = String::new();
    let per_key = info.index_bytes as f64 / info.keys.max(1) as f64;
    _ = writeln!(
        text,
        "keys        {} of {}, 1 to {} bytes each",
        thousands(info.keys),
        thousands(info.keys_max),
        info.key_max
    );
    _ = writeln!(text, "values      0 bytes to {} ({} bytes)", ByteSize(info.value_max.into()), info.value_max);
    _ = writeln!(text, "in use      {} in keys, {} in values", ByteSize(info.key_bytes), ByteSize(info.value_bytes));
    _ = writeln!(
        text,
        "on media    {} of {}: {} bytes beside each value, in grains of {}; {:.1}% beyond keys and values",
        ByteSize(info.used_bytes),
        ByteSize(info.capacity_bytes),
        info.header_bytes_per_value,
        info.grain_bytes,
        info.overhead * 100.0
    );
    let per_key = if info.keys == 0 { String::new() } else { format!(", {per_key:.1} bytes a key") };
    _ = writeln!(text, "index       {} of memory{per_key}", ByteSize(info.index_bytes));
    let runs: Vec<String> = info.directory_runs.iter().map(|keys| thousands(*keys)).collect();
    let runs = if runs.is_empty() { "none".to_owned() } else { runs.join(", ") };
    _ = writeln!(text, "directory   runs of keys: {runs}; changes: {}", info.directory_changes);
    let durable = if info.durable_stores { "when they are durable" } else { "when they can be read" };
    _ = writeln!(text, "stores      acknowledged {durable}");
    say(&text)
}

/// What a drive says of a key, for people.
fn failure(key: Key, error: ValueError) -> Failure {
    match error {
        ValueError::NoKey => {
            Failure::failed(format_args!("{key}: {error}")).fix("`openftl kv list` shows which there are")
        }
        ValueError::KeyExists => Failure::failed(format_args!("{key}: {error}")).fix("leave --if-missing away"),
        ValueError::CapacityExceeded { .. } | ValueError::KeysExceeded { .. } => Failure::failed(error),
        ValueError::ValueSize { .. } | ValueError::KeySize { .. } => {
            Failure::bad_input(format_args!("{key}: {error}")).fix("`openftl kv info` shows the limits of the drive")
        }
        error => Failure::failed(format_args!("{key}: {error}")),
    }
}
