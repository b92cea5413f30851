//! What a run is played on: a drive of any kind on its [`Rig`], its host, and the model that judges both.
//!
//! Whoever has an FTL of another kind writes these functions for it, and has all histories that the explorer draws: requests, faults, power
//! cuts at every event, cuts of recoveries, restarts with other settings.

use crate::fate::States;
use crate::fault::Fault;
use crate::rig::Rig;
use crate::step::{Moment, Step};
use crate::wire::Wire;
use openftl_blocks::Ftl;
use openftl_core::{Clock, Frame, Nanos, TraceHash};
use openftl_parts::{Access, Config, OpenError, Target};

/// What a history is played on, whatever the drive is for and whoever has it: all that the loop of [`mod@crate::explore`] asks for. Each [`Played`] is one.
pub trait Plays {
    /// What the drive is connected to its device by.
    fn wire(&self) -> &Wire;

    /// The drive is opened with these settings from the next time on.
    fn set_next_config(&mut self, config: Config);

    /// Whether the drive is open, with all that is on it.
    fn is_open(&self) -> bool;

    /// Opens it.
    ///
    /// # Errors
    /// Why it is refused.
    fn open(&mut self) -> Result<(), String>;

    /// See [`Played::request`].
    fn request(&mut self, step: &Step);

    /// See [`Played::requests_under_way`].
    fn requests_under_way(&self) -> usize;

    /// See [`Played::inject`].
    fn inject(&mut self, fault: Fault) -> bool;

    /// See [`Played::clean_restart`].
    fn clean_restart(&mut self);

    /// See [`Played::probe`].
    fn probe(&self);

    /// See [`Played::verify_all`].
    fn verify_all(&mut self);

    /// See [`Played::is_damaged`].
    fn is_damaged(&self) -> bool;

    /// See [`Played::check`].
    fn check(&mut self);

    /// See [`Played::trace`].
    fn trace(&self) -> TraceHash;

    /// See [`Played::power_cut_at`].
    fn power_cut_at(&mut self, moment: Moment) -> States;

    /// See [`Played::recover`].
    ///
    /// # Errors
    /// What contradicts the model.
    fn recover(&mut self) -> Result<(), String>;

    /// See [`Played::pump`].
    fn pump(&mut self);

    /// See [`Played::settle`].
    fn settle(&mut self);

    /// See [`Played::idle`].
    fn idle(&mut self, span: Nanos);

    /// Whether the drive takes no more writes.
    fn is_read_only(&mut self) -> bool;
}

impl<P: Played> Plays for P {
    fn wire(&self) -> &Wire {
        &self.rig().wire
    }

    fn set_next_config(&mut self, config: Config) {
        self.rig_mut().next_config = Some(config);
    }

    fn is_open(&self) -> bool {
        self.rig().ftl.is_some()
    }

    fn open(&mut self) -> Result<(), String> {
        self.rig_mut().open(Access::ReadWrite).map_err(|error: OpenError| error.to_string())
    }

    fn request(&mut self, step: &Step) {
        Played::request(self, step);
    }

    fn requests_under_way(&self) -> usize {
        Played::requests_under_way(self)
    }

    fn inject(&mut self, fault: Fault) -> bool {
        Played::inject(self, fault)
    }

    fn clean_restart(&mut self) {
        Played::clean_restart(self);
    }

    fn probe(&self) {
        Played::probe(self);
    }

    fn verify_all(&mut self) {
        Played::verify_all(self);
    }

    fn is_damaged(&self) -> bool {
        Played::is_damaged(self)
    }

    fn check(&mut self) {
        Played::check(self);
    }

    fn trace(&self) -> TraceHash {
        Played::trace(self)
    }

    fn power_cut_at(&mut self, moment: Moment) -> States {
        Played::power_cut_at(self, moment)
    }

    fn recover(&mut self) -> Result<(), String> {
        Played::recover(self)
    }

    fn pump(&mut self) {
        Played::pump(self);
    }

    fn settle(&mut self) {
        Played::settle(self);
    }

    fn idle(&mut self, span: Nanos) {
        Played::idle(self, span);
    }

    fn is_read_only(&mut self) -> bool {
        self.rig_mut().ftl().is_read_only()
    }
}

/// What has ended on a drive.
pub type DoneOf<F> = <F as Target>::Done;

/// See the module.
pub trait Played: Sized {
    /// The FTL.
    type Ftl: Ftl<Media = Wire> + Target;

    /// The drive, its device and its clock.
    fn rig(&self) -> &Rig<Self::Ftl>;

    /// The same, to work with.
    fn rig_mut(&mut self) -> &mut Rig<Self::Ftl>;

    /// Submits what a step asks of the drive.
    fn request(&mut self, step: &Step);

    /// Books what has ended.
    fn take(&mut self, done: Vec<DoneOf<Self::Ftl>>);

    /// Requests that have not ended.
    fn requests_under_way(&self) -> usize;

    /// Forgets them all: the power is gone.
    fn forget_requests(&mut self);

    /// Lets something go wrong. Gives whether there was a place for it.
    fn inject(&mut self, fault: Fault) -> bool;

    /// Compares all of a drive that was just opened with the model, which goes on with what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    fn judge(&mut self) -> Result<(), String>;

    /// Closes the drive and opens it again.
    fn clean_restart(&mut self);

    /// Has a copy of what a power cut has left recover, work and close.
    fn probe(&self);

    /// Reads the whole drive and compares it with the model.
    fn verify_all(&mut self);

    /// Whether something on the medium was damaged that the drive cannot have twice.
    fn is_damaged(&self) -> bool;

    /// Has the drive verify itself.
    ///
    /// # Panics
    /// If it finds anything.
    fn check(&mut self) {
        let report = self.rig_mut().check();
        assert!(report.is_sound(), "{:#?}", report.findings);
    }

    /// What the host waits for, in words.
    fn awaited(&self) -> String {
        format!("{} requests", self.requests_under_way())
    }

    /// A hash over all that has happened.
    fn trace(&self) -> TraceHash {
        self.rig().wire.trace()
    }

    /// The power goes, whatever is under way, at a later instant of the device ([`Wire::power_cut`]); the FTL is gone.
    fn power_cut_at(&mut self, moment: Moment) -> States {
        self.rig_mut().ftl = None;
        self.forget_requests();
        self.rig().wire.power_cut(moment)
    }

    /// Opens the drive after a power cut, if it is not open, and compares all of it with the model, which goes on with what was found.
    ///
    /// # Errors
    /// What contradicts the model.
    fn recover(&mut self) -> Result<(), String> {
        if self.rig().ftl.is_none() {
            self.rig_mut().open(Access::ReadWrite).map_err(|error: OpenError| error.to_string())?;
        }
        self.judge()
    }

    /// Lets the drive work once more, and books what has ended.
    ///
    /// # Panics
    /// If nothing will end any more.
    fn pump(&mut self) {
        match self.rig_mut().step() {
            Ok(done) => self.take(done),
            Err(why) => self.stopped(&why),
        }
    }

    /// What the host waits for will not come.
    ///
    /// # Panics
    /// With what the drive is doing.
    fn stopped(&mut self, why: &str) -> ! {
        let awaited = self.awaited();
        panic!("{why}, and {awaited} or frames are waited for: {}", self.rig_mut().ftl().describe());
    }

    /// Waits until no request is under way.
    fn settle(&mut self) {
        while self.requests_under_way() > 0 {
            self.pump();
        }
    }

    /// Lets the drive work until `span` has passed.
    fn idle(&mut self, span: Nanos) {
        let until = self.rig_mut().begin_idle(span);
        loop {
            match self.rig_mut().step_until(until) {
                Ok(Some(done)) => self.take(done),
                Ok(None) => break,
                Err(polled) => self.stopped(&polled),
            }
        }
        self.rig_mut().clock.wait_until(until);
        self.rig_mut().wait_anew();
    }

    /// Frames for a request, once there are so many.
    fn frames(&mut self, count: u64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let form = self.rig().config.payload;
        while !self.rig_mut().ftl().frames_mut().acquire_many(form, count as usize, &mut frames) {
            self.pump();
        }
        frames
    }
}
