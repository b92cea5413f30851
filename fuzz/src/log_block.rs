//! A block of the log: its records go into another log and come out of it the same.

use openftl_core::{BLOCK_BYTES, Frames};
use openftl_parts::journal::log::Log;
use openftl_parts::journal::log_block::{LOG_VERSION, Record, parse_block, records};
use openftl_parts::map::Width;

const DRIVE: u64 = 0xD21E;

pub fn run(data: &[u8]) {
    let mut block = [0; BLOCK_BYTES];
    let bytes = data.len().min(BLOCK_BYTES);
    block[..bytes].copy_from_slice(&data[..bytes]);
    parse(&block);
    // The same bytes with the header of this drive.
    block[..4].copy_from_slice(b"OFLG");
    block[4..6].copy_from_slice(&LOG_VERSION.to_le_bytes());
    block[8..16].copy_from_slice(&DRIVE.to_le_bytes());
    parse(&block);
}

fn parse(block: &[u8; BLOCK_BYTES]) {
    let Ok(parsed) = parse_block(block, DRIVE) else { return };
    let Some(found) = records(parsed.words).collect::<Option<Vec<Record>>>() else { return };
    // Numbers that a word has room for may need two in the other.
    let mut frames = Frames::new(Log::frames_needed(4), 0, 16);
    let mut log = Log::new(DRIVE, Width::Wide, 4, 1, &mut frames);
    for record in &found {
        log.append(&mut frames, *record);
    }
    log.force(&mut frames);
    let unit = log.next_unit(0).map_or(Vec::new(), |unit| unit.frames.to_vec());
    let again: Vec<Record> = unit
        .iter()
        .flat_map(|frame| {
            let parsed = parse_block(frames.bytes(*frame), DRIVE).expect("what a log writes is a log block");
            records(parsed.words).map(|record| record.expect("what a log writes are records")).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(found, again);
}
