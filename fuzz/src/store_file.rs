//! The start of a drive description, its chunk records, and entries of its journal.

use openftl_core::ChunkId;
use openftl_media::parts::{PARTS_MAX, check_parts};
use openftl_media::store::format::{Header, JournalEntry, PAGE_BYTES, PartEntry, Record, Start};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub fn run(data: &[u8]) {
    start(data);
    // The same bytes again with the sums that a fuzzer would not find.
    if let Ok((mut header, rest)) = Header::read_from_prefix(data) {
        // As many entries of parts at the end as the header says, and there are.
        let count = (header.parts.get() as usize).min(PARTS_MAX).min(rest.len() / size_of::<PartEntry>());
        let (text, bytes) = rest.split_at(rest.len() - count * size_of::<PartEntry>());
        let mut entries = vec![PartEntry::new_zeroed(); count];
        entries.as_mut_bytes().copy_from_slice(bytes);
        let Ok(text) = std::str::from_utf8(text) else { return };
        header.profile_bytes = (text.len() as u32).into();
        header.parts = (count as u32).into();
        header.crc = header.checksum(text, &entries).into();
        start(&[header.as_bytes(), text.as_bytes(), bytes].concat());
    }
    for bitmap_bytes in [2, 192] {
        if let Some((entry, pages)) = JournalEntry::parse(data, bitmap_bytes) {
            assert_eq!(
                entry.encode().len() as u64,
                pages * PAGE_BYTES,
                "an accepted entry is as long as the one written"
            );
        }
    }
    if let Ok((record, _)) = Record::read_from_prefix(data) {
        for number in [0, 7, u32::MAX] {
            self::record(record, number);
            self::record(Record { crc: record.checksum(number).into(), ..record }, number);
        }
    }
}

fn start(bytes: &[u8]) {
    let Ok(Start { profile, geometry, seed, parts }) = Start::parse(bytes) else { return };
    let (header, text) = Header::read_from_prefix(bytes).expect("it was understood");
    let text = &text[..header.profile_bytes.get() as usize];
    let text = std::str::from_utf8(text).expect("it was understood");
    let entries: Vec<PartEntry> = parts.iter().map(PartEntry::new).collect();
    assert_eq!(
        Header::new(&geometry, seed, text, &entries),
        header,
        "an accepted header is the one that would be written"
    );
    assert_eq!(profile.geometry(geometry.chunks_per_pu).as_ref(), Ok(&geometry));
    assert!(geometry.has_chunk(ChunkId(0)));
    assert_eq!(check_parts(&geometry, &parts), Ok(()));
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
