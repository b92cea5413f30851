//! `cargo xtask setup`: the programs that system tests and benches use, by Debian package.

use crate::shell;
use crate::steps::{Outcome, Steps};
use std::process::{Command, ExitCode};

/// A program and the Debian package that holds it. The system tests name the programs that they need themselves; each
/// of them is in this list. The C++ compiler is for the fuzzing engine.
const PROGRAMS: &[(&str, &str)] = &[
    ("fio", "fio"),
    ("qemu-io", "qemu-utils"),
    ("qemu-img", "qemu-utils"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("fusermount3", "fuse3"),
    ("fuse2fs", "fuse2fs"),
    ("stress-ng", "stress-ng"),
    ("dbench", "dbench"),
    ("sqlite3", "sqlite3"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("losetup", "mount"),
    ("blkid", "util-linux"),
    ("blkzone", "util-linux"),
    ("mountpoint", "util-linux"),
    ("cp", "coreutils"),
    ("sha1sum", "coreutils"),
    ("cmp", "diffutils"),
    ("diff", "diffutils"),
    ("c++", "g++"),
    ("cc", "gcc"),
    ("nvme", "nvme-cli"),
    ("ip", "iproute2"),
    ("jq", "jq"),
    ("redis-cli", "redis-tools"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("nsenter", "util-linux"),
    ("fallocate", "util-linux"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
    ("mkfs.f2fs", "f2fs-tools"),
    ("fsck.f2fs", "f2fs-tools"),
    ("python3", "python3-minimal"),
    ("chromium", "chromium"),
    ("zsh", "zsh"),
    ("fish", "fish"),
    ("man", "man-db"),
    ("groff", "groff"),
    ("mandoc", "mandoc"),
    ("systemd-socket-activate", "systemd"),
    ("systemd-analyze", "systemd"),
];

/// Installs what is missing, as the only step of the command.
pub fn run() -> ExitCode {
    let mut steps = Steps::new("setup");
    steps.run("programs of the system tests", install);
    steps.finish()
}

/// Installs the packages of missing programs where we are root, and says which ones are missing where we are not.
pub fn install() -> Outcome {
    match install_packages(&missing()) {
        Outcome::Done if !missing().is_empty() => {
            Outcome::Failed(format!("installed all packages, but still without {}", missing().join(" ")))
        }
        outcome => outcome,
    }
}

/// Installs `packages` where we are root, and says what to install where we are not.
pub fn install_packages(packages: &[&str]) -> Outcome {
    if packages.is_empty() {
        println!("All programs are there.");
        return Outcome::Done;
    }
    let names = packages.join(" ");
    if !shell::is_root() {
        return Outcome::LeftOut(format!("not root; please run: sudo apt-get install {names}"));
    }
    if shell::find("apt-get").is_none() {
        return Outcome::LeftOut(format!("no apt-get here; please install what Debian calls {names}"));
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
        shell::run(&mut command)
    };
    // A fresh machine has no package lists, an older one has lists of packages that are gone.
    let updated = apt(&["update", "-q"]);
    let mut install = vec!["install", "-q", "--yes", "--no-install-recommends"];
    install.extend(packages.iter().copied());
    match (apt(&install), updated) {
        (Ok(()), _) => Outcome::Done,
        (Err(error), Ok(())) => Outcome::Failed(error),
        (Err(error), Err(update)) => Outcome::Failed(format!("{error}, after {update}")),
    }
}

fn missing() -> Vec<&'static str> {
    let absent = PROGRAMS.iter().filter(|(program, _)| shell::find(program).is_none());
    let mut packages: Vec<&str> = absent.map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}
