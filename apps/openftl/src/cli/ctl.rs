//! The words of `openftl ctl` name a drive that is being served and say what shall happen to it.

use super::number::whole;
use clap::{Args, Subcommand, ValueEnum};
use openftl_core::ChunkName;
use std::path::PathBuf;

const CTL_EXAMPLES: &str = "\
Examples:
  openftl ctl disk.oftl power-cut                    at once
  openftl ctl disk.oftl power-cut --seed 7           at a moment that the seed chooses, perhaps torn
  openftl ctl disk.oftl power-cut --after-writes 100 when 100 more writes have ended
  openftl ctl disk.oftl power-on
  openftl ctl disk.oftl fail-read 1000
  openftl ctl disk.oftl fail-program g0p0c7 --close
  openftl ctl disk.oftl stats --json
  openftl ctl disk.oftl detach scratch               NVMe hosts see it no longer, and are told
  openftl ctl disk.oftl --namespace database fail-read 1000
  openftl ctl unix:/tmp/openftl.ctl power-cycle      where the drive was served with --control

Blocks are logical blocks of 4 KiB; chunks are named as `openftl inspect` names them. A device that is divided has one
power; blocks and chunks are those of one namespace.

Exit codes: 0 it was done; 1 not now, or it failed; 2 nobody serves the drive, or it has no such block or chunk.";

#[derive(Args, Debug)]
#[command(after_help = CTL_EXAMPLES)]
pub struct Ctl {
    /// The file of a drive that is being served, or its control socket.
    #[arg(value_name = "DRIVE")]
    pub drive: PathBuf,
    #[command(subcommand)]
    pub command: CtlCommand,
    /// Which of several namespaces is meant: its name or id.
    #[arg(long, value_name = "NAME|ID", global = true)]
    pub namespace: Option<String>,
    /// Print the answer as one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Clone, Debug)]
pub enum CtlCommand {
    /// Cuts the power: every connection is dropped, and whatever is not durable is gone.
    PowerCut(Cut),
    /// Turns the power on again: the drive recovers.
    PowerOn,
    /// Cuts the power and turns it on again.
    PowerCycle(Cut),
    /// Makes a logical block unreadable on the medium, until it is overwritten or trimmed.
    FailRead {
        #[arg(value_name = "LBA")]
        block: u64,
    },
    /// Makes the next program operation fail.
    FailProgram {
        /// The next one on this chunk [default: the next one anywhere].
        #[arg(value_name = "CHUNK")]
        chunk: Option<ChunkName>,
        /// Have the chunk closed by it: nothing more can be written there.
        #[arg(long)]
        close: bool,
    },
    /// Turns one bit of a logical block on the medium, unnoticed.
    Corrupt {
        #[arg(value_name = "LBA")]
        block: u64,
    },
    /// Makes a chunk look as if it had been erased N times.
    Wear {
        #[arg(value_name = "CHUNK")]
        chunk: ChunkName,
        /// How often it counts as reset.
        #[arg(value_name = "N", value_parser = whole::<u32>(0, u64::from(u32::MAX)))]
        resets: u32,
    },
    /// Acknowledges flushes and durable writes at once from now on, or honestly again.
    LieAboutFlush {
        /// Whether it lies from now on.
        #[arg(value_enum, value_name = "on|off")]
        switch: Switch,
    },
    /// Has NVMe hosts see a namespace again that was detached.
    Attach {
        /// Its name or id.
        #[arg(value_name = "NAMESPACE")]
        which: String,
    },
    /// Has NVMe hosts see a namespace no longer: what they had asked for ends, and they are told. NBD clients keep it, and the
    /// next `openftl serve` has it attached.
    Detach {
        /// Its name or id.
        #[arg(value_name = "NAMESPACE")]
        which: String,
    },
    /// What the drive has done since it was opened.
    Stats,
}

/// When and how the power goes.
#[derive(Args, Clone, Copy, Debug)]
pub struct Cut {
    /// Leave units torn that are being programmed, where the device does not protect its cache.
    #[arg(long)]
    pub torn: bool,
    /// Let this number choose a moment soon from now, and whether units are torn.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// Wait until so many more writes of hosts have ended: a moment that a test can repeat. The last one's answer may be lost.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), conflicts_with = "seed")]
    pub after_writes: Option<u64>,
    /// Wait until so many more flushes of hosts have ended.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), conflicts_with_all = ["seed", "after_writes"])]
    pub after_flushes: Option<u64>,
    /// Wait until the device has had so many more commands.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX),
          conflicts_with_all = ["seed", "after_writes", "after_flushes"])]
    pub after_commands: Option<u64>,
}

/// On or off.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    On,
    Off,
}
