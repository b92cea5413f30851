//! What runs beside a server: a command that uses the drive, and whoever waits for the drive to be there.
//!
//! ```text
//!   serve --run CMD      listens ── CMD begins ─────────── CMD ends ── the drive is closed, and CMD's status is the server's
//!   serve --ready-fd N   listens ── one line of JSON on file descriptor N
//! ```

use crate::failure::Failure;
use openftl_drive::table_drive::written;
use openftl_server::{Endpoint, Listener, Stop};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// Where a drive is served.
#[derive(Serialize, Clone, PartialEq, Eq, Default, Debug)]
pub struct Ready {
    ready: bool,
    pid: u32,
    /// URIs for NBD clients.
    nbd: Vec<String>,
    /// Addresses for NVMe hosts.
    nvme_tcp: Vec<String>,
    /// The URI for programs that use a table drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<String>,
    /// The control socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    /// The first Unix socket of an NBD server.
    #[serde(skip)]
    socket: Option<String>,
}

impl Ready {
    /// Block drives with these `names`.
    pub fn blocks(nbd: &[Endpoint], names: &[&str], nvme_tcp: &[Endpoint], control: Option<&Listener>) -> Ready {
        let socket = nbd.iter().find_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.display().to_string()),
            Endpoint::Tcp(_) => None,
        });
        Ready {
            nbd: names.iter().flat_map(|name| nbd.iter().map(|endpoint| endpoint.uri(name))).collect(),
            nvme_tcp: nvme_tcp.iter().map(written).collect(),
            socket,
            ..Ready::new(control.map(Listener::endpoint))
        }
    }

    /// A table drive, named by its URI.
    pub fn tables(uri: String, control: Option<&Endpoint>) -> Ready {
        Ready { files: Some(uri), ..Ready::new(control) }
    }

    fn new(control: Option<&Endpoint>) -> Ready {
        let control = control.map(written);
        Ready { ready: true, pid: std::process::id(), control, ..Ready::default() }
    }

    /// Writes itself as a line to a file descriptor that this process was started with.
    pub fn tell(&self, descriptor: u32) -> Result<(), Failure> {
        let line = serde_json::to_string(self).map_err(Failure::failed)? + "\n";
        File::options()
            .write(true)
            .open(format!("/proc/self/fd/{descriptor}"))
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| {
                Failure::bad_input(format_args!("--ready-fd {descriptor}: {error}")).fix(
                    "name a descriptor that is open for writing, like 3 in `openftl serve … --ready-fd 3 3> ready`",
                )
            })
    }

    /// Environment variables for a command.
    fn environment(&self) -> impl Iterator<Item = (&'static str, &String)> {
        [
            ("OPENFTL_URI", self.nbd.first().or(self.files.as_ref())),
            ("OPENFTL_SOCKET", self.socket.as_ref()),
            ("OPENFTL_NVME_TCP", self.nvme_tcp.first()),
            ("OPENFTL_CONTROL", self.control.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

/// A command that runs as long as it is served, or the server as long as it.
pub struct Companion {
    command: String,
    process: Pid,
    waiting: JoinHandle<io::Result<ExitStatus>>,
}

impl Companion {
    /// Starts `command` in a shell. Its end asks the server to stop.
    pub fn start(command: &str, ready: &Ready, stop: &Stop) -> Result<Companion, Failure> {
        let failed = |error: io::Error| Failure::failed(format_args!("--run {command}: {error}"));
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).envs(ready.environment()).stdin(Stdio::inherit());
        let mut child = shell.spawn().map_err(failed)?;
        let process = Pid::from_child(&child);
        let stop = stop.clone();
        let waiting = std::thread::Builder::new().name("run".to_owned()).spawn(move || {
            let status = child.wait();
            stop.request();
            status
        });
        Ok(Companion { command: command.to_owned(), process, waiting: waiting.map_err(failed)? })
    }

    /// Waits for its end; where the server was told to stop before, the command is too.
    pub fn end(self) -> Result<(), Failure> {
        let was_running = !self.waiting.is_finished();
        if was_running {
            // It may have ended just now.
            _ = kill_process(self.process, Signal::TERM);
        }
        let command = self.command;
        let status = self.waiting.join().expect("waiting does not panic").map_err(Failure::failed)?;
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(Failure::of_command(format_args!("`{command}` ended with exit code {code}"), code)),
            // As shells count.
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                Err(Failure::of_command(format_args!("`{command}` was ended by signal {signal}"), 128 + signal))
            }
        }
    }
}

/// From now on this process gets SIGTERM when the one that started it dies.
pub fn exit_with_parent() -> Result<(), Failure> {
    let parent = rustix::process::getppid();
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Failure::failed)?;
    // It may have died before that.
    match rustix::process::getppid() == parent && parent.is_some() {
        true => Ok(()),
        false => Err(Failure::failed("--exit-with-parent: the process that started this one is gone")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_finds_the_drive_in_its_environment_and_its_status_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint: Endpoint = format!("unix:{}/nbd", folder.path().display()).parse().unwrap();
        let ready = Ready::blocks(&[endpoint], &[""], &[], None);
        let run = |command: &str| {
            let stop = Stop::new().unwrap();
            let companion = Companion::start(command, &ready, &stop).unwrap();
            while !stop.is_requested() {
                std::thread::yield_now();
            }
            companion.end()
        };
        run("test \"$OPENFTL_SOCKET\" && case $OPENFTL_URI in *\"$OPENFTL_SOCKET\") ;; *) exit 9 ;; esac").unwrap();
        assert_eq!(run("exit 7").unwrap_err().what(), "`exit 7` ended with exit code 7");
        assert_eq!(run("kill -9 $$").unwrap_err().what(), "`kill -9 $$` was ended by signal 9");
    }

    #[test]
    fn a_command_that_still_runs_is_ended_with_the_server() {
        let stop = Stop::new().unwrap();
        let companion = Companion::start("exec sleep 1000", &Ready::default(), &stop).unwrap();
        assert_eq!(companion.end().unwrap_err().what(), "`exec sleep 1000` was ended by signal 15");
        assert!(stop.is_requested());
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_named() {
        let failure = Ready::default().tell(971).unwrap_err();
        assert!(failure.what().starts_with("--ready-fd 971: "), "{failure}");
    }
}
