//! Every state in which a power cut can leave a zoned drive, recovered and judged.

use crate::caught::caught;
use crate::zone_model::FoundZone;
use crate::zone_world::ZoneWorld;
use openftl_parts::Access;
use rustc_hash::FxHashMap;
use std::fmt;

/// Of so many recoveries one is cut, everywhere.
const RECOVERIES_CUT: u64 = 8;

/// The crash points of a workload so far.
#[derive(Default)]
pub struct ZoneCrashPoints {
    /// What was found after the recovery of each state.
    known: FxHashMap<u64, Vec<FoundZone>>,
    /// Different states that a cut left.
    pub cuts: u64,
    /// Different states that a cut of one of their recoveries left.
    pub recovery_cuts: u64,
}

impl fmt::Display for ZoneCrashPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states after a power cut, {} after one during the recovery", self.cuts, self.recovery_cuts)
    }
}

impl ZoneCrashPoints {
    /// Judges every state that a power cut could have left since the last call, and every one that a cut of its recovery could.
    ///
    /// # Errors
    /// What contradicts the model, and after which cut.
    pub fn judge(&mut self, world: &mut ZoneWorld) -> Result<(), String> {
        for (crash_point, model) in world.take_crash_points() {
            let name = format!("cut after event {} at {} ns", crash_point.event, crash_point.at.0);
            if let Some(found) = self.known.get(&crash_point.fingerprint) {
                model.verdict(found).map_err(|error| format!("{name}: {error}"))?;
                continue;
            }
            let fingerprint = crash_point.fingerprint;
            self.cuts += 1;
            let mut recovered = world.after_cut(crash_point, model.clone());
            let is_watched = self.cuts.is_multiple_of(RECOVERIES_CUT);
            if is_watched {
                recovered.wire.watch();
            }
            let found = judged(&mut recovered).map_err(|error| format!("{name}: {error}"))?;
            self.known.insert(fingerprint, found.clone());
            let within = recovered.take_crash_points();
            recovered.wire.ignore();
            let operations = if self.cuts.is_multiple_of(10) { 30 } else { 0 };
            caught(|| {
                recovered.adopt(&found);
                recovered.prove(operations);
            })
            .map_err(|failure| format!("{name}, and then: {failure}"))?;
            for (crash_point, _) in within {
                let name = format!("{name}, then recovery cut after event {}", crash_point.event);
                let fingerprint = crash_point.fingerprint;
                if let Some(found) = self.known.get(&fingerprint) {
                    model.verdict(found).map_err(|error| format!("{name}: {error}"))?;
                    continue;
                }
                self.recovery_cuts += 1;
                let mut recovered = world.after_cut(crash_point, model.clone());
                let found = judged(&mut recovered).map_err(|error| format!("{name}: {error}"))?;
                self.known.insert(fingerprint, found.clone());
                caught(|| {
                    recovered.adopt(&found);
                    recovered.prove(0);
                })
                .map_err(|failure| format!("{name}, and then: {failure}"))?;
            }
        }
        Ok(())
    }
}

fn judged(world: &mut ZoneWorld) -> Result<Vec<FoundZone>, String> {
    caught(|| {
        world.open(Access::ReadWrite).map_err(|error| error.to_string())?;
        world.find()
    })
    .unwrap_or_else(|panic| Err(panic.to_string()))
}
