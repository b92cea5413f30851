//! A host for the checks: it submits one command, waits for it, and hands out the completion.

use crate::contract::{Blocks, ChunkDescriptor, ChunkState, Command, Completion, Media, Status};
use openftl_core::{
    AddressFormat, BLOCK_BYTES, ChunkId, Frame, FrameForm, Frames, Geometry, Ppa, Stamp, Time, VECTOR_BLOCKS_MAX,
};

/// Frames in the host's pool: enough for the longest scalar command.
const FRAMES: usize = crate::contract::SCALAR_BLOCKS_MAX as usize + 1;

/// A device under test, and what a host needs to talk to it.
pub struct Host<M> {
    /// The device.
    pub device: M,
    /// Its geometry.
    pub geometry: Geometry,
    /// Its addresses.
    pub format: AddressFormat,
    /// The host's memory.
    pub frames: Frames,
    /// Byte frames.
    pub pages: Vec<Frame>,
    /// A few stamp frames.
    pub stamps: Vec<Frame>,
    /// The time.
    pub now: Time,
}

impl<M: Media> Host<M> {
    /// A host for `device`, at time zero.
    pub fn new(device: M) -> Host<M> {
        let geometry = *device.geometry();
        let mut frames = Frames::new(FRAMES, VECTOR_BLOCKS_MAX, geometry.oob_bytes as usize);
        let (mut pages, mut stamps) = (Vec::new(), Vec::new());
        assert!(frames.acquire_many(FrameForm::Bytes, FRAMES, &mut pages));
        assert!(frames.acquire_many(FrameForm::Stamp, VECTOR_BLOCKS_MAX, &mut stamps));
        Host { device, geometry, format: geometry.format(), frames, pages, stamps, now: Time::ZERO }
    }

    /// Chunk number `index` of the device, in address order, factory-bad ones left out.
    pub fn chunk(&mut self, index: usize) -> ChunkId {
        let good = self.report().into_iter().filter(|descriptor| descriptor.state != ChunkState::Offline);
        good.map(|descriptor| descriptor.chunk).nth(index).expect("the device has that many good chunks")
    }

    /// Consecutive addresses.
    pub fn ppas(&self, chunk: ChunkId, blocks: std::ops::Range<u32>) -> Vec<Ppa> {
        blocks.map(|block| self.format.ppa(chunk, block)).collect()
    }

    /// The whole chunk report.
    pub fn report(&mut self) -> Vec<ChunkDescriptor> {
        let first = self.geometry.chunk_ids().next().expect("a device has a chunk");
        let nothing =
            ChunkDescriptor { chunk: first, state: ChunkState::Offline, wear_index: 0, blocks: 0, write_pointer: 0 };
        let mut report = vec![nothing; self.geometry.chunk_ids().count()];
        self.device.chunk_report(self.now, first, &mut report).expect("the report of a device that is there");
        report
    }

    /// The descriptor of one chunk.
    pub fn descriptor(&mut self, chunk: ChunkId) -> ChunkDescriptor {
        let mut report =
            [ChunkDescriptor { chunk, state: ChunkState::Offline, wear_index: 0, blocks: 0, write_pointer: 0 }];
        self.device.chunk_report(self.now, chunk, &mut report).expect("the report of a chunk that is there");
        report[0]
    }

    /// Asserts where a chunk stands.
    pub fn expect_chunk(&mut self, chunk: ChunkId, state: ChunkState, write_pointer: u32) {
        let found = self.descriptor(chunk);
        assert_eq!((found.state, found.write_pointer), (state, write_pointer), "{chunk:?}");
    }

    /// Runs one command to its completion.
    pub fn run(&mut self, command: Command<'_>) -> Completion {
        self.device.submit(self.now, &mut self.frames, 77, command).expect("the queue is empty");
        self.wait()
    }

    /// Waits for the one command that is under way.
    pub fn wait(&mut self) -> Completion {
        let mut completions = Vec::new();
        while completions.is_empty() {
            self.now = self.now.max(self.device.next_due().expect("a command is under way"));
            self.device.poll(self.now, &mut self.frames, &mut completions);
        }
        assert_eq!(completions.len(), 1, "one command, one completion");
        assert_eq!(completions[0].tag, 77, "the host's tag comes back");
        assert!(completions[0].at <= self.now, "a completion is not delivered before its time");
        completions[0]
    }

    /// The stamp of what [`Host::write`] puts at `ppa`.
    pub fn stamp(ppa: Ppa) -> Stamp {
        Stamp((ppa.0 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn fill(&mut self, frame: Frame, ppa: Ppa) {
        Self::stamp(ppa).expand(self.frames.bytes_mut(frame));
        let oob: Vec<u8> = (0..self.geometry.oob_bytes as u8).map(|byte| byte ^ ppa.0 as u8 ^ 0xA5).collect();
        self.frames.oob_mut(frame).copy_from_slice(&oob);
    }

    /// Writes what belongs at these addresses, in vector form.
    pub fn write(&mut self, ppas: &[Ppa]) -> Completion {
        self.write_with(ppas, false)
    }

    /// The same, with or without FUA.
    pub fn write_with(&mut self, ppas: &[Ppa], fua: bool) -> Completion {
        let list = self.filled(ppas);
        self.run(Command::Write { blocks: Blocks::Vector(ppas), frames: &list, fua })
    }

    /// Frames that hold what belongs at these addresses.
    pub fn filled(&mut self, ppas: &[Ppa]) -> Vec<Frame> {
        let list = self.pages[..ppas.len()].to_vec();
        for (frame, ppa) in list.iter().zip(ppas) {
            self.fill(*frame, *ppa);
        }
        list
    }

    /// Writes what belongs at these addresses, in scalar form.
    pub fn write_scalar(&mut self, first: Ppa, count: u32) -> Completion {
        let ppas: Vec<Ppa> = (0..u64::from(count)).map(|index| Ppa(first.0 + index)).collect();
        let list = self.filled(&ppas);
        self.run(Command::Write { blocks: Blocks::Scalar { first, count }, frames: &list, fua: false })
    }

    /// Writes blocks of a chunk from its write pointer on, in as many vector writes as it takes.
    pub fn fill_chunk(&mut self, chunk: ChunkId, blocks: std::ops::Range<u32>) {
        let most = VECTOR_BLOCKS_MAX as u32 / self.geometry.ws_min * self.geometry.ws_min;
        let mut first = blocks.start;
        while first < blocks.end {
            let end = blocks.end.min(first + most);
            let ppas = self.ppas(chunk, first..end);
            self.expect_good_write(&ppas);
            first = end;
        }
    }

    /// Writes and expects success.
    pub fn expect_good_write(&mut self, ppas: &[Ppa]) {
        let completion = self.write(ppas);
        assert_eq!((completion.status, completion.failed), (Status::Success, 0));
    }

    /// Reads into byte frames that held something else, in vector form.
    pub fn read(&mut self, ppas: &[Ppa]) -> Completion {
        let list = self.emptied(ppas.len());
        self.run(Command::Read { blocks: Blocks::Vector(ppas), frames: &list })
    }

    /// The same in scalar form.
    pub fn read_scalar(&mut self, first: Ppa, count: u32) -> Completion {
        let list = self.emptied(count as usize);
        self.run(Command::Read { blocks: Blocks::Scalar { first, count }, frames: &list })
    }

    fn emptied(&mut self, count: usize) -> Vec<Frame> {
        let list = self.pages[..count].to_vec();
        for frame in &list {
            self.frames.bytes_mut(*frame).fill(0x5A);
            self.frames.oob_mut(*frame).fill(0x5A);
        }
        list
    }

    /// Asserts that frame number `index` of the last read holds what belongs at `ppa`.
    pub fn expect_frame(&mut self, index: usize, ppa: Ppa) {
        let frame = self.pages[index];
        let (bytes, oob) = (*self.frames.bytes(frame), self.frames.oob(frame).to_vec());
        self.fill(frame, ppa);
        assert!(bytes == *self.frames.bytes(frame), "the payload of {}", self.format.unpack(ppa));
        assert_eq!(oob, self.frames.oob(frame), "the out-of-band bytes of {}", self.format.unpack(ppa));
    }

    /// Asserts that frame number `index` of the last read holds predefined data.
    pub fn expect_nothing(&mut self, index: usize) {
        let frame = self.pages[index];
        assert_eq!(self.frames.bytes(frame), &[0; BLOCK_BYTES], "predefined payload is zeroes");
        assert!(self.frames.oob(frame).iter().all(|byte| *byte == 0xFF), "predefined out-of-band bytes are FFh");
    }

    /// Reads and expects what belongs at each address.
    pub fn expect_good_read(&mut self, ppas: &[Ppa]) {
        for ppas in ppas.chunks(VECTOR_BLOCKS_MAX) {
            let completion = self.read(ppas);
            assert_eq!((completion.status, completion.failed), (Status::Success, 0));
            for (index, ppa) in ppas.iter().enumerate() {
                self.expect_frame(index, *ppa);
            }
        }
    }

    /// Resets chunks in vector form.
    pub fn reset(&mut self, chunks: &[ChunkId]) -> Completion {
        let ppas: Vec<Ppa> = chunks.iter().map(|chunk| self.format.ppa(*chunk, 0)).collect();
        self.run(Command::Reset { blocks: Blocks::Vector(&ppas) })
    }

    /// Asserts how a completion ended.
    pub fn expect(&self, completion: Completion, status: Status, failed: u64) {
        assert_eq!((completion.status, completion.failed), (status, failed), "status and bitmap");
    }

    /// An address in range of the fields, but not on the device, if the geometry has any; else one beyond all fields.
    pub fn absent(&self) -> Ppa {
        let ids = self.format.chunk_ids() as u32;
        let gap = (0..ids).map(ChunkId).find(|chunk| !self.geometry.has_chunk(*chunk));
        self.format.ppa(gap.unwrap_or(ChunkId(ids)), 0)
    }
}
