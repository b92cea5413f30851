//! A drive is put together: its parts are sized by the plan, and every chunk of the device is given to one of them.
//!
//! A new drive is that and a first superblock; what an old one needs beyond stands in [`crate::recovery`].

use crate::block_ftl::BlockFtl;
use crate::frontiers::HostFrontiers;
use crate::garbage_collection::Collection;
use crate::map_pages::MapPages;
use crate::placement::Placement;
use crate::refresh::Refresh;
use crate::scrub::Scrub;
use crate::transactions::Transactions;
use crate::wear_levelling::WearLevelling;
use crate::write_buffer::WriteBuffer;
use openftl_core::{ChunkId, Clock, Frame, FrameForm, Frames, Geometry, PuId, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{ChunkDescriptor, ChunkState, Media};
use openftl_parts::accounts::encounters::Meetings;
use openftl_parts::accounts::life::Life;
use openftl_parts::accounts::statistics::{GroupStatistics, Statistics};
use openftl_parts::config::{Config, RelocateBy};
use openftl_parts::flash::allowance::Allowance;
use openftl_parts::flash::backlog::Backlog;
use openftl_parts::flash::chunk_table::{ChunkTable, ChunkUse};
use openftl_parts::flash::chunks::Chunks;
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::plan::{Plan, PlanError};
use openftl_parts::flash::provisioning::{Claim, Provisioning};
use openftl_parts::flash::resets::Resets;
use openftl_parts::flash::scan::Scan;
use openftl_parts::flash::seals::Seals;
use openftl_parts::flash::units::Units;
use openftl_parts::flash::{Flash, HandedUnit};
use openftl_parts::journal::Journal;
use openftl_parts::journal::checkpoint::{BodyLayout, Checkpointer};
use openftl_parts::journal::found_log::FoundLog;
use openftl_parts::journal::log::{Log, LogChunk, Successor};
use openftl_parts::journal::recovery_report::RecoveryReport;
use openftl_parts::journal::superblock::{MapOnMedia, SEARCH_CHUNKS, Superblock};
use openftl_parts::journal::superblock_writer::{PlaceState, SuperblockWriter};
use openftl_parts::journal::survey::{TakenUp, make_free, pad, superblock_pus, take_up};
use openftl_parts::map::demand::DemandMap;
use openftl_parts::map::directory::SEQUENCE_BITS;
use openftl_parts::map::memory::{MapMemory, MapPlan};
use openftl_parts::map::owners::Owners;
use openftl_parts::map::{Map, Mapping};
use openftl_parts::open_error::OpenError;
use openftl_parts::tenant::{Nobody, Tenant, expect_blocks_alone};
use openftl_parts::words::{Access, Care, Class, METADATA_COPIES, Phase, TRANSACTION_BLOCKS_MAX};
use std::collections::{BTreeMap, VecDeque};

/// Superblock frames: the longest record.
const SUPERBLOCK_FRAMES: usize = 64;

/// The map of a drive, of which nothing is known yet.
///
/// # Errors
/// If it has too little memory.
pub(crate) fn new_map(config: &Config, geometry: &Geometry) -> Result<Map, PlanError> {
    let Some(memory) = &config.map_memory else { return Ok(Map::Whole(Mapping::new(config.capacity_blocks))) };
    let plan = MapPlan::new(memory, config.capacity_blocks, geometry)?;
    let map = DemandMap::new(config.capacity_blocks, memory.page, memory.policy, plan.pool_bytes as usize);
    Ok(Map::Paged(Box::new(map)))
}

/// How the memory of a map on media is divided, of a drive that has a [`Plan`].
fn map_plan(memory: &MapMemory, config: &Config, geometry: &Geometry) -> MapPlan {
    MapPlan::new(memory, config.capacity_blocks, geometry).expect("the plan was made with it")
}

/// What a drive is put together from: that of a new one, or what recovery found.
pub(crate) struct Origin {
    pub config: Config,
    pub plan: Plan,
    pub superblock: Superblock,
    pub map: Map,
    pub chunks: ChunkTable,
    pub seals: Seals,
    /// Chunks that are not bad.
    pub good: u64,
    /// The number of the next block of the log.
    pub next_lsn: u64,
}

impl<M: Media> BlockFtl<M> {
    /// Makes a new drive on a device. What was on it is lost.
    ///
    /// # Errors
    /// If the capacity does not fit the device, or the device fails.
    pub fn format(media: M, config: Config, clock: &mut dyn Clock) -> Result<BlockFtl<M>, OpenError> {
        expect_blocks_alone(&config)?;
        BlockFtl::format_beside(media, config, clock, &mut Nobody)
    }

    /// Makes a new drive of which `tenant` has chunks, too.
    pub fn format_beside(
        mut media: M,
        mut config: Config,
        clock: &mut dyn Clock,
        tenant: &mut dyn Tenant,
    ) -> Result<BlockFtl<M>, OpenError> {
        let mut chunks = Chunks::report(&mut media, clock.now())?;
        let geometry = chunks.geometry;
        config.has_copies = config.relocate_by == RelocateBy::DeviceCopy;
        let (capacity_blocks, bits) = (config.capacity_blocks, geometry.format().bits());
        config.map_memory = config.map_memory.map(|memory| memory.on(capacity_blocks, bits));
        let plan = Plan::new(&geometry, &config)?;
        let good = chunks.all().filter(|chunk| chunk.state != ChunkState::Offline).count() as u64;
        if good < plan.chunks() {
            return Err(PlanError::TooFewChunks {
                capacity_blocks: config.capacity_blocks,
                over_provisioning: config.over_provisioning,
                needed: plan.chunks(),
                available: good,
            }
            .into());
        }
        let mut scan = Scan::new(&geometry);
        // Data of another life of the flash are not to be written behind: a repair could not tell them from this drive's.
        for descriptor in chunks.table.iter_mut().flatten() {
            pad(&mut media, clock, &mut scan, &geometry, descriptor, geometry.blocks_per_chunk);
        }
        let mut places = [u32::MAX; 4];
        let mut states = Vec::new();
        for (place, pu) in superblock_pus(&geometry).enumerate() {
            let first_chunks =
                (0..SEARCH_CHUNKS.min(geometry.chunks_per_pu)).map(|chunk| geometry.format().chunk_id(pu, chunk));
            let mut found = Vec::new();
            for chunk in first_chunks {
                // Nothing of another drive may be found here later.
                let usable = chunks.state(chunk) != ChunkState::Offline;
                if usable && make_free(&mut media, clock, &mut scan, &mut chunks, chunk) {
                    found.push(chunk);
                }
            }
            let [active, spare, ..] = found[..] else { return Err(OpenError::NoSuperblockPlace(pu)) };
            places[2 * place..2 * place + 2].copy_from_slice(&[active.0, spare.0]);
            states.push(PlaceState { active: Some((active, 0)), has_record: false, spare: Some(spare), full: None });
        }
        let superblock = Superblock {
            drive: config.drive_id,
            sequence: 0,
            capacity_blocks: config.capacity_blocks,
            over_provisioning: config.over_provisioning,
            catalog_blocks: config.catalog_blocks,
            tenant: config.tenant,
            geometry: Superblock::geometry_of(&geometry),
            clean: false,
            copies: config.has_copies,
            checkpoint: Default::default(),
            first_lsn: 1,
            position: 0,
            durable_below: 1,
            log_chunks: Default::default(),
            log_gaps: Vec::new(),
            places,
            map: config.map_memory.as_ref().map(|memory| MapOnMedia {
                page_entries: memory.page,
                memory_bytes: map_plan(memory, &config, &geometry).bytes(),
                cache: memory.policy,
            }),
            sizing: config.sizing(),
            life: Life::new(),
        };
        let map = new_map(&config, &geometry)?;
        let table = ChunkTable::new(&geometry);
        let now = clock.now();
        scan.seals.heed_canary(&config);
        scan.seals.begin(config.drive_id, 0, config.has_copies);
        scan.seals.end_loading();
        let seals = scan.seals;
        let mut ftl = BlockFtl::assemble(
            media,
            Origin { config, plan, superblock, map, chunks: table, seals, good, next_lsn: 1 },
            now,
            tenant,
        );
        ftl.journal.superblock.put_in_place(&mut ftl.flash, states);
        ftl.sort_chunks(tenant, &chunks, Vec::new());
        for copy in 0..METADATA_COPIES {
            let claim = Claim::Log { copy, turn: 0 };
            let chunk = ftl.flash.provisioning.take(claim).expect("the plan has room for a log");
            ftl.flash.chunks.set_usage(chunk, ChunkUse::Metadata);
            ftl.journal.log.copies[copy].chunks.push_back(LogChunk { chunk, last_lsn: 0 });
            ftl.journal.log.copies[copy].open = Some(ftl.flash.units.open(chunk, 0));
        }
        let superblock = ftl.journal.request_superblock(&mut ftl.flash);
        ftl.run(clock, tenant, |ftl| ftl.journal.superblock.durable() >= superblock || ftl.flash.read_only.is_some())?;
        match ftl.flash.read_only {
            Some(reason) => Err(OpenError::Unwritable(reason)),
            None => {
                ftl.flash.phase = Phase::Working;
                Ok(ftl)
            }
        }
    }

    /// A drive with its parts in place, and no chunk sorted yet.
    pub(crate) fn assemble(media: M, origin: Origin, now: Time, tenant: &dyn Tenant) -> BlockFtl<M> {
        let Origin { config, plan, superblock, map, mut chunks, seals, good, next_lsn } = origin;
        chunks.choose_victims(config.victim, superblock.drive);
        let geometry = *media.geometry();
        let owners = (config.relocate_by == RelocateBy::DeviceCopy).then(|| {
            let mut owners = Owners::new(&geometry);
            owners.load(map.whole());
            owners
        });
        let (groups, ws_min, mw_cunits) = (geometry.groups, geometry.ws_min, geometry.mw_cunits);
        let most = VECTOR_BLOCKS_MAX as u32 / ws_min * ws_min;
        let unit_blocks = geometry.ws_opt.min(most);
        let placement = Placement::new(&config, &plan, &geometry);
        let destinations = config.placement.destinations(config.handles);
        let collection_frames = Collection::frames_needed(groups, destinations, unit_blocks, mw_cunits);
        // What can be stuck in the buffer: a partly filled unit of each class, and on each frontier what cannot be read yet.
        let stuck = (plan.host_frontiers + plan.placement_chunks) as usize * (unit_blocks + mw_cunits) as usize
            + placement.classes() * unit_blocks as usize;
        let scrub_frames = Scrub::frames_needed(&config);
        // Hosts are those of the tenant, if it has some.
        let (host_form, tenant_payload) = tenant.payload_frames(&geometry).unwrap_or((config.payload, 0));
        let host_frames = config.host_frames as usize + tenant_payload;
        let payload = collection_frames + stuck + TRANSACTION_BLOCKS_MAX + 1 + scrub_frames;
        let map_plan = config.map_memory.as_ref().map(|memory| map_plan(memory, &config, &geometry));
        let map_frames = map_plan.map_or(0, |_| MapPages::frames_needed(&geometry));
        let metadata = Log::frames_needed(ws_min)
            + scrub_frames
            + map_frames
            + Checkpointer::frames_needed(plan.checkpoint_lanes, &geometry)
            + SUPERBLOCK_FRAMES.next_multiple_of(ws_min as usize)
            + tenant.frames_needed(&geometry);
        let needed = [(config.payload, payload), (host_form, host_frames), (FrameForm::Bytes, metadata)];
        let of_form = |form| needed.iter().filter(|needed| needed.0 == form).map(|needed| needed.1).sum();
        let (pages, stamps) = (of_form(FrameForm::Bytes), of_form(FrameForm::Stamp));
        let mut frames = Frames::on(media.page_pool(), pages, stamps, geometry.oob_bytes as usize);
        let padding = frames.acquire(config.payload).expect("the pool was sized for it");
        frames.zero(padding);
        Oob { kind: BlockKind::Padding, address: 0, sequence: 0 }.seal(&mut frames, padding);
        let log = Log::new(superblock.drive, map.width(), ws_min, next_lsn, &mut frames);
        let layout = BodyLayout::new(config.capacity_blocks, &geometry, config.has_copies, superblock.map_page());
        let checkpoint =
            Checkpointer::new(layout, plan.checkpoint_lanes, config.checkpoint_interval, &geometry, &mut frames);
        let own = |frames: &mut Frames, form, count| {
            let mut own: Vec<Frame> = Vec::new();
            assert!(frames.acquire_many(form, count, &mut own), "the pool was sized for it");
            own
        };
        let superblock_frames = own(&mut frames, FrameForm::Bytes, SUPERBLOCK_FRAMES);
        let map_pages = map_plan.map(|plan| {
            MapPages::new(plan, own(&mut frames, FrameForm::Bytes, map_frames), next_lsn << SEQUENCE_BITS, &geometry)
        });
        let rescue = own(&mut frames, config.payload, TRANSACTION_BLOCKS_MAX);
        let relocation_frames = own(&mut frames, config.payload, collection_frames);
        let scrub_frames =
            [own(&mut frames, config.payload, scrub_frames), own(&mut frames, FrameForm::Bytes, scrub_frames)];
        let scrub = Scrub::new(&config, &geometry, superblock.sequence, scrub_frames);
        // The smallest drive that can still be written has a quarter of its over-provisioning.
        let good_min = plan.chunks() - plan.over_provisioned_chunks * 3 / 4;
        let mut order: Vec<PuId> = geometry.pu_ids().collect();
        let format = geometry.format();
        order.sort_by_key(|pu| (pu.0 & ((1 << format.pu_bits) - 1), format.group_of(*pu)));
        let mut provisioning = Provisioning::new(&geometry, &plan);
        let beyond = good.saturating_sub(plan.chunks());
        let spares = tenant.spares(good, beyond);
        provisioning.hold_spares(spares as u32);
        provisioning.keep_apart(placement.kept_apart());
        let flash = Flash {
            format,
            units: Units::new(&geometry),
            reads: Default::default(),
            backlog: if map_pages.is_some() { Backlog::new(format) } else { Backlog::default() },
            resets: Resets::new(good, good_min),
            meetings: Meetings::new(groups),
            statistics: Statistics {
                groups: vec![GroupStatistics::default(); groups as usize],
                ..Statistics::default()
            },
            life: superblock.life,
            now,
            phase: Phase::Recovering,
            read_only: None,
            stirred: true,
            room_changed: true,
            under_way: 0,
            ended: 0,
            outbox: VecDeque::new(),
            handed: HandedUnit::default(),
            is_full: false,
            is_deaf: false,
            allowance: Allowance::new(&geometry),
            is_unusual: true,
            weak_of_tenant: Vec::new(),
            bugs: config.bugs(),
            geometry,
            plan,
            frames,
            padding,
            rescue,
            seals,
            chunks,
            provisioning,
        };
        let mut ftl = BlockFtl {
            unit_blocks,
            buffer: WriteBuffer::new(flash.frames.len(), placement.classes(), 0),
            host: HostFrontiers { open: vec![None; order.len()], opened: 0, next: 0, order },
            journal: Journal { log, checkpoint, superblock: SuperblockWriter::new(superblock, superblock_frames) },
            collection: Collection::new(groups, destinations, relocation_frames),
            placement,
            refresh: Refresh::new(&geometry),
            wear_levelling: WearLevelling::new(groups),
            scrub,
            relief: Default::default(),
            transactions: Transactions::default(),
            reading: Default::default(),
            recovery: RecoveryReport::default(),
            left_in_area: Vec::new(),
            done: Vec::new(),
            completions: Vec::new(),
            progress: 0,
            standstill: None,
            config,
            map,
            map_pages,
            owners,
            flash,
            media,
        };
        ftl.heed_map_choices();
        ftl
    }
}

impl BlockFtl {
    /// Takes over the chunks of map pages that the directory names.
    pub(crate) fn adopt_map_chunks(&mut self, chunks: &Chunks, access: Access) -> Result<(), OpenError> {
        let (Map::Paged(map), Some(_)) = (&self.map, &self.map_pages) else { return Ok(()) };
        let format = self.flash.format;
        let mut live: BTreeMap<ChunkId, (usize, u32)> = BTreeMap::new();
        for page in 0..map.directory().pages() {
            for (copy, ppa) in map.directory().get(page).into_iter().flatten().enumerate() {
                live.entry(format.chunk_of(ppa)).or_insert((copy, 0)).1 += 1;
            }
        }
        for (chunk, (copy, live)) in live {
            let is_apart = self.flash.chunks.valid(chunk) == 0 && self.adopt_chunk(chunk, chunks);
            // Who only looks may see an older directory than the chunks are.
            if !is_apart && access != Access::Inspect {
                let address = format.unpack_chunk(chunk);
                let found = format!("the chunk of {address} has map pages, and is used for something else");
                return Err(OpenError::Inconsistent(found));
            }
            let is_open = chunks.state(chunk) == ChunkState::Open;
            let write_pointer = chunks.get(chunk).filter(|_| is_open).map(|chunk| chunk.write_pointer);
            self.map_pages.as_mut().expect("it is there").adopt(copy, chunk, live, write_pointer);
        }
        Ok(())
    }

    /// Takes over the chunks of log and checkpoint that the superblock names.
    pub(crate) fn adopt_metadata(&mut self, chunks: &Chunks, found: &FoundLog) {
        let superblock = self.journal.superblock.current().clone();
        for (copy, extents) in superblock.checkpoint.copies.iter().enumerate() {
            for chunk in extents.iter().map(|extent| ChunkId(extent.chunk)) {
                if self.adopt_chunk(chunk, chunks) && chunks.state(chunk) == ChunkState::Open {
                    let write_pointer = chunks.get(chunk).map_or(0, |chunk| chunk.write_pointer);
                    self.journal.checkpoint.adopt(copy, chunk, write_pointer);
                }
            }
        }
        for (copy, list) in superblock.log_chunks.iter().enumerate() {
            for chunk in list.iter().copied().map(ChunkId) {
                let log = &mut self.journal.log.copies[copy];
                let write_pointer = chunks.get(chunk).map_or(0, |chunk| chunk.write_pointer);
                match chunks.state(chunk) {
                    ChunkState::Open => log.open = Some(self.flash.units.open(chunk, write_pointer)),
                    // The next superblock does not name more of them, and nothing is written to those before.
                    ChunkState::Free if log.successors.len() == self.flash.plan.log_successors as usize => continue,
                    ChunkState::Free => {
                        log.successors.push_back(Successor { chunk, superblock: superblock.sequence });
                    }
                    ChunkState::Closed | ChunkState::Offline => {}
                }
                // A chunk without a readable block is as good as one that ended before the log began.
                let written = u64::from(chunks.state(chunk) != ChunkState::Free);
                let last_lsn = found.last_lsn(chunk).unwrap_or(written);
                log.chunks.push_back(LogChunk { chunk, last_lsn });
                self.adopt_chunk(chunk, chunks);
            }
        }
    }

    /// Counts a chunk among those of log and checkpoint. Returns false if it was already.
    fn adopt_chunk(&mut self, chunk: ChunkId, chunks: &Chunks) -> bool {
        let is_new = self.flash.chunks.usage(chunk) != ChunkUse::Metadata;
        if is_new {
            if chunks.state(chunk) == ChunkState::Offline {
                self.flash.chunks.take_offline(chunk);
            }
            self.flash.chunks.set_usage(chunk, ChunkUse::Metadata);
            self.flash.provisioning.begin_metadata();
        }
        is_new
    }

    /// Sorts every chunk that has no use yet by what the device says of it and what is valid in it. In `suspects` programs failed.
    pub(crate) fn sort_chunks(&mut self, tenant: &mut dyn Tenant, chunks: &Chunks, mut suspects: Vec<ChunkId>) {
        let mut open = Vec::new();
        suspects.retain(|chunk| chunks.get(*chunk).is_some_and(|chunk| chunk.state != ChunkState::Free));
        suspects.iter().for_each(|chunk| self.flash.chunks.suspect(*chunk));
        tenant.share_out(&mut self.flash, chunks);
        for descriptor in chunks.all() {
            let chunk = descriptor.chunk;
            if self.flash.chunks.usage(chunk) != ChunkUse::Free {
                continue;
            }
            let valid = self.flash.chunks.valid(chunk);
            if valid == 0 && tenant.find_chunk(&mut self.flash, descriptor) {
                continue;
            }
            match descriptor.state {
                ChunkState::Offline if valid > 0 => {
                    self.flash.chunks.set_usage(chunk, ChunkUse::Closed);
                    self.flash.chunks.take_offline(chunk);
                    self.weak_chunk(chunk, Care::Notification);
                }
                ChunkState::Offline => self.flash.chunks.set_usage(chunk, ChunkUse::Retired),
                ChunkState::Free => self.flash.provisioning.give(chunk, self.flash.chunks.resets(chunk)),
                ChunkState::Closed if valid > 0 => {
                    self.flash.chunks.set_usage(chunk, ChunkUse::Closed);
                    if descriptor.write_pointer < self.flash.geometry.blocks_per_chunk {
                        suspects.push(chunk);
                    }
                }
                ChunkState::Closed if self.flash.chunks.is_suspect(chunk) => {
                    self.flash.retire(&self.journal.superblock, chunk);
                }
                ChunkState::Closed => self.flash.reset_when_durable(chunk, 0),
                ChunkState::Open => {
                    self.flash.chunks.set_usage(chunk, ChunkUse::Open);
                    if valid == 0 {
                        // Its opening may not be in the log, and what it holds does not count.
                        self.flash.seals.open(chunk);
                    }
                    open.push(*descriptor);
                }
            }
        }
        // As when it happened: what holds less than its size takes the room of another.
        suspects.retain(|chunk| self.flash.chunks.usage(*chunk) != ChunkUse::Retired);
        suspects.into_iter().for_each(|chunk| self.flash.suspect(&self.journal.superblock, chunk));
        for (ChunkDescriptor { chunk, write_pointer, .. }, by) in take_up(open, self.flash.format, &self.flash.plan) {
            let pu = self.flash.format.pu_of(chunk);
            if self.flash.chunks.valid(chunk) == 0 && self.is_short_of_room(self.flash.format.group_of(pu)) {
                self.relief.left_open.push((chunk, write_pointer));
                continue;
            }
            if by == TakenUp::Host {
                let open = self.flash.units.open(chunk, write_pointer);
                match self.placement.rest() {
                    Class::ORDINARY => {
                        let index =
                            self.host.order.iter().position(|other| *other == pu).expect("all are in the order");
                        self.host.open[index] = Some(open);
                        self.host.opened += 1;
                    }
                    // Nothing new is ordinary: what has no other handle goes on here.
                    rest => {
                        self.flash.chunks.set_label(chunk, self.placement.label(rest));
                        self.placement.add(rest, open);
                    }
                }
            } else {
                self.collection.partial[self.flash.format.group_of(pu) as usize].push((chunk, write_pointer));
            }
        }
    }
}
