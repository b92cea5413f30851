//! Damage to the metadata of a drive, found by what its blocks say of themselves.

use openftl_core::{ChunkId, Clock, FrameForm, Frames, Ppa};
use openftl_media::{Blocks, ChunkState, Command, Media};
use openftl_parts::flash::oob::{BlockKind, Oob};
use openftl_parts::flash::seals::Seals;
use openftl_parts::{Superblock, Target};
use openftl_sim::World;

/// What happens to a block, or to its whole chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    Unreadable,
    Corrupted,
    Offline,
}

impl Damage {
    pub fn strike(self, world: &World, ppa: Ppa) {
        let chunk = world.wire.geometry().format().chunk_of(ppa);
        match self {
            Damage::Unreadable => world.device().inject_read_failure(ppa).unwrap(),
            Damage::Corrupted => world.device().corrupt(ppa).unwrap(),
            Damage::Offline => world.device().take_offline(chunk).unwrap(),
        }
    }

    /// Strikes all of them; a chunk goes offline once.
    pub fn strike_all(self, world: &mut World, places: impl IntoIterator<Item = Ppa>) {
        for ppa in places {
            let chunk = world.wire.geometry().format().chunk_of(ppa);
            if world.chunk_report().iter().any(|other| other.chunk == chunk && other.state != ChunkState::Offline) {
                self.strike(world, ppa);
            }
        }
    }
}

/// Every block that can be read, with what it says it is; those of log, checkpoint and superblock only if they verify.
pub fn blocks(world: &mut World) -> Vec<(Ppa, Oob)> {
    let geometry = *world.wire.geometry();
    let mut frames = Frames::new(64, 0, geometry.oob_bytes as usize);
    let mut into = Vec::new();
    assert!(frames.acquire_many(FrameForm::Bytes, 64, &mut into));
    let mut seals = Seals::new(&geometry);
    seals.begin(world.config.drive_id, 0, false);
    let mut found = Vec::new();
    for chunk in world.chunk_report() {
        let readable = match chunk.state {
            ChunkState::Closed => chunk.write_pointer,
            ChunkState::Open => chunk.write_pointer.saturating_sub(geometry.mw_cunits),
            _ => 0,
        };
        let places: Vec<Ppa> = (0..readable).map(|block| geometry.format().ppa(chunk.chunk, block)).collect();
        for places in places.chunks(64) {
            let command = Command::Read { blocks: Blocks::Vector(places), frames: &into[..places.len()] };
            let now = world.clock.now();
            world.device().submit(now, &mut frames, 0, command).unwrap();
            let due = world.device().next_due().unwrap();
            let now = world.clock.wait_until(due);
            let mut completions = Vec::new();
            world.device().poll(now, &mut frames, &mut completions);
            for (index, ppa) in places.iter().enumerate() {
                let good = completions[0].status.data_is_good() || completions[0].failed >> index & 1 == 0;
                if let Some(oob) = good.then(|| seals.take_off(&mut frames, into[index], *ppa)).flatten() {
                    found.push((*ppa, oob));
                }
            }
        }
    }
    found
}

/// The newest superblock on media, and the places of its first blocks.
pub fn superblock(world: &mut World) -> (Superblock, Vec<Ppa>) {
    world.open(openftl_parts::Access::Inspect).unwrap();
    let superblock = world.ftl().superblock().clone();
    world.ftl = None;
    let is_newest =
        |oob: &Oob| (oob.kind, oob.address, oob.sequence) == (BlockKind::Superblock, 0, superblock.sequence);
    let places = blocks(world).into_iter().filter(|(_, oob)| is_newest(oob)).map(|(ppa, _)| ppa).collect();
    (superblock, places)
}

/// The blocks of one copy of the log that count, in order.
pub fn log(world: &mut World, superblock: &Superblock, copy: usize) -> Vec<(u64, Ppa)> {
    let format = world.wire.geometry().format();
    let counts = |lsn: u64| lsn >= superblock.first_lsn && !superblock.is_in_gap(lsn);
    let mut log: Vec<(u64, Ppa)> = blocks(world)
        .into_iter()
        .filter(|(ppa, oob)| {
            let in_copy = superblock.log_chunks[copy].contains(&format.chunk_of(*ppa).0);
            oob.kind == BlockKind::Log && in_copy && counts(oob.sequence)
        })
        .map(|(ppa, oob)| (oob.sequence, ppa))
        .collect();
    log.sort_unstable();
    log
}

/// The blocks of one copy of the checkpoint, by index.
pub fn checkpoint(world: &mut World, superblock: &Superblock, copy: usize) -> Vec<(u64, Ppa)> {
    let format = world.wire.geometry().format();
    let extents = &superblock.checkpoint.copies[copy];
    let mut body: Vec<(u64, Ppa)> = blocks(world)
        .into_iter()
        .filter(|(ppa, oob)| {
            let (chunk, block) = (format.chunk_of(*ppa), format.block_of(*ppa));
            let named = extents.iter().any(|extent| {
                ChunkId(extent.chunk) == chunk && (extent.first..extent.first + extent.blocks).contains(&block)
            });
            named && (oob.kind, oob.sequence) == (BlockKind::Checkpoint, superblock.checkpoint.sequence)
        })
        .map(|(ppa, oob)| (oob.address, ppa))
        .collect();
    body.sort_unstable();
    body
}

/// A drive that was cut off with a checkpoint and some log behind it, everything flushed, nothing trimmed.
pub fn cut_off(seed: u64) -> World {
    let config = openftl_parts::Config { checkpoint_log_blocks: Some(400), ..openftl_sim::world::config(3000, seed) };
    let mut world = World::new(openftl_media::Profile::builtin("tiny").unwrap(), config, 20, seed);
    world.write_all(40);
    while world.ftl().statistics().checkpoints < 1 {
        let (first, blocks) = world.range(30);
        world.write(first, blocks);
    }
    for _ in 0..20 {
        let (first, blocks) = world.range(30);
        world.write(first, blocks);
        world.flush();
    }
    idle(&mut world);
    world.power_cut(false);
    world
}

/// Lets the drive work until nothing is due.
pub fn idle(world: &mut World) {
    while world.ftl().next_due().is_some() {
        world.idle_step();
    }
}
