//! The server, for the drives that the command line serves. None of these is generic: whoever calls them compiles nothing of the server.

use crate::flash::Flash;
use openftl_blocks::BlockFtl;
use openftl_drive::table_drive::TableFiles;
use openftl_files::FileServer;
use openftl_media::EmulatedDevice;
use openftl_server::{End, Export, Listener, Operator, Other, ServeError, Server, Stop, WallClock};
use std::io;

/// A block drive that is served.
pub type Drive = BlockFtl<Flash>;

/// [`Server::run_with_others`].
///
/// # Errors
/// As there.
pub fn serve(
    server: &mut Server,
    mut operator: &mut dyn Operator<Drive>,
    exports: &mut [Export<Drive>],
    others: &mut [Other<Flash>],
    clock: &mut WallClock,
    stop: &Stop,
) -> Result<End, ServeError> {
    server.run_with_others(&mut operator, exports, others, clock, stop)
}

/// [`Server::turn_away`].
///
/// # Errors
/// As there.
pub fn turn_away(
    server: &mut Server,
    mut operator: &mut dyn Operator<Drive>,
    clock: &mut WallClock,
    stop: &Stop,
) -> Result<End, ServeError> {
    server.turn_away(&mut operator, clock, stop)
}

/// [`FileServer::new`].
///
/// # Errors
/// As there.
pub fn serve_files(listeners: Vec<Listener>, files: TableFiles) -> io::Result<FileServer<EmulatedDevice>> {
    FileServer::new(listeners, files)
}
