//! What copying to and from a namespace have in common: how much at a time, how it goes, and what is said when it does
//! not.

use super::association::refused;
use super::disk::Disk;
use crate::failure::Failure;
use crate::terminal::Live;
use openftl_core::units::ByteSize;
use openftl_nvme::Status;
use openftl_nvme_tcp::client::Ended;
use openftl_nvme_tcp::nvm::Blocks;
use std::time::Instant;

/// Commands under way at a time.
pub const WINDOW: usize = 8;

/// The most bytes of one of them; less where the controller takes less.
const COMMAND_BYTES: u64 = 256 << 10;

/// Bytes of a command: whole blocks.
pub fn command_bytes(disk: &Disk) -> u64 {
    let bytes = COMMAND_BYTES.min(disk.command_bytes_max).max(disk.block_bytes);
    bytes - bytes % disk.block_bytes
}

/// Whether a command has done what it was asked.
pub fn check(what: &str, blocks: Blocks, ended: &Ended, wanted: u64) -> Result<(), Failure> {
    let Blocks { first, count, .. } = blocks;
    let what = format!("{what} of blocks {first} to {}", first + u64::from(count) - 1);
    match Status::from_field(ended.status()) {
        status if [Status::SEGMENT_OVERWRITE, Status::SEGMENT_GAP].iter().any(|one| one.code() == status.code()) => {
            let place = ended.completion.specific.get();
            Err(refused(&what, status).fix(format_args!(
                "its segment goes on at block {place}; one that is full has to be trimmed before it is written again"
            )))
        }
        status if !status.is_success() => Err(refused(&what, status)),
        _ if !ended.intact => Err(Failure::failed(format_args!("{what}: the data were damaged on the way"))),
        _ if (ended.received as u64) < wanted => {
            Err(Failure::failed(format_args!("{what} brought {} bytes of {wanted}", ended.received)))
        }
        _ => Ok(()),
    }
}

/// How far a copy is.
pub struct Progress {
    name: &'static str,
    live: Live,
    started: Instant,
    done: u64,
    /// If it is known.
    total: Option<u64>,
}

impl Progress {
    pub fn new(name: &'static str, total: Option<u64>) -> Progress {
        Progress { name, live: Live::new(false), started: Instant::now(), done: 0, total }
    }

    /// So many bytes more are copied.
    pub fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if self.live.is_due() {
            let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
            let rest = format!("{}, {:.0} MB/s", ByteSize(self.done), self.done as f64 / seconds / 1e6);
            match self.total {
                Some(total) => self.live.show_share(self.name, self.done as f64 / total.max(1) as f64, &rest),
                None => self.live.show(&[format!("{:<10} {rest}", self.name)]),
            }
        }
    }

    /// Takes it away; returns how many bytes were copied.
    pub fn end(mut self) -> u64 {
        self.live.clear();
        self.done
    }
}
