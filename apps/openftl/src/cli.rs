//! The words of the command line; those of each command have a file of their own.

pub mod alfs;
mod bench;
mod check;
mod compare;
mod completions;
mod create;
mod ctl;
mod demo;
mod drive_flags;
mod explain;
mod explore;
mod files;
mod inspect;
pub mod kv;
mod man;
mod number;
pub mod nvme;
pub mod pages;
mod profiles;
mod reproduce;
mod serve;
mod sweep;
pub mod zones;

pub use bench::{Bench, Store};
pub use check::Check;
pub use compare::Compare;
pub use completions::{Completions, ShellName};
pub use create::Create;
pub use ctl::{Ctl, CtlCommand, Cut, Switch};
pub use demo::Demo;
pub use drive_flags::{Collection, DriveFlags};
pub use explain::Explain;
pub use explore::{DRIVES, Explore};
pub use files::Files;
pub use inspect::Inspect;
pub use man::Man;
pub use openftl_drive::description::Timing;
pub use profiles::Profiles;
pub use reproduce::{EXPERIMENTS, Reproduce};
pub use serve::{NvmeFormat, Serve};
pub use sweep::Sweep;

use clap::{Parser, Subcommand};
use number::numbers;

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
    /// Puts, gets, deletes and lists pages of a store of pages, or measures one.
    Pages(pages::Pages),
    /// Puts, gets, deletes and lists keys of a key-value drive, or measures one.
    Kv(kv::Kv),
    /// Makes, mounts and verifies a log-structured file system on a drive of segments.
    Alfs(alfs::Alfs),
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

impl Cli {
    /// Understands the command line; says what is wrong with it and ends the process if something is.
    pub fn understood() -> Cli {
        let matches = numbers(<Cli as clap::CommandFactory>::command()).get_matches();
        <Cli as clap::FromArgMatches>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
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
            "openftl alfs mkfs disk.oftl",
            "openftl alfs mount disk.oftl /mnt --run ls",
            "openftl alfs fsck disk.oftl --json",
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
