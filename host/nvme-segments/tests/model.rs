//! A served drive does what a drive of segments in memory does, with one request after the other and with many under way.

use openftl_parts::target::{BlockTarget, Durability, IoError, Request, SegmentTarget};
use openftl_segments::MemorySegments;
use openftl_zones::Face;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::*;

fn below(random: &mut Xoshiro256PlusPlus, most: u64) -> u64 {
    random.next_u64() % most
}

#[test]
fn random_requests_end_as_those_to_a_drive_in_memory() {
    // Not as zones alone: the face of a drive of segments may be that of zones.
    let mut drive = drive(Face::Segments, LIMITS, 60);
    drive.set_face(Face::Zones);
    let served = Served::new(drive);
    let mut there = Host::new(served.connect());
    let (blocks, capacity) = (there.drive.blocks(), there.drive.segment_blocks().unwrap());
    let segments = (blocks / capacity) as u32;
    assert!(!capacity.is_power_of_two(), "there are gaps between zones, which no segment has");
    let mut here = Host::new(MemorySegments::new(segments, capacity as u32, 2048));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut refused = 0;
    for round in 0..1500_u64 {
        let segment = below(&mut random, 7.min(segments.into()));
        let begins = segment * capacity;
        let written = u64::from(here.drive.segment(segment as u32).written);
        assert_eq!(there.drive.segment(segment as u32), here.drive.segment(segment as u32), "round {round}");
        let (found, wanted) = match below(&mut random, 10) {
            0..=4 => {
                let first = match below(&mut random, 12) {
                    0 => begins + written + 1,
                    1 => begins + written.saturating_sub(1),
                    2 => blocks - below(&mut random, 3),
                    _ => begins + written,
                };
                let count = 1 + below(&mut random, 40).min(capacity / 2);
                let values: Vec<u64> = (0..count).map(|index| round << 8 | index).collect();
                let durability = if below(&mut random, 4) == 0 { Durability::Durable } else { Durability::Volatile };
                (there.write(first, &values, durability), here.write(first, &values, durability))
            }
            5..=7 => {
                let first = below(&mut random, 7 * capacity);
                let count = 1 + below(&mut random, 2 * capacity).min(200) as usize;
                let (found, wanted) = (there.read(first, count), here.read(first, count));
                assert_eq!(found, wanted, "round {round}: {count} blocks from {first} on");
                (found.map(drop), wanted.map(drop))
            }
            8 => (there.run(Request::Flush), here.run(Request::Flush)),
            _ => {
                let trim = Request::Trim { first: begins, blocks: capacity, durability: Durability::Volatile };
                (there.run(trim), here.run(trim))
            }
        };
        assert_eq!(found, wanted, "round {round}");
        refused += u32::from(found.is_err());
    }
    assert!((50..700).contains(&refused), "{refused} of 1500");
    drop(there);
    served.end();
}

#[test]
fn what_is_under_way_is_read_flushed_and_trimmed_in_its_order() {
    let served = Served::new(drive(Face::Zones, LIMITS, 60));
    let mut there = Host::new(served.connect());
    let capacity = there.drive.segment_blocks().unwrap();
    for round in 0..20_u64 {
        // Six logs are written, each block by itself; nothing is waited for.
        let mut tags = Vec::new();
        for block in 0..capacity {
            for segment in 0..6 {
                let value = round << 32 | segment << 16 | block;
                tags.push(there.submit_write(segment * capacity + block, &[value], Durability::Volatile).unwrap());
            }
        }
        let flush = there.submit(Request::Flush).unwrap();
        let again = there.submit_write(6 * capacity, &[round + 1], Durability::Volatile).unwrap();
        for segment in 0..6 {
            let read = there.read(segment * capacity, capacity as usize).unwrap();
            let wanted: Vec<u64> = (0..capacity).map(|block| round << 32 | segment << 16 | block).collect();
            assert_eq!(read, wanted, "round {round}, segment {segment}");
        }
        _ = (flush, again);
        let mut trims = Vec::new();
        for segment in 0..7 {
            let trim = Request::Trim { first: segment * capacity, blocks: capacity, durability: Durability::Volatile };
            trims.push(there.submit(trim).unwrap());
            assert_eq!(there.drive.segment(segment as u32).written, 0, "it can be written at once");
        }
        assert_eq!(there.read(0, 2).unwrap(), [0, 0], "behind the trim");
    }
    drop(there);
    served.end();
}

#[test]
fn what_was_flushed_is_there_after_a_power_cut_and_of_the_rest_a_prefix() {
    let mut served = Served::new(drive(Face::Zones, LIMITS, 60));
    for round in 0..4_u64 {
        let mut there = Host::new(served.connect());
        let capacity = there.drive.segment_blocks().unwrap();
        let first = round * capacity;
        let values: Vec<u64> = (1..=capacity).map(|block| round << 16 | block).collect();
        let (flushed, rest) = values.split_at(5 + round as usize);
        there.write(first, flushed, Durability::Volatile).unwrap();
        there.run(Request::Flush).unwrap();
        there.submit_write(first + flushed.len() as u64, &rest[..rest.len() / 2], Durability::Volatile).unwrap();
        served = Served::new(served.crash());
        assert_eq!(there.run(Request::Flush), Err(IoError::ReadOnly), "the connection is cut");
        assert!(there.drive.trouble().is_some_and(|why| why.contains("cut")), "{:?}", there.drive.trouble());
        assert!(matches!(there.read(first, 1), Err(IoError::Unrecovered { .. })));

        let mut there = Host::new(served.connect());
        let written = there.drive.segment(round as u32).written as usize;
        assert!(written >= flushed.len(), "round {round}: {written} blocks");
        assert_eq!(there.read(first, written).unwrap(), values[..written], "round {round}");
    }
    served.end();
}
