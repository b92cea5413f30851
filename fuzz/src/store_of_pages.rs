//! What a store of pages keeps in its area: leaves of the map, the anchor, records of the log, headers of pages.

use openftl_core::BLOCK_BYTES;
use openftl_pages::layout::Anchor;
use openftl_pages::leaf::Leaf;
use openftl_pages::place::{HEADER_BYTES, Header, Place};
use openftl_pages::record::read_records;
use openftl_pages::session::Sessions;

/// Blocks that have sessions.
const BLOCKS: u32 = 2;

pub fn run(bytes: &[u8]) {
    let mut block = [0; BLOCK_BYTES];
    let count = bytes.len().min(BLOCK_BYTES);
    block[..count].copy_from_slice(&bytes[..count]);
    if let Some(header) = Header::read(bytes) {
        assert_eq!(header.to_bytes(), bytes[..HEADER_BYTES], "a header is written as it was read");
    }
    if let Some((anchor, chunks)) = Anchor::read(&block) {
        let mut again = [0; BLOCK_BYTES];
        anchor.write(&chunks, &mut again);
        assert_eq!(Anchor::read(&again), Some((anchor, chunks)), "an anchor that is written is read back");
    }
    if let Some(mut leaf) = Leaf::read(&block, usize::MAX) {
        let pages: Vec<(u64, Place)> = leaf.pages_from(0).collect();
        assert_eq!(pages.len(), leaf.pages(), "pages are counted");
        let mut again = [0; BLOCK_BYTES];
        leaf.write(&mut again);
        let read = Leaf::read(&again, usize::MAX).expect("a leaf that is written is read back");
        assert!(read.pages_from(0).eq(pages.iter().copied()), "with its pages");
        for (lpid, place) in &pages {
            assert_eq!(leaf.get(*lpid), Some(*place));
            assert_eq!(leaf.set(*lpid, None).expect("what is taken away needs no room"), Some(*place));
        }
        assert_eq!(leaf.pages(), 0);
    }
    // Sessions are what they are, whatever a block has.
    let mut sessions = Sessions::new(BLOCKS);
    sessions.read(1, &block);
    _ = read_records(bytes);
}
