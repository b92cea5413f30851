//! A host that keeps many commands under way, for the tests of the emulated device.

use openftl_core::{ChunkId, Frame, FrameForm, Frames, Nanos, Payload, PayloadMut, Ppa, Stamp, Time};
use openftl_media::{
    Blocks, ChunkDescriptor, ChunkState, Command, Completion, EmulatedDevice, Media, Profile, Status, Store, Tag,
    Timing,
};

/// A device of stamps and a host.
pub struct Host {
    pub device: EmulatedDevice,
    pub frames: Frames,
    pub list: Vec<Frame>,
    pub chunks: Vec<ChunkId>,
    pub completions: Vec<Completion>,
}

impl Host {
    pub fn new(profile: &Profile, chunks_per_pu: u32) -> Host {
        let device = EmulatedDevice::new(profile.clone(), chunks_per_pu, Store::Stamps, Timing::Modelled, 11).unwrap();
        Host::with(device)
    }

    pub fn with(device: EmulatedDevice) -> Host {
        let geometry = *device.geometry();
        let mut frames = Frames::new(0, 64, geometry.oob_bytes as usize);
        let mut list = Vec::new();
        assert!(frames.acquire_many(FrameForm::Stamp, 64, &mut list));
        Host { device, frames, list, chunks: geometry.chunk_ids().collect(), completions: Vec::new() }
    }

    /// The first chunk of parallel unit `pu` of `group`.
    pub fn chunk(&self, group: u32, pu: u32, chunk: u32) -> ChunkId {
        let format = self.device.geometry().format();
        format.chunk_id(format.pu_id(group, pu), chunk)
    }

    pub fn ppas(&self, chunk: ChunkId, first: u32, blocks: u32) -> Vec<Ppa> {
        let format = self.device.geometry().format();
        (first..first + blocks).map(|block| format.ppa(chunk, block)).collect()
    }

    pub fn write(&mut self, now: Time, tag: Tag, chunk: ChunkId, first: u32, blocks: u32, fua: bool) {
        let ppas = self.ppas(chunk, first, blocks);
        for (frame, ppa) in self.list.iter().zip(&ppas) {
            if let PayloadMut::Stamp(stamp) = self.frames.payload_mut(*frame) {
                *stamp = Stamp(ppa.0 + 1);
            }
        }
        let command = Command::Write { blocks: Blocks::Vector(&ppas), frames: &self.list[..ppas.len()], fua };
        self.device.submit(now, &mut self.frames, tag, command).unwrap();
    }

    pub fn read(&mut self, now: Time, tag: Tag, chunk: ChunkId, first: u32, blocks: u32) {
        let ppas = self.ppas(chunk, first, blocks);
        let command = Command::Read { blocks: Blocks::Vector(&ppas), frames: &self.list[..ppas.len()] };
        self.device.submit(now, &mut self.frames, tag, command).unwrap();
    }

    pub fn reset(&mut self, now: Time, tag: Tag, chunk: ChunkId) {
        let ppas = self.ppas(chunk, 0, 1);
        let command = Command::Reset { blocks: Blocks::Vector(&ppas) };
        self.device.submit(now, &mut self.frames, tag, command).unwrap();
    }

    /// Delivers everything that is due by `now`.
    pub fn poll(&mut self, now: Time) {
        self.device.poll(now, &mut self.frames, &mut self.completions);
    }

    /// Waits for everything; all that completed, in order.
    pub fn finish(&mut self) -> Vec<Completion> {
        while let Some(due) = self.device.next_due() {
            self.poll(due);
        }
        std::mem::take(&mut self.completions)
    }

    /// Waits for everything and gives the time at which each tag from 0 on completed.
    pub fn finish_times(&mut self) -> Vec<u64> {
        let mut completions = self.finish();
        assert!(completions.iter().all(|completion| completion.status == Status::Success), "{completions:?}");
        completions.sort_by_key(|completion| completion.tag);
        completions.iter().map(|completion| completion.at.0).collect()
    }

    /// Writes whole chunks and waits; gives the time at which everything is programmed.
    pub fn fill(&mut self, chunks: &[ChunkId]) -> Time {
        let geometry = *self.device.geometry();
        for chunk in chunks {
            for first in (0..geometry.blocks_per_chunk).step_by(geometry.ws_min as usize) {
                self.write(Time::ZERO, 0, *chunk, first, geometry.ws_min, true);
            }
        }
        self.device.submit(Time::ZERO, &mut self.frames, 0, Command::Flush).unwrap();
        let last = self.finish().last().unwrap().at;
        // A protected cache may still be at work.
        last + Nanos::from_millis(1000)
    }

    pub fn descriptor(&mut self, chunk: ChunkId) -> ChunkDescriptor {
        let mut report =
            [ChunkDescriptor { chunk, state: ChunkState::Free, wear_index: 0, blocks: 0, write_pointer: 0 }];
        self.device.chunk_report(Time::ZERO, chunk, &mut report).unwrap();
        report[0]
    }

    /// Reads one block and gives its status; if it is good, it holds what was written there.
    pub fn status(&mut self, now: Time, chunk: ChunkId, block: u32) -> Status {
        self.device.set_dulbe(true);
        self.read(now, 0, chunk, block, 1);
        let completion = self.finish()[0];
        if completion.status.data_is_good() {
            let ppa = self.ppas(chunk, block, 1)[0];
            assert_eq!(self.frames.payload(self.list[0]), Payload::Stamp(Stamp(ppa.0 + 1)));
        }
        completion.status
    }
}
