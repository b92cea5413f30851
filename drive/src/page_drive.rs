//! A store of pages from its drive description: for `openftl` itself, and for programs that have the drive inside them.

use crate::description::{DriveDescription, FtlKind, another_seed};
use crate::failure::Failure;
use crate::flash::{self, Flash, HOST_FRAMES};
use crate::new_file::{self, Existing};
use crate::page_store::PageStore;
use openftl_core::units::{ByteSize, Interval, Share};
use openftl_core::{FrameForm, Geometry, Time};
use openftl_dispatch::{Pace, PaceClock};
use openftl_media::{EmulatedDevice, Timing as MediaTiming};
use openftl_pages::{Ftl, PageFtl, chunks_per_pu};
use openftl_parts::map::cache::CachePolicy;
use openftl_parts::map::directory::PageSize;
use openftl_parts::map::memory::{MapBudget, MapMemory};
use openftl_parts::{Access, Config, VictimPolicy};
use std::path::Path;

/// What pages can hold unless the drive description says otherwise.
pub const CAPACITY_DEFAULT: ByteSize = ByteSize(1 << 30);

/// What a drive description says of a store of pages.
#[derive(Clone, PartialEq, Debug)]
pub struct PageDrive {
    flash: Flash,
    capacity: ByteSize,
    over_provisioning: Share,
    checkpoint: (Option<u64>, Option<openftl_core::Nanos>),
    scrub_interval: Option<openftl_core::Nanos>,
    victim: VictimPolicy,
    cross_blocks: bool,
    map_memory: Option<MapMemory>,
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
        let flash = Flash::of(file, "pages and values")?;
        let capacity = file.media.capacity.unwrap_or(CAPACITY_DEFAULT);
        if capacity.0 == 0 {
            return Err(Failure::bad_input("media.capacity = 0: a store of no bytes").fix("say how much it can hold"));
        }
        let (budget, policy) = (file.ftl.map_memory, file.ftl.map_cache);
        if let (None, Some(policy)) = (budget, policy) {
            let about = format!("ftl.map_cache = {policy}: without map_memory the whole map is in memory");
            return Err(Failure::bad_input(about)
                .fix("say how much of it may be: map_memory = \"10%\", or leave map_cache away"));
        }
        Ok(PageDrive {
            map_memory: budget.map(|budget| map_memory(budget, policy)),
            flash,
            capacity,
            over_provisioning: file.media.over_provisioning.unwrap_or(Share::percent(10)),
            checkpoint: (file.ftl.checkpoint_log_blocks, file.ftl.checkpoint_interval),
            scrub_interval: file.ftl.scrub_interval.and_then(Interval::span),
            victim: expect_of_pages(file.ftl.victim.unwrap_or_default()).map_err(|error| error.about("ftl.victim"))?,
            cross_blocks: file.ftl.cross_blocks.unwrap_or(true),
        })
    }

    /// How the chunk to clean is chosen.
    #[must_use]
    pub fn victim(&self) -> VictimPolicy {
        self.victim
    }

    /// Whether a page that fits into one block may lie in two.
    #[must_use]
    pub fn cross_blocks(&self) -> bool {
        self.cross_blocks
    }

    /// Lets pages cross blocks, or not, whatever the description says.
    pub fn let_cross_blocks(&mut self, cross_blocks: bool) {
        self.cross_blocks = cross_blocks;
    }

    /// Keeps only so much of the map in memory, whatever the description says.
    pub fn limit_map(&mut self, budget: MapBudget) {
        self.map_memory = Some(map_memory(budget, self.map_memory.map(|memory| memory.policy)));
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
        self.flash.disk()
    }

    /// The name of its NAND.
    #[must_use]
    pub fn profile(&self) -> &str {
        &self.flash.profile().name
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
            cross_blocks: self.cross_blocks,
            map_memory: self.map_memory,
            ..Config::default()
        }
    }

    /// Chunks on each parallel unit of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn chunks_per_pu(&self) -> Result<u32, Failure> {
        let shape = self.flash.geometry(1).map_err(Failure::failed)?;
        chunks_per_pu(&shape, &self.config(0), self.capacity.0).map_err(|error| {
            Failure::bad_input(error).about("media.capacity").fix("ask for less, or for another profile")
        })
    }

    /// The shape of its device.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn geometry(&self) -> Result<Geometry, Failure> {
        self.flash.geometry(self.chunks_per_pu()?).map_err(Failure::failed)
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
            let device = self.flash.create(temporary, chunks, seed).map_err(Failure::failed)?;
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
    pub fn in_memory(&self, seed: u64) -> Result<(PageFtl<EmulatedDevice>, PaceClock), Failure> {
        self.in_memory_as(seed, ())
    }

    /// Makes a drive of this kind in memory, in virtual time.
    pub(crate) fn in_memory_as<F: Ftl<Media = EmulatedDevice>>(
        &self,
        seed: u64,
        shape: F::Shape,
    ) -> Result<(F, PaceClock), Failure> {
        let chunks = self.chunks_per_pu()?;
        let device = self.flash.in_memory(chunks, MediaTiming::Modelled, seed).map_err(Failure::failed)?;
        let mut clock = PaceClock { pace: Pace::Virtual, now: Time::ZERO };
        let drive = F::format(device, self.config(seed), shape, &mut clock);
        Ok((drive.map_err(Failure::failed)?, clock))
    }

    /// Opens the drive.
    ///
    /// # Errors
    /// If it is in memory, not there, in use, of another kind, or cannot be trusted.
    pub fn open(&self, access: Access) -> Result<PageStore<EmulatedDevice>, Failure> {
        let (drive, clock) = self.open_as(access)?;
        store(drive, clock, access)
    }

    /// Opens the drive, which is of this kind.
    pub(crate) fn open_as<F: Ftl<Media = EmulatedDevice>>(&self, access: Access) -> Result<(F, PaceClock), Failure> {
        let Some(disk) = self.flash.disk() else {
            return Err(Failure::bad_input("the drive is in memory, and gone with its program")
                .fix("a drive that is to be used again has media.store = \"file\""));
        };
        if !disk.exists() {
            let disk = disk.display();
            return Err(Failure::bad_input(format_args!("{disk} is not there"))
                .fix(format_args!("make it first: openftl create {disk} --drive …")));
        }
        let (pace, timing) = self.flash.pace();
        let device = self.flash.open(disk, access, timing).map_err(Failure::failed)?;
        let drive = open_on(device, self.config(0), access, PaceClock { pace, now: Time::ZERO });
        drive.map_err(|failure| failure.about(disk.display()))
    }

    /// Opens a device that a store of pages is on, whatever happened to it, with the clock that it had.
    ///
    /// # Errors
    /// If it is of another kind, or cannot be trusted.
    pub fn reopen(&self, device: EmulatedDevice, clock: PaceClock) -> Result<PageStore<EmulatedDevice>, Failure> {
        let (drive, clock) = open_on(device, self.config(0), Access::ReadWrite, clock)?;
        store(drive, clock, Access::ReadWrite)
    }
}

fn map_memory(budget: MapBudget, policy: Option<CachePolicy>) -> MapMemory {
    MapMemory { budget, policy: policy.unwrap_or_default(), page: PageSize::WHOLE }
}

/// Opens a drive of this kind on a device.
fn open_on<F: Ftl<Media = EmulatedDevice>>(
    device: EmulatedDevice,
    config: Config,
    access: Access,
    mut clock: PaceClock,
) -> Result<(F, PaceClock), Failure> {
    let drive = F::open_with(device, config, F::Asked::default(), access, &mut clock).map_err(Failure::failed)?;
    Ok((drive, clock))
}

/// The store of an open drive. A file is synced beside its work.
fn store(
    drive: PageFtl<EmulatedDevice>,
    clock: PaceClock,
    access: Access,
) -> Result<PageStore<EmulatedDevice>, Failure> {
    let is_real = matches!(clock.pace, Pace::Wall(_));
    let store = PageStore::new(drive, clock);
    if is_real && access != Access::Inspect {
        let bell = store.bell();
        let synced = store.with_drive(|drive| drive.media_mut().sync_beside(move || bell.ring()));
        synced.map_err(Failure::failed)?;
    }
    Ok(store)
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
    let (drive, clock) = open_stored_as(disk, access)?;
    store(drive, clock, access)
}

/// Opens the drive of this kind that is kept in `disk`.
pub(crate) fn open_stored_as<F: Ftl<Media = EmulatedDevice>>(
    disk: &Path,
    access: Access,
) -> Result<(F, PaceClock), Failure> {
    let config = Config { payload: FrameForm::Bytes, host_frames: HOST_FRAMES, ..Config::default() };
    let device = flash::open(disk, access, MediaTiming::Instant).map_err(Failure::failed)?;
    let clock = PaceClock { pace: Pace::wall(), now: Time::ZERO };
    open_on(device, config, access, clock).map_err(|failure| failure.about(disk.display()))
}
