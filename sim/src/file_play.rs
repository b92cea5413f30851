//! ALFS as the explorer plays it: a small volume on a drive of segments, in lock step with the model, with faults and power cuts at any event.
//!
//! | a step | does |
//! |---|---|
//! | `jwrite37` | asks the file system, and the model, for what is drawn from 37 |
//! | a cut | leaves one of the states since the last sync that was over: the file system is mounted, and has to be like one of them |
//! | a restart | unmounts, closes, opens and mounts: everything is there |
//!
//! The drive belongs to the file system while that is mounted, so this is no [`Played`](crate::played::Played).
//!
//! Where the medium fails so often that a segment with records is lost, or nothing is left to replace one, the file system takes no more changes. That is
//! right, if programs or erases were made to fail, and excuses refusals alone: what was over can still be read, all of it, as long as the file system is
//! mounted; and what a power cut leaves then can be mounted by readers, and is one of the states since the last sync that was over. The history is over with that.
//!
//! After a cut that tore what was being programmed the drive may have blocks below a write pointer that cannot be read, and that no sync needs. What its
//! check says of such blocks is not judged: whether the file system misses one, its own check and the model say.

use crate::alfs::Alfs;
use crate::fate::States;
use crate::fault::{Fault, FaultKind, disturb};
use crate::file_crash_points::FileStage;
use crate::file_replies::Leniency;
use crate::file_steps::{FileStep, FileSteps, FileWeights};
use crate::file_world::State;
use crate::played::Plays;
use crate::step::{FileDeed, Moment, Step};
use crate::wire::Wire;
use openftl_blocks::Ftl;
use openftl_core::{Nanos, TraceHash};
use openftl_media::Profile;
use openftl_parts::{Access, Config};
use openftl_zones::ZoneConfig;
use std::rc::Rc;

/// Operations of a copy that was recovered.
const OPERATIONS: u32 = 4;

/// So long after a change the file system syncs by itself.
const SYNC_AFTER: Nanos = Nanos::from_millis(40);

const LENIENCY: Leniency = Leniency { may_be_full: true, accessed_is_rough: true };

/// What a file system, or its drive, says that takes no more changes because of its medium.
const OF_MEDIUM: [&str; 7] = [
    "the medium of a segment",
    "the drive does not take a record",
    "the drive takes no more writes",
    "the drive could not make durable",
    "the drive is read-only",
    "worn out",
    "the chunks for superblocks have gone bad",
];

/// How a refusal is told, in place of which there may be no other difference from the model.
const REFUSALS: [&str; 6] = [
    "it is refused: ",
    "a sync ended with ",
    "it does not unmount: ",
    "it does not mount: ",
    "the drive does not open: ",
    "the drive does not close: ",
];

/// See the module.
pub struct FilePlay {
    stage: FileStage<Alfs>,
    wire: Wire,
    /// The states that a power cut may have left, while the file system is not mounted.
    left: Vec<Rc<State>>,
    /// Programs or erases fail.
    medium_fails: bool,
    /// The medium has failed too often.
    is_over: bool,
    probes: u64,
}

impl FilePlay {
    /// A new file system on a new drive.
    ///
    /// # Errors
    /// If there can be no such drive, or no file system on it.
    pub fn new(
        profile: Profile,
        config: Config,
        segments: ZoneConfig,
        chunks: u32,
        seed: u64,
    ) -> Result<FilePlay, String> {
        let faults = &profile.faults;
        let medium_fails = faults.program_fail > 0.0 || faults.erase_fail > 0.0 || profile.chip.endurance < 1_000;
        let mut stage = FileStage::new(Alfs::syncing_after(SYNC_AFTER), profile, config, segments, chunks, seed)?;
        stage.world().leniency = LENIENCY;
        stage.rig().may_wear_out = true;
        let wire = stage.wire().clone();
        Ok(FilePlay { stage, wire, left: Vec::new(), medium_fails, is_over: false, probes: 0 })
    }

    /// What goes wrong is wrong, unless it is a refusal because the medium has failed too often.
    ///
    /// # Panics
    /// If it is wrong.
    fn expect(&mut self, result: Result<(), String>) {
        let Err(error) = result else { return };
        self.judge_over(&self.stage, &error);
        self.is_over = true;
    }

    /// What goes wrong is a refusal because the medium has failed too often, and nothing that was promised is lost.
    ///
    /// # Panics
    /// If not.
    fn judge_over(&self, stage: &FileStage<Alfs>, error: &str) {
        let failure = stage.mounted().and_then(|world| world.subject.failure());
        let state = || stage.mounted().map_or(String::new(), |world| world.subject.describe());
        let is_refusal = REFUSALS.iter().any(|refusal| error.contains(refusal));
        let may_be = self.may_be(error) || failure.is_some_and(|failure| self.may_be(failure));
        assert!(is_refusal && may_be, "{error}; {failure:?}; {}", state());
        let left = if stage.states().is_empty() { &self.left } else { stage.states() };
        let mut readers = stage.fork_to_look_at(Rc::new(Alfs::for_readers()));
        if let Err(lost) = readers.mount_as(Access::Inspect, left) {
            panic!("after {error}; {failure:?}: for readers: {lost}; {}", state());
        }
    }

    /// Whether this may be said of the medium.
    fn may_be(&self, error: &str) -> bool {
        self.medium_fails && OF_MEDIUM.iter().any(|of_medium| error.contains(of_medium))
    }

    fn step(&mut self, step: &FileStep) {
        if !self.is_over {
            let result = self.stage.world().step(step);
            self.expect(result);
        }
    }
}

impl Plays for FilePlay {
    fn wire(&self) -> &Wire {
        &self.wire
    }

    fn set_next_config(&mut self, config: Config) {
        self.stage.rig().next_config = Some(config);
    }

    fn is_open(&self) -> bool {
        self.is_over || self.stage.mounted().is_some()
    }

    fn open(&mut self) -> Result<(), String> {
        if self.is_over {
            return Ok(());
        }
        let mounted = self.stage.mount(&self.left).map(|_| self.stage.world().leniency = LENIENCY);
        match mounted {
            Err(error) if self.may_be(&error) => {
                self.expect(Err(error));
                Ok(())
            }
            mounted => mounted,
        }
    }

    fn request(&mut self, step: &Step) {
        let Step::File(FileDeed { act, pick }) = step else { unreachable!("no other step is for files: {step:?}") };
        if self.is_over {
            return;
        }
        let mut steps = FileSteps::new((*pick).into(), FileWeights::none());
        (steps.files_max, steps.bytes_max, steps.write_bytes_max) = (40, 512 << 10, 60 << 10);
        let step = steps.of(*act, &self.stage.world().model);
        self.step(&step);
    }

    fn requests_under_way(&self) -> usize {
        0
    }

    fn inject(&mut self, fault: Fault) -> bool {
        if self.is_over {
            return false;
        }
        // A read that has failed once is not to fail once more.
        self.settle();
        self.medium_fails |= matches!(fault.kind, FaultKind::Program | FaultKind::Close | FaultKind::Erase);
        let Some(world) = self.stage.mounted() else { return false };
        let block = world.subject.target().block();
        disturb(&mut self.wire.device(), block, world.clock.0, fault)
    }

    fn clean_restart(&mut self) {
        if !self.is_over {
            self.left = self.stage.world().states().to_vec();
            let result = self.stage.remount();
            self.expect(result);
        }
    }

    fn probe(&self) {
        if self.is_over {
            return;
        }
        let mut copy = self.stage.fork();
        let worked = copy.mount(&self.left).and_then(|_| {
            copy.world().leniency = LENIENCY;
            copy.prove(self.wire.events(), OPERATIONS, self.probes.is_multiple_of(4))
        });
        if let Err(error) = worked {
            self.judge_over(&copy, &format!("a copy that was recovered: {error}"));
        }
    }

    fn verify_all(&mut self) {
        if !self.is_over {
            let result = self.stage.world().verify().map(drop);
            self.expect(result);
        }
    }

    fn is_damaged(&self) -> bool {
        self.is_over
    }

    fn check(&mut self) {
        self.left = self.stage.world().states().to_vec();
        let result = self.stage.check_drive();
        self.expect(result);
    }

    fn trace(&self) -> TraceHash {
        self.wire.trace()
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        if let Some(left) = self.stage.forget() {
            self.left = left;
        }
        self.stage.rig().ftl = None;
        self.probes += 1;
        self.wire.power_cut(moment)
    }

    fn recover(&mut self) -> Result<(), String> {
        // Whatever is mounted was compared with the model.
        if self.is_open() { Ok(()) } else { self.open() }
    }

    fn pump(&mut self) {
        self.settle();
    }

    fn settle(&mut self) {
        if !self.is_over {
            let result = self.stage.world().settle();
            self.expect(result);
        }
    }

    fn idle(&mut self, span: Nanos) {
        self.step(&FileStep::Idle(span));
    }

    fn is_read_only(&mut self) -> bool {
        self.is_over
    }
}
