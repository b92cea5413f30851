//! A namespace of blocks in segments beside a block one, over real sockets.

use crate::memory::Memory;
use crate::nvme::{Host, Queue, Served, Wishes, entry, segment_drive, status};
use crate::nvme_commands::{BLOCKS, SHUFFLED, pattern};
use openftl_core::BLOCK_BYTES;
use openftl_nvme_tcp::InitiatorConfig;
use openftl_nvme_tcp::client::{Ended, Payload};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The namespace id of the drive of segments.
const SEGMENTED: u32 = 2;

/// Data of a write that a host sends only when it is asked for them.
const LONG: u64 = 8;

const FUA: u32 = 1 << 30;

mod segment_status {
    pub const OVERWRITE: u16 = 0x7c0;
    pub const GAP: u16 = 0x7c1;
    pub const BOUNDARY: u16 = 0x7c2;
    pub const TOO_MANY_OPEN: u16 = 0x7c3;
}

/// How a write ended: its status, and what its completion says beside that.
type Said = (u16, u64);

struct Bench {
    served: Served,
    host: Host,
    queue: Queue,
    /// Blocks of a segment, and of all.
    segment: u64,
    blocks: u64,
}

fn bench() -> Bench {
    bench_with(2048)
}

/// With room for so many blocks of requests.
fn bench_with(host_frames: u32) -> Bench {
    let drive = segment_drive(host_frames);
    let (segment, segments) = (u64::from(drive.layout().capacity), u64::from(drive.layout().zones));
    let wishes = Wishes { zoned: Some(drive), ..Wishes::default() };
    let served = Served::with(Memory::new(BLOCKS, 1024, SHUFFLED), wishes);
    let host = served.host();
    let queue = host.queue_as(1, InitiatorConfig::default());
    Bench { served, host, queue, segment, blocks: segments * segment }
}

fn at(opcode: u8, first: u64, count: u64) -> [u8; 64] {
    entry(opcode, SEGMENTED, [first as u32, (first >> 32) as u32, count as u32 - 1])
}

fn said(ended: &Ended) -> Said {
    (ended.status() & 0x7ff, ended.completion.specific.get())
}

/// What blocks from `first` on are to hold.
fn data(first: u64, blocks: u64) -> Vec<u8> {
    (first..first + blocks).flat_map(|block| pattern(block, BLOCK_BYTES)).collect()
}

fn submit(queue: &mut Queue, tag: u64, first: u64, blocks: u64) {
    queue.client.submit(tag, &at(0x01, first, blocks), Payload::ToController(data(first, blocks)));
}

fn write(queue: &mut Queue, first: u64, blocks: u64) -> Said {
    submit(queue, 0, first, blocks);
    said(&queue.client.wait().unwrap())
}

impl Bench {
    fn write(&mut self, first: u64, blocks: u64) -> Said {
        write(&mut self.queue, first, blocks)
    }

    /// Writes what is to be there, in pieces.
    fn fill(&mut self, first: u64, blocks: u64) {
        let mut done = 0;
        while done < blocks {
            let piece = (blocks - done).min(7);
            assert_eq!(self.write(first + done, piece), (0, 0));
            done += piece;
        }
    }

    fn read(&mut self, first: u64, blocks: u64) -> Vec<u8> {
        let room = vec![0xee; blocks as usize * BLOCK_BYTES];
        let (status, read) = self.queue.run(&at(0x02, first, blocks), Payload::ToHost(room));
        assert_eq!(status, 0);
        read
    }

    fn holds(&mut self, first: u64, blocks: u64) {
        assert!(self.read(first, blocks) == data(first, blocks), "{blocks} blocks from {first} on");
    }

    fn is_empty(&mut self, first: u64, blocks: u64) {
        assert!(self.read(first, blocks).iter().all(|byte| *byte == 0), "{blocks} blocks from {first} on");
    }

    /// Dataset Management with these ranges, first blocks and lengths.
    fn deallocate(&mut self, ranges: &[(u64, u64)]) -> u16 {
        let list = ranges
            .iter()
            .flat_map(|(first, blocks)| [&[0; 4][..], &(*blocks as u32).to_le_bytes(), &first.to_le_bytes()].concat());
        let entry = entry(0x09, SEGMENTED, [ranges.len() as u32 - 1, 1 << 2, 0]);
        self.queue.run(&entry, Payload::ToController(list.collect())).0
    }

    /// The status and the block of the newest entry of the error log.
    fn logged(&mut self) -> Said {
        let page = entry(0x02, u32::MAX, [15 << 16 | 1, 0, 0]);
        self.host.admin.submit(0, &page, Payload::ToHost(vec![0; 64]));
        let log = self.host.admin.wait().unwrap().data;
        let status = u16::from_le_bytes([log[12], log[13]]) >> 1;
        (status & 0x7ff, u64::from_le_bytes(log[16..24].try_into().unwrap()))
    }

    fn end(self) {
        let Bench { served, host, queue, .. } = self;
        drop((queue, host));
        served.end();
    }
}

#[test]
fn segments_are_written_in_order_read_and_compared() {
    let mut bench = bench();
    let Bench { segment, blocks, .. } = bench;
    assert_eq!(bench.write(segment, 5), (0, 0));
    assert_eq!(bench.queue.status(&entry(0x00, SEGMENTED, [0; 3])), 0);
    assert_eq!(bench.queue.status(&entry(0x00, u32::MAX, [0; 3])), 0, "a flush of all namespaces");
    let durable = entry(0x01, SEGMENTED, [segment as u32 + 5, 0, 2 | FUA]);
    assert_eq!(bench.queue.run(&durable, Payload::ToController(data(segment + 5, 3))).0, 0);
    bench.holds(segment, 8);
    bench.is_empty(segment + 8, 3);
    assert_eq!(bench.queue.run(&at(0x05, segment, 8), Payload::ToController(data(segment, 8))).0, 0);
    let others = data(segment + 1, 8);
    let compared = bench.queue.run(&at(0x05, segment, 8), Payload::ToController(others)).0;
    assert_eq!(compared, status::COMPARE_FAILURE);
    assert_eq!(bench.queue.status(&at(0x0c, segment, 8)), 0, "Verify");
    // To its end, and from there to the end of the next one: reads and comparisons reach over both.
    bench.fill(segment + 8, segment - 8);
    bench.fill(2 * segment, segment);
    bench.holds(2 * segment - 5, 11);
    bench.holds(segment, 2 * segment);
    let over = at(0x05, 2 * segment - 5, 11);
    assert_eq!(bench.queue.run(&over, Payload::ToController(data(2 * segment - 5, 11))).0, 0);
    let read = bench.read(3 * segment - 2, segment + 4);
    let (there, rest) = read.split_at(2 * BLOCK_BYTES);
    assert!(there == data(3 * segment - 2, 2) && rest.iter().all(|byte| *byte == 0), "over two ends");
    // The last one ends with the namespace.
    bench.fill(blocks - segment, segment);
    bench.holds(blocks - 3, 3);
    for (opcode, payload) in [(0x01, Payload::ToController(data(0, 2))), (0x02, Payload::ToHost(vec![0; 8192]))] {
        assert_eq!(bench.queue.run(&at(opcode, blocks - 1, 2), payload).0, status::LBA_OUT_OF_RANGE);
    }
    bench.end();
}

#[test]
fn what_is_out_of_order_ends_with_its_status_and_the_write_pointer() {
    let mut bench = bench();
    let Bench { segment, blocks, .. } = bench;
    let begin = 2 * segment;
    assert_eq!(bench.write(begin + 1, 1), (segment_status::GAP, begin));
    assert_eq!(bench.logged(), (segment_status::GAP, begin));
    assert_eq!(bench.write(begin, 3), (0, 0));
    for first in [begin, begin + 2] {
        assert_eq!(bench.write(first, 2), (segment_status::OVERWRITE, begin + 3), "at {first}");
        assert_eq!(bench.logged(), (segment_status::OVERWRITE, begin + 3));
    }
    assert_eq!(bench.write(begin + 4, 1), (segment_status::GAP, begin + 3));
    assert_eq!(bench.write(begin + 3, 1), (0, 0), "nothing of those was written");
    // A write of two segments is none of either. Its completion names no block, its entry in the log the first one.
    bench.fill(begin + 4, segment - 6);
    assert_eq!(bench.write(begin + segment - 2, 4), (segment_status::BOUNDARY, 0));
    assert_eq!(bench.logged(), (segment_status::BOUNDARY, begin + segment - 2));
    assert_eq!(bench.write(begin + segment - 2, 2), (0, 0));
    bench.is_empty(begin + segment, 2);
    // A full one goes on behind its end.
    assert_eq!(bench.write(begin + 7, 1), (segment_status::OVERWRITE, begin + segment));
    assert_eq!(bench.write(begin + segment - 1, 2).0, segment_status::BOUNDARY);
    // Three are begun, and that is the most; what is begun can be written on.
    for number in [0, 1, 3] {
        assert_eq!(bench.write(number * segment, 1), (0, 0));
    }
    assert_eq!(bench.write(4 * segment, 1), (segment_status::TOO_MANY_OPEN, 0));
    assert_eq!(bench.logged(), (segment_status::TOO_MANY_OPEN, 4 * segment));
    assert_eq!(bench.write(segment + 1, 1), (0, 0));
    bench.fill(1, segment - 1);
    assert_eq!(bench.write(4 * segment, 1), (0, 0), "a full one is not begun any more");
    assert_eq!(bench.write(blocks - 1, 1).0, segment_status::GAP);
    // What they do not have; the block namespace beside them does.
    for opcode in [0x04, 0x08] {
        assert_eq!(bench.queue.status(&at(opcode, 4 * segment + 1, 1)), status::INVALID_OPCODE);
        assert_eq!(bench.queue.status(&entry(opcode, 1, [0; 3])), 0);
    }
    let source = [&[0; 8][..], &(4 * segment).to_le_bytes(), &[0; 16]].concat();
    let copied = bench.queue.run(&at(0x19, 4 * segment + 1, 1), Payload::ToController(source)).0;
    assert_eq!(copied, status::INVALID_OPCODE);
    bench.holds(begin, segment);
    bench.end();
}

#[test]
fn a_segment_is_empty_when_all_of_it_is_deallocated() {
    let mut bench = bench();
    let segment = bench.segment;
    let half = segment / 2;
    bench.fill(0, segment);
    // As a whole.
    assert_eq!(bench.deallocate(&[(0, segment)]), 0);
    bench.is_empty(0, segment);
    bench.fill(0, segment);
    // Block by block, the last one first: until the last of them all is there.
    for block in (0..segment).rev() {
        bench.holds(block, 1);
        assert_eq!(bench.write(0, 1), (segment_status::OVERWRITE, segment));
        assert_eq!(bench.deallocate(&[(block, 1)]), 0);
    }
    bench.is_empty(0, segment);
    bench.fill(0, segment);
    // What is deallocated twice counts once.
    for range in [(0, half), (0, half), (1, half - 1)] {
        assert_eq!(bench.deallocate(&[range]), 0);
        bench.holds(0, segment);
    }
    assert_eq!(bench.deallocate(&[(half, segment - half)]), 0);
    bench.is_empty(0, segment);
    // Several ranges of one command, and one of several segments.
    bench.fill(0, segment);
    bench.fill(segment, segment);
    bench.fill(2 * segment, segment);
    assert_eq!(bench.deallocate(&[(3, segment - 3), (0, 3), (2 * segment, 5)]), 0);
    bench.is_empty(0, segment);
    bench.holds(segment, 2 * segment);
    assert_eq!(bench.deallocate(&[(0, 2 * segment + 1)]), 0);
    bench.is_empty(0, 2 * segment);
    bench.holds(2 * segment, segment);
    // One that is begun: its blocks, and the end that is not written.
    bench.fill(0, 5);
    assert_eq!(bench.deallocate(&[(0, 5)]), 0);
    bench.holds(0, 5);
    assert_eq!(bench.write(5, 1), (0, 0), "a host may go on in it");
    assert_eq!(bench.deallocate(&[(0, segment)]), 0);
    bench.is_empty(0, segment);
    assert_eq!(bench.deallocate(&[(0, segment)]), 0, "of an empty one nothing changes");
    bench.fill(0, segment);
    assert_eq!(bench.deallocate(&[(bench.blocks - 1, 2)]), status::LBA_OUT_OF_RANGE);
    bench.end();
}

#[test]
fn writes_under_way_together_are_accepted_in_the_order_in_which_they_came() {
    let mut bench = bench();
    let segment = bench.segment;
    // Long ones wait for their data, short ones bring them along, of two segments in turn.
    let lengths = [5, 1, 9, 2, 1, 30, 3, 1, 17, 2, 1, 1, 12];
    let mut next = [0, segment];
    for (tag, blocks) in lengths.into_iter().enumerate() {
        let next = &mut next[tag % 2];
        submit(&mut bench.queue, tag as u64, *next, blocks);
        *next += blocks;
    }
    for _ in lengths {
        let ended = bench.queue.client.wait().unwrap();
        assert_eq!(said(&ended), (0, 0), "write {}", ended.tag);
    }
    let [first, second] = next;
    bench.holds(0, first);
    bench.holds(segment, second - segment);
    // To the end of a segment.
    let rest: Vec<u64> = (first..segment).step_by(11).collect();
    for first in &rest {
        submit(&mut bench.queue, *first, *first, (segment - first).min(11));
    }
    for _ in rest {
        assert_eq!(said(&bench.queue.client.wait().unwrap()), (0, 0));
    }
    bench.holds(0, segment);
    bench.end();
}

#[test]
fn a_write_that_is_refused_does_not_hold_back_those_behind_it() {
    let mut bench = bench();
    let segment = bench.segment;
    let writes = [
        (0, LONG, (0, 0)),
        (2, LONG, (segment_status::OVERWRITE, 8)),
        (segment + 3, LONG, (segment_status::GAP, segment)),
        (8, 1, (0, 0)),
        // Over the end of a segment, and not from where it goes on: the latter is said.
        (segment - 4, LONG, (segment_status::GAP, 9)),
        (segment, LONG, (0, 0)),
        (9, LONG, (0, 0)),
        (17, 1, (0, 0)),
        (17, 1, (segment_status::OVERWRITE, 18)),
    ];
    for (tag, (first, blocks, _)) in writes.into_iter().enumerate() {
        submit(&mut bench.queue, tag as u64, first, blocks);
    }
    let mut ends = vec![None; writes.len()];
    for _ in writes {
        let ended = bench.queue.client.wait().unwrap();
        ends[ended.tag as usize] = Some(said(&ended));
    }
    assert_eq!(ends, writes.map(|(.., expected)| Some(expected)));
    bench.holds(0, 18);
    bench.holds(segment, LONG);
    bench.end();
}

/// Whoever does not send the data that it is asked for keeps its own queue waiting.
#[test]
fn data_that_are_late_hold_back_no_other_queue() {
    let mut bench = bench();
    let segment = bench.segment;
    let mut other = bench.host.queue_as(2, InitiatorConfig::default());
    // A client answers requests for data when it waits.
    submit(&mut other, 0, 0, LONG);
    submit(&mut other, 1, LONG, 1);
    bench.fill(segment, segment);
    bench.holds(segment, segment);
    bench.is_empty(0, LONG + 1);
    assert_eq!(bench.write(LONG, 1), (segment_status::GAP, 0), "before them there is nothing yet");
    for _ in 0..2 {
        assert_eq!(said(&other.client.wait().unwrap()), (0, 0));
    }
    bench.holds(0, LONG + 1);
    drop(other);
    bench.end();
}

/// Data come late, and there is room for few of them: writes of any length, of three segments, still land in order.
#[test]
fn writes_land_in_order_however_their_data_come() {
    for (seed, host_frames) in [(1, 48), (2, 300), (3, 2048)] {
        let mut bench = bench_with(host_frames);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let segment = bench.segment;
        let mut next = [0; 3];
        let mut under_way = 0;
        loop {
            let open: Vec<usize> = (0..next.len()).filter(|index| next[*index] < segment).collect();
            let is_done = open.is_empty();
            while under_way > 0 && (is_done || under_way >= 24 || chance.next_u32().is_multiple_of(3)) {
                let ended = bench.queue.client.wait().unwrap();
                assert_eq!(said(&ended), (0, 0), "seed {seed}, write {}", ended.tag);
                under_way -= 1;
            }
            if is_done {
                break;
            }
            let index = open[chance.next_u32() as usize % open.len()];
            let most = [2, 4, 40][chance.next_u32() as usize % 3];
            let blocks = (1 + u64::from(chance.next_u32()) % most).min(segment - next[index]);
            submit(&mut bench.queue, next[index], index as u64 * segment + next[index], blocks);
            next[index] += blocks;
            under_way += 1;
        }
        bench.holds(0, 2 * segment);
        bench.holds(2 * segment, segment);
        bench.end();
    }
}
