//! The endpoints of a server follow from flags, the description of the drive, or defaults: NBD clients and operators connect there.

use crate::cli;
use crate::control;
use crate::failure::Failure;
use crate::passed::Passed;
use crate::power::Home;
use crate::settings::Settings;
use openftl_control::socket_beside;
use openftl_server::{Endpoint, ListenError, Listener};
use std::path::PathBuf;

/// Where clients connect unless the command says otherwise: the port that IANA gave to NBD.
const NBD_DEFAULT: &str = "127.0.0.1:10809";

/// Where NBD clients connect, beside the sockets that were passed: by default somewhere only if nobody else could.
pub(super) fn endpoints(
    arguments: &cli::Serve,
    settings: &Settings,
    passed: &Passed,
) -> Result<Vec<Endpoint>, Failure> {
    let has_nvme = !arguments.nvme_tcp.is_empty() || !settings.host.nvme_tcp.is_empty() || !passed.nvme_tcp.is_empty();
    let has_others = has_nvme || !arguments.redis.is_empty();
    let texts = match (arguments.nbd.is_empty(), settings.host.nbd.is_empty()) {
        _ if !passed.nbd.is_empty() => Vec::new(),
        (false, _) => arguments.nbd.clone(),
        (true, false) => settings.host.nbd.clone(),
        (true, true) if has_others => Vec::new(),
        (true, true) if arguments.run.is_some() => vec![format!("unix:{}", socket_of_this_run().display())],
        (true, true) => vec![NBD_DEFAULT.to_owned()],
    };
    texts.iter().map(|text| text.parse().map_err(|error| Failure::bad_input(format_args!("--nbd: {error}")))).collect()
}

/// Where the command of `--run` connects: no two servers are in each other's way.
fn socket_of_this_run() -> PathBuf {
    std::env::temp_dir().join(format!("openftl-{}.sock", std::process::id()))
}

/// Where the drive is to be controlled, if somebody said so.
pub(super) fn control_endpoint(arguments: &cli::Serve, settings: &Settings) -> Result<Option<Endpoint>, Failure> {
    let Some(text) = arguments.control.as_ref().or(settings.host.control.as_ref()) else { return Ok(None) };
    control_at(text).map(Some)
}

/// The place that `text` names for a control socket.
pub fn control_at(text: &str) -> Result<Endpoint, Failure> {
    match text.parse() {
        Ok(endpoint @ Endpoint::Unix(_)) => Ok(endpoint),
        Ok(Endpoint::Tcp(_)) => Err(Failure::bad_input(format_args!("--control: {text} is no Unix socket"))
            .fix("write it like unix:/path/to/socket: whoever reaches it can do anything to the drive")),
        Err(error) => Err(Failure::bad_input(format_args!("--control: {error}"))),
    }
}

/// The control socket beside a drive's file. A drive that can have none is served without, so the reason is but told.
pub(super) fn control_beside(home: &Home) -> Result<Option<Listener>, String> {
    let Home::File(path) = home else { return Ok(None) };
    let endpoint =
        format!("unix:{}", socket_beside(path).display()).parse::<Endpoint>().map_err(|error| error.to_string())?;
    control::listen(endpoint).map(Some).map_err(|error| error.to_string())
}

/// An address where nobody can listen, and what to do about it.
pub(super) fn listen_failure(error: &ListenError, flag: &str) -> Failure {
    let about = |error: &ListenError| format!("{flag}: {error}");
    match error {
        ListenError::NotLocal(_) => {
            Failure::bad_input(about(error)).fix("listen on 127.0.0.1 or at a Unix socket, or say --allow-remote")
        }
        ListenError::InUse(_) | ListenError::NotASocket(_) => {
            let message = about(error);
            let (what, fix) = message.rsplit_once("; ").expect("these name a fix");
            Failure::failed(what).fix(fix)
        }
        ListenError::System { error: reason, .. } if reason.kind() == std::io::ErrorKind::NotFound => {
            Failure::bad_input(about(error)).fix("make the folder of the socket first, or name another")
        }
        ListenError::System { .. } => Failure::failed(about(error))
            .fix(format_args!("choose another {flag} address, or end the server that has it")),
    }
}
