//! A store of pages from its drive description: for `openftl` itself, and for programs that have the drive inside them.

use crate::description::{DriveDescription, FtlKind, StoreName, Timing, another_seed, find_profile};
use crate::failure::Failure;
use crate::new_file::{self, Existing};
use crate::page_store::PageStore;
use openftl_core::units::{ByteSize, Interval, Share};
use openftl_core::{FrameForm, Geometry, Time};
use openftl_files::{Pace, PaceClock};
use openftl_media::{Durability, EmulatedDevice, Profile, Store, Timing as MediaTiming};
use openftl_pages::{Ftl, PageFtl, chunks_per_pu};
use openftl_parts::{Access, Config, VictimPolicy};
use std::path::{Path, PathBuf};

/// What pages can hold unless the drive description says otherwise.
pub const CAPACITY_DEFAULT: ByteSize = ByteSize(1 << 30);
/// Frames of 4 KiB for requests under way.
const HOST_FRAMES: u32 = 4096;

/// What a drive description says of a store of pages.
#[derive(Clone, PartialEq, Debug)]
pub struct PageDrive {
    profile: Profile,
    capacity: ByteSize,
    over_provisioning: Share,
    disk: Option<PathBuf>,
    durability: Durability,
    timing: Timing,
    checkpoint: (Option<u64>, Option<openftl_core::Nanos>),
    scrub_interval: Option<openftl_core::Nanos>,
    victim: VictimPolicy,
}

impl PageDrive {
    /// Reads a drive description.
    ///
    /// # Errors
    /// If it cannot be read or understood, or is of another kind of drive.
    pub fn read(path: &Path) -> Result<PageDrive, Failure> {
        let file = DriveDescription::read(path)?;
        PageDrive::of(&file).map_err(|failure| failure.about(path.display()))
    }

    /// What `file` says.
    ///
    /// # Errors
    /// If it is of another kind of drive, or says what cannot be.
    pub fn of(file: &DriveDescription) -> Result<PageDrive, Failure> {
        if file.ftl.kind != Some(FtlKind::Pages) {
            return Err(Failure::bad_input("ftl.kind is not \"pages\": only a store of pages has pages")
                .fix("write kind = \"pages\" in [ftl]"));
        }
        PageDrive::described(file)
    }

    /// What `file` says of a store of pages, whatever hosts see of it.
    pub(crate) fn described(file: &DriveDescription) -> Result<PageDrive, Failure> {
        let name = file.media.profile.as_deref().unwrap_or("cosmos");
        let profile = find_profile(name).map_err(|failure| failure.about("media.profile"))?;
        let disk = match file.media.store {
            Some(StoreName::Stamps) => {
                return Err(Failure::bad_input(
                    "media.store = \"stamps\" keeps no bytes, and pages and values have some",
                )
                .fix("choose \"ram\" or \"file\""));
            }
            Some(StoreName::File) => file.media.path.clone(),
            Some(StoreName::Ram) | None => None,
        };
        let capacity = file.media.capacity.unwrap_or(CAPACITY_DEFAULT);
        if capacity.0 == 0 {
            return Err(Failure::bad_input("media.capacity = 0: a store of no bytes").fix("say how much it can hold"));
        }
        Ok(PageDrive {
            profile,
            capacity,
            over_provisioning: file.media.over_provisioning.unwrap_or(Share::percent(10)),
            disk,
            durability: file.media.durability.unwrap_or_default(),
            timing: file.media.timing.unwrap_or(Timing::WallClock),
            checkpoint: (file.ftl.checkpoint_log_blocks, file.ftl.checkpoint_interval),
            scrub_interval: file.ftl.scrub_interval.and_then(Interval::span),
            victim: expect_of_pages(file.ftl.victim.unwrap_or_default()).map_err(|error| error.about("ftl.victim"))?,
        })
    }

    /// How the chunk to clean is chosen.
    #[must_use]
    pub fn victim(&self) -> VictimPolicy {
        self.victim
    }

    /// Chooses the chunk to clean by `victim`, whatever the description says.
    ///
    /// # Errors
    /// If it is not for pages.
    pub fn clean_by(&mut self, victim: VictimPolicy) -> Result<(), Failure> {
        self.victim = expect_of_pages(victim).map_err(|error| error.about("--victim"))?;
        Ok(())
    }

    /// The file that the flash is kept in; none: it is in memory, and new each time.
    #[must_use]
    pub fn disk(&self) -> Option<&Path> {
        self.disk.as_deref()
    }

    /// The name of its NAND.
    #[must_use]
    pub fn profile(&self) -> &str {
        &self.profile.name
    }

    /// The configuration of its FTL.
    #[must_use]
    pub fn config(&self, drive_id: u64) -> Config {
        Config {
            over_provisioning: self.over_provisioning,
            drive_id,
            payload: FrameForm::Bytes,
            host_frames: HOST_FRAMES,
            checkpoint_log_blocks: self.checkpoint.0,
            checkpoint_interval: self.checkpoint.1,
            scrub_interval: self.scrub_interval,
            victim: self.victim,
            ..Config::default()
        }
    }

    /// Chunks on each parallel unit of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn chunks_per_pu(&self) -> Result<u32, Failure> {
        let shape = self.profile.geometry(1).map_err(Failure::failed)?;
        chunks_per_pu(&shape, &self.config(0), self.capacity.0).map_err(|error| {
            Failure::bad_input(error).about("media.capacity").fix("ask for less, or for another profile")
        })
    }

    /// The shape of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn geometry(&self) -> Result<Geometry, Failure> {
        self.profile.geometry(self.chunks_per_pu()?).map_err(Failure::failed)
    }

    /// Makes the drive in the file `disk`. Returns what pages can hold.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self, disk: &Path, existing: Existing, seed: Option<u64>) -> Result<ByteSize, Failure> {
        self.make_as(disk, existing, seed, (), |drive: &PageFtl<_>| ByteSize(drive.capacity_bytes()))
    }

    /// Makes a drive of this kind in the file `disk`. Returns what is told of it.
    pub(crate) fn make_as<F: Ftl<Media = EmulatedDevice>, T>(
        &self,
        disk: &Path,
        existing: Existing,
        seed: Option<u64>,
        shape: F::Shape,
        tell: impl FnOnce(&F) -> T,
    ) -> Result<T, Failure> {
        let (seed, chunks) = (seed.unwrap_or_else(another_seed), self.chunks_per_pu()?);
        new_file::make(disk, existing, |temporary| {
            let device = EmulatedDevice::create(temporary, &self.profile, chunks, MediaTiming::Instant, seed);
            let mut device = device.map_err(Failure::failed)?;
            device.set_durability(self.durability).map_err(Failure::failed)?;
            let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
            let drive = F::format(device, self.config(seed), shape, &mut clock).map_err(Failure::failed)?;
            let told = tell(&drive);
            drive.close(&mut clock).map_err(Failure::failed)?;
            Ok(told)
        })
    }

    /// Makes the drive in memory, in virtual time.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn in_memory(&self, seed: u64) -> Result<PageStore<EmulatedDevice>, Failure> {
        self.in_memory_as(seed, ()).map(|(drive, clock)| PageStore::new(drive, clock))
    }

    /// Makes a drive of this kind in memory, in virtual time.
    pub(crate) fn in_memory_as<F: Ftl<Media = EmulatedDevice>>(
        &self,
        seed: u64,
        shape: F::Shape,
    ) -> Result<(F, PaceClock), Failure> {
        let chunks = self.chunks_per_pu()?;
        let device = EmulatedDevice::new(self.profile.clone(), chunks, Store::Ram, MediaTiming::Modelled, seed);
        let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
        let drive = F::format(device.map_err(Failure::failed)?, self.config(seed), shape, &mut clock);
        Ok((drive.map_err(Failure::failed)?, clock))
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// If it is in memory, not there, in use, of another kind, or cannot be trusted.
    pub fn open(&self, access: Access) -> Result<PageStore<EmulatedDevice>, Failure> {
        self.open_as(access).map(|(drive, clock)| PageStore::new(drive, clock))
    }

    /// Opens the drive, which is of this kind.
    pub(crate) fn open_as<F: Ftl<Media = EmulatedDevice>>(&self, access: Access) -> Result<(F, PaceClock), Failure> {
        let Some(disk) = &self.disk else {
            return Err(Failure::bad_input("the drive is in memory, and gone with its program")
                .fix("a drive that is to be used again has media.store = \"file\""));
        };
        if !disk.exists() {
            let disk = disk.display();
            return Err(Failure::bad_input(format_args!("{disk} is not there"))
                .fix(format_args!("make it first: openftl create {disk} --drive …")));
        }
        let (pace, timing) = match self.timing {
            Timing::Virtual => (Pace::Virtual, MediaTiming::Modelled),
            Timing::WallClock => (Pace::wall(), MediaTiming::Modelled),
            Timing::Instant => (Pace::wall(), MediaTiming::Instant),
        };
        open_disk(disk, timing, pace, self.config(0), access, Some(self.durability))
    }
}

/// The policy, if a store of pages cleans by it.
fn expect_of_pages(victim: VictimPolicy) -> Result<VictimPolicy, Failure> {
    let is_known = openftl_pages::cleans_by(victim);
    let error = || Failure::bad_input(format_args!("{victim}: a store of pages does not clean by that"));
    is_known.then_some(victim).ok_or_else(|| error().fix("choose greedy, cost-benefit or minimum-declining-cost"))
}

/// Opens the store of pages that is kept in `disk`, whatever it was described as, on flash that takes no time.
///
/// # Errors
/// If it is in use, of another kind, or cannot be trusted.
pub fn open_stored(disk: &Path, access: Access) -> Result<PageStore<EmulatedDevice>, Failure> {
    open_stored_as(disk, access).map(|(drive, clock)| PageStore::new(drive, clock))
}

/// Opens the drive of this kind that is kept in `disk`.
pub(crate) fn open_stored_as<F: Ftl<Media = EmulatedDevice>>(
    disk: &Path,
    access: Access,
) -> Result<(F, PaceClock), Failure> {
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    open_disk(disk, MediaTiming::Instant, Pace::wall(), config, access, None)
}

fn open_disk<F: Ftl<Media = EmulatedDevice>>(
    disk: &Path,
    timing: MediaTiming,
    pace: Pace,
    config: Config,
    access: Access,
    durability: Option<Durability>,
) -> Result<(F, PaceClock), Failure> {
    let opened = match access {
        Access::Inspect => EmulatedDevice::open_to_look_at(disk, timing),
        Access::ReadWrite | Access::Repair => EmulatedDevice::open(disk, timing),
    };
    let mut device = opened.map_err(Failure::failed)?;
    if let Some(durability) = durability {
        device.set_durability(durability).map_err(Failure::failed)?;
    }
    let mut clock = PaceClock { pace, now: Time::ZERO };
    let drive = F::open_with(device, config, F::Asked::default(), access, &mut clock);
    let drive = drive.map_err(|error| Failure::failed(error).about(disk.display()))?;
    Ok((drive, clock))
}
