//! `openftl ctl`: operates a drive that another process serves.

use crate::cli::{self, CtlCommand, Switch};
use crate::failure::Failure;
use crate::terminal::say;
use openftl_control::{After, AskError, Client, Command, Cut, Refusal, RefusalKind, Request, socket_beside};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

pub fn run(arguments: &cli::Ctl) -> Result<(), Failure> {
    let drive = &arguments.drive;
    let socket = socket_of(drive);
    let mut client = Client::connect(&socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::bad_input(format_args!(
            "{} is not being served: nobody listens at {}",
            drive.display(),
            socket.display()
        ))
        .fix("serve it first (openftl serve), or name the socket that it was served with (--control)"),
        _ => Failure::failed(format_args!("{}: {error}", socket.display()))
            .fix("only the user who serves a drive may operate it"),
    })?;
    let answer = client.ask(request(arguments)).map_err(|error| failure(&error))?;
    say(&if arguments.json { crate::json(&answer)? } else { answer.message })
}

/// The control socket of what the command line names: a socket, or a drive's file.
pub fn socket_of(drive: &Path) -> PathBuf {
    match drive.to_str().and_then(|text| text.strip_prefix("unix:")) {
        Some(path) => path.into(),
        None if drive.metadata().is_ok_and(|file| file.file_type().is_socket()) => drive.to_owned(),
        None => socket_beside(drive),
    }
}

fn request(arguments: &cli::Ctl) -> Request {
    let cut = |how: &cli::Cut| {
        let after = [
            how.after_writes.map(After::Writes),
            how.after_flushes.map(After::Flushes),
            how.after_commands.map(After::Commands),
        ];
        Cut { torn: how.torn, seed: how.seed, after: after.into_iter().flatten().next() }
    };
    let namespace = match &arguments.command {
        CtlCommand::Attach { which } | CtlCommand::Detach { which } => Some(which),
        _ => arguments.namespace.as_ref(),
    };
    let command = match &arguments.command {
        CtlCommand::PowerCut(how) => Command::PowerCut(cut(how)),
        CtlCommand::PowerOn => Command::PowerOn {},
        CtlCommand::PowerCycle(how) => Command::PowerCycle(cut(how)),
        CtlCommand::FailRead { block } => Command::FailRead { block: *block },
        CtlCommand::FailProgram { chunk, close } => Command::FailProgram { chunk: *chunk, close: *close },
        CtlCommand::Corrupt { block } => Command::Corrupt { block: *block },
        CtlCommand::Wear { chunk, resets } => Command::Wear { chunk: *chunk, resets: *resets },
        CtlCommand::LieAboutFlush { switch } => Command::LieAboutFlush { on: *switch == Switch::On },
        CtlCommand::Attach { .. } => Command::Attach {},
        CtlCommand::Detach { .. } => Command::Detach {},
        CtlCommand::Stats => Command::Stats {},
    };
    Request { command, namespace: namespace.cloned() }
}

/// Why the server of a drive does not do what it is asked.
pub fn failure(error: &AskError) -> Failure {
    let AskError::Refused(Refusal { kind, message, fix }) = error else { return Failure::failed(error) };
    let failure = match kind {
        RefusalKind::Malformed | RefusalKind::OutOfRange => Failure::bad_input(message),
        RefusalKind::NotNow | RefusalKind::Failed => Failure::failed(message),
    };
    match fix {
        Some(fix) => failure.fix(fix),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_named_by_its_file_or_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk.oftl");
        assert_eq!(socket_of(&disk), folder.path().join("disk.oftl.ctl"));
        let socket = folder.path().join("mine");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(socket_of(&socket), socket);
        assert_eq!(socket_of(Path::new("unix:/run/a.ctl")), Path::new("/run/a.ctl"));
    }
}
