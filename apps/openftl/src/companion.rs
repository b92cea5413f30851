//! A command that runs beside a server: `serve --run CMD`.
//!
//! ```text
//!   the drive is served ── CMD begins ── CMD ends ── the drive is closed, and CMD's status is the server's
//! ```

use crate::failure::Failure;
use crate::ready::Ready;
use crate::{notify, passed};
use openftl_server::Stop;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// A command that runs as long as it is served, or the server as long as it.
pub struct Companion {
    command: String,
    process: Pid,
    waiting: JoinHandle<io::Result<ExitStatus>>,
}

impl Companion {
    /// Starts `command` in a shell. Its end asks the server to stop.
    pub fn start(command: &str, ready: &Ready, stop: &Stop) -> Result<Companion, Failure> {
        let stop = stop.clone();
        Companion::start_with(command, ready.environment(), move || stop.request())
    }

    /// Starts `command` in a shell with these variables. `ended` is called at its end.
    pub fn start_with<'a>(
        command: &str,
        environment: impl Iterator<Item = (&'static str, &'a String)>,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Companion, Failure> {
        let failed = |error: io::Error| Failure::failed(format_args!("--run {command}: {error}"));
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).envs(environment).stdin(Stdio::inherit());
        // They tell of this process, and not of that one.
        for variable in passed::VARIABLES.into_iter().chain([notify::VARIABLE]) {
            shell.env_remove(variable);
        }
        let mut child = shell.spawn().map_err(failed)?;
        let process = Pid::from_child(&child);
        let waiting = std::thread::Builder::new().name("run".to_owned()).spawn(move || {
            let status = child.wait();
            ended();
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

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_server::Endpoint;

    #[test]
    fn a_command_finds_the_drive_in_its_environment_and_its_status_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint: Endpoint = format!("unix:{}/nbd", folder.path().display()).parse().unwrap();
        let ready = Ready::drives(&[endpoint], &[""], &[], crate::ready::Uris::default(), &[], None);
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
}
