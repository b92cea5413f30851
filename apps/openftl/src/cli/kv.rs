//! The words of `openftl kv`.

use super::number::whole;
use clap::{Args, Subcommand};
use openftl_core::units::ByteSize;
use openftl_lab::loads::KeyMix;
use openftl_values::Key;
use std::path::PathBuf;

const KV_EXAMPLES: &str = "\
Examples:
  openftl create kv.oftl --drive drives/kv.toml
  echo world | openftl kv put --drive kv.oftl hello
  openftl kv get --drive kv.oftl hello
  openftl kv list --drive kv.oftl --from h
  openftl kv get --drive nvme-tcp://127.0.0.1:4420 hello
  openftl kv bench --drive drives/kv.toml --mix a

A drive that is served by another process or machine is nvme-tcp://MACHINE[:PORT][/SUBSYSTEM][?namespace=ID].
A key has 1 to 16 bytes: text, or 0x and hexadecimal digits. Exit code 1: there is no such key.";

#[derive(Args, Debug)]
#[command(after_help = KV_EXAMPLES)]
pub struct Kv {
    #[command(subcommand)]
    pub command: KvCommand,
}

#[derive(Subcommand, Debug)]
pub enum KvCommand {
    /// Gives a key a value: that of the command line, of a file, or of standard input.
    Put(KvPut),
    /// Copies the value of a key to standard output.
    Get(KvGet),
    /// Deletes keys.
    Del(KvDel),
    /// Says whether there is a key, and how long its value is.
    Exist(KvGet),
    /// Lists keys in their order.
    List(KvList),
    /// Shows what a drive is like, and how much of it is used.
    Info(KvInfo),
    /// Fills a new drive in memory, runs a mix of YCSB on it, and measures, in virtual time.
    Bench(KvBench),
}

/// A key-value drive.
#[derive(Args, Clone, Debug)]
pub struct KvPlace {
    /// A drive made by `openftl create`, the description (TOML) of one, or one that is served: nvme-tcp://MACHINE:PORT.
    #[arg(long, value_name = "DISK|TOML|URI")]
    pub drive: PathBuf,
}

#[derive(Args, Debug)]
pub struct KvPut {
    #[command(flatten)]
    pub place: KvPlace,
    /// The key.
    #[arg(value_name = "KEY", value_parser = key)]
    pub key: Key,
    /// Its value; without it, that of standard input.
    #[arg(value_name = "VALUE", conflicts_with = "file")]
    pub value: Option<std::ffi::OsString>,
    /// A file that has the value.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Only if there is such a key.
    #[arg(long, conflicts_with = "if_missing")]
    pub if_exists: bool,
    /// Only if there is none.
    #[arg(long)]
    pub if_missing: bool,
}

#[derive(Args, Debug)]
pub struct KvGet {
    #[command(flatten)]
    pub place: KvPlace,
    /// The key.
    #[arg(value_name = "KEY", value_parser = key)]
    pub key: Key,
}

#[derive(Args, Debug)]
pub struct KvDel {
    #[command(flatten)]
    pub place: KvPlace,
    /// The keys.
    #[arg(value_name = "KEY", required = true, value_parser = key)]
    pub keys: Vec<Key>,
}

#[derive(Args, Debug)]
pub struct KvList {
    #[command(flatten)]
    pub place: KvPlace,
    /// The first key, or where it would be.
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub from: Option<Key>,
    /// So many keys at most.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = whole::<u64>(1, u64::MAX))]
    pub limit: u64,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct KvInfo {
    #[command(flatten)]
    pub place: KvPlace,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  openftl kv bench --drive drives/kv.toml --mix a
  openftl kv bench --drive drives/kv.toml --mix e --value 100 --keys 100000 --requests 50000
  openftl kv bench --drive drives/kv.toml --mix f --durable --depth 32 --seed 2 --json

The mixes: a half updates, b 5 % updates, c reads, d reads of what was inserted last, e scans, f half reads and writes of one key. Whatever the
description says, the drive is new, in memory, and in virtual time. Write amplification is NAND bytes over bytes of values that were stored.";

#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct KvBench {
    /// The description (TOML) of a drive.
    #[arg(long, value_name = "TOML")]
    pub drive: PathBuf,
    /// Which mix of YCSB: a to f.
    #[arg(long, value_name = "MIX", default_value = "a", value_parser = mix)]
    pub mix: KeyMix,
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", default_value = "1KiB")]
    pub value: ByteSize,
    /// Keys that are there when the mix begins; without it, as many as fill 80 % of the drive.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX))]
    pub keys: Option<u64>,
    /// Requests of the mix; without it, as many as keys.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX))]
    pub requests: Option<u64>,
    /// Requests under way at a time.
    #[arg(long, value_name = "N", default_value = "16", value_parser = whole::<u64>(1, 1024))]
    pub depth: u64,
    /// Each Store is durable.
    #[arg(long)]
    pub durable: bool,
    /// What is left to chance.
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Text, or 0x and hexadecimal digits.
fn key(text: &str) -> Result<Key, String> {
    let Some(digits) = text.strip_prefix("0x") else {
        return Key::new(text.as_bytes()).map_err(|error| error.to_string());
    };
    let byte = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let is_hexadecimal = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes = if is_hexadecimal { (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>() } else { None };
    let bytes = bytes.ok_or_else(|| format!("{text}: write two hexadecimal digits for each byte, like 0x00ff"))?;
    Key::new(&bytes).map_err(|error| error.to_string())
}

fn mix(text: &str) -> Result<KeyMix, String> {
    let found = KeyMix::ALL.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, mix)| mix).ok_or_else(|| "write a, b, c, d, e or f".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_text_or_hexadecimal() {
        let bytes = |text: &str| key(text).map(|key| key.bytes().to_vec());
        assert_eq!(bytes("hello"), Ok(b"hello".to_vec()));
        assert_eq!(bytes("0x00Ff"), Ok(vec![0, 255]));
        for wrong in ["", "0x", "0x0", "0xgg", "0x+1", "seventeen letters", "0x000102030405060708090a0b0c0d0e0f10"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
