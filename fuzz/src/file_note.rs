//! The note of a file, as it is and with the magic that a fuzzer would not find.

use openftl_files::note::{NOTE_MAGIC, NOTE_VERSION, Note};

pub fn run(data: &[u8]) {
    read(data);
    let mut signed = data.to_vec();
    if let Some(head) = signed.first_chunk_mut::<5>() {
        head[..4].copy_from_slice(&NOTE_MAGIC.to_le_bytes());
        head[4] = NOTE_VERSION;
        read(&signed);
    }
}

fn read(bytes: &[u8]) {
    let Ok(note) = Note::decode(bytes) else { return };
    assert!(note.path.starts_with('/'), "{note:?}");
    let again = note.encode();
    assert_eq!(again.len(), bytes.len());
    assert_eq!(Note::decode(&again), Ok(note));
}
