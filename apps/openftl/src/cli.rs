//! The words of the command line.

pub mod nvme;

pub use openftl_drive::description::{Timing, Tls};

use crate::log::{self, Levels};
use clap::{Args, Parser, Subcommand, ValueEnum};
use openftl_core::units::{ByteSize, Interval, Share};
use openftl_core::{ChunkName, Nanos};
use openftl_ftl::{PlacementName, RelocateBy, VictimPolicy};
use openftl_lab::WarmUp;
use openftl_media::Durability;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Start here:
  openftl demo                                            a drive at work, in a few seconds
  openftl create disk.oftl --profile cosmos --capacity 8GiB
  openftl serve disk.oftl --nbd 127.0.0.1:10809           any NBD client can use it
  openftl bench --workload uniform --drive-writes 4       write amplification, latency, wear

Exit codes: 0 it worked; 1 it failed, or the drive is unsound; 2 something in the command or its files is wrong.";

/// A whole SSD in user space: Open-Channel flash, a flash translation layer, and host interfaces.
#[derive(Parser, Debug)]
#[command(name = "openftl", version = crate::provenance::VERSION, about, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Brings a drive up in RAM, fills it, overwrites it under a hot-and-cold mix, and reports.
    Demo(Demo),
    /// Makes a drive that lives in a file.
    Create(Create),
    /// Serves a drive to NBD clients until it is told to stop.
    Serve(Box<Serve>),
    /// Talks to an NVMe/TCP target as its host: lists, identifies, reads, writes, measures.
    Nvme(nvme::Nvme),
    /// Operates a drive that is being served: cuts its power, makes it fail, asks how it is.
    Ctl(Ctl),
    /// Runs a workload on a new drive in memory and measures.
    Bench(Bench),
    /// Puts several drives under the same load and shows them side by side.
    Compare(Compare),
    /// Runs a grid or a list of settings over all processors, one row of a CSV each; goes on where it was interrupted.
    Sweep(Sweep),
    /// Shows what a stored drive holds: geometry, chunk states, superblocks, log, checkpoint, wear.
    Inspect(Inspect),
    /// Verifies every block of a stored drive, and that map, chunk table and media agree.
    Check(Check),
    /// Lists the files on a table drive, or copies one out.
    Files(Files),
    /// Lists the NAND devices that drives can be made of.
    Profiles(Profiles),
    /// Makes an experiment of a paper again and says whether its findings hold.
    Reproduce(Reproduce),
    /// Looks for histories of requests, faults and power cuts after which a simulated drive breaks a promise.
    Explore(Explore),
    /// Says what a word of an output or a document means.
    Explain(Explain),
    /// Prints a script that has a shell complete commands, flags and names.
    Completions(Completions),
    /// Writes the manual, a page for each command.
    Man(Man),
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  openftl completions bash > ~/.local/share/bash-completion/completions/openftl
  openftl completions zsh > ~/.local/share/zsh/site-functions/_openftl     a folder that is in $fpath
  openftl completions fish > ~/.config/fish/completions/openftl.fish
  source <(openftl completions bash)                                       in this shell only";

#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: ShellName,
}

/// A shell that has completions.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShellName {
    /// Bash, with the package bash-completion.
    Bash,
    /// Zsh.
    Zsh,
    /// Fish.
    Fish,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  openftl man ~/.local/share/man/man1\n  openftl man pages && man -l pages/openftl-serve.1"
)]
pub struct Man {
    /// The folder to write them to; it is made if it does not exist.
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  openftl explain WAF\n  openftl explain effective over-provisioning\n  openftl explain | less"
)]
pub struct Explain {
    /// The word; without one, all are listed.
    #[arg(value_name = "TERM")]
    pub term: Vec<String>,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  openftl demo
  openftl demo --drive-writes 30
  openftl demo --seconds 60
  openftl demo --json > report.json

The figures are the same on any machine.";

#[derive(Args, Debug)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct Demo {
    /// How often the capacity is overwritten: the same figures on every machine.
    #[arg(long, value_name = "N", default_value_t = 8.0, value_parser = positive)]
    pub drive_writes: f64,
    /// Overwrite for as long as the whole demo takes about so many seconds of your time, however much that is.
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "drive_writes")]
    pub seconds: Option<f64>,
    /// Print the report as one JSON object, without progress.
    #[arg(long)]
    pub json: bool,
}

/// What a new drive is made of; flags override the drive description.
#[derive(Args, Clone, Debug, Default)]
pub struct DriveFlags {
    /// A drive description: media, FTL and host interface in one TOML (see the `drives` folder).
    #[arg(long, value_name = "FILE", help_heading = "Drive")]
    pub drive: Option<PathBuf>,
    /// The NAND device: a name from `openftl profiles`, or a TOML file [default: cosmos].
    #[arg(long, value_name = "NAME|FILE", help_heading = "Drive")]
    pub profile: Option<String>,
    /// What the host sees, like 8GiB; the flash behind it follows from this and the over-provisioning.
    #[arg(long, value_name = "SIZE", help_heading = "Drive")]
    pub capacity: Option<ByteSize>,
    /// Flash for data beyond the capacity, as a share of it [default: 10%].
    #[arg(long, value_name = "SHARE", help_heading = "Drive")]
    pub over_provisioning: Option<Share>,
    /// How garbage collection chooses its victims: greedy, cost-benefit, fifo, windowed:25% (the emptiest of the quarter
    /// that was closed first) or d-choices:10 (the emptiest of ten drawn at random) [default: greedy].
    #[arg(long, value_name = "POLICY", help_heading = "Drive")]
    pub victim: Option<VictimPolicy>,
    /// Where garbage collection works at a time [default: marked].
    #[arg(long, value_enum, value_name = "SCOPE", help_heading = "Drive")]
    pub collection: Option<Collection>,
    /// How garbage collection moves blocks: read-and-write, or device-copy where the device has vector copy [default:
    /// read-and-write].
    #[arg(long, value_name = "WAY", help_heading = "Drive")]
    pub relocate_by: Option<RelocateBy>,
    /// Make room ahead of need when the host has been silent for so long, like 100ms [default: never].
    #[arg(long, value_name = "TIME", help_heading = "Drive")]
    pub collect_when_idle: Option<Nanos>,
    /// What shares chunks because it is expected to end together: none, hot-cold, learned, streams, streams-kept, fdp,
    /// fdp-persistent or flash-alloc [default: hot-cold].
    #[arg(long, value_name = "NAME", help_heading = "Drive")]
    pub placement: Option<PlacementName>,
    /// Acknowledge every write only when it is durable.
    #[arg(long, help_heading = "Drive")]
    pub write_through: bool,
    /// What flushes of a drive in a file survive: machine (a crash of it, too: the file is synced) or process (its death alone)
    /// [default: machine].
    #[arg(long, value_name = "machine|process", help_heading = "Drive")]
    pub durability: Option<Durability>,
    /// Take a checkpoint this often while the drive is written to, like 10s, if the log is not long enough for one
    /// sooner [default: only the length of the log counts].
    #[arg(long, value_name = "TIME", help_heading = "Drive")]
    pub checkpoint_interval: Option<Nanos>,
    /// Read all that the drive holds once in this time, like 7d or 12h, and refresh what is weak; or never [default: 7d
    /// when the drive is served, else never].
    #[arg(long, value_name = "INTERVAL", help_heading = "Drive")]
    pub scrub_interval: Option<Interval>,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  openftl create disk.oftl --profile cosmos --capacity 8GiB
  openftl create disk.oftl --profile qlc --capacity 64GiB --over-provisioning 7%
  openftl create disk.oftl --drive drives/cosmos-block.toml --force
  openftl create tenants.oftl --drive drives/tenants.toml        several namespaces on one device";

#[derive(Args, Debug)]
#[command(after_help = CREATE_EXAMPLES)]
pub struct Create {
    /// The file to make.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    #[command(flatten)]
    pub flags: DriveFlags,
    /// Replace the file if it exists.
    #[arg(long)]
    pub force: bool,
    /// Where bad chunks lie and when programs fail follows from this [default: another each time].
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// Print what was made as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  openftl serve disk.oftl --nbd unix:/tmp/openftl.sock
  openftl serve disk.oftl --nbd 127.0.0.1:10809 --timing instant
  openftl serve --memory --profile cosmos --capacity 2GiB --timing instant --nbd unix:/tmp/openftl.sock
  openftl serve --memory --run 'nbdinfo $OPENFTL_URI'            for a test: the drive ends with the command
  openftl serve --drive drives/cosmos-block.toml
  openftl serve --drive drives/tenants.toml                      several namespaces on one device
  openftl serve disk.oftl --nvme-tcp 127.0.0.1:4420
  openftl serve disk.oftl --nvme-tcp 0.0.0.0:4420 --dhchap-key hosts.keys
  openftl serve disk.oftl --nvme-tcp 0.0.0.0:4420 --tls-key hosts.tls
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
    /// $OPENFTL_NVME_TCP and $OPENFTL_CONTROL. What the server says goes to standard error.
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
    /// could use [default: 0s].
    #[arg(long, value_name = "TIME")]
    pub poll: Option<Nanos>,
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

const BENCH_EXAMPLES: &str = "\
Examples:
  openftl bench --profile cosmos --timing virtual --workload uniform --over-provisioning 10% --drive-writes 4 --seed 1 --json
  openftl bench --workload zipf:0.99 --victim cost-benefit
  openftl bench --workload uniform,reads=70%,access=16KiB --queue-depth 128
  openftl bench --profile znand --timing instant --store ram --capacity 1GiB --seconds 5

In virtual time the same seed gives the same figures to the last digit, and the same trace hash.";

#[derive(Args, Debug)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct Bench {
    #[command(flatten)]
    pub flags: DriveFlags,
    /// Virtual time runs as fast as the CPU goes and is repeatable; the wall clock waits as the NAND would; instant
    /// media cost nothing, so that the software shows [default: virtual].
    #[arg(long, value_enum, value_name = "TIMING")]
    pub timing: Option<Timing>,
    /// What keeps the payload: all of it, or eight bytes a block [default: stamps].
    #[arg(long, value_enum, value_name = "STORE")]
    pub store: Option<Store>,
    /// What the host does: uniform, sequential, zipf:0.99, hot-cold:90/10, writers:8, lsm, log-structured-fs, double-write,
    /// tenants:lsm*2+uniform or trace:FILE, with options behind commas, like access=16KiB,reads=30%.
    #[arg(long, value_name = "LOAD", default_value = "uniform", help_heading = "Workload")]
    pub workload: String,
    /// Requests under way at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1, 4096), help_heading = "Workload")]
    pub queue_depth: u32,
    /// Decides everything that is left to chance.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,
    /// How much to measure, in capacities written (moved, if the workload only reads) [default: 4].
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "seconds", help_heading = "Workload")]
    pub drive_writes: Option<f64>,
    /// How much to measure, in seconds on the drive's clock.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Workload")]
    pub seconds: Option<f64>,
    /// Capacities written with the workload before measuring, after the drive was filled once; `auto` goes on until the
    /// write amplification is steady.
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = warm_up, help_heading = "Workload")]
    pub warm_up: WarmUp,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// In the object also say how long it took here. It is the only figure of a simulated run that differs from run to run.
    #[arg(long, requires = "json")]
    pub wall: bool,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  openftl compare --drive cosmos:hot-cold --drive cosmos:streams --drive cosmos:flash-alloc --workload writers:8
  openftl compare --drive cosmos:none --drive cosmos:learned --workload zipf:0.99 --capacity 256MiB --csv zipf.csv
  openftl compare --drive mine.toml --drive mine.toml:fdp,binding=by-object:4 --workload lsm --html lsm.html
  openftl compare --drive cosmos,victim=greedy,name=greedy --drive cosmos,victim=cost-benefit,name=cb --workload hot-cold

A drive is a profile or a file, then perhaps a placement behind a colon, then options behind commas: name=, binding=,
victim=, collection=, relocate-by=, collect-when-idle=, over-provisioning=, handles= and objects-max=. What the host tells
it of lifetimes follows from the placement (streams: by-object, fdp: by-kind, flash-alloc: allocate, others: none), unless binding= says it.

All drives get the same writes. The same seed gives the same figures to the last digit.";

#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct Compare {
    /// A drive, like cosmos:streams or mine.toml:fdp,binding=by-object:4; may be repeated.
    #[arg(long = "drive", value_name = "DRIVE", required = true)]
    pub drives: Vec<String>,
    /// What the host does: uniform, sequential, zipf:0.99, hot-cold:90/10, writers:8, lsm, log-structured-fs, double-write,
    /// tenants:lsm*2+uniform or trace:FILE, with options behind commas, like access=16KiB,reads=30%.
    #[arg(long, value_name = "LOAD")]
    pub workload: String,
    /// Decides everything that is left to chance.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1)]
    pub seed: u64,
    /// What the host sees of every drive [default: what the drive descriptions say, or 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<ByteSize>,
    /// How full the load keeps the drive [default: that of the load].
    #[arg(long, value_name = "SHARE")]
    pub fill: Option<Share>,
    /// Capacities written before measuring, after the drive was filled.
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = not_negative)]
    pub warm_up: f64,
    /// Capacities written while it is measured.
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = positive)]
    pub drive_writes: f64,
    /// Requests under way at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1, 1024))]
    pub queue_depth: u32,
    /// Drives at a time [default: one for each processor].
    #[arg(long, value_name = "J", value_parser = whole::<u32>(1, 1024))]
    pub jobs: Option<u32>,
    /// Write a page with charts to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write every figure to this file, a row for each drive.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const SWEEP_EXAMPLES: &str = "\
Examples:
  openftl sweep docs/sweep.toml --out sweep.csv
  openftl sweep docs/sweep.toml --out sweep.csv      again after an interruption: goes on with what is missing
  openftl sweep mine.toml --jobs 1 --json > mine.json

The file:
  workload = \"writers:8\"                            what holds for all runs
  capacity = \"64MiB\"
  [grid]                                            every combination of these
  placement = [\"none\", \"streams\"]
  seed = [1, 2, 3]
  [[run]]                                           each with the whole grid; may be left out
  over_provisioning = \"7%\"

Keys: drive, placement, binding, victim, collection, relocate_by, collect_when_idle, over_provisioning, handles, objects_max, capacity, workload, fill,
queue_depth, warm_up, drive_writes, seed; each means what `openftl compare` calls so.";

#[derive(Args, Debug)]
#[command(after_help = SWEEP_EXAMPLES)]
pub struct Sweep {
    /// A TOML file that says what to run.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Runs at a time [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    pub jobs: Option<u32>,
    /// The CSV [default: FILE with the ending .csv].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  openftl inspect disk.oftl
  openftl inspect disk.oftl --json | less
  openftl inspect tenants.oftl --namespace database
  openftl inspect unix:/tmp/openftl.ctl              a drive that is served with --control

A drive that is being served is shown by its server, as it is at this moment; nothing on it changes.";

#[derive(Args, Debug)]
#[command(after_help = INSPECT_EXAMPLES)]
pub struct Inspect {
    /// A drive made by `openftl create`, or the control socket of one that is being served.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    /// Which of several namespaces, by its name [default: all].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<openftl_media::PartName>,
    /// Print it as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  openftl check disk.oftl && echo sound
  openftl check disk.oftl --repair
  openftl check tenants.oftl --namespace database --repair
  openftl check disk.oftl --repair --json > repair.json

A drive that cannot be checked as it is (not closed cleanly, or with blocks that paired pages keep from being read) is
opened as for use first, and the report says so. Otherwise nothing is written.

With --repair, what is left in one copy is written twice again, and a map that cannot be trusted is rebuilt from what is
left of it and from what every block on the media says of itself. Then blocks that were trimmed may be back, and writes
that were never flushed may be there in part; what is lost stays an error until it is overwritten or trimmed. Copy the
file first if you can.

Exit codes: 0 the drive is sound (with --repair: now, and nothing is lost); 1 it is not, or cannot be opened; 2 the file is
no drive.";

#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct Check {
    /// A drive made by `openftl create`.
    #[arg(value_name = "DISK")]
    pub disk: PathBuf,
    /// Which of several namespaces, by its name [default: all].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<openftl_media::PartName>,
    /// Repair what can be repaired, and say what was lost.
    #[arg(long)]
    pub repair: bool,
    /// Print the findings as one JSON object.
    #[arg(long)]
    pub json: bool,
}

const FILES_EXAMPLES: &str = "\
Examples:
  openftl files lsm.oftl
  openftl files lsm.toml                  also while it is served
  openftl files lsm.toml /db --json
  openftl files lsm.toml --get /db/CURRENT";

#[derive(Args, Debug)]
#[command(after_help = FILES_EXAMPLES)]
pub struct Files {
    /// A table drive made by `openftl create`, or the description (TOML) of one, which also finds its server.
    #[arg(value_name = "DISK|TOML")]
    pub drive: PathBuf,
    /// Only what is in this folder.
    #[arg(value_name = "FOLDER")]
    pub folder: Option<String>,
    /// Copy this file to standard output.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["folder", "json"])]
    pub get: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const PROFILES_EXAMPLES: &str = "\
Examples:
  openftl profiles
  openftl profiles cosmos
  openftl profiles cosmos --toml > mine.toml     change it, then: openftl bench --profile ./mine.toml";

#[derive(Args, Debug)]
#[command(after_help = PROFILES_EXAMPLES)]
pub struct Profiles {
    /// Show this one: a name, or a TOML file.
    #[arg(value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Print its TOML.
    #[arg(long, requires = "profile", conflicts_with = "json")]
    pub toml: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXPLORE_EXAMPLES: &str = "\
Examples:
  openftl explore                                    a minute of histories, those of seeds from 0 on
  openftl explore --seed 5000 --minutes 30 --json > report.json
  openftl explore --seed 17 --runs 1                 the history of one seed
  openftl explore --seed 17 --steps 'w0+1 f x4'      a history as a failure prints it, on the drive of seed 17

The same seeds give the same histories and the same trace hash on any machine. The first history that fails is made
short, and printed with the command that replays it. Ctrl-C ends with a report of what was seen so far.

Exit codes: 0 no history fails; 1 one does; 2 the command line is wrong.";

#[derive(Args, Debug)]
#[command(after_help = EXPLORE_EXAMPLES)]
pub struct Explore {
    /// The first seed, or the one whose drive the steps are for.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 0)]
    pub seed: u64,
    /// End after so many histories.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), conflicts_with = "minutes")]
    pub runs: Option<u64>,
    /// End after so long [default: 1, unless --runs is given].
    #[arg(long, value_name = "M", value_parser = positive)]
    pub minutes: Option<f64>,
    /// Threads [default: one for each processor].
    #[arg(long, value_name = "J", value_parser = whole::<u32>(1, 1024))]
    pub jobs: Option<u32>,
    /// Take these steps and no others (docs/SIMULATION.md says what they mean).
    #[arg(long, value_name = "STEPS", conflicts_with_all = ["runs", "minutes", "jobs"])]
    pub steps: Option<String>,
    /// Print the report as one JSON object, without progress.
    #[arg(long)]
    pub json: bool,
}

const REPRODUCE_EXAMPLES: &str = "\
Examples:
  openftl reproduce                                       what there is
  openftl reproduce ox-recovery                           table and verdicts; CSV and SVG in ./reproduce
  openftl reproduce flashalloc --html flashalloc.html     a page with pictures
  openftl reproduce ox-recovery --quick --seeds 2 --json
  openftl reproduce recovery-scale --out results --seed 7
  openftl reproduce waf-theory                            every victim policy beside its theory

Verdicts: *reproduced*, the effect is the paper's to within 30 %, or what the claim says; *direction only*, it points the same
way, or the paper gives no figure; *not reproduced*. The verdict is that of most seeds. Checks are this project's own claims.

ox-copies and ox-lightlsm run on a real clock: this machine has a part in their figures, and they run with one seed unless told
otherwise. All others run in virtual time: the same seeds give the same figures, but for CPU times.

Exit codes: 0 it ran, and every check holds; 1 one does not, or it came to no end; 2 there is no such experiment.";

#[derive(Args, Debug)]
#[command(after_help = REPRODUCE_EXAMPLES)]
pub struct Reproduce {
    /// The experiment; without one, they are listed.
    #[arg(value_name = "NAME", conflicts_with = "list")]
    pub name: Option<String>,
    /// List the experiments.
    #[arg(long)]
    pub list: bool,
    /// The folder that CSV and SVG files are written to.
    #[arg(long, value_name = "DIR", default_value = "reproduce")]
    pub out: PathBuf,
    /// Also write a page with verdicts, pictures and tables to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The first seed, which decides everything that is left to chance.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX), default_value_t = 1)]
    pub seed: u64,
    /// Seeds, one after the other from there on: 5, or 1 where the clock is real.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1000))]
    pub seeds: Option<u32>,
    /// On a smaller scale, in seconds.
    #[arg(long)]
    pub quick: bool,
    /// Print the report, or the list, as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What keeps the payload of a drive in memory.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// All of it, in RAM.
    Ram,
    /// Eight bytes that stand for each block.
    Stamps,
}

/// Where garbage collection works at a time.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collection {
    /// In groups that are marked, few of them while there is room.
    Marked,
    /// In every group that is short of free chunks.
    DeviceWide,
}

impl From<Collection> for openftl_ftl::CollectionScope {
    fn from(collection: Collection) -> Self {
        match collection {
            Collection::Marked => Self::Marked,
            Collection::DeviceWide => Self::DeviceWide,
        }
    }
}

fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text {
        "auto" => Ok(WarmUp::Steady),
        number => not_negative(number).map(WarmUp::DriveWrites).map_err(|error| format!("{error}, or `auto`")),
    }
}

/// Understands a whole number from `least` to `most`.
fn whole<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match most {
            u64::MAX => format!("write a whole number from {least} on"),
            most => format!("write a whole number from {least} to {most}"),
        })
    }
}

/// Of arguments with these values `-1` is a value, and no flag that nobody knows.
fn numbers(command: clap::Command) -> clap::Command {
    let is_number = |arg: &clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| ["N", "M", "J", "SIZE", "SHARE", "N|auto"].contains(&name.as_str()))
    };
    let command = command.mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg });
    command.mut_subcommands(numbers)
}

impl Cli {
    /// Understands the command line; says what is wrong with it and ends the process if something is.
    pub fn understood() -> Cli {
        let matches = numbers(<Cli as clap::CommandFactory>::command()).get_matches();
        <Cli as clap::FromArgMatches>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("write a number above zero".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("write a number, zero or above".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_fixed_forms_are_understood() {
        for line in [
            "openftl demo",
            "openftl demo --drive-writes 3 --json",
            "openftl demo --seconds 5 --json",
            "openftl create disk.oftl --profile cosmos --capacity 8GiB",
            "openftl create disk.oftl --profile cosmos --capacity 8GiB --over-provisioning 10%",
            "openftl serve disk.oftl --nbd unix:/path/socket",
            "openftl serve disk.oftl --nbd 127.0.0.1:10809",
            "openftl serve disk.oftl --scrub-interval 30d",
            "openftl serve --memory --profile cosmos --capacity 2GiB --timing instant --nbd unix:/path/socket",
            "openftl bench --profile cosmos --timing virtual --workload uniform --over-provisioning 10% --drive-writes 4 --seed 1 --json",
            "openftl serve disk.oftl --control unix:/path/socket --lie-about-flush",
            "openftl serve --memory --run true --exit-with-parent --ready-fd 3",
            "openftl serve --memory --log info,nvme=debug --log-format json",
            "openftl nvme gen-key --hash sha384 --nqn nqn.2014-08.org.example:host --secret 00ff",
            "openftl nvme discover 127.0.0.1:4420 --json",
            "openftl nvme identify 127.0.0.1:4420 --nqn nqn.2014-08.org.example:drive --namespace 2",
            "openftl nvme read 127.0.0.1 --nqn nqn.2014-08.org.example:drive --namespace 1 --offset 0 --length 1MiB --output -",
            "openftl nvme write [::1]:4420 --input - --fua --header-digest --data-digest",
            "openftl nvme bench 127.0.0.1:4420 --workload write --depth 32 --block 4KiB --seconds 5 --json",
            "openftl nvme identify 127.0.0.1:4420 --host-nqn nqn.a --dhchap-key @host.key --dhchap-ctrl-key @drive.key",
            "openftl serve disk.oftl --nvme-tcp 0.0.0.0:4420 --tls-key hosts.tls --tls allowed",
            "openftl nvme gen-key --tls --hash sha384",
            "openftl nvme read 127.0.0.1 --tls-key @host.tls",
            "openftl ctl disk.oftl power-cut --torn --seed 7",
            "openftl ctl disk.oftl power-cut --after-writes 100",
            "openftl ctl disk.oftl power-on --json",
            "openftl ctl disk.oftl power-cycle",
            "openftl ctl disk.oftl fail-read 7",
            "openftl ctl disk.oftl fail-program",
            "openftl ctl disk.oftl fail-program g0p0c7 --close",
            "openftl ctl disk.oftl corrupt 7",
            "openftl ctl disk.oftl wear g0p0c7 2999",
            "openftl ctl disk.oftl lie-about-flush on",
            "openftl ctl --json disk.oftl stats",
            "openftl ctl disk.oftl detach scratch",
            "openftl ctl disk.oftl attach 2 --json",
            "openftl ctl disk.oftl corrupt 7 --namespace database",
            "openftl check disk.oftl --namespace database --repair",
            "openftl explain WAF",
            "openftl completions zsh",
            "openftl man pages",
            "openftl explain effective over-provisioning",
            "openftl explore",
            "openftl bench --workload zipf:1.2,reads=30% --warm-up auto",
            "openftl sweep docs/sweep.toml --jobs 2 --out a.csv --json",
            "openftl compare --drive cosmos --drive mine.toml:fdp,binding=by-object:4 --workload lsm --seed 3 --capacity 64MiB \
             --drive-writes 1 --warm-up 0 --fill 80% --html a.html --csv a.csv --json",
            "openftl inspect disk.oftl",
            "openftl inspect disk.oftl --json",
            "openftl check disk.oftl",
            "openftl profiles",
            "openftl profiles cosmos --toml",
            "openftl explore --seed 5 --runs 10 --jobs 2 --json",
            "openftl explore --minutes 0.5",
            "openftl explore --seed 17 --steps w0+1",
            "openftl bench --checkpoint-interval 10s",
            "openftl reproduce --list",
            "openftl reproduce ox-recovery --out results --seed 3 --quick --json",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_flag_and_value() {
        for (line, flag, value) in [
            ("openftl demo --drive-writes 0", "--drive-writes", "0"),
            ("openftl demo --seconds 0", "--seconds", "0"),
            ("openftl demo --seconds 5 --drive-writes 3", "--seconds", "--drive-writes"),
            ("openftl create disk.oftl --capacity 8Gibi", "--capacity", "8Gibi"),
            ("openftl bench --queue-depth 0", "--queue-depth", "0"),
            ("openftl bench --over-provisioning ten", "--over-provisioning", "ten"),
            ("openftl bench --warm-up some", "--warm-up", "some"),
            ("openftl serve disk.oftl --scrub-interval weekly", "--scrub-interval", "weekly"),
            ("openftl bench --checkpoint-interval 10", "--checkpoint-interval", "10s"),
            ("openftl reproduce ox-recovery --list", "--list", "NAME"),
            ("openftl explore --jobs 0", "--jobs", "0"),
            ("openftl serve disk.oftl --memory", "--memory", "DISK"),
            ("openftl serve disk.oftl --lie-about-flush --write-through", "--lie-about-flush", "--write-through"),
            ("openftl nvme discover unix:/a", "ADDRESS", "127.0.0.1:4420"),
            ("openftl nvme read 127.0.0.1 --namespace 0", "--namespace", "0"),
            ("openftl nvme bench 127.0.0.1 --depth 0", "--depth", "0"),
            ("openftl nvme bench 127.0.0.1 --workload trim", "--workload", "sequential-read"),
            ("openftl nvme identify 127.0.0.1 --nqn drive", "--nqn", "`drive`"),
            ("openftl nvme identify 127.0.0.1 --dhchap-ctrl-key a", "--dhchap-key", "--dhchap-ctrl-key"),
            ("openftl nvme gen-key --hash md5", "--hash", "sha256"),
            ("openftl nvme gen-key --tls --nqn nqn.a", "--tls", "--nqn"),
            ("openftl serve disk.oftl --tls never", "--tls", "required"),
            ("openftl serve disk.oftl --tls allowed", "--tls-key", "--tls"),
            ("openftl ctl disk.oftl wear 7 1", "CHUNK", "`7` names no chunk"),
            ("openftl ctl disk.oftl power-cut --after-writes 0", "--after-writes", "0"),
            ("openftl ctl disk.oftl power-cut --after-writes 1 --seed 2", "--seed", "--after-writes"),
            ("openftl ctl disk.oftl fail-read -1", "-1", "-1"),
            ("openftl ctl disk.oftl lie-about-flush maybe", "maybe", "on, off"),
            ("openftl ctl disk.oftl detach", "detach", "<NAMESPACE>"),
            ("openftl inspect disk.oftl --namespace 7", "--namespace", "`7` is no name of a namespace"),
            ("openftl ctl disk.oftl explode", "explode", "<COMMAND>"),
            ("openftl explore --runs 0", "--runs", "0"),
            ("openftl explore --runs 1 --minutes 1", "--runs", "--minutes"),
            ("openftl bench --seconds 1 --drive-writes 1", "--seconds", "--drive-writes"),
            ("openftl completions tcsh", "SHELL", "fish"),
            ("openftl man", "<FOLDER>", "openftl man"),
            ("openftl sweep", "FILE", "sweep"),
            ("openftl sweep a.toml --jobs 0", "--jobs", "0"),
            ("openftl compare --workload lsm", "--drive", "<DRIVE>"),
            ("openftl compare --drive cosmos", "--workload", "<LOAD>"),
            ("openftl compare --drive cosmos --workload lsm --fill full", "--fill", "full"),
            ("openftl compare --drive cosmos --workload lsm --drive-writes 0", "--drive-writes", "0"),
        ] {
            let error = parse(line).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(flag) && text.contains(value), "{line}: {text}");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
