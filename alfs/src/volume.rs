//! A mounted volume: what it has in memory, and how operations are attempted.
//!
//! An operation first loads all that it needs, which may take several attempts, and then changes everything at once, in memory and at the ends of logs.
//! So operations never see each other half done, and there is no lock.

use crate::block::{Bytes, Kind};
use crate::cache::{Budget, Cache, Key, Slot};
use crate::cleaning::Cleaning;
use crate::node_map::{NodeMap, address_in};
use crate::operation::{FileTime, Operation, Refusal, Reply, Ticket};
use crate::patches::Patches;
use crate::reading::Reading;
use crate::segments::{DELETE_ABOVE, Head, Log, Segments, Shape};
use crate::syncing::Syncing;
use openftl_core::{Frame, FrameForm, Nanos, Time};
use openftl_parts::target::{Done, Durability, IoError, Request, SegmentTarget};
use openftl_parts::words::Handle;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Why an attempt ends without a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// Something has to be read or written first.
    Wait,
    /// The operation is refused.
    Refused(Refusal),
}

impl Stop {
    /// Something on media is not what it should be.
    pub(crate) const DAMAGED: Stop = Stop::Refused(Refusal::Device);
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

pub(crate) type Step<T> = Result<T, Stop>;

/// A request to the drive that is under way.
#[derive(Debug)]
pub(crate) enum Io {
    /// A block of metadata is read.
    Load { key: Key, frame: Frame, address: u32 },
    /// Blocks of a file are read, from this address on.
    Read { ticket: Ticket, address: u32, blocks: u32 },
    /// Blocks that cleaning looks at.
    Clean { address: u32 },
    /// Blocks are written.
    Write,
    /// The block that ends an anchor is.
    Leave,
    /// A flush.
    Flush { number: u64 },
    /// A segment is trimmed.
    Trim,
}

/// What a volume has done since it was mounted. All in blocks of 4 KiB, unless it says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Contents of files that hosts wrote as whole blocks, and parts of blocks that became one.
    pub data: u64,
    /// Names.
    pub names: u64,
    /// Nodes.
    pub nodes: u64,
    /// Blocks with patches of nodes.
    pub patches: u64,
    /// The map of nodes.
    pub map: u64,
    /// Summaries of segments.
    pub summaries: u64,
    /// Records.
    pub records: u64,
    /// Contents, and names, that cleaning moved. The nodes that it made dirty are among `nodes`.
    pub moved: u64,
    /// Segments that were cleaned.
    pub segments_cleaned: u64,
    /// Blocks of segments that were cleaned which nobody has, though they counted as of use: those below nodes that cannot be read. With a medium that
    /// can be read there are none.
    pub blocks_forgotten: u64,
    /// Segments that were trimmed.
    pub segments_trimmed: u64,
    /// Times that everything was made durable.
    pub syncs: u64,
    /// Bytes that hosts wrote to files.
    pub bytes_written: u64,
    /// Operations that were over.
    pub operations: u64,
}

impl Statistics {
    /// Blocks that the file system wrote.
    #[must_use]
    pub fn blocks_written(&self) -> u64 {
        self.data + self.names + self.nodes + self.patches + self.map + self.summaries + self.records + self.moved
    }
}

/// How a volume is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Nothing is written to the drive.
    pub is_read_only: bool,
    /// What was changed is made durable after so long, if nobody asks for it before.
    pub sync_after: Nanos,
    /// Memory.
    pub budget: Budget,
}

impl Default for Options {
    fn default() -> Options {
        Options { is_read_only: false, sync_after: Nanos::from_millis(5_000), budget: Budget::default() }
    }
}

/// Free nodes that are known before an operation that makes one: no operation needs more.
pub(crate) const NODES_AHEAD: usize = 16;

/// Nodes that wait to be freed, at most, before operations wait for that.
pub(crate) const DOOMED_MAX: usize = 16_384;

/// See the module.
pub struct Volume<T> {
    pub(crate) target: T,
    pub(crate) id: u64,
    pub(crate) options: Options,
    pub(crate) segments: Segments,
    pub(crate) map: NodeMap,
    pub(crate) patches: Patches,
    pub(crate) cache: Cache,
    /// Blocks that are only in memory, and will need room.
    pub(crate) promised: u64,
    pub(crate) next_generation: u32,
    pub(crate) files: u32,
    /// Nodes that nobody needs, with all below them.
    pub(crate) doomed: Vec<u32>,
    /// Files without a name that somebody holds.
    pub(crate) orphans: BTreeSet<u32>,
    /// How often each file is held.
    pub(crate) held: FxHashMap<u32, u64>,
    /// What logs had of segments whose medium has failed, and the drive does not have.
    pub(crate) stranded: Vec<(Log, Head)>,
    /// Blocks by address that the drive did not take, and never will.
    pub(crate) kept: FxHashMap<u32, Box<Bytes>>,
    pub(crate) syncing: Syncing,
    pub(crate) cleaning: Cleaning,
    pub(crate) reads: FxHashMap<Ticket, Reading>,
    /// The first read that waits for frames, and how many it needs.
    pub(crate) waiting_read: Option<(Ticket, usize)>,
    /// For tickets of syncs: the record that has to be durable.
    pub(crate) syncs: FxHashMap<Ticket, u64>,
    pub(crate) io: BTreeMap<u64, Io>,
    /// Writes among them.
    pub(crate) writes: usize,
    /// Frames that could be had when somebody last had to wait for more: a drive gives back those of writes when it pleases.
    frames_lacking: Option<usize>,
    /// Those who wait have been told that it failed.
    has_told_failure: bool,
    next_tag: u64,
    next_ticket: u64,
    /// Something may be done without anything having ended.
    pub(crate) is_stirred: bool,
    pub(crate) now: Time,
    /// When a host last had an operation.
    pub(crate) last_operation: Time,
    pub(crate) time_of_day: FileTime,
    done: Vec<Done>,
    /// Why the volume takes no more changes, though it was mounted for them.
    pub(crate) failed: Option<&'static str>,
    pub(crate) statistics: Statistics,
}

impl<T: SegmentTarget> Volume<T> {
    /// A volume of which nothing is known but how it is divided.
    pub(crate) fn blank(target: T, id: u64, shape: Shape, options: Options) -> Volume<T> {
        Volume {
            target,
            id,
            options,
            segments: Segments::new(shape),
            map: NodeMap::default(),
            patches: Patches::default(),
            cache: Cache::new(options.budget),
            promised: 0,
            next_generation: 1,
            files: 0,
            doomed: Vec::new(),
            orphans: BTreeSet::new(),
            held: FxHashMap::default(),
            stranded: Vec::new(),
            kept: FxHashMap::default(),
            syncing: Syncing::default(),
            cleaning: Cleaning::default(),
            reads: FxHashMap::default(),
            waiting_read: None,
            syncs: FxHashMap::default(),
            io: BTreeMap::new(),
            writes: 0,
            frames_lacking: None,
            has_told_failure: false,
            next_tag: 1,
            next_ticket: 1,
            is_stirred: false,
            now: Time::ZERO,
            last_operation: Time::ZERO,
            time_of_day: FileTime::default(),
            done: Vec::new(),
            failed: None,
            statistics: Statistics::default(),
        }
    }

    /// The drive below.
    #[must_use]
    pub fn target(&self) -> &T {
        &self.target
    }

    /// The same, for those who test what the volume bears.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.target
    }

    /// The drive, without the volume: what was not synced is lost.
    #[must_use]
    pub fn into_target(self) -> T {
        self.target
    }

    /// What was done since the volume was mounted.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// How the volume is divided, and what of it is of use.
    #[must_use]
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Nodes that have a patch on media, or are to have one.
    #[must_use]
    pub fn patched_nodes(&self) -> usize {
        self.patches.len()
    }

    /// Why the volume takes no changes, if it was mounted for them and takes none.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        self.failed
    }

    /// Bytes of memory for blocks, and for segments.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.cache.bytes() + size_of_val(self.segments.all())
    }

    pub(crate) fn ticket_for(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Starts a request. `false`: the drive takes none now.
    pub(crate) fn start(&mut self, io: Io, request: Request<'_>) -> bool {
        let tag = self.next_tag;
        self.is_stirred = true;
        match self.target.submit(self.now, tag, request) {
            Ok(()) => {
                self.next_tag += 1;
                self.io.insert(tag, io);
                true
            }
            Err(IoError::QueueFull) => false,
            Err(error) if matches!(io, Io::Load { .. } | Io::Read { .. } | Io::Clean { .. }) => {
                self.end(io, Err(error));
                true
            }
            Err(_) => {
                self.fail("the drive takes no more writes");
                false
            }
        }
    }

    /// Starts a write, whose frames stay the caller's if it is refused.
    pub(crate) fn start_write(&mut self, io: Io, first: u64, frames: &[Frame]) -> Result<(), IoError> {
        let tag = self.next_tag;
        let request = Request::Write { first, frames, durability: Durability::Volatile, handle: Handle::NONE };
        self.target.submit(self.now, tag, request)?;
        self.is_stirred = true;
        self.next_tag += 1;
        self.io.insert(tag, io);
        self.writes += 1;
        Ok(())
    }

    pub(crate) fn fail(&mut self, why: &'static str) {
        self.failed.get_or_insert(why);
    }

    /// Frames that can be had now.
    pub(crate) fn frames(&self) -> usize {
        self.target.frames().available(FrameForm::Bytes)
    }

    pub(crate) fn frame(&mut self) -> Step<Frame> {
        self.target.frames_mut().acquire(FrameForm::Bytes).ok_or_else(|| {
            self.frames_lacking = Some(0);
            Stop::Wait
        })
    }

    /// Whether so many frames can be had now; if not, whoever asks waits for more.
    pub(crate) fn has_frames(&mut self, count: usize) -> bool {
        let found = self.frames();
        if found < count {
            self.frames_lacking = Some(found);
        }
        found >= count
    }

    /// Whether those who wait have something new: frames have come back, or there is nothing to wait for any more.
    pub(crate) fn is_worth_another_try(&mut self) -> bool {
        let has_failed = self.failed.is_some() && !std::mem::replace(&mut self.has_told_failure, true);
        let has_frames = self.frames_lacking.is_some_and(|found| self.frames() > found);
        if has_frames {
            self.frames_lacking = None;
        }
        has_failed || has_frames
    }

    /// Whether reads have frames, under way or until their host gives them back.
    #[must_use]
    pub fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// A free node becomes this one. There is one ([`Volume::expect_nodes`]).
    pub(crate) fn new_node(&mut self, kind: Kind, bytes: Box<Bytes>) -> u32 {
        let node = self.map.take().expect("free nodes were looked for");
        self.cache.put_node(node, bytes, kind, 0);
        _ = self.cache.node_mut(node);
        self.promised += 1;
        node
    }

    /// A node is of no use any more, and nothing below it.
    pub(crate) fn free_node(&mut self, node: u32) {
        match self.cache.node(node).address {
            0 => self.promised -= 1,
            address => self.segments.release(address),
        }
        self.forget_patch(node);
        self.cache.forget(Key::Node(node));
        self.map.free(node);
    }

    /// A node and all below it are of no use any more; they are freed one after the other.
    pub(crate) fn doom(&mut self, node: u32) {
        self.doomed.push(node);
    }

    /// Loads enough of the map to have nodes for an operation.
    pub(crate) fn expect_nodes(&mut self) -> Step<()> {
        while self.map.known_free() < NODES_AHEAD {
            match self.map.promising() {
                Some(index) => {
                    let is_written = self.pin_map(index)?;
                    let bytes = match self.cache.map_slot(index) {
                        Some(Slot::Here(bytes)) if is_written => Some(bytes),
                        _ => None,
                    };
                    self.map.learn(index, |node| bytes.map_or(0, |bytes| address_in(bytes, node)));
                }
                None => self.map.grow(),
            }
        }
        Ok(())
    }

    /// Whether something may be changed now, that needs up to `blocks` more blocks on media.
    pub(crate) fn expect_change(&mut self, blocks: u64) -> Step<()> {
        if self.options.is_read_only || self.failed.is_some() {
            return Err(Refusal::ReadOnly.into());
        }
        if self.syncing.is_gathering() {
            return Err(Stop::Wait);
        }
        self.expect_segments(blocks > 0)?;
        if self.doomed.len() > DOOMED_MAX || self.cache.dirty() >= self.dirty_max() {
            self.syncing.is_wanted |= self.cache.dirty() >= self.dirty_max();
            return Err(Stop::Wait);
        }
        if blocks > 0 && self.used() + blocks > self.segments.blocks_max() {
            return Err(if self.doomed.is_empty() { Refusal::NoRoom.into() } else { Stop::Wait });
        }
        Ok(())
    }

    /// Whether there are free segments to change something, `to_append`: to append to logs at once. Where what is of use cannot be read nothing can be
    /// cleaned, so nobody waits for that; hosts can still delete.
    pub(crate) fn expect_segments(&self, to_append: bool) -> Step<()> {
        let free = self.segments.free();
        match free < self.segments.shape.wait_below() {
            false => Ok(()),
            true if self.can_gain_segments() => Err(Stop::Wait),
            true if to_append || free < DELETE_ABOVE => Err(Refusal::NoRoom.into()),
            true => Ok(()),
        }
    }

    /// Dirty blocks before everything waits until they are written.
    pub(crate) fn dirty_max(&self) -> usize {
        (self.segments.shape.data_blocks() as usize).clamp(8, 2048)
    }

    /// Something has changed that has to be in the next record.
    pub(crate) fn changed(&mut self) {
        let due = self.now + self.options.sync_after;
        self.syncing.due.get_or_insert(due);
    }

    /// What has ended.
    fn end(&mut self, io: Io, result: Result<(), IoError>) {
        let is_fine = result.is_ok();
        self.writes -= usize::from(matches!(io, Io::Write | Io::Leave));
        match io {
            Io::Load { key, frame, address } => {
                self.segments.count_read(address, false);
                self.loaded(key, frame, address, is_fine);
                self.target.frames_mut().release(frame);
            }
            Io::Read { ticket, address, blocks } => {
                (0..blocks).for_each(|block| self.segments.count_read(address + block, false));
                self.read_ended(ticket, is_fine);
            }
            Io::Clean { address } => {
                self.segments.count_read(address, false);
                self.clean_read_ended(address, is_fine);
            }
            Io::Write if !is_fine => self.fail("a write to the drive failed"),
            Io::Write => {}
            Io::Leave => self.anchor_left(is_fine),
            Io::Flush { number } => self.flushed(number, result),
            Io::Trim if !is_fine => self.fail("a segment could not be trimmed"),
            Io::Trim => {}
        }
    }

    /// Takes completions. Returns whether there was one.
    pub(crate) fn take_completions(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.target.poll(self.now, &mut done);
        let has_ended = !done.is_empty();
        for Done { tag, result, .. } in done.drain(..) {
            let io = self.io.remove(&tag).expect("a request that ends was begun");
            self.end(io, result);
        }
        self.done = done;
        has_ended
    }

    /// The state in one line, for messages about what should never happen.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "at {} ns, the drive is due at {:?}, {} frames free, {} segments free, {} trimmed, {} blocks valid and {} promised of {}, {} dirty, {} doomed, {} requests under way, {:?}, {:?}",
            self.now.0,
            self.target.next_due(),
            self.frames(),
            self.segments.free(),
            self.segments.trimmed(),
            self.segments.valid(),
            self.promised,
            self.segments.blocks_max(),
            self.cache.dirty(),
            self.doomed.len(),
            self.io.len(),
            self.syncing,
            self.cleaning,
        )
    }

    pub(crate) fn attempt_once(&mut self, ticket: Ticket, operation: &Operation<'_>) -> Step<Reply> {
        self.submit_runs();
        match *operation {
            Operation::Lookup { parent, name } => self.lookup(parent, name),
            Operation::Attributes { inode } => {
                let fields = self.pin_inode(inode)?;
                Ok(Reply::Attributes(fields.attributes(inode)))
            }
            Operation::SetAttributes { inode, changes } => self.set_attributes(inode, &changes),
            Operation::ReadLink { inode } => self.read_link(inode),
            Operation::Make { parent, name, file } => self.make_file(parent, name, &file),
            Operation::Symlink { parent, name, target, uid, gid } => self.make_link(parent, name, target, uid, gid),
            Operation::Link { inode, parent, name } => self.link(inode, parent, name),
            Operation::Unlink { parent, name } => self.unlink(parent, name),
            Operation::RemoveDirectory { parent, name } => self.remove_directory(parent, name),
            Operation::Rename { from, from_name, to, to_name, how } => self.rename(from, from_name, to, to_name, how),
            Operation::Read { inode, offset, bytes } => self.read(ticket, inode, offset, bytes),
            Operation::Write { inode, offset, data } => self.write(inode, offset, data),
            Operation::Allocate { inode, offset, bytes, how } => self.allocate(inode, offset, bytes, how),
            Operation::Seek { inode, offset, target } => self.seek(inode, offset, target),
            Operation::ReadDirectory { inode, after, entries, with_attributes } => {
                self.read_directory(inode, after, entries, with_attributes)
            }
            Operation::GetXattr { inode, name } => self.get_xattr(inode, name),
            Operation::SetXattr { inode, name, value, how } => self.set_xattr(inode, name, value, how),
            Operation::ListXattr { inode } => self.list_xattrs(inode),
            Operation::RemoveXattr { inode, name } => self.remove_xattr(inode, name),
            Operation::Sync => self.sync(ticket),
            Operation::Room => Ok(Reply::Room(self.room())),
        }
    }
}
