//! What the emulated device itself costs: nanoseconds per operation, for each store and timing.
//!
//! ```text
//! cargo run --release -p openftl-media --example device_cost [-- --json]
//! ```
//!
//! Payload is copied between frames and store as for a real host; the cost of that copy alone comes first, so that
//! what the device adds can be read off. Every figure is the least of several rounds.

use openftl_core::{BLOCK_BYTES, ChunkId, Frame, FrameForm, Frames, Geometry, Ppa, Time, VECTOR_BLOCKS_MAX};
use openftl_media::{Blocks, Command, Completion, EmulatedDevice, Media, Profile, Status, Store, Timing};
use std::time::Instant;

const ROUNDS: usize = 5;
const READS: usize = 200_000;

struct Figure {
    name: String,
    ns: f64,
}

#[expect(clippy::disallowed_methods, reason = "a measurement has to read a clock")]
fn timed(operations: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn least(mut measure: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

/// A device, its frames, and a host that waits for each command.
struct Bench {
    device: EmulatedDevice,
    geometry: Geometry,
    frames: Frames,
    list: Vec<Frame>,
    now: Time,
    completions: Vec<Completion>,
}

impl Bench {
    fn new(store: Store, timing: Timing, form: FrameForm) -> Bench {
        let profile = Profile::builtin("cosmos").expect("a builtin profile");
        let device = EmulatedDevice::new(profile, 32, store, timing, 1).expect("a device in memory");
        let geometry = *device.geometry();
        let (pages, stamps) = if form == FrameForm::Bytes { (VECTOR_BLOCKS_MAX, 0) } else { (0, VECTOR_BLOCKS_MAX) };
        let mut frames = Frames::new(pages, stamps, geometry.oob_bytes as usize);
        let mut list = Vec::new();
        assert!(frames.acquire_many(form, VECTOR_BLOCKS_MAX, &mut list));
        Bench { device, geometry, frames, list, now: Time::ZERO, completions: Vec::new() }
    }

    fn run<'a>(&'a mut self, command: impl FnOnce(&'a [Frame]) -> Command<'a>) {
        self.device.submit(self.now, &mut self.frames, 0, command(&self.list)).expect("the queue is empty");
        self.now = self.now.max(self.device.next_due().expect("one command is under way"));
        self.completions.clear();
        self.device.poll(self.now, &mut self.frames, &mut self.completions);
        assert_eq!(self.completions[0].status, Status::Success);
    }

    /// Fills every chunk with vectors; nanoseconds per block.
    fn fill(&mut self) -> f64 {
        let format = self.geometry.format();
        let chunks: Vec<ChunkId> = self.geometry.chunk_ids().collect();
        let blocks = chunks.len() * self.geometry.blocks_per_chunk as usize;
        let mut ppas = Vec::with_capacity(VECTOR_BLOCKS_MAX);
        timed(blocks, || {
            for chunk in chunks {
                for first in (0..self.geometry.blocks_per_chunk).step_by(VECTOR_BLOCKS_MAX) {
                    ppas.clear();
                    ppas.extend((first..first + VECTOR_BLOCKS_MAX as u32).map(|block| format.ppa(chunk, block)));
                    self.run(|frames| Command::Write { blocks: Blocks::Vector(&ppas), frames, fua: false });
                }
            }
        })
    }

    /// Resets every chunk; nanoseconds per chunk.
    fn reset(&mut self) -> f64 {
        let format = self.geometry.format();
        let chunks: Vec<ChunkId> = self.geometry.chunk_ids().collect();
        timed(chunks.len(), || {
            for chunk in chunks {
                let first = [format.ppa(chunk, 0)];
                self.run(|_| Command::Reset { blocks: Blocks::Vector(&first) });
            }
        })
    }

    /// Reads single blocks; nanoseconds per command. Random ones, or the same few that stay in the processor's cache.
    fn read(&mut self, random: bool) -> f64 {
        let blocks = self.geometry.blocks();
        let mut state = 1_u64;
        timed(READS, || {
            for _ in 0..READS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let ppa = [Ppa((state >> 33) % if random { blocks } else { 4 })];
                self.run(|frames| Command::Read { blocks: Blocks::Vector(&ppa), frames: &frames[..1] });
            }
        })
    }
}

/// The copy alone, between a pool of frames and as much memory as the device has.
fn copy(random: bool) -> f64 {
    let blocks = 32 * 8 * 256;
    let memory = vec![1_u8; blocks * BLOCK_BYTES];
    let mut frame = vec![0_u8; BLOCK_BYTES];
    let mut state = 1_u64;
    least(|| {
        timed(READS, || {
            for _ in 0..READS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let start = ((state >> 33) as usize % if random { blocks } else { 4 }) * BLOCK_BYTES;
                frame.copy_from_slice(&memory[start..start + BLOCK_BYTES]);
                std::hint::black_box(&mut frame);
            }
        })
    })
}

/// The copy alone, the other way: 64 blocks that stay in the processor's cache, to one memory after the other.
fn copy_out() -> f64 {
    let mut memory = vec![1_u8; 32 * 8 * 256 * BLOCK_BYTES];
    let frames = vec![2_u8; VECTOR_BLOCKS_MAX * BLOCK_BYTES];
    let blocks = memory.len() / BLOCK_BYTES;
    least(|| {
        timed(blocks, || {
            for vector in memory.chunks_exact_mut(frames.len()) {
                vector.copy_from_slice(std::hint::black_box(&frames));
            }
        })
    })
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut figures = vec![
        Figure { name: "copy of 4 KiB, random".into(), ns: copy(true) },
        Figure { name: "copy of 4 KiB, cached".into(), ns: copy(false) },
        Figure { name: "copy of 4 KiB to memory".into(), ns: copy_out() },
    ];
    for (store_name, form) in [("ram", FrameForm::Bytes), ("stamps", FrameForm::Stamp)] {
        for (timing_name, timing) in [("instant", Timing::Instant), ("modelled", Timing::Modelled)] {
            let store = if form == FrameForm::Bytes { Store::Ram } else { Store::Stamps };
            let mut bench = Bench::new(store, timing, form);
            let mut writes = Vec::new();
            let mut resets = Vec::new();
            // The first round takes memory from the system; the later ones show the steady state.
            for _ in 0..ROUNDS {
                writes.push(bench.fill());
                resets.push(bench.reset());
            }
            bench.fill();
            let mut add =
                |what: &str, ns| figures.push(Figure { name: format!("{store_name}, {timing_name}: {what}"), ns });
            add("write, per block of a 64-block vector", writes[1..].iter().copied().fold(f64::INFINITY, f64::min));
            add("reset, per chunk", resets.iter().copied().fold(f64::INFINITY, f64::min));
            add("read of one block, random", least(|| bench.read(true)));
            add("read of one block, cached", least(|| bench.read(false)));
        }
    }
    if json {
        let fields: Vec<String> =
            figures.iter().map(|figure| format!("\"{}\":{:.1}", figure.name, figure.ns)).collect();
        println!("{{{}}}", fields.join(","));
    } else {
        for figure in figures {
            println!("{:>10.1} ns  {}", figure.ns, figure.name);
        }
    }
}
