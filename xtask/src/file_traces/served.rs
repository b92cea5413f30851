//! Recordings of file systems that know zones: `dm-log-writes` does not, so the drive itself writes down what it is asked.
//!
//! ```text
//!   guest:  load of files ─▶ file system ─▶ NVMe/TCP
//!                                              │
//!   here:   recordings ◀─ log ◀─ openftl serve --record, which runs the guest
//! ```

use super::{Recorded, pack};
use crate::shell;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a file system is called that keeps its files in zones, and the same beside them on blocks.
const ZONES: &str = "-zones";
const BLOCKS: &str = "-blocks";

/// The subsystem, and where the guest reaches it: on a cable of their own.
const NQN: &str = "nqn.2026-11.org.openftl:drive";
const SERVER: &str = "192.168.77.1";
const GUEST: &str = "192.168.77.2";
const PORT: u16 = 4420;

/// A guest that hangs is ended.
const MINUTES_MAX: u32 = 15;

/// Whether a served drive records it.
pub(super) fn is_served(recorded: &Recorded<'_>) -> bool {
    recorded.file_system.ends_with(ZONES)
}

/// Whether it is made with another one: what the file system keeps on blocks beside its zones.
pub(super) fn is_beside(recorded: &Recorded<'_>) -> bool {
    recorded.file_system.ends_with(BLOCKS)
}

/// Makes the recording of a zoned namespace and, if it is among `all`, that of the blocks beside it.
pub(super) fn record(
    recorded: &Recorded<'_>,
    all: &[Recorded<'_>],
    kernel: &Path,
    program: &Path,
) -> Result<(), String> {
    let target = shell::target_directory()?;
    shell::run(&mut shell::cargo(["build", "--release", "--package", "openftl"]))?;
    let work = target.join("file-traces");
    let uml = work.join("uml");
    std::fs::create_dir_all(&uml).map_err(|error| format!("{}: {error}", uml.display()))?;
    let log = work.join(format!("{}.log", recorded.name));
    _ = std::fs::remove_file(&log);
    let folder = shell::root().join("xtask").join("linux");
    let guest = guest(recorded, kernel, program, &uml, &folder.join("file-traces-served.sh"));
    let script = format!(
        "ip link set lo up && ip tuntap add tap0 mode tap && ip addr add {SERVER}/24 dev tap0 && ip link set tap0 up && exec \"$@\""
    );
    let mut serve = Command::new("unshare");
    serve.args(["--net", "sh", "-c", &script, "sh"]).arg(target.join("release").join("openftl")).arg("serve");
    serve.arg("--drive").arg(folder.join("file-traces.toml")).args(["--nvme-tcp", &format!("{SERVER}:{PORT}")]);
    serve.args(["--nqn", NQN, "--allow-any-host", "--record"]).arg(&log).args(["--run", &guest]);
    shell::run(serve.stdin(Stdio::null()))?;
    let beside = recorded.file_system.replace(ZONES, BLOCKS);
    let of_blocks = all.iter().find(|other| other.file_system == beside && other.load == recorded.load);
    for (namespace, recorded) in [("zones", Some(recorded)), ("blocks", of_blocks)] {
        let Some(recorded) = recorded else { continue };
        pack(Command::new(program).arg("pack-served").arg(&log).arg(namespace), recorded)?;
    }
    std::fs::remove_file(&log).map_err(|error| format!("{}: {error}", log.display()))
}

/// The command line that boots the guest.
fn guest(recorded: &Recorded<'_>, kernel: &Path, program: &Path, uml: &Path, init: &Path) -> String {
    let Recorded { file_system, load, bytes, seed, .. } = recorded;
    // In a process namespace of its own, all of the guest's processes end with the first.
    let contain = format!("timeout {MINUTES_MAX}m unshare --pid --fork --kill-child {}", kernel.display());
    let machine = "mem=512M vec0:transport=tap,ifname=tap0,depth=128,gro=1 con=null con0=null,fd:1 quiet nvme_core.max_retries=100";
    let files =
        format!("umid=guest uml_dir={} rootfstype=hostfs rootflags=/ ro init={}", uml.display(), init.display());
    let network = format!("SERVER={SERVER} GUEST={GUEST} PORT={PORT} NQN={NQN}");
    let load = format!("PROGRAM={} FILE_SYSTEM={file_system} LOAD={load} BYTES={bytes} SEED={seed}", program.display());
    format!("{contain} {machine} {files} {network} {load}")
}
