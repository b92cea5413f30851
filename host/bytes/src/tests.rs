use std::collections::HashMap;

use openftl_core::{BLOCK_BYTES, Nanos};
use openftl_parts::target::{Durability, ObjectError, Target};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use memory::{Memory, Temper};

#[path = "../tests/support/memory.rs"]
mod memory;

const WITHIN: Nanos = Nanos::from_micros(100);

fn shuffled(seed: u64) -> Temper {
    Temper::Shuffled { seed, within: WITHIN }
}

/// Byte requests on a drive, in virtual time.
struct Bench {
    drive: Memory,
    requests: ByteRequests<u64>,
    now: Time,
}

impl Bench {
    fn new(blocks: usize, frames: usize, temper: Temper) -> Bench {
        Bench { drive: Memory::new(blocks, frames, temper), requests: ByteRequests::new(64), now: Time::ZERO }
    }

    fn try_begin(&mut self, ticket: u64, request: ByteRequest, payload: &[u8]) -> bool {
        let Some(id) = self.requests.admit(self.drive.frames_mut(), ticket, request) else { return false };
        let mut from = 0;
        while from < payload.len() {
            let room = self.requests.slice_mut(self.drive.frames_mut(), id, from as u64);
            let bytes = room.len();
            room.copy_from_slice(&payload[from..from + bytes]);
            from += bytes;
        }
        self.requests.start(self.now, &mut self.drive, id);
        true
    }

    /// One step of time; what ended, with the bytes of reads.
    fn step(&mut self) -> Vec<(u64, Result<(), IoError>, Vec<u8>)> {
        if let Some(due) = self.drive.next_due() {
            self.now = self.now.max(due);
        }
        let mut finished = Vec::new();
        self.requests.poll(self.now, &mut self.drive, &mut finished);
        let ended = finished.into_iter().map(|finished| {
            let mut bytes = Vec::new();
            if let ByteRequest::Read { length, .. } = self.requests.ops[finished.id.0].request
                && finished.result.is_ok()
            {
                while (bytes.len() as u64) < length {
                    bytes.extend_from_slice(self.requests.slice(
                        self.drive.frames_mut(),
                        finished.id,
                        bytes.len() as u64,
                    ));
                }
            }
            self.requests.release(self.drive.frames_mut(), finished.id);
            (finished.ticket, finished.result, bytes)
        });
        ended.collect()
    }

    /// Runs one request alone.
    fn run(&mut self, request: ByteRequest, payload: &[u8]) -> Result<Vec<u8>, IoError> {
        assert!(self.try_begin(0, request, payload));
        loop {
            if let Some((_, result, bytes)) = self.step().pop() {
                return result.map(|()| bytes);
            }
        }
    }

    fn finish_all(&mut self) {
        while !self.requests.is_empty() {
            self.step();
        }
    }
}

fn write(offset: u64, length: usize) -> ByteRequest {
    ByteRequest::Write { offset, length: length as u64, durability: Durability::Volatile, handle: Handle::NONE }
}

fn read(offset: u64, length: usize) -> ByteRequest {
    ByteRequest::Read { offset, length: length as u64 }
}

#[test]
fn writes_to_different_bytes_of_a_block_are_both_there() {
    for seed in 0..200 {
        let mut bench = Bench::new(4, 64, shuffled(seed));
        let mut wanted = vec![0; 4 * BLOCK_BYTES];
        // Sixty-four neighbours of 200 bytes, all in flight at once, two or three sharing each block boundary.
        for index in 0..64_usize {
            let payload = [index as u8 + 1; 200];
            wanted[index * 200..][..200].copy_from_slice(&payload);
            while !bench.try_begin(0, write(index as u64 * 200, 200), &payload) {
                bench.step();
            }
        }
        bench.finish_all();
        assert!(bench.drive.data() == wanted, "seed {seed}: an update was lost");
        assert!(bench.drive.is_at_rest());
    }
}

#[test]
fn a_whole_block_write_is_not_undone_by_an_earlier_or_later_neighbour_in_part() {
    for seed in 0..200 {
        let mut bench = Bench::new(2, 64, shuffled(seed));
        assert!(bench.try_begin(0, write(0, BLOCK_BYTES), &[1; BLOCK_BYTES]));
        assert!(bench.try_begin(1, write(10, 10), &[2; 10]));
        assert!(bench.try_begin(2, write(0, 2 * BLOCK_BYTES), &[3; 2 * BLOCK_BYTES]));
        assert!(bench.try_begin(3, write(BLOCK_BYTES as u64 - 5, 10), &[4; 10]));
        bench.finish_all();
        let mut wanted = [3; 2 * BLOCK_BYTES];
        wanted[BLOCK_BYTES - 5..BLOCK_BYTES + 5].fill(4);
        assert!(bench.drive.data() == wanted, "seed {seed}");
    }
}

#[test]
fn any_mix_of_byte_ranges_agrees_with_a_vector() {
    const BLOCKS: usize = 700;
    const BYTES: u64 = (BLOCKS * BLOCK_BYTES) as u64;
    for seed in 0..40 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bench = Bench::new(BLOCKS, 900, shuffled(seed));
        let mut model = vec![0_u8; BYTES as usize];
        // Requests in flight never share a byte (their order would be anybody's), but often a block.
        let mut in_flight: HashMap<u64, (ByteRequest, Vec<u8>)> = HashMap::new();
        let mut ticket = 0;
        while ticket < 400 || !in_flight.is_empty() {
            if ticket < 400 && chance.next_u64().is_multiple_of(2) {
                ticket += 1;
                let near = chance.next_u64() % 4 != 0;
                let offset = if near { chance.next_u64() % (8 * 4096) } else { chance.next_u64() % BYTES };
                let longest = if near { 9_000 } else { 600 * 4096 };
                let length = (1 + chance.next_u64() % longest).min(BYTES - offset);
                // Half of them on block boundaries.
                let (offset, length) = match chance.next_u64() % 2 {
                    0 => (offset, length),
                    _ => (offset & !4095, length.next_multiple_of(4096).min(BYTES - (offset & !4095))),
                };
                let (start, end) = (offset as usize, (offset + length) as usize);
                let taken = |request: &ByteRequest| {
                    let other = request.span();
                    other.offset < offset + length && offset < other.offset + other.length
                };
                // A trim of a block that another is changing would make its other bytes anybody's.
                if in_flight.values().any(|(request, _)| taken(request)) {
                    continue;
                }
                let payload: Vec<u8> = match chance.next_u64() % 5 {
                    0 | 1 => (0..length).map(|_| chance.next_u32() as u8).collect(),
                    _ => Vec::new(),
                };
                let request = match chance.next_u64() % 3 {
                    _ if !payload.is_empty() => write(offset, payload.len()),
                    0 => ByteRequest::Zero { offset, length, durability: Durability::Volatile },
                    1 => ByteRequest::Trim { offset, length, durability: Durability::Volatile },
                    _ => ByteRequest::Read { offset, length },
                };
                if !bench.try_begin(ticket, request, &payload) {
                    continue;
                }
                match request {
                    ByteRequest::Write { .. } => model[start..end].copy_from_slice(&payload),
                    ByteRequest::Zero { .. } => model[start..end].fill(0),
                    ByteRequest::Trim { .. } => {
                        let whole = request.span().whole_blocks();
                        model[whole.start as usize * 4096..whole.end as usize * 4096].fill(0);
                    }
                    ByteRequest::Read { .. }
                    | ByteRequest::WriteUncorrectable { .. }
                    | ByteRequest::Flush
                    | ByteRequest::FlashAlloc
                    | ByteRequest::Exchange { .. } => {}
                }
                in_flight.insert(ticket, (request, model[start..end].to_vec()));
            } else {
                for (ticket, result, bytes) in bench.step() {
                    assert_eq!(result, Ok(()), "seed {seed}");
                    let (request, wanted) = in_flight.remove(&ticket).expect("each request ends once");
                    if matches!(request, ByteRequest::Read { .. }) {
                        assert!(bytes == wanted, "seed {seed}: {request:?} brought something else");
                    }
                }
            }
        }
        assert!(bench.drive.data() == model, "seed {seed}");
        assert!(bench.drive.is_at_rest(), "seed {seed}: a frame was kept");
    }
}

#[test]
fn a_trim_leaves_its_edges_and_a_zero_does_not() {
    let mut bench = Bench::new(3, 16, shuffled(1));
    bench.run(write(0, 3 * 4096), &[7; 3 * 4096]).unwrap();
    let (offset, length) = (100, 2 * 4096);
    bench.run(ByteRequest::Trim { offset, length, durability: Durability::Volatile }, &[]).unwrap();
    let mut wanted = vec![7; 3 * 4096];
    wanted[4096..8192].fill(0);
    assert!(bench.drive.data() == wanted);
    bench.run(ByteRequest::Zero { offset, length, durability: Durability::Volatile }, &[]).unwrap();
    wanted[100..100 + 8192].fill(0);
    assert!(bench.drive.data() == wanted);
}

#[test]
fn aligned_requests_go_to_the_drive_in_transactions_of_one_mebibyte() {
    let mut bench = Bench::new(1024, 1024, Temper::Instant);
    let before = bench.drive.switches.submitted.load(std::sync::atomic::Ordering::SeqCst);
    bench.run(write(4096, 600 * 4096), &vec![1; 600 * 4096]).unwrap();
    let after = bench.drive.switches.submitted.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(after - before, 3, "256 + 256 + 88 blocks, and nothing read first");
}

#[test]
fn durability_reaches_every_part() {
    let mut bench = Bench::new(4, 16, shuffled(3));
    let volatile = |bench: &Bench| bench.drive.switches.volatile.load(std::sync::atomic::Ordering::SeqCst);
    bench
        .run(
            ByteRequest::Write { offset: 10, length: 9000, durability: Durability::Durable, handle: Handle::NONE },
            &[1; 9000],
        )
        .unwrap();
    assert_eq!(volatile(&bench), 0);
    bench.run(ByteRequest::Zero { offset: 20, length: 8000, durability: Durability::Durable }, &[]).unwrap();
    assert_eq!(volatile(&bench), 0);
    bench.run(write(20, 8000), &[1; 8000]).unwrap();
    assert_eq!(volatile(&bench), 2);
    bench.run(ByteRequest::Flush, &[]).unwrap();
    assert_eq!(volatile(&bench), 0);
}

#[test]
fn every_block_of_a_write_goes_under_its_handle() {
    let mut bench = Bench::new(1024, 1024, shuffled(5));
    let under = |offset, length, handle| ByteRequest::Write {
        offset,
        length,
        durability: Durability::Volatile,
        handle: Handle(handle),
    };
    bench.run(under(0, 4096, 3), &[1; 4096]).unwrap();
    bench.run(under(10, 9000, 2), &[1; 9000]).unwrap();
    bench.run(under(4096, 300 * 4096, 1), &[1; 300 * 4096]).unwrap();
    bench.run(write(4096, 4096), &[1; 4096]).unwrap();
    let wanted = [(3, 1), (2, 3), (1, 256), (1, 44), (0, 1)].map(|(handle, blocks)| (Handle(handle), blocks));
    assert_eq!(bench.drive.handles, wanted);
    // What a zero leaves of its edges is of no handle.
    bench.run(ByteRequest::Zero { offset: 10, length: 9000, durability: Durability::Volatile }, &[]).unwrap();
    assert_eq!(bench.drive.handles[5..], [(Handle::NONE, 1); 2]);
}

#[test]
fn an_object_goes_to_the_drive_as_it_is() {
    let mut bench = Bench::new(16, 16, Temper::Instant);
    let id = bench.requests.admit(bench.drive.frames_mut(), 9, ByteRequest::FlashAlloc).unwrap();
    bench.requests.set_extents(id, &[Extent { first: 3, blocks: 4 }]);
    bench.requests.start(bench.now, &mut bench.drive, id);
    let ended = bench.step();
    assert_eq!(ended, [(9, Err(IoError::Object(ObjectError::NotKept)), vec![])]);
    assert!(bench.drive.is_at_rest());
}

#[test]
fn a_request_without_its_frames_is_not_begun_and_one_with_them_ends() {
    let mut bench = Bench::new(16, 6, shuffled(4));
    assert!(!bench.try_begin(0, read(0, 7 * 4096), &[]), "more blocks than frames");
    assert!(!bench.try_begin(0, write(1, 4 * 4096), &[]), "five blocks, and two edges to read first");
    assert!(bench.drive.is_at_rest());
    assert!(bench.try_begin(0, write(1, 3 * 4096), &[1; 3 * 4096]), "four and two");
    assert!(!bench.try_begin(0, read(0, 1), &[]));
    bench.finish_all();
    assert!(bench.drive.is_at_rest());
}

#[test]
fn an_abandoned_write_never_happened() {
    let mut bench = Bench::new(2, 8, Temper::Instant);
    let id = bench.requests.admit(bench.drive.frames_mut(), 0, write(10, 5000)).unwrap();
    bench.requests.slice_mut(bench.drive.frames_mut(), id, 0).fill(9);
    bench.requests.abandon(bench.drive.frames_mut(), id);
    bench.run(read(0, 1), &[]).unwrap();
    assert!(bench.drive.data().iter().all(|byte| *byte == 0));
    assert!(bench.drive.is_at_rest());
}

#[test]
fn a_lost_edge_block_fails_the_write_and_nothing_is_written() {
    let mut bench = Bench::new(4, 16, shuffled(5));
    bench.drive.lost_block = Some(2);
    let result = bench.run(write(4096, 4096 + 10), &[1; 4106]);
    assert_eq!(result, Err(IoError::Unrecovered { block: 2 }));
    assert!(bench.drive.data().iter().all(|byte| *byte == 0));
    assert!(bench.drive.is_at_rest());
    bench.run(write(8192, 4096), &[1; 4096]).expect("a whole block is written without being read");
}

#[test]
fn an_uncorrectable_block_is_an_error_until_all_of_it_is_written_zeroed_or_trimmed() {
    let (offset, length, durability) = (4096, 2 * 4096, Durability::Volatile);
    type Cure = (ByteRequest, usize, u8);
    let cures: [Cure; 3] = [
        (write(4096, 4096), 4096, 9),
        (ByteRequest::Zero { offset, length, durability }, 0, 0),
        (ByteRequest::Trim { offset, length, durability }, 0, 0),
    ];
    for (seed, (cure, payload, wanted)) in cures.into_iter().enumerate() {
        let mut bench = Bench::new(4, 16, shuffled(seed as u64));
        bench.run(write(0, 4 * 4096), &[7; 4 * 4096]).unwrap();
        bench.run(ByteRequest::WriteUncorrectable { offset, length, durability }, &[]).unwrap();
        let marked = |block| Err(IoError::Uncorrectable { block });
        assert_eq!(bench.run(read(4095, 2), &[]), marked(1));
        assert_eq!(bench.run(read(8192, 512), &[]), marked(2));
        assert_eq!(bench.run(read(0, 4096), &[]), Ok(vec![7; 4096]));
        // In part it can be neither written nor zeroed: the rest of it would have to come from somewhere.
        assert_eq!(bench.run(write(4096 + 512, 512), &[8; 512]), marked(1));
        assert_eq!(
            bench.run(write(3000, 2 * 4096), &[8; 2 * 4096]),
            marked(2),
            "and nothing of the whole block before"
        );
        assert_eq!(bench.run(ByteRequest::Zero { offset: 8192, length: 512, durability }, &[]), marked(2));
        bench.run(ByteRequest::Trim { offset: 8192, length: 512, durability }, &[]).expect("a hint about part of it");
        assert_eq!(bench.run(read(8192, 1), &[]), marked(2));
        bench.run(cure, &vec![9; payload]).unwrap();
        assert_eq!(bench.run(read(4096, 4096), &[]), Ok(vec![wanted; 4096]));
        assert!(bench.drive.is_at_rest());
    }
}

#[test]
fn of_several_blocks_that_cannot_be_read_the_first_is_named() {
    for seed in 0..20 {
        let mut bench = Bench::new(600, 700, shuffled(seed));
        for block in [10, 300, 599] {
            let (offset, length) = (block * 4096, 4096);
            bench
                .run(ByteRequest::WriteUncorrectable { offset, length, durability: Durability::Durable }, &[])
                .unwrap();
        }
        assert_eq!(bench.run(read(0, 600 * 4096), &[]), Err(IoError::Uncorrectable { block: 10 }), "seed {seed}");
    }
}

#[test]
fn a_failed_write_lets_those_behind_it_go_on() {
    let mut bench = Bench::new(2, 16, shuffled(6));
    bench.drive.lost_block = Some(0);
    assert!(bench.try_begin(0, write(0, 10), &[1; 10]));
    assert!(bench.try_begin(1, write(0, 4096), &[2; 4096]));
    bench.finish_all();
    assert!(bench.drive.data()[..4096] == [2; 4096]);
}

/// Hosts take a lock by comparing and writing a byte of one block; each release and each neighbour's write comes in between
/// somewhere. A lock is never had by two.
#[test]
fn an_exchange_lets_nothing_change_its_blocks_in_between() {
    for seed in 0..50 {
        let mut bench = Bench::new(4, 64, shuffled(seed));
        let mut had = 0;
        let durability = Durability::Volatile;
        let exchange = ByteRequest::Exchange { offset: 4_000, length: 200, durability, handle: Handle::NONE };
        for ticket in 0..8 {
            assert!(bench.try_begin(ticket, exchange, &[]));
            assert!(bench.try_begin(100 + ticket, write(8 * ticket, 8), &[ticket as u8; 8]));
        }
        while !bench.requests.is_empty() {
            bench.now = bench.drive.next_due().map_or(bench.now, |due| bench.now.max(due));
            let mut finished = Vec::new();
            bench.requests.poll(bench.now, &mut bench.drive, &mut finished);
            for Finished { id, ticket, result } in finished {
                result.unwrap();
                let is_free =
                    bench.requests.is_shown(id) && bench.requests.slice(bench.drive.frames_mut(), id, 0)[0] == 0;
                if is_free {
                    had += 1;
                    bench.requests.slice_mut(bench.drive.frames_mut(), id, 0).fill(ticket as u8 + 1);
                    bench.requests.slice_mut(bench.drive.frames_mut(), id, 96).fill(ticket as u8 + 1);
                    bench.requests.write(bench.now, &mut bench.drive, id);
                } else {
                    bench.requests.release(bench.drive.frames_mut(), id);
                }
            }
        }
        assert_eq!(had, 1, "seed {seed}");
        let data = bench.drive.data();
        assert!(data[4_000..4_200].iter().all(|byte| *byte == data[4_000] && *byte > 0), "seed {seed}");
        assert!((0..8).all(|ticket| data[8 * ticket..8 * ticket + 8] == [ticket as u8; 8]), "seed {seed}");
        assert!(bench.drive.is_at_rest());
    }
}

/// A drive that ends nothing has but so many trims, and reads go past those that wait.
#[test]
fn trims_that_wait_hold_up_nothing_else() {
    let mut bench = Bench::new(200, 64, Temper::Instant);
    bench.requests = ByteRequests::new(200);
    bench.drive.switches.held.store(true, std::sync::atomic::Ordering::SeqCst);
    let trim = |block| ByteRequest::Trim { offset: block * 4096, length: 4096, durability: Durability::Volatile };
    let submitted = |bench: &Bench| bench.drive.switches.submitted.load(std::sync::atomic::Ordering::SeqCst);
    for block in 0..150 {
        assert!(bench.try_begin(block, trim(block), &[]));
    }
    assert_eq!(submitted(&bench), TRIMS_UNDER_WAY_MAX as u64);
    bench.drive.switches.held.store(false, std::sync::atomic::Ordering::SeqCst);
    bench.finish_all();
    assert_eq!(submitted(&bench), 150);
    assert!(bench.drive.is_at_rest() && bench.requests.is_empty());
}

#[test]
fn a_read_only_drive_refuses_changes_and_keeps_no_frame() {
    let mut bench = Bench::new(600, 700, shuffled(7));
    bench.drive.switches.read_only.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(bench.run(write(0, 600 * 4096), &[]), Err(IoError::ReadOnly));
    assert_eq!(bench.run(write(5, 5), &[1; 5]), Err(IoError::ReadOnly));
    let zero = ByteRequest::Zero { offset: 5, length: 9000, durability: Durability::Volatile };
    assert_eq!(bench.run(zero, &[]), Err(IoError::ReadOnly));
    let mark = ByteRequest::WriteUncorrectable { offset: 0, length: 600 * 4096, durability: Durability::Volatile };
    assert_eq!(bench.run(mark, &[]), Err(IoError::ReadOnly));
    assert_eq!(bench.run(read(0, 3), &[]), Ok(vec![0; 3]));
    assert!(bench.drive.is_at_rest());
}

#[test]
fn a_crowd_that_has_gone_leaves_nothing_that_a_write_in_part_looks_through() {
    const CROWD: usize = 300 * 256;
    let mut bench = Bench::new(4, 64, shuffled(1));
    bench.requests = ByteRequests::new(CROWD);
    for ticket in 0..CROWD as u64 {
        let trim = ByteRequest::Trim { offset: 0, length: 512, durability: Durability::Volatile };
        assert!(bench.try_begin(ticket, trim, &[]));
    }
    assert_eq!(bench.requests.len(), CROWD);
    bench.finish_all();
    assert!(bench.requests.changing.is_empty(), "a write in part compares itself with what is under way only");
    assert!(bench.requests.ops.held() <= 256, "{} places are held", bench.requests.ops.held());
    bench.run(write(100, 50), &[7; 50]).unwrap();
    assert_eq!(bench.drive.data()[100..150], [7; 50]);
}
