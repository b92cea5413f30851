//! What a world needs of a drive: the block drive is one, and so is the table drive, of which a [`World`](crate::World)
//! sees the log area.

use crate::wire::Wire;
use openftl_blocks::{BlockFtl, CheckReport};
use openftl_core::{Clock, FrameForm, Frames, Time};
use openftl_parts::{Access, BlockTarget, Config, Done, IoError, OpenError, Request};
use openftl_tables::drive::{FoundEntry, TableDone};
use openftl_tables::{TableError, TableFtl};

/// Tags of requests for tables have this bit; others are of the log area.
pub const TABLE_TAG: u64 = 1 << 61;

/// A drive on a wire.
pub trait Drive: BlockTarget + Sized {
    /// Makes a new one.
    ///
    /// # Errors
    /// If it does not fit the device.
    fn format(wire: Wire, config: Config, clock: &mut impl Clock) -> Result<Self, OpenError>;

    /// Opens one.
    ///
    /// # Errors
    /// If it is refused.
    fn open(wire: Wire, config: Config, access: Access, clock: &mut impl Clock) -> Result<Self, OpenError>;

    /// Stops cleanly.
    ///
    /// # Errors
    /// If it cannot.
    fn close(self, clock: &mut impl Clock) -> Result<(), OpenError>;

    /// The block FTL in it.
    fn block(&self) -> &BlockFtl<Wire>;

    /// Has it verify itself.
    fn check(&mut self, clock: &mut impl Clock) -> CheckReport;

    /// Counts what the drive has done.
    fn progress(&self) -> u64 {
        BlockTarget::vitals(self.block()).expect("a block FTL has them").progress
    }

    /// How many requests have ended that [`BlockTarget::poll`] does not speak of, and are not booked.
    fn ended(&self) -> usize {
        0
    }
}

impl Drive for BlockFtl<Wire> {
    fn format(wire: Wire, config: Config, clock: &mut impl Clock) -> Result<Self, OpenError> {
        BlockFtl::format(wire, config, clock)
    }

    fn open(wire: Wire, config: Config, access: Access, clock: &mut impl Clock) -> Result<Self, OpenError> {
        BlockFtl::open_with(wire, config, access, clock)
    }

    fn close(self, clock: &mut impl Clock) -> Result<(), OpenError> {
        BlockFtl::close(self, clock).map(drop)
    }

    fn block(&self) -> &BlockFtl<Wire> {
        self
    }

    fn check(&mut self, clock: &mut impl Clock) -> CheckReport {
        BlockFtl::check(self, clock, &mut |_, _| ()).expect("the device answers")
    }
}

/// A table drive, whose log area is a block target.
pub struct TableDrive {
    /// The drive.
    pub ftl: TableFtl<Wire>,
    /// What was in its catalog when it was opened.
    pub found: Vec<FoundEntry>,
    /// Requests for tables that have ended.
    pub ended: Vec<TableDone>,
}

impl TableDrive {
    fn new(ftl: TableFtl<Wire>, found: Vec<FoundEntry>) -> TableDrive {
        TableDrive { ftl, found, ended: Vec::new() }
    }
}

impl Drive for TableDrive {
    fn format(wire: Wire, config: Config, clock: &mut impl Clock) -> Result<Self, OpenError> {
        Ok(TableDrive::new(TableFtl::format(wire, config, clock)?, Vec::new()))
    }

    fn open(wire: Wire, config: Config, access: Access, clock: &mut impl Clock) -> Result<Self, OpenError> {
        let (ftl, found) = TableFtl::open_with(wire, config, access, clock)?;
        Ok(TableDrive::new(ftl, found))
    }

    fn close(self, clock: &mut impl Clock) -> Result<(), OpenError> {
        self.ftl.close(clock).map(drop)
    }

    fn block(&self) -> &BlockFtl<Wire> {
        self.ftl.block()
    }

    fn check(&mut self, clock: &mut impl Clock) -> CheckReport {
        self.ftl.check(clock, &mut |_, _| ()).expect("the device answers")
    }

    fn ended(&self) -> usize {
        self.ended.len()
    }
}

fn log_area_error(error: TableError) -> IoError {
    match error {
        TableError::Io(error) => error,
        TableError::ReadOnly(_) => IoError::ReadOnly,
        other => panic!("a request for the log area ended with: {other}"),
    }
}

impl BlockTarget for TableDrive {
    fn blocks(&self) -> u64 {
        self.ftl.log_blocks()
    }

    fn frames(&self) -> &Frames {
        self.ftl.frames()
    }

    fn frames_mut(&mut self) -> &mut Frames {
        self.ftl.frames_mut()
    }

    fn payload_form(&self) -> FrameForm {
        FrameForm::Bytes
    }

    fn submit(&mut self, now: Time, tag: u64, request: Request<'_>) -> Result<(), IoError> {
        self.ftl.submit(now, tag, request).map_err(log_area_error)
    }

    fn poll(&mut self, now: Time, done: &mut Vec<Done>) {
        let before = self.ended.len();
        self.ftl.poll(now, &mut self.ended);
        let of_log_area = self.ended.extract_if(before.., |ended| ended.tag & TABLE_TAG == 0);
        done.extend(of_log_area.map(|TableDone { tag, result, at }| Done {
            tag,
            result: result.map_err(log_area_error),
            at,
        }));
    }

    fn next_due(&self) -> Option<Time> {
        self.ftl.next_due()
    }

    fn is_read_only(&self) -> bool {
        self.ftl.block().is_read_only()
    }
}
