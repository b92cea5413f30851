//! The words of `openftl alfs`.

use super::number::whole;
use clap::{Args, Subcommand};
use std::path::PathBuf;

const ALFS_EXAMPLES: &str = "\
Examples:
  openftl create amf.oftl --drive drives/amf.toml
  openftl alfs mkfs amf.oftl
  openftl alfs mount amf.oftl /mnt
  openftl alfs mount amf.oftl /mnt --run 'cp -r src /mnt && df -h /mnt'
  openftl alfs fsck amf.oftl
  openftl alfs fsck --rebuild amf.oftl
  openftl alfs stat amf.oftl --json
  openftl alfs mount nvme-tcp://127.0.0.1:4420 /mnt

DRIVE is the file of a drive of segments or zones, or a served one: nvme-tcp://MACHINE[:PORT][/SUBSYSTEM][?namespace=ID].
ALFS is a log-structured file system that manages its own flash: the drive below has append-only segments and moves nothing
(Application-Managed Flash). After a power cut it is as it was at one moment, not before the last fsync that ended.";

#[derive(Args, Debug)]
#[command(after_help = ALFS_EXAMPLES)]
pub struct Alfs {
    #[command(subcommand)]
    pub command: AlfsCommand,
}

#[derive(Subcommand, Debug)]
pub enum AlfsCommand {
    /// Makes an empty file system on a drive of segments, or of zones.
    Mkfs(AlfsMkfs),
    /// Mounts the file system, and serves it until it is unmounted or told to stop (SIGTERM, Ctrl-C).
    Mount(AlfsMount),
    /// Verifies everything: each node is read, and nodes, names and segments have to agree. Changes nothing, unless it rebuilds.
    Fsck(AlfsFsck),
    /// Shows room, files and segments.
    Stat(AlfsStat),
    /// Shows each segment: its state, its log, and how much of it is of use.
    Dump(AlfsDump),
}

#[derive(Args, Debug)]
pub struct AlfsMkfs {
    /// A drive of segments or of zones: its file, made by `openftl create`, or the URI of a served one.
    #[arg(value_name = "DRIVE")]
    pub drive: PathBuf,
    /// Replaces a file system, or whatever else was written.
    #[arg(long)]
    pub force: bool,
    /// Takes a served drive from the host that has reserved it: what that one has not synced is lost.
    #[arg(long)]
    pub preempt: bool,
}

#[derive(Args, Debug)]
pub struct AlfsMount {
    /// The drive that has the file system: its file, or the URI of a served one.
    #[arg(value_name = "DRIVE")]
    pub drive: PathBuf,
    /// Where it appears.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Writes nothing to the drive.
    #[arg(long)]
    pub read_only: bool,
    /// Takes a served drive from the host that has mounted it: what that one has not synced is lost.
    #[arg(long, conflicts_with = "read_only")]
    pub preempt: bool,
    /// Other users may use it, too.
    #[arg(long)]
    pub allow_other: bool,
    /// So many requests are under way at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u16>(1, 64))]
    pub threads: u16,
    /// Runs CMD in a shell when the file system is mounted, with its folder in OPENFTL_FOLDER; ends with it, and with its status.
    #[arg(long, value_name = "CMD")]
    pub run: Option<String>,
}

#[derive(Args, Debug)]
pub struct AlfsFsck {
    /// The drive that has the file system: its file, or the URI of a served one.
    #[arg(value_name = "DRIVE")]
    pub drive: PathBuf,
    /// Makes a file system anew from what is in its logs, if its records are lost or something does not agree.
    #[arg(long)]
    pub rebuild: bool,
    /// With --rebuild: takes a served drive from the host that has reserved it. What that one has not synced is lost.
    #[arg(long, requires = "rebuild")]
    pub preempt: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct AlfsStat {
    /// The drive that has the file system: its file, or the URI of a served one.
    #[arg(value_name = "DRIVE")]
    pub drive: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct AlfsDump {
    /// The drive that has the file system: its file, or the URI of a served one.
    #[arg(value_name = "DRIVE")]
    pub drive: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}
