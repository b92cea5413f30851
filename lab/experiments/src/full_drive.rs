//! A new drive in memory and virtual time, under a load until it has settled, and what it does then: one [`Trial`].

use super::ExperimentError;
use hdrhistogram::Histogram;
use openftl_blocks::BlockFtl;
use openftl_core::units::Share;
use openftl_core::{FrameForm, Nanos, VirtualClock};
use openftl_lab::load::Load;
use openftl_lab::trial::unwatched;
use openftl_lab::{Binding, Limit, LoadSpec, Measured, Trial, WarmUp};
use openftl_media::{EmulatedDevice, Profile, Store, Timing};
use openftl_parts::{Config, chunks_per_pu};

/// What is done to a drive.
#[derive(Clone, Debug)]
pub struct FullDrive {
    /// The NAND.
    pub profile: Profile,
    /// How long it takes.
    pub timing: Timing,
    /// What its owner chose; payload and identity are set here.
    pub config: Config,
    /// What the host does.
    pub load: LoadSpec,
    /// What of its hints the drive is told.
    pub binding: Binding,
    /// Requests under way at a time.
    pub queue_depth: usize,
    /// The least time from one request to the next.
    pub pace: Nanos,
    /// Capacities that are written before anything is measured, without a pace.
    pub warm_up: f64,
    /// Capacities that are written while it is measured.
    pub drive_writes: f64,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// Latencies in microseconds and the share of the requests that took no longer: a few of them, so that each can have a bar.
#[must_use]
pub fn percentiles(latency: &Histogram<u64>) -> Vec<(f64, f64)> {
    const SHARES: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995];
    // A buffered write may take no time at all, which has no place on an axis of decades.
    SHARES.iter().map(|share| (latency.value_at_quantile(*share).max(100) as f64 / 1e3, *share)).collect()
}

impl FullDrive {
    /// Fills the drive, lets it settle, and measures.
    ///
    /// # Errors
    /// If the drive cannot be made, or returns anything else than was written.
    pub fn run(&self) -> Result<Measured, ExperimentError> {
        let limit = Limit::BlocksWritten((self.config.capacity_blocks as f64 * self.drive_writes).round() as u64);
        Ok(self.settled(|load| load)?.measure(limit, self.pace, &mut unwatched)?)
    }

    /// Fills the drive, and lets it settle, under what `change` makes of the load.
    ///
    /// # Errors
    /// If the drive cannot be made, or does not work.
    pub fn settled(
        &self,
        change: impl FnOnce(Box<dyn Load>) -> Box<dyn Load>,
    ) -> Result<Trial<EmulatedDevice, VirtualClock>, ExperimentError> {
        let config = Config { payload: FrameForm::Stamp, drive_id: self.seed, ..self.config.clone() };
        let shape = self.profile.geometry(self.profile.chunks_per_pu)?;
        let chunks = chunks_per_pu(&shape, &config, Share::percent(0))?;
        let device = EmulatedDevice::new(self.profile.clone(), chunks, Store::Stamps, self.timing, self.seed)?;
        let mut clock = VirtualClock::default();
        let blocks = config.capacity_blocks;
        let drive = BlockFtl::format(device, config, &mut clock)?;
        let load = self.load.build(blocks, None, self.seed, &mut |_| Err(std::io::ErrorKind::Unsupported.into()))?;
        let mut trial = Trial::new(drive, clock, change(load), self.queue_depth, self.binding);
        trial.prepare(WarmUp::DriveWrites(self.warm_up), &mut unwatched)?;
        Ok(trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openftl_core::BLOCK_BYTES;
    use openftl_parts::CollectionScope;

    fn overwritten(change: impl Fn(&mut Config)) -> Measured {
        let mut config = Config {
            capacity_blocks: (128 << 20) / BLOCK_BYTES as u64,
            over_provisioning: Share::percent(10),
            ..Config::default()
        };
        change(&mut config);
        let drive = FullDrive {
            profile: Profile::builtin("cosmos").unwrap(),
            timing: Timing::Modelled,
            config,
            load: "uniform".parse().unwrap(),
            binding: Binding::None,
            queue_depth: 32,
            pace: Nanos::ZERO,
            warm_up: 1.5,
            drive_writes: 0.5,
            seed: 1,
        };
        drive.run().unwrap()
    }

    /// A die carries out what it is given in order. All that was read of a victim was given to it at once, so that what somebody waited
    /// for stood behind it, for 50 ms and more.
    #[test]
    fn a_durable_write_does_not_wait_for_all_that_collection_moves() {
        let measured = overwritten(|config| config.write_through = true);
        assert!(measured.statistics.programmed_for(openftl_parts::Purpose::Relocation) > 10_000);
        let p99 = measured.outcome.writes.latency.value_at_quantile(0.99);
        assert!(p99 < 30_000_000, "{p99} ns");
    }

    /// Groups that are collected side by side share the frames: one that fills them with what waits for its die starves the others, and
    /// their victims are full when their turn comes.
    #[test]
    fn groups_that_are_collected_side_by_side_do_not_starve_each_other() {
        let measured = overwritten(|config| config.collection = CollectionScope::DeviceWide);
        assert!(measured.statistics.waf() < 3.0, "{}", measured.statistics.waf());
    }
}
