//! The start of a drive file, and its chunk records.

use openftl_core::ChunkId;
use openftl_media::store::format::{Header, Record, Start};
use zerocopy::{FromBytes, IntoBytes};

pub fn run(data: &[u8]) {
    start(data);
    // The same bytes again with the sums that a fuzzer would not find.
    if let Ok((mut header, text)) = Header::read_from_prefix(data) {
        let Ok(text) = std::str::from_utf8(text) else { return };
        header.profile_bytes = (text.len() as u32).into();
        header.crc = header.checksum(text).into();
        start(&[header.as_bytes(), text.as_bytes()].concat());
    }
    if let Ok((record, _)) = Record::read_from_prefix(data) {
        for number in [0, 7, u32::MAX] {
            self::record(record, number);
            self::record(Record { crc: record.checksum(number).into(), ..record }, number);
        }
    }
}

fn start(bytes: &[u8]) {
    let Ok(Start { profile, geometry, seed }) = Start::parse(bytes) else { return };
    let (header, text) = Header::read_from_prefix(bytes).expect("it was understood");
    let text = &text[..header.profile_bytes.get() as usize];
    let text = std::str::from_utf8(text).expect("it was understood");
    assert_eq!(Header::new(&geometry, seed, text), header, "an accepted header is the one that would be written");
    assert_eq!(profile.geometry(geometry.chunks_per_pu).as_ref(), Ok(&geometry));
    assert!(geometry.has_chunk(ChunkId(0)));
}

fn record(record: Record, number: u32) {
    let Some(state) = record.state(number, 4096) else { return };
    assert!(record.write_pointer.get() <= 4096, "a chunk is not written beyond its end");
    if record.as_bytes().iter().any(|byte| *byte != 0) {
        let lost = record.flags & openftl_media::store::format::LOST_BLOCKS != 0;
        let again = Record::new(number, state, record.write_pointer.get(), record.resets.get(), lost);
        assert_eq!(again.state(number, 4096), Some(state));
    }
}
