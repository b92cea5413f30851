//! Served speed: fio over NBD on a Unix socket, 4 KiB at queue depth 32, against `nbdkit memory` in the same run.
//!
//! Both servers are up all the time; fio turns to one and then to the other, so that other work on the machine hits
//! both alike. Medians are compared.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, median, number, object};
use crate::shell;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Turns of each server for each kind of access.
const ROUNDS: usize = 5;
/// How long fio runs in a turn.
const TURN_SECONDS: &str = "3";
/// Seconds after which a turn hangs.
const TURN_SECONDS_MAX: &str = "60";
const LISTENS_WITHIN: Duration = Duration::from_secs(60);

/// Both servers on 1 GiB, filled before.
pub fn measure(openftl: &Tool) -> Result<Figure, Unmeasured> {
    for program in ["fio", "nbdkit", "timeout"] {
        if shell::find(program).is_none() {
            return Err(Unmeasured::Missing(format!("{program} is not installed (`cargo xtask setup`)")));
        }
    }
    let folder = Folder::new()?;
    let socket = |name: &str| folder.path.join(name);
    let (ours, theirs) = (socket("openftl"), socket("nbdkit"));
    let endpoint = format!("unix:{}", ours.display());
    let arguments = ["serve", "--memory", "--profile", "cosmos", "--capacity", "1GiB", "--timing", "instant", "--nbd"];
    let server = openftl.command(arguments.into_iter().chain([endpoint.as_str()]));
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.arg("--unix").arg(&theirs).args(["--foreground", "memory", "1G"]);
    let mut figure = Figure { commands: vec![shell::line(&server), shell::line(&nbdkit)], ..Figure::default() };
    let _servers = [Server::start(server, &ours)?, Server::start(nbdkit, &theirs)?];

    let mut fills = Vec::new();
    for socket in [&ours, &theirs] {
        fills.push(fio(socket, &["--rw=write", "--bs=1m", "--size=1g", "--iodepth=4"])?);
    }
    figure.value("openftl: sequential fill, 1 MiB", fills[0].rate, "IOPS", None);
    figure.value("nbdkit: sequential fill, 1 MiB", fills[1].rate, "IOPS", None);
    for access in ["randread", "randwrite"] {
        let access_flag = format!("--rw={access}");
        let job = [&access_flag, "--bs=4k", "--size=1g", "--iodepth=32", "--time_based", "--runtime", TURN_SECONDS];
        let (mut rates_ours, mut rates_theirs) = (Vec::new(), Vec::new());
        let mut line = String::new();
        for _ in 0..ROUNDS {
            let turn = fio(&ours, &job)?;
            rates_ours.push(turn.rate);
            line = turn.line;
            rates_theirs.push(fio(&theirs, &job)?.rate);
        }
        let (ours, theirs) = (median(rates_ours), median(rates_theirs));
        figure.commands.push(line);
        figure.value(format!("openftl: {access}"), ours, "IOPS", None);
        figure.value(format!("nbdkit: {access}"), theirs, "IOPS", None);
        figure.value(format!("openftl to nbdkit: {access}"), ours / theirs, "", Some(Goal::AtLeast(1.0)));
    }
    figure.notes.push(format!("Medians of {ROUNDS} turns of {TURN_SECONDS} s each, taken alternately."));
    Ok(figure)
}

struct Turn {
    /// Reads and writes a second.
    rate: f64,
    line: String,
}

fn fio(socket: &Path, job: &[&str]) -> Result<Turn, Unmeasured> {
    let mut command = Command::new("fio");
    command.args(["--name=turn", "--thread", "--ioengine=nbd", "--output-format=json", "--randrepeat=1"]);
    command.arg(format!("--uri=nbd+unix:///?socket={}", socket.display())).args(job);
    let line = shell::line(&command);
    let mut bounded = Command::new("timeout");
    bounded.args([TURN_SECONDS_MAX, "fio"]).args(command.get_args()).stdin(Stdio::null());
    let output = bounded.output().map_err(|error| format!("`{line}` does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Unmeasured::Failed(format!(
            "`{line}` ended with {} (124: not in {TURN_SECONDS_MAX} s): {said}",
            output.status
        )));
    }
    let result = object(&String::from_utf8_lossy(&output.stdout), &line)?;
    let job = &result["jobs"][0];
    let rate = number(job, "read.iops", &line)? + number(job, "write.iops", &line)?;
    Ok(Turn { rate, line })
}

/// A server that ends with us.
struct Server(Child);

impl Server {
    fn start(mut command: Command, socket: &Path) -> Result<Server, Unmeasured> {
        let line = shell::line(&command);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        let mut server = Server(child.map_err(|error| format!("`{line}` does not start: {error}"))?);
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(Unmeasured::Failed(format!("`{line}` ended with {status} before it listened")));
            }
            if started.elapsed() > LISTENS_WITHIN {
                return Err(Unmeasured::Failed(format!("`{line}` does not listen after {LISTENS_WITHIN:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to keep. Either call fails only if it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder for the sockets, short enough for a socket's name, removed in the end.
pub(super) struct Folder {
    pub path: PathBuf,
}

impl Folder {
    pub fn new() -> Result<Folder, Unmeasured> {
        Folder::new_in(&std::env::temp_dir())
    }

    /// The same, elsewhere.
    pub fn new_in(parent: &Path) -> Result<Folder, Unmeasured> {
        let path = parent.join(format!("openftl-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
