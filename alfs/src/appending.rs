//! Blocks go to the ends of logs, and from there to the drive.

use crate::block::Kind;
use crate::segments::{Log, OWNERS_PER_BLOCK, Owner, put_owners};
use crate::volume::{Io, Step, Stop, Volume};
use openftl_core::{Frame, FrameForm};
use openftl_parts::target::{AppendError, IoError, SegmentTarget};
use openftl_parts::words::TRANSACTION_BLOCKS_MAX;

/// Blocks of a log that are handed to the drive at once.
const RUN_MAX: usize = 64;

impl<T: SegmentTarget> Volume<T> {
    /// Whether so many blocks can be appended to a log now.
    pub(crate) fn expect_log(&mut self, log: Log, blocks: u32) -> Step<()> {
        self.expect_logs(&[(log, blocks)])
    }

    /// Whether so many blocks can be appended to each of these logs now.
    pub(crate) fn expect_logs(&mut self, logs: &[(Log, u32)]) -> Step<()> {
        let logs = logs.iter().filter(|(_, blocks)| *blocks > 0);
        let needs = logs.map(|(log, blocks)| (*blocks as usize, self.segments.segments_for(*log, *blocks), 1));
        let (blocks, segments, logs) = needs.fold((0, 0, 0), |all, log| (all.0 + log.0, all.1 + log.1, all.2 + log.2));
        let summaries = (segments + logs) * self.segments.shape.summary_blocks() as usize;
        let has_frames = self.has_frames(blocks + summaries);
        if has_frames && segments <= self.segments.free() { Ok(()) } else { Err(Stop::Wait) }
    }

    /// Appends a block, which is in a frame, to a log. Returns its address. [`Volume::expect_log`] has said that it can be.
    pub(crate) fn append(&mut self, log: Log, owner: Owner, frame: Frame) -> u32 {
        if self.segments.heads[log as usize].is_none() {
            assert!(self.segments.open(log), "a log has no segment to go on in: {}", self.describe());
        }
        let address = self.segments.append(log, owner, frame);
        if self.segments.room(log) == 0 {
            self.append_summary(log);
        } else if self.segments.heads[log as usize].as_ref().is_some_and(|head| head.run.len() >= RUN_MAX) {
            self.submit_run(log);
        }
        address
    }

    /// Ends the segment of a log, all blocks of which are written but its summary, or the rest of that.
    pub(crate) fn append_summary(&mut self, log: Log) {
        let head = self.segments.heads[log as usize].as_ref().expect("the log has a segment");
        let (segment, sequence) = (head.segment, self.syncing.next);
        let there = head.submitted.saturating_sub(self.segments.shape.data_blocks()) as usize;
        let mut frames = Vec::new();
        for owners in head.owners.chunks(OWNERS_PER_BLOCK as usize).skip(there) {
            let frame = self.target.frames_mut().acquire(FrameForm::Bytes).expect("frames were counted");
            let bytes = self.target.frames_mut().bytes_mut(frame);
            put_owners(bytes, owners);
            crate::block::seal(bytes, Kind::Summary, segment, sequence, self.id);
            frames.push(frame);
        }
        self.statistics.summaries += frames.len() as u64;
        self.segments.heads[log as usize].as_mut().expect("it was just there").run.append(&mut frames);
        self.submit_run(log);
        match self.segments.heads[log as usize].as_ref().is_some_and(|head| head.has_failed) {
            true => self.strand(log),
            false => self.segments.fill(log),
        }
    }

    /// Hands the last blocks of a log to the drive.
    pub(crate) fn submit_run(&mut self, log: Log) {
        let Some(head) = self.segments.heads[log as usize].as_mut() else { return };
        if head.run.is_empty() {
            return;
        }
        if head.has_failed {
            return;
        }
        let frames = std::mem::take(&mut head.run);
        let begins = u64::from(self.segments.shape.first_of(head.segment));
        let mut first = begins + u64::from(head.submitted);
        let mut rest = &frames[..];
        while !rest.is_empty() && self.failed.is_none() {
            let (now, behind) = rest.split_at(rest.len().min(TRANSACTION_BLOCKS_MAX));
            match self.start_write(Io::Write, first, now) {
                Ok(()) => (first, rest) = (first + now.len() as u64, behind),
                Err(IoError::Append(AppendError::SegmentReadOnly { .. })) => break,
                Err(error) => {
                    self.fail(match error {
                        IoError::ReadOnly => "the drive takes no more writes",
                        _ => "the drive does not take what is written in order",
                    });
                }
            }
        }
        if self.failed.is_some() {
            self.keep(first as u32, rest);
            (first, rest) = (first + rest.len() as u64, &[]);
        }
        let head = self.segments.heads[log as usize].as_mut().expect("it was just there");
        head.submitted = (first - begins) as u32;
        head.has_failed = !rest.is_empty();
        head.run = rest.to_vec();
    }

    pub(crate) fn submit_runs(&mut self) {
        Log::ALL.into_iter().for_each(|log| self.submit_run(log));
    }
}
