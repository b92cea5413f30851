//! Wear: every chunk is reset about as often as any other, whatever the host writes, and a drive lives as long as its
//! chunks together.

use openftl_blocks::block_ftl::BlockFtl;
use openftl_blocks::wear_levelling::WEAR_SPREAD_SLACK;
use openftl_core::units::Share;
use openftl_core::{FrameForm, PayloadMut, Stamp, Time, VirtualClock};
use openftl_media::{EmulatedDevice, Media, Profile, Store, Timing};
use openftl_parts::flash::chunk_table::ChunkUse;
use openftl_parts::{
    BlockTarget, Care, Config, Durability, Handle, IoError, ReadOnlyReason, Request, Target, chunks_per_pu,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The limit that most of these drives have.
const SPREAD: u32 = 16;

const CAPACITY: u64 = 6_000;
const CAPACITY_LARGE: u64 = 24_000;

/// Which blocks are written.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Any.
    Uniform,
    /// Nine of ten writes go to a tenth of the drive.
    HotTenth,
    /// All writes go to a hundredth of the drive.
    HotHundredth,
}

struct Drive {
    ftl: BlockFtl<EmulatedDevice>,
    /// How often each block was written.
    versions: Vec<u32>,
    chance: Xoshiro256PlusPlus,
    written: u64,
}

impl Drive {
    fn new(profile: Profile, capacity: u64, wear_spread_max: Option<u32>) -> Drive {
        let config = Config {
            capacity_blocks: capacity,
            over_provisioning: Share::percent(15),
            payload: FrameForm::Stamp,
            host_frames: 512,
            wear_spread_max,
            ..Config::default()
        };
        let shape = profile.geometry(profile.chunks_per_pu).unwrap();
        let chunks = chunks_per_pu(&shape, &config, Share::percent(0)).unwrap();
        let device = EmulatedDevice::new(profile, chunks, Store::Stamps, Timing::Instant, 1).unwrap();
        let ftl = BlockFtl::format(device, config, &mut VirtualClock::default()).unwrap();
        let chance = Xoshiro256PlusPlus::seed_from_u64(1);
        Drive { ftl, versions: vec![0; capacity as usize], chance, written: 0 }
    }

    fn poll(&mut self, tag: u64) -> Option<Result<(), IoError>> {
        let mut done = Vec::new();
        self.ftl.poll(Time::ZERO, &mut done);
        done.into_iter().find(|done| done.tag == tag).map(|done| done.result)
    }

    fn write(&mut self, block: u64) -> Result<(), IoError> {
        let frame = loop {
            match self.ftl.frames_mut().acquire(FrameForm::Stamp) {
                Some(frame) => break frame,
                None => _ = self.poll(u64::MAX),
            }
        };
        let version = &mut self.versions[block as usize];
        if let PayloadMut::Stamp(stamp) = self.ftl.frames_mut().payload_mut(frame) {
            *stamp = Stamp(block << 32 | u64::from(*version + 1));
        }
        let request =
            Request::Write { first: block, frames: &[frame], durability: Durability::Volatile, handle: Handle::NONE };
        if let Err(error) = self.ftl.submit(Time::ZERO, self.written, request) {
            self.ftl.frames_mut().release(frame);
            return Err(error);
        }
        loop {
            match self.poll(self.written) {
                Some(Ok(())) => break,
                Some(Err(error)) => return Err(error),
                None => assert!(self.ftl.next_due().is_some(), "asleep: {}", self.ftl.describe()),
            }
        }
        self.versions[block as usize] += 1;
        self.written += 1;
        Ok(())
    }

    fn capacity(&self) -> u64 {
        self.versions.len() as u64
    }

    fn fill(&mut self) {
        for block in 0..self.capacity() {
            self.write(block).unwrap();
        }
    }

    fn block(&mut self, pattern: Pattern) -> u64 {
        let (draw, capacity) = (self.chance.next_u64(), self.capacity());
        // Hot blocks are strewn over the drive.
        let of = |part: u64| draw % part * (capacity / part);
        match pattern {
            Pattern::Uniform => draw % capacity,
            Pattern::HotTenth if !self.chance.next_u64().is_multiple_of(10) => of(capacity / 10),
            Pattern::HotTenth => draw % capacity,
            Pattern::HotHundredth => of(capacity / 100),
        }
    }

    fn run(&mut self, pattern: Pattern, drive_writes: u64) {
        for _ in 0..drive_writes * self.capacity() {
            let block = self.block(pattern);
            self.write(block).unwrap();
        }
    }

    fn verify(&mut self) {
        for block in 0..self.capacity() {
            let frame = self.ftl.frames_mut().acquire(FrameForm::Stamp).unwrap();
            self.ftl.submit(Time::ZERO, u64::MAX - 1, Request::Read { first: block, frames: &[frame] }).unwrap();
            while self.poll(u64::MAX - 1).map(Result::unwrap).is_none() {}
            let expected = Stamp(block << 32 | u64::from(self.versions[block as usize]));
            assert_eq!(self.ftl.frames_mut().payload(frame), openftl_core::Payload::Stamp(expected), "block {block}");
            self.ftl.frames_mut().release(frame);
        }
    }

    /// Resets of the chunks of each group, without those that hold log, checkpoint and superblock now, and without
    /// victims whose last blocks wait for others to fill a unit.
    fn resets(&self) -> Vec<Vec<u32>> {
        let geometry = *self.ftl.media().geometry();
        let format = geometry.format();
        let mut groups = vec![Vec::new(); geometry.groups as usize];
        for ((chunk, resets), (_, usage, _)) in self.ftl.media().wear().zip(self.ftl.chunk_uses()) {
            if !matches!(usage, ChunkUse::Metadata | ChunkUse::Victim) {
                groups[format.group_of(format.pu_of(chunk)) as usize].push(resets);
            }
        }
        groups
    }

    /// The difference between most and fewest resets of a group, the greatest of all groups.
    fn spread(&self) -> u32 {
        let spread = |group: &Vec<u32>| group.iter().max().unwrap() - group.iter().min().unwrap();
        self.resets().iter().map(spread).max().unwrap()
    }

    fn mean_resets(&self) -> Vec<f64> {
        let mean = |group: &Vec<u32>| group.iter().sum::<u32>() as f64 / group.len() as f64;
        self.resets().iter().map(mean).collect()
    }
}

fn tiny() -> Profile {
    Profile::builtin("tiny").unwrap()
}

#[test]
fn the_spread_of_resets_stays_within_its_bound_under_skewed_writes() {
    for (pattern, drive_writes) in [(Pattern::HotTenth, 80), (Pattern::HotHundredth, 120)] {
        let mut drive = Drive::new(tiny(), CAPACITY, Some(SPREAD));
        drive.fill();
        for round in 0..8 {
            drive.run(pattern, drive_writes / 8);
            let spread = drive.spread();
            assert!(spread <= SPREAD + WEAR_SPREAD_SLACK, "{pattern:?}, round {round}: {spread}");
        }
        drive.verify();
    }
}

#[test]
fn without_levelling_the_chunks_below_resting_data_are_hardly_reset() {
    let mut drive = Drive::new(tiny(), CAPACITY, None);
    drive.fill();
    drive.run(Pattern::HotHundredth, 60);
    assert!(drive.spread() > 4 * SPREAD, "{}", drive.spread());
    assert_eq!(drive.ftl.statistics().cared_for(Care::Wear).chunks, 0);
}

#[test]
fn uniform_writes_are_level_by_themselves() {
    let mut drive = Drive::new(tiny(), CAPACITY, Some(SPREAD));
    drive.fill();
    drive.run(Pattern::Uniform, 60);
    assert_eq!(drive.ftl.statistics().cared_for(Care::Wear).chunks, 0, "nothing had to be moved for it");
    assert!(drive.spread() <= SPREAD, "{}", drive.spread());
}

#[test]
fn groups_wear_alike_whatever_is_written() {
    for pattern in [Pattern::Uniform, Pattern::HotTenth, Pattern::HotHundredth] {
        let mut drive = Drive::new(tiny(), CAPACITY, Some(SPREAD));
        drive.fill();
        drive.run(pattern, 40);
        let means = drive.mean_resets();
        let (least, most) =
            means.iter().fold((f64::MAX, 0f64), |(least, most), mean| (least.min(*mean), most.max(*mean)));
        assert!(most - least < 0.1 * most + 2.0, "{pattern:?}: {means:?}");
    }
}

/// Writes until the drive takes no more. Returns it with the share of what its chunks stand that was used.
fn live(wear_spread_max: Option<u32>) -> (Drive, f64) {
    let mut short_lived = tiny();
    short_lived.chip.endurance = 50;
    // On chunks as small as these superblocks would wear out first.
    short_lived.chip.blocks_per_chunk = 128;
    let mut drive = Drive::new(short_lived, CAPACITY_LARGE, wear_spread_max);
    drive.fill();
    loop {
        let block = drive.block(Pattern::HotTenth);
        if let Err(error) = drive.write(block) {
            assert_eq!(error, IoError::ReadOnly);
            break;
        }
    }
    let geometry = *drive.ftl.media().geometry();
    let stands = geometry.blocks() as f64 * f64::from(drive.ftl.media().endurance());
    let share = drive.ftl.media().statistics().blocks_programmed as f64 / stands;
    (drive, share)
}

#[test]
fn a_drive_lives_nearly_as_long_as_its_chunks_together_and_ends_read_only_with_its_data() {
    let (mut drive, levelled) = live(Some(4));
    assert_eq!(drive.ftl.read_only_reason(), Some(ReadOnlyReason::WornOut));
    drive.verify();
    let (mut other, as_it_comes) = live(None);
    other.verify();
    println!(
        "levelled {levelled:.3} of its life, {} blocks; unlevelled {as_it_comes:.3}, {} blocks",
        drive.written, other.written
    );
    assert!(levelled > 0.95, "{levelled:.3} of what its chunks stand");
    assert!(levelled > 1.1 * as_it_comes, "{levelled:.3} with levelling, {as_it_comes:.3} without");
}
