//! Every state in which a power cut can leave a file system on a drive of segments, mounted again and judged.
//!
//! ```text
//!   step ─▶ file world ─▶ file system ─▶ segments ─▶ wire ─▶ device
//!                │                                     │ each state that a cut could leave
//!              states since the last sync              ▼
//!                └────────────────▶ one of them? ◀─ portrait ◀─ mounted ◀─ opened
//! ```
//!
//! A file system under test is plugged in by [`Mounts`].

use crate::crash_points::{CrashPoints, Judge, Left, Noted};
use crate::file_replies::Leniency;
use crate::file_steps::{Asked, FileStep, FileSteps, FileWeights};
use crate::file_world::{FileWorld, State, States, verdict};
use crate::liveness::{Deadline, Patience};
use crate::portrait::Portrait;
use crate::rig::Rig;
use crate::wire::{CrashPoint, Wire};
use openftl_alfs::FileSystem;
use openftl_alfs::operation::Operation;
use openftl_blocks::CheckReport;
use openftl_core::Clock;
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Access, Config};
use openftl_segments::SegmentFtl;
use openftl_zones::{ZoneConfig, ZoneFtl};
use rustc_hash::FxHashMap;
use std::fmt;
use std::rc::Rc;

/// A drive of segments on a wire.
pub type SegmentDrive = SegmentFtl<Box<ZoneFtl<Wire>>>;

/// How a file system comes onto a drive and off it. The power is cut by dropping the volume with its drive.
pub trait Mounts {
    /// A mounted file system, which has its drive.
    type Volume: FileSystem;

    /// A new, empty file system. It is durable.
    ///
    /// # Errors
    /// If there can be none.
    fn make(&self, drive: SegmentDrive, clock: &mut dyn Clock) -> Result<Self::Volume, String>;

    /// The file system that is there.
    ///
    /// # Errors
    /// If there is none that can be used.
    fn mount(&self, drive: SegmentDrive, clock: &mut dyn Clock) -> Result<Self::Volume, String>;

    /// Ends its use. All that is over is durable then, and the drive has nothing under way.
    ///
    /// # Errors
    /// If that cannot be.
    fn unmount(&self, volume: Self::Volume, clock: &mut dyn Clock) -> Result<SegmentDrive, String>;
}

/// A file system with its drive and its device.
pub struct FileStage<M: Mounts> {
    mounts: Rc<M>,
    rig: Rig<SegmentDrive>,
    world: Option<FileWorld<M::Volume>>,
    /// The states that a power cut could have left when the file system was last unmounted, or gone.
    left: Vec<Rc<State>>,
    crash_points: Noted<States>,
}

impl<M: Mounts> FileStage<M> {
    /// A new file system on a new drive; `chunks` as for [`EmulatedDevice::new`].
    ///
    /// # Errors
    /// If there can be no such drive, or no file system on it.
    pub fn new(
        mounts: M,
        profile: Profile,
        config: Config,
        segments: ZoneConfig,
        chunks: u32,
        seed: u64,
    ) -> Result<FileStage<M>, String> {
        let device = EmulatedDevice::new(profile, chunks, Store::Ram, Timing::Modelled, seed);
        let device = device.map_err(|error| error.to_string())?;
        let rig = Rig::try_new(device, config, segments, segments.limits.into(), seed);
        let rig = rig.map_err(|error| error.to_string())?;
        let mut stage = FileStage::on(rig, Rc::new(mounts));
        let (patience, drive) = stage.drive();
        let mut deadline = Deadline::new(&mut stage.rig.clock, patience, "a file system is made".to_owned());
        let volume = stage.mounts.make(drive, &mut deadline)?;
        stage.world = Some(FileWorld::new(volume, stage.rig.clock, patience)?);
        Ok(stage)
    }

    /// What is mounted.
    pub(crate) fn mounted(&self) -> Option<&FileWorld<M::Volume>> {
        self.world.as_ref()
    }

    /// The states that a power cut may leave of what is mounted, or was when it was unmounted or gone; none: it never was.
    pub(crate) fn states(&self) -> &States {
        self.mounted().map_or(&self.left, FileWorld::states)
    }

    /// The drive with its device, without the drive while a file system has it.
    pub(crate) fn rig(&mut self) -> &mut Rig<SegmentDrive> {
        &mut self.rig
    }

    /// The file system is gone, with its drive. Gives the states that it may have left; none: it was not mounted.
    pub(crate) fn forget(&mut self) -> Option<Vec<Rc<State>>> {
        let world = self.world.take()?;
        // Time goes on where the file system was.
        self.rig.clock = world.clock;
        self.rig.ftl = None;
        self.left = world.states().to_vec();
        Some(self.left.clone())
    }

    /// The same device once more, with nothing open.
    pub(crate) fn fork(&self) -> FileStage<M> {
        FileStage::on(self.rig.fork(), self.mounts.clone())
    }

    /// The same for readers, with another way to mount: what is mounted is looked at and thrown away.
    pub(crate) fn fork_to_look_at(&self, mounts: Rc<M>) -> FileStage<M> {
        // While a file system is mounted, the time is its own.
        let now = self.world.as_ref().map_or(self.rig.clock.0, |world| world.clock.0);
        FileStage::on(self.rig.fork_to_look_at(now), mounts)
    }

    fn on(rig: Rig<SegmentDrive>, mounts: Rc<M>) -> FileStage<M> {
        FileStage { mounts, rig, world: None, left: Vec::new(), crash_points: Noted::default() }
    }

    /// Unmounts the file system, has the drive check itself, and mounts it again.
    pub(crate) fn check_drive(&mut self) -> Result<(), String> {
        let leniency = self.world().leniency;
        let last = self.unmount()?;
        let report = self.rig.check();
        self.mount(&[last])?;
        self.world().leniency = leniency;
        verdict_of_drive(&report)
    }

    /// Takes the drive from its rig.
    fn drive(&mut self) -> (Patience, SegmentDrive) {
        let patience = Patience::with(&self.rig.device());
        (patience, self.rig.ftl.take().expect("the drive is open"))
    }

    /// The mounted file system and its model.
    ///
    /// # Panics
    /// If it is not mounted.
    pub fn world(&mut self) -> &mut FileWorld<M::Volume> {
        self.world.as_mut().expect("it is mounted")
    }

    /// The device and its wire.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        &self.rig.wire
    }

    /// Does what a step says, and notes the states that a power cut could have left meanwhile, if the wire is watched.
    ///
    /// # Errors
    /// How the file system differs from the model.
    pub fn step(&mut self, step: &FileStep) -> Result<(), String> {
        let before = self.world().states().to_vec();
        self.world().step(step)?;
        self.note(before);
        Ok(())
    }

    /// Crash points found since the last call: they may leave what could be left before, and what has happened since.
    fn note(&mut self, before: Vec<Rc<State>>) {
        let last = before.last().expect("there is a state").number;
        let states = self.world().states();
        let since = states.iter().filter(|state| state.number > last).cloned();
        let during: Rc<States> = before.iter().cloned().chain(since).collect();
        let now: Rc<States> = states.into();
        self.crash_points.note(&self.rig.wire, &during);
        // Looked at once more: a sync that is over now promises more.
        self.rig.wire.look();
        self.crash_points.note(&self.rig.wire, &now);
    }

    /// The crash points found since the last call, each with the states that it may leave.
    pub fn take_crash_points(&mut self) -> Vec<(CrashPoint, Rc<States>)> {
        self.crash_points.take()
    }

    /// Opens the drive and mounts what is there, which is to be in one of these states.
    pub(crate) fn mount(&mut self, states: &States) -> Result<Portrait, String> {
        self.mount_as(Access::ReadWrite, states)
    }

    /// The same for readers: with a file system that mounts read-only, on a drive that is opened so.
    pub(crate) fn mount_as(&mut self, access: Access, states: &States) -> Result<Portrait, String> {
        if self.rig.ftl.is_none() {
            self.rig.open(access).map_err(|error| format!("the drive does not open: {error}"))?;
        }
        let (patience, drive) = self.drive();
        let mut deadline = Deadline::new(&mut self.rig.clock, patience, "a file system is mounted".to_owned());
        let volume = self.mounts.mount(drive, &mut deadline).map_err(|error| format!("it does not mount: {error}"))?;
        let (world, portrait) = FileWorld::mounted(volume, self.rig.clock, patience, states)?;
        self.rig.clock = world.clock;
        self.world = Some(world);
        Ok(portrait)
    }

    /// Unmounts the file system. Gives the only state that it may be in.
    fn unmount(&mut self) -> Result<Rc<State>, String> {
        self.world().settle()?;
        let world = self.world.take().expect("it is mounted");
        self.left = world.states().to_vec();
        let last = world.states().last().expect("there is a state").clone();
        self.rig.clock = world.clock;
        let patience = Patience::with(&self.rig.device());
        let mut deadline = Deadline::new(&mut self.rig.clock, patience, "a file system is unmounted".to_owned());
        let drive = self.mounts.unmount(world.subject, &mut deadline);
        self.rig.ftl = Some(drive.map_err(|error| format!("it does not unmount: {error}"))?);
        self.rig.wait_anew();
        Ok(last)
    }

    /// Unmounts the file system, closes the drive, opens it and mounts again: everything is there.
    ///
    /// # Errors
    /// What is not.
    pub fn remount(&mut self) -> Result<(), String> {
        let (before, leniency) = (self.world().states().to_vec(), self.world().leniency);
        let last = self.unmount()?;
        self.rig.close().map_err(|reason| format!("the drive does not close: {reason}"))?;
        self.mount(&[last])?;
        self.world().leniency = leniency;
        self.note(before);
        Ok(())
    }

    /// Unmounts the file system, has `damage` done to what is on the drive, and mounts it again: everything is there. If `watches`, the states that
    /// a power cut could leave since the damage are noted.
    ///
    /// # Errors
    /// What is not.
    pub fn remount_damaged(
        &mut self,
        damage: impl FnOnce(&mut SegmentDrive, &mut dyn Clock) -> Result<(), String>,
        watches: bool,
    ) -> Result<(), String> {
        let leniency = self.world().leniency;
        let last = self.unmount()?;
        damage(self.rig.ftl.as_mut().expect("the drive is open"), &mut self.rig.clock)?;
        self.rig.wait_anew();
        if watches {
            self.rig.wire.watch();
        }
        self.mount(std::slice::from_ref(&last))?;
        self.world().leniency = leniency;
        self.note(vec![last]);
        Ok(())
    }

    /// The file system takes operations, syncs and unmounts; `is_thorough`: and is there afterwards, on a drive that is sound.
    pub(crate) fn prove(&mut self, seed: u64, operations: u32, is_thorough: bool) -> Result<(), String> {
        let mut steps = FileSteps::new(seed, FileWeights::usual());
        for _ in 0..operations {
            let step = steps.next(&self.world().model);
            self.world().step(&step)?;
        }
        self.world().step(&FileStep::Ask(Asked { shape: Operation::Sync, name: Vec::new(), payload: Vec::new() }))?;
        if is_thorough {
            self.remount()?;
        }
        self.unmount()?;
        if is_thorough {
            verdict_of_drive(&self.rig.check())?;
        }
        self.rig.close().map_err(|reason| format!("the drive does not close: {reason}"))
    }
}

/// What the drive says of itself, but for blocks that cannot be read: a torn program may have left some, which no sync needs. The file system on it says
/// whether it misses one.
fn verdict_of_drive(report: &CheckReport) -> Result<(), String> {
    let is_judged = |finding: &&String| !finding.contains("cannot be read from the medium");
    match report.findings.iter().find(is_judged) {
        None => Ok(()),
        Some(_) => Err(format!("the drive is not sound: {:#?}", report.findings)),
    }
}

/// How file systems are judged: by their portraits.
#[derive(Default)]
pub struct FileJudge {
    /// Portraits by their hash, so that each is there once.
    portraits: FxHashMap<u128, Rc<Portrait>>,
    /// As of the file system that is cut.
    leniency: Leniency,
    /// Cuts that more than one state was allowed after.
    pub open: u64,
}

/// The crash points of a workload so far.
pub type FileCrashPoints = CrashPoints<FileJudge, Rc<Portrait>>;

/// Of so many recoveries one is cut, everywhere.
const RECOVERIES_CUT: u64 = 8;

/// Of so many recovered file systems one is used for long, mounted again and checked.
const RECOVERIES_THOROUGH: u64 = 10;

/// Operations on a recovered file system, usually and in that case.
const OPERATIONS: [u32; 2] = [5, 40];

impl Default for FileCrashPoints {
    fn default() -> FileCrashPoints {
        CrashPoints::by(FileJudge::default())
    }
}

impl fmt::Display for FileCrashPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileCrashPoints { judge: FileJudge { portraits, open, .. }, cuts, recovery_cuts, repeated, .. } = self;
        let trees = portraits.len();
        write!(
            f,
            "{cuts} states after a power cut, {recovery_cuts} after one during the recovery, {repeated} judged once more; {trees} different \
             trees; {open} with a choice of trees"
        )
    }
}

impl FileCrashPoints {
    /// Judges every state that a power cut could have left since the last call, and every one that a cut of its recovery could.
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge<M: Mounts>(&mut self, stage: &mut FileStage<M>) -> Result<(), String> {
        let crash_points = stage.take_crash_points();
        let open = crash_points.iter().filter(|(_, states)| states.len() > 1);
        self.judge.open += open.count() as u64;
        self.judge_all(stage, crash_points)
    }
}

impl<M: Mounts> Judge<FileStage<M>> for FileJudge {
    type Model = States;
    type Found = Rc<Portrait>;

    fn name(CrashPoint { event, at, torn, .. }: &CrashPoint, is_of_recovery: bool) -> String {
        match is_of_recovery {
            true => format!("cut after event {event}"),
            false => format!("cut after event {event} at {} ns{}", at.0, if *torn { ", torn" } else { "" }),
        }
    }

    fn wire(stage: &FileStage<M>) -> &Wire {
        &stage.rig.wire
    }

    fn left_by(&mut self, stage: &FileStage<M>, crash_point: CrashPoint, _: &Rc<States>) -> FileStage<M> {
        self.leniency = stage.world.as_ref().map_or(Leniency::default(), |world| world.leniency);
        let rig = stage.rig.with(crash_point.device, crash_point.at);
        FileStage::on(rig, stage.mounts.clone())
    }

    fn is_cut(&mut self, left: Left, _: bool) -> bool {
        left.number.is_multiple_of(RECOVERIES_CUT)
    }

    fn recover(&mut self, stage: &mut FileStage<M>, states: &Rc<States>, _: Left) -> Result<Rc<Portrait>, String> {
        let portrait = stage.mount(states)?;
        stage.world().leniency = self.leniency;
        Ok(self.portraits.entry(portrait.hash).or_insert_with(|| Rc::new(portrait)).clone())
    }

    fn judge_again(
        &mut self,
        _: &FileStage<M>,
        _: CrashPoint,
        states: &Rc<States>,
        portrait: &Rc<Portrait>,
        _: Left,
    ) -> Result<(), String> {
        verdict(portrait, states).map(drop)
    }

    fn go_on(&mut self, stage: &mut FileStage<M>, _: &Rc<Portrait>, left: Left) -> Result<bool, String> {
        let is_thorough = !left.is_of_recovery && left.number.is_multiple_of(RECOVERIES_THOROUGH);
        let operations = OPERATIONS[usize::from(is_thorough)];
        stage.prove(left.fingerprint, operations, is_thorough)?;
        Ok(true)
    }
}
