//! Served speed over NVMe/TCP: 4 KiB at random on instant media, one core for the target and another for our own host,
//! beside messages of the same sizes that nobody looks at.
//!
//! ```text
//!            request              answer                    (no digests, no flow control, data in the capsule)
//!   read     72                   24 + 4096      ICReq and Connect are long over: 8 bytes of header, 64 of command, and
//!   write    72 + 4096            24             24 of header before data, or around a completion
//! ```
//!
//! Once as hosts and targets do it that sleep until something comes, and once as those do it that look again and again: for
//! the first the CPU time of the target says what a core could do, for the second the rate says it. Both servers are up all
//! the time and take turns, so that other work on the machine hits both alike.

use super::Tool;
use super::figure::{Figure, Goal, Unmeasured, median, number, object};
use super::nbd::Folder;
use crate::shell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Turns of each server for each kind of access.
const ROUNDS: usize = 3;
/// How long a turn measures.
const TURN_SECONDS: &str = "2";
/// Seconds after which a turn hangs.
const TURN_SECONDS_MAX: &str = "60";

/// Bytes of a request and of an answer, without the data.
const REQUEST_BYTES: u32 = 72;
const ANSWER_BYTES: u32 = 24;
const DATA_BYTES: u32 = 4096;

/// What is promised at depth 1, of the rate of messages alone.
const SHARE_MIN: f64 = 0.7;

/// How targets and hosts wait for each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Sleeping,
    Polling,
}

impl Waiting {
    fn target_words(self) -> &'static [&'static str] {
        if self == Waiting::Polling { &["--poll", "100ms"] } else { &[] }
    }

    fn host_words(self) -> &'static [&'static str] {
        if self == Waiting::Polling { &["--poll"] } else { &[] }
    }

    fn message_words(self) -> &'static [&'static str] {
        if self == Waiting::Polling { &["poll"] } else { &[] }
    }

    fn name(self) -> &'static str {
        if self == Waiting::Polling { "polling" } else { "sleeping" }
    }
}

/// A drive of 1 GiB, filled before; random writes collect garbage, sequential ones do not.
pub fn measure(openftl: &Tool) -> Result<Figure, Unmeasured> {
    for program in ["taskset", "timeout"] {
        if shell::find(program).is_none() {
            return Err(Unmeasured::Missing(format!("{program} is not installed (`cargo xtask setup`)")));
        }
    }
    let cores = two_cores()?;
    let ping_pong = build_ping_pong()?;
    let mut figure = Figure::default();
    for waiting in [Waiting::Sleeping, Waiting::Polling] {
        measure_one(openftl, &ping_pong, &cores, waiting, &mut figure)?;
    }
    let [target_core, host_core] = cores;
    figure.notes.push(format!(
        "Medians of {ROUNDS} turns of {TURN_SECONDS} s each, taken alternately. Targets on core {target_core}, hosts on core \
         {host_core}. Random writes at 10 % over-provisioning make the drive collect garbage all the time."
    ));
    Ok(figure)
}

fn measure_one(
    openftl: &Tool,
    ping_pong: &Path,
    [target_core, host_core]: &[String; 2],
    waiting: Waiting,
    figure: &mut Figure,
) -> Result<(), Unmeasured> {
    let folder = Folder::new()?;
    let nbd = format!("unix:{}", folder.path.join("nbd").display());
    let drive = ["serve", "--memory", "--profile", "cosmos", "--capacity", "1GiB", "--timing", "instant"];
    let listen = ["--nbd", &nbd, "--nvme-tcp", "127.0.0.1:0"];
    let served = openftl.command(drive.into_iter().chain(listen).chain(waiting.target_words().iter().copied()));
    figure.commands.push(shell::line(&served));
    let target =
        Server::start(&pinned(target_core, &served), |line| line.split_once("nvme connect")?.1.split_once("-s "))?;
    let mut messages = Command::new(ping_pong);
    messages.arg("serve").args(waiting.message_words());
    let messages = Server::start(&pinned(target_core, &messages), |line| line.split_once("listening on "))?;

    let address = format!("127.0.0.1:{}", target.port);
    let fill = openftl.command(["nvme", "write", &address, "--input", "/dev/zero", "--length", "1GiB"]);
    shell::output(&mut bounded(&fill))?;
    let (to_target, to_host) = ((REQUEST_BYTES, ANSWER_BYTES + DATA_BYTES), (REQUEST_BYTES + DATA_BYTES, ANSWER_BYTES));
    for (workload, (request, answer), depth) in [
        ("read", to_target, "1"),
        ("read", to_target, "32"),
        ("read", to_target, "128"),
        ("sequential-write", to_host, "1"),
        ("sequential-write", to_host, "32"),
        ("sequential-write", to_host, "128"),
        ("write", to_host, "1"),
        ("write", to_host, "32"),
        ("write", to_host, "128"),
    ] {
        let words = ["nvme", "bench", &address, "--workload", workload, "--depth", depth, "--block", "4KiB"];
        let words = words.into_iter().chain(["--seconds", TURN_SECONDS, "--json"]);
        let host = openftl.command(words.chain(waiting.host_words().iter().copied()));
        let mut alone = Command::new(ping_pong);
        alone.args(["ask", &messages.port, &request.to_string(), &answer.to_string(), depth, TURN_SECONDS]);
        alone.args(waiting.message_words());
        let (mut ours, mut limit, mut p50, mut per_core) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = target.cpu_seconds()?;
            let found = turn(&pinned(host_core, &host))?;
            let requests = number(&found, "requests", "openftl nvme bench")?;
            per_core.push(requests / (target.cpu_seconds()? - before).max(0.01));
            ours.push(number(&found, "iops", "openftl nvme bench")?);
            p50.push(number(&found, "latency_ns.p50", "openftl nvme bench")?);
            limit.push(number(&turn(&pinned(host_core, &alone))?, "iops", "ping_pong")?);
        }
        let (ours, limit) = (median(ours), median(limit));
        let goal = (depth == "1" && workload != "write").then_some(Goal::AtLeast(SHARE_MIN));
        let what = format!("{}, {workload}, depth {depth}", waiting.name());
        figure.value(format!("{what}: openftl"), ours, "IOPS", None);
        figure.value(format!("{what}: messages alone"), limit, "/s", None);
        figure.value(format!("{what}: openftl to messages"), ours / limit, "", goal);
        figure.value(format!("{what}: openftl, p50"), median(p50) / 1000.0, "µs", None);
        if waiting == Waiting::Sleeping {
            figure.value(format!("{what}: openftl, for each core of the target"), median(per_core), "IOPS", None);
        }
        figure.commands.push(shell::line(&host));
    }
    Ok(())
}

/// The example `ping_pong`, built for release.
fn build_ping_pong() -> Result<PathBuf, Unmeasured> {
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "xtask", "--example", "ping_pong"]))?;
    Ok(shell::target_directory()?.join("release").join("examples").join("ping_pong"))
}

/// The first two cores that we may use.
fn two_cores() -> Result<[String; 2], Unmeasured> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    match cores(list)[..] {
        [first, second, ..] => Ok([first.to_string(), second.to_string()]),
        _ => Err(Unmeasured::Missing("there is only one core, where target and host need one each".to_owned())),
    }
}

/// The numbers in a list like `0-3,8`.
fn cores(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// `command` on one core.
fn pinned(core: &str, command: &Command) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", core]).arg(command.get_program()).args(command.get_args());
    pinned
}

/// `command`, ended when it hangs.
fn bounded(command: &Command) -> Command {
    let mut bounded = Command::new("timeout");
    bounded.arg(TURN_SECONDS_MAX).arg(command.get_program()).args(command.get_args());
    bounded
}

/// What a command prints.
fn turn(command: &Command) -> Result<serde_json::Value, Unmeasured> {
    object(&shell::output(&mut bounded(command))?, &shell::line(command))
}

/// A server that says on which port it listens, and ends with us.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    /// `find` finds the text that begins with the port in one of the lines that it prints.
    fn start(command: &Command, find: impl Fn(&str) -> Option<(&str, &str)>) -> Result<Server, Unmeasured> {
        let line = shell::line(command);
        let mut child = Command::new(command.get_program());
        child.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = child.spawn().map_err(|error| format!("`{line}` does not start: {error}"))?;
        let mut server = Server { child, port: String::new() };
        let mut said = BufReader::new(server.child.stdout.take().expect("stdout was asked for"));
        let mut text = String::new();
        while server.port.is_empty() {
            text.clear();
            if said.read_line(&mut text).map_err(|error| format!("`{line}`: {error}"))? == 0 {
                return Err(Unmeasured::Failed(format!("`{line}` ended before it listened")));
            }
            let digits = |(_, rest): (&str, &str)| rest.chars().take_while(char::is_ascii_digit).collect();
            server.port = find(&text).map(digits).unwrap_or_default();
        }
        // Kept open: what else it says has somewhere to go.
        server.child.stdout = Some(said.into_inner());
        Ok(server)
    }
}

impl Server {
    /// CPU time that it has used so far, in hundredths of a second as the kernel counts it.
    fn cpu_seconds(&self) -> Result<f64, Unmeasured> {
        let path = format!("/proc/{}/stat", self.child.id());
        let line = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        // Behind the name, which may hold anything: state is the third field, utime and stime the 14th and 15th.
        let fields = line.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks: Option<Vec<f64>> = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse().ok()).collect();
        let ticks = ticks.ok_or("the kernel does not tell CPU time".to_owned())?;
        Ok(ticks.iter().sum::<f64>() / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to keep. Either call fails only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_read_as_the_kernel_writes_it() {
        assert_eq!(cores("\t0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cores("5\n"), [5]);
        assert_eq!(cores(""), [] as [u32; 0]);
    }
}
