//! Records and batches of the catalog of files on zones, as they are and with the magic and the checksum that a fuzzer would not find.

use openftl_files::zoned::record::{FileRecord, decode_batch, decode_head, encode_batch, gone};

pub fn run(data: &[u8]) {
    // As the first block of a batch, and as a whole one.
    let _ = decode_head(data);
    let _ = decode_batch(data);
    read(data);
    let batch = encode_batch(3, 1, [data].into_iter());
    assert_eq!(decode_head(&batch).map(|head| (head.generation, head.number)), Ok((3, 1)));
    assert_eq!(decode_batch(&batch), Ok(data));
}

/// Reads records one behind the other, as far as they are some.
fn read(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Ok((file, record, rest)) = FileRecord::decode(bytes) else { return };
        if let Some(record) = &record {
            assert!(record.path.starts_with('/'), "{record:?}");
        }
        let again = record.as_ref().map_or_else(|| gone(file), |record| record.encode(file));
        assert_eq!(again.len(), bytes.len() - rest.len());
        assert_eq!(FileRecord::decode(&again), Ok((file, record, &[][..])));
        bytes = rest;
    }
}
