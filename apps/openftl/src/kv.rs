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
use openftl_nvme::Status;
use openftl_nvme_media::uri::DriveUri;
use openftl_nvme_values::{RemoteError, RemoteInfo, RemoteValues};
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

/// A drive: on this machine, or served by another process or machine.
enum Opened {
    Here(Box<Drive>),
    There(Box<RemoteValues>),
}

/// Why a request was not carried out.
enum Trouble {
    Here(ValueError),
    There(RemoteError),
}

impl From<ValueError> for Trouble {
    fn from(error: ValueError) -> Trouble {
        Trouble::Here(error)
    }
}

impl From<RemoteError> for Trouble {
    fn from(error: RemoteError) -> Trouble {
        Trouble::There(error)
    }
}

impl Opened {
    fn open(place: &KvPlace, access: Access) -> Result<Opened, Failure> {
        let drive = &place.drive;
        if let Some(uri) = drive.to_str().filter(|text| DriveUri::is_meant(text)) {
            let uri: DriveUri = uri.parse().map_err(|error| Failure::bad_input(format_args!("--drive: {error}")))?;
            let drive = RemoteValues::connect(&uri).map_err(|error| {
                Failure::failed(error).fix("`openftl serve --drive drives/kv.toml --nvme-tcp ADDRESS` serves a drive")
            })?;
            return Ok(Opened::There(Box::new(drive)));
        }
        let opened = match is_stored_drive(drive) {
            true => open_stored(drive, access)?,
            false => ValueDrive::read(drive)?.open(access)?,
        };
        Ok(Opened::Here(Box::new(opened)))
    }

    /// Durable when it returns. Whether the key is new, if that is known.
    fn store(&mut self, key: Key, value: &[u8], condition: Condition) -> Result<Option<bool>, Trouble> {
        match self {
            Opened::Here(drive) => Ok(drive.store(key, value, condition, Durability::Durable).map(Some)?),
            Opened::There(drive) => {
                drive.store(key, value.to_vec(), condition)?;
                drive.flush()?;
                Ok(None)
            }
        }
    }

    fn retrieve(&mut self, key: Key) -> Result<Vec<u8>, Trouble> {
        match self {
            Opened::Here(drive) => Ok(drive.retrieve(key)?),
            Opened::There(drive) => Ok(drive.retrieve(key)?),
        }
    }

    /// Bytes of the value of a key.
    fn exist(&mut self, key: Key) -> Result<u32, Trouble> {
        match self {
            Opened::Here(drive) => Ok(drive.exist(key)?),
            Opened::There(drive) => Ok(drive.bytes_of(key)?),
        }
    }

    /// Durable when it returns.
    fn delete(&mut self, key: Key) -> Result<(), Trouble> {
        match self {
            Opened::Here(drive) => Ok(drive.delete(key, Durability::Durable)?),
            Opened::There(drive) => {
                // Unless its host says otherwise, a drive deletes what is not there without a word.
                if !drive.exist(key)? {
                    return Err(RemoteError::NoKey.into());
                }
                drive.delete(key)?;
                Ok(drive.flush()?)
            }
        }
    }

    /// Keys in their order, from `from` on, or those behind it. None: there are no more.
    fn list(&mut self, from: Option<Key>, is_behind: bool, most: usize) -> Result<Vec<Key>, Trouble> {
        match self {
            Opened::Here(drive) => Ok(drive.list(from, is_behind, most)?),
            Opened::There(drive) => {
                let keys = drive.list(from)?.into_iter();
                Ok(keys.filter(|key| !(is_behind && Some(*key) == from)).take(most).collect())
            }
        }
    }

    /// Stops the drive, if it is here.
    fn close(self) -> Result<(), Failure> {
        match self {
            Opened::Here(drive) => drive.close().map(drop),
            Opened::There(_) => Ok(()),
        }
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
    let mut drive = Opened::open(&arguments.place, Access::ReadWrite)?;
    let stored = drive.store(arguments.key, &value, condition);
    drive.close()?;
    let is_new = stored.map_err(|error| failure(arguments.key, error))?;
    let sign = Palette::of_stdout().paint(Ink::Good, "✓");
    let what = if is_new == Some(true) { "new, " } else { "" };
    say(&format!("{sign} {}: {what}{} bytes\n", arguments.key, value.len()))
}

fn get(arguments: &KvGet) -> Result<(), Failure> {
    let mut drive = Opened::open(&arguments.place, Access::Inspect)?;
    let value = drive.retrieve(arguments.key).map_err(|error| failure(arguments.key, error))?;
    match std::io::stdout().lock().write_all(&value) {
        // Whoever reads has enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::failed(format_args!("standard output: {error}"))),
    }
}

fn exist(arguments: &KvGet) -> Result<(), Failure> {
    let mut drive = Opened::open(&arguments.place, Access::Inspect)?;
    let bytes = drive.exist(arguments.key).map_err(|error| failure(arguments.key, error))?;
    say(&format!("{}: {bytes} bytes\n", arguments.key))
}

fn del(arguments: &KvDel) -> Result<(), Failure> {
    let mut drive = Opened::open(&arguments.place, Access::ReadWrite)?;
    let deleted = arguments.keys.iter().try_for_each(|key| drive.delete(*key).map_err(|error| failure(*key, error)));
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
    /// All keys that there are. The Key Value command set does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_all: Option<u64>,
}

fn list(arguments: &KvList) -> Result<(), Failure> {
    let mut drive = Opened::open(&arguments.place, Access::Inspect)?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let (mut keys, mut from, mut is_behind) = (Vec::<Key>::new(), arguments.from, false);
    while keys.len() < limit {
        let more = drive.list(from, is_behind, limit - keys.len()).map_err(list_failure)?;
        let Some(last) = more.last().copied() else { break };
        keys.extend(more);
        (from, is_behind) = (Some(last), true);
    }
    let keys_all = match &drive {
        Opened::Here(drive) => Some(drive.info().keys),
        Opened::There(_) => None,
    };
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

#[derive(Serialize)]
struct RemoteShown {
    used_bytes: u64,
    capacity_bytes: u64,
    key_max: u16,
    value_max: u32,
    /// 0: the drive does not say it.
    keys_max: u32,
    /// Bytes of a command, at most (MDTS).
    transfer_max: Option<u64>,
}

/// What a served drive says of itself.
fn remote_info(arguments: &KvInfo, drive: &RemoteValues) -> Result<(), Failure> {
    let RemoteInfo { capacity_bytes, used_bytes, key_max, value_max, keys_max, transfer_max } = drive.info();
    if arguments.json {
        let shown = RemoteShown { used_bytes, capacity_bytes, key_max, value_max, keys_max, transfer_max };
        return say(&crate::json(&shown)?);
    }
    let keys = if keys_max == 0 { String::new() } else { format!("{} at most, ", thousands(keys_max.into())) };
    let transfer = transfer_max.map_or("of any length".to_owned(), |most| format!("of {} at most", ByteSize(most)));
    say(&format!(
        "keys        {keys}1 to {key_max} bytes each\nvalues      0 bytes to {} ({value_max} bytes), in commands {transfer}\n\
         on media    {} of {}\n",
        ByteSize(value_max.into()),
        ByteSize(used_bytes),
        ByteSize(capacity_bytes)
    ))
}

fn info(arguments: &KvInfo) -> Result<(), Failure> {
    let store = match Opened::open(&arguments.place, Access::Inspect)? {
        Opened::Here(store) => store,
        Opened::There(drive) => return remote_info(arguments, &drive),
    };
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
fn failure(key: Key, trouble: Trouble) -> Failure {
    let no_key =
        || Failure::failed(format_args!("{key}: key does not exist")).fix("`openftl kv list` shows which there are");
    let key_exists = || Failure::failed(format_args!("{key}: key exists")).fix("leave --if-missing away");
    let limits = |error: &dyn std::fmt::Display| {
        Failure::bad_input(format_args!("{key}: {error}")).fix("`openftl kv info` shows the limits of the drive")
    };
    match trouble {
        Trouble::Here(ValueError::NoKey) | Trouble::There(RemoteError::NoKey) => no_key(),
        Trouble::Here(ValueError::KeyExists) | Trouble::There(RemoteError::KeyExists) => key_exists(),
        Trouble::Here(error @ (ValueError::CapacityExceeded { .. } | ValueError::KeysExceeded { .. })) => {
            Failure::failed(error)
        }
        Trouble::Here(error @ (ValueError::ValueSize { .. } | ValueError::KeySize { .. })) => limits(&error),
        Trouble::There(error) if error.is(Status::INVALID_VALUE_SIZE) || error.is(Status::INVALID_KEY_SIZE) => {
            limits(&error)
        }
        Trouble::Here(error) => Failure::failed(format_args!("{key}: {error}")),
        Trouble::There(error) => Failure::failed(format_args!("{key}: {error}")),
    }
}

fn list_failure(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Here(error) => Failure::failed(error),
        Trouble::There(error) => Failure::failed(error),
    }
}
