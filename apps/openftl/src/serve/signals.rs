//! Signals of a user, or of a parent process that has ended, stop a server.

use crate::failure::Failure;
use openftl_server::Stop;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

/// What the last words of a process are that a second Ctrl-C ended (128 + SIGINT, as shells count).
const INTERRUPTED_TWICE: i32 = 130;

/// The first SIGINT or SIGTERM ends the server cleanly, the second ends the process at once.
pub fn stop_at_signals(stop: &Stop) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(Failure::failed)?;
    let stop = stop.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if stop.is_requested() {
                    std::process::exit(INTERRUPTED_TWICE);
                }
                stop.request();
            }
        })
        .map_err(Failure::failed)?;
    Ok(())
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
