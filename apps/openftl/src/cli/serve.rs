//! The words of `openftl serve` say what is served, where clients connect, and which of them may.

use super::drive_flags::DriveFlags;
use super::number::whole;
use crate::log::{self, Levels};
use crate::serve::REACTORS_MAX;
use clap::{Args, ValueEnum};
use openftl_core::units::Poll;
use openftl_drive::description::{Timing, Tls};
use std::path::PathBuf;

const SERVE_EXAMPLES: &str = "\
Examples:
  openftl serve disk.oftl --nbd unix:/tmp/openftl.sock
  openftl serve disk.oftl --nbd 127.0.0.1:10809 --timing instant
  openftl serve --memory --profile cosmos --capacity 2GiB --timing instant --nbd unix:/tmp/openftl.sock
  openftl serve --memory --run 'nbdinfo $OPENFTL_URI'            for a test: the drive ends with the command
  openftl serve --drive drives/cosmos-block.toml
  openftl serve --drive drives/kv.toml --redis 127.0.0.1:6379    a key-value drive for Redis clients
  openftl serve --drive drives/kv.toml --nvme-tcp 127.0.0.1:4420 --redis 127.0.0.1:6379   and for NVMe hosts
  openftl serve --drive drives/tenants.toml                      several namespaces on one device
  openftl serve disk.oftl --nvme-tcp 127.0.0.1:4420
  openftl serve disk.oftl --nvme-tcp 0.0.0.0:4420 --dhchap-key hosts.keys
  openftl serve disk.oftl --nvme-tcp 0.0.0.0:4420 --tls-key hosts.tls
  openftl serve --memory --record host.log                       what the host does, for `bench --workload trace:host.log`
  openftl serve disk.oftl --log info --log-format json 2> drive.log   who came, who was refused, which fault was made

While a drive in a file is served, `openftl ctl` can cut its power and make it fail.
A service manager may pass sockets that listen (LISTEN_FDS, named nbd, nvme-tcp, control or files), and is told when the drive is
ready (NOTIFY_SOCKET).
Ctrl-C ends cleanly: requests under way are finished and a checkpoint is written. A second Ctrl-C ends at once.";

#[derive(Args, Debug)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct Serve {
    /// A drive made by `openftl create`.
    #[arg(value_name = "DISK", conflicts_with = "memory")]
    pub disk: Option<PathBuf>,
    /// Serve a new drive in RAM; it is gone afterwards.
    #[arg(long)]
    pub memory: bool,
    /// Serve a drive whose flash is on another machine: where that one serves an Open-Channel namespace over NVMe/TCP.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["disk", "memory", "drive"], help_heading = "Flash elsewhere")]
    pub device: Option<std::net::SocketAddr>,
    /// The subsystem that has the namespace [default: nqn.2026-11.org.openftl:drive].
    #[arg(long, value_name = "NQN", requires = "device", help_heading = "Flash elsewhere")]
    pub device_nqn: Option<openftl_nvme::Nqn>,
    /// The namespace.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0, u64::from(u32::MAX)), requires = "device", default_value_t = 2, help_heading = "Flash elsewhere")]
    pub device_namespace: u32,
    /// Make a new drive there; what the device holds is lost.
    #[arg(long, requires = "device", help_heading = "Flash elsewhere")]
    pub format_device: bool,
    /// Serve while this shell command runs, and end with its status; it finds the drive in $OPENFTL_URI, $OPENFTL_SOCKET (NBD's),
    /// $OPENFTL_NVME_TCP, $OPENFTL_REDIS and $OPENFTL_CONTROL. What the server says goes to standard error.
    #[arg(long, value_name = "CMD", help_heading = "Scripts")]
    pub run: Option<String>,
    /// Write one line of JSON to this file descriptor when clients can connect.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0, u64::from(u32::MAX)), help_heading = "Scripts")]
    pub ready_fd: Option<u32>,
    /// Stop, cleanly, when the process that started this one ends.
    #[arg(long, help_heading = "Scripts")]
    pub exit_with_parent: bool,
    #[command(flatten)]
    pub flags: DriveFlags,
    /// Where clients connect, like unix:/tmp/openftl.sock or 127.0.0.1:10809; may be repeated [default: 127.0.0.1:10809, or
    /// with --nvme-tcp nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<String>,
    /// Where NVMe hosts connect, like 127.0.0.1:4420; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub nvme_tcp: Vec<std::net::SocketAddr>,
    /// Where Redis clients of a key-value drive connect, like 127.0.0.1:6379; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub redis: Vec<std::net::SocketAddr>,
    /// The name of the subsystem that NVMe hosts connect to [default: nqn.2026-11.org.openftl:drive].
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<openftl_nvme::Nqn>,
    /// Bytes of the drive's blocks as NVMe hosts see them [default: 4096].
    #[arg(long, value_enum, value_name = "BYTES")]
    pub nvme_format: Option<NvmeFormat>,
    /// Serve an Open-Channel device of this profile beside the drive, in memory, as the next NVMe namespace: its hosts bring
    /// their own FTL; may be repeated.
    #[arg(long, value_name = "NAME|FILE")]
    pub open_channel: Vec<String>,
    /// The name of a host that may connect over NVMe; may be repeated [default: those of --dhchap-key or --tls-key, or on
    /// loopback any].
    #[arg(long, value_name = "HOSTNQN")]
    pub allow_host: Vec<openftl_nvme::Nqn>,
    /// Let any host connect over NVMe, also where other machines can reach it.
    #[arg(long, conflicts_with_all = ["allow_host", "dhchap_key"])]
    pub allow_any_host: bool,
    /// Have NVMe hosts authenticate with DH-HMAC-CHAP. In each line of the file stands the name of a host and its secret,
    /// `HOSTNQN DHHC-1:…:`, or `controller DHHC-1:…:` for hosts that ask who the controller is.
    #[arg(long, value_name = "FILE")]
    pub dhchap_key: Option<PathBuf>,
    /// Have NVMe hosts use TLS 1.3. In each line of the file stands the name of a host and its key, `HOSTNQN NVMeTLSkey-1:…:`.
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Whether hosts have to use TLS: all, or only those that have a key [default: required].
    #[arg(long, value_enum, value_name = "WHO", requires = "tls_key")]
    pub tls: Option<Tls>,
    /// Whether clients feel the latencies of the NAND [default: wall-clock].
    #[arg(long, value_enum, value_name = "TIMING")]
    pub timing: Option<Timing>,
    /// How long to look again and again for what comes next before going to sleep: less latency, for a core that others
    /// could use. `auto` does it while hosts come again soon, and `0s` never [default: auto].
    #[arg(long, value_name = "TIME")]
    pub poll: Option<Poll>,
    /// Threads that move the bytes of sockets, with TLS encrypt and decrypt them, up to 64. The first one owns the drives and does all
    /// else: useful for many busy hosts on a machine with cores to spare [default: 1].
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1, REACTORS_MAX as u64))]
    pub reactors: Option<usize>,
    /// Write what hosts ask of blocks and zones to this new file, as fio's I/O log: a load for `bench`, `compare` and `sweep`
    /// (trace:FILE), and for fio's --read_iolog.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Where `openftl ctl` reaches the drive, like unix:/tmp/openftl.ctl [default: beside the drive, DISK.ctl; none for a
    /// drive in memory].
    #[arg(long, value_name = "ADDRESS")]
    pub control: Option<String>,
    /// Acknowledge flushes and durable writes at once, and make nothing durable for them: to see whether a test notices.
    #[arg(long, conflicts_with = "write_through")]
    pub lie_about_flush: bool,
    /// Listen on addresses that other machines can reach. NBD has no passwords here.
    #[arg(long)]
    pub allow_remote: bool,
    /// Write a log to standard error, from this level on: error, warn, info, debug, trace or off; for single targets like
    /// info,nvme=debug [default: none, or with --log-format info].
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    pub log: Option<Levels>,
    /// How a line of the log looks: words to read, or one JSON object [default: text].
    #[arg(long, value_enum, value_name = "text|json", help_heading = "Log")]
    pub log_format: Option<log::Format>,
    /// Print the report after stopping as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Bytes of a block as NVMe hosts see it.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum NvmeFormat {
    /// For hosts that know no other. What is not whole 4 KiB costs a read of the rest first.
    #[value(name = "512")]
    Bytes512,
    /// As the drive has them.
    #[value(name = "4096")]
    Bytes4096,
}
