//! What survives a power cut beside data: the log, the checkpoint and the superblock, as one part.
//!
//! ```text
//!   changes ──▶ log ──▶ durable        chunks that follow are named in a superblock first
//!                │ long, or old
//!                ▼
//!           checkpoint ──▶ superblock ──▶ the log from here on, and chunks that nobody names any more are reset
//! ```
//!
//! Whoever brings it along appends what changes, and gives the body of a checkpoint ([`Body`]).

pub mod checkpoint;
pub mod found_checkpoint;
pub mod found_log;
pub mod log;
pub mod log_block;
pub mod recovery_report;
pub mod repair;
pub mod superblock;
pub mod superblock_writer;
pub mod survey;

use crate::flash::Flash;
use crate::journal::checkpoint::{Body, Checkpointer};
use crate::journal::log::{Log, LogChunk};
use crate::journal::superblock_writer::SuperblockWriter;
use crate::words::{METADATA_COPIES, Phase, ReadOnlyReason};

/// Log, checkpoint and superblock of a drive.
pub struct Journal {
    /// Changes, in order.
    pub log: Log,
    /// The whole state, now and then.
    pub checkpoint: Checkpointer,
    /// Where both are.
    pub superblock: SuperblockWriter,
}

impl Journal {
    /// Goes on with whatever is being written. `has_been_taken`: whether the drive has taken anything since it was opened.
    pub fn advance(&mut self, flash: &mut Flash, body: &impl Body, has_been_taken: bool) {
        self.checkpoint.advance(flash, &mut self.log, &mut self.superblock, body, has_been_taken);
        self.log.advance(flash, &mut self.superblock);
        self.superblock.advance(flash, self.log.durable_below());
    }

    /// Begins a checkpoint, unless one is being written. Everything below position `committed` is in the log.
    pub fn begin_checkpoint(&mut self, flash: &mut Flash, committed: u64) {
        self.checkpoint.begin(flash, &self.log, committed);
    }

    /// Has the log written as far as it goes.
    pub fn force_log(&mut self, flash: &mut Flash) {
        self.log.write_what_there_is(flash);
    }

    /// Asks for a superblock with the log's present chunks.
    pub fn request_superblock(&mut self, flash: &mut Flash) -> u64 {
        self.log.request_superblock(flash, &mut self.superblock)
    }

    /// Whether the log or a checkpoint wants a chunk and gets none.
    #[inline]
    pub fn is_stalled(&self, flash: &Flash) -> bool {
        self.log.is_stalled(flash) || self.checkpoint.is_stalled()
    }

    /// Whether changes may be logged: not while a checkpoint, which would shorten the log, has to be waited for.
    #[inline]
    pub fn may_grow(&self, flash: &Flash) -> bool {
        !self.checkpoint.is_working() || self.is_stalled(flash) || !self.log.is_long(flash)
    }

    /// Begins a checkpoint on a worn-out drive whose log would give back chunks by that: where chunks have gone bad, they may be
    /// wanted before the log has come to the end of its plan. Returns whether there was anything to give back.
    pub fn shorten_log(&mut self, flash: &mut Flash, committed: u64) -> bool {
        let is_worn_out = flash.read_only == Some(ReadOnlyReason::WornOut) && flash.phase != Phase::Recovering;
        let next = self.log.next_lsn();
        let is_ended = |chunk: &LogChunk| chunk.last_lsn > 0 && chunk.last_lsn < next;
        let ended = self.log.chunks().filter(|chunk| is_ended(chunk)).count();
        // All but the open one of each copy.
        let may =
            is_worn_out && !self.checkpoint.is_working() && self.superblock.can_go_on() && ended > METADATA_COPIES;
        if may {
            self.begin_checkpoint(flash, committed);
        }
        may
    }

    /// Whether nothing of it is under way.
    pub fn is_idle(&self) -> bool {
        !self.checkpoint.is_working() && !self.superblock.is_writing() && self.log.is_idle()
    }
}
