//! ALFS on a drive of segments under a load of files, in virtual time: made, aged, measured, cut off from its power, and read back.
//!
//! One host has one operation at a time. Writes end when the file system has them, so many are under way at the drive.

use crate::file_load::{FileLoad, FileStep, WRITE_BYTES_MAX, name_of};
use openftl_alfs::mounting::MountError;
use openftl_alfs::operation::{Operation, Reply};
use openftl_alfs::{FileKind, FileSystem, FileTime, Inode, NewFile, Options, Refusal, Volume};
use openftl_blocks::Ftl;
use openftl_core::{BLOCK_BYTES, Clock, Nanos, Stamp, VirtualClock};
use openftl_media::EmulatedDevice;
use openftl_parts::{Access, Config, OpenError, Statistics};
use openftl_segments::SegmentFtl;
use openftl_zones::{AskedLimits, ZoneConfig, ZoneFtl};
use std::collections::BTreeMap;

/// A drive of segments.
pub type Segments = SegmentFtl<Box<ZoneFtl<EmulatedDevice>>>;

/// Polls in a row without progress, after which the file system hangs.
const FRUITLESS_POLLS_MAX: u32 = 100_000;

/// Why a trial came to no end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AlfsError {
    /// The file system cannot be made or mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The drive cannot be opened.
    #[error("the drive of segments: {0}")]
    Drive(String),
    /// A step is refused.
    #[error("{step} is refused: {refusal}")]
    Refused {
        /// Which.
        step: String,
        /// Why.
        refusal: Refusal,
    },
    /// An operation never ends.
    #[error("the file system hangs: {0}")]
    Hangs(String),
    /// A file is not as it was written.
    #[error("block {block} of file {file} is not what was written there")]
    WrongData {
        /// The file.
        file: u32,
        /// The block.
        block: usize,
    },
    /// The volume contradicts itself.
    #[error("the volume is not sound: {0}")]
    NotSound(String),
}

impl From<OpenError> for AlfsError {
    fn from(error: OpenError) -> AlfsError {
        AlfsError::Drive(error.to_string())
    }
}

/// What the file system, and the drive below it, did for what programs wrote.
#[derive(Clone, Debug)]
pub struct AlfsPhase {
    /// Bytes that programs wrote.
    pub bytes: u64,
    /// How long it took.
    pub span: Nanos,
    /// Of the file system.
    pub blocks: openftl_alfs::Statistics,
    /// Of the drive.
    pub drive: Statistics,
}

/// How long a power cut kept files away, on the drive's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlfsRecovery {
    /// Until the drive was open.
    pub drive: Nanos,
    /// From then on until the volume was mounted.
    pub volume: Nanos,
}

/// A file as its host knows it.
struct Known {
    inode: Inode,
    /// The stamp of each whole block that was written last as a whole; 0: it was not.
    stamps: Vec<u64>,
}

/// See the module.
pub struct AlfsTrial {
    /// `None` only while a power cut lasts.
    volume: Option<Volume<Segments>>,
    clock: VirtualClock,
    config: Config,
    files: BTreeMap<u32, Known>,
    memory: Vec<u8>,
    stamp: u64,
}

impl AlfsTrial {
    /// A new file system on a new drive.
    ///
    /// # Errors
    /// If there can be none.
    pub fn new(device: EmulatedDevice, config: Config, segments: ZoneConfig) -> Result<AlfsTrial, AlfsError> {
        let mut clock = VirtualClock::default();
        let drive = Segments::format(device, config.clone(), segments, &mut clock)?;
        let volume = Volume::format(drive, config.drive_id, (0, 0), FileTime::default(), &mut clock)?;
        let memory = vec![0; WRITE_BYTES_MAX as usize];
        Ok(AlfsTrial { volume: Some(volume), clock, config, files: BTreeMap::new(), memory, stamp: 0 })
    }

    /// The volume.
    ///
    /// # Panics
    /// Never: it is mounted whenever nobody is inside.
    #[must_use]
    pub fn volume(&self) -> &Volume<Segments> {
        self.volume.as_ref().expect("it is mounted")
    }

    /// Bytes that the drive needs to know where its segments are.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.volume().target().map_memory_bytes()
    }

    fn mounted(&mut self) -> &mut Volume<Segments> {
        self.volume.as_mut().expect("it is mounted")
    }

    /// Lets the load make its files.
    ///
    /// # Errors
    /// If the file system refuses one, or hangs.
    pub fn fill(&mut self, load: &mut FileLoad) -> Result<(), AlfsError> {
        while let Some(step) = load.fill_step() {
            self.take(step)?;
        }
        Ok(())
    }

    /// Runs the load until it has written so many bytes, and syncs.
    ///
    /// # Errors
    /// As [`AlfsTrial::fill`].
    pub fn run(&mut self, load: &mut FileLoad, bytes: u64) -> Result<AlfsPhase, AlfsError> {
        let (began, blocks) = (self.clock.now(), *self.volume().statistics());
        let before = self.volume().target().block().statistics().clone();
        let mut written = 0;
        while written < bytes {
            let step = load.step();
            written += step.bytes();
            self.take(step)?;
        }
        _ = self.ask("a sync", &Operation::Sync)?;
        let span = self.clock.now().since(began);
        let after = self.volume().target().block().statistics();
        Ok(AlfsPhase {
            bytes: written,
            span,
            blocks: difference(self.volume().statistics(), &blocks),
            drive: counted(after, &before),
        })
    }

    fn take(&mut self, step: FileStep) -> Result<(), AlfsError> {
        match step {
            FileStep::Make { file } => {
                let new = NewFile { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, device: 0 };
                let name = name_of(file);
                let make = Operation::Make { parent: Inode::ROOT, name: name.as_bytes(), file: new };
                let Reply::Attributes(attributes) = self.ask("the making of a file", &make)? else {
                    unreachable!("a file that was made is shown")
                };
                self.files.insert(file, Known { inode: attributes.inode, stamps: Vec::new() });
            }
            FileStep::Write { file, offset, bytes, .. } => self.write(file, offset, bytes as usize)?,
            FileStep::Sync { .. } | FileStep::SyncAll => _ = self.ask("a sync", &Operation::Sync)?,
            FileStep::Remove { file } => {
                self.files.remove(&file);
                let name = name_of(file);
                let unlink = Operation::Unlink { parent: Inode::ROOT, name: name.as_bytes() };
                _ = self.ask("the removal of a file", &unlink)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, file: u32, offset: u64, bytes: usize) -> Result<(), AlfsError> {
        let mut memory = std::mem::take(&mut self.memory);
        let known = self.files.get_mut(&file).expect("it was made");
        let end = offset + bytes as u64;
        let (first, last) = (offset as usize / BLOCK_BYTES, (end as usize).div_ceil(BLOCK_BYTES));
        known.stamps.resize(known.stamps.len().max(last), 0);
        for (at, block) in memory[..bytes.next_multiple_of(BLOCK_BYTES)].as_chunks_mut().0.iter_mut().enumerate() {
            self.stamp += 1;
            Stamp(self.stamp).expand(block);
            if offset.is_multiple_of(BLOCK_BYTES as u64) {
                let is_whole = (at + 1) * BLOCK_BYTES <= bytes;
                known.stamps[first + at] = if is_whole { self.stamp } else { 0 };
            }
        }
        if !offset.is_multiple_of(BLOCK_BYTES as u64) {
            known.stamps[first..last].fill(0);
        }
        let inode = known.inode;
        let result = self.ask("a write", &Operation::Write { inode, offset, data: &memory[..bytes] });
        self.memory = memory;
        result.map(drop)
    }

    fn ask(&mut self, step: &str, operation: &Operation<'_>) -> Result<Reply, AlfsError> {
        let ticket = self.mounted().ticket();
        let mut fruitless = 0;
        loop {
            let now = self.clock.now();
            let time_of_day = FileTime { seconds: (now.0 / 1_000_000_000) as i64, nanoseconds: 0 };
            if let Some(reply) = self.mounted().attempt(now, time_of_day, ticket, operation) {
                return reply.map_err(|refusal| AlfsError::Refused { step: step.to_owned(), refusal });
            }
            if self.mounted().poll(now) {
                fruitless = 0;
                continue;
            }
            fruitless += 1;
            let due = self.volume().next_due();
            let Some(due) = due.filter(|_| fruitless < FRUITLESS_POLLS_MAX) else {
                return Err(AlfsError::Hangs(format!("{step}, {}", self.volume().describe())));
            };
            let now = self.clock.wait_until(due);
            if self.mounted().poll(now) {
                fruitless = 0;
            }
        }
    }

    /// Cuts the power behind a sync, and mounts the volume again.
    ///
    /// # Errors
    /// If that is not possible, or the volume is not sound.
    pub fn recover(&mut self) -> Result<AlfsRecovery, AlfsError> {
        _ = self.ask("a sync", &Operation::Sync)?;
        let media = self.volume.take().expect("it is mounted").into_target().crash();
        let began = self.clock.now();
        let (config, asked) = (self.config.clone(), AskedLimits::default());
        let drive = Segments::open_with(media, config, asked, Access::ReadWrite, &mut self.clock)?;
        let opened = self.clock.now();
        let volume = Volume::mount(drive, Options::default(), &mut self.clock).map_err(|(_, error)| error)?;
        let mounted = self.clock.now();
        self.volume = Some(volume);
        Ok(AlfsRecovery { drive: opened.since(began), volume: mounted.since(opened) })
    }

    /// Verifies the volume, and reads all blocks of files that were written as a whole. Gives their number.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify(&mut self) -> Result<u64, AlfsError> {
        let mut clock = self.clock;
        let report = self.mounted().check(&mut clock, &mut |_, _| ())?;
        self.clock = clock;
        if !report.is_sound() {
            return Err(AlfsError::NotSound(format!("{:?}", report.findings)));
        }
        let forgotten = self.mounted().statistics().blocks_forgotten;
        if forgotten > 0 {
            return Err(AlfsError::NotSound(format!(
                "{forgotten} blocks of segments that were cleaned counted as of use"
            )));
        }
        let mut verified = 0;
        for (file, Known { inode, stamps }) in std::mem::take(&mut self.files) {
            for (begins, stamps) in (0..).step_by(32).zip(stamps.chunks(32)) {
                let (offset, bytes) = ((begins * BLOCK_BYTES) as u64, (stamps.len() * BLOCK_BYTES) as u32);
                let Reply::Data(data) = self.ask("a read", &Operation::Read { inode, offset, bytes })? else {
                    unreachable!("a read has data")
                };
                let mut found = Vec::with_capacity(bytes as usize);
                self.volume().data(&data, &mut |piece| found.extend_from_slice(piece));
                self.mounted().give_back(data);
                for ((block, stamp), found) in (begins..).zip(stamps).zip(found.as_chunks().0) {
                    if *stamp != 0 && Stamp::recognise(found) != Some(Stamp(*stamp)) {
                        return Err(AlfsError::WrongData { file, block });
                    }
                    verified += u64::from(*stamp != 0);
                }
            }
        }
        Ok(verified)
    }
}

/// What was counted from `before` on.
fn difference(after: &openftl_alfs::Statistics, before: &openftl_alfs::Statistics) -> openftl_alfs::Statistics {
    openftl_alfs::Statistics {
        data: after.data - before.data,
        names: after.names - before.names,
        nodes: after.nodes - before.nodes,
        map: after.map - before.map,
        patches: after.patches - before.patches,
        summaries: after.summaries - before.summaries,
        records: after.records - before.records,
        moved: after.moved - before.moved,
        segments_cleaned: after.segments_cleaned - before.segments_cleaned,
        blocks_forgotten: after.blocks_forgotten - before.blocks_forgotten,
        segments_trimmed: after.segments_trimmed - before.segments_trimmed,
        syncs: after.syncs - before.syncs,
        bytes_written: after.bytes_written - before.bytes_written,
        operations: after.operations - before.operations,
    }
}

/// Of the accounts of a drive those that experiments look at, from `before` on.
fn counted(after: &Statistics, before: &Statistics) -> Statistics {
    let mut statistics = after.clone();
    statistics.host_blocks_written -= before.host_blocks_written;
    statistics.host_blocks_read -= before.host_blocks_read;
    statistics.host_flushes -= before.host_flushes;
    statistics.resets -= before.resets;
    for (after, before) in statistics.programmed.iter_mut().zip(before.programmed) {
        *after -= before;
    }
    for (after, before) in statistics.groups.iter_mut().zip(&before.groups) {
        after.relocated -= before.relocated;
    }
    statistics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_load::FileModel;
    use openftl_core::FrameForm;
    use openftl_media::{Profile, Store, Timing};
    use openftl_zones::{Face, Limits};

    const WIDTH: u32 = 2;

    fn trial(chunks: u32) -> AlfsTrial {
        let mut profile = Profile::builtin("bluedbm").unwrap();
        (profile.groups, profile.pus_per_group) = (WIDTH, 1);
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, 1).unwrap();
        let limits = Limits { max_open: 8, max_active: 8 };
        let (face, width) = (Face::Segments, WIDTH);
        let segments = ZoneConfig { face, width, limits, zones: None, extension_bytes: 0, window_blocks: 0 };
        AlfsTrial::new(device, Config { payload: FrameForm::Bytes, ..Config::default() }, segments).unwrap()
    }

    impl AlfsTrial {
        fn make(&mut self, file: u32) {
            self.take(FileStep::Make { file }).unwrap();
        }

        fn write_blocks(&mut self, file: u32, first: u64, blocks: u64) {
            for block in first..first + blocks {
                let (offset, bytes) = (block * BLOCK_BYTES as u64, BLOCK_BYTES as u32);
                self.take(FileStep::Write { file, offset, bytes }).unwrap();
            }
        }

        /// Hosts are silent for so long.
        fn idle(&mut self, span: Nanos) {
            let end = self.clock.now() + span;
            while let Some(due) = self.volume().next_due().filter(|due| *due <= end) {
                let now = self.clock.wait_until(due);
                self.mounted().poll(now);
            }
            self.clock.wait_until(end);
        }
    }

    /// Slides 13 to 21, with 64 blocks for each of their pages, or 63: A B C D fill a segment, E B F G the next one, and then the first is cleaned.
    #[test]
    fn the_example_of_the_slides_moves_three_letters_and_erases_two_chunks() {
        let mut trial = trial(116);
        let shape = trial.volume().segments().shape;
        let letter = u64::from(shape.segment_blocks / 4);
        let first = u64::from(shape.data_blocks()) - 3 * letter;
        [0, 1].into_iter().for_each(|file| trial.make(file));
        trial.write_blocks(0, 0, first + 3 * letter);
        trial.write_blocks(1, 0, first);
        trial.write_blocks(0, first, letter);
        trial.write_blocks(1, first, 2 * letter);
        // Others fill the volume, until cleaning is wanted; nothing of theirs is of no use.
        trial.make(2);
        let mut written = 0;
        while trial.volume().segments().free() >= shape.reserve() as usize {
            trial.write_blocks(2, written, letter);
            written += letter;
        }
        trial.take(FileStep::SyncAll).unwrap();
        let resets = trial.volume().target().block().statistics().resets;
        assert_eq!(trial.volume().statistics().moved, 0);
        trial.idle(Nanos::from_millis(60_000));
        // The segment is trimmed, and erased when the drive has made that durable.
        for _ in 0..2 {
            trial.write_blocks(2, written, 1);
            trial.take(FileStep::SyncAll).unwrap();
            trial.idle(Nanos::from_millis(1_000));
        }
        let (alfs, drive) = (trial.volume().statistics(), trial.volume().target().block().statistics());
        let moved_by_drive: u64 = drive.groups.iter().map(|group| group.relocated).sum();
        assert_eq!((alfs.moved, alfs.segments_cleaned, moved_by_drive), (first + 2 * letter, 1, 0), "A, C and D");
        assert_eq!((alfs.segments_trimmed, drive.resets - resets), (1, u64::from(WIDTH)));
        assert!(trial.verify().unwrap() > written);
    }

    #[test]
    fn files_of_every_load_are_as_they_were_written_behind_a_power_cut() {
        for model in FileModel::ALL {
            let mut trial = trial(130);
            let mut load = FileLoad::new(model, 60 << 20, 3);
            trial.fill(&mut load).unwrap();
            let phase = trial.run(&mut load, 90 << 20).unwrap();
            assert!(phase.bytes >= 90 << 20 && phase.span > Nanos::ZERO, "{model}: {phase:?}");
            assert!(phase.blocks.segments_trimmed > 0, "{model}: {:?}", phase.blocks);
            let recovery = trial.recover().unwrap_or_else(|error| panic!("{model}: {error}"));
            assert!(recovery.drive > Nanos::ZERO && recovery.volume > Nanos::ZERO, "{model}: {recovery:?}");
            let verified = trial.verify().unwrap_or_else(|error| panic!("{model}: {error}"));
            assert!(verified > 8_000, "{model}: {verified} blocks");
        }
    }
}
