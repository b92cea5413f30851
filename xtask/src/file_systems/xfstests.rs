//! xfstests: its generic tests, where somebody has built it. No registry has it.
//!
//! It mounts `fuse.alfs` by mount(8), which looks for helpers in folders of the system alone. So all of it runs in a mount namespace where
//! `/usr/sbin` has one more file; the machine keeps its own.

use super::Suites;
use super::volume::{at, wait_for};
use crate::shell;
use crate::steps::Outcome;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the folder of a built tree, in which the script `check` is.
const VARIABLE: &str = "OPENFTL_XFSTESTS";

/// The drives, as xfstests and /proc/mounts name them.
const TEST: &str = "alfs-test.oftl";
const SCRATCH: &str = "alfs-scratch.oftl";

/// Tests that cannot pass over FUSE: what they ask for does not reach a FUSE file system.
const LEFT_OUT: [(&str, &str); 3] = [
    ("generic/003", "the kernel keeps times of reads of a FUSE file system to itself"),
    ("generic/478", "locks of open files are the kernel's own"),
    ("generic/732", "two mounts of one drive"),
];

impl Suites {
    /// Its generic tests, all of the group `auto`.
    pub fn xfstests(&self) -> Outcome {
        let Some(tree) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            return Outcome::LeftOut(format!("{VARIABLE} names no built tree of xfstests, and no registry has it"));
        };
        if !tree.join("check").is_file() {
            return Outcome::Failed(format!("{VARIABLE}: there is no script {}", tree.join("check").display()));
        }
        Outcome::of(self.check(&tree))
    }

    fn check(&self, tree: &Path) -> Result<(), String> {
        let folder = self.folder().join("runs/xfstests");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| at(&folder, &error))?;
        }
        let helpers = folder.join("sbin");
        for name in ["sbin", "test", "scratch"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(|error| at(&path, &error))?;
        }
        let openftl = self.openftl();
        for name in [TEST, SCRATCH] {
            let mut create = Command::new(&openftl);
            create.args(["create", name, "--drive"]).arg(shell::root().join("drives/amf.toml"));
            shell::output(create.current_dir(&folder))?;
            shell::output(Command::new(&openftl).args(["alfs", "mkfs", name]).current_dir(&folder))?;
        }
        let write = |path: PathBuf, text: String| fs::write(&path, text).map_err(|error| at(&path, &error));
        // mount.fuse.alfs DRIVE FOLDER -o OPTIONS. The mount before may still hold the drive.
        let helper = format!(
            "#!/bin/sh\ncd '{}' || exit 1\nread_only=\ncase \",$4,\" in *,ro,*) read_only=--read-only ;; esac\n\
             for attempt in $(seq 100); do\n\
             env -u CARGO '{}' alfs mount \"$1\" \"$2\" --allow-other $read_only </dev/null >/dev/null 2>&1 &\n\
             while kill -0 $! 2>/dev/null; do mountpoint -q \"$2\" && exit 0; sleep 0.02; done\n\
             done\nexit 32\n",
            folder.display(),
            openftl.display()
        );
        write(helpers.join("mount.fuse.alfs"), helper)?;
        shell::output(Command::new("chmod").arg("755").arg(helpers.join("mount.fuse.alfs")))?;
        let lines = LEFT_OUT.map(|(test, why)| format!("{test} # {why}\n"));
        write(folder.join("left-out"), lines.concat())?;
        let script = "set -e\nmount -t overlay -o \"lowerdir=$HELPERS:/usr/sbin\" overlay /usr/sbin\n\
                      exec ./check -g auto -E \"$LEFT_OUT\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]).current_dir(tree);
        command.env("HELPERS", &helpers).env("LEFT_OUT", folder.join("left-out"));
        command.env("FSTYP", "fuse").env("FUSE_SUBTYP", ".alfs").env("TEST_DEV", TEST).env("SCRATCH_DEV", SCRATCH);
        command.env("TEST_DIR", folder.join("test")).env("SCRATCH_MNT", folder.join("scratch"));
        shell::run(command.stdin(Stdio::null()))?;
        for name in [TEST, SCRATCH] {
            let fsck = || {
                let mut command = Command::new(&openftl);
                command.args(["alfs", "fsck", name]).current_dir(&folder);
                command
            };
            // It is refused as long as the last mount holds the drive.
            _ = wait_for("the end of the last mount", || Ok(shell::succeeds(&mut fsck()).then_some(())));
            shell::output(&mut fsck())?;
        }
        println!("xfstests: passed, {} tests left out", LEFT_OUT.len());
        Ok(())
    }
}
