//! What a [`World`](crate::World) needs of a drive: the block drive is one, and so is the table drive, of which it sees the log area.

use crate::wire::Wire;
use openftl_blocks::{BlockFtl, Ftl};
use openftl_core::Time;
use openftl_parts::{BlockTarget, Done, IoError, Request, Target};
use openftl_tables::TableDone;
use openftl_tables::{TableError, TableFtl};

/// Tags of requests for tables have this bit; others are of the log area.
pub const TABLE_TAG: u64 = 1 << 61;

/// A drive on a wire.
pub trait Drive: Ftl<Media = Wire, Shape = (), Asked = ()> + Target {
    /// Starts a request for blocks.
    ///
    /// # Errors
    /// If it cannot be started.
    fn ask(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError>;

    /// What has ended, if it was a request for blocks.
    fn of_blocks(done: &Self::Done) -> Option<Done>;
}

impl Drive for BlockFtl<Wire> {
    fn ask(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        self.submit(now, tag, request)
    }

    fn of_blocks(done: &Done) -> Option<Done> {
        Some(*done)
    }
}

impl Drive for TableFtl<Wire> {
    fn ask(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        self.submit(now, tag, request).map_err(log_area_error)
    }

    fn of_blocks(&TableDone { tag, result, at }: &TableDone) -> Option<Done> {
        let is_of_blocks = tag & TABLE_TAG == 0;
        is_of_blocks.then(|| Done { tag, result: result.map_err(log_area_error), at })
    }
}

fn log_area_error(error: TableError) -> IoError {
    match error {
        TableError::Io(error) => error,
        TableError::ReadOnly(_) => IoError::ReadOnly,
        other => panic!("a request for the log area ended with: {other}"),
    }
}
