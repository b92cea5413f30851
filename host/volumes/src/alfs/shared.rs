//! The file system behind its lock, and what its users share.

use super::tree::Tree;

use openftl_alfs::{FileSystem, MountError, Operation, Refusal, Reply, Ticket, Volume};
use openftl_core::Time;
use openftl_dispatch::{Pace, PaceClock, Stopped};
use openftl_files::{Counts, FileError, FileStatistics};
use openftl_media::Media;
use openftl_parts::IoError;
use openftl_segments::SegmentFtl;
use openftl_turns::{Alarm, JumpingClock, ServeClock, Turns, WallClock};
use openftl_zones::{Ftl, ZoneFtl, ZoneStatistics};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// The drive below.
pub(super) type Drive<M> = SegmentFtl<Box<ZoneFtl<M>>>;
/// The file system on it.
pub(super) type Fs<M> = Volume<Drive<M>>;
type FsTurns<M> = Turns<Fs<M>, (), Box<dyn ServeClock>>;

/// What only drives with an ALFS have. Blocks are of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct AlfsFigures {
    /// What was done with the segments, which are zones below.
    pub zones: ZoneStatistics,
    /// Contents of files.
    pub data_blocks: u64,
    /// Blocks of folders.
    pub name_blocks: u64,
    /// Nodes of files, whole ones and those of which changes alone were written.
    pub node_blocks: u64,
    /// The map of nodes.
    pub map_blocks: u64,
    /// Summaries of segments.
    pub summary_blocks: u64,
    /// Records, of which each makes everything durable.
    pub record_blocks: u64,
    /// How often everything was made durable, for whoever asked for it then.
    pub records: u64,
    /// Blocks that cleaning moved.
    pub blocks_cleaned: u64,
    /// Segments that cleaning emptied.
    pub segments_cleaned: u64,
    /// Segments that were trimmed.
    pub segments_trimmed: u64,
    /// Bytes of memory for what is known of files and segments.
    pub memory_bytes: usize,
}

/// What a drive with an ALFS did since it was opened.
pub type AlfsFileStatistics = FileStatistics<AlfsFigures>;

/// See the module.
pub(super) struct Shared<M: Media> {
    turns: Arc<FsTurns<M>>,
    tree: Mutex<Tree>,
    pub(super) counts: Counts,
    pub(super) pace: Pace,
    /// Why nothing may be changed, if so.
    refusal: Option<&'static str>,
    helper: Mutex<Option<JoinHandle<()>>>,
}

impl<M: Media> Shared<M> {
    pub(super) fn new(fs: Fs<M>, clock: &PaceClock, refusal: Option<&'static str>) -> Shared<M> {
        let serving: Box<dyn ServeClock> = match clock.pace {
            Pace::Wall(start) => Box::new(WallClock::since(start)),
            Pace::Virtual => Box::new(JumpingClock::new(clock.now)),
        };
        Shared {
            turns: Arc::new(Turns::new(fs, (), serving)),
            tree: Mutex::new(Tree::new()),
            counts: Counts::default(),
            pace: clock.pace,
            refusal,
            helper: Mutex::new(None),
        }
    }

    pub(super) fn alarm(&self) -> Alarm {
        self.turns.alarm().clone()
    }

    /// Has a thread do what nobody waits for: cleaning ahead, and syncs of what was written some seconds ago.
    pub(super) fn help(&self) -> Result<(), FileError>
    where
        M: Send,
    {
        let turns = Arc::clone(&self.turns);
        let helper = thread::Builder::new().name("alfs-helper".to_owned()).spawn(move || turns.help());
        let helper = helper.map_err(|error| FileError::Io(format!("no thread for the file system: {error}")))?;
        *self.helper.lock().unwrap_or_else(PoisonError::into_inner) = Some(helper);
        Ok(())
    }

    /// The file system, with the time, when nobody uses it any more.
    pub(super) fn into_fs(self) -> (Fs<M>, Time) {
        let turns = Arc::clone(&self.turns);
        drop(self);
        let now = turns.clock().now();
        let Some(turns) = Arc::into_inner(turns) else { unreachable!("the helper has left, and nobody else has it") };
        (turns.into_inner().0, now)
    }

    /// The names that are not in the file system, locked with all others: whoever changes names has this, and nobody who has the file system
    /// waits for it.
    pub(super) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn expect_writable(&self) -> Result<(), FileError> {
        self.refusal.map_or(Ok(()), |why| Err(FileError::ReadOnly(why.to_owned())))
    }

    /// Does something with the file system.
    pub(super) fn with_fs<T>(&self, with: impl FnOnce(&mut Fs<M>) -> T) -> T {
        let mut taken = self.turns.take();
        let value = with(&mut taken.fs);
        self.turns.leave(taken);
        value
    }

    /// Has `watch` called with the drive after each poll.
    pub(super) fn watch(&self, mut watch: openftl_dispatch::Watch<ZoneFtl<M>>) {
        self.turns.take().watch = Some(Box::new(move |fs, now| watch(fs.target_mut().zones_mut(), now)));
    }

    /// Runs one operation on the file at `path` to its end.
    pub(super) fn run(&self, path: &str, operation: &Operation<'_>) -> Result<Reply, FileError> {
        let mut over = None;
        self.run_all(path, &[*operation], |_, _, reply| over = Some(reply));
        over.expect("it was run to its end")
    }

    /// Runs operations at a time. Each that is over is given to `over` by its index, with the file system.
    pub(super) fn run_all(
        &self,
        path: &str,
        operations: &[Operation<'_>],
        mut over: impl FnMut(usize, &mut Fs<M>, Result<Reply, FileError>),
    ) {
        let clock = self.turns.clock();
        let mut taken = self.turns.take();
        let mut waiting: Vec<(usize, Ticket)> = (0..operations.len()).map(|index| (index, taken.fs.ticket())).collect();
        loop {
            let fs = &mut taken.fs;
            waiting.retain(|(index, ticket)| {
                let Some(reply) = fs.attempt(clock.now(), clock.time_of_day(), *ticket, &operations[*index]) else {
                    return true;
                };
                let reply = reply.map_err(|refusal| refused(fs, self.refusal, path, refusal));
                over(*index, fs, reply);
                false
            });
            if waiting.is_empty() {
                break;
            }
            if fs.next_due().is_none() && !fs.has_reads() {
                // Nobody keeps anything of the file system while it is not locked but frames of reads, so nothing else could end the wait.
                let state = fs.describe();
                for (index, ticket) in waiting.drain(..) {
                    fs.abandon(ticket);
                    over(index, fs, Err(FileError::from(Stopped::Device(state.clone()))));
                }
                break;
            }
            taken = self.turns.wait_for_progress(taken);
        }
        self.turns.leave(taken);
    }

    /// Makes everything durable that was over before.
    pub(super) fn sync(&self, path: &str) -> Result<(), FileError> {
        let records = |shared: &Shared<M>| shared.with_fs(|fs| fs.statistics().syncs);
        let before = records(self);
        self.run(path, &Operation::Sync).map(drop)?;
        if records(self) == before {
            Counts::add(&self.counts.syncs_for_nothing, 1);
        }
        Ok(())
    }

    /// What was done since the drive was opened.
    pub(super) fn statistics(&self) -> AlfsFileStatistics {
        self.with_fs(|fs| {
            let done = *fs.statistics();
            let (block, zones) = fs.target().zones().statistics();
            let figures = AlfsFigures {
                zones: *zones,
                data_blocks: done.data,
                name_blocks: done.names,
                node_blocks: done.nodes + done.patches,
                map_blocks: done.map,
                summary_blocks: done.summaries,
                record_blocks: done.records,
                records: done.syncs,
                blocks_cleaned: done.moved,
                segments_cleaned: done.segments_cleaned,
                segments_trimmed: done.segments_trimmed,
                memory_bytes: fs.memory_bytes(),
            };
            FileStatistics::of(&self.counts, block, fs.target().block().media().pu_busy(), figures)
        })
    }
}

impl<M: Media> Drop for Shared<M> {
    fn drop(&mut self) {
        self.turns.end();
        let helper = self.helper.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(helper) = helper {
            // If it has panicked, others have said so: the lock is poisoned.
            let _ = helper.join();
        }
    }
}

/// A refusal as users of files are told.
fn refused<M: Media>(fs: &Fs<M>, why_read_only: Option<&str>, path: &str, refusal: Refusal) -> FileError {
    let text = match (refusal, fs.failure()) {
        (Refusal::ReadOnly | Refusal::Device, Some(why)) => format!("{path}: the file system takes no changes: {why}"),
        (Refusal::ReadOnly, None) => format!("{path}: {}", why_read_only.unwrap_or("the file system takes no changes")),
        _ => format!("{path}: {refusal}"),
    };
    match refusal {
        Refusal::NotFound | Refusal::Stale => FileError::NotFound(path.to_owned()),
        Refusal::Exists => FileError::Exists(path.to_owned()),
        Refusal::NotEmpty => FileError::Busy(text),
        Refusal::TooBig => FileError::TooLarge(text),
        Refusal::NoRoom => FileError::NoSpace(text),
        Refusal::ReadOnly => FileError::ReadOnly(text),
        Refusal::Device => FileError::Io(text),
        Refusal::NotADirectory
        | Refusal::IsADirectory
        | Refusal::Invalid
        | Refusal::NotPermitted
        | Refusal::NameTooLong
        | Refusal::TooManyLinks
        | Refusal::NoXattr
        | Refusal::XattrTooBig
        | Refusal::NoSuchOffset => FileError::Invalid(text),
    }
}

/// Why a file system cannot be used.
pub(super) fn mount_error(error: MountError) -> FileError {
    let text = error.to_string();
    match error {
        MountError::Drive(IoError::ReadOnly) => FileError::ReadOnly(text),
        MountError::Drive(_) | MountError::DriveFailed | MountError::Stopped(_) => FileError::Io(text),
        MountError::NoRecord(_)
        | MountError::RecordLost { .. }
        | MountError::RecordsGone
        | MountError::NothingToRebuild => FileError::Corruption(text),
        MountError::NoSegments
        | MountError::TooFewSegments { .. }
        | MountError::SegmentsTooShort { .. }
        | MountError::TooLarge { .. }
        | MountError::TooFewOpen { .. }
        | MountError::TooFewFrames { .. }
        | MountError::OtherVersion(_)
        | MountError::NoVolume
        | MountError::OtherShape { .. } => FileError::Invalid(text),
    }
}
