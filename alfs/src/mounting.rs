//! A volume is made, and found again.
//!
//! | step of a mount | reads, writes |
//! |---|---|
//! | find the records | all blocks of both anchors, some at a time |
//! | choose the last one that counts | the write pointers of segments: what a record needs has to be there; the blocks of patches that the newest one has written (`chain`) |
//! | read patches | the blocks with the newest patches of nodes, as that record says |
//! | settle | a block behind the records, so that nobody goes on with them; a whole record in the other anchor, and a flush; before it nothing else is written |
//! | make good | summaries that are there in part; segments that should be empty are trimmed |
//!
//! The write pointers tell whether a record counts, so nothing may move them before there is a new record: otherwise a record that did not count would
//! count after the next power cut. A volume that is mounted read-only stops before that.

use crate::block::{Bytes, Kind, NotIt, Seen, VERSION, look, zeroes};
use crate::chain::{Chain, read_volume};
use crate::inode::{Fields, IS_INLINE, fields_mut};
use crate::node_map::block_of;
use crate::operation::{FileKind, FileSystem, FileTime, Inode};
use crate::patch;
use crate::record::{HeadPlace, NoRecord, Record};
use crate::requests::{read_blocks, read_each, run};
use crate::segments::{ANCHORS, Head, LOGS, Log, Owner, SEGMENT_BLOCKS_MIN, SEGMENTS_MIN, Shape, State};
use crate::volume::{Options, Volume};
use openftl_core::{BLOCK_BYTES, Clock};
use openftl_parts::target::{Durability, IoError, Request, SegmentTarget};
use std::collections::BTreeMap;

/// Frames that a volume needs: those of the longest operation, and of what goes on beside it.
pub const FRAMES_MIN: usize = 512;

/// Why a volume cannot be made or mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MountError {
    /// The drive is not written in order.
    #[error("the drive has no segments: make one with `kind = \"segments\"`")]
    NoSegments,
    /// The drive has too few segments.
    #[error(
        "the drive has {segments} segments, and a file system needs {SEGMENTS_MIN}: make segments of fewer chunks (segment_width), or a larger drive"
    )]
    TooFewSegments {
        /// As many as it has.
        segments: u64,
    },
    /// Its segments are too short.
    #[error(
        "the drive has segments of {blocks} blocks, and a file system needs {SEGMENT_BLOCKS_MIN}: make them of more chunks (segment_width)"
    )]
    SegmentsTooShort {
        /// As long as they are.
        blocks: u64,
    },
    /// The drive is larger than addresses reach.
    #[error("the drive has {blocks} blocks, and a file system can have {}", 1_u64 << 32)]
    TooLarge {
        /// As many as it has.
        blocks: u64,
    },
    /// Too few segments may be written at a time.
    #[error("the drive writes {most} segments at a time, and a file system needs {}: open it with max_open_segments = {}", LOGS + 2, LOGS + 2)]
    TooFewOpen {
        /// As many as it may.
        most: u32,
    },
    /// The drive has too little memory.
    #[error("the drive has {frames} frames for blocks, and a file system needs {least}")]
    TooFewFrames {
        /// As many as it has.
        frames: usize,
        /// As many as it needs.
        least: usize,
    },
    /// The volume is of another version of the format.
    #[error(
        "the file system is of version {0} of the format, and this program reads version {VERSION}: copy its files with the program that made it, \
         and make it anew with `openftl alfs mkfs --force`"
    )]
    OtherVersion(u8),
    /// There is no volume.
    #[error("there is no file system on the drive: make one with `openftl alfs mkfs`")]
    NoVolume,
    /// There are records, and none counts.
    #[error(
        "the file system has no record that counts; the newest: {0}. `openftl alfs fsck --rebuild` makes it anew from what is in its logs"
    )]
    NoRecord(NoRecord),
    /// Segments have blocks of a file system, and its records are gone.
    #[error(
        "the records of the file system are gone: `openftl alfs fsck --rebuild` makes it anew from what is in its logs"
    )]
    RecordsGone,
    /// A record that was durable cannot be read, and older ones can.
    #[error(
        "record {durable} of the file system was durable and cannot be read, the newest that can be is {found}: mount it again; if it stays so, \
         `openftl alfs fsck --rebuild` makes the file system anew from what is in its logs"
    )]
    RecordLost {
        /// The number of the newest one that was durable, at least.
        durable: u64,
        /// That of the newest one that can be read.
        found: u64,
    },
    /// The drive has failed while records were read.
    #[error(
        "the drive failed while the records of the file system were read, so newer ones may be there than those that were: mount it again when the drive answers"
    )]
    DriveFailed,
    /// A rebuild has found nothing.
    #[error("no log on the drive has a node of a file system, so there is nothing to be rebuilt")]
    NothingToRebuild,
    /// The volume is of another drive.
    #[error("the file system was made for {made} segments of {of} blocks, and the drive has {has} of {has_of}")]
    OtherShape {
        /// Segments that the volume has.
        made: u32,
        /// Their blocks.
        of: u32,
        /// Segments that the drive has.
        has: u32,
        /// Their blocks.
        has_of: u32,
    },
    /// The drive failed.
    #[error("the drive failed: {0}")]
    Drive(#[from] IoError),
    /// The volume stopped.
    #[error("the file system stopped: {0}")]
    Stopped(&'static str),
}

/// The shape of a volume on this drive.
pub(crate) fn shape_of(target: &impl SegmentTarget) -> Result<Shape, MountError> {
    let segment_blocks = target.segment_blocks().ok_or(MountError::NoSegments)?;
    let blocks = target.blocks();
    if blocks > 1 << 32 {
        return Err(MountError::TooLarge { blocks });
    }
    let segments = blocks / segment_blocks;
    if segments < u64::from(SEGMENTS_MIN) {
        return Err(MountError::TooFewSegments { segments });
    }
    if segment_blocks < u64::from(SEGMENT_BLOCKS_MIN) {
        return Err(MountError::SegmentsTooShort { blocks: segment_blocks });
    }
    let most = target.segments_in_part_max();
    if most < LOGS as u32 + ANCHORS {
        return Err(MountError::TooFewOpen { most });
    }
    let frames = target.frames().len();
    if frames < FRAMES_MIN {
        return Err(MountError::TooFewFrames { frames, least: FRAMES_MIN });
    }
    Ok(Shape { segments: segments as u32, segment_blocks: segment_blocks as u32 })
}

/// Whether a drive has a file system, or had one that can be rebuilt: whether an anchor begins with a record, of any version of the format.
///
/// # Errors
/// If the drive fails. What cannot be read is no record.
pub fn has_records(target: &mut impl SegmentTarget, clock: &mut dyn Clock) -> Result<bool, MountError> {
    let Some(segment_blocks) = target.segment_blocks() else { return Ok(false) };
    let mut is_found = false;
    for anchor in
        (0..ANCHORS).filter(|anchor| u64::from(*anchor) * segment_blocks < target.blocks()).collect::<Vec<_>>()
    {
        if target.segment(anchor).written == 0 {
            continue;
        }
        read_each(target, clock, anchor * segment_blocks as u32, 1, &mut |_, block| {
            is_found |= match block.map(look) {
                Some(Ok(Seen { kind, .. })) => kind == Kind::Record,
                Some(Err(NotIt::Version(_))) => true,
                Some(Err(_)) | None => false,
            };
        })?;
    }
    Ok(is_found)
}

/// Blocks that the making of a volume has written when its first record is whole, and some more.
const BLOCKS_OF_FORMAT: u32 = 16;

/// Whether a drive that cannot be mounted for this reason is empty, or holds no more than a power cut has left of [`Volume::format`]: a root folder
/// and a first record that was not written to its end. Nobody loses anything if a volume is made there.
///
/// # Errors
/// If the drive fails. What cannot be read may have been anything.
pub fn is_unfinished(
    target: &mut impl SegmentTarget,
    why: &MountError,
    clock: &mut dyn Clock,
) -> Result<bool, MountError> {
    if !matches!(why, MountError::NoVolume | MountError::NoRecord(_) | MountError::RecordsGone) {
        return Ok(false);
    }
    let shape = shape_of(target)?;
    let written = |target: &mut _, segment| SegmentTarget::segment(target, segment).written;
    let begun: Vec<u32> = (0..shape.segments).filter(|segment| written(target, *segment) > 0).collect();
    // The first record is in the last anchor; what is in another one was written later.
    if begun.iter().any(|segment| *segment < ANCHORS - 1 || written(target, *segment) > BLOCKS_OF_FORMAT) {
        return Ok(false);
    }
    let mut is_of_format = true;
    for segment in begun {
        let count = written(target, segment);
        read_each(target, clock, shape.first_of(segment), count, &mut |_, block| {
            is_of_format &= match block.map(look) {
                Some(Ok(Seen { kind: Kind::Record, sequence, .. })) => segment < ANCHORS && sequence == 1,
                Some(Ok(Seen { kind: Kind::Inode, identity, .. })) => identity == Inode::ROOT.0,
                Some(Ok(Seen { kind: Kind::NodeMap, .. })) => true,
                Some(_) | None => false,
            };
        })?;
    }
    Ok(is_of_format)
}

impl<T: SegmentTarget> Volume<T> {
    /// Makes a volume on a drive, whatever is there. `id` is drawn by chance, so that nothing of an earlier volume is taken for its own; `owner` and
    /// `group` have its root.
    ///
    /// # Errors
    /// If the drive cannot have one.
    pub fn format(
        mut target: T,
        id: u64,
        (owner, group): (u32, u32),
        time_of_day: FileTime,
        clock: &mut dyn Clock,
    ) -> Result<Volume<T>, MountError> {
        let shape = shape_of(&target)?;
        // Also those that are empty: another host may have opened them.
        let blocks = u64::from(shape.segment_blocks);
        for segment in 0..shape.segments {
            let first = u64::from(segment) * blocks;
            run(&mut target, clock, Request::Trim { first, blocks, durability: Durability::Volatile })?;
        }
        run(&mut target, clock, Request::Flush)?;
        let mut volume = Volume::blank(target, id, shape, Options::default());
        volume.now = clock.now();
        volume.map.grow();
        volume.make_root(owner, group, time_of_day);
        volume.settle(clock)?;
        Ok(volume)
    }

    /// A new root folder. Its number is the first of those that are free.
    pub(crate) fn make_root(&mut self, owner: u32, group: u32, time_of_day: FileTime) {
        let mut bytes = zeroes();
        let fields: &mut Fields = fields_mut(&mut bytes);
        fields.kind = FileKind::Directory as u8;
        fields.flags = IS_INLINE;
        fields.mode = 0o755.into();
        (fields.uid, fields.gid) = (owner.into(), group.into());
        fields.links = 2.into();
        fields.parent = Inode::ROOT.0.into();
        fields.blocks = 1.into();
        for time in [&mut fields.accessed, &mut fields.modified, &mut fields.changed, &mut fields.born] {
            *time = time_of_day.into();
        }
        Self::clear_names(&mut bytes);
        let root = self.new_node(Kind::Inode, bytes);
        assert_eq!(root, Inode::ROOT.0, "the first node is the root");
        self.files += 1;
    }

    /// Mounts the volume of a drive.
    ///
    /// # Errors
    /// If there is none, or none that can be read. Nothing has been written then.
    pub fn mount(mut target: T, options: Options, clock: &mut dyn Clock) -> Result<Volume<T>, (T, MountError)> {
        match read_volume(&mut target, clock) {
            Ok(chain) => Volume::of_chain(target, &chain, options, clock),
            Err(error) => Err((target, error)),
        }
    }

    fn of_chain(
        target: T,
        chain: &Chain,
        options: Options,
        clock: &mut dyn Clock,
    ) -> Result<Volume<T>, (T, MountError)> {
        let shape = chain.records[0].shape;
        let mut volume = Volume::blank(target, chain.volume, shape, options);
        volume.now = clock.now();
        volume.time_of_day = FileTime::default();
        let mut owners: BTreeMap<u32, Vec<Owner>> = BTreeMap::new();
        for record in &chain.records {
            if let Err(error) = volume.apply(record, &mut owners) {
                return Err((volume.target, MountError::NoRecord(error)));
            }
        }
        let last = &chain.records[chain.records.len() - 1];
        let Some(patches) = chain.patches(chain.records.len()) else {
            return Err((volume.target, MountError::NoRecord(NoRecord::Impossible("patches"))));
        };
        if let Err(error) = volume.read_patches(&patches, clock) {
            return Err((volume.target, error));
        }
        if !volume.are_heads(last) {
            return Err((volume.target, MountError::NoRecord(NoRecord::Impossible("heads of logs"))));
        }
        for (log, place) in Log::ALL.into_iter().zip(last.heads) {
            let Some(place) = place else { continue };
            let mut owners = owners.remove(&place.segment).unwrap_or_default();
            if owners.len() != place.written as usize {
                return Err((volume.target, MountError::NoRecord(NoRecord::Impossible("owners"))));
            }
            let submitted = volume.target.segment(place.segment).written;
            owners.resize(submitted.min(shape.data_blocks()).max(place.written) as usize, Owner::default());
            let head =
                Head { segment: place.segment, owners, recorded: 0, submitted, run: Vec::new(), has_failed: false };
            volume.segments.heads[log as usize] = Some(head);
        }
        // A number that was used, and may be in a record that does not count, is not used again.
        volume.syncing.durable = last.sequence;
        volume.syncing.next = last.sequence + 2;
        volume.syncing.anchor = chain.anchor;
        volume.syncing.anchor_written = volume.target.segment(chain.anchor).written;
        volume.segments.age = last.segments.iter().map(|(_, segment)| segment.age).max().unwrap_or(0).saturating_add(1);
        if options.is_read_only {
            return Ok(volume);
        }
        volume.doomed.extend(std::mem::take(&mut volume.orphans));
        let settled = volume.settle(clock).and_then(|()| volume.find_abandoned(&last.heads, clock));
        if let Err(error) = settled {
            return Err((volume.target, error));
        }
        volume.make_good();
        Ok(volume)
    }

    /// A sync that a power cut has ended may have left nodes that are newer than those that count. The blocks of the map of nodes that they are in are
    /// written with the next record, and are newer than they: so a rebuild, which has no records, does not take them for the nodes. Nodes that it has
    /// patched are written whole, so that its patches are of an older block.
    fn find_abandoned(&mut self, heads: &[Option<HeadPlace>; LOGS], clock: &mut dyn Clock) -> Result<(), MountError> {
        let shape = self.segments.shape;
        // Blocks are read past the volume, which must not miss what it has begun.
        while !self.io.is_empty() {
            self.now = clock.now();
            if !self.take_completions() {
                let due = self.target.next_due();
                clock.wait_until(
                    due.ok_or(MountError::Stopped("the drive has nothing to do, and a trim has not ended"))?,
                );
            }
        }
        for log in [Log::HotNode, Log::WarmNode, Log::ColdNode] {
            let Some(place) = heads[log as usize] else { continue };
            let head = self.segments.heads[log as usize].as_ref().filter(|head| head.segment == place.segment);
            let owners = head.map_or(&[][..], |head| &head.owners);
            // Nobody has what such a sync has left: it is behind the record, or was behind the one that a mount found before, which did not come to write
            // anew what it had left.
            let is_left = |at: &u32| owners.get(*at as usize).is_none_or(|owner| *owner == Owner::default());
            let end = self.target.segment(place.segment).written.min(shape.data_blocks());
            let left: Vec<u32> = (0..end).filter(|at| *at >= place.written || is_left(at)).collect();
            for at in left {
                let block = match read_blocks(&mut self.target, clock, shape.first_of(place.segment) + at, 1) {
                    Ok(blocks) => blocks.into_iter().next(),
                    Err(MountError::Drive(_)) => None,
                    Err(error) => return Err(error),
                };
                let seen = block.as_ref().and_then(|block| look(block).ok()).filter(|seen| seen.volume == self.id);
                if let (Some(block), Some(Seen { kind: Kind::Patches, .. })) = (&block, seen) {
                    self.abandon_patches(block);
                    continue;
                }
                let index = match seen {
                    Some(seen) if seen.kind.is_node() => block_of(seen.identity),
                    Some(seen) if seen.kind == Kind::NodeMap => seen.identity,
                    _ => continue,
                };
                while self.map.blocks.len() <= index as usize && index < shape.map_blocks_max() {
                    self.map.grow();
                }
                if index < shape.map_blocks_max() {
                    self.syncing.map_moves.insert(index);
                    self.changed();
                }
            }
        }
        Ok(())
    }

    /// Patches that no record counts.
    fn abandon_patches(&mut self, block: &Bytes) {
        let nodes = patch::entries(block).unwrap_or_default().into_iter().map(|entry| entry.node);
        let blocks = self.map.blocks.len();
        self.patches.abandoned.extend(nodes.filter(|node| (block_of(*node) as usize) < blocks));
        self.changed();
    }

    /// Whether the segments that are being written are those that the logs of a record go on in, each in one.
    fn are_heads(&self, record: &Record) -> bool {
        let mut heads: Vec<HeadPlace> = record.heads.iter().flatten().copied().collect();
        heads.sort_unstable_by_key(|head| head.segment);
        let open = (0..).zip(self.segments.all()).filter(|(_, segment)| segment.state == State::Open);
        let mut heads = heads.into_iter();
        let are_open = open.into_iter().all(|(index, segment)| {
            heads.next().is_some_and(|head| head.segment == index && segment.valid <= head.written)
        });
        are_open && heads.next().is_none()
    }

    fn apply(&mut self, record: &Record, owners: &mut BTreeMap<u32, Vec<Owner>>) -> Result<(), NoRecord> {
        let impossible = |what| Err(NoRecord::Impossible(what));
        if record.shape != self.segments.shape {
            return impossible("division into segments");
        }
        if record.is_whole {
            self.map.blocks.clone_from(&record.map);
        } else if (record.map_blocks as usize) < self.map.blocks.len() {
            return impossible("map");
        } else {
            self.map.blocks.resize(record.map_blocks as usize, crate::record::MapBlock::default());
        }
        for (node, address) in &record.nodes {
            self.map.changes.insert(*node, *address);
            if *address == 0 {
                let free = &mut self.map.blocks[crate::node_map::block_of(*node) as usize].free;
                *free = (*free + 1).min(crate::node_map::NODES_PER_BLOCK as u16);
            }
        }
        for (index, segment) in &record.segments {
            self.segments.restore(*index, *segment);
            if segment.state != State::Open {
                owners.remove(index);
            }
        }
        for new in &record.owners {
            let known = owners.entry(new.segment).or_default();
            if record.is_whole || new.first == 0 {
                known.clear();
            }
            if known.len() != new.first as usize {
                return impossible("owners");
            }
            known.extend_from_slice(&new.owners);
        }
        self.next_generation = record.next_generation;
        self.files = record.files;
        self.doomed.clone_from(&record.doomed);
        self.orphans = record.orphans.iter().copied().collect();
        Ok(())
    }

    /// Makes everything durable, and nothing else.
    pub(crate) fn settle(&mut self, clock: &mut dyn Clock) -> Result<(), MountError> {
        self.syncing.is_wanted = true;
        let wanted = self.syncing.next;
        while self.syncing.durable < wanted {
            self.now = clock.now();
            let progress = [self.take_completions(), self.go_on_syncing()];
            if let Some(why) = self.failed {
                return Err(MountError::Stopped(why));
            }
            if progress.contains(&true) {
                continue;
            }
            match self.target.next_due() {
                Some(due) => _ = clock.wait_until(due),
                None => return Err(MountError::Stopped("the drive has nothing to do, and a flush has not ended")),
            }
        }
        Ok(())
    }

    /// What a power cut has left is as it would be without one.
    fn make_good(&mut self) {
        for log in Log::ALL {
            let head = self.segments.heads[log as usize].as_ref();
            if head.is_some_and(|head| !self.target.segment(head.segment).is_writable) {
                self.strand(log);
                continue;
            }
            let is_at_end = self.segments.heads[log as usize].is_some() && self.segments.room(log) == 0;
            if is_at_end {
                self.append_summary(log);
            }
        }
        for segment in ANCHORS..self.segments.shape.segments {
            let is_free = self.segments.segment(segment).state == State::Free;
            let facts = self.target.segment(segment);
            if is_free && facts.written > 0 {
                self.segments.trim(segment);
                self.trim(segment);
            } else if is_free && !facts.is_writable {
                self.segments.give_up(segment);
            }
        }
    }

    /// Makes everything durable, and gives the drive back.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn unmount(mut self, clock: &mut dyn Clock) -> Result<T, (T, MountError)> {
        if self.options.is_read_only {
            return Ok(self.target);
        }
        loop {
            if let Some(why) = self.failed {
                return Err((self.target, MountError::Stopped(why)));
            }
            // With the map of nodes on media, and nodes without patches, what a rebuild finds is what was there.
            let is_behind = !self.map.changes.is_empty() || self.patches.movable().next().is_some();
            self.syncing.wants_map = is_behind && self.segments.free() >= self.segments.shape.wait_below();
            let has_changes = self.syncing.due.is_some() || self.syncing.is_wanted || self.syncing.wants_map;
            if !has_changes && self.syncing.is_idle() && self.io.is_empty() {
                return Ok(self.target);
            }
            self.syncing.is_wanted |= has_changes;
            let now = clock.now();
            if self.poll(now) {
                continue;
            }
            match self.next_due() {
                Some(due) => _ = clock.wait_until(due),
                None => return Err((self.target, MountError::Stopped("nothing is due, and not all is durable"))),
            }
        }
    }
}

const _: () = assert!(BLOCK_BYTES == 4096);
