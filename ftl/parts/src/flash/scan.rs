//! Reading many blocks of a device that nobody else uses yet: what recovery and the checks do.

use crate::flash::oob::Oob;
use crate::flash::seals::Seals;
use openftl_core::{AddressFormat, Clock, Frame, FrameForm, Frames, Geometry, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Blocks, Command, Completion, Media, Status};
use std::collections::{BTreeMap, VecDeque};

/// Commands under way at a time, at most.
const COMMANDS_MAX: usize = 16;

/// Marks the tags of a scan: what an FTL that is no more left under way may still complete, and is ignored.
const TAG: u64 = 0x5CA7 << 48;

/// Frames and tables for reading many blocks. Counts what it reads.
pub struct Scan {
    frames: Frames,
    scratch: Vec<Frame>,
    /// Blocks of one command: a chunk at most.
    vector_blocks: usize,
    /// Commands under way: two for each parallel unit keep all of them busy.
    commands: usize,
    completions: Vec<Completion>,
    /// What is known of the drive's seals.
    pub seals: Seals,
    /// Blocks read so far.
    pub blocks_read: u64,
    /// Blocks written so far.
    pub blocks_written: u64,
}

impl Scan {
    /// For a device of this shape.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Scan {
        let vector_blocks = VECTOR_BLOCKS_MAX.min(geometry.blocks_per_chunk as usize);
        let commands = COMMANDS_MAX.min(2 * geometry.pus() as usize);
        let mut frames = Frames::new(commands * vector_blocks, 0, geometry.oob_bytes as usize);
        let mut scratch = Vec::new();
        let taken = frames.acquire_many(FrameForm::Bytes, commands * vector_blocks, &mut scratch);
        assert!(taken, "a new pool is full");
        Scan {
            frames,
            scratch,
            vector_blocks,
            commands,
            completions: Vec::new(),
            seals: Seals::new(geometry),
            blocks_read: 0,
            blocks_written: 0,
        }
    }

    /// Reads `places` and hands each block once to `each`, in no particular order: its address, the pool, its frame, and
    /// what it says it is if it verifies, or if it is of a kind that cannot be verified yet. One that does not is read once
    /// more before that is believed. What the device cannot read at all has out-of-band bytes of zeroes.
    pub fn read(
        &mut self,
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        places: &[Ppa],
        mut each: impl FnMut(Ppa, &mut Frames, Frame, Option<Oob>),
    ) {
        let mut again = Vec::new();
        self.pass(media, clock, places, |ppa, frames, frame, oob| match oob {
            Some(_) => each(ppa, frames, frame, oob),
            None => again.push(ppa),
        });
        self.pass(media, clock, &again, each);
    }

    fn pass(
        &mut self,
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        places: &[Ppa],
        mut each: impl FnMut(Ppa, &mut Frames, Frame, Option<Oob>),
    ) {
        self.blocks_read += places.len() as u64;
        let mut commands = places.chunks(self.vector_blocks);
        let mut free: Vec<usize> = (0..self.commands).collect();
        let mut under_way: [&[Ppa]; COMMANDS_MAX] = [&[]; COMMANDS_MAX];
        let mut next = commands.next();
        while next.is_some() || free.len() < self.commands {
            while let (Some(blocks), Some(slot)) = (next, free.last().copied()) {
                let frames = &self.scratch[slot * self.vector_blocks..][..blocks.len()];
                let command = Command::Read { blocks: Blocks::Vector(blocks), frames };
                if media.submit(clock.now(), &mut self.frames, TAG | slot as u64, command).is_err() {
                    break;
                }
                free.pop();
                under_way[slot] = blocks;
                next = commands.next();
            }
            self.wait(media, clock);
            for completion in self.completions.drain(..) {
                let slot = (completion.tag & !TAG) as usize;
                for (index, ppa) in std::mem::take(&mut under_way[slot]).iter().enumerate() {
                    let good = completion.status.data_is_good() || completion.failed >> index & 1 == 0;
                    let frame = self.scratch[slot * self.vector_blocks + index];
                    if !good {
                        self.frames.oob_mut(frame).fill(0);
                    }
                    let oob = self.seals.take_off(&mut self.frames, frame, *ppa);
                    each(*ppa, &mut self.frames, frame, oob);
                }
                free.push(slot);
            }
        }
    }

    /// Runs one write or reset to its end. `fill` prepares the frames of a write.
    pub fn run(
        &mut self,
        media: &mut dyn Media,
        clock: &mut dyn Clock,
        blocks: &[Ppa],
        fill: Option<impl FnMut(&mut Frames, Frame)>,
    ) -> Status {
        let scratch = std::mem::take(&mut self.scratch);
        let frames = &scratch[..blocks.len()];
        let command = match fill {
            Some(mut fill) => {
                for frame in frames {
                    fill(&mut self.frames, *frame);
                }
                self.blocks_written += blocks.len() as u64;
                Command::Write { blocks: Blocks::Vector(blocks), frames, fua: true }
            }
            None => Command::Reset { blocks: Blocks::Vector(blocks) },
        };
        while media.submit(clock.now(), &mut self.frames, TAG, command).is_err() {
            self.wait(media, clock);
        }
        loop {
            self.wait(media, clock);
            if let Some(completion) = self.completions.pop() {
                self.scratch = scratch;
                return completion.status;
            }
        }
    }

    fn wait(&mut self, media: &mut dyn Media, clock: &mut dyn Clock) {
        let now = clock.now();
        media.poll(now, &mut self.frames, &mut self.completions);
        if self.completions.is_empty() {
            let due = media.next_due().unwrap_or(Time(now.0 + 1_000));
            let now = clock.wait_until(due);
            media.poll(now, &mut self.frames, &mut self.completions);
        }
        self.completions.retain(|completion| completion.tag & TAG == TAG);
    }
}

/// Orders `places` so that commands go to the parallel units in turns, first to every group, and many dies read side by
/// side.
pub fn interleaved(format: AddressFormat, places: impl Iterator<Item = Ppa>) -> Vec<Ppa> {
    let mut on_pu: BTreeMap<(u32, u32), VecDeque<Ppa>> = BTreeMap::new();
    for ppa in places {
        let pu = format.pu_of(format.chunk_of(ppa));
        let group = format.group_of(pu);
        on_pu.entry((pu.0 - format.pu_id(group, 0).0, group)).or_default().push_back(ppa);
    }
    let mut left: VecDeque<VecDeque<Ppa>> = on_pu.into_values().collect();
    let mut ordered = Vec::new();
    while let Some(mut places) = left.pop_front() {
        ordered.extend(places.drain(..places.len().min(VECTOR_BLOCKS_MAX)));
        if !places.is_empty() {
            left.push_back(places);
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_go_to_every_group_before_the_next_parallel_unit() {
        let geometry = Geometry { groups: 2, pus_per_group: 2, blocks_per_chunk: 96, ..Geometry::tiny() };
        let format = geometry.format();
        let chunks = geometry.chunk_ids().filter(|chunk| chunk.0 % 8 < 2);
        let places: Vec<Ppa> = chunks.flat_map(|chunk| (0..96).map(move |block| format.ppa(chunk, block))).collect();
        let ordered = interleaved(format, places.iter().copied());
        let pus: Vec<u32> = ordered.chunks(64).map(|command| format.pu_of(format.chunk_of(command[0])).0).collect();
        assert_eq!(pus, [0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3]);
        let mut sorted = ordered;
        sorted.sort_unstable();
        assert_eq!(sorted, places);
    }
}
